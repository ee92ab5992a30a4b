//! What the endpoints answer (A3, A4, E1), by the schemas.

use super::schema::follows;
use super::{Caller, Tether, connect, records, yes};
use crate::peers::agent::Served;
use crate::peers::conversation::{new_session, said, say};
use crate::proxy::{Fault, Harm, Place, Proxy, Target, Way};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The sessions of a status, as id and status.
fn sessions(status: &Value) -> Vec<(&str, &str)> {
    let sessions = status["sessions"].as_array().unwrap().iter();
    sessions
        .map(|one| (one["sessionId"].as_str().unwrap(), one["status"].as_str().unwrap()))
        .collect()
}

fn close(session: &str) -> String {
    format!("/sessions/{session}/close")
}

#[test]
fn a3_the_status_tells_of_instance_link_and_sessions_by_the_schema() {
    let mut tether = Tether::start();
    let before = tether.api.get("/status").json();
    follows("status", &before);
    // Creating a session is no activity (T2).
    assert!(sessions(&before).is_empty());
    assert_eq!(before["link"]["state"], "up");
    assert_eq!(before["instance"]["id"], tether.record["id"]);
    assert_eq!(before["instance"]["pid"], tether.editor.pid());
    assert_eq!(before["instance"]["editor"], json!({"name": "an editor", "version": "1.2"}));
    assert_eq!(before["instance"]["protocolVersion"], 1);
    tether.goes_on();
    let after = tether.api.get("/status").json();
    follows("status", &after);
    assert_eq!(sessions(&after), [(&*tether.session, "idle")]);
    let session = &after["sessions"][0];
    assert_eq!((&session["cwd"], &session["turns"]), (&json!("/project"), &json!(1)));
    assert_eq!(session["lastStopReason"], "end_turn");
    let started = after["instance"]["startedAt"].as_u64().unwrap();
    assert!(session["createdAt"].as_u64().unwrap() >= started);
}

#[test]
fn a2_the_record_names_the_editor_once_that_is_known_and_follows_its_schema() {
    let mut tether = Tether::start();
    follows("instance", &tether.record);
    // The record is written anew as soon as there is a connection, so before this answer.
    tether.goes_on();
    let record = tether.until_record(|record| record.get("editor").is_some());
    follows("instance", &record);
    assert_eq!(record["editor"]["name"], "an editor");
    assert_eq!(record["token"], tether.record["token"]);
    assert_eq!(records(tether.runtime.path()).len(), 1);
}

#[test]
fn a4_a_running_session_is_not_closed_and_its_turn_ends_normally() {
    let mut tether = Tether::start();
    let turn = say(&mut tether.editor, &tether.session, "hold");
    assert_eq!(said(&tether.editor.message(), &tether.session), "holding");
    let refused = tether.api.post(&close(&tether.session), "");
    assert_eq!((refused.status, &refused.json()["error"]), (409, &json!("running")));
    follows("api-error", &refused.json());
    assert_eq!(sessions(&tether.api.get("/status").json()), [(&*tether.session, "running")]);
    let params = json!({"sessionId": tether.session});
    tether.editor.notify("session/cancel", &params);
    let (before, answer) = tether.editor.until_answer(turn);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(answer["result"]["stopReason"], "cancelled");
    assert_eq!(tether.api.post(&close(&tether.session), "").json(), json!({"ok": true}));
}

#[test]
fn a4_a_session_that_waits_for_a_permission_is_not_closed() {
    let mut tether = Tether::start();
    let turn = say(&mut tether.editor, &tether.session, "ask May I?");
    let question = tether.editor.message();
    assert_eq!(tether.api.post(&close(&tether.session), "").status, 409);
    let status = tether.api.get("/status").json();
    follows("status", &status);
    assert_eq!(sessions(&status), [(&*tether.session, "waiting")]);
    assert_eq!(status["sessions"][0]["waitingFor"], "permission");
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": outcome});
    tether.editor.write(&answer.to_string());
    let (_, answer) = tether.editor.until_answer(turn);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
}

#[test]
fn t5_what_was_closed_comes_back_with_the_next_prompt_and_with_nothing_else() {
    let mut tether = Tether::start();
    tether.goes_on();
    let mut watching = tether.api.watch();
    assert_eq!(sessions(&watching.next()), [(&*tether.session, "idle")]);
    let closed = tether.api.post(&close(&tether.session), "");
    assert_eq!((closed.status, closed.json()), (200, json!({"ok": true})));
    assert!(sessions(&tether.api.get("/status").json()).is_empty());
    assert!(sessions(&watching.next()).is_empty());
    assert_eq!(tether.api.post(&close(&tether.session), "").status, 404);
    let resumed = json!({"sessionId": tether.session, "cwd": "/project"});
    tether.editor.ask("session/resume", &resumed);
    assert!(sessions(&tether.api.get("/status").json()).is_empty());
    tether.editor.ask("_acp-tether/reconnect", &json!({}));
    assert!(sessions(&tether.api.get("/status").json()).is_empty());
    let turn = say(&mut tether.editor, &tether.session, "hold");
    assert_eq!(said(&tether.editor.message(), &tether.session), "holding");
    assert_eq!(sessions(&tether.api.get("/status").json()), [(&*tether.session, "running")]);
    assert_eq!(sessions(&watching.next()), [(&*tether.session, "running")]);
    tether.editor.notify("session/cancel", &json!({"sessionId": tether.session}));
    tether.editor.until_answer(turn);
}

