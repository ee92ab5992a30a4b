//! Gathers the facts of each step, in the order in which a message meets them, and closes what it
//! opened.

mod addresses;
mod streams;

use super::certificate;
use super::report::{Finding, Report, Step};
use super::socket::{Heard, Socket};
use super::verdicts::{self, Capabilities, Context, Exchange, Reply, Shown};
use crate::config::{Remote, redacted};
use crate::core::message::{self, Message};
use crate::core::methods::{initialize, negotiated};
use crate::core::socket::Transport;
use crate::core::{Connection, Response};
use crate::shell::http::Link;
use crate::shell::http::inspection::{Answered, AtProxy, Lost, Stage};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Url, Version};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::lookup_host;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a name and a credential may take.
const NAME: Duration = Duration::from_secs(4);
const CREDENTIAL: Duration = Duration::from_secs(10);
/// How long an answer may take on the stream, and a request of no weight.
const ANSWER: Duration = Duration::from_secs(4);
/// How long what is held back may take to come when the connection ends.
const REST: Duration = Duration::from_secs(2);
/// The port of a SOCKS proxy whose URL names none.
const SOCKS: u16 = 1080;

/// One look at one agent.
pub struct Examination<'a> {
    context: Context,
    link: Arc<Link>,
    /// How long the agent may take to answer.
    patience: Duration,
    /// How long its stream is watched.
    watched: Duration,
    report: &'a mut Report,
    /// The connection that is open.
    connection: Option<Connection>,
    /// The socket that is open.
    socket: Option<Socket>,
    asked: usize,
    /// How the connection was closed, if it was before its time.
    closing: Option<(Finding, Duration)>,
    /// The first message while it is on its way: its answer may open a connection.
    beginning: Option<JoinHandle<Result<Answered, Lost>>>,
    /// The connection that the head of this answer names, once that came.
    begun: Begun,
}

/// Inside, what a head named.
type Begun = Arc<OnceLock<Option<Bytes>>>;

impl<'a> Examination<'a> {
    /// Nothing is looked at yet.
    pub fn new(
        remote: Remote,
        patience: Duration,
        watched: Duration,
        report: &'a mut Report,
    ) -> Self {
        let is_socket = remote.transport() == Transport::WebSocket;
        let sent = sent(&remote);
        hide(report, &remote.headers);
        remote.url.query_pairs().for_each(|(_, value)| report.hide(&value));
        let link = Arc::new(Link::new(remote));
        let (url, proxy) = (link.url().clone(), link.proxy().map(str::to_owned));
        report.spare(&redacted(&url));
        proxy.iter().for_each(|proxy| report.spare(proxy));
        let context = Context { url, proxy, is_read: link.is_read(), sent, is_socket };
        Self {
            context,
            link,
            patience,
            watched,
            report,
            connection: None,
            socket: None,
            asked: 0,
            closing: None,
            beginning: None,
            begun: Begun::default(),
        }
    }

    /// Looks at everything, as far as it makes sense.
    pub async fn run(&mut self) {
        let Some(exchange) = self.reach().await else { return };
        let answered = match exchange {
            Exchange::Answered(answered) if !self.context.is_socket => answered,
            exchange => {
                self.look_at_socket(&exchange).await;
                return;
            }
        };
        let Some(offered) = self.begin(&answered) else { return };
        let Some(connection) = self.connection.clone() else { return };
        self.look_at_stream(&connection, offered).await;
        self.ask_for_socket().await;
    }

    /// Closes the connection, if one is open.
    pub async fn close(mut self) {
        self.answered(REST).await;
        if self.beginning.is_some() {
            // Its answer does not end, and the connection is there.
            let named = self.begun.get().cloned().flatten();
            self.connection = named.map(|id| Connection { id, version: None });
        }
        let begun = Instant::now();
        let finding = match (self.socket.take(), self.connection.take()) {
            (Some(socket), _) => verdicts::socket_closing(&socket.close().await),
            (None, Some(connection)) => verdicts::closing(&self.end(&connection).await),
            (None, None) => {
                if let Some((finding, took)) = self.closing {
                    self.report.add(Step::Closing, finding, took);
                }
                return;
            }
        };
        self.report.add(Step::Closing, finding, begun.elapsed());
    }

    async fn end(&self, connection: &Connection) -> Result<u16, String> {
        match timeout(ANSWER, self.link.end(connection)).await {
            Ok(ended) => ended,
            Err(_) => Err("it takes too long".to_owned()),
        }
    }

