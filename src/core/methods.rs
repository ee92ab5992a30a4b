//! The only table of ACP method names: what each means to the link and to a session, and the
//! messages of our own.

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::LazyLock;

use super::restore::Way;
use super::session::Setup;
use super::{SessionId, limits};

/// The methods that the core treats each in its own way; all others are [`Method::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Opens the connection.
    Initialize,
    /// Creates a session; its result names it.
    NewSession,
    /// Copies a session; its result names the copy.
    ForkSession,
    /// Attaches a session and replays its history.
    LoadSession,
    /// Attaches a session.
    ResumeSession,
    /// Starts a turn.
    Prompt,
    /// Cancels a turn.
    Cancel,
    /// Signs in.
    SignIn,
    /// Signs out.
    SignOut,
    /// Uses a session in another way; that it succeeds shows that the session is attached.
    UseSession,
    /// Ends a session.
    EndSession,
    /// Speaks of the sessions, not to one.
    ListSessions,
    /// Cancels one request.
    CancelRequest,
    /// Another method of the protocol itself, `$/…`.
    Protocol,
    /// Tells what is new in a session.
    Update,
    /// A method of our own, `_acp-tether/…` (E1).
    Ours,
    /// Everything else.
    Other,
}

impl Method {
    /// Finds a method by its name on the wire.
    pub fn named(name: &str) -> Self {
        match name {
            "initialize" => Self::Initialize,
            "session/new" => Self::NewSession,
            "session/fork" => Self::ForkSession,
            "session/load" => Self::LoadSession,
            "session/resume" => Self::ResumeSession,
            "session/prompt" => Self::Prompt,
            "session/cancel" => Self::Cancel,
            "authenticate" | "auth/login" => Self::SignIn,
            "logout" | "auth/logout" => Self::SignOut,
            "session/set_mode" | "session/set_model" | "session/set_config_option" => {
                Self::UseSession
            }
            "session/close" | "session/delete" => Self::EndSession,
            "session/list" => Self::ListSessions,
            CANCEL_REQUEST => Self::CancelRequest,
            "session/update" => Self::Update,
            name if name.starts_with("$/") => Self::Protocol,
            name if name.starts_with("_acp-tether/") => Self::Ours,
            _ => Self::Other,
        }
    }

    /// Whether a message of this method belongs to the session that its parameters name, and
    /// carries `Acp-Session-Id` (L4).
    pub fn belongs_to_session(self) -> bool {
        !matches!(
            self,
            Self::Initialize
                | Self::NewSession
                | Self::ListSessions
                | Self::CancelRequest
                | Self::Protocol
                | Self::Ours
        )
    }

    /// Whether a result names a new session in `result.sessionId` (R1).
    pub fn names_session(self) -> bool {
        matches!(self, Self::NewSession | Self::ForkSession)
    }

    /// Whether the parameters say how a session is set up (V2).
    pub fn sets_up(self) -> bool {
        self.mends() || self.names_session()
    }

    /// Whether a success brings a failed or lost session back (C3, V9).
    pub fn mends(self) -> bool {
        matches!(self, Self::LoadSession | Self::ResumeSession)
    }

    /// Whether a result shows that the session in the parameters is attached to the connection.
    pub fn attaches(self) -> bool {
        matches!(self, Self::LoadSession | Self::ResumeSession | Self::Prompt | Self::UseSession)
    }
}

/// Our own method that tells how everything stands (E1).
pub const OWN_STATUS: &str = "_acp-tether/status";
/// Our own method that lists the sessions.
pub const OWN_SESSIONS: &str = "_acp-tether/sessions";
/// Our own method that takes `params.sessionId` off the roster.
pub const OWN_CLOSE: &str = "_acp-tether/close";
/// Our own method that opens every stream again.
pub const OWN_RECONNECT: &str = "_acp-tether/reconnect";

