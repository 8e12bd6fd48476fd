//! The trait that every store implements.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Batch, Cursor, Decorator, Key, Outage, Page, Partition, PartitionVersions, Read, Result, Row, Scan,
    Schema, Swap, Walk, WalkPage,
};

/// A store of tables.
///
/// Many tasks may call a store at once. The kind of an error says how the caller has to react, see
/// [`crate::Error`]. A call is `Invalid` if it names a table that was not created, if it does not fit the schema of the
/// table, or if it breaks a rule of [`Batch`] or [`Swap::check`].
///
/// A row is invisible from its `expires_at` on, to the microsecond, by the clock of the store. After a jump of this
/// clock, the row stays visible until the time from its write to its expiry has certainly passed, see
/// [`rashomon_clock::PassedTime`]. Reads of two rows or of two tables do not form a snapshot.
#[async_trait]
pub trait TableStore: Debug + Send + Sync + 'static {
    /// Creates the table durably. Does nothing if a table with the same schema exists. `Unsupported` if a table
    /// of this name exists with another schema; the table is then not changed. If the schema only has further value
    /// columns at the end, a command of the operator can add them to a durable table, and the error names the command.
    async fn create(&self, schema: &'static Schema) -> Result<()>;

    /// Reads the row under `key`. The answer includes all acknowledged writes.
    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>>;

    /// Reads a result page: rows of one partition in the order of the scan, up to the limits of the scan, and the
    /// cursor of the next result page.
    ///
    /// Over all result pages of a scan, each row that exists during the whole scan is returned exactly once. A row
    /// that is written or deleted meanwhile may be returned or not.
    ///
    /// A damaged row makes the call `Corrupt`, unless [`Scan::on_damage`] says that damaged rows are
    /// reported. If the key of a row cannot be decoded, or if the structure around the rows is damaged, the call is
    /// always `Corrupt`.
    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>>;

    /// Answers several reads of one partition, in their order. A store that can sends them together, and answers them from
    /// one snapshot.
    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        let mut pages = Vec::with_capacity(reads.len());
        for read in reads {
            pages.push(read.answer(self).await?);
        }
        Ok(pages)
    }

    /// Reads a result page of the list of partitions. Over all result pages, each partition that has a visible row
    /// during the whole time is listed exactly once, in an unspecified order. Exports, verification and migration use
    /// this. A damaged row counts as visible; a scan of its partition reports it.
    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>>;

    /// Reads a result page of a walk: rows of several tables with the same partition columns, partition by partition, up
    /// to the limits of the walk, and the cursor of the next result page. A store reads them as it has them, so a walk
    /// through all rows costs less than the scans of all partitions.
    ///
    /// The order of the partitions is unspecified, unless the walk begins at a partition. All rows of a partition come
    /// one after the other, also over result pages, and among them the rows of each table, in the order of the table.
    /// As with [`TableStore::scan`], each row that exists during the whole walk is returned exactly once over all
    /// result pages, and damaged rows are reported in the same way.
    async fn walk(&self, walk: Walk) -> Result<WalkPage>;

    /// Applies batches, each completely or not at all. The batches of `first` are applied in any order, or at the
    /// same time. `then` is applied only after all batches of `first`. When this returns successfully, all batches
    /// are durable.
    ///
    /// After `Unavailable`, some of the batches may have been applied, each of them completely. The same call may
    /// be repeated. `Invalid` means that nothing was changed.
    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()>;

    /// Applies the batches of `first`, as [`TableStore::write`] does. Then compares and sets one row of a
    /// swap-only table: if the values of the row are those of `expected`, the row becomes `new`. For `expected`,
    /// `None` means that there is no visible row. For `new`, `None` means that the row is deleted. When this
    /// returns successfully, all batches and the row are durable.
    ///
    /// The batches are applied even if the swap is refused. The new row becomes visible only after all batches of
    /// its call, also after a crash. After `Unavailable` or `Corrupt`, some of the batches may have been applied,
    /// each of them completely. After `Unavailable`, the swap may have taken effect or not. `Invalid` means that
    /// nothing was changed, neither by a batch nor by the swap.
    ///
    /// `expected` and `new` are rows under `key`. The store ignores the `written_at` of `new`, and sets a write time
    /// that is later than that of the row that `new` replaces. If `new` has no expiry time, the default time to live
    /// of the table applies.
    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap>;

    /// Removes deleted and overwritten data from the store's files. May take as long as writing all stored data.
    ///
    /// Returns `None` if the files have no data that was deleted or overwritten before this call. Returns `Some` if
    /// such data may be left: a full compaction after this time removes it.
    async fn scrub(&self) -> Result<Option<Duration>>;

    /// Returns how long after its failure a write may still take effect, for example by a hint that a node of a
    /// cluster keeps for another node. Within this time, a read of all replicas cannot prove that the write will
    /// never take effect. Zero means that a failed write takes effect during the call or never.
    async fn late_write_window(&self) -> Result<Duration>;

    /// Returns the partition versions. `None` if other processes may write to the store; no values may then be
    /// cached in memory.
    fn partition_versions(&self) -> Option<&PartitionVersions>;

    /// Returns the reason why writes fail at present. `None` if writes succeed, as far as the store knows.
    ///
    /// A write that fails because of a disk sets the reason. The store then tests the disk at intervals, without a
    /// call. The first successful test removes the reason.
    fn outage(&self) -> Option<Outage>;
}

/// A shared store is a store.
#[async_trait]
impl<S: TableStore + ?Sized> Decorator for Arc<S> {
    type Store = S;

    fn below(&self) -> &S {
        self
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        (**self).read(reads).await
    }
}
