//! When a stream is opened, and what its end means (R1–R4, L6, L12).

use bytes::Bytes;

use super::editor::is_header_value;
use super::error::{Delivery, Failure, IN_FRONT, Kind};
use super::link::Link;
use super::posts::{gone, lost_by, names_reload, reload, speaks_of_the_connection};
use super::recovery::lost;
use super::restore::mends;
use super::session::{Owed, Renewal, Scope, Session, Standing, StreamState};
use super::timers::Timer;
use super::{
    Core, Effect, End, Generation, Level, Millis, Open, Outcome, Response, Step, StreamEvent,
    StreamId, limits, name,
};

impl Core {
    /// Asks for a scope's stream, as its next generation.
    pub(super) fn open_stream(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if self.is_socket() {
            return self.open_on_socket(scope, step);
        }
        let asked = self.ask_by_opening(scope, step);
        let (Link::Up(connection), Some(session)) = (&self.link, self.sessions.get_mut(scope))
        else {
            return;
        };
        let generation = asked.unwrap_or_else(|| {
            self.generations += 1;
            Generation(self.generations)
        });
        let stream = &mut session.stream;
        stream.state = StreamState::Opening(generation);
        stream.was_attached = session.attached;
        self.timers.disarm(&Timer::Reopen(scope.clone()));
        let unopened = step.now.plus(self.settings.post_timeout);
        self.timers.arm(Timer::Unopened(scope.clone()), unopened);
        if asked.is_some() {
            return;
        }
        step.out.push(Effect::Open(Open {
            stream: StreamId { session: scope.clone(), epoch: self.epoch, generation },
            connection: connection.clone(),
            cursor: stream.cursor.clone(),
            renew_credential: stream.renewal.take(),
        }));
    }

