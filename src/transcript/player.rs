//! Decides what each step of a transcript means, whoever plays it.
//!
//! A [`Stage`] is the world that a step acts on: it lets the editor write and the remote answer, and
//! puts what comes out on its [`Board`]. What is expected is compared here, and nowhere else.

use super::format::{
    Action, Answer, Asks, Body, CLOSE, Comparison, Fault, Gets, OnSocket, OnStream, Output,
    Payload, REFERENCE, Sees, Signal, Start, Step, Streams, TEXT, Transcript,
};
use super::frames;
use super::json::Json;
use crate::core::SessionId;
use crate::core::methods::{OWN_CLOSE, OWN_RECONNECT};
use crate::core::roster::Inquiry;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// How long a step waits for what it names, unless it says so itself.
pub const WITHIN: Duration = Duration::from_secs(2);

/// A session was closed, in the answer to who asked for it; as the other words, in JSON.
pub(super) const CLOSED: &str = "\"closed\"";
/// There is no such session.
pub(super) const UNKNOWN: &str = "\"unknown\"";
/// It is running or waiting.
pub(super) const BUSY: &str = "\"busy\"";
/// Every stream is opened again.
pub(super) const RECONNECTING: &str = "\"reconnecting\"";

/// A world to play on.
pub trait Stage {
    /// What has come out so far.
    fn board(&mut self) -> &mut Board;
    /// The editor writes.
    ///
    /// # Errors
    /// Why it cannot.
    fn write(&mut self, bytes: &[u8]) -> Result<(), String>;
    /// The editor closes its end.
    fn end_input(&mut self);
    /// The remote answers the request at this place on the board.
    fn answer(&mut self, request: usize, answer: &Reply);
    /// The remote sends bytes on the stream or the socket that this request opened.
    fn send(&mut self, request: usize, bytes: Bytes);
    /// That stream ends, cleanly or cut; a socket that ends cleanly was closed by a frame before.
    fn end_stream(&mut self, request: usize, cleanly: bool);
    /// The remote can be reached from here on, or not.
    ///
    /// # Errors
    /// Why that cannot be played.
    fn set_reachable(&mut self, reachable: bool) -> Result<(), String>;
    /// Lets the world go on until `done` holds, or for `within`; says whether it holds.
    fn wait(&mut self, within: Duration, done: &dyn Fn(&Board) -> bool) -> bool;
    /// A person asks through the API, and again until the answer is `right`, or for `within`. What
    /// comes back is the last answer, as JSON: the document of the status, or one word. A session
    /// that was closed is not closed again.
    ///
    /// # Errors
    /// Why nobody can ask.
    fn ask(
        &mut self,
        inquiry: &Inquiry,
        within: Duration,
        right: &dyn Fn(&str) -> bool,
    ) -> Result<String, String>;
    /// The most memory that the program has held so far, in bytes; `None` where the system does not
    /// tell.
    ///
    /// # Errors
    /// There is no program.
    fn memory(&mut self) -> Result<Option<u64>, String>;
    /// Lets time pass.
    fn pass(&mut self, time: Duration);
    /// Lets happen what happens without time passing.
    fn settle(&mut self);
    /// The editor closes the end it reads from.
    ///
    /// # Errors
    /// Why it cannot.
    fn close_output(&mut self) -> Result<(), String>;
    /// The program gets a signal.
    ///
    /// # Errors
    /// Why it cannot.
    fn signal(&mut self, signal: Signal) -> Result<(), String>;
    /// The file is over: the editor closes its end and looks at what still comes. How the program ends
    /// counts where the file `says_nothing` of it.
    ///
    /// # Errors
    /// It did not end well.
    fn finish(&mut self, says_nothing: bool) -> Result<(), String>;
}

