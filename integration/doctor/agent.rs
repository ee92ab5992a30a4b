//! An agent over Streamable HTTP that is healthy but for one thing.

use crate::peers::agent::serve;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The agent, at work until dropped.
pub struct Agent {
    /// Where it is, without a path.
    pub url: String,
    state: Arc<State>,
    _stop: oneshot::Sender<()>,
}

/// What is not healthy.
#[derive(Clone)]
pub enum Fault {
    /// Nothing.
    None,
    /// Each POST is answered so.
    Post(u16, &'static [(&'static str, &'static str)], &'static str),
    /// Each GET is answered so.
    Get(u16, &'static [(&'static str, &'static str)], &'static str),
    /// What this gives is the answer; to what it gives none there is a healthy one.
    Answers(Answer),
    /// The head of the stream takes this long.
    SlowHead(Duration),
    /// The head of the stream says how long it is, and what is on it comes at once.
    Measured,
    /// The stream ends after so many pieces.
    Ends(usize),
    /// The head of the stream comes with the first message.
    HoldsHead,
    /// Nothing of the stream comes before its end, but its head.
    HoldsBody,
    /// The stream never has an answer.
    Mute,
    /// The stream ends as soon as it is there.
    Cuts,
    /// A 401 without this `Authorization`.
    Wants(&'static str),
}

/// An answer to a request with this method, these headers and this message.
pub type Answer = fn(&Method, &HeaderMap, &Value) -> Option<Response<Body>>;

#[derive(Default)]
struct State {
    opened: Mutex<usize>,
    closed: Mutex<usize>,
    stream: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

impl Agent {
    /// Serves at a free port of 127.0.0.1.
    pub fn with(fault: Fault) -> Self {
        let state = Arc::<State>::default();
        let all = Arc::clone(&state);
        let router = Router::new().fallback(move |request: Request| {
            let (state, fault) = (Arc::clone(&all), fault.clone());
            async move { answer(request, &state, &fault).await }
        });
        let (url, stop) = serve(router);
        Self { url, state, _stop: stop }
    }

    /// How many connections were opened and not closed.
    pub fn left_open(&self) -> usize {
        *self.state.opened.lock().unwrap() - *self.state.closed.lock().unwrap()
    }

    /// How many connections were opened.
    pub fn opened(&self) -> usize {
        *self.state.opened.lock().unwrap()
    }
}

pub fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

async fn answer(request: Request, state: &State, fault: &Fault) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let (method, headers) = (parts.method, parts.headers);
    let given = headers.get("authorization").map(|value| value.to_str().unwrap());
    match fault {
        Fault::Wants(wanted) if given != Some(wanted) => {
            return response(401, &[("content-type", "text/plain")], "who are you?");
        }
        Fault::Post(status, headers, body) if method == Method::POST => {
            let opens = headers.iter().any(|(name, _)| *name == "acp-connection-id");
            *state.opened.lock().unwrap() += usize::from(opens);
            return response(*status, headers, *body);
        }
        Fault::Get(status, headers, body) if method == Method::GET => {
            return response(*status, headers, *body);
        }
        Fault::Answers(answer) => {
            let message = serde_json::from_slice(&body).unwrap_or_default();
            if let Some(response) = answer(&method, &headers, &message) {
                let opens = response.headers().contains_key("acp-connection-id");
                *state.opened.lock().unwrap() += usize::from(opens);
                return response;
            }
        }
        _ => {}
    }
    match method {
        Method::POST => posted(&body, state),
        Method::GET if headers.contains_key("upgrade") => response(404, &[], ""),
        Method::GET => opened(state, fault).await,
        _ => {
            *state.closed.lock().unwrap() += 1;
            *state.stream.lock().unwrap() = None;
            response(202, &[], "")
        }
    }
}

fn posted(body: &Bytes, state: &State) -> Response<Body> {
    let message: Value = serde_json::from_slice(body).unwrap();
    let id = &message["id"];
    if message["method"] != "initialize" {
        let answer =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}});
        if let Some(stream) = &*state.stream.lock().unwrap() {
            stream.send(format!("data: {answer}\n\n")).unwrap_or_default();
        }
        return response(202, &[], "");
    }
    *state.opened.lock().unwrap() += 1;
    let result = json!({"protocolVersion": 1, "agentInfo": {"name": "scripted", "version": "1"},
        "agentCapabilities": {"loadSession": true}});
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let headers = [("content-type", "application/json"), ("acp-connection-id", "c1")];
    response(200, &headers, answer)
}

async fn opened(state: &State, fault: &Fault) -> Response<Body> {
    let (sender, mut messages) = mpsc::unbounded_channel::<String>();
    *state.stream.lock().unwrap() = Some(sender);
    let mut begin = ":\n\n".to_owned();
    let mut head = vec![("content-type", "text/event-stream")];
    match fault {
        Fault::SlowHead(time) => tokio::time::sleep(*time).await,
        Fault::Measured => head.push(("content-length", "100000")),
        Fault::HoldsHead => begin = messages.recv().await.unwrap_or_default(),
        Fault::Cuts => messages.close(),
        _ => {}
    }
    let is_held = matches!(fault, Fault::HoldsBody);
    let is_mute = matches!(fault, Fault::Mute);
    let pieces = stream::unfold((Some(begin), messages), move |(begun, mut messages)| async move {
        let piece = match begun {
            Some(begin) if !is_held => begin,
            _ if is_held => {
                let mut all = String::new();
                while let Some(message) = messages.recv().await {
                    all += &message;
                }
                if all.is_empty() {
                    return None;
                }
                all
            }
            _ => messages.recv().await?,
        };
        let piece = if is_mute { ":\n\n".to_owned() } else { piece };
        Some((Ok::<_, Infallible>(piece), (None, messages)))
    });
    let status = StatusCode::OK.as_u16();
    let most = if let Fault::Ends(most) = fault { *most } else { usize::MAX };
    response(status, &head, Body::from_stream(pieces.take(most)))
}
