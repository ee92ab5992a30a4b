//! Decides where a message of the editor begins and ends: one a line, split at LF only (S1, S4).

use super::gather;
use bytes::Bytes;

/// A line that the editor wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, without the LF and the CR before it. Never blank.
    Whole(Bytes),
    /// It is over the limit; its bytes are gone (S4).
    TooLong,
}

/// Cuts bytes into lines, in linear time however they come, holding at most one line of the limit.
///
/// Only LF ends a line. A CR just before it belongs to the line end. Blank lines (spaces, tabs, CR)
/// are passed over. A line that lies whole in one chunk is a slice of it.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The start of a line whose end has not come.
    held: Vec<u8>,
    /// The line being read was told as too long: what is left of it is passed over.
    skipping: bool,
}

impl Lines {
    /// Lines of at most `limit` bytes, their ends not counted.
    pub fn new(limit: usize) -> Self {
        Self { limit, held: Vec::new(), skipping: false }
    }

    /// Takes the next bytes; appends the lines that they end to `out`, and the one that they make
    /// too long.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Line>) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &chunk) {
            self.end(&chunk, start, end, out);
            start = end + 1;
        }
        self.hold(&chunk[start..], out);
    }

    /// The input is over: a last line that no LF ended is a line too.
    pub fn finish(&mut self, out: &mut Vec<Line>) {
        self.end(&Bytes::new(), 0, 0, out);
    }

    /// A line ends with the bytes of `chunk` from `start` to `end`.
    fn end(&mut self, chunk: &Bytes, start: usize, end: usize, out: &mut Vec<Line>) {
        if std::mem::take(&mut self.skipping) {
            return;
        }
        let line = if self.held.is_empty() {
            let line = &chunk[start..end];
            chunk.slice(start..start + without_cr(line).len())
        } else {
            gather(&mut self.held, &chunk[start..end], self.limit.saturating_add(1));
            let mut line = std::mem::take(&mut self.held);
            line.truncate(without_cr(&line).len());
            Bytes::from(line)
        };
        if line.len() > self.limit {
            out.push(Line::TooLong);
        } else if !line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            out.push(Line::Whole(line));
        }
    }

    /// Keeps the start of a line, as long as the whole of it can still be within the limit.
    fn hold(&mut self, piece: &[u8], out: &mut Vec<Line>) {
        if self.skipping || piece.is_empty() {
            return;
        }
        let length = self.held.len() + piece.len();
        // One byte over the limit may turn out to be the CR of the line end.
        let may_fit = length <= self.limit || (length == self.limit + 1 && piece.ends_with(b"\r"));
        if may_fit {
            gather(&mut self.held, piece, self.limit.saturating_add(1));
        } else {
            self.held = Vec::new();
            self.skipping = true;
            out.push(Line::TooLong);
        }
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(limit: usize, chunks: &[&[u8]]) -> Vec<Line> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk), &mut out);
            assert!(lines.held.len() <= limit + 1, "holds more than its limit");
        }
        lines.finish(&mut out);
        out
    }

    /// The same lines come out of `input` whole, byte by byte, and at every one and two cuts.
    fn check(limit: usize, input: &[u8], expected: &[&str]) {
        let expected: Vec<Line> = expected
            .iter()
            .map(|line| match *line {
                "<too long>" => Line::TooLong,
                line => Line::Whole(Bytes::copy_from_slice(line.as_bytes())),
            })
            .collect();
        let shown = String::from_utf8_lossy(input);
        assert_eq!(read(limit, &[input]), expected, "{shown:?} whole");
        let single: Vec<&[u8]> = input.chunks(1).collect();
        assert_eq!(read(limit, &single), expected, "{shown:?} byte by byte");
        for first in 0..=input.len() {
            for second in first..=input.len() {
                let chunks = [&input[..first], &input[first..second], &input[second..]];
                assert_eq!(read(limit, &chunks), expected, "{shown:?} cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn s1_lines_are_split_at_lf_only_for_every_cut() {
        check(64, b"{\"a\":1}\n{\"b\":2}\n", &["{\"a\":1}", "{\"b\":2}"]);
        check(64, b"a\rb\n", &["a\rb"]);
        check(64, b"a\x0bb\x0cc\n", &["a\x0bb\x0cc"]);
        check(64, "a\u{2028}b\u{2029}c\u{85}d\n".as_bytes(), &["a\u{2028}b\u{2029}c\u{85}d"]);
    }

    #[test]
    fn s1_a_cr_before_the_lf_belongs_to_the_line_end() {
        check(64, b"a\r\nb\r\n", &["a", "b"]);
        check(64, b"a\r\r\nb\n", &["a\r", "b"]);
    }

    #[test]
    fn s1_a_blank_line_is_passed_over() {
        check(64, b"\n\r\n  \n\t \r\n a\n\n", &[" a"]);
        check(64, b"", &[]);
        check(64, b"  ", &[]);
        check(64, b"\r", &[]);
    }

    #[test]
    fn s1_a_last_line_without_lf_is_served() {
        check(64, b"a\nb", &["a", "b"]);
        check(64, b"b\r", &["b"]);
    }

    #[test]
    fn s2_bytes_that_are_no_utf8_pass() {
        let mut out = Vec::new();
        Lines::new(64).push(Bytes::from_static(b"\xff\xfe\0\n"), &mut out);
        assert_eq!(out, [Line::Whole(Bytes::from_static(b"\xff\xfe\0"))]);
    }

    #[test]
    fn s4_a_line_over_the_limit_is_told_once_and_the_next_is_served() {
        check(4, b"abcd\n", &["abcd"]);
        check(4, b"abcd\r\n", &["abcd"]);
        check(4, b"abcde\n", &["<too long>"]);
        check(4, b"abcd\r\r\n", &["<too long>"]);
        check(4, b"abcd\rx\nok\n", &["<too long>", "ok"]);
        check(
            4,
            b"abcdefghijk\nok\nabcdefghijk\r\n\nok\n",
            &["<too long>", "ok", "<too long>", "ok"],
        );
        check(4, b"ok\nabcdefgh", &["ok", "<too long>"]);
        check(0, b"a\n\nb\n", &["<too long>", "<too long>"]);
    }

    #[test]
    fn s4_a_line_over_the_limit_is_told_before_its_end() {
        let mut lines = Lines::new(4);
        let mut out = Vec::new();
        lines.push(Bytes::from_static(b"abc"), &mut out);
        lines.push(Bytes::from_static(b"de"), &mut out);
        assert_eq!(out, [Line::TooLong]);
        assert_eq!(lines.held.capacity(), 0);
    }

    #[test]
    fn a_line_whole_in_one_chunk_is_not_copied() {
        let chunk = Bytes::from(b"one\ntwo\r\nthr".to_vec());
        let mut out = Vec::new();
        Lines::new(64).push(chunk.clone(), &mut out);
        let [Line::Whole(one), Line::Whole(two)] = &out[..] else { unreachable!("{out:?}") };
        assert_eq!(one.as_ptr(), chunk.as_ptr());
        assert_eq!(two.as_ptr(), chunk[4..].as_ptr());
    }

    #[test]
    fn s4_a_line_of_fifty_mebibytes_passes_within_its_bound() {
        const LENGTH: usize = 50 << 20;
        let piece = Bytes::from(vec![b'x'; 1 << 16]);
        let mut lines = Lines::new(LENGTH);
        let mut out = Vec::new();
        for _ in 0..LENGTH >> 16 {
            lines.push(piece.clone(), &mut out);
            assert!(lines.held.capacity() <= LENGTH + 1);
        }
        assert_eq!(out, []);
        lines.push(Bytes::from_static(b"\r\nnext\n"), &mut out);
        let [Line::Whole(long), Line::Whole(next)] = &out[..] else { unreachable!() };
        assert_eq!((long.len(), &next[..]), (LENGTH, &b"next"[..]));
    }

    /// Takes minutes if a byte is looked at again for each chunk.
    #[test]
    fn s4_a_long_line_in_single_bytes_takes_linear_time() {
        const LENGTH: usize = 8 << 20;
        let byte = Bytes::from_static(b"x");
        let mut lines = Lines::new(LENGTH);
        let mut out = Vec::new();
        for _ in 0..LENGTH {
            lines.push(byte.clone(), &mut out);
        }
        lines.push(Bytes::from_static(b"\n"), &mut out);
        assert!(matches!(&out[..], [Line::Whole(line)] if line.len() == LENGTH));
    }
}
