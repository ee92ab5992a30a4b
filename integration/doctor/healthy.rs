//! What is found where all is well.

use super::agent::{Agent, Fault};
use super::doctor;
use crate::network::authority::{Authority, Validity};
use crate::network::relay::{Kind, Relay};
use crate::peers::agent::Served;
use crate::peers::typescript;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The agent of `demo`, which numbers its events and replays them.
struct Demo {
    process: Child,
    url: String,
}

impl Demo {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_acp-tether"))
            .args(["demo", "--serve", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains("http://"));
        let url = line.unwrap().split_whitespace().last().unwrap().to_owned();
        Self { process, url }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_official_rust_server_is_found_well() {
    let served = Served::start();
    let told = doctor(&served.url, &[]);
    told.is_well(&[
        ("tcp", "ok: 127.0.0.1:"),
        ("tls", "ok: none"),
        ("http", "ok: HTTP/2"),
        ("initialize", "ok: scripted"),
        ("capabilities", "ok: offered: load"),
        ("stream", "ok: open after"),
        ("buffering", "ok: an answer came"),
        ("numbering", "note: events have no ids"),
        ("replay", "skipped: "),
        ("websocket", "ok: offered"),
        ("closing", "ok: "),
    ]);
    let count = |name| served.http_methods().iter().filter(|method| *method == name).count();
    assert_eq!(count("DELETE"), 1);
    doctor(&served.url, &["--http", "1.1"]).is_well(&[("http", "ok: HTTP/1.1")]);
}

#[test]
fn the_official_typescript_server_is_found_well() {
    let Some(served) = typescript::Served::start() else { return };
    let expected = [
        ("http", "ok: HTTP/1.1"),
        ("capabilities", "ok: offered: load, resume, list, close"),
        ("buffering", "ok: an answer came"),
        ("numbering", "note: events have no ids"),
        ("websocket", "ok: offered"),
        ("closing", "ok: "),
    ];
    doctor(&served.url, &[]).is_well(&expected);
}

#[test]
fn events_that_are_numbered_and_replayed_are_told() {
    let demo = Demo::start();
    let told = doctor(&demo.url, &[]);
    told.is_well(&[("numbering", "ok: "), ("replay", "ok: Last-Event-ID brings")]);
    told.is_well(&[("websocket", "note: not offered: 404")]);
}

#[test]
fn w1_a_socket_is_looked_at_in_place_of_the_streams_where_that_is_wanted() {
    let served = Served::start();
    let told = doctor(&served.url, &["--transport", "ws"]);
    told.is_well(&[
        ("status", "ok: 101"),
        ("websocket", "ok: offered"),
        ("initialize", "ok: scripted"),
        ("stream", "skipped: "),
        ("closing", "ok: "),
    ]);
}

#[test]
fn the_certificate_and_the_proxy_on_the_way_are_told() {
    let (served, authority) = (Served::start(), Authority::new());
    let issued = authority.issue("agent.test", Validity::Now);
    let config = Arc::new(Authority::server(&issued, &["h2", "http/1.1"], None));
    let tls = Relay::start(Kind::Tls(config), &served.url);
    let proxy = Relay::start(Kind::Forward(None), &tls.address.to_string());
    let named = format!("http://{}", proxy.address);
    let flags = ["--ca-file", &authority.file, "--proxy", &named];
    let told = doctor("https://agent.test/acp", &flags);
    told.is_well(&[
        ("name", "ok: 127.0.0.1 is an address (the proxy)"),
        ("proxy", &format!("ok: {named} lets us through")),
        ("tls", "ok: certificate by Authority of a test, valid until "),
        ("http", "ok: HTTP/2"),
    ]);
    assert!(told.found("tls").ends_with("ALPN h2"), "{}", told.found("tls"));
}

#[test]
fn signs_of_life_are_counted_and_nothing_stays_open() {
    let agent = Agent::with(Fault::None);
    doctor(&agent.url, &[]).is_well(&[("heartbeats", "ok: 1 in"), ("stream", "ok: ")]);
    assert_eq!((agent.opened(), agent.left_open()), (1, 0));
}
