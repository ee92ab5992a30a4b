//! What a seed plans: the kind of server, the settings, and one plain list of what the editor does
//! and what goes wrong, each with its time.

use acp_tether::core::socket::Transport;
use acp_tether::core::{Millis, Settings, limits};
use serde::{Deserialize, Serialize};

use super::chance::Chance;
use super::remote::Kind;
use super::roster::{self, Asks};

/// All that a run follows from. The list can be shortened, kept as JSON, and run again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The seed, which also decides the delays within the run.
    pub seed: u64,
    /// What the core is told, where that differs.
    pub flags: Flags,
    /// What the remote agent is.
    pub kind: Kind,
    /// When faults stop, in milliseconds.
    pub calm_at: u64,
    /// Nothing goes wrong but with the first session: the others must not notice (I13).
    pub is_isolated: bool,
    /// The longest way of a message through the network, in milliseconds.
    pub latency: u64,
    /// What happens, in the order of time.
    pub actions: Vec<Action>,
}

/// Settings of the core.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Flags {
    /// `--orphan-timeout`, in milliseconds.
    pub orphan_timeout: u64,
    /// `--on-stream-loss fail`.
    pub strict: bool,
    /// `--recover auto`.
    pub recover_alone: bool,
    /// `--notices on`.
    pub notices: bool,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Action {
    /// When, in milliseconds.
    pub at: u64,
    /// What.
    pub what: What,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The editor does something.
    Editor(Deed),
    /// Something goes wrong, at once or for the next that it fits.
    Fault(Fault, Target),
    /// Somebody asks something of the sidecar itself.
    Asks(Asks),
}

/// What the editor does. A number names a session by the order in which the editor learnt of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// It opens the connection.
    Initialize,
    /// It signs in.
    SignIn,
    /// It makes a session.
    New,
    /// It prompts.
    Prompt(u8),
    /// It cancels the turn of a session.
    Cancel(u8),
    /// It cancels its newest open request.
    CancelRequest,
    /// It sets a session's mode.
    SetMode(u8),
    /// It loads a session.
    Load(u8),
    /// It resumes a session.
    Resume(u8),
    /// It closes a session.
    Close(u8),
    /// It lists the sessions.
    List,
    /// It sends a request that the core knows nothing of.
    Other(u8),
    /// It writes a line that is no message.
    Bad(u8),
    /// It uses the id of an open request again.
    SameId,
    /// It answers a question a second time, or one that was withdrawn.
    AnswerAgain,
    /// It answers a question that nobody asked.
    AnswerNobody,
    /// It ends.
    End,
}

/// Whose POST, GET or stream a fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Any.
    Any,
    /// What belongs to no session.
    Connection,
    /// This session's.
    Session(u8),
}

