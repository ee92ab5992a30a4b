//! Decides what a transcript says: reads the text into steps, or refuses it with a line and a reason.

use crate::core::SessionId;
use crate::core::methods::present;
use crate::core::roster::Inquiry;
use bytes::Bytes;
use hyper::http::{HeaderName, HeaderValue};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// What it is about, and how it is set up.
    pub header: Header,
    /// What happens and what must be, in order.
    pub steps: Vec<Step>,
}

/// The first object of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the format, 1.
    pub transcript: u32,
    /// A sentence that says what the file shows.
    pub name: String,
    /// The rules of BEHAVIOUR.md that it proves; a file of this project names at least one.
    #[serde(default)]
    pub rules: Vec<String>,
    /// It was recorded: it proves no rule, and may have been cut off. Then it is played as far as it
    /// goes, and what is left over at its end does not count.
    #[serde(default)]
    pub recorded: bool,
    /// Where chance starts from in virtual time.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The ACP version that the prelude negotiates.
    #[serde(default = "first_version")]
    pub protocol: u32,
    /// What the agent offers in the prelude.
    #[serde(default = "usual_capabilities")]
    pub capabilities: serde_json::Value,
    /// Flags of `connect`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// What happened before the first step.
    #[serde(default)]
    pub start: Start,
    /// Who can play it.
    #[serde(default = "both_players")]
    pub players: Vec<Player>,
    /// Who answers GET and DELETE.
    #[serde(default)]
    pub streams: Streams,
    /// Path and query of the URL that the bridge is given.
    #[serde(default = "usual_path")]
    pub path: String,
}

fn first_seed() -> u64 {
    1
}

fn first_version() -> u32 {
    1
}

fn usual_capabilities() -> serde_json::Value {
    serde_json::json!({"loadSession": true})
}

fn both_players() -> Vec<Player> {
    vec![Player::Virtual, Player::Live]
}

fn usual_path() -> String {
    "/acp".to_owned()
}

/// What a prelude has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// Nothing.
    #[default]
    None,
    /// `initialize`, and the stream of connection `c1`.
    Initialized,
    /// Also `session/new`, and the stream of session `s1`.
    Session,
}

/// A way of playing a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Player {
    /// Against the core, in virtual time.
    Virtual,
    /// Against a program, with real pipes and sockets.
    Live,
}

/// Who answers what is not a POST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Streams {
    /// A GET opens a stream and a DELETE is accepted, without a step.
    #[default]
    Automatic,
    /// Steps answer them.
    Manual,
}

/// One step, and where it stands.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// What it is.
    pub action: Action,
}

/// What a step does or asks for.
#[derive(Clone, Debug)]
pub enum Action {
    /// The editor writes bytes.
    Write(Payload),
    /// The editor closes its end.
    EndInput,
    /// The editor closes the end it reads from.
    CloseOutput,
    /// The program gets a signal.
    Signal(Signal),
    /// The log holds a text, or does not.
    Log {
        /// The text.
        text: String,
        /// Whether it must be there.
        wanted: bool,
    },
    /// The editor sees lines.
    Sees(Sees),
    /// The remote got a request.
    Gets(Gets),
    /// The remote answers a request that has a name.
    Answers(String, Answer),
    /// The remote does something on a stream.
    Stream(OnStream),
    /// The remote does something on the socket that was asked for under this name.
    Socket(String, OnSocket),
    /// The remote can be reached from here on, or not.
    Reachable(bool),
    /// A person asks through the API.
    Api(Asks),
    /// The program has never held more than these bytes of memory.
    MemoryUnder(u64),
    /// Time passes.
    Pass(Duration),
    /// Nothing is left over.
    Quiet,
    /// The program ends.
    Exit {
        /// With this code.
        code: i32,
        /// How long that may take.
        within: Option<Duration>,
    },
}

/// A signal that ends a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// The terminal has gone.
    Hup,
    /// The person interrupts.
    Int,
    /// It is asked to end.
    Term,
}

impl Signal {
    /// Its name, without `SIG`.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Hup => "HUP",
            Signal::Int => "INT",
            Signal::Term => "TERM",
        }
    }
}

/// A question to the API.
#[derive(Clone, Debug)]
pub struct Asks {
    /// What is asked.
    pub inquiry: Inquiry,
    /// What the answer has at least.
    pub expected: Option<Box<RawValue>>,
    /// How long it may take until the answer is that.
    pub within: Option<Duration>,
}

/// Bytes that a step writes.
#[derive(Clone, Debug)]
pub enum Payload {
    /// The text of a JSON value; names in it are put in when it is played. An LF follows.
    Message(Box<RawValue>),
    /// These bytes, and an LF if that is said.
    Bytes {
        /// The bytes.
        bytes: Repeated,
        /// Whether an LF follows.
        lf: bool,
    },
}

/// Bytes that come one or more times. They are made when they are written: a short line of a file
/// may stand for very many.
#[derive(Clone, Debug)]
pub struct Repeated {
    bytes: Vec<u8>,
    times: usize,
}

impl Repeated {
    /// What one step may write.
    const MOST: usize = 512 << 20;
    /// What is written at once, if the bytes themselves are not longer.
    const PIECE: usize = 1 << 20;

    fn new(bytes: Vec<u8>, times: usize) -> Result<Self, String> {
        if bytes.len().checked_mul(times).is_none_or(|length| length > Self::MOST) {
            return Err("a step may not write more than 512 MiB".to_owned());
        }
        Ok(Self { bytes, times })
    }

