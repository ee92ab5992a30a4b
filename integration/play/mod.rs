//! The format of transcripts as others see it, and `acp-tether transcript play`.
//!
//! | file | proves |
//! |---|---|
//! | `format` | the schema says what the parser says; the examples of docs/TRANSCRIPTS.md play |
//! | `surplus` | nothing may come out that a file does not name |
//! | `command` | what the command prints, and its exit codes |
//! | `foreign` | it plays around a bridge that is not ours |

mod command;
mod foreign;
mod format;
mod surplus;

use std::path::{Path, PathBuf};

/// A header that a file may begin with.
const HEADER: &str = r#"{"transcript":1,"name":"a name","rules":["S1"]}"#;

/// A folder or file of this package.
fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every file below a folder whose name ends so.
fn below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(below(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}
