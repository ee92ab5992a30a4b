//! Asks a remote one thing at a time, for `doctor`, and tells what came of it and where on the way it
//! failed.

use super::answer;
use super::clients::Place;
use super::request::{Failure, MovedTo, reason};
use super::stream::is_stream;
use super::tls::Certificate;
use super::{Link, upgraded};
use crate::core::{Connection, Response, limits};
use crate::wire::sse::{Decoder, Item};
use bytes::Bytes;
use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Upgraded, Url, Version};
use std::collections::VecDeque;
use std::io;

pub(crate) use super::astray::Astray;
pub(crate) use super::route::Trouble as AtProxy;
pub(crate) use super::tls::Trouble as InTls;
pub(crate) use super::trouble::Trouble;

/// Where on the way to the remote something failed, and what is known of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before anything left this machine: there is no credential.
    Credential,
    /// At the proxy.
    Proxy(AtProxy),
    /// While TLS was agreed on.
    Tls(Option<InTls>),
    /// At the remote, which does not speak HTTP/2.
    Version,
    /// At the remote.
    Remote,
    /// At the remote, which answered to the request for a socket, and not as WebSocket has it.
    Upgrade,
}

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// It failed.
    Failed { stage: Stage, reason: String },
    /// It was redirected to where no request of ours follows.
    Redirected { status: u16, astray: Box<Astray> },
}

/// What was answered.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) version: Version,
    /// To where the remote redirected within its origin.
    pub(crate) moved_to: Option<Url>,
    /// Its `Content-Encoding`, where it has one.
    pub(crate) encoding: Option<String>,
}

/// What was answered to a GET of a stream.
#[derive(Debug)]
pub(crate) enum Opened {
    Stream(Box<Stream>),
    Refused(Response),
}

/// A stream that is read as far as somebody asks for more.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its `Content-Encoding`, where it has one.
    pub(crate) encoding: Option<String>,
    /// Its head says how long it is.
    pub(crate) has_length: bool,
    response: reqwest::Response,
    decoder: Decoder,
    items: VecDeque<Item>,
    _place: Place,
}

impl Stream {
    /// What it says next; `Err` tells how it ended. Can be dropped and asked again.
    pub(crate) async fn next(&mut self) -> Result<Item, String> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(item);
            }
            let mut items = Vec::new();
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.decoder.push(chunk, &mut items),
                Ok(None) => return Err("it just ends".to_owned()),
                Err(error) => return Err(reason(error).to_string()),
            }
            self.items.extend(items);
        }
    }
}

impl Link {
    /// The proxy before the remote, as it may be shown.
    pub(crate) fn proxy(&self) -> Option<&str> {
        self.clients.route().proxy()
    }

    /// Whether the proxy reads the requests.
    pub(crate) fn is_read(&self) -> bool {
        self.clients.route().is_read()
    }

    /// What the proxy answers to a request for a tunnel, where there is one that can be asked: a status,
    /// or something else than HTTP.
    pub(crate) async fn answer_of_proxy(&self) -> Option<io::Result<Option<u16>>> {
        let proxy = self.clients.route().to_tunnel()?;
        Some(proxy.answer(&self.remote.url).await)
    }

    /// The certificate that the remote showed last.
    pub(crate) fn certificate(&self) -> Option<Certificate> {
        self.clients.certificate()
    }

    /// Where a failure happened.
    fn stage(&self, failure: &Failure, trouble: Option<&Trouble>) -> Stage {
        match (trouble, failure) {
            (Some(Trouble::Proxy(trouble)), _) => Stage::Proxy(trouble.clone()),
            (Some(Trouble::Tls(trouble)), _) => Stage::Tls(Some(trouble.clone())),
            (Some(Trouble::Http1Only), _) => Stage::Version,
            (Some(Trouble::Astray(_)), _) => Stage::Remote,
            (None, Failure::NoCredential(_)) => Stage::Credential,
            (None, Failure::Unsent(_) | Failure::Broken(_))
                if self.is_tls_open() == Some(false) =>
            {
                Stage::Tls(None)
            }
            (None, _) => Stage::Remote,
        }
    }

