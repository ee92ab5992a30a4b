//! What the shells complete, asked of those that this machine has.

use super::{File, run};
use crate::program::{PROGRAM, apart};
use std::path::Path;
use std::process::Command;

const REMOTES: &str = "[remotes.work]\nurl = 'https://h'\n[remotes.wild]\nurl = 'https://h'\n\
    [remotes.'$(touch pwned)']\nurl = 'https://h'\n[remotes.home]\nurl = 1";

/// What a shell says to a script, with a file of remotes; `None` where this machine has no such shell.
fn asked(shell: &str, flags: &[&str], script: &str, file: &File) -> Option<String> {
    let mut command = Command::new(shell);
    apart(&mut command);
    let directory = Path::new(PROGRAM).parent().unwrap().to_str().unwrap();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
    command.args(flags).args(["-c", script]).env("PATH", path);
    command.env("ACP_TETHER_CONFIG", file.path()).env("HOME", file.directory.path());
    let output = command.current_dir(file.directory.path()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn bash_completes_what_is_typed_and_the_names_of_remotes() {
    const COMPLETE: &str = r#"
        complete_with() { ${function} "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; }
        function=$(complete -p acp-tether | sed 's/.*-F \([^ ]*\).*/\1/')
        complete_with acp-tether
        echo "${COMPREPLY[*]}"
    "#;
    let file = File::new(REMOTES);
    let (_, script, _) = run(&["completions", "bash"], &[]);
    for (typed, expected) in [
        ("acp-tether doc", "doctor"),
        ("acp-tether doctor --bearer-e", "--bearer-env"),
        ("acp-tether config sh", "show"),
        ("acp-tether config show --conf", "--config"),
        ("acp-tether completions elv", "elvish"),
        ("acp-tether connect ''", "work wild home"),
        ("acp-tether connect --hold 1m w", "work wild"),
        ("acp-tether doctor ho", "home"),
        ("acp-tether config show wo", "work"),
    ] {
        let last = typed.split(' ').count() - 1;
        let text = format!("{script}\nCOMP_WORDS=({typed})\nCOMP_CWORD={last}\n{COMPLETE}");
        let Some(told) = asked("bash", &["--norc"], &text, &file) else { return };
        assert_eq!(told, expected, "{typed}");
    }
    assert!(!file.directory.path().join("pwned").exists());
}

#[test]
fn fish_completes_the_names_of_remotes() {
    let file = File::new(REMOTES);
    let (_, script, _) = run(&["completions", "fish"], &[]);
    for (typed, expected) in [
        ("acp-tether connect w", "wild\nwork"),
        ("acp-tether doctor ho", "home"),
        ("acp-tether config show wo", "work"),
        ("acp-tether config sh", "show"),
    ] {
        let text = format!("{script}\ncomplete -C '{typed}'");
        let Some(told) = asked("fish", &["--no-config"], &text, &file) else { return };
        let mut words: Vec<_> =
            told.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
        words.sort_unstable();
        assert_eq!(words.join("\n"), expected, "{typed}");
    }
    assert!(!file.directory.path().join("pwned").exists());
}

/// zsh completes in a terminal only: what it would be given is looked at.
#[test]
fn zsh_is_given_the_names_of_remotes() {
    let file = File::new(REMOTES);
    let (_, script, _) = run(&["completions", "zsh"], &[]);
    let asks = |line: &&str| line.starts_with("':url -- ");
    assert_eq!(script.lines().filter(asks).count(), 3);
    assert!(script.lines().filter(asks).all(|line| line.contains(":_acp-tether_remotes'")));
    let text = format!(
        "compadd() {{ print -rl -- ${{(P)@[-1]}} }}\ncompdef() {{}}\n{script}\n_acp-tether_remotes"
    );
    let Some(told) = asked("zsh", &["-f"], &text, &file) else { return };
    assert_eq!(told, "work\nwild\n$(touch pwned)\nhome");
    assert!(!file.directory.path().join("pwned").exists());
}
