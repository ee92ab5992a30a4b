//! The invariants (docs/INVARIANTS.md), checked after every step against what the editor wrote and
//! what the remote sent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use acp_tether::core::Level;
use memchr::{memchr3_iter, memmem};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::remote::{Body, Sent, Sort};

/// A request of the editor.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number `_k` among the editor's messages.
    pub number: u64,
    /// Its id, raw.
    pub id: String,
    /// Its method.
    pub method: String,
    /// The session that it names.
    pub session: Option<String>,
    /// Its bytes.
    pub line: String,
}

/// What a line was to the editor.
#[derive(Clone, Debug)]
pub enum Seen {
    /// An answer; with its text where it is a result.
    Answer {
        /// The request.
        request: Rc<Request>,
        /// The line, if it is no error.
        result: Option<String>,
    },
    /// A question.
    Question {
        /// Our id, raw.
        id: String,
        /// What is asked.
        ask: u64,
    },
    /// A question is withdrawn.
    Withdrawn {
        /// Our id, raw.
        id: String,
    },
    /// Anything else.
    Other,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The invariant.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
}

/// See the module's page.
#[derive(Debug, Default)]
pub struct Checks {
    /// The first rule that did not hold.
    pub broken: Option<Broken>,
    /// The only session that may see errors (I13), where that is so.
    pub unlucky: Option<Option<String>>,
    /// Nothing goes wrong: no error of ours may be seen at all.
    pub is_flawless: bool,
    /// Gaps are told in the conversation (V11).
    pub notices: bool,
    /// The protocol version.
    pub version: u8,
    /// The editor has ended.
    pub has_ended: bool,
    open: BTreeMap<String, Rc<Request>>,
    /// The sessions that the editor ever closed: what it still asks of them may fail.
    closed: BTreeSet<String>,
    /// The bytes of every message of the editor, by number.
    lines: BTreeMap<u64, String>,
    /// The sessions with a gap, and the editor's newest message when it was told of.
    gaps: BTreeMap<String, u64>,
    /// The sessions of which nothing was seen since a gap was told in the conversation.
    told: BTreeSet<String>,
    /// How often the remote took each.
    taken: BTreeMap<u64, u32>,
    /// What the editor was told did not reach the remote.
    untaken: BTreeSet<u64>,
    /// The newest cancel of the editor, by session.
    cancels: BTreeMap<String, u64>,
    /// The line that must be refused at once, by id and code.
    refusal: Option<(String, i64)>,
    /// Which messages of the remote the editor has seen.
    seen: BTreeSet<usize>,
    /// The newest update, and the newest answer, that the editor has seen of each session.
    newest: BTreeMap<String, (usize, usize)>,
    /// The questions before the editor: our ids and the remote's number of each.
    questions: BTreeMap<String, usize>,
    /// The newest message of the editor that the remote took, by connection and session.
    order: BTreeMap<(String, Option<String>), u64>,
    /// The newest prompt, by connection and session.
    prompts: BTreeMap<(String, String), u64>,
    /// When what was lost, of which session.
    losses: Vec<(u64, Option<String>, usize)>,
    /// When the core complained, and of which session.
    complaints: Vec<(u64, Option<String>)>,
    /// The messages of the remote that the last step passed on, and whether it wrote a log line.
    passed: Vec<usize>,
    logged: bool,
    /// The messages that stood still on their way: the end of a replay is known by its silence, so
    /// one that pauses for seconds looks ended (R12).
    stalled: BTreeSet<usize>,
    /// The editor's messages whose POST the core gave up.
    given_up: BTreeSet<u64>,
    /// How far from a loss it may be told, in milliseconds: longer where the machine sleeps.
    pub patience: u64,
    /// By what it logs, the core has a connection.
    pub is_connected: bool,
    /// When the core last posted a load of its own, by session.
    own_loads: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(rename = "_n")]
    number: Option<usize>,
}

#[derive(Deserialize)]
struct Error {
    code: i64,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    kind: Option<String>,
    delivery: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Withdrawal<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
}

