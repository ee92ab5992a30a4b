//! What becomes of a turn whose stream, session or connection is gone.

use super::super::posts::speaks_of_the_connection;
use super::super::session::{Scope, StreamState};
use super::*;

pub(super) const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
pub(super) const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":"q","method":"x","params":{"sessionId":"s"}}"#;
/// The editor's answer to it.
pub(super) const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"acp-tether-1","result":{}}"#;
/// The withdrawal of it.
pub(super) const WITHDRAWN: &str =
    r#""method":"$/cancel_request","params":{"requestId":"acp-tether-1"}"#;

pub(super) fn conflict() -> StreamEvent {
    let Outcome::Response(response) = json(409, r#"{"error":"session_reload_required"}"#) else {
        panic!()
    };
    StreamEvent::Refused(response)
}

pub(super) fn prompt(id: u32) -> String {
    PROMPT.replace("\"id\":2", &format!("\"id\":{id}"))
}

/// The connection's own GET says that it is gone.
fn lose(world: &mut World) -> String {
    world.on(0, StreamEvent::Ended(End::Clean));
    let newest = world.streams.len() - 1;
    world.on(newest, refused(404))
}

#[test]
fn r10_a_request_that_never_left_is_in_no_doubt() {
    for outcome in [Outcome::Unsent("refused".into()), response(429)] {
        let mut world = World::with_session();
        world.line(PROMPT);
        world.on(1, broken());
        world.line(CANCEL);
        world.answer(2, outcome);
        assert_eq!(world.pass(6_000), "", "it waits for its stream, and the cancel behind it");
        assert!(world.opened(2).contains("post 3 s"));
        assert_eq!(world.answer(3, response(202)), format!("post 4 s {CANCEL}\n"));
    }
}

#[test]
fn r11_what_failed_with_its_stream_is_not_posted_afterwards() {
    let mut world = World::with_session();
    world.core.settings.strict = true;
    world.line(PROMPT);
    assert!(world.on(1, StreamEvent::Ended(End::Clean)).contains("stream_lost"));
    assert_eq!(world.answer(2, Outcome::Unsent("refused".into())), "");
    assert_eq!(world.line(&prompt(3)), "open 2 s\n");
    assert_eq!(world.opened(2), format!("post 3 s {}\n", prompt(3)));
}

#[test]
fn c4_neither_a_request_nor_an_answer_of_a_failed_session_is_posted_after_it_was_mended() {
    for outcome in [Outcome::Unsent("refused".into()), response(401), response(429)] {
        let mut world = World::with_session();
        world.core.settings.recover_alone = false;
        world.line(PROMPT);
        world.says(1, QUESTION);
        assert!(world.line(ANSWER).starts_with("post 3 s"));
        world.on(1, StreamEvent::Ended(End::Clean));
        let told = world.on(2, conflict());
        assert!(told.contains("\"kind\":\"conflict\""), "{told}");
        assert_eq!(world.answer(2, outcome.clone()) + &world.answer(3, outcome), "");
        let load = r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#;
        assert_eq!(world.line(load), "open 3 s\n");
        assert_eq!(world.opened(3), format!("post 4 s {load}\n"));
        world.answer(4, response(202));
        assert_eq!(world.pass(60_000), "");
    }
}

#[test]
fn r10_a_cancel_ends_the_turn_that_it_was_meant_for_and_no_later_one() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.line(CANCEL);
    world.opened(2);
    world.answer(3, response(202));
    world.says(2, r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#);
    world.pass(2_000);
    world.line(&prompt(3));
    world.answer(4, response(202));
    world.on(2, broken());
    world.opened(3);
    assert_eq!(world.pass(60_000), "", "nobody cancelled it");
    let answer = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.says(3, answer), format!("line {answer}\n"));
}

#[test]
fn r10_a_prompt_behind_the_one_that_was_cancelled_goes_on() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.line(CANCEL);
    world.answer(3, response(202));
    world.line(&prompt(3));
    world.answer(4, response(202));
    world.on(1, broken());
    world.opened(2);
    let told = world.pass(60_000);
    assert!(told.starts_with("5000: line") && told.contains("-32800"), "{told}");
    assert!(told.contains("\"id\":2") && told.lines().count() == 1, "{told}");
}

