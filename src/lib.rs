//! acp-tether carries an editor's ACP session to a remote agent and keeps it whole.

pub mod core;
pub mod transcript;
pub mod wire;
