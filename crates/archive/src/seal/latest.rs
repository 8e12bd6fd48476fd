//! Finds idle pages: pages that were neither written nor read for a time. Their latest revision is sealed, too.
//!
//! The latest revision is sealed like a superseded revision, except that all its renders are kept. The page
//! then has no rows in the tables. The next write stores rows again, whether its revision is higher than the
//! sealed one or not.

use std::num::NonZeroUsize;

use rashomon_tables::Scan;

use super::Sealer;
use rashomon_records::{
    Page, Result, Revision,
    rows::{RenderRow, RevisionRow, partition_of},
    schemas::{RENDERS, REVISIONS},
};

impl Sealer<'_> {
    /// Returns the highest revision that has rows in the tables. Returns `None` if there is none, if its row is
    /// damaged, if the page is not idle, or if idle pages are not sealed.
    pub(super) async fn idle_latest(&self, page: &Page) -> Result<Option<Revision>> {
        let Some(idle_since) = self.idle_since else { return Ok(None) };
        if self.archive.reads.as_ref().is_some_and(|reads| reads.has_read_since(page, idle_since)) {
            return Ok(None);
        }
        let mut highest = None;
        // Both tables are read: if a property of a sealed revision was replaced, the tables have the row of the
        // revision, but no renders.
        for table in [&*RENDERS, &*REVISIONS] {
            let scan = Scan::new(partition_of(page), NonZeroUsize::MIN);
            let rows = self.scan_tables(table, scan.reporting_damage()).await?;
            // `verify` reports the damaged row of a latest revision.
            if !rows.damaged.is_empty() {
                return Ok(None);
            }
            let Some(row) = rows.items.first() else { continue };
            let read = match table.name() == RENDERS.name() {
                true => RenderRow::from_row(row).map(|row| (row.rev, row.stored_at)),
                false => RevisionRow::from_row(row).map(|row| (row.record.rev, row.stored_at)),
            };
            let Ok((rev, stored_at)) = read else { return Ok(None) };
            if stored_at.max(row.written_at) > idle_since {
                return Ok(None);
            }
            highest = highest.max(Some(rev));
        }
        Ok(highest)
    }
}
