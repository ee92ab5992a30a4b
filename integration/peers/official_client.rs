//! The official Rust SDK's client as the editor: it launches the built program as its agent.

use super::agent::Served;
use super::editor::PATIENCE;
use crate::program::{PROGRAM, apart_as_words};
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, ContentBlock, ImageContent, InitializeRequest,
    ListSessionsRequest, LoadSessionRequest, NewSessionRequest, PromptRequest, PromptResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    ResumeSessionRequest, SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate,
    StopReason, TextContent,
};
use agent_client_protocol::{
    AcpAgent, Agent, Client, Error, Result, SentRequest, V1, on_receive_notification,
    on_receive_request,
};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::time::timeout;

const HTTP_1: &[&str] = &["--http", "1.1"];
const HTTP_2: &[&str] = &["--http", "2"];
const AUTO: &[&str] = &[];
/// Bytes of the image, as base64.
const IMAGE: usize = 5 * 1024 * 1024;

/// What the agent said, with the session it was said in, in order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(String, String)>>>);

/// The official client's end.
struct Editor {
    agent: ConnectionTo<Agent>,
    heard: Heard,
}

#[test]
fn s6_the_official_client_holds_a_whole_conversation_over_http_1() {
    converse(HTTP_1, whole_conversation);
}

#[test]
fn s6_the_official_client_holds_a_whole_conversation_over_http_2() {
    converse(HTTP_2, whole_conversation);
}

#[test]
fn l6_the_official_client_holds_a_whole_conversation_over_what_the_server_speaks() {
    converse(AUTO, whole_conversation);
}

#[test]
fn l5_two_sessions_of_the_official_client_do_not_wait_for_each_other() {
    for flags in [HTTP_1, HTTP_2] {
        converse(flags, async |editor, _served| {
            let (one, other) = (editor.new_session().await?, editor.new_session().await?);
            let held = editor.say(&one, "hold");
            editor.hear(&one, "holding").await;
            assert_eq!(
                editor.say(&other, "echo beside it").block_task().await?.stop_reason,
                StopReason::EndTurn
            );
            let many = editor.say(&other, "flood 500 50");
            editor.cancel(&one)?;
            assert_eq!(held.block_task().await?.stop_reason, StopReason::Cancelled);
            assert_eq!(many.block_task().await?.stop_reason, StopReason::EndTurn);
            assert_eq!(editor.heard.of(&one), ["holding"]);
            let told = editor.heard.of(&other);
            assert_eq!(told[0], "beside it");
            assert_numbered(&told[1..], 500);
            Ok(())
        });
    }
}

#[test]
fn s6_an_image_of_five_megabytes_arrives_as_it_was_sent() {
    for flags in [HTTP_1, HTTP_2] {
        converse(flags, async |editor, served| {
            let session = editor.new_session().await?;
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let base64 = (0..IMAGE).map(|place| char::from(alphabet[place * 7 / 5 % 64]));
            let data: String = base64.collect();
            let image = ImageContent::new(data.as_str(), "image/png");
            let prompt = vec![ContentBlock::Image(image)];
            let answer = editor.agent.send_request(PromptRequest::new(session, prompt));
            assert_eq!(answer.block_task().await?.stop_reason, StopReason::EndTurn);
            let expected = json!([{"type": "image", "data": data, "mimeType": "image/png"}]);
            assert!(served.prompts() == [expected], "the image differs");
            Ok(())
        });
    }
}

#[test]
fn p6_ten_thousand_updates_of_one_turn_come_complete_and_in_order() {
    for flags in [HTTP_1, HTTP_2] {
        converse(flags, async |editor, _served| {
            let session = editor.new_session().await?;
            let answer = editor.say(&session, "flood 10000 40").block_task().await?;
            assert_eq!(answer.stop_reason, StopReason::EndTurn);
            assert_numbered(&editor.heard.of(&session), 10_000);
            Ok(())
        });
    }
}

