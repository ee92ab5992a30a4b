//! One socket in place of POSTs and streams (W).

use super::*;
use crate::core::socket::{Close, Transport};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}"#;

fn socket() -> World {
    let mut world = World::with(Settings {
        transport: Transport::WebSocket,
        hold: Millis(90_000),
        ..settings()
    });
    world.line(INITIALIZE);
    world
}

/// A socket that is open, and the session `s`.
fn up() -> World {
    let mut world = socket();
    assert!(world.answer(0, json(101, ANSWER)).ends_with("open 0 -\n"), "nothing but the socket");
    world.line(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}"#);
    world.answer(1, response(202));
    let told = world.says(0, r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}"#);
    assert!(!told.contains("open"), "a session has no stream: {told}");
    world
}

fn prompt(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"session/prompt","params":{{"sessionId":"s","prompt":[]}}}}"#
    )
}

fn update(text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

fn closed(code: u16) -> StreamEvent {
    StreamEvent::Ended(End::Closed(Close { code, reason: "because".into() }))
}

/// What is written of our own load, and the number of its POST.
fn restore_of(told: &str) -> (usize, String) {
    let (_, post) = told.split_once("post ").unwrap();
    let number = post.split(' ').next().unwrap().parse().unwrap();
    let (_, id) = post.split_once(r#""id":"#).unwrap();
    (number, id.split(',').next().unwrap().to_owned())
}

/// Answers our `initialize`, the last POST, and gives what followed.
fn back(world: &mut World, told: &str) -> String {
    back_with(world, told, ANSWER)
}

/// The same, with what is offered in it.
fn back_with(world: &mut World, told: &str, answer: &str) -> String {
    let (number, id) = restore_of(told);
    world.answer(number, json(101, &answer.replace("\"id\":0", &format!("\"id\":{id}"))))
}

#[test]
fn w1_a_turn_goes_over_the_one_socket() {
    let mut world = up();
    assert!(world.line(&prompt(2)).starts_with("post 2 s"), "it waits for no stream");
    world.answer(2, response(202));
    assert_eq!(world.says(0, &update("x")), format!("line {}\n", update("x")));
    let answer = r#"{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}"#;
    assert_eq!(world.says(0, answer), format!("line {answer}\n"));
}

#[test]
fn w1_a_socket_needs_no_connection_id_and_200_is_none() {
    let mut world = socket();
    let Outcome::Response(opened) = json(101, ANSWER) else { panic!() };
    let opened = Outcome::Response(Response { connection_id: None, ..opened });
    assert!(world.answer(0, opened).contains("open 0"));

    let mut world = socket();
    let told = world.answer(0, json(200, ANSWER));
    assert!(told.contains("does it speak WebSocket?") && !told.contains("open"), "{told}");
}

#[test]
fn w1_a_socket_that_is_no_connection_is_closed() {
    let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"no"}}"#;
    for answer in [json(101, refusal), json(101, "{}")] {
        let mut world = socket();
        assert!(world.answer(0, answer).contains("delete"));
        assert!(world.line(INITIALIZE).starts_with("post 1"), "the next one tries again");
    }
}

