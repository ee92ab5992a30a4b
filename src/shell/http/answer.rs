//! Reads what a remote answers, as far as it decides something.

use super::body::{Body, Ending};
use super::request::{Failure, reason};
use super::trouble::Reason;
use crate::core::{Millis, Response, limits};
use crate::secrets::Secrets;
use bytes::{Bytes, BytesMut};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER};
use serde::de::IgnoredAny;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
/// How long a body that decides nothing, or need not come, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a body is read for nothing but the connection's next use.
const DRAINED: usize = 64 * 1024;

/// The content coding of a body, where it has one: we ask for none.
pub(super) fn encoding(headers: &HeaderMap) -> Option<String> {
    let name = String::from_utf8_lossy(headers.get(CONTENT_ENCODING)?.as_bytes()).into_owned();
    (!name.eq_ignore_ascii_case("identity")).then_some(name)
}

/// How the body of a 200 in which something is looked for is compressed, though nobody asked for it (L6).
/// Some servers name a coding that is none, to keep proxies from compressing.
pub(super) fn compression(response: &reqwest::Response) -> Option<String> {
    const READ: [&str; 3] = ["application/json", "text/event-stream", "text/html"];
    const KNOWN: [&str; 5] = ["gzip", "deflate", "compress", "br", "zstd"];
    let name = encoding(response.headers())?;
    let content_type = head(response).content_type;
    let is_read = READ.iter().any(|read| is_media_type(&content_type, read));
    let is_known = KNOWN.iter().any(|known| name.to_ascii_lowercase().contains(known));
    (is_read && is_known && response.status() == StatusCode::OK).then_some(name)
}

/// The head of a response that is compressed so: its content type says it.
pub(super) fn compressed(response: &reqwest::Response, name: &str) -> Response {
    let head = head(response);
    Response { content_type: format!("{}, compressed as {name}", head.content_type), ..head }
}

/// Reads the answer to a request. A JSON body of a success is read whole, up to `limit`; of a failure
/// and of a page what people are shown; of all else nothing.
pub(super) async fn read(response: reqwest::Response, limit: usize) -> Result<Response, Failure> {
    let head = head(&response);
    // A page in place of an answer refuses as well, whatever its status (L9).
    if !response.status().is_success() || is_media_type(&head.content_type, "text/html") {
        return Ok(refusal(head, response).await);
    }
    if !is_media_type(&head.content_type, "application/json") {
        // The connection can be used again only after the last byte of the body.
        tokio::spawn(timeout(PATIENCE, body(response, DRAINED)));
        return Ok(head);
    }
    if response.status() == StatusCode::ACCEPTED {
        return Ok(acceptance(head, response, limit).await);
    }
    let (body, end) = body(response, limit).await;
    match end {
        BodyEnd::Broken(reason) => Err(Failure::Broken(reason)),
        end => Ok(Response { body, truncated: matches!(end, BodyEnd::OverLimit), ..head }),
    }
}

/// Whether anything of the body may be shown to people. Of most answers nothing is.
pub(super) fn may_be_shown(response: &reqwest::Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    let content_type = String::from_utf8_lossy(content_type.unwrap_or_default());
    let is = |media_type| is_media_type(&content_type, media_type);
    !response.status().is_success() || is("text/html") || is("application/json")
}

/// The same where people are shown the body of a success, too, unless it `passes` as it came (X1).
pub(super) async fn read_to_show(
    response: reqwest::Response,
    limit: usize,
    passes: impl Fn(&Response) -> bool,
) -> Result<Response, Failure> {
    let secrets: Secrets = response.extensions().get().cloned().unwrap_or_default();
    let read = read(response, limit).await?;
    if passes(&read) {
        return Ok(read);
    }
    let end = read.body.len().min(limits::ERROR_BODY_BYTES);
    let is_cut = read.truncated || end < read.body.len();
    Ok(Response { body: without(&secrets, read.body.slice(..end), is_cut), ..read })
}

/// That a message was accepted counts even where its body, which may be the answer, is cut or does not come.
async fn acceptance(head: Response, response: reqwest::Response, limit: usize) -> Response {
    match timeout(PATIENCE, body(response, limit)).await {
        Err(_) | Ok((_, BodyEnd::Broken(_))) => head,
        Ok((body, end)) => Response { body, truncated: matches!(end, BodyEnd::OverLimit), ..head },
    }
}

