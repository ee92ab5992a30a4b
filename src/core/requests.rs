//! The ledger of open requests, in both directions: every request gets exactly one answer.
//!
//! The editor's requests are kept under their ids as the editor wrote them (P1). The agent's
//! questions reach the editor under ids of ours, which are never used twice, so that an answer
//! can only ever reach the question that it was given to (P4, I8).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::message::{Id, RequestId};
use super::methods::Method;
use super::session::Owed;
use super::{Epoch, SessionId};

/// How the ids of our own requests begin (I9).
pub const OWN_REQUEST: &str = "acp-tether-own-";

/// Both directions.
#[derive(Debug, Default)]
pub struct Ledger {
    requests: BTreeMap<RequestId, OpenRequest>,
    arrivals: u64,
    /// How many of them replay.
    replaying: usize,
    /// How many of them are prompts, by session.
    prompts: BTreeMap<SessionId, usize>,
    questions: BTreeMap<u64, Question>,
    asked: u64,
    /// How many of them were asked before the present connection, and which that is.
    asked_before: (u64, Epoch),
}

/// A request of the editor that has no answer yet.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The id as the editor wrote it: raw JSON.
    pub id: Box<str>,
    /// Its method.
    pub method: Method,
    /// The session that it belongs to (L4).
    pub session: Option<SessionId>,
    /// It is posted, or was.
    pub sent: bool,
    /// How many bytes that were.
    pub length: usize,
    /// The remote has taken it.
    pub accepted: bool,
    /// Its line, where its parameters matter once it succeeds (V2, V4).
    pub line: Option<Bytes>,
    /// Its answer closes what comes on the session's stream: a replay, or all there is (R12).
    pub replays: bool,
    /// Something of the replay has come (T2).
    pub replayed: bool,
    /// Its place among all requests of the process.
    pub arrival: u64,
}

impl OpenRequest {
    /// The session whose turn it is, if it is a prompt.
    fn turn(&self) -> Option<&SessionId> {
        self.session.as_ref().filter(|_| self.method == Method::Prompt)
    }
}

/// A request of the agent that has no answer yet.
#[derive(Clone, Debug)]
pub struct Question {
    /// The agent's id: raw JSON.
    pub agent_id: Box<str>,
    agent_key: RequestId,
    /// The session that the answer is posted to (L4).
    pub session: Option<SessionId>,
    /// The connection that asked.
    pub epoch: Epoch,
    /// What is asked: method and parameters, raw (V6).
    asks: Asks,
    /// The editor's answer, while the agent may not have it.
    pub answer: Option<Bytes>,
    /// The agent has withdrawn it: nobody waits for the person any more.
    is_withdrawn: bool,
}

impl Question {
    /// Whether it is before the person.
    fn is_open(&self) -> bool {
        self.answer.is_none() && !self.is_withdrawn
    }
}

/// What a question asks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asks {
    method: Box<str>,
    params: Bytes,
}

impl Ledger {
    /// Enters a request of the editor. `false` where one with its id is open (P3).
    pub fn open(&mut self, id: Id<'_>, method: Method, session: Option<SessionId>) -> bool {
        let key = id.key();
        if self.requests.contains_key(&key) {
            return false;
        }
        self.arrivals += 1;
        let arrival = self.arrivals;
        let id = id.raw().into();
        let request = OpenRequest {
            id,
            method,
            session,
            sent: false,
            length: 0,
            accepted: false,
            line: None,
            replays: false,
            replayed: false,
            arrival,
        };
        if let Some(session) = request.turn() {
            *self.prompts.entry(session.clone()).or_default() += 1;
        }
        self.requests.insert(key, request);
        true
    }

    /// The open request with this id.
    pub fn request(&mut self, id: &RequestId) -> Option<&mut OpenRequest> {
        self.requests.get_mut(id)
    }

    /// The method of an open request, and the session that it belongs to.
    pub fn place_of(&self, id: &RequestId) -> Option<(Method, &Option<SessionId>)> {
        self.requests.get(id).map(|request| (request.method, &request.session))
    }

    /// Whether a request is an open one of a scope.
    pub fn is_of(&self, id: &RequestId, scope: &Option<SessionId>) -> bool {
        self.requests.get(id).is_some_and(|request| request.session == *scope)
    }

    /// What the answer to a request is the last of, of all that a session's stream brings.
    pub fn last_of(&self, id: &RequestId) -> Owed {
        match self.requests.get(id) {
            Some(request) if request.replays => Owed::History,
            Some(request) if request.turn().is_some() => Owed::Turn,
            _ => Owed::Nothing,
        }
    }

