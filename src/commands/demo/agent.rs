//! The small agent of the demo: what it answers, and what each prompt makes it do.
//!
//! | prompt | what it does |
//! |---|---|
//! | `echo TEXT` | streams the text back, a word at a time |
//! | `flood N BYTES` | streams N updates of so many bytes of text |
//! | `ask` | asks for a permission, and tells the answer |
//! | `hold` | works until it is cancelled |
//!
//! Any other text is answered with this list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use super::server::Outlet;
use crate::lock::lock;

/// What the agent keeps, whatever connections come and go.
#[derive(Debug, Default)]
pub struct Agent {
    sessions: Mutex<BTreeMap<String, Session>>,
}

#[derive(Debug, Default)]
struct Session {
    cwd: String,
    /// The text of each turn: what the person said, what the agent said.
    history: Vec<(String, String)>,
    /// It asked for a permission, and has no answer.
    is_asking: bool,
}

/// What of a connection's work is under way.
#[derive(Debug, Default)]
pub struct Work {
    asked: Mutex<Asked>,
    turns: Mutex<BTreeMap<String, Arc<Notify>>>,
}

#[derive(Debug, Default)]
struct Asked {
    count: u64,
    open: BTreeMap<u64, oneshot::Sender<Value>>,
}

/// Why a request fails: the code and the message of its error.
struct Refusal(i32, &'static str);

impl Agent {
    /// Serves one message of the client; what it causes goes to `outlet`.
    pub async fn serve(&self, message: Value, work: &Work, outlet: &Outlet) {
        let id = message.get("id").cloned();
        let params = message.get("params").cloned().unwrap_or_default();
        match (message.get("method").and_then(Value::as_str), id) {
            (Some(method), Some(id)) => {
                let answered = match self.request(method, &params, work, outlet).await {
                    Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    Err(Refusal(code, text)) => {
                        let error = json!({"code": code, "message": text});
                        json!({"jsonrpc": "2.0", "id": id, "error": error})
                    }
                };
                let session = params.get("sessionId").and_then(Value::as_str);
                outlet.send(session, &answered).await;
                match (method, session) {
                    ("session/close", _) => outlet.end(session),
                    ("session/resume", Some(session)) => self.go_on(session, work, outlet).await,
                    _ => {}
                }
            }
            (Some("session/cancel"), None) => {
                if let Some(turn) = lock(&work.turns).get(text(&params, "sessionId")) {
                    turn.notify_one();
                }
            }
            (None, Some(id)) => {
                let waiting = id.as_u64().and_then(|id| lock(&work.asked).open.remove(&id));
                if let Some(waiting) = waiting {
                    // Whoever asked may be gone.
                    let _ = waiting.send(message);
                }
            }
            _ => {}
        }
    }

    /// The answer to `initialize`.
    pub fn initialize(id: &Value) -> Value {
        let result = json!({
            "protocolVersion": 1,
            "agentCapabilities": {
                "loadSession": true,
                "sessionCapabilities": {"resume": {}, "list": {}, "close": {}},
            },
            "agentInfo": {"name": "acp-tether-demo", "version": env!("CARGO_PKG_VERSION")},
            "authMethods": [],
        });
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    }

    async fn request(
        &self,
        method: &str,
        params: &Value,
        work: &Work,
        outlet: &Outlet,
    ) -> Result<Value, Refusal> {
        let session = text(params, "sessionId");
        match method {
            "session/new" => {
                let mut sessions = lock(&self.sessions);
                let id = format!("demo-{}", sessions.len() + 1);
                let cwd = text(params, "cwd").to_owned();
                sessions.insert(id.clone(), Session { cwd, ..Session::default() });
                Ok(json!({"sessionId": id}))
            }
            "session/list" => {
                let sessions = lock(&self.sessions);
                let listed = sessions
                    .iter()
                    .map(|(id, session)| json!({"sessionId": id, "cwd": session.cwd}));
                Ok(json!({"sessions": listed.collect::<Vec<_>>()}))
            }
            _ if !lock(&self.sessions).contains_key(session) => {
                Err(Refusal(-32602, "the demo agent has no such session or method"))
            }
            "session/load" => {
                let history =
                    lock(&self.sessions).get(session).map(|session| session.history.clone());
                for (said, answered) in history.unwrap_or_default() {
                    outlet.send(Some(session), &chunk(session, "user_message_chunk", &said)).await;
                    outlet
                        .send(Some(session), &chunk(session, "agent_message_chunk", &answered))
                        .await;
                }
                Ok(json!({}))
            }
            "session/resume" | "session/close" => Ok(json!({})),
            "session/prompt" => Ok(self.turn(session, params, work, outlet).await),
            _ => Err(Refusal(-32601, "the demo agent does not know this method")),
        }
    }

    /// A session is back that waited for a permission when its connection was lost: it asks again.
    async fn go_on(&self, session: &str, work: &Work, outlet: &Outlet) {
        let is_asking = lock(&self.sessions).get(session).is_some_and(|session| session.is_asking);
        if is_asking {
            let mut turn = Turn { agent: self, session, work, outlet, said: String::new() };
            turn.ask().await;
        }
    }

    fn set_asking(&self, session: &str, is_asking: bool) {
        if let Some(session) = lock(&self.sessions).get_mut(session) {
            session.is_asking = is_asking;
        }
    }

    async fn turn(&self, session: &str, params: &Value, work: &Work, outlet: &Outlet) -> Value {
        let prompt = params.pointer("/prompt/0/text").and_then(Value::as_str).unwrap_or_default();
        let mut turn = Turn { agent: self, session, work, outlet, said: String::new() };
        let (command, rest) = prompt.split_once(' ').unwrap_or((prompt, ""));
        let reason = match command {
            "echo" => turn.echo(rest).await,
            "flood" => turn.flood(rest).await,
            "ask" => turn.ask().await,
            "hold" => turn.hold().await,
            _ => turn.echo("I understand: echo TEXT, flood N BYTES, ask, hold").await,
        };
        if let Some(kept) = lock(&self.sessions).get_mut(session) {
            kept.history.push((prompt.to_owned(), turn.said));
        }
        json!({"stopReason": reason})
    }
}

/// One turn under way.
struct Turn<'a> {
    agent: &'a Agent,
    session: &'a str,
    work: &'a Work,
    outlet: &'a Outlet,
    said: String,
}

