//! What becomes of a link and of sessions that do not come back at once (V, L12).

use super::turns::s;
use super::*;

const RESUME: Offers = Offers { resume: true, load: false };
const LOAD: &str = r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#;

/// A restore under way, as POST 2, where nothing comes on the replaced stream any more.
fn restoring_alone(offers: Offers) -> World {
    let mut world = restoring(offers);
    world.on(0, StreamEvent::Ended(End::Clean));
    world
}

/// Answers our request, which POST `post` carries, and opens the stream that is asked for then.
fn answer_ours(world: &mut World, post: usize, rest: &str) -> String {
    let answer = world.answer_to_ours(rest);
    let told = world.answer(post, json(200, &answer));
    if told.contains("open ") { told + &world.opened(world.streams.len() - 1) } else { told }
}

const DONE: &str = r#""result":{}"#;

/// Lets ten minutes pass: whatever is tried.
fn tries_of_ten_minutes(world: &mut World) -> String {
    let told = world.pass(600_000);
    told.lines().filter(|line| line.contains("post ") || line.contains("open ")).collect()
}

/// A sign-in page.
fn page() -> Outcome {
    Outcome::Response(Response {
        status: 200,
        content_type: "text/html; charset=utf-8".into(),
        body: Bytes::from_static(b"\n<!doctype html>"),
        ..Response::default()
    })
}

