//! Turns with the official Rust server through the fault proxy: whatever the network does, every
//! request is answered once, and nothing that arrived is lost or doubled.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::Served;
use super::editor::Editor;
use crate::proxy::{Fault, Harm, Place, Proxy, Target, Way};

const TURNS: usize = 200;
/// Long enough for a busy machine to answer, short enough for many turns.
const FLAGS: [&str; 8] =
    ["--http", "1.1", "--orphan-timeout", "80ms", "--post-timeout", "5s", "--hold", "10s"];

/// What S7 allows, and what a busy machine may take longer.
const ALLOWED: Duration = Duration::from_millis(2_500);
const CUT: Fault =
    Fault { target: Target::Stream, way: Way::Down, place: Place::Middle, harm: Harm::Reset };

fn faults(targets: &[Target]) -> Vec<Fault> {
    let places = [Place::Start, Place::Middle, Place::InLineEnd, Place::InCharacter];
    let harms = [Harm::Reset, Harm::Stall, Harm::Delay, Harm::Slices, Harm::Refuse];
    let mut faults = Vec::new();
    for &target in targets {
        for way in [Way::Up, Way::Down] {
            for place in places {
                faults.extend(harms.map(|harm| Fault { target, way, place, harm }));
            }
        }
    }
    faults
}

#[test]
fn i1_i3_two_hundred_turns_with_a_fault_each_are_all_answered_and_nothing_comes_twice() {
    let served = Served::start();
    let proxy = Proxy::to(&served.url);
    let mut editor = Editor::connect(&proxy.url, &FLAGS);
    let session = open_session(&mut editor);
    let mut seen = BTreeMap::<String, usize>::new();
    let mut turn = |editor: &mut Editor, text: &str| {
        let prompt = json!([{"type": "text", "text": format!("echo {text}")}]);
        let id = editor.request("session/prompt", &json!({"sessionId": session, "prompt": prompt}));
        let (before, answer) = editor.until_answer(id);
        before.iter().filter_map(said).for_each(|text| *seen.entry(text).or_default() += 1);
        answer.get("result").is_some()
    };
    let faults = faults(&[Target::Post, Target::Stream]);
    for number in 0..TURNS {
        let fault = faults[number % faults.len()];
        // A stream is asked for again only when it has ended.
        let is_asked_for = fault.target == Target::Stream && fault.way == Way::Up;
        proxy.arm(is_asked_for.then_some(CUT).into_iter().chain([fault]));
        let succeeded = turn(&mut editor, &format!("turn {number} ünïcödé"));
        // Without event ids an answer that is cut is lost; one that is only slow is not.
        let loses_nothing = matches!(fault.harm, Harm::Delay | Harm::Slices) && !is_asked_for;
        assert!(succeeded || !loses_nothing, "{fault:?}");
        proxy.wait();
        // Soon it is as if nothing had been; not at once, where the connection is cut in what comes
        // after the answer. It also lets the backoff start anew.
        let mut after = (0..3).map(|again| format!("after turn {number}, {again}"));
        assert!(after.any(|text| turn(&mut editor, &text)), "after {fault:?}");
    }

    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for arrived in arrived(&proxy) {
        assert!(seen.contains_key(&arrived), "{arrived:?} arrived and did not reach the editor");
    }
    assert!(editor.close().status.success());
}

#[test]
fn i16_a_fault_at_the_delete_does_not_keep_the_process() {
    for fault in faults(&[Target::Delete]) {
        let served = Served::start();
        let proxy = Proxy::to(&served.url);
        let mut editor = Editor::connect(&proxy.url, &FLAGS);
        open_session(&mut editor);
        proxy.arm([fault]);
        let end = editor.close();
        assert!(end.status.success(), "{fault:?}: {end:?}");
        assert!(end.after < ALLOWED, "{fault:?}: {end:?}");
    }
}

fn open_session(editor: &mut Editor) -> String {
    let id = editor.request("initialize", &json!({"protocolVersion": 1, "clientCapabilities": {}}));
    editor.until_answer(id);
    let id = editor.request("session/new", &json!({"cwd": "/", "mcpServers": []}));
    let (_, answer) = editor.until_answer(id);
    answer["result"]["sessionId"].as_str().expect("a session").to_owned()
}

fn said(update: &Value) -> Option<String> {
    Some(update.pointer("/params/update/content/text")?.as_str()?.to_owned())
}

/// The texts of the updates that the proxy passed on whole.
fn arrived(proxy: &Proxy) -> Vec<String> {
    let streams = proxy.streamed();
    let lines = streams.iter().flat_map(|stream| {
        let whole = stream.rfind("\n\n").map_or(0, |end| end + 1);
        stream[..whole].lines()
    });
    let data = lines.filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| said(&serde_json::from_str(data).ok()?)).collect()
}