#[test]
fn w2_a_closed_socket_is_a_lost_connection_whose_sessions_are_restored() {
    for end in [
        closed(1011),
        StreamEvent::Ended(End::Clean),
        StreamEvent::Ended(End::Broken("cut".into())),
    ] {
        let mut world = up();
        world.line(&prompt(2));
        world.answer(2, response(202));
        let told = world.on(0, end);
        assert!(
            told.contains(r#""id":2,"error""#) && told.contains(r#""delivery":"unknown""#),
            "{told}"
        );
        let told = back(&mut world, &told);
        assert!(told.contains("open 1 -") && told.contains("session/load"), "{told}");
        let (number, id) = restore_of(&told);
        world.answer(number, response(202));
        assert_eq!(world.says(1, &update("old")), "", "the editor has the replay already");
        world.says(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        assert_eq!(world.says(1, &update("new")), format!("line {}\n", update("new")));
        assert!(world.line(&prompt(3)).contains("post"), "the session is used as before");
    }
}

#[test]
fn v11_each_turn_that_is_lost_with_its_socket_is_told_of() {
    let mut world = up();
    for (stream, turn) in [2, 3, 4].into_iter().enumerate() {
        world.line(&prompt(turn));
        world.answer(world.posts.len() - 1, response(202));
        world.says(stream, &update("x"));
        world.now += 10_000;
        let told = world.on(stream, closed(1011));
        assert_eq!(told.matches("may be missing").count(), 1, "turn {turn}: {told}");
        let told = back(&mut world, &told);
        let (number, id) = restore_of(&told);
        world.answer(number, response(202));
        world.says(stream + 1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[test]
fn w2_what_was_not_written_goes_to_the_next_socket() {
    let mut world = up();
    let told = world.on(0, closed(1012));
    assert_eq!(world.line(&prompt(2)), "", "it waits for the link and its session");
    let told = back(&mut world, &told);
    let (number, id) = restore_of(&told);
    world.answer(number, response(202));
    let told = world.says(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    assert!(told.contains("session/prompt"), "{told}");
}

#[test]
fn l12_a_socket_that_ends_after_its_first_message_makes_no_storm() {
    let mut world = up();
    let mut told = world.on(0, closed(1011));
    let mut dials = 0;
    while world.now < 60_000 {
        if told.contains("initialize") {
            dials += 1;
            back(&mut world, &told);
            world.says(world.streams.len() - 1, &update("x"));
            told = world.on(world.streams.len() - 1, closed(1011));
        } else {
            world.now += 50;
            told = world.step(Event::Timer);
        }
    }
    assert!((5..15).contains(&dials), "{dials} in a minute");
}

#[test]
fn w3_a_socket_is_asked_every_20_s_and_is_dead_after_30_s_of_silence() {
    let mut world = up();
    world.now = 20_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    world.now = 25_000;
    world.on(0, StreamEvent::Comment);
    for now in [40_000, 54_000] {
        world.now = now;
        let told = world.step(Event::Timer);
        assert!(!told.contains("close"), "at {now}: {told}");
    }
    world.now = 55_000;
    let told = world.step(Event::Timer);
    assert!(told.contains("close 0") && told.contains("initialize"), "{told}");
}

/// What came meanwhile was not read yet.
#[test]
fn w3_a_process_that_stood_still_asks_before_it_calls_a_socket_dead() {
    let mut world = up();
    world.now = 100_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    world.now = 104_000;
    world.on(0, StreamEvent::Comment);
    world.now = 120_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    world.now = 200_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    assert!(world.pass(5_000).contains("close 0"));
}

#[test]
fn w3_a_message_that_goes_on_keeps_its_socket_and_one_that_is_stuck_ends_it() {
    let mut world = up();
    world.line(&prompt(2));
    for second in 1..90 {
        world.now = second * 1_000;
        let told = world.step(Event::Writing(world.posts[2].id));
        assert!(!told.contains("close") && !told.contains("line"), "{second}: {told}");
        world.step(Event::Timer);
        world.step(Event::Woke);
    }
    for second in 90..160 {
        // The server is there, and takes nothing.
        world.now = second * 1_000;
        let told = world.on(0, StreamEvent::Comment) + &world.step(Event::Timer);
        if second < 149 {
            assert!(!told.contains("close"), "{second}: {told}");
        } else {
            assert!(told.contains("close 0") && told.contains("--post-timeout"), "{told}");
            return;
        }
    }
}

#[test]
fn l5_on_a_socket_one_message_is_written_at_a_time_and_the_rest_is_certainly_unsent() {
    let mut world = up();
    let told = world.says(0, r#"{"jsonrpc":"2.0","id":70,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}"#);
    let (_, id) = told.split_once(r#""id":"#).unwrap();
    let answer =
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.split(',').next().unwrap());
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}"#);
    assert_eq!(world.line(&prompt(3)), "");
    assert_eq!(world.line(&answer), "");
    let told = world.on(0, closed(1011));
    assert!(told.contains(r#""id":2,"error""#) && !told.contains(r#""id":3"#), "{told}");

    let mut world = up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}"#);
    assert_eq!(world.line(&prompt(3)), "");
    assert!(world.answer(2, response(202)).contains("session/prompt"), "its turn has come");
}

#[test]
fn w3_a_message_that_is_stuck_behind_another_is_answered_for_neither_sent_nor_lost() {
    let mut world = up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}"#);
    world.line(&prompt(3));
    let mut told = world.pass(30_000);
    assert!(told.contains(r#""id":2,"error""#) && !told.contains(r#""id":3"#), "{told}");
    told = back(&mut world, &told);
    let (number, id) = restore_of(&told);
    world.answer(number, response(202));
    let told = world.says(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    assert!(told.contains("session/prompt"), "it goes to the next socket: {told}");
}

#[test]
fn w3_an_editor_that_does_not_read_makes_no_socket_dead() {
    let mut world = up();
    world.step(Event::Listening(false));
    world.now = 100_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    world.step(Event::Listening(true));
    world.now = 120_000;
    assert_eq!(world.step(Event::Timer), "ping\n");
    world.now = 129_000;
    assert_eq!(world.step(Event::Timer), "");
    world.now = 130_000;
    assert!(world.step(Event::Timer).contains("close 0"), "from here on silence counts");
}

#[test]
fn w3_after_sleep_or_on_demand_a_live_socket_is_kept_and_a_dead_one_is_not() {
    for event in [Event::Woke, Event::Inquiry(Ticket(1), Inquiry::Reconnect)] {
        let mut world = up();
        assert!(world.step(event.clone()).contains("ping\n"));
        world.now = 4_000;
        world.on(0, StreamEvent::Comment);
        world.now = 6_000;
        assert_eq!(world.step(Event::Timer), "");
        world.step(event);
        world.now = 11_000;
        assert!(world.step(Event::Timer).contains("close 0"));
    }
}

#[test]
fn w3_a_refused_credential_is_read_again_once_and_then_stops_the_retries() {
    for code in [1008, 4401, 4402, 4403] {
        let mut world = up();
        let told = world.on(0, closed(code));
        assert!(told.contains("renewed"), "{code}: {told}");
        assert!(back(&mut world, &told).contains("open 1"));
        world.line(&prompt(2));
        let told = world.on(1, closed(code));
        assert!(told.contains(r#""kind":"auth""#) && !told.contains("initialize"), "{told}");
        world.now = 60_000;
        assert!(!world.step(Event::Timer).contains("initialize"), "it is stopped");
        assert!(world.line(&prompt(3)).contains("renewed"), "a message asks again (L12)");
    }
    let mut world = socket();
    let refused = || Outcome::Closed(Close { code: 4401, reason: String::new() });
    assert!(world.answer(0, refused()).contains("post 1 - renewed"));
    let told = world.answer(1, refused());
    assert!(told.contains(r#""kind":"auth""#), "{told}");
}

#[test]
fn w3_a_socket_that_lived_forgives_a_refusal() {
    let mut world = up();
    let told = world.on(0, closed(1008));
    back(&mut world, &told);
    world.now = 10_000;
    assert!(world.on(1, closed(1008)).contains("renewed"));
}

#[test]
fn w3_a_message_too_large_fails_alone_as_such_and_is_not_sent_again() {
    // Being written, or the longest that has no answer.
    for is_written in [false, true] {
        let mut world = up();
        world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}"#);
        world.answer(2, response(202));
        world.line(&prompt(3));
        if is_written {
            world.answer(3, response(202));
        }
        let told = world.on(0, closed(1009));
        let lines: Vec<_> = told.lines().filter(|line| line.starts_with("line")).collect();
        let of = |id: u32, kind: &str| {
            let id = format!(r#""id":{id},"#);
            lines.iter().any(|line| line.contains(&id) && line.contains(kind))
        };
        assert!(of(3, r#""kind":"too_large""#), "{told}");
        assert!(of(2, r#""kind":"connection_lost""#), "{told}");
        let told = back(&mut world, &told);
        assert!(!told.contains("session/prompt"), "{told}");
    }
}

#[test]
fn w3_where_a_longer_message_awaits_no_answer_nothing_is_blamed_for_1009() {
    let mut world = up();
    world.line(&format!(
        r#"{{"jsonrpc":"2.0","method":"_log","params":{{"sessionId":"s","text":"{}"}}}}"#,
        "x".repeat(1_000)
    ));
    world.answer(2, response(202));
    world.line(&prompt(3));
    world.answer(3, response(202));
    let told = world.on(0, closed(1009));
    assert!(told.contains(r#""id":3,"#) && !told.contains("too_large"), "{told}");
}

#[test]
fn x1_why_a_socket_is_closed_is_told_to_the_editor_and_to_nobody_else() {
    let mut world = up();
    world.line(&prompt(2));
    world.on(0, closed(1008));
    let told = world.step(Event::Inquiry(Ticket(1), Inquiry::Status));
    assert!(told.contains("1008") && !told.contains("because"), "{told}");
    let mut world = socket();
    for number in [0, 1] {
        let close = Close { code: 4401, reason: "because".into() };
        let told = world.answer(number, Outcome::Closed(close));
        let is_told = told.contains(r#""body":"because""#) && told.matches("because").count() == 1;
        assert_eq!(is_told, number == 1, "{told}");
    }
}

/// Restores whatever is asked for but `bad`, whose restore ends the socket.
fn live_with_a_bad_session(world: &mut World, mut told: String, bad: &str) -> (usize, String) {
    let mut losses = 0;
    for _ in 0..200 {
        if told.contains(r#""method":"initialize""#) {
            told = back(world, &told);
        } else if told.contains(&format!(r#""sessionId":"{bad}""#)) && told.contains("session/load")
        {
            let (number, _) = restore_of(&told);
            world.answer(number, response(202));
            losses += 1;
            told = world.on(world.streams.len() - 1, closed(1011));
        } else if told.contains("session/load") {
            let (number, id) = restore_of(&told);
            let more = world.answer(number, response(202));
            let answered = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            told = more + &world.says(world.streams.len() - 1, &answered);
        } else if world.now > 120_000 {
            break;
        } else {
            world.now += 1_000;
            told =
                world.step(Event::Timer) + &world.on(world.streams.len() - 1, StreamEvent::Comment);
        }
    }
    (losses, told)
}

/// Each loss would take the others down with it, for ever.
#[test]
fn c1_a_session_whose_restore_ends_the_socket_is_given_up_and_the_others_live() {
    let mut world = up();
    for (id, name) in [(2, "a"), (3, "t")] {
        world.line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"session/new","params":{{"cwd":"/"}}}}"#
        ));
        world.answer(id, response(202));
        world.says(
            0,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"sessionId":"{name}"}}}}"#),
        );
    }
    let told = world.on(0, closed(1011));
    let (losses, _) = live_with_a_bad_session(&mut world, told, "a");
    assert_eq!(losses, 6, "it was tried");
    let told = world.line(&prompt(9).replace(r#""s""#, r#""a""#));
    assert!(told.contains("each time that"), "{told}");
    for (id, name) in [(10, "s"), (11, "t")] {
        let told = world.line(&prompt(id).replace(r#""s""#, &format!(r#""{name}""#)));
        assert!(told.contains("session/prompt"), "{name} lives: {told}");
        world.answer(world.posts.len() - 1, response(202));
    }
}

/// Sessions `s` and `t` whose restores were both under way as the connection was lost, once more: the
/// world, and what followed the answer to `initialize`.
fn both_suspected(answer: &str) -> (World, String) {
    let mut world = up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/"}}"#);
    world.answer(2, response(202));
    world.says(0, r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"t"}}"#);
    let told = world.on(0, closed(1011));
    let told = back_with(&mut world, &told, answer);
    assert_eq!(told.matches("post ").count(), 1, "one message at a time is written: {told}");
    let (number, _) = restore_of(&told);
    let told = world.answer(number, response(202));
    let (number, _) = restore_of(&told);
    world.answer(number, response(202));
    let told = world.on(1, closed(1011));
    world.now += 60_000;
    let told = told + &world.step(Event::Timer);
    let told = back_with(&mut world, &told, answer);
    (world, told)
}

#[test]
fn c1_a_restore_that_waits_begins_as_the_other_ends() {
    let (mut world, told) = both_suspected(ANSWER);
    let (number, id) = restore_of(&told);
    assert!(told.contains(r#""sessionId":"s""#), "{told}");
    assert_eq!(world.answer(number, response(202)), "", "the other waits");
    assert_eq!(world.on(2, StreamEvent::Comment), "", "nothing else begins it");
    let told = world.says(2, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    assert!(told.contains(r#""sessionId":"t""#), "{told}");
}

#[test]
fn c1_a_restore_that_waits_begins_when_the_other_is_not_answered_for_5_s() {
    let (mut world, told) = both_suspected(ANSWER);
    let (number, _) = restore_of(&told);
    world.answer(number, response(202));
    assert_eq!(world.pass(4_999), "");
    let told = world.pass(1);
    assert!(told.contains(r#""sessionId":"t""#), "{told}");
}

#[test]
fn c1_the_next_way_of_a_restore_waits_for_the_other_and_is_tried() {
    let offers = r#""sessionCapabilities":{"resume":{}},"loadSession""#;
    let both = ANSWER.replace(r#""loadSession""#, offers);
    let (mut world, told) = both_suspected(&both);
    let (number, id) = restore_of(&told);
    assert!(told.contains("session/resume"), "{told}");
    world.answer(number, response(202));
    let told = world.pass(5_000);
    assert!(told.contains(r#""sessionId":"t""#), "{told}");
    world.answer(number + 1, response(202));
    let refused = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":""}}}}"#);
    assert_eq!(world.says(2, &refused), "", "the other waits for its answer");
    let told = world.pass(5_000);
    assert!(told.contains("session/load") && told.contains(r#""sessionId":"s""#), "{told}");
}

#[test]
fn w3_a_restore_that_is_too_large_fails_its_session_and_is_not_tried_again() {
    let mut world = up();
    let told = world.on(0, closed(1011));
    let told = back(&mut world, &told);
    assert!(told.contains("session/load"));
    world.on(1, closed(1009));
    world.now = 1_000;
    let told = world.step(Event::Timer);
    let told = back(&mut world, &told);
    assert!(!told.contains("session/load"), "{told}");
    let told = world.line(&prompt(9));
    assert!(told.contains(r#""kind":"too_large""#), "{told}");
}

/// As one server answers a request that names no session.
#[test]
fn w2_a_session_close_without_a_session_ends_nothing() {
    let mut world = up();
    world.line(r#"{"jsonrpc":"2.0","id":2,"method":"session/close","params":{}}"#);
    world.answer(2, response(202));
    let told = world.says(0, r#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert!(told.starts_with("line") && !told.contains("close 0"), "{told}");
    assert!(world.line(&prompt(3)).contains("session/prompt"));
}

#[test]
fn w3_initialize_that_is_too_large_is_told_so() {
    let mut world = socket();
    let closed = Outcome::Closed(Close { code: 1009, reason: String::new() });
    assert!(world.answer(0, closed).contains(r#""kind":"too_large""#));
}

#[test]
fn s7_the_end_closes_the_socket_and_not_its_stream_before() {
    let mut world = up();
    assert_eq!(world.step(Event::EditorGone), "delete\n");
    assert_eq!(world.step(Event::Deleted(response(204))), "exit\n");
}

/// An agent that is slow with our load tells its history after we gave it up.
#[test]
fn v3_the_replay_of_a_load_that_was_given_up_is_held_back_until_its_answer() {
    let mut world = up();
    let told = world.on(0, closed(1011));
    let told = back(&mut world, &told);
    let (number, id) = restore_of(&told);
    world.answer(number, response(202));
    for _ in 0..3 {
        world.now += 15_000;
        world.step(Event::Timer);
        world.on(1, StreamEvent::Comment);
    }
    world.now += 15_000;
    world.step(Event::Timer);
    assert_eq!(world.says(1, &update("old")), "");
    world.says(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    assert_eq!(world.says(1, &update("new")), format!("line {}\n", update("new")));
}

#[test]
fn i19_an_answer_that_is_too_long_for_a_socket_leaves_no_request_open() {
    let other = update("x").replace(r#""s""#, r#""other""#);
    for (cancel, within) in [(false, 600_000), (true, 5_000)] {
        let mut world = up();
        world.line(&prompt(2));
        world.answer(world.posts.len() - 1, response(202));
        world.on(0, StreamEvent::TooLarge);
        if cancel {
            world.line(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#);
        }
        let mut told = String::new();
        for _ in 0..within / 5_000 {
            told += &world.pass(5_000);
            world.says(0, &other);
        }
        assert!(told.contains("\"id\":2") && told.contains("stream_lost"), "{told}");
    }
}

/// The replay of our own may still come; what the editor loads must not be taken for it (V3).
#[test]
fn c3_a_load_that_waited_for_a_restore_that_fails_replays_to_the_editor() {
    let mut world = up();
    let told = world.on(0, closed(1011));
    let told = back(&mut world, &told);
    let (number, _) = restore_of(&told);
    world.answer(number, response(202));
    let load = r#"{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}"#;
    assert_eq!(world.line(load), "");
    world.pass(20_000);
    world.on(1, StreamEvent::Comment);
    world.pass(20_000);
    world.on(1, StreamEvent::Comment);
    assert!(world.pass(20_000).contains(load), "ours was not answered");
    world.answer(world.posts.len() - 1, response(202));
    assert_eq!(world.says(1, &update("x")), format!("line {}\n", update("x")));
}

#[test]
fn l12_a_page_in_place_of_a_socket_stops_the_attempts_until_a_message_asks() {
    let mut world = up();
    let told = world.on(0, closed(1011));
    let list = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"session/list"}}"#);
    world.line(&list(2));
    let (number, _) = restore_of(&told);
    let told = world.answer(number, response(200));
    assert!(told.contains("\"kind\":\"http\",\"status\":200"), "what waits fails: {told}");
    assert_eq!(world.pass(600_000), "", "nobody asks");
    assert!(world.line(&list(3)).contains("renewed"), "a message asks");
}
