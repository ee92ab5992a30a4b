//! What no transcript can see of the core: its effects themselves, and that chance is one.

use acp_tether::core::{
    Core, Effect, End, Event, Millis, Outcome, Response, Settings, StreamEvent, limits,
};
use bytes::Bytes;
use std::collections::BTreeSet;

fn settings(seed: u64) -> Settings {
    Settings { seed, ..Settings::default() }
}

fn step(core: &mut Core, now: u64, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    core.step(Millis(now), event, &mut effects);
    effects
}

fn line(text: &'static str) -> Event {
    Event::Line(Bytes::from_static(text.as_bytes()))
}

/// A core whose connection is up, and what it did for it.
fn connected(seed: u64) -> (Core, Vec<Effect>) {
    let mut core = Core::new(settings(seed));
    let asked =
        step(&mut core, 0, line(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
    let [Effect::Post(post), Effect::Changed] = &asked[..] else { panic!("{asked:?}") };
    let answer = Response {
        status: 200,
        content_type: "application/json".to_owned(),
        connection_id: Some(Bytes::from_static(b"c1")),
        body: Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#),
        ..Response::default()
    };
    let effects = step(&mut core, 0, Event::Posted(post.id, Outcome::Response(answer)));
    (core, effects)
}

#[test]
fn l12_two_processes_do_not_reconnect_at_the_same_moment() {
    let mut delays = BTreeSet::new();
    for seed in 0..20 {
        let (mut core, mut effects) = connected(seed);
        for _ in 0..2 {
            let opened = effects.iter().find_map(|effect| match effect {
                Effect::Open(open) => Some(open.stream.clone()),
                _ => None,
            });
            let ended = StreamEvent::Ended(End::Broken("cut".to_owned()));
            effects = step(&mut core, 0, Event::Stream(opened.unwrap(), ended));
        }
        let Some(Millis(delay)) = core.deadline() else { panic!("it does not reconnect") };
        let Millis(most) = limits::BACKOFF_FIRST;
        assert!((most / 2..=most).contains(&delay), "{delay} ms");
        delays.insert(delay);
    }
    assert!(delays.len() > 10, "{delays:?}");
}

#[test]
fn l5_a_post_that_is_not_answered_in_time_is_dropped_where_it_stands() {
    let (mut core, effects) = connected(0);
    let stream = effects.iter().find_map(|effect| match effect {
        Effect::Open(open) => Some(open.stream.clone()),
        _ => None,
    });
    let opened = StreamEvent::Opened { event_epoch: None };
    step(&mut core, 0, Event::Stream(stream.unwrap(), opened));
    let posted = step(&mut core, 0, line(r#"{"jsonrpc":"2.0","id":2,"method":"session/list"}"#));
    let [Effect::Post(post), Effect::Changed] = &posted[..] else { panic!("{posted:?}") };
    let Millis(timeout) = limits::POST_TIMEOUT;
    assert_eq!(core.deadline(), Some(Millis(timeout)));
    let late = step(&mut core, timeout, Event::Timer);
    assert!(late.iter().any(|effect| matches!(effect, Effect::Abandon(id) if *id == post.id)));
    assert_eq!(core.deadline(), None, "a timer is left");
}
