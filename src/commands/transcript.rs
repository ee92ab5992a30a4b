//! `acp-tether transcript play`: plays scripted transcripts around a bridge, and tells for each file
//! whether it holds, or the first difference.

use super::table::cut;
use crate::cli::{Play, Transcript as Words};
use crate::printable::{printable, tell};
use crate::transcript::format::{Player, Refused, Transcript};
use crate::transcript::live_player::{self, Bridge};
use crate::transcript::player::Failure;
use crate::transcript::virtual_player;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// The command line was wrong.
const USAGE: u8 = 2;
/// Lines of the file that are shown before the one that does not hold.
const CONTEXT: usize = 3;
/// Columns of the longest line that is shown whole.
const WIDEST: usize = 1_000;

/// A transcript's file.
struct File {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl File {
    /// What it says; where it is no text, its own characters only.
    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// What plays a transcript.
enum With {
    Core,
    Bridge(Bridge, Duration),
}

/// What became of a file.
enum Outcome {
    Passed,
    Failed(Failure),
    Refused(Refused),
    Skipped(&'static str),
}

/// How many files came to what.
#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Does what the words after `transcript` say, and returns the exit code.
pub fn run(words: &Words) -> ExitCode {
    let Words::Play(flags) = words;
    match with(flags).and_then(|with| Ok((files(&flags.files)?, with))) {
        Ok((files, with)) => play_all(&files, &with, flags.jobs.get()),
        Err(reason) => {
            tell(&reason);
            ExitCode::from(USAGE)
        }
    }
}

fn with(flags: &Play) -> Result<With, String> {
    if flags.core {
        return Ok(With::Core);
    }
    let bridge = match &flags.bridge {
        Some(command) => Bridge::parse(command)
            .and_then(|bridge| is_there(&bridge.program).map(|()| bridge))
            .map_err(|reason| format!("the command {command:?} cannot be run: {reason}"))?,
        None => Bridge::connect(std::env::current_exe().map_err(|error| error.to_string())?),
    };
    Ok(With::Bridge(bridge, Duration::from_millis(flags.slack.0)))
}

/// Looks for a program as the system does, so that its absence is told once and not for each file.
fn is_there(program: &OsStr) -> Result<(), String> {
    let path = Path::new(program);
    let found = if path.components().count() > 1 {
        path.exists()
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        // Elsewhere a name stands for files with several endings.
        !cfg!(unix) || std::env::split_paths(&folders).any(|folder| folder.join(path).exists())
    };
    found.then_some(()).ok_or_else(|| format!("there is no program {program:?}"))
}

/// The named files, and all `.ndjson` files below the named directories.
fn files(named: &[PathBuf]) -> Result<Vec<File>, String> {
    let mut paths = Vec::new();
    for path in named {
        let before = paths.len();
        collect(path, &mut paths).map_err(unreadable(path))?;
        paths[before..].sort();
        if paths.len() == before {
            return Err(format!("there is no .ndjson file below {}", path.display()));
        }
    }
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).map_err(unreadable(&path))?;
        Ok(File { path, bytes })
    };
    paths.into_iter().map(read).collect()
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{} cannot be read: {error}", path.display())
}

fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        paths.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "ndjson") {
            collect(&path, paths)?;
        }
    }
    Ok(())
}

