//! Decides what a configuration file says: its remotes with their settings, and every problem with its
//! line. No problem shows a value, which may be a secret (X1).

use super::keys::{
    self, HEADER, HEADERS, INSECURE, Keys, Setting, Source, URL, is_switch, is_text, suggestion,
};
use super::{SAME, kind, misfits};
use crate::printable::is_printable;
use clap::{Arg, ArgAction};
use etcetera::BaseStrategy;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File as Opened;
use std::io::Read;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The largest file that is read.
const LARGEST: usize = 1024 * 1024;
/// The table of remotes, the only one of a file.
const REMOTES: &str = "remotes";

/// What a file says.
#[derive(Debug)]
pub(crate) struct File {
    /// Its remotes, by line.
    pub remotes: Vec<Remote>,
    /// What is wrong with it as a whole.
    pub problems: Vec<Problem>,
}

/// A remote of a file.
#[derive(Debug)]
pub(crate) struct Remote {
    pub name: String,
    pub line: usize,
    /// What can be used of it.
    pub settings: Vec<Setting>,
    /// What cannot.
    pub problems: Vec<Problem>,
}

impl Remote {
    /// What is wrong with it, also where each of its keys is right.
    pub fn all_problems(&self, keys: &Keys) -> Vec<Problem> {
        let told = |line, text| Problem::at(line, format!("[remotes.{}]: {text}", self.name));
        // What is missing may be among what cannot be used.
        let lacking = keys.parse(&self.settings).err().filter(|_| self.problems.is_empty());
        let lacking = lacking.map(|error| told(self.line, keys::told(&error)));
        let misfits = keys.parse_leniently(&self.settings).map(|flags| misfits(&flags));
        // Of headers, each was compared with the others.
        let misfits = misfits.into_iter().flatten().filter(|(key, _)| *key != HEADER);
        let misfits = misfits.map(|(key, problem)| told(self.line_of(key), problem.to_string()));
        self.problems.iter().cloned().chain(lacking).chain(misfits).collect()
    }

    /// Where a key stands, or the remote.
    fn line_of(&self, key: &str) -> usize {
        self.settings.iter().find(|setting| setting.key == key).map_or(self.line, line_of)
    }
}

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where, if it is not the file itself.
    pub line: Option<usize>,
    text: String,
}

impl Problem {
    fn at(line: usize, text: String) -> Self {
        Self { line: Some(line), text }
    }

    /// Told to somebody who may have several files.
    pub fn of<'a>(&'a self, path: &'a Path) -> impl fmt::Display + 'a {
        fmt::from_fn(move |out| {
            write!(out, "{}:", path.display())?;
            if let Some(line) = self.line {
                write!(out, "{line}:")?;
            }
            write!(out, " {}", self.text)
        })
    }
}

/// Where the file of this user is; `None` where there is no home.
pub(crate) fn usual_path() -> Option<PathBuf> {
    let user = etcetera::choose_base_strategy().ok()?;
    Some(user.config_dir().join("acp-tether").join("config.toml"))
}

/// Reads a file.
///
/// # Errors
/// It cannot be read at all.
pub(crate) fn read(path: &Path, keys: &Keys) -> Result<File, Problem> {
    let text = text(path).map_err(|(line, text)| Problem { line, text })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |place: Range<usize>| ends.partition_point(|end| *end < place.start) + 1;
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut file = File { remotes: Vec::new(), problems: Vec::new() };
    if !errors.is_empty() {
        // What was understood of the rest may not be what was meant.
        let problem = |error: &toml::de::Error| Problem {
            line: error.span().map(line),
            text: error.message().to_owned(),
        };
        file.problems.extend(errors.iter().map(problem));
        return Ok(file);
    }
    for (key, value) in document.get_ref() {
        let place = line(key.span());
        match (key.get_ref().as_ref(), value.get_ref()) {
            (REMOTES, DeValue::Table(remotes)) => {
                file.remotes.extend(remotes.iter().map(|(name, value)| {
                    let reading = Reading { keys, line: &line };
                    reading.remote(name.get_ref(), line(name.span()), value.get_ref())
                }));
            }
            (REMOTES, _) => {
                file.problems
                    .push(Problem::at(place, "write remotes as [remotes.NAME]".to_owned()));
            }
            (other, _) => {
                let near = suggestion(other, [REMOTES]);
                let text = format!("the file has tables [remotes.NAME], and no `{other}`{near}");
                file.problems.push(Problem::at(place, text));
            }
        }
    }
    file.remotes.sort_by_key(|remote| remote.line);
    file.problems.sort_by_key(|problem| problem.line);
    Ok(file)
}

