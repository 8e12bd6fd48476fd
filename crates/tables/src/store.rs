//! The trait that every store implements.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Batch, Cursor, Decorator, Key, Outage, Page, Partition, PartitionVersions, Result, Row, Scan, Schema,
    Swap,
};

/// A store of tables.
///
/// Many tasks may call a store at once. The kind of an error says what to do, see [`crate::Error`]. A call
/// that names a table before it was created is `Invalid`. So is a value above [`crate::MAX_VALUE_BYTES`], and
/// a batch above [`crate::MAX_BATCH_BYTES`].
///
/// A row is invisible from its `expires_at` on, to the microsecond, by the clock of the store. Reads of two
/// rows or of two tables do not form a snapshot.
#[async_trait]
pub trait TableStore: Debug + Send + Sync + 'static {
    /// Creates the table, durably. If a table with the same schema exists, this does nothing. Any difference is
    /// `Unsupported`, and changes nothing. A table whose schema has fewer value columns at the end gets them
    /// only by a command of the operator, which the error names.
    async fn create(&self, schema: &'static Schema) -> Result<()>;

    /// Reads the row under `key`, as the last acknowledged write left it.
    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>>;

    /// Reads rows of one partition in clustering order, up to the limits of the scan, and returns the cursor
    /// of the next page.
    ///
    /// Over all pages of a scan, a row that exists throughout is returned exactly once. A row that is written
    /// or deleted meanwhile may be returned or not.
    ///
    /// A damaged row makes the call `Corrupt`, unless [`Scan::on_damage`] says that damaged rows are
    /// reported. If the order of the rows or the structure around them is damaged, the call is always
    /// `Corrupt`.
    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>>;

    /// Lists every partition that has a visible row, once, in no promised order: for export, verification and
    /// migration. A damaged row counts as visible: a scan of the partition reports it.
    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>>;

    /// Applies each batch whole or not at all. The batches of `first` are applied in any order, or at the
    /// same time. `then` is applied only after all of `first`. When this returns, all batches are durable.
    ///
    /// After `Unavailable` some of the batches may have been applied, each of them whole. The same call may
    /// be repeated. `Invalid` means that nothing was changed.
    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()>;

    /// Applies the batches of `first`, as [`TableStore::write`] does. Then compares and sets one row of a
    /// swap-only table: if the row's values are those of `expected` (`None`: no visible row), the row becomes
    /// `new` (`None`: no row). When this returns, all batches and the row are durable.
    ///
    /// The batches are applied even if the swap is refused. The new row becomes visible only after all
    /// batches of its call, also in a crash. After `Unavailable` or `Corrupt`, some of the batches may have
    /// been applied, each of them whole, and after `Unavailable` the swap may have taken effect or not.
    /// `Invalid` means that nothing was changed, neither by a batch nor by the swap.
    ///
    /// `expected` and `new` are rows under `key`. The store sets the write time itself and ignores the
    /// `written_at` of `new`, so each swap of a row is later than the one before. If `new` has no expiry, the
    /// default of the table applies.
    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap>;

    /// Removes deleted and overwritten data from the store's files. `None`: the files hold nothing that was
    /// deleted or overwritten before this call. `Some`: such data may be left, and a full compaction after
    /// this time removes it. May take as long as writing all stored data.
    async fn scrub(&self) -> Result<Option<Duration>>;

    /// How long a failed write may still take effect by itself, such as by a hint that a node of a cluster
    /// keeps for another one. Within this time, a read of all replicas cannot prove that the write will never
    /// take effect. Zero: a failed write takes effect during the call or never.
    async fn late_write_window(&self) -> Result<Duration>;

    /// The partition versions, if only this process writes to the store. Otherwise `None`, and nothing may be
    /// cached in memory.
    fn partition_versions(&self) -> Option<&PartitionVersions>;

    /// Why writes fail at present: a write failed because of a disk, and the store has not written
    /// successfully since. The store retries by itself, without a call. `None`: as far as the store knows,
    /// writes succeed.
    fn outage(&self) -> Option<Outage>;
}

/// A shared store is a store.
impl<S: TableStore + ?Sized> Decorator for Arc<S> {
    type Store = S;

    fn below(&self) -> &S {
        self
    }
}
