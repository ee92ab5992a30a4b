//! The first connection (L1–L3). Those that replace it are in `recovery`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::error::{Delivery, Failure, IN_FRONT, Kind};
use super::message::{self, Message, RequestId};
use super::methods;
use super::posts::{Posting, is_json};
use super::recovery::{Down, Opening};
use super::session::{Backoff, Renewal};
use super::shutdown::Leaving;
use super::socket::Transport;
use super::timers::Timer;
use super::{
    Connection, Core, Effect, Epoch, Level, Outcome, Post, PostId, Response, Step, StreamId,
};

/// Where the link to the remote stands.
#[derive(Debug)]
pub(super) enum Link {
    /// The editor has not asked for it, or it could not be had.
    Idle,
    /// `initialize` is being tried.
    Connecting(Connecting),
    /// The remote answered `initialize`.
    Up(Connection),
    /// The connection is gone, and is being replaced (V1).
    Down(Down),
}

/// An `initialize` that has no answer yet.
#[derive(Debug)]
pub(super) struct Connecting {
    request: RequestId,
    body: Bytes,
    backoff: Backoff,
    renewal: Renewal,
    /// Why the last try failed.
    pub trouble: Option<Failure>,
}

impl Core {
    /// The editor asks for the connection.
    pub(super) fn connect(&mut self, body: Bytes, request: RequestId, step: &mut Step<'_>) {
        if let Some(reason) = &self.settings.unusable {
            let failure = Failure::new(Kind::Config, Delivery::Unsent, reason.as_str());
            self.roster.unconnected = Some(failure.message.clone());
            return self.fail(&request, &failure, step);
        }
        let backoff = Backoff::default();
        self.link = Link::Connecting(Connecting {
            request,
            body,
            backoff,
            renewal: Renewal::default(),
            trouble: None,
        });
        self.timers.arm(Timer::GiveUp, step.now.plus(self.settings.connect_timeout));
        self.post_initialize(step);
    }

    /// Tries `initialize`.
    pub(super) fn post_initialize(&mut self, step: &mut Step<'_>) {
        let connecting = match &mut self.link {
            Link::Connecting(connecting) => connecting,
            Link::Down(_) => return self.reconnect(step),
            Link::Idle | Link::Up(_) => return,
        };
        self.post_ids += 1;
        let id = PostId(self.post_ids);
        step.out.push(Effect::Post(Post {
            id,
            connection: None,
            session: None,
            renew_credential: connecting.renewal.take(),
            body: connecting.body.clone(),
        }));
        self.posts.insert(id, Posting::Initialize(None));
    }

    /// A try of `initialize` has ended.
    pub(super) fn initialize_answered(&mut self, outcome: Outcome, step: &mut Step<'_>) {
        let connecting = match &mut self.link {
            Link::Connecting(connecting) => connecting,
            Link::Down(_) => return self.reconnected(outcome, step),
            Link::Idle | Link::Up(_) => return,
        };
        let failure = match outcome {
            Outcome::Response(response) if self.settings.transport.is_open(&response) => {
                return self.initialized(&response, step);
            }
            Outcome::Response(response) => match response.status {
                401 if connecting.renewal.is_worth_a_try(self.settings.can_renew) => {
                    return self.post_initialize(step);
                }
                401 => {
                    let reason = "the remote agent refused the credential (401)";
                    let failure = Failure::refused(Kind::Auth, reason, &response);
                    return self.not_connected(&failure, step);
                }
                status @ (429 | 502 | 503 | 504) => {
                    let reason = format!("the remote agent is not ready (HTTP {status})");
                    let failure = Failure::refused(Kind::Http, reason, &response);
                    return self.try_later(failure, Some(&response), step);
                }
                status => {
                    let reason = format!(
                        "the remote agent refused initialize with HTTP {status}; {}",
                        self.endpoint_in_doubt()
                    );
                    let failure = Failure::refused(Kind::Http, reason, &response);
                    return self.not_connected(&failure, step);
                }
            },
            Outcome::Closed(close)
                if close.refuses()
                    && connecting.renewal.is_worth_a_try(self.settings.can_renew) =>
            {
                return self.post_initialize(step);
            }
            Outcome::Closed(close) if close.refuses() => {
                return self.not_connected(&Failure::closed(&close, Delivery::Refused), step);
            }
            Outcome::Closed(close) if close.is_too_large() => {
                let message = format!("initialize is too large for the remote agent: {close}");
                let failure = Failure::closed(&close, Delivery::Refused);
                return self.not_connected(&Failure { message, ..failure }, step);
            }
            Outcome::Closed(close) => Failure::closed(&close, Delivery::Unknown),
            Outcome::Redirected { status, reason } => {
                let failure = Failure::new(Kind::Http, Delivery::Refused, reason);
                return self.not_connected(&Failure { status: Some(status), ..failure }, step);
            }
            Outcome::NoCredential(reason) => {
                let failure = Failure::new(Kind::Auth, Delivery::Unsent, reason);
                return self.not_connected(&failure, step);
            }
            Outcome::Unsent(reason) => {
                let reason = format!("the remote agent cannot be reached: {reason}");
                Failure::new(Kind::Connect, Delivery::Unsent, reason)
            }
            Outcome::Broken(reason) => {
                let reason = format!("the remote agent broke off before it answered: {reason}");
                Failure::new(Kind::Connect, Delivery::Unknown, reason)
            }
        };
        self.try_later(failure, None, step);
    }

