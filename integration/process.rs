//! The process itself: how it starts, what it ends with, and every way in which an editor goes away.

use crate::program::{PROGRAM, apart, program};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#;

/// What the rule allows from the end of input to the end of the process.
const GONE: Duration = Duration::from_secs(2);
/// What a busy machine may add to that, and what anything else may take.
const SLACK: Duration = Duration::from_secs(10);

/// Answers a request (its method) with bytes; `None` never answers.
type Answers = fn(&str) -> Option<Vec<u8>>;

/// A remote agent over HTTP/1.1 that tells of each request as it comes.
struct Remote {
    url: String,
    methods: Receiver<String>,
}

impl Remote {
    fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (came, methods) = channel();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let came = came.clone();
                // A connection that breaks is a program that ended.
                thread::spawn(move || serve(&connection, answers, &came).is_ok());
            }
        });
        Self { url, methods }
    }

    /// Waits for a request of this method.
    fn gets(&self, method: &str) {
        while self.methods.recv_timeout(SLACK).unwrap_or_else(|_| panic!("no {method} came"))
            != method
        {}
    }
}

fn serve(connection: &TcpStream, answers: Answers, came: &Sender<String>) -> std::io::Result<()> {
    let mut requests = BufReader::new(connection);
    let mut output = connection;
    loop {
        let mut first = String::new();
        if requests.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let method = first.split(' ').next().unwrap_or_default().to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            requests.read_line(&mut header)?;
            match header.trim().to_ascii_lowercase().split_once(':') {
                Some(("content-length", value)) => length = value.trim().parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        requests.read_exact(&mut vec![0; length])?;
        let answer = answers(&method);
        // Nobody listens any more: the test is over.
        let _ = came.send(method);
        if let Some(answer) = answer {
            output.write_all(&answer)?;
        }
    }
}

fn response(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} -\r\nAcp-Connection-Id: c1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A stream whose body has begun with `events` and goes on.
fn stream(events: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 -\r\nContent-Type: text/event-stream\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    match events.len() {
        0 => head.into(),
        length => format!("{head}{length:x}\r\n{events}\r\n").into_bytes(),
    }
}

/// A remote in good health.
fn healthy(method: &str) -> Option<Vec<u8>> {
    Some(match method {
        "POST" => response(200, INITIALIZED),
        "GET" => stream(""),
        _ => response(202, ""),
    })
}

/// The program, killed at the end of the test.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = program();
        command.arg("connect").args(arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        apart(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    /// The program, connected to a remote.
    fn connected(remote: &Remote) -> Self {
        let mut program = Self::start(["--http", "1.1", &remote.url]);
        program.writes(INITIALIZE);
        assert_eq!(program.reads(), INITIALIZED);
        remote.gets("GET");
        program
    }

    fn writes(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn reads(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The code that it ends with, within `limit` and the slack of a busy machine.
    fn ends_within(&mut self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < limit + SLACK, "it is still there after {limit:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn complaints(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn s9_the_end_of_input_exits_with_0() {
    let remote = Remote::start(healthy);
    let mut program = Program::connected(&remote);
    program.input = None;
    assert_eq!(program.ends_within(GONE), Some(0));
    remote.gets("DELETE");
    assert_eq!(program.complaints(), "");
}

#[test]
fn s9_wrong_usage_exits_with_2_and_writes_nothing_to_standard_output() {
    for arguments in [
        &[][..],
        &["connect"],
        &["connect", "--no-such-flag", "http://127.0.0.1"],
        &["connect", "--hold", "soon", "http://127.0.0.1"],
        &["connect", "--log-level", "loud", "http://127.0.0.1"],
        &["demo", "--serve", "nowhere"],
    ] {
        let Output { status, stdout, stderr } = run(arguments);
        assert_eq!(status.code(), Some(2), "{arguments:?}");
        assert!(stdout.is_empty(), "{arguments:?}");
        assert!(String::from_utf8_lossy(&stderr).contains("--help"), "{arguments:?}");
    }
}

/// K61: an editor shows a process that ended as just that.
#[test]
fn s9_a_configuration_that_cannot_be_used_is_told_at_initialize_and_on_standard_error() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("missing/log").to_string_lossy().into_owned();
    let cases: [(&[&str], &str); 7] = [
        (&["agents.example.com/acp"], "write https://HOST/PATH if"),
        (&["ftp://127.0.0.1/acp"], "use https: or http:"),
        (&["http://anna:s3cret@127.0.0.1/acp?key=s3cret"], "take them out"),
        (&["--header", "X-Key: s3cret${ACP_TETHER_UNSET}", "http://127.0.0.1"], "is not set"),
        (&["--header", "s3cret", "http://127.0.0.1"], "write it as 'Name: value'"),
        (&["--api", "0.0.0.0:0", "http://127.0.0.1"], "write 127.0.0.1:PORT"),
        (&["--log-file", &log, "http://127.0.0.1"], "--log-file cannot be opened"),
    ];
    for (arguments, reason) in cases {
        let mut program = Program::start(arguments);
        for id in [r#""a""#, "2"] {
            program.writes(&INITIALIZE.replace(r#""id":1"#, &format!(r#""id":{id}"#)));
            let answer = program.reads();
            let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"#);
            assert!(answer.starts_with(&start), "{arguments:?}: {answer}");
            assert!(answer.contains(r#""kind":"config""#), "{arguments:?}: {answer}");
            assert!(answer.contains(reason), "{arguments:?}: {answer}");
            assert!(!answer.contains("s3cret"), "{arguments:?}: {answer}");
        }
        assert_eq!(program.child.try_wait().unwrap(), None, "{arguments:?} ended too soon");
        program.input = None;
        assert_eq!(program.ends_within(GONE), Some(78), "{arguments:?}");
        let complaints = program.complaints();
        assert!(complaints.contains(reason), "{arguments:?}: {complaints}");
        assert!(!complaints.contains("s3cret"), "{arguments:?}: {complaints}");
    }
}

#[test]
fn s9_the_version_names_the_commit_and_the_target() {
    let Output { status, stdout, .. } = run(&["--version"]);
    let told = String::from_utf8(stdout).unwrap();
    assert!(status.success());
    let build = told.strip_prefix(concat!("acp-tether ", env!("CARGO_PKG_VERSION"), " (")).unwrap();
    let (commit, target) = build.trim_end().strip_suffix(')').unwrap().split_once(", ").unwrap();
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown commit", "{told}");
    assert!(target.starts_with(std::env::consts::ARCH), "{told}");
}

#[test]
fn x2_a_log_file_is_appended_to_and_standard_error_stays_empty() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    std::fs::write(&log, "what was there\n").unwrap();
    let remote = Remote::start(healthy);
    let log_text = log.to_string_lossy();
    let flags = ["--http", "1.1", "--log-level", "info", "--log-file", &log_text, &remote.url];
    let mut program = Program::start(flags);
    program.writes(INITIALIZE);
    assert_eq!(program.reads(), INITIALIZED);
    program.input = None;
    assert_eq!(program.ends_within(GONE), Some(0));
    assert_eq!(program.complaints(), "");
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.starts_with("what was there\n"), "{told}");
    assert!(told.contains("acp-tether: info: connected to the remote agent"), "{told}");
}

#[test]
fn x2_a_closed_standard_error_disturbs_nobody() {
    let remote = Remote::start(|method| match method {
        "GET" => Some(stream("data: what is logged and dropped\n\n")),
        _ => healthy(method),
    });
    let mut program = Program::start(["--http", "1.1", "--log-level", "trace", &remote.url]);
    program.child.stderr = None;
    program.writes(INITIALIZE);
    assert_eq!(program.reads(), INITIALIZED);
    remote.gets("GET");
    program.writes("{");
    assert!(program.reads().contains("-32700"));
    program.input = None;
    assert_eq!(program.ends_within(GONE), Some(0));
    remote.gets("DELETE");
}

/// A remote whose answer to `initialize` begins and does not end.
fn endless(method: &str) -> Option<Vec<u8>> {
    let mut answer = healthy(method)?;
    if method == "POST" {
        answer.pop();
    }
    Some(answer)
}

#[test]
fn s7_the_connection_of_an_initialize_whose_answer_does_not_end_is_deleted() {
    let remote = Remote::start(endless);
    let flags = ["--http", "1.1", "--connect-timeout", "1s", &remote.url];
    let mut program = Program::start(flags);
    program.writes(INITIALIZE);
    assert!(program.reads().contains("gave up after 1000 ms"));
    remote.gets("DELETE");

    let mut program = Program::start(["--http", "1.1", &remote.url]);
    program.writes(INITIALIZE);
    remote.gets("POST");
    program.input = None;
    remote.gets("DELETE");
    assert_eq!(program.ends_within(GONE), Some(0));
}

#[test]
fn s7_the_end_of_input_while_initialize_is_tried_again_answers_it_and_exits() {
    let remote = Remote::start(|_| Some(response(503, "")));
    let mut program = Program::start(["--http", "1.1", &remote.url]);
    program.writes(INITIALIZE);
    remote.gets("POST");
    program.input = None;
    assert!(program.reads().starts_with(r#"{"jsonrpc":"2.0","id":1,"error":"#));
    assert_eq!(program.ends_within(GONE), Some(0));
}

/// The ends that only Unix knows.
#[cfg(unix)]
mod unix {
    use super::*;

    /// Never answers what begins and ends a connection.
    fn silent(method: &str) -> Option<Vec<u8>> {
        (method == "GET").then(|| stream(""))
    }

    #[test]
    fn s7_a_signal_while_connecting_answers_initialize_and_exits_with_0() {
        for name in ["TERM", "INT", "HUP"] {
            let remote = Remote::start(silent);
            let mut program = Program::start(["--http", "1.1", &remote.url]);
            program.writes(INITIALIZE);
            remote.gets("POST");
            program.signal(name);
            let answer = program.reads();
            assert!(answer.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":"#), "{name}: {answer}");
            assert_eq!(program.ends_within(GONE), Some(0), "{name}");
        }
    }

    #[test]
    fn s7_a_second_signal_exits_at_once_also_while_the_delete_is_under_way() {
        let remote =
            Remote::start(|method| if method == "DELETE" { None } else { healthy(method) });
        let mut program = Program::connected(&remote);
        program.signal("TERM");
        remote.gets("DELETE");
        let start = Instant::now();
        program.signal("INT");
        assert_eq!(program.ends_within(GONE), Some(0));
        let took = start.elapsed();
        assert!(took < Duration::from_millis(1_500), "the second signal took {took:?}");
    }

    #[test]
    fn s7_an_output_that_is_closed_while_nothing_is_written_ends_it_with_the_delete() {
        let remote = Remote::start(healthy);
        let mut program = Program::connected(&remote);
        let (empty, _) = std::io::pipe().unwrap();
        let closed = std::mem::replace(
            &mut program.output,
            BufReader::new(ChildStdout::from(std::os::fd::OwnedFd::from(empty))),
        );
        drop(closed);
        remote.gets("DELETE");
        assert_eq!(program.ends_within(GONE), Some(0));
    }

    #[test]
    fn s7_an_output_that_nobody_reads_does_not_hold_up_the_end() {
        let remote = Remote::start(|method| match method {
            "GET" => {
                let text = "x".repeat(1024 * 1024);
                Some(stream(&format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{text}\"}}\n\n"
                )))
            }
            _ => healthy(method),
        });
        let mut program = Program::connected(&remote);
        // The message has begun to come out, and no pipe holds all of it.
        program.output.read_exact(&mut [0; 1]).unwrap();
        program.input = None;
        let start = Instant::now();
        assert_eq!(program.ends_within(GONE), Some(0));
        let took = start.elapsed();
        assert!(took < GONE + Duration::from_secs(1), "the end took {took:?}");
        remote.gets("DELETE");
    }

    #[test]
    fn s7_the_death_of_the_parent_ends_it_while_its_input_stays_open() {
        let remote = Remote::start(healthy);
        let mut shell = Command::new("sh");
        // A command in the background would get no input of its own.
        shell.args(["-c", r#"exec 3<&0; "$0" "$@" <&3 & wait"#, PROGRAM, "connect"]);
        shell.args(["--http", "1.1", &remote.url]);
        let mut program = Program::spawn(shell);
        program.writes(INITIALIZE);
        assert_eq!(program.reads(), INITIALIZED);
        remote.gets("GET");
        program.child.kill().unwrap();
        remote.gets("DELETE");
        // Its end of the pipe is closed when it is gone.
        assert_eq!(program.reads(), "");
    }

    /// A remote whose stream begins with a message that no pipe and no bound on lines holds.
    fn flooding(method: &str) -> Option<Vec<u8>> {
        match method {
            "GET" => {
                let text = "x".repeat(20 * 1024 * 1024);
                Some(stream(&format!(
                    "data: {{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{text}\"}}\n\n"
                )))
            }
            _ => healthy(method),
        }
    }

    #[test]
    fn s7_a_large_message_that_nobody_reads_does_not_hold_up_the_end() {
        let remote = Remote::start(flooding);
        let mut program = Program::connected(&remote);
        program.output.read_exact(&mut [0; 1]).unwrap();
        program.input = None;
        assert_eq!(program.ends_within(GONE), Some(0));
        remote.gets("DELETE");
    }

    #[test]
    fn s7_a_second_signal_exits_at_once_also_while_an_output_that_nobody_reads_is_waited_for() {
        let remote = Remote::start(flooding);
        let mut program = Program::connected(&remote);
        program.output.read_exact(&mut [0; 1]).unwrap();
        program.signal("TERM");
        remote.gets("DELETE");
        let start = Instant::now();
        program.signal("INT");
        assert_eq!(program.ends_within(GONE), Some(0));
        let took = start.elapsed();
        assert!(took < Duration::from_millis(1_000), "the second signal took {took:?}");
    }

    const LINES: usize = 200;

    fn numbered(n: usize) -> String {
        let text = "x".repeat(if n.is_multiple_of(50) { 300_000 } else { 10_000 });
        format!(r#"{{"jsonrpc":"2.0","method":"x","params":{{"n":{n},"text":"{text}"}}}}"#)
    }

    /// Says all the numbered lines at once.
    fn talkative(method: &str) -> Option<Vec<u8>> {
        match method {
            "GET" => {
                let events = (0..LINES).map(|n| format!("data: {}\n\n", numbered(n)));
                Some(stream(&events.collect::<String>()))
            }
            _ => healthy(method),
        }
    }

    /// Node makes its ends of pipes non-blocking, and a program may share a terminal with others.
    #[test]
    fn s5_a_non_blocking_output_that_is_full_is_waited_for_and_carries_every_line_once() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;
        let remote = Remote::start(talkative);
        let (mut editor, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let end = || Stdio::from(OwnedFd::from(ours.try_clone().unwrap()));
        let mut command = program();
        command.args(["connect", "--http", "1.1", &remote.url]).stdin(end()).stdout(end());
        let mut child = command.spawn().unwrap();
        drop(command);
        writeln!(editor, "{INITIALIZE}").unwrap();
        remote.gets("GET");
        let start = Instant::now();
        while poll(&mut [PollFd::new(&ours, PollFlags::OUT)], Some(&Timespec::default())) != Ok(0) {
            assert!(start.elapsed() < SLACK, "it is not full");
            thread::sleep(Duration::from_millis(2));
        }
        drop(ours);
        // It has nothing to read, and nowhere to write: it is there all the same.
        writeln!(editor, r#"{{"jsonrpc":"2.0","method":"y"}}"#).unwrap();
        remote.gets("POST");
        editor.set_read_timeout(Some(SLACK)).unwrap();
        let mut lines = BufReader::new(&editor).lines();
        assert_eq!(lines.next().unwrap().unwrap(), INITIALIZED);
        for n in 0..LINES {
            assert!(lines.next().unwrap().unwrap() == numbered(n), "line {n}");
        }
        editor.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(lines.next().is_none());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}
