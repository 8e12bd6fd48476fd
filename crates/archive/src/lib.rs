//! The archive: superseded revisions are moved into compression blocks, and are read as before.
//!
//! Sealing ([`seal`]) takes whole revisions out of the tables of pages, and puts them into a block ([`entries`],
//! [`blocks`]) and a row for each page and block into the [`index`]. The [`Overlay`] is a store in which the rows
//! still are: a reader does not know which ones are in blocks. A row in the tables was written later than one of the
//! same key in a block, and hides it.

mod archive;
mod blocks;
mod candidates;
mod collect;
mod columns;
mod damage;
mod decide;
mod deletes;
mod derived;
mod entries;
mod erase;
mod history;
mod index;
mod large;
mod made;
mod merge;
mod merged;
mod order;
mod overlay;
mod part;
mod pending;
mod policy;
mod remake;
mod rows;
mod seal;
mod size;
mod stats;
mod together;
mod too_large;
mod units;
mod verify;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rashomon_records::{
    BucketName, DomainName, Result,
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, has_rows},
};
use rashomon_tables::{Error as StoreError, TableStore};

pub use self::{
    archive::{Archive, PageLeases},
    blocks::BlockStore,
    collect::Waiting,
    damage::PassedOver,
    erase::FromBlocks,
    history::{HistoryArchiver, RowImporter},
    merge::{Merged, Merging},
    overlay::Overlay,
    policy::ArchivePolicy,
    seal::{Sealed, Sealing},
    stats::{ArchiveStats, Counter, InBlocks},
};

/// How old a block is at least that no page names before it is deleted: a sealing takes less.
pub(crate) const MIN_AGE: Duration = Duration::from_secs(2 * 3600);

/// When the superseded values of a bucket are sealed, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketArchive {
    /// Which renders are kept.
    pub policy: ArchivePolicy,
    /// How long something has to have been superseded. Longer than clocks may differ by, and than any write
    /// takes.
    pub after: Duration,
}

impl Default for BucketArchive {
    fn default() -> Self {
        Self { policy: ArchivePolicy::Every, after: Duration::from_secs(24 * 3600) }
    }
}

/// When superseded values are sealed, and how blocks are read.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// For every bucket that has none of its own.
    pub all: BucketArchive,
    /// For single buckets.
    pub buckets: BTreeMap<(DomainName, BucketName), BucketArchive>,
    /// The bytes of unpacked blocks that are kept in memory.
    pub cache_bytes: u64,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        Self { all: BucketArchive::default(), buckets: BTreeMap::new(), cache_bytes: 64 << 20 }
    }
}

impl ArchiveSettings {
    /// That of a bucket.
    #[must_use]
    pub fn of_bucket(&self, domain: &DomainName, bucket: &BucketName) -> BucketArchive {
        *self.buckets.get(&(domain.clone(), bucket.clone())).unwrap_or(&self.all)
    }
}

/// Whether something is sealed in a store. A cluster that is not there yet cannot be asked.
pub async fn is_there(store: &Arc<dyn TableStore>) -> Result<bool> {
    match has_rows(&**store, &ARCHIVE_INDEX).await {
        Err(StoreError::Unavailable(_)) => Ok(false),
        found => Ok(found?),
    }
}

/// The blocks of a store: where something is sealed, or was once. Else nobody needs to look for any.
///
/// Of several processes on one store all have to be told of the archive before one of them seals.
pub async fn blocks_of(
    store: &Arc<dyn TableStore>,
    settings: Option<&ArchiveSettings>,
) -> Result<Option<Arc<BlockStore>>> {
    let cache_bytes = match settings {
        Some(settings) => settings.cache_bytes,
        // The index lies among the rows of all pages, and would be looked for page by page. A block is written before
        // its index row, and deleted after it.
        None => match has_rows(&**store, &ARCHIVE_BLOCKS).await {
            Ok(false) => return Ok(None),
            // A cluster that is not there yet may have an archive.
            Ok(true) | Err(StoreError::Unavailable(_)) => ArchiveSettings::default().cache_bytes,
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Some(Arc::new(BlockStore::new(Arc::clone(store), cache_bytes))))
}