/// What came out, and what no step has taken yet.
#[derive(Debug, Default)]
pub struct Board {
    /// Lines that the editor got.
    pub lines: VecDeque<Bytes>,
    /// Every request that the remote got, in order.
    pub requests: Vec<Request>,
    /// The code with which the program ended.
    pub exit: Option<i32>,
    /// The same for a person, or the signal that ended it; where there is a process.
    pub end: Option<String>,
    /// Steps answer GET and DELETE.
    pub manual: bool,
    /// What the program told its log, line by line.
    pub log: Vec<String>,
    /// Something that may never happen did.
    pub fault: Option<String>,
}

/// A request that the remote got, or a frame on a socket.
#[derive(Debug, Default)]
pub struct Request {
    /// Its method, or the kind of the frame.
    pub method: String,
    /// Its path and query; `None` where there is no HTTP.
    pub path: Option<String>,
    /// Its version of HTTP, likewise.
    pub http: Option<String>,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
    /// A step has taken it.
    pub taken: bool,
    /// It was answered.
    pub answered: bool,
    /// It was answered with 101, and is a socket since.
    pub switched: bool,
    /// It is a GET whose stream or socket is open.
    pub open: bool,
}

impl Request {
    /// A frame that came on a socket.
    pub(super) fn frame(kind: &str, body: Bytes) -> Self {
        Self { method: kind.to_owned(), body, ..Self::default() }
    }

    /// Nothing answers a frame.
    fn is_frame(&self) -> bool {
        matches!(&*self.method, TEXT | CLOSE)
    }

    /// Whether it asks for a socket.
    pub(super) fn asks_for_socket(&self) -> bool {
        self.method == "GET" && self.header("upgrade") == Some("websocket")
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    fn session(&self) -> Option<&str> {
        self.header("acp-session-id")
    }
}

impl fmt::Display for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match self.session() {
            Some(id) => format!("of session {id:?}"),
            None if self.is_frame() => "on a socket".to_owned(),
            None if self.asks_for_socket() => "for a socket".to_owned(),
            None => "of no session".to_owned(),
        };
        write!(formatter, "{} {whose}", self.method)?;
        match self.body.is_empty() {
            true => Ok(()),
            false => write!(formatter, " {}", String::from_utf8_lossy(&self.body)),
        }
    }
}

/// An answer of the remote, ready to be sent.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// It opens a stream or a socket, whose bytes follow.
    pub opens: bool,
    /// The connection is cut before it, or in the middle of its body.
    pub fault: Option<Fault>,
}

impl Board {
    /// Adds a request that has come, and says how it is to be answered without a step.
    pub fn admit(&mut self, request: Request) -> (usize, Option<Reply>) {
        let reply = match request.method.as_str() {
            _ if self.manual || request.asks_for_socket() => None,
            "GET" => Some(Reply {
                status: 200,
                headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
                opens: true,
                ..Reply::default()
            }),
            "DELETE" => Some(Reply { status: 202, ..Reply::default() }),
            _ => None,
        };
        let answered = request.is_frame() || reply.is_some();
        self.requests.push(Request { answered, ..request });
        (self.requests.len() - 1, reply)
    }

    /// Adds a line that the editor got.
    pub fn see(&mut self, line: Bytes) {
        if let Some(reason) = unfit(&line) {
            self.fail(format!("{reason}: {}", String::from_utf8_lossy(&line)));
        }
        self.lines.push_back(line);
    }

    /// Notes that something happened that may never happen; the first counts.
    pub fn fail(&mut self, reason: String) {
        self.fault.get_or_insert(reason);
    }

    /// The end of the log, for a failure.
    fn last_words(&self) -> String {
        const MOST: usize = 20;
        self.log[self.log.len().saturating_sub(MOST)..].join("\n")
    }

    /// What is there that no step has taken.
    fn left_over(&self) -> Option<String> {
        let lines = self.lines.iter().map(|line| format!("line {}", String::from_utf8_lossy(line)));
        let requests = self
            .requests
            .iter()
            .filter(|request| !request.taken)
            .map(|request| format!("request {request}"));
        let left: Vec<String> = lines.chain(requests).collect();
        (!left.is_empty()).then(|| left.join("\n"))
    }
}

