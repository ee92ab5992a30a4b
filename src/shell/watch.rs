//! Looks once a second for what no event tells: that the machine slept (L11), that the process which
//! started this one has died (S7), and that it is time to see to our record (A2).

use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep_until};

const LOOK: Duration = Duration::from_secs(1);
/// A look that comes so much too late, by either clock, comes after a sleep. One clock stands still
/// while the machine sleeps, both go on while the process is stopped.
const LATE: Duration = Duration::from_secs(5);

/// How often our record is seen to.
const TEND: Duration = Duration::from_secs(60);

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The machine slept, or this process was stopped.
    Sleep,
    /// The process that started this one has died.
    ParentGone,
    /// A minute has passed.
    Minute,
}

/// The looks.
#[derive(Debug)]
pub(super) struct Watch {
    parent: u32,
    last: (Instant, SystemTime),
    minute: Instant,
}

impl Watch {
    /// Looks from here on.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { parent: parent(), last: (now, SystemTime::now()), minute: now }
    }

    /// Waits until there is something to see. Nothing is missed where this is dropped and called
    /// again.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            sleep_until(self.last.0 + LOOK).await;
            let now = (Instant::now(), SystemTime::now());
            let last = std::mem::replace(&mut self.last, now);
            if was_asleep(now.0 - last.0, now.1.duration_since(last.1).unwrap_or_default()) {
                return Seen::Sleep;
            }
            if parent() != self.parent {
                self.parent = parent();
                return Seen::ParentGone;
            }
            if now.0 - self.minute >= TEND {
                self.minute = now.0;
                return Seen::Minute;
            }
        }
    }
}

/// Whether the time between two looks, by the clock that stands still in a sleep and by that of the
/// wall, says that there was one.
fn was_asleep(steady: Duration, wall: Duration) -> bool {
    steady.max(wall) > LOOK + LATE
}

fn parent() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a2_each_minute_is_seen() {
        let (start, mut watch) = (Instant::now(), Watch::new());
        for minute in 1..=3 {
            assert_eq!(watch.next().await, Seen::Minute);
            assert_eq!(start.elapsed().as_secs(), minute * 60);
        }
    }

    #[test]
    fn l11_a_look_that_comes_late_by_either_clock_comes_after_a_sleep() {
        let seconds = Duration::from_secs;
        for (steady, wall, expected) in [
            (1, 1, false),
            (3, 3, false),
            (1, 28_800, true),
            (120, 120, true),
            // The wall's clock was set back.
            (1, 0, false),
        ] {
            assert_eq!(was_asleep(seconds(steady), seconds(wall)), expected, "{steady} {wall}");
        }
    }
}