#[test]
fn v6_what_a_session_asked_that_is_lost_from_its_connection_is_withdrawn() {
    let mut world = World::with_session();
    world.core.opening.offers = Offers { resume: true, ..Offers::default() };
    world.says(1, QUESTION);
    world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, refused(404)), "open 3 -\n");
    let told = world.opened(3);
    assert!(told.contains(WITHDRAWN), "{told}");
    assert_eq!(world.line(ANSWER), "", "its agent does not know it any more");
}

#[test]
fn v6_what_a_session_asked_that_the_editor_loads_anew_is_withdrawn() {
    let mut world = World::with_session();
    world.says(1, QUESTION);
    world.on(1, StreamEvent::Ended(End::Clean));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    let told = world.on(2, refused(403));
    assert!(told.contains(WITHDRAWN) && told.contains("post 2 s"), "{told}");
    assert_eq!(world.line(ANSWER), "");
}

#[test]
fn v6_what_a_session_asked_that_is_not_restored_is_withdrawn_at_the_loss() {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#);
    world.on(1, refused(404));
    world.answer(1, response(202));
    world.opened(2);
    world.says(2, QUESTION);
    assert!(lose(&mut world).contains(WITHDRAWN));
    assert_eq!(world.line(ANSWER), "");
}

#[test]
fn v6_what_was_asked_is_withdrawn_where_the_agent_speaks_another_version_now() {
    let mut world = World::with_session();
    world.says(1, QUESTION);
    let told = lose(&mut world);
    assert!(told.contains("post 2 - ") && !told.contains(WITHDRAWN), "{told}");
    let id = told.split("\"id\":").nth(1).unwrap().split(',').next().unwrap();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":7}}}}"#);
    let told = world.answer(2, json(200, &answer));
    assert!(told.contains(WITHDRAWN), "{told}");
}

#[test]
fn v11_a_turn_that_goes_on_behind_its_answered_prompt_is_not_lost_in_silence() {
    let mut world = World::with_session();
    world.core.opening.version = Some(Bytes::from_static(b"2"));
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    world.says(1, r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}"#);
    let told = lose(&mut world);
    assert!(told.contains("in the middle of") && told.contains("agent_message_chunk"), "{told}");
}

#[test]
fn r8_what_was_sent_is_in_doubt_where_the_question_cannot_be_asked() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, refused(404)), "open 3 -\n");
    assert_eq!(world.on(3, refused(401)), "open 4 - renewed\n");
    world.on(4, refused(401));
    let told = world.pass(600_000);
    assert!(told.contains("\"id\":2") && told.contains("stream_lost"), "{told}");
}

#[test]
fn i1_an_answer_that_waits_for_the_rest_of_its_turn_is_the_answer_whatever_happens_meanwhile() {
    let ends: [fn(&mut World) -> String; 4] = [
        |world| {
            world.core.settings.strict = true;
            world.on(1, StreamEvent::Ended(End::Clean))
        },
        |world| {
            world.on(1, StreamEvent::Ended(End::Clean));
            world.on(2, conflict())
        },
        lose,
        |world| world.step(Event::EditorGone) + &world.pass(2_000),
    ];
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    for end in ends {
        let mut world = World::with_session();
        world.line(PROMPT);
        assert_eq!(world.answer(2, json(200, answer)), "");
        let told = end(&mut world);
        assert!(told.contains(answer) && !told.contains("\"error\""), "{told}");
    }
}

#[test]
fn i1_an_answer_that_waits_goes_out_at_the_end_though_the_stream_is_never_quiet() {
    let mut world = World::with_session();
    world.line(PROMPT);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.answer(2, json(200, answer)), "");
    let mut told = world.step(Event::EditorGone);
    while !told.contains("delete") {
        told = world.pass(40) + &world.on(1, StreamEvent::Progress);
    }
    assert!(told.contains(answer) && !told.contains("\"error\""), "{told}");
}

#[test]
fn i4_in_version_2_the_answer_to_a_prompt_is_not_the_end_of_its_turn() {
    let mut world = World::with_session();
    world.core.opening.version = Some(Bytes::from_static(b"2"));
    world.line(PROMPT);
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
    assert_eq!(world.answer(2, json(200, answer)), format!("line {answer}\n"));
}

