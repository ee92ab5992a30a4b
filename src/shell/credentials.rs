//! Holds what tells the remote who sends: the headers that the person gave, and the bearer token,
//! which is read again where it was refused (L10).

use crate::config::{Bearer, bearer_token};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the file or the command of a token may take.
const READING: Duration = Duration::from_secs(30);

/// The headers that go with every request.
#[derive(Debug)]
pub(super) struct Credentials {
    headers: HeaderMap,
    bearer: Option<Bearer>,
    /// The token as it was read last.
    token: Mutex<Option<Token>>,
}

#[derive(Debug)]
struct Token {
    value: HeaderValue,
    since: Instant,
}

impl Credentials {
    /// Headers that stay as they are for the life of the process, and where the token comes from.
    pub(super) fn new(headers: HeaderMap, bearer: Option<Bearer>) -> Self {
        Self { headers, bearer, token: Mutex::new(None) }
    }

    /// The headers for one request. `renew`: the last credential was refused, so the token is read
    /// again.
    ///
    /// # Errors
    /// The token cannot be had: why, without anything of it (X1).
    pub(super) async fn headers(&self, renew: bool) -> Result<HeaderMap, String> {
        let mut headers = self.headers.clone();
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, self.token(bearer, renew).await?);
        }
        Ok(headers)
    }

    async fn token(&self, bearer: &Bearer, renew: bool) -> Result<HeaderValue, String> {
        let asked = Instant::now();
        let mut token = self.token.lock().await;
        // Many are refused at once. What was read while this one waited for its turn is new.
        if let Some(token) = token.as_ref().filter(|token| !renew || token.since >= asked) {
            return Ok(token.value.clone());
        }
        let reading = timeout(READING, read(bearer)).await;
        let value = reading.unwrap_or_else(|_| {
            Err(format!("{} gave no token within {} s", bearer.flag(), READING.as_secs()))
        })?;
        *token = Some(Token { value: value.clone(), since: Instant::now() });
        Ok(value)
    }
}

async fn read(bearer: &Bearer) -> Result<HeaderValue, String> {
    let text = match bearer {
        Bearer::Fixed(value) => return Ok(value.clone()),
        Bearer::File(path) => contents(path.clone()).await,
        Bearer::Command(command) => output(command).await,
    };
    let text = text.map_err(|error| format!("{} gave no token: {error}", bearer.flag()))?;
    bearer_token(&text).map_err(|problem| format!("{} gave no token: {problem}", bearer.flag()))
}

async fn contents(path: PathBuf) -> io::Result<String> {
    spawn_blocking(|| std::fs::read_to_string(path)).await?
}

/// What a command of the person's shell prints. What it says beside that is not shown: it may be
/// about the token.
async fn output(command: &str) -> io::Result<String> {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let ended = Command::new(shell)
        .args([flag, command])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    if !ended.status.success() {
        let told = format!("it ended with {}; run it by hand to see why", ended.status);
        return Err(io::Error::other(told));
    }
    String::from_utf8(ended.stdout).map_err(|_| io::Error::other("what it prints is not UTF-8"))
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
}
