//! The way to the remote: Streamable HTTP, or one WebSocket.

use super::http::{Batch, Http};
use super::websocket::WebSocket;
use crate::config::Remote;
use crate::core::{Connection, Event, Open, Post, PostId, StreamId, socket};
use tokio::sync::mpsc;

/// What is under way with the remote.
#[derive(Debug)]
pub(super) enum Transport {
    Http(Http),
    WebSocket(WebSocket),
}

impl Transport {
    /// Nothing is under way yet, nor connected. `ends` gets [`Event::Posted`] and [`Event::Deleted`],
    /// `batches` what streams deliver.
    pub(super) fn new(
        remote: Remote,
        ends: mpsc::UnboundedSender<Event>,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        match remote.transport() {
            socket::Transport::Http => Self::Http(Http::new(remote, ends, batches)),
            socket::Transport::WebSocket => Self::WebSocket(WebSocket::new(remote, ends, batches)),
        }
    }

    pub(super) fn post(&mut self, post: Post) {
        match self {
            Self::Http(http) => http.post(post),
            Self::WebSocket(socket) => socket.post(post),
        }
    }

    pub(super) fn abandon(&mut self, id: PostId) {
        match self {
            Self::Http(http) => http.abandon(id),
            Self::WebSocket(socket) => socket.abandon(id),
        }
    }

    pub(super) fn open(&mut self, open: Open) {
        match self {
            Self::Http(http) => http.open(open),
            Self::WebSocket(socket) => socket.open(open),
        }
    }

    pub(super) fn close(&mut self, stream: &StreamId) {
        match self {
            Self::Http(http) => http.close(stream),
            Self::WebSocket(socket) => socket.close(stream),
        }
    }

    /// HTTP has its own pings.
    pub(super) fn ping(&mut self, stream: &StreamId) {
        match self {
            Self::Http(_) => {}
            Self::WebSocket(socket) => socket.ping(stream),
        }
    }

    pub(super) fn delete(&mut self, connection: Connection) {
        match self {
            Self::Http(http) => http.delete(connection),
            Self::WebSocket(socket) => socket.delete(),
        }
    }

    /// Whether this is awaited: what was dropped may have been on its way here already.
    pub(super) fn is_awaited(&mut self, event: &Event) -> bool {
        match self {
            Self::Http(http) => http.is_awaited(event),
            Self::WebSocket(socket) => socket.is_awaited(event),
        }
    }
}
