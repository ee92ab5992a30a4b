//! `acp-tether doctor`: looks at the way to an agent step by step, and tells what is wrong with it and
//! what to do.

mod certificate;
mod examination;
mod report;
mod socket;
mod verdicts;

use self::examination::Examination;
use self::report::{Finding, Report, Step, print};
use super::block_on;
use crate::cli::Doctor;
use crate::config::layers;
use crate::config::{Config, redacted};
use crate::printable::tell;
use crate::shell::leaving::signals;
use clap::ArgMatches;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the command; `typed` is what stands behind it.
pub fn run(flags: &Doctor, typed: &ArgMatches) -> ExitCode {
    let begun = Instant::now();
    let mut report = Report::new(flags.json);
    let read = layers::read("doctor", typed);
    let finding = match &read {
        Ok((_, config)) => usable(config),
        Err(problem) => unusable(problem.to_string()),
    };
    if report.add(Step::Configuration, finding, begun.elapsed())
        && let Ok((_, config)) = read
    {
        let trouble = match block_on(look(config, flags, &mut report)).flatten() {
            Ok(true) => None,
            Ok(false) => Some("interrupted".to_owned()),
            Err(error) => Some(format!("the system refuses what is needed to run: {error}")),
        };
        if let Some(trouble) = trouble {
            tell(&trouble);
            return ExitCode::FAILURE;
        }
    }
    report.skip_rest("not looked at");
    print(&if flags.json { report.json() } else { report.conclusion() });
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usable(config: &Config) -> Finding {
    match (&config.settings.unusable, &config.remote) {
        (None, Some(remote)) => {
            let found = redacted(&remote.url);
            match config.warnings.join("; ") {
                warnings if warnings.is_empty() => Finding::ok(found),
                warnings => Finding::note(found, warnings),
            }
        }
        (reason, _) => unusable(reason.clone().unwrap_or_default()),
    }
}

fn unusable(reason: String) -> Finding {
    let advice =
        "Mend the configuration; `acp-tether config show` tells where each value comes from.";
    Finding::failed(reason, advice)
}

/// Looks until all is told, or a signal asks to end, and says which. Nothing stays open.
async fn look(config: Config, flags: &Doctor, report: &mut Report) -> std::io::Result<bool> {
    let Some(remote) = config.remote else { return Ok(true) };
    let mut signals = signals()?;
    let patience = Duration::from_millis(config.settings.connect_timeout.0);
    let watched = Duration::from_millis(flags.wait.0);
    let mut examination = Examination::new(remote, patience, watched, report);
    let is_whole = tokio::select! {
        () = examination.run() => true,
        _ = signals.recv() => false,
    };
    examination.close().await;
    Ok(is_whole)
}