    /// All of them, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Bytes> {
        let in_one = (Self::PIECE / self.bytes.len().max(1)).clamp(1, self.times.max(1));
        let piece = Bytes::from(self.bytes.repeat(in_one));
        let rest = piece.slice(..self.bytes.len() * (self.times % in_one));
        std::iter::repeat_n(piece, self.times / in_one)
            .chain([rest])
            .filter(|piece| !piece.is_empty())
    }
}

/// Lines that the editor must see.
#[derive(Clone, Debug)]
pub struct Sees {
    /// One, or several in any order.
    pub messages: Vec<Box<RawValue>>,
    /// How they are compared.
    pub comparison: Comparison,
    /// How long they may take.
    pub within: Option<Duration>,
    /// The name under which the id is kept.
    pub save: Option<String>,
}

/// How a message is compared with what a step gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Byte for byte.
    Bytes,
    /// As JSON, numbers by their text.
    Equal,
    /// It has at least what is given.
    Like,
}

/// A request that the remote must have got, or a frame on a socket.
#[derive(Clone, Debug)]
pub struct Gets {
    /// The HTTP method, or the kind of a frame.
    pub method: String,
    /// The session header: `None` for any, `Some(None)` for absent.
    pub session: Option<Option<String>>,
    /// Path and query.
    pub path: Option<String>,
    /// The version of HTTP: `1.1` or `2`.
    pub http: Option<String>,
    /// Headers by name: a value, `*`, or `None` for absent.
    pub headers: BTreeMap<String, Option<String>>,
    /// The body.
    pub body: Option<(Box<RawValue>, Comparison)>,
    /// It need not be the oldest of its kind.
    pub any_order: bool,
    /// The name under which it is answered later.
    pub name: Option<String>,
    /// The answer.
    pub answer: Option<Answer>,
    /// How long it may take.
    pub within: Option<Duration>,
    /// The name under which the id of its body is kept.
    pub save: Option<String>,
}

/// How the remote answers a request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The HTTP status; 202 where none is given.
    pub status: Option<u16>,
    /// Headers. `Content-Type` follows from the body where it is not given.
    pub headers: BTreeMap<String, String>,
    /// The body, if any.
    pub body: Option<Body>,
    /// It fails to come.
    pub fault: Option<Fault>,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// A JSON message; names in it are put in when it is played.
    Message(Box<RawValue>),
    /// Any text.
    Text(String),
}

/// How an answer fails to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The connection is cut before it.
    Broken,
    /// The connection is cut in the middle of its body.
    Cut,
    /// Half of its body comes, and then nothing.
    Stall,
    /// It never comes.
    Hang,
}

/// What the remote does on a stream.
#[derive(Clone, Debug)]
pub struct OnStream {
    /// The session whose newest open stream it is; `None` for the connection's.
    pub session: Option<String>,
    /// The name of the GET that opened it, where it is not the newest.
    pub of: Option<String>,
    /// What.
    pub output: Output,
}

/// What a stream carries.
#[derive(Clone, Debug)]
pub enum Output {
    /// An event with an id, a message, or both.
    Event {
        /// Its id.
        id: Option<String>,
        /// Its data.
        message: Option<Box<RawValue>>,
    },
    /// These bytes.
    Bytes(Repeated),
    /// The end of the body.
    End,
    /// A cut connection.
    Reset,
}

/// What the remote does on a socket.
#[derive(Clone, Debug)]
pub enum OnSocket {
    /// It sends a message.
    Message(Box<RawValue>),
    /// It sends any bytes as a text message.
    Text(Repeated),
    /// It sends a ping with this payload.
    Ping(String),
    /// It closes the socket.
    Close {
        /// With this code, or with none.
        code: Option<u16>,
        /// And these words.
        reason: String,
    },
    /// The connection is cut.
    Reset,
}

/// Why a text is no transcript.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct Refused {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl Transcript {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut lines = objects(text);
        let refused = |line: usize| move |reason: String| Refused { line, reason };
        if text.starts_with('\u{feff}') {
            let reason = "the file begins with a byte order mark (BOM); save it without one";
            return Err(refused(1)(reason.to_owned()));
        }
        let (line, first) =
            lines.next().ok_or_else(|| refused(1)("the file is empty".to_owned()))?;
        if !first.starts_with('{') {
            return Err(refused(line)("the header must be an object".to_owned()));
        }
        let header: Header = parse(first).map_err(refused(line))?;
        check_header(&header).map_err(refused(line))?;
        let mut steps = Vec::new();
        let mut names = Names::default();
        let mut last = line;
        // The last line of a recording that was cut off may not be whole.
        let whole = if header.recorded { text.matches('\n').count() } else { usize::MAX };
        for (line, text) in lines.take_while(|(line, _)| *line <= whole) {
            let action = action(text).map_err(refused(line))?;
            check_players(&header, &action).map_err(refused(line))?;
            names.check(text, &action).map_err(refused(line))?;
            steps.push(Step { line, text: text.to_owned(), action });
            last = line;
        }
        let starts = header.start != Start::None;
        let has = |which: fn(&Action) -> bool| steps.iter().any(|step| which(&step.action));
        if !has(checks) && !(has(checks_what_came) && (starts || has(acts))) {
            return Err(refused(last)("the file checks nothing".to_owned()));
        }
        Ok(Self { header, steps })
    }

    /// Reads a file. The last line of a recording that was cut off may end inside a character.
    ///
    /// # Errors
    /// As [`Transcript::parse`], or a line is not UTF-8.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        let Err(error) = std::str::from_utf8(bytes) else {
            return Self::parse(&String::from_utf8_lossy(bytes));
        };
        let (text, rest) = bytes.split_at(error.valid_up_to());
        let text = String::from_utf8_lossy(text);
        match Self::parse(&text) {
            Ok(transcript) if transcript.header.recorded && !rest.contains(&b'\n') => {
                Ok(transcript)
            }
            _ => {
                let line = text.matches('\n').count() + 1;
                Err(Refused { line, reason: "the line is not UTF-8".to_owned() })
            }
        }
    }

    /// Reads steps alone, without a header, as a prelude has them.
    pub(super) fn parse_steps(text: &str) -> Result<Vec<Step>, Refused> {
        objects(text)
            .map(|(line, text)| match action(text) {
                Ok(action) => Ok(Step { line, text: text.to_owned(), action }),
                Err(reason) => Err(Refused { line, reason }),
            })
            .collect()
    }
}