/// How the remote, or what stands before it, refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// 400 for the message.
    Bad,
    /// 400 that speaks of the connection.
    BadConnection,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    Unknown,
    /// 409 because a turn runs, or an old stream is there.
    Busy,
    /// 409 that wants the session loaded again.
    Reload,
    /// 410.
    Gone,
    /// 413.
    TooLarge,
    /// 429, without a `Retry-After`.
    Patience,
    /// 429 with one.
    PatienceUntil,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 200 and a sign-in page.
    Page,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fault {
    /// An `initialize` finds nobody.
    ConnectRefused,
    /// An `initialize` is never answered.
    ConnectHangs,
    /// An `initialize` is taken and its answer lost.
    ConnectUnanswered,
    /// An `initialize` is refused.
    ConnectStatus(Refusal),
    /// A POST never leaves.
    PostUnsent,
    /// A POST leaves and does not arrive.
    PostBroken,
    /// A POST arrives, and its answer does not.
    PostUnacknowledged,
    /// A POST hangs, and never arrives.
    PostHangs,
    /// A POST arrives and is never answered.
    PostHangsTaken,
    /// A POST is refused.
    PostStatus(Refusal),
    /// A GET never leaves.
    GetUnsent,
    /// A GET breaks.
    GetBroken,
    /// A GET hangs for a while, then breaks.
    GetHangs,
    /// A GET is refused.
    GetStatus(Refusal),
    /// A stream ends as HTTP has it.
    StreamEnds,
    /// A stream is reset; what is on the way is lost.
    StreamReset,
    /// A stream is cut inside an event that follows one which arrives.
    StreamCut,
    /// A stream stops for some seconds, then goes on.
    StreamStalls,
    /// A stream stops for some seconds, then breaks.
    StreamDies,
    /// The agent starts anew, and gives the same ids again.
    AgentRestarts,
    /// The agent forgets its connections.
    ConnectionForgotten,
    /// The agent forgets its connections as it restores a session for the core.
    RestoreKills,
    /// The agent forgets that a session belongs to the connection.
    SessionForgotten,
    /// The events are numbered from 1 again.
    Renumbered,
    /// An event with an id comes twice.
    EventTwice,
    /// An answer comes twice.
    AnswerTwice,
    /// A stream delivers a message of another session.
    Foreign,
    /// A stream delivers what is no message.
    Garbage,
    /// An event over the size limit.
    TooLargeEvent,
    /// The machine sleeps, for eight hours or less.
    Sleeps,
    /// The editor does not read for some seconds.
    SlowEditor,
    /// Every stream breaks, and nobody is there for some seconds.
    NetworkAway,
    /// For a while every POST and GET is refused, `initialize` too.
    Outage(Refusal),
    /// For a while the network takes everything and delivers nothing.
    BlackHole,
    /// This process stands still for a while.
    Stopped,
    /// A stream delivers nothing any more, and nothing says so but that its heartbeats stay away.
    StreamFreezes,
    /// In the place of an event comes a part of it.
    Spoilt,
    /// An event is over the size limit, and left out.
    SpoiltTooLarge,
}

const REFUSALS: [Refusal; 14] = [
    Refusal::Bad,
    Refusal::BadConnection,
    Refusal::Unauthorized,
    Refusal::Forbidden,
    Refusal::Unknown,
    Refusal::Busy,
    Refusal::Reload,
    Refusal::Gone,
    Refusal::TooLarge,
    Refusal::Patience,
    Refusal::PatienceUntil,
    Refusal::Internal,
    Refusal::Unavailable,
    Refusal::Page,
];

impl Plan {
    /// What a seed plans.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let kind = Kind::draw(&mut chance);
        let is_socket = Chance::new(seed, 5).one_in(4);
        let kind = if is_socket { kind.over_socket() } else { kind };
        let kind = kind.with_rare_habits(&mut Chance::new(seed, 8));
        let flags = flags(&mut chance);
        let is_calm = chance.one_in(16);
        // Over a socket nothing happens to one session alone.
        let is_isolated = !is_calm && chance.one_in(8) && !is_socket;
        let calm_at = chance.pick(&[20_000, 60_000, 120_000, 400_000]);
        let latency = chance.pick(&[1, 5, 20, 40]);
        let sessions = chance.between(1, 5) as u8 + u8::from(is_isolated);
        let mut actions = deeds(&mut chance, calm_at, sessions);
        if !is_calm {
            faults(&mut chance, calm_at, sessions, is_isolated, &mut actions);
        }
        if !is_calm && !is_isolated {
            bad_restores(seed, calm_at, sessions, &mut actions);
            rare_faults(seed, calm_at, sessions, &mut actions);
        }
        if chance.one_in(6) {
            let at = chance.below(calm_at);
            actions.push(Action { at, what: What::Editor(Deed::End) });
        }
        actions.extend(roster::draw(seed, calm_at, sessions, !is_calm && !is_isolated));
        actions.sort_by_key(|action| action.at);
        Self { seed, flags, kind, calm_at, is_isolated, latency, actions }
    }

    /// What the core is told.
    pub fn settings(&self) -> Settings {
        let Flags { orphan_timeout, strict, recover_alone, notices } = self.flags;
        let orphan_timeout = Millis(orphan_timeout);
        let seed = self.seed;
        let transport = if self.kind.is_socket { Transport::WebSocket } else { Transport::Http };
        Settings {
            transport,
            orphan_timeout,
            strict,
            recover_alone,
            notices,
            seed,
            ..Settings::default()
        }
    }

    /// How often this happens in it.
    pub fn count(&self, fault: Fault) -> u64 {
        let is_it = |action: &&Action| matches!(action.what, What::Fault(it, _) if it == fault);
        self.actions.iter().filter(is_it).count() as u64
    }

    /// Whether nothing goes wrong in it.
    pub fn has_no_faults(&self) -> bool {
        !self.actions.iter().any(|action| matches!(action.what, What::Fault(..)))
    }
}

