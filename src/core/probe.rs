//! How it is found out what a 404 means: the connection is asked whether it lives (R8).

use super::error::{Delivery, Failure, Kind};
use super::link::Link;
use super::posts::{lost_by, speaks_of_the_connection};
use super::recovery::lost;
use super::session::{Renewal, Scope, Session, StreamState};
use super::timers::Timer;
use super::{
    Core, Effect, End, Generation, Level, Millis, Open, Outcome, Response, Step, StreamEvent,
    StreamId, limits, name,
};

/// The question to the connection whether it lives, which a GET of its own stream asks (R8).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// A second GET of that stream is under way.
    Asked(Generation),
    /// It was not answered; the question is asked again in a moment.
    Waiting,
    /// That stream is being opened for its own sake, and its GET asks too.
    Opening,
}

impl Core {
    /// The remote says that it does not know this session: the connection is asked by a GET of its
    /// own stream (R8). What the session's messages are answered with, if it alone is gone, is
    /// `failure`.
    pub(super) fn suspect(&mut self, scope: &Scope, failure: Failure, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.suspected = Some(failure);
        }
        if self.probe.is_some() {
            return;
        }
        let own = self.sessions.get(&None).map(|own| &own.stream.state);
        match own {
            Some(StreamState::Opening(_)) => self.probe = Some(Probe::Opening),
            _ => self.ask_connection(step),
        }
    }

    /// Asks the connection whether it lives.
    pub(super) fn ask_connection(&mut self, step: &mut Step<'_>) {
        // The one before was not answered.
        self.drop_probe(step);
        let Link::Up(connection) = &self.link else { return };
        self.timers.arm(Timer::Probe, step.now.plus(self.settings.post_timeout));
        self.generations += 1;
        let generation = Generation(self.generations);
        let Some(own) = self.sessions.get_mut(&None) else { return };
        step.out.push(Effect::Open(Open {
            stream: StreamId { session: None, epoch: self.epoch, generation },
            connection: connection.clone(),
            cursor: own.stream.cursor.clone(),
            renew_credential: own.stream.renewal.take(),
        }));
        self.probe = Some(Probe::Asked(generation));
    }

    /// The connection's own stream is to be opened: that GET asks, too. Where the question is under
    /// way, its GET is the one that serves: another would take its place in the server, and what was
    /// given to it would be lost.
    pub(super) fn ask_by_opening(
        &mut self,
        scope: &Scope,
        step: &mut Step<'_>,
    ) -> Option<Generation> {
        if scope.is_some() || self.probe.is_none() {
            return None;
        }
        let is_due = self.sessions.get(scope).map(|own| own.stream.renewal) == Some(Renewal::Due);
        let asked = match self.probe {
            Some(Probe::Asked(generation)) if !is_due => Some(generation),
            _ => {
                self.drop_probe(step);
                None
            }
        };
        self.timers.disarm(&Timer::Probe);
        self.probe = Some(Probe::Opening);
        asked
    }

    /// Whether the connection is being asked.
    pub(super) fn is_asking_connection(&self) -> bool {
        matches!(self.probe, Some(Probe::Asked(_) | Probe::Opening))
    }

    /// Whether a stream is the one that asks.
    pub(super) fn is_probe(&self, stream: &StreamId) -> bool {
        stream.session.is_none()
            && stream.epoch == self.epoch
            && self.probe == Some(Probe::Asked(stream.generation))
    }

    /// The connection answered.
    pub(super) fn probe_answered(
        &mut self,
        stream: &StreamId,
        event: StreamEvent,
        step: &mut Step<'_>,
    ) {
        match event {
            StreamEvent::Opened { .. } => {
                self.replace_own(stream.generation, step);
                self.probe = Some(Probe::Opening);
                self.timers.disarm(&Timer::Probe);
                self.stream_event(stream, event, step);
            }
            StreamEvent::Refused(response) => self.probe_refused(&response, step),
            StreamEvent::Failed(Outcome::NoCredential(reason)) => {
                self.cannot_ask(&Failure::new(Kind::Auth, Delivery::Unsent, reason), step);
            }
            StreamEvent::Failed(_) | StreamEvent::Ended(_) => self.ask_again(None, step),
            _ => {}
        }
    }

    fn probe_refused(&mut self, response: &Response, step: &mut Step<'_>) {
        let Some(own) = self.sessions.get_mut(&None) else { return };
        match response.status {
            // It is our cursor that is gone (R6), which a connection says that lives.
            410 if own.stream.cursor.is_some() => self.connection_lives(step),
            404 | 410 => self.lose(lost_by(response), step),
            400 if speaks_of_the_connection(response) => self.lose(lost_by(response), step),
            200..=299 | 409 => self.connection_lives(step),
            401 if own.stream.renewal.is_worth_a_try(self.settings.can_renew) => {
                self.probe = None;
                self.ask_connection(step);
            }
            status @ (401 | 403) => {
                let kind = if status == 401 { Kind::Auth } else { Kind::Http };
                let reason = format!("the remote agent refuses the credential (HTTP {status})");
                self.cannot_ask(&Failure::refused(kind, reason, response), step);
            }
            status => {
                let asked = response.retry_after.filter(|_| matches!(status, 429 | 502..=504));
                self.ask_again(asked, step);
            }
        }
    }

    /// A new generation is the connection's own stream. What the server gave to the one before it is
    /// still on its way: that is read to its end.
    fn replace_own(&mut self, generation: Generation, step: &mut Step<'_>) {
        self.drop_replaced(step);
        let Some(own) = self.sessions.get_mut(&None) else { return };
        if let StreamState::Open { generation: before, .. } = own.stream.state {
            self.replaced = Some(before);
            self.timers.arm(Timer::Replaced, step.now.plus(limits::REPLACED));
        } else {
            self.close_stream(&None, step);
        }
        let Some(own) = self.sessions.get_mut(&None) else { return };
        own.stream.state = StreamState::Opening(generation);
    }

    /// Whether a stream is the one that the question replaced.
    pub(super) fn is_replaced(&self, stream: &StreamId) -> bool {
        stream.session.is_none()
            && stream.epoch == self.epoch
            && self.replaced == Some(stream.generation)
    }

    /// Something happened on the stream that the question replaced.
    pub(super) fn replaced_event(
        &mut self,
        stream: &StreamId,
        event: StreamEvent,
        step: &mut Step<'_>,
    ) {
        if let StreamEvent::Ended(end) = &event {
            self.replaced = None;
            self.timers.disarm(&Timer::Replaced);
            if matches!(end, End::Broken(_)) {
                self.doubt_replaced(step);
            }
        } else if matches!(event, StreamEvent::Message { .. } | StreamEvent::TooLarge) {
            let cursor = |core: &Self| core.sessions.get(&None)?.stream.cursor.clone();
            let newer = cursor(self);
            self.stream_event(stream, event, step);
            // The stream that follows goes on from its own events.
            if let Some(own) = self.sessions.get_mut(&None) {
                own.stream.cursor = newer;
            }
        }
    }

    /// The stream that the question replaced should have ended by now.
    pub(super) fn give_up_replaced(&mut self, step: &mut Step<'_>) {
        if self.deaf_since.is_some() {
            // Nobody reads it at present; that it is silent says nothing (L11).
            return;
        }
        self.drop_replaced(step);
        self.doubt_replaced(step);
    }

    fn doubt_replaced(&mut self, step: &mut Step<'_>) {
        let Some(own) = self.sessions.get(&None) else { return };
        if own.stream.may_lose(self.numbers_answers) {
            self.doubt_sent(&None, step);
            self.doubt_restores(&None, step);
        }
    }

    /// Reads the stream that the question replaced no longer.
    pub(super) fn drop_replaced(&mut self, step: &mut Step<'_>) {
        self.timers.disarm(&Timer::Replaced);
        if let Some(generation) = self.replaced.take() {
            let stream = StreamId { session: None, epoch: self.epoch, generation };
            step.out.push(Effect::Close(stream));
        }
    }

    /// The connection's own stream was opened, or refused by one that lives.
    pub(super) fn opening_answered(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if scope.is_none() && self.probe == Some(Probe::Opening) {
            self.connection_lives(step);
        }
    }

    /// The connection's own stream is left alone, for a reason that stays.
    pub(super) fn opening_stopped(
        &mut self,
        scope: &Scope,
        failure: &Failure,
        step: &mut Step<'_>,
    ) {
        if scope.is_none() && self.probe == Some(Probe::Opening) {
            self.cannot_ask(failure, step);
        }
    }

    /// The question cannot be asked: what waits for its answer fails, what was sent is in doubt, and a
    /// message that comes later asks again (L12).
    fn cannot_ask(&mut self, failure: &Failure, step: &mut Step<'_>) {
        self.probe = None;
        self.timers.disarm(&Timer::Probe);
        step.log(Level::Error, failure.message.as_str());
        for (scope, _) in self.suspects() {
            match self.sessions.get(&scope).is_some_and(Session::is_restore_unsent) {
                true => self.stop_restore(&scope, failure, step),
                false => self.fail_all_but_cancels(&scope, failure, step),
            }
            self.doubt_sent(&scope, step);
        }
    }

    /// What is under way may be dead: the question is asked anew, by the stream that is opened again.
    pub(super) fn ask_anew(&mut self, step: &mut Step<'_>) {
        if matches!(self.probe, Some(Probe::Asked(_))) {
            self.drop_probe(step);
            self.probe = Some(Probe::Waiting);
            self.timers.arm(Timer::Probe, step.now.plus(limits::BACKOFF_FIRST));
        }
    }

    /// The suspected sessions, which are so no longer, and what their messages fail with.
    fn suspects(&mut self) -> Vec<(Scope, Failure)> {
        let suspected = |(scope, session): (&Scope, &mut Session)| {
            Some((scope.clone(), session.suspected.take()?))
        };
        self.sessions.iter_mut().filter_map(suspected).collect()
    }

    /// Asks no longer: a GET that is under way must not become a stream that nobody reads.
    pub(super) fn drop_probe(&mut self, step: &mut Step<'_>) {
        if let Some(Probe::Asked(generation)) = self.probe.take() {
            let stream = StreamId { session: None, epoch: self.epoch, generation };
            step.out.push(Effect::Close(stream));
        }
    }

    fn ask_again(&mut self, asked: Option<Millis>, step: &mut Step<'_>) {
        self.probe = Some(Probe::Waiting);
        let Some(own) = self.sessions.get_mut(&None) else { return };
        let backoff = &mut own.stream.backoff;
        let delay = match asked {
            Some(_) => backoff.next_asked(asked, &mut self.chance),
            None => backoff.next_after_failure(&mut self.chance),
        };
        self.timers.arm(Timer::Probe, step.now.plus(delay));
    }

    /// The connection lives: a suspected session is gone from it alone. One that was attached is
    /// restored; for one that was not, its message simply fails.
    fn connection_lives(&mut self, step: &mut Step<'_>) {
        self.probe = None;
        self.timers.disarm(&Timer::Probe);
        for (scope, failure) in self.suspects() {
            let Some(session) = self.sessions.get_mut(&scope) else { continue };
            if session.attached && !self.ledger.is_ending(&scope) {
                step.log(Level::Warn, format!("{} is lost from its connection", name(&scope)));
                self.tell_cut_short(&scope, step);
                self.close_stream(&scope, step);
                self.forget_turn(&scope, step);
                self.fail_sent_of(&scope, &lost(&scope), step);
                self.begin_restore(&scope, lost(&scope), step);
            } else {
                self.fail_refused(&scope, &failure, step);
            }
            self.pump(&scope, step);
        }
    }
}
