//! Decides how text of agents and editors is shown to a person: in columns, and without a character
//! that does something to a terminal.

use unicode_width::UnicodeWidthStr;

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

/// A cell that takes `width` columns of a terminal at most; of a longer text its end, or its start.
pub(super) fn cut(text: &str, width: usize, keeps_end: bool) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    // One column is for the sign that something is missing.
    match keeps_end {
        true => {
            let fits = |&(start, _): &(usize, char)| text[start..].width() < width;
            let start = text.char_indices().find(fits).map_or(text.len(), |(start, _)| start);
            format!("…{}", &text[start..])
        }
        false => {
            let ends = text.char_indices().map(|(start, char)| start + char.len_utf8());
            let end = ends.take_while(|&end| text[..end].width() < width).last().unwrap_or(0);
            format!("{}…", &text[..end])
        }
    }
}

/// Rows of printable cells as lines, in columns that are as wide as their widest cell.
pub(super) fn lines<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max();
    let widths: Vec<_> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let padded = |(cell, width): (&String, &usize)| {
            format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width())))
        };
        let cells: Vec<_> = row.iter().zip(&widths).map(padded).collect();
        cells.join("  ").trim_end().to_owned()
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

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        assert_eq!(cut("世界世界", 6, false), "世界…");
        assert_eq!(cut("世界世界", 6, true), "…世界");
        assert_eq!(cut("世界", 4, true), "世界");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 3, false), "e\u{301}e\u{301}e\u{301}");
        let row = |one: &str| [one.to_owned(), "x".to_owned()];
        let rows = [row("世界世"), row("abcd"), row("e\u{301}")];
        assert_eq!(lines(&rows), ["世界世  x", "abcd    x", "e\u{301}       x"]);
    }
}
