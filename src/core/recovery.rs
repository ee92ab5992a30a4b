//! On a loss: what becomes of each request and each session, and how the link comes back (V).

use std::collections::BTreeSet;

use bytes::Bytes;

use super::error::{Delivery, Failure, IN_FRONT, Kind};
use super::link::{Link, answer_to_initialize};
use super::message::{self, Message, RequestId};
use super::methods::{self, Offers};
use super::posts::{Posting, is_json};
use super::requests::OWN_REQUEST;
use super::session::{
    Backoff, LaneName, Owed, Queued, Renewal, Scope, Session, Standing, StreamState, Waiter,
};
use super::timers::Timer;
use super::{
    Connection, Core, Effect, Level, Millis, Outcome, Post, PostId, Response, SessionId, Step,
    StreamId, limits, name,
};

/// What the first connection was opened with, for those that follow.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The editor's `initialize`.
    pub line: Bytes,
    /// The negotiated protocol version.
    pub version: Option<Bytes>,
    /// What the agent offers at present.
    pub offers: Offers,
}

/// A lost connection, and the attempts to replace it.
#[derive(Debug)]
pub(super) struct Down {
    /// Why it was lost, for people.
    pub why: String,
    /// Our `initialize` that is under way.
    request: Option<RequestId>,
    backoff: Backoff,
    renewal: Renewal,
    /// Why it is not tried again: for ever, or until a message asks (L12).
    pub stopped: Option<Stopped>,
}

/// Why a lost connection is not replaced.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The remote refuses the credential, or something else answers in its place; a message that comes
    /// tries again.
    Refused,
    /// The remote speaks another protocol version now (V1).
    ForGood(Failure),
}

impl Core {
    /// The connection is gone. What may have reached the agent fails; what did not waits for the
    /// next connection (V5).
    pub(super) fn lose(&mut self, why: String, step: &mut Step<'_>) {
        self.lose_for(why, None, step);
    }

    /// The connection is gone; where the credential was refused, it is not replaced until a message
    /// asks (L12).
    pub(super) fn lose_for(&mut self, why: String, refused: Option<Failure>, step: &mut Step<'_>) {
        if !matches!(self.link, Link::Up(_)) {
            return;
        }
        step.log(Level::Warn, why.as_str());
        self.drop_probe(step);
        self.drop_replaced(step);
        // From here on nothing is posted: a held answer that goes on may free its lane.
        let renewal = if self.socket.refusals.take() { Renewal::Due } else { Renewal::None };
        let (backoff, told) = (Backoff::default(), why.clone());
        self.link = Link::Down(Down { why: told, request: None, backoff, renewal, stopped: None });
        self.own.clear();
        self.drop_streams(step);
        self.drop_posts(step);
        self.fail_sent(&why, step);
        self.timers.clear();
        self.crowded.clear();
        for (scope, session) in &mut self.sessions {
            if scope.is_some()
                && let Some(restore) = session.restore_anew(lost(scope))
            {
                session.standing = Standing::Restoring(restore);
            }
            self.queued_bytes -= session.forget_connection();
        }
        self.drop_suspects(step);
        self.withdraw_hopeless(step);
        if let Some(failure) = refused {
            return self.stop_reconnecting(failure, step);
        }
        // A server that takes every `initialize` and loses the connection is not asked in a storm, however
        // much it shows meanwhile: each may be an agent that was started.
        if self.up_since.plus(limits::HEALTHY_AFTER) <= step.now {
            self.losses.reset();
        }
        match self.losses.next(&mut self.chance) {
            Millis(0) => self.reconnect(step),
            delay => self.timers.arm(Timer::Retry, step.now.plus(delay)),
        }
        self.pump_all(step);
    }

    fn drop_streams(&mut self, step: &mut Step<'_>) {
        for (scope, session) in &self.sessions {
            if let Some(generation) = session.stream.generation() {
                let (session, epoch) = (scope.clone(), self.epoch);
                step.out.push(Effect::Close(StreamId { session, epoch, generation }));
            }
        }
    }

