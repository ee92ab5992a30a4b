//! Does over one socket what the core asks for (W). Decides nothing.
//!
//! One task has the socket, from the upgrade to its end. Only what it reads tells the core that the
//! socket has ended: a server that closes may have said why before our write failed.

use super::http::{Batch, Link};
use super::token::random;
use crate::config::Remote;
use crate::core::message::{self, Message};
use crate::core::socket::Close;
use crate::core::{
    End, Event, Generation, Open, Outcome, Post, PostId, Response, StreamEvent, StreamId,
};
use crate::wire::websocket::{Decoder, Frame, Item, parts, write};
use bytes::{Bytes, BytesMut};
use reqwest::Upgraded;
use std::collections::BTreeSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// Pings and pongs that may wait to be written.
const CONTROLS: usize = 16;
/// Messages that may come before the answer to `initialize`.
const BEFORE_ANSWER: usize = 1_000;
/// How long after a failed write, or after our own close, the server may still say something.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The codes of RFC 6455 that we close with.
const NORMAL: u16 = 1000;
const PROTOCOL_ERROR: u16 = 1002;

/// What is under way with the remote.
#[derive(Debug)]
pub(super) struct WebSocket {
    link: Arc<Link>,
    socket: Option<Socket>,
    /// The messages that wait to be written, and the one that is.
    posts: BTreeSet<PostId>,
    ends: mpsc::UnboundedSender<Event>,
    batches: mpsc::Sender<Batch>,
}

/// One socket, from the request for it on.
#[derive(Debug)]
struct Socket {
    /// The POST of `initialize` that asked for it.
    opener: PostId,
    /// Which stream it is, once the core says so.
    generation: Option<Generation>,
    /// Takes that. Where it is dropped, nobody needs the socket.
    opened: Option<oneshot::Sender<StreamId>>,
    messages: mpsc::UnboundedSender<Outgoing>,
    controls: mpsc::Sender<Control>,
    task: AbortHandle,
}

/// What goes out on a socket, in its order.
#[derive(Debug)]
enum Outgoing {
    Message(PostId, Bytes),
    Close,
}

/// What goes out as soon as it can, between the parts of a long message too.
#[derive(Debug)]
enum Control {
    Ping,
    Pong(Bytes),
}

impl WebSocket {
    /// Nothing is under way yet. `ends` gets [`Event::Posted`] and [`Event::Deleted`], `batches` what
    /// the socket delivers.
    pub(super) fn new(
        remote: Remote,
        ends: mpsc::UnboundedSender<Event>,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        let link = Arc::new(Link::new(remote));
        Self { link, socket: None, posts: BTreeSet::new(), ends, batches }
    }

    /// Sends a message; its end arrives. Without a connection it is an `initialize`, for a new socket.
    pub(super) fn post(&mut self, post: Post) {
        self.posts.insert(post.id);
        if post.connection.is_none() {
            return self.ask_for_socket(post);
        }
        let id = post.id;
        let sent = self.send(Outgoing::Message(id, post.body));
        if !sent {
            let reason = "the socket is closed".to_owned();
            // Nobody takes it any more: the process is ending.
            let _ = self.ends.send(Event::Posted(id, Outcome::Unsent(reason)));
        }
    }

    fn ask_for_socket(&mut self, post: Post) {
        self.drop_socket();
        let (messages, outgoing) = mpsc::unbounded_channel();
        let (controls, control) = mpsc::channel(CONTROLS);
        let (opened, stream) = oneshot::channel();
        let opener = post.id;
        let opening = Opening {
            link: Arc::clone(&self.link),
            ends: self.ends.clone(),
            batches: self.batches.clone(),
            controls: controls.clone(),
        };
        let queue = Queue { messages: outgoing, controls: control };
        let task = tokio::spawn(opening.live(post, stream, queue)).abort_handle();
        let (generation, opened) = (None, Some(opened));
        self.socket = Some(Socket { opener, generation, opened, messages, controls, task });
    }

