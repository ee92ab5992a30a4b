//! The command line: what a person can type, and the help that explains it.

pub mod refusal;

use crate::core::{Millis, limits};
use clap::builder::{NonEmptyStringValueParser, Resettable};
use clap::{Arg, Args, CommandFactory, Id, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("ACP_TETHER_BUILD"), ")");

const EXAMPLES: &str = "\
Examples:
  See it work, with nothing else installed:
    acp-tether demo

  What an editor runs as its agent command:
    acp-tether connect https://agents.example.com

  With a token that stands in no argument and no list of processes:
    acp-tether connect --bearer-env AGENT_TOKEN https://agents.example.com/acp

  Why does it not work?
    acp-tether doctor https://agents.example.com";

const CONNECT_EXAMPLES: &str = "\
Examples:
  An agent of this machine, under the path /acp:
    acp-tether connect http://127.0.0.1:8080

  With a token that expires, and comes from whatever makes one:
    acp-tether connect --bearer-command 'gcloud auth print-access-token' https://agents.example.com

  With any other header; ${NAME} stands in no list of processes:
    acp-tether connect --header 'X-Api-Key: ${AGENT_KEY}' https://agents.example.com/acp

  A remote of the configuration file:
    acp-tether connect work

  Behind a company's gateway, which has certificates and a proxy of its own:
    acp-tether connect --ca-file company.pem --proxy http://proxy.example.com:3128 https://agents.example.com

  When something goes wrong, look closer:
    acp-tether connect --log-level debug --log-file /tmp/acp-tether.log https://agents.example.com/acp

  Record what happens, to send it with a bug report:
    acp-tether connect --record night.ndjson https://agents.example.com/acp

Exit codes:
  0   the editor closed its side, or a signal came
  2   the command line is wrong
  78  the configuration cannot be used; the answer to `initialize` says why

What is not said by a flag can be said by an environment variable, ACP_TETHER_HOLD for --hold, or by
the remote's table in the configuration file: docs/CONFIG.md, `acp-tether config show`.

Standard output carries the editor's messages and nothing else; logs go to standard error. RUST_LOG
is read too, and comes before --log-level.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  Why does it not work?
    acp-tether doctor https://agents.example.com

  With all that `connect` would be told:
    acp-tether doctor --bearer-env AGENT_TOKEN --ca-file company.pem https://agents.example.com/acp

  A remote of the configuration file; watch its stream for signs of life, longer:
    acp-tether doctor --wait 40s work

  For a program:
    acp-tether doctor --json work

It opens a connection of its own, and closes it. No session is created, and nothing is prompted. The other
flags of `connect` are taken, too, and change nothing.

Exit codes:
  0   an editor can work with it
  1   it cannot; the last lines say what to do
  2   the command line is wrong";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  Who is busy, in every editor window:
    acp-tether sessions

  The same as it changes:
    acp-tether sessions --watch

  For a program:
    acp-tether sessions --json";

const CLOSE_EXAMPLES: &str = "\
Examples:
  A session as `acp-tether sessions` lists it:
    acp-tether close sess_7

  One that two editor windows have:
    acp-tether close --instance 3f9a sess_7

Exit codes:
  0   it is closed: off the list, while the agent keeps it
  1   it was not closed: it is running and stays, an instance did not answer, or the instances cannot
      be found
  2   the command line is wrong, or could mean several sessions
  4   no such session is listed";

const PLAY_EXAMPLES: &str = "\
Examples:
  A file that came with a bug report, against this program:
    acp-tether transcript play report.ndjson

  Every .ndjson file below a directory, in virtual time:
    acp-tether transcript play --core integration/transcripts

  Another bridge, whose agent command takes the URL as its last argument:
    acp-tether transcript play --bridge 'node bridge.mjs' integration/transcripts

  Another build of this program, with the flags that a file asks for and its API:
    acp-tether transcript play --bridge './acp-tether connect {api} {flags} {url}' report.ndjson

The command is cut into words as a shell does it, with quotes and backslashes; nothing in it is expanded.
What a bridge that is not acp-tether cannot be asked is skipped: files that need its flags, its API or
its log, or that send signals. The format: docs/TRANSCRIPTS.md.

Exit codes:
  0   every file that was played holds
  1   a file does not hold or is no transcript, or nothing was played
  2   the command line is wrong, or a file cannot be read";

const DEMO_EXAMPLES: &str = "\
Examples:
  A conversation, with its troubles:
    acp-tether demo

  An agent to point an editor at:
    acp-tether demo --serve 127.0.0.1:8080";

