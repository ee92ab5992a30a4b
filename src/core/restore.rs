//! How a session is restored: by `session/resume`, else by `session/load` with its replay held
//! back (V2–V4, C3). One restore at a time, at most one waiting (V7).

use bytes::Bytes;
use serde::Deserialize;

use super::error::{Delivery, Failure, Kind};
use super::link::Link;
use super::message::{self, Message, RequestId};
use super::methods;
use super::requests::Ledger;
use super::session::{Queued, Scope, Session, Standing, StreamState, Waiter};
use super::timers::Timer;
use super::{Core, Level, Millis, Step, limits, name};

/// Our own attempt to restore a session.
#[derive(Debug)]
pub struct Restore {
    /// Our request that is under way, if one is.
    pub request: Option<RequestId>,
    /// How the session is restored at present.
    pub way: Way,
    /// The editor's sign-in was repeated for it (V4).
    signed_in: bool,
    /// Attempts in the present way whose fate is unknown.
    broken: u32,
    /// When its present step began: this way was first tried since its last attempt broke, or its sign-in.
    pub since: Option<Millis>,
    /// Connections that were lost while it was under way: it may be what ended them.
    suspected: u32,
    /// It waits for another to end.
    waits: bool,
    /// It waits until a message or a person asks (L12).
    pub stopped: bool,
    /// The answer to what is under way may be lost.
    is_doubtful: bool,
    /// Another loss came meanwhile: once this restore is done, one more follows (V7).
    pub again: bool,
    /// What the session's messages are answered with if it cannot be restored.
    otherwise: Failure,
}

/// The ways to restore a session, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `session/resume`.
    Resume,
    /// `session/load`, its replay held back (V3).
    Load,
}

impl Restore {
    /// One that has not begun.
    pub fn new(otherwise: Failure) -> Self {
        let (request, way) = (None, Way::Resume);
        Self {
            request,
            way,
            signed_in: false,
            broken: 0,
            since: None,
            suspected: 0,
            waits: false,
            stopped: false,
            is_doubtful: false,
            again: false,
            otherwise,
        }
    }

    /// While it is under way: until when it may be what ends the connection.
    fn young_until(&self) -> Option<Millis> {
        self.request.as_ref()?;
        Some(self.since?.plus(limits::SUSPECT))
    }

    /// Whether an attempt of unknown fate may be what the agent answers.
    pub fn may_have_arrived(&self) -> bool {
        self.broken > 0
    }
}

/// What a request of ours is for.
#[derive(Clone, Debug)]
pub(super) enum Own {
    /// It restores this session.
    Restore(Scope),
    /// It signs in, for the sake of this session's restore.
    SignIn(Scope),
}

impl Own {
    /// The scope in whose lane it goes: a sign-in belongs to no session.
    pub(super) fn lane(&self) -> Scope {
        self.restores().cloned().unwrap_or_default()
    }

    /// The session that this restores, if it does.
    pub(super) fn restores(&self) -> Option<&Scope> {
        match self {
            Own::Restore(scope) => Some(scope),
            Own::SignIn(_) => None,
        }
    }
}

impl Core {
    /// The link is back: every session that was attached is restored, the least suspected first.
    pub(super) fn restore_all(&mut self, step: &mut Step<'_>) {
        for scope in self.restores(|_| true) {
            self.try_restore(&scope, step);
        }
    }

    /// A restore has ended: the next that waits for it follows.
    fn restore_next(&mut self, step: &mut Step<'_>) {
        if let Some(scope) = self.restores(|restore| restore.waits).first() {
            self.try_restore(scope, step);
        }
    }

    /// The sessions with such a restore, the least suspected first.
    fn restores(&self, is_such: impl Fn(&Restore) -> bool) -> Vec<Scope> {
        let restores = self.sessions.iter().filter_map(|(scope, session)| {
            let restore = session.restore().filter(|restore| is_such(restore))?;
            Some((restore.suspected, scope.clone()))
        });
        let mut restores: Vec<_> = restores.collect();
        restores.sort();
        restores.into_iter().map(|(_, scope)| scope).collect()
    }

