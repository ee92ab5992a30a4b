//! `acp-tether completions` and `acp-tether man`: what the command line is, for shells and for readers.

use super::written;
use crate::cli::Cli;
use crate::printable::printable;
use clap::error::ErrorKind;
use clap_complete::Shell;
use std::process::ExitCode;

/// What writes the names of remotes. bash expands what it is given: other names than simple ones are left out.
const NAMES: &str = "acp-tether config list 2>/dev/null";

/// Where zsh completes a URL or the name of a remote, and what by.
const ZSH_URL: &str = "':url -- ";
const ZSH_NAMES: &str = "\
_acp-tether_remotes() {
    local -a names
    names=(${(f)\"$(acp-tether config list 2>/dev/null)\"})
    compadd \"$@\" -a names
}

";

/// Writes the completions for a shell.
pub fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::to_complete(), "acp-tether", &mut script);
    let Ok(script) = String::from_utf8(script) else { return ExitCode::FAILURE };
    let script = match shell {
        Shell::Bash => with_names_in_bash(&consistent(&script)),
        Shell::Zsh => with_names_in_zsh(&script),
        Shell::Fish => script + &names_in_fish(),
        _ => script,
    };
    written(script.as_bytes())
}

/// For bash, clap_complete takes the dash in our name for the start of a subcommand where it completes, and
/// not where it finds out what to complete. Where it does the same in both places this changes nothing of
/// what the script does.
fn consistent(script: &str) -> String {
    script.replace("acp__subcmd__tether", "acp__tether")
}

/// The names of remotes in the place of the flags, where what is typed is none.
fn with_names_in_bash(script: &str) -> String {
    let lines = script.lines().map(|line| {
        let is_of_connect = line.trim_start().starts_with("opts=") && line.contains(" --header ");
        match is_of_connect {
            true => format!(
                "{line}\n            [[ ${{cur}} == -* ]] || opts=\"$({NAMES} | grep -v '[^[:alnum:]_.-]')\"\n"
            ),
            false => format!("{line}\n"),
        }
    });
    lines.collect()
}

fn with_names_in_zsh(script: &str) -> String {
    let lines = script.lines().map(|line| match line.starts_with(ZSH_URL) {
        true => line.replace(":_default'", ":_acp-tether_remotes'"),
        false => line.to_owned(),
    });
    let script = lines.collect::<Vec<_>>().join("\n") + "\n";
    script.replacen("_acp-tether() {", &format!("{ZSH_NAMES}_acp-tether() {{"), 1)
}

fn names_in_fish() -> String {
    let places = ["connect", "doctor", "config; and __fish_seen_subcommand_from show"];
    let lines = places.map(|place| {
        format!(
            "complete -c acp-tether -n \"__fish_acp_tether_using_subcommand {place}\" -f -a '({NAMES})'\n"
        )
    });
    lines.concat()
}

/// Writes the manual's page of the command that `path` names.
pub fn man(path: &[String]) -> ExitCode {
    let mut cli = Cli::to_complete();
    // Gives each command its whole name.
    cli.build();
    let found = path.iter().try_fold(&cli, |command, name| command.find_subcommand(name));
    let Some(command) = found.cloned() else {
        let text = format!("there is no command `{}`", printable(&path.join(" ")));
        cli.error(ErrorKind::InvalidSubcommand, text).exit();
    };
    let mut page = Vec::new();
    let source = concat!("acp-tether ", env!("CARGO_PKG_VERSION"));
    match clap_mangen::Man::new(command).source(source).render(&mut page) {
        Ok(()) => written(&unhyphenated(page)),
        Err(_) => ExitCode::FAILURE,
    }
}

/// A page whose URLs and flags can be copied: words are not divided at the ends of lines.
fn unhyphenated(page: Vec<u8>) -> Vec<u8> {
    let at = page.windows(4).position(|line| line == b"\n.SH").unwrap_or(0);
    [&page[..at], b"\n.nh", &page[at..]].concat()
}
