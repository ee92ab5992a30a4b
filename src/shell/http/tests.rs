//! The shell's HTTP against small servers on the loopback.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::addresses::Addresses;
use super::probe::{self, Greeted};
use super::tls::{self, Handshake};
use super::{BATCHES, Batch, Failure, Http};
use crate::cli::{Cli, Command};
use crate::config::Config;
use crate::core::{
    Connection, End, Epoch, Event, Generation, Millis, Open, Outcome, Post, PostId, Response,
    SessionId, StreamEvent, StreamId,
};
use bytes::Bytes;
use clap::Parser;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// How long something may take that takes no time.
const PATIENCE: Duration = Duration::from_secs(5);

pub(in crate::shell) type Body = BoxBody<Bytes, Infallible>;
pub(in crate::shell) type Answer = hyper::Response<Body>;

/// What a server saw of one request.
#[derive(Clone, Debug)]
pub(in crate::shell) struct Seen {
    peer: SocketAddr,
    version: Version,
    pub(in crate::shell) request: String,
    headers: hyper::HeaderMap,
    body: Bytes,
}

impl Seen {
    pub(in crate::shell) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()).unwrap())
    }
}

/// A server whose answers a function gives. Nagle's algorithm stays on.
pub(in crate::shell) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone, Copy)]
pub(in crate::shell) enum Speaks {
    Both,
    Http1,
}

impl Server {
    pub(in crate::shell) async fn start(
        speaks: Speaks,
        answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start_late(0, speaks, answer).await
    }

    /// The same behind a forwarded port: the first `closed` connections close without a word.
    async fn start_late(
        closed: usize,
        speaks: Speaks,
        answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            for _ in 0..closed {
                drop(listener.accept().await.unwrap());
            }
            loop {
                let (socket, peer) = listener.accept().await.unwrap();
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                    async move {
                        let (parts, body) = request.into_parts();
                        let seen = Seen {
                            peer,
                            version: parts.version,
                            request: format!(
                                "{} {}",
                                parts.method,
                                parts.uri.path_and_query().unwrap()
                            ),
                            headers: parts.headers,
                            body: body.collect().await.unwrap().to_bytes(),
                        };
                        let answer = answer(&seen);
                        all.lock().unwrap().push(seen);
                        Ok::<_, Infallible>(answer)
                    }
                });
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let socket = TokioIo::new(socket);
                    let _ = match speaks {
                        Speaks::Both => server.serve_connection(socket, service).await,
                        Speaks::Http1 => {
                            server.http1_only().serve_connection(socket, service).await
                        }
                    };
                });
            }
        });
        Self { address, seen }
    }

    pub(in crate::shell) fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.address)
    }

    pub(in crate::shell) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

pub(in crate::shell) fn answer(
    status: u16,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = hyper::Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    answer.body(Full::new(body.into()).boxed()).unwrap()
}

/// An event stream that says what is sent to it.
fn event_stream() -> (Sender, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let chunks = stream::unfold(receiver, |mut receiver| async move {
        let chunk = receiver.recv().await?;
        Some((Ok(Frame::data(chunk)), receiver))
    });
    let answer = hyper::Response::builder().header("content-type", "text/event-stream");
    (sender, answer.body(BodyExt::boxed(StreamBody::new(chunks))).unwrap())
}

/// What says something on an event stream, until it is dropped.
type Sender = mpsc::UnboundedSender<Bytes>;

/// A server that opens streams, and what says something on each.
async fn streaming() -> (Server, mpsc::UnboundedReceiver<Sender>) {
    let (kept, streams) = mpsc::unbounded_channel();
    let server = Server::start(Speaks::Both, move |seen| {
        if seen.request.starts_with("POST") {
            return answer(202, &[], "");
        }
        let (sender, mut answer) = event_stream();
        answer.headers_mut().insert("x-any-event-epoch", "9".parse().unwrap());
        kept.send(sender).unwrap();
        answer
    });
    (server.await, streams)
}

/// Answers each connection with `text` as it stands, then closes it.
async fn raw(text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(text.as_bytes()).await;
        }
    });
    format!("http://{address}/acp")
}

/// A URL at which nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/acp?key=s3cret", listener.local_addr().unwrap())
}

/// The shell's side, as the core uses it.
struct Client {
    http: Http,
    ends: mpsc::UnboundedReceiver<Event>,
    batches: mpsc::Receiver<Batch>,
    count: u64,
}

impl Client {
    fn new(arguments: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let all = ["acp-tether", "connect"].iter().chain(arguments);
        let Command::Connect(flags) = Cli::try_parse_from(all).unwrap().command else {
            panic!("not a connect")
        };
        let remote = Config::new(&flags, &|_| Ok("s3cret".to_owned())).remote.unwrap();
        let (ends_sender, ends) = mpsc::unbounded_channel();
        let (batches_sender, batches) = mpsc::channel(BATCHES);
        let http = Http::new(remote, ends_sender, batches_sender);
        Self { http, ends, batches, count: 0 }
    }

    fn start_post(&mut self, body: &'static str) -> PostId {
        self.count += 1;
        let post = Post {
            id: PostId(self.count),
            connection: Some(connection()),
            session: Some(session("sitzung-ä")),
            renew_credential: false,
            body: Bytes::from_static(body.as_bytes()),
        };
        self.http.post(post);
        PostId(self.count)
    }

    async fn post(&mut self, body: &'static str) -> Outcome {
        let id = self.start_post(body);
        self.posted(id).await
    }

    /// The same without a connection.
    async fn initialize(&mut self, body: &'static str) -> Outcome {
        self.count += 1;
        let (id, body) = (PostId(self.count), Bytes::from_static(body.as_bytes()));
        let (connection, session, renew_credential) = (None, None, false);
        self.http.post(Post { id, connection, session, renew_credential, body });
        self.posted(id).await
    }

