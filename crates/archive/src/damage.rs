//! Handles damaged blocks: readers can skip and report unreadable parts, and unreadable blocks can be given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Mutex, OnceLock, PoisonError},
};

use rashomon_tables::{Batch, Error as StoreError, PartitionStream};

use super::{
    Archive,
    blocks::{BlockStore, in_hex, newer_version},
    collect::GcEntry,
    index::{IndexRow, index_of},
    rows::BlockId,
};
use rashomon_records::{
    Page, Result, Revision,
    rows::{TypedRow, page_of, partition_of},
    schemas::ARCHIVE_INDEX,
};

/// Number of partitions in one read.
const PARTITIONS_PER_READ: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Revisions of a page in a damaged block of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedDamage {
    /// The page.
    pub page: Page,
    /// The name of the block.
    pub block: String,
    /// The lowest and the highest revision.
    pub revisions: (Revision, Revision),
    /// The number of revisions. Some of them may also be stored in the tables or in other blocks.
    pub count: u64,
    /// What is wrong with the block.
    pub why: String,
}

/// The page, the block, and the lowest revision of a skipped part.
type SkipKey = (Page, BlockId, Revision);

/// The parts that readers have skipped, each listed once. Unset if readers do not skip damage, but fail.
#[derive(Debug, Default)]
pub(super) struct Damage(OnceLock<Mutex<BTreeMap<SkipKey, SkippedDamage>>>);

impl Damage {
    /// Whether unreadable parts are skipped.
    pub(super) fn is_skipped(&self) -> bool {
        self.0.get().is_some()
    }

    /// Records that all revisions of a page in a block were skipped.
    pub(super) fn skip_part(&self, page: &Page, row: &IndexRow, why: &str) {
        self.record(page, row.block, row.revs, row.revisions, why);
    }

    /// Records that a revision was skipped.
    pub(super) fn skip_revision(&self, page: &Page, block: BlockId, rev: Revision, why: &str) {
        self.record(page, block, (rev, rev), 1, why);
    }

    fn record(&self, page: &Page, block: BlockId, revisions: (Revision, Revision), count: u64, why: &str) {
        let Some(skipped) = self.0.get() else { return };
        let mut skipped = skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.entry((page.clone(), block, revisions.0)).or_insert_with(|| SkippedDamage {
            page: page.clone(),
            block: in_hex(block),
            revisions,
            count,
            why: why.to_owned(),
        });
    }
}

impl Archive {
    /// Makes all readers skip the unreadable parts of damaged blocks from now on, as if these parts did not
    /// exist. This is for a command that is the only reader: it reads as much as possible, and reports the
    /// missing parts. If a value is in several blocks, and the latest of these is skipped, readers get the
    /// value of an earlier block.
    pub fn skip_damage(&self) {
        self.blocks.damage.0.get_or_init(Mutex::default);
    }

    /// Returns the parts that were skipped since the last call.
    #[must_use]
    pub fn skipped_damage(&self) -> Vec<SkippedDamage> {
        let skipped = self.blocks.damage.0.get();
        let taken = skipped
            .map(|skipped| std::mem::take(&mut *skipped.lock().unwrap_or_else(PoisonError::into_inner)));
        taken.unwrap_or_default().into_values().collect()
    }

    /// Returns `Unsupported` if a later version of the program wrote a block that may contain this revision.
    /// This version cannot read such a block, and neither gives up nor rewrites any part of it.
    pub async fn check_versions(&self, page: &Page, rev: Revision) -> Result<()> {
        self.blocks.check_versions(page, rev).await
    }

    /// Gives up the blocks that may contain a revision and whose records cannot all be read. First deletes the
    /// references of all pages to such a block, then the block. Returns the lost revisions of each page. An
    /// interrupted call is completed by another call, or by the garbage collection. Fails as
    /// [`Self::check_versions`] does, before any change.
    pub async fn give_up_unreadable(&self, page: &Page, rev: Revision) -> Result<Vec<SkippedDamage>> {
        let _alone = self.alone().await;
        self.check_versions(page, rev).await?;
        let blocks = &self.blocks;
        let mut given_up = Vec::new();
        for row in index_of(&*blocks.store, &partition_of(page)).await? {
            if !row.may_have_revision(rev) {
                continue;
            }
            match blocks.open(page, row.block).await.and_then(|block| block.check_records()) {
                Err(StoreError::Corrupt(why)) => {
                    given_up.extend(self.give_up(page, row.block, &why).await?);
                }
                checked => checked?,
            }
        }
        if !given_up.is_empty() {
            self.records.store.scrub().await?;
        }
        Ok(given_up)
    }

    async fn give_up(&self, page: &Page, id: BlockId, why: &str) -> Result<Vec<SkippedDamage>> {
        let blocks = &self.blocks;
        let mut referencing_pages = referencing_pages(blocks, page, id).await?;
        // The index row of `page`, by which the block was found, is deleted last. So an interrupted call can be
        // repeated.
        referencing_pages.sort_by_key(|(of, _)| of == page);
        let titles: BTreeSet<_> = referencing_pages.iter().map(|(of, _)| of.title.clone()).collect();
        let now = self.records.clock.now();
        // If clocks differ, the row may have been written at a time later than now.
        let at = now.saturating_add(self.records.skew);
        blocks.enqueue(page, id, &titles, now, at).await?;
        for (of, row) in &referencing_pages {
            let mut batch = Batch::new(partition_of(of));
            batch.delete(&ARCHIVE_INDEX, row.to_stored().clustering(), at);
            blocks.store.write(Vec::new(), batch).await?;
        }
        let pages = referencing_pages.iter().map(|(of, _)| of.clone()).collect();
        blocks.delete_block_and_entries(&GcEntry { id, pages }, at).await?;
        let given_up = referencing_pages.into_iter().map(|(page, row)| SkippedDamage {
            page,
            block: in_hex(id),
            revisions: row.revs,
            count: row.revisions,
            why: why.to_owned(),
        });
        Ok(given_up.collect())
    }
}

impl BlockStore {
    /// Returns `Unsupported` if a later version of the program wrote a block that may contain this revision.
    pub(crate) async fn check_versions(&self, page: &Page, rev: Revision) -> Result<()> {
        for row in index_of(&*self.store, &partition_of(page)).await? {
            if !row.may_have_revision(rev) {
                continue;
            }
            let bytes = match self.read(page, row.block).await {
                Err(StoreError::Corrupt(_)) => continue,
                bytes => bytes?,
            };
            if let Some(why) = newer_version(row.block, &bytes) {
                return Err(StoreError::Unsupported(why).into());
            }
        }
        Ok(())
    }
}

/// Finds the pages of a bucket whose indexes reference a block. Reads the indexes of all pages, since the
/// titles in an unreadable block are unknown.
async fn referencing_pages(blocks: &BlockStore, of: &Page, id: BlockId) -> Result<Vec<(Page, IndexRow)>> {
    let mut found = Vec::new();
    let mut partitions = PartitionStream::new(&*blocks.store, &ARCHIVE_INDEX, PARTITIONS_PER_READ);
    while let Some(partition) = partitions.next().await? {
        let Some(page) = page_of(&partition) else { continue };
        if (&page.domain, &page.bucket) != (&of.domain, &of.bucket) {
            continue;
        }
        let index = index_of(&*blocks.store, &partition).await?;
        found.extend(index.into_iter().filter(|row| row.block == id).map(|row| (page.clone(), row)));
    }
    Ok(found)
}
