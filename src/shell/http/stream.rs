//! Reads one stream of the remote and tells what happens on it.

use super::Batch;
use super::answer;
use super::body::Body;
use super::request::reason;
use crate::core::{End, Millis, StreamEvent, StreamId};
use crate::wire::sse::{Decoder, Item};
use futures_util::FutureExt;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use tokio::sync::mpsc;

/// The end of the name of the header that tells a server's numbering of events (R5).
const EVENT_EPOCH: &str = "-event-epoch";

/// Bytes of a stream that go on together where they came together: a server makes a piece of each event.
const TOGETHER: usize = 16 * 1024;

/// Reads the answer to a GET of a stream to its end.
pub(super) async fn read(response: Response, limit: usize, told: &Told<'_>) {
    if !is_stream(&response) {
        let refused = match answer::read_to_show(response, limit, |_| false).await {
            Ok(response) => StreamEvent::Refused(response),
            Err(failure) => StreamEvent::Failed(failure.into()),
        };
        return told.tell(vec![refused]).await;
    }
    if let Some(name) = answer::compression(&response) {
        let refused = StreamEvent::Refused(answer::compressed(&response, &name));
        return told.tell(vec![refused]).await;
    }
    let event_epoch = event_epoch(response.headers());
    told.tell(vec![StreamEvent::Opened { event_epoch }]).await;
    let end = read_events(response, Decoder::new(limit), told).await;
    told.tell(vec![StreamEvent::Ended(end)]).await;
}

/// Who is told what happens on a stream.
#[derive(Debug)]
pub(super) struct Told<'a> {
    /// The stream.
    pub(super) stream: StreamId,
    /// Where what happens is taken from.
    pub(super) batches: &'a mpsc::Sender<Batch>,
}

impl Told<'_> {
    /// Waits where there is no room, so that the stream is not read on and the remote waits too
    /// (P6).
    pub(super) async fn tell(&self, events: Vec<StreamEvent>) {
        let stream = self.stream.clone();
        // Nobody takes batches any more: the process is ending, and this task with it.
        let _ = self.batches.send(Batch { stream, events }).await;
    }
}

async fn read_events(response: Response, mut decoder: Decoder, told: &Told<'_>) -> End {
    let mut body = Body::of(response);
    let mut items = Vec::new();
    loop {
        let mut next = Some(body.next().await);
        let mut taken = 0;
        while let Some(Some(Ok(piece))) = next {
            taken += piece.len();
            decoder.push(piece, &mut items);
            next = (taken < TOGETHER).then(|| body.next().now_or_never()).flatten();
        }
        match items.is_empty() {
            true if taken > 0 && decoder.is_within_event() => {
                told.tell(vec![StreamEvent::Progress]).await
            }
            true => {}
            false => told.tell(items.drain(..).map(StreamEvent::from).collect()).await,
        }
        match next {
            // More is still to come.
            None => {}
            Some(Some(Err(error))) => return End::Broken(reason(error).to_string()),
            Some(_) => {
                // A proxy may end in order what its own upstream did not.
                let cut = decoder.is_within_event().then_some("it ended within an event");
                let trouble = body.ending().trouble().or(cut);
                return trouble.map_or(End::Clean, |why| End::Broken(why.to_owned()));
            }
        }
    }
}

impl From<Item> for StreamEvent {
    fn from(item: Item) -> Self {
        match item {
            Item::Event { data, id } => Self::Message { data, id },
            Item::TooLarge => Self::TooLarge,
            Item::Comment => Self::Comment,
            Item::Retry(milliseconds) => Self::Retry(Millis(milliseconds)),
        }
    }
}

pub(super) fn is_stream(response: &Response) -> bool {
    let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::OK && answer::is_media_type(content_type, "text/event-stream")
}

fn event_epoch(headers: &HeaderMap) -> Option<bytes::Bytes> {
    let (_, value) = headers.iter().find(|(name, _)| name.as_str().ends_with(EVENT_EPOCH))?;
    Some(bytes::Bytes::copy_from_slice(value.as_bytes()))
}
