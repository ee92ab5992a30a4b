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

/// What a message is to the order of its session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// An update.
    Update,
    /// A question: a person is asked at once, also where the end of the turn before waits for its stream.
    Question,
    /// An answer that follows updates.
    Answer,
    /// The end of a turn: updates follow it, too.
    End,
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
    /// All comes on the connection's stream.
    pub has_one_stream: bool,
    /// The answer to a prompt is the end of its turn, and comes in the order of its stream.
    pub ends_turns: bool,
    /// The editor has ended.
    pub has_ended: bool,
    open: BTreeMap<String, Rc<Request>>,
    /// The sessions that the editor ever closed: what it still asks of them may fail.
    closed: BTreeSet<String>,
    /// The sessions that the editor was told are lost: it misses what they still say until it has one
    /// of them again (V9).
    lost_sessions: BTreeSet<String>,
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
    /// Which have reached the core.
    dealt: BTreeSet<usize>,
    /// The newest update, and the newest answer, that the editor has seen of each session.
    newest: BTreeMap<String, (usize, usize)>,
    /// The questions before the editor: our ids and the remote's number of each.
    questions: BTreeMap<String, usize>,
    /// Those that were withdrawn: our ids.
    withdrawn: BTreeSet<String>,
    /// The newest message of the editor that the remote took, by connection and session.
    order: BTreeMap<(String, Option<String>), u64>,
    /// The newest prompt, by connection and session.
    prompts: BTreeMap<(String, String), u64>,
    /// What was lost.
    losses: Vec<Loss>,
    /// What the core said of losses.
    complaints: Vec<Complaint>,
    /// The messages of the remote that the last step passed on, and whether it told of one that it
    /// dropped.
    passed: Vec<usize>,
    told_drop: bool,
    /// The last step dropped a repeat.
    told_repeat: bool,
    /// The messages that stood still on an open stream: the end of a replay is known by its silence,
    /// so one that pauses for seconds looks ended (R12).
    paused: BTreeSet<usize>,
    /// Those that came with another stream, or long after they were said: what was said later may
    /// have come before them (R12).
    late: BTreeSet<usize>,
    /// The editor's messages whose POST the core gave up.
    given_up: BTreeSet<u64>,
    /// How far from a loss it may be told, in milliseconds: longer where the machine sleeps.
    pub patience: u64,
    /// By what it logs, the core has a connection.
    pub is_connected: bool,
    /// The loads of the core's own, by session: what comes meanwhile is taken for their replay (V3).
    own_loads: BTreeMap<String, Vec<OwnLoad>>,
    /// The ids of the core's own requests: the editor may use one later.
    own_ids: BTreeSet<String>,
    /// The sessions whose last load of the editor was answered with an error of ours.
    failed_loads: BTreeSet<String>,
    /// The sessions of which a gap was logged, and nothing was seen since (V11).
    gapped: BTreeSet<String>,
    /// The sessions that the editor may know of.
    known: BTreeSet<String>,
}

/// A message that the network lost.
#[derive(Clone, Debug)]
struct Loss {
    /// When its stream was lost.
    at: u64,
    session: Option<String>,
    number: usize,
    /// It has an id and the core one before it, so it is sent again unless the server has forgotten it.
    is_numbered: bool,
}

/// The core says that something may be lost.
#[derive(Debug)]
struct Complaint {
    at: u64,
    of: Whose,
    /// It says so of what is sent again, too: not only that a stream broke.
    is_for_good: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Whose {
    All,
    /// The session's, or what belongs to none.
    One(Option<String>),
    /// The answer to this request.
    Answer(String),
}

/// A load of the core's own.
#[derive(Debug)]
struct OwnLoad {
    id: String,
    /// Until then what comes may be its replay.
    until: u64,
}

/// How long the core waits for the replay of a load of its own that is answered on another stream, and for that
/// stream (V3), and how long the editor may not read meanwhile.
const OWN_REPLAY: u64 = 60_000 + 20_000 + 10_000;
/// How long a load of the core's own may take, and its replay come behind it, where nothing answers it.
const OWN_LOAD: u64 = 130_000;

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
        self.known.extend(request.session.clone());
        if request.method == "session/close" {
            self.closed.extend(request.session.clone());
        }
        if let Some(session) = request.session.as_ref().filter(|_| replays(request)) {
            self.failed_loads.remove(session);
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
        self.told_drop = false;
        self.told_repeat = false;
    }

    /// A step is over.
    pub fn end(&mut self) {
        if let Some((id, code)) = self.refusal.take() {
            self.fail("I1", format!("no error {code} under {id} for a line that is no request"));
        }
    }