/// K139.
#[test]
fn a4_a_session_is_closed_by_its_id_whatever_characters_that_has() {
    let (url, _agent) = yes::start();
    let runtime = tempfile::tempdir().unwrap();
    let mut editor = connect(&url, runtime.path());
    editor.ask("initialize", &json!({"protocolVersion": 1}));
    let api = Caller::new(&records(runtime.path())[0]);
    let cases = [
        ("a/b?c#d%é", "a%2Fb%3Fc%23d%25%C3%A9"),
        ("../x", "..%2fx"),
        ("..", "%2E%2e"),
        ("a%2Fb", "a%252Fb"),
        ("a+b", "a+b"),
        ("世界", "%E4%B8%96%E7%95%8C"),
    ];
    for (id, segment) in cases {
        let turn = say(&mut editor, id, "anything");
        editor.until_answer(turn);
        assert_eq!(sessions(&api.get("/status").json()), [(id, "idle")]);
        let closed = api.post(&close(segment), "");
        assert_eq!(closed.status, 200, "{id}: {closed:?}");
        assert!(sessions(&api.get("/status").json()).is_empty(), "{id}");
    }
}

/// I14: neither a stream that is cut nor a connection that is replaced is activity.
#[test]
fn t5_what_was_closed_stays_closed_through_a_recovery() {
    let agent = Served::start();
    let proxy = Proxy::to(&agent.url);
    let mut tether = Tether::over(agent, &proxy.url);
    tether.goes_on();
    let other = new_session(&mut tether.editor);
    let turn = say(&mut tether.editor, &other, "echo listed");
    tether.editor.until_answer(turn);
    assert_eq!(tether.api.post(&close(&tether.session), "").status, 200);
    let mut watching = tether.api.watch();
    let cut =
        Fault { target: Target::Stream, way: Way::Down, place: Place::Start, harm: Harm::Reset };
    proxy.arm([cut]);
    let turn = say(&mut tether.editor, &other, "echo cut");
    proxy.wait();
    tether.editor.notify("session/cancel", &json!({"sessionId": other}));
    tether.agent.forget_connection();
    let is_back = |status: &Value| {
        let link = (status["link"]["state"].as_str(), status["link"]["epoch"].as_u64());
        link == (Some("up"), Some(2)) && status["sessions"][0]["remote"] == "attached"
    };
    loop {
        let status = watching.next();
        follows("status", &status);
        assert_eq!(status["sessions"].as_array().unwrap().len(), 1, "{status:#}");
        if is_back(&status) {
            break;
        }
    }
    tether.editor.until_answer(turn);
    tether.goes_on();
    let status = tether.api.get("/status").json();
    assert_eq!(sessions(&status)[0], (&*tether.session, "idle"));
}

#[test]
fn a3_events_tell_the_first_and_the_last_and_at_most_about_ten_a_second() {
    let mut tether = Tether::start();
    let mut watching = tether.api.watch();
    follows("status", &watching.next());
    let start = std::time::Instant::now();
    for _ in 0..200 {
        tether.goes_on();
    }
    let took = start.elapsed();
    let mut documents = 0;
    loop {
        let document = watching.next();
        follows("status", &document);
        documents += 1;
        let session = &document["sessions"][0];
        if session["turns"] == 200 && session["status"] == "idle" {
            break;
        }
    }
    // Each turn changes the status twice.
    let most = 2.0 + took.as_secs_f64() * 10.0;
    assert!(f64::from(documents) <= most.ceil() + 1.0, "{documents} in {took:?}");
}