    /// The answer to an `initialize` has begun, and names the connection.
    pub(super) fn named(&mut self, post: PostId, id: Bytes) {
        if let Some(Posting::Initialize(named)) = self.posts.get_mut(&post) {
            *named = Some(id);
        }
    }

    /// The connection that the remote opened for an `initialize` whose answer does not end. Where that is
    /// given up, nobody will use it.
    pub(super) fn half_open(&self) -> Option<Connection> {
        self.posts.values().find_map(|posting| match posting {
            Posting::Initialize(id) => Some(Connection { id: id.clone()?, version: None }),
            Posting::Message(..) => None,
        })
    }

    fn try_later(&mut self, failure: Failure, response: Option<&Response>, step: &mut Step<'_>) {
        let Link::Connecting(connecting) = &mut self.link else { return };
        step.log(Level::Warn, failure.message.as_str());
        connecting.trouble = Some(failure);
        let asked = response.and_then(|response| response.retry_after);
        let delay = connecting.backoff.next_asked(asked, &mut self.chance);
        self.timers.arm(Timer::Retry, step.now.plus(delay));
    }

    /// `initialize` was tried long enough (L3).
    pub(super) fn give_up_connecting(&mut self, step: &mut Step<'_>) {
        let Link::Connecting(connecting) = &mut self.link else { return };
        let waited = self.settings.connect_timeout.0;
        let trouble = connecting.trouble.take().unwrap_or_else(|| {
            let reason = "the remote agent did not answer initialize";
            Failure::new(Kind::Connect, Delivery::Unknown, reason)
        });
        let message = format!("{}; gave up after {waited} ms (--connect-timeout)", trouble.message);
        let is_under_way = self.posts.values().any(|it| matches!(it, Posting::Initialize(_)));
        let delivery = if is_under_way { Some(Delivery::Unknown) } else { trouble.delivery };
        let half_open = self.half_open();
        self.not_connected(&Failure { message, delivery, ..trouble }, step);
        step.out.extend(half_open.map(Effect::Delete));
    }

    /// `initialize` failed: it and what was pipelined behind it get their errors, and a later
    /// `initialize` tries again.
    fn not_connected(&mut self, failure: &Failure, step: &mut Step<'_>) {
        step.log(Level::Error, failure.message.as_str());
        let Link::Connecting(connecting) = std::mem::replace(&mut self.link, Link::Idle) else {
            return;
        };
        self.roster.unconnected = Some(failure.message.clone());
        self.fail(&connecting.request, failure, step);
        let behind = Failure::new(
            failure.kind,
            Delivery::Unsent,
            format!("initialize failed: {}", failure.message),
        );
        self.drop_all(step, |_| behind.clone());
    }

