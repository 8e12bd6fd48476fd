//! The configuration: the renderers of buckets, and the properties that each renderer makes.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use rashomon_pages::{BucketName, DomainName, PropertyName, excerpt};

/// The renderers of all buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The renderer of every bucket that is not in `buckets`. `None`: nothing is generated for these buckets.
    pub upstream: Option<Upstream>,
    /// The renderers of single buckets. A renderer without properties turns the generator off for its bucket.
    pub buckets: BTreeMap<(DomainName, BucketName), Upstream>,
    /// The maximum number of concurrent requests to `upstream`, for all its buckets together, and to each renderer in
    /// `buckets`. Each request may take as much memory as the maximum size of its property.
    pub max_requests: NonZeroUsize,
    /// A file of certificates (PEM) of authorities. One of these authorities must have issued the certificate
    /// of a renderer. `None`: the authorities that the system trusts.
    pub authorities: Option<PathBuf>,
}

impl Settings {
    /// The default limit of concurrent requests.
    pub const MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");
}

impl Default for Settings {
    /// Settings with which nothing is generated.
    fn default() -> Self {
        Self { upstream: None, buckets: BTreeMap::new(), max_requests: Self::MAX_REQUESTS, authorities: None }
    }
}

/// The renderer of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// The properties, and the source of each.
    pub properties: BTreeMap<PropertyName, Source>,
    /// The only hosts that are ever reached, redirects included. Each is a name or an address, with a port if
    /// it is not the default port of the scheme, as in `wiki.example.org` or `[::1]:8080`.
    pub hosts: Vec<String>,
    /// The time limit of one property, from the connection to its last byte. Before that, a request may wait
    /// for the same time until fewer requests are in progress.
    pub timeout: Duration,
    /// A file whose only line is the token for the renderer. It is sent with each request to the scheme, the host and
    /// the port of a property's URL, and nowhere else. A changed file is read before the next request. `None`: no
    /// token is sent.
    pub token_file: Option<PathBuf>,
}

impl Upstream {
    /// The default timeout.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
}

/// The source of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// An `http` or `https` URL, with `{domain}`, `{title}` and `{rev}` in the path or the query. There they
    /// are percent-encoded completely: a slash in a title becomes `%2F`. `{domain}` may be in the host as
    /// well.
    pub url: String,
    /// The media type that the answer must have, such as `text/html`. `None`: any type. The stored type is
    /// that of the answer, with its parameters.
    pub content_type: Option<String>,
    /// The maximum size that the property's definition allows.
    pub max_size: u64,
}

/// The reasons why settings cannot be used.
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
    /// The file with the token for a renderer cannot be used.
    #[error("token_file: {0}")]
    Token(String),
    /// There are no authorities by which the certificate of a renderer can be checked.
    #[error(
        "no certificate authorities found: {0}. Name a file of certificates (PEM), or install the system's \
         (Debian: apt install ca-certificates)"
    )]
    Authorities(String),
}