#[test]
fn r9_what_was_sent_is_in_doubt_where_the_server_may_have_answered_to_a_get_that_broke() {
    for (outcome, is_doubted) in
        [(Outcome::Broken("reset".into()), true), (Outcome::Unsent("refused".into()), false)]
    {
        let mut world = World::with_session();
        world.line(PROMPT);
        world.answer(2, response(202));
        world.on(1, StreamEvent::Ended(End::Clean));
        assert_eq!(world.on(2, StreamEvent::Failed(outcome)), "");
        assert!(world.pass(1_000).contains("open 3 s"));
        world.opened(3);
        assert_eq!(world.pass(600_000).contains("stream_lost"), is_doubted);
    }
}

#[test]
fn l10_a_400_loses_the_connection_only_where_it_speaks_of_ours() {
    let says = |body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        speaks_of_the_connection(&Response { status: 400, body, ..Response::default() })
    };
    for ours in [
        "Missing Acp-Connection-Id header",
        r#"{"error":{"code":-32600,"message":"Unknown connection: 6fa459ea-ee8a-3ca4"}}"#,
        "No such connection",
        "connection \"c1\" does not exist",
        "unknown ACP connection",
        "The connection is closed",
        "Server not initialized",
        r#"{"error":"unknown_connection"}"#,
        r#"{"code":"connection_expired","message":"start again"}"#,
        "connection-closed",
        "Connection with id c1 does not exist",
        "The connection has already been closed",
        "Connection: c1, not found",
        "connection 6fa459ea-ee8a-3ca4-894e-db77e160355e not found",
    ] {
        assert!(says(ours), "{ours}");
    }
    for another in [
        "mcpServers[0]: bad database connection string",
        "mcpServers[0]: invalid database connection string",
        r#"{"error":"bad database connection string","code":"invalid_params"}"#,
        "the required field `connection` is empty",
        "no connections left in the pool; max reached, none closed",
    ] {
        assert!(!says(another), "{another}");
    }
}

/// A turn whose stream broke, and cannot be opened for 40 s; what is told meanwhile. The editor cancels it.
fn cancelled_while_away(end: End) -> (World, String) {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    let mut told = world.on(1, StreamEvent::Ended(end)) + &world.line(CANCEL);
    while world.now < 40_000 {
        if let StreamState::Opening(_) = world.core.sessions[&s()].stream.state {
            let newest = world.streams.len() - 1;
            told += &world.on(newest, StreamEvent::Failed(Outcome::Unsent("away".into())));
        }
        told += &world.pass(1_000);
    }
    (world, told)
}

pub(super) fn s() -> Scope {
    Some(SessionId("s".into()))
}

/// Opens the stream that is asked for next.
fn opens_next(world: &mut World) -> String {
    let before = world.streams.len();
    let mut told = String::new();
    while world.streams.len() == before {
        told += &world.pass(100);
    }
    told + &world.opened(before)
}

#[test]
fn v10_a_cancel_waits_for_as_long_as_its_turn_goes_on() {
    let (mut world, told) = cancelled_while_away(End::Clean);
    assert!(!told.contains("error"), "the turn goes on: {told}");
    assert!(opens_next(&mut world).contains(CANCEL));
}

#[test]
fn v10_a_cancel_whose_turn_was_answered_in_its_agent_s_place_goes_to_the_agent_all_the_same() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.line(CANCEL);
    world.on(2, refused(503));
    let told = world.pass(5_000);
    assert!(told.contains("-32800"), "{told}");
    let later = prompt(3);
    world.line(&later);
    let newest = world.streams.len() - 1;
    let told = world.opened(newest);
    assert!(told.contains(CANCEL) && !told.contains(&later), "it comes first: {told}");
    assert!(world.answer(3, response(202)).contains(&later));

    // However long that takes, but to no other connection (V5).
    let (mut world, told) = cancelled_while_away(End::Broken("reset".into()));
    assert!(told.contains("-32800"), "{told}");
    assert!(opens_next(&mut world).contains(CANCEL));
    let (mut world, _) = cancelled_while_away(End::Broken("reset".into()));
    assert!(!(lost_and_replaced(&mut world) + &answer_ours(&mut world, "")).contains(CANCEL));
}

#[test]
fn l12_any_message_asks_again_for_the_streams_on_which_it_may_be_answered() {
    let mut world = World::with_session();
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, refused(403));
    let told = world.line(PROMPT);
    assert!(told.contains("open 3 -") && told.contains(PROMPT), "the connection's: {told}");

    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, QUESTION);
    world.on(1, broken());
    world.on(2, refused(403));
    let told = world.line(ANSWER);
    assert!(told.contains("open 3 s") && told.contains("post 3 s"), "an answer, too: {told}");
}

