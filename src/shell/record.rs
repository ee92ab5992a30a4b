//! Writes a recording to its file (`--record`): whole steps, each before what follows from it is done.
//!
//! Each step of the core is one plain write to the system, and not a message to a thread: what a
//! queue holds is lost when the process is killed, which is when a recording is wanted most. Such a
//! write goes to memory of the system: a step takes about ten microseconds, one of 8 MB a tenth of a
//! second.

use super::instances::create_private;
use crate::cli::Connect;
use crate::config::keys::{BEARER_ENV, HEADER, Setting};
use crate::core::socket::Transport;
use crate::core::{Effect, Event, Millis, Settings};
use crate::transcript::format::FLAGS;
use crate::transcript::recording::Recording;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::time::SystemTime;

/// The last line of a recording that reached its limit.
const FULL: &str = "// --record-limit is reached; what follows is not recorded\n";

/// A recording and the file that it goes to.
#[derive(Debug)]
pub struct Recorder {
    recording: Recording,
    file: File,
    /// Bytes in the file, and how many it may have.
    length: u64,
    limit: u64,
    is_over: bool,
}

impl Recorder {
    /// Creates the file, which nobody else can read, and writes its header, which tells what was `said` of the
    /// flags. A directory stands for a new file in it: an editor starts the same command many times.
    ///
    /// # Errors
    /// It cannot be written to, or it is there already: another recording is never overwritten.
    pub fn create(
        path: &Path,
        flags: &Connect,
        said: &[Setting],
        settings: &Settings,
    ) -> io::Result<Self> {
        let time = humantime::format_rfc3339_seconds(SystemTime::now());
        let path = match path.is_dir() {
            // A colon is no part of a name everywhere.
            true => {
                let time = time.to_string().replace(':', "");
                Cow::from(path.join(format!("{time}-{}.ndjson", process::id())))
            }
            false => Cow::from(path),
        };
        let mut file = create_private(&path)?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let version = env!("CARGO_PKG_VERSION");
        let name = format!("{stem}, recorded by acp-tether {version} at {time}");
        let mut shown: Vec<_> = said.iter().filter_map(shown).collect();
        if settings.transport == Transport::WebSocket && flags.transport.is_none() {
            // The URL says it, which is not recorded.
            shown.push("--transport=ws".to_owned());
        }
        let header = Recording::header(&name, &shown, settings.seed);
        file.write_all(header.as_bytes()).inspect_err(|_| {
            // It would keep the next start from creating it.
            let _ = std::fs::remove_file(&path);
        })?;
        Ok(Self {
            recording: Recording::new(flags.record_content, settings),
            file,
            length: bytes(&header),
            limit: u64::try_from(flags.record_limit).unwrap_or(u64::MAX),
            is_over: false,
        })
    }

    /// The core is about to be told this.
    pub(super) fn told(&mut self, now: Millis, event: &Event) {
        if !self.is_over {
            self.recording.told(now, event);
        }
    }

    /// The core did this with it. A file that cannot be written to any more ends the recording and
    /// nothing else.
    pub(super) fn did(&mut self, now: Millis, effects: &[Effect], deadline: Option<Millis>) {
        if self.is_over {
            return;
        }
        self.recording.did(now, effects, deadline);
        let mut text = self.recording.take();
        if self.length + bytes(&text) + bytes(FULL) > self.limit {
            self.is_over = true;
            text = FULL.to_owned();
            tracing::warn!("--record-limit is reached: what follows is not recorded");
        }
        match self.file.write_all(text.as_bytes()) {
            Ok(()) => self.length += bytes(&text),
            Err(error) => {
                self.is_over = true;
                tracing::warn!("the recording cannot be written and ends here: {error}");
                // What was written of the last step is no line; where it stays, a player leaves it out.
                let _ = self.file.set_len(self.length);
            }
        }
    }
}

/// What a recording shows of a flag: those that a file may set, and that decide what happens. Of a header, the
/// name.
fn shown(said: &Setting) -> Option<String> {
    let (flag, value) = (format!("--{}", said.key), said.value.to_str()?);
    match said.key.as_str() {
        HEADER => said.header().map(|name| format!("{flag}={name}: hidden")),
        // Another one would be read again where it was refused.
        BEARER_ENV => Some(format!("--{HEADER}=Authorization: hidden")),
        "cursor-in-query" => (value == "true").then_some(flag),
        "log-level" => None,
        _ => FLAGS.contains(&flag.as_str()).then(|| format!("{flag}={value}")),
    }
}

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::config::keys::Source;
    use bytes::Bytes;
    use clap::{CommandFactory, Parser};

    fn recorder(file: File, limit: u64) -> Recorder {
        Recorder {
            recording: Recording::new(false, &Settings::default()),
            file,
            length: 0,
            limit,
            is_over: false,
        }
    }

    #[test]
    fn a_recording_shows_every_flag_that_decides_what_happens_and_plays_with_it() {
        const HIDDEN: &str = "url config bearer-file bearer-command ca-file client-cert client-key insecure \
            proxy no-proxy api runtime-dir log-level log-file record record-limit record-content help";
        // A play knows by the fixed credential that a refusal of it is final.
        const SHOWN: [(&str, &str, &str); 13] = [
            ("header", "X-Key: s3cret", "--header=X-Key: hidden"),
            ("bearer-env", "s3cret", "--header=Authorization: hidden"),
            ("connect-timeout", "1ms", "--connect-timeout=1ms"),
            ("post-timeout", "2ms", "--post-timeout=2ms"),
            ("hold", "1m", "--hold=1m"),
            ("orphan-timeout", "4ms", "--orphan-timeout=4ms"),
            ("max-message-bytes", "5000", "--max-message-bytes=5000"),
            ("on-stream-loss", "fail", "--on-stream-loss=fail"),
            ("recover", "manual", "--recover=manual"),
            ("notices", "off", "--notices=off"),
            ("http", "2", "--http=2"),
            ("cursor-in-query", "true", "--cursor-in-query"),
            ("transport", "ws", "--transport=ws"),
        ];
        let shown = |key: &str, value: &str| {
            super::shown(&Setting {
                key: key.to_owned(),
                value: value.into(),
                source: Source::Flag,
            })
        };
        for (key, value, expected) in SHOWN {
            let flag = shown(key, value).unwrap();
            assert_eq!(flag, expected);
            Cli::try_parse_from(["acp-tether", "connect", &flag, "http://a"]).unwrap();
        }
        assert_eq!(shown("cursor-in-query", "false"), None);
        for flag in Cli::command().find_subcommand("connect").unwrap().get_arguments() {
            let name = flag.get_long().unwrap_or("url");
            let is_hidden = HIDDEN.split_whitespace().any(|hidden| hidden == name);
            let is_shown = SHOWN.iter().any(|(key, ..)| *key == name);
            assert!(is_shown != is_hidden, "{name} is neither shown nor named as hidden, or both");
            assert_eq!(
                shown(name, "s3cret").is_none(),
                is_hidden || name == "cursor-in-query",
                "{name}"
            );
        }
    }

    /// As a full disk is.
    #[test]
    fn a_file_that_cannot_be_written_to_ends_the_recording_and_nothing_else() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("read only");
        std::fs::write(&path, "").unwrap();
        let mut recorder = recorder(File::open(&path).unwrap(), 1_000);
        for _ in 0..2 {
            recorder.told(Millis(0), &Event::Line(Bytes::from_static(b"{}")));
            recorder.did(Millis(0), &[], None);
            assert!(recorder.is_over);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
