//! The half of a socket that is read.

use super::super::http::Batch;
use super::writer::{Controls, Writer, broken};
use crate::core::message::{self, Message};
use crate::core::socket::Close;
use crate::core::{End, Outcome, StreamEvent, StreamId};
use crate::secrets::Secrets;
use crate::wire::websocket::{Decoder, Frame, Item};
use bytes::{Bytes, BytesMut};
use reqwest::Upgraded;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::sync::mpsc;

/// How much is read at once.
const BLOCK: usize = 64 * 1024;
/// With less room left in a block, a new one is begun.
const LEAST_ROOM: usize = 4 * 1024;
/// Messages that may come before the answer to `initialize`.
const BEFORE_ANSWER: usize = 1_000;
/// How we close where the server breaks the protocol, by RFC 6455.
const PROTOCOL_ERROR: u16 = 1002;

/// How a socket ended, and the code to close with.
pub(super) type Ended = (End, Option<u16>);

/// The half of a socket that is read.
pub(super) struct Reader {
    socket: ReadHalf<Upgraded>,
    block: BytesMut,
    limit: usize,
    decoder: Decoder,
    /// Where the answers to the server's pings go.
    controls: Arc<Controls>,
    /// What was read and not taken.
    items: Vec<Item>,
    /// The socket ended behind that.
    ended: Option<Ended>,
    /// What is not shown of the words with which the server closes (X1).
    secrets: Secrets,
}

impl Reader {
    /// One for a new socket. `limit` is the size of the longest message, in bytes.
    pub(super) fn new(
        socket: ReadHalf<Upgraded>,
        limit: usize,
        controls: Arc<Controls>,
        secrets: Secrets,
    ) -> Self {
        let (block, decoder, items) = (BytesMut::new(), Decoder::new(limit), Vec::new());
        Self { socket, block, limit, decoder, controls, items, ended: None, secrets }
    }

    /// Tells what the server sends until the socket ends.
    pub(super) async fn run(mut self, stream: &StreamId, batches: &mpsc::Sender<Batch>) -> Ended {
        let mut was_read = false;
        loop {
            let (mut events, closed) = self.events();
            if let Some(end) = closed {
                tell(stream, events, batches).await;
                return (end, Some(Close::NORMAL));
            }
            if let Some(ended) = self.ended {
                tell(stream, events, batches).await;
                return ended;
            }
            if events.is_empty() && was_read {
                events.push(StreamEvent::Progress);
            }
            tell(stream, events, batches).await;
            self.ended = self.read().await.err();
            was_read = true;
        }
    }

    /// Reads a piece.
    async fn read(&mut self) -> Result<(), Ended> {
        if self.block.capacity() < LEAST_ROOM {
            // Takes the old block again where nothing refers to it any more.
            self.block.reserve(BLOCK);
        }
        let broken = |reason| (End::Broken(reason), None);
        match self.socket.read_buf(&mut self.block).await {
            Ok(0) => Err(broken("the connection closed, which may be a cut".to_owned())),
            Ok(_) => {
                let piece = self.block.split().freeze();
                self.decoder.push(piece, &mut self.items).map_err(|wrong| {
                    let reason = format!("the server breaks the rules of WebSocket: {wrong}");
                    (End::Broken(reason), Some(PROTOCOL_ERROR))
                })
            }
            Err(error) => Err(broken(error.to_string())),
        }
    }

    /// What the items that were read mean, and the end if the server closes with them.
    fn events(&mut self) -> (Vec<StreamEvent>, Option<End>) {
        let mut events = Vec::new();
        for item in self.items.drain(..) {
            events.push(match item {
                Item::Text(data) => StreamEvent::Message { data: Some(data), id: None },
                Item::TooLarge => StreamEvent::TooLarge,
                Item::Binary | Item::Pong => StreamEvent::Comment,
                Item::Ping(payload) => {
                    self.controls.pong(payload);
                    StreamEvent::Comment
                }
                Item::Close(code, reason) => {
                    return (events, Some(End::closed(code, self.secrets.hide(reason))));
                }
            });
        }
        (events, None)
    }

    /// The first answer, and whether it is too long. What comes before it stays to be taken, and so does what
    /// was read behind it.
    pub(super) async fn answer(&mut self, writer: &mut Writer) -> Result<(Bytes, bool), Outcome> {
        let (mut before, mut bytes) = (Vec::new(), 0);
        loop {
            let mut items = std::mem::take(&mut self.items).into_iter();
            while let Some(item) = items.next() {
                match item {
                    Item::Text(text) if is_answer(&text) => {
                        before.extend(items);
                        self.items = before;
                        return Ok((text, false));
                    }
                    Item::TooLarge => return Ok((Bytes::new(), true)),
                    Item::Ping(payload) => {
                        writer.frame(Frame::Pong(&payload)).await.map_err(broken)?;
                    }
                    Item::Close(code, reason) => {
                        writer.close(Close::NORMAL).await;
                        return Err(lost(End::closed(code, self.secrets.hide(reason))));
                    }
                    Item::Text(text) => {
                        bytes += text.len();
                        before.push(Item::Text(text));
                    }
                    Item::Binary | Item::Pong => {}
                }
            }
            if before.len() > BEFORE_ANSWER || bytes > self.limit {
                let reason = "the remote agent sends messages, but no answer to initialize";
                return Err(Outcome::Broken(reason.to_owned()));
            }
            if let Some((end, code)) = self.ended.take() {
                if let Some(code) = code {
                    writer.close(code).await;
                }
                return Err(lost(end));
            }
            self.ended = self.read().await.err();
        }
    }
}

/// Waits where there is no room, so that the remote waits too (P6).
async fn tell(stream: &StreamId, events: Vec<StreamEvent>, to: &mpsc::Sender<Batch>) {
    if !events.is_empty() {
        let _ = to.send(Batch { stream: stream.clone(), events }).await;
    }
}

fn is_answer(text: &[u8]) -> bool {
    matches!(message::read(text), Ok(Message::Answer { .. }))
}

/// What an end means for `initialize`.
fn lost(end: End) -> Outcome {
    match end {
        End::Clean => Outcome::Broken("the remote agent closed the socket".to_owned()),
        End::Closed(close) => Outcome::Closed(close),
        End::Broken(reason) => Outcome::Broken(reason),
    }
}