    /// From here to what the agent answers first.
    async fn reach(&mut self) -> Option<Exchange> {
        let begun = Instant::now();
        let result = match timeout(CREDENTIAL, self.link.credential()).await {
            Ok(result) => result,
            Err(_) => Err("the token takes too long to come".to_owned()),
        };
        let result = result.map(|headers| hide(self.report, &headers));
        let finding = verdicts::credential(&self.context, result);
        self.add(Step::Credential, finding, begun)?;
        self.connect().await?;
        let begun = Instant::now();
        let exchange = match self.context.is_socket {
            true => self.upgrade().await,
            false => self.exchange().await,
        };
        let took = begun.elapsed();
        let certificate = self.link.certificate();
        let secured = certificate.as_ref().map(|shown| shown.at - begun).unwrap_or_default();
        let shown = certificate.and_then(|certificate| {
            let (issuer, until) = certificate::read(&certificate.der)?;
            Some(Shown { issuer, until, is_checked: self.link.is_checked() })
        });
        let answer = self.answer_of_proxy(&exchange).await;
        let context = &self.context;
        let findings = [
            (Step::Proxy, verdicts::proxy(context, &exchange, answer.as_ref()), Duration::ZERO),
            (
                Step::Tls,
                verdicts::tls(context, &exchange, shown.as_ref(), SystemTime::now()),
                secured,
            ),
            (Step::Redirect, verdicts::redirect(context, &exchange), Duration::ZERO),
            (Step::SignIn, verdicts::sign_in(context, &exchange), Duration::ZERO),
            (Step::Path, verdicts::path(context, &exchange), Duration::ZERO),
            (Step::Status, verdicts::status(context, &exchange), took - secured),
        ];
        for (step, finding, took) in findings {
            self.report.add(step, finding, took).then_some(())?;
        }
        Some(exchange)
    }

