//! What sessions there are, who is busy, and closing one (T, A3, A4).
//!
//! A person asks with an [`Inquiry`], through the loopback API or with a method of our own (E1), and
//! gets a [`Reply`] in the same step: nothing can happen between the check and the close (I15).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use super::error::Kind;
use super::link::Link;
use super::message::Params;
use super::methods::{self, Editor, Method, News};
use super::recovery::{Down, Stopped};
use super::requests::OpenRequest;
use super::session::{Scope, Session, Standing};
use super::shutdown::Leaving;
use super::{
    Core, Effect, Epoch, Event, Level, Millis, SessionId, Step, StreamEvent, limits, name,
};

/// Names one inquiry, so that its reply finds who asked; chosen by the shell. Or, apart from those,
/// one call of the editor (E1); chosen by the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a person, or a program of theirs, asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// How everything stands (A3).
    Status,
    /// Takes a session off the roster, unless it is running (A4, T5).
    Close(SessionId),
    /// Opens every stream again, and tries a lost connection at once (E1).
    Reconnect,
}

/// The answer to an [`Inquiry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Inquiry::Status`].
    Status(Status),
    /// To [`Inquiry::Close`]: it is off the roster.
    Closed,
    /// To [`Inquiry::Close`]: no such session is listed.
    Unknown,
    /// To [`Inquiry::Close`]: it is running or waiting, and stays.
    Busy,
    /// To [`Inquiry::Reconnect`].
    Reconnecting,
}

/// How everything stands (A3). What only the shell knows (ids, process, version) is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// `protocolVersion` of the answer to `initialize`.
    pub protocol_version: Option<u64>,
    /// Who the editor says it is.
    pub editor: Option<Editor>,
    /// The link to the remote.
    pub link: LinkStatus,
    /// The listed sessions (T2), newest first.
    pub sessions: Vec<Summary>,
}

/// The link to the remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Where it stands.
    pub state: LinkState,
    /// Since when.
    pub since: Millis,
    /// The count of connections so far.
    pub epoch: Epoch,
    /// Why it is not up, for people.
    pub error: Option<String>,
}

/// Where the link stands, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// The editor has not asked for a connection.
    #[default]
    Idle,
    /// The first connection is being made.
    Connecting,
    /// There is a connection.
    Up,
    /// The connection was lost, and is being replaced.
    Reconnecting,
    /// There is none, and none is being made until the editor asks.
    Down,
}

/// One session (T1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its id.
    pub session: SessionId,
    /// Its title, as the agent told it.
    pub title: Option<String>,
    /// Its working directory, as the editor gave it.
    pub cwd: Option<String>,
    /// Whether it is busy (T3).
    pub status: Activity,
    /// What it waits for, while it waits: `permission`, or the method of the agent's question.
    pub waiting_for: Option<String>,
    /// How its remote side stands.
    pub remote: RemoteSide,
    /// When this process first saw it.
    pub created: Millis,
    /// When something last happened in it.
    pub updated: Millis,
    /// Prompts so far.
    pub turns: u64,
    /// `stopReason` of its last turn that ended.
    pub last_stop_reason: Option<String>,
}

/// Whether a session is busy (T3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Nothing runs.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs, and the agent waits for an answer of the editor.
    Waiting,
}

/// How a session's remote side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RemoteSide {
    /// The agent has it on the present connection.
    Attached,
    /// It is being attached or restored, or waits for the connection.
    Restoring,
    /// It failed alone (C).
    Failed,
    /// It could not be restored (V9), or nobody tries to.
    Lost,
}

/// `{link, sessions}` of a status, as `GET /status` has them (A3): times in milliseconds since 1970,
/// and nothing where there is nothing.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    /// The link.
    pub link: LinkDocument<'a>,
    /// The sessions.
    pub sessions: Vec<SessionDocument<'a>>,
}

