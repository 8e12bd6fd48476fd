//! Garbage collection: chunk sets and blocks that nothing names are deleted.
//!
//! Nothing is decided before a failed write can no longer take effect by itself, nor by a read that some replicas did not
//! answer. See decision 0017.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Row, Scan, Schema, TableStore, Value};

use super::{Revisioned, Shared};
use crate::{
    Error, Page, PropertyName, Result, Revision,
    archive::Waiting,
    content::{BodyRow, Stored},
    rows::{
        ChunkReference, ChunkSetEntry, ChunkSetId, ColumnValue, RenderRow, RevisionRow, TypedRow,
        of_property_at, partition_of, rev_key,
    },
    schemas::{
        BY_REV, CHUNK_REFERENCES, CHUNK_SETS, CHUNKS, CULLED, CULLED_RENDERS, CURRENT, HISTORICAL,
        RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS,
    },
};

/// Hours of notes, and notes of chunk sets, that are read together.
const NOTES: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// Rows of bodies that are read together. Each may have a megabyte.
const BODIES: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

impl Revisioned {
    /// Deletes the chunks of large bodies that were received at least `age` ago and that nothing names: of writes that
    /// were refused or cut short, and of bodies that were replaced. `age` is longer than any write may take. Returns the
    /// number of bodies deleted. Blocks of the archive that no page came to name are deleted, too.
    ///
    /// On a cluster an entry waits until a failed write that names it can no longer take effect by itself, and until all
    /// replicas answer.
    #[boxed]
    pub async fn collect_orphans(&self, age: Duration) -> Result<u64> {
        if let Some(archive) = &self.0.archive {
            archive.collect(age).await?;
        }
        self.0.collect_chunk_sets(self.0.records.noted_before(age).await?).await
    }

    /// Deletes the blocks of the archive that no page names any more, while nothing else is done in this process: all of
    /// them where no other process has the store, else those that nobody can be reading, as [`Self::collect_orphans`]
    /// does. Returns their number.
    #[boxed]
    pub async fn collect_blocks(&self) -> Result<u64> {
        match &self.0.archive {
            Some(archive) => archive.collect_unreferenced().await,
            None => Ok(0),
        }
    }

    /// The number of bodies whose chunks [`Self::collect_orphans`] would delete now, if all replicas answer.
    #[boxed]
    pub async fn count_orphans(&self, age: Duration) -> Result<u64> {
        self.0.count_collectable(self.0.records.noted_before(age).await?).await
    }
}

impl Shared {
    /// Deletes the chunk sets noted at `due` or before that nothing names, and their notes. Returns the number of sets
    /// deleted.
    pub(super) async fn collect_chunk_sets(&self, due: Timestamp) -> Result<u64> {
        let (mut collected, mut waiting) = (0, Waiting::default());
        let mut hours = self.records.partitions(&CHUNK_SETS, NOTES);
        while let Some(hour) = hours.next().await? {
            collected += self.collect_hour(hour, due, &mut waiting).await?;
        }
        waiting.log("chunks of large bodies");
        Ok(collected)
    }

    async fn collect_hour(&self, hour: Vec<Value>, due: Timestamp, waiting: &mut Waiting) -> Result<u64> {
        let (mut collected, mut notes) = (0, self.records.rows(&CHUNK_SETS, Scan::new(hour.clone(), NOTES)));
        while let Some(note) = notes.next().await? {
            let Some((page, entry)) = noted(&note, due) else { continue };
            match waiting.unless_unavailable(self.need_for(&page, entry.chunk_set, due).await)? {
                None | Some(Need::StillNamed) => continue,
                Some(Need::Referenced) => {}
                Some(Need::Nobody { released }) => {
                    self.delete_set(&page, entry.chunk_set, released).await?;
                    collected += 1;
                }
            }
            let mut done = Batch::new(hour.clone());
            done.delete(&CHUNK_SETS, entry.clustering(), note.written_at);
            self.records.store.write(Vec::new(), done).await?;
        }
        Ok(collected)
    }

    /// Who needs a set. All replicas have confirmed it: a batch that references or releases the set may have failed and
    /// have reached one replica only.
    async fn need_for(&self, page: &Page, set: ChunkSetId, due: Timestamp) -> Result<Need> {
        let range = ClusteringRange::prefix(vec![set.to_value()]);
        let row = self.settled_rows(&CHUNK_REFERENCES, page, range, NonZeroUsize::MIN).await?.pop();
        let Some(row) = row else { return Ok(Need::Nobody { released: None }) };
        // Another note says when a set is looked at that was released a short time ago.
        let reference = ChunkReference::from_row(&row)?;
        if reference.released_at.is_none_or(|released_at| released_at > due) {
            return Ok(Need::Referenced);
        }
        // A store that this process alone writes to has no batches that reached some replicas only.
        if !self.records.is_alone() && self.is_still_named(page, &reference).await? {
            return Ok(Need::StillNamed);
        }
        Ok(Need::Nobody { released: Some(row.written_at) })
    }

