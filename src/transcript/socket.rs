//! Says what a transcript becomes over one socket, where it does not speak of HTTP itself (W1).
//!
//! A file tells of POSTs and of streams. Over a socket each POST is a message that is written, each event
//! one that is read, and a session has no stream that could be asked for, break, or number its events.

use super::format::{
    Action, Answer, Body, Gets, OnStream, Output, Start, Step, Streams, Transcript,
};
use super::player::prelude;

/// The same transcript over a socket; `None` where it speaks of HTTP.
pub fn over_socket(transcript: &Transcript) -> Option<Transcript> {
    let Transcript { mut header, steps } = transcript.clone();
    let speaks_of_http = |flag: &String| flag.starts_with("--http") || flag == "--cursor-in-query";
    // The rules R are those of streams.
    let is_of_streams =
        header.streams == Streams::Manual || header.rules.iter().any(|rule| rule.starts_with('R'));
    if is_of_streams || header.flags.iter().any(speaks_of_http) {
        return None;
    }
    header.flags.push("--transport=ws".to_owned());
    header.start = Start::None;
    let mut translated = Vec::new();
    // The message that is being written: no other is before its end.
    let mut written = None;
    for step in prelude(transcript).ok()?.into_iter().chain(steps) {
        match &step.action {
            Action::Gets(gets) if gets.method == "POST" => {
                if written.is_some() {
                    return None;
                }
                written = gets.name.clone().filter(|_| gets.answer.is_none());
            }
            Action::Answers(name, _) if written.as_ref() == Some(name) => written = None,
            _ => {}
        }
        match over(step) {
            Over::Step(step) => translated.push(*step),
            Over::Nothing => {}
            Over::Http => return None,
        }
    }
    Some(Transcript { header, steps: translated })
}

/// What a step is over a socket.
enum Over {
    Step(Box<Step>),
    /// It does not happen.
    Nothing,
    /// It speaks of HTTP.
    Http,
}

fn over(step: Step) -> Over {
    match &step.action {
        Action::Gets(gets) if asks_for_stream(gets) && is_plain(gets) => Over::Nothing,
        Action::Gets(gets) if is_of_http(gets) => Over::Http,
        Action::Answers(_, answer) if !is_accepted(answer) => Over::Http,
        Action::Stream(on) if !is_message(on) => Over::Http,
        // A socket says nothing of what became of a message.
        Action::Sees(_) if step.text.contains(r#""delivery":"accepted""#) => Over::Http,
        Action::Reachable(_) => Over::Http,
        _ => Over::Step(Box::new(on_socket(step))),
    }
}

/// What comes on a stream comes on the socket.
fn on_socket(step: Step) -> Step {
    let Step { line, text, action } = step;
    let action = match action {
        Action::Stream(on) => Action::Stream(OnStream { session: None, ..on }),
        action => action,
    };
    Step { line, text, action }
}

/// A message that says itself whose it is.
fn is_message(on: &OnStream) -> bool {
    let Output::Event { id: None, message: Some(message) } = &on.output else { return false };
    let is_named = on.session.as_ref().is_none_or(|session| {
        let names = format!(r#""sessionId":"{session}""#);
        !message.get().contains("\"method\"") || message.get().contains(&names)
    });
    on.of.is_none() && is_named
}

fn asks_for_stream(gets: &Gets) -> bool {
    gets.method == "GET" && matches!(gets.session, Some(Some(_)))
}

fn is_plain(gets: &Gets) -> bool {
    gets.headers.is_empty() && gets.name.is_none() && gets.answer.is_none()
}

fn is_of_http(gets: &Gets) -> bool {
    let opens = gets.body.as_ref().is_some_and(|(body, _)| body.get().contains("\"initialize\""));
    let is_right = match &gets.answer {
        Some(answer) if opens => is_opened(answer),
        Some(answer) => is_accepted(answer),
        None => true,
    };
    asks_for_stream(gets) || gets.path.is_some() || gets.http.is_some() || !is_right
}

/// A message was taken, and nothing more is said of it.
fn is_accepted(answer: &Answer) -> bool {
    let Answer { status, headers, body, fault } = answer;
    headers.is_empty() && body.is_none() && fault.is_none() && matches!(status, None | Some(202))
}

/// A connection was made, as it is over a socket too.
fn is_opened(answer: &Answer) -> bool {
    let Answer { status, headers, body, fault } = answer;
    let mut names = headers.iter().filter(|(_, value)| !value.is_empty());
    let is_named =
        headers.len() == 1 && names.any(|(name, _)| name.eq_ignore_ascii_case("acp-connection-id"));
    let is_json = matches!(body, Some(Body::Message(_)));
    is_named && is_json && *status == Some(200) && fault.is_none()
}
