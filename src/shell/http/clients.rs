//! Keeps the connections: which HTTP they speak, and which request goes over which.
//!
//! Streams and POSTs never share a connection. Where a server leaves Nagle's algorithm on and the
//! system delays acknowledgements, an answer on a stream would wait 40 ms behind the 202 of its POST.
//! Nor does a long POST share one with others while it is under way: over HTTP/2 all of a connection share the
//! window of 64 KiB that most servers leave it at, and what a server does not read of one would hold up all.

use super::addresses::{Addresses, System};
use super::probe::{self, Greeted};
use super::request::{Failure, reason};
use super::route::Route;
use super::tls::{self, Certificate, Handshake};
use super::trouble::{Reason, Trouble};
use crate::cli::HttpVersion;
use crate::config::Remote;
use crate::config::tls::Tls;
use crate::core::SessionId;
use crate::lock::lock;
use reqwest::cookie::{CookieStore, Jar};
use reqwest::header::{COOKIE, HOST, HeaderValue};
use reqwest::{Client, ClientBuilder, Request, Response, Url, Version, redirect};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection is silent before the system asks whether the other end is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TRIES: u32 = 3;
/// How often HTTP/2 asks whether the other end is there, and how long it waits for the answer.
const PING: Duration = Duration::from_secs(15);
const PING_ANSWER: Duration = Duration::from_secs(10);
/// Bytes that may be under way on one HTTP/2 stream, and on all of one connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes that the server may put in one HTTP/2 frame. By default it is 16 KiB, and a larger message costs more
/// for each part.
const FRAME: u32 = 128 * 1024;
/// An idle HTTP/1.1 connection is not used again after this. Many servers close it after 5 s, and a
/// POST that meets the closing is one whose fate nobody knows.
const IDLE_HTTP1: Duration = Duration::from_secs(4);
/// The same where TLS chose the version: below the 60 s of common proxies.
const IDLE: Duration = Duration::from_secs(50);
/// Streams of sessions that one client takes, until a server is found to allow fewer. Most allow about 100 on
/// one HTTP/2 connection. A connection costs 42 KiB, and so fewer would cost each session more.
const STREAMS_PER_CLIENT: usize = 64;
/// How long the GET of a stream waits beside others that are open on its connection.
const BESIDE_OTHERS: Duration = Duration::from_secs(2);

/// Bytes of a POST from which on it is a long one: many that are shorter fit into one window.
const LONG: usize = 16 * 1024;

/// What may be wrong where a server closes that was spoken to without TLS: many do so without a word.
const MAY_SPEAK_TLS: &str = "if it speaks TLS, let the URL begin with https:";
/// What else may be wrong where it was spoken to in HTTP/2.
const MAY_SPEAK_HTTP1: &str = "if it speaks HTTP/1.1 only, leave `--http 2` out";

/// What is spoken with a server of which that cannot be found out.
const ASSUMED: Protocol = Protocol::Http1;

/// All connections to the remote. They share one cookie jar (L7).
#[derive(Debug)]
pub(super) struct Clients {
    url: Url,
    version: HttpVersion,
    /// The person named another host than the URL's in a header.
    has_host: bool,
    route: Route,
    pub(super) addresses: Addresses,
    tls: Tls,
    /// How TLS is done, once it is.
    handshake: Mutex<Option<Handshake>>,
    jar: Arc<Jar>,
    /// What is spoken, once that is known.
    protocol: tokio::sync::Mutex<Option<Protocol>>,
    /// It has answered once, so that the scheme of the URL is right.
    has_answered: AtomicBool,
    posts: Mutex<Option<Speaker>>,
    long_posts: Mutex<Vec<Speaker>>,
    sockets: Mutex<Option<Speaker>>,
    connection_streams: Mutex<Vec<Speaker>>,
    session_streams: Mutex<Vec<Speaker>>,
    /// How many streams of sessions a client takes.
    streams_per_client: AtomicUsize,
    /// How long a GET waits beside streams that are open.
    pub(super) beside_others: Duration,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// What TLS agrees on.
    Negotiated,
}

