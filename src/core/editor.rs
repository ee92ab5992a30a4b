//! What follows from a line of the editor: it is refused, or it gets a place in a lane.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{self, Delivery, Failure, INVALID_REQUEST, Kind, PARSE_ERROR};
use super::link::Link;
use super::message::{self, Id, Malformed, Message, Params, RequestId};
use super::methods::{self, Method};
use super::recovery::{Down, Stopped};
use super::session::{LaneName, Queued, Scope, Standing, Waiter};
use super::{Core, Level, SessionId, Step, limits};

impl Core {
    pub(super) fn line(&mut self, line: Bytes, step: &mut Step<'_>) {
        match message::read(&line) {
            Ok(Message::Request { id, method, params }) => {
                self.request(&line, id, Method::named(&method), &params, step);
            }
            Ok(Message::Notification { method, params }) => {
                self.notification(&line, Method::named(&method), &params, step);
            }
            Ok(Message::Answer { id, .. }) => self.answer(&line, id, step),
            Err(Malformed::NotJson) => {
                step.line(error::plain("null", PARSE_ERROR, "this line is not JSON in UTF-8"));
            }
            Err(Malformed::NotMessage(id)) => step.line(error::plain(
                &id,
                INVALID_REQUEST,
                "this line is JSON, but not one JSON-RPC 2.0 request, notification or response",
            )),
        }
    }

    pub(super) fn line_too_long(&mut self, step: &mut Step<'_>) {
        let limit = self.settings.max_message_bytes;
        let message = format!("this line is longer than {limit} bytes (--max-message-bytes)");
        step.line(error::plain("null", INVALID_REQUEST, &message));
    }