/// A [`LinkStatus`] in a [`Document`].
#[derive(Debug, Serialize)]
pub struct LinkDocument<'a> {
    state: LinkState,
    since: u64,
    epoch: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// A [`Summary`] in a [`Document`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDocument<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    status: Activity,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<&'a str>,
    remote: RemoteSide,
    created_at: u64,
    updated_at: u64,
    turns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_stop_reason: Option<&'a str>,
}

impl Status {
    /// Whether it says the same, but for when something last happened in a session.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let Status { protocol_version, editor, link, sessions } = self;
        let is_alike = |(one, other): (&Summary, &Summary)| {
            *one == Summary { updated: one.updated, ..other.clone() }
        };
        (protocol_version, editor, link) == (&other.protocol_version, &other.editor, &other.link)
            && sessions.len() == other.sessions.len()
            && sessions.iter().zip(&other.sessions).all(is_alike)
    }

    /// What is told of it. `since_1970` turns a time of the core into milliseconds since 1970.
    pub fn document(&self, since_1970: impl Fn(Millis) -> u64) -> Document<'_> {
        Document {
            link: LinkDocument {
                state: self.link.state,
                since: since_1970(self.link.since),
                epoch: self.link.epoch.0,
                error: self.link.error.as_deref(),
            },
            sessions: self.sessions.iter().map(|it| it.document(&since_1970)).collect(),
        }
    }
}

impl Summary {
    fn document(&self, since_1970: impl Fn(Millis) -> u64) -> SessionDocument<'_> {
        SessionDocument {
            session_id: &self.session.0,
            title: self.title.as_deref(),
            cwd: self.cwd.as_deref(),
            status: self.status,
            waiting_for: self.waiting_for.as_deref(),
            remote: self.remote,
            created_at: since_1970(self.created),
            updated_at: since_1970(self.updated),
            turns: self.turns,
            last_stop_reason: self.last_stop_reason.as_deref(),
        }
    }
}

/// What is kept for the roster. Whether a session is busy, and how its remote side stands, is not:
/// that follows from the ledger and the session itself, so that it cannot outlive what it tells of
/// (T4, I12).
#[derive(Debug, Default)]
pub(super) struct Roster {
    records: BTreeMap<SessionId, Record>,
    /// The titles of sessions that were closed from outside.
    closed: BTreeMap<SessionId, String>,
    /// Why the editor's last `initialize` failed, until there is a connection.
    pub unconnected: Option<String>,
    /// Where the link stood at the end of the last step, and since when.
    link: (LinkState, Millis),
    /// It may say something else after this step.
    pub may_differ: bool,
}

/// A session that was seen, be it listed or not.
#[derive(Debug)]
struct Record {
    is_listed: bool,
    title: Option<String>,
    cwd: Option<String>,
    created: Millis,
    updated: Millis,
    turns: u64,
    last_stop_reason: Option<String>,
}

/// A listed session as it stands.
struct Listed<'a> {
    session: &'a SessionId,
    record: &'a Record,
    status: Activity,
    waiting_for: Option<&'a str>,
    remote: RemoteSide,
}

// What is noted.

impl Roster {
    /// A message of a session passes, in either direction.
    pub fn note_message(&mut self, scope: &Scope, now: Millis) {
        if let Some(record) = scope.as_ref().and_then(|session| self.records.get_mut(session)) {
            record.updated = now;
        }
    }

    /// A session is closed from outside. Its title is kept, because an agent tells it again with each
    /// resume, and that is no activity (T5).
    fn close(&mut self, scope: &Scope) {
        let Some(session) = scope else { return };
        let title = self.records.remove(session).and_then(|record| record.title);
        if let Some(title) = title
            && self.closed.len() < limits::SUMMARIES
        {
            self.closed.insert(session.clone(), title);
        }
    }

    /// Whether this is the title that a session had when it was closed.
    fn was_closed_as(&self, session: &SessionId, title: &str) -> bool {
        self.closed.get(session).is_some_and(|closed| *closed == cut(title.to_owned()))
    }

