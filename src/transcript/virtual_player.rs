//! Plays a transcript against the core alone: time is a number, the remote a list of requests.
//!
//! What the shell does between bytes and events is done here by the same codecs, so that a file
//! means the same in both players.

mod socket;

use super::format::{CLOSE, Fault, Signal, TEXT, Transcript};
use super::player::{
    self, BUSY, Board, CLOSED, Failure, RECONNECTING, Reply, Request, Stage, UNKNOWN, called, unfit,
};
use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::core::error::{self, RUNNING_SESSION, UNKNOWN_SESSION};
use crate::core::message::{self, Malformed, Message};
use crate::core::roster::{self, Inquiry, Ticket};
use crate::core::socket::{Close, Transport};
use crate::core::{
    Connection, Core, Effect, End, Event, Millis, Open, Outcome, Post, PostId, Response, SessionId,
    Settings, StreamEvent, StreamId, limits,
};
use crate::wire::lines::Lines;
use crate::wire::sse::{Decoder, Item};
use bytes::Bytes;
use clap::Parser;
use socket::Socket;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Plays a transcript in virtual time.
///
/// # Errors
/// The first step that did not hold.
pub fn play(transcript: &Transcript) -> Result<(), Failure> {
    let settings = settings(&transcript.header.flags).map_err(|reason| Failure {
        line: 1,
        step: "the flags".to_owned(),
        reason,
        log: String::new(),
    })?;
    let settings = Settings { seed: transcript.header.seed, ..settings };
    player::play(
        transcript,
        &mut VirtualStage::new(Machine::Core(Box::new(Core::new(settings.clone()))), &settings),
    )
}

/// One effect of the core that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    /// Which request to the remote fails, counted from 0.
    pub effect: usize,
    /// How.
    pub how: How,
}

/// How a request to the remote fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The remote refuses it with this status.
    Refused(u16),
    /// It never left.
    Unsent,
    /// It was sent, and then the network broke.
    Broken,
    /// Nothing is ever heard of it.
    Unanswered,
}

/// Plays a transcript while one effect fails, up to the end of the process. What the transcript
/// expects does not count, only what holds whatever happens: every request gets exactly one answer
/// (I1), every line is one JSON-RPC line (I6), nothing spins (I18), the process ends (I16). What comes
/// back is how many effects there were.
///
/// # Errors
/// What did not hold.
pub fn torture(transcript: &Transcript, harm: Option<Harm>) -> Result<usize, String> {
    let settings = settings(&transcript.header.flags)?;
    let core = Machine::Core(Box::new(Core::new(settings.clone())));
    let mut stage = VirtualStage { harm, ..VirtualStage::new(core, &settings) };
    player::play_through(transcript, &mut stage)?;
    // Long after the last fault, and longer than any time limit.
    stage.advance(Millis(stage.now.0 + 1_200_000));
    stage.end_input();
    stage.advance(Millis(stage.now.0 + limits::EXIT.0));
    if let Some(fault) = stage.board.fault {
        return Err(fault);
    }
    if stage.board.exit.is_none() {
        return Err("I16: the process does not end".to_owned());
    }
    let ids: BTreeSet<_> = stage.owed.keys().chain(stage.paid.keys()).collect();
    for id in ids {
        let (owed, paid) = (stage.owed.get(id).unwrap_or(&0), stage.paid.get(id).unwrap_or(&0));
        if owed != paid {
            return Err(format!("I1: {owed} answers are owed under id {id}, {paid} came"));
        }
    }
    Ok(stage.performed)
}

/// The flags of `connect`, as the settings of the core. Chance is the same in every play.
fn settings(flags: &[String]) -> Result<Settings, String> {
    let words = ["acp-tether", "connect", "http://127.0.0.1/"].into_iter().map(str::to_owned);
    let cli = Cli::try_parse_from(words.chain(flags.iter().cloned()));
    match cli.map_err(|error| error.to_string())?.command {
        Command::Connect(flags) => {
            let settings = Config::new(&flags, &|name| std::env::var(name)).settings;
            Ok(Settings { seed: 1, ..settings })
        }
        _ => Err("these are not flags of connect".to_owned()),
    }
}

