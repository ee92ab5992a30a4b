//! Whole conversations with the official TypeScript SDK's server, on Node.
//!
//! `integration/peers/typescript/install.sh` installs it. Where Node or the SDK is missing these tests
//! are skipped, with a message; with `CI=true` in the environment they fail.

use super::conversation::{self, Replay};
use super::editor::Editor;
use super::hop::Hop;
use super::unchanged::assert_same;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The server at work, until dropped.
pub struct Served {
    node: Child,
    /// Where it is, without a path.
    pub url: String,
}

#[test]
fn s6_a_whole_conversation_passes_with_the_typescript_server() {
    for flags in [&["--http", "1.1"][..], &[], &["--transport", "ws"]] {
        let Some(agent) = Served::start() else { return };
        let mut editor = Editor::connect(&agent.url, flags);
        conversation::hold_all(&mut editor);
        assert!(editor.close().status.success());
    }
}

#[test]
fn s6_bytes_pass_unchanged_to_and_from_the_typescript_server() {
    let Some(agent) = Served::start() else { return };
    let hop = Hop::to(&agent.url, Vec::new());
    let mut editor = Editor::connect(&hop.url, &["--http", "1.1"]);
    conversation::hold_all(&mut editor);
    assert!(editor.close().status.success());
    assert_same(&editor, &hop.passed());
}

/// This server answers on the connection's stream.
#[test]
fn r12_the_history_of_the_typescript_server_never_follows_the_answer_that_closes_it() {
    for _ in 0..10 {
        let Some(agent) = Served::start() else { return };
        let mut editor = Editor::connect(&agent.url, &[]);
        assert_eq!(conversation::hold_all(&mut editor), Replay::Closed);
    }
}

#[test]
fn p6_ten_thousand_updates_of_the_typescript_server_come_complete_and_in_order() {
    let Some(agent) = Served::start() else { return };
    let mut editor = Editor::connect(&agent.url, &[]);
    conversation::initialize(&mut editor);
    let session = conversation::new_session(&mut editor);
    let id = conversation::say(&mut editor, &session, "flood 10000 40");
    let (before, answer) = editor.until_answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(before.len(), 10_000);
    for (number, update) in before.iter().enumerate() {
        let text = conversation::said(update, &session);
        assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()));
    }
}

impl Served {
    /// Starts it; `None` where it cannot be, and that is no failure.
    pub fn start() -> Option<Self> {
        let mut node = Command::new("node")
            .arg("server.mjs")
            .current_dir(installed()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(node.stdout.take().unwrap()).read_line(&mut port).unwrap();
        assert!(!port.is_empty(), "the server of the TypeScript SDK does not start");
        Some(Self { node, url: format!("http://127.0.0.1:{}", port.trim()) })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

/// Where the SDK is; `None` where it or Node is missing, and that is no failure.
pub fn installed() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("integration/peers/typescript");
    if !place.join("node_modules/@agentclientprotocol/sdk").is_dir() {
        return skip("the TypeScript SDK is not installed");
    }
    match Command::new("node").arg("--version").output() {
        Ok(_) => Some(place),
        Err(_) => skip("there is no `node`"),
    }
}

fn skip<T>(reason: &str) -> Option<T> {
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!is_ci, "{reason}: integration/peers/typescript/install.sh installs it");
    eprintln!("skipped: {reason}; integration/peers/typescript/install.sh installs it");
    None
}