/// A client and what it speaks. A stream keeps its clone for as long as it lives, a long POST until it is
/// answered: there is room for so many.
#[derive(Clone, Debug)]
pub(super) struct Speaker {
    protocol: Protocol,
    client: Client,
    /// Each clone has one.
    taken: Arc<()>,
    /// Each clone has one, and each stream that is open over HTTP/2 one more.
    open: Arc<()>,
}

/// What a stream keeps while it is open.
#[derive(Debug)]
pub(super) struct Place {
    _speaker: Speaker,
    _open: Option<Arc<()>>,
}

impl Clients {
    /// No connections yet.
    pub(super) fn new(remote: &Remote) -> Self {
        Self {
            url: remote.url.clone(),
            version: remote.http,
            has_host: remote.headers.contains_key(HOST),
            route: Route::to(&remote.url, &remote.proxy),
            addresses: Addresses::of(System),
            tls: remote.tls.clone(),
            handshake: Mutex::default(),
            jar: Arc::new(jar(remote)),
            protocol: tokio::sync::Mutex::default(),
            has_answered: AtomicBool::new(false),
            posts: Mutex::default(),
            long_posts: Mutex::default(),
            sockets: Mutex::default(),
            connection_streams: Mutex::default(),
            session_streams: Mutex::default(),
            streams_per_client: AtomicUsize::new(STREAMS_PER_CLIENT),
            beside_others: BESIDE_OTHERS,
        }
    }

    /// The speaker for what is not a stream, and has a body of `length` bytes. Until it is answered, a long one
    /// has it alone.
    pub(super) async fn for_posts(&self, length: usize) -> Result<Speaker, Failure> {
        let protocol = self.protocol().await?;
        if length >= LONG {
            return self.with_room(&self.long_posts, protocol, 1);
        }
        let mut posts = lock(&self.posts);
        match &*posts {
            Some(speaker) if speaker.protocol == protocol => Ok(speaker.clone()),
            _ => Ok(posts.insert(self.speaker(protocol)?).clone()),
        }
    }

    /// The speaker for sockets, which are asked for over HTTP/1.1 (over HTTP/2 servers answer 405).
    pub(super) fn for_sockets(&self) -> Result<Speaker, Failure> {
        let mut sockets = lock(&self.sockets);
        match &*sockets {
            Some(speaker) => Ok(speaker.clone()),
            None => Ok(sockets.insert(self.speaker(Protocol::Http1)?).clone()),
        }
    }

    /// A speaker with room for one more stream of a session, or one of its own for the connection's:
    /// beside others, what opens those would hold up what comes on it, such as the answer to a new session.
    pub(super) async fn for_stream(&self, session: Option<&SessionId>) -> Result<Speaker, Failure> {
        let protocol = self.protocol().await?;
        match session {
            None => self.with_room(&self.connection_streams, protocol, 1),
            Some(_) => {
                let room = self.streams_per_client.load(Ordering::Relaxed);
                self.with_room(&self.session_streams, protocol, room)
            }
        }
    }

    /// What came of the GET of a stream; nothing where it waited in vain while others are open on its connection.
    /// Then the server may allow no more of them there (F5's default is 10), and the GET have waited for that
    /// inside the library, where nobody sees it. No client is given more from then on.
    pub(super) async fn unless_full<T>(
        &self,
        speaker: &Speaker,
        sent: impl Future<Output = T>,
    ) -> Option<T> {
        let mut sent = pin!(sent);
        loop {
            if let Ok(sent) = timeout(self.beside_others, sent.as_mut()).await {
                return Some(sent);
            }
            match speaker.open_streams() {
                0 => {}
                open => {
                    self.streams_per_client.fetch_min(open, Ordering::Relaxed);
                    return None;
                }
            }
        }
    }

    /// What is new goes over new connections from here on: those that are there may be dead without anybody's
    /// knowing. What is under way keeps its own.
    pub(super) fn begin_anew(&self) {
        *lock(&self.posts) = None;
        *lock(&self.sockets) = None;
        for speakers in [&self.long_posts, &self.connection_streams, &self.session_streams] {
            lock(speakers).clear();
        }
    }

