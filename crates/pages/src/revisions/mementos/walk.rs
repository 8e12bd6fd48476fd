//! Iterates over the revisions of a page by time, to find the revisions that have a property.
//!
//! The cost of a walk is bounded for a history of any length. A walk examines at most [`MAX_REVISIONS`]
//! revisions, and stops when the cost of the rows that it has read reaches [`MAX_COST`]. Revisions with close
//! numbers are read together.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    num::NonZeroUsize,
};

use rashomon_clock::Timestamp;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_retention::Culls;
use rashomon_tables::{ClusteringRange, Cursor, Order, Row, Scan, Schema, Value};

use super::{MementoPosition, State, second};
use crate::{
    Error, Missing, Page, PropertyInfo, PropertyName, PropertyVersion, Result, Revision, Tid, Versions,
    revisions::StoreInner,
    rows::{
        RenderHead, RenderKey, RenderRow, RevisionRow, RowKey, TimeKey, of_revision, partition_of, rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TIME},
};

/// The maximum number of revisions that a walk examines.
const MAX_REVISIONS: usize = 2_000;

/// The cost at which a walk stops: the sum of the [`cost`] of each row that the walk has read, and of one for
/// each read. The last reads may exceed this cost.
const MAX_COST: usize = 10_000;

/// The maximum cost of the renders of one revision that [`Walk::renders_of`] returns. If all renders of the
/// revision cost more, only the newest are returned, and the older renders can be neither selected nor listed.
const MAX_COST_OF_STATE: usize = 4_000;

/// The number of revisions that the first step looks up. The second step looks up as many as the caller still wants. Each
/// further step looks up four times as many, up to [`INDEX_PAGE_ROWS`].
const FIRST_STEP: usize = 8;

/// The number of rows that a step reads for each of its revisions, on average. A step reads the rows of all its
/// revisions in one scan. The limit of the scan is this number times the number of revisions, but at most
/// [`INDEX_PAGE_ROWS`]. Revisions that the scan does not cover completely are read one by one.
const ROWS_OF_REVISION: usize = 4;

/// Returns the cost of reading a row: one, plus one for each KiB.
fn cost(row: &Row) -> usize {
    1 + row.size() / 1024
}

/// The result of a step of a walk.
#[derive(Debug)]
pub(super) enum WalkStep {
    /// The next revision that has the property.
    State(State),
    /// No further revision has the property.
    End,
    /// The walk has reached its bounds. There may be further revisions that have the property.
    Exhausted,
}

/// Iterates over the revisions of a page that have a property, by time.
pub(super) struct Walk<'a> {
    page: &'a Page,
    name: &'a PropertyName,
    /// The unread ranges of the index by time.
    ranges: VecDeque<ClusteringRange>,
    order: Order,
    /// The position in the first range.
    cursor: Option<Cursor>,
    /// The number of revisions that the next step looks up.
    step: usize,
    /// The number of states that the caller wants, without those that were looked up.
    wanted: usize,
    /// The revisions that were looked up, and are not examined yet.
    ahead: VecDeque<(Timestamp, Revision)>,
    rows_ahead: RowsAhead,
    /// The tables of which rows are read together. A table is left out once most of the rows were of other revisions: the
    /// revisions that are close by time have distant numbers.
    read_together: Vec<&'static Schema>,
    /// The last revision that was examined.
    examined: Option<(Timestamp, Revision)>,
    /// Whether this walk has examined a revision.
    has_examined: bool,
    revisions_left: usize,
    cost_left: usize,
}

/// Rows that were read together for the revisions in [`Walk::ahead`].
#[derive(Default)]
struct RowsAhead {
    culls: Culls,
    revisions: RowsByRevision,
    renders: RowsByRevision,
}

/// Rows of a table by revision, those of each revision in the order of the table.
#[derive(Default)]
struct RowsByRevision {
    /// The number from which the rows are complete: all rows of the revisions in [`Walk::ahead`] with this number or a
    /// higher one were read. `None` if the rows of no revision are known to be complete.
    complete_from: Option<Revision>,
    rows: BTreeMap<Revision, Vec<Row>>,
}