impl Turn<'_> {
    async fn say(&mut self, text: &str) {
        self.said.push_str(text);
        self.outlet
            .send(Some(self.session), &chunk(self.session, "agent_message_chunk", text))
            .await;
    }

    async fn echo(&mut self, text: &str) -> &'static str {
        for word in text.split_inclusive(' ') {
            self.say(word).await;
        }
        "end_turn"
    }

    async fn flood(&mut self, sizes: &str) -> &'static str {
        let mut sizes = sizes.split(' ').map(|size| size.parse::<usize>().unwrap_or(1));
        let count = sizes.next().unwrap_or(1);
        let text = "x".repeat(sizes.next().unwrap_or(1));
        for _ in 0..count {
            self.outlet
                .send(Some(self.session), &chunk(self.session, "agent_message_chunk", &text))
                .await;
        }
        "end_turn"
    }

    async fn ask(&mut self) -> &'static str {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut asked = lock(&self.work.asked);
            asked.count += 1;
            let id = asked.count;
            asked.open.insert(id, answer);
            id
        };
        self.agent.set_asking(self.session, true);
        let question = json!({
            "jsonrpc": "2.0", "id": id, "method": "session/request_permission",
            "params": {
                "sessionId": self.session,
                "toolCall": {"toolCallId": "write", "title": "Write a file"},
                "options": [
                    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
                ],
            },
        });
        self.outlet.send(Some(self.session), &question).await;
        let answer = answered.await.unwrap_or_default();
        self.agent.set_asking(self.session, false);
        let chosen = answer.pointer("/result/outcome/optionId").and_then(Value::as_str);
        self.say(&format!("You chose {}.", chosen.unwrap_or("nothing"))).await;
        "end_turn"
    }

    async fn hold(&mut self) -> &'static str {
        let cancelled = Arc::new(Notify::new());
        lock(&self.work.turns).insert(self.session.to_owned(), Arc::clone(&cancelled));
        self.say("Working until I am cancelled.").await;
        cancelled.notified().await;
        lock(&self.work.turns).remove(self.session);
        "cancelled"
    }
}

fn chunk(session: &str, kind: &str, text: &str) -> Value {
    let update = json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}});
    json!({
        "jsonrpc": "2.0", "method": "session/update",
        "params": {"sessionId": session, "update": update},
    })
}

fn text<'a>(params: &'a Value, name: &str) -> &'a str {
    params.get(name).and_then(Value::as_str).unwrap_or_default()
}
