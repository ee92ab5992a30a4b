//! What of a restore, and around it, must not be hurried, put off or given up.

use super::turns::{ANSWER, QUESTION, closing, conflict, prompt, s};
use super::*;

const UPDATE: &str =
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","x":1}}"#;
const ENDED: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
/// JSON-RPC 2.0, 5.1.
const UNREAD: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"unreadable"}}"#;
const LOADS: Offers = Offers { load: true, resume: false };
const RESUMES: Offers = Offers { load: false, resume: true };
const EITHER: Offers = Offers { load: true, resume: true };

/// The session's stream was opened while our load is under way, which was taken.
fn loading() -> World {
    let mut world = restoring(LOADS);
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.opened(5);
    world
}

/// The newest stream of the connection's own.
fn own(world: &World) -> usize {
    world.streams.iter().rposition(|stream| stream.session.is_none()).unwrap()
}

#[test]
fn v3_a_replay_of_ours_is_held_back_to_its_end_though_another_stream_breaks() {
    for breaks in [false, true] {
        let mut world = loading();
        let done = world.answer_to_ours(r#""result":null"#);
        assert_eq!(world.says(3, &done), "", "its replay goes on");
        if breaks {
            world.on(3, broken());
            world.opened(own(&world));
        }
        for _ in 0..100 {
            world.pass(40);
            assert_eq!(world.says(5, UPDATE), "", "{breaks}: the editor has it already");
        }
        world.pass(limits::REPLAY_QUIET.0);
        assert_eq!(world.says(5, UPDATE), format!("line {UPDATE}\n"), "{breaks}: this is new");
    }
}

#[test]
fn v3_a_replay_of_ours_that_comes_with_a_late_stream_is_held_back_to_its_end() {
    let mut world = loading();
    let done = world.answer_to_ours(r#""result":null"#);
    world.says(3, &done);
    world.on(5, broken());
    world.pass(limits::RESTORE_TIMEOUT.0 - 100);
    world.opened(world.streams.len() - 1);
    for _ in 0..20 {
        world.pass(40);
        assert_eq!(world.says(world.streams.len() - 1, UPDATE), "", "the editor has it already");
    }
    world.pass(limits::REPLAY_QUIET.0);
    assert!(world.core.sessions[&s()].attached);
}

#[test]
fn v2_a_restore_is_not_put_off_by_a_stream_that_breaks_again_and_again() {
    let mut world = restoring(RESUMES);
    world.on(0, StreamEvent::Ended(End::Clean));
    world.answer(2, response(202));
    world.opened(5);
    let mut told = String::new();
    let began = world.now;
    while world.now < began + limits::RESTORE_TIMEOUT.0 + 1_000 {
        let stream = own(&world);
        world.on(stream, broken());
        told += &world.pass(100);
        world.opened(own(&world));
        world.says(own(&world), r#"{"jsonrpc":"2.0","method":"of_another"}"#);
        told += &world.pass(4_000);
        let newest = world.posts.len() - 1;
        if world.core.posts.contains_key(&world.posts[newest].id) {
            world.answer(newest, response(202));
        }
    }
    assert!(told.matches("session/resume").count() >= 3, "it is asked for again: {told}");
    assert!(world.line(PROMPT).contains("session_lost"), "nobody answered for a minute");
}

#[test]
fn r1_what_waits_for_a_restore_waits_no_longer_for_each_post_of_it_that_breaks() {
    let mut world = restoring(RESUMES);
    world.on(0, StreamEvent::Ended(End::Clean));
    world.line(PROMPT);
    let mut told = String::new();
    while world.now < limits::HOLD.0 + 1_000 {
        told += &world.pass(20_000.min(limits::HOLD.0 + 1_000 - world.now));
        let newest = world.posts.len() - 1;
        if world.core.posts.contains_key(&world.posts[newest].id) {
            told += &world.answer(newest, Outcome::Broken("reset".into()));
        }
    }
    assert!(told.contains(r#""id":2,"error""#) && told.contains("--hold"), "{told}");
}

#[test]
fn v11_the_end_of_a_turn_is_owed_where_its_own_stream_says_that_the_session_is_gone() {
    for (waits, takes) in [(0, 0), (2_500, 0), (0, 100), (2_500, 100)] {
        for connection_lives in [false, true] {
            let mut world = World::with_session();
            world.core.opening.offers = RESUMES;
            world.line(PROMPT);
            world.answer(2, response(202));
            world.says(1, UPDATE);
            world.on(1, broken());
            let mut told = world.says(0, ENDED) + &world.pass(waits);
            told += &(world.on(2, refused(404)) + &world.pass(takes));
            let asks = own(&world);
            told += &match connection_lives {
                true => world.opened(asks),
                false => world.on(asks, refused(404)),
            };
            assert!(told.contains(ENDED), "{waits}, {takes}, {connection_lives}: {told}");
            assert!(
                told.contains("may be missing"),
                "{waits}, {takes}, {connection_lives}: {told}"
            );
        }
    }
}

#[test]
fn v2_a_restore_that_the_agent_cannot_read_is_tried_in_the_next_way() {
    let mut world = restoring(EITHER);
    let told = world.answer(2, json(200, UNREAD)) + &world.pass(1_000);
    let newest = world.streams.len() - 1;
    let told = told + &world.opened(newest);
    assert!(told.contains("session/load"), "{told}");
    world.answer(3, json(200, UNREAD));
    assert!(world.line(PROMPT).contains("session_lost"), "the editor may load it itself");
}

/// An answer to the agent whose POST was not answered while the process stood still.
#[test]
fn l10_an_answer_to_the_agent_has_its_time_from_the_first_post_that_broke() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, QUESTION);
    assert!(world.line(ANSWER).contains("post 3"));
    let told = world.pass(limits::POST_TIMEOUT.0 + 1_000);
    assert!(told.contains("abandon 3") && told.contains("post 4 s"), "{told}");
    let told = world.pass(limits::POST_TIMEOUT.0 + 1_000);
    assert!(told.contains("abandon 4") && !told.contains("post 5"), "--hold is over: {told}");

    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, QUESTION);
    world.line(ANSWER);
    world.answer(3, response(503));
    let mut told = world.pass(1_000);
    world.now += 3_600_000;
    told += &world.step(Event::Woke);
    told += &world.answer(4, response(503));
    assert!((told + &world.pass(2_000)).contains("post 5 s"), "a sleep does not count");
}

#[test]
fn r6_the_editor_s_own_load_does_what_a_restore_of_ours_would() {
    let mut world = World::with_session();
    world.core.opening.offers = EITHER;
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    world.answer(2, response(202));
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    let told = world.pass(1_000) + &world.opened(3);
    assert!(!told.contains("session/resume"), "{told}");
    assert_eq!(world.says(3, UPDATE), format!("line {UPDATE}\n"), "the person asked for it");
}

#[test]
fn r6_a_session_whose_turn_was_answered_elsewhere_is_restored_after_a_gap() {
    let mut world = World::with_session();
    world.core.opening.offers = RESUMES;
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.says(0, ENDED);
    world.pass(limits::REPLAY_WAIT.0 + 100);
    world.on(2, refused(410));
    world.pass(1_000);
    let told = world.opened(3);
    assert!(told.contains("session/resume"), "{told}");
}

#[test]
fn v2_a_session_without_a_stream_shows_that_it_lives_on_the_connection_s() {
    let mut world = World::up();
    world.core.opening.offers = RESUMES;
    world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
    world.answer(1, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    world.on(1, refused(204));
    let Outcome::Response(reload) = json(409, r#"{"error":"session_reload_required"}"#) else {
        panic!()
    };
    for number in 2..8 {
        world.line(&prompt(number));
        let newest = world.posts.len() - 1;
        let told = world.answer(newest, Outcome::Response(reload.clone()));
        assert!(told.contains("session/resume") || told.contains("open"), "{number}: {told}");
        if !told.contains("session/resume") {
            let newest = world.streams.len() - 1;
            world.on(newest, refused(204));
        }
        let done = world.answer_to_ours(r#""result":{}"#);
        world.answer(world.posts.len() - 1, response(202));
        world.says(0, &done);
        world.says(0, UPDATE);
        let newest = world.streams.len() - 1;
        if world.core.is_current(&world.streams[newest].clone()) && newest > 0 {
            world.on(newest, refused(204));
        }
    }
}

#[test]
fn c3_a_conflict_is_mended_where_the_close_that_was_under_way_fails() {
    let mut world = closing();
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, conflict());
    let told = world.says(0, r#"{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"no"}}"#);
    assert!(told.contains("open 3 s"), "{told}");
    assert!(world.core.sessions[&s()].attached);
    world.on(3, conflict());
    assert!(world.core.sessions[&s()].is_restoring());
}

#[test]
fn l9_an_answer_to_the_agent_that_it_could_not_read_was_not_delivered() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.says(1, QUESTION);
    world.line(ANSWER);
    let told = world.answer(3, json(200, UNREAD));
    assert!(told.contains("could not be delivered"), "{told}");
}

#[test]
fn r1_a_message_that_the_agent_could_not_read_makes_no_session_known() {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    assert!(world.on(1, refused(404)).contains("post 1 s"));
    world.line(PROMPT);
    let told = world.answer(1, json(200, UNREAD));
    assert!(told.contains(r#""id":3,"error""#), "{told}");
    let told = told + &world.pass(1_000);
    assert!(told.contains(PROMPT), "the next goes first: {told}");
}

#[test]
fn r1_what_waits_behind_a_post_that_is_lost_with_its_connection_has_its_whole_time() {
    let mut world = World::with_session();
    world.core.opening.offers = RESUMES;
    world.line(PROMPT);
    world.answer(2, Outcome::Unsent("refused".into()));
    world.answer(3, Outcome::Unsent("refused".into()));
    assert!(world.pass(1_000).contains("post 4 s"));
    world.line(&prompt(3));
    world.pass(30_200);
    world.on(0, StreamEvent::Ended(End::Clean));
    let told = world.on(own(&world), refused(404)) + &world.pass(20_000);
    assert!(told.contains(r#""id":2,"error""#), "{told}");
    assert!(!told.contains(r#""id":3,"error""#), "{told}");
    assert!(world.pass(limits::HOLD.0).contains(r#""id":3,"error""#), "and no more");
}

#[test]
fn v2_a_load_that_was_answered_before_its_post_broke_has_its_stream() {
    let mut world = restoring(LOADS);
    let done = world.answer_to_ours(r#""result":null"#);
    assert_eq!(world.says(3, &done), "", "its replay may come with the stream");
    let told = world.answer(2, response(504));
    assert!(told.contains("open 5 s"), "{told}");
    world.opened(5);
    world.pass(limits::REPLAY_QUIET.0);
    assert!(world.core.sessions[&s()].attached);
}

#[test]
fn i19_an_answer_to_the_agent_whose_session_is_gone_before_it_was_loaded_is_told() {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s"}}"#);
    world.opened(1);
    world.answer(1, response(202));
    world.says(1, QUESTION);
    world.line(ANSWER);
    let told = world.answer(2, response(404));
    assert!(told.contains("could not be delivered"), "{told}");
}

#[test]
fn c4_an_answer_of_a_life_that_was_closed_goes_to_no_other() {
    let mut world = closing();
    world.says(1, QUESTION);
    world.line(ANSWER);
    world.answer(3, response(429));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    world.answer(4, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    let told = world.pass(30_000);
    assert!(!told.contains("post"), "{told}");
}

#[test]
fn l12_the_question_whether_a_connection_lives_waits_as_long_as_the_server_asks() {
    let mut world = asked_whether_it_lives();
    let Outcome::Response(busy) = response(503) else { panic!() };
    let retry_after = Some(Millis(60_000));
    world.on(3, StreamEvent::Refused(Response { retry_after, ..busy }));
    assert!(!world.pass(59_000).contains("open"), "not before");
    assert!(world.pass(20_000).contains("open 4 -"));
}

/// A session whose turn was accepted, and whose stream broke.
fn turn_without_its_stream() -> World {
    let mut world = World::with_session();
    world.core.opening.offers = RESUMES;
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world
}

#[test]
fn v11_a_turn_that_is_answered_while_its_session_is_in_question_may_lack_its_end() {
    let mut world = turn_without_its_stream();
    world.on(2, refused(404));
    let told = world.says(0, ENDED) + &world.pass(100);
    let told = told + &world.opened(own(&world));
    assert!(told.contains(ENDED) && told.contains("may be missing"), "{told}");
}

#[test]
fn v11_nothing_is_missing_of_a_session_that_has_no_stream() {
    let mut world = turn_without_its_stream();
    world.says(0, ENDED);
    assert!(world.pass(limits::REPLAY_WAIT.0 + 100).contains(ENDED));
    world.on(2, refused(204));
    world.on(0, StreamEvent::Ended(End::Clean));
    let told = world.on(own(&world), refused(404));
    assert!(!told.contains("may be missing"), "{told}");
}

#[test]
fn v6_an_answer_that_is_refused_while_its_session_is_restored_is_kept() {
    let mut world = restoring(RESUMES);
    world.answer(2, response(202));
    world.opened(5);
    world.line(PROMPT);
    world.says(5, QUESTION);
    assert!(world.line(ANSWER).contains("post 3 s"));
    let told = world.answer(3, response(404));
    assert!(!told.contains("could not be delivered"), "{told}");
    assert!(world.core.ledger.question(1).is_some(), "the next connection may ask again");
}

#[test]
fn v3_a_restore_that_is_answered_ends_though_its_stream_breaks_again_and_again() {
    let mut world = loading();
    let done = world.answer_to_ours(r#""result":null"#);
    world.says(3, &done);
    world.on(5, broken());
    while world.now < 180_000 {
        let newest = world.streams.len() - 1;
        if world.core.is_current(&world.streams[newest].clone()) {
            world.opened(newest);
            world.on(newest, broken());
        }
        world.pass(100);
    }
    assert!(world.core.sessions[&s()].attached);
}

#[test]
fn l10_an_answer_of_a_life_that_was_closed_takes_no_time_from_the_next() {
    let mut world = closing();
    world.says(1, QUESTION);
    world.line(ANSWER);
    world.answer(3, response(503));
    world.line(r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#);
    world.answer(4, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    world.pass(limits::HOLD.0 + 5_000);
    world.says(world.streams.len() - 1, QUESTION);
    let told = world.line(&ANSWER.replace("-1", "-2"));
    assert!(told.contains("post 5 s"), "{told}");
    world.answer(5, response(503));
    assert!(world.pass(2_000).contains("post 6 s"));
}

#[test]
fn v8_the_stream_is_opened_again_where_the_post_of_a_close_is_refused() {
    let mut world = World::with_session();
    world.line(r#"{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}"#);
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, conflict());
    let told = world.answer(2, response(403));
    assert!(told.contains(r#""id":9,"error""#) && told.contains("open 3 s"), "{told}");
}

#[test]
fn v4_a_sign_in_that_the_agent_cannot_read_is_followed_by_the_restore_again() {
    let mut world = restoring(LOADS);
    world.core.signed_in =
        Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"authenticate"}"#));
    let refusal = world.answer_to_ours(r#""error":{"code":-32000,"message":"sign in"}"#);
    assert!(world.answer(2, json(200, &refusal)).contains("authenticate"));
    let told = world.answer(3, json(200, UNREAD)) + &world.opened(5);
    assert!(told.contains("session/load"), "{told}");
}

#[test]
fn r1_what_waits_behind_a_post_has_its_whole_time_when_a_restore_begins() {
    let mut world = World::with_session();
    world.core.opening.offers = RESUMES;
    world.line(PROMPT);
    world.answer(2, Outcome::Unsent("refused".into()));
    world.answer(3, Outcome::Unsent("refused".into()));
    assert!(world.pass(1_000).contains("post 4 s"));
    world.line(&prompt(3));
    world.pass(29_500);
    world.on(1, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    let told = world.pass(1_000) + &world.opened(3) + &world.pass(20_000);
    assert!(!told.contains(r#""id":3,"error""#), "{told}");
}

#[test]
fn v8_a_turn_whose_answer_waits_when_its_session_is_closed_brings_it_not_back() {
    let mut world = turn_without_its_stream();
    world.line(r#"{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}"#);
    world.on(2, refused(503));
    let mut told = world.pass(300);
    let closed = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    told += &world.says(0, closed);
    told += &world.pass(1_000);
    told += &world.says(0, ENDED);
    told += &world.pass(limits::REPLAY_WAIT.0);
    assert!(told.contains(closed) && told.contains(ENDED), "{told}");
    assert!(!world.core.sessions.get(&s()).is_some_and(|session| session.attached), "{told}");
}

#[test]
fn v11_a_gap_concerns_no_session_that_nobody_has() {
    let mut world = World::up();
    world.line(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#);
    assert!(world.on(1, refused(204)).contains("session/cancel"));
    let id = Some(Bytes::from_static(b"7"));
    world.on(0, StreamEvent::Message { data: None, id });
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, refused(410));
    let told = world.opened(3);
    assert!(!told.contains("could not be delivered"), "{told}");
}

#[test]
fn i4_an_update_on_the_answer_s_own_stream_does_not_overtake_it() {
    let mut world = turn_without_its_stream();
    assert_eq!(world.says(0, ENDED), "", "its stream may bring what was before it");
    assert_eq!(world.says(0, UPDATE), format!("line {ENDED}\nline {UPDATE}\n"));
}

#[test]
fn i3_a_replay_of_ours_on_the_connection_s_stream_is_one_while_the_session_s_is_opened() {
    let hung = StreamEvent::Failed(Outcome::Broken("it hung".into()));
    for outcome in [refused(403), refused(404), hung] {
        let mut world = restoring(LOADS);
        world.answer(2, response(202));
        assert_eq!(world.says(3, UPDATE), "", "GET 5 is under way");
        world.on(5, outcome);
        assert_eq!(world.says(3, UPDATE), "", "and will be tried again");
    }
}

#[test]
fn v3_where_no_load_of_ours_was_sent_none_is_expected_to_replay() {
    let mut world = restoring(RESUMES);
    world.answer(2, Outcome::Broken("reset".into()));
    assert!(world.pass(1_000).contains("session/resume"));
    let refusal = world.answer_to_ours(r#""error":{"code":1,"message":"no"}"#);
    world.answer(3, json(200, &refusal));
    assert!(!world.core.sessions[&s()].stale_replay, "nothing will come");
}
