//! How the process ends when the editor is gone (S7, I16): what is queued is sent, what is open
//! gets a grace, the connection is deleted, and two seconds are never passed.

use super::error::{Failure, Kind};
use super::link::Link;
use super::posts::Posting;
use super::timers::Timer;
use super::{Core, Effect, Level, Millis, Outcome, Step, limits};

/// How far the end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Leaving {
    /// The editor is there.
    #[default]
    Not,
    /// The editor went at this time; messages may still go out and answers come in.
    Finishing(Millis),
    /// The DELETE is under way.
    Deleting(Millis),
    /// [`Effect::Exit`] is out.
    Done,
}

impl Core {
    /// The editor is gone.
    pub(super) fn editor_gone(&mut self, step: &mut Step<'_>) {
        if self.leaving == Leaving::Not {
            self.leaving = Leaving::Finishing(step.now);
        }
    }

    /// Goes on with the end, as far as it can.
    pub(super) fn go_on_leaving(&mut self, step: &mut Step<'_>) {
        if let Leaving::Finishing(since) = self.leaving {
            match self.finished_at(since) {
                Some(at) if step.now < at => self.timers.arm(Timer::Shutdown, at),
                _ => self.delete(since, step),
            }
        }
        if let Leaving::Deleting(since) = self.leaving {
            let at = since.plus(limits::EXIT);
            if step.now < at {
                self.timers.arm(Timer::Shutdown, at);
            } else {
                step.log(Level::Warn, "the remote agent did not answer the DELETE in time");
                self.exit(step);
            }
        }
    }

    /// Until when messages and answers are waited for; `None` where there are none.
    fn finished_at(&self, since: Millis) -> Option<Millis> {
        let unsent = self.sessions.values().any(|session| !session.is_idle());
        if unsent {
            Some(since.plus(limits::FLUSH))
        } else if !self.ledger.is_idle() || self.is_connecting() {
            Some(since.plus(limits::GRACE))
        } else {
            None
        }
    }

    fn is_connecting(&self) -> bool {
        self.posts.values().any(|posting| matches!(posting, Posting::Initialize(_)))
    }

    fn delete(&mut self, since: Millis, step: &mut Step<'_>) {
        let connection = match &self.link {
            Link::Up(connection) => Some(connection.clone()),
            _ => self.half_open(),
        };
        // Whoever still reads gets the answers that it is owed (I1).
        let reason = "acp-tether ended before the remote agent answered";
        self.drop_all(step, |delivery| Failure::new(Kind::ConnectionLost, delivery, reason));
        if let Some(connection) = connection {
            step.out.push(Effect::Delete(connection));
            self.leaving = Leaving::Deleting(since);
        } else {
            self.exit(step);
        }
    }

    /// The DELETE has ended. Whatever came of it, there is nothing more to do (404 is as good as
    /// 202).
    pub(super) fn deleted(&mut self, outcome: &Outcome, step: &mut Step<'_>) {
        if !matches!(self.leaving, Leaving::Deleting(_)) {
            // A connection that we could not use (V1); nobody waits for its end.
            return;
        }
        let trouble = match outcome {
            Outcome::Response(response) if matches!(response.status, 200..=299 | 404 | 410) => None,
            Outcome::Response(response) => Some(format!("HTTP {}", response.status)),
            Outcome::NoCredential(reason) | Outcome::Unsent(reason) | Outcome::Broken(reason) => {
                Some(reason.clone())
            }
            Outcome::Redirected { reason, .. } => Some(reason.clone()),
            Outcome::Closed(close) => Some(close.to_string()),
        };
        if let Some(trouble) = trouble {
            step.log(Level::Warn, format!("the connection was not deleted: {trouble}"));
        }
        self.exit(step);
    }

    fn exit(&mut self, step: &mut Step<'_>) {
        if self.leaving != Leaving::Done {
            self.leaving = Leaving::Done;
            self.timers.disarm(&Timer::Shutdown);
            step.out.push(Effect::Exit);
        }
    }
}
