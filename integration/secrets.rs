//! One secret planted everywhere, and looked for in all that the program writes (X1).
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::peers::agent::serve;
use crate::program::program;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri};
use axum::routing::any;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;
use tungstenite::Message;
use tungstenite::handshake::server::{Request as Upgrade, Response as Upgraded};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;

/// Part of every secret, and of nothing else.
const SECRET: &str = "s3cr3t";

/// What the server saw of the secrets, each in its place.
type Saw = Arc<Mutex<Vec<String>>>;

/// Answers with secrets in headers, cookies and redirects, and on the stream, and repeats those that it
/// gets.
async fn answer(
    saw: Saw,
    uri: Uri,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let shown = |name: &str| headers.get_all(name).iter().map(|it| it.to_str().unwrap().to_owned());
    let names = ["authorization", "x-file", "x-typed", "x-variable", "cookie"];
    saw.lock().unwrap().extend(names.into_iter().flat_map(shown));
    let response = Response::builder().header("x-server", "s3cr3t-header");
    let response =
        response.header("set-cookie", "set=s3cr3t-set").header("acp-connection-id", "c1");
    if method == Method::GET {
        let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {
            "sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "s3cr3t-content"}}}});
        let events = format!("data: s3cr3t-garbage\n\ndata: {update}\n\n");
        let events = stream::iter([Ok::<_, std::io::Error>(events)]).chain(stream::pending());
        let response = response.header("content-type", "text/event-stream");
        return response.body(Body::from_stream(events)).unwrap();
    }
    if method == Method::DELETE {
        let body = Body::from("s3cr3t-delete");
        return response.status(StatusCode::INTERNAL_SERVER_ERROR).body(body).unwrap();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let result = match message["method"].as_str().unwrap() {
        "initialize" => json!({"protocolVersion": 1}),
        "session/new" => json!({"sessionId": "s1"}),
        "session/set_mode" => {
            let response = response.status(StatusCode::UNAUTHORIZED);
            let response = response.header("www-authenticate", "Bearer realm=s3cr3t-realm");
            return response.body(Body::from(format!("refused: {uri} {headers:?}"))).unwrap();
        }
        "session/list" => {
            let place = "http://anna:s3cr3t-user@elsewhere.invalid/?t=s3cr3t-target";
            let response = response.status(StatusCode::TEMPORARY_REDIRECT);
            return response.header("location", place).body(Body::empty()).unwrap();
        }
        _ => json!({"stopReason": "end_turn"}),
    };
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let response = response.header("content-type", "application/json");
    response.body(Body::from(answer.to_string())).unwrap()
}

/// The same over sockets; each is closed with a secret when it is asked for the list.
fn serve_sockets(saw: Saw) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/acp?key=s3cr3t%2Bquery", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            speak(stream.unwrap(), &saw);
        }
    });
    url
}

fn speak(stream: TcpStream, saw: &Saw) {
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let named = |request: &Upgrade, mut response: Upgraded| {
        let authorization = request.headers()["authorization"].to_str().unwrap();
        saw.lock().unwrap().push(format!("upgrade {authorization}"));
        for (name, value) in [("x-server", "s3cr3t-header"), ("set-cookie", "set=s3cr3t-set")] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    };
    // The program may have ended meanwhile.
    let Ok(mut socket) = tungstenite::accept_hdr(stream, named) else { return };
    while let Ok(message) = socket.read() {
        let Ok(Ok(request)) = message.to_text().map(serde_json::from_str::<Value>) else {
            continue;
        };
        let result = match request["method"].as_str().unwrap() {
            "initialize" => json!({"protocolVersion": 1}),
            "session/new" => json!({"sessionId": "s1"}),
            "session/list" => {
                let reason = "s3cr3t-reason of s3cr3t-socket".into();
                let _ = socket.close(Some(CloseFrame { code: CloseCode::Error, reason }));
                continue;
            }
            _ => {
                let update = json!({"jsonrpc": "2.0", "method": "session/update", "params": {
                    "sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk",
                    "content": {"type": "text", "text": "s3cr3t-content"}}}});
                let _ = socket.send(Message::text(update.to_string()));
                let _ = socket.send(Message::text("s3cr3t-garbage"));
                let _ = socket.send(Message::Ping("s3cr3t-ping".into()));
                json!({"stopReason": "end_turn"})
            }
        };
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let _ = socket.send(Message::text(answer.to_string()));
    }
}

