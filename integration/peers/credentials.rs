//! The official server behind a gateway that wants a token, and tokens that expire (L10, X1).

use super::agent::Served;
use super::editor::{Editor, PATIENCE};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Token {
    path: PathBuf,
    _directory: TempDir,
}

impl Token {
    fn holding(text: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, text).unwrap();
        Self { path, _directory: directory }
    }

    fn becomes(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
    }
}

fn initialize(editor: &mut Editor) -> Value {
    let id = editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    editor.until_answer(id).1
}

fn prompt(editor: &mut Editor, session: &Value, text: &str) -> Value {
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
    let id = editor.request("session/prompt", &prompt);
    editor.until_answer(id).1
}

/// A conversation goes on when its token has expired, whatever gives the next one.
#[test]
fn k85_k87_a_token_that_expired_is_read_again_and_the_conversation_goes_on() {
    for flag in ["--bearer-file", "--bearer-command"] {
        let (served, token) = (Served::start(), Token::holding("one\n"));
        served.want("Bearer one");
        let path = token.path.display().to_string();
        let value = if flag == "--bearer-file" { path } else { format!("cat '{path}'") };
        let mut editor = Editor::connect(&served.url, &[flag, &value]);
        assert_eq!(initialize(&mut editor)["result"]["protocolVersion"], 1);
        let session = editor.ask("session/new", &json!({"cwd": "/", "mcpServers": []}));
        token.becomes("two\n");
        served.want("Bearer two");
        let answer = prompt(&mut editor, &session["sessionId"], "echo still here");
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{flag}: {answer}");
        assert_eq!(served.refused(), ["Bearer one"], "{flag}: it is read again and sent once more");
        assert!(editor.close().status.success());
        assert_eq!(served.http_methods().last().unwrap(), "DELETE");
    }
}

#[test]
fn k85_a_token_that_is_refused_twice_is_an_error_and_no_loop() {
    let (served, token) = (Served::start(), Token::holding("one"));
    served.want("Bearer another");
    let path = token.path.display().to_string();
    let mut editor = Editor::connect(&served.url, &["--bearer-file", &path]);
    let answer = initialize(&mut editor);
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert_eq!(answer["error"]["data"]["kind"], "auth", "{answer}");
    assert_eq!(served.refused(), ["Bearer one", "Bearer one"]);
}

/// A second refusal may get the person's account locked.
#[test]
fn l10_a_credential_that_cannot_change_is_sent_once() {
    let (served, environment) = (Served::start(), [("TOKEN", "one")]);
    served.want("Bearer another");
    for flags in [["--bearer-env", "TOKEN"], ["--header", "Authorization: Bearer ${TOKEN}"]] {
        let before = served.refused().len();
        let mut editor = Editor::connect_in(&environment, &served.url, &flags);
        let answer = initialize(&mut editor);
        assert_eq!(answer["error"]["data"]["status"], 401, "{answer}");
        assert_eq!(served.refused()[before..], ["Bearer one"]);
    }
}

#[test]
fn x1_k93_a_token_stands_in_no_argument_no_log_and_no_error() {
    let (served, token) = (Served::start(), Token::holding("s3cret"));
    served.want("Bearer another");
    let log = token.path.with_extension("log");
    let (path, log_path) = (token.path.display().to_string(), log.display().to_string());
    let flags = ["--bearer-file", &path, "--log-level", "trace", "--log-file", &log_path];
    let mut editor = Editor::connect(&served.url, &flags);
    assert!(!initialize(&mut editor).to_string().contains("s3cret"));
    if cfg!(target_os = "linux") {
        let arguments = fs::read(format!("/proc/{}/cmdline", editor.pid())).unwrap();
        assert!(!String::from_utf8_lossy(&arguments).contains("s3cret"));
    }
    editor.close();
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("401") && !log.contains("s3cret"), "{log}");
}

