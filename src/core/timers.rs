//! What the core waits for: one time for each reason, the earliest first.

use std::collections::{BTreeMap, BTreeSet};

use super::session::{LaneName, Scope};
use super::{Millis, PostId};

/// Why the core wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// `initialize` is tried no longer (L3).
    GiveUp,
    /// `initialize` is tried again.
    Retry,
    /// A POST has not been answered (L5).
    Unanswered(PostId),
    /// The GET of a stream has not been answered.
    Unopened(Scope),
    /// A stream is opened again (L12).
    Reopen(Scope),
    /// The first message of a lane is posted again (L10).
    Repost(Scope, LaneName),
    /// Messages of a scope have waited long enough (R1).
    Hold(Scope),
    /// A doubted request is expected no longer (R10).
    Orphan(Scope),
    /// A cancel has not been confirmed (R10).
    Confirm(Scope),
    /// A stream that a held answer waits for is quiet (R12).
    Quiet(Scope),
    /// A step of a restore was not answered, or is due again (V2).
    Restore(Scope),
    /// The questions of a lost connection are kept no longer (V6).
    Question(Scope),
    /// The connection is asked again whether it lives (R8).
    Probe,
    /// The stream that the question replaced is read no longer (R8).
    Replaced,
    /// A stream may have died in silence (L11).
    Silent(Scope),
    /// What had come before the machine slept is read (L11).
    Woken,
    /// The socket is asked whether it lives (W3).
    Ping,
    /// A step of the shutdown is due (S7).
    Shutdown,
}

impl Timer {
    /// Whether what it ends, or tries anew, may be decided by what comes on a stream. While streams are not
    /// read nobody knows (L11).
    pub fn is_for_streams(&self) -> bool {
        use Timer::{Confirm, Hold, Orphan, Probe, Question, Restore, Unopened};
        matches!(
            self,
            Unopened(_) | Hold(_) | Orphan(_) | Confirm(_) | Restore(_) | Question(_) | Probe
        )
    }

    /// The same for what comes of the remote at all.
    pub fn is_for_remote(&self) -> bool {
        self.is_for_streams() || matches!(self, Timer::Unanswered(_))
    }
}

/// The armed timers.
#[derive(Debug, Default)]
pub struct Timers {
    times: BTreeMap<Timer, Millis>,
    order: BTreeSet<(Millis, Timer)>,
}

impl Timers {
    /// Arms a timer, or moves it.
    pub fn arm(&mut self, timer: Timer, at: Millis) {
        self.disarm(&timer);
        self.order.insert((at, timer.clone()));
        self.times.insert(timer, at);
    }

    /// Whether a timer is armed.
    pub fn is_armed(&self, timer: &Timer) -> bool {
        self.times.contains_key(timer)
    }

    /// Puts off such timers until `at`.
    pub fn put_off(&mut self, at: Millis, is_meant: impl Fn(&Timer) -> bool) {
        let due = self.order.range(..(at, Timer::GiveUp)).map(|(_, timer)| timer);
        for timer in due.filter(|timer| is_meant(timer)).cloned().collect::<Vec<_>>() {
            self.arm(timer, at);
        }
    }

    /// Disarms a timer, if it is armed.
    pub fn disarm(&mut self, timer: &Timer) {
        if let Some((timer, at)) = self.times.remove_entry(timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// Disarms all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The earliest time.
    pub fn next(&self) -> Option<Millis> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes one timer whose time has come.
    pub fn take_due(&mut self, now: Millis) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.order.pop_first()?;
        self.times.remove(&timer);
        Some(timer)
    }
}
