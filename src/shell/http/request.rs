//! Sends one request, with its headers and its redirects (L4, L8).

use super::astray::Astray;
use super::clients::{Clients, Speaker};
use super::tls;
use super::trouble::{Reason, Trouble};
use crate::core::redirect::{Points, Verdict, decide};
use crate::core::{Connection, Outcome, SessionId};
use crate::shell::token::random;
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, LOCATION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Method, Request, Response, Url};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::error::Error;

const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("acp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The names of the cursor in the query (R4).
const CURSOR_PARAMETERS: [&str; 2] = ["last_event_id", "lastEventId"];
/// What is written as %XX in the query.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The credential could not be read, and so nothing left.
    NoCredential(Reason),
    /// Nothing left this machine.
    Unsent(Reason),
    /// The request left, or may have.
    Broken(Reason),
    /// The remote redirects to where we do not follow.
    Redirected { status: u16, reason: Reason },
}

impl Failure {
    /// Why, for people.
    pub(crate) fn reason(&self) -> &Reason {
        let (Self::NoCredential(reason)
        | Self::Unsent(reason)
        | Self::Broken(reason)
        | Self::Redirected { reason, .. }) = self;
        reason
    }

    /// The same, with what else may have been the reason.
    pub(super) fn or(self, doubt: &Reason) -> Self {
        match self {
            Self::Unsent(reason) => Self::Unsent(reason.or(doubt)),
            Self::Broken(reason) => Self::Broken(reason.or(doubt)),
            other => other,
        }
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoCredential(reason) => Self::NoCredential(reason.to_string()),
            Failure::Unsent(reason) => Self::Unsent(reason.to_string()),
            Failure::Broken(reason) => Self::Broken(reason.to_string()),
            Failure::Redirected { status, reason } => {
                Self::Redirected { status, reason: reason.to_string() }
            }
        }
    }
}

/// What tells an answer to our upgrade from any other, and from a cached one.
#[derive(Debug)]
pub(super) struct Key(String);

impl Key {
    /// What RFC 6455 has a server append to the key.
    const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

    fn fresh() -> Result<Self, Failure> {
        let bytes = random::<16>().map_err(|error| Failure::Unsent(error.to_string().into()))?;
        Ok(Self(BASE64_STANDARD.encode(bytes)))
    }

    fn header(&self) -> HeaderValue {
        // Base64 can stand in a header.
        HeaderValue::from_str(&self.0).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Whether these are the headers of a server that speaks WebSocket as we asked: we offered neither
    /// an extension nor a protocol.
    pub(super) fn is_accepted(&self, headers: &HeaderMap) -> bool {
        let has = |name, token: &str| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values
                .flat_map(|value| value.split(','))
                .any(|it| it.trim().eq_ignore_ascii_case(token))
        };
        has(UPGRADE, "websocket")
            && has(CONNECTION, "upgrade")
            && !headers.contains_key(SEC_WEBSOCKET_EXTENSIONS)
            && !headers.contains_key(SEC_WEBSOCKET_PROTOCOL)
            && self.is_signed(headers)
    }

    fn is_signed(&self, headers: &HeaderMap) -> bool {
        let text = format!("{}{}", self.0, Self::SUFFIX);
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let accept = headers.get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        accept == Some(BASE64_STANDARD.encode(hash).as_bytes())
    }
}

/// Beside an answer: to where the remote redirected within its origin.
#[derive(Clone, Debug)]
pub(super) struct MovedTo(pub(super) Url);

/// A request as it is sent, again at each redirect.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
}

