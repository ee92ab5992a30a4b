//! Makes the plan of a failing seed as short as it can be.

use super::faults::{Action, Plan};
use super::{Failure, run_plan};

/// The same failure with as few actions as can be.
pub fn shrink(failure: Failure) -> Failure {
    let mut best = failure;
    let mut chunk = best.plan.actions.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < best.plan.actions.len() {
            let mut actions = best.plan.actions.clone();
            actions.drain(at..(at + chunk).min(actions.len()));
            match fails_alike(&best, actions) {
                Some(shorter) => best = shorter,
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    best
}

fn fails_alike(failure: &Failure, actions: Vec<Action>) -> Option<Failure> {
    let plan = Plan { actions, ..failure.plan.clone() };
    let shorter = run_plan(plan).err()?;
    (shorter.broken.rule == failure.broken.rule).then_some(*shorter)
}
