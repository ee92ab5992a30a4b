//! The built program between servers and clients that nobody here wrote.
//!
//! | file | proves or holds |
//! |---|---|
//! | [`agent`] | a scripted agent on the official Rust SDK's HTTP server |
//! | [`editor`] | an editor on the program's pipes, down to the bytes |
//! | [`hop`] | a proxy that records what passes between the program and a server |
//! | [`conversation`] | the conversations that every server must be able to hold |
//! | `official_server` | those conversations with the official Rust server |
//! | `official_client` | the official Rust client as the editor |
//! | `unchanged` | the bytes of every message (S5, S6, P4) |
//! | `faults` | turns through the fault proxy (I1, I3, I16) |
//! | `backpressure` | an editor that reads slowly (P6) |
//! | `ending` | from the end of input to the exit (S7) |
//! | `credentials` | tokens that expire, behind a gateway that wants one (L10, X1) |
//! | `socket` | WebSocket: the official servers, and what a server can do to a socket (W) |
//! | `turns` | what one turn costs, measured on demand |
//! | `typescript` | the official TypeScript SDK's server |
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod agent;
mod backpressure;
pub mod conversation;
mod credentials;
pub mod editor;
mod ending;
mod faults;
pub mod hop;
mod official_client;
mod official_server;
pub mod socket;
mod turns;
pub mod typescript;
mod unchanged;
