//! What an import into blocks needs to know of a page that is stored already.

use std::num::NonZeroUsize;

use rashomon_records::{
    Page, Result, Revision,
    rows::{RenderKey, RowKey, partition_of},
    schemas::{RENDERS, REVISIONS},
};
use rashomon_tables::{Scan, first_keys};

use crate::{
    blocks::BlockStore,
    index::{IndexRow, index_of},
};

/// A page that was stored before its import.
#[derive(Debug)]
pub(super) struct StoredPage {
    /// The highest revision.
    pub(super) latest: Revision,
    /// Whether the tables have rows of it.
    pub(super) has_rows: bool,
    pub(super) index: Vec<IndexRow>,
}

impl StoredPage {
    /// Reads the page from the tables themselves, and from the index of its blocks. `None` if the page is new.
    pub(super) async fn read(blocks: &BlockStore, page: &Page) -> Result<Option<Self>> {
        let (store, partition) = (&*blocks.store, partition_of(page));
        if let Some(index) = blocks.index_if_sealed(page).await? {
            let latest = index.iter().map(|row| row.revs.1).max();
            return Ok(latest.map(|latest| Self { latest, has_rows: false, index: index.to_vec() }));
        }
        let scan = Scan::new(partition.clone(), NonZeroUsize::MIN);
        // The rows are read before the index, since a seal moves revisions from the rows into blocks.
        let render = first_keys(store, &RENDERS, scan.clone()).await?;
        let in_rows = render.first().and_then(RenderKey::read).map(|key| key.rev);
        let index = index_of(store, &partition).await?;
        let Some(latest) = index.iter().map(|row| row.revs.1).chain(in_rows).max() else { return Ok(None) };
        // If a property of a sealed revision was replaced, the tables have the row of the revision, but no renders.
        let has_rows = in_rows.is_some() || !first_keys(store, &REVISIONS, scan).await?.is_empty();
        Ok(Some(Self { latest, has_rows, index }))
    }
}
