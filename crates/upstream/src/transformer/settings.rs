//! The configuration of the transformers.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use rashomon_protocol::spec_version::Profile;
use rashomon_records::excerpt;

/// The steps, and the limits for all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The steps between versions.
    pub steps: Vec<Step>,
    /// The only hosts that are ever reached, redirects included. Each is a name or an address, with a port if it is not
    /// the default port of the scheme.
    pub hosts: Vec<String>,
    /// The time limit of one step, from the connection to the last byte of the answer. Before the first step, a
    /// transformation may wait for the same time until fewer transformations are in progress.
    pub timeout: Duration,
    /// The maximum number of concurrent transformations. Each may have two documents in memory.
    pub max_requests: NonZeroUsize,
    /// The maximum size of a document, before and after a step, in bytes.
    pub max_size: u64,
    /// A file whose only line is the token for the transformers. It is sent to the origins of the steps' URLs, and
    /// nowhere else. `None`: no token is sent.
    pub token_file: Option<PathBuf>,
    /// A file of certificates (PEM) of authorities. One of these authorities must have issued the certificate of a
    /// transformer. `None`: the authorities that the system trusts.
    pub authorities: Option<PathBuf>,
}

impl Settings {
    /// The default timeout.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// The default limit of concurrent transformations.
    pub const MAX_REQUESTS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

    /// The default size limit of a document: that of a property without a definition of its own.
    pub const MAX_SIZE: u64 = 64 << 20;

    /// The maximum number of steps.
    pub const MAX_STEPS: usize = 64;
}

impl Default for Settings {
    /// Settings with which nothing is transformed.
    fn default() -> Self {
        Self {
            steps: Vec::new(),
            hosts: Vec::new(),
            timeout: Self::TIMEOUT,
            max_requests: Self::MAX_REQUESTS,
            max_size: Self::MAX_SIZE,
            token_file: None,
            authorities: None,
        }
    }
}

/// A service that converts documents of one version into another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The profile that the service takes. By the caret rule, it takes higher minor versions of this profile as well.
    pub from: String,
    /// The profile that the service returns.
    pub to: String,
    /// An `http` or `https` URL.
    pub url: String,
}

/// The reasons why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A profile has no version.
    #[error(
        "'{}' is not a profile: write a URL that ends with a version, such as \
         https://www.mediawiki.org/wiki/Specs/HTML/2.8.0",
        excerpt(.0)
    )]
    Profile(String),
    /// A step leads to another spec.
    #[error(
        "the step from {from} to {to} leads to another spec: the part before the version must be the same"
    )]
    OtherSpec {
        /// The profile that the step takes.
        from: Profile,
        /// The profile that it returns.
        to: Profile,
    },
    /// A step changes nothing.
    #[error(
        "the step from {from} to {to} is not needed: the first version satisfies requests for the second. Remove the \
         step"
    )]
    NotNeeded {
        /// The profile that the step takes.
        from: Profile,
        /// The profile that it returns.
        to: Profile,
    },
    /// A URL is invalid.
    #[error("the URL '{}' of a step: {why}", excerpt(url))]
    Url {
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
    /// The timeout is zero.
    #[error("a timeout of zero gives a transformer no time to answer: 30 seconds are usual")]
    Timeout,
    /// There are too many steps.
    #[error("{0} steps are too many: at most {max} are possible", max = Settings::MAX_STEPS)]
    TooManySteps(usize),
    /// The file with the token cannot be used.
    #[error("token_file: {0}")]
    Token(String),
    /// There are no authorities by which the certificate of a transformer can be checked.
    #[error(
        "no certificate authorities found: {0}. Name a file of certificates (PEM), or install the system's (Debian: \
         apt install ca-certificates)"
    )]
    Authorities(String),
}
