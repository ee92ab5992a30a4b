//! Writes a recording to its file (`--record`): whole steps, each before what follows from it is done.
//!
//! Each step of the core is one plain write to the system, and not a message to a thread: what a
//! queue holds is lost when the process is killed, which is when a recording is wanted most. Such a
//! write goes to memory of the system: a step takes about ten microseconds, one of 8 MB a tenth of a
//! second.

use super::instances::create_private;
use crate::cli::Connect;
use crate::core::socket::Transport;
use crate::core::{Effect, Event, Millis, Settings};
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
    /// Creates the file, which nobody else can read, and writes its header. A directory stands for a
    /// new file in it: an editor starts the same command many times.
    ///
    /// # Errors
    /// It cannot be written to, or it is there already: another recording is never overwritten.
    pub fn create(path: &Path, flags: &Connect, settings: &Settings) -> io::Result<Self> {
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
        let mut shown = flags.shown();
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

fn bytes(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn recorder(file: File, limit: u64) -> Recorder {
        Recorder {
            recording: Recording::new(false, &Settings::default()),
            file,
            length: 0,
            limit,
            is_over: false,
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
