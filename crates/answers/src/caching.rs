//! The caching of answers: how long, and in which caches.
//!
//! No cache can be purged yet. So caches must revalidate every answer that a normal write can change. They
//! may keep the property of a tid for an hour only, since it can be replaced or erased.

use http::{HeaderMap, HeaderValue, header};

/// Keeps shared caches from storing an answer that only clients with a right may read.
pub fn restrict(headers: &mut HeaderMap) {
    let Some(stored) = headers.get(header::CACHE_CONTROL) else { return };
    let restricted = [Caching::Tid, Caching::Mutable].into_iter().find(|one| one.header() == stored);
    if let Some(caching) = restricted {
        headers.insert(header::CACHE_CONTROL, caching.private_header());
    }
}

/// The kind of an answer, for caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// The property of one render, under its tid, which changes only when it is replaced, culled or erased.
    /// Also a redirect of the API to the canonical spelling of a title.
    Tid,
    /// An answer that changes when the page does: the latest, all documents, and most redirects.
    Mutable,
    /// A part of a list, requested with `&limit=` or `&page=`. Its URLs are too many to be purged one by one,
    /// so caches will always have to revalidate it.
    Part,
    /// A lookup by time or title, an error, or the answer to a write, to `OPTIONS` or to an operator.
    NoStore,
}

impl Caching {
    /// The value of `Cache-Control`.
    pub const fn header(self) -> HeaderValue {
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
