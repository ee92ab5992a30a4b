//! Decides how rows are shown to a person: in columns.

use unicode_width::UnicodeWidthStr;

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
