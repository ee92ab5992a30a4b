//! Measures whole bridges as an editor has them, against the official Rust SDK's server:
//! `cargo bench --bench bridge`. docs/PERFORMANCE.md has what came of it.
//!
//! All bridges take turns in every round, so that whatever else the machine does hits them alike.
//!
//! | file | |
//! |---|---|
//! | [`measures`] | what is measured |
//! | [`editor`] | the editor that drives a bridge |
//! | [`bare`] | the floor: a client without a bridge |
//! | [`server`] | the remote agent |
//! | [`process`] | what a process used |
//! | [`table`] | medians, spread and ratios |
//! | `official` | the bridge on the official Rust SDK's client, a package of its own |
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../../integration/peers/agent.rs"]
mod agent;
mod bare;
mod editor;
mod measures;
mod process;
#[allow(dead_code)]
#[path = "../../integration/program.rs"]
mod program;
mod server;
mod table;

use clap::{Parser, Subcommand, ValueEnum};
use measures::Measure;
use program::PROGRAM;
use std::path::Path;
use std::process::{Command, Stdio};
use table::Table;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Measures bridges against each other and against the floor.
#[derive(Parser)]
struct Arguments {
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// What is measured, separated by commas; else everything
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
    /// A bridge, to which the URL is added; instead of this program and its rivals
    #[arg(long, value_name = "NAME=COMMAND")]
    bridge: Vec<String>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What this program is when it starts itself.
#[derive(Subcommand)]
#[command(hide = true)]
enum Role {
    Agent,
    Bare {
        #[arg(long)]
        http2: bool,
        url: String,
        count: usize,
        prompt: String,
    },
}

/// Who is measured.
struct Bridge {
    name: String,
    kind: Kind,
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bridge,
    /// Not a bridge, but the floor.
    Bare,
}

fn main() {
    let arguments = Arguments::parse();
    match arguments.role {
        Some(Role::Agent) => server::serve(),
        Some(Role::Bare { http2, url, count, prompt }) => {
            let told = bare::take(&url, http2, count, &prompt);
            println!("{}", serde_json::to_string(&told).unwrap());
        }
        None => measure(&arguments),
    }
}

fn measure(arguments: &Arguments) {
    let named = arguments.bridge.iter().map(|words| Bridge::named(words));
    let mut bridges: Vec<_> = match named.len() {
        0 => [Bridge::own(), Bridge::official(), Bridge::typescript()]
            .into_iter()
            .flatten()
            .collect(),
        _ => named.collect(),
    };
    let bare = bridges.len();
    bridges.push(Bridge::bare("bare client", &[]));
    bridges.push(Bridge::bare("bare client, HTTP/2", &["--http2"]));
    let measures = match &arguments.only[..] {
        [] => Measure::value_variants(),
        only => only,
    };
    let names = bridges.iter().map(|bridge| bridge.name.clone()).collect();
    let mut table = Table::new(names, Some(bare));
    for round in 1..=arguments.rounds {
        for measure in measures {
            eprintln!("round {round} of {}: {measure:?}", arguments.rounds);
            table.add(&measure.take(&bridges));
        }
    }
    table.print();
}

impl Bridge {
    fn new(name: &str, command: &[&str]) -> Self {
        let command = command.iter().map(ToString::to_string).collect();
        Self { name: name.to_owned(), kind: Kind::Bridge, command }
    }

    fn named(words: &str) -> Self {
        let (name, command) = words.split_once('=').expect("--bridge is NAME=COMMAND");
        let command = shell_words::split(command).expect("the command is words");
        Self { name: name.to_owned(), kind: Kind::Bridge, command }
    }

    fn bare(name: &str, flags: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let command = [&[program.to_str().unwrap(), "bare"], flags].concat();
        Self { kind: Kind::Bare, ..Self::new(name, &command) }
    }

    /// This program, as it is shipped: built for benchmarks it would have features of the tests'.
    fn own() -> Option<Self> {
        let is_built = build(&["--bin", "acp-tether"]);
        assert!(is_built, "the program cannot be built");
        Some(Self::new("acp-tether", &[PROGRAM, "connect"]))
    }

    /// A bridge on the official Rust SDK's client.
    fn official() -> Option<Self> {
        let manifest = format!("{ROOT}/benches/bridge/official/Cargo.toml");
        let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/official");
        if !build(&["--manifest-path", &manifest, "--target-dir", target]) {
            return skip("the official Rust bridge cannot be built");
        }
        Some(Self::new("official Rust", &[&format!("{target}/release/official-bridge")]))
    }

    /// A bridge on the official TypeScript SDK's client.
    fn typescript() -> Option<Self> {
        let place = format!("{ROOT}/integration/peers/typescript");
        if !Path::new(&place).join("node_modules").is_dir() {
            return skip(
                "the TypeScript SDK is not installed: bash integration/peers/typescript/install.sh",
            );
        }
        let version = Command::new("node").arg("--version").stdout(Stdio::null()).status();
        if version.is_err() {
            return skip("there is no `node`");
        }
        Some(Self::new("official TypeScript", &["node", &format!("{place}/bridge.mjs")]))
    }
}

fn build(arguments: &[&str]) -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(ROOT).args(["build", "--release", "--locked", "--quiet"]).args(arguments);
    build.status().is_ok_and(|status| status.success())
}

fn skip<T>(reason: &str) -> Option<T> {
    eprintln!("skipped: {reason}");
    None
}
