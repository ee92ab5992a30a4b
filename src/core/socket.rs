//! What is different over WebSocket: one socket in place of POSTs and streams (W).
//!
//! To the rest of the core the socket is the connection's own stream, on which everything comes; the
//! streams of sessions are absent, as with a server that has none (L6). What was written to the socket
//! counts as posted: nothing tells whether the remote took it.

use std::fmt;

use bytes::Bytes;

use super::error::{Delivery, Failure};
use super::link::Link;
use super::message::Params;
use super::posts::Posting;
use super::session::{Renewal, Scope, StreamState, Waiter};
use super::timers::Timer;
use super::{
    Connection, Core, Effect, End, Generation, Level, Millis, Open, PostId, Response, SessionId,
    Step, StreamId, limits,
};

/// How messages get to the remote and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP: a POST for each message there, streams of events back.
    #[default]
    Http,
    /// One socket for both ways.
    WebSocket,
}

/// How the remote closed a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The code, as RFC 6455 has it.
    pub code: u16,
    /// The remote's own words, if it has any. They may hold secrets: they are for the editor alone (X1).
    pub reason: String,
}

/// What is kept of a socket, and of those before it.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// Sockets that were closed because the credential is refused (W3).
    pub refusals: Renewal,
    /// When it was last asked whether it lives.
    asked: Millis,
    /// The length of the longest message on it that no request of the editor is.
    longest_other: usize,
}

impl End {
    /// How a socket ended that the remote closed with this code, or with none.
    pub fn closed(code: Option<u16>, reason: String) -> Self {
        match code {
            None | Some(Close::NORMAL) => Self::Clean,
            Some(code) => Self::Closed(Close { code, reason }),
        }
    }
}

impl Close {
    /// The code of a close where nothing is wrong (RFC 6455, 7.4.1).
    pub const NORMAL: u16 = 1000;

    /// It refuses the credential: the same one is not tried for ever (W3).
    pub fn refuses(&self) -> bool {
        matches!(self.code, 1008 | 4401..=4403)
    }

    /// A message was too large (W3).
    pub fn is_too_large(&self) -> bool {
        self.code == 1009
    }
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the remote agent closed the socket with code {}", self.code)
    }
}

impl Transport {
    /// Whether this status says that the remote took `initialize`: over a socket, that it speaks
    /// WebSocket.
    pub(super) fn is_open(self, response: &Response) -> bool {
        match self {
            Self::Http => matches!(response.status, 200..=299),
            Self::WebSocket => response.status == 101,
        }
    }
}

impl Core {
    /// Whether there is one socket in place of POSTs and streams.
    pub(super) fn is_socket(&self) -> bool {
        self.settings.transport == Transport::WebSocket
    }

    /// The remote answered, but there is no connection to use: its socket is closed.
    pub(super) fn hang_up(&self, step: &mut Step<'_>) {
        if self.is_socket() {
            step.out.push(Effect::Delete(Connection { id: Bytes::new(), version: None }));
        }
    }

