//! What a broken stream costs: the requests whose answer may have been lost with it, and how each
//! of them ends (R9–R11).

use super::error::{Delivery, Failure, Kind};
use super::message::RequestId;
use super::methods::Method;
use super::posts::Posting;
use super::session::{Scope, Session, StreamState, Waiter};
use super::timers::Timer;
use super::{Core, End, Level, Millis, Step, limits, name};

impl Core {
    /// A stream has ended. Whether it is to be opened again.
    pub(super) fn doubt(&mut self, scope: &Scope, end: &End, step: &mut Step<'_>) -> bool {
        let sent = self.sent_on(scope);
        // Where our own question to the connection is under way, that is what ended its stream (R8).
        let is_replaced = scope.is_none() && self.is_asking_connection();
        let is_reopened = !self.settings.strict || sent.is_empty() || is_replaced;
        if !is_reopened {
            self.fail_strictly(scope, sent, step);
        }
        let Some(session) = self.sessions.get_mut(scope) else { return is_reopened };
        if matches!(end, End::Broken(_)) && session.stream.may_lose(self.numbers_answers) {
            // Until the next one is open the server may still write to this one.
            session.stream.broke = true;
            self.doubt_sent(scope, step);
        }
        is_reopened
    }

    /// The answers to what was sent may never come (R9).
    pub(super) fn doubt_sent(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let mut sent = self.sent_on(scope);
        if scope.is_none() {
            // Their answers come on either stream (R1).
            sent.extend(self.sent_on_either());
        }
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if sent.is_empty() {
            return;
        }
        if sent.iter().any(|id| !session.doubted.contains_key(id)) {
            step.log(
                Level::Warn,
                format!("the answers to what {} was sent may never come", name(scope)),
            );
        }
        for id in sent {
            session.doubted.entry(id).or_insert(step.now);
        }
        self.expect_answers(scope, step);
    }

    /// Arms what ends the doubt, whatever comes: silence, or a cancel that is not confirmed, which neither a
    /// stream that breaks again and again nor an editor that cancels again puts off (R10).
    pub(super) fn expect_answers(&mut self, scope: &Scope, step: &Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        let (orphan, confirm) = (Timer::Orphan(scope.clone()), Timer::Confirm(scope.clone()));
        match session.doubted.values().min() {
            Some(since) => self.timers.arm(orphan, since.plus(self.settings.orphan_timeout)),
            None => self.timers.disarm(&orphan),
        }
        if !session.doubted.keys().any(|id| session.cancelled.contains(id)) {
            self.timers.disarm(&confirm);
        } else if !self.timers.is_armed(&confirm) {
            self.timers.arm(confirm, step.now.plus(limits::CANCEL_GRACE));
        }
    }

    /// A request is answered, or was not taken.
    pub(super) fn end_doubt(&mut self, id: &RequestId, scope: &Scope, step: &Step<'_>) {
        for scope in [scope, &None] {
            let Some(session) = self.sessions.get_mut(scope) else { continue };
            if session.doubted.remove(id).is_some() {
                self.expect_answers(scope, step);
            }
        }
    }

