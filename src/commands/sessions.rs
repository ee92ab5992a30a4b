//! `acp-tether sessions`: what sessions there are in every instance of this user, and who is busy.

use super::table::{cut, lines};
use crate::cli::Sessions;
use crate::loopback::{self, Found, Instance, Loopback};
use crate::printable::{printable, printable_json, tell};
use crate::shell::now;
use anstyle::Style;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How long after a look new instances are looked for again, and ages told anew.
const LOOK: Duration = Duration::from_secs(1);
/// How long after it refused an instance is asked again to let us watch.
const REFUSED: Duration = Duration::from_secs(10);
/// The widest cells on a terminal: the remote, the title and the working directory.
const WIDEST: usize = 36;
/// Clears a terminal, and goes to its upper left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// The documents of the instances, oldest first.
type Documents = BTreeMap<(u64, String), Value>;

/// What following one instance told: its document, or that it has ended.
type News = ((u64, String), Option<Value>);

/// Shows the sessions, and returns the exit code.
pub fn run(flags: &Sessions) -> ExitCode {
    let output = Output { is_json: flags.json, is_terminal: io::stdout().is_terminal() };
    let shown = super::block_on(async {
        let runtime = flags.runtime.chosen();
        let loopback = Loopback::new(runtime.as_deref())?;
        match flags.watch {
            true => watch(&loopback, &output).await,
            false => output.show_once(&ask(&loopback).await?),
        }
    });
    match shown.and_then(|shown| shown) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the list has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("the sessions cannot be listed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Asks each instance once.
async fn ask(loopback: &Loopback<'_>) -> io::Result<Documents> {
    let asked = loopback::statuses(loopback.look().await?.running).await;
    // One that does not answer any more has just ended.
    let answered =
        asked.into_iter().filter_map(|(instance, status)| Some((instance, status.ok()?)));
    Ok(answered.map(|(instance, document)| (key(&instance), document)).collect())
}

/// Follows every instance, those too that come later, for as long as somebody reads.
async fn watch(loopback: &Loopback<'_>, output: &Output) -> io::Result<()> {
    let mut documents = ask(loopback).await?;
    output.show_again(&documents)?;
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut followed = BTreeSet::new();
    let mut looking = pin!(look(loopback, Duration::ZERO));
    loop {
        // The ages grow.
        let mut has_changed = output.is_terminal && !output.is_json;
        tokio::select! {
            found = &mut looking => {
                for instance in found?.running {
                    if followed.insert(key(&instance)) {
                        tokio::spawn(follow(instance, tell.clone()));
                    }
                }
                let before = documents.len();
                documents.retain(|key, _| followed.contains(key));
                has_changed |= documents.len() < before;
                looking.set(look(loopback, LOOK));
            }
            Some(first) = news.recv() => {
                let mut next = Some(first);
                while let Some((key, document)) = next {
                    has_changed |= documents.get(&key) != document.as_ref();
                    match document {
                        Some(document) => drop(documents.insert(key, document)),
                        None => {
                            followed.remove(&key);
                            documents.remove(&key);
                        }
                    }
                    next = news.try_recv().ok();
                }
            }
        }
        if has_changed {
            output.show_again(&documents)?;
        }
    }
}

async fn look(loopback: &Loopback<'_>, pause: Duration) -> io::Result<Found> {
    sleep(pause).await;
    loopback.look().await
}

/// Tells what one instance tells. One that has too many who watch is asked now and then.
async fn follow(instance: Instance, tell: mpsc::UnboundedSender<News>) {
    let key = key(&instance);
    // Where nobody listens any more the command is ending.
    let tell = |document| drop(tell.send((key.clone(), document)));
    while instance.watch(|document| tell(Some(document))).await.is_err() {
        let Ok(document) = instance.status().await else { break };
        tell(Some(document));
        sleep(REFUSED).await;
    }
    tell(None);
}

fn key(instance: &Instance) -> (u64, String) {
    (instance.record.process.started_at, instance.record.process.id.clone())
}

/// How it is shown.
#[derive(Debug)]
struct Output {
    is_json: bool,
    is_terminal: bool,
}

impl Output {
    fn show(&self, documents: &Documents) -> io::Result<()> {
        let mut output = anstream::stdout().lock();
        if self.is_json {
            let instances: Vec<_> = documents.values().collect();
            let text = json!({ "instances": instances }).to_string();
            return writeln!(output, "{}", printable_json(&text));
        }
        let mut lines = lines(&self.rows(documents)).into_iter();
        let (bold, head) = (Style::new().bold(), lines.next().unwrap_or_default());
        writeln!(output, "{bold}{head}{bold:#}")?;
        lines.try_for_each(|line| writeln!(output, "{line}"))?;
        output.flush()
    }

    fn show_once(&self, documents: &Documents) -> io::Result<()> {
        if self.is_json || self.rows(documents).len() > 1 {
            return self.show(documents);
        }
        // Whoever counts lines counts none.
        tell("there are no sessions");
        Ok(())
    }

    fn show_again(&self, documents: &Documents) -> io::Result<()> {
        let separator = match (self.is_json, self.is_terminal) {
            (true, _) => "",
            (false, true) => CLEAR,
            (false, false) => "\n",
        };
        write!(io::stdout(), "{separator}")?;
        self.show(documents)
    }

    fn rows(&self, documents: &Documents) -> Vec<[String; 7]> {
        let head = ["EDITOR", "REMOTE", "SESSION", "TITLE", "CWD", "STATUS", "AGE"];
        let sessions = documents.values().flat_map(|document| {
            let sessions = document["sessions"].as_array().into_iter().flatten();
            sessions.map(move |session| self.row(&document["instance"], session))
        });
        std::iter::once(head.map(str::to_owned)).chain(sessions).collect()
    }

    fn row(&self, instance: &Value, session: &Value) -> [String; 7] {
        let text = |value: &Value| printable(value.as_str().unwrap_or("-"));
        let fit = |text: String, keeps_end| match self.is_terminal {
            true => cut(&text, WIDEST, keeps_end),
            false => text,
        };
        [
            text(&instance["editor"]["name"]),
            fit(text(&instance["remote"]), false),
            text(&session["sessionId"]),
            fit(text(&session["title"]), false),
            fit(text(&session["cwd"]), true),
            status(session),
            age(now().saturating_sub(session["updatedAt"].as_u64().unwrap_or_default())),
        ]
    }
}

/// Whether it is busy, with what it waits for, and what is wrong with its remote side.
fn status(session: &Value) -> String {
    let text = |name: &str| session[name].as_str().map(printable);
    let mut status = text("status").unwrap_or_default();
    if let Some(waiting_for) = text("waitingFor") {
        status.push_str(&format!(" for {waiting_for}"));
    }
    if let Some(remote) = text("remote").filter(|remote| remote != "attached") {
        status.push_str(&format!(", {remote}"));
    }
    status
}

/// Milliseconds, in the largest unit that there is one of.
fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_one_unit() {
        let cases = [(0, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h")];
        for (milliseconds, expected) in cases.into_iter().chain([(200_000_000, "2d")]) {
            assert_eq!(age(milliseconds), expected);
        }
    }

    #[test]
    fn k127_what_is_wrong_with_a_session_stands_beside_its_status() {
        let cases = [
            (json!({"status": "idle", "remote": "attached"}), "idle"),
            (json!({"status": "running", "remote": "restoring"}), "running, restoring"),
            (
                json!({"status": "waiting", "waitingFor": "permission", "remote": "attached"}),
                "waiting for permission",
            ),
            (json!({"status": "idle", "remote": "lost"}), "idle, lost"),
        ];
        for (session, expected) in cases {
            assert_eq!(status(&session), expected);
        }
    }
}
