//! Editor, core, remote agent and the network between them, in virtual milliseconds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::LazyLock;

use acp_tether::core::roster::Ticket;
use acp_tether::core::socket::Close;
use acp_tether::core::{
    Core, Effect, End, Event, Millis, Open, Outcome, Post, PostId, Response, SessionId,
    StreamEvent, StreamId,
};
use bytes::Bytes;
use memchr::memmem;

use super::chance::Chance;
use super::checks::{Broken, Checks, Request, Seen};
use super::editor::{Editor, Later, Written};
use super::faults::{Deed, Fault, Plan, Refusal, Target, What};
use super::remote::{Body, Frame, Job, Out, Remote, Sort};
use super::roster::{Asks, Roster};

/// What a run saw.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Events that the core took.
    pub events: u64,
    /// Faults that really happened.
    pub faults: BTreeMap<Fault, u64>,
}

/// See the module's page.
pub struct World {
    now: u64,
    core: Core,
    editor: Editor,
    remote: Remote,
    checks: Checks,
    roster: Roster,
    plan: Plan,
    chance: Chance,
    queue: BTreeMap<(u64, u64), Box<Due>>,
    queued: u64,
    /// What waits for the next POST or GET that it fits.
    armed: Vec<(Fault, Target)>,
    posts: BTreeMap<PostId, Flight>,
    /// When what was last written to the socket arrives: what follows does not come before.
    written: u64,
    streams: BTreeMap<u64, Stream>,
    /// The sessions of whose streams the core has a cursor.
    cursors: BTreeSet<Option<String>>,
    /// When each stream that delivers nothing any more was lost or dropped.
    gone: BTreeMap<u64, u64>,
    /// Until then nothing of a stream reaches the core: the editor does not read.
    editor_reads_at: u64,
    /// What waits for that.
    unread: VecDeque<(u64, StreamEvent, Option<usize>)>,
    reads: bool,
    /// Until then nobody is there.
    network_back_at: u64,
    /// How much later than planned everything is, for the machine slept.
    slept: u64,
    phase: Phase,
    /// When the editor ended.
    ended_at: Option<u64>,
    /// The connection that the core uses.
    connection: Option<Bytes>,
    /// That one was deleted.
    deleted: bool,
    is_over: bool,
    link_epochs: u64,
    /// Openings of a stream in a row with nothing delivered: when the last were.
    openings: BTreeMap<Option<SessionId>, VecDeque<u64>>,
    /// When the core last asked for a connection, the newest last.
    connects: VecDeque<u64>,
    /// The questions that reached the core: the connection's epoch, and the agent's id.
    asked: BTreeSet<(u64, String)>,
    /// What was drawn for the rare faults: they move no other draw.
    rare: Chance,
    /// Until then everything is refused so.
    outage: Option<(u64, Refusal)>,
    /// Until then the network delivers nothing.
    hole_until: u64,
    /// What it took meanwhile: POSTs, and whether they were delivered or can be no more; and GETs.
    swallowed: (Vec<(Post, bool)>, Vec<Open>),
    /// Until then this process stands still.
    stopped_until: Option<u64>,
    /// What waits for that.
    pending: Vec<((u64, u64), Box<Due>)>,
    /// The core knows that the agent speaks another version now, which no try will change (V1).
    is_for_good: bool,
    tally: Tally,
}

/// What is due at a time.
#[derive(Debug)]
enum Due {
    Act(What),
    Later(Later),
    Arrives(Box<Post>, Way),
    Posted(PostId, Outcome),
    Get(Box<Open>),
    Stream(u64, StreamEvent, Option<usize>),
    Read,
    Broken(u64, String),
    Unheld(u64),
    Noticed(u64),
    Beat(u64),
    HoleEnds,
    Named(PostId, Bytes),
    Writing(PostId),
    Written(PostId),
    Agent(Job),
    Delete(String),
    Deleted(Outcome),
    Served(Ticket, Bytes),
    Calm,
    FinishTurns,
    Probe(u8),
}

impl Due {
    /// Whether it happens elsewhere, also while this process stands still.
    fn is_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::Arrives(..)
                | Self::Get(_)
                | Self::Unheld(_)
                | Self::Noticed(_)
                | Self::Beat(_)
                | Self::Agent(_)
                | Self::Delete(_)
                | Self::FinishTurns
        )
    }
}

/// What becomes of a POST on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It arrives, and so does its answer.
    Whole,
    /// It arrives, and the answer is lost.
    Unacknowledged,
    /// It arrives and the answer never comes.
    Silent,
}

/// A POST that the core waits for.
#[derive(Debug)]
struct Flight {
    hangs: bool,
    session: Option<SessionId>,
    /// It carries an answer to a question.
    is_answer: bool,
    body: Bytes,
}

/// A GET, from its opening on.
#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// The last delivery: what follows does not come before.
    last: u64,
    /// When the core had the answer to the GET.
    opened_at: Option<u64>,
    /// The core has the answer to the GET.
    is_open: bool,
    /// The core dropped it.
    is_closed: bool,
    /// Nothing more arrives.
    is_dead: bool,
    /// It hangs before the answer.
    hangs: bool,
    /// It has stalled: what is held.
    held: Option<Vec<Frame>>,
    /// What is on its way arrives, and nothing after it.
    is_mute: bool,
    /// When it was asked for.
    asked_at: u64,
    /// When the last heartbeat came, if nothing came since, and the last intervals.
    beaten: (Option<u64>, VecDeque<u64>),
}

impl Stream {
    /// One that is asked for.
    fn new(id: StreamId, now: u64) -> Self {
        Self {
            id,
            last: now,
            opened_at: None,
            is_open: false,
            is_closed: false,
            is_dead: false,
            hangs: false,
            held: None,
            is_mute: false,
            asked_at: now,
            beaten: (None, VecDeque::new()),
        }
    }

    /// It is open, and nothing ended it.
    fn lives(&self) -> bool {
        !self.is_dead && !self.is_closed && !self.is_mute && self.is_open
    }

    /// Something comes on it.
    fn hears(&mut self, now: u64, is_heartbeat: bool) {
        let (last, intervals) = &mut self.beaten;
        let before = std::mem::replace(last, is_heartbeat.then_some(now));
        if let Some(before) = before.filter(|_| is_heartbeat) {
            intervals.push_back(now - before);
            if intervals.len() > 3 {
                intervals.pop_front();
            }
        }
    }

    /// Its heartbeats are known so well that their absence must end it (L11).
    fn shows_heartbeats(&self) -> bool {
        let (_, intervals) = &self.beaten;
        intervals.len() == 3 && intervals.iter().all(|interval| *interval <= 20_000)
    }

