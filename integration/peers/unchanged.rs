//! Compares the bytes of every message on the editor's pipes with those on the wire (S5, S6, P4).
//!
//! The official server prints JSON itself, and knows no number like `1e400`. So a proxy stands before
//! it, which records what passes and lets the server say such things.

use super::agent::Served;
use super::conversation::{self, new_session, say};
use super::editor::Editor;
use super::hop::{Hop, Passed};
use serde_json::Value;

/// JSON that any program which reads and prints it again would change.
const ODD: &str = concat!(
    r#"{ "z":9007199254740993,"a" : 1.0,"b":1e400,"b":-0,"b":1E+2,"\u0061":"\u00e9\/\ud83d\ude00é😀","#,
    "\t\"A\":[ ],\"\":{\"dup\":1,\"dup\":2}, \"big\":123456789012345678901234567890.000 }",
);

#[test]
fn s6_bytes_pass_unchanged_in_both_directions() {
    let agent = Served::start();
    let hop = Hop::to(&agent.url, Vec::new());
    let mut editor = Editor::connect(&hop.url, &["--http", "1.1"]);
    conversation::hold_all(&mut editor);
    assert!(editor.close().status.success());
    assert_same(&editor, &hop.passed());
}

#[test]
fn s6_what_the_editor_writes_oddly_reaches_the_server_as_it_was_written() {
    let agent = Served::start();
    let hop = Hop::to(&agent.url, Vec::new());
    let mut editor = Editor::connect(&hop.url, &["--http", "1.1"]);
    conversation::initialize(&mut editor);
    let session = new_session(&mut editor);
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","method":"_odd/connection","params":{ODD}}}"#),
        format!(
            r#" {{ "extra" : {ODD} , "params":{{"_meta":{ODD},"sessionId":"{session}"}},"method":"_odd/session","jsonrpc":"2.0"}} "#
        ),
        format!(
            r#"{{"method":"_odd/\u0065scaped","params":{{"sessi\u006fnId":"{session}","x":{ODD}}},"jsonrpc":"\u0032.0"}}"#
        ),
        format!(
            r#"{{"id":"\u00e9 \"","method":"_odd/request","params":{{"sessionId":"{session}","x":{ODD}}},"jsonrpc":"2.0"}}"#
        ),
    ];
    for line in &lines {
        editor.write(line);
    }
    // The server cannot read the request, and tells so under no id. The editor has its own answer.
    editor.ask("session/list", &Value::Object(serde_json::Map::new()));
    assert!(editor.close().status.success());
    let passed = hop.passed();
    for line in &lines {
        assert!(
            passed.posts.iter().any(|post| post == line.as_bytes()),
            "{line}\nis not among\n{}",
            shown(&passed.posts)
        );
    }
}

