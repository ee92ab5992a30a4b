//! Decides what a recording says: turns what the core is told and what it does into the steps of a
//! transcript, as it happens and without I/O.
//!
//! A step is written in a form that both players can play. What the network decides, and no play can
//! repeat, is written as what it meant: a GET that could not be sent is one that broke; a remote that
//! cannot be reached for `initialize` is `down`; another POST that could not be sent is refused with
//! 429; the silence of a stream that had heartbeats or of a socket, and the sleep of the machine, are
//! streams that are cut; a ping is a comment. Time passes only where a timer of the core fired: what
//! follows waits for it, as long as a play has to, in which everything else comes at once.

mod socket;

use super::player::called;
use super::redact::{self, Placeholders};
use crate::core::message::{self, Message};
use crate::core::requests::OWN_REQUEST;
use crate::core::roster::{Inquiry, Reply, Ticket};
use crate::core::socket::{Close, Transport};
use crate::core::{
    Effect, End, Event, Generation, Millis, Open, Outcome, Post, PostId, Response, SessionId,
    Settings, StreamEvent, StreamId, limits,
};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};

/// What a GET may wait for in a play: a stream that lived for hours ends at once there, and its next
/// one has to wait for the longest backoff.
const REOPENED: Millis = Millis(20_000);
/// What the exit may wait for (S7).
const EXIT: Millis = Millis(3_000);
/// Messages of the remote that the editor has not seen, of which the last are kept.
const UNSEEN: usize = 4_096;
/// How ids of ours begin, as they stand in a message.
const OWN: &str = "acp-tether-";
/// Stands for anything in a message that a step expects.
const ANYTHING: &str = "\"*\"";

/// A recording under way.
#[derive(Debug, Default)]
pub struct Recording {
    /// All content is recorded; otherwise placeholders stand for what nobody may see.
    shows_content: bool,
    placeholders: Placeholders,
    limit: usize,
    /// The steps that were not taken yet.
    text: String,
    /// What the core is being told, where that decides what its effects mean.
    cause: Cause,
    /// Calls of the editor that are served: what they ask for a play asks for by itself.
    calls: BTreeMap<Ticket, Inquiry>,
    time: Time,
    /// The streams that were asked for and did not end.
    streams: BTreeMap<Generation, Stream>,
    /// The streams that were asked for as the connection was ended.
    never_read: BTreeSet<Generation>,
    deletes: u32,
    /// The connection of an `initialize` whose answer has begun.
    half_open: Option<Bytes>,
    /// Ids of ours that a play has saved.
    saved: BTreeSet<String>,
    /// The POSTs under way.
    posts: BTreeSet<PostId>,
    /// One socket in place of POSTs and streams.
    is_socket: bool,
    /// Messages that a play gets on the socket once they were written, by their POSTs.
    unwritten: BTreeMap<PostId, String>,
    /// When the socket was asked whether it lives, until it says something.
    pinged: Option<Millis>,
    /// The `initialize` that a play got last.
    initializing: Option<PostId>,
    /// The remote cannot be reached, in a play either.
    is_down: bool,
    /// Requests that were made meanwhile, by their names; a play gets only those that reach it.
    unreached: BTreeMap<String, String>,
    /// POSTs that could not be sent were written as refused: what became of them is not exact.
    is_approximate: bool,
    /// The editor is gone: streams are closed because of that.
    is_leaving: bool,
    /// Where the last input came from, if nothing followed from it that a play could wait for.
    unnoticed: Option<Channel>,
    hasher: RandomState,
    unseen: VecDeque<u64>,
}

/// What a recording knows of a stream.
#[derive(Debug)]
struct Stream {
    session: Option<SessionId>,
    is_open: bool,
    /// When it was last heard.
    heard: Millis,
    /// When its last heartbeat came, and how long after the one before; nothing came between.
    beat: Option<Millis>,
    interval: Option<u64>,
}

impl Stream {
    /// Whether its silence may mean that it is dead (L11).
    fn is_silent(&self, Millis(now): Millis) -> bool {
        let silence = now.saturating_sub(self.heard.0);
        self.interval.is_some_and(|interval| silence >= limits::SILENCE_LEAST.0.max(3 * interval))
    }
}

/// Bytes as a step shows them.
enum Shown {
    Message(String),
    /// What is no JSON message, or would not stay the same as one.
    Text(String),
    Bytes(Vec<u8>),
}

/// How long a play waits for what the timers of the core do.
#[derive(Debug, Default)]
struct Time {
    /// The core's next timer.
    deadline: Option<Millis>,
    /// What the clock of a play says, and what the real one said when it was last known to say so.
    clock: Millis,
    known: Millis,
    /// What the clock of a play says when a timer is due, by the real time of that.
    due: BTreeMap<Millis, Millis>,
    /// No timer is longer.
    longest: Millis,
}

impl Time {
    fn new(settings: &Settings) -> Self {
        let Settings { hold, connect_timeout, post_timeout, orphan_timeout, .. } = settings;
        let times = [*hold, *connect_timeout, *post_timeout, *orphan_timeout];
        let longest = times.into_iter().fold(limits::RETRY_AFTER_CAP, Millis::max);
        Self { longest, ..Self::default() }
    }

    /// How long a play waits for the timers that are due, if any is; the clock of the play goes on.
    fn pass(&mut self, now: Millis) -> Option<Millis> {
        let Some(deadline) = self.deadline else {
            self.known = now;
            return None;
        };
        let late = now.0.checked_sub(deadline.0)?;
        let due = self.due.get(&deadline).map_or(0, |due| due.0);
        let wait = sum(Millis(due.saturating_sub(self.clock.0)), Millis(late));
        self.clock = sum(self.clock, wait);
        self.known = now;
        Some(wait)
    }

    /// The core's next timer, from now on. One that comes before the one that was next was set now;
    /// another one may have been set as soon as anything was.
    fn next(&mut self, now: Millis, deadline: Option<Millis>) {
        let before = std::mem::replace(&mut self.deadline, deadline);
        let Some(next) = deadline else { return self.due.clear() };
        self.due = self.due.split_off(&next);
        let is_new = before.is_none_or(|before| next < before);
        let set = if is_new { now } else { self.known };
        let wait = Millis(next.0.saturating_sub(set.0)).min(self.longest);
        self.due.entry(next).or_insert(sum(self.clock, wait));
    }
}

