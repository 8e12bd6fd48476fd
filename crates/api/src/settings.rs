//! The settings of the API. They deserialize, so that a configuration can hold them as they are.

use std::collections::{BTreeSet, HashMap};

use rashomon_buckets::DomainName;
use serde::{Deserialize, Serialize};

/// The names that these settings have for the operator: errors name them.
pub(crate) const STAGING_MEMORY: &str = "staging_memory";
pub(crate) const STAGING_WAIT: &str = "staging_wait";
pub(crate) const BODY_TIMEOUT: &str = "body_timeout";
pub(crate) const IDLE_TIMEOUT: &str = "idle_timeout";
pub(crate) const MIN_UPLOAD_RATE: &str = "min_upload_rate";

/// Which requests are written to the log at the level `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessLog {
    /// All of them.
    All,
    /// Those that failed; the others at the level `debug`.
    #[default]
    Failures,
    /// None, but those that the server is to blame for, at the level `warn`.
    Off,
}

/// The settings of the API. Times are in seconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The domain that `/wiki/` serves, by the `Host` of the request: in lower case, with a port where only
    /// that port is meant.
    pub hosts: HashMap<String, DomainName>,
    /// Further names under which clients reach the server, written as those of `hosts`.
    pub other_hosts: BTreeSet<String>,
    /// Refuse a request for a host that is neither a name of loopback nor in `hosts` or `other_hosts`: for a server
    /// that listens on loopback, against DNS rebinding.
    pub check_host: bool,
    /// The origins whose pages may send requests that change something, and may read answers: in lower case, without
    /// the usual port, as in `https://en.example.org`.
    pub origins: BTreeSet<String>,
    /// Refuse everything that writes.
    pub read_only: bool,
    /// The most bytes of a body; an import may be larger, but no line of its JSON lines.
    pub max_body_bytes: u64,
    /// The most bytes of a request's URL.
    pub max_url_bytes: usize,
    /// How long a read may wait for the store.
    pub read_seconds: u64,
    /// How long a body may go without a byte.
    pub body_idle_seconds: u64,
    /// How long a body may take altogether; an import may take longer.
    pub body_seconds: u64,
    /// The fewest bytes a second with which a body may come, on average over any minute in which the server waits for
    /// it; 0 for any.
    pub min_upload_rate: u64,
    /// The bytes of memory that writes and imports may take together for the bodies that they receive. See
    /// [`crate::least_staging_bytes`] for the least that lets all of them go on.
    pub staging_bytes: u64,
    /// How long a request may wait for its part of that before it is refused.
    pub staging_wait_seconds: u64,
    /// How many writes may be under way at once; others wait.
    pub max_writes: usize,
    /// How many imports may be under way at once; others are refused.
    pub max_imports: usize,
    /// The most bytes of 7z archives that imports keep on disk at once, all together.
    pub max_spool_bytes: u64,
    /// How many answers to reads of the latest are kept ready, beside the bodies, which the buckets keep.
    pub prepared_answers: u64,
    /// Which requests are logged.
    pub access_log: AccessLog,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
            other_hosts: BTreeSet::new(),
            check_host: false,
            origins: BTreeSet::new(),
            read_only: false,
            max_body_bytes: 256 << 20,
            max_url_bytes: 16 << 10,
            read_seconds: 30,
            body_idle_seconds: 30,
            body_seconds: 600,
            min_upload_rate: 1 << 10,
            staging_bytes: 256 << 20,
            staging_wait_seconds: 10,
            max_writes: 512,
            max_imports: 4,
            max_spool_bytes: 16 << 30,
            prepared_answers: 8192,
            access_log: AccessLog::default(),
        }
    }
}
