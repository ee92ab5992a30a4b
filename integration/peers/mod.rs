//! The built program between servers and clients that nobody here wrote.
//!
//! | file | proves or holds |
//! |---|---|
//! | [`agent`] | a scripted agent on the official Rust SDK's HTTP server |
//! | [`editor`] | an editor on the program's pipes, down to the bytes |
//! | [`conversation`] | the conversations that every server must be able to hold |
//! | `official_server` | those conversations with the official Rust server |
//! | `official_client` | the official Rust client as the editor |
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod agent;
pub mod conversation;
pub mod editor;
mod official_client;
mod official_server;
