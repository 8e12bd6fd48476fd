//! States of a page in time, for RFC 7089: what its timegate selects, and its timemap lists.
//!
//! Its dates have seconds, so a state here is what the page was at the end of a second. The page's state is
//! that of the revision with the greatest timestamp so far, among those that have the property: a late
//! re-render of an older revision is none.

use std::num::NonZeroUsize;

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Cursor, Order, Scan, Value};

use super::{Revisioned, Shared, read::render_of, rev_key};
use crate::{
    Error, Listing, Missing, Page, PropertyName, PropertyVersion, Render, Result, Revision, Tid, Versions,
    retention::Culls,
    rows::{RevisionRow, clustering_rev, partition_of, unreadable},
    schemas::{REVISIONS, REVISIONS_BY_TIME},
};

const SECOND: i64 = 1_000_000;

/// How many revisions are looked at at once.
const STEP: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");

/// The second that a time is in.
fn second(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(SECOND)
}

/// A revision that has the property, by time.
#[derive(Debug, Clone)]
struct State {
    timestamp: Timestamp,
    /// Its renders that have the property, oldest first.
    renders: Vec<PropertyVersion>,
}

impl State {
    /// The render that is selected at the end of a second.
    fn at(&self, at: i64) -> Option<PropertyVersion> {
        self.newest_until(|tid| second(tid.time()) <= at)
    }

    /// The newest render that came so far, else the first.
    fn newest_until(&self, so_far: impl Fn(Tid) -> bool) -> Option<PropertyVersion> {
        let newest = self.renders.iter().rev().find(|render| so_far(render.tid));
        newest.or_else(|| self.renders.first()).copied()
    }

    /// All that are selected at the end of some second from its own on, before the next revision's (`None`:
    /// there is none).
    fn selectable(&self, next: Option<i64>) -> Vec<PropertyVersion> {
        let begin = second(self.timestamp);
        let mut selected = Vec::new();
        for (index, render) in self.renders.iter().enumerate() {
            let from = if index == 0 { begin } else { begin.max(second(render.tid.time())) };
            let superseded =
                self.renders.get(index + 1).is_some_and(|later| second(later.tid.time()) <= from);
            if !superseded && next.is_none_or(|next| from < next) {
                selected.push(*render);
            }
        }
        selected
    }
}

impl Revisioned {
    /// The render from which a property of the page is read as it was at a time: the one that
    /// [`at_time`](Self::at_time) gives. Where the archive's policy left that one out, and with it all others of its
    /// revision, it is the newest that is kept before it, as it is for [`Self::memento`]. `Culled` where there is none.
    pub async fn at_time_with(&self, page: &Page, time: Timestamp, name: &PropertyName) -> Result<Render> {
        let (revision, render) = self.0.rows_at(page, time).await?;
        if !render.is_left_out_with(name) {
            return Ok(render_of(revision, render));
        }
        let mut walk = Walk::new(page, name, ClusteringRange::all().at_most(time), Order::Forward);
        let state = walk.next(&self.0).await?;
        match state.and_then(|state| state.newest_until(|tid| tid.time() <= time)) {
            Some(kept) => self.render(page, kept.tid).await,
            None => Err(Error::NotFound(Missing::Culled { rev: render.rev, tid: render.tid })),
        }
    }

