//! The schema and the documentation of the format say what the parser says.

use super::{HEADER, below, place};
use crate::api::schema::schema;
use acp_tether::transcript::format::Transcript;
use acp_tether::transcript::virtual_player;
use serde_json::Value;
use std::fs;

/// Lines that are no steps.
const WRONG_STEPS: &[&str] = &[
    "[]",
    "1",
    "{}",
    r#"{"edits":1}"#,
    r#"{"sees":1,"quiet":true}"#,
    r#"{"sees":1,"colour":2}"#,
    r#"{"sees":1,"bytes":1}"#,
    r#"{"sees":1,"within":"soon"}"#,
    r#"{"sees":1,"save":1}"#,
    r#"{"sees_like":1,"bytes":true}"#,
    r#"{"sees_any_order":[]}"#,
    r#"{"sees_any_order":{}}"#,
    r#"{"editor":1,"lf":false}"#,
    r#"{"editor_raw":1}"#,
    r#"{"editor_raw":"","times":-1}"#,
    r#"{"editor_raw":"","lf":1}"#,
    r#"{"editor_hex":"abc"}"#,
    r#"{"editor_hex":"xy"}"#,
    r#"{"editor_end":false}"#,
    r#"{"editor_deaf":1}"#,
    r#"{"gets":{}}"#,
    r#"{"gets":{"method":"GET","header":{}}}"#,
    r#"{"gets":{"method":"GET","headers":{"a":1}}}"#,
    r#"{"gets":{"method":"GET","session":1}}"#,
    r#"{"gets":{"method":"POST"},"as":"a","answer":{}}"#,
    r#"{"gets":{"method":"POST","body":1,"body_like":1}}"#,
    r#"{"gets":{"method":"POST","bytes":true}}"#,
    r#"{"gets":{"method":"POST","body_like":1,"bytes":true}}"#,
    r#"{"gets":{"method":"POST"},"answer":{"state":1}}"#,
    r#"{"gets":{"method":"POST"},"answer":{"how":"hang","status":200}}"#,
    r#"{"answers":1}"#,
    r#"{"answers":null}"#,
    r#"{"gets":{"method":"POST"},"answer":{"answers":"a"}}"#,
    r#"{"editor":1,"log":1}"#,
    r#"{"answers":"a","state":1}"#,
    r#"{"answers":"a","status":"200"}"#,
    r#"{"answers":"a","headers":{"a":1}}"#,
    r#"{"answers":"a","headers":{"a b":""}}"#,
    r#"{"answers":"a","headers":{"a":"\n"}}"#,
    r#"{"answers":"a","status":100}"#,
    r#"{"gets":{"method":"POST"},"answer":{"status":600}}"#,
    r#"{"gets":{"method":"GET","headers":{"":"a"}}}"#,
    r#"{"answers":"a","body":1,"text":""}"#,
    r#"{"answers":"a","how":"broken","status":200}"#,
    r#"{"answers":"a","how":"cut"}"#,
    r#"{"answers":"a","how":"stall"}"#,
    r#"{"answers":"a","how":"late"}"#,
    r#"{"stream":1,"data":""}"#,
    r#"{"stream":"a"}"#,
    r#"{"stream":"a","raw":"","comment":""}"#,
    r#"{"stream":"a","id":"1","raw":""}"#,
    r#"{"stream":"a","data":"","event":1}"#,
    r#"{"stream":"a","event":1,"times":2}"#,
    r#"{"stream":"a","id":"1","times":2}"#,
    r#"{"stream":"a","end":"clean","times":2}"#,
    r#"{"stream":"a","end":"soon"}"#,
    r#"{"stream":"a","hex":"0"}"#,
    r#"{"gets":{"method":"GET","frame":"text"}}"#,
    r#"{"gets":{"frame":"ping"}}"#,
    r#"{"gets":{"frame":"text","session":null}}"#,
    r#"{"gets":{"frame":"text","headers":{"a":"b"}}}"#,
    r#"{"gets":{"frame":"text","code":1000}}"#,
    r#"{"gets":{"frame":"text"},"as":"a"}"#,
    r#"{"gets":{"frame":"text"},"answer":{}}"#,
    r#"{"gets":{"frame":"close","body":1000}}"#,
    r#"{"gets":{"frame":"close","code":65536}}"#,
    r#"{"gets":{"method":"GET","code":1000}}"#,
    r#"{"socket":"a"}"#,
    r#"{"socket":null,"message":1}"#,
    r#"{"socket":"a","message":1,"text":""}"#,
    r#"{"socket":"a","message":1,"times":2}"#,
    r#"{"socket":"a","close":"1000"}"#,
    r#"{"socket":"a","close":null,"reason":""}"#,
    r#"{"socket":"a","reason":""}"#,
    r#"{"socket":"a","ping":1}"#,
    r#"{"socket":"a","end":"clean"}"#,
    r#"{"remote":"away"}"#,
    r#"{"api":"status"}"#,
    r#"{"api":"open","expect":1}"#,
    r#"{"api":{"open":"s1"},"expect":1}"#,
    r#"{"api":{"close":"s1"}}"#,
    r#"{"api":{"close":1},"expect":1}"#,
    r#"{"pass":"soon"}"#,
    r#"{"pass":1}"#,
    r#"{"quiet":false}"#,
    r#"{"log_has":1}"#,
    r#"{"log_lacks":null}"#,
    r#"{"memory_under":"much"}"#,
    r#"{"memory_under":64}"#,
    r#"{"signal":"KILL"}"#,
    r#"{"exit":"0"}"#,
];

