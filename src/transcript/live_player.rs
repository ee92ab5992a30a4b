//! Plays a transcript against a program: real pipes, real sockets, the scripted remote on 127.0.0.1.

use super::format::{Action, Player, Signal, Transcript};
use super::player::{self, BUSY, Board, CLOSED, Failure, RECONNECTING, Reply, Stage, UNKNOWN};
use super::remote::{Arrival, Piece, Remote, Told};
use crate::core::roster::Inquiry;
use crate::loopback::{Instance, Loopback, NotClosed};
use bytes::Bytes;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// What a step may take longer than it says, for the sake of a busy machine.
pub const SLACK: Duration = Duration::from_secs(8);

/// How long [`Stage::settle`] gives what is under way to arrive.
const SETTLE: Duration = Duration::from_millis(60);

/// How long after the end of the program its last output is read.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
/// How long a program may take to end after its file; then it is killed.
const LAST: Duration = Duration::from_secs(1);

/// The longest line of a program's output, and the most of its log that is kept.
const LONGEST_LINE: usize = 128 << 20;
/// See [`LONGEST_LINE`].
const MOST_LOG: usize = 1 << 20;

/// How long after an answer of the API that is not the right one it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// What stands for something in the arguments of a [`Bridge`].
const URL: &str = "{url}";
/// See [`URL`].
const FLAGS: &str = "{flags}";
/// See [`URL`].
const API: &str = "{api}";

/// A program that speaks ACP on its standard input and output.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// The program.
    pub program: OsString,
    /// Its arguments. `{url}` stands for the remote's URL; where the bridge takes those of `connect`,
    /// an argument `{flags}` for the file's flags, and `{api}` for those of the loopback API.
    pub arguments: Vec<String>,
}

impl Bridge {
    /// This program, or one that takes the same arguments.
    pub fn connect(program: impl Into<OsString>) -> Self {
        let arguments = ["connect", API, FLAGS, URL].map(str::to_owned).to_vec();
        Self { program: program.into(), arguments }
    }

    /// A command as a shell would read it, without its expansions. The URL is the last argument where
    /// nothing stands for it.
    ///
    /// # Errors
    /// Why the text is no command.
    pub fn parse(command: &str) -> Result<Self, String> {
        let mut words = shell_words::split(command).map_err(|error| error.to_string())?;
        if words.is_empty() {
            return Err("no program is named".to_owned());
        }
        let program = words.remove(0).into();
        if !words.iter().any(|word| word.contains(URL)) {
            words.push(URL.to_owned());
        }
        Ok(Self { program, arguments: words })
    }

    /// Why this bridge cannot be asked what the transcript asks; `None` where it can.
    pub fn unfit(&self, transcript: &Transcript) -> Option<&'static str> {
        let takes = |word: &str| self.arguments.iter().any(|argument| argument == word);
        let has =
            |which: fn(&Action) -> bool| transcript.steps.iter().any(|step| which(&step.action));
        if !transcript.header.players.contains(&Player::Live) {
            return Some("it plays in virtual time only");
        }
        // In a word of a shell's command the rest of such a URL would be a command of its own.
        let holds = |word: &String| word != URL && word.contains(URL);
        if transcript.header.path.contains('&') && self.arguments.iter().any(holds) {
            return Some("its path has an &: let {url} be a word of its own");
        }
        if !takes(API) && asks_api(transcript) {
            return Some("it asks the API of acp-tether");
        }
        if takes(FLAGS) {
            return None;
        }
        if !transcript.header.flags.is_empty() {
            return Some("it needs flags of acp-tether");
        }
        if has(|action| matches!(action, Action::Log { .. })) {
            return Some("it reads the log of acp-tether");
        }
        has(|action| matches!(action, Action::Signal(_))).then_some("it sends signals")
    }

    /// The program at work; its API is open where there is a directory for its record.
    fn command(&self, flags: &[String], url: &str, runtime_directory: Option<&Path>) -> Command {
        let mut command = Command::new(&self.program);
        for argument in &self.arguments {
            match (argument.as_str(), runtime_directory) {
                (FLAGS, _) => command.args(flags),
                (API, Some(directory)) => command.arg("--runtime-dir").arg(directory),
                (API, None) => command.args(["--api", "off"]),
                _ => command.arg(argument.replace(URL, url)),
            };
        }
        // Which flags there are, only the transcript says.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ACP_TETHER_") {
                command.env_remove(name);
            }
        }
        command
            // The remote is on this machine: no proxy of the surroundings leads to it.
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // What it starts in its turn ends with it.
        #[cfg(unix)]
        command.process_group(0);
        command
    }
}