    /// The GET of a stream was not answered: it is given up, and asked for again.
    pub(super) fn unopened(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        if matches!(session.stream.state, StreamState::Opening(_)) {
            self.close_stream(scope, step);
            let timeout = self.settings.post_timeout.0;
            let reason = format!("no answer within {timeout} ms (--post-timeout)");
            self.stream_failed(scope, Outcome::Broken(reason), step);
        }
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
            StreamEvent::Opened { event_epoch } => self.stream_opened(stream, event_epoch, step),
            StreamEvent::Refused(response) => self.stream_refused(scope, &response, step),
            StreamEvent::Failed(outcome) => self.stream_failed(scope, outcome, step),
            StreamEvent::Message { data, id } => self.stream_message(stream, data, id, step),
            StreamEvent::TooLarge => {
                let limit = self.settings.max_message_bytes;
                step.log(
                    Level::Warn,
                    format!("dropped a message longer than {limit} bytes (--max-message-bytes)"),
                );
                self.doubt_answers(scope, step);
            }
            StreamEvent::Progress => self.progress(scope, step),
            StreamEvent::Comment => self.beat(scope, step),
            StreamEvent::Retry(floor) => {
                if let Some(session) = self.sessions.get_mut(scope) {
                    session.stream.floor = floor.min(limits::BACKOFF_CAP);
                }
            }
            StreamEvent::Ended(end) if self.is_socket() => self.socket_ended(&end, step),
            StreamEvent::Ended(end) => self.stream_ended(scope, &end, step),
        }
    }

    pub(super) fn stream_opened(
        &mut self,
        id: &StreamId,
        event_epoch: Option<Bytes>,
        step: &mut Step<'_>,
    ) {
        let scope = &id.session;
        self.timers.disarm(&Timer::Unopened(scope.clone()));
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let stream = &mut session.stream;
        stream.state = StreamState::Open { generation: id.generation, since: step.now };
        stream.renewal = Renewal::default();
        stream.trouble = None;
        stream.refused_since = None;
        stream.pulse.open(step.now);
        let is_renumbered = stream.event_epoch.is_some() && stream.event_epoch != event_epoch;
        stream.event_epoch = event_epoch;
        // On a new connection the session is restored anyway, and what was lost with the last one is told.
        let is_known = std::mem::replace(&mut stream.is_known, true);
        if is_renumbered {
            // The same as a 410: what our cursor names is not there any more (R5, R6).
            stream.gap = is_known;
            let had_cursor = stream.cursor.is_some();
            stream.start_over();
            if had_cursor {
                self.close_stream(scope, step);
                return self.open_stream(scope, step);
            }
        }
        if std::mem::take(&mut stream.broke) && stream.may_lose(self.numbers_answers) {
            self.doubt_sent(scope, step);
            self.doubt_restores(scope, step);
        }
        self.watch(scope);
        self.drain(scope, step);
        self.replay_goes_on(scope, step);
        self.mend_gap(scope, step);
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.owes = Owed::Nothing;
        }
        self.opening_answered(scope, step);
        self.pump(scope, step);
    }

    /// The server does not have what came since the cursor: the session is restored, and the gap
    /// told (R6).
    fn mend_gap(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if !std::mem::take(&mut session.stream.gap) {
            return;
        }
        // An answer may be in the gap.
        self.doubt_sent(scope, step);
        self.doubt_restores(scope, step);
        if scope.is_some() {
            return self.restore_after_gap(scope, step);
        }
        step.log(Level::Warn, "messages of the connection's own stream are missing");
        for scope in self.absent_scopes() {
            let is_of_use = scope.as_ref().is_some_and(|id| self.ledger.has_open(id));
            if is_of_use || self.is_attached(&scope) {
                self.restore_after_gap(&scope, step);
            }
        }
    }

    fn restore_after_gap(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(id) = scope else { return };
        self.tell_gap(id, "Some of the agent's messages could not be delivered; the conversation above may be incomplete.", step);
        let session = self.sessions.get(scope);
        let is_attached = session.is_some_and(|it| it.attached && it.stream.owes != Owed::History);
        // The editor's own load restores it as well, and what it replays is for the editor: a load of ours would
        // take that for its own.
        let sent = self.ledger.sent_of(scope.as_ref());
        let mut mending = sent
            .iter()
            .filter(|id| self.ledger.place_of(id).is_some_and(|(method, _)| method.mends()));
        let is_better_left = mending
            .any(|id| !self.opening.offers.resume || self.ledger.last_of(id) == Owed::History);
        if is_attached && !is_better_left && !self.ledger.is_ending(scope) {
            self.begin_restore(scope, lost(scope), step);
        }
    }

    fn stream_message(
        &mut self,
        stream: &StreamId,
        data: Option<Bytes>,
        id: Option<Bytes>,
        step: &mut Step<'_>,
    ) {
        let scope = &stream.session;
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.stream.backoff.reset();
        session.stream.pulse.event(step.now);
        let is_numbered = id.as_ref().is_some_and(|id| !id.is_empty());
        let is_repeat = match (&id, &data) {
            (Some(id), Some(data)) if !id.is_empty() => session.stream.seen.is_repeat(id, data),
            _ => false,
        };
        // The cursor moves when the event has been dealt with (R3): by the end of this step it is,
        // whatever becomes of it, and an answer may end the session on the way. An id that cannot be
        // sent back leaves the cursor where it is; what the server then sends again is known by its id
        // and content.
        if let Some(id) = id.filter(|id| is_header_value(id)) {
            session.stream.cursor = Some(id).filter(|id| !id.is_empty());
        }
        if is_repeat {
            return step
                .log(Level::Debug, format!("dropped a repeat on the stream of {}", name(scope)));
        }
        self.not_quiet(scope, step);
        if let Some(data) = data {
            self.deliver(scope, data, is_numbered, step);
        }
        self.heard(scope, step);
        self.watch(scope);
    }

    /// Some of a message came: its stream lives, and is not quiet.
    fn progress(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.pulse.event(step.now);
        }
        self.not_quiet(scope, step);
        self.heard(scope, step);
        self.watch(scope);
    }

    /// A sign of life came that says nothing else.
    pub(super) fn beat(&mut self, scope: &Scope, step: &Step<'_>) {
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.pulse.beat(step.now);
        }
        self.watch(scope);
    }

    /// Watches a stream that shows heartbeats (L11), or a socket (W3).
    fn watch(&mut self, scope: &Scope) {
        let Some(session) = self.sessions.get(scope) else { return };
        let pulse = &session.stream.pulse;
        let deadline = if self.is_socket() {
            Some(pulse.heard().plus(limits::SOCKET_SILENCE))
        } else {
            pulse.deadline()
        };
        if let (StreamState::Open { .. }, Some(at), None) =
            (&session.stream.state, deadline, self.deaf_since)
        {
            self.timers.arm(Timer::Silent(scope.clone()), at);
        }
    }

    /// What streams deliver is taken from here on, or is not (L11). While it is not, their silence says
    /// nothing.
    pub(super) fn listen(&mut self, is_listening: bool, step: &mut Step<'_>) {
        let since = std::mem::replace(&mut self.deaf_since, (!is_listening).then_some(step.now));
        if since.is_some_and(|since| since.plus(limits::READING) <= step.now) {
            self.timers.put_off(step.now.plus(limits::READING), Timer::is_for_streams);
        }
        if is_listening && self.replaced.is_some() {
            self.timers.arm(Timer::Replaced, step.now.plus(limits::REPLACED));
        }
        if is_listening && self.timers.is_armed(&Timer::Woken) {
            self.timers.arm(Timer::Woken, step.now.plus(limits::WAKING));
        }
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            if let Some(since) = since.filter(|_| is_listening) {
                if let Some(session) = self.sessions.get_mut(&scope) {
                    session.stream.pulse.event(step.now);
                }
                self.watch(&scope);
                let deaf = Millis(step.now.0 - since.0);
                self.set_clocks(&scope, |clock| clock.plus(deaf), step);
            } else {
                self.timers.disarm(&Timer::Silent(scope));
            }
        }
    }

    /// No heartbeat came for so long that the stream is dead.
    pub(super) fn silent(&mut self, scope: &Scope, step: &mut Step<'_>) {
        if self.is_socket() {
            return self.socket_silent(step);
        }
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.pulse.silent();
        }
        self.cut(scope, "it fell silent", step);
    }

    /// The machine slept, or this process alone stood still: nobody knows which stream still lives (L11).
    /// What had come before is there to be read, and would be lost with the streams.
    pub(super) fn woke(&mut self, step: &mut Step<'_>) {
        step.log(Level::Info, "the machine slept: what was open may be dead");
        self.stood_still(step);
        match self.link {
            Link::Down(_) => self.reconnect(step),
            // It is only asked.
            _ if self.is_socket() => self.test_socket(step),
            _ => self.timers.arm(Timer::Woken, step.now.plus(limits::WAKING)),
        }
    }

    /// Nothing was taken for a while: that something did not come says nothing.
    pub(super) fn stood_still(&mut self, step: &Step<'_>) {
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            self.set_clocks(&scope, |_| step.now, step);
        }
        self.timers.put_off(step.now.plus(limits::CATCHING_UP), Timer::is_for_remote);
        // What had come is read before the stream is silent, or quiet.
        let is_silence = |timer: &Timer| matches!(timer, Timer::Silent(_) | Timer::Quiet(_));
        self.timers.put_off(step.now.plus(limits::READING), is_silence);
    }

    /// Moves the times since which something of a scope is waited for, none past now.
    fn set_clocks(&mut self, scope: &Scope, later: impl Fn(Millis) -> Millis, step: &Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        session.clocks().for_each(|clock| *clock = later(*clock).min(step.now));
        self.not_quiet(scope, step);
        self.expect_answers(scope, step);
        self.expect_restore(scope, step);
    }

    /// What had come before the sleep is read.
    pub(super) fn doubt_streams(&mut self, step: &mut Step<'_>) {
        match self.deaf_since {
            // Or not yet.
            Some(_) => self.timers.arm(Timer::Woken, step.now.plus(limits::WAKING)),
            None => self.reopen_all("the machine slept", step),
        }
    }

    /// A person knows better that the network is back (E1): nothing waits for its backoff, and what
    /// was stopped is tried again with the credential as it is now.
    pub(super) fn reconnect_now(&mut self, step: &mut Step<'_>) {
        step.log(Level::Info, "asked to reconnect");
        self.reopen_all("it is opened again on demand", step);
        self.connect_now(step);
    }

    fn reopen_all(&mut self, why: &str, step: &mut Step<'_>) {
        if self.is_socket() {
            return self.test_socket(step);
        }
        self.ask_anew(step);
        let scopes: Vec<Scope> = self.sessions.keys().cloned().collect();
        for scope in scopes {
            let Some(session) = self.sessions.get_mut(&scope) else { continue };
            session.stream.backoff.reset();
            match session.stream.state {
                StreamState::Waiting => self.open_stream(&scope, step),
                StreamState::Closed if scope.is_none() => self.open_stream(&scope, step),
                StreamState::Stopped => {
                    session.stream.renewal = Renewal::Due;
                    session.stream.trouble = None;
                    self.open_stream(&scope, step);
                }
                _ => self.cut(&scope, why, step),
            }
            self.ask_for_restore(&scope, step);
        }
    }

    /// A message asks again for the streams on which it may be answered (L12): the connection's, and the
    /// session's. One that is not attached is opened for the messages that wait for it.
    pub(super) fn ask_for_streams(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let is_up = matches!(self.link, Link::Up(_));
        for scope in [scope, &None] {
            let Some(session) = self.sessions.get_mut(scope) else { continue };
            if matches!(session.stream.state, StreamState::Stopped) {
                session.stream.state = StreamState::Closed;
                session.stream.renewal = Renewal::default();
                session.stream.trouble = None;
            }
            let is_closed = matches!(session.stream.state, StreamState::Closed);
            let is_sound =
                matches!(session.standing, Standing::Sound) && session.suspected.is_none();
            if is_up && is_closed && is_sound && (scope.is_none() || session.attached) {
                self.open_stream(scope, step);
            }
        }
    }

    /// The agent has a session whose stream was left alone: it speaks there unasked.
    pub(super) fn open_where_closed(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        if session.attached
            && matches!(session.stream.state, StreamState::Closed | StreamState::Unknown)
        {
            self.open_stream(scope, step);
        }
    }

    /// Ends a stream that may be dead.
    fn cut(&mut self, scope: &Scope, why: &str, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get(scope) else { return };
        if session.stream.generation().is_none() {
            return;
        }
        self.close_stream(scope, step);
        self.stream_ended(scope, &End::Broken(why.to_owned()), step);
    }

    /// The remote answered a GET, but not with a stream.
    fn stream_refused(&mut self, scope: &Scope, response: &Response, step: &mut Step<'_>) {
        let status = response.status;
        self.timers.disarm(&Timer::Unopened(scope.clone()));
        if matches!(status, 200..=299 | 409) {
            self.opening_answered(scope, step);
        }
        let is_ending = self.ledger.is_ending(scope);
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if status == 404 && is_ending {
            // That is what was asked for (V8).
            session.detach();
        }
        let stream = &mut session.stream;
        let may_be_unknown = status == 403 || status == 404 && !stream.was_attached;
        // A cancel before it may wait for ever.
        let first = session.messages.queue.iter().find(|message| !message.waiter.is_cancel());
        if may_be_unknown && first.is_some_and(|first| mends(&self.ledger, first)) {
            // The request that attaches the session waits: it goes first, and nothing of the old
            // stream counts for the next (R1, C3). What was sent before has little hope.
            let was_attached = session.attached;
            session.detach();
            session.stream.start_over();
            if was_attached {
                let who = name(scope);
                step.log(Level::Warn, format!("the remote agent does not have {who} any more"));
                self.forget_turn(scope, step);
            }
            self.doubt_sent(scope, step);
        }
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let is_restore_unsent = session.is_restore_unsent();
        let stream = &mut session.stream;
        // What restores a session makes it known, whatever a late answer said of its attachment.
        let is_restoring = matches!(session.standing, Standing::Restoring(_));
        let is_unknown_session = scope.is_some() && (!stream.was_attached || is_restoring);
        let may_go_first = !stream.posted_first || is_restore_unsent;
        if status != 409 {
            stream.refused_since = None;
        }
        // The server still writes to one that we do not read any more (R7, R9).
        stream.broke |= status == 409;
        let who = name(scope);
        match status {
            204 => {
                step.log(Level::Info, format!("the remote agent has no stream for {who}"));
                stream.state = StreamState::Absent;
                // Nothing comes with it.
                stream.owes = Owed::Nothing;
                session.stale_replay = false;
                self.pump(scope, step);
            }
            200..=299 => {
                let got = match response.content_type.as_str() {
                    "" => "no content type",
                    content_type => content_type,
                };
                let reason = format!(
                    "the stream of {who} was answered with HTTP {status} and {got:?}, \
                     not with 200 and text/event-stream; {IN_FRONT}"
                );
                self.stop_stream(scope, Failure::refused(Kind::StreamLost, reason, response), step);
            }
            401 if stream.renewal.is_worth_a_try(self.settings.can_renew) => {
                self.open_stream(scope, step)
            }
            401 => {
                let reason = format!("the remote agent refused the credential for {who} (401)");
                self.stop_stream(scope, Failure::refused(Kind::Auth, reason, response), step);
            }
            403 | 404 if is_unknown_session && may_go_first => {
                stream.state = StreamState::Unknown;
                // It writes to none (R9), and keeps nothing for one (V3).
                stream.broke = false;
                session.stale_replay = false;
                // Nobody may work any more on what was sent before.
                self.doubt_sent(scope, step);
                self.pump(scope, step);
            }
            403 if !is_unknown_session => {
                let reason = format!("the remote agent refuses the stream of {who} (403)");
                self.stop_stream(scope, Failure::refused(Kind::StreamLost, reason, response), step);
            }
            404 if scope.is_none() => self.lose(lost_by(response), step),
            // It has nothing to do with a cursor (L10).
            410 if scope.is_none() && stream.cursor.is_none() => self.lose(lost_by(response), step),
            400 if speaks_of_the_connection(response) => self.lose(lost_by(response), step),
            404 if !is_unknown_session => {
                stream.state = StreamState::Closed;
                self.suspect(scope, gone(response), step);
            }
            409 if names_reload(response) => self.conflict(scope, reload(response), step),
            409 if stream.is_refused_too_long(step.now) => {
                let reason = format!("another client holds the stream of {who} (409)");
                self.conflict(scope, Failure::refused(Kind::Conflict, reason, response), step);
            }
            410 => {
                let had_cursor = stream.cursor.is_some();
                stream.start_over();
                stream.gap = stream.is_known;
                if had_cursor {
                    self.open_stream(scope, step);
                } else {
                    // It has nothing to do with a cursor, so it may come again and again (I11).
                    self.reopen_later(scope, None, step);
                }
            }
            _ => {
                let reason = format!("the stream of {who} was refused with HTTP {status}");
                stream.trouble = Some((Kind::StreamLost, reason.clone()));
                step.log(Level::Warn, reason);
                if matches!(status, 403 | 404) {
                    // What was sent did not make it known.
                    self.doubt_sent(scope, step);
                }
                let asked = response.retry_after.filter(|_| matches!(status, 429 | 502..=504));
                self.reopen_later(scope, asked, step);
            }
        }
    }

    fn stream_failed(&mut self, scope: &Scope, outcome: Outcome, step: &mut Step<'_>) {
        self.timers.disarm(&Timer::Unopened(scope.clone()));
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.refused_since = None;
        }
        if let (Outcome::Broken(_), Some(session)) = (&outcome, self.sessions.get_mut(scope)) {
            // The server may have taken it, and given it an answer (R9).
            session.stream.broke = true;
        }
        let (reason, redirect) = match outcome {
            Outcome::NoCredential(reason) => {
                let failure = Failure::new(Kind::Auth, Delivery::Unsent, reason);
                return self.stop_stream(scope, failure, step);
            }
            Outcome::Unsent(reason) | Outcome::Broken(reason) => (reason, None),
            Outcome::Closed(close) => (close.to_string(), None),
            Outcome::Redirected { status, reason } => (reason, Some(status)),
            Outcome::Response(response) => (format!("HTTP {}", response.status), None),
        };
        let reason = format!("the stream of {} cannot be opened: {reason}", name(scope));
        if redirect.is_some() {
            // It will be the same the next time; a person must configure the other URL (L8).
            let failure = Failure::new(Kind::Http, Delivery::Unsent, reason);
            return self.stop_stream(scope, Failure { status: redirect, ..failure }, step);
        }
        step.log(Level::Warn, reason.as_str());
        if let Some(session) = self.sessions.get_mut(scope) {
            session.stream.trouble = Some((Kind::Connect, reason));
        }
        self.reopen_later(scope, None, step);
    }

    /// A message that was to make a session known to the remote did not: the next one goes first
    /// again (R1).
    pub(super) fn stays_unknown(&mut self, scope: &Scope) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if session.attached || !std::mem::take(&mut session.stream.posted_first) {
            return;
        }
        if matches!(session.stream.state, StreamState::Waiting) {
            session.stream.state = StreamState::Unknown;
            self.timers.disarm(&Timer::Reopen(scope.clone()));
        }
    }

    fn stream_ended(&mut self, scope: &Scope, end: &End, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if let StreamState::Open { since, .. } = session.stream.state {
            let is_hasty = step.now < since.plus(limits::HASTY);
            session.stream.hasty = if is_hasty { session.stream.hasty + 1 } else { 0 };
            if since.plus(limits::HEALTHY_AFTER) <= step.now {
                session.stream.backoff.reset();
            }
        }
        let generation = session.stream.generation();
        session.stale_replay |= session.draining.take().is_some();
        self.timers.disarm(&Timer::Silent(scope.clone()));
        match end {
            End::Clean => step.log(Level::Info, format!("the stream of {} ended", name(scope))),
            End::Closed(close) => step.log(Level::Warn, close.to_string()),
            End::Broken(why) => {
                step.log(Level::Warn, format!("the stream of {} broke: {why}", name(scope)));
            }
        }
        if matches!(end, End::Clean) {
            self.release_end(scope, step);
        }
        let is_left = |it: &Session| it.stream.generation() == generation;
        if !self.sessions.get(scope).is_some_and(is_left) {
            // Its session has ended with it.
            return;
        }
        if self.doubt(scope, end, step) {
            self.reopen_later(scope, None, step);
        }
    }

    /// Opens a stream again after its backoff, and no sooner than the server has asked for (L12).
    fn reopen_later(&mut self, scope: &Scope, asked: Option<Millis>, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        let stream = &mut session.stream;
        // A server that ends each stream after its first event is served, but not in a storm.
        let delay = match stream.hasty {
            _ if asked.is_some() => stream.backoff.next_asked(asked, &mut self.chance),
            0..limits::HASTY_STREAMS => stream.backoff.next(&mut self.chance),
            _ => stream.backoff.next_after_failure(&mut self.chance),
        };
        let delay = delay.max(stream.floor);
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
            session.stream.trouble = Some((failure.kind, failure.message.clone()));
        }
        self.opening_stopped(scope, &failure, step);
        // What was sent may be answered, but on a stream that nobody opens: it is in doubt (R10).
        self.doubt_sent(scope, step);
        if self.sessions.get(scope).is_some_and(Session::is_restore_unsent) {
            return self.stop_restore(scope, &failure, step);
        }
        self.fail_all_but_cancels(scope, &failure, step);
    }

    /// Drops a scope's stream where it stands.
    pub(super) fn close_stream(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let Some(session) = self.sessions.get_mut(scope) else { return };
        if let Some(generation) = session.stream.generation() {
            let stream = StreamId { session: scope.clone(), epoch: self.epoch, generation };
            step.out.push(Effect::Close(stream));
            // The server writes to it until it notices (R9).
            session.stream.broke = true;
        }
        session.stale_replay |= session.draining.take().is_some();
        session.stream.state = StreamState::Closed;
        self.timers.disarm(&Timer::Reopen(scope.clone()));
        self.timers.disarm(&Timer::Unopened(scope.clone()));
        self.timers.disarm(&Timer::Silent(scope.clone()));
    }

    /// Forgets a session that is not attached once nothing of it is left to do.
    pub(super) fn retire_if_idle(&mut self, scope: &Scope, step: &mut Step<'_>) {
        self.forget_pointless(scope, step);
        let (Some(id), Some(session)) = (scope, self.sessions.get(scope)) else { return };
        let is_sound = matches!(session.standing, Standing::Sound);
        // A turn that the agent tells of goes on, whatever the editor was told of its prompt (T4).
        let is_used = session.attached || session.is_running || self.ledger.has_open(id);
        if is_used || !is_sound || !session.is_idle() {
            return;
        }
        self.close_stream(scope, step);
        self.timers.disarm(&Timer::Hold(scope.clone()));
        // A replay that is still to come must be known as one (V3).
        if self.sessions.get(scope).is_some_and(|it| !it.stale_replay && it.late_load.is_none()) {
            self.sessions.remove(scope);
        }
    }
}
