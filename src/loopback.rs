//! Decides which instances of this user are running (A2), and asks them over their loopback APIs.
//!
//! A record is believed once its port has named the same instance; before that nothing secret is sent
//! there, because the port may have become another program's.

use crate::core::error::{RUNNING_SESSION, UNKNOWN_SESSION};
use crate::core::methods::{OWN_CLOSE, OWN_RECONNECT};
use crate::shell::instances::{Directory, Record};
use crate::wire::sse::{Decoder, Item};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// How long an instance may take to name itself, and to answer.
const HEALTH: Duration = Duration::from_secs(1);
/// See [`HEALTH`].
const ANSWER: Duration = Duration::from_secs(10);
/// How long a stream may be without a byte: an instance says each 15 s that it is there.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest document: a thousand sessions are a third of a megabyte.
const DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
/// The longest answer to who somebody is, who may be anybody.
const HEALTH_BYTES: usize = 64 * 1024;

/// Where the instances are looked for, and what they are asked with.
#[derive(Clone, Debug)]
pub(crate) struct Loopback<'a> {
    runtime: Option<&'a Path>,
    client: Client,
}

/// The instances that are there, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Those that said who they are.
    pub(crate) running: Vec<Instance>,
    /// Those that say nothing, while their processes are there.
    pub(crate) silent: Vec<Instance>,
}

/// An instance that is there.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) record: Record,
    client: Client,
}

/// Why a session was not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotClosed {
    /// It is running.
    Running,
    /// No such session is listed.
    Unknown,
    /// The instance did not answer as it should. With the reason, for people.
    Trouble(String),
}

/// What the port of a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// It is the instance.
    Named,
    /// Nobody is there, or another instance.
    Gone,
    /// That cannot be told: a process that was stopped says nothing, say.
    Silent,
}

impl<'a> Loopback<'a> {
    /// Looks below `runtime` (`--runtime-dir`).
    pub(crate) fn new(runtime: Option<&'a Path>) -> io::Result<Self> {
        // The client wants one even where it never speaks TLS. Fails only where there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // No proxy: the port is of this machine, and the token of nobody else's business. No
        // certificates: there is no TLS, and a machine may have none.
        let client = Client::builder().no_proxy().tls_certs_only([]);
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        Ok(Self { runtime, client: client.map_err(io::Error::other)? })
    }

    /// Looks once. The records of those that are gone are swept: where nobody listens at the port, or
    /// another instance; of one that is silent, where its process is gone too.
    pub(crate) async fn look(&self) -> io::Result<Found> {
        let directory = Directory::open(self.runtime)?;
        let mut records = directory.records()?;
        records.sort_by_key(|record| (record.process.started_at, record.process.id.clone()));
        let instances = records.into_iter().map(async |record| {
            let instance = Instance { record, client: self.client.clone() };
            (instance.health().await, instance)
        });
        let mut found = Found::default();
        for (health, instance) in join_all(instances).await {
            match health {
                Health::Named => found.running.push(instance),
                Health::Silent if is_alive(instance.record.process.pid) => {
                    found.silent.push(instance)
                }
                Health::Silent | Health::Gone => directory.remove(&instance.record.process.id),
            }
        }
        Ok(found)
    }
}

/// Asks all of these at once how everything stands.
pub(crate) async fn statuses(instances: Vec<Instance>) -> Vec<(Instance, Result<Value, String>)> {
    join_all(instances.into_iter().map(async |instance| {
        let status = instance.status().await;
        (instance, status)
    }))
    .await
}

impl Instance {
    async fn health(&self) -> Health {
        #[derive(Deserialize)]
        struct Named {
            id: String,
        }
        let asked = async {
            let answer = match self.client.get(self.url("healthz")).send().await {
                Ok(answer) => answer,
                Err(error) => return without_answer(&error),
            };
            let body = body(answer, HEALTH_BYTES).await.unwrap_or_default();
            match serde_json::from_slice(&body) {
                Ok(Named { id }) if id == self.record.process.id => Health::Named,
                Ok(_) => Health::Gone,
                Err(_) => Health::Silent,
            }
        };
        timeout(HEALTH, asked).await.unwrap_or(Health::Silent)
    }

    /// The document of `GET /status` (A3).
    pub(crate) async fn status(&self) -> Result<Value, String> {
        let answer = self.get("status").timeout(ANSWER).send().await;
        let document = body(succeeded(answer)?, DOCUMENT_BYTES).await?;
        serde_json::from_slice(&document).map_err(|error| error.to_string())
    }

    /// Closes a session (A4): by the method of our own, because not every id can be said in a URL.
    pub(crate) async fn close(&self, session: &str) -> Result<(), NotClosed> {
        let answer = self.call(OWN_CLOSE, &json!({"sessionId": session})).await;
        closed(&answer.map_err(NotClosed::Trouble)?)
    }

    /// Has every stream opened again, and a lost connection tried at once (E1).
    pub(crate) async fn reconnect(&self) -> Result<(), String> {
        match self.call(OWN_RECONNECT, &json!({})).await? {
            answer if answer["result"]["ok"] == true => Ok(()),
            answer => Err(format!("it answers {answer}")),
        }
    }

