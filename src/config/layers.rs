//! Decides which of flag, environment variable, configuration file and default each value of `connect`
//! comes from: the first of them that says anything.

use super::file::{self, Problem, Remote};
use super::keys::{
    self, BEARER_COMMAND, CLIENT_CERT, CLIENT_KEY, CONFIG, HEADER, Keys, PROXY, Setting, Source,
    URL, suggestion,
};
use super::proxy::is_loopback;
use super::{Config, Environment, SAME, Unusable, exposed_headers, proxy, repeated};
use crate::cli::Connect;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches};
use std::env::VarError;
use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the names of our environment variables begin with.
const PREFIX: &str = "ACP_TETHER_";

/// The longest name or host that is told: most tokens are longer.
const LONGEST_SHOWN: usize = 30;

/// What `connect` is told, and by what.
#[derive(Debug)]
pub struct Effective {
    /// The flags as if all of it had been typed.
    pub flags: Connect,
    /// What was said, and where; defaults are not among it.
    pub settings: Vec<Setting>,
    /// The configuration file, where it was read.
    pub file: Option<PathBuf>,
    /// What works, and should not stay so.
    warnings: Vec<String>,
}

/// Why there is nothing to do.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// What was typed is wrong.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The environment or the file.
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Puts the layers together, and finds out what they mean; the warnings of both are in the [`Config`].
/// `command` is what was typed before the rest. Wrong usage ends the process.
///
/// # Errors
/// The environment or the file cannot be used.
pub fn read(command: &str, typed: &ArgMatches) -> Result<(Effective, Config), Unusable> {
    let environment: Environment<'_> = &|name| std::env::var(name);
    let mut effective =
        effective(command, typed, environment).map_err(|refused| match refused {
            Refused::Usage(error) => error.exit(),
            Refused::Unusable(problem) => problem,
        })?;
    let mut config = Config::new(&effective.flags, environment);
    config.warnings.append(&mut effective.warnings);
    Ok((effective, config))
}

/// Puts the layers together.
fn effective(
    command: &str,
    typed: &ArgMatches,
    environment: Environment<'_>,
) -> Result<Effective, Refused> {
    let keys = Keys::new();
    let typed = Typed::new(typed, &keys);
    let variables = variables(&keys, environment)?;
    let named = match typed.target.to_str() {
        Some(target) if target.contains("://") => None,
        _ => Some(named(command, &typed, &keys, environment)?),
    };
    let (file, settings) = named.unzip();
    let url = match &file {
        None => vec![typed.url()],
        Some(_) => Vec::new(),
    };
    let mut warnings = exposed_headers(typed.values(HEADER));
    warnings.extend(typed.values(PROXY).find_map(proxy::exposed));
    let layers = [[url, typed.settings.clone()].concat(), variables, settings.unwrap_or_default()];
    let settings = merged(&keys, layers);
    match keys.parse(&settings) {
        Ok(flags) => Ok(Effective { flags, settings, file, warnings }),
        Err(problem) => {
            // What is wrong without the other layers, too, is wrong usage.
            keys.parse(&[vec![typed.url()], typed.settings].concat())?;
            Err(unfit(&problem).into())
        }
    }
}

/// What stands on the command line.
struct Typed {
    /// A URL or a name.
    target: OsString,
    config: Option<PathBuf>,
    settings: Vec<Setting>,
}

impl Typed {
    fn new(matches: &ArgMatches, keys: &Keys) -> Self {
        let raw = |id: &str| matches.get_raw(id).into_iter().flatten().map(OsString::from);
        let is_typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let typed = keys.all().filter(|key| keys::name(key) != URL);
        let typed = typed.filter(|key| is_typed(key.get_id().as_str()));
        let settings = typed.flat_map(|key| {
            let values: Vec<_> = match keys::is_switch(key) {
                true => vec![OsString::from("true")],
                false => raw(key.get_id().as_str()).collect(),
            };
            let key = keys::name(key);
            values.into_iter().map(|value| setting(key, value, Source::Flag))
        });
        Self {
            target: raw(URL).next().unwrap_or_default(),
            config: raw(CONFIG).next().map(PathBuf::from),
            settings: settings.collect(),
        }
    }

    fn url(&self) -> Setting {
        setting(URL, self.target.clone(), Source::Flag)
    }

    fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        let settings = self.settings.iter().filter(move |setting| setting.key == key);
        settings.filter_map(|setting| setting.value.to_str())
    }

    /// Whether the target may be what is left of a value that lost its quotes: of a header, or of a command
    /// that prints a token.
    fn may_be_torn(&self) -> bool {
        self.values(HEADER).any(|header| header.trim_end().ends_with(':'))
            || self.values(BEARER_COMMAND).any(|command| !command.contains(char::is_whitespace))
    }
}

fn setting(key: &str, value: OsString, source: Source) -> Setting {
    Setting { key: key.to_owned(), value, source }
}

/// The environment variable of a flag.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('-', "_").to_ascii_uppercase())
}

/// A variable's value; one that is empty is not set.
fn look_up(variable: &str, environment: Environment<'_>) -> Result<Option<String>, Unusable> {
    match environment(variable) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Unusable::Layers(format!("the environment variable {variable} is not UTF-8")))
        }
    }
}

/// What the environment says.
fn variables(keys: &Keys, environment: Environment<'_>) -> Result<Vec<Setting>, Unusable> {
    let mut settings: Vec<Setting> = Vec::new();
    for key in keys.all().filter(|key| keys::name(key) != URL) {
        let name = keys::name(key);
        let variable = variable(name);
        let Some(value) = look_up(&variable, environment)? else { continue };
        let choice = keys.choice(key);
        let first = settings.iter().find(|first| choice.contains(&first.key.as_str()));
        if let Some(Setting { source: Source::Variable(first), .. }) = first {
            return Err(Unusable::Layers(format!(
                "the environment variables {first} and {variable} are one choice: unset one of them"
            )));
        }
        // No header and no path of a reasonable person holds a line break.
        let lines: Vec<_> = match key.get_action() {
            ArgAction::Append => value.lines().filter(|line| !line.trim().is_empty()).collect(),
            _ => vec![value.as_str()],
        };
        let wrong = |why| Unusable::Layers(format!("the environment variable {variable}: {why}"));
        if let (HEADER, Some((one, other))) = (name, repeated(lines.iter().copied())) {
            return Err(wrong(format!("{one} and {other} {SAME}")));
        }
        for value in lines {
            keys.check(key, value).map_err(wrong)?;
            let source = Source::Variable(variable.clone());
            settings.push(setting(name, OsString::from(value), source));
        }
    }
    Ok(settings)
}

/// Which file is read.
///
/// # Errors
/// None can be.
pub(crate) fn path(
    typed: Option<PathBuf>,
    environment: Environment<'_>,
) -> Result<PathBuf, Unusable> {
    let chosen = match typed {
        None => look_up(&variable(CONFIG), environment)?.map(PathBuf::from),
        typed => typed,
    };
    chosen.or_else(file::usual_path).ok_or_else(|| {
        let text = "there is no home directory with a configuration file: name one with --config";
        Unusable::Layers(text.to_owned())
    })
}

/// The file, and what it says of the remote of this name.
fn named(
    command: &str,
    typed: &Typed,
    keys: &Keys,
    environment: Environment<'_>,
) -> Result<(PathBuf, Vec<Setting>), Unusable> {
    let word = &typed.target.to_string_lossy();
    let target = Name { command, word, is_shown: is_plain(word) && !typed.may_be_torn() };
    let path = path(typed.config.clone(), environment).map_err(|problem| target.lost(problem))?;
    let file = file::read(&path, keys).map_err(|problem| target.lost(problem.of(&path)))?;
    if !file.problems.is_empty() {
        return Err(all(&path, &file.problems));
    }
    let Some(remote) = file.remotes.iter().find(|remote| remote.name == *target.word) else {
        return Err(target.unknown(&path, &file.remotes));
    };
    if !remote.problems.is_empty() {
        return Err(all(&path, &remote.problems));
    }
    Ok((path, remote.settings.clone()))
}

/// A word that is no URL.
struct Name<'a> {
    /// What it was typed behind.
    command: &'a str,
    word: &'a str,
    /// Whether it is nothing that may be a secret (X1).
    is_shown: bool,
}

