//! Measures what the API costs. Asserts nothing about time:
//! `cargo test --release --test integration figures_of_the_api -- --ignored --nocapture`.

use super::{Caller, Tether, records, yes};
use crate::peers::conversation::say;
use crate::peers::editor::Editor;
use serde_json::json;
use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const TURNS: usize = 100;
const WATCHERS: usize = 10;
const SESSIONS: usize = 1_000;
const CALLS: usize = 200;

#[test]
#[ignore = "prints figures"]
fn figures_of_the_api_watched_by_ten() {
    let mut tether = Tether::start();
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    work(&mut tether);
    for _ in 0..ROUNDS {
        alone.push(work(&mut tether));
        let streams: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let watching = tether.api.watch().into_inner();
                let stream = watching.get_ref().try_clone().unwrap();
                thread::spawn(move || watching.bytes().map_while(Result::ok).count());
                stream
            })
            .collect();
        watched.push(work(&mut tether));
        for stream in streams {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
    let names = ["turns", "updates"];
    for (what, name) in names.into_iter().enumerate() {
        let median = |times: &[[Duration; 2]]| {
            let mut times: Vec<_> = times.iter().map(|times| times[what]).collect();
            times.sort();
            times[times.len() / 2]
        };
        let (alone, watched) = (median(&alone), median(&watched));
        let ratio = alone.as_secs_f64() / watched.as_secs_f64();
        println!("{name}: {alone:?} alone, {watched:?} watched by {WATCHERS}: ratio {ratio:.3}");
    }
}

/// The time of many turns, and of one turn of many updates.
fn work(tether: &mut Tether) -> [Duration; 2] {
    let start = Instant::now();
    for _ in 0..TURNS {
        tether.goes_on();
    }
    let turns = start.elapsed();
    let start = Instant::now();
    let flood = say(&mut tether.editor, &tether.session, "flood 20000 200");
    tether.editor.until_answer(flood);
    [turns, start.elapsed()]
}

#[test]
#[ignore = "prints figures"]
fn figures_of_the_api_with_a_thousand_sessions() {
    let (url, _agent) = yes::start();
    let runtime = tempfile::tempdir().unwrap();
    let directory = runtime.path().to_string_lossy().into_owned();
    let mut editor = Editor::connect(&url, &["--http", "2", "--runtime-dir", &directory]);
    editor.ask("initialize", &json!({"protocolVersion": 1}));
    for number in 0..SESSIONS {
        let turn = say(&mut editor, &format!("session number {number}"), "anything");
        editor.until_answer(turn);
    }
    let api = Caller::new(&records(runtime.path())[0]);
    let mut times: Vec<_> = (0..CALLS)
        .map(|_| {
            let start = Instant::now();
            let answer = api.get("/status");
            let took = start.elapsed();
            assert_eq!(answer.json()["sessions"].as_array().unwrap().len(), SESSIONS);
            took
        })
        .collect();
    times.sort();
    let (p50, p99) = (times[CALLS / 2], times[CALLS * 99 / 100]);
    println!("GET /status with {SESSIONS} sessions: p50 {p50:?}, p99 {p99:?}");
}