impl RowsByRevision {
    fn are_complete_for(&self, rev: Revision) -> bool {
        self.complete_from.is_some_and(|from| from <= rev)
    }

    /// Takes all rows of a revision. `None` if they were not read.
    fn take(&mut self, rev: Revision) -> Option<Vec<Row>> {
        self.are_complete_for(rev).then(|| self.rows.remove(&rev).unwrap_or_default())
    }
}

impl<'a> Walk<'a> {
    fn new(page: &'a Page, name: &'a PropertyName, ranges: Vec<ClusteringRange>, order: Order) -> Self {
        Self {
            page,
            name,
            ranges: ranges.into(),
            order,
            cursor: None,
            step: FIRST_STEP,
            wanted: 0,
            ahead: VecDeque::new(),
            rows_ahead: RowsAhead::default(),
            read_together: vec![&RENDERS, &REVISIONS],
            examined: None,
            has_examined: false,
            revisions_left: MAX_REVISIONS,
            cost_left: MAX_COST,
        }
    }

    /// Creates a walk back in time, which begins at `from`.
    pub(super) fn backward_from(page: &'a Page, name: &'a PropertyName, from: Timestamp) -> Self {
        Self::new(page, name, vec![ClusteringRange::all().at_most(from)], Order::Forward)
    }

    /// Creates a walk forward in time, which begins after the revision `after`, or at the first revision. The caller wants
    /// about this many states.
    pub(super) fn forward_after(
        page: &'a Page,
        name: &'a PropertyName,
        after: Option<(Timestamp, Revision)>,
        wanted: usize,
    ) -> Self {
        let ranges = match after {
            None => vec![ClusteringRange::all()],
            Some((time, rev)) => vec![
                ClusteringRange::prefix(vec![Value::Timestamp(time)]).above(rev.get()),
                ClusteringRange::all().above(time),
            ],
        };
        let walk = Self::new(page, name, ranges, Order::Reverse);
        Self { examined: after, wanted, ..walk }
    }

    /// Creates a walk forward in time, which begins after `from`. The new walk may examine as many revisions, and
    /// cost as much, as this walk has left.
    pub(super) fn forward_with_remaining_cost(self, from: Timestamp) -> Self {
        let ranges = vec![ClusteringRange::all().above(from)];
        let Self { revisions_left, cost_left, .. } = self;
        Self { revisions_left, cost_left, ..Self::new(self.page, self.name, ranges, Order::Reverse) }
    }

    /// Returns the time of the last examined revision, in whole seconds since 1970.
    pub(super) fn examined_until(&self) -> Option<i64> {
        self.examined.map(|(time, _)| second(time))
    }

    /// Returns the position at which the next result page continues. `state` is the state whose renders may not
    /// all be listed yet, because this walk stopped before it found the next state.
    pub(super) fn position(
        &self,
        state: Option<(Timestamp, Revision, Option<Tid>)>,
    ) -> Option<MementoPosition> {
        self.examined.map(|examined| MementoPosition { state, examined })
    }

    /// Returns the error for a walk that reached its bounds before the state was certain.
    pub(super) fn out_of_reach(&self) -> Error {
        Error::NotFound(Missing::OutOfReach { examined: MAX_REVISIONS - self.revisions_left })
    }

    /// Finds the next revision that has the property.
    pub(super) async fn next(&mut self, inner: &StoreInner) -> Result<WalkStep> {
        loop {
            while let Some((timestamp, rev)) = self.ahead.front().copied() {
                // A result page of a list makes progress, whatever it costs.
                if self.revisions_left == 0 || self.cost_left == 0 && self.has_examined {
                    return Ok(WalkStep::Exhausted);
                }
                self.ahead.pop_front();
                self.revisions_left -= 1;
                let state = self.state_of(inner, timestamp, rev).await?;
                (self.examined, self.has_examined) = (Some((timestamp, rev)), true);
                if let Some(state) = state {
                    return Ok(WalkStep::State(state));
                }
            }
            if self.ranges.is_empty() {
                return Ok(WalkStep::End);
            }
            self.look_ahead(inner).await?;
        }
    }

