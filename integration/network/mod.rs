//! The built program in private networks: behind TLS of their own, and behind proxies.
//!
//! | file | proves or holds |
//! |---|---|
//! | [`relay`] | passes connections on as TLS terminators, forward proxies and SOCKS proxies do |
//! | [`authority`] | an authority that signs certificates |
//! | `tls` | whom we believe and who we are (X1, S9) |
//! | `proxy` | which way we go (K91, K93) |

pub mod authority;
mod proxy;
pub mod relay;
mod tls;

use crate::peers::agent::Served;
use crate::peers::conversation::{initialize, new_session, prompt, said, say};
use crate::peers::editor::{Editor, PATIENCE};
use relay::Relay;
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

/// Time for more than one try, and for the first on a slow machine.
const TRIED_SHORTLY: [&str; 2] = ["--connect-timeout", "2s"];

/// Two turns, and between them one whose streams are cut on the way and healed.
fn converse(editor: &mut Editor, served: &Served, relay: &Relay) {
    initialize(editor);
    let session = new_session(editor);
    prompt(editor, &session);
    let held = say(editor, &session, "hold");
    assert_eq!(said(&editor.message(), &session), "holding");
    let streams = || served.http_methods().iter().filter(|method| *method == "GET").count();
    let before = streams();
    relay.cut();
    // That of the connection and that of the session.
    until("the streams are not opened again", || streams() == before + 2);
    editor.notify("session/cancel", &json!({"sessionId": session}));
    let (before, answer) = editor.until_answer(held);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["result"]["stopReason"], "cancelled", "{answer}");
    prompt(editor, &session);
    assert!(editor.close().status.success());
}

fn until(otherwise: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{otherwise}");
        thread::yield_now();
    }
}

/// The answer to `initialize`, whatever it is.
fn answer(editor: &mut Editor) -> Value {
    let id = editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    editor.until_answer(id).1
}

/// Why the first try to connect fails, as it is logged; the answer to `initialize` waits for more tries.
fn refusal(url: &str, flags: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("log");
    let log = || fs::read_to_string(&path).unwrap_or_default();
    let flags =
        [flags, &["--connect-timeout", "1m", "--log-file", path.to_str().unwrap()]].concat();
    let mut editor = Editor::connect(url, &flags);
    editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    until("nothing fails", || log().contains(" warning: the remote agent "));
    log()
}

/// What a person reads of an error.
fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Why the configuration cannot be used, which is the exit code too.
fn unusable(url: &str, flags: &[&str]) -> String {
    let mut editor = Editor::connect(url, flags);
    let answer = answer(&mut editor);
    assert_eq!(answer["error"]["data"]["kind"], "config", "{answer}");
    assert_eq!(editor.close().status.code(), Some(78));
    message(&answer).to_owned()
}