#[test]
fn e1_our_methods_are_served_to_the_editor_and_never_sent_on() {
    let mut tether = Tether::start();
    tether.goes_on();
    let before = posts(&tether);
    let status = tether.editor.ask("_acp-tether/status", &json!({}));
    follows("status", &status);
    assert_eq!(status["sessions"][0]["sessionId"], *tether.session);
    let listed = tether.editor.ask("_acp-tether/sessions", &json!({}));
    assert_eq!(listed["sessions"], status["sessions"]);
    let session = json!({"sessionId": tether.session});
    assert_eq!(tether.editor.ask("_acp-tether/close", &session), json!({"ok": true}));
    let again = tether.editor.request("_acp-tether/close", &session);
    assert_eq!(tether.editor.until_answer(again).1["error"]["code"], -32002);
    tether.editor.write(r#"{"jsonrpc":"2.0","id":-1.5,"method":"_acp-tether/no-such-method"}"#);
    let refused = tether.editor.message();
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(-1.5), &json!(-32601)));
    assert_eq!(tether.editor.ask("_acp-tether/reconnect", &json!({})), json!({"ok": true}));
    let notification = json!({"sessionId": tether.session});
    tether.editor.notify("_acp-tether/status", &notification);
    // What was sent on before this prompt would come before it.
    tether.goes_on();
    assert_eq!(posts(&tether), before + 1);
}

/// The messages that the agent has received.
fn posts(tether: &Tether) -> usize {
    tether.agent.http_methods().iter().filter(|method| *method == "POST").count()
}

#[test]
fn e1_our_methods_are_served_over_http_by_the_rules_of_json_rpc() {
    let mut tether = Tether::start();
    tether.goes_on();
    let call = |method: &str, id: &str, params: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"_acp-tether/{method}","params":{params}}}"#
        )
    };
    for id in ["1", "-1", "1.5", "1e3", "18446744073709551616", r#""a""#, r#""\u0061""#, "null"] {
        let answer = tether.api.post("/rpc", &call("sessions", id, "{}"));
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains(&format!(r#""id":{id},"#)), "{id}: {}", answer.body);
        assert!(answer.json()["result"]["sessions"].is_array(), "{id}: {}", answer.body);
    }
    let code = |body: &str| tether.api.post("/rpc", body).json()["error"]["code"].clone();
    assert_eq!(code("{"), -32700);
    assert_eq!(code("[1"), -32700);
    assert_eq!(code("[]"), -32600);
    assert_eq!(code("7"), -32600);
    assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), -32600);
    assert_eq!(code(&call("nothing", "1", "{}")), -32601);
    assert_eq!(code(&call("close", "1", "{}")), -32602);
    assert_eq!(code(&call("close", "1", r#"{"sessionId":1}"#)), -32602);
    assert_eq!(code(&call("close", "1", r#"{"sessionId":"none"}"#)), -32002);
    assert_eq!(code(&format!("[{}]", vec!["1"; 17].join(","))), -32600);
    let notification = r#"{"jsonrpc":"2.0","method":"_acp-tether/reconnect"}"#;
    for body in [notification, &format!("[{notification},{notification}]")] {
        let answer = tether.api.post("/rpc", body);
        assert_eq!((answer.status, &*answer.body), (204, ""));
    }
    let batch =
        format!("[{},{notification},1,{}]", call("status", "7", "{}"), call("x", "8", "{}"));
    let answers = tether.api.post("/rpc", &batch).json();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(7), &json!(null), &json!(8)]);
    follows("status", &answers[0]["result"]);
    let turn = say(&mut tether.editor, &tether.session, "hold");
    assert_eq!(said(&tether.editor.message(), &tether.session), "holding");
    let session = json!({"sessionId": tether.session}).to_string();
    let code =
        tether.api.post("/rpc", &call("close", "1", &session)).json()["error"]["code"].clone();
    assert_eq!(code, -32001);
    tether.editor.notify("session/cancel", &json!({"sessionId": tether.session}));
    tether.editor.until_answer(turn);
    let other = new_session(&mut tether.editor);
    assert_ne!(other, tether.session);
}

#[test]
fn every_refusal_follows_its_schema() {
    let tether = Tether::start();
    let bare = format!("Host: 127.0.0.1:{}\r\n", tether.api.port);
    let refusals = [
        tether.api.send("GET /status", ""),
        tether.api.send("GET /status", &bare),
        tether.api.get("/none"),
        tether.api.get("/rpc"),
        tether.api.post("/sessions/none/close", ""),
        tether.api.post("/rpc", &" ".repeat(70_000)),
    ];
    let statuses = refusals.map(|refusal| {
        follows("api-error", &refusal.json());
        refusal.status
    });
    assert_eq!(statuses, [403, 401, 404, 405, 404, 413]);
}

/// I17: more calls than may be under way, in one write, while nothing is read.
#[test]
fn e1_many_calls_at_once_are_all_answered() {
    let mut tether = Tether::start();
    let call =
        |id: usize| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"_acp-tether/sessions"}}"#);
    let calls: Vec<_> = (0..500).map(call).collect();
    tether.editor.write(&calls.join("\n"));
    let answered: BTreeSet<String> =
        (0..500).map(|_| tether.editor.message()["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(answered.len(), 500);
    tether.goes_on();
}