    /// A session whose restore may be what ended a connection waits while another's is young, so that
    /// the others come back, and it alone is suspected the next time (C1).
    fn must_wait_for_others(&mut self, scope: &Scope, step: &Step<'_>) -> bool {
        let is_suspected = |restore: &Restore| restore.suspected > 0;
        let Some(session) = self.sessions.get(scope) else { return false };
        if !session.restore().is_some_and(is_suspected) {
            return false;
        }
        let others = self.sessions.iter().filter(|(other, _)| *other != scope);
        let until = others.filter_map(|(_, other)| other.restore()?.young_until()).max();
        let until = until.filter(|until| step.now < *until);
        if let Some(session) = self.sessions.get_mut(scope)
            && let Standing::Restoring(restore) = &mut session.standing
        {
            restore.waits = until.is_some();
        }
        if let Some(until) = until {
            self.timers.arm(Timer::Restore(scope.clone()), until);
        }
        until.is_some()
    }

    /// The restore that ends one connection after another is tried no longer (V9): the other sessions
    /// would not live.
    pub(super) fn drop_suspects(&mut self, step: &mut Step<'_>) {
        let is_too_much = |session: &Session| {
            session.restore().is_some_and(|it| it.suspected > limits::BROKEN_RESTORES)
        };
        let suspects = self.sessions.iter().filter(|(_, session)| is_too_much(session));
        let scopes: Vec<Scope> = suspects.map(|(scope, _)| scope.clone()).collect();
        for scope in scopes {
            let reason = format!(
                "the connection is lost each time that {} is restored; load it again",
                name(&scope)
            );
            let failure = Failure::new(Kind::SessionLost, Delivery::Unsent, reason);
            self.stand_failed(&scope, failure, step);
        }
    }

    /// A session needs to be restored on this connection.
    pub(super) fn begin_restore(&mut self, scope: &Scope, otherwise: Failure, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.detach();
        if let Standing::Restoring(restore) = &mut session.standing {
            restore.again = restore.request.is_some();
            return;
        }
        session.standing = Standing::Restoring(Restore::new(otherwise));
        // One that succeeds and leads to the next loss at once makes no storm (I11).
        match session.restores.next(&mut self.chance) {
            Millis(0) => self.try_restore(scope, step),
            delay => self.timers.arm(Timer::Restore(scope.clone()), step.now.plus(delay)),
        }
    }

    /// Asks the agent for the session, in the best way that is left.
    pub(super) fn try_restore(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if !matches!(self.link, Link::Up(_)) {
            return;
        }
        if self.must_wait_for_others(scope, step) {
            return;
        }
        let id = self.own_id();
        let offers = self.opening.offers.clone();
        let (Some(session), Some(session_id)) = (self.sessions.get_mut(scope), scope) else {
            return;
        };
        let Standing::Restoring(restore) = &mut session.standing else { return };
        if restore.way == Way::Resume && !offers.resume {
            restore.way = Way::Load;
        }
        if restore.way == Way::Load && !offers.load {
            return self.give_up_restore(scope, step);
        }
        let body = Bytes::from(methods::restore(&id, restore.way, session_id, &session.setup));
        restore.request = Some(RequestId::of_own(&id));
        restore.is_doubtful = false;
        let until = restore.since.get_or_insert(step.now).plus(limits::RESTORE_TIMEOUT);
        self.ask_ourselves(scope, id, Own::Restore(scope.clone()), body, step);
        self.timers.arm(Timer::Restore(scope.clone()), until);
    }

    /// Puts a request of ours before everything that waits in a scope's lane.
    fn ask_ourselves(
        &mut self,
        scope: &Scope,
        id: String,
        own: Own,
        body: Bytes,
        step: &mut Step<'_>,
    ) {
        let id = RequestId::of_own(&id);
        self.own.insert(id.clone(), own);
        self.queued_bytes += body.len();
        let message =
            Queued { header: scope.clone(), ..Queued::new(body, Waiter::Own(id), step.now) };
        self.sessions.entry(scope.clone()).or_default().messages.queue.push_front(message);
        self.pump(scope, step);
    }

