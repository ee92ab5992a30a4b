//! The fault proxy: stands between the program and a real server over HTTP/1.1, and does to the
//! bytes what networks do.
//!
//! It knows of each connection what its last request was, so that a fault can wait for a POST, a
//! session's stream or the DELETE, and it keeps what it passed on of each stream.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::peers::editor::PATIENCE;

/// What goes wrong, where.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Of which requests.
    pub target: Target,
    /// In which direction.
    pub way: Way,
    /// At which byte of what passes next.
    pub place: Place,
    /// What happens.
    pub harm: Harm,
}

/// The requests that a fault can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A POST.
    Post,
    /// The GET of a session's stream.
    Stream,
    /// The DELETE.
    Delete,
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the program to the server.
    Up,
    /// From the server to the program.
    Down,
}

/// A place in a piece of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Before its first byte: of an answer, before the headers.
    Start,
    /// In its middle.
    Middle,
    /// Between a CR and its LF, the last of the piece; in the middle where it has none.
    InLineEnd,
    /// Inside the first character that is longer than a byte; in the middle where it has none.
    InCharacter,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// Both ends are closed.
    Reset,
    /// Nothing passes for a while, then both ends are closed.
    Stall,
    /// Nothing passes for a while, then all goes on.
    Delay,
    /// The bytes pass one by one.
    Slices,
    /// Both ends are closed, and so are the next connections, before anything passes.
    Refuse,
}

/// How long a stall or a delay is.
const WHILE: Duration = Duration::from_millis(40);
/// Connections that a refusal closes.
const REFUSED: usize = 2;

/// The proxy, at work until the test ends.
pub struct Proxy {
    /// Where it listens, without a path.
    pub url: String,
    state: Shared,
}

/// The state, and what tells that a fault happened.
type Shared = Arc<(Mutex<State>, Condvar)>;

#[derive(Default)]
struct State {
    /// What happens next, one after another.
    armed: VecDeque<Fault>,
    refusals: usize,
    /// What was passed on of each session's stream, one entry a connection.
    streams: Vec<Vec<u8>>,
}

impl Proxy {
    /// Listens at a free port of 127.0.0.1 and passes everything on to `server`.
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("http://").to_owned();
        let state = Shared::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let is_refused = {
                    let mut state = lock(&shared.0);
                    let is_refused = state.refusals > 0;
                    state.refusals = state.refusals.saturating_sub(1);
                    shared.1.notify_all();
                    is_refused
                };
                if !is_refused && let Ok(server) = TcpStream::connect(&server) {
                    Connection::start(&client, &server, &shared);
                }
            }
        });
        Self { url, state }
    }

    /// As soon as each can, these happen, one after another.
    pub fn arm(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.state.0).armed = faults.into_iter().collect();
    }

    /// Waits until all that was to happen has happened. Connections that are still to be refused wait
    /// for nothing but the next turn, and are not.
    pub fn wait(&self) {
        let (state, happened) = &*self.state;
        let waited =
            happened.wait_timeout_while(lock(state), PATIENCE, |state| !state.armed.is_empty());
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.refusals = 0;
        assert!(!waited.timed_out(), "these faults did not happen: {:?}", state.armed);
    }

    /// The text of all that was passed on of sessions' streams.
    pub fn streamed(&self) -> Vec<String> {
        let state = lock(&self.state.0);
        state.streams.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

/// One connection of the program, with the server's end of it.
#[derive(Clone)]
struct Connection {
    state: Shared,
    /// What its last request was.
    target: Arc<Mutex<Option<Target>>>,
    /// Its place in [`State::streams`], if it is one.
    stream: Arc<Mutex<Option<usize>>>,
    ends: Arc<[TcpStream; 2]>,
}

impl Connection {
    fn start(client: &TcpStream, server: &TcpStream, state: &Shared) {
        for end in [client, server] {
            end.set_nodelay(true).unwrap();
        }
        let ends = Arc::new([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        let (target, stream) = (Arc::default(), Arc::default());
        let connection = Self { state: Arc::clone(state), target, stream, ends };
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let (up, down) = (connection.clone(), connection);
        thread::spawn(move || up.pass(from, to, Way::Up));
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || down.pass(from, to, Way::Down));
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, way: Way) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let piece = &buffer[..length];
            if way == Way::Up {
                self.read_request(piece);
            }
            let passed = match self.take_fault(way, piece) {
                None => self.write(&mut to, piece, way),
                Some((fault, at)) => {
                    self.write(&mut to, &piece[..at], way)
                        && self.harm(fault.harm, &mut to, &piece[at..], way)
                }
            };
            if !passed {
                break;
            }
        }
        self.close();
    }

    fn read_request(&self, piece: &[u8]) {
        let text = String::from_utf8_lossy(piece).to_ascii_lowercase();
        let target = match text.split(' ').next() {
            Some("post") => Target::Post,
            Some("delete") => Target::Delete,
            Some("get") if text.contains("\r\nacp-session-id:") => Target::Stream,
            _ => return,
        };
        *lock(&self.target) = Some(target);
        if target == Target::Stream {
            let mut state = lock(&self.state.0);
            state.streams.push(Vec::new());
            *lock(&self.stream) = Some(state.streams.len() - 1);
        }
    }

    /// The armed fault, if this is what it waits for, and where in the piece it happens.
    fn take_fault(&self, way: Way, piece: &[u8]) -> Option<(Fault, usize)> {
        let mut state = lock(&self.state.0);
        let fault = *state.armed.front()?;
        if fault.way != way || *lock(&self.target) != Some(fault.target) {
            return None;
        }
        let middle = piece.len() / 2;
        let at = match fault.place {
            Place::Start => 0,
            Place::Middle => middle,
            Place::InLineEnd => {
                piece.windows(2).rposition(|pair| pair == b"\r\n").map_or(middle, |at| at + 1)
            }
            Place::InCharacter => {
                piece.iter().position(|byte| *byte >= 0x80).map_or(middle, |at| at + 1)
            }
        };
        state.armed.pop_front();
        if matches!(fault.harm, Harm::Refuse) {
            state.refusals = REFUSED;
        }
        self.state.1.notify_all();
        Some((fault, at))
    }

    /// Whether the connection goes on.
    fn harm(&self, harm: Harm, to: &mut TcpStream, rest: &[u8], way: Way) -> bool {
        match harm {
            Harm::Reset | Harm::Refuse => false,
            Harm::Stall => {
                thread::sleep(WHILE);
                false
            }
            Harm::Delay => {
                thread::sleep(WHILE);
                self.write(to, rest, way)
            }
            Harm::Slices => rest.chunks(1).all(|slice| self.write(to, slice, way)),
        }
    }

    fn write(&self, to: &mut TcpStream, bytes: &[u8], way: Way) -> bool {
        let written = to.write_all(bytes).is_ok();
        if written
            && way == Way::Down
            && let Some(stream) = *lock(&self.stream)
        {
            lock(&self.state.0).streams[stream].extend_from_slice(bytes);
        }
        written
    }

    fn close(&self) {
        for end in &*self.ends {
            // The other way may have closed it already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
