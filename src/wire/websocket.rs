//! The frames of a WebSocket (RFC 6455), as a client reads and writes them.
//!
//! Our own, because of two things that libraries do not do: a message over the size limit is skipped in
//! bounded memory while the socket lives on, and what came in one piece is passed on without a copy.
//! However the bytes are cut, the same items come out.

use super::gather;
use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

/// The longest payload of a frame that is no data.
const CONTROL: u64 = 125;
/// The longest header: two bytes and a length of eight. Servers do not mask.
const HEADER: usize = 10;
/// A longer message goes out in parts: some servers take no longer frame, and a ping must not wait
/// behind all of it.
pub const PART: usize = 64 * 1024;

/// What a server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A text message, whole. Whether it is UTF-8 is for whoever reads it.
    Text(Bytes),
    /// A text message went over the size limit; the rest of it is skipped.
    TooLarge,
    /// A binary message, which means nothing here (W3), has come to its end.
    Binary,
    /// A ping, to be answered with the same payload.
    Ping(Bytes),
    /// The answer to a ping of ours.
    Pong,
    /// The server closes: the code, if it gives one, and its reason. Nothing follows.
    Close(Option<u16>, String),
}

/// What a server may not send. The socket cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A reserved bit is set: an extension that nobody asked for.
    Reserved,
    /// The frame is of no kind that there is.
    Kind,
    /// Only clients mask.
    Masked,
    /// A length is over 2^63, or is written longer than it must be.
    Length,
    /// A ping, pong or close is in parts, too long, or a close has half a code.
    Control,
    /// A message begins inside another, or a part comes without a beginning.
    Order,
}

impl fmt::Display for Wrong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Reserved => "a frame has a reserved bit",
            Self::Kind => "a frame is of an unknown kind",
            Self::Masked => "a frame of the server is masked",
            Self::Length => "a frame has a length that is none",
            Self::Control => "a control frame has a wrong form",
            Self::Order => "the parts of messages are out of order",
        })
    }
}

/// The kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Kind {
    fn new(opcode: u8) -> Result<Self, Wrong> {
        Ok(match opcode {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return Err(Wrong::Kind),
        })
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
struct Head {
    kind: Kind,
    is_last: bool,
    length: u64,
}

/// A message of which the last part is not there yet.
#[derive(Debug)]
enum Message {
    Text(Vec<u8>),
    /// Text over the limit, or binary.
    Skipped(Item),
}

/// Reads frames, in pieces of any size.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    /// Bytes of a head that is not whole.
    head: BytesMut,
    /// The frame that is being read, and how much of it is still to come.
    frame: Option<(Head, u64)>,
    /// The payload of a control frame that is not whole.
    control: BytesMut,
    message: Option<Message>,
    is_closed: bool,
}

