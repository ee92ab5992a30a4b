//! The only table of ACP method names: what each means to the link and to a session.

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
            "session/set_mode" | "session/set_model" | "session/set_config_option" => {
                Self::UseSession
            }
            "session/close" | "session/delete" => Self::EndSession,
            "session/list" => Self::ListSessions,
            CANCEL_REQUEST => Self::CancelRequest,
            name if name.starts_with("$/") => Self::Protocol,
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
        )
    }

    /// Whether a result names a new session in `result.sessionId` (R1).
    pub fn names_session(self) -> bool {
        matches!(self, Self::NewSession | Self::ForkSession)
    }

    /// Whether a result shows that the session in the parameters is attached to the connection.
    pub fn attaches(self) -> bool {
        matches!(self, Self::LoadSession | Self::ResumeSession | Self::Prompt | Self::UseSession)
    }
}

/// The notification that withdraws a request, in both directions.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The notification that withdraws the request with this id (raw JSON), as a line.
pub fn cancel_request(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCEL_REQUEST}","params":{{"requestId":{id}}}}}"#)
}
