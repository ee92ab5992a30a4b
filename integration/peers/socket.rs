//! One socket in place of POSTs and streams (W): between the program and the official servers, and
//! with what a server can do to a socket.

use super::agent::Served;
use super::conversation::{initialize, new_session, said, say};
use super::editor::{Editor, PATIENCE};
use super::typescript;
use serde_json::{Value, json};
use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

/// Over `ws://`, with what an image weighs.
#[test]
fn w1_five_megabytes_pass_in_one_message_to_and_from_both_official_servers() {
    let (rust, typescript) = (Served::start(), typescript::Served::start());
    let urls = [Some(rust.url.clone()), typescript.as_ref().map(|server| server.url.clone())];
    for url in urls.into_iter().flatten() {
        let mut editor = Editor::connect(&url.replace("http://", "ws://"), &[]);
        initialize(&mut editor);
        let session = new_session(&mut editor);
        let text = "0123456789".repeat(512 * 1024);
        let id = say(&mut editor, &session, &format!("echo {text}"));
        let (before, answer) = editor.until_answer(id);
        assert!(before.iter().map(|message| said(message, &session)).eq([&*text]));
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        assert!(editor.close().status.success());
    }
    assert_eq!(rust.http_methods(), ["GET"], "the socket is all there is");
}

/// A network that can be cut.
pub struct Network {
    pub url: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Network {
    pub fn to(server: &str) -> Self {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = Arc::clone(&open);
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(&server).unwrap());
                kept.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (mut near_in, mut far_out) =
                    (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || copy(&mut near_in, &mut far_out));
                let (mut near_out, mut far_in) = (near, far);
                thread::spawn(move || copy(&mut far_in, &mut near_out));
            }
        });
        Self { url, open }
    }

    pub fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn w2_a_cut_socket_costs_the_turn_that_runs_and_no_session() {
    let (rust, typescript) = (Served::start(), typescript::Served::start());
    let urls = [Some(rust.url.clone()), typescript.as_ref().map(|server| server.url.clone())];
    for url in urls.into_iter().flatten() {
        let network = Network::to(&url);
        let mut editor = Editor::connect(&network.url, &["--notices", "off"]);
        initialize(&mut editor);
        let session = new_session(&mut editor);
        let held = say(&mut editor, &session, "hold");
        assert_eq!(said(&editor.message(), &session), "holding");
        network.cut();
        let (_, answer) = editor.until_answer(held);
        assert_eq!(answer["error"]["data"]["kind"], "connection_lost", "{answer}");
        assert_eq!(answer["error"]["data"]["delivery"], "unknown", "{answer}");
        let id = say(&mut editor, &session, "echo here again");
        let (before, answer) = editor.until_answer(id);
        let told: Vec<&str> = before.iter().map(|message| said(message, &session)).collect();
        assert_eq!(told, ["here again"], "the editor has the history already");
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        assert!(editor.close().status.success());
    }
}

/// Every update comes once and in its order, however fast they come.
#[test]
fn p6_ten_thousand_updates_over_a_socket_come_complete_and_in_order() {
    let agent = Served::start();
    let mut editor = Editor::connect(&agent.url, &["--transport", "ws"]);
    initialize(&mut editor);
    let session = new_session(&mut editor);
    let id = say(&mut editor, &session, "flood 10000 200");
    let (before, answer) = editor.until_answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert_eq!(before.len(), 10_000);
    for (number, update) in before.iter().enumerate() {
        let text = said(update, &session);
        assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()));
    }
}

/// A server that does as its script says.
struct Scripted {
    url: String,
    ended: Receiver<()>,
}

impl Scripted {
    fn by(script: impl FnOnce(&TcpListener) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ws://{}/acp", listener.local_addr().unwrap());
        let (end, ended) = channel();
        thread::spawn(move || {
            script(&listener);
            end.send(()).unwrap();
        });
        Self { url, ended }
    }

    /// The script has come to its end, and nothing in it failed.
    fn holds(self) {
        self.ended.recv_timeout(PATIENCE).expect("the server's script did not come to its end");
    }
}

type Socket = WebSocket<TcpStream>;

/// Takes a socket, of which `check` sees the request.
fn accepted(listener: &TcpListener, check: impl FnOnce(&Request)) -> Socket {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let named = |request: &Request, mut response: Response| {
        check(request);
        response.headers_mut().insert("acp-connection-id", HeaderValue::from_static("w1"));
        Ok(response)
    };
    tungstenite::accept_hdr(stream, named).unwrap()
}

/// Answers what is asked of it, but gives no socket.
fn refuse(listener: &TcpListener, answer: &str) {
    let (mut stream, _) = listener.accept().unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).unwrap();
}

