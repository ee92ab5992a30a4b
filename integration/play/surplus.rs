//! Nothing may come out that a file does not name: not a line, and no request of any method.

use super::HEADER;
use acp_tether::transcript::format::Transcript;
use acp_tether::transcript::live_player::{self, Bridge};
use acp_tether::transcript::player::Failure;
use acp_tether::transcript::virtual_player;

const PROMPT: &str = r#"{"editor":{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}}"#;
const POST: &str = r#"{"gets":{"method":"POST","session":"s1"}}"#;
const UPDATE: &str = r#"{"stream":"s1","event":{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1"}}}"#;
const INITIALIZE: &str =
    r#"{"editor":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}}"#;
const INITIALIZED: &str = r#"{"gets":{"method":"POST"},"answer":{"status":200,"headers":{"Acp-Connection-Id":"c1"},"body":{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}}}"#;

const END: [&str; 2] = [r#"{"editor_end":true}"#, r#"{"exit":0}"#];

/// How both players find a file, the program first.
fn play(start: &str, steps: &[&str]) -> [Result<(), Failure>; 2] {
    let header = HEADER.replace('}', &format!(r#","start":"{start}"}}"#));
    let transcript = Transcript::parse(&[&[header.as_str()], steps].concat().join("\n")).unwrap();
    let bridge = Bridge::connect(env!("CARGO_BIN_EXE_acp-tether"));
    [live_player::play(&transcript, &bridge), virtual_player::play(&transcript)]
}

/// Plays steps that hold where `taken_by` takes what comes of them, and fail where nothing does: after
/// `follows`, when it has come on any machine.
fn is_surplus(start: &str, steps: &[&str], taken_by: &str, follows: &[&str], shown: &str) {
    for result in play(start, &[steps, &[taken_by]].concat()) {
        result.unwrap_or_else(|failure| panic!("{failure}"));
    }
    for result in play(start, &[steps, follows].concat()) {
        let failure = result.unwrap_err();
        assert_eq!(failure.step, "at the end of the file");
        assert!(failure.reason.contains(shown), "{failure}");
    }
}

#[test]
fn a_line_that_no_step_names_fails_the_file() {
    is_surplus(
        "session",
        &[UPDATE],
        r#"{"sees_like":{"method":"session/update"}}"#,
        &[r#"{"stream":"s1","end":"clean"}"#, r#"{"gets":{"method":"GET","session":"s1"}}"#],
        r#"line {"jsonrpc":"2.0","method":"session/update""#,
    );
}

#[test]
fn a_post_that_no_step_names_fails_the_file() {
    is_surplus(
        "session",
        &[PROMPT],
        POST,
        &END,
        r#"request POST of session "s1" {"jsonrpc":"2.0","id":1"#,
    );
}

#[test]
fn a_get_that_no_step_names_fails_the_file() {
    is_surplus(
        "none",
        &[INITIALIZE, INITIALIZED, r#"{"sees_like":{"id":1}}"#],
        r#"{"gets":{"method":"GET","session":null}}"#,
        // It is posted once the stream is there.
        &[
            r#"{"editor":{"jsonrpc":"2.0","id":2,"method":"session/list"}}"#,
            r#"{"gets":{"method":"POST","body_like":{"id":2}}}"#,
        ],
        "request GET of no session",
    );
}

#[test]
fn a_delete_that_no_step_names_fails_the_file() {
    is_surplus(
        "session",
        &[END[0]],
        r#"{"gets":{"method":"DELETE"}}"#,
        &END[1..],
        "request DELETE of no session",
    );
}