/// What the core is told, as far as it matters to what follows.
#[derive(Debug, Default)]
enum Cause {
    #[default]
    Other,
    Woke,
    Inquiry(Inquiry),
}

/// A way by which something reaches the program. What comes by two ways may arrive in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Editor,
    Post(PostId),
    Stream(Generation),
    Socket,
    Delete,
    Api,
}

/// What becomes of the strings of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strings {
    /// They are what a play sends, or must get as it was sent.
    Sent,
    /// They are in the body of a refusal.
    Refusal,
    /// They are ours: those that would be hidden may be anything.
    Ours,
}

impl Recording {
    /// A recording that begins now.
    pub fn new(shows_content: bool, settings: &Settings) -> Self {
        Self {
            shows_content,
            limit: settings.max_message_bytes,
            time: Time::new(settings),
            is_socket: settings.transport == Transport::WebSocket,
            ..Self::default()
        }
    }

    /// The header of the file. `name` is a sentence, `flags` are those of `connect`, without secrets.
    pub fn header(name: &str, flags: &[String], seed: u64) -> String {
        let (name, flags) = (quoted(name), serde_json::Value::from(flags));
        format!(
            r#"{{"transcript":1,"name":{name},"rules":[],"recorded":true,"flags":{flags},"streams":"manual","seed":{seed}}}"#
        ) + "\n"
    }

