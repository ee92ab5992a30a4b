//! Turns flags and environment into one [`Config`] that can be used as it is, or that says why not.

pub(crate) mod file;
pub(crate) mod keys;
pub mod kind;
pub mod layers;
pub mod proxy;
pub mod tls;

use self::proxy::Proxy;
use self::tls::Tls;
use crate::cli::{BearerFlags, Connect, HttpVersion, OnStreamLoss, Recover, Switch, TransportName};
use crate::core::socket::Transport;
use crate::core::{Millis, Settings};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use std::collections::BTreeMap;
use std::env::VarError;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The path of a URL that has none (the specification's endpoint).
const DEFAULT_PATH: &str = "/acp";

/// Longer than any token that a server would take.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The exit code of a configuration that cannot be used: EX_CONFIG of sysexits.h.
const UNUSABLE: u8 = 78;

const BEARER_ENV: &str = "--bearer-env";
const BEARER_FILE: &str = "--bearer-file";
const BEARER_COMMAND: &str = "--bearer-command";

/// What is told of two names of one header.
const SAME: &str = "are the same header: leave one of them out";

/// Headers that the protocol or HTTP itself sets; beside them, all that begin with `acp-`.
pub const OWNED_HEADERS: [&str; 20] = [
    "accept",
    "accept-encoding",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "last-event-id",
    "proxy-connection",
    "sec-websocket-accept",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// All that `connect` is told.
#[derive(Debug)]
pub struct Config {
    /// What the core is told; holds the reason if the configuration cannot be used (S9).
    pub settings: Settings,
    /// Where the remote is; `None` if the configuration cannot be used.
    pub remote: Option<Remote>,
    /// Where the loopback API is; `None` for none, and if the configuration cannot be used.
    pub loopback: Option<Loopback>,
    /// What works, and should not stay so.
    pub warnings: Vec<String>,
}

/// Where the loopback API is (A1), and where others find it (A2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loopback {
    /// Its address: 127.0.0.1 and a port, 0 for a free one.
    pub address: SocketAddr,
    /// The user's runtime directory, where it is not the system's.
    pub runtime_directory: Option<PathBuf>,
}

/// Where the remote is and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The endpoint, without user info and fragment: https or http, or over a socket wss or ws.
    pub url: Url,
    /// The headers of `--header`, each marked sensitive.
    pub headers: HeaderMap,
    /// Where the token comes from, if one is sent.
    pub bearer: Option<Bearer>,
    /// Whom to believe, and who to be.
    pub tls: Tls,
    /// Which way to go.
    pub proxy: Proxy,
    /// Which HTTP to speak (L6).
    pub http: HttpVersion,
    /// Send the cursor in the query too (R4).
    pub cursor_in_query: bool,
    /// The size limit of one message.
    pub max_message_bytes: usize,
    /// How long `initialize` is tried, which no token may outlast.
    pub connect_timeout: Millis,
}

/// Where a bearer token comes from.
#[derive(Clone, Debug)]
pub enum Bearer {
    /// An environment variable: the value of `Authorization`.
    Fixed(HeaderValue),
    /// A file.
    File(PathBuf),
    /// A command of the person's shell.
    Command(String),
}

impl Remote {
    /// How messages get there and back.
    pub fn transport(&self) -> Transport {
        match self.url.scheme() {
            "wss" | "ws" => Transport::WebSocket,
            _ => Transport::Http,
        }
    }

    /// Whether another credential may be sent after a refusal. Where none is named, a cookie that came with
    /// the refusal may be one.
    fn can_renew(&self) -> bool {
        match &self.bearer {
            Some(bearer) => !matches!(bearer, Bearer::Fixed(_)),
            None => !self.headers.contains_key(AUTHORIZATION),
        }
    }
}

impl Bearer {
    /// The flag that says so.
    pub fn flag(&self) -> &'static str {
        match self {
            Self::Fixed(_) => BEARER_ENV,
            Self::File(_) => BEARER_FILE,
            Self::Command(_) => BEARER_COMMAND,
        }
    }
}