    fn with_room(
        &self,
        speakers: &Mutex<Vec<Speaker>>,
        protocol: Protocol,
        room: usize,
    ) -> Result<Speaker, Failure> {
        let mut speakers = lock(speakers);
        let fits = |it: &&Speaker| it.protocol == protocol && it.has_room(room);
        if let Some(speaker) = speakers.iter().find(fits) {
            return Ok(speaker.clone());
        }
        let speaker = self.speaker(protocol)?;
        speakers.push(speaker.clone());
        Ok(speaker)
    }

    /// The way to the remote.
    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// The cookies that go with every request.
    pub(super) fn cookies(&self) -> Option<HeaderValue> {
        self.jar.cookies(&self.url)
    }

    /// The certificate that the remote showed last, and when.
    pub(super) fn certificate(&self) -> Option<Certificate> {
        lock(&self.handshake).as_ref()?.seen(self.url.host_str()?)
    }

    /// Sends a request, and tells what came of it.
    pub(super) async fn send(
        &self,
        request: Request,
        speaker: &Speaker,
    ) -> Result<Response, Failure> {
        let sent = speaker.client.execute(request).await;
        let is_connected = !matches!(&sent, Err(error) if error.is_connect());
        let passed = self.route.passed(sent);
        if let Ok(response) = &passed {
            response.remote_addr().into_iter().for_each(|it| self.addresses.answered(it));
            // What was assumed of the server is so.
            self.protocol.lock().await.get_or_insert(ASSUMED);
            self.has_answered.store(true, Ordering::Relaxed);
        }
        let is_plain = self.url.scheme() == "http" && !self.route.is_proxied();
        let passed = match passed {
            Err(failure)
                if is_plain && is_connected && !self.has_answered.load(Ordering::Relaxed) =>
            {
                Err(failure.or(&self.doubt(speaker.protocol).await))
            }
            passed => passed,
        };
        match (&*lock(&self.handshake), passed) {
            (Some(handshake), Ok(response)) => {
                handshake.answered();
                Ok(response)
            }
            (Some(handshake), Err(failure)) => {
                let failure = handshake.judged(failure);
                Err(match handshake.doubt() {
                    Some(doubt) => self.route.doubted(failure, doubt),
                    None => failure,
                })
            }
            (None, passed) => passed,
        }
    }

    /// Why a server may break off that never answered, and is spoken to without TLS. Where the person
    /// said what is spoken, that was not found out.
    async fn doubt(&self, spoken: Protocol) -> Reason {
        if spoken != Protocol::Http2 {
            return MAY_SPEAK_TLS.into();
        }
        match probe::greet(&self.url, CONNECT, &self.addresses).await {
            Ok(Greeted::Tls) => tls::Trouble::Spoken.into(),
            Ok(Greeted::Other) => Trouble::Http1Only.into(),
            _ => format!("{MAY_SPEAK_TLS}; {MAY_SPEAK_HTTP1}").into(),
        }
    }

    /// What is spoken, found out before the first request. Where that cannot be found out it is tried
    /// again the next time.
    async fn protocol(&self) -> Result<Protocol, Failure> {
        let mut known = self.protocol.lock().await;
        if known.is_none() {
            *known = self.found_out().await?;
        }
        Ok(known.unwrap_or(ASSUMED))
    }

