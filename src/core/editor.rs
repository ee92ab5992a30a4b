//! What follows from a line of the editor: it is refused, or it gets a place in a lane.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{self, Delivery, Failure, INVALID_REQUEST, Kind, PARSE_ERROR};
use super::link::Link;
use super::message::{self, Id, Malformed, Message, Params};
use super::methods::Method;
use super::session::{LaneName, Queued, Scope};
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
            Link::Idle if !is_initialize => {
                return refuse(step, "the first request must be initialize");
            }
            Link::Connecting(_) if is_initialize => return refuse(step, "initialize is under way"),
            Link::Up(_) | Link::Lost(_) if is_initialize => {
                return refuse(step, "the connection is initialized already");
            }
            _ => {}
        }
        let session = session_of(method, params);
        if !self.ledger.open(id, method, session.clone()) {
            return refuse(step, "a request with this id is open");
        }
        if is_initialize {
            return self.connect(line.clone(), id.key(), step);
        }
        let message = Queued {
            body: line.clone(),
            request: Some(id.key()),
            header: session.clone(),
            since: step.now,
            renewed: false,
        };
        if let Err(failure) = self.admit(&message) {
            return self.fail(&id.key(), &failure, step);
        }
        self.enqueue(session, LaneName::Messages, message, step);
    }

    fn notification(
        &mut self,
        line: &Bytes,
        method: Method,
        params: &Params<'_>,
        step: &mut Step<'_>,
    ) {
        let session = session_of(method, params);
        // A cancel goes in the lane of the request that it cancels, so that it never overtakes it
        // (L5); like every method of the protocol itself it carries no session (L4).
        let cancelled = match (method, params.request) {
            (Method::CancelRequest, Some(id)) => self.ledger.request(&id.key()),
            _ => None,
        };
        let scope = cancelled.map_or_else(|| session.clone(), |request| request.session.clone());
        let message = Queued {
            body: line.clone(),
            request: None,
            header: session,
            since: step.now,
            renewed: false,
        };
        let admitted = match self.link {
            Link::Idle => Err("it came before initialize".to_owned()),
            _ => self.admit(&message).map_err(|failure| failure.message),
        };
        match admitted {
            Ok(()) => self.enqueue(scope, LaneName::Messages, message, step),
            Err(why) => {
                step.log(Level::Warn, format!("dropped a notification of the editor: {why}"))
            }
        }
    }

    fn answer(&mut self, line: &Bytes, id: Id<'_>, step: &mut Step<'_>) {
        let Some(question) = self.ledger.answer(id) else {
            return step.log(Level::Warn, "dropped an answer of the editor that nobody waits for");
        };
        if question.epoch != self.epoch || !matches!(self.link, Link::Up(_)) {
            return step.log(Level::Warn, "dropped an answer to a question of a lost connection");
        }
        let message = Queued {
            body: message::with_id(line, id, &question.agent_id),
            request: None,
            header: question.session.clone(),
            since: step.now,
            renewed: false,
        };
        // Answers are as few as the questions, so the bound on the queue (P6) does not need them;
        // one that is dropped would leave the agent waiting.
        self.enqueue(question.session, LaneName::Answers, message, step);
    }

    /// Whether a message may wait for the remote: its session can be named, and there is room.
    fn admit(&self, message: &Queued) -> Result<(), Failure> {
        if let Some(SessionId(id)) = &message.header
            && !stands_in_a_header(id)
        {
            return Err(Failure::new(
                Kind::Http,
                Delivery::Unsent,
                "the session id holds characters that cannot stand in the header Acp-Session-Id",
            ));
        }
        if let Link::Lost(why) = &self.link {
            return Err(Failure::new(Kind::ConnectionLost, Delivery::Unsent, why.as_str()));
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
pub(super) fn stands_in_a_header(id: &str) -> bool {
    !id.bytes().any(|byte| byte < b' ' || byte == 0x7f) && id.trim_matches(' ') == id
}
