//! The core alone: what it does at each event, in short lines.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write;

use bytes::Bytes;

use super::methods::Offers;
use super::*;

mod doubts;
mod recovery;
mod restores;
mod socket;
mod turns;
mod waiting;

/// A core and what it did, one line an effect.
struct World {
    core: Core,
    now: u64,
    posts: Vec<Post>,
    streams: Vec<StreamId>,
    /// How often a change of the status was told.
    changes: usize,
}

fn settings() -> Settings {
    Settings { seed: 7, ..Settings::default() }
}

fn response(status: u16) -> Outcome {
    Outcome::Response(Response { status, ..Response::default() })
}

fn json(status: u16, body: &str) -> Outcome {
    Outcome::Response(Response {
        status,
        content_type: "application/json".into(),
        connection_id: Some(Bytes::from_static(b"c1")),
        body: Bytes::copy_from_slice(body.as_bytes()),
        ..Response::default()
    })
}

fn broken() -> StreamEvent {
    StreamEvent::Ended(End::Broken("reset".into()))
}

fn refused(status: u16) -> StreamEvent {
    let Outcome::Response(response) = response(status) else { panic!() };
    StreamEvent::Refused(response)
}

impl World {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let (posts, streams) = (Vec::new(), Vec::new());
        Self { core: Core::new(settings), now: 0, posts, streams, changes: 0 }
    }

    fn up() -> Self {
        let mut world = Self::new();
        world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
        world.answer(0, json(200, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#));
        world.opened(0);
        world
    }

    fn with_session() -> Self {
        let mut world = Self::up();
        world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
        world.answer(1, response(202));
        world.says(0, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
        world.opened(1);
        world
    }

    fn step(&mut self, event: Event) -> String {
        let mut effects = Vec::new();
        self.core.step(Millis(self.now), event, &mut effects);
        let mut told = String::new();
        let last = effects.len().saturating_sub(1);
        for (index, effect) in effects.into_iter().enumerate() {
            match effect {
                Effect::Line(line) => writeln!(told, "line {}", String::from_utf8_lossy(&line)),
                Effect::Post(post) => {
                    let session = post.session.as_ref().map_or("-", |session| &session.0);
                    let renew = if post.renew_credential { " renewed" } else { "" };
                    let body = String::from_utf8_lossy(&post.body).into_owned();
                    let number = self.posts.len();
                    self.posts.push(post.clone());
                    writeln!(told, "post {number} {session}{renew} {body}")
                }
                Effect::Abandon(post) => {
                    let number = self.posts.iter().position(|known| known.id == post).unwrap();
                    writeln!(told, "abandon {number}")
                }
                Effect::Open(open) => {
                    let number = self.streams.len();
                    let session = open.stream.session.as_ref().map_or("-", |session| &session.0);
                    let cursor = open.cursor.map(|cursor| format!(" after {cursor:?}"));
                    let cursor = cursor.unwrap_or_default();
                    let renew = if open.renew_credential { " renewed" } else { "" };
                    let told = writeln!(told, "open {number} {session}{renew}{cursor}");
                    self.streams.push(open.stream.clone());
                    told
                }
                Effect::Close(stream) => {
                    let number = self.streams.iter().position(|known| *known == stream).unwrap();
                    writeln!(told, "close {number}")
                }
                Effect::Ping(_) => writeln!(told, "ping"),
                Effect::Delete(_) => writeln!(told, "delete"),
                Effect::Log(..) => Ok(()),
                Effect::Changed => {
                    assert_eq!(index, last, "a change is told last");
                    self.changes += 1;
                    Ok(())
                }
                Effect::Reply(_, reply) => writeln!(told, "reply {reply:?}"),
                Effect::Rpc(_, request) => {
                    writeln!(told, "rpc {}", String::from_utf8_lossy(&request))
                }
                Effect::Exit => writeln!(told, "exit"),
            }
            .unwrap();
        }
        told
    }

    fn line(&mut self, line: &str) -> String {
        self.step(Event::Line(Bytes::copy_from_slice(line.as_bytes())))
    }

    fn answer(&mut self, post: usize, outcome: Outcome) -> String {
        let id = self.posts[post].id;
        self.step(Event::Posted(id, outcome))
    }

    /// The answer to our own last request, with this `"result":…` or `"error":…`.
    fn answer_to_ours(&self, rest: &str) -> String {
        let id = self.core.own_ids;
        format!(r#"{{"jsonrpc":"2.0","id":"acp-tether-own-00000007-{id}",{rest}}}"#)
    }

    fn on(&mut self, stream: usize, event: StreamEvent) -> String {
        let id = self.streams[stream].clone();
        self.step(Event::Stream(id, event))
    }

    fn opened(&mut self, stream: usize) -> String {
        self.on(stream, StreamEvent::Opened { event_epoch: None })
    }

    fn says(&mut self, stream: usize, data: &str) -> String {
        let data = Some(Bytes::copy_from_slice(data.as_bytes()));
        self.on(stream, StreamEvent::Message { data, id: None })
    }

    /// Lets the time pass, timer by timer.
    fn pass(&mut self, millis: u64) -> String {
        let end = self.now + millis;
        let mut told = String::new();
        while let Some(Millis(at)) = self.core.deadline().filter(|at| at.0 <= end) {
            self.now = self.now.max(at);
            let did = self.step(Event::Timer);
            assert!(
                self.core.deadline().is_none_or(|next| next.0 > at),
                "a timer that stays due makes the shell spin (I18)"
            );
            for effect in did.lines() {
                writeln!(told, "{at}: {effect}").unwrap();
            }
        }
        self.now = end;
        told
    }
}

const PROMPT: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s"}}"#;

#[test]
fn l1_what_is_pipelined_behind_initialize_waits_for_its_answer() {
    let mut world = World::new();
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#;
    let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new"}"#;
    assert_eq!(world.line(initialize), format!("post 0 - {initialize}\n"));
    assert_eq!(world.line(new), "");
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#;
    assert_eq!(world.answer(0, json(200, answer)), format!("line {answer}\nopen 0 -\n"));
    assert_eq!(world.opened(0), format!("post 1 - {new}\n"));
}

#[test]
fn r1_a_prompt_waits_for_its_stream_and_is_posted_when_it_is_open() {
    let mut world = World::up();
    assert_eq!(world.line(PROMPT), "open 1 s\n");
    assert_eq!(world.opened(1), format!("post 1 s {PROMPT}\n"));
}

#[test]
fn r1_where_the_remote_does_not_know_the_session_yet_the_post_goes_first() {
    for status in [403, 404] {
        let mut world = World::up();
        let load = r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#;
        world.line(load);
        let Outcome::Response(refused) = response(status) else { panic!() };
        let posted = world.on(1, StreamEvent::Refused(refused.clone()));
        assert_eq!(posted, format!("post 1 s {load}\n"));
        assert_eq!(world.answer(1, response(202)), "open 2 s\n");
        assert_eq!(world.on(2, StreamEvent::Refused(refused)), "open 3 s\n");
        let answer = r#"{"jsonrpc":"2.0","id":2,"result":null}"#;
        assert_eq!(world.says(0, answer), "", "its replay may come with the stream (R12)");
        world.opened(3);
        assert_eq!(world.pass(50), format!("50: line {answer}\n"));
        assert_eq!(world.line(PROMPT), format!("post 2 s {PROMPT}\n"));
    }
}

#[test]
fn r1_messages_whose_stream_cannot_be_opened_fail_when_they_were_held_long_enough() {
    let mut world = World::up();
    world.line(PROMPT);
    let told = world.pass(30_000);
    assert!(
        told.starts_with("30000: line {\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32603"),
        "{told}"
    );
    assert!(told.contains(r#""kind":"stream_lost","delivery":"unsent","sessionId":"s""#), "{told}");
}

#[test]
fn l5_an_answer_does_not_wait_behind_the_request_that_caused_the_question() {
    let mut world = World::with_session();
    world.line(PROMPT);
    let asked =
        world.says(1, r#"{"jsonrpc":"2.0","id":"q","method":"x","params":{"sessionId":"s"}}"#);
    assert_eq!(
        asked,
        "line {\"jsonrpc\":\"2.0\",\"id\":\"acp-tether-1\",\"method\":\"x\",\"params\":{\"sessionId\":\"s\"}}\n"
    );
    let posted = world.line(r#"{"jsonrpc":"2.0","id":"acp-tether-1","result":{}}"#);
    assert_eq!(posted, "post 3 s {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{}}\n");
    assert_eq!(world.line(r#"{"jsonrpc":"2.0","id":"acp-tether-1","result":{}}"#), "");
}

#[test]
fn l10_a_message_that_never_left_is_posted_again_with_growing_delays_until_it_was_held_too_long() {
    let mut world = World::with_session();
    world.line(PROMPT);
    assert!(world.answer(2, Outcome::Unsent("refused".into())).starts_with("post 3"));
    let mut delays = Vec::new();
    let mut post = 3;
    let failed = loop {
        assert_eq!(world.answer(post, Outcome::Unsent("refused".into())), "");
        let before = world.now;
        let told = world.pass(world.core.deadline().unwrap().0 - before);
        if !told.contains("post ") {
            break told;
        }
        delays.push(world.now - before);
        post += 1;
    };
    assert!(failed.contains(r#""kind":"connect","delivery":"unsent""#), "{failed}");
    assert!((125..=250).contains(&delays[0]), "{delays:?}");
    assert!((250..=500).contains(&delays[1]), "{delays:?}");
    assert!(delays.iter().all(|delay| *delay <= 15_000), "{delays:?}");
    assert_eq!(world.now, 30_000);
}

#[test]
fn s7_the_end_of_input_deletes_at_once_where_nothing_is_open() {
    let mut world = World::with_session();
    assert_eq!(world.step(Event::EditorGone), "close 0\nclose 1\ndelete\n");
    assert_eq!(world.step(Event::Deleted(response(404))), "exit\n");
}

#[test]
fn s7_open_requests_get_half_a_second_and_a_hanging_delete_is_not_waited_for() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    assert_eq!(world.step(Event::EditorGone), "");
    let told = world.pass(5_000);
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[..2], ["500: close 0", "500: close 1"]);
    assert!(lines[2].contains(r#""id":2"#) && lines[2].contains("accepted"), "{told}");
    assert_eq!(lines[3..], ["500: delete", "1900: exit"]);
}

#[test]
fn s7_what_is_queued_is_still_sent() {
    let mut world = World::with_session();
    world.line(PROMPT);
    let cancel = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
    assert_eq!(world.line(cancel), "");
    assert_eq!(world.step(Event::EditorGone), "");
    assert_eq!(world.answer(2, response(202)), format!("post 3 s {cancel}\n"));
    world.answer(3, response(202));
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    assert_eq!(world.says(1, answer), format!("line {answer}\nclose 0\nclose 1\ndelete\n"));
}

#[test]
fn l10_a_refusal_of_a_credential_that_stays_the_same_is_final_at_once() {
    let mut world = World::with(Settings { can_renew: false, ..settings() });
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    let told = world.answer(0, response(401));
    assert!(told.contains(r#""kind":"auth","status":401"#) && !told.contains("post"), "{told}");
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    world.answer(1, json(200, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}"#));
    world.opened(0);
    world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/list"}"#);
    let told = world.answer(2, response(401));
    assert!(told.contains(r#""kind":"auth","status":401"#) && !told.contains("post"), "{told}");
    world.on(0, StreamEvent::Ended(End::Clean));
    let Outcome::Response(refused) = response(401) else { panic!() };
    assert!(!world.on(1, StreamEvent::Refused(refused)).contains("open"));
}

#[test]
fn s7_an_initialize_that_hangs_does_not_keep_the_process() {
    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    assert_eq!(world.step(Event::EditorGone), "");
    let told = world.pass(5_000);
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "500: abandon 0");
    assert!(lines[1].contains(r#""id":0"#) && lines[1].contains("unknown"), "{told}");
    assert_eq!(lines[2..], ["500: exit"]);
}

/// The head of the answer has come, and the rest does not.
#[test]
fn s7_the_connection_of_an_initialize_that_is_given_up_half_answered_is_deleted() {
    let half_answered = |world: &mut World, post: usize| {
        let id = world.posts[post].id;
        assert_eq!(world.step(Event::Named(id, Bytes::from_static(b"c1"))), "");
    };
    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    half_answered(&mut world, 0);
    let told = world.pass(9_000);
    assert!(told.contains("9000: abandon 0\n") && told.ends_with("9000: delete\n"), "{told}");
    assert_eq!(world.step(Event::EditorGone), "exit\n", "there is no other");

    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    half_answered(&mut world, 0);
    world.step(Event::EditorGone);
    let told = world.pass(1_000);
    assert!(told.contains("500: abandon 0\n") && told.ends_with("500: delete\n"), "{told}");
    assert_eq!(world.step(Event::Deleted(response(202))), "exit\n", "which is waited for");

    let mut world = World::up();
    let Outcome::Response(gone) = response(404) else { panic!() };
    world.on(0, StreamEvent::Refused(gone));
    half_answered(&mut world, 1);
    let told = world.pass(9_000);
    assert!(told.contains("9000: abandon 1\n9000: delete\n"), "{told}");
}

#[test]
fn p6_more_than_may_wait_is_refused_with_an_error() {
    let mut world = World::up();
    let text = "x".repeat(limits::REMOTE_QUEUE_BYTES);
    let big = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"x","params":{{"t":"{text}"}}}}"#);
    assert!(world.line(&big).starts_with("post 1"), "one message is always taken");
    let told = world.line(r#"{"jsonrpc":"2.0","id":3,"method":"x"}"#);
    assert!(told.contains(r#""kind":"overloaded","delivery":"unsent""#), "{told}");
    world.answer(1, response(202));
    assert_eq!(
        world.line(r#"{"jsonrpc":"2.0","id":4,"method":"x"}"#),
        "post 2 - {\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"x\"}\n"
    );
}

#[test]
fn i13_many_stalled_sessions_leave_a_bounded_number_of_posts_and_the_rest_follow() {
    let mut world = World::up();
    let prompt = |session: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"{session}","method":"session/prompt","params":{{"sessionId":"s{session}"}}}}"#
        )
    };
    for session in 0..limits::POSTS_AT_ONCE + 2 {
        world.line(&prompt(session));
        world.opened(session + 1);
    }
    assert_eq!(world.posts.len() - 1, limits::POSTS_AT_ONCE);
    assert!(world.answer(1, response(202)).starts_with("post "));
    assert!(world.answer(2, response(202)).starts_with("post "));
    assert_eq!(world.answer(3, response(202)), "");
}

#[test]
fn l5_a_crowded_session_waits_for_its_turn_and_for_nothing_else() {
    let mut world = World::up();
    let prompt = |session: &str, id: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"{session}"}}}}"#
        )
    };
    let many = limits::POSTS_AT_ONCE;
    for session in 0..many {
        let name = format!("a{session:02}");
        world.line(&prompt(&name, 2 * session));
        world.opened(session + 1);
        world.line(&prompt(&name, 2 * session + 1));
    }
    world.line(&prompt("z", 2 * many));
    assert_eq!(world.opened(many + 1), "");
    assert_eq!(world.pass(40_000), "", "it is not held for its stream's sake");
    let told = world.answer(1, response(202));
    assert!(told.starts_with(&format!("post {} z ", many + 1)), "{told}");
}

#[test]
fn r2_a_replaced_stream_delivers_nothing() {
    let mut world = World::with_session();
    let reopened = world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(reopened, "open 2 s\n");
    world.opened(2);
    assert_eq!(world.says(1, r#"{"jsonrpc":"2.0","method":"late"}"#), "");
    assert_eq!(world.on(1, StreamEvent::Ended(End::Clean)), "");
    assert_eq!(
        world.says(2, r#"{"jsonrpc":"2.0","method":"live"}"#),
        "line {\"jsonrpc\":\"2.0\",\"method\":\"live\"}\n"
    );
}

#[test]
fn l11_ks17_after_a_sleep_every_stream_is_opened_again_once_what_had_come_is_read() {
    let mut world = World::with_session();
    assert_eq!(world.step(Event::Woke), "");
    world.step(Event::Listening(false));
    assert_eq!(world.pass(1_100), "", "the editor does not read yet");
    world.step(Event::Listening(true));
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(1, update), format!("line {update}\n"));
    assert_eq!(world.pass(249), "", "it is read for a moment");
    let told = world.pass(1).replace("1350: ", "");
    assert_eq!(told, "close 0\nopen 2 -\nclose 1\nopen 3 s\n");
}

#[test]
fn l11_an_event_that_is_still_on_its_way_keeps_its_stream_and_teaches_no_heartbeat() {
    let mut world = World::with_session();
    for _ in 0..3 {
        world.on(1, StreamEvent::Comment);
        world.pass(500);
    }
    for _ in 0..20 {
        world.on(1, StreamEvent::Progress);
        assert_eq!(world.pass(4_000), "");
    }
    assert_eq!(world.pass(6_000), "87500: close 1\n87500: open 2 s\n");
}

#[test]
fn r12_an_event_that_is_still_on_its_way_is_no_silence() {
    let mut world = World::with_session();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":null}"#;
    world.says(0, answer);
    for _ in 0..20 {
        assert_eq!(world.pass(40), "");
        world.on(1, StreamEvent::Progress);
    }
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(1, update), format!("line {update}\n"));
    assert_eq!(world.pass(50), format!("850: line {answer}\n"));
}

#[test]
fn i4_the_answer_to_a_prompt_in_the_body_of_its_post_waits_for_what_came_before_it() {
    let mut world = World::with_session();
    world.line(PROMPT);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.answer(2, json(200, answer)), "");
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(1, update), format!("line {update}\n"));
    assert_eq!(world.pass(50), format!("50: line {answer}\n"));
}

#[test]
fn i19_a_message_that_could_not_be_read_may_have_been_an_answer() {
    let broken = |text: &'static [u8]| StreamEvent::Message {
        data: Some(Bytes::from_static(text)),
        id: None,
    };
    for (event, is_a_loss) in [
        (StreamEvent::TooLarge, true),
        (broken(b" {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"\xff\"}"), true),
        (broken(b"keepalive"), false),
    ] {
        let mut world = World::with_session();
        world.line(PROMPT);
        world.answer(2, response(202));
        let told = world.on(1, event) + &world.pass(600_000);
        assert_eq!(told.contains("\"kind\":\"stream_lost\""), is_a_loss, "{told}");
    }
}

#[test]
fn l11_silence_says_nothing_while_streams_are_not_read() {
    let mut world = World::with_session();
    for _ in 0..3 {
        world.on(1, StreamEvent::Comment);
        world.pass(10_000);
    }
    world.step(Event::Listening(false));
    assert_eq!(world.pass(600_000), "");
    world.step(Event::Listening(true));
    assert_eq!(world.pass(29_000), "");
    assert_eq!(world.pass(1_000), "660000: close 1\n660000: open 2 s\n");
}

#[test]
fn l11_heartbeats_that_came_in_a_bunch_do_not_end_all_streams_before_their_first() {
    let mut world = World::up();
    for _ in 0..3 {
        world.on(0, StreamEvent::Comment);
    }
    assert_eq!(world.pass(10_000), "10000: close 0\n10000: open 1 -\n");
    world.opened(1);
    let told = world.pass(10_500);
    assert!(told.starts_with("20000: close 1\n") && told.ends_with("open 2 -\n"), "{told}");
    world.opened(2);
    for _ in 0..3 {
        assert_eq!(world.pass(15_000), "");
        world.on(2, StreamEvent::Comment);
    }
    let told = world.pass(45_000);
    assert!(told.starts_with("110500: close 2\n"), "what this one showed counts: {told}");
}

#[test]
fn r12_silence_says_nothing_while_streams_are_not_read() {
    let mut world = World::with_session();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":null}"#;
    assert_eq!(world.says(0, answer), "");
    world.step(Event::Listening(false));
    assert_eq!(world.pass(10_000), "");
    world.step(Event::Listening(true));
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(1, update), format!("line {update}\n"));
    assert_eq!(world.pass(50), format!("10050: line {answer}\n"));
}

#[test]
fn r12_an_answer_that_waited_for_long_enough_lets_none_go_whose_replay_still_comes() {
    let load = |id: u8| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/load","params":{{"sessionId":"s"}}}}"#
        )
    };
    let answer = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#);
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    let mut world = World::with_session();
    world.line(&load(2));
    world.answer(2, response(202));
    world.line(&load(3));
    world.answer(3, response(202));
    let mut answers = [(0, 2), (1_900, 3)].into_iter().peekable();
    while world.now < 2_000 {
        if let Some((_, id)) = answers.next_if(|(at, _)| *at <= world.now) {
            assert_eq!(world.says(0, &answer(id)), "");
        }
        world.says(1, update);
        let told = world.pass(20);
        let expected =
            if world.now == 2_000 { format!("2000: line {}\n", answer(2)) } else { String::new() };
        assert_eq!(told, expected);
    }
    world.says(1, update);
    assert_eq!(world.pass(100), format!("2050: line {}\n", answer(3)));
}

#[test]
fn v8_a_close_whose_answer_was_lost_leaves_nothing_open_that_came_after_it() {
    let mut world = World::with_session();
    world.core.answers_apart = true;
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/close","params":{"sessionId":"s"}}"#);
    world.answer(2, response(202));
    world.line(PROMPT);
    world.answer(3, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    world.opened(2);
    world.on(0, StreamEvent::Ended(End::Broken("reset".into())));
    world.opened(3);
    let told = world.pass(limits::ORPHAN_TIMEOUT.0);
    assert!(told.contains(r#""id":3,"error""#) && !told.contains(r#""id":2"#), "{told}");
    let told = world.pass(limits::ORPHAN_TIMEOUT.0);
    assert!(told.contains(r#""id":2,"error""#), "the prompt is open for ever: {told}");
}

#[test]
fn r12_what_a_session_still_says_comes_before_the_answer_to_its_close() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/close","params":{"sessionId":"s"}}"#);
    let closed = r#"{"jsonrpc":"2.0","id":3,"result":{}}"#;
    assert_eq!(world.says(0, closed), "");
    let cancelled = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    assert_eq!(world.says(1, cancelled), format!("line {cancelled}\n"));
    assert_eq!(world.pass(50), format!("50: line {closed}\n50: close 1\n"));
}

#[test]
fn r9_where_the_server_holds_an_old_stream_the_answer_may_have_gone_there() {
    let mut world = World::up();
    let Outcome::Response(unknown) = response(404) else { panic!() };
    let Outcome::Response(held) = response(409) else { panic!() };
    world.line(PROMPT);
    world.on(1, StreamEvent::Refused(unknown));
    world.answer(1, response(202));
    world.on(2, StreamEvent::Refused(held));
    world.opened(3);
    let told = world.pass(limits::ORPHAN_TIMEOUT.0);
    assert!(told.contains("stream_lost"), "the prompt is open for ever: {told}");
}

#[test]
fn r8_a_probe_that_a_loss_overtakes_is_closed() {
    let mut world = asked_whether_it_lives();
    world.line(r#"{"jsonrpc":"2.0","id":5,"method":"session/list"}"#);
    let told = world.answer(2, response(410));
    assert!(told.contains("close 3"), "nobody would read it: {told}");
}

#[test]
fn r8_the_stream_that_the_question_replaces_is_read_to_its_end() {
    for end in [End::Clean, End::Broken("reset".into())] {
        let mut world = asked_whether_it_lives();
        world.line(r#"{"jsonrpc":"2.0","id":5,"method":"session/list"}"#);
        world.answer(2, response(202));
        let told = world.opened(3);
        assert!(!told.contains("close 0"), "an answer may be on its way on it: {told}");
        let answer = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
        assert_eq!(world.says(0, answer), format!("line {answer}\n"));
        assert_eq!(world.on(0, StreamEvent::Ended(end)), "", "the other one lives");
        assert_eq!(world.says(0, answer), "");
        assert_eq!(world.pass(limits::REPLACED.0), "", "it has ended already");
    }
    let mut world = asked_whether_it_lives();
    world.opened(3);
    assert!(world.pass(limits::REPLACED.0).contains("close 0"), "some servers end it never");
}

#[test]
fn r8_what_the_replaced_stream_may_have_lost_is_in_doubt() {
    let mut world = asked_whether_it_lives();
    world.line(r#"{"jsonrpc":"2.0","id":5,"method":"session/list"}"#);
    world.answer(2, response(202));
    world.opened(3);
    world.on(0, StreamEvent::Ended(End::Broken("reset".into())));
    let told = world.pass(limits::ORPHAN_TIMEOUT.0);
    assert!(told.contains("\"id\":5,\"error\""), "the list is open for ever: {told}");
}

#[test]
fn r8_where_our_stream_ends_meanwhile_the_get_that_asks_takes_its_place() {
    let mut world = asked_whether_it_lives();
    world.core.opening.offers.resume = true;
    assert_eq!(world.on(0, StreamEvent::Ended(End::Clean)), "", "two would replace each other");
    let told = world.opened(3);
    assert!(!told.contains("close"), "it is ours now: {told}");
    assert!(told.contains("open 4 s"), "the connection lives: {told}");
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"_x/ask"}"#;
    assert!(world.says(3, question).contains("_x/ask"));
}

#[test]
fn r8_where_our_stream_is_opened_again_it_asks_as_well() {
    let mut world = asked_whether_it_lives();
    world.core.opening.offers.resume = true;
    world.on(3, StreamEvent::Failed(Outcome::Broken("reset".into())));
    world.on(0, StreamEvent::Ended(End::Clean));
    assert_eq!(world.pass(1_000).matches("open").count(), 1, "one asks, not two");
    let told = world.opened(4);
    assert!(told.contains("open 5 s"), "it was answered: {told}");
    assert!(!world.pass(60_000).contains("open 6 -"), "nobody asks again");
}

#[test]
fn r8_the_replaced_stream_is_not_given_up_while_nobody_reads_it() {
    let mut world = asked_whether_it_lives();
    world.opened(3);
    world.step(Event::Listening(false));
    assert_eq!(world.pass(10 * limits::REPLACED.0), "", "what waits on it is not read yet");
    world.step(Event::Listening(true));
    assert!(world.pass(limits::REPLACED.0).contains("close 0"));
}

#[test]
fn r8_the_replaced_stream_leaves_the_cursor_to_the_one_that_follows() {
    let mut world = asked_whether_it_lives();
    world.opened(3);
    let says = |id: &'static str| StreamEvent::Message { data: None, id: Some(Bytes::from(id)) };
    world.on(3, says("8"));
    world.on(0, says("7"));
    let told = world.on(3, StreamEvent::Ended(End::Clean));
    assert!(told.contains(r#"after b"8""#), "{told}");
}

#[test]
fn r8_a_question_that_is_refused_for_the_credential_is_asked_with_a_new_one_and_then_no_more() {
    let mut world = asked_whether_it_lives();
    world.line(PROMPT);
    let Outcome::Response(refused) = response(401) else { panic!() };
    assert_eq!(world.on(3, StreamEvent::Refused(refused.clone())), "open 4 - renewed\n");
    let told = world.on(4, StreamEvent::Refused(refused));
    assert!(told.contains("\"kind\":\"auth\""), "the prompt waited for the answer: {told}");
    assert_eq!(world.pass(600_000), "", "it will be the same the next time (L12)");
}

#[test]
fn l11_after_a_sleep_the_question_is_asked_anew() {
    let mut world = asked_whether_it_lives();
    world.step(Event::Woke);
    let told = world.pass(250);
    assert!(told.contains("close 3") && told.contains("open 4 -"), "{told}");
    let told = world.on(3, StreamEvent::Ended(End::Clean)) + &world.opened(4);
    assert!(!told.contains("open 5 -"), "the stream asks, too: {told}");
}

#[test]
fn l10_a_credential_that_cannot_be_had_is_an_error_at_once_and_no_loop() {
    let none = || Outcome::NoCredential("the token is locked away".into());
    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    let told = world.answer(0, none());
    assert!(told.contains("\"kind\":\"auth\"") && told.contains("locked away"), "{told}");
    assert_eq!(world.pass(600_000), "");

    let mut world = World::with_session();
    world.line(PROMPT);
    let told = world.answer(2, none());
    assert!(told.contains("\"kind\":\"auth\",\"delivery\":\"unsent\""), "{told}");
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, StreamEvent::Failed(none()));
    assert_eq!(world.pass(600_000), "", "a stream that stays shut is asked for by a message");
    assert!(world.line(PROMPT).contains("open 3 s"));
}

#[test]
fn l10_the_credential_is_read_again_for_one_try() {
    let mut world = World::with_session();
    world.line(PROMPT);
    assert!(world.answer(2, response(401)).starts_with("post 3 s renewed"));
    world.answer(3, response(429));
    let told = world.pass(10_000);
    assert!(told.contains("post 4 s {"), "it was good: {told}");
}

#[test]
fn t4_an_unattached_session_is_kept_while_the_agent_says_that_it_runs_and_no_longer() {
    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#);
    world.answer(0, json(200, r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":2}}"#));
    world.opened(0);
    world.line(PROMPT);
    world.opened(1);
    let says = |state: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"state_update","state":"{state}"}}}}}}"#
        )
    };
    world.says(1, &says("running"));
    let told = world.answer(1, Outcome::Broken("reset".into()));
    assert!(told.contains("error") && !told.contains("close 1"), "its turn goes on: {told}");
    assert!(world.says(1, &says("idle")).contains("close 1"), "nothing of it is left to do");
}

/// Session `s`, whose stream was refused with 404: GET 3 asks the connection whether it lives.
fn asked_whether_it_lives() -> World {
    let mut world = World::with_session();
    let Outcome::Response(unknown) = response(404) else { panic!() };
    world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, StreamEvent::Refused(unknown)), "open 3 -\n");
    world
}

/// The same, lost from its connection: POST 2 is what restores it.
fn restoring(offers: Offers) -> World {
    let mut world = asked_whether_it_lives();
    world.core.opening.offers = offers;
    assert!(world.opened(3).contains("open 4 s"));
    let Outcome::Response(unknown) = response(404) else { panic!() };
    assert!(world.on(4, StreamEvent::Refused(unknown)).starts_with("post 2 s"));
    world
}

#[test]
fn i9_a_restore_that_was_given_up_is_not_posted_once_more() {
    let mut world = restoring(Offers { resume: true, ..Offers::default() });
    world.on(0, StreamEvent::Ended(End::Clean));
    world.answer(2, response(429));
    assert!(world.pass(1_000).contains("post 3 s"));
    assert!(!world.pass(limits::RESTORE_TIMEOUT.0 - 999).contains("abandon"), "it is under way");
    world.answer(3, response(429));
    assert_eq!(world.pass(60_000), "", "nobody waits for it");
}

#[test]
fn i9_what_becomes_of_a_restore_that_was_given_up_is_not_taken_for_the_editor_s() {
    let mut world = restoring(Offers { resume: true, ..Offers::default() });
    let id = format!("acp-tether-own-00000007-{}", world.core.own_ids);
    world.pass(1_000);
    world.core.own.clear();
    let list = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"session/list"}}"#);
    assert!(world.line(&list).contains("post 3 -"));
    let body = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#);
    assert!(!world.answer(2, json(200, &body)).contains("line"), "that was our own answer");
    assert_eq!(world.says(3, &body), format!("line {body}\n"));
}

/// Its own answer may come late, and would be taken for the one to our restore.
#[test]
fn i9_no_request_of_ours_has_an_id_that_the_editor_ever_used() {
    let mut world = World::with_session();
    let used = format!(r#""acp-tether-own-00000007-{}""#, world.core.own_ids + 1);
    world.line(&format!(r#"{{"jsonrpc":"2.0","id":{used},"method":"session/list"}}"#));
    world.says(0, &format!(r#"{{"jsonrpc":"2.0","id":{used},"result":{{}}}}"#));
    assert_ne!(world.core.own_id(), used);
}

#[test]
fn v3_a_replay_to_a_stream_that_was_not_there_comes_with_the_next_and_is_not_passed_on() {
    let mut world = restoring(Offers { load: true, ..Offers::default() });
    assert_eq!(world.answer(2, response(202)), "open 5 s\n");
    let Outcome::Response(refused) = response(401) else { panic!() };
    assert_eq!(world.on(5, StreamEvent::Refused(refused.clone())), "open 6 s renewed\n");
    world.on(6, StreamEvent::Refused(refused));
    world.says(3, &world.answer_to_ours(r#""result":{}"#));
    assert_eq!(world.line(PROMPT), "open 7 s\n");
    assert_eq!(world.opened(7), "", "the replay may come first");
    let replay = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(7, replay), "");
    assert!(world.pass(limits::REPLAY_QUIET.0).contains(PROMPT));
}

#[test]
fn c3_a_resume_that_succeeds_late_mends_a_session_that_was_given_up() {
    let mut world = World::with_session();
    world.core.opening.offers.resume = true;
    world.line(r#"{"jsonrpc":"2.0","id":9,"method":"session/resume","params":{"sessionId":"s"}}"#);
    world.answer(2, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    let Outcome::Response(gone) = response(410) else { panic!() };
    world.on(2, StreamEvent::Refused(gone));
    world.pass(1_000);
    assert!(world.opened(3).contains("session/resume"), "what came since is not there (R6)");
    world.says(0, &world.answer_to_ours(r#""error":{"code":1}"#));
    assert!(world.line(PROMPT).contains("session_lost"));
    let told = world.says(0, r#"{"jsonrpc":"2.0","id":9,"result":null}"#);
    assert!(told.contains("open 4 s"), "the agent may speak first: {told}");
    assert!(!world.line(PROMPT).contains("error"), "the agent has it");
}

#[test]
fn v5_nothing_is_posted_on_a_connection_that_is_lost() {
    let mut world = World::with_session();
    let load = r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#;
    world.line(load);
    world.says(0, r#"{"jsonrpc":"2.0","id":2,"result":null}"#);
    world.answer(2, response(202));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    world.line(r#"{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s"}}"#);
    let told = world.answer(3, response(410));
    let posts: Vec<_> = told.lines().filter(|line| line.starts_with("post")).collect();
    assert_eq!(posts.len(), 1, "only what connects again: {told}");
    assert!(!told.contains("\"id\":4,\"error\""), "it never left: {told}");
}

#[test]
fn l12_a_stream_that_delivers_nothing_is_opened_again_ever_later() {
    let mut world = World::with_session();
    let mut delays = Vec::new();
    let mut stream = 1;
    for _ in 0..12 {
        let before = world.now;
        if !world.on(stream, StreamEvent::Ended(End::Broken("reset".into()))).contains("open") {
            world.pass(world.core.deadline().unwrap().0 - before);
        }
        delays.push(world.now - before);
        stream += 1;
        world.opened(stream);
    }
    assert_eq!(delays[0], 0);
    assert!((125..=250).contains(&delays[1]), "{delays:?}");
    assert!(delays[11] > 7_000 && delays[11] <= 15_000, "{delays:?}");
    world.pass(1_000);
    world.says(stream, r#"{"jsonrpc":"2.0","method":"x"}"#);
    assert!(world.on(stream, StreamEvent::Ended(End::Clean)).contains("open"), "at once again");
}

#[test]
fn s9_a_configuration_that_cannot_be_used_is_the_answer_to_initialize() {
    let unusable = Some("no such host".to_owned());
    let mut world = World::with(Settings { unusable, ..settings() });
    let told = world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    assert_eq!(
        told,
        "line {\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32603,\"message\":\"no such host\",\"data\":{\"kind\":\"config\",\"delivery\":\"unsent\"}}}\n"
    );
    assert_eq!(world.step(Event::EditorGone), "exit\n");
}

#[test]
fn v5_a_lost_connection_answers_what_was_sent_and_keeps_what_was_not() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world
        .line(r#"{"jsonrpc":"2.0","id":3,"method":"session/set_mode","params":{"sessionId":"s"}}"#);
    world
        .line(r#"{"jsonrpc":"2.0","id":4,"method":"session/set_mode","params":{"sessionId":"s"}}"#);
    let told = world.answer(3, response(410));
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(&lines[..2], ["close 0", "close 1"]);
    assert!(lines[2].contains("session/update"), "the gap is told: {told}");
    assert!(lines[3].contains(r#""id":2"#) && lines[3].contains("accepted"), "{told}");
    assert!(lines[4].starts_with("post 4 - ") && lines[4].contains("initialize"), "{told}");
    assert_eq!(lines.len(), 5, "{told}");
    let told = world.pass(30_000);
    assert!(told.contains(r#""id":3,"error""#) && told.contains(r#""id":4,"error""#), "{told}");
    assert!(told.contains(r#""kind":"connect","delivery":"unsent""#), "{told}");
}

#[test]
fn v11_a_gap_is_told_where_the_session_has_no_stream_too() {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
    world.answer(1, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    let Outcome::Response(none) = response(204) else { panic!() };
    world.on(1, StreamEvent::Refused(none));
    let session = Some(SessionId("s".into()));
    world.core.sessions.get_mut(&session).unwrap().stream.gap_is_told = true;
    world.line(PROMPT);
    world.answer(2, response(202));
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(0, update), format!("line {update}\n"));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/list"}"#);
    let told = world.answer(3, response(410));
    assert!(told.contains("may be missing"), "{told}");
}

#[test]
fn p6_a_restore_that_a_second_loss_overtakes_takes_no_room() {
    let mut world = World::with_session();
    let up_again = |world: &mut World| {
        let id = world.core.own_ids;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":"acp-tether-own-00000007-{id}","result":{{"protocolVersion":1,"agentCapabilities":{{"loadSession":true}}}}}}"#
        );
        world.answer(world.posts.len() - 1, json(200, &body));
    };
    world.core.opening.offers.load = true;
    let gone = || Response { status: 404, ..Response::default() };
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, StreamEvent::Refused(gone()));
    up_again(&mut world);
    assert!(world.core.queued_bytes > 0, "the restore waits for its stream");
    world.on(3, StreamEvent::Refused(gone()));
    assert_eq!(world.core.queued_bytes, 0);
}

#[test]
fn a3_what_only_passes_is_no_change_and_what_the_status_says_is() {
    let mut world = World::with_session();
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk"}}}"#;
    let titled = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"session_info_update","title":"t"}}}"#;
    let question = r#"{"jsonrpc":"2.0","id":"q","method":"x","params":{"sessionId":"s"}}"#;
    let result = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    let told = |world: &mut World, act: &dyn Fn(&mut World) -> String| {
        let before = world.changes;
        act(world);
        world.now += 1;
        world.changes - before
    };
    let close = Event::Inquiry(Ticket(7), Inquiry::Close(SessionId("s".into())));
    assert_eq!(told(&mut world, &|world| world.line(PROMPT)), 1);
    assert_eq!(told(&mut world, &|world| world.says(1, update)), 0);
    assert_eq!(told(&mut world, &|world| world.on(0, StreamEvent::Comment)), 0);
    assert_eq!(told(&mut world, &|world| world.says(1, titled)), 1);
    assert_eq!(told(&mut world, &|world| world.says(1, question)), 1);
    assert_eq!(told(&mut world, &|world| world.says(0, result)), 1);
    assert_eq!(told(&mut world, &|world| world.step(close.clone())), 1);
}

#[test]
fn a3_k127_a_link_whose_streams_cannot_be_opened_does_not_read_as_up() {
    let mut world = World::with_session();
    world.line(PROMPT);
    let refused = || StreamEvent::Failed(Outcome::Unsent("connection refused".into()));
    for stream in [0, 1] {
        world.on(stream, StreamEvent::Ended(End::Broken("reset".into())));
    }
    let stands = |world: &mut World| {
        let status = world.step(Event::Inquiry(Ticket(1), Inquiry::Status));
        let part = |name: &str| status.split(name).nth(1).unwrap().to_owned();
        (part("state: "), part("remote: "))
    };
    assert!(stands(&mut world).0.starts_with("Up"), "they are merely opened again");
    for stream in [2, 3] {
        world.on(stream, refused());
    }
    let (link, remote) = stands(&mut world);
    assert!(link.starts_with("Reconnecting") && link.contains("connection refused"), "{link}");
    assert!(remote.starts_with("Restoring"), "{remote}");
    world.pass(1_000);
    for stream in [4, 5] {
        world.opened(stream);
    }
    let (link, remote) = stands(&mut world);
    assert!(link.starts_with("Up") && remote.starts_with("Attached"), "{link} {remote}");
}

#[test]
fn v9_a_new_session_under_the_id_of_a_lost_one_begins_anew() {
    let mut world = World::with_session();
    let numbered = |id: &'static [u8]| StreamEvent::Message {
        data: Some(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"x"}"#)),
        id: Some(Bytes::from_static(id)),
    };
    world.on(1, numbered(b"7"));
    world.on(1, StreamEvent::Ended(End::Clean));
    let Outcome::Response(unknown) = response(404) else { panic!() };
    world.on(2, StreamEvent::Refused(unknown));
    world.opened(3);
    assert!(world.line(PROMPT).contains("session_lost"), "nothing restores it");
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/new","params":{"cwd":"/"}}"#);
    let created = world.says(3, r#"{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s"}}"#);
    assert!(created.ends_with("open 4 s\n"), "a stream without the old cursor: {created}");
    assert!(world.opened(4).is_empty());
    let posted = world.line(PROMPT);
    assert!(posted.starts_with("post "), "{posted}");
}

#[test]
fn e1_the_remote_cannot_answer_a_call_of_ours() {
    let mut world = World::with_session();
    let call = r#"{"jsonrpc":"2.0","id":9,"method":"_acp-tether/status"}"#;
    assert!(world.line(call).starts_with("rpc "));
    assert_eq!(world.says(0, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#), "");
}

#[test]
fn r10_neither_flapping_nor_cancelling_again_puts_off_the_end_of_a_doubt() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    let cancel = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
    let broken = || StreamEvent::Ended(End::Broken("reset".into()));
    let mut told = world.on(1, broken());
    for _ in 0..8 {
        told += &world.line(cancel);
        told += &world.pass(1_000);
        let stream = world.streams.len() - 1;
        told += &world.opened(stream);
        told += &world.on(stream, broken());
    }
    assert!(told.contains("-32800"), "the prompt is open for ever: {told}");
}

#[test]
fn t1_k129_of_too_many_dead_sessions_the_one_that_was_quiet_for_longest_is_forgotten() {
    let mut world = World::with_session();
    let prompt = |world: &mut World, session: &str| {
        world.now += 1;
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"{session}","method":"session/prompt","params":{{"sessionId":"{session}"}}}}"#
        );
        world.line(&line);
    };
    prompt(&mut world, "s");
    for dead in 0..limits::SUMMARIES {
        // An id that cannot stand in a header is refused at once, and nothing is kept of it.
        prompt(&mut world, &format!("{dead} "));
    }
    let close = |world: &mut World, session: &str| {
        let session = SessionId(session.into());
        world.step(Event::Inquiry(Ticket(0), Inquiry::Close(session)))
    };
    let told = world.step(Event::Inquiry(Ticket(0), Inquiry::Status));
    assert_eq!(told.matches("Summary {").count(), limits::SUMMARIES);
    assert_eq!(close(&mut world, "s"), "reply Busy\n", "one that is in use stays");
    assert_eq!(close(&mut world, "0 "), "reply Unknown\n");
    assert_eq!(close(&mut world, "1 "), "reply Closed\n");
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"_acp-tether/status"}"#;
const CALLED: &str = "rpc {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"_acp-tether/status\"}\n";

fn answered(world: &mut World, ticket: u64) -> String {
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{ticket},"result":{{"a": 1}}}}"#);
    world.step(Event::Rpc(Ticket(ticket), Bytes::from(answer)))
}

#[test]
fn e1_a_call_survives_the_loss_of_the_connection_and_a_failed_initialize() {
    let mut world = World::with_session();
    assert_eq!(world.line(CALL), CALLED);
    world.on(0, StreamEvent::Ended(End::Broken("reset".into())));
    let Outcome::Response(gone) = response(404) else { panic!() };
    assert!(!world.on(2, StreamEvent::Refused(gone)).contains(r#""id":"c""#));
    let line = r#"line {"jsonrpc":"2.0","id":"c","result":{"a": 1}}"#;
    assert_eq!(answered(&mut world, 1), format!("{line}\n"));
    assert_eq!(answered(&mut world, 1), "", "a second answer is none (P2)");

    let mut world = World::new();
    world.line(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    assert_eq!(world.line(CALL), CALLED);
    let failed = world.answer(0, response(404));
    assert!(failed.contains(r#""id":0,"error""#) && !failed.contains(r#""id":"c""#), "{failed}");
    assert_eq!(answered(&mut world, 1), format!("{line}\n"));
}

#[test]
fn e1_the_id_of_an_open_call_is_taken_and_a_cancel_of_the_call_goes_nowhere() {
    let mut world = World::with_session();
    world.line(CALL);
    assert!(world.line(CALL).contains("a request with this id is open"));
    let list = r#"{"jsonrpc":"2.0","id":"c","method":"session/list"}"#;
    assert!(world.line(list).contains("a request with this id is open"));
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"c"}}"#;
    assert_eq!(world.line(cancel), "");
    assert!(answered(&mut world, 1).contains(r#""id":"c","result""#));
    assert!(world.line(list).starts_with("post"), "the id is free");
}

#[test]
fn e1_a_call_without_an_answer_of_its_own_gets_an_error() {
    let mut world = World::with_session();
    world.line(CALL);
    let told = world.step(Event::Rpc(Ticket(1), Bytes::from_static(b"{}")));
    assert!(told.contains(r#""id":"c","error":{"code":-32603"#), "{told}");
    world.line(CALL);
    world.step(Event::EditorGone);
    let told = world.pass(1_000);
    assert!(told.contains(r#""id":"c","error""#) && told.contains("delete"), "{told}");
    assert_eq!(answered(&mut world, 2), "");
}

/// The remote forgot the session, and with it the turn.
#[test]
fn r9_what_was_sent_is_in_doubt_where_the_remote_does_not_know_its_session_any_more() {
    let mut world = World::up();
    let Outcome::Response(unknown) = response(403) else { panic!() };
    assert_eq!(world.line(PROMPT), "open 1 s\n");
    world.opened(1);
    world.answer(1, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, StreamEvent::Refused(unknown));
    assert!(world.pass(limits::ORPHAN_TIMEOUT.0).contains(r#""kind":"stream_lost""#));
}
