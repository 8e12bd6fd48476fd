//! Which renderer makes what, as it is configured.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use rashomon_buckets::{BucketName, DomainName, PropertyName, excerpt};

/// The renderers of all buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// For every bucket that has none of its own; `None`: nothing is made for them.
    pub upstream: Option<Upstream>,
    /// For single buckets. One without properties turns it off for its bucket.
    pub buckets: BTreeMap<(DomainName, BucketName), Upstream>,
    /// Requests under way at once, to each renderer: that of a bucket, or that of all others. Each may hold as many
    /// bytes in memory as its property may have.
    pub max_requests: NonZeroUsize,
    /// A file of certificates (PEM), of whom a renderer's own has to come; `None`: the authorities that the
    /// system trusts.
    pub authorities: Option<PathBuf>,
}

impl Settings {
    /// The bound on requests unless another one is set.
    pub const MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
}

impl Default for Settings {
    /// Nothing is made.
    fn default() -> Self {
        Self { upstream: None, buckets: BTreeMap::new(), max_requests: Self::MAX_REQUESTS, authorities: None }
    }
}

/// What makes the properties of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The properties, and where each is had.
    pub properties: BTreeMap<PropertyName, Source>,
    /// The hosts that are ever reached, redirects included: each by its name or address, with a port where it is
    /// not that of the scheme, as in `wiki.example.org` or `[::1]:8080`.
    pub hosts: Vec<String>,
    /// How long one property may take, from the connection to its last byte. As long again may pass before that
    /// with waiting for a place among the requests under way.
    pub timeout: Duration,
}

impl Upstream {
    /// The timeout unless another one is set.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
}

/// Where a property is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// `http` or `https`, with `{domain}`, `{title}` and `{rev}` in the path or the query, where they are
    /// percent-encoded whole: a slash in a title becomes `%2F`. `{domain}` may be in the host as well.
    pub url: String,
    /// The media type that has to come, such as `text/html`; `None`: any. What is stored is the type that came,
    /// with its parameters.
    pub content_type: Option<String>,
    /// The most bytes it may have: those that the property's definition allows.
    pub max_size: u64,
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A URL is none, or none that a property can be had from.
    #[error("the URL '{}' for the property {property}: {why}", excerpt(url))]
    Url {
        /// The property.
        property: PropertyName,
        /// As it was given.
        url: String,
        /// What is wrong, and the cure.
        why: String,
    },
    /// A host is none.
    #[error("the allowed host '{}': {why}", excerpt(host))]
    Host {
        /// As it was given.
        host: String,
        /// What is wrong, and the cure.
        why: String,
    },
    /// A media type is none.
    #[error(
        "the content type '{}' of the property {property} is none: write a type and a subtype, such as text/html",
        excerpt(content_type)
    )]
    ContentType {
        /// The property.
        property: PropertyName,
        /// As it was given.
        content_type: String,
    },
    /// No time is given.
    #[error("a timeout of zero lets no renderer answer: 30 seconds are usual")]
    Timeout,
    /// There are no certificates to check a renderer's by.
    #[error(
        "no authorities to check certificates by: {0}. Name a file of certificates (PEM), or install the system's (Debian: apt install ca-certificates)"
    )]
    Authorities(String),
}