impl Decoder {
    /// One for a new socket. `limit` is the size of the longest message, in bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            head: BytesMut::new(),
            frame: None,
            control: BytesMut::new(),
            message: None,
            is_closed: false,
        }
    }

    /// Reads a piece; appends what it completes to `items`.
    ///
    /// # Errors
    /// The server breaks the protocol; what came before it stands in `items`.
    pub fn push(&mut self, mut piece: Bytes, items: &mut Vec<Item>) -> Result<(), Wrong> {
        while !self.is_closed {
            let (head, left) = match self.frame.take() {
                Some(frame) => frame,
                None => match self.next_head(&mut piece)? {
                    Some(head) => (head, head.length),
                    None => return Ok(()),
                },
            };
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            let payload = piece.split_to(length);
            let left = left - length as u64;
            if head.kind.is_control() {
                self.control.extend_from_slice(&payload);
                if left == 0 {
                    let payload = self.control.split().freeze();
                    items.push(self.control(head.kind, payload)?);
                }
            } else {
                self.data(payload, head.is_last && left == 0, items);
            }
            if left > 0 {
                self.frame = Some((head, left));
                return Ok(());
            }
        }
        Ok(())
    }

    /// The next head, once it is whole and is found to be in order.
    fn next_head(&mut self, piece: &mut Bytes) -> Result<Option<Head>, Wrong> {
        let missing = HEADER - self.head.len();
        let before = self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(missing)]);
        let Some((head, length)) = read_head(&self.head)? else {
            piece.advance(piece.len().min(missing));
            return Ok(None);
        };
        piece.advance(length - before);
        self.head.clear();
        self.begin(head)?;
        Ok(Some(head))
    }

    /// A frame begins: whether it may, and what message it is of.
    fn begin(&mut self, head: Head) -> Result<(), Wrong> {
        match (head.kind, &self.message) {
            (kind, _) if kind.is_control() => {
                if !head.is_last || head.length > CONTROL {
                    return Err(Wrong::Control);
                }
            }
            (Kind::Continuation, Some(_)) => {}
            (Kind::Text, None) => self.message = Some(Message::Text(Vec::new())),
            (Kind::Binary, None) => self.message = Some(Message::Skipped(Item::Binary)),
            _ => return Err(Wrong::Order),
        }
        Ok(())
    }

    /// Some of a message's payload.
    fn data(&mut self, payload: Bytes, is_end: bool, items: &mut Vec<Item>) {
        match self.message.take() {
            Some(Message::Text(text)) if text.len() + payload.len() > self.limit => {
                if is_end {
                    items.push(Item::TooLarge);
                } else {
                    self.message = Some(Message::Skipped(Item::TooLarge));
                }
            }
            Some(Message::Text(text)) if is_end && text.is_empty() => {
                items.push(Item::Text(payload));
            }
            Some(Message::Text(mut text)) => {
                gather(&mut text, &payload, self.limit);
                if is_end {
                    items.push(Item::Text(text.into()));
                } else {
                    self.message = Some(Message::Text(text));
                }
            }
            Some(Message::Skipped(item)) if is_end => items.push(item),
            skipped => self.message = skipped,
        }
    }

    fn control(&mut self, kind: Kind, payload: Bytes) -> Result<Item, Wrong> {
        match kind {
            Kind::Ping => return Ok(Item::Ping(payload)),
            Kind::Pong => return Ok(Item::Pong),
            _ => self.is_closed = true,
        }
        match payload[..] {
            [] => Ok(Item::Close(None, String::new())),
            [high, low, ref reason @ ..] => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                Ok(Item::Close(Some(u16::from_be_bytes([high, low])), reason))
            }
            [_] => Err(Wrong::Control),
        }
    }
}

/// Reads a head and its length in bytes, if it is whole.
fn read_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, Wrong> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(Wrong::Reserved);
    }
    let kind = Kind::new(first & 0x0f)?;
    if second & 0x80 != 0 {
        return Err(Wrong::Masked);
    }
    let (length, size, least) = match (second & 0x7f, rest) {
        (126, [high, low, ..]) => (u64::from(u16::from_be_bytes([*high, *low])), 4, 126),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), HEADER, 1 << 16)
        }
        (126 | 127, _) => return Ok(None),
        (short, _) => (u64::from(short), 2, 0),
    };
    if length < least || length > i64::MAX as u64 {
        return Err(Wrong::Length);
    }
    Ok(Some((Head { kind, is_last: first & 0x80 != 0, length }, size)))
}

/// A frame of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A part of a text message: whether it is the first and the last one.
    Text {
        /// At most [`PART`] bytes.
        part: &'a [u8],
        /// No part came before it.
        is_first: bool,
        /// None follows.
        is_last: bool,
    },
    /// Asks whether the server is there.
    Ping,
    /// The answer to a ping, with its payload.
    Pong(&'a [u8]),
    /// The end, with a code.
    Close(u16),
}

/// The parts of a text message, in their order.
pub fn parts(text: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let count = text.len().div_ceil(PART).max(1);
    (0..count).map(move |number| Frame::Text {
        part: &text[number * PART..text.len().min((number + 1) * PART)],
        is_first: number == 0,
        is_last: number + 1 == count,
    })
}

