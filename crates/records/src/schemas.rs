//! The tables of the service. They are fixed, so that neither a new property nor a new bucket needs the permission to
//! create tables.
//!
//! The rows of a page are in the partition of the page (domain, bucket, title), so that a write of a page is one batch.
//! Further rows of the write are in other partitions, and are written before this batch: chunks of large bodies, and
//! entries of the catalog, the retention queue and the garbage collector.

mod queues;

use std::{num::NonZeroUsize, sync::LazyLock};

use rashomon_tables::{
    ColumnType::{Blob, Int, Text, TimeUuid, Timestamp},
    Direction::{Ascending, Descending},
    PartitionStream, Result, Schema, SchemaBuilder, TableStore,
};

pub use self::queues::{DUE, DUE_CURSORS, PURGE_CURSORS, PURGES};

/// Starts the schema of a table of pages.
fn of_a_page(name: &'static str) -> SchemaBuilder {
    Schema::builder(name).partition("domain", Text).partition("bucket", Text).partition("title", Text)
}

/// Adds the columns of a body.
fn with_body(schema: SchemaBuilder) -> SchemaBuilder {
    schema
        .value("headers", Text)
        .value("size", Int)
        .value("sha1", Blob)
        .value("rewritten_at", Timestamp)
        .value("encoding", Text)
        .value("value", Blob)
}

/// The revisions, the highest first, with their records and their properties (`properties`, JSON). `digest` is the
/// digest of the request that stored the revision. `first_tid` is the tid of the first render. `erased` (JSON) has the
/// time, the client and the reason of an erasure. An erased revision has no properties.
pub static REVISIONS: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revisions")
        .clustering("rev", Int, Descending)
        .value("parent", Int)
        .value("timestamp", Timestamp)
        .value("user", Text)
        .value("comment", Text)
        .value("minor", Int)
        .value("export", Text)
        .value("properties", Text)
        .value("first_tid", TimeUuid)
        .value("stored_at", Timestamp)
        .value("digest", Blob)
        .value("erased", Text)
        .version(2)
        .build()
});

/// The renders, the highest (rev, tid) first, with their properties (JSON), and the times at which they were stored.
/// The first row is the latest. `left_out` is set if the archive's policy did not keep the bodies.
pub static RENDERS: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("renders")
        .clustering("rev", Int, Descending)
        .clustering("tid", TimeUuid, Descending)
        .value("properties", Text)
        .value("stored_at", Timestamp)
        .value("digest", Blob)
        .value("left_out", Int)
        .version(2)
        .build()
});

/// The bodies of the properties of renders.
pub static RENDER_CONTENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("render_content")
            .clustering("property", Text, Ascending)
            .clustering("rev", Int, Descending)
            .clustering("tid", TimeUuid, Descending),
    )
    .build()
});

/// The bodies of the properties of revisions.
pub static REVISION_CONTENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("revision_content")
            .clustering("property", Text, Ascending)
            .clustering("rev", Int, Descending),
    )
    .build()
});

/// The index of revisions by the time of the edit, the newest first. Revisions of the same time are sorted by
/// number, the highest first.
pub static REVISIONS_BY_TIME: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revisions_by_time")
        .clustering("timestamp", Timestamp, Descending)
        .clustering("rev", Int, Descending)
        .build()
});

/// The index of renders by tid. It has the revision of each render.
pub static REVISIONS_BY_TID: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revisions_by_tid").clustering("tid", TimeUuid, Descending).value("rev", Int).build()
});

/// The data of pages from exports (`info`, JSON).
pub static PAGES: LazyLock<Schema> = LazyLock::new(|| of_a_page("pages").value("info", Text).build());

/// The chunk sets that the properties of the page reference, or that they referenced until `released_at`. Earlier
/// readers may still be reading the released sets. A set without a row here is unreferenced. `rev` and `tid`
/// identify the body. Without a `tid`, the body is that of a property of the revision. Without both, the body is in a
/// block of the archive. A released row has no `tid`.
pub static CHUNK_REFERENCES: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("chunk_references")
        .clustering("chunk_set", Blob, Ascending)
        .value("released_at", Timestamp)
        .value("rev", Int)
        .value("tid", TimeUuid)
        .build()
});

