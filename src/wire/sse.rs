//! Decides what the remote's event stream says, by the WHATWG standard, for every way of cutting its
//! bytes (R14).

use super::gather;
use bytes::Bytes;
use std::ops::Range;

/// What a stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A block that has data or speaks of the id, at its blank line.
    Event {
        /// Its data lines joined by LF, unchecked bytes; `None` where there were none, or they were
        /// too large.
        data: Option<Bytes>,
        /// The id that the block gives, empty to clear it; `None` where it gives none. An id with
        /// NUL is none.
        id: Option<Bytes>,
    },
    /// The block being read went over the limit. The rest of it is skipped, except its id.
    TooLarge,
    /// A sign of life: a comment line, or a block that says nothing else.
    Comment,
    /// A `retry:` line, in milliseconds.
    Retry(u64),
}

/// Reads one event stream, in linear time however its bytes come, holding at most the data of one
/// event of the limit.
///
/// Line ends are LF, CR and CRLF; a CR ends its line at once. One leading byte-order mark is
/// removed. What the end of the stream cuts off is dropped with the decoder. The data of an event
/// is a slice of its chunk where it is one line that lies whole in it.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// How many bytes of a leading byte-order mark were seen; [`MARK`]'s length once it is decided.
    mark: usize,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    line: Partial,
    block: Block,
}

const MARK: &[u8] = b"\xef\xbb\xbf";

/// What was read of a line whose end has not come.
#[derive(Debug)]
enum Partial {
    /// Its bytes; none yet at the start of a line.
    Held(Vec<u8>),
    /// A comment: its text does not matter.
    Comment,
    /// A field without a meaning, or one over the limit: its value does not matter.
    Ignored,
}

/// What the lines since the last blank one said.
#[derive(Debug, Default)]
struct Block {
    data: Data,
    id: Option<Bytes>,
    too_large: bool,
    /// It had a line.
    begun: bool,
    /// Something was put out for it already.
    told: bool,
}

/// The data of a block.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    Joined(Vec<u8>),
}

/// The lines that mean something to us, told by how they begin.
enum Field {
    Data,
    Id,
    Retry,
    Comment,
    Other,
}