/// What an id says, however it is spelled.
fn meaning(id: &str) -> String {
    serde_json::from_str::<String>(id).map_or_else(|_| id.to_owned(), |text| format!("{text:?}"))
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// What is played against: the core, or in the tests of this file a script of effects.
enum Machine {
    Core(Box<Core>),
    #[cfg(test)]
    Script(tests::Script),
}

impl Machine {
    fn step(&mut self, now: Millis, event: Event, out: &mut Vec<Effect>) {
        match self {
            Machine::Core(core) => core.step(now, event, out),
            #[cfg(test)]
            Machine::Script(script) => script.step(now, event, out),
        }
    }

    fn deadline(&self) -> Option<Millis> {
        match self {
            Machine::Core(core) => core.deadline(),
            #[cfg(test)]
            Machine::Script(script) => script.deadline,
        }
    }
}

/// The most timer events that one moment may have (I18).
const TIMERS_AT_ONCE: u32 = 1_000;

struct VirtualStage {
    machine: Machine,
    now: Millis,
    board: Board,
    /// What the core is told next.
    events: VecDeque<Event>,
    lines: Lines,
    /// What each request on the board is to the core.
    asked: Vec<Asked>,
    limit: usize,
    /// What the core replied to who asks through the API.
    replies: VecDeque<String>,
    /// One socket in place of POSTs and streams.
    is_socket: bool,
    reachable: bool,
    harm: Option<Harm>,
    /// How many requests the core has made.
    performed: usize,
    /// How many answers the editor must get under each id, and how many it got.
    owed: BTreeMap<String, usize>,
    paid: BTreeMap<String, usize>,
}

/// A request as the core made it.
enum Asked {
    Post(PostId),
    Stream(StreamId, Decoder),
    Socket(Box<Socket>),
    Delete,
    /// A frame on a socket; or the core has dropped it: it hears no more of it.
    Dropped,
}

impl VirtualStage {
    fn new(machine: Machine, settings: &Settings) -> Self {
        Self {
            machine,
            now: Millis(1_000),
            board: Board::default(),
            events: VecDeque::new(),
            lines: Lines::new(settings.max_message_bytes),
            asked: Vec::new(),
            limit: settings.max_message_bytes,
            replies: VecDeque::new(),
            is_socket: settings.transport == Transport::WebSocket,
            reachable: true,
            harm: None,
            performed: 0,
            owed: BTreeMap::new(),
            paid: BTreeMap::new(),
        }
    }

    /// Notes what answer the editor must get to what it says.
    fn owe(&mut self, event: &Event) {
        let id = match event {
            Event::Line(line) => match message::read(line) {
                Ok(Message::Request { id, .. }) => id.raw().to_owned(),
                Ok(Message::Notification { .. } | Message::Answer { .. }) => return,
                Err(Malformed::NotJson) => "null".to_owned(),
                Err(Malformed::NotMessage(id)) => id,
            },
            Event::LineTooLong => "null".to_owned(),
            _ => return,
        };
        *self.owed.entry(meaning(&id)).or_default() += 1;
    }

    /// Fails a request of the core, if it is the one.
    fn is_harmed(&mut self, effect: &Effect) -> bool {
        let is_socket = self.is_socket;
        let tell = |outcome: Outcome| match effect {
            Effect::Post(post) => Some(Event::Posted(post.id, outcome)),
            Effect::Delete(_) => Some(Event::Deleted(outcome)),
            // A socket that is open can only end.
            Effect::Open(open) if is_socket => {
                let event = StreamEvent::Ended(End::Broken(CUT.to_owned()));
                Some(Event::Stream(open.stream.clone(), event))
            }
            Effect::Open(open) => {
                let event = match outcome {
                    Outcome::Response(response) => StreamEvent::Refused(response),
                    failed => StreamEvent::Failed(failed),
                };
                Some(Event::Stream(open.stream.clone(), event))
            }
            _ => None,
        };
        if !matches!(effect, Effect::Post(_) | Effect::Delete(_) | Effect::Open(_)) {
            return false;
        }
        self.performed += 1;
        let Some(Harm { effect: number, how }) = self.harm else { return false };
        if number + 1 != self.performed {
            return false;
        }
        self.events.extend(match how {
            How::Refused(status) => {
                tell(Outcome::Response(Response { status, ..Response::default() }))
            }
            How::Unsent => tell(Outcome::Unsent(REFUSED.to_owned())),
            How::Broken => tell(Outcome::Broken(CUT.to_owned())),
            How::Unanswered => None,
        });
        true
    }

    /// Tells the core all that it has to hear, and does what it says.
    fn run(&mut self) {
        while let Some(event) = self.events.pop_front() {
            if self.board.exit.is_some() {
                self.events.clear();
                return;
            }
            self.owe(&event);
            let mut effects = Vec::new();
            self.machine.step(self.now, event, &mut effects);
            for effect in effects {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        if self.board.exit.is_some() {
            self.board.fail(format!("after the exit came {effect:?}"));
            return;
        }
        if self.is_harmed(&effect) {
            return;
        }
        match effect {
            Effect::Line(line) => {
                if let Ok(Message::Answer { id, .. }) = message::read(&line) {
                    *self.paid.entry(meaning(id.raw())).or_default() += 1;
                }
                self.board.see(line);
            }
            Effect::Post(post) => {
                if let Some(reason) = unfit(&post.body) {
                    self.board
                        .fail(format!("a POST: {reason}: {}", String::from_utf8_lossy(&post.body)));
                }
                if self.is_socket && post.connection.is_some() {
                    self.write_on_socket(post);
                } else if self.is_socket && self.reachable {
                    self.drop_asked(|asked| matches!(asked, Asked::Socket(_)));
                    let headers = vec![("upgrade".to_owned(), "websocket".to_owned())];
                    let socket = Asked::Socket(Box::new(Socket::new(post, self.limit)));
                    self.admit(socket, "GET", headers, Bytes::new());
                } else if self.reachable {
                    let Post { id, connection, session, body, .. } = post;
                    let mut headers = headers(connection.as_ref(), session.as_ref());
                    headers.push(("content-type".to_owned(), "application/json".to_owned()));
                    self.admit(Asked::Post(id), "POST", headers, body);
                } else {
                    self.events
                        .push_back(Event::Posted(post.id, Outcome::Unsent(REFUSED.to_owned())));
                }
            }
            Effect::Open(open) if self.is_socket => {
                if let Some(socket) = self.socket() {
                    let before = std::mem::take(&mut socket.before).into_iter();
                    socket.stream = Some(open.stream.clone());
                    self.events
                        .extend(before.map(|event| Event::Stream(open.stream.clone(), event)));
                }
            }
            Effect::Open(Open { stream, connection, cursor, .. }) => {
                if self.reachable {
                    let mut headers = headers(Some(&connection), stream.session.as_ref());
                    headers.push(("accept".to_owned(), "text/event-stream".to_owned()));
                    headers
                        .extend(cursor.map(|cursor| ("last-event-id".to_owned(), text(&cursor))));
                    let asked = Asked::Stream(stream, Decoder::new(self.limit));
                    self.admit(asked, "GET", headers, Bytes::new());
                } else {
                    let failed = StreamEvent::Failed(Outcome::Unsent(REFUSED.to_owned()));
                    self.events.push_back(Event::Stream(stream, failed));
                }
            }
            Effect::Delete(_) if self.is_socket => {
                if self.socket().is_some() {
                    self.drop_asked(|asked| matches!(asked, Asked::Socket(_)));
                    self.hear_on_socket(CLOSE, Close::NORMAL.to_string().into());
                }
                let closed = Response { status: 204, ..Response::default() };
                self.events.push_back(Event::Deleted(Outcome::Response(closed)));
            }
            Effect::Delete(connection) => {
                if self.reachable {
                    self.admit(
                        Asked::Delete,
                        "DELETE",
                        headers(Some(&connection), None),
                        Bytes::new(),
                    );
                } else {
                    self.events.push_back(Event::Deleted(Outcome::Unsent(REFUSED.to_owned())));
                }
            }
            Effect::Abandon(post) => self.drop_asked(|asked| match asked {
                Asked::Post(id) => *id == post,
                Asked::Socket(socket) => socket.opener == Some(post),
                _ => false,
            }),
            Effect::Close(stream) => self.drop_asked(|asked| match asked {
                Asked::Stream(id, _) => *id == stream,
                Asked::Socket(socket) => socket.stream.as_ref() == Some(&stream),
                _ => false,
            }),
            Effect::Log(level, text) => {
                self.board.log.push(format!("{:>6} ms {level:?} {text}", self.now.0));
            }
            Effect::Exit => self.board.exit = Some(0),
            Effect::Reply(API, reply) => self.replies.push_back(told(&reply)),
            Effect::Reply(call, reply) => self.events.push_back(answered(call, &reply)),
            Effect::Rpc(ticket, request) => match called(&request) {
                Some(inquiry) => self.events.push_back(Event::Inquiry(ticket, inquiry)),
                None => self.events.extend(echo(ticket, &request)),
            },
            Effect::Ping(socket) => {
                self.events.push_back(Event::Stream(socket, StreamEvent::Comment));
            }
            Effect::Changed => {}
        }
    }

    /// The socket that is open, or asked for.
    fn socket(&mut self) -> Option<&mut Socket> {
        self.asked.iter_mut().find_map(|asked| match asked {
            Asked::Socket(socket) => Some(&mut **socket),
            _ => None,
        })
    }

    fn write_on_socket(&mut self, post: Post) {
        let is_open = self.socket().is_some_and(|socket| socket.stream.is_some());
        let outcome = if is_open {
            self.hear_on_socket(TEXT, post.body);
            Outcome::Response(Response { status: 202, ..Response::default() })
        } else {
            Outcome::Unsent(REFUSED.to_owned())
        };
        self.events.push_back(Event::Posted(post.id, outcome));
    }

    fn hear_on_socket(&mut self, kind: &str, body: Bytes) {
        self.asked.push(Asked::Dropped);
        self.board.admit(Request::frame(kind, body));
    }

    fn admit(&mut self, asked: Asked, method: &str, headers: Vec<(String, String)>, body: Bytes) {
        self.asked.push(asked);
        let request = Request { method: method.to_owned(), headers, body, ..Request::default() };
        let (place, reply) = self.board.admit(request);
        if let Some(reply) = reply {
            self.tell_answer(place, &reply);
        }
    }

    fn drop_asked(&mut self, which: impl Fn(&Asked) -> bool) {
        for (asked, request) in self.asked.iter_mut().zip(&mut self.board.requests) {
            if which(asked) {
                *asked = Asked::Dropped;
                request.open = false;
            }
        }
        // What it had still to say is not heard.
        let gone = |event: &Event| match event {
            Event::Posted(id, _) => which(&Asked::Post(*id)),
            Event::Stream(stream, _) => which(&Asked::Stream(stream.clone(), Decoder::new(0))),
            _ => false,
        };
        self.events.retain(|event| !gone(event));
    }

    fn tell_answer(&mut self, place: usize, reply: &Reply) {
        // A body that decides something is awaited, up to the time limit of the POST.
        if reply.fault == Some(Fault::Stall) && has_result(reply) {
            return;
        }
        let outcome = outcome(reply);
        let event = match &mut self.asked[place] {
            Asked::Socket(socket) if reply.opens => {
                self.board.requests[place].open = true;
                socket.connection_id = header(reply, |name| name == "acp-connection-id").map(bytes);
                let initialize = std::mem::take(&mut socket.initialize);
                return self.hear_on_socket(TEXT, initialize);
            }
            Asked::Socket(socket) => {
                let Some(opener) = socket.opener.take() else { return };
                self.asked[place] = Asked::Dropped;
                Event::Posted(opener, outcome)
            }
            Asked::Post(id) => Event::Posted(*id, outcome),
            Asked::Delete => Event::Deleted(outcome),
            Asked::Dropped => return,
            Asked::Stream(stream, _) => {
                self.board.requests[place].open = reply.opens;
                let event = match outcome {
                    Outcome::Response(_) if reply.opens => StreamEvent::Opened {
                        event_epoch: header(reply, |name| name.ends_with("-event-epoch"))
                            .map(bytes),
                    },
                    Outcome::Response(response) => StreamEvent::Refused(response),
                    failed => StreamEvent::Failed(failed),
                };
                Event::Stream(stream.clone(), event)
            }
        };
        self.events.push_back(event);
    }

    /// Goes on to `time`, through every deadline on the way.
    fn advance(&mut self, time: Millis) {
        let mut timers = 0;
        while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= time) {
            timers = if deadline > self.now { 0 } else { timers + 1 };
            if timers > TIMERS_AT_ONCE || self.board.exit.is_some() {
                if self.board.exit.is_none() {
                    self.board.fail(format!("I18: the deadline stays at {} ms", deadline.0));
                }
                break;
            }
            self.now = self.now.max(deadline);
            self.events.push_back(Event::Timer);
            self.run();
        }
        self.now = self.now.max(time);
    }

    fn later(&self, time: Duration) -> Millis {
        Millis(self.now.0.saturating_add(millis(time).0))
    }
}

impl Stage for VirtualStage {
    fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut lines = Vec::new();
        self.lines.push(Bytes::copy_from_slice(bytes), &mut lines);
        self.events.extend(lines.into_iter().map(Event::from));
        self.run();
        Ok(())
    }

    fn end_input(&mut self) {
        let mut lines = Vec::new();
        self.lines.finish(&mut lines);
        self.events.extend(lines.into_iter().map(Event::from));
        self.events.push_back(Event::EditorGone);
        self.run();
    }

    fn answer(&mut self, request: usize, reply: &Reply) {
        self.tell_answer(request, reply);
        self.run();
    }

    fn send(&mut self, request: usize, bytes: Bytes) {
        if let Asked::Socket(socket) = &mut self.asked[request] {
            self.events.extend(socket.hear(bytes));
        } else if let Asked::Stream(stream, decoder) = &mut self.asked[request] {
            let mut items = Vec::new();
            decoder.push(bytes, &mut items);
            if items.is_empty() && decoder.is_within_event() {
                self.events.push_back(Event::Stream(stream.clone(), StreamEvent::Progress));
            }
            let event = |item: Item| Event::Stream(stream.clone(), item.into());
            self.events.extend(items.into_iter().map(event));
        }
        self.run();
    }

    fn end_stream(&mut self, request: usize, cleanly: bool) {
        self.board.requests[request].open = false;
        let asked = std::mem::replace(&mut self.asked[request], Asked::Dropped);
        let end = if cleanly { End::Clean } else { End::Broken(CUT.to_owned()) };
        match asked {
            Asked::Stream(stream, _) => {
                self.events.push_back(Event::Stream(stream, StreamEvent::Ended(end)));
            }
            Asked::Socket(mut socket) => self.events.extend(socket.ended(end)),
            _ => {}
        }
        self.run();
    }

    fn set_reachable(&mut self, reachable: bool) -> Result<(), String> {
        self.reachable = reachable;
        for place in 0..self.asked.len() {
            let request = &mut self.board.requests[place];
            if reachable || (request.answered && !request.open) {
                continue;
            }
            if std::mem::replace(&mut request.answered, true) {
                self.end_stream(place, false);
            } else {
                self.tell_answer(place, &Reply { fault: Some(Fault::Broken), ..Reply::default() });
            }
        }
        self.run();
        Ok(())
    }

    fn wait(&mut self, within: Duration, done: &dyn Fn(&Board) -> bool) -> bool {
        self.run();
        let end = self.later(within);
        while !done(&self.board) {
            match self.machine.deadline() {
                Some(deadline) if deadline <= end && self.board.fault.is_none() => {
                    self.advance(deadline)
                }
                _ => return false,
            }
        }
        true
    }

    fn pass(&mut self, time: Duration) {
        self.run();
        self.advance(self.later(time));
    }

    fn settle(&mut self) {
        self.run();
        self.advance(self.now);
    }

    fn close_output(&mut self) -> Result<(), String> {
        Err("the core has no pipes".to_owned())
    }

    fn ask(
        &mut self,
        inquiry: &Inquiry,
        within: Duration,
        right: &dyn Fn(&str) -> bool,
    ) -> Result<String, String> {
        let end = self.later(within);
        loop {
            self.events.push_back(Event::Inquiry(API, inquiry.clone()));
            self.run();
            let answer = self.replies.pop_front().ok_or("the core does not reply")?;
            if right(&answer) || answer == CLOSED {
                return Ok(answer);
            }
            match self.machine.deadline() {
                Some(deadline) if deadline <= end && self.board.fault.is_none() => {
                    self.advance(deadline)
                }
                _ => return Ok(answer),
            }
        }
    }

    fn memory(&mut self) -> Result<Option<u64>, String> {
        Err("the core has no process".to_owned())
    }

    fn signal(&mut self, _signal: Signal) -> Result<(), String> {
        Err("the core knows no signals".to_owned())
    }

    /// The core has no other end than the one that a step can ask for.
    fn finish(&mut self, _: bool) -> Result<(), String> {
        Ok(())
    }
}

/// Who asks through the API; a call of the editor has its own ticket, counted from 1.
const API: Ticket = Ticket(0);
const REFUSED: &str = "the scripted remote refuses connections";
const CUT: &str = "the scripted remote cut the connection";

/// A reply as the API has it; the clock of the play begins with 1970.
fn told(reply: &roster::Reply) -> String {
    match reply {
        roster::Reply::Status(status) => {
            serde_json::to_string(&status.document(|Millis(time)| time))
                .unwrap_or_else(|error| error.to_string())
        }
        roster::Reply::Closed => CLOSED.to_owned(),
        roster::Reply::Unknown => UNKNOWN.to_owned(),
        roster::Reply::Busy => BUSY.to_owned(),
        roster::Reply::Reconnecting => RECONNECTING.to_owned(),
    }
}

/// The answer to a call of the editor that changes something; the core knows it by its ticket.
fn answered(Ticket(call): Ticket, reply: &roster::Reply) -> Event {
    let id = call.to_string();
    let answer = match reply {
        roster::Reply::Busy => error::plain(&id, RUNNING_SESSION, "the session is running"),
        roster::Reply::Unknown => error::plain(&id, UNKNOWN_SESSION, "no such session is listed"),
        _ => Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"ok":true}}}}"#)),
    };
    Event::Rpc(Ticket(call), answer)
}

