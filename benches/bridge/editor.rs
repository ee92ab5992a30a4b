//! Drives a bridge as an editor does, and reads as fast as it can.

use crate::process::Used;
use crate::program;
use memchr::memmem;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// What the head of a message is told by.
const HEAD: usize = 256;

/// A bridge at work, and the pipes to it.
pub struct Editor {
    bridge: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    line: Vec<u8>,
    requests: u64,
}

/// A turn that is over.
pub struct Turn {
    /// From the prompt to its answer.
    pub took: Duration,
    /// How many messages came before the answer.
    pub updates: usize,
}

impl Editor {
    /// Launches the command, with the URL behind it.
    pub fn launch(command: &[String], url: &str) -> Self {
        let mut command_ = Command::new(&command[0]);
        program::apart(&mut command_);
        let mut bridge = command_
            .args(&command[1..])
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        Self {
            input: bridge.stdin.take(),
            output: BufReader::with_capacity(256 << 10, bridge.stdout.take().unwrap()),
            bridge,
            line: Vec::new(),
            requests: 0,
        }
    }

    /// Launches it and initializes.
    pub fn connect(command: &[String], url: &str) -> Self {
        let mut editor = Self::launch(command, url);
        editor.initialize();
        editor
    }

    /// Initializes.
    pub fn initialize(&mut self) {
        self.ask("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    }

    /// Creates a session and returns its id.
    pub fn new_session(&mut self) -> String {
        let result = self.ask("session/new", &json!({"cwd": "/project", "mcpServers": []}));
        result["sessionId"].as_str().expect("a session has an id").to_owned()
    }

    /// Takes a turn of one prompt; `None` where the bridge ends.
    pub fn turn(&mut self, session: &str, prompt: &str) -> Option<Turn> {
        let text = json!([{"type": "text", "text": prompt}]);
        let start = Instant::now();
        self.send("session/prompt", &json!({"sessionId": session, "prompt": text}));
        let updates = self.until_answer()?;
        Some(Turn { took: start.elapsed(), updates })
    }

    /// What the bridge used so far.
    pub fn used(&self) -> Option<Used> {
        Used::by(self.bridge.id())
    }

    /// From the end of its input to its exit.
    pub fn close(mut self) -> Duration {
        let start = Instant::now();
        drop(self.input.take());
        self.bridge.wait().expect("the bridge can be waited for");
        start.elapsed()
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.send(method, params);
        self.until_answer().expect("the bridge lives");
        let mut answer: Value = serde_json::from_slice(&self.line).expect("an answer is JSON");
        assert!(answer.get("result").is_some(), "{method} was answered with {answer}");
        answer["result"].take()
    }

    fn send(&mut self, method: &str, params: &Value) {
        self.requests += 1;
        let id = self.requests;
        let mut line =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        line.push('\n');
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(line.as_bytes()).expect("the bridge reads");
    }

    /// Reads up to the one answer that is awaited, and counts what comes before it.
    fn until_answer(&mut self) -> Option<usize> {
        let mut count = 0;
        loop {
            self.line.clear();
            let length = self.output.read_until(b'\n', &mut self.line).expect("the bridge writes");
            if length == 0 {
                return None;
            }
            if is_answer(&self.line) {
                return Some(count);
            }
            count += 1;
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

/// Whether a message is an answer, which names no method.
pub fn is_answer(message: &[u8]) -> bool {
    let head = &message[..message.len().min(HEAD)];
    memmem::find(head, b"\"method\"").is_none()
}
