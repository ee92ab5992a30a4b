//! Decides what of a text of others is a secret of the person's: a server may repeat what it was sent (X1).

use base64::prelude::{BASE64_STANDARD, Engine as _};

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
            let begins = |end: &usize| {
                let begin = secret.get(..*end);
                begin.is_some_and(|begin| ends_cut(&text, begin).is_some())
            };
            if let Some(end) = (LEAST..secret.len()).rev().find(begins)
                && let Some(at) = ends_cut(&text, &secret[..end])
            {
                text.replace_range(at..at + end, HIDDEN);
            }
        }
        text
    }
}

/// Where `end` stands as the last that is left of a text that was cut.
fn ends_cut(text: &str, end: &str) -> Option<usize> {
    text.to_ascii_lowercase().find(&format!("{end}…"))
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
