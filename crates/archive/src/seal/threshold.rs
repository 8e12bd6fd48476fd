//! Decides whether a page is worth sealing now.

use std::{collections::BTreeSet, num::NonZeroUsize};

use crate::format::{MAX_UNIT_BODY_BYTES, MAX_UNIT_ENTRIES, MAX_UNIT_VALUE_BYTES, UnitSize};
use rashomon_tables::{ClusteringRange, Error as StoreError, Key, Scan};

use super::{
    Sealer,
    renders::{RevisionRenders, TOO_MANY_RENDERS},
};
use crate::index::index_of;
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, Result, Revision,
    rows::{RenderRow, RevisionRow, index_size, partition_of, rev_key},
    schemas::{RENDERS, REVISIONS},
};

/// The minimum number of renders for which a page is sealed without a further wait.
const MIN_RENDERS_TO_SEAL: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

impl Sealer<'_> {
    /// Whether the revisions below `below` are worth sealing: they have enough renders, or one of them has been
    /// eligible for `max_wait`. Always `true` without a `max_wait`. A revision becomes eligible when the next
    /// revision has been stored for `after`. Revisions that are damaged or too large for a block do not count.
    pub(super) async fn should_seal_now(&self, page: &Page, below: Revision) -> Result<bool> {
        let Some(max_wait) = self.options.max_wait else { return Ok(true) };
        let old = self.cutoff.saturating_sub(max_wait);
        let (mut count, mut of_last, mut bytes) = (0, Vec::<RenderRow>::new(), 0);
        let (mut range, mut after) = (ClusteringRange::all().at_most(below.get()), None);
        'pages: loop {
            let scan = Scan::new(partition_of(page), MIN_RENDERS_TO_SEAL)
                .range(range.clone())
                .reverse()
                .after(after);
            let rows = self.scan_tables(&RENDERS, scan.reporting_damage()).await?;
            for row in &rows.items {
                let Ok(row) = RenderRow::from_row(row) else { continue };
                if let Some(last) = of_last.last().filter(|last| last.rev < row.rev) {
                    let is_old = last.stored_at.max(row.stored_at) <= old;
                    let is_enough = count + of_last.len() >= MIN_RENDERS_TO_SEAL.get();
                    if !self.is_too_large(page, &of_last, is_old || is_enough).await? {
                        if is_old || is_enough {
                            return Ok(true);
                        }
                        count += of_last.len();
                    }
                    (of_last, bytes) = (Vec::new(), 0);
                }
                if row.rev == below {
                    return Ok(false);
                }
                bytes += index_size(&row.properties);
                let is_too_large = of_last.len() >= MAX_UNIT_ENTRIES || bytes > MAX_UNIT_VALUE_BYTES;
                let now = self.archive.records.clock.now();
                let is_known = self.archive.blocks.too_large.is_known(page, row.rev, now);
                if is_too_large && !is_known {
                    self.archive.blocks.too_large.remember(page, row.rev, TOO_MANY_RENDERS, now);
                }
                if is_too_large || is_known {
                    // The other renders of the revision are not read.
                    range = range.above(row.rev.get());
                    (of_last, bytes, after) = (Vec::new(), 0, None);
                    continue 'pages;
                }
                of_last.push(row);
            }
            after = rows.next;
            if after.is_none() {
                return Ok(false);
            }
        }
    }

    /// Whether a revision stays in the tables because it is too large for a block, or damaged. `renders` are
    /// its renders in the tables. Unless `matters` is set, reads the revision only if the renders alone
    /// suggest that it is too large.
    async fn is_too_large(&self, page: &Page, renders: &[RenderRow], matters: bool) -> Result<bool> {
        let Some(rev) = renders.first().map(|render| render.rev) else { return Ok(false) };
        let of_renders = renders.iter().flat_map(|render| render.properties.values());
        let entries = of_renders.clone().count();
        let looks_too_large =
            entries > MAX_UNIT_ENTRIES || of_renders.map(|info| info.size).sum::<u64>() > MAX_UNIT_BODY_BYTES;
        if !matters && !looks_too_large {
            return Ok(false);
        }
        let why = match self.why_too_large(page, rev, renders).await {
            // A damaged revision stays, and does not count.
            Err(Error::Store(StoreError::Corrupt(_))) => return Ok(true),
            why => why?,
        };
        if let Some(why) = why {
            self.archive.blocks.too_large.remember(page, rev, why, self.archive.records.clock.now());
        }
        Ok(why.is_some())
    }

    async fn why_too_large(
        &self,
        page: &Page,
        rev: Revision,
        renders: &[RenderRow],
    ) -> Result<Option<&'static str>> {
        let all = BTreeSet::new();
        let key = Key::new(partition_of(page), rev_key(rev));
        let Some(row) = self.archive.blocks.store.get(&REVISIONS, &key).await? else {
            // The row of the revision is in a block. A seal would seal the whole revision again, with these
            // renders.
            return Ok(match self.as_read(page, rev).await? {
                Some((revision, RevisionRenders::All(renders))) => {
                    UnitSize::of(&revision, &renders, &all).excess()
                }
                Some((_, RevisionRenders::TooMany)) => Some(TOO_MANY_RENDERS),
                Some((_, RevisionRenders::Damaged(_))) | None => None,
            });
        };
        let revision = RevisionRow::from_row(&row)?;
        if UnitSize::of(&revision, renders, &all).excess().is_none() {
            return Ok(None);
        }
        let index = index_of(&*self.archive.blocks.store, &partition_of(page)).await?;
        let left_out = self.thinning_on(&index).left_out(renders);
        Ok(UnitSize::of(&revision, renders, &left_out).excess())
    }

    /// Returns the revision below which all revisions were superseded long enough ago: the highest revision
    /// with a render that was stored and last written at the cutoff or before.
    pub(super) async fn superseded_below(&self, page: &Page) -> Result<Option<Revision>> {
        let (mut limit, mut after) = (NonZeroUsize::MIN, None);
        loop {
            let scan = Scan::new(partition_of(page), limit).after(after);
            let rows = self.scan_tables(&RENDERS, scan.reporting_damage()).await?;
            for row in &rows.items {
                let Ok(row) = RenderRow::from_row(row) else { continue };
                // Only revisions of an import are sealed, which may go on with the same page. They need not have been
                // superseded before the cutoff.
                let is_import = self.only.is_some();
                if is_import || (row.stored_at <= self.cutoff && row.written_at <= self.cutoff) {
                    return Ok(Some(row.rev));
                }
            }
            (limit, after) = (INDEX_PAGE_ROWS, rows.next);
            if after.is_none() {
                return Ok(None);
            }
        }
    }
}