/// Where the program finds its things, and what it was told in secret.
fn with_secrets(command: &mut Command, place: &Path) {
    command.env("XDG_RUNTIME_DIR", place.join("runtime")).env("XDG_CONFIG_HOME", place);
    command.env("PLANTED", "s3cr3t-variable").env("RUST_LOG", "trace");
}

/// Holds a conversation, and gives what the program wrote: to the editor, to its log, and what the
/// system and others could see of it meanwhile.
fn converse(place: &Path, arguments: &[&str]) -> String {
    let mut command = program();
    with_secrets(&mut command, place);
    let command = command.arg("connect").args(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(place.join("errors")).unwrap())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = String::new();
    let requests = [
        ("initialize", json!({"protocolVersion": 1})),
        (
            "session/new",
            json!({"cwd": "/", "mcpServers": [
            {"name": "m", "command": "c", "args": [], "env": [{"name": "K", "value": "s3cr3t-env"}]}]}),
        ),
        (
            "session/prompt",
            json!({"sessionId": "s1", "prompt": [{"type": "text", "text": "s3cr3t-prompt"}]}),
        ),
        ("session/set_mode", json!({"sessionId": "s1", "modeId": "code"})),
        ("session/list", json!({})),
        ("_acp-tether/status", json!({})),
    ];
    for (number, (method, params)) in requests.into_iter().enumerate() {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
        let answer = lines.by_ref().map(Result::unwrap).find(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["id"] == json!(number)
        });
        told += &answer.unwrap_or_else(|| panic!("{method} has no answer"));
    }
    let mut sessions = program();
    with_secrets(&mut sessions, place);
    let sessions = sessions.args(["sessions", "--json"]).output().unwrap();
    told += &String::from_utf8_lossy(&sessions.stdout);
    if cfg!(target_os = "linux") {
        told += &fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
    }
    told += &contents(&place.join("runtime"));
    drop(input);
    assert!(child.wait().unwrap().success());
    told + &fs::read_to_string(place.join("errors")).unwrap()
}

/// All that stands in the files below a directory.
fn contents(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        text += &path.to_string_lossy();
        text += &if path.is_dir() { contents(&path) } else { fs::read_to_string(&path).unwrap() };
    }
    text
}

fn assert_tells_nothing(what: &str, text: &str) {
    if let Some(at) = text.find(SECRET) {
        let around = text[..at].rfind('\n').map_or(0, |start| start + 1);
        panic!("{what}: {}", text[around..].lines().next().unwrap_or_default());
    }
}

