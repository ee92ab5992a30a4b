//! One session: its stream, the messages that wait to be posted to it, and whether it can be used.
//!
//! The connection's own stream and the messages that belong to no session are kept in the same
//! form, so a [`Scope`] is a session or, as `None`, the connection itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;

use super::error::{Failure, Kind};
use super::message::RequestId;
use super::restore::Restore;
use super::{Generation, Millis, PostId, SessionId, limits};

/// A session, or the connection itself.
pub type Scope = Option<SessionId>;

/// What is kept of a scope.
#[derive(Debug, Default)]
pub struct Session {
    /// A result has shown that the agent has the session on this connection.
    pub attached: bool,
    /// Whether it can be used.
    pub standing: Standing,
    /// What the editor last set it up with.
    pub setup: Setup,
    /// The delays before it is restored where its stream has shown nothing since the last time (I11).
    pub restores: Backoff,
    /// When the editor last loaded or resumed it.
    pub mended: Mended,
    /// The agent reported that it works, and nothing since that it does not (T3).
    pub is_running: bool,
    /// The open prompts that the editor has cancelled.
    pub cancelled: BTreeSet<RequestId>,
    /// Requests whose answer may have been lost with a broken stream (R9), and since when nothing
    /// came that might still be it.
    pub doubted: BTreeMap<RequestId, Millis>,
    /// The remote said that it does not know the session, and it is being found out what is gone
    /// (R8).
    pub suspected: Option<Failure>,
    /// The replay of a load of ours that was given up may still come on its stream (V3).
    pub stale_replay: bool,
    /// The same where it comes on the same stream as the answer to this request of ours, and before it: over a
    /// socket, and where the session has no stream.
    pub late_load: Option<RequestId>,
    /// Since when its open stream is read without being passed on, until it is quiet: what comes is
    /// that replay.
    pub draining: Option<Millis>,
    /// Answers that wait until the replay has come to its end (R12).
    pub held: Vec<Held>,
    /// Its stream.
    pub stream: Stream,
    /// Requests and notifications, posted one after another (L5).
    pub messages: Lane,
    /// Answers to the agent's questions. They have a lane of their own, because the request that
    /// caused the question may hold up the other (L5).
    pub answers: Lane,
}

/// When a session was loaded or resumed: what came before may be of a life that was closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mended {
    /// The place of the request that did it among all requests.
    pub by: u64,
    /// How many questions had been asked when it succeeded.
    pub asked: u64,
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

    /// The agent does not have it on this connection: a message has to make it known first (R1).
    pub fn detach(&mut self) {
        self.attached = false;
        self.stream.was_attached = false;
        self.stream.posted_first = false;
        self.stream.owes = Owed::Nothing;
    }

    /// Whether the first message has to wait for a restore, or for what a 404 means.
    pub fn must_wait(&self) -> bool {
        let is_own =
            matches!(self.messages.queue.front(), Some(Queued { waiter: Waiter::Own(_), .. }));
        self.suspected.is_some() || self.draining.is_some() || self.is_restoring() && !is_own
    }

    /// Whether we restore it.
    pub fn is_restoring(&self) -> bool {
        matches!(self.standing, Standing::Restoring(_))
    }

    /// Whether a message waits for as long as it takes: a cancel, while its turn may go on (V10).
    pub fn outwaits(&self, waiter: &Waiter) -> bool {
        match waiter {
            Waiter::Turn(_) => true,
            Waiter::Stop => self.attached,
            _ => false,
        }
    }

    /// Whether our request with this id has not been posted yet.
    pub fn is_waiting(&self, own: &RequestId) -> bool {
        let is_it = |message: &Queued| matches!(&message.waiter, Waiter::Own(id) if id == own);
        self.messages.queue.iter().any(is_it)
    }

    /// The replay of our load, if it is given up under way, may still come (V3).
    pub fn expect_replay(&mut self, load: Option<RequestId>, is_socket: bool) {
        if is_socket || self.stream.is_absent() {
            self.late_load = load.or(self.late_load.take());
        } else {
            self.stale_replay |= load.is_some();
        }
    }

    /// The times since which something that may come is waited for: they stand while nothing could (L11).
    pub fn clocks(&mut self) -> impl Iterator<Item = &mut Millis> {
        let restore = match &mut self.standing {
            Standing::Restoring(restore) => restore.since.as_mut(),
            _ => None,
        };
        let held = self.held.iter_mut().map(|held| &mut held.since);
        let lanes = [&mut self.messages, &mut self.answers];
        let lanes = lanes.into_iter().filter_map(|lane| lane.held_since.as_mut());
        let doubted = self.doubted.values_mut();
        held.chain(doubted).chain(lanes).chain(&mut self.draining).chain(restore)
    }

    /// What keeps its messages from going: the network before the stream.
    pub fn trouble(&self) -> Option<(Kind, String)> {
        self.messages.trouble.as_ref().or(self.stream.trouble.as_ref()).cloned()
    }

    /// Its working directory, as the editor gave it.
    pub fn cwd(&self) -> Option<String> {
        serde_json::from_slice(self.setup.cwd.as_deref()?).ok()
    }

    /// Nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.lanes_are_idle()
    }

    fn lanes_are_idle(&self) -> bool {
        [&self.messages, &self.answers]
            .iter()
            .all(|lane| lane.queue.is_empty() && lane.posting.is_none())
    }
}

