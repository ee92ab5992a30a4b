//! `acp-tether doctor`: what it tells of the official servers, and of set-ups that are broken.
//!
//! | file | proves or holds |
//! |---|---|
//! | [`agent`] | an agent that is healthy but for one thing |
//! | `healthy` | what is found where all is well |
//! | `disguised` | what looks well, or like another fault, and is not |
//! | `sockets` | what goes wrong over a socket |
//! | `broken` | the cause of each broken set-up, and that nothing stays open |

mod agent;
mod broken;
mod disguised;
mod healthy;
mod sockets;

use crate::api::schema::follows;
use serde_json::Value;
use std::process::{Command, Stdio};

/// The steps that stand in a report, and what they say.
struct Told {
    code: Option<i32>,
    report: Value,
    /// All that was written.
    text: String,
}

fn doctor(url: &str, flags: &[&str]) -> Told {
    doctor_in(&[], url, flags)
}

fn doctor_in(environment: &[(&str, &str)], url: &str, flags: &[&str]) -> Told {
    let mut command = Command::new(env!("CARGO_BIN_EXE_acp-tether"));
    command.args(["doctor", "--json", "--wait", "100ms", url]).args(flags);
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let (out, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(errors, "");
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}"));
    follows("doctor", &report);
    Told { code: output.status.code(), report, text: out }
}

impl Told {
    /// What was found at a step, behind its verdict.
    fn found(&self, step: &str) -> String {
        let steps = self.report["steps"].as_array().unwrap();
        let found: Vec<_> = steps.iter().filter(|found| found["step"] == step).collect();
        let [found] = found[..] else { panic!("{step}: {:#}", self.report) };
        format!("{}: {}", found["verdict"].as_str().unwrap(), found["found"].as_str().unwrap())
    }

    /// Asserts that it works, and what was found at some steps.
    #[track_caller]
    fn is_well(&self, expected: &[(&str, &str)]) {
        assert_eq!(self.code, Some(0), "{:#}", self.report);
        assert_eq!(self.report["verdict"], "ok");
        for (step, expected) in expected {
            let found = self.found(step);
            assert!(found.starts_with(expected), "{step}: {found}");
        }
    }

    /// Asserts what the cause is, and what is said of it and what to do.
    #[track_caller]
    fn fails_by(&self, cause: &str, texts: &[&str]) {
        assert_eq!(self.code, Some(1), "{:#}", self.report);
        assert_eq!(self.report["cause"], cause, "{:#}", self.report);
        let told = format!("{}\n{}", self.found(cause), self.report["advice"].as_str().unwrap());
        for text in texts {
            assert!(told.contains(text), "{text}: {told}");
        }
        let steps = self.report["steps"].as_array().unwrap();
        let failed = steps.iter().filter(|found| found["verdict"] == "failed").count();
        assert_eq!(failed, 1, "what follows from the cause is not told again: {:#}", self.report);
    }
}
