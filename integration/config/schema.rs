//! `schemas/config.schema.json`: what it says of each key, and that the program says the same.

use super::{File, place, run};
use acp_tether::cli::Cli;
use acp_tether::config::OWNED_HEADERS;
use clap::{Arg, ArgAction, CommandFactory};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::fs;

/// Times of one millisecond and more.
const TIME: &str = r"^\s*(\d+(\.\d+)?\s*(ms|msec|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)\s*)+$";
/// A digit that is not 0 stands in it.
const NOT_ZERO: &str = "[1-9]";
/// Sizes of 1 KiB and more.
const SIZE: &str = concat!(
    r"^(?:(?:102[4-9]|10[3-9]\d|1[1-9]\d\d|[2-9]\d{3}|[1-9]\d{4,})(?:\s*[bB])?",
    r"|[1-9]\d*(?:\.\d+)?\s*(?:[kK][iI]|[mMgGtT][iI]?)[bB]?",
    r"|(?:[2-9]|[1-9]\d+)(?:\.\d+)?\s*[kK][bB]?)$"
);
const API: &str = r"^(?:off|(?:127\.0\.0\.1|localhost):(?:\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]))$";
/// A URL without user info.
const AGENT: &str = r"^\s*(?:[hH][tT][tT][pP][sS]?|[wW][sS]{1,2})://[^\s/?#\\@]+(?:[/?#\\].*)?$";
const SOCKET: &str = r"^\s*[wW][sS]{1,2}:";
const PROXY: &str =
    r"^\s*(?:off\s*$|(?:[hH][tT][tT][pP][sS]?|[sS][oO][cC][kK][sS]5[hH]?)://[^\s/?#]|\$\{[^}]+\})";
/// A URL whose port is a number that no port is.
const NO_PORT: &str = concat!(
    r"^\s*[^\s/?#]+://[^\s/?#\\]*:0*",
    r"(?:6553[6-9]|655[4-9]\d|65[6-9]\d\d|6[6-9]\d{3}|[7-9]\d{4}|[1-9]\d{5,})(?:[/?#\\]|\s*$)"
);
/// `${` without a name or without its end.
const OPEN: &str = r"\$\{(?:\}|[^}]*$)";
/// No control characters but tabs; those around it are taken away.
const VALUE: &str = r"^\s*[^\u0000-\u0008\u000a-\u001f\u007f]*\s*$";
/// What no name may hold: control characters, ends of lines, and what changes the direction of writing.
const UNPRINTABLE: &str = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069";
/// What HTTP calls a token.
const TOKEN: &str = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$";

/// A pattern for a word in whatever case.
fn whatever_case(word: &str) -> String {
    let letter = |char: char| match char.is_ascii_alphabetic() {
        true => format!("[{char}{}]", char.to_ascii_uppercase()),
        false => char.to_string(),
    };
    word.chars().map(letter).collect()
}

