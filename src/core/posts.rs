//! When a message is posted, and what the outcome of a POST means (L5, L9, L10).
//!
//! A scope has two lanes: one for requests and notifications, which waits for the scope's stream
//! (R1), and one for answers to the agent's questions, which waits for nothing. Each lane has one
//! POST under way.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::{Delivery, Failure, IN_FRONT, Kind};
use super::link::Link;
use super::message::{self, Message, RequestId};
use super::requests::OpenRequest;
use super::session::{LaneName, Queued, Scope, Session, Standing, StreamState, Waiter};
use super::socket::Transport;
use super::timers::Timer;
use super::{
    Core, Effect, End, Level, Millis, Outcome, Post, PostId, Response, Step, limits, name,
};

/// What a POST under way carries.
#[derive(Debug)]
pub(super) enum Posting {
    /// An `initialize`, with the connection that its answer named where that has begun.
    Initialize(Option<Bytes>),
    /// A message of a lane.
    Message(Scope, LaneName, Queued),
}

impl Posting {
    /// The message that it carries.
    pub(super) fn message(&mut self) -> Option<&mut Queued> {
        match self {
            Posting::Initialize(_) => None,
            Posting::Message(_, _, message) => Some(message),
        }
    }
}

impl Core {
    /// Gives a message its place.
    pub(super) fn enqueue(
        &mut self,
        scope: Scope,
        lane: LaneName,
        message: Queued,
        step: &mut Step<'_>,
    ) {
        self.queued_bytes += message.body.len();
        let session = self.sessions.entry(scope.clone()).or_default();
        session.lane(lane).queue.push_back(message);
        self.ask_for_link(step);
        self.ask_for_streams(&scope, step);
        if lane == LaneName::Messages {
            self.ask_for_restore(&scope, step);
        }
        self.pump(&scope, step);
    }