    async fn posted(&mut self, id: PostId) -> Outcome {
        let mut event = self.ends.recv().await.unwrap();
        while let Event::Named(..) = event {
            event = self.ends.recv().await.unwrap();
        }
        assert!(self.http.is_awaited(&event));
        match event {
            Event::Posted(posted, outcome) if posted == id => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, name: &str, cursor: Option<&'static str>) -> StreamId {
        self.open_of(Some(session(name)), cursor)
    }

    fn open_of(&mut self, session: Option<SessionId>, cursor: Option<&'static str>) -> StreamId {
        self.count += 1;
        let stream = StreamId { session, epoch: Epoch(1), generation: Generation(self.count) };
        self.http.open(Open {
            stream: stream.clone(),
            connection: connection(),
            cursor: cursor.map(|cursor| Bytes::from_static(cursor.as_bytes())),
            renew_credential: false,
        });
        stream
    }

    async fn opened(&mut self, name: &str) -> StreamId {
        let stream = self.open(name, None);
        let event = self.event().await;
        assert!(matches!(event, StreamEvent::Opened { .. }), "{event:?}");
        stream
    }

    /// The next events that are awaited.
    async fn events(&mut self) -> Vec<StreamEvent> {
        let Batch { stream, events } = self.batches.recv().await.unwrap();
        let http = &mut self.http;
        let is_awaited =
            |event: &StreamEvent| http.is_awaited(&Event::Stream(stream.clone(), event.clone()));
        events.into_iter().filter(is_awaited).collect()
    }

    async fn event(&mut self) -> StreamEvent {
        let mut events = self.events().await;
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

fn connection() -> Connection {
    Connection { id: Bytes::from_static(b"c-1"), version: Some(Bytes::from_static(b"1")) }
}

fn session(name: &str) -> SessionId {
    SessionId(name.into())
}

#[track_caller]
fn response(outcome: Outcome) -> Response {
    match outcome {
        Outcome::Response(response) => response,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn l10_without_a_connection_nothing_left_whatever_http_is_spoken() {
    for http in ["auto", "1.1", "2"] {
        let mut client = Client::new(&[&nobody().await, "--http", http]);
        let outcome = client.post("{}").await;
        let Outcome::Unsent(reason) = outcome else { panic!("{http}: {outcome:?}") };
        assert!(reason.contains("refused"), "{http}: {reason}");
        assert!(!reason.contains("s3cret"), "{http}: {reason}");
        client.open("s", None);
        let event = client.event().await;
        assert!(matches!(event, StreamEvent::Failed(Outcome::Unsent(_))), "{http}: {event:?}");
    }
}

/// Its name has an address before that of the server, at which nobody listens.
struct Two(SocketAddr);

impl Resolve for Two {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses = [SocketAddr::from((Ipv6Addr::LOCALHOST, self.0.port())), self.0];
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

/// The one before it would have its time at each new connection.
#[tokio::test]
async fn the_address_of_a_name_that_answered_last_is_tried_first() {
    let server = Server::start(Speaks::Both, |_| answer(202, &[], "")).await;
    let mut client = Client::new(&["http://agent.test/acp", "--http", "1.1", "--proxy", "off"]);
    let addresses = Addresses::of(Two(server.address));
    Arc::get_mut(&mut client.http.link).unwrap().clients.addresses = addresses.clone();
    let first = async || addresses.resolve("agent.test".parse().unwrap()).await.unwrap().next();
    assert_ne!(first().await, Some(server.address));
    assert_eq!(response(client.post("{}").await).status, 202);
    assert_eq!(first().await, Some(server.address));
}

#[tokio::test]
async fn the_address_that_took_a_greeting_is_tried_first_by_what_follows_it() {
    let server = Server::start(Speaks::Both, |_| answer(202, &[], "")).await;
    let addresses = Addresses::of(Two(server.address));
    let url = server.url("/acp").parse().unwrap();
    let greeted = probe::greet(&url, Duration::from_secs(5), &addresses).await;
    assert_eq!(greeted, Ok(Greeted::Http2));
    let mut found = addresses.resolve("agent.test".parse().unwrap()).await.unwrap();
    assert_eq!(found.next(), Some(server.address));
}

#[tokio::test]
async fn l10_a_connection_that_closes_before_the_answer_breaks_the_request() {
    let url = raw("").await;
    for http in ["auto", "1.1", "2"] {
        let mut client = Client::new(&[&url, "--http", http]);
        let outcome = client.post("{}").await;
        assert!(matches!(outcome, Outcome::Broken(_)), "{http}: {outcome:?}");
    }
}

/// In HTTP/2 the request may have been begun by then, or not: whichever comes first.
#[tokio::test]
async fn a_port_that_closes_at_once_may_be_one_with_tls_whatever_became_of_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/acp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            drop(socket);
        }
    });
    for _ in 0..50 {
        let outcome = Client::new(&[&url, "--http", "2"]).post("{}").await;
        let (Outcome::Unsent(reason) | Outcome::Broken(reason)) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(reason.contains("let the URL begin with https:"), "{reason}");
    }
}

/// It is asked for in HTTP/1.1 whatever is asked for.
#[tokio::test]
async fn w1_a_port_that_closes_on_a_request_for_a_socket_is_not_suspected_of_its_http() {
    for http in ["auto", "1.1", "2"] {
        let client = Client::new(&[&raw("").await, "--http", http]);
        let reason = client.http.link.socket(false).await.unwrap_err().reason().to_string();
        assert!(reason.ends_with("if it speaks TLS, let the URL begin with https:"), "{reason}");
    }
}

#[tokio::test]
async fn l9_of_an_acceptance_the_head_is_the_answer() {
    let server = Server::start(Speaks::Both, |seen| match seen.body.as_ref() {
        b"202" => answer(202, &[("content-type", "text/plain")], "accepted"),
        b"empty" => answer(202, &[("content-type", "application/json")], ""),
        b"204" => answer(204, &[], ""),
        b"200" => answer(200, &[("content-type", "text/html")], "<p>"),
        _ => event_stream().1,
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp")]);
    let cases = [("202", 202), ("empty", 202), ("204", 204), ("stream", 200)];
    for (body, status) in cases {
        let response = response(client.post(body).await);
        assert_eq!((response.status, response.body.as_ref()), (status, &b""[..]), "{body}");
    }
    let page = response(client.post("200").await);
    assert_eq!((page.status, page.body.as_ref()), (200, &b"<p>"[..]), "no agent says this");
}

#[tokio::test]
async fn l6_a_body_that_is_compressed_unasked_is_told_to_be_so() {
    let server = Server::start(Speaks::Both, |seen| {
        let (content_type, coding) = match std::str::from_utf8(&seen.body).unwrap() {
            "" => ("text/event-stream", seen.header("acp-session-id").unwrap().to_owned()),
            body => ("application/json", body.to_owned()),
        };
        answer(200, &[("content-type", content_type), ("content-encoding", &coding)], "{}")
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp")]);
    let Outcome::Broken(reason) = client.post("gzip").await else { panic!() };
    assert!(reason.contains("\"gzip\""), "{reason}");
    assert_eq!(response(client.post("none").await).body.as_ref(), b"{}", "that is no coding");
    let opens = client.initialize("gzip").await;
    assert_eq!(response(opens).content_type, "application/json, compressed as gzip");
    client.open("gzip", None);
    let StreamEvent::Refused(response) = client.event().await else { panic!() };
    assert_eq!(response.content_type, "text/event-stream, compressed as gzip");
    client.open("none", None);
    assert!(matches!(client.event().await, StreamEvent::Opened { .. }));
}

#[tokio::test]
async fn l9_a_json_body_of_any_success_may_be_the_answer() {
    let server = Server::start(Speaks::Both, |seen| {
        let status = std::str::from_utf8(&seen.body).unwrap().parse().unwrap();
        answer(status, &[("content-type", "application/json")], "{\"id\":1}")
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp")]);
    for status in ["200", "201", "202", "203"] {
        let response = response(client.post(status).await);
        assert_eq!(response.body.as_ref(), b"{\"id\":1}", "{status}");
    }
}

#[tokio::test]
async fn l9_a_json_body_that_is_cut_takes_nothing_from_an_acceptance() {
    let url = raw(
        "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
    )
    .await;
    let accepted = response(Client::new(&[&url]).post("{}").await);
    assert_eq!(
        (accepted.status, accepted.body.as_ref(), accepted.truncated),
        (202, &b""[..], false)
    );
}

#[tokio::test]
async fn l9_a_json_body_of_a_success_comes_whole_up_to_the_size_limit() {
    let server = Server::start(Speaks::Both, |seen| {
        let headers = [
            ("content-type", "Application/JSON; charset=utf-8"),
            ("acp-connection-id", "c-7"),
            ("retry-after", "2"),
        ];
        answer(200, &headers, seen.body.repeat(100))
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp"), "--max-message-bytes", "2000"]);
    let whole = response(client.post("0123456789").await);
    assert_eq!((whole.body.len(), whole.truncated), (1000, false));
    assert_eq!(whole.connection_id.unwrap(), "c-7");
    assert_eq!(whole.retry_after.unwrap().0, 2_000);
    assert_eq!(whole.content_type, "Application/JSON; charset=utf-8");
    let cut = response(client.post("0123456789012345678901234567890").await);
    assert_eq!((cut.body.len(), cut.truncated), (2000, true));
}

#[tokio::test]
async fn l10_of_a_refusal_8_kib_are_shown() {
    let server = Server::start(Speaks::Both, |seen| match seen.body.as_ref() {
        b"long" => answer(409, &[], vec![b'x'; 20_000]),
        _ => answer(503, &[("content-type", "application/json")], "{}"),
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp")]);
    let long = response(client.post("long").await);
    assert_eq!((long.status, long.body.len(), long.truncated), (409, 8192, true));
    let short = response(client.post("short").await);
    assert_eq!((short.status, short.body.as_ref(), short.truncated), (503, &b"{}"[..], false));
}

#[tokio::test]
async fn l10_a_body_that_is_cut_breaks_an_answer_but_not_a_refusal() {
    let url =
        raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{")
            .await;
    let outcome = Client::new(&[&url]).post("{}").await;
    assert!(matches!(outcome, Outcome::Broken(_)), "{outcome:?}");
    let url = raw("HTTP/1.1 409 Conflict\r\ncontent-length: 9\r\n\r\n{").await;
    let refusal = response(Client::new(&[&url]).post("{}").await);
    assert_eq!((refusal.status, refusal.body.as_ref(), refusal.truncated), (409, &b"{"[..], true));
}

#[tokio::test]
async fn x1_what_a_success_says_in_place_of_an_answer_is_shown_without_secrets() {
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"you":"Bearer s3cret"}}"#;
    let server = Server::start(Speaks::Both, |seen| {
        let said = seen.header("authorization").unwrap();
        let body = std::str::from_utf8(&seen.body).unwrap();
        let json = [("content-type", "application/json"), ("acp-connection-id", "c-7")];
        match seen.header("acp-session-id").unwrap_or_default() {
            "json" => answer(200, &json, format!("\"{said}\"")),
            "" if body.contains("\"named\"") => answer(200, &json, ANSWER),
            "" if body.contains("\"nameless\"") => answer(200, &json[..1], ANSWER),
            "" if body.contains("\"wrong\"") => answer(200, &json, format!("\"{said}\"")),
            _ => answer(200, &[("content-type", "text/html")], format!("<p>{said}")),
        }
    })
    .await;
    let header = "Authorization: Bearer ${TOKEN}";
    let mut client = Client::new(&[&server.url("/acp"), "--header", header]);
    let mut shown = vec![response(client.post("{}").await)];
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"page"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"wrong"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"nameless"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"named"}"#,
    ] {
        shown.push(response(client.initialize(body).await));
    }
    for name in ["html", "json"] {
        client.open(name, None);
        let StreamEvent::Refused(response) = client.event().await else { panic!("{name}") };
        shown.push(response);
    }
    shown.push(client.http.link.socket(false).await.unwrap().map(drop).unwrap_err());
    for shown in shown {
        let body = String::from_utf8(shown.body.into()).unwrap();
        assert!(body.contains("hidden") && !body.contains("s3cret"), "{body}");
    }
    let right = client.initialize(r#"{"jsonrpc":"2.0","id":1,"method":"named"}"#).await;
    assert_eq!(response(right).body, ANSWER, "it is the editor's as it came");
}

/// The types of frames in HTTP/2.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
}

/// Makes a frame for the number of a stream.
type Meets = fn(u32) -> Vec<u8>;

/// Speaks HTTP/2, and meets the head of each request with a frame. Nothing follows a GOAWAY.
async fn meeting(answer: Meets) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(meet(socket, answer));
        }
    });
    format!("http://{address}/acp")
}

async fn meet(mut socket: TcpStream, answer: Meets) -> std::io::Result<()> {
    socket.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await?;
    socket.write_all(&frame(SETTINGS, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let [a, b, c, kind, _, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        socket.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).await?;
        if kind == HEADERS {
            let met = answer(u32::from_be_bytes(stream));
            socket.write_all(&met).await?;
            if met[3] == GOAWAY {
                socket.shutdown().await?;
            }
        }
    }
}

fn go_away(last: u32, error: u32) -> Vec<u8> {
    frame(GOAWAY, 0, &[last.to_be_bytes(), error.to_be_bytes()].concat())
}

/// RFC 9113, 8.7: nobody has seen a request that was refused so, or that is past what a GOAWAY names.
#[tokio::test]
async fn l10_what_http_2_proves_unprocessed_never_left() {
    let cases: [(&str, Meets, bool); 5] = [
        ("REFUSED_STREAM", |stream| frame(RST_STREAM, stream, &7_u32.to_be_bytes()), true),
        ("CANCEL", |stream| frame(RST_STREAM, stream, &8_u32.to_be_bytes()), false),
        ("a GOAWAY before it", |stream| go_away(stream - 1, 0), true),
        ("one with an error", |stream| go_away(stream - 1, 11), true),
        ("one after it", |stream| go_away(stream, 11), false),
    ];
    for (name, answer, is_unsent) in cases {
        let mut client = Client::new(&[&meeting(answer).await, "--http", "2"]);
        let outcome = client.post("{}").await;
        assert_eq!(matches!(outcome, Outcome::Unsent(_)), is_unsent, "{name}: {outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Broken(_)), !is_unsent, "{name}: {outcome:?}");
    }
}

/// The head of a response over HTTP/2, some of its body, and a reset without an error.
fn reset(stream: u32, status: u8, content_type: &str, body: &str, is_whole: bool) -> Vec<u8> {
    let length = u8::try_from(content_type.len()).unwrap();
    // HPACK: an indexed status, and the content type under its indexed name.
    let head = [&[status, 0x0F, 0x10, length], content_type.as_bytes()].concat();
    let mut head = frame(HEADERS, stream, &head);
    head[4] = 4; // END_HEADERS
    let mut data = frame(DATA, stream, body.as_bytes());
    data[4] = u8::from(is_whole); // END_STREAM
    [head, data, frame(RST_STREAM, stream, &[0; 4])].concat()
}

/// Envoy sends it where the server behind it dies.
#[tokio::test]
async fn r9_what_http_2_resets_without_an_error_is_cut_unless_it_had_ended() {
    let streams: [(Meets, bool); 2] = [
        (|stream| reset(stream, 0x88, "text/event-stream", ":\n\n", false), false),
        (|stream| reset(stream, 0x88, "text/event-stream", ":\n\n", true), true),
    ];
    for (answer, is_clean) in streams {
        let mut client = Client::new(&[&meeting(answer).await, "--http", "2"]);
        client.open("s", None);
        let mut last = client.events().await;
        while let Some(StreamEvent::Opened { .. } | StreamEvent::Comment) = last.last() {
            last = client.events().await;
        }
        let [StreamEvent::Ended(end)] = &last[..] else { panic!("{last:?}") };
        assert_eq!(*end == End::Clean, is_clean, "{end:?}");
    }
    let answers: [(Meets, bool); 2] = [
        (|stream| reset(stream, 0x88, "application/json", "{\"id\":1", false), false),
        (|stream| reset(stream, 0x88, "application/json", "{\"id\":1}", true), true),
    ];
    for (answer, is_whole) in answers {
        let outcome = Client::new(&[&meeting(answer).await, "--http", "2"]).post("{}").await;
        assert_eq!(matches!(outcome, Outcome::Response(_)), is_whole, "{outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Broken(_)), !is_whole, "{outcome:?}");
    }
    let cut: Meets = |stream| reset(stream, 0x8D, "application/json", "{\"id\":1", false);
    let refusal = response(Client::new(&[&meeting(cut).await, "--http", "2"]).post("{}").await);
    assert_eq!((refusal.status, refusal.truncated), (404, true));
}

/// Old servers mark no end. What was accepted without a word stays so.
#[tokio::test]
async fn l10_an_answer_in_http_1_without_a_marked_end_is_whole_where_it_is_whole_json() {
    for (answer, is_cut) in [
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"id\":1}\n", false),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", false),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\nok", false),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"id\":1", true),
    ] {
        let outcome = Client::new(&[&raw(answer).await, "--http", "1.1"]).post("{}").await;
        assert_eq!(matches!(outcome, Outcome::Broken(_)), is_cut, "{answer}: {outcome:?}");
        assert_eq!(matches!(outcome, Outcome::Response(_)), !is_cut, "{answer}: {outcome:?}");
    }
}

/// A server may complain of our certificate on a connection over which it has answered.
#[tokio::test]
async fn l10_a_refusal_of_our_certificate_proves_nothing_once_the_server_has_answered() {
    let client = Client::new(&["https://localhost/acp", "--insecure"]);
    let handshake = Handshake::new(&client.http.link.remote.tls).unwrap();
    let refused = tls::Trouble::RefusesCertificate("AccessDenied".to_owned());
    let judged = |trouble: &str| {
        let refused = if trouble.is_empty() { refused.clone().into() } else { trouble.into() };
        matches!(handshake.judged(Failure::Broken(refused)), Failure::Unsent(_))
    };
    assert!(!judged(""), "it asked for none");
    handshake.config.client_auth_cert_resolver.resolve(&[], &[]);
    assert!(judged("") && !judged("it broke"), "it was asked for");
    handshake.answered();
    assert!(!judged(""), "it was taken");
}

/// Nobody sends it later.
#[tokio::test]
async fn s7_the_delete_is_sent_once_more_with_a_token_that_was_read_again() {
    let server = Server::start(Speaks::Both, |seen| match seen.header("authorization") {
        Some("Bearer two") => answer(202, &[], ""),
        _ => answer(401, &[], ""),
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    for (tokens, status, count) in [(["one", "two"], 202, 2), (["one", "one"], 401, 4)] {
        std::fs::write(&path, tokens[0]).unwrap();
        let url = server.url("/acp");
        let mut client = Client::new(&[&url, "--bearer-file", path.to_str().unwrap()]);
        client.http.link.headers(false).await.unwrap();
        std::fs::write(&path, tokens[1]).unwrap();
        client.http.delete(connection());
        let Some(Event::Deleted(outcome)) = client.ends.recv().await else { panic!() };
        assert_eq!((response(outcome).status, server.seen().len()), (status, count));
    }
    let header = "Authorization: Bearer one";
    let mut client = Client::new(&[&server.url("/acp"), "--header", header]);
    client.http.delete(connection());
    assert!(client.ends.recv().await.is_some());
    assert_eq!(server.seen().len(), 5, "it stays the same");
}

#[tokio::test]
async fn l4_requests_carry_the_headers_of_the_protocol_and_of_the_person() {
    let server = Server::start(Speaks::Both, |_| answer(404, &[], "")).await;
    let header = "Authorization: Bearer ${TOKEN}";
    let mut client = Client::new(&[&server.url("/acp?a=%7E"), "--header", header]);
    client.post("{\"a\":1}").await;
    client.open("s", Some("e 7"));
    client.event().await;
    client.http.delete(connection());
    let event = client.ends.recv().await.unwrap();
    assert!(matches!(event, Event::Deleted(Outcome::Response(_))), "{event:?}");
    let [post, get, delete] = server.seen().try_into().unwrap();

    assert_eq!(post.request, "POST /acp?a=%7E");
    assert_eq!(post.body, "{\"a\":1}");
    assert_eq!(post.header("content-type"), Some("application/json"));
    assert_eq!(post.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(post.header("acp-session-id"), Some("sitzung-ä"));
    assert_eq!(post.header("user-agent"), Some(concat!("acp-tether/", env!("CARGO_PKG_VERSION"))));

    assert_eq!(get.request, "GET /acp?a=%7E");
    assert_eq!(get.header("accept"), Some("text/event-stream"));
    assert_eq!(get.header("accept-encoding"), Some("identity"));
    assert_eq!(get.header("cache-control"), Some("no-store"));
    assert_eq!(get.header("last-event-id"), Some("e 7"));
    assert_eq!(get.header("acp-session-id"), Some("s"));

    assert_eq!(delete.request, "DELETE /acp?a=%7E");
    assert_eq!(delete.header("acp-session-id"), None);
    for seen in [post, get, delete] {
        assert_eq!(seen.header("acp-connection-id"), Some("c-1"));
        assert_eq!(seen.header("acp-protocol-version"), Some("1"));
        assert_eq!(seen.header("authorization"), Some("Bearer s3cret"));
    }
}

#[tokio::test]
async fn r4_the_cursor_stands_in_the_query_where_that_is_asked_for() {
    let server = Server::start(Speaks::Both, |_| answer(404, &[], "")).await;
    let url = server.url("/acp?lastEventId=3&a");
    for (flags, cursor, expected) in [
        (&[][..], None, "GET /acp?a"),
        (&["--cursor-in-query"], None, "GET /acp?a"),
        (&["--cursor-in-query"], Some("7"), "GET /acp?a&last_event_id=7&lastEventId=7"),
    ] {
        let mut client = Client::new(&[&[url.as_str()], flags].concat());
        client.open("s", cursor);
        client.event().await;
        assert_eq!(server.seen().last().unwrap().request, expected);
    }
}

#[tokio::test]
async fn l6_auto_finds_out_what_the_server_speaks() {
    for (speaks, http, expected) in [
        (Speaks::Both, "auto", Version::HTTP_2),
        (Speaks::Both, "1.1", Version::HTTP_11),
        (Speaks::Both, "2", Version::HTTP_2),
        (Speaks::Http1, "auto", Version::HTTP_11),
    ] {
        let server = Server::start(speaks, |_| answer(202, &[], "")).await;
        let mut client = Client::new(&[&server.url("/acp"), "--http", http]);
        response(client.post("{}").await);
        client.open("s", None);
        client.event().await;
        let versions: Vec<Version> = server.seen().iter().map(|seen| seen.version).collect();
        assert_eq!(versions, [expected; 2], "{http}");
    }
}

#[tokio::test]
async fn l6_a_host_that_the_person_names_goes_in_http_1_whatever_is_asked_for() {
    for http in ["auto", "1.1", "2"] {
        let server = Server::start(Speaks::Both, |_| answer(202, &[], "")).await;
        let flags = ["--http", http, "--header", "Host: inner.test"];
        let mut client = Client::new(&[&[server.url("/acp").as_str()], &flags[..]].concat());
        response(client.post("{}").await);
        client.open("s", None);
        client.event().await;
        for seen in server.seen() {
            assert_eq!(seen.version, Version::HTTP_11, "{http}");
            assert_eq!(seen.header("host"), Some("inner.test"), "{http}");
        }
    }
}

#[tokio::test]
async fn l6_what_a_server_speaks_is_found_out_again_while_none_answers_behind_a_forwarded_port() {
    for (speaks, expected) in [(Speaks::Both, Version::HTTP_2), (Speaks::Http1, Version::HTTP_11)] {
        let server = Server::start_late(2, speaks, |_| answer(202, &[], "")).await;
        let mut client = Client::new(&[&server.url("/acp")]);
        let outcome = client.post("{}").await;
        assert!(!matches!(outcome, Outcome::Response(_)), "{outcome:?}");
        for _ in 0..2 {
            response(client.post("{}").await);
        }
        let versions: Vec<Version> = server.seen().iter().map(|seen| seen.version).collect();
        assert_eq!(versions, [expected; 2]);
        assert_eq!(connections(server.seen().iter()), 1);
    }
}

#[tokio::test]
async fn l7_cookies_are_kept_and_returned_on_every_connection() {
    let server = Server::start(Speaks::Both, |_| {
        answer(404, &[("set-cookie", "route=7; Path=/; HttpOnly")], "")
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp"), "--header", "Cookie: mine=1"]);
    client.post("{}").await;
    client.open("s", None);
    client.event().await;
    client.post("{}").await;
    let cookies: Vec<Vec<String>> = server
        .seen()
        .iter()
        .map(|seen| {
            let mut cookies: Vec<String> =
                seen.header("cookie").unwrap().split("; ").map(str::to_owned).collect();
            cookies.sort();
            cookies
        })
        .collect();
    assert_eq!(cookies, [vec!["mine=1"], vec!["mine=1", "route=7"], vec!["mine=1", "route=7"]]);
}

/// A server that redirects `/acp` with a status to a place, and accepts at `/moved`.
async fn redirecting(status: u16, location: &str) -> Server {
    let location = location.to_owned();
    Server::start(Speaks::Both, move |seen| match seen.request.ends_with("/moved?key=s3cret") {
        true => answer(202, &[], ""),
        false => answer(status, &[("location", &location)], ""),
    })
    .await
}

#[tokio::test]
async fn l8_a_redirect_with_307_or_308_keeps_method_body_and_headers() {
    for status in [307, 308] {
        let server = redirecting(status, "/moved?key=s3cret").await;
        let mut client = Client::new(&[&server.url("/acp"), "--header", "X-Key: s3cret"]);
        assert_eq!(response(client.post("{\"a\":1}").await).status, 202);
        let [first, second] = server.seen().try_into().unwrap();
        assert_eq!(second.request, "POST /moved?key=s3cret");
        assert_eq!(second.body, first.body);
        assert_eq!(second.headers, first.headers);
    }
}

#[tokio::test]
async fn l8_a_redirect_that_would_lose_the_message_names_the_url_to_configure() {
    for status in [301, 302, 303] {
        let server = redirecting(status, "/moved?key=s3cret").await;
        let mut client = Client::new(&[&server.url("/acp")]);
        let outcome = client.post("{}").await;
        let Outcome::Redirected { status: told, reason } = outcome else { panic!("{outcome:?}") };
        assert_eq!(told, status);
        assert!(reason.contains(&server.url("/moved in")), "{reason}");
        assert!(!reason.contains("s3cret"), "{reason}");
        assert_eq!(server.seen().len(), 1);
        client.open("s", None);
        client.event().await;
        assert_eq!(server.seen()[2].request, "GET /moved?key=s3cret");
    }
}

#[tokio::test]
async fn l8_a_redirect_to_another_origin_is_refused_and_no_request_goes_there() {
    let other = Server::start(Speaks::Both, |_| answer(202, &[], "")).await;
    for status in [301, 302, 303, 307, 308] {
        let server = redirecting(status, &other.url("/moved?key=s3cret")).await;
        let mut client = Client::new(&[&server.url("/acp"), "--header", "X-Key: s3cret"]);
        let outcome = client.post("{}").await;
        let Outcome::Redirected { reason, .. } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("another origin") && !reason.contains("s3cret"), "{reason}");
        client.open("s", None);
        let event = client.event().await;
        let StreamEvent::Failed(Outcome::Redirected { .. }) = event else { panic!("{event:?}") };
    }
    assert!(other.seen().is_empty(), "{:?}", other.seen());
}

#[tokio::test]
async fn l8_a_redirect_in_a_circle_ends_after_five() {
    let server = redirecting(307, "/acp").await;
    let outcome = Client::new(&[&server.url("/acp")]).post("{}").await;
    let Outcome::Redirected { status: 307, reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("in a circle, to http://"), "{reason}");
    assert_eq!(server.seen().len(), 6);
}

/// What is to be configured would be what is.
#[tokio::test]
async fn l8_a_redirect_to_itself_or_to_nowhere_names_no_url_to_configure() {
    for (location, expected) in
        [("/acp#again", "in a circle"), ("http://[", "does not say where to"), ("", "in a circle")]
    {
        let server = redirecting(303, location).await;
        let outcome = Client::new(&[&server.url("/acp")]).post("{}").await;
        let Outcome::Redirected { status: 303, reason } = outcome else { panic!("{outcome:?}") };
        assert!(reason.contains(expected) && !reason.contains("configure"), "{reason}");
    }
    let url = raw("HTTP/1.1 308 Permanent Redirect\r\ncontent-length: 0\r\n\r\n").await;
    let mut client = Client::new(&[&url]);
    let outcome = client.post("{}").await;
    let Outcome::Redirected { status: 308, reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("does not say where to"), "{reason}");
    client.open("s", None);
    let event = client.event().await;
    assert!(matches!(event, StreamEvent::Failed(Outcome::Redirected { .. })), "{event:?}");
}

#[tokio::test]
async fn r9_a_stream_tells_what_comes_and_that_its_body_ended() {
    let (server, mut streams) = streaming().await;
    for http in ["1.1", "2"] {
        let mut client = Client::new(&[&server.url("/acp"), "--http", http]);
        client.open("s", None);
        let event = client.event().await;
        let StreamEvent::Opened { event_epoch: Some(epoch) } = event else { panic!("{event:?}") };
        assert_eq!(epoch, "9");
        let sender = streams.recv().await.unwrap();
        sender.send("id: 1\ndata: {}\n\n:\n\nretry: 70\n\n".into()).unwrap();
        let events = client.events().await;
        let [
            StreamEvent::Message { data: Some(data), id: Some(id) },
            StreamEvent::Comment,
            StreamEvent::Retry(retry),
        ] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((data.as_ref(), id.as_ref(), retry.0), (&b"{}"[..], &b"1"[..], 70));
        drop(sender);
        let event = client.event().await;
        assert!(matches!(event, StreamEvent::Ended(End::Clean)), "{event:?}");
    }
}

#[tokio::test]
async fn r9_a_body_that_is_cut_or_just_stops_is_no_clean_end() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n:\n\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n:\n\n",
        // A proxy ends in order what its own upstream did not.
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n7\r\ndata: {\r\n0\r\n\r\n",
    ] {
        let mut client = Client::new(&[&raw(answer).await]);
        client.open("s", None);
        let mut last = client.events().await;
        while let Some(StreamEvent::Opened { .. } | StreamEvent::Comment | StreamEvent::Progress) =
            last.last()
        {
            last = client.events().await;
        }
        assert!(matches!(last[..], [StreamEvent::Ended(End::Broken(_))]), "{answer}: {last:?}");
    }
}

#[tokio::test]
async fn p6_what_came_together_on_a_stream_goes_on_together() {
    let (server, mut streams) = streaming().await;
    let mut client = Client::new(&[&server.url("/acp"), "--http", "2"]);
    client.opened("s").await;
    let sender = streams.recv().await.unwrap();
    // A server makes a piece of each event.
    (0..3).for_each(|_| sender.send(":\n\n".into()).unwrap());
    let events = client.events().await;
    let [StreamEvent::Comment, StreamEvent::Comment, StreamEvent::Comment] = events[..] else {
        panic!("{events:?}")
    };
}

#[tokio::test]
async fn l11_some_of_an_event_is_told_as_progress_and_a_whole_one_as_itself_alone() {
    let (server, mut streams) = streaming().await;
    let mut client = Client::new(&[&server.url("/acp")]);
    client.opened("s").await;
    let sender = streams.recv().await.unwrap();
    for (piece, is_whole) in
        [("data: {", false), ("}", false), ("\n\n", true), ("data: {}\n\n", true)]
    {
        sender.send(piece.into()).unwrap();
        match client.event().await {
            StreamEvent::Progress => assert!(!is_whole, "{piece}"),
            StreamEvent::Message { data, .. } => {
                assert!(is_whole, "{piece}");
                assert_eq!(data.unwrap(), "{}");
            }
            other => panic!("{other:?}"),
        }
    }
    drop(sender);
    let event = client.event().await;
    assert!(matches!(event, StreamEvent::Ended(End::Clean)), "{event:?}");
}

#[tokio::test]
async fn l6_a_get_answered_with_another_type_or_status_is_refused() {
    let server = Server::start(Speaks::Both, |seen| match seen.header("acp-session-id") {
        Some("html") => answer(200, &[("content-type", "text/html")], "<p>log in</p>"),
        Some("gone") => answer(404, &[("content-type", "text/plain")], "no session"),
        _ => answer(204, &[], ""),
    })
    .await;
    let mut client = Client::new(&[&server.url("/acp")]);
    let cases = [("html", 200, "<p>log in</p>"), ("gone", 404, "no session"), ("none", 204, "")];
    for (name, status, body) in cases {
        client.open(name, None);
        let event = client.event().await;
        let StreamEvent::Refused(response) = event else { panic!("{name}: {event:?}") };
        assert_eq!((response.status, response.body.as_ref()), (status, body.as_bytes()), "{name}");
    }
}

#[tokio::test]
async fn r2_what_was_dropped_delivers_nothing_even_if_it_was_on_its_way() {
    let server = Server::start(Speaks::Both, |_| answer(404, &[], "")).await;
    let mut client = Client::new(&[&server.url("/acp")]);
    let id = client.start_post("{}");
    let posted = client.ends.recv().await.unwrap();
    client.http.abandon(id);
    assert!(!client.http.is_awaited(&posted));
    let stream = client.open("s", None);
    let batch = client.batches.recv().await.unwrap();
    client.http.close(&stream);
    let refused = Event::Stream(stream, batch.events[0].clone());
    assert!(!client.http.is_awaited(&refused));
}

#[tokio::test]
async fn r2_a_closed_stream_is_gone_for_the_server_too() {
    let (server, mut streams) = streaming().await;
    for http in ["1.1", "2"] {
        let mut client = Client::new(&[&server.url("/acp"), "--http", http]);
        let stream = client.opened("s").await;
        client.http.close(&stream);
        streams.recv().await.unwrap().closed().await;
    }
}

/// How many connections `seen` came over.
pub(in crate::shell) fn connections<'a>(seen: impl Iterator<Item = &'a Seen>) -> usize {
    seen.map(|seen| seen.peer).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test]
async fn streams_and_posts_share_no_connection_and_one_has_the_connection_s_or_64_of_sessions() {
    let (server, _streams) = streaming().await;
    let mut client = Client::new(&[&server.url("/acp")]);
    for name in 0..129 {
        client.open_of((name > 0).then(|| session(&name.to_string())), None);
        client.event().await;
        client.post("{}").await;
    }
    let seen = server.seen();
    let (gets, posts): (Vec<&Seen>, Vec<&Seen>) =
        seen.iter().partition(|seen| seen.request.starts_with("GET"));
    assert_eq!(connections(gets.iter().copied()), 3);
    assert_eq!(connections(posts.iter().copied()), 1);
    assert_eq!(connections(seen.iter()), 4);
}

#[tokio::test]
async fn l11_what_is_new_after_a_sleep_goes_over_new_connections_and_what_is_open_goes_on() {
    for http in ["1.1", "2"] {
        let (server, mut streams) = streaming().await;
        let mut client = Client::new(&[&server.url("/acp"), "--http", http]);
        client.opened("s").await;
        let open = streams.recv().await.unwrap();
        let long: &'static str = "x".repeat(20_000).leak();
        for (body, count) in [("{}", 1), (long, 2)] {
            client.post(body).await;
            client.post(body).await;
            let seen = server.seen();
            let posts = seen.iter().filter(|seen| seen.request.starts_with("POST"));
            assert_eq!(connections(posts), count, "HTTP/{http}");
        }
        client.http.begin_anew();
        for body in ["{}", long] {
            client.post(body).await;
        }
        client.opened("t").await;
        assert_eq!(connections(server.seen().iter()), 6, "HTTP/{http}");
        open.send(":\n\n".into()).unwrap();
        let event = client.event().await;
        assert!(matches!(event, StreamEvent::Comment), "{event:?}");
    }
}

/// A server of HTTP/2 with other settings than usual, which says in full what it answers.
async fn of_http_2<F>(
    settings: fn(&mut http2::Builder<TokioExecutor>),
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) -> String
where
    F: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/acp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut server = http2::Builder::new(TokioExecutor::new());
            settings(&mut server);
            tokio::spawn(server.serve_connection(TokioIo::new(socket), service));
        }
    });
    url
}

/// Over HTTP/2, what a server does not read of one message fills the window of its whole connection.
#[tokio::test]
async fn l5_messages_that_a_server_does_not_read_hold_up_no_others() {
    let (unread, mut waits) = mpsc::unbounded_channel();
    let windows = |server: &mut http2::Builder<TokioExecutor>| {
        server.initial_connection_window_size(65_535).initial_stream_window_size(65_535);
    };
    let url = of_http_2(windows, move |request| {
        let unread = unread.clone();
        async move {
            let body = request.into_body();
            if body.size_hint().exact().unwrap() > 1_000_000 {
                unread.send(()).unwrap();
                std::future::pending::<()>().await;
            }
            drop(body.collect().await);
            answer(202, &[], "")
        }
    })
    .await;
    let mut client = Client::new(&[&url, "--http", "2"]);
    let unread: &'static str = "x".repeat(1_000_001).leak();
    for other in ["{}", &unread[..100_000]] {
        client.start_post(unread);
        waits.recv().await.unwrap();
        let posted = timeout(PATIENCE, client.post(other)).await;
        assert_eq!(response(posted.expect("it is held up")).status, 202);
    }
}

/// Where a server allows fewer streams on a connection, the library keeps the others to itself.
#[tokio::test]
async fn r1_streams_that_a_server_does_not_allow_beside_others_open_over_connections_of_their_own()
{
    let (kept, mut streams) = mpsc::unbounded_channel();
    let few = |server: &mut http2::Builder<TokioExecutor>| {
        server.max_concurrent_streams(3);
    };
    let url = of_http_2(few, move |_| {
        let (sender, answer) = event_stream();
        kept.send(sender).unwrap();
        async { answer }
    })
    .await;
    let mut client = Client::new(&[&url, "--http", "2"]);
    Arc::get_mut(&mut client.http.link).unwrap().clients.beside_others = Duration::from_millis(100);
    let mut open = Vec::new();
    let mut failed = 0;
    // One after another, and then at once.
    for together in [1; 8].into_iter().chain([8]) {
        (0..together).for_each(|_| drop(client.open("s", None)));
        for _ in 0..together {
            while let StreamEvent::Failed(outcome) =
                timeout(PATIENCE, client.event()).await.expect("it is not opened")
            {
                assert!(
                    matches!(&outcome, Outcome::Broken(why) if why.contains("room")),
                    "{outcome:?}"
                );
                failed += 1;
                client.open("s", None);
            }
            open.push(streams.recv().await);
        }
    }
    assert!(failed > 0, "the server allows no more than 3");
}

#[tokio::test]
async fn a_turn_does_not_pay_for_nagle_at_the_server_and_delayed_acknowledgements() {
    for http in ["1.1", "2"] {
        let (kept, mut streams) = mpsc::unbounded_channel();
        let current: Arc<Mutex<Option<Sender>>> = Arc::default();
        let stream = Arc::clone(&current);
        let server = Server::start(Speaks::Both, move |seen| {
            if seen.request.starts_with("GET") {
                let (sender, answer) = event_stream();
                kept.send(sender).unwrap();
                return answer;
            }
            // The agent works for a moment and says more than one thing. Nagle's algorithm holds each
            // back until what was sent before on the same connection is acknowledged.
            if let Some(stream) = stream.lock().unwrap().clone() {
                tokio::spawn(async move {
                    for event in ["data: {\"update\":1}\n\n", "data: {\"id\":1,\"result\":{}}\n\n"]
                    {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        stream.send(event.into()).unwrap();
                    }
                });
            }
            answer(202, &[], "")
        })
        .await;
        let mut client = Client::new(&[&server.url("/acp"), "--http", http]);
        client.opened("s").await;
        *current.lock().unwrap() = streams.recv().await;
        let mut turns = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            client.post("{}").await;
            let mut count = 0;
            while count < 2 {
                count += client.events().await.len();
            }
            turns.push(start.elapsed());
        }
        turns.sort();
        println!("HTTP/{http}: median {:?}, p99 {:?}", turns[100], turns[198]);
        assert!(turns[100] < Duration::from_millis(20), "HTTP/{http}: {:?}", turns[100]);
    }
}

/// KS13.
#[tokio::test]
async fn l2_headers_are_read_whatever_their_case_and_however_often_they_come() {
    let url = raw("HTTP/1.1 200 -\r\nACP-Connection-ID: c-9\r\ncONTENT-tYPE: Application/JSON\r\nRETRY-after: 3\r\n\
        set-cookie: a=1\r\nSet-Cookie: b=2\r\ncontent-LENGTH: 2\r\n\r\n{}")
    .await;
    let accepted = response(Client::new(&[&url, "--http", "1.1"]).post("{}").await);
    assert_eq!(accepted.connection_id.as_deref(), Some(&b"c-9"[..]));
    assert_eq!(accepted.retry_after, Some(Millis(3_000)));
    assert_eq!(accepted.body.as_ref(), b"{}");
}

/// K77: GOAWAY without an error.
#[tokio::test]
async fn l6_a_server_that_takes_no_new_requests_ends_no_stream_that_is_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/acp", listener.local_addr().unwrap());
    let (leave, streams) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (leaves, opened) = (Arc::clone(&leave), Arc::clone(&streams));
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (leaves, opened) = (Arc::clone(&leaves), Arc::clone(&opened));
            let service = service_fn(move |_: Request<Incoming>| {
                let (sender, answer) = event_stream();
                opened.lock().unwrap().push(sender);
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(async move {
                let server = http2::Builder::new(TokioExecutor::new());
                let mut connection = pin!(server.serve_connection(TokioIo::new(socket), service));
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = leaves.notified() => connection.as_mut().graceful_shutdown(),
                }
                let _ = connection.await;
            });
        }
    });
    let mut client = Client::new(&[&url, "--http", "2"]);
    client.opened("s").await;
    leave.notify_waiters();
    let first = streams.lock().unwrap()[0].clone();
    for _ in 0..3 {
        first.send(Bytes::from_static(b"data: goes on\n\n")).unwrap();
        assert!(matches!(client.event().await, StreamEvent::Message { data: Some(_), .. }));
    }
    // A new request is served too, on another connection.
    client.opened("t").await;
    first.send(Bytes::from_static(b"data: still\n\n")).unwrap();
    assert!(matches!(client.event().await, StreamEvent::Message { data: Some(_), .. }));
}