    /// Reads the last state of the previous walk again. Returns `None` if its revision no longer has the
    /// property.
    pub(super) async fn resume(
        &mut self,
        inner: &StoreInner,
        timestamp: Timestamp,
        rev: Revision,
    ) -> Result<Option<State>> {
        self.rows_ahead =
            RowsAhead { culls: inner.retention.culls(self.page, rev, rev).await?, ..RowsAhead::default() };
        self.state_of(inner, timestamp, rev).await
    }

    /// Reads the state of a revision. Returns `None` if the revision lacks the property.
    async fn state_of(
        &mut self,
        inner: &StoreInner,
        timestamp: Timestamp,
        rev: Revision,
    ) -> Result<Option<State>> {
        let renders = self.renders_with(inner, rev).await?;
        Ok((!renders.is_empty()).then_some(State { timestamp, rev, renders }))
    }

    /// Reads the next part of the index by time, and the rows of the revisions in it.
    async fn look_ahead(&mut self, inner: &StoreInner) -> Result<()> {
        let Some(range) = self.ranges.front() else { return Ok(()) };
        let limit = NonZeroUsize::new(self.step.min(self.revisions_left)).unwrap_or(NonZeroUsize::MIN);
        self.wanted = self.wanted.saturating_sub(limit.get());
        let more = if self.wanted > 0 { self.wanted.max(FIRST_STEP) } else { self.step * 4 };
        self.step = more.min(INDEX_PAGE_ROWS.get());
        let mut scan = Scan::new(partition_of(self.page), limit).range(range.clone());
        scan.order = self.order;
        let rows = inner.records.scan(&REVISIONS_BY_TIME, scan.after(self.cursor.take())).await?;
        self.count_cost(&rows.items);
        for row in &rows.items {
            let TimeKey { timestamp, rev } = RowKey::of(row)?;
            self.ahead.push_back((timestamp, rev));
        }
        self.cursor = rows.next;
        if self.cursor.is_none() {
            self.ranges.pop_front();
        }
        self.read_rows_ahead(inner).await
    }