impl Name<'_> {
    /// As it may be told.
    fn shown(&self) -> String {
        match self.is_shown {
            true => format!("`{}`", self.word),
            false => format!("what follows `{}`", self.command),
        }
    }

    /// No file can be asked for it.
    fn lost(&self, why: impl Display) -> Unusable {
        let shown = self.shown();
        let host = address(self.word).filter(|_| self.is_shown);
        Unusable::Layers(if let Some(host) = host {
            let is_here = is_loopback(host.trim_matches(['[', ']']));
            let scheme = if is_here { "http" } else { "https" };
            format!(
                "write {scheme}://{} if {shown} is meant to be a URL; it is none, and {why}",
                self.word
            )
        } else if self.word.contains(['.', ':', '/']) {
            format!(
                "write https://HOST/PATH if {shown} is meant to be a URL; it is none, and {why}"
            )
        } else {
            format!(
                "{shown} is no URL, and {why}; if it is meant to be one, write it as https://HOST/PATH"
            )
        })
    }

    fn unknown(&self, path: &Path, remotes: &[Remote]) -> Unusable {
        let names: Vec<_> = remotes.iter().map(|remote| remote.name.as_str()).collect();
        let all = match names.is_empty() {
            true => "has no remotes".to_owned(),
            false => format!("has only {}", names.join(", ")),
        };
        let near = suggestion(self.word, names);
        self.lost(format_args!("{} {all}{near}", path.display()))
    }
}

/// Whether a word is plainly a name or a host, with or without a port: tokens are longer, or have capitals.
fn is_plain(word: &str) -> bool {
    let host = without_port(word);
    let is_letter = |char: char| {
        char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '_' | '.')
    };
    let is_word = (1..=LONGEST_SHOWN).contains(&host.len()) && host.chars().all(is_letter);
    is_word || word.parse::<SocketAddr>().is_ok()
}

/// The host of a word that is one, if a scheme is put before it.
fn address(word: &str) -> Option<&str> {
    let host = without_port(word);
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|char| char.is_alphanumeric() || char == '-')
    };
    let is_host = host.split('.').all(is_part) && (host.contains('.') || host != word);
    (is_host || word.parse::<SocketAddr>().is_ok()).then_some(host)
}

/// What stands before a port, where one does.
fn without_port(word: &str) -> &str {
    let parts = word.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    parts.map_or(word, |(host, _)| host)
}

/// The first problem, and how many there are.
fn all(path: &Path, problems: &[Problem]) -> Unusable {
    let first = problems.iter().take(1).map(|problem| problem.of(path).to_string());
    let more = match problems.len() {
        0 | 1 => None,
        count => Some(format!(" (and {} more: see `acp-tether config check`)", count - 1)),
    };
    Unusable::Layers(first.chain(more).collect())
}