#[test]
fn s6_what_the_server_writes_oddly_reaches_the_editor_as_it_was_written() {
    let mark = format!("{:m<width$}", "mark-", width = ODD.len() - 2);
    let swap = (format!("\"{mark}\"").into_bytes(), ODD.as_bytes().to_vec());
    let agent = Served::start();
    let hop = Hop::to(&agent.url, vec![swap]);
    let mut editor = Editor::connect(&hop.url, &["--http", "1.1"]);
    conversation::initialize(&mut editor);
    let session = new_session(&mut editor);
    // In a notification.
    let id = say(&mut editor, &session, &format!("echo {mark}"));
    let update = text(editor.line());
    assert!(update.contains(ODD), "{update}");
    editor.until_answer(id);
    // In a result, under an id that the server spells in its own way.
    editor.write(&format!(
        r#"{{"jsonrpc":"2.0","id":"\u0061\/","method":"session/prompt","params":{{"sessionId":"{session}","prompt":[],"_meta":{{"mark":"{mark}"}}}}}}"#
    ));
    let answer = text(editor.line());
    assert!(answer.contains(ODD) && answer.contains(r#""id":"a/""#), "{answer}");
    // In a request, and oddly answered: once as far as the official server can read it, once beyond.
    for (odd, is_understood) in [(ODD.replace("1e400", "1e300"), true), (ODD.to_owned(), false)] {
        say(&mut editor, &session, &format!("ask {mark}"));
        let question = text(editor.line());
        assert!(question.contains(ODD), "{question}");
        let id = id_of(&question);
        editor.write(&format!(
            r#"{{ "result":{{"_meta":{odd},"outcome":{{"outcome":"selected","optionId":"y\u0065s"}}}}, "extra":{odd}, "id" : {id},"jsonrpc":"2.0"}}"#
        ));
        if is_understood {
            assert!(text(editor.line()).contains("chosen: yes"));
            editor.line();
        }
    }
    assert!(editor.close().status.success());
    // The last turn is open at the end, so its answer is the program's own (S7, P2).
    let own = editor.seen.pop().map(text).expect("an answer");
    assert!(own.contains("\"connection_lost\""), "{own}");
    assert_same(&editor, &hop.passed());
}

#[test]
fn s5_a_raw_line_separator_reaches_the_server_as_it_is_and_the_editor_as_its_escape() {
    let agent = Served::start();
    let hop = Hop::to(&agent.url, Vec::new());
    let mut editor = Editor::connect(&hop.url, &["--http", "1.1"]);
    conversation::initialize(&mut editor);
    let session = new_session(&mut editor);
    let id = say(&mut editor, &session, "echo one\u{2028}two\u{2029}three");
    let update = text(editor.line());
    assert!(update.contains(r"one\u2028two\u2029three"), "{update}");
    editor.until_answer(id);
    assert!(editor.close().status.success());
    let passed = hop.passed();
    let is_raw =
        |line: &Vec<u8>| String::from_utf8_lossy(line).contains("one\u{2028}two\u{2029}three");
    assert!(passed.posts.iter().any(is_raw), "{}", shown(&passed.posts));
    assert!(passed.messages.iter().any(is_raw), "{}", shown(&passed.messages));
    assert!(editor.seen.iter().all(|line| !is_raw(line)), "{}", shown(&editor.seen));
}

/// Every line that the editor wrote was posted, and every message of the server was written to it,
/// with the same bytes but for the ids of the agent's requests.
pub(super) fn assert_same(editor: &Editor, passed: &Passed) {
    let mut seen: Vec<String> = editor.seen.iter().cloned().map(text).collect();
    let mut sent: Vec<String> = editor.sent.iter().cloned().map(text).collect();
    let mut posts: Vec<String> = passed.posts.iter().cloned().map(text).collect();
    let mut messages: Vec<String> = passed.messages.iter().cloned().map(text).collect();

    // What the server could not read it answers under no id, and nobody waits for that (P2).
    messages.retain(|message| !message.contains("\"id\":null"));

    let questions = |lines: &[String]| -> Vec<String> {
        let is_question = |line: &&String| line.contains("\"session/request_permission\"");
        lines.iter().filter(is_question).map(|line| id_of(line)).collect()
    };
    let (theirs, ours) = (questions(&messages), questions(&seen));
    assert_eq!(theirs.len(), ours.len());
    for (their, our) in theirs.iter().zip(&ours) {
        let put_back = |lines: &mut Vec<String>, is_wanted: fn(&str) -> bool| {
            let line = lines
                .iter_mut()
                .find(|line| is_wanted(line) && id_of(line) == *our)
                .expect("the question or its answer");
            *line = replace_id(line, our, their);
        };
        put_back(&mut seen, |line| line.contains("\"session/request_permission\""));
        put_back(&mut sent, |line| line.contains("\"outcome\""));
    }
    for lines in [&mut seen, &mut sent, &mut posts, &mut messages] {
        lines.sort();
    }
    assert_eq!(posts, sent, "posted, and written by the editor");
    assert_eq!(seen, messages, "read by the editor, and sent by the server");
}

/// The id of a message as it stands there.
fn id_of(line: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Shape<'a> {
        #[serde(borrow)]
        id: Option<&'a serde_json::value::RawValue>,
    }
    let shape: Shape<'_> = serde_json::from_str(line).expect("a message");
    shape.id.map_or_else(String::new, |id| id.get().to_owned())
}

fn replace_id(line: &str, old: &str, new: &str) -> String {
    let (before, after) = line.rsplit_once("\"id\"").expect("an id");
    let (space, rest) = after.split_once(old).expect("the id");
    assert!(space.trim() == ":", "{line}");
    format!("{before}\"id\"{space}{new}{rest}")
}

fn text(line: Vec<u8>) -> String {
    String::from_utf8(line).expect("UTF-8 (S1)")
}

fn shown(lines: &[Vec<u8>]) -> String {
    lines.iter().map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}
