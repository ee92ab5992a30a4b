//! The remote agent: its connections, sessions, streams and turns, as one of several kinds of server.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use acp_tether::core::{Millis, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::chance::Chance;

/// What a server does where servers differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// It speaks WebSocket: one socket carries all, and ends with its connection.
    #[serde(default)]
    pub is_socket: bool,
    /// The protocol version.
    pub version: u8,
    /// Events carry ids, and those after `Last-Event-ID` are sent again.
    pub numbered: bool,
    /// Answers carry ids too.
    pub numbers_answers: bool,
    /// The response names the numbering, and a cursor of another one is no error.
    pub names_epoch: bool,
    /// A second GET ends the first; else it is refused with 409.
    pub takes_over: bool,
    /// The answer to a GET for a session that the connection does not have.
    pub unknown_get: u16,
    /// Load, resume and close are answered on the session's stream.
    pub answers_on_session: bool,
    /// It offers `session/load`.
    pub loads: bool,
    /// It offers `session/resume`.
    pub resumes: bool,
    /// The ids of its questions are strings that never come again; else numbers from 0 on each
    /// connection.
    pub unique_questions: bool,
    /// Milliseconds between two comments on a stream.
    pub heartbeat: Option<u64>,
    /// It asks for this delay before a reconnect.
    pub retry: Option<u64>,
    /// Its sessions outlive it.
    pub stores: bool,
    /// A connection must sign in before it restores.
    pub wants_sign_in: bool,
    /// What a prompt in a running turn is.
    pub second_prompt: SecondPrompt,
    /// An answer may come before the 202.
    pub answers_first: bool,
    /// Quick requests are answered in the body of their POST.
    pub answers_in_body: bool,
    /// After a restore it asks again what was open.
    pub asks_again: bool,
    /// Sessions have no stream: the GET for one is answered with 204, and all comes on the connection's.
    #[serde(default)]
    pub has_one_stream: bool,
    /// Where the end of a turn is told.
    #[serde(default)]
    pub prompts_on: PromptsOn,
    /// What makes, restores or closes a session is answered in the body of its POST, too.
    #[serde(default)]
    pub mends_in_body: bool,
    /// Some events come in pieces.
    #[serde(default)]
    pub in_pieces: bool,
}

/// Where a prompt is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptsOn {
    /// On the stream of its session.
    #[default]
    Session,
    /// On the connection's.
    Connection,
    /// In the body of its POST, where the turn is short.
    Body,
}

impl Kind {
    /// The same agent behind a socket, which has none of the habits of streams.
    pub fn over_socket(self) -> Self {
        let second_prompt = match self.second_prompt {
            SecondPrompt::Conflict => SecondPrompt::Error,
            second_prompt => second_prompt,
        };
        Self {
            is_socket: true,
            numbered: false,
            numbers_answers: false,
            names_epoch: false,
            unknown_get: 200,
            answers_on_session: false,
            retry: None,
            answers_in_body: false,
            second_prompt,
            ..self
        }
    }

    /// The same server with habits that few have.
    pub fn with_rare_habits(self, chance: &mut Chance) -> Self {
        let in_pieces = chance.one_in(4);
        if self.is_socket {
            return Self { in_pieces, ..self };
        }
        if chance.one_in(8) {
            // The refusal of a stream would show that a session is unknown.
            return Self { in_pieces, has_one_stream: true, unknown_get: 200, ..self };
        }
        Self {
            prompts_on: match chance.below(10) {
                0 => PromptsOn::Connection,
                1 => PromptsOn::Body,
                _ => PromptsOn::Session,
            },
            mends_in_body: chance.one_in(8),
            in_pieces,
            ..self
        }
    }
}

/// What a server makes of a prompt in a running turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecondPrompt {
    /// 409.
    Conflict,
    /// An error answer.
    Error,
    /// It cancels the running turn.
    Cancels,
}

