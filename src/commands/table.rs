//! Decides how text of agents and editors is shown to a person: in columns, and without a character
//! that does something to a terminal.

/// What stands for a character that is not shown.
const REPLACEMENT: char = '\u{fffd}';

/// Text without control characters, line ends, and what changes the direction of writing.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|char| if is_printable(char) { char } else { REPLACEMENT }).collect()
}

/// JSON that says the same: what is not printable stands inside strings, and becomes an escape.
pub(super) fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match is_printable(char) {
            true => shown.push(char),
            false => shown.push_str(&format!("\\u{:04x}", u32::from(char))),
        }
    }
    shown
}

fn is_printable(char: char) -> bool {
    let turns = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !char.is_control() && !turns && !matches!(char, '\u{2028}' | '\u{2029}')
}

/// A cell of at most `width` characters; of a longer text its end, or its start.
pub(super) fn cut(text: &str, width: usize, keeps_end: bool) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    match keeps_end {
        true => std::iter::once('…').chain(text.chars().skip(length + 1 - width)).collect(),
        false => text.chars().take(width - 1).chain(std::iter::once('…')).collect(),
    }
}

/// Rows of printable cells as lines, in columns that are as wide as their widest cell.
pub(super) fn lines<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
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

    #[test]
    fn long_cells_are_cut_and_columns_are_aligned() {
        assert_eq!(cut("/home/anna/project", 8, true), "…project");
        assert_eq!(cut("a long title", 6, false), "a lon…");
        assert_eq!(cut("short", 5, true), "short");
        let row = |one: &str, other: &str| [one.to_owned(), other.to_owned()];
        let rows = [row("A", "B"), row("äöü", "x"), row("", "")];
        assert_eq!(lines(&rows), ["A    B", "äöü  x", ""]);
    }
}