/// Whether a `Content-Type` is `media_type`, whatever its case and its parameters.
pub(super) fn is_media_type(content_type: &str, media_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case(media_type)
}

/// The status of a refusal counts even where its body is cut or does not come.
async fn refusal(head: Response, response: reqwest::Response) -> Response {
    let secrets = response.extensions().get().cloned().unwrap_or_default();
    let (body, end) = timeout(PATIENCE, body(response, limits::ERROR_BODY_BYTES))
        .await
        .unwrap_or((Bytes::new(), BodyEnd::OverLimit));
    let truncated = !matches!(end, BodyEnd::Whole);
    Response { body: without(&secrets, body, truncated), truncated, ..head }
}

/// A body without what it repeats of secrets (X1). Of one that was cut the start of one may be left.
fn without(secrets: &Secrets, body: Bytes, is_cut: bool) -> Bytes {
    let end = if is_cut { "…" } else { "" };
    let text = String::from_utf8_lossy(&body).into_owned() + end;
    let hidden = secrets.hide(text.clone());
    if hidden == text {
        body
    } else {
        hidden.strip_suffix(end).unwrap_or(&hidden).to_owned().into()
    }
}

/// The head of a response, without its body.
pub(super) fn head(response: &reqwest::Response) -> Response {
    let headers = response.headers();
    let bytes = |name| headers.get(name).map(|value| Bytes::copy_from_slice(value.as_bytes()));
    let content_type = bytes(CONTENT_TYPE).unwrap_or_default();
    Response {
        status: response.status().as_u16(),
        content_type: String::from_utf8_lossy(&content_type).into_owned(),
        connection_id: bytes(CONNECTION_ID),
        retry_after: retry_after(headers, SystemTime::now()),
        body: Bytes::new(),
        truncated: false,
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Millis> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Millis(seconds.saturating_mul(1000)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let wait = date.duration_since(now).unwrap_or_default();
    Some(Millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

enum BodyEnd {
    Whole,
    OverLimit,
    Broken(Reason),
}

async fn body(response: reqwest::Response, limit: usize) -> (Bytes, BodyEnd) {
    let mut body = Body::of(response);
    let mut all = BytesMut::new();
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) if chunk.len() > limit - all.len() => {
                all.extend_from_slice(&chunk[..limit - all.len()]);
                return (all.freeze(), BodyEnd::OverLimit);
            }
            Ok(chunk) => all.extend_from_slice(&chunk),
            Err(error) => return (all.freeze(), BodyEnd::Broken(reason(error))),
        }
    }
    let ending = match body.ending() {
        // Old servers mark no end. JSON shows whether more was to come.
        Ending::Unmarked if !is_begun(&all) => Ending::Whole,
        ending => ending,
    };
    (all.freeze(), ending.trouble().map_or(BodyEnd::Whole, |why| BodyEnd::Broken(why.into())))
}

/// Whether a text is the beginning of a JSON value, and not all of it.
fn is_begun(text: &[u8]) -> bool {
    let read = serde_json::from_slice::<IgnoredAny>(text);
    !text.trim_ascii().is_empty() && read.is_err_and(|error| error.is_eof())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    #[test]
    fn a_media_type_is_known_whatever_its_case_and_parameters() {
        for text in
            ["text/event-stream", "Text/Event-Stream; charset=utf-8", " text/event-stream ;"]
        {
            assert!(is_media_type(text, "text/event-stream"), "{text}");
        }
        for text in ["", "text/event-streams", "text/html; text/event-stream"] {
            assert!(!is_media_type(text, "text/event-stream"), "{text}");
        }
    }

    #[test]
    fn l10_retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let cases = [
            ("3", Some(Millis(3_000))),
            (" 0 ", Some(Millis(0))),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(Millis(10_000))),
            ("Sun, 06 Nov 1994 08:49:17 GMT", Some(Millis(0))),
            ("99999999999999999999", None),
            ("-1", None),
            ("soon", None),
        ];
        for (text, expected) in cases {
            let headers =
                HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            assert_eq!(retry_after(&headers, now), expected, "{text}");
        }
    }
}