/// Whether a session can be used.
#[derive(Debug, Default)]
pub enum Standing {
    /// Nothing is wrong with it, as far as we know.
    #[default]
    Sound,
    /// We are restoring it (V2, C3); its messages wait.
    Restoring(Restore),
    /// It failed (C) or was lost (V9): its messages are answered so, until the editor loads or
    /// resumes it.
    Failed(Failure),
}

/// The parameters that the editor last gave for a session (V2), each as raw JSON.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// `cwd`.
    pub cwd: Option<Bytes>,
    /// `mcpServers`.
    pub mcp_servers: Option<Bytes>,
    /// `additionalDirectories`.
    pub additional_directories: Option<Bytes>,
}

/// An answer that waits for the end of a replay.
#[derive(Debug)]
pub struct Held {
    /// The request that it answers.
    pub request: RequestId,
    /// The answer.
    pub answer: Bytes,
    /// It is an error.
    pub is_error: bool,
    /// On which stream it came, if it did not come in the body of a POST.
    pub came_on: Option<Scope>,
    /// When it came.
    pub since: Millis,
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
    /// How many streams in a row lived hardly at all.
    pub hasty: u32,
    /// The server's `retry:`, a floor of the delay.
    pub floor: Millis,
    /// Whether the credential is read again for this stream.
    pub renewal: Renewal,
    /// The session was attached when the stream was asked for.
    pub was_attached: bool,
    /// A message was accepted since the remote said that it does not know the session: it should
    /// know it now.
    pub posted_first: bool,
    /// What went wrong last, for the messages that wait.
    pub trouble: Option<(Kind, String)>,
    /// The events that were seen last (R5).
    pub seen: Seen,
    /// The last answer that came on it had an event id (R9).
    pub numbers_answers: Option<bool>,
    /// It was open on this connection.
    pub is_known: bool,
    /// Whose numbering the event ids are (R5).
    pub event_epoch: Option<Bytes>,
    /// The last one broke, and something may have been lost with it (R9).
    pub broke: bool,
    /// Messages are missing since the last opening (R6).
    pub gap: bool,
    /// What the editor has the end of, and may lack the rest of (V11).
    pub owes: Owed,
    /// The editor knows of the gap, and nothing came since (V11).
    pub gap_is_told: bool,
    /// Since when the server has refused the stream with 409 and nothing else (R7).
    pub refused_since: Option<Millis>,
    /// How the stream shows that it lives (L11).
    pub pulse: Pulse,
}

/// What was answered while its stream was away: more of it may come with the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// Nothing.
    #[default]
    Nothing,
    /// A turn.
    Turn,
    /// A history that the editor asked for.
    History,
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