/// Appends a frame to `out`. `mask` must be one that nobody can guess.
pub fn write(frame: Frame<'_>, mask: [u8; 4], out: &mut BytesMut) {
    let code;
    let (opcode, is_last, payload) = match frame {
        Frame::Text { part, is_first, is_last } => (u8::from(is_first), is_last, part),
        Frame::Ping => (9, true, &b""[..]),
        Frame::Pong(payload) => (10, true, payload),
        Frame::Close(number) => {
            code = number.to_be_bytes();
            (8, true, &code[..])
        }
    };
    out.reserve(14 + payload.len());
    out.extend_from_slice(&[opcode | u8::from(is_last) << 7]);
    match payload.len() {
        // Each fits: the arm says so.
        length @ 0..=125 => out.extend_from_slice(&[0x80 | length as u8]),
        length @ 126..=0xffff => {
            out.extend_from_slice(&[0x80 | 126]);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.extend_from_slice(&[0x80 | 127]);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    for four in out[start..].chunks_mut(4) {
        four.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const LIMIT: usize = 300;

    /// A frame as a server writes it.
    fn served(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![opcode];
        match payload.len() {
            length @ 0..=125 => frame.push(length as u8),
            length @ 126..=0xffff => {
                frame.push(126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(payload);
        frame
    }

    fn text(text: &str) -> Item {
        Item::Text(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn read(pieces: &[&[u8]]) -> (Vec<Item>, Result<(), Wrong>) {
        let mut decoder = Decoder::new(LIMIT);
        let mut items = Vec::new();
        for piece in pieces {
            if let Err(wrong) = decoder.push(Bytes::copy_from_slice(piece), &mut items) {
                return (items, Err(wrong));
            }
        }
        (items, Ok(()))
    }

    /// A night on a socket, and what it says.
    fn night() -> (Vec<u8>, Vec<Item>) {
        let long = "x".repeat(LIMIT);
        let frames = [
            served(0x81, b"{}"),
            served(0x01, b"{\"a\":"),
            served(0x89, b"are you there"),
            served(0x00, b""),
            served(0x80, b"1}"),
            served(0x81, b""),
            served(0x81, long.as_bytes()),
            served(0x81, (long.clone() + "y").as_bytes()),
            served(0x01, long.as_bytes()),
            served(0x8a, b""),
            served(0x00, b"y"),
            served(0x80, &[b'z'; 70_000]),
            served(0x82, &[0xff; 70_000]),
            served(0x81, b"\xff"),
            served(0x88, b"\x03\xf0no"),
            served(0x81, b"late"),
        ];
        let items = vec![
            text("{}"),
            Item::Ping(Bytes::from_static(b"are you there")),
            text("{\"a\":1}"),
            text(""),
            text(&long),
            Item::TooLarge,
            Item::Pong,
            Item::TooLarge,
            Item::Binary,
            Item::Text(Bytes::from_static(b"\xff")),
            Item::Close(Some(1008), "no".to_owned()),
        ];
        (frames.concat(), items)
    }

    #[test]
    fn w1_however_a_socket_is_cut_it_says_the_same() {
        let (bytes, expected) = night();
        assert_eq!(read(&[&bytes]), (expected.clone(), Ok(())));
        for size in [1, 2, 3, 5, 7, 64, 4096] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(read(&pieces), (expected.clone(), Ok(())), "pieces of {size}");
        }
        for at in (0..2_000).chain(bytes.len() - 200..bytes.len()) {
            let (before, after) = bytes.split_at(at);
            assert_eq!(read(&[before, after]), (expected.clone(), Ok(())), "cut at {at}");
        }
    }

    #[test]
    fn w1_a_message_in_one_piece_is_not_copied() {
        let piece = Bytes::from(served(0x81, b"a message"));
        let mut items = Vec::new();
        Decoder::new(LIMIT).push(piece.clone(), &mut items).unwrap();
        let [Item::Text(text)] = &items[..] else { panic!("{items:?}") };
        assert_eq!(text.as_ptr(), piece[2..].as_ptr());
    }

    #[test]
    fn w3_what_is_skipped_takes_no_memory() {
        let mut decoder = Decoder::new(LIMIT);
        let mut items = Vec::new();
        let mut head = vec![0x81, 127];
        head.extend((1_u64 << 40).to_be_bytes());
        decoder.push(Bytes::from(head), &mut items).unwrap();
        for _ in 0..1_000 {
            decoder.push(Bytes::from_static(&[b'x'; 4096]), &mut items).unwrap();
        }
        assert!(matches!(decoder.message, Some(Message::Skipped(Item::TooLarge))));
        assert_eq!(items, []);
    }

    #[test]
    fn w1_what_breaks_the_protocol_is_told_after_what_came_before_it() {
        let cases: [(&[u8], Wrong); 14] = [
            (b"\xc1\x00", Wrong::Reserved),
            (b"\x83\x00", Wrong::Kind),
            (b"\x8b\x00", Wrong::Kind),
            (b"\x81\x80\0\0\0\0", Wrong::Masked),
            (b"\x81\x7e\x00\x7d", Wrong::Length),
            (b"\x81\x7f\0\0\0\0\0\0\xff\xff", Wrong::Length),
            (b"\x81\x7f\x80\0\0\0\0\0\0\0", Wrong::Length),
            (b"\x09\x00", Wrong::Control),
            (b"\x89\x7e\x00\x7e", Wrong::Control),
            (b"\x88\x01\x03", Wrong::Control),
            (b"\x80\x00", Wrong::Order),
            (b"\x01\x00\x81\x00", Wrong::Order),
            (b"\x01\x00\x82\x00", Wrong::Order),
            (b"\x02\x00\x81\x00", Wrong::Order),
        ];
        for (bytes, wrong) in cases {
            let all = [&served(0x81, b"{}")[..], bytes].concat();
            assert_eq!(read(&[&all]), (vec![text("{}")], Err(wrong)), "{bytes:x?}");
            let pieces: Vec<&[u8]> = all.chunks(1).collect();
            assert_eq!(read(&pieces), (vec![text("{}")], Err(wrong)), "{bytes:x?}, in pieces");
        }
    }

    /// What a server reads: the opcode with the last bit, and the payload without its mask.
    fn unmasked(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut frames = Vec::new();
        while let [first, second, rest @ ..] = bytes {
            assert!(second & 0x80 != 0, "a client masks");
            let (length, rest) = match second & 0x7f {
                126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
                127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
                short => (usize::from(short), rest),
            };
            let (mask, rest) = rest.split_at(4);
            let (payload, rest) = rest.split_at(length);
            let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
            frames.push((*first, payload.collect()));
            bytes = rest;
        }
        frames
    }

    #[test]
    fn w1_what_is_written_is_masked_and_a_long_message_is_in_parts() {
        let mask = [1, 2, 3, 250];
        for length in [0, 1, 125, 126, 0xffff, 0x10000, PART, PART + 1, 2 * PART + 7] {
            let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = BytesMut::new();
            parts(&text).for_each(|part| write(part, mask, &mut out));
            let frames = unmasked(&out);
            assert_eq!(frames.len(), length.div_ceil(PART).max(1));
            assert_eq!(frames.first().unwrap().0 & 0x0f, 1);
            assert!(frames.iter().skip(1).all(|(first, _)| first & 0x0f == 0));
            let lasts = frames.iter().filter(|(first, _)| first & 0x80 != 0).count();
            assert_eq!((lasts, frames.last().unwrap().0 >> 7), (1, 1));
            let payloads = frames.into_iter().flat_map(|(_, payload)| payload);
            assert_eq!(payloads.collect::<Vec<u8>>(), text);
        }
        let mut out = BytesMut::new();
        for frame in [Frame::Ping, Frame::Pong(b"p"), Frame::Close(1000)] {
            write(frame, mask, &mut out);
        }
        let expected = [(0x89, vec![]), (0x8a, b"p".to_vec()), (0x88, vec![3, 0xe8])];
        assert_eq!(unmasked(&out), expected);
    }
}
