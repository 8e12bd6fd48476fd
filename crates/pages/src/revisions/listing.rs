//! Lists of the revisions of a page, and of the renders of a revision.
//!
//! The cost of a result page is bounded by the length of the result page, and does not depend on the length of
//! the list.

use std::{cmp::Reverse, collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_tables::{ClusteringRange, Order, Scan, Value};

use super::{RevisionStore, SINGLE_ROW, StoreInner, read::with_revision};
use crate::{
    Listing, Page, PropertyInfo, RenderInfo, Result, Revision, RevisionDetail, RevisionSummary, Tid,
    rows::{
        Properties, RenderHead, RenderKey, RenderRow, RevisionKey, RevisionRow, RowKey, of_revision,
        partition_of,
    },
    schemas::{RENDERS, REVISIONS},
};

/// The number of bytes of rows at which a result page ends early. An answer with these rows is about full.
const MAX_LIST_BYTES: usize = 1 << 20;

/// The number of rows that are read first for a result page. The size of these rows shows how many more fit.
const FIRST_ROWS: usize = 64;

/// The number of rows of a scan of renders that counts them.
const COUNTED_ROWS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// The number of renders at which counting renders stops for a result page of the list of revisions. If the
/// revisions of a result page have more renders, the result page ends early. A single revision with more
/// renders is reported with this number.
pub const MAX_COUNTED_RENDERS: u64 = 5_000;

/// The number of bytes of rows at which counting renders stops. A result page that needs more counts ends early.
const MAX_COUNTED_BYTES: usize = 12 << 20;

/// The maximum number of renders that a line of the list of revisions names: the newest ones of the revision.
const MAX_NAMED_RENDERS: usize = 4;

/// The rows that a result page has read.
#[derive(Debug, Default)]
struct RowsRead {
    rows: usize,
    bytes: usize,
}

impl RowsRead {
    /// Counts a row.
    fn count(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Whether the result page is full.
    const fn is_full(&self) -> bool {
        self.bytes >= MAX_LIST_BYTES
    }

    /// The number of rows to read next: at most `wanted`, and about as many as fit by the size of those before.
    fn next(&self, wanted: usize) -> NonZeroUsize {
        let fitting = match self.bytes.checked_div(self.rows) {
            None => FIRST_ROWS,
            Some(average) => MAX_LIST_BYTES.saturating_sub(self.bytes) / average.max(1) + 1,
        };
        NonZeroUsize::new(wanted.min(fitting)).unwrap_or(SINGLE_ROW).min(INDEX_PAGE_ROWS)
    }
}

/// The renders before and after a render, in the same revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RendersBeside {
    /// The next newer renders, newest first.
    pub newer: Vec<Tid>,
    /// The next older renders, newest first.
    pub older: Vec<Tid>,
}

impl RevisionStore {
    /// Returns a revision with its renders below `after`, newest first: at most `limit`, and fewer if their
    /// rows are large. Also returns the render after which the next result page begins, if there is a next page.
    #[boxed]
    pub async fn revision_page(
        &self,
        page: &Page,
        rev: Revision,
        after: Option<Tid>,
        limit: usize,
    ) -> Result<(RevisionDetail, Option<Tid>)> {
        let inner = &self.0;
        let Some(revision) = inner.records.revision(page, rev).await? else {
            return Err(inner.records.no_revision(page, rev).await?);
        };
        let culls = inner.retention.culls(page, rev, rev).await?;
        let of_rev = of_revision(rev);
        let range = match after {
            Some(tid) => of_rev.below(tid.as_time_uuid()),
            None => of_rev,
        };
        let (mut renders, mut cursor, mut read) = (Vec::new(), None, RowsRead::default());
        let more = loop {
            let scan = Scan::new(partition_of(page), read.next(limit + 1 - renders.len()))
                .range(range.clone())
                .after(cursor);
            let rows = inner.records.scan(&RENDERS, scan).await?;
            for row in &rows.items {
                read.count(row.size());
                let row = RenderRow::from_row(row)?;
                renders.push(RenderInfo {
                    stored: culls.spare_render(&row),
                    tid: row.tid,
                    properties: with_revision(row.properties, &revision.properties),
                });
            }
            cursor = rows.next;
            if renders.len() > limit || cursor.is_none() || read.is_full() {
                break renders.len() > limit || cursor.is_some();
            }
        };
        renders.truncate(limit);
        let next = renders.last().filter(|_| more).map(|last| last.tid);
        Ok((RevisionDetail { record: Arc::new(revision.record), renders }, next))
    }

    /// Returns the renders of a revision before and after one of its renders, at most `limit` on each side.
    #[boxed]
    pub async fn renders_beside(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        limit: NonZeroUsize,
    ) -> Result<RendersBeside> {
        let of_rev = || of_revision(rev);
        let tids = async |range, order| {
            let mut scan = Scan::new(partition_of(page), limit).range(range);
            scan.order = order;
            let rows = self.0.records.scan(&RENDERS, scan).await?;
            rows.items.iter().map(|row| Ok(RenderRow::from_row(row)?.tid)).collect::<Result<Vec<_>>>()
        };
        let (mut newer, older) = futures::future::try_join(
            tids(of_rev().above(tid.as_time_uuid()), Order::Reverse),
            tids(of_rev().below(tid.as_time_uuid()), Order::Forward),
        )
        .await?;
        newer.reverse();
        Ok(RendersBeside { newer, older })
    }

    /// Returns the next revision above `rev` that has a render.
    #[boxed]
    pub async fn next_revision(&self, page: &Page, rev: Revision) -> Result<Option<Revision>> {
        let scan = Scan::new(partition_of(page), SINGLE_ROW).range(ClusteringRange::all().above(rev.get()));
        let rows = self.0.records.scan(&RENDERS, scan.reverse()).await?;
        rows.items.first().map(|row| Ok(RenderRow::from_row(row)?.rev)).transpose()
    }

    /// Returns the revisions of the page below `after`, latest first: at most `limit`, and fewer if they have
    /// many renders. A revision whose row is damaged is included, as [`RevisionSummary::unreadable`].
    ///
    /// Fails with `Missing::Page` if the list is empty and the page does not exist.
    #[boxed]
    pub async fn revisions(
        &self,
        page: &Page,
        after: Option<Revision>,
        limit: usize,
    ) -> Result<Listing<RevisionSummary, Revision>> {
        let inner = &self.0;
        let below = |rev: Option<Revision>| match rev {
            Some(rev) => ClusteringRange::all().below(rev.get()),
            None => ClusteringRange::all(),
        };
        let mut items: Vec<RevisionSummary> = Vec::new();
        let (mut last, mut read) = (after, RowsRead::default());
        let (complete_from, is_full) = loop {
            let scan = Scan::new(partition_of(page), read.next(limit + 1 - items.len())).range(below(last));
            let rows = inner.records.scan_beside_damage(&REVISIONS, scan).await?;
            let more = rows.next.is_some();
            rows.items.iter().for_each(|row| read.count(row.size()));
            let revisions = rows.items.iter().map(RevisionRow::from_row).collect::<Result<Vec<_>>>()?;
            let damaged = rows.damaged.iter().filter_map(|row| RevisionKey::read(&row.key));
            let damaged: Vec<_> = damaged.map(|key| key.rev).collect();
            let revs = revisions.iter().map(|row| row.record.rev).chain(damaged.iter().copied());
            last = revs.min().or(last);
            let Summaries { mut lines, complete_from } = inner.summaries(page, revisions).await?;
            let damaged = damaged.into_iter().filter(|rev| complete_from.is_none_or(|from| *rev >= from));
            lines.extend(damaged.map(RevisionSummary::unreadable));
            lines.sort_by_key(|line| Reverse(line.record.rev));
            items.extend(lines);
            let is_full = read.is_full() && !items.is_empty() && more;
            if complete_from.is_some() || items.len() > limit || is_full || !more {
                break (complete_from, is_full);
            }
        };
        if items.is_empty() && complete_from.is_none() {
            inner.records.check_exists(page).await?;
        }
        let more = complete_from.is_some() || is_full || items.len() > limit;
        items.truncate(limit);
        let last = items.last().map(|last| last.record.rev).or(complete_from);
        Ok(Listing { items, next: last.filter(|_| more) })
    }
}

/// Lines of the list of revisions.
#[derive(Default)]
struct Summaries {
    lines: Vec<RevisionSummary>,
    /// The number below which revisions were omitted, since there are too many renders to count. `None` if no
    /// revision was omitted.
    complete_from: Option<Revision>,
}

/// The number of renders of several revisions.
#[derive(Default)]
struct RenderCounts {
    /// The counts by revision, the highest revision first.
    counted: Vec<CountedRenders>,
    /// The revisions that have damaged rows of renders. For each revision: the newest of its damaged renders,
    /// by the keys of the rows, and the number of damaged renders.
    damaged: BTreeMap<Revision, (Tid, u64)>,
    /// The number below which revisions have not been counted. `None` if all revisions were counted.
    complete_from: Option<Revision>,
}

/// The number of renders of one revision.
struct CountedRenders {
    /// The newest render that the archive's policy kept, or the newest render if the policy kept none.
    newest: RenderRow,
    count: u64,
    /// The tids of the newest renders, at most [`MAX_NAMED_RENDERS`].
    named: Vec<Tid>,
}

impl StoreInner {
    /// Builds the lines of the list for consecutive revisions, the highest first. Omits a revision without a
    /// stored render, since the render may not be visible yet.
    async fn summaries(&self, page: &Page, revisions: Vec<RevisionRow>) -> Result<Summaries> {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else {
            return Ok(Summaries::default());
        };
        let range = ClusteringRange::all()
            .at_most(Value::Int(first.record.rev.get()))
            .at_least(Value::Int(last.record.rev.get()));
        let culls = self.retention.culls(page, last.record.rev, first.record.rev).await?;
        let RenderCounts { counted, damaged, complete_from } = self.count_renders(page, range).await?;
        let mut counted = counted.into_iter().peekable();
        let mut lines = Vec::with_capacity(revisions.len());
        let is_complete =
            |revision: &RevisionRow| complete_from.is_none_or(|from| revision.record.rev >= from);
        for revision in revisions.into_iter().filter(is_complete) {
            while counted.next_if(|of| of.newest.rev > revision.record.rev).is_some() {}
            let of_damaged = damaged.get(&revision.record.rev).copied();
            let Some(CountedRenders { newest, count, named }) =
                counted.next_if(|of| of.newest.rev == revision.record.rev)
            else {
                if let Some((tid, renders)) = of_damaged {
                    let size = revision.properties.values().map(|info| info.size).sum();
                    lines.push(RevisionSummary {
                        stored: culls.spare_revision(&revision),
                        size,
                        damaged: true,
                        record: Arc::new(revision.record),
                        tid,
                        renders: renders.min(MAX_COUNTED_RENDERS),
                        newest_renders: vec![tid],
                        unreadable: false,
                    });
                }
                continue;
            };
            let (_, damaged_renders) = of_damaged.unwrap_or((newest.tid, 0));
            // The properties of the revision are always kept, and can be read through any of its renders.
            let counts_only_revision = newest.left_out && !revision.properties.is_empty();
            let of_render = (!counts_only_revision).then_some(&newest.properties);
            let properties =
                || of_render.into_iter().flat_map(Properties::values).chain(revision.properties.values());
            lines.push(RevisionSummary {
                stored: culls.spare_revision(&revision)
                    && (counts_only_revision || culls.spare_render(&newest)),
                size: properties().map(|info| info.size).sum(),
                damaged: damaged_renders > 0 || properties().any(PropertyInfo::is_damaged),
                record: Arc::new(revision.record),
                tid: newest.tid,
                renders: (count + damaged_renders).min(MAX_COUNTED_RENDERS),
                newest_renders: named,
                unreadable: false,
            });
        }
        Ok(Summaries { lines, complete_from })
    }

    /// Counts the renders in a range by revision. Stops after the result page of the store that reaches
    /// [`MAX_COUNTED_RENDERS`] or [`MAX_COUNTED_BYTES`]. Parses the properties only of renders that may
    /// become [`CountedRenders::newest`].
    async fn count_renders(&self, page: &Page, range: ClusteringRange) -> Result<RenderCounts> {
        let mut counts = RenderCounts::default();
        let (mut after, mut renders, mut bytes, mut lowest) = (None, 0, 0, None);
        loop {
            let scan = Scan::new(partition_of(page), COUNTED_ROWS).range(range.clone()).after(after);
            let rows = self.records.scan_beside_damage(&RENDERS, scan).await?;
            for row in &rows.damaged {
                let Some(RenderKey { rev, tid }) = RowKey::read(&row.key) else { continue };
                let of_rev = counts.damaged.entry(rev).or_insert((tid, 0));
                *of_rev = (of_rev.0.max(tid), of_rev.1 + 1);
                lowest = lowest.min(Some(rev)).or(Some(rev));
                renders += 1;
            }
            for row in &rows.items {
                let RenderHead { rev, tid, left_out } = RenderHead::from_row(row)?;
                lowest = lowest.min(Some(rev)).or(Some(rev));
                renders += 1;
                bytes += row.size();
                match counts.counted.last_mut() {
                    Some(of) if of.newest.rev == rev => {
                        of.count += 1;
                        if of.named.len() < MAX_NAMED_RENDERS {
                            of.named.push(tid);
                        }
                        if of.newest.left_out && !left_out {
                            of.newest = RenderRow::from_row(row)?;
                        }
                    }
                    _ => {
                        let newest = RenderRow::from_row(row)?;
                        counts.counted.push(CountedRenders { count: 1, named: vec![tid], newest });
                    }
                }
            }
            after = rows.next;
            if after.is_none() {
                return Ok(counts);
            }
            if renders >= MAX_COUNTED_RENDERS || bytes >= MAX_COUNTED_BYTES {
                // The renders of the lowest revision may not all have been counted, so the next result page
                // lists this revision. If it is the only revision, its count so far is reported.
                let highest = (counts.counted.first().map(|of| of.newest.rev))
                    .max(counts.damaged.last_key_value().map(|(rev, _)| *rev));
                counts.complete_from = match lowest {
                    Some(lowest) if Some(lowest) != highest => Revision::new(lowest.get().saturating_add(1)),
                    lowest => lowest,
                };
                return Ok(counts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_rows_follows_from_the_size_of_those_before() {
        let mut read = RowsRead::default();
        assert_eq!([read.next(0), read.next(51), read.next(501)].map(NonZeroUsize::get), [1, 51, FIRST_ROWS]);
        (0..64).for_each(|_| read.count(200));
        assert_eq!((read.next(437).get(), read.next(5000), read.is_full()), (437, INDEX_PAGE_ROWS, false));
        (0..64).for_each(|_| read.count(8000));
        let next = read.next(500).get();
        assert!((100..150).contains(&next), "{next}");
        (0..next).for_each(|_| read.count(4100));
        assert!(read.is_full());
        assert_eq!(read.next(500), SINGLE_ROW);
    }
}
