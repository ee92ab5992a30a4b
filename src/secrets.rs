//! Decides what of a text of others is a secret of the person's: a server may repeat what it was sent (X1).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::ops::Range;

/// What stands in the place of a secret.
const HIDDEN: &str = "hidden";
/// Shorter values are no secrets: they stand in every text.
const LEAST: usize = 4;
/// Values so long are secrets also where they stand in what is shown in any case.
const LONG: usize = 8;
/// Words of a credential that everybody knows.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// What must not be shown, in lower case: a host is shown so.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    values: Vec<String>,
    /// What is shown in any case.
    open: String,
}

impl Secrets {
    /// Adds a text that is shown in any case: a short value that stands in it is none.
    pub fn spare(&mut self, text: &str) {
        self.open.push_str(&text.to_ascii_lowercase());
        self.open.push('\n');
    }

    /// Adds a value, and each part of it that a server may repeat alone.
    pub fn add(&mut self, value: &str) {
        self.insert(value);
        for part in value.split([' ', ';', ',']) {
            self.insert(part);
            self.insert(part.split_once('=').map_or("", |(_, value)| value));
        }
        let basic = value.split_once(' ').and_then(|(_, text)| BASE64_STANDARD.decode(text).ok());
        let basic = basic.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
        self.insert(basic.split_once(':').map_or("", |(_, password)| password));
    }

    /// Adds a value that may be no secret: it is one if it is long, and its parts are none.
    pub fn add_doubtful(&mut self, value: &str) {
        if value.trim().len() >= LONG {
            self.insert(value);
        }
    }

    fn insert(&mut self, value: &str) {
        let value = value.trim().to_ascii_lowercase();
        // As some write it in JSON.
        let escaped = value.replace('/', r"\/");
        // Some write what fills up the last group of base64 in JSON as `\u003d`.
        let unfilled = value.trim_end_matches('=').to_owned();
        for value in [value, escaped, unfilled] {
            let is_known = SCHEMES.contains(&value.as_str()) || self.values.contains(&value);
            if value.len() >= LEAST && !is_known {
                self.values.push(value);
            }
        }
        // A longer one may hold a shorter one.
        self.values.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// A text without them.
    pub fn hide(&self, mut text: String) -> String {
        let is_secret = |value: &&String| value.len() >= LONG || !self.open.contains(*value);
        for secret in self.values.iter().filter(is_secret) {
            let mut from = 0;
            while let Some(at) = text[from..].to_ascii_lowercase().find(secret.as_str()) {
                let start = from + at;
                text.replace_range(start..start + secret.len(), HIDDEN);
                from = start + HIDDEN.len();
            }
            // Of a text that was cut the start of one may be left.
            if let Some(start) = cut_start(&text, secret) {
                text.replace_range(start, HIDDEN);
            }
        }
        text
    }
}

/// Where the longest start of a secret stands as the last that is left of a text that was cut. The text may
/// hold many cuts, and the secret be long: this is the search of Knuth, Morris and Pratt, which looks at
/// each byte of both once.
fn cut_start(text: &str, secret: &str) -> Option<Range<usize>> {
    let mut cuts = text.match_indices('…').map(|(at, _)| at).peekable();
    cuts.peek()?;
    let secret = secret.as_bytes();
    // How much of the secret a text ends with, once a byte follows `length` bytes of it. `shorter` has, for
    // each length, the longest other start of the secret that its start of that length ends with.
    let grown = |shorter: &[usize], mut length: usize, byte: u8| {
        while length > 0 && secret[length] != byte {
            length = shorter[length];
        }
        length + usize::from(secret[length] == byte)
    };
    let mut shorter = vec![0; 2];
    for at in 1..secret.len() {
        let length = grown(&shorter, shorter[at], secret[at]);
        shorter.push(length);
    }
    let (mut length, mut longest) = (0, None);
    for (at, byte) in text.bytes().enumerate() {
        if cuts.next_if_eq(&at).is_some() && length > longest.as_ref().map_or(LEAST - 1, Range::len)
        {
            longest = Some(at - length..at);
        }
        length = grown(&shorter, length, byte.to_ascii_lowercase());
        if length == secret.len() {
            length = shorter[length];
        }
    }
    longest
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secrets(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x1_a_secret_is_hidden_whole_and_in_parts_and_where_it_was_cut() {
        let mut secrets = Secrets::default();
        for value in ["Bearer Tok3n-of-mine", "a=c00kie; b=1", "Basic YW5uYTpzM2NyZXQ="] {
            secrets.add(value);
        }
        let cases = [
            ("no Bearer Tok3n-of-mine!", "no hidden!"),
            ("https://tok3n-of-mine.example/Tok3n-of-mine", "https://hidden.example/hidden"),
            ("400: c00kie s3cret", "400: hidden hidden"),
            ("not Tok3n-of-… (1)", "not hidden… (1)"),
            ("Bearer or basic", "Bearer or basic"),
        ];
        for (text, expected) in cases {
            assert_eq!(secrets.hide(text.to_owned()), expected);
        }
    }

    /// It takes hours where each start of the secret is looked for in all of the text.
    #[test]
    fn x1_the_start_of_a_long_secret_is_found_before_any_of_many_cuts() {
        let secret = format!("{}b", "a".repeat(16 * 1024));
        let mut secrets = Secrets::default();
        secrets.add(&secret);
        let text = format!("{}{}…", "aaa…".repeat(1_000), "A".repeat(4_000));
        assert_eq!(secrets.hide(text), format!("{}hidden…", "aaa…".repeat(1_000)));
        let text = "a".repeat(1_000_000);
        assert_eq!(secrets.hide(text.clone()), text);
    }

    #[test]
    fn x1_the_longest_start_of_a_secret_before_a_cut_is_hidden_and_the_first_of_equals() {
        let search = |text: &str, secret: &str| {
            let start = |end: usize| {
                let at = text.to_ascii_lowercase().find(&format!("{}…", &secret[..end]))?;
                Some(at..at + end)
            };
            (LEAST..secret.len()).rev().find_map(start)
        };
        // Every text of these, as the digits of a number.
        let pieces = ["a", "B", "…", "aaab"];
        for number in 0..4_usize.pow(7) {
            let digits = (0..7).map(|at| pieces[number / 4_usize.pow(at) % 4]);
            let text: String = digits.collect();
            for secret in ["aaabaaaab", "aaaaaaa", "ababab", "baaab"] {
                assert_eq!(cut_start(&text, secret), search(&text, secret), "{text} {secret}");
            }
        }
    }

    #[test]
    fn x1_of_a_value_that_may_be_no_secret_the_parts_are_none() {
        let mut secrets = Secrets::default();
        for value in ["required", "a/b", "connection id"] {
            secrets.add_doubtful(value);
        }
        let text = r"the connection is Required: connection id, a/b";
        assert_eq!(secrets.hide(text.to_owned()), "the connection is hidden: hidden, a/b");
        secrets.add("Bearer YW5u/w==");
        assert_eq!(secrets.hide(r#""YW5u\/w==""#.to_owned()), r#""hidden""#);
    }

    #[test]
    fn x1_a_short_value_that_stands_in_the_url_is_no_secret() {
        let mut secrets = Secrets::default();
        for value in ["acme", "Emca", "Bearer agents-of-acme"] {
            secrets.add(value);
        }
        secrets.spare("https://agents-of-acme.example/acp");
        let text = "acme.example and emca.example of agents-of-acme";
        assert_eq!(secrets.hide(text.to_owned()), "acme.example and hidden.example of hidden");
    }
}
