//! The loopback API of the built program, while an editor holds a session through it.
//!
//! | file | proves or holds |
//! |---|---|
//! | `caller` | a caller of the API, down to the bytes |
//! | `cost` | what the API costs, measured on demand |
//! | `answers` | what the endpoints answer (A3, A4, E1) |
//! | `commands` | `acp-tether sessions` and `acp-tether close` |
//! | `examples` | the examples of docs/API.md |
//! | `schema` | the schemas that answers are held against |
//! | `yes` | an agent that has every session there can be |
//! | `door` | who may call (A5) |
//! | `crowd` | callers that are slow, many, or speak something else (A5) |
//! | `records` | how the processes of one user find each other (A2) |

mod answers;
mod caller;
#[cfg(unix)]
mod commands;
mod cost;
mod crowd;
mod door;
mod examples;
mod records;
pub mod schema;
mod yes;

use crate::peers::agent::Served;
use crate::peers::conversation::{new_session, said, say};
use crate::peers::editor::{Editor, PATIENCE};
use caller::{Answer, Caller};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// An editor in a session with the official server, and the API of the program between them.
struct Tether {
    editor: Editor,
    session: String,
    api: Caller,
    record: Value,
    runtime: tempfile::TempDir,
    agent: Served,
}

impl Tether {
    fn start() -> Self {
        let agent = Served::start();
        let url = agent.url.clone();
        Self::over(agent, &url)
    }

    /// The same, where `url` leads to the agent.
    fn over(agent: Served, url: &str) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let mut editor = connect(url, runtime.path());
        let editor_info = json!({"name": "an editor", "version": "1.2"});
        let params = json!({"protocolVersion": 1, "clientInfo": editor_info});
        editor.ask("initialize", &params);
        let session = new_session(&mut editor);
        let record = records(runtime.path()).pop().unwrap();
        let api = Caller::new(&record);
        Self { editor, session, api, record, runtime, agent }
    }

    /// Waits until the record is as wanted: it is written beside what the editor sees.
    fn until_record(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let record = records(self.runtime.path()).pop().unwrap();
            if wanted(&record) {
                return record;
            }
            assert!(start.elapsed() < PATIENCE, "{record}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The editor's session goes on: a turn ends as it should.
    fn goes_on(&mut self) {
        let id = say(&mut self.editor, &self.session, "echo undisturbed");
        let (before, answer) = self.editor.until_answer(id);
        let told: Vec<&str> = before.iter().map(|message| said(message, &self.session)).collect();
        assert_eq!(told, ["undisturbed"]);
        assert_eq!(answer["result"]["stopReason"], "end_turn");
    }
}

/// An editor whose program keeps its record under `runtime`.
fn connect(url: &str, runtime: &Path) -> Editor {
    Editor::connect(url, &["--http", "1.1", "--runtime-dir", &runtime.to_string_lossy()])
}

/// The records under `runtime`, as they are on the disk.
fn records(runtime: &Path) -> Vec<Value> {
    let directory = std::fs::read_dir(runtime.join("acp-tether/instances")).unwrap();
    let paths = directory.map(|entry| entry.unwrap().path());
    // A draft may be only half there.
    let files = paths.filter(|path| path.extension().is_some_and(|it| it == "json"));
    files.map(|path| serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()).collect()
}
