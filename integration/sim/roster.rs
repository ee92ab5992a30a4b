//! What a person sees and does through the API: what the roster must say (I12), what stays closed
//! (I14), what may not be closed (I15). It follows from what the editor wrote and saw, never from the
//! core's own state.

use std::collections::{BTreeMap, BTreeSet};

use acp_tether::core::SessionId;
use acp_tether::core::roster::{Activity, Inquiry, RemoteSide, Reply, Status, Ticket};
use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::chance::Chance;
use super::checks::{Checks, Request, Seen};
use super::faults::{Action, What};
use super::remote::{Sent, Sort};

/// What somebody asks of the sidecar itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asks {
    /// A person asks how everything stands.
    Status,
    /// They close a session, by its number.
    Close(u8),
    /// They close a session that nobody has.
    CloseUnknown,
    /// They want every stream opened again.
    Reconnect,
    /// The editor calls a method of our own.
    Call,
}

/// Draws what is asked in a run. To reconnect costs what is on its way, so it is a fault of its own.
pub fn draw(seed: u64, calm_at: u64, sessions: u8, may_reconnect: bool) -> Vec<Action> {
    let mut chance = Chance::new(seed, 5);
    let mut asked = Vec::new();
    for _ in 0..chance.pick(&[0, 10, 40, 120]) {
        let at = chance.below(calm_at);
        let asks = match chance.below(10) {
            0..=4 => Asks::Status,
            5..=7 => Asks::Close(chance.below(u64::from(sessions)) as u8),
            8 => Asks::CloseUnknown,
            _ => Asks::Call,
        };
        asked.push((at, asks));
    }
    if may_reconnect && chance.one_in(4) {
        for _ in 0..chance.between(1, 3) {
            asked.push((chance.below(calm_at), Asks::Reconnect));
        }
    }
    asked.into_iter().map(|(at, asks)| Action { at, what: What::Asks(asks) }).collect()
}

/// See the module's page.
#[derive(Debug)]
pub struct Roster {
    version: u8,
    chance: Chance,
    listed: BTreeSet<String>,
    /// Those that a person closed, and nothing happened in since.
    closed: BTreeSet<String>,
    /// Prompts of each, since it was seen first or anew.
    turns: BTreeMap<String, u64>,
    /// The loads that are open and replay, and whether anything has come of it.
    loads: BTreeMap<String, (String, bool)>,
    /// The questions before the person, by our id.
    questions: BTreeMap<String, String>,
    /// What an agent of version 2 last said of a session: that it works or not, or, as `None`, that
    /// the session may have been lost since.
    reported: BTreeMap<String, Option<bool>>,
    /// The number of the request that last loaded or resumed each, as far as the editor saw.
    mended: BTreeMap<String, u64>,
    calls: u64,
    /// The last status that was asked for, but for its times and its order.
    last: Option<Status>,
    was_told: bool,
}

impl Roster {
    /// A roster without sessions.
    pub fn new(seed: u64, version: u8) -> Self {
        Self {
            version,
            chance: Chance::new(seed, 6),
            listed: BTreeSet::new(),
            closed: BTreeSet::new(),
            turns: BTreeMap::new(),
            loads: BTreeMap::new(),
            questions: BTreeMap::new(),
            reported: BTreeMap::new(),
            mended: BTreeMap::new(),
            calls: 0,
            last: None,
            was_told: false,
        }
    }

    /// What is asked, in the core's words. `None` for a call of the editor.
    pub fn inquiry(asks: Asks, sessions: &[String]) -> Option<Inquiry> {
        let close = |session: &str| Inquiry::Close(SessionId(session.into()));
        Some(match asks {
            Asks::Status => Inquiry::Status,
            Asks::Close(_) if sessions.is_empty() => close("s1"),
            Asks::Close(number) => close(&sessions[usize::from(number) % sessions.len()]),
            Asks::CloseUnknown => close("nobody"),
            Asks::Reconnect => Inquiry::Reconnect,
            Asks::Call => return None,
        })
    }

    /// A call of the editor to a method of our own.
    pub fn call(&mut self) -> Request {
        self.calls += 1;
        let number = 1_000_000 + self.calls;
        let id = format!("\"call-{}\"", self.calls);
        let method = "_acp-tether/status".to_owned();
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","_k":{number},"x":[ 1]}}"#);
        Request { number, id, method, session: None, line }
    }

