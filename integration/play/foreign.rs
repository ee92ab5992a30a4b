//! `transcript play` around a bridge that is not ours: `integration/peers/typescript/bridge.mjs`, on
//! the official TypeScript SDK's HTTP client.

use super::command::play;
use super::{below, place};
use crate::peers::typescript;
use acp_tether::transcript::format::Transcript;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What became of the files of one group of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, word: &str) {
        match word {
            "ok" => self.passed += 1,
            "FAILED" => self.failed += 1,
            "skipped" => self.skipped += 1,
            _ => {}
        }
    }
}

/// The bridge as a command; `None` where Node or the SDK is missing, and that is no failure.
fn bridge() -> Option<String> {
    let place = typescript::installed()?;
    Some(format!("node '{}'", place.join("bridge.mjs").display()))
}

/// The files that are known to hold, below the folder of transcripts.
fn holds() -> Vec<PathBuf> {
    let list = std::fs::read_to_string(place("integration/peers/typescript/holds.txt")).unwrap();
    list.lines().map(|path| place("integration/transcripts").join(path)).collect()
}

/// The counts by group, from what the command printed.
fn counts(output: &str) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for line in output.lines() {
        let Some((word, path)) = line.split_once(' ') else { continue };
        let folder = path.split("/transcripts/").nth(1).and_then(|path| path.split('/').next());
        let Some(folder) = folder else { continue };
        counts.entry(folder.to_owned()).or_default().add(word);
    }
    counts
}

#[test]
fn a_bridge_on_the_official_client_plays_what_it_is_known_to_hold() {
    let Some(bridge) = bridge() else { return };
    let files = holds();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (code, output, errors) = play(&["--bridge", &bridge], &files);
    assert_eq!((code, &*errors), (0, ""), "{output}");
    let passed = counts(&output).values().map(|count| count.passed).sum::<usize>();
    assert_eq!(passed, files.len(), "{output}");
}

/// It has no recovery and none of our flags, API and log.
#[test]
fn what_a_bridge_on_the_official_client_does_otherwise_is_told_as_differences() {
    let Some(bridge) = bridge() else { return };
    let folders = ["c", "v", "x"].map(|group| place("integration/transcripts").join(group));
    let flags = ["--bridge", &bridge, "--slack", "1s", "--jobs", "8"];
    let (code, output, _) = play(&flags, &folders.each_ref().map(PathBuf::as_path));
    assert_eq!(code, 1, "{output}");
    let counts = counts(&output);
    for folder in &folders {
        let group = folder.file_name().unwrap().to_str().unwrap();
        let Count { passed, failed, skipped } = counts[group];
        assert_eq!(passed + failed + skipped, below(folder, "ndjson").len(), "{group}: {output}");
        assert!(skipped > 0, "{group}: {output}");
        assert_eq!(failed == 0, group == "x", "{group}: {output}");
    }
    // The client's connection ends where the remote has forgotten it: the bridge says so, and goes.
    let lost = output.split("\nFAILED ").find(|part| {
        part.contains("/v/a-lost-connection-is-replaced-its-session-resumed-and-the-refused")
    });
    let lost = lost.unwrap_or_else(|| panic!("{output}"));
    for shown in ["\n    >", "no such request came", "the end of the bridge's log:", "410"] {
        assert!(lost.contains(shown), "{shown:?} is missing: {lost}");
    }
}

/// The figures of docs/TRANSCRIPTS.md.
#[test]
#[ignore = "plays the whole corpus; run it to write the figures anew"]
fn figures_of_a_bridge_on_the_official_client() {
    let Some(bridge) = bridge() else { return };
    let flags = ["--bridge", &bridge, "--slack", "2s", "--jobs", "8"];
    let (_, output, _) = play(&flags, &[&place("integration/transcripts")]);
    let rules = rules(&output);
    println!(
        "| group | hold | do not | skipped | by rule: hold of those played |\n|---|---|---|---|---|"
    );
    for (group, Count { passed, failed, skipped }) in counts(&output) {
        let group = group.to_uppercase();
        let of_group = rules.iter().filter(|((letters, _), _)| *letters == group);
        let by_rule: Vec<_> = of_group
            .filter(|(_, count)| count.passed + count.failed > 0)
            .map(|((letters, number), Count { passed, failed, .. })| {
                format!("{letters}{number} {passed}/{}", passed + failed)
            })
            .collect();
        println!("| {group} | {passed} | {failed} | {skipped} | {} |", by_rule.join(", "));
    }
    for line in output.lines().filter(|line| line.starts_with("ok ")) {
        println!("{line}");
    }
}

/// The counts by rule, as its letters and its number.
fn rules(output: &str) -> BTreeMap<(String, u8), Count> {
    let mut rules: BTreeMap<(String, u8), Count> = BTreeMap::new();
    for line in output.lines() {
        let Some((word @ ("ok" | "FAILED" | "skipped"), path)) = line.split_once(' ') else {
            continue;
        };
        let (path, _) = path.trim().split_once(".ndjson").unwrap();
        let text = std::fs::read_to_string(format!("{path}.ndjson")).unwrap();
        for rule in Transcript::parse(&text).unwrap().header.rules {
            let digits = rule.find(|letter: char| letter.is_ascii_digit()).unwrap();
            let rule = (rule[..digits].to_owned(), rule[digits..].parse().unwrap());
            rules.entry(rule).or_default().add(word);
        }
    }
    rules
}
