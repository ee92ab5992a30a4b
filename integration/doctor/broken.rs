//! The cause of each broken set-up is told, with what to do, and nothing stays open.

use super::agent::{Agent, Fault};
use super::{Told, doctor, doctor_in};
use crate::network::authority::{Authority, Validity};
use crate::network::relay::{Kind, Relay};
use crate::peers::agent::Served;
use crate::peers::editor::PATIENCE;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const HTML: &[(&str, &str)] = &[("content-type", "text/html; charset=utf-8")];
const STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream")];
const CONNECTED: &[(&str, &str)] =
    &[("content-type", "application/json"), ("acp-connection-id", "c9")];

/// What is told of an agent with one fault, which is left without a connection.
pub fn told_of(fault: Fault, flags: &[&str]) -> Told {
    let agent = Agent::with(fault);
    let told = doctor(&agent.url, flags);
    assert_eq!(agent.left_open(), 0, "a connection stays: {:#}", told.report);
    told
}

#[test]
fn a_name_that_nobody_knows() {
    let told = doctor("http://nohost.invalid", &[]);
    told.fails_by("name", &["nohost.invalid has no address", "VPN", "--proxy"]);
}

#[test]
fn a_port_where_nothing_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    doctor(&url, &[]).fails_by("tcp", &["nothing listens at 127.0.0.1:", "Is the agent running"]);
}

#[test]
fn a_black_hole_takes_no_longer_than_a_person_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let begun = Instant::now();
    doctor(&url, &[]).fails_by("status", &["no answer in 9.0 s", "--connect-timeout"]);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_certificate_that_cannot_be_believed() {
    let authority = Authority::new();
    let known = ["--ca-file", authority.file.as_str()];
    let cases: [(_, _, &[&str], &[&str]); 3] = [
        (
            "localhost",
            Validity::Now,
            &[],
            &["authority that this machine does not know", "--ca-file"],
        ),
        ("other.example", Validity::Now, &known, &["for another host", "other.example"]),
        ("localhost", Validity::Past, &known, &["expired on Tue, 01 Jan 2002", "clock"]),
    ];
    let served = Served::start();
    for (name, validity, flags, texts) in cases {
        let issued = authority.issue(name, validity);
        let config = Arc::new(Authority::server(&issued, &["h2", "http/1.1"], None));
        let relay = Relay::start(Kind::Tls(config), &served.url);
        let url = format!("https://localhost:{}", relay.address.port());
        doctor(&url, flags).fails_by("tls", texts);
    }
}

#[test]
fn a_server_that_takes_none_of_our_versions_of_http() {
    let authority = Authority::new();
    let (served, issued) = (Served::start(), authority.issue("localhost", Validity::Now));
    let config = Arc::new(Authority::server(&issued, &["other"], None));
    let relay = Relay::start(Kind::Tls(config), &served.url);
    let url = format!("https://localhost:{}", relay.address.port());
    let told = doctor(&url, &["--ca-file", &authority.file]);
    told.fails_by("tls", &["NoApplicationProtocol", "ALPN", "--http 1.1"]);
}

#[test]
fn a_server_that_wants_a_certificate_of_ours() {
    let authority = Authority::new();
    let (served, issued) = (Served::start(), authority.issue("localhost", Validity::Now));
    let config = Arc::new(Authority::server(&issued, &["http/1.1"], Some(&authority)));
    let relay = Relay::start(Kind::Tls(config), &served.url);
    let url = format!("https://localhost:{}", relay.address.port());
    doctor(&url, &["--ca-file", &authority.file]).fails_by("tls", &["--client-cert"]);
}

#[test]
fn http_where_tls_is_spoken_and_https_where_it_is_not() {
    let authority = Authority::new();
    let (served, issued) = (Served::start(), authority.issue("localhost", Validity::Now));
    let config = Arc::new(Authority::server(&issued, &[], None));
    let relay = Relay::start(Kind::Tls(config), &served.url);
    let url = format!("http://localhost:{}", relay.address.port());
    for http in ["auto", "2"] {
        let told = doctor(&url, &["--http", http]);
        told.fails_by("tls", &["speaks TLS", "Let the URL begin with https: (for a socket wss:)"]);
    }
    let socket = url.replace("http:", "ws:");
    for told in [doctor(&url, &["--http", "1.1"]), doctor(&socket, &[])] {
        told.fails_by("status", &["no answer", "begin with https: (for a socket wss:)"]);
    }
    let url = served.url.replace("http:", "https:");
    let told = doctor(&url, &["--ca-file", &authority.file]);
    told.fails_by("tls", &["does not speak TLS", "begin with http:"]);
}

