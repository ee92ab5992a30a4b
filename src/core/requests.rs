//! The ledger of open requests, in both directions: every request gets exactly one answer.
//!
//! The editor's requests are kept under their ids as the editor wrote them (P1). The agent's
//! questions reach the editor under ids of ours, which are never used twice, so that an answer
//! can only ever reach the question that it was given to (P4, I8).

use std::collections::BTreeMap;

use super::message::{Id, RequestId};
use super::methods::Method;
use super::{Epoch, SessionId};

/// Both directions.
#[derive(Debug, Default)]
pub struct Ledger {
    requests: BTreeMap<RequestId, OpenRequest>,
    arrivals: u64,
    questions: BTreeMap<u64, Question>,
    asked: u64,
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
    /// The remote has taken it.
    pub accepted: bool,
    /// Its place among all requests of the process.
    arrival: u64,
}

/// A request of the agent that the editor has not answered yet.
#[derive(Clone, Debug)]
pub struct Question {
    /// The agent's id: raw JSON.
    pub agent_id: Box<str>,
    agent_key: RequestId,
    /// The session that the answer is posted to (L4).
    pub session: Option<SessionId>,
    /// The connection that asked.
    pub epoch: Epoch,
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
        self.requests.insert(key, OpenRequest { id, method, session, accepted: false, arrival });
        true
    }

    /// The open request with this id.
    pub fn request(&mut self, id: &RequestId) -> Option<&mut OpenRequest> {
        self.requests.get_mut(id)
    }

    /// Whether a request is open.
    pub fn is_open(&self, id: &RequestId) -> bool {
        self.requests.contains_key(id)
    }

    /// Takes a request out, for its one answer. `None`: nobody waits for it (P2).
    pub fn close(&mut self, id: &RequestId) -> Option<OpenRequest> {
        self.requests.remove(id)
    }

    /// Takes all requests out, in the order in which they came.
    pub fn close_all(&mut self) -> Vec<(RequestId, OpenRequest)> {
        let mut requests: Vec<_> = std::mem::take(&mut self.requests).into_iter().collect();
        requests.sort_by_key(|(_, request)| request.arrival);
        requests
    }

    /// Takes the requests of a session out, in the order in which they came.
    pub fn close_session(&mut self, session: &SessionId) -> Vec<OpenRequest> {
        let is_of_session =
            |_: &RequestId, request: &mut OpenRequest| request.session.as_ref() == Some(session);
        let mut requests: Vec<_> =
            self.requests.extract_if(.., is_of_session).map(|(_, request)| request).collect();
        requests.sort_by_key(|request| request.arrival);
        requests
    }

    /// Whether no request of the editor is open.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether a request of this session is open.
    pub fn has_open(&self, session: &SessionId) -> bool {
        self.requests.values().any(|request| request.session.as_ref() == Some(session))
    }

    /// Enters a question of the agent; the answer is the id for the editor, raw JSON.
    pub fn ask(&mut self, agent_id: Id<'_>, session: Option<SessionId>, epoch: Epoch) -> String {
        self.asked += 1;
        let question =
            Question { agent_id: agent_id.raw().into(), agent_key: agent_id.key(), session, epoch };
        self.questions.insert(self.asked, question);
        id_for_the_editor(self.asked)
    }

    /// Takes a question out, for its one answer.
    pub fn answer(&mut self, id: Id<'_>) -> Option<Question> {
        let number = id.raw().strip_prefix(OURS)?.strip_suffix('"')?.parse().ok()?;
        (id_for_the_editor(number) == id.raw()).then(|| self.questions.remove(&number))?
    }

    /// The id for the editor of the question that the agent calls so: the newest that was asked on
    /// this stream's session, or, on the connection's own stream, of any.
    pub fn asked_as(&self, agent_id: Id<'_>, session: Option<&SessionId>) -> Option<String> {
        let agent_key = agent_id.key();
        let mut asked = self.questions.iter().rev().filter(|(_, question)| {
            question.agent_key == agent_key
                && (session.is_none() || question.session.as_ref() == session)
        });
        asked.next().map(|(number, _)| id_for_the_editor(*number))
    }

    /// Takes the questions of a session out; what comes are the ids that the editor sees.
    pub fn withdraw(&mut self, session: &SessionId) -> Vec<String> {
        let is_of_session =
            |_: &u64, question: &mut Question| question.session.as_ref() == Some(session);
        let withdrawn = self.questions.extract_if(.., is_of_session);
        withdrawn.map(|(number, _)| id_for_the_editor(number)).collect()
    }

    /// Takes all questions out; what comes are the ids that the editor sees.
    pub fn withdraw_all(&mut self) -> Vec<String> {
        std::mem::take(&mut self.questions).into_keys().map(id_for_the_editor).collect()
    }
}

/// How the ids that the editor sees begin. They are strings, so that an editor that keeps one
/// table for both directions never meets a number of its own.
const OURS: &str = "\"acp-tether-";

fn id_for_the_editor(number: u64) -> String {
    format!("{OURS}{number}\"")
}
