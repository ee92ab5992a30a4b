//! Serves a scripted agent on the official Rust SDK's HTTP server, with its default socket options.
//!
//! | prompt | what the agent does |
//! |---|---|
//! | `echo TEXT` | says the text in one update |
//! | `flood N BYTES` | says N texts of so many bytes, each beginning with its number |
//! | `ask TITLE` | asks for a permission, and says which option was chosen |
//! | `hold` | says that it holds, and works until `session/cancel` |
//!
//! Any other prompt is kept and answered. `_meta` of a prompt comes back in its result.

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::{
    Agent, Client, ConnectTo, Error, Responder, UntypedMessage, V1, on_receive_notification,
    on_receive_request,
};
use agent_client_protocol_http::AcpHttpServer;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

/// The agent at work, in a thread and a runtime of its own, until dropped.
pub struct Served {
    /// Where it is served, without a path.
    pub url: String,
    kept: Arc<Mutex<Kept>>,
    _stop: oneshot::Sender<()>,
}

/// What the agent keeps, whatever connections come and go.
#[derive(Default)]
struct Kept {
    sessions: BTreeMap<String, Session>,
    created: usize,
    prompts: Vec<Value>,
    methods: Vec<String>,
    /// The last connection that a request named.
    connection: String,
    /// The only credential that is taken, if one is wanted.
    wanted: Option<String>,
    /// The credentials that were refused.
    refused: Vec<String>,
}

#[derive(Default)]
struct Session {
    cwd: String,
    /// The updates of all turns, in order.
    history: Vec<Value>,
    cancelled: Arc<Notify>,
}

impl Kept {
    /// Notes a request, and whether it is let through.
    fn takes(&mut self, request: &Request) -> bool {
        let header = |name| {
            let value = request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
            value.map(str::to_owned)
        };
        self.methods.push(request.method().to_string());
        self.connection =
            header("acp-connection-id").unwrap_or(std::mem::take(&mut self.connection));
        let given = header("authorization").unwrap_or_default();
        let is_taken = self.wanted.as_ref().is_none_or(|wanted| *wanted == given);
        if !is_taken {
            self.refused.push(given);
        }
        is_taken
    }
}

impl Served {
    /// Serves at a free port of 127.0.0.1.
    pub fn start() -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let (url, stop) = serve(router(&kept));
        Self { url, kept, _stop: stop }
    }

    /// The `prompt` of every turn so far.
    pub fn prompts(&self) -> Vec<Value> {
        lock(&self.kept).prompts.clone()
    }

    /// Ends the connection that the program is on, as a server does that forgets.
    pub fn forget_connection(&self) {
        let connection = lock(&self.kept).connection.clone();
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "DELETE /acp HTTP/1.1\r\nHost: {address}\r\nAcp-Connection-Id: {connection}\r\n\
             Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    }

    /// From here on takes requests with this `Authorization` only, as a gateway before it does.
    pub fn want(&self, authorization: &str) {
        lock(&self.kept).wanted = Some(authorization.to_owned());
    }

    /// What was refused so far, in the order of its arrival.
    pub fn refused(&self) -> Vec<String> {
        lock(&self.kept).refused.clone()
    }

    /// The methods of the HTTP requests so far, in the order of their arrival.
    pub fn http_methods(&self) -> Vec<String> {
        lock(&self.kept).methods.clone()
    }
}

/// Serves `router` in a thread of its own until the sender is dropped.
pub fn serve(router: Router) -> (String, oneshot::Sender<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = axum::serve(TcpListener::from_std(listener).unwrap(), router);
            tokio::select! {
                served = server => served.unwrap(),
                _ = stopped => {}
            }
        });
        runtime.shutdown_background();
    });
    (url, stop)
}

fn router(kept: &Arc<Mutex<Kept>>) -> Router {
    let (agents, methods) = (Arc::clone(kept), Arc::clone(kept));
    let server = AcpHttpServer::new(move || agent(Arc::clone(&agents)));
    server.into_router().layer(middleware::from_fn(move |request: Request, next: Next| {
        let is_taken = lock(&methods).takes(&request);
        async move {
            if is_taken {
                next.run(request).await
            } else {
                StatusCode::UNAUTHORIZED.into_response()
            }
        }
    }))
}

