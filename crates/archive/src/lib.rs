//! The archive: superseded revisions are moved into compression blocks, and stay readable.
//!
//! A seal ([`seal`]) moves whole revisions from the tables into a block ([`blocks`]), and adds one row for
//! each page and block to the [`index`]. [`mod@format`] converts revisions to the entries of a
//! block.
//!
//! The [`UnionStore`] is a store that returns sealed rows as if they were still in the tables, so that
//! readers need not know of blocks. A row in the tables hides a row with the same key in a block, since the
//! row in the tables was written later.
//!
//! # Invariants
//!
//! - A reader of rows cannot tell whether the rows are in tables or in blocks.
//! - Rows are deleted from the tables only after their block was written, read back and compared with the rows.
//! - A block that an index row names is never deleted, except in a deleted bucket.

mod archive;
mod blocks;
mod candidates;
mod collect;
mod combined;
mod compaction;
mod damage;
mod decide;
mod deleted_bucket;
mod deletes;
mod erase;
mod format;
mod history;
mod index;
mod index_cache;
mod large;
mod open_block;
mod order;
mod page_walk;
mod part;
mod pending;
mod policy;
mod recent_reads;
mod replace;
mod rewrite;
mod rows;
mod seal;
mod sealed;
mod stats;
mod too_large;
mod union;
mod union_store;
mod verified_block;
mod verify;

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use rashomon_clock::admission::{Limits, Permits};
use rashomon_records::{
    BucketName, DomainName, Result,
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, has_rows},
};
use rashomon_tables::{Error as StoreError, TableStore};

pub use rashomon_blocks::Version as BlockVersion;

pub use self::{
    archive::Archive,
    blocks::BlockStore,
    collect::DeferredEntries,
    compaction::{CompactionOptions, CompactionReport},
    damage::SkippedDamage,
    erase::BlockErasure,
    format::{BlockSums, BodySums, Unit},
    history::{AttachedChanges, HistoryArchiver, RowImporter, RowReason},
    page_walk::{PageParts, PageWalk, WalkedPage},
    policy::ArchivePolicy,
    replace::{BlockReplacement, BodyInArchive, BodyReplacer, CheckedBlocks, NewBody},
    seal::{ImportedRow, ImportedRows, MAX_PLACED_BYTES, MAX_PLACED_ROWS, SealOptions, SealReport},
    sealed::{SealedBody, SealedRange, SealedRevision, SealedRevisions},
    stats::{ArchiveStats, BlockCounts, ExpectedParts, PartCounts, PropertySpace},
    union_store::UnionStore,
    verify::{BlockChecks, BlockVisit, BlockVisits, BodyInChunks, PartContent},
};

/// The minimum age of an unreferenced block that garbage collection deletes, except in a command that has the
/// store to itself. A page starts to reference a new block much earlier, or never.
pub(crate) const MIN_BLOCK_AGE: Duration = Duration::from_secs(2 * 3600);

/// The maximum number of callers that wait to unpack a block, for each running unpack. One request may have
/// up to three waiting callers, and an unpack takes a few milliseconds. So a further caller would hardly get a
/// permit within the wait of [`unpack_limits`].
const WAITING_FOR_EACH_UNPACK: usize = 64;

/// Which renders of a bucket the archive keeps, and when superseded values are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketArchive {
    /// Which renders are kept.
    pub policy: ArchivePolicy,
    /// How long a value must have been superseded before it is sealed. If the store has writers, this time
    /// must be longer than the skew of the clocks, and longer than any write takes.
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
    /// The settings of every bucket that has no settings of its own.
    pub all: BucketArchive,
    /// The settings of single buckets.
    pub buckets: BTreeMap<(DomainName, BucketName), BucketArchive>,
    /// The maximum number of bytes of unpacked blocks in memory.
    pub cache_bytes: u64,
    /// How long a page must have been neither written nor read in this process before its latest revision is
    /// sealed. An import into blocks seals the latest revision at once. If `None`, the latest revision is
    /// never sealed.
    pub idle: Option<Duration>,
    /// The version of the format of new blocks. `None`: the latest, or the first if other processes write to the store.
    pub block_version: Option<BlockVersion>,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        Self {
            all: BucketArchive::default(),
            buckets: BTreeMap::new(),
            cache_bytes: 64 << 20,
            idle: None,
            block_version: None,
        }
    }
}

impl ArchiveSettings {
    /// Returns the settings of a bucket.
    #[must_use]
    pub fn of_bucket(&self, domain: &DomainName, bucket: &BucketName) -> BucketArchive {
        *self.buckets.get(&(domain.clone(), bucket.without_id())).unwrap_or(&self.all)
    }

    /// Whether some bucket does not keep every render.
    #[must_use]
    pub fn drops_renders(&self) -> bool {
        self.buckets.values().chain([&self.all]).any(|bucket| bucket.policy != ArchivePolicy::Every)
    }
}

/// The limits of reads that unpack blocks. By default, one unpack runs for each core of the process. More of
/// them would only take processor time from the tasks that accept and refuse requests.
#[must_use]
pub fn unpack_limits(running: Option<NonZeroUsize>) -> Limits {
    let running = running.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let waiting = running.get().saturating_mul(WAITING_FOR_EACH_UNPACK);
    Limits { running, waiting, wait: Duration::from_millis(80) }
}

/// Whether a store has sealed revisions. Returns `false` for a cluster that cannot be reached yet.
pub async fn has_sealed_revisions(store: &Arc<dyn TableStore>) -> Result<bool> {
    match has_rows(&**store, &ARCHIVE_INDEX).await {
        Err(StoreError::Unavailable(_)) => Ok(false),
        found => Ok(found?),
    }
}

/// Returns the blocks of a store, or `None` if the archive is off and the store has no blocks.
///
/// If several processes use one store, the archive must be configured in all of them before one of them
/// seals.
pub async fn blocks_of(
    store: &Arc<dyn TableStore>,
    settings: Option<&ArchiveSettings>,
    unpacks: Limits,
) -> Result<Option<Arc<BlockStore>>> {
    let cache_bytes = match settings {
        Some(settings) => settings.cache_bytes,
        // The rows of the index are spread over the partitions of all pages, so a search for any row of it
        // would go page by page. The table of blocks gives the same answer: a block is written before its
        // index rows, and (except in a deleted bucket) deleted after them.
        None => match has_rows(&**store, &ARCHIVE_BLOCKS).await {
            Ok(false) => return Ok(None),
            // A cluster that cannot be reached yet may have an archive.
            Ok(true) | Err(StoreError::Unavailable(_)) => ArchiveSettings::default().cache_bytes,
            Err(error) => return Err(error.into()),
        },
    };
    let permits = Arc::new(Permits::new(unpacks));
    Ok(Some(Arc::new(BlockStore::new(Arc::clone(store), cache_bytes, permits))))
}
