//! What may be lost with a stream, a connection or a message that nobody could read, and what is told of it.

use super::turns::{ANSWER, CANCEL, QUESTION, closing, conflict, prompt, s};
use super::*;

const UPDATE: &str =
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","x":1}}"#;
const LOAD: &str = r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#;
const LOADS: Offers = Offers { load: true, resume: false };
const RESUMES: Offers = Offers { load: false, resume: true };

/// A session whose turn was accepted.
fn turn() -> World {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world
}

/// The same, where the session has no stream of its own.
fn turn_without_stream() -> World {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
    world.answer(1, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    world.on(1, refused(204));
    world.line(PROMPT);
    world.answer(2, response(202));
    world
}

/// Whether a cancel that is not confirmed ends the turn: it is in doubt (R10).
fn is_in_doubt(world: &mut World) -> bool {
    world.line(CANCEL);
    world.pass(limits::CANCEL_GRACE.0 + 10_000).contains("-32800")
}

#[test]
fn r9_a_turn_of_a_session_without_a_stream_is_in_doubt_with_the_connection_s() {
    let mut world = turn_without_stream();
    world.on(0, broken());
    world.opened(2);
    assert!(is_in_doubt(&mut world), "its answer may have been there");

    let mut world = turn_without_stream();
    world.core.settings.strict = true;
    assert!(world.on(0, broken()).contains(r#""id":2,"error""#), "R11");

    let mut world = turn_without_stream();
    let id = Some(Bytes::from_static(b"7"));
    world.on(0, StreamEvent::Message { data: None, id });
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    assert!(world.opened(3).contains("could not be delivered"), "R6");
}

/// Until an answer has shown where the server gives them.
#[test]
fn r9_a_turn_may_be_answered_on_the_connection_s_stream() {
    let mut world = turn();
    world.on(0, broken());
    world.opened(2);
    assert!(is_in_doubt(&mut world));

    let mut world = turn();
    world.says(1, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    world.line(&prompt(3));
    world.answer(3, response(202));
    world.on(0, broken());
    world.opened(2);
    assert!(!is_in_doubt(&mut world), "it is answered on its own");
}

/// Each stream by what it has shown itself.
#[test]
fn r9_that_one_stream_numbers_its_answers_says_nothing_of_another() {
    let mut world = turn();
    world.core.numbers_answers = true;
    world.says(1, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    world.line(&prompt(3));
    world.answer(3, response(202));
    let (data, id) = (Bytes::from_static(UPDATE.as_bytes()), "1".into());
    world.on(1, StreamEvent::Message { data: Some(data), id: Some(id) });
    world.on(1, broken());
    world.opened(2);
    assert!(is_in_doubt(&mut world));
}

/// JSON-RPC 2.0, 5.1: the agent could not read the request, and does not know its id.
#[test]
fn i19_an_error_without_an_id_leaves_nothing_open_for_ever() {
    let unread = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"unreadable"}}"#;
    let mut world = turn();
    assert_eq!(world.says(0, unread), "", "of which request nobody knows");
    assert!(is_in_doubt(&mut world));

    let mut world = World::with_session();
    world.line(PROMPT);
    let told = world.answer(2, json(200, unread));
    assert!(told.contains(r#""id":2,"error""#) && told.contains("unreadable"), "{told}");

    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":null,"method":"session/list"}"#);
    world.answer(1, response(202));
    assert_eq!(world.says(0, unread), format!("line {unread}\n"), "this one has that id");
}

#[test]
fn r9_an_object_that_is_no_message_was_no_answer() {
    for (event, may_be_answer) in [
        (r#"{"type":"ping"}"#, false),
        ("[1]", false),
        (r#"{"id":2,"result":{}}"#, true),
        (r#"{"jsonrpc":"2.0","id":2,"resu"#, true),
    ] {
        let mut world = turn();
        world.says(1, event);
        assert_eq!(is_in_doubt(&mut world), may_be_answer, "{event}");
    }
}

#[test]
fn v3_what_a_failed_load_of_ours_left_is_not_taken_for_what_the_editor_loads() {
    let mut world = restoring(LOADS);
    let failed = world.answer_to_ours(r#""error":{"code":1,"message":"no"}"#);
    world.answer(2, json(200, &failed));
    assert!(world.line(PROMPT).contains("session_lost"));
    assert!(world.line(LOAD).contains("open 6 s"));
    assert!(world.on(6, refused(404)).contains(LOAD), "it goes first");
    assert!(world.answer(3, response(202)).contains("open 7 s"));
    world.opened(7);
    assert_eq!(world.says(7, UPDATE), format!("line {UPDATE}\n"), "the person asked for it");
}

#[test]
fn v3_nothing_of_a_restored_session_is_held_back_when_its_stream_is_opened_again() {
    let mut world = restoring(LOADS);
    world.core.signed_in =
        Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"authenticate"}"#));
    let failed = world.answer_to_ours(r#""error":{"code":-32000,"message":"sign in"}"#);
    assert!(world.answer(2, json(200, &failed)).contains("authenticate"));
    let done = world.answer_to_ours(r#""result":{}"#);
    world.answer(3, json(200, &done));
    assert!(world.opened(5).contains("session/load"));
    world.answer(4, response(202));
    let done = world.answer_to_ours(r#""result":null"#);
    world.says(3, &done);
    world.pass(1_000);
    world.on(5, StreamEvent::Ended(End::Clean));
    world.pass(1_000);
    world.opened(world.streams.len() - 1);
    let newest = world.streams.len() - 1;
    assert_eq!(world.says(newest, UPDATE), format!("line {UPDATE}\n"), "this is new");
}

#[test]
fn v11_a_restart_of_the_agent_is_no_gap_where_nothing_was_lost() {
    for numbered_anew in [StreamEvent::Opened { event_epoch: Some("b".into()) }, refused(410)] {
        let mut world = World::with_session();
        world.core.sessions.get_mut(&s()).unwrap().stream.event_epoch = Some("a".into());
        let (data, id) = (Bytes::from_static(UPDATE.as_bytes()), "57".into());
        world.on(1, StreamEvent::Message { data: Some(data), id: Some(id) });
        world.on(0, StreamEvent::Ended(End::Clean));
        world.on(2, refused(404));
        let offers = r#""agentCapabilities":{"sessionCapabilities":{"resume":{}}}"#;
        let answer = world.answer_to_ours(&format!(r#""result":{{"protocolVersion":1,{offers}}}"#));
        world.answer(2, json(200, &answer));
        world.opened(3);
        assert!(world.on(4, numbered_anew).contains("open 5 s\n"), "without the cursor");
        let told = world.on(5, StreamEvent::Opened { event_epoch: Some("b".into()) });
        assert_eq!(told.matches("session/resume").count(), 1, "{told}");
        assert!(!told.contains("could not be delivered"), "{told}");
    }
}

#[test]
fn v11_a_turn_that_was_answered_while_its_stream_was_away_may_lack_its_end() {
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    for (waits, ends) in [(0, refused(404)), (2_500, refused(404)), (0, conflict())] {
        let mut world = turn();
        world.says(1, UPDATE);
        world.on(1, broken());
        assert_eq!(world.says(0, answer), "", "its stream may bring what was before it");
        let mut told = world.pass(waits);
        told += &match matches!(&ends, StreamEvent::Refused(it) if it.status == 409) {
            true => world.on(2, ends),
            false => {
                world.on(0, StreamEvent::Ended(End::Clean));
                world.on(world.streams.len() - 1, ends)
            }
        };
        assert!(told.contains(answer), "{waits}: {told}");
        assert!(told.contains("may be missing"), "{waits}: {told}");
    }
}

#[test]
fn v8_a_session_whose_close_is_under_way_is_not_restored_for_a_gap_or_a_conflict() {
    let mut world = closing();
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    let newest = world.streams.len() - 1;
    let told = world.opened(newest) + &world.pass(1_000);
    assert!(!told.contains("session/resume"), "{told}");

    let mut world = closing();
    world.on(1, StreamEvent::Ended(End::Clean));
    let told = world.on(2, conflict()) + &world.pass(1_000);
    assert!(!told.contains("session/resume") && !told.contains("error"), "{told}");
    let closed = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    assert!(world.says(0, closed).contains(closed));
}

#[test]
fn v9_a_restore_that_the_editor_s_own_resume_overtook_loses_nothing() {
    let mut world = World::with_session();
    world.core.opening.offers = RESUMES;
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s"}}"#);
    world.answer(2, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    world.pass(1_000);
    assert!(world.opened(3).contains("session/resume"), "R6");
    world.answer(3, response(202));
    let ours = world.answer_to_ours(r#""error":{"code":1,"message":"no"}"#);
    world.says(0, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    world.says(0, &ours);
    assert!(world.line(PROMPT).contains("post 4 s"), "the agent has it");
}

/// A question was answered, and the POST of the answer has ended so.
fn answered_and(outcome: Outcome) -> (World, String) {
    let mut world = turn();
    world.says(1, QUESTION);
    assert!(world.line(ANSWER).contains("post 3 s"));
    let told = world.answer(3, outcome);
    (world, told)
}

#[test]
fn l10_an_answer_to_the_agent_is_posted_again_where_it_may_be_lost() {
    for outcome in [Outcome::Broken("reset".into()), response(502), response(503), response(504)] {
        let (mut world, told) = answered_and(outcome);
        assert_eq!(told, "");
        assert!(world.pass(1_000).contains(r#"post 4 s {"jsonrpc":"2.0","id":"q""#));
        world.answer(4, response(202));
        assert_eq!(world.pass(600_000), "", "the agent has it");
    }
}

#[test]
fn i10_that_an_answer_to_the_agent_cannot_be_delivered_is_told() {
    let (mut world, told) = answered_and(response(400));
    assert!(told.contains("could not be delivered"), "{told}");
    assert!(is_in_doubt(&mut world), "the agent may wait for ever");

    let (mut world, mut told) = answered_and(response(503));
    while !told.contains("could not be delivered") {
        told = world.pass(1_000);
        let newest = world.posts.len() - 1;
        told += &match told.contains("post ") {
            true => world.answer(newest, response(503)),
            false => String::new(),
        };
        assert!(world.now < 60_000, "--hold is its time, too");
    }
}

#[test]
fn c4_an_answer_that_waits_to_be_posted_goes_to_no_session_that_has_ended() {
    let (mut world, _) = answered_and(response(429));
    world.line(r#"{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}"#);
    world.answer(4, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    let told = world.pass(30_000);
    assert!(!told.contains("post"), "{told}");
}

#[test]
fn r8_where_the_connection_s_stream_is_being_opened_that_get_asks() {
    let mut world = World::with_session();
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(0, StreamEvent::Ended(End::Clean));
    assert_eq!(world.on(2, refused(404)), "", "GET 3 is under way");
    assert!(world.opened(3).contains("lost") || world.core.sessions[&s()].suspected.is_none());
}

#[test]
fn a3_a_session_whose_load_was_under_way_at_a_loss_is_lost_where_nobody_restores_it() {
    let mut world = World::up();
    world.line(LOAD);
    world.on(1, refused(404));
    world.on(0, StreamEvent::Ended(End::Clean));
    let told = world.on(world.streams.len() - 1, refused(404));
    assert!(told.contains(r#""id":3,"error""#), "{told}");
    assert!(!world.core.sessions.contains_key(&s()), "nothing of it is left to do");
}

#[test]
fn r12_an_answer_that_waits_is_not_hurried_by_the_break_of_its_post() {
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    let mut world = World::with_session();
    world.line(PROMPT);
    assert_eq!(world.says(0, answer), "");
    assert_eq!(world.answer(2, Outcome::Broken("reset".into())), "", "its 202 is lost");
    assert_eq!(world.says(1, UPDATE), format!("line {UPDATE}\n"));
    assert!(world.pass(100).contains(answer));
}

#[test]
fn v2_a_restore_whose_answer_comes_after_all_is_not_asked_for_again() {
    let mut world = restoring(RESUMES);
    world.answer(2, response(202));
    world.opened(5);
    world.on(3, broken());
    let newest = world.streams.iter().rposition(|stream| stream.session.is_none()).unwrap();
    world.opened(newest);
    let done = world.answer_to_ours(r#""result":{}"#);
    world.says(newest, &done);
    assert!(!world.pass(5_000).contains("session/resume"));
}

#[test]
fn i3_what_comes_on_the_connection_s_stream_is_its_session_s_where_that_has_none() {
    let mut world = restoring(LOADS);
    assert_eq!(world.says(3, UPDATE), "", "the replay of our load, which went first");
}
