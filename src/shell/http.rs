//! Does over HTTP what the core asks for: POSTs, streams, the DELETE. Decides nothing.

mod addresses;
mod answer;
mod astray;
mod body;
mod clients;
pub(crate) mod happy_eyeballs;
pub(crate) mod inspection;
mod probe;
mod request;
mod route;
mod stream;
#[cfg(test)]
pub(super) mod tests;
mod tls;
mod trouble;
mod tunnel;

use self::clients::{Clients, Place, Speaker};
pub(crate) use self::request::Failure;
use self::request::{Key, Outgoing, over_http};
use self::stream::Told;
use super::credentials::Credentials;
use crate::config::{Remote, redacted};
use crate::core::message::{self, Message};
use crate::core::{
    Connection, Event, Generation, Open, Outcome, Post, PostId, Response, SessionId, StreamEvent,
    StreamId, limits,
};
use crate::secrets::Secrets;
use bytes::Bytes;
use reqwest::header::{COOKIE, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Upgraded};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Batches of stream events that may wait for the shell. Past it no stream is read (P6).
pub(super) const BATCHES: usize = 8;

/// What pieces of a stream's body told that came together.
#[derive(Debug)]
pub(super) struct Batch {
    /// The stream.
    pub(super) stream: StreamId,
    /// What happened on it, in order.
    pub(super) events: Vec<StreamEvent>,
}

/// What is under way with the remote.
#[derive(Debug)]
pub(super) struct Http {
    link: Arc<Link>,
    posts: BTreeMap<PostId, AbortHandle>,
    streams: BTreeMap<Generation, AbortHandle>,
    ends: mpsc::UnboundedSender<Event>,
    batches: mpsc::Sender<Batch>,
}

impl Http {
    /// Nothing is under way yet, nor connected. `ends` gets [`Event::Posted`] and
    /// [`Event::Deleted`], `batches` what streams deliver.
    pub(super) fn new(
        remote: Remote,
        ends: mpsc::UnboundedSender<Event>,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        let link = Arc::new(Link::new(remote));
        Self { link, posts: BTreeMap::new(), streams: BTreeMap::new(), ends, batches }
    }

    /// Sends a message; its end arrives.
    pub(super) fn post(&mut self, post: Post) {
        let (link, ends, id) = (Arc::clone(&self.link), self.ends.clone(), post.id);
        let task = tokio::spawn(async move {
            let named = |connection| drop(ends.send(Event::Named(id, connection)));
            let outcome = link.post(post, named).await;
            // Nobody takes it any more: the process is ending.
            let _ = ends.send(Event::Posted(id, outcome));
        });
        self.posts.insert(id, task.abort_handle());
    }

    /// Drops a POST where it stands.
    pub(super) fn abandon(&mut self, id: PostId) {
        if let Some(task) = self.posts.remove(&id) {
            task.abort();
        }
    }

    /// Opens a stream; what happens on it arrives.
    pub(super) fn open(&mut self, open: Open) {
        let (link, batches, generation) =
            (Arc::clone(&self.link), self.batches.clone(), open.stream.generation);
        let task = tokio::spawn(async move { link.stream(open, &batches).await });
        self.streams.insert(generation, task.abort_handle());
    }

    /// Drops a stream where it stands.
    pub(super) fn close(&mut self, stream: &StreamId) {
        if let Some(task) = self.streams.remove(&stream.generation) {
            task.abort();
        }
    }

    /// Ends the connection; the end of that arrives.
    pub(super) fn delete(&self, connection: Connection) {
        let (link, ends) = (Arc::clone(&self.link), self.ends.clone());
        tokio::spawn(async move {
            let outcome = link.deleted(&connection).await;
            let outcome = outcome.map_or_else(Outcome::from, Outcome::Response);
            let _ = ends.send(Event::Deleted(outcome));
        });
    }

    /// Sends nothing new over the connections that are there.
    pub(super) fn begin_anew(&self) {
        self.link.begin_anew();
    }

    /// Whether this is awaited: the end of what was not abandoned, an event of what was not closed.
    /// What was dropped may have been on its way here already.
    pub(super) fn is_awaited(&mut self, event: &Event) -> bool {
        match event {
            Event::Posted(id, _) => self.posts.remove(id).is_some(),
            Event::Stream(stream, event) if is_last(event) => {
                self.streams.remove(&stream.generation).is_some()
            }
            Event::Stream(stream, _) => self.streams.contains_key(&stream.generation),
            _ => true,
        }
    }
}

fn is_last(event: &StreamEvent) -> bool {
    matches!(event, StreamEvent::Refused(_) | StreamEvent::Failed(_) | StreamEvent::Ended(_))
}