    /// Posts what may be posted, in every scope.
    pub(super) fn pump_all(&mut self, step: &mut Step<'_>) {
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            self.pump(&scope, step);
        }
    }

    /// Posts what a scope may post.
    pub(super) fn pump(&mut self, scope: &Scope, step: &mut Step<'_>) {
        match self.link {
            Link::Up(_) => {}
            Link::Down(_) => return self.hold(scope, step),
            Link::Idle | Link::Connecting(_) => return,
        }
        self.forget_pointless(scope, step);
        if !self.is_full(LaneName::Answers) {
            self.post_next(scope, LaneName::Answers, step);
        } else if self.sessions.get(scope).is_some_and(|it| !it.answers.queue.is_empty()) {
            self.crowd(scope);
        }
        let is_full = self.is_full(LaneName::Messages);
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if session.messages.queue.is_empty() {
            return;
        }
        if let Some(post) = session.messages.posting {
            let is_own = |posting: &mut Posting| {
                posting.message().is_some_and(|it| matches!(it.waiter, Waiter::Own(_)))
            };
            if self.posts.get_mut(&post).is_some_and(is_own) {
                // What waits for our restore has its time from the beginning (R1).
                self.hold(scope, step);
            }
            return;
        }
        match session.stream.state {
            _ if session.messages.resting || session.must_wait() => self.hold(scope, step),
            // No message asks for it (L12).
            StreamState::Stopped if session.messages.has_only_cancels() => self.hold(scope, step),
            StreamState::Closed | StreamState::Stopped => {
                self.hold(scope, step);
                self.open_stream(scope, step);
            }
            StreamState::Opening(_) | StreamState::Waiting => self.hold(scope, step),
            _ if is_full => {
                // It waits for its turn, and for nothing that may fail it.
                session.messages.held_since = None;
                self.timers.disarm(&Timer::Hold(scope.clone()));
                self.crowd(scope);
            }
            StreamState::Open { .. } | StreamState::Absent | StreamState::Unknown
                if session.is_restoring() =>
            {
                self.hold(scope, step);
                self.post_next(scope, LaneName::Messages, step);
            }
            StreamState::Open { .. } | StreamState::Absent | StreamState::Unknown => {
                if session.messages.trouble.is_none() {
                    session.messages.held_since = None;
                }
                self.timers.disarm(&Timer::Hold(scope.clone()));
                self.post_next(scope, LaneName::Messages, step);
            }
        }
    }

    /// Whether what is next in such a lane has to wait for another POST to end. On a socket one message
    /// is written at a time, so that whatever waits was certainly not sent (L5).
    fn is_full(&self, lane: LaneName) -> bool {
        match (self.settings.transport, lane) {
            (Transport::WebSocket, _) => !self.posts.is_empty(),
            (Transport::Http, LaneName::Messages) => self.posts.len() >= limits::POSTS_AT_ONCE,
            (Transport::Http, LaneName::Answers) => false,
        }
    }

    fn crowd(&mut self, scope: &Scope) {
        if !self.crowded.contains(scope) {
            self.crowded.push_back(scope.clone());
        }
    }

    /// Nobody waits any more for what becomes of a message: it is not sent again.
    fn is_given_up(&self, waiter: &Waiter) -> bool {
        match waiter {
            Waiter::Own(id) => !self.own.contains_key(id),
            // It was withdrawn, or its session failed (C4).
            Waiter::Question(number) => self.ledger.question(*number).is_none(),
            waiter => *waiter == Waiter::Settled,
        }
    }

    fn is_answered(&self, waiter: &Waiter) -> bool {
        matches!(waiter, Waiter::Editor(id) | Waiter::Own(id) if self.is_held(id))
    }

    /// A request was answered before its POST was: whatever becomes of the message concerns nobody
    /// any more, least of all a later request with the same id.
    fn disown(&mut self, scope: &Scope, id: &RequestId) {
        let is_its = |message: &Queued| matches!(&message.waiter, Waiter::Editor(own) if own == id);
        let under_way = self.posts.values_mut().filter_map(Posting::message);
        under_way.filter(|message| is_its(message)).for_each(|it| it.waiter = Waiter::Settled);
        if let Some(session) = self.sessions.get_mut(scope)
            && let Some(at) = session.messages.queue.iter().position(is_its)
            && let Some(message) = session.messages.queue.remove(at)
        {
            self.queued_bytes -= message.body.len();
        }
    }

    /// A cancel whose turn has ended goes nowhere (V10), nor an answer whose question was withdrawn (C4).
    pub(super) fn forget_pointless(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let is_withdrawn = |message: &mut Queued| match message.waiter {
            Waiter::Question(number) => self.ledger.question(number).is_none(),
            _ => false,
        };
        while let Some(answer) = session.answers.queue.pop_front_if(is_withdrawn) {
            self.queued_bytes -= answer.body.len();
            // What was asked of it is asked of no other.
            session.answers.resting = false;
            session.answers.held_since = None;
            self.timers.disarm(&Timer::Repost(scope.clone(), LaneName::Answers));
        }
        let is_pointless = |message: &mut Queued| match &message.waiter {
            Waiter::Turn(turn) => !self.ledger.has_any(turn),
            _ => false,
        };
        let mut dropped = 0;
        while let Some(cancel) = session.messages.queue.pop_front_if(is_pointless) {
            self.queued_bytes -= cancel.body.len();
            dropped += 1;
        }
        if dropped > 0 {
            step.log(Level::Debug, format!("dropped cancels of what has ended: {dropped}"));
        }
    }

    fn post_next(&mut self, scope: &Scope, lane: LaneName, step: &mut Step<'_>) {
        let (Link::Up(connection), Some(session)) = (&self.link, self.sessions.get_mut(scope))
        else {
            return;
        };
        let waiting = session.lane(lane);
        if waiting.posting.is_some() || waiting.resting {
            return;
        }
        let Some(mut message) = waiting.queue.pop_front() else { return };
        self.post_ids += 1;
        let id = PostId(self.post_ids);
        waiting.posting = Some(id);
        step.out.push(Effect::Post(Post {
            id,
            connection: Some(connection.clone()),
            session: message.header.clone(),
            renew_credential: message.renewal.take(),
            body: message.body.clone(),
        }));
        self.note_sent(&message);
        self.posts.insert(id, Posting::Message(scope.clone(), lane, message));
        self.timers.arm(Timer::Unanswered(id), step.now.plus(self.settings.post_timeout));
    }

    /// A message is posted, and so is its request.
    fn note_sent(&mut self, message: &Queued) {
        if let Waiter::Editor(id) = &message.waiter
            && let Some(request) = self.ledger.request(id)
        {
            request.sent = true;
            request.length = message.body.len();
            if let Some(turn) = self.ledger.turn_of(id).map(Some) {
                // What is lost of it is another gap (V11).
                self.gap_is_over(&turn);
                self.forget_late_load(&turn);
            }
        }
    }

    /// A message was not taken, and waits once more: its request is in no doubt.
    fn note_untaken(&mut self, message: &Queued, step: &Step<'_>) {
        if let Waiter::Editor(id) = &message.waiter
            && let Some(request) = self.ledger.request(id)
        {
            request.sent = false;
            let scope = request.session.clone();
            self.end_doubt(id, &scope, step);
        }
    }

    /// Starts the clock of the messages that cannot go for the network's or the stream's sake
    /// (R1), unless it runs. Our own restores have another, and would keep this one due for ever
    /// (I18).
    fn hold(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let lane = &session.messages;
        let asked_to_wait = lane.resting && !matches!(lane.trouble, Some((Kind::Connect, _)));
        let mut held = lane.queue.iter().filter(|message| {
            !matches!(message.waiter, Waiter::Own(_)) && !session.outwaits(&message.waiter)
        });
        let Some(first) = held.next().filter(|_| !asked_to_wait) else { return };
        let came = first.since;
        let since = *session.messages.held_since.get_or_insert(step.now);
        let until = came.max(since).plus(self.settings.hold);
        self.timers.arm(Timer::Hold(scope.clone()), until);
    }

    /// Fails the messages that waited long enough. Our own restores are none of the editor's.
    pub(super) fn fail_held(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let hold = self.settings.hold;
        let Some(session) = self.sessions.get(scope) else { return };
        let trouble = match &self.link {
            Link::Down(down) => Some((Kind::Connect, down.why.clone())),
            _ => session.trouble(),
        };
        let (kind, reason) = trouble.unwrap_or_else(|| {
            let failing = match session.standing {
                Standing::Restoring(_) => "restore",
                _ => "open the stream of",
            };
            (Kind::StreamLost, format!("the remote agent did not {failing} {}", name(scope)))
        });
        let reason = format!("{reason}; gave up after {} ms (--hold)", hold.0);
        let failure = Failure::new(kind, Delivery::Unsent, reason);
        let (since, now) = (session.messages.held_since.unwrap_or(step.now), step.now);
        self.fail_queued(scope, &failure, step, |session, message| {
            !session.outwaits(&message.waiter) && message.since.max(since).plus(hold) <= now
        });
        self.retire_if_idle(scope, step);
        self.pump(scope, step);
    }

    /// Fails every message that waits in a scope's lane, our own restores excepted.
    pub(super) fn fail_waiting(&mut self, scope: &Scope, failure: &Failure, step: &mut Step<'_>) {
        self.fail_queued(scope, failure, step, |_, _| true);
        self.retire_if_idle(scope, step);
    }

    /// The same, but for cancels: their turns may go on (V10).
    pub(super) fn fail_all_but_cancels(
        &mut self,
        scope: &Scope,
        failure: &Failure,
        step: &mut Step<'_>,
    ) {
        self.fail_queued(scope, failure, step, |_, message| !message.waiter.is_cancel());
        self.retire_if_idle(scope, step);
    }

    /// Fails the first message of a scope, which the remote refused for its session's sake.
    pub(super) fn fail_refused(&mut self, scope: &Scope, failure: &Failure, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if let Some(message) = session.messages.queue.pop_front_if(|first| first.retried) {
            self.queued_bytes -= message.body.len();
            self.fail_message(&message, failure, step);
        }
        self.retire_if_idle(scope, step);
    }

    fn fail_queued(
        &mut self,
        scope: &Scope,
        failure: &Failure,
        step: &mut Step<'_>,
        is_failed: impl Fn(&Session, &Queued) -> bool,
    ) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let queue = std::mem::take(&mut session.messages.queue);
        let (failed, kept) = queue.into_iter().partition(|message| {
            !matches!(message.waiter, Waiter::Own(_)) && is_failed(session, message)
        });
        session.messages.queue = kept;
        if session.messages.has_only_cancels() {
            // What is left waits for nothing that was asked of those.
            session.messages.resting = false;
            session.messages.held_since = None;
            self.timers.disarm(&Timer::Repost(scope.clone(), LaneName::Messages));
            self.timers.disarm(&Timer::Hold(scope.clone()));
        }
        let failed: VecDeque<Queued> = failed;
        // Whatever the failure tells of, these did not leave.
        let failure = &Failure { delivery: Some(Delivery::Unsent), ..failure.clone() };
        for message in failed {
            self.queued_bytes -= message.body.len();
            self.fail_message(&message, failure, step);
        }
    }

    /// A message that will not go: a request gets its error, anything else is logged (L10).
    pub(super) fn fail_message(
        &mut self,
        message: &Queued,
        failure: &Failure,
        step: &mut Step<'_>,
    ) {
        match &message.waiter {
            Waiter::Editor(id) => return self.fail(id, failure, step),
            Waiter::Own(id) => return self.own_failed(id, failure, step),
            Waiter::Question(number) => self.ledger.forget_question(*number),
            Waiter::Settled => return,
            Waiter::Turn(_) | Waiter::Stop | Waiter::Nobody => {}
        }
        step.log(
            Level::Warn,
            format!("a notification or an answer was not delivered: {}", failure.message),
        );
    }

    /// Answers an open request with an error. One that was answered already stays so (P2).
    pub(super) fn fail(&mut self, id: &RequestId, failure: &Failure, step: &mut Step<'_>) {
        if let Some(held) = self.take_held_end(id) {
            // Its answer is here, and only waited for what came before it.
            return self.settle_now(id, &held.answer, held.is_error, step);
        }
        if let Some(request) = self.close_request(id, step) {
            step.line(failure.answer(&request.id, request.session.as_ref()));
            self.retire_if_idle(&request.session, step);
        }
    }

    /// Takes out an open request, which gets its one answer now: nothing of it is sent any more, whatever
    /// becomes of its POST.
    pub(super) fn close_request(&mut self, id: &RequestId, step: &Step<'_>) -> Option<OpenRequest> {
        let request = self.ledger.close(id)?;
        self.forget_request(id, &request.session, step);
        if !request.accepted {
            self.disown(&request.session, id);
        }
        Some(request)
    }

    /// A request has its answer: a later one under the same id is another.
    pub(super) fn forget_request(&mut self, id: &RequestId, scope: &Scope, step: &Step<'_>) {
        self.end_doubt(id, scope, step);
        for scope in [scope, &None] {
            let Some(session) = self.sessions.get_mut(scope) else { continue };
            session.cancelled.remove(id);
            session.held.retain(|held| held.request != *id);
        }
    }

    /// A POST has ended.
    pub(super) fn posted(&mut self, post: PostId, outcome: Outcome, step: &mut Step<'_>) {
        let Some(posting) = self.posts.remove(&post) else {
            self.roster.expect_nothing();
            return step.log(Level::Debug, "ignored the late outcome of a POST");
        };
        self.timers.disarm(&Timer::Unanswered(post));
        match posting {
            Posting::Initialize(_) => self.initialize_answered(outcome, step),
            Posting::Message(scope, lane, message) => {
                if let Some(session) = self.sessions.get_mut(&scope) {
                    session.lane(lane).posting = None;
                }
                self.message_posted(&scope, lane, message, outcome, step);
                self.retire_if_idle(&scope, step);
                // Those that wait longer go first.
                self.pump_crowded(step);
                self.pump(&scope, step);
            }
        }
        self.pump_crowded(step);
    }

    fn pump_crowded(&mut self, step: &mut Step<'_>) {
        while !self.is_full(LaneName::Messages)
            && let Some(scope) = self.crowded.pop_front()
        {
            self.pump(&scope, step);
        }
    }

    /// A POST was not answered in time: it counts as sent and broken (L5).
    pub(super) fn unanswered(&mut self, post: PostId, step: &mut Step<'_>) {
        let timeout = self.settings.post_timeout.0;
        let reason = format!("no answer within {timeout} ms (--post-timeout)");
        if self.is_socket() && matches!(self.link, Link::Up(_)) {
            // Half a message may have been written, after which no other can be.
            return self.socket_ended(&End::Broken(reason), step);
        }
        step.out.push(Effect::Abandon(post));
        step.out.extend(self.half_open().map(Effect::Delete));
        self.posted(post, Outcome::Broken(reason), step);
    }

    fn message_posted(
        &mut self,
        scope: &Scope,
        lane: LaneName,
        mut message: Queued,
        outcome: Outcome,
        step: &mut Step<'_>,
    ) {
        if let Outcome::Response(response) = &outcome {
            let text =
                format!("a POST of {} was answered with HTTP {}", name(scope), response.status);
            step.log(Level::Debug, text);
        }
        let verdict = match verdict(&mut message, outcome, self.settings.can_renew) {
            // An answer does no harm twice, and the agent waits for it (V6).
            Verdict::Failed(failure)
                if matches!(message.waiter, Waiter::Question(_))
                    && failure.may_pass()
                    && self.may_answer_again(scope, step) =>
            {
                Verdict::Again(Again::Later(None), (failure.kind, failure.message))
            }
            Verdict::Accepted(response) if self.is_unread(&response) => {
                let reason = "the remote agent could not read this message";
                let failure = Failure::refused(Kind::Http, reason, &response);
                // It is the agent that says so: another message may fare better.
                Verdict::Failed(Failure { status: None, ..failure })
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Again(again, trouble) if !self.is_given_up(&message.waiter) => {
                return self.post_again(scope, lane, message, &again, trouble, step);
            }
            _ => {}
        }
        self.queued_bytes -= message.body.len();
        if let Some(session) = self.sessions.get_mut(scope) {
            session.lane(lane).backoff.reset();
            session.lane(lane).trouble = None;
            if !matches!(message.waiter, Waiter::Own(_)) {
                // What waits for a restore waits on.
                session.lane(lane).held_since = None;
            }
        }
        match verdict {
            Verdict::Accepted(response) => self.accepted(scope, &message, &response, step),
            // Its answer is here, and waits for what came before it (R12).
            Verdict::Failed(_) if self.is_answered(&message.waiter) => {
                self.becomes_known(scope, step);
            }
            Verdict::Failed(failure) if lane == LaneName::Answers => {
                self.missed(scope, &message, &failure, step);
            }
            Verdict::Failed(failure) => {
                let was_ending = self.ledger.is_ending(scope);
                self.fail_message(&message, &failure, step);
                if was_ending && !self.ledger.is_ending(scope) {
                    // Its stream may have ended meanwhile, and was left alone (V8).
                    self.open_where_closed(scope, step);
                }
            }
            // The next way of a restore may be the load that is asked for (C3).
            Verdict::Conflict(failure) if matches!(message.waiter, Waiter::Own(_)) => {
                self.fail_message(&message, &failure, step);
            }
            Verdict::Conflict(failure) => {
                // One of a life that is over says nothing of the next (C3).
                let is_late = self.is_given_up(&message.waiter) || self.is_restoring(scope);
                self.fail_message(&message, &failure, step);
                if !is_late {
                    self.conflict(scope, failure, step);
                }
            }
            Verdict::Gone(failure) => self.refused_as_gone(scope, lane, message, failure, step),
            Verdict::Again(..) => {}
        }
    }

    /// An answer to the agent does not reach it.
    fn missed(&mut self, scope: &Scope, message: &Queued, failure: &Failure, step: &mut Step<'_>) {
        let is_waited_for = !self.is_given_up(&message.waiter);
        self.fail_message(message, failure, step);
        if is_waited_for {
            self.answer_missed(scope, step);
        }
    }

    /// Whether the agent is known to have a session on this connection.
    pub(super) fn is_attached(&self, scope: &Scope) -> bool {
        self.sessions.get(scope).is_some_and(|session| session.attached)
    }

    /// A message was not accepted, because its connection or its session is gone. It is sent once
    /// more, after the recovery (L10, V5).
    fn refused_as_gone(
        &mut self,
        scope: &Scope,
        lane: LaneName,
        message: Queued,
        failure: Failure,
        step: &mut Step<'_>,
    ) {
        let may_be_session_alone = message.header.is_some() && failure.status == Some(404);
        let why = format!("the connection is lost: {}", failure.message);
        match lane {
            LaneName::Answers
                if may_be_session_alone
                    && !self.is_attached(scope)
                    && !self.is_restoring(scope) =>
            {
                // Nobody restores it, and what goes on there may wait for it.
                self.missed(scope, &message, &failure, step);
            }
            // What asked is gone with the connection or the session, unless it asks again (V6).
            LaneName::Answers => {}
            LaneName::Messages if self.is_given_up(&message.waiter) => {}
            LaneName::Messages if message.retried => self.fail_message(&message, &failure, step),
            LaneName::Messages => {
                self.queued_bytes += message.body.len();
                self.note_untaken(&message, step);
                let session = self.sessions.entry(scope.clone()).or_default();
                session.messages.give_back(Queued { retried: true, ..message });
            }
        }
        if may_be_session_alone {
            self.suspect(scope, failure, step);
        } else {
            self.lose(why, step);
        }
    }

    /// Puts a message that was not accepted back at the head of its lane.
    fn post_again(
        &mut self,
        scope: &Scope,
        lane: LaneName,
        message: Queued,
        again: &Again,
        trouble: (Kind, String),
        step: &mut Step<'_>,
    ) {
        self.note_untaken(&message, step);
        let session = self.sessions.entry(scope.clone()).or_default();
        let waiting = session.lane(lane);
        let delay = match again {
            Again::Renewed => Millis(0),
            Again::Reconnect => waiting.backoff.next(&mut self.chance),
            Again::Later(asked) => waiting.backoff.next_asked(*asked, &mut self.chance),
        };
        waiting.give_back(message);
        waiting.trouble = Some(trouble);
        if delay > Millis(0) {
            waiting.resting = true;
            self.timers.arm(Timer::Repost(scope.clone(), lane), step.now.plus(delay));
        }
    }

    /// The delay before a lane's next POST is over.
    pub(super) fn repost(&mut self, scope: &Scope, lane: LaneName, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.lane(lane).resting = false;
        }
        self.pump(scope, step);
    }

    /// The remote has taken a message; its answer may have come with it (L9).
    fn accepted(
        &mut self,
        scope: &Scope,
        message: &Queued,
        response: &Response,
        step: &mut Step<'_>,
    ) {
        if !matches!(message.waiter, Waiter::Editor(_)) {
            self.note_other(message.body.len());
        }
        let is_settled = match &message.waiter {
            Waiter::Editor(id) => !self.ledger.is_open(id),
            Waiter::Own(id) => !self.own.contains_key(id),
            _ => true,
        };
        // A refusal that came before its 202 made no session known; nor does a cancel.
        if self.is_attached(scope) || !is_settled {
            self.becomes_known(scope, step);
        }
        if self.is_given_up(&message.waiter) {
            // A request of the editor may have that id by now.
            return;
        }
        let id = match &message.waiter {
            Waiter::Editor(id) | Waiter::Own(id) => id,
            Waiter::Question(number) => return self.ledger.forget_question(*number),
            Waiter::Turn(_) | Waiter::Stop | Waiter::Nobody | Waiter::Settled => return,
        };
        let is_socket = self.is_socket();
        if let Some(request) = self.ledger.request(id) {
            // What was written to a socket may not have arrived (W2).
            request.accepted = !is_socket;
        }
        if response.truncated && is_json(response) {
            let limit = self.settings.max_message_bytes;
            let reason = format!("the answer is longer than {limit} bytes (--max-message-bytes)");
            let failure = Failure::new(Kind::TooLarge, Delivery::Accepted, reason);
            return self.fail_message(message, &failure, step);
        }
        match message::read(&response.body) {
            Ok(Message::Answer { id: answered, is_error }) if answered.key() == *id => {
                self.settle(id, &response.body, is_error, None, step);
            }
            _ => {}
        }
    }

    /// A message went first and was taken: the remote knows its session now (R1).
    fn becomes_known(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope)
            && matches!(session.stream.state, StreamState::Unknown)
        {
            session.stream.posted_first = true;
            self.open_stream(scope, step);
        }
    }

    /// Whether a success says that the agent could not read the message (JSON-RPC 2.0, 5.1).
    fn is_unread(&self, response: &Response) -> bool {
        let error = message::read(&response.body);
        matches!(error, Ok(Message::Answer { id, is_error: true }) if self.is_of_nothing(id))
    }

    /// The POST of an answer to the agent may not have arrived: whether it is posted again, for `--hold` from
    /// the first that failed.
    fn may_answer_again(&mut self, scope: &Scope, step: &Step<'_>) -> bool {
        let Some(session) = self.sessions.get_mut(scope) else { return false };
        let since = *session.answers.held_since.get_or_insert(step.now);
        step.now < since.plus(self.settings.hold)
    }
}

