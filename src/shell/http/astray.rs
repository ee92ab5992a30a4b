//! Tells of a redirect that is not followed, and what to do (L8).

use crate::config::redacted;
use crate::core::limits;
use crate::core::redirect::Refusal;
use reqwest::Url;
use std::fmt;

/// A redirect that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// It does not say where to.
    Nowhere,
    /// To where the request has been before.
    Circle(Url),
    /// To elsewhere.
    To(Url, Refusal),
}

impl Astray {
    /// Where it points.
    pub(crate) fn target(&self) -> Option<&Url> {
        match self {
            Self::Nowhere => None,
            Self::Circle(target) | Self::To(target, _) => Some(target),
        }
    }
}

impl fmt::Display for Astray {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.target().map(redacted).unwrap_or_default();
        match self {
            Self::Nowhere => formatter.write_str(
                "the remote redirects and does not say where to (no Location that can be read): ask who runs it",
            ),
            Self::Circle(_) => write!(
                formatter,
                "the remote redirects in a circle, to {place} again: ask who runs it, or what stands before it"
            ),
            Self::To(_, Refusal::OtherOrigin) => write!(
                formatter,
                "the remote redirects to another origin, {place}, and no credential follows it there: if you trust \
                 it, configure that URL"
            ),
            Self::To(_, Refusal::LosesMessage) => write!(
                formatter,
                "the remote redirects to {place} in a way that would lose the message: configure that URL"
            ),
            Self::To(_, Refusal::TooMany) => write!(
                formatter,
                "the remote redirects more than {} times, the last time to {place}: configure the URL of the agent \
                 itself",
                limits::REDIRECTS
            ),
        }
    }
}
