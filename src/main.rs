//! Reads the command line, runs the command, and ends with its exit code (S9).

use acp_tether::cli::{Cli, Command, Connect, refusal};
use acp_tether::config::layers::{self, Effective};
use acp_tether::config::{Config, Unusable, kind};
use acp_tether::printable::tell;
use acp_tether::shell::log::{self, Place};
use acp_tether::shell::record::Recorder;
use acp_tether::{commands, shell};
use clap::{ArgMatches, FromArgMatches};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tell(&format!("this is a fault of acp-tether, at {place}; please report it"));
    }));
    // Fails only where one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let matches = Cli::to_complete().try_get_matches();
    let matches = matches.unwrap_or_else(|error| refusal::shown(error).exit());
    match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        Command::Connect(flags) => connect(*flags, innermost(&matches)),
        Command::Doctor(flags) => commands::doctor::run(&flags, innermost(&matches)),
        Command::Sessions(flags) => commands::sessions::run(&flags),
        Command::Close(flags) => commands::close::run(&flags),
        Command::Transcript(words) => commands::transcript::run(&words),
        Command::Demo(flags) => commands::demo::run(flags.serve),
        Command::Config(words) => commands::config::run(&words, innermost(&matches)),
        Command::Completions(flags) => commands::completions::run(flags.shell),
        Command::Man(flags) => commands::completions::man(&flags.path),
    }
}

/// What was typed behind the last subcommand.
fn innermost(mut matches: &ArgMatches) -> &ArgMatches {
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches
}

fn connect(typed: Connect, matches: &ArgMatches) -> ExitCode {
    let (flags, said, config) = match layers::read("connect", matches) {
        Ok((Effective { flags, settings, .. }, config)) => (flags, settings, config),
        Err(problem) => {
            let config = Config::refused(&typed, &problem);
            (typed, Vec::new(), config)
        }
    };
    let open = |path: &Path| kind::to_append(path).and_then(|()| Place::file(path));
    let (place, config) = match flags.log_file.as_deref().map(open) {
        None => (Place::StandardError, config),
        Some(Ok(file)) => (file, config),
        Some(Err(error)) => {
            let problem = Unusable::LogFile(error.to_string());
            (Place::StandardError, config.unusable(&problem))
        }
    };
    let (recorder, config) = match &flags.record {
        Some(path) if config.remote.is_some() => {
            match Recorder::create(path, &flags, &said, &config.settings) {
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
