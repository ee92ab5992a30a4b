//! Whole-program tests.

mod runner;
