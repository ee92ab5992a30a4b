//! What `connect --record` writes: it plays back in both players, tells no secret, and never harms the
//! conversation.

use acp_tether::transcript::format::{Player, Transcript};
use acp_tether::transcript::live_player::{self, Bridge};
use acp_tether::transcript::virtual_player;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;

use crate::over_socket::over_socket;
use crate::peers::agent::Served;
use crate::peers::conversation;
use crate::peers::editor::Editor;
use crate::peers::socket::Network;
use crate::program::{PROGRAM, program};
use crate::proxy::{Fault, Harm, Place, Proxy, Target, Way};
use crate::runner::{assert_are_enough, play_each, play_files, transcripts, transcripts_in};

/// A stream of a session that breaks in the middle of its next piece.
const CUT: Fault =
    Fault { target: Target::Stream, way: Way::Down, place: Place::Middle, harm: Harm::Reset };

fn recording_bridge(file: &Path, flags: &[&str]) -> Bridge {
    let mut bridge = Bridge::connect(PROGRAM);
    let record = ["--record".to_owned(), file.display().to_string()];
    bridge.arguments.splice(1..1, record.into_iter().chain(flags.iter().map(|&flag| flag.into())));
    bridge
}

/// What is recorded of a play of these steps.
fn recorded(transcript: &str, flags: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("night.ndjson");
    let transcript = Transcript::parse(transcript).unwrap();
    if let Err(failure) = live_player::play(&transcript, &recording_bridge(&file, flags)) {
        panic!("{failure}");
    }
    fs::read_to_string(file).unwrap()
}

/// Plays a recording in both players.
fn play_back(recording: &str) {
    let transcript = Transcript::parse(recording).unwrap_or_else(|refused| panic!("{refused}"));
    if let Err(failure) = virtual_player::play(&transcript) {
        panic!("in virtual time, {failure}\n{recording}");
    }
    if let Err(failure) = live_player::play(&transcript, &Bridge::connect(PROGRAM)) {
        panic!("live, {failure}\n{recording}");
    }
}

/// Recordings of these do not play back, and why.
const NOT: [(&str, &str); 4] = [
    (
        "l/a-lane-goes-on-after-what-waited-for-the-link-gave-up",
        "the remote is back only after the editor's message, whose backoff is longer than its --hold",
    ),
    (
        "l/a-lane-goes-on-after-what-waited-for-its-stream-gave-up",
        "limits of two lanes are due within a millisecond: which is first is chance",
    ),
    (
        "s/a-remote-that-goes-away-leaves-the-process-and-answers-each-request",
        "how often a stream is tried before the messages give up is chance",
    ),
    (
        "s/the-end-of-input-while-the-remote-is-away-ends-in-time",
        "how often a stream is tried in the last second is chance",
    ),
];

/// Of these there is nothing to check in a recording: the configuration cannot be used, or nothing
/// follows from what the program is given.
const NOTHING: [&str; 0] = [];

/// Every file that is played live is recorded meanwhile, and its recording is played.
#[test]
fn every_recording_of_the_corpus_plays_back_in_both_players() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("integration/transcripts");
    let name = |file: &Path| {
        let name = file.strip_prefix(&root).unwrap().with_extension("");
        name.to_string_lossy().replace('\\', "/")
    };
    for not in NOT.iter().map(|(name, _)| *name).chain(NOTHING) {
        assert!(root.join(not).with_extension("ndjson").is_file(), "there is no {not}");
    }
    let mut files = transcripts();
    files.retain(|file| {
        let text = fs::read_to_string(file).unwrap();
        let is_live = Transcript::parse(&text).unwrap().header.players.contains(&Player::Live);
        is_live && NOT.iter().all(|(not, _)| *not != name(file))
    });
    let directory = TempDir::new().unwrap();
    let place = |file: &Path| directory.path().join(name(file).replace('/', "-") + ".ndjson");
    play_each(&files, Player::Live, 8, |file, transcript| {
        live_player::play(transcript, &recording_bridge(&place(file), &[]))
    });
    let (recorded, rest): (Vec<_>, Vec<_>) = files.iter().partition(|file| {
        let steps = fs::read_to_string(place(file)).unwrap_or_default();
        ["{\"sees", "{\"gets", "{\"exit"].iter().any(|check| steps.contains(check))
    });
    let rest: Vec<_> = rest.into_iter().map(|file| name(file)).collect();
    let nothing = NOTHING.iter().filter(|not| files.iter().any(|file| name(file) == **not));
    assert_eq!(rest, nothing.copied().collect::<Vec<_>>());
    let recordings: Vec<PathBuf> = recorded.into_iter().map(|file| place(file)).collect();
    play_files(&recordings, Player::Virtual, 2, virtual_player::play);
    let bridge = Bridge::connect(PROGRAM);
    play_files(&recordings, Player::Live, 8, |transcript| live_player::play(transcript, &bridge));
}

