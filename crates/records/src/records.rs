//! Access to the rows of pages.

use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{
    ClusteringRange, Cursor, Key, Page as ResultPage, PartitionStream, Read, Row, RowStream, Scan, Schema,
    TableStore, Value,
};
use tokio::sync::OnceCell;

use crate::{
    Catalog, Definitions, Locks, Page, PropertyName, PropertySink, Result, Revision, Staged, Tid,
    content::ChunkStore,
    rows::{RenderRow, RevisionRow, partition_of, render_key, rev_key},
    schemas::{RENDERS, REVISIONS},
};

/// The number of index rows in a result page.
pub const INDEX_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// The rows of all pages, and everything that the service needs to read and write them.
#[derive(Debug)]
pub struct Records {
    /// The store of the rows. With an archive, this is the union store, which also has the rows in blocks.
    pub store: Arc<dyn TableStore>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The catalog of domains and pages.
    pub catalog: Catalog,
    /// The chunks of large bodies.
    pub chunks: Arc<ChunkStore>,
    /// Locks of pages and revisions, within this process.
    pub locks: Locks,
    /// The definitions of properties.
    pub definitions: Definitions,
    /// The maximum difference between the clocks of two processes.
    pub skew: Duration,
    /// Whether changes queue purges of HTTP caches.
    pub queues_purges: bool,
    pub(crate) seen_time_is_adopted: OnceCell<()>,
    /// The stored time that processes saw pass, in microseconds, as this process knows it.
    pub(crate) stored_seen_time: AtomicI64,
}

/// A read of the first row of a page in a range of a table.
#[must_use]
pub fn first_of(table: &'static Schema, page: &Page, range: ClusteringRange) -> Read {
    Read::first(table, partition_of(page), range)
}

/// A read of one row of a page.
#[must_use]
pub fn row_of(table: &'static Schema, page: &Page, clustering: Vec<Value>) -> Read {
    Read::Get(table, Key::new(partition_of(page), clustering))
}

impl Records {
    /// Creates the records of a store. `union` is the union store, if there is an archive. `seed` is a random number,
    /// and differs between processes.
    #[must_use]
    pub fn new(
        store: Arc<dyn TableStore>,
        union: Option<Arc<dyn TableStore>>,
        clock: Arc<dyn Clock>,
        definitions: Definitions,
        skew: Duration,
        seed: u64,
    ) -> Self {
        Self {
            catalog: Catalog::new(Arc::clone(&store), Arc::clone(&clock)),
            chunks: Arc::new(ChunkStore::new(Arc::clone(&store), Arc::clone(&clock), seed)),
            locks: Locks::new(),
            store: union.unwrap_or(store),
            seen_time_is_adopted: OnceCell::new(),
            stored_seen_time: AtomicI64::new(i64::MIN),
            clock,
            definitions,
            skew,
            queues_purges: false,
        }
    }

    /// Returns the same records, with the setting whether changes queue purges.
    #[must_use]
    pub fn with_purges(self, queues_purges: bool) -> Self {
        Self { queues_purges, ..self }
    }

