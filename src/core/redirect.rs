//! Decides what a redirect does (L8).

use super::limits;

/// What a response that may be a redirect is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It redirects nowhere: it is the answer.
    Answer,
    /// The same request goes to where it points.
    Follow,
    /// It is not followed.
    Refuse(Refusal),
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It leaves the origin of the configured URL; no credential may follow it.
    OtherOrigin,
    /// Its status asks to repeat the request as a GET without the message.
    LosesMessage,
    /// There were [`limits::REDIRECTS`] already.
    TooMany,
}

/// Decides about a response with `status` to a request that has been redirected `hops` times.
/// `same_origin` is `None` where the response names no place to go to.
pub fn decide(status: u16, is_get: bool, same_origin: Option<bool>, hops: usize) -> Verdict {
    let keeps_method = matches!(status, 307 | 308);
    if !keeps_method && !matches!(status, 301..=303) {
        return Verdict::Answer;
    }
    match same_origin {
        None => Verdict::Answer,
        Some(false) => Verdict::Refuse(Refusal::OtherOrigin),
        Some(true) if !keeps_method && !is_get => Verdict::Refuse(Refusal::LosesMessage),
        Some(true) if hops >= limits::REDIRECTS => Verdict::Refuse(Refusal::TooMany),
        Some(true) => Verdict::Follow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l8_only_307_and_308_keep_method_and_body_and_only_the_same_origin_is_followed() {
        use Refusal::*;
        use Verdict::*;
        let cases = [
            // status, is GET, same origin, hops, verdict
            (200, true, None, 0, Answer),
            (200, true, Some(true), 0, Answer),
            (300, true, Some(true), 0, Answer),
            (304, true, Some(true), 0, Answer),
            (307, false, None, 0, Answer),
            (301, true, Some(true), 0, Follow),
            (302, true, Some(true), 0, Follow),
            (303, true, Some(true), 0, Follow),
            (307, true, Some(true), 0, Follow),
            (308, true, Some(true), 0, Follow),
            (301, false, Some(true), 0, Refuse(LosesMessage)),
            (302, false, Some(true), 0, Refuse(LosesMessage)),
            (303, false, Some(true), 0, Refuse(LosesMessage)),
            (307, false, Some(true), 0, Follow),
            (308, false, Some(true), 0, Follow),
            (301, true, Some(false), 0, Refuse(OtherOrigin)),
            (302, false, Some(false), 0, Refuse(OtherOrigin)),
            (307, false, Some(false), 0, Refuse(OtherOrigin)),
            (308, true, Some(false), 4, Refuse(OtherOrigin)),
            (307, false, Some(true), 4, Follow),
            (307, false, Some(true), 5, Refuse(TooMany)),
            (302, true, Some(true), 5, Refuse(TooMany)),
        ];
        for (status, is_get, same_origin, hops, expected) in cases {
            let verdict = decide(status, is_get, same_origin, hops);
            assert_eq!(verdict, expected, "{status} get={is_get} {same_origin:?} hops={hops}");
        }
    }
}
