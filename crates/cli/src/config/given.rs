//! The settings that one source gives: flags, environment, or a file.

use std::{collections::BTreeMap, num::NonZeroUsize};

use rashomon_buckets::{BucketName, DomainName, PropertyName, Versions};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::{
    access::GivenAccess,
    archive::{GivenArchive, GivenBucketArchive},
    generator::GivenGenerator,
    retention::GivenRetention,
    store::{GivenStore, StoreUrl},
    values::{Access, AccessLog, ByteSize, ContentType, Host, Listen, LogFormat, LogLevel, ServerName, Span},
};

/// The settings that one source gives.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
#[command(next_help_heading = "Settings (in the file: the same names with '_')")]
pub(crate) struct GivenSettings {
    /// Where the revisions are kept: sqlite:DIRECTORY, memory: (gone at the end), or
    /// `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]` [default: sqlite:./rashomon-data]
    #[arg(long, env = "RASHOMON_STORE", value_name = "URL")]
    #[serde(skip)]
    pub(crate) store: Option<StoreUrl>,

    /// The same in a file, where it may be a table.
    #[arg(skip)]
    #[serde(rename = "store")]
    pub(crate) store_of_file: Option<Spanned<GivenStore>>,

    /// Bytes of the newest bodies that are kept in memory, to answer reads from [default: 256 MiB]
    #[arg(long, env = "RASHOMON_CACHE_SIZE", value_name = "SIZE")]
    pub(crate) cache_size: Option<ByteSize>,

    /// How often what nobody names is collected: the pieces of large bodies whose upload was never finished, or that
    /// sealing let go of, and blocks of the archive; on Cassandra only what is older than `gc_grace_seconds`; 0s for
    /// never [default: 1h]
    #[arg(long, env = "RASHOMON_COLLECT_EVERY", value_name = "TIME")]
    pub(crate) collect_every: Option<Span>,

    /// The address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7231]
    #[arg(long, env = "RASHOMON_LISTEN", value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<Listen>,

    /// Who may do what; must be said before the server listens on an address that others can reach
    /// [default: open on loopback]
    #[arg(long, env = "RASHOMON_ACCESS", value_enum)]
    #[serde(skip)]
    pub(crate) access: Option<Access>,

    /// The same in a file, where it may be a table.
    #[arg(skip)]
    #[serde(rename = "access")]
    pub(crate) access_of_file: Option<GivenAccess>,

    /// On loopback, further hosts that requests may be for, beside localhost and the hosts of domains: those that a
    /// proxy on this machine passes; * for any [default: []]
    #[arg(long, env = "RASHOMON_HOSTS", value_name = "HOST,...", value_delimiter = ',')]
    pub(crate) hosts: Option<Vec<ServerName>>,

    /// How long requests may go on once the server was told to stop [default: 30s]
    #[arg(long, env = "RASHOMON_SHUTDOWN_GRACE", value_name = "TIME")]
    pub(crate) shutdown_grace: Option<Span>,

    /// How far in the future the _timestamp of a write may lie, since clocks differ [default: 5m]
    #[arg(long, env = "RASHOMON_SKEW", value_name = "TIME")]
    pub(crate) skew: Option<Span>,

    /// Whether everything that writes is refused [default: false]
    #[arg(long, env = "RASHOMON_READ_ONLY", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) read_only: Option<bool>,

    /// The most bytes of a request's body; an import may be larger, but no line of its JSON lines [default: 256 MiB]
    #[arg(long, env = "RASHOMON_BODY_LIMIT", value_name = "SIZE")]
    pub(crate) body_limit: Option<ByteSize>,

    /// How long a body may take to arrive; an import may take longer [default: 10m]
    #[arg(long, env = "RASHOMON_BODY_TIMEOUT", value_name = "TIME")]
    pub(crate) body_timeout: Option<Span>,

    /// How long a body may go without a byte [default: 30s]
    #[arg(long, env = "RASHOMON_IDLE_TIMEOUT", value_name = "TIME")]
    pub(crate) idle_timeout: Option<Span>,

    /// The fewest bytes a second with which a body may come, import or not, over any 60 s in which the server waits for
    /// it; 0 B for any [default: 1 KiB]
    #[arg(long, env = "RASHOMON_MIN_UPLOAD_RATE", value_name = "SIZE")]
    pub(crate) min_upload_rate: Option<ByteSize>,

    /// Bytes of memory that writes and imports may take together for the bodies that they receive; what has no room
    /// there is written to the store early, and requests wait [default: 256 MiB]
    #[arg(long, env = "RASHOMON_STAGING_MEMORY", value_name = "SIZE")]
    pub(crate) staging_memory: Option<ByteSize>,

    /// How long a write or an import may wait for its part of staging_memory before it is answered with 503
    /// [default: 10s]
    #[arg(long, env = "RASHOMON_STAGING_WAIT", value_name = "TIME")]
    pub(crate) staging_wait: Option<Span>,

