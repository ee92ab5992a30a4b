//! Decides what the facts of each step mean, and what to do about them.

mod streams;

pub use self::streams::{
    Opening, Talk, buffering, compression, ended, heartbeats, measured, numbering, replay, stream,
};
use super::report::Finding;
use crate::config::proxy::is_loopback;
use crate::config::redacted;
use crate::core::Response;
use crate::core::message::{self, Message};
use crate::core::methods::negotiated;
use crate::core::redirect::Refusal;
use crate::shell::http::inspection::{Answered, Lost, Stage};
use reqwest::{Url, Version};
use serde_json::Value;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

/// How much is shown of what a server wrote.
const EXCERPT: usize = 120;
/// How soon the end of a certificate is told before it comes.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// What does not change from step to step.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where the agent is.
    pub url: Url,
    /// The proxy before it, as it may be shown.
    pub proxy: Option<String>,
    /// What tells the agent who we are: flags and names of headers.
    pub sent: Vec<String>,
    /// A socket is what is wanted, and a refusal of that is looked at by itself.
    pub is_socket: bool,
}

/// What came of `initialize`, or of what a socket is asked for with.
#[derive(Clone, Debug)]
pub enum Exchange {
    Answered(Answered),
    /// There is a socket.
    Upgraded,
    Lost(Lost),
    /// Nothing came in this time; TLS was agreed on, where it is spoken.
    Silent(Duration, Option<bool>),
}

/// A certificate as people read it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub issuer: String,
    pub until: SystemTime,
    /// It was checked.
    pub is_checked: bool,
}

pub fn credential(context: &Context, result: Result<(), String>) -> Finding {
    match result {
        Ok(()) if context.sent.is_empty() => Finding::ok("none is sent"),
        Ok(()) => Finding::ok(format!("sent: {}", context.sent.join(", "))),
        Err(reason) => Finding::failed(
            reason,
            "Nothing is sent before there is a token: mend the file or the command that gives it.",
        ),
    }
}

pub fn name(context: &Context, host: &str, found: &Result<Vec<IpAddr>, String>) -> Finding {
    match found {
        Ok(addresses) if addresses.iter().any(|address| address.to_string() == host) => {
            Finding::ok(format!("{host} is an address{}", of_proxy(context)))
        }
        Ok(addresses) => {
            let shown: Vec<_> = addresses.iter().take(3).map(ToString::to_string).collect();
            let more = if addresses.len() > shown.len() { ", …" } else { "" };
            Finding::ok(format!("{host}{} is {}{more}", of_proxy(context), shown.join(", ")))
        }
        Err(reason) => Finding::failed(
            format!("{host}{} has no address: {reason}", of_proxy(context)),
            match context.proxy {
                None => {
                    "Is the name written right? Where only a private network knows it, join that network (VPN); \
                     where only a proxy does, name the proxy with --proxy."
                }
                Some(_) => MEND_PROXY,
            },
        ),
    }
}

const MEND_PROXY: &str = "Is the proxy right? It comes from --proxy or from the environment (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY). \
     To go without it: --proxy off.";

fn of_proxy(context: &Context) -> &'static str {
    if context.proxy.is_some() { " (the proxy)" } else { "" }
}

pub fn tcp(context: &Context, place: &str, found: Result<SocketAddr, ErrorKind>) -> Finding {
    let whose = of_proxy(context);
    let kind = match found {
        Ok(address) => return Finding::ok(format!("{address}{whose} takes connections")),
        Err(kind) => kind,
    };
    let found = match kind {
        ErrorKind::ConnectionRefused => format!("nothing listens at {place}{whose}"),
        ErrorKind::TimedOut => format!("{place}{whose} does not answer"),
        kind => format!("{place}{whose} cannot be reached: {kind}"),
    };
    let advice = match (kind, &context.proxy) {
        (_, Some(_)) => MEND_PROXY,
        (ErrorKind::ConnectionRefused, None) => "Is the agent running, and is the port right?",
        _ => {
            "A firewall may drop what is sent there. Is the address right, must you join a private network (VPN), or \
             does the way out lead through a proxy (--proxy)?"
        }
    };
    Finding::failed(found, advice)
}

pub fn proxy(context: &Context, exchange: &Exchange) -> Finding {
    let Some(proxy) = &context.proxy else { return Finding::ok("none on the way") };
    let Exchange::Lost(Lost::Failed { stage: Stage::Proxy, reason }) = exchange else {
        return Finding::ok(format!("{proxy} lets us through"));
    };
    match reason.split_once(": write --proxy") {
        Some((found, form)) => Finding::failed(found, format!("Write --proxy{form}.")),
        None => Finding::failed(
            reason,
            format!(
                "Ask who runs the proxy whether it lets you through to {}. {MEND_PROXY}",
                place(&context.url)
            ),
        ),
    }
}

