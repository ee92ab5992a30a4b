//! Decides what a redirect does (L8).

use super::limits;

/// What a response that may be a redirect is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is no redirect: it is the answer.
    Answer,
    /// The same request goes to where it points.
    Follow,
    /// It is not followed.
    Refuse(Refusal),
}

/// Where a response points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// Out of the origin of the configured URL.
    Elsewhere,
    /// To where the request has been.
    Back,
    /// To another place of the same origin.
    Onward,
}

/// Why a redirect is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not say where to.
    Nowhere,
    /// It leaves the origin of the configured URL; no credential may follow it.
    OtherOrigin,
    /// It leads to where the request has been, and would again: to configure that changes nothing.
    Circle,
    /// Its status asks to repeat the request as a GET without the message.
    LosesMessage,
    /// There were [`limits::REDIRECTS`] already.
    TooMany,
}

/// Decides about a response with `status` to a request that has been redirected `hops` times.
/// `points` is `None` where the response names no place to go to. A way back may lead on the next time,
/// with the cookie that came with it.
pub fn decide(status: u16, is_get: bool, points: Option<Points>, hops: usize) -> Verdict {
    let keeps_method = matches!(status, 307 | 308);
    if !keeps_method && !matches!(status, 301..=303) {
        return Verdict::Answer;
    }
    let keeps_message = keeps_method || is_get;
    match points {
        None => Verdict::Refuse(Refusal::Nowhere),
        Some(Points::Elsewhere) => Verdict::Refuse(Refusal::OtherOrigin),
        Some(_) if keeps_message && hops < limits::REDIRECTS => Verdict::Follow,
        Some(Points::Back) => Verdict::Refuse(Refusal::Circle),
        Some(Points::Onward) if !keeps_message => Verdict::Refuse(Refusal::LosesMessage),
        Some(Points::Onward) => Verdict::Refuse(Refusal::TooMany),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l8_only_307_and_308_keep_method_and_body_and_only_the_same_origin_is_followed() {
        use Points::*;
        use Refusal::*;
        use Verdict::*;
        let cases = [
            // status, is GET, points, hops, verdict
            (200, true, None, 0, Answer),
            (302, true, None, 0, Refuse(Nowhere)),
            (200, true, Some(Onward), 0, Answer),
            (300, true, Some(Onward), 0, Answer),
            (304, true, Some(Onward), 0, Answer),
            (307, false, None, 0, Refuse(Nowhere)),
            (301, true, Some(Onward), 0, Follow),
            (302, true, Some(Onward), 0, Follow),
            (303, true, Some(Onward), 0, Follow),
            (307, true, Some(Onward), 0, Follow),
            (308, true, Some(Onward), 0, Follow),
            (301, false, Some(Onward), 0, Refuse(LosesMessage)),
            (302, false, Some(Onward), 0, Refuse(LosesMessage)),
            (303, false, Some(Onward), 0, Refuse(LosesMessage)),
            (307, false, Some(Onward), 0, Follow),
            (308, false, Some(Onward), 0, Follow),
            (301, true, Some(Elsewhere), 0, Refuse(OtherOrigin)),
            (302, false, Some(Elsewhere), 0, Refuse(OtherOrigin)),
            (307, false, Some(Elsewhere), 0, Refuse(OtherOrigin)),
            (308, true, Some(Elsewhere), 4, Refuse(OtherOrigin)),
            (307, false, Some(Onward), 4, Follow),
            (307, false, Some(Onward), 5, Refuse(TooMany)),
            (302, true, Some(Onward), 5, Refuse(TooMany)),
            (200, true, Some(Back), 0, Answer),
            (302, true, Some(Back), 4, Follow),
            (302, true, Some(Back), 5, Refuse(Circle)),
            (307, false, Some(Back), 4, Follow),
            (307, false, Some(Back), 5, Refuse(Circle)),
            (303, false, Some(Back), 0, Refuse(Circle)),
        ];
        for (status, is_get, points, hops, expected) in cases {
            let verdict = decide(status, is_get, points, hops);
            assert_eq!(verdict, expected, "{status} get={is_get} {points:?} hops={hops}");
        }
    }
}