    fn drop_posts(&mut self, step: &mut Step<'_>) {
        for (post, posting) in std::mem::take(&mut self.posts) {
            step.out.push(Effect::Abandon(post));
            if let Posting::Message(scope, lane, message) = &posting
                && let Some(session) = self.sessions.get_mut(scope)
            {
                session.lane(*lane).posting = None;
                if !matches!(message.waiter, Waiter::Own(_)) {
                    // What waited behind it waited for its POST alone.
                    session.lane(*lane).held_since = None;
                }
            }
            if let Posting::Message(_, _, message) = posting {
                self.queued_bytes -= message.body.len();
                if message.waiter == Waiter::Nobody {
                    step.log(Level::Warn, "a notification may be lost with the connection");
                }
            }
        }
        // The answers that wait to be posted are kept with their questions (V6).
        for session in self.sessions.values_mut() {
            for answer in session.answers.queue.drain(..) {
                self.queued_bytes -= answer.body.len();
            }
        }
    }

    /// Answers the requests that were sent.
    fn fail_sent(&mut self, why: &str, step: &mut Step<'_>) {
        for scope in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.tell_cut_short(&scope, step);
        }
        let held: Vec<_> =
            self.sessions.values_mut().flat_map(|session| session.held.drain(..)).collect();
        for held in held {
            self.settle_now(&held.request, &held.answer, held.is_error, step);
        }
        let sent = self.ledger.sent();
        // From version 2 on a turn goes on when its prompt is answered.
        let running = self.sessions.iter().filter(|(_, session)| session.is_running);
        let mut broken_turns: BTreeSet<_> = running.filter_map(|(id, _)| id.clone()).collect();
        broken_turns.extend(sent.iter().filter_map(|id| self.ledger.turn_of(id)));
        for session in broken_turns {
            self.tell_gap(&session, "The connection to the agent was lost in the middle of this turn; the rest of its output may be missing.", step);
        }
        self.fail_each(sent, &Failure::new(Kind::ConnectionLost, Delivery::Unknown, why), step);
    }

    /// Tries to replace the lost connection: `initialize` with the editor's own parameters, under
    /// an id of ours (V1).
    pub(super) fn reconnect(&mut self, step: &mut Step<'_>) {
        let request = self.own_id();
        let Link::Down(down) = &mut self.link else { return };
        if down.stopped.is_some() || down.request.is_some() {
            return;
        }
        let line = &self.opening.line;
        let Ok(Message::Request { id, .. }) = message::read(line) else { return };
        let body = message::with_id(line, id, &request);
        self.post_ids += 1;
        let post = PostId(self.post_ids);
        down.request = Some(RequestId::of_own(&request));
        step.out.push(Effect::Post(Post {
            id: post,
            connection: None,
            session: None,
            renew_credential: down.renewal.take(),
            body,
        }));
        self.posts.insert(post, Posting::Initialize(None));
        self.timers.arm(Timer::Unanswered(post), step.now.plus(self.settings.connect_timeout));
    }

    /// A message asks for the link: what was refused is tried again, with the credential as it is then
    /// (L12).
    pub(super) fn ask_for_link(&mut self, step: &mut Step<'_>) {
        if let Link::Down(down) = &mut self.link
            && matches!(down.stopped, Some(Stopped::Refused))
        {
            down.stopped = None;
            down.renewal = Renewal::Due;
            self.reconnect(step);
        }
    }

    /// A person asks for the link: it is tried at once, whatever stopped it (E1).
    pub(super) fn connect_now(&mut self, step: &mut Step<'_>) {
        let Link::Down(down) = &mut self.link else { return };
        down.backoff.reset();
        if down.stopped.take().is_some() {
            down.renewal = Renewal::Due;
        }
        self.timers.disarm(&Timer::Retry);
        self.reconnect(step);
    }

    /// Our `initialize` has ended.
    pub(super) fn reconnected(&mut self, outcome: Outcome, step: &mut Step<'_>) {
        let transport = self.settings.transport;
        let Link::Down(down) = &mut self.link else { return };
        let Some(request) = down.request.take() else { return };
        let mut asked = None;
        let reason = match outcome {
            Outcome::Response(response) if transport.is_open(&response) => {
                let reason = match answer_to_initialize(&request, &response, transport) {
                    Ok((false, Some(connection))) => {
                        return self.up_again(connection, &response, step);
                    }
                    Ok((_, _)) => "the remote agent refused to initialize again".to_owned(),
                    Err(failure) if !is_json(&response) => {
                        self.hang_up(step);
                        return self.stop_reconnecting(failure, step);
                    }
                    Err(failure) => failure.message,
                };
                self.hang_up(step);
                reason
            }
            Outcome::Response(response) => match response.status {
                401 if down.renewal.is_worth_a_try(self.settings.can_renew) => {
                    return self.reconnect(step);
                }
                status @ (401 | 403) => {
                    let kind = if status == 401 { Kind::Auth } else { Kind::Http };
                    let reason = format!("the remote agent refuses the credential (HTTP {status})");
                    let failure = Failure::refused(kind, reason, &response);
                    return self.stop_reconnecting(failure, step);
                }
                status @ 200..=299 => {
                    let reason = format!(
                        "the request for a socket was answered with HTTP {status}; {IN_FRONT}"
                    );
                    let failure = Failure::refused(Kind::Http, reason, &response);
                    return self.stop_reconnecting(failure, step);
                }
                status => {
                    if matches!(status, 429 | 502..=504) {
                        asked = Some(response.retry_after);
                    }
                    format!("the remote agent answered HTTP {status}")
                }
            },
            Outcome::Redirected { status, reason } => {
                let failure = Failure::new(Kind::Http, Delivery::Unsent, reason);
                let failure = Failure { status: Some(status), ..failure };
                return self.stop_reconnecting(failure, step);
            }
            Outcome::NoCredential(reason) => {
                let failure = Failure::new(Kind::Auth, Delivery::Unsent, reason);
                return self.stop_reconnecting(failure, step);
            }
            Outcome::Closed(close)
                if close.refuses() && down.renewal.is_worth_a_try(self.settings.can_renew) =>
            {
                return self.reconnect(step);
            }
            Outcome::Closed(close) if close.refuses() => {
                return self.stop_reconnecting(Failure::closed(&close, Delivery::Unsent), step);
            }
            Outcome::Closed(close) => close.to_string(),
            Outcome::Unsent(reason) | Outcome::Broken(reason) => reason,
        };
        let Link::Down(down) = &mut self.link else { return };
        let delay = match asked {
            Some(asked) => down.backoff.next_asked(asked, &mut self.chance),
            None => down.backoff.next(&mut self.chance),
        };
        step.log(Level::Warn, format!("the link is not back yet: {reason}"));
        down.why = format!("the connection to the remote agent is lost: {reason}");
        self.timers.arm(Timer::Retry, step.now.plus(delay));
    }

    /// It would be the same the next time: it is tried again when a message asks (L12).
    fn stop_reconnecting(&mut self, failure: Failure, step: &mut Step<'_>) {
        if let Link::Down(down) = &mut self.link {
            down.why.clone_from(&failure.message);
            down.stopped = Some(Stopped::Refused);
        }
        self.fail_all_waiting(&failure, step);
    }

    fn up_again(&mut self, connection: Connection, response: &Response, step: &mut Step<'_>) {
        let (version, offers) = methods::negotiated(&response.body);
        if version != self.opening.version {
            let reason = "the remote agent speaks another protocol version now; \
                          start the agent in the editor again";
            let failure = Failure::new(Kind::ConnectionLost, Delivery::Unsent, reason);
            if let Link::Down(down) = &mut self.link {
                down.stopped = Some(Stopped::ForGood(failure.clone()));
            }
            self.withdraw_hopeless(step);
            step.out.push(Effect::Delete(connection));
            return self.fail_all_waiting(&failure, step);
        }
        if offers != self.opening.offers {
            step.log(Level::Warn, "the remote agent offers other capabilities than before");
            self.opening.offers = offers;
        }
        self.up(connection, step);
        self.restore_all(step);
        self.keep_questions(&None, step);
    }

    /// Fails what waits for the link, in every scope.
    fn fail_all_waiting(&mut self, failure: &Failure, step: &mut Step<'_>) {
        step.log(Level::Error, failure.message.as_str());
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            self.fail_waiting(&scope, failure, step);
        }
    }

    /// A session is lost whose stream may be away. A turn or a load whose answer is here may have had more
    /// before it (V11).
    pub(super) fn tell_cut_short(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let (Some(id), Some(session)) = (scope, self.sessions.get_mut(scope)) else { return };
        let is_away =
            session.stream.is_coming() || matches!(session.stream.state, StreamState::Closed);
        let held = session.held.iter().map(|held| self.ledger.last_of(&held.request)).max();
        let owed = std::mem::take(&mut session.stream.owes).max(held.unwrap_or_default());
        if is_away && owed > Owed::Nothing {
            self.tell_gap(id, "The agent's stream was lost before all of this came; the rest of its output may be missing.", step);
        }
    }

    /// Tells once, in the conversation, that something may be missing from it (V11).
    pub(super) fn tell_gap(&mut self, session: &SessionId, text: &str, step: &mut Step<'_>) {
        let stream =
            self.sessions.get_mut(&Some(session.clone())).map(|session| &mut session.stream);
        let is_known =
            stream.is_some_and(|stream| std::mem::replace(&mut stream.gap_is_told, true));
        if is_known {
            return;
        }
        step.log(Level::Warn, format!("a gap in session {:?}", session.0));
        if !self.settings.notices {
            return;
        }
        let message_id = self.speaks_version_2().then(|| self.own_id());
        let message_id = message_id.as_deref().map(|id| id.trim_matches('"'));
        step.line(Bytes::from(methods::notice(session, text, message_id)));
    }

    /// Something of a session reached the editor: a gap that follows is another (V11).
    pub(super) fn gap_is_over(&mut self, scope: &Scope) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.gap_is_told = false;
        }
    }

    /// Whether the negotiated version is 2 or later.
    pub(super) fn speaks_version_2(&self) -> bool {
        let version =
            self.opening.version.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        version.and_then(|version| version.parse::<u32>().ok()).is_some_and(|version| version >= 2)
    }

    fn own_prefix(&self) -> String {
        format!("\"{OWN_REQUEST}{:08x}-", self.settings.seed & 0xffff_ffff)
    }

    /// The editor uses an id: no request of ours will, because the answer to the editor's may be late.
    pub(super) fn never_use(&mut self, id: &RequestId) {
        if let Some(number) = id.number_after(&self.own_prefix()) {
            self.own_ids = self.own_ids.max(number.into());
        }
    }

    /// An id of ours, as raw JSON, that no open request has (I9), nor one to come: another
    /// acp-tether may be the editor's end, and an answer to a request that we gave up may be late.
    pub(super) fn own_id(&mut self) -> String {
        loop {
            self.own_ids += 1;
            let id = format!("{}{}\"", self.own_prefix(), self.own_ids);
            if !self.ledger.is_open(&RequestId::of_own(&id)) {
                return id;
            }
        }
    }
}