/// What the editor asks of the program itself, and nobody through its API.
const CALLS: &str = r#"
{"transcript":1,"name":"calls","rules":["E1"],"start":"session"}
{"editor":{"jsonrpc":"2.0","id":0,"method":"session/prompt","params":{"sessionId":"s1","prompt":[]}}}
{"gets":{"method":"POST","session":"s1","body_like":{"id":0}}}
{"stream":"s1","event":{"jsonrpc":"2.0","id":0,"result":{"stopReason":"end_turn"}}}
{"sees_like":{"id":0}}
{"editor":{"jsonrpc":"2.0","id":1,"method":"_acp-tether/reconnect"}}
{"sees_like":{"id":1,"result":{"ok":true}}}
{"gets":{"method":"GET","session":null}}
{"gets":{"method":"GET","session":"s1"}}
{"editor":{"jsonrpc":"2.0","id":2,"method":"_acp-tether/close","params":{"sessionId":"s1"}}}
{"sees_like":{"id":2,"result":{"ok":true}}}
{"editor":{"jsonrpc":"2.0","id":3,"method":"_acp-tether/close","params":{"sessionId":"s1"}}}
{"sees_like":{"id":3,"error":{"code":-32002}}}
"#;

#[test]
fn e1_a_recording_of_what_the_editor_asks_of_the_program_plays_back() {
    let recording = recorded(CALLS, &[]);
    assert!(!recording.contains("\"api\""), "{recording}");
    play_back(&recording);
}