    /// The remote took `initialize`.
    fn initialized(&mut self, response: &Response, step: &mut Step<'_>) {
        let Link::Connecting(connecting) = &self.link else { return };
        let request = connecting.request.clone();
        let failure = match answer_to_initialize(&request, response, self.settings.transport) {
            Ok((false, Some(connection))) => {
                self.ledger.close(&request);
                let (version, offers) = methods::negotiated(&response.body);
                self.opening = Opening { line: connecting.body.clone(), version, offers };
                step.line(message::as_line(response.body.clone()));
                return self.up(connection, step);
            }
            Ok((false, None)) => {
                let reason = "initialize was answered without the header Acp-Connection-Id; \
                              is the URL that of an ACP endpoint over Streamable HTTP?";
                Failure::refused(Kind::Http, reason, response)
            }
            Ok((true, _)) => {
                // The agent itself refused: its own error says why.
                self.ledger.close(&request);
                step.line(message::as_line(response.body.clone()));
                let reason = "the remote agent answered initialize with an error";
                Failure::new(Kind::Http, Delivery::Unsent, reason)
            }
            Err(failure) => failure,
        };
        self.hang_up(step);
        self.not_connected(&failure, step);
    }

    /// There is a connection: its stream is opened, and what waited for it is posted.
    pub(super) fn up(&mut self, connection: Connection, step: &mut Step<'_>) {
        self.timers.disarm(&Timer::GiveUp);
        self.timers.disarm(&Timer::Retry);
        self.epoch = Epoch(self.epoch.0 + 1);
        self.link = Link::Up(connection);
        self.up_since = step.now;
        self.roster.unconnected = None;
        step.log(Level::Info, "connected to the remote agent");
        self.sessions.entry(None).or_default();
        self.open_stream(&None, step);
        self.pump_all(step);
    }

    /// Drops every stream, POST and message, and answers every open request: with its answer where that
    /// is here, else with what `failure` makes of how far it came.
    pub(super) fn drop_all(&mut self, step: &mut Step<'_>, failure: impl Fn(Delivery) -> Failure) {
        let initialize = match &self.link {
            Link::Connecting(connecting) if !self.posts.is_empty() => {
                Some(connecting.request.clone())
            }
            _ => None,
        };
        // The answers that are here, and waited for what came before them.
        let mut held = BTreeMap::new();
        for (scope, session) in std::mem::take(&mut self.sessions) {
            held.extend(session.held.into_iter().map(|held| (held.request, held.answer)));
            // A socket is closed with its connection.
            if let Some(generation) = session.stream.generation().filter(|_| !self.is_socket()) {
                let epoch = self.epoch;
                step.out.push(Effect::Close(StreamId { session: scope, epoch, generation }));
            }
        }
        for (post, _) in std::mem::take(&mut self.posts) {
            step.out.push(Effect::Abandon(post));
        }
        for id in self.ledger.all() {
            if self.leaving == Leaving::Not && self.is_call(&id) {
                // Its answer is ours, and comes whatever the link is like.
                continue;
            }
            let Some(request) = self.ledger.close(&id) else { continue };
            if let Some(answer) = held.remove(&id) {
                step.line(message::as_line(answer));
                continue;
            }
            let delivery = match request.accepted {
                true => Delivery::Accepted,
                false if request.sent || initialize.as_ref() == Some(&id) => Delivery::Unknown,
                false => Delivery::Unsent,
            };
            step.line(failure(delivery).answer(&request.id, request.session.as_ref()));
        }
        self.crowded.clear();
        self.queued_bytes = 0;
        self.timers.clear();
    }
}

/// Reads what came in answer to an `initialize`: whether it is the agent's error, and the
/// connection, if it names one.
pub(super) fn answer_to_initialize(
    request: &RequestId,
    response: &Response,
    transport: Transport,
) -> Result<(bool, Option<Connection>), Failure> {
    let wrong = |reason: &str| Err(Failure::refused(Kind::Http, reason, response));
    match message::read(&response.body) {
        _ if !is_json(response) => {
            wrong(&format!("initialize was answered, but not with application/json; {IN_FRONT}"))
        }
        _ if response.truncated => Err(Failure::refused(
            Kind::TooLarge,
            "the answer to initialize is longer than --max-message-bytes",
            response,
        )),
        Ok(Message::Answer { id, is_error }) if id.key() == *request => {
            let (version, _) = methods::negotiated(&response.body);
            let id = response.connection_id.clone().filter(|id| !id.is_empty());
            // A socket is a connection whether it has a name or not.
            let id = id.or((transport == Transport::WebSocket).then(Bytes::new));
            Ok((is_error, id.map(|id| Connection { id, version })))
        }
        Ok(_) => wrong("initialize was answered with another message than its answer"),
        Err(_) => wrong("initialize was answered with something that is no JSON-RPC message"),
    }
}
