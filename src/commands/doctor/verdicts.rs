//! Decides what the facts of each step mean, and what to do about them.

mod initialize;
mod proxy;
mod streams;
mod tls;

pub use self::initialize::{Capabilities, Reply, capabilities, closed, initialize, unanswered};
pub use self::proxy::{Answer as AnswerOfProxy, proxy};
pub use self::streams::{
    Opening, Talk, buffering, compression, ended, heartbeats, measured, numbering, replay, stream,
};
pub use self::tls::{Shown, tls};
use super::report::Finding;
use crate::config::redacted;
use crate::core::Response;
use crate::core::redirect::Refusal;
use crate::shell::http::inspection::{Answered, Astray, Lost, Stage};
use reqwest::{Url, Version};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How much is shown of what a server wrote.
const EXCERPT: usize = 120;

/// What does not change from step to step.
#[derive(Clone, Debug)]
pub struct Context {
    /// Where the agent is.
    pub url: Url,
    /// The proxy before it, as it may be shown.
    pub proxy: Option<String>,
    /// It reads the requests.
    pub is_read: bool,
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
    /// The head of an answer came, and not the whole of it in this time.
    Endless(Duration),
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

/// The address that takes a connection, and those that say nothing.
pub type Reached = (SocketAddr, Vec<SocketAddr>);

pub fn tcp(context: &Context, place: &str, found: Result<Reached, ErrorKind>) -> Finding {
    let whose = of_proxy(context);
    let kind = match found {
        Ok((address, silent)) => {
            let found = format!("{address}{whose} takes connections");
            let Some(first) = silent.first() else { return Finding::ok(found) };
            return Finding::note(
                format!("{found}; {first} does not answer"),
                "The name has several addresses, and connections may wait for the silent one first: mend it, or have it taken \
                 out of the name.",
            );
        }
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

/// Host and port.
pub fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or(host.to_owned(), |port| format!("{host}:{port}"))
}

/// What a page that wants a person has as a label of its host or a segment of its path.
const SIGN_IN: [&str; 8] =
    ["login", "signin", "sign-in", "sign_in", "oauth", "oauth2", "saml", "sso"];
const SIGN_IN_ADVICE: &str = "A sign-in stands before the agent and waits for a person with a browser. Ask who runs it how programs \
     are let in: a token goes into --bearer-env, --bearer-file or --bearer-command, anything else into --header.";
const NETWORK_SIGN_IN: &str = "The network that you are in wants a person to sign in before it lets anything through: open any page in a \
     browser.";

fn is_sign_in(status: u16, from: &Url, astray: &Astray) -> bool {
    let Some(target) = &astray.target else { return false };
    let ours = words(from);
    let is_other_host = target.host_str() != from.host_str();
    let is_named =
        words(target).iter().any(|word| SIGN_IN.contains(&word.as_str()) && !ours.contains(word));
    is_named || is_other_host && matches!(status, 302 | 303)
}

/// The labels of the host and the segments of the path.
fn words(url: &Url) -> Vec<String> {
    let text = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
    text.to_ascii_lowercase().split(['.', '/']).map(str::to_owned).collect()
}

pub fn redirect(context: &Context, exchange: &Exchange) -> Finding {
    match exchange {
        Exchange::Lost(Lost::Redirected { status, astray })
            if !is_sign_in(*status, &context.url, astray) =>
        {
            astray_to(*status, astray)
        }
        Exchange::Answered(Answered { moved_to: Some(target), .. }) => {
            let place = redacted(target);
            let advice = format!("Configure {place}, and every message makes one way less.");
            Finding::note(format!("to {place}, and followed"), advice)
        }
        _ => Finding::ok("none"),
    }
}

fn astray_to(status: u16, astray: &Astray) -> Finding {
    let place = astray.place();
    let advice = match astray.refusal {
        Refusal::Nowhere => {
            "Ask who runs the agent, or what stands before it: it is a fault there. Is the path right?"
                .to_owned()
        }
        Refusal::Circle => {
            "Ask who runs the agent, or what stands before it: whatever URL of these is configured leads to the others."
                .to_owned()
        }
        Refusal::OtherOrigin => format!(
            "No credential follows a redirect to another origin. If you trust it, configure {place}."
        ),
        Refusal::LosesMessage => format!("Configure {place}."),
        Refusal::TooMany => "Configure the URL of the agent itself.".to_owned(),
    };
    Finding::failed(led(status, astray), advice)
}

/// Where a redirect led.
fn led(status: u16, astray: &Astray) -> String {
    let place = astray.place();
    match astray.refusal {
        Refusal::Nowhere => {
            format!("{status} without saying where to (no Location that can be read)")
        }
        Refusal::Circle => format!("{status} in a circle, to {place} again"),
        Refusal::OtherOrigin => format!("{status} to another origin, {place}"),
        Refusal::LosesMessage => {
            format!("{status} to {place}, in a way that would lose the message")
        }
        Refusal::TooMany => format!("{status} again and again, the last time to {place}"),
    }
}

pub fn sign_in(context: &Context, exchange: &Exchange) -> Finding {
    match exchange {
        Exchange::Lost(lost @ Lost::Redirected { status, astray })
            if is_sign_in(*status, &context.url, astray) =>
        {
            Finding::failed(reason(lost), SIGN_IN_ADVICE)
        }
        Exchange::Answered(Answered { response, .. })
            if response.status == 200 && is_html(response) =>
        {
            Finding::failed(
                "200 with a page (text/html) in place of a message",
                format!("Is the path {} right? If it is: {SIGN_IN_ADVICE}", context.url.path()),
            )
        }
        Exchange::Answered(Answered { response, .. }) if response.status == 511 => {
            Finding::failed(said(response), NETWORK_SIGN_IN)
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
    let mut finding = status_of(context, exchange);
    // One that reads the requests answers in the agent's place, but for 407.
    let proxy = context.proxy.as_ref().filter(|_| context.is_read);
    if let (Some(proxy), Some(advice)) = (proxy, &mut finding.advice) {
        *advice += &format!(" It may also be the proxy {proxy} that says so, and not the agent.");
    }
    finding
}

fn status_of(context: &Context, exchange: &Exchange) -> Finding {
    let response = match exchange {
        Exchange::Answered(Answered { response, .. }) => response,
        Exchange::Upgraded | Exchange::Lost(Lost::Failed { stage: Stage::Upgrade, .. }) => {
            return Finding::ok("101");
        }
        Exchange::Silent(after, _) => {
            return Finding::failed(
                format!("no answer in {}", seconds(*after)),
                "It takes connections and says nothing: is it the agent that listens there, and is it overloaded? One \
                 that needs longer to start gets more time by --connect-timeout.",
            );
        }
        Exchange::Endless(after) => {
            return Finding::failed(
                format!("the answer begins, and does not end in {}", seconds(*after)),
                "Something on the way may hold back the rest of it: switch off buffering there. Otherwise see the log of the \
                 agent's server.",
            );
        }
        Exchange::Lost(Lost::Failed { stage: Stage::Version, reason }) => {
            return Finding::failed(
                reason,
                "Leave --http 2 out (in a file http = \"2\"), and HTTP/1.1 is spoken.",
            );
        }
        Exchange::Lost(lost) => {
            return Finding::failed(
                format!("no answer: {}", reason(lost)),
                format!(
                    "Something answers there, but not as an HTTP server does: is the port right{} Otherwise see the log of the \
                     agent's server.",
                    match context.url.scheme() {
                        "http" =>
                            ", or does it speak TLS: let the URL begin with https: (for a socket wss:)?",
                        _ => "?",
                    }
                ),
            );
        }
    };
    let status = response.status;
    let said = said(response);
    let advice = match status {
        200 => return Finding::ok("200"),
        // A message is one whatever the success (L2).
        201..=299 if !response.body.is_empty() => return Finding::ok(status.to_string()),
        401 | 403 => return credential_refused(context, said),
        400 if said.contains("HTTPS") => {
            "It speaks TLS at this port: let the URL begin with https: (for a socket wss:)."
        }
        _ if context.is_socket && !matches!(status, 429 | 500..) => return Finding::ok(said),
        405 | 426 | 501 => {
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

/// A status, and what the server says to it.
pub fn said(response: &Response) -> String {
    match excerpt(response) {
        Some(text) => format!("{}: {text}", response.status),
        None => response.status.to_string(),
    }
}

/// What a server wrote, where it is text for people; of a page its title.
fn excerpt(response: &Response) -> Option<String> {
    let text = String::from_utf8_lossy(&response.body);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = if text.starts_with('<') { title(&text)? } else { &text };
    (!text.is_empty()).then(|| shortened(text))
}

fn title(page: &str) -> Option<&str> {
    let lower = page.to_ascii_lowercase();
    let begin = lower.find("<title>")? + "<title>".len();
    let end = begin + lower[begin..].find("</title>")?;
    Some(page[begin..end].trim())
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

fn content_type_or_nothing(content_type: &str) -> &str {
    if content_type.is_empty() { "nothing" } else { content_type }
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
        // One that is not known any more is as good (S7).
        Ok(200..=299 | 404) => Finding::ok("the connection is closed"),
        Ok(status) => Finding::note(format!("DELETE is answered with {status}"), advice),
        Err(reason) => Finding::note(format!("DELETE is not answered: {reason}"), advice),
    }
}

/// The end of a socket. One that was cut is at its end, too.
pub fn socket_closing(result: &std::io::Result<()>) -> Finding {
    match result {
        Ok(()) => Finding::ok("the socket is closed"),
        Err(_) => Finding::ok("the socket was cut before"),
    }
}

/// Why there is no answer.
pub fn reason(lost: &Lost) -> String {
    match lost {
        Lost::Failed { reason, .. } => reason.clone(),
        Lost::Redirected { status, astray } => led(*status, astray),
    }
}

/// A time for people.
fn seconds(time: Duration) -> String {
    match time.as_millis() {
        ms @ ..1000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;

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
            (308, "https://processor.test/lessons/assorted", false),
            (308, "https://agent.test/work/sso/", false),
        ];
        for (status, target, expected) in cases {
            let from = Url::parse("http://agent.test/sso/acp").unwrap();
            let target = Url::parse(target).unwrap();
            let astray = Astray { target: Some(target), refusal: Refusal::OtherOrigin };
            let found = is_sign_in(status, &from, &astray);
            assert_eq!(found, expected, "{status} {}", astray.place());
        }
    }

    #[test]
    fn x1_what_a_server_writes_is_shown_short_and_of_pages_the_title() {
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
        assert_eq!(said("<HTML><Title>Only HTTPS</Title>no"), Some("Only HTTPS".to_owned()));
        assert_eq!(said(" not\n  here "), Some("not here".to_owned()));
        assert_eq!(said(&"ä".repeat(500)).map(|text| text.chars().count()), Some(EXCERPT + 1));
    }
}
