//! The pure core: what the sidecar decides.
//!
//! [`Core`] is a state machine without I/O, clock, chance, threads or async. The shell takes an
//! [`Event`] from the world, calls [`Core::step`] with the time, and performs the [`Effect`]s that
//! come out, in order. When nothing happens until [`Core::deadline`], it steps with
//! [`Event::Timer`].
//!
//! Everything that comes from the remote says where it came from: a POST by its [`PostId`], a
//! stream by its [`StreamId`], which holds the epoch and the generation. What belongs to a
//! replaced stream or a lost connection is refused once, at the door of [`Core::step`], and so
//! acts nowhere (R2, I7).

use bytes::Bytes;
use std::sync::Arc;

pub mod limits;
pub mod redirect;

/// The state machine: see the module's page.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
}

impl Core {
    /// A core that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Takes one event; appends what is to be done to `out`.
    pub fn step(&mut self, _now: Millis, _event: Event, _out: &mut Vec<Effect>) {
        let _ = &self.settings;
    }

    /// When [`Event::Timer`] is due, if nothing happens before.
    pub fn deadline(&self) -> Option<Millis> {
        None
    }
}

/// Milliseconds since a start of the caller's choice. Never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// The count of connections since the process started; the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The count of times that a stream was asked for, over all streams of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// Names one POST for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostId(pub u64);

/// An ACP session id, decoded from its JSON string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub Arc<str>);

/// One opening of one stream: what it is the stream of, and which opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamId {
    /// The session whose stream it is; `None` for the connection's own.
    pub session: Option<SessionId>,
    /// The connection it belongs to.
    pub epoch: Epoch,
    /// Which opening it is.
    pub generation: Generation,
}

/// One connection, as the headers of every request after `initialize` name it (L4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The value of `Acp-Connection-Id`, as the remote gave it.
    pub id: Bytes,
    /// The value of `Acp-Protocol-Version`: the negotiated version as the remote wrote it, if it
    /// named one.
    pub version: Option<Bytes>,
}

/// What the world tells the core.
#[derive(Clone, Debug)]
pub enum Event {
    /// A line of the editor, without its LF and the CR before it. Never blank.
    Line(Bytes),
    /// The editor wrote a line over the size limit; it was skipped (S4).
    LineTooLong,
    /// The editor is gone: end of input, a signal, a closed output, the death of our parent (S7).
    EditorGone,
    /// A POST has ended.
    Posted(PostId, Outcome),
    /// Something happened on a stream.
    Stream(StreamId, StreamEvent),
    /// The DELETE has ended, however it ended.
    Deleted(Outcome),
    /// The time of [`Core::deadline`] has come.
    Timer,
}

/// What became of a request that we sent over HTTP.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer came, whole.
    Response(Response),
    /// No connection could be made: nothing left. With the reason, for people.
    Unsent(String),
    /// It left, or may have; then the network broke. With the reason, for people.
    Broken(String),
    /// The remote redirects to where we do not follow (L8). With what to do, for people.
    Redirected {
        /// The status of the redirect that was not followed.
        status: u16,
        /// Why, and what to configure.
        reason: String,
    },
}

/// The head of an HTTP response, and as much of its body as decides something: all of a JSON body
/// of a 2xx, up to the size limit; the first 8 KiB of any other status; nothing of the rest.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type` as it came, empty where there was none.
    pub content_type: String,
    /// `Acp-Connection-Id`, if there.
    pub connection_id: Option<Bytes>,
    /// `Retry-After`, as a time from now, if there.
    pub retry_after: Option<Millis>,
    /// The body, or the part of it that was read.
    pub body: Bytes,
    /// The body was longer than what was read of it.
    pub truncated: bool,
}

/// What happens on one stream. After `Refused`, `Failed` or `Ended` nothing more does.
#[derive(Clone, Debug)]
pub enum StreamEvent {
    /// The remote answered 200 and `text/event-stream`.
    Opened {
        /// The value of a header whose name ends in `-Event-Epoch` (R5).
        event_epoch: Option<Bytes>,
    },
    /// The remote answered something else.
    Refused(Response),
    /// The GET failed before an answer: no connection, a break, a redirect not followed.
    Failed(Outcome),
    /// An event of the stream, by the WHATWG rules.
    Message {
        /// Its data, lines joined with LF; `None` where it has none.
        data: Option<Bytes>,
        /// What it says of the last event id: nothing, or the id (empty clears it). An id with NUL
        /// is nothing.
        id: Option<Bytes>,
    },
    /// The event being read went over the size limit; the rest of it is skipped. If it has an id, a
    /// [`StreamEvent::Message`] without data follows at its end.
    TooLarge,
    /// A comment: a sign of life.
    Comment,
    /// The server asks for this delay before a reconnect.
    Retry(Millis),
    /// The stream ended.
    Ended(End),
}

/// How the body of a stream ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The server ended the body as HTTP has it: nothing is lost.
    Clean,
    /// A reset, a timeout, a cut body. With the reason, for people.
    Broken(String),
}

/// What the shell is to do. Effects are performed in the order in which they come.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write this and an LF to the editor.
    Line(Bytes),
    /// POST a message; its end is an [`Event::Posted`].
    Post(Post),
    /// Drop this POST where it stands. No event follows.
    Abandon(PostId),
    /// GET a stream; what happens is [`Event::Stream`].
    Open(Open),
    /// Drop this stream where it stands. No event follows.
    Close(StreamId),
    /// DELETE the connection; its end is an [`Event::Deleted`].
    Delete(Connection),
    /// Tell the log. Holds no payload and no secret (X1).
    Log(Level, String),
    /// All is done: end the process.
    Exit,
}

/// A message for the remote. Sent as `application/json`, the body as it is.
#[derive(Clone, Debug)]
pub struct Post {
    /// Names it in the event that follows.
    pub id: PostId,
    /// The connection; `None` for `initialize`.
    pub connection: Option<Connection>,
    /// The value of `Acp-Session-Id`.
    pub session: Option<SessionId>,
    /// Read the credential again before sending: the last one was refused (L10).
    pub renew_credential: bool,
    /// The JSON message.
    pub body: Bytes,
}

/// A stream to open.
#[derive(Clone, Debug)]
pub struct Open {
    /// Names it in the events that follow; its session is the value of `Acp-Session-Id`.
    pub stream: StreamId,
    /// The connection.
    pub connection: Connection,
    /// The value of `Last-Event-ID` (R4).
    pub cursor: Option<Bytes>,
    /// Read the credential again before sending: the last one was refused.
    pub renew_credential: bool,
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The person at the editor loses something.
    Error,
    /// Something went wrong and was dealt with.
    Warn,
    /// A step of the link's or a session's life.
    Info,
    /// One message's fate.
    Debug,
}

/// What the core is told once, at the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long messages wait for a link or a stream (`--hold`).
    pub hold: Millis,
    /// How long `initialize` is tried (`--connect-timeout`).
    pub connect_timeout: Millis,
    /// How long a POST waits for its answer (`--post-timeout`).
    pub post_timeout: Millis,
    /// The size limit of one message (`--max-message-bytes`), for messages to people; lines and
    /// events over it never reach the core.
    pub max_message_bytes: usize,
    /// Where jitter and ids come from.
    pub seed: u64,
    /// The configuration cannot be used: the reason, told as the answer to `initialize` (S9).
    pub unusable: Option<String>,
}