#[test]
fn x1_a_secret_that_is_planted_everywhere_is_written_nowhere() {
    let place = TempDir::new().unwrap();
    let place = place.path();
    fs::create_dir_all(place.join("acp-tether")).unwrap();
    fs::create_dir_all(place.join("runtime")).unwrap();
    fs::write(place.join("token"), "s3cr3t-token").unwrap();
    let saw = Saw::default();
    let seen = Arc::clone(&saw);
    let router = Router::new().route(
        "/acp",
        any(move |uri: Uri, method: Method, headers: HeaderMap, body: Bytes| {
            answer(seen, uri, method, headers, body)
        }),
    );
    let (server, _stop) = serve(router);
    let url = format!("{server}/acp?key=s3cr3t%2Bquery");
    let socket = serve_sockets(Arc::clone(&saw));
    let file = format!(
        "[remotes.work]\nurl = {url:?}\nbearer-command = \"printf s3cr3t-command\"\nlog-level = \"trace\"\n\
         [remotes.work.headers]\nX-File = \"s3cr3t-file\"\nX-Variable = \"${{PLANTED}}\"\n\
         Cookie = \"given=s3cr3t-cookie\"\n\
         [remotes.socket]\nurl = {socket:?}\nbearer-command = \"printf s3cr3t-socket\"\n"
    );
    fs::write(place.join("acp-tether/config.toml"), file).unwrap();
    let [named, plain, over_socket, said_over_socket] =
        ["named", "plain", "socket", "said"].map(|name| place.join(name).with_extension("ndjson"));
    let token = place.join("token").to_string_lossy().into_owned();
    let proxy = "http://anna:${PLANTED}@127.0.0.1:1";

    let recorded =
        ["--record", &named.to_string_lossy(), "--header", "X-Typed: ${PLANTED}", "work"];
    let told = converse(place, &recorded);
    assert_tells_nothing("a named remote", &told);
    assert!(told.contains("/acp?key=hidden") && told.contains(r#"\"hidden\""#), "{told}");
    // In the process list stands what a person typed there, and that is warned of.
    let typed = [
        "--record",
        &plain.to_string_lossy(),
        "--record-content",
        "--bearer-file",
        &token,
        &server,
    ];
    assert_tells_nothing("a token in a file", &converse(place, &typed));
    let recorded = ["--record", &over_socket.to_string_lossy(), "socket"];
    assert_tells_nothing("a socket", &converse(place, &recorded));
    let recorded = ["--record", &said_over_socket.to_string_lossy(), "--record-content", "socket"];
    assert_tells_nothing("a socket of which all is recorded", &converse(place, &recorded));
    for file in [named, over_socket] {
        assert_tells_nothing("a recording", &fs::read_to_string(file).unwrap());
    }
    let [plain, said_over_socket] =
        [plain, said_over_socket].map(|file| fs::read_to_string(file).unwrap());
    assert!(said_over_socket.contains(r#""close":1011,"reason":"s3cr3t-reason of hidden""#));
    // What people and the agent wrote, as is asked for.
    let said = ["content", "prompt", "garbage", "delete", "reason"];
    for content in [plain, said_over_socket] {
        let rest =
            said.iter().fold(content, |rest, said| rest.replace(&format!("s3cr3t-{said}"), ""));
        assert_tells_nothing("a recording of content", &rest);
    }

    // What cannot be used is told without it.
    for (what, arguments) in [
        ("a key that is none", &["--client-cert", &token, &server][..]),
        ("a proxy that is not there", &["--proxy", proxy, "--connect-timeout", "1ms", &server]),
        ("a proxy that is none", &["--proxy", "ftp://${PLANTED}", &server]),
        ("a header that is none", &["--header", "X-A: \u{1}${PLANTED}", &server]),
        ("a user in the URL", &["http://anna:${PLANTED}@127.0.0.1/"]),
    ] {
        let mut command = program();
        with_secrets(&mut command, place);
        let mut child = command
            .arg("connect")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{}}}}"#)
            .unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8_lossy(&told).contains("\"error\""), "{what}");
        assert_tells_nothing(what, &String::from_utf8_lossy(&told));
    }

    for arguments in [
        &["config", "show", "work"][..],
        &["config", "show", "--json", "work"],
        &["config", "check"],
    ] {
        let mut command = program();
        with_secrets(&mut command, place);
        let output = command.args(arguments).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        assert!(!told.is_empty(), "{arguments:?}");
        assert_tells_nothing("config", &String::from_utf8_lossy(&told));
    }

    // They were all sent.
    let saw = saw.lock().unwrap();
    for secret in [
        "Bearer s3cr3t-command",
        "Bearer s3cr3t-token",
        "s3cr3t-file",
        "s3cr3t-variable",
        "upgrade Bearer s3cr3t-socket",
    ] {
        assert!(saw.iter().any(|seen| seen == secret), "{secret}: {saw:?}");
    }
    assert!(saw.iter().any(|seen| seen.contains("given=s3cr3t-cookie")), "{saw:?}");
    assert!(saw.iter().any(|seen| seen.contains("set=s3cr3t-set")), "{saw:?}");
}
