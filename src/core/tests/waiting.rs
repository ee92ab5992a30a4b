//! For how long something is waited for, which time counts, and that nothing is asked for in a storm.

use super::turns::{CANCEL, lost_and_replaced};
use super::*;

const UPDATE: &str =
    r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","x":1}}"#;
const LOAD: &str = r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#;
const LOADED: &str = r#"{"jsonrpc":"2.0","id":3,"result":null}"#;

/// A server that takes every `initialize` and loses the connection at once, for so many milliseconds; what is
/// told, and how often it was asked.
fn loses_each_connection(world: &mut World, millis: u64, shows: bool) -> (String, usize) {
    let (mut told, mut asked, end) = (String::new(), 0, world.now + millis);
    while world.now < end {
        let newest = world.posts.len() - 1;
        if world.core.posts.contains_key(&world.posts[newest].id)
            && String::from_utf8_lossy(&world.posts[newest].body).contains("initialize")
        {
            asked += 1;
            let answer = world.answer_to_ours(r#""result":{"protocolVersion":1}"#);
            told += &world.answer(newest, json(200, &answer));
            let own = world.streams.iter().rposition(|stream| stream.session.is_none()).unwrap();
            if shows {
                world.opened(own);
                world.says(own, r#"{"jsonrpc":"2.0","method":"hello"}"#);
                world.on(own, StreamEvent::Ended(End::Clean));
                told += &world.on(world.streams.len() - 1, refused(404));
            } else {
                told += &world.on(own, refused(404));
            }
        }
        told += &world.pass(100);
    }
    (told, asked)
}

#[test]
fn r1_a_message_waits_no_longer_for_each_connection_that_is_lost() {
    let mut world = World::up();
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(1, refused(404));
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list"}"#);
    let (told, _) = loses_each_connection(&mut world, limits::HOLD.0 + 1_000, false);
    assert!(told.contains(r#""id":2,"error""#) && told.contains("--hold"), "{told}");
}

#[test]
fn r1_a_message_waits_no_longer_for_each_try_of_a_restore() {
    let mut world = World::with_session();
    lost_and_replaced(&mut world);
    assert_eq!(world.line(PROMPT), "", "our resume goes before it, and is not answered");
    let mut told = world.pass(limits::HOLD.0);
    assert!(told.contains(r#""id":2,"error""#) && told.contains("--hold"), "{told}");

    let mut world = World::with_session();
    lost_and_replaced(&mut world);
    world.line(PROMPT);
    told.clear();
    while world.now < limits::HOLD.0 + 2_000 {
        let newest = world.posts.len() - 1;
        told += &world.answer(newest, response(503));
        told += &world.pass(1_000);
    }
    assert!(told.contains(r#""id":2,"error""#), "{told}");
}

#[test]
fn l12_an_agent_that_dies_again_and_again_is_not_started_in_a_storm() {
    let mut world = World::with_session();
    world.on(0, StreamEvent::Ended(End::Clean));
    world.on(2, refused(404));
    let (_, asked) = loses_each_connection(&mut world, 60_000, true);
    assert!((5..=15).contains(&asked), "it was started {asked} times in a minute");
}

#[test]
fn i11_a_session_that_is_lost_after_each_restore_is_restored_ever_later() {
    let mut world = restoring(Offers { resume: true, load: false });
    world.on(0, StreamEvent::Ended(End::Clean));
    let mut restored = 0;
    while world.now < 60_000 {
        let newest = world.posts.len() - 1;
        let is_under_way = world.core.posts.contains_key(&world.posts[newest].id);
        if is_under_way && String::from_utf8_lossy(&world.posts[newest].body).contains("resume") {
            restored += 1;
            // Before its 202, as the official servers answer.
            let answer = world.answer_to_ours(r#""result":{}"#);
            let is_own =
                |stream: &StreamId| stream.session.is_none() && world.core.is_current(stream);
            let own = world.streams.iter().position(is_own).unwrap();
            world.says(own, &answer);
            world.answer(newest, response(202));
        }
        let newest = world.streams.len() - 1;
        let stream = world.streams[newest].clone();
        let is_open = world.core.is_current(&stream) || world.core.is_probe(&stream);
        match stream.session {
            Some(_) if is_open => drop(world.on(newest, refused(404))),
            None if world.core.is_probe(&stream) => drop(world.opened(newest)),
            _ => {}
        }
        world.pass(10);
    }
    assert!((3..=15).contains(&restored), "{restored} times in a minute");
}

/// What was not read while the process was stopped.
#[test]
fn l11_a_stop_of_the_process_lets_no_answer_go_in_the_middle_of_its_replay() {
    for says_so in [false, true] {
        let mut world = World::with_session();
        world.line(LOAD);
        world.answer(2, response(202));
        world.says(1, UPDATE);
        assert_eq!(world.says(0, LOADED), "", "history may follow");
        world.now += 30_000;
        if says_so {
            world.step(Event::Woke);
        }
        for _ in 0..3 {
            assert_eq!(world.says(1, UPDATE), format!("line {UPDATE}\n"), "{says_so}");
        }
        let mut told = world.pass(limits::WAKING.0);
        let newest = world.streams.len() - 1;
        told += &(world.opened(newest) + &world.pass(2_000));
        assert!(told.contains(LOADED), "{told}");
    }
}

#[test]
fn l11_a_stop_of_the_process_ends_no_replay_of_ours() {
    let mut world = restoring(Offers { load: true, resume: false });
    world.on(0, StreamEvent::Ended(End::Clean));
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.opened(5);
    let done = world.answer_to_ours(r#""result":null"#);
    assert_eq!(world.says(3, &done), "");
    world.now += limits::OWN_REPLAY_WAIT.0 + 1_000;
    for _ in 0..3 {
        assert_eq!(world.says(5, UPDATE), "", "the editor has it already");
    }
    world.pass(limits::READING.0 + limits::REPLAY_QUIET.0);
    assert_eq!(world.says(5, UPDATE), format!("line {UPDATE}\n"), "this is new");
}

#[test]
fn l11_a_stop_of_a_second_is_one_too() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.opened(2);
    world.line(CANCEL);
    world.answer(3, response(202));
    world.now += limits::CANCEL_GRACE.0 + 1_000;
    assert_eq!(world.step(Event::Timer), "", "the agent may have confirmed it meanwhile");
}

#[test]
fn l11_a_time_that_has_come_waits_for_what_came_before_it() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.opened(2);
    world.line(CANCEL);
    world.answer(3, response(202));
    world.now += limits::CANCEL_GRACE.0 + 100;
    let cancelled = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"cancelled"}}"#;
    assert_eq!(world.on(0, StreamEvent::Comment), "");
    assert_eq!(world.says(2, cancelled), format!("line {cancelled}\n"));
}

#[test]
fn l11_the_time_in_which_streams_are_not_read_ends_no_doubt() {
    let mut world = World::with_session();
    world.line(PROMPT);
    world.answer(2, response(202));
    world.on(1, broken());
    world.opened(2);
    world.pass(10_000);
    world.step(Event::Listening(false));
    world.pass(690_000);
    world.step(Event::Listening(true));
    let told = world.line(CANCEL) + &world.pass(100);
    assert!(!told.contains("error"), "its answer may be the next that is read: {told}");
}

#[test]
fn v4_an_agent_that_wants_a_sign_in_which_nobody_knows_is_asked_in_the_next_way() {
    let mut world = restoring(Offers { resume: true, load: true });
    let refusal = world.answer_to_ours(r#""error":{"code":-32000,"message":"Server error"}"#);
    let told = world.answer(2, json(200, &refusal)) + &world.opened(5);
    assert!(told.contains("session/load"), "{told}");
}

#[test]
fn v4_an_agent_that_is_signed_in_already_is_asked_for_the_session_again() {
    let mut world = restoring(Offers { resume: true, load: false });
    world.core.signed_in =
        Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"authenticate"}"#));
    let refusal = world.answer_to_ours(r#""error":{"code":-32000,"message":"sign in"}"#);
    assert!(world.answer(2, json(200, &refusal)).contains("authenticate"));
    let refusal = world.answer_to_ours(r#""error":{"code":1,"message":"signed in already"}"#);
    let told = world.answer(3, json(200, &refusal)) + &world.opened(5);
    assert!(told.contains("session/resume"), "{told}");
}