fn flags(chance: &mut Chance) -> Flags {
    let Millis(usual) = limits::ORPHAN_TIMEOUT;
    Flags {
        orphan_timeout: if chance.one_in(2) { usual } else { 20_000 },
        strict: chance.one_in(8),
        recover_alone: !chance.one_in(8),
        notices: !chance.one_in(8),
    }
}

fn deeds(chance: &mut Chance, calm_at: u64, sessions: u8) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut act = |at, deed| actions.push(Action { at, what: What::Editor(deed) });
    act(0, Deed::Initialize);
    if chance.one_in(2) {
        act(chance.below(500), Deed::SignIn);
    }
    for _ in 0..sessions {
        act(chance.below(calm_at / 4), Deed::New);
    }
    let rare = chance.pick(&[10, 30, 1_000]);
    for _ in 0..chance.pick(&[30, 100, 350, 1_100]) {
        let at = chance.below(calm_at);
        let session = chance.below(u64::from(sessions)) as u8;
        let deed = match chance.below(16) {
            0..=8 => Deed::Prompt(session),
            9 | 10 => Deed::Cancel(session),
            11 => Deed::SetMode(session),
            12 => Deed::List,
            13 => Deed::Other(session),
            _ if !chance.one_in(rare) => Deed::Prompt(session),
            _ => match chance.below(10) {
                0 => Deed::Load(session),
                1 => Deed::Resume(session),
                2 => Deed::Close(session),
                3 => Deed::CancelRequest,
                4 => Deed::Bad(chance.below(8) as u8),
                5 => Deed::SameId,
                6 => Deed::AnswerAgain,
                7 => Deed::AnswerNobody,
                8 => Deed::SignIn,
                _ => Deed::Initialize,
            },
        };
        act(at, deed);
    }
    actions
}

fn faults(
    chance: &mut Chance,
    calm_at: u64,
    sessions: u8,
    is_isolated: bool,
    actions: &mut Vec<Action>,
) {
    let kinds: Vec<Fault> = (0..chance.between(1, 6)).map(|_| fault(chance, is_isolated)).collect();
    for _ in 0..chance.pick(&[1, 4, 12, 40]) {
        let target = match chance.below(4) {
            _ if is_isolated => Target::Session(0),
            0 => Target::Connection,
            1 => Target::Any,
            _ => Target::Session(chance.below(u64::from(sessions)) as u8),
        };
        let fault = chance.pick(&kinds);
        let at = chance.below(calm_at);
        // Some come in a row: the second try fails too.
        for _ in 0..chance.pick(&[1, 1, 1, 2, 4]) {
            actions.push(Action { at, what: What::Fault(fault, target) });
        }
    }
}

/// One session in some plans cannot be restored without harm, a few times or for ever.
fn bad_restores(seed: u64, calm_at: u64, sessions: u8, actions: &mut Vec<Action>) {
    let mut chance = Chance::new(seed, 7);
    if chance.one_in(8) {
        let session = Target::Session(chance.below(u64::from(sessions)) as u8);
        let at = chance.below(calm_at);
        let what = What::Fault(Fault::RestoreKills, session);
        actions.extend((0..chance.pick(&[1, 3, 12])).map(|_| Action { at, what }));
    }
}

