//! Shows the main job: a small agent behind real Streamable HTTP, the bridge on it through real
//! pipes, and an editor that holds a whole conversation.

mod agent;
mod play;
mod server;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use tokio::net::TcpListener;

use super::block_on;
use server::Server;

/// Plays the demo, or only serves its agent at `serve`. Succeeds if all of it happened.
pub fn run(serve: Option<SocketAddr>) -> ExitCode {
    let done = block_on(async {
        match serve {
            Some(address) => serve_alone(address)
                .await
                .map_err(|error| format!("the agent cannot be served at {address}: {error}")),
            None => play::play().await,
        }
    });
    match done.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            anstream::eprintln!("acp-tether: the demo failed: {reason}");
            ExitCode::FAILURE
        }
    }
}

async fn serve_alone(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    anstream::println!("An agent to try an editor on; Ctrl-C ends it. The editor's agent command:");
    anstream::println!("  acp-tether connect http://{address}");
    server().serve(listener).await
}

/// The agent's server, whose requests are printed.
fn server() -> Server {
    Server::new(Arc::new(|request| told(Who::Http, &request)))
}

/// Who speaks, or between whom.
#[derive(Clone, Copy)]
enum Who {
    Editor,
    Http,
    Agent,
}

/// Prints a line of the conversation.
fn told(who: Who, text: &str) {
    let (name, style) = match who {
        Who::Editor => ("editor", AnsiColor::Cyan.on_default()),
        Who::Http => ("http", Style::new().dimmed()),
        Who::Agent => ("agent", AnsiColor::Green.on_default()),
    };
    anstream::println!("{style}{name:>8}  {text}{style:#}");
}