    /// The answer to a method of our own.
    async fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let post = self.client.post(self.url("rpc")).bearer_auth(self.record.token.secret());
        let answer = post.body(call.to_string()).timeout(ANSWER).send().await;
        let answer = body(succeeded(answer)?, DOCUMENT_BYTES).await?;
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// The documents of `GET /events`, until the instance ends or falls silent.
    ///
    /// # Errors
    /// It does not let us watch; with what it answers.
    pub(crate) async fn watch(&self, tell: impl FnMut(Value)) -> Result<(), String> {
        let asked = timeout(ANSWER, self.get("events").send()).await;
        let events = succeeded(asked.map_err(|_| "it does not answer")?)?;
        tell_all(events.bytes_stream(), tell).await;
        Ok(())
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path)).bearer_auth(self.record.token.secret())
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.record.port)
    }
}

/// What it says of a port that a question to it ended in this error. Most errors say nothing: the
/// machine may have no files left, or forbid this process to connect.
fn without_answer(error: &(dyn Error + 'static)) -> Health {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut causes = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    match causes.any(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        true => Health::Gone,
        false => Health::Silent,
    }
}

/// What an answer to our method says of closing a session.
fn closed(answer: &Value) -> Result<(), NotClosed> {
    if answer["result"]["ok"] == true {
        return Ok(());
    }
    let message = answer["error"]["message"].as_str().unwrap_or("its answer is not understood");
    Err(match answer["error"]["code"].as_i64() {
        Some(code) if code == i64::from(RUNNING_SESSION) => NotClosed::Running,
        Some(code) if code == i64::from(UNKNOWN_SESSION) => NotClosed::Unknown,
        _ => NotClosed::Trouble(message.to_owned()),
    })
}

/// Tells the documents of a stream, until it ends or falls silent.
async fn tell_all<E>(chunks: impl Stream<Item = Result<Bytes, E>>, mut tell: impl FnMut(Value)) {
    let mut chunks = pin!(chunks);
    let mut decoder = Decoder::new(DOCUMENT_BYTES);
    let mut items = Vec::new();
    while let Ok(Some(Ok(chunk))) = timeout(SILENCE, chunks.next()).await {
        decoder.push(chunk, &mut items);
        items.drain(..).filter_map(document).for_each(&mut tell);
    }
}

fn document(item: Item) -> Option<Value> {
    let Item::Event { data: Some(data), .. } = item else { return None };
    serde_json::from_slice(&data).ok()
}

fn succeeded(answer: reqwest::Result<Response>) -> Result<Response, String> {
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status() {
        StatusCode::OK => Ok(answer),
        status => Err(format!("it answers {status}")),
    }
}

/// The body of an answer, where it is no longer than this.
async fn body(mut answer: Response, limit: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| error.to_string())? {
        if body.len() + chunk.len() > limit {
            return Err("its answer is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Whether there is a process of this id. Where that cannot be found out there may be.
fn is_alive(pid: u32) -> bool {
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        use rustix::io::Errno;
        return rustix::process::test_kill_process(pid) != Err(Errno::SRCH);
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;
    use tokio::time::{Instant, sleep};

    #[test]
    fn a2_a_record_is_given_up_only_where_its_port_is_closed() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        for (kind, expected) in [
            (io::ErrorKind::ConnectionRefused, Health::Gone),
            (io::ErrorKind::PermissionDenied, Health::Silent),
            (io::ErrorKind::NetworkUnreachable, Health::Silent),
            (io::ErrorKind::AddrNotAvailable, Health::Silent),
            (io::ErrorKind::ConnectionReset, Health::Silent),
            (io::ErrorKind::Other, Health::Silent),
        ] {
            assert_eq!(without_answer(&Outer(kind.into())), expected, "{kind:?}");
            let wrapped = io::Error::other(Outer(kind.into()));
            assert_eq!(without_answer(&Outer(wrapped)), expected, "{kind:?}");
        }
        // EMFILE: too many open files.
        assert_eq!(without_answer(&Outer(io::Error::from_raw_os_error(24))), Health::Silent);
    }

    #[tokio::test]
    async fn a2_a_closed_port_is_told_from_the_client_s_own_error() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Loopback::new(None).unwrap().client;
        let error = client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap_err();
        assert_eq!(without_answer(&error), Health::Gone, "{error:?}");
    }

    #[test]
    fn a4_only_an_answer_that_says_so_is_a_closed_session() {
        let trouble = |text: &str| Err(NotClosed::Trouble(text.to_owned()));
        for (answer, expected) in [
            (json!({"result": {"ok": true}}), Ok(())),
            (json!({"error": {"code": RUNNING_SESSION}}), Err(NotClosed::Running)),
            (json!({"error": {"code": UNKNOWN_SESSION}}), Err(NotClosed::Unknown)),
            (json!({"error": {"code": -32603, "message": "it broke"}}), trouble("it broke")),
            (json!({"result": {}}), trouble("its answer is not understood")),
            (Value::Null, trouble("its answer is not understood")),
        ] {
            assert_eq!(closed(&answer), expected, "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a3_a_stream_without_a_byte_for_45_seconds_is_given_up() {
        let alive = ["data: 1\n\n", ":\n\n", ":\n\n", ":\n\n", "data: 2\n\n"];
        let chunks = stream::iter(alive).then(async |text| {
            sleep(Duration::from_secs(15)).await;
            Ok::<_, Infallible>(Bytes::from_static(text.as_bytes()))
        });
        let (start, mut told) = (Instant::now(), Vec::new());
        tell_all(chunks.chain(stream::pending()), |document| told.push(document)).await;
        assert_eq!(told, [1, 2]);
        assert_eq!(start.elapsed().as_secs(), 5 * 15 + 45);
    }
}