/// What the file must be.
fn described() -> Value {
    let cli = Cli::command();
    let connect = cli.find_subcommand("connect").unwrap();
    let keys =
        connect.get_arguments().filter(|key| !matches!(name(key), "config" | "header" | "help"));
    let mut properties: serde_json::Map<_, _> =
        keys.map(|key| (name(key).to_owned(), described_key(key))).collect();
    let owned: Vec<_> = OWNED_HEADERS
        .iter()
        .chain(&["proxy-authorization"])
        .map(|name| whatever_case(name))
        .collect();
    let owned = format!("^(?:{}-.*|{})$", whatever_case("acp"), owned.join("|"));
    properties.insert(
        "headers".to_owned(),
        json!({
            "type": "object",
            "propertyNames": { "pattern": TOKEN, "not": { "pattern": owned } },
            "additionalProperties":
                { "type": "string", "pattern": VALUE, "not": { "pattern": OPEN } },
            "description":
                "Headers to send with every request; ${NAME} stands for an environment variable",
        }),
    );
    let with = |key: &str| json!({ "required": [key] });
    let both = |one: &str, other: &str| json!({ "not": { "required": [one, other] } });
    let authorization = json!({ "properties": { "headers": {
        "propertyNames": { "not": { "pattern": format!("^{}$", whatever_case("authorization")) } } } } });
    let bearer = ["bearer-env", "bearer-file", "bearer-command"];
    let socket = json!({ "properties": { "url": { "pattern": SOCKET } }, "required": ["url"] });
    let content = json!({ "properties": { "record-content": { "const": true } }, "required": ["record-content"] });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration file of acp-tether",
        "description": "As TOML. The keys of a remote are the flags of `acp-tether connect`.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "remotes": {
                "type": "object",
                "description": "The remotes by name, for `acp-tether connect NAME`.",
                "propertyNames": { "pattern": format!("^[^-{UNPRINTABLE}][^{UNPRINTABLE}]*$"), "not": { "pattern": "://" } },
                "additionalProperties": {
                    "type": "object",
                    "required": ["url"],
                    "additionalProperties": false,
                    "properties": properties,
                    "dependentRequired": { "client-key": ["client-cert"], "record-limit": ["record"] },
                    "allOf": [
                        both(bearer[0], bearer[1]),
                        both(bearer[0], bearer[2]),
                        both(bearer[1], bearer[2]),
                        { "if": { "anyOf": bearer.map(with) }, "then": authorization },
                        { "if": content, "then": with("record") },
                        { "if": socket, "then": { "properties": { "transport": { "const": "ws" } } } },
                    ],
                },
            },
        },
    })
}

fn name(key: &Arg) -> &str {
    key.get_long().unwrap_or(key.get_id().as_str())
}

fn described_key(key: &Arg) -> Value {
    let mut values = Vec::new();
    for value in key.get_possible_values() {
        // A version may be written as a number.
        values.extend(value.get_name().parse::<serde_json::Number>().ok().map(Value::from));
        values.push(Value::from(value.get_name()));
    }
    let kind = key.get_value_parser().type_id();
    let mut schema = match (name(key), key.get_action()) {
        (_, ArgAction::SetTrue) => json!({"type": "boolean"}),
        _ if !values.is_empty() => json!({"enum": values}),
        _ if kind == TypeId::of::<usize>() => {
            json!({"type": ["string", "integer"], "pattern": SIZE, "minimum": 1024})
        }
        _ if kind == TypeId::of::<acp_tether::core::Millis>() => {
            json!({"type": "string", "pattern": TIME, "allOf": [{"pattern": NOT_ZERO}]})
        }
        (_, ArgAction::Append) => json!({
            "type": ["string", "array"],
            "minLength": 1,
            "items": {"type": "string", "minLength": 1},
        }),
        ("url", _) => json!({"type": "string", "pattern": AGENT, "not": {"pattern": NO_PORT}}),
        ("api", _) => json!({"type": "string", "pattern": API}),
        ("proxy", _) => json!({
            "type": "string",
            "pattern": PROXY,
            "not": {"anyOf": [{"pattern": OPEN}, {"pattern": NO_PORT}]},
        }),
        _ => json!({"type": "string", "minLength": 1}),
    };
    let help = key.get_help().unwrap().to_string();
    // On the command line, a name can stand in place of the URL.
    schema["description"] = Value::from(help.split("; or the name").next());
    if let [default] = key.get_default_values() {
        schema["default"] = Value::from(default.to_str().unwrap());
    }
    schema
}

pub fn validator() -> Validator {
    jsonschema::validator_for(&described()).unwrap()
}

