//! Decides how the findings are shown: a line for each step and what to do, or JSON.

use crate::printable::{printable, printable_json};
use crate::secrets::Secrets;
use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// The steps, in the order in which a message meets what they look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    Configuration,
    Credential,
    Name,
    Tcp,
    Proxy,
    Tls,
    Redirect,
    SignIn,
    Path,
    Status,
    Http,
    Initialize,
    Capabilities,
    Stream,
    Compression,
    Buffering,
    Heartbeats,
    Numbering,
    Replay,
    Websocket,
    Closing,
}

impl Step {
    /// Whether it looks at a stream, for which a socket could stand.
    fn is_of_stream(self) -> bool {
        use Step::*;
        matches!(self, Stream | Compression | Buffering)
    }

    fn shown(self) -> String {
        json!(self).as_str().unwrap_or_default().to_owned()
    }
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    /// It works, and could work better.
    Note,
    Failed,
    Skipped,
}

impl Verdict {
    fn mark(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Failed => "FAIL",
            Self::Skipped => "skipped",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Note => AnsiColor::Yellow.on_default(),
            Self::Failed => AnsiColor::Red.on_default().bold(),
            Self::Skipped => Style::new().dimmed(),
        }
    }
}

/// Writes a line. Where nobody reads it, the exit code tells.
pub fn print(line: &str) {
    let _ = writeln!(anstream::stdout(), "{line}");
}

/// What a step found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn ok(found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    pub fn note(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Note, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn failed(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failed, found: found.into(), advice: Some(advice.into()) }
    }

    pub fn skipped(found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Skipped, found: found.into(), advice: None }
    }
}

#[derive(Debug, Serialize)]
struct Line {
    step: Step,
    #[serde(flatten)]
    finding: Finding,
    ms: u64,
}

/// The findings so far.
#[derive(Debug)]
pub struct Report {
    lines: Vec<Line>,
    /// Each line is printed as it comes.
    is_live: bool,
    secrets: Secrets,
}

impl Report {
    /// Nothing yet. For a program nothing is printed before the end.
    pub fn new(for_program: bool) -> Self {
        Self { lines: Vec::new(), is_live: !for_program, secrets: Secrets::default() }
    }

    /// Shows nothing of this value from now on.
    pub fn hide(&mut self, value: &str) {
        self.secrets.add(value);
    }

    /// Shows this text, also where a short value of those that are hidden stands in it.
    pub fn spare(&mut self, text: &str) {
        self.secrets.spare(text);
    }

    /// Adds a step, and says whether those that rest on it make sense. What is found later of the same step
    /// counts: a stream that opens may end.
    pub fn add(&mut self, step: Step, mut finding: Finding, took: Duration) -> bool {
        finding.found = self.secrets.hide(finding.found);
        finding.advice = finding.advice.map(|advice| self.secrets.hide(advice));
        let holds = finding.verdict != Verdict::Failed;
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let line = Line { step, finding, ms };
        if self.is_live && line.finding.verdict != Verdict::Skipped {
            print(&line.shown());
        }
        match self.lines.iter_mut().find(|known| known.step == step) {
            Some(known) => *known = line,
            None => self.lines.push(line),
        }
        holds
    }

    /// Adds all steps that were not looked at. A person reads of them only that there are some.
    pub fn skip_rest(&mut self, why: &str) {
        let before = self.lines.len();
        for &step in Step::value_variants() {
            if self.found(step).is_none() {
                self.add(step, Finding::skipped(why), Duration::ZERO);
            }
        }
        let skipped: Vec<_> = self.lines[before..].iter().map(|line| line.step.shown()).collect();
        if self.is_live && !skipped.is_empty() {
            let style = Verdict::Skipped.style();
            print(&format!("{style}skipped{style:#}  {why}: {}", skipped.join(", ")));
        }
    }

    fn found(&self, step: Step) -> Option<&Finding> {
        self.lines.iter().find(|line| line.step == step).map(|line| &line.finding)
    }

