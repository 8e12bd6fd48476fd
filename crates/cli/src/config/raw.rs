//! The settings from one source: flags, environment, or a file.

use std::{collections::BTreeMap, num::NonZeroUsize};

use rashomon_buckets::{BucketName, DomainName, PropertyName, Versions};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::{
    access::RawAccess,
    archive::{RawArchive, RawBucketArchive},
    generator::RawGenerator,
    retention::RawRetention,
    store::{RawStore, StoreUrl},
    values::{Access, AccessLog, ByteSize, ContentType, Host, Listen, LogFormat, LogLevel, ServerName, Span},
};

/// The settings from one source.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Settings (in the file: the same names with '_')")]
pub(crate) struct RawSettings {
    /// The store: sqlite:DIRECTORY, memory: (lost at exit), or
    /// `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]` [default: sqlite:./rashomon-data]
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    #[serde(skip)]
    pub(crate) store: Option<StoreUrl>,

    /// The store in a file, where it may be a table.
    #[arg(skip)]
    #[serde(rename = "store")]
    pub(crate) store_of_file: Option<Spanned<RawStore>>,

    /// Bytes of the latest bodies that are cached in memory [default: 256 MiB]
    #[arg(long, env = "RASHOMON_CACHE_SIZE", value_name = "SIZE")]
    pub(crate) cache_size: Option<ByteSize>,

    /// Interval between garbage collections of unreferenced chunks and blocks: unfinished uploads, sealed
    /// bodies, replaced blocks. On Cassandra, chunks and blocks younger than `gc_grace_seconds` are kept. 0s
    /// turns garbage collection off [default: 1h]
    #[arg(long, env = "RASHOMON_COLLECT_EVERY", value_name = "TIME")]
    pub(crate) collect_every: Option<Span>,

    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7231]
    #[arg(long, env = "RASHOMON_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,

    /// Access rights; required to listen on an address other than loopback [default: open on loopback]
    #[arg(long, env = "RASHOMON_ACCESS", value_enum)]
    #[serde(skip)]
    pub(crate) access: Option<Access>,

    /// The access rights in a file, where they may be a table.
    #[arg(skip)]
    #[serde(rename = "access")]
    pub(crate) access_of_file: Option<RawAccess>,

    /// Additional `Host` names that a server on loopback answers, such as the names that a proxy on this
    /// machine passes on; * for any name. The hosts of domains and localhost are always answered [default:
    /// []]
    #[arg(long, env = "RASHOMON_HOSTS", value_name = "HOST,...", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<ServerName>>,

    /// Time that running requests have to finish at shutdown [default: 30s]
    #[arg(long, env = "RASHOMON_SHUTDOWN_GRACE", value_name = "TIME")]
    pub(crate) shutdown_grace: Option<Span>,

    /// How far in the future the _timestamp of a write may be, since clocks differ [default: 5m]
    #[arg(long, env = "RASHOMON_SKEW", value_name = "TIME")]
    pub(crate) skew: Option<Span>,

    /// Refuse all writes [default: false]
    #[arg(long, env = "RASHOMON_READ_ONLY", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) read_only: Option<bool>,

    /// Maximum size of a request body. An import may be larger, but no line of JSON lines in it [default: 256
    /// MiB]
    #[arg(long, env = "RASHOMON_BODY_LIMIT", value_name = "SIZE")]
    pub(crate) body_limit: Option<ByteSize>,

    /// Time in which a request body must arrive; does not hold for imports [default: 10m]
    #[arg(long, env = "RASHOMON_BODY_TIMEOUT", value_name = "TIME")]
    pub(crate) body_timeout: Option<Span>,

    /// Longest pause between two bytes of a request body [default: 30s]
    #[arg(long, env = "RASHOMON_IDLE_TIMEOUT", value_name = "TIME")]
    pub(crate) idle_timeout: Option<Span>,

    /// Minimum rate of request bodies and imports, in bytes per second, over any 60 s in which the server
    /// waits for data; 0 B for no minimum [default: 1 KiB]
    #[arg(long, env = "RASHOMON_MIN_UPLOAD_RATE", value_name = "SIZE")]
    pub(crate) min_upload_rate: Option<ByteSize>,

    /// Memory for the request bodies of all writes and imports together. Bodies that do not fit are written
    /// to the store early, or their requests wait [default: 256 MiB]
    #[arg(long, env = "RASHOMON_STAGING_MEMORY", value_name = "SIZE")]
    pub(crate) staging_memory: Option<ByteSize>,

    /// Time that a write or an import waits for staging_memory before it is answered with 503 [default: 10s]
    #[arg(long, env = "RASHOMON_STAGING_WAIT", value_name = "TIME")]
    pub(crate) staging_wait: Option<Span>,

    /// Time that a read waits for the store. With a renderer, twice the timeout of the renderer is added
    /// [default: 30s]
    #[arg(long, env = "RASHOMON_READ_TIMEOUT", value_name = "TIME")]
    pub(crate) read_timeout: Option<Span>,

    /// Maximum size of a URL [default: 16 KiB]
    #[arg(long, env = "RASHOMON_URL_LIMIT", value_name = "SIZE")]
    pub(crate) url_limit: Option<ByteSize>,

    /// Maximum number of open connections; others wait to be accepted [default: 10000]
    #[arg(long, env = "RASHOMON_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,

    /// Time in which the head of a request must arrive, and longest pause between two requests of a connection
    /// [default: 1m]
    #[arg(long, env = "RASHOMON_HEAD_TIMEOUT", value_name = "TIME")]
    pub(crate) head_timeout: Option<Span>,

    /// Time after which a client that reads nothing of its answer is disconnected [default: 1m]
    #[arg(long, env = "RASHOMON_STALL_TIMEOUT", value_name = "TIME")]
    pub(crate) stall_timeout: Option<Span>,

    /// Maximum number of concurrent writes; others wait [default: 512]
    #[arg(long, env = "RASHOMON_MAX_WRITES", value_name = "N")]
    pub(crate) max_writes: Option<NonZeroUsize>,

    /// Maximum number of concurrent imports; others are refused [default: 4]
    #[arg(long, env = "RASHOMON_MAX_IMPORTS", value_name = "N")]
    pub(crate) max_imports: Option<NonZeroUsize>,

    /// Disk space for the 7z archives of all imports over HTTP together [default: 16 GiB]
    #[arg(long, env = "RASHOMON_MAX_SPOOL", value_name = "SIZE")]
    pub(crate) max_spool: Option<ByteSize>,

    /// Maximum number of cached latest bodies whose response headers are cached too [default: 8192]
    #[arg(long, env = "RASHOMON_PREPARED_ANSWERS", value_name = "N")]
    pub(crate) prepared_answers: Option<u64>,

    /// Format of log lines [default: text]
    #[arg(long, env = "RASHOMON_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,

    /// Log level: off, error, warn, info, debug, trace, or levels by module as in info,rashomon_api=debug
    /// [default: info]
    #[arg(long, env = "RASHOMON_LOG_LEVEL", value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// Requests that are logged when they are answered [default: failures]
    #[arg(long, env = "RASHOMON_ACCESS_LOG", value_enum)]
    pub(crate) access_log: Option<AccessLog>,

    /// The retention settings.
    #[arg(skip)]
    pub(crate) retention: Option<Spanned<RawRetention>>,

    /// The archive settings.
    #[arg(skip)]
    pub(crate) archive: Option<Spanned<RawArchive>>,

    /// The renderers.
    #[arg(skip)]
    pub(crate) generator: Option<Spanned<RawGenerator>>,

    /// The definitions of properties, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) properties: BTreeMap<PropertyName, Spanned<RawProperty>>,

    /// The domains, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) domains: BTreeMap<DomainName, RawDomain>,
}

