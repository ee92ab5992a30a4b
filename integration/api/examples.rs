//! Runs every example of docs/API.md.

use super::Tether;
use crate::peers::conversation::{new_session, said, say};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;

/// The `http` blocks of the page, a request and its answer each.
fn examples() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/API.md");
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = page.split("```http\n").skip(1);
    let blocks: Vec<_> =
        blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect();
    let (pairs, rest) = blocks.as_chunks::<2>();
    assert!(rest.is_empty());
    pairs.iter().map(|[request, answer]| (request.clone(), answer.clone())).collect()
}

fn parts(message: &str) -> (Vec<&str>, &str) {
    let (head, body) = message.split_once("\n\n").unwrap_or((message, ""));
    (head.lines().collect(), body.trim_end())
}

/// Sends the request, and reads until what came holds all that `is_all` wants, or the end.
fn send(tether: &Tether, request: &str, is_all: impl Fn(&str) -> bool) -> String {
    let (head, body) = parts(request);
    let length = body.len();
    let head = head.join("\r\n");
    let mut stream = tether.api.connect();
    write!(stream, "{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .unwrap();
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        let length = if is_all(&text) { 0 } else { stream.read(&mut chunk).unwrap() };
        if length == 0 {
            return text;
        }
        all.extend_from_slice(&chunk[..length]);
    }
}

/// Asserts that both have the same fields and kinds of values.
#[track_caller]
fn alike(documented: &Value, real: &Value, request: &str) {
    match (documented, real) {
        (Value::Object(one), Value::Object(other)) => {
            let (mut fields, mut others): (Vec<_>, Vec<_>) =
                (one.keys().collect(), other.keys().collect());
            fields.sort();
            others.sort();
            assert_eq!(fields, others, "{request}: {real:#}");
            one.iter().for_each(|(name, value)| alike(value, &other[name], request));
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{request}: {real:#}");
            one.iter().zip(other).for_each(|(value, other)| alike(value, other, request));
        }
        (Value::Number(_), Value::Number(_)) => {}
        (one, other) if one.is_string() && other.is_string() => {
            // A sentence is told as it is.
            let is_sentence = one.as_str().unwrap().contains(' ');
            assert!(!is_sentence || one == other, "{request}: {one} and {other}");
        }
        (one, other) => assert_eq!(one, other, "{request}"),
    }
}

#[test]
fn each_example_of_the_page_happens_as_it_is_written() {
    let examples = examples();
    assert!(examples.len() >= 10, "{}", examples.len());
    for (request, documented) in examples {
        let mut tether = Tether::start();
        tether.goes_on();
        let running = new_session(&mut tether.editor);
        say(&mut tether.editor, &running, "hold");
        assert_eq!(said(&tether.editor.message(), &running), "holding");
        let request = request
            .replace("PORT", &tether.api.port.to_string())
            .replace("TOKEN", &tether.api.token)
            .replace("SESSION", &tether.session)
            .replace("RUNNING", &running);
        let (head, body) = parts(&documented);
        let is_stream = body.starts_with("data: ");
        let answer = send(&tether, &request, |text| {
            is_stream && text.contains("data: ") && text.ends_with("\n\n\r\n")
        });
        let (real_head, real_body) = answer.split_once("\r\n\r\n").unwrap();
        for line in head {
            let has = real_head.lines().any(|real| real == line);
            assert!(has, "{request}: {line}: {real_head}");
        }
        let real_body = match is_stream {
            true => real_body.lines().find(|line| line.starts_with("data: ")).unwrap(),
            false => real_body,
        };
        if body.is_empty() {
            assert!(real_body.is_empty(), "{request}: {real_body}");
            continue;
        }
        let json = |text: &str| -> Value {
            serde_json::from_str(text.strip_prefix("data: ").unwrap_or(text)).unwrap()
        };
        alike(&json(body), &json(real_body), &request);
    }
}
