//! `acp-tether completions` and `acp-tether man`: what the command line is, for shells and for readers.

use crate::cli::Cli;
use clap::CommandFactory;
use clap::error::ErrorKind;
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;

/// Writes the completions for a shell.
pub fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "acp-tether", &mut script);
    match (shell, String::from_utf8(script)) {
        (Shell::Bash, Ok(script)) => written(consistent(&script).as_bytes()),
        (_, Ok(script)) => written(script.as_bytes()),
        (_, Err(_)) => ExitCode::FAILURE,
    }
}

/// For bash, clap_complete takes the dash in our name for the start of a subcommand where it completes, and
/// not where it finds out what to complete. Where it does the same in both places this changes nothing of
/// what the script does.
fn consistent(script: &str) -> String {
    script.replace("acp__subcmd__tether", "acp__tether")
}

/// Writes the manual's page of the command that `path` names.
pub fn man(path: &[String]) -> ExitCode {
    let mut cli = Cli::command();
    // Gives each command its whole name.
    cli.build();
    let found = path.iter().try_fold(&cli, |command, name| command.find_subcommand(name));
    let Some(command) = found.cloned() else {
        let text = format!("there is no command `{}`", path.join(" "));
        cli.error(ErrorKind::InvalidSubcommand, text).exit();
    };
    let mut page = Vec::new();
    let source = concat!("acp-tether ", env!("CARGO_PKG_VERSION"));
    match clap_mangen::Man::new(command).source(source).render(&mut page) {
        Ok(()) => written(&page),
        Err(_) => ExitCode::FAILURE,
    }
}

fn written(bytes: &[u8]) -> ExitCode {
    match io::stdout().write_all(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody reads it.
        Err(_) => ExitCode::FAILURE,
    }
}
