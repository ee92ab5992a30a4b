//! Whole-program tests, and the rules that the source keeps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod api;
mod config;
mod core;
mod coverage;
mod doctor;
mod house;
mod network;
mod over_socket;
mod peers;
mod play;
mod process;
mod program;
mod proxy;
mod recording;
mod runner;
mod secrets;
mod sim;
