//! The scripted remote: an HTTP server on 127.0.0.1 that hands over every request and answers as it
//! is told. It decides nothing.

use super::format::Fault;
use super::player::{Reply, Request};
use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

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
    /// The bytes of the stream that the reply opens.
    stream: Option<mpsc::UnboundedReceiver<Piece>>,
}

impl Told {
    /// An answer, and where to write the stream that it opens.
    pub fn new(reply: Reply) -> (Self, Option<mpsc::UnboundedSender<Piece>>) {
        let (sender, stream) = reply.opens.then(mpsc::unbounded_channel).unzip();
        (Self { reply, stream }, sender)
    }
}

/// A part of a stream's body. A dropped sender is its clean end.
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
        .serve_connection(TokioIo::new(connection), service)
        .await;
}

async fn exchange(
    request: hyper::Request<Incoming>,
    arrivals: mpsc::UnboundedSender<Arrival>,
) -> io::Result<hyper::Response<Body>> {
    let cut = || io::Error::from(io::ErrorKind::ConnectionAborted);
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
    let body = match (reply.fault, stream) {
        (Some(Fault::Cut), _) => {
            Body::from_stream(stream::iter([Ok(half(&reply.body)), Err(cut())]))
        }
        (Some(Fault::Stall), _) => {
            let half = stream::iter([Ok::<_, io::Error>(half(&reply.body))]);
            Body::from_stream(half.chain(stream::pending()))
        }
        (Some(_), _) => return Err(cut()),
        (None, Some(pieces)) => stream_body(pieces),
        (None, None) => Body::from(reply.body),
    };
    let mut response = hyper::Response::builder().status(reply.status);
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
