//! The borrowed envelope over one message's bytes: what kind it is, its id, method and session.
//!
//! One pass over the bytes, which are never printed again: what we pass on is what came (S6, I5).
//! The few rewrites that the rules name are splices of the original bytes: [`with_id`] (P4) and
//! [`as_line`] (S5).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use memchr::memchr3_iter;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// One JSON-RPC message, read but not copied.
#[derive(Debug)]
pub enum Message<'a> {
    /// A method with an id, be it `null`.
    Request {
        /// Its id.
        id: Id<'a>,
        /// Its method.
        method: Cow<'a, str>,
        /// What of its parameters the core looks at.
        params: Params<'a>,
    },
    /// A method without an id.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// What of its parameters the core looks at.
        params: Params<'a>,
    },
    /// A result or an error.
    Answer {
        /// The id of the request that it answers.
        id: Id<'a>,
        /// It is an error.
        is_error: bool,
    },
}

/// Why bytes are no message.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not JSON, or not UTF-8 (S2).
    NotJson,
    /// JSON, but no request, notification or response (S3). Holds the id to answer under, as JSON:
    /// the message's own where that is a string or a number, else `null`.
    NotMessage(String),
}

/// The raw JSON text of a request id: a number, a string or `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a>(&'a str);

/// An id as a key. Numbers by their spelling, strings by what they say: `1`, `1.0` and `"1"`
/// differ, `"a"` and `"\u0061"` do not (P1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// The key of an id of ours, which is a plain JSON string.
    pub fn of_own(raw: &str) -> Self {
        Self(raw.trim_end_matches('"').into())
    }

    /// The number that follows `prefix` in it, if it is nothing more.
    pub fn number_after(&self, prefix: &str) -> Option<u32> {
        self.0.strip_prefix(prefix)?.parse().ok()
    }
}

/// What of `params` the core looks at.
#[derive(Debug, Default)]
pub struct Params<'a> {
    /// `params.sessionId`, where it is a string.
    pub session: Option<Cow<'a, str>>,
    /// `params.requestId`, where it could be a request id.
    pub request: Option<Id<'a>>,
}

/// Reads one message.
pub fn read(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed::NotJson)?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Malformed::NotMessage("null".into()),
            Err(_) => Malformed::NotJson,
        });
    }
    let envelope = Envelope::read(text, true)
        // A scalar in the place of `params` may be a number that no Rust type holds.
        .or_else(|_| Envelope::read(text, false))
        .map_err(|_| Malformed::NotJson)?;
    envelope.into_message()
}

/// `bytes`, which hold `id`, with `replacement` (raw JSON) in its place (P4).
pub fn with_id(bytes: &Bytes, id: Id<'_>, replacement: &str) -> Bytes {
    let Range { start, end } = id.place_in(bytes);
    let mut spliced = BytesMut::with_capacity(bytes.len() - (end - start) + replacement.len());
    spliced.extend_from_slice(&bytes[..start]);
    spliced.extend_from_slice(replacement.as_bytes());
    spliced.extend_from_slice(&bytes[end..]);
    spliced.freeze()
}

/// A valid JSON message as one line for the editor (S5): line ends between tokens become spaces;
/// raw U+2028 and U+2029, which can only stand inside strings, become their escapes.
pub fn as_line(message: Bytes) -> Bytes {
    let suspicious = |byte: &u8| matches!(byte, b'\n' | b'\r' | 0xE2);
    // Much text holds what begins with 0xE2 too, such as dashes and quotes: it is not copied.
    let ends_line =
        |at: usize| matches!(message[at..], [b'\n' | b'\r', ..] | [0xE2, 0x80, 0xA8 | 0xA9, ..]);
    if !memchr3_iter(b'\n', b'\r', 0xE2, &message).any(ends_line) {
        return message;
    }
    let mut line = BytesMut::with_capacity(message.len() + 16);
    let mut rest = &message[..];
    while let Some(at) = rest.iter().position(suspicious) {
        line.extend_from_slice(&rest[..at]);
        let (written, taken): (&[u8], usize) = match &rest[at..] {
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            [0xE2, ..] => (&rest[at..=at], 1),
            _ => (b" ", 1),
        };
        line.extend_from_slice(written);
        rest = &rest[at + taken..];
    }
    line.extend_from_slice(rest);
    line.freeze()
}

impl<'a> Id<'a> {
    /// The raw JSON text.
    pub fn raw(self) -> &'a str {
        self.0
    }

    /// The id as a key.
    pub fn key(self) -> RequestId {
        match decoded(self.0) {
            Some(text) => RequestId(format!("\"{text}").into()),
            None => RequestId(self.0.into()),
        }
    }

    /// Where the id stands in the bytes that it was read from.
    fn place_in(self, bytes: &[u8]) -> Range<usize> {
        let start = self.0.as_ptr() as usize - bytes.as_ptr() as usize;
        start..start + self.0.len()
    }

    fn from_raw(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        matches!(text.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9' | b'n'))
            .then_some(Id(text))
    }
}

