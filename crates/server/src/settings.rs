//! The settings of the API. They implement `Deserialize`, so that a configuration can contain them.

use std::collections::{BTreeSet, HashMap};

use ipnet::IpNet;
use rashomon_pages::{DomainName, IgnoredHeaders};
use serde::{Deserialize, Serialize};

/// The names of some of these settings in the operator's configuration, for error messages.
pub(crate) const STAGING_MEMORY: &str = "staging_memory";
pub(crate) const STAGING_WAIT: &str = "staging_wait";
pub(crate) const BATCH_TIMEOUT: &str = "batch_timeout";
pub(crate) const BODY_LIMIT: &str = "body_limit";
pub(crate) const MAX_WRITES: &str = "max_writes";
pub(crate) const OVERLOAD_WAIT: &str = "overload_wait";

/// Which requests are written to the log. Failures of the server itself are always logged: the status 500 at the level
/// `error`, the other 5xx at the level `warn`. Of problems of the type `busy`, only one a minute is logged in this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    /// All requests, at the level `info`.
    All,
    /// Requests that failed because of the client, at the level `info`, and all others at the level `debug`.
    #[default]
    Failures,
    /// All requests, at the level `debug`.
    Off,
}

/// Who may read `/metrics`, `/docs` and `/openapi.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperatorPages {
    /// Every client.
    #[default]
    Open,
    /// Clients with a token that may read every domain and every bucket.
    Token,
}

/// The settings of the API. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The domain that `/wiki/` serves for each `Host` of a request. The names are in lower case. A name with
    /// a port matches only this port, and a name without one matches every port.
    pub hosts: HashMap<String, DomainName>,
    /// Further names under which clients reach the server, in the same notation as `hosts`.
    pub other_hosts: BTreeSet<String>,
    /// Whether to refuse requests for a host that is neither a name of loopback nor in `hosts` or
    /// `other_hosts`. Protects a server that listens on loopback against DNS rebinding.
    pub check_host: bool,
    /// The origins whose pages may send writes and read answers: in lower case, without the default port, as
    /// in `https://en.example.org`.
    pub origins: BTreeSet<String>,
    /// The proxies whose `X-Forwarded-For` names the client.
    pub proxies: Vec<IpNet>,
    /// The request headers that are not stored, and for which a write is not refused either.
    pub ignored_headers: IgnoredHeaders,
    /// Who may read `/metrics`, `/docs` and `/openapi.json`.
    pub operator_pages: OperatorPages,
    /// Whether to refuse all writes.
    pub read_only: bool,
    /// The size limit of a body. An import may be larger, but a line of its JSON lines may not.
    pub max_body_bytes: u64,
    /// The size limit of a request's URL.
    pub max_url_bytes: usize,
    /// How long a read may wait for the store.
    pub read_seconds: u64,
    /// The longest pause between two bytes of a body.
    pub body_idle_seconds: u64,
    /// How long a whole body may take; an import may take longer.
    pub body_seconds: u64,
    /// The minimum rate of a body in bytes per second; 0 for no minimum. The rate is an average over 60 s of the time
    /// in which the server waits for the client.
    pub min_upload_rate: u64,
    /// The size of staging memory in bytes. All writes, imports and batches share it for the bodies that they receive,
    /// and batches also for their answers.
    /// [`crate::least_staging_bytes`] returns the smallest value with which two writes can continue beside
    /// `max_imports` imports.
    pub staging_bytes: u64,
    /// How long a request may wait for its part of `staging_bytes` before it is refused.
    pub staging_wait_seconds: u64,
    /// How long the requests of a batch may take together.
    pub batch_seconds: u64,
    /// The maximum number of concurrent writes; others wait for `overload_milliseconds`.
    pub max_writes: usize,
    /// How long a write may wait for its permit before it is refused, in milliseconds.
    pub overload_milliseconds: u64,
    /// The maximum number of concurrent imports; others are refused.
    pub max_imports: usize,
    /// The size limit of the 7z archives that all imports together keep on disk.
    pub max_spool_bytes: u64,
    /// The maximum number of cached sets of response headers for reads of the latest, and also for reads of entries.
    /// The bodies are in another cache, in the buckets crate.
    pub prepared_answers: u64,
    /// Which requests are logged.
    pub access_log: AccessLog,
    /// The header in which answers carry their surrogate keys, in lower case. `None` if no HTTP caches are purged.
    pub surrogate_key_header: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
            other_hosts: BTreeSet::new(),
            check_host: false,
            origins: BTreeSet::new(),
            proxies: Vec::new(),
            ignored_headers: IgnoredHeaders::default(),
            operator_pages: OperatorPages::default(),
            read_only: false,
            max_body_bytes: 256 << 20,
            max_url_bytes: 16 << 10,
            read_seconds: 30,
            body_idle_seconds: 30,
            body_seconds: 600,
            min_upload_rate: 1 << 10,
            staging_bytes: 256 << 20,
            staging_wait_seconds: 10,
            batch_seconds: 60,
            max_writes: 32,
            overload_milliseconds: 80,
            max_imports: 4,
            max_spool_bytes: 16 << 30,
            prepared_answers: 8192,
            access_log: AccessLog::default(),
            surrogate_key_header: None,
        }
    }
}