/// The notification that withdraws a request, in both directions.
const CANCEL_REQUEST: &str = "$/cancel_request";

/// The line that withdraws the request with this id (raw JSON).
pub fn cancel_request(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCEL_REQUEST}","params":{{"requestId":{id}}}}}"#)
}

/// The request of `doctor` that opens a connection.
pub fn initialize(id: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"{{"jsonrpc":"2.0","id":"{id}","method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{{}},"clientInfo":{{"name":"acp-tether doctor","version":"{version}"}}}}}}"#
    )
}

/// A request of `doctor` that every agent answers and that changes nothing: the list of sessions, or
/// a method that no agent has.
pub fn probe(id: &str, lists_sessions: bool) -> String {
    let method = if lists_sessions { "session/list" } else { "_acp-tether/ping" };
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{{}}}}"#)
}

/// Our request that restores a session, with what the editor last set it up with (V2).
pub fn restore(id: &str, way: Way, session: &SessionId, setup: &Setup) -> String {
    let method = match way {
        Way::Resume => "session/resume",
        Way::Load => "session/load",
    };
    let mut params = format!(r#""sessionId":{}"#, quoted(&session.0));
    let given = [
        ("cwd", &setup.cwd),
        ("mcpServers", &setup.mcp_servers),
        ("additionalDirectories", &setup.additional_directories),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            params.push_str(&format!(r#","{name}":{}"#, String::from_utf8_lossy(value)));
        }
    }
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
}

/// The line of the conversation that tells of a gap (V11). From version 2 on, messages have ids.
pub fn notice(session: &SessionId, text: &str, message_id: Option<&str>) -> String {
    let message_id =
        message_id.map(|id| format!(r#""messageId":{},"#, quoted(id))).unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{},"update":{{"sessionUpdate":"agent_message_chunk",{message_id}"content":{{"type":"text","text":{}}}}}}}}}"#,
        quoted(&session.0),
        quoted(text),
    )
}

/// Whether a `session/resume` asks for its history (R12).
pub fn asks_for_replay(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Line {
        params: Resume,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Resume {
        replay_from: Option<IgnoredAny>,
    }
    serde_json::from_slice(line).is_ok_and(|Line { params }| params.replay_from.is_some())
}

/// What a session waits for while this question of its agent is open (T1).
pub fn waits_for(question: &str) -> &str {
    match question {
        "session/request_permission" => "permission",
        method => method,
    }
}

/// What of a `session/update` concerns the roster.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The agent names the session, or takes its name away (T2).
    Title(Option<String>),
    /// Version 2: the agent says whether it works (T3).
    State {
        /// It does.
        is_running: bool,
        /// Why it stopped, where it says so.
        stop_reason: Option<String>,
    },
}

/// Finds the news in a `session/update`.
pub fn news(message: &[u8]) -> Option<News> {
    const TITLE: &str = "session_info_update";
    const STATE: &str = "state_update";
    // To make one costs more than to find what it finds.
    static FINDERS: LazyLock<[Finder<'_>; 2]> = LazyLock::new(|| [TITLE, STATE].map(Finder::new));
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        session_update: String,
        #[serde(default, deserialize_with = "present")]
        title: Option<Option<String>>,
        state: Option<String>,
        stop_reason: Option<String>,
    }
    // Nearly every update is of another kind, and is not read again to find that out.
    if FINDERS.iter().all(|finder| finder.find(message).is_none()) {
        return None;
    }
    let update: Told = update(message)?;
    match update.session_update.as_str() {
        TITLE => update.title.map(News::Title),
        STATE => {
            let is_running = update.state? != "idle";
            Some(News::State { is_running, stop_reason: update.stop_reason })
        }
        _ => None,
    }
}

/// Whether a `session/update` may be some of a session's history: what was said and done in it. The
/// rest tells how it stands, and comes with each load.
pub fn is_history(message: &[u8]) -> bool {
    const STANDS: [&str; 6] = [
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "state_update",
        "usage_update",
    ];
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        session_update: String,
    }
    update(message).is_none_or(|Told { session_update }| !STANDS.contains(&&*session_update))
}

/// What a `session/update` tells.
fn update<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Option<T> {
    #[derive(Deserialize)]
    struct Message<T> {
        params: Params<T>,
    }
    #[derive(Deserialize)]
    struct Params<T> {
        update: T,
    }
    serde_json::from_slice(message).ok().map(|Message { params: Params { update } }| update)
}

/// `stopReason` of the answer to a prompt.
pub fn stop_reason(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        result: Ended,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Ended {
        stop_reason: Option<String>,
    }
    serde_json::from_slice(answer).ok().and_then(|Answer { result }| result.stop_reason)
}

/// The parameters of a message, as they came.
pub fn params(message: &Bytes) -> Bytes {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let params = serde_json::from_slice::<Message<'_>>(message).ok().and_then(|read| read.params);
    params.map(|params| Bytes::copy_from_slice(params.get().as_bytes())).unwrap_or_default()
}

/// What a line that sets a session up sets it up with.
pub fn setup(line: &[u8]) -> Setup {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        params: Given<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given<'a> {
        #[serde(borrow)]
        cwd: Option<&'a RawValue>,
        #[serde(borrow)]
        mcp_servers: Option<&'a RawValue>,
        #[serde(borrow)]
        additional_directories: Option<&'a RawValue>,
    }
    let raw = |value: &RawValue| Bytes::copy_from_slice(value.get().as_bytes());
    let Ok(Line { params }) = serde_json::from_slice::<Line<'_>>(line) else {
        return Setup::default();
    };
    Setup {
        cwd: params.cwd.map(raw),
        mcp_servers: params.mcp_servers.map(raw),
        additional_directories: params.additional_directories.map(raw),
    }
}

