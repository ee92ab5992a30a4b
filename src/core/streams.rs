//! When a stream is opened, and what its end means (R1–R4, L6, L12).

use bytes::Bytes;

use super::error::{Delivery, Failure, Kind};
use super::link::Link;
use super::posts::{lost_by, speaks_of_the_connection};
use super::session::{Scope, StreamState};
use super::timers::Timer;
use super::{
    Core, Effect, End, Generation, Level, Millis, Open, Outcome, Response, Step, StreamEvent,
    StreamId, limits, name,
};

impl Core {
    /// Asks for a scope's stream, as its next generation.
    pub(super) fn open_stream(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let (Link::Up(connection), Some(session)) = (&self.link, self.sessions.get_mut(scope))
        else {
            return;
        };
        self.generations += 1;
        let generation = Generation(self.generations);
        let stream = &mut session.stream;
        stream.state = StreamState::Opening(generation);
        stream.was_attached = session.attached;
        self.timers.disarm(&Timer::Reopen(scope.clone()));
        step.out.push(Effect::Open(Open {
            stream: StreamId { session: scope.clone(), epoch: self.epoch, generation },
            connection: connection.clone(),
            cursor: stream.cursor.clone(),
            renew_credential: stream.renewed,
        }));
    }

    /// Something happened on a live stream.
    pub(super) fn stream_event(
        &mut self,
        stream: &StreamId,
        event: StreamEvent,
        step: &mut Step<'_>,
    ) {
        let scope = &stream.session;
        match event {
            StreamEvent::Opened { .. } => self.stream_opened(stream, step),
            StreamEvent::Refused(response) => self.stream_refused(scope, &response, step),
            StreamEvent::Failed(outcome) => self.stream_failed(scope, outcome, step),
            StreamEvent::Message { data, id } => self.stream_message(stream, data, id, step),
            StreamEvent::TooLarge => {
                let limit = self.settings.max_message_bytes;
                step.log(
                    Level::Warn,
                    format!("dropped an event longer than {limit} bytes (--max-message-bytes)"),
                );
            }
            StreamEvent::Comment => {}
            StreamEvent::Retry(floor) => {
                if let Some(session) = self.sessions.get_mut(scope) {
                    session.stream.floor = floor.min(limits::BACKOFF_CAP);
                }
            }
            StreamEvent::Ended(end) => self.stream_ended(scope, &end, step),
        }
    }

    fn stream_opened(&mut self, stream: &StreamId, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(&stream.session) else { return };
        session.stream.state = StreamState::Open { generation: stream.generation, since: step.now };
        session.stream.renewed = false;
        session.stream.trouble = None;
        self.pump(&stream.session, step);
    }

    fn stream_message(
        &mut self,
        stream: &StreamId,
        data: Option<Bytes>,
        id: Option<Bytes>,
        step: &mut Step<'_>,
    ) {
        if let Some(session) = self.sessions.get_mut(&stream.session) {
            session.stream.backoff.reset();
            // The cursor moves when the event has been dealt with (R3): by the end of this step it
            // is, whatever becomes of it, and an answer may end the session on the way.
            if let Some(id) = id {
                session.stream.cursor = Some(id).filter(|id| !id.is_empty());
            }
        }
        if let Some(data) = data {
            self.deliver(&stream.session, data, step);
        }
    }

