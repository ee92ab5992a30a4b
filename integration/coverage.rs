//! Keeps docs/COVERAGE.md true: which transcript or test proves which rule, and which case.
//!
//! A transcript names its rules in its header, and its cases there or in a comment. A test names its
//! rules, and may name a case, at the start of its own name; a case stands in a comment of a test too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use acp_tether::transcript::format::Transcript;

use crate::runner;

/// Small inputs that broke programs of this kind: what went wrong there.
const CASES: [(&str, &str); 87] = [
    ("K1", "one event is torn in two where CR and LF come in different reads"),
    ("K3", "bytes that were read already are read again, and a blank line is lost"),
    ("K5", "lines that end with CR alone are not seen as lines"),
    ("K7", "a byte-order mark hides the first field"),
    ("K9", "more than one byte-order mark is removed"),
    ("K11", "an event without an id resets the last id"),
    ("K13", "the last id stops moving after the second reconnect"),
    ("K15", "half an event is delivered when the stream ends"),
    ("K17", "a whole event whose blank line is a lone CR is dropped at the end"),
    ("K19", "pings without data are taken for bad messages"),
    ("K21", "an event with an id only closes the stream"),
    ("K23", "a line of megabytes takes a minute"),
    ("K25", "the rest of an event over the limit is delivered"),
    ("K27", "`data:` without a space is not read"),
    ("K29", "invalid bytes are waited for as if they were incomplete"),
    ("K31", "a proxy that compresses holds small events back"),
    ("K33", "the end of a replaced stream is taken for that of the live one"),
    ("K35", "a stream that is open and silent is waited for without end"),
    ("K37", "streams share one last id"),
    ("K39", "a session's stream is opened too late for its first updates"),
    ("K41", "large ids are changed or refused"),
    ("K43", r#"the ids `1` and `"1"` are taken for one"#),
    ("K45", "an answer to nothing ends the connection"),
    ("K47", "a parse error is answered under the id 0"),
    ("K49", "invalid UTF-8 of the remote ends the transport"),
    (
        "K51",
        "JSON that is no message is called a parse error; answers are dropped at the end of input",
    ),
    ("K53", "messages end with CR LF"),
    ("K55", "U+2028 and U+2029 split a line at the editor"),
    ("K57", "a pretty-printed message is thrown away line by line"),
    ("K59", "a log line stands on standard output"),
    ("K61", "a bad configuration shows as a dead agent"),
    ("K63", "a redirected POST becomes a GET without its message"),
    ("K65", "a trailing slash of the URL is lost"),
    ("K67", "a redirect loses the session header"),
    ("K69", "the 404 of a hop is told as the end of a session"),
    ("K71", "only one of the statuses of a lost connection is recovered from"),
    ("K73", "a 400 of a server that forgot the connection stays for ever"),
    ("K75", "cookies are not kept"),
    ("K77", "GOAWAY is taken for the end of open streams"),
    ("K79", "many sessions make many reconnects and floods of log lines"),
    ("K81", "retries are used up before a long outage ends"),
    ("K83", "streams that a hop cuts when idle are errors at the editor"),
    ("K85", "the credential is read once and refused for ever"),
    ("K87", "a refresh token is never used"),
    ("K89", "a token of the URL's query is shown"),
    ("K91", "a proxy of the desktop stands before the loopback"),
    ("K93", "a token is visible in the process list"),
    ("K95", "a message that is too large for the peer vanishes"),
    ("K97", "a load with the result `null` hangs, its replay is taken for new"),
    ("K99", "a load without a replay is waited for"),
    ("K101", "a question that was settled is asked again"),
    ("K103", "an open question vanishes with a reconnect"),
    ("K105", "a session stays busy after a drop"),
    ("K107", "a chat stays in streaming after a reconnect"),
    ("K109", "a prompt between reconnect and resume vanishes"),
    ("K111", "a refusal of a busy session is changed on its way"),
    ("K113", "a session is restored many times a second"),
    ("K115", "the end of input spins while the DELETE hangs"),
    ("K117", "SIGHUP leaves the process behind"),
    ("K119", "a failure of the remote ends the process"),
    ("K121", "a closed standard output panics"),
    ("K123", "helpers of a token command live on"),
    ("K125", "the editor gives `initialize` up before the bridge does"),
    ("K127", "the list shows a session as well when its link is dead"),
    ("K129", "dead sessions cannot be taken off the list"),
    ("K131", "one failed session takes the others down"),
    ("K133", "a request without an Origin passes with a foreign Host"),
    ("K135", "whoever calls from this machine is let in"),
    ("K137", "a session id is decoded twice"),
    ("K139", "ids with `/ ? # %` cannot be addressed"),
    ("K141", "part of a token is logged"),
    ("K143", "links and foreign files in a shared folder are followed"),
    ("K145", "a token is compared with an early end"),
    ("K147", "an old instance deletes the record of a new one"),
    ("K149", "the shutdown runs twice"),
    ("KS1", "numbers are printed anew"),
    ("KS3", "deep nesting overflows the stack"),
    ("KS5", "a batch ends the connection"),
    ("KS7", "unknown fields, lines without a colon, names of events"),
    ("KS9", "a strange answer to `initialize`"),
    ("KS11", "the answer to a load comes on the other stream"),
    ("KS13", "names of headers in other case, headers that come twice"),
    ("KS15", "long streams starve POSTs over HTTP/1.1"),
    ("KS17", "the clock jumps after a sleep"),
    ("KS19", "another process has taken the port"),
    ("KS21", "a resume that is offered fails"),
    ("KS23", "the agent wants a sign-in after a reconnect"),
];

const PREFACE: &str = "\
# Coverage

Which transcript, or else which test, proves which rule of [BEHAVIOUR.md](BEHAVIOUR.md) and which small input that broke
programs of this kind. This page is generated: a test fails where it is not true. To write it anew:

    COVERAGE=write cargo test --test integration coverage

Files are below [integration/transcripts](../integration/transcripts); tests carry the module that they stand in. A1, A2 and A5
have no transcript, because ports, records on disk and crowds of callers are nothing that a transcript can tell.
";

/// What proves something: files of the corpus, and tests.
#[derive(Default)]
struct Proofs {
    files: BTreeSet<String>,
    tests: BTreeSet<String>,
}

#[test]
fn the_index_of_rules_and_cases_is_true_and_lacks_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut proofs = BTreeMap::<String, Proofs>::new();
    read_corpus(&root.join("integration/transcripts"), &mut proofs);
    for folder in ["src", "integration"] {
        read_tests(root, &root.join(folder), &mut proofs);
    }
    let rules = rules(&fs::read_to_string(root.join("docs/BEHAVIOUR.md")).unwrap());
    assert!(rules.len() > 50, "{rules:?}");

    let lacking: Vec<_> = rules
        .iter()
        .map(String::as_str)
        .chain(CASES.map(|(case, _)| case))
        .filter(|name| !proofs.contains_key(*name))
        .collect();
    assert!(lacking.is_empty(), "no transcript and no test proves {lacking:?}");

    let page = page(&rules, &proofs);
    let path = root.join("docs/COVERAGE.md");
    if std::env::var("COVERAGE").is_ok_and(|what| what == "write") {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let difference = page.lines().zip(written.lines()).find(|(one, other)| one != other);
    assert!(
        page == written,
        "docs/COVERAGE.md is not true any more, first here: {difference:?}; \
         COVERAGE=write cargo test --test integration coverage writes it anew"
    );
}

/// The rules have their places in lists; their numbers are bold.
fn rules(behaviour: &str) -> Vec<String> {
    let rules = behaviour.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    rules.map(|(rule, _)| rule.to_owned()).collect()
}

fn page(rules: &[String], proofs: &BTreeMap<String, Proofs>) -> String {
    let mut page = PREFACE.to_owned();
    let none = Proofs::default();
    page += "\n## Rules\n\n| rule | transcripts | tests |\n|---|---|---|\n";
    for rule in rules {
        let Proofs { files, tests } = proofs.get(rule).unwrap_or(&none);
        let _ = writeln!(page, "| {rule} | {} | {} |", list(files), list(tests));
    }
    page += "\n## Cases\n\n| case | what went wrong | proved by |\n|---|---|---|\n";
    for (case, title) in CASES {
        let Proofs { files, tests } = proofs.get(case).unwrap_or(&none);
        let proved = list(&files.union(tests).cloned().collect());
        let _ = writeln!(page, "| {case} | {title} | {proved} |");
    }
    page
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join("<br>")
}

fn read_corpus(root: &Path, proofs: &mut BTreeMap<String, Proofs>) {
    for file in runner::transcripts_in(root) {
        let text = fs::read_to_string(&file).unwrap();
        let transcript = Transcript::parse(&text).unwrap_or_else(|refused| panic!("{refused}"));
        let name = file.strip_prefix(root).unwrap().with_extension("");
        let name = name.to_string_lossy().replace('\\', "/");
        let comments = text.lines().filter(|line| line.starts_with("//"));
        for rule in transcript.header.rules.into_iter().chain(comments.flat_map(cases)) {
            proofs.entry(rule).or_default().files.insert(name.clone());
        }
    }
}

/// Finds the tests of a folder, with what their names and their comments name.
fn read_tests(root: &Path, folder: &Path, proofs: &mut BTreeMap<String, Proofs>) {
    // What the players and the recording do proves nothing of the bridge.
    let is_played = |file: &PathBuf| !file.starts_with(root.join("src/transcript"));
    for file in rust_files(folder).into_iter().filter(is_played) {
        let text = fs::read_to_string(&file).unwrap();
        let module = file.strip_prefix(root).unwrap().with_extension("");
        let module = module.to_string_lossy().replace(['/', '\\'], "::");
        // Named in the comment before a test; the test whose body the line stands in.
        let (mut named, mut test) = (Vec::new(), None);
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if let Some(name) = function(line) {
                test = std::mem::take(&mut is_test).then(|| format!("{module}::{name}"));
                let named = named.drain(..).chain(named_by(name));
                for (rule, test) in named.zip(test.iter().cycle()) {
                    proofs.entry(rule).or_default().tests.insert(test.clone());
                }
            } else if line.starts_with("///") {
                named.extend(cases(line));
            } else if line.starts_with("//")
                && let Some(test) = &test
            {
                for case in cases(line) {
                    proofs.entry(case).or_default().tests.insert(test.clone());
                }
            } else if line.is_empty() {
                named.clear();
            }
        }
    }
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let (name, _) = line.strip_prefix("fn ")?.split_once(['(', '<'])?;
    Some(name)
}

