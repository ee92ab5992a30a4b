//! Measures what a turn and the end cost with the official Rust server and its default socket
//! options. Asserts nothing about time:
//! `cargo test --release --test integration figures -- --ignored --nocapture`.

use super::agent::Served;
use super::conversation::{initialize, new_session, say};
use super::editor::Editor;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TURNS: usize = 100;
/// A turn that waited for a delayed acknowledgement takes longer than this.
const SLOW: Duration = Duration::from_millis(30);

#[test]
#[ignore = "prints figures"]
fn figures_of_turns_over_the_official_server() {
    for flags in [&["--http", "1.1"], &["--http", "2"]] {
        let agent = Served::start();
        let mut editor = Editor::connect(&agent.url, flags);
        initialize(&mut editor);
        let (one, other) = (new_session(&mut editor), new_session(&mut editor));
        let http = flags[1];
        tell(http, "one session", turns(&mut editor, &[&one]));
        tell(http, "two sessions at the same time", turns(&mut editor, &[&one, &other]));
        let start = Instant::now();
        let id = say(&mut editor, &one, "flood 20000 200");
        editor.until_answer(id);
        println!("HTTP/{http:<4} flood of 20,000 updates: {:?}", start.elapsed());
        tell(http, "one session, after the flood", turns(&mut editor, &[&one]));
        tell(http, "two sessions, after the flood", turns(&mut editor, &[&one, &other]));
        let ask = (0..TURNS).map(|_| permission(&mut editor, &one)).collect();
        tell(http, "a permission round trip", ask);
        println!("HTTP/{http:<4} end of input to exit: {:?}", editor.close().after);
    }
}

/// The times of turns that all of the sessions take at once.
fn turns(editor: &mut Editor, sessions: &[&str]) -> Vec<Duration> {
    let turn = |_| {
        let start = Instant::now();
        let mut open: Vec<u64> =
            sessions.iter().map(|session| say(editor, session, "echo hello")).collect();
        while !open.is_empty() {
            let message = editor.message();
            open.retain(|id| message["id"] != *id);
        }
        start.elapsed()
    };
    (0..TURNS).map(turn).collect()
}

fn permission(editor: &mut Editor, session: &str) -> Duration {
    let start = Instant::now();
    let id = say(editor, session, "ask May I?");
    let question: Value = editor.message();
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
    editor.write(&answer.to_string());
    editor.until_answer(id);
    start.elapsed()
}

fn tell(http: &str, what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let slow = times.iter().filter(|time| **time > SLOW).count();
    println!("HTTP/{http:<4} {what}: p50 {p50:?}, p99 {p99:?}, {slow} above {SLOW:?}");
}
