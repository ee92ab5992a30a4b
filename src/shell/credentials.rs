//! Holds the headers that the person gave, among them the credential.

use reqwest::header::HeaderMap;

/// The headers that go with every request.
#[derive(Debug)]
pub(super) struct Credentials {
    headers: HeaderMap,
}

impl Credentials {
    /// Headers that stay as they are for the life of the process.
    pub(super) fn fixed(headers: HeaderMap) -> Self {
        Self { headers }
    }

    /// The headers for one request. `renew`: the last credential was refused, so it is to be read
    /// again where it has a source that can have changed (L10).
    pub(super) fn headers(&self, renew: bool) -> HeaderMap {
        let _ = renew;
        self.headers.clone()
    }
}
