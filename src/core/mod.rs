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
//!
//! | file | decides |
//! |---|---|
//! | [`message`] | what kind of message some bytes are |
//! | [`methods`] | what an ACP method means to the link and to a session |
//! | `editor` | what follows from a line of the editor |
//! | `remote` | what follows from a message of the remote |
//! | [`requests`] | who waits for which answer |
//! | `posts` | when a message is posted, and what its outcome means |
//! | `streams` | when a stream is opened, and what its end means |
//! | `link` | the first connection |
//! | `recovery` | what becomes of each request when the connection is lost, and the next one |
//! | `restore` | how a session is restored |
//! | [`socket`] | what is different over WebSocket |
//! | `conflict` | how one session fails alone |
//! | `probe` | what a 404 means: whether the connection lives |
//! | `doubt` | what a broken stream costs |
//! | `replay` | in which order a replay and its answer reach the editor |
//! | [`roster`] | what sessions there are, who is busy, and closing one |
//! | `calls` | how the methods of our own are answered that the editor calls |
//! | `shutdown` | how the process ends |
//! | `session` | what is kept of one session |
//! | [`error`] | the errors that we originate |
//! | [`redirect`] | which redirect is followed |
//! | `timers`, [`limits`] | when the core wants to be woken; every number |

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use link::Link;
use message::RequestId;
use posts::Posting;
use probe::Probe;
use recovery::Opening;
use requests::Ledger;
use restore::Own;
use roster::{Inquiry, Reply, Roster, Ticket};
use session::{Backoff, Chance, Scope, Session};
use shutdown::Leaving;
use socket::{Close, Socket, Transport};
use timers::{Timer, Timers};

mod calls;
mod conflict;
mod doubt;
mod editor;
pub mod error;
pub mod limits;
mod link;
pub mod message;
pub mod methods;
mod posts;
mod probe;
mod recovery;
pub mod redirect;
mod remote;
mod replay;
pub mod requests;
mod restore;
pub mod roster;
mod session;
mod shutdown;
pub mod socket;
mod streams;
#[cfg(test)]
mod tests;
mod timers;

/// The state machine: see the module's page.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    link: Link,
    /// The open requests of both ends.
    ledger: Ledger,
    /// The sessions, and under `None` the connection itself.
    sessions: BTreeMap<Scope, Session>,
    /// How the first connection was opened, for those that follow.
    opening: Opening,
    /// The delays before a lost connection is replaced, until one has lived for a while (L12).
    losses: Backoff,
    /// Since when there is this connection.
    up_since: Millis,
    /// What is kept of the socket, and of those before it (W).
    socket: Socket,
    /// The server numbers answers too, so that a numbered stream can lose nothing (R9).
    numbers_answers: bool,
    /// The last turn that ended was answered on its session's own stream, and not on the connection's (R1).
    answers_apart: bool,
    /// The editor's last successful sign-in (V4).
    signed_in: Option<Bytes>,
    /// Our own requests that have no answer yet.
    own: BTreeMap<RequestId, Own>,
    own_ids: u64,
    /// What is told of the sessions and the link (T).
    roster: Roster,
    /// The methods of our own that the editor called and that have no answer yet (E1).
    calls: BTreeMap<Ticket, RequestId>,
    tickets: u64,
    /// The question to the connection whether it lives, if one is asked (R8).
    probe: Option<Probe>,
    /// The connection's own stream that the question replaced: it is read to its end (R8).
    replaced: Option<Generation>,
    /// The POSTs under way. An outcome of any other is of no interest.
    posts: BTreeMap<PostId, Posting>,
    /// The scopes that may not post because too many POSTs are under way; the first waits longest.
    crowded: VecDeque<Scope>,
    /// Bytes of the messages that wait or are being posted (P6).
    queued_bytes: usize,
    timers: Timers,
    chance: Chance,
    epoch: Epoch,
    generations: u64,
    post_ids: u64,
    /// Since when streams are not read, because the editor does not keep up (P6).
    deaf_since: Option<Millis>,
    leaving: Leaving,
}

/// The time of a step, and where its effects go.
struct Step<'a> {
    now: Millis,
    out: &'a mut Vec<Effect>,
}

