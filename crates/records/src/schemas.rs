//! The tables that buckets stand on: fixed, so that neither a new property nor a new bucket needs the right
//! to make one.
//!
//! All that is stored of a page is in its partition (domain, bucket, title), so that a write of it is one
//! batch. What lives elsewhere is an intent, written before it, or a chunk of a large body, written before it.

use std::{num::NonZeroUsize, sync::LazyLock};

use rashomon_tables::{
    ColumnType::{Blob, Int, Text, TimeUuid, Timestamp},
    Direction::{Ascending, Descending},
    PartitionStream, Result, Schema, SchemaBuilder, TableStore,
};

fn of_a_page(name: &'static str) -> SchemaBuilder {
    Schema::builder(name).partition("domain", Text).partition("bucket", Text).partition("title", Text)
}

fn with_body(schema: SchemaBuilder) -> SchemaBuilder {
    schema
        .value("headers", Text)
        .value("size", Int)
        .value("sha1", Blob)
        .value("rewritten_at", Timestamp)
        .value("encoding", Text)
        .value("value", Blob)
}

/// Revisions, the highest first: what is known of each, and what its own properties are (`properties`, JSON).
/// `digest` is of the request that made it, `first_tid` of its first render. `erased` (JSON) says when its content
/// was erased, and by whom: then it has no properties.
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

/// Renders, the highest (rev, tid) first: when each was stored, and what its own properties are (JSON).
/// The first row is the latest. `left_out` where the policy of the archive did not keep the bodies.
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

/// The bodies of properties that a render has.
pub static RENDER_CONTENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("render_content")
            .clustering("property", Text, Ascending)
            .clustering("rev", Int, Descending)
            .clustering("tid", TimeUuid, Descending),
    )
    .build()
});

/// The bodies of properties that a revision has.
pub static REVISION_CONTENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("revision_content")
            .clustering("property", Text, Ascending)
            .clustering("rev", Int, Descending),
    )
    .build()
});

/// Revisions by the time of the edit, the newest first; of one time the highest first.
pub static REVISIONS_BY_TIME: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revisions_by_time")
        .clustering("timestamp", Timestamp, Descending)
        .clustering("rev", Int, Descending)
        .build()
});

/// The way from a tid to its revision.
pub static REVISIONS_BY_TID: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revisions_by_tid").clustering("tid", TimeUuid, Descending).value("rev", Int).build()
});

/// What an export says of a page (`info`, JSON).
pub static PAGES: LazyLock<Schema> = LazyLock::new(|| of_a_page("pages").value("info", Text).build());

/// The chunk sets that the properties of the page reference, and those that they referenced until `released_at`, which
/// earlier readers may still be reading. A set without a row here is unreferenced. `rev` and `tid` identify the body;
/// without a `tid`, it is a property of the revision.
pub static CHUNK_REFERENCES: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("chunk_references")
        .clustering("chunk_set", Blob, Ascending)
        .value("released_at", Timestamp)
        .value("rev", Int)
        .value("tid", TimeUuid)
        .build()
});

/// The chunk sets that copies of a revision's bodies have, or had until others took their place: by these what is
/// erased is found. Expires with the copy.
pub static CHUNK_COPIES: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("chunk_copies")
        .clustering("rev", Int, Descending)
        .clustering("chunk_set", Blob, Ascending)
        .value("until", Timestamp)
        .build()
});

/// Renders that somebody asked for after they were superseded, or that were made because somebody asked: whole,
/// with the properties of their revisions, until they expire.
pub static HISTORICAL: LazyLock<Schema> = LazyLock::new(|| {
    with_body(
        of_a_page("historical")
            .clustering("rev", Int, Descending)
            .clustering("tid", TimeUuid, Descending)
            .clustering("property", Text, Ascending),
    )
    .build()
});

/// The newest render of each revision, as long as it is kept, where table-per-query looks things up by
/// revision. Expires.
pub static BY_REV: LazyLock<Schema> = LazyLock::new(|| {
    with_body(of_a_page("by_rev").clustering("rev", Int, Descending).clustering("property", Text, Ascending))
        .value("tid", TimeUuid)
        .build()
});

/// The latest value of each property under option A of table-per-query, which has one row for it. Properties of the
/// revision have no `tid`. Written by compare-and-set only, so that the highest (rev, tid) stays in any order of writes.
pub static CURRENT: LazyLock<Schema> = LazyLock::new(|| {
    with_body(of_a_page("current").clustering("property", Text, Ascending))
        .value("rev", Int)
        .value("tid", TimeUuid)
        .swap_only()
        .build()
});

/// How far the page has been culled: of the revisions below `rev` and their renders the bodies of those
/// `properties` (JSON) have gone that were written at `written_before` or earlier. The first row says most;
/// there are more for a moment, where two culled at once.
pub static CULLED: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("culled")
        .clustering("rev", Int, Descending)
        .value("written_before", Timestamp)
        .value("properties", Text)
        .build()
});

/// The same of the renders of a revision that stays: of those below `tid`.
pub static CULLED_RENDERS: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("culled_renders")
        .clustering("rev", Int, Descending)
        .clustering("tid", TimeUuid, Descending)
        .value("written_before", Timestamp)
        .value("properties", Text)
        .build()
});

