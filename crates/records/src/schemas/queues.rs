//! The tables of the queues, and of the cursors that say how far a queue was processed.

use std::sync::LazyLock;

use rashomon_tables::{
    ColumnType::{Int, Text, Timestamp},
    Direction::Ascending,
    Schema,
};

/// The retention queue: the times at which pages have to be examined for bodies to cull. Partitioned by hour and shard.
///
/// A queue entry is written before a write that supersedes values. The write contains the revisions from `lowest` to
/// `rev`, and supersedes values at `at` or earlier. `thorough` is set if the write may contain renders that are not the
/// newest of their revisions. `again` is set on the last check for the write. Queue entries are not deleted one by one.
/// They expire.
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

/// The time up to which a shard of `due` has been processed.
pub static DUE_CURSORS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("due_cursors").partition("shard", Int).value("done_until", Timestamp).build()
});

/// The purge queue: changes whose answers HTTP caches have to delete. Partitioned by hour and shard.
///
/// An entry is written before or with its change, at `queued_at`. `id` is random. `change` (JSON) describes the change
/// in the bucket. Entries are not deleted one by one. They expire.
pub static PURGES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("purges")
        .partition("hour", Int)
        .partition("shard", Int)
        .clustering("queued_at", Timestamp, Ascending)
        .clustering("id", Int, Ascending)
        .value("domain", Text)
        .value("bucket", Text)
        .value("change", Text)
        .build()
});

/// The time up to which an HTTP cache has acknowledged all purges of a shard of `purges`.
pub static PURGE_CURSORS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("purge_cursors")
        .partition("cache", Text)
        .clustering("shard", Int, Ascending)
        .value("done_until", Timestamp)
        .build()
});