    fn session(&self) -> Option<&str> {
        self.id.session.as_ref().map(|session| &*session.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Faults,
    Calm,
}

/// Whether every event and every effect is printed.
static TRACE: LazyLock<bool> = LazyLock::new(|| std::env::var_os("SIM_TRACE").is_some());
/// The backoff's cap and the longest timeout of ours, and a little (I19).
const SETTLED: u64 = 15_000 + 60_000 + 10_000;
/// What the agent said so long ago may come after an answer that it said later (R12).
const HELD: u64 = 2_000;
/// What a request of a probe may wait: `--hold`, and a little.
const PROBED: u64 = 35_000;
const NIGHT: u64 = 8 * 3_600_000;

impl World {
    /// A world in which the plan has not begun.
    pub fn new(plan: Plan) -> Self {
        let (seed, kind) = (plan.seed, plan.kind.clone());
        let mut world = Self {
            now: 0,
            core: Core::new(plan.settings()),
            editor: Editor::new(seed, kind.version),
            roster: Roster::new(seed, kind.version),
            remote: Remote::new(kind, seed),
            checks: Checks::default(),
            chance: Chance::new(seed, 2),
            queue: BTreeMap::new(),
            queued: 0,
            armed: Vec::new(),
            posts: BTreeMap::new(),
            written: 0,
            streams: BTreeMap::new(),
            cursors: BTreeSet::new(),
            gone: BTreeMap::new(),
            editor_reads_at: 0,
            unread: VecDeque::new(),
            reads: false,
            network_back_at: 0,
            slept: 0,
            phase: Phase::Faults,
            ended_at: None,
            connection: None,
            deleted: false,
            is_over: false,
            link_epochs: 0,
            openings: BTreeMap::new(),
            connects: VecDeque::new(),
            asked: BTreeSet::new(),
            rare: Chance::new(seed, 10),
            outage: None,
            hole_until: 0,
            swallowed: (Vec::new(), Vec::new()),
            stopped_until: None,
            pending: Vec::new(),
            is_for_good: false,
            tally: Tally::default(),
            plan,
        };
        world.checks.is_flawless = world.plan.has_no_faults();
        world.checks.version = world.plan.kind.version;
        world.checks.has_one_stream = world.plan.kind.has_one_stream;
        world.checks.notices = world.plan.flags.notices;
        // Where answers have no ids, what has one is sent again before them.
        world.checks.ends_turns = world.plan.kind.version == 1
            && (!world.plan.kind.numbered || world.plan.kind.numbers_answers);
        // How far from a loss it may be told: later where the machine sleeps, or this process stands still.
        let (nights, stops) = (world.plan.count(Fault::Sleeps), world.plan.count(Fault::Stopped));
        world.checks.patience = 120_000 + NIGHT * nights + 60_000 * stops;
        world.checks.unlucky = world.plan.is_isolated.then_some(None);
        for action in world.plan.actions.clone() {
            world.at(action.at, Due::Act(action.what));
        }
        world.at(world.plan.calm_at, Due::Calm);
        world
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Tally, (Broken, u64, Tally)> {
        while !self.is_over && self.checks.broken.is_none() {
            let due = self.queue.first_key_value().map(|((at, _), _)| *at);
            if let Some(until) = self.stopped_until {
                self.stand_still(until);
                continue;
            }
            let timer = self.core.deadline().map(|Millis(at)| at);
            // What came while the process stood still is taken before a timer that is late.
            let is_behind = due.is_some_and(|due| due < self.now);
            match (due, timer) {
                (None, None) => {
                    self.checks.fail("I16", "nothing is due, and the end has not come");
                }
                (due, Some(timer))
                    if !is_behind && due.is_none_or(|due| timer <= due.max(self.now)) =>
                {
                    self.now = self.now.max(timer);
                    self.step(Event::Timer);
                    let next = self.core.deadline();
                    if !self.is_over && next.is_some_and(|Millis(next)| next <= self.now) {
                        self.checks.fail("I18", "a deadline that stays due: the shell spins");
                    }
                }
                _ => {
                    let Some(((at, _), due)) = self.queue.pop_first() else { break };
                    self.now = self.now.max(at);
                    self.remote.now = self.now;
                    self.happen(*due);
                }
            }
            if let Some(wrong) = self.remote.wrong.take() {
                self.checks.fail("I8", wrong);
            }
            if let Some(ended_at) = self.ended_at
                && !self.is_over
                && self.now > ended_at + 2_000
            {
                self.checks.fail("I16", "two seconds after the end of input it is still there");
            }
            if self.tally.events > 200_000 {
                self.checks.fail("I18", "no end");
            }
        }
        if self.checks.broken.is_none() {
            let ended_at = self.ended_at.unwrap_or(self.now);
            self.checks.told_of_losses(ended_at, &self.remote.sent);
        }
        match self.checks.broken.take() {
            None => Ok(self.tally),
            Some(broken) => Err((broken, self.now, self.tally)),
        }
    }

    /// This process stands still, the rest of the world does not.
    fn stand_still(&mut self, until: u64) {
        match self.queue.pop_first() {
            Some(((at, number), due)) if at < until => {
                self.now = self.now.max(at);
                self.remote.now = self.now;
                if due.is_elsewhere() {
                    self.happen(*due);
                } else {
                    self.pending.push(((at, number), due));
                }
            }
            later => {
                self.queue.extend(later);
                self.queue.extend(self.pending.drain(..));
                self.stopped_until = None;
                self.now = until;
                self.remote.now = until;
            }
        }
    }

    fn at(&mut self, at: u64, due: Due) {
        self.queue_at(at + self.slept, due);
    }

    fn after(&mut self, delay: u64, due: Due) {
        self.queue_at(self.now + delay, due);
    }

    fn queue_at(&mut self, at: u64, due: Due) {
        self.queued += 1;
        self.queue.insert((at, self.queued), Box::new(due));
    }

    fn latency(&mut self) -> u64 {
        self.chance.between(1, self.plan.latency)
    }

    fn happened(&mut self, fault: Fault) {
        *self.tally.faults.entry(fault).or_default() += 1;
    }

    // The core.

    fn step(&mut self, event: Event) -> Vec<Effect> {
        if self.is_over {
            return Vec::new();
        }
        self.tally.events += 1;
        self.checks.begin();
        let mut effects = Vec::new();
        self.core.step(Millis(self.now), event, &mut effects);
        let bound = 64
            + 8 * (self.checks.open().len() + self.editor.sessions.len() + self.posts.len())
            + 2 * self.editor.questions().len();
        // Each notification that does not leave is told.
        let is_told = |effect: &&Effect| matches!(effect, Effect::Log(_, text) if text.starts_with("a notification or an answer"));
        let count = effects.len() - effects.iter().filter(is_told).count();
        if count > bound {
            self.checks.fail("I18", format!("{count} effects of one event"));
        }
        for effect in &effects {
            self.perform(effect);
        }
        self.checks.end();
        effects
    }

    fn perform(&mut self, effect: &Effect) {
        if self.is_over {
            return self.checks.fail("I16", format!("after the end: {effect:?}"));
        }
        if *TRACE {
            eprintln!("{:>9} <- {effect:?}", self.now);
        }
        match effect {
            Effect::Line(line) => self.show(line),
            Effect::Post(post) => self.post(post.clone()),
            Effect::Abandon(post) => match self.posts.remove(post) {
                Some(flight) => self.checks.gave_up(&flight.body),
                None => self.checks.fail("I7", "a POST is dropped that is not under way"),
            },
            Effect::Open(open) => self.open(open.clone()),
            Effect::Close(stream) => self.close(stream),
            // A socket that is no connection.
            Effect::Delete(connection) if connection.id.is_empty() => {}
            Effect::Delete(connection) => {
                if self.checks.is_connected && self.connection.as_ref() == Some(&connection.id) {
                    self.deleted = true;
                    if self.ended_at.is_none() {
                        self.checks
                            .fail("C1", "the connection is deleted, and the editor is there");
                    }
                }
                let id = String::from_utf8_lossy(&connection.id).into_owned();
                let delay = self.latency();
                if !self.is_in_hole() {
                    self.after(delay, Due::Delete(id));
                }
            }
            Effect::Log(level, text) => {
                self.roster.log(text);
                self.checks.log(self.now, *level, text);
            }
            Effect::Ping(socket) => self.ping(socket),
            Effect::Changed => self.roster.changed(),
            Effect::Rpc(ticket, _) => {
                let (delay, answer) = self.roster.serve(*ticket);
                self.after(delay, Due::Served(*ticket, answer));
            }
            // Whoever asked takes it.
            Effect::Reply(..) => {}
            Effect::Exit => {
                self.is_over = true;
                let open = self.unanswered(|_| true);
                if !open.is_empty() {
                    self.checks.fail("I1", format!("unanswered at the end: {open:?}"));
                }
                if self.ended_at.is_none() {
                    self.checks.fail("I16", "it ended, and the editor did not");
                }
                if self.checks.is_connected && !self.deleted {
                    self.checks.fail("I16", "it ended without a DELETE");
                }
            }
        }
    }

    fn show(&mut self, line: &Bytes) {
        let may_be_idle = self.editor.may_be_idle();
        let streams = &self.streams;
        let moves = |session: &str| {
            streams.values().any(|stream| {
                stream.lives() && stream.held.is_none() && stream.session() == Some(session)
            })
        };
        let (seen, number) =
            self.checks.line(self.now, line, &self.remote.sent, may_be_idle, &moves);
        if let Seen::Answer { request, result: None } = &seen
            && request.method.starts_with("_acp-tether/")
            && self.ended_at.is_none()
        {
            self.checks.fail("E1", "a call that was about to be answered failed");
        }
        self.roster.sees(&seen, number.and_then(|number| self.remote.sent.get(number)));
        if let Seen::Answer { request, result } = &seen
            && request.number > self.editor.first_probe
        {
            self.judge(&request.method, request.session.as_deref(), result.is_some());
        }
        if let Some((delay, later)) = self.editor.sees(&seen, self.phase == Phase::Calm) {
            self.after(delay, Due::Later(later));
        }
        if let Some(unlucky) = &mut self.checks.unlucky
            && unlucky.as_ref() != self.editor.sessions.first()
        {
            *unlucky = self.editor.sessions.first().cloned();
        }
    }

    /// In the calm, what must have succeeded.
    fn judge(&mut self, method: &str, session: Option<&str>, is_result: bool) {
        let is_probing = self.phase == Phase::Calm && self.editor.probed > 0;
        if !is_probing || is_result || self.ended_at.is_some() {
            return;
        }
        if self.remote.speaks != self.plan.kind.version {
            // Nothing can come right (V1).
            return;
        }
        let can = session.is_none_or(|session| self.remote.knows(session));
        let must = match (method, self.editor.probed) {
            ("session/list", _) => true,
            ("session/load" | "session/resume", 2) => can,
            ("session/prompt", 3) => can,
            _ => false,
        };
        if must {
            self.checks.fail("I19", format!("{method} fails in the calm, for {session:?}"));
        }
    }

    // What is due.

    fn happen(&mut self, due: Due) {
        if *TRACE {
            eprintln!("{:>9} -> {due:?}", self.now);
        }
        match due {
            Due::Act(What::Editor(deed)) => self.deed(deed),
            Due::Act(What::Fault(fault, target)) => self.fault(fault, target),
            Due::Act(What::Asks(asks)) => self.ask(asks),
            Due::Served(ticket, answer) => {
                self.step(Event::Rpc(ticket, answer));
            }
            Due::Later(Later::Deed(deed)) => self.deed(deed),
            Due::Later(Later::Answer(id)) => {
                if self.ended_at.is_none()
                    && let Some(written) = self.editor.answers(&id)
                {
                    self.checks.answers(&id);
                    self.roster.answered(&id);
                    self.write(written);
                }
            }
            Due::Arrives(post, way) => self.arrives(&post, way),
            Due::Posted(post, outcome) => {
                if let Some(flight) = self.posts.remove(&post) {
                    match &outcome {
                        Outcome::Broken(_) => self.checks.gave_up(&flight.body),
                        // Each may have the connection asked (R8).
                        Outcome::Response(refused) if refused.status >= 400 => {
                            self.openings.remove(&None);
                        }
                        _ => {}
                    }
                    let ends_it = self.editor.is_up && self.names_another_version(&outcome);
                    self.step(Event::Posted(post, outcome));
                    if ends_it {
                        self.is_for_good = true;
                        if self.editor.questions().len() > 0 {
                            self.checks.fail("V6", "a question of an agent that is gone for good");
                        }
                    }
                } else if self.chance.one_in(4) {
                    self.stale(Event::Posted(post, outcome));
                }
            }
            Due::Get(open) => self.get(&open),
            Due::Stream(stream, event, number) => self.deliver(stream, event, number),
            Due::Read => self.read(),
            Due::Broken(stream, reason) => {
                self.break_stream(stream, &reason);
            }
            Due::Unheld(stream) => self.unhold(stream),
            Due::Noticed(stream) => {
                self.remote.reader_gone(stream);
                self.carry_out();
            }
            Due::Beat(stream) => self.beat(stream),
            Due::HoleEnds => self.leave_hole(),
            Due::Named(post, id) if self.posts.contains_key(&post) => {
                self.step(Event::Named(post, id));
            }
            Due::Named(..) => {}
            Due::Writing(post) if self.posts.contains_key(&post) => {
                self.step(Event::Writing(post));
            }
            Due::Writing(_) => {}
            Due::Written(post) => {
                let response = Response { status: 202, ..Response::default() };
                if self.posts.remove(&post).is_some() {
                    self.step(Event::Posted(post, Outcome::Response(response)));
                }
            }
            Due::Agent(job) => {
                self.remote.go_on(job);
                self.carry_out();
            }
            Due::Delete(connection) => {
                let status = self.remote.delete(&connection);
                self.carry_out();
                let delay = self.latency();
                let response = Response { status, ..Response::default() };
                self.after(delay, Due::Deleted(Outcome::Response(response)));
            }
            Due::Deleted(outcome) => {
                self.step(Event::Deleted(outcome));
            }
            Due::Calm => self.calm(),
            Due::FinishTurns => {
                self.remote.finish_turns();
                self.carry_out();
            }
            Due::Probe(which) => self.probe(which),
        }
    }

    /// Whether this answers an `initialize` of the core's own with a version that no connection speaks.
    fn names_another_version(&self, outcome: &Outcome) -> bool {
        let Outcome::Response(response) = outcome else { return false };
        let speaks = format!(r#""protocolVersion":{},"#, self.remote.speaks);
        self.remote.speaks != self.plan.kind.version
            && memmem::find(&response.body, speaks.as_bytes()).is_some()
    }

    /// What belongs to a replaced stream or an abandoned POST acts nowhere (I7).
    fn stale(&mut self, event: Event) {
        // A timer that is late acts in the same step.
        let is_late = self.core.deadline().is_some_and(|Millis(at)| at <= self.now);
        let effects = self.step(event.clone());
        let acts = !is_late && effects.iter().any(|effect| !matches!(effect, Effect::Log(..)));
        if acts {
            self.checks.fail("I7", format!("{event:?} came too late and acted: {effects:?}"));
        }
    }

    fn deed(&mut self, deed: Deed) {
        if self.ended_at.is_some() {
            return;
        }
        if let Some(written) = self.editor.does(deed) {
            self.write(written);
        }
    }

    /// Somebody asks something of the core itself.
    fn ask(&mut self, asks: Asks) {
        if self.ended_at.is_some() {
            return;
        }
        let Some(inquiry) = Roster::inquiry(asks, &self.editor.sessions) else {
            let call = Rc::new(self.roster.call());
            self.checks.wrote_request(&call);
            self.step(Event::Line(Bytes::from(call.line.clone())));
            return;
        };
        if asks == Asks::Reconnect {
            self.is_for_good = false;
            self.openings.clear();
            self.connects.clear();
        }
        let effects = self.step(Event::Inquiry(Ticket(0), inquiry.clone()));
        let reply = effects.iter().find_map(|effect| match effect {
            Effect::Reply(_, reply) => Some(reply),
            _ => None,
        });
        self.roster.replied(&inquiry, reply, &mut self.checks);
        // A timer that was due changed it after the reply.
        if matches!(effects.last(), Some(Effect::Changed)) {
            self.roster.changed();
        }
    }

    fn write(&mut self, written: Written) {
        if self.ended_at.is_some() {
            return;
        }
        let mut request = None;
        let line = match written {
            Written::Request(written) => {
                self.checks.wrote_request(&written);
                request.insert(written).line.clone()
            }
            Written::Other(number, line) => {
                self.checks.wrote(number, &line);
                line
            }
            Written::Refused(id, code, line) => {
                self.checks.wrote_refused(&id, code);
                line
            }
            Written::End => {
                self.ended_at = Some(self.now);
                self.checks.has_ended = true;
                self.step(Event::EditorGone);
                return;
            }
        };
        if *TRACE {
            eprintln!("{:>9} => {line}", self.now);
        }
        // Whoever asks may have a stream opened.
        self.openings.clear();
        self.connects.clear();
        let effects = self.step(Event::Line(Bytes::from(line)));
        if let Some(request) = request {
            if self.is_for_good && self.checks.open().any(|open| open.number == request.number) {
                let what = format!("the agent is gone for good, and this waits: {}", request.line);
                self.checks.fail("V1", what);
            }
            let is_refused = effects.iter().any(|effect| {
                matches!(effect, Effect::Line(line) if memmem::find(line, b"with this id is open").is_some())
            });
            self.roster.wrote(&request, is_refused);
        }
    }

    // POSTs.

    fn post(&mut self, post: Post) {
        let Some(read) = Body::read(&post.body) else {
            return self.checks.fail("I5", "a POST that is no JSON object");
        };
        let scope = post.session.clone();
        let session = scope.as_ref().map(|session| &*session.0);
        if let Some(own) = self.checks.posts(self.now, session, &read) {
            self.editor.own = Some(own);
        }
        // An opening for the sake of a message is none that repeats by itself.
        self.openings.remove(&scope);
        let is_connect = post.connection.is_none();
        if is_connect {
            self.watch_connects();
        }
        let is_answer = self.watch_lane(session, &read, &post.body);
        let fault = self.armed_for(session, |fault| match fault {
            Fault::ConnectRefused
            | Fault::ConnectHangs
            | Fault::ConnectUnanswered
            | Fault::ConnectStatus(_) => is_connect,
            Fault::PostUnsent
            | Fault::PostBroken
            | Fault::PostUnacknowledged
            | Fault::PostHangs
            | Fault::PostHangsTaken
            | Fault::PostStatus(_) => !is_connect,
            _ => false,
        });
        let outage = self.outage().map(|refusal| match is_connect {
            true => Fault::ConnectStatus(refusal),
            false => Fault::PostStatus(refusal),
        });
        let is_on_socket = self.plan.kind.is_socket && !is_connect;
        let fault = fault.or(outage.filter(|_| !is_on_socket));
        if self.is_in_hole() {
            let body = post.body.clone();
            let flight = Flight { hangs: true, session: scope, is_answer, body };
            self.posts.insert(post.id, flight);
            let is_taken = !is_on_socket && self.rare.one_in(4);
            if is_taken {
                let delay = self.rare.between(1, 40);
                self.after(delay, Due::Arrives(Box::new(post.clone()), Way::Silent));
            }
            return self.swallowed.0.push((post, is_taken));
        }
        if is_on_socket {
            let body = post.body.clone();
            let flight = Flight { hangs: false, session: scope, is_answer, body };
            self.posts.insert(post.id, flight);
            return self.write_to_socket(post, fault);
        }
        let (delay, back) = (self.latency(), self.latency());
        let is_away = self.now < self.network_back_at;
        let id = post.id;
        let hangs =
            matches!(fault, Some(Fault::ConnectHangs | Fault::PostHangs | Fault::PostHangsTaken));
        let flight = Flight { hangs, session: scope, is_answer, body: post.body.clone() };
        self.posts.insert(id, flight);
        match fault {
            Some(Fault::ConnectRefused | Fault::PostUnsent) => {
                let outcome = Outcome::Unsent("connection refused".into());
                self.after(delay, Due::Posted(id, outcome));
            }
            Some(Fault::ConnectHangs | Fault::PostHangs) => {}
            Some(Fault::PostHangsTaken) => {
                self.after(delay, Due::Arrives(Box::new(post), Way::Silent));
            }
            Some(Fault::ConnectUnanswered | Fault::PostUnacknowledged) => {
                self.after(delay, Due::Arrives(Box::new(post), Way::Unacknowledged));
            }
            Some(Fault::PostBroken) => {
                self.after(delay, Due::Posted(id, Outcome::Broken("reset".into())));
            }
            Some(Fault::ConnectStatus(refusal) | Fault::PostStatus(refusal)) => {
                let response = answer(refusal);
                self.after(delay + back, Due::Posted(id, Outcome::Response(response)));
            }
            _ if is_away => {
                let outcome = Outcome::Unsent("the network is away".into());
                self.after(delay, Due::Posted(id, outcome));
            }
            _ => self.after(delay, Due::Arrives(Box::new(post), Way::Whole)),
        }
    }

    /// A message is written to the socket, after all before it. A fault of the write is the end of the
    /// socket, before or after what was written arrives.
    fn write_to_socket(&mut self, post: Post, fault: Option<Fault>) {
        let (delay, back) = (self.latency(), self.latency());
        let id = post.id;
        let Some(reader) = self.living(Target::Connection).pop() else {
            let outcome = Outcome::Unsent("the socket is closed".into());
            return self.after(delay, Due::Posted(id, outcome));
        };
        let close = match fault {
            Some(Fault::PostStatus(Refusal::TooLarge)) => Some(1009),
            Some(Fault::PostStatus(Refusal::Unauthorized)) => Some(4401),
            Some(Fault::PostStatus(Refusal::Forbidden)) => Some(1008),
            Some(Fault::PostStatus(_)) => Some(1011),
            _ => None,
        };
        match fault {
            Some(Fault::PostHangs) => {
                // A server that does not read.
                let patience = self.chance.between(1_000, 80_000);
                return self
                    .after(patience, Due::Broken(reader, "it took nothing any more".into()));
            }
            Some(Fault::PostUnsent | Fault::PostBroken) => {
                return self.after(delay, Due::Broken(reader, "reset".into()));
            }
            Some(Fault::PostUnacknowledged | Fault::PostHangsTaken) => {
                self.after(delay + back, Due::Broken(reader, "reset".into()));
            }
            _ if close.is_none() => {
                self.after(back / 2, Due::Writing(id));
                self.after(back, Due::Written(id));
            }
            _ => {}
        }
        if let Some(code) = close {
            let close = Close { code, reason: String::new() };
            self.remote.reader_gone(reader);
            self.carry_out();
            return self.queue_on(reader, StreamEvent::Ended(End::Closed(close)), None);
        }
        self.written = self.written.max(self.now + delay);
        self.queue_at(self.written, Due::Arrives(Box::new(post), Way::Silent));
    }

    /// A ping, which a server that lives answers.
    fn ping(&mut self, socket: &StreamId) {
        let reader = socket.generation.0;
        let lives = |stream: &Stream| stream.lives() && stream.held.is_none();
        if self.streams.get(&reader).is_some_and(lives) {
            self.queue_on(reader, StreamEvent::Comment, None);
        }
    }

    /// One message of a lane is under way (L5), and an answer goes to what asked on this connection
    /// (I8). Whether it is an answer.
    fn watch_lane(&mut self, session: Option<&str>, read: &Body<'_>, body: &Bytes) -> bool {
        let is_answer = read.method.is_none();
        if read.method == Some("$/cancel_request") {
            // It goes in the lane of the request that it cancels, without its session.
            return false;
        }
        let before = self.posts.values().find(|flight| {
            flight.session.as_ref().map(|session| &*session.0) == session
                && flight.is_answer == is_answer
                && memmem::find(&flight.body, b"$/cancel_request").is_none()
        });
        if let Some(before) = before {
            let what = format!("{} goes beside {}", text(body), text(&before.body));
            self.checks.fail("L5", what);
        }
        if is_answer && !self.asked.contains(&(self.link_epochs, read.id().to_owned())) {
            let what = format!("an answer to what this connection never asked: {}", text(body));
            self.checks.fail("I8", what);
        }
        is_answer
    }

    /// Connections in a row that deliver nothing come ever more slowly (I11).
    fn watch_connects(&mut self) {
        if self.is_for_good {
            self.checks
                .fail("I11", "the agent speaks another version, and nobody asks to try again");
        }
        self.connects.push_back(self.now);
        if self.connects.len() > 8
            && self.connects.pop_front().is_some_and(|first| first + 2_000 > self.now)
        {
            self.checks.fail("I11", "nine connections in two seconds");
        }
    }

    fn arrives(&mut self, post: &Post, way: Way) {
        let connection = post.connection.as_ref().map(|connection| text(&connection.id));
        let session = post.session.as_ref().map(|session| &*session.0);
        let read = Body::read(&post.body).expect("the core posts JSON objects");
        let taken = self.remote.post(connection.as_deref(), session, &read, &post.body);
        let named = taken.response.connection_id.clone();
        if taken.accepted {
            self.checks.taken(connection.as_deref(), session, &read, &post.body);
        }
        let restores = matches!(read.method, Some("session/load" | "session/resume"));
        if taken.accepted
            && restores
            && read.number.is_none()
            && self.armed_for(session, |fault| fault == Fault::RestoreKills).is_some()
        {
            self.remote.forget_all();
        }
        self.carry_out();
        let delay = self.latency();
        // An answer on a stream may come before the 202.
        let delay =
            if self.plan.kind.answers_first { delay + self.chance.below(60) } else { delay };
        if let Some(named) = named.filter(|_| way != Way::Silent && !self.plan.kind.is_socket)
            && self.rare.one_in(2)
        {
            self.after(delay, Due::Named(post.id, named));
        }
        match way {
            Way::Whole => {
                self.after(delay, Due::Posted(post.id, Outcome::Response(taken.response)));
            }
            Way::Unacknowledged => {
                let outcome = Outcome::Broken("reset before the answer".into());
                self.after(delay, Due::Posted(post.id, outcome));
            }
            Way::Silent => {}
        }
    }

    // Streams.

    fn open(&mut self, open: Open) {
        let session = open.stream.session.as_ref().map(|session| &*session.0);
        let reader = open.stream.generation.0;
        self.link_epochs = self.link_epochs.max(open.stream.epoch.0);
        self.connection = Some(open.connection.id.clone());
        if open.cursor.is_none() {
            self.cursors.remove(&session.map(str::to_owned));
        }
        self.watch_openings(&open.stream.session);
        if self.plan.kind.is_socket {
            return self.open_socket(&open);
        }
        let fault = self.armed_for(session, |fault| {
            matches!(
                fault,
                Fault::GetUnsent | Fault::GetBroken | Fault::GetHangs | Fault::GetStatus(_)
            )
        });
        let fault = fault.or(self.outage().map(Fault::GetStatus));
        let (delay, back) = (self.latency(), self.latency());
        let is_in_hole = self.is_in_hole();
        let hangs = is_in_hole || fault == Some(Fault::GetHangs);
        let stream = Stream { hangs, ..Stream::new(open.stream.clone(), self.now) };
        self.streams.insert(reader, stream);
        if is_in_hole {
            return self.swallowed.1.push(open);
        }
        let failed = |reason: &str| StreamEvent::Failed(Outcome::Unsent(reason.into()));
        match fault {
            Some(Fault::GetUnsent) => {
                self.after(delay, Due::Stream(reader, failed("connection refused"), None));
            }
            Some(Fault::GetBroken) => {
                let event = StreamEvent::Failed(Outcome::Broken("reset".into()));
                self.after(delay, Due::Stream(reader, event, None));
            }
            Some(Fault::GetHangs) => {
                let patience = self.chance.between(1_000, 60_000);
                let event = StreamEvent::Failed(Outcome::Broken("it hung".into()));
                self.after(patience, Due::Stream(reader, event, None));
            }
            Some(Fault::GetStatus(refusal)) => {
                // Whatever says that it knows no such stream holds no old one of ours either.
                let of = &open.stream.session;
                let is_old = |stream: &&Stream| stream.is_closed && stream.id.session == *of;
                for old in self.streams.values().filter(is_old) {
                    self.remote.reader_gone(old.id.generation.0);
                }
                if let (Some(session), Refusal::Forbidden | Refusal::Unknown) = (of, refusal) {
                    // Nor keeps it anything for one (V3). It was not the agent who said so.
                    for number in self.remote.kept(&Some(session.0.to_string())) {
                        self.checks.pauses(number);
                    }
                }
                let event = StreamEvent::Refused(answer(refusal));
                self.after(delay + back, Due::Stream(reader, event, None));
            }
            _ if self.now < self.network_back_at => {
                self.after(delay, Due::Stream(reader, failed("the network is away"), None));
            }
            _ => self.after(delay, Due::Get(Box::new(open))),
        }
    }

    /// The socket was there when `initialize` was answered.
    fn open_socket(&mut self, open: &Open) {
        let reader = open.stream.generation.0;
        let stream = Stream { is_open: true, ..Stream::new(open.stream.clone(), self.now) };
        self.streams.insert(reader, stream);
        if self.remote.get(&text(&open.connection.id), None, None, reader).is_err() {
            // It was closed meanwhile.
            return self.queue_on(reader, StreamEvent::Ended(End::Clean), None);
        }
        self.carry_out();
        if let Some(heartbeat) = self.plan.kind.heartbeat {
            self.after(heartbeat, Due::Beat(reader));
        }
    }

    /// Openings in a row that deliver nothing come ever more slowly (I11).
    fn watch_openings(&mut self, session: &Option<SessionId>) {
        let now = self.now;
        let openings = self.openings.entry(session.clone()).or_default();
        openings.push_back(now);
        if openings.len() > 12 {
            openings.pop_front();
            // A few at once are due to a credential, a 410, a sleep; twelve are a storm.
            if openings.front().is_some_and(|first| first + 2_000 > now) {
                self.checks.fail("I11", format!("twelve openings of {session:?} in two seconds"));
            }
        }
    }

    fn get(&mut self, open: &Open) {
        let reader = open.stream.generation.0;
        let session = open.stream.session.as_ref().map(|session| &*session.0);
        let cursor = open.cursor.as_ref().map(text);
        let connection = text(&open.connection.id);
        if self.streams.get(&reader).is_none_or(|stream| stream.is_closed) {
            return;
        }
        match self.remote.get(&connection, session, cursor.as_deref(), reader) {
            Err(response) => {
                self.remote.out.clear();
                let delay = self.latency();
                self.after(delay, Due::Stream(reader, StreamEvent::Refused(response), None));
            }
            Ok(event_epoch) => {
                self.queue_on(reader, StreamEvent::Opened { event_epoch }, None);
                if let Some(retry) = self.plan.kind.retry {
                    self.queue_on(reader, StreamEvent::Retry(Millis(retry)), None);
                }
                self.carry_out();
                if let Some(heartbeat) = self.plan.kind.heartbeat {
                    self.after(heartbeat, Due::Beat(reader));
                }
            }
        }
    }

    fn beat(&mut self, reader: u64) {
        let Some(stream) = self.streams.get(&reader) else { return };
        if stream.is_dead || stream.is_closed || stream.is_mute {
            return;
        }
        if stream.held.is_none() {
            self.queue_on(reader, StreamEvent::Comment, None);
        }
        if let Some(heartbeat) = self.plan.kind.heartbeat {
            self.after(heartbeat, Due::Beat(reader));
        }
    }

    /// Does what the remote wants done.
    fn carry_out(&mut self) {
        for out in std::mem::take(&mut self.remote.out) {
            match out {
                Out::Write(reader, frame) => self.put(reader, frame),
                Out::End(reader) => self.end_stream(reader),
                Out::Later(delay, job) => self.after(delay, Due::Agent(job)),
            }
        }
    }

    /// The remote writes an event.
    fn put(&mut self, reader: u64, frame: Frame) {
        let asked_at = self.streams.get(&reader).map(|stream| stream.asked_at);
        // In the strict form no answer waits for the next stream (R11, R12).
        let is_too_late = self.plan.flags.strict && asked_at.is_some_and(|at| frame.at <= at);
        if frame.at + HELD <= self.now || is_too_late {
            self.checks.comes_late(frame.number);
        }
        match self.streams.get_mut(&reader) {
            Some(stream) if !stream.is_dead && !stream.is_closed && !stream.is_mute => {
                if let Some(held) = &mut stream.held {
                    self.checks.pauses(frame.number);
                    return held.push(frame);
                }
            }
            _ => return self.is_lost(reader, frame.number, frame.id.is_some()),
        }
        let scope = self.streams.get(&reader).and_then(|stream| stream.id.session.clone());
        let session = scope.as_ref().map(|session| &*session.0);
        let spoils = |fault| matches!(fault, Fault::Spoilt | Fault::SpoiltTooLarge);
        if let Some(fault) = self.armed_for(session, spoils) {
            return self.spoil(fault, reader, frame);
        }
        if frame.id.is_some()
            && self.armed_for(session, |fault| fault == Fault::EventTwice).is_some()
        {
            let event = message(frame.id.clone(), frame.data.clone());
            self.queue_on(reader, event, Some(frame.number));
        }
        let is_answer = matches!(self.remote.sent[frame.number].sort, Sort::Answer(_));
        if is_answer
            && frame.id.is_none()
            && self.armed_for(session, |fault| fault == Fault::AnswerTwice).is_some()
        {
            let event = message(None, frame.data.clone());
            self.queue_on(reader, event, None);
        }
        self.queue_on(reader, message(frame.id, frame.data), Some(frame.number));
    }

    /// An event does not come as it was. What was in it is in the log (R14), and whoever waits for it in
    /// doubt (R9).
    fn spoil(&mut self, fault: Fault, reader: u64, frame: Frame) {
        self.checks.is_spoilt(frame.number);
        if fault == Fault::Spoilt {
            let part = Bytes::from_static(br#"{"jso"#);
            return self.queue_on(reader, message(frame.id, part), None);
        }
        self.queue_on(reader, StreamEvent::TooLarge, None);
        if frame.id.is_some() {
            let end = StreamEvent::Message { data: None, id: frame.id };
            self.queue_on(reader, end, None);
        }
    }

    fn queue_on(&mut self, reader: u64, event: StreamEvent, number: Option<usize>) {
        let delay = self.latency();
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        stream.last = stream.last.max(self.now + delay);
        if self.plan.kind.in_pieces && number.is_some() && self.rare.one_in(12) {
            // One after another: a longer silence is the end of a replay (R12).
            for _ in 0..self.rare.between(1, 3) {
                let Some(stream) = self.streams.get_mut(&reader) else { return };
                let at = stream.last;
                stream.last += self.rare.pick(&[0, 1, 20]);
                self.queue_at(at, Due::Stream(reader, StreamEvent::Progress, None));
            }
        }
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        let at = stream.last;
        self.queue_at(at, Due::Stream(reader, event, number));
    }

    /// The editor reads again: what waits goes on, in its order.
    fn read(&mut self) {
        self.reads = true;
        if self.now >= self.editor_reads_at && !self.unread.is_empty() {
            self.step(Event::Listening(true));
        }
        while self.now >= self.editor_reads_at
            && let Some((reader, event, number)) = self.unread.pop_front()
        {
            self.deliver(reader, event, number);
        }
        self.reads = false;
        if !self.unread.is_empty() {
            let delay = self.editor_reads_at - self.now;
            self.after(delay, Due::Read);
        }
    }

    /// Something reaches the core on a stream.
    fn deliver(&mut self, reader: u64, event: StreamEvent, number: Option<usize>) {
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        let is_over = matches!(
            event,
            StreamEvent::Refused(_) | StreamEvent::Failed(_) | StreamEvent::Ended(_)
        );
        if stream.is_dead && !matches!(event, StreamEvent::Ended(End::Broken(_)))
            || stream.is_closed
        {
            let is_closed = stream.is_closed;
            let id = stream.id.clone();
            if let StreamEvent::Message { id, data: Some(data) } = &event
                && let Some(number) = number_of(data)
            {
                self.is_lost(reader, number, id.is_some());
            }
            if is_closed && self.chance.one_in(4) {
                self.stale(Event::Stream(id, event));
            }
            return;
        }
        if self.now < self.editor_reads_at || !self.unread.is_empty() && !self.reads {
            self.unread.push_back((reader, event, number));
            if self.unread.len() == 1 && !self.reads {
                self.step(Event::Listening(false));
            }
            return;
        }
        if matches!(event, StreamEvent::Opened { .. }) {
            stream.is_open = true;
            stream.opened_at = Some(self.now);
        }
        stream.hears(self.now, matches!(event, StreamEvent::Comment));
        if is_over {
            stream.is_dead = true;
        }
        let id = stream.id.clone();
        let mut number = number;
        if let StreamEvent::Message { data, id: numbered } = &event {
            if numbered.is_some() {
                self.cursors.insert(id.session.as_ref().map(|session| session.0.to_string()));
            }
            self.openings.remove(&id.session);
            self.connects.clear();
            // A copy is known by what is in it.
            number = number.or_else(|| number_of(data.as_ref()?));
            self.is_asked(&id, number);
        }
        self.step(Event::Stream(id, event));
        // Once the connection is deleted nothing is read any more (S7).
        if let Some(number) = number.filter(|_| self.ended_at.is_none() || !self.deleted) {
            self.checks.dealt_with(self.now, number, &self.remote.sent);
        }
        if is_over {
            self.is_gone(reader);
            self.streams.remove(&reader);
        }
    }

    /// Notes a message that reaches the core, if it is a question.
    fn is_asked(&mut self, stream: &StreamId, number: Option<usize>) {
        let message = number.map(|number| &self.remote.sent[number]);
        if let Some(Sort::Question { id, .. }) = message.map(|message| &message.sort) {
            self.asked.insert((stream.epoch.0, id.clone()));
        }
    }

    /// A message does not reach the core on this stream.
    fn is_lost(&mut self, reader: u64, number: usize, is_numbered: bool) {
        if is_numbered {
            // It is sent again, after a pause, or a 410 says that it is not.
            self.checks.comes_late(number);
        }
        // One that shows another numbering than its cursor's is asked for anew at once (R5): what it says in that
        // moment is a gap of the milliseconds, and not told.
        let gone = self.gone.get(&reader).copied();
        let opened = self.streams.get(&reader).and_then(|stream| stream.opened_at);
        let is_asked_anew = gone.is_some() && gone == opened;
        if self.ended_at.is_none() && !is_asked_anew {
            // Once the editor is gone there is nobody to lose it.
            let at = self.gone.get(&reader).copied().unwrap_or(self.now);
            let sent = &self.remote.sent[number];
            let session = if self.plan.kind.is_socket { None } else { sent.session.as_deref() };
            let is_resent = is_numbered && self.cursors.contains(&session.map(str::to_owned));
            self.checks.lost(at, number, is_resent, &self.remote.sent);
        }
    }

    /// A stream delivers nothing from here on.
    fn is_gone(&mut self, reader: u64) {
        self.gone.entry(reader).or_insert(self.now);
    }

    /// The core drops a stream; the server notices a while later.
    fn close(&mut self, id: &StreamId) {
        let reader = id.generation.0;
        self.is_gone(reader);
        let mut stopped = Vec::new();
        if let Some(stream) = self.streams.get_mut(&reader) {
            stream.is_closed = true;
            stopped = stream.held.take().unwrap_or_default();
        }
        for frame in stopped {
            self.is_lost(reader, frame.number, frame.id.is_some());
        }
        self.will_be_noticed(reader);
    }

    fn will_be_noticed(&mut self, reader: u64) {
        let delay = self.chance.pick(&[1, 20, 500, 3_000]);
        let delay = if self.phase == Phase::Calm { 1 } else { delay };
        self.after(delay, Due::Noticed(reader));
    }

    /// The server ends a stream as HTTP has it.
    fn end_stream(&mut self, reader: u64) {
        self.remote.reader_gone(reader);
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        if stream.is_dead || stream.is_closed || stream.is_mute {
            return;
        }
        for frame in stream.held.take().unwrap_or_default() {
            self.queue_on(reader, message(frame.id, frame.data), None);
        }
        self.queue_on(reader, StreamEvent::Ended(End::Clean), None);
    }

    /// A stream breaks: what is on its way is lost.
    fn break_stream(&mut self, reader: u64, reason: &str) {
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        if stream.is_dead || stream.is_closed || stream.is_mute {
            return;
        }
        stream.is_dead = true;
        let was_open = stream.is_open;
        let held = stream.held.take().unwrap_or_default();
        self.is_gone(reader);
        for frame in held {
            self.is_lost(reader, frame.number, frame.id.is_some());
        }
        let event = if was_open {
            StreamEvent::Ended(End::Broken(reason.to_owned()))
        } else {
            StreamEvent::Failed(Outcome::Broken(reason.to_owned()))
        };
        self.will_be_noticed(reader);
        if !was_open {
            // Its answer is on the way still.
            if let Some(stream) = self.streams.get_mut(&reader) {
                stream.is_dead = false;
                stream.is_closed = false;
            }
            let id = self.streams.remove(&reader).map(|stream| stream.id);
            if let Some(id) = id {
                self.step(Event::Stream(id, event));
            }
            return;
        }
        self.queue_on(reader, event, None);
    }

    /// What is on its way to an agent that ends, or was taken by it, does not reach the one that starts.
    fn break_posts(&mut self) {
        self.queue.retain(|_, due| !matches!(**due, Due::Agent(_)));
        for due in self.queue.values_mut() {
            if let Due::Arrives(post, _) = &**due {
                **due = Due::Posted(post.id, Outcome::Broken("the agent ended".into()));
            }
        }
        self.swallowed.0.iter_mut().for_each(|(_, is_over)| *is_over = true);
    }

    fn unhold(&mut self, reader: u64) {
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        for frame in stream.held.take().unwrap_or_default() {
            self.put(reader, frame);
        }
    }

    // Faults.

    /// How everything is refused, while it is.
    fn outage(&self) -> Option<Refusal> {
        let is_away = self.now < self.network_back_at || self.is_in_hole();
        self.outage.filter(|(until, _)| self.now < *until && !is_away).map(|(_, refusal)| refusal)
    }

    fn is_in_hole(&self) -> bool {
        self.now < self.hole_until
    }

    /// The network delivers again: half of what it took goes on, and half breaks.
    fn leave_hole(&mut self) {
        if self.is_in_hole() {
            return;
        }
        let held = |(reader, stream): (&u64, &Stream)| stream.held.is_some().then_some(*reader);
        for reader in self.streams.iter().filter_map(held).collect::<Vec<_>>() {
            if self.rare.one_in(2) {
                self.unhold(reader);
            } else {
                self.break_stream(reader, "the network lost it");
            }
        }
        let (posts, gets) = std::mem::take(&mut self.swallowed);
        for (post, is_over) in posts {
            let is_on_socket = self.plan.kind.is_socket && post.connection.is_some();
            let goes_on = !is_over && self.rare.one_in(2);
            // It may have been given up.
            let Some(flight) = self.posts.get_mut(&post.id) else { continue };
            flight.hangs = false;
            if is_on_socket {
                // Else it ends with its socket.
                if !self.living(Target::Connection).is_empty() {
                    self.write_to_socket(post, None);
                }
            } else if goes_on {
                self.after(1, Due::Arrives(Box::new(post), Way::Whole));
            } else {
                let outcome = Outcome::Broken("the network lost it".into());
                self.after(1, Due::Posted(post.id, outcome));
            }
        }
        for open in gets {
            let reader = open.stream.generation.0;
            let goes_on = self.rare.one_in(2);
            let Some(stream) = self.streams.get_mut(&reader) else { continue };
            if stream.is_closed {
                continue;
            }
            stream.hangs = false;
            if goes_on {
                self.after(1, Due::Get(Box::new(open)));
            } else {
                let event = StreamEvent::Failed(Outcome::Broken("the network lost it".into()));
                self.after(1, Due::Stream(reader, event, None));
            }
        }
    }

    fn armed_for(&mut self, session: Option<&str>, fits: impl Fn(Fault) -> bool) -> Option<Fault> {
        let index = self
            .armed
            .iter()
            .position(|(fault, target)| fits(*fault) && self.is_target(*target, session))?;
        let (fault, _) = self.armed.remove(index);
        self.happened(fault);
        Some(fault)
    }

    fn is_target(&self, target: Target, session: Option<&str>) -> bool {
        match target {
            Target::Any => true,
            Target::Connection => session.is_none(),
            Target::Session(number) => {
                let known = self.editor.sessions.get(usize::from(number));
                known.is_some() && known.map(String::as_str) == session
            }
        }
    }

    fn living(&self, target: Target) -> Vec<u64> {
        self.streams
            .iter()
            .filter(|(_, stream)| stream.lives() && self.is_target(target, stream.session()))
            .map(|(reader, _)| *reader)
            .collect()
    }

    fn fault(&mut self, fault: Fault, target: Target) {
        if self.phase == Phase::Calm || self.ended_at.is_some() && fault == Fault::Sleeps {
            return;
        }
        let first = self.living(target).into_iter().take(1);
        match fault {
            Fault::StreamEnds => {
                for reader in first {
                    self.happened(fault);
                    self.end_stream(reader);
                }
            }
            Fault::StreamReset | Fault::StreamCut => {
                for reader in first {
                    self.happened(fault);
                    self.break_stream(reader, "reset");
                }
            }
            Fault::StreamStalls | Fault::StreamDies => {
                for reader in first {
                    self.happened(fault);
                    if let Some(stream) = self.streams.get_mut(&reader) {
                        stream.held.get_or_insert_default();
                    }
                    let delay = self.chance.between(500, 40_000);
                    let due = match fault {
                        Fault::StreamStalls => Due::Unheld(reader),
                        _ => Due::Broken(reader, "the network died in silence".into()),
                    };
                    self.after(delay, due);
                }
            }
            Fault::AgentRestarts => {
                self.happened(fault);
                for reader in self.living(Target::Any) {
                    self.break_stream(reader, "the agent ended");
                }
                self.break_posts();
                self.remote.restart(self.editor.is_up);
                self.remote.out.clear();
            }
            Fault::ConnectionForgotten => {
                self.happened(fault);
                self.remote.forget_all();
                self.carry_out();
            }
            Fault::SessionForgotten => {
                if let Target::Session(number) = target
                    && let Some(session) = self.editor.sessions.get(usize::from(number)).cloned()
                {
                    self.happened(fault);
                    self.remote.forget_session(&session);
                    self.carry_out();
                }
            }
            Fault::Renumbered => {
                self.happened(fault);
                for reader in self.living(Target::Any) {
                    self.break_stream(reader, "the server renumbers");
                    self.remote.reader_gone(reader);
                }
                self.remote.renumber();
            }
            Fault::Foreign | Fault::Garbage | Fault::TooLargeEvent => {
                for reader in first {
                    if let Some(event) = self.nuisance(fault, reader) {
                        self.happened(fault);
                        self.queue_on(reader, event, None);
                    }
                }
            }
            Fault::Sleeps => self.sleep(),
            Fault::Outage(refusal) => {
                self.happened(fault);
                self.outage = Some((self.now + self.rare.between(300, 60_000), refusal));
            }
            Fault::BlackHole => {
                self.happened(fault);
                let delay = self.rare.between(1_000, 90_000);
                self.hole_until = self.hole_until.max(self.now + delay);
                for reader in self.living(Target::Any) {
                    if let Some(stream) = self.streams.get_mut(&reader) {
                        stream.held.get_or_insert_default();
                    }
                }
                self.after(delay, Due::HoleEnds);
            }
            Fault::Stopped if self.ended_at.is_none() => {
                self.happened(fault);
                let longest = if self.rare.one_in(4) { 60_000 } else { 4_900 };
                let stop = self.rare.between(60, longest);
                self.stopped_until = Some(self.now + stop);
                self.checks.stands_still(stop);
            }
            Fault::Stopped => {}
            Fault::StreamFreezes => {
                // What shows no heartbeats could be dead for ever.
                let is_socket = self.plan.kind.is_socket;
                let must_be_noticed = |stream: &Stream| is_socket || stream.shows_heartbeats();
                let frozen = self.living(target).into_iter();
                let mut frozen = frozen.filter(|it| must_be_noticed(&self.streams[it]));
                if let Some(reader) = frozen.next() {
                    self.happened(fault);
                    self.freeze(reader);
                }
            }
            Fault::SlowEditor => {
                self.happened(fault);
                let delay = self.chance.between(100, 8_000);
                self.editor_reads_at = self.editor_reads_at.max(self.now + delay);
                self.after(delay, Due::Read);
            }
            Fault::NetworkAway => {
                self.happened(fault);
                self.network_back_at = self.now + self.chance.between(100, 45_000);
                for reader in self.living(Target::Any) {
                    self.break_stream(reader, "the network is away");
                }
            }
            _ => self.armed.push((fault, target)),
        }
    }

    fn freeze(&mut self, reader: u64) {
        self.is_gone(reader);
        let Some(stream) = self.streams.get_mut(&reader) else { return };
        stream.is_mute = true;
        for frame in stream.held.take().unwrap_or_default() {
            self.is_lost(reader, frame.number, frame.id.is_some());
        }
    }

    fn nuisance(&self, fault: Fault, reader: u64) -> Option<StreamEvent> {
        let data = match fault {
            Fault::TooLargeEvent => return Some(StreamEvent::TooLarge),
            Fault::Garbage => "not JSON".to_owned(),
            _ => {
                self.streams.get(&reader)?.session()?;
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other"}}"#
                    .to_owned()
            }
        };
        Some(message(None, Bytes::from(data)))
    }

    /// The machine sleeps: nothing moves, and afterwards every stream is dead, or some are, or none. What
    /// had come before may be there to be read.
    fn sleep(&mut self) {
        self.happened(Fault::Sleeps);
        let length = self.rare.pick(&[6_000, 90_000, NIGHT, NIGHT]);
        let queue = std::mem::take(&mut self.queue);
        self.queue = queue.into_iter().map(|((at, n), due)| ((at + length, n), due)).collect();
        self.slept += length;
        self.checks.stands_still(length);
        self.now += length;
        self.written += length;
        self.streams.values_mut().for_each(|stream| stream.last += length);
        let is_forgotten = self.chance.one_in(2);
        let (survives, had_come) = (self.rare.below(4), self.rare.one_in(2));
        let open = |(reader, stream): (&u64, &Stream)| stream.is_open.then_some(*reader);
        for reader in self.streams.iter().filter_map(open).collect::<Vec<_>>() {
            if survives == 2 || survives == 3 && self.rare.one_in(2) {
                continue;
            }
            self.gone.entry(reader).or_insert(self.now);
            if had_come {
                self.freeze(reader);
            } else if let Some(stream) = self.streams.get_mut(&reader) {
                stream.is_dead = true;
            }
            self.remote.reader_gone(reader);
        }
        if is_forgotten {
            self.remote.forget_all();
        }
        self.carry_out();
        self.step(Event::Woke);
    }

    // The calm.

    /// Faults stop: what hangs breaks, what is armed is disarmed.
    fn calm(&mut self) {
        self.phase = Phase::Calm;
        self.armed.clear();
        self.network_back_at = 0;
        self.outage = None;
        self.hole_until = 0;
        self.leave_hole();
        self.editor_reads_at = 0;
        self.after(0, Due::Read);
        self.remote.is_brisk = true;
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for reader in streams {
            let (is_held, hangs) = match self.streams.get(&reader) {
                Some(stream) => (stream.held.is_some(), stream.hangs),
                None => continue,
            };
            if is_held {
                self.unhold(reader);
            }
            if hangs && self.streams.get(&reader).is_some_and(|stream| !stream.is_closed) {
                let event = StreamEvent::Failed(Outcome::Broken("it hung".into()));
                self.after(0, Due::Stream(reader, event, None));
            }
        }
        let hanging: Vec<PostId> =
            self.posts.iter().filter(|(_, post)| post.hangs).map(|(id, _)| *id).collect();
        for post in hanging {
            let outcome = Outcome::Broken("it hung".into());
            self.after(0, Due::Posted(post, outcome));
        }
        let questions: Vec<String> = self.editor.questions().cloned().collect();
        for question in questions {
            self.after(10, Due::Later(Later::Answer(question)));
        }
        if !self.editor.is_up {
            self.after(1_000, Due::Later(Later::Deed(Deed::Initialize)));
        }
        self.after(30_000, Due::FinishTurns);
        self.after(SETTLED, Due::Probe(1));
    }

    /// Shows that everything works (I19): the link, and each session, at the latest after a load.
    fn probe(&mut self, which: u8) {
        if self.ended_at.is_some() {
            return;
        }
        self.editor.probes(which);
        self.ask(Asks::Status);
        let sessions = 0..self.editor.sessions.len() as u8;
        match which {
            1 => {
                self.deed(Deed::SignIn);
                self.deed(Deed::List);
                sessions.for_each(|session| self.deed(Deed::Prompt(session)));
                self.after(PROBED, Due::Probe(2));
            }
            2 => {
                let deed = if self.remote.loads() { Deed::Load } else { Deed::Resume };
                for session in sessions {
                    let id = &self.editor.sessions[usize::from(session)];
                    if !self.editor.sound.contains(id) && self.remote.knows(id) {
                        self.deed(deed(session));
                    }
                }
                self.after(PROBED, Due::Probe(3));
            }
            3 => {
                self.deed(Deed::List);
                sessions.for_each(|session| self.deed(Deed::Prompt(session)));
                self.after(PROBED, Due::Probe(4));
            }
            4 => {
                let missing = self.unanswered(|request| {
                    request.number > self.editor.first_probe
                        && !self.checks.may_be_in_a_gap(request)
                });
                if !missing.is_empty() {
                    self.checks.fail("I19", format!("no answer in the calm: {missing:?}"));
                }
                self.after(self.plan.flags.orphan_timeout + 10_000, Due::Probe(5));
                if self.unanswered(|_| true).is_empty() {
                    self.deed(Deed::End);
                }
            }
            _ => {
                let missing = self.unanswered(|_| true);
                if !missing.is_empty() {
                    self.checks.fail("I19", format!("never answered: {missing:?}"));
                }
                self.deed(Deed::End);
            }
        }
    }

    fn unanswered(&self, counts: impl Fn(&Request) -> bool) -> Vec<String> {
        let open = self.checks.open().filter(|request| counts(request));
        open.map(|request| request.line.clone()).collect()
    }
}

fn message(id: Option<Bytes>, data: Bytes) -> StreamEvent {
    StreamEvent::Message { data: Some(data), id }
}

/// The number `_n` of a message of the remote.
fn number_of(data: &Bytes) -> Option<usize> {
    const NAME: &[u8] = b"\"_n\":";
    let rest = &data[memmem::find(data, NAME)? + NAME.len()..];
    let end = rest.iter().position(|digit| !digit.is_ascii_digit()).unwrap_or(rest.len());
    str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

fn text(bytes: &Bytes) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The answer that a refusal is.
fn answer(refusal: Refusal) -> Response {
    let (status, body) = match refusal {
        Refusal::Bad => (400, r#"{"error":"wrong parameters"}"#),
        Refusal::BadConnection => (400, r#"{"error":"unknown connection"}"#),
        Refusal::Unauthorized => (401, r#"{"error":"unauthorized"}"#),
        Refusal::Forbidden => (403, "no"),
        Refusal::Unknown => (404, ""),
        Refusal::Busy => (409, r#"{"error":"busy"}"#),
        Refusal::Reload => (409, r#"{"error":{"code":"session_reload_required"}}"#),
        Refusal::Gone => (410, ""),
        Refusal::TooLarge => (413, ""),
        Refusal::Patience | Refusal::PatienceUntil => (429, ""),
        Refusal::Internal => (500, "oh"),
        Refusal::Unavailable => (503, ""),
        Refusal::Page => (200, "<html>sign in</html>"),
    };
    let html = refusal == Refusal::Page;
    Response {
        status,
        content_type: if html { "text/html" } else { "application/json" }.to_owned(),
        retry_after: (refusal == Refusal::PatienceUntil).then_some(Millis(4_000)),
        body: Bytes::from_static(body.as_bytes()),
        ..Response::default()
    }
}
