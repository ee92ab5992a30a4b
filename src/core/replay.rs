//! Keeps an answer behind what came before it on another stream (I4), the more so a replay that it
//! closes (R12), and holds back the replay of our own restore (V3).

use bytes::Bytes;

use super::message::RequestId;
use super::methods::Method;
use super::restore::Way;
use super::session::{Held, Scope, Session, Standing, StreamState};
use super::timers::Timer;
use super::{Core, Millis, Step, limits};

impl Core {
    /// The scope whose stream may still bring what an answer closes, if it does: a replay, or a turn.
    pub(super) fn closes(
        &mut self,
        id: &RequestId,
        is_error: bool,
        came_on: Option<&Scope>,
    ) -> Option<Scope> {
        let scope = match self.own.get(id) {
            Some(own) => own.restores()?.clone(),
            None => {
                let request = self.ledger.request(id)?;
                let (replays, session) = (request.replays, request.session.clone());
                // From version 2 on it is not the end of its turn.
                let is_turn = self.ledger.turn_of(id).is_some() && !self.speaks_version_2();
                (replays || is_turn).then_some(session)?
            }
        };
        let session = self.sessions.get(&scope)?;
        // An error closes no replay that is worth waiting for the stream.
        let may_deliver = matches!(session.stream.state, StreamState::Open { .. })
            || session.stream.is_coming() && !is_error;
        let replays = self.ledger.is_open(id) || self.is_replaying(&scope);
        (scope.is_some() && came_on != Some(&scope) && may_deliver && replays).then_some(scope)
    }

    /// Whether the answer to a request waits for the end of a replay.
    pub(super) fn is_held(&self, id: &RequestId) -> bool {
        let mut held = self.sessions.values().flat_map(|session| &session.held);
        held.any(|held| held.request == *id)
    }

    /// Takes the answer that ends a turn or a session, and waits for the rest of it.
    pub(super) fn take_held_end(&mut self, id: &RequestId) -> Option<Held> {
        let (_, scope) = self.ledger.place_of(id).filter(|_| self.ledger.ends_something(id))?;
        self.take_held(&scope.clone(), id)
    }

    /// A stream ended as it should: that its session has ended is not held any more.
    pub(super) fn release_end(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        let is_end = |held: &&Held| {
            self.ledger.place_of(&held.request).is_some_and(|(it, _)| it == Method::EndSession)
        };
        let end = session.held.iter().find(is_end).map(|held| held.request.clone());
        if let Some(held) = end.and_then(|id| self.take_held(scope, &id)) {
            self.settle_now(&held.request, &held.answer, held.is_error, step);
        }
    }

    /// Takes the answer to a request of a session, where it waits.
    pub(super) fn take_held(&mut self, scope: &Scope, id: &RequestId) -> Option<Held> {
        let session = self.sessions.get_mut(scope)?;
        let at = session.held.iter().position(|held| held.request == *id)?;
        Some(session.held.remove(at))
    }

    /// Whether what comes on a session's stream is the replay of our own `session/load`.
    pub(super) fn is_replaying(&self, scope: &Scope) -> bool {
        let Some(session) = self.sessions.get(scope) else { return false };
        match &session.standing {
            Standing::Restoring(restore) => {
                restore.way == Way::Load
                    && (restore.may_have_arrived()
                        || restore.request.as_ref().is_some_and(|id| !session.is_waiting(id)))
            }
            _ => false,
        }
    }

    /// Keeps an answer until the session's stream is quiet.
    pub(super) fn hold_answer(
        &mut self,
        scope: &Scope,
        request: &RequestId,
        answer: &Bytes,
        is_error: bool,
        came_on: Option<&Scope>,
        step: &mut Step<'_>,
    ) {
        if self.own.contains_key(request) {
            // It is answered, and waits for the replay alone (V2).
            self.step_begins(scope, step);
        }
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let (request, answer, came_on) = (request.clone(), answer.clone(), came_on.cloned());
        session.held.push(Held { request, answer, is_error, came_on, since: step.now });
        self.timers.arm(Timer::Quiet(scope.clone()), step.now.plus(limits::REPLAY_QUIET));
    }

