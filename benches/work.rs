//! The work that is measured: how each kind of message is made, and what is done with it.
#![allow(dead_code, reason = "not everyone measures everything")]

use acp_tether::core::message;
use acp_tether::core::{
    Core, Effect, Event, Millis, Outcome, PostId, Response, Settings, StreamEvent, StreamId,
};
use acp_tether::wire::{lines, sse, websocket};
use bytes::Bytes;

/// Longer than anything here.
const LIMIT: usize = 64 << 20;
/// What the network delivers at once, and what standard input does.
pub const FROM_NETWORK: usize = 16 << 10;
pub const FROM_EDITOR: usize = 64 << 10;

/// An update of exactly so many bytes.
pub fn update(bytes: usize) -> Bytes {
    let (head, tail) = (
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""#,
        r#""}}}}"#,
    );
    let text = "x".repeat(bytes - head.len() - tail.len());
    format!("{head}{text}{tail}").into()
}

/// A megabyte of lines of 200 bytes, in pieces.
pub fn editor_input() -> Vec<Bytes> {
    let line = [&update(200)[..], b"\n"].concat();
    pieces(&line.repeat(5_000), FROM_EDITOR)
}

/// A megabyte of events of 200 bytes, in pieces.
pub fn many_events() -> Vec<Bytes> {
    pieces(&event(200).repeat(5_000), FROM_NETWORK)
}

/// One event of 8 MiB, in pieces.
pub fn large_event() -> Vec<Bytes> {
    pieces(&event(8 << 20), FROM_NETWORK)
}

/// A megabyte of text frames of 200 bytes, in pieces.
pub fn many_frames() -> Vec<Bytes> {
    let frame = [&[0x81, 126, 0, 200], &update(200)[..]].concat();
    pieces(&frame.repeat(5_000), FROM_NETWORK)
}

fn event(bytes: usize) -> Vec<u8> {
    [b"data: ", &update(bytes)[..], b"\n\n"].concat()
}

fn pieces(bytes: &[u8], size: usize) -> Vec<Bytes> {
    bytes.chunks(size).map(Bytes::copy_from_slice).collect()
}

/// Whether the bytes are a message.
pub fn read(message: &[u8]) -> bool {
    message::read(message).is_ok()
}

/// How many lines there are.
pub fn cut_lines(pieces: Vec<Bytes>) -> usize {
    let (mut reader, mut out, mut count) = (lines::Lines::new(LIMIT), Vec::new(), 0);
    for piece in pieces {
        reader.push(piece, &mut out);
        count += out.drain(..).count();
    }
    count
}

/// How many events there are.
pub fn cut_events(pieces: Vec<Bytes>) -> usize {
    let (mut decoder, mut out, mut count) = (sse::Decoder::new(LIMIT), Vec::new(), 0);
    for piece in pieces {
        decoder.push(piece, &mut out);
        count += out.drain(..).count();
    }
    count
}

/// How many messages there are.
pub fn cut_frames(pieces: Vec<Bytes>) -> usize {
    let (mut reader, mut out, mut count) = (websocket::Decoder::new(LIMIT), Vec::new(), 0);
    for piece in pieces {
        reader.push(piece, &mut out).expect("these are frames");
        count += out.drain(..).count();
    }
    count
}

/// A core with one session whose streams are open, and the event that comes next.
pub struct Link {
    core: Core,
    effects: Vec<Effect>,
    streams: Vec<StreamId>,
    posts: Vec<PostId>,
    next: Option<Event>,
}

impl Link {
    fn up() -> Self {
        let mut link = Self {
            core: Core::new(Settings::default()),
            // Room for what is to come, as the shell has it after its first steps.
            effects: Vec::with_capacity(8),
            streams: Vec::new(),
            posts: Vec::new(),
            next: None,
        };
        link.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#;
        link.posted(Response {
            status: 200,
            content_type: "application/json".into(),
            connection_id: Some("c".into()),
            body: answer.into(),
            ..Response::default()
        });
        link.streamed(StreamEvent::Opened { event_epoch: None });
        link.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
        link.posted(Response { status: 202, ..Response::default() });
        link.streamed(said(r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#));
        link.streamed(StreamEvent::Opened { event_epoch: None });
        link
    }

    /// Before an update of 200 bytes.
    pub fn before_update() -> Self {
        let mut link = Self::prompted();
        // The first of a turn costs what it costs once.
        link.streamed(StreamEvent::Message { data: Some(update(200)), id: None });
        link.before(StreamEvent::Message { data: Some(update(200)), id: None })
    }

    /// Before a prompt.
    pub fn before_prompt() -> Self {
        let prompt = r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"}]}}"#;
        Self { next: Some(Event::Line(prompt.into())), ..Self::up() }
    }

    /// Before the answer that ends a turn.
    pub fn before_answer() -> Self {
        let answer = said(r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#);
        Self::prompted().before(answer)
    }

    /// Takes the event. What it led to is the result's to drop.
    pub fn step(mut self) -> Self {
        let event = self.next.take().expect("an event comes next");
        self.core.step(Millis(0), event, &mut self.effects);
        self
    }

    /// How often the event led to a line for the editor or a POST.
    pub fn passed_on(&self) -> usize {
        let passes = |effect: &&Effect| matches!(effect, Effect::Line(_) | Effect::Post(_));
        self.effects.iter().filter(passes).count()
    }

    fn prompted() -> Self {
        let mut link = Self::before_prompt().step();
        link.note();
        link.posted(Response { status: 202, ..Response::default() });
        link
    }

    fn before(mut self, event: StreamEvent) -> Self {
        let stream = self.streams.last().expect("a stream was opened");
        self.next = Some(Event::Stream(stream.clone(), event));
        self
    }

    fn line(&mut self, line: &'static str) {
        self.take(Event::Line(line.into()));
    }

    /// The last POST ends.
    fn posted(&mut self, response: Response) {
        let post = *self.posts.last().expect("something was posted");
        self.take(Event::Posted(post, Outcome::Response(response)));
    }

    /// The last stream delivers.
    fn streamed(&mut self, event: StreamEvent) {
        let stream = self.streams.last().expect("a stream was opened").clone();
        self.take(Event::Stream(stream, event));
    }

    fn take(&mut self, event: Event) {
        self.core.step(Millis(0), event, &mut self.effects);
        self.note();
    }

    fn note(&mut self) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Post(post) => self.posts.push(post.id),
                Effect::Open(open) => self.streams.push(open.stream),
                _ => {}
            }
        }
    }
}

fn said(message: &'static str) -> StreamEvent {
    StreamEvent::Message { data: Some(message.into()), id: None }
}
