//! Does what the core decides: takes events from the world, steps the core, performs its effects.
//!
//! One task owns the core. Everything that waits (reading, writing, requests, streams) is a thread or
//! a task of its own that ends in one of the channels which [`Shell::carry`] takes from.

mod api;
mod clock;
mod credentials;
pub(crate) mod http;
mod inquiries;
pub mod instances;
pub(crate) mod leaving;
pub mod log;
mod methods;
pub mod record;
mod stdio;
#[cfg(test)]
mod tests;
pub mod token;
mod transport;
mod watch;
mod websocket;

use self::api::Api;
pub(crate) use self::clock::now;
use self::http::Batch;
use self::inquiries::Inquiries;
use self::instances::{Directory, Entry, Process, Record};
use self::methods::Methods;
use self::record::Recorder;
use self::stdio::Output;
use self::token::Token;
use self::transport::Transport;
use self::watch::{Seen, Watch};
use crate::config::{Config, Loopback};
use crate::core::roster::{Inquiry, Ticket};
use crate::core::{Core, Effect, Event, Level, Millis, limits};
use crate::wire::lines::Line;
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::pin::pin;
use std::time::Duration;
use std::{io, mem, process, thread};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Bytes of answers to the editor's own lines that may wait for it, past which its lines are not
/// read. What streams deliver does not count: the end of its input must be seen however much of that
/// waits.
const ANSWER_BYTES: usize = 4 * limits::EDITOR_QUEUE_BYTES;
/// Calls of our own methods that may be under way, past which the editor's lines are not read: what
/// they are answered with cannot be counted before.
const CALLS: usize = 64;
/// How often other tasks are let run before a time that has come counts: what the network holds needs so many
/// to come here.
const HOPS: usize = 4;
/// How long after the editor is gone the process is ended whatever happens: after the core's own
/// limit, and within the 2 s of S7.
const WATCHDOG: Duration = Duration::from_millis(limits::EXIT.0 + 50);

/// Carries the session on standard input and output until the editor is gone, and ends the process.
pub fn run(
    config: Config,
    recorder: Option<Recorder>,
    log: &log::Log,
) -> io::Result<process::ExitCode> {
    let code = config.exit_code();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A task of its own: each time that the future which the runtime blocks on is woken, it asks the
    // system for events first.
    runtime.block_on(async {
        let carried = tokio::spawn(carry(config, recorder)).await;
        carried.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    })?;
    log.flush();
    // A name that is still being looked up does not hold the end up.
    runtime.shutdown_background();
    Ok(code.into())
}

async fn carry(config: Config, recorder: Option<Recorder>) -> io::Result<()> {
    let mut signals = leaving::signals()?;
    let lines = stdio::read_editor(config.settings.max_message_bytes);
    let loopback = config.loopback.clone();
    let mut shell = Shell::new(config, Output::editor());
    shell.recorder = recorder;
    if let Some(loopback) = loopback {
        shell.open_api(&loopback);
    }
    shell.carry(lines, &mut signals).await;
    tokio::select! {
        () = shell.output.finish() => {}
        // A second signal does not wait for an editor that does not read.
        Some(()) = signals.recv() => {}
    }
    Ok(())
}

/// The core and what it acts on.
#[derive(Debug)]
struct Shell {
    core: Core,
    /// When [`Millis`] began.
    start: Instant,
    effects: Vec<Effect>,
    /// Who writes down what happens, if anybody does.
    recorder: Option<Recorder>,
    output: Output,
    /// `None` where the configuration cannot be used.
    remote: Option<Transport>,
    /// The ends of requests; taken at any time.
    ends: mpsc::UnboundedReceiver<Event>,
    ends_sender: mpsc::UnboundedSender<Event>,
    /// What streams deliver; taken while the editor keeps up (P6).
    batches: mpsc::Receiver<Batch>,
    /// Who asks how everything stands.
    inquiries: Inquiries,
    methods: Methods,
    /// Lines of the editor that were read and wait, because it must take its answers first.
    unread: VecDeque<Line>,
    /// Bytes of lines that wait for the editor and answer its own, at the most.
    answers: usize,
    /// Calls of the editor to our own methods that have no answer yet (E1).
    calls: usize,
    code: u8,
    takes_streams: bool,
    is_leaving: bool,
    is_over: bool,
}