    /// Deletes the chunks of a set, and then the reference that was released.
    async fn delete_set(&self, page: &Page, set: ChunkSetId, released: Option<Timestamp>) -> Result<()> {
        let mut unnamed = Batch::new(partition_of(page));
        if let Some(written_at) = released {
            unnamed.delete(&CHUNK_REFERENCES, vec![set.to_value()], written_at);
        }
        let mut chunks = Batch::new(vec![set.to_value()]);
        chunks.delete_range(&CHUNKS, ClusteringRange::all(), self.records.clock.now());
        Ok(self.records.store.write(vec![chunks], unnamed).await?)
    }

    /// Whether a row names a set that was released. The release is in one batch with the row that takes the place of the
    /// body. If this batch failed and has reached one replica only, the others have a row that names the set. The reads
    /// of all replicas make the whole batch take effect, as far as the revision goes: so the body that was replaced is
    /// not needed on any replica when its chunks are deleted.
    async fn is_still_named(&self, page: &Page, reference: &ChunkReference) -> Result<bool> {
        let (rev, set) = (reference.rev, reference.chunk_set);
        let named = match rev {
            Some(rev) => self.revision_names(page, rev, set).await,
            // Released by a version that did not note the revision.
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

    /// Whether a row of a revision, of its renders, or of a copy of them names a set, by what all replicas know.
    async fn revision_names(&self, page: &Page, rev: Revision, set: ChunkSetId) -> Result<bool> {
        let of_rev = || ClusteringRange::prefix(rev_key(rev));
        for (table, range) in [(&*CULLED, ClusteringRange::all()), (&*CULLED_RENDERS, of_rev())] {
            self.settled_rows(table, page, range, INDEX_PAGE_ROWS).await?;
        }
        let mut names: BTreeSet<PropertyName> = BTreeSet::new();
        for row in self.settled_rows(&REVISIONS, page, of_rev(), INDEX_PAGE_ROWS).await? {
            names.extend(RevisionRow::from_row(&row)?.properties.into_keys());
        }
        for row in self.settled_rows(&RENDERS, page, of_rev(), INDEX_PAGE_ROWS).await? {
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

    /// Whether any row of a page names a set, by what all replicas know.
    async fn page_names(&self, page: &Page, set: ChunkSetId) -> Result<bool> {
        for table in [&*CULLED, &*CULLED_RENDERS, &*REVISIONS, &*RENDERS] {
            self.settled_rows(table, page, ClusteringRange::all(), INDEX_PAGE_ROWS).await?;
        }
        let mut is_named = false;
        for table in [&*REVISION_CONTENT, &*RENDER_CONTENT, &*HISTORICAL, &*BY_REV, &*CURRENT] {
            is_named |= self.any_names(table, page, ClusteringRange::all(), set).await?;
        }
        Ok(is_named)
    }

    /// Whether a row of bodies in a range names a set. All rows of the range are read, so that all replicas agree on them.
    async fn any_names(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        set: ChunkSetId,
    ) -> Result<bool> {
        let scan = Scan::new(partition_of(page), BODIES).range(range).from_all_replicas();
        let (mut is_named, mut rows) = (false, self.records.rows(table, scan));
        while let Some(row) = rows.next().await? {
            is_named |= matches!(BodyRow::from_row(&row)?.stored, Stored::Chunks(named) if named.id == set);
        }
        Ok(is_named)
    }

    /// The rows of a page in a range, by what all replicas know. Afterwards they agree on these rows.
    async fn settled_rows(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        at_a_time: NonZeroUsize,
    ) -> Result<Vec<Row>> {
        let scan = Scan::new(partition_of(page), at_a_time).range(range).from_all_replicas();
        Ok(self.records.rows(table, scan).collect().await?)
    }

    /// How many sets [`Self::collect_chunk_sets`] would delete.
    async fn count_collectable(&self, due: Timestamp) -> Result<u64> {
        let (mut counted, mut hours) = (0, self.records.partitions(&CHUNK_SETS, NOTES));
        while let Some(hour) = hours.next().await? {
            counted += self.count_hour(hour, due).await?;
        }
        Ok(counted)
    }

    async fn count_hour(&self, hour: Vec<Value>, due: Timestamp) -> Result<u64> {
        let (mut counted, mut notes) = (0, self.records.rows(&CHUNK_SETS, Scan::new(hour, NOTES)));
        while let Some(note) = notes.next().await? {
            let Some((page, entry)) = noted(&note, due) else { continue };
            let counts = match self.records.get(&CHUNK_REFERENCES, &page, entry.clustering()).await? {
                None => true,
                // A set may have two entries. It is counted at the entry of its release.
                Some(row) => ChunkReference::from_row(&row)?.released_at == Some(entry.noted_at),
            };
            counted += u64::from(counts);
        }
        Ok(counted)
    }
}

/// Who needs a chunk set.
enum Need {
    /// The page references it, or released it a short time ago.
    Referenced,
    /// It was released, and a row still names it.
    StillNamed,
    /// Nobody. Its reference was released by a write of this time, if there is one.
    Nobody { released: Option<Timestamp> },
}

/// An entry of a chunk set that is due, and the page. `None` if it is not due, or is unreadable.
fn noted(row: &Row, due: Timestamp) -> Option<(Page, ChunkSetEntry)> {
    let entry = ChunkSetEntry::read(row).filter(|entry| entry.noted_at <= due)?;
    let ChunkSetEntry { domain, bucket, title, .. } = entry.clone();
    Some((Page { domain, bucket, title }, entry))
}