/// The answer to a call of the editor that only asks. Nobody here serves those; the result is the
/// method.
fn echo(ticket: Ticket, request: &Bytes) -> Option<Event> {
    let Ok(Message::Request { id, method, .. }) = message::read(request) else { return None };
    let method = serde_json::Value::from(&*method);
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{method}}}"#, id.raw());
    Some(Event::Rpc(ticket, Bytes::from(answer)))
}

fn headers(connection: Option<&Connection>, session: Option<&SessionId>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if let Some(Connection { id, version }) = connection {
        headers.push(("acp-connection-id".to_owned(), text(id)));
        headers.extend(
            version.as_ref().map(|version| ("acp-protocol-version".to_owned(), text(version))),
        );
    }
    headers.extend(session.map(|session| ("acp-session-id".to_owned(), session.0.to_string())));
    headers
}

/// Whether the body of an answer is a result.
fn has_result(reply: &Reply) -> bool {
    let is_json = header(reply, |name| name == "content-type")
        .is_some_and(|kind| kind.starts_with("application/json"));
    is_json && (200..300).contains(&reply.status)
}

/// What the core hears of an answer that comes, whole or not.
fn outcome(reply: &Reply) -> Outcome {
    let stalls = reply.fault == Some(Fault::Stall);
    if reply.fault.is_some() && !stalls {
        return Outcome::Broken(CUT.to_owned());
    }
    if (300..400).contains(&reply.status) {
        let reason = "the scripted remote redirects".to_owned();
        return Outcome::Redirected { status: reply.status, reason };
    }
    let content_type = header(reply, |name| name == "content-type").unwrap_or_default().to_owned();
    let is_shown = !(200..300).contains(&reply.status) || content_type.contains("html");
    let most = match reply.body.len() {
        all if has_result(reply) => all,
        // The shell gives up what does not end.
        all if is_shown && !stalls => all.min(limits::ERROR_BODY_BYTES),
        _ => 0,
    };
    Outcome::Response(Response {
        status: reply.status,
        content_type,
        connection_id: header(reply, |name| name == "acp-connection-id").map(bytes),
        retry_after: header(reply, |name| name == "retry-after")
            .and_then(|seconds| seconds.parse().ok())
            .map(|seconds: u64| Millis(seconds.saturating_mul(1_000))),
        body: reply.body.slice(..most),
        truncated: most < reply.body.len(),
    })
}