    /// A request of ours was answered.
    pub(super) fn own_answered(
        &mut self,
        own: &Own,
        id: &RequestId,
        answer: &Bytes,
        is_error: bool,
        step: &mut Step<'_>,
    ) {
        let (Own::Restore(scope) | Own::SignIn(scope)) = own;
        let Some(restore) = self.restore_of(scope, id) else {
            // The session was closed, or the editor restored it itself (V7).
            return step.log(Level::Debug, "ignored the answer to a restore that is over");
        };
        restore.request = None;
        if matches!(own, Own::SignIn(_)) {
            // The step that follows has its own time.
            restore.since = None;
        }
        let wants_sign_in = is_error && !restore.signed_in && wants_sign_in(answer);
        if is_error {
            self.expect_failed_replay(scope);
            self.stays_unknown(scope);
        }
        match own {
            // It may have been signed in already.
            Own::SignIn(_) => self.try_restore(scope, step),
            Own::Restore(_) if !is_error => self.restored(scope, step),
            Own::Restore(_) if wants_sign_in => self.sign_in(scope, step),
            Own::Restore(_) => self.try_next_way(scope, step),
        }
    }

    /// A load of ours was answered with an error: what it replayed before, to a stream that is not there,
    /// comes with the next one (V3).
    fn expect_failed_replay(&mut self, scope: &Scope) {
        let is_socket = self.is_socket();
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let is_load = session.restore().is_some_and(|restore| restore.way == Way::Load);
        let is_open =
            matches!(session.stream.state, StreamState::Open { .. } | StreamState::Absent);
        session.stale_replay |= is_load && !is_open && !is_socket;
    }

    /// A request of ours could not be delivered.
    pub(super) fn own_failed(&mut self, id: &RequestId, failure: &Failure, step: &mut Step<'_>) {
        let Some(own) = self.own.remove(id) else { return };
        let (Own::Restore(scope) | Own::SignIn(scope)) = &own;
        let Some(restore) = self.restore_of(scope, id) else { return };
        restore.request = None;
        if stays(failure) {
            restore.signed_in &= matches!(own, Own::Restore(_));
            self.stop_restore(scope, failure, step);
        } else if failure.may_pass() && restore.broken < limits::BROKEN_RESTORES {
            restore.signed_in &= matches!(own, Own::Restore(_));
            restore.broken += 1;
            restore.since = None;
            let delay = Millis(limits::BACKOFF_FIRST.0 << restore.broken);
            self.timers.arm(Timer::Restore(scope.clone()), step.now.plus(delay));
        } else if matches!(own, Own::SignIn(_)) && failure.status.is_none() {
            // It is the agent that says no: it may have been signed in already (V4).
            restore.since = None;
            self.try_restore(scope, step);
        } else {
            self.try_next_way(scope, step);
        }
    }

    /// It would be the same the next time: the restore waits until it is asked for, and what waits for
    /// it fails (L12).
    pub(super) fn stop_restore(&mut self, scope: &Scope, failure: &Failure, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let Standing::Restoring(restore) = &mut session.standing else { return };
        restore.stopped = true;
        restore.waits = false;
        restore.since = None;
        if let Some(id) = restore.request.take() {
            self.forget_own(&id);
        }
        self.timers.disarm(&Timer::Restore(scope.clone()));
        let who = name(scope);
        step.log(Level::Error, format!("{who} cannot be restored: {}", failure.message));
        self.fail_waiting(scope, failure, step);
        self.restore_next(step);
    }