impl Kind {
    /// One of the known servers, or one with any mixture of habits.
    pub fn draw(chance: &mut Chance) -> Self {
        let known = Self {
            is_socket: false,
            version: 1,
            numbered: false,
            numbers_answers: false,
            names_epoch: false,
            takes_over: false,
            unknown_get: 200,
            answers_on_session: false,
            loads: true,
            resumes: !chance.one_in(3),
            unique_questions: false,
            heartbeat: Some(15_000),
            retry: None,
            stores: !chance.one_in(3),
            wants_sign_in: false,
            second_prompt: SecondPrompt::Error,
            answers_first: chance.one_in(2),
            answers_in_body: false,
            asks_again: chance.one_in(2),
            has_one_stream: false,
            prompts_on: PromptsOn::Session,
            mends_in_body: false,
            in_pieces: false,
        };
        match chance.below(6) {
            // The official Rust server.
            0 => {
                Self { unknown_get: 404, answers_on_session: true, unique_questions: true, ..known }
            }
            // The official TypeScript server.
            1 => known,
            // qwen serve.
            2 => Self {
                numbered: true,
                names_epoch: true,
                takes_over: true,
                unknown_get: 403,
                unique_questions: true,
                retry: Some(3_000),
                second_prompt: SecondPrompt::Cancels,
                ..known
            },
            _ => {
                let version = if chance.one_in(4) { 2 } else { 1 };
                let numbered = chance.one_in(2);
                Self {
                    version,
                    numbered,
                    numbers_answers: numbered && !chance.one_in(3),
                    names_epoch: numbered && chance.one_in(2),
                    takes_over: chance.one_in(2),
                    unknown_get: chance.pick(&[200, 403, 404]),
                    answers_on_session: chance.one_in(2),
                    loads: version == 1 && !chance.one_in(4),
                    resumes: version == 2 || !chance.one_in(3),
                    unique_questions: chance.one_in(2),
                    heartbeat: chance.pick(&[None, Some(2_000), Some(15_000)]),
                    retry: chance.pick(&[None, None, Some(500), Some(60_000)]),
                    wants_sign_in: chance.one_in(4),
                    second_prompt: chance.pick(&[
                        SecondPrompt::Conflict,
                        SecondPrompt::Error,
                        SecondPrompt::Cancels,
                    ]),
                    answers_in_body: chance.one_in(4),
                    ..known
                }
            }
        }
    }
}

/// A message that the agent sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its bytes.
    pub bytes: Bytes,
    /// The session on whose stream it was sent.
    pub session: Option<String>,
    /// What it is.
    pub sort: Sort,
}

impl Sent {
    /// Its bytes, for people.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// What a message of the agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A `session/update`.
    Update,
    /// One that repeats history, for the request of the editor or (`own`) of the core.
    Replay {
        /// The load was the core's.
        own: bool,
    },
    /// An answer to the request with this raw id.
    Answer(String),
    /// A question.
    Question {
        /// What is asked: the same number, the same question.
        ask: u64,
        /// Its raw id.
        id: String,
    },
    /// It withdraws a question.
    Withdraw {
        /// What was asked.
        ask: u64,
        /// Its raw id.
        id: String,
    },
}

/// An event of a stream, on its way.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The event id.
    pub id: Option<Bytes>,
    /// The data.
    pub data: Bytes,
    /// The number `_n` in it.
    pub number: usize,
    /// When the agent said it.
    pub at: u64,
}

/// What the remote does to the world.
#[derive(Debug)]
pub enum Out {
    /// It writes an event to a reader.
    Write(u64, Frame),
    /// It ends a reader's stream as HTTP has it.
    End(u64),
    /// It goes on with something in so many milliseconds.
    Later(u64, Job),
}

/// What the agent does later.
#[derive(Clone, Debug)]
pub enum Job {
    /// It deals with a message that it has accepted.
    Handle {
        /// The connection that it came on.
        connection: String,
        /// The message.
        body: Bytes,
    },
    /// A turn goes on.
    Turn {
        /// Of this session.
        session: String,
        /// The turn.
        number: u64,
    },
}

/// What became of a POST at the remote.
#[derive(Debug)]
pub struct Taken {
    /// The answer.
    pub response: Response,
    /// The agent has the message.
    pub accepted: bool,
}

/// See the module's page.
#[derive(Debug)]
pub struct Remote {
    kind: Kind,
    chance: Chance,
    connections: BTreeMap<String, Connection>,
    sessions: BTreeMap<String, Session>,
    connections_made: u64,
    sessions_made: u64,
    turns: u64,
    asks: u64,
    /// The numbering of events of the streams that begin: another one whenever one begins anew.
    numbering: u64,
    /// What time it is.
    pub now: u64,
    /// Every message ever sent, by its number `_n`.
    pub sent: Vec<Sent>,
    /// What follows from the last call.
    pub out: Vec<Out>,
    /// The request whose answer goes in the body of the POST that is being dealt with, and the answer.
    in_body: Option<(String, Option<Bytes>)>,
    /// The answer to one question that came to another (I8).
    pub wrong: Option<String>,
    /// The agent waits for no person any more: faults have stopped.
    pub is_brisk: bool,
    /// Whether another agent starts in the place of one that ended.
    another: Chance,
    /// The protocol version that it answers `initialize` with.
    pub speaks: u8,
}

