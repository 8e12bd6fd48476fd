//! The states around a state: the first and the last state of the page, the previous one and the next one.

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;

use super::{
    MementoPosition, State, second,
    walk::{Walk, WalkStep},
};
use crate::{
    Error, Page, PropertyName, PropertyVersion, Result,
    revisions::{RevisionStore, StoreInner},
};

/// The states around a state. A state is absent if the page has no such state, or if too many revisions would have to
/// be examined to find it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MementosAround {
    /// The first state of the page.
    pub first: Option<PropertyVersion>,
    /// The state before.
    pub previous: Option<PropertyVersion>,
    /// The state after.
    pub next: Option<PropertyVersion>,
    /// The last state of the page.
    pub last: Option<PropertyVersion>,
}

impl RevisionStore {
    /// Returns the states around a state that [`Self::memento`] has selected, in the order of [`Self::mementos`].
    ///
    /// Each of the four searches examines a bounded number of revisions. They run one after another, so that they need
    /// no more memory than one.
    #[boxed]
    pub async fn mementos_around(
        &self,
        page: &Page,
        name: &PropertyName,
        selected: &PropertyVersion,
    ) -> Result<MementosAround> {
        let Some(revision) = self.0.records.revision(page, selected.rev).await? else {
            return Ok(MementosAround::default());
        };
        let timestamp = revision.record.timestamp;
        let is_selected = |state: &PropertyVersion| state.tid == selected.tid;
        let first = if_found(self.mementos(page, name, None, 1).await)?;
        let first = first.and_then(|list| list.items.first().copied());
        let previous = match first {
            Some(first) if is_selected(&first) => None,
            _ => self.0.memento_before(page, name, selected, timestamp).await?,
        };
        let last = if_found(self.memento(page, name, Some(Timestamp::MAX)).await)?;
        let next = match last {
            Some(last) if is_selected(&last) => None,
            _ => {
                let state = Some((timestamp, selected.rev, Some(selected.tid)));
                let after = MementoPosition { state, examined: (timestamp, selected.rev) };
                let after = if_found(self.mementos(page, name, Some(after), 1).await)?;
                after.and_then(|list| list.items.first().copied())
            }
        };
        Ok(MementosAround { first, previous, next, last })
    }
}

impl StoreInner {
    /// Finds the state before a state. `timestamp` is the time of its revision.
    async fn memento_before(
        &self,
        page: &Page,
        name: &PropertyName,
        selected: &PropertyVersion,
        timestamp: Timestamp,
    ) -> Result<Option<PropertyVersion>> {
        let mut walk = Walk::backward_from(page, name, timestamp);
        let mut of_selected: Option<State> = None;
        while let WalkStep::State(state) = walk.next(self).await? {
            let Some(later) = &of_selected else {
                let states = state.selectable(None);
                let at = states.iter().position(|version| version.tid == selected.tid);
                match at {
                    Some(0) | None => of_selected = Some(state),
                    Some(at) => return Ok(Some(states[at - 1])),
                }
                continue;
            };
            // Of several revisions within one second, only the last is a state.
            if second(state.timestamp) < second(later.timestamp) {
                return Ok(state.at(second(later.timestamp) - 1));
            }
        }
        Ok(None)
    }
}

/// Returns `None` instead of an error that says that something is absent or out of reach.
fn if_found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
