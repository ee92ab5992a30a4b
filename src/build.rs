//! Tells the program which commit and which target it was built from, for `--version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    for file in ["HEAD", "index"] {
        // In a linked work tree they are elsewhere; without git there are none.
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| exists(path)) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or("unknown commit".to_owned());
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=ACP_TETHER_BUILD={commit}, {target}");
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    String::from_utf8(text).ok().map(|text| text.trim().to_owned())
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
