//! `acp-tether close`: takes a session off its instance's roster, unless it is running (A4).

use crate::cli::Close;
use crate::loopback::{self, Found, Instance, Loopback, NotClosed};
use crate::printable::printable;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// How it ended, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed = 0,
    NotClosed = 1,
    Ambiguous = 2,
    Unknown = 4,
}

/// A listed session, and where.
struct Listed {
    instance: Instance,
    session: String,
}

/// Closes the session that `flags` name, tells how that went, and returns the exit code.
pub fn run(flags: &Close) -> ExitCode {
    let (end, text) = match super::block_on(close(flags)) {
        Ok(Ok(end)) => end,
        Ok(Err(error)) | Err(error) => (End::NotClosed, error.to_string()),
    };
    let told = match end {
        End::Closed => writeln!(std::io::stdout(), "{text}"),
        _ => writeln!(std::io::stderr(), "acp-tether: {text}"),
    };
    // Nobody reads it: the exit code tells.
    let _ = told;
    ExitCode::from(end as u8)
}

async fn close(flags: &Close) -> std::io::Result<(End, String)> {
    let Found { mut running, mut silent } =
        Loopback::new(flags.runtime.chosen().as_deref())?.look().await?;
    if let Some(wanted) = &flags.instance {
        for instances in [&mut running, &mut silent] {
            instances.retain(|instance| instance.record.process.id.starts_with(wanted.as_str()));
        }
    }
    let mut listed = Vec::new();
    for (instance, status) in loopback::statuses(running).await {
        let Ok(status) = status else {
            silent.push(instance);
            continue;
        };
        let sessions = status["sessions"].as_array().into_iter().flatten();
        let ids = sessions.filter_map(|session| session["sessionId"].as_str());
        listed.extend(ids.map(|id| Listed { instance: instance.clone(), session: id.to_owned() }));
    }
    let named = printable(&flags.session);
    let Some(found) = found(listed, &flags.session) else {
        return Ok(not_found(&named, &silent));
    };
    let Listed { instance, session } = match found {
        Ok(listed) => listed,
        Err(several) => return Ok((End::Ambiguous, choice(&named, &several))),
    };
    let named = printable(&session);
    Ok(match instance.close(&session).await {
        Ok(()) => (End::Closed, format!("closed session {named}; the agent keeps it")),
        Err(NotClosed::Running) => (
            End::NotClosed,
            format!("session {named} is running and stays; wait for its turn to end"),
        ),
        Err(NotClosed::Unknown) => {
            (End::Unknown, format!("session {named} is not listed any more"))
        }
        Err(NotClosed::Trouble(why)) => {
            (End::NotClosed, format!("session {named} was not closed: {}", printable(&why)))
        }
    })
}

/// The session of that id; the error is all that have it. No prefix will do: agents count, and `s1`
/// is not `s11`.
fn found(mut listed: Vec<Listed>, wanted: &str) -> Option<Result<Listed, Vec<Listed>>> {
    listed.retain(|listed| listed.session == wanted);
    match listed.len() {
        0 => None,
        1 => listed.pop().map(Ok),
        _ => Some(Err(listed)),
    }
}

/// Nobody who answered has the session.
fn not_found(named: &impl Display, silent: &[Instance]) -> (End, String) {
    let silent: Vec<_> =
        silent.iter().map(|instance| printable(&instance.record.process.id)).collect();
    match silent.is_empty() {
        true => {
            let text = format!("no session {named} is listed; see `acp-tether sessions`");
            (End::Unknown, text)
        }
        false => {
            let silent = silent.join(", ");
            let text = format!("session {named} was not found, but no answer came from: {silent}");
            (End::NotClosed, text)
        }
    }
}

fn choice(named: &impl Display, several: &[Listed]) -> String {
    let all: Vec<_> = several
        .iter()
        .map(|Listed { instance, session }| {
            format!("{} --instance {}", printable(session), instance.record.process.id)
        })
        .collect();
    format!("{named} is known to several instances: name one of\n  {}", all.join("\n  "))
}
