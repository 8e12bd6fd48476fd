//! The trait that every store implements.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Batch, Cursor, Decorator, Generations, Key, Outage, Page, Partition, Result, Row, Scan, Schema, Swap,
};

/// A store of tables.
///
/// All calls may be made from many tasks at once. Errors say what to do, see [`crate::Error`]. A table
/// has to be created before any other call names it, else that is `Invalid`. Values and batches are bounded by
/// [`crate::MAX_VALUE_BYTES`] and [`crate::MAX_BATCH_BYTES`]; what is larger is `Invalid`.
///
/// Rows whose `expires_at` has come are invisible, to the microsecond, by the clock that the store was given.
/// Reads of two rows or two tables are not one snapshot.
#[async_trait]
pub trait TableStore: Debug + Send + Sync + 'static {
    /// Makes the table, durably. Doing it again with the same schema does nothing. With another schema of a
    /// higher version that adds value columns at the end the table is changed, and old rows have `None`
    /// there; any other difference is `Unsupported`, and changes nothing.
    async fn create(&self, schema: &'static Schema) -> Result<()>;

    /// The row under `key`, as the last acknowledged write left it.
    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>>;

    /// Rows of one partition in clustering order, bounded by the scan's limits, with a cursor to go on from.
    ///
    /// Through all pages of a scan, a row that stands throughout is seen exactly once; one that is written or
    /// deleted meanwhile may be seen or not.
    ///
    /// A damaged row makes the call `Corrupt`, unless [`Scan::on_damage`] says that damaged rows are reported
    /// beside the others. Damage of the order of rows, or of what holds them together, is always `Corrupt`.
    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>>;

    /// Every partition that has a visible row, once, in no promised order: for export, verification and
    /// migration. A damaged row counts as visible: a scan of the partition reports it.
    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>>;

    /// Applies each batch whole or not at all. `then` is applied only when all of `first` (in any order, side
    /// by side) are. Returning means that all of it is durable.
    ///
    /// After `Unavailable` any part of that may have happened, each batch whole; the same call may be made
    /// again. `Invalid` means that nothing was changed.
    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()>;

    /// Compares and sets one row of a table that is declared swap-only: where the row's values are those of
    /// `expected` (`None`: no visible row), it becomes `new` (`None`: none). Durable on return.
    ///
    /// `expected` and `new`, where given, are rows under `key`. The store stamps the write itself, so that
    /// swaps of one row follow one another; the `written_at` given is not looked at. Without an expiry of its
    /// own the new row has the table's default.
    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap>;

    /// Sees to it that what was deleted or overwritten until now is in none of the store's files. `Some`: they keep
    /// what is deleted for so long, and lose it when they are compacted after that. May take as long as writing all
    /// that is stored.
    async fn scrub(&self) -> Result<Option<Duration>>;

    /// For how long after it failed a write may still take effect by itself, such as by a hint that a node of a cluster
    /// keeps for another one. Within that time a read of all replicas does not show that the write will never take
    /// effect. Zero: a write that failed takes effect during the call or never.
    async fn late_write_window(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// The generations of its partitions, where this process alone writes to the store; else `None`, and
    /// nothing may be kept in memory.
    fn generations(&self) -> Option<&Generations> {
        None
    }

    /// Why writes fail at present, where the store knows: a write failed because of a disk, and the store has not
    /// yet written by itself again, which it tries without being asked. `None`: as far as it knows, writes succeed.
    fn outage(&self) -> Option<Outage> {
        None
    }
}

/// A shared store is a store.
impl<S: TableStore + ?Sized> Decorator for Arc<S> {
    type Store = S;

    fn below(&self) -> &S {
        self
    }
}