impl Outgoing {
    /// A POST of a message.
    pub(super) fn post(url: &Url, mut headers: HeaderMap, body: Bytes) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Self { method: Method::POST, url: url.clone(), headers, body }
    }

    /// A GET of a stream.
    pub(super) fn stream(url: &Url, mut headers: HeaderMap) -> Self {
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { method: Method::GET, url: url.clone(), headers, body: Bytes::new() }
    }

    /// The DELETE of a connection.
    pub(super) fn delete(url: &Url, headers: HeaderMap) -> Self {
        Self { method: Method::DELETE, url: url.clone(), headers, body: Bytes::new() }
    }

    /// A GET that asks for a socket, and the key that its answer must know (RFC 6455).
    pub(super) fn socket(url: &Url, mut headers: HeaderMap) -> Result<(Self, Key), Failure> {
        let key = Key::fresh()?;
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(SEC_WEBSOCKET_KEY, key.header());
        Ok((Self { method: Method::GET, url: url.clone(), headers, body: Bytes::new() }, key))
    }

    /// Names the connection and the session (L4).
    pub(super) fn of(
        mut self,
        connection: Option<&Connection>,
        session: Option<&SessionId>,
    ) -> Result<Self, Failure> {
        if let Some(connection) = connection {
            self.set(CONNECTION_ID, &connection.id)?;
            if let Some(version) = &connection.version {
                self.set(PROTOCOL_VERSION, version)?;
            }
        }
        if let Some(session) = session {
            self.set(SESSION_ID, session.0.as_bytes())?;
        }
        Ok(self)
    }

    /// Says from where the stream is to go on (R4).
    pub(super) fn from(
        mut self,
        cursor: Option<&Bytes>,
        also_in_query: bool,
    ) -> Result<Self, Failure> {
        if let Some(cursor) = cursor {
            self.set(LAST_EVENT_ID, cursor)?;
        }
        if also_in_query || cursor.is_none() {
            let query = query_with_cursor(self.url.query(), cursor.map(AsRef::as_ref));
            self.url.set_query(query.as_deref());
        }
        Ok(self)
    }

    /// The length of its body.
    pub(super) fn length(&self) -> usize {
        self.body.len()
    }

    /// What says who sends it.
    pub(super) fn credential(&self) -> Option<HeaderValue> {
        self.headers.get(AUTHORIZATION).cloned()
    }

    /// Sends it, and again to where the remote redirects within its own origin (L8).
    pub(super) async fn send(
        mut self,
        speaker: &Speaker,
        clients: &Clients,
    ) -> Result<Response, Failure> {
        let is_get = self.method == Method::GET;
        let mut before: Vec<Url> = Vec::new();
        loop {
            let mut response = clients.send(self.request(), speaker).await?;
            let status = response.status().as_u16();
            let target = target(&self.url, &response);
            let points = target.as_ref().map(|target| match target {
                target if target.origin() != self.url.origin() => Points::Elsewhere,
                target if *target == self.url || before.contains(target) => Points::Back,
                _ => Points::Onward,
            });
            match (decide(status, is_get, points, before.len()), target) {
                (Verdict::Follow, Some(target)) => {
                    before.push(std::mem::replace(&mut self.url, target));
                }
                (Verdict::Refuse(refusal), target) => {
                    let astray = Trouble::Astray(Astray { target, refusal }.into());
                    return Err(Failure::Redirected { status, reason: astray.into() });
                }
                _ => {
                    if !before.is_empty() {
                        response.extensions_mut().insert(MovedTo(self.url));
                    }
                    return Ok(response);
                }
            }
        }
    }

    fn request(&self) -> Request {
        let mut request = Request::new(self.method.clone(), self.url.clone());
        *request.headers_mut() = self.headers.clone();
        if self.method == Method::POST {
            *request.body_mut() = Some(self.body.clone().into());
        }
        request
    }

    /// The core lets nothing pass that cannot stand in a header (L4, R3).
    fn set(&mut self, name: HeaderName, value: &[u8]) -> Result<(), Failure> {
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            Failure::Broken(format!("the value of {name} cannot stand in a header").into())
        })?;
        self.headers.insert(name, value);
        Ok(())
    }
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        let is_unsent = error.is_connect()
            || error.is_builder()
            || is_canceled(&error)
            || is_unprocessed(&error);
        let reason = reason(error);
        if is_unsent { Self::Unsent(reason) } else { Self::Broken(reason) }
    }
}

/// Whether a connection closed before the request that was to go over it was begun.
fn is_canceled(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref()).any(hyper::Error::is_canceled)
}

