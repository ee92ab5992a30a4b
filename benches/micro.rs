//! How long the parts take, and how often they allocate: `cargo bench --bench micro`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod work;

use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher};
use std::hint::black_box;
use work::Link;

#[global_allocator]
static COUNTED: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

#[divan::bench(args = [200, 4 << 10, 64 << 10, 1 << 20])]
fn envelope(bencher: Bencher<'_, '_>, bytes: usize) {
    let update = work::update(bytes);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| work::read(black_box(&update)));
}

#[divan::bench]
fn lines_of_200_bytes(bencher: Bencher<'_, '_>) {
    let input = work::editor_input();
    let count = ItemsCount::new(5_000_usize);
    bencher.counter(count).with_inputs(|| input.clone()).bench_local_values(work::cut_lines);
}

#[divan::bench]
fn events_of_200_bytes(bencher: Bencher<'_, '_>) {
    let input = work::many_events();
    let count = ItemsCount::new(5_000_usize);
    bencher.counter(count).with_inputs(|| input.clone()).bench_local_values(work::cut_events);
}

#[divan::bench]
fn an_event_of_8_mebibytes(bencher: Bencher<'_, '_>) {
    let input = work::large_event();
    let count = BytesCount::new(8_usize << 20);
    bencher.counter(count).with_inputs(|| input.clone()).bench_local_values(work::cut_events);
}

#[divan::bench]
fn frames_of_200_bytes(bencher: Bencher<'_, '_>) {
    let input = work::many_frames();
    let count = ItemsCount::new(5_000_usize);
    bencher.counter(count).with_inputs(|| input.clone()).bench_local_values(work::cut_frames);
}

#[divan::bench]
fn step_update(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(Link::before_update).bench_local_values(Link::step);
}

#[divan::bench]
fn step_prompt(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(Link::before_prompt).bench_local_values(Link::step);
}

#[divan::bench]
fn step_answer(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(Link::before_answer).bench_local_values(Link::step);
}
