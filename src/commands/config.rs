//! `acp-tether config`: tells what is wrong with the configuration file, and what `connect` would do.

use super::table::lines;
use super::written;
use crate::cli::{Check, Config as Words, List, Show};
use crate::config::file::{self, Remote};
use crate::config::keys::{
    self, BEARER_COMMAND, BEARER_ENV, HEADER, INSECURE, Keys, LOG_FILE, PROXY, RECORD, Setting,
    Source, URL,
};
use crate::config::layers::{self, Effective};
use crate::config::tls::Unchecked;
use crate::config::{endpoint, exposed_query, is_usual_name, kind, proxy, redacted, secret_header};
use crate::printable::{printable, printable_json, tell};
use clap::ArgMatches;
use reqwest::Url;
use serde_json::{Value, json};
use std::env::VarError;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the command; `typed` is what stands behind it.
pub fn run(words: &Words, typed: &ArgMatches) -> ExitCode {
    let result = match words {
        Words::Check(flags) => check(flags),
        Words::List(flags) => list(flags),
        Words::Show(flags) => show(flags, typed),
    };
    match result {
        Ok(told) => written(told.as_bytes()),
        Err(problems) => {
            problems.iter().for_each(|problem| tell(problem));
            ExitCode::FAILURE
        }
    }
}

/// What there is to say of a file that can be used, or all its problems.
fn check(flags: &Check) -> Result<String, Vec<String>> {
    let keys = Keys::new();
    let (path, file::File { remotes, mut problems }) = read(flags.config.as_ref(), &keys)?;
    let unchecked = remotes.iter().filter_map(|remote| unchecked(&path, remote));
    let unwritable = remotes.iter().flat_map(|remote| unwritable(&path, remote));
    let warnings = readable_secret(&path, &remotes).into_iter().chain(unchecked).chain(unwritable);
    warnings.for_each(|told| tell(&told));
    problems.extend(remotes.iter().flat_map(|remote| remote.all_problems(&keys)));
    if problems.is_empty() {
        let names: Vec<_> = remotes.iter().map(|remote| remote.name.as_str()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { printable(&names.join(", ")) };
        return Ok(format!("{}: no problems; remotes: {names}\n", path.display()));
    }
    problems.sort_by_key(|problem| problem.line);
    Err(problems.iter().map(|problem| problem.of(&path).to_string()).collect())
}

/// The names of the remotes, those too that have problems.
fn list(flags: &List) -> Result<String, Vec<String>> {
    let (path, file::File { remotes, problems }) = read(flags.config.as_ref(), &Keys::new())?;
    match problems.is_empty() {
        true => Ok(remotes.iter().map(|remote| printable(&remote.name) + "\n").collect()),
        false => Err(problems.iter().map(|problem| problem.of(&path).to_string()).collect()),
    }
}

/// The file that is named, or that of the user.
fn read(named: Option<&PathBuf>, keys: &Keys) -> Result<(PathBuf, file::File), Vec<String>> {
    let one = |problem: &dyn Display| vec![problem.to_string()];
    let path = layers::path(named.cloned(), &environment).map_err(|error| one(&error))?;
    let file = file::read(&path, keys).map_err(|problem| one(&problem.of(&path)))?;
    Ok((path, file))
}

/// Warnings, where the file of a log or a recording could not be made. A path that is relative begins where
/// an editor starts `connect`.
fn unwritable(path: &Path, remote: &Remote) -> impl Iterator<Item = String> {
    remote.settings.iter().filter_map(|setting| {
        let named = Some(Path::new(&setting.value)).filter(|named| named.is_absolute())?;
        let why = match (setting.key.as_str(), named.exists()) {
            (LOG_FILE, true) => {
                let append = |()| File::options().append(true).open(named);
                kind::to_append(named).and_then(append).err()?.to_string()
            }
            (RECORD, true) if named.is_dir() => no_new_file(named)?.to_owned(),
            (RECORD, true) => {
                "it is there already: name a directory, or a file that does not exist yet"
                    .to_owned()
            }
            (LOG_FILE | RECORD, false) => no_new_file(named.parent()?)?.to_owned(),
            _ => return None,
        };
        let place = place(&setting.source, Some(path));
        Some(format!("warning: {place}: `{}`: {why}", setting.key))
    })
}

/// Why no file can be made in a directory.
fn no_new_file(directory: &Path) -> Option<&'static str> {
    if !directory.is_dir() {
        Some("its directory is not there")
    } else if tempfile::tempfile_in(directory).is_err() {
        Some("its directory cannot be written to")
    } else {
        None
    }
}

/// A warning, where a file that holds a secret can be read by others.
fn readable_secret(path: &Path, remotes: &[Remote]) -> Option<String> {
    if !is_open_to_others(path) {
        return None;
    }
    let settings = remotes.iter().flat_map(|remote| &remote.settings);
    let is_secret = |setting: &&Setting| match (setting.key.as_str(), setting.value.to_str()) {
        (HEADER, Some(header)) => secret_header(header).is_some(),
        (PROXY, Some(url)) => proxy::exposed(url).is_some(),
        (URL, Some(url)) => Url::parse(url).is_ok_and(|url| exposed_query(&url).is_some()),
        _ => false,
    };
    let secret = settings.into_iter().find(is_secret)?;
    let instead = match secret.key.as_str() {
        URL => "send it in a header, if the agent allows that: a URL holds no ${NAME}",
        _ => "write ${NAME} for an environment variable",
    };
    Some(format!(
        "warning: {}: others can read this file, and `{}` seems to hold a secret: chmod 600 it, or {instead}",
        place(&secret.source, Some(path)),
        secret.shown_key()
    ))
}

