//! Garbage collection of blocks that no page references: new blocks of an interrupted seal, import or
//! rewrite, and old blocks that a rewrite has replaced.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Error as StoreError, Key, Outage, Partition, PartitionStream, ReadFrom,
    Result as StoreResult, Row, RowStream, Scan, Value,
};

use super::{
    blocks::{BlockStore, partition},
    index::IndexRow,
    rows::{BlockId, BlockPiece, GcEntryRow},
};
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, Result, Title,
    rows::{ColumnValue, Json, TypedRow, partition_of},
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, ARCHIVE_NOTES},
};

const HOUR: Duration = Duration::from_secs(3600);

/// Number of entries, or of hours with entries, in one read.
const ENTRIES_PER_READ: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");

/// The maximum number of pieces of a block that one batch deletes, in a store of a single process. A piece has
/// at most a megabyte.
const MAX_DELETED_PIECES: i64 = 4;

/// Which pages reference a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum References {
    /// All pages of the block reference it.
    AllPages,
    /// Some pages of the block reference it. The garbage collection entry stays, since the block still contains
    /// revisions of the other pages: an erasure of such a revision finds the block by this entry.
    SomePages,
    /// No page of the block references it.
    NoPage,
}

/// A garbage collection entry: a block that the collector has to examine, and the pages in the block.
#[derive(Debug)]
pub(super) struct GcEntry {
    pub(super) id: BlockId,
    pub(super) pages: Vec<Page>,
}

impl GcEntry {
    /// Reads an entry and its time. Returns `None` if the row is unreadable.
    fn from_row(row: &Row) -> Option<(Self, Timestamp)> {
        let GcEntryRow { block, domain, bucket, titles, noted_at } = TypedRow::read(row)?;
        let page = |title| Page { domain: domain.clone(), bucket: bucket.clone(), title };
        Some((Self { id: block, pages: titles.0.into_iter().map(page).collect() }, noted_at))
    }
}

/// Counts the entries that a run of the garbage collector keeps because a replica does not answer.
#[derive(Debug, Default)]
pub struct DeferredEntries {
    entries: u64,
    outage: Option<Outage>,
}

