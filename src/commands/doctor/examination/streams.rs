//! Gathers the facts of the connection's stream: whether it opens, brings answers at once, and brings
//! again what followed a cursor.

use super::{ANSWER, Examination, REST, answers};
use crate::commands::doctor::report::Step;
use crate::commands::doctor::verdicts::{self, Capabilities, Opening, Talk};
use crate::core::Connection;
use crate::core::message::{self, Message};
use crate::core::methods::probe;
use crate::shell::http::inspection::{Answered, Lost, Opened, Stream};
use crate::wire::sse::Item;
use bytes::Bytes;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// How long the head of a stream may take before a message is sent to bring it out.
const HEAD: Duration = Duration::from_secs(2);
/// How soon after the message it comes where the message brought it out.
const BROUGHT: Duration = Duration::from_millis(300);
/// How often a stream is asked for whose predecessor the server still holds, and after which time.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

impl Examination<'_> {
    pub(super) async fn look_at_stream(
        &mut self,
        connection: &Connection,
        offered: Capabilities,
    ) -> Option<()> {
        let begun = Instant::now();
        let (opening, stream) = self.open(connection, offered).await;
        self.add(Step::Stream, verdicts::stream(&opening), begun)?;
        let mut stream = stream?;
        let opened = Instant::now();
        let compression = verdicts::compression(stream.encoding.as_deref());
        self.add(Step::Compression, compression, opened)?;
        let mut heartbeats = 0;
        let first = self.talk(connection, offered, &mut stream, &mut heartbeats).await;
        let mut last = first.clone();
        if first.is_answered() {
            last = self.talk(connection, offered, &mut stream, &mut heartbeats).await;
        }
        if stream.has_length && matches!(last, Talk::Unanswered { .. } | Talk::Ended { .. }) {
            return self.add(Step::Buffering, verdicts::measured(), opened);
        }
        if let Talk::Ended { reason } = &last {
            return self.add(Step::Stream, verdicts::ended(opened.elapsed(), reason), begun);
        }
        if let Talk::Unanswered { after } = last {
            last = self.flushed(connection, &mut stream, after).await;
        }
        let talk = if last.is_answered() { &first } else { &last };
        self.add(Step::Buffering, verdicts::buffering(&opening, talk), opened)?;
        let end =
            watch(&mut stream, &mut heartbeats, self.watched.saturating_sub(opened.elapsed()));
        if let Some(why) = end.await {
            self.add(Step::Stream, verdicts::ended(opened.elapsed(), &why), begun)?;
        }
        let heard = verdicts::heartbeats(heartbeats, opened.elapsed());
        self.add(Step::Heartbeats, heard, opened)?;
        self.add(Step::Numbering, verdicts::numbering(&first), Instant::now())?;
        if let (Talk::Answered { id: Some(cursor), .. }, Talk::Answered { after, .. }) =
            (first, last)
        {
            drop(stream);
            let begun = Instant::now();
            let replayed = self.replays(connection, &cursor, REST + after).await;
            self.add(Step::Replay, verdicts::replay(replayed), begun)?;
        }
        Some(())
    }

    /// Opens the connection's stream. Where its head does not come, a message may bring it out, or the
    /// end of the connection.
    async fn open(
        &mut self,
        connection: &Connection,
        offered: Capabilities,
    ) -> (Opening, Option<Box<Stream>>) {
        let begun = Instant::now();
        let message = probe(&self.id(), offered.list);
        let mut opening = Box::pin(self.link.listen(connection, None));
        if let Ok(opened) = timeout(HEAD, &mut opening).await {
            return told(opened, Opening::Opened(begun.elapsed()));
        }
        let asked = Instant::now();
        let asking = async {
            // Its answer is what matters, and that the stream opens.
            let _ = self.link.ask(Some(connection), message, drop).await;
            std::future::pending::<()>().await;
        };
        let opened = tokio::select! {
            opened = timeout(ANSWER, &mut opening) => opened,
            () = asking => return (Opening::Silent(begun.elapsed()), None),
        };
        let after = begun.elapsed();
        match opened {
            // What is not held back comes when it comes, whatever is sent meanwhile.
            Ok(opened) if asked.elapsed() < BROUGHT => told(opened, Opening::Late(after)),
            Ok(opened) => told(opened, Opening::Slow(after)),
            Err(_) => (Opening::Silent(after), None),
        }
    }

    /// A request, and its answer on the stream.
    async fn talk(
        &mut self,
        connection: &Connection,
        offered: Capabilities,
        stream: &mut Stream,
        heartbeats: &mut usize,
    ) -> Talk {
        let id = self.id();
        let begun = Instant::now();
        let asked = self.link.ask(Some(connection), probe(&id, offered.list), drop);
        match timeout(self.patience, asked).await {
            Ok(Ok(Answered { response, .. })) => match response.status {
                200 if answers(&response.body, &id) => return Talk::Direct,
                200..=299 => {}
                status => return Talk::Refused(status),
            },
            Ok(Err(lost)) => return Talk::Lost(verdicts::reason(&lost)),
            Err(_) => return Talk::Lost("it takes too long".to_owned()),
        }
        let heard = first(stream, ANSWER, |item| {
            *heartbeats += usize::from(item == Item::Comment);
            match item {
                Item::Event { data: Some(data), id: cursor } if answers(&data, &id) => {
                    Some(cursor.filter(|cursor| !cursor.is_empty()))
                }
                _ => None,
            }
        });
        let heard = heard.await;
        let after = begun.elapsed();
        match heard {
            Ok(Ok(id)) => Talk::Answered { after, id },
            Ok(Err(reason)) => Talk::Ended { reason },
            Err(_) => Talk::Unanswered { after },
        }
    }

    /// Whether an answer that did not come comes when the connection ends.
    async fn flushed(
        &mut self,
        connection: &Connection,
        stream: &mut Stream,
        after: Duration,
    ) -> Talk {
        let begun = Instant::now();
        let ended = self.end(connection).await;
        self.connection = None;
        self.closing = Some((verdicts::closing(&ended), begun.elapsed()));
        let is_answer = |data: &Bytes| matches!(message::read(data), Ok(Message::Answer { .. }));
        match first(stream, REST, |item| data(item).filter(is_answer)).await {
            Ok(Ok(_)) => Talk::Flushed { after },
            _ => Talk::Unanswered { after },
        }
    }

    /// Whether what followed the cursor comes again.
    async fn replays(
        &self,
        connection: &Connection,
        cursor: &Bytes,
        patience: Duration,
    ) -> Result<bool, String> {
        let mut tries = 0;
        let mut stream = loop {
            let opened = timeout(ANSWER, self.link.listen(connection, Some(cursor))).await;
            match opened.map_err(|_| "nothing comes".to_owned())? {
                Ok(Opened::Stream(stream)) => break stream,
                // The server may not have seen the end of the first one yet.
                Ok(Opened::Refused(_)) if tries < TRIES => tokio::time::sleep(PAUSE).await,
                Ok(Opened::Refused(response)) => return Err(response.status.to_string()),
                Err(lost) => return Err(verdicts::reason(&lost)),
            }
            tries += 1;
        };
        let last = self.last_id();
        let comes = first(&mut stream, patience, |item| data(item).filter(|it| answers(it, &last)));
        Ok(matches!(comes.await, Ok(Ok(_))))
    }
}

