//! Decides which way requests go, and tells the errors of a proxy from those of the remote.

use super::request::{Failure, causes, reason};
use super::trouble::{self, Reason};
use super::{tls, tunnel};
use crate::config::proxy::{Choice, Proxy, is_loopback};
use crate::config::tls::plain;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::{ClientBuilder, Response, StatusCode, Url};
use std::error::Error;

/// What hyper-util says where a proxy wants a credential, or another one. Its errors have no types that
/// could be named.
const WANTS_CREDENTIALS: [&str; 4] = [
    "tunnel error: proxy authorization required",
    "SOCKS error: credentials not accepted",
    "SOCKS error: server does not support user/pass authentication",
    "SOCKS error: server implements authentication incorrectly",
];
/// The same where the proxy cannot be reached, and where it does not do what it is asked for.
const UNREACHABLE: [&str; 1] = ["failed to create underlying connection"];
const REFUSES: [&str; 2] = ["tunnel error: ", "SOCKS error: "];
/// The same of reqwest, where it is to resolve the remote's name for a SOCKS proxy.
const UNRESOLVED: [&str; 1] = ["error resolving for socks proxy"];

/// What is wrong at a proxy. Its text says at which, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(
        "the proxy {proxy} wants a user name and a password, or others than it got{or}: write --proxy '{form}', \
         with the password in the environment variable PASSWORD"
    )]
    WantsCredential { proxy: String, form: String, or: &'static str },
    #[error("its name cannot be resolved here ({0}): with socks5h:// the proxy resolves it")]
    Unresolved(Box<Reason>),
    #[error("no connection came about through the proxy {0} in time: is it there?")]
    Silent(String),
    #[error("the proxy {proxy} cannot be reached: {reason}")]
    Unreachable { proxy: String, reason: Box<Reason> },
    #[error(
        "the proxy {proxy} lets nothing through to it ({reason}): `acp-tether doctor` tells more"
    )]
    Refuses { proxy: String, reason: String },
    #[error("the proxy {proxy} opens a way to it, which is cut before TLS is agreed on: {reason}")]
    Cuts { proxy: String, reason: String },
}

/// The way to the remote.
#[derive(Debug)]
pub(super) struct Route {
    choice: Choice,
    /// The proxy as it may be shown, if there is one.
    proxy: Option<String>,
    /// The same, where it is asked for a tunnel and TLS does not come before that.
    to_tunnel: Option<tunnel::Proxy>,
    /// Whether a proxy passes on what it cannot read.
    is_tunnel: bool,
}

impl Route {
    /// A proxy that is named is taken for any URL. One that the environment or the system names never
    /// stands between this machine and itself (K91).
    pub(super) fn to(url: &Url, flags: &Proxy) -> Self {
        let choice = if is_excepted(url, &flags.exceptions) { &Choice::Off } else { &flags.choice };
        let host = plain(url.host_str().unwrap_or_default());
        let proxies = match choice {
            Choice::Off => None,
            Choice::Named(proxy) => Some(Matcher::builder().all(proxy.as_str()).build()),
            Choice::System if is_loopback(host) || is_excepted(url, &environment()) => None,
            Choice::System => Some(Matcher::from_system()),
        };
        let (choice, is_tunnel) = (choice.clone(), url.scheme() == "https");
        let found = proxies.and_then(|proxies| intercepted(&proxies, url));
        let shown = |found: &Intercept| found.uri().to_string().trim_end_matches('/').to_owned();
        let proxy = found.as_ref().map(shown);
        let to_tunnel = found.filter(|_| is_tunnel).and_then(|found| to_tunnel(&found));
        Self { choice, proxy, to_tunnel, is_tunnel }
    }

    /// Whether a proxy stands before the remote.
    pub(super) fn is_proxied(&self) -> bool {
        self.proxy.is_some()
    }

    /// The proxy before the remote, as it may be shown.
    pub(super) fn proxy(&self) -> Option<&str> {
        self.proxy.as_deref()
    }

