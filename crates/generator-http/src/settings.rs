//! The configuration: which renderer makes what.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use rashomon_buckets::{BucketName, DomainName, PropertyName, excerpt};

/// The renderers of all buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The renderer of every bucket that has none of its own. `None`: nothing is made for these buckets.
    pub upstream: Option<Upstream>,
    /// The renderers of single buckets. A renderer without properties turns the generator off for its bucket.
    pub buckets: BTreeMap<(DomainName, BucketName), Upstream>,
    /// The greatest number of requests at once to each renderer: to that of a bucket, or to that of all
    /// others. Each request may take as many bytes of memory as its property may have.
    pub max_requests: NonZeroUsize,
    /// A file of certificates (PEM) of authorities. The certificate of a renderer has to come from one of
    /// them. `None`: the authorities that the system trusts.
    pub authorities: Option<PathBuf>,
}

impl Settings {
    /// The default bound on requests.
    pub const MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
}

impl Default for Settings {
    /// Settings with which nothing is made.
    fn default() -> Self {
        Self { upstream: None, buckets: BTreeMap::new(), max_requests: Self::MAX_REQUESTS, authorities: None }
    }
}

/// The renderer of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The properties, and where each is fetched from.
    pub properties: BTreeMap<PropertyName, Source>,
    /// The only hosts that are ever reached, redirects included. Each is a name or an address, with a port if
    /// it is not that of the scheme, as in `wiki.example.org` or `[::1]:8080`.
    pub hosts: Vec<String>,
    /// How long one property may take, from the connection to its last byte. Before that, a request may wait
    /// for as long until fewer requests are in progress.
    pub timeout: Duration,
}

impl Upstream {
    /// The default timeout.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
}

/// Where a property is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// An `http` or `https` URL, with `{domain}`, `{title}` and `{rev}` in the path or the query. There they
    /// are percent-encoded completely: a slash in a title becomes `%2F`. `{domain}` may be in the host as
    /// well.
    pub url: String,
    /// The media type that the answer must have, such as `text/html`. `None`: any. The type that is stored is
    /// that of the answer, with its parameters.
    pub content_type: Option<String>,
    /// The greatest size that the property's definition allows.
    pub max_size: u64,
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A URL is invalid, or no property can be fetched from it.
    #[error("the URL '{}' for the property {property}: {why}", excerpt(url))]
    Url {
        /// The property.
        property: PropertyName,
        /// The URL as it was given.
        url: String,
        /// What is wrong, and how to correct it.
        why: String,
    },
    /// A host is invalid.
    #[error("the allowed host '{}': {why}", excerpt(host))]
    Host {
        /// The host as it was given.
        host: String,
        /// What is wrong, and how to correct it.
        why: String,
    },
    /// A media type is invalid.
    #[error(
        "the content type '{}' of the property {property} is not a media type: write a type and a subtype, \
         such as text/html",
        excerpt(content_type)
    )]
    ContentType {
        /// The property.
        property: PropertyName,
        /// The content type as it was given.
        content_type: String,
    },
    /// The timeout is zero.
    #[error("a timeout of zero gives a renderer no time to answer: 30 seconds are usual")]
    Timeout,
    /// There are no certificates by which those of a renderer can be checked.
    #[error(
        "no certificate authorities found: {0}. Name a file of certificates (PEM), or install the system's \
         (Debian: apt install ca-certificates)"
    )]
    Authorities(String),
}
