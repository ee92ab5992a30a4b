//! What `cargo test` plays: many seeds, and those that once broke a rule.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Failure, run, shrink};

/// How many seeds, from 0.
const SEEDS: u64 = 600;

/// Seeds that found a fault of the core, and what it was. The fault is repaired.
const FOUND: [(u64, &str); 4] = [
    (115, "an answer was written to a stream that the core had closed, and never doubted"),
    (842, "a cancel made a session known that was not"),
    (971, "the answer of a closed session was lost in a gap of the connection's stream"),
    (3080, "the replay of a load that was given up was passed on when the editor loaded"),
];

/// Plays seeds on two threads; the first failure comes shortened.
fn play(seeds: &[u64]) -> Option<Failure> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed))
                    && failed.lock().unwrap().is_none()
                {
                    if let Err(failure) = run(*seed) {
                        *failed.lock().unwrap() = Some(*failure);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap().map(shrink)
}

#[test]
fn no_schedule_of_faults_breaks_an_invariant() {
    let seeds: Vec<u64> = (0..SEEDS).collect();
    if let Some(failure) = play(&seeds) {
        panic!("{failure}");
    }
}

#[test]
fn what_once_broke_an_invariant_does_so_no_more() {
    for (seed, fault) in FOUND {
        if let Err(failure) = run(seed) {
            panic!("{fault}: {}", shrink(*failure));
        }
    }
}

#[test]
fn a_seed_is_the_same_run_always() {
    for seed in 0..20 {
        let events = || run(seed).map_or_else(|failure| failure.at, |tally| tally.events);
        assert_eq!(events(), events(), "seed {seed}");
    }
}