#[derive(Debug, Default)]
struct Connection {
    channels: BTreeMap<Option<String>, Channel>,
    owned: BTreeSet<String>,
    signed_in: bool,
    questions: BTreeMap<String, Asked>,
    asked: u64,
    /// The number of the core's `initialize`, if it was one of the core's.
    made_by: Option<u64>,
}

/// A question without an answer.
#[derive(Clone, Debug)]
struct Asked {
    ask: u64,
    session: String,
}

/// One stream, whether somebody reads it or not.
#[derive(Debug, Default)]
struct Channel {
    reader: Option<u64>,
    /// What was written to no reader.
    buffer: VecDeque<Frame>,
    /// The events with ids, the newest last.
    ring: VecDeque<(u64, Frame)>,
    last_id: u64,
    /// What its ids count in.
    numbering: u64,
}

impl Connection {
    /// A stream of it, as one that begins in this numbering if it is new.
    fn channel(&mut self, session: &Option<String>, numbering: u64) -> &mut Channel {
        if !self.channels.contains_key(session) {
            let new = Channel { numbering, ..Channel::default() };
            self.channels.insert(session.clone(), new);
        }
        self.channels.get_mut(session).expect("it is there now")
    }
}

#[derive(Debug, Default)]
struct Session {
    history: Vec<String>,
    turn: Option<Turn>,
    /// A question that was open when its connection was lost.
    unanswered: Option<u64>,
    /// The connection and the prompt of a turn that was forgotten with the session, until a refusal
    /// says that it was.
    forgotten: Option<(String, String)>,
}

#[derive(Debug)]
struct Turn {
    connection: String,
    number: u64,
    /// The raw id of the prompt, while it has no answer.
    prompt: Option<String>,
    steps: u64,
    question: Option<String>,
    is_cancelled: bool,
}

/// What the core posts, as far as anybody looks at it.
#[derive(Debug, Deserialize)]
pub struct Body<'a> {
    /// Its id.
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    /// Its method.
    pub method: Option<&'a str>,
    /// Its number `_k`, if the editor wrote it.
    #[serde(rename = "_k")]
    pub number: Option<u64>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    result: Option<Answer>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    session_id: Option<&'a str>,
    #[serde(borrow)]
    replay_from: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    ask: Option<u64>,
}

impl<'a> Body<'a> {
    /// Reads it; `None` for what is no message.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Its id, raw; empty where there is none.
    pub fn id(&self) -> &'a str {
        self.id.map(RawValue::get).unwrap_or_default()
    }
}

/// The number in an id of the core's own: each is greater than those before it.
fn own_number(id: &str) -> Option<u64> {
    id.trim_matches('"').strip_prefix("acp-tether-own-")?.rsplit_once('-')?.1.parse().ok()
}

const CHUNK: &str =
    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"…"}}"#;
/// Events that are kept for a replay.
const RING: usize = 48;

impl Remote {
    /// An agent that has seen nothing yet.
    pub fn new(kind: Kind, seed: u64) -> Self {
        Self {
            another: Chance::new(seed, 11),
            speaks: kind.version,
            kind,
            chance: Chance::new(seed, 3),
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            connections_made: 0,
            sessions_made: 0,
            turns: 0,
            asks: 0,
            numbering: 1,
            now: 0,
            sent: Vec::new(),
            out: Vec::new(),
            in_body: None,
            wrong: None,
            is_brisk: false,
        }
    }

    /// A POST arrives.
    pub fn post(
        &mut self,
        connection: Option<&str>,
        session: Option<&str>,
        read: &Body<'_>,
        body: &Bytes,
    ) -> Taken {
        let Some(connection) = connection else {
            return self.initialize(read.id.expect("initialize has an id").get());
        };
        let Some(known) = self.connections.get(connection) else {
            return refused(404, "no such connection");
        };
        // Ids begin again at a restart. Nobody could tell the replay of a load that was meant for the
        // connection before from one that is told for another reason.
        let is_own_load = read.method == Some("session/load") && read.number.is_none();
        if is_own_load && own_number(read.id()) < known.made_by {
            return refused(404, "no such connection");
        }
        if read.method == Some("session/prompt")
            && self.kind.second_prompt == SecondPrompt::Conflict
            && session.and_then(|id| self.sessions.get(id)).is_some_and(|it| it.turn.is_some())
        {
            return refused(409, "a turn is running");
        }
        let is_quick = matches!(
            read.method,
            Some("session/list" | "session/set_mode" | "authenticate" | "_x/other")
        );
        let mends = matches!(
            read.method,
            Some("session/new" | "session/load" | "session/resume" | "session/close")
        );
        let is_prompt = read.method == Some("session/prompt");
        let is_answered_here = self.kind.answers_in_body && is_quick
            || self.kind.mends_in_body && mends
            || self.kind.prompts_on == PromptsOn::Body && is_prompt;
        if is_answered_here {
            self.in_body = Some((read.id().to_owned(), None));
            self.handle(connection, read);
            let answer = self.in_body.take().and_then(|(_, answer)| answer);
            let mut response = Response { status: 202, ..Response::default() };
            if let Some(answer) = answer {
                response.status = 200;
                response.content_type = "application/json".into();
                response.body = answer;
            }
            return Taken { response, accepted: true };
        }
        let delay = if self.kind.answers_first { 0 } else { self.chance.below(30) };
        if delay == 0 {
            self.handle(connection, read);
        } else {
            let (connection, body) = (connection.to_owned(), body.clone());
            self.out.push(Out::Later(delay, Job::Handle { connection, body }));
        }
        Taken { response: Response { status: 202, ..Response::default() }, accepted: true }
    }