    fn send(&self, outgoing: Outgoing) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.messages.send(outgoing).is_ok())
    }

    /// Drops the end of a message; where that is `initialize`, the socket with it. What is being
    /// written is written on: half a message would end the socket.
    pub(super) fn abandon(&mut self, id: PostId) {
        self.posts.remove(&id);
        if self.socket.as_ref().is_some_and(|it| it.opener == id && it.opened.is_some()) {
            self.drop_socket();
        }
    }

    /// What the socket delivers arrives from here on.
    pub(super) fn open(&mut self, open: Open) {
        if let Some(socket) = &mut self.socket
            && let Some(opened) = socket.opened.take()
        {
            socket.generation = Some(open.stream.generation);
            // It has ended already, which it tells of.
            let _ = opened.send(open.stream);
        }
    }

    /// Drops the socket where it stands.
    pub(super) fn close(&mut self, stream: &StreamId) {
        if self.is_of(stream) {
            self.drop_socket();
        }
    }

    /// Asks the server for a sign of life.
    pub(super) fn ping(&mut self, stream: &StreamId) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.is_of(stream)) {
            // One that finds no room is not missed: those before it ask the same.
            let _ = socket.controls.try_send(Control::Ping);
        }
    }

    /// Closes the socket as the protocol has it; the end of that arrives.
    pub(super) fn delete(&mut self) {
        let is_open = self.socket.as_ref().is_some_and(|socket| socket.generation.is_some());
        if is_open && self.send(Outgoing::Close) {
            return;
        }
        self.socket = None;
        let _ = self.ends.send(deleted());
    }

    /// Whether this is awaited: what was dropped may have been on its way here already.
    pub(super) fn is_awaited(&mut self, event: &Event) -> bool {
        match event {
            Event::Posted(id, _) => self.posts.remove(id),
            Event::Stream(stream, StreamEvent::Ended(_)) => {
                let is_ours = self.is_of(stream);
                if is_ours {
                    self.socket = None;
                }
                is_ours
            }
            Event::Stream(stream, _) => self.is_of(stream),
            _ => true,
        }
    }

    fn is_of(&self, stream: &StreamId) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.generation == Some(stream.generation))
    }

    fn drop_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.task.abort();
        }
    }
}

fn deleted() -> Event {
    Event::Deleted(Outcome::Response(Response { status: 204, ..Response::default() }))
}

/// What the task of a socket needs.
#[derive(Debug)]
struct Opening {
    link: Arc<Link>,
    ends: mpsc::UnboundedSender<Event>,
    batches: mpsc::Sender<Batch>,
    /// Where the answers to the server's pings go.
    controls: mpsc::Sender<Control>,
}

impl Opening {
    /// The life of a socket.
    async fn live(self, post: Post, stream: oneshot::Receiver<StreamId>, mut queue: Queue) {
        let id = post.id;
        let (ends, batches) = (self.ends.clone(), self.batches.clone());
        let (reader, mut writer, response) = match self.initialize(post).await {
            Ok(opened) => opened,
            Err(outcome) => return drop(ends.send(Event::Posted(id, outcome))),
        };
        // Where nobody takes events any more, the process is ending. So everywhere below.
        let _ = ends.send(Event::Posted(id, Outcome::Response(response)));
        let Ok(stream) = stream.await else { return writer.close(NORMAL).await };
        let mut reading = pin!(reader.run(&stream, &batches));
        let (end, code) = tokio::select! {
            end = &mut reading => end,
            written = writer.run(&mut queue, &ends) => {
                let last = timeout(LAST_WORDS, &mut reading).await;
                if written.is_ok() {
                    // We closed it.
                    return drop(ends.send(deleted()));
                }
                last.unwrap_or((End::Broken("it takes no messages any more".to_owned()), None))
            }
        };
        if let Some(code) = code {
            writer.close(code).await;
        }
        let _ = batches
            .send(Batch { stream: stream.clone(), events: vec![StreamEvent::Ended(end)] })
            .await;
    }

    /// Asks for the socket, and on it for the connection.
    async fn initialize(self, post: Post) -> Result<(Reader, Writer, Response), Outcome> {
        let (socket, connection_id) = match self.link.socket(post.renew_credential).await? {
            Ok(opened) => opened,
            Err(response) => return Err(Outcome::Response(response)),
        };
        let (read, write) = split(socket);
        let mut writer = Writer { socket: write, buffer: BytesMut::new(), is_writing: false };
        let mut reader = Reader {
            socket: read,
            decoder: Decoder::new(self.link.limit()),
            controls: self.controls,
            items: Vec::new(),
        };
        writer.message(&post.body, None).await.map_err(broken)?;
        let (body, truncated) = reader.answer(&mut writer).await?;
        let response = Response {
            status: 101,
            content_type: "application/json".to_owned(),
            connection_id,
            body,
            truncated,
            ..Response::default()
        };
        Ok((reader, writer, response))
    }
}

fn broken(error: io::Error) -> Outcome {
    Outcome::Broken(format!("the socket broke: {error}"))
}

/// The half of a socket that is read.
struct Reader {
    socket: ReadHalf<Upgraded>,
    decoder: Decoder,
    controls: mpsc::Sender<Control>,
    /// What was read and not taken.
    items: Vec<Item>,
}

impl Reader {
    /// Tells what the server sends until the socket ends: how, and the code to close with.
    async fn run(mut self, stream: &StreamId, batches: &mpsc::Sender<Batch>) -> (End, Option<u16>) {
        let (mut end, mut was_read) = (None, false);
        loop {
            let (mut events, closed) = self.events();
            if let Some(end) = closed {
                tell(stream, events, batches).await;
                return (end, Some(NORMAL));
            }
            if let Some(end) = end {
                tell(stream, events, batches).await;
                return end;
            }
            if events.is_empty() && was_read {
                // Some of a long message came, which shows that the server lives.
                events.push(StreamEvent::Comment);
            }
            tell(stream, events, batches).await;
            end = self.read().await.err();
            was_read = true;
        }
    }

