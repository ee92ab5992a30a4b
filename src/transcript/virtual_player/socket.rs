//! Decides what the core hears of a scripted socket, as the shell tells it of a real one.

use super::CUT;
use crate::core::message::{self, Message};
use crate::core::{End, Event, Outcome, Post, PostId, Response, StreamEvent, StreamId};
use crate::wire::websocket;
use bytes::Bytes;

/// A socket that the core asked for.
pub(super) struct Socket {
    /// The `initialize` that asked for it, until it is answered.
    pub(super) opener: Option<PostId>,
    pub(super) initialize: Bytes,
    pub(super) connection_id: Option<Bytes>,
    /// Which stream it is, once the core says so, and what came before that.
    pub(super) stream: Option<StreamId>,
    pub(super) before: Vec<StreamEvent>,
    decoder: websocket::Decoder,
}

impl Socket {
    pub(super) fn new(post: Post, limit: usize) -> Self {
        Self {
            opener: Some(post.id),
            initialize: post.body,
            connection_id: None,
            stream: None,
            before: Vec::new(),
            decoder: websocket::Decoder::new(limit),
        }
    }

    /// What the core hears of bytes, as the shell tells it.
    pub(super) fn hear(&mut self, bytes: Bytes) -> Vec<Event> {
        let mut items = Vec::new();
        // The remote is played by this program: it writes frames as they must be.
        let _ = self.decoder.push(bytes, &mut items);
        items.into_iter().filter_map(|item| self.event(item)).collect()
    }

    fn event(&mut self, item: websocket::Item) -> Option<Event> {
        use websocket::Item;
        match (self.opener, item) {
            (_, Item::Close(code, reason)) => self.ended(End::closed(code, reason)),
            (Some(_), Item::Text(text))
                if matches!(message::read(&text), Ok(Message::Answer { .. })) =>
            {
                self.answered(text, false)
            }
            (Some(_), Item::TooLarge) => self.answered(Bytes::new(), true),
            (Some(_), Item::Binary | Item::Ping(_) | Item::Pong) => None,
            (_, Item::Text(data)) => self.told(StreamEvent::Message { data: Some(data), id: None }),
            (None, Item::TooLarge) => self.told(StreamEvent::TooLarge),
            (None, Item::Binary | Item::Ping(_) | Item::Pong) => self.told(StreamEvent::Comment),
        }
    }

    fn answered(&mut self, body: Bytes, truncated: bool) -> Option<Event> {
        let response = Response {
            status: 101,
            content_type: "application/json".to_owned(),
            connection_id: self.connection_id.clone(),
            body,
            truncated,
            ..Response::default()
        };
        Some(Event::Posted(self.opener.take()?, Outcome::Response(response)))
    }

    fn told(&mut self, event: StreamEvent) -> Option<Event> {
        match &self.stream {
            Some(stream) => Some(Event::Stream(stream.clone(), event)),
            None => {
                self.before.push(event);
                None
            }
        }
    }

    pub(super) fn ended(&mut self, end: End) -> Option<Event> {
        match (self.opener.take(), end) {
            (None, end) => {
                let stream = self.stream.take()?;
                Some(Event::Stream(stream, StreamEvent::Ended(end)))
            }
            (Some(id), End::Closed(close)) => Some(Event::Posted(id, Outcome::Closed(close))),
            (Some(id), _) => Some(Event::Posted(id, Outcome::Broken(CUT.to_owned()))),
        }
    }
}
