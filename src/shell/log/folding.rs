//! Decides which log lines repeat: a line that comes again and again within a minute is written ten
//! times, and then told by a number, so that a bad night leaves a log that can be read.

use std::io::Write;
use std::time::{Duration, Instant};

use super::OURS_BEFORE;

/// In which time a line counts as the same again.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// How often it is written in that time.
const TIMES: u64 = 10;
/// Lines that are remembered.
const LINES: usize = 256;

/// The lines of the last minute.
#[derive(Debug, Default)]
pub struct Folding(Vec<Recent>);

/// A line that was written.
#[derive(Debug)]
struct Recent {
    /// What stood before it when it came last: the time.
    before: Vec<u8>,
    text: Vec<u8>,
    since: Instant,
    times: u64,
}

impl Folding {
    /// Takes a line; appends what is to be written to `out`.
    pub fn take(&mut self, line: &[u8], now: Instant, out: &mut Vec<u8>) {
        self.tell_old(now, out);
        let (before, text) = line.split_at(start(line));
        let Some(known) = self.0.iter_mut().find(|known| known.text == text) else {
            if self.0.len() == LINES {
                self.tell(out);
            }
            let (before, text) = (before.to_owned(), text.to_owned());
            self.0.push(Recent { before, text, since: now, times: 1 });
            return out.extend(line);
        };
        known.before = before.to_owned();
        known.times += 1;
        if known.times <= TIMES {
            out.extend(line);
        }
    }

    /// Tells what was left out in a minute that is over.
    pub fn tell_old(&mut self, now: Instant, out: &mut Vec<u8>) {
        for known in self.0.extract_if(.., |known| now.duration_since(known.since) >= WINDOW) {
            known.tell(out);
        }
    }

    /// Tells all that was left out, and forgets it.
    pub fn tell(&mut self, out: &mut Vec<u8>) {
        for known in self.0.drain(..) {
            known.tell(out);
        }
    }
}

impl Recent {
    fn tell(&self, out: &mut Vec<u8>) {
        let left_out = self.times.saturating_sub(TIMES);
        if left_out == 0 {
            return;
        }
        out.extend(&self.before);
        // Memory takes everything.
        let _ = match left_out {
            1 => write!(out, "acp-tether: once more: "),
            _ => write!(out, "acp-tether: {left_out} more times: "),
        };
        out.extend(self.text.strip_prefix(OURS_BEFORE).unwrap_or(&self.text));
    }
}

/// Where a line begins, after its time.
fn start(line: &[u8]) -> usize {
    let start = line.windows(OURS_BEFORE.len()).position(|part| part == OURS_BEFORE);
    start.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of lines that come a second apart.
    fn written(folding: &mut Folding, start: Instant, lines: &[&str]) -> String {
        let mut out = Vec::new();
        for (second, line) in (0..).zip(lines) {
            folding.take(line.as_bytes(), start + Duration::from_secs(second), &mut out);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn k79_a_line_that_repeats_is_written_ten_times_a_minute_and_then_counted() {
        let (mut folding, start) = (Folding::default(), Instant::now());
        let lost = "2026-11-30T00:00:00.000Z acp-tether: warning: lost\n";
        let last = "2026-11-30T00:00:11.000Z acp-tether: warning: lost\n";
        let other = "acp-tether: warning: another\n";
        let lines = [[lost; 11].as_slice(), &[last, other]].concat();
        assert_eq!(written(&mut folding, start, &lines), lost.repeat(10) + other);
        let counted = "2026-11-30T00:00:11.000Z acp-tether: 2 more times: warning: lost\n";
        let minute = start + WINDOW;
        let told = written(&mut folding, minute, &[other, lost]);
        assert_eq!(told, [counted, other, lost].concat(), "any line tells what the minute had");
    }

    #[test]
    fn what_was_left_out_is_told_at_the_end_and_when_too_much_is_remembered() {
        let (mut folding, start) = (Folding::default(), Instant::now());
        let line = "acp-tether: info: again\n";
        written(&mut folding, start, &[line; 11]);
        let mut out = Vec::new();
        folding.tell(&mut out);
        assert_eq!(out, b"acp-tether: once more: info: again\n");
        written(&mut folding, start, &[line; 17]);
        let others: String = (0..LINES)
            .map(|number| written(&mut folding, start, &[&format!("acp-tether: {number}\n")]))
            .collect();
        assert!(others.contains("7 more times: info: again"), "{others}");
    }
}