/// It fails where nothing has come, or where something has.
fn checks(action: &Action) -> bool {
    match action {
        Action::Sees(sees) => {
            sees.comparison != Comparison::Like || sees.messages.iter().any(|like| asks(like))
        }
        Action::Api(Asks { expected: Some(expected), .. }) => asks(expected),
        Action::Gets(_)
        | Action::Log { wanted: true, .. }
        | Action::Quiet
        | Action::Exit { .. } => true,
        _ => false,
    }
}

/// It holds where nothing has come, or whatever has.
fn checks_what_came(action: &Action) -> bool {
    matches!(action, Action::Sees(_) | Action::Log { wanted: false, .. } | Action::MemoryUnder(_))
}

/// Something may come of it.
fn acts(action: &Action) -> bool {
    matches!(
        action,
        Action::Write(_)
            | Action::EndInput
            | Action::CloseOutput
            | Action::Signal(_)
            | Action::Reachable(_)
            | Action::Api(_)
    )
}

/// A likeness that not every message has.
fn asks(like: &RawValue) -> bool {
    !matches!(&*like.get().split_whitespace().collect::<String>(), "{}" | "\"*\"")
}

/// The names that the steps so far have given.
#[derive(Default)]
struct Names {
    requests: BTreeSet<String>,
    ids: BTreeSet<String>,
}

impl Names {
    /// Refuses a step that uses a name which none before it has given, and notes those that it gives.
    fn check(&mut self, text: &str, action: &Action) -> Result<(), String> {
        for rest in text.split(REFERENCE).skip(1) {
            let name = rest.split("\"}").next().unwrap_or_default();
            if !self.ids.contains(name) {
                return Err(format!("no step before this saves an id as {name:?}"));
            }
        }
        if let Action::Answers(name, _)
        | Action::Stream(OnStream { of: Some(name), .. })
        | Action::Socket(name, _) = action
            && !self.requests.contains(name)
        {
            return Err(format!("no step before this names a request {name:?}"));
        }
        if let Action::Sees(Sees { save, .. }) | Action::Gets(Gets { save, .. }) = action {
            self.ids.extend(save.clone());
        }
        if let Action::Gets(Gets { name, .. }) = action {
            self.requests.extend(name.clone());
        }
        Ok(())
    }
}

/// What a saved id stands behind, up to its name. A quote inside a JSON string is escaped, so this is
/// found between tokens only.
pub(super) const REFERENCE: &str = "{\"$ref\":\"";

/// The lines that are no comments, with their numbers.
fn objects(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with("//"))
}

fn check_header(header: &Header) -> Result<(), String> {
    if header.transcript != 1 {
        return Err(format!("version {} of the format is not known here", header.transcript));
    }
    if header.name.trim().is_empty() {
        return Err("the name is empty".to_owned());
    }
    for rule in &header.rules {
        let number = rule.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
        if number.len() == rule.len() || number.parse::<u8>().is_err() {
            return Err(format!("{rule:?} names no rule"));
        }
    }
    if header.players.is_empty() {
        return Err("nobody may play it".to_owned());
    }
    check_path(&header.path)?;
    check_flags(&header.flags)
}

/// A path could lead to another host, or be commands to a shell that starts the bridge.
fn check_path(path: &str) -> Result<(), String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/?&=%._-~+,:@".contains(letter);
    if path.starts_with('/') && path.chars().all(plain) {
        return Ok(());
    }
    Err("the path must begin with / and have letters, digits and ?&=%._-~+,:@ only".to_owned())
}

/// The flags that a file may set, as [`check_flags`] has it; each has a value.
pub(crate) const FLAGS: [&str; 12] = [
    "--connect-timeout",
    "--header",
    "--hold",
    "--http",
    "--log-level",
    "--max-message-bytes",
    "--notices",
    "--on-stream-loss",
    "--orphan-timeout",
    "--post-timeout",
    "--recover",
    "--transport",
];

