//! Past states of a page (RFC 7089): the states that the timegate selects and the timemap lists.
//!
//! Dates in RFC 7089 have a resolution of one second, so a state is the page at the end of a second. Among
//! the revisions that have the property, the state of the page at a time comes from the revision with the
//! greatest timestamp at or before this time. If a later revision has superseded a revision, a new render of the
//! superseded revision is not a state.
//!
//! No index maps a time to a revision that has the property, so revisions are examined one after another. A
//! request examines a bounded number of revisions, see [`walk`].

mod around;
mod walk;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;

pub use self::around::MementosAround;
use self::walk::{Walk, WalkStep};
use super::{RevisionStore, StoreInner, read::render_of};
use crate::{Error, Listing, Missing, Page, PropertyName, PropertyVersion, Render, Result, Revision, Tid};

const SECOND: i64 = 1_000_000;

/// The position at which a result page of a timemap begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MementoPosition {
    /// The state that the previous result page has not finished: the time and the number of the state's
    /// revision, and the last listed render of the revision. The result page begins with the other renders of
    /// this state.
    pub state: Option<(Timestamp, Revision, Option<Tid>)>,
    /// The last revision that was examined, in the order of time. The next result page examines the revisions
    /// after this revision.
    pub examined: (Timestamp, Revision),
}

/// Returns the second that contains a time, counted from 1970.
fn second(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(SECOND)
}

/// A state of the page: a revision that has the property.
#[derive(Debug, Clone)]
struct State {
    timestamp: Timestamp,
    rev: Revision,
    /// The renders of the revision that have the property, oldest first.
    renders: Vec<PropertyVersion>,
}

impl State {
    /// Returns the render that is selected at the end of the second `at`.
    fn at(&self, at: i64) -> Option<PropertyVersion> {
        self.newest_until(|tid| second(tid.time()) <= at)
    }

    /// Returns the newest render for which `so_far` returns true, or else the first render.
    fn newest_until(&self, so_far: impl Fn(Tid) -> bool) -> Option<PropertyVersion> {
        let newest = self.renders.iter().rev().find(|render| so_far(render.tid));
        newest.or_else(|| self.renders.first()).copied()
    }

    /// Returns all renders that are selected at the end of some second: from the second of the revision to the
    /// second before `next`. `next` is the second of the next revision, or `None` if there is no next revision.
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

impl RevisionStore {
    /// Returns the render from which a property of the page is read as the property was at `time`.
    ///
    /// This is the render that [`at_time`](Self::at_time) returns. If the archive's policy left out all
    /// renders of this render's revision, returns the newest kept render of an earlier revision, as
    /// [`Self::memento`] does. Fails with `Culled` if there is no kept render, and with `OutOfReach` if too
    /// many revisions would have to be examined.
    #[boxed]
    pub async fn at_time_with(&self, page: &Page, time: Timestamp, name: &PropertyName) -> Result<Render> {
        let (revision, render) = self.0.rows_at(page, time).await?;
        if !render.is_left_out_with(name) {
            return Ok(render_of(revision, render));
        }
        let mut walk = Walk::backward_from(page, name, time);
        match walk.next(&self.0).await? {
            WalkStep::State(state) => match state.newest_until(|tid| tid.time() <= time) {
                Some(kept) => self.render(page, kept.tid).await,
                None => Err(self.0.records.incomplete(page)),
            },
            WalkStep::End => Err(Error::NotFound(Missing::Culled { rev: render.rev, tid: render.tid })),
            WalkStep::Exhausted => Err(walk.out_of_reach()),
        }
    }

