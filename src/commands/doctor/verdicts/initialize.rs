//! Decides what the answer to `initialize` means.

use super::{Context, credential_refused, shortened};
use crate::commands::doctor::examination::answers;
use crate::commands::doctor::report::Finding;
use crate::core::message::{self, Message};
use crate::core::methods::negotiated;
use crate::core::socket::Close;
use serde_json::Value;

const NO_ACP: &str = "What answers there is no ACP agent: is the path right?";

/// The answer to `initialize`, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The id of the request.
    pub id: &'a str,
    pub answer: &'a [u8],
    pub content_type: &'a str,
    /// Its `Content-Encoding`, where it has one.
    pub encoding: Option<&'a str>,
    /// It is longer than what may be.
    pub is_cut: bool,
    /// It named a connection, or needs none.
    pub has_connection: bool,
}

pub fn initialize(reply: Reply<'_>) -> Finding {
    let Reply { id, answer, content_type, encoding, is_cut, has_connection } = reply;
    if content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
        return Finding::failed(
            "it is answered with an event stream",
            "An agent answers `initialize` with JSON; a server of MCP answers so. Is the URL that of an ACP agent?",
        );
    }
    if let Some(encoding) = encoding {
        return Finding::failed(
            format!("the answer comes as {}, which nobody asked for", shortened(encoding)),
            "Switch compression off in the agent or in the reverse proxy: it cannot be read here.",
        );
    }
    if is_cut {
        return Finding::failed(
            "the answer is longer than --max-message-bytes",
            "Raise --max-message-bytes, if it is an agent that answers there.",
        );
    }
    if content_type.is_empty() {
        return Finding::failed(
            "it is answered without a Content-Type",
            "An agent answers with Content-Type: application/json: does something on the way drop it? Otherwise: is the path \
             right?",
        );
    }
    if answer.is_empty() {
        // Of what is no JSON nothing is read.
        let found = match content_type.to_ascii_lowercase().contains("json") {
            true => "the answer is empty".to_owned(),
            false => format!("it is answered with {}", shortened(content_type)),
        };
        return Finding::failed(found, NO_ACP);
    }
    let is_error = match message::read(answer) {
        Ok(Message::Answer { is_error, .. }) if answers(answer, id) => is_error,
        Ok(Message::Answer { id, .. }) => {
            return Finding::failed(
                format!("it is answered under another id, {}", shortened(id.raw())),
                "An editor takes that for the answer to another request: it is a fault of the agent, or of what stands before it.",
            );
        }
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
    let speaks = shortened(format!("{name} {version}").trim());
    match protocol.as_deref() {
        Some(known @ ("1" | "2")) => {
            Finding::ok(format!("{speaks} speaks protocol version {known}"))
        }
        other => Finding::note(
            format!("{speaks} speaks protocol version {}", shortened(other.unwrap_or("unknown"))),
            "Versions 1 and 2 of ACP are known here: does your editor speak this one?",
        ),
    }
}

/// There is no answer to `initialize` on a socket that is open.
pub fn unanswered(reason: &str) -> Finding {
    Finding::failed(
        format!("it is not answered: {}", shortened(reason)),
        "Is it an ACP agent that speaks WebSocket at this path? See its log.",
    )
}

/// The agent closed the socket in place of an answer.
pub fn closed(context: &Context, close: &Close) -> Finding {
    let said = format!("it is closed: {} {}", close.code, shortened(&close.reason));
    match close.refuses() {
        true => credential_refused(context, said),
        false => unanswered(&said),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::report::Verdict;

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
}
