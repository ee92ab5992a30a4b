//! Decides how text of others is shown to a person: without a character that does something to a terminal.

use std::io::{Write, stderr};

/// What stands for a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';

/// Text without control characters, line ends, and what changes the direction of writing.
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if is_printable(char) { char } else { REPLACEMENT }).collect()
}

/// JSON that says the same: what is not printable stands inside strings, and becomes an escape.
pub fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_printable(char) {
            true => shown.push(char),
            false => shown.push_str(&format!("\\u{:04x}", u32::from(char))),
        }
    }
    shown
}

/// Tells a person what is not part of what a command writes; there is nowhere left to tell that this failed.
pub fn tell(text: &str) {
    let _ = writeln!(stderr(), "acp-tether: {}", printable(text));
}

/// Whether a character does nothing to a terminal.
pub(crate) fn is_printable(char: char) -> bool {
    let turns = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !char.is_control() && !turns && !matches!(char, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_an_agent_writes_reaches_a_terminal_as_a_command() {
        let cases = [
            ("\u{1b}[2J\u{1b}]0;owned\u{7}", "�[2J�]0;owned�"),
            ("a\r\nb\tc\u{0}", "a��b�c�"),
            ("\u{9b}31m", "�31m"),
            ("evil\u{202e}txt\u{2066}", "evil�txt�"),
            ("line\u{2028}line", "line�line"),
            ("Grüße, 世界 👋", "Grüße, 世界 👋"),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }

    #[test]
    fn json_says_the_same_without_a_character_that_commands_a_terminal() {
        let value = serde_json::json!(["a\u{9b}31m\u{7f}\u{202e}é\n\u{1b}"]);
        let shown = printable_json(&value.to_string());
        assert_eq!(shown, r#"["a\u009b31m\u007f\u202eé\n\u001b"]"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value));
    }
}
