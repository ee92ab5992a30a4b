//! Finds out whether a server speaks HTTP/2 over plain `http://` (L6).

use super::addresses::Addresses;
use super::happy_eyeballs;
use super::request::Failure;
use reqwest::Url;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The preface of HTTP/2 and an empty SETTINGS frame.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The length of a frame's header, and where in it the type stands.
const FRAME_HEADER: usize = 9;
const FRAME_TYPE: usize = 3;
const SETTINGS: u8 = 4;
/// What TLS begins with when it complains. No first frame of HTTP/2 does: it would be over a megabyte.
const TLS_ALERT: u8 = 0x15;
/// How long a server may think before it is taken for one that does not speak HTTP/2.
const WAIT: Duration = Duration::from_secs(1);

/// What a greeting in HTTP/2 met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeted {
    /// A server that speaks HTTP/2.
    Http2,
    /// One that does not.
    Other,
    /// One that says nothing for a while.
    Silent,
    /// One that speaks TLS.
    Tls,
    /// A connection that closed without a word: a server that does not, or a forwarded port with no
    /// server behind it yet.
    Closed,
}

/// Connects to the server of `url` and greets it in HTTP/2. Fails only where no connection can be
/// made. Which address took it is told to `addresses`.
pub(super) async fn greet(
    url: &Url,
    connect: Duration,
    addresses: &Addresses,
) -> Result<Greeted, Failure> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    let stream = match timeout(connect, happy_eyeballs::connect(host, port)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(Failure::Unsent(error.to_string().into())),
        Err(_) => return Err(Failure::Unsent("the connection timed out".into())),
    };
    stream.peer_addr().into_iter().for_each(|it| addresses.answered(it));
    match timeout(WAIT, answer(stream)).await {
        Ok(Ok(greeted)) => Ok(greeted),
        Ok(Err(_)) => Ok(Greeted::Closed),
        Err(_) => Ok(Greeted::Silent),
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<Greeted> {
    stream.write_all(HELLO).await?;
    let mut frame = [0; FRAME_HEADER];
    let (first, rest) = frame.split_at_mut(1);
    stream.read_exact(first).await?;
    if first == [TLS_ALERT] {
        return Ok(Greeted::Tls);
    }
    stream.read_exact(rest).await?;
    Ok(if frame[FRAME_TYPE] == SETTINGS { Greeted::Http2 } else { Greeted::Other })
}
