//! What goes wrong over a socket is told as what it is.

use super::agent::{Agent, Fault, response};
use super::{Told, doctor_in};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use tungstenite::protocol::CloseFrame;
use tungstenite::{Message, WebSocket};

/// What is told of a server that does this with what it takes.
fn told_of(script: impl FnOnce(TcpStream) + Send + 'static) -> Told {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/acp", listener.local_addr().unwrap());
    let script = thread::spawn(move || {
        // The first connection only shows that somebody takes them.
        let _ = listener.accept().unwrap();
        script(listener.accept().unwrap().0);
    });
    let told = doctor_in(&[("TOKEN", "T0ken-of-mine")], &url, &["--bearer-env", "TOKEN"]);
    script.join().unwrap();
    told
}

/// A socket, and the id of what was asked over it.
fn asked(stream: TcpStream) -> (WebSocket<TcpStream>, Value) {
    let mut socket = tungstenite::accept(stream).unwrap();
    let text = socket.read().unwrap().into_text().unwrap();
    let message: Value = serde_json::from_str(&text).unwrap();
    (socket, message["id"].clone())
}

fn tell(socket: &mut WebSocket<TcpStream>, message: &Value) {
    socket.send(Message::text(message.to_string())).unwrap();
}

/// Reads until the program closes.
fn read_out(mut socket: WebSocket<TcpStream>) {
    while socket.read().is_ok() {}
}

#[test]
fn w3_a_socket_that_is_closed_for_the_credential_is_told_as_that() {
    for code in [1008, 4401] {
        let told = told_of(move |stream| {
            let (mut socket, _) = asked(stream);
            let reason = "not T0ken-of-mine".into();
            socket.close(Some(CloseFrame { code: code.into(), reason })).unwrap();
            read_out(socket);
        });
        let closed = format!("closed: {code} not hidden");
        told.fails_by("initialize", &[&closed, "(--bearer-env)", "has it expired?"]);
    }
}

#[test]
fn w1_what_comes_before_the_answer_is_passed_over_and_the_answer_must_have_our_id() {
    let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": 1}});
    let told = told_of(move |stream| {
        let (mut socket, id) = asked(stream);
        tell(&mut socket, &json!({"jsonrpc": "2.0", "method": "_ready"}));
        tell(&mut socket, &answer(&id));
        read_out(socket);
    });
    told.is_well(&[("initialize", "ok: "), ("closing", "ok: the socket is closed")]);
    let told = told_of(move |stream| {
        let (mut socket, _) = asked(stream);
        tell(&mut socket, &answer(&json!(99)));
        read_out(socket);
    });
    told.fails_by("initialize", &["another id, 99"]);
}

#[test]
fn an_answer_to_the_upgrade_that_is_none_of_websocket_and_a_refusal_with_its_words() {
    let told = told_of(|mut stream| {
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let head = "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        stream.write_all(format!("{head}Sec-WebSocket-Accept: AAAA\r\n\r\n").as_bytes()).unwrap();
    });
    told.fails_by("websocket", &["not one of WebSocket", "upgrade"]);
    let refuses: Fault = Fault::Answers(|_, _, _| Some(response(400, &[], "no sockets here")));
    let agent = Agent::with(refuses);
    let told = doctor_in(&[], &agent.url, &["--transport", "ws"]);
    told.fails_by("websocket", &["not offered: 400: no sockets here"]);
}

#[test]
fn a_socket_that_is_cut_needs_no_delete() {
    let told = told_of(|stream| drop(asked(stream)));
    told.fails_by("initialize", &["not answered"]);
    let closing = told.found("closing");
    assert!(closing.starts_with("ok: the socket ") && !closing.contains("DELETE"), "{closing}");
}