const CHECK_EXAMPLES: &str = "\
Examples:
  The file that `connect` reads:
    acp-tether config check

  Another one:
    acp-tether config check --config ./acp-tether.toml

Whether variables are set and files exist is not checked: `acp-tether config show NAME` tells that. Where
a log or a recording could not be written, a warning says so.

Exit codes:
  0   it can be used
  1   it has problems, or there is no file
  2   the command line is wrong";

const LIST_EXAMPLES: &str = "\
Examples:
  What can be connected to by name:
    acp-tether config list

Exit codes:
  0   they are listed
  1   there is no file, or it cannot be read
  2   the command line is wrong";

const SHOW_EXAMPLES: &str = "\
Examples:
  What the remote `work` is:
    acp-tether config show work

  What a command line would do:
    acp-tether config show --hold 1m https://agents.example.com

Exit codes:
  0   it can be used
  1   it cannot; standard error says why
  2   the command line is wrong";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  For bash, with the package bash-completion:
    acp-tether completions bash > ~/.local/share/bash-completion/completions/acp-tether

  For zsh, where ~/.zshrc has `fpath=(~/.zfunc $fpath)` before `autoload -U compinit; compinit`:
    acp-tether completions zsh > ~/.zfunc/_acp-tether

  For fish:
    acp-tether completions fish > ~/.config/fish/completions/acp-tether.fish

  For PowerShell, which reads the file where $PROFILE says `. ~/acp-tether.ps1`:
    acp-tether completions powershell > ~/acp-tether.ps1

  For elvish, in ~/.config/elvish/rc.elv:
    eval (acp-tether completions elvish | slurp)

Directories that are not there have to be made. bash, zsh and fish complete the names of remotes, too.";

const MAN_EXAMPLES: &str = "\
Examples:
  The page that names the commands, for `man acp-tether`:
    acp-tether man > ~/.local/share/man/man1/acp-tether.1

  The page of one command:
    acp-tether man connect > ~/.local/share/man/man1/acp-tether-connect.1
    acp-tether man config show > ~/.local/share/man/man1/acp-tether-config-show.1

Directories that are not there have to be made.";

/// What `connect` is told of a conversation and its log, which `doctor` has not.
const IDLE_IN_DOCTOR: [&str; 13] = [
    "post-timeout",
    "hold",
    "on-stream-loss",
    "orphan-timeout",
    "recover",
    "notices",
    "api",
    "runtime-dir",
    "log-level",
    "log-file",
    "record",
    "record-limit",
    "record-content",
];

/// Carries an editor's ACP session to a remote agent over Streamable HTTP, and keeps it whole.
#[derive(Debug, Parser)]
#[command(name = "acp-tether", version = VERSION, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line, where what a flag of `connect` needs may stand elsewhere, and `doctor` takes all of
    /// them and shows those that matter to it.
    pub fn to_complete() -> clap::Command {
        let matters = |flag: Arg| {
            let is_idle = flag.get_long().is_some_and(|name| IDLE_IN_DOCTOR.contains(&name));
            flag.hide(is_idle)
        };
        Self::command()
            .mut_subcommand("connect", without_requirements)
            .mut_subcommand("doctor", |doctor| without_requirements(doctor).mut_args(matters))
            .mut_subcommand("config", |config| config.mut_subcommand("show", without_requirements))
    }
}

/// The same, where no flag needs another.
pub fn without_requirements(command: clap::Command) -> clap::Command {
    command.mut_args(|flag| flag.requires(Resettable::<Id>::Reset))
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Carry the ACP session on standard input and output to an agent
    Connect(Box<Connect>),
    /// Look at the way to an agent step by step, and tell what is wrong with it and what to do
    Doctor(Box<Doctor>),
    /// List the sessions of every running instance, and who is busy
    Sessions(Sessions),
    /// Take a session off the list, unless it is running; its next prompt brings it back
    Close(Close),
    /// Play scripted transcripts: files that tell a scenario and what must come of it
    #[command(subcommand)]
    Transcript(Transcript),
    /// Show a whole conversation with a small agent that is built in
    Demo(Demo),
    /// Look at the configuration file
    #[command(subcommand)]
    Config(Config),
    /// Write the completions for a shell
    Completions(Completions),
    /// Write the page of the manual
    Man(Man),
}

/// The flags of `connect`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CONNECT_EXAMPLES)]
pub struct Connect {
    /// Where the agent is: https://, http://, wss:// or ws://, where a URL without a path means /acp; or the name of a
    /// remote in the configuration file
    #[arg(value_name = "URL|NAME")]
    pub url: String,