    /// A message or a person asks for a session whose restore was stopped (L12).
    pub(super) fn ask_for_restore(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope)
            && let Standing::Restoring(restore) = &mut session.standing
            && std::mem::take(&mut restore.stopped)
        {
            self.try_restore(scope, step);
        }
    }

    /// A request of ours can never be delivered: its session is not restored.
    pub(super) fn own_refused(&mut self, id: &RequestId, failure: Failure, step: &mut Step<'_>) {
        let Some(Own::Restore(scope) | Own::SignIn(scope)) = self.own.get(id).cloned() else {
            return;
        };
        self.lose_session(&scope, failure, step);
    }

    /// The answer to a restore, or to its sign-in, may be lost: if it does not come in a moment after all, it
    /// is asked for again.
    pub(super) fn doubt_restore(&mut self, id: &RequestId, step: &mut Step<'_>) {
        let Some(Own::Restore(scope) | Own::SignIn(scope)) = self.own.get(id).cloned() else {
            return;
        };
        if self.is_held(id) {
            // It is here, and waits for its replay.
            return;
        }
        let Some(restore) = self.restore_of(&scope, id) else {
            self.forget_own(id);
            return;
        };
        if std::mem::replace(&mut restore.is_doubtful, true) {
            // A stream that breaks again and again does not put it off.
            return;
        }
        let delay = limits::BACKOFF_FIRST.0 << (restore.broken + 1).min(limits::BROKEN_RESTORES);
        let end = restore.since.unwrap_or(step.now).plus(limits::RESTORE_TIMEOUT);
        self.timers.arm(Timer::Restore(scope), step.now.plus(Millis(delay)).min(end));
    }

    fn restore_again(&mut self, scope: &Scope, id: &RequestId, step: &mut Step<'_>) {
        let Some(own) = self.forget_own(id) else { return };
        self.forget_request(id, scope, step);
        let Some(restore) = self.restore_of(scope, id) else { return };
        restore.signed_in &= matches!(own, Own::Restore(_));
        restore.broken += u32::from(matches!(own, Own::Restore(_)));
        restore.request = None;
        self.restore_due(scope, step);
    }

    /// The time of a step of a restore is over: it was not answered, or it is time to try again.
    pub(super) fn restore_due(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(restore) = self.sessions.get(scope).and_then(Session::restore) else { return };
        let is_doubtful = restore.is_doubtful;
        let is_over = |since: Millis| since.plus(limits::RESTORE_TIMEOUT) <= step.now;
        match restore.request.clone() {
            None if restore.since.is_some_and(is_over) => self.try_next_way(scope, step),
            None => self.try_restore(scope, step),
            // Nobody could answer it.
            Some(id) if self.is_unsent(&id) => self.step_begins(scope, step),
            // Its replay came late, and ends when it is quiet (V3).
            Some(id) if self.is_held(&id) && self.has_open_stream(scope) => {
                let until = step.now.plus(limits::OWN_REPLAY_WAIT);
                self.timers.arm(Timer::Restore(scope.clone()), until);
            }
            Some(id) => match self.take_held(scope, &id) {
                // Only the end of its replay did not come.
                Some(held) => self.settle_now(&id, &held.answer, held.is_error, step),
                None if is_doubtful => self.restore_again(scope, &id, step),
                None => self.restore_unanswered(scope, &id, step),
            },
        }
    }

    fn has_open_stream(&self, scope: &Scope) -> bool {
        let is_open = |it: &Session| matches!(it.stream.state, StreamState::Open { .. });
        self.sessions.get(scope).is_some_and(is_open)
    }

    fn restore_unanswered(&mut self, scope: &Scope, id: &RequestId, step: &mut Step<'_>) {
        let is_socket = self.is_socket();
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let Standing::Restoring(restore) = &mut session.standing else { return };
        restore.request = None;
        let is_load = restore.way == Way::Load;
        session.expect_replay(is_load.then(|| id.clone()), is_socket);
        self.forget_own(id);
        step.log(Level::Warn, format!("the restore of {} was not answered", name(scope)));
        self.stays_unknown(scope);
        self.try_next_way(scope, step);
    }

    /// A step of a restore has its time from here on.
    pub(super) fn step_begins(&mut self, scope: &Scope, step: &Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope)
            && let Standing::Restoring(restore) = &mut session.standing
        {
            restore.since = Some(step.now);
            restore.is_doubtful = false;
            self.expect_restore(scope, step);
        }
    }

    /// The step of a restore that is under way has its time from its beginning.
    pub(super) fn expect_restore(&mut self, scope: &Scope, step: &Step<'_>) {
        let Some(restore) = self.sessions.get(scope).and_then(Session::restore) else { return };
        if restore.request.is_some() && !restore.is_doubtful {
            let since = restore.since.unwrap_or(step.now);
            self.timers.arm(Timer::Restore(scope.clone()), since.plus(limits::RESTORE_TIMEOUT));
        }
    }

    /// Whether a request of ours has not been posted yet.
    fn is_unsent(&self, id: &RequestId) -> bool {
        let Some(own) = self.own.get(id) else { return false };
        self.sessions.get(&own.lane()).is_some_and(|session| session.is_waiting(id))
    }

    fn sign_in(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let id = self.own_id();
        let line = self.signed_in.clone().unwrap_or_default();
        let Ok(Message::Request { id: old, .. }) = message::read(&line) else {
            return self.try_next_way(scope, step);
        };
        let body = message::with_id(&line, old, &id);
        if let Some(session) = self.sessions.get_mut(scope)
            && let Standing::Restoring(restore) = &mut session.standing
        {
            restore.request = Some(RequestId::of_own(&id));
            restore.is_doubtful = false;
            restore.signed_in = true;
        }
        // It belongs to no session, so it goes in the connection's own lane.
        self.ask_ourselves(&None, id, Own::SignIn(scope.clone()), body, step);
        self.step_begins(scope, step);
    }

    fn try_next_way(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let Standing::Restoring(restore) = &mut session.standing else { return };
        if restore.way == Way::Load {
            return self.give_up_restore(scope, step);
        }
        restore.way = Way::Load;
        restore.broken = 0;
        restore.since = None;
        self.try_restore(scope, step);
    }

    /// The session is back.
    fn restored(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let is_socket = self.is_socket();
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let Standing::Restoring(restore) = std::mem::take(&mut session.standing) else { return };
        session.attached = true;
        // The agent replayed to a stream that is not there: it comes with the next one (V3).
        let is_open =
            matches!(session.stream.state, StreamState::Open { .. } | StreamState::Absent);
        if restore.way == Way::Load {
            // On one that is open, what was replayed before has come, and was held back.
            session.stale_replay = !is_open && !is_socket;
        }
        self.timers.disarm(&Timer::Restore(scope.clone()));
        step.log(Level::Info, format!("{} is restored", name(scope)));
        self.keep_questions(scope, step);
        self.open_where_closed(scope, step);
        if restore.again {
            self.begin_restore(scope, restore.otherwise, step);
        }
        self.pump(scope, step);
        self.restore_next(step);
    }

    /// The session cannot be restored (V9): its messages are answered so.
    pub(super) fn give_up_restore(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(restore) = self.sessions.get(scope).and_then(Session::restore) else { return };
        self.lose_session(scope, restore.otherwise.clone(), step);
    }

    /// The session is not restored, for this reason.
    fn lose_session(&mut self, scope: &Scope, failure: Failure, step: &mut Step<'_>) {
        // Before the restore is dropped: what fails lets the lane go on, which it holds up.
        self.fail_turns(scope, &failure, step);
        if self.drop_restore(scope).is_some() {
            self.stand_failed(scope, failure, step);
        }
    }

    /// A session is restored no longer, for whatever reason.
    pub(super) fn drop_restore(&mut self, scope: &Scope) -> Option<Restore> {
        let is_socket = self.is_socket();
        let session = self.sessions.get_mut(scope)?;
        let standing = std::mem::take(&mut session.standing);
        let Standing::Restoring(restore) = standing else {
            session.standing = standing;
            return None;
        };
        self.timers.disarm(&Timer::Restore(scope.clone()));
        let is_load = restore.way == Way::Load;
        let sent = restore.request.clone().filter(|id| is_load && !session.is_waiting(id));
        session.expect_replay(sent, is_socket);
        let is_apart = !is_socket && !session.stream.is_absent();
        session.stale_replay |= is_apart && is_load && restore.may_have_arrived();
        if let Some(id) = &restore.request {
            self.forget_own(id);
        }
        Some(restore)
    }

    /// The session can be used no longer, until the editor loads or resumes it (C3, V9). Where it has
    /// done so already, what came before that fails.
    pub(super) fn stand_failed(&mut self, scope: &Scope, failure: Failure, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let queue = &mut session.messages.queue;
        let mend = queue.iter().position(|message| mends(&self.ledger, message));
        let kept = mend.map(|at| queue.split_off(at));
        session.standing = Standing::Failed(failure.clone());
        session.detach();
        session.is_running = false;
        step.log(Level::Error, failure.message.as_str());
        self.close_stream(scope, step);
        self.drop_questions(scope, step);
        self.fail_waiting(scope, &failure, step);
        if let Some(kept) = kept
            && let Some(session) = self.sessions.get_mut(scope)
        {
            session.messages.queue.extend(kept);
            self.mend(scope, step);
            self.pump(scope, step);
        }
        self.restore_next(step);
    }

    /// The editor loads or resumes a session: what is replayed from here on is for it.
    pub(super) fn mend(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.late_load = None;
        if matches!(session.standing, Standing::Failed(_)) {
            // A fresh stream, never the old one (C3).
            session.standing = Standing::Sound;
            session.stream.start_over();
            self.close_stream(scope, step);
        }
    }

    /// Whether a session is to be restored, or is being.
    pub(super) fn is_restoring(&self, scope: &Scope) -> bool {
        self.sessions.get(scope).and_then(Session::restore).is_some()
    }

    /// The restore of a scope, if this is its request.
    fn restore_of(&mut self, scope: &Scope, id: &RequestId) -> Option<&mut Restore> {
        match &mut self.sessions.get_mut(scope)?.standing {
            Standing::Restoring(restore) if restore.request.as_ref() == Some(id) => Some(restore),
            _ => None,
        }
    }

    /// Nobody waits for a request of ours any more: it is not sent, least of all once more.
    pub(super) fn forget_own(&mut self, id: &RequestId) -> Option<Own> {
        let own = self.own.remove(id)?;
        if let Some(session) = self.sessions.get_mut(&own.lane())
            && let queue = &mut session.messages.queue
            && let Some(at) = queue.iter().position(|it| it.waiter == Waiter::Own(id.clone()))
            && let Some(message) = queue.remove(at)
        {
            self.queued_bytes -= message.body.len();
        }
        Some(own)
    }
}