/// The first step that did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its line in the file.
    pub line: usize,
    /// Its text.
    pub step: String,
    /// What was found.
    pub reason: String,
    /// The end of the program's log.
    pub log: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "line {}: {}", self.line, self.step)?;
        for line in self.reason.lines() {
            writeln!(formatter, "    {line}")?;
        }
        for line in self.log.lines() {
            writeln!(formatter, "    log: {line}")?;
        }
        Ok(())
    }
}

/// Plays a transcript on a fresh stage.
///
/// # Errors
/// The first step that did not hold.
pub fn play(transcript: &Transcript, stage: &mut dyn Stage) -> Result<(), Failure> {
    let mut play = Play { stage, ids: BTreeMap::new(), requests: BTreeMap::new() };
    let prelude = prelude(transcript).map_err(|reason| Failure {
        line: 1,
        step: "the prelude".to_owned(),
        reason,
        log: String::new(),
    })?;
    for step in &prelude {
        let held = play.step(step);
        held.map_err(|reason| play.failure(1, format!("in the prelude: {}", step.text), reason))?;
    }
    play.stage.board().manual = transcript.header.streams == Streams::Manual;
    for step in &transcript.steps {
        let held = play.step(step);
        held.map_err(|reason| play.failure(step.line, step.text.clone(), reason))?;
    }
    if transcript.header.recorded {
        return Ok(());
    }
    let line = transcript.steps.last().map_or(1, |step| step.line);
    let quiet = play.quiet().and_then(|()| play.finish(transcript));
    quiet.map_err(|reason| play.failure(line, "at the end of the file".to_owned(), reason))
}

/// Plays a transcript on a stage where something goes wrong: what it expects does not count.
///
/// # Errors
/// The prelude cannot be read.
pub fn play_through(transcript: &Transcript, stage: &mut dyn Stage) -> Result<(), String> {
    let mut play = Play { stage, ids: BTreeMap::new(), requests: BTreeMap::new() };
    for step in &prelude(transcript)? {
        // A step that does not hold is what the harm did.
        let _ = play.step(step);
    }
    play.stage.board().manual = transcript.header.streams == Streams::Manual;
    for step in &transcript.steps {
        let _ = play.step(step);
    }
    Ok(())
}