fn asks_api(transcript: &Transcript) -> bool {
    transcript.steps.iter().any(|step| matches!(step.action, Action::Api(_)))
}

/// Plays a transcript around a bridge. Blocks: it is not for use inside an async task.
///
/// # Errors
/// The first step that did not hold, or why the bridge did not start.
pub fn play(transcript: &Transcript, bridge: &Bridge) -> Result<(), Failure> {
    play_with_slack(transcript, bridge, SLACK)
}

/// The same, where a step may take so much longer than it says.
///
/// # Errors
/// See [`play`].
pub fn play_with_slack(
    transcript: &Transcript,
    bridge: &Bridge,
    slack: Duration,
) -> Result<(), Failure> {
    let mut stage = LiveStage::start(transcript, bridge, slack).map_err(|error| Failure {
        line: 1,
        step: "the start of the bridge".to_owned(),
        reason: error.to_string(),
        log: String::new(),
    })?;
    player::play(transcript, &mut stage)
}

/// What the program does.
enum Happening {
    /// It wrote to standard output, up to an LF or its end.
    Output(Vec<u8>),
    /// It wrote to standard error.
    Log(Vec<u8>),
    Exited(io::Result<std::process::ExitStatus>),
}

struct LiveStage {
    board: Board,
    slack: Duration,
    /// The program has written or asked something: it has started.
    is_awake: bool,
    happenings: mpsc::UnboundedReceiver<Happening>,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    input: Option<ChildStdin>,
    remote: Remote,
    /// For each request on the board, what it is answered through.
    asked: Vec<Asked>,
    process: Option<u32>,
    /// Bytes of the log on the board.
    logged: usize,
    /// Where the program keeps its record, where its API is asked.
    runtime_directory: Option<TempDir>,
    /// The program's API, once it was found.
    instance: Option<Instance>,
    /// The task that reads the program's output.
    output: Option<JoinHandle<()>>,
    /// Last: what runs on it goes before it does, the program too.
    runtime: Runtime,
}

/// A request that the scripted remote has got.
enum Asked {
    Waiting(oneshot::Sender<Told>),
    Stream(mpsc::UnboundedSender<Piece>),
    Done,
}

impl LiveStage {
    fn start(transcript: &Transcript, bridge: &Bridge, slack: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (to_arrivals, arrivals) = mpsc::unbounded_channel();
        let (to_happenings, happenings) = mpsc::unbounded_channel();
        let context = runtime.enter();
        let remote = Remote::start(to_arrivals)?;
        let url = format!("http://{}{}", remote.address(), transcript.header.path);
        let runtime_directory = asks_api(transcript).then(tempfile::tempdir).transpose()?;
        let record_place = runtime_directory.as_ref().map(TempDir::path);
        let mut child = bridge.command(&transcript.header.flags, &url, record_place).spawn()?;
        let input = child.stdin.take();
        let process = child.id();
        let (read, was_read) = oneshot::channel::<()>();
        let output = child.stdout.take().map(|output| {
            let lines = read_lines(output, LONGEST_LINE, to_happenings.clone(), Happening::Output);
            tokio::spawn(async move {
                // Dropped with the task, however that ends.
                let _read = read;
                lines.await;
            })
        });
        if let Some(log) = child.stderr.take() {
            tokio::spawn(read_lines(log, MOST_LOG, to_happenings.clone(), Happening::Log));
        }
        tokio::spawn(wait_for_exit(child, was_read, to_happenings));
        drop(context);
        Ok(Self {
            board: Board::default(),
            slack,
            is_awake: false,
            happenings,
            arrivals,
            input,
            remote,
            asked: Vec::new(),
            process,
            logged: 0,
            runtime_directory,
            instance: None,
            output,
            runtime,
        })
    }