    /// What a person should look at where the remote refuses what we begin with.
    pub(super) fn endpoint_in_doubt(&self) -> &'static str {
        match self.settings.transport {
            Transport::Http => "is the URL that of an ACP endpoint?",
            Transport::WebSocket => {
                "is the URL that of an ACP endpoint, and does it speak WebSocket? \
                 does all that is on the way, a proxy too, let an upgrade pass? \
                 if not, write http: or https: and leave --transport out"
            }
        }
    }

    /// What opening a stream is over a socket: it is the connection's, and sessions have none.
    pub(super) fn open_on_socket(&mut self, scope: &Scope, step: &mut Step<'_>) {
        let (Link::Up(connection), Some(session)) = (&self.link, self.sessions.get_mut(scope))
        else {
            return;
        };
        session.stream.was_attached = session.attached;
        if scope.is_some() {
            session.stream.state = StreamState::Absent;
            return self.pump(scope, step);
        }
        self.generations += 1;
        let (epoch, generation) = (self.epoch, Generation(self.generations));
        let stream = StreamId { session: None, epoch, generation };
        step.out.push(Effect::Open(Open {
            stream: stream.clone(),
            connection: connection.clone(),
            cursor: None,
            renew_credential: false,
        }));
        self.timers.arm(Timer::Ping, step.now.plus(limits::PING));
        self.socket.longest_other = 0;
        self.stream_opened(&stream, None, step);
    }

    /// The socket is asked whether it lives, for as long as it does (W3).
    pub(super) fn ping(&mut self, step: &mut Step<'_>) {
        let own = self.sessions.get(&None);
        if let Some(generation) = own.and_then(|own| own.stream.generation()) {
            let stream = StreamId { session: None, epoch: self.epoch, generation };
            step.out.push(Effect::Ping(stream));
            self.socket.asked = step.now;
            self.timers.arm(Timer::Ping, step.now.plus(limits::PING));
        }
    }

    /// The socket may be dead: it is asked, and has little time, save where a long message goes before
    /// the question. A live one is kept, because the remote ends its sessions with it (W2).
    pub(super) fn test_socket(&mut self, step: &mut Step<'_>) {
        self.ping(step);
        let patience = match self.posts.is_empty() {
            true => limits::PONG,
            false => limits::SOCKET_SILENCE,
        };
        if self.deaf_since.is_none() && matches!(self.link, Link::Up(_)) {
            self.timers.arm(Timer::Silent(None), step.now.plus(patience));
        }
    }

    /// Nothing came for so long that the socket is dead, unless it had no time to answer: this process
    /// may have stood still.
    pub(super) fn socket_silent(&mut self, step: &mut Step<'_>) {
        let heard =
            self.sessions.get(&None).map(|own| own.stream.pulse.heard()).unwrap_or_default();
        let due = heard.plus(limits::SOCKET_SILENCE).max(self.socket.asked.plus(limits::PONG));
        if due.plus(limits::PONG) < step.now {
            self.ping(step);
        }
        let until = self.socket.asked.plus(limits::PONG);
        if step.now < until {
            return self.timers.arm(Timer::Silent(None), until);
        }
        self.socket_ended(&End::Broken("it fell silent".to_owned()), step);
    }

    /// A part of a message was written: the remote takes it, and lives.
    pub(super) fn writing(&mut self, post: PostId, step: &mut Step<'_>) {
        if self.posts.contains_key(&post) {
            let until = step.now.plus(self.settings.post_timeout);
            self.timers.arm(Timer::Unanswered(post), until);
            self.beat(&None, step);
        }
    }

    /// A message was written that no request of the editor is.
    pub(super) fn note_other(&mut self, length: usize) {
        self.socket.longest_other = self.socket.longest_other.max(length);
    }

    /// The socket is closed, and its connection with it (W2).
    pub(super) fn socket_ended(&mut self, end: &End, step: &mut Step<'_>) {
        let own = self.sessions.get(&None).map(|own| &own.stream.state);
        if let Some(StreamState::Open { since, .. }) = own
            && since.plus(limits::HEALTHY_AFTER) <= step.now
        {
            self.socket.refusals = Renewal::None;
        }
        let why = match end {
            End::Clean => "the remote agent closed the socket".to_owned(),
            End::Closed(close) => close.to_string(),
            End::Broken(reason) => format!("the socket broke: {reason}"),
        };
        let why = format!("the connection is lost: {why}");
        match end {
            End::Closed(close)
                if close.refuses()
                    && !self.socket.refusals.is_worth_a_try(self.settings.can_renew) =>
            {
                let failure = Failure::closed(close, Delivery::Unsent);
                let failure = Failure { message: why.clone(), ..failure };
                return self.lose_for(why, Some(failure), step);
            }
            End::Closed(close) if close.is_too_large() => self.fail_too_large(close, step),
            _ => {}
        }
        self.lose(why, step);
    }

    /// A message was too large for the remote: the longest of those that are being written or have no
    /// answer (W3). It is not sent again. Which one it was is not told, so where a longer one passed
    /// that awaits no answer, nothing is blamed.
    fn fail_too_large(&mut self, close: &Close, step: &mut Step<'_>) {
        let being_written = self.posts.values().filter_map(|posting| match posting {
            Posting::Message(_, _, message) => Some((message.body.len(), message.waiter.clone())),
            Posting::Initialize(_) => None,
        });
        let unanswered = self.ledger.longest_sent();
        let unanswered = unanswered.map(|(length, id)| (length, Waiter::Editor(id)));
        let longest = being_written.chain(unanswered).max_by_key(|(length, _)| *length);
        let message = format!("this message is too large for the remote agent: {close}");
        let failure = Failure { message, ..Failure::closed(close, Delivery::Unknown) };
        match longest.filter(|(length, _)| *length >= self.socket.longest_other) {
            Some((_, Waiter::Editor(id))) => self.fail(&id, &failure, step),
            Some((_, Waiter::Own(id))) => self.own_refused(&id, failure, step),
            _ => step.log(Level::Warn, "a message was too large for the remote agent"),
        }
    }

    /// Whose a message is that came on the stream of `came_on`: where a session has no stream of its
    /// own, or none that is open, what names it is as good as on it.
    pub(super) fn scope_of(&self, came_on: &Scope, params: &Params<'_>) -> Scope {
        let (None, Some(named)) = (came_on, &params.session) else { return came_on.clone() };
        let named = Some(SessionId((&**named).into()));
        let stream = self.sessions.get(&named).map(|session| &session.stream.state);
        let is_away = stream.is_some_and(|it| !matches!(it, StreamState::Open { .. }));
        if self.is_socket() || is_away { named } else { None }
    }
}