/// Somebody else may have written the file: no flag in it runs a command, reads or writes a file, or
/// tells the remote something of who plays it.
fn check_flags(flags: &[String]) -> Result<(), String> {
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        if word == "--cursor-in-query" {
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        if !FLAGS.contains(&name) {
            return Err(format!("a file may not set {name:?}, only {}", FLAGS.join(", ")));
        }
        match value.or_else(|| words.next().map(String::as_str)) {
            None => return Err(format!("the flag {name} has no value")),
            Some(value) if value.starts_with('-') => {
                return Err(format!("{value:?} is no value of the flag {name}"));
            }
            Some(value) if value.contains("${") => {
                return Err(format!("{value:?} takes a variable of whoever plays the file"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What only a process and its sockets show cannot be asked of the core.
fn check_players(header: &Header, action: &Action) -> Result<(), String> {
    let real = match action {
        Action::Gets(Gets { path: Some(_), .. }) => "a path",
        Action::Gets(Gets { http: Some(_), .. }) => "a version of HTTP",
        Action::Signal(_) => "a signal",
        Action::CloseOutput => "a closed pipe",
        Action::MemoryUnder(_) => "a measure of memory",
        _ => return Ok(()),
    };
    if header.players.contains(&Player::Virtual) {
        return Err(format!("{real} is for the live player only"));
    }
    Ok(())
}

/// A text message on a socket, among the requests that the remote got.
pub const TEXT: &str = "text";
/// A close, likewise; its body is the code.
pub const CLOSE: &str = "close";

/// The key that names each kind of step, and how the rest of it is read.
const KINDS: [(&str, Read); 21] = [
    ("editor", |text| one(text).map(Payload::Message).map(Action::Write)),
    ("editor_raw", editor_raw),
    ("editor_hex", editor_hex),
    ("editor_end", |text| one(text).map(|True| Action::EndInput)),
    ("editor_deaf", |text| one(text).map(|True| Action::CloseOutput)),
    ("signal", |text| one(text).map(Action::Signal)),
    ("log_has", |text| one(text).map(|text| Action::Log { text, wanted: true })),
    ("log_lacks", |text| one(text).map(|text| Action::Log { text, wanted: false })),
    ("sees", |text| sees(text, Comparison::Equal)),
    ("sees_like", |text| sees(text, Comparison::Like)),
    ("sees_any_order", sees_any_order),
    ("gets", gets),
    ("answers", answers),
    ("stream", stream),
    ("socket", socket),
    ("remote", |text| one(text).map(|state| Action::Reachable(matches!(state, State::Up)))),
    ("api", api),
    ("memory_under", |text| one(text).and_then(size).map(Action::MemoryUnder)),
    ("pass", |text| one(text).and_then(time).map(Action::Pass)),
    ("quiet", |text| one(text).map(|True| Action::Quiet)),
    ("exit", exit),
];

type Read = fn(&str) -> Result<Action, String>;

fn action(text: &str) -> Result<Action, String> {
    let keys: BTreeMap<String, serde::de::IgnoredAny> = parse(text)?;
    let mut kinds = KINDS.iter().filter(|(name, _)| keys.contains_key(*name));
    match (kinds.next(), kinds.next()) {
        (Some((_, read)), None) => read(text),
        (Some((one, _)), Some((other, _))) => {
            Err(format!("both {one:?} and {other:?} name the step"))
        }
        (None, _) => {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            Err(format!("no key names a step: {}", names.join(", ")))
        }
    }
}

fn parse<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        // It is one line of the file, whose number stands before this.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = error.to_string();
        let reason = reason.strip_suffix(&place).unwrap_or(&reason);
        match error.is_syntax() {
            true => format!("{reason} in column {}", error.column()),
            false => reason.to_owned(),
        }
    })
}

/// A step of one member, whose value this is. That it is the member of this kind was found out before.
fn one<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Field<T> {
        #[serde(
            rename = "editor",
            alias = "editor_end",
            alias = "editor_deaf",
            alias = "signal",
            alias = "log_has",
            alias = "log_lacks",
            alias = "remote",
            alias = "memory_under",
            alias = "pass",
            alias = "quiet"
        )]
        value: T,
    }
    parse(text).map(|Field { value }| value).map_err(|reason| {
        // What serde would have in its place are the members of other steps.
        let unknown = reason.split_once(", expected one of `editor`").map(|(unknown, _)| unknown);
        unknown.unwrap_or(&reason).to_owned()
    })
}

fn editor_raw(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        editor_raw: String,
        #[serde(default = "once")]
        times: usize,
        #[serde(default = "yes")]
        lf: bool,
    }
    let fields: Fields = parse(text)?;
    let bytes = Repeated::new(fields.editor_raw.into_bytes(), fields.times)?;
    Ok(Action::Write(Payload::Bytes { bytes, lf: fields.lf }))
}

fn editor_hex(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        editor_hex: String,
        #[serde(default = "yes")]
        lf: bool,
    }
    let fields: Fields = parse(text)?;
    let bytes = Repeated::new(hex(&fields.editor_hex)?, 1)?;
    Ok(Action::Write(Payload::Bytes { bytes, lf: fields.lf }))
}

fn sees(text: &str, comparison: Comparison) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        #[serde(alias = "sees_like")]
        sees: Box<RawValue>,
        #[serde(default)]
        bytes: bool,
        #[serde(default, deserialize_with = "duration")]
        within: Option<Duration>,
        save: Option<String>,
    }
    let Fields { sees, bytes, within, save } = parse(text)?;
    let comparison = match (comparison, bytes) {
        (Comparison::Equal, true) => Comparison::Bytes,
        (_, true) => return Err("`bytes` compares what `sees` gives".to_owned()),
        (comparison, false) => comparison,
    };
    Ok(Action::Sees(Sees { messages: vec![sees], comparison, within, save }))
}

fn sees_any_order(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        sees_any_order: Vec<Box<RawValue>>,
        #[serde(default, deserialize_with = "duration")]
        within: Option<Duration>,
    }
    let Fields { sees_any_order: messages, within } = parse(text)?;
    if messages.is_empty() {
        return Err("no message is given".to_owned());
    }
    Ok(Action::Sees(Sees { messages, comparison: Comparison::Like, within, save: None }))
}

