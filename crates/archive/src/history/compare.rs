//! Compares revisions of an import with those that are in blocks already.

use std::collections::HashMap;

use super::{CurrentPage, HistoryArchiver, State};
use crate::sealed::{SealedRange, SealedRevisions};
use rashomon_records::{ImportOutcome, ImportRevision, Page, Result, Revision};

impl HistoryArchiver {
    /// Compares revisions of the current page with the blocks, if the page was stored before and has no rows. `None` if
    /// something may have to be stored.
    pub(super) async fn compare_sealed(
        &self,
        state: &State,
        page: &Page,
        revisions: &[ImportRevision],
    ) -> Result<Option<Vec<ImportOutcome>>> {
        let is_sealed = |current: &CurrentPage| current.stored.is_some() && !current.has_rows;
        let revs = || revisions.iter().map(|revision| revision.record.rev);
        let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) else { return Ok(None) };
        if !state.current.as_ref().is_some_and(is_sealed) {
            return Ok(None);
        }
        let (mut stored, mut next) = (HashMap::new(), Some(lowest));
        while let Some(from) = next.filter(|from| *from <= highest) {
            // The page may have a few revisions between those of the input.
            let limit = (2 * revisions.len() + 1).saturating_sub(stored.len());
            if limit == 0 {
                return Ok(None);
            }
            let read = self.archive.sealed_revisions(page, SealedRange::From(from), limit).await?;
            let Some(SealedRevisions { revisions: read, more }) = read else { return Ok(None) };
            let last = read.last().map(|last| last.unit.revision.record.rev).filter(|_| more);
            next = last.and_then(|last| Revision::new(last.get().saturating_add(1)));
            stored.extend(read.into_iter().map(|read| (read.unit.revision.record.rev, read.unit)));
        }
        Ok(self.rows.compare(page, revisions, &stored))
    }
}
