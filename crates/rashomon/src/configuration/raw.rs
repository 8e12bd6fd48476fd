//! The settings from one source, and the settings merged from all sources.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf};

use confique::Config;
use rashomon_entries::BucketType;
use rashomon_pages::{BucketName, DomainName, HeaderPattern, PropertyName, Versions};
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::Spanned;

use super::{
    access::RawAccess,
    archive::{RawArchive, RawBucketArchive},
    caches::RawCache,
    generator::RawGenerator,
    registry::RawRegistry,
    retention::RawRetention,
    store::{RawStore, StoreUrl},
    transformers::RawTransformers,
    values::{
        Access, AccessLog, AuditLogTarget, ByteSize, ContentType, Host, Listen, LogFormat, LogLevel,
        ServerName, Span, SurrogateKeyHeader,
    },
};

/// The settings from one source: flags and environment, or a file. A setting that the source does not set is
/// `None`. A command flattens these flags into its arguments.
pub(crate) type RawSettings = <MergedSettings as Config>::Layer;

/// The settings from all sources. A field has everything about a setting: name, type, default, flag, variable and
/// description. `config(layer_attr(X))` puts the attribute `X` on the field in [`RawSettings`]. A field is public if
/// code outside this crate reads it.
///
/// Settings that may be tables in a file have no default here. [`Settings`](super::Settings) takes them out
/// of this struct, checks them, and adds the defaults.
#[derive(Debug, Clone, PartialEq, Config, Serialize)]
#[config(layer_attr(derive(Debug, Clone, Default, PartialEq, clap::Args)))]
#[config(layer_attr(serde(deny_unknown_fields)))]
#[config(layer_attr(command(
    next_help_heading = "Settings (also possible in the configuration file, there with '_' instead of '-')"
)))]
pub(crate) struct MergedSettings {
    /// The store: sqlite:DIRECTORY, memory: (lost at exit), or
    /// `cassandra://HOST[:PORT][,HOST...]/KEYSPACE[?replication=N]` [default: sqlite:./rashomon-data]
    #[config(layer_attr(arg(long, env = "RASHOMON_STORE", value_name = "URL")))]
    #[config(layer_attr(serde(skip)))]
    #[serde(skip)]
    pub(crate) store: Option<StoreUrl>,

    /// The setting `store` of a configuration file: a URL, or a TOML table.
    #[config(layer_attr(arg(skip)))]
    #[config(layer_attr(serde(rename = "store")))]
    #[serde(skip)]
    pub(crate) store_of_file: Option<Spanned<RawStore>>,

    /// Memory for cached bodies of latest renders. Not used on Cassandra [default: 256 MiB]
    #[config(default = "256 MiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_CACHE_SIZE", value_name = "SIZE")))]
    pub(crate) cache_size: ByteSize,

    /// Memory for cached entries of key-value buckets. Not used on Cassandra [default: 64 MiB]
    #[config(default = "64 MiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_ENTRY_CACHE_SIZE", value_name = "SIZE")))]
    pub(crate) entry_cache_size: ByteSize,

    /// Maximum number of idempotency keys that each counter keeps, for 24 hours. When a counter has this many, an
    /// increment with a new key is answered with 503 [default: 100000]
    #[config(default = 100_000)]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_IDEMPOTENCY_KEYS", value_name = "N")))]
    pub(crate) max_idempotency_keys: u64,