/// The keys of a remote, in the order of the flags.
pub fn keys() -> Vec<String> {
    let described = described();
    let properties = &described["properties"]["remotes"]["additionalProperties"]["properties"];
    properties.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_schema_of_the_file_is_what_the_flags_of_connect_say() {
    let path = place("schemas/config.schema.json");
    let described = described();
    if std::env::var("SCHEMA").is_ok_and(|what| what == "write") {
        fs::write(&path, serde_json::to_string_pretty(&described).unwrap() + "\n").unwrap();
    }
    let written: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let how = "SCHEMA=write cargo test --test integration the_schema writes it anew";
    assert!(written == described, "schemas/config.schema.json is not true any more; {how}");
}

/// A key, values that can be used, and values that cannot, as TOML. A file of the table has a `url`.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const ROWS: [Row; 29] = [
    (
        "url",
        &[
            "'https://h'",
            "'wss://h:1/acp?a=b@c'",
            "' HTTP://[::1]:8080#x '",
            "'http://h:065535'",
            "'http://h/a:65536'",
            "'http://[::]/'",
        ],
        &[
            "'http://h:65536'",
            "' http://[::1]:100000/acp '",
            "'ws://h:070000?a'",
            "''",
            "'h'",
            "'h:80'",
            "'ftp://h'",
            "'https://'",
            "'https:h'",
            "'http://a:b@h'",
            "1",
        ],
    ),
    ("transport", &["'http'", "'ws'"], &["'sse'", "''", "1", "['ws']"]),
    ("bearer-env", &["'TOKEN'"], &["''", "1", "['A']", "true"]),
    ("bearer-file", &["'/run/token'"], &["''", "1"]),
    ("bearer-command", &["'make token'"], &["''", "1"]),
    ("ca-file", &["'a.pem'", "['a.pem', 'b.pem']", "[]"], &["''", "['']", "[1]", "1", "true"]),
    ("client-cert", &["'a.pem'"], &["''", "['a']", "1"]),
    ("client-key", &[], &["''", "'a.key'"]),
    ("insecure", &["'h'", "['h']"], &["true", "''", "['']", "1"]),
    (
        "proxy",
        &[
            "'off'",
            "'http://p:1'",
            "'SOCKS5H://p'",
            "'${PROXY}'",
            "'http://a:${W}@p:65535'",
            "'http://a:70000@p:1'",
            "'http://p:${P}'",
        ],
        &[
            "'http://p:65536'",
            "'socks5://a:${W}@p:99999/'",
            "''",
            "'on'",
            "'p:3128'",
            "'ftp://p'",
            "'http://'",
            "'http://${'",
            "'http://${}'",
            "1",
        ],
    ),
    ("no-proxy", &["'a.test,10.0.0.0/8'", "'*'"], &["''", "1", "['a']"]),
    ("connect-timeout", &["'1ms'", "'1m 30s'", "'1.5s'"], &["''", "'5'", "5", "'0s'", "'soon'"]),
    ("post-timeout", &["'2h'"], &["'-1s'", "5"]),
    ("hold", &["'10 minutes'", "'1day'"], &["'1 fortnight'", "'0ms 0s'", "1.5"]),
    ("orphan-timeout", &["'10m'"], &["'m'", "true"]),
    ("on-stream-loss", &["'recover'", "'fail'"], &["'Fail'", "''", "true"]),
    ("recover", &["'auto'", "'manual'"], &["'on'", "1"]),
    ("notices", &["'on'", "'off'"], &["true", "'yes'"]),
    (
        "max-message-bytes",
        &["1024", "'1024'", "'1 KiB'", "'64MiB'", "'2k'", "'1.5m'", "'2000b'"],
        &["1023", "-5", "'1023'", "'1kB'", "'12'", "'0MiB'", "'1XB'", "''", "0x1000", "true"],
    ),
    ("http", &["'auto'", "1.1", "2", "'2'"], &["3", "'1.0'", "true", "'AUTO'"]),
    ("cursor-in-query", &["true", "false"], &["'true'", "1"]),
    (
        "api",
        &["'off'", "'127.0.0.1:0'", "'localhost:65535'"],
        &["'0.0.0.0:0'", "'127.0.0.1'", "'127.0.0.1:65536'", "'on'", "''", "8080"],
    ),
    ("runtime-dir", &["'/run'"], &["''", "1"]),
    ("log-level", &["'error'", "'trace'"], &["'loud'", "'WARN'", "1"]),
    ("log-file", &["'a.log'"], &["''", "1", "['a']"]),
    ("record", &["'a.ndjson'"], &["''", "1"]),
    ("record-limit", &[], &["'1MiB'", "1"]),
    ("record-content", &["false"], &["true", "'true'"]),
    (
        "headers",
        &["{}", "{ X-A = '', x-b = ' ${B} $c ' }", "{ Authorization = 'Basic ${A}' }"],
        &[
            "'X-A: 1'",
            "{ 'X A' = '1' }",
            "{ 'X:A' = '1' }",
            "{ '' = '1' }",
            "{ X-A = 1 }",
            "{ ACP-X = '1' }",
            "{ Content-Type = '1' }",
            "{ proxy-authorization = '1' }",
            "{ X-A = \"a\\u0001\" }",
            "{ X-A = '${' }",
            "{ X-A = '${}' }",
        ],
    ),
];

