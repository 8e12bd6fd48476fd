//! The caching of answers: how long, and in which caches.
//!
//! No cache can be purged yet. So shared caches store nothing that can change, and store permanent answers
//! for an hour only, since they can be rewritten or erased.

use http::HeaderValue;

/// The kind of an answer, for caching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// The property of one render, under its tid. It changes only when it is rewritten.
    Tid,
    /// An answer that changes when the page does: the latest, and all JSON documents.
    Mutable,
    /// A part of a list, requested with `&limit=` or `&page=`. The URLs of parts cannot be listed for
    /// purging, so shared caches must always revalidate.
    Part,
    /// A lookup by time, an error, or the answer to a write.
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
}