    /// The core took this message of the remote from a living stream in the step that is over: it
    /// was passed on, or a log line says that it was dropped, or there is a reason that needs none.
    pub fn dealt_with(&mut self, now: u64, number: usize, sent: &[Sent]) {
        let message = &sent[number];
        if let Sort::Answer(id) = &message.sort
            && self.own_ids.contains(id)
        {
            return self.own_answered(now, id, message.session.is_some());
        }
        // What was dealt with before is a repeat (R5).
        let is_first = self.dealt.insert(number);
        if self.passed.contains(&number) || self.told_drop || !is_first {
            return;
        }
        let session = message.session.as_ref();
        let (rule, is_fair) = match &message.sort {
            Sort::Update => ("I10", session.is_some_and(|it| self.may_miss(now, it))),
            // Of a load that was answered with an error, half a history is of no use; nor is the rest of one
            // that is told to have a gap.
            Sort::Replay { own } => {
                let is_of_no_use = |it| self.failed_loads.contains(it) || self.gapped.contains(it);
                ("V3", *own || session.is_some_and(is_of_no_use))
            }
            // It waits for the end of a replay, and is missed if it never comes.
            // One that is wrongly taken for a repeat leaves its request open (I19).
            Sort::Answer(id) => ("I17", self.told_repeat || self.open.contains_key(id)),
            // What was asked before the connection was lost stands for it, or is answered already (V6). All the
            // same something came of the session.
            Sort::Question { ask, .. } => {
                if let Some(session) = session {
                    self.told.remove(session);
                    self.gapped.remove(session);
                }
                let is_it = |it: &Sent| matches!(&it.sort, Sort::Question { ask: before, .. } if before == ask);
                ("I17", sent[..number].iter().any(is_it))
            }
            // The question never came, or is before the person no longer.
            Sort::Withdraw { ask, id } => {
                let asked = Sort::Question { ask: *ask, id: id.clone() };
                let is_before_the_person = |(id, number): (&String, &usize)| {
                    sent[*number].sort == asked && !self.withdrawn.contains(id)
                };
                ("I8", !self.questions.iter().any(is_before_the_person))
            }
        };
        if !is_fair {
            self.fail(rule, format!("dropped in silence: {}", message.text()));
        }
    }

    /// Whether an update of a session may be taken for the replay of a load of the core's own, or its
    /// loss has been told of already.
    fn may_miss(&self, now: u64, session: &String) -> bool {
        let loads = self.own_loads.get(session);
        loads.is_some_and(|loads| loads.iter().any(|load| now < load.until))
            || self.gapped.contains(session)
    }

    /// So much time does not count for what the core waits for (L11).
    pub fn stands_still(&mut self, millis: u64) {
        self.own_loads.values_mut().flatten().for_each(|load| load.until += millis);
    }

    /// The answer to a request of the core's own reaches it. Behind one on the session's stream no replay
    /// comes any more.
    fn own_answered(&mut self, now: u64, id: &str, is_on_session: bool) {
        for loads in self.own_loads.values_mut() {
            if is_on_session {
                loads.retain(|load| load.id != id);
            } else if let Some(load) = loads.iter_mut().find(|load| load.id == id) {
                load.until = load.until.min(now + OWN_REPLAY);
            }
        }
    }

