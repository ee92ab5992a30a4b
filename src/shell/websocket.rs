//! Does over one socket what the core asks for (W). Decides nothing.

mod life;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use super::http::{Batch, Link};
use crate::config::Remote;
use crate::core::{
    Event, Generation, Open, Outcome, Post, PostId, Response, StreamEvent, StreamId,
};
use life::Opening;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use writer::{Controls, Outgoing, Queue, unsent};

/// What is under way with the remote.
#[derive(Debug)]
pub(super) struct WebSocket {
    link: Arc<Link>,
    socket: Option<Socket>,
    /// The messages that are being written, or `initialize`.
    posts: BTreeSet<PostId>,
    ends: mpsc::UnboundedSender<Event>,
    batches: mpsc::Sender<Batch>,
}

/// One socket, from the request for it on.
#[derive(Debug)]
struct Socket {
    /// The POST of `initialize` that asked for it.
    opener: PostId,
    /// Which stream it is, once the core says so.
    generation: Option<Generation>,
    /// Takes that. Where it is dropped, nobody needs the socket.
    opened: Option<oneshot::Sender<StreamId>>,
    messages: mpsc::UnboundedSender<Outgoing>,
    controls: Arc<Controls>,
    /// We are closing it; the end of that is awaited.
    is_closing: bool,
    task: AbortHandle,
}

impl WebSocket {
    /// Nothing is under way yet. `ends` gets [`Event::Posted`] and [`Event::Deleted`], `batches` what
    /// the socket delivers.
    pub(super) fn new(
        remote: Remote,
        ends: mpsc::UnboundedSender<Event>,
        batches: mpsc::Sender<Batch>,
    ) -> Self {
        let link = Arc::new(Link::new(remote));
        Self { link, socket: None, posts: BTreeSet::new(), ends, batches }
    }

    /// Sends a message; its end arrives. Without a connection it is an `initialize`, for a new socket.
    pub(super) fn post(&mut self, post: Post) {
        self.posts.insert(post.id);
        if post.connection.is_none() {
            return self.ask_for_socket(post);
        }
        let id = post.id;
        let sent = self.send(Outgoing::Message(id, post.body));
        if !sent {
            // Nobody takes it any more: the process is ending.
            let _ = self.ends.send(Event::Posted(id, unsent()));
        }
    }

    fn ask_for_socket(&mut self, post: Post) {
        self.drop_socket();
        let (messages, outgoing) = mpsc::unbounded_channel();
        let controls = Arc::new(Controls::default());
        let (opened, stream) = oneshot::channel();
        let opener = post.id;
        let opening = Opening {
            link: Arc::clone(&self.link),
            ends: self.ends.clone(),
            batches: self.batches.clone(),
        };
        let queue = Queue { messages: outgoing, controls: Arc::clone(&controls) };
        let task = tokio::spawn(opening.live(post, stream, queue)).abort_handle();
        self.socket = Some(Socket {
            opener,
            generation: None,
            opened: Some(opened),
            messages,
            controls,
            is_closing: false,
            task,
        });
    }

    fn send(&self, outgoing: Outgoing) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.messages.send(outgoing).is_ok())
    }

    /// Drops the end of a message; where that is `initialize`, the socket with it. What is being
    /// written is written on: half a message would end the socket.
    pub(super) fn abandon(&mut self, id: PostId) {
        self.posts.remove(&id);
        if self.socket.as_ref().is_some_and(|it| it.opener == id && it.opened.is_some()) {
            self.drop_socket();
        }
    }

    /// What the socket delivers arrives from here on.
    pub(super) fn open(&mut self, open: Open) {
        if let Some(socket) = &mut self.socket
            && let Some(opened) = socket.opened.take()
        {
            socket.generation = Some(open.stream.generation);
            // It has ended already, which it tells of.
            let _ = opened.send(open.stream);
        }
    }

    /// Drops the socket where it stands.
    pub(super) fn close(&mut self, stream: &StreamId) {
        if self.is_of(stream) {
            self.drop_socket();
        }
    }

    /// Asks the server for a sign of life.
    pub(super) fn ping(&mut self, stream: &StreamId) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.is_of(stream)) {
            socket.controls.ping();
        }
    }

    /// Closes the socket as the protocol has it; the end of that arrives.
    pub(super) fn delete(&mut self) {
        let is_sent = self.send(Outgoing::Close);
        if let Some(socket) = self.socket.as_mut().filter(|it| is_sent && it.generation.is_some()) {
            socket.is_closing = true;
            return;
        }
        self.socket = None;
        let _ = self.ends.send(deleted());
    }

    /// Asks for no new socket over the connections that are there.
    pub(super) fn begin_anew(&self) {
        self.link.begin_anew();
    }

    /// Whether this is awaited: what was dropped may have been on its way here already.
    pub(super) fn is_awaited(&mut self, event: &Event) -> bool {
        match event {
            Event::Posted(id, _) => self.posts.remove(id),
            Event::Writing(id) => self.posts.contains(id),
            Event::Stream(stream, StreamEvent::Ended(_)) => {
                let is_ours = self.is_of(stream);
                let ended = self.socket.take_if(|_| is_ours);
                if ended.is_some_and(|socket| socket.is_closing) {
                    let _ = self.ends.send(deleted());
                }
                is_ours
            }
            Event::Stream(stream, _) => self.is_of(stream),
            _ => true,
        }
    }

    fn is_of(&self, stream: &StreamId) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.generation == Some(stream.generation))
    }

    fn drop_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.task.abort();
        }
    }
}

fn deleted() -> Event {
    Event::Deleted(Outcome::Response(Response { status: 204, ..Response::default() }))
}