    /// Interval between garbage collections. A collection deletes replaced blocks, the entries and pages of deleted
    /// buckets, and unreferenced chunks, such as those of unfinished uploads and of sealed, replaced or deleted bodies.
    /// Blocks and chunks are kept for at least a day, and on Cassandra for `gc_grace_seconds` longer. 0s turns garbage
    /// collection off [default: 1h]
    #[config(default = "1h")]
    #[config(layer_attr(arg(long, env = "RASHOMON_COLLECT_EVERY", value_name = "TIME")))]
    pub(crate) collect_every: Span,

    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7231]
    #[config(default = "127.0.0.1:7231")]
    #[config(layer_attr(arg(long, env = "RASHOMON_LISTEN", value_name = "ADDRESS:PORT")))]
    pub listen: Listen,

    /// PEM file with the certificate of the server, followed by those of the intermediate authorities. With it, the
    /// server accepts only connections with TLS. Requires tls_key. A changed file is loaded within seconds [default:
    /// none]
    #[config(layer_attr(arg(long, env = "RASHOMON_TLS_CERTIFICATE", value_name = "FILE")))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// PEM file with the private key of tls_certificate, without a password [default: none]
    #[config(layer_attr(arg(long, env = "RASHOMON_TLS_KEY", value_name = "FILE")))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Access rights. To listen on an address other than loopback, set this, or give rights in the table `[access]` of
    /// the configuration file [default: open on loopback]
    #[config(layer_attr(arg(long, env = "RASHOMON_ACCESS", value_enum)))]
    #[config(layer_attr(serde(skip)))]
    #[serde(skip)]
    pub(crate) access: Option<Access>,

    /// The setting `access` of a configuration file: a word, or a TOML table.
    #[config(layer_attr(arg(skip)))]
    #[config(layer_attr(serde(rename = "access")))]
    #[serde(skip)]
    pub(crate) access_of_file: Option<RawAccess>,

    /// Additional `Host` names that a server on loopback answers, such as the names that a proxy on this
    /// machine passes on; * for any name. localhost, names below it, loopback addresses, and the hosts in
    /// `[domains.NAME]` are always answered [default: []]
    #[config(default = [])]
    #[config(layer_attr(arg(
        long,
        env = "RASHOMON_HOSTS",
        value_name = "HOST,...",
        value_delimiter = ','
    )))]
    pub(crate) hosts: Vec<ServerName>,

    /// Headers that proxies add to requests, such as `x-varnish`, or `x-my-proxy-*` for all names with this
    /// beginning. Such headers are not stored with revisions or entries, and a request is not refused because such a
    /// header cannot be stored, is malformed or is repeated. `X-Forwarded-*`, `X-Real-IP`, `X-Request-ID`, `X-Amzn-*`
    /// and `X-Envoy-*` are always ignored. At most 64 [default: []]
    #[config(default = [])]
    #[config(layer_attr(arg(
        long,
        env = "RASHOMON_IGNORED_HEADERS",
        value_name = "NAME,...",
        value_delimiter = ','
    )))]
    pub(crate) ignored_headers: Vec<HeaderPattern>,

    /// The only `X-` headers that are stored with properties and entries, and returned with them: names, or `x-my-*` for
    /// all names with this beginning. At most 64 [default: all except those that control servers or browsers]
    #[config(layer_attr(arg(
        long,
        env = "RASHOMON_STORED_HEADERS",
        value_name = "NAME,...",
        value_delimiter = ','
    )))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stored_headers: Option<Vec<HeaderPattern>>,

    /// Time that running requests have to finish at shutdown. Writes that still run then have the same time again
    /// [default: 30s]
    #[config(default = "30s")]
    #[config(layer_attr(arg(long, env = "RASHOMON_SHUTDOWN_GRACE", value_name = "TIME")))]
    pub shutdown_grace: Span,

    /// How far in the future the _timestamp of a write may be, since clocks differ. On a cluster also how
    /// much the clocks of the servers may differ [default: 5m]
    #[config(default = "5m")]
    #[config(layer_attr(arg(long, env = "RASHOMON_SKEW", value_name = "TIME")))]
    pub(crate) skew: Span,

    /// Refuse all writes, and store nothing when a client reads: no renderer is asked, and no read copy is made [default:
    /// false]
    #[config(default = false)]
    #[config(layer_attr(arg(long, env = "RASHOMON_READ_ONLY", value_name = "BOOL")))]
    #[config(layer_attr(arg(num_args = 0..=1, default_missing_value = "true")))]
    pub(crate) read_only: bool,

    /// Maximum size of a request body. An import may be larger, but a line of its JSON lines may not
    /// [default: 256 MiB]
    #[config(default = "256 MiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_BODY_LIMIT", value_name = "SIZE")))]
    pub(crate) body_limit: ByteSize,

    /// Time in which a request body must arrive; imports have no such limit [default: 10m]
    #[config(default = "10m")]
    #[config(layer_attr(arg(long, env = "RASHOMON_BODY_TIMEOUT", value_name = "TIME")))]
    pub(crate) body_timeout: Span,

    /// Longest pause between two bytes of a request body or an import [default: 30s]
    #[config(default = "30s")]
    #[config(layer_attr(arg(long, env = "RASHOMON_IDLE_TIMEOUT", value_name = "TIME")))]
    pub(crate) idle_timeout: Span,

    /// Minimum rate at which request bodies and imports must arrive, in bytes per second; 0 B for no minimum
    /// [default: 1 KiB]
    #[config(default = "1 KiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_MIN_UPLOAD_RATE", value_name = "SIZE")))]
    pub(crate) min_upload_rate: ByteSize,

    /// Memory for the bodies of all writes and imports until they are stored, and for batches and their answers. A
    /// write reserves at most 4 MiB of it before its body is received, and an import 3 to 24 MiB while its body arrives.
    /// If this much is not free, the request waits. All batches together hold at most half of it [default: 256 MiB]
    #[config(default = "256 MiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_STAGING_MEMORY", value_name = "SIZE")))]
    pub(crate) staging_memory: ByteSize,

    /// Time that a write, an import or a batch waits for staging_memory before it is answered with 503 [default: 10s]
    #[config(default = "10s")]
    #[config(layer_attr(arg(long, env = "RASHOMON_STAGING_WAIT", value_name = "TIME")))]
    pub(crate) staging_wait: Span,

    /// Time that a read waits for the store before it is answered with 503. With a renderer, twice the
    /// timeout of the renderer is added [default: 30s]
    #[config(default = "30s")]
    #[config(layer_attr(arg(long, env = "RASHOMON_READ_TIMEOUT", value_name = "TIME")))]
    pub(crate) read_timeout: Span,

    /// Time that the requests of a batch may take together. A request that is still running then is answered with
    /// 504; its write may still be stored [default: 1m]
    #[config(default = "1m")]
    #[config(layer_attr(arg(long, env = "RASHOMON_BATCH_TIMEOUT", value_name = "TIME")))]
    pub(crate) batch_timeout: Span,

    /// Maximum size of a URL [default: 16 KiB]
    #[config(default = "16 KiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_URL_LIMIT", value_name = "SIZE")))]
    pub(crate) url_limit: ByteSize,

    /// Maximum number of open connections; others wait to be accepted [default: 10000]
    #[config(default = 10_000)]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_CONNECTIONS", value_name = "N")))]
    pub max_connections: NonZeroUsize,

    /// Time in which the head of a request must arrive, and longest pause between two requests of a connection
    /// [default: 1m]
    #[config(default = "1m")]
    #[config(layer_attr(arg(long, env = "RASHOMON_HEAD_TIMEOUT", value_name = "TIME")))]
    pub(crate) head_timeout: Span,

    /// Time after which a client that reads nothing of its answer is disconnected [default: 1m]
    #[config(default = "1m")]
    #[config(layer_attr(arg(long, env = "RASHOMON_STALL_TIMEOUT", value_name = "TIME")))]
    pub(crate) stall_timeout: Span,

    /// Maximum number of concurrent writes; others wait for at most overload_wait [default: 32]
    #[config(default = 32)]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_WRITES", value_name = "N")))]
    pub(crate) max_writes: NonZeroUsize,

    /// Maximum number of blocks of the archive that are unpacked at once; other reads of blocks that are not in memory
    /// wait for at most overload_wait [default: the number of cores that the server may use]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_UNPACKS", value_name = "N")))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_unpacks: Option<NonZeroUsize>,

    /// Time that a write waits while max_writes writes run, and a read while max_unpacks blocks are unpacked, before it
    /// is answered with 503 [default: 80ms]
    #[config(default = "80ms")]
    #[config(layer_attr(arg(long, env = "RASHOMON_OVERLOAD_WAIT", value_name = "TIME")))]
    pub(crate) overload_wait: Span,

    /// Maximum number of concurrent imports; others are refused [default: 4]
    #[config(default = 4)]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_IMPORTS", value_name = "N")))]
    pub(crate) max_imports: NonZeroUsize,

    /// Disk space for the temporary files of all running imports over HTTP together: 7z files, and pages in parts
    /// [default: 16 GiB]
    #[config(default = "16 GiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_MAX_SPOOL", value_name = "SIZE")))]
    pub(crate) max_spool: ByteSize,

    /// Maximum number of cached sets of response headers. A set serves the reads of one property of the latest render
    /// of one page. Up to the same number of sets is cached for entries of key-value buckets [default: 8192]
    #[config(default = 8192)]
    #[config(layer_attr(arg(long, env = "RASHOMON_PREPARED_ANSWERS", value_name = "N")))]
    pub(crate) prepared_answers: u64,

    /// Memory for the bodies of requests that `[registry]` forwards, so that a request can be sent again if the server
    /// to which it was forwarded has failed. When more than 1 MiB of a body was sent, the request is not sent again
    /// [default: 64 MiB]
    #[config(default = "64 MiB")]
    #[config(layer_attr(arg(long, env = "RASHOMON_REPLAY_MEMORY", value_name = "SIZE")))]
    pub(crate) replay_memory: ByteSize,

    /// Time between the first and the second purge of a changed URL in the HTTP caches. It must be longer than a
    /// cache may take to fetch an answer [default: 2s]
    #[config(default = "2s")]
    #[config(layer_attr(arg(long, env = "RASHOMON_PURGE_AGAIN_AFTER", value_name = "TIME")))]
    pub(crate) purge_again_after: Span,

    /// Header in which answers carry their surrogate keys for the HTTP caches [default: xkey]
    #[config(default = "xkey")]
    #[config(layer_attr(arg(long, env = "RASHOMON_SURROGATE_KEY_HEADER", value_name = "NAME")))]
    pub(crate) surrogate_key_header: SurrogateKeyHeader,

    /// Format of log lines [default: text]
    #[config(default = "text")]
    #[config(layer_attr(arg(long, env = "RASHOMON_LOG_FORMAT", value_enum)))]
    pub log_format: LogFormat,

    /// Log level: off, error, warn, info, debug, trace, or levels by module as in info,rashomon_server=debug
    /// [default: info]
    #[config(default = "info")]
    #[config(layer_attr(arg(long, env = "RASHOMON_LOG_LEVEL", value_name = "LEVEL")))]
    pub log_level: LogLevel,

    /// Requests that are logged at level info or higher when they are answered; all others are logged at
    /// level debug [default: failures]
    #[config(default = "failures")]
    #[config(layer_attr(arg(long, env = "RASHOMON_ACCESS_LOG", value_enum)))]
    pub(crate) access_log: AccessLog,

    /// File for the audit log, which has a line of JSON for each write and each refused request; stderr for
    /// standard error. SIGHUP opens the file again [default: none]
    #[config(layer_attr(arg(long, env = "RASHOMON_AUDIT_LOG", value_name = "FILE")))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit_log: Option<AuditLogTarget>,

    /// The retention settings.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) retention: Option<Spanned<RawRetention>>,

    /// The archive settings.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) archive: Option<Spanned<RawArchive>>,

    /// The renderers.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) generator: Option<Spanned<RawGenerator>>,

    /// The transformers of spec versions.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) transformers: Option<Spanned<RawTransformers>>,

    /// The registry, by prefix.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) registry: Option<RawRegistry>,

    /// The HTTP caches, by name.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) caches: Option<BTreeMap<String, Spanned<RawCache>>>,

    /// The definitions of properties, by name.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) properties: Option<BTreeMap<PropertyName, Spanned<RawProperty>>>,

    /// The domains, by name.
    #[config(layer_attr(arg(skip)))]
    #[serde(skip)]
    pub(crate) domains: Option<BTreeMap<DomainName, RawDomain>>,
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
    #[serde(default)]
    pub(super) buckets: BTreeMap<BucketName, RawBucket>,
}

