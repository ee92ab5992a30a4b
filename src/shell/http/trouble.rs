//! Holds what is known of a request that got no answer, beside what people are told of it.

use super::astray::Astray;
use super::{route, tls};
use std::fmt;

/// Why a request has no answer, for people. Holds neither a query nor a header's value (X1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    text: String,
    trouble: Option<Trouble>,
}

/// What is wrong, where that is known. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Tls(tls::Trouble),
    #[error(transparent)]
    Proxy(route::Trouble),
    #[error("{0}")]
    Astray(Box<Astray>),
    #[error("it does not speak HTTP/2: leave `--http 2` out")]
    Http1Only,
}

impl Reason {
    /// What is wrong, where that is known.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// The same, with what else may have been wrong, where all that it tells of is that something broke
    /// off, or that nothing goes through.
    pub(super) fn or(self, doubt: &Self) -> Self {
        match self.trouble {
            None
            | Some(Trouble::Proxy(route::Trouble::Cuts { .. } | route::Trouble::Refuses { .. })) => {
                Self { text: format!("{self}; {doubt}"), trouble: doubt.trouble.clone() }
            }
            Some(_) => self,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text, trouble: None }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<tls::Trouble> for Reason {
    fn from(trouble: tls::Trouble) -> Self {
        Trouble::Tls(trouble).into()
    }
}

impl From<route::Trouble> for Reason {
    fn from(trouble: route::Trouble) -> Self {
        Trouble::Proxy(trouble).into()
    }
}

impl From<Trouble> for Reason {
    fn from(trouble: Trouble) -> Self {
        Self { text: trouble.to_string(), trouble: Some(trouble) }
    }
}