/// The rules and cases at the start of a test's name: `s2_s3_` names S2 and S3.
fn named_by(name: &str) -> Vec<String> {
    let is_number = |word: &&str| {
        let number = word.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
        number.len() < word.len() && number.len() + 3 > word.len() && is_digits(number)
    };
    name.split('_').take_while(is_number).map(str::to_ascii_uppercase).collect()
}

/// The cases that a comment names.
fn cases(line: &str) -> Vec<String> {
    let words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_case = |word: &&str| {
        let number = word.strip_prefix("KS").or_else(|| word.strip_prefix('K'));
        number.is_some_and(is_digits)
    };
    words.filter(is_case).map(str::to_owned).collect()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

#[test]
fn the_index_finds_what_names_and_comments_name() {
    assert_eq!(named_by("s2_s3_bad_lines"), ["S2", "S3"]);
    assert_eq!(named_by("l11_ks17_after_a_sleep"), ["L11", "KS17"]);
    assert!(named_by("a_turn_of_r5").is_empty() && named_by("sha256_is_none").is_empty());
    assert_eq!(cases("/// K1, KS17: not KiB, K or RK2."), ["K1", "KS17"]);
    assert_eq!(rules("- **S1** One\n  **S2**\n- **R10** Two"), ["S1", "R10"]);
    assert_eq!(function("pub async fn one<T>(two: T) {"), Some("one"));
}
