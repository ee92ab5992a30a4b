//! acp-tether carries an editor's ACP session to a remote agent and keeps it whole.

pub mod cli;
pub mod commands;
pub mod config;
pub mod core;
pub mod shell;
pub mod transcript;
pub mod wire;
