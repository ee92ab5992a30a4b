//! Decides what a proxy means by what it does.

use super::tls::advice;
use super::{Context, Exchange, MEND_PROXY, NETWORK_SIGN_IN, place};
use crate::commands::doctor::report::Finding;
use crate::shell::http::inspection::{AtProxy, Lost, Stage, Trouble};
use std::io;

/// What a proxy answers to a request for a tunnel: a status, or something else than HTTP.
pub type Answer = io::Result<Option<u16>>;

/// `answer` is there where the proxy opens no tunnel, and can be asked once more.
pub fn proxy(context: &Context, exchange: &Exchange, answer: Option<&Answer>) -> Finding {
    let Some(proxy) = &context.proxy else { return Finding::ok("none on the way") };
    let Exchange::Lost(Lost::Failed { stage: Stage::Proxy(trouble), reason }) = exchange else {
        return Finding::ok(format!("{proxy} lets us through"));
    };
    let ask = format!(
        "Ask who runs the proxy whether it lets you through to {}. {MEND_PROXY}",
        place(&context.url)
    );
    match trouble {
        AtProxy::WantsCredential { form, .. } => Finding::failed(
            reason,
            format!(
                "Write --proxy '{form}', with the password in the environment variable PASSWORD."
            ),
        ),
        AtProxy::Unresolved(_) => Finding::failed(
            reason,
            "Let the URL of the proxy begin with socks5h://, if it knows the agent's name.",
        ),
        AtProxy::Unreachable { reason: why, .. } => match why.trouble() {
            Some(Trouble::Tls(trouble)) => Finding::failed(reason, advice(Some(trouble))),
            _ => Finding::failed(reason, MEND_PROXY),
        },
        AtProxy::Silent(_) => Finding::failed(
            reason,
            format!(
                "It takes connections and says nothing: is it a proxy of the kind that its URL says (http, https, socks5h)? \
                 It may also wait for {}, which does not answer it. {MEND_PROXY}",
                place(&context.url)
            ),
        ),
        AtProxy::Cuts { .. } => Finding::failed(
            reason,
            format!("{ask} An agent that speaks no TLS at that port breaks off, too."),
        ),
        AtProxy::Refuses { reason: why, .. } => {
            answer.and_then(|answer| refusal(context, proxy, answer)).unwrap_or_else(|| {
                let place = place(&context.url);
                let found = format!("the proxy {proxy} lets nothing through to {place}: {why}");
                Finding::failed(found, ask)
            })
        }
    }
}

/// What an answer means that opens no tunnel.
fn refusal(context: &Context, proxy: &str, answer: &Answer) -> Option<Finding> {
    let place = place(&context.url);
    let (found, advice) = match answer {
        // Another time it does.
        Ok(Some(200)) => return None,
        Ok(Some(511)) => {
            let found = format!("{proxy} answers 511 where it is asked for a tunnel");
            return Some(Finding::failed(found, NETWORK_SIGN_IN));
        }
        Ok(Some(status @ (..=399 | 400 | 404 | 405 | 501))) => (
            format!("{proxy} answers {status} where it is asked for a tunnel: it is no proxy"),
            "A web server answers so, or a proxy that knows http:// only: are address and port right?",
        ),
        Ok(Some(status @ 500..)) => (
            format!("the proxy {proxy} does not reach {place}: {status}"),
            "Is the agent running, and does the proxy know its name? Ask who runs the proxy.",
        ),
        Ok(Some(status)) => (
            format!("the proxy {proxy} lets nothing through to {place}: {status}"),
            "Ask who runs the proxy whether it lets you through to there.",
        ),
        Ok(None) => (
            format!("what answers at {proxy} does not speak HTTP: it is no proxy of this kind"),
            "Is it one of SOCKS? Then let its URL begin with socks5h://.",
        ),
        Err(_) => (
            format!("{proxy} closes where it is asked for a tunnel"),
            "Does it speak TLS itself? Then let its URL begin with https://. Is it one of SOCKS? Then with socks5h://.",
        ),
    };
    Some(Finding::failed(found, format!("{advice} {MEND_PROXY}")))
}
