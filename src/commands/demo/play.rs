//! The editor of the demo: what it asks, and what must come back.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::server::Server;
use super::{Who, told};

/// Longer than any step takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Holds the conversation; an error says which part of it did not happen.
pub(super) async fn play() -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let url = format!("http://{}", listener.local_addr().map_err(|error| error.to_string())?);
    let server = super::server();
    tokio::spawn(server.clone().serve(listener));

    heading(&format!("An editor launches: acp-tether connect {url}"));
    let mut editor = Editor::launch(&url)?;
    let initialized = editor.ask("initialize", json!({"protocolVersion": 1})).await?;
    expect(&initialized["agentInfo"]["name"], &json!("acp-tether-demo"))?;

    heading("It opens a session.");
    let params = json!({"cwd": "/home/you/project", "mcpServers": []});
    let created = editor.ask("session/new", params).await?;
    let session = created["sessionId"].as_str().ok_or("the session has no id")?.to_owned();

    heading("A prompt; the answer streams back.");
    let reason = editor.prompt(&session, "echo Hello from far away.").await?;
    expect(&reason, &json!("end_turn"))?;
    expect(&json!(editor.heard), &json!("Hello from far away."))?;

    heading(
        "The connection is cut in the middle of an answer. Nothing is lost, nothing comes twice.",
    );
    server.cut_after(&session, 2);
    let reason = editor.prompt(&session, "echo One two three four five.").await?;
    expect(&reason, &json!("end_turn"))?;
    expect(&json!(editor.heard), &json!("One two three four five."))?;

    heading("The agent asks for a permission, and goes on when it has the answer.");
    let reason = editor.prompt(&session, "ask").await?;
    expect(&reason, &json!("end_turn"))?;
    expect(&json!(editor.heard), &json!("You chose yes."))?;

    heading("A turn that would never end is cancelled.");
    let reason = editor.prompt(&session, "hold").await?;
    expect(&reason, &json!("cancelled"))?;

    heading(
        "While a permission is asked for, the server is restarted. The person answers the same question.",
    );
    editor.restarts = Some(server);
    let reason = editor.prompt(&session, "ask").await;
    expect(&json!(reason.err()), &json!("connection_lost"))?;
    while !editor.heard.contains("You chose yes.") {
        editor.take(None).await?;
    }
    let reason = editor.prompt(&session, "echo And on it goes.").await?;
    expect(&reason, &json!("end_turn"))?;

    heading("The editor closes its side.");
    editor.close().await?;
    heading("All of it happened. Now your editor: see the README.");
    Ok(())
}

/// An ACP client on the pipes of the bridge.
struct Editor {
    bridge: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    requests: u64,
    /// What the agent said in the present turn.
    heard: String,
    /// The server that is restarted when the next permission is asked for.
    restarts: Option<Server>,
}

impl Editor {
    fn launch(url: &str) -> Result<Self, String> {
        let launch = || {
            let mut bridge = Command::new(std::env::current_exe()?)
                .args(["connect", "--api", "off", "--log-level", "error", url])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let input = bridge.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let output = bridge.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            let output = BufReader::new(output).lines();
            Ok(Self { bridge, input, output, requests: 0, heard: String::new(), restarts: None })
        };
        launch().map_err(|error: io::Error| format!("the bridge cannot be launched: {error}"))
    }

    async fn prompt(&mut self, session: &str, text: &str) -> Result<Value, String> {
        self.heard.clear();
        let prompt = json!([{"type": "text", "text": text}]);
        let answer =
            self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await?;
        Ok(answer["stopReason"].clone())
    }

    /// Asks, and takes what comes until the answer is there.
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.requests += 1;
        let id = self.requests;
        let prompt = params.pointer("/prompt/0/text").map(|text| format!(" {text}"));
        told(Who::Editor, &format!("{method}{}", prompt.unwrap_or_default()));
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&request).await?;
        loop {
            let Some(answer) = self.take(Some(id)).await? else { continue };
            let result = answer.get("result").cloned();
            let failure = answer.pointer("/error/data/kind").and_then(Value::as_str);
            told(Who::Agent, &format!("{method}: {}", result.as_ref().unwrap_or(&answer["error"])));
            return result.ok_or(failure.unwrap_or("an error of the agent").to_owned());
        }
    }

    /// Takes one message; it is returned if it is the answer to this request.
    async fn take(&mut self, request: Option<u64>) -> Result<Option<Value>, String> {
        let message = self.read().await?;
        match message["method"].as_str() {
            Some("session/update") => self.update(&message).await?,
            Some("session/request_permission") => self.permit(&message).await?,
            Some(method) => return Err(format!("the agent sent {method}")),
            None if message["id"] == json!(request) => return Ok(Some(message)),
            None => return Err(format!("nobody asked for {message}")),
        }
        Ok(None)
    }

    async fn update(&mut self, message: &Value) -> Result<(), String> {
        let text = message.pointer("/params/update/content/text").and_then(Value::as_str);
        let text = text.unwrap_or_default();
        told(Who::Agent, &format!("says {text:?}"));
        self.heard.push_str(text);
        if text.contains("until I am cancelled") {
            told(Who::Editor, "session/cancel");
            let params = json!({"sessionId": message["params"]["sessionId"]});
            let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
            self.write(&cancel).await?;
        }
        Ok(())
    }

    async fn permit(&mut self, question: &Value) -> Result<(), String> {
        let title = &question["params"]["toolCall"]["title"];
        told(Who::Agent, &format!("asks for permission: {title}"));
        if let Some(server) = self.restarts.take() {
            told(Who::Http, "the server restarts: it has forgotten every connection");
            server.restart();
        }
        told(Who::Editor, "answers: yes");
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
        self.write(&json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome})).await
    }

    async fn close(mut self) -> Result<(), String> {
        drop(self.input);
        let ended = timeout(PATIENCE, self.bridge.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the bridge ended with {status}")),
            Ok(Err(error)) => Err(format!("the bridge was lost: {error}")),
            Err(_) => Err("the bridge did not end".to_owned()),
        }
    }

    async fn write(&mut self, message: &Value) -> Result<(), String> {
        let written = self.input.write_all(format!("{message}\n").as_bytes()).await;
        written.map_err(|error| format!("the bridge does not read: {error}"))
    }

    async fn read(&mut self) -> Result<Value, String> {
        let line = timeout(PATIENCE, self.output.next_line()).await;
        let line = line.map_err(|_| "nothing comes from the bridge any more")?;
        let line = line.map_err(|error| format!("the bridge cannot be read: {error}"))?;
        let line = line.ok_or("the bridge ended early")?;
        serde_json::from_str(&line).map_err(|_| format!("this is no JSON: {line}"))
    }
}

fn expect(got: &Value, expected: &Value) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{expected} was expected, {got} came")),
    }
}

fn heading(text: &str) {
    let style = anstyle::Style::new().bold();
    anstream::println!("\n{style}{text}{style:#}");
}
