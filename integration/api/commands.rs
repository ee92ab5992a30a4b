//! `acp-tether sessions` and `acp-tether close`, and what they make of records that are not true (A2).

use super::schema::follows;
use super::{Tether, connect, records};
use crate::peers::agent::Served;
use crate::peers::conversation::{initialize, new_session, said, say};
use crate::peers::editor::PATIENCE;
use crate::program::program;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

fn command(runtime: &Path, words: &[&str]) -> Command {
    let mut command = program();
    command.args(words).arg("--runtime-dir").arg(runtime);
    command
}

/// The exit code, standard output and standard error.
fn run(runtime: &Path, words: &[&str]) -> (i32, String, String) {
    let ended = command(runtime, words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

fn listed(runtime: &Path) -> Value {
    let (code, output, errors) = run(runtime, &["sessions", "--json"]);
    assert_eq!((code, &*errors), (0, ""));
    let listed = serde_json::from_str(&output).unwrap();
    follows("sessions", &listed);
    listed
}

/// A program at a port that answers every request, by its path, with a status and a JSON text, and
/// keeps what came.
fn serve(answer: fn(&str) -> Option<(u16, String)>) -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (came, requests) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = vec![0; 4096];
            let length = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let _ = came.send(head);
            match answer(&path) {
                Some((status, body)) => {
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} Any\r\nConnection: close\r\n");
                    let _ = write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}");
                }
                // Says nothing, and stays.
                None => std::mem::forget(stream),
            }
        }
    });
    (port, requests)
}