#[test]
fn r11_any_message_and_a_person_ask_again_for_the_connection_s_stream() {
    let asks: [fn(&mut World) -> String; 2] = [
        |world| world.line(PROMPT),
        |world| world.step(Event::Inquiry(Ticket(1), Inquiry::Reconnect)),
    ];
    for ask in asks {
        let mut world = World::with_session();
        world.core.settings.strict = true;
        world.line(r#"{"jsonrpc":"2.0","id":5,"method":"session/list"}"#);
        world.answer(2, response(202));
        assert!(world.on(0, StreamEvent::Ended(End::Clean)).contains("stream_lost"));
        assert!(ask(&mut world).contains("open 2 -"));
    }
}

#[test]
fn a3_a_connection_whose_own_stream_was_stopped_is_not_up() {
    let mut world = World::with_session();
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, refused(403));
    let told = world.step(Event::Inquiry(Ticket(1), Inquiry::Status));
    assert!(told.contains("Reconnecting") && told.contains("(403)"), "{told}");
}

#[test]
fn v9_what_a_session_was_sent_fails_with_it() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    let id = Some(Bytes::from_static(b"1"));
    let data = Some(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"x"}"#));
    world.on(1, StreamEvent::Message { data, id });
    world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, refused(410)), "open 3 s\n");
    let told = world.opened(3);
    assert!(told.contains("session_lost") && told.contains("\"id\":2"), "{told}");
}

#[test]
fn l10_a_410_to_the_connection_s_stream_that_named_no_event_is_its_loss() {
    let mut world = World::with_session();
    world.on(0, StreamEvent::Ended(End::Clean));
    assert!(world.on(2, refused(410)).contains("initialize"));
}

#[test]
fn r10_an_agent_that_waits_for_the_person_is_not_given_up() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, QUESTION);
    world.on(1, broken());
    world.opened(2);
    assert_eq!(world.pass(2_000_000), "");
    assert!(world.line(ANSWER).contains("post 3 s"));
    world.answer(3, response(202));
    assert_eq!(world.pass(599_999), "");
    assert!(world.pass(1).contains("stream_lost"));
}

#[test]
fn r10_what_comes_of_a_session_counts_for_all_that_it_was_sent() {
    let mut world = World::up();
    world.line(PROMPT);
    world.opened(1);
    world.answer(1, response(202));
    world.on(0, broken());
    world.opened(2);
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    for _ in 0..20 {
        assert_eq!(world.pass(100_000), "");
        world.says(1, update);
    }
    assert!(world.pass(600_000).contains("stream_lost"));
}

#[test]
fn r9_a_stream_whose_answers_are_numbered_loses_none_to_a_sleep() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    let data = Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":2,"result":{}}"#));
    world.on(1, StreamEvent::Message { data, id: Some(Bytes::from_static(b"1")) });
    world.line(&prompt(3));
    world.answer(3, response(202));
    world.step(Event::Woke);
    let told = world.pass(limits::WAKING.0);
    assert!(told.contains("open 3 s after"), "{told}");
    world.opened(2);
    world.opened(3);
    assert_eq!(world.pass(2_000_000), "");
}

