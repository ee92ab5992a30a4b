//! Plays any number of seeds of the simulator: `cargo run --release --example sim -- --seeds 1000`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{process, thread};

use clap::Parser;

#[path = "../integration/sim/mod.rs"]
mod sim;

use sim::world::Tally;

/// What to play.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many at once.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// How many failures are enough.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Print failures without making them short.
    #[arg(long)]
    as_is: bool,
}

fn main() {
    let options = Options::parse();
    let start = Instant::now();
    let next = AtomicU64::new(options.from);
    let end = options.from + options.seeds;
    let total = Mutex::new((0u64, Tally::default(), Vec::new()));
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || total.lock().unwrap().2.len() >= options.failures {
                        break;
                    }
                    let outcome = sim::run(seed);
                    let (seeds, tally, failures) = &mut *total.lock().unwrap();
                    *seeds += 1;
                    if seeds.is_multiple_of(50_000) {
                        eprintln!("{seeds} seeds, {} have failed", failures.len());
                    }
                    match outcome {
                        Ok(seen) => {
                            tally.events += seen.events;
                            for (fault, count) in seen.faults {
                                *tally.faults.entry(fault).or_default() += count;
                            }
                        }
                        Err(failure) => {
                            eprintln!(
                                "seed {seed}: {} {}",
                                failure.broken.rule, failure.broken.what
                            );
                            failures.push(failure);
                        }
                    }
                }
            });
        }
    });
    let (seeds, tally, failures) = total.into_inner().unwrap();
    for (fault, count) in &tally.faults {
        println!("{count:>12} {fault:?}");
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("{seeds} seeds, {} events, {minutes:.2} minutes", tally.events);
    let failed = !failures.is_empty();
    for failure in failures {
        let failure = if options.as_is { *failure } else { sim::shrink(*failure) };
        println!("{failure}");
    }
    if failed {
        process::exit(1);
    }
}
