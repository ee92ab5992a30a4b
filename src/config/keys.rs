//! Decides what a remote of the configuration file, and the environment, can say: one key for every
//! flag of `connect`, by the flag's own name.

use super::{endpoint, header, loopback};
use crate::cli::{self, Connect};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use std::any::TypeId;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The flag that says where the file is, which the file cannot say.
pub const CONFIG: &str = "config";
/// The key of the URL, which is no flag.
pub const URL: &str = "url";
/// The flag of one header; in the file, [`HEADERS`] is a table of them.
pub const HEADER: &str = "header";
/// The flag of the variable that holds a token.
pub const BEARER_ENV: &str = "bearer-env";
/// The flag of the command that prints a token.
pub const BEARER_COMMAND: &str = "bearer-command";
/// The flag of a proxy, whose URL may hold a password.
pub const PROXY: &str = "proxy";
/// The flag of the certificate that says who we are.
pub const CLIENT_CERT: &str = "client-cert";
/// The flag of its key, where that stands in another file.
pub const CLIENT_KEY: &str = "client-key";
/// The flag of hosts whose certificates are not checked.
pub const INSECURE: &str = "insecure";
/// The flag of the file of the log.
pub const LOG_FILE: &str = "log-file";
/// The flag of the file of a recording, or of a directory for several.
pub const RECORD: &str = "record";
/// The table of headers of a remote.
pub const HEADERS: &str = "headers";

/// What one layer says of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key. Of headers, each is a setting of its own.
    pub key: String,
    /// The value; `true` or `false` for a flag that has none.
    pub value: OsString,
    /// Where it comes from.
    pub source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The command line.
    Flag,
    /// This environment variable.
    Variable(String),
    /// This line of the configuration file.
    File(usize),
    /// Nobody said anything.
    Default,
}

impl Setting {
    /// The header's name, where it is one.
    pub fn header(&self) -> Option<&str> {
        let value = (self.key == HEADER).then(|| self.value.to_str())??;
        value.split(':').next().map(str::trim)
    }

    /// As the file names it.
    pub fn shown_key(&self) -> String {
        self.header().map_or_else(|| self.key.clone(), |name| format!("{HEADERS}.{name}"))
    }
}

/// The keys, as clap knows them.
#[derive(Debug)]
pub(crate) struct Keys {
    strict: Command,
    /// The same, where no flag needs another.
    lenient: Command,
}

impl Keys {
    /// All of them.
    pub fn new() -> Self {
        let command = Command::new("connect").bin_name("acp-tether connect").no_binary_name(true);
        let mut strict = Connect::augment_args(command).disable_help_flag(true);
        let mut lenient = cli::without_requirements(strict.clone());
        strict.build();
        lenient.build();
        Self { strict, lenient }
    }

    /// What clap knows of each.
    pub fn all(&self) -> impl Iterator<Item = &Arg> {
        self.strict.get_arguments().filter(|key| name(key) != CONFIG)
    }

    /// The key of this name.
    pub fn find(&self, wanted: &str) -> Option<&Arg> {
        self.all().find(|key| name(key) == wanted)
    }

    /// Keys that are one choice together with this one, itself included.
    pub fn choice(&self, key: &Arg) -> Vec<&str> {
        let mut choices = self.strict.get_groups().filter(|group| !(*group).clone().is_multiple());
        let choice = choices.find(|choice| choice.get_args().any(|id| id == key.get_id()));
        let is_of_it = |other: &&Arg| match choice {
            Some(choice) => choice.get_args().any(|id| id == other.get_id()),
            None => other.get_id() == key.get_id(),
        };
        self.all().filter(is_of_it).map(name).collect()
    }

    /// Reads settings as if they had been typed.
    ///
    /// # Errors
    /// They do not go together.
    pub fn parse(&self, settings: &[Setting]) -> Result<Connect, clap::Error> {
        let matches = self.strict.clone().try_get_matches_from(self.words(settings))?;
        Connect::from_arg_matches(&matches)
    }

    /// The same, where no flag needs another; `None` where even so they do not go together.
    pub fn parse_leniently(&self, settings: &[Setting]) -> Option<Connect> {
        let matches = self.lenient.clone().try_get_matches_from(self.words(settings)).ok()?;
        Connect::from_arg_matches(&matches).ok()
    }

    /// Whether a value can be used, whatever else is said and whatever the environment is.
    ///
    /// # Errors
    /// What is allowed, without the value.
    pub fn check(&self, key: &Arg, value: &str) -> Result<(), String> {
        let word = name(key);
        if value.is_empty() {
            return Err("it is empty: give a value, or leave it out".to_owned());
        }
        if is_switch(key) {
            let is_one = matches!(value, "true" | "false");
            return if is_one { Ok(()) } else { Err("write true or false".to_owned()) };
        }
        let problem = match word {
            URL => endpoint(value, None).err(),
            HEADER => header(1, value, &|_| Ok(String::new())).err(),
            "api" => loopback(value, None).err(),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(problem.beside_key());
        }
        let mut words = vec![argument(word, OsStr::new(value))];
        if word != URL {
            words.push(OsString::from("http://any"));
        }
        let parsed = self.lenient.clone().try_get_matches_from(words);
        parsed.map(drop).map_err(|error| reason(&error))
    }

    fn words(&self, settings: &[Setting]) -> Vec<OsString> {
        let is_switch = |key: &str| self.find(key).is_some_and(is_switch);
        let flags = settings.iter().filter(|setting| setting.key != URL);
        let words = flags.filter_map(|Setting { key, value, .. }| match is_switch(key) {
            true => (value == "true").then(|| OsString::from(format!("--{key}"))),
            false => Some(argument(key, value)),
        });
        let urls = settings.iter().filter(|setting| setting.key == URL);
        let urls = urls.map(|url| url.value.clone());
        words.chain([OsString::from("--")]).chain(urls).collect()
    }
}

/// The name of a key.
pub fn name(key: &Arg) -> &str {
    key.get_long().unwrap_or(key.get_id().as_str())
}

/// Whether a flag has no value: it is there or not.
pub fn is_switch(key: &Arg) -> bool {
    matches!(key.get_action(), ArgAction::SetTrue)
}

/// Whether any text is a value: then a number is a mistake.
pub fn is_text(key: &Arg) -> bool {
    let kind = key.get_value_parser().type_id();
    kind == TypeId::of::<String>() || kind == TypeId::of::<PathBuf>()
}

/// Of these, the one that was probably meant, as a remark.
pub fn suggestion<'a>(wrong: &str, right: impl IntoIterator<Item = &'a str>) -> String {
    let ranked =
        right.into_iter().map(|name| (strsim::jaro_winkler(&wrong.to_lowercase(), name), name));
    let best = ranked.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let near = best.filter(|(nearness, _)| *nearness > 0.75);
    near.map(|(_, name)| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

fn argument(key: &str, value: &OsStr) -> OsString {
    let mut word = match key {
        URL => OsString::new(),
        _ => OsString::from(format!("--{key}=")),
    };
    word.push(value);
    word
}

/// What clap says of a value, without the value.
fn reason(error: &clap::Error) -> String {
    if let Some(reason) = error.source() {
        return reason.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => format!("write one of {}", values.join(", ")),
        _ => "this value cannot be used".to_owned(),
    }
}

/// What clap says of flags that do not go together, which shows no value.
pub(super) fn told(error: &clap::Error) -> String {
    let told = error.to_string();
    let told = told.split("\n\n").next().unwrap_or_default();
    let told = told.strip_prefix("error: ").unwrap_or(told);
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}