/// What an outcome means for the message that was posted.
enum Verdict {
    /// The remote has taken it.
    Accepted(Response),
    /// The remote has not taken it, and may the next time. With what to tell if it never does.
    Again(Again, (Kind, String)),
    /// It fails, alone.
    Failed(Failure),
    /// It fails, and its session with it (C).
    Conflict(Failure),
    /// It was not taken, because the connection is gone, or the session from it.
    Gone(Failure),
}

/// When a message that was not accepted is posted again.
enum Again {
    /// At once, with the credential read again.
    Renewed,
    /// After the lane's backoff, which starts at once.
    Reconnect,
    /// After what the server asks, else after a backoff.
    Later(Option<Millis>),
}

/// The table of L10.
fn verdict(message: &mut Queued, outcome: Outcome, can_renew: bool) -> Verdict {
    let response = match outcome {
        Outcome::Response(response) => response,
        Outcome::NoCredential(reason) => {
            return Verdict::Failed(Failure::new(Kind::Auth, Delivery::Unsent, reason));
        }
        Outcome::Unsent(reason) => {
            let reason = format!("the remote agent cannot be reached: {reason}");
            return Verdict::Again(Again::Reconnect, (Kind::Connect, reason));
        }
        Outcome::Broken(reason) => {
            let reason = format!("it is not known whether the remote agent got this: {reason}");
            return Verdict::Failed(Failure::new(Kind::Connect, Delivery::Unknown, reason));
        }
        Outcome::Closed(close) => {
            return Verdict::Failed(Failure::closed(&close, Delivery::Unknown));
        }
        Outcome::Redirected { status, reason } => {
            let failure = Failure::new(Kind::Http, Delivery::Refused, reason);
            return Verdict::Failed(Failure { status: Some(status), ..failure });
        }
    };
    let refused = |kind, reason: &str| Verdict::Failed(Failure::refused(kind, reason, &response));
    match response.status {
        200..=299 if is_page(&response) => {
            refused(Kind::Http, &format!("this was answered with a web page; {IN_FRONT}"))
        }
        200..=299 => Verdict::Accepted(response),
        401 if message.renewal.is_worth_a_try(can_renew) => {
            let reason = "the remote agent refused the credential (401)".to_owned();
            Verdict::Again(Again::Renewed, (Kind::Auth, reason))
        }
        401 => refused(Kind::Auth, "the remote agent refused the credential (401)"),
        429 => {
            let reason = "the remote agent asks for patience (429)".to_owned();
            Verdict::Again(Again::Later(response.retry_after), (Kind::Http, reason))
        }
        404 | 410 => Verdict::Gone(gone(&response)),
        400 if speaks_of_the_connection(&response) => Verdict::Gone(gone(&response)),
        409 if names_reload(&response) => Verdict::Conflict(reload(&response)),
        413 => refused(Kind::TooLarge, "this message is too large for the remote agent (413)"),
        status => refused(Kind::Http, &format!("the remote agent refused this with HTTP {status}")),
    }
}

