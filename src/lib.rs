//! acp-tether carries an editor's ACP session to a remote agent and keeps it whole.
//!
//! A line of the editor is cut from standard input ([`wire::lines`]), read as an envelope, entered
//! in the ledger and given a place in its session's lane ([`core`]), and posted when the lane and the
//! session's stream allow it ([`shell`]). A piece of a stream is cut into events ([`wire::sse`]),
//! checked to be of the live stream and read as an envelope; an answer takes its request out of the
//! ledger, a question gets an id of ours ([`core`]); and the same bytes go out as one line
//! ([`shell`]). The core decides all of it, and does nothing; the shell does all of it, and decides
//! nothing.

pub mod cli;
pub mod commands;
pub mod config;
pub mod core;
pub(crate) mod lock;
pub(crate) mod loopback;
pub mod printable;
pub(crate) mod secrets;
pub mod shell;
pub mod transcript;
pub mod wire;
