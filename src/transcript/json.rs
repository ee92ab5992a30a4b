//! Decides whether a message is the one that a transcript expects, and says where it is not.
//!
//! Numbers are compared by their text, because `1`, `1.0` and `1e400` are different ids and
//! different bytes (P1, S6). The order of keys does not matter; of equal keys it does. A string that
//! stands for no text, as `"\ud800"`, is compared as it is written.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// How deep values may be inside each other to be compared.
const DEEPEST: usize = 128;

/// A JSON value that keeps what a number looks like and every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`, `true`, `false`, a number or a string that stands for no text, as it is written.
    Plain(String),
    /// A string, decoded.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object, its keys as they come.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a value.
    ///
    /// # Errors
    /// Why the text cannot be compared.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let raw: &RawValue =
            serde_json::from_slice(text).map_err(|error| format!("is no JSON: {error}"))?;
        Self::read(raw, DEEPEST)
    }

    /// Reads a value that is at most so deep.
    fn read(raw: &RawValue, deepest: usize) -> Result<Self, String> {
        let text = raw.get();
        let inside = || {
            deepest.checked_sub(1).ok_or_else(|| format!("is nested deeper than {DEEPEST} levels"))
        };
        let wrong = |error: serde_json::Error| format!("is no JSON: {error}");
        Ok(match text.as_bytes().first() {
            Some(b'"') => decoded(raw).map_or_else(|| Json::Plain(text.to_owned()), Json::Text),
            Some(b'[') => {
                let inside = inside()?;
                let items: Vec<&RawValue> = serde_json::from_str(text).map_err(wrong)?;
                let read = |item| Self::read(item, inside);
                Json::List(items.into_iter().map(read).collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let inside = inside()?;
                let Entries(entries) = serde_json::from_str(text).map_err(wrong)?;
                let read = |(key, value): (&RawValue, &RawValue)| {
                    let name = decoded(key).unwrap_or_else(|| key.get().to_owned());
                    Ok((name, Self::read(value, inside)?))
                };
                Json::Object(entries.into_iter().map(read).collect::<Result<_, String>>()?)
            }
            _ => Json::Plain(text.to_owned()),
        })
    }

    /// Where `found` is not what `self` asks for, one text for each place. `like` lets `found` have
    /// more keys, and the string `*` stand for anything.
    pub fn differences(&self, found: &Json, like: bool) -> Vec<String> {
        let mut differences = Vec::new();
        self.differs(found, like, "", &mut differences);
        differences
    }

    fn differs(&self, found: &Json, like: bool, path: &str, out: &mut Vec<String>) {
        match (self, found) {
            (Json::Text(any), _) if like && any == "*" => {}
            (Json::List(wanted), Json::List(items)) if wanted.len() == items.len() => {
                for (index, (wanted, item)) in wanted.iter().zip(items).enumerate() {
                    wanted.differs(item, like, &format!("{path}/{index}"), out);
                }
            }
            (Json::Object(wanted), Json::Object(entries)) => {
                let mut left: Vec<&(String, Json)> = entries.iter().collect();
                for (key, value) in wanted {
                    let path = format!("{path}/{key}");
                    match left.iter().position(|(name, _)| name == key) {
                        Some(place) => value.differs(&left.remove(place).1, like, &path, out),
                        None => out.push(format!("{path} is missing, not {value}")),
                    }
                }
                if !like {
                    out.extend(left.iter().map(|(key, _)| format!("{path}/{key} is too much")));
                }
            }
            _ if self == found => {}
            _ => {
                let place = if path.is_empty() { "the whole" } else { path };
                out.push(format!("{place} is {found}, not {self}"));
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Plain(text) => formatter.write_str(text),
            Json::Text(text) => write!(formatter, "{text:?}"),
            Json::List(items) => write!(formatter, "an array of {}", items.len()),
            Json::Object(_) => formatter.write_str("an object"),
        }
    }
}

/// What a JSON string stands for, if it is a text.
fn decoded(string: &RawValue) -> Option<String> {
    serde_json::from_str(string.get()).ok()
}

/// The entries of an object, in order, duplicates too.
struct Entries<'text>(Vec<(&'text RawValue, &'text RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn difference(wanted: &str, found: &str, like: bool) -> Option<String> {
        let (wanted, found) = (Json::parse(wanted.as_bytes()), Json::parse(found.as_bytes()));
        let differences = wanted.unwrap().differences(&found.unwrap(), like);
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    #[test]
    fn p1_numbers_are_compared_by_their_text() {
        assert_eq!(difference("[1,1e400,-0]", "[1,1e400,-0]", false), None);
        assert_eq!(difference(r#"{"id":1}"#, r#"{"id":1.0}"#, false).unwrap(), "/id is 1.0, not 1");
        assert_eq!(difference("1", r#""1""#, true).unwrap(), r#"the whole is "1", not 1"#);
    }

    #[test]
    fn what_is_nested_too_deep_is_refused_and_not_followed() {
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(nested(DEEPEST).as_bytes()).is_ok());
        for depth in [DEEPEST + 1, 100_000] {
            let reason = Json::parse(nested(depth).as_bytes()).unwrap_err();
            assert_eq!(reason, "is nested deeper than 128 levels");
        }
    }

    #[test]
    fn a_string_that_is_no_text_is_compared_as_it_is_written() {
        let lone = r#"{"\udc00":"\ud800","b":1}"#;
        assert_eq!(difference(lone, r#"{"b":1,"\udc00":"\ud800"}"#, false), None);
        assert!(difference(lone, r#"{"b":1,"\udc00":"\ud801"}"#, false).is_some());
        assert!(difference(lone, r#"{"b":1,"\udc01":"\ud800"}"#, false).is_some());
    }

    #[test]
    fn keys_may_come_in_any_order_but_none_may_be_more_or_less() {
        assert_eq!(difference(r#"{"a":1,"b":"\u0041"}"#, r#"{"b":"A","a":1}"#, false), None);
        assert_eq!(difference(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false).unwrap(), "/b is too much");
        assert_eq!(difference(r#"{"a":1}"#, "{}", false).unwrap(), "/a is missing, not 1");
        assert_eq!(difference(r#"{"a":1,"a":2}"#, r#"{"a":1,"a":2}"#, false), None);
        assert!(difference(r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#, false).is_some());
    }

    #[test]
    fn likeness_asks_for_what_is_given_only() {
        assert_eq!(difference(r#"{"a":{"b":"*"}}"#, r#"{"c":1,"a":{"b":[],"d":2}}"#, true), None);
        assert_eq!(difference(r#"{"a":"*"}"#, "{}", true).unwrap(), r#"/a is missing, not "*""#);
        assert!(difference(r#"["*"]"#, "[1,2]", true).is_some());
        assert!(difference(r#"{"a":"*"}"#, r#"{"a":1}"#, false).is_some());
    }

    #[test]
    fn every_place_that_differs_is_told() {
        assert_eq!(
            difference(
                r#"{"a":1,"b":{"c":[1,2]},"d":3}"#,
                r#"{"a":2,"b":{"c":[1,3]},"e":4}"#,
                false
            )
            .unwrap(),
            "/a is 2, not 1; /b/c/1 is 3, not 2; /d is missing, not 3; /e is too much"
        );
    }
}
