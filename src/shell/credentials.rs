//! Holds what tells the remote who sends: the headers that the person gave, and the bearer token,
//! which is read again where it was refused (L10).

use crate::config::{Bearer, bearer_token};
use crate::lock::lock;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// How long the file or the command of a token may take at most.
const READING: Duration = Duration::from_secs(30);
/// After which time the log says what is waited for.
const SLOW: Duration = Duration::from_secs(3);
/// The most that a file may hold and a command may print.
const LONGEST: u64 = 64 * 1024;
/// What a command printed before it ended is there at once; a helper that it leaves behind may keep
/// its output open for ever.
const REST: Duration = Duration::from_millis(100);

/// The headers that go with every request.
#[derive(Debug)]
pub(super) struct Credentials {
    headers: HeaderMap,
    bearer: Option<Bearer>,
    last: Mutex<Last>,
    /// How long a reading may take.
    patience: Duration,
}

/// The last reading of the token.
#[derive(Debug, Default)]
struct Last {
    /// It may be under way.
    reading: Option<Reading>,
    /// What it gave was refused.
    is_refused: bool,
    /// When it had to have ended.
    end: Option<Instant>,
}

type Read = Result<HeaderValue, String>;
/// Everybody waits for the same one, and it goes on where one of them is dropped.
type Reading = Shared<BoxFuture<'static, Read>>;

impl Credentials {
    /// Headers that stay as they are for the life of the process, and where the token comes from. Who
    /// waits for an answer does so for the time of `connect`: that there is no token is told before.
    pub(super) fn new(headers: HeaderMap, bearer: Option<Bearer>, connect: Duration) -> Self {
        Self { headers, bearer, last: Mutex::default(), patience: READING.min(connect * 9 / 10) }
    }

    /// The headers for one request. `renew`: one with the same message was refused, so the token is read
    /// again, unless it was since.
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

    /// Whether reading the token again may give another.
    pub(super) fn can_change(&self) -> bool {
        matches!(self.bearer, Some(Bearer::File(_) | Bearer::Command(_)))
    }

    /// The remote refused a request with this `Authorization`. What was read since is another matter.
    pub(super) fn refused(&self, sent: &HeaderValue) {
        let mut last = lock(&self.last);
        let is_last =
            |reading: &Reading| matches!(reading.peek(), Some(Ok(token)) if token == sent);
        last.is_refused |= last.reading.as_ref().is_some_and(is_last);
    }

    /// The remote refused the last request with a credential, whatever that was.
    pub(super) fn last_refused(&self) {
        lock(&self.last).is_refused = true;
    }

    fn reading(&self, bearer: &Bearer, renew: bool) -> Reading {
        let mut last = lock(&self.last);
        let is_refused = last.is_refused;
        let serves = |reading: &&Reading| match reading.peek() {
            Some(token) => token.is_ok() && !(renew && is_refused),
            // Many are refused at once. What is being read for one is new for all.
            None => true,
        };
        if let Some(reading) = last.reading.as_ref().filter(serves) {
            return reading.clone();
        }
        let flag = bearer.flag();
        let now = Instant::now();
        // Who waits for a token in the place of one that was just read waits since then.
        let end = last.end.filter(|end| is_refused && *end > now).unwrap_or(now + self.patience);
        last.end = Some(end);
        let task = tokio::spawn(read(bearer.clone(), end - now));
        let told = async move {
            let token = task.await.unwrap_or_else(|error| Err(error.to_string()));
            token.map_err(|problem| format!("{flag} gave no token: {problem}"))
        };
        last.is_refused = false;
        last.reading.insert(told.boxed().shared()).clone()
    }
}

async fn read(bearer: Bearer, patience: Duration) -> Read {
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
    let read = timeout(patience, async {
        tokio::select! {
            text = text => text,
            never = slow => never,
        }
    });
    let late = |_| {
        let advice = if patience < READING { ": --connect-timeout gives it more" } else { "" };
        Err(format!("it took more than {patience:.1?}{advice}"))
    };
    read.await.unwrap_or_else(late)
}

async fn contents(path: PathBuf) -> io::Result<String> {
    spawn_blocking(|| {
        let mut text = String::new();
        // A device may have no end.
        let mut file = std::fs::File::open(path)?.take(LONGEST + 1);
        file.read_to_string(&mut text)?;
        match file.limit() {
            0 => Err(io::Error::other("it holds more than 64 KiB: name the file of a token")),
            _ => Ok(text),
        }
    })
    .await?
}

/// What a command of the person's shell prints. What it says beside that is not shown: it may be
/// about the token.
async fn output(command: &str) -> io::Result<String> {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut command_line = Command::new(shell);
    command_line.args([flag, command]).stdin(Stdio::null()).stdout(Stdio::piped());
    command_line.stderr(Stdio::null()).kill_on_drop(true);
    let mut group = Group::start(&mut command_line)?;
    let mut printed =
        group.command.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.take(LONGEST + 1);
    let mut text = Vec::new();
    let too_long = || io::Error::other("it prints more than 64 KiB: have it print the token only");
    // It is read meanwhile, so that what it prints finds room.
    let status = tokio::select! {
        status = group.command.wait() => status?,
        error = async {
            match printed.read_to_end(&mut text).await {
                Ok(_) if printed.limit() == 0 => too_long(),
                Ok(_) => std::future::pending().await,
                Err(error) => error,
            }
        } => return Err(error),
    };
    drop(group);
    let _ = timeout(REST, printed.read_to_end(&mut text)).await;
    if printed.limit() == 0 {
        return Err(too_long());
    }
    if !status.success() {
        return Err(io::Error::other(format!("it ended with {status}; run it by hand to see why")));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("what it prints is not UTF-8"))
}

