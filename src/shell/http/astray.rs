//! Tells of a redirect that is not followed, and what to do (L8).

use crate::config::redacted;
use crate::core::limits;
use crate::core::redirect::Refusal;
use reqwest::Url;
use std::fmt;

/// A redirect that is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Astray {
    /// Where it points, if it says.
    pub(crate) target: Option<Url>,
    /// Why it is not followed.
    pub(crate) refusal: Refusal,
}

impl Astray {
    /// Where it points, as it may be shown.
    pub(crate) fn place(&self) -> String {
        self.target.as_ref().map(redacted).unwrap_or_default()
    }
}

impl fmt::Display for Astray {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        match self.refusal {
            Refusal::Nowhere => formatter.write_str(
                "the remote redirects and does not say where to (no Location that can be read): ask who runs it",
            ),
            Refusal::Circle => write!(
                formatter,
                "the remote redirects in a circle, to {place} again: ask who runs it, or what stands before it"
            ),
            Refusal::OtherOrigin => write!(
                formatter,
                "the remote redirects to another origin, {place}, and no credential follows it there: if you trust \
                 it, configure that URL"
            ),
            Refusal::LosesMessage => write!(
                formatter,
                "the remote redirects to {place} in a way that would lose the message: configure that URL"
            ),
            Refusal::TooMany => write!(
                formatter,
                "the remote redirects more than {} times, the last time to {place}: configure the URL of the agent \
                 itself",
                limits::REDIRECTS
            ),
        }
    }
}
