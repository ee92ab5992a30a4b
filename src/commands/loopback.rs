//! Decides which instances of this user are running (A2), and asks them over their loopback APIs.
//!
//! A record is believed once its port has named the same instance; before that nothing secret is sent
//! there, because the port may have become another program's.

use crate::core::error::{RUNNING_SESSION, UNKNOWN_SESSION};
use crate::core::methods::OWN_CLOSE;
use crate::shell::instances::{Directory, Record};
use crate::wire::sse::{Decoder, Item};
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long an instance may take to name itself, and to answer.
const HEALTH: Duration = Duration::from_secs(1);
/// See [`HEALTH`].
const ANSWER: Duration = Duration::from_secs(10);
/// The longest document of `/events`: a thousand sessions are a third of a megabyte.
const DOCUMENT_BYTES: usize = 64 * 1024 * 1024;

/// An instance that is running.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) record: Record,
    client: Client,
}

/// Why a session was not closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotClosed {
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
    /// Nobody is there, or somebody else.
    Gone,
    /// Somebody is there and says nothing: a process that was stopped, say.
    Silent,
}

/// The instances that are running, oldest first. The records of those that are gone are swept: where
/// nobody listens at the port, or another program; of one that is silent, where its process is gone
/// too.
pub(super) async fn running(runtime: Option<&Path>) -> io::Result<Vec<Instance>> {
    let directory = Directory::open(runtime)?;
    // No proxy: the port is of this machine, and the token of nobody else's business.
    let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let client = client.build().map_err(io::Error::other)?;
    let mut checks = JoinSet::new();
    for record in directory.records()? {
        let instance = Instance { record, client: client.clone() };
        checks.spawn(async move { (instance.health().await, instance) });
    }
    let mut running = Vec::new();
    while let Some(Ok((health, instance))) = checks.join_next().await {
        match health {
            Health::Named => running.push(instance),
            Health::Silent if is_alive(instance.record.pid) => {}
            Health::Silent | Health::Gone => directory.remove(&instance.record.id),
        }
    }
    running.sort_by(|one, other| {
        let key = |instance: &Instance| (instance.record.started_at, instance.record.id.clone());
        key(one).cmp(&key(other))
    });
    Ok(running)
}

impl Instance {
    async fn health(&self) -> Health {
        #[derive(Deserialize)]
        struct Named {
            id: String,
        }
        let asked = self.client.get(self.url("healthz")).timeout(HEALTH).send().await;
        let body = match asked {
            Ok(answer) => answer.bytes().await,
            Err(error) => Err(error),
        };
        match body {
            Ok(body) => match serde_json::from_slice(&body) {
                Ok(Named { id }) if id == self.record.id => Health::Named,
                _ => Health::Gone,
            },
            Err(error) if error.is_connect() && !error.is_timeout() => Health::Gone,
            Err(_) => Health::Silent,
        }
    }

    /// The document of `GET /status` (A3).
    pub(super) async fn status(&self) -> Result<Value, String> {
        let answer = self.get("status").timeout(ANSWER).send().await;
        let answer = succeeded(answer)?.bytes().await.map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer).map_err(|error| error.to_string())
    }

    /// Closes a session (A4): by the method of our own, because not every id can be said in a URL.
    pub(super) async fn close(&self, session: &str) -> Result<(), NotClosed> {
        let trouble = |error: String| NotClosed::Trouble(error);
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": OWN_CLOSE, "params": {"sessionId": session}
        });
        let post = self.client.post(self.url("rpc")).bearer_auth(self.record.token.secret());
        let answer = post.body(call.to_string()).timeout(ANSWER).send().await;
        let answer = succeeded(answer).map_err(trouble)?.bytes().await;
        let answer = answer.map_err(|error| trouble(error.to_string()))?;
        let answer: Value =
            serde_json::from_slice(&answer).map_err(|error| trouble(error.to_string()))?;
        match answer["error"]["code"].as_i64() {
            None => Ok(()),
            Some(code) if code == i64::from(RUNNING_SESSION) => Err(NotClosed::Running),
            Some(code) if code == i64::from(UNKNOWN_SESSION) => Err(NotClosed::Unknown),
            Some(_) => Err(trouble(answer["error"]["message"].to_string())),
        }
    }

    /// The documents of `GET /events`, until the instance ends.
    pub(super) async fn watch(&self, mut tell: impl FnMut(Value)) {
        let Ok(mut events) = succeeded(self.get("events").send().await) else { return };
        let mut decoder = Decoder::new(DOCUMENT_BYTES);
        let mut items = Vec::new();
        while let Ok(Some(chunk)) = events.chunk().await {
            decoder.push(chunk, &mut items);
            for item in items.drain(..) {
                if let Some(document) = document(item) {
                    tell(document);
                }
            }
        }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(self.url(path)).bearer_auth(self.record.token.secret())
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.record.port)
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

/// Whether there is a process of this id. Where that cannot be found out there may be.
fn is_alive(pid: u32) -> bool {
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        use rustix::io::Errno;
        return rustix::process::test_kill_process(pid) != Err(Errno::SRCH);
    }
    true
}
