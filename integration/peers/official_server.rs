//! Whole conversations with the official Rust SDK's server, from an editor on the program's pipes.

use super::agent::Served;
use super::conversation::{self, Replay};
use super::editor::Editor;
use serde_json::json;

#[test]
fn s6_a_whole_conversation_passes_over_http_1() {
    converse(&["--http", "1.1"]);
}

#[test]
fn s6_a_whole_conversation_passes_over_http_2() {
    converse(&["--http", "2"]);
}

#[test]
fn l6_a_whole_conversation_passes_over_what_the_server_speaks() {
    converse(&[]);
}

#[test]
fn w1_a_whole_conversation_passes_over_a_socket() {
    converse(&["--transport", "ws"]);
}

/// The server refuses bodies over 16 MiB, some of them before it has read them.
#[test]
fn l10_a_prompt_that_is_too_large_for_the_server_fails_alone() {
    for flags in [&["--http", "1.1"], &["--http", "2"]] {
        let agent = Served::start();
        let mut editor = Editor::connect(&agent.url, flags);
        conversation::initialize(&mut editor);
        let session = conversation::new_session(&mut editor);
        let held = conversation::say(&mut editor, &session, "hold");
        assert_eq!(conversation::said(&editor.message(), &session), "holding");
        let text = format!("echo {}", "x".repeat(17 * 1024 * 1024));
        let refused = conversation::say(&mut editor, &session, &text);
        let (before, answer) = editor.until_answer(refused);
        assert!(before.is_empty(), "{before:?}");
        let data = &answer["error"]["data"];
        // It closes the connection at once, and then the refusal may never be read.
        assert!(data["status"] == 413 || data["delivery"] == "unknown", "{flags:?}: {answer}");
        editor.notify("session/cancel", &json!({"sessionId": session}));
        let (before, answer) = editor.until_answer(held);
        assert!(before.is_empty(), "{before:?}");
        assert_eq!(answer["result"]["stopReason"], "cancelled");
    }
}

fn converse(flags: &[&str]) {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, flags);
    let replay = conversation::hold_all(&mut editor);
    // This server answers on the session's own stream, so nothing can overtake.
    assert_eq!(replay, Replay::Closed);
    assert!(editor.close().status.success());
}
