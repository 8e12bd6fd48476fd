//! The archive: what was superseded long enough lies in compression blocks, and is read as before.
//!
//! Sealing ([`seal`]) takes whole revisions out of the tables of pages, and puts them into a block ([`entries`],
//! [`blocks`]) and a row for each page and block into the [`index`]. The [`Overlay`] is a store in which the rows
//! still are: whoever reads them does not know where they lie. A row that stands in the tables themselves was
//! written later than one of the same key in a block, and hides it.

mod blocks;
mod collect;
mod columns;
mod decide;
mod deletes;
mod derived;
mod entries;
mod erase;
mod history;
mod index;
mod made;
mod merge;
mod merged;
mod order;
mod overlay;
mod part;
mod pending;
mod policy;
mod remake;
mod seal;
mod stats;
mod together;
mod units;
mod verify;

use std::{sync::Arc, time::Duration};

use rashomon_tables::{Error as StoreError, TableStore};

pub(crate) use self::{blocks::BlockStore, overlay::Overlay, stats::Counter};
pub use self::{
    history::HistoryArchiver,
    merge::{Merged, Merging},
    policy::ArchivePolicy,
    seal::{Sealed, Sealing},
    stats::ArchiveStats,
};
use crate::{
    Result,
    schemas::{ARCHIVE_INDEX, has_rows},
};

/// How old a block is at least that no page names before it is deleted: a sealing takes less.
pub(crate) const MIN_AGE: Duration = Duration::from_secs(2 * 3600);

/// When superseded values are sealed, and how blocks are read.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Which renders are kept.
    pub policy: ArchivePolicy,
    /// How long something has to have been superseded. Longer than clocks may differ by, and than any write
    /// takes.
    pub after: Duration,
    /// The bytes of unpacked blocks that are kept in memory.
    pub cache_bytes: u64,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        Self { policy: ArchivePolicy::Every, after: Duration::from_secs(24 * 3600), cache_bytes: 64 << 20 }
    }
}

/// Whether something is sealed in a store. A cluster that is not there yet cannot be asked.
pub(crate) async fn is_there(store: &Arc<dyn TableStore>) -> Result<bool> {
    match has_rows(&**store, &ARCHIVE_INDEX).await {
        Err(StoreError::Unavailable(_)) => Ok(false),
        found => Ok(found?),
    }
}

/// The blocks of a store: where something is sealed, or was once. Else nobody needs to look for any.
///
/// Of several processes on one store all have to be told of the archive before one of them seals.
pub(crate) async fn blocks_of(
    store: &Arc<dyn TableStore>,
    settings: Option<&ArchiveSettings>,
) -> Result<Option<Arc<BlockStore>>> {
    let cache_bytes = match settings {
        Some(settings) => settings.cache_bytes,
        None => match has_rows(&**store, &ARCHIVE_INDEX).await {
            Ok(false) => return Ok(None),
            // A cluster that is not there yet may have an archive.
            Ok(true) | Err(StoreError::Unavailable(_)) => ArchiveSettings::default().cache_bytes,
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Some(Arc::new(BlockStore::new(Arc::clone(store), cache_bytes))))
}