/// The definition of a property in a file. Fields without a value keep their built-in values.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawProperty {
    pub(super) content_type: Option<ContentType>,
    pub(super) versions: Option<Versions>,
    pub(super) max_size: Option<ByteSize>,
}

/// The settings of a domain in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDomain {
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<Host>>,
    #[serde(default, deserialize_with = "known_buckets")]
    pub(super) buckets: BTreeMap<BucketName, RawBucket>,
}

/// Reads the tables of buckets. A table of an unknown bucket is an error, since its settings would have no
/// effect.
fn known_buckets<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<BucketName, RawBucket>, D::Error> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Known(BucketName);

    impl<'de> Deserialize<'de> for Known {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let name = BucketName::deserialize(from)?;
            check_bucket(&name).map_err(de::Error::custom)?;
            Ok(Self(name))
        }
    }

    let buckets = BTreeMap::<Known, RawBucket>::deserialize(from)?;
    Ok(buckets.into_iter().map(|(Known(name), bucket)| (name, bucket)).collect())
}

/// Checks that a bucket of this name exists. The error says what to do.
pub(crate) fn check_bucket(name: &BucketName) -> Result<(), String> {
    let page = BucketName::page();
    if *name == page {
        Ok(())
    } else {
        Err(format!("there is no bucket '{name}': the pages of a domain are in bucket '{page}'"))
    }
}

/// The settings of a bucket of a domain in a file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBucket {
    pub(super) retention: Option<Spanned<RawRetention>>,
    pub(super) archive: Option<Spanned<RawBucketArchive>>,
    pub(super) generator: Option<Spanned<RawGenerator>>,
}
