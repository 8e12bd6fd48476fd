//! Which renders the archive keeps: decided without I/O.

use std::{collections::BTreeSet, time::Duration};

use rashomon_clock::Timestamp;

use super::{
    decide::Texts,
    entries::{Place, Unit},
};
use rashomon_records::{Tid, content::ChunkSet, rows::RenderRow};

/// Which renders of superseded revisions the archive keeps. Revisions, and the properties that are theirs, are
/// always kept, and so is what is known of each render.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArchivePolicy {
    /// All of them.
    #[default]
    Every,
    /// The first of each revision: those that came later were made of the same text.
    FirstRender,
    /// One in so much time, whichever its revision: one that was made at least so long after the last that is kept,
    /// or, where it comes late, before it.
    Interval(Duration),
}

impl ArchivePolicy {
    /// Whether a render is kept that was made at a time: `is_first` of its revision, `last` that of the page that is
    /// in the archive.
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

/// Takes the renders that are not kept out of what goes into blocks, page by page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thinning {
    policy: ArchivePolicy,
    /// When the last render of the page was made that is kept.
    last: Option<Timestamp>,
}

impl Thinning {
    pub(super) const fn new(policy: ArchivePolicy, last: Option<Timestamp>) -> Self {
        Self { policy, last }
    }

    /// Takes the bodies of what is not kept out of a revision, and gives the chunks of those that had some. The rows
    /// stay, and say so.
    pub(super) fn thin(&mut self, unit: &mut Unit, texts: &mut Texts) -> Vec<ChunkSet> {
        let left_out = self.left_out(unit.renders.iter().map(|(render, _)| render));
        let mut gone = Vec::new();
        for (render, bodies) in &mut unit.renders {
            if !left_out.contains(&render.tid) {
                continue;
            }
            render.left_out = true;
            for (name, body) in std::mem::take(bodies) {
                texts.remove(&(name, Some(render.tid)));
                if let Place::Chunks(set) = body.place {
                    gone.push(set);
                }
            }
        }
        gone
    }

    /// The renders of a revision that are not kept, where it comes next of its page.
    pub(super) fn left_out<'r>(&mut self, renders: impl IntoIterator<Item = &'r RenderRow>) -> BTreeSet<Tid> {
        let mut left_out = BTreeSet::new();
        // A render of which nothing is known is none that is kept in the place of others.
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

    /// Which of some renders are kept, each given by whether it is the first of its revision and its hour.
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
    fn every_render_is_kept() {
        assert_eq!(kept(ArchivePolicy::Every, &RENDERS), [1, 2, 3, 5, 27, 28]);
    }

    #[test]
    fn the_first_render_of_each_revision_is_kept() {
        assert_eq!(kept(ArchivePolicy::FirstRender, &RENDERS), [1, 3, 28]);
    }

    #[test]
    fn one_render_in_an_interval_is_kept() {
        assert_eq!(kept(ArchivePolicy::Interval(2 * HOUR), &RENDERS), [1, 3, 5, 27]);
        assert_eq!(kept(ArchivePolicy::Interval(24 * HOUR), &RENDERS), [1, 27]);
        assert_eq!(kept(ArchivePolicy::Interval(Duration::ZERO), &RENDERS), [1, 2, 3, 5, 27, 28]);
    }

    #[test]
    fn one_that_comes_late_is_kept_where_it_is_far_from_the_last() {
        assert_eq!(
            kept(ArchivePolicy::Interval(24 * HOUR), &[(true, 100), (true, 90), (true, 50)]),
            [100, 50]
        );
    }
}