/// The steps that happened before the first of a file.
///
/// # Errors
/// What the header puts into them cannot be read.
pub fn prelude(transcript: &Transcript) -> Result<Vec<Step>, String> {
    const INITIALIZED: &str = r#"
        {"editor":{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":VERSION,"clientCapabilities":{}}}}
        {"gets":{"method":"POST","session":null,"body_like":{"method":"initialize"}},"answer":{"status":200,"headers":{"Acp-Connection-Id":"c1"},"body":{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":VERSION,"agentCapabilities":CAPABILITIES}}}}
        {"sees_like":{"id":"init","result":{}}}
        {"gets":{"method":"GET","session":null}}
    "#;
    const SESSION: &str = r#"
        {"editor":{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/project","mcpServers":[]}}}
        {"gets":{"method":"POST","session":null,"body_like":{"method":"session/new"}}}
        {"stream":null,"event":{"jsonrpc":"2.0","id":"new","result":{"sessionId":"s1"}}}
        {"sees_like":{"id":"new","result":{"sessionId":"s1"}}}
        {"gets":{"method":"GET","session":"s1"}}
    "#;
    let text = match transcript.header.start {
        Start::None => String::new(),
        Start::Initialized => INITIALIZED.to_owned(),
        Start::Session => [INITIALIZED, SESSION].concat(),
    };
    let text = text.replace("VERSION", &transcript.header.protocol.to_string());
    let text = text.replace("CAPABILITIES", &transcript.header.capabilities.to_string());
    Transcript::parse_steps(&text).map_err(|refused| refused.to_string())
}

struct Play<'stage> {
    stage: &'stage mut dyn Stage,
    /// Ids that were saved, as JSON text.
    ids: BTreeMap<String, String>,
    /// Requests that have a name, by their place on the board.
    requests: BTreeMap<String, usize>,
}

impl Play<'_> {
    fn failure(&mut self, line: usize, step: String, mut reason: String) -> Failure {
        // What the program has to say of it may still be on its way.
        self.stage.settle();
        if let Some(end) = &self.stage.board().end {
            reason += &format!("\nthe program has ended: {end}");
        }
        Failure { line, step, reason, log: self.stage.board().last_words() }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Write(Payload::Bytes { bytes, lf }) => {
                for piece in bytes.pieces() {
                    self.stage.write(&piece)?;
                }
                if *lf {
                    self.stage.write(b"\n")?;
                }
            }
            Action::Write(Payload::Message(message)) => {
                let line = self.resolve(message)? + "\n";
                self.stage.write(line.as_bytes())?;
            }
            Action::EndInput => self.stage.end_input(),
            Action::CloseOutput => self.stage.close_output()?,
            Action::Signal(signal) => self.stage.signal(*signal)?,
            Action::Log { text, wanted: true } => {
                let has = |board: &Board| board.log.iter().any(|line| line.contains(text));
                if !self.stage.wait(WITHIN, &has) {
                    return Err("the log does not have it".to_owned());
                }
            }
            Action::Log { text, wanted: false } => {
                self.stage.settle();
                if let Some(line) = self.stage.board().log.iter().find(|line| line.contains(text)) {
                    return Err(format!("the log has it: {line}"));
                }
            }
            Action::Sees(sees) => self.sees(sees)?,
            Action::Gets(gets) => self.gets(gets)?,
            Action::Answers(name, answer) => {
                let request = self.named(name)?;
                self.answer(request, answer)?;
            }
            Action::Stream(on) => self.on_stream(on)?,
            Action::Socket(name, does) => self.on_socket(name, does)?,
            Action::Reachable(reachable) => self.stage.set_reachable(*reachable)?,
            Action::Api(asks) => self.ask(asks)?,
            Action::MemoryUnder(limit) => match self.stage.memory()? {
                Some(most) if most >= *limit => return Err(format!("it held {most} bytes")),
                _ => {}
            },
            Action::Pass(time) => self.stage.pass(*time),
            Action::Quiet => self.quiet()?,
            Action::Exit { code, within } => {
                self.stage.wait(within.unwrap_or(WITHIN), &|board| board.exit.is_some());
                match self.stage.board().exit {
                    Some(found) if found == *code => {}
                    Some(found) => return Err(format!("it ended with {found}")),
                    None => return Err("it still runs".to_owned()),
                }
            }
        }
        self.stage.board().fault.take().map_or(Ok(()), Err)
    }

    fn sees(&mut self, sees: &Sees) -> Result<(), String> {
        let mut wanted: Vec<String> =
            sees.messages.iter().map(|message| self.resolve(message)).collect::<Result<_, _>>()?;
        while !wanted.is_empty() {
            let within = sees.within.unwrap_or(WITHIN);
            self.stage.wait(within, &|board| !board.lines.is_empty() || board.exit.is_some());
            let Some(line) = self.stage.board().lines.pop_front() else {
                let ended =
                    if self.stage.board().exit.is_some() { "; the program ended" } else { "" };
                return Err(format!("no line came{ended}\n{}", self.waiting()));
            };
            let shown = String::from_utf8_lossy(&line).into_owned();
            let mut differences = Vec::new();
            let place = wanted.iter().position(|wanted| {
                let difference = compare(wanted, &line, sees.comparison);
                differences.extend(difference.clone());
                difference.is_none()
            });
            match place {
                Some(place) => drop(wanted.remove(place)),
                None => {
                    return Err(format!(
                        "expected: {}\ngot:      {shown}\n{}",
                        wanted.join("\nor:       "),
                        differences.join("\n")
                    ));
                }
            }
            self.save(sees.save.as_deref(), &line)?;
        }
        Ok(())
    }

    fn gets(&mut self, gets: &Gets) -> Result<(), String> {
        let body = match &gets.body {
            Some((body, comparison)) => Some((self.resolve(body)?, *comparison)),
            None => None,
        };
        let body = body.as_ref().map(|(text, comparison)| (text.as_str(), *comparison));
        let find = |board: &Board| {
            board.requests.iter().position(|request| {
                !request.taken
                    && request.method == gets.method
                    && gets
                        .session
                        .as_ref()
                        .is_none_or(|session| session.as_deref() == request.session())
                    && (!gets.any_order || mismatch(gets, body, request).is_none())
            })
        };
        self.stage.wait(gets.within.unwrap_or(WITHIN), &|board| find(board).is_some());
        let board = self.stage.board();
        let Some(place) = find(board) else {
            return Err(format!("no such request came\n{}", self.waiting()));
        };
        let request = &mut board.requests[place];
        if let Some(reason) = mismatch(gets, body, request) {
            return Err(format!("the {} is another one\n{reason}", request.method));
        }
        request.taken = true;
        let (answered, content) = (request.answered, request.body.clone());
        self.save(gets.save.as_deref(), &content)?;
        if let Some(name) = &gets.name {
            self.requests.insert(name.clone(), place);
        }
        match &gets.answer {
            Some(_) if answered => {
                Err("it is answered already; `\"streams\":\"manual\"` lets steps do it".to_owned())
            }
            Some(answer) => self.answer(place, answer),
            None if answered || gets.name.is_some() => Ok(()),
            None => self.answer(place, &Answer::default()),
        }
    }

    fn answer(&mut self, place: usize, answer: &Answer) -> Result<(), String> {
        if answer.fault == Some(Fault::Hang) {
            return Ok(());
        }
        let request = &mut self.stage.board().requests[place];
        if std::mem::replace(&mut request.answered, true) {
            return Err("the request is answered already".to_owned());
        }
        let get = request.method == "GET";
        let status = answer.status.unwrap_or(if get { 200 } else { 202 });
        if status == 101 && !request.asks_for_socket() {
            return Err("101 answers a GET with the header `upgrade`: `websocket`".to_owned());
        }
        request.switched = status == 101;
        let mut headers: Vec<(String, String)> = answer
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .collect();
        let (usual, body) = match &answer.body {
            Some(Body::Message(message)) => {
                (Some("application/json"), Bytes::from(self.resolve(message)?))
            }
            Some(Body::Text(text)) => (Some("text/plain"), Bytes::from(text.clone())),
            None => ((get && status == 200).then_some("text/event-stream"), Bytes::new()),
        };
        if let Some(usual) = usual
            && !headers.iter().any(|(name, _)| name == "content-type")
        {
            headers.push(("content-type".to_owned(), usual.to_owned()));
        }
        let events = headers.iter().any(|(name, value)| {
            let kind = value.split(';').next().unwrap_or_default().trim();
            name == "content-type" && kind.eq_ignore_ascii_case("text/event-stream")
        });
        let opens = status == 101 || get && status == 200 && events && answer.fault.is_none();
        self.stage.answer(place, &Reply { status, headers, body, opens, fault: answer.fault });
        Ok(())
    }

    fn on_stream(&mut self, on: &OnStream) -> Result<(), String> {
        let newest = |board: &Board| {
            board.requests.iter().rposition(|request| {
                let is_stream = request.open && !request.asks_for_socket();
                is_stream && request.session() == on.session.as_deref()
            })
        };
        let place = match &on.of {
            Some(name) => {
                let place = self.named(name)?;
                if self.stage.board().requests[place].asks_for_socket() {
                    return Err(format!("the request {name:?} asks for a socket"));
                }
                place
            }
            None => {
                self.stage.wait(WITHIN, &|board| newest(board).is_some());
                newest(self.stage.board())
                    .ok_or_else(|| format!("no such stream is open\n{}", self.waiting()))?
            }
        };
        match &on.output {
            Output::Bytes(bytes) => {
                bytes.pieces().for_each(|piece| self.stage.send(place, piece));
            }
            Output::Event { id, message } => {
                let mut event = id.as_ref().map_or_else(String::new, |id| format!("id: {id}\n"));
                if let Some(message) = message {
                    event += &format!("data: {}\n", self.resolve(message)?);
                }
                self.stage.send(place, Bytes::from(event + "\n"));
            }
            Output::End => self.stage.end_stream(place, true),
            Output::Reset => self.stage.end_stream(place, false),
        }
        Ok(())
    }

    fn on_socket(&mut self, name: &str, does: &OnSocket) -> Result<(), String> {
        let place = self.named(name)?;
        if !self.stage.board().requests[place].switched {
            return Err(format!("the request {name:?} was not answered with 101"));
        }
        match does {
            OnSocket::Message(message) => {
                let message = self.resolve(message)?;
                self.stage.send(place, frames::text(message.as_bytes(), true, true));
            }
            OnSocket::Text(text) => {
                let mut is_first = true;
                for piece in text.pieces() {
                    self.stage.send(place, frames::text(&piece, is_first, false));
                    is_first = false;
                }
                self.stage.send(place, frames::text(b"", is_first, true));
            }
            OnSocket::Ping(payload) => self.stage.send(place, frames::ping(payload.as_bytes())),
            OnSocket::Close { code, reason } => {
                self.stage.send(place, frames::close(*code, reason));
                self.stage.end_stream(place, true);
            }
            OnSocket::Reset => self.stage.end_stream(place, false),
        }
        Ok(())
    }

    fn ask(&mut self, Asks { inquiry, expected, within }: &Asks) -> Result<(), String> {
        self.stage.settle();
        let difference = |answer: &str| {
            let expected = expected.as_ref()?;
            compare(expected.get(), answer.as_bytes(), Comparison::Like)
        };
        let answer = self
            .stage
            .ask(inquiry, within.unwrap_or_default(), &|answer| difference(answer).is_none())?;
        match difference(&answer) {
            Some(difference) => {
                let expected = expected.as_ref().map_or("", |expected| expected.get());
                Err(format!("expected: {expected}\ngot:      {answer}\n{difference}"))
            }
            None => Ok(()),
        }
    }

    fn quiet(&mut self) -> Result<(), String> {
        self.stage.settle();
        let board = self.stage.board();
        match board.fault.take().or_else(|| board.left_over()) {
            Some(left) => Err(format!("nothing was expected, but there is\n{left}")),
            None => Ok(()),
        }
    }

    fn finish(&mut self, transcript: &Transcript) -> Result<(), String> {
        let has =
            |which: fn(&Action) -> bool| transcript.steps.iter().any(|step| which(&step.action));
        let may_end = has(|action| {
            matches!(
                action,
                Action::EndInput | Action::CloseOutput | Action::Signal(_) | Action::Exit { .. }
            )
        });
        if self.stage.board().exit.is_some() && !may_end {
            return Err("the program ended, and no step asks for it".to_owned());
        }
        self.stage.finish(!has(|action| matches!(action, Action::Exit { .. })))?;
        self.stage.board().fault.take().map_or(Ok(()), Err)
    }

    fn named(&self, name: &str) -> Result<usize, String> {
        self.requests.get(name).copied().ok_or_else(|| format!("no request has the name {name:?}"))
    }

    fn waiting(&mut self) -> String {
        self.stage
            .board()
            .left_over()
            .map_or("nothing else is there".to_owned(), |left| format!("there is\n{left}"))
    }

    /// Keeps the id of a message under a name.
    fn save(&mut self, name: Option<&str>, message: &[u8]) -> Result<(), String> {
        #[derive(Deserialize)]
        struct HasId<'text> {
            #[serde(borrow)]
            id: &'text RawValue,
        }
        if let Some(name) = name {
            let HasId { id } = serde_json::from_slice(message)
                .map_err(|error| format!("there is no id to save: {error}"))?;
            self.ids.insert(name.to_owned(), id.get().to_owned());
        }
        Ok(())
    }

    /// The text of a message, with saved ids where it names them.
    fn resolve(&self, message: &RawValue) -> Result<String, String> {
        let mut text = String::new();
        let mut rest = message.get();
        while let Some((before, after)) = rest.split_once(REFERENCE) {
            let (name, after) = after.split_once("\"}").ok_or("a `$ref` has no end")?;
            text += before;
            text += self.ids.get(name).ok_or_else(|| format!("no id was saved as {name:?}"))?;
            rest = after;
        }
        Ok(text + rest)
    }
}

fn compare(wanted: &str, found: &[u8], comparison: Comparison) -> Option<String> {
    if wanted.as_bytes() == found {
        return None;
    }
    if comparison == Comparison::Bytes {
        let same =
            wanted.as_bytes().iter().zip(found).take_while(|(one, other)| one == other).count();
        return Some(format!("differs from byte {same} on"));
    }
    match (Json::parse(wanted.as_bytes()), Json::parse(found)) {
        (Ok(wanted), Ok(found)) => {
            let differences = wanted.differences(&found, comparison == Comparison::Like);
            (!differences.is_empty()).then(|| differences.join("\n"))
        }
        (Err(error), _) => Some(format!("what is expected {error}")),
        (_, Err(error)) => Some(format!("what came {error}")),
    }
}

/// Why a request is not the one that a step names: every reason, a line each.
fn mismatch(gets: &Gets, body: Option<(&str, Comparison)>, request: &Request) -> Option<String> {
    let shown = |value: Option<&str>| value.map_or("absent".to_owned(), |text| format!("{text:?}"));
    let is_not = |what: &str, found: Option<&str>, wanted: Option<&str>| {
        format!("{what} is {}, not {}", shown(found), shown(wanted))
    };
    let mut reasons = Vec::new();
    for (what, wanted, found) in [
        ("the path", gets.path.as_deref(), request.path.as_deref()),
        ("the version of HTTP", gets.http.as_deref(), request.http.as_deref()),
    ] {
        if wanted.is_some() && wanted != found {
            reasons.push(is_not(what, found, wanted));
        }
    }
    for (name, wanted) in &gets.headers {
        match (wanted.as_deref(), request.header(&name.to_ascii_lowercase())) {
            (Some("*"), Some(_)) => {}
            (wanted, found) if wanted == found => {}
            (wanted, found) => reasons.push(is_not(&format!("the header {name}"), found, wanted)),
        }
    }
    if let Some((text, comparison)) = body
        && let Some(difference) = compare(text, &request.body, comparison)
    {
        let found = String::from_utf8_lossy(&request.body);
        reasons.push(format!("expected: {text}\ngot:      {found}\n{difference}"));
    }
    (!reasons.is_empty()).then(|| reasons.join("\n"))
}

/// What a call of the editor changes, if it is one of those that change something (E1).
pub(super) fn called(call: &[u8]) -> Option<Inquiry> {
    #[derive(Deserialize)]
    struct Call<'a> {
        method: Cow<'a, str>,
        params: Option<Closed<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Closed<'a> {
        session_id: Option<Cow<'a, str>>,
    }
    let Call { method, params } = serde_json::from_slice(call).ok()?;
    match &*method {
        OWN_RECONNECT => Some(Inquiry::Reconnect),
        OWN_CLOSE => Some(Inquiry::Close(SessionId(params?.session_id?.into()))),
        _ => None,
    }
}

/// Why some bytes cannot be one message (S5).
pub(super) fn unfit(message: &[u8]) -> Option<&'static str> {
    if memchr::memchr2(b'\n', b'\r', message).is_some() {
        return Some("S5: a message holds a line end");
    }
    let whole = serde_json::from_slice::<IgnoredAny>(message).is_ok();
    (!whole).then_some("S5: a message is no JSON")
}