/// Revisions by the time at which they were superseded, as far as it was noted: a sample. Expires.
pub static REVISION_TIMELINE: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("revision_timeline").clustering("ts", Timestamp, Descending).value("rev", Int).build()
});

/// Renders by the time at which another of their revision superseded them: a sample. Expires.
pub static RENDER_TIMELINE: LazyLock<Schema> = LazyLock::new(|| {
    of_a_page("render_timeline")
        .clustering("rev", Int, Descending)
        .clustering("ts", Timestamp, Descending)
        .value("tid", TimeUuid)
        .build()
});

/// When a page must be looked at for what is to be culled, by the hour and spread over shards. An intent: noted
/// before the write, at the time `at`, of the revisions from `lowest` to `rev` that supersedes something. Where
/// it may be about renders that are not the newest of theirs, it is to be `thorough`. Never deleted one by
/// one: it expires.
pub static DUE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("due")
        .partition("hour", Int)
        .partition("shard", Int)
        .clustering("due_at", Timestamp, Ascending)
        .clustering("domain", Text, Ascending)
        .clustering("bucket", Text, Ascending)
        .clustering("title", Text, Ascending)
        .clustering("rev", Int, Ascending)
        .value("lowest", Int)
        .value("at", Timestamp)
        .value("thorough", Int)
        .value("again", Int)
        .build()
});

/// Up to when a shard of `due` has been worked off.
pub static DUE_CURSORS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("due_cursors").partition("shard", Int).value("done_until", Timestamp).build()
});

/// What a bucket's retention was when all that stood there was last noted as due (`policy`, JSON), or up to
/// which title that has come (`after`). What was stored at `expired_before` or earlier may have expired without
/// anybody's writing it down, by a strategy that was in effect then. At `again_at` all is looked through once more,
/// for what was under way when that was done first.
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

/// How the clock has gone, in one row: nothing was culled at a time later than `reaches`, and at `set_at`, by the
/// time that it was set to, somebody set it last. Swapped only.
pub static RETENTION_CLOCK: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("retention_clock")
        .partition("of", Int)
        .value("reaches", Timestamp)
        .value("set_at", Timestamp)
        .swap_only()
        .build()
});

/// Who is writing the page on a condition, where several processes may: `owner` is random, and absent where
/// nobody is. `rows` (JSON) names the rows that are being written, at the time `rows_at`; what is written under
/// a later reservation is later than `later_than`. Swapped only; most pages have no row.
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

/// The pieces of large bodies, each a zstd frame.
pub static CHUNKS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("chunks")
        .partition("chunk_set", Blob)
        .clustering("number", Int, Ascending)
        .value("value", Blob)
        .build()
});

/// Chunk sets that somebody must look at: is it named by then, or is it nobody's? By the hour they were noted.
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

/// The titles of a bucket's pages, in so many shards that none grows too large. An intent: a title whose page
/// has no render is none.
pub static TITLES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("titles")
        .partition("domain", Text)
        .partition("bucket", Text)
        .partition("shard", Int)
        .clustering("title", Text, Ascending)
        .build()
});

/// The domains that something was written to.
pub static DOMAINS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("domains").partition("catalog", Text).clustering("domain", Text, Ascending).build()
});

/// What the newest import said of a domain (`info`, JSON).
pub static SITE_INFOS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("site_infos")
        .partition("domain", Text)
        .value("info", Text)
        .value("stored_at", Timestamp)
        .build()
});

/// Which blocks of the archive have revisions of the page, those with the highest first: which revisions, times
/// of edits and renders, and the names of their properties (`properties`, JSON). `generation` rises when a block
/// is rewritten from others; `left_out` counts the renders whose bodies the policy did not keep, and `kept_at` is when
/// the last that it kept was made.
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
        .version(2)
        .build()
});

/// The compression blocks of the archive, each in so many pieces (`parts`). Never changed.
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

/// Blocks that somebody must look at: is one named by a page by then, or is it nobody's? By the hour they were
/// noted, with the pages that it is of (`titles`, JSON).
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

/// Changes with every erasure in a bucket, so that a seal or a compaction starts again. `epoch` is random.
pub static ARCHIVE_EPOCHS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("archive_epochs")
        .partition("domain", Text)
        .partition("bucket", Text)
        .value("epoch", Blob)
        .build()
});

/// What was erased of a bucket, when and by whom: done, where it is `finished_at` some time. The files of the store
/// may have it until `kept_until`.
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

/// All of them.
#[must_use]
pub fn all() -> [&'static Schema; 31] {
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
        &RETENTION_WALKS,
        &RETENTION_CLOCK,
        &ARCHIVE_INDEX,
        &ARCHIVE_BLOCKS,
        &ARCHIVE_NOTES,
        &ARCHIVE_EPOCHS,
        &ERASURES,
    ]
}

/// Whether there is any row in a table.
pub async fn has_rows(store: &dyn TableStore, table: &'static Schema) -> Result<bool> {
    Ok(PartitionStream::new(store, table, NonZeroUsize::MIN).next().await?.is_some())
}
