//! Holds what tells the remote who sends: the headers that the person gave, and the bearer token,
//! which is read again where it was refused (L10).

use crate::config::{Bearer, bearer_token};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the file or the command of a token may take.
const READING: Duration = Duration::from_secs(30);
/// After which time the log says what is waited for.
const SLOW: Duration = Duration::from_secs(3);
/// The most that a command may print.
const PRINTED: u64 = 64 * 1024;
/// What a command printed before it ended is there at once; a helper that it leaves behind may keep
/// its output open for ever.
const REST: Duration = Duration::from_millis(100);

/// The headers that go with every request.
#[derive(Debug)]
pub(super) struct Credentials {
    headers: HeaderMap,
    bearer: Option<Bearer>,
    /// The last reading of the token, which may be under way.
    reading: Mutex<Option<Reading>>,
}

type Read = Result<HeaderValue, String>;
/// Everybody waits for the same one, and it goes on where one of them is dropped.
type Reading = Shared<BoxFuture<'static, Read>>;

impl Credentials {
    /// Headers that stay as they are for the life of the process, and where the token comes from.
    pub(super) fn new(headers: HeaderMap, bearer: Option<Bearer>) -> Self {
        Self { headers, bearer, reading: Mutex::new(None) }
    }

    /// The headers for one request. `renew`: the last credential was refused, so the token is read
    /// again.
    ///
    /// # Errors
    /// The token cannot be had: why, without anything of it (X1).
    pub(super) async fn headers(&self, renew: bool) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, self.reading(bearer, renew).await?);
        }
        Ok(headers)
    }

    fn reading(&self, bearer: &Bearer, renew: bool) -> Reading {
        let mut last = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let serves = |reading: &&Reading| match reading.peek() {
            Some(token) => token.is_ok() && !renew,
            // Many are refused at once. What is being read for one is new for all.
            None => true,
        };
        if let Some(reading) = last.as_ref().filter(serves) {
            return reading.clone();
        }
        let flag = bearer.flag();
        let task = tokio::spawn(read(bearer.clone()));
        let told = async move {
            let token = task.await.unwrap_or_else(|error| Err(error.to_string()));
            token.map_err(|problem| format!("{flag} gave no token: {problem}"))
        };
        last.insert(told.boxed().shared()).clone()
    }
}

async fn read(bearer: Bearer) -> Read {
    let flag = bearer.flag();
    let text = async {
        match bearer {
            Bearer::Fixed(value) => return Ok(value),
            Bearer::File(path) => contents(path).await,
            Bearer::Command(command) => output(&command).await,
        }
        .map_err(|error| error.to_string())
        .and_then(|text| bearer_token(&text).map_err(str::to_owned))
    };
    let slow = async {
        tokio::time::sleep(SLOW).await;
        tracing::warn!("{flag} gives no token yet; nothing is sent before");
        std::future::pending().await
    };
    let read = timeout(READING, async {
        tokio::select! {
            text = text => text,
            never = slow => never,
        }
    });
    let late = |_| Err(format!("it took more than {} s", READING.as_secs()));
    read.await.unwrap_or_else(late)
}

async fn contents(path: PathBuf) -> io::Result<String> {
    spawn_blocking(|| std::fs::read_to_string(path)).await?
}

/// What a command of the person's shell prints. What it says beside that is not shown: it may be
/// about the token.
async fn output(command: &str) -> io::Result<String> {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut command_line = Command::new(shell);
    command_line.args([flag, command]).stdin(Stdio::null()).stdout(Stdio::piped());
    command_line.stderr(Stdio::null()).kill_on_drop(true);
    #[cfg(unix)]
    command_line.process_group(0);
    let mut group = Group(command_line.spawn()?);
    let mut printed = group.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.take(PRINTED);
    let mut text = Vec::new();
    // It is read meanwhile, so that what it prints finds room.
    let status = tokio::select! {
        status = group.0.wait() => status?,
        Err(error) = async {
            printed.read_to_end(&mut text).await?;
            std::future::pending::<io::Result<()>>().await
        } => return Err(error),
    };
    let _ = timeout(REST, printed.read_to_end(&mut text)).await;
    if !status.success() {
        return Err(io::Error::other(format!("it ended with {status}; run it by hand to see why")));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("what it prints is not UTF-8"))
}