/// Why a configuration cannot be used, and what to do about it. Holds no value of a header and
/// nothing of a URL (X1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The URL is none.
    #[error("the URL cannot be read ({0}): write it as https://HOST/PATH")]
    Url(String),
    /// The URL's scheme is not ours.
    #[error(
        "the URL begins with {0}:, which is no way to an agent: use https: or http:, or for WebSocket wss: or ws:"
    )]
    Scheme(String),
    /// URL and flag speak of two transports.
    #[error(
        "the URL begins with {0}:, and --transport says http: leave the flag out, or write http{1}:"
    )]
    Transport(String, &'static str),
    /// The URL holds a user name or a password.
    #[error(
        "the URL holds a user name or a password, which others can read: take them out and use \
         --header 'Authorization: Basic ${{NAME}}' with the environment variable NAME"
    )]
    Credentials,
    /// A header has no name.
    #[error("--header number {0} has no name before a colon: write it as 'Name: value'")]
    HeaderForm(usize),
    /// A header's name has characters that no header name has.
    #[error("--header number {0} has a name that HTTP does not allow: write it as 'Name: value'")]
    HeaderName(usize),
    /// The header is not the person's to set.
    #[error("--header {0}: acp-tether sets this header itself; leave it out")]
    HeaderOwned(String),
    /// The header is for a proxy.
    #[error(
        "--header {0}: it would go to the agent; for the proxy, use --proxy 'http://NAME:${{PASSWORD}}@HOST:PORT'"
    )]
    HeaderOfProxy(String),
    /// A header's value has characters that no header value has.
    #[error("--header {0}: its value holds control characters (a line break?): remove them")]
    HeaderValue(String),
    /// `${` without a name and a closing brace.
    #[error("{0}: `${{` begins a variable, but no name and `}}` follow: write ${{NAME}}")]
    VariableForm(String),
    /// The environment has no such variable.
    #[error(
        "{flag}: the environment variable {} is not set: set it where the editor starts acp-tether",
        shown_variable(variable)
    )]
    VariableUnset {
        /// The flag, and of a header its name.
        flag: String,
        /// The name of the variable.
        variable: String,
    },
    /// The variable holds bytes that are no text.
    #[error("{flag}: the environment variable {} is not UTF-8", shown_variable(variable))]
    VariableForeign {
        /// The flag, and of a header its name.
        flag: String,
        /// The name of the variable.
        variable: String,
    },
    /// The variable of `--bearer-env` cannot be used.
    #[error("--bearer-env {0}: {1}")]
    BearerVariable(String, &'static str),
    /// What follows `--bearer-env` is set nowhere, and may be a token itself.
    #[error(
        "--bearer-env: what follows it is not the name of a variable that is set; if it is the token itself, \
         put that into a variable and give the variable's name"
    )]
    BearerNoVariable,
    /// The file of `--bearer-file` cannot be used.
    #[error("--bearer-file {}: {why}", path.display())]
    BearerFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A header is said twice.
    #[error("--header {0} and --header {1} {SAME}")]
    TwoHeaders(String, String),
    /// Both a header and a token say who sends.
    #[error("{0} and --header Authorization {SAME}")]
    TwoCredentials(&'static str),
    /// A certificate or a key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Problem),
    /// The proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] proxy::Problem),
    /// The API has an address that others could reach, or none.
    #[error(
        "--api {0}: the API listens at 127.0.0.1 only: write 127.0.0.1:PORT, with 0 for a free port, or off"
    )]
    Api(String),
    /// The log file cannot be opened.
    #[error(
        "--log-file cannot be opened for writing ({0}): name a file in a directory that exists and can be written to"
    )]
    LogFile(String),
    /// The configuration file, an environment variable or the name of a remote cannot be used.
    #[error("{0}")]
    Layers(String),
    /// The file of a recording cannot be created.
    #[error(
        "--record cannot create its file ({0}): name a directory, or a file that does not exist yet, where you can write"
    )]
    Record(String),
}

impl Unusable {
    /// The same, told beside the key of a file or the variable that it is about.
    fn beside_key(&self) -> String {
        let told = self.to_string();
        match self {
            Self::HeaderForm(_) | Self::HeaderName(_) => {
                "HTTP does not allow this name: use letters, digits and hyphens".to_owned()
            }
            // They begin with a name and a colon.
            _ if told.starts_with("--") => {
                told.split_once(": ").map_or(told.clone(), |(_, what)| what.to_owned())
            }
            _ => told,
        }
    }
}

/// Looks an environment variable up.
pub type Environment<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

