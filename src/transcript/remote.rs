//! The scripted remote: an HTTP server on 127.0.0.1 that hands over every request, and what comes on
//! sockets, and answers as it is told. It decides nothing.

use super::format::{CLOSE, Fault, TEXT};
use super::frames::{self, Heard};
use super::player::{Reply, Request};
use axum::body::Body;
use base64::prelude::{BASE64_STANDARD, Engine};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use hyper::http::response::Builder;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, sink, split};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// What RFC 6455 has a server append to the key of an upgrade.
const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// How long the other side of a socket that was closed may take to go: what it sends until then would
/// make the system cut off what was written last.
const LINGER: Duration = Duration::from_secs(1);

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Arrival {
    /// What came.
    pub request: Request,
    /// Where its answer goes; without one the connection is cut.
    pub answer: oneshot::Sender<Told>,
}

/// What the server is told to answer.
#[derive(Debug)]
pub struct Told {
    reply: Reply,
    /// The bytes of the stream or the socket that the reply opens.
    stream: Option<mpsc::UnboundedReceiver<Piece>>,
}

impl Told {
    /// An answer, and where to write the stream or the socket that it opens.
    pub fn new(reply: Reply) -> (Self, Option<mpsc::UnboundedSender<Piece>>) {
        let (sender, stream) = reply.opens.then(mpsc::unbounded_channel).unzip();
        (Self { reply, stream }, sender)
    }
}

/// A part of a stream's body, or of what is written to a socket. A dropped sender is its clean end.
#[derive(Debug)]
pub enum Piece {
    /// Bytes.
    Bytes(Bytes),
    /// The connection is cut here.
    Cut,
}

/// The server. It speaks HTTP/1.1 and HTTP/2 without TLS.
#[derive(Debug)]
pub struct Remote {
    address: SocketAddr,
    /// Bound to the port, but never listening: it stays ours while the remote is down. Only where a
    /// port can be shared.
    _reserved: Option<TcpSocket>,
    arrivals: mpsc::UnboundedSender<Arrival>,
    accepting: Option<Accepting>,
}