    /// The first step that failed.
    fn cause(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.finding.verdict == Verdict::Failed)
    }

    /// Whether nothing failed.
    pub fn holds(&self) -> bool {
        self.cause().is_none()
    }

    /// What to do about the first step that failed.
    fn advice(&self) -> Option<String> {
        let Line { step, finding, .. } = self.cause()?;
        let advice = finding.advice.clone().unwrap_or_default();
        let socket = self.found(Step::Websocket).map(|finding| finding.verdict);
        Some(match socket {
            Some(Verdict::Ok) if step.is_of_stream() => {
                format!(
                    "{advice} Until then use --transport ws: WebSocket passes where streams do not."
                )
            }
            _ => advice,
        })
    }

    /// The last lines for a person.
    pub fn conclusion(&self) -> String {
        let bold = Style::new().bold();
        match self.advice() {
            Some(advice) => format!("\n{bold}What to do:{bold:#} {}", printable(&advice)),
            None => {
                let notes = self.lines.iter().filter(|line| line.finding.verdict == Verdict::Note);
                let notes = notes.filter_map(|line| {
                    let advice = printable(line.finding.advice.as_ref()?);
                    Some(format!("\n  {}: {advice}", line.step.shown()))
                });
                let notes: String = notes.collect();
                let end = if notes.is_empty() { "." } else { "; what could be better:" };
                format!("\n{bold}An editor can work with it{end}{bold:#}{notes}")
            }
        }
    }

    /// The whole, for a program: schemas/doctor.schema.json.
    pub fn json(&self) -> String {
        let mut report = json!({
            "verdict": if self.holds() { "ok" } else { "failed" },
            "steps": self.lines,
        });
        if let (Some(cause), Some(advice)) = (self.cause(), self.advice()) {
            report["cause"] = json!(cause.step);
            report["advice"] = Value::from(advice);
        }
        printable_json(&report.to_string())
    }
}

impl Line {
    fn shown(&self) -> String {
        let verdict = self.finding.verdict;
        let (mark, style) = (verdict.mark(), verdict.style());
        let (dim, found) = (Style::new().dimmed(), printable(&self.finding.found));
        let took = match self.ms {
            0 => String::new(),
            ms => format!("  {dim}{ms} ms{dim:#}"),
        };
        format!("{style}{mark:7}{style:#}  {:13}  {found}{took}", self.step.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: impl IntoIterator<Item = (Step, Finding)>) -> Report {
        let mut report = Report::new(true);
        for (step, finding) in findings {
            report.add(step, finding, Duration::from_millis(7));
        }
        report
    }

    #[test]
    fn what_to_do_is_said_of_the_first_failure_and_with_a_socket_where_that_passes() {
        let stream = (Step::Stream, Finding::failed("it ends", "Mend it."));
        let socket = (Step::Websocket, Finding::ok("offered"));
        let later = (Step::Buffering, Finding::failed("late", "Never said."));
        let told = report([stream.clone(), later, socket]);
        assert_eq!(
            told.advice().as_deref(),
            Some("Mend it. Until then use --transport ws: WebSocket passes where streams do not.")
        );
        assert_eq!(report([stream]).advice().as_deref(), Some("Mend it."));
        assert!(told.conclusion().contains("What to do:") && !told.holds());
    }

    #[test]
    fn every_step_has_a_line_and_what_was_not_looked_at_is_skipped() {
        let mut told = report([(Step::Name, Finding::failed("none", "Ask."))]);
        told.skip_rest("not looked at");
        assert_eq!(told.lines.len(), Step::value_variants().len());
        let skipped = told.lines.iter().filter(|line| line.finding.verdict == Verdict::Skipped);
        assert_eq!(skipped.count(), Step::value_variants().len() - 1);
    }

    #[test]
    fn x1_nothing_of_a_server_reaches_the_terminal_as_a_command() {
        let told = report([(Step::Status, Finding::failed("\u{1b}[2Jx", "\u{9b}31m"))]);
        assert!(told.lines[0].shown().contains("\u{fffd}[2Jx"));
        assert!(!told.conclusion().contains('\u{9b}') && !told.json().contains('\u{9b}'));
    }
}