impl Core {
    /// A core that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            link: Link::Idle,
            ledger: Ledger::default(),
            sessions: BTreeMap::new(),
            opening: Opening::default(),
            losses: Backoff::default(),
            up_since: Millis(0),
            socket: Socket::default(),
            numbers_answers: false,
            answers_apart: false,
            signed_in: None,
            own: BTreeMap::new(),
            own_ids: 0,
            roster: Roster::default(),
            calls: BTreeMap::new(),
            tickets: 0,
            probe: None,
            replaced: None,
            posts: BTreeMap::new(),
            crowded: VecDeque::new(),
            queued_bytes: 0,
            timers: Timers::default(),
            chance: Chance::new(settings.seed),
            epoch: Epoch(0),
            generations: 0,
            post_ids: 0,
            deaf_since: None,
            leaving: Leaving::Not,
            settings,
        }
    }

    /// Takes one event; appends what is to be done to `out`. `now` never goes back.
    pub fn step(&mut self, now: Millis, event: Event, out: &mut Vec<Effect>) {
        let step = &mut Step { now, out };
        self.roster.expect_news(&event);
        if self.timers.next().is_some_and(|due| due.plus(limits::LATE) <= now) {
            // The process was stopped, or the machine slept, and nobody said so yet.
            self.stood_still(step);
        }
        match event {
            Event::Line(line) => self.line(line, step),
            Event::LineTooLong => self.line_too_long(step),
            Event::EditorGone => self.editor_gone(step),
            Event::Posted(post, outcome) => self.posted(post, outcome, step),
            Event::Named(post, id) => self.named(post, id),
            Event::Writing(post) => self.writing(post, step),
            Event::Stream(stream, event) if self.is_current(&stream) => {
                self.stream_event(&stream, event, step);
            }
            Event::Stream(stream, event) if self.is_probe(&stream) => {
                self.probe_answered(&stream, event, step);
            }
            Event::Stream(stream, event) if self.is_replaced(&stream) => {
                self.replaced_event(&stream, event, step);
            }
            Event::Stream(stream, _) => {
                self.roster.expect_nothing();
                let who = name(&stream.session);
                let text = format!("ignored what a replaced stream still delivered: {who}");
                step.log(Level::Debug, text);
            }
            Event::Listening(is_listening) => self.listen(is_listening, step),
            Event::Woke => self.woke(step),
            Event::Inquiry(ticket, inquiry) => self.inquire(ticket, inquiry, step),
            Event::Rpc(ticket, response) => self.rpc_answered(ticket, &response, step),
            Event::Deleted(outcome) => self.deleted(&outcome, step),
            Event::Timer => {
                while let Some(timer) = self.timers.take_due(now) {
                    self.due(timer, step);
                }
            }
        }
        self.go_on_leaving(step);
        self.tell_news(step);
    }

    /// When [`Event::Timer`] is due, if nothing happens before.
    pub fn deadline(&self) -> Option<Millis> {
        self.timers.next()
    }

    /// Whether a stream is the one live stream of its scope on the present connection (R2).
    fn is_current(&self, stream: &StreamId) -> bool {
        stream.epoch == self.epoch
            && self
                .sessions
                .get(&stream.session)
                .is_some_and(|session| session.stream.generation() == Some(stream.generation))
    }

    fn due(&mut self, timer: Timer, step: &mut Step<'_>) {
        self.roster.may_differ = true;
        let is_deaf = self.deaf_since.is_some_and(|at| at.plus(limits::READING) <= step.now);
        if is_deaf && timer.is_for_streams() {
            return self.timers.arm(timer, step.now.plus(limits::READING));
        }
        match timer {
            Timer::GiveUp => self.give_up_connecting(step),
            Timer::Retry => self.post_initialize(step),
            Timer::Unanswered(post) => self.unanswered(post, step),
            Timer::Reopen(scope) => self.open_stream(&scope, step),
            Timer::Repost(scope, lane) => self.repost(&scope, lane, step),
            Timer::Unopened(scope) => self.unopened(&scope, step),
            Timer::Hold(scope) => self.fail_held(&scope, step),
            Timer::Orphan(scope) => self.give_up_doubted(&scope, step),
            Timer::Confirm(scope) => self.give_up_cancelled(&scope, step),
            Timer::Quiet(scope) => self.release_answer(&scope, step),
            Timer::Restore(scope) => self.restore_due(&scope, step),
            Timer::Question(scope) => self.withdraw(&scope, Some(self.epoch), step),
            Timer::Probe => self.ask_connection(step),
            Timer::Replaced => self.give_up_replaced(step),
            Timer::Silent(scope) => self.silent(&scope, step),
            Timer::Woken => self.doubt_streams(step),
            Timer::Ping => self.ping(step),
            // What is due is found in `go_on_leaving`.
            Timer::Shutdown => {}
        }
    }
}

impl Step<'_> {
    /// Writes a line to the editor.
    fn line(&mut self, line: Bytes) {
        self.out.push(Effect::Line(line));
    }

    fn log(&mut self, level: Level, text: impl Into<String>) {
        self.out.push(Effect::Log(level, text.into()));
    }
}

impl Millis {
    /// This time and so much more.
    fn plus(self, Millis(duration): Millis) -> Millis {
        Millis(self.0.saturating_add(duration))
    }
}