/// The chunk sets of the copies of a revision's bodies, including copies that were replaced. An erasure finds the
/// chunks by these rows. A row expires together with the chunks of the copy.
pub static CHUNK_COPIES: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("chunk_copies")
        .clustering("rev", Int, Descending)
        .clustering("chunk_set", Blob, Ascending)
        .value("until", Timestamp)
        .build()
});

/// Copies of the bodies of renders. They are made when a superseded render is read, when a render is generated, and by
/// writes under the strategies whose superseded values expire. The rows expire.
pub static HISTORICAL: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("historical")
            .clustering("rev", Int, Descending)
            .clustering("tid", TimeUuid, Descending)
            .clustering("property", Text, Ascending),
    )
    .build()
});

/// The bodies of the newest render of each revision, for reads by revision under table-per-query. The rows expire.
pub static BY_REV: LazyLock<Schema> = LazyLock::new(|| {
    with_body(of_a_page("by_rev").clustering("rev", Int, Descending).clustering("property", Text, Ascending))
        .value("tid", TimeUuid)
        .build()
});

/// The latest value of each property, one row for each property. Only the strategy table-per-query with the setting
/// `option = "A"` has these rows. Properties of the revision have no `tid`. The rows are written only by
/// compare-and-set, so that the highest (rev, tid) is kept in any order of writes.
pub static CURRENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(of_a_page("current").clustering("property", Text, Ascending))
        .value("rev", Int)
        .value("tid", TimeUuid)
        .swap_only()
        .build()
});

/// The cull watermark of a page. Bodies of revisions below `rev`, and of their renders, were culled if they belong to
/// one of `properties` (JSON) and were written at `written_before` or earlier. The first row is the highest watermark.
/// Further rows exist if the policy was changed to keep more values, if the clock was set back, or if two processes
/// culled the page at once.
pub static CULLED: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("culled")
        .clustering("rev", Int, Descending)
        .value("written_before", Timestamp)
        .value("properties", Text)
        .build()
});

/// The cull watermark of the renders of a revision that itself is kept. The columns have the same meaning as in
/// `culled`, for the renders below `tid`.
pub static CULLED_RENDERS: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("culled_renders")
        .clustering("rev", Int, Descending)
        .clustering("tid", TimeUuid, Descending)
        .value("written_before", Timestamp)
        .value("properties", Text)
        .build()
});

/// The timeline of revisions: a sample of the times at which revisions were superseded. The rows expire.
pub static REVISION_TIMELINE: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revision_timeline").clustering("ts", Timestamp, Descending).value("rev", Int).build()
});

/// The timeline of renders: a sample of the times at which renders were superseded by other renders of their revision.
/// The rows expire.
pub static RENDER_TIMELINE: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("render_timeline")
        .clustering("rev", Int, Descending)
        .clustering("ts", Timestamp, Descending)
        .value("tid", TimeUuid)
        .build()
});

/// The state of the rescan of a bucket. `policy` (JSON) is the retention policy of the current or last rescan. `after`
/// is the last title that an unfinished rescan has processed.
///
/// Values that were stored at `expired_before` or earlier may have expired without a cull watermark, under a strategy
/// that was in effect at that time. At `again_at` the bucket is rescanned once more, for writes that were in progress
/// during the first rescan.
pub static RETENTION_WALKS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("retention_walks")
        .partition("domain", Text)
        .partition("bucket", Text)
        .value("policy", Text)
        .value("after", Text)
        .value("finished_at", Timestamp)
        .value("expired_before", Timestamp)
        .value("again_at", Timestamp)
        .version(3)
        .build()
});

/// The state of the clock, in one row. Nothing was culled at a time later than `reaches`. `set_at` is the time of the
/// last clock jump, by the clock after the jump. The row is written only by compare-and-set.
pub static RETENTION_CLOCK: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("retention_clock")
        .partition("of", Int)
        .value("reaches", Timestamp)
        .value("set_at", Timestamp)
        .swap_only()
        .build()
});

