//! One session: its stream, and the messages that wait to be posted to it.
//!
//! The connection's own stream and the messages that belong to no session are kept in the same
//! form, so a [`Scope`] is a session or, as `None`, the connection itself.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::Kind;
use super::message::RequestId;
use super::{Generation, Millis, PostId, SessionId, limits};

/// A session, or the connection itself.
pub type Scope = Option<SessionId>;

/// What is kept of a scope.
#[derive(Debug, Default)]
pub struct Session {
    /// A result has shown that the agent has the session on this connection.
    pub attached: bool,
    /// Its stream.
    pub stream: Stream,
    /// Requests and notifications, posted one after another (L5).
    pub messages: Lane,
    /// Answers to the agent's questions. They have a lane of their own, because the request that
    /// caused the question may hold up the other (L5).
    pub answers: Lane,
}

/// Which of a scope's two lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaneName {
    /// [`Session::messages`].
    Messages,
    /// [`Session::answers`].
    Answers,
}

impl Session {
    /// One of its lanes.
    pub fn lane(&mut self, name: LaneName) -> &mut Lane {
        match name {
            LaneName::Messages => &mut self.messages,
            LaneName::Answers => &mut self.answers,
        }
    }

    /// What keeps its messages from going: the network before the stream.
    pub fn trouble(&self) -> Option<(Kind, String)> {
        self.messages.trouble.as_ref().or(self.stream.trouble.as_ref()).cloned()
    }

    /// Nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        [&self.messages, &self.answers]
            .iter()
            .all(|lane| lane.queue.is_empty() && lane.posting.is_none())
    }
}

/// One of the long-lived GETs.
#[derive(Debug, Default)]
pub struct Stream {
    /// Where it stands.
    pub state: StreamState,
    /// The last event id (R3).
    pub cursor: Option<Bytes>,
    /// The delays between reconnects.
    pub backoff: Backoff,
    /// The server's `retry:`, a floor of the delay.
    pub floor: Millis,
    /// The credential was read again for this stream, and not yet accepted.
    pub renewed: bool,
    /// The session was attached when the stream was asked for.
    pub was_attached: bool,
    /// A message was accepted since the remote said that it does not know the session: it should
    /// know it now.
    pub posted_first: bool,
    /// What went wrong last, for the messages that wait.
    pub trouble: Option<(Kind, String)>,
}

/// Where a stream stands.
#[derive(Debug, Default)]
pub enum StreamState {
    /// Nobody needs it yet.
    #[default]
    Closed,
    /// The GET is under way.
    Opening(Generation),
    /// Events may come.
    Open {
        /// Which opening it is.
        generation: Generation,
        /// Since when.
        since: Millis,
    },
    /// It is opened again in a while.
    Waiting,
    /// The remote does not know the session: the message goes first (R1).
    Unknown,
    /// The remote has no such stream: messages go without (L6).
    Absent,
    /// It is not opened again until a request asks (L12).
    Stopped,
}

impl Stream {
    /// The opening that is under way or open.
    pub fn generation(&self) -> Option<Generation> {
        match self.state {
            StreamState::Opening(generation) | StreamState::Open { generation, .. } => {
                Some(generation)
            }
            _ => None,
        }
    }
}

/// Messages of one order: each is posted when the one before it is answered.
#[derive(Debug, Default)]
pub struct Lane {
    /// What waits, oldest first.
    pub queue: VecDeque<Queued>,
    /// The POST under way.
    pub posting: Option<PostId>,
    /// The delays before a message is posted again.
    pub backoff: Backoff,
    /// Such a delay runs.
    pub resting: bool,
    /// Since when the first message cannot go because of the network or the stream.
    pub held_since: Option<Millis>,
    /// What holds it, for the error.
    pub trouble: Option<(Kind, String)>,
}

/// A message that waits to be posted.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Its bytes.
    pub body: Bytes,
    /// Its id where it is a request.
    pub request: Option<RequestId>,
    /// The value of `Acp-Session-Id`.
    pub header: Option<SessionId>,
    /// When it came.
    pub since: Millis,
    /// The credential was read again for it.
    pub renewed: bool,
}

/// Growing delays (L12): none, then 250 ms, doubling, with jitter, to a cap.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Starts over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next delay, where none is not enough.
    pub fn next_after_failure(&mut self, chance: &mut Chance) -> Millis {
        self.failures = self.failures.max(1);
        self.next(chance)
    }

    /// The next delay.
    pub fn next(&mut self, chance: &mut Chance) -> Millis {
        let doublings = self.failures.checked_sub(1);
        self.failures = self.failures.saturating_add(1);
        let Some(doublings) = doublings else { return Millis(0) };
        let Millis(cap) = limits::BACKOFF_CAP;
        let full = (limits::BACKOFF_FIRST.0 << doublings.min(16)).min(cap);
        Millis(full / 2 + chance.below(full / 2 + 1))
    }
}

/// Jitter from a seed (splitmix64), so that a seed replays a night.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