impl Queued {
    /// A message that comes now.
    pub fn new(body: Bytes, waiter: Waiter, since: Millis) -> Self {
        Self { body, waiter, header: None, since, renewal: Renewal::default(), retried: false }
    }
}

impl Stream {
    /// Whether an answer is lost with it. Some servers number everything but answers, and those alone
    /// are what is waited for (R9).
    pub fn may_lose(&self, others_number: bool) -> bool {
        let numbers_answers = self.numbers_answers.unwrap_or(others_number);
        self.seen.is_empty() || self.cursor.is_none() || !numbers_answers
    }

    /// Whether the remote has none: what it would carry comes on the connection's.
    pub fn is_absent(&self) -> bool {
        matches!(self.state, StreamState::Absent)
    }

    /// Forgets what belongs to a lost connection. The cursor is offered on the next one too (R5).
    pub fn forget_connection(&mut self) {
        let kept = Self {
            cursor: self.cursor.take(),
            event_epoch: self.event_epoch.take(),
            floor: self.floor,
            gap_is_told: self.gap_is_told,
            pulse: std::mem::take(&mut self.pulse),
            ..Self::default()
        };
        *self = kept;
    }

    /// Whether 409 has come for so long that it cannot mean our own old stream (R7).
    pub fn is_refused_too_long(&mut self, now: Millis) -> bool {
        self.refused_since.get_or_insert(now).plus(limits::OLD_STREAM) <= now
    }

    /// Starts over: nothing of the old stream counts for the next (C3, R6).
    pub fn start_over(&mut self) {
        self.cursor = None;
        self.seen.clear();
        self.refused_since = None;
    }

    /// Whether it is away, and the last try to open it failed.
    pub fn fails(&self) -> bool {
        (self.is_coming() || matches!(self.state, StreamState::Stopped)) && self.trouble.is_some()
    }

    /// Whether it is away and is being opened.
    pub fn is_coming(&self) -> bool {
        matches!(self.state, StreamState::Opening(_) | StreamState::Waiting | StreamState::Unknown)
    }

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
    /// Since when the first message cannot go because of the network or the stream, or an answer to the agent
    /// is posted again.
    pub held_since: Option<Millis>,
    /// What holds it, for the error.
    pub trouble: Option<(Kind, String)>,
}

/// A message that waits to be posted.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Its bytes.
    pub body: Bytes,
    /// Who is told if it fails.
    pub waiter: Waiter,
    /// The value of `Acp-Session-Id`.
    pub header: Option<SessionId>,
    /// When it came.
    pub since: Millis,
    /// Whether the credential is read again for it.
    pub renewal: Renewal,
    /// It was refused because the connection or the session was gone, and waits for its one more
    /// try (L10).
    pub retried: bool,
}

/// Whether a credential that was refused is read again, which is done once (L10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renewal {
    /// It was not refused.
    #[default]
    None,
    /// It is read again for the next try.
    Due,
    /// It was read again.
    Done,
}

impl Renewal {
    /// The credential was refused. Whether it is read again, where it may be another by then.
    pub fn is_worth_a_try(&mut self, can_renew: bool) -> bool {
        let is_first = can_renew && *self == Self::None;
        *self = if is_first { Self::Due } else { Self::Done };
        is_first
    }

    /// Whether to read it again for the try that is made now.
    pub fn take(&mut self) -> bool {
        let is_due = *self == Self::Due;
        if is_due {
            *self = Self::Done;
        }
        is_due
    }
}

impl Lane {
    /// Nothing but cancels waits, if anything does.
    pub fn has_only_cancels(&self) -> bool {
        self.queue.iter().all(|message| message.waiter.is_cancel())
    }

    /// One cancel of what was answered in the agent's place is as good as many. What comes back is how many
    /// bytes wait no longer.
    pub fn drop_repeated_cancels(&mut self) -> usize {
        let (mut dropped, mut follows) = (0, false);
        self.queue.retain(|message| {
            let is_stop = message.waiter == Waiter::Stop;
            let is_repeat = std::mem::replace(&mut follows, is_stop) && is_stop;
            dropped += if is_repeat { message.body.len() } else { 0 };
            !is_repeat
        });
        dropped
    }