    fn initialize(&mut self, id: &str) -> Taken {
        self.connections_made += 1;
        self.numbering += 1;
        let connection = format!("c{}", self.connections_made);
        let made = Connection { made_by: own_number(id), ..Connection::default() };
        self.connections.insert(connection.clone(), made);
        let (version, &Kind { loads, resumes, .. }) = (self.speaks, &self.kind);
        let resume = if resumes { r#","sessionCapabilities":{"resume":{}}"# } else { "" };
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":{version},"agentCapabilities":{{"loadSession":{loads}{resume}}}}},"_n":{}}}"#,
            self.sent.len()
        );
        let sort = Sort::Answer(id.to_owned());
        let bytes = Bytes::from(text);
        self.sent.push(Sent { bytes: bytes.clone(), session: None, sort });
        let response = Response {
            status: if self.kind.is_socket { 101 } else { 200 },
            content_type: "application/json".into(),
            connection_id: Some(Bytes::from(connection)),
            body: bytes,
            ..Response::default()
        };
        Taken { response, accepted: true }
    }

    /// A GET arrives; `reader` names it. The numbering, if it is a stream now.
    pub fn get(
        &mut self,
        connection: &str,
        session: Option<&str>,
        cursor: Option<&str>,
        reader: u64,
    ) -> Result<Option<Bytes>, Response> {
        let kind = &self.kind;
        let Some(found) = self.connections.get_mut(connection) else {
            return Err(refused(404, "no such connection").response);
        };
        if session.is_some() && kind.has_one_stream {
            return Err(Response { status: 204, ..Response::default() });
        }
        if let Some(session) = session
            && !found.owned.contains(session)
            && kind.unknown_get != 200
        {
            let refused = refused(kind.unknown_get, "not a session of this connection");
            if let Some(session) = self.sessions.get_mut(session) {
                session.forgotten = None;
            }
            return Err(refused.response);
        }
        let channel = found.channel(&session.map(str::to_owned), self.numbering);
        if let Some(before) = channel.reader {
            if !kind.takes_over {
                return Err(refused(409, "this stream is open already").response);
            }
            self.out.push(Out::End(before));
            channel.reader = None;
        }
        let numbering = channel.numbering;
        let (of, cursor) = match cursor.and_then(|cursor| cursor.split_once('.')) {
            Some((of, number)) => (of.parse().ok(), number.parse::<u64>().ok()),
            None => (None, cursor.and_then(|cursor| cursor.parse().ok())),
        };
        let is_foreign = of.is_some_and(|of: u64| of != numbering);
        if let Some(cursor) = cursor.filter(|_| kind.numbered) {
            let first = channel.ring.front().map_or(channel.last_id + 1, |(id, _)| *id);
            if !kind.names_epoch && (is_foreign || cursor > channel.last_id || cursor + 1 < first) {
                return Err(refused(410, "what follows this event is not kept").response);
            }
            if kind.names_epoch && (cursor + 1 < first) && cursor <= channel.last_id {
                return Err(refused(410, "what follows this event is not kept").response);
            }
            channel.buffer.retain(|frame| frame.id.is_none());
            for (id, frame) in &channel.ring {
                if *id > cursor {
                    self.out.push(Out::Write(reader, frame.clone()));
                }
            }
        }
        for frame in channel.buffer.drain(..) {
            self.out.push(Out::Write(reader, frame));
        }
        channel.reader = Some(reader);
        Ok(kind.names_epoch.then(|| Bytes::from(format!("e{numbering}"))))
    }

