//! The JSON-RPC errors that we originate (C5).

use bytes::Bytes;
use jsonrpsee_types::ErrorObject;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::socket::Close;
use super::{Response, SessionId, limits, message};

/// The line is no JSON (S2).
pub const PARSE_ERROR: i32 = -32700;
/// The line is no request that can be served (S3, S4, L1, L3, P3).
pub const INVALID_REQUEST: i32 = -32600;
/// `_acp-tether/close` of a session that is not listed (E1).
pub const UNKNOWN_SESSION: i32 = -32002;
/// `_acp-tether/close` of a session that is running (E1).
pub const RUNNING_SESSION: i32 = -32001;

/// A method of our own was called, and there is no answer to it (E1).
pub const INTERNAL_ERROR: i32 = -32603;

/// What kind of misfortune ended a request: `data.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The remote cannot be reached, or the network broke.
    Connect,
    /// The remote wants a credential, or another one.
    Auth,
    /// The remote refused this request.
    Http,
    /// The remote wants the session loaded again.
    Conflict,
    /// The session's stream is gone, and with it the answer.
    StreamLost,
    /// The connection is gone, and with it the answer.
    ConnectionLost,
    /// The session is gone.
    SessionLost,
    /// A message is over a size limit.
    TooLarge,
    /// More waits for the remote than may.
    Overloaded,
    /// The configuration cannot be used.
    Config,
}

/// How far a request came: `data.delivery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It never left.
    Unsent,
    /// The remote did not take it.
    Refused,
    /// The remote took it.
    Accepted,
    /// It left, and what became of it is not known.
    Unknown,
}

/// What a web page in place of the agent's answer may mean, for people.
pub(super) const IN_FRONT: &str =
    "a sign-in page or another service may stand in front of the remote agent";

/// Why a request of the editor fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind, which decides the code.
    pub kind: Kind,
    /// What happened, to what, and what to do; for a person.
    pub message: String,
    /// How far the request came.
    pub delivery: Option<Delivery>,
    /// The HTTP status that refused it.
    pub status: Option<u16>,
    /// The body that refused it, as JSON.
    pub body: Option<Box<RawValue>>,
    /// It answers a cancelled turn (R10).
    pub is_cancel: bool,
}

impl Failure {
    /// A failure that no HTTP status tells of.
    pub fn new(kind: Kind, delivery: Delivery, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message, delivery: Some(delivery), status: None, body: None, is_cancel: false }
    }

    /// A refusal by HTTP status, with the body that came with it (L10).
    pub fn refused(kind: Kind, message: impl Into<String>, response: &Response) -> Self {
        let body = (!response.body.is_empty()).then(|| as_json(response)).flatten();
        Self { status: Some(response.status), body, ..Self::new(kind, Delivery::Refused, message) }
    }

    /// What a closed socket means, with the remote's own words (W3).
    pub fn closed(close: &Close, delivery: Delivery) -> Self {
        let kind = match close {
            close if close.refuses() => Kind::Auth,
            close if close.is_too_large() => Kind::TooLarge,
            _ => Kind::Connect,
        };
        let words = (!close.reason.is_empty()).then_some(&close.reason);
        let body = words.and_then(|words| to_raw_value(words).ok());
        Self { body, ..Self::new(kind, delivery, close.to_string()) }
    }

    /// Whether the network broke or the remote is not ready (L3): the next try may be better.
    pub fn may_pass(&self) -> bool {
        self.delivery == Some(Delivery::Unknown) || matches!(self.status, Some(502..=504))
    }

    /// The error answer to the request with this id (raw JSON), as a line.
    pub fn answer(&self, id: &str, session: Option<&SessionId>) -> Bytes {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a> {
            kind: Kind,
            #[serde(skip_serializing_if = "Option::is_none")]
            status: Option<u16>,
            #[serde(skip_serializing_if = "Option::is_none")]
            body: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            delivery: Option<Delivery>,
            #[serde(skip_serializing_if = "Option::is_none")]
            session_id: Option<&'a str>,
        }
        let data = Data {
            kind: self.kind,
            status: self.status,
            body: self.body.as_deref(),
            delivery: self.delivery,
            session_id: session.map(|session| &*session.0),
        };
        answer(id, &ErrorObject::owned(self.code(), self.message.as_str(), Some(data)))
    }

    fn code(&self) -> i32 {
        match self.kind {
            _ if self.is_cancel => -32800,
            Kind::Auth => -32000,
            Kind::SessionLost => -32002,
            _ => INTERNAL_ERROR,
        }
    }
}

/// An error answer without data: what is wrong is in the editor's own line.
pub fn plain(id: &str, code: i32, message: &str) -> Bytes {
    answer(id, &ErrorObject::owned::<()>(code, message, None))
}

fn answer(id: &str, error: &ErrorObject<'_>) -> Bytes {
    // Printing an `ErrorObject` cannot fail: it holds strings, numbers and raw JSON only.
    let error = serde_json::to_string(error).unwrap_or_default();
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    message::as_line(Bytes::from(line))
}

/// A refusing body: as it came where it is JSON, else as a string; 8 KiB at most.
fn as_json(response: &Response) -> Option<Box<RawValue>> {
    let cut = response.body.len().min(limits::ERROR_BODY_BYTES);
    let whole = cut == response.body.len() && !response.truncated;
    let shown = String::from_utf8_lossy(&response.body[..cut]);
    if whole && let Ok(json) = RawValue::from_string(shown.clone().into_owned()) {
        return Some(json);
    }
    to_raw_value(&shown).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    fn shown(body: &'static str, truncated: bool) -> serde_json::Value {
        let body = Bytes::from_static(body.as_bytes());
        let response = Response { status: 409, body, truncated, ..Response::default() };
        let failure = Failure::refused(Kind::Http, "refused", &response);
        serde_json::from_slice(&failure.answer("\"a\"", None)).unwrap()
    }

    #[test]
    fn c5_the_error_says_what_happened_under_the_request_s_own_id() {
        let failure = Failure::new(Kind::StreamLost, Delivery::Unknown, "gone");
        let line = failure.answer("7", Some(&SessionId(Arc::from("s"))));
        assert_eq!(
            line,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"gone","data":{"kind":"stream_lost","delivery":"unknown","sessionId":"s"}}}"#
        );
    }

    #[test]
    fn l10_a_refusing_body_is_shown_as_json_where_it_is_json() {
        assert_eq!(shown("{\"a\":\n1}", false)["error"]["data"]["body"]["a"], 1);
        assert_eq!(shown("{\"a\":1}", true)["error"]["data"]["body"], "{\"a\":1}");
        assert_eq!(shown("no\nway", false)["error"]["data"]["body"], "no\nway");
        assert_eq!(shown("", false)["error"]["data"].get("body"), None);
    }
}
