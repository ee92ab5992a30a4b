//! What looks well, or like another fault, and is not: it is told as what it is.

use super::agent::{Agent, Fault, response};
use super::broken::told_of;
use super::doctor_in;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::process::Command;
use std::time::Duration;

const JSON: (&str, &str) = ("content-type", "application/json");
const CONNECTED: (&str, &str) = ("acp-connection-id", "c9");

/// An answer to `initialize` in this version of the protocol.
fn initialized(message: &Value, version: u32) -> String {
    let result = json!({"protocolVersion": version, "agentInfo": {"name": "scripted"}});
    json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string()
}

fn is_initialize(message: &Value) -> bool {
    message["method"] == "initialize"
}

#[test]
fn x1_what_a_server_repeats_of_a_credential_is_hidden() {
    fn secret(headers: &HeaderMap) -> String {
        let value = |name| headers.get(name).unwrap().to_str().unwrap();
        format!("{} {} {}", value("authorization"), value("x-key"), value("cookie"))
    }
    fn begins(headers: &HeaderMap, answer: &Value) -> Option<Response<Body>> {
        let mut answer = answer.clone();
        answer["jsonrpc"] = json!("2.0");
        let name = format!("c{}", headers.len());
        Some(response(200, &[JSON, ("acp-connection-id", &name)], answer.to_string()))
    }
    let servers: [Fault; 6] = [
        Fault::Answers(|_, headers, _| Some(response(400, &[], secret(headers)))),
        Fault::Answers(|_, headers, _| {
            Some(response(401, &[], "x".repeat(100) + &secret(headers)))
        }),
        Fault::Answers(|method, headers, message| {
            let error =
                json!({"id": message["id"], "error": {"code": 1, "message": secret(headers)}});
            (method == Method::POST).then(|| begins(headers, &error))?
        }),
        Fault::Answers(|_, headers, message| {
            let info = json!({"name": secret(headers), "version": secret(headers)});
            let result = json!({"protocolVersion": 1, "agentInfo": info});
            let answer = json!({"id": message["id"], "result": result});
            is_initialize(message).then(|| begins(headers, &answer))?
        }),
        Fault::Answers(|_, headers, _| {
            Some(response(200, &[("content-type", &secret(headers))], "x"))
        }),
        Fault::Answers(|_, headers, _| {
            let place = secret(headers).replace(' ', "/");
            Some(response(307, &[("location", &format!("https://other.test/{place}"))], ""))
        }),
    ];
    let environment =
        [("TOKEN", "T0ken-of-mine"), ("KEY", "K3y-of-mine"), ("JAR", "C00kie-of-mine")];
    let flags =
        ["--bearer-env", "TOKEN", "--header", "X-Key: ${KEY}", "--header", "Cookie: a=${JAR}"];
    for fault in servers {
        let agent = Agent::with(fault);
        let told = doctor_in(&environment, &agent.url, &flags);
        assert!(told.text.contains("hidden"), "{}", told.text);
        for part in ["T0ken", "K3y-o", "C00kie"] {
            assert!(!told.text.contains(part), "{}", told.text);
        }
    }
}

/// As the name of a team in a header may be.
#[test]
fn x1_a_short_header_that_stands_in_the_url_leaves_the_host_to_be_read() {
    let told = doctor_in(&[], "http://acme.invalid", &["--header", "X-Team: acme"]);
    told.fails_by("name", &["acme.invalid has no address"]);
}

#[test]
fn a_request_after_initialize_that_is_refused_or_never_answered_fails() {
    /// Answers this to a request that follows, to all or only to the second.
    fn to_later(message: &Value, number: &str, status: u16) -> Option<Response<Body>> {
        let id = message["id"].as_str()?;
        (!is_initialize(message) && id.ends_with(number)).then(|| response(status, &[], ""))
    }
    let cases: [(Fault, &[&str]); 5] = [
        (Fault::Answers(|_, _, message| to_later(message, "", 404)), &["404", "same server"]),
        (Fault::Answers(|_, _, message| to_later(message, "", 401)), &["401", "credential"]),
        (Fault::Answers(|_, _, message| to_later(message, "", 502)), &["502", "log"]),
        (Fault::Answers(|_, _, message| to_later(message, "-3", 404)), &["404", "same server"]),
        (Fault::Answers(|_, _, message| to_later(message, "-3", 202)), &["no answer came"]),
    ];
    for (fault, texts) in cases {
        told_of(fault, &[]).fails_by("buffering", texts);
    }
}