/// The warning of `connect`, where a remote names hosts whose certificates are not checked.
fn unchecked(path: &Path, remote: &Remote) -> Option<String> {
    let hosts = remote.settings.iter().filter(|setting| setting.key == INSECURE);
    let hosts: Vec<_> = hosts.collect();
    let names = hosts.iter().filter_map(|host| host.value.to_str()).map(str::to_owned);
    let warning = Unchecked::of(names).warning()?;
    Some(format!("warning: {}: {warning}", place(&hosts.first()?.source, Some(path))))
}

#[cfg(unix)]
fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

/// What `connect` would be told.
fn show(flags: &Show, typed: &ArgMatches) -> Result<String, Vec<String>> {
    let (effective, config) =
        layers::read("config show", typed).map_err(|it| vec![it.to_string()])?;
    for warning in &config.warnings {
        tell(&format!("warning: {warning}"));
    }
    let told = match flags.json {
        true => json(&effective),
        false => table(&effective),
    };
    match config.settings.unusable {
        None => Ok(told),
        Some(reason) => {
            written(told.as_bytes());
            Err(vec![format!("this cannot be used: {reason}")])
        }
    }
}

/// All values in the order of the flags, with the defaults.
fn values(said: &[Setting]) -> Vec<Setting> {
    let keys = Keys::new();
    let values = keys.all().flat_map(|key| {
        let name = keys::name(key);
        let mut said: Vec<_> = said.iter().filter(|said| said.key == name).cloned().collect();
        if said.is_empty() {
            let defaults = key.get_default_values().iter();
            said.extend(defaults.map(|value| Setting {
                key: name.to_owned(),
                value: value.into(),
                source: Source::Default,
            }));
        }
        said
    });
    values.collect()
}

fn table(effective: &Effective) -> String {
    let heads = ["KEY", "VALUE", "FROM"].map(str::to_owned);
    let rows = values(&effective.settings).into_iter().map(|setting| {
        let from = place(&setting.source, effective.file.as_deref());
        [setting.shown_key(), masked(&setting), from].map(|cell| printable(&cell))
    });
    let rows: Vec<_> = [heads].into_iter().chain(rows).collect();
    lines(&rows).join("\n") + "\n"
}

fn json(effective: &Effective) -> String {
    let values = values(&effective.settings).into_iter().map(|setting| {
        let (from, place) = match &setting.source {
            Source::Flag => ("flag", Value::Null),
            Source::Variable(name) => ("environment", json!({ "variable": name })),
            Source::File(line) => ("file", json!({ "line": line })),
            Source::Default => ("default", Value::Null),
        };
        let mut value =
            json!({ "key": setting.shown_key(), "value": masked(&setting), "from": from });
        if let (Some(value), Value::Object(place)) = (value.as_object_mut(), place) {
            value.extend(place);
        }
        value
    });
    let values: Vec<_> = values.collect();
    let file = effective.file.as_ref().map(|path| path.to_string_lossy());
    printable_json(&json!({ "file": file, "values": values }).to_string()) + "\n"
}

/// Where a value comes from, for a person.
fn place(source: &Source, file: Option<&Path>) -> String {
    match source {
        Source::Flag => "flag".to_owned(),
        Source::Variable(name) => name.clone(),
        Source::File(line) => format!("{}:{line}", file.unwrap_or(Path::new("file")).display()),
        Source::Default => "default".to_owned(),
    }
}

/// A value as it may be shown (X1).
fn masked(setting: &Setting) -> String {
    const HIDDEN: &str = "hidden";
    let value = setting.value.to_string_lossy();
    match (setting.key.as_str(), Url::parse(&value)) {
        (HEADER, _) => HIDDEN.to_owned(),
        (BEARER_COMMAND, _) => match value.split_whitespace().next() {
            Some(program) if !is_word(program) => HIDDEN.to_owned(),
            Some(program) if program == value => value.into_owned(),
            Some(program) => format!("{program} …"),
            None => HIDDEN.to_owned(),
        },
        (BEARER_ENV, _) if !is_usual_name(&value) && environment(&value).is_err() => {
            HIDDEN.to_owned()
        }
        (URL, _) => endpoint(&value, None).map_or(HIDDEN.to_owned(), |url| redacted(&url)),
        (_, Ok(url)) if url.has_host() => redacted(&url),
        (PROXY, _) if value != "off" => HIDDEN.to_owned(),
        _ if value.contains("://") => HIDDEN.to_owned(),
        _ => value.into_owned(),
    }
}

/// A program or its path; anything else may set a variable for the command.
fn is_word(program: &str) -> bool {
    program.chars().all(|char| char.is_alphanumeric() || "_./\\:-~".contains(char))
}

fn environment(name: &str) -> Result<String, VarError> {
    std::env::var(name)
}
