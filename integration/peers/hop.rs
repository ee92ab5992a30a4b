//! Stands between the program and a server as a proxy that records what passes, for HTTP/1.1.
//!
//! It understands nothing while it copies; what was recorded is read afterwards. On the way to the
//! program it can put other bytes of the same length in the place of some, so that a server that
//! prints JSON itself says what it never would.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::editor::PATIENCE;

/// The proxy, at work until the test ends.
pub struct Hop {
    /// Where it listens, without a path.
    pub url: String,
    recorded: Arc<Recorded>,
}

#[derive(Default)]
struct Recorded {
    connections: Mutex<Vec<Connection>>,
    ended: Condvar,
}

#[derive(Default)]
struct Connection {
    /// What the program sent.
    up: Vec<u8>,
    /// What the program received.
    down: Vec<u8>,
    open_ways: usize,
}

/// Bytes, and those of the same length that the program gets in their place.
pub type Swap = (Vec<u8>, Vec<u8>);

/// What passed, read.
#[derive(Debug, Default)]
pub struct Passed {
    /// The body of every POST, in order where they came on one connection.
    pub posts: Vec<Vec<u8>>,
    /// Every JSON body of an answer, and the data of every event of a stream.
    pub messages: Vec<Vec<u8>>,
}

impl Hop {
    /// Listens at a free port of 127.0.0.1 and passes everything on to `server`.
    pub fn to(server: &str, swaps: Vec<Swap>) -> Self {
        assert!(swaps.iter().all(|(from, to)| from.len() == to.len()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = server.trim_start_matches("http://").to_owned();
        let recorded = Arc::<Recorded>::default();
        let all = Arc::clone(&recorded);
        thread::spawn(move || {
            for accepted in listener.incoming() {
                let client = accepted.unwrap();
                let server = TcpStream::connect(&server).unwrap();
                let number = all.begin();
                let (swaps, up, down) = (swaps.clone(), Arc::clone(&all), Arc::clone(&all));
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    copy(from, to, &[], |bytes| up.add(number, |one| one.up.extend(bytes)));
                    up.end_way(number);
                });
                thread::spawn(move || {
                    copy(server, client, &swaps, |bytes| {
                        down.add(number, |one| one.down.extend(bytes));
                    });
                    down.end_way(number);
                });
            }
        });
        Self { url, recorded }
    }

    /// What passed. Waits until the program has closed its connections.
    pub fn passed(&self) -> Passed {
        let connections = self.recorded.connections.lock().unwrap();
        let is_open =
            |all: &mut Vec<Connection>| all.iter().any(|connection| connection.open_ways > 0);
        let (connections, waited) =
            self.recorded.ended.wait_timeout_while(connections, PATIENCE, is_open).unwrap();
        assert!(!waited.timed_out(), "a connection stays open");
        let mut passed = Passed::default();
        for connection in connections.iter() {
            let requests = requests(&connection.up);
            passed.posts.extend(requests.into_iter().filter(|body| !body.is_empty()));
            passed.messages.extend(messages(&connection.down));
        }
        passed
    }
}

impl Recorded {
    fn begin(&self) -> usize {
        let mut connections = self.connections.lock().unwrap();
        connections.push(Connection { open_ways: 2, ..Connection::default() });
        connections.len() - 1
    }

    fn add(&self, number: usize, add: impl FnOnce(&mut Connection)) {
        add(&mut self.connections.lock().unwrap()[number]);
    }

    fn end_way(&self, number: usize) {
        self.add(number, |connection| connection.open_ways -= 1);
        self.ended.notify_all();
    }
}

/// Copies to the end of either side. What is recorded is what was passed on.
fn copy(mut from: TcpStream, mut to: TcpStream, swaps: &[Swap], record: impl Fn(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    let mut held = Vec::new();
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        held.extend_from_slice(&buffer[..length]);
        for (old, new) in swaps {
            while let Some(place) = find(&held, old) {
                held[place..place + old.len()].copy_from_slice(new);
            }
        }
        let kept = if length == 0 { 0 } else { begun(&held, swaps) };
        let passes: Vec<u8> = held.drain(..held.len() - kept).collect();
        record(&passes);
        if to.write_all(&passes).is_err() || length == 0 {
            break;
        }
    }
    // The other way ends with this one.
    let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
}

/// How many of the last bytes may be the beginning of what is swapped.
fn begun(held: &[u8], swaps: &[Swap]) -> usize {
    let begins = |length: &usize| {
        swaps.iter().any(|(old, _)| *length < old.len() && held.ends_with(&old[..*length]))
    };
    let longest = swaps.iter().map(|(old, _)| old.len()).max().unwrap_or(0);
    (0..longest.min(held.len() + 1)).rev().find(begins).unwrap_or(0)
}

/// The bodies of the requests of one connection.
fn requests(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while let Some((head, rest)) = split_head(bytes) {
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        assert!(header(&head, "transfer-encoding").is_none(), "a chunked request: {head}");
        bodies.push(rest[..length].to_vec());
        bytes = &rest[length..];
    }
    bodies
}

/// The messages in the responses of one connection.
fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = split_head(bytes) {
        let body;
        (body, bytes) = match header(&head, "content-length") {
            Some(length) => {
                let (body, rest) = rest.split_at(length.parse().unwrap());
                (body.to_vec(), rest)
            }
            None if header(&head, "transfer-encoding").is_some() => dechunked(rest),
            None => (Vec::new(), rest),
        };
        match header(&head, "content-type").unwrap_or_default() {
            "text/event-stream" => messages.extend(event_data(&body)),
            "application/json" => messages.push(body),
            _ => {}
        }
    }
    messages
}

fn split_head(bytes: &[u8]) -> Option<(String, &[u8])> {
    let end = find(bytes, b"\r\n\r\n")?;
    Some((String::from_utf8(bytes[..end].to_vec()).unwrap(), &bytes[end + 4..]))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// A chunked body, whole or cut, and what follows it.
fn dechunked(mut bytes: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut body = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let (data, after) = (end + 2, end + 2 + size + 2);
        if size == 0 {
            return (body, &bytes[after.min(bytes.len())..]);
        }
        if after > bytes.len() {
            break;
        }
        body.extend_from_slice(&bytes[data..data + size]);
        bytes = &bytes[after..];
    }
    (body, &[])
}

/// The data of the events of a stream, by the simple form that servers write: lines end in LF.
fn event_data(body: &[u8]) -> VecDeque<Vec<u8>> {
    let mut events = VecDeque::new();
    let mut data: Option<Vec<u8>> = None;
    for line in body.split(|byte| *byte == b'\n') {
        if let Some(text) = line.strip_prefix(b"data:") {
            let text = text.strip_prefix(b" ").unwrap_or(text);
            match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(text);
                }
                None => data = Some(text.to_vec()),
            }
        } else if line.is_empty() {
            events.extend(data.take());
        }
    }
    events
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
