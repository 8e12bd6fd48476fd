//! The JSON documents of key-value buckets.

use rashomon_entries::Definition;
use serde::Serialize;
use utoipa::ToSchema;

/// The definition of a bucket, with its defaults.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Bucket)]
pub(crate) struct BucketJson<'a> {
    /// The type: `blob`, `ordered-blob`, `counter` or `revisioned`.
    #[serde(rename = "type")]
    bucket_type: &'static str,
    /// The content type of entries that are stored without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    content_type: Option<&'a str>,
    /// Whether every reader of the domain's pages may read the entries or counters. No effect for the type `revisioned`.
    public: bool,
    /// The number of seconds from the last PUT of an entry until it expires; absent if entries do not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ttl: Option<u64>,
    /// The maximum size of a body, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    max_size: Option<u64>,
}

/// Makes the document of a definition, whose defaults are filled in.
pub(crate) fn bucket(filled: &Definition) -> BucketJson<'_> {
    let Definition { bucket_type, content_type, public, ttl, max_size } = filled;
    BucketJson {
        bucket_type: bucket_type.as_str(),
        content_type: content_type.as_deref(),
        public: *public,
        ttl: *ttl,
        max_size: *max_size,
    }
}

/// A bucket in the list of a domain.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BucketSummary)]
pub(crate) struct BucketSummaryJson {
    /// The name.
    pub name: String,
    /// The type: `blob`, `ordered-blob`, `counter` or `revisioned`.
    #[serde(rename = "type")]
    pub bucket_type: &'static str,
}

/// An entry in the list of a bucket.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntrySummary)]
pub(crate) struct EntrySummaryJson {
    /// The key.
    pub key: String,
    /// The content type.
    pub content_type: String,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The entity tag, with its quotes.
    pub etag: String,
    /// The time of the last PUT.
    #[schema(format = DateTime)]
    pub modified: String,
}

/// A counter in the list of a bucket.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CounterSummary)]
pub(crate) struct CounterSummaryJson {
    /// The key.
    pub key: String,
    /// The value.
    pub value: i64,
}

/// An item in the list of a bucket: an entry, or a counter if the bucket has the type `counter`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Listed)]
#[serde(untagged)]
pub(crate) enum ListItemJson {
    /// An entry.
    Entry(EntrySummaryJson),
    /// A counter.
    Counter(CounterSummaryJson),
}

/// The value of a counter.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Counter)]
pub(crate) struct CounterJson {
    /// The value: 0 for a key that was never incremented.
    pub value: i64,
}

/// The entries of a bucket.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EntryList)]
pub(crate) struct EntryListJson {
    /// The entries.
    pub entries: Vec<ListItemJson>,
    /// The query of the next entries, relative to the list; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next: Option<String>,
}

/// The buckets of a domain that the client may read, by name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BucketList)]
pub(crate) struct BucketListJson {
    /// The buckets.
    pub buckets: Vec<BucketSummaryJson>,
    /// The query of the next buckets, relative to the list; absent at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next: Option<String>,
}