/// Whether HTTP/2 proves that nobody has seen a request (RFC 9113, 8.7): the server refused its stream, or left
/// with a GOAWAY that does not reach it. A request that one reaches does not fail with it.
fn is_unprocessed(error: &reqwest::Error) -> bool {
    let mut said = causes(error)
        .filter_map(|cause| cause.downcast_ref::<h2::Error>())
        .filter(|error| error.is_remote());
    said.any(|it| it.is_go_away() || it.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// What went wrong, for people. The outermost texts name layers and URLs, the innermost the matter.
pub(in crate::shell) fn reason(error: reqwest::Error) -> Reason {
    if let Some(trouble) = tls::Trouble::of(&error) {
        return trouble.into();
    }
    let error = error.without_url();
    let mut parts: Vec<String> = Vec::new();
    for text in causes(&error).map(ToString::to_string) {
        let is_said = parts.last().is_some_and(|last| last.contains(&text));
        if !text.starts_with("client error") && !is_said {
            parts.push(text);
        }
    }
    if parts.is_empty() { error.to_string().into() } else { parts.join(": ").into() }
}

/// What an error came from, from the outermost to the innermost.
pub(super) fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Where a response points to, without credentials.
fn target(from: &Url, response: &Response) -> Option<Url> {
    let location = response.headers().get(LOCATION)?;
    let mut target = from.join(std::str::from_utf8(location.as_bytes()).ok()?).ok()?;
    // Both fail only for URLs that cannot have user info.
    let _ = target.set_username("");
    let _ = target.set_password(None);
    target.set_fragment(None);
    Some(over_http(target))
}

/// A socket begins as a request of HTTP.
pub(super) fn over_http(mut url: Url) -> Url {
    let scheme = match url.scheme() {
        "wss" => "https",
        "ws" => "http",
        _ => return url,
    };
    // The default ports are the same.
    let _ = url.set_scheme(scheme);
    url
}

/// The query with the cursor parameters set to `cursor`, or without them. All else of it stays as
/// it is.
fn query_with_cursor(query: Option<&str>, cursor: Option<&[u8]>) -> Option<String> {
    let is_cursor =
        |part: &&str| CURSOR_PARAMETERS.contains(&part.split('=').next().unwrap_or(part));
    let has_cursor = query.is_some_and(|query| query.split('&').any(|part| is_cursor(&part)));
    if cursor.is_none() && !has_cursor {
        return query.map(str::to_owned);
    }
    let kept = query.into_iter().flat_map(|query| query.split('&')).filter(|part| !is_cursor(part));
    let mut parts: Vec<String> = kept.map(str::to_owned).collect();
    if let Some(cursor) = cursor {
        let cursor = percent_encode(cursor, RESERVED);
        parts.retain(|part| !part.is_empty());
        parts.extend(CURSOR_PARAMETERS.map(|name| format!("{name}={cursor}")));
    }
    (!parts.is_empty()).then(|| parts.join("&"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn r4_of_the_query_only_the_cursor_is_touched() {
        let cases = [
            (None, None, None),
            (Some(""), None, Some("")),
            (Some("x=%7E&y=a+b&&z"), None, Some("x=%7E&y=a+b&&z")),
            (Some("last_event_id=3"), None, None),
            (Some("a=1&lastEventId=3&b&last_event_id"), None, Some("a=1&b")),
            (Some("xlast_event_id=3"), None, Some("xlast_event_id=3")),
            (None, Some("7"), Some("last_event_id=7&lastEventId=7")),
            (Some(""), Some("7"), Some("last_event_id=7&lastEventId=7")),
            (
                Some("a=%7e&lastEventId=3"),
                Some("7 &ä"),
                Some("a=%7e&last_event_id=7%20%26%C3%A4&lastEventId=7%20%26%C3%A4"),
            ),
        ];
        for (query, cursor, expected) in cases {
            let found = query_with_cursor(query, cursor.map(str::as_bytes));
            assert_eq!(found.as_deref(), expected, "{query:?} {cursor:?}");
        }
    }
}