/// The time that the processes of the store have seen pass, in one row: [`crate::Records::adopt_seen_time`].
pub static SEEN_TIME: LazyLock<Schema> =
    LazyLock::new(|| Schema::builder("seen_time").partition("of", Int).value("seen", Timestamp).build());

/// The page leases. If several processes write to the store, conditional writes and changes of stored revisions take
/// a lease. `owner` is a random name, and is absent while the lease is free. The intent consists of `rows` (JSON), the
/// names of the rows that are about to be written, and of their write time `rows_at`. Writes under later leases get a
/// write time after `later_than`. The rows are written only by compare-and-set. Most pages have no row.
pub static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("heads")
        .value("owner", Blob)
        .value("reserved_at", Timestamp)
        .value("rows", Text)
        .value("rows_at", Timestamp)
        .value("later_than", Timestamp)
        .swap_only()
        .build()
});

/// The chunks of large bodies, each a zstd frame.
pub static CHUNKS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("chunks")
        .partition("chunk_set", Blob)
        .clustering("number", Int, Ascending)
        .value("value", Blob)
        .build()
});

/// The chunk sets that the garbage collector has to examine, and deletes if they are unreferenced. Partitioned by the
/// hour at which the entry was written.
pub static CHUNK_SETS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("chunk_sets")
        .partition("hour", Int)
        .clustering("chunk_set", Blob, Ascending)
        .value("domain", Text)
        .value("bucket", Text)
        .value("title", Text)
        .value("noted_at", Timestamp)
        .build()
});

/// The titles of a bucket's pages, distributed over so many shards that none becomes too large. A title is stored
/// before its page is written. A title whose page has no render does not count.
pub static TITLES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("titles")
        .partition("domain", Text)
        .partition("bucket", Text)
        .partition("shard", Int)
        .clustering("title", Text, Ascending)
        .build()
});

/// The domains to which something was written.
pub static DOMAINS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("domains").partition("catalog", Text).clustering("domain", Text, Ascending).build()
});

/// The data of each domain from its newest import (`info`, JSON).
pub static SITE_INFOS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("site_infos")
        .partition("domain", Text)
        .value("info", Text)
        .value("stored_at", Timestamp)
        .build()
});

/// The index of a page in the archive: the blocks that have revisions of the page, the block with the highest revision
/// first.
///
/// Each row has the ranges of the revisions, edit times and renders in the block, and the names of their properties
/// (`properties`, JSON). `generation` is the compaction level, which rises when blocks are compacted into a new block.
/// `left_out` is the number of renders whose bodies the policy did not keep. `kept_at` is the time of the last render
/// whose bodies the policy kept. `positions` has the exact revisions, edit times and renders, where the ranges of
/// several blocks overlap.
pub static ARCHIVE_INDEX: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("archive_index")
        .clustering("last_rev", Int, Descending)
        .clustering("block", Blob, Ascending)
        .value("first_rev", Int)
        .value("first_time", Timestamp)
        .value("last_time", Timestamp)
        .value("first_tid", TimeUuid)
        .value("last_tid", TimeUuid)
        .value("properties", Text)
        .value("revisions", Int)
        .value("renders", Int)
        .value("raw_bytes", Int)
        .value("generation", Int)
        .value("left_out", Int)
        .value("kept_at", Timestamp)
        .value("positions", Blob)
        .version(3)
        .build()
});

/// The compression blocks of the archive, each in a number of pieces (`parts`). A block never changes.
pub static ARCHIVE_BLOCKS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("archive_blocks")
        .partition("domain", Text)
        .partition("bucket", Text)
        .partition("block", Blob)
        .clustering("part", Int, Ascending)
        .value("parts", Int)
        .value("value", Blob)
        .checks_itself()
        .build()
});

/// The blocks that the garbage collector has to examine, and deletes if no page references them. Partitioned by the
/// hour at which the entry was written. `titles` (JSON) lists the pages in the block.
pub static ARCHIVE_NOTES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("archive_notes")
        .partition("hour", Int)
        .clustering("block", Blob, Ascending)
        .value("domain", Text)
        .value("bucket", Text)
        .value("titles", Text)
        .value("noted_at", Timestamp)
        .build()
});