/// The next message of the program.
fn heard(socket: &mut Socket) -> Value {
    loop {
        match socket.read().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn tell(socket: &mut Socket, message: &Value) {
    socket.send(Message::text(message.to_string())).unwrap();
}

fn answer(socket: &mut Socket, method: &str, result: &Value) {
    let request = heard(socket);
    assert_eq!(request["method"], method);
    tell(socket, &json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
}

fn initialized(listener: &TcpListener) -> Socket {
    let mut socket = accepted(listener, |_| {});
    let result = json!({
        "protocolVersion": 1,
        "agentCapabilities": {"loadSession": true},
        "agentInfo": {"name": "scripted", "version": "1"},
    });
    answer(&mut socket, "initialize", &result);
    socket
}

/// A socket with the session `s`.
fn with_session(listener: &TcpListener) -> Socket {
    let mut socket = initialized(listener);
    answer(&mut socket, "session/new", &json!({"sessionId": "s"}));
    socket
}

fn update(text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update":
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}})
}

/// The frames of a text as a server writes them, in parts of `size`.
fn in_parts(text: &str, size: usize) -> Vec<Vec<u8>> {
    let count = text.len().div_ceil(size);
    let frames = text.as_bytes().chunks(size).enumerate().map(|(number, part)| {
        let last = if number + 1 == count { 0x80 } else { 0 };
        let mut frame = vec![last | u8::from(number == 0), 126];
        frame.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
        frame.extend(part);
        frame
    });
    frames.collect()
}

fn close(socket: &mut Socket, code: u16) {
    socket
        .close(Some(CloseFrame { code: CloseCode::from(code), reason: "be\u{1b}cause\n".into() }))
        .unwrap();
    // Until the program has closed, too.
    while socket.read().is_ok() {}
}

fn begun(url: &str, flags: &[&str]) -> (Editor, String) {
    let mut editor = Editor::connect(url, flags);
    initialize(&mut editor);
    let session = new_session(&mut editor);
    (editor, session)
}

#[test]
fn w1_a_socket_is_asked_for_with_the_headers_and_closed_as_the_protocol_has_it() {
    let server = Scripted::by(|listener| {
        let mut socket = accepted(listener, |request| {
            let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            assert_eq!(header("x-team"), "core");
            assert!(header("user-agent").starts_with("acp-tether/"));
            assert_eq!(request.uri().path(), "/acp");
        });
        let result = json!({"protocolVersion": 1, "agentInfo": {"name": "scripted"},
            "agentCapabilities": {"loadSession": true}});
        answer(&mut socket, "initialize", &result);
        let Message::Close(Some(frame)) = socket.read().unwrap() else { panic!("no close") };
        assert_eq!(frame.code, CloseCode::Normal);
    });
    let mut editor = Editor::connect(&server.url, &["--header", "X-Team: core"]);
    initialize(&mut editor);
    assert!(editor.close().status.success());
    server.holds();
}

#[test]
fn w3_parts_pings_and_binary_frames_change_nothing_of_a_message() {
    let server = Scripted::by(|listener| {
        let mut socket = with_session(listener);
        let prompt = heard(&mut socket);
        socket.send(Message::binary(vec![0xff; 200_000])).unwrap();
        for part in in_parts(&update(&"ä".repeat(1000)).to_string(), 199) {
            socket.get_mut().write_all(&part).unwrap();
            socket.get_mut().write_all(b"\x89\x03you").unwrap();
        }
        tell(
            &mut socket,
            &json!({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}}),
        );
        let Message::Pong(payload) = socket.read().unwrap() else { panic!("no pong") };
        assert_eq!(payload, "you");
    });
    let (mut editor, session) = begun(&server.url, &[]);
    let id = say(&mut editor, &session, "x");
    let (before, _) = editor.until_answer(id);
    assert!(before.iter().map(|message| said(message, "s")).eq(["ä".repeat(1000)]));
    server.holds();
}

#[test]
fn w3_a_message_over_the_limit_is_left_out_and_the_socket_stays() {
    let server = Scripted::by(|listener| {
        let mut socket = with_session(listener);
        let prompt = heard(&mut socket);
        tell(&mut socket, &update(&"x".repeat(300_000)));
        tell(&mut socket, &update("short"));
        tell(
            &mut socket,
            &json!({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}}),
        );
        heard(&mut socket);
    });
    let (mut editor, session) = begun(&server.url, &["--max-message-bytes", "64KiB"]);
    let id = say(&mut editor, &session, "x");
    let (before, _) = editor.until_answer(id);
    assert!(before.iter().map(|message| said(message, "s")).eq(["short"]));
    say(&mut editor, &session, "on the same socket");
    server.holds();
}

