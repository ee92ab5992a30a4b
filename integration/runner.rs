//! Plays every transcript below `transcripts/`, against the core and against the built program.
#![allow(clippy::panic)]

use crate::over_socket::over_socket;
use acp_tether::transcript::format::{Player, Transcript};
use acp_tether::transcript::live_player::{self, Bridge};
use acp_tether::transcript::player::Failure;
use acp_tether::transcript::virtual_player::{self, Harm, How};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fs, io, thread};

/// Programs that run at once in the live play.
const AT_ONCE: usize = 8;
/// Files that say the same of a socket, at the least.
const OVER_A_SOCKET: usize = 53;

#[test]
fn every_transcript_holds_in_virtual_time() {
    play_all(Player::Virtual, 2, virtual_player::play);
}

#[test]
fn every_transcript_holds_against_the_built_program() {
    let bridge = Bridge::connect(env!("CARGO_BIN_EXE_acp-tether"));
    play_all(Player::Live, AT_ONCE, |transcript| live_player::play(transcript, &bridge));
}

/// What a file says of the core and the editor holds whatever carries the messages.
#[test]
fn w1_every_transcript_that_does_not_speak_of_http_holds_over_a_socket() {
    let played = AtomicUsize::new(0);
    play_all(Player::Virtual, 2, |transcript| match over_socket(transcript) {
        Some(transcript) => {
            played.fetch_add(1, Ordering::Relaxed);
            virtual_player::play(&transcript)
        }
        None => Ok(()),
    });
    assert_are_enough(played.into_inner());
}

/// Whether so many files say the same of a socket.
pub fn assert_are_enough(played: usize) {
    let is_whole = std::env::var("TRANSCRIPT").is_err();
    assert!(!is_whole || played >= OVER_A_SOCKET, "only {played} files");
}

/// A program without HTTP/2 on the way: what is broken, reused or starved there is something else.
#[test]
fn every_transcript_holds_over_http_1_1() {
    let mut bridge = Bridge::connect(env!("CARGO_BIN_EXE_acp-tether"));
    bridge.arguments.splice(1..1, ["--http".to_owned(), "1.1".to_owned()]);
    play_all(Player::Live, AT_ONCE, |transcript| {
        let is_about_the_version = transcript.header.flags.iter().any(|flag| flag == "--http");
        if is_about_the_version { Ok(()) } else { live_player::play(transcript, &bridge) }
    });
}

/// One request to the remote fails, each in turn and in each way.
#[test]
fn i1_i18_every_transcript_survives_each_effect_failing_in_each_way() {
    let ways = [
        How::Refused(500),
        How::Refused(404),
        How::Refused(409),
        How::Refused(410),
        How::Unsent,
        How::Broken,
        How::Unanswered,
    ];
    play_all(Player::Virtual, 2, |transcript| torture(transcript, &ways));
}

/// The same over a socket: it is refused, dies, or says nothing.
#[test]
fn w2_every_transcript_survives_a_socket_failing_in_each_way() {
    let ways = [How::Refused(503), How::Unsent, How::Broken, How::Unanswered];
    play_all(Player::Virtual, 2, |transcript| match over_socket(transcript) {
        Some(transcript) => torture(&transcript, &ways),
        None => Ok(()),
    });
}

fn torture(transcript: &Transcript, ways: &[How]) -> Result<(), Failure> {
    // A file that moves a hundred megabytes once would move terabytes here.
    if transcript.steps.iter().any(|step| step.text.contains("\"times\":1250000")) {
        return Ok(());
    }
    let play = |harm: Option<Harm>| {
        virtual_player::torture(transcript, harm).map_err(|reason| Failure {
            line: 1,
            step: format!("{harm:?}"),
            reason,
            log: String::new(),
        })
    };
    for effect in 0..play(None)? {
        for how in ways {
            play(Some(Harm { effect, how: *how }))?;
        }
    }
    Ok(())
}

/// A program that answers each line with itself: what the live player does without a remote.
#[cfg(unix)]
#[test]
fn the_live_player_speaks_through_pipes() {
    let bridge = Bridge { program: "cat".into(), arguments: Vec::new() };
    let play = |steps: &str| {
        let header = r#"{"transcript":1,"name":"an echo","rules":["S1"]}"#;
        let transcript =
            Transcript::parse(&format!("{header}\n{steps}")).map_err(|refused| refused.to_string());
        live_player::play(&transcript?, &bridge).map_err(|failure| failure.to_string())
    };
    assert_eq!(
        play(
            "{\"editor\":{\"a\": 1}}\n{\"sees\":{\"a\": 1},\"bytes\":true}\n{\"editor_end\":true}\n{\"exit\":0}"
        ),
        Ok(())
    );
    let failures = [
        ("{\"editor\":1}\n{\"sees\":2}", "line 3: {\"sees\":2}"),
        ("{\"editor\":1}\n{\"quiet\":true}", "nothing was expected"),
        ("{\"editor_raw\":\"{\"}\n{\"quiet\":true}", "S5"),
        ("{\"editor_end\":true}\n{\"exit\":1}", "it ended with 0"),
        ("{\"editor_end\":true}\n{\"sees\":1}", "the program ended"),
    ];
    for (steps, reason) in failures {
        assert!(play(steps).is_err_and(|failure| failure.contains(reason)), "{steps}");
    }
}

/// Plays all files that `player` may play, `at_once` at a time; tells every failure. With
/// `TRANSCRIPT=part-of-a-path` in the environment only those.
fn play_all(
    player: Player,
    at_once: usize,
    play: impl Fn(&Transcript) -> Result<(), Failure> + Sync,
) {
    play_files(&transcripts(), player, at_once, play);
}

/// The files of the corpus, or those of them that `TRANSCRIPT` names.
pub fn transcripts() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("integration/transcripts");
    let wanted = std::env::var("TRANSCRIPT").unwrap_or_default();
    let mut files = transcripts_in(&root);
    files.retain(|file| file.to_string_lossy().contains(&wanted));
    assert!(!files.is_empty(), "no transcript matches {wanted:?}");
    files
}

/// All transcripts below a folder, in order.
pub fn transcripts_in(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(root, &mut files).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    files.sort();
    files
}

/// Plays these files; tells every failure.
pub fn play_files(
    files: &[PathBuf],
    player: Player,
    at_once: usize,
    play: impl Fn(&Transcript) -> Result<(), Failure> + Sync,
) {
    play_each(files, player, at_once, |_, transcript| play(transcript));
}

/// The same, where it matters which file it is.
pub fn play_each(
    files: &[PathBuf],
    player: Player,
    at_once: usize,
    play: impl Fn(&Path, &Transcript) -> Result<(), Failure> + Sync,
) {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = play_file(file, player, &play) {
                        let place = file.iter().rev().take(2).collect::<Vec<_>>();
                        let name = place.into_iter().rev().collect::<PathBuf>();
                        failures
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(format!("{} ({player:?}), {failure}", name.display()));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    assert!(
        failures.is_empty(),
        "{} of {} fail\n\n{}",
        failures.len(),
        files.len(),
        failures.join("\n")
    );
}

fn play_file(
    file: &Path,
    player: Player,
    play: impl Fn(&Path, &Transcript) -> Result<(), Failure>,
) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let transcript = Transcript::parse(&text).map_err(|refused| refused.to_string())?;
    if !transcript.header.players.contains(&player) {
        return Ok(());
    }
    play(file, &transcript).map_err(|failure| failure.to_string())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ndjson") {
            files.push(path);
        }
    }
    Ok(())
}
