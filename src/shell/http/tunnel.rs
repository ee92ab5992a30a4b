//! Asks a proxy for a tunnel as a client does, for what it answers: clients keep that to themselves.

use super::happy_eyeballs;
use reqwest::Url;
use reqwest::header::HeaderValue;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// The longest line that is read.
const LINE: u64 = 256;

/// A proxy that is spoken to without TLS.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// What tells it who we are.
    pub(super) credential: Option<HeaderValue>,
}

impl Proxy {
    /// The status with which it answers; `None` where its answer is not HTTP.
    pub(super) async fn answer(&self, url: &Url) -> io::Result<Option<u16>> {
        let mut stream = happy_eyeballs::connect(&self.host, self.port).await?;
        stream.write_all(&self.request(url)).await?;
        let mut line = Vec::new();
        if BufReader::new(stream.take(LINE)).read_until(b'\n', &mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(status(&String::from_utf8_lossy(&line)))
    }

    fn request(&self, url: &Url) -> Vec<u8> {
        let host = url.host_str().unwrap_or_default();
        let place = format!("{host}:{}", url.port_or_known_default().unwrap_or_default());
        let mut request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n").into_bytes();
        if let Some(credential) = &self.credential {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(credential.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }
}

fn status(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.")?.split_whitespace().nth(1)?.parse().ok()
}
