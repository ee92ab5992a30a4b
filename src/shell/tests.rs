//! The shell around the real core, against a small server on the loopback.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::http::tests::{Answer, Server, Speaks, answer, connections};
use super::stdio::Output;
use super::*;
use crate::cli::{Cli, Command};
use crate::core::methods::OWN_SESSIONS;
use crate::core::{Outcome, PostId, Response};
use bytes::Bytes;
use clap::Parser;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Messages of the flood, and the bytes of each: more than all buffers on the way hold.
const FLOOD: usize = 12_000;
const PADDING: usize = 2_000;
const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;

fn config(url: &str, http: &str) -> Config {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = ["acp-tether", "connect", url, "--http", http];
    match Cli::try_parse_from(arguments).unwrap().command {
        Command::Connect(flags) => Config::new(&flags, &|name| std::env::var(name)),
        other => panic!("{other:?}"),
    }
}

/// An editor that reads only while its gate is open, and keeps what it read.
#[derive(Clone, Default)]
struct Editor(Arc<(Mutex<Reading>, Condvar)>);

#[derive(Default)]
struct Reading {
    is_open: bool,
    text: Vec<u8>,
}

impl Editor {
    fn open(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    fn received(&self) -> usize {
        self.0.0.lock().unwrap().text.len()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().unwrap().text.clone()).unwrap()
    }
}

impl Write for Editor {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let (reading, opened) = &*self.0;
        let mut reading = opened.wait_while(reading.lock().unwrap(), |it| !it.is_open).unwrap();
        reading.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream of numbered notifications, each made when there is room for it.
fn flood(made: Arc<AtomicUsize>) -> Answer {
    let events = stream::unfold(0, move |number| {
        let made = Arc::clone(&made);
        async move {
            if number == FLOOD {
                return std::future::pending().await;
            }
            made.store(number + 1, Ordering::Relaxed);
            let padding = "x".repeat(PADDING);
            let event = format!(
                "data: {{\"jsonrpc\":\"2.0\",\"method\":\"_n\",\"params\":[{number},\"{padding}\"]}}\n\n"
            );
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(event))), number + 1))
        }
    });
    let answer = hyper::Response::builder().header("content-type", "text/event-stream");
    answer.body(BodyExt::boxed(StreamBody::new(events))).unwrap()
}

/// Returns when `value` has stopped growing.
async fn settled(value: impl Fn() -> usize) -> usize {
    loop {
        let before = value();
        tokio::time::sleep(Duration::from_millis(200)).await;
        if value() == before && before > 0 {
            return before;
        }
    }
}

