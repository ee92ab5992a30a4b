//! Reads the command line, runs the command, and ends with its exit code (S9).

use acp_tether::cli::{Cli, Command, Connect};
use acp_tether::config::{Config, Unusable};
use acp_tether::shell::log::{self, Place};
use acp_tether::shell::record::Recorder;
use acp_tether::{commands, shell};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tell(&format!("this is a fault of acp-tether, at {place}; please report it"));
    }));
    // Fails only where one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Cli::parse().command {
        Command::Connect(flags) => connect(&flags),
        Command::Sessions(flags) => commands::sessions::run(&flags),
        Command::Close(flags) => commands::close::run(&flags),
        Command::Transcript(words) => commands::transcript::run(&words),
        Command::Demo(flags) => commands::demo::run(flags.serve),
    }
}

fn connect(flags: &Connect) -> ExitCode {
    let config = Config::new(flags, |name| std::env::var(name));
    let (place, config) = match flags.log_file.as_deref().map(Place::file) {
        None => (Place::StandardError, config),
        Some(Ok(file)) => (file, config),
        Some(Err(error)) => {
            let problem = Unusable::LogFile(error.to_string());
            (Place::StandardError, config.unusable(&problem))
        }
    };
    let (recorder, config) = match &flags.record {
        Some(path) if config.remote.is_some() => {
            match Recorder::create(path, flags, &config.settings) {
                Ok(recorder) => (Some(recorder), config),
                Err(error) => (None, config.unusable(&Unusable::Record(error.to_string()))),
            }
        }
        // There is nothing to record where the configuration cannot be used.
        _ => (None, config),
    };
    if let Some(reason) = &config.settings.unusable {
        tell(reason);
    }
    let log = log::start(flags.log_level, place);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    shell::run(config, recorder, &log).unwrap_or_else(|error| {
        tell(&format!("the system refuses what is needed to run: {error}"));
        ExitCode::FAILURE
    })
}

/// Tells a person; there is nowhere left to tell that this failed.
fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "acp-tether: {text}");
}
