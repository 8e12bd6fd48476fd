//! Lists and replaces the values of a property, for commands that go through a whole bucket.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_tables::{Cursor, Scan};

use super::{Maintenance, RevisionStore};
use crate::{
    Listing, Page, PropertyInfo, PropertyName, Result, Revision, Tid, Versions,
    archive::{BlockReplacement, BodyReplacer, CheckedBlocks},
    rows::{RenderRow, RevisionRow, partition_of},
    schemas::{RENDERS, REVISIONS},
};

/// A value of a property that is in the tables. Its body may have been culled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableValue {
    /// The revision.
    pub rev: Revision,
    /// The render, or the first render of the revision if the property belongs to the revision.
    pub tid: Tid,
    /// The stored headers, size and SHA-1.
    pub info: PropertyInfo,
}

impl RevisionStore {
    /// Returns the values of a property that the page has in the tables, the highest revision first. Omits
    /// values in blocks, and renders whose bodies the archive's policy left out. Also returns the cursor of the
    /// next result page, if there is a next page. A result page may be empty.
    #[boxed]
    pub async fn table_values(
        &self,
        page: &Page,
        name: &PropertyName,
        after: Option<Cursor>,
    ) -> Result<Listing<TableValue, Cursor>> {
        let records = &self.0.records;
        let tables = match &self.0.archive {
            Some(archive) => archive.tables(),
            None => &records.store,
        };
        let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).after(after);
        let mut items = Vec::new();
        let next = match records.definitions.get(name).versions {
            Versions::Render => {
                let rows = tables.scan(&RENDERS, scan).await?;
                for row in &rows.items {
                    let mut row = RenderRow::from_row(row)?;
                    let info = row.properties.remove(name).filter(|_| !row.left_out);
                    items.extend(info.map(|info| TableValue { rev: row.rev, tid: row.tid, info }));
                }
                rows.next
            }
            Versions::Revision => {
                let rows = tables.scan(&REVISIONS, scan).await?;
                for row in &rows.items {
                    let mut row = RevisionRow::from_row(row)?;
                    let (rev, tid) = (row.record.rev, row.first_tid);
                    items.extend(row.properties.remove(name).map(|info| TableValue { rev, tid, info }));
                }
                rows.next
            }
        };
        Ok(Listing { items, next })
    }
}

impl Maintenance {
    /// Replaces bodies in the blocks of a page. See [`rashomon_archive::Archive::replace_bodies`].
    #[boxed]
    pub async fn replace_in_blocks(
        &self,
        page: &Page,
        replacer: Arc<dyn BodyReplacer>,
        concurrency: usize,
        checked: &mut CheckedBlocks,
    ) -> Result<BlockReplacement> {
        match &self.0.archive {
            Some(archive) => archive.replace_bodies(page, &*replacer, concurrency, checked).await,
            None => Ok(BlockReplacement::default()),
        }
    }
}