#[tokio::test]
async fn p6_an_editor_that_does_not_read_stops_the_remote_and_loses_nothing() {
    for http in ["1.1", "2"] {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let server = Server::start(Speaks::Both, move |seen| {
            if seen.request.starts_with("GET") {
                return flood(Arc::clone(&count));
            }
            let headers = [("content-type", "application/json"), ("acp-connection-id", "c")];
            answer(200, &headers, r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#)
        })
        .await;
        let editor = Editor::default();
        let output = Output::new(editor.clone());
        let mut shell = Shell::new(config(&server.url("/acp"), http), output);
        let (lines, input) = mpsc::channel(1);
        let (_signals, mut signals) = mpsc::channel(1);
        lines.send(vec![Line::Whole(INITIALIZE.into())]).await.unwrap();
        let reading = async {
            let held = settled(|| made.load(Ordering::Relaxed)).await;
            assert!(held < FLOOD, "HTTP/{http}: the remote never had to wait");
            // What waits: the bound, and what the batches and the sockets on the way hold.
            println!("HTTP/{http}: {} KiB under way", held * PADDING / 1024);
            editor.open();
            settled(|| editor.received()).await;
        };
        tokio::select! {
            () = shell.carry(input, &mut signals) => panic!("ended"),
            () = reading => {}
        }
        let text = editor.text();
        let notifications = text.lines().filter(|line| line.contains("\"_n\""));
        let mut count = 0;
        for (number, line) in notifications.enumerate() {
            assert!(line.contains(&format!("[{number},")), "HTTP/{http}: {number}: {line}");
            count += 1;
        }
        assert_eq!(count, FLOOD, "HTTP/{http}");
    }
}

#[tokio::test]
async fn l11_e1_after_a_sleep_and_where_a_person_asks_nothing_goes_over_an_old_connection() {
    for event in [Event::Woke, Event::Inquiry(Ticket(1), Inquiry::Reconnect)] {
        let server = Server::start(Speaks::Both, |seen| {
            if seen.request.starts_with("GET") {
                return answer(204, &[], "");
            }
            let headers = [("content-type", "application/json"), ("acp-connection-id", "c")];
            answer(200, &headers, r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#)
        })
        .await;
        let mut shell = Shell::new(config(&server.url("/acp"), "2"), Output::new(io::sink()));
        let posts = || {
            let seen = server.seen().into_iter();
            seen.filter(|seen| seen.request.starts_with("POST")).collect::<Vec<_>>()
        };
        let first = r#"{"jsonrpc":"2.0","id":2,"method":"_first"}"#;
        let second = r#"{"jsonrpc":"2.0","id":3,"method":"_second"}"#;
        for (number, line) in [INITIALIZE, first, second].into_iter().enumerate() {
            if number == 2 {
                shell.step(event.clone());
            }
            shell.step(Event::Line(line.into()));
            while posts().len() <= number {
                tokio::select! {
                    Some(event) = shell.ends.recv() => shell.ended(event),
                    Some(batch) = shell.batches.recv() => shell.take(batch),
                    () = due(shell.start, shell.core.deadline()) => shell.step(Event::Timer),
                }
            }
            assert_eq!(connections(posts().iter()), 1 + number / 2, "{event:?}");
        }
    }
}

/// The process was stopped as the answer to `initialize` came, until after its time.
#[tokio::test]
async fn l11_what_had_come_counts_before_a_time_that_has_come() {
    let editor = Editor::default();
    editor.open();
    let mut shell =
        Shell::new(config("http://127.0.0.1:1/acp", "1.1"), Output::new(editor.clone()));
    shell.step(Event::Line(INITIALIZE.into()));
    shell.start = shell.start.checked_sub(Duration::from_secs(20)).unwrap();
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#;
    let response = Response {
        status: 200,
        content_type: "application/json".into(),
        connection_id: Some("c".into()),
        body: body.into(),
        ..Response::default()
    };
    shell.ends_sender.send(Event::Posted(PostId(1), Outcome::Response(response))).unwrap();
    shell.time_has_come().await;
    shell.output.send();
    while editor.received() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(editor.text(), format!("{body}\n"));
}

#[test]
fn p6_streams_are_taken_again_when_half_of_the_bound_is_written() {
    let bound = limits::EDITOR_QUEUE_BYTES;
    for (takes_them, waiting, expected) in [
        (true, bound - 1, true),
        (true, bound, false),
        (false, bound - 1, false),
        (false, bound / 2, false),
        (false, bound / 2 - 1, true),
    ] {
        assert_eq!(takes_streams(takes_them, waiting), expected, "{takes_them} {waiting}");
    }
}

#[tokio::test]
async fn p6_of_the_calls_in_one_batch_no_more_are_taken_than_may_be_under_way() {
    let editor = Editor::default();
    editor.open();
    let output = Output::new(editor.clone());
    let mut shell = Shell::new(config("http://127.0.0.1:1/acp", "1.1"), output);
    let all = 10 * CALLS;
    let call = |id| {
        Line::Whole(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{OWN_SESSIONS}"}}"#).into())
    };
    shell.unread = (0..all).map(call).collect();
    shell.read_on();
    assert_eq!((shell.calls, shell.unread.len()), (CALLS, all - CALLS));
    let (_lines, input) = mpsc::channel(1);
    let (_signals, mut signals) = mpsc::channel(1);
    let answered = async {
        while editor.text().lines().count() < all {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = shell.carry(input, &mut signals) => panic!("ended"),
        () = answered => {}
    }
}