/// Deserialises the tables of buckets. A table whose name no bucket can have is an error. The bucket need not exist
/// yet.
pub(super) fn deserialize_buckets<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<BTreeMap<BucketName, T>, D::Error> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct AllowedName(BucketName);

    impl<'de> Deserialize<'de> for AllowedName {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let name = BucketName::deserialize(from)?;
            check_bucket(&name).map_err(de::Error::custom)?;
            Ok(Self(name))
        }
    }

    let buckets = BTreeMap::<AllowedName, T>::deserialize(from)?;
    Ok(buckets.into_iter().map(|(AllowedName(name), bucket)| (name, bucket)).collect())
}

/// Checks that a bucket can have this name.
fn check_bucket(name: &BucketName) -> Result<(), String> {
    match name.is_reserved() {
        true => Err(format!("'{name}' is reserved and cannot be a bucket: choose another name")),
        false => Ok(()),
    }
}

/// The settings of a bucket of a domain in a file. A bucket with a type is made at the start if it is missing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBucket {
    #[serde(rename = "type")]
    pub(super) bucket_type: Option<Spanned<BucketType>>,
    pub(super) content_type: Option<Spanned<String>>,
    pub(super) public: Option<Spanned<bool>>,
    pub(super) ttl: Option<Spanned<Span>>,
    pub(super) max_size: Option<Spanned<ByteSize>>,
    pub(super) retention: Option<Spanned<RawRetention>>,
    pub(super) archive: Option<Spanned<RawBucketArchive>>,
    pub(super) generator: Option<Spanned<RawGenerator>>,
}