impl Checks {
    /// A rule does not hold.
    pub fn fail(&mut self, rule: &'static str, what: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken { rule, what: what.into() });
        }
    }

    /// The editor writes a request.
    pub fn wrote_request(&mut self, request: &Rc<Request>) {
        self.lines.insert(request.number, request.line.clone());
        if request.method == "session/close" {
            self.closed.extend(request.session.clone());
        }
        self.open.insert(request.id.clone(), Rc::clone(request));
    }

    /// The editor writes a notification or an answer.
    pub fn wrote(&mut self, number: u64, line: &str) {
        const CANCEL: &str = r#""method":"session/cancel","params":{"sessionId":""#;
        let cancelled = line.split_once(CANCEL).and_then(|(_, rest)| rest.split('"').next());
        self.cancels.extend(cancelled.map(|session| (session.to_owned(), number)));
        self.lines.insert(number, line.to_owned());
    }

    /// The editor writes what must be refused.
    pub fn wrote_refused(&mut self, id: &str, code: i64) {
        self.refusal = Some((id.to_owned(), code));
    }

    /// The editor answers a question: it is before the person no longer.
    pub fn answers(&mut self, id: &str) {
        self.questions.remove(id);
    }

    /// The editor's open requests.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &Request> {
        self.open.values().map(|request| &**request)
    }

    /// A step begins.
    pub fn begin(&mut self) {
        self.passed.clear();
        self.logged = false;
    }

    /// A step is over.
    pub fn end(&mut self) {
        if let Some((id, code)) = self.refusal.take() {
            self.fail("I1", format!("no error {code} under {id} for a line that is no request"));
        }
    }

    /// The core took this message of the remote from a living stream in the step that is over: it
    /// was passed on, or a log line says why not.
    pub fn dealt_with(&mut self, now: u64, number: usize, sent: &[Sent], is_own_answer: bool) {
        if self.passed.contains(&number) || self.logged || is_own_answer {
            return;
        }
        let message = &sent[number];
        let is_in_own_load = message
            .session
            .as_ref()
            .and_then(|session| self.own_loads.get(session))
            .is_some_and(|at| at + 130_000 > now);
        let is_held = match &message.sort {
            // It waits for the end of a replay, and is missed if it never comes.
            Sort::Answer(id) => self.open.contains_key(id),
            // What was asked before the connection was lost, and is answered already (V6).
            Sort::Question { ask, .. } => sent[..number]
                .iter()
                .any(|it| matches!(&it.sort, Sort::Question { ask: before, .. } if before == ask)),
            _ => false,
        };
        if !is_in_own_load && !is_held && !self.seen.contains(&number) {
            self.fail("I17", format!("dropped in silence: {}", message.text()));
        }
    }

    /// The core logs.
    pub fn log(&mut self, now: u64, level: Level, text: &str) {
        self.logged = true;
        if text.starts_with("the connection is lost") {
            self.is_connected = false;
        } else if text.starts_with("connected to the remote agent") {
            self.is_connected = true;
        }
        if level > Level::Warn {
            return;
        }
        let session = text.split("session \"").nth(1).and_then(|rest| rest.split('"').next());
        if let Some(session) = session.filter(|_| text.starts_with("a gap")) {
            let newest = self.lines.last_key_value().map_or(0, |(number, _)| *number);
            self.gaps.insert(session.to_owned(), newest);
        }
        self.complaints.push((now, session.map(str::to_owned)));
    }

    /// The core writes a line to the editor; what it is, and its number `_n`. Meanwhile the streams of these sessions are open and move:
    /// of others the end of a replay is waited for in vain (R12).
    pub fn line(
        &mut self,
        now: u64,
        bytes: &[u8],
        sent: &[Sent],
        may_be_idle: bool,
        moves: &dyn Fn(&str) -> bool,
    ) -> (Seen, Option<usize>) {
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.fail("I6", "a line that is not UTF-8");
            return (Seen::Other, None);
        };
        if memchr3_iter(b'\n', b'\r', 0xE2, bytes).any(|at| ends_line(&bytes[at..])) {
            self.fail("I6", format!("a line end inside a line: {text}"));
        }
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            self.fail("I6", format!("no JSON: {text}"));
            return (Seen::Other, None);
        };
        let seen = match line.number {
            Some(number) => self.passed_on(text, &line, number, sent, moves),
            None => self.ours(now, text, &line, may_be_idle),
        };
        (seen, line.number)
    }

    /// A line that the remote sent.
    fn passed_on(
        &mut self,
        text: &str,
        line: &Line<'_>,
        number: usize,
        sent: &[Sent],
        moves: &dyn Fn(&str) -> bool,
    ) -> Seen {
        let Some(message) = sent.get(number) else {
            self.fail("I5", format!("the remote never sent this: {text}"));
            return Seen::Other;
        };
        self.passed.push(number);
        if let Some(session) = &message.session {
            self.told.remove(session);
        }
        if !self.seen.insert(number) {
            self.fail("I3", format!("seen twice: {text}"));
        }
        if message.sort == (Sort::Replay { own: true }) && !self.stalled.contains(&number) {
            self.fail("I3", format!("a replay of the core's own load: {text}"));
        }
        let id = line.id.map(RawValue::get).unwrap_or_default();
        let (original, seen) = match &message.sort {
            Sort::Answer(answered) => {
                let Some(request) = self.open.remove(answered) else {
                    self.fail("I1", format!("an answer that the editor does not wait for: {text}"));
                    return Seen::Other;
                };
                let result = line.error.is_none().then(|| text.to_owned());
                // Of two streams only the end of a replay, or of a session, is waited for (R12); the
                // end of a turn comes on the session's own.
                let closes = matches!(request.method.as_str(), "session/load" | "session/close")
                    || request.line.contains("replayFrom");
                let is_last = closes && request.session.as_deref().is_some_and(moves);
                // From version 2 on a prompt's answer ends no turn. On another stream it waits for one that
                // is read, as the end of a replay does; one that was refused (401) brings nothing.
                let waits = self.version < 2 && request.session.as_deref().is_some_and(moves);
                let ends_turn =
                    request.method == "session/prompt" && (message.session.is_some() || waits);
                if result.is_some() && (is_last || ends_turn) {
                    self.in_order(request.session.as_deref(), number, true, text);
                }
                (Cow::Borrowed(text), Seen::Answer { request, result })
            }
            Sort::Question { ask, id: theirs } => {
                self.in_order(message.session.as_deref(), number, false, text);
                if id.starts_with("\"acp-tether-own") || self.questions.contains_key(id) {
                    self.fail("I9", format!("a question under an id that is not free: {text}"));
                }
                self.questions.insert(id.to_owned(), number);
                let seen = Seen::Question { id: id.to_owned(), ask: *ask };
                (Cow::Owned(text.replacen(id, theirs, 1)), seen)
            }
            Sort::Withdraw { ask: withdrawn_ask, id: theirs } => {
                let named = withdrawn(line);
                let right = self.questions.get(&named).is_some_and(|asked| {
                    let asked = *asked;
                    matches!(&sent[asked].sort, Sort::Question { ask, .. } if ask == withdrawn_ask)
                });
                if !right {
                    self.fail("I8", format!("withdraws a question that is not open: {text}"));
                }
                (Cow::Owned(text.replacen(&named, theirs, 1)), Seen::Withdrawn { id: named })
            }
            Sort::Update | Sort::Replay { .. } => {
                self.in_order(message.session.as_deref(), number, false, text);
                (Cow::Borrowed(text), Seen::Other)
            }
        };
        if original.as_bytes() != message.bytes {
            self.fail("I5", format!("{text} was {}", message.text()));
        }
        seen
    }

    /// Updates come in the order in which they were sent, and before the answers that follow them.
    fn in_order(&mut self, session: Option<&str>, number: usize, is_answer: bool, text: &str) {
        let Some(session) = session else { return };
        let Some((update, answer)) = self.newest.get_mut(session) else {
            let first = if is_answer { (0, number) } else { (number, 0) };
            self.newest.insert(session.to_owned(), first);
            return;
        };
        if is_answer {
            *answer = (*answer).max(number);
        } else if number < *update {
            let before = *update;
            self.fail("I4", format!("after message {before}: {text}"));
        } else if number < *answer && !self.stalled.contains(&number) {
            let before = *answer;
            self.fail("I4", format!("after the answer {before}, which was sent later: {text}"));
        } else {
            *update = number;
        }
    }

    /// A line that the core itself wrote.
    fn ours(&mut self, now: u64, text: &str, line: &Line<'_>, may_be_idle: bool) -> Seen {
        match (line.method, line.error) {
            (Some("$/cancel_request"), _) => {
                let id = withdrawn(line);
                // One that the agent withdrew is open until the editor answers it.
                if !self.questions.contains_key(&id) {
                    self.fail("I8", format!("withdraws a question that is not open: {text}"));
                }
                Seen::Withdrawn { id }
            }
            (Some("session/update"), _) => {
                let session = text.split("\"sessionId\":\"").nth(1);
                let session = session.and_then(|rest| rest.split('"').next());
                self.complaints.push((now, session.map(str::to_owned)));
                self.told.extend(session.map(str::to_owned));
                if self.is_flawless {
                    self.fail("I10", format!("a gap was told where there is none: {text}"));
                }
                Seen::Other
            }
            (None, Some(error)) => self.our_error(now, text, line, error, may_be_idle),
            (None, None) if self.is_call(line) => {
                let request = line.id.and_then(|id| self.open.remove(id.get()));
                request.map_or(Seen::Other, |request| Seen::Answer {
                    request,
                    result: Some(text.to_owned()),
                })
            }
            _ => {
                self.fail("I5", format!("a line from nowhere: {text}"));
                Seen::Other
            }
        }
    }

    /// Whether a line answers a call to a method of our own (E1).
    fn is_call(&self, line: &Line<'_>) -> bool {
        let request = line.id.and_then(|id| self.open.get(id.get()));
        request.is_some_and(|request| request.method.starts_with("_acp-tether/"))
    }

    fn our_error(
        &mut self,
        now: u64,
        text: &str,
        line: &Line<'_>,
        error: &RawValue,
        may_be_idle: bool,
    ) -> Seen {
        let id = line.id.map_or("null", RawValue::get);
        let Ok(Error { code, data }) = serde_json::from_str(error.get()) else {
            self.fail("I6", format!("an error that is none: {text}"));
            return Seen::Other;
        };
        if self.refusal.as_ref().is_some_and(|(of, with)| of == id && *with == code) {
            self.refusal = None;
            return Seen::Other;
        }
        let Some(request) = self.open.remove(id) else {
            self.fail("I1", format!("an error that the editor does not wait for: {text}"));
            return Seen::Other;
        };
        let Some(Data { kind: Some(kind), delivery }) = data else {
            // The core refuses what is no use: before `initialize`, a second one, an id of its own.
            let is_fair = code == -32600
                && (may_be_idle || request.method == "initialize" || id.contains("acp-tether-own"));
            if !is_fair {
                self.fail("I1", format!("an error without a reason: {text}"));
            }
            self.untaken.insert(request.number);
            return Seen::Answer { request, result: None };
        };
        let cancel = request.session.as_ref().and_then(|session| self.cancels.get(session));
        if code == -32800 && cancel.is_none_or(|cancel| *cancel < request.number) {
            self.fail("R10", format!("nobody has cancelled this: {text}"));
        }
        self.complaints.push((now, request.session.clone()));
        self.complaints.push((now, None));
        let is_lost_turn = request.method == "session/prompt"
            && kind == "connection_lost"
            && !matches!(delivery.as_deref(), Some("unsent" | "refused"));
        let is_told = request.session.as_ref().is_some_and(|it| self.told.contains(it));
        if is_lost_turn && self.notices && !is_told && !self.has_ended {
            self.fail("V11", format!("the conversation does not tell of this: {text}"));
        }
        let taken = self.taken.get(&request.number).copied().unwrap_or_default();
        match delivery.as_deref() {
            Some("unsent" | "refused") => {
                self.untaken.insert(request.number);
                // An `initialize` is tried again (L3): what is said is of the last try.
                if taken > 0 && request.method != "initialize" {
                    self.fail("I2", format!("the remote has it: {text}"));
                }
            }
            Some("accepted") if taken == 0 => {
                self.fail("I2", format!("the remote never took it: {text}"));
            }
            _ => {}
        }
        let is_closed = |session: &String| self.closed.contains(session);
        let is_fair = self.has_ended
            || request.session.as_ref().is_some_and(is_closed)
            || text.contains("a turn is running")
            || text.contains("was closed meanwhile");
        if self.is_flawless && !is_fair {
            self.fail("I1", format!("an error where nothing went wrong: {text}"));
        }
        if let Some(unlucky) = &self.unlucky
            && !is_fair
            && (request.session.is_none() || request.session != *unlucky)
        {
            self.fail("I13", format!("{kind} for a session that nothing happened to: {text}"));
        }
        Seen::Answer { request, result: None }
    }

    /// The core posts a message; the id, if it is a request of its own.
    pub fn posts(&mut self, now: u64, session: Option<&str>, posted: &Body<'_>) -> Option<String> {
        let id = posted.id();
        if posted.method.is_none() || self.is_of_the_editor(posted) {
            let is_open = |number| self.open.get(id).is_some_and(|it| it.number == number);
            let is_request = posted.method.is_some() && posted.id.is_some();
            if is_request && !posted.number.is_some_and(is_open) {
                self.fail("I2", format!("posted, and the editor has its answer: {id}"));
            }
            return None;
        }
        if self.open.contains_key(id) {
            self.fail("I9", format!("the core's own request has the id of an open one: {id}"));
        }
        if posted.method == Some("session/load")
            && let Some(session) = session
        {
            self.own_loads.insert(session.to_owned(), now);
        }
        serde_json::from_str(id).ok()
    }

    fn is_of_the_editor(&self, posted: &Body<'_>) -> bool {
        const NAME: &[u8] = b"\"id\":";
        let names = |line: &[u8], at: usize| {
            let value = &line[at + NAME.len()..];
            value.strip_prefix(b" ").unwrap_or(value).starts_with(posted.id().as_bytes())
        };
        posted.number.and_then(|number| self.lines.get(&number)).is_some_and(|line| {
            let line = line.as_bytes();
            posted.id.is_none() || memmem::find_iter(line, NAME).any(|at| names(line, at))
        })
    }

    /// The core waits for a POST no longer: it may arrive after all, and after what came later.
    pub fn gave_up(&mut self, body: &[u8]) {
        if let Some(Body { number: Some(number), .. }) = Body::read(body) {
            self.given_up.insert(number);
        }
    }

    /// The remote takes a message.
    pub fn taken(
        &mut self,
        connection: Option<&str>,
        session: Option<&str>,
        posted: &Body<'_>,
        body: &[u8],
    ) {
        let id = posted.id();
        let Some(number) = posted.number else { return };
        if posted.method.is_some_and(|method| method.starts_with("_acp-tether/")) {
            self.fail("E1", "a method of our own was sent on");
        }
        let Some(line) = self.lines.get(&number) else {
            return self.fail("I5", "a message that the editor never wrote");
        };
        let text = String::from_utf8_lossy(body);
        match &posted.method {
            Some(_) if !self.is_of_the_editor(posted) => return,
            Some(_) if *line != text => {
                let what = format!("{text} was {line}");
                return self.fail("I5", what);
            }
            None => {
                let start = line.find("\"id\":").map_or(0, |at| at + 5);
                let end = line[start..].find(',').map_or(line.len(), |at| start + at);
                let expected = format!("{}{id}{}", &line[..start], &line[end..]);
                if expected != text {
                    let what = format!("{text} was {line}");
                    return self.fail("I5", what);
                }
                if session.is_none() {
                    self.fail("C4", format!("an answer without its session: {text}"));
                }
            }
            Some(_) => {}
        }
        let times = self.taken.entry(number).or_default();
        *times += 1;
        // What the core repeats for its own sake has an id of its own, which may have been one of the
        // editor's.
        let may_repeat =
            matches!(posted.method, Some("initialize" | "authenticate" | "auth/login"));
        // A person's answer goes to the same question that is asked again, whatever became of the POST
        // that was given up (V6).
        let is_asked_again = posted.method.is_none() && self.given_up.contains(&number);
        if *times > 1 && (may_repeat || is_asked_again) {
            return;
        }
        if *times > 1 {
            self.fail("I2", format!("taken twice: {text}"));
        }
        if self.untaken.contains(&number) {
            self.fail("I2", format!("taken, and the editor was told that it was not: {text}"));
        }
        let (Some(connection), Some(method)) = (connection, posted.method) else {
            return;
        };
        if method == "$/cancel_request" {
            return;
        }
        let scope = (connection.to_owned(), session.map(str::to_owned));
        let before = self.order.insert(scope, number).unwrap_or_default();
        if before > number && !self.given_up.contains(&number) {
            self.fail("I4", format!("taken after message {before}: {text}"));
        }
        if let Some(session) = session {
            let scope = (connection.to_owned(), session.to_owned());
            match method {
                "session/prompt" => {
                    self.prompts.insert(scope, number);
                }
                "session/cancel"
                    if self.prompts.get(&scope).is_some_and(|it| *it > number)
                        && !self.given_up.contains(&number) =>
                {
                    self.fail("V10", format!("a cancel reached a later turn: {text}"));
                }
                _ => {}
            }
        }
    }

    /// Whether the answer to a request may be in a gap, and ends by `--orphan-timeout` (R10).
    pub fn may_be_in_a_gap(&self, request: &Request) -> bool {
        let gap = request.session.as_ref().and_then(|session| self.gaps.get(session));
        gap.is_some_and(|newest| request.number <= *newest)
    }

    /// A message of the remote stands still on its way.
    pub fn stalls(&mut self, number: usize) {
        self.stalled.insert(number);
    }

    /// The network lost a message of the remote for good. An answer that nobody waits for any more
    /// is no loss: its request was answered with the error that tells.
    pub fn lost(&mut self, now: u64, number: usize, sent: &[Sent]) {
        if matches!(&sent[number].sort, Sort::Answer(id) if !self.open.contains_key(id)) {
            return;
        }
        self.losses.push((now, sent[number].session.clone(), number));
    }

    /// At the end: what was lost was told (I10).
    pub fn told_of_losses(&mut self, sent: &[Sent]) {
        let silent = self.losses.iter().find(|(at, session, number)| {
            !self.seen.contains(number)
                && !self.complaints.iter().any(|(when, of)| {
                    when.abs_diff(*at) <= self.patience && (of.is_none() || of == session)
                })
        });
        if let Some((at, _, number)) = silent.cloned() {
            self.fail("I10", format!("lost at {at} and never told: {}", sent[number].text()));
        }
    }
}

/// Whether a line end is the first of these bytes: LF, CR, U+2028 or U+2029.
fn ends_line(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\n' | b'\r', ..] | [0xE2, 0x80, 0xA8 | 0xA9, ..])
}

fn withdrawn(line: &Line<'_>) -> String {
    let params = line.params.map(RawValue::get).unwrap_or_default();
    let read = serde_json::from_str::<Withdrawal<'_>>(params);
    let id = read.ok().and_then(|params| params.request_id).map(RawValue::get);
    id.unwrap_or_default().to_owned()
}