    /// A stream is open on which the answers to our own restores may never come: asking again does no
    /// harm.
    pub(super) fn doubt_restores(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let is_sent = |id: &RequestId, lane: &Scope| {
            (scope.is_none() || lane == scope)
                && self.sessions.get(lane).is_some_and(|session| !session.is_waiting(id))
        };
        let own = self.own.iter().filter(|(id, own)| is_sent(id, &own.lane()));
        for id in own.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.doubt_restore(&id, step);
        }
    }

    /// The sent requests that are answered on a stream if on any: on the connection's those of sessions
    /// that have none of their own, too.
    fn sent_on(&self, scope: &Scope) -> Vec<RequestId> {
        let mut sent = self.ledger.sent_of(scope.as_ref());
        if scope.is_none() {
            for of in self.absent_scopes() {
                sent.extend(self.ledger.sent_of(of.as_ref()));
            }
        }
        sent
    }

    /// The sessions whose messages come on the connection's stream (L6).
    pub(super) fn absent_scopes(&self) -> Vec<Scope> {
        let absent = self.sessions.iter().filter(|(_, session)| session.stream.is_absent());
        absent.map(|(scope, _)| scope.clone()).filter(Scope::is_some).collect()
    }

    /// The sent requests that are of a session and may be answered on the connection's stream.
    fn sent_on_either(&self) -> Vec<RequestId> {
        let is_either = |id: &RequestId| {
            self.ledger.place_of(id).is_some_and(|(method, scope)| {
                let ends = method.mends() || method == Method::EndSession;
                ends || !self.is_attached(scope) || !self.answers_apart
            })
        };
        self.ledger.sent().into_iter().filter(is_either).collect()
    }

    /// The strict form (R11): exactly the requests that were sent fail, and the next message opens
    /// the stream again.
    fn fail_strictly(&mut self, scope: &Scope, sent: Vec<RequestId>, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.state = StreamState::Closed;
        }
        let reason = format!("the stream of {} ended before the answer came", name(scope));
        self.fail_each(sent, &Failure::new(Kind::StreamLost, Delivery::Unknown, reason), step);
    }

    /// Something came of a scope: its doubted requests may still be answered, and what it needs next it needs
    /// anew.
    pub(super) fn heard(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.restores.reset();
        }
        // They may be in doubt with the connection's stream (R1).
        for doubtful in [scope, &None] {
            let Some(session) = self.sessions.get_mut(doubtful) else { continue };
            if session.doubted.is_empty() {
                continue;
            }
            session.doubted.retain(|id, since| {
                if doubtful == scope || self.ledger.is_of(id, scope) {
                    *since = step.now;
                }
                self.ledger.is_open(id)
            });
            self.expect_answers(doubtful, step);
        }
    }

    /// The stream was silent for so long that no answer is expected any more.
    pub(super) fn give_up_doubted(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let timeout = self.settings.orphan_timeout;
        let asking = self.ledger.asking();
        for (id, since) in &mut session.doubted {
            // An agent that waits for the person is silent.
            if self.ledger.turn_of(id).is_some_and(|turn| asking.contains_key(&turn)) {
                *since = step.now;
            }
        }
        let is_over = |_: &RequestId, since: &mut Millis| since.plus(timeout) <= step.now;
        let over: Vec<_> = session.doubted.extract_if(.., is_over).map(|(id, _)| id).collect();
        self.expect_answers(scope, step);
        let closes = over.iter().filter_map(|id| self.ledger.place_of(id));
        let closes = closes.filter(|(method, _)| *method == Method::EndSession);
        let may_be_closed: Vec<_> = closes.map(|(_, session)| session.clone()).collect();
        let reason = format!("the stream of {} broke, and the answer never came", name(scope));
        self.fail_each(over, &Failure::new(Kind::StreamLost, Delivery::Unknown, reason), step);
        for session in may_be_closed {
            // Nobody may work any more on what was sent to it (V8).
            self.doubt_sent(&session, step);
        }
    }

    /// An answer to the agent's question did not reach it: it may wait for it for ever (I19).
    pub(super) fn answer_missed(&mut self, scope: &Scope, step: &mut Step<'_>) {
        self.doubt_sent(scope, step);
        let is_running = self.sessions.get(scope).is_some_and(|session| session.is_running);
        if let Some(id) = scope
            && (is_running || self.ledger.has_open(id))
        {
            self.tell_gap(id, "An answer to the agent could not be delivered; if nothing more comes, cancel this turn and ask again.", step);
        }
    }

    /// The editor cancels a session's turn.
    pub(super) fn cancelled(&mut self, scope: &Scope, step: &Step<'_>) {
        // It may be in doubt with either stream (R1).
        for doubtful in [scope, &None] {
            let Some(session) = self.sessions.get_mut(doubtful) else { continue };
            session.cancelled.extend(self.ledger.prompts(scope.as_ref()));
            self.expect_answers(doubtful, step);
        }
    }

    /// A message that could not be read may have been an answer (I19): on a stream to what was sent there,
    /// on a socket to anything.
    pub(super) fn doubt_answers(&mut self, scope: &Scope, step: &mut Step<'_>) {
        match self.is_socket() {
            true => self.doubt_everywhere(step),
            false => self.doubt_sent(scope, step),
        }
    }

    /// Whatever was sent may never be answered.
    pub(super) fn doubt_everywhere(&mut self, step: &mut Step<'_>) {
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            self.doubt_sent(&scope, step);
        }
    }

    /// The agent did not confirm a cancel, or its confirmation was lost: the prompt is answered so.
    /// A success is never invented (R10).
    pub(super) fn give_up_cancelled(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let Session { doubted, cancelled, .. } = session;
        let is_cancelled = |id: &RequestId, _: &mut Millis| cancelled.contains(id);
        let prompts: Vec<_> = doubted.extract_if(.., is_cancelled).map(|(id, _)| id).collect();
        self.expect_answers(scope, step);
        for id in &prompts {
            self.cancel_all_the_same(id);
        }
        let reason = "the turn was cancelled while the stream was broken; \
                      the agent did not confirm that it stopped";
        let failure = Failure::new(Kind::StreamLost, Delivery::Unknown, reason);
        self.fail_each(prompts, &Failure { is_cancel: true, ..failure }, step);
        self.pump(scope, step);
    }

    /// A prompt is answered in its agent's place, which works on: a cancel that was not taken yet goes.
    fn cancel_all_the_same(&mut self, prompt: &RequestId) {
        let Some(turn) = self.ledger.turn_of(prompt) else { return };
        let session = self.sessions.get_mut(&Some(turn.clone()));
        let waiting = session.into_iter().flat_map(|session| &mut session.messages.queue);
        let under_way = self.posts.values_mut().filter_map(Posting::message);
        for message in waiting.chain(under_way) {
            if matches!(&message.waiter, Waiter::Turn(turn) if turn.contains(prompt)) {
                message.waiter = Waiter::Stop;
            }
        }
        if let Some(session) = self.sessions.get_mut(&Some(turn)) {
            self.queued_bytes -= session.messages.drop_repeated_cancels();
        }
    }

    /// Fails requests that were sent, each with how far it came.
    pub(super) fn fail_each(
        &mut self,
        requests: impl IntoIterator<Item = RequestId>,
        failure: &Failure,
        step: &mut Step<'_>,
    ) {
        for id in requests {
            let accepted = self.ledger.request(&id).is_some_and(|request| request.accepted);
            let delivery = Some(if accepted { Delivery::Accepted } else { Delivery::Unknown });
            self.fail(&id, &Failure { delivery, ..failure.clone() }, step);
        }
    }
}
