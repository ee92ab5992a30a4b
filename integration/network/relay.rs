//! Passes connections on to one server, as TLS terminators, forward proxies and SOCKS proxies do, and
//! notes what each was asked.
//!
//! Whatever host a proxy is asked for, it passes on to its server, as if it were the only one that knew
//! the names.

use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_rustls::TlsAcceptor;

/// What is noted of a connection that came while the relay was gone, or without a right credential.
pub const REFUSED: &str = "refused";

/// The relay, at work in a thread of its own until dropped.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    state: Arc<State>,
    _stop: oneshot::Sender<()>,
}

/// What it is.
#[derive(Clone)]
pub enum Kind {
    /// The end of TLS. Notes the protocol of each connection.
    Tls(Arc<ServerConfig>),
    /// A forward proxy, which may want a `Proxy-Authorization`. Notes the head of each first request.
    Forward(Option<String>),
    /// A forward proxy that answers everything with this.
    Answering(&'static str),
    /// A proxy that takes connections and never says a word.
    Silent,
    /// A SOCKS proxy, which may want a name and a password. Notes the host of each request.
    Socks(Option<(&'static str, &'static str)>),
}

#[derive(Default)]
struct State {
    noted: Mutex<Vec<String>>,
    cut: Notify,
    is_gone: AtomicBool,
}

impl Relay {
    /// Listens at a free port of 127.0.0.1 and passes everything on to `server`.
    pub fn start(kind: Kind, server: &str) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server: SocketAddr = server.trim_start_matches("http://").parse().unwrap();
        let state = Arc::<State>::default();
        let all = Arc::clone(&state);
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, &kind, server, &all) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { address, state, _stop: stop }
    }

    /// Ends every connection where it stands.
    pub fn cut(&self) {
        self.state.cut.notify_waiters();
    }

    /// Ends every connection, and from here on every new one at once, or none any more.
    pub fn set_gone(&self, is_gone: bool) {
        self.state.is_gone.store(is_gone, Ordering::SeqCst);
        self.cut();
    }

    /// What each connection was asked so far.
    pub fn noted(&self) -> Vec<String> {
        self.state.noted.lock().unwrap().clone()
    }
}

async fn accept(
    listener: std::net::TcpListener,
    kind: &Kind,
    server: SocketAddr,
    state: &Arc<State>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if state.is_gone.load(Ordering::SeqCst) {
            state.noted.lock().unwrap().push(REFUSED.to_owned());
            continue;
        }
        client.set_nodelay(true).unwrap();
        let (kind, state) = (kind.clone(), Arc::clone(state));
        tokio::spawn(async move {
            tokio::select! {
                // Whoever goes away first ends it.
                _ = pass(client, kind, server, &state) => {}
                () = state.cut.notified() => {}
            }
        });
    }
}

async fn pass(
    mut client: TcpStream,
    kind: Kind,
    server: SocketAddr,
    state: &State,
) -> io::Result<()> {
    let note = |text: String| state.noted.lock().unwrap().push(text);
    match kind {
        Kind::Tls(config) => {
            let mut client = match TlsAcceptor::from(config).accept(client).into_fallible().await {
                Ok(client) => client,
                Err((error, mut client)) => {
                    // Closed at once, the complaint could be lost on the way.
                    tokio::io::copy(&mut client, &mut tokio::io::sink()).await?;
                    return Err(error);
                }
            };
            let protocol = client.get_ref().1.alpn_protocol().unwrap_or_default();
            note(String::from_utf8_lossy(protocol).into_owned());
            join(&mut client, server, &[]).await
        }
        Kind::Answering(answer) => {
            note(head(&mut client).await?);
            client.write_all(answer.as_bytes()).await?;
            client.shutdown().await?;
            // Closed at once, the answer could be lost on the way.
            tokio::io::copy(&mut client, &mut tokio::io::sink()).await.map(|_| ())
        }
        Kind::Silent => std::future::pending().await,
        Kind::Forward(wanted) => {
            let head = head(&mut client).await?;
            note(head.clone());
            let mut credentials = head.lines().filter_map(|line| line.split_once(": ")).filter_map(
                |(name, value)| name.eq_ignore_ascii_case("proxy-authorization").then_some(value),
            );
            if wanted.is_some_and(|wanted| credentials.next() != Some(&wanted)) {
                let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\
                    Proxy-Authenticate: Basic realm=\"company\"\r\nContent-Length: 0\r\n\r\n";
                return client.write_all(refusal.as_bytes()).await;
            }
            if !head.starts_with("CONNECT ") {
                return join(&mut client, server, head.as_bytes()).await;
            }
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            join(&mut client, server, &[]).await
        }
        Kind::Socks(wanted) => {
            match socks_request(&mut client, wanted).await? {
                Ok(host) => note(host),
                Err(refusal) => {
                    note(REFUSED.to_owned());
                    return client.write_all(refusal).await;
                }
            }
            client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0]).await?;
            join(&mut client, server, &[]).await
        }
    }
}

/// Passes on what comes from both sides, after `first`.
async fn join(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: SocketAddr,
    first: &[u8],
) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    server.write_all(first).await?;
    copy_bidirectional(client, &mut server).await.map(|_| ())
}

/// The head of a request. Byte by byte, so that nothing of what follows is taken.
async fn head(client: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The host of a SOCKS5 request (RFC 1928, 1929), or how it is refused.
async fn socks_request(
    client: &mut TcpStream,
    wanted: Option<(&str, &str)>,
) -> io::Result<Result<String, &'static [u8]>> {
    let _version = client.read_u8().await?;
    let methods = counted(client).await?;
    if let Some((name, password)) = wanted {
        if !methods.as_bytes().contains(&2) {
            return Ok(Err(&[5, 0xff]));
        }
        client.write_all(&[5, 2]).await?;
        let _version = client.read_u8().await?;
        let given = (counted(client).await?, counted(client).await?);
        if (given.0.as_str(), given.1.as_str()) != (name, password) {
            return Ok(Err(&[1, 1]));
        }
        client.write_all(&[1, 0]).await?;
    } else {
        client.write_all(&[5, 0]).await?;
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request[3] {
        1 => std::net::Ipv4Addr::from(client.read_u32().await?).to_string(),
        3 => counted(client).await?,
        kind => panic!("an address of kind {kind}"),
    };
    let _port = client.read_u16().await?;
    Ok(Ok(host))
}

/// Bytes behind their count.
async fn counted(client: &mut TcpStream) -> io::Result<String> {
    let mut bytes = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
