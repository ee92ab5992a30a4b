//! Keeps the rules of the house (docs/ARCHITECTURE.md): what each part of the source may name.

use std::fs;
use std::path::{Path, PathBuf};

/// The Rust files under a folder of `src`, their tests excluded, each with its text up to the tests
/// in it.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
                && path.parent().is_none_or(|folder| !folder.ends_with("tests"))
            {
                let text = fs::read_to_string(&path).unwrap();
                let code = code(&text).to_owned();
                files.push((path, code));
            }
        }
    }
    assert!(!files.is_empty(), "src/{folder} has no sources");
    files
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with("//"))
}

/// A file's text up to the tests in it.
fn code(text: &str) -> &str {
    let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\n#[allow", "#[cfg(all(test"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min();
    &text[..end.unwrap_or(text.len())]
}

/// The crates that `Cargo.toml` names, as the source names them.
fn dependencies() -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let sections = manifest.split("\n[").filter(|section| {
        section.split(']').next().is_some_and(|name| name.ends_with("dependencies"))
    });
    let lines = sections.flat_map(str::lines).filter_map(|line| line.split_once(" = "));
    let names: Vec<_> = lines.map(|(name, _)| name.replace('-', "_")).collect();
    assert!(names.contains(&"tokio".to_owned()), "{names:?}");
    names
}

/// Whether a line of code names a crate, as `name::` at the start of a path.
fn names_crate(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code_lines(text).any(|line| {
        line.match_indices(&path).any(|(at, _)| {
            !line[..at].ends_with(|before: char| {
                before.is_alphanumeric() || before == '_' || before == ':'
            })
        })
    })
}

#[test]
fn the_core_and_the_codecs_import_nothing_that_does_or_waits() {
    let folders: [(&str, &[&str]); 2] = [
        ("core", &["bytes", "memchr", "serde", "serde_json", "jsonrpsee_types"]),
        ("wire", &["bytes", "memchr"]),
    ];
    for (folder, crates) in folders {
        let others: Vec<_> = dependencies()
            .into_iter()
            .chain(
                ["shell", "commands", "config", "cli", "transcript"]
                    .map(|own| format!("crate::{own}")),
            )
            .filter(|name| !crates.contains(&name.as_str()))
            .collect();
        for (path, text) in sources(folder) {
            for other in &others {
                assert!(!names_crate(&text, other), "{} names {other}", path.display());
            }
            for banned in [
                "std::net",
                "std::fs",
                "std::io",
                "std::thread",
                "std::time",
                "std::process",
                "std::env",
                "std::sync::Mutex",
                "HashMap",
                "HashSet",
                "Instant",
                "SystemTime",
                "async ",
                ".await",
            ] {
                let names = code_lines(&text).any(|line| line.contains(banned));
                assert!(!names, "{} names {banned}", path.display());
            }
        }
    }
}

#[test]
fn acp_method_names_stand_in_one_table() {
    for folder in ["core", "wire", "shell"] {
        for (path, text) in sources(folder) {
            if path.ends_with("methods.rs") {
                continue;
            }
            for name in [
                "\"initialize\"",
                "\"authenticate\"",
                "\"session/",
                "\"$/",
                "\"fs/",
                "\"terminal/",
                "\"_acp-tether/",
            ] {
                let names = code_lines(&text).any(|line| line.contains(name));
                assert!(!names, "{} names a method: {name}", path.display());
            }
        }
    }
}

#[test]
fn nothing_from_outside_can_end_the_process_by_a_panic() {
    for folder in ["core", "wire", "shell"] {
        for (path, text) in sources(folder) {
            for banned in [".unwrap()", ".expect(", "panic!(", "unreachable!(", "todo!("] {
                let names = code_lines(&text).any(|line| line.contains(banned));
                assert!(!names, "{} has {banned}", path.display());
            }
        }
    }
}