    /// An update of a session came on the stream on which an answer came before it: that waits no longer for
    /// the session's own.
    pub(super) fn release_before(&mut self, scope: &Scope, stream: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope).filter(|_| scope != stream) else {
            return;
        };
        let is_before = |held: &mut Held| {
            held.came_on.as_ref() == Some(stream) && !self.own.contains_key(&held.request)
        };
        let released: Vec<Held> = session.held.extract_if(.., is_before).collect();
        for held in released {
            self.settle_now(&held.request, &held.answer, held.is_error, step);
        }
    }

    /// An answer goes out while it is being found out whether its session is gone: more of it may be lost
    /// (V11).
    pub(super) fn note_owed(&mut self, id: &RequestId, came_on: Option<&Scope>) {
        let owed = self.ledger.last_of(id);
        let scope = self.ledger.place_of(id).map(|(_, scope)| scope);
        let scope = scope.filter(|scope| Some(*scope) != came_on);
        if let Some(session) = scope.and_then(|scope| self.sessions.get_mut(scope))
            && session.suspected.is_some()
        {
            session.stream.owes = session.stream.owes.max(owed);
        }
    }

    /// Whether what comes on a session's stream is a replay that the editor has already (V3).
    pub(super) fn is_held_back(&self, scope: &Scope) -> bool {
        let is_late = |session: &Session| session.draining.is_some() || session.late_load.is_some();
        self.sessions.get(scope).is_some_and(is_late) || self.is_replaying(scope)
    }

    /// An answer came that nobody waits for: where that is our late load, its replay came before it.
    pub(super) fn replay_is_over(&mut self, id: &RequestId) {
        for session in self.sessions.values_mut() {
            session.late_load.take_if(|late| late == id);
        }
    }

    /// A turn begins. Over HTTP the answer to a late load may be lost, and what comes is the turn's.
    pub(super) fn forget_late_load(&mut self, scope: &Scope) {
        let is_socket = self.is_socket();
        if let Some(session) = self.sessions.get_mut(scope).filter(|_| !is_socket) {
            session.late_load = None;
        }
    }

    /// A stream is open on which the replay of a load that we gave up may still come: it is let pass
    /// before anything is posted.
    pub(super) fn drain(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let is_restoring = matches!(session.standing, Standing::Restoring(_));
        if !is_restoring && std::mem::take(&mut session.stale_replay) {
            session.draining = Some(step.now);
            self.not_quiet(scope, step);
        }
    }

    /// Something came on a session's stream: what waits for its silence waits on, but not for ever.
    pub(super) fn not_quiet(&mut self, scope: &Scope, step: &Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        let draining = session.draining.map(|since| since.plus(limits::REPLAY_WAIT));
        let held = session.held.iter().map(|held| held.since.plus(self.patience(held)));
        let Some(end) = held.chain(draining).min() else { return };
        let until = step.now.plus(limits::REPLAY_QUIET).min(end);
        self.timers.arm(Timer::Quiet(scope.clone()), until);
    }

    /// How long an answer waits at most for the end of its replay. Where that is of our own restore, what
    /// came too late would be shown a second time (V3).
    fn patience(&self, held: &Held) -> Millis {
        match self.own.contains_key(&held.request) {
            true => limits::OWN_REPLAY_WAIT,
            false => limits::REPLAY_WAIT,
        }
    }

    /// A session's stream is open again: what of a replay was not delivered comes.
    pub(super) fn replay_goes_on(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        for held in &mut session.held {
            // Our own restore has the time for it.
            if self.own.contains_key(&held.request) {
                held.since = step.now;
            }
        }
        self.not_quiet(scope, step);
    }

    /// The stream is quiet: the held answers go on. While the stream is away the rest of the replay
    /// may come with it; our own restore waits for that, the editor no longer than R12 says.
    pub(super) fn release_answer(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if self.deaf_since.is_some() {
            return;
        }
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.draining = None;
        // What is open may have died in a sleep, and the rest come with the next (L11).
        let is_away = session.stream.is_coming() || self.timers.is_armed(&Timer::Woken);
        let heard = session.stream.pulse.heard();
        let held = std::mem::take(&mut session.held);
        let waits = |held: &Held| {
            // Another may have waited for long enough in the middle of the replay of this one.
            let is_quiet = held.since.max(heard).plus(limits::REPLAY_QUIET) <= step.now;
            let is_patient = step.now < held.since.plus(self.patience(held));
            is_patient && (is_away || !is_quiet) || is_away && self.own.contains_key(&held.request)
        };
        let (kept, released): (Vec<Held>, Vec<Held>) = held.into_iter().partition(waits);
        if !kept.is_empty() {
            let patient = kept.iter().map(|held| held.since.plus(self.patience(held)));
            let until = match patient.filter(|at| *at > step.now).min() {
                Some(at) if is_away => at,
                None if is_away => step.now.plus(limits::REPLAY_WAIT),
                _ => step.now.plus(limits::REPLAY_QUIET),
            };
            self.timers.arm(Timer::Quiet(scope.clone()), until);
        }
        let owed = released.iter().map(|held| self.ledger.last_of(&held.request)).max();
        if let Some(session) = self.sessions.get_mut(scope) {
            session.held = kept;
            if is_away || session.suspected.is_some() {
                session.stream.owes = session.stream.owes.max(owed.unwrap_or_default());
            }
        }
        for held in released {
            self.settle_now(&held.request, &held.answer, held.is_error, step);
        }
        self.pump(scope, step);
    }
}
