//! Shows a whole conversation with a small agent that is built in.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Plays the demo, or only serves its agent at `serve`.
pub fn run(serve: Option<SocketAddr>) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "acp-tether: there is no demo yet ({serve:?})");
    ExitCode::FAILURE
}