fn gets(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        gets: Request,
        #[serde(rename = "as")]
        name: Option<String>,
        answer: Option<AnswerFields>,
        #[serde(default)]
        any_order: bool,
        #[serde(default, deserialize_with = "duration")]
        within: Option<Duration>,
        save: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Request {
        method: Option<String>,
        frame: Option<FrameField>,
        code: Option<u16>,
        #[serde(default, deserialize_with = "present")]
        session: Option<Option<String>>,
        path: Option<String>,
        http: Option<String>,
        #[serde(default)]
        headers: BTreeMap<String, Option<String>>,
        #[serde(default, deserialize_with = "present")]
        body: Option<Box<RawValue>>,
        #[serde(default, deserialize_with = "present")]
        body_like: Option<Box<RawValue>>,
        #[serde(default)]
        bytes: bool,
    }
    #[derive(Clone, Copy, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum FrameField {
        Text,
        Close,
    }
    let fields: Fields = parse(text)?;
    let request = fields.gets;
    let is_request = request.session.is_some()
        || request.path.is_some()
        || request.http.is_some()
        || !request.headers.is_empty()
        || fields.name.is_some()
        || fields.answer.is_some();
    let has_body = request.body.is_some() || request.body_like.is_some();
    let method = match (request.method, request.frame) {
        (Some(_), Some(_)) | (None, None) => {
            return Err("a request has a `method`, what comes on a socket is a `frame`".to_owned());
        }
        (Some(method), None) => method,
        (None, Some(_)) if is_request => {
            return Err("a frame has no part of a request and no answer".to_owned());
        }
        (None, Some(FrameField::Close)) if has_body => {
            return Err("a close has a `code` and no body".to_owned());
        }
        (None, Some(FrameField::Text)) => TEXT.to_owned(),
        (None, Some(FrameField::Close)) => CLOSE.to_owned(),
    };
    if request.code.is_some() && method != CLOSE {
        return Err("only a close has a `code`".to_owned());
    }
    if fields.name.is_some() && fields.answer.is_some() {
        return Err(
            "it is answered at once by `answer`, or later under its name, not both".to_owned()
        );
    }
    request.headers.keys().try_for_each(|name| check_name(name))?;
    let body = match (request.body, request.body_like) {
        (Some(_), Some(_)) => return Err("both `body` and `body_like` are given".to_owned()),
        (Some(body), None) if request.bytes => Some((body, Comparison::Bytes)),
        (Some(body), None) => Some((body, Comparison::Equal)),
        (None, _) if request.bytes => return Err("`bytes` compares a `body`".to_owned()),
        (None, body) => body.map(|body| (body, Comparison::Like)),
    };
    let code = request.code.map(|code| RawValue::from_string(code.to_string()));
    let code = code.transpose().map_err(|error| error.to_string())?;
    Ok(Action::Gets(Gets {
        method,
        session: request.session,
        path: request.path,
        http: request.http,
        headers: request.headers,
        body: body.or(code.map(|code| (code, Comparison::Equal))),
        any_order: fields.any_order,
        name: fields.name,
        answer: fields.answer.map(AnswerFields::read).transpose()?,
        within: fields.within,
        save: fields.save,
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerFields {
    /// Which request is answered stands beside the rest: serde's `flatten` would let unknown fields pass.
    answers: Option<String>,
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "present")]
    body: Option<Box<RawValue>>,
    text: Option<String>,
    how: Option<Fault>,
}

impl AnswerFields {
    fn read(self) -> Result<Answer, String> {
        if self.answers.is_some() {
            return Err("`answers` is a step of its own".to_owned());
        }
        if let Some(status) = self.status.filter(|status| !matches!(status, 101 | 200..=599)) {
            return Err(format!("{status} is no status of an answer: 101 and 200 to 599 are"));
        }
        for (name, value) in &self.headers {
            check_name(name)?;
            HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("{value:?} is no value of a header"))?;
        }
        let body = match (self.body, self.text) {
            (Some(_), Some(_)) => return Err("both `body` and `text` are given".to_owned()),
            (Some(body), None) => Some(Body::Message(body)),
            (None, text) => text.map(Body::Text),
        };
        match self.how {
            Some(Fault::Broken | Fault::Hang) if self.status.is_some() || body.is_some() => {
                Err("an answer that does not come has neither status nor body".to_owned())
            }
            Some(Fault::Cut | Fault::Stall) if body.is_none() => {
                Err("only a body can be cut or stall".to_owned())
            }
            fault => Ok(Answer { status: self.status, headers: self.headers, body, fault }),
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    HeaderName::from_bytes(name.as_bytes())
        .map(drop)
        .map_err(|_| format!("{name:?} is no name of a header"))
}

fn answers(text: &str) -> Result<Action, String> {
    let mut fields: AnswerFields = parse(text)?;
    let name = fields.answers.take().ok_or("`answers` names a request")?;
    Ok(Action::Answers(name, fields.read()?))
}

fn stream(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        stream: Option<String>,
        of: Option<String>,
        id: Option<String>,
        #[serde(default, deserialize_with = "present")]
        event: Option<Box<RawValue>>,
        data: Option<String>,
        raw: Option<String>,
        hex: Option<String>,
        comment: Option<String>,
        end: Option<EndField>,
        times: Option<usize>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum EndField {
        Clean,
        Reset,
    }
    let fields: Fields = parse(text)?;
    let times = fields.times.unwrap_or(1);
    let repeated = |text: Vec<u8>| Repeated::new(text, times).map(Output::Bytes);
    let mut outputs = Vec::new();
    if let Some(data) = &fields.data {
        let id = fields.id.iter().map(|id| format!("id: {id}\n"));
        let lines = data.split('\n').map(|line| format!("data: {line}\n"));
        let event: String = id.chain(lines).chain(["\n".to_owned()]).collect();
        outputs.push(repeated(event.into_bytes())?);
    }
    if fields.event.is_some() || (fields.id.is_some() && fields.data.is_none()) {
        outputs.push(Output::Event { id: fields.id, message: fields.event });
    }
    outputs.extend(fields.raw.map(|raw| repeated(raw.into_bytes())).transpose()?);
    outputs.extend(fields.hex.map(|text| hex(&text).and_then(repeated)).transpose()?);
    let comment = fields.comment.map(|text| format!(": {text}\n\n").into_bytes());
    outputs.extend(comment.map(repeated).transpose()?);
    outputs.extend(fields.end.map(|end| match end {
        EndField::Clean => Output::End,
        EndField::Reset => Output::Reset,
    }));
    let [output] = <[Output; 1]>::try_from(outputs)
        .map_err(|outputs| format!("{} things happen on the stream; one must", outputs.len()))?;
    if fields.times.is_some() && !matches!(output, Output::Bytes(_)) {
        return Err("`times` repeats `data`, `raw`, `hex` or `comment`".to_owned());
    }
    Ok(Action::Stream(OnStream { session: fields.stream, of: fields.of, output }))
}

fn socket(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        socket: String,
        #[serde(default, deserialize_with = "present")]
        message: Option<Box<RawValue>>,
        text: Option<String>,
        hex: Option<String>,
        times: Option<usize>,
        ping: Option<String>,
        #[serde(default, deserialize_with = "present")]
        close: Option<Option<u16>>,
        reason: Option<String>,
        end: Option<EndField>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum EndField {
        Reset,
    }
    let fields: Fields = parse(text)?;
    if fields.times.is_some() && fields.text.is_none() {
        return Err("`times` repeats `text`".to_owned());
    }
    if fields.reason.is_some() && !matches!(fields.close, Some(Some(_))) {
        return Err("a `reason` stands behind the code of a `close`".to_owned());
    }
    // A frame that is not data holds 125 bytes, and the code is two of them.
    let words = fields.ping.as_ref().or(fields.reason.as_ref());
    if words.is_some_and(|words| words.len() > 123) {
        return Err("a ping and a reason have 123 bytes at the most".to_owned());
    }
    let reason = fields.reason.unwrap_or_default();
    let times = fields.times.unwrap_or(1);
    let mut does = Vec::new();
    does.extend(fields.message.map(OnSocket::Message));
    if let Some(text) = fields.text {
        does.push(OnSocket::Text(Repeated::new(text.into_bytes(), times)?));
    }
    if let Some(text) = fields.hex {
        does.push(OnSocket::Text(Repeated::new(hex(&text)?, 1)?));
    }
    does.extend(fields.ping.map(OnSocket::Ping));
    does.extend(fields.close.map(|code| OnSocket::Close { code, reason }));
    does.extend(fields.end.map(|EndField::Reset| OnSocket::Reset));
    let [does] = <[OnSocket; 1]>::try_from(does)
        .map_err(|does| format!("{} things happen on the socket; one must", does.len()))?;
    Ok(Action::Socket(fields.socket, does))
}

fn api(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        api: Question,
        #[serde(default, deserialize_with = "present")]
        expect: Option<Box<RawValue>>,
        #[serde(default, deserialize_with = "duration")]
        within: Option<Duration>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Question {
        Status,
        Close(String),
        Reconnect,
    }
    let Fields { api, expect: expected, within } = parse(text)?;
    let inquiry = match api {
        Question::Status => Inquiry::Status,
        Question::Close(session) => Inquiry::Close(SessionId(session.into())),
        Question::Reconnect => Inquiry::Reconnect,
    };
    if expected.is_none() && inquiry != Inquiry::Reconnect {
        return Err("a question to the API needs what to `expect`".to_owned());
    }
    Ok(Action::Api(Asks { inquiry, expected, within }))
}

fn exit(text: &str) -> Result<Action, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        exit: i32,
        #[serde(default, deserialize_with = "duration")]
        within: Option<Duration>,
    }
    parse(text).map(|Fields { exit, within }| Action::Exit { code: exit, within })
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Down,
    Up,
}