    /// The configuration file [default: acp-tether/config.toml in the user's configuration directory]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,

    /// How messages get there and back [default: what the URL says: ws for wss:// and ws://]
    #[arg(long, value_name = "HOW", value_enum)]
    pub transport: Option<TransportName>,

    /// Send this header with every request; ${NAME} stands for an environment variable; repeatable
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,

    /// Where the token comes from.
    #[command(flatten)]
    pub bearer: BearerFlags,

    /// How the agent is reached through a private network.
    #[command(flatten)]
    pub network: NetworkFlags,

    /// How long `initialize` is tried while the agent cannot be reached
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "9s")]
    pub connect_timeout: Millis,

    /// How long a request may stay without its HTTP answer
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1m")]
    pub post_timeout: Millis,

    /// How long messages wait for the agent while it cannot be reached
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub hold: Millis,

    /// What a broken stream does to open requests: recover waits for their answers on the next one
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OnStreamLoss::Recover)]
    pub on_stream_loss: OnStreamLoss,

    /// How long a reopened stream may be silent before a request whose answer may be lost fails
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub orphan_timeout: Millis,

    /// Who brings a session back that the agent wants loaded again
    #[arg(long, value_name = "WHO", value_enum, default_value_t = Recover::Auto)]
    pub recover: Recover,

    /// Tell in the conversation when messages of the agent are missing from it
    #[arg(long, value_name = "SWITCH", value_enum, default_value_t = Switch::On)]
    pub notices: Switch,

    /// The longest message that is carried, in both directions
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64MiB")]
    pub max_message_bytes: usize,

    /// Which HTTP to speak; auto finds out what the server speaks
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = HttpVersion::Auto)]
    pub http: HttpVersion,

    /// Repeat Last-Event-ID in the query, for a proxy that drops the header
    #[arg(long)]
    pub cursor_in_query: bool,

    /// Where the loopback API listens, 127.0.0.1:PORT with 0 for a free port; off for none
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub api: String,

    /// Where other instances are found.
    #[command(flatten)]
    pub runtime: Runtime,

    /// How much to log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub log_level: LogLevel,

    /// Append the log to this file instead of writing it to standard error
    #[arg(long, value_name = "PATH")]
    pub log_file: Option<PathBuf>,

    /// Write what happens to this new file, or to a new one in this directory, as a transcript to play back or to send
    /// with a bug report; secrets are left out, content is replaced by placeholders of the same length; ids of requests
    /// and sessions stay
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// How large that file may become; then the recording ends, and the conversation goes on
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64MiB", requires = "record")]
    pub record_limit: usize,

    /// Record what people and the agent write, too; secrets stay out
    #[arg(long, requires = "record")]
    pub record_content: bool,
}

/// Where a bearer token comes from: none of them is the token itself, which others could read in the
/// list of processes.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct BearerFlags {
    /// Send the token in this environment variable: Authorization: Bearer TOKEN
    #[arg(long = "bearer-env", value_name = "VARIABLE")]
    pub variable: Option<String>,

    /// Send the token in this file, which is read again when the agent refuses it
    #[arg(long = "bearer-file", value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// Send the token that this command prints; it runs again when the agent refuses the token
    #[arg(long = "bearer-command", value_name = "COMMAND")]
    pub command: Option<String>,
}

/// Whom to believe, who to be, and which way to go.
#[derive(Clone, Debug, Args)]
pub struct NetworkFlags {
    /// Trust the authorities in this PEM file, beside those of the system; repeatable
    #[arg(long = "ca-file", value_name = "PATH")]
    pub ca_files: Vec<PathBuf>,

    /// Show this certificate (PEM, with its chain) to an agent that asks for one
    #[arg(long, value_name = "PATH")]
    pub client_cert: Option<PathBuf>,

    /// The private key of that certificate (PEM), where it stands in another file
    #[arg(long, value_name = "PATH", requires = "client_cert")]
    pub client_key: Option<PathBuf>,

    /// Do not check the certificate of HOST, which must be the URL's; without =HOST, of this machine; repeatable
    #[arg(
        long,
        value_name = "HOST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "localhost"
    )]
    pub insecure: Vec<String>,

    /// Go through this proxy (http://, https://, socks5:// or socks5h://), or off; ${NAME} stands for an environment
    /// variable [default: as HTTPS_PROXY, HTTP_PROXY or ALL_PROXY says]
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,

    /// Go directly to these hosts, beside those in NO_PROXY: example.com with all below it, 10.0.0.0/8, *
    #[arg(long, value_name = "HOSTS")]
    pub no_proxy: Option<String>,
}