fn header(reply: &Reply, which: impl Fn(&str) -> bool) -> Option<&str> {
    reply.headers.iter().find(|(name, _)| which(name)).map(|(_, value)| value.as_str())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::core::Epoch;

    /// Stands for the core: each step takes the next of these answers.
    #[derive(Default)]
    pub(super) struct Script {
        steps: VecDeque<Vec<Effect>>,
        pub(super) deadline: Option<Millis>,
        seen: Vec<String>,
    }

    impl Script {
        pub(super) fn step(&mut self, now: Millis, event: Event, out: &mut Vec<Effect>) {
            self.seen.push(format!("{} {event:?}", now.0));
            if matches!(event, Event::Timer) {
                self.deadline = self.deadline.filter(|deadline| *deadline > now);
            }
            out.extend(self.steps.pop_front().unwrap_or_default());
        }
    }

    fn line(text: &'static str) -> Effect {
        Effect::Line(Bytes::from_static(text.as_bytes()))
    }

    fn post(id: u64, body: &'static str) -> Effect {
        Effect::Post(Post {
            id: PostId(id),
            connection: None,
            session: None,
            renew_credential: false,
            body: Bytes::from_static(body.as_bytes()),
        })
    }

    fn open(generation: u64) -> Effect {
        let generation = crate::core::Generation(generation);
        let stream = StreamId { session: None, epoch: Epoch(1), generation };
        let connection = Connection { id: Bytes::from_static(b"c1"), version: None };
        Effect::Open(Open { stream, connection, cursor: None, renew_credential: false })
    }

    /// Plays steps against answers; `deadline` is counted from the start.
    fn run(
        steps: &[&str],
        answers: Vec<Vec<Effect>>,
        deadline: Option<u64>,
    ) -> (Result<(), Failure>, Vec<String>) {
        let header = r#"{"transcript":1,"name":"n","rules":["S1"]}"#;
        let transcript = Transcript::parse(&[&[header], steps].concat().join("\n")).unwrap();
        let deadline = deadline.map(|deadline| Millis(1_000 + deadline));
        let script = Script { steps: answers.into(), deadline, seen: Vec::new() };
        let mut stage = VirtualStage::new(Machine::Script(script), &settings(&[]).unwrap());
        let result = player::play(&transcript, &mut stage);
        let Machine::Script(script) = stage.machine else { unreachable!() };
        (result, script.seen)
    }

    fn reason(steps: &[&str], answers: Vec<Vec<Effect>>) -> (usize, String) {
        let failure = run(steps, answers, None).0.unwrap_err();
        (failure.line, failure.reason)
    }

    #[test]
    fn a_line_is_taken_by_the_step_that_names_it() {
        let steps = [r#"{"editor":1}"#, r#"{"sees":{"b":2,"a":1}}"#, r#"{"quiet":true}"#];
        run(&steps, vec![vec![line(r#"{"a":1,"b":2}"#)]], None).0.unwrap();
        let (number, text) = reason(&steps, vec![vec![line(r#"{"a":1,"b":3}"#)]]);
        assert!(number == 3 && text.contains("/b is 3, not 2"), "{text}");
        let (number, text) = reason(&steps, vec![vec![line(r#"{"a":1,"b":2}"#), line("2")]]);
        assert!(number == 4 && text.contains("line 2"), "{text}");
        let (number, text) = reason(&steps, vec![]);
        assert!(number == 3 && text.contains("no line came"), "{text}");
    }

    #[test]
    fn bytes_are_compared_as_bytes() {
        let steps = [r#"{"editor":1}"#, r#"{"sees":{"a": 1},"bytes":true}"#];
        run(&steps, vec![vec![line(r#"{"a": 1}"#)]], None).0.unwrap();
        assert!(reason(&steps, vec![vec![line(r#"{"a":1}"#)]]).1.contains("from byte 5 on"));
    }

    #[test]
    fn lines_may_come_in_any_order_where_the_file_says_so() {
        let steps = [r#"{"editor":1}"#, r#"{"sees_any_order":[{"id":1},{"id":2}]}"#];
        run(&steps, vec![vec![line(r#"{"id":2,"x":0}"#), line(r#"{"id":1}"#)]], None).0.unwrap();
        let answers = vec![vec![line(r#"{"id":2}"#), line(r#"{"id":2}"#)]];
        assert!(reason(&steps, answers).1.contains("/id is 2, not 1"));
    }

    #[test]
    fn a_saved_id_stands_where_it_is_named() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"sees_like":{"id":"*"},"save":"q"}"#,
            r#"{"editor":{"id":{"$ref":"q"},"result":"{$ref"}}"#,
        ];
        let (result, seen) = run(&steps, vec![vec![line(r#"{"id":1.50}"#)]], None);
        result.unwrap();
        assert!(seen[1].contains(r#"{\"id\":1.50,\"result\":\"{$ref\"}"#), "{}", seen[1]);
    }

    #[test]
    fn s5_a_line_that_is_no_single_line_of_json_fails_whatever_the_file_asks() {
        for bad in ["{\n}", "{\r}", "{", ""] {
            let (number, text) =
                reason(&[r#"{"editor":1}"#, r#"{"quiet":true}"#], vec![vec![line(bad)]]);
            assert!(number == 2 && text.starts_with("S5"), "{bad:?}: {number}: {text}");
        }
    }

    #[test]
    fn a_request_is_answered_at_once_later_or_not() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"gets":{"method":"POST","body":{"n":1}}}"#,
            r#"{"gets":{"method":"POST","body":{"n":2}},"as":"p2"}"#,
            r#"{"gets":{"method":"POST","body":{"n":3}},"answer":{"how":"broken"}}"#,
            r#"{"answers":"p2","status":409,"text":"busy"}"#,
        ];
        let posts = vec![vec![post(1, r#"{"n":1}"#), post(2, r#"{"n":2}"#), post(3, r#"{"n":3}"#)]];
        let (result, seen) = run(&steps, posts, None);
        result.unwrap();
        let wanted = [
            "Posted(PostId(1), Response(Response { status: 202",
            "Posted(PostId(3), Broken",
            "status: 409",
        ];
        for (found, wanted) in seen[1..].iter().zip(wanted) {
            assert!(found.contains(wanted), "{found}");
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn a_post_that_no_step_takes_is_too_much() {
        let steps = [r#"{"editor":1}"#, r#"{"gets":{"method":"POST","body":{"n":1}}}"#];
        let posts = vec![vec![post(1, r#"{"n":1}"#), post(2, r#"{"n":2}"#)]];
        assert!(reason(&steps, posts).1.contains(r#"request POST of no session {"n":2}"#));
    }

    #[test]
    fn an_abandoned_post_hears_nothing() {
        let steps =
            [r#"{"editor":1}"#, r#"{"gets":{"method":"POST"},"as":"p"}"#, r#"{"answers":"p"}"#];
        let (result, seen) =
            run(&steps, vec![vec![post(1, "1"), Effect::Abandon(PostId(1))]], None);
        result.unwrap();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn a_stream_carries_events_until_it_ends() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"stream":null,"event":{"a": 1},"id":"7"}"#,
            r#"{"stream":null,"raw":"da"}"#,
            r#"{"stream":null,"raw":"ta:x\n\n"}"#,
            r#"{"stream":null,"comment":""}"#,
            r#"{"stream":null,"end":"reset"}"#,
            r#"{"gets":{"method":"GET"}}"#,
            r#"{"quiet":true}"#,
        ];
        let (result, seen) = run(&steps, vec![vec![open(1)]], None);
        result.unwrap();
        let wanted = [
            "Opened",
            r#"Some(b"{\"a\": 1}"), id: Some(b"7")"#,
            "Progress",
            r#"Some(b"x")"#,
            "Comment",
            "Ended(Broken",
        ];
        assert_eq!(seen.len(), 1 + wanted.len());
        for (found, wanted) in seen[1..].iter().zip(wanted) {
            assert!(found.contains(wanted), "{found}");
        }
        let closed = [steps[0], steps[4]];
        let (result, _) = run(&[&closed[..], &steps[6..]].concat(), vec![vec![]], None);
        assert!(result.unwrap_err().reason.contains("no such stream"));
    }

    #[test]
    fn a_request_may_be_taken_out_of_order_where_the_file_says_so() {
        let body = r#"{"gets":{"method":"POST","body":{"n":2}}"#;
        let posts = || vec![vec![post(1, r#"{"n":1}"#), post(2, r#"{"n":2}"#)]];
        let first = r#"{"gets":{"method":"POST","body":{"n":1}}}"#;
        let any_order = format!("{body},\"any_order\":true}}");
        run(&[r#"{"editor":1}"#, &any_order, first], posts(), None).0.unwrap();
        let in_order = format!("{body}}}");
        let (line, text) = reason(&[r#"{"editor":1}"#, &in_order, first], posts());
        assert!(line == 3 && text.contains("/n is 1, not 2"), "{text}");
    }

    #[test]
    fn headers_are_matched_by_value_presence_and_absence() {
        let gets = |headers: &str| format!(r#"{{"gets":{{"method":"GET","headers":{headers}}}}}"#);
        let good = gets(r#"{"Acp-Connection-Id":"c1","Accept":"*","Last-Event-ID":null}"#);
        run(&[r#"{"editor":1}"#, &good], vec![vec![open(1)]], None).0.unwrap();
        for bad in [r#"{"accept":null}"#, r#"{"cookie":"*"}"#, r#"{"acp-connection-id":"c2"}"#] {
            let (_, text) = reason(&[r#"{"editor":1}"#, &gets(bad)], vec![vec![open(1)]]);
            assert!(text.contains("the header"), "{bad}: {text}");
        }
    }

    #[test]
    fn an_older_stream_is_named_by_its_get() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"gets":{"method":"GET"},"as":"old"}"#,
            r#"{"editor":2}"#,
            r#"{"stream":null,"data":"new"}"#,
            r#"{"stream":null,"of":"old","data":"old"}"#,
            r#"{"gets":{"method":"GET"}}"#,
        ];
        let (result, seen) = run(&steps, vec![vec![open(1)], vec![], vec![open(2)]], None);
        result.unwrap();
        let said = |word: &str, generation: &str| {
            seen.iter().any(|event| event.contains(word) && event.contains(generation))
        };
        assert!(
            said(r#"b"new""#, "Generation(2)") && said(r#"b"old""#, "Generation(1)"),
            "{seen:?}"
        );
    }

    #[test]
    fn nothing_is_said_on_what_is_no_socket_yet_or_no_stream() {
        let header = r#"{"transcript":1,"name":"n","rules":["W1"],"flags":["--transport","ws"]}"#;
        let asked = [r#"{"editor":1}"#, r#"{"gets":{"method":"GET"},"as":"w"}"#];
        let message = r#"{"socket":"w","message":{"id":1,"result":{}}}"#;
        let reason = |steps: &[&str]| {
            let text = [&[header], &asked[..], steps].concat().join("\n");
            let transcript = Transcript::parse(&text).unwrap();
            let script = Script { steps: vec![vec![post(1, "1")]].into(), ..Script::default() };
            let settings = settings(&["--transport=ws".to_owned()]).unwrap();
            let mut stage = VirtualStage::new(Machine::Script(script), &settings);
            player::play(&transcript, &mut stage).map_err(|failure| failure.reason)
        };
        let opened = r#"{"answers":"w","status":101}"#;
        let heard = r#"{"gets":{"frame":"text","body":1}}"#;
        assert_eq!(reason(&[opened, message, heard]), Ok(()));
        let refused = r#"{"answers":"w","status":404}"#;
        for steps in [&[message][..], &[refused, message]] {
            assert!(reason(steps).unwrap_err().contains("was not answered with 101"), "{steps:?}");
        }
        let event = r#"{"stream":null,"of":"w","data":"1"}"#;
        assert!(reason(&[opened, event]).unwrap_err().contains("asks for a socket"));
    }

    #[test]
    fn an_answer_that_hangs_never_comes() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"gets":{"method":"POST"},"answer":{"how":"hang"}}"#,
            r#"{"pass":"1h"}"#,
        ];
        let (result, seen) = run(&steps, vec![vec![post(1, "1")]], None);
        result.unwrap();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn x1_the_log_is_asked_for_what_it_has_and_lacks() {
        let logged = || vec![vec![Effect::Log(crate::core::Level::Debug, "a word".to_owned())]];
        let ask = |step: &str| run(&[r#"{"editor":1}"#, step], logged(), None).0.is_ok();
        assert!(ask(r#"{"log_has":"word"}"#) && ask(r#"{"log_lacks":"sword"}"#));
        assert!(!ask(r#"{"log_has":"sword"}"#) && !ask(r#"{"log_lacks":"word"}"#));
    }

    #[test]
    fn a_remote_that_is_down_refuses_and_cuts() {
        let steps = [
            r#"{"editor":1}"#,
            r#"{"gets":{"method":"POST"},"as":"p"}"#,
            r#"{"gets":{"method":"GET"}}"#,
            r#"{"remote":"down"}"#,
            r#"{"editor":2}"#,
            r#"{"quiet":true}"#,
        ];
        let answers =
            vec![vec![open(1), post(1, "1")], vec![], vec![], vec![], vec![post(2, "2"), open(2)]];
        let (result, seen) = run(&steps, answers, None);
        result.unwrap();
        let wanted = [
            "Opened",
            "Ended(Broken",
            "PostId(1), Broken",
            "Line",
            "PostId(2), Unsent",
            "Failed(Unsent",
        ];
        for (found, wanted) in seen[1..].iter().zip(wanted) {
            assert!(found.contains(wanted), "{found}");
        }
    }

    #[test]
    fn time_goes_on_as_far_as_a_step_lets_it() {
        let steps = [r#"{"editor":1}"#, r#"{"sees":1,"within":"500ms"}"#];
        let answers = || vec![vec![], vec![line("1")]];
        run(&steps, answers(), Some(500)).0.unwrap();
        assert!(run(&steps, answers(), Some(501)).0.is_err());
        let steps = [
            r#"{"editor":1}"#,
            r#"{"pass":"499ms"}"#,
            r#"{"quiet":true}"#,
            r#"{"pass":"1ms"}"#,
            r#"{"sees":1}"#,
        ];
        run(&steps, answers(), Some(500)).0.unwrap();
        assert_eq!(run(&steps, answers(), Some(499)).0.unwrap_err().line, 4);
    }

    #[test]
    fn the_api_is_asked_again_until_its_answer_is_right_or_the_time_is_over() {
        let reply = |reply| vec![Effect::Reply(Ticket(0), reply)];
        let (busy, closed) = (roster::Reply::Busy, roster::Reply::Closed);
        let answers = || vec![vec![], reply(busy.clone()), vec![], reply(closed.clone())];
        let ask = |expected: &str, within: &str, deadline| {
            let step = format!(r#"{{"api":{{"close":"s1"}},"expect":"{expected}"{within}}}"#);
            run(&[r#"{"editor":1}"#, &step], answers(), Some(deadline)).0.map_err(|it| it.reason)
        };
        let within = r#","within":"500ms""#;
        assert_eq!(ask("closed", within, 500), Ok(()));
        assert_eq!(ask("busy", "", 500), Ok(()));
        assert!(ask("closed", within, 501).unwrap_err().contains(r#"got:      "busy""#));
        assert!(ask("closed", "", 500).unwrap_err().contains(r#"got:      "busy""#));
        // What was closed stays so.
        assert!(ask("unknown", r#","within":"1h""#, 500).unwrap_err().contains(r#""closed""#));
    }

    #[test]
    fn the_exit_is_awaited_and_the_last_thing() {
        let steps = [r#"{"editor_end":true}"#, r#"{"exit":0}"#];
        run(&steps, vec![vec![Effect::Exit]], None).0.unwrap();
        assert!(reason(&steps, vec![]).1.contains("still runs"));
        assert!(reason(&steps, vec![vec![Effect::Exit, line("1")]]).1.contains("after the exit"));
    }

    #[test]
    fn flags_become_settings() {
        let flags =
            ["--hold=300ms", "--http", "2", "--post-timeout", "2s", "--max-message-bytes", "4KiB"];
        let settings = settings(&flags.map(str::to_owned)).unwrap();
        assert_eq!(settings.hold, Millis(300));
        assert_eq!(settings.post_timeout, Millis(2_000));
        assert_eq!(settings.max_message_bytes, 4096);
    }
}