    /// The shell's answer to a call, and in how many milliseconds it comes.
    pub fn serve(&mut self, ticket: Ticket) -> (u64, Bytes) {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"ours"}}"#, ticket.0);
        (self.chance.pick(&[0, 1, 20, 5_000]), Bytes::from(answer))
    }

    /// The editor wrote a request, and this is what it saw at once.
    pub fn wrote(&mut self, request: &Request, is_refused: bool) {
        let Some(session) = request.session.clone().filter(|_| !is_refused) else { return };
        let replays = request.method == "session/load" || request.line.contains("replayFrom");
        if request.method == "session/prompt" {
            *self.turns.entry(session.clone()).or_default() += 1;
            self.is_active(session);
        } else if replays {
            self.loads.insert(request.id.clone(), (session, false));
        }
    }

    fn is_active(&mut self, session: String) {
        self.closed.remove(&session);
        self.listed.insert(session);
    }

    fn strike(&mut self, session: &str) {
        self.listed.remove(session);
        self.turns.remove(session);
    }

    /// The editor answered a question.
    pub fn answered(&mut self, id: &str) {
        self.questions.remove(id);
    }

    /// The editor saw a line, which is this message of the remote, if it is one.
    pub fn sees(&mut self, seen: &Seen, message: Option<&Sent>) {
        match seen {
            Seen::Question { id, .. } => {
                if let Some(session) = message.and_then(|message| message.session.clone()) {
                    self.questions.insert(id.clone(), session);
                }
            }
            Seen::Withdrawn { id } => self.answered(id),
            Seen::Answer { request, result } => self.sees_answer(request, result.as_deref()),
            Seen::Other => {
                if let Some(message) = message {
                    self.sees_update(message);
                }
            }
        }
    }

    fn sees_answer(&mut self, request: &Request, result: Option<&str>) {
        let replayed = self.loads.remove(&request.id).is_some_and(|(_, replayed)| replayed);
        let Some(result) = result else {
            let mends = matches!(request.method.as_str(), "session/load" | "session/resume");
            let said = request.session.as_ref().and_then(|session| self.reported.get_mut(session));
            if let Some(said) = said.filter(|_| mends) {
                // The agent may not have the session any more.
                *said = None;
            }
            return;
        };
        let mends = matches!(request.method.as_str(), "session/load" | "session/resume");
        if let Some(session) = request.session.as_ref().filter(|_| mends) {
            self.mended.insert(session.clone(), request.number);
        }
        match (request.method.as_str(), &request.session) {
            // It was loaded again since.
            ("session/close", Some(session))
                if self.mended.get(session).is_some_and(|by| *by > request.number) => {}
            ("session/new", _) => {
                let named = result.split("\"sessionId\":\"").nth(1);
                if let Some(session) = named.and_then(|rest| rest.split('"').next()) {
                    self.strike(session);
                }
            }
            ("session/close", Some(session)) => {
                self.strike(session);
                self.reported.remove(session);
            }
            (_, Some(session)) if replayed => self.is_active(session.clone()),
            _ => {}
        }
    }

    fn sees_update(&mut self, message: &Sent) {
        let (Some(session), Sort::Update | Sort::Replay { .. }) = (&message.session, &message.sort)
        else {
            return;
        };
        if self.version != 2 && self.loads.is_empty() {
            return;
        }
        let tells_a_state = memmem::find(&message.bytes, b"state_update").is_some();
        for (of, replayed) in self.loads.values_mut() {
            // How a session stands is none of its history (T2).
            *replayed |= of == session && !tells_a_state;
        }
        if self.version == 2 && tells_a_state {
            let is_running = memmem::find(&message.bytes, br#""state":"idle""#).is_none();
            self.reported.insert(session.clone(), Some(is_running));
        }
    }

    /// The core logs: what was reported dies with who reported it (T4). Which session it was is not
    /// always said.
    pub fn log(&mut self, text: &str) {
        if text.starts_with("the connection is lost") {
            self.reported.clear();
        }
        if ["(409)", "is lost from its connection", "does not have"]
            .iter()
            .any(|word| text.contains(word))
        {
            let named = text.split("session \"").nth(1).and_then(|rest| rest.split('"').next());
            let is_it = |session: &str| named.is_none_or(|named| named == session);
            let said = self.reported.iter_mut().filter(|(session, _)| is_it(session));
            said.for_each(|(_, said)| *said = None);
        }
    }

    /// The core says that the status is another.
    pub fn changed(&mut self) {
        self.was_told = true;
    }

    /// The core replied.
    pub fn replied(&mut self, inquiry: &Inquiry, reply: Option<&Reply>, checks: &mut Checks) {
        match (inquiry, reply) {
            (Inquiry::Status, Some(Reply::Status(status))) => self.compare(status, checks),
            (Inquiry::Close(SessionId(session)), Some(reply)) => {
                self.closes(session, reply, checks);
            }
            (Inquiry::Reconnect, Some(Reply::Reconnecting)) => {}
            _ => checks.fail("I12", format!("{inquiry:?} got {reply:?}")),
        }
    }

    fn closes(&mut self, session: &str, reply: &Reply, checks: &mut Checks) {
        let is_listed = self.listed.contains(session);
        let is_running = self.is_running(session, checks);
        let is_right = match reply {
            Reply::Unknown => !is_listed,
            Reply::Busy => is_listed && is_running != Some(false),
            Reply::Closed => is_listed && is_running != Some(true),
            _ => false,
        };
        if !is_right {
            let rule = if *reply == Reply::Closed && is_listed { "I15" } else { "I12" };
            let running =
                is_running.map_or("may run", |runs| if runs { "runs" } else { "is idle" });
            checks.fail(
                rule,
                format!("{reply:?} to who closes {session}: listed {is_listed}, {running}"),
            );
        }
        if *reply == Reply::Closed {
            self.strike(session);
            self.closed.insert(session.to_owned());
        }
    }

    /// Whether a session runs; `None` where nobody can know from outside.
    fn is_running(&self, session: &str, checks: &Checks) -> Option<bool> {
        let is_prompt = |request: &Request| {
            request.method == "session/prompt" && request.session.as_deref() == Some(session)
        };
        if checks.open().any(is_prompt) {
            return Some(true);
        }
        self.reported.get(session).copied().unwrap_or(Some(false))
    }

    fn compare(&mut self, status: &Status, checks: &mut Checks) {
        let told: BTreeSet<String> =
            status.sessions.iter().map(|summary| summary.session.0.to_string()).collect();
        if let Some(session) = told.difference(&self.listed).next() {
            let rule = if self.closed.contains(session) { "I14" } else { "I12" };
            checks.fail(rule, format!("{session} is listed, and nothing happened in it"));
        }
        if let Some(session) = self.listed.difference(&told).next() {
            checks.fail("I12", format!("{session} is not listed, and something happened in it"));
        }
        for summary in &status.sessions {
            let session = &*summary.session.0;
            let asks = self.questions.values().any(|asks| asks == session);
            let is_running = self.is_running(session, checks);
            let expected = match is_running {
                Some(false) => Activity::Idle,
                Some(true) if asks => Activity::Waiting,
                Some(true) => Activity::Running,
                None => summary.status,
            };
            // A session that is not attached says nothing, and what it said before may be forgotten.
            let is_told = self.reported.get(session) != Some(&Some(true))
                || summary.remote == RemoteSide::Attached;
            if summary.status != expected && is_told {
                let found = summary.status;
                checks.fail("I12", format!("{session} is {found:?}, and must be {expected:?}"));
            }
            if summary.waiting_for.is_some() != (summary.status == Activity::Waiting) {
                checks.fail("I12", format!("{session} waits for {:?}", summary.waiting_for));
            }
            let turns = self.turns.get(session).copied().unwrap_or_default();
            if summary.turns != turns {
                let found = summary.turns;
                checks.fail("I12", format!("{session} had {found} turns, and must have {turns}"));
            }
        }
        let sorted = status.sessions.is_sorted_by(|one, other| one.updated >= other.updated);
        if !sorted {
            checks.fail("I12", "the sessions do not come newest first");
        }
        let shape = shape(status);
        let was_told = std::mem::take(&mut self.was_told);
        if self.last.as_ref().is_some_and(|last| *last != shape) && !was_told {
            checks.fail("I12", format!("the status changed and nobody was told: {shape:?}"));
        }
        self.last = Some(shape);
    }
}

/// A status without what changes with every message.
fn shape(status: &Status) -> Status {
    let mut status = status.clone();
    status.sessions.sort_by(|one, other| one.session.cmp(&other.session));
    for summary in &mut status.sessions {
        summary.updated = summary.created;
    }
    status
}
