//! ACP's Streamable HTTP for the demo's agent: one endpoint, a stream for the connection and one
//! for each session, numbered events that a reader who comes back can have again.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::agent::{Agent, Work};
use crate::lock::lock;

const CONNECTION: &str = "acp-connection-id";
const SESSION: &str = "acp-session-id";
/// Silence after which a stream shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Bytes that wait for a slow reader before the agent waits too.
const UNREAD_BYTES: usize = 1 << 20;
/// Events that a reader who comes back can have again.
const KEPT_EVENTS: usize = 1024;
/// The longest message.
const BODY_BYTES: usize = 128 << 20;

/// Is told each request, in words, when it is answered.
pub type Witness = Arc<dyn Fn(String) + Send + Sync>;

/// The agent behind its endpoint. Clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    agent: Arc<Agent>,
    connections: Mutex<Connections>,
    witness: Witness,
}

#[derive(Default)]
struct Connections {
    count: u64,
    open: BTreeMap<String, Connection>,
}

#[derive(Clone, Default)]
struct Connection {
    work: Arc<Work>,
    outlet: Outlet,
}

/// Where the agent's messages to one connection go.
#[derive(Clone, Debug, Default)]
pub struct Outlet(Arc<Mutex<BTreeMap<Option<String>, Arc<Mailbox>>>>);

impl Outlet {
    /// Sends a message on a session's stream, or the connection's; waits while the reader of the
    /// stream is far behind.
    pub async fn send(&self, session: Option<&str>, message: &Value) {
        self.mailbox(session).push(message.to_string()).await;
    }

    /// Cuts a session's stream after so many more events, in the middle of its body.
    fn cut_after(&self, session: &str, events: u64) {
        self.mailbox(Some(session)).cut_after(events);
    }

    /// Cuts every stream.
    fn cut_all(&self) {
        std::mem::take(&mut *lock(&self.0)).into_values().for_each(|mailbox| mailbox.cut_after(0));
    }

    /// Ends a session's stream once all of it is read.
    pub fn end(&self, session: Option<&str>) {
        let mailbox = lock(&self.0).remove(&session.map(str::to_owned));
        if let Some(mailbox) = mailbox {
            mailbox.end();
        }
    }

    fn end_all(&self) {
        std::mem::take(&mut *lock(&self.0)).into_values().for_each(|mailbox| mailbox.end());
    }

    fn mailbox(&self, session: Option<&str>) -> Arc<Mailbox> {
        Arc::clone(lock(&self.0).entry(session.map(str::to_owned)).or_default())
    }
}

/// One stream: its events, read or not.
#[derive(Debug, Default)]
struct Mailbox {
    state: Mutex<Events>,
    changed: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Events {
    /// The events that are kept, the oldest first; the last has the id `last`.
    kept: VecDeque<String>,
    last: u64,
    /// The id of the last event that was read.
    read: u64,
    unread_bytes: usize,
    /// Counts the readers; a new one takes over from the one before.
    readers: u64,
    /// The reader is cut off after so many more events.
    cut_after: Option<u64>,
    ended: bool,
}

impl Mailbox {
    async fn push(&self, message: String) {
        loop {
            {
                let mut events = lock(&self.state);
                if events.unread_bytes < UNREAD_BYTES || events.ended {
                    events.unread_bytes += message.len();
                    events.last += 1;
                    events.kept.push_back(message);
                    break;
                }
            }
            self.drained.notified().await;
        }
        self.changed.notify_waiters();
    }

    fn cut_after(&self, events: u64) {
        lock(&self.state).cut_after = Some(events);
        self.changed.notify_waiters();
    }

    fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_waiters();
        self.drained.notify_one();
    }

    /// Starts to read after an event, or where the last reader stopped. `None`: what came after
    /// that event is not kept any more.
    fn subscribe(self: Arc<Self>, after: Option<u64>) -> Option<Reader> {
        let mut events = lock(&self.state);
        if let Some(after) = after {
            let first = events.last - events.kept.len() as u64 + 1;
            if after + 1 < first || after > events.last {
                return None;
            }
            events.read = after;
        }
        events.readers += 1;
        let number = events.readers;
        drop(events);
        self.changed.notify_waiters();
        Some(Reader { mailbox: self, number })
    }
}

struct Reader {
    mailbox: Arc<Mailbox>,
    number: u64,
}

impl Reader {
    /// What is to be written next; `None` at the end of the stream, an error where it is cut.
    async fn next(&self) -> Option<io::Result<String>> {
        loop {
            let changed = self.mailbox.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut events = lock(&self.mailbox.state);
                if events.readers != self.number {
                    return None;
                }
                if let Some(text) = events.take() {
                    self.mailbox.drained.notify_one();
                    return Some(Ok(text));
                }
                if events.cut_after.take_if(|events| *events == 0).is_some() {
                    return Some(Err(io::ErrorKind::ConnectionReset.into()));
                }
                if events.ended {
                    return None;
                }
            }
            if timeout(HEARTBEAT, changed).await.is_err() {
                return Some(Ok(":\n\n".to_owned()));
            }
        }
    }
}

