//! Named remotes, the configuration file, and what the program tells of its command line.

mod completions;
mod files;
mod schema;
mod words;

use crate::peers::agent::Served;
use crate::peers::conversation;
use crate::peers::editor::Editor;
use crate::program::program;
use acp_tether::cli::Cli;
use clap::{Arg, Command, CommandFactory};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::TempDir;

/// A file with this text, in a directory of its own.
struct File {
    directory: TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("acp-tether/config.toml");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        Self { directory, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Environment variables and their values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// The exit code, standard output and standard error; `initialize` is on the input.
fn run(words: &[&str], variables: Variables) -> (Option<i32>, String, String) {
    let mut program = program();
    program.args(words).envs(variables.iter().copied());
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    // A command that reads no input may be gone.
    let _ = writeln!(program.stdin.take().unwrap(), "{initialize}");
    let Output { status, stdout, stderr } = program.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_named_remote_is_spoken_to_with_what_the_file_says() {
    let served = Served::start();
    served.want("Bearer s3cret");
    let file = File::new(&format!(
        "[remotes.work]\nurl = \"{}\"\napi = \"off\"\nheaders.Authorization = \"Bearer s3cret\"\n",
        served.url
    ));
    let mut editor = Editor::connect("work", &["--config", file.path()]);
    conversation::initialize(&mut editor);
    let end = editor.close();
    assert_eq!(end.status.code(), Some(0));
    assert!(served.refused().is_empty());
}

#[test]
fn x1_s9_a_name_a_file_or_a_variable_that_cannot_be_used_is_told_at_initialize() {
    let file = File::new(
        "[remotes.work]\nurl = \"https://host\"\n[remotes.broken]\nurl = \"http://s3cret@host\"\n\
         headers.X-Key = \"s3cret\\u0001\"\n[remotes.unset]\nurl = \"https://host\"\n\
         headers.X-Key = \"s3cret${ACP_TETHER_UNSET}\"\n",
    );
    let syntax = File::new("[remotes.work]\nurl = \"https://host\"\nhold = s3cret\n");
    let no_config = [("XDG_CONFIG_HOME", "/no/such/directory")];
    let cases: [(&[&str], Variables, &str); 9] = [
        (&["wrk", "--config", file.path()], &[], "(did you mean `work`?)"),
        (&["localhost:8080", "--config", file.path()], &[], "write http://localhost:8080 if"),
        (&["broken", "--config", file.path()], &[], "acp-tether/config.toml:4: `url`: the URL"),
        (&["unset", "--config", file.path()], &[], "ACP_TETHER_UNSET is not set"),
        (&["work", "--config", syntax.path()], &[], "config.toml:3: string values must be quoted"),
        (&["work", "--config", "/no/such/file"], &[], "/no/such/file: cannot be read"),
        (&["work", "--config", "/"], &[], "/: cannot be read: it is not a file"),
        (&["work"], &no_config, "/no/such/directory/acp-tether/config.toml: cannot be read"),
        (&["http://a"], &[("ACP_TETHER_HOLD", "s3cret")], "variable ACP_TETHER_HOLD: expected"),
    ];
    for (words, variables, reason) in cases {
        let (code, output, errors) = run(&[&["connect"], words].concat(), variables);
        assert_eq!(code, Some(78), "{words:?}: {output} {errors}");
        assert!(output.contains(r#""kind":"config""#), "{words:?}: {output}");
        let answer: Value = serde_json::from_str(&output).unwrap();
        let told = answer["error"]["message"].as_str().unwrap();
        for told in [told, &errors] {
            assert!(told.contains(reason) && !told.contains("s3cret"), "{words:?}: {told}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_fifo_is_no_configuration_file_and_is_not_waited_for() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.is_ok_and(|status| status.success()));
    let (code, output, _) = run(&["connect", "work", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(code, Some(78));
    assert!(output.contains("it is not a file"), "{output}");
}

#[test]
fn a_url_works_with_an_empty_environment_and_a_name_tells_what_is_missing() {
    let served = Served::start();
    let mut bare = program();
    bare.env_clear().args(["config", "show", &served.url, "--json"]);
    let Output { status, stdout, stderr } = bare.output().unwrap();
    assert!(status.success() && stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    let shown: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(shown["file"], Value::Null);

    let mut bare = program();
    bare.env_clear().args(["connect", "--api", "off", "--http", "1.1", &served.url]);
    let mut bare =
        bare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let params = json!({"protocolVersion": 1, "clientCapabilities": {}});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    writeln!(bare.stdin.take().unwrap(), "{initialize}").unwrap();
    let Output { status, stdout, stderr } = bare.wait_with_output().unwrap();
    assert_eq!((status.code(), &*stderr), (Some(0), &b""[..]));
    let answer: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(answer["result"]["agentInfo"]["name"], "scripted");
}

#[test]
fn config_check_looks_at_the_file_of_the_user_or_the_one_that_is_named() {
    let good =
        File::new("[remotes.work]\nurl = \"https://host\"\n[remotes.home]\nurl = \"http://h\"");
    let bad =
        File::new("[remotes.work]\nurl = 1\nhld = 1\n[remotes.home]\nurl = \"http://h\"\nx = 1");
    let home = [("XDG_CONFIG_HOME", good.directory.path().to_str().unwrap())];
    let fine = format!("{}: no problems; remotes: work, home\n", good.path());
    for (words, variables) in [
        (&["config", "check"][..], &home[..]),
        (&["config", "check", "--config", good.path()], &[]),
        (&["config", "check"], &[("ACP_TETHER_CONFIG", good.path())]),
    ] {
        let (code, output, errors) = run(words, variables);
        assert_eq!((code, &*output, &*errors), (Some(0), &*fine, ""), "{words:?}");
    }
    let (code, output, errors) = run(&["config", "check", "--config", bad.path()], &home);
    assert_eq!((code, &*output), (Some(1), ""));
    let lines: Vec<_> = errors.lines().collect();
    assert_eq!(lines.len(), 3, "{errors}");
    let place = |line: usize| format!("acp-tether: {}:{line}: ", bad.path());
    assert!(lines[0].starts_with(&(place(2) + "`url`: ")), "{errors}");
    assert_eq!(lines[1], place(3) + "there is no key `hld` (did you mean `hold`?)");
    assert_eq!(lines[2], place(6) + "there is no key `x`");
    let (code, _, errors) = run(&["config", "check", "--config", "/no/such/file"], &[]);
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("acp-tether: /no/such/file: cannot be read: "), "{errors}");
}

#[test]
fn config_list_writes_the_names_of_all_remotes() {
    let file = File::new("[remotes.work]\nurl = 1\n[remotes.'a b']\nurl = 'http://h'");
    for (words, variables) in [
        (&["config", "list", "--config", file.path()][..], &[][..]),
        (&["config", "list"], &[("ACP_TETHER_CONFIG", file.path())]),
    ] {
        let (code, output, errors) = run(words, variables);
        assert_eq!((code, &*output, &*errors), (Some(0), "work\na b\n", ""), "{words:?}");
    }
    let none = File::new("");
    let (code, output, errors) = run(&["config", "list", "--config", none.path()], &[]);
    assert_eq!((code, &*output, &*errors), (Some(0), "", ""));
    let syntax = File::new("[remotes.work");
    let (code, output, errors) = run(&["config", "list", "--config", syntax.path()], &[]);
    assert_eq!((code, &*output), (Some(1), ""));
    assert!(errors.starts_with(&format!("acp-tether: {}:1: ", syntax.path())), "{errors}");
}

#[cfg(target_os = "linux")]
#[test]
fn config_check_warns_of_directories_where_no_file_can_be_made() {
    let directory = TempDir::new().unwrap();
    let there = directory.path().to_str().unwrap();
    let remote = |key: &str, path: &str| {
        File::new(&format!("[remotes.a]\nurl = 'http://h'\n{key} = '{path}'"))
    };
    for key in ["log-file", "record"] {
        for (path, expected) in [
            (format!("{there}/none/file"), "its directory is not there"),
            // Nobody can make a file here.
            ("/proc/file".to_owned(), "its directory cannot be written to"),
        ] {
            let file = remote(key, &path);
            let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
            let told = format!("acp-tether: warning: {}:3: `{key}`: {expected}\n", file.path());
            assert_eq!((code, errors), (Some(0), told));
        }
        for path in [format!("{there}/file"), "none/file".to_owned()] {
            let file = remote(key, &path);
            let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
            assert_eq!((code, &*errors), (Some(0), ""), "{key} {path}");
        }
    }
    assert_eq!(fs::read_dir(there).unwrap().count(), 0);
    let file = format!("{there}/file");
    fs::write(&file, "").unwrap();
    let taken = "it is there already: name a directory, or a file that does not exist yet";
    for (key, path, expected) in [
        ("log-file", there, Some("it is not a file")),
        ("log-file", &file, None),
        ("log-file", "/dev/null", None),
        ("record", there, None),
        ("record", &file, Some(taken)),
    ] {
        let file = remote(key, path);
        let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
        let told =
            expected.map(|why| format!("acp-tether: warning: {}:3: `{key}`: {why}\n", file.path()));
        assert_eq!((code, errors), (Some(0), told.unwrap_or_default()), "{key} {path}");
    }
}

#[cfg(unix)]
#[test]
fn x1_config_check_warns_of_a_secret_in_a_file_that_others_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let header =
        |value: &str| format!("[remotes.a]\nurl = \"http://h\"\nheaders.X-Key = \"{value}\"");
    for (text, mode, is_warned) in [
        (header("s3cret"), 0o644, true),
        (header("s3cret"), 0o600, false),
        (header("${KEY}"), 0o644, false),
        ("[remotes.a]\nurl = \"http://h\"\nproxy = \"http://a:s3cret@p\"".to_owned(), 0o644, true),
        ("[remotes.a]\n\nurl = \"http://h?token=s3cret\"".to_owned(), 0o644, true),
        ("[remotes.a]\n\nurl = \"http://h?key=${K}\"".to_owned(), 0o644, true),
    ] {
        let file = File::new(&text);
        fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).unwrap();
        let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
        assert_eq!(code, Some(0));
        assert_eq!(errors.contains(":3: others can read this file"), is_warned, "{errors}");
        // Nothing is expanded in a URL.
        let is_of_url = text.contains("\n\nurl");
        assert_eq!(errors.contains("or write ${NAME} for"), is_warned && !is_of_url, "{errors}");
        assert_eq!(errors.contains("or send it in a header"), is_of_url, "{errors}");
        assert!(!errors.contains("s3cret"), "{errors}");
    }
}

#[test]
fn x1_config_show_tells_where_each_value_comes_from_and_hides_what_is_secret() {
    let file = File::new(
        "[remotes.work]\nurl = \"https://host?key=s3cret\"\nhold = \"2m\"\n\
         bearer-command = \"print-token s3cret\"\nhttp = 2\nheaders = { X-Key = \"s3cret\" }\n\
         log-file = \"/home/anna@corp/log\"\nproxy = \"${NAME}:s3cret@p\"\n",
    );
    let words = ["config", "show", "work", "--config", file.path(), "--hold", "1m"];
    let variables = [("ACP_TETHER_HTTP", "1.1"), ("ACP_TETHER_HEADER", "X-Other: s3cret")];
    let (code, output, errors) = run(&words, &variables);
    assert_eq!(code, Some(1));
    assert!(errors.contains("--proxy") && !errors.contains("s3cret"), "{errors}");
    let row = |key: &str| -> Vec<&str> {
        let line = output.lines().find(|line| line.split_whitespace().next() == Some(key));
        line.unwrap_or_else(|| panic!("{key}: {output}")).split_whitespace().skip(1).collect()
    };
    let place = |line: usize| format!("{}:{line}", file.path());
    assert_eq!(row("url"), ["https://host/acp", &place(2)]);
    assert_eq!(row("hold"), ["1m", "flag"]);
    assert_eq!(row("http"), ["1.1", "ACP_TETHER_HTTP"]);
    assert_eq!(row("bearer-command"), ["print-token", "…", &place(4)]);
    assert_eq!(row("headers.X-Key"), ["hidden", &place(6)]);
    assert_eq!(row("log-file"), ["/home/anna@corp/log", &place(7)]);
    assert_eq!(row("proxy"), ["hidden", &place(8)]);
    assert_eq!(row("headers.X-Other"), ["hidden", "ACP_TETHER_HEADER"]);
    assert_eq!(row("post-timeout"), ["1m", "default"]);
    assert!(!output.contains("s3cret"), "{output}");

    let (_, output, _) = run(&[&words[..], &["--json"]].concat(), &variables);
    let shown: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(shown["file"], file.path());
    let value = |key: &str| {
        let mut values = shown["values"].as_array().unwrap().iter();
        values.find(|value| value["key"] == key).unwrap().clone()
    };
    assert_eq!(value("hold"), json!({"key": "hold", "value": "1m", "from": "flag"}));
    let http = json!({"key": "http", "value": "1.1", "from": "environment",
        "variable": "ACP_TETHER_HTTP"});
    assert_eq!(value("http"), http);
    let key = json!({"key": "headers.X-Key", "value": "hidden", "from": "file", "line": 6});
    assert_eq!(value("headers.X-Key"), key);
    assert!(!output.contains("s3cret"), "{output}");
}

#[test]
fn config_show_fails_where_connect_could_not_start() {
    let file =
        File::new("[remotes.work]\nurl = \"https://host\"\nbearer-env = \"ACP_TETHER_UNSET\"\n");
    let (code, output, errors) = run(&["config", "show", "work", "--config", file.path()], &[]);
    assert_eq!(code, Some(1));
    assert!(output.contains("ACP_TETHER_UNSET"), "{output}");
    assert!(errors.contains("this cannot be used: --bearer-env"), "{errors}");
    // The commonest slip with such a flag.
    let token = ["config", "show", "work", "--config", file.path(), "--bearer-env", "s3cretTOKEN"];
    let (code, output, errors) = run(&token, &[]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("if it is the token itself"), "{errors}");
    assert!(!output.contains("s3cret") && !errors.contains("s3cret"), "{output} {errors}");
    let (code, output, errors) = run(&["config", "show", "wrk", "--config", file.path()], &[]);
    assert_eq!((code, &*output), (Some(1), ""));
    assert!(errors.contains("(did you mean `work`?)"), "{errors}");
    let usage = run(&["config", "show", "--record-content", "http://a"], &[]);
    assert_eq!(usage.0, Some(2), "{usage:?}");
}

#[test]
fn x1_a_recording_shows_the_flags_of_every_layer_and_no_secret_of_the_file() {
    let file = File::new(
        "[remotes.work]\nurl = \"http://127.0.0.1:9/?key=s3cret\"\nhold = \"2s\"\napi = \"off\"\n\
         connect-timeout = \"1ms\"\nbearer-command = \"echo s3cret\"\nheaders.X-Key = \"s3cret\"\n",
    );
    let record = file.directory.path().join("night.ndjson");
    let record_text = record.to_str().unwrap();
    let words = ["connect", "work", "--config", file.path(), "--notices=off"];
    let variables = [("ACP_TETHER_RECORD", record_text), ("ACP_TETHER_HTTP", "1.1")];
    let (code, _, errors) = run(&words, &variables);
    assert_eq!(code, Some(0), "{errors}");
    let recorded = fs::read_to_string(record).unwrap();
    let header: Value = serde_json::from_str(recorded.lines().next().unwrap()).unwrap();
    let flags = [
        "--notices=off",
        "--http=1.1",
        "--hold=2s",
        "--connect-timeout=1ms",
        "--header=X-Key: hidden",
    ];
    assert_eq!(header["flags"], json!(flags));
    assert!(!recorded.contains("s3cret") && !errors.contains("s3cret"), "{recorded} {errors}");
}

#[test]
fn a2_sessions_and_close_look_where_the_variable_of_the_runtime_directory_says() {
    let named = TempDir::new().unwrap();
    let variable = [("ACP_TETHER_RUNTIME_DIR", named.path().to_str().unwrap())];
    for (words, code) in [(&["sessions"][..], 0), (&["close", "s1"], 4)] {
        assert_eq!(run(words, &variable).0, Some(code), "{words:?}");
        let made = named.path().join("acp-tether");
        assert!(made.is_dir(), "{words:?}");
        fs::remove_dir_all(made).unwrap();
    }
}

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The TOML examples of a page.
fn examples(page: &str) -> Vec<String> {
    let page = fs::read_to_string(place(page)).unwrap();
    let blocks = page.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_of_the_documents_can_be_used_and_follow_the_schema() {
    let schema = schema::validator();
    let pages = ["docs/CONFIG.md", "README.md"].map(examples);
    assert!(pages.iter().all(|examples| !examples.is_empty()));
    for example in pages.concat() {
        let file = File::new(&example);
        let (code, _, errors) = run(&["config", "check", "--config", file.path()], &[]);
        let is_warned = |line: &str| line.contains(": --insecure: ");
        assert!(code == Some(0) && errors.lines().all(is_warned), "{example}: {errors}");
        let value: Value = toml::from_str(&example).unwrap();
        let wrong: Vec<_> = schema.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{example}: {wrong:?}");
    }
}

#[test]
fn the_page_of_the_file_has_every_key_once_and_in_the_order_of_the_flags() {
    let page = examples("docs/CONFIG.md");
    let example = page.iter().find(|example| example.contains("runtime-dir")).unwrap();
    let key = |line: &str| match line.ends_with(".headers]") {
        true => "headers".to_owned(),
        false => line.split(" = ").next().unwrap().to_owned(),
    };
    let is_key = |key: &String| key.chars().all(|char| char.is_ascii_lowercase() || char == '-');
    let keys = example.lines().filter(|line| !line.is_empty()).map(key).filter(is_key);
    // A remote is nothing without a URL.
    let keys: Vec<_> = keys.filter(|key| key != "url").collect();
    let all = schema::keys().into_iter().filter(|key| key != "url");
    assert_eq!(keys, all.collect::<Vec<_>>());
}

/// Every command that does something, by its words.
fn commands() -> Vec<(Vec<String>, Command)> {
    let mut commands = Vec::new();
    let mut open = vec![(Vec::new(), Cli::to_complete())];
    while let Some((words, command)) = open.pop() {
        if !command.has_subcommands() {
            commands.push((words, command));
            continue;
        }
        open.extend(command.get_subcommands().map(|inner| {
            let words = words.iter().cloned().chain([inner.get_name().to_owned()]);
            (words.collect(), inner.clone())
        }));
    }
    assert!(commands.len() >= 10, "{}", commands.len());
    commands
}

/// The flags that the help of a command has.
fn shown_flags(command: &Command) -> impl Iterator<Item = &str> {
    command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Arg::get_long)
}

#[test]
fn the_help_of_every_command_has_examples_that_can_be_typed() {
    for (words, _) in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, help, _) = run(&[&words[..], &["--help"]].concat(), &[]);
        assert_eq!(code, Some(0), "{words:?}");
        let examples = help.split("\nExamples:\n").nth(1).unwrap_or_else(|| panic!("{words:?}"));
        let lines = examples.lines().filter_map(|line| line.strip_prefix("    acp-tether "));
        let lines: Vec<_> = lines.collect();
        let start = words.join(" ");
        assert!(lines.iter().any(|line| line.starts_with(&start)), "{words:?}: {lines:?}");
        for line in lines {
            let typed = line.split(" > ").next().unwrap();
            let typed = shell_words::split(typed).unwrap();
            let typed = ["acp-tether".to_owned()].into_iter().chain(typed);
            Cli::command()
                .try_get_matches_from(typed)
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

#[test]
fn the_completions_hold_every_command_and_flag_and_the_shell_reads_them() {
    let flags =
        |command: &Command| -> Vec<String> { shown_flags(command).map(str::to_owned).collect() };
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, script, errors) = run(&["completions", shell], &[]);
        assert_eq!((code, &*errors), (Some(0), ""), "{shell}");
        for (words, command) in commands() {
            for word in words.into_iter().chain(flags(&command)) {
                assert!(script.contains(&word), "{shell}: {word}");
            }
        }
        let mut reader = std::process::Command::new(shell);
        reader.arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped());
        // Not every shell is on every machine.
        if let ("bash" | "zsh" | "fish", Ok(mut reader)) = (shell, reader.spawn()) {
            reader.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
            let Output { status, stderr, .. } = reader.wait_with_output().unwrap();
            assert!(status.success(), "{shell}: {}", String::from_utf8_lossy(&stderr));
        }
    }
    assert_eq!(run(&["completions", "tcsh"], &[]).0, Some(2));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let (code, page, _) = run(&["man"], &[]);
    assert_eq!(code, Some(0));
    let plain = |page: &str| page.replace("\\-", "-").replace("\\fR", "").replace("\\fB", "");
    for inner in Cli::command().get_subcommands() {
        let name = format!("acp-tether-{}(1)", inner.get_name());
        assert!(plain(&page).contains(&name), "{name}: {page}");
    }
    for (words, command) in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, page, _) = run(&[&["man"], &words[..]].concat(), &[]);
        let page = plain(&page);
        assert_eq!(code, Some(0), "{words:?}");
        assert!(page.contains(&format!(".TH acp-tether-{} 1", words.join("-"))), "{page}");
        for flag in shown_flags(&command) {
            assert!(page.contains(&format!("--{flag}")), "{words:?}: {flag}");
        }
        assert!(page.contains("Examples:"), "{words:?}");
        // A URL that is divided cannot be copied.
        assert!(page.contains("\n.nh\n.SH NAME\n"), "{words:?}");
    }
    let names: Vec<_> =
        Cli::command().get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let all = format!("for command in {}; do", names.join(" "));
    assert!(fs::read_to_string(place("README.md")).unwrap().contains(&all), "{all}");
    let (code, page, errors) = run(&["man", "nothing"], &[]);
    assert_eq!((code, &*page), (Some(2), ""));
    assert!(errors.contains("there is no command `nothing`"), "{errors}");
}
