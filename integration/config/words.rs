//! What is told of words that cannot be used: what to write, and nothing that may be a secret or that
//! commands a terminal.

use super::{File, run};
use tempfile::TempDir;

const ESCAPE: &str = "\u{1b}[31mred\u{9b}0m";

fn is_plain(text: &str) -> bool {
    !text.contains(['\u{1b}', '\u{9b}'])
}

#[test]
fn x1_a_word_that_lost_its_quotes_is_not_shown() {
    let url = "https://host";
    for (words, tip) in [
        (
            &["connect", url, "--header", "Authorization:", "Bearer", "s3cret"][..],
            "put a value that",
        ),
        (&["connect", "--header", "Authorization:", "Bearer", "s3cret", url], "put a value that"),
        (&["doctor", url, "s3cret"], "put a value that"),
        (&["connect", url, "--s3cret"], "unexpected argument '…'"),
        (&["connect", url, "--header-s3cret"], "unexpected argument '…'"),
        (&["https://anna:s3cret@host"], "a command comes first: acp-tether connect URL"),
    ] {
        let (code, output, errors) = run(words, &[]);
        assert_eq!((code, &*output), (Some(2), ""), "{words:?}");
        assert!(errors.contains(tip) && errors.contains("Usage: "), "{words:?}: {errors}");
        assert!(!errors.contains("s3cret") && !errors.contains("Bearer"), "{words:?}: {errors}");
    }
    // Where the URL is missing, the word stands in its place.
    for words in [
        &["connect", "--header", "X-Api-Key:", "s3cret"][..],
        &["connect", "--bearer-command", "echo", "s3cret"],
        &["connect", "eyJ0.eyJz.s3cret"],
        &["doctor", "S3CRET-s3cret"],
        &["config", "show", "sk-ant-api03-s3cret-s3cret-s3cret"],
    ] {
        let (code, output, errors) = run(words, &[]);
        let told = format!("{output}{errors}");
        assert!(code != Some(0) && told.contains("what follows `"), "{words:?}: {told}");
        assert!(!told.to_lowercase().contains("s3cret"), "{words:?}: {told}");
    }
    // A slip in a flag or a command is found by its name.
    for (words, shown) in [
        (&["connect", url, "--heder", "X-A: s3cret"][..], "'--heder'"),
        (&["connect", url, "--heder=s3cret"], "'--heder'"),
        (&["config", "show", url, "-s3cret"], "'-s'"),
        (&["conect", url], "'conect'"),
        (&["connect", url, "--hold", "soon"], "'soon'"),
    ] {
        let (code, _, errors) = run(words, &[]);
        assert_eq!(code, Some(2), "{words:?}");
        assert!(errors.contains(shown) && !errors.contains("s3cret"), "{words:?}: {errors}");
    }
}

#[test]
fn a_slip_is_told_by_its_name_and_with_what_was_meant() {
    let url = "https://host";
    for (words, shown) in [
        (
            &["connect", "--http2", url][..],
            "'--http2' found\n\n  tip: a similar argument exists: '--http'",
        ),
        (
            &["connect", "--Hold", "1m", url],
            "'--Hold' found\n\n  tip: a similar argument exists: '--hold'",
        ),
        (&["doctor", "--connect_timeout", "1s", url], "exists: '--connect-timeout'"),
        (&["close", "a", "b"], "'b' found"),
        (&["sessions", "x"], "'x' found"),
    ] {
        let (code, _, errors) = run(words, &[]);
        assert_eq!(code, Some(2), "{words:?}");
        assert!(errors.contains(shown) && !errors.contains("quotes"), "{words:?}: {errors}");
    }
}