    fn request(
        &mut self,
        line: &Bytes,
        id: Id<'_>,
        method: Method,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        let refuse = |step: &mut Step<'_>, why| {
            step.line(error::plain(id.raw(), INVALID_REQUEST, why));
        };
        let is_initialize = method == Method::Initialize;
        match self.link {
            // Whatever the link is like: the answer is ours.
            _ if method == Method::Ours => {}
            Link::Idle if !is_initialize => {
                return refuse(step, "the first request must be initialize");
            }
            Link::Connecting(_) if is_initialize => return refuse(step, "initialize is under way"),
            Link::Up(_) | Link::Down(_) if is_initialize => {
                return refuse(step, "the connection is initialized already");
            }
            _ => {}
        }
        let session = session_of(method, params);
        let key = id.key();
        if self.own.contains_key(&key) || !self.ledger.open(id, method, session.clone()) {
            return refuse(step, "a request with this id is open");
        }
        self.never_use(&key);
        if method == Method::Ours {
            return self.call(line, id, step);
        }
        if is_initialize {
            return self.connect(line.clone(), key, step);
        }
        self.note_request(&session, method, step);
        let waiter = Waiter::Editor(key.clone());
        let message =
            Queued { header: session.clone(), ..Queued::new(line.clone(), waiter, step.now) };
        if let Err(failure) = self.admit(&session, method, &message) {
            return self.fail(&key, &failure, step);
        }
        self.keep_line(line, &key, method);
        if method.mends() {
            self.mend(&session, step);
        }
        self.enqueue(session, LaneName::Messages, message, step);
    }

    /// Keeps what of a request matters once it succeeds.
    fn keep_line(&mut self, line: &Bytes, id: &RequestId, method: Method) {
        let Some(request) = self.ledger.request(id) else { return };
        if method.sets_up() || method == Method::SignIn {
            request.line = Some(line.clone());
        }
        if matches!(method, Method::LoadSession | Method::EndSession)
            || method == Method::ResumeSession && methods::asks_for_replay(line)
        {
            self.ledger.will_replay(id);
        }
    }

    fn notification(
        &mut self,
        line: &Bytes,
        method: Method,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        if method == Method::Ours {
            return step.log(Level::Warn, "dropped a notification for us: we answer requests only");
        }
        let session = session_of(method, params);
        self.roster.note_message(&session, step.now);
        // A cancel goes in the lane of the request that it cancels, so that it never overtakes it
        // (L5); like every method of the protocol itself it carries no session (L4).
        let cancelled = params.request.filter(|_| method == Method::CancelRequest);
        let cancelled = cancelled.map(Id::key).filter(|id| self.ledger.is_open(id));
        if cancelled.as_ref().is_some_and(|id| self.is_call(id)) {
            return step.log(Level::Debug, "dropped a cancel of what we are about to answer");
        }
        let scope = match cancelled.as_ref().and_then(|id| self.ledger.request(id)) {
            Some(request) => request.session.clone(),
            None => session.clone(),
        };
        let turn = match (method, cancelled) {
            (_, Some(id)) => BTreeSet::from([id]),
            // From version 2 on a prompt's answer is not the end of its turn.
            (Method::Cancel, None) if !self.speaks_version_2() => {
                self.ledger.prompts(session.as_ref())
            }
            _ => BTreeSet::new(),
        };
        let waiter = if turn.is_empty() { Waiter::Nobody } else { Waiter::Turn(turn) };
        let message = Queued { header: session, ..Queued::new(line.clone(), waiter, step.now) };
        let admitted = match self.link {
            Link::Idle => Err("it came before initialize".to_owned()),
            _ => self.admit(&scope, method, &message).map_err(|failure| failure.message),
        };
        match admitted {
            Ok(()) => {
                if method == Method::Cancel {
                    self.cancelled(&scope, step);
                }
                self.enqueue(scope, LaneName::Messages, message, step);
            }
            Err(why) => {
                step.log(Level::Warn, format!("dropped a notification of the editor: {why}"));
            }
        }
    }

    fn answer(&mut self, line: &Bytes, id: Id<'_>, step: &mut Step<'_>) {
        let Some((number, question)) = self.ledger.answer(id, line) else {
            return step.log(Level::Warn, "dropped an answer of the editor that nobody waits for");
        };
        let (scope, epoch) = (question.session.clone(), question.epoch);
        self.roster.note_message(&scope, step.now);
        self.heard(&scope, step);
        if epoch == self.epoch && matches!(self.link, Link::Up(_)) {
            self.post_answer(number, step);
        } else {
            // The connection that asked is gone; the agent may ask again (V6).
            step.log(Level::Debug, "keeping an answer until the agent asks again");
        }
    }

    /// Posts the editor's answer to a question, under the agent's own id (P4).
    pub(super) fn post_answer(&mut self, number: u64, step: &mut Step<'_>) {
        let Some(question) = self.ledger.question(number) else { return };
        let Some(line) = &question.answer else { return };
        let Ok(Message::Answer { id, .. }) = message::read(line) else { return };
        let body = message::with_id(line, id, &question.agent_id);
        let scope = question.session.clone();
        let message = Queued {
            header: scope.clone(),
            ..Queued::new(body, Waiter::Question(number), step.now)
        };
        // Answers are as few as the questions, so the bound on the queue (P6) does not need them;
        // one that is dropped would leave the agent waiting.
        self.enqueue(scope, LaneName::Answers, message, step);
    }

    /// Whether a message may wait for the remote: its session can be named and used, and there is
    /// room.
    fn admit(&self, scope: &Scope, method: Method, message: &Queued) -> Result<(), Failure> {
        if let Some(SessionId(id)) = &message.header
            && !is_header_value(id.as_bytes())
        {
            return Err(Failure::new(
                Kind::Http,
                Delivery::Unsent,
                "the session id holds characters that cannot stand in the header Acp-Session-Id",
            ));
        }
        if let Link::Down(Down { stopped: Some(Stopped::ForGood(failure)), .. }) = &self.link {
            return Err(failure.clone());
        }
        let standing = self.sessions.get(scope).map(|session| &session.standing);
        if let Some(Standing::Failed(failure)) = standing
            && !method.mends()
        {
            return Err(Failure { delivery: Some(Delivery::Unsent), ..failure.clone() });
        }
        let bytes = self.queued_bytes + message.body.len();
        if self.queued_bytes > 0 && bytes > limits::REMOTE_QUEUE_BYTES {
            return Err(Failure::new(
                Kind::Overloaded,
                Delivery::Unsent,
                "too much waits for the remote agent; try again when it has caught up",
            ));
        }
        Ok(())
    }
}

/// The session that a message belongs to (L4).
fn session_of(method: Method, params: &Params<'_>) -> Scope {
    let named = params.session.as_ref().filter(|_| method.belongs_to_session());
    named.map(|id: &Cow<'_, str>| SessionId(Arc::from(&**id)))
}

/// Whether an id comes out of a header as it went in: header values hold no control characters,
/// and lose the blanks at their ends.
pub(super) fn is_header_value(id: &[u8]) -> bool {
    !id.iter().any(|byte| *byte < b' ' || *byte == 0x7f) && id.trim_ascii() == id
}