    /// Whether only this process writes to the store. If so, locks within the process are enough, and the outcome of a
    /// write is known when the write returns.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.store.partition_versions().is_some()
    }

    /// Returns the latest timestamp that a request may have: `skew` after now.
    #[must_use]
    pub fn latest_time(&self) -> Timestamp {
        self.clock.now().saturating_add(self.skew)
    }

    /// How far a write time may be before the current time. Writes under a page lease get early write times.
    #[must_use]
    pub fn max_write_time_lag(&self) -> Duration {
        if self.is_alone() { Duration::ZERO } else { self.skew }
    }

    /// Returns the time up to which the garbage collector may process its entries: the time that has certainly passed,
    /// minus `age` and minus the late write window of the store. A batch that references the chunks or the block of an
    /// entry is sent before the entry has this age. After the window, a failed batch has taken effect or never will.
    pub async fn entries_before(&self, age: Duration) -> Result<Timestamp> {
        let window = self.store.late_write_window().await?;
        let age = age.saturating_add(window);
        Ok(self.clock.passed().after(age).saturating_sub(age))
    }

    /// Returns a write time for a row that was last written at `written_at`.
    #[must_use]
    pub fn write_time_after(&self, written_at: Timestamp) -> Timestamp {
        self.clock.now().max(written_at.just_after())
    }

    /// Returns bits that no other call returns, in this process and in other processes.
    #[must_use]
    pub fn distinction(&self) -> u64 {
        self.chunks.distinction() as u64
    }

    /// Reads a row of a page.
    pub async fn get(
        &self,
        table: &'static Schema,
        page: &Page,
        clustering: Vec<Value>,
    ) -> Result<Option<Row>> {
        Ok(self.store.get(table, &Key::new(partition_of(page), clustering)).await?)
    }

    /// Answers several reads of one page together, each with its first row. See [`first_of`] and [`row_of`].
    pub async fn first_rows<const N: usize>(&self, reads: [Read; N]) -> Result<[Option<Row>; N]> {
        let mut pages = self.store.read(reads.into()).await?.into_iter();
        Ok(std::array::from_fn(|_| pages.next().and_then(|page| page.items.into_iter().next())))
    }

    /// Reads a result page of a scan.
    pub async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<ResultPage<Row>> {
        Ok(self.store.scan(table, scan).await?)
    }

    /// Reads a result page of a scan, and skips damaged rows. Damaged rows are logged, and listed in the result.
    pub async fn scan_beside_damage(&self, table: &'static Schema, scan: Scan) -> Result<ResultPage<Row>> {
        let rows = self.store.scan(table, scan.reporting_damage()).await?;
        self.catalog.damage.record(table, &rows.damaged);
        Ok(rows)
    }

    /// Returns a stream of all rows of a scan.
    pub fn rows(&self, table: &'static Schema, scan: Scan) -> RowStream<'_> {
        RowStream::new(&*self.store, table, scan)
    }

    /// Returns a stream of all partitions of a table, which reads `limit` partitions at a time.
    pub fn partitions(&self, table: &'static Schema, limit: NonZeroUsize) -> PartitionStream<'_> {
        PartitionStream::new(&*self.store, table, limit)
    }

    /// Reads the first row of a range, in the order of the table.
    pub async fn first(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
    ) -> Result<Option<Row>> {
        let scan = Scan::new(partition_of(page), NonZeroUsize::MIN).range(range);
        Ok(self.scan(table, scan).await?.items.into_iter().next())
    }

    /// Reads the next rows of a page in a table, for a loop over all rows. Returns `None` at the end. `after` has to be
    /// `None` before the first call. Damaged rows are logged and skipped.
    pub async fn next_rows(
        &self,
        table: &'static Schema,
        page: &Page,
        after: &mut Option<Option<Cursor>>,
    ) -> Result<Option<Vec<Row>>> {
        let cursor = match after.take() {
            Some(None) => {
                *after = Some(None);
                return Ok(None);
            }
            Some(cursor) => cursor,
            None => None,
        };
        let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).after(cursor);
        let rows = self.scan_beside_damage(table, scan).await?;
        *after = Some(rows.next);
        Ok(Some(rows.items))
    }

    /// Reads the row of a revision.
    pub async fn revision(&self, page: &Page, rev: Revision) -> Result<Option<RevisionRow>> {
        let row = self.get(&REVISIONS, page, rev_key(rev)).await?;
        row.as_ref().map(RevisionRow::from_row).transpose()
    }

    /// Reads the row of a render.
    pub async fn render(&self, page: &Page, rev: Revision, tid: Tid) -> Result<Option<RenderRow>> {
        let row = self.get(&RENDERS, page, render_key(rev, tid)).await?;
        row.as_ref().map(RenderRow::from_row).transpose()
    }

    /// Whether the content of a revision was erased. No content can be written to such a revision.
    pub async fn is_erased(&self, page: &Page, rev: Revision) -> Result<bool> {
        Ok(self.revision(page, rev).await?.is_some_and(|revision| revision.record.erased.is_some()))
    }

    /// Returns a sink that receives the body of a property.
    #[must_use]
    pub fn stage(&self, page: &Page, name: &PropertyName) -> PropertySink {
        let limit = self.definitions.get(name).max_size;
        PropertySink::new(Arc::clone(&self.chunks), page.clone(), name.clone(), limit)
    }

    /// Stages a body that is in memory.
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &[u8]) -> Result<Staged> {
        let limit = self.definitions.get(name).max_size;
        if let Some(staged) = Staged::inline(body).filter(|staged| staged.size <= limit) {
            return Ok(staged);
        }
        let mut sink = self.stage(page, name);
        sink.write(body).await?;
        sink.finish().await
    }
}