    /// Whether a request is open.
    pub fn is_open(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// Takes a request out, for its one answer. `None`: nobody waits for it (P2).
    pub fn close(&mut self, id: &RequestId) -> Option<OpenRequest> {
        let request = self.requests.remove(id)?;
        self.replaying -= usize::from(request.replays);
        if let Some(session) = request.turn()
            && let Some(prompts) = self.prompts.get_mut(session)
        {
            *prompts -= 1;
            if *prompts == 0 {
                self.prompts.remove(session);
            }
        }
        Some(request)
    }

    /// The answer to a request will close a replay.
    pub fn will_replay(&mut self, id: &RequestId) {
        if let Some(request) = self.requests.get_mut(id)
            && !std::mem::replace(&mut request.replays, true)
        {
            self.replaying += 1;
        }
    }

    /// An update of a session came: where a request replays its history, that may be some of it.
    pub fn note_update(&mut self, session: &SessionId, is_history: impl Fn() -> bool) {
        if self.replaying > 0 && is_history() {
            for request in self.requests.values_mut() {
                request.replayed |= request.replays && request.session.as_ref() == Some(session);
            }
        }
    }

    /// The open requests, in the order in which they came.
    pub fn all(&self) -> Vec<RequestId> {
        self.in_order(|_| true)
    }

    /// The open requests that were sent, in the order in which they came.
    pub fn sent(&self) -> Vec<RequestId> {
        self.in_order(|request| request.sent)
    }

    /// The longest of the open requests that were sent, after how many bytes that were.
    pub fn longest_sent(&self) -> Option<(usize, RequestId)> {
        let sent = self.requests.iter().filter(|(_, request)| request.sent);
        let longest = sent.max_by_key(|(_, request)| request.length);
        longest.map(|(id, request)| (request.length, id.clone()))
    }

    /// The open requests of a scope that were sent, in the order in which they came.
    pub fn sent_of(&self, scope: Option<&SessionId>) -> Vec<RequestId> {
        self.in_order(|request| request.sent && request.session.as_ref() == scope)
    }

    /// The open requests of a scope that were sent and came before `arrival`.
    pub fn sent_before(&self, scope: Option<&SessionId>, arrival: u64) -> Vec<RequestId> {
        self.in_order(|request| {
            request.sent && request.session.as_ref() == scope && request.arrival < arrival
        })
    }

    /// The place of the first open request that was sent after `close` and loads or resumes its session.
    pub fn mend_after(&self, close: &OpenRequest) -> Option<u64> {
        let mends = self
            .requests
            .values()
            .filter(|later| later.sent && later.session == close.session && later.method.mends());
        mends.map(|mend| mend.arrival).filter(|arrival| *arrival > close.arrival).min()
    }

    fn in_order(&self, is_meant: impl Fn(&OpenRequest) -> bool) -> Vec<RequestId> {
        let mut requests: Vec<_> =
            self.requests.iter().filter(|(_, request)| is_meant(request)).collect();
        requests.sort_by_key(|(_, request)| request.arrival);
        requests.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// The open prompts of a session.
    pub fn prompts(&self, session: Option<&SessionId>) -> BTreeSet<RequestId> {
        let prompts = self.requests.iter().filter(|(_, request)| {
            request.session.as_ref() == session && request.method == Method::Prompt
        });
        prompts.map(|(id, _)| id.clone()).collect()
    }

    /// The session whose turn a request is, if it is an open prompt.
    pub fn turn_of(&self, id: &RequestId) -> Option<SessionId> {
        self.requests.get(id)?.turn().cloned()
    }

    /// Whether the answer to a request ends something: a turn, or its session.
    pub fn ends_something(&self, id: &RequestId) -> bool {
        let ends = |method| matches!(method, Method::Prompt | Method::EndSession);
        self.requests.get(id).is_some_and(|request| ends(request.method))
    }

    /// Whether the editor asked the agent to end a session, and is not answered.
    pub fn is_ending(&self, session: &Option<SessionId>) -> bool {
        let ends = |request: &OpenRequest| request.sent && request.method == Method::EndSession;
        self.requests.values().any(|request| request.session == *session && ends(request))
    }

    /// The sessions that have open prompts, in their order, and how many.
    pub fn prompted(&self) -> &BTreeMap<SessionId, usize> {
        &self.prompts
    }

    /// The sessions whose agent waits for the person, and the method of the question that waits
    /// longest.
    pub fn asking(&self) -> BTreeMap<&SessionId, &str> {
        let newest_first = self.questions.values().rev().filter(|question| question.is_open());
        newest_first
            .filter_map(|question| Some((question.session.as_ref()?, &*question.asks.method)))
            .collect()
    }

    /// The sessions that have questions of the agent, answered or not.
    pub fn asking_scopes(&self) -> BTreeSet<Option<SessionId>> {
        self.questions.values().map(|question| question.session.clone()).collect()
    }

    /// Whether any of these is open.
    pub fn has_any(&self, requests: &BTreeSet<RequestId>) -> bool {
        requests.iter().any(|id| self.is_open(id))
    }

    /// Whether no request of the editor is open.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether a request of this session is open.
    pub fn has_open(&self, session: &SessionId) -> bool {
        self.requests.values().any(|request| request.session.as_ref() == Some(session))
    }

    /// Enters a question of the agent. The same question of a lost connection, still before the
    /// person, stands for the new one (V6).
    pub fn ask(
        &mut self,
        agent_id: Id<'_>,
        method: &str,
        params: Bytes,
        session: Option<SessionId>,
        epoch: Epoch,
    ) -> Asked {
        let asks = Asks { method: method.into(), params };
        if self.asked_before.1 != epoch {
            self.asked_before = (self.asked, epoch);
        }
        let kept = self.questions.range_mut(..=self.asked_before.0).find(|(_, question)| {
            question.epoch != epoch
                && question.session == session
                && question.asks == asks
                && !question.is_withdrawn
        });
        if let Some((number, question)) = kept {
            question.epoch = epoch;
            question.agent_id = agent_id.raw().into();
            question.agent_key = agent_id.key();
            return match question.answer {
                Some(_) => Asked::Answered(*number),
                None => Asked::Standing,
            };
        }
        self.asked += 1;
        let (agent_id, agent_key) = (agent_id.raw().into(), agent_id.key());
        let question = Question {
            agent_id,
            agent_key,
            session,
            epoch,
            asks,
            answer: None,
            is_withdrawn: false,
        };
        self.questions.insert(self.asked, question);
        Asked::New(id_for_the_editor(self.asked))
    }

    /// Enters the editor's answer to a question; a second one is none.
    pub fn answer(&mut self, id: Id<'_>, answer: &Bytes) -> Option<(u64, &Question)> {
        let number = id.raw().strip_prefix(OURS)?.strip_suffix('"')?.parse().ok()?;
        if id_for_the_editor(number) != id.raw() {
            return None;
        }
        let question = self.questions.get_mut(&number)?;
        if question.answer.is_some() {
            return None;
        }
        question.answer = Some(answer.clone());
        Some((number, question))
    }

    /// A question by its number.
    pub fn question(&self, number: u64) -> Option<&Question> {
        self.questions.get(&number)
    }

    /// The agent has the answer to a question, or will not have it.
    pub fn forget_question(&mut self, number: u64) {
        self.questions.remove(&number);
    }

    /// The agent withdraws a question. What comes is its id for the editor: that of the newest open
    /// one that the agent calls so on this stream's session, or, on the connection's own stream, on
    /// any.
    pub fn withdraw_one(
        &mut self,
        agent_id: Id<'_>,
        session: Option<&SessionId>,
        epoch: Epoch,
    ) -> Option<String> {
        let agent_key = agent_id.key();
        let mut asked = self.questions.iter_mut().rev().filter(|(_, question)| {
            question.agent_key == agent_key
                && question.epoch == epoch
                && question.is_open()
                && (session.is_none() || question.session.as_ref() == session)
        });
        let (number, question) = asked.next()?;
        question.is_withdrawn = true;
        Some(id_for_the_editor(*number))
    }

    /// How many questions have been asked.
    pub fn questions_asked(&self) -> u64 {
        self.asked
    }

    /// Takes out the questions of a scope that another connection asked than `epoch`, or with
    /// `None` all of the scope; what comes are the ids of those that are before the person.
    pub fn withdraw(&mut self, session: Option<&SessionId>, except: Option<Epoch>) -> Vec<String> {
        self.withdraw_where(session, |_, question| Some(question.epoch) != except)
    }

    /// The same for the first `asked` of all questions.
    pub fn withdraw_until(&mut self, session: Option<&SessionId>, asked: u64) -> Vec<String> {
        self.withdraw_where(session, |number, _| number <= asked)
    }

    fn withdraw_where(
        &mut self,
        session: Option<&SessionId>,
        is_meant: impl Fn(u64, &Question) -> bool,
    ) -> Vec<String> {
        self.questions
            .extract_if(.., |number, question| {
                question.session.as_ref() == session && is_meant(*number, question)
            })
            .filter(|(_, question)| question.is_open())
            .map(|(number, _)| id_for_the_editor(number))
            .collect()
    }
}

/// What became of a question that the agent asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is new: the editor is asked under this id, raw JSON.
    New(String),
    /// It is before the person already.
    Standing,
    /// The person has answered it already; this is its number.
    Answered(u64),
}

/// How the ids that the editor sees begin. They are strings, so that an editor that keeps one
/// table for both directions never meets a number of its own.
const OURS: &str = "\"acp-tether-";

fn id_for_the_editor(number: u64) -> String {
    format!("{OURS}{number}\"")
}