/// Whether a response says that its body is JSON.
pub(super) fn is_json(response: &Response) -> bool {
    let essence = response.content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// Whether a response says that its body is HTML.
fn is_html(response: &Response) -> bool {
    response.content_type.to_ascii_lowercase().contains("html")
}

/// Whether a success is a web page: no agent answers so (L9). Some frameworks call any text HTML.
fn is_page(response: &Response) -> bool {
    is_html(response) && response.body.trim_ascii_start().starts_with(b"<")
}

/// Whether a 400 says that it is the connection which is wrong, and not the message.
pub(super) fn speaks_of_the_connection(response: &Response) -> bool {
    const BEFORE: [&str; 6] = ["unknown", "such", "invalid", "missing", "expired", "closed"];
    const AFTER: [&str; 9] =
        ["unknown", "not", "invalid", "missing", "required", "expired", "closed", "lost", "gone"];
    let body = String::from_utf8_lossy(&response.body).to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| body.contains(words));
    // "invalid database connection string" is about another one. An id with hyphens is one word.
    let is_wrong = |text: &str| {
        let words = text.split(|it: char| !it.is_alphanumeric() && it != '-');
        let words = words.flat_map(|word| {
            let is_compound = word.contains("connection");
            word.split(move |letter| is_compound && letter == '-')
        });
        let words: Vec<&str> = words.filter(|word| !matches!(*word, "" | "acp")).collect();
        (0..words.len()).filter(|at| words[*at] == "connection").any(|at| {
            let after = &words[at + 1..words.len().min(at + 1 + limits::WORDS_APART)];
            at > 0 && BEFORE.contains(&words[at - 1])
                || after.iter().any(|word| AFTER.contains(word))
        })
    };
    says(&["connection-id", "connection id", "connectionid", "not initialized", "uninitialized"])
        // What stands in another member of an object is another matter.
        || body.split("\",").any(is_wrong)
}