impl Decoder {
    /// A decoder for one stream, whose events have at most `limit` bytes of data.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            mark: 0,
            after_cr: false,
            line: Partial::Held(Vec::new()),
            block: Block::default(),
        }
    }

    /// Takes the next bytes; appends what they complete to `out`.
    pub fn push(&mut self, chunk: Bytes, out: &mut Vec<Item>) {
        let mut start = self.skip_mark(&chunk);
        if start < chunk.len() && std::mem::take(&mut self.after_cr) && chunk[start] == b'\n' {
            start += 1;
        }
        while let Some(length) = memchr::memchr2(b'\r', b'\n', &chunk[start..]) {
            let end = start + length;
            self.end_line(&chunk, start..end, out);
            start = end + 1;
            if chunk[end] == b'\r' {
                match chunk.get(start) {
                    Some(b'\n') => start += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        if start < chunk.len() {
            self.hold(&chunk[start..], out);
        }
    }

    /// Whether some of an event was read, and not its end. A comment is none.
    pub fn is_within_event(&self) -> bool {
        let has_begun = match &self.line {
            Partial::Held(held) => !held.is_empty(),
            Partial::Ignored => true,
            Partial::Comment => false,
        };
        has_begun || self.block.too_large || !matches!(self.block.data, Data::None)
    }

    /// Passes over a byte-order mark at the very start; says where the rest of `chunk` begins.
    fn skip_mark(&mut self, chunk: &[u8]) -> usize {
        let mut start = 0;
        while self.mark < MARK.len() && start < chunk.len() {
            if chunk[start] == MARK[self.mark] {
                self.mark += 1;
                start += 1;
            } else {
                // A part of a mark begins a line that no field's name begins.
                if self.mark > 0 {
                    self.line = Partial::Ignored;
                }
                self.mark = MARK.len();
            }
        }
        start
    }

    /// A line ends with the bytes of `chunk` in `range`.
    fn end_line(&mut self, chunk: &Bytes, range: Range<usize>, out: &mut Vec<Item>) {
        match &mut self.line {
            Partial::Held(held) if held.is_empty() => self.whole_line(chunk, range, out),
            Partial::Held(held) => {
                let mut line = std::mem::take(held);
                gather(&mut line, &chunk[range], self.limit.saturating_add(LONGEST));
                let length = line.len();
                self.whole_line(&Bytes::from(line), 0..length, out);
            }
            Partial::Comment => {
                self.line = Partial::Held(Vec::new());
                self.block.tell(Item::Comment, out);
            }
            Partial::Ignored => {
                self.line = Partial::Held(Vec::new());
                self.block.begun = true;
            }
        }
    }

    /// Keeps the start of a line, if it can matter and is within the limit.
    fn hold(&mut self, piece: &[u8], out: &mut Vec<Item>) {
        let Partial::Held(held) = &mut self.line else {
            return;
        };
        gather(held, piece, self.limit.saturating_add(LONGEST));
        // Until the longest name and its colon are there, the line can become any.
        if held.len() < LONGEST && held.first() != Some(&b':') {
            return;
        }
        let (field, value) = read(held);
        let length = held.len() - value;
        let room = match field {
            Field::Data => self.block.room(self.limit),
            Field::Id | Field::Retry => Some(self.limit),
            Field::Comment => return self.line = Partial::Comment,
            Field::Other => return self.line = Partial::Ignored,
        };
        if room.is_none_or(|room| length > room) {
            self.line = Partial::Ignored;
            if !matches!(field, Field::Retry) {
                self.block.overflow(out);
            }
        }
    }

    /// What the line in `range` of `bytes` means.
    fn whole_line(&mut self, bytes: &Bytes, range: Range<usize>, out: &mut Vec<Item>) {
        if range.is_empty() {
            return std::mem::take(&mut self.block).end(out);
        }
        self.block.begun = true;
        let line = &bytes[range.clone()];
        let (field, value) = read(line);
        let value = range.start + value..range.end;
        match field {
            Field::Data => match self.block.room(self.limit) {
                Some(room) if value.len() <= room => self.block.data.add(bytes, value, self.limit),
                _ => self.block.overflow(out),
            },
            Field::Id if value.len() > self.limit => self.block.overflow(out),
            // A copy: an id is kept long after its chunk.
            Field::Id => {
                let id = &bytes[value];
                if memchr::memchr(0, id).is_none() {
                    self.block.id = Some(Bytes::copy_from_slice(id));
                }
            }
            Field::Retry => {
                if let Some(delay) = milliseconds(&bytes[value], self.limit) {
                    self.block.tell(Item::Retry(delay), out);
                }
            }
            Field::Comment => self.block.tell(Item::Comment, out),
            Field::Other => {}
        }
    }
}

impl Block {
    /// How long a further data line may be; `None` where none may come.
    fn room(&self, limit: usize) -> Option<usize> {
        if self.too_large {
            return None;
        }
        match &self.data {
            Data::None => Some(limit),
            Data::One(data) => limit.checked_sub(data.len() + 1),
            Data::Joined(data) => limit.checked_sub(data.len() + 1),
        }
    }

    /// The data went over the limit: it is let go, and that is told once.
    fn overflow(&mut self, out: &mut Vec<Item>) {
        self.data = Data::None;
        if !std::mem::replace(&mut self.too_large, true) {
            self.tell(Item::TooLarge, out);
        }
    }

    fn tell(&mut self, item: Item, out: &mut Vec<Item>) {
        self.begun = true;
        self.told = true;
        out.push(item);
    }

    /// The blank line has come.
    fn end(self, out: &mut Vec<Item>) {
        let data = match self.data {
            Data::None => None,
            Data::One(data) => Some(data),
            Data::Joined(data) => Some(Bytes::from(data)),
        };
        if data.is_some() || self.id.is_some() {
            out.push(Item::Event { data, id: self.id });
        } else if self.begun && !self.told {
            out.push(Item::Comment);
        }
    }
}

impl Data {
    /// Adds the line in `value` of `bytes`.
    fn add(&mut self, bytes: &Bytes, value: Range<usize>, limit: usize) {
        match self {
            Data::None => *self = Data::One(bytes.slice(value)),
            Data::One(first) => {
                let mut joined = Vec::with_capacity(first.len() + 1 + value.len());
                joined.extend_from_slice(first);
                joined.push(b'\n');
                joined.extend_from_slice(&bytes[value]);
                *self = Data::Joined(joined);
            }
            Data::Joined(joined) => {
                gather(joined, b"\n", limit);
                gather(joined, &bytes[value], limit);
            }
        }
    }
}

/// The length of the longest beginning that [`read`] looks at, `retry: `.
const LONGEST: usize = 7;

/// Which field a line gives, and where its value begins. Names are exact; one space after the colon
/// is not part of the value; a name without a colon has an empty value.
fn read(line: &[u8]) -> (Field, usize) {
    for (name, field) in [(&b"data"[..], Field::Data), (b"id", Field::Id), (b"retry", Field::Retry)]
    {
        match line.strip_prefix(name) {
            Some([b':', b' ', ..]) => return (field, name.len() + 2),
            Some([b':', ..]) => return (field, name.len() + 1),
            Some([]) => return (field, name.len()),
            _ => {}
        }
    }
    let field = if line.first() == Some(&b':') { Field::Comment } else { Field::Other };
    (field, line.len())
}

/// A number of ASCII digits and nothing else; what is too large for the type is its largest.
fn milliseconds(digits: &[u8], limit: usize) -> Option<u64> {
    if digits.is_empty() || digits.len() > limit || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(
        digits.iter().fold(0_u64, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(limit: usize, chunks: &[&[u8]]) -> Vec<Item> {
        let mut decoder = Decoder::new(limit);
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk), &mut out);
        }
        out
    }

    /// Shows an item as the cases below write it: `data|x`, `data|x|id`, `-|id`, `: sign`.
    fn shown(item: &Item) -> String {
        let text = |bytes: &Bytes| bytes.escape_ascii().to_string();
        match item {
            Item::Event { data, id } => {
                let data =
                    data.as_ref().map_or("-".to_owned(), |data| format!("data|{}", text(data)));
                id.as_ref().map_or(data.clone(), |id| format!("{data}|{}", text(id)))
            }
            Item::TooLarge => "too large".to_owned(),
            Item::Comment => "sign".to_owned(),
            Item::Retry(delay) => format!("retry {delay}"),
        }
    }

    /// The same comes out of `input` whole, byte by byte with empty chunks between, and at every one
    /// and, where it is short, every two cuts.
    fn check(limit: usize, input: &[u8], expected: &[&str]) {
        let name = input.escape_ascii();
        let compare = |chunks: &[&[u8]], cut: &str| {
            let items: Vec<String> = decode(limit, chunks).iter().map(shown).collect();
            assert_eq!(items, expected, "{name} {cut}");
        };
        compare(&[input], "whole");
        let single: Vec<&[u8]> = input.chunks(1).flat_map(|byte| [&[][..], byte]).collect();
        compare(&single, "byte by byte");
        for first in 0..=input.len() {
            compare(&[&input[..first], &input[first..]], &format!("cut at {first}"));
            let last = if input.len() <= 60 { input.len() } else { first };
            for second in first..=last {
                let chunks = [&input[..first], &input[first..second], &input[second..]];
                compare(&chunks, &format!("cut at {first} and {second}"));
            }
        }
    }

    /// The cases by what they are about: input, then what comes out. No limit is met.
    fn check_all(cases: &[(&[u8], &[&str])]) {
        for (input, expected) in cases {
            check(usize::MAX, input, expected);
        }
    }

    #[test]
    fn r14_every_line_end_reads_the_same() {
        let document = "retry: 5\n: c\ndata: a\nid: 1\n\n\ndata: b\ndata: c\n\nevent: ping\n\n";
        let expected = ["retry 5", "sign", "data|a|1", "data|b\\nc", "sign"];
        for end in ["\n", "\r", "\r\n"] {
            check(usize::MAX, document.replace('\n', end).as_bytes(), &expected);
        }
        let mut ends = ["\r\n", "\n", "\r"].iter().cycle();
        let mixed: String = document
            .split_inclusive('\n')
            .map(|line| {
                line.replace('\n', if line == "\n" { "\r\n" } else { ends.next().unwrap_or(&"\n") })
            })
            .collect();
        check(usize::MAX, mixed.as_bytes(), &expected);
    }

    #[test]
    fn r14_a_cut_inside_crlf_changes_nothing() {
        check_all(&[
            // K1
            (b"data: {\"a\":\r\ndata: 1\r\ndata: }\r\n\r\n", &[r#"data|{\"a\":\n1\n}"#]),
            // K3
            (
                b"data: a\r\n\rdata: b\n\r\ndata: c\r\rdata: d\n\n",
                &["data|a", "data|b", "data|c", "data|d"],
            ),
            // K5
            (b"data: a\r\r", &["data|a"]),
        ]);
    }

    #[test]
    fn r14_two_cr_and_then_silence_deliver_at_once() {
        assert_eq!(decode(9, &[b"data: a\r\r"]).len(), 1);
        assert_eq!(decode(9, &[b"data: a\r", b"\r"]).len(), 1);
        assert_eq!(decode(9, &[b"data: a\r\n\r"]).len(), 1);
    }

    #[test]
    fn r14_one_byte_order_mark_is_removed() {
        check_all(&[
            // K7
            (b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", &["data|a", "data|b"]),
            // K9
            (
                b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n",
                &["sign", r"data|\xef\xbb\xbfb"],
            ),
            (b"\xef\xbb\xbf\n\ndata: a\n\n", &["data|a"]),
            (b"\xef\xbb\xbf:\n", &["sign"]),
            (b"\xef\xbbdata: a\ndata: b\n\n", &["data|b"]),
            (b"\xefdata: a\n\n", &["sign"]),
            (b"\xef\n\n", &["sign"]),
            (b"\n\xef\xbb\xbfdata: a\n\n", &["sign"]),
            (b"data: a\n\xef\xbb\xbfdata: b\n\n", &["data|a"]),
        ]);
    }

    #[test]
    fn r14_a_comment_is_a_sign_of_life() {
        check_all(&[
            (b":\n", &["sign"]),
            (b": text\n:text\n", &["sign", "sign"]),
            (b": a\n\n", &["sign"]),
            (b":data: a\n\n", &["sign"]),
            (b"data: a\n: b\ndata: c\n\n", &["sign", r"data|a\nc"]),
            (b": \xff\xfe\ndata: a\n\n", &["sign", "data|a"]),
        ]);
    }

    #[test]
    fn r14_data_loses_one_space_and_joins_with_lf() {
        check_all(&[
            // K27
            (b"data:x\n\n", &["data|x"]),
            (b"data: x\n\n", &["data|x"]),
            (b"data:  x\n\n", &["data| x"]),
            (b"data:\tx\n\n", &[r"data|\tx"]),
            (b"data:x \n\n", &["data|x "]),
            (b"data:a:b\n\n", &["data|a:b"]),
            (b"data\n\n", &["data|"]),
            (b"data:\n\n", &["data|"]),
            (b"data: \n\n", &["data|"]),
            (b"data: a\ndata: b\n\n", &[r"data|a\nb"]),
            (b"data: a\ndata: b\ndata: c\n\n", &[r"data|a\nb\nc"]),
            (b"data: a\nid: 1\ndata: b\n\n", &[r"data|a\nb|1"]),
            (b"data\ndata\n\n", &[r"data|\n"]),
            (b"data: a\ndata\n\n", &[r"data|a\n"]),
        ]);
    }

    #[test]
    fn r14_field_names_are_exact() {
        check_all(&[
            (b"Data: x\n\n", &["sign"]),
            (b" data: x\n\n", &["sign"]),
            (b"data : x\n\n", &["sign"]),
            (b"da\0ta: x\n\n", &["sign"]),
            (b"data\0: x\n\n", &["sign"]),
            (b"da-ta: x\n\n", &["sign"]),
            (b"datax: x\n\n", &["sign"]),
            (b"dat\n\n", &["sign"]),
            (b"i: 1\n\n", &["sign"]),
            (b"ID: 1\nids: 2\nretryx: 3\nretr: 4\n\n", &["sign"]),
        ]);
    }

    #[test]
    fn r14_an_unknown_field_changes_nothing() {
        check_all(&[
            // KS7
            (b"data: a\nfoo: b\nfoo\n:\n\n", &["sign", "data|a"]),
            (b"foo\ndata: a\nfoo:\n\n", &["data|a"]),
        ]);
    }

    #[test]
    fn r14_the_name_of_an_event_does_not_matter() {
        check_all(&[
            (b"event: foo\nevent\ndata: a\n\n", &["data|a"]),
            (b"event:\ndata: a\n\n", &["data|a"]),
            (b"data: a\nevent: foo\n\n", &["data|a"]),
            // K19
            (b"event: ping\n\nevent: ping\n\n", &["sign", "sign"]),
        ]);
    }

    #[test]
    fn r3_an_id_is_set_cleared_ignored_and_kept_as_its_block_says() {
        check_all(&[
            (b"id: 7\ndata: a\n\ndata: b\n\n", &["data|a|7", "data|b"]),
            (b"id\ndata: a\n\n", &["data|a|"]),
            (b"id:\ndata: a\n\n", &["data|a|"]),
            (b"id: \0\ndata: a\n\n", &["data|a"]),
            (b"id: 1\nid: 2\0\ndata: a\n\n", &["data|a|1"]),
            (b"id: 1\nid: 2\n\n", &["-|2"]),
            (b"id: 1\nid\n\n", &["-|"]),
            (b"id:  7 \n\n", &["-| 7 "]),
            (b"id: \xff\n\n", &[r"-|\xff"]),
            (b"id: 0\0\n\n", &["sign"]),
            // K21
            (b"id: 7\n\ndata: a\n\n", &["-|7", "data|a"]),
        ]);
    }

    #[test]
    fn r14_retry_counts_where_it_is_digits_only() {
        check_all(&[
            (b"retry: 50\n", &["retry 50"]),
            (b"retry:50\n\n", &["retry 50"]),
            (b"data: a\nretry: 50\ndata: b\n\n", &["retry 50", r"data|a\nb"]),
            (
                b"retry: 1000x\n\nretry: +5\n\nretry:\n\nretry\n\n",
                &["sign", "sign", "sign", "sign"],
            ),
            (b"retry: -5\nretry:  5\nretry: 5 \nretry: 0x5\ndata: a\n\n", &["data|a"]),
            (b"retry: 99999999999\nretry: 0\n", &["retry 99999999999", "retry 0"]),
            (b"retry: 99999999999999999999999\n", &["retry 18446744073709551615"]),
            (b"retry: 0000000000000000000000005\n", &["retry 5"]),
        ]);
    }

    #[test]
    fn r14_an_end_without_a_blank_line_drops() {
        check_all(&[
            // K15
            (b"id: 1\n\nid: 3\ndata: x\n", &["-|1"]),
            (b"data: x", &[]),
            (b"data: x\r", &[]),
            // K17
            (b"data: x\n\r", &["data|x"]),
            (b"data: x\r\n\r", &["data|x"]),
            (b"data: x\r\r", &["data|x"]),
        ]);
    }

    #[test]
    fn r14_blank_lines_between_events_make_no_ghosts() {
        check_all(&[
            (b"\n\n\nid: 1\ndata: a\n\n\n\n\ndata: b\n\n\n", &["data|a|1", "data|b"]),
            (b"\r\r\n\n\r", &[]),
        ]);
    }

    #[test]
    fn r14_characters_pass_whole_wherever_they_are_cut() {
        check_all(&[
            ("data: é€𝄞\n\n".as_bytes(), &[r"data|\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e"]),
            (
                "data: \u{2028}\u{85}\u{feff}\n\n".as_bytes(),
                &[r"data|\xe2\x80\xa8\xc2\x85\xef\xbb\xbf"],
            ),
            // K29: the bytes pass; who reads the message refuses it.
            (
                b"data: {\"t\":\"\xff\xfe\"}\n\ndata: a\n\n",
                &[r#"data|{\"t\":\"\xff\xfe\"}"#, "data|a"],
            ),
        ]);
    }

    #[test]
    fn r14_an_event_over_the_limit_is_told_once_and_skipped_to_its_blank_line() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"data: 12345678\n\n", &["data|12345678"]),
            (b"data:12345678\n\n", &["data|12345678"]),
            (b"data: 123456789\n\ndata: a\n\n", &["too large", "data|a"]),
            (b"data:123456789\r\n\r\ndata: a\n\n", &["too large", "data|a"]),
            // K25
            (b"data: 123456789\ndata: a\nfoo\n\ndata: b\n\n", &["too large", "data|b"]),
            (b"id: 1\ndata: 123456789\n\ndata: b\n\n", &["too large", "-|1", "data|b"]),
            (b"data: 123456789\nid: 1\n\ndata: b\n\n", &["too large", "-|1", "data|b"]),
            (b"data: 123456789\n:c\nretry: 5\n\n", &["too large", "sign", "retry 5"]),
            (b"data: 1234\ndata: 567\n\n", &[r"data|1234\n567"]),
            (b"data: 1234\ndata: 5678\n\ndata: a\n\n", &["too large", "data|a"]),
            (b"data: 12\ndata: 12\ndata: 12\n\n", &[r"data|12\n12\n12"]),
            (b"data: 12\ndata: 12\ndata: 123\n\n", &["too large"]),
            (
                b"data\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\n\n",
                &[r"data|\n\n\n\n\n\n\n\n"],
            ),
            (b"data\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\n\n", &["too large"]),
            (b"data: 12345678901234567890", &["too large"]),
            (b"data: 1\ndata: 2345678901234567890", &["too large"]),
            (b"id: 123456789\ndata: a\n\ndata: b\n\n", &["too large", "data|b"]),
            (
                b"foo: 12345678901234567890\n: 12345678901234567890\ndata: a\n\n",
                &["sign", "data|a"],
            ),
            (b"retry: 123456789\ndata: a\n\n", &["data|a"]),
        ];
        for (input, expected) in cases {
            check(8, input, expected);
        }
    }

    #[test]
    fn r14_memory_is_bounded_whatever_has_no_end() {
        const LIMIT: usize = 1 << 16;
        for endless in
            ["data: x", "data: x\n", "data\n", "id: x", ": x", "foo: x", "id: x\n", "retry: 1"]
        {
            let mut decoder = Decoder::new(LIMIT);
            let mut out = Vec::new();
            let repeats = endless.ends_with('\n');
            decoder.push(Bytes::from(endless), &mut out);
            let more = if repeats { endless.repeat(100) } else { "x".repeat(700) };
            for _ in 0..1_000 {
                decoder.push(Bytes::from(more.clone()), &mut out);
                let held = match &decoder.line {
                    Partial::Held(held) => held.capacity(),
                    _ => 0,
                };
                let data = match &decoder.block.data {
                    Data::Joined(joined) => joined.capacity(),
                    Data::One(one) => one.len(),
                    Data::None => 0,
                };
                assert!(held + data <= 2 * LIMIT, "{endless:?} holds {held} and {data}");
            }
            let told = out.iter().filter(|item| **item == Item::TooLarge).count();
            assert_eq!(
                told,
                usize::from(endless.starts_with("data") || endless == "id: x"),
                "{endless:?}"
            );
            decoder.push(Bytes::from_static(b"\n\ndata: next\n\n"), &mut out);
            assert_eq!(out.last().map(shown).as_deref(), Some("data|next"), "{endless:?}");
        }
    }

    /// K23.
    #[test]
    fn r14_large_data_is_whole() {
        for length in [70_000, 1 << 20, 8 << 20] {
            let input = [&b"data: "[..], &vec![b'x'; length], b"\n\n"].concat();
            for size in [1, 1024] {
                let mut decoder = Decoder::new(length);
                let mut out = Vec::new();
                let input = Bytes::from(input.clone());
                // Takes minutes if a byte is looked at again for each chunk.
                for start in (0..input.len()).step_by(size) {
                    decoder.push(input.slice(start..input.len().min(start + size)), &mut out);
                }
                let [Item::Event { data: Some(data), id: None }] = &out[..] else { unreachable!() };
                assert!(data.len() == length && data.iter().all(|byte| *byte == b'x'));
            }
        }
    }

    #[test]
    fn data_that_is_one_line_in_one_chunk_is_not_copied() {
        let chunk = Bytes::from(b": c\ndata: one\n\ndata:two\r\nid: 1\r\n\r\n".to_vec());
        let mut out = Vec::new();
        Decoder::new(64).push(chunk.clone(), &mut out);
        let [
            Item::Comment,
            Item::Event { data: Some(one), .. },
            Item::Event { data: Some(two), .. },
        ] = &out[..]
        else {
            unreachable!("{out:?}")
        };
        assert_eq!(one.as_ptr(), chunk[10..].as_ptr());
        assert_eq!(two.as_ptr(), chunk[20..].as_ptr());
    }

    /// The standard, read literally: lines first, then their fields, nothing bounded.
    fn standard(input: &[u8]) -> Vec<Item> {
        let mut text = input.strip_prefix(MARK).unwrap_or(input);
        let mut out = Vec::new();
        let (mut data, mut id) = (None::<Vec<u8>>, None);
        let (mut begun, mut told) = (false, false);
        while let Some(end) = text.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            let line = &text[..end];
            let both = text[end..].starts_with(b"\r\n");
            text = &text[end + if both { 2 } else { 1 }..];
            if line.is_empty() {
                let (data, id) = (data.take().map(Bytes::from), id.take());
                if data.is_some() || id.is_some() {
                    out.push(Item::Event { data, id });
                } else if begun && !told {
                    out.push(Item::Comment);
                }
                (begun, told) = (false, false);
                continue;
            }
            begun = true;
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let value = line.get(colon + 1..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value);
            let said = match &line[..colon] {
                b"" => Some(Item::Comment),
                b"data" => {
                    match &mut data {
                        Some(data) => data.extend([b"\n", value].concat()),
                        none => *none = Some(value.to_vec()),
                    }
                    None
                }
                b"id" if !value.contains(&0) => {
                    id = Some(Bytes::copy_from_slice(value));
                    None
                }
                b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                    std::str::from_utf8(value)
                        .ok()
                        .and_then(|value| value.parse().ok())
                        .map(Item::Retry)
                }
                _ => None,
            };
            told |= said.is_some();
            out.extend(said);
        }
        out
    }

    /// Every text of up to five of these pieces.
    #[test]
    fn l11_some_of_an_event_is_told_from_a_comment_and_from_nothing() {
        let cases: [(&[u8], bool); 9] = [
            (b"", false),
            (b"da", true),
            (b"data: 1", true),
            (b"data: 1\n", true),
            (b"data: 1\n\n", false),
            (b":beat", false),
            (b":beat\n", false),
            (b":beat\n\n", false),
            (b"unknown", true),
        ];
        for (bytes, is_within) in cases {
            let mut decoder = Decoder::new(100);
            decoder.push(Bytes::from_static(bytes), &mut Vec::new());
            assert_eq!(decoder.is_within_event(), is_within, "{bytes:?}");
        }
    }

    #[test]
    fn r14_all_short_texts_read_as_the_standard_reads_them() {
        const PIECES: [&[u8]; 11] = [
            b"\n",
            b"\r",
            b"data",
            b"id",
            b"retry",
            b":",
            b" ",
            b"1",
            b"\0",
            b"\xef\xbb\xbf",
            b"\xbb",
        ];
        let mut texts = vec![Vec::new()];
        for _ in 0..5 {
            texts = texts
                .iter()
                .flat_map(|text| PIECES.map(|piece| [&text[..], piece].concat()))
                .collect();
            for text in &texts {
                let expected = standard(text);
                assert_eq!(decode(64, &[text]), expected, "{}", text.escape_ascii());
                let single: Vec<&[u8]> = text.chunks(1).collect();
                assert_eq!(decode(64, &single), expected, "{} byte by byte", text.escape_ascii());
                for ending in [&b"\n\n"[..], b"\r\n\ndata:\r\r"] {
                    let text = [text, ending].concat();
                    assert_eq!(decode(64, &[&text]), standard(&text), "{}", text.escape_ascii());
                }
            }
        }
    }
}
