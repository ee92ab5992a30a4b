//! Decides what is shown of words that the command line does not know: they may be a secret (X1) that lost its
//! quotes, and they may hold what does something to a terminal.

use super::Cli;
use crate::config::keys::HEADER;
use crate::printable::printable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

/// What stands for a word that is not shown.
const HIDDEN: &str = "…";

/// The contexts that hold what was typed.
const TYPED: [ContextKind; 3] =
    [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];

/// The longest word that may be a command with a slip in it.
const LONGEST: usize = 12;

/// By how much a flag with a slip in it may be longer than the right one: more may be its value.
const SLIP: usize = 2;

/// The same error, as it may be shown.
pub fn shown(mut error: Error) -> Error {
    for kind in TYPED {
        let Some(ContextValue::String(word)) = error.get(kind) else { continue };
        let word = printable(word);
        let tip = match (error.kind(), kind) {
            (ErrorKind::UnknownArgument, ContextKind::InvalidArg) if word.starts_with('-') => {
                if is_flag(&word) || is_slip(&word, &error) {
                    continue;
                }
                None
            }
            (ErrorKind::UnknownArgument, ContextKind::InvalidArg) if takes_headers(&error) => {
                Some("put a value that has spaces in quotes: --header 'NAME: VALUE'")
            }
            (ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand)
                if !is_command(&word) =>
            {
                Some("a command comes first: acp-tether connect URL")
            }
            _ => {
                error.insert(kind, ContextValue::String(word));
                continue;
            }
        };
        error.insert(kind, ContextValue::String(HIDDEN.to_owned()));
        let tips = tip.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Whether a word looks like a flag.
fn is_flag(word: &str) -> bool {
    let is_long = word.strip_prefix("--").is_some_and(is_name);
    is_long || word.len() == 2
}

/// Whether a word is a flag but for a slip, and holds nothing behind it.
fn is_slip(word: &str, error: &Error) -> bool {
    let Some(ContextValue::String(right)) = error.get(ContextKind::SuggestedArg) else {
        return false;
    };
    let is_letter = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    word.len() <= right.len() + SLIP && word.chars().all(is_letter)
}

/// Whether the command that was typed has `--header`. Its usage begins with its name.
fn takes_headers(error: &Error) -> bool {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return false };
    let mut command = Cli::command();
    for word in usage.to_string().split_whitespace() {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner.clone();
        }
    }
    command.get_arguments().any(|flag| flag.get_long() == Some(HEADER))
}

/// Whether a word looks like a command.
fn is_command(word: &str) -> bool {
    word.len() <= LONGEST && is_name(word)
}

fn is_name(word: &str) -> bool {
    word.chars().all(|char| char.is_ascii_lowercase() || char == '-')
}