#[test]
fn x1_a_proxy_that_is_not_there_wants_a_credential_or_refuses() {
    const URL: &str = "https://agent.test/acp";
    let served = Served::start();
    let told = doctor(URL, &["--proxy", "http://anna:s3cret@127.0.0.1:9"]);
    told.fails_by("tcp", &["127.0.0.1:9 (the proxy)", "--proxy off"]);
    assert!(!told.text.contains("s3cret"), "{}", told.text);
    let wants = Relay::start(Kind::Forward(Some("Basic eDp5".to_owned())), &served.url);
    let named = format!("http://anna:s3cret@{}", wants.address);
    let told = doctor(URL, &["--proxy", &named]);
    told.fails_by("proxy", &["wants a user name and a password", "NAME:${PASSWORD}@"]);
    assert!(!told.text.contains("s3cret"), "{}", told.text);
    let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let refuses = Relay::start(Kind::Answering(answer), &served.url);
    let told = doctor(URL, &["--proxy", &format!("http://{}", refuses.address)]);
    told.fails_by("proxy", &["lets nothing through", "agent.test:443"]);
}

#[test]
fn a_proxy_that_opens_no_tunnel_is_told_by_what_it_answers() {
    let cases: [(_, &[&str]); 8] = [
        (
            "HTTP/1.1 511 Network Authentication Required\r\n\r\n",
            &["answers 511", "wants a person to sign in", "a browser"],
        ),
        (
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            &["lets nothing through to agent.test:443: 403", "Ask who runs the proxy"],
        ),
        (
            "HTTP/1.1 503 Unavailable\r\n\r\n",
            &["does not reach agent.test:443: 503", "Is the agent running"],
        ),
        (
            "HTTP/1.1 405 Method Not Allowed\r\n\r\n",
            &["answers 405", "is no proxy", "are address and port right?"],
        ),
        ("HTTP/1.1 302 Found\r\n\r\n<html>", &["answers 302", "is no proxy", "--proxy off"]),
        ("SSH-2.0-OpenSSH_9.7\r\n", &["does not speak HTTP", "socks5h://"]),
        ("", &["closes where it is asked for a tunnel", "begin with https://"]),
        (
            "HTTP/1.1 200 Connection established\r\n\r\n",
            &["cut before TLS is agreed on", "Ask who runs the proxy", "speaks no TLS"],
        ),
    ];
    for (answer, texts) in cases {
        let proxy = Relay::start(Kind::Answering(answer), "127.0.0.1:9");
        let named = format!("http://${{NAME}}:${{PASSWORD}}@{}", proxy.address);
        let secret = [("NAME", "anna"), ("PASSWORD", "s3cret")];
        let told = doctor_in(&secret, "https://agent.test/acp", &["--proxy", &named]);
        told.fails_by("proxy", texts);
        assert!(!told.text.contains("s3cret"), "{}", told.text);
        let asked = proxy.noted();
        let is_ours = |head: &String| head.contains("Basic YW5uYTpzM2NyZXQ=");
        assert!(asked.iter().all(is_ours), "the proxy may tell others apart: {asked:?}");
    }
}

#[test]
fn a_proxy_whose_certificate_cannot_be_believed_or_that_answers_in_the_agent_s_place() {
    let authority = Authority::new();
    let issued = authority.issue("localhost", Validity::Now);
    let config = Arc::new(Authority::server(&issued, &[], None));
    let proxy = Relay::start(Kind::Tls(config), "127.0.0.1:9");
    let named = format!("https://localhost:{}", proxy.address.port());
    let told = doctor("https://agent.test/acp", &["--proxy", &named]);
    told.fails_by("proxy", &["cannot be reached: its certificate is signed by", "--ca-file"]);
    let refuses = Relay::start(Kind::Answering("HTTP/1.1 403 -\r\n\r\n"), "127.0.0.1:9");
    let told = doctor("http://agent.test", &["--proxy", &format!("http://{}", refuses.address)]);
    told.fails_by("status", &["403", "It may also be the proxy http://127.0.0.1:"]);
}

#[test]
fn a_server_without_http_2_that_is_spoken_to_in_it() {
    let old = Relay::start(Kind::Answering("HTTP/1.1 400 Bad Request\r\n\r\n"), "127.0.0.1:9");
    let told = doctor(&format!("http://{}", old.address), &["--http", "2"]);
    told.fails_by("status", &["does not speak HTTP/2", "Leave --http 2 out"]);
}