/// What lasts, or spoils, or meets the first connection. Its draws move none of the others.
fn rare_faults(seed: u64, calm_at: u64, sessions: u8, actions: &mut Vec<Action>) {
    let mut chance = Chance::new(seed, 9);
    if chance.one_in(8) {
        for _ in 0..chance.between(1, 4) {
            let fault = match chance.below(6) {
                0 | 1 => Fault::ConnectRefused,
                2 => Fault::ConnectHangs,
                3 => Fault::ConnectUnanswered,
                _ => Fault::ConnectStatus(chance.pick(&REFUSALS)),
            };
            // Before the editor's first line.
            actions.insert(0, Action { at: 0, what: What::Fault(fault, Target::Any) });
        }
    }
    if !chance.one_in(3) {
        return;
    }
    let kinds: Vec<Fault> = (0..chance.between(1, 2)).map(|_| rare_fault(&mut chance)).collect();
    for _ in 0..chance.pick(&[1, 2, 4, 12]) {
        let target = match chance.below(4) {
            0 => Target::Connection,
            1 => Target::Any,
            _ => Target::Session(chance.below(u64::from(sessions)) as u8),
        };
        let at = chance.below(calm_at);
        actions.push(Action { at, what: What::Fault(chance.pick(&kinds), target) });
    }
}

fn rare_fault(chance: &mut Chance) -> Fault {
    let refusal = chance.pick(&[
        Refusal::Unavailable,
        Refusal::Unavailable,
        Refusal::Unauthorized,
        Refusal::Forbidden,
        Refusal::Page,
        Refusal::Internal,
        Refusal::Patience,
        Refusal::PatienceUntil,
        Refusal::Unknown,
        Refusal::Bad,
    ]);
    match chance.below(12) {
        0..=2 => Fault::Outage(refusal),
        3 | 4 => Fault::BlackHole,
        5 | 6 => Fault::Stopped,
        7 | 8 => Fault::StreamFreezes,
        9 => Fault::SpoiltTooLarge,
        10 => Fault::Spoilt,
        _ => Fault::Sleeps,
    }
}

fn fault(chance: &mut Chance, is_isolated: bool) -> Fault {
    let refusal = chance.pick(&REFUSALS);
    if is_isolated {
        // What a session alone can suffer. A 410 to its POST, say, speaks of the connection.
        let of_a_post =
            [Refusal::Bad, Refusal::Forbidden, Refusal::Busy, Refusal::Reload, Refusal::Internal];
        return match chance.below(12) {
            0 | 1 => Fault::PostStatus(chance.pick(&of_a_post)),
            2 | 3 => Fault::GetStatus(Refusal::Reload),
            4 => Fault::GetStatus(Refusal::Gone),
            5 => Fault::PostUnacknowledged,
            6 => Fault::PostHangs,
            7 => Fault::StreamReset,
            8 => Fault::StreamEnds,
            9 => Fault::SessionForgotten,
            10 => Fault::GetStatus(Refusal::Busy),
            _ => Fault::StreamDies,
        };
    }
    match chance.below(40) {
        0 => Fault::ConnectRefused,
        1 => Fault::ConnectHangs,
        2 => Fault::ConnectUnanswered,
        3 => Fault::ConnectStatus(refusal),
        4 => Fault::PostUnsent,
        5 => Fault::PostBroken,
        6 => Fault::PostUnacknowledged,
        7 => Fault::PostHangs,
        8 => Fault::PostHangsTaken,
        9..=13 => Fault::PostStatus(refusal),
        14 => Fault::GetUnsent,
        15 => Fault::GetBroken,
        16 => Fault::GetHangs,
        17..=20 => Fault::GetStatus(refusal),
        21 => Fault::StreamEnds,
        22 | 23 => Fault::StreamReset,
        24 => Fault::StreamCut,
        25 => Fault::StreamStalls,
        26 => Fault::StreamDies,
        27 | 28 => Fault::AgentRestarts,
        29 | 30 => Fault::ConnectionForgotten,
        31 => Fault::SessionForgotten,
        32 => Fault::Renumbered,
        33 => Fault::EventTwice,
        34 => Fault::AnswerTwice,
        35 => Fault::Foreign,
        36 => {
            if chance.one_in(2) {
                Fault::Garbage
            } else {
                Fault::TooLargeEvent
            }
        }
        37 => Fault::Sleeps,
        38 => Fault::SlowEditor,
        _ => Fault::NetworkAway,
    }
}