/// Host and port.
pub fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or(host.to_owned(), |port| format!("{host}:{port}"))
}

pub fn tls(
    context: &Context,
    exchange: &Exchange,
    shown: Option<&Shown>,
    now: SystemTime,
) -> Finding {
    match exchange {
        Exchange::Lost(Lost::Failed { stage: Stage::Tls, reason }) => {
            return match reason.split_once(": ") {
                Some((found, advice)) => Finding::failed(found, sentence(advice)),
                None => Finding::failed(
                    reason,
                    "Does the server speak TLS at this port? What stands between may break it off.",
                ),
            };
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

/// Words in the path of a page that wants a person.
const SIGN_IN: [&str; 6] = ["login", "signin", "sign-in", "sign_in", "oauth", "sso"];
const SIGN_IN_ADVICE: &str = "A sign-in stands before the agent and waits for a person with a browser. Ask who runs it how programs \
     are let in: a token goes into --bearer-env, --bearer-file or --bearer-command, anything else into --header.";

fn is_sign_in(status: u16, from: &Url, target: &Url) -> bool {
    let text = target.as_str().to_ascii_lowercase();
    let is_other_host = target.host_str() != from.host_str();
    SIGN_IN.iter().any(|word| text.contains(word)) || is_other_host && matches!(status, 302 | 303)
}

pub fn redirect(context: &Context, exchange: &Exchange) -> Finding {
    match exchange {
        Exchange::Lost(Lost::Redirected { status, refusal, target })
            if !is_sign_in(*status, &context.url, target) =>
        {
            let place = redacted(target);
            let (found, advice) = match refusal {
                Refusal::OtherOrigin => (
                    format!("{status} to another origin, {place}"),
                    format!(
                        "No credential follows a redirect to another origin. If you trust it, configure {place}."
                    ),
                ),
                Refusal::LosesMessage => (
                    format!("{status} to {place}, in a way that would lose the message"),
                    format!("Configure {place}."),
                ),
                Refusal::TooMany => (
                    format!("again and again, the last time to {place}"),
                    "The redirects go in a circle: configure the URL of the agent itself."
                        .to_owned(),
                ),
            };
            Finding::failed(found, advice)
        }
        Exchange::Answered(Answered { moved_to: Some(target), .. }) => {
            let place = redacted(target);
            let advice = format!("Configure {place}, and every message makes one way less.");
            Finding::note(format!("to {place}, and followed"), advice)
        }
        _ => Finding::ok("none"),
    }
}

pub fn sign_in(context: &Context, exchange: &Exchange) -> Finding {
    match exchange {
        Exchange::Lost(Lost::Redirected { status, target, .. })
            if is_sign_in(*status, &context.url, target) =>
        {
            Finding::failed(format!("{status} to {}", redacted(target)), SIGN_IN_ADVICE)
        }
        Exchange::Answered(Answered { response, .. })
            if response.status == 200 && is_html(response) =>
        {
            Finding::failed(
                "200 with a page (text/html) in place of a message",
                format!("Is the path {} right? If it is: {SIGN_IN_ADVICE}", context.url.path()),
            )
        }
        _ => Finding::ok("none in the way"),
    }
}

fn is_html(response: &Response) -> bool {
    response.content_type.trim_start().to_ascii_lowercase().starts_with("text/html")
}

pub fn path(context: &Context, exchange: &Exchange) -> Finding {
    let path = context.url.path();
    match exchange {
        Exchange::Answered(Answered { response, .. })
            if matches!(response.status, 404 | 410) && !context.is_socket =>
        {
            Finding::failed(
                format!("{} for {path}: nothing is there", response.status),
                "Is the path right? A URL without one means /acp; ask who runs the agent for the whole URL.",
            )
        }
        _ => Finding::ok(path),
    }
}

pub fn status(context: &Context, exchange: &Exchange) -> Finding {
    let response = match exchange {
        Exchange::Answered(Answered { response, .. }) => response,
        Exchange::Upgraded => return Finding::ok("101"),
        Exchange::Silent(after, _) => {
            return Finding::failed(
                format!("no answer in {}", seconds(*after)),
                "It takes connections and says nothing: is it the agent that listens there, and is it overloaded? One \
                 that needs longer to start gets more time by --connect-timeout.",
            );
        }
        Exchange::Lost(lost) => {
            return Finding::failed(
                format!("no answer: {}", reason(lost)),
                "Something answers there, but not as an HTTP server does: is the port right? Otherwise see the log of the \
                 agent's server.",
            );
        }
    };
    let status = response.status;
    let said = match excerpt(response) {
        Some(text) => format!("{status}: {text}"),
        None => status.to_string(),
    };
    let advice = match status {
        200 => return Finding::ok("200"),
        401 | 403 => return credential_refused(context, said),
        _ if context.is_socket && !matches!(status, 429 | 500..) => return Finding::ok(said),
        405 | 501 => {
            "What is there takes no POST, so it is no ACP over Streamable HTTP: is the path right? If the agent speaks \
             WebSocket only, use --transport ws."
        }
        406 | 415 => {
            "It does not take JSON, or does not give JSON or an event stream, as ACP over Streamable HTTP does: is the path \
             right? Does something on the way change the headers Content-Type and Accept?"
        }
        413 => "Even a small message is too large for it: raise the limit of the server.",
        429 => "It is asked too often: wait, or ask who runs it for a higher limit.",
        502..=504 => {
            "What answers is a server before the agent, which does not reach it: is the agent running, and does that server \
             point to it?"
        }
        500.. => "The server failed: see its log.",
        400..=499 => "It refuses the message: is it an agent that speaks ACP, in this version?",
        _ => "An agent answers 200 to `initialize`: is the path right?",
    };
    Finding::failed(said, advice)
}

fn credential_refused(context: &Context, said: String) -> Finding {
    let advice = match context.sent.is_empty() {
        true => {
            "The agent wants to know who asks, and no credential is sent. Give it a token by --bearer-env, --bearer-file or \
             --bearer-command, or what else it wants by --header."
                .to_owned()
        }
        false => format!(
            "The agent does not take the credential that was sent ({}): is it the right one, and has it expired?",
            context.sent.join(", ")
        ),
    };
    Finding::failed(said, advice)
}

/// What a server wrote, where it is text for people.
fn excerpt(response: &Response) -> Option<String> {
    let text = String::from_utf8_lossy(&response.body);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty() && !text.starts_with('<')).then(|| shortened(&text))
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub fn http(version: Version) -> Finding {
    match version {
        Version::HTTP_2 => Finding::ok("HTTP/2"),
        Version::HTTP_11 => Finding::ok("HTTP/1.1: each session has connections of its own"),
        _ => Finding::note(
            "older than HTTP/1.1",
            "Every message costs a new connection: have the server, or what stands before it, speak HTTP/1.1 or HTTP/2.",
        ),
    }
}

const NO_ACP: &str = "What answers there is no ACP agent: is the path right?";

/// The answer to `initialize`; `has_connection`: it named a connection, or needs none.
pub fn initialize(answer: &[u8], content_type: &str, has_connection: bool) -> Finding {
    if content_type.trim_start().starts_with("text/event-stream") {
        return Finding::failed(
            "it is answered with an event stream",
            "An agent answers `initialize` with JSON; a server of MCP answers so. Is the URL that of an ACP agent?",
        );
    }
    if answer.is_empty() {
        return Finding::failed(
            format!("it is answered with {}", shortened(content_type_or_nothing(content_type))),
            NO_ACP,
        );
    }
    let is_error = match message::read(answer) {
        Ok(Message::Answer { is_error, .. }) => is_error,
        Ok(_) => return Finding::failed("it is answered with a request", NO_ACP),
        Err(_) => {
            return Finding::failed("it is answered with something else than JSON-RPC", NO_ACP);
        }
    };
    let value: Value = serde_json::from_slice(answer).unwrap_or_default();
    if is_error {
        let message = value["error"]["message"].as_str().unwrap_or("without a message");
        let found =
            format!("the agent refuses: {} ({})", shortened(message), value["error"]["code"]);
        return Finding::failed(
            found,
            "See the agent's documentation and its log: it was reached, and does not want to begin.",
        );
    }
    if !has_connection {
        return Finding::failed(
            "it is answered without Acp-Connection-Id",
            "Without that header nothing can follow: something on the way drops it, or the agent does not speak ACP over \
             Streamable HTTP.",
        );
    }
    let info = &value["result"]["agentInfo"];
    let name = info["name"].as_str().unwrap_or("an agent without a name");
    let version = info["version"].as_str().unwrap_or_default();
    let (protocol, _) = negotiated(answer);
    let protocol = protocol.map(|version| String::from_utf8_lossy(&version).into_owned());
    Finding::ok(format!(
        "{} speaks protocol version {}",
        shortened(format!("{name} {version}").trim()),
        shortened(protocol.as_deref().unwrap_or("unknown"))
    ))
}

/// There is no answer to `initialize` on a socket that is open.
pub fn unanswered(reason: &str) -> Finding {
    Finding::failed(
        format!("it is not answered: {}", shortened(reason)),
        "Is it an ACP agent that speaks WebSocket at this path? See its log.",
    )
}

fn content_type_or_nothing(content_type: &str) -> &str {
    if content_type.is_empty() { "nothing" } else { content_type }
}

/// What the agent offers of what makes a conversation survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub load: bool,
    pub resume: bool,
    pub list: bool,
    pub close: bool,
}

impl Capabilities {
    /// Those of an answer to `initialize`.
    pub fn of(answer: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(answer).unwrap_or_default();
        let of_session = &value["result"]["agentCapabilities"]["sessionCapabilities"];
        let has = |name: &str| !of_session[name].is_null();
        let (_, offers) = negotiated(answer);
        Self { load: offers.load, resume: offers.resume, list: has("list"), close: has("close") }
    }
}

pub fn capabilities(offered: Capabilities) -> Finding {
    let all = [
        ("load", offered.load),
        ("resume", offered.resume),
        ("list", offered.list),
        ("close", offered.close),
    ];
    let names = |wanted| {
        let names = all.iter().filter(|(_, is_offered)| *is_offered == wanted);
        let names: Vec<_> = names.map(|(name, _)| *name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let found = format!("offered: {}; not: {}", names(true), names(false));
    match offered.load || offered.resume {
        true => Finding::ok(found),
        false => Finding::note(
            found,
            "A lost connection costs its sessions: the agent can neither load nor resume one.",
        ),
    }
}

pub fn websocket(offer: &Result<(), String>, is_wanted: bool) -> Finding {
    match offer {
        Ok(()) => Finding::ok("offered"),
        Err(reason) if is_wanted => Finding::failed(
            format!("not offered: {reason}"),
            "Does the agent speak WebSocket, and does all that is on the way let an upgrade pass? Otherwise let the URL begin \
             with http, without --transport ws.",
        ),
        Err(reason) => {
            Finding { advice: None, ..Finding::note(format!("not offered: {reason}"), "") }
        }
    }
}

pub fn closing(result: &Result<u16, String>) -> Finding {
    let advice = "The connection stays until the agent gives it up by itself.";
    match result {
        Ok(200..=299) => Finding::ok("the connection is closed"),
        Ok(status) => Finding::note(format!("DELETE is answered with {status}"), advice),
        Err(reason) => Finding::note(format!("DELETE is not answered: {reason}"), advice),
    }
}

/// Why there is no answer.
pub fn reason(lost: &Lost) -> String {
    match lost {
        Lost::Failed { reason, .. } => reason.clone(),
        Lost::Redirected { status, target, .. } => format!("{status} to {}", redacted(target)),
    }
}

/// A time for people.
fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ ..1000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase()).unwrap_or_default();
    let end = if text.ends_with(['.', '?']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::report::Verdict;
    use super::*;
    use bytes::Bytes;
    use std::time::UNIX_EPOCH;

    fn context(url: &str) -> Context {
        Context { url: Url::parse(url).unwrap(), proxy: None, sent: Vec::new(), is_socket: false }
    }

    #[test]
    fn l8_a_sign_in_is_told_from_a_redirect_by_its_words_or_by_its_host() {
        let cases = [
            (302, "https://sso.example.com/start", true),
            (302, "https://elsewhere.example/", true),
            (303, "https://agent.test/login?next=/acp", true),
            (308, "https://id.example.com/oauth2/authorize", true),
            (308, "https://agent.test/acp", false),
            (301, "https://www.agent.test/acp", false),
            (302, "https://agent.test/acp/", false),
        ];
        for (status, target, expected) in cases {
            let from = context("http://agent.test/acp").url;
            let found = is_sign_in(status, &from, &Url::parse(target).unwrap());
            assert_eq!(found, expected, "{status} {target}");
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
    fn capabilities_are_read_in_both_versions() {
        let one = br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":
            {"loadSession":true,"sessionCapabilities":{"list":{}}}}}"#;
        let two = br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":2}}"#;
        let found = capabilities(Capabilities::of(one));
        assert_eq!(found.found, "offered: load, list; not: resume, close");
        let found = capabilities(Capabilities::of(two));
        assert_eq!(found.found, "offered: resume; not: load, list, close");
        assert_eq!(capabilities(Capabilities::of(b"{}")).verdict, Verdict::Note);
    }

    #[test]
    fn x1_what_a_server_writes_is_shown_short_and_pages_are_not_shown() {
        let said = |body: &str| {
            let body = Bytes::from(body.to_owned());
            let (content_type, connection_id, retry_after) = (String::new(), None, None);
            excerpt(&Response {
                status: 400,
                content_type,
                connection_id,
                retry_after,
                body,
                truncated: false,
            })
        };
        assert_eq!(said("<html>no"), None);
        assert_eq!(said(" not\n  here "), Some("not here".to_owned()));
        assert_eq!(said(&"ä".repeat(500)).map(|text| text.chars().count()), Some(EXCERPT + 1));
    }
}
