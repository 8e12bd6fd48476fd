//! Garbage collection: deletes unreferenced chunk sets and blocks.
//!
//! The collector examines a chunk set or a block only when no failed write that references the set or the block
//! can still take effect by itself. The collector deletes a set or a block only after all replicas have answered
//! the reads that show that it is not needed. See decision 0017.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{INDEX_PAGE_ROWS, Records};
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Row, Scan, Schema, TableStore, Value};

use super::Maintenance;
use crate::{
    Error, Page, PropertyName, Result, Revision,
    archive::DeferredEntries,
    content::{BodyRow, Stored},
    rows::{
        ChunkReference, ChunkSetEntry, ChunkSetId, ColumnValue, RenderRow, RevisionRow, TypedRow,
        of_property_at, of_revision, partition_of,
    },
    schemas::{
        BY_REV, CHUNK_REFERENCES, CHUNK_SETS, CULLED, CULLED_RENDERS, CURRENT, HISTORICAL, RENDER_CONTENT,
        RENDERS, REVISION_CONTENT, REVISIONS,
    },
};

/// The maximum number of rows of a scan: of chunk set entries, and of the partitions that each have the entries
/// of one hour.
const ENTRY_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The maximum number of rows of a scan of bodies. Each row may have a megabyte.
const BODY_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

impl Maintenance {
    /// Deletes unreferenced chunk sets that were received at least `age` ago, or released at least `age` ago by
    /// a replacement, a cull or a seal. Also deletes the blocks of the archive that no page references. Returns
    /// the number of deleted chunk sets. `age` has to be longer than any write may take.
    ///
    /// On a cluster, an entry waits until a failed write that references its chunk set can no longer take
    /// effect by itself, and until all replicas answer.
    #[boxed]
    pub async fn collect_orphans(&self, age: Duration) -> Result<u64> {
        if let Some(archive) = &self.0.archive {
            archive.collect(age).await?;
        }
        self.0.chunk_collector().collect(self.0.records.entries_before(age).await?).await
    }

    /// Deletes the blocks of the archive that no page references any more, and returns the number of deleted
    /// blocks. This process may do nothing else meanwhile.
    ///
    /// If no other process uses the store, all unreferenced blocks are deleted. Otherwise the blocks that
    /// another process may be reading are kept, as by [`Self::collect_orphans`].
    #[boxed]
    pub async fn collect_blocks(&self) -> Result<u64> {
        match &self.0.archive {
            Some(archive) => archive.collect_unreferenced().await,
            None => Ok(0),
        }
    }

    /// Deletes the unreferenced chunk sets of any age, and returns their number. Does nothing if other processes
    /// use the store, since they may be receiving bodies.
    ///
    /// Bodies that this process has staged and not stored yet lose their chunks.
    #[boxed]
    pub async fn collect_chunks(&self) -> Result<u64> {
        match self.0.records.is_alone() {
            true => self.0.chunk_collector().collect(Timestamp::MAX).await,
            false => Ok(0),
        }
    }

    /// Returns the number of chunk sets that [`Self::collect_orphans`] would delete now, if all replicas
    /// answer and no row still names a released set.
    #[boxed]
    pub async fn count_orphans(&self, age: Duration) -> Result<u64> {
        self.0.chunk_collector().count_collectable(self.0.records.entries_before(age).await?).await
    }
}

/// Garbage collection of chunk sets.
pub(super) struct ChunkCollector<'a> {
    pub(super) records: &'a Records,
}