    /// How long a read may wait for the store; where there is a renderer, for twice its timeout longer [default: 30s]
    #[arg(long, env = "RASHOMON_READ_TIMEOUT", value_name = "TIME")]
    pub(crate) read_timeout: Option<Span>,

    /// The most bytes of a request's URL [default: 16 KiB]
    #[arg(long, env = "RASHOMON_URL_LIMIT", value_name = "SIZE")]
    pub(crate) url_limit: Option<ByteSize>,

    /// How many connections may be open; others wait to be accepted [default: 10000]
    #[arg(long, env = "RASHOMON_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,

    /// How long a request's head may take to arrive, and a connection may wait for its next request
    /// [default: 1m]
    #[arg(long, env = "RASHOMON_HEAD_TIMEOUT", value_name = "TIME")]
    pub(crate) head_timeout: Option<Span>,

    /// How long a client may take nothing of its answer [default: 1m]
    #[arg(long, env = "RASHOMON_STALL_TIMEOUT", value_name = "TIME")]
    pub(crate) stall_timeout: Option<Span>,

    /// How many writes may be under way at once; others wait [default: 512]
    #[arg(long, env = "RASHOMON_MAX_WRITES", value_name = "N")]
    pub(crate) max_writes: Option<NonZeroUsize>,

    /// How many imports may be under way at once; others are refused [default: 4]
    #[arg(long, env = "RASHOMON_MAX_IMPORTS", value_name = "N")]
    pub(crate) max_imports: Option<NonZeroUsize>,

    /// Bytes of 7z archives that imports over HTTP keep on disk at once, all together [default: 16 GiB]
    #[arg(long, env = "RASHOMON_MAX_SPOOL", value_name = "SIZE")]
    pub(crate) max_spool: Option<ByteSize>,

    /// How many answers to reads of the latest are kept ready, beside their bodies [default: 8192]
    #[arg(long, env = "RASHOMON_PREPARED_ANSWERS", value_name = "N")]
    pub(crate) prepared_answers: Option<u64>,

    /// How log lines look [default: text]
    #[arg(long, env = "RASHOMON_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,

    /// What is logged: off, error, warn, info, debug, trace, or levels by module as in
    /// info,rashomon_api=debug [default: info]
    #[arg(long, env = "RASHOMON_LOG_LEVEL", value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// Which requests are logged when they are answered [default: failures]
    #[arg(long, env = "RASHOMON_ACCESS_LOG", value_enum)]
    pub(crate) access_log: Option<AccessLog>,

    /// What is kept, and for how long.
    #[arg(skip)]
    pub(crate) retention: Option<Spanned<GivenRetention>>,

    /// What is sealed in compression blocks.
    #[arg(skip)]
    pub(crate) archive: Option<Spanned<GivenArchive>>,

    /// What makes properties that are stored nowhere.
    #[arg(skip)]
    pub(crate) generator: Option<Spanned<GivenGenerator>>,

    /// What is known of properties beforehand, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) properties: BTreeMap<PropertyName, Spanned<GivenProperty>>,

    /// The domains, by name.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) domains: BTreeMap<DomainName, GivenDomain>,
}

/// What a file says of a property; the rest is as it was known before.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenProperty {
    pub(super) content_type: Option<ContentType>,
    pub(super) versions: Option<Versions>,
    pub(super) max_size: Option<ByteSize>,
}

/// What a file says of a domain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenDomain {
    #[serde(default)]
    pub(super) hosts: Vec<Spanned<Host>>,
    #[serde(default, deserialize_with = "known_buckets")]
    pub(super) buckets: BTreeMap<BucketName, GivenBucket>,
}

/// Tables of buckets that there are: what is said of another would be kept by nobody.
fn known_buckets<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<BucketName, GivenBucket>, D::Error> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Known(BucketName);

    impl<'de> Deserialize<'de> for Known {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let name = BucketName::deserialize(from)?;
            check_bucket(&name).map_err(de::Error::custom)?;
            Ok(Self(name))
        }
    }

    let buckets = BTreeMap::<Known, GivenBucket>::deserialize(from)?;
    Ok(buckets.into_iter().map(|(Known(name), bucket)| (name, bucket)).collect())
}

/// An error that names the cure, unless there is such a bucket.
pub(crate) fn check_bucket(name: &BucketName) -> Result<(), String> {
    let page = BucketName::page();
    if *name == page {
        Ok(())
    } else {
        Err(format!("there is no bucket '{name}': a domain's pages are in '{page}'"))
    }
}

/// What a file says of a bucket of a domain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenBucket {
    pub(super) retention: Option<Spanned<GivenRetention>>,
    pub(super) archive: Option<Spanned<GivenBucketArchive>>,
    pub(super) generator: Option<Spanned<GivenGenerator>>,
}