#[test]
fn nothing_that_was_typed_or_stands_in_a_file_commands_a_terminal() {
    let named = File::new(
        &format!("[remotes.\"a{ESCAPE}\"]\nurl = 'http://h'").replace('\u{1b}', "\\u001b"),
    );
    let odd = File::new(
        "[remotes.\"a\u{202e}b\"]\nurl = 'http://h'\n[remotes.c]\nurl = 'http://h'\n\"x\\u001b[31m\" = 1",
    );
    let escaped_path = format!("/no/{ESCAPE}");
    let escaped_key = format!("{ESCAPE}: s3cret-token");
    for words in [
        &["connect", "work", "--config", named.path()][..],
        &["connect", "work", "--config", odd.path()],
        &["connect", "c", "--config", odd.path()],
        &["connect", "work", "--config", ESCAPE],
        &["connect", ESCAPE],
        &["connect", "http://h", "--api", ESCAPE],
        &["connect", "http://h", "--header", &escaped_key],
        &["connect", "http://h", "--log-file", &escaped_path],
        &["connect", "http://h", "--hold", ESCAPE],
        &["connect", "http://h", ESCAPE],
        &["connect", "http://h", &format!("--{ESCAPE}")],
        &[ESCAPE],
        &["config", "check", "--config", named.path()],
        &["config", "check", "--config", odd.path()],
        &["config", "show", "c", "--config", odd.path()],
        &["config", ESCAPE],
        &["man", ESCAPE],
        &["completions", ESCAPE],
        &["close", ESCAPE],
        &["close", "a", ESCAPE],
        &["connect", "http://h", &format!("-{ESCAPE}")],
        &["connect", "http://h", &format!("--hold{ESCAPE}")],
        &["transcript", "play", ESCAPE],
        &["transcript", "play", "\u{202e}x"],
        &["transcript", "play", "--core", "--bridge", ESCAPE, "x"],
        &["transcript", "play", "--bridge", ESCAPE, "Cargo.toml"],
    ] {
        let (code, _, errors) = run(words, &[]);
        assert!(code != Some(0) && !errors.is_empty(), "{words:?}: {code:?} {errors}");
        assert!(is_plain(&errors) && !errors.contains('\u{202e}'), "{words:?}: {errors:?}");
    }
}

#[test]
fn a_host_without_a_scheme_is_told_to_be_written_as_a_url_by_every_command() {
    let file = File::new("[remotes.work]\nurl = 'https://host'");
    for command in [&["connect"][..], &["doctor"], &["config", "show"]] {
        let all = |word| [command, &[word, "--config", file.path()]].concat();
        let (_, output, errors) = run(&all("devbox.example:8080"), &[]);
        let told = format!("{output}{errors}");
        assert!(told.contains("write https://devbox.example:8080 if "), "{command:?}: {told}");
        let (_, output, errors) = run(&all("anna:s3cret@host"), &[]);
        let told = format!("{output}{errors}");
        let named = format!("what follows `{}` is meant to be a URL", command.join(" "));
        assert!(told.contains(&named) && !told.contains("s3cret"), "{command:?}: {told}");
    }
}

#[test]
fn a_host_that_is_not_checked_is_as_loud_from_a_file_as_from_a_flag() {
    let file = File::new("[remotes.a]\nurl = 'https://127.0.0.1:9'\ninsecure = 'localhost'");
    let other = File::new("[remotes.a]\nurl = 'https://host'\ninsecure = 'localhost'");
    const WARNING: &str = "--insecure: whoever answers as localhost is taken for the agent";
    let by_file = ["a", "--config", file.path()];
    let by_flag = ["https://127.0.0.1:9", "--insecure", "--api=off"];
    for words in [&by_file[..], &by_flag] {
        for command in [&["connect", "--connect-timeout=1ms"][..], &["config", "show"]] {
            let (code, _, errors) = run(&[command, words].concat(), &[]);
            assert!(code == Some(0) && errors.contains(WARNING), "{command:?} {words:?}: {errors}");
        }
    }
    let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
    let place = format!("warning: {}:3: {WARNING}", file.path());
    assert!(code == Some(0) && errors.contains(&place), "{errors}");
    // Hosts that are not the URL's are refused.
    let by_file = ["a", "--config", other.path()];
    for (command, expected) in [(&["connect"][..], 78), (&["config", "show"], 1), (&["doctor"], 1)]
    {
        let (code, output, errors) = run(&[command, &by_file].concat(), &[]);
        let told = format!("{output}{errors}");
        assert_eq!(code, Some(expected), "{told}");
        assert!(
            told.contains("--insecure is for localhost, and the URL's host is another"),
            "{told}"
        );
    }
    let (code, _, errors) = run(&["config", "check", "--config", other.path()], &[]);
    assert!(code == Some(1) && errors.contains("--insecure is for localhost"), "{errors}");
}

#[test]
fn s9_a_header_that_is_said_twice_is_refused_with_both_names() {
    let same = "X-A and --header x-a are the same header: leave one of them out";
    let words = ["connect", "http://h", "--header", "X-A: s3cret", "--header", "x-a: s3cret"];
    let (code, output, errors) = run(&words, &[]);
    assert_eq!(code, Some(78));
    for told in [output, errors] {
        assert!(told.contains(same) && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn sessions_with_none_says_so_beside_standard_output() {
    let empty = TempDir::new().unwrap();
    let variable = [("ACP_TETHER_RUNTIME_DIR", empty.path().to_str().unwrap())];
    let (code, output, errors) = run(&["sessions"], &variable);
    assert_eq!((code, &*output), (Some(0), ""));
    assert_eq!(errors, "acp-tether: there are no sessions\n");
    let (code, output, errors) = run(&["sessions", "--json"], &variable);
    assert_eq!((code, &*output, &*errors), (Some(0), "{\"instances\":[]}\n", ""));
}