/// Puts a record there by hand.
fn put(runtime: &Path, id: &str, port: u16, pid: u32) {
    let mut directory = runtime.to_owned();
    for part in ["acp-tether", "instances"] {
        directory.push(part);
        let _ = fs::create_dir(&directory);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let record = json!({
        "id": id, "pid": pid, "port": port, "token": "0".repeat(64), "startedAt": 1,
        "version": "0.1.0", "remote": "http://127.0.0.1/acp",
    });
    follows("instance", &record);
    fs::write(directory.join(format!("{id}.json")), record.to_string()).unwrap();
}

/// The id of a process that has ended.
fn dead() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// KS19.
#[test]
fn a2_a_port_that_is_another_program_s_gets_no_token_and_its_record_is_swept() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, requests) = serve(|_| Some((200, r#"{"id":"another"}"#.to_owned())));
    put(runtime.path(), "stale", port, std::process::id());
    assert_eq!(listed(runtime.path()), json!({"instances": []}));
    assert!(records(runtime.path()).is_empty());
    assert!(requests.recv().unwrap().starts_with("GET /healthz "));
    let rest: Vec<_> = requests.try_iter().collect();
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn a2_no_token_leaves_before_the_instance_is_known() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, requests) = serve(|path| match path {
        "/healthz" => Some((200, r#"{"id":"right"}"#.to_owned())),
        _ => Some((200, json!({"instance": {}, "link": {}, "sessions": []}).to_string())),
    });
    put(runtime.path(), "right", port, std::process::id());
    assert_eq!(run(runtime.path(), &["sessions"]).0, 0);
    let first = requests.recv().unwrap().to_ascii_lowercase();
    assert!(first.starts_with("get /healthz ") && !first.contains("authorization"), "{first}");
    let second = requests.recv().unwrap().to_ascii_lowercase();
    assert!(second.contains(&format!("authorization: bearer {}", "0".repeat(64))), "{second}");
}

#[test]
fn a2_a_killed_process_is_not_shown_and_its_record_is_swept() {
    let tether = Tether::start();
    assert_eq!(listed(tether.runtime.path())["instances"].as_array().unwrap().len(), 1);
    drop(tether.editor);
    assert_eq!(records(tether.runtime.path()).len(), 1);
    assert_eq!(listed(tether.runtime.path()), json!({"instances": []}));
    assert!(records(tether.runtime.path()).is_empty());
}

#[test]
fn a2_without_a_runtime_directory_there_is_a_private_one_of_the_system() {
    for named in ["", "relative", "/no/such/directory"] {
        let temporary = tempfile::tempdir().unwrap();
        let mut command = program();
        command.arg("sessions").current_dir(temporary.path());
        command.env("XDG_RUNTIME_DIR", named).env("TMPDIR", temporary.path()).env_remove("HOME");
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{named}: {ended:?}");
        let mut directory = temporary.path().to_owned();
        for name in ["acp-tether-", "acp-tether", "instances"] {
            let entries: Vec<_> = fs::read_dir(&directory).unwrap().collect();
            assert_eq!(entries.len(), 1, "{named}: {entries:?}");
            directory = entries[0].as_ref().unwrap().path();
            assert!(directory.file_name().unwrap().to_string_lossy().starts_with(name));
            let mode = fs::metadata(&directory).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{named}: {}", directory.display());
        }
    }
}

/// K143.
#[test]
fn a2_a_directory_that_is_open_to_others_is_refused_with_what_to_do() {
    let runtime = tempfile::tempdir().unwrap();
    put(runtime.path(), "planted", 1, std::process::id());
    let directory = runtime.path().join("acp-tether/instances");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let (code, output, errors) = run(runtime.path(), &["sessions"]);
    assert_eq!((code, &*output), (1, ""));
    assert!(errors.contains("is open to other users: remove it, or use --runtime-dir"), "{errors}");
}

/// A process that is stopped, or slow, comes back.
#[test]
fn a2_the_record_of_a_silent_process_stays_for_as_long_as_the_process_is_there() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, _requests) = serve(|_| None);
    put(runtime.path(), "alive", port, std::process::id());
    put(runtime.path(), "dead", port, dead());
    assert_eq!(listed(runtime.path()), json!({"instances": []}));
    let left: Vec<_> = records(runtime.path()).iter().map(|record| record["id"].clone()).collect();
    assert_eq!(left, ["alive"]);
}

/// Bytes past any answer of ours are not read: who is asked may be anybody.
#[test]
fn a2_who_answers_without_end_is_nobody() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, _requests) = serve(|_| {
        Some((200, format!(r#"{{"id":"endless","padding":"{}"}}"#, "x".repeat(100_000))))
    });
    put(runtime.path(), "endless", port, std::process::id());
    assert_eq!(listed(runtime.path()), json!({"instances": []}));
}

#[test]
fn a2_a_machine_without_certificates_lists_its_sessions() {
    let runtime = tempfile::tempdir().unwrap();
    let none = runtime.path().join("none");
    let mut command = command(runtime.path(), &["sessions"]);
    command.env("SSL_CERT_FILE", &none).env("SSL_CERT_DIR", &none);
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn sessions_shows_every_editor_in_aligned_columns() {
    let mut tether = Tether::start();
    tether.goes_on();
    let mut other = connect(&tether.agent.url, tether.runtime.path());
    initialize(&mut other);
    let waiting = new_session(&mut other);
    say(&mut other, &waiting, "ask May I?");
    other.message();
    let (code, output, errors) = run(tether.runtime.path(), &["sessions"]);
    assert_eq!((code, &*errors), (0, ""));
    let lines: Vec<&str> = output.lines().collect();
    let [head, first, second] = lines[..] else { panic!("{output}") };
    for (column, one, another) in [
        ("EDITOR", "an editor ", "- "),
        ("REMOTE", &*tether.agent.url, &*tether.agent.url),
        ("SESSION", &*tether.session, &*waiting),
        ("TITLE", "- ", "- "),
        ("CWD", "/project ", "/project "),
        ("STATUS", "idle ", "waiting for permission "),
        ("AGE", "", ""),
    ] {
        let at = head.find(column).unwrap();
        assert!(first[at..].starts_with(one), "{column}:\n{output}");
        assert!(second[at..].starts_with(another), "{column}:\n{output}");
    }
    assert!(second.ends_with('s'), "{output}");
    assert_eq!(listed(tether.runtime.path())["instances"].as_array().unwrap().len(), 2);
}

#[test]
fn what_an_agent_calls_its_sessions_never_commands_the_terminal() {
    const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\nevil\u{9b}31m\u{202e}";
    let runtime = tempfile::tempdir().unwrap();
    let (port, _requests) = serve(|path| match path {
        "/healthz" => Some((200, r#"{"id":"hostile"}"#.to_owned())),
        _ => {
            let evil = EVIL;
            let session = json!({
                "sessionId": evil, "title": evil, "cwd": evil, "status": evil, "waitingFor": evil,
                "remote": evil, "updatedAt": 1,
            });
            let instance = json!({"remote": evil, "editor": {"name": evil}});
            let sessions = json!([session, {"sessionId": format!("{evil}2")}]);
            let text = json!({"instance": instance, "link": {}, "sessions": sessions}).to_string();
            Some((200, text))
        }
    });
    put(runtime.path(), "hostile", port, std::process::id());
    for words in
        [&["sessions"][..], &["sessions", "--json"], &["close", EVIL], &["close", "\u{1b}x"]]
    {
        let (_, output, errors) = run(runtime.path(), words);
        let text = format!("{output}{errors}");
        assert!(text.contains("evil") || words[1] == "\u{1b}x", "{words:?}: {text:?}");
        let commands = |char: char| char.is_control() && char != '\n';
        assert!(!text.contains(commands), "{words:?}: {text:?}");
        assert!(!text.contains('\u{202e}'), "{words:?}: {text:?}");
    }
}

#[test]
fn close_tells_how_it_ended_in_its_exit_code_and_a_sentence() {
    let mut tether = Tether::start();
    let runtime = tether.runtime.path().to_owned();
    let ends = |words: &[&str], code: i32, told: &str| {
        let (ended, output, errors) = run(&runtime, words);
        assert_eq!(ended, code, "{words:?}: {output}{errors}");
        assert!(format!("{output}{errors}").contains(told), "{words:?}: {output}{errors}");
    };
    let session = tether.session.clone();
    // Not listed yet (T2).
    ends(&["close", &session], 4, "no session");
    let turn = say(&mut tether.editor, &session, "hold");
    assert_eq!(said(&tether.editor.message(), &session), "holding");
    ends(&["close", &session], 1, "is running and stays");
    tether.editor.notify("session/cancel", &json!({"sessionId": session}));
    tether.editor.until_answer(turn);
    ends(&["close"], 2, "--help");
    ends(&["close", ""], 2, "--help");
    ends(&["close", &session, "--instance", ""], 2, "--help");
    ends(&["close", "no-such-session"], 4, "no session no-such-session is listed");
    ends(&["close", &session, "--instance", "none"], 4, "no session");
    let id = tether.record["id"].as_str().unwrap();
    // A prefix is another session's id.
    ends(&["close", &session[..session.len() - 1]], 4, "no session");
    ends(&["close", &session, "--instance", &id[..4]], 0, "closed session");
    ends(&["close", &session], 4, "no session");
    tether.goes_on();
    ends(&["close", &session], 0, "closed session");
}

#[test]
fn close_says_which_instances_did_not_answer_where_nobody_else_has_the_session() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, _requests) = serve(|_| None);
    put(runtime.path(), "silent", port, std::process::id());
    let (port, _requests) = serve(|path| match path {
        "/healthz" => Some((200, r#"{"id":"failing"}"#.to_owned())),
        _ => Some((503, String::new())),
    });
    put(runtime.path(), "failing", port, std::process::id());
    for (words, missing) in [
        (&["close", "any"][..], &["silent", "failing"][..]),
        (&["close", "any", "--instance", "sil"], &["silent"]),
        (&["close", "any", "--instance", "fail"], &["failing"]),
    ] {
        let (code, _, errors) = run(runtime.path(), words);
        assert_eq!(code, 1, "{errors}");
        for name in ["silent", "failing"] {
            assert_eq!(errors.contains(name), missing.contains(&name), "{words:?}: {errors}");
        }
    }
    assert_eq!(run(runtime.path(), &["close", "any", "--instance", "other"]).0, 4);
}

#[test]
fn close_asks_which_instance_is_meant_where_several_have_the_session() {
    let mut tether = Tether::start();
    tether.goes_on();
    let mut other = connect(&tether.agent.url, tether.runtime.path());
    initialize(&mut other);
    let params = json!({"sessionId": tether.session, "cwd": "/project", "mcpServers": []});
    let load = other.request("session/load", &params);
    other.until_answer(load);
    let (code, _, errors) = run(tether.runtime.path(), &["close", &tether.session]);
    assert_eq!(code, 2);
    let first = tether.record["id"].as_str().unwrap();
    assert!(errors.contains(&format!("--instance {first}")), "{errors}");
    assert_eq!(errors.matches("--instance").count(), 2, "{errors}");
    let words = ["close", &tether.session, "--instance", first];
    assert_eq!(run(tether.runtime.path(), &words).0, 0);
    assert_eq!(run(tether.runtime.path(), &words).0, 4);
    assert_eq!(run(tether.runtime.path(), &["close", &tether.session]).0, 0);
}

/// `sessions --watch --json`, killed at the end of the test.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(runtime: &Path) -> Self {
        let mut command = command(runtime, &["sessions", "--watch", "--json"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The instances of the next line.
    fn next(&self) -> Vec<Value> {
        let line = self.lines.recv_timeout(PATIENCE).unwrap();
        let value = serde_json::from_str(&line).unwrap();
        follows("sessions", &value);
        value["instances"].as_array().unwrap().clone()
    }

    /// Waits for a line that is as wanted.
    fn until(&self, wanted: impl Fn(&[Value]) -> bool) {
        while !wanted(&self.next()) {}
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sessions_that_watches_sees_editors_come_work_and_go() {
    let agent = Served::start();
    let runtime = tempfile::tempdir().unwrap();
    let watching = Watching::start(runtime.path());
    watching.until(<[Value]>::is_empty);
    let mut editor = connect(&agent.url, runtime.path());
    initialize(&mut editor);
    watching.until(|instances| instances.len() == 1);
    let session = new_session(&mut editor);
    say(&mut editor, &session, "hold");
    watching.until(|instances| instances[0]["sessions"][0]["status"] == "running");
    editor.notify("session/cancel", &json!({"sessionId": session}));
    watching.until(|instances| instances[0]["sessions"][0]["status"] == "idle");
    assert!(editor.close().status.success());
    watching.until(<[Value]>::is_empty);
    let mut killed = connect(&agent.url, runtime.path());
    initialize(&mut killed);
    watching.until(|instances| instances.len() == 1);
    drop(killed);
    watching.until(<[Value]>::is_empty);
}

#[test]
fn sessions_that_watches_shows_first_what_there_is() {
    let mut tether = Tether::start();
    tether.goes_on();
    let watching = Watching::start(tether.runtime.path());
    let first = watching.next();
    assert_eq!(first[0]["sessions"][0]["sessionId"], *tether.session);
}

/// Where a look had to end first, no change would be seen before it has given the silent one up.
#[test]
fn sessions_that_watches_shows_changes_while_it_looks_for_others() {
    let mut tether = Tether::start();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    put(tether.runtime.path(), "silent", silent.local_addr().unwrap().port(), std::process::id());
    let watching = Watching::start(tether.runtime.path());
    watching.until(|instances| instances.len() == 1);
    let was_seen_within_a_look = (1..=20).any(|turns| {
        let (mut look, _) = silent.accept().unwrap();
        let start = Instant::now();
        tether.goes_on();
        watching.until(|instances| instances[0]["sessions"][0]["turns"] == turns);
        let took = start.elapsed();
        look.set_nonblocking(true).unwrap();
        let mut request = Vec::new();
        let end = look.read_to_end(&mut request);
        let is_open = end.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        // A look gives it a second.
        is_open && took < Duration::from_millis(500)
    });
    assert!(was_seen_within_a_look);
}

#[test]
fn sessions_that_watches_shows_an_instance_that_refuses_it_and_does_not_insist() {
    let runtime = tempfile::tempdir().unwrap();
    let (port, requests) = serve(|path| match path {
        "/healthz" => Some((200, r#"{"id":"crowded"}"#.to_owned())),
        "/events" => Some((503, String::new())),
        _ => Some((200, json!({"instance": {}, "link": {}, "sessions": []}).to_string())),
    });
    put(runtime.path(), "crowded", port, std::process::id());
    let _watching = Watching::start(runtime.path());
    let (mut looks, mut attempts) = (0, 0);
    while looks < 6 {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        looks += usize::from(request.starts_with("GET /healthz "));
        attempts += usize::from(request.starts_with("GET /events "));
        assert!(attempts <= 2);
    }
    assert!(attempts > 0);
}