/// A refusal that says that the connection, or the session, is gone. Says whether the agent answered
/// or a hop in front of it (K69).
pub(super) fn gone(response: &Response) -> Failure {
    let status = response.status;
    let who = if is_html(response) { "a web page, not an ACP agent," } else { "the remote agent" };
    let kind = if status == 404 { Kind::SessionLost } else { Kind::ConnectionLost };
    Failure::refused(kind, format!("{who} answered HTTP {status}"), response)
}

/// Why the connection is lost, for people.
pub(super) fn lost_by(response: &Response) -> String {
    format!("the connection is lost: {}", gone(response).message)
}

/// A refusal that wants the session loaded again (C2).
pub(super) fn reload(response: &Response) -> Failure {
    let reason = "the remote agent wants this session loaded again (409)";
    Failure::refused(Kind::Conflict, reason, response)
}

/// Whether a body names `session_reload_required` where C2 looks for it.
pub(super) fn names_reload(response: &Response) -> bool {
    const SIGN: &str = "session_reload_required";
    let Ok(body) = serde_json::from_slice::<serde_json::Value>(&response.body) else {
        return false;
    };
    ["/code", "/error", "/error/code", "/error/data/code"]
        .iter()
        .any(|place| body.pointer(place).and_then(|value| value.as_str()) == Some(SIGN))
}
