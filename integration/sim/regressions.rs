//! What `cargo test` plays: many seeds, and the plans that once broke a rule.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Failure, run, run_plan, shrink};

/// How many seeds, from 0.
const SEEDS: u64 = 2_000;

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

/// Each file holds a plan that a fault of the core once failed, as short as it could be made; its name
/// says what the core did.
#[test]
fn what_once_broke_an_invariant_does_so_no_more() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/sim/regressions");
    let mut played = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let plan = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if let Err(failure) = run_plan(plan) {
            panic!("{}: {failure}", path.display());
        }
        played += 1;
    }
    assert!(played > 0, "{folder} is empty");
}

#[test]
fn a_seed_is_the_same_run_always() {
    for seed in 0..20 {
        let events = || run(seed).map_or_else(|failure| failure.at, |tally| tally.events);
        assert_eq!(events(), events(), "seed {seed}");
    }
}