/// Of each key, what the first layer says that says anything of it or of its choice. Headers are one
/// choice for each name; that of the credential is one with the flags of tokens, and a certificate
/// comes with its own key.
fn merged(keys: &Keys, layers: [Vec<Setting>; 3]) -> Vec<Setting> {
    let mut merged: Vec<Setting> = Vec::new();
    for layer in layers {
        let is_said = |setting: &Setting| {
            let key = keys.find(&setting.key);
            let choice = key.map(|key| keys.choice(key)).unwrap_or_default();
            merged.iter().any(|said| match (said.header(), setting.header()) {
                (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
                _ if is_credential(said) && is_credential(setting) => true,
                _ if said.key == CLIENT_CERT => [CLIENT_CERT, CLIENT_KEY].contains(&&*setting.key),
                _ => choice.contains(&said.key.as_str()),
            })
        };
        let new: Vec<_> = layer.into_iter().filter(|setting| !is_said(setting)).collect();
        merged.extend(new);
    }
    merged
}

/// Says who sends.
fn is_credential(setting: &Setting) -> bool {
    let header = setting.header();
    setting.key.starts_with("bearer-")
        || header.is_some_and(|name| name.eq_ignore_ascii_case("authorization"))
}

/// Layers that are right alone and do not go together.
fn unfit(problem: &clap::Error) -> Unusable {
    Unusable::Layers(format!(
        "flags, environment variables and configuration file do not go together: {}",
        keys::told(problem)
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::fitting;
    use super::*;
    use crate::cli::{Cli, HttpVersion};
    use crate::core::Millis;
    use std::fs;

    const FILE: &str = r#"
        [remotes.work]
        url = "https://work.example.com"
        hold = "3s"
        http = "1.1"
        record-content = true
        record = "/file"
        bearer-command = "file"
        headers = { X-A = "file", X-B = "file", x-c = "${C}" }
        [remotes.home]
        url = "https://home.example.com"
        [remotes.broken]
        url = "https://broken.example.com"
        hold = 1
        http = 7
        log-file = 7
    "#;

    /// What `acp-tether connect WORDS` is told with these variables and that file.
    fn told(words: &[&str], variables: &[(&str, &str)]) -> Result<Effective, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        fs::write(&path, FILE).unwrap();
        let path = path.to_str().unwrap();
        let start = ["acp-tether", "connect", "--config", path];
        let words = start.iter().chain(words);
        let matches = Cli::to_complete().try_get_matches_from(words).unwrap();
        let environment = |name: &str| match variables.iter().find(|(set, _)| *set == name) {
            Some((_, "no text")) => Err(VarError::NotUnicode(OsString::new())),
            Some((_, value)) => Ok((*value).to_owned()),
            None => Err(VarError::NotPresent),
        };
        let told =
            effective("connect", matches.subcommand_matches("connect").unwrap(), &environment);
        told.map_err(|refused| refused.to_string().replace(path, "FILE"))
    }

    fn flags(words: &[&str], variables: &[(&str, &str)]) -> Connect {
        told(words, variables).unwrap().flags
    }

    #[test]
    fn a_flag_comes_before_a_variable_before_the_file_before_the_default() {
        let variable = [("ACP_TETHER_HOLD", "2s")];
        assert_eq!(flags(&["work", "--hold", "1s"], &variable).hold, Millis(1_000));
        assert_eq!(flags(&["work"], &variable).hold, Millis(2_000));
        assert_eq!(flags(&["work"], &[("ACP_TETHER_HOLD", "")]).hold, Millis(3_000));
        assert_eq!(flags(&["work"], &[]).hold, Millis(3_000));
        assert_eq!(flags(&["home"], &[]).hold, Millis(30_000));
        assert_eq!(flags(&["http://a"], &variable).hold, Millis(2_000));
    }

    #[test]
    fn a_flag_that_says_what_is_the_default_comes_before_the_file() {
        assert_eq!(flags(&["work", "--hold", "30s", "--http=auto"], &[]).hold, Millis(30_000));
        assert_eq!(flags(&["work", "--http=auto"], &[]).http, HttpVersion::Auto);
        assert_eq!(flags(&["work"], &[]).http, HttpVersion::Http1);
    }

    #[test]
    fn every_flag_but_the_url_has_a_variable_and_a_key() {
        let keys = Keys::new();
        for key in keys.all().filter(|key| keys::name(key) != URL) {
            let name = keys::name(key);
            let one = key.get_possible_values();
            let value = match (one.first(), name) {
                (Some(value), _) => value.get_name(),
                (_, HEADER) => "X-A: 1",
                (_, "api") => "off",
                _ if keys::is_switch(key) => "true",
                _ if keys.check(key, "5s").is_ok() => "5s",
                _ => "5MiB",
            };
            let variable = variable(name);
            let environment = |asked: &str| match asked == variable {
                true => Ok(value.to_owned()),
                false => Err(VarError::NotPresent),
            };
            let settings = variables(&keys, &environment).unwrap();
            let source = Source::Variable(variable.clone());
            assert_eq!(settings, [setting(name, OsString::from(value), source)], "{name}");
        }
    }

    #[test]
    fn the_bearer_flags_are_one_choice_of_the_first_layer_that_makes_it() {
        let variable = [("ACP_TETHER_BEARER_FILE", "variable")];
        let chosen = |flags: Connect| {
            let bearer = flags.bearer;
            (bearer.variable, bearer.file.map(|_| ()), bearer.command)
        };
        let typed = chosen(flags(&["work", "--bearer-env", "TYPED"], &variable));
        assert_eq!(typed, (Some("TYPED".to_owned()), None, None));
        assert_eq!(chosen(flags(&["work"], &variable)), (None, Some(()), None));
        assert_eq!(chosen(flags(&["work"], &[])), (None, None, Some("file".to_owned())));
        let two = [("ACP_TETHER_BEARER_ENV", "s3cret"), ("ACP_TETHER_BEARER_FILE", "s3cret")];
        assert_eq!(
            told(&["work"], &two).unwrap_err(),
            "the environment variables ACP_TETHER_BEARER_ENV and ACP_TETHER_BEARER_FILE are one \
             choice: unset one of them"
        );
    }

    #[test]
    fn a_layer_that_says_who_we_are_says_all_of_it() {
        let typed = flags(&["work", "--header", "authorization: Basic typed"], &[]);
        assert_eq!(
            (typed.bearer.command, typed.headers[0].as_str()),
            (None, "authorization: Basic typed")
        );
        let variables = [
            ("ACP_TETHER_CLIENT_CERT", "below.pem"),
            ("ACP_TETHER_CLIENT_KEY", "below.key"),
            ("ACP_TETHER_HEADER", "Authorization: below"),
        ];
        let words = ["work", "--client-cert", "typed.both", "--bearer-env", "TYPED"];
        let Connect { network, headers, .. } = flags(&words, &variables);
        let pair = (network.client_cert.unwrap(), network.client_key);
        assert_eq!(pair, (PathBuf::from("typed.both"), None));
        assert!(headers.iter().all(|header| !header.contains("below")), "{headers:?}");
        let below = flags(&["work"], &variables).network;
        assert_eq!(below.client_key, Some(PathBuf::from("below.key")));
    }

    #[test]
    fn a_header_is_added_and_takes_the_place_of_one_of_its_name_below() {
        let words = ["work", "--header", "x-a: typed", "--header", "X-D: typed"];
        let variable = [("ACP_TETHER_HEADER", "X-A: variable\n\nX-B: variable\n")];
        let headers = flags(&words, &variable).headers;
        assert_eq!(headers, ["x-a: typed", "X-D: typed", "X-B: variable", "x-c: ${C}"]);
    }

    #[test]
    fn a_header_that_one_layer_says_twice_is_refused_with_both_names() {
        for (one, other) in [("X-A", "x-a"), ("Authorization", "authorization"), ("Host", "Host")] {
            let (first, second) = (format!("{one}: s3cret"), format!("{other}: s3cret"));
            let same =
                format!("{one} and --header {other} are the same header: leave one of them out");
            let typed = flags(&["work", "--header", &first, "--header", &second], &[]);
            let problem = fitting(&typed).unwrap_err().to_string();
            assert_eq!(problem, format!("--header {same}"));
            let lines = format!("{first}\n{second}");
            let variable = [("ACP_TETHER_HEADER", &*lines)];
            let problem = told(&["work"], &variable).unwrap_err();
            let same = same.replace("--header ", "");
            assert_eq!(problem, format!("the environment variable ACP_TETHER_HEADER: {same}"));
        }
    }

    #[test]
    fn a_switch_of_the_file_can_be_turned_off_by_a_variable() {
        assert!(flags(&["work"], &[]).record_content);
        assert!(!flags(&["work"], &[("ACP_TETHER_RECORD_CONTENT", "false")]).record_content);
    }

    #[test]
    fn what_a_flag_needs_may_stand_in_another_layer_and_must_stand_in_one() {
        assert!(flags(&["work", "--record-content"], &[]).record_content);
        assert!(flags(&["home", "--record-content"], &[("ACP_TETHER_RECORD", "r")]).record_content);
        let usage = told(&["home", "--record-content"], &[]).unwrap_err();
        assert!(usage.contains("Usage: "), "{usage}");
        let unfit = told(&["home"], &[("ACP_TETHER_RECORD_CONTENT", "true")]).unwrap_err();
        assert!(unfit.starts_with("flags, environment variables and configuration file do not"));
        assert!(unfit.ends_with("--record <FILE>"), "{unfit}");
    }

    #[test]
    fn a_url_needs_no_file() {
        let words = ["acp-tether", "connect", "--config", "/none/none", "http://a"];
        let matches = Cli::to_complete().try_get_matches_from(words).unwrap();
        let typed = matches.subcommand_matches("connect").unwrap();
        let told = effective("connect", typed, &|_| Err(VarError::NotPresent)).unwrap();
        assert_eq!((told.flags.url.as_str(), told.file), ("http://a", None));
    }

    #[test]
    fn x1_a_word_that_is_no_url_and_no_remote_is_refused_with_what_there_is() {
        const HOW: &str = "; if it is meant to be one, write it as https://HOST/PATH";
        const MEANT: &str = "meant to be a URL; it is none";
        const ALL: &str = "FILE has only work, home, broken";
        let cases = [
            ("wrk", format!("`wrk` is no URL, and {ALL} (did you mean `work`?){HOW}")),
            ("xyz", format!("`xyz` is no URL, and {ALL}{HOW}")),
            ("", format!("what follows `connect` is no URL, and {ALL}{HOW}")),
            (
                "localhost:8080",
                format!("write http://localhost:8080 if `localhost:8080` is {MEANT}, and {ALL}"),
            ),
            (
                "devbox.example:8080",
                format!(
                    "write https://devbox.example:8080 if `devbox.example:8080` is {MEANT}, and {ALL}"
                ),
            ),
            (
                "anna:s3cret@host/acp",
                format!("write https://HOST/PATH if what follows `connect` is {MEANT}, and {ALL}"),
            ),
        ];
        for (word, expected) in cases {
            assert_eq!(told(&[word], &[]).unwrap_err(), expected);
        }
    }

    #[test]
    fn x1_only_a_word_that_is_plainly_a_name_or_a_host_is_shown() {
        for host in ["devbox.example", "devbox:8080", "a.b-c.d:1", "127.0.0.1:80", "[::1]:80"] {
            assert!(is_plain(host) && address(host).is_some(), "{host}");
        }
        for name in ["work", "dev_box", "a..b", "the-agent-of-the-third-floor-1"] {
            assert!(is_plain(name) && address(name).is_none(), "{name}");
        }
        let (long, capital) = ("x".repeat(31), "eyJ0eXAi.eyJzdWIi.sig");
        let tokens =
            ["ghp_16C7e42F292c6912E7", "sk-ant-api03-s3cret-s3cret-s3cret", capital, &long];
        let others = ["", "SUPERSECRET99", "anna:s3cret", "h:70000", "a@b.c", "h.a/s3cret", ":1"];
        for other in tokens.into_iter().chain(others) {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn x1_a_word_behind_a_value_that_lost_its_quotes_is_not_shown() {
        const HIDDEN: &str =
            "what follows `connect` is no URL, and FILE has only work, home, broken";
        for words in [
            ["--header", "X-Api-Key:", "s3cret"],
            ["--header=X-Api-Key: ", "--hold=1s", "s3cret"],
            ["--bearer-command", "echo", "s3cret"],
        ] {
            let told = told(&words, &[]).unwrap_err();
            assert!(told.starts_with(HIDDEN) && !told.contains("s3cret"), "{words:?}: {told}");
        }
        let whole = ["--header", "X-Api-Key: ${KEY}", "--bearer-command", "echo a", "xyz"];
        assert!(told(&whole, &[]).unwrap_err().starts_with("`xyz` is no URL"));
        let host = ["--header", "X-Api-Key:", "s3cret.host"];
        assert!(!told(&host, &[]).unwrap_err().contains("s3cret"));
    }

    #[test]
    fn x1_what_cannot_be_used_is_told_by_where_it_stands() {
        let cases = [
            (("ACP_TETHER_HOLD", "s3cret"), "variable ACP_TETHER_HOLD: expected number at 0"),
            (("ACP_TETHER_HTTP", "s3cret"), "variable ACP_TETHER_HTTP: write one of auto, 1.1, 2"),
            (("ACP_TETHER_HEADER", "s3cret"), "variable ACP_TETHER_HEADER: HTTP does not allow"),
            (("ACP_TETHER_CURSOR_IN_QUERY", "s3cret"), "CURSOR_IN_QUERY: write true or false"),
            (("ACP_TETHER_LOG_FILE", "no text"), "variable ACP_TETHER_LOG_FILE is not UTF-8"),
        ];
        for (variable, expected) in cases {
            let told = told(&["work"], &[variable]).unwrap_err();
            assert!(told.contains(expected) && !told.contains("s3cret"), "{told}");
        }
        let broken = told(&["broken"], &[]).unwrap_err();
        let expected = "FILE:14: `hold`: time unit needed, for example 1sec or 1ms; write a time as \
                        500ms, 30s or 10m (and 2 more: see `acp-tether config check`)";
        assert_eq!(broken, expected);
    }

    #[test]
    fn k93_only_a_secret_that_was_typed_is_in_the_list_of_processes() {
        let variable = [("ACP_TETHER_HEADER", "Authorization: s3cret")];
        assert_eq!(told(&["work"], &variable).unwrap().warnings, [""; 0]);
        let warnings = told(&["work", "--header", "X-Key: s3cret"], &[]).unwrap().warnings;
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("X-Key") && !warning.contains("s3cret"), "{warning}");
    }
}
