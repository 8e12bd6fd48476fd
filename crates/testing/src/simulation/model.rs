//! The model keeps everything that was ever written. It computes from the times of the writes which values must be
//! stored, and which must be gone. The model does not depend on a store or on the strategies of retention.

use std::{collections::BTreeMap, ops::Bound};

use rashomon_clock::Timestamp;
use rashomon_pages::{Cull, Policy, Revision, Sha1, Tid};

use crate::simulation::name::Name;

/// The time of an event: not before `first`, and not after `last`. For most acknowledged writes, the two times are
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeRange {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

impl TimeRange {
    pub(crate) const fn at(time: Timestamp) -> Self {
        Self { first: time, last: time }
    }

    fn later(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), last: self.last.max(other.last) }
    }
}

/// Bodies that are stored and culled together: those of a render, or a property of the revision.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) bodies: BTreeMap<Name, Sha1>,
    pub(crate) stored: TimeRange,
    /// The time at which the unit was last written as a whole.
    pub(crate) written: TimeRange,
    /// Whether the bodies were eligible for culling at some time, so that they need not be stored any more.
    pub(crate) released: bool,
    /// Whether a part of the bodies may be gone without the rest: because the write came so late that a tombstone hides
    /// a part of it, or because a process was interrupted.
    pub(crate) may_be_partial: bool,
}

impl Unit {
    pub(crate) fn new(stored: TimeRange) -> Self {
        Self { bodies: BTreeMap::new(), stored, written: stored, released: false, may_be_partial: false }
    }
}

/// A render. For each property that a client read, `promised` has the time until which it must stay readable.
#[derive(Debug, Clone)]
pub(crate) struct Render {
    pub(crate) unit: Unit,
    pub(crate) promised: BTreeMap<Name, Timestamp>,
}

/// A revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct RevisionModel {
    /// The properties of the revision. Each has a unit of its own, because a later render may add a property that the
    /// revision lacks.
    pub(crate) own: BTreeMap<Name, Unit>,
    pub(crate) renders: BTreeMap<Tid, Render>,
}

/// A render that was generated on demand for a revision. It is not one of the revision's stored renders.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedRender {
    pub(crate) rev: Revision,
    pub(crate) bodies: BTreeMap<Name, Sha1>,
    pub(crate) promised: BTreeMap<Name, Timestamp>,
}

/// Everything that was ever written of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageModel {
    pub(crate) revisions: BTreeMap<Revision, RevisionModel>,
    pub(crate) generated: BTreeMap<Tid, GeneratedRender>,
}

/// The time until which bodies must be stored, and the time from which they must be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    /// The bodies must be stored before this time. `MAX`: always.
    pub(crate) stays_before: Timestamp,
    /// A sweep at this time or later must have deleted them. `None`: they stay.
    pub(crate) gone_by: Option<Timestamp>,
}

impl Lifetime {
    const STAYS: Self = Self { stays_before: Timestamp::MAX, gone_by: None };
}

impl PageModel {
    /// The highest (revision, tid) stored.
    pub(crate) fn latest(&self) -> Option<(Revision, Tid)> {
        let (rev, revision) = self.revisions.last_key_value()?;
        Some((*rev, *revision.renders.last_key_value()?.0))
    }

    /// All renders, the lowest first.
    pub(crate) fn tids(&self) -> impl Iterator<Item = (Revision, Tid)> {
        self.revisions.iter().flat_map(|(rev, revision)| revision.renders.keys().map(|tid| (*rev, *tid)))
    }

    pub(crate) fn render(&self, rev: Revision, tid: Tid) -> Option<&Render> {
        self.revisions.get(&rev)?.renders.get(&tid)
    }

    /// The times at which revisions above this one were first stored, the earliest first.
    fn higher_revisions(&self, rev: Revision) -> Vec<TimeRange> {
        let higher = self.revisions.range((Bound::Excluded(rev), Bound::Unbounded));
        let mut stored: Vec<_> =
            higher.filter_map(|(_, revision)| earliest(revision.renders.values())).collect();
        stored.sort_by_key(|when| when.last);
        stored
    }

    /// Returns the time at which a revision was superseded, and the time at which it was no longer one of the newest
    /// `kept` revisions. Each is `None` if that did not happen.
    fn superseded_revision(
        &self,
        rev: Revision,
        own: TimeRange,
        kept: usize,
    ) -> (Option<TimeRange>, Option<TimeRange>) {
        let higher = self.higher_revisions(rev);
        let superseded = higher.iter().copied().reduce(earlier).map(|when| when.later(own));
        (superseded, higher.get(kept - 1).map(|when| when.later(own)))
    }