/// Plays `jobs` files at once, and tells of them in their order.
fn play_all(files: &[File], with: &With, jobs: usize) -> ExitCode {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let (played, outcomes) = channel();
    let mut count = Count::default();
    thread::scope(|scope| {
        for _ in 0..jobs.min(files.len()) {
            let (played, next) = (played.clone(), &next);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(place) else { return };
                    let start = Instant::now();
                    let outcome = play(&file.bytes, with);
                    // The receiver outlives the scope.
                    let _ = played.send((place, outcome, start.elapsed()));
                }
            });
        }
        drop(played);
        let mut early = BTreeMap::new();
        let mut told = 0;
        for (place, outcome, time) in outcomes {
            early.insert(place, (outcome, time));
            while let Some((outcome, time)) = early.remove(&told) {
                count.add(&outcome);
                // Nobody reads it: the exit code tells.
                let _ = report(&files[told], &outcome, time);
                told += 1;
            }
        }
    });
    let Count { passed, failed, skipped } = count;
    let seconds = start.elapsed().as_secs_f64();
    let _ = writeln!(
        io::stdout(),
        "{passed} passed, {failed} failed, {skipped} skipped ({seconds:.1} s)"
    );
    if passed + failed == 0 {
        tell("nothing was played: every file was skipped");
    }
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play(bytes: &[u8], with: &With) -> Outcome {
    let transcript = match Transcript::parse_bytes(bytes) {
        Ok(transcript) => transcript,
        Err(refused) => return Outcome::Refused(refused),
    };
    let result = match with {
        With::Core if !transcript.header.players.contains(&Player::Virtual) => {
            return Outcome::Skipped("only a program can be asked what it asks");
        }
        With::Core => virtual_player::play(&transcript),
        With::Bridge(bridge, slack) => match bridge.unfit(&transcript) {
            Some(reason) => return Outcome::Skipped(reason),
            None => live_player::play_with_slack(&transcript, bridge, *slack),
        },
    };
    result.map_or_else(Outcome::Failed, |()| Outcome::Passed)
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) | Outcome::Refused(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }
}

fn report(file: &File, outcome: &Outcome, time: Duration) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let path = printable(&file.path.to_string_lossy());
    let seconds = time.as_secs_f64();
    match outcome {
        Outcome::Passed => writeln!(output, "ok       {path} ({seconds:.2} s)"),
        Outcome::Skipped(reason) => writeln!(output, "skipped  {path}: {reason}"),
        Outcome::Refused(Refused { line, reason }) => {
            writeln!(output, "FAILED   {path}: it is no transcript")?;
            let reason = format!("line {line}: {reason}");
            show(&mut output, "    ", excerpt(&file.text(), *line, None))?;
            show(&mut output, "    ", [reason])
        }
        Outcome::Failed(failure) => {
            writeln!(output, "FAILED   {path} ({seconds:.2} s)")?;
            // A step of the prelude, and the end, are no lines of the file.
            let other = (!is_line(&file.text(), failure)).then_some(failure.step.as_str());
            show(&mut output, "    ", excerpt(&file.text(), failure.line, other))?;
            show(&mut output, "    ", failure.reason.lines())?;
            if !failure.log.is_empty() {
                writeln!(output, "    the end of the bridge's log:")?;
                show(&mut output, "      ", failure.log.lines())?;
            }
            Ok(())
        }
    }
}

fn is_line(text: &str, failure: &Failure) -> bool {
    text.lines().nth(failure.line.saturating_sub(1)).is_some_and(|line| line.trim() == failure.step)
}

/// The lines of a file up to one that is marked, or up to what comes behind it.
fn excerpt(text: &str, line: usize, behind: Option<&str>) -> Vec<String> {
    let lines: Vec<_> = text.lines().enumerate().take(line).collect();
    let marked = |number: usize| if number == line && behind.is_none() { '>' } else { ' ' };
    let mut shown: Vec<String> = lines[lines.len().saturating_sub(CONTEXT + 1)..]
        .iter()
        .map(|(index, text)| format!("{} {:>4}  {}", marked(index + 1), index + 1, text.trim()))
        .collect();
    shown.extend(behind.map(|step| format!(">       {step}")));
    shown
}

/// Writes lines that others wrote, so that none commands the terminal or fills it.
fn show<Line: AsRef<str>>(
    output: &mut impl Write,
    indent: &str,
    lines: impl IntoIterator<Item = Line>,
) -> io::Result<()> {
    lines.into_iter().try_for_each(|line| {
        writeln!(output, "{indent}{}", cut(&printable(line.as_ref()), WIDEST, false))
    })
}
