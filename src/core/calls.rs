//! How the methods of our own are answered that the editor calls over its pipe (E1): by the shell,
//! and never by the remote, whatever the link is like.

use bytes::Bytes;

use super::error::{self, INTERNAL_ERROR};
use super::message::{self, Id, Message, RequestId};
use super::methods::Method;
use super::roster::Ticket;
use super::{Core, Effect, Level, Step};

impl Core {
    /// Hands a call to the shell, under a number of ours; the ledger has it already.
    pub(super) fn call(&mut self, line: &Bytes, id: Id<'_>, step: &mut Step<'_>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.calls.insert(ticket, id.key());
        let request = message::with_id(line, id, &ticket.0.to_string());
        step.out.push(Effect::Rpc(ticket, request));
    }

    /// Whether an open request is such a call.
    pub(super) fn is_call(&self, id: &RequestId) -> bool {
        self.ledger.place_of(id).is_some_and(|(method, _)| method == Method::Ours)
    }

    /// The answer to a call: it goes to the editor under the editor's own id.
    pub(super) fn rpc_answered(&mut self, ticket: Ticket, response: &Bytes, step: &mut Step<'_>) {
        let Some(request) = self.calls.remove(&ticket).and_then(|id| self.ledger.close(&id)) else {
            return step.log(Level::Debug, "ignored the late answer to a call of the editor");
        };
        step.line(match message::read(response) {
            Ok(Message::Answer { id, .. }) => {
                message::as_line(message::with_id(response, id, &request.id))
            }
            _ => error::plain(&request.id, INTERNAL_ERROR, "this call has no answer"),
        });
    }
}
