//! What the subcommands other than `connect` do.

pub mod close;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod sessions;
mod table;
pub mod transcript;

use std::io::{self, Write};
use std::process::ExitCode;

/// Runs a command that waits for others.
fn block_on<T>(command: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(command))
}

/// Writes what a command has to say. Where nobody reads it, it failed.
fn written(bytes: &[u8]) -> ExitCode {
    match io::stdout().write_all(bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