    /// Nothing is kept of a session: it is seen anew when something happens in it (T5, T6).
    pub fn strike(&mut self, scope: &Scope) {
        if let Some(session) = scope {
            self.records.remove(session);
            self.closed.remove(session);
        }
    }

    /// What came concerns nobody.
    pub fn expect_nothing(&mut self) {
        self.may_differ = false;
    }

    /// Most messages only pass, and change nothing that is told.
    pub fn expect_news(&mut self, event: &Event) {
        let passes = matches!(
            event,
            Event::Stream(
                _,
                StreamEvent::Message { .. } | StreamEvent::Comment | StreamEvent::Progress
            ) | Event::Listening(_)
                | Event::Named(..)
                | Event::Writing(_)
                | Event::Inquiry(_, Inquiry::Status)
                | Event::Rpc(..)
        );
        self.may_differ = !passes;
    }
}

impl Core {
    /// The editor asks something of a session. A prompt is activity from its start (T2).
    pub(super) fn note_request(&mut self, scope: &Scope, method: Method, step: &Step<'_>) {
        if let (Method::Prompt, Some(session)) = (method, scope) {
            let record = self.see(session, step.now);
            record.is_listed = true;
            record.turns += 1;
        }
        self.roster.note_message(scope, step.now);
    }

    /// The agent did what the editor asked of a session. A load that replayed is activity (T2).
    pub(super) fn note_success(&mut self, request: &OpenRequest, answer: &[u8], step: &Step<'_>) {
        let Some(session) = &request.session else { return };
        if request.method.mends() {
            self.note_setup(&request.session, step);
        }
        let Some(record) = self.roster.records.get_mut(session) else { return };
        record.is_listed |= request.replayed;
        if request.method == Method::Prompt {
            record.note_end(methods::stop_reason(answer));
        }
    }

    /// A session was set up by the editor.
    pub(super) fn note_setup(&mut self, scope: &Scope, step: &Step<'_>) {
        let Some(session) = scope else { return };
        let cwd = self.sessions.get(scope).and_then(Session::cwd);
        let record = self.see(session, step.now);
        record.cwd = cwd.map(cut).or(record.cwd.take());
    }

    /// A notification of the agent is passed on. A title is activity (T2), unless it belongs to what
    /// our own restore makes the agent say.
    pub(super) fn note_news(
        &mut self,
        scope: &Scope,
        method: Method,
        params: &Params<'_>,
        message: &Bytes,
        step: &Step<'_>,
    ) {
        let named = || params.session.as_ref().map(|session| SessionId(Arc::from(&**session)));
        let scope = scope.clone().or_else(named);
        self.roster.note_message(&scope, step.now);
        let Some(session) = scope.as_ref().filter(|_| method == Method::Update) else { return };
        self.ledger.note_update(session, || methods::is_history(message));
        let Some(news) = methods::news(message) else { return };
        if !self.is_known(session) {
            // Whoever speaks of a session that the editor never had makes none.
            return;
        }
        self.roster.may_differ = true;
        let kept = self.sessions.get(&scope);
        let is_restoring = kept.is_some_and(|it| matches!(it.standing, Standing::Restoring(_)));
        match news {
            News::Title(Some(title))
                if !is_restoring && !self.roster.was_closed_as(session, &title) =>
            {
                let record = self.see(session, step.now);
                record.title = Some(cut(title));
                record.is_listed = true;
            }
            News::Title(title) => {
                if let Some(record) = self.roster.records.get_mut(session) {
                    record.title = title.map(cut);
                }
            }
            News::State { is_running, stop_reason } if self.speaks_version_2() => {
                if let Some(kept) = self.sessions.get_mut(&scope) {
                    kept.is_running = is_running;
                }
                if let Some(record) = self.roster.records.get_mut(session) {
                    record.note_end(stop_reason);
                }
            }
            News::State { .. } => {}
        }
    }

    fn is_known(&self, session: &SessionId) -> bool {
        self.roster.records.contains_key(session)
            || self.sessions.contains_key(&Some(session.clone()))
    }