    /// The numbers of what waits for a session's stream, or would be sent again on it.
    pub fn kept(&self, session: &Option<String>) -> Vec<usize> {
        let channels = self.connections.values().filter_map(|it| it.channels.get(session));
        let frames = channels
            .flat_map(|channel| channel.buffer.iter().chain(channel.ring.iter().map(|(_, it)| it)));
        frames.map(|frame| frame.number).collect()
    }

    /// The server notices that a reader is gone; where that was a socket, its connection is (W2).
    pub fn reader_gone(&mut self, reader: u64) {
        if self.kind.is_socket {
            let of = |known: &Connection| known.channels.get(&None)?.reader;
            let gone = self.connections.iter().find(|(_, known)| of(known) == Some(reader));
            if let Some(connection) = gone.map(|(connection, _)| connection.clone()) {
                self.forget(&connection);
                self.out.retain(|out| !matches!(out, Out::End(ended) if *ended == reader));
            }
            return;
        }
        for channel in self.connections.values_mut().flat_map(|it| it.channels.values_mut()) {
            if channel.reader == Some(reader) {
                channel.reader = None;
            }
        }
    }

    /// A DELETE arrives.
    pub fn delete(&mut self, connection: &str) -> u16 {
        if !self.connections.contains_key(connection) {
            return 404;
        }
        self.forget(connection);
        202
    }

    /// The agent starts anew. It may be another that offers less, or more, or speaks another version,
    /// where it `may`.
    pub fn restart(&mut self, may: bool) {
        self.forget_all();
        let (offers, speaks) = (self.another.below(8), self.another.one_in(16));
        if self.kind.version == 1 {
            self.kind.loads ^= matches!(offers, 0 | 2);
            self.kind.resumes ^= matches!(offers, 1 | 2);
        }
        if speaks && may {
            self.speaks = 3;
        }
        if !self.kind.stores {
            self.sessions.clear();
            self.sessions_made = 0;
        }
        self.connections_made = 0;
        self.numbering += 1;
    }

    /// Every connection is forgotten.
    pub fn forget_all(&mut self) {
        for connection in self.connections.keys().cloned().collect::<Vec<_>>() {
            self.forget(&connection);
        }
    }

    fn forget(&mut self, connection: &str) {
        let Some(gone) = self.connections.remove(connection) else { return };
        for reader in gone.channels.values().filter_map(|channel| channel.reader) {
            self.out.push(Out::End(reader));
        }
        for question in gone.questions.values() {
            if let Some(session) = self.sessions.get_mut(&question.session) {
                session.unanswered = Some(question.ask);
            }
        }
        for session in self.sessions.values_mut() {
            if session.turn.as_ref().is_some_and(|turn| turn.connection == connection) {
                session.turn = None;
            }
        }
    }

    /// A session belongs to no connection any more.
    pub fn forget_session(&mut self, session: &str) {
        let turn = self.sessions.get_mut(session).and_then(|known| known.turn.take());
        if let Some(turn) = turn
            && let Some(prompt) = turn.prompt
        {
            if self.kind.unknown_get == 200 {
                // No refusal of a stream would show that nobody works on it any more.
                self.reply_error(&turn.connection, Some(session), &prompt, -32603, "forgotten");
            } else if let Some(known) = self.sessions.get_mut(session) {
                known.forgotten = Some((turn.connection, prompt));
            }
        }
        for connection in self.connections.values_mut() {
            connection.owned.remove(session);
            let of = Some(session.to_owned());
            if let Some(reader) = connection.channels.get(&of).and_then(|channel| channel.reader) {
                self.out.push(Out::End(reader));
            }
            if self.kind.unknown_get != 200 && connection.channels.remove(&of).is_some() {
                self.numbering += 1;
            }
            connection.questions.retain(|_, question| question.session != session);
        }
    }

    /// Events are numbered from 1 again, and what was kept is gone.
    pub fn renumber(&mut self) {
        self.numbering += 1;
        for channel in self.connections.values_mut().flat_map(|it| it.channels.values_mut()) {
            channel.ring.clear();
            channel.buffer.retain(|frame| frame.id.is_none());
            channel.last_id = 0;
            channel.numbering = self.numbering;
        }
    }

    /// Whether it offers `session/load`.
    pub fn loads(&self) -> bool {
        self.kind.loads
    }

    /// Whether the agent could restore this session.
    pub fn knows(&self, session: &str) -> bool {
        self.sessions.contains_key(session) && (self.kind.loads || self.kind.resumes)
    }