/// The remote, and the connections to it.
#[derive(Debug)]
pub(crate) struct Link {
    remote: Remote,
    credentials: Credentials,
    clients: Clients,
}

impl Link {
    /// No connections yet.
    pub(crate) fn new(mut remote: Remote) -> Self {
        remote.url = over_http(remote.url);
        let mut headers = remote.headers.clone();
        // These stand in the cookie jar.
        headers.remove(COOKIE);
        let patience = Duration::from_millis(remote.connect_timeout.0);
        let credentials = Credentials::new(headers, remote.bearer.clone(), patience);
        Self { credentials, clients: Clients::new(&remote), remote }
    }

    /// Sends a message. What its answer opens is `named` as soon as it names that.
    async fn post(&self, post: Post, named: impl Fn(Bytes)) -> Outcome {
        let Post { connection, session, renew_credential, body, .. } = post;
        let (connection, session) = (connection.as_ref(), session.as_ref());
        let limit = self.remote.max_message_bytes;
        let answer = async {
            let opening = connection.is_none().then(|| body.clone());
            let response = self.posted(connection, session, renew_credential, body).await?;
            if connection.is_none() && response.status().is_success() {
                answer::head(&response).connection_id.into_iter().for_each(named);
            }
            match (answer::compression(&response), opening) {
                (None, None) => answer::read(response, limit).await,
                (None, Some(initialize)) => {
                    let opens = |response: &Response| opens(&initialize, response);
                    answer::read_to_show(response, limit, opens).await
                }
                // As one of another type (L3).
                (Some(name), Some(_)) => Ok(answer::compressed(&response, &name)),
                (Some(name), None) => {
                    let reason = format!("its body is compressed as {name:?}, unasked");
                    Err(Failure::Broken(reason.into()))
                }
            }
        };
        answer.await.map_or_else(Outcome::from, Outcome::Response)
    }

    /// What is answered to a message, as far as its head.
    async fn posted(
        &self,
        connection: Option<&Connection>,
        session: Option<&SessionId>,
        renew: bool,
        body: Bytes,
    ) -> Result<reqwest::Response, Failure> {
        let headers = self.headers(renew).await?;
        let outgoing = Outgoing::post(&self.remote.url, headers, body);
        self.response(outgoing.of(connection, session)?).await
    }

    /// What is answered to the DELETE of a connection. Where its credential is refused, one that is read again
    /// may be taken: nobody sends it later.
    async fn deleted(&self, connection: &Connection) -> Result<Response, Failure> {
        let response = self.delete(connection, false).await?;
        let is_refused = response.status == StatusCode::UNAUTHORIZED.as_u16();
        match is_refused && self.credentials.can_change() {
            true => self.delete(connection, true).await,
            false => Ok(response),
        }
    }

    async fn delete(&self, connection: &Connection, renew: bool) -> Result<Response, Failure> {
        let headers = self.headers(renew).await?;
        let outgoing = Outgoing::delete(&self.remote.url, headers).of(Some(connection), None)?;
        answer::read(self.response(outgoing).await?, self.remote.max_message_bytes).await
    }

    /// The headers for one request. Without them nothing leaves.
    async fn headers(&self, renew: bool) -> Result<HeaderMap, Failure> {
        let headers = self.credentials.headers(renew).await;
        headers.map_err(|reason| Failure::NoCredential(reason.into()))
    }

    /// Sends a request. That its credential is refused is remembered; what must not be shown of the answer,
    /// or of what is said on a socket, goes with it.
    async fn send(
        &self,
        outgoing: Outgoing,
        speaker: &Speaker,
    ) -> Result<reqwest::Response, Failure> {
        let credential = outgoing.credential();
        // The answer may replace them.
        let cookies = self.clients.cookies();
        let mut response = outgoing.send(speaker, &self.clients).await?;
        if answer::may_be_shown(&response) {
            let sent = credential.iter().chain(&cookies);
            response.extensions_mut().insert(self.secrets(sent));
        }
        if let Some(credential) = credential
            && response.status() == StatusCode::UNAUTHORIZED
        {
            self.credentials.refused(&credential);
        }
        Ok(response)
    }