/// Where the processes of one user find each other.
#[derive(Clone, Debug, Args)]
pub struct Runtime {
    /// The directory in which running instances are found [default: $XDG_RUNTIME_DIR, else a private one]
    #[arg(long = "runtime-dir", value_name = "PATH")]
    pub directory: Option<PathBuf>,
}

impl Runtime {
    /// The directory for those who read no configuration file: the flag before the variable.
    pub fn chosen(&self) -> Option<PathBuf> {
        let variable =
            || std::env::var_os("ACP_TETHER_RUNTIME_DIR").filter(|path| !path.is_empty());
        self.directory.clone().or_else(|| variable().map(PathBuf::from))
    }
}

/// The flags of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// What `connect` would be told.
    #[command(flatten)]
    pub connect: Connect,

    /// How long the stream is watched for signs of life
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "3s")]
    pub wait: Millis,

    /// Write JSON, as schemas/doctor.schema.json describes it
    #[arg(long)]
    pub json: bool,
}

/// The flags of `sessions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SESSIONS_EXAMPLES)]
pub struct Sessions {
    /// Write JSON, as schemas/sessions.schema.json describes it
    #[arg(long)]
    pub json: bool,

    /// Go on, and show every change
    #[arg(long)]
    pub watch: bool,

    /// Where the instances are found.
    #[command(flatten)]
    pub runtime: Runtime,
}

/// The flags of `close`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CLOSE_EXAMPLES)]
pub struct Close {
    /// The session's id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub session: String,

    /// The instance that has it, where several do: its id, or the beginning of it
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub instance: Option<String>,

    /// Where the instances are found.
    #[command(flatten)]
    pub runtime: Runtime,
}

/// What is done with transcripts.
#[derive(Clone, Debug, Subcommand)]
pub enum Transcript {
    /// Play the remote and the editor around a bridge, and tell the first difference of each file
    Play(Play),
}

/// The flags of `transcript play`.
#[derive(Clone, Debug, Args)]
#[command(after_help = PLAY_EXAMPLES)]
pub struct Play {
    /// Transcripts, and directories that have some: every .ndjson file below them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The bridge; {url} stands for the remote's URL, which else is the last argument [default: this program]
    #[arg(long, value_name = "COMMAND", conflicts_with = "core")]
    pub bridge: Option<String>,

    /// Play in virtual time against the core of this program, without processes
    #[arg(long)]
    pub core: bool,

    /// How much longer than a file says a step may take, once the bridge has started
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "8s")]
    pub slack: Millis,

    /// How many files are played at once
    #[arg(long, value_name = "COUNT", default_value = "4")]
    pub jobs: NonZeroUsize,
}

/// The flags of `demo`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct Demo {
    /// Only serve the built-in agent at this address, for an editor to be pointed at
    #[arg(long, value_name = "ADDR")]
    pub serve: Option<SocketAddr>,
}

/// How messages get to the remote and back (W1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// Streamable HTTP.
    Http,
    /// WebSocket.
    Ws,
}

/// What is done with the configuration file.
#[derive(Clone, Debug, Subcommand)]
pub enum Config {
    /// Check the whole file, and tell every problem with its line
    Check(Check),
    /// Write the names of the remotes, one a line
    List(List),
    /// Show what `connect` would do with the same words, and where each value comes from; secrets are hidden
    Show(Box<Show>),
}

/// The flags of `config check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct Check {
    /// The file [default: acp-tether/config.toml in the user's configuration directory]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
}

/// The flags of `config list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct List {
    /// The file [default: acp-tether/config.toml in the user's configuration directory]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
}

/// The flags of `config show`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct Show {
    /// What `connect` would be told.
    #[command(flatten)]
    pub connect: Connect,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The flags of `completions`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// The flags of `man`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct Man {
    /// The command to write the page of [default: the page that names them all]
    #[arg(value_name = "COMMAND")]
    pub path: Vec<String>,
}

/// Which HTTP to speak (L6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HttpVersion {
    /// HTTP/2 where the server speaks it.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    #[value(name = "1.1")]
    Http1,
    /// HTTP/2, over plain `http://` too.
    #[value(name = "2")]
    Http2,
}

/// What a broken stream does to open requests (R11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnStreamLoss {
    /// They wait for their answers on the next stream.
    Recover,
    /// They fail at once.
    Fail,
}

