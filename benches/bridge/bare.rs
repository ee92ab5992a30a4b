//! The floor: a client that speaks to the agent without a bridge, and does nothing with what it reads but
//! to look for the blank lines between events.

use crate::editor::is_answer;
use crate::process::Used;
use memchr::memmem;
use reqwest::{Client, RequestBuilder, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Instant;

/// What the turns of a bare client took.
#[derive(Serialize, Deserialize)]
pub struct Told {
    /// Seconds of each.
    pub turns: Vec<f64>,
    /// The updates of all.
    pub updates: usize,
    /// Seconds of processor time for all.
    pub cpu: Option<f64>,
}

/// A connection with one session.
struct Bare {
    client: Client,
    url: String,
    connection: String,
    session: String,
    requests: u64,
    /// The connection's own, and later the session's.
    stream: Stream,
    /// The connection's own, which nobody reads any more.
    own: Option<Stream>,
}

/// An event stream and what was read of it.
struct Stream {
    response: Response,
    held: Vec<u8>,
    /// Up to where `held` was taken.
    taken: usize,
}

/// Takes so many turns of one prompt.
pub fn take(url: &str, http2: bool, count: usize, prompt: &str) -> Told {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut bare = Bare::connect(url, http2).await;
        bare.turn("echo warm").await;
        let used = || Used::by(std::process::id()).map(|used| used.cpu);
        let (before, mut turns, mut updates) = (used(), Vec::new(), 0);
        for _ in 0..count {
            let start = Instant::now();
            updates += bare.turn(prompt).await;
            turns.push(start.elapsed().as_secs_f64());
        }
        let cpu = used().zip(before).map(|(after, before)| after - before);
        Told { turns, updates, cpu }
    })
}

impl Bare {
    async fn connect(url: &str, http2: bool) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Two, because on one connection of HTTP/2 POSTs and streams cost each other 40 ms a turn.
        let client = || {
            let client = Client::builder().no_proxy();
            let client = if http2 { client.http2_prior_knowledge() } else { client };
            client.build().expect("a client can be built")
        };
        let (client, reader) = (client(), client());
        let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let answer = client
            .post(url)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .body(request(0, "initialize", &params))
            .send()
            .await
            .expect("initialize is answered");
        let connection = answer.headers()["acp-connection-id"].to_str().unwrap().to_owned();
        answer.bytes().await.expect("initialize is answered");
        let own = reader.get(url).header("acp-connection-id", &connection);
        let stream = Stream::open(own).await;
        let mut bare = Self {
            client,
            url: url.to_owned(),
            connection,
            session: String::new(),
            requests: 0,
            stream,
            own: None,
        };
        bare.post("session/new", &json!({"cwd": "/project", "mcpServers": []})).await;
        bare.stream.until_answer().await;
        let created: Value = serde_json::from_slice(bare.stream.last()).expect("JSON");
        bare.session = created["result"]["sessionId"].as_str().expect("an id").to_owned();
        let get = bare.headers(reader.get(url));
        bare.own = Some(std::mem::replace(&mut bare.stream, Stream::open(get).await));
        bare
    }

    /// Returns how many updates came before the answer.
    async fn turn(&mut self, prompt: &str) -> usize {
        let prompt = json!([{"type": "text", "text": prompt}]);
        let params = json!({"sessionId": self.session, "prompt": prompt});
        self.post("session/prompt", &params).await;
        self.stream.until_answer().await
    }

    async fn post(&mut self, method: &str, params: &Value) {
        self.requests += 1;
        let post = self.client.post(&self.url).header("content-type", "application/json");
        let post = self.headers(post).body(request(self.requests, method, params));
        let answer = post.send().await.expect("a POST is answered");
        assert!(answer.status().is_success(), "{method}: {}", answer.status());
        answer.bytes().await.expect("a POST is answered");
    }

    fn headers(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("acp-connection-id", &self.connection);
        match self.session.as_str() {
            "" => request,
            session => request.header("acp-session-id", session),
        }
    }
}

impl Stream {
    async fn open(get: RequestBuilder) -> Self {
        let get = get.header("accept", "text/event-stream");
        let response = get.send().await.expect("the stream opens");
        assert!(response.status().is_success(), "the stream opens: {}", response.status());
        Self { response, held: Vec::new(), taken: 0 }
    }

    /// Reads up to an answer, which is the last that comes, and counts what comes before it.
    async fn until_answer(&mut self) -> usize {
        self.held.clear();
        self.taken = 0;
        let (mut count, mut seen) = (0, 0);
        loop {
            while let Some(end) = memmem::find(&self.held[seen..], b"\n\n") {
                let event = &self.held[self.taken..seen + end];
                if event.starts_with(b"data:") {
                    if is_answer(event) {
                        self.held.truncate(seen + end);
                        return count;
                    }
                    count += 1;
                }
                seen += end + 2;
                self.taken = seen;
            }
            self.held.drain(..std::mem::take(&mut self.taken));
            seen = self.held.len().saturating_sub(1);
            let chunk = self.response.chunk().await.expect("the stream lives");
            self.held.extend_from_slice(&chunk.expect("the stream does not end"));
        }
    }

    /// The data of the answer that was read.
    fn last(&self) -> &[u8] {
        self.held[self.taken..].trim_ascii().strip_prefix(b"data:").unwrap_or_default()
    }
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}