impl Session {
    /// Our own attempt to restore it, if it is under way or to come.
    fn restore(&self) -> Option<&Restore> {
        match &self.standing {
            Standing::Restoring(restore) => Some(restore),
            _ => None,
        }
    }

    /// It is to be restored, and nothing that asks for it is under way.
    pub(super) fn is_restore_unsent(&self) -> bool {
        let is_unsent = |id: &RequestId| self.is_waiting(id);
        self.restore().is_some_and(|restore| restore.request.as_ref().is_none_or(is_unsent))
    }

    /// The connection is lost: the restore that is needed on the next, if one is.
    pub(super) fn restore_anew(&self, otherwise: Failure) -> Option<Restore> {
        let suspected = match self.restore() {
            Some(restore) => {
                let is_sent = restore.request.as_ref().is_some_and(|id| !self.is_waiting(id));
                restore.suspected + u32::from(is_sent)
            }
            None if self.attached => 0,
            None => return None,
        };
        Some(Restore { suspected, ..Restore::new(otherwise) })
    }
}

/// Whether a message is the editor's load or resume.
pub(super) fn mends(ledger: &Ledger, message: &Queued) -> bool {
    let Waiter::Editor(id) = &message.waiter else { return false };
    ledger.place_of(id).is_some_and(|(method, _)| method.mends())
}

/// Whether the next try would fail as this one did, until somebody does something about it (L12).
fn stays(failure: &Failure) -> bool {
    failure.kind == Kind::Auth || matches!(failure.status, Some(200..=399))
}

/// Whether an error answer says that a sign-in is needed first.
fn wants_sign_in(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Refused {
        error: Code,
    }
    #[derive(Deserialize)]
    struct Code {
        code: i64,
    }
    serde_json::from_slice(answer).is_ok_and(|Refused { error }| error.code == -32000)
}
