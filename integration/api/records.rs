//! How the processes of one user find each other (A2).

use super::{Caller, connect, records};
use crate::peers::agent::Served;
use crate::peers::conversation::initialize;
use crate::peers::editor::Editor;
use std::fs;

#[test]
fn a2_a_record_is_there_while_the_process_is_and_holds_no_secret_of_the_url() {
    let agent = Served::start();
    let runtime = tempfile::tempdir().unwrap();
    let mut editor = connect(&format!("{}/acp?key=s3cret", agent.url), runtime.path());
    initialize(&mut editor);
    let record = records(runtime.path()).pop().unwrap();
    assert_eq!(record["remote"], format!("{}/acp", agent.url));
    assert_eq!(record["pid"], editor.pid());
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    assert!(editor.close().status.success());
    assert!(records(runtime.path()).is_empty());
}

#[test]
fn a1_a_port_that_is_taken_costs_the_editor_nothing_and_is_told_to_the_log_alone() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (agent, runtime) = (Served::start(), tempfile::tempdir().unwrap());
    let port = taken.local_addr().unwrap().port();
    let (address, log) = (format!("127.0.0.1:{port}"), runtime.path().join("log"));
    let (directory, log_flag) = (runtime.path().to_string_lossy(), log.to_string_lossy());
    let flags = ["--api", &address, "--runtime-dir", &directory, "--log-file", &log_flag];
    let mut editor = Editor::connect(&agent.url, &flags);
    initialize(&mut editor);
    assert!(editor.close().status.success());
    assert!(records(runtime.path()).is_empty());
    let told = fs::read_to_string(log).unwrap();
    assert!(told.contains(&address), "{told}");
    taken.set_nonblocking(true).unwrap();
    assert!(taken.accept().is_err());
}

#[test]
fn a1_off_is_no_port_and_no_record() {
    let (agent, runtime) = (Served::start(), tempfile::tempdir().unwrap());
    let directory = runtime.path().to_string_lossy().into_owned();
    let flags = ["--api", "off", "--runtime-dir", &directory];
    let mut editor = Editor::connect(&agent.url, &flags);
    initialize(&mut editor);
    assert_eq!(fs::read_dir(runtime.path()).unwrap().count(), 0);
}

#[test]
fn a2_a_directory_that_cannot_be_had_costs_the_editor_nothing() {
    let (agent, runtime) = (Served::start(), tempfile::tempdir().unwrap());
    fs::write(runtime.path().join("acp-tether"), "").unwrap();
    let mut editor = connect(&agent.url, runtime.path());
    initialize(&mut editor);
    assert!(editor.close().status.success());
}

/// K141.
#[test]
fn x1_no_log_holds_a_part_of_the_token() {
    let (agent, runtime) = (Served::start(), tempfile::tempdir().unwrap());
    let (directory, log) = (runtime.path().to_string_lossy(), runtime.path().join("log"));
    let log_flag = log.to_string_lossy();
    let flags = ["--runtime-dir", &directory, "--log-level", "trace", "--log-file", &log_flag];
    let mut editor = Editor::connect(&agent.url, &flags);
    initialize(&mut editor);
    let api = Caller::new(&records(runtime.path())[0]);
    assert_eq!(api.get("/status").status, 200);
    assert_eq!(api.post("/rpc", "{").status, 200);
    assert!(editor.close().status.success());
    let told = fs::read_to_string(log).unwrap();
    assert!(told.contains("connected"), "{told}");
    assert!(!told.contains(&api.token[..8]), "{told}");
}