/// A command with all that it started, which ends with it where nobody waits any more (K123). What a
/// command leaves behind that ended by itself may stay.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id as i32)) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    async fn sent(credentials: &Credentials, renew: bool) -> Result<String, String> {
        let headers = credentials.headers(renew).await?;
        assert!(headers[AUTHORIZATION].is_sensitive());
        Ok(headers[AUTHORIZATION].to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn k85_the_token_of_a_file_is_read_again_where_it_was_refused_and_only_there() {
        let (_directory, path) = file("one\n");
        let credentials = Credentials::new(HeaderMap::new(), Some(Bearer::File(path.clone())));
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer one");
        std::fs::write(&path, "Bearer two").unwrap();
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer one");
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        assert!(sent(&credentials, true).await.unwrap_err().starts_with("--bearer-file gave no"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn k85_many_requests_that_are_refused_at_once_run_the_command_once() {
        let (_directory, path) = file("");
        let command = format!("echo run >>'{0}'; wc -l <'{0}'", path.display());
        let credentials = Credentials::new(HeaderMap::new(), Some(Bearer::Command(command)));
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer 1");
        let refused = (0..8).map(|_| sent(&credentials, true));
        let tokens = futures_util::future::join_all(refused).await;
        assert!(tokens.iter().all(|token| *token == Ok("Bearer 2".to_owned())), "{tokens:?}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn x1_a_command_that_fails_says_so_without_its_output() {
        for (command, expected) in [
            ("echo s3cret; echo s3cret >&2; exit 3", "exit status: 3"),
            ("yes s3cret | head -c 100000", "more than one word"),
            ("true", "it is empty"),
            ("echo s3cret one", "more than one word"),
            ("printf '\\377'", "not UTF-8"),
        ] {
            let bearer = Bearer::Command(command.to_owned());
            let credentials = Credentials::new(HeaderMap::new(), Some(bearer));
            let told = sent(&credentials, false).await.unwrap_err();
            assert!(told.contains(expected) && !told.contains("s3cret"), "{told}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn k123_what_a_command_started_ends_with_it_where_nobody_waits_any_more() {
        let (_directory, path) = file("");
        let command = format!("(echo $$; exec sleep 600) >'{}' & wait", path.display());
        let mut reading = Box::pin(output(&command));
        let pid = loop {
            let started = std::fs::read_to_string(&path).unwrap();
            if let Ok(pid) = started.trim().parse::<i32>() {
                break rustix::process::Pid::from_raw(pid).unwrap();
            }
            assert!(timeout(Duration::from_millis(5), &mut reading).await.is_err());
        };
        drop(reading);
        while rustix::process::test_kill_process_group(pid).is_ok() {
            tokio::task::yield_now().await;
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_helper_that_a_command_leaves_behind_does_not_keep_its_token() {
        assert_eq!(output("sleep 600 & echo token").await.unwrap(), "token\n");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_reading_goes_on_where_the_request_that_wants_it_is_dropped() {
        let (_directory, path) = file("");
        let command = format!(
            "echo run >>'{0}'; while [ ! -e '{0}.go' ]; do :; done; wc -l <'{0}'",
            path.display()
        );
        let credentials = Credentials::new(HeaderMap::new(), Some(Bearer::Command(command)));
        let first = timeout(Duration::from_millis(20), sent(&credentials, false)).await;
        assert!(first.is_err());
        std::fs::write(path.with_extension("go"), "").unwrap();
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer 1", "it ran once");
    }
}
