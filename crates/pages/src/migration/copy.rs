//! Copies rows, partition by partition.

use std::sync::{
    PoisonError,
    atomic::{AtomicBool, Ordering},
};

use async_recursion::async_recursion as boxed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_tables::{Batch, DamagedRow, Mutation, Partition, Row, Scan, Schema, Swap};

use crate::migration::{
    Counts, MAX_CONCURRENT_PARTITIONS, MAX_LISTED_PARTITIONS, MAX_READ_BYTES, MAX_READ_ROWS, Migration,
    MigrationError, Result, record::Position, shown::ProgressReporter,
};
use rashomon_records::rows::key_in_words;

/// The maximum number of damaged rows that are described. Further damaged rows are counted.
const MAX_DESCRIBED_ROWS: usize = 100;

/// The outcome of [`Migration::copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All rows are copied, except damaged ones.
    Complete,
    /// The copy was stopped by the caller. Another migration can resume it.
    Stopped,
}

/// The state that is shared by the partitions that are copied concurrently.
struct CopyContext<'a> {
    stop: &'a AtomicBool,
    shown: ProgressReporter<'a>,
}

impl Migration {
    /// Copies all rows that are not copied yet. Calls `show` from time to time with the counts of this call.
    ///
    /// When `stop` becomes true, the rows that were read are still written, and no further rows are read.
    /// Another migration can resume the copy then, and also after [`MigrationError::Source`] and
    /// [`MigrationError::Target`].
    #[boxed]
    pub async fn copy(
        &mut self,
        stop: &AtomicBool,
        show: &mut (dyn FnMut(Counts) + Send),
    ) -> Result<Outcome> {
        let work = CopyContext { stop, shown: ProgressReporter::new(show) };
        for table in self.tables.clone() {
            if self.copy_table(table, &work).await? == Outcome::Stopped {
                return Ok(Outcome::Stopped);
            }
        }
        Ok(Outcome::Complete)
    }

    async fn copy_table(&mut self, table: &'static Schema, work: &CopyContext<'_>) -> Result<Outcome> {
        let Position { mut after, mut copied, complete } = self.record.of(table);
        if complete {
            return Ok(Outcome::Complete);
        }
        let damaged_before = self.damaged_rows();
        loop {
            let page = self.source.partitions(table, after, MAX_LISTED_PARTITIONS).await?;
            let Some(counts) = self.copy_partitions(table, page.items, work).await? else {
                return Ok(Outcome::Stopped);
            };
            copied.add(counts);
            after = page.next;
            let complete = after.is_none();
            // The position is stored only now, when all rows before it are durable. It stays before the first
            // damaged row of a table, so that another migration reads the row again, and copies it if it was
            // repaired meanwhile.
            if self.damaged_rows() == damaged_before {
                self.record.advance(table, Position { after: after.clone(), copied, complete }).await?;
            }
            if complete {
                return Ok(Outcome::Complete);
            }
        }
    }

    /// Copies partitions concurrently. Returns `None` if the copy was stopped before all of them were copied.
    async fn copy_partitions(
        &self,
        table: &'static Schema,
        partitions: Vec<Partition>,
        work: &CopyContext<'_>,
    ) -> Result<Option<Counts>> {
        let mut copies = Vec::with_capacity(partitions.len());
        for partition in partitions {
            copies.push(self.copy_partition(table, partition, work));
        }
        let ended: Vec<Option<Counts>> =
            stream::iter(copies).buffer_unordered(MAX_CONCURRENT_PARTITIONS).try_collect().await?;
        let mut all = Counts::default();
        for counts in ended {
            let Some(counts) = counts else { return Ok(None) };
            all.add(counts);
        }
        Ok(Some(all))
    }

    async fn copy_partition(
        &self,
        table: &'static Schema,
        partition: Partition,
        work: &CopyContext<'_>,
    ) -> Result<Option<Counts>> {
        let mut all = Counts::default();
        let mut scan = scan_of(partition);
        loop {
            if work.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let page = self.source.scan(table, &scan).await?;
            for row in &page.damaged {
                self.add_damaged_row(table, row);
            }
            let counts = Counts::of(&page.items);
            if table.swap_only() {
                for row in &page.items {
                    self.put_if_absent(table, row).await?;
                }
            } else {
                for batch in batches(table, page.items) {
                    self.target.write(&batch).await?;
                }
            }
            work.shown.add(counts);
            all.add(counts);
            scan.after = page.next;
            if scan.after.is_none() {
                return Ok(Some(all));
            }
        }
    }

    fn add_damaged_row(&self, table: &'static Schema, row: &DamagedRow) {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.0 += 1;
        if damaged.1.len() < MAX_DESCRIBED_ROWS {
            let row =
                format!("table {}, {}: {}", table.name(), key_in_words(table.name(), &row.key), row.reason);
            damaged.1.push(row);
        }
    }

    /// The number of damaged rows of the source that this migration found and did not copy.
    #[must_use]
    pub fn damaged_rows(&self) -> u64 {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Descriptions of the first 100 of [`Self::damaged_rows`].
    #[must_use]
    pub fn describe_damage(&self) -> Vec<String> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Puts a row that the target lacks. If the target has the row with the same values and expiry, the row was copied
    /// before. A row with other values or another expiry is a conflict.
    async fn put_if_absent(&self, table: &'static Schema, row: &Row) -> Result<()> {
        match self.target.put_if_absent(table, row).await? {
            Swap::Applied => Ok(()),
            Swap::Refused { current: Some(current) }
                if current.values == row.values && current.expires_at == row.expires_at =>
            {
                Ok(())
            }
            Swap::Refused { .. } => Err(MigrationError::Conflict {
                table: table.name(),
                row: key_in_words(table.name(), &row.key),
            }),
        }
    }
}

/// Returns a scan of a whole partition, in result pages of bounded size.
pub(crate) const fn scan_of(partition: Partition) -> Scan {
    let mut scan = Scan::new(partition, MAX_READ_ROWS).reporting_damage();
    scan.max_bytes = MAX_READ_BYTES;
    scan
}

/// Returns batches that put these rows, all of one partition, with their times. A batch has at most
/// [`MAX_READ_BYTES`], or a single larger row.
fn batches(table: &'static Schema, rows: Vec<Row>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let size = row.size();
        let Row { key, values, written_at, expires_at } = row;
        let put = Mutation::Put { table, clustering: key.clustering, values, written_at, expires_at };
        match batches.last_mut().filter(|_| bytes + size <= MAX_READ_BYTES) {
            Some(batch) => batch.mutations.push(put),
            None => {
                bytes = 0;
                batches.push(Batch { partition: key.partition, mutations: vec![put] });
            }
        }
        bytes += size;
    }
    batches
}
