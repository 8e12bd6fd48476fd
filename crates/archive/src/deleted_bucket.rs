//! Deletion of the blocks of a bucket that was deleted.

use rashomon_records::{
    INDEX_PAGE_ROWS, Page, Result,
    rows::{ColumnValue as _, partition_of},
    schemas::ARCHIVE_INDEX,
};
use rashomon_tables::{Batch, Scan, first_keys};

use super::{Archive, collect::GcEntry, rows::BlockId};

impl Archive {
    /// Deletes the blocks that a page of a deleted bucket references, and then the index of the page. Any
    /// other page in these blocks belongs to the same bucket. Returns whether rows of the index are left.
    ///
    /// A seal of another process may add rows to the index after this call, so the call has to be repeated
    /// later.
    pub async fn delete_of_page(&self, page: &Page) -> Result<bool> {
        let (mut before, store) = (Vec::new(), &*self.blocks.store);
        loop {
            let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS);
            let keys = first_keys(store, &ARCHIVE_INDEX, scan).await?;
            // If the clock was set back, rows with later write times stay until the clock reaches these times.
            if keys == before {
                return Ok(!keys.is_empty());
            }
            before.clone_from(&keys);
            let at = self.records.latest_time();
            let mut removal = Batch::new(partition_of(page));
            for key in keys {
                if let Some(id) = key.clustering.get(1).and_then(BlockId::from_value) {
                    self.blocks.delete_block(&GcEntry { id, pages: vec![page.clone()] }, at).await?;
                }
                removal.delete(&ARCHIVE_INDEX, key.clustering, at);
            }
            store.write(Vec::new(), removal).await?;
        }
    }
}
