//! Who may call (A5).

use super::{Answer, Tether};

/// Asserts a refusal, and that it is `first`, where one came before.
#[track_caller]
fn refused(answer: Answer, status: u16, first: &mut Option<Answer>, what: &str) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    assert!(answer.head.contains("cache-control: no-store"), "{what}: {answer:?}");
    assert!(answer.head.contains("connection: close"), "it keeps a place: {what}: {answer:?}");
    assert!(!answer.head.contains("access-control"), "{what}: {answer:?}");
    let answer = Answer { head: undated(&answer.head), ..answer };
    assert_eq!(first.get_or_insert_with(|| answer.clone()), &answer, "{what}");
}

fn undated(head: &str) -> String {
    head.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n")
}

/// K133.
#[test]
fn a5_a_foreign_host_or_any_origin_is_refused_also_with_the_token() {
    let mut tether = Tether::start();
    let (port, token) = (tether.api.port, tether.api.token.clone());
    let ours = format!("Host: 127.0.0.1:{port}\r\n");
    let other = port ^ 1;
    let wrong = [
        format!("Host: 127.0.0.1.example:{port}\r\n"),
        format!("Host: localhost:{other}\r\n"),
        format!("Host: evil.example:{port}\r\n"),
        format!("Host: 127.0.0.1:{port}.example\r\n"),
        format!("Host: anna@127.0.0.1:{port}\r\n"),
        format!("Host: 127.0.0.2:{port}\r\n"),
        "Host: 127.0.0.1\r\n".to_owned(),
        "Host:\r\n".to_owned(),
        String::new(),
        format!("{ours}Host: evil.example\r\n"),
        format!("{ours}Origin: http://127.0.0.1:{port}\r\n"),
        format!("{ours}Origin: https://evil.example\r\n"),
        format!("{ours}Origin: null\r\n"),
        format!("{ours}Origin:\r\n"),
    ];
    let mut first = None;
    for path in ["/status", "/healthz", "/rpc", "/no-such-path"] {
        for wrong in &wrong {
            for headers in [wrong, &format!("{wrong}Authorization: Bearer {token}\r\n")] {
                let answer = tether.api.send(&format!("GET {path}"), headers);
                refused(answer, 403, &mut first, headers);
            }
        }
        let line = format!("GET http://evil.example{path}");
        refused(tether.api.send(&line, &tether.api.headers()), 403, &mut first, &line);
    }
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"] {
        let headers = format!("Host: {host}:{port}\r\nAuthorization: bearer {token}\r\n");
        assert_eq!(tether.api.send("GET /status", &headers).status, 200, "{host}");
    }
    tether.goes_on();
}

/// K135, K145.
#[test]
fn a5_only_the_whole_token_opens_anything_but_the_health() {
    let mut tether = Tether::start();
    let (port, token) = (tether.api.port, tether.api.token.clone());
    let host = format!("Host: localhost:{port}\r\n");
    let wrong = [
        String::new(),
        "Authorization:\r\n".to_owned(),
        "Authorization: Bearer\r\n".to_owned(),
        "Authorization: Bearer \r\n".to_owned(),
        "Authorization: Bearer 0\r\n".to_owned(),
        format!("Authorization: {token}\r\n"),
        format!("Authorization: Basic {token}\r\n"),
        format!("Authorization: Bearer {}\r\n", &token[..20]),
        format!("Authorization: Bearer {}\r\n", &token[..63]),
        format!("Authorization: Bearer {token}0\r\n"),
        format!("Authorization: Bearer {}\r\n", "0".repeat(64)),
        format!("Authorization: Bearer \u{e9}{token}\r\n"),
        format!("Authorization: Bearer {token}\r\nAuthorization: Bearer 0\r\n"),
        format!("Cookie: token={token}\r\n"),
    ];
    let mut first = None;
    let query = format!("/status?token={token}&access_token={token}");
    for path in ["/status", "/events", "/rpc", "/sessions/a/close", "/no-such-path", &query, "/"] {
        for wrong in &wrong {
            let answer = tether.api.send(&format!("GET {path}"), &format!("{host}{wrong}"));
            refused(answer, 401, &mut first, &format!("{path}: {wrong}"));
        }
    }
    let health = tether.api.send("GET /healthz", &host);
    assert_eq!(health.status, 200);
    assert_eq!(health.json(), serde_json::json!({"id": tether.record["id"]}));
    tether.goes_on();
}

#[test]
fn a5_other_methods_are_refused_with_those_that_are_allowed() {
    let mut tether = Tether::start();
    let paths = [
        ("/healthz", "get,head"),
        ("/status", "get,head"),
        ("/events", "get,head"),
        ("/sessions/a/close", "post"),
        ("/rpc", "post"),
    ];
    for (path, allowed) in paths {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"] {
            if allowed.split(',').any(|one| one.eq_ignore_ascii_case(method)) {
                continue;
            }
            let answer = tether.api.send(&format!("{method} {path}"), &tether.api.headers());
            assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
            assert!(answer.head.contains(&format!("allow: {allowed}")), "{path}: {answer:?}");
            assert!(!answer.head.contains("access-control"), "{path}: {answer:?}");
            assert_eq!(answer.json()["error"], "method_not_allowed");
        }
    }
    tether.goes_on();
}

/// K137.
#[test]
fn a4_an_id_is_one_segment_that_is_decoded_once() {
    let mut tether = Tether::start();
    let odd = [
        "",
        "..",
        "..%2f",
        "mine%2F..%2Fother",
        "%2e%2e",
        "a%2Fb%3Fc%23d%25%C3%A9",
        "%252e",
        "%ff",
        "%00",
        "%",
        "\u{e9}",
        "a+b",
    ];
    for id in odd {
        let answer = tether.api.post(&format!("/sessions/{id}/close"), "");
        assert_eq!((answer.status, &answer.json()["error"]), (404, &"unknown_session".into()));
    }
    for path in ["/sessions/close", "/sessions/a/b/close", "/sessions/a/close/"] {
        let answer = tether.api.post(path, "");
        assert_eq!((answer.status, &answer.json()["error"]), (404, &"not_found".into()), "{path}");
    }
    tether.goes_on();
}

#[test]
fn a5_a_body_over_64_kib_is_refused_however_its_length_is_told() {
    let mut tether = Tether::start();
    let body = |length: usize| "[]".to_owned() + &" ".repeat(length - 2);
    for path in ["/rpc", "/sessions/a/close"] {
        assert_ne!(tether.api.post(path, &body(64 * 1024)).status, 413, "{path}");
        let over = tether.api.post(path, &body(64 * 1024 + 1));
        assert_eq!((over.status, &over.json()["error"]), (413, &"too_large".into()), "{path}");
        let mut chunked = format!(
            "POST {path} HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            tether.api.headers()
        );
        for _ in 0..9 {
            chunked.push_str(&format!("2000\r\n{}\r\n", " ".repeat(0x2000)));
        }
        chunked.push_str("0\r\n\r\n");
        assert_eq!(tether.api.raw(chunked.as_bytes()).status, 413, "{path}");
    }
    let headers = format!("{}Content-Length: 99999999999\r\n", tether.api.headers());
    assert_eq!(tether.api.send("POST /rpc", &headers).status, 413);
    tether.goes_on();
}
