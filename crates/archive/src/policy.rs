//! Decides, without I/O, which renders the archive keeps.

use std::{collections::BTreeSet, time::Duration};

use crate::format::{BodyLocation, Texts, Unit};
use rashomon_clock::Timestamp;

use rashomon_records::{Tid, content::ChunkSet, rows::RenderRow};

/// The renders of superseded revisions that the archive keeps. The archive always keeps revisions, properties
/// of the revision, and the records of all renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchivePolicy {
    /// All renders.
    #[default]
    Every,
    /// The first render of each revision. Later renders were made from the same text.
    FirstRender,
    /// At most one render of the page in each interval, whatever its revision. A render is kept if no render
    /// was kept before, or if it was made at least one interval before or after the last kept render.
    Interval(Duration),
}

impl ArchivePolicy {
    /// Whether a render that was made at `made_at` is kept. `is_first` says whether it is the first of its
    /// revision. `last` is the time at which the last kept render of the page was made.
    pub(super) fn keeps(self, is_first: bool, made_at: Timestamp, last: Option<Timestamp>) -> bool {
        match self {
            Self::Every => true,
            Self::FirstRender => is_first,
            Self::Interval(interval) => last.is_none_or(|last| {
                let (earlier, later) = (last.min(made_at), last.max(made_at));
                later.saturating_sub(interval) >= earlier
            }),
        }
    }
}

/// Removes the bodies of the renders of a page that the policy does not keep, before revisions go into blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thinning {
    policy: ArchivePolicy,
    /// When the last kept render of the page was made.
    last: Option<Timestamp>,
}

impl Thinning {
    pub(super) const fn new(policy: ArchivePolicy, last: Option<Timestamp>) -> Self {
        Self { policy, last }
    }

    /// Whether the policy decides on a render by the other kept renders of the page.
    pub(super) const fn depends_on_other_renders(&self) -> bool {
        matches!(self.policy, ArchivePolicy::Interval(_))
    }

    /// Removes from a revision the bodies of the renders that are not kept. Returns the chunk sets of these
    /// bodies, each with its render. The rows of the renders stay, and are marked as `left_out`.
    pub(super) fn thin(&mut self, unit: &mut Unit, texts: &mut Texts) -> Vec<(Option<Tid>, ChunkSet)> {
        let left_out = self.left_out(unit.renders.iter().map(|(render, _)| render));
        let mut released_chunks = Vec::new();
        for (render, bodies) in &mut unit.renders {
            if !left_out.contains(&render.tid) {
                continue;
            }
            render.left_out = true;
            for (name, body) in std::mem::take(bodies) {
                texts.remove(&(name, Some(render.tid)));
                if let BodyLocation::Chunks(set) = body.location {
                    released_chunks.push((Some(render.tid), set));
                }
            }
        }
        released_chunks
    }

    /// Returns the renders of a revision that are not kept. Call this for the revisions of a page in their
    /// order.
    pub(super) fn left_out<'r>(&mut self, renders: impl IntoIterator<Item = &'r RenderRow>) -> BTreeSet<Tid> {
        let mut left_out = BTreeSet::new();
        // A render does not count as the first one if it has no properties, or if its bodies were left out
        // earlier.
        let mut is_first = true;
        for render in renders.into_iter().filter(|one| !one.properties.is_empty() && !one.left_out) {
            let made_at = render.tid.time();
            if self.policy.keeps(std::mem::replace(&mut is_first, false), made_at, self.last) {
                self.last = Some(made_at);
            } else {
                left_out.insert(render.tid);
            }
        }
        left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_micros(hours * HOUR.as_micros() as i64)
    }

    /// Returns the hours of the renders that are kept. Each render is given as a pair: whether it is the
    /// first of its revision, and its hour.
    fn kept(policy: ArchivePolicy, renders: &[(bool, i64)]) -> Vec<i64> {
        let mut last = None;
        let mut kept = Vec::new();
        for (is_first, hour) in renders {
            if policy.keeps(*is_first, at(*hour), last) {
                last = Some(at(*hour));
                kept.push(*hour);
            }
        }
        kept
    }

    const RENDERS: [(bool, i64); 6] = [(true, 1), (false, 2), (true, 3), (false, 5), (false, 27), (true, 28)];

    #[test]
    fn policy_every_keeps_all_renders() {
        assert_eq!(kept(ArchivePolicy::Every, &RENDERS), [1, 2, 3, 5, 27, 28]);
    }

    #[test]
    fn policy_first_render_keeps_one_render_per_revision() {
        assert_eq!(kept(ArchivePolicy::FirstRender, &RENDERS), [1, 3, 28]);
    }

    #[test]
    fn policy_interval_keeps_one_render_per_interval() {
        assert_eq!(kept(ArchivePolicy::Interval(2 * HOUR), &RENDERS), [1, 3, 5, 27]);
        assert_eq!(kept(ArchivePolicy::Interval(24 * HOUR), &RENDERS), [1, 27]);
        assert_eq!(kept(ArchivePolicy::Interval(Duration::ZERO), &RENDERS), [1, 2, 3, 5, 27, 28]);
    }

    #[test]
    fn policy_interval_keeps_earlier_render_far_from_last_kept() {
        assert_eq!(
            kept(ArchivePolicy::Interval(24 * HOUR), &[(true, 100), (true, 90), (true, 50)]),
            [100, 50]
        );
    }
}
