//! What becomes of a turn whose stream, session or connection is gone.

use super::super::posts::speaks_of_the_connection;
use super::*;

const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"x","params":{"sessionId":"s"}}"#;
/// The editor's answer to it.
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"acp-tether-1","result":{}}"#;
/// The withdrawal of it.
const WITHDRAWN: &str = r#""method":"$/cancel_request","params":{"requestId":"acp-tether-1"}"#;

fn broken() -> StreamEvent {
    StreamEvent::Ended(End::Broken("reset".into()))
}

fn refused(status: u16) -> StreamEvent {
    let Outcome::Response(response) = response(status) else { panic!() };
    StreamEvent::Refused(response)
}

fn conflict() -> StreamEvent {
    let Outcome::Response(response) = json(409, r#"{"error":"session_reload_required"}"#) else {
        panic!()
    };
    StreamEvent::Refused(response)
}

fn prompt(id: u32) -> String {
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
