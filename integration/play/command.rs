//! What `acp-tether transcript play` prints, and its exit codes.

use super::{HEADER, place};
use crate::program::program;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIST: &str = r#"{"editor":{"jsonrpc":"2.0","id":7,"method":"session/list"}}"#;
const ANSWER: &str =
    r#"{"stream":null,"event":{"jsonrpc":"2.0","id":7,"result":{"sessions":[],"next":1}}}"#;

/// A directory with files.
struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &[&str])]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, lines) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, lines.join("\n")).unwrap();
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The header of a file that begins with a connection.
fn initialized() -> String {
    HEADER.replace('}', r#","start":"initialized"}"#)
}

/// The exit code, standard output and standard error.
pub fn play(arguments: &[&str], files: &[&Path]) -> (i32, String, String) {
    let mut command = program();
    command.args(["transcript", "play"]).args(arguments).args(files);
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

#[test]
fn a_file_that_holds_is_ok_with_each_player() {
    let header = initialized();
    let post = r#"{"gets":{"method":"POST","body_like":{"id":7}}}"#;
    let sees = r#"{"sees_like":{"id":7,"result":{"sessions":[]}}}"#;
    let files = Files::new(&[("good.ndjson", &[&header, LIST, post, ANSWER, sees])]);
    let path = files.path("good.ndjson");
    let bridge =
        format!("'{}' connect {{api}} {{flags}} {{url}}", env!("CARGO_BIN_EXE_acp-tether"));
    for arguments in [&[][..], &["--core"], &["--bridge", &bridge]] {
        let (code, output, errors) = play(arguments, &[&path]);
        assert_eq!((code, &*errors), (0, ""), "{arguments:?}: {output}");
        let lines: Vec<_> = output.lines().collect();
        assert!(lines[0].starts_with(&format!("ok       {} (", path.display())), "{output}");
        assert!(lines[1].starts_with("1 passed, 0 failed, 0 skipped ("), "{output}");
    }
}

#[test]
fn the_first_difference_is_told_by_key_with_what_came_before_and_the_log() {
    let header = initialized();
    let refused =
        r#"{"gets":{"method":"POST","body_like":{"id":7}},"answer":{"status":413,"text":"no"}}"#;
    let sees = r#"{"sees_like":{"id":8,"error":{"code":-32603,"data":{"status":400}}}}"#;
    let files = Files::new(&[("bad.ndjson", &[&header, "// why", LIST, refused, sees])]);
    for arguments in [&[][..], &["--core"]] {
        let (code, output, _) = play(arguments, &[&files.path("bad.ndjson")]);
        assert_eq!(code, 1, "{output}");
        for shown in [
            "FAILED   ".to_owned(),
            "    \u{20}    2  // why\n".to_owned(),
            format!("    \u{20}    3  {LIST}\n"),
            format!("    \u{20}    4  {refused}\n"),
            format!("    >    5  {sees}\n"),
            r#"    expected: {"id":8,"error":"#.to_owned(),
            r#"    got:      {"jsonrpc":"2.0","id":7,"error":"#.to_owned(),
            "    /id is 7, not 8\n".to_owned(),
            "    /error/data/status is 413, not 400\n".to_owned(),
            "0 passed, 1 failed, 0 skipped".to_owned(),
        ] {
            assert!(output.contains(&shown), "{shown:?} is missing: {output}");
        }
        assert!(!output.contains(&header), "the context is longer than it should be: {output}");
    }
    let (_, output, _) = play(&["--core"], &[&files.path("bad.ndjson")]);
    assert!(output.contains("    the end of the bridge's log:\n"), "{output}");
}

#[test]
fn what_is_wrong_with_a_request_is_told_all_at_once() {
    let header = initialized();
    let gets = r#"{"gets":{"method":"POST","headers":{"acp-connection-id":"c9","x-a":"1"},"body_like":{"id":8}}}"#;
    let files = Files::new(&[("bad.ndjson", &[&header, LIST, gets])]);
    let (code, output, _) = play(&["--core"], &[&files.path("bad.ndjson")]);
    assert_eq!(code, 1, "{output}");
    for shown in [
        r#"the header acp-connection-id is "c1", not "c9""#,
        r#"the header x-a is absent, not "1""#,
        "/id is 7, not 8",
    ] {
        assert!(output.contains(shown), "{shown:?} is missing: {output}");
    }
}

#[test]
fn a_wrong_file_is_refused_with_line_and_reason_and_the_others_are_played() {
    let files = Files::new(&[
        ("a.ndjson", &[HEADER, r#"{"quiet":false}"#]),
        ("b.ndjson", &[HEADER, LIST]),
        ("c.ndjson", &[HEADER, r#"{"quiet":true}"#]),
    ]);
    let (code, output, errors) = play(&["--core"], &[files.0.path()]);
    assert_eq!((code, &*errors), (1, ""), "{output}");
    assert!(output.contains("a.ndjson: it is no transcript\n"), "{output}");
    assert!(
        output.contains("    >    2  {\"quiet\":false}\n    line 2: only true has a meaning"),
        "{output}"
    );
    assert!(output.contains("line 2: the file checks nothing"), "{output}");
    assert!(output.contains("1 passed, 2 failed, 0 skipped"), "{output}");
}

#[test]
fn a_directory_is_played_in_the_order_of_its_names_with_all_below_it() {
    let quiet: &[&str] = &[HEADER, r#"{"quiet":true}"#];
    let files = Files::new(&[
        ("b/2.ndjson", quiet),
        ("a.ndjson", quiet),
        ("b/c/1.ndjson", quiet),
        ("b/notes.txt", &["no transcript"]),
    ]);
    let (code, output, _) = play(&["--jobs", "3"], &[files.0.path()]);
    assert_eq!(code, 0, "{output}");
    let names: Vec<_> = output.lines().filter_map(|line| line.strip_prefix("ok       ")).collect();
    for (name, end) in names.iter().zip(["a.ndjson", "b/2.ndjson", "b/c/1.ndjson"]) {
        assert!(name.split(" (").next().unwrap().ends_with(end), "{output}");
    }
    assert_eq!(names.len(), 3);
}

#[test]
fn what_cannot_be_asked_is_skipped_and_where_all_is_nothing_passed() {
    let live = HEADER.replace('}', r#","players":["live"]}"#);
    let virtual_only = HEADER.replace('}', r#","players":["virtual"]}"#);
    let flags = HEADER.replace('}', r#","flags":["--hold","1s"]}"#);
    let files = Files::new(&[
        ("virtual.ndjson", &[&virtual_only, r#"{"quiet":true}"#]),
        ("api.ndjson", &[HEADER, r#"{"api":"status","expect":{"sessions":[]}}"#]),
        ("flags.ndjson", &[&flags, r#"{"quiet":true}"#]),
        ("log.ndjson", &[HEADER, r#"{"log_lacks":"a"}"#, r#"{"quiet":true}"#]),
        ("signal.ndjson", &[&live, r#"{"signal":"TERM"}"#, r#"{"exit":0}"#]),
    ]);
    let (code, output, errors) = play(&["--bridge", "true"], &[files.0.path()]);
    assert_eq!(code, 1);
    assert_eq!(errors, "acp-tether: nothing was played: every file was skipped\n");
    for reason in [
        "virtual.ndjson: it plays in virtual time only",
        "api.ndjson: it asks the API of acp-tether",
        "flags.ndjson: it needs flags of acp-tether",
        "log.ndjson: it reads the log of acp-tether",
        "signal.ndjson: it sends signals",
        "0 passed, 0 failed, 5 skipped",
    ] {
        assert!(output.contains(reason), "{reason:?} is missing: {output}");
    }
    let (code, output, _) = play(&["--core"], &[files.0.path()]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("signal.ndjson: only a program can be asked"), "{output}");
    assert!(output.contains("4 passed, 0 failed, 1 skipped"), "{output}");
}

#[test]
fn a_file_that_is_no_text_is_refused_alone_and_a_recording_that_ends_inside_a_character_is_played()
{
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let steps = "{\"editor_raw\":\"{\"}\n{\"sees_like\":{\"error\":{\"code\":-32700}}}\n{\"editor\":\"\u{fc}";
    let header = HEADER.replace(r#""rules":["S1"]"#, r#""rules":[],"recorded":true"#);
    let whole = [header.as_str(), steps].join("\n");
    std::fs::write(path("cut.ndjson"), &whole.as_bytes()[..whole.len() - 1]).unwrap();
    let written = [HEADER, steps].join("\n");
    std::fs::write(path("written.ndjson"), &written.as_bytes()[..written.len() - 1]).unwrap();
    let (code, output, _) = play(&["--core"], &[directory.path()]);
    assert_eq!(code, 1, "{output}");
    assert!(
        output.contains("1 passed, 1 failed") && output.contains("line 4: the line is not UTF-8"),
        "{output}"
    );
}

#[test]
fn s9_wrong_usage_and_what_cannot_be_read_exit_with_2() {
    let empty = tempfile::tempdir().unwrap();
    let missing = empty.path().join("missing.ndjson");
    let good = place("integration/transcripts/x");
    for (arguments, files, shown) in [
        (&[][..], &[][..], "required arguments"),
        (&[], &[missing.as_path()], "missing.ndjson cannot be read"),
        (&[], &[empty.path()], "there is no .ndjson file below"),
        (&["--bridge", ""], &[good.as_path()], "no program is named"),
        (&["--bridge", "no-such-bridge a"], &[good.as_path()], "no program \"no-such-bridge\""),
        (&["--bridge", "node 'a"], &[good.as_path()], "cannot be run"),
        (&["--bridge", "a", "--core"], &[good.as_path()], "cannot be used with"),
        (&["--jobs", "0"], &[good.as_path()], "invalid value"),
    ] {
        let (code, output, errors) = play(arguments, files);
        assert_eq!((code, &*output), (2, ""), "{arguments:?}");
        assert!(errors.contains(shown), "{arguments:?}: {errors}");
    }
}

/// The bridge's own end is noticed, and nobody waits for it.
#[cfg(unix)]
#[test]
fn a_bridge_that_ends_fails_at_once() {
    let header = initialized();
    let files = Files::new(&[("a.ndjson", &[&header, r#"{"quiet":true}"#])]);
    for (bridge, shown) in
        [("true", "in the prelude"), ("sh -c 'echo a word of its own >&2'", "a word of its own")]
    {
        let start = Instant::now();
        let (code, output, _) = play(&["--bridge", bridge], &[&files.path("a.ndjson")]);
        assert_eq!(code, 1, "{bridge}: {output}");
        assert!(output.contains(shown), "{bridge}: {output}");
        assert!(start.elapsed() < Duration::from_secs(8), "{bridge} took its time");
    }
}

/// What goes wrong behind the last step counts, too.
#[cfg(unix)]
#[test]
fn a_bridge_that_ends_unasked_or_leaves_half_a_line_fails() {
    let files = Files::new(&[("a.ndjson", &[HEADER, r#"{"sees":1}"#])]);
    for (script, expected, shown) in [
        ("echo 1; cat >/dev/null", 0, "1 passed"),
        ("echo 1; exit 5", 1, "the program has ended: exit status: 5"),
        ("echo 1; kill -SEGV $$", 1, "signal: 11"),
        ("echo 1; cat >/dev/null; exit 5", 1, "did not end well"),
        ("echo 1; cat >/dev/null; printf half", 1, "S5: the output ended inside a line"),
        ("echo 1; printf half; sleep 60", 1, "S5: the output ended inside a line"),
        ("echo 1; cat >/dev/null; echo {", 1, "S5: a message is no JSON"),
    ] {
        let (code, output, _) =
            play(&["--bridge", &format!("sh -c '{script}'")], &[&files.path("a.ndjson")]);
        assert!(code == expected && output.contains(shown), "{script}: {code}: {output}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_bridge_has_started_ends_with_the_play() {
    let files = Files::new(&[("a.ndjson", &[HEADER, r#"{"sees_like":{"child":"*"}}"#])]);
    let record = files.path("child");
    let script = format!(
        "sleep 600 & echo $! > \"{}\"; echo \"{{\\\"child\\\":$!}}\"; wait",
        record.display()
    );
    let (code, output, _) =
        play(&["--bridge", &format!("sh -c '{script}'")], &[&files.path("a.ndjson")]);
    assert_eq!(code, 0, "{output}");
    let child = std::fs::read_to_string(record).unwrap();
    let ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
        // Gone, or dead and not yet taken note of by its new parent.
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    let end = Instant::now() + Duration::from_secs(8);
    while !ended() {
        assert!(Instant::now() < end, "the child {child} still runs");
        std::thread::yield_now();
    }
}

/// Neither a file nor a bridge can bring the player down.
#[cfg(unix)]
#[test]
fn a_line_that_is_nested_very_deep_is_a_difference_and_no_crash() {
    let files = Files::new(&[("a.ndjson", &[HEADER, r#"{"sees":1}"#])]);
    let script = "sh -c 'head -c 5000 /dev/zero | tr \"\\0\" \"[\"; head -c 5000 /dev/zero | tr \"\\0\" \"]\"; echo'";
    let (code, output, _) = play(&["--bridge", script], &[&files.path("a.ndjson")]);
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("what came is nested deeper than 128 levels"), "{output}");
}

/// The words of the command reach the program as a shell would cut them, and the URL is the last.
#[cfg(unix)]
#[test]
fn the_command_is_cut_as_a_shell_does_it_and_the_url_is_put_in() {
    let header = HEADER.replace('}', r#","path":"/here?a=1"}"#);
    let sees = |words: &str| format!(r#"{{"sees_like":{{"words":{words}}}}}"#);
    // Says the count of its words, and the last two.
    let tell = r#"sh -c 'case $2 in http://127.0.0.1:*) url=url;; esac; case $1 in http://127.0.0.1:*) one=url;; *) one=$1;; esac; printf "{\"words\":[%s,\"%s\",\"%s\"]}\n" $# "$one" "${url:-$2}"' name"#;
    for (rest, words) in [
        (r#" "a b""#, r#"[2,"a b","url"]"#),
        (r" a\ b", r#"[2,"a b","url"]"#),
        (" {url} '$HOME'", r#"[2,"url","$HOME"]"#),
    ] {
        let files = Files::new(&[("a.ndjson", &[&header, &sees(words), r#"{"exit":0}"#])]);
        let bridge = format!("{tell}{rest}");
        let (code, output, _) = play(&["--bridge", &bridge], &[&files.path("a.ndjson")]);
        assert_eq!(code, 0, "{rest}: {output}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_bridge_that_held_more_memory_than_its_file_allows_fails() {
    let header = HEADER.replace('}', r#","players":["live"],"start":"initialized"}"#);
    for (size, expected) in [("1GiB", 0), ("100KiB", 1)] {
        let step = format!(r#"{{"memory_under":"{size}"}}"#);
        let files = Files::new(&[("a.ndjson", &[&header, &step])]);
        let (code, output, _) = play(&[], &[&files.path("a.ndjson")]);
        assert_eq!(code, expected, "{output}");
        assert_eq!(output.contains("    it held "), expected == 1, "{output}");
    }
}

/// What a bridge or a file has in it reaches no terminal as a command.
#[test]
fn x1_what_others_wrote_is_shown_without_control_characters() {
    let header = initialized();
    let step = "{\"sees\":\"\u{9b}31m\",\"within\":\"1ms\"}";
    let files = Files::new(&[("a.ndjson", &[&header, step])]);
    let (code, output, _) = play(&["--core"], &[&files.path("a.ndjson")]);
    assert_eq!(code, 1);
    assert!(!output.contains('\u{9b}') && output.contains("\u{fffd}31m"), "{output:?}");
}