    /// Puts a message that was not taken back before all others, but for our own restore.
    pub fn give_back(&mut self, message: Queued) {
        let is_own = |message: &Queued| matches!(message.waiter, Waiter::Own(_));
        let own = self.queue.iter().take_while(|first| is_own(first) && !is_own(&message)).count();
        self.queue.insert(own, message);
    }
}

/// Who waits for what becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// The editor, for the answer to its request.
    Editor(RequestId),
    /// We, for the answer to a request of ours.
    Own(RequestId),
    /// Nobody: it is a notification.
    Nobody,
    /// Nobody any more: the request was answered before its POST was.
    Settled,
    /// Nobody: it cancels a turn, and goes only while a request that was open then still is (V10).
    Turn(BTreeSet<RequestId>),
    /// Nobody: it cancels a turn that was answered in its agent's place, and goes to no other connection.
    Stop,
    /// The agent: it answers this question.
    Question(u64),
}

impl Waiter {
    /// Whether its message cancels a turn.
    pub fn is_cancel(&self) -> bool {
        matches!(self, Waiter::Turn(_) | Waiter::Stop)
    }
}

/// The last events with ids of a stream, by id and content (R5).
#[derive(Debug, Default)]
pub struct Seen(VecDeque<u64>);

impl Seen {
    /// Whether an event is a repeat; from here on it would be.
    pub fn is_repeat(&mut self, id: &[u8], data: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(id.len());
        hasher.write(id);
        hasher.write(data);
        let event = hasher.finish();
        if self.0.contains(&event) {
            return true;
        }
        if self.0.len() == limits::SEEN_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
        false
    }

    /// Whether the server numbers its events.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The heartbeats of a stream, and when it was last heard (L11).
#[derive(Debug, Default)]
pub struct Pulse {
    heard: Millis,
    /// When the last heartbeat came, if nothing else came since.
    beat: Option<Millis>,
    /// This stream has shown a heartbeat.
    has_beaten: bool,
    /// The last intervals between two heartbeats with nothing between.
    intervals: VecDeque<u64>,
}

impl Pulse {
    /// When it was last heard.
    pub fn heard(&self) -> Millis {
        self.heard
    }

    /// The stream is open from here on.
    pub fn open(&mut self, now: Millis) {
        self.event(now);
        self.has_beaten = false;
    }

    /// An event came, or what comes is read again from here on.
    pub fn event(&mut self, now: Millis) {
        self.heard = now;
        self.beat = None;
    }

    /// It fell silent. Where it showed no heartbeat, what was learnt from others may be too short for it,
    /// and would end each of its like.
    pub fn silent(&mut self) {
        if !self.has_beaten {
            self.intervals.clear();
        }
    }

    /// A heartbeat came.
    pub fn beat(&mut self, now: Millis) {
        if let Some(Millis(before)) = self.beat.replace(now) {
            if self.intervals.len() == limits::HEARTBEATS {
                self.intervals.pop_front();
            }
            self.intervals.push_back(now.0 - before);
        }
        self.has_beaten = true;
        self.heard = now;
    }

    /// When silence means death; `None` while no heartbeats are known.
    pub fn deadline(&self) -> Option<Millis> {
        // The longest of a few: a network that holds heartbeats back delivers them in a bunch, and
        // the intervals in a bunch say nothing.
        let interval = self.intervals.iter().max()?;
        Some(self.heard.plus(Millis((3 * interval).max(limits::SILENCE_LEAST.0))))
    }
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

    /// The delay that the server asks for, within reason, else one that is not nothing. One that asks for
    /// no patience at all gets the backoff all the same (L10).
    pub fn next_asked(&mut self, asked: Option<Millis>, chance: &mut Chance) -> Millis {
        match asked {
            Some(asked) if asked >= limits::BACKOFF_FIRST => asked.min(limits::RETRY_AFTER_CAP),
            _ => self.next_after_failure(chance),
        }
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