/// What a POST ends with that would end so the next time, and what the error says.
fn refusals() -> [(Vec<Outcome>, &'static str); 4] {
    let moved = || Outcome::Redirected { status: 302, reason: "it moved".into() };
    [
        (vec![response(401), response(401)], "\"kind\":\"auth\",\"status\":401"),
        (vec![Outcome::NoCredential("it is locked away".into())], "\"kind\":\"auth\""),
        (vec![moved()], "\"kind\":\"http\",\"status\":302"),
        (vec![page()], "\"kind\":\"http\",\"status\":200"),
    ]
}

#[test]
fn v2_a_restore_for_which_the_remote_is_not_ready_is_tried_again() {
    for status in [502, 503, 504] {
        let mut world = restoring_alone(Offers { load: true, ..RESUME });
        assert_eq!(world.line(PROMPT), "");
        assert_eq!(world.answer(2, response(status)), "");
        let told = world.pass(1_000);
        assert!(told.contains("post 3 s") && told.contains("session/resume"), "{told}");
        let told = answer_ours(&mut world, 3, DONE);
        assert!(told.contains(PROMPT), "{told}");
    }
}

#[test]
fn v9_a_restore_for_which_the_remote_is_never_ready_is_given_up() {
    let mut world = restoring_alone(RESUME);
    let mut tries = 0;
    while world.core.sessions[&s()].is_restoring() && tries < 10 {
        tries += 1;
        world.answer(world.posts.len() - 1, response(503));
        world.pass(10_000);
    }
    assert_eq!(tries, 6);
    assert!(world.line(PROMPT).contains("session_lost"));
    assert_eq!(tries_of_ten_minutes(&mut world), "");
}

#[test]
fn l12_a_restore_that_is_refused_for_the_credential_waits_until_a_message_asks() {
    for (outcomes, kind) in refusals() {
        let mut world = restoring_alone(RESUME);
        world.line(PROMPT);
        let mut told = String::new();
        for outcome in outcomes {
            told = world.answer(world.posts.len() - 1, outcome);
        }
        assert!(told.contains(kind), "what waits fails: {told}");
        assert_eq!(tries_of_ten_minutes(&mut world), "", "it will be the same the next time");
        assert!(world.line(PROMPT).contains("session/resume"), "a message asks");
        let last = world.posts.len() - 1;
        assert!(answer_ours(&mut world, last, DONE).contains(PROMPT));
    }
}

#[test]
fn l12_a_restore_whose_stream_is_refused_for_the_credential_waits_until_a_message_asks() {
    let mut world = asked_whether_it_lives();
    world.core.opening.offers = RESUME;
    world.line(PROMPT);
    assert!(world.opened(3).contains("open 4 s"));
    let Outcome::Response(refused) = response(401) else { panic!() };
    assert_eq!(world.on(4, StreamEvent::Refused(refused.clone())), "open 5 s renewed\n");
    let told = world.on(5, StreamEvent::Refused(refused));
    assert!(told.contains("\"kind\":\"auth\""), "what waits fails: {told}");
    assert_eq!(tries_of_ten_minutes(&mut world), "", "it will be the same the next time");
    assert_eq!(world.line(PROMPT), "open 6 s\n", "a message asks");
    assert!(world.opened(6).contains("session/resume"));
    assert!(answer_ours(&mut world, 2, DONE).contains(PROMPT));
}

#[test]
fn e1_a_person_asks_for_a_restore_that_was_refused_for_the_credential() {
    let mut world = restoring_alone(RESUME);
    world.answer(2, Outcome::NoCredential("it is locked away".into()));
    let told = world.step(Event::Inquiry(Ticket(0), Inquiry::Reconnect));
    assert!(told.contains("session/resume"), "{told}");
}

#[test]
fn v4_a_sign_in_for_which_the_remote_is_not_ready_is_repeated() {
    let mut world = restoring_alone(RESUME);
    world.core.signed_in =
        Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":7,"method":"authenticate"}"#));
    let refusal = r#""error":{"code":-32000,"message":"sign in"}"#;
    assert!(answer_ours(&mut world, 2, refusal).contains("authenticate"));
    world.answer(3, response(503));
    assert!(world.pass(1_000).contains("session/resume"));
    let told = answer_ours(&mut world, 4, refusal);
    assert!(told.contains("authenticate"), "{told}");
    assert!(answer_ours(&mut world, 5, DONE).contains("session/resume"));
    let told = answer_ours(&mut world, 6, refusal);
    assert!(!told.contains("authenticate"), "once is enough: {told}");
}

#[test]
fn c3_a_load_of_the_editor_that_waited_for_a_restore_that_fails_mends_the_session() {
    let mut world = restoring_alone(RESUME);
    let later = PROMPT.replace("\"id\":2", "\"id\":4");
    for line in [PROMPT, LOAD, &later] {
        assert_eq!(world.line(line), "");
    }
    let failed = world.answer_to_ours(r#""error":{"code":1,"message":"no"}"#);
    let told = world.answer(2, json(200, &failed));
    assert!(told.contains("\"id\":2,\"error\"") && told.contains("session_lost"), "{told}");
    assert_eq!(told.matches("error").count(), 1, "the load is what mends it: {told}");
    assert!(told.ends_with("open 6 s\n"), "a fresh stream: {told}");
    let told = world.opened(6) + &world.pass(limits::REPLAY_QUIET.0);
    assert!(told.contains(LOAD), "{told}");
    assert!(world.answer(3, response(202)).contains(&later));
}

#[test]
fn l12_a_stream_is_opened_no_sooner_than_its_refusal_asks() {
    let mut world = World::with_session();
    world.on(1, StreamEvent::Ended(End::Clean));
    let Outcome::Response(busy) = response(503) else { panic!() };
    world.on(2, StreamEvent::Refused(Response { retry_after: Some(Millis(20_000)), ..busy }));
    assert_eq!(world.pass(19_999), "");
    assert_eq!(world.pass(1), "20000: open 3 s\n");
}

#[test]
fn l12_what_answers_in_place_of_the_agent_stops_the_attempts_until_a_message_asks() {
    let moved = Outcome::Redirected { status: 302, reason: "it moved to https://x/".into() };
    for (outcome, words) in [
        (page(), ["\"kind\":\"http\",\"status\":200", "sign-in page"]),
        (moved, ["\"kind\":\"http\",\"status\":302", "it moved to"]),
    ] {
        let mut world = World::with_session();
        let list = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list"}}"#);
        world.line(&list(2));
        assert!(world.answer(2, response(410)).contains("initialize"));
        let told = world.answer(3, outcome);
        assert!(words.iter().all(|word| told.contains(word)), "what waits fails: {told}");
        assert_eq!(tries_of_ten_minutes(&mut world), "", "nobody asks");
        assert!(world.line(&list(3)).starts_with("post 4 - renewed"), "a message asks");
        let result = r#""result":{"protocolVersion":1}"#;
        let answer = world.answer_to_ours(result);
        assert!(world.answer(4, json(200, &answer)).contains("open 2 -"));
    }
}

/// A late answer may say that it is attached, and its stream still be refused (C3).
#[test]
fn r1_a_restore_goes_before_its_stream_where_that_is_refused_with_403() {
    let mut world = asked_whether_it_lives();
    world.core.opening.offers = RESUME;
    assert!(world.opened(3).contains("open 4 s"));
    world.core.sessions.get_mut(&Some(SessionId("s".into()))).unwrap().stream.was_attached = true;
    let Outcome::Response(refused) = response(403) else { panic!() };
    assert!(world.on(4, StreamEvent::Refused(refused)).contains("session/resume"));
}

#[test]
fn v3_a_replay_of_our_own_that_takes_its_time_is_held_back_to_its_end() {
    let mut world = restoring_alone(Offers { load: true, resume: false });
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.opened(5);
    let answer = world.answer_to_ours(r#""result":null"#);
    assert_eq!(world.says(3, &answer), "");
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    for _ in 0..200 {
        assert_eq!(world.pass(40), "");
        world.on(5, StreamEvent::Progress);
        assert_eq!(world.says(5, update), "", "the editor has it already");
    }
    world.pass(limits::REPLAY_QUIET.0);
    assert_eq!(world.says(5, update), format!("line {update}\n"), "this is new");
}

#[test]
fn l12_a_restore_stops_where_the_question_to_its_connection_is_refused_for_the_credential() {
    let mut world = restoring_alone(RESUME);
    let Outcome::Response(refused) = response(401) else { panic!() };
    assert!(world.answer(2, response(404)).contains("open 5 -"));
    world.on(5, StreamEvent::Refused(refused.clone()));
    world.on(6, StreamEvent::Refused(refused));
    assert_eq!(tries_of_ten_minutes(&mut world), "", "it will be the same the next time");
    assert!(world.line(PROMPT).contains("session/resume"), "a message asks");
}

#[test]
fn v2_a_restore_that_could_not_leave_has_not_failed() {
    let mut world = restoring_alone(RESUME);
    let Outcome::Response(patience) = response(429) else { panic!() };
    let retry_after = Some(Millis(200_000));
    world.answer(2, Outcome::Response(Response { retry_after, ..patience }));
    assert!(world.pass(200_000).contains("session/resume"));
    answer_ours(&mut world, 3, DONE);
    assert!(world.line(PROMPT).contains("post 4 s"));
}

#[test]
fn l11_a_restore_is_not_given_up_for_the_time_of_a_sleep() {
    let mut world = restoring_alone(RESUME);
    world.answer(2, response(202));
    world.now += 3_600_000;
    let told = world.step(Event::Woke) + &world.pass(1_000);
    assert!(!told.contains("error"), "{told}");
    assert!(!world.line(PROMPT).contains("session_lost"));
}

#[test]
fn v2_a_restore_that_is_answered_has_not_failed_while_its_replay_goes_on() {
    let mut world = restoring_alone(Offers { load: true, resume: false });
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.opened(5);
    let replays = |world: &mut World, until| {
        while world.now < until {
            assert_eq!(world.pass(40), "");
            world.on(5, StreamEvent::Progress);
        }
    };
    replays(&mut world, 45_000);
    let answer = world.answer_to_ours(r#""result":null"#);
    assert_eq!(world.says(3, &answer), "");
    replays(&mut world, 62_000);
    world.pass(limits::REPLAY_QUIET.0);
    assert!(world.line(PROMPT).contains(PROMPT));
}

/// The answer may lie there unread.
#[test]
fn l11_nothing_is_given_up_while_streams_are_not_read() {
    let mut world = restoring_alone(RESUME);
    world.answer(2, response(202));
    world.step(Event::Listening(false));
    assert_eq!(world.line(PROMPT), "");
    assert_eq!(world.pass(100_000), "");
    world.step(Event::Listening(true));
    let answer = world.answer_to_ours(DONE);
    let told = world.says(3, &answer) + &world.opened(world.streams.len() - 1);
    assert!(told.contains(PROMPT), "{told}");
}

#[test]
fn l11_a_restore_that_is_to_be_tried_anew_is_not_given_up_for_what_was_not_read() {
    let mut world = restoring_alone(RESUME);
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.on(5, StreamEvent::Failed(Outcome::Broken("reset".into())));
    // The second time it is asked for anew in a second.
    for (stream, post) in [(6, 3), (7, 4)] {
        assert!(world.pass(1_000).contains(&format!("open {stream} s")));
        world.opened(stream);
        if stream == 6 {
            assert!(world.pass(1_000).contains(&format!("post {post} s")));
            world.answer(post, response(202));
            world.on(stream, StreamEvent::Ended(End::Broken("reset".into())));
        }
    }
    world.step(Event::Listening(false));
    assert_eq!(world.pass(100_000), "");
    world.step(Event::Listening(true));
    assert!(world.pass(2_000).contains("session/resume"));
    assert!(!world.line(PROMPT).contains("session_lost"));
}

#[test]
fn v3_half_a_replay_of_a_load_that_failed_is_not_shown() {
    let mut world = restoring_alone(Offers { load: true, resume: false });
    assert!(world.answer(2, response(202)).contains("open 5 s"));
    world.line(PROMPT);
    let failed = world.answer_to_ours(r#""error":{"code":1,"message":"no"}"#);
    assert!(world.says(3, &failed).contains("session_lost"));
    assert!(world.line(LOAD).contains("open 6 s"));
    let update = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s"}}"#;
    assert_eq!(world.opened(6) + &world.says(6, update), "", "of the load that failed");
    assert!(world.pass(limits::REPLAY_QUIET.0).contains(LOAD));
    assert_eq!(world.says(6, update), format!("line {update}\n"));
}

/// The cancel was before it, and comes back.
#[test]
fn v2_a_restore_goes_before_what_was_not_taken() {
    let mut world = World::with_session();
    world.core.opening.offers = RESUME;
    world.line(PROMPT);
    world.answer(2, response(202));
    let (data, id) = (Bytes::from_static(br#"{"jsonrpc":"2.0","method":"x"}"#), "1".into());
    world.on(1, StreamEvent::Message { data: Some(data), id: Some(id) });
    world.line(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}"#);
    world.on(1, StreamEvent::Ended(End::Clean));
    let Outcome::Response(gone) = response(410) else { panic!() };
    world.on(2, StreamEvent::Refused(gone));
    world.opened(3);
    let told = world.answer(3, Outcome::Unsent("away".into())) + &world.pass(1_000);
    assert!(told.contains("session/resume"), "{told}");
}

/// A restore that wants the sign-in repeated, which is under way as the last POST; 40 s have passed.
fn signing_in() -> World {
    let mut world = restoring_alone(RESUME);
    world.core.signed_in =
        Some(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"authenticate"}"#));
    world.pass(40_000);
    let refused = world.answer_to_ours(r#""error":{"code":-32000,"message":"sign in"}"#);
    assert!(world.answer(2, json(200, &refused)).contains("authenticate"));
    world.opened(world.streams.len() - 1);
    world
}

#[test]
fn v4_the_restore_behind_a_sign_in_has_its_own_time() {
    let mut world = signing_in();
    world.pass(30_000);
    let told = answer_ours(&mut world, 3, DONE);
    assert!(told.contains("session/resume"), "{told}");
    assert!(!world.pass(50_000).contains("error"));
    assert!(!world.line(PROMPT).contains("session_lost"));
}

#[test]
fn v4_a_sign_in_whose_answer_may_be_lost_is_repeated() {
    let mut world = signing_in();
    world.answer(3, response(202));
    world.on(3, StreamEvent::Ended(End::Broken("reset".into())));
    let newest = world.streams.iter().rposition(|stream| stream.session.is_none()).unwrap();
    world.opened(newest);
    assert!(world.pass(1_000).contains("session/resume"), "it is asked whether it is needed");
}

#[test]
fn l10_the_next_connection_is_not_asked_for_before_the_remote_says() {
    let mut world = World::with_session();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list"}"#);
    assert!(world.answer(2, response(410)).contains("initialize"));
    let Outcome::Response(busy) = response(503) else { panic!() };
    let retry_after = Some(Millis(120_000));
    world.answer(3, Outcome::Response(Response { retry_after, ..busy }));
    assert!(!world.pass(119_999).contains("post"));
    assert!(world.pass(1).contains("initialize"));
}