    /// Lets the world go on until `done` holds or `end` has come; says whether it holds.
    fn go_on(&mut self, end: Instant, done: &dyn Fn(&Board) -> bool) -> bool {
        loop {
            self.note_closed_streams();
            if done(&self.board) {
                return true;
            }
            enum Next {
                Happening(Option<Happening>),
                Arrival(Option<Arrival>),
            }
            let (happenings, arrivals) = (&mut self.happenings, &mut self.arrivals);
            // A timer is made inside the runtime.
            let next = self.runtime.block_on(async {
                timeout_at(end, async {
                    tokio::select! {
                        arrival = arrivals.recv() => Next::Arrival(arrival),
                        happening = happenings.recv() => Next::Happening(happening),
                    }
                })
                .await
            });
            match next {
                Ok(Next::Happening(Some(happening))) => self.note(happening),
                Ok(Next::Arrival(Some(arrival))) => self.admit(arrival),
                // The program is gone with its pipes: the remote alone brings nothing new.
                Ok(_) => {
                    self.runtime.block_on(async { tokio::time::sleep(SETTLE).await });
                    while let Ok(arrival) = self.arrivals.try_recv() {
                        self.admit(arrival);
                    }
                    return done(&self.board);
                }
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, happening: Happening) {
        self.is_awake = true;
        match happening {
            Happening::Output(mut line) => match line.pop() {
                Some(b'\n') => self.board.see(Bytes::from(line)),
                _ if line.len() + 1 >= LONGEST_LINE => {
                    self.board.fail("S5: the line is longer than 128 MiB".to_owned());
                    // Nobody reads on: what follows would be the rest of it.
                    self.output.iter().for_each(JoinHandle::abort);
                }
                _ => self.board.fail("S5: the output ended inside a line".to_owned()),
            },
            Happening::Log(text) => {
                let text = String::from_utf8_lossy(&text).trim_end().to_owned();
                if text.contains("panicked at") {
                    self.board.fail(format!("the program panicked: {text}"));
                }
                self.logged += text.len();
                self.board.log.push(text);
                while self.logged > MOST_LOG {
                    let first = self.board.log.len().div_ceil(2);
                    let gone = self.board.log.drain(..first);
                    self.logged -= gone.map(|text| text.len()).sum::<usize>();
                }
            }
            Happening::Exited(Ok(status)) => {
                self.board.exit = Some(status.code().unwrap_or(-1));
                self.board.end = Some(status.to_string());
            }
            Happening::Exited(Err(error)) => {
                self.board.fail(format!("the program's end is unknown: {error}"))
            }
        }
    }

    fn admit(&mut self, Arrival { request, answer }: Arrival) {
        self.is_awake = true;
        self.asked.push(Asked::Waiting(answer));
        let (place, reply) = self.board.admit(request);
        if let Some(reply) = reply {
            self.answer(place, &reply);
        }
    }

    /// Asks the program's API once.
    fn ask_once(&mut self, inquiry: &Inquiry) -> Result<String, String> {
        let directory = self.runtime_directory.as_ref().ok_or("the program has no API")?;
        let instance = match &self.instance {
            Some(instance) => instance,
            None => {
                let found = self
                    .runtime
                    .block_on(async { Loopback::new(Some(directory.path()))?.look().await });
                let found = found.map_err(|error| error.to_string())?.running.pop();
                self.instance.insert(found.ok_or("the program's API is not there")?)
            }
        };
        self.runtime.block_on(async {
            match inquiry {
                Inquiry::Status => Ok(instance.status().await?.to_string()),
                Inquiry::Close(session) => match instance.close(&session.0).await {
                    Ok(()) => Ok(CLOSED.to_owned()),
                    Err(NotClosed::Unknown) => Ok(UNKNOWN.to_owned()),
                    Err(NotClosed::Running) => Ok(BUSY.to_owned()),
                    Err(NotClosed::Trouble(reason)) => Err(reason),
                },
                Inquiry::Reconnect => instance.reconnect().await.map(|()| RECONNECTING.to_owned()),
            }
        })
    }

    /// Kills the program and all that it started.
    fn kill(&self) {
        #[cfg(unix)]
        if let Some(group) = self.process.and_then(|process| i32::try_from(process).ok())
            && let Some(group) = rustix::process::Pid::from_raw(group)
        {
            // An error is a group that has gone.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }

    /// A stream that the program has closed is open no more.
    fn note_closed_streams(&mut self) {
        for (asked, request) in self.asked.iter().zip(&mut self.board.requests) {
            if matches!(asked, Asked::Stream(pieces) if pieces.is_closed()) {
                request.open = false;
            }
        }
    }
}

impl Stage for LiveStage {
    fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("the editor has closed its end")?;
        let slack = self.slack;
        let write = async {
            input.write_all(bytes).await?;
            input.flush().await
        };
        match self.runtime.block_on(async { timeout(slack, write).await }) {
            Ok(written) => written.map_err(|error| format!("the program does not read: {error}")),
            Err(_) => Err("the program does not read".to_owned()),
        }
    }

    fn end_input(&mut self) {
        self.input = None;
    }

    fn answer(&mut self, request: usize, reply: &Reply) {
        if let Asked::Waiting(answer) = std::mem::replace(&mut self.asked[request], Asked::Done) {
            let (told, stream) = Told::new(reply.clone());
            // A program that is no longer there for the answer shows that by what it does.
            let heard = answer.send(told).is_ok();
            if let Some(stream) = stream.filter(|_| heard) {
                self.asked[request] = Asked::Stream(stream);
                self.board.requests[request].open = true;
            }
        }
    }

    fn send(&mut self, request: usize, bytes: Bytes) {
        if let Asked::Stream(pieces) = &self.asked[request] {
            let _ = pieces.send(Piece::Bytes(bytes));
        }
    }

    fn end_stream(&mut self, request: usize, cleanly: bool) {
        self.board.requests[request].open = false;
        if let Asked::Stream(pieces) = std::mem::replace(&mut self.asked[request], Asked::Done)
            && !cleanly
        {
            let _ = pieces.send(Piece::Cut);
        }
    }

    fn set_reachable(&mut self, reachable: bool) -> Result<(), String> {
        if reachable {
            let _context = self.runtime.enter();
            return self.remote.listen().map_err(|error| error.to_string());
        }
        let remote = &mut self.remote;
        self.runtime.block_on(remote.refuse());
        for (asked, request) in self.asked.iter_mut().zip(&mut self.board.requests) {
            *asked = Asked::Done;
            request.answered = true;
            request.open = false;
        }
        // The program has to notice that its connections are cut, or it takes one for alive and
        // what it writes next may have arrived.
        self.settle();
        Ok(())
    }

    fn wait(&mut self, within: Duration, done: &dyn Fn(&Board) -> bool) -> bool {
        // How quickly a program starts is not what a transcript is about.
        let slack = if self.is_awake { self.slack } else { self.slack.max(SLACK) };
        self.go_on(Instant::now() + within + slack, done)
    }

    fn pass(&mut self, time: Duration) {
        self.go_on(Instant::now() + time, &|_| false);
    }

    fn settle(&mut self) {
        self.go_on(Instant::now() + SETTLE, &|_| false);
    }

    fn close_output(&mut self) -> Result<(), String> {
        let output = self.output.take().ok_or("the output is closed already")?;
        output.abort();
        // What was being read is gone only with its task.
        let _ = self.runtime.block_on(output);
        Ok(())
    }

    fn ask(
        &mut self,
        inquiry: &Inquiry,
        within: Duration,
        right: &dyn Fn(&str) -> bool,
    ) -> Result<String, String> {
        let end = Instant::now() + within + self.slack;
        loop {
            let answer = self.ask_once(inquiry);
            let stays = answer.as_ref().is_ok_and(|answer| right(answer) || answer == CLOSED);
            if stays || self.board.exit.is_some() || Instant::now() >= end {
                return answer;
            }
            self.go_on(Instant::now() + ASK_AGAIN, &|_| false);
        }
    }

    fn memory(&mut self) -> Result<Option<u64>, String> {
        let process = self.process.ok_or("the program has no process id")?;
        if !cfg!(target_os = "linux") {
            return Ok(None);
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))
            .map_err(|error| format!("its memory cannot be read: {error}"))?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = most.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let kibibytes = kibibytes.ok_or("its memory cannot be read: it has ended")?;
        Ok(Some(kibibytes * 1_024))
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let process = self.process.ok_or("the program has no process id")?;
        let kill = format!("kill -{} {process}", signal.name());
        let status = std::process::Command::new("sh").args(["-c", &kill]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{kill}: {status}")),
            Err(error) => Err(format!("{kill}: {error}")),
        }
    }

    fn finish(&mut self, says_nothing: bool) -> Result<(), String> {
        self.end_input();
        self.go_on(Instant::now() + LAST, &|board| board.exit.is_some());
        let ended_badly = self.board.exit.is_some_and(|code| code != 0);
        if says_nothing && ended_badly {
            return Err("the program did not end well after its input".to_owned());
        }
        // What it has begun to write shows only when its pipe is closed.
        let end = self.board.end.clone();
        self.kill();
        self.go_on(Instant::now() + LAST, &|_| false);
        self.board.end = end;
        Ok(())
    }
}

impl Drop for LiveStage {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Hands over each line; one longer than `most` bytes in parts.
async fn read_lines(
    from: impl AsyncRead + Unpin,
    most: usize,
    to: mpsc::UnboundedSender<Happening>,
    kind: fn(Vec<u8>) -> Happening,
) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    while let Ok(1..) = (&mut from).take(most).read_until(b'\n', &mut line).await {
        if to.send(kind(std::mem::take(&mut line))).is_err() {
            return;
        }
    }
}

async fn wait_for_exit(
    mut child: Child,
    output_read: oneshot::Receiver<()>,
    to: mpsc::UnboundedSender<Happening>,
) {
    let exited = child.wait().await;
    // Its last output comes first; a process that it left behind may keep the pipe open.
    let _ = timeout(LAST_OUTPUT, output_read).await;
    // Nobody listens where the play is over.
    let _ = to.send(Happening::Exited(exited));
}