#[test]
fn a_token_that_cannot_be_had_is_the_answer_to_initialize() {
    let told = |flags: &[&str]| {
        let mut editor = Editor::connect("http://127.0.0.1:9", flags);
        let answer = initialize(&mut editor);
        assert_eq!(editor.close().status.code(), Some(78));
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    let message = told(&["--bearer-env", "ACP_TETHER_NO_SUCH_VARIABLE"]);
    assert!(message.contains("is not set"), "{message}");
    let message = told(&["--bearer-file", "/no/such/file"]);
    assert!(message.contains("--bearer-file"), "{message}");
    let message = told(&["--bearer-command", "true", "--header", "Authorization: Basic eA=="]);
    assert!(message.contains("leave one of them out"), "{message}");
}

#[test]
fn s9_a_header_that_is_for_the_proxy_or_is_ours_is_refused() {
    let names =
        ["Proxy-Authorization", "Proxy-Connection", "Content-Encoding", "Sec-WebSocket-Protocol"];
    for name in names {
        let header = format!("{name}: ${{NAME}}");
        let environment = [("NAME", "s3cret")];
        let mut editor =
            Editor::connect_in(&environment, "http://127.0.0.1:9", &["--header", &header]);
        let answer = initialize(&mut editor);
        assert_eq!(answer["error"]["data"]["kind"], "config", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(name), "{answer}");
        assert_eq!(message.contains("use --proxy"), name == "Proxy-Authorization", "{answer}");
    }
}

#[test]
fn k89_k93_a_secret_that_others_can_read_is_warned_of_once_and_masked() {
    let served = Served::start();
    let log = TempDir::new().unwrap();
    let path = log.path().join("log").display().to_string();
    let url = format!("{}/acp?token=s3cret", served.url);
    let flags = ["--header", "Authorization: Bearer s3cret", "--log-file", &path];
    let mut editor = Editor::connect(&url, &flags);
    assert_eq!(initialize(&mut editor)["result"]["protocolVersion"], 1);
    editor.close();
    let log = fs::read_to_string(path).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains(" warning: ")).count(), 2, "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}

/// What the command started ends with the program.
#[cfg(unix)]
#[test]
fn k123_s7_a_token_command_that_hangs_does_not_outlive_the_editor() {
    let started = Token::holding("");
    let command = format!("echo $$ >'{}'; sleep 600", started.path.display());
    let mut editor = Editor::connect("http://127.0.0.1:9", &["--bearer-command", &command]);
    editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let pid = loop {
        let text = fs::read_to_string(&started.path).unwrap();
        if let Ok(pid) = text.trim().parse() {
            break rustix::process::Pid::from_raw(pid).unwrap();
        }
        std::thread::yield_now();
    };
    assert!(editor.close().after < Duration::from_secs(2));
    // The shell and its `sleep` are one group.
    let start = Instant::now();
    while rustix::process::test_kill_process_group(pid).is_ok() {
        assert!(start.elapsed() < PATIENCE, "the command lives on");
        std::thread::yield_now();
    }
}

/// The end of the connection waits for the token, and the second signal for nothing.
#[cfg(unix)]
#[test]
fn k123_a_token_command_that_hangs_does_not_outlive_a_second_signal() {
    use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
    let (served, started) = (Served::start(), Token::holding(""));
    served.want("Bearer one");
    let command = format!(
        "[ -e '{0}.one' ] || {{ touch '{0}.one'; echo one; exit; }}; echo $$ >'{0}'; sleep 600",
        started.path.display()
    );
    let mut editor = Editor::connect(&served.url, &["--bearer-command", &command]);
    initialize(&mut editor);
    served.want("Bearer two");
    editor.request("session/new", &json!({"cwd": "/", "mcpServers": []}));
    let group = loop {
        let text = fs::read_to_string(&started.path).unwrap();
        if let Ok(id) = text.trim().parse() {
            break Pid::from_raw(id).unwrap();
        }
        std::thread::yield_now();
    };
    let process = Pid::from_raw(editor.pid().try_into().unwrap()).unwrap();
    let start = Instant::now();
    // Until it is gone, however many of them it takes for one.
    while test_kill_process_group(group).is_ok() {
        let _ = kill_process(process, Signal::TERM);
        assert!(start.elapsed() < PATIENCE, "the command lives on");
        std::thread::yield_now();
    }
}

/// Also where the token that was read first is refused, and it is the second that does not come.
#[cfg(unix)]
#[test]
fn a_token_command_that_hangs_is_told_before_the_time_to_connect_is_over() {
    let (served, started) = (Served::start(), Token::holding(""));
    served.want("Bearer another");
    let once = format!(
        "[ -e '{0}.one' ] || {{ touch '{0}.one'; echo one; exit; }}",
        started.path.display()
    );
    for command in ["sleep 600", &format!("{once}; sleep 600")] {
        let flags = ["--bearer-command", command, "--connect-timeout", "2s"];
        let mut editor = Editor::connect(&served.url, &flags);
        let answer = initialize(&mut editor);
        assert_eq!(answer["error"]["data"]["kind"], "auth", "{answer}");
        assert_eq!(answer["error"]["data"]["delivery"], "unsent", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("--bearer-command gave no token: it took more than 1."),
            "{message}"
        );
    }
}
