//! What follows from a message of the remote: it reaches the editor, or it is dropped with a line
//! in the log.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;

use super::editor::is_header_value;
use super::error::{Delivery, Failure, Kind};
use super::message::{self, Id, Malformed, Message, Params, RequestId};
use super::methods::{self, Method};
use super::requests::{Asked, OpenRequest};
use super::session::{Mended, Scope, Setup, Standing};
use super::timers::Timer;
use super::{Core, Epoch, Level, SessionId, Step, limits, name};

impl Core {
    /// A message came on the stream of `scope`, in an event with an id of its own or without one.
    pub(super) fn deliver(
        &mut self,
        scope: &Scope,
        data: Bytes,
        is_numbered: bool,
        step: &mut Step<'_>,
    ) {
        let message = message::read(&data);
        self.roster.may_differ |= !matches!(message, Ok(Message::Notification { .. }));
        match message {
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
            Ok(Message::Request { id, method, params }) => {
                self.ask(scope, &data, id, &method, &params, step);
            }
            Ok(Message::Notification { method, params })
                if Method::named(&method) == Method::CancelRequest =>
            {
                self.withdraw_one(scope, &data, &params, step);
            }
            // The editor has it already (V3).
            Ok(Message::Notification { params, .. })
                if self.is_held_back(&self.scope_of(scope, &params)) =>
            {
                step.log(
                    Level::Debug,
                    format!("held back a replay on the stream of {}", name(scope)),
                );
            }
            Ok(Message::Notification { method, params }) => {
                let stream = scope;
                let scope = self.scope_of(stream, &params);
                self.release_before(&scope, stream, step);
                self.gap_is_over(&scope);
                self.heard(&scope, step);
                self.note_news(&scope, Method::named(&method), &params, &data, step);
                self.retire_if_idle(&scope, step);
                step.line(message::as_line(data));
            }
            Ok(Message::Answer { id, is_error: true }) if self.is_of_nothing(id) => {
                // JSON-RPC 2.0, 5.1: it answers what the agent could not read.
                let text = String::from_utf8_lossy(&data);
                step.log(Level::Warn, format!("the agent could not read something: {text}"));
                self.doubt_everywhere(step);
            }
            Ok(Message::Answer { id, is_error }) => {
                let id = id.key();
                self.note_answer(&id, is_error, scope, is_numbered);
                self.settle(&id, &data, is_error, Some(scope), step);
            }
            Err(malformed) => {
                let who = name(scope);
                let what =
                    format!("dropped an event that is no JSON-RPC message, on the stream of {who}");
                step.log(Level::Warn, what);
                // It may have been an answer (I19): where it begins as a message and is cut, or has an id.
                let is_cut = malformed == Malformed::NotJson;
                let may_be_one = is_cut || memmem::find(&data, br#""id""#).is_some();
                if may_be_one && data.trim_ascii_start().starts_with(b"{") {
                    self.doubt_answers(scope, step);
                }
            }
        }
    }

    /// Learns from an answer how the server gives them: numbered or not (R9), and where (R1).
    fn note_answer(&mut self, id: &RequestId, is_error: bool, came_on: &Scope, is_numbered: bool) {
        self.numbers_answers |= is_numbered;
        // A refusal may come elsewhere.
        if let Some(scope) = self.ledger.turn_of(id).map(Some).filter(|_| !is_error)
            && self.sessions.get(&scope).is_some_and(|it| it.attached && !it.stream.is_absent())
        {
            self.answers_apart = scope == *came_on;
        }
        if let Some(session) = self.sessions.get_mut(came_on) {
            session.stream.numbers_answers = Some(is_numbered);
        }
    }

    /// Whether an answer has no id by which its request could be known.
    pub(super) fn is_of_nothing(&self, id: Id<'_>) -> bool {
        id.raw() == "null" && !self.ledger.is_open(&id.key())
    }

    /// A question of the agent goes to the editor under an id of ours (P4). Its answer goes to the
    /// session that the question names, else to the one on whose stream it came (L4).
    fn ask(
        &mut self,
        scope: &Scope,
        data: &Bytes,
        id: Id<'_>,
        method: &str,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        // One that cannot stand in a header cannot be answered to.
        let named = params.session.as_ref().filter(|session| is_header_value(session.as_bytes()));
        let named = named.map(|session| SessionId(Arc::from(&**session)));
        let session = named.or_else(|| scope.clone());
        self.gap_is_over(&session);
        self.heard(&session, step);
        self.roster.note_message(&session, step.now);
        match self.ledger.ask(id, method, methods::params(data), session, self.epoch) {
            Asked::New(ours) => step.line(message::as_line(message::with_id(data, id, &ours))),
            Asked::Standing => step.log(Level::Info, "the agent asks again what is being asked"),
            Asked::Answered(number) => self.post_answer(number, step),
        }
    }

    /// The agent withdraws a question: the editor knows it under our id (P4).
    fn withdraw_one(
        &mut self,
        scope: &Scope,
        data: &Bytes,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        self.roster.may_differ = true;
        let asked = params
            .request
            .and_then(|id| Some((id, self.ledger.withdraw_one(id, scope.as_ref(), self.epoch)?)));
        match asked {
            Some((id, ours)) => step.line(message::as_line(message::with_id(data, id, &ours))),
            None => step.log(Level::Debug, "dropped the withdrawal of a question that is not open"),
        }
    }

    /// An answer, on the stream of `came_on` or in the body of a POST.
    pub(super) fn settle(
        &mut self,
        id: &RequestId,
        answer: &Bytes,
        is_error: bool,
        came_on: Option<&Scope>,
        step: &mut Step<'_>,
    ) {
        if self.is_call(id) {
            // It is not the remote's to answer (E1).
            return step
                .log(Level::Warn, "dropped an answer of the remote agent to a call of ours");
        }
        if self.is_held(id) {
            // The same answer again: the first has its time (P2, R12).
            return step.log(Level::Warn, "dropped a second answer of the remote agent");
        }
        match self.closes(id, is_error, came_on) {
            Some(scope) => self.hold_answer(&scope, id, answer, is_error, came_on, step),
            None => {
                self.note_owed(id, came_on);
                self.settle_now(id, answer, is_error, step);
            }
        }
    }

    /// The answer to a request: to one of ours it is ours, to the editor's it is passed on, once
    /// (P2).
    pub(super) fn settle_now(
        &mut self,
        id: &RequestId,
        answer: &Bytes,
        is_error: bool,
        step: &mut Step<'_>,
    ) {
        if let Some(own) = self.forget_own(id) {
            return self.own_answered(&own, id, answer, is_error, step);
        }
        let Some(request) = self.close_request(id, step) else {
            self.replay_is_over(id);
            return step
                .log(Level::Warn, "dropped an answer of the remote agent that nobody waits for");
        };
        step.line(message::as_line(answer.clone()));
        self.gap_is_over(&request.session);
        self.roster.note_message(&request.session, step.now);
        if !is_error {
            self.succeeded(&request, answer, step);
        } else {
            self.stays_unknown(&request.session);
            if request.method == Method::EndSession {
                // Its stream may have ended meanwhile, and was left alone (V8).
                self.open_where_closed(&request.session, step);
            }
        }
        self.retire_if_idle(&request.session, step);
        self.pump(&request.session, step);
    }

    /// What the success of a request changes.
    fn succeeded(&mut self, request: &OpenRequest, answer: &Bytes, step: &mut Step<'_>) {
        let setup = request.line.as_ref().filter(|_| request.method.sets_up());
        let setup = setup.map(|line| methods::setup(line));
        match request.method {
            Method::SignIn => self.signed_in.clone_from(&request.line),
            Method::SignOut => self.signed_in = None,
            method if method.names_session() => {
                self.attach_new(answer, setup.unwrap_or_default(), step);
            }
            Method::EndSession => self.closed(request, step),
            method if method.attaches() => {
                if method.mends() {
                    // It has done what ours was for (V7).
                    self.drop_restore(&request.session);
                }
                if let Some(session) = self.sessions.get_mut(&request.session) {
                    session.attached = true;
                    if method.mends() && matches!(session.standing, Standing::Failed(_)) {
                        // It is late, and the agent has the session all the same.
                        session.standing = Standing::Sound;
                    }
                    if method.mends() {
                        session.mended =
                            Mended { by: request.arrival, asked: self.ledger.questions_asked() };
                    }
                    session.setup = setup.unwrap_or_else(|| std::mem::take(&mut session.setup));
                }
                self.note_success(request, answer, step);
                self.open_where_closed(&request.session, step);
            }
            _ => {}
        }
    }

    /// The agent agreed to close a session. Where the editor has loaded or resumed it since, only what
    /// came before that is over; a load that is still under way decides whether it is attached.
    fn closed(&mut self, close: &OpenRequest, step: &mut Step<'_>) {
        let scope = &close.session;
        let mended = self.sessions.get(scope).map(|session| session.mended).unwrap_or_default();
        if mended.by > close.arrival {
            return self.end_before(scope, mended, step);
        }
        self.roster.strike(scope);
        let Some(by) = self.ledger.mend_after(close) else {
            return self.end_session(scope, CLOSED, step);
        };
        if let Some(session) = self.sessions.get_mut(scope) {
            session.attached = false;
            session.is_running = false;
        }
        let asked = self.ledger.questions_asked();
        self.end_before(scope, Mended { by, asked }, step);
    }

    /// What came before a session was loaded or resumed belongs to a life that was closed.
    fn end_before(&mut self, scope: &Scope, mended: Mended, step: &mut Step<'_>) {
        for id in self.ledger.withdraw_until(scope.as_ref(), mended.asked) {
            step.line(Bytes::from(methods::cancel_request(&id)));
        }
        let sent = self.ledger.sent_before(scope.as_ref(), mended.by);
        self.fail_each(sent, &ended(scope, CLOSED), step);
    }

    /// The agent agreed to end a session, or has another under its id. What the editor still had in
    /// mind for it is not sent (V8), and what the agent has not answered it will not answer any more
    /// (I19).
    fn end_session(&mut self, scope: &Scope, why: &str, step: &mut Step<'_>) {
        if scope.is_none() {
            // No session was named: what the connection has of its own stays.
            return;
        }
        self.drop_restore(scope);
        // What the agent has answered only waited for the stream.
        for id in self.ledger.sent_of(scope.as_ref()) {
            if let Some(held) = self.take_held_end(&id) {
                self.settle_now(&id, &held.answer, held.is_error, step);
            }
        }
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.detach();
        session.is_running = false;
        session.standing = Standing::Sound;
        session.stream.start_over();
        self.close_stream(scope, step);
        self.drop_questions(scope, step);
        let failure = ended(scope, why);
        self.fail_sent_of(scope, &failure, step);
        self.fail_waiting(scope, &failure, step);
    }

    /// A result names a new session: its stream is opened before anybody needs it (R1).
    fn attach_new(&mut self, answer: &Bytes, setup: Setup, step: &mut Step<'_>) {
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
        if !is_header_value(result.session_id.as_bytes()) {
            return step.log(Level::Warn, "a new session has an id that cannot stand in a header");
        }
        let scope = Some(SessionId(Arc::from(result.session_id)));
        let known = self.sessions.get(&scope);
        if known.is_some_and(|it| !matches!(it.standing, Standing::Sound)) {
            self.end_session(&scope, "is gone: the agent gave its id to a new session", step);
        }
        let session = self.sessions.entry(scope.clone()).or_default();
        session.attached = true;
        session.is_running = false;
        session.setup = setup;
        if session.stream.generation().is_none() {
            session.stream.start_over();
            self.open_stream(&scope, step);
        }
        // Where the id was another session's, that one is gone.
        self.roster.strike(&scope);
        self.note_setup(&scope, step);
    }

    /// Withdraws from the editor the questions of a scope, save those of the connection `except`
    /// (C4, V6).
    pub(super) fn withdraw(&mut self, scope: &Scope, except: Option<Epoch>, step: &mut Step<'_>) {
        self.timers.disarm(&Timer::Question(scope.clone()));
        for id in self.ledger.withdraw(scope.as_ref(), except) {
            step.line(Bytes::from(methods::cancel_request(&id)));
        }
    }

    /// Withdraws the questions that no agent will ask again: those of sessions that the next connection
    /// does not have restored (V6).
    pub(super) fn withdraw_hopeless(&mut self, step: &mut Step<'_>) {
        let is_over = self.is_down_for_good();
        for scope in self.ledger.asking_scopes() {
            let session = self.sessions.get(&scope);
            let is_restored =
                session.is_some_and(|it| matches!(it.standing, Standing::Restoring(_)));
            if is_over || scope.is_some() && !is_restored {
                self.withdraw(&scope, None, step);
            }
        }
    }

    /// A scope is back: the questions of the lost connection wait a little for the agent to ask
    /// them again (V6).
    pub(super) fn keep_questions(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let until = step.now.plus(limits::QUESTION_KEPT);
        self.timers.arm(Timer::Question(scope.clone()), until);
    }
}

/// Why the requests of a closed session fail.
const CLOSED: &str = "was closed meanwhile";

/// What the requests of a session that is gone fail with.
fn ended(scope: &Scope, why: &str) -> Failure {
    Failure::new(Kind::SessionLost, Delivery::Unsent, format!("{} {why}", name(scope)))
}

/// Whether a message on a session's stream names another session (R13).
fn is_of_another_session(scope: &Scope, params: &Params<'_>) -> bool {
    matches!((scope, &params.session), (Some(SessionId(own)), Some(named)) if **own != **named)
}