    /// Returns the state of the page at the end of the second of `time` (`None`: the latest), among the
    /// revisions that have the property, as RFC 7089 defines it.
    ///
    /// For a time before the first state, returns the first state. Fails with `OutOfReach` if too many
    /// revisions would have to be examined.
    #[boxed]
    pub async fn memento(
        &self,
        page: &Page,
        name: &PropertyName,
        time: Option<Timestamp>,
    ) -> Result<PropertyVersion> {
        if time.is_none() {
            match self.latest(page, name).await {
                Ok(latest) => return Ok(latest.version),
                // The latest revision is the revision with the highest number. If this revision lacks the
                // property, the state is chosen by time instead.
                Err(Error::NotFound(Missing::LatestProperty { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let at = time.map_or(i64::MAX / SECOND, second);
        let until = Timestamp::from_micros(at.saturating_mul(SECOND).saturating_add(SECOND - 1));
        let mut walk = Walk::backward_from(page, name, until);
        match walk.next(&self.0).await? {
            WalkStep::State(state) => return state.at(at).ok_or_else(|| self.0.records.incomplete(page)),
            WalkStep::Exhausted => return Err(walk.out_of_reach()),
            WalkStep::End => {}
        }
        // No revision at or before `time` has the property, so the answer is the first state after `time`.
        let mut walk = walk.forward_with_remaining_cost(until);
        let mut first = match walk.next(&self.0).await? {
            WalkStep::State(state) => state,
            WalkStep::Exhausted => return Err(walk.out_of_reach()),
            WalkStep::End => return Err(self.0.no_state(page).await?),
        };
        let next = loop {
            match walk.next(&self.0).await? {
                WalkStep::State(next) if second(next.timestamp) == second(first.timestamp) => first = next,
                WalkStep::State(next) => break Some(second(next.timestamp)),
                WalkStep::End => break None,
                WalkStep::Exhausted => {
                    match walk.examined_until().filter(|until| *until > second(first.timestamp)) {
                        Some(until) => break Some(until),
                        None => return Err(walk.out_of_reach()),
                    }
                }
            }
        };
        first.selectable(next).into_iter().next().ok_or_else(|| self.0.records.incomplete(page))
    }

    /// Lists the states of the page that [`Self::memento`] can select, oldest first, from a position on: at
    /// most `limit`.
    ///
    /// The number of examined revisions is bounded. So the list is shorter, and may be empty, where many
    /// revisions lack the property. The next position is after the examined revisions.
    #[boxed]
    pub async fn mementos(
        &self,
        page: &Page,
        name: &PropertyName,
        after: Option<MementoPosition>,
        limit: usize,
    ) -> Result<Listing<PropertyVersion, MementoPosition>> {
        let inner = &self.0;
        // A state is listed when the one after it is known, and one more shows that the list continues.
        let wanted = limit.saturating_add(2);
        let mut walk = Walk::forward_after(page, name, after.map(|position| position.examined), wanted);
        let (mut current, mut skip) = (None, None);
        if let Some((timestamp, rev, listed)) = after.and_then(|position| position.state) {
            current = walk.resume(inner, timestamp, rev).await?;
            skip = listed;
        }
        let mut list = TimemapPage { items: Vec::new(), limit };
        let next = loop {
            let found = walk.next(inner).await?;
            let Some(state) = current.take() else {
                match found {
                    WalkStep::State(state) => current = Some(state),
                    WalkStep::End => break None,
                    WalkStep::Exhausted => break walk.position(None),
                }
                continue;
            };
            match found {
                // Of several revisions within one second, only the last is a state.
                WalkStep::State(next) if second(next.timestamp) == second(state.timestamp) => {
                    (current, skip) = (Some(next), None);
                }
                WalkStep::State(next) => {
                    list.add(&state, Some(second(next.timestamp)), skip.take());
                    current = Some(next);
                }
                WalkStep::End => {
                    list.add(&state, None, skip.take());
                    break None;
                }
                WalkStep::Exhausted => {
                    // The next state is not earlier than the last examined revision.
                    let until = walk.examined_until().unwrap_or(i64::MIN);
                    let listed = list.add(&state, Some(until), skip).or(skip);
                    break walk.position(Some((state.timestamp, state.rev, listed)));
                }
            }
            if list.is_over_full() {
                break None;
            }
        };
        if list.items.is_empty() && after.is_none() && next.is_none() {
            return Err(inner.no_state(page).await?);
        }
        Ok(list.into_listing(next))
    }
}

/// A result page of a timemap that is being filled.
struct TimemapPage {
    /// The entries so far. With more than `limit` entries the list is over-full: no more states are added,
    /// and [`TimemapPage::into_listing`] drops the surplus.
    items: Vec<(PropertyVersion, MementoPosition)>,
    limit: usize,
}

impl TimemapPage {
    /// Adds the renders of a state that can be selected, after the render `skip`. Returns the last added
    /// render.
    fn add(&mut self, state: &State, next: Option<i64>, skip: Option<Tid>) -> Option<Tid> {
        let mut selectable = state.selectable(next);
        if let Some(index) = selectable.iter().position(|version| Some(version.tid) == skip) {
            selectable.drain(..=index);
        }
        let last = selectable.last().map(|version| version.tid);
        let of_state = (state.timestamp, state.rev);
        self.items.extend(selectable.into_iter().map(|version| {
            let state = Some((state.timestamp, state.rev, Some(version.tid)));
            (version, MementoPosition { state, examined: of_state })
        }));
        last
    }

    fn is_over_full(&self) -> bool {
        self.items.len() > self.limit
    }

    /// Returns the finished result page. `next` is the next position if all entries fit.
    fn into_listing(mut self, next: Option<MementoPosition>) -> Listing<PropertyVersion, MementoPosition> {
        let next = if self.is_over_full() {
            self.items.truncate(self.limit);
            self.items.last().map(|(_, position)| *position)
        } else {
            next
        };
        Listing { items: self.items.into_iter().map(|(version, _)| version).collect(), next }
    }
}

impl StoreInner {
    /// Returns the error for a page without a state: no revision has the property, or there is no page.
    async fn no_state(&self, page: &Page) -> Result<Error> {
        Ok(match self.records.check_exists(page).await {
            Ok(()) => Error::NotFound(Missing::PropertyOfAllRevisions),
            Err(error) => error,
        })
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
        State { rev, timestamp: Timestamp::from_micros(timestamp * SECOND / 10), renders }
    }

    /// All times are in tenths of a second.
    #[test]
    fn timemap_lists_the_states_that_the_timegate_selects() {
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
