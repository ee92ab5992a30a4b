//! Decides who may call (A5): not a web page, by `Host` and `Origin`; only who can read this user's
//! files, by the token.

use super::super::token::Token;
use super::BODY_BYTES;
use super::refusal::Refusal;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, ORIGIN,
};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path that needs no token, because it tells nothing but the instance's id.
pub(super) const HEALTH: &str = "/healthz";
/// How long the body of a request may take, and then its answer.
const REQUEST: Duration = Duration::from_secs(10);

/// What a caller must show.
#[derive(Debug)]
pub(super) struct Door {
    hosts: Vec<String>,
    token: Token,
}

/// Lets a request pass, or answers it with a refusal. What is wrong is looked for in one order, so that
/// a page learns nothing about the token.
pub(super) async fn pass(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let refusal = door.refusal(&request);
    // Who shows no token keeps no place that others wait for.
    let keeps_its_place = refusal.is_none() && request.uri().path() != HEALTH;
    let passed = match refusal {
        Some(refusal) => Err(refusal),
        None => answer(request, next).await,
    };
    let mut response = passed.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !keeps_its_place {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Reads the body first: who sends it slowly is told from a process that is slow to answer.
async fn answer(mut request: Request, next: Next) -> Result<Response, Refusal> {
    DefaultBodyLimit::max(BODY_BYTES).apply(&mut request);
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let body = timeout(REQUEST, Bytes::from_request(request, &())).await;
    let body = body.map_err(|_| Refusal::Incomplete)??;
    let request = Request::from_parts(parts, body.into());
    timeout(REQUEST, next.run(request)).await.map_err(|_| Refusal::Unavailable)
}

impl Door {
    pub(super) fn new(port: u16, token: Token) -> Self {
        let names = ["127.0.0.1", "localhost", "[::1]"];
        let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{port}")).collect();
        // The port of a URL that names none.
        if port == 80 {
            hosts.extend(names.map(str::to_owned));
        }
        Self { hosts, token }
    }

    fn refusal(&self, request: &Request) -> Option<Refusal> {
        // The target can name a host too, and then it is the one that counts.
        let target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let is_ours = only(request, &HOST).is_some_and(|host| self.is_ours(host.as_bytes()))
            && target.is_none_or(|host| self.is_ours(host));
        if !is_ours || request.headers().contains_key(ORIGIN) {
            return Some(Refusal::Foreign);
        }
        if request.uri().path() != HEALTH && !self.knows(request) {
            return Some(Refusal::NoToken);
        }
        let length = only(request, &CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let is_large = length.and_then(|length| length.parse().ok()) > Some(BODY_BYTES);
        is_large.then_some(Refusal::TooLarge)
    }

    fn is_ours(&self, host: &[u8]) -> bool {
        self.hosts.iter().any(|ours| host.eq_ignore_ascii_case(ours.as_bytes()))
    }

    fn knows(&self, request: &Request) -> bool {
        let given = only(request, &AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, token) = given.split_at(given.len().min("Bearer ".len()));
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.token.is(token)
    }
}

/// The value of a header that is there once.
fn only<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = request.headers().get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}
