//! Whole conversations with the official Rust SDK's server, from an editor on the program's pipes.

use super::agent::Served;
use super::conversation::{self, Replay};
use super::editor::Editor;

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

fn converse(flags: &[&str]) {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, flags);
    let replay = conversation::hold_all(&mut editor);
    // This server answers on the session's own stream, so nothing can overtake.
    assert_eq!(replay, Replay::Closed);
    assert!(editor.close().status.success());
}