#[test]
fn l2_an_answer_to_initialize_is_judged_as_connect_judges_it() {
    let other: Fault = Fault::Answers(|_, _, message| {
        let answer = json!({"jsonrpc": "2.0", "id": 77, "result": {"protocolVersion": 1}});
        is_initialize(message).then(|| response(200, &[JSON, CONNECTED], answer.to_string()))
    });
    told_of(other, &[]).fails_by("initialize", &["another id, 77"]);
    let created: Fault = Fault::Answers(|_, _, message| {
        let answer = initialized(message, 1);
        is_initialize(message).then(|| response(201, &[JSON, CONNECTED], answer))
    });
    told_of(created, &[]).is_well(&[("status", "ok: 201"), ("initialize", "ok: scripted")]);
    let unknown: Fault = Fault::Answers(|_, _, message| {
        let answer = initialized(message, 99);
        is_initialize(message).then(|| response(200, &[JSON, CONNECTED], answer))
    });
    let noted = "note: scripted speaks protocol version 99";
    told_of(unknown, &[]).is_well(&[("initialize", noted)]);
}

#[test]
fn an_answer_to_initialize_that_is_compressed_too_long_or_of_no_type_is_told_as_that() {
    let compressed: Fault = Fault::Answers(|method, _, _| {
        let headers = [JSON, CONNECTED, ("content-encoding", "gzip")];
        (method == Method::POST).then(|| response(200, &headers, "\u{1f}\u{8}"))
    });
    told_of(compressed, &[]).fails_by("initialize", &["comes as gzip", "compression off"]);
    let long: Fault = Fault::Answers(|method, _, message| {
        let answer = initialized(message, 1) + &" ".repeat(4096);
        (method == Method::POST).then(|| response(200, &[JSON, CONNECTED], answer))
    });
    let told = told_of(long, &["--max-message-bytes", "1KiB"]);
    told.fails_by("initialize", &["longer than --max-message-bytes"]);
    let bare: Fault = Fault::Answers(|method, _, message| {
        (method == Method::POST).then(|| response(200, &[CONNECTED], initialized(message, 1)))
    });
    told_of(bare, &[]).fails_by("initialize", &["without a Content-Type", "drop"]);
}

#[test]
fn a_stream_that_says_how_long_it_is_and_flows_is_well() {
    told_of(Fault::Measured, &[]).is_well(&[("buffering", "ok: an answer came")]);
    const WHOLE: &[(&str, &str)] =
        &[("content-type", "text/event-stream"), ("content-encoding", "Identity")];
    told_of(Fault::Get(200, WHOLE, ""), &[])
        .fails_by("buffering", &["says how long it is", "proxy_buffering off"]);
}

#[test]
fn a_stream_that_is_slow_to_open_is_not_taken_for_one_that_is_held_back() {
    let told = told_of(Fault::SlowHead(Duration::from_millis(2900)), &[]);
    told.is_well(&[("stream", "note: open after 2.9"), ("buffering", "ok: ")]);
}

#[test]
fn a_page_that_speaks_of_tls_is_told_by_its_title() {
    const PAGE: &str = "<html><head><title>The plain HTTP request was sent to HTTPS port</title>";
    let told = told_of(Fault::Post(400, &[("content-type", "text/html")], PAGE), &[]);
    told.fails_by("status", &["400: The plain HTTP request", "begin with https:"]);
}

#[test]
fn an_answer_to_initialize_that_is_empty_is_told_as_that() {
    let told = told_of(Fault::Post(200, &[JSON], ""), &[]);
    told.fails_by("initialize", &["the answer is empty"]);
}

#[test]
fn an_answer_to_initialize_that_never_ends_leaves_no_connection() {
    let dribbles: Fault = Fault::Answers(|_, _, message| {
        let begin = stream::iter([Ok::<_, Infallible>("{")]);
        let body = Body::from_stream(begin.chain(stream::pending()));
        is_initialize(message).then(|| response(200, &[JSON, CONNECTED], body))
    });
    let told = told_of(dribbles, &["--connect-timeout", "1s"]);
    told.fails_by("status", &["begins, and does not end in 1.0 s", "buffering"]);
    assert_eq!(told.found("closing"), "ok: the connection is closed");
}

#[cfg(target_os = "linux")]
#[test]
fn where_nobody_can_read_it_the_exit_code_tells() {
    let agent = Agent::with(Fault::None);
    for flags in [&["--wait", "100ms"][..], &["--json", "--wait", "100ms"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_acp-tether"));
        let output = command.arg("doctor").args(flags).arg(&agent.url).stdout(full).output();
        let output = output.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!((agent.opened(), agent.left_open()), (2, 0));
}