impl Config {
    /// Reads the flags.
    pub fn new(flags: &Connect, environment: Environment<'_>) -> Self {
        let config = Self::bare(flags);
        let usable = Remote::new(flags, environment).and_then(|remote| {
            Ok((remote, loopback(&flags.api, flags.runtime.directory.as_ref())?))
        });
        match usable {
            Ok((remote, loopback)) => {
                let mut warnings: Vec<String> = exposed_query(&remote.url).into_iter().collect();
                warnings.extend(remote.tls.unchecked.warning());
                let (transport, can_renew) = (remote.transport(), remote.can_renew());
                let settings = Settings { transport, can_renew, ..config.settings };
                Self { settings, remote: Some(remote), loopback, warnings }
            }
            Err(problem) => config.unusable(&problem),
        }
    }

    /// What is left of flags that cannot be used.
    pub fn refused(flags: &Connect, problem: &Unusable) -> Self {
        Self::bare(flags).unusable(problem)
    }

    fn bare(flags: &Connect) -> Self {
        let settings = Settings {
            transport: Transport::Http,
            hold: flags.hold,
            connect_timeout: flags.connect_timeout,
            post_timeout: flags.post_timeout,
            orphan_timeout: flags.orphan_timeout,
            can_renew: true,
            strict: flags.on_stream_loss == OnStreamLoss::Fail,
            recover_alone: flags.recover == Recover::Auto,
            notices: flags.notices == Switch::On,
            max_message_bytes: flags.max_message_bytes,
            seed: RandomState::new().build_hasher().finish(),
            unusable: None,
        };
        Self { settings, remote: None, loopback: None, warnings: Vec::new() }
    }

    /// What the process ends with when the editor is gone (S9).
    pub fn exit_code(&self) -> u8 {
        if self.settings.unusable.is_some() { UNUSABLE } else { 0 }
    }

    /// The same, found to be unusable.
    pub fn unusable(self, problem: &Unusable) -> Self {
        let reason = self.settings.unusable.unwrap_or_else(|| problem.to_string());
        let settings = Settings { unusable: Some(reason), ..self.settings };
        Self { settings, remote: None, loopback: None, ..self }
    }
}

impl Remote {
    fn new(flags: &Connect, environment: Environment<'_>) -> Result<Self, Unusable> {
        let url = fitting(flags)?;
        let bearer = bearer(flags, environment)?;
        let headers = headers(&flags.headers, environment)?;
        Ok(Self {
            tls: Tls::new(&flags.network, &url)?,
            proxy: Proxy::new(&flags.network, environment)?,
            url,
            headers,
            bearer,
            http: flags.http,
            cursor_in_query: flags.cursor_in_query,
            max_message_bytes: flags.max_message_bytes,
            connect_timeout: flags.connect_timeout,
        })
    }
}

/// The endpoint of flags that go together, as far as can be told without variables and files.
pub(crate) fn fitting(flags: &Connect) -> Result<Url, Unusable> {
    match misfits(flags).into_iter().next() {
        Some((_, problem)) => Err(problem),
        None => endpoint(&flags.url, flags.transport),
    }
}

/// All that does not go together, each with the key that it is about.
pub(crate) fn misfits(flags: &Connect) -> Vec<(&'static str, Unusable)> {
    let mut misfits = Vec::new();
    let is_authorization = |header: &String| {
        header
            .split_once(':')
            .is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("authorization"))
    };
    let bearer = match &flags.bearer {
        BearerFlags { variable: Some(_), .. } => Some(BEARER_ENV),
        BearerFlags { file: Some(_), .. } => Some(BEARER_FILE),
        BearerFlags { command, .. } => command.as_ref().map(|_| BEARER_COMMAND),
    };
    if let Some(bearer) = bearer.filter(|_| flags.headers.iter().any(is_authorization)) {
        misfits.push((bearer.trim_start_matches('-'), Unusable::TwoCredentials(bearer)));
    }
    if let Some((one, other)) = repeated(flags.headers.iter().map(String::as_str)) {
        misfits.push((keys::HEADER, Unusable::TwoHeaders(one.to_owned(), other.to_owned())));
    }
    match endpoint(&flags.url, flags.transport) {
        Err(problem) => misfits.push((keys::URL, problem)),
        Ok(url) => {
            let unchecked = tls::Unchecked::new(&flags.network.insecure, &url);
            misfits.extend(unchecked.err().map(|problem| (keys::INSECURE, problem.into())));
        }
    }
    // A variable may hold a whole URL, or a part of one.
    let proxy = |holds: &str| Proxy::new(&flags.network, &|_| Ok(holds.to_owned()));
    let proxy = proxy("http://x").or_else(|_| proxy("1"));
    misfits.extend(proxy.err().map(|problem| (keys::PROXY, problem)));
    misfits
}

