//! What the subcommands other than `connect` do.

pub mod demo;