impl Shell {
    fn new(config: Config, output: Output) -> Self {
        let (ends_sender, ends) = mpsc::unbounded_channel();
        let (batches_sender, batches) = mpsc::channel(http::BATCHES);
        let inquiries = Inquiries::new(Process::new(config.remote.as_ref()));
        Self {
            code: config.exit_code(),
            methods: Methods::new(inquiries.asking()),
            inquiries,
            remote: config
                .remote
                .map(|remote| Transport::new(remote, ends_sender.clone(), batches_sender)),
            core: Core::new(config.settings),
            start: Instant::now(),
            effects: Vec::new(),
            recorder: None,
            output,
            ends,
            ends_sender,
            batches,
            unread: VecDeque::new(),
            answers: 0,
            calls: 0,
            takes_streams: true,
            is_leaving: false,
            is_over: false,
        }
    }

    /// Opens the loopback API and lets others find it. The editor's session goes on without (A1).
    fn open_api(&mut self, loopback: &Loopback) {
        // The directory first: nobody could call an API that has no record.
        let opened = Directory::open(loopback.runtime_directory.as_deref())
            .and_then(|directory| Entry::new(directory, self.serve(loopback.address)?));
        match opened {
            Ok(entry) => self.inquiries.entry = Some(entry),
            Err(error) => tracing::warn!("`acp-tether sessions` will not show this one: {error}"),
        }
    }

    fn serve(&mut self, address: SocketAddr) -> io::Result<Record> {
        let api = Api::bind(address)
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        let process = Process::clone(&self.inquiries.process);
        let record = Record { process, port: api.port(), token: Token::fresh()?, editor: None };
        let (asking, methods) = (self.inquiries.asking(), self.methods.clone());
        api.serve(&record, asking, methods)?;
        Ok(record)
    }

    /// Takes what happens until the core has ended.
    async fn carry(
        &mut self,
        mut lines: mpsc::Receiver<Vec<Line>>,
        signals: &mut mpsc::Receiver<()>,
    ) {
        let mut watch = Watch::new();
        let mut gone = pin!(leaving::editor_gone(self.output.broken()));
        while !self.is_over {
            let waiting = self.output.waiting();
            self.answers = self.answers.min(waiting);
            self.read_on();
            self.output.send();
            let takes_lines = !self.is_leaving && self.unread.is_empty() && self.keeps_up();
            let takes_streams = takes_streams(self.takes_streams, waiting);
            if takes_streams != mem::replace(&mut self.takes_streams, takes_streams) {
                self.step(Event::Listening(takes_streams));
            }
            tokio::select! {
                batch = lines.recv(), if takes_lines => match batch {
                    Some(batch) => self.unread = batch.into(),
                    None => self.leave(),
                },
                Some(event) = self.ends.recv() => self.ended(event),
                Some(batch) = self.batches.recv(), if takes_streams => self.take_all(batch),
                event = self.inquiries.next() => self.step(event),
                () = self.output.drained(), if !takes_streams => {}
                () = due(self.start, self.core.deadline()) => self.time_has_come().await,
                () = &mut gone, if !self.is_leaving => self.leave(),
                seen = watch.next() => self.seen(seen),
                Some(()) = signals.recv() => self.signalled(),
            }
        }
    }

    /// A time has come. What came before it, while this process did not run, may be what is waited for: that
    /// is taken first (L11).
    async fn time_has_come(&mut self) {
        for _ in 0..HOPS {
            tokio::task::yield_now().await;
        }
        while let Ok(event) = self.ends.try_recv() {
            self.ended(event);
        }
        if self.takes_streams
            && let Ok(batch) = self.batches.try_recv()
        {
            self.take_all(batch);
        }
        if !self.is_over {
            self.step(Event::Timer);
        }
    }

    /// Takes the lines that were read, for as long as the editor takes its answers.
    fn read_on(&mut self) {
        while !self.is_leaving
            && self.keeps_up()
            && let Some(line) = self.unread.pop_front()
        {
            self.answer(line.into());
        }
    }

    fn keeps_up(&self) -> bool {
        self.answers < ANSWER_BYTES && self.calls < CALLS
    }

    /// A request has ended, or a call of the editor.
    fn ended(&mut self, event: Event) {
        match event {
            Event::Rpc(..) => {
                self.calls = self.calls.saturating_sub(1);
                self.answer(event);
            }
            _ => self.step(event),
        }
    }

    /// Takes what the editor wrote, or the answer to it.
    fn answer(&mut self, event: Event) {
        let before = self.output.waiting();
        self.step(event);
        self.answers += self.output.waiting().saturating_sub(before);
    }

    /// Takes what streams have delivered, so that what came together goes on together; a part of it
    /// at a time, because others wait too.
    fn take_all(&mut self, first: Batch) {
        self.take(first);
        for _ in 1..http::BATCHES {
            if self.is_over || !takes_streams(true, self.output.waiting()) {
                return;
            }
            let Ok(batch) = self.batches.try_recv() else { return };
            self.take(batch);
        }
    }

