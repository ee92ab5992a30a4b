//! A socket against a small server on the loopback.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::core::{Connection, End, Epoch};
use bytes::Bytes;
use clap::Parser;
use std::io::Write;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use tungstenite::Message;

const INITIALIZE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// A server that says these frames at once to an `initialize`. It returns with what it is closed with.
fn saying(frames: Vec<u8>) -> (String, JoinHandle<Option<u16>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/acp", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        assert_eq!(socket.read().unwrap().into_data(), INITIALIZE);
        socket.get_mut().write_all(&frames).unwrap();
        match socket.read() {
            Ok(Message::Close(close)) => close.map(|close| close.code.into()),
            other => panic!("{other:?}"),
        }
    });
    (url, served)
}

#[tokio::test]
async fn l2_w1_an_answer_to_initialize_counts_where_what_came_with_it_breaks_the_rules() {
    let answer = [&[0x81, u8::try_from(ANSWER.len()).unwrap()], ANSWER].concat();
    // The server must not mask.
    let wrong = vec![0x81, 0x80, 0, 0, 0, 0];
    for (frames, is_answered) in [([answer, wrong.clone()].concat(), true), (wrong, false)] {
        let (url, served) = saying(frames);
        let Command::Connect(flags) =
            Cli::try_parse_from(["acp-tether", "connect", &url]).unwrap().command
        else {
            panic!("not a connect")
        };
        let remote = Config::new(&flags, &|_| Ok(String::new())).remote.unwrap();
        let (ends_sender, mut ends) = mpsc::unbounded_channel();
        let (batches_sender, mut batches) = mpsc::channel(1);
        let mut socket = WebSocket::new(remote, ends_sender, batches_sender);
        socket.post(Post {
            id: PostId(1),
            connection: None,
            session: None,
            renew_credential: false,
            body: Bytes::from_static(INITIALIZE),
        });
        let Some(Event::Posted(_, outcome)) = ends.recv().await else { panic!("no end") };
        let broken = if is_answered {
            let Outcome::Response(response) = outcome else { panic!("{outcome:?}") };
            assert_eq!((response.status, response.body.as_ref()), (101, ANSWER));
            let stream = StreamId { session: None, epoch: Epoch(1), generation: Generation(1) };
            let connection = Connection { id: Bytes::new(), version: None };
            socket.open(Open { stream, connection, cursor: None, renew_credential: false });
            let events = batches.recv().await.unwrap().events;
            let [StreamEvent::Ended(End::Broken(reason))] = &events[..] else {
                panic!("{events:?}")
            };
            reason.clone()
        } else {
            let Outcome::Broken(reason) = outcome else { panic!("{outcome:?}") };
            reason
        };
        assert!(broken.contains("breaks the rules"), "{broken}");
        let closed = tokio::task::spawn_blocking(|| served.join().unwrap());
        assert_eq!(closed.await.unwrap(), Some(1002));
    }
}