/// Of headers, each `NAME: VALUE`, the names of two that are the same one.
fn repeated<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let mut seen = BTreeMap::new();
    headers.into_iter().find_map(|header| {
        let name = header.split_once(':')?.0.trim();
        let known: HeaderName = name.parse().ok()?;
        seen.insert(known.as_str().to_owned(), name).map(|first| (first, name))
    })
}

/// Secrets in the arguments, which every process of the machine can read (K93).
fn exposed_headers<'a>(headers: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let exposed = headers.into_iter().filter_map(secret_header);
    exposed
        .map(|name| {
            format!(
                "--header {}: others can read its value in the list of processes; use --bearer-env, \
                 --bearer-file or --bearer-command, or ${{NAME}} for an environment variable",
                name
            )
        })
        .collect()
}

/// The name of a header that seems to hold a secret as it is written.
pub(crate) fn secret_header(text: &str) -> Option<&str> {
    let (name, value) = text.split_once(':')?;
    (secret_word(name).is_some() && !value.contains("${")).then_some(name.trim())
}

/// A secret in the query, which ends up in the logs of every server on the way (K89).
pub(crate) fn exposed_query(url: &Url) -> Option<String> {
    let word = url.query_pairs().find_map(|(name, _)| secret_word(&name))?;
    Some(format!(
        "the URL's query seems to hold a secret ({word}), and servers on the way write it into their \
         logs; send it in a header, if the agent allows that"
    ))
}

/// The word in a name that tells of a secret.
fn secret_word(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let words = ["auth", "cookie", "key", "password", "secret", "token"];
    words.into_iter().find(|word| name.contains(word))
}

/// A URL as it may be shown: without user info, query and fragment (X1).
pub fn redacted(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    // Both fail only for URLs that cannot have user info.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.into()
}

/// Where the token comes from. One that a file cannot give now is told now; a pipe is read once, and
/// not before it must be.
fn bearer(flags: &Connect, environment: Environment<'_>) -> Result<Option<Bearer>, Unusable> {
    if let Some(name) = &flags.bearer.variable {
        let unusable = |problem| Unusable::BearerVariable(name.clone(), problem);
        let text = environment(name).map_err(|problem| match problem {
            VarError::NotPresent if !is_usual_name(name) => Unusable::BearerNoVariable,
            VarError::NotPresent => {
                unusable("the variable is not set: set it where the editor starts acp-tether")
            }
            VarError::NotUnicode(_) => unusable("the variable is not UTF-8"),
        })?;
        return bearer_token(&text).map(|value| Some(Bearer::Fixed(value))).map_err(unusable);
    }
    if let Some(path) = &flags.bearer.file {
        let unusable = |problem: &dyn std::fmt::Display| Unusable::BearerFile {
            path: path.clone(),
            why: problem.to_string(),
        };
        let kind = std::fs::metadata(path).map_err(|error| unusable(&error))?.file_type();
        if kind.is_file() {
            let text = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
            bearer_token(&text).map_err(|problem| unusable(&problem))?;
        } else if !kind::is_pipe(kind) {
            return Err(unusable(&kind::no_file()));
        }
        return Ok(Some(Bearer::File(path.clone())));
    }
    Ok(flags.bearer.command.clone().map(Bearer::Command))
}

/// Whether this is how people name variables; a token is not.
pub(crate) fn is_usual_name(name: &str) -> bool {
    let is_usual =
        |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    !name.is_empty() && name.chars().all(is_usual)
}

/// The name of a variable, as it may be told: anything else may be a secret (X1).
fn shown_variable(name: &str) -> &str {
    if is_usual_name(name) { name } else { "that it names" }
}

