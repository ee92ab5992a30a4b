//! What is measured of a bridge, each time with a server of its own.

use crate::bare::Told;
use crate::editor::Editor;
use crate::server::{FirstPost, Server};
use crate::{Bridge, Kind};
use clap::ValueEnum;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TURNS: usize = 2_000;
/// Starts of one round, of which the median counts.
const STARTS: usize = 5;
const IDLE: Duration = Duration::from_secs(30);
const IDLE_SESSIONS: usize = 64;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// From the start to the answer of `initialize`, to the first POST, and from the end of input to the exit.
    Start,
    /// The round trip of 2,000 turns.
    Turns,
    /// 100,000 updates of 200 bytes in one turn.
    Flood,
    /// 2,000 updates of 64 KiB in one turn.
    Large,
    /// One update of 40 MB.
    Huge,
    /// Memory with 1, 100 and 1,000 sessions, and how long it takes to open them.
    Sessions,
    /// What 64 idle sessions cost in 30 seconds.
    Idle,
}

/// A figure's name, with its unit, and its value.
pub type Figure = (&'static str, f64);

impl Measure {
    /// Measures all bridges one after another; with each figure, whose it is.
    pub fn take(self, bridges: &[Bridge]) -> Vec<(usize, Figure)> {
        if self == Self::Idle {
            return idle(bridges);
        }
        let mut all = Vec::new();
        for (number, bridge) in bridges.iter().enumerate() {
            let server = Server::start();
            let figures = match bridge.kind {
                Kind::Bare => self.of_bare(&bridge.command, &server.url),
                Kind::Bridge => self.of_bridge(&bridge.command, &server.url),
            };
            all.extend(figures.into_iter().map(|figure| (number, figure)));
        }
        all
    }

    fn of_bridge(self, command: &[String], url: &str) -> Vec<Figure> {
        match self {
            Self::Start => start(command, url),
            Self::Turns => {
                let mut editor = Editor::connect(command, url);
                let session = editor.new_session();
                editor.turn(&session, "echo warm");
                let before = editor.used();
                let mut turn = || editor.turn(&session, "echo hello").expect("the bridge lives");
                let seconds = (0..TURNS).map(|_| turn().took.as_secs_f64()).collect();
                let cpu = editor.used().zip(before).map(|(after, before)| after.cpu - before.cpu);
                turns(seconds, cpu)
            }
            Self::Flood => flood(command, url, 100_000, 200),
            Self::Large => flood(command, url, 2_000, 64 << 10),
            Self::Huge => flood(command, url, 1, 40_000_000),
            Self::Sessions => sessions(command, url),
            Self::Idle => Vec::new(),
        }
    }

    fn of_bare(self, command: &[String], url: &str) -> Vec<Figure> {
        let told = |count: usize, prompt: &str| {
            let mut bare = Command::new(&command[0]);
            let bare = bare.args(&command[1..]).args([url, &count.to_string(), prompt]);
            let output = bare.output().expect("the bare client starts");
            let errors = String::from_utf8_lossy(&output.stderr);
            serde_json::from_slice::<Told>(&output.stdout).unwrap_or_else(|_| panic!("{errors}"))
        };
        let flood = |count: usize, bytes: usize| {
            let Told { turns, updates, cpu } = told(1, &format!("flood {count} {bytes}"));
            flooded(count, bytes, turns[0], updates, cpu)
        };
        match self {
            Self::Turns => {
                let Told { turns: seconds, cpu, .. } = told(TURNS, "echo hello");
                turns(seconds, cpu)
            }
            Self::Flood => flood(100_000, 200),
            Self::Large => flood(2_000, 64 << 10),
            Self::Huge => flood(1, 40_000_000),
            Self::Start | Self::Sessions | Self::Idle => Vec::new(),
        }
    }
}

fn start(command: &[String], url: &str) -> Vec<Figure> {
    let (mut answers, mut posts, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let start = Instant::now();
        let editor = Editor::connect(command, url);
        answers.push(milliseconds(start.elapsed()));
        exits.push(milliseconds(editor.close()));
        let seen = FirstPost::before(url);
        let start = Instant::now();
        let editor = Editor::connect(command, &seen.url);
        posts.push(milliseconds(seen.at() - start));
        editor.close();
    }
    vec![
        ("start to first POST, ms", median(posts)),
        ("start to answer of initialize, ms", median(answers)),
        ("end of input to exit, ms", median(exits)),
    ]
}

fn turns(mut seconds: Vec<f64>, cpu: Option<f64>) -> Vec<Figure> {
    seconds.sort_by(f64::total_cmp);
    let at = |percent: usize| seconds[seconds.len() * percent / 100] * 1e6;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let cpu = cpu.map(|cpu| ("turn, CPU, µs", cpu * 1e6 / TURNS as f64));
    [(P50, at(50)), ("turn, p99, µs", at(99))].into_iter().chain(cpu).collect()
}

/// The name of the figure that the bare client's is subtracted from.
pub const P50: &str = "turn, p50, µs";

fn flood(command: &[String], url: &str, count: usize, bytes: usize) -> Vec<Figure> {
    let mut editor = Editor::connect(command, url);
    let session = editor.new_session();
    editor.turn(&session, "echo warm");
    let before = editor.used();
    let Some(turn) = editor.turn(&session, &format!("flood {count} {bytes}")) else {
        eprintln!("ended in a flood of {count} times {bytes} bytes: {command:?}");
        return Vec::new();
    };
    let used = editor.used();
    let cpu = used.zip(before).map(|(after, before)| after.cpu - before.cpu);
    let mut figures = flooded(count, bytes, turn.took.as_secs_f64(), turn.updates, cpu);
    if bytes == 200 {
        figures.extend(used.map(|used| ("100,000 × 200 B, peak memory, MB", used.peak)));
    }
    figures
}

fn flooded(count: usize, bytes: usize, took: f64, updates: usize, cpu: Option<f64>) -> Vec<Figure> {
    assert_eq!(updates, count, "updates are missing");
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (count, bytes) = (count as f64, bytes as f64);
    let (speed, name) = match bytes {
        200.0 => (("100,000 × 200 B, messages a second", count / took), "100,000 × 200 B, CPU s"),
        65_536.0 => (("2,000 × 64 KiB, MB/s", count * bytes / took / 1e6), "2,000 × 64 KiB, CPU s"),
        _ => (("one of 40 MB, s", took), "one of 40 MB, CPU s"),
    };
    [Some(speed), cpu.map(|cpu| (name, cpu))].into_iter().flatten().collect()
}

fn sessions(command: &[String], url: &str) -> Vec<Figure> {
    let mut editor = Editor::connect(command, url);
    let mut figures = Vec::new();
    let mut open = 0;
    let start = Instant::now();
    for (count, name) in [
        (1, "peak memory, 1 session, MB"),
        (100, "peak memory, 100 sessions, MB"),
        (1_000, "peak memory, 1,000 sessions, MB"),
    ] {
        while open < count {
            editor.new_session();
            open += 1;
        }
        figures.extend(editor.used().map(|used| (name, used.peak)));
    }
    figures.push(("opening 1,000 sessions, s", start.elapsed().as_secs_f64()));
    figures
}

/// All at once, because they do nothing.
fn idle(bridges: &[Bridge]) -> Vec<(usize, Figure)> {
    let idle = bridges.iter().enumerate().filter(|(_, bridge)| bridge.kind == Kind::Bridge);
    let idle: Vec<_> = idle
        .map(|(number, bridge)| {
            let server = Server::start();
            let mut editor = Editor::connect(&bridge.command, &server.url);
            (0..IDLE_SESSIONS).for_each(|_| drop(editor.new_session()));
            (number, server, editor)
        })
        .collect();
    sleep(Duration::from_secs(1));
    let used = || idle.iter().map(|(_, _, editor)| editor.used()).collect::<Vec<_>>();
    let before = used();
    sleep(IDLE);
    let mut all = Vec::new();
    for (((number, ..), before), after) in idle.iter().zip(before).zip(used()) {
        if let (Some(before), Some(after)) = (before, after) {
            let seconds = IDLE.as_secs_f64();
            let cpu = (after.cpu - before.cpu) / seconds * 100.0;
            all.push((*number, ("idle with 64 sessions, % of a core", cpu)));
            let sleeps = (after.sleeps - before.sleeps) / seconds;
            all.push((*number, ("idle with 64 sessions, wake-ups a second", sleeps)));
        }
    }
    all
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
