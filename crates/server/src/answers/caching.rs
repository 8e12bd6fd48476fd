//! The caching of answers: how long, and in which caches.
//!
//! If no HTTP caches are purged, caches must revalidate every answer that a normal write can change. They may keep the
//! property of a tid for an hour only, since it can be replaced or erased. If HTTP caches are purged,
//! [`keep_until_purged`] lets them keep answers for long. None of this applies to an entry that was stored
//! with its own `Cache-Control`.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use rashomon_pages::{MUTABLE_LIFE, TID_LIFE};

/// Keeps shared caches from storing an answer that only clients with a right may read. Changes only a `Cache-Control`
/// of [`Caching`]; the caller is responsible for other values.
pub(crate) fn restrict(headers: &mut HeaderMap) {
    let Some(stored) = headers.get(header::CACHE_CONTROL) else { return };
    let restricted = [Caching::Tid, Caching::Mutable].into_iter().find(|caching| caching.header() == stored);
    if let Some(caching) = restricted {
        headers.insert(header::CACHE_CONTROL, caching.private_header());
    }
}

/// Lets shared caches keep an answer until it is purged: for at most a year with [`Caching::Tid`], or a day with
/// [`Caching::Mutable`], and not longer than `left`. Returns `false`, and changes nothing, if the answer has neither.
/// The caller excludes parts of lists, since [`Caching::Part`] has the same header as [`Caching::Mutable`].
pub(crate) fn keep_until_purged(headers: &mut HeaderMap, left: Option<Duration>) -> bool {
    let stored = headers.get(header::CACHE_CONTROL);
    let is_tid = stored == Some(&Caching::Tid.header());
    if !is_tid && stored != Some(&Caching::Mutable.header()) {
        return false;
    }
    let life = if is_tid { TID_LIFE } else { MUTABLE_LIFE };
    let kept = match (left, is_tid) {
        (None, true) => HeaderValue::from_static("public, max-age=3600, s-maxage=31536000"),
        (None, false) => HeaderValue::from_static("public, max-age=0, s-maxage=86400, must-revalidate"),
        (Some(left), _) => {
            let seconds = left.min(life).as_secs();
            let kept = format!("public, max-age=0, s-maxage={seconds}, must-revalidate");
            HeaderValue::try_from(kept).unwrap_or(Caching::NoStore.header())
        }
    };
    headers.insert(header::CACHE_CONTROL, kept);
    true
}

/// The kind of an answer, for caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// The property of one render, under its tid, which changes only when it is replaced, culled or erased.
    /// Also a redirect of the API to the canonical spelling of a title.
    Tid,
    /// An answer that changes when the page does: the latest, all documents, and most redirects.
    Mutable,
    /// A part of a list, requested with `&limit=` or `&page=`. Its URLs are too many to be purged one by one,
    /// so caches must always revalidate it.
    Part,
    /// A lookup by time or title, an error, or the answer to a write, to `OPTIONS` or to an operator.
    NoStore,
}

impl Caching {
    /// The value of `Cache-Control`.
    pub(crate) const fn header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Tid => "public, max-age=3600, s-maxage=3600",
            Self::Mutable | Self::Part => "public, max-age=0, s-maxage=0, must-revalidate",
            Self::NoStore => "no-store",
        })
    }

    /// The value of `Cache-Control` where reading needs a right.
    const fn private_header(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Tid => "private, max-age=3600",
            Self::Mutable | Self::Part => "private, max-age=0, must-revalidate",
            Self::NoStore => "no-store",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(before: &HeaderValue, left: Option<u64>) -> (bool, String) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, before.clone());
        let changed = keep_until_purged(&mut headers, left.map(Duration::from_secs));
        (changed, headers[header::CACHE_CONTROL].to_str().unwrap().to_owned())
    }

    #[test]
    fn purged_answers_are_kept_for_long_and_not_beyond_their_end() {
        let mutable =
            |seconds: u64| (true, format!("public, max-age=0, s-maxage={seconds}, must-revalidate"));
        let tid = (true, "public, max-age=3600, s-maxage=31536000".to_owned());
        assert_eq!(kept(&Caching::Tid.header(), None), tid);
        assert_eq!(kept(&Caching::Mutable.header(), None), mutable(86_400));
        assert_eq!(kept(&Caching::Mutable.header(), Some(60)), mutable(60));
        assert_eq!(kept(&Caching::Mutable.header(), Some(100_000)), mutable(86_400));
        assert_eq!(kept(&Caching::NoStore.header(), None), (false, "no-store".to_owned()));
        let private = Caching::Tid.private_header();
        assert_eq!(kept(&private, None), (false, "private, max-age=3600".to_owned()));
        assert_eq!(MUTABLE_LIFE.as_secs(), 86_400);
        assert_eq!(TID_LIFE.as_secs(), 31_536_000);
    }
}