/// The text of a file that can be read, and is not too large.
fn text(path: &Path) -> Result<String, (Option<usize>, String)> {
    let refused = |text: String| (None, text);
    let failed = |error: std::io::Error| refused(format!("cannot be read: {error}"));
    kind::to_read(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(LARGEST + 1).unwrap_or(u64::MAX);
    Opened::open(path).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > LARGEST {
        return Err(refused("is larger than 1 MiB".to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "is not UTF-8: save it as UTF-8".to_owned())
    })
}

struct Reading<'a> {
    keys: &'a Keys,
    line: &'a dyn Fn(Range<usize>) -> usize,
}

impl Reading<'_> {
    fn remote(&self, name: &str, line: usize, value: &DeValue<'_>) -> Remote {
        let mut remote =
            Remote { name: name.to_owned(), line, settings: Vec::new(), problems: Vec::new() };
        let DeValue::Table(table) = value else {
            let text = format!("write `{name}` as a table, [remotes.NAME], with a url");
            remote.problems.push(Problem::at(line, text));
            return remote;
        };
        if let Some(why) = unfit_name(name) {
            remote.problems.push(Problem::at(line, format!("{why}: choose another")));
        }
        for (key, value) in table {
            self.key(&mut remote, key.get_ref(), (self.line)(key.span()), value);
        }
        if !table.iter().any(|(key, _)| key.get_ref() == URL) {
            let text = format!("[remotes.{name}] has no url: add url = \"https://HOST/PATH\"");
            remote.problems.push(Problem::at(line, text));
        }
        remote.settings.sort_by_key(line_of);
        self.choices(&mut remote);
        remote.problems.sort_by_key(|problem| problem.line);
        remote
    }

    fn key(&self, remote: &mut Remote, key: &str, line: usize, value: &Spanned<DeValue<'_>>) {
        if key == HEADERS {
            return self.headers(remote, line, value.get_ref());
        }
        let Some(found) = self.keys.find(key).filter(|_| key != HEADER) else {
            let all = self.keys.all().map(keys::name).filter(|name| *name != HEADER);
            let text = format!("there is no key `{key}`{}", suggestion(key, all.chain([HEADERS])));
            remote.problems.push(Problem::at(line, text));
            return;
        };
        let several = match value.get_ref() {
            DeValue::Array(values) if matches!(found.get_action(), ArgAction::Append) => {
                values.iter().collect()
            }
            _ => vec![value],
        };
        for value in several {
            let checked = plain(value.get_ref(), is_switch(found), is_text(found));
            // As a flag it may stand alone.
            let checked = checked.map_err(|why| match key {
                INSECURE => "name the host in quotes, \"localhost\" for this machine".to_owned(),
                _ => why,
            });
            let checked = checked.and_then(|text| self.keys.check(found, &text).map(|()| text));
            take(remote, found, key, line, checked);
        }
    }

    fn headers(&self, remote: &mut Remote, line: usize, value: &DeValue<'_>) {
        let (DeValue::Table(table), Some(header)) = (value, self.keys.find(HEADER)) else {
            let text = "write headers as a table, [remotes.NAME.headers], with name = \"value\"";
            remote.problems.push(Problem::at(line, text.to_owned()));
            return;
        };
        let mut table: Vec<_> = table.iter().collect();
        table.sort_by_key(|(name, _)| name.span().start);
        let mut lines = BTreeMap::new();
        for (name, value) in table {
            let line = (self.line)(name.span());
            let name = name.get_ref().as_ref();
            if let Some((first, at)) = lines.insert(name.to_ascii_lowercase(), (name, line)) {
                let text = format!("`{HEADERS}.{name}` and `{HEADERS}.{first}` (line {at}) {SAME}");
                remote.problems.push(Problem::at(line, text));
            }
            // A colon would end the name.
            let text = plain(value.get_ref(), false, true).map(|value| format!("{name}: {value}"));
            let checked = match name.contains(':') {
                true => Err("leave the colon out of the name".to_owned()),
                false => text.and_then(|text| self.keys.check(header, &text).map(|()| text)),
            };
            take(remote, header, &format!("{HEADERS}.{name}"), line, checked);
        }
    }

    /// What is one choice was made once.
    fn choices(&self, remote: &mut Remote) {
        let mut made: Vec<Setting> = Vec::new();
        for setting in mem::take(&mut remote.settings) {
            let choice = self.keys.find(&setting.key).map(|key| self.keys.choice(key));
            let choice = choice.unwrap_or_default();
            let is_rival =
                |other: &&Setting| other.key != setting.key && choice.contains(&other.key.as_str());
            if let Some(first) = made.iter().find(is_rival) {
                let text = format!(
                    "`{}` and `{}` (line {}) are one choice: leave one of them out",
                    setting.key,
                    first.key,
                    line_of(first)
                );
                remote.problems.push(Problem::at(line_of(&setting), text));
            } else {
                made.push(setting);
            }
        }
        remote.settings = made;
    }
}