/// A scope, for people.
fn name(scope: &Scope) -> String {
    match scope {
        Some(SessionId(id)) => format!("session {id:?}"),
        None => "the connection".to_owned(),
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
    /// The answer to `initialize` has begun, and names this connection; the rest of it is still to come.
    Named(PostId, Bytes),
    /// A part of a message was written to the socket; the rest follows (W3).
    Writing(PostId),
    /// Something happened on a stream.
    Stream(StreamId, StreamEvent),
    /// Whether what streams deliver is taken. While the editor does not keep up it is not (P6), and
    /// their silence says nothing (L11).
    Listening(bool),
    /// The machine slept: what was open may be dead (L11).
    Woke,
    /// A person asks (A3, A4, E1); answered by [`Effect::Reply`] in the same step.
    Inquiry(Ticket, Inquiry),
    /// The answer to [`Effect::Rpc`]: a JSON-RPC response under any id.
    Rpc(Ticket, Bytes),
    /// The DELETE has ended, however it ended.
    Deleted(Outcome),
    /// The time of [`Core::deadline`] has come, and what came before it was told.
    Timer,
}

/// What became of a request that we sent over HTTP.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer came, whole.
    Response(Response),
    /// The credential that goes with it could not be read: nothing left. With the reason, for people.
    NoCredential(String),
    /// No connection could be made: nothing left. With the reason, for people.
    Unsent(String),
    /// It left, or may have; then the network broke. With the reason, for people.
    Broken(String),
    /// The socket was closed before `initialize` was answered (W3).
    Closed(Close),
    /// The remote redirects to where we do not follow (L8). With what to do, for people.
    Redirected {
        /// The status of the redirect that was not followed.
        status: u16,
        /// Why, and what to configure.
        reason: String,
    },
}

/// The head of an HTTP response, and as much of its body as decides something: all of a JSON body
/// of a 2xx, up to the size limit; the first 8 KiB of HTML and of any other status; nothing of the rest.
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
    /// A comment, or whatever else is a sign of life and no message.
    Comment,
    /// Some of an event came, and not its end.
    Progress,
    /// The server asks for this delay before a reconnect.
    Retry(Millis),
    /// The stream ended.
    Ended(End),
}

/// How the body of a stream, or a socket, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The server ended the body as HTTP has it: nothing is lost.
    Clean,
    /// The remote closed the socket, and said why (W3).
    Closed(Close),
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
    /// Send a ping on the socket that this stream is (W3). What comes back is a
    /// [`StreamEvent::Comment`].
    Ping(StreamId),
    /// DELETE the connection; its end is an [`Event::Deleted`].
    Delete(Connection),
    /// Tell the log. Holds no payload and no secret (X1).
    Log(Level, String),
    /// Answers an inquiry.
    Reply(Ticket, Reply),
    /// What [`Inquiry::Status`] would say may be different from before, in more than a session's
    /// `updated`.
    Changed,
    /// The editor called a method of our own (E1). To be answered with [`Event::Rpc`], within one
    /// turn of the shell's loop or two, never from the network.
    Rpc(Ticket, Bytes),
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
    /// How messages get to the remote and back.
    pub transport: Transport,
    /// How long messages wait for a link or a stream (`--hold`).
    pub hold: Millis,
    /// How long `initialize` is tried (`--connect-timeout`).
    pub connect_timeout: Millis,
    /// How long a POST waits for its answer (`--post-timeout`).
    pub post_timeout: Millis,
    /// How long a reopened stream may be silent before a request in doubt is given up
    /// (`--orphan-timeout`).
    pub orphan_timeout: Millis,
    /// The credential is not the same for ever: one that was refused is read again (L10).
    pub can_renew: bool,
    /// A stream that ends while requests are open fails them (`--on-stream-loss fail`, R11).
    pub strict: bool,
    /// A session that failed is restored once without being asked (`--recover auto`, C3).
    pub recover_alone: bool,
    /// Gaps are told in the conversation (`--notices on`, V11).
    pub notices: bool,
    /// The size limit of one message (`--max-message-bytes`), for messages to people; lines and
    /// events over it never reach the core.
    pub max_message_bytes: usize,
    /// Where jitter and ids come from.
    pub seed: u64,
    /// The configuration cannot be used: the reason, told as the answer to `initialize` (S9).
    pub unusable: Option<String>,
}

impl Default for Settings {
    /// The settings that no flag changes.
    fn default() -> Self {
        Self {
            transport: Transport::Http,
            hold: limits::HOLD,
            connect_timeout: limits::CONNECT_TIMEOUT,
            post_timeout: limits::POST_TIMEOUT,
            orphan_timeout: limits::ORPHAN_TIMEOUT,
            can_renew: true,
            strict: false,
            recover_alone: true,
            notices: true,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            seed: 0,
            unusable: None,
        }
    }
}
