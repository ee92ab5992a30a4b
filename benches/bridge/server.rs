//! The remote agent, in a process of its own, and a look at when it is first asked.

use crate::agent::Served;
use memchr::memmem;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

/// The scripted agent on the official Rust SDK's server, until dropped.
pub struct Server {
    process: Child,
    /// Where it is.
    pub url: String,
}

impl Server {
    /// Starts this program once more, as the agent.
    pub fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { process, url: url.trim().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves the agent until standard input ends.
pub fn serve() {
    let served = Served::start();
    println!("{}/acp", served.url);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A proxy that tells when `initialize` passed it.
pub struct FirstPost {
    /// Where it listens.
    pub url: String,
    seen: Receiver<Instant>,
}

impl FirstPost {
    /// Passes everything on to the server at this URL.
    pub fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = url.trim_start_matches("http://").trim_end_matches("/acp").to_owned();
        let url = format!("http://{}/acp", listener.local_addr().unwrap());
        let (sees, seen) = channel();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let sees = sees.clone();
                thread::spawn(move || copy(client, server, Some(&sees)));
                thread::spawn(move || copy(back.0, back.1, None));
            }
        });
        Self { url, seen }
    }

    /// When it passed.
    pub fn at(&self) -> Instant {
        self.seen.recv().expect("the proxy is at work")
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, sees: Option<&Sender<Instant>>) {
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if let Some(sees) = sees.filter(|_| memmem::find(&buffer, b"\"initialize\"").is_some()) {
            let _ = sees.send(Instant::now());
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