    /// Whether TLS came as far as that we believe the remote, where it is spoken.
    pub(crate) fn is_tls_open(&self) -> Option<bool> {
        let is_believed = || self.certificate().is_some_and(|shown| shown.is_believed);
        (self.remote.url.scheme() == "https").then(is_believed)
    }

    /// Whether the certificate of the remote's host is checked.
    pub(crate) fn is_checked(&self) -> bool {
        !self.remote.tls.unchecked.contains(self.remote.url.host_str().unwrap_or_default())
    }

    /// Where the remote is, as HTTP has it.
    pub(crate) fn url(&self) -> &Url {
        &self.remote.url
    }

    /// What tells the remote who we are, or why that cannot be had.
    pub(crate) async fn credential(&self) -> Result<HeaderMap, String> {
        self.headers(false).await.map_err(told)
    }

    /// POSTs a message and reads the answer. The connection that it opens is `named` as soon as its head has come.
    pub(crate) async fn ask(
        &self,
        connection: Option<&Connection>,
        message: String,
        named: impl FnOnce(Option<Bytes>),
    ) -> Result<Answered, Lost> {
        let lost = |failure| self.lost(failure);
        let posted = self.posted(connection, None, false, message.into()).await;
        let response = posted.map_err(lost)?;
        named(answer::head(&response).connection_id);
        let (version, encoding) = (response.version(), answer::encoding(response.headers()));
        let moved_to = response.extensions().get().map(|MovedTo(url)| url.clone());
        let read = answer::read(response, self.remote.max_message_bytes).await;
        Ok(Answered { response: read.map_err(lost)?, version, moved_to, encoding })
    }

    /// Opens the connection's stream.
    pub(crate) async fn listen(
        &self,
        connection: &Connection,
        cursor: Option<&Bytes>,
    ) -> Result<Opened, Lost> {
        let lost = |failure| self.lost(failure);
        let opened = self.opened(connection, None, cursor, false).await;
        let (response, place) = opened.map_err(lost)?;
        if !is_stream(&response) {
            let read = answer::read(response, limits::ERROR_BODY_BYTES).await;
            return read.map(Opened::Refused).map_err(lost);
        }
        Ok(Opened::Stream(Box::new(Stream {
            encoding: answer::encoding(response.headers()),
            has_length: response.headers().contains_key(CONTENT_LENGTH),
            decoder: Decoder::new(self.remote.max_message_bytes),
            items: VecDeque::new(),
            response,
            _place: place,
        })))
    }

    /// Asks for a socket; what comes back is it, or what was answered instead.
    pub(crate) async fn upgrade(&self) -> Result<Result<Upgraded, Response>, Lost> {
        let asked = self.ask_for_socket(false).await;
        let (response, key) = asked.map_err(|failure| self.lost(failure))?;
        let upgraded = upgraded(response, &key)
            .await
            .map_err(|failure| Lost::Failed { stage: Stage::Upgrade, reason: told(failure) })?;
        Ok(upgraded.map(|(socket, ..)| socket))
    }

    /// DELETEs a connection.
    pub(crate) async fn end(&self, connection: &Connection) -> Result<u16, String> {
        self.deleted(connection).await.map(|response| response.status).map_err(told)
    }

    fn lost(&self, failure: Failure) -> Lost {
        let reason = failure.reason();
        match (reason.trouble(), &failure) {
            (Some(Trouble::Astray(astray)), Failure::Redirected { status, .. }) => {
                Lost::Redirected { status: *status, astray: astray.clone() }
            }
            (trouble, _) => {
                Lost::Failed { stage: self.stage(&failure, trouble), reason: reason.to_string() }
            }
        }
    }
}

fn told(failure: Failure) -> String {
    failure.reason().to_string()
}
