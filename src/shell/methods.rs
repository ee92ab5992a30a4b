//! Serves the methods of our own (E1), the same for the editor's pipe and for `POST /rpc`.

use super::inquiries::{Answer, Asking, Report};
use crate::core::SessionId;
use crate::core::error::{self, INVALID_REQUEST, PARSE_ERROR, RUNNING_SESSION, UNKNOWN_SESSION};
use crate::core::message::{self, Malformed, Message};
use crate::core::methods::{OWN_CLOSE, OWN_RECONNECT, OWN_SESSIONS, OWN_STATUS};
use crate::core::roster::Inquiry;
use bytes::Bytes;
use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee_types::error::{ErrorCode, ErrorObjectOwned};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// Messages in one batch. Each may be answered with a whole status.
const BATCH: usize = 16;

/// The methods.
#[derive(Clone, Debug)]
pub(super) struct Methods(RpcModule<Asking>);

impl Methods {
    pub(super) fn new(asking: Asking) -> Self {
        let mut module = RpcModule::new(asking);
        // It fails for a name that stands twice, and a test calls each.
        let _ = register(&mut module);
        Self(module)
    }

    /// Answers a message or a batch. `None` where nothing is to be answered.
    pub(super) async fn answer_all(&self, body: &Bytes) -> Option<Bytes> {
        if body.trim_ascii_start().first() != Some(&b'[') {
            return self.answer(body).await;
        }
        let refuse = |code, why| Some(error::plain("null", code, why));
        let messages: Vec<&RawValue> = match serde_json::from_slice(body) {
            Ok(messages) => messages,
            Err(_) => return refuse(PARSE_ERROR, "this is not JSON in UTF-8"),
        };
        if messages.is_empty() || messages.len() > BATCH {
            return refuse(INVALID_REQUEST, "a batch has at least one message and at most 16");
        }
        let mut answers = Vec::new();
        for message in messages {
            let message = Bytes::copy_from_slice(message.get().as_bytes());
            if let Some(answer) = self.answer(&message).await {
                answers.push(answer);
            }
        }
        (!answers.is_empty()).then(|| [b"[", &*answers.join(&b","[..]), b"]"].concat().into())
    }

    /// Answers one message under its own id, whatever that is. `None` for a notification.
    pub(super) async fn answer(&self, line: &Bytes) -> Option<Bytes> {
        match message::read(line) {
            Ok(Message::Request { id, .. }) => {
                let response = self.call(line).await?;
                match message::read(&response) {
                    Ok(Message::Answer { id: ours, .. }) => {
                        Some(message::with_id(&response, ours, id.raw()))
                    }
                    _ => None,
                }
            }
            Ok(Message::Notification { .. }) => {
                self.call(line).await;
                None
            }
            Ok(Message::Answer { id, .. }) => {
                Some(error::plain(id.raw(), INVALID_REQUEST, "nothing was asked of you"))
            }
            Err(Malformed::NotMessage(id)) => {
                Some(error::plain(&id, INVALID_REQUEST, "this is not one JSON-RPC 2.0 request"))
            }
            Err(Malformed::NotJson) => {
                Some(error::plain("null", PARSE_ERROR, "this is not JSON in UTF-8"))
            }
        }
    }

    /// Calls the method under an id of ours, because the module takes few kinds of ids.
    async fn call(&self, line: &[u8]) -> Option<Bytes> {
        #[derive(Deserialize)]
        struct Call<'a> {
            #[serde(borrow)]
            method: Cow<'a, str>,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let Call { method, params } = serde_json::from_slice(line).ok()?;
        let (method, params) = (json!(method), params.map_or("null", RawValue::get));
        let request = format!(r#"{{"jsonrpc":"2.0","id":0,"method":{method},"params":{params}}}"#);
        let (response, _) = self.0.raw_json_request(&request, 1).await.ok()?;
        Some(Box::<str>::from(response).into_boxed_bytes().into_vec().into())
    }
}

fn register(module: &mut RpcModule<Asking>) -> Result<(), RegisterMethodError> {
    module.register_async_method(OWN_STATUS, async |_, asking: Arc<Asking>, _| {
        written(report(&asking).await?.document().to_string())
    })?;
    module.register_async_method(OWN_SESSIONS, async |_, asking: Arc<Asking>, _| {
        written(report(&asking).await?.sessions())
    })?;
    module.register_async_method(OWN_CLOSE, async |params, asking: Arc<Asking>, _| {
        let Close { session_id } = params.parse()?;
        match ask(&asking, Inquiry::Close(SessionId(session_id.into()))).await? {
            Answer::Closed => Ok(json!({"ok": true})),
            Answer::Busy => Err(failure(RUNNING_SESSION, RUNNING)),
            _ => Err(failure(UNKNOWN_SESSION, UNKNOWN)),
        }
    })?;
    module.register_async_method(OWN_RECONNECT, async |_, asking: Arc<Asking>, _| {
        ask(&asking, Inquiry::Reconnect).await?;
        Ok::<_, ErrorObjectOwned>(json!({"ok": true}))
    })?;
    Ok(())
}

/// Why a session was not closed, for people.
pub(super) const RUNNING: &str = "the session is running; it stays until its turn has ended";
/// As [`RUNNING`].
pub(super) const UNKNOWN: &str = "no such session is listed";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Close {
    session_id: String,
}

async fn report(asking: &Asking) -> Result<Arc<Report>, ErrorObjectOwned> {
    match ask(asking, Inquiry::Status).await? {
        Answer::Status(report) => Ok(report),
        _ => Err(ErrorCode::InternalError.into()),
    }
}

fn written(json: String) -> Result<Box<RawValue>, ErrorObjectOwned> {
    RawValue::from_string(json).map_err(|_| ErrorCode::InternalError.into())
}

async fn ask(asking: &Asking, inquiry: Inquiry) -> Result<Answer, ErrorObjectOwned> {
    asking.ask(inquiry).await.ok_or_else(|| ErrorCode::InternalError.into())
}

fn failure(code: i32, message: &str) -> ErrorObjectOwned {
    ErrorObjectOwned::owned::<()>(code, message, None)
}
