//! Decides what is answered to a request that is not served: always the same for the same reason.

use super::super::methods::{RUNNING, UNKNOWN};
use axum::Json;
use axum::extract::rejection::BytesRejection;
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It may come from a page in a browser: a foreign `Host`, or any `Origin`.
    Foreign,
    /// It does not hold the token.
    NoToken,
    NoSuchPath,
    Method,
    UnknownSession,
    Running,
    TooLarge,
    /// Its body did not come, or not in time.
    Incomplete,
    /// The process is busy or ending, or too many watch.
    Unavailable,
}

impl From<BytesRejection> for Refusal {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            _ => Self::Incomplete,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, error, message) = match self {
            Self::Foreign => {
                (403, "forbidden", "this API answers programs of this machine, not web pages")
            }
            Self::NoToken => {
                (401, "unauthorized", "send the token of the instance's record as a Bearer token")
            }
            Self::NoSuchPath => (404, "not_found", "there is no such path"),
            Self::Method => (405, "method_not_allowed", "see Allow for the methods of this path"),
            Self::UnknownSession => (404, "unknown_session", UNKNOWN),
            Self::Running => (409, "running", RUNNING),
            Self::TooLarge => (413, "too_large", "the body is larger than 64 KiB"),
            Self::Incomplete => (408, "timeout", "the request did not come whole in time"),
            Self::Unavailable => (503, "unavailable", "too many watch, or the process is busy"),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response =
            (status, Json(json!({"error": error, "message": message}))).into_response();
        if self == Self::NoToken {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