#[test]
fn a_sign_in_that_waits_for_a_browser() {
    const LOGIN: &[(&str, &str)] = &[("location", "https://login.example.com/start?secret=s3cret")];
    let told = told_of(Fault::Post(302, LOGIN, ""), &[]);
    told.fails_by(
        "sign-in",
        &["302 to another origin, https://login.example.com/start", "--bearer-env"],
    );
    assert!(!told.text.contains("s3cret"), "{}", told.text);
    const HERE: &[(&str, &str)] = &[("location", "/oauth2/authorize")];
    told_of(Fault::Post(302, HERE, ""), &[]).fails_by("sign-in", &["/oauth2/authorize"]);
    let told = told_of(Fault::Post(200, HTML, "<html>Welcome</html>"), &[]);
    told.fails_by("sign-in", &["a page (text/html)", "--bearer-env"]);
}

#[test]
fn l8_a_redirect_to_another_origin() {
    const SECURE: &[(&str, &str)] = &[("location", "https://127.0.0.1:1/acp")];
    let told = told_of(Fault::Post(308, SECURE, ""), &[]);
    told.fails_by("redirect", &["308 to another origin", "configure https://127.0.0.1:1/acp"]);
    const CIRCLE: &[(&str, &str)] = &[("location", "/acp")];
    for status in [302, 307] {
        let told = told_of(Fault::Post(status, CIRCLE, ""), &[]);
        told.fails_by("redirect", &["in a circle, to http://127.0.0.1", "Ask who runs the agent"]);
        assert!(!told.text.contains("Configure http"), "{}", told.text);
    }
    let told = told_of(Fault::Get(302, CIRCLE, ""), &[]);
    told.fails_by("stream", &["302 in a circle, to http://127.0.0.1"]);
    let told = told_of(Fault::Post(307, &[], ""), &[]);
    told.fails_by("redirect", &["307 without saying where to", "Ask who runs the agent"]);
}

#[test]
fn a_path_where_nothing_is() {
    let told = told_of(Fault::Post(404, HTML, "<h1>Not found</h1>"), &[]);
    told.fails_by("path", &["404 for /acp", "whole URL"]);
}

#[test]
fn x1_a_credential_that_is_missing_or_refused() {
    let told = told_of(Fault::Wants("Bearer right"), &[]);
    told.fails_by("status", &["401", "no credential is sent", "--bearer-env"]);
    let agent = Agent::with(Fault::Wants("Bearer right"));
    let secret = [("TOKEN", "s3cret")];
    let told = doctor_in(&secret, &agent.url, &["--bearer-env", "TOKEN"]);
    told.fails_by("status", &["(--bearer-env)", "has it expired?"]);
    assert!(!told.text.contains("s3cret"), "{}", told.text);
    let told = doctor_in(&secret, &agent.url, &["--header", "Authorization: Basic ${TOKEN}"]);
    told.fails_by("status", &["(--header authorization)"]);
    assert!(!told.text.contains("s3cret"), "{}", told.text);
    doctor_in(&[("TOKEN", "right")], &agent.url, &["--bearer-env", "TOKEN"]).is_well(&[]);
    assert_eq!((agent.opened(), agent.left_open()), (1, 0));
}

#[test]
fn a_command_that_gives_no_token() {
    let told = told_of(Fault::None, &["--bearer-command", "exit 3"]);
    told.fails_by("credential", &["--bearer-command gave no token", "exit status: 3"]);
}

#[test]
fn an_endpoint_that_is_none_of_acp() {
    let cases: [(u16, &str, &[&str]); 10] = [
        (426, "status", &["426: no", "--transport ws"]),
        (511, "sign-in", &["511: no", "browser"]),
        (405, "status", &["405", "takes no POST"]),
        (406, "status", &["406", "Accept"]),
        (415, "status", &["415", "Content-Type"]),
        (429, "status", &["429: no", "too often"]),
        (400, "status", &["400: no", "speaks ACP"]),
        (500, "status", &["500: no", "log"]),
        (502, "status", &["502: no", "does not reach it"]),
        (202, "status", &["202", "answers 200"]),
    ];
    for (status, cause, texts) in cases {
        told_of(Fault::Post(status, &[], "no"), &[]).fails_by(cause, texts);
    }
}