    fn take(&mut self, batch: Batch) {
        // What ended before it came is told before it.
        while let Ok(event) = self.ends.try_recv() {
            self.ended(event);
        }
        for event in batch.events {
            self.step(Event::Stream(batch.stream.clone(), event));
        }
    }

    fn seen(&mut self, seen: Seen) {
        match seen {
            Seen::Sleep => {
                self.inquiries.clock.slept(self.now());
                self.step(Event::Woke);
            }
            Seen::ParentGone if !self.is_leaving => {
                tracing::info!("the process that started this one is gone: ending");
                self.leave();
            }
            Seen::ParentGone => {}
            Seen::Minute => drop(self.inquiries.entry.as_ref().map(Entry::tend)),
        }
    }

    fn signalled(&mut self) {
        if self.is_leaving {
            end(self.code);
        }
        tracing::info!("a signal came: ending");
        self.leave();
    }

    /// The editor is gone.
    fn leave(&mut self) {
        self.is_leaving = true;
        let code = self.code;
        thread::spawn(move || {
            thread::sleep(WATCHDOG);
            end(code);
        });
        // Here, because no way to end comes past this one; it may wait for the disk.
        self.inquiries.entry = None;
        self.step(Event::EditorGone);
    }

    fn step(&mut self, event: Event) {
        let is_awaited = self.remote.as_mut().is_none_or(|remote| remote.is_awaited(&event));
        if self.is_over || !is_awaited {
            return;
        }
        // What is opened again for these would wait in vain on a connection that is dead.
        if let Event::Woke | Event::Inquiry(_, Inquiry::Reconnect) = &event
            && let Some(remote) = &self.remote
        {
            remote.begin_anew();
        }
        let mut effects = mem::take(&mut self.effects);
        let now = self.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.told(now, &event);
        }
        self.core.step(now, event, &mut effects);
        if let Some(recorder) = &mut self.recorder {
            recorder.did(now, &effects, self.core.deadline());
        }
        effects.drain(..).for_each(|effect| self.perform(effect));
        self.effects = effects;
    }

    fn now(&self) -> Millis {
        Millis(milliseconds(self.start.elapsed()))
    }

    fn perform(&mut self, effect: Effect) {
        match (effect, &mut self.remote) {
            (Effect::Line(line), _) => self.output.line(line),
            (Effect::Log(level, text), _) => tell(level, &text),
            (Effect::Exit, _) => self.is_over = true,
            (Effect::Reply(ticket, reply), _) => self.inquiries.replied(ticket, reply),
            (Effect::Changed, _) => self.inquiries.changed(),
            (Effect::Rpc(ticket, request), _) => self.call(ticket, request),
            (effect, Some(remote)) => remote.perform(effect),
            (_, None) => tracing::error!("there is no remote to speak to"),
        }
    }

    /// The editor called a method of our own (E1).
    fn call(&mut self, ticket: Ticket, request: Bytes) {
        self.calls += 1;
        let (methods, ends) = (self.methods.clone(), self.ends_sender.clone());
        tokio::spawn(async move {
            // The core answers what has no answer.
            let response = methods.answer(&request).await.unwrap_or_default();
            // Nobody takes it any more: the process is ending.
            let _ = ends.send(Event::Rpc(ticket, response));
        });
    }
}

/// Ends the process where it stands, and what it started with it.
fn end(code: u8) -> ! {
    credentials::end_commands();
    process::exit(code.into())
}

impl From<Line> for Event {
    fn from(line: Line) -> Self {
        match line {
            Line::Whole(line) => Self::Line(line),
            Line::TooLong => Self::LineTooLong,
        }
    }
}

/// Whether streams are taken while so many bytes wait for the editor. Once they are not, half of
/// that must be written first: the core is not told with every write.
fn takes_streams(takes_them: bool, waiting: usize) -> bool {
    let bound = match takes_them {
        true => limits::EDITOR_QUEUE_BYTES,
        false => limits::EDITOR_QUEUE_BYTES / 2,
    };
    waiting < bound
}

async fn due(start: Instant, deadline: Option<Millis>) {
    match deadline.and_then(|Millis(after)| start.checked_add(Duration::from_millis(after))) {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn tell(level: Level, text: &str) {
    match level {
        Level::Error => tracing::error!("{text}"),
        Level::Warn => tracing::warn!("{text}"),
        Level::Info => tracing::info!("{text}"),
        Level::Debug => tracing::debug!("{text}"),
    }
}
