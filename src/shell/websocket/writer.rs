//! The half of a socket that is written to, and what waits for it.

use super::super::token::random;
use crate::core::socket::Close;
use crate::core::{Event, Outcome, PostId, Response};
use crate::lock::lock;
use crate::wire::websocket::{Frame, parts, write};
use bytes::{Bytes, BytesMut};
use reqwest::Upgraded;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// How long our close may take to be written.
const CLOSE: Duration = Duration::from_secs(1);

/// What goes out on a socket, in its order.
#[derive(Debug)]
pub(super) enum Outgoing {
    Message(PostId, Bytes),
    Close,
}

/// What goes out as soon as it can, between the parts of a long message too. A ping that waits stands
/// for all, and the pong to the latest ping for those before it, as RFC 6455 has it.
#[derive(Debug, Default)]
pub(super) struct Controls {
    due: Mutex<Due>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Due {
    ping: bool,
    pong: Option<Bytes>,
}

#[derive(Debug)]
enum Control {
    Ping,
    Pong(Bytes),
}

impl Controls {
    /// Asks whether the server is there.
    pub(super) fn ping(&self) {
        self.with(|due| due.ping = true);
        self.filled.notify_one();
    }

    /// Answers a ping of the server.
    pub(super) fn pong(&self, payload: Bytes) {
        self.with(|due| due.pong = Some(payload));
        self.filled.notify_one();
    }

    fn with<T>(&self, what: impl FnOnce(&mut Due) -> T) -> T {
        what(&mut lock(&self.due))
    }

    fn take(&self) -> Option<Control> {
        self.with(|due| match due.pong.take() {
            Some(payload) => Some(Control::Pong(payload)),
            None => std::mem::take(&mut due.ping).then_some(Control::Ping),
        })
    }

    async fn next(&self) -> Control {
        loop {
            if let Some(control) = self.take() {
                return control;
            }
            self.filled.notified().await;
        }
    }
}

/// What waits to be written.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) messages: mpsc::UnboundedReceiver<Outgoing>,
    pub(super) controls: Arc<Controls>,
}

impl Queue {
    /// The socket has ended: what was not begun was not sent.
    pub(super) fn give_back(&mut self, ends: &mpsc::UnboundedSender<Event>) {
        self.messages.close();
        while let Ok(outgoing) = self.messages.try_recv() {
            if let Outgoing::Message(id, _) = outgoing {
                let _ = ends.send(Event::Posted(id, unsent()));
            }
        }
    }
}

/// What becomes of a message for which there is no socket any more.
pub(super) fn unsent() -> Outcome {
    Outcome::Unsent("the socket is closed".to_owned())
}

/// What a failed write means for the message.
pub(super) fn broken(error: io::Error) -> Outcome {
    Outcome::Broken(format!("the socket broke: {error}"))
}

/// The half of a socket that is written to.
pub(super) struct Writer {
    socket: WriteHalf<Upgraded>,
    buffer: BytesMut,
    /// A frame is under way: no other may begin.
    is_writing: bool,
}

impl Writer {
    /// One for a new socket.
    pub(super) fn new(socket: WriteHalf<Upgraded>) -> Self {
        Self { socket, buffer: BytesMut::new(), is_writing: false }
    }

    /// Writes what is to go out, until that is the end.
    pub(super) async fn run(
        &mut self,
        queue: &mut Queue,
        ends: &mpsc::UnboundedSender<Event>,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                biased;
                control = queue.controls.next() => self.control(&control).await?,
                outgoing = queue.messages.recv() => match outgoing {
                    Some(Outgoing::Message(id, body)) => {
                        let go_on = || drop(ends.send(Event::Writing(id)));
                        self.message(&body, &queue.controls, go_on).await?;
                        let response = Response { status: 202, ..Response::default() };
                        let _ = ends.send(Event::Posted(id, Outcome::Response(response)));
                    }
                    Some(Outgoing::Close) | None => return self.frame(Frame::Close(Close::NORMAL)).await,
                },
            }
        }
    }

    /// Writes a message; between its parts tells that it goes on, and writes whatever else is to go out
    /// at once.
    pub(super) async fn message(
        &mut self,
        text: &[u8],
        controls: &Controls,
        goes_on: impl Fn(),
    ) -> io::Result<()> {
        let mut parts = parts(text).peekable();
        while let Some(part) = parts.next() {
            self.frame(part).await?;
            if parts.peek().is_some() {
                goes_on();
                while let Some(control) = controls.take() {
                    self.control(&control).await?;
                }
            }
        }
        Ok(())
    }

    async fn control(&mut self, control: &Control) -> io::Result<()> {
        match control {
            Control::Ping => self.frame(Frame::Ping).await,
            Control::Pong(payload) => self.frame(Frame::Pong(payload)).await,
        }
    }

    /// Writes a frame.
    pub(super) async fn frame(&mut self, frame: Frame<'_>) -> io::Result<()> {
        self.buffer.clear();
        write(frame, random()?, &mut self.buffer);
        self.is_writing = true;
        self.socket.write_all(&self.buffer).await?;
        self.socket.flush().await?;
        self.is_writing = false;
        Ok(())
    }

    /// Says why the socket ends, if it can still be said.
    pub(super) async fn close(&mut self, code: u16) {
        if !self.is_writing {
            let _ = timeout(CLOSE, self.frame(Frame::Close(code))).await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn w3_of_the_pongs_that_wait_the_latest_goes_and_a_ping_of_ours_too() {
        let controls = Controls::default();
        controls.pong(Bytes::from_static(b"first"));
        controls.ping();
        controls.pong(Bytes::from_static(b"latest"));
        assert!(matches!(controls.next().await, Control::Pong(payload) if payload == "latest"));
        assert!(matches!(controls.next().await, Control::Ping));
        assert!(controls.take().is_none());
    }

    #[test]
    fn l5_what_was_not_begun_when_the_socket_ended_was_not_sent() {
        let (sender, messages) = mpsc::unbounded_channel();
        let (ends, mut told) = mpsc::unbounded_channel();
        let mut queue = Queue { messages, controls: Arc::default() };
        sender.send(Outgoing::Message(PostId(7), Bytes::new())).unwrap();
        queue.give_back(&ends);
        assert!(matches!(told.try_recv(), Ok(Event::Posted(PostId(7), Outcome::Unsent(_)))));
        assert!(sender.send(Outgoing::Close).is_err());
    }
}
