//! The life of one socket, in one task: from the upgrade to its end.
//!
//! Only what is read tells the core that the socket has ended: a server that closes may have said why
//! before our write failed.

use super::super::http::{Batch, Link};
use super::deleted;
use super::reader::{Ended, Reader};
use super::writer::{Queue, Writer, broken};
use crate::core::socket::Close;
use crate::core::{End, Event, Outcome, Post, Response, StreamEvent, StreamId};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::split;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How long after a failed write, or after our own close, the server may be silent before the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the task of a socket needs.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) link: Arc<Link>,
    pub(super) ends: mpsc::UnboundedSender<Event>,
    pub(super) batches: mpsc::Sender<Batch>,
}

impl Opening {
    /// The life of a socket. `stream` says which it is, once the core knows.
    pub(super) async fn live(
        self,
        post: Post,
        stream: oneshot::Receiver<StreamId>,
        mut queue: Queue,
    ) {
        let id = post.id;
        let (reader, mut writer, response) = match self.initialize(post, &queue).await {
            Ok(opened) => opened,
            Err(outcome) => return drop(self.ends.send(Event::Posted(id, outcome))),
        };
        // Where nobody takes events any more, the process is ending. So everywhere below.
        let _ = self.ends.send(Event::Posted(id, Outcome::Response(response)));
        let Ok(stream) = stream.await else { return writer.close(Close::NORMAL).await };
        let mut reading = pin!(reader.run(&stream, &self.batches));
        let (end, code) = tokio::select! {
            ended = &mut reading => ended,
            written = writer.run(&mut queue, &self.ends) => {
                let last = last_words(reading, &self.batches).await;
                if written.is_ok() {
                    // We closed it.
                    return drop(self.ends.send(deleted()));
                }
                last.unwrap_or((End::Broken("it takes no messages any more".to_owned()), None))
            }
        };
        queue.give_back(&self.ends);
        if let Some(code) = code {
            writer.close(code).await;
        }
        let ended = Batch { stream: stream.clone(), events: vec![StreamEvent::Ended(end)] };
        let _ = self.batches.send(ended).await;
    }

    /// Asks for the socket, and on it for the connection.
    async fn initialize(
        &self,
        post: Post,
        queue: &Queue,
    ) -> Result<(Reader, Writer, Response), Outcome> {
        let (socket, connection_id, secrets) = match self.link.socket(post.renew_credential).await?
        {
            Ok(opened) => opened,
            Err(response) => return Err(Outcome::Response(response)),
        };
        let (read, write) = split(socket);
        let mut writer = Writer::new(write);
        let mut reader = Reader::new(read, self.link.limit(), Arc::clone(&queue.controls), secrets);
        writer.message(&post.body, &queue.controls, || {}).await.map_err(broken)?;
        let (body, truncated) = reader.answer(&mut writer).await?;
        let response = Response {
            status: 101,
            content_type: "application/json".to_owned(),
            connection_id,
            body,
            truncated,
            ..Response::default()
        };
        Ok((reader, writer, response))
    }
}

/// How the server ends the socket that we write to no more; `None` where it says nothing. While what it
/// said finds no room, its silence is ours.
async fn last_words(
    mut reading: Pin<&mut impl Future<Output = Ended>>,
    batches: &mpsc::Sender<Batch>,
) -> Option<Ended> {
    loop {
        match timeout(LAST_WORDS, &mut reading).await {
            Ok(ended) => return Some(ended),
            Err(_) if batches.capacity() == 0 => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Epoch, Generation};
    use std::future::pending;
    use tokio::time::sleep;

    fn batch() -> Batch {
        let stream = StreamId { session: None, epoch: Epoch(1), generation: Generation(1) };
        Batch { stream, events: Vec::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn p6_what_a_closed_socket_said_waits_for_an_editor_that_does_not_read() {
        let (batches, mut taken) = mpsc::channel(1);
        let reading = pin!(async {
            for _ in 0..3 {
                let _ = batches.send(batch()).await;
            }
            (End::Clean, None)
        });
        let editor = async {
            sleep(10 * LAST_WORDS).await;
            let mut count = 0;
            while count < 3 && taken.recv().await.is_some() {
                count += 1;
            }
            count
        };
        let (last, count) = tokio::join!(last_words(reading, &batches), editor);
        assert_eq!((last, count), (Some((End::Clean, None)), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn w3_a_server_that_says_nothing_after_a_failed_write_is_not_waited_for() {
        let (batches, _taken) = mpsc::channel(1);
        assert_eq!(last_words(pin!(pending()), &batches).await, None);
    }
}
