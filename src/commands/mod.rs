//! What the subcommands other than `connect` do.

pub mod close;
pub mod completions;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod sessions;
mod table;
pub mod transcript;

/// Runs a command that waits for others.
fn block_on<T>(command: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(command))
}
