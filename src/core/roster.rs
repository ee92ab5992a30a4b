//! What sessions there are, who is busy, and closing one (T, A3, A4).
//!
//! A person asks with an [`Inquiry`], through the loopback API or with a method of our own (E1), and
//! gets a [`Reply`] in the same step: nothing can happen between the check and the close (I15).

use super::methods::{self, Editor};
use super::{Core, Effect, Epoch, Millis, SessionId, Step};

/// Names one inquiry, so that its reply finds who asked. Chosen by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a person, or a program of theirs, asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// How everything stands (A3).
    Status,
    /// Takes a session off the roster, unless it is running (A4, T5).
    Close(SessionId),
    /// Opens every stream again, and tries a lost connection at once (E1).
    Reconnect,
}

/// The answer to an [`Inquiry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Inquiry::Status`].
    Status(Status),
    /// To [`Inquiry::Close`]: it is off the roster.
    Closed,
    /// To [`Inquiry::Close`]: no such session is listed.
    Unknown,
    /// To [`Inquiry::Close`]: it is running or waiting, and stays.
    Busy,
    /// To [`Inquiry::Reconnect`].
    Reconnecting,
}

/// How everything stands (A3). What only the shell knows (ids, process, version) is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// `protocolVersion` of the answer to `initialize`.
    pub protocol_version: Option<u64>,
    /// Who the editor says it is.
    pub editor: Option<Editor>,
    /// The link to the remote.
    pub link: LinkStatus,
    /// The listed sessions (T2), newest first.
    pub sessions: Vec<Summary>,
}

/// The link to the remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Where it stands.
    pub state: LinkState,
    /// Since when.
    pub since: Millis,
    /// The count of connections so far.
    pub epoch: Epoch,
    /// Why it is not up, for people.
    pub error: Option<String>,
}

/// Where the link stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The editor has not asked for a connection.
    Idle,
    /// The first connection is being made.
    Connecting,
    /// There is a connection.
    Up,
    /// The connection was lost, and is being replaced.
    Reconnecting,
    /// There is none, and none is being made until the editor asks.
    Down,
}

/// One session (T1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its id.
    pub session: SessionId,
    /// Its title, as the agent told it.
    pub title: Option<String>,
    /// Its working directory, as the editor gave it.
    pub cwd: Option<String>,
    /// Whether it is busy (T3).
    pub status: Activity,
    /// What it waits for, while it waits: `permission`, or the method of the agent's question.
    pub waiting_for: Option<String>,
    /// How its remote side stands.
    pub remote: RemoteSide,
    /// When this process first saw it.
    pub created: Millis,
    /// When something last happened in it.
    pub updated: Millis,
    /// Prompts so far.
    pub turns: u64,
    /// `stopReason` of its last turn that ended.
    pub last_stop_reason: Option<String>,
}

/// Whether a session is busy (T3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing runs.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs, and the agent waits for an answer of the editor.
    Waiting,
}

/// How a session's remote side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteSide {
    /// The agent has it on the present connection.
    Attached,
    /// It is being restored, or waits for the connection.
    Restoring,
    /// It failed alone (C).
    Failed,
    /// It could not be restored (V9).
    Lost,
}

impl Status {
    /// `{link, sessions}` as `GET /status` has them (A3). `since_1970` turns a time of the core into
    /// milliseconds since 1970.
    pub fn document(&self, since_1970: impl Fn(Millis) -> u64) -> serde_json::Value {
        let _ = since_1970;
        serde_json::Value::Null
    }
}

impl Core {
    /// Answers at once.
    pub(super) fn inquire(&mut self, ticket: Ticket, inquiry: Inquiry, step: &mut Step<'_>) {
        let reply = match inquiry {
            Inquiry::Status => Reply::Status(self.status()),
            Inquiry::Close(_) => Reply::Unknown,
            Inquiry::Reconnect => Reply::Reconnecting,
        };
        step.out.push(Effect::Reply(ticket, reply));
    }

    /// The answer to a method of our own that the editor called (E1): goes to it under its own id.
    pub(super) fn rpc_answered(&mut self, ticket: Ticket, response: &[u8], step: &mut Step<'_>) {
        let _ = (ticket, response, step);
    }

    fn status(&self) -> Status {
        let link =
            LinkStatus { state: LinkState::Idle, since: Millis(0), epoch: self.epoch, error: None };
        let editor = methods::editor(&self.opening.line);
        Status { protocol_version: None, editor, link, sessions: Vec::new() }
    }
}