fn told(opened: Result<Opened, Lost>, opening: Opening) -> (Opening, Option<Box<Stream>>) {
    match opened {
        Ok(Opened::Stream(stream)) => (opening, Some(stream)),
        Ok(Opened::Refused(response)) => (Opening::Refused(response), None),
        Err(lost) => (Opening::Lost(lost), None),
    }
}

/// Counts the signs of life of a stream for this long; tells how it ended, if it did.
async fn watch(stream: &mut Stream, heartbeats: &mut usize, watched: Duration) -> Option<String> {
    let end = first(stream, watched, |item| {
        *heartbeats += usize::from(item == Item::Comment);
        None::<Infallible>
    });
    end.await.ok()?.err()
}

/// Reads a stream for this long at the most, until something on it is what is wanted, or it ends.
async fn first<T>(
    stream: &mut Stream,
    patience: Duration,
    mut wanted: impl FnMut(Item) -> Option<T>,
) -> Result<Result<T, String>, Elapsed> {
    let found = async {
        loop {
            if let Some(found) = wanted(stream.next().await?) {
                return Ok(found);
            }
        }
    };
    timeout(patience, found).await
}

/// The message of an event.
fn data(item: Item) -> Option<Bytes> {
    match item {
        Item::Event { data, .. } => data,
        _ => None,
    }
}