/// The erasure epoch of a bucket, a random value that changes with every erasure. If the epoch changes during
/// a seal or a compaction, the operation fails, and no page references its new block.
pub static ARCHIVE_EPOCHS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("archive_epochs")
        .partition("domain", Text)
        .partition("bucket", Text)
        .value("epoch", Blob)
        .build()
});

/// The erasures in a bucket: the revision, the time, the client and the reason. An erasure is finished if `finished_at`
/// is set. A full compaction after `kept_until` removes the content from the files of the store.
pub static ERASURES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("erasures")
        .partition("domain", Text)
        .partition("bucket", Text)
        .clustering("title", Text, Ascending)
        .clustering("rev", Int, Ascending)
        .value("erased_at", Timestamp)
        .value("by", Text)
        .value("reason", Text)
        .value("finished_at", Timestamp)
        .value("kept_until", Timestamp)
        .build()
});

/// The tokens of clients. `hash` is the SHA-256 of the token, and `grant` (JSON) has its rights, domains and
/// buckets. A token without `valid_until` does not expire.
pub static TOKENS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("tokens")
        .partition("catalog", Text)
        .clustering("id", Text, Ascending)
        .value("hash", Blob)
        .value("grant", Text)
        .value("created_at", Timestamp)
        .value("valid_until", Timestamp)
        .value("note", Text)
        .build()
});

/// The time of the last use of each token. It is not a column of `tokens`, so that a late write of a server cannot
/// restore a revoked token.
pub static TOKEN_USES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("token_uses")
        .partition("catalog", Text)
        .clustering("id", Text, Ascending)
        .value("used_at", Timestamp)
        .build()
});

/// The buckets that were created, with their definitions (JSON). `id` is the random name of the bucket in the keys of
/// its entries. `etag` names the version of the definition. The rows are written only by compare-and-set.
pub static BUCKETS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("buckets")
        .partition("domain", Text)
        .clustering("bucket", Text, Ascending)
        .value("id", Blob)
        .value("definition", Text)
        .value("etag", Blob)
        .value("changed_at", Timestamp)
        .swap_only()
        .build()
});

/// The buckets that are being deleted, whose entries may still be stored. A row is written before the row in `buckets`
/// is deleted. So a row counts only if the row in `buckets` has another `id` or does not exist.
pub static DELETED_BUCKETS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("deleted_buckets")
        .partition("catalog", Text)
        .clustering("id", Blob, Ascending)
        .value("domain", Text)
        .value("bucket", Text)
        .value("deleted_at", Timestamp)
        .build()
});

/// The entries of the buckets of type `blob` and `ordered-blob`, one partition for each. `bucket` is the `id` of the
/// bucket. `indexed_at` is the write time of the row in `entry_keys`.
///
/// A row without an `etag` is a deleted entry. Until this row expires, it tells the next writer the write time of the
/// deleted row in `entry_keys`. The rows are written only by compare-and-set.
pub static BUCKET_ENTRIES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("bucket_entries")
        .partition("bucket", Blob)
        .partition("key", Text)
        .value("etag", Blob)
        .value("modified", Timestamp)
        .value("indexed_at", Timestamp)
        .value("headers", Text)
        .value("size", Int)
        .value("sha1", Blob)
        .value("encoding", Text)
        .value("value", Blob)
        .swap_only()
        .build()
});

/// The keys of a bucket's entries, in order. A key is stored before its entry. A key whose entry does not exist does
/// not count. `part` is the part of the index to which the key belongs.
pub static ENTRY_KEYS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("entry_keys")
        .partition("bucket", Blob)
        .partition("part", Int)
        .clustering("key", Text, Ascending)
        .build()
});

/// The parts of the index of a bucket, by the lowest key that each part may have. A bucket without rows has one part,
/// with the number 0. While a part is being split, `split_at` is the lowest key that moves to the part `new_part`. The
/// rows are written only by compare-and-set.
pub static ENTRY_PARTS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("entry_parts")
        .partition("bucket", Blob)
        .clustering("lowest", Text, Ascending)
        .value("part", Int)
        .value("split_at", Text)
        .value("new_part", Int)
        .swap_only()
        .build()
});