/// The text of a raw JSON string; `None` for anything else, and for a string that is no Unicode
/// (a lone surrogate).
fn decoded(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The members of a message that mean something to JSON-RPC.
#[derive(Default)]
struct Envelope<'a> {
    version: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<Params<'a>>,
    result: bool,
    error: Option<&'a RawValue>,
    /// One of the members above stands twice: peers would not agree on what the message says.
    ambiguous: bool,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str, look_into_params: bool) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let envelope = deserializer.deserialize_map(EnvelopeVisitor { look_into_params })?;
        deserializer.end()?;
        Ok(envelope)
    }

    fn into_message(self) -> Result<Message<'a>, Malformed> {
        let id = self.id.and_then(Id::from_raw);
        let wrong = || {
            let own = id.filter(|id| !self.ambiguous && id.raw() != "null");
            Malformed::NotMessage(own.map_or("null", Id::raw).to_owned())
        };
        let version_is_right =
            self.version.and_then(|raw| decoded(raw.get())).is_some_and(|version| version == "2.0");
        if !version_is_right || self.ambiguous || (self.id.is_some() && id.is_none()) {
            return Err(wrong());
        }
        match (self.method, id) {
            (Some(method), id) => {
                let method = decoded(method.get()).ok_or_else(wrong)?;
                let params = self.params.unwrap_or_default();
                Ok(match id {
                    Some(id) => Message::Request { id, method, params },
                    None => Message::Notification { method, params },
                })
            }
            (None, Some(id)) if self.result || self.error.is_some() => {
                // Some write every member that an answer can have.
                let is_null = self.error.is_none_or(|error| error.get() == "null");
                Ok(Message::Answer { id, is_error: !(self.result && is_null) })
            }
            (None, _) => Err(wrong()),
        }
    }
}

struct EnvelopeVisitor {
    look_into_params: bool,
}

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(member) = map.next_key::<Member>()? {
            let twice = match member {
                Member::Version => envelope.version.replace(map.next_value()?).is_some(),
                Member::Id => envelope.id.replace(map.next_value()?).is_some(),
                Member::Method => envelope.method.replace(map.next_value()?).is_some(),
                Member::Params => {
                    let params = if self.look_into_params {
                        map.next_value::<Params<'de>>()?
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        Params::default()
                    };
                    envelope.params.replace(params).is_some()
                }
                Member::Result => {
                    map.next_value::<IgnoredAny>()?;
                    std::mem::replace(&mut envelope.result, true)
                }
                Member::Error => envelope.error.replace(map.next_value()?).is_some(),
                Member::Session | Member::Request | Member::Other => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            envelope.ambiguous |= twice;
        }
        Ok(envelope)
    }
}

impl<'de> serde::Deserialize<'de> for Params<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParamsVisitor)
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = Params<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut params = Params::default();
        while let Some(member) = map.next_key::<Member>()? {
            match member {
                Member::Session => {
                    params.session = decoded(map.next_value::<&RawValue>()?.get());
                }
                Member::Request => params.request = Id::from_raw(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(params)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Params::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Params::default())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Params::default())
    }
}

/// The member names that the core knows, of messages and of parameters.
enum Member {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
    Session,
    Request,
    Other,
}

