//! Decides which proxy the flags name.

use super::{Environment, Unusable, expanded};
use crate::cli::NetworkFlags;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use std::fmt;
use std::net::IpAddr;

/// What the flags say of proxies.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Which one.
    pub choice: Choice,
    /// The hosts that are reached without one, in the form of `NO_PROXY`.
    pub exceptions: String,
}

/// Which proxy stands before the remote.
#[derive(Clone, PartialEq, Eq)]
pub enum Choice {
    /// What the environment or the system says.
    System,
    /// None.
    Off,
    /// This one. Its user info is the credential.
    Named(Url),
}

impl fmt::Debug for Choice {
    /// Without the credential (X1).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => formatter.write_str("System"),
            Self::Off => formatter.write_str("Off"),
            Self::Named(url) => write!(formatter, "Named({})", super::redacted(url)),
        }
    }
}

/// The proxy cannot be used. Holds nothing of its URL (X1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--proxy {0}: write http://HOST:PORT, https://, socks5:// or socks5h://, or off")]
pub struct Problem(&'static str);

impl Proxy {
    pub(super) fn new(
        flags: &NetworkFlags,
        environment: Environment<'_>,
    ) -> Result<Self, Unusable> {
        let choice = match flags.proxy.as_deref().map(str::trim) {
            None => Choice::System,
            Some("off") => Choice::Off,
            Some(text) => Choice::Named(named(text, environment)?),
        };
        Ok(Self { choice, exceptions: flags.no_proxy.clone().unwrap_or_default() })
    }
}

/// A variable before the `@` holds a name or a password as it is, whatever characters it has. Any other
/// may hold a whole URL.
fn named(text: &str, environment: Environment<'_>) -> Result<Url, Unusable> {
    let encoded = |value: String| utf8_percent_encode(value.trim(), NON_ALPHANUMERIC).to_string();
    let (user_info, rest) = text.split_at(text.rfind('@').unwrap_or_default());
    let mut whole = expanded("--proxy", user_info, environment, encoded)?;
    whole += &expanded("--proxy", rest, environment, |value| value)?;
    let url = Url::parse(whole.trim()).map_err(|_| Problem("is no URL"))?;
    if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") {
        return Err(Problem("begins with something else than a kind of proxy").into());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(Problem("names no host").into());
    }
    Ok(url)
}

/// A password in the arguments, which every process of the machine can read (K93).
pub(crate) fn exposed(text: &str) -> Option<String> {
    let (before, _) = text.rsplit_once('@')?;
    let (_, user_info) = before.split_once("://")?;
    let (_, password) = user_info.split_once(':')?;
    (!password.is_empty() && !password.contains("${")).then(|| {
        "--proxy: others can read its password in the list of processes; write ${NAME} in its place, for \
         an environment variable"
            .to_owned()
    })
}

/// Whether a host, without brackets, is this machine.
pub fn is_loopback(host: &str) -> bool {
    let address: Option<IpAddr> = host.parse().ok();
    address.map_or(host == "localhost" || host.ends_with(".localhost"), |address| {
        address.to_canonical().is_loopback()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k91_this_machine_is_known_by_all_its_names() {
        let cases = [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("localhost", true),
            ("agent.localhost", true),
            ("example.com", false),
            ("127.0.0.1.example.com", false),
            ("10.0.0.1", false),
            ("0.0.0.0", false),
        ];
        for (host, expected) in cases {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }

    #[test]
    fn k93_a_password_in_the_arguments_is_warned_of_and_not_shown() {
        for exposed_one in ["http://anna:s3cret@proxy.test", "socks5h://:s3cret@proxy.test:1"] {
            let warning = exposed(exposed_one).unwrap_or_default();
            assert!(warning.contains("${NAME}") && !warning.contains("s3cret"), "{exposed_one}");
        }
        for fine in
            ["http://anna:${NAME}@proxy.test", "http://anna@proxy.test", "http://p:1", "off"]
        {
            assert_eq!(exposed(fine), None, "{fine}");
        }
    }

    #[test]
    fn x1_the_credential_of_a_proxy_is_not_among_what_is_printed_for_finding_faults() {
        let url = named("http://anna:${NAME}@proxy.test:1", &|_| Ok("s3cret".to_owned()));
        let choice = url.map(Choice::Named);
        let printed = format!("{choice:?}");
        assert!(printed.contains("proxy.test:1") && !printed.contains("s3cret"), "{printed}");
    }
}