/// What goes together, and what does not.
const TOGETHER: [(&[&str], &[&str]); 5] = [
    (&["client-cert = 'a'\nclient-key = 'b'"], &[]),
    (&["record = 'a'\nrecord-limit = 2048\nrecord-content = true"], &[]),
    (
        &["bearer-env = 'A'\nheaders = { X-A = '1' }"],
        &[
            "bearer-env = 'A'\nbearer-file = 'b'",
            "bearer-env = 'A'\nbearer-command = 'b'",
            "bearer-file = 'a'\nbearer-command = 'b'",
            "bearer-file = 'a'\nheaders = { authorization = 'b' }",
        ],
    ),
    (&["transport = 'ws'\nrecord = 'a'"], &["hld = '1s'", "config = 'a'"]),
    (&[], &["header = 'X-A: 1'", "help = true"]),
];

#[test]
fn what_the_schema_refuses_and_takes_the_program_refuses_and_takes() {
    let named: BTreeSet<_> = ROWS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(named, keys().into_iter().collect());
    let remote = |lines: &str| format!("[remotes.a]\nurl = 'http://h'\n{lines}");
    let row = |key: &str, value: &str| match key {
        "url" => format!("[remotes.a]\nurl = {value}"),
        _ => remote(&format!("{key} = {value}")),
    };
    let mut cases = Vec::new();
    for (key, taken, refused) in ROWS {
        cases.extend(taken.iter().map(|value| (row(key, value), true)));
        cases.extend(refused.iter().map(|value| (row(key, value), false)));
    }
    for (taken, refused) in TOGETHER {
        cases.extend(taken.iter().map(|lines| (remote(lines), true)));
        cases.extend(refused.iter().map(|lines| (remote(lines), false)));
    }
    let wss = |lines: &str| format!("[remotes.a]\nurl = 'wss://h'\n{lines}");
    cases.push((wss("transport = 'ws'"), true));
    cases.push((wss("transport = 'http'"), false));
    cases.push((wss("record = 'a'"), true));
    for (name, is_taken) in [
        ("'b c'", true),
        ("''", false),
        ("'b://c'", false),
        ("\"b\\u001b\"", false),
        ("-b", false),
        ("b-", true),
        ("\"b\\u202e\"", false),
        ("\"\\u2066b\"", false),
    ] {
        cases.push((format!("[remotes.{name}]\nurl = 'http://h'"), is_taken));
    }
    for (whole, is_taken) in [
        ("", true),
        ("remotes = 1", false),
        ("[remote.a]\nurl = 'http://h'", false),
        ("[remotes.a]", false),
    ] {
        cases.push((whole.to_owned(), is_taken));
    }
    let schema = validator();
    for (text, is_taken) in cases {
        // What JSON cannot tell apart from a number that is fine.
        let is_hexadecimal = text.contains("0x");
        let value: Value = toml::from_str(&text).unwrap();
        assert_eq!(schema.is_valid(&value), is_taken || is_hexadecimal, "the schema: {text}");
        let file = File::new(&text);
        let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
        assert_eq!(code, Some(i32::from(!is_taken)), "the program: {text}: {errors}");
    }
}