/// What a session's messages are answered with when it could not be restored.
pub(super) fn lost(scope: &Scope) -> Failure {
    let reason = format!("the remote agent does not have {} any more; load it again", name(scope));
    Failure::new(Kind::SessionLost, Delivery::Unsent, reason)
}

impl Session {
    /// Forgets what belongs to the lost connection; the cursor is offered on the next (R5). What comes
    /// back is how many bytes wait no longer: our own requests are made anew for the next, and turns are over.
    fn forget_connection(&mut self) -> usize {
        self.attached = false;
        self.is_running = false;
        self.doubted.clear();
        self.cancelled.clear();
        self.suspected = None;
        self.stale_replay = false;
        self.late_load = None;
        self.draining = None;
        self.stream.forget_connection();
        for lane in [LaneName::Messages, LaneName::Answers] {
            let lane = self.lane(lane);
            lane.resting = false;
            lane.trouble = None;
            lane.backoff.reset();
        }
        self.answers.held_since = None;
        let is_of_it = |message: &&Queued| matches!(message.waiter, Waiter::Own(_) | Waiter::Stop);
        let bytes = self.messages.queue.iter().filter(is_of_it).map(|it| it.body.len()).sum();
        self.messages.queue.retain(|message| !is_of_it(&message));
        if self.messages.queue.is_empty() {
            self.messages.held_since = None;
        }
        bytes
    }
}
