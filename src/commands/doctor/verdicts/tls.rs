//! Decides what the facts of TLS and of the certificate mean.

use super::{Context, Exchange, seconds};
use crate::commands::doctor::report::Finding;
use crate::config::proxy::is_loopback;
use crate::shell::http::inspection::{Answered, InTls, Lost, Stage};
use reqwest::Version;
use std::time::{Duration, SystemTime};

/// How soon the end of a certificate is told before it comes.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// A certificate as people read it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub issuer: String,
    pub until: SystemTime,
    /// It was checked.
    pub is_checked: bool,
}

pub fn tls(
    context: &Context,
    exchange: &Exchange,
    shown: Option<&Shown>,
    now: SystemTime,
) -> Finding {
    match exchange {
        Exchange::Lost(Lost::Failed { stage: Stage::Tls(trouble), reason }) => {
            return Finding::failed(reason, advice(trouble.as_ref()));
        }
        Exchange::Silent(after, Some(false)) => {
            return Finding::failed(
                format!("nothing came of it in {}", seconds(*after)),
                "Does the server speak TLS at this port? Is it overloaded?",
            );
        }
        _ => {}
    }
    if context.url.scheme() == "http" {
        let host = context.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        return match is_loopback(host) {
            true => Finding::ok("none: the agent is on this machine"),
            false => Finding::note(
                "none: others on the way can read and change everything",
                "Use https:// where the agent offers it.",
            ),
        };
    }
    let Some(Shown { issuer, until, is_checked }) = shown else {
        return Finding::ok("agreed on");
    };
    let date = httpdate::fmt_http_date(*until);
    let alpn = match exchange {
        Exchange::Answered(Answered { version: Version::HTTP_2, .. }) => "; ALPN h2",
        Exchange::Answered(_) => "; ALPN without h2",
        _ => "",
    };
    let found = format!("certificate by {issuer}, valid until {date}{alpn}");
    if !is_checked {
        return Finding::note(
            format!("{found}; not checked"),
            "Leave --insecure out, and name the file of its authority with --ca-file.",
        );
    }
    match until.duration_since(now) {
        Ok(left) if left < SOON => Finding::note(found, "Have the certificate renewed soon."),
        _ => Finding::ok(found),
    }
}

/// What to do.
pub fn advice(trouble: Option<&InTls>) -> &'static str {
    match trouble {
        Some(
            InTls::WantsCertificate | InTls::RefusesCertificate(_) | InTls::AskedForCertificate(_),
        ) => "Name a certificate that it takes with --client-cert, and its key with --client-key.",
        Some(InTls::UnknownIssuer) => {
            "If you trust who issued the certificate, name the file of that authority with --ca-file."
        }
        Some(InTls::NoAuthorities(_)) => {
            "Install the package ca-certificates, or name the file of the agent's authority with --ca-file."
        }
        Some(InTls::Expired { .. }) => {
            "Have the certificate renewed. If it should be valid, set the clock of this machine."
        }
        Some(InTls::NotYetValid { .. }) => {
            "Set the clock of this machine. If it is right, wait, or have another certificate issued."
        }
        Some(InTls::OtherHost(_)) => {
            "Use the name that the certificate is for, or have one issued for the name in the URL."
        }
        Some(InTls::OfAuthority | InTls::Unusable(_)) => {
            "Have another certificate issued: one for a server of this name, not that of an authority."
        }
        Some(InTls::NoProtocol) => {
            "The server takes no version of HTTP that is offered to it (ALPN): have it take http/1.1 or h2. With --http 1.1, and \
             for a socket, only http/1.1 is offered."
        }
        Some(InTls::NotSpoken) => {
            "Is the port right? If it is, let the URL begin with http: (for a socket ws:)."
        }
        Some(InTls::Spoken) => "Let the URL begin with https: (for a socket wss:).",
        None => {
            "Does the server speak TLS at this port? If not, let the URL begin with http:. What stands between may break it off, \
             too."
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::commands::doctor::report::Verdict;
    use reqwest::Url;
    use std::time::UNIX_EPOCH;

    fn context(url: &str) -> Context {
        Context {
            url: Url::parse(url).unwrap(),
            proxy: None,
            is_read: false,
            sent: Vec::new(),
            is_socket: false,
        }
    }

    #[test]
    fn a_certificate_that_expires_soon_or_is_not_checked_is_noted() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let cases = [
            (SOON * 2, true, Verdict::Ok),
            (SOON / 2, true, Verdict::Note),
            (SOON * 2, false, Verdict::Note),
        ];
        for (left, is_checked, expected) in cases {
            let shown = Shown { issuer: "Anna".to_owned(), until: now + left, is_checked };
            let context = context("https://agent.test/acp");
            let found = tls(&context, &Exchange::Upgraded, Some(&shown), now);
            assert_eq!(found.verdict, expected, "{left:?} {found:?}");
            assert!(found.found.contains("by Anna"), "{found:?}");
        }
        let plain = tls(&context("http://agent.test/acp"), &Exchange::Upgraded, None, now);
        assert_eq!(plain.verdict, Verdict::Note);
    }

    #[test]
    fn what_is_wrong_with_tls_is_told_whole_and_what_to_do_beside_it() {
        let trouble = InTls::NoProtocol;
        let reason = trouble.to_string();
        let lost = Lost::Failed { stage: Stage::Tls(Some(trouble)), reason: reason.clone() };
        let context = context("https://agent.test/acp");
        let found = tls(&context, &Exchange::Lost(lost), None, UNIX_EPOCH);
        assert_eq!(found.found, reason);
        assert!(found.advice.unwrap().contains("ALPN"));
    }
}