    /// The proxy that is asked for a tunnel, where TLS does not come before that.
    pub(super) fn to_tunnel(&self) -> Option<&tunnel::Proxy> {
        self.to_tunnel.as_ref()
    }

    /// Whether a proxy reads the requests, which it takes in HTTP/1.1.
    pub(super) fn is_read(&self) -> bool {
        !self.is_tunnel && self.proxy.as_ref().is_some_and(|proxy| proxy.starts_with("http"))
    }

    /// Whether TLS is spoken with the proxy itself.
    pub(super) fn begins_with_tls(&self) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.starts_with("https:"))
    }

    /// The builder of a client that goes this way.
    pub(super) fn taken_by(&self, builder: ClientBuilder) -> Result<ClientBuilder, Failure> {
        Ok(match &self.choice {
            Choice::Named(proxy) => {
                let proxy = reqwest::Proxy::all(proxy.clone());
                builder.proxy(proxy.map_err(|error| Failure::Unsent(reason(error)))?)
            }
            Choice::System if self.is_proxied() => builder,
            _ => builder.no_proxy(),
        })
    }

    /// What came of a request that went this way.
    pub(super) fn passed(&self, sent: reqwest::Result<Response>) -> Result<Response, Failure> {
        match (sent, &self.proxy) {
            (Ok(response), Some(proxy))
                if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED =>
            {
                Err(wants_credentials(proxy))
            }
            (Err(error), Some(proxy)) => Err(self.failure(proxy, error)),
            (sent, _) => sent.map_err(Failure::from),
        }
    }

    /// The same failure, with what TLS says that may have been the reason.
    pub(super) fn doubted(&self, failure: Failure, doubt: tls::Trouble) -> Failure {
        let is_refused = matches!(
            failure.reason().trouble(),
            Some(trouble::Trouble::Proxy(Trouble::Refuses { .. }))
        );
        match &self.proxy {
            Some(proxy) if self.is_in_tls(is_refused) => failure.or(&unreachable(proxy, doubt)),
            _ if is_refused => failure,
            _ => failure.or(&doubt.into()),
        }
    }

    /// Whether TLS is spoken with the proxy alone: with the agent it is after a tunnel came about.
    fn is_in_tls(&self, is_refused: bool) -> bool {
        self.begins_with_tls() && (is_refused || !self.is_tunnel)
    }

    fn failure(&self, proxy: &str, error: reqwest::Error) -> Failure {
        let says = |texts: &[&str]| {
            let of = |cause: String| texts.iter().any(|text| cause.contains(text));
            causes(&error).any(|cause| of(cause.to_string()))
        };
        if says(&WANTS_CREDENTIALS) {
            return wants_credentials(proxy);
        }
        if let Some(trouble) = tls::Trouble::of(&error)
            && self.is_in_tls(says(&REFUSES))
        {
            return Failure::Unsent(unreachable(proxy, trouble));
        }
        let is_cut = self.is_tunnel && error.is_connect() && causes(&error).any(is_cut);
        let is_at_proxy = error.is_connect() && !self.is_tunnel && !says(&REFUSES);
        let (is_late, proxy) = (error.is_connect() && error.is_timeout(), proxy.to_owned());
        let trouble = if says(&UNRESOLVED) {
            Trouble::Unresolved(reason(error).into())
        } else if is_late {
            Trouble::Silent(proxy)
        } else if is_at_proxy || says(&UNREACHABLE) {
            Trouble::Unreachable { proxy, reason: reason(error).into() }
        } else if says(&REFUSES) {
            Trouble::Refuses { proxy, reason: reason(error).to_string() }
        } else if is_cut {
            Trouble::Cuts { proxy, reason: reason(error).to_string() }
        } else {
            return error.into();
        };
        Failure::Unsent(trouble.into())
    }
}

/// Whether a connection ended where nobody ends one.
fn is_cut(error: &(dyn Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, UnexpectedEof};
    let error: Option<&std::io::Error> = error.downcast_ref();
    let kinds = [ConnectionAborted, ConnectionReset, UnexpectedEof];
    error.is_some_and(|error| kinds.contains(&error.kind()))
}