/// The value of `Authorization` for a token as a file, a variable or a command gives it.
///
/// # Errors
/// It cannot be a token: why, without anything of it.
pub fn bearer_token(text: &str) -> Result<HeaderValue, &'static str> {
    let text = text.trim_start_matches('\u{feff}').trim();
    let token = match text.split_once(char::is_whitespace) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        None if text.eq_ignore_ascii_case("bearer") => "",
        _ => text,
    };
    if token.is_empty() {
        return Err("it is empty");
    }
    if token.contains(|letter: char| letter.is_whitespace()) {
        return Err("it is more than one word");
    }
    if token.len() > LONGEST_TOKEN {
        return Err("it is longer than 16 KiB");
    }
    let value = Some(token).filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    let value = value.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
    let mut value = value.ok_or("it holds characters that no token has")?;
    value.set_sensitive(true);
    Ok(value)
}

fn loopback(text: &str, directory: Option<&PathBuf>) -> Result<Option<Loopback>, Unusable> {
    if text == "off" {
        return Ok(None);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let is_loopback = matches!(host, "127.0.0.1" | "localhost");
    let port = port.parse().ok().filter(|_| is_loopback);
    let port = port.ok_or_else(|| Unusable::Api(text.to_owned()))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(Some(Loopback { address, runtime_directory: directory.cloned() }))
}

/// The endpoint that a person means (L8, W1).
pub(crate) fn endpoint(text: &str, transport: Option<TransportName>) -> Result<Url, Unusable> {
    let text = text.trim();
    let mut url = Url::parse(text).map_err(|error| Unusable::Url(error.to_string()))?;
    let socket = match (url.scheme(), transport) {
        ("https", Some(TransportName::Ws)) => "wss",
        ("http", Some(TransportName::Ws)) => "ws",
        (scheme @ ("wss" | "ws"), Some(TransportName::Http)) => {
            let ending = if scheme == "wss" { "s" } else { "" };
            return Err(Unusable::Transport(scheme.to_owned(), ending));
        }
        ("https" | "http" | "wss" | "ws", _) => "",
        (scheme, _) => return Err(Unusable::Scheme(scheme.to_owned())),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Unusable::Credentials);
    }
    let (_, rest) = text
        .split_once("://")
        .ok_or_else(|| Unusable::Url("nothing follows `https://`".to_owned()))?;
    if !has_path(rest) {
        url.set_path(DEFAULT_PATH);
    }
    url.set_fragment(None);
    if !socket.is_empty() {
        // The default ports are the same.
        let _ = url.set_scheme(socket);
    }
    Ok(url)
}

/// Whether a path follows the host. [`Url`] cannot tell: it gives every URL one.
fn has_path(after_scheme: &str) -> bool {
    after_scheme
        .find(['/', '\\', '?', '#'])
        .is_some_and(|end| after_scheme[end..].starts_with(['/', '\\']))
}

