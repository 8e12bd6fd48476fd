//! Reading on beside damage: what of the archive cannot be read is passed over, and said.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Mutex, OnceLock, PoisonError},
};

use rashomon_tables::{Batch, Error as StoreError, PartitionStream};

use super::{
    Archive,
    blocks::{BlockStore, in_hex, newer_version},
    collect::Note,
    index::{IndexRow, index_of},
    rows::BlockId,
};
use rashomon_records::{
    Page, Result, Revision,
    rows::{TypedRow, page_of, partition_of},
    schemas::ARCHIVE_INDEX,
};

/// Partitions that are listed together.
const PARTITIONS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Revisions of a page that a damaged block of the archive has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The page.
    pub page: Page,
    /// The name of the block.
    pub block: String,
    /// The lowest and the highest of them.
    pub revisions: (Revision, Revision),
    /// How many they are. Some of them may stand elsewhere as well.
    pub count: u64,
    /// What is wrong with the block, as a sentence.
    pub why: String,
}

/// Of which page, in which block, and from which revision on.
type Place = (Page, BlockId, Revision);

/// What was passed over, where that is wanted, once each.
#[derive(Debug, Default)]
pub(super) struct Damage(OnceLock<Mutex<BTreeMap<Place, PassedOver>>>);

impl Damage {
    /// Whether what cannot be read is passed over.
    pub(super) fn is_passed_over(&self) -> bool {
        self.0.get().is_some()
    }

    /// Passes over all that a block has of a page.
    pub(super) fn pass_over(&self, page: &Page, row: &IndexRow, why: &str) {
        self.note(page, row.block, row.revs, row.revisions, why);
    }

    /// Passes over a revision.
    pub(super) fn pass_over_revision(&self, page: &Page, block: BlockId, rev: Revision, why: &str) {
        self.note(page, block, (rev, rev), 1, why);
    }

    fn note(&self, page: &Page, block: BlockId, revisions: (Revision, Revision), count: u64, why: &str) {
        let Some(noted) = self.0.get() else { return };
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.entry((page.clone(), block, revisions.0)).or_insert_with(|| PassedOver {
            page: page.clone(),
            block: in_hex(block),
            revisions,
            count,
            why: why.to_owned(),
        });
    }
}

impl Archive {
    /// From now on what a damaged block of the archive has, and cannot be read, is passed over by all that reads, as if
    /// it were not there: for a command that alone has these buckets, takes what it can get, and tells what it could
    /// not. A value that was written again after it was sealed may then be given as an earlier block has it.
    pub fn pass_over_damage(&self) {
        self.blocks.damage.0.get_or_init(Mutex::default);
    }

    /// What was passed over since this was last asked.
    #[must_use]
    pub fn passed_over(&self) -> Vec<PassedOver> {
        let noted = self.blocks.damage.0.get();
        let taken =
            noted.map(|noted| std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner)));
        taken.unwrap_or_default().into_values().collect()
    }

    /// `Unsupported` where a block that may have a revision was written by a later version: that version can read it, and
    /// this one neither gives up nor rewrites any of it.
    pub async fn check_versions(&self, page: &Page, rev: Revision) -> Result<()> {
        self.blocks.check_versions(page, rev).await
    }

    /// Gives up the blocks of the archive that may have a revision and of which nothing can be read: no page names them any
    /// more, and they are deleted. Gives what they had, by page. Safe to be cut off at any point: done again, it is finished.
    pub async fn give_up_unreadable(&self, page: &Page, rev: Revision) -> Result<Vec<PassedOver>> {
        let blocks = &self.blocks;
        let _alone = blocks.alone().await;
        blocks.check_versions(page, rev).await?;
        let mut given_up = Vec::new();
        for row in index_of(&*blocks.store, &partition_of(page)).await? {
            if !(row.revs.0..=row.revs.1).contains(&rev) {
                continue;
            }
            match blocks.open(page, row.block).await {
                Err(StoreError::Corrupt(why)) => {
                    given_up.extend(self.give_up(blocks, page, row.block, &why).await?);
                }
                opened => drop(opened?),
            }
        }
        if !given_up.is_empty() {
            self.records.store.scrub().await?;
        }
        Ok(given_up)
    }

    async fn give_up(
        &self,
        blocks: &BlockStore,
        page: &Page,
        id: BlockId,
        why: &str,
    ) -> Result<Vec<PassedOver>> {
        let mut named_by = named_by(blocks, page, id).await?;
        // The one by which it is found goes last.
        named_by.sort_by_key(|(of, _)| of == page);
        let titles: BTreeSet<_> = named_by.iter().map(|(of, _)| of.title.clone()).collect();
        let now = self.records.clock.now();
        // By clocks that differ it may have been written later than now.
        let at = now.saturating_add(self.records.skew);
        blocks.note(page, id, &titles, now, at).await?;
        for (of, row) in &named_by {
            let mut batch = Batch::new(partition_of(of));
            batch.delete(&ARCHIVE_INDEX, row.to_stored().clustering(), at);
            blocks.store.write(Vec::new(), batch).await?;
        }
        let pages = named_by.iter().map(|(of, _)| of.clone()).collect();
        blocks.delete_noted(&Note { id, pages }, at).await?;
        let given_up = named_by.into_iter().map(|(page, row)| PassedOver {
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
    /// `Unsupported` where a block that may have a revision was written by a later version.
    pub(crate) async fn check_versions(&self, page: &Page, rev: Revision) -> Result<()> {
        for row in index_of(&*self.store, &partition_of(page)).await? {
            if !(row.revs.0..=row.revs.1).contains(&rev) {
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

/// The pages of a bucket whose indexes name a block. It cannot be asked itself.
async fn named_by(blocks: &BlockStore, of: &Page, id: BlockId) -> Result<Vec<(Page, IndexRow)>> {
    let mut found = Vec::new();
    let mut partitions = PartitionStream::new(&*blocks.store, &ARCHIVE_INDEX, PARTITIONS);
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