impl ChunkCollector<'_> {
    /// Deletes the unreferenced chunk sets whose entries were written at `until` or before, and deletes these
    /// entries. Returns the number of deleted sets.
    pub(super) async fn collect(&self, until: Timestamp) -> Result<u64> {
        let (mut collected, mut waiting) = (0, DeferredEntries::default());
        let mut hours = self.records.partitions(&CHUNK_SETS, ENTRY_PAGE_ROWS);
        while let Some(hour) = hours.next().await? {
            collected += self.collect_hour(hour, until, &mut waiting).await?;
        }
        waiting.log("chunks of large bodies");
        Ok(collected)
    }

    async fn collect_hour(
        &self,
        hour: Vec<Value>,
        until: Timestamp,
        waiting: &mut DeferredEntries,
    ) -> Result<u64> {
        let (mut collected, mut rows) =
            (0, self.records.rows(&CHUNK_SETS, Scan::new(hour.clone(), ENTRY_PAGE_ROWS)));
        while let Some(row) = rows.next().await? {
            let Some((page, entry)) = entry_until(&row, until) else { continue };
            match waiting.unless_unavailable(self.state_of_set(&page, entry.chunk_set, until).await)? {
                None | Some(SetState::ReleasedButNamed) => continue,
                Some(SetState::Referenced) => {}
                Some(SetState::Unreferenced { released }) => {
                    self.delete_set(&page, entry.chunk_set, released).await?;
                    collected += 1;
                }
            }
            let mut done = Batch::new(hour.clone());
            done.delete(&CHUNK_SETS, entry.clustering(), row.written_at);
            self.records.store.write(Vec::new(), done).await?;
        }
        Ok(collected)
    }

    /// Returns whether a chunk set is needed. Reads from all replicas: a batch that references or releases the
    /// set may have failed, and may have reached only one replica.
    async fn state_of_set(&self, page: &Page, set: ChunkSetId, until: Timestamp) -> Result<SetState> {
        let range = ClusteringRange::prefix(vec![set.to_value()]);
        let row = self.rows_from_all_replicas(&CHUNK_REFERENCES, page, range, NonZeroUsize::MIN).await?.pop();
        let Some(row) = row else { return Ok(SetState::Unreferenced { released: None }) };
        // A set that was released after `until` has another entry for the release, and is examined when the
        // other entry is old enough.
        let reference = ChunkReference::from_row(&row)?;
        if reference.released_at.is_none_or(|released_at| released_at > until) {
            return Ok(SetState::Referenced);
        }
        // If only this process writes to the store, no batch can have reached only some replicas.
        if !self.records.is_alone() && self.is_still_named(page, &reference).await? {
            return Ok(SetState::ReleasedButNamed);
        }
        Ok(SetState::Unreferenced { released: Some(row.written_at) })
    }

    /// Deletes the chunks of a set, and then the set's released reference, whose write time is `released`. If
    /// the call is interrupted, the entry of the set stays, and the next collection deletes the rest.
    async fn delete_set(&self, page: &Page, set: ChunkSetId, released: Option<Timestamp>) -> Result<()> {
        let chunks = self.records.chunks.deletion(set).await?;
        let mut unnamed = Batch::new(partition_of(page));
        if let Some(written_at) = released {
            unnamed.delete(&CHUNK_REFERENCES, vec![set.to_value()], written_at);
        }
        Ok(self.records.store.write(vec![chunks], unnamed).await?)
    }

    /// Whether a row still names a released set.
    ///
    /// The release is in one batch with the row that replaces the body. If the batch failed and has reached
    /// only one replica, the other replicas still have a row that names the set. The reads from all replicas
    /// make the batch take effect on every replica for this revision. So no replica needs the replaced body
    /// when the chunks of the body are deleted.
    async fn is_still_named(&self, page: &Page, reference: &ChunkReference) -> Result<bool> {
        let (rev, set) = (reference.rev, reference.chunk_set);
        let named = match rev {
            Some(rev) => self.revision_names(page, rev, set).await,
            // The program version that released the set did not store the revision.
            None => self.page_names(page, set).await,
        };
        let (domain, title) = (&page.domain, &page.title);
        match named {
            Ok(true) => {
                tracing::warn!(%domain, %title, ?rev, "released chunks are still referenced by a row; keeping them");
                Ok(true)
            }
            Err(Error::Store(StoreError::Corrupt(error))) => {
                tracing::warn!(%domain, %title, ?rev, error, "released chunks may be referenced by a damaged row; keeping them");
                Ok(true)
            }
            named => named,
        }
    }

    /// Whether a row of a revision, of its renders, or of their copies names a set. Reads from all replicas.
    async fn revision_names(&self, page: &Page, rev: Revision, set: ChunkSetId) -> Result<bool> {
        let of_rev = || of_revision(rev);
        for (table, range) in [(&*CULLED, ClusteringRange::all()), (&*CULLED_RENDERS, of_rev())] {
            self.rows_from_all_replicas(table, page, range, INDEX_PAGE_ROWS).await?;
        }
        let mut names: BTreeSet<PropertyName> = BTreeSet::new();
        for row in self.rows_from_all_replicas(&REVISIONS, page, of_rev(), INDEX_PAGE_ROWS).await? {
            names.extend(RevisionRow::from_row(&row)?.properties.into_keys());
        }
        for row in self.rows_from_all_replicas(&RENDERS, page, of_rev(), INDEX_PAGE_ROWS).await? {
            names.extend(RenderRow::from_row(&row)?.properties.into_keys());
        }
        let mut is_named = false;
        for property in names {
            let of_property = of_property_at(&property, rev);
            for table in [&*REVISION_CONTENT, &*RENDER_CONTENT] {
                is_named |= self.any_names(table, page, of_property.clone(), set).await?;
            }
        }
        for (table, range) in
            [(&*HISTORICAL, of_rev()), (&*BY_REV, of_rev()), (&*CURRENT, ClusteringRange::all())]
        {
            is_named |= self.any_names(table, page, range, set).await?;
        }
        Ok(is_named)
    }

    /// Whether any row of a page names a set. Reads from all replicas.
    async fn page_names(&self, page: &Page, set: ChunkSetId) -> Result<bool> {
        for table in [&*CULLED, &*CULLED_RENDERS, &*REVISIONS, &*RENDERS] {
            self.rows_from_all_replicas(table, page, ClusteringRange::all(), INDEX_PAGE_ROWS).await?;
        }
        let mut is_named = false;
        for table in [&*REVISION_CONTENT, &*RENDER_CONTENT, &*HISTORICAL, &*BY_REV, &*CURRENT] {
            is_named |= self.any_names(table, page, ClusteringRange::all(), set).await?;
        }
        Ok(is_named)
    }

    /// Whether a row of bodies in a range names a set. Reads all rows of the range, even after a match, so
    /// that all replicas agree on these rows.
    async fn any_names(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        set: ChunkSetId,
    ) -> Result<bool> {
        let scan = Scan::new(partition_of(page), BODY_PAGE_ROWS).range(range).from_all_replicas();
        let (mut is_named, mut rows) = (false, self.records.rows(table, scan));
        while let Some(row) = rows.next().await? {
            is_named |= matches!(BodyRow::from_row(&row)?.stored, Stored::Chunks(named) if named.id == set);
        }
        Ok(is_named)
    }

    /// Reads the rows of a page in a range from all replicas. After the read, all replicas agree on these
    /// rows.
    async fn rows_from_all_replicas(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        at_a_time: NonZeroUsize,
    ) -> Result<Vec<Row>> {
        let scan = Scan::new(partition_of(page), at_a_time).range(range).from_all_replicas();
        Ok(self.records.rows(table, scan).collect().await?)
    }

    /// Returns the number of chunk sets that [`Self::collect`] would delete, if no row still names a released
    /// set.
    async fn count_collectable(&self, until: Timestamp) -> Result<u64> {
        let (mut counted, mut hours) = (0, self.records.partitions(&CHUNK_SETS, ENTRY_PAGE_ROWS));
        while let Some(hour) = hours.next().await? {
            counted += self.count_hour(hour, until).await?;
        }
        Ok(counted)
    }

    async fn count_hour(&self, hour: Vec<Value>, until: Timestamp) -> Result<u64> {
        let (mut counted, mut rows) = (0, self.records.rows(&CHUNK_SETS, Scan::new(hour, ENTRY_PAGE_ROWS)));
        while let Some(row) = rows.next().await? {
            let Some((page, entry)) = entry_until(&row, until) else { continue };
            let counts = match self.records.get(&CHUNK_REFERENCES, &page, entry.clustering()).await? {
                None => true,
                // A set may have two entries. The set is counted at the entry of its release.
                Some(row) => ChunkReference::from_row(&row)?.released_at == Some(entry.noted_at),
            };
            counted += u64::from(counts);
        }
        Ok(counted)
    }
}

/// Whether a chunk set is needed.
enum SetState {
    /// The page references the set, or released the set after the time until which entries are collected.
    Referenced,
    /// The page released the set, and a row still names the set.
    ReleasedButNamed,
    /// The set is not needed. `released` is the write time of the set's released reference, if the page has a
    /// reference to the set.
    Unreferenced { released: Option<Timestamp> },
}

/// Returns the entry of a row, and its page. Returns `None` if the entry was written after `until`, or is
/// unreadable.
fn entry_until(row: &Row, until: Timestamp) -> Option<(Page, ChunkSetEntry)> {
    let entry = ChunkSetEntry::read(row).filter(|entry| entry.noted_at <= until)?;
    let ChunkSetEntry { domain, bucket, title, .. } = entry.clone();
    Some((Page { domain, bucket, title }, entry))
}