fn headers(texts: &[String], environment: Environment<'_>) -> Result<HeaderMap, Unusable> {
    let mut headers = HeaderMap::new();
    for (index, text) in texts.iter().enumerate() {
        let (name, value) = header(index + 1, text, environment)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn header(
    number: usize,
    text: &str,
    environment: Environment<'_>,
) -> Result<(HeaderName, HeaderValue), Unusable> {
    let (name, value) = text.split_once(':').ok_or(Unusable::HeaderForm(number))?;
    let name = name.trim();
    if name.is_empty() {
        return Err(Unusable::HeaderForm(number));
    }
    let header: HeaderName = name.parse().map_err(|_| Unusable::HeaderName(number))?;
    if header == PROXY_AUTHORIZATION {
        return Err(Unusable::HeaderOfProxy(name.to_owned()));
    }
    if header.as_str().starts_with("acp-") || OWNED_HEADERS.contains(&header.as_str()) {
        return Err(Unusable::HeaderOwned(name.to_owned()));
    }
    let value = expanded(&format!("--header {name}"), value, environment, |text| text)?;
    let mut value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| Unusable::HeaderValue(name.to_owned()))?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// Replaces each `${NAME}` by the variable's value, as `encoded`. What comes out is not expanded again.
fn expanded(
    flag: &str,
    text: &str,
    environment: Environment<'_>,
    encoded: impl Fn(String) -> String,
) -> Result<String, Unusable> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after
            .split_once('}')
            .filter(|(variable, _)| !variable.is_empty())
            .ok_or_else(|| Unusable::VariableForm(flag.to_owned()))?;
        let (flag, named) = (flag.to_owned(), variable.to_owned());
        let value = environment(variable).map_err(|error| match error {
            VarError::NotPresent => Unusable::VariableUnset { flag, variable: named },
            VarError::NotUnicode(_) => Unusable::VariableForeign { flag, variable: named },
        })?;
        result.push_str(before);
        result.push_str(&encoded(value));
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Result<String, VarError> {
        match name {
            "TOKEN" => Ok("s3cret\n".to_owned()),
            "TWO_LINES" => Ok("a\nb".to_owned()),
            "NESTED" => Ok("${TOKEN}".to_owned()),
            "FOREIGN" => Err(VarError::NotUnicode("x".into())),
            _ => Err(VarError::NotPresent),
        }
    }

    #[test]
    fn a_url_without_a_path_means_acp_and_any_other_is_taken_as_it_is() {
        let cases = [
            ("https://host", "https://host/acp"),
            ("https://host?x=1", "https://host/acp?x=1"),
            ("https://host#part", "https://host/acp"),
            ("  https://host:8443  ", "https://host:8443/acp"),
            ("http://[::1]:80", "http://[::1]/acp"),
            ("HTTPS://Host", "https://host/acp"),
            ("https://host/", "https://host/"),
            ("https://host/acp/", "https://host/acp/"),
            ("https://host/a//b?x=%7E&y=a+b&z", "https://host/a//b?x=%7E&y=a+b&z"),
            ("https://host/a?x#y", "https://host/a?x"),
            ("https://host/?", "https://host/?"),
        ];
        for (text, expected) in cases {
            assert_eq!(endpoint(text, None).unwrap().as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_with_what_to_do() {
        let cases = [
            ("", "write it as https://HOST/PATH"),
            ("host/acp", "write it as https://HOST/PATH"),
            ("https://", "write it as https://HOST/PATH"),
            ("https:host", "write it as https://HOST/PATH"),
            ("localhost:8080", "use https: or http:"),
            ("file:///etc/passwd", "use https: or http:"),
        ];
        for (text, expected) in cases {
            let message = endpoint(text, None).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn w1_the_url_or_the_flag_says_that_a_socket_is_meant() {
        let (ws, http) = (Some(TransportName::Ws), Some(TransportName::Http));
        for (text, flag, expected) in [
            ("wss://host", None, "wss://host/acp"),
            ("ws://host:80/x", ws, "ws://host/x"),
            ("https://host:8443", ws, "wss://host:8443/acp"),
            ("http://host?a=1", ws, "ws://host/acp?a=1"),
            ("https://host", http, "https://host/acp"),
        ] {
            assert_eq!(endpoint(text, flag).unwrap().as_str(), expected, "{text}");
        }
        let message = endpoint("wss://host", http).unwrap_err().to_string();
        assert!(message.contains("leave the flag out, or write https:"), "{message}");
    }

    #[test]
    fn a_token_is_one_word_of_ascii() {
        for text in ["token", " token\r\n", "\u{feff}token", "Bearer token", "bearer  token "] {
            assert_eq!(bearer_token(text).unwrap(), "Bearer token", "{text:?}");
        }
        let long = "x".repeat(LONGEST_TOKEN + 1);
        for wrong in ["", "Bearer ", "two words", "to\nken", "t\u{f6}ken", "to\0ken", &long] {
            assert!(bearer_token(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn k89_k93_a_secret_in_the_arguments_or_in_the_query_is_warned_of_without_it() {
        let header = |text: &str| exposed_headers([text]);
        for exposed in ["Authorization: Bearer s3cret", "x-api-key:s3cret", "Cookie: a=s3cret"] {
            let [warning] = &header(exposed)[..] else { panic!("{exposed}") };
            assert!(warning.contains("--bearer-env") && !warning.contains("s3cret"), "{warning}");
        }
        for fine in ["Authorization: Bearer ${TOKEN}", "X-Team: s3cret", "no colon"] {
            assert!(header(fine).is_empty(), "{fine}");
        }
        let query = |text: &str| exposed_query(&Url::parse(text).unwrap());
        let warning = query("https://host/acp?a=1&access_token=s3cret").unwrap();
        assert!(warning.contains("(token)") && !warning.contains("s3cret"), "{warning}");
        assert_eq!(query("https://host/acp?team=7"), None);
    }

    #[test]
    fn l8_credentials_in_the_url_are_refused_and_not_echoed() {
        for text in ["https://anna:pa55@host/acp", "https://anna@host", "http://:pa55@host/"] {
            let problem = endpoint(text, None).unwrap_err();
            assert_eq!(problem, Unusable::Credentials);
            assert!(!problem.to_string().contains("anna"));
            assert!(!problem.to_string().contains("pa55"));
        }
    }

    #[test]
    fn x1_a_shown_url_has_no_user_info_and_no_query() {
        let url = Url::parse("https://anna:pa55@host:8443/acp?key=s3cret#part").unwrap();
        assert_eq!(redacted(&url), "https://host:8443/acp");
    }

    #[test]
    fn a1_the_api_listens_at_127_0_0_1_or_not_at_all() {
        for (text, port) in [("127.0.0.1:0", 0), ("localhost:8080", 8080)] {
            let address = loopback(text, None).unwrap().unwrap().address;
            assert_eq!(address, SocketAddr::from(([127, 0, 0, 1], port)), "{text}");
        }
        assert_eq!(loopback("off", None).unwrap(), None);
        for text in
            ["0.0.0.0:0", "192.168.0.1:80", "[::]:1", "host:1", "127.0.0.1", "8080", "on", ""]
        {
            let message = loopback(text, None).unwrap_err().to_string();
            assert!(message.contains("write 127.0.0.1:PORT"), "{text}: {message}");
        }
    }

    /// K93: the process list shows the name of the variable only.
    #[test]
    fn a_header_takes_variables_from_the_environment_and_is_sensitive() {
        let cases = [
            ("X-Plain: a: b", "x-plain", "a: b"),
            ("Authorization: Bearer ${TOKEN}", "authorization", "Bearer s3cret"),
            ("X-Two:${TOKEN}", "x-two", "s3cret"),
            ("X-Dollar: $5 and $", "x-dollar", "$5 and $"),
            ("X-Nested: ${NESTED}", "x-nested", "${TOKEN}"),
            ("X-Empty:", "x-empty", ""),
            ("Host: inner", "host", "inner"),
        ];
        for (text, name, value) in cases {
            let (found, sent) = header(1, text, &environment).unwrap();
            assert_eq!((found.as_str(), sent.to_str().unwrap()), (name, value), "{text}");
            assert!(sent.is_sensitive());
        }
    }

    #[test]
    fn x1_two_headers_are_the_same_one_whatever_the_case_of_their_names() {
        assert_eq!(repeated(["X-A: s3cret", "X-B: 1", "x-a : s3cret"]), Some(("X-A", "x-a")));
        assert_eq!(repeated(["host: a", "Host: b"]), Some(("host", "Host")));
        // What is no header is told of elsewhere, without what it may hold.
        for other in [["X-A: 1", "X-B: 1"], ["s3cret", "s3cret"], ["s3 cret: 1", "s3 cret: 1"]] {
            assert_eq!(repeated(other), None, "{other:?}");
        }
    }

    #[test]
    fn x1_a_header_that_cannot_be_used_is_refused_without_its_value() {
        let cases = [
            ("s3cret", "number 1 has no name"),
            (": s3cret", "number 1 has no name"),
            ("s3 cret: x", "number 1 has a name that HTTP does not allow"),
            ("Acp-Session-Id: s3cret", "acp-tether sets this header itself"),
            ("content-type: s3cret", "acp-tether sets this header itself"),
            ("Connection: s3cret", "acp-tether sets this header itself"),
            ("X-A: s3cret\u{1}", "control characters"),
            ("X-A: s3cret${TWO_LINES}", "control characters"),
            ("X-A: s3cret${ABSENT}", "the environment variable ABSENT is not set"),
            ("X-A: s3cret${FOREIGN}", "FOREIGN is not UTF-8"),
            ("X-A: s3cret${", "write ${NAME}"),
            ("X-A: s3cret${}", "write ${NAME}"),
        ];
        for (text, expected) in cases {
            let message = header(1, text, &environment).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains("s3cret"), "{text}: {message}");
        }
    }
}
