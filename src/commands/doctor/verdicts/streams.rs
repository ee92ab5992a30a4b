//! Decides what the facts of the connection's stream mean.

use super::{content_type_or_nothing, reason, seconds, shortened};
use crate::commands::doctor::report::Finding;
use crate::core::{Response, limits};
use crate::shell::http::inspection::Lost;
use bytes::Bytes;
use std::time::Duration;

/// An answer that takes longer may have been held back.
const HELD_BACK: Duration = Duration::from_millis(1500);

/// No time-out is as short.
const AT_ONCE: Duration = Duration::from_secs(1);

/// What came of a GET of the stream.
#[derive(Debug)]
pub enum Opening {
    /// Its head came after this time.
    Opened(Duration),
    /// The same, which was long.
    Slow(Duration),
    /// The same, but not before there was a message to bring.
    Late(Duration),
    Refused(Response),
    Lost(Lost),
    /// It did not come in this time.
    Silent(Duration),
}

/// What came of a request whose answer is awaited on the stream.
#[derive(Clone, Debug)]
pub enum Talk {
    /// It came on the stream this long after the request; under this id.
    Answered { after: Duration, id: Option<Bytes> },
    /// It came in the answer to the POST.
    Direct,
    /// The POST was refused.
    Refused(u16),
    /// The POST failed.
    Lost(String),
    /// Nothing came for this long.
    Unanswered { after: Duration },
    /// It came as the connection was closed.
    Flushed { after: Duration },
    /// The stream ended.
    Ended { reason: String },
}

impl Talk {
    /// Whether the request was answered.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::Direct)
    }
}

const BUFFERED: &str = "Something on the way keeps the stream until there is more of it, or until it ends. Switch that off in the \
     reverse proxy for text/event-stream (nginx: proxy_buffering off; or the agent sends X-Accel-Buffering: no).";

pub fn stream(opening: &Opening) -> Finding {
    match opening {
        Opening::Opened(after) => Finding::ok(format!("open after {}", seconds(*after))),
        Opening::Slow(after) => Finding::note(
            format!("open after {}", seconds(*after)),
            "The agent, or what stands before it, takes long to open a stream. That time is lost at every start.",
        ),
        Opening::Late(after) => Finding::ok(format!("open after {}, see below", seconds(*after))),
        Opening::Refused(response) if response.status == 200 => Finding::failed(
            format!(
                "GET is answered with {}, not with an event stream",
                shortened(content_type_or_nothing(&response.content_type))
            ),
            "Something on the way answers in the agent's place, or changes its Content-Type: let GET of this path pass to \
             the agent.",
        ),
        Opening::Refused(response) => Finding::failed(
            format!("GET is answered with {}", response.status),
            "Answers come on a stream that is opened by GET: let GET of this path pass to the agent, with the headers \
             Accept and Acp-Connection-Id. Where there are several servers, all requests of one connection must reach the same one.",
        ),
        Opening::Lost(lost) => Finding::failed(
            format!("GET is not answered: {}", reason(lost)),
            "Answers come on a stream that is opened by GET: let GET of this path pass to the agent.",
        ),
        Opening::Silent(after) => Finding::failed(
            format!("GET is not answered in {}", seconds(*after)),
            format!("The agent answers GET at once, with the head of its stream. {BUFFERED}"),
        ),
    }
}

pub fn compression(encoding: Option<&str>) -> Finding {
    match encoding {
        None => Finding::ok("none"),
        Some(encoding) => Finding::failed(
            format!(
                "the stream comes as {}, although it was asked for as it is",
                shortened(encoding)
            ),
            "Switch compression off in the reverse proxy for text/event-stream: it delays messages, and cannot be read here.",
        ),
    }
}

/// A stream whose head says how long it is.
pub fn measured() -> Finding {
    Finding::failed("the stream says how long it is: it was whole before it came", BUFFERED)
}

