//! Serves the loopback API (A): who is busy, and closing a session from outside.
//!
//! It has a thread and a runtime of its own, so that callers cost the editor's session little: the core's
//! reply.
//!
//! | file | decides |
//! |---|---|
//! | `door` | who may call (A5) |
//! | `refusal` | what is answered to who may not, or asks for what is not there |
//! | `connections` | how many connections there are, and how slow they may be |

mod connections;
mod door;
mod refusal;

use self::door::Door;
use self::refusal::Refusal;
use super::inquiries::{Answer, Asking, Reports};
use super::instances::Record;
use super::methods::Methods;
use crate::core::SessionId;
use crate::core::roster::Inquiry;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures_util::stream;
use serde_json::json;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::{io, thread};

/// The largest body of a request (A5).
const BODY_BYTES: usize = 64 * 1024;

/// A port that nobody serves yet.
#[derive(Debug)]
pub(super) struct Api {
    listener: TcpListener,
    address: SocketAddr,
}

/// What the answers are made of.
#[derive(Clone)]
struct Served {
    id: Arc<str>,
    asking: Asking,
    methods: Methods,
}

impl Api {
    /// Takes the port; 0 is a free one.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Serves until the process ends, to those who know the record.
    pub(super) fn serve(self, record: &Record, asking: Asking, methods: Methods) -> io::Result<()> {
        let door = Arc::new(Door::new(self.port(), record.token.clone()));
        let router =
            router(Served { id: record.process.id.as_str().into(), asking, methods }, door);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || match runtime.block_on(connections::accept(self.listener, router)) {
            Ok(never) => match never {},
            Err(error) => tracing::warn!("the API cannot be served: {error}"),
        };
        thread::Builder::new().name("api".to_owned()).spawn(serve).map(drop)
    }
}

/// The door stands before the routes, so that a refusal does not tell which there are.
fn router(served: Served, door: Arc<Door>) -> Router {
    let routes = Router::new()
        .route(door::HEALTH, get(health))
        .route("/status", get(status))
        .route("/events", get(events))
        .route("/sessions/{id}/close", post(close))
        .route("/rpc", post(rpc))
        .fallback(async || Refusal::NoSuchPath)
        .method_not_allowed_fallback(async || Refusal::Method)
        .with_state(served);
    Router::new().fallback_service(routes).layer(middleware::from_fn_with_state(door, door::pass))
}

async fn health(State(served): State<Served>) -> Response {
    Json(json!({"id": *served.id})).into_response()
}

async fn status(State(served): State<Served>) -> Result<Response, Refusal> {
    match served.asking.ask(Inquiry::Status).await {
        Some(Answer::Status(report)) => Ok(written(report.document().to_string())),
        _ => Err(Refusal::Unavailable),
    }
}

async fn events(State(served): State<Served>) -> Result<Response, Refusal> {
    let mut reports = served.asking.watch().await.ok_or(Refusal::Unavailable)?;
    // The report that is there is the first.
    reports.mark_changed();
    let events = stream::unfold(reports, next_event);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

async fn next_event(mut reports: Reports) -> Option<(Result<Event, Infallible>, Reports)> {
    reports.changed().await.ok()?;
    let report = reports.borrow_and_update().clone()?;
    Some((Ok(Event::default().data(report.document())), reports))
}

/// An answer that is JSON already.
fn written(json: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], json.into()).into_response()
}

async fn close(
    State(served): State<Served>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    // Not UTF-8: no session can have this id.
    let Path(id) = id.map_err(|_| Refusal::UnknownSession)?;
    match served.asking.ask(Inquiry::Close(SessionId(id.into()))).await {
        Some(Answer::Closed) => Ok(Json(json!({"ok": true})).into_response()),
        Some(Answer::Busy) => Err(Refusal::Running),
        Some(_) => Err(Refusal::UnknownSession),
        None => Err(Refusal::Unavailable),
    }
}

async fn rpc(State(served): State<Served>, body: Bytes) -> Response {
    match served.methods.answer_all(&body).await {
        Some(answer) => written(answer),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::inquiries::Inquiries;
    use super::super::instances::Process;
    use super::super::token::Token;
    use super::*;
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    #[tokio::test(start_paused = true)]
    async fn a5_a_process_that_is_slow_is_told_from_a_request_that_does_not_come_whole() {
        let token = Token::fresh().unwrap();
        // Nobody puts what is asked to the core.
        let inquiries = Inquiries::new(Process::new(None));
        let asking = inquiries.asking();
        let served = Served { id: "id".into(), methods: Methods::new(asking.clone()), asking };
        let service =
            TowerToHyperService::new(router(served, Arc::new(Door::new(1, token.clone()))));
        let endless = stream::pending::<io::Result<Bytes>>();
        for (body, status) in [(Body::empty(), 503), (Body::from_stream(endless), 408)] {
            let request = Request::get("/status")
                .header("host", "127.0.0.1:1")
                .header("authorization", format!("Bearer {}", token.secret()));
            let answer = service.call(request.body(body).unwrap()).await.unwrap();
            assert_eq!(answer.status(), status);
        }
    }
}