fn agent(kept: Arc<Mutex<Kept>>) -> impl ConnectTo<Client> {
    let cancels = Arc::clone(&kept);
    Agent
        .v1()
        .on_receive_request(
            async move |request: UntypedMessage, responder: Responder<Value, V1>, cx| {
                if request.method() != "session/prompt" {
                    return match answer(&kept, request.method(), request.params(), &cx)? {
                        Some(result) => responder.respond(result),
                        None => responder.respond_with_error(Error::invalid_params()),
                    };
                }
                let turn = Turn {
                    session: text(request.params(), "/sessionId").to_owned(),
                    kept: Arc::clone(&kept),
                    cx: cx.clone(),
                };
                let params = request.params().clone();
                // Elsewhere, because no message is taken while a handler runs. An error of this task
                // would end the whole connection.
                cx.spawn(async move {
                    match turn.take(&params).await {
                        Ok(result) => responder.respond(result),
                        Err(error) => responder.respond_with_error(error),
                    }
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: UntypedMessage, _cx| {
                if notification.method() == "session/cancel" {
                    let kept = lock(&cancels);
                    let session = kept.sessions.get(text(notification.params(), "/sessionId"));
                    if let Some(session) = session {
                        session.cancelled.notify_one();
                    }
                }
                Ok(())
            },
            on_receive_notification!(),
        )
}

/// The result of any request but a prompt; `None` where it is refused.
fn answer(
    kept: &Mutex<Kept>,
    method: &str,
    params: &Value,
    cx: &ConnectionTo<Client>,
) -> Result<Option<Value>, Error> {
    let mut kept = lock(kept);
    let session = text(params, "/sessionId");
    let result = match method {
        "initialize" => json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true},
                "sessionCapabilities": {"resume": {}, "list": {}, "close": {}},
            },
            "agentInfo": {"name": "scripted", "version": "1"},
            "authMethods": [],
        }),
        "session/new" => {
            kept.created += 1;
            let id = format!("session-{}", kept.created);
            let cwd = text(params, "/cwd").to_owned();
            kept.sessions.insert(id.clone(), Session { cwd, ..Session::default() });
            json!({"sessionId": id})
        }
        "session/list" => {
            let listed = kept
                .sessions
                .iter()
                .map(|(id, session)| json!({"sessionId": id, "cwd": session.cwd}));
            json!({"sessions": listed.collect::<Vec<_>>()})
        }
        _ if !kept.sessions.contains_key(session) => return Ok(None),
        "session/load" => {
            for update in &kept.sessions[session].history {
                update_of(session, update, cx)?;
            }
            json!({})
        }
        "session/resume" => json!({}),
        "session/close" => {
            kept.sessions.remove(session);
            json!({})
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// One turn under way.
struct Turn {
    session: String,
    kept: Arc<Mutex<Kept>>,
    cx: ConnectionTo<Client>,
}

impl Turn {
    async fn take(self, params: &Value) -> Result<Value, Error> {
        let Some(cancelled) =
            lock(&self.kept).sessions.get(&self.session).map(|kept| Arc::clone(&kept.cancelled))
        else {
            return Err(Error::invalid_params());
        };
        let prompt = text(params, "/prompt/0/text");
        let (command, rest) = prompt.split_once(' ').unwrap_or((prompt, ""));
        let mut reason = "end_turn";
        self.keep(&chunk("user_message_chunk", prompt));
        match command {
            "echo" => self.say(rest)?,
            "flood" => self.flood(rest)?,
            "ask" => self.ask(rest).await?,
            "hold" => {
                self.say("holding")?;
                cancelled.notified().await;
                reason = "cancelled";
            }
            _ => lock(&self.kept).prompts.push(params["prompt"].clone()),
        }
        let mut result = json!({"stopReason": reason});
        if let Some(meta) = params.get("_meta") {
            result["_meta"] = meta.clone();
        }
        Ok(result)
    }

    fn say(&self, text: &str) -> Result<(), Error> {
        let update = chunk("agent_message_chunk", text);
        self.keep(&update);
        update_of(&self.session, &update, &self.cx)
    }

    fn flood(&self, sizes: &str) -> Result<(), Error> {
        let (count, bytes) = sizes.split_once(' ').ok_or_else(Error::invalid_params)?;
        let count: usize = count.parse().map_err(|_| Error::invalid_params())?;
        let bytes: usize = bytes.parse().map_err(|_| Error::invalid_params())?;
        for number in 0..count {
            let mut text = format!("{number} ");
            text.push_str(&"x".repeat(bytes.saturating_sub(text.len())));
            update_of(&self.session, &chunk("agent_message_chunk", &text), &self.cx)?;
        }
        Ok(())
    }

    async fn ask(&self, title: &str) -> Result<(), Error> {
        let question = json!({
            "sessionId": self.session,
            "toolCall": {"toolCallId": "call", "title": title},
            "options": [
                {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            ],
        });
        let question = UntypedMessage::new("session/request_permission", question)?;
        let answer = self.cx.send_request(question).block_task().await?;
        self.say(&format!("chosen: {}", text(&answer, "/outcome/optionId")))
    }

    fn keep(&self, update: &Value) {
        if let Some(session) = lock(&self.kept).sessions.get_mut(&self.session) {
            session.history.push(update.clone());
        }
    }
}

fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

fn update_of(session: &str, update: &Value, cx: &ConnectionTo<Client>) -> Result<(), Error> {
    let params = json!({"sessionId": session, "update": update});
    cx.send_notification(UntypedMessage::new("session/update", params)?)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What these locks guard is whole after every statement, so a panic elsewhere spoils nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
