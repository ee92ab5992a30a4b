//! Callers that are slow, many, or speak something else (A5): the editor's session does not notice.

use super::{Tether, caller};
use crate::peers::editor::PATIENCE;
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// What a busy machine may add to the program's own limits, which are 5 and 10 seconds.
const SLACK: Duration = Duration::from_secs(15);

#[test]
fn a5_who_does_not_send_a_whole_request_is_cut() {
    let mut tether = Tether::start();
    let head = format!("POST /rpc HTTP/1.1\r\n{}", tether.api.headers());
    let cases = [
        ("nothing", String::new(), 0),
        ("half a head", head.clone(), 0),
        ("half a body", format!("{head}Content-Length: 10\r\n\r\n["), 408),
        ("half a chunk", format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\n["), 408),
    ];
    let start = Instant::now();
    let slow = cases.map(|(what, bytes, status)| {
        let mut stream = tether.api.connect();
        stream.write_all(bytes.as_bytes()).unwrap();
        (what, stream, status)
    });
    tether.goes_on();
    for (what, stream, status) in slow {
        let answer = caller::rest(stream);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(start.elapsed() < Duration::from_secs(10) + SLACK, "{what}: {:?}", start.elapsed());
    }
    tether.goes_on();
}

#[test]
fn a5_what_is_no_http_is_cut() {
    let mut tether = Tether::start();
    let others: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_acp-tether/status\"}\n\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /status HTTP/9.9\r\n\r\n",
        &[b'a'; 100_000],
    ];
    for bytes in others {
        let answer = tether.api.raw(bytes);
        let refused = [0, 400, 414, 431].contains(&answer.status);
        assert!(refused && answer.body.is_empty(), "{bytes:?}: {answer:?}");
    }
    tether.goes_on();
}

#[test]
fn a5_a_thousand_connections_at_once_leave_the_editor_its_session_and_the_api_its_service() {
    let mut tether = Tether::start();
    let half = format!("GET /status HTTP/1.1\r\n{}", tether.api.headers());
    let port = tether.api.port;
    let crowd = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (came, arrivals) = std::sync::mpsc::channel();
    let crowding = std::thread::spawn(move || {
        for _ in 0..1_000 {
            let (half, came) = (half.clone(), came.clone());
            crowd.spawn(async move {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                stream.write_all(half.as_bytes()).await.unwrap();
                came.send(()).unwrap();
                std::future::pending::<()>().await;
            });
        }
        drop(crowd.block_on(stopped));
    });
    // As many as are served at once; the others are at the door.
    for _ in 0..64 {
        arrivals.recv_timeout(PATIENCE).unwrap();
    }
    for _ in 0..20 {
        tether.goes_on();
    }
    drop(stop);
    crowding.join().unwrap();
    assert_eq!(tether.api.get("/status").status, 200);
}

/// That it is cut after ten seconds is shown in virtual time, where the connections are.
#[test]
fn a5_a_watcher_that_does_not_read_does_not_stop_those_who_do() {
    let mut tether = Tether::start();
    let mut idle = tether.api.connect();
    write!(idle, "GET /events HTTP/1.1\r\n{}\r\n", tether.api.headers()).unwrap();
    let mut watching = tether.api.watch();
    watching.next();
    for _ in 0..20 {
        tether.goes_on();
        watching.next();
    }
    assert_eq!(tether.api.get("/status").status, 200);
}

#[test]
fn a5_too_many_watchers_leave_room_for_everybody_else() {
    let mut tether = Tether::start();
    let mut watchers: Vec<_> = (0..32).map(|_| tether.api.watch()).collect();
    for watcher in &mut watchers {
        watcher.next();
    }
    assert_eq!(tether.api.head("/events").0, 503);
    assert_eq!(tether.api.get("/status").status, 200);
    tether.goes_on();
}