    /// The lines of all that was told since the last time.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The core is about to be told this.
    pub fn told(&mut self, now: Millis, event: &Event) {
        self.cause = match event {
            Event::Woke => Cause::Woke,
            Event::Inquiry(_, inquiry) if !self.calls.values().any(|call| call == inquiry) => {
                Cause::Inquiry(inquiry.clone())
            }
            _ => Cause::Other,
        };
        match event {
            Event::Line(line) => {
                let step = self.editor(line);
                self.input(Channel::Editor, &step);
            }
            Event::LineTooLong => {
                let times = self.limit.saturating_add(1);
                self.input(Channel::Editor, &format!(r#"{{"editor_raw":"x","times":{times}}}"#));
            }
            Event::EditorGone => {
                self.is_leaving = true;
                self.input(Channel::Editor, r#"{"editor_end":true}"#);
            }
            Event::Posted(post, outcome) => {
                self.half_open = None;
                self.posted(*post, outcome);
            }
            // An answer that is never whole is not recorded, nor is the end of its connection.
            Event::Named(_, id) => self.half_open = Some(id.clone()),
            // How a close is answered, and how fast a message goes out, is no step.
            Event::Writing(_) => {}
            Event::Deleted(_) if self.is_socket => {}
            Event::Deleted(outcome) => {
                let name = format!("d{}", self.deletes);
                if self.reaches(&name, outcome) {
                    let answer = self.answer(outcome);
                    self.answers(Channel::Delete, &name, &answer);
                }
            }
            Event::Stream(stream, event) => {
                if let Some(known) = self.streams.get_mut(&stream.generation) {
                    known.heard = now;
                    let beat = matches!(event, StreamEvent::Comment).then_some(now);
                    let before = std::mem::replace(&mut known.beat, beat);
                    let interval = beat.zip(before).map(|(now, before)| now.0 - before.0);
                    known.interval = interval.or(known.interval);
                }
                match self.is_socket {
                    true => self.on_socket(now, stream, event),
                    false => self.on_stream(stream, event),
                }
            }
            Event::Listening(_) => {
                // A stream is not heard while nobody listens.
                for stream in self.streams.values_mut() {
                    (stream.heard, stream.beat) = (now, None);
                }
            }
            Event::Rpc(ticket, _) => drop(self.calls.remove(ticket)),
            Event::Woke | Event::Inquiry(..) | Event::Timer => {}
        }
    }

    /// The core did this with it, and `deadline` is its next timer.
    pub fn did(&mut self, now: Millis, effects: &[Effect], deadline: Option<Millis>) {
        let pings = effects.iter().any(|effect| matches!(effect, Effect::Ping(_)));
        if pings {
            self.push("// a ping went out");
            self.pinged = Some(now);
        }
        // A play does not wait for pings: an hour in which nothing else happens is none there.
        let is_only_ping = pings
            && effects
                .iter()
                .all(|it| matches!(it, Effect::Ping(_) | Effect::Log(..) | Effect::Changed));
        let waited = if is_only_ping { None } else { self.time.pass(now) };
        self.cut_what_is_dead(now, waited.is_some(), effects);
        if let Cause::Inquiry(inquiry) = &self.cause {
            let reply = effects.iter().find_map(|effect| match effect {
                Effect::Reply(_, reply) => Some(reply),
                _ => None,
            });
            if let Some(step) = asked(inquiry, reply) {
                self.input(Channel::Api, &step);
            }
        }
        // Twice, for the sake of jitter.
        let within =
            waited.map(|Millis(waited)| Millis(waited.saturating_mul(2).saturating_add(2_000)));
        let before = self.text.len();
        let is_end = effects.iter().any(|effect| matches!(effect, Effect::Delete(_)));
        for effect in effects {
            match effect {
                Effect::Line(line) => self.sees(line, within),
                Effect::Post(post) => self.post(post, within),
                Effect::Open(open) if self.is_socket => {
                    self.pinged = None;
                    self.opened(now, open, true);
                }
                // It is asked for and given up at once: a play gets it, or does not.
                Effect::Open(open) if is_end => {
                    self.never_read.insert(open.stream.generation);
                }
                Effect::Open(open) => self.open(now, open, within),
                Effect::Delete(connection) if self.half_open.as_ref() == Some(&connection.id) => {}
                Effect::Delete(_) if self.is_socket => {
                    self.step(
                        &format!(r#""gets":{{"frame":"close","code":{}}}"#, Close::NORMAL),
                        within,
                    );
                }
                Effect::Delete(connection) => {
                    self.deletes += 1;
                    let (id, name) = (header(&connection.id), format!("d{}", self.deletes));
                    let gets = format!(
                        r#""gets":{{"method":"DELETE","headers":{{"acp-connection-id":{id}}}}},"as":"{name}""#
                    );
                    self.gets(&name, &gets, within);
                }
                Effect::Close(stream) => {
                    self.streams.remove(&stream.generation);
                    self.unreached.remove(&format!("g{}", stream.generation.0));
                }
                Effect::Abandon(post) => {
                    self.posts.remove(post);
                    self.unreached.remove(&self.name_of_post(*post));
                    // A play has written it, whether it was begun here or not; save with the socket that it asks for.
                    if let Some(step) = self.unwritten.remove(post)
                        && self.initializing != Some(*post)
                    {
                        self.push(&step);
                    }
                }
                Effect::Exit => {
                    self.step(r#""exit":0"#, Some(EXIT));
                    self.text.push_str("{\"quiet\":true}\n");
                }
                Effect::Rpc(ticket, call) => {
                    self.calls.extend(called(call).map(|inquiry| (*ticket, inquiry)));
                }
                Effect::Ping(_) | Effect::Log(..) | Effect::Reply(..) | Effect::Changed => {}
            }
        }
        match waited {
            _ if self.text.len() > before => self.unnoticed = None,
            Some(Millis(waited @ 1..)) => self.push(&format!(r#"{{"pass":"{waited}ms"}}"#)),
            _ => {}
        }
        self.time.next(now, deadline);
    }

    /// Something comes to the program. Where that before it went another way and nothing shows that
    /// it arrived, it gets a moment.
    fn input(&mut self, channel: Channel, step: &str) {
        if self.unnoticed.is_some_and(|before| before != channel) {
            self.give_a_moment();
        }
        self.push(step);
        self.unnoticed = Some(channel);
    }

    fn give_a_moment(&mut self) {
        self.push(r#"{"pass":"40ms"}"#);
        self.time.clock = sum(self.time.clock, Millis(40));
    }

    fn push(&mut self, step: &str) {
        self.text.push_str(step);
        self.text.push('\n');
    }

    fn step(&mut self, members: &str, within: Option<Millis>) {
        self.push(&step(members, within));
    }

    fn editor(&mut self, line: &Bytes) -> String {
        match self.payload(line) {
            Shown::Message(message) => format!(r#"{{"editor":{message}}}"#),
            Shown::Text(text) => format!(r#"{{"editor_raw":{}}}"#, quoted(&text)),
            Shown::Bytes(bytes) => format!(r#"{{"editor_hex":"{}"}}"#, hex(&bytes)),
        }
    }

    /// What names a request in the file; a socket has the name of the one that asks for it.
    fn name_of_post(&self, PostId(post): PostId) -> String {
        format!("{}{post}", if self.is_socket { 'w' } else { 'p' })
    }

    fn posted(&mut self, post: PostId, outcome: &Outcome) {
        let (name, channel) = (self.name_of_post(post), Channel::Post(post));
        self.posts.remove(&post);
        let unwritten = self.unwritten.remove(&post);
        if self.is_socket && self.initializing != Some(post) {
            return match outcome {
                Outcome::Unsent(_) => {}
                _ => self.written(unwritten),
            };
        }
        if !self.reaches(&name, outcome) {
            return;
        }
        if let Outcome::Response(response) = outcome {
            self.note_unseen(&response.body);
        }
        let is_unsent = matches!(outcome, Outcome::Unsent(_));
        if is_unsent && self.initializing == Some(post) {
            // It is cut there, which means the same to `initialize` (L3).
            self.is_down = true;
            return self.input(channel, r#"{"remote":"down"}"#);
        }
        match outcome {
            Outcome::Response(response) if response.status == 101 => {
                self.socket_opened(&name, response.connection_id.as_ref(), unwritten);
                let does = match response.truncated {
                    true => self.too_large(),
                    false => self.message_on_socket(&response.body),
                };
                return self.does(&name, &does);
            }
            Outcome::Closed(close) => {
                self.socket_opened(&name, None, unwritten);
                let does = self.close(close);
                return self.does(&name, &does);
            }
            _ => {}
        }
        let answer = self.answer(outcome);
        self.answers(channel, &name, &answer);
        if is_unsent {
            // Where nothing else is under way that this would cut, the next ones cannot be sent.
            self.is_down = self.posts.is_empty() && self.streams.is_empty();
            self.is_approximate |= !self.is_down;
            if self.is_down {
                self.push(r#"{"remote":"down"}"#);
            }
        }
    }

    /// Whether a play gets this request, now that it is known what became of it.
    fn reaches(&mut self, name: &str, outcome: &Outcome) -> bool {
        match (self.unreached.remove(name), outcome) {
            (Some(_), Outcome::Unsent(_)) => false,
            (Some(gets), _) => {
                self.push(r#"{"remote":"up"}"#);
                self.is_down = false;
                self.push(&gets);
                self.unnoticed = None;
                true
            }
            (None, _) => true,
        }
    }

    fn answers(&mut self, channel: Channel, name: &str, answer: &str) {
        self.input(channel, &format!(r#"{{"answers":"{name}",{answer}}}"#));
    }

    /// An outcome, as the members of an answer.
    fn answer(&mut self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Response(response) => self.response(response, None),
            Outcome::NoCredential(_) => r#""status":403"#.to_owned(),
            Outcome::Unsent(_) => r#""status":429"#.to_owned(),
            Outcome::Broken(_) | Outcome::Closed(_) => r#""how":"broken""#.to_owned(),
            Outcome::Redirected { status, .. } => {
                format!(r#""status":{status},"headers":{{"location":"http://elsewhere.invalid/"}}"#)
            }
        }
    }

    fn response(&mut self, response: &Response, event_epoch: Option<&str>) -> String {
        let mut headers = BTreeMap::new();
        if !response.content_type.is_empty() || response.status == 200 {
            headers.insert("content-type", response.content_type.clone());
        }
        if let Some(id) = &response.connection_id {
            headers.insert("acp-connection-id", String::from_utf8_lossy(id).into_owned());
        }
        if let Some(Millis(after)) = response.retry_after {
            headers.insert("retry-after", after.div_ceil(1_000).to_string());
        }
        if let Some(epoch) = event_epoch {
            headers.insert("x-event-epoch", epoch.to_owned());
        }
        let mut answer = format!(r#""status":{}"#, response.status);
        if !headers.is_empty() {
            // A map of strings always becomes JSON.
            let headers = serde_json::to_string(&headers).unwrap_or_default();
            let _ = write!(answer, r#","headers":{headers}"#);
        }
        if response.body.is_empty() {
            return answer;
        }
        let strings = if response.status < 300 { Strings::Sent } else { Strings::Refusal };
        match self.message(&response.body, strings) {
            Some(body) if !response.truncated => {
                let _ = write!(answer, r#","body":{body}"#);
            }
            _ => {
                let mut shown = match self.shows_content {
                    true => response.body.to_vec(),
                    false => redact::bytes(&response.body, strings == Strings::Refusal),
                };
                // What was not read of it is one byte here.
                shown.extend(response.truncated.then_some(b'x'));
                let text = quoted(&String::from_utf8_lossy(&shown));
                let _ = write!(answer, r#","text":{text}"#);
            }
        }
        answer
    }

    fn on_stream(&mut self, id: &StreamId, event: &StreamEvent) {
        let channel = Channel::Stream(id.generation);
        let name = format!("g{}", id.generation.0);
        let session = name_of(id.session.as_ref());
        let on = format!(r#""stream":{session},"of":"{name}""#);
        let first = match event {
            StreamEvent::Failed(outcome) => outcome.clone(),
            _ => Outcome::Response(Response::default()),
        };
        if self.never_read.contains(&id.generation) || !self.reaches(&name, &first) {
            self.streams.remove(&id.generation);
            return;
        }
        let does = match event {
            StreamEvent::Opened { event_epoch } => {
                if let Some(stream) = self.streams.get_mut(&id.generation) {
                    stream.is_open = true;
                }
                let epoch = event_epoch.as_ref();
                let epoch = epoch.map(|epoch| self.words(&String::from_utf8_lossy(epoch)));
                let opened = Response {
                    status: 200,
                    content_type: "text/event-stream".to_owned(),
                    ..Response::default()
                };
                let answer = self.response(&opened, epoch.as_deref());
                return self.answers(channel, &name, &answer);
            }
            StreamEvent::Refused(response) => {
                self.streams.remove(&id.generation);
                let answer = self.response(response, None);
                return self.answers(channel, &name, &answer);
            }
            StreamEvent::Failed(outcome) => {
                self.streams.remove(&id.generation);
                let answer = match outcome {
                    Outcome::Unsent(_) => r#""how":"broken""#.to_owned(),
                    outcome => self.answer(outcome),
                };
                return self.answers(channel, &name, &answer);
            }
            StreamEvent::Ended(end) => {
                self.streams.remove(&id.generation);
                match end {
                    End::Clean => r#""end":"clean""#.to_owned(),
                    End::Broken(_) | End::Closed(_) => {
                        if self.unnoticed.take().is_some() {
                            // A reset overtakes what was sent before it.
                            self.give_a_moment();
                        }
                        r#""end":"reset""#.to_owned()
                    }
                }
            }
            StreamEvent::Comment => return,
            StreamEvent::Retry(Millis(delay)) => format!(r#""raw":"retry: {delay}\n\n""#),
            StreamEvent::TooLarge => {
                self.input(channel, &format!(r#"{{{on},"raw":"data: "}}"#));
                let times = self.limit.saturating_add(1);
                self.input(channel, &format!(r#"{{{on},"raw":"x","times":{times}}}"#));
                r#""raw":"\n\n""#.to_owned()
            }
            StreamEvent::Message { data, id } => self.event(data.as_ref(), id.as_ref()),
        };
        self.input(channel, &format!("{{{on},{does}}}"));
    }

    /// An event of a stream, as the members of a step.
    fn event(&mut self, data: Option<&Bytes>, id: Option<&Bytes>) -> String {
        if let Some(data) = data {
            self.note_unseen(data);
        }
        let id_member = match id.map(|id| std::str::from_utf8(id)).transpose() {
            Ok(id) => id.map(|id| format!(r#","id":{}"#, quoted(id))).unwrap_or_default(),
            Err(_) => return self.event_in_bytes(data, id),
        };
        let Some(data) = data else {
            return id_member.trim_start_matches(',').to_owned();
        };
        match self.payload(data) {
            Shown::Message(message) => format!(r#""event":{message}{id_member}"#),
            Shown::Text(text) => format!(r#""data":{}{id_member}"#, quoted(&text)),
            Shown::Bytes(_) => self.event_in_bytes(Some(data), id),
        }
    }

    /// What is sent, as a step shows it.
    fn payload(&mut self, data: &Bytes) -> Shown {
        let is_line = memchr::memchr(b'\n', data).is_none() || self.refers(data);
        if is_line
            && !has_reference(data)
            && let Some(message) = self.message(data, Strings::Sent)
        {
            return Shown::Message(message);
        }
        match String::from_utf8(self.shown(data)) {
            Ok(text) => Shown::Text(text),
            Err(error) => Shown::Bytes(error.into_bytes()),
        }
    }

    /// The same, of which not all is text.
    fn event_in_bytes(&mut self, data: Option<&Bytes>, id: Option<&Bytes>) -> String {
        let mut event = Vec::new();
        let data = data.map(|data| self.shown(data));
        for (field, value) in [("id: ", id.map(|id| id.to_vec())), ("data: ", data)] {
            for line in value.iter().flat_map(|value| value.split(|byte| *byte == b'\n')) {
                event.extend_from_slice(field.as_bytes());
                event.extend_from_slice(line);
                event.push(b'\n');
            }
        }
        event.push(b'\n');
        format!(r#""hex":"{}""#, hex(&event))
    }

    fn sees(&mut self, line: &Bytes, within: Option<Millis>) {
        let read = message::read(line);
        let id = match &read {
            Ok(Message::Request { id, .. } | Message::Answer { id, .. }) => Some(*id),
            _ => None,
        };
        let is_passed_on = self.forget_unseen(line);
        let step = match (&read, id) {
            // A question, which has an id of ours.
            (Ok(Message::Request { .. }), Some(id)) if is_passed_on => {
                let name = id.raw().trim_matches('"').to_owned();
                let line = message::with_id(line, id, ANYTHING);
                let message = self.message(&line, Strings::Sent).unwrap_or_default();
                let save = quoted(&name);
                self.saved.insert(name);
                format!(r#""sees_like":{message},"save":{save}"#)
            }
            (Ok(_), _) if is_passed_on => {
                let message = self.message(line, Strings::Sent).unwrap_or_default();
                format!(r#""sees":{message}"#)
            }
            (Ok(Message::Answer { is_error, .. }), Some(id)) => {
                let error = if *is_error { self.own_error(line) } else { String::new() };
                let like = format!(r#"{{"jsonrpc":"2.0","id":{}{error}}}"#, id.raw());
                let like = self.message(like.as_bytes(), Strings::Ours).unwrap_or_default();
                format!(r#""sees_like":{like}"#)
            }
            _ => {
                let message = self.message(line, Strings::Ours).unwrap_or_default();
                format!(r#""sees_like":{message}"#)
            }
        };
        self.step(&step, within);
    }

    /// What an error of ours must have: not the words for people, in which the network has a say.
    fn own_error(&self, line: &Bytes) -> String {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            error: Error<'a>,
        }
        #[derive(Deserialize)]
        struct Error<'a> {
            #[serde(borrow)]
            code: &'a RawValue,
            data: Option<Data<'a>>,
        }
        #[derive(Deserialize)]
        struct Data<'a> {
            #[serde(borrow)]
            kind: Option<&'a RawValue>,
            #[serde(borrow)]
            status: Option<&'a RawValue>,
            #[serde(borrow)]
            delivery: Option<&'a RawValue>,
        }
        let Ok(Answer { error }) = serde_json::from_slice::<Answer<'_>>(line) else {
            return String::new();
        };
        let members = error.data.filter(|_| !self.is_approximate).map(|data| {
            let members =
                [("kind", data.kind), ("status", data.status), ("delivery", data.delivery)];
            let members = members.into_iter().filter_map(|(name, value)| {
                value.map(|value| format!(r#""{name}":{}"#, value.get()))
            });
            format!(r#","data":{{{}}}"#, members.collect::<Vec<_>>().join(","))
        });
        format!(r#","error":{{"code":{}{}}}"#, error.code, members.unwrap_or_default())
    }

    fn post(&mut self, post: &Post, within: Option<Millis>) {
        let id = post.connection.as_ref().map_or("null".to_owned(), |it| header(&it.id));
        let own = match message::read(&post.body) {
            Ok(Message::Request { id, .. })
                if id.raw().starts_with(&format!("\"{OWN_REQUEST}")) =>
            {
                Some(id)
            }
            _ => None,
        };
        let (body, save) = match own {
            Some(id) => {
                let name = id.raw().trim_matches('"').to_owned();
                let body = message::with_id(&post.body, id, ANYTHING);
                let body = self.message(&body, Strings::Sent).unwrap_or_default();
                let save = format!(r#","save":{}"#, quoted(&name));
                self.saved.insert(name);
                (format!(r#""body_like":{body}"#), save)
            }
            None => {
                let body = self.message(&post.body, Strings::Sent).unwrap_or_default();
                (format!(r#""body":{body}"#), String::new())
            }
        };
        self.posts.insert(post.id);
        if post.connection.is_none() {
            self.initializing = Some(post.id);
        }
        let name = self.name_of_post(post.id);
        if self.is_socket {
            let gets = format!(r#""gets":{{"frame":"text",{body}}}{save}"#);
            self.unwritten.insert(post.id, step(&gets, within));
            if post.connection.is_none() {
                let asks = r#""method":"GET","headers":{"upgrade":"websocket"}"#;
                let asks = format!(r#""gets":{{{asks}}},"as":"{name}""#);
                self.gets(&name, &asks, Some(within.unwrap_or(REOPENED).max(REOPENED)));
            }
            return;
        }
        let session = name_of(post.session.as_ref());
        let gets = format!(
            r#""gets":{{"method":"POST","session":{session},"headers":{{"acp-connection-id":{id}}},{body}}},"any_order":true,"as":"{name}"{save}"#
        );
        self.gets(&name, &gets, within);
    }

    fn gets(&mut self, name: &str, gets: &str, within: Option<Millis>) {
        if self.is_down {
            let Millis(within) = within.unwrap_or(REOPENED).max(REOPENED);
            self.unreached.insert(name.to_owned(), step(gets, Some(Millis(within))));
        } else {
            self.step(gets, within);
        }
    }

    fn opened(&mut self, now: Millis, open: &Open, is_open: bool) {
        let session = open.stream.session.clone();
        let known = Stream { session, is_open, heard: now, beat: None, interval: None };
        self.streams.insert(open.stream.generation, known);
    }

    fn open(&mut self, now: Millis, open: &Open, within: Option<Millis>) {
        self.opened(now, open, false);
        let Open { stream, connection, cursor, .. } = open;
        let (session, id) = (name_of(stream.session.as_ref()), header(&connection.id));
        let cursor = cursor.as_ref().map_or("null".to_owned(), header);
        let name = format!("g{}", stream.generation.0);
        let gets = format!(
            r#""gets":{{"method":"GET","session":{session},"headers":{{"acp-connection-id":{id},"last-event-id":{cursor}}}}},"as":"{name}""#
        );
        self.gets(&name, &gets, Some(within.unwrap_or(REOPENED).max(REOPENED)));
    }

    /// Streams that the core takes for dead, because they are silent or the machine slept, are cut in
    /// a play: there nothing is silent for so long.
    fn cut_what_is_dead(&mut self, now: Millis, by_timer: bool, effects: &[Effect]) {
        for effect in effects {
            let Effect::Close(id) = effect else { continue };
            let Some(stream) = self.streams.get(&id.generation) else { continue };
            let (number, is_open) = (id.generation.0, stream.is_open);
            let is_silent = self.is_socket || stream.is_silent(now);
            let fell_silent = by_timer && is_open && is_silent && !self.is_leaving;
            let is_dead = fell_silent || matches!(self.cause, Cause::Woke);
            if !is_dead || self.unreached.contains_key(&format!("g{number}")) {
                continue;
            }
            if let Some(post) = self.initializing.filter(|_| self.is_socket) {
                self.cut_socket(&self.name_of_post(post));
                continue;
            }
            let session = name_of(stream.session.as_ref());
            let step = match is_open {
                true => format!(r#"{{"stream":{session},"of":"g{number}","end":"reset"}}"#),
                false => format!(r#"{{"answers":"g{number}","how":"broken"}}"#),
            };
            self.input(Channel::Stream(id.generation), &step);
        }
    }

    /// A message as a step shows it, on one line; `None` where it is no JSON.
    fn message(&mut self, bytes: &[u8], strings: Strings) -> Option<String> {
        let text = std::str::from_utf8(bytes).ok()?;
        let _: &RawValue = serde_json::from_str(text).ok()?;
        // In JSON, line ends can stand between strings only.
        let text = match memchr::memchr2(b'\n', b'\r', bytes) {
            Some(_) => Cow::from(text.replace(['\n', '\r'], " ")),
            None => Cow::from(text),
        };
        let (placeholders, shows_content) = (&mut self.placeholders, self.shows_content);
        let shown = match (shows_content, strings) {
            (_, Strings::Ours) => redact::each_string(&text, |token| match token.is_name {
                _ if token.may_stay() => None,
                false => Some(ANYTHING.to_owned()),
                true if shows_content => None,
                true => Some(format!("\"{}\"", placeholders.of(token.raw, false))),
            }),
            (false, _) => redact::json(&text, placeholders, strings == Strings::Refusal),
            (true, _) => redact::without_secrets(&text).replace("{\"$ref\"", "{ \"$ref\""),
        };
        if memchr::memmem::find(shown.as_bytes(), OWN.as_bytes()).is_none() {
            return Some(shown);
        }
        let saved = &self.saved;
        Some(redact::each_string(&shown, |token| {
            let is_saved = !token.is_name && token.may_stay() && saved.contains(token.raw);
            if is_saved {
                return Some(format!("{{\"$ref\":\"{}\"}}", token.raw));
            }
            let is_unknown = strings == Strings::Ours && token.raw.starts_with(OWN);
            is_unknown.then(|| ANYTHING.to_owned())
        }))
    }

    /// Whether a message names an id of ours.
    fn refers(&self, bytes: &[u8]) -> bool {
        !self.saved.is_empty() && memchr::memmem::find(bytes, OWN.as_bytes()).is_some()
    }

    /// Words of the remote as they may be shown.
    fn words(&mut self, text: &str) -> String {
        match self.shows_content {
            true => text.to_owned(),
            false => self.placeholders.of(text, false),
        }
    }

    /// Bytes as they may be shown: JSON by its strings, anything else byte by byte.
    fn shown(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.shows_content {
            return bytes.to_vec();
        }
        let json = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
        match json {
            Some(text) => redact::json(text, &mut self.placeholders, false).into_bytes(),
            None => redact::bytes(bytes, false),
        }
    }

    fn note_unseen(&mut self, message: &Bytes) {
        if self.unseen.len() == UNSEEN {
            self.unseen.pop_front();
        }
        let key = self.key(message);
        self.unseen.push_back(key);
    }

    /// Whether a line is a message of the remote. That message is seen with it.
    fn forget_unseen(&mut self, line: &Bytes) -> bool {
        let key = self.key(line);
        let place = self.unseen.iter().rposition(|unseen| *unseen == key);
        place.is_some_and(|place| self.unseen.remove(place).is_some())
    }

    /// What a message and the line that it becomes have in common.
    fn key(&self, message: &Bytes) -> u64 {
        let line = message::as_line(message.clone());
        let line = match message::read(&line) {
            Ok(Message::Request { id, .. }) => message::with_id(&line, id, "0"),
            _ => line,
        };
        self.hasher.hash_one(&line)
    }
}

fn step(members: &str, within: Option<Millis>) -> String {
    let within = within.map(|Millis(within)| format!(r#","within":"{within}ms""#));
    format!("{{{members}{}}}", within.unwrap_or_default())
}

fn sum(Millis(one): Millis, Millis(other): Millis) -> Millis {
    Millis(one.saturating_add(other))
}

/// What a person asks for, as a step.
fn asked(inquiry: &Inquiry, reply: Option<&Reply>) -> Option<String> {
    match (inquiry, reply) {
        // It changes nothing.
        (Inquiry::Status, _) => None,
        (Inquiry::Reconnect, _) => Some(r#"{"api":"reconnect"}"#.to_owned()),
        (Inquiry::Close(SessionId(id)), reply) => {
            let expected = match reply? {
                Reply::Closed => "closed",
                Reply::Unknown => "unknown",
                Reply::Busy => "busy",
                Reply::Status(_) | Reply::Reconnecting => return None,
            };
            Some(format!(r#"{{"api":{{"close":{}}},"expect":"{expected}"}}"#, quoted(id)))
        }
    }
}

/// Whether a message has in it what stands for a saved id in a step.
fn has_reference(message: &[u8]) -> bool {
    memchr::memmem::find(message, b"{\"$ref\"").is_some()
}

fn name_of(session: Option<&SessionId>) -> String {
    session.map_or("null".to_owned(), |SessionId(id)| quoted(id))
}

/// The value of a header of the protocol, as a step expects it.
fn header(value: &Bytes) -> String {
    std::str::from_utf8(value).map_or(ANYTHING.to_owned(), quoted)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::core::{Connection, Epoch};
    use crate::transcript::format::Transcript;

    fn recording() -> Recording {
        Recording::new(false, &settings())
    }

    pub(super) fn settings() -> Settings {
        Settings { max_message_bytes: 1_024, ..Settings::default() }
    }

    /// What is written of an event and of what followed from it; a timer is the core's last.
    pub(super) fn steps(
        recording: &mut Recording,
        now: u64,
        event: &Event,
        effects: &[Effect],
    ) -> Vec<String> {
        if matches!(event, Event::Timer) {
            recording.time.next(Millis(0), Some(Millis(now)));
        }
        steps_until(recording, now, event, effects, None)
    }

    /// The same, with the core's next timer.
    pub(super) fn steps_until(
        recording: &mut Recording,
        now: u64,
        event: &Event,
        effects: &[Effect],
        deadline: Option<u64>,
    ) -> Vec<String> {
        recording.told(Millis(now), event);
        recording.did(Millis(now), effects, deadline.map(Millis));
        let text = recording.take();
        Transcript::parse_steps(&text).unwrap_or_else(|refused| panic!("{refused}\n{text}"));
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn line(text: &'static str) -> Event {
        Event::Line(Bytes::from_static(text.as_bytes()))
    }

    pub(super) fn post(id: u64, connection: Option<&'static str>, body: &'static str) -> Effect {
        let connection = connection
            .map(|id| Connection { id: Bytes::from_static(id.as_bytes()), version: None });
        Effect::Post(Post {
            id: PostId(id),
            connection,
            session: None,
            renew_credential: false,
            body: Bytes::from_static(body.as_bytes()),
        })
    }

    pub(super) fn stream(generation: u64) -> StreamId {
        StreamId { session: None, epoch: Epoch(1), generation: Generation(generation) }
    }

    pub(super) fn open(generation: u64) -> Effect {
        Effect::Open(Open {
            stream: stream(generation),
            connection: Connection { id: Bytes::from_static(b"c"), version: None },
            cursor: None,
            renew_credential: false,
        })
    }

    pub(super) fn on(generation: u64, event: StreamEvent) -> Event {
        Event::Stream(stream(generation), event)
    }

    pub(super) fn message(data: &'static [u8]) -> Event {
        on(1, StreamEvent::Message { data: Some(Bytes::from_static(data)), id: None })
    }

    pub(super) fn unsent(post: u64) -> Event {
        Event::Posted(PostId(post), Outcome::Unsent("why".to_owned()))
    }

    #[test]
    fn l3_while_the_remote_cannot_be_reached_a_play_gets_only_the_initialize_that_reaches_it() {
        let mut recording = recording();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        let first = steps(&mut recording, 0, &line(body), &[post(1, None, body)]);
        assert!(first[0].starts_with(r#"{"editor":"#) && first[1].starts_with(r#"{"gets":"#));
        assert_eq!(steps(&mut recording, 1, &unsent(1), &[]), [r#"{"remote":"down"}"#]);
        assert!(
            steps(&mut recording, 9, &Event::Timer, &[post(2, None, body)])[0].contains("pass")
        );
        assert!(steps(&mut recording, 10, &unsent(2), &[]).is_empty());
        steps(&mut recording, 20, &Event::Timer, &[post(3, None, body)]);
        let answered = Event::Posted(PostId(3), Outcome::Broken("why".to_owned()));
        let back = steps(&mut recording, 21, &answered, &[]);
        assert_eq!(back[0], r#"{"remote":"up"}"#);
        assert!(
            back[1].contains(r#""as":"p3""#) && back[2].contains(r#""answers":"p3""#),
            "{back:?}"
        );
    }

    #[test]
    fn a_stream_that_is_asked_for_as_the_connection_ends_is_not_waited_for() {
        let mut recording = recording();
        let connection = Connection { id: Bytes::from_static(b"c"), version: None };
        let effects = [open(1), Effect::Delete(connection)];
        let steps = steps(&mut recording, 0, &Event::EditorGone, &effects);
        assert!(steps.iter().all(|step| !step.contains("GET")), "{steps:?}");
        assert!(steps.iter().any(|step| step.contains("DELETE")), "{steps:?}");
    }

    #[test]
    fn a_reset_comes_a_moment_after_what_nothing_shows_to_have_arrived() {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[open(1)]);
        steps(&mut recording, 0, &on(1, StreamEvent::Opened { event_epoch: None }), &[]);
        let id = Some(Bytes::from_static(b"7"));
        steps(&mut recording, 0, &on(1, StreamEvent::Message { data: None, id }), &[]);
        let reset = StreamEvent::Ended(End::Broken("reset".to_owned()));
        let steps = steps(&mut recording, 0, &on(1, reset), &[]);
        assert!(steps[0].contains("pass") && steps[1].contains("reset"), "{steps:?}");
    }

    #[test]
    fn l10_a_post_that_could_not_be_sent_is_one_that_is_refused_for_the_moment() {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[open(1), post(1, Some("c"), "{}")]);
        let refused = steps(&mut recording, 1, &unsent(1), &[]);
        assert_eq!(refused, [r#"{"answers":"p1","status":429}"#]);
    }

    /// What is written where a stream is closed at a time, after heartbeats at others.
    fn closed(beats: &[u64], now: u64, event: &Event) -> Vec<String> {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[open(1)]);
        steps(&mut recording, 0, &on(1, StreamEvent::Opened { event_epoch: None }), &[]);
        for beat in beats {
            assert!(steps(&mut recording, *beat, &on(1, StreamEvent::Comment), &[]).is_empty());
        }
        steps(&mut recording, now, event, &[Effect::Close(stream(1)), open(2)])
    }

    #[test]
    fn l11_a_stream_that_is_dead_in_silence_or_after_a_sleep_is_cut() {
        let cut = r#"{"stream":null,"of":"g1","end":"reset"}"#.to_owned();
        for (beats, now, event) in [(&[5, 5_005][..], 20_005, Event::Timer), (&[], 99, Event::Woke)]
        {
            assert!(closed(beats, now, &event).contains(&cut), "{event:?}");
        }
        // Another timer closes what was heard a moment ago.
        for beats in [&[5, 5_005, 12_000][..], &[5]] {
            assert!(!closed(beats, 20_005, &Event::Timer).contains(&cut), "{beats:?}");
        }
    }

    #[test]
    fn l11_a_stream_that_no_play_has_got_is_not_cut() {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[post(1, Some("c"), "{}")]);
        steps(&mut recording, 1, &unsent(1), &[open(1)]);
        assert!(recording.is_down);
        let woke = steps(&mut recording, 9, &Event::Woke, &[Effect::Close(stream(1))]);
        assert_eq!(woke, Vec::<String>::new());
    }

    #[test]
    fn s7_a_play_gets_no_delete_while_the_remote_cannot_be_reached() {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[post(1, Some("c"), "{}")]);
        let delete = Effect::Delete(Connection { id: Bytes::from_static(b"c"), version: None });
        assert_eq!(steps(&mut recording, 1, &unsent(1), &[delete]).len(), 2);
        let unsent = Event::Deleted(Outcome::Unsent("why".to_owned()));
        assert!(steps(&mut recording, 2, &unsent, &[]).is_empty());
    }

    #[test]
    fn s7_of_an_initialize_that_is_never_whole_a_play_gets_no_delete() {
        let mut recording = recording();
        steps(&mut recording, 0, &line("{}"), &[post(1, None, "{}")]);
        let id = Bytes::from_static(b"c");
        let named = Event::Named(PostId(1), id.clone());
        assert!(steps(&mut recording, 1, &named, &[]).is_empty());
        let delete = Effect::Delete(Connection { id, version: None });
        let effects = [Effect::Abandon(PostId(1)), delete];
        let given_up = steps(&mut recording, 2, &Event::Timer, &effects);
        assert!(given_up.iter().all(|step| !step.contains("DELETE")), "{given_up:?}");
    }

    fn failed() -> Effect {
        let answer = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x","data":{"kind":"connect"}}}"#;
        Effect::Line(Bytes::from_static(answer.as_bytes()))
    }

    const FAILED: &str = r#"{"sees_like":{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"data":{"kind":"connect"}}},"within":""#;

    #[test]
    fn what_a_timer_does_is_waited_for_as_long_as_it_took() {
        let mut recording = recording();
        let seen = steps(&mut recording, 30_000, &Event::Timer, &[failed()]);
        assert_eq!(seen, [format!("{FAILED}62000ms\"}}")]);
        steps_until(&mut recording, 40_000, &line("{}"), &[], Some(40_500));
        assert_eq!(
            steps_until(&mut recording, 40_500, &Event::Timer, &[], None),
            [r#"{"pass":"500ms"}"#]
        );
    }

    /// A day in which nothing happens but heartbeats, each of which sets a timer anew.
    #[test]
    fn a_timer_is_waited_for_from_when_it_was_set_and_not_from_the_last_one() {
        let mut recording = recording();
        let day = 86_400_000;
        steps_until(&mut recording, 0, &line("{}"), &[], Some(60_000));
        for now in (15_000..=day).step_by(15_000) {
            let beat = on(1, StreamEvent::Comment);
            steps_until(&mut recording, now, &beat, &[], Some(now + 45_000));
        }
        steps_until(&mut recording, day, &line("{}"), &[], Some(day + 250));
        let timer = steps_until(&mut recording, day + 250, &Event::Timer, &[], Some(day + 45_000));
        assert_eq!(timer, [r#"{"pass":"250ms"}"#]);
        // One that was hidden behind others may be as long as any.
        let hidden = steps_until(&mut recording, day + 45_000, &line("{}"), &[failed()], None);
        assert!(hidden[1].starts_with(FAILED), "{hidden:?}");
        assert!(recording.time.clock <= Millis(limits::ORPHAN_TIMEOUT.0 + 1_000));
    }

    /// The core takes what is due after whatever it is told.
    #[test]
    fn a_timer_that_is_due_with_another_event_is_waited_for_too() {
        let mut recording = recording();
        steps_until(&mut recording, 0, &line("{}"), &[], Some(5_000));
        let late = steps_until(&mut recording, 5_010, &line("{}"), &[failed()], None);
        assert_eq!(late[1], format!("{FAILED}12020ms\"}}"));
    }

    #[test]
    fn a_play_that_gave_something_a_moment_waits_less_for_a_timer() {
        let mut recording = recording();
        steps_until(&mut recording, 0, &line("{}"), &[], Some(500));
        let moment = steps_until(&mut recording, 100, &message(b"{}"), &[], Some(500));
        assert_eq!(moment[0], r#"{"pass":"40ms"}"#);
        let timer = steps_until(&mut recording, 500, &Event::Timer, &[], None);
        assert_eq!(timer, [r#"{"pass":"460ms"}"#]);
    }

    #[test]
    fn e1_what_a_call_of_the_editor_asks_for_is_recorded_once() {
        let mut recording = recording();
        let call = line(r#"{"jsonrpc":"2.0","id":7,"method":"_acp-tether/reconnect"}"#);
        let Event::Line(request) = call.clone() else { unreachable!() };
        let written = steps(&mut recording, 0, &call, &[Effect::Rpc(Ticket(1), request)]);
        assert!(written.len() == 1 && written[0].starts_with(r#"{"editor":"#), "{written:?}");
        let asked = Event::Inquiry(Ticket(9), Inquiry::Reconnect);
        assert!(steps(&mut recording, 1, &asked, &[]).is_empty());
        steps(&mut recording, 2, &Event::Rpc(Ticket(1), Bytes::from_static(b"{}")), &[]);
        let by_api = steps(&mut recording, 3, &asked, &[]);
        assert_eq!(by_api.last().unwrap(), r#"{"api":"reconnect"}"#);
    }

    #[test]
    fn what_is_too_long_is_too_long_in_a_play_too() {
        let mut recording = recording();
        let long = steps(&mut recording, 0, &Event::LineTooLong, &[]);
        assert_eq!(long, [r#"{"editor_raw":"x","times":1025}"#]);
        let long = steps(&mut recording, 0, &on(1, StreamEvent::TooLarge), &[]);
        assert!(long.iter().any(|step| step.contains(r#""raw":"x","times":1025"#)), "{long:?}");
    }

    #[test]
    fn bad_bytes_stay_bad_and_cut_lines_stay_cut() {
        let mut recording = recording();
        let lines = steps(&mut recording, 0, &message(b"{\"a\":\n1}"), &[]);
        assert!(lines[0].contains(r#""data":"{\""#) && lines[0].contains(r"\n1}"), "{lines:?}");
        let bad = steps(&mut recording, 0, &message(b"{\"a\":\"\xFFsecret\"}"), &[]);
        assert!(bad[0].contains(r#""hex":""#) && bad[0].contains("ff"), "{bad:?}");
        let bad = steps(&mut recording, 0, &Event::Line(Bytes::from_static(b"\xFEab")), &[]);
        assert!(bad.last().unwrap().contains(r#"{"editor_hex":"ff7878"}"#), "{bad:?}");
    }

    #[test]
    fn p4_ids_of_ours_are_saved_and_named() {
        let mut recording = recording();
        let question = br#"{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{}}"#;
        let asked =
            r#"{"jsonrpc":"2.0","id":"acp-tether-1","method":"fs/read_text_file","params":{}}"#;
        let effect = Effect::Line(Bytes::from_static(asked.as_bytes()));
        let seen = steps(&mut recording, 0, &message(question), &[effect]);
        assert!(seen[1].contains(r#""id":"*""#) && seen[1].contains(r#""save":"acp-tether-1""#));
        let answer = line(r#"{"jsonrpc":"2.0","id":"acp-tether-1","result":{}}"#);
        let answered = steps(&mut recording, 0, &answer, &[]);
        assert_eq!(
            answered,
            [r#"{"editor":{"jsonrpc":"2.0","id":{"$ref":"acp-tether-1"},"result":{}}}"#]
        );
    }

    #[test]
    fn content_that_looks_like_a_name_of_the_format_is_none() {
        let mut recording = Recording::new(true, &settings());
        let written =
            r##"{"jsonrpc":"2.0","method":"x","params":{"$ref":"#/a","b":{"$ref":"c"}}}"##;
        let steps = steps(&mut recording, 0, &line(written), &[post(1, Some("c"), written)]);
        assert!(steps[0].starts_with(r#"{"editor_raw":"#), "{steps:?}");
        assert!(!steps[1].contains("{\"$ref\""), "{steps:?}");
    }
}