/// Why nobody can ask for a remote of this name.
fn unfit_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("a name that is empty cannot be typed"),
        _ if name.contains("://") => Some("a name with :// is taken for a URL"),
        _ if name.starts_with('-') => Some("a name that begins with - is taken for a flag"),
        _ if !name.chars().all(is_printable) => {
            Some("a name with control characters cannot be typed")
        }
        _ => None,
    }
}

/// Keeps a value, or what is wrong with it.
fn take(remote: &mut Remote, key: &Arg, shown: &str, line: usize, checked: Result<String, String>) {
    match checked {
        Ok(value) => remote.settings.push(Setting {
            key: keys::name(key).to_owned(),
            value: OsString::from(value),
            source: Source::File(line),
        }),
        Err(why) => remote.problems.push(Problem::at(line, format!("`{shown}`: {why}"))),
    }
}

fn line_of(setting: &Setting) -> usize {
    match setting.source {
        Source::File(line) => line,
        _ => 0,
    }
}

/// A value as one would type it.
fn plain(value: &DeValue<'_>, is_switch: bool, is_text: bool) -> Result<String, String> {
    match value {
        DeValue::Boolean(switch) if is_switch => Ok(switch.to_string()),
        DeValue::String(text) if !is_switch => Ok(text.to_string()),
        DeValue::Integer(number) if !is_switch && !is_text && number.radix() == 10 => {
            Ok(number.as_str().to_owned())
        }
        DeValue::Float(number) if !is_switch && !is_text => Ok(number.as_str().to_owned()),
        _ if is_switch => Err("write true or false".to_owned()),
        _ => Err("write it as text, in quotes".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use std::fs;

    /// A file that a program wrote.
    #[test]
    fn the_lines_of_a_large_file_are_right() {
        let text: String =
            (0..2_000).map(|number| format!("[remotes.r{number}]\nurl = 1\n")).collect();
        let told = problems(text);
        assert_eq!(told.len(), 2_000);
        assert!(told[1_999].starts_with("c:4000: "), "{}", told[1_999]);
    }

    /// The problems of a file, as they are told.
    fn problems(bytes: impl AsRef<[u8]>) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c");
        fs::write(&path, bytes).unwrap();
        let keys = Keys::new();
        let mut problems = match read(&path, &keys) {
            Ok(File { remotes, mut problems }) => {
                problems.extend(remotes.iter().flat_map(|remote| remote.all_problems(&keys)));
                problems
            }
            Err(problem) => vec![problem],
        };
        problems.sort_by_key(|problem| problem.line);
        let told = problems.iter().map(|problem| problem.of(Path::new("c")).to_string());
        told.collect()
    }

    /// Everything that a value can be, with and without a mark of the order of bytes.
    const GOOD: &str = r#"
        [remotes.work]
        url = "https://host"
        connect-timeout = "1s"
        http = 2
        max-message-bytes = 5000
        record-limit = "1MiB"
        record = "/tmp"
        record-content = true
        cursor-in-query = false
        headers = { X-Key = "${KEY}", X-Empty = "" }
        [remotes."a b"]
        url = "http://host"
        http = 1.1
    "#;

    #[test]
    fn a_file_that_can_be_used_has_no_problem() {
        for text in ["", "# nothing\n", "[remotes]\n", GOOD, &format!("\u{feff}{GOOD}")] {
            assert_eq!(problems(text), [""; 0], "{text}");
        }
        assert_eq!(problems(GOOD.replace('\n', "\r\n")), [""; 0]);
    }

    #[test]
    fn x1_each_problem_is_told_with_its_line_and_what_to_do_and_without_any_value() {
        let cases = [
            ("hold = \"s3cret\"", "`hold`: expected number at 0; write a time as 500ms"),
            ("hold = 5", "`hold`: time unit needed"),
            ("http = 3", "`http`: write one of auto, 1.1, 2"),
            ("http = \"s3cret\"", "`http`: write one of auto, 1.1, 2"),
            ("max-message-bytes = 0x1000", "`max-message-bytes`: write it as text, in quotes"),
            ("max-message-bytes = 5", "this size is too small: 1KiB is the least"),
            ("record-content = \"s3cret\"", "`record-content`: write true or false"),
            ("cursor-in-query = 1", "`cursor-in-query`: write true or false"),
            ("log-file = 5", "`log-file`: write it as text, in quotes"),
            ("log-file = [\"s3cret\"]", "`log-file`: write it as text, in quotes"),
            ("log-file = 1979-05-27", "`log-file`: write it as text, in quotes"),
            ("bearer-env = \"\"", "`bearer-env`: it is empty: give a value, or leave it out"),
            ("api = \"0.0.0.0:s3cret\"", "the API listens at 127.0.0.1 only"),
            ("bearer_file = \"s3cret\"", "no key `bearer_file` (did you mean `bearer-file`?)"),
            ("header = \"s3cret\"", "there is no key `header` (did you mean `headers`?)"),
            ("config = \"s3cret\"", "there is no key `config`"),
            ("help = true", "there is no key `help`"),
            ("insecure = true", "`insecure`: name the host in quotes, \"localhost\" for this"),
            ("headers = \"s3cret\"", "write headers as a table, [remotes.NAME.headers]"),
            ("headers.X-A = 5", "`headers.X-A`: write it as text, in quotes"),
            ("headers.X-A = \"s3cret\\u0001\"", "`headers.X-A`: its value holds control"),
            ("headers.X-A = \"s3cret${\"", "`headers.X-A`: `${` begins a variable"),
            ("headers.\"X A\" = \"s3cret\"", "`headers.X A`: HTTP does not allow this name"),
            ("headers.\"X:A\" = \"s3cret\"", "`headers.X:A`: leave the colon out"),
            ("headers.Acp-A = \"s3cret\"", "acp-tether sets this header itself; leave it out"),
            ("url = \"https://other\"", "duplicate key"),
            ("hold = s3cret", "string values must be quoted"),
            ("hold = \"s3cret", "invalid basic string"),
            ("s3cret", "key with no value"),
        ];
        for (line, expected) in cases {
            let told = problems(format!("# one\n[remotes.work]\nurl = \"http://host\"\n{line}\n"));
            assert_eq!(told.len(), 1, "{line}: {told:?}");
            assert!(told[0].starts_with("c:4: "), "{line}: {told:?}");
            assert!(told[0].contains(expected), "{line}: {told:?}");
            assert!(!told[0].contains("s3cret"), "{line}: {told:?}");
        }
    }

    #[test]
    fn x1_what_is_wrong_with_the_file_as_a_whole_is_told() {
        let url = "url = \"http://host\"\n";
        let cases = [
            ("[remote.work]", "c:1: the file has tables [remotes.NAME], and no `remote` (did you"),
            ("[defaults]\nhold = \"s3cret\"", "c:1: the file has tables [remotes.NAME], and no"),
            ("remotes = \"s3cret\"", "c:1: write remotes as [remotes.NAME]"),
            ("[[remotes]]\nurl = \"s3cret\"", "c:1: write remotes as [remotes.NAME]"),
            ("[remotes]\nwork = \"s3cret\"", "c:2: write `work` as a table"),
            ("[remotes.work]\nhold = \"1s\"", "c:1: [remotes.work] has no url: add url"),
            ("[remotes.work]\nurl = \"s3cret\"", "c:2: `url`: the URL cannot be read"),
            (
                "[remotes.work]\nurl = \"http://s3cret@host\"",
                "c:2: `url`: the URL holds a user name",
            ),
        ];
        for (text, expected) in cases {
            let told = problems(text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert!(told[0].starts_with(expected), "{text}: {told:?}");
            assert!(!told[0].contains("s3cret"), "{text}: {told:?}");
        }
        let alone = problems(format!("[remotes.a]\n{url}record-content = true"));
        assert!(alone[0].starts_with("c:1: [remotes.a]: ") && alone[0].contains("--record <FILE>"));
        for (lines, expected) in [
            ("url = \"https://h\"\nproxy = \"ftp://s3cret\"", "--proxy begins with something else"),
            ("url = \"https://h\"\nproxy = \"http://${\"", "`${` begins a variable"),
            ("url = \"wss://h\"\ntransport = \"http\"", "--transport says http"),
            ("url = \"https://h\"\ninsecure = \"other\"", "--insecure is for other"),
            (
                "url = \"https://h\"\nbearer-command = \"s3cret\"\nheaders.authorization = \"s3cret\"",
                "are the same header",
            ),
        ] {
            let [told] = &problems(format!("[remotes.a]\n{lines}"))[..] else { panic!("{lines}") };
            assert!(told.contains(": [remotes.a]: ") && told.contains(expected), "{told}");
            assert!(!told.starts_with("c:1: ") && !told.contains("s3cret"), "{told}");
        }
        for proxy in ["${PROXY}", "http://${USER}:${WORD}@${HOST}:3128", "http://p:${PORT}", "off"]
        {
            assert_eq!(problems(format!("[remotes.a]\n{url}proxy = \"{proxy}\"")), [""; 0]);
        }
        for (name, expected) in [
            ("a://b", "a name with :// is taken for a URL"),
            ("", "a name that is empty cannot be typed"),
            ("a\\u001bb", "a name with control characters cannot be typed"),
            ("a\\u202eb", "a name with control characters cannot be typed"),
            ("--hold", "a name that begins with - is taken for a flag"),
        ] {
            let named = problems(format!("[remotes.\"{name}\"]\n{url}"));
            assert_eq!(named, [format!("c:1: {expected}: choose another")]);
        }
        let headers =
            problems(format!("[remotes.a]\n{url}headers.X-A = \"1\"\nheaders.x-a = \"2\""));
        let expected = "c:4: `headers.x-a` and `headers.X-A` (line 3) are the same header: leave one of them out";
        assert_eq!(headers, [expected]);
        let two = problems(format!("[remotes.a]\n{url}bearer-file = \"a\"\nbearer-env = \"A\""));
        let expected =
            "c:4: `bearer-env` and `bearer-file` (line 3) are one choice: leave one of them out";
        assert_eq!(two, [expected]);
    }

    #[test]
    fn all_problems_of_a_remote_are_told_at_once_each_with_its_line() {
        let text = "[remotes.a]\nurl = \"https://h\"\nbearer-env = \"A\"\nbearer-file = \"a\"\n\
                    headers.authorization = \"a\"\ninsecure = \"other\"\nproxy = \"ftp://p\"\nhold = 1";
        let expected = [
            "c:3: [remotes.a]: --bearer-env and --header Authorization are the same header",
            "c:4: `bearer-file` and `bearer-env` (line 3) are one choice",
            "c:6: [remotes.a]: --insecure is for other",
            "c:7: [remotes.a]: --proxy begins with something else",
            "c:8: `hold`: time unit needed",
        ];
        let told = problems(text);
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}");
        }
        // What one key lacks hides nothing of another.
        let text = "[remotes.a]\nrecord-content = true\nurl = \"https://h\"\nproxy = \"ftp://p\"";
        let lines: Vec<_> = problems(text).iter().map(|told| told[..4].to_owned()).collect();
        assert_eq!(lines, ["c:1:", "c:4:"]);
    }

    #[test]
    fn every_problem_of_every_remote_is_told_in_the_order_of_lines() {
        let text = "[remotes.b]\nhold = 1\nhttp = 3\n[remotes.a]\nurl = 1\nx = 1\n";
        let lines: Vec<_> = problems(text).iter().map(|told| told[..4].to_owned()).collect();
        assert_eq!(lines, ["c:1:", "c:2:", "c:3:", "c:5:", "c:6:"]);
    }

    #[test]
    fn a_file_that_is_no_text_or_too_large_is_refused() {
        assert_eq!(problems(b"# 1\n# 2\n\xff"), ["c:3: is not UTF-8: save it as UTF-8"]);
        let large = format!("#{}", " ".repeat(LARGEST - 1));
        assert_eq!(problems(&large), [""; 0]);
        assert_eq!(problems(large + " "), ["c: is larger than 1 MiB"]);
        let deep = format!("a = {}", "[".repeat(LARGEST / 2));
        assert!(!problems(deep).is_empty());
    }

    #[test]
    fn x1_a_syntax_error_shows_nothing_of_the_file() {
        // Each piece of a file that could be cut off or glued in.
        for before in ["", "a = ", "[", "a = [", "a = {", "a = \"", "a = '", "a.", "\"", "a = 1 "] {
            for secret in ["s3cret", "\"s3cret", "s3cret\"", "'s3cret", "\"s3cret\\q\"", "1s3cret"]
            {
                for told in problems(format!("{before}{secret}\n")) {
                    // A name that can be used is no value.
                    let is_key = told.contains("and no `");
                    assert!(is_key || !told.contains("s3cret"), "{before}{secret}: {told}");
                }
            }
        }
    }
}