    /// Reads a piece.
    async fn read(&mut self) -> Result<(), (End, Option<u16>)> {
        let mut piece = BytesMut::with_capacity(CHUNK);
        let broken = |reason| (End::Broken(reason), None);
        match self.socket.read_buf(&mut piece).await {
            Ok(0) => Err(broken("the connection closed, which may be a cut".to_owned())),
            Ok(_) => self.decoder.push(piece.freeze(), &mut self.items).map_err(|wrong| {
                let reason = format!("the server breaks the rules of WebSocket: {wrong}");
                (End::Broken(reason), Some(PROTOCOL_ERROR))
            }),
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
                    // One that finds no room is not missed: the server has not read those before it.
                    let _ = self.controls.try_send(Control::Pong(payload));
                    StreamEvent::Comment
                }
                Item::Close(code, reason) => return (events, Some(closed(code, reason))),
            });
        }
        (events, None)
    }

    /// The first answer, and whether it is too long. What comes before it stays to be taken.
    async fn answer(&mut self, writer: &mut Writer) -> Result<(Bytes, bool), Outcome> {
        let mut seen = 0;
        loop {
            while let Some(item) = self.items.get(seen) {
                match item {
                    Item::Text(text) if is_answer(text) => {
                        let Item::Text(text) = self.items.remove(seen) else { break };
                        return Ok((text, false));
                    }
                    Item::TooLarge => return Ok((Bytes::new(), true)),
                    Item::Ping(payload) => {
                        writer.frame(Frame::Pong(payload)).await.map_err(broken)?;
                        self.items.remove(seen);
                    }
                    Item::Close(code, reason) => {
                        return Err(lost(closed(*code, reason.clone())));
                    }
                    _ => seen += 1,
                }
            }
            if seen > BEFORE_ANSWER {
                let reason = "the remote agent sends messages, but no answer to initialize";
                return Err(Outcome::Broken(reason.to_owned()));
            }
            self.read().await.map_err(|(end, _)| lost(end))?;
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

fn closed(code: Option<u16>, reason: String) -> End {
    match code {
        None | Some(NORMAL) => End::Clean,
        Some(code) => {
            let reason = reason.chars().filter(|letter| !letter.is_control()).collect();
            End::Closed(Close { code, reason })
        }
    }
}

/// What waits to be written.
#[derive(Debug)]
struct Queue {
    messages: mpsc::UnboundedReceiver<Outgoing>,
    controls: mpsc::Receiver<Control>,
}

/// The half of a socket that is written to.
struct Writer {
    socket: WriteHalf<Upgraded>,
    buffer: BytesMut,
    /// A frame is under way: no other may begin.
    is_writing: bool,
}

impl Writer {
    /// Writes what is to go out, until that is the end.
    async fn run(
        &mut self,
        queue: &mut Queue,
        ends: &mpsc::UnboundedSender<Event>,
    ) -> io::Result<()> {
        loop {
            tokio::select! {
                biased;
                Some(control) = queue.controls.recv() => self.control(&control).await?,
                message = queue.messages.recv() => match message {
                    Some(Outgoing::Message(id, body)) => {
                        self.message(&body, Some(&mut queue.controls)).await?;
                        let response = Response { status: 202, ..Response::default() };
                        let _ = ends.send(Event::Posted(id, Outcome::Response(response)));
                    }
                    Some(Outgoing::Close) | None => return self.frame(Frame::Close(NORMAL)).await,
                },
            }
        }
    }

    /// Writes a message; between its parts whatever else is to go out at once.
    async fn message(
        &mut self,
        text: &[u8],
        mut controls: Option<&mut mpsc::Receiver<Control>>,
    ) -> io::Result<()> {
        for part in parts(text) {
            while let Some(controls) = &mut controls
                && let Ok(control) = controls.try_recv()
            {
                self.control(&control).await?;
            }
            self.frame(part).await?;
        }
        Ok(())
    }

    async fn control(&mut self, control: &Control) -> io::Result<()> {
        match control {
            Control::Ping => self.frame(Frame::Ping).await,
            Control::Pong(payload) => self.frame(Frame::Pong(payload)).await,
        }
    }

    async fn frame(&mut self, frame: Frame<'_>) -> io::Result<()> {
        self.buffer.clear();
        write(frame, random()?, &mut self.buffer);
        self.is_writing = true;
        self.socket.write_all(&self.buffer).await?;
        self.socket.flush().await?;
        self.is_writing = false;
        Ok(())
    }

    /// Says why the socket ends, if it can still be said.
    async fn close(&mut self, code: u16) {
        if !self.is_writing {
            let _ = timeout(LAST_WORDS, self.frame(Frame::Close(code))).await;
        }
    }
}