/// The editor, as its `initialize` names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Editor {
    /// Its name.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Who the editor says it is, in the line of its `initialize`.
pub fn editor(initialize: &[u8]) -> Option<Editor> {
    #[derive(Deserialize)]
    struct Line {
        params: Params,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        client_info: Option<Editor>,
    }
    let Line { params } = serde_json::from_slice(initialize).ok()?;
    let Editor { mut name, mut version } = params.client_info?;
    for text in std::iter::once(&mut name).chain(&mut version) {
        text.truncate(text.floor_char_boundary(limits::SUMMARY_TEXT));
    }
    Some(Editor { name, version })
}

/// What an agent can do to restore sessions, from its answer to `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// `session/resume`.
    pub resume: bool,
    /// `session/load`.
    pub load: bool,
}

/// The negotiated protocol version of an answer to `initialize`, as the remote wrote it, and what the
/// agent offers.
pub fn negotiated(answer: &[u8]) -> (Option<Bytes>, Offers) {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Initialized<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialized<'a> {
        #[serde(borrow)]
        protocol_version: Option<&'a RawValue>,
        agent_capabilities: Option<Value>,
    }
    let Ok(Answer { result }) = serde_json::from_slice::<Answer<'_>>(answer) else {
        return (None, Offers::default());
    };
    let version = result.protocol_version.map(|version| version.get().trim_matches('"'));
    let version = version.filter(|version| version.bytes().all(|byte| byte.is_ascii_graphic()));
    let has_resume_always = version.and_then(|version| version.parse().ok()) >= Some(2u32);
    let capabilities = result.agent_capabilities.unwrap_or_default();
    let offers = Offers {
        resume: has_resume_always
            || capabilities
                .pointer("/sessionCapabilities/resume")
                .is_some_and(|has| !has.is_null()),
        load: !has_resume_always && capabilities["loadSession"] == true,
    };
    (version.map(|version| Bytes::copy_from_slice(version.as_bytes())), offers)
}

/// A field that is there, even where it is `null`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
