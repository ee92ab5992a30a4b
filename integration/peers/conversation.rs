//! The conversations that an editor holds with every server, whoever wrote it.

use super::editor::Editor;
use serde_json::{Value, json};

/// When the answer to `session/load` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// After the history, which it closes.
    Closed,
    /// Before some of the history.
    Overtaken,
}

/// Holds all of them one after another, in one process.
pub fn hold_all(editor: &mut Editor) -> Replay {
    initialize(editor);
    let session = new_session(editor);
    prompt(editor, &session);
    permission(editor, &session);
    cancel(editor, &session);
    let replay = load(editor, &session);
    two_sessions(editor);
    list_resume_and_close(editor, &session);
    replay
}

/// `initialize`: the answer is the agent's own.
pub fn initialize(editor: &mut Editor) {
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let result = editor.ask("initialize", &params);
    assert_eq!(result["agentInfo"]["name"], "scripted");
    assert_eq!(result["agentCapabilities"]["loadSession"], true);
}

/// A new session's id.
pub fn new_session(editor: &mut Editor) -> String {
    let result = editor.ask("session/new", &json!({"cwd": "/project", "mcpServers": []}));
    result["sessionId"].as_str().expect("the session has an id").to_owned()
}

/// Starts a turn; the id of its request.
pub fn say(editor: &mut Editor, session: &str, text: &str) -> u64 {
    let prompt = json!([{"type": "text", "text": text}]);
    editor.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}))
}

/// The text of an update of `session`.
pub fn said<'a>(message: &'a Value, session: &str) -> &'a str {
    assert_eq!(message["method"], "session/update", "{message}");
    assert_eq!(message["params"]["sessionId"], session, "{message}");
    let text = &message["params"]["update"]["content"]["text"];
    text.as_str().unwrap_or_else(|| panic!("no text: {message}"))
}

/// One turn.
pub fn prompt(editor: &mut Editor, session: &str) {
    let id = say(editor, session, "echo hello from far away");
    let (before, answer) = editor.until_answer(id);
    let told: Vec<&str> = before.iter().map(|message| said(message, session)).collect();
    assert_eq!(told, ["hello from far away"]);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}

fn permission(editor: &mut Editor, session: &str) {
    for choice in ["yes", "no"] {
        let id = say(editor, session, "ask Write a file");
        let question = editor.message();
        assert_eq!(question["method"], "session/request_permission", "{question}");
        assert_eq!(question["params"]["toolCall"]["title"], "Write a file");
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": choice}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
        editor.write(&answer.to_string());
        let (before, answer) = editor.until_answer(id);
        let told: Vec<&str> = before.iter().map(|message| said(message, session)).collect();
        assert_eq!(told, [format!("chosen: {choice}")]);
        assert_eq!(answer["result"]["stopReason"], "end_turn");
    }
}

fn cancel(editor: &mut Editor, session: &str) {
    let id = say(editor, session, "hold");
    assert_eq!(said(&editor.message(), session), "holding");
    editor.notify("session/cancel", &json!({"sessionId": session}));
    let (before, answer) = editor.until_answer(id);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["result"]["stopReason"], "cancelled");
}

/// Loads the session, whose history comes whole and in order.
fn load(editor: &mut Editor, session: &str) -> Replay {
    let params = json!({"sessionId": session, "cwd": "/project", "mcpServers": []});
    let id = editor.request("session/load", &params);
    let history = [
        "echo hello from far away",
        "hello from far away",
        "ask Write a file",
        "chosen: yes",
        "ask Write a file",
        "chosen: no",
        "hold",
        "holding",
    ];
    let (mut told, answer) = editor.until_answer(id);
    assert!(answer.get("result").is_some(), "{answer}");
    let replay = if told.len() == history.len() { Replay::Closed } else { Replay::Overtaken };
    while told.len() < history.len() {
        told.push(editor.message());
    }
    let told: Vec<&str> = told.iter().map(|message| said(message, session)).collect();
    assert_eq!(told, history);
    replay
}

/// While one session holds, another one works; then the first is cancelled.
fn two_sessions(editor: &mut Editor) {
    let (one, other) = (new_session(editor), new_session(editor));
    let held = say(editor, &one, "hold");
    assert_eq!(said(&editor.message(), &one), "holding");
    for turn in 0..5 {
        let id = say(editor, &other, &format!("echo {turn}"));
        assert_eq!(said(&editor.message(), &other), turn.to_string());
        let (before, answer) = editor.until_answer(id);
        assert!(before.is_empty(), "{before:?}");
        assert_eq!(answer["result"]["stopReason"], "end_turn");
    }
    editor.notify("session/cancel", &json!({"sessionId": one}));
    let (before, answer) = editor.until_answer(held);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["result"]["stopReason"], "cancelled");
}

fn list_resume_and_close(editor: &mut Editor, session: &str) {
    let listed = editor.ask("session/list", &json!({}));
    let ids: Vec<&Value> =
        listed["sessions"].as_array().unwrap().iter().map(|one| &one["sessionId"]).collect();
    assert_eq!(ids.len(), 3, "{listed}");
    assert!(ids.iter().any(|id| *id == session), "{listed}");
    editor.ask("session/resume", &json!({"sessionId": session, "cwd": "/project"}));
    prompt(editor, session);
    editor.ask("session/close", &json!({"sessionId": session}));
    let id = say(editor, session, "echo closed");
    let (before, answer) = editor.until_answer(id);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["error"]["code"], -32602, "the agent's own error: {answer}");
    let other = new_session(editor);
    prompt(editor, &other);
}