/// The task that accepts connections, and what ends it.
#[derive(Debug)]
struct Accepting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Remote {
    /// Starts to listen on a free port.
    ///
    /// # Errors
    /// Why there is no port.
    pub fn start(arrivals: mpsc::UnboundedSender<Arrival>) -> io::Result<Self> {
        let reserved = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = reserved.local_addr()?;
        let reserved = cfg!(unix).then_some(reserved);
        let mut remote = Self { address, _reserved: reserved, arrivals, accepting: None };
        remote.listen()?;
        Ok(remote)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections, if it does not yet.
    ///
    /// # Errors
    /// Why it cannot listen.
    pub fn listen(&mut self) -> io::Result<()> {
        if self.accepting.is_none() {
            let listener = bind(self.address)?.listen(1024)?;
            let (stop, stopped) = oneshot::channel();
            let task = tokio::spawn(accept(listener, stopped, self.arrivals.clone()));
            self.accepting = Some(Accepting { stop, task });
        }
        Ok(())
    }

    /// Refuses connections from here on. When it returns, those there were are cut.
    pub async fn refuse(&mut self) {
        if let Some(Accepting { stop, task }) = self.accepting.take() {
            // A task that ended by itself has nothing left to stop.
            let _ = stop.send(());
            let _ = task.await;
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    #[cfg(unix)]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Accepts until it is stopped; then cuts every connection.
async fn accept(
    listener: TcpListener,
    mut stopped: oneshot::Receiver<()>,
    arrivals: mpsc::UnboundedSender<Arrival>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => {
                let Ok((connection, _)) = accepted else { break };
                connections.spawn(serve(connection, arrivals.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn serve(connection: TcpStream, arrivals: mpsc::UnboundedSender<Arrival>) {
    // What the script writes leaves at once; a connection without that is only slower.
    let _ = connection.set_nodelay(true);
    let service = service_fn(move |request| exchange(request, arrivals.clone()));
    // An error is a client that went, or a cut that was asked for.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(connection), service)
        .await;
}

async fn exchange(
    mut request: hyper::Request<Incoming>,
    arrivals: mpsc::UnboundedSender<Arrival>,
) -> io::Result<hyper::Response<Body>> {
    let cut = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.map_err(io::Error::other)?;
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let request = Request {
        method: head.method.as_str().to_owned(),
        path: head.uri.path_and_query().map(|path| path.as_str().to_owned()),
        http: Some(version(head.version).to_owned()),
        headers: headers.collect(),
        body,
        ..Request::default()
    };
    let (answer, told) = oneshot::channel();
    arrivals.send(Arrival { request, answer }).map_err(|_| cut())?;
    let Told { reply, stream } = told.await.map_err(|_| cut())?;
    let mut response = hyper::Response::builder().status(reply.status);
    let body = match (reply.fault, stream) {
        (Some(Fault::Cut), _) => {
            Body::from_stream(stream::iter([Ok(half(&reply.body)), Err(cut())]))
        }
        (Some(Fault::Stall), _) => {
            let half = stream::iter([Ok::<_, io::Error>(half(&reply.body))]);
            Body::from_stream(half.chain(stream::pending()))
        }
        (Some(_), _) => return Err(cut()),
        (None, Some(pieces)) if reply.status == 101 => {
            tokio::spawn(socket(upgrade, pieces, arrivals));
            response = accepted(response, &head.headers);
            Body::empty()
        }
        (None, Some(pieces)) => stream_body(pieces),
        (None, None) => Body::from(reply.body),
    };
    for (name, value) in reply.headers {
        response = response.header(name, value.into_bytes());
    }
    response.body(body).map_err(io::Error::other)
}

fn half(body: &Bytes) -> Bytes {
    body.slice(..body.len() / 2)
}

fn version(version: hyper::Version) -> &'static str {
    match version {
        hyper::Version::HTTP_2 => "2",
        hyper::Version::HTTP_11 => "1.1",
        _ => "another",
    }
}

fn stream_body(pieces: mpsc::UnboundedReceiver<Piece>) -> Body {
    Body::from_stream(stream::unfold(pieces, |mut pieces| async {
        let piece = match pieces.recv().await? {
            Piece::Bytes(bytes) => Ok(bytes),
            Piece::Cut => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
        };
        Some((piece, pieces))
    }))
}

/// The headers of an upgrade to WebSocket.
fn accepted(response: Builder, asked: &HeaderMap) -> Builder {
    let key = asked.get(SEC_WEBSOCKET_KEY).map_or(&b""[..], HeaderValue::as_bytes);
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, SUFFIX.as_bytes()].concat());
    response
        .header(UPGRADE, "websocket")
        .header(CONNECTION, "Upgrade")
        .header(SEC_WEBSOCKET_ACCEPT, BASE64_STANDARD.encode(hash))
}

/// One socket, until either side ends it.
async fn socket(
    upgrade: OnUpgrade,
    mut pieces: mpsc::UnboundedReceiver<Piece>,
    arrivals: mpsc::UnboundedSender<Arrival>,
) {
    let Ok(upgraded) = upgrade.await else { return };
    let (mut read, mut write) = split(TokioIo::new(upgraded));
    let (answers, mut due) = mpsc::unbounded_channel();
    let is_closed = tokio::select! {
        _ = hear(&mut read, &arrivals, &answers) => return,
        written = write_all(&mut write, &mut pieces, &mut due) => written.is_ok(),
    };
    if is_closed && write.shutdown().await.is_ok() {
        // What it still says, nobody asks for.
        let _ = timeout(LINGER, copy(&mut read, &mut sink())).await;
    }
}

/// Hands over what comes, and answers what a server answers by itself: pings, and a close.
async fn hear(
    read: &mut (impl AsyncRead + Unpin),
    arrivals: &mpsc::UnboundedSender<Arrival>,
    answers: &mpsc::UnboundedSender<Bytes>,
) -> io::Result<()> {
    let mut message = Vec::new();
    loop {
        let (frame, answer) = match frames::hear(read, &mut message).await? {
            Heard::Text(text) => (Some(Request::frame(TEXT, text)), None),
            Heard::Ping(payload) => (None, Some(frames::pong(&payload))),
            Heard::Close(code) => {
                let body = code.map(|code| code.to_string()).unwrap_or_default();
                (Some(Request::frame(CLOSE, body.into())), Some(frames::close(code, "")))
            }
            Heard::Other => (None, None),
        };
        // Where nobody listens any more, the play is over.
        if let Some(request) = frame {
            let _ = arrivals.send(Arrival { request, answer: oneshot::channel().0 });
        }
        if let Some(answer) = answer {
            let _ = answers.send(answer);
        }
    }
}

/// Writes what is told and what is due, up to the clean end; an error is a cut.
async fn write_all(
    write: &mut (impl AsyncWrite + Unpin),
    pieces: &mut mpsc::UnboundedReceiver<Piece>,
    due: &mut mpsc::UnboundedReceiver<Bytes>,
) -> io::Result<()> {
    loop {
        let bytes = tokio::select! {
            piece = pieces.recv() => match piece {
                Some(Piece::Bytes(bytes)) => bytes,
                Some(Piece::Cut) => return Err(io::ErrorKind::ConnectionAborted.into()),
                None => return Ok(()),
            },
            Some(answer) = due.recv() => answer,
        };
        write.write_all(&bytes).await?;
        write.flush().await?;
    }
}
