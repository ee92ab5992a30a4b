//! What follows from a message of the remote: it reaches the editor, or it is dropped with a line
//! in the log.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;

use super::editor::stands_in_a_header;
use super::error::{Delivery, Failure, Kind};
use super::message::{self, Id, Message, Params, RequestId};
use super::methods::{self, Method};
use super::session::Scope;
use super::{Core, Level, SessionId, Step, name};

impl Core {
    /// A message came on the stream of `scope`.
    pub(super) fn deliver(&mut self, scope: &Scope, data: Bytes, step: &mut Step<'_>) {
        match message::read(&data) {
            Ok(Message::Request { params, .. } | Message::Notification { params, .. })
                if is_of_another_session(scope, &params) =>
            {
                step.log(
                    Level::Warn,
                    format!(
                        "dropped a message for another session on the stream of {}",
                        name(scope)
                    ),
                );
            }
            Ok(Message::Request { id, params, .. }) => self.ask(scope, &data, id, &params, step),
            Ok(Message::Notification { method, params })
                if Method::named(&method) == Method::CancelRequest =>
            {
                self.withdraw_one(scope, &data, &params, step);
            }
            Ok(Message::Notification { .. }) => step.line(message::as_line(data)),
            Ok(Message::Answer { id, is_error }) => {
                self.settle(&id.key(), &data, is_error, step);
            }
            Err(_) => step.log(
                Level::Warn,
                format!(
                    "dropped an event that is no JSON-RPC message, on the stream of {}",
                    name(scope)
                ),
            ),
        }
    }

    /// A question of the agent goes to the editor under an id of ours (P4). Its answer goes to the
    /// session that the question names, else to the one on whose stream it came (L4).
    fn ask(
        &mut self,
        scope: &Scope,
        data: &Bytes,
        id: Id<'_>,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        let named = params.session.as_ref().map(|session| SessionId(Arc::from(&**session)));
        let session = named.or_else(|| scope.clone());
        let ours = self.ledger.ask(id, session, self.epoch);
        step.line(message::as_line(message::with_id(data, id, &ours)));
    }

    /// The agent withdraws a question: the editor knows it under our id (P4).
    fn withdraw_one(&self, scope: &Scope, data: &Bytes, params: &Params<'_>, step: &mut Step<'_>) {
        let asked =
            params.request.and_then(|id| Some((id, self.ledger.asked_as(id, scope.as_ref())?)));
        match asked {
            Some((id, ours)) => step.line(message::as_line(message::with_id(data, id, &ours))),
            None => step.log(Level::Debug, "dropped the withdrawal of a question that is not open"),
        }
    }

    /// The answer to a request of the editor: passed on, once (P2).
    pub(super) fn settle(
        &mut self,
        id: &RequestId,
        answer: &Bytes,
        is_error: bool,
        step: &mut Step<'_>,
    ) {
        let Some(request) = self.ledger.close(id) else {
            return step
                .log(Level::Warn, "dropped an answer of the remote agent that nobody waits for");
        };
        step.line(message::as_line(answer.clone()));
        if !is_error && request.method.names_session() {
            self.attach_new(answer, step);
        }
        if !is_error && let Some(session) = self.sessions.get_mut(&request.session) {
            if request.method.attaches() {
                session.attached = true;
            }
            if request.method == Method::EndSession {
                session.attached = false;
                self.close_stream(&request.session, step);
            }
        }
        self.retire_if_idle(&request.session, step);
        self.pump(&request.session, step);
    }

    /// A result names a new session: its stream is opened before anybody needs it (R1).
    fn attach_new(&mut self, answer: &Bytes, step: &mut Step<'_>) {
        #[derive(Deserialize)]
        struct Named {
            result: NewSession,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct NewSession {
            session_id: String,
        }
        let Ok(Named { result }) = serde_json::from_slice(answer) else {
            return step.log(Level::Warn, "a new session was answered without a session id");
        };
        if !stands_in_a_header(&result.session_id) {
            return step.log(Level::Warn, "a new session has an id that cannot stand in a header");
        }
        let scope = Some(SessionId(Arc::from(result.session_id)));
        let session = self.sessions.entry(scope.clone()).or_default();
        session.attached = true;
        if session.stream.generation().is_none() {
            self.open_stream(&scope, step);
        }
    }

    /// The agent does not have a session any more: its requests fail, the others go on.
    pub(super) fn lose_session(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(id) = scope else { return };
        let reason =
            format!("the remote agent does not have {} any more; load it again", name(scope));
        step.log(Level::Error, reason.as_str());
        self.close_stream(scope, step);
        for id in self.ledger.withdraw(id) {
            step.line(Bytes::from(methods::cancel_request(&id)));
        }
        if let Some(session) = self.sessions.get_mut(scope) {
            session.attached = false;
        }
        let waiting = Failure::new(Kind::SessionLost, Delivery::Unsent, reason.as_str());
        self.fail_waiting(scope, &waiting, step);
        for request in self.ledger.close_session(id) {
            let delivery = if request.accepted { Delivery::Accepted } else { Delivery::Unknown };
            let failure = Failure::new(Kind::SessionLost, delivery, reason.as_str());
            step.line(failure.answer(&request.id, request.session.as_ref()));
        }
        self.retire_if_idle(scope, step);
    }

    /// Withdraws every question of the agent from the editor: nobody takes the answers any more.
    pub(super) fn withdraw_all(&mut self, step: &mut Step<'_>) {
        for id in self.ledger.withdraw_all() {
            step.line(Bytes::from(methods::cancel_request(&id)));
        }
    }
}

/// Whether a message on a session's stream names another session (R13).
fn is_of_another_session(scope: &Scope, params: &Params<'_>) -> bool {
    matches!((scope, &params.session), (Some(SessionId(own)), Some(named)) if **own != **named)
}