    /// A TCP connection to the agent, or to the proxy before it.
    async fn connect(&mut self) -> Option<()> {
        let proxy = self.context.proxy.as_ref().and_then(|proxy| Url::parse(proxy).ok());
        let goal = proxy.as_ref().unwrap_or(&self.context.url);
        let host = goal.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = goal.port_or_known_default().unwrap_or(SOCKS);
        let begun = Instant::now();
        let found = match timeout(NAME, lookup_host((host.as_str(), port))).await {
            Ok(Ok(addresses)) => Ok(addresses.collect::<Vec<_>>()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("nobody answers who it is".to_owned()),
        };
        let ips = found.as_ref().map(|all| all.iter().map(SocketAddr::ip).collect::<Vec<IpAddr>>());
        let finding = verdicts::name(&self.context, &host, &ips.map_err(Clone::clone));
        self.add(Step::Name, finding, begun)?;
        let begun = Instant::now();
        let reached = addresses::reach_any(&found.unwrap_or_default()).await;
        let finding = verdicts::tcp(&self.context, &format!("{host}:{port}"), reached);
        self.add(Step::Tcp, finding, begun)
    }

    /// What a proxy answers that opens no tunnel.
    async fn answer_of_proxy(&self, exchange: &Exchange) -> Option<verdicts::AnswerOfProxy> {
        let Exchange::Lost(Lost::Failed { stage: Stage::Proxy(AtProxy::Refuses { .. }), .. }) =
            exchange
        else {
            return None;
        };
        timeout(ANSWER, self.link.answer_of_proxy()).await.ok()?
    }

    /// The first message, and what comes of it.
    async fn exchange(&mut self) -> Exchange {
        let (id, link, begun) = (self.id(), Arc::clone(&self.link), Arc::clone(&self.begun));
        self.beginning = Some(tokio::spawn(async move {
            link.ask(None, initialize(&id), |named| drop(begun.set(named))).await
        }));
        match self.answered(self.patience).await {
            Some(Ok(answered)) => Exchange::Answered(answered),
            Some(Err(lost)) => Exchange::Lost(lost),
            None if self.begun.get().is_some() => Exchange::Endless(self.patience),
            None => Exchange::Silent(self.patience, self.link.is_tls_open()),
        }
    }

    /// The answer to the first message, if it comes in this time. It may open a connection.
    async fn answered(&mut self, patience: Duration) -> Option<Result<Answered, Lost>> {
        let answered = timeout(patience, self.beginning.as_mut()?).await.ok()?.ok();
        self.beginning = None;
        if let Some(Ok(Answered { response, .. })) = &answered {
            let (version, _) = negotiated(&response.body);
            let named = response.connection_id.clone();
            self.connection = named.map(|id| Connection { id, version });
        }
        answered
    }

    /// The same, where it is a socket that is asked for.
    async fn upgrade(&mut self) -> Exchange {
        match timeout(self.patience, self.link.upgrade()).await {
            Ok(Ok(Ok(socket))) => {
                self.socket = Some(Socket::new(socket, self.link.limit()));
                Exchange::Upgraded
            }
            Ok(Ok(Err(response))) => {
                let version = Version::HTTP_11;
                Exchange::Answered(Answered { response, version, moved_to: None, encoding: None })
            }
            Ok(Err(lost)) => Exchange::Lost(lost),
            Err(_) => Exchange::Silent(self.patience, self.link.is_tls_open()),
        }
    }

    /// What the agent says of itself.
    fn begin(&mut self, answered: &Answered) -> Option<Capabilities> {
        self.add(Step::Http, verdicts::http(answered.version), Instant::now())?;
        let Response { body, content_type, truncated, .. } = &answered.response;
        let reply = Reply {
            id: &self.last_id(),
            answer: body,
            content_type,
            encoding: answered.encoding.as_deref(),
            is_cut: *truncated,
            has_connection: self.connection.is_some(),
        };
        self.begun(reply, Instant::now())
    }

    fn begun(&mut self, reply: Reply<'_>, begun: Instant) -> Option<Capabilities> {
        self.add(Step::Initialize, verdicts::initialize(reply), begun)?;
        let offered = Capabilities::of(reply.answer);
        self.add(Step::Capabilities, verdicts::capabilities(offered), Instant::now())?;
        Some(offered)
    }

    /// Whether there is a socket, and what the agent says over it.
    async fn look_at_socket(&mut self, exchange: &Exchange) -> Option<()> {
        let offer = match exchange {
            Exchange::Answered(answered) => Err(verdicts::said(&answered.response)),
            Exchange::Lost(lost) => Err(verdicts::reason(lost)),
            Exchange::Upgraded | Exchange::Silent(..) | Exchange::Endless(_) => Ok(()),
        };
        self.add(Step::Websocket, verdicts::websocket(&offer, true), Instant::now())?;
        let (id, begun) = (self.id(), Instant::now());
        let heard = timeout(self.patience, self.socket.as_mut()?.answer_to_initialize(&id)).await;
        let finding = match heard {
            Ok(Ok(Heard::Answer { text, is_cut })) => {
                let (content_type, encoding) = ("application/json", None);
                let has_connection = true;
                let answer = &text;
                let reply =
                    Reply { id: &id, answer, content_type, encoding, is_cut, has_connection };
                return self.begun(reply, begun).map(|_| ());
            }
            Ok(Ok(Heard::Close(close))) => verdicts::closed(&self.context, &close),
            Ok(Err(error)) => verdicts::unanswered(&error.to_string()),
            Err(_) => verdicts::unanswered("it takes too long"),
        };
        self.add(Step::Initialize, finding, begun)
    }

    /// Whether the agent speaks WebSocket.
    async fn ask_for_socket(&mut self) {
        let begun = Instant::now();
        let offer = match timeout(ANSWER, self.link.upgrade()).await {
            Ok(Ok(Ok(socket))) => {
                // Nothing was begun on it: the server forgets it in any case.
                let _ = Socket::new(socket, self.link.limit()).close().await;
                Ok(())
            }
            Ok(Ok(Err(response))) => Err(response.status.to_string()),
            Ok(Err(lost)) => Err(verdicts::reason(&lost)),
            Err(_) => Err("no answer".to_owned()),
        };
        let finding = verdicts::websocket(&offer, false);
        self.report.add(Step::Websocket, finding, begun.elapsed());
    }

    /// A fresh id for a request.
    fn id(&mut self) -> String {
        self.asked += 1;
        self.last_id()
    }

    fn last_id(&self) -> String {
        format!("{OURS}{}", self.asked)
    }

    fn add(&mut self, step: Step, finding: Finding, begun: Instant) -> Option<()> {
        self.report.add(step, finding, begun.elapsed()).then_some(())
    }
}

/// What the ids of our requests begin with.
const OURS: &str = "acp-tether-doctor-";

/// Whether a message answers the request of this id.
pub(super) fn answers(message: &[u8], id: &str) -> bool {
    let raw = format!("\"{id}\"");
    matches!(message::read(message), Ok(Message::Answer { id, .. }) if id.raw() == raw)
}

/// Shows none of these values.
fn hide(report: &mut Report, headers: &HeaderMap) {
    headers.values().for_each(|value| report.hide(&String::from_utf8_lossy(value.as_bytes())));
}

/// What tells the agent who we are, without a value (X1).
fn sent(remote: &Remote) -> Vec<String> {
    let flag = remote.bearer.iter().map(|bearer| bearer.flag().to_owned());
    let headers = remote.headers.keys().map(|name| format!("--header {name}"));
    flag.chain(headers).collect()
}