    /// The remote answered a GET, but not with a stream.
    fn stream_refused(&mut self, scope: &Scope, response: &Response, step: &mut Step<'_>) {
        let status = response.status;
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let stream = &mut session.stream;
        let is_unknown_session = scope.is_some() && !stream.was_attached;
        let who = name(scope);
        match status {
            204 => {
                step.log(Level::Info, format!("the remote agent has no stream for {who}"));
                stream.state = StreamState::Absent;
                self.pump(scope, step);
            }
            200..=299 => {
                let got = match response.content_type.as_str() {
                    "" => "no content type",
                    content_type => content_type,
                };
                let reason = format!(
                    "the stream of {who} was answered with {got:?}, not text/event-stream; \
                     a sign-in page or another service may stand in front of the remote agent"
                );
                self.stop_stream(scope, Failure::refused(Kind::StreamLost, reason, response), step);
            }
            401 if !stream.renewed => {
                stream.renewed = true;
                self.open_stream(scope, step);
            }
            401 => {
                let reason = format!("the remote agent refused the credential for {who} (401)");
                self.stop_stream(scope, Failure::refused(Kind::Auth, reason, response), step);
            }
            403 | 404 if is_unknown_session && !stream.posted_first => {
                stream.state = StreamState::Unknown;
                self.pump(scope, step);
            }
            403 if !is_unknown_session => {
                let reason = format!("the remote agent refuses the stream of {who} (403)");
                self.stop_stream(scope, Failure::refused(Kind::StreamLost, reason, response), step);
            }
            404 if scope.is_none() => self.lose(lost_by(response), step),
            400 if speaks_of_the_connection(response) => self.lose(lost_by(response), step),
            404 if !is_unknown_session => self.lose_session(scope, step),
            _ => {
                if status == 410 {
                    stream.cursor = None;
                }
                let reason = format!("the stream of {who} was refused with HTTP {status}");
                stream.trouble = Some((Kind::StreamLost, reason.clone()));
                step.log(Level::Warn, reason);
                self.reopen_later(scope, step);
            }
        }
    }

    fn stream_failed(&mut self, scope: &Scope, outcome: Outcome, step: &mut Step<'_>) {
        let (Outcome::Unsent(reason)
        | Outcome::Broken(reason)
        | Outcome::Redirected { reason, .. }) = outcome
        else {
            return;
        };
        let reason = format!("the stream of {} cannot be opened: {reason}", name(scope));
        step.log(Level::Warn, reason.as_str());
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.trouble = Some((Kind::Connect, reason));
        }
        self.reopen_later(scope, step);
    }

    fn stream_ended(&mut self, scope: &Scope, end: &End, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if let StreamState::Open { since, .. } = session.stream.state
            && since.plus(limits::HEALTHY_AFTER) <= step.now
        {
            session.stream.backoff.reset();
        }
        match end {
            End::Clean => step.log(Level::Info, format!("the stream of {} ended", name(scope))),
            End::Broken(why) => {
                step.log(Level::Warn, format!("the stream of {} broke: {why}", name(scope)));
            }
        }
        self.reopen_later(scope, step);
    }

    /// Opens a stream again after its backoff (L12), where anybody needs it.
    fn reopen_later(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let stream = &mut session.stream;
        let delay = stream.backoff.next(&mut self.chance).max(stream.floor);
        stream.state = StreamState::Waiting;
        if delay == Millis(0) {
            self.open_stream(scope, step);
        } else {
            self.timers.arm(Timer::Reopen(scope.clone()), step.now.plus(delay));
        }
    }

    /// Leaves a stream alone until a request asks for it again (L12); what waits for it fails.
    fn stop_stream(&mut self, scope: &Scope, failure: Failure, step: &mut Step<'_>) {
        step.log(Level::Error, failure.message.as_str());
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.state = StreamState::Stopped;
        }
        // The status is the stream's: what waited for it never left.
        let failure = Failure { delivery: Some(Delivery::Unsent), ..failure };
        self.fail_waiting(scope, &failure, step);
    }

    /// Drops a scope's stream where it stands.
    pub(super) fn close_stream(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if let Some(generation) = session.stream.generation() {
            let stream = StreamId { session: scope.clone(), epoch: self.epoch, generation };
            step.out.push(Effect::Close(stream));
        }
        session.stream.state = StreamState::Closed;
        self.timers.disarm(&Timer::Reopen(scope.clone()));
    }

    /// Forgets a session that is not attached once nothing of it is left to do.
    pub(super) fn retire_if_idle(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let (Some(id), Some(session)) = (scope, self.sessions.get(scope)) else { return };
        if session.attached || !session.is_idle() || self.ledger.has_open(id) {
            return;
        }
        self.close_stream(scope, step);
        self.timers.disarm(&Timer::Hold(scope.clone()));
        self.sessions.remove(scope);
    }
}