/// It is there, and TLS with it fails.
fn unreachable(proxy: &str, trouble: tls::Trouble) -> Reason {
    let (proxy, reason) = (proxy.to_owned(), Box::new(trouble.into()));
    Trouble::Unreachable { proxy, reason }.into()
}

/// Trying the same again would only get the person's account locked.
fn wants_credentials(proxy: &str) -> Failure {
    let form = proxy.replacen("://", "://NAME:${PASSWORD}@", 1);
    // It says no to whatever is not its way.
    let or = if proxy.starts_with("socks") { ", or takes none" } else { "" };
    Failure::NoCredential(Trouble::WantsCredential { proxy: proxy.to_owned(), form, or }.into())
}

/// The proxy for a URL.
fn intercepted(proxies: &Matcher, url: &Url) -> Option<Intercept> {
    proxies.intercept(&url.as_str().parse().ok()?)
}

fn to_tunnel(proxy: &Intercept) -> Option<tunnel::Proxy> {
    let is_plain = proxy.uri().scheme_str() == Some("http");
    is_plain.then_some(())?;
    Some(tunnel::Proxy {
        host: plain(proxy.uri().host()?).to_owned(),
        port: proxy.uri().port_u16().unwrap_or(80),
        credential: proxy.basic_auth().cloned(),
    })
}

/// The exceptions of the environment, as the matcher takes them from it.
fn environment() -> String {
    let variables = ["NO_PROXY", "no_proxy"].into_iter();
    variables.filter_map(|name| std::env::var(name).ok()).next().unwrap_or_default()
}

fn is_excepted(url: &Url, exceptions: &str) -> bool {
    let exceptions: Vec<&str> = exceptions.split(',').map(|host| exception(host.trim())).collect();
    // The matcher takes this for names only.
    if exceptions.contains(&"*") {
        return true;
    }
    let mut url = url.clone();
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_owned();
    // Fails for none that is part of a URL already.
    let _ = url.set_host(Some(&host));
    // A matcher for everything has the same rules for exceptions as the environment's.
    let all = Matcher::builder().all("http://any").no(exceptions.join(",")).build();
    intercepted(&all, &url).is_none()
}

/// An exception as the matcher knows it, which takes ports, brackets and wildcards for parts of names.
fn exception(host: &str) -> &str {
    let without_port = match host.rsplit_once(':') {
        Some((before, _)) if before.ends_with(']') || !before.contains(':') => before,
        _ => host,
    };
    let host = plain(without_port);
    host.strip_prefix("*.").unwrap_or(host)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn k91_an_exception_is_meant_however_it_is_written() {
        let cases = [
            ("a.example.test", "a.example.test:80"),
            ("a.example.test", "b.test, *.example.test"),
            ("a.example.test", ".example.test:8080"),
            ("a.example.test", "EXAMPLE.TEST."),
            ("a.example.test.", "example.test"),
            ("example.test", "*.example.test"),
            ("10.1.2.3", "10.1.2.3:80"),
            ("10.1.2.3", "10.0.0.0/8"),
            ("[::9]", "::9"),
            ("[::9]", "[::9]"),
            ("[::9]", "[::9]:80"),
            ("[fd00::9]", "fd00::/8"),
            ("[::9]", "a.test,*"),
        ];
        for (host, exceptions) in cases {
            let url = Url::parse(&format!("http://{host}:80/acp")).unwrap();
            assert!(is_excepted(&url, exceptions), "{host} by {exceptions}");
        }
        for exceptions in ["", "*.a.example.test", "xample.test", "[::9]", "10.0.0.0/8", ".", ":80"]
        {
            let url = Url::parse("http://example.test/acp").unwrap();
            assert!(!is_excepted(&url, exceptions), "{exceptions}");
        }
    }

    #[test]
    fn k91_the_dot_that_ends_a_name_makes_no_other_host() {
        let proxy = Proxy { choice: Choice::System, exceptions: String::new() };
        let url = Url::parse("http://localhost./acp").unwrap();
        assert!(!Route::to(&url, &proxy).is_proxied());
    }
}