impl Events {
    /// All that was not read, as the text of the stream.
    fn take(&mut self) -> Option<String> {
        let unread = usize::try_from(self.last - self.read).unwrap_or(self.kept.len());
        let mut text = String::new();
        for event in self.kept.iter().skip(self.kept.len() - unread) {
            if self.cut_after == Some(0) {
                break;
            }
            self.cut_after = self.cut_after.map(|events| events - 1);
            self.read += 1;
            self.unread_bytes = self.unread_bytes.saturating_sub(event.len());
            text.push_str(&format!("id: {}\ndata: {event}\n\n", self.read));
        }
        let left = usize::try_from(self.last - self.read).unwrap_or_default();
        let surplus = self.kept.len().saturating_sub(KEPT_EVENTS.max(left));
        self.kept.drain(..surplus);
        (!text.is_empty()).then_some(text)
    }
}

async fn message(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return server.answer("POST", "no JSON", StatusCode::BAD_REQUEST.into_response());
    };
    let what = describe(&message);
    if message["method"] == "initialize" {
        let id = server.connect();
        let answer = axum::Json(Agent::initialize(&message["id"]));
        let response = ([(CONNECTION, id)], answer).into_response();
        return server.answer("POST", &what, response);
    }
    let Some(connection) = server.connection(&headers) else {
        return server.answer("POST", &what, unknown_connection());
    };
    let agent = Arc::clone(&server.0.agent);
    tokio::spawn(async move {
        agent.serve(message, &connection.work, &connection.outlet).await;
    });
    server.answer("POST", &what, StatusCode::ACCEPTED.into_response())
}

async fn open(State(server): State<Server>, headers: HeaderMap) -> Response {
    let session = header(&headers, SESSION);
    let what = match session {
        Some(session) => format!("the stream of session {session}"),
        None => "the stream of the connection".to_owned(),
    };
    let Some(connection) = server.connection(&headers) else {
        return server.answer("GET", &what, unknown_connection());
    };
    let after = header(&headers, "last-event-id").and_then(|id| id.parse().ok());
    let Some(reader) = connection.outlet.mailbox(session).subscribe(after) else {
        return server.answer("GET", &what, StatusCode::GONE.into_response());
    };
    let events =
        stream::unfold(
            reader,
            |reader| async move { reader.next().await.map(|text| (text, reader)) },
        );
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    server.answer("GET", &what, (headers, Body::from_stream(events)).into_response())
}

async fn close(State(server): State<Server>, headers: HeaderMap) -> Response {
    let id = header(&headers, CONNECTION).unwrap_or_default();
    let removed = lock(&server.0.connections).open.remove(id);
    let response = match removed {
        Some(connection) => {
            connection.outlet.end_all();
            StatusCode::ACCEPTED.into_response()
        }
        None => unknown_connection(),
    };
    server.answer("DELETE", "the connection", response)
}

impl Server {
    /// A server that `witness` watches.
    pub fn new(witness: Witness) -> Self {
        let (agent, connections) = (Arc::default(), Mutex::default());
        Self(Arc::new(Shared { agent, connections, witness }))
    }

    /// Serves until the runtime ends.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let router = Router::new()
            .route("/acp", post(message).get(open).delete(close))
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .with_state(self);
        axum::serve(listener, router).await
    }

    /// Cuts the stream of a session after so many more events.
    pub fn cut_after(&self, session: &str, events: u64) {
        for connection in lock(&self.0.connections).open.values() {
            connection.outlet.cut_after(session, events);
        }
    }

    /// Forgets every connection, as a server that is restarted does; the agent keeps its sessions.
    pub fn restart(&self) {
        let forgotten = std::mem::take(&mut lock(&self.0.connections).open);
        forgotten.into_values().for_each(|connection| connection.outlet.cut_all());
    }

    fn connect(&self) -> String {
        let mut connections = lock(&self.0.connections);
        connections.count += 1;
        let id = format!("connection-{}", connections.count);
        connections.open.insert(id.clone(), Connection::default());
        id
    }

    fn connection(&self, headers: &HeaderMap) -> Option<Connection> {
        lock(&self.0.connections).open.get(header(headers, CONNECTION)?).cloned()
    }

    fn answer(&self, method: &str, what: &str, response: Response) -> Response {
        (self.0.witness)(format!("{method} {what}: {}", response.status()));
        response
    }
}

fn unknown_connection() -> Response {
    let error = json!({"error": "there is no such connection"});
    (StatusCode::NOT_FOUND, axum::Json(error)).into_response()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// A message in a few words.
fn describe(message: &Value) -> String {
    match message["method"].as_str() {
        Some(method) => method.to_owned(),
        None => "an answer".to_owned(),
    }
}
