//! The way to the remote: Streamable HTTP, or one WebSocket.

use super::http::{Batch, Http};
use super::websocket::WebSocket;
use crate::config::Remote;
use crate::core::{Effect, Event, socket};
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

    /// Does what is to be done with the remote; the rest is for the shell itself.
    pub(super) fn perform(&mut self, effect: Effect) {
        match (self, effect) {
            (Self::Http(http), Effect::Post(post)) => http.post(post),
            (Self::Http(http), Effect::Abandon(id)) => http.abandon(id),
            (Self::Http(http), Effect::Open(open)) => http.open(open),
            (Self::Http(http), Effect::Close(stream)) => http.close(&stream),
            (Self::Http(_), Effect::Ping(_)) => {} // It has its own.
            (Self::Http(http), Effect::Delete(connection)) => http.delete(connection),
            (Self::WebSocket(socket), Effect::Post(post)) => socket.post(post),
            (Self::WebSocket(socket), Effect::Abandon(id)) => socket.abandon(id),
            (Self::WebSocket(socket), Effect::Open(open)) => socket.open(open),
            (Self::WebSocket(socket), Effect::Close(stream)) => socket.close(&stream),
            (Self::WebSocket(socket), Effect::Ping(stream)) => socket.ping(&stream),
            (Self::WebSocket(socket), Effect::Delete(_)) => socket.delete(),
            (_, Effect::Line(_) | Effect::Log(..) | Effect::Exit) => {}
            (_, Effect::Reply(..) | Effect::Changed | Effect::Rpc(..)) => {}
        }
    }

    /// Sends nothing new over the connections that are there.
    pub(super) fn begin_anew(&self) {
        match self {
            Self::Http(http) => http.begin_anew(),
            Self::WebSocket(socket) => socket.begin_anew(),
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
