//! What a flag that names a file may name.

use super::run;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const URL: &str = "http://127.0.0.1:9";

#[cfg(unix)]
fn fifo(directory: &TempDir) -> String {
    let path = directory.path().join("fifo").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&path).status().is_ok_and(|status| status.success()));
    path
}

#[cfg(unix)]
#[test]
fn s9_what_is_not_a_file_is_told_at_once() {
    let directory = TempDir::new().unwrap();
    let fifo = fifo(&directory);
    // Whoever waits for one of them waits for ever.
    let timely = |words: &[&str]| {
        let begun = Instant::now();
        let told = run(words, &[]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{words:?}: {:?}", begun.elapsed());
        told
    };
    for (flag, paths) in [
        ("--log-file", &[fifo.as_str(), "/"][..]),
        ("--ca-file", &[&fifo, "/", "/dev/null"]),
        ("--client-cert", &[&fifo, "/", "/dev/null"]),
        // A pipe of this name may be how a token is handed over.
        ("--bearer-file", &["/", "/dev/null"]),
    ] {
        for path in paths {
            let (code, output, errors) = timely(&["connect", "--api=off", flag, path, URL]);
            assert_eq!(code, Some(78), "{flag} {path}: {output} {errors}");
            for told in [output, errors] {
                let is_told = told.contains(flag) && told.contains("it is not a file");
                assert!(is_told, "{flag} {path}: {told}");
            }
        }
    }
    let (certificate, key) = ("--client-cert", "--client-key");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/LICENSE");
    let (code, output, _) = timely(&["connect", certificate, file, key, &fifo, URL]);
    assert!(code == Some(78) && !output.contains(&fifo), "the certificate comes first: {output}");
}

/// What bash says to a command in which a path is a pipe.
#[cfg(unix)]
fn bash(command: &str, directory: &Path) -> Option<Output> {
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", command]).env("PROGRAM", crate::program::PROGRAM);
    bash.current_dir(directory);
    crate::program::apart(&mut bash);
    // Not on every machine.
    bash.output().ok()
}

#[cfg(unix)]
#[test]
fn a_pipe_that_was_opened_for_it_stands_for_a_file() {
    let directory = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(directory.path().join("ca.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    for flags in [
        "--ca-file <(cat ca.pem)",
        "--client-cert <(cat ca.pem key.pem)",
        "--client-cert ca.pem --client-key <(cat key.pem)",
        "--bearer-file <(echo token)",
    ] {
        let command = format!("\"$PROGRAM\" config show {flags} https://localhost");
        let Some(output) = bash(&command, directory.path()) else { return };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{flags}: {errors}");
    }
    std::fs::write(directory.path().join("c.toml"), "[remotes.work]\nurl = 'https://h'").unwrap();
    for words in ["config check", "config show work", "connect --api off work"] {
        let command = format!("\"$PROGRAM\" {words} --config <(cat c.toml) < /dev/null");
        let Some(output) = bash(&command, directory.path()) else { return };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{words}: {errors}");
    }
    let logged = "\"$PROGRAM\" connect --api off --log-level debug --log-file >(cat > log) http://127.0.0.1:9 < /dev/null";
    let Some(output) = bash(logged, directory.path()) else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}
