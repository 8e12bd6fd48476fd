//! Whether it is time to seal something of a page.

use std::{collections::BTreeSet, num::NonZeroUsize};

use rashomon_tables::{ClusteringRange, Key, Scan};

use super::{MAX_UNIT, ROWS, Sealer};
use crate::{
    Page, Result, Revision,
    archive::{candidates::size_of_unit, index::index_of},
    revisioned::rev_key,
    rows::{RenderRow, RevisionRow, partition_of},
    schemas::{RENDERS, REVISIONS},
};

/// Renders of a page that are worth a block, or its part of one, at once.
const WORTH: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

impl Sealer<'_> {
    /// Whether there is enough to be sealed below a revision, or for long enough: since the next was stored. What
    /// stays for good makes no page worth it.
    pub(super) async fn is_worth_it(&self, page: &Page, below: Revision) -> Result<bool> {
        let Some(age) = self.how.unless_younger else { return Ok(true) };
        let old = self.cutoff.saturating_sub(age);
        let (mut count, mut of_last, mut after) = (0, Vec::<RenderRow>::new(), None);
        loop {
            let range = ClusteringRange::all().at_most(below.get());
            let scan = Scan::new(partition_of(page), WORTH).range(range).reverse().after(after);
            let rows = self.standing(&RENDERS, scan).await?;
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                if let Some(last) = of_last.last().filter(|last| last.rev < row.rev) {
                    let is_old = last.stored_at.max(row.stored_at) <= old;
                    let is_enough = count + of_last.len() >= WORTH.get();
                    if !self.is_too_large(page, &of_last, is_old || is_enough).await? {
                        if is_old || is_enough {
                            return Ok(true);
                        }
                        count += of_last.len();
                    }
                    of_last.clear();
                }
                if row.rev == below {
                    return Ok(false);
                }
                of_last.push(row);
            }
            after = rows.next;
            if after.is_none() {
                return Ok(false);
            }
        }
    }

    /// Whether a revision stays for good, by the renders of it that stand. Unless it `matters`, it is looked up where
    /// they alone say so.
    async fn is_too_large(&self, page: &Page, renders: &[RenderRow], matters: bool) -> Result<bool> {
        let of_renders = renders.iter().flat_map(|render| render.properties.values());
        let seems_so = of_renders.map(|info| info.size).sum::<u64>() > MAX_UNIT;
        let Some(rev) = renders.first().map(|render| render.rev).filter(|_| matters || seems_so) else {
            return Ok(false);
        };
        let all = BTreeSet::new();
        let key = Key::new(partition_of(page), rev_key(rev));
        let Some(row) = self.blocks.store.get(&REVISIONS, &key).await? else {
            // The rest of it is in a block, and would be in the next with them.
            let whole = self.as_read(page, rev).await?;
            return Ok(
                whole.is_some_and(|(revision, renders)| size_of_unit(&revision, &renders, &all) > MAX_UNIT)
            );
        };
        let revision = RevisionRow::from_row(&row)?;
        if size_of_unit(&revision, renders, &all) <= MAX_UNIT {
            return Ok(false);
        }
        let index = index_of(&*self.blocks.store, &partition_of(page)).await?;
        let left_out = self.thinning_on(&index).left_out(renders);
        Ok(size_of_unit(&revision, renders, &left_out) > MAX_UNIT)
    }

    /// The revision below which all were superseded long enough: the highest that was stored as long ago.
    pub(super) async fn superseded_below(&self, page: &Page) -> Result<Option<Revision>> {
        let (mut limit, mut after) = (NonZeroUsize::MIN, None);
        loop {
            let scan = Scan::new(partition_of(page), limit).after(after);
            let rows = self.standing(&RENDERS, scan).await?;
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                if row.stored_at <= self.cutoff && row.written_at <= self.cutoff {
                    return Ok(Some(row.rev));
                }
            }
            (limit, after) = (ROWS, rows.next);
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}
