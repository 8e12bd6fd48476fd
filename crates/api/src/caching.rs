//! How long an answer may be kept, and by whom.
//!
//! No cache that we could purge is configured yet, so shared caches hold nothing that can change, and what
//! stays for an hour only: it can be rewritten, or erased.

use http::HeaderValue;

/// What kind of answer it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// The property of one render, under its tid: changes only when it is rewritten.
    Tid,
    /// Whatever changes as the page does: the latest, and everything in JSON.
    Mutable,
    /// A part of a list, asked for with `&limit=` or `&page=`. Its URLs cannot be listed for purging, so shared
    /// caches always ask again.
    Part,
    /// A lookup by time, an error, the answer to a write.
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
