//! How many instructions the parts take, where valgrind is: `cargo bench --bench instructions`.
//!
//! Each is run once, and compared with the run before. Wants
//! `cargo install gungraun-runner --version 0.20.0`, the version of Cargo.lock.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod work;

use bytes::Bytes;
use gungraun::prelude::*;
use std::hint::black_box;
use work::Link;

#[library_benchmark]
#[benches::bytes(args = [200, 4 << 10, 64 << 10, 1 << 20], setup = work::update)]
fn envelope(update: Bytes) -> (bool, Bytes) {
    (work::read(black_box(&update)), update)
}

#[library_benchmark]
#[bench::of_200_bytes(work::editor_input())]
fn lines(input: Vec<Bytes>) -> usize {
    work::cut_lines(black_box(input))
}

#[library_benchmark]
#[bench::of_200_bytes(work::many_events())]
#[bench::of_8_mebibytes(work::large_event())]
fn events(input: Vec<Bytes>) -> usize {
    work::cut_events(black_box(input))
}

#[library_benchmark]
#[bench::of_200_bytes(work::many_frames())]
fn frames(input: Vec<Bytes>) -> usize {
    work::cut_frames(black_box(input))
}

#[library_benchmark]
#[bench::update(Link::before_update())]
#[bench::prompt(Link::before_prompt())]
#[bench::answer(Link::before_answer())]
fn step(link: Link) -> Link {
    black_box(link).step()
}

library_benchmark_group!(name = parts, benchmarks = [envelope, lines, events, frames, step]);

main!(library_benchmark_groups = parts);