    /// What a server may repeat of a request that said by these who sends it.
    fn secrets<'a>(&self, sent: impl Iterator<Item = &'a HeaderValue>) -> Secrets {
        let mut secrets = Secrets::default();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        secrets.spare(&redacted(&self.remote.url));
        sent.for_each(|value| secrets.add(&text(value)));
        self.clients.cookies().iter().for_each(|value| secrets.add(&text(value)));
        self.remote.headers.values().for_each(|value| secrets.add_doubtful(&text(value)));
        let query = self.remote.url.query_pairs();
        query.for_each(|(_, value)| secrets.add_doubtful(&value));
        // And as they were sent.
        let query = self.remote.url.query().unwrap_or_default().split('&');
        query.filter_map(|pair| pair.split_once('=')).for_each(|(_, it)| secrets.add_doubtful(it));
        secrets
    }

    /// Lets what is new go over new connections (L11, E1).
    pub(super) fn begin_anew(&self) {
        self.clients.begin_anew();
    }

    /// What is answered, as far as its head.
    async fn response(&self, outgoing: Outgoing) -> Result<reqwest::Response, Failure> {
        let speaker = self.clients.for_posts(outgoing.length()).await?;
        self.send(outgoing, &speaker).await
    }

    /// Asks for a socket (W1). What comes back is the socket, the name of its connection and what is not to
    /// be shown of what the server says there, or what was answered instead.
    pub(super) async fn socket(
        &self,
        renew: bool,
    ) -> Result<Result<(Upgraded, Option<Bytes>, Secrets), Response>, Failure> {
        let (response, key) = self.ask_for_socket(renew).await?;
        upgraded(response, &key).await
    }

    async fn ask_for_socket(&self, renew: bool) -> Result<(reqwest::Response, Key), Failure> {
        if renew {
            // A socket can refuse it with its close, and is one of its kind.
            self.credentials.last_refused();
        }
        let headers = self.headers(renew).await?;
        let (request, key) = Outgoing::socket(&self.remote.url, headers)?;
        let response = self.send(request, &self.clients.for_sockets()?).await?;
        Ok((response, key))
    }

    /// The size limit of one message.
    pub(crate) fn limit(&self) -> usize {
        self.remote.max_message_bytes
    }

    async fn stream(&self, open: Open, batches: &mpsc::Sender<Batch>) {
        let told = Told { stream: open.stream.clone(), batches };
        let limit = self.remote.max_message_bytes;
        // In a box, so that a stream which is open does not keep the room that its opening took.
        let opened = Box::pin(async move {
            let Open { stream, connection, cursor, renew_credential } = &open;
            let session = stream.session.as_ref();
            self.opened(connection, session, cursor.as_ref(), *renew_credential).await
        });
        match opened.await {
            Ok((response, _place)) => stream::read(response, limit, &told).await,
            Err(failure) => told.tell(vec![StreamEvent::Failed(failure.into())]).await,
        }
    }

    /// What is answered to a GET of a stream, and the place of that stream.
    async fn opened(
        &self,
        connection: &Connection,
        session: Option<&SessionId>,
        cursor: Option<&Bytes>,
        renew: bool,
    ) -> Result<(reqwest::Response, Place), Failure> {
        let speaker = self.clients.for_stream(session).await?;
        let outgoing = Outgoing::stream(&self.remote.url, self.headers(renew).await?)
            .of(Some(connection), session)?
            .from(cursor, self.remote.cursor_in_query)?;
        let sent = self.clients.unless_full(&speaker, self.send(outgoing, &speaker));
        let full = "no answer beside the streams that are open on its connection; there may be room for no more";
        let response = sent.await.unwrap_or_else(|| Err(Failure::Broken(full.into())))?;
        let place = speaker.place(response.version());
        Ok((response, place))
    }
}

/// Whether a response goes to the editor as it came: the answer to this `initialize`, which is an error or
/// names a connection (L2).
fn opens(initialize: &[u8], response: &Response) -> bool {
    let has_connection = response.connection_id.as_ref().is_some_and(|id| !id.is_empty());
    match (message::read(initialize), message::read(&response.body)) {
        (Ok(Message::Request { id, .. }), Ok(Message::Answer { id: answered, is_error })) => {
            id.key() == answered.key() && (is_error || has_connection)
        }
        _ => false,
    }
}

/// What an upgrade was answered with: the socket, the name of its connection and the secrets of who
/// asked for it, or a refusal.
async fn upgraded(
    response: reqwest::Response,
    key: &Key,
) -> Result<Result<(Upgraded, Option<Bytes>, Secrets), Response>, Failure> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let read = answer::read_to_show(response, limits::ERROR_BODY_BYTES, |_| false);
        return read.await.map(Err);
    }
    let head = answer::head(&response);
    if !key.is_accepted(response.headers()) {
        let reason = "the answer to the upgrade is not one of WebSocket";
        return Err(Failure::Broken(reason.into()));
    }
    let secrets = response.extensions().get().cloned().unwrap_or_default();
    let socket = response.upgrade().await?;
    Ok(Ok((socket, head.connection_id, secrets)))
}