#[test]
fn r1_a_session_whose_load_was_answered_gets_its_stream_though_no_202_came() {
    let mut world = World::up();
    let load = r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#;
    world.line(load);
    world.on(1, refused(403));
    assert_eq!(world.says(0, r#"{"jsonrpc":"2.0","id":2,"result":null}"#), "");
    assert!(world.pass(limits::REPLAY_WAIT.0).ends_with("open 2 s\n"));
}

#[test]
fn r9_what_did_not_make_its_session_known_is_in_doubt() {
    let mut world = World::up();
    world.line(PROMPT);
    world.on(1, refused(404));
    assert_eq!(world.answer(1, response(202)), "open 2 s\n");
    world.on(2, refused(404));
    world.line(CANCEL);
    assert!(world.pass(limits::CANCEL_GRACE.0).contains("-32800"));
}

/// The connection is lost, and replaced by one on which sessions are resumed: what was told of it, and the
/// request that resumes the session as the last POST.
pub(super) fn lost_and_replaced(world: &mut World) -> String {
    let own = world.streams.iter().rposition(|stream| stream.session.is_none()).unwrap();
    world.on(own, StreamEvent::Ended(End::Clean));
    let told = world.on(world.streams.len() - 1, refused(404)) + &world.pass(1_000);
    let offers = r#""agentCapabilities":{"sessionCapabilities":{"resume":{}}}"#;
    answer_ours(world, &format!(r#""protocolVersion":1,{offers}"#));
    world.opened(world.streams.len() - 2);
    assert!(world.opened(world.streams.len() - 1).contains("session/resume"));
    told
}

/// Answers our request, which is the last POST.
fn answer_ours(world: &mut World, rest: &str) -> String {
    let answer = world.answer_to_ours(&format!(r#""result":{{{rest}}}"#));
    world.answer(world.posts.len() - 1, json(200, &answer))
}

#[test]
fn v11_each_turn_that_is_lost_is_told_of_though_it_said_nothing() {
    let mut world = World::with_session();
    for turn in 0..2 {
        assert!(world.line(&prompt(2 + turn)).contains("session/prompt"));
        world.answer(world.posts.len() - 1, response(202));
        let told = lost_and_replaced(&mut world);
        assert!(told.contains("in the middle of this turn"), "{told}");
        answer_ours(&mut world, "");
    }
}

#[test]
fn v6_a_question_is_kept_while_streams_are_not_read() {
    let mut world = World::with_session();
    world.says(1, QUESTION);
    lost_and_replaced(&mut world);
    answer_ours(&mut world, "");
    world.step(Event::Listening(false));
    assert!(!world.pass(10_000).contains(WITHDRAWN));
    world.step(Event::Listening(true));
    let newest = world.streams.len() - 1;
    assert_eq!(world.says(newest, QUESTION), "", "it is before the person");
}

/// A turn in doubt whose cancel is under way, as POST 3.
fn cancel_under_way() -> World {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.opened(2);
    assert!(world.line(CANCEL).contains("post 3 s"));
    world
}

#[test]
fn v10_a_cancel_that_is_under_way_as_its_turn_is_given_up_is_sent_all_the_same() {
    let mut world = cancel_under_way();
    assert!(world.pass(5_000).contains("-32800"));
    let told = world.answer(3, Outcome::Unsent("away".into())) + &world.pass(1_000);
    assert!(told.contains(CANCEL), "{told}");
}

#[test]
fn v10_a_cancel_outlives_the_refusal_of_its_stream() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    assert_eq!(world.on(2, refused(403)), "");
    assert!(world.line(CANCEL).contains("open 3 s"));
    assert_eq!(world.on(3, refused(403)), "");
    let told = world.pass(5_000);
    assert!(told.contains("-32800") && !told.contains("open"), "nobody asks: {told}");
    assert!(world.line(&prompt(3)).contains("open 4 s"));
    assert!(world.opened(4).contains(CANCEL));
}

/// A session that floods makes the shell deaf again and again.
#[test]
fn i13_a_flood_puts_off_nobody_s_timers() {
    let mut world = cancel_under_way();
    world.answer(3, response(202));
    let mut told = String::new();
    while world.now < 6_000 {
        for (is_listening, time) in [(false, 400), (true, 100)] {
            world.step(Event::Listening(is_listening));
            told += &world.pass(time);
        }
    }
    assert!(told.contains("-32800"), "{told}");
}

#[test]
fn l12_what_stopped_a_stream_is_not_why_the_next_one_does_not_open() {
    let mut world = World::with_session();
    world.on(1, broken());
    world.on(2, refused(401));
    world.on(3, refused(401));
    assert!(world.line(PROMPT).contains("open 4 s"));
    let told = world.pass(limits::HOLD.0);
    assert!(told.contains("stream_lost") && !told.contains("401"), "{told}");
}

#[test]
fn l12_a_stream_that_only_a_pointless_cancel_waits_for_is_not_opened_again() {
    let mut world = World::up();
    let load = r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#;
    world.line(load);
    world.on(1, refused(404));
    world.answer(1, response(202));
    world.on(2, refused(404));
    world.line(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#);
    let mut opens_for = |time| {
        let (end, mut opens) = (world.now + time, 0);
        while world.now < end {
            let before = world.streams.len();
            world.pass(1_000);
            for newest in before..world.streams.len() {
                world.on(newest, refused(404));
                opens += 1;
            }
        }
        opens
    };
    assert!(opens_for(620_000) > 30, "its answer may come");
    assert_eq!(opens_for(100_000), 0, "nobody waits for anything");
}

/// As Ctrl-Z and `fg` do: the timers that ran out meanwhile may come before anybody tells of it.
#[test]
fn l11_nothing_is_given_up_because_the_process_stood_still() {
    for event in [Event::Timer, Event::Woke] {
        let mut world = World::with_session();
        world.line(PROMPT);
        world.answer(2, response(202));
        world.on(1, broken());
        world.opened(2);
        world.line(CANCEL);
        world.now += 4_000_000;
        let told = world.step(event) + &world.pass(4_999);
        assert!(!told.contains("error"), "{told}");
        assert!(world.pass(1).contains("-32800"), "it is not confirmed");

        let mut world = World::with_session();
        world.on(1, broken());
        world.line(PROMPT);
        world.now += 4_000_000;
        world.step(Event::Timer);
        assert!(world.opened(2).contains(PROMPT), "the stream was there");
    }
}

const CLOSE: &str =
    r#"{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}"#;
/// The agent's answer to it.
const IS_CLOSED: &str = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;

/// A session whose close was accepted.
pub(super) fn closing() -> World {
    let mut world = World::with_session();
    world.core.opening.offers.resume = true;
    world.line(CLOSE);
    world.answer(2, response(202));
    world
}

#[test]
fn v8_a_close_succeeds_though_its_session_s_stream_ends_around_it() {
    let mut world = closing();
    assert_eq!(world.says(0, IS_CLOSED), "", "what comes before it may be on its way");
    let told = world.on(1, StreamEvent::Ended(End::Clean));
    assert!(told.contains(IS_CLOSED) && !told.contains("open"), "{told}");

    let mut world = closing();
    world.on(1, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, refused(404)), "", "that is what was asked for");
    let told = world.says(0, IS_CLOSED) + &world.pass(2_000);
    assert!(told.contains(IS_CLOSED) && !told.contains("resume"), "{told}");

    let mut world = closing();
    world.core.settings.strict = true;
    world.says(0, IS_CLOSED);
    assert!(world.on(1, broken()).contains(IS_CLOSED), "the answer is here");
}

#[test]
fn c3_a_late_409_of_before_ends_no_restore() {
    let mut world = World::with_session();
    world.core.opening.offers.resume = true;
    world.line(PROMPT);
    world.on(1, StreamEvent::Ended(End::Clean));
    assert!(world.on(2, conflict()).contains("\"kind\":\"conflict\""));
    let told = world.answer(2, json(409, r#"{"error":"session_reload_required"}"#));
    assert!(!told.contains("error"), "{told}");
    assert!((told + &world.opened(world.streams.len() - 1)).contains("session/resume"));
}

#[test]
fn l11_what_had_come_before_a_stop_is_read_before_heartbeats_are_missed() {
    let mut world = World::with_session();
    for _ in 0..5 {
        world.pass(5_000);
        world.on(1, StreamEvent::Comment);
    }
    world.now += 60_000;
    assert_eq!(world.step(Event::Timer), "");
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(1, update), format!("line {update}\n"));
}

#[test]
fn l11_a_stream_that_has_ended_is_not_silent() {
    let mut world = World::with_session();
    for _ in 0..5 {
        world.pass(5_000);
        world.on(1, StreamEvent::Comment);
    }
    assert_eq!(world.on(1, StreamEvent::Ended(End::Clean)), "open 2 s\n");
    assert_eq!(world.pass(30_000), "", "its GET is under way");
}

#[test]
fn v11_a_turn_of_version_2_that_is_lost_with_its_session_alone_is_told_of() {
    let mut world = World::with_session();
    world.core.opening.version = Some(Bytes::from_static(b"2"));
    world.says(1, r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"}}}"#);
    world.on(1, StreamEvent::Ended(End::Clean));
    assert!(world.on(2, conflict()).contains("in the middle of a turn"));
}

/// A load that waits for its own stream, and that the machine sleeps in.
#[test]
fn v3_a_replay_is_not_over_because_its_stream_died_in_a_sleep() {
    let mut world = World::with_session();
    world.core.opening.offers.load = true;
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, conflict());
    world.opened(world.streams.len() - 1);
    let done = world.answer_to_ours(r#""result":null"#);
    world.answer(2, response(202));
    world.step(Event::Woke);
    world.says(0, &done);
    let told = world.pass(limits::WAKING.0);
    assert!(told.contains("open 5 s"), "{told}");
    world.opened(4);
    world.opened(5);
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.says(5, update), "", "the replay comes now");
}
