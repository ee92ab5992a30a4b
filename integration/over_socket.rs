//! Says what a transcript becomes over one socket, where it does not speak of HTTP itself (W1).
//!
//! A file tells of POSTs and of streams. Over a socket each POST is a message that comes, each event one
//! that is sent, and a session has no stream that could be asked for, break, or number its events.

use acp_tether::transcript::format::{
    Action, Answer, Body, CLOSE, Gets, OnSocket, OnStream, Output, Start, Step, Streams, TEXT,
    Transcript,
};
use acp_tether::transcript::player::prelude;
use std::collections::BTreeMap;

/// The name of the newest socket.
const SOCKET: &str = "socket";

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
    // A POST that must be answered next: nobody sees how long a message is being written to a socket.
    let mut unanswered = None;
    let mut is_opening = false;
    for Step { line, text, action } in prelude(transcript).ok()?.into_iter().chain(steps) {
        if let Some(name) = unanswered.take()
            && !matches!(&action, Action::Answers(answered, _) if *answered == name)
        {
            return None;
        }
        if let Action::Gets(Gets { name, .. }) = &action {
            unanswered = name.clone();
        }
        if let Action::Sees(_) = &action {
            // A socket says nothing of what became of a message; one that is of no use is closed, and
            // HTTP knows nothing like that.
            let is_useless = std::mem::take(&mut is_opening) && text.contains("\"error\"");
            if is_useless || text.contains(r#""delivery":"accepted""#) {
                return None;
            }
        }
        is_opening |= matches!(&action, Action::Gets(gets) if opens(gets));
        for action in over(action)? {
            translated.push(Step { line, text: text.clone(), action });
        }
    }
    Some(Transcript { header, steps: translated })
}

/// What a step is over a socket; `None` where it speaks of HTTP.
fn over(action: Action) -> Option<Vec<Action>> {
    Some(match action {
        Action::Gets(gets) if is_of_http(&gets) => return None,
        Action::Gets(gets) if gets.method == "GET" => Vec::new(),
        Action::Gets(gets) if opens(&gets) => opened(gets)?,
        Action::Gets(gets) => {
            if !gets.answer.as_ref().is_none_or(is_accepted) || !gets.headers.is_empty() {
                return None;
            }
            vec![Action::Gets(frame(gets))]
        }
        Action::Answers(_, answer) if is_accepted(&answer) => Vec::new(),
        Action::Stream(on) => vec![Action::Socket(SOCKET.to_owned(), sent(on)?)],
        Action::Answers(..) | Action::Reachable(_) => return None,
        action => vec![action],
    })
}

fn is_of_http(gets: &Gets) -> bool {
    let is_plain = gets.headers.is_empty() && gets.name.is_none() && gets.answer.is_none();
    gets.path.is_some() || gets.http.is_some() || (gets.method == "GET" && !is_plain)
}

fn opens(gets: &Gets) -> bool {
    gets.body.as_ref().is_some_and(|(body, _)| body.get().contains("\"initialize\""))
}

/// A connection that is made: the socket is asked for, and `initialize` is answered on it.
fn opened(gets: Gets) -> Option<Vec<Action>> {
    let Answer { status: Some(200), mut headers, body: Some(Body::Message(body)), fault: None } =
        gets.answer.clone()?
    else {
        return None;
    };
    headers.retain(|_, value| !value.is_empty());
    if headers.len() != 1 || !headers.keys().all(|it| it.eq_ignore_ascii_case("acp-connection-id"))
    {
        return None;
    }
    let upgrade = ("upgrade".to_owned(), Some("websocket".to_owned()));
    let asked = Gets {
        method: "GET".to_owned(),
        session: Some(None),
        headers: gets.headers.clone().into_iter().chain([upgrade]).collect(),
        body: None,
        any_order: false,
        name: Some(SOCKET.to_owned()),
        answer: Some(Answer { status: Some(101), headers, ..Answer::default() }),
        save: None,
        ..gets.clone()
    };
    let answered = Action::Socket(SOCKET.to_owned(), OnSocket::Message(body));
    Some(vec![Action::Gets(asked), Action::Gets(frame(gets)), answered])
}

/// What comes on the socket in place of a POST or a DELETE. That tells no session apart, so that the
/// message itself must.
fn frame(gets: Gets) -> Gets {
    let kind = if gets.method == "DELETE" { CLOSE } else { TEXT };
    Gets {
        method: kind.to_owned(),
        session: None,
        headers: BTreeMap::new(),
        any_order: gets.body.is_some(),
        name: None,
        answer: None,
        ..gets
    }
}

/// What is sent in place of an event, if it is a message that says itself whose it is.
fn sent(on: OnStream) -> Option<OnSocket> {
    let OnStream { session, of: None, output: Output::Event { id: None, message } } = on else {
        return None;
    };
    let message = message?;
    let is_named = session.is_none_or(|session| {
        let names = format!(r#""sessionId":"{session}""#);
        !message.get().contains("\"method\"") || message.get().contains(&names)
    });
    is_named.then_some(OnSocket::Message(message))
}

/// A message was taken, and nothing more is said of it.
fn is_accepted(answer: &Answer) -> bool {
    let Answer { status, headers, body, fault } = answer;
    headers.is_empty() && body.is_none() && fault.is_none() && matches!(status, None | Some(202))
}