    /// Reads rows for the revisions in `ahead`: rows of renders, and for a property of the revision also rows of revisions.
    async fn read_rows_ahead(&mut self, inner: &StoreInner) -> Result<()> {
        self.rows_ahead = RowsAhead::default();
        let revs = || self.ahead.iter().map(|(_, rev)| *rev);
        let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) else { return Ok(()) };
        self.rows_ahead.culls = inner.retention.culls(self.page, lowest, highest).await?;
        if !self.is_of_render(inner) {
            let mut revisions = self.read_table_ahead(inner, &REVISIONS, lowest, highest).await?;
            if revisions.are_complete_for(lowest) && !self.is_named_in(&revisions)? {
                // None of them is a state, so they need not be parsed again.
                revisions.rows.clear();
                self.rows_ahead.revisions = revisions;
                return Ok(());
            }
            self.rows_ahead.revisions = revisions;
        }
        self.rows_ahead.renders = self.read_table_ahead(inner, &RENDERS, lowest, highest).await?;
        Ok(())
    }

    async fn read_table_ahead(
        &mut self,
        inner: &StoreInner,
        table: &'static Schema,
        lowest: Revision,
        highest: Revision,
    ) -> Result<RowsByRevision> {
        let mut read = RowsByRevision::default();
        if !self.read_together.iter().any(|other| other.name() == table.name()) {
            return Ok(read);
        }
        let range = ClusteringRange::all().at_least(lowest.get()).at_most(highest.get());
        let limit = NonZeroUsize::new(self.ahead.len() * ROWS_OF_REVISION)
            .unwrap_or(INDEX_PAGE_ROWS)
            .min(INDEX_PAGE_ROWS);
        let scan = Scan::new(partition_of(self.page), limit).range(range);
        let page = inner.records.scan_beside_damage(table, scan).await?;
        self.count_cost(&page.items);
        // If one of the rows is damaged, none of them is used. Each revision is then read by itself, and the walk fails if
        // it reaches the damaged revision.
        if !page.damaged.is_empty() {
            return Ok(read);
        }
        let mut last = None;
        for row in page.items {
            let rev = if table.name() == RENDERS.name() {
                RenderKey::of(&row)?.rev
            } else {
                RevisionRow::rev_of(&row)?
            };
            last = Some(rev);
            read.rows.entry(rev).or_default().push(row);
        }
        read.complete_from = match (page.next, last) {
            (None, _) => Some(lowest),
            // The last revision may have further rows.
            (Some(_), Some(last)) => Revision::new(last.get().saturating_add(1)),
            (Some(_), None) => None,
        };
        let ahead: BTreeSet<_> = self.ahead.iter().map(|(_, rev)| *rev).collect();
        let of_others = read.rows.iter().filter(|(rev, _)| !ahead.contains(rev));
        let of_others: usize = of_others.map(|(_, rows)| rows.len()).sum();
        if of_others * 2 > read.rows.values().map(Vec::len).sum() {
            self.read_together.retain(|other| other.name() != table.name());
        }
        Ok(read)
    }

    /// Whether one of these revisions has the property.
    fn is_named_in(&self, revisions: &RowsByRevision) -> Result<bool> {
        for row in revisions.rows.values().flatten() {
            if RevisionRow::from_row(row)?.properties.contains_key(self.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_of_render(&self, inner: &StoreInner) -> bool {
        inner.settings.definitions.get(self.name).versions == Versions::Render
    }

    fn count_cost(&mut self, rows: &[Row]) {
        let cost: usize = rows.iter().map(cost).sum();
        self.cost_left = self.cost_left.saturating_sub(cost + 1);
    }

    /// Returns the renders of a revision that have the property, oldest first.
    ///
    /// For a property of the render, skips renders whose bodies were culled or left out by the archive's
    /// policy. For a property of the revision, includes these renders: the property can still be read.
    async fn renders_with(&mut self, inner: &StoreInner, rev: Revision) -> Result<Vec<PropertyVersion>> {
        let of_revision = if self.is_of_render(inner) {
            None
        } else {
            let row = match self.rows_ahead.revisions.take(rev) {
                Some(rows) => rows.into_iter().next(),
                None => {
                    let row = inner.records.get(&REVISIONS, self.page, rev_key(rev)).await?;
                    self.count_cost(row.as_slice());
                    row
                }
            };
            let revision = row.as_ref().map(RevisionRow::from_row).transpose()?;
            let Some(mut revision) =
                revision.filter(|revision| self.rows_ahead.culls.spare_revision(revision))
            else {
                return Ok(Vec::new());
            };
            match revision.properties.remove(self.name) {
                Some(info) => Some(info),
                None => return Ok(Vec::new()),
            }
        };
        let renders = match self.rows_ahead.renders.take(rev) {
            Some(rows) => rows,
            None => self.renders_of(inner, rev).await?,
        };
        let mut versions = Vec::new();
        for row in renders {
            if let Some(PropertyInfo { rewritten_at, .. }) = of_revision {
                let RenderHead { tid, .. } = RenderHead::from_row(&row)?;
                versions.push(PropertyVersion { rev, tid, rewritten_at });
            } else if RenderRow::names(&row, self.name)? {
                let row = RenderRow::from_row(&row)?;
                if let Some(PropertyInfo { rewritten_at, .. }) = row.properties.get(self.name)
                    && self.rows_ahead.culls.spare_render(&row)
                {
                    versions.push(PropertyVersion { rev, tid: row.tid, rewritten_at: *rewritten_at });
                }
            }
        }
        versions.reverse();
        Ok(versions)
    }

    /// Reads the rows of a revision's renders, newest first, up to [`MAX_COST_OF_STATE`]. Does not parse the
    /// properties, since there may be many.
    async fn renders_of(&mut self, inner: &StoreInner, rev: Revision) -> Result<Vec<Row>> {
        let (mut renders, mut after, mut left) = (Vec::new(), None, MAX_COST_OF_STATE);
        loop {
            let range = of_revision(rev);
            let scan = Scan::new(partition_of(self.page), INDEX_PAGE_ROWS).range(range).after(after);
            let rows = inner.records.scan(&RENDERS, scan).await?;
            self.count_cost(&rows.items);
            for row in rows.items {
                let Some(rest) = left.checked_sub(cost(&row)) else { return Ok(renders) };
                left = rest;
                renders.push(row);
            }
            after = rows.next;
            if after.is_none() {
                return Ok(renders);
            }
        }
    }
}
