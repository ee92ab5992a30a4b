//! Decides what a time of the core is on the wall's clock: the core's may stand still while the
//! machine sleeps, so each sleep begins a new reckoning.

use crate::core::Millis;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Sleeps that are remembered; times before them are reckoned from the oldest.
const MARKS: usize = 1_000;

/// Pairs of a time of the core and one in milliseconds since 1970, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    marks: Arc<Vec<(Millis, u64)>>,
}

impl Clock {
    /// The core's time begins now.
    pub(super) fn start() -> Self {
        Self { marks: Arc::new(vec![(Millis(0), now())]) }
    }

    /// The machine slept, and it is `at` for the core.
    pub(super) fn slept(&mut self, at: Millis) {
        self.mark(at, now());
    }

    fn mark(&mut self, at: Millis, wall: u64) {
        let marks = Arc::make_mut(&mut self.marks);
        if marks.len() == MARKS {
            marks.remove(1);
        }
        marks.push((at, wall));
    }

    /// A time of the core in milliseconds since 1970.
    pub(super) fn since_1970(&self, time: Millis) -> u64 {
        let mark = self.marks.iter().rfind(|(at, _)| *at <= time);
        let (at, wall) = mark.copied().unwrap_or_default();
        wall.saturating_add(time.0.saturating_sub(at.0))
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    super::milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a3_times_before_and_after_a_sleep_are_those_of_the_wall() {
        let mut clock = Clock { marks: Arc::new(vec![(Millis(0), 1_000_000)]) };
        clock.mark(Millis(5_000), 90_000_000);
        for (time, expected) in
            [(0, 1_000_000), (4_999, 1_004_999), (5_000, 90_000_000), (5_001, 90_000_001)]
        {
            assert_eq!(clock.since_1970(Millis(time)), expected, "{time}");
        }
        for sleep in 0..2 * MARKS as u64 {
            clock.mark(Millis(6_000 + sleep), 100_000_000 + 10 * sleep);
        }
        assert_eq!(clock.marks.len(), MARKS);
        assert_eq!(clock.since_1970(Millis(6_000 + 1_999)), 100_019_990);
    }
}