/// A turn, a permission, and a stream that is cut: with the official Rust SDK's server, which nobody
/// here wrote.
#[test]
fn a_recording_of_the_official_server_plays_back_in_both_players() {
    let directory = TempDir::new().unwrap();
    for (number, http) in ["1.1", "2"].into_iter().enumerate() {
        let file = directory.path().join(format!("{number}.ndjson"));
        let served = Served::start();
        let proxy = Proxy::to(&served.url);
        // The proxy speaks HTTP/1.1 only.
        let url = if http == "2" { &served.url } else { &proxy.url };
        let mut editor =
            Editor::connect(url, &["--http", http, "--record", file.to_str().unwrap()]);
        conversation::hold_all(&mut editor);
        if http == "1.1" {
            let session = conversation::new_session(&mut editor);
            let whole = conversation::say(&mut editor, &session, "echo what is whole");
            editor.until_answer(whole);
            proxy.arm([CUT]);
            let lost = conversation::say(&mut editor, &session, "echo what is cut");
            proxy.wait();
            // Its answer may be lost with the stream: the next turn shows that the link is back.
            let next = conversation::say(&mut editor, &session, "echo what comes after");
            let (before, answer) = editor.until_answer(next);
            assert!(answer["result"]["stopReason"] == "end_turn", "{lost}: {before:?} {answer}");
        }
        assert!(editor.close().status.success());
        let recording = fs::read_to_string(&file).unwrap();
        assert!(!recording.contains("far away") && !recording.contains("Write a file"));
        assert!(http == "2" || recording.contains(r#""end":"reset""#), "{recording}");
        play_back(&recording);
    }
}

/// The same over a socket, which is cut in the middle of a turn.
#[test]
fn w2_a_recording_of_the_official_server_over_a_cut_socket_plays_back_in_both_players() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("night.ndjson");
    let served = Served::start();
    let network = Network::to(&served.url);
    let mut editor = Editor::connect(&network.url, &["--record", file.to_str().unwrap()]);
    conversation::hold_all(&mut editor);
    let session = conversation::new_session(&mut editor);
    let held = conversation::say(&mut editor, &session, "hold");
    assert_eq!(conversation::said(&editor.message(), &session), "holding");
    network.cut();
    let (_, answer) = editor.until_answer(held);
    assert_eq!(answer["error"]["data"]["kind"], "connection_lost", "{answer}");
    let next = conversation::say(&mut editor, &session, "echo here again");
    let (_, answer) = editor.until_answer(next);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    assert!(editor.close().status.success());
    let recording = fs::read_to_string(&file).unwrap();
    assert!(!recording.contains("far away") && !recording.contains("here again"), "{recording}");
    for (step, count) in [
        (r#""upgrade":"websocket""#, 2),
        (r#""status":101"#, 2),
        (r#""end":"reset""#, 1),
        (r#"{"gets":{"frame":"close","code":1000}"#, 1),
        (r#""method":"POST""#, 0),
    ] {
        assert_eq!(recording.matches(step).count(), count, "{step}: {recording}");
    }
    let seen = recording.lines().filter(|line| line.starts_with("{\"sees\":")).count();
    assert!(seen > 20, "{seen}: {recording}");
    play_back(&recording);
}

/// Every file that does not speak of HTTP, with a scripted WebSocket: it is recorded meanwhile, and its
/// recording is played.
#[test]
fn w1_every_such_transcript_holds_over_a_socket_against_the_built_program_and_plays_back() {
    let directory = TempDir::new().unwrap();
    let place = |file: &Path| {
        let group = file.parent().and_then(Path::file_name).unwrap().to_string_lossy();
        directory.path().join(format!("{group}-{}", file.file_name().unwrap().to_string_lossy()))
    };
    play_each(&transcripts(), Player::Live, 8, |file, transcript| match over_socket(transcript) {
        Some(transcript) => live_player::play(&transcript, &recording_bridge(&place(file), &[])),
        None => Ok(()),
    });
    let recordings = transcripts_in(directory.path());
    assert_are_enough(recordings.len());
    play_files(&recordings, Player::Virtual, 2, virtual_player::play);
    let bridge = Bridge::connect(PROGRAM);
    play_files(&recordings, Player::Live, 8, |transcript| live_player::play(transcript, &bridge));
}

/// A conversation with a secret wherever one can be.
const SECRETS: &str = r#"
{"transcript":1,"name":"secrets","rules":["X1"],"path":"/acp?token=SECRET","flags":["--header","Authorization: Bearer SECRET","--header","Cookie: a=SECRET"]}
{"editor":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"SECRET","version":"SECRET"},"_meta":{"SECRET":"SECRET"}}}}
{"gets":{"method":"POST","headers":{"authorization":"Bearer SECRET"}},"answer":{"status":200,"headers":{"Acp-Connection-Id":"c1","Set-Cookie":"b=SECRET","X-Other":"SECRET"},"body":{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"SECRET"}}}}}
{"sees_like":{"id":1}}
{"gets":{"method":"GET","session":null}}
{"editor":{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/SECRET","mcpServers":[{"name":"SECRET","command":"/SECRET","args":["SECRET"],"env":[{"name":"SECRET","value":"SECRET"}]},{"type":"http","url":"https://SECRET/?a=SECRET","headers":[{"name":"SECRET","value":"SECRET"}]}]}}}
{"gets":{"method":"POST","body_like":{"method":"session/new"}}}
{"stream":null,"event":{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1","modes":{"currentModeId":"m","availableModes":[{"id":"m","name":"SECRET"}]}}}}
{"sees_like":{"id":2}}
{"gets":{"method":"GET","session":"s1"}}
{"editor":{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s1","prompt":[{"type":"text","text":"my password is SECRET"},{"type":"resource","resource":{"uri":"file:///SECRET","text":"SECRET"}}]}}}
{"gets":{"method":"POST","body_like":{"method":"session/prompt"}}}
{"stream":"s1","event":{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"SECRET","rawInput":{"SECRET":"SECRET","kind":"SECRET"},"rawOutput":"SECRET","content":[{"type":"diff","path":"/SECRET","oldText":"SECRET","newText":"SECRET"}]}}}}
{"sees_like":{"method":"session/update"}}
{"stream":"s1","event":{"jsonrpc":"2.0","id":"q","method":"fs/write_text_file","params":{"sessionId":"s1","path":"/SECRET","content":"SECRET"}}}
{"sees_like":{"method":"fs/write_text_file"},"save":"q"}
{"editor":{"jsonrpc":"2.0","id":{"$ref":"q"},"error":{"code":1,"message":"SECRET","data":{"SECRET":"SECRET"}}}}
{"gets":{"method":"POST","body_like":{"id":"q"}},"answer":{"status":500,"text":"SECRET went wrong"}}
{"sees_like":{"method":"session/update"}}
{"stream":"s1","event":{"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{"sessionId":"s1","mode":"form","requestedSchema":{"type":"object","properties":{"SECRET":{"type":"string"}}}}}}
{"sees_like":{"method":"elicitation/create"},"save":"e"}
{"editor":{"jsonrpc":"2.0","id":{"$ref":"e"},"result":{"action":"accept","content":{"code":"SECRET","state":"SECRET-2","id":"passport-SECRET"}}}}
{"gets":{"method":"POST","body_like":{"id":"e"}}}
{"editor":{"jsonrpc":"2.0","id":5,"method":"authenticate","params":{"methodId":"oauth","code":"sk-live-SECRET","type":"SECRET","mode":"SECRET"}}}
{"gets":{"method":"POST","body_like":{"id":5}}}
{"stream":null,"event":{"jsonrpc":"2.0","id":5,"result":{}}}
{"sees_like":{"id":5}}
{"stream":"s1","event":{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"SECRET","status":"SECRET","content":{"kind":"SECRET","sessionId":"SECRET"}}}}}
{"sees_like":{"method":"session/update"}}
{"stream":"s1","data":"no JSON but SECRET"}
{"stream":"s1","comment":"SECRET"}
{"stream":"s1","event":{"jsonrpc":"2.0","method":"_vendor/thing","params":{"SECRET":["SECRET",{"SECRET":"SECRET"}]}}}
{"sees_like":{"method":"_vendor/thing"}}
{"editor_raw":"this is no JSON but SECRET"}
{"sees_like":{"error":{"code":-32700}}}
{"editor":{"jsonrpc":"2.0","id":4,"method":"session/set_mode","params":{"sessionId":"s1","modeId":"m"}}}
{"gets":{"method":"POST","body_like":{"method":"session/set_mode"}},"answer":{"status":403,"body":{"error":"SECRET","SECRET":"SECRET"}}}
{"sees_like":{"id":4,"error":{"data":{"status":403}}}}
{"editor_end":true}
{"sees_like":{"id":3}}
{"gets":{"method":"DELETE"}}
{"exit":0}
"#;

#[test]
fn x1_a_recording_tells_no_secret_wherever_it_stands() {
    let recording = recorded(SECRETS, &[]);
    assert!(!recording.contains("SECRET"), "{recording}");
    // Ids stay, and the names of headers.
    for kept in ["\"s1\"", "\"c1\"", "Authorization: hidden", "tool_call_update"] {
        assert!(recording.contains(kept), "{kept}: {recording}");
    }
    play_back(&recording);
}

#[test]
fn x1_with_its_content_a_recording_still_tells_no_header_cookie_or_query() {
    let recording = recorded(SECRETS, &["--record-content"]);
    assert!(recording.contains("my password is SECRET"));
    let written = ["Bearer SECRET", "Cookie: a=SECRET", "b=SECRET", "token=SECRET", "X-Other"];
    let given = ["\"value\":\"SECRET\"", "\"name\":\"SECRET\",\"value\""];
    for secret in written.into_iter().chain(given) {
        assert!(!recording.contains(secret), "{secret}: {recording}");
    }
    play_back(&recording);
}

/// What a server can say over a socket, with a secret in all of it.
const SOCKET_SECRETS: &str = r#"
{"transcript":1,"name":"secrets","rules":["X1"],"path":"/acp?token=SECRET","flags":["--transport=ws","--header","Authorization: Bearer SECRET"]}
{"editor":{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"SECRET","version":"SECRET"}}}}
{"gets":{"method":"GET","headers":{"upgrade":"websocket","authorization":"Bearer SECRET"}},"as":"w1"}
{"answers":"w1","status":101,"headers":{"Acp-Connection-Id":"c1","Set-Cookie":"b=SECRET","X-Other":"SECRET"}}
{"gets":{"frame":"text","body_like":{"method":"initialize"}}}
{"socket":"w1","message":{"jsonrpc":"2.0","method":"_vendor/early","params":{"a":"SECRET"}}}
{"socket":"w1","message":{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"SECRET"}}}}
{"sees_like":{"id":1}}
{"sees_like":{"method":"_vendor/early"}}
{"socket":"w1","text":"no JSON but SECRET"}
{"socket":"w1","hex":"22534543524554ff22"}
{"socket":"w1","ping":"SECRET"}
{"editor":{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/SECRET","mcpServers":[]}}}
{"gets":{"frame":"text","body_like":{"method":"session/new"}}}
{"socket":"w1","close":1011,"reason":"SECRET went wrong"}
{"sees_like":{"id":2,"error":{"data":{"kind":"connection_lost"}}}}
{"gets":{"method":"GET","headers":{"upgrade":"websocket","cookie":"b=SECRET"}},"as":"w2"}
{"answers":"w2","status":403,"headers":{"X-Other":"SECRET"},"text":"SECRET went wrong"}
"#;

#[test]
fn x1_a_recording_of_a_socket_tells_no_secret_and_how_it_was_closed() {
    let recording = recorded(SOCKET_SECRETS, &[]);
    assert!(!recording.contains("SECRET"), "{recording}");
    let reason = r#"{"socket":"w1","close":1011,"reason":""#;
    for kept in ["\"c1\"", "Authorization: hidden", "--transport=ws", reason, "\"status\":403"] {
        assert!(recording.contains(kept), "{kept}: {recording}");
    }
    play_back(&recording);
    let recording = recorded(SOCKET_SECRETS, &["--record-content"]);
    // What it repeats of the credential is hidden before anybody knows of it.
    assert!(recording.contains(r#""close":1011,"reason":"hidden went wrong"}"#), "{recording}");
    for secret in ["Bearer SECRET", "b=SECRET", "token=SECRET", "X-Other"] {
        assert!(!recording.contains(secret), "{secret}: {recording}");
    }
    play_back(&recording);
}

/// A conversation of a few turns.
fn turns(number: usize) -> String {
    let header = r#"{"transcript":1,"name":"turns","rules":["S6"],"start":"session"}"#;
    let turns = (0..number).map(|turn| {
        format!(
            r#"{{"editor":{{"jsonrpc":"2.0","id":{turn},"method":"session/prompt","params":{{"sessionId":"s1","prompt":[{{"type":"text","text":"turn ünï {turn}"}}]}}}}}}
{{"gets":{{"method":"POST"}}}}
{{"stream":"s1","event":{{"jsonrpc":"2.0","id":{turn},"result":{{"stopReason":"end_turn"}}}}}}
{{"sees_like":{{"id":{turn}}}}}"#
        )
    });
    [header.to_owned()].into_iter().chain(turns).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_recording_that_was_cut_off_anywhere_plays_as_far_as_it_goes() {
    let recording = recorded(&turns(2), &[]);
    let header = recording.find('\n').unwrap() + 1;
    let mut played = 0;
    for end in header..recording.len() {
        match Transcript::parse(&recording[..end]) {
            Ok(transcript) => {
                played += 1;
                if let Err(failure) = virtual_player::play(&transcript) {
                    panic!("cut at byte {end}: {failure}");
                }
            }
            Err(refused) => assert_eq!(refused.reason, "the file checks nothing", "{end}"),
        }
    }
    assert!(played > (recording.len() - header) / 2);
}

/// A SIGKILL; in the file is what the editor saw before.
#[test]
fn a_killed_program_leaves_whole_lines_up_to_its_last_step() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("night.ndjson");
    let served = Served::start();
    let mut editor = Editor::connect(&served.url, &["--record", file.to_str().unwrap()]);
    conversation::hold_all(&mut editor);
    let session = conversation::new_session(&mut editor);
    let turn = conversation::say(&mut editor, &session, "echo what is whole");
    editor.until_answer(turn);
    editor.kill();
    let recording = fs::read_to_string(file).unwrap();
    assert!(recording.ends_with('\n'));
    let last = recording.lines().rev().find(|line| line.contains("\"sees\"")).unwrap();
    let id = format!("\"id\":{turn}");
    assert!(last.contains(&id) && !recording.contains("\"exit\""), "{recording}");
}

#[test]
fn a_recording_ends_at_its_limit_and_the_conversation_does_not() {
    let recording = recorded(&turns(40), &["--record-limit", "4KiB"]);
    assert!(recording.len() <= 4096 && recording.len() > 3000, "{} bytes", recording.len());
    assert!(recording.ends_with("// --record-limit is reached; what follows is not recorded\n"));
    play_back(&recording);
}

/// An editor starts the same command many times.
#[test]
fn in_a_directory_each_start_has_a_recording_of_its_own() {
    let directory = TempDir::new().unwrap();
    let transcript = Transcript::parse(&turns(1)).unwrap();
    for starts in 1..3 {
        let bridge = recording_bridge(directory.path(), &[]);
        live_player::play(&transcript, &bridge).unwrap_or_else(|failure| panic!("{failure}"));
        let files: Vec<PathBuf> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), starts);
        assert!(files.iter().all(|file| file.extension().unwrap() == "ndjson"), "{files:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_recording_is_for_its_owner_alone_and_overwrites_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("night.ndjson");
    let transcript = Transcript::parse(&turns(1)).unwrap();
    live_player::play(&transcript, &recording_bridge(&file, &[])).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&file).unwrap();

    for path in [file.clone(), directory.path().join("no/such/directory")] {
        let mut program = program()
            .args(["connect", "--api", "off", "--record"])
            .args([path.as_os_str(), "http://127.0.0.1:9".as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
        serde_json::to_writer(program.stdin.as_mut().unwrap(), &initialize).unwrap();
        drop(program.stdin.take());
        let output = program.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        let (answer, log) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(answer.contains("--record cannot create its file"), "{answer}");
        assert!(log.contains("--record cannot create its file"), "{log}");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
}