    /// The core logs.
    pub fn log(&mut self, now: u64, level: Level, text: &str) {
        self.told_drop |= level <= Level::Warn && text.starts_with("dropped ");
        self.told_repeat |= text.starts_with("dropped a repeat");
        if text.starts_with("the connection is lost") {
            self.is_connected = false;
            self.own_loads.clear();
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
            self.gapped.insert(session.to_owned());
        }
        // What is only away comes again, where the server numbers it.
        const PASSES: [&str; 4] =
            ["broke: ", "cannot be opened: ", "was refused with ", "may never come"];
        let of = match session {
            _ if text.starts_with("the connection is lost") => Whose::All,
            Some(session) => Whose::One(Some(session.to_owned())),
            None if text.contains("of the connection") || text.contains("the connection's own") => {
                Whose::One(None)
            }
            None => return,
        };
        let is_for_good = !PASSES.iter().any(|words| text.contains(words));
        if level == Level::Error {
            self.lost_sessions.extend(session.map(str::to_owned));
        }
        self.complaints.push(Complaint { at: now, of, is_for_good });
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
            self.gapped.remove(session);
        }
        if !self.seen.insert(number) {
            self.fail("I3", format!("seen twice: {text}"));
        }
        if message.sort == (Sort::Replay { own: true }) && !self.paused.contains(&number) {
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
                if let Some(session) = &request.session {
                    self.told.remove(session);
                    self.gapped.remove(session);
                }
                if result.is_some() {
                    self.succeeded(&request, text);
                }
                // Of two streams only the end of a replay, or of a session, is waited for (R12); the
                // end of a turn comes on the session's own.
                let closes = matches!(request.method.as_str(), "session/load" | "session/close")
                    || request.line.contains("replayFrom");
                let is_last = closes && request.session.as_deref().is_some_and(moves);
                // From version 2 on a prompt's answer ends no turn. On another stream it waits for one that
                // is read, as the end of a replay does; one that was refused (401) brings nothing.
                let waits = self.version < 2 && request.session.as_deref().is_some_and(moves);
                let is_prompt = request.method == "session/prompt";
                let ends_turn = is_prompt && (message.session.is_some() || waits);
                if result.is_some() && (is_last || ends_turn) {
                    // It ends its turn, where it came on the same stream as that.
                    let ends = self.ends_turns && is_prompt && message.session == request.session;
                    let order = if ends { Order::End } else { Order::Answer };
                    self.in_order(request.session.as_deref(), number, order, text);
                }
                (Cow::Borrowed(text), Seen::Answer { request, result })
            }
            Sort::Question { ask, id: theirs } => {
                self.in_order(message.session.as_deref(), number, Order::Question, text);
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
                self.withdrawn.insert(named.clone());
                (Cow::Owned(text.replacen(&named, theirs, 1)), Seen::Withdrawn { id: named })
            }
            Sort::Update | Sort::Replay { .. } => {
                self.in_order(message.session.as_deref(), number, Order::Update, text);
                (Cow::Borrowed(text), Seen::Other)
            }
        };
        if original.as_bytes() != message.bytes {
            self.fail("I5", format!("{text} was {}", message.text()));
        }
        seen
    }

    /// Updates come in the order in which they were sent, and before the answers that follow them; the
    /// end of a turn comes before what follows it.
    fn in_order(&mut self, session: Option<&str>, number: usize, order: Order, text: &str) {
        let Some(session) = session else { return };
        let Some((update, answer)) = self.newest.get_mut(session) else {
            let first = match order {
                Order::Update => (number, 0),
                Order::Question => (0, 0),
                Order::Answer | Order::End => (0, number),
            };
            self.newest.insert(session.to_owned(), first);
            return;
        };
        let is_late = self.late.contains(&number) || self.paused.contains(&number);
        if matches!(order, Order::Answer | Order::End) {
            let before = *update;
            *answer = (*answer).max(number);
            if order == Order::End && number < before && !is_late {
                self.fail("I4", format!("the end of a turn after message {before}: {text}"));
            }
        } else if number < *update {
            let before = *update;
            self.fail("I4", format!("after message {before}: {text}"));
        } else if number < *answer && !is_late {
            let before = *answer;
            self.fail("I4", format!("after the answer {before}, which was sent later: {text}"));
        } else if order == Order::Update {
            *update = number;
        }
    }

    /// What a result that the editor sees means to the rules.
    fn succeeded(&mut self, request: &Request, text: &str) {
        let has_it = ["session/prompt", "session/load", "session/resume"];
        if let Some(session) =
            request.session.as_ref().filter(|_| has_it.contains(&&*request.method))
        {
            self.lost_sessions.remove(session);
        }
        match (request.method.as_str(), &request.session) {
            ("session/new", _) => {
                let named = text.split("\"sessionId\":\"").nth(1);
                let named = named.and_then(|rest| rest.split('"').next());
                if let Some(session) = named {
                    // Nothing was told of this one, if there was another under its id.
                    self.told.remove(session);
                    self.gapped.remove(session);
                    self.lost_sessions.remove(session);
                    self.known.insert(session.to_owned());
                }
            }
            // It lives again, unless a later close is under way.
            ("session/load" | "session/resume", Some(session)) => {
                let closes = |it: &Rc<Request>| {
                    it.method == "session/close" && it.session.as_ref() == Some(session)
                };
                if !self.open.values().any(closes) {
                    self.closed.remove(session);
                }
            }
            _ => {}
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
                self.withdrawn.insert(id.clone());
                Seen::Withdrawn { id }
            }
            (Some("session/update"), _) => {
                let session = text.split("\"sessionId\":\"").nth(1);
                let session = session.and_then(|rest| rest.split('"').next()).unwrap_or_default();
                if !text.contains(r#""sessionUpdate":"agent_message_chunk""#)
                    || !self.known.contains(session)
                {
                    self.fail("I5", format!("no notice of ours: {text}"));
                }
                if !self.notices {
                    self.fail("V11", format!("told, and notices are off: {text}"));
                }
                if !self.told.insert(session.to_owned()) {
                    self.fail("V11", format!("told twice, and nothing came between: {text}"));
                }
                let of = Whose::One(Some(session.to_owned()));
                self.complaints.push(Complaint { at: now, of, is_for_good: true });
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
        let of = Whose::One(request.session.clone());
        if kind == "session_lost" || kind == "conflict" {
            self.lost_sessions.extend(request.session.clone());
        }
        if replays(&request) {
            self.failed_loads.extend(request.session.clone());
        }
        let is_for_good =
            ["connection_lost", "session_lost", "stream_lost", "conflict"].contains(&&*kind);
        self.complaints.push(Complaint { at: now, of, is_for_good });
        let of = Whose::Answer(id.to_owned());
        self.complaints.push(Complaint { at: now, of, is_for_good: true });
        let is_lost_turn = request.method == "session/prompt"
            && kind == "connection_lost"
            && !matches!(delivery.as_deref(), Some("unsent" | "refused"));
        let is_told = request.session.as_ref().is_some_and(|it| self.told.contains(it));
        if is_lost_turn && self.notices && !is_told && !self.has_ended {
            self.fail("V11", format!("the conversation does not tell of this: {text}"));
        }
        if let Some(session) = request.session.as_ref().filter(|_| kind == "connect") {
            // Of a session that has nothing left the core forgets what it told; this came between.
            self.told.remove(session);
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
            if matches!(posted.method, Some("session/prompt" | "session/load" | "session/resume"))
                && let Some(session) = session
            {
                // What is lost of it is another gap (V11).
                self.told.remove(session);
            }
            return None;
        }
        self.own_ids.insert(id.to_owned());
        if self.open.contains_key(id) {
            self.fail("I9", format!("the core's own request has the id of an open one: {id}"));
        }
        if posted.method == Some("session/load")
            && let Some(session) = session
        {
            let load = OwnLoad { id: id.to_owned(), until: now + OWN_LOAD };
            self.own_loads.entry(session.to_owned()).or_default().push(load);
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

    /// A message of the remote stands still on an open stream.
    pub fn pauses(&mut self, number: usize) {
        self.paused.insert(number);
    }

    /// A message of the remote comes with another stream, or long after it was said.
    pub fn comes_late(&mut self, number: usize) {
        self.late.insert(number);
    }

    /// What is in this message never comes as it was, and that is in the log (R14).
    pub fn is_spoilt(&mut self, number: usize) {
        self.dealt.insert(number);
    }

    /// The network lost a message of the remote, when its stream broke, or was dropped. An answer that
    /// nobody waits for any more is no loss: its request was answered with the error that tells. Nor is
    /// a replay that nobody was to see, or what a session still says that the editor closed, or was told
    /// is lost; and a gap that was told grows until something comes (V11).
    pub fn lost(&mut self, at: u64, number: usize, is_numbered: bool, sent: &[Sent]) {
        let Sent { session, sort, .. } = &sent[number];
        let is_no_loss = match sort {
            Sort::Answer(id) => self.own_ids.contains(id) || !self.open.contains_key(id),
            Sort::Replay { own } => *own,
            _ => false,
        };
        let is_over = |session: &String| {
            self.closed.contains(session)
                || self.lost_sessions.contains(session)
                || self.gapped.contains(session)
        };
        if is_no_loss || session.as_ref().is_some_and(is_over) {
            return;
        }
        self.losses.push(Loss { at, session: session.clone(), number, is_numbered });
    }

    /// At the end: what was lost came after all, or it was told that it may be lost: not before it was,
    /// and not of another session (I10).
    pub fn told_of_losses(&mut self, ended_at: u64, sent: &[Sent]) {
        let tells = |complaint: &Complaint, loss: &Loss| {
            let is_of_it = match &complaint.of {
                Whose::All => true,
                // Where sessions have no stream of their own, it was lost with the connection's.
                Whose::One(None) if self.has_one_stream => true,
                Whose::One(of) => *of == loss.session,
                Whose::Answer(id) => sent[loss.number].sort == Sort::Answer(id.clone()),
            };
            // The error that its request is answered with may come as late as a doubt ends (R10), and
            // what the server numbers is lost only when it says so, once its stream is open again.
            let may_be_late = matches!(complaint.of, Whose::Answer(_)) || loss.is_numbered;
            let is_in_time =
                complaint.at >= loss.at && (may_be_late || complaint.at <= loss.at + self.patience);
            is_of_it && is_in_time && (complaint.is_for_good || !loss.is_numbered)
        };
        let silent = self.losses.iter().find(|loss| {
            // Its stream may not even have been missed.
            loss.at + 10_000 < ended_at
                && !self.dealt.contains(&loss.number)
                && !self.complaints.iter().any(|complaint| tells(complaint, loss))
        });
        if let Some(Loss { at, number, .. }) = silent.cloned() {
            self.fail("I10", format!("lost at {at} and never told: {}", sent[number].text()));
        }
    }
}

/// Whether a request asks for a history.
fn replays(request: &Request) -> bool {
    request.method == "session/load" || request.line.contains("replayFrom")
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
