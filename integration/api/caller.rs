//! Calls the API down to the bytes.

use crate::peers::editor::PATIENCE;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// A caller that knows the port and the token.
pub struct Caller {
    pub port: u16,
    pub token: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The header lines, in lower case.
    pub head: String,
    pub body: String,
}

impl Caller {
    /// Reads port and token from a record.
    pub fn new(record: &Value) -> Self {
        let port = record["port"].as_u64().unwrap().try_into().unwrap();
        Self { port, token: record["token"].as_str().unwrap().to_owned() }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes, and reads until the program closes the connection.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // It may be refused, and closed, before it is read.
        let _ = stream.write_all(bytes);
        rest(stream)
    }

    /// The headers of a caller that may call.
    pub fn headers(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n", self.port, self.token)
    }

    /// A request line and headers of the test's choice.
    pub fn send(&self, line: &str, headers: &str) -> Answer {
        self.raw(format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes())
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &self.headers())
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        let headers = format!("{}Content-Length: {}\r\n", self.headers(), body.len());
        let head = format!("POST {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
        self.raw(format!("{head}{body}").as_bytes())
    }

    /// The status of the answer to a GET, and the rest of it, which may have no end.
    pub fn head(&self, path: &str) -> (u16, BufReader<TcpStream>) {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\n{}\r\n", self.headers()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        (first.split(' ').nth(1).unwrap().parse().unwrap(), lines)
    }

    /// Watches `/events`.
    pub fn watch(&self) -> Documents {
        let (status, rest) = self.head("/events");
        assert_eq!(status, 200);
        Documents(rest)
    }
}

/// The documents of `/events`.
pub struct Documents(BufReader<TcpStream>);

impl Documents {
    /// The stream that they come on.
    pub fn into_inner(self) -> BufReader<TcpStream> {
        self.0
    }

    /// Waits for the next one.
    pub fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Reads an answer up to the end of the connection.
pub fn rest(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A reset ends it too: the program does not read what it refuses.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let (first, head) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}
