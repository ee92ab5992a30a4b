//! An editor that reads slowly: nothing is lost, nothing is out of order, and little is held (P6).

use super::agent::Served;
use super::conversation::{initialize, new_session, said, say};
use super::editor::Editor;
use serde_json::Value;
use std::thread;
use std::time::Duration;

/// Bytes of text in one update.
const BYTES: usize = 200;
/// How many lines the editor reads slowly, and how slowly.
const SLOW: usize = 300;
const PAUSE: Duration = Duration::from_millis(1);

#[test]
fn p6_a_flood_over_http_1_reaches_a_slow_editor_complete_and_in_order() {
    flood(&["--http", "1.1"], 100_000);
}

#[test]
fn p6_a_flood_over_http_2_reaches_a_slow_editor_complete_and_in_order() {
    flood(&["--http", "2"], 20_000);
}

fn flood(flags: &[&str], updates: usize) {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, flags);
    initialize(&mut editor);
    let session = new_session(&mut editor);
    let id = say(&mut editor, &session, &format!("flood {updates} {BYTES}"));
    for number in 0..updates {
        let line = String::from_utf8(editor.line()).unwrap();
        if number < SLOW {
            thread::sleep(PAUSE);
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(said(&message, &session).len(), BYTES);
        }
        let is_next = line.contains(&format!("\"text\":\"{number} x"));
        assert!(is_next && line.contains("\"session/update\""), "not update {number}: {line}");
    }
    let (before, answer) = editor.until_answer(id);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_lean(&editor, 64);
    assert!(editor.close().status.success());
}

/// The most memory that the program held at any time stays under so many MiB.
#[cfg(target_os = "linux")]
fn assert_lean(editor: &Editor, mebibytes: usize) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", editor.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < mebibytes * 1024, "the program held {peak} kB");
}

#[cfg(not(target_os = "linux"))]
fn assert_lean(_editor: &Editor, _mebibytes: usize) {}