pub fn buffering(opening: &Opening, talk: &Talk) -> Finding {
    if let Opening::Late(after) = opening {
        let after = seconds(*after);
        let found = format!("the stream's head came only with the first message, after {after}");
        return Finding::failed(found, BUFFERED);
    }
    match talk {
        Talk::Answered { after, .. } if *after > HELD_BACK => Finding::note(
            format!("an answer took {} to come on the stream", seconds(*after)),
            format!("The agent may be slow. Otherwise: {BUFFERED}"),
        ),
        Talk::Answered { after, .. } => {
            Finding::ok(format!("an answer came on the stream after {}", seconds(*after)))
        }
        Talk::Direct => Finding::ok("not seen: the agent answers in the answer to the POST"),
        Talk::Refused(status @ (401 | 403 | 404 | 410 | 500..)) => Finding::failed(
            format!("a request after `initialize` is answered with {status}"),
            match status {
                401 | 403 => {
                    "The credential was taken for `initialize` and is not taken for what follows: ask who runs the agent."
                }
                404 | 410 => {
                    "The connection that was just opened is not known: all requests of one connection must reach the same server."
                }
                _ => "The agent, or a server before it, failed: see its log.",
            },
        ),
        Talk::Refused(status) => Finding::note(
            format!("not seen: the agent answers {status} to a request of no harm"),
            "Whether the stream brings answers at once shows in a conversation.",
        ),
        Talk::Lost(reason) => Finding::failed(
            format!("a request after `initialize` failed: {reason}"),
            "See the log of the agent's server.",
        ),
        Talk::Flushed { after } => Finding::failed(
            format!("an answer was held back for {}, until the stream ended", seconds(*after)),
            BUFFERED,
        ),
        Talk::Unanswered { after } => Finding::failed(
            format!("no answer came on the stream in {}", seconds(*after)),
            format!("The agent took a request and its answer did not arrive. {BUFFERED}"),
        ),
        Talk::Ended { .. } => Finding::skipped("the stream ended"),
    }
}

/// The end of a stream that should not end.
pub fn ended(after: Duration, why: &str) -> Finding {
    let found = format!("it ended after {}: {why}", seconds(after));
    let advice = match after < AT_ONCE {
        true => {
            "The agent, or something on the way, ends the stream as soon as it is there: see the log of the agent's server."
        }
        false => {
            "Something on the way, or the agent, ends streams: raise the time-outs of the reverse proxy for this path."
        }
    };
    match after < Duration::from_millis(limits::HEALTHY_AFTER.0) {
        true => Finding::failed(found, advice),
        false => Finding::note(found, advice),
    }
}

/// The signs of life that came in the time of watching.
pub fn heartbeats(count: usize, watched: Duration) -> Finding {
    match count {
        0 => Finding::note(
            format!("none in {}", seconds(watched)),
            "Without signs of life, what is on the way may cut a quiet stream; it is opened again then. Many agents send \
             one every 15 to 30 s: --wait 40s watches for longer.",
        ),
        count => Finding::ok(format!("{count} in {}", seconds(watched))),
    }
}

pub fn numbering(talk: &Talk) -> Finding {
    match talk {
        Talk::Answered { id: Some(_), .. } => Finding::ok("events have ids"),
        Talk::Answered { id: None, .. } => Finding::note(
            "events have no ids",
            "What a broken stream loses cannot be asked for again: it costs the turns that run. Only the agent can change that.",
        ),
        _ => Finding::skipped("no answer came on the stream"),
    }
}

/// Whether what followed a cursor came again.
pub fn replay(result: Result<bool, String>) -> Finding {
    let advice = "What a broken stream loses does not come again, although events have ids: it costs the turns that run.";
    match result {
        Ok(true) => Finding::ok("Last-Event-ID brings what followed"),
        Ok(false) => Finding::note("Last-Event-ID brings nothing that followed", advice),
        Err(reason) => Finding::note(format!("the stream does not open again: {reason}"), advice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::report::Verdict;

    #[test]
    fn an_answer_that_is_slow_is_noted_and_one_that_is_held_back_fails() {
        let second = Duration::from_secs(1);
        let open = Opening::Opened(second);
        let talks = [
            (Talk::Answered { after: second, id: None }, Verdict::Ok),
            (Talk::Answered { after: second * 2, id: None }, Verdict::Note),
            (Talk::Direct, Verdict::Ok),
            (Talk::Refused(400), Verdict::Note),
            (Talk::Refused(404), Verdict::Failed),
            (Talk::Refused(401), Verdict::Failed),
            (Talk::Refused(502), Verdict::Failed),
            (Talk::Flushed { after: second }, Verdict::Failed),
            (Talk::Unanswered { after: second }, Verdict::Failed),
        ];
        for (talk, expected) in talks {
            assert_eq!(buffering(&open, &talk).verdict, expected, "{talk:?}");
        }
        let late = Opening::Late(second);
        assert_eq!(buffering(&late, &Talk::Direct).verdict, Verdict::Failed);
    }

    #[test]
    fn a_stream_that_ends_is_a_failure_when_young_and_a_note_when_old() {
        let (new, young) = (ended(Duration::ZERO, "cut"), ended(Duration::from_secs(1), "cut"));
        let old = ended(Duration::from_secs(60), "cut");
        assert_eq!((young.verdict, old.verdict), (Verdict::Failed, Verdict::Note));
        let speaks_of_time =
            |found: Finding| found.advice.is_some_and(|it| it.contains("time-outs"));
        assert!(speaks_of_time(young) && !speaks_of_time(new));
    }
}
