//! An agent that has every session there can be, and ends every turn at once.

use crate::peers::agent::serve;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Serves it until the sender is dropped, at the URL.
pub fn start() -> (String, oneshot::Sender<()>) {
    serve(Router::new().route("/acp", post(answer).get(silence).delete(async || ())))
}

/// The answer is that of the POST itself (L9).
async fn answer(body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = json!({
        "jsonrpc": "2.0", "id": message["id"],
        "result": {"protocolVersion": 1, "stopReason": "end_turn"},
    });
    let headers = [("acp-connection-id", "c"), ("content-type", "application/json")];
    (headers, answer.to_string()).into_response()
}

async fn silence() -> Response {
    let nothing = stream::pending::<Result<Bytes, std::convert::Infallible>>();
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(nothing)).into_response()
}