    /// The record of a session, new where there is none.
    fn see(&mut self, session: &SessionId, now: Millis) -> &mut Record {
        if !self.roster.records.contains_key(session) {
            self.make_room();
        }
        let scope = Some(session.clone());
        let cwd = self.sessions.get(&scope).and_then(Session::cwd).map(cut);
        self.roster.records.entry(session.clone()).or_insert(Record {
            is_listed: false,
            title: None,
            cwd,
            created: now,
            updated: now,
            turns: 0,
            last_stop_reason: None,
        })
    }

    /// Forgets the session that was quiet for longest, where there are too many. One of which more
    /// is kept than a line of the roster may be in use.
    fn make_room(&mut self) {
        if self.roster.records.len() < limits::SUMMARIES {
            return;
        }
        let is_dead = |session: &SessionId| !self.sessions.contains_key(&Some(session.clone()));
        let dead = self.roster.records.iter().filter(|(session, _)| is_dead(session));
        let oldest = dead.min_by_key(|(_, record)| record.updated);
        if let Some(oldest) = oldest.map(|(session, _)| session.clone()) {
            self.roster.records.remove(&oldest);
        }
    }
}

impl Record {
    /// A turn may have ended, for this reason if there is one.
    fn note_end(&mut self, stop_reason: Option<String>) {
        if stop_reason.is_some() {
            self.last_stop_reason = stop_reason.map(cut);
        }
    }
}

// What is told.

impl Core {
    /// Answers at once.
    pub(super) fn inquire(&mut self, ticket: Ticket, inquiry: Inquiry, step: &mut Step<'_>) {
        let reply = match inquiry {
            Inquiry::Status => Reply::Status(self.status()),
            Inquiry::Close(session) => self.close(session, step),
            Inquiry::Reconnect => {
                self.reconnect_now(step);
                Reply::Reconnecting
            }
        };
        step.out.push(Effect::Reply(ticket, reply));
    }

    /// Takes a session off the roster, unless it is running (A4, T5).
    fn close(&mut self, session: SessionId, step: &mut Step<'_>) -> Reply {
        let found = self.listed().find(|listed| *listed.session == session);
        match found.map(|listed| listed.status) {
            None => Reply::Unknown,
            Some(Activity::Running | Activity::Waiting) => Reply::Busy,
            Some(Activity::Idle) => {
                let scope = Some(session);
                step.log(Level::Info, format!("{} is taken off the roster", name(&scope)));
                self.roster.close(&scope);
                Reply::Closed
            }
        }
    }

    /// Ends a step: says so where the status may say something else.
    pub(super) fn tell_news(&mut self, step: &mut Step<'_>) {
        if !self.roster.may_differ || self.leaving == Leaving::Done {
            return;
        }
        let (state, _) = self.link_stands();
        if self.roster.link.0 != state {
            self.roster.link = (state, step.now);
        }
        step.out.push(Effect::Changed);
    }

