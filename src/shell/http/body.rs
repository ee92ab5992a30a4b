//! Reads the body of a response, and tells its end from a cut.

use bytes::Bytes;
use hyper::body::{Body as _, Frame};
use reqwest::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use reqwest::{Response, Version};
use std::future::poll_fn;
use std::pin::Pin;

/// A body that is being read.
pub(super) struct Body {
    body: reqwest::Body,
    is_http_2: bool,
    /// In HTTP/1 a body without length and encoding just ends with its connection, and so it does when
    /// the server dies.
    has_mark: bool,
}

/// What it means that nothing more comes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It has come whole.
    Whole,
    /// It was cut.
    Cut,
    /// It may be either.
    Unmarked,
}

impl Ending {
    /// What is wrong with it, for people.
    pub(super) fn trouble(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Cut => Some("it was cut off before its end"),
            Self::Unmarked => Some("the connection closed, which may be a cut"),
        }
    }
}

impl Body {
    /// That of a response.
    pub(super) fn of(response: Response) -> Self {
        let headers = response.headers();
        let has_mark =
            headers.contains_key(TRANSFER_ENCODING) || headers.contains_key(CONTENT_LENGTH);
        let is_http_2 = response.version() == Version::HTTP_2;
        Self { body: response.into(), is_http_2, has_mark }
    }

    /// The next piece. Nothing is lost where this is dropped.
    pub(super) async fn next(&mut self) -> Option<reqwest::Result<Bytes>> {
        loop {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// What it means that nothing more came.
    pub(super) fn ending(&self) -> Ending {
        match self.is_http_2 {
            // For the library a reset without an error is an end, too. Proxies send it when the server
            // behind them dies.
            true if self.body.is_end_stream() => Ending::Whole,
            true => Ending::Cut,
            false if self.has_mark => Ending::Whole,
            false => Ending::Unmarked,
        }
    }
}
