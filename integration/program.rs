//! How tests start the built program: away from the settings of whoever runs them.

use std::process::Command;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_acp-tether");

/// The built program.
pub fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    apart(&mut command);
    command
}

/// Hides what would say something to the program.
pub fn apart(command: &mut Command) {
    for name in ours() {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG").env("NO_PROXY", "127.0.0.1");
    command.env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-configuration"));
}

/// The same for who starts it by words, `NAME=value` first: a variable that is empty is not set.
pub fn apart_as_words() -> Vec<String> {
    ours().map(|name| format!("{name}=")).collect()
}

/// The variables of the surroundings that stand for flags.
fn ours() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("ACP_TETHER_"))
}
