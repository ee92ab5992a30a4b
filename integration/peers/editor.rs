//! Plays an editor on the pipes of the built program, down to the bytes.

use crate::program::program;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any step takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Lines that the reading thread holds. Few, so that an editor that does not read lets the pipe fill.
const READ_AHEAD: usize = 16;

/// An editor that launched the program.
pub struct Editor {
    program: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    log: Option<JoinHandle<String>>,
    requests: u64,
    /// Every line that was written, without its LF.
    pub sent: Vec<Vec<u8>>,
    /// Every line that was read, without its LF.
    pub seen: Vec<Vec<u8>>,
}

/// How the program ended.
#[derive(Debug)]
pub struct End {
    /// How it exited.
    pub status: ExitStatus,
    /// The time from the end of its input to the end of the process.
    pub after: Duration,
    /// What it told on standard error.
    pub log: String,
}

impl Editor {
    /// Launches `acp-tether connect FLAGS URL`.
    pub fn connect(url: &str, flags: &[&str]) -> Self {
        Self::connect_in(&[], url, flags)
    }

    /// Launches it with these variables in its environment.
    pub fn connect_in(environment: &[(&str, &str)], url: &str, flags: &[&str]) -> Self {
        let mut program = program()
            .arg("connect")
            .args(flags)
            .arg(url)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built program starts");
        let output = program.stdout.take().unwrap();
        let mut errors = program.stderr.take().unwrap();
        let (sender, lines) = sync_channel(READ_AHEAD);
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                if line.pop_if(|last| *last == b'\n').is_none() {
                    line.extend_from_slice(b" (S5: the output ends within a line)");
                }
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let log = thread::spawn(move || {
            let mut log = Vec::new();
            let _ = errors.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        Self {
            input: program.stdin.take(),
            program,
            lines,
            log: Some(log),
            requests: 0,
            sent: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// The process id of the program.
    pub fn pid(&self) -> u32 {
        self.program.id()
    }

    /// Writes one line as it is.
    pub fn write(&mut self, line: &str) {
        let mut bytes = line.as_bytes().to_vec();
        self.sent.push(bytes.clone());
        bytes.push(b'\n');
        let input = self.input.as_mut().expect("the input is open");
        if let Err(error) = input.write_all(&bytes) {
            self.fail(&format!("the program does not read: {error}"));
        }
    }

    /// Sends a request and returns its id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.write(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
        id
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: &Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// The next line as its bytes.
    pub fn line(&mut self) -> Vec<u8> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                line
            }
            Err(RecvTimeoutError::Timeout) => self.fail("the program writes nothing"),
            Err(RecvTimeoutError::Disconnected) => self.fail("the program ended"),
        }
    }

    /// The next line as JSON.
    pub fn message(&mut self) -> Value {
        let line = self.line();
        serde_json::from_slice(&line)
            .unwrap_or_else(|_| self.fail(&format!("no JSON: {}", String::from_utf8_lossy(&line))))
    }

    /// Reads up to the answer to request `id`. Returns what came before it, and the answer.
    pub fn until_answer(&mut self, id: u64) -> (Vec<Value>, Value) {
        let mut before = Vec::new();
        loop {
            let message = self.message();
            if message.get("method").is_none() && message["id"] == id {
                return (before, message);
            }
            before.push(message);
        }
    }

    /// Sends a request and returns its result. Nothing else may come before it.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let (before, mut answer) = self.until_answer(id);
        if !before.is_empty() || answer.get("result").is_none() {
            self.fail(&format!("{method} was answered with {answer} after {before:?}"));
        }
        answer["result"].take()
    }

    /// Closes the program's input and waits for its end. What it still writes is among the lines
    /// seen.
    pub fn close(&mut self) -> End {
        let start = Instant::now();
        drop(self.input.take());
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => self.fail("the program does not end"),
            }
        }
        let status = self.program.wait().expect("the program can be waited for");
        let after = start.elapsed();
        let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        End { status, after, log }
    }

    /// Kills the program while its input is open; when it returns, the program is gone.
    pub fn kill(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }

    /// Fails the test, with what the program told on standard error.
    pub fn fail(&mut self, reason: &str) -> ! {
        let _ = self.program.kill();
        let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        panic!("{reason}\nstandard error:\n{log}");
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.kill();
    }
}
