//! Whole-program tests.

mod peers;
mod runner;