    fn status(&self) -> Status {
        let (_, error) = self.link_stands();
        let (state, since) = self.roster.link;
        let summary = |listed: Listed<'_>| Summary {
            session: listed.session.clone(),
            title: listed.record.title.clone(),
            cwd: listed.record.cwd.clone(),
            status: listed.status,
            waiting_for: listed.waiting_for.map(|method| cut(method.to_owned())),
            remote: listed.remote,
            created: listed.record.created,
            updated: listed.record.updated,
            turns: listed.record.turns,
            last_stop_reason: listed.record.last_stop_reason.clone(),
        };
        let mut sessions: Vec<Summary> = self.listed().map(summary).collect();
        sessions.sort_by_key(|summary| Reverse(summary.updated));
        Status {
            protocol_version: self.protocol_version(),
            editor: methods::editor(&self.opening.line),
            link: LinkStatus { state, since, epoch: self.epoch, error: error.map(str::to_owned) },
            sessions,
        }
    }

    /// The listed sessions, by their ids.
    fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let mut kept = self
            .sessions
            .iter()
            .filter_map(|(scope, session)| Some((scope.as_ref()?, session)))
            .peekable();
        let mut prompted = self.ledger.prompted().iter().peekable();
        let mut asking = self.ledger.asking().into_iter().peekable();
        let records = self.roster.records.iter().filter(|(_, record)| record.is_listed);
        records.map(move |(session, record)| {
            let kept = next_of(&mut kept, session);
            let has_prompt = next_of(&mut prompted, session).is_some();
            let is_running = has_prompt || kept.is_some_and(|session| session.is_running);
            let question = next_of(&mut asking, session).filter(|_| is_running);
            let status = match (is_running, question) {
                (false, _) => Activity::Idle,
                (true, None) => Activity::Running,
                (true, Some(_)) => Activity::Waiting,
            };
            let waiting_for = question.map(methods::waits_for);
            Listed { session, record, status, waiting_for, remote: self.remote_side(kept) }
        })
    }

    fn remote_side(&self, kept: Option<&Session>) -> RemoteSide {
        let Some(session) = kept else { return RemoteSide::Lost };
        match &session.standing {
            // Its stream cannot be had: nobody knows.
            Standing::Sound if session.attached && session.stream.fails() => RemoteSide::Restoring,
            Standing::Sound if session.attached => RemoteSide::Attached,
            // It is kept for what it may still say, and nobody restores it.
            Standing::Sound if session.stale_replay => RemoteSide::Lost,
            Standing::Restoring(it) if it.stopped || self.is_down_for_good() => RemoteSide::Lost,
            Standing::Sound | Standing::Restoring(_) => RemoteSide::Restoring,
            Standing::Failed(failure) if failure.kind == Kind::SessionLost => RemoteSide::Lost,
            Standing::Failed(_) => RemoteSide::Failed,
        }
    }

    /// Whether the connection is lost and not replaced, whatever asks.
    pub(super) fn is_down_for_good(&self) -> bool {
        matches!(self.link, Link::Down(Down { stopped: Some(Stopped::ForGood(_)), .. }))
    }

    /// Where the link stands, and why it is not up.
    fn link_stands(&self) -> (LinkState, Option<&str>) {
        match &self.link {
            Link::Idle => match &self.roster.unconnected {
                None => (LinkState::Idle, None),
                why => (LinkState::Down, why.as_deref()),
            },
            Link::Connecting(connecting) => {
                let trouble = connecting.trouble.as_ref();
                (LinkState::Connecting, trouble.map(|failure| failure.message.as_str()))
            }
            Link::Up(_) => match self.sessions.get(&None).map(|own| &own.stream) {
                // By all that is known there is nobody at the other end (K127).
                Some(own) if own.fails() => {
                    let trouble = own.trouble.as_ref();
                    (LinkState::Reconnecting, trouble.map(|(_, reason)| reason.as_str()))
                }
                _ => (LinkState::Up, None),
            },
            Link::Down(down) => match &down.stopped {
                None => (LinkState::Reconnecting, Some(&down.why)),
                Some(Stopped::Refused) => (LinkState::Down, Some(&down.why)),
                Some(Stopped::ForGood(failure)) => (LinkState::Down, Some(&failure.message)),
            },
        }
    }

    /// `protocolVersion` of the answer to `initialize`.
    fn protocol_version(&self) -> Option<u64> {
        std::str::from_utf8(self.opening.version.as_deref()?).ok()?.parse().ok()
    }
}

/// As much of a text of the agent's as is kept for people.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(limits::SUMMARY_TEXT));
    text
}

/// What a list in the order of sessions has of this one, where the sessions are asked for in that
/// order too: one pass for all of them.
fn next_of<'a, T>(
    list: &mut Peekable<impl Iterator<Item = (&'a SessionId, T)>>,
    session: &SessionId,
) -> Option<T> {
    while list.next_if(|(other, _)| *other < session).is_some() {}
    list.next_if(|(other, _)| *other == session).map(|(_, found)| found)
}
