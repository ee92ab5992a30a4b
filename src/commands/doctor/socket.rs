//! Says one message over a WebSocket and hears one.

use crate::core::message::{self, Message};
use crate::core::methods::initialize;
use crate::core::socket::Close;
use crate::shell::token::random;
use crate::wire::websocket::{Decoder, Frame, Item, parts, write};
use bytes::{Bytes, BytesMut};
use reqwest::Upgraded;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// What stands for the code of a close that gives none (RFC 6455).
const NO_CODE: u16 = 1005;
/// How long the other end may take to close, too.
const CLOSING: Duration = Duration::from_secs(1);

/// What an agent says first over a socket.
#[derive(Debug)]
pub enum Heard {
    Answer { text: Bytes, is_cut: bool },
    Close(Close),
}

/// A socket at work.
#[derive(Debug)]
pub struct Socket {
    io: Upgraded,
    decoder: Decoder,
    items: VecDeque<Item>,
}

impl Socket {
    /// Nothing was said yet. Longer messages than `limit` are skipped.
    pub fn new(io: Upgraded, limit: usize) -> Self {
        Self { io, decoder: Decoder::new(limit), items: VecDeque::new() }
    }

    /// Says a message.
    pub async fn say(&mut self, message: &str) -> io::Result<()> {
        let mut out = BytesMut::new();
        for part in parts(message.as_bytes()) {
            write(part, random()?, &mut out);
        }
        self.io.write_all(&out).await
    }

    /// The next that the agent sends.
    pub async fn hear(&mut self) -> io::Result<Item> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(item);
            }
            let mut piece = BytesMut::new();
            if self.io.read_buf(&mut piece).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut items = Vec::new();
            let read = self.decoder.push(piece.freeze(), &mut items);
            self.items.extend(items);
            read.map_err(|wrong| io::Error::other(wrong.to_string()))?;
        }
    }

    /// Says `initialize` and hears what answers it; notifications may come before.
    pub async fn answer_to_initialize(&mut self, id: &str) -> io::Result<Heard> {
        self.say(&initialize(id)).await?;
        loop {
            match self.hear().await? {
                Item::Text(text) => match message::read(&text) {
                    Ok(Message::Notification { .. } | Message::Request { .. }) => {}
                    _ => return Ok(Heard::Answer { text, is_cut: false }),
                },
                Item::TooLarge => {
                    return Ok(Heard::Answer { text: Bytes::new(), is_cut: true });
                }
                Item::Close(code, reason) => {
                    return Ok(Heard::Close(Close { code: code.unwrap_or(NO_CODE), reason }));
                }
                _ => {}
            }
        }
    }

    /// Ends it as the protocol has it.
    pub async fn close(mut self) -> io::Result<()> {
        let mut out = BytesMut::new();
        write(Frame::Close(Close::NORMAL), random()?, &mut out);
        self.io.write_all(&out).await?;
        let closed = async { while !matches!(self.hear().await, Err(_) | Ok(Item::Close(..))) {} };
        // One that does not close finds the connection gone.
        let _ = timeout(CLOSING, closed).await;
        self.io.shutdown().await
    }
}
