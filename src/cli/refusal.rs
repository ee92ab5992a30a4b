//! Decides what is shown of words that the command line does not know: they may be a secret (X1) that lost its
//! quotes, and they may hold what does something to a terminal.

use crate::printable::printable;
use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What stands for a word that is not shown.
const HIDDEN: &str = "…";

/// The contexts that hold what was typed.
const TYPED: [ContextKind; 3] =
    [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];

/// The longest word that may be a command with a slip in it.
const LONGEST: usize = 12;

/// The same error, as it may be shown.
pub fn shown(mut error: Error) -> Error {
    for kind in TYPED {
        let Some(ContextValue::String(word)) = error.get(kind) else { continue };
        let tip = match (error.kind(), kind) {
            (ErrorKind::UnknownArgument, ContextKind::InvalidArg) if !is_flag(word) => {
                "put a value that has spaces in quotes: --header 'NAME: VALUE'"
            }
            (ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand) if !is_command(word) => {
                "a command comes first: acp-tether connect URL"
            }
            _ => {
                let word = printable(word);
                error.insert(kind, ContextValue::String(word));
                continue;
            }
        };
        error.insert(kind, ContextValue::String(HIDDEN.to_owned()));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Whether a word looks like a flag.
fn is_flag(word: &str) -> bool {
    let is_long = word.strip_prefix("--").is_some_and(is_name);
    is_long || word.len() == 2 && word.starts_with('-')
}

/// Whether a word looks like a command.
fn is_command(word: &str) -> bool {
    word.len() <= LONGEST && is_name(word)
}

fn is_name(word: &str) -> bool {
    word.chars().all(|char| char.is_ascii_lowercase() || char == '-')
}