/// The chunk sets of entries that the garbage collector has to examine, and deletes if the entry does not reference
/// them. Partitioned by the hour of `due_at`.
pub static ENTRY_CHUNK_SETS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("entry_chunk_sets")
        .partition("hour", Int)
        .clustering("chunk_set", Blob, Ascending)
        .value("bucket", Blob)
        .value("key", Text)
        .value("due_at", Timestamp)
        .build()
});

/// The counters of the buckets of type `counter`, one partition for each. `bucket` is the `id` of the bucket.
/// `indexed_at` is the write time of the row in `entry_keys`.
///
/// `pending` (JSON) has the idempotency keys of the increments that the last change of the row has counted, with their
/// answers and times. The next change of the row first writes them into `counter_requests`. `kept` (JSON) has the
/// number of the counter's unexpired idempotency keys, by hour.
///
/// A row without a `value` is a deleted counter. Until this row expires, it tells the next writer the write time of the
/// deleted row in `entry_keys`. The rows are written only by compare-and-set.
pub static COUNTERS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("counters")
        .partition("bucket", Blob)
        .partition("key", Text)
        .value("value", Int)
        .value("indexed_at", Timestamp)
        .value("pending", Text)
        .value("kept", Text)
        .swap_only()
        .build()
});

/// The increments of the last 24 hours that had an idempotency key, with their answers. Each row expires 24 hours after
/// the increment. The newest increments of a counter are in the column `pending` of its row instead.
pub static COUNTER_REQUESTS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("counter_requests")
        .partition("bucket", Blob)
        .partition("key", Text)
        .clustering("idempotency_key", Text, Ascending)
        .value("answer", Int)
        .build()
});

/// Returns all tables.
#[must_use]
pub fn all() -> [&'static Schema; 44] {
    [
        &REVISIONS,
        &RENDERS,
        &RENDER_CONTENT,
        &REVISION_CONTENT,
        &REVISIONS_BY_TIME,
        &REVISIONS_BY_TID,
        &PAGES,
        &CHUNK_REFERENCES,
        &CHUNK_COPIES,
        &HISTORICAL,
        &BY_REV,
        &CURRENT,
        &CULLED,
        &CULLED_RENDERS,
        &REVISION_TIMELINE,
        &RENDER_TIMELINE,
        &HEADS,
        &CHUNKS,
        &CHUNK_SETS,
        &TITLES,
        &DOMAINS,
        &SITE_INFOS,
        &DUE,
        &DUE_CURSORS,
        &PURGES,
        &PURGE_CURSORS,
        &RETENTION_WALKS,
        &RETENTION_CLOCK,
        &SEEN_TIME,
        &ARCHIVE_INDEX,
        &ARCHIVE_BLOCKS,
        &ARCHIVE_NOTES,
        &ARCHIVE_EPOCHS,
        &ERASURES,
        &TOKENS,
        &TOKEN_USES,
        &BUCKETS,
        &DELETED_BUCKETS,
        &BUCKET_ENTRIES,
        &ENTRY_KEYS,
        &ENTRY_PARTS,
        &ENTRY_CHUNK_SETS,
        &COUNTERS,
        &COUNTER_REQUESTS,
    ]
}

/// Returns the tables whose partitions are pages.
pub fn of_pages() -> impl Iterator<Item = &'static Schema> {
    with_partition(&["domain", "bucket", "title"])
}

/// Returns the tables whose partitions are buckets of pages.
pub fn of_page_buckets() -> impl Iterator<Item = &'static Schema> {
    with_partition(&["domain", "bucket"])
}

fn with_partition(names: &'static [&'static str]) -> impl Iterator<Item = &'static Schema> {
    all()
        .into_iter()
        .filter(|table| table.partition().iter().map(|column| column.name).eq(names.iter().copied()))
}

/// Whether a table has a row.
pub async fn has_rows(store: &dyn TableStore, table: &'static Schema) -> Result<bool> {
    Ok(PartitionStream::new(store, table, NonZeroUsize::MIN).next().await?.is_some())
}
