//! The simulator: an editor, the core, a remote agent and the network between them in one world of
//! virtual milliseconds, from one 64-bit seed (docs/SIMULATION.md).
//!
//! A seed becomes a [`Plan`](faults::Plan): the kind of server, the settings, and one plain list of
//! what the editor does and what goes wrong, each with its time. The world plays the list; delays
//! and what the agent says come from the seed too, so the same seed is the same run, always. At
//! `calm_at` faults stop; from there on everything must come right (I19). The invariants are checked
//! after every step. A run that breaks one can be played again, shortened, and kept as a regression.
//!
//! | file | is |
//! |---|---|
//! | `faults` | the plan of a seed |
//! | `world` | the clock, the network, and the core in it |
//! | `editor` | the scripted editor |
//! | `remote` | the agent and its server, of several kinds |
//! | `checks` | the invariants |
//! | `roster` | what is asked through the API, and the invariants of the answers |
//! | `shrink` | the shortest list that still fails |
//! | `regressions` | the seeds of `cargo test`, and those that once failed |

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use checks::Broken;
use faults::Plan;
use world::{Tally, World};

mod chance;
mod checks;
mod editor;
pub mod faults;
#[cfg(test)]
mod regressions;
mod remote;
mod roster;
mod shrink;
pub mod world;

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was played.
    pub plan: Plan,
    /// What did not hold.
    pub broken: Broken,
    /// When, in milliseconds.
    pub at: u64,
}

/// Plays a seed.
pub fn run(seed: u64) -> Result<Tally, Box<Failure>> {
    run_plan(Plan::new(seed))
}

/// The same failure with as few actions as can be.
pub fn shrink(failure: Failure) -> Failure {
    shrink::shrink(failure)
}

fn run_plan(plan: Plan) -> Result<Tally, Box<Failure>> {
    let world = World::new(plan.clone());
    match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(Ok(tally)) => Ok(tally),
        Ok(Err((broken, at, _))) => Err(Box::new(Failure { plan, broken, at })),
        Err(_) => {
            let broken = Broken { rule: "panic", what: "see above".into() };
            Err(Box::new(Failure { plan, broken, at: 0 }))
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { plan, broken, at } = self;
        writeln!(out, "seed {}: {} at {at} ms: {}", plan.seed, broken.rule, broken.what)?;
        writeln!(out, "  {:?}", plan.kind)?;
        let (strict, alone) = (plan.settings.strict, plan.settings.recover_alone);
        writeln!(out, "  strict {strict}, recovers alone {alone}, calm at {}", plan.calm_at)?;
        for action in &plan.actions {
            writeln!(out, "  {:>8} {:?}", action.at, action.what)?;
        }
        Ok(())
    }
}