impl DeferredEntries {
    /// Unwraps the result of a read that every replica has to answer. Returns `None`, and counts an entry, if a
    /// replica does not answer.
    pub fn unless_unavailable<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(Error::Store(StoreError::Unavailable(outage))) => {
                self.entries += 1;
                self.outage = Some(outage);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Logs a warning if entries were kept. Called once for each run.
    pub fn log(self, what: &'static str) {
        let Some(outage) = self.outage else { return };
        tracing::warn!(
            what,
            entries = self.entries,
            %outage,
            "a replica does not answer: garbage collection keeps these entries until all replicas answer"
        );
    }
}

impl BlockStore {
    /// Enqueues a block: the garbage collector checks later whether a page references it. `written_at` is the
    /// write time of the entry. It must be at least `now`, and later than the last [`Self::dequeue`] of the
    /// block.
    pub(super) async fn enqueue(
        &self,
        of: &Page,
        id: BlockId,
        titles: &BTreeSet<Title>,
        now: Timestamp,
        written_at: Timestamp,
    ) -> StoreResult<()> {
        let mut entry = Batch::new(vec![Value::Int(now.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        let (domain, bucket) = (of.domain.clone(), of.bucket.clone());
        let row = GcEntryRow { block: id, domain, bucket, titles: Json(titles.clone()), noted_at: now };
        row.put(&mut entry, written_at);
        self.store.write(Vec::new(), entry).await
    }

    /// Deletes the entry of a block. Called when all pages in the block reference the block.
    pub(super) async fn dequeue(&self, id: BlockId, noted_at: Timestamp) -> StoreResult<()> {
        let mut entry =
            Batch::new(vec![Value::Int(noted_at.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        entry.delete(&ARCHIVE_NOTES, vec![id.to_value()], noted_at);
        self.store.write(Vec::new(), entry).await
    }

    /// Returns when a block was enqueued last, or `None` if it has no entry.
    pub(super) async fn enqueued_at(&self, id: BlockId) -> StoreResult<Option<Timestamp>> {
        let entries = self.entries_of(id).await?;
        Ok(entries.iter().filter_map(GcEntryRow::read).map(|entry| entry.noted_at).max())
    }

    /// Returns all entries of a block, whatever their hour.
    async fn entries_of(&self, id: BlockId) -> StoreResult<Vec<Row>> {
        let (mut entries, mut hours) = (Vec::new(), self.queue_hours());
        while let Some(hour) = hours.next().await? {
            entries.extend(self.store.get(&ARCHIVE_NOTES, &Key::new(hour, vec![id.to_value()])).await?);
        }
        Ok(entries)
    }

    /// Lists the hours that have entries: the queue has one partition for each hour.
    fn queue_hours(&self) -> PartitionStream<'_> {
        PartitionStream::new(&*self.store, &ARCHIVE_NOTES, ENTRIES_PER_READ)
    }

    fn entries_in(&self, hour: Partition) -> RowStream<'_> {
        RowStream::new(&*self.store, &ARCHIVE_NOTES, Scan::new(hour, ENTRIES_PER_READ))
    }

    async fn delete_entry(&self, entry: Row) -> StoreResult<()> {
        let mut done = Batch::new(entry.key.partition);
        done.delete(&ARCHIVE_NOTES, entry.key.clustering, entry.written_at);
        self.store.write(Vec::new(), done).await
    }

    /// Examines the blocks that were enqueued at `until` or before. Deletes a block that no page references, with
    /// its entry, unless it was enqueued again after `until`. If all pages of a block reference it, deletes only
    /// the entry. Every replica has to confirm either case, so an entry stays while a replica does not answer.
    /// Returns the number of deleted blocks.
    pub(crate) async fn collect(&self, until: Timestamp, now: Timestamp) -> Result<u64> {
        let (mut collected, mut waiting, mut hours) = (0, DeferredEntries::default(), self.queue_hours());
        while let Some(hour) = hours.next().await? {
            let mut entries = self.entries_in(hour);
            while let Some(row) = entries.next().await? {
                let Some((entry, noted_at)) = GcEntry::from_row(&row) else { continue };
                if noted_at > until {
                    continue;
                }
                match waiting.unless_unavailable(self.confirmed_references(&entry).await)? {
                    None | Some(References::SomePages) => continue,
                    Some(References::AllPages) => {}
                    Some(References::NoPage) => {
                        if self.was_enqueued_after(entry.id, until).await? {
                            continue;
                        }
                        self.delete_block(&entry, now).await?;
                        collected += 1;
                    }
                }
                self.delete_entry(row).await?;
            }
        }
        waiting.log("blocks of the archive");
        Ok(collected)
    }

    /// Returns the enqueued blocks that contain a page, each with its time.
    pub(super) async fn enqueued_of(&self, of: &Page) -> Result<Vec<(GcEntry, Timestamp)>> {
        let (mut enqueued, mut hours) = (Vec::new(), self.queue_hours());
        while let Some(hour) = hours.next().await? {
            let mut entries = self.entries_in(hour);
            while let Some(row) = entries.next().await? {
                enqueued.extend(GcEntry::from_row(&row).filter(|(entry, _)| entry.pages.contains(of)));
            }
        }
        Ok(enqueued)
    }

    /// Deletes the block `id` at once, unless one of its pages references it. `pages` has all pages of the
    /// block.
    pub(super) async fn delete_if_unreferenced(
        &self,
        pages: Vec<Page>,
        id: BlockId,
        now: Timestamp,
    ) -> Result<()> {
        let entry = GcEntry { id, pages };
        match self.references(&entry).await? {
            References::AllPages | References::SomePages => Ok(()),
            References::NoPage => self.delete_block_and_entries(&entry, now).await,
        }
    }

    /// Deletes a block and its entries.
    pub(super) async fn delete_block_and_entries(&self, entry: &GcEntry, now: Timestamp) -> Result<()> {
        self.delete_block(entry, now).await?;
        for row in self.entries_of(entry.id).await? {
            self.delete_entry(row).await?;
        }
        Ok(())
    }

    /// Returns which pages reference a block. Every replica confirms `NoPage`, since a failed batch that adds a
    /// reference may have reached only one replica.
    pub(super) async fn references(&self, entry: &GcEntry) -> Result<References> {
        match self.references_from(entry, ReadFrom::Quorum).await? {
            References::NoPage => self.references_from(entry, ReadFrom::AllReplicas).await,
            named => Ok(named),
        }
    }

    /// Like [`Self::references`], but every replica confirms `AllPages` too, since the caller then deletes
    /// the entry. A failed batch that removes a reference may have reached only one replica, and may take
    /// effect later.
    async fn confirmed_references(&self, entry: &GcEntry) -> Result<References> {
        match self.references_from(entry, ReadFrom::Quorum).await? {
            References::SomePages => Ok(References::SomePages),
            References::AllPages | References::NoPage => {
                self.references_from(entry, ReadFrom::AllReplicas).await
            }
        }
    }

    async fn references_from(&self, entry: &GcEntry, read_from: ReadFrom) -> Result<References> {
        let mut referencing_pages = 0;
        for page in &entry.pages {
            referencing_pages += usize::from(self.page_references_from(page, entry.id, read_from).await?);
        }
        Ok(if referencing_pages == entry.pages.len() {
            References::AllPages
        } else if referencing_pages > 0 {
            References::SomePages
        } else {
            References::NoPage
        })
    }

    /// Whether the block was enqueued after `until`. If so, a page may have removed its reference since then, and
    /// a process may still be reading the block: a block is enqueued again before a page removes its
    /// reference. Call this after the check that no page references the block.
    async fn was_enqueued_after(&self, id: BlockId, until: Timestamp) -> Result<bool> {
        Ok(self.enqueued_at(id).await?.is_some_and(|noted_at| noted_at > until))
    }

    /// Whether a page references a block.
    pub(super) async fn page_references(&self, page: &Page, id: BlockId) -> Result<bool> {
        self.page_references_from(page, id, ReadFrom::Quorum).await
    }

    /// Like [`Self::page_references`], but reads from the replicas that `read_from` names. After a read from
    /// `AllReplicas` with the result `false`, all replicas agree on the whole index of the page. A compaction
    /// or an erasure replaces the row of an old block by that of a new block in one batch. So all replicas
    /// have the new row, too.
    async fn page_references_from(&self, page: &Page, id: BlockId, read_from: ReadFrom) -> Result<bool> {
        let scan = Scan { read_from, ..Scan::new(partition_of(page), INDEX_PAGE_ROWS) };
        let mut rows = RowStream::new(&*self.store, &ARCHIVE_INDEX, scan);
        while let Some(row) = rows.next().await? {
            if IndexRow::from_row(&row)?.block == id {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes the pieces of a block, in their order. In a store of a single process, writers wait for each
    /// batch. So a batch deletes at most [`MAX_DELETED_PIECES`] pieces, unless the first piece is unreadable.
    /// The caller keeps the entry or the index row of the block meanwhile, so that an interrupted deletion is
    /// repeated.
    pub(super) async fn delete_block(&self, entry: &GcEntry, now: Timestamp) -> Result<()> {
        let Some(of) = entry.pages.first() else { return Ok(()) };
        let of = partition(of, entry.id);
        let mut parts = 0;
        if self.store.partition_versions().is_some() {
            let scan = Scan::new(of.clone(), NonZeroUsize::MIN).reporting_damage();
            let first = self.store.scan(&ARCHIVE_BLOCKS, scan).await?.items;
            parts = first.first().and_then(BlockPiece::read).map_or(0, |piece| piece.parts);
        }
        let ends = (1..).map(|number| number * MAX_DELETED_PIECES).take_while(|end| *end < parts);
        // The last range has all other pieces, even if the number of pieces is not known.
        let ranges = ends.map(|end| ClusteringRange::all().below(end)).chain([ClusteringRange::all()]);
        for range in ranges {
            let mut pieces = Batch::new(of.clone());
            pieces.delete_range(&ARCHIVE_BLOCKS, range, now);
            self.store.write(Vec::new(), pieces).await?;
        }
        self.forget(entry.id).await;
        Ok(())
    }

    /// Whether the store has some pieces of a block but not all, the block has a garbage collection entry, and
    /// no page references it. The write or the deletion of such a block was interrupted, and the block will
    /// be deleted.
    pub(super) async fn is_incomplete_and_unreferenced(&self, of: &Page, id: BlockId) -> Result<bool> {
        let scan = Scan::new(partition(of, id), NonZeroUsize::MIN);
        let mut rows = RowStream::new(&*self.store, &ARCHIVE_BLOCKS, scan);
        let (mut parts, mut count) = (0, 0);
        while let Some(row) = rows.next().await? {
            count += 1;
            parts = BlockPiece::read(&row).map_or(parts, |piece| piece.parts.max(parts));
        }
        if count >= parts {
            return Ok(false);
        }
        let Some((entry, _)) = self.entries_of(id).await?.iter().find_map(GcEntry::from_row) else {
            return Ok(false);
        };
        Ok(self.references(&entry).await? == References::NoPage)
    }
}
