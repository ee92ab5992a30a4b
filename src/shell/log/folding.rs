//! Decides which log lines repeat: a line that comes again and again within a minute is written three
//! times, and then told by a number, so that a bad night leaves a log that can be read.

use std::io::Write;
use std::time::{Duration, Instant};

use super::OURS_BEFORE;

/// In which time a line counts as the same again.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// How often it is written in that time.
const TIMES: u64 = 3;
/// Lines that are remembered.
const LINES: usize = 256;

/// The lines of late.
#[derive(Debug, Default)]
pub struct Folding(Vec<Recent>);

/// A line that was written, without its time.
#[derive(Debug)]
struct Recent {
    text: Vec<u8>,
    since: Instant,
    times: u64,
}

impl Folding {
    /// Takes a line; appends what is to be written to `out`.
    pub fn take(&mut self, line: &[u8], now: Instant, out: &mut Vec<u8>) {
        let text = without_time(line);
        let Some(known) = self.0.iter_mut().find(|known| known.text == text) else {
            if self.0.len() == LINES {
                self.tell(out);
            }
            self.0.push(Recent { text: text.to_owned(), since: now, times: 1 });
            return out.extend(line);
        };
        if now.duration_since(known.since) >= WINDOW {
            known.tell(out);
            (known.since, known.times) = (now, 0);
        }
        known.times += 1;
        if known.times <= TIMES {
            out.extend(line);
        }
    }

    /// Tells what was left out, and forgets it.
    pub fn tell(&mut self, out: &mut Vec<u8>) {
        for known in self.0.drain(..) {
            known.tell(out);
        }
    }
}

impl Recent {
    fn tell(&self, out: &mut Vec<u8>) {
        let left_out = self.times.saturating_sub(TIMES);
        if left_out > 0 {
            let text = self.text.strip_prefix(OURS_BEFORE).unwrap_or(&self.text);
            // Memory takes everything.
            let _ = match left_out {
                1 => write!(out, "acp-tether: once more: "),
                _ => write!(out, "acp-tether: {left_out} more times: "),
            };
            out.extend(text);
        }
    }
}

fn without_time(line: &[u8]) -> &[u8] {
    let start = line.windows(OURS_BEFORE.len()).position(|part| part == OURS_BEFORE);
    &line[start.unwrap_or_default()..]
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
    fn k79_a_line_that_repeats_is_written_three_times_a_minute_and_then_counted() {
        let (mut folding, start) = (Folding::default(), Instant::now());
        let lost = "2026-11-30T00:00:00.000Z acp-tether: warning: lost\n";
        let later = "2026-11-30T00:00:09.000Z acp-tether: warning: lost\n";
        let other = "acp-tether: warning: another\n";
        let seen = written(&mut folding, start, &[lost, later, other, lost, lost, later]);
        assert_eq!(seen, [lost, later, other, lost].concat());
        let counted = "acp-tether: 2 more times: warning: lost\n";
        let minute = start + WINDOW;
        assert_eq!(written(&mut folding, minute, &[later]), [counted, later].concat());
        assert_eq!(written(&mut folding, minute, &[lost, lost]), lost.repeat(2), "a new minute");
    }

    #[test]
    fn what_was_left_out_is_told_at_the_end_and_when_too_much_is_remembered() {
        let (mut folding, start) = (Folding::default(), Instant::now());
        let line = "acp-tether: info: again\n";
        written(&mut folding, start, &[line; 10]);
        let mut out = Vec::new();
        folding.tell(&mut out);
        assert_eq!(out, b"acp-tether: 7 more times: info: again\n");
        written(&mut folding, start, &[line; 10]);
        let others: String = (0..LINES)
            .map(|number| written(&mut folding, start, &[&format!("acp-tether: {number}\n")]))
            .collect();
        assert!(others.contains("7 more times: info: again"), "{others}");
    }
}
