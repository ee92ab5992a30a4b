//! From the end of the editor's input to the end of the process (S7).

use super::agent::Served;
use super::conversation::{hold_all, initialize, new_session, said, say};
use super::editor::{Editor, PATIENCE};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// What S7 allows.
const ALLOWED: Duration = Duration::from_secs(2);
/// What a busy machine may take longer to start a thread, or to tell of an end.
const MARGIN: Duration = Duration::from_millis(500);

#[test]
fn s7_at_the_end_of_input_the_connection_is_deleted_and_the_process_is_gone() {
    for flags in [&["--http", "1.1"], &["--http", "2"]] {
        let agent = Served::start();
        let mut editor = Editor::connect(&agent.url, flags);
        hold_all(&mut editor);
        assert!(!agent.http_methods().contains(&"DELETE".to_owned()));
        let end = editor.close();
        assert_eq!(end.status.code(), Some(0));
        assert!(end.after < ALLOWED, "{:?}", end.after);
        let deleted = agent.http_methods().iter().filter(|method| *method == "DELETE").count();
        assert_eq!(deleted, 1);
    }
}

#[test]
fn s7_a_request_that_is_open_gets_time_for_its_answer() {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, &[]);
    initialize(&mut editor);
    let session = new_session(&mut editor);
    let id = say(&mut editor, &session, "echo last words");
    let end = editor.close();
    assert_eq!(end.status.code(), Some(0));
    let last = editor.seen.split_off(editor.seen.len() - 2);
    let last: Vec<Value> = last.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
    assert_eq!(said(&last[0], &session), "last words");
    assert_eq!(
        (&last[1]["id"], &last[1]["result"]["stopReason"]),
        (&json!(id), &json!("end_turn"))
    );
}

#[test]
fn s7_an_open_turn_that_is_never_answered_does_not_hold_the_end_up() {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, &[]);
    initialize(&mut editor);
    let session = new_session(&mut editor);
    let id = say(&mut editor, &session, "hold");
    assert_eq!(said(&editor.message(), &session), "holding");
    let end = editor.close();
    assert_eq!(end.status.code(), Some(0));
    assert!(end.after < ALLOWED, "{:?}", end.after);
    let last: Value = serde_json::from_slice(editor.seen.last().unwrap()).unwrap();
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(id), &json!(-32603)), "P2: {last}");
    assert!(agent.http_methods().contains(&"DELETE".to_owned()));
}

#[test]
fn s7_a_server_that_never_answers_does_not_hold_the_end_up() {
    for flags in [&["--http", "1.1"][..], &["--http", "2"], &[]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, heard) = channel();
        thread::spawn(move || {
            for accepted in listener.incoming() {
                let (mut accepted, sender) = (accepted.unwrap(), sender.clone());
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while accepted.read(&mut buffer).is_ok_and(|length| length > 0) {
                        let _ = sender.send(());
                    }
                });
            }
        });
        let mut editor = Editor::connect(&url, flags);
        editor.request("initialize", &json!({"protocolVersion": 1}));
        heard.recv_timeout(PATIENCE).expect("the program speaks to the server");
        let end = editor.close();
        assert_eq!(end.status.code(), Some(0));
        assert!(end.after < ALLOWED + MARGIN, "{flags:?}: {:?}", end.after);
        let last: Value = serde_json::from_slice(editor.seen.last().unwrap()).unwrap();
        assert_eq!(
            (&last["id"], &last["error"]["code"]),
            (&json!(1), &json!(-32603)),
            "P2: {last}"
        );
    }
}
