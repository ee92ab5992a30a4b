//! Decides what a recording says of a socket: that it was asked for, each message both ways, its end.
//!
//! A message of ours stands where it was written, which is when a play can get it.

use super::{Channel, Recording, Shown, hex, quoted};
use crate::core::socket::Close;
use crate::core::{End, Millis, StreamEvent, StreamId};
use bytes::Bytes;

/// How long the words of a close may be, by RFC 6455.
const REASON: usize = 123;

impl Recording {
    pub(super) fn socket_opened(
        &mut self,
        name: &str,
        connection: Option<&Bytes>,
        asked: Option<String>,
    ) {
        let connection = connection.map(|id| {
            let id = quoted(&String::from_utf8_lossy(id));
            format!(r#","headers":{{"acp-connection-id":{id}}}"#)
        });
        let status = format!(r#""status":101{}"#, connection.unwrap_or_default());
        self.answers(Channel::Socket, name, &status);
        self.written(asked);
    }

    /// A message was written to the socket, or may have been.
    pub(super) fn written(&mut self, step: Option<String>) {
        if let Some(step) = step {
            self.push(&step);
            self.unnoticed = None;
        }
    }

    /// What was being written to the socket was written.
    fn all_written(&mut self) {
        for (_, step) in std::mem::take(&mut self.unwritten) {
            self.written(Some(step));
        }
    }

    /// The remote does something on the socket of this name.
    pub(super) fn does(&mut self, name: &str, does: &str) {
        self.input(Channel::Socket, &format!(r#"{{"socket":"{name}",{does}}}"#));
    }

    pub(super) fn message_on_socket(&mut self, message: &Bytes) -> String {
        match self.payload(message) {
            Shown::Message(message) => format!(r#""message":{message}"#),
            Shown::Text(text) => format!(r#""text":{}"#, quoted(&text)),
            Shown::Bytes(bytes) => format!(r#""hex":"{}""#, hex(&bytes)),
        }
    }

    pub(super) fn too_large(&self) -> String {
        format!(r#""text":"x","times":{}"#, self.limit.saturating_add(1))
    }

    pub(super) fn close(&mut self, Close { code, reason }: &Close) -> String {
        let shown = self.words(reason);
        let shown = &shown[..shown.floor_char_boundary(REASON)];
        match shown {
            "" => format!(r#""close":{code}"#),
            words => format!(r#""close":{code},"reason":{}"#, quoted(words)),
        }
    }

    pub(super) fn on_socket(&mut self, now: Millis, id: &StreamId, event: &StreamEvent) {
        let Some(name) = self.initializing.map(|post| self.name_of_post(post)) else { return };
        let does = match event {
            StreamEvent::Message { data: Some(data), .. } => {
                if self.refers(data) {
                    // It came before we heard that what it names was written.
                    self.all_written();
                }
                self.note_unseen(data);
                self.message_on_socket(data)
            }
            StreamEvent::TooLarge => self.too_large(),
            StreamEvent::Comment => {
                if let Some(pinged) = self.pinged.take() {
                    let after = now.0.saturating_sub(pinged.0);
                    self.push(&format!("// a sign of life came after {after} ms"));
                }
                return;
            }
            StreamEvent::Ended(end) => {
                self.streams.remove(&id.generation);
                match end {
                    End::Broken(_) => return self.cut_socket(&name),
                    End::Clean => format!(r#""close":{}"#, Close::NORMAL),
                    End::Closed(close) => self.close(close),
                }
            }
            // A socket tells nothing else.
            _ => return,
        };
        self.does(&name, &does);
    }

    /// The socket is cut; what was being written to it may have arrived.
    pub(super) fn cut_socket(&mut self, name: &str) {
        self.all_written();
        if self.unnoticed.take().is_some() {
            self.give_a_moment();
        }
        self.does(name, r#""end":"reset""#);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{
        line, message, on, open, post, settings, steps, steps_until, stream, unsent,
    };
    use super::*;
    use crate::core::socket::Transport;
    use crate::core::{Connection, Effect, Event, Outcome, PostId, Response, Settings};

    /// A recording of a socket on which `initialize` was answered, and its steps so far.
    fn over_a_socket() -> (Recording, Vec<String>) {
        let settings = Settings { transport: Transport::WebSocket, ..settings() };
        let mut recording = Recording::new(false, &settings);
        let asked = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
        let mut told = steps(&mut recording, 0, &line(asked), &[post(1, None, asked)]);
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let answered = Outcome::Response(Response {
            status: 101,
            content_type: "application/json".to_owned(),
            connection_id: Some(Bytes::from_static(b"c")),
            body: Bytes::from_static(answer.as_bytes()),
            ..Response::default()
        });
        let effects = [Effect::Line(Bytes::from_static(answer.as_bytes())), open(1)];
        told.extend(steps(&mut recording, 0, &Event::Posted(PostId(1), answered), &effects));
        (recording, told)
    }

    fn posted(post: u64) -> Event {
        let response = Response { status: 202, ..Response::default() };
        Event::Posted(PostId(post), Outcome::Response(response))
    }

    #[test]
    fn w1_a_socket_is_what_was_asked_for_and_what_goes_over_it() {
        let (mut recording, opened) = over_a_socket();
        let expected = [
            r#"{"editor":{"jsonrpc":"2.0","id":1,"method":"initialize"}}"#,
            r#"{"gets":{"method":"GET","headers":{"upgrade":"websocket"}},"as":"w1","within":"20000ms"}"#,
            r#"{"answers":"w1","status":101,"headers":{"acp-connection-id":"c"}}"#,
            r#"{"gets":{"frame":"text","body":{"jsonrpc":"2.0","id":1,"method":"initialize"}}}"#,
            r#"{"socket":"w1","message":{"jsonrpc":"2.0","id":1,"result":{}}}"#,
            r#"{"sees":{"jsonrpc":"2.0","id":1,"result":{}}}"#,
        ];
        assert_eq!(opened, expected);
        let said = r#"{"jsonrpc":"2.0","method":"session/cancel"}"#;
        let asked = steps(&mut recording, 1, &line(said), &[post(2, Some("c"), said)]);
        assert_eq!(asked, [format!(r#"{{"editor":{said}}}"#)], "it is not written yet");
        let frame = format!(r#"{{"gets":{{"frame":"text","body":{said}}}}}"#);
        assert_eq!(steps(&mut recording, 2, &posted(2), &[]), [frame]);
        for (data, step) in [
            (&b"{}"[..], r#"{"socket":"w1","message":{}}"#),
            (b"no JSON", r#"{"socket":"w1","text":"xx xxxx"}"#),
            (b"\xFE", r#"{"socket":"w1","hex":"ff"}"#),
        ] {
            assert_eq!(steps(&mut recording, 3, &message(data), &[]), [step]);
        }
        let long = steps(&mut recording, 4, &on(1, StreamEvent::TooLarge), &[]);
        assert_eq!(long, [r#"{"socket":"w1","text":"x","times":1025}"#]);
        let connection = Connection { id: Bytes::from_static(b"c"), version: None };
        let end = steps(&mut recording, 5, &Event::EditorGone, &[Effect::Delete(connection)]);
        let close = r#"{"gets":{"frame":"close","code":1000}}"#;
        assert_eq!(end, [r#"{"pass":"40ms"}"#, r#"{"editor_end":true}"#, close]);
    }

    #[test]
    fn w2_what_was_being_written_when_a_socket_ended_may_have_arrived() {
        let (mut recording, _) = over_a_socket();
        steps(&mut recording, 1, &line("{}"), &[post(2, Some("c"), "{}")]);
        let cut = StreamEvent::Ended(End::Broken("why".to_owned()));
        let ended = steps(&mut recording, 2, &on(1, cut), &[Effect::Abandon(PostId(2))]);
        let frame = r#"{"gets":{"frame":"text","body":{}}}"#;
        assert_eq!(ended, [frame, r#"{"socket":"w1","end":"reset"}"#]);
        // What was not begun did not.
        let (mut recording, _) = over_a_socket();
        steps(&mut recording, 1, &line("{}"), &[post(2, Some("c"), "{}")]);
        assert!(steps(&mut recording, 2, &unsent(2), &[]).is_empty());
    }

    #[test]
    fn w3_a_close_has_its_code_and_words_that_nobody_can_read() {
        let closed = |reason: &str| Close { code: 4401, reason: reason.to_owned() };
        let (mut recording, _) = over_a_socket();
        let end = |reason| on(1, StreamEvent::Ended(End::Closed(closed(reason))));
        let shown = steps(&mut recording, 1, &end("expired"), &[]);
        assert!(shown[0].starts_with(r#"{"socket":"w1","close":4401,"reason":""#), "{shown:?}");
        assert!(!shown[0].contains("expired"), "{shown:?}");
        let long = steps(&mut recording, 1, &end(&"\u{fffd}".repeat(REASON)), &[]);
        assert_eq!(long.len(), 1);
        let clean = steps(&mut recording, 1, &on(1, StreamEvent::Ended(End::Clean)), &[]);
        assert_eq!(clean, [r#"{"socket":"w1","close":1000}"#]);
        // Before `initialize` was answered.
        steps(&mut recording, 2, &Event::Timer, &[post(2, None, "{}")]);
        let refused = Event::Posted(PostId(2), Outcome::Closed(closed("")));
        let refused = steps(&mut recording, 2, &refused, &[]);
        let expected = [
            r#"{"answers":"w2","status":101}"#,
            r#"{"gets":{"frame":"text","body":{}},"within":"2004ms"}"#,
            r#"{"socket":"w2","close":4401}"#,
        ];
        assert_eq!(refused, expected);
    }

    /// A play waits for no ping, and what only silence shows is a cut there.
    #[test]
    fn w3_pings_are_comments_and_a_silent_socket_is_one_that_is_cut() {
        let (mut recording, _) = over_a_socket();
        steps_until(&mut recording, 1, &line("{}"), &[], Some(20_000));
        let ping = [Effect::Ping(stream(1))];
        let pinged = steps_until(&mut recording, 20_000, &Event::Timer, &ping, Some(30_000));
        assert_eq!(pinged, ["// a ping went out"]);
        let pong = steps(&mut recording, 20_007, &on(1, StreamEvent::Comment), &[]);
        assert_eq!(pong, ["// a sign of life came after 7 ms"]);
        assert!(steps(&mut recording, 20_008, &on(1, StreamEvent::Comment), &[]).is_empty());
        assert_eq!(recording.time.clock, Millis(0));
        let lost = [Effect::Close(stream(1)), post(2, None, "{}")];
        let lost = steps(&mut recording, 50_000, &Event::Timer, &lost);
        assert_eq!(lost[..2], [r#"{"pass":"40ms"}"#, r#"{"socket":"w1","end":"reset"}"#]);
        assert!(lost[2].contains(r#""as":"w2""#), "{lost:?}");
    }
}