    /// The state of the page at the end of the second of `time` (`None`: the latest) among the revisions that
    /// have the property, for RFC 7089. Before the first, the first.
    pub async fn memento(
        &self,
        page: &Page,
        name: &PropertyName,
        time: Option<Timestamp>,
    ) -> Result<PropertyVersion> {
        if time.is_none() {
            match self.latest(page, name).await {
                Ok(latest) => return Ok(latest.version),
                // The latest goes by number; of those that have the property, time decides.
                Err(Error::NotFound(Missing::LatestProperty { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let at = time.map_or(i64::MAX / SECOND, second);
        let until = Timestamp::from_micros(at.saturating_mul(SECOND).saturating_add(SECOND - 1));
        let mut walk = Walk::new(page, name, ClusteringRange::all().at_most(until), Order::Forward);
        if let Some(state) = walk.next(&self.0).await? {
            return state.at(at).ok_or_else(|| self.0.incomplete(page));
        }
        let mut walk = Walk::new(page, name, ClusteringRange::all(), Order::Reverse);
        match self.0.next_state(&mut walk).await? {
            Some((first, next)) => {
                let next = next.as_ref().map(|next| second(next.timestamp));
                first.selectable(next).into_iter().next().ok_or_else(|| self.0.incomplete(page))
            }
            None => {
                self.0.check_exists(page).await?;
                Err(Error::NotFound(Missing::PropertyAnywhere))
            }
        }
    }

    /// All states of the page that [`Self::memento`] can select, oldest first, from the one after `after` on.
    pub async fn mementos(
        &self,
        page: &Page,
        name: &PropertyName,
        after: Option<PropertyVersion>,
        limit: usize,
    ) -> Result<Listing<PropertyVersion, PropertyVersion>> {
        let range = match after {
            None => ClusteringRange::all(),
            Some(after) => {
                let row = self.0.get(&REVISIONS, page, rev_key(after.rev)).await?;
                let row = row.ok_or(Error::NotFound(Missing::Revision(after.rev)))?;
                ClusteringRange::all().at_least(RevisionRow::from_row(&row)?.record.timestamp)
            }
        };
        let mut walk = Walk::new(page, name, range, Order::Reverse);
        let mut items: Vec<PropertyVersion> = Vec::new();
        let mut skip = after.map(|after| after.tid);
        while items.len() <= limit
            && let Some((state, next)) = self.0.next_state(&mut walk).await?
        {
            let mut selectable = state.selectable(next.as_ref().map(|next| second(next.timestamp)));
            if let Some(tid) = skip
                && let Some(place) = selectable.iter().position(|version| version.tid == tid)
            {
                selectable.drain(..=place);
                skip = None;
            }
            items.extend(selectable);
            walk.pending = next;
        }
        if items.is_empty() && after.is_none() {
            self.0.check_exists(page).await?;
            return Err(Error::NotFound(Missing::PropertyAnywhere));
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).copied();
        Ok(Listing { items, next })
    }
}

/// Goes through a page's revisions that have a property, by time.
struct Walk<'a> {
    page: &'a Page,
    name: &'a PropertyName,
    range: ClusteringRange,
    order: Order,
    cursor: Option<Cursor>,
    ended: bool,
    ahead: std::collections::VecDeque<(Timestamp, Revision)>,
    /// How far the revisions ahead have been culled.
    culls: Culls,
    pending: Option<State>,
}

impl<'a> Walk<'a> {
    fn new(page: &'a Page, name: &'a PropertyName, range: ClusteringRange, order: Order) -> Self {
        let ahead = std::collections::VecDeque::new();
        Self {
            page,
            name,
            range,
            order,
            cursor: None,
            ended: false,
            ahead,
            culls: Culls::default(),
            pending: None,
        }
    }

    async fn next(&mut self, shared: &Shared) -> Result<Option<State>> {
        if let Some(state) = self.pending.take() {
            return Ok(Some(state));
        }
        loop {
            while let Some((timestamp, rev)) = self.ahead.pop_front() {
                let renders = shared.renders_with(self.page, rev, self.name, &self.culls).await?;
                if !renders.is_empty() {
                    return Ok(Some(State { timestamp, renders }));
                }
            }
            if self.ended {
                return Ok(None);
            }
            let mut scan = Scan::new(partition_of(self.page), STEP).range(self.range.clone());
            scan.order = self.order;
            let rows = shared.scan(&REVISIONS_BY_TIME, scan.after(self.cursor.take())).await?;
            for row in &rows.items {
                let (Some(Value::Timestamp(time)), Some(rev)) =
                    (row.key.clustering.first(), clustering_rev(row, 1))
                else {
                    return Err(unreadable("revisions_by_time", row));
                };
                self.ahead.push_back((*time, rev));
            }
            self.ended = rows.next.is_none();
            self.cursor = rows.next;
            let revs = || self.ahead.iter().map(|(_, rev)| *rev);
            if let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) {
                self.culls = shared.culls(self.page, lowest, highest).await?;
            }
        }
    }
}

impl Shared {
    /// The next state of a walk towards the present, and the one after it: of revisions within one second
    /// only the last is a state.
    async fn next_state(&self, walk: &mut Walk<'_>) -> Result<Option<(State, Option<State>)>> {
        let Some(mut state) = walk.next(self).await? else { return Ok(None) };
        loop {
            match walk.next(self).await? {
                Some(next) if second(next.timestamp) == second(state.timestamp) => state = next,
                next => return Ok(Some((state, next))),
            }
        }
    }

    /// The renders of a revision that have a property, oldest first. Those that the archive's policy left out, or that
    /// retention culled, are no states of the page: nothing of them can be read but what is the revision's.
    async fn renders_with(
        &self,
        page: &Page,
        rev: Revision,
        name: &PropertyName,
        culls: &Culls,
    ) -> Result<Vec<PropertyVersion>> {
        let of_revision = match self.settings.definitions.get(name).versions {
            Versions::Render => None,
            Versions::Revision => {
                let row = self.get(&REVISIONS, page, rev_key(rev)).await?;
                let Some(row) = row else { return Ok(Vec::new()) };
                let mut revision = RevisionRow::from_row(&row)?;
                if !culls.has_revision(&revision) {
                    return Ok(Vec::new());
                }
                match revision.properties.remove(name) {
                    Some(info) => Some(info),
                    None => return Ok(Vec::new()),
                }
            }
        };
        let mut versions = Vec::new();
        let mut after = None;
        loop {
            let (rows, next) = self.renders(page, ClusteringRange::prefix(rev_key(rev)), after).await?;
            for row in rows {
                let own = row.properties.get(name).filter(|_| culls.has_render(&row));
                if let Some(info) = of_revision.as_ref().or(own) {
                    let rewritten_at = info.rewritten_at;
                    versions.push(PropertyVersion { rev, tid: row.tid, rewritten_at });
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        versions.reverse();
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(timestamp: i64, renders: &[i64]) -> State {
        let rev = Revision::new(1).expect("positive");
        let version = |(index, seconds): (usize, &i64)| {
            let tid = Tid::new(Timestamp::from_micros(seconds * SECOND / 10), index as u64);
            PropertyVersion { rev, tid, rewritten_at: None }
        };
        let renders = renders.iter().enumerate().map(version).collect();
        State { timestamp: Timestamp::from_micros(timestamp * SECOND / 10), renders }
    }

    /// What is listed is what can be selected, at every second: all times in tenths of a second.
    #[test]
    fn the_timemap_lists_what_the_timegate_selects() {
        for (timestamp, renders, next) in [
            (100_i64, vec![100], None::<i64>),
            (100, vec![100, 105, 108], None),
            (100, vec![100, 105, 110, 119, 150], Some(140)),
            (100, vec![50, 60, 300], Some(200)),
            (100, vec![300, 301], Some(200)),
            (100, vec![50, 150, 199, 201], Some(200)),
        ] {
            let state = state(timestamp, &renders);
            let end = next.unwrap_or(1000);
            let mut selected: Vec<_> =
                (timestamp.div_euclid(10)..end.div_euclid(10)).map(|s| state.at(s).unwrap()).collect();
            selected.dedup();
            assert_eq!(
                state.selectable(next.map(|next| next.div_euclid(10))),
                selected,
                "{timestamp} {renders:?}"
            );
        }
    }
}