/// What was read of the message counts as nothing.
#[test]
fn w2_a_cut_or_a_close_in_the_middle_of_a_message_is_a_lost_connection() {
    for is_cut in [true, false] {
        let server = Scripted::by(move |listener| {
            let mut socket = with_session(listener);
            heard(&mut socket);
            let parts = in_parts(&update("half of this").to_string(), 20);
            socket.get_mut().write_all(&parts[0]).unwrap();
            if is_cut {
                socket.get_mut().write_all(&parts[1][..5]).unwrap();
                drop(socket);
            } else {
                close(&mut socket, 1011);
            }
            let mut socket = initialized(listener);
            answer(&mut socket, "session/load", &json!({}));
            let prompt = heard(&mut socket);
            tell(
                &mut socket,
                &json!({"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}}),
            );
            heard(&mut socket);
        });
        let (mut editor, session) = begun(&server.url, &["--notices", "off"]);
        let lost = say(&mut editor, &session, "x");
        let (before, answer) = editor.until_answer(lost);
        assert!(before.is_empty(), "{before:?}");
        assert_eq!(answer["error"]["data"]["kind"], "connection_lost", "{answer}");
        let id = say(&mut editor, &session, "x");
        let (before, answer) = editor.until_answer(id);
        assert!(before.is_empty(), "{before:?}");
        assert_eq!(answer["result"]["stopReason"], "end_turn");
        say(&mut editor, &session, "the end");
        server.holds();
    }
}

/// A server that only asks whether we are there, and does not read the answers.
#[test]
fn w3_a_flood_of_pings_holds_nothing_up() {
    let server = Scripted::by(|listener| {
        let mut socket = with_session(listener);
        let prompt = heard(&mut socket);
        for _ in 0..1_000 {
            socket.get_mut().write_all(&b"\x89\x03you".repeat(100)).unwrap();
        }
        socket.send(Message::Ping("the last".into())).unwrap();
        tell(&mut socket, &update("after all of them"));
        // It stands for all before it.
        while socket.read().unwrap() != Message::Pong("the last".into()) {}
        let result = json!({"stopReason": "end_turn"});
        tell(&mut socket, &json!({"jsonrpc": "2.0", "id": prompt["id"], "result": result}));
        heard(&mut socket);
    });
    let (mut editor, session) = begun(&server.url, &[]);
    let id = say(&mut editor, &session, "x");
    let (before, _) = editor.until_answer(id);
    assert!(before.iter().map(|message| said(message, "s")).eq(["after all of them"]));
    say(&mut editor, &session, "the end");
    server.holds();
}

#[test]
fn w1_a_server_that_says_anything_but_the_answer_to_initialize_is_given_up() {
    // Too many, or too long together.
    for text in ["much".to_owned(), "x".repeat(100_000)] {
        let server = Scripted::by(move |listener| {
            loop {
                let mut socket = accepted(listener, |_| {});
                heard(&mut socket);
                // As long as it is listened to.
                while socket.send(Message::text(update(&text).to_string())).is_ok() {}
            }
        });
        let flags = ["--connect-timeout", "2s", "--max-message-bytes", "1MiB"];
        let mut editor = Editor::connect(&server.url, &flags);
        let initialize = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let id = editor.request("initialize", &initialize);
        let (_, answer) = editor.until_answer(id);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("no answer to initialize"), "{message}");
    }
}

#[test]
fn w1_a_close_is_answered_before_there_is_a_connection_too() {
    let server = Scripted::by(|listener| {
        let mut socket = accepted(listener, |_| {});
        heard(&mut socket);
        socket.close(Some(CloseFrame { code: CloseCode::Again, reason: "".into() })).unwrap();
        assert!(matches!(socket.read().unwrap(), Message::Close(_)));
        let mut socket = initialized(listener);
        heard(&mut socket);
    });
    let mut editor = Editor::connect(&server.url, &[]);
    initialize(&mut editor);
    editor.request("session/new", &json!({"cwd": "/", "mcpServers": []}));
    server.holds();
}

#[test]
fn l8_a_redirect_to_the_same_host_may_name_the_scheme_of_a_socket() {
    let server = Scripted::by(|listener| {
        let place = format!("ws://{}/moved", listener.local_addr().unwrap());
        let moved = "307 Temporary Redirect\r\nContent-Length: 0\r\nConnection: close";
        refuse(listener, &format!("{moved}\r\nLocation: {place}\r\n\r\n"));
        let mut socket = accepted(listener, |request| assert_eq!(request.uri().path(), "/moved"));
        heard(&mut socket);
    });
    let mut editor = Editor::connect(&server.url, &[]);
    editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    server.holds();
}

/// The server closes at the moment at which the editor goes: that close is an end of ours too.
#[test]
fn s7_a_socket_that_the_server_closes_meanwhile_holds_the_end_up_no_longer() {
    for _ in 0..10 {
        let server = Scripted::by(|listener| {
            let mut socket = with_session(listener);
            heard(&mut socket);
            close(&mut socket, 1001);
        });
        let (mut editor, session) = begun(&server.url, &[]);
        editor.notify("_bye", &json!({"sessionId": session}));
        let end = editor.close();
        assert!(end.status.success() && !end.log.contains("in time"), "{}", end.log);
        server.holds();
    }
}

#[test]
fn w3_a_close_that_refuses_the_credential_stops_the_retries_after_one_more() {
    let server = Scripted::by(|listener| {
        for _ in 0..2 {
            let mut socket = initialized(listener);
            close(&mut socket, 4401);
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "it is stopped");
    });
    let mut editor = Editor::connect(&server.url, &[]);
    initialize(&mut editor);
    server.holds();
    let status = editor.request("_acp-tether/status", &json!({}));
    let (_, answer) = editor.until_answer(status);
    let link = &answer["result"]["link"];
    assert!(link["error"].as_str().unwrap().contains("4401"), "{link}");
    // The server's own words may hold secrets (X1): they are for the editor alone.
    assert!(!link.to_string().contains("cause"), "{link}");
    let log = editor.close().log;
    assert!(log.contains("4401") && !log.contains("cause"), "{log}");
}

/// The server closes when it has seen the length, long before all is written.
#[test]
fn w3_a_message_that_is_too_large_for_the_server_is_told_so() {
    let server = Scripted::by(|listener| {
        let mut socket = with_session(listener);
        let mut head = [0; 10];
        socket.get_mut().peek(&mut head).unwrap();
        let frame = CloseFrame { code: CloseCode::Size, reason: "too big".into() };
        socket.close(Some(frame)).unwrap();
        while socket.read().is_ok() {}
        let mut socket = initialized(listener);
        answer(&mut socket, "session/load", &json!({}));
        assert_eq!(heard(&mut socket)["params"]["prompt"][0]["text"], "small");
    });
    let (mut editor, session) = begun(&server.url, &[]);
    let id = say(&mut editor, &session, &"x".repeat(20 * 1024 * 1024));
    let (_, answer) = editor.until_answer(id);
    assert_eq!(answer["error"]["data"]["kind"], "too_large", "{}", answer["error"]["message"]);
    say(&mut editor, &session, "small");
    server.holds();
}

#[test]
fn w1_what_is_answered_instead_of_a_socket_is_told() {
    for (status, expected) in [
        ("404 Not Found", "does it speak WebSocket?"),
        ("401 Unauthorized", "refused the credential"),
        ("200 OK\r\nContent-Type: application/json", "does it speak WebSocket?"),
    ] {
        let server = Scripted::by(move |listener| {
            let tries = if status.starts_with("401") { 2 } else { 1 };
            for _ in 0..tries {
                refuse(listener, &format!("{status}\r\nContent-Length: 2\r\n\r\n{{}}"));
            }
        });
        let mut editor = Editor::connect(&server.url, &[]);
        let id =
            editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
        let (_, answer) = editor.until_answer(id);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{status}: {message}");
        server.holds();
    }
}

/// A hop that answers every upgrade the same has not understood it.
#[test]
fn w1_an_upgrade_that_does_not_know_our_key_is_none() {
    let server = Scripted::by(|listener| {
        let wrong = "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        refuse(listener, wrong);
    });
    assert_is_no_socket(server);
}

#[test]
fn w1_an_upgrade_to_anything_but_what_we_asked_for_is_none() {
    for (name, value) in [
        ("upgrade", "h2c"),
        ("connection", "close"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("sec-websocket-protocol", "acp"),
    ] {
        let server = Scripted::by(move |listener| {
            let (stream, _) = listener.accept().unwrap();
            #[expect(clippy::result_large_err, reason = "the library's own type")]
            let wrong = |_: &Request, mut response: Response| {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
                Ok(response)
            };
            drop(tungstenite::accept_hdr(stream, wrong));
        });
        assert_is_no_socket(server);
    }
}

fn assert_is_no_socket(server: Scripted) {
    let mut editor = Editor::connect(&server.url, &["--connect-timeout", "100ms"]);
    let id = editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    let (_, answer) = editor.until_answer(id);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("not one of WebSocket"), "{message}");
    server.holds();
}
