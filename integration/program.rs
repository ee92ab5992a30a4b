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
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ACP_TETHER_") {
            command.env_remove(name);
        }
    }
    command.env_remove("RUST_LOG").env("NO_PROXY", "127.0.0.1");
    command.env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_CONFIG_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-configuration"));
}
