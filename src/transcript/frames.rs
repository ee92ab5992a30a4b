//! The frames of a WebSocket (RFC 6455), as a scripted remote writes and reads them.
//!
//! The mirror of [`crate::wire::websocket`], which a remote cannot use: a client masks what it writes,
//! and a server does not.

use bytes::{BufMut, Bytes, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// Set in the first byte of a message's last frame.
const LAST: u8 = 0x80;

/// A part of a text message.
pub(super) fn text(part: &[u8], is_first: bool, is_last: bool) -> Bytes {
    let kind = if is_first { TEXT } else { CONTINUATION };
    frame(if is_last { kind | LAST } else { kind }, part)
}

/// A ping.
pub(super) fn ping(payload: &[u8]) -> Bytes {
    frame(PING | LAST, payload)
}

/// The answer to a ping.
pub(super) fn pong(payload: &[u8]) -> Bytes {
    frame(PONG | LAST, payload)
}

/// A close.
pub(super) fn close(code: Option<u16>, reason: &str) -> Bytes {
    let code = code.map(u16::to_be_bytes);
    let payload = [code.as_ref().map_or(&b""[..], |code| code), reason.as_bytes()].concat();
    frame(CLOSE | LAST, &payload)
}

fn frame(first: u8, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(10 + payload.len());
    out.put_u8(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => out.put_u8(length),
        (_, Ok(length)) => {
            out.put_u8(126);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(payload.len() as u64);
        }
    }
    out.put_slice(payload);
    out.freeze()
}

/// What a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A text message, whole.
    Text(Bytes),
    /// A ping, to be answered with the same payload.
    Ping(Bytes),
    /// It closes, with a code or with none.
    Close(Option<u16>),
    /// Anything else.
    Other,
}

/// The next of what a client sends. `message` holds the parts of one that is not whole yet.
pub(super) async fn hear(
    from: &mut (impl AsyncRead + Unpin),
    message: &mut Vec<u8>,
) -> io::Result<Heard> {
    loop {
        let (first, payload) = read(from).await?;
        match first & 0x0f {
            CONTINUATION | TEXT => {
                message.extend_from_slice(&payload);
                if first & LAST != 0 {
                    return Ok(Heard::Text(std::mem::take(message).into()));
                }
            }
            PING => return Ok(Heard::Ping(payload.into())),
            CLOSE => {
                let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                return Ok(Heard::Close(code));
            }
            _ => return Ok(Heard::Other),
        }
    }
}

/// The first byte of a frame, and its payload.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let (first, second) = (from.read_u8().await?, from.read_u8().await?);
    let length = match second & 0x7f {
        126 => from.read_u16().await?.into(),
        127 => from.read_u64().await?,
        short => short.into(),
    };
    if second & 0x80 == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a client must mask"));
    }
    let mask = from.read_u32().await?.to_be_bytes();
    let mut payload = Vec::new();
    // Memory follows from what comes, and not from what is announced.
    from.take(length).read_to_end(&mut payload).await?;
    if payload.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok((first, payload))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::wire::websocket::{Decoder, Frame, Item, parts, write};

    #[test]
    fn what_the_remote_writes_our_client_reads() {
        for length in [0, 125, 126, 65_535, 65_536, 200_000] {
            let body = vec![b'a'; length];
            let (one, other) = body.split_at(length / 2);
            let written = [text(one, true, false), ping(b"p"), text(other, false, true)];
            let (mut decoder, mut items) = (Decoder::new(1 << 20), Vec::new());
            for frame in written.into_iter().chain([close(Some(1011), "why")]) {
                decoder.push(frame, &mut items).unwrap();
            }
            let expected = [
                Item::Ping(Bytes::from_static(b"p")),
                Item::Text(body.into()),
                Item::Close(Some(1011), "why".to_owned()),
            ];
            assert_eq!(items, expected, "{length}");
        }
    }

    #[tokio::test]
    async fn what_our_client_writes_the_remote_hears() {
        for length in [0, 125, 126, 65_536, 200_000] {
            let body = vec![b'a'; length];
            let mut written = BytesMut::new();
            for part in parts(&body).chain([Frame::Ping, Frame::Pong(b"p"), Frame::Close(1000)]) {
                write(part, [1, 2, 3, 4], &mut written);
            }
            let (mut from, mut message) = (&written[..], Vec::new());
            let expected = [
                Heard::Text(body.into()),
                Heard::Ping(Bytes::new()),
                Heard::Other,
                Heard::Close(Some(1000)),
            ];
            for expected in expected {
                assert_eq!(hear(&mut from, &mut message).await.unwrap(), expected, "{length}");
            }
            assert!(hear(&mut from, &mut message).await.is_err());
        }
    }
}