/// Who brings a session back that the agent wants loaded again (C3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recover {
    /// acp-tether tries it once.
    Auto,
    /// The editor.
    Manual,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// How much to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What a person loses.
    Error,
    /// What went wrong and was dealt with.
    Warn,
    /// The steps of the link and of the sessions.
    Info,
    /// What became of every POST.
    Debug,
    /// The same, and whatever else there is.
    Trace,
}

fn duration(text: &str) -> Result<Millis, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a time as 500ms, 30s or 10m"))?;
    match u64::try_from(duration.as_millis()) {
        Ok(0) => Err("this time is too short: 1ms is the least".to_owned()),
        Ok(millis) => Ok(Millis(millis)),
        Err(_) => Err("this time is too long".to_owned()),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|_| "write a size as 64KiB, 64MiB or as a count of bytes")?;
    match usize::try_from(size.as_u64()) {
        Ok(bytes) if bytes >= limits::LEAST_MESSAGE_BYTES => Ok(bytes),
        Ok(_) => Err("this size is too small: 1KiB is the least".to_owned()),
        Err(_) => Err("this size is too large for this machine".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn connect(arguments: &[&str]) -> Result<Connect, clap::Error> {
        let all = ["acp-tether", "connect"].iter().chain(arguments);
        match Cli::try_parse_from(all)?.command {
            Command::Connect(flags) => Ok(*flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn doctor_takes_every_flag_of_connect_and_its_help_has_those_that_matter() {
        const MATTER: &str = "config transport header bearer-env bearer-file bearer-command ca-file \
            client-cert client-key insecure proxy no-proxy connect-timeout max-message-bytes http \
            cursor-in-query wait json";
        let cli = Cli::to_complete();
        let doctor = cli.find_subcommand("doctor").unwrap();
        let shown = doctor.get_arguments().filter(|flag| !flag.is_hide_set());
        let shown: Vec<_> = shown.filter_map(Arg::get_long).collect();
        assert_eq!(shown, MATTER.split_whitespace().collect::<Vec<_>>());
        let words = ["acp-tether", "doctor", "--hold=1m", "--record=x", "http://a"];
        assert!(Cli::to_complete().try_get_matches_from(words).is_ok());
        for name in IDLE_IN_DOCTOR {
            let is_flag = |flag: &Arg| flag.get_long() == Some(name);
            assert!(doctor.get_arguments().any(is_flag), "{name}");
            let connect = cli.find_subcommand("connect").unwrap();
            assert!(
                connect.get_arguments().any(|flag| is_flag(flag) && !flag.is_hide_set()),
                "{name}"
            );
        }
    }

    #[test]
    fn flags_come_before_or_after_the_url() {
        for arguments in [["--hold", "10m", "http://a"], ["http://a", "--hold", "10m"]] {
            let flags = connect(&arguments).unwrap();
            assert_eq!((flags.url.as_str(), flags.hold), ("http://a", Millis(600_000)));
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_table_of_limits() {
        let flags = connect(&["http://a"]).unwrap();
        assert_eq!(flags.hold, limits::HOLD);
        assert_eq!(flags.connect_timeout, limits::CONNECT_TIMEOUT);
        assert_eq!(flags.post_timeout, limits::POST_TIMEOUT);
        assert_eq!(flags.max_message_bytes, limits::MAX_MESSAGE_BYTES);
        assert_eq!(flags.http, HttpVersion::Auto);
        assert_eq!(flags.log_level, LogLevel::Warn);
    }

    #[test]
    fn the_default_of_slack_is_that_of_the_player() {
        let words = ["acp-tether", "transcript", "play", "a.ndjson"];
        let Command::Transcript(Transcript::Play(flags)) = Cli::parse_from(words).command else {
            panic!("{words:?}")
        };
        let slack = crate::transcript::live_player::SLACK;
        assert_eq!(u128::from(flags.slack.0), slack.as_millis());
    }

    #[test]
    fn durations_and_sizes_are_read_in_the_documented_forms() {
        for (text, expected) in [("500ms", 500), ("30s", 30_000), ("10m", 600_000)] {
            assert_eq!(duration(text), Ok(Millis(expected)), "{text}");
        }
        for (text, expected) in [("64KiB", 65_536), ("64MiB", 67_108_864), ("5000", 5_000)] {
            assert_eq!(size(text), Ok(expected), "{text}");
        }
        for text in ["", "-1s", "soon", "10"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["", "-1", "much", "0", "12"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn s9_wrong_usage_exits_with_2() {
        for arguments in
            [&["http://a", "--hold", "soon"][..], &[], &["http://a", "--http", "3"], &["a", "b"]]
        {
            assert_eq!(connect(arguments).unwrap_err().exit_code(), 2, "{arguments:?}");
        }
    }
}