    /// Every turn ends: the agent waits for no answer any longer.
    pub fn finish_turns(&mut self) {
        for session in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.turn_ends(&session);
        }
    }

    /// The agent goes on with something.
    pub fn go_on(&mut self, job: Job) {
        match job {
            Job::Handle { connection, body } => {
                let read = Body::read(&body).expect("it was read when it came");
                self.handle(&connection, &read);
            }
            Job::Turn { session, number } => self.turn(&session, number),
        }
    }

    fn handle(&mut self, connection: &str, body: &Body<'_>) {
        if !self.connections.contains_key(connection) {
            return;
        }
        // What the editor wrote has a number; the core may use its id under its own requests.
        let own = body.number.is_none();
        let params = body.params.unwrap_or_default();
        let id = body.id.map(RawValue::get);
        match (body.method, id) {
            (None, Some(id)) => {
                let ask = body.result.as_ref().and_then(|result| result.ask);
                self.answered(connection, id, ask);
            }
            (Some("session/cancel"), None) => self.cancel(params.session_id.unwrap_or_default()),
            (Some(method), Some(id)) => self.request(connection, method, (id, own), params),
            _ => {}
        }
    }

    fn request(
        &mut self,
        connection: &str,
        method: &str,
        (id, own): (&str, bool),
        params: Params<'_>,
    ) {
        let session = params.session_id.map(str::to_owned);
        let is_restore = matches!(method, "session/load" | "session/resume");
        let on_stream = session.clone().filter(|_| self.kind.answers_on_session);
        let Some(known) = self.connections.get_mut(connection) else { return };
        match (method, session) {
            ("session/new", _) => {
                self.sessions_made += 1;
                let session = format!("s{}", self.sessions_made);
                known.owned.insert(session.clone());
                self.sessions.insert(session.clone(), Session::default());
                self.reply(connection, None, id, &format!(r#"{{"sessionId":"{session}"}}"#));
            }
            ("authenticate" | "auth/login", _) => {
                known.signed_in = true;
                self.reply(connection, None, id, "{}");
            }
            (_, Some(_)) if is_restore && self.kind.wants_sign_in && !known.signed_in => {
                self.reply_error(connection, None, id, -32000, "sign in first");
            }
            (_, Some(session)) if is_restore => {
                if !self.sessions.contains_key(&session) {
                    return self.reply_error(connection, None, id, -32002, "no such session");
                }
                let may =
                    if method == "session/load" { self.kind.loads } else { self.kind.resumes };
                if !may {
                    return self.reply_error(connection, None, id, -32601, "not offered");
                }
                known.owned.insert(session.clone());
                if method == "session/load" || params.replay_from.is_some() {
                    let history = self.sessions[&session].history.clone();
                    for text in history {
                        self.send(
                            connection,
                            Some(&session),
                            Sort::Replay { own },
                            format_args!("{text}"),
                        );
                    }
                }
                let result = if method == "session/load" { "null" } else { "{}" };
                self.reply(connection, on_stream.as_deref(), id, result);
                let forgotten = self.sessions.get_mut(&session).and_then(|it| it.forgotten.take());
                if let Some((of, prompt)) = forgotten.filter(|(of, _)| of == connection) {
                    // Nothing else would show that nobody works on it any more.
                    self.reply_error(&of, None, &prompt, -32603, "forgotten");
                }
                self.ask_again(connection, &session);
            }
            (_, Some(session)) if !known.owned.contains(&session) => {
                // On a stream that can be opened.
                let stream = (self.kind.unknown_get == 200).then_some(&*session);
                self.reply_error(connection, stream, id, -32002, "no such session here");
            }
            ("session/prompt", Some(session)) => self.prompt(connection, &session, id),
            ("session/close", Some(session)) => {
                if let Some(channel) = known.channels.get_mut(&Some(session.clone())) {
                    channel.ring.clear();
                    channel.buffer.clear();
                }
                if let Some(turn) = self.sessions.get_mut(&session).and_then(|it| it.turn.as_mut())
                {
                    turn.is_cancelled = true;
                }
                self.turn_ends(&session);
                self.reply(connection, on_stream.as_deref(), id, "{}");
                if let Some(known) = self.connections.get_mut(connection) {
                    known.owned.remove(&session);
                    let channel = known.channels.get_mut(&Some(session.clone()));
                    if let Some(reader) = channel.and_then(|channel| channel.reader.take()) {
                        self.out.push(Out::End(reader));
                    }
                    known.questions.retain(|_, question| question.session != session);
                }
                if let Some(closed) = self.sessions.get_mut(&session) {
                    closed.turn = None;
                    closed.unanswered = None;
                }
            }
            (_, session) => self.reply(connection, session.as_deref(), id, "{}"),
        }
    }

    fn prompt(&mut self, connection: &str, session: &str, id: &str) {
        self.turns += 1;
        let number = self.turns;
        let is_version_2 = self.kind.version == 2;
        let Some(known) = self.sessions.get_mut(session) else { return };
        if known.turn.is_some() {
            match self.kind.second_prompt {
                SecondPrompt::Cancels => {
                    self.cancel(session);
                    self.turn_ends(session);
                }
                _ => return self.reply_error(connection, Some(session), id, -32600, "a turn runs"),
            }
        }
        let steps = self.chance.pick(&[0, 1, 3, 10, 40]);
        let turn = Turn {
            connection: connection.to_owned(),
            number,
            prompt: (!is_version_2).then(|| id.to_owned()),
            steps,
            question: None,
            is_cancelled: false,
        };
        if let Some(known) = self.sessions.get_mut(session) {
            known.turn = Some(turn);
        }
        if is_version_2 {
            self.reply(connection, self.stream_of_prompts(session), id, "{}");
            self.update(
                connection,
                session,
                r#"{"sessionUpdate":"state_update","state":"running"}"#,
            );
        } else if self.in_body.is_some() && steps <= 3 {
            for _ in 0..steps {
                self.update(connection, session, CHUNK);
            }
            return self.turn_ends(session);
        }
        self.next_step(session, number);
    }

    fn stream_of_prompts<'a>(&self, session: &'a str) -> Option<&'a str> {
        (self.kind.prompts_on != PromptsOn::Connection).then_some(session)
    }

    fn next_step(&mut self, session: &str, number: u64) {
        let delay = self.chance.pick(&[1, 1, 5, 20, 100, 700, 5_000]);
        let delay = if self.is_brisk { 1 } else { delay };
        self.out.push(Out::Later(delay, Job::Turn { session: session.to_owned(), number }));
    }

    fn turn(&mut self, session: &str, number: u64) {
        let Some(known) = self.sessions.get_mut(session) else { return };
        let Some(turn) = known.turn.as_mut().filter(|turn| turn.number == number) else { return };
        if turn.question.is_some() && !turn.is_cancelled {
            return;
        }
        if turn.steps == 0 || turn.is_cancelled {
            return self.turn_ends(session);
        }
        turn.steps -= 1;
        let connection = turn.connection.clone();
        if self.chance.one_in(24) {
            self.asks += 1;
            let id = self.ask(&connection, session, self.asks);
            if let Some(turn) = self.sessions.get_mut(session).and_then(|it| it.turn.as_mut()) {
                turn.question = id;
            }
            return;
        }
        self.update(&connection, session, CHUNK);
        self.next_step(session, number);
    }

    fn turn_ends(&mut self, session: &str) {
        let Some(turn) = self.sessions.get_mut(session).and_then(|it| it.turn.take()) else {
            return;
        };
        if let Some(question) = &turn.question
            && let Some(known) = self.connections.get_mut(&turn.connection)
            && let Some(Asked { ask, .. }) = known.questions.remove(question)
        {
            let sort = Sort::Withdraw { ask, id: question.clone() };
            let text =
                format_args!(r#""method":"$/cancel_request","params":{{"requestId":{question}}}"#);
            self.send(&turn.connection, Some(session), sort, text);
        }
        match turn.prompt {
            Some(prompt) => {
                let reason = if turn.is_cancelled { "cancelled" } else { "end_turn" };
                let result = format!(r#"{{"stopReason":"{reason}"}}"#);
                let stream = self.stream_of_prompts(session);
                self.reply(&turn.connection, stream, &prompt, &result);
            }
            None => {
                let idle = r#"{"sessionUpdate":"state_update","state":"idle"}"#;
                self.update(&turn.connection, session, idle);
            }
        }
    }

    fn cancel(&mut self, session: &str) {
        if let Some(turn) = self.sessions.get_mut(session).and_then(|it| it.turn.as_mut()) {
            turn.is_cancelled = true;
            let number = turn.number;
            self.next_step(session, number);
        }
    }

    /// Asks under a new id; `None` where the connection is gone.
    fn ask(&mut self, connection: &str, session: &str, ask: u64) -> Option<String> {
        let number = self.sent.len();
        let known = self.connections.get_mut(connection)?;
        let id = if self.kind.unique_questions {
            format!("\"q-{number}\"")
        } else {
            (known.asked).to_string()
        };
        known.asked += 1;
        known.questions.insert(id.clone(), Asked { ask, session: session.to_owned() });
        let sort = Sort::Question { ask, id: id.clone() };
        let text = format_args!(
            r#""id":{id},"method":"session/request_permission","params":{{"sessionId":"{session}","ask":{ask}}}"#
        );
        self.send(connection, Some(session), sort, text);
        Some(id)
    }

    fn ask_again(&mut self, connection: &str, session: &str) {
        let asked = self.sessions.get_mut(session).and_then(|known| known.unanswered.take());
        if let Some(ask) = asked.filter(|_| self.kind.asks_again) {
            // Nothing waits for it: it belongs to no turn any more.
            self.ask(connection, session, ask);
        }
    }

    /// The answer to a question of the agent came.
    fn answered(&mut self, connection: &str, id: &str, answers: Option<u64>) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let Some(asked) = known.questions.remove(id) else { return };
        if answers != Some(asked.ask) {
            self.wrong = Some(format!("question {} got the answer to {answers:?}", asked.ask));
        }
        let Some(known) = self.sessions.get_mut(&asked.session) else { return };
        if let Some(turn) = &mut known.turn
            && turn.question.as_deref() == Some(id)
            && turn.connection == connection
        {
            turn.question = None;
            let number = turn.number;
            self.next_step(&asked.session, number);
        }
    }

    fn update(&mut self, connection: &str, session: &str, update: &str) {
        let text = format_args!(
            r#""method":"session/update","params":{{"sessionId":"{session}","update":{update}}}"#
        );
        self.send(connection, Some(session), Sort::Update, text);
        if let Some(known) = self.sessions.get_mut(session)
            && known.history.len() < 12
        {
            known.history.push(text.to_string());
        }
    }

    fn reply(&mut self, connection: &str, session: Option<&str>, id: &str, result: &str) {
        let text = format_args!(r#""id":{id},"result":{result}"#);
        self.send(connection, session, Sort::Answer(id.to_owned()), text);
    }

    fn reply_error(
        &mut self,
        connection: &str,
        session: Option<&str>,
        id: &str,
        code: i32,
        message: &str,
    ) {
        let text = format_args!(r#""id":{id},"error":{{"code":{code},"message":"{message}"}}"#);
        self.send(connection, session, Sort::Answer(id.to_owned()), text);
    }

    fn send(
        &mut self,
        connection: &str,
        session: Option<&str>,
        sort: Sort,
        text: fmt::Arguments<'_>,
    ) {
        let answered = match &sort {
            Sort::Answer(id) => Some(id.clone()),
            _ => None,
        };
        let is_answer = answered.is_some();
        let number = self.sent.len();
        // Two spellings, because bytes that are passed on are not printed anew (I5).
        let bytes = Bytes::from(if number.is_multiple_of(3) {
            format!("{{ \"_n\":{number},\"jsonrpc\": \"2.0\",{text}, \"big\":1.0e400}}")
        } else {
            format!("{{\"jsonrpc\":\"2.0\",{text},\"_n\":{number}}}")
        });
        let session = session.map(str::to_owned);
        let has_one = self.kind.is_socket || self.kind.has_one_stream;
        let on = if has_one { None } else { session.clone() };
        if let Some((request, in_body @ None)) = &mut self.in_body
            && answered.is_some_and(|answered| answered == *request)
        {
            // It is on no stream.
            *in_body = Some(bytes.clone());
            return self.sent.push(Sent { bytes, session: None, sort });
        }
        self.sent.push(Sent { bytes: bytes.clone(), session, sort });
        let Some(known) = self.connections.get_mut(connection) else { return };
        let channel = known.channel(&on, self.numbering);
        let mut frame = Frame { id: None, data: bytes, number, at: self.now };
        if self.kind.numbered && (!is_answer || self.kind.numbers_answers) {
            channel.last_id += 1;
            // With a named numbering ids are bare numbers, and come again.
            frame.id = Some(Bytes::from(match self.kind.names_epoch {
                true => channel.last_id.to_string(),
                false => format!("{}.{}", channel.numbering, channel.last_id),
            }));
            channel.ring.push_back((channel.last_id, frame.clone()));
            if channel.ring.len() > RING {
                channel.ring.pop_front();
            }
        }
        match channel.reader {
            Some(reader) => self.out.push(Out::Write(reader, frame)),
            None => channel.buffer.push_back(frame),
        }
    }
}

/// A refusal with a JSON body.
pub fn refused(status: u16, reason: &str) -> Taken {
    let response = Response {
        status,
        content_type: "application/json".into(),
        body: Bytes::from(format!(r#"{{"error":"{reason}"}}"#)),
        retry_after: None::<Millis>,
        ..Response::default()
    };
    Taken { response, accepted: false }
}