    /// A property of the revision.
    pub(crate) fn own(&self, rev: Revision, name: Name) -> Option<&Unit> {
        self.revisions.get(&rev)?.own.get(&name)
    }

    /// All properties of revisions.
    pub(crate) fn revision_properties(&self) -> impl Iterator<Item = (Revision, Name)> {
        self.revisions.iter().flat_map(|(rev, revision)| revision.own.keys().map(|name| (*rev, *name)))
    }

    /// The lifetime of a property of the revision.
    pub(crate) fn lifetime_of_own(&self, rev: Revision, name: Name, policy: &Policy) -> Lifetime {
        let Some(own) = self.own(rev, name) else { return Lifetime::STAYS };
        let (superseded, went_out) =
            self.superseded_revision(rev, own.stored, policy.min_keep.get() as usize);
        match (superseded, went_out) {
            (Some(superseded), Some(went_out)) if policy.cull == Cull::Revisions => Lifetime {
                stays_before: superseded.first.max(own.written.first).saturating_add(policy.grace),
                gone_by: Some(
                    went_out.last.max(own.written.last).saturating_add(policy.grace + policy.slack),
                ),
            },
            _ => Lifetime::STAYS,
        }
    }

    /// The lifetime of a render's bodies.
    pub(crate) fn lifetime_of_render(&self, rev: Revision, tid: Tid, policy: &Policy) -> Lifetime {
        let Some(revision) = self.revisions.get(&rev) else { return Lifetime::STAYS };
        let Some(render) = revision.renders.get(&tid) else { return Lifetime::STAYS };
        let unit = &render.unit;
        let newer = revision.renders.range((Bound::Excluded(tid), Bound::Unbounded));
        let by_render = earliest(newer.map(|(_, render)| render)).map(|when| when.later(unit.stored));
        let (by_revision, went_out) =
            self.superseded_revision(rev, unit.stored, policy.min_keep.get() as usize);
        let went_out = went_out.filter(|_| policy.cull == Cull::Revisions);
        // While a revision is kept, its newest render is not deleted.
        let Some(goes) = [by_render, went_out].into_iter().flatten().reduce(earlier) else {
            return Lifetime::STAYS;
        };
        let superseded = [by_render, by_revision].into_iter().flatten().reduce(earlier).unwrap_or(goes);
        Lifetime {
            stays_before: superseded.first.max(unit.written.first).saturating_add(policy.grace),
            gone_by: Some(goes.last.max(unit.written.last).saturating_add(policy.grace + policy.slack)),
        }
    }

    /// Marks the bodies that may be deleted at this time under this policy. From now on they need not be
    /// stored. `at_once`: the strategy does not keep superseded values for the grace.
    pub(crate) fn release(&mut self, policy: &Policy, now: Timestamp, at_once: bool) {
        let may_go =
            |lifetime: Lifetime| lifetime.stays_before <= now || (at_once && lifetime.gone_by.is_some());
        let tids: Vec<_> = self.tids().collect();
        for (rev, tid) in tids {
            if may_go(self.lifetime_of_render(rev, tid, policy))
                && let Some(render) =
                    self.revisions.get_mut(&rev).and_then(|found| found.renders.get_mut(&tid))
            {
                render.unit.released = true;
            }
        }
        let owns: Vec<_> = self.revision_properties().collect();
        for (rev, name) in owns {
            if may_go(self.lifetime_of_own(rev, name, policy))
                && let Some(own) = self.revisions.get_mut(&rev).and_then(|found| found.own.get_mut(&name))
            {
                own.released = true;
            }
        }
    }

    /// The times at which bodies become deletable or a promise to a reader ends.
    pub(crate) fn edges(&self, policy: &Policy) -> Vec<Timestamp> {
        let of_renders = self.tids().map(|(rev, tid)| self.lifetime_of_render(rev, tid, policy).stays_before);
        let of_revisions = self
            .revision_properties()
            .map(|(rev, name)| self.lifetime_of_own(rev, name, policy).stays_before);
        let renders = self.revisions.values().flat_map(|revision| revision.renders.values());
        let promised = renders.flat_map(|render| render.promised.values().copied());
        let generated = self.generated.values().flat_map(|generated| generated.promised.values().copied());
        of_renders.chain(of_revisions).chain(promised).chain(generated).collect()
    }
}

fn earlier(one: TimeRange, other: TimeRange) -> TimeRange {
    TimeRange { first: one.first.min(other.first), last: one.last.min(other.last) }
}

/// The time at which the first of the renders was stored.
fn earliest<'a>(renders: impl IntoIterator<Item = &'a Render>) -> Option<TimeRange> {
    renders.into_iter().map(|render| render.unit.stored).reduce(earlier)
}
