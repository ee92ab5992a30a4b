//! Writes the log to standard error or to a file, never to standard output (X2).
//!
//! Only what this crate says is ever written, at any level: other crates print headers and payload
//! (X1). A thread of its own writes, and lines are left out when it cannot keep up, so that an
//! editor that does not read our standard error cannot stop the session. Lines that repeat are folded,
//! except those that only a debugging person asks for.

mod folding;

use self::folding::Folding;
use crate::cli::LogLevel;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The name that every target of ours begins with.
const OURS: &str = "acp_tether";
/// What stands before each line of ours, after its time.
const OURS_BEFORE: &[u8] = b"acp-tether: ";
/// Lines that wait for the writing thread.
const QUEUE: usize = 1024;
/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_millis(100);

/// The running log.
#[derive(Debug)]
pub struct Log {
    sink: Sink,
}

/// Where log lines go.
#[derive(Debug)]
pub enum Place {
    /// Standard error.
    StandardError,
    /// The file of `--log-file`.
    File(File),
}

impl Place {
    /// Opens a log file, to append to it.
    pub fn file(path: &Path) -> io::Result<Self> {
        File::options().create(true).append(true).open(path).map(Self::File)
    }

    fn line(&self) -> Line {
        match self {
            Self::StandardError => Line { time: false, color: io::stderr().is_terminal() },
            Self::File(_) => Line { time: true, color: false },
        }
    }

    fn write(&mut self, text: &[u8]) {
        // There is nowhere left to tell a failure to.
        let _ = match self {
            Self::StandardError => io::stderr().write_all(text),
            Self::File(file) => file.write_all(text),
        };
    }
}

/// Starts the log. `RUST_LOG`, where it is set, comes before `level`.
pub fn start(level: LogLevel, place: Place) -> Log {
    let line = place.line();
    let (filter, wrong) = filter(level, &std::env::var("RUST_LOG").unwrap_or_default());
    let looks_closer = most(&filter).is_none_or(|level| level > LevelFilter::INFO);
    let sink = Sink::start(place, !looks_closer);
    // Fails where a log runs already: that one stays.
    let _ = subscriber(filter, line, sink.clone()).try_init();
    if let Some(wrong) = wrong {
        tracing::warn!("RUST_LOG cannot be read and is left aside: {wrong}");
    }
    Log { sink }
}

fn subscriber(filter: Targets, line: Line, sink: Sink) -> impl Subscriber + Send + Sync {
    let layer = tracing_subscriber::fmt::layer()
        .event_format(line)
        .with_ansi(line.color)
        // It would print to standard error itself, and panic where that is closed.
        .log_internal_errors(false)
        .with_writer(sink)
        .with_filter(filter)
        .with_filter(filter_fn(|metadata| metadata.target().starts_with(OURS)));
    tracing_subscriber::registry().with(layer)
}

impl Log {
    /// Waits until what was logged has been written, for a moment at most.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.sink.messages.try_send(Message::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FLUSH);
        }
    }
}

fn filter(level: LogLevel, wanted: &str) -> (Targets, Option<String>) {
    let usual = || Targets::new().with_target(OURS, tracing_level(level));
    if wanted.trim().is_empty() {
        return (usual(), None);
    }
    match wanted.parse() {
        Ok(filter) => (filter, None),
        Err(error) => (usual(), Some(error.to_string())),
    }
}

/// The least important level that passes.
fn most(filter: &Targets) -> Option<LevelFilter> {
    Filter::<Registry>::max_level_hint(filter)
}

fn tracing_level(level: LogLevel) -> Level {
    match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    }
}

/// How a log line looks.
#[derive(Clone, Copy)]
struct Line {
    time: bool,
    color: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.time {
            write!(writer, "{} ", humantime::format_rfc3339_millis(SystemTime::now()))?;
        }
        let (word, style) = match *event.metadata().level() {
            Level::ERROR => ("error", anstyle::AnsiColor::Red.on_default()),
            Level::WARN => ("warning", anstyle::AnsiColor::Yellow.on_default()),
            Level::INFO => ("info", anstyle::AnsiColor::Green.on_default()),
            Level::DEBUG => ("debug", anstyle::Style::new().dimmed()),
            Level::TRACE => ("trace", anstyle::Style::new().dimmed()),
        };
        if self.color {
            write!(writer, "acp-tether: {style}{word}{style:#}: ")?;
        } else {
            write!(writer, "acp-tether: {word}: ")?;
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[derive(Debug)]
enum Message {
    Line { text: Vec<u8>, folds: bool },
    Flush(SyncSender<()>),
}

/// Takes lines to the writing thread, without ever waiting for it.
#[derive(Clone, Debug)]
struct Sink {
    messages: SyncSender<Message>,
    left_out: Arc<AtomicU64>,
    /// Lines that repeat are folded, unless a person looks closer.
    may_fold: bool,
    /// This line is.
    folds: bool,
}

impl Sink {
    fn start(place: Place, may_fold: bool) -> Self {
        let (messages, queue) = sync_channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&left_out);
        std::thread::spawn(move || write_all(place, &queue, &count));
        Self { messages, left_out, may_fold, folds: false }
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self {
        Self { folds: self.may_fold && *metadata.level() <= Level::INFO, ..self.clone() }
    }
}

impl Write for Sink {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = Message::Line { text: text.to_vec(), folds: self.folds };
        if self.messages.try_send(line).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut place: Place, queue: &Receiver<Message>, left_out: &AtomicU64) {
    let mut folding = Folding::default();
    loop {
        let mut out = Vec::new();
        match queue.recv_timeout(folding::WINDOW) {
            Ok(Message::Line { text, folds: true }) => {
                folding.take(&text, Instant::now(), &mut out);
            }
            Ok(Message::Line { text, folds: false }) => out = text,
            Ok(Message::Flush(done)) => {
                folding.tell(&mut out);
                place.write(&out);
                out.clear();
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => folding.tell_old(Instant::now(), &mut out),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        place.write(&out);
        match left_out.swap(0, Ordering::Relaxed) {
            0 => {}
            count => place.write(format!("acp-tether: {count} lines left out here\n").as_bytes()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn x2_rust_log_comes_before_the_flag_and_a_wrong_one_is_left_aside() {
        let cases = [
            ("", LevelFilter::INFO, false),
            ("  ", LevelFilter::INFO, false),
            ("debug", LevelFilter::DEBUG, false),
            ("acp_tether=trace", LevelFilter::TRACE, false),
            ("acp_tether=loud", LevelFilter::INFO, true),
        ];
        for (wanted, expected, is_wrong) in cases {
            let (filter, wrong) = filter(LogLevel::Info, wanted);
            assert_eq!(most(&filter), Some(expected), "{wanted:?}");
            assert_eq!(wrong.is_some(), is_wrong, "{wanted:?}");
        }
    }

    #[test]
    fn x1_only_our_own_lines_are_written_at_any_level() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let place = Place::file(&path).unwrap();
        let (line, sink) = (place.line(), Sink::start(place, true));
        let (filter, _) = filter(LogLevel::Warn, "trace");
        tracing::subscriber::with_default(subscriber(filter, line, sink.clone()), || {
            tracing::info!(target: "hyper::proto", "authorization: Bearer s3cret");
            tracing::trace!("ours");
        });
        Log { sink }.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("acp-tether: trace: ours"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}