impl<'de> serde::Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberVisitor;
        impl Visitor<'_> for MemberVisitor {
            type Value = Member;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a member name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Member, E> {
                Ok(match name {
                    "jsonrpc" => Member::Version,
                    "id" => Member::Id,
                    "method" => Member::Method,
                    "params" => Member::Params,
                    "result" => Member::Result,
                    "error" => Member::Error,
                    "sessionId" => Member::Session,
                    "requestId" => Member::Request,
                    _ => Member::Other,
                })
            }
        }
        deserializer.deserialize_identifier(MemberVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn summary(text: &str) -> String {
        match read(text.as_bytes()) {
            Ok(Message::Request { id, method, params }) => {
                format!("request {} {method} {:?}", id.raw(), params.session)
            }
            Ok(Message::Notification { method, params }) => {
                format!("notification {method} {:?}", params.session)
            }
            Ok(Message::Answer { id, is_error }) => format!("answer {} {is_error}", id.raw()),
            Err(Malformed::NotJson) => "not json".into(),
            Err(Malformed::NotMessage(id)) => format!("not a message, id {id}"),
        }
    }

    #[test]
    fn s2_s3_messages_are_told_from_what_is_none() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, "request 1 a None"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "request null a None"),
            (r#" {"method":"a","jsonrpc":"2.0"} "#, "notification a None"),
            (
                r#"{"jsonrpc":"2.0","method":"a","params":{"sessionId":"s"}}"#,
                r#"notification a Some("s")"#,
            ),
            (r#"{"jsonrpc":"2.0","method":"a","params":{"sessionId":7}}"#, "notification a None"),
            (
                r#"{"jsonrpc":"2.0","method":"a","params":{"sessionId":"\u00e9/"}}"#,
                r#"notification a Some("é/")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"a","params":{"x":{"sessionId":"s"}}}"#,
                "notification a None",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"a","params":[{"sessionId":"s"}]}"#,
                "notification a None",
            ),
            (r#"{"jsonrpc":"2.0","method":"a","params":1e400}"#, "notification a None"),
            (r#"{"jsonrpc":"2.0","method":"a","params":-1e400,"x":1e999}"#, "notification a None"),
            (r#"{"jsonrpc":"2.0","m\u0065thod":"a\n"}"#, "notification a\n None"),
            (r#"{"jsonrpc":"2.0","id":1.0,"result":null}"#, "answer 1.0 false"),
            (r#"{"jsonrpc":"2.0","id":"x","error":{}}"#, r#"answer "x" true"#),
            (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, "answer 1 false"),
            (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{}}"#, "answer 1 true"),
            (r#"{"jsonrpc":"2.0","id":1,"error":null}"#, "answer 1 true"),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "answer null true"),
            (
                r#"{"jsonrpc":"2.0","id":-12345678901234567890123,"result":1e400}"#,
                "answer -12345678901234567890123 false",
            ),
            (r#"{"a":1,"a":2,"jsonrpc":"2.0","method":"b"}"#, "notification b None"),
            ("{", "not json"),
            ("", "not json"),
            (r#"{"jsonrpc":"2.0","method":"a"} x"#, "not json"),
            ("{\"jsonrpc\":\"2.0\",\"method\":\"a\u{1}\"}", "not json"),
            (r#"{"jsonrpc":"2.0","method":"a","params":01}"#, "not json"),
            ("\u{feff}{}", "not json"),
            ("[]", "not a message, id null"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, "not a message, id null"),
            ("7", "not a message, id null"),
            ("1e400", "not a message, id null"),
            ("{}", "not a message, id null"),
            (r#"{"id":1}"#, "not a message, id 1"),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, r#"not a message, id "a""#),
            (r#"{"id":1,"method":"a"}"#, "not a message, id 1"),
            (r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, "not a message, id 1"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "not a message, id 1"),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "not a message, id 1"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "not a message, id null"),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, "not a message, id null"),
            (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "not a message, id null"),
            (r#"{"jsonrpc":"2.0","result":1}"#, "not a message, id null"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "not a message, id null"),
        ] {
            assert_eq!(summary(text), expected, "{text}");
        }
        assert_eq!(
            read(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}").unwrap_err(),
            Malformed::NotJson
        );
    }

    #[test]
    fn ks3_deep_nesting_is_read_without_recursion() {
        let open = "[".repeat(100_000);
        assert_eq!(summary(&open), "not json");
        let close = "]".repeat(100_000);
        let deep = format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"x":{open}{close}}}}}"#);
        assert_eq!(summary(&deep), "notification a None");
        let deep = format!(r#"{{"jsonrpc":"2.0","method":"a","params":{open}{close}}}"#);
        assert_eq!(summary(&deep), "notification a None");
    }

    #[test]
    fn p1_ids_are_keyed_with_their_json_type() {
        let key = |raw: &str| {
            let message = format!(r#"{{"jsonrpc":"2.0","id":{raw},"result":0}}"#);
            let Ok(Message::Answer { id, .. }) = read(message.as_bytes()) else { panic!("{raw}") };
            id.key()
        };
        let different =
            ["1", "1.0", "\"1\"", "null", "\"null\"", "1e0", "-1", "\"\"", "\"\\ud800\""];
        for (index, one) in different.iter().enumerate() {
            for other in &different[index + 1..] {
                assert_ne!(key(one), key(other), "{one} {other}");
            }
        }
        assert_eq!(key("\"a\""), key("\"\\u0061\""));
    }

    #[test]
    fn p4_a_rewritten_id_leaves_every_other_byte() {
        let message = Bytes::from_static(br#"{ "id" : 7 ,"jsonrpc":"2.0","id2":7,"method":"m" }"#);
        let Ok(Message::Request { id, .. }) = read(&message) else { panic!() };
        assert_eq!(
            with_id(&message, id, "\"ours\""),
            r#"{ "id" : "ours" ,"jsonrpc":"2.0","id2":7,"method":"m" }"#
        );
    }

    #[test]
    fn s5_a_message_becomes_one_line() {
        for (message, line) in [
            ("{\"a\":\r\n1}", "{\"a\":  1}"),
            ("{\"a\":\"x\u{2028}y\u{2029}\"}", "{\"a\":\"x\\u2028y\\u2029\"}"),
            ("{\"a\":\"\u{2027}\u{202a}\u{e000}â\"}", "{\"a\":\"\u{2027}\u{202a}\u{e000}â\"}"),
            ("{\"a\":\"\\n\"}", "{\"a\":\"\\n\"}"),
        ] {
            assert_eq!(as_line(Bytes::copy_from_slice(message.as_bytes())), line);
        }
        let long = format!("{{\"a\":\"{}\u{2028}\"}}", "x".repeat(1000));
        assert_eq!(as_line(Bytes::from(long.clone())), long.replace('\u{2028}', "\\u2028"));
    }
}