/// Objects that are no headers.
const WRONG_HEADERS: &[&str] = &[
    "{}",
    r#"{"transcript":2,"name":"n","rules":["S1"]}"#,
    r#"{"transcript":1,"name":" ","rules":["S1"]}"#,
    r#"{"transcript":1,"rules":["S1"]}"#,
    r#"{"transcript":1,"name":"n","path":"@example.com"}"#,
    r#"{"transcript":1,"name":"n","rules":["fast"]}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"players":[]}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"players":["me"]}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"start":"late"}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"streams":"no"}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"flags":"--hold"}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"protocol":"1"}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"path":1}"#,
    r#"{"transcript":1,"name":"n","rules":["S1"],"who":1}"#,
];

/// The objects of a file, with their lines.
fn objects(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with("//"))
}

#[test]
fn every_line_of_every_transcript_follows_the_schema() {
    let schema = schema("transcript");
    for file in below(&place("integration/transcripts"), "ndjson") {
        let text = fs::read_to_string(&file).unwrap();
        let transcript = Transcript::parse(&text);
        let rules = transcript.map_or(0, |transcript| transcript.header.rules.len());
        assert!(rules > 0, "{}: it names no rule", file.display());
        for (number, line) in objects(&text) {
            // JSON numbers that no f64 holds: the schema asks nothing of them.
            let line = line.replace("1e400", "1e40");
            let Ok(value) = serde_json::from_str::<Value>(&line) else {
                panic!("{}:{number}: no JSON", file.display())
            };
            let errors: Vec<_> = schema.iter_errors(&value).map(|it| it.to_string()).collect();
            assert!(errors.is_empty(), "{}:{number}: {errors:?}", file.display());
        }
    }
}

#[test]
fn what_the_parser_refuses_the_schema_refuses() {
    let schema = schema("transcript");
    let refused = |text: &str, line: usize| {
        Transcript::parse(text).is_err_and(|refused| refused.line == line)
    };
    for step in WRONG_STEPS {
        assert!(refused(&format!("{HEADER}\n{step}\n"), 2), "the parser takes {step}");
        let value = serde_json::from_str(step).unwrap();
        assert!(!schema.is_valid(&value), "the schema takes {step}");
    }
    for header in WRONG_HEADERS {
        assert!(
            refused(&format!("{header}\n{{\"quiet\":true}}\n"), 1),
            "the parser takes {header}"
        );
        let value = serde_json::from_str(header).unwrap();
        assert!(!schema.is_valid(&value), "the schema takes {header}");
    }
}

/// In the documentation of the format a block that begins with a header is a whole file, any other
/// has steps.
#[test]
fn the_examples_of_the_documentation_play_and_follow_the_schema() {
    let schema = schema("transcript");
    let text = fs::read_to_string(place("docs/TRANSCRIPTS.md")).unwrap();
    let blocks = text.split("```ndjson\n").skip(1);
    let blocks: Vec<_> = blocks.filter_map(|block| block.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        for (_, line) in objects(block) {
            assert!(schema.is_valid(&serde_json::from_str(line).unwrap()), "{line}");
        }
        if block.contains("{\"transcript\":1") {
            let transcript = Transcript::parse(block).unwrap();
            virtual_player::play(&transcript).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Each kind of step, and each key of the header, stands in the documentation.
#[test]
fn the_documentation_names_every_key_of_the_schema() {
    let text = fs::read_to_string(place("docs/TRANSCRIPTS.md")).unwrap();
    let schema = fs::read(place("schemas/transcript.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let properties = definition["properties"].as_object().into_iter().flatten();
        for (key, _) in properties {
            assert!(
                text.contains(&format!("`{key}`")) || text.contains(&format!("\"{key}\"")),
                "{name}: {key}"
            );
        }
    }
}