#[test]
fn an_answer_to_initialize_that_is_none() {
    let error = r#"{"jsonrpc":"2.0","id":"acp-tether-doctor-1","error":{"code":-32602,"message":"no such version"}}"#;
    let answer = r#"{"jsonrpc":"2.0","id":"acp-tether-doctor-1","result":{"protocolVersion":1}}"#;
    let cases: [(_, _, &[&str]); 5] = [
        (JSON, r#"{"status":"up"}"#, &["something else than JSON-RPC", "path"]),
        (CONNECTED, error, &["the agent refuses: no such version (-32602)", "log"]),
        (JSON, answer, &["without Acp-Connection-Id", "drops it"]),
        (STREAM, "data: {}\n\n", &["an event stream", "MCP"]),
        (&[("content-type", "text/plain")], "hello", &["text/plain", "path"]),
    ];
    for (headers, body, texts) in cases {
        told_of(Fault::Post(200, headers, body), &[]).fails_by("initialize", texts);
    }
}

#[test]
fn a_hop_that_compresses_the_stream() {
    const GZIP: &[(&str, &str)] =
        &[("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    let told = told_of(Fault::Get(200, GZIP, ""), &[]);
    told.fails_by("compression", &["comes as gzip", "compression off"]);
}

#[test]
fn a_hop_that_buffers_the_stream() {
    let told = told_of(Fault::HoldsHead, &[]);
    told.fails_by("buffering", &["only with the first message", "proxy_buffering off"]);
    let told = told_of(Fault::HoldsBody, &[]);
    told.fails_by("buffering", &["held back", "until the stream ended", "proxy_buffering off"]);
    let told = told_of(Fault::Mute, &[]);
    told.fails_by("buffering", &["no answer came on the stream in 4.0 s"]);
}

#[test]
fn a_stream_that_is_refused_is_another_thing_or_is_cut() {
    let told = told_of(Fault::Get(405, &[], ""), &[]);
    told.fails_by("stream", &["GET is answered with 405", "Acp-Connection-Id"]);
    let told = told_of(Fault::Get(200, HTML, "<html>"), &[]);
    told.fails_by("stream", &["text/html", "Something on the way answers"]);
    told_of(Fault::Cuts, &[]).fails_by("stream", &["it ended after", "as soon as it is there"]);
    told_of(Fault::Ends(3), &[]).fails_by("stream", &["it ended after", "as soon as it is there"]);
}

#[test]
fn s9_a_configuration_that_cannot_be_used() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("config.toml");
    std::fs::write(&path, "[remotes.work]\nurl = \"http://127.0.0.1:9\"\nhodl = \"1m\"\n").unwrap();
    let told = doctor("work", &["--config", path.to_str().unwrap()]);
    told.fails_by("configuration", &["config.toml:3", "hold", "config show"]);
    let told = doctor("ftp://agents.example.com", &[]);
    told.fails_by("configuration", &["ftp:"]);
}

#[test]
fn w1_a_socket_that_is_wanted_and_not_offered() {
    let told = told_of(Fault::None, &["--transport", "ws"]);
    told.fails_by("websocket", &["not offered: 404", "upgrade"]);
    let told = told_of(Fault::Get(401, &[], ""), &["--transport", "ws"]);
    told.fails_by("status", &["401", "no credential is sent"]);
}

#[test]
fn wrong_usage_exits_with_2() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_acp-tether"));
    let output = command.args(["doctor", "--wait", "soon", "http://127.0.0.1:9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_its_connection() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        ended_by(signal);
    }
}

#[cfg(unix)]
fn ended_by(signal: &str) {
    let agent = Agent::with(Fault::None);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_acp-tether"));
    command.args(["doctor", "--json", "--wait", "10m", &agent.url]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while agent.opened() == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is opened");
        std::thread::yield_now();
    }
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill").args([signal, &id]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "acp-tether: interrupted\n");
    assert_eq!(agent.left_open(), 0);
}

#[test]
fn a_person_reads_a_line_for_each_step_and_at_the_end_what_to_do() {
    let agent = Agent::with(Fault::Post(400, &[], "\u{1b}[2Jno such thing"));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_acp-tether"));
    let output = command.args(["doctor", &agent.url]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let lines: Vec<&str> = text.lines().collect();
    let starts = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!((starts("ok "), starts("FAIL "), starts("skipped ")), (9, 1, 1), "{text}");
    let failed = lines.iter().find(|line| line.starts_with("FAIL ")).unwrap();
    assert!(
        failed.starts_with("FAIL     status         400: \u{fffd}[2Jno such thing"),
        "{failed}"
    );
    assert!(lines.last().unwrap().starts_with("What to do: "), "{text}");
}