    async fn found_out(&self) -> Result<Option<Protocol>, Failure> {
        let protocol = match self.version {
            HttpVersion::Http1 => Protocol::Http1,
            // HTTP/2 has the URL's in its place.
            _ if self.has_host => Protocol::Http1,
            _ if self.url.scheme() == "https" => Protocol::Negotiated,
            _ if self.route.is_read() => Protocol::Http1,
            HttpVersion::Http2 => Protocol::Http2,
            HttpVersion::Auto if self.route.is_proxied() => Protocol::Http1,
            HttpVersion::Auto => match probe::greet(&self.url, CONNECT, &self.addresses).await? {
                Greeted::Http2 => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    Protocol::Http2
                }
                Greeted::Other | Greeted::Silent => Protocol::Http1,
                Greeted::Closed => return Ok(None),
                Greeted::Tls => return Err(Failure::Unsent(tls::Trouble::Spoken.into())),
            },
        };
        Ok(Some(protocol))
    }

    fn speaker(&self, protocol: Protocol) -> Result<Speaker, Failure> {
        let client = self.client(protocol)?;
        Ok(Speaker { protocol, client, taken: Arc::default(), open: Arc::default() })
    }

    fn client(&self, protocol: Protocol) -> Result<Client, Failure> {
        let builder = Client::builder()
            .user_agent(concat!("acp-tether/", env!("CARGO_PKG_VERSION")))
            .cookie_provider(Arc::clone(&self.jar))
            .dns_resolver(self.addresses.clone())
            .redirect(redirect::Policy::none())
            .referer(false);
        let builder = self.route.taken_by(watched(spoken(builder, protocol)))?;
        let client = self.secured(builder, protocol)?.build();
        client.map_err(|error| Failure::Unsent(reason(error)))
    }

    /// Without TLS the system's certificates are not needed, and are not loaded: that takes time, and
    /// fails where there are none.
    fn secured(
        &self,
        builder: ClientBuilder,
        protocol: Protocol,
    ) -> Result<ClientBuilder, Failure> {
        if self.url.scheme() == "http" && !self.route.begins_with_tls() {
            return Ok(builder.tls_certs_only([]));
        }
        let mut known = lock(&self.handshake);
        let handshake = match &mut *known {
            Some(handshake) => handshake,
            unknown => unknown.insert(Handshake::new(&self.tls).map_err(Failure::Unsent)?),
        };
        let mut config = handshake.config.clone();
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
            Protocol::Negotiated => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        Ok(builder.tls_backend_preconfigured(config))
    }
}

impl Speaker {
    /// The place of a stream that was opened. Over HTTP/1.1 it has a connection of its own.
    pub(super) fn place(self, version: Version) -> Place {
        let open = (version == Version::HTTP_2).then(|| Arc::clone(&self.open));
        Place { _speaker: self, _open: open }
    }

    fn has_room(&self, room: usize) -> bool {
        // One is its own.
        Arc::strong_count(&self.taken) <= room
    }

    fn open_streams(&self) -> usize {
        Arc::strong_count(&self.open) - Arc::strong_count(&self.taken)
    }
}

fn spoken(builder: ClientBuilder, protocol: Protocol) -> ClientBuilder {
    match protocol {
        Protocol::Http1 => builder.http1_only().pool_idle_timeout(IDLE_HTTP1),
        Protocol::Http2 => builder.http2_prior_knowledge().pool_idle_timeout(IDLE),
        Protocol::Negotiated => builder.pool_idle_timeout(IDLE),
    }
}

/// No time limit over a whole request: it would end healthy streams. Dead connections are found by
/// asking the other end.
fn watched(builder: ClientBuilder) -> ClientBuilder {
    let builder = builder
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .tcp_keepalive_interval(KEEP_ALIVE_INTERVAL)
        .tcp_keepalive_retries(KEEP_ALIVE_TRIES)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING_ANSWER)
        .http2_keep_alive_while_idle(true)
        .http2_max_frame_size(FRAME)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW);
    // By default 30 s: it would end a connection whose other end takes its time to read (--post-timeout).
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let builder = builder.tcp_user_timeout(None);
    builder
}

/// The cookies that the person gave in a header stand in the jar: a `Cookie` header of a request
/// would keep the server's own cookies out.
fn jar(remote: &Remote) -> Jar {
    let jar = Jar::default();
    if let Some(header) = remote.headers.get(COOKIE) {
        let text = String::from_utf8_lossy(header.as_bytes());
        for cookie in text.split(';') {
            jar.add_cookie_str(&format!("{}; Path=/", cookie.trim()), &remote.url);
        }
    }
    jar
}