async fn whole_conversation(editor: &Editor, _served: &Served) -> Result<()> {
    let session = editor.new_session().await?;
    let answer = editor.say(&session, "echo hello from far away").block_task().await?;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    let answer = editor.say(&session, "ask Write a file").block_task().await?;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);

    let held = editor.say(&session, "hold");
    editor.hear(&session, "holding").await;
    editor.cancel(&session)?;
    assert_eq!(held.block_task().await?.stop_reason, StopReason::Cancelled);
    assert_eq!(editor.heard.of(&session), ["hello from far away", "chosen: yes", "holding"]);

    editor.heard.forget();
    editor
        .agent
        .send_request(LoadSessionRequest::new(session.clone(), "/project"))
        .block_task()
        .await?;
    let history = [
        "echo hello from far away",
        "hello from far away",
        "ask Write a file",
        "chosen: yes",
        "hold",
        "holding",
    ];
    assert_eq!(editor.heard.of(&session), history);

    editor.heard.forget();
    editor
        .agent
        .send_request(ResumeSessionRequest::new(session.clone(), "/project"))
        .block_task()
        .await?;
    let answer = editor.say(&session, "echo again").block_task().await?;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    assert_eq!(editor.heard.of(&session), ["again"]);

    let listed = editor.agent.send_request(ListSessionsRequest::new()).block_task().await?;
    let listed: Vec<&SessionId> = listed.sessions.iter().map(|one| &one.session_id).collect();
    assert_eq!(listed, [&session]);

    editor.agent.send_request(CloseSessionRequest::new(session.clone())).block_task().await?;
    let refused = editor.say(&session, "echo closed").block_task().await.unwrap_err();
    assert_eq!(refused.code, Error::invalid_params().code, "the agent's own error: {refused}");
    let again = editor.new_session().await?;
    let answer = editor.say(&again, "echo after that").block_task().await?;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    Ok(())
}

/// Lets the official client launch the program with `flags` on a new agent, initialize and talk.
fn converse(flags: &[&str], talk: impl AsyncFnOnce(&Editor, &Served) -> Result<()>) {
    let served = Served::start();
    let program = [PROGRAM, "connect", "--api", "off"];
    let apart = apart_as_words();
    let apart = apart.iter().map(String::as_str);
    let command = apart.chain(program).chain(flags.iter().copied()).chain([served.url.as_str()]);
    let program = AcpAgent::from_args(command).unwrap();
    let heard = Heard::default();
    let hearing = heard.clone();
    let client = Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                hearing.hear(notification);
                Ok(())
            },
            on_receive_notification!(),
        )
        .on_receive_request(
            async |question: RequestPermissionRequest, responder, _cx| {
                let first = question.options[0].option_id.clone();
                let chosen = SelectedPermissionOutcome::new(first);
                responder.respond(RequestPermissionResponse::new(
                    RequestPermissionOutcome::Selected(chosen),
                ))
            },
            on_receive_request!(),
        )
        .connect_with(program, async |agent| {
            let request = InitializeRequest::new(ProtocolVersion::V1);
            let initialized = agent.send_request(request).block_task().await?;
            assert_eq!(initialized.agent_info.expect("an agent").name, "scripted");
            talk(&Editor { agent, heard }, &served).await
        });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(async { timeout(PATIENCE, client).await });
    ended.expect("the conversation ends in time").expect("the conversation succeeds");
    assert!(served.http_methods().contains(&"DELETE".to_owned()), "S7: no DELETE was seen");
}

fn assert_numbered(texts: &[String], count: usize) {
    assert_eq!(texts.len(), count);
    for (number, text) in texts.iter().enumerate() {
        assert_eq!(text.split(' ').next(), Some(number.to_string().as_str()));
    }
}

impl Editor {
    async fn new_session(&self) -> Result<SessionId> {
        let request = NewSessionRequest::new("/project");
        Ok(self.agent.send_request(request).block_task().await?.session_id)
    }

    fn say(&self, session: &SessionId, text: &str) -> SentRequest<PromptResponse, V1> {
        let prompt = vec![ContentBlock::Text(TextContent::new(text))];
        self.agent.send_request(PromptRequest::new(session.clone(), prompt))
    }

    fn cancel(&self, session: &SessionId) -> Result<()> {
        self.agent.send_notification(CancelNotification::new(session.clone()))
    }

    /// Waits until the agent has said `text` in `session`.
    async fn hear(&self, session: &SessionId, text: &str) {
        let start = Instant::now();
        while self.heard.of(session).last().is_none_or(|last| last != text) {
            assert!(start.elapsed() < PATIENCE, "{text:?} was not heard");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

impl Heard {
    fn hear(&self, notification: SessionNotification) {
        let (SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::UserMessageChunk(chunk)) =
            notification.update
        else {
            panic!("not a message: {:?}", notification.update);
        };
        let ContentBlock::Text(content) = chunk.content else {
            panic!("not a text: {:?}", chunk.content);
        };
        self.0.lock().unwrap().push((notification.session_id.to_string(), content.text));
    }

    /// What was said in `session`.
    fn of(&self, session: &SessionId) -> Vec<String> {
        let session = session.to_string();
        let all = self.0.lock().unwrap();
        all.iter().filter(|(of, _)| *of == session).map(|(_, text)| text.clone()).collect()
    }

    fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}