/// A command with all that it started, which ends with it where nobody waits any more (K123). What a
/// command leaves behind that ended by itself may stay.
struct Group {
    command: Child,
    #[cfg(unix)]
    id: Option<Pid>,
}

/// The groups of the commands that run, for an end of the process at which nothing is dropped.
#[cfg(unix)]
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

#[cfg(unix)]
impl Group {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut running = lock(&RUNNING);
        let command = command.process_group(0).spawn()?;
        let id = command.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        running.extend(id);
        Ok(Self { command, id })
    }
}

#[cfg(not(unix))]
impl Group {
    fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(|command| Self { command })
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        let mut running = lock(&RUNNING);
        running.retain(|group| Some(*group) != self.id);
        if let Some(group) = self.id.filter(|_| self.command.id().is_some()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Ends the commands that run: the process ends at once.
pub(super) fn end_commands() {
    #[cfg(unix)]
    for group in lock(&RUNNING).iter() {
        let _ = kill_process_group(*group, Signal::KILL);
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

    fn bearer(token: &str) -> HeaderValue {
        bearer_token(token).unwrap()
    }

    async fn sent(credentials: &Credentials, renew: bool) -> Result<String, String> {
        let headers = credentials.headers(renew).await?;
        assert!(headers[AUTHORIZATION].is_sensitive());
        Ok(headers[AUTHORIZATION].to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn k85_the_token_of_a_file_is_read_again_where_it_was_refused_and_only_there() {
        let (_directory, path) = file("one\n");
        let credentials =
            Credentials::new(HeaderMap::new(), Some(Bearer::File(path.clone())), READING);
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer one");
        std::fs::write(&path, "Bearer two").unwrap();
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer one");
        credentials.refused(&bearer("one"));
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer one");
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer two");
        credentials.last_refused();
        assert!(sent(&credentials, true).await.unwrap_err().starts_with("--bearer-file gave no"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn k85_many_requests_that_are_refused_at_once_run_the_command_once() {
        let (_directory, path) = file("");
        let command = format!("echo run >>'{0}'; wc -l <'{0}'", path.display());
        let credentials =
            Credentials::new(HeaderMap::new(), Some(Bearer::Command(command)), READING);
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer 1");
        credentials.refused(&bearer("1"));
        let refused = (0..8).map(|_| sent(&credentials, true));
        let tokens = futures_util::future::join_all(refused).await;
        assert!(tokens.iter().all(|token| *token == Ok("Bearer 2".to_owned())), "{tokens:?}");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn k85_requests_that_are_refused_one_after_the_other_run_the_command_once() {
        let (_directory, path) = file("");
        let command = format!("echo run >>'{0}'; wc -l <'{0}'", path.display());
        let credentials =
            Credentials::new(HeaderMap::new(), Some(Bearer::Command(command)), READING);
        assert_eq!(sent(&credentials, false).await.unwrap(), "Bearer 1");
        for _ in 0..3 {
            credentials.refused(&bearer("1"));
            assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer 2");
        }
        credentials.refused(&bearer("2"));
        credentials.refused(&bearer("1"));
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer 3");
    }

    #[tokio::test]
    async fn a_file_without_an_end_is_no_token_and_is_not_read_whole() {
        let endless = PathBuf::from("/dev/zero");
        if endless.exists() {
            let told = contents(endless).await.unwrap_err().to_string();
            assert!(told.contains("more than 64 KiB"), "{told}");
        }
        let (_directory, path) = file(&"x".repeat(64 * 1024));
        assert_eq!(contents(path.clone()).await.unwrap().len(), 64 * 1024);
        std::fs::write(&path, "x".repeat(64 * 1024 + 1)).unwrap();
        assert!(contents(path).await.is_err());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn x1_a_command_that_fails_says_so_without_its_output() {
        for (command, expected) in [
            ("echo s3cret; echo s3cret >&2; exit 3", "exit status: 3"),
            ("yes s3cret | head -c 65536", "more than one word"),
            ("yes s3cret | head -c 65537", "more than 64 KiB"),
            ("yes s3cret", "more than 64 KiB"),
            ("true", "it is empty"),
            ("echo s3cret one", "more than one word"),
            ("printf '\\377'", "not UTF-8"),
        ] {
            let bearer = Bearer::Command(command.to_owned());
            let credentials = Credentials::new(HeaderMap::new(), Some(bearer), READING);
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
        let credentials =
            Credentials::new(HeaderMap::new(), Some(Bearer::Command(command)), READING);
        let first = timeout(Duration::from_millis(20), sent(&credentials, false)).await;
        assert!(first.is_err());
        std::fs::write(path.with_extension("go"), "").unwrap();
        assert_eq!(sent(&credentials, true).await.unwrap(), "Bearer 1", "it ran once");
    }
}
