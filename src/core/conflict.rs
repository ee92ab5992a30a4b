//! One session fails alone (C1–C4).

use super::error::Failure;
use super::posts::Posting;
use super::session::{LaneName, Scope, Standing, Waiter};
use super::timers::Timer;
use super::{Core, Level, Step};

impl Core {
    /// The remote wants the session loaded again. Its requests fail and its stream ends; nothing
    /// else does (C1).
    pub(super) fn conflict(&mut self, scope: &Scope, failure: Failure, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if scope.is_none() {
            return self.lose(format!("the connection is lost: {}", failure.message), step);
        }
        let was_attached = session.attached;
        step.log(Level::Warn, failure.message.as_str());
        if self.ledger.is_ending(scope) {
            // That nobody has its stream is what was asked for (V8).
            self.close_stream(scope, step);
            return self.doubt_sent(scope, step);
        }
        self.tell_cut_short(scope, step);
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.stream.start_over();
        session.held.retain(|held| self.ledger.ends_something(&held.request));
        self.close_stream(scope, step);
        self.forget_turn(scope, step);
        self.forget_under_way(scope);
        self.fail_sent_of(scope, &failure, step);
        let Some(session) = self.sessions.get(scope) else { return };
        if was_attached && !session.attached {
            // An answer that only waited has closed it.
            return;
        }
        if matches!(session.standing, Standing::Restoring(_)) {
            self.give_up_restore(scope, step);
        } else if !was_attached {
            self.fail_waiting(scope, &failure, step);
        } else if self.settings.recover_alone {
            self.begin_restore(scope, failure, step);
        } else {
            self.stand_failed(scope, failure, step);
        }
    }

    /// The agent has lost a session, and with it what it asked and what it was doing. Of a turn that goes on
    /// behind its answered prompt no error tells (V11).
    pub(super) fn forget_turn(&mut self, scope: &Scope, step: &mut Step<'_>) {
        self.drop_questions(scope, step);
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let was_running = std::mem::take(&mut session.is_running);
        if let Some(id) = scope.as_ref().filter(|_| was_running && self.speaks_version_2()) {
            self.tell_gap(id, "The agent lost this session in the middle of a turn; the rest of its output may be missing.", step);
        }
    }

    /// What becomes of the notifications under way concerns a life of the session that is over.
    fn forget_under_way(&mut self, scope: &Scope) {
        for posting in self.posts.values_mut() {
            if let Posting::Message(of, _, message) = posting
                && of == scope
                && !matches!(message.waiter, Waiter::Editor(_) | Waiter::Own(_))
            {
                message.waiter = Waiter::Settled;
            }
        }
    }

    /// Fails the requests of a scope that were sent.
    pub(super) fn fail_sent_of(&mut self, scope: &Scope, failure: &Failure, step: &mut Step<'_>) {
        let sent = self.ledger.sent_of(scope.as_ref());
        self.fail_each(sent, failure, step);
    }

    /// Fails what was sent to a session that is lost, but for what may bring it back.
    pub(super) fn fail_turns(&mut self, scope: &Scope, failure: &Failure, step: &mut Step<'_>) {
        let mut sent = self.ledger.sent_of(scope.as_ref());
        sent.retain(|id| self.ledger.place_of(id).is_none_or(|(method, _)| !method.mends()));
        self.fail_each(sent, failure, step);
    }

    /// The agent waits no longer for what it asked. The answers of a failed session go nowhere, least of all
    /// to another connection (C4).
    pub(super) fn drop_questions(&mut self, scope: &Scope, step: &mut Step<'_>) {
        self.withdraw(scope, None, step);
        let Some(session) = self.sessions.get_mut(scope) else { return };
        for answer in session.answers.queue.drain(..) {
            self.queued_bytes -= answer.body.len();
        }
        session.answers.resting = false;
        session.answers.held_since = None;
        self.timers.disarm(&Timer::Repost(scope.clone(), LaneName::Answers));
    }
}