fn size(text: String) -> Result<u64, String> {
    match text.parse::<bytesize::ByteSize>() {
        Ok(bytes) => Ok(bytes.as_u64()),
        Err(_) => Err(format!("{text:?} is no size; write it as 64KiB or 64MiB")),
    }
}

fn once() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// The JSON value `true`.
struct True;

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if bool::deserialize(deserializer)? {
            Ok(True)
        } else {
            Err(serde::de::Error::custom("only true has a meaning here"))
        }
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(String::deserialize(deserializer)?).map(Some).map_err(serde::de::Error::custom)
}

fn time(text: String) -> Result<Duration, String> {
    humantime::parse_duration(&text).map_err(|error| format!("{text:?} is no duration: {error}"))
}

/// Bytes written as pairs of hexadecimal digits, with or without spaces.
fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|digit| *digit != ' ')
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(format!("{text:?} is not hexadecimal")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEADER: &str = r#"{"transcript":1,"name":"a name","rules":["S1"]}"#;

    fn refusal(lines: &[&str]) -> (usize, String) {
        let refused = Transcript::parse(&lines.join("\n")).unwrap_err();
        (refused.line, refused.reason)
    }

    #[test]
    fn a_file_is_read_with_the_numbers_of_its_lines() {
        let text =
            format!("// about\n{HEADER}\n\n{{\"editor\":{{\"id\": 1.0}}}}\n  {{\"quiet\":true}}\n");
        let transcript = Transcript::parse(&text).unwrap();
        assert_eq!(transcript.header.players, both_players());
        let lines: Vec<usize> = transcript.steps.iter().map(|step| step.line).collect();
        assert_eq!(lines, [4, 5]);
        let Action::Write(Payload::Message(message)) = &transcript.steps[0].action else {
            unreachable!()
        };
        assert_eq!(message.get(), r#"{"id": 1.0}"#);
    }

    #[test]
    fn a_wrong_file_is_refused_with_line_and_reason() {
        let cases: &[(&str, &str)] = &[
            ("{", "EOF"),
            ("[]", "expected a map"),
            (r#"{"edits":1}"#, "no key names a step"),
            (r#"{"sees":1,"quiet":true}"#, r#"both "sees" and "quiet""#),
            (r#"{"sees":1,"colour":2}"#, "unknown field `colour`"),
            (r#"{"quiet":false}"#, "only true"),
            (r#"{"pass":"soon"}"#, r#""soon" is no duration"#),
            (r#"{"gets":{"method":"GET","header":{}}}"#, "unknown field `header`"),
            (r#"{"gets":{"method":"POST"},"as":"a","answer":{}}"#, "not both"),
            (r#"{"gets":{"method":"POST","body":1,"body_like":1}}"#, "both `body` and `body_like`"),
            (r#"{"gets":{"method":"POST","path":"/"}}"#, "live player only"),
            (r#"{"answers":"a","state":1}"#, "unknown field `state`"),
            (r#"{"answers":"a","how":"broken","status":200}"#, "neither status nor body"),
            (r#"{"stream":"a"}"#, "0 things happen"),
            (r#"{"gets":{}}"#, "a request has a `method`"),
            (r#"{"gets":{"method":"GET","frame":"text"}}"#, "a request has a `method`"),
            (r#"{"gets":{"frame":"text","session":"a"}}"#, "no part of a request"),
            (r#"{"gets":{"frame":"text"},"as":"a"}"#, "no answer"),
            (r#"{"gets":{"frame":"text","code":1000}}"#, "only a close has a `code`"),
            (r#"{"gets":{"frame":"close","body":1}}"#, "a `code` and no body"),
            (r#"{"socket":"a","message":1}"#, "no step before this names a request \"a\""),
            (r#"{"socket":"a"}"#, "0 things happen on the socket"),
            (r#"{"socket":"a","message":1,"close":1000}"#, "2 things happen on the socket"),
            (r#"{"socket":"a","message":1,"times":2}"#, "`times` repeats `text`"),
            (r#"{"socket":"a","close":null,"reason":"r"}"#, "behind the code of a `close`"),
            (r#"{"socket":"a","end":"clean"}"#, "unknown variant `clean`"),
            (r#"{"stream":"a","raw":"","comment":""}"#, "2 things happen"),
            (r#"{"stream":"a","data":"","event":1}"#, "2 things happen"),
            (r#"{"stream":"a","event":1,"times":2}"#, "`times` repeats"),
            (r#"{"editor_hex":"abc"}"#, "not hexadecimal"),
            (r#"{"remote":"away"}"#, "unknown variant `away`"),
            (r#"{"api":"status"}"#, "needs what to `expect`"),
            (r#"{"memory_under":"much"}"#, r#""much" is no size"#),
            (r#"{"memory_under":"1MiB"}"#, "a measure of memory is for the live player only"),
            (r#"{"answers":"a","how":"stall"}"#, "only a body"),
            (r#"{"api":{"open":"s1"}}"#, "unknown variant `open`"),
            (r#"{"signal":"KILL"}"#, "unknown variant `KILL`"),
            (r#"{"signal":"TERM"}"#, "a signal is for the live player only"),
            (r#"{"editor_deaf":true}"#, "a closed pipe is for the live player only"),
            (r#"{"gets":{"method":"GET","http":"2"}}"#, "live player only"),
            (r#"{"editor_raw":"ab","times":99999999999}"#, "more than 512 MiB"),
            (r#"{"stream":"a","raw":"ab","times":18446744073709551615}"#, "more than 512 MiB"),
            (r#"{"gets":{"method":"POST"},"answer":{"status":100}}"#, "100 is no status"),
            (r#"{"gets":{"method":"POST"},"answer":{"status":600}}"#, "600 is no status"),
            (
                r#"{"gets":{"method":"POST"},"answer":{"headers":{"a b":""}}}"#,
                "no name of a header",
            ),
            (
                r#"{"gets":{"method":"POST"},"answer":{"headers":{"a":"\n"}}}"#,
                "no value of a header",
            ),
            (r#"{"gets":{"method":"POST","headers":{"":""}}}"#, "no name of a header"),
            (r#"{"answers":"a"}"#, "no step before this names a request \"a\""),
            (r#"{"stream":null,"of":"a","raw":""}"#, "no step before this names a request \"a\""),
            (r#"{"editor":{"id":{"$ref":"q"}}}"#, "no step before this saves an id as \"q\""),
        ];
        for (line, reason) in cases {
            let (number, found) = refusal(&[HEADER, "// a comment", line]);
            assert!(number == 3 && found.contains(reason), "{line}: {number}: {found}");
        }
    }

    #[test]
    fn a_wrong_header_is_refused() {
        let cases = [
            ("{}", "missing field"),
            (r#"{"transcript":2,"name":"n","rules":["S1"]}"#, "version 2"),
            (r#"{"transcript":1,"name":" ","rules":["S1"]}"#, "name is empty"),
            ("[]", "the header must be an object"),
            ("\u{feff}{}", "byte order mark"),
            (r#"{"transcript":1,"name":"n","path":"acp"}"#, "must begin with /"),
            (r#"{"transcript":1,"name":"n","path":"@example.com/"}"#, "must begin with /"),
            (r#"{"transcript":1,"name":"n","path":"/;id"}"#, "letters, digits"),
            (r#"{"transcript":1,"name":"n","rules":["fast"]}"#, "names no rule"),
            (r#"{"transcript":1,"name":"n","rules":["S1"],"players":[]}"#, "nobody"),
            (r#"{"transcript":1,"name":"n","rules":["S1"],"who":1}"#, "unknown field"),
        ];
        for (header, reason) in cases {
            let (line, found) = refusal(&[header, r#"{"quiet":true}"#]);
            assert!(line == 1 && found.contains(reason), "{header}: {found}");
        }
        assert_eq!(refusal(&[]), (1, "the file is empty".to_owned()));
    }

    #[test]
    fn a_file_that_checks_nothing_is_refused() {
        for step in [
            r#"{"editor":1}"#,
            r#"{"api":"reconnect"}"#,
            r#"{"api":"status","expect":{}}"#,
            r#"{"log_lacks":"a"}"#,
            r#"{"sees_like":{}}"#,
            r#"{"sees_like":"*"}"#,
        ] {
            let (line, reason) = refusal(&[HEADER, step]);
            assert_eq!((line, &reason[..]), (2, "the file checks nothing"));
        }
        assert_eq!(refusal(&[HEADER]), (1, "the file checks nothing".to_owned()));
    }

    #[test]
    fn a_file_may_set_flags_that_reach_nothing_of_whoever_plays_it() {
        let header = |flags: &[&str]| {
            let flags = serde_json::to_string(flags).unwrap();
            let header = HEADER.replace('}', &format!(",\"flags\":{flags}}}"));
            Transcript::parse(&format!("{header}\n{{\"quiet\":true}}"))
        };
        let good: [&[&str]; 4] = [
            &["--hold", "1s", "--cursor-in-query", "--recover=manual"],
            &["--header", "a: hidden", "--header=b: c=d"],
            &["--log-level", "trace", "--http", "2", "--notices", "off"],
            &[],
        ];
        for flags in good {
            assert!(header(flags).is_ok(), "{flags:?}");
        }
        let bad: [&[&str]; 15] = [
            &["--bearer-command", "id"],
            &["--bearer-command=id"],
            &["--bearer-env", "HOME"],
            &["--bearer-file", "a"],
            &["--log-file", "a"],
            &["--record=a"],
            &["--runtime-dir", "a"],
            &["--api", "0.0.0.0:1"],
            &["--header", "a: ${HOME}"],
            &["--header=a: ${HOME}"],
            &["--header", "--bearer-command=id"],
            &["--cursor-in-query=--record"],
            &["--hold"],
            &["--"],
            &["http://example.com/"],
        ];
        for flags in bad {
            assert_eq!(header(flags).unwrap_err().line, 1, "{flags:?}");
        }
    }

    #[test]
    fn a_reason_has_one_place() {
        assert_eq!(refusal(&[HEADER, "{\"quiet\" true}"]).1, "expected `:` in column 10");
        let (_, reason) = refusal(&[HEADER, r#"{"sees":1,"colour":2}"#]);
        assert!(!reason.contains("line 1"), "{reason}");
        assert_eq!(refusal(&[HEADER, r#"{"quiet":true,"lf":1}"#]).1, "unknown field `lf`");
    }

    #[test]
    fn repeated_bytes_come_in_pieces_and_are_all_there() {
        for (length, times) in [(0, 7), (3, 0), (3, 1), (3, 1_000_000), (2_000_000, 3)] {
            let repeated = Repeated::new(vec![b'x'; length], times).unwrap();
            let lengths: Vec<usize> = repeated.pieces().map(|piece| piece.len()).collect();
            assert_eq!(lengths.iter().sum::<usize>(), length * times);
            assert!(lengths.iter().all(|it| *it <= length.max(Repeated::PIECE)), "{lengths:?}");
        }
    }

    #[test]
    fn null_and_absent_differ() {
        let Action::Gets(absent) = action(r#"{"gets":{"method":"POST"}}"#).unwrap() else {
            unreachable!()
        };
        let Action::Gets(null) =
            action(r#"{"gets":{"method":"POST","session":null,"body":null}}"#).unwrap()
        else {
            unreachable!()
        };
        assert_eq!((absent.session, null.session), (None, Some(None)));
        assert!(absent.body.is_none() && null.body.is_some());
    }

    #[test]
    fn bytes_are_written_in_hexadecimal() {
        assert_eq!(hex("7b ff00Fe").unwrap(), [0x7b, 0xff, 0, 0xfe]);
    }
}
