//! What a process used, from `/proc`; `None` where the system has none.

use std::fs;
use std::path::{Path, PathBuf};

/// What a process used since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Seconds of processor time of the threads that live.
    pub cpu: f64,
    /// How often a thread went to sleep on its own account, and so was woken.
    pub sleeps: f64,
    /// The most memory that it ever held, in MB.
    pub peak: f64,
}

impl Used {
    /// By the process of this number.
    pub fn by(process: u32) -> Option<Self> {
        let place = PathBuf::from(format!("/proc/{process}"));
        let mut used = Self { peak: field(&place, "VmHWM:")? * 1024.0 / 1e6, ..Self::default() };
        for thread in fs::read_dir(place.join("task")).ok()?.flatten() {
            let thread = thread.path();
            let times = fs::read_to_string(thread.join("schedstat")).ok()?;
            used.cpu += times.split(' ').next()?.parse::<f64>().ok()? / 1e9;
            used.sleeps += field(&thread, "voluntary_ctxt_switches:")?;
        }
        Some(used)
    }
}

fn field(place: &Path, name: &str) -> Option<f64> {
    let status = fs::read_to_string(place.join("status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}
