//! Decides which bodies may be culled, from the rows of the index, without I/O.

use rashomon_clock::Timestamp;
use rashomon_records::{Revision, Tid};

use crate::{Cull, Policy};

/// Finds the revision below which whole revisions of a page may be culled. Takes the renders of the page from
/// the latest down.
///
/// A render is superseded when the first higher render is stored. Only the times in the index count: a single
/// writer may not have seen all other writes.
#[derive(Debug)]
pub(crate) struct Frontier {
    cutoff: Timestamp,
    /// The number of the newest revisions that the policy keeps, whatever their age.
    kept: usize,
    /// Whether the policy culls whole revisions.
    whole_revisions: bool,
    /// The number of revisions so far.
    revisions: usize,
    /// The lowest revision so far.
    lowest: Option<Revision>,
    /// The lowest of those newest revisions that the policy keeps, so far.
    lowest_kept: Option<Revision>,
    /// The revision of the highest render that was stored at the cutoff or before. All lower renders have been
    /// superseded for long enough.
    anchor: Option<Revision>,
}

impl Frontier {
    pub(crate) fn new(policy: &Policy, cutoff: Timestamp) -> Self {
        Self {
            cutoff,
            kept: policy.kept().get(),
            whole_revisions: policy.cull == Cull::Revisions,
            revisions: 0,
            lowest: None,
            lowest_kept: None,
            anchor: None,
        }
    }

    /// Takes the next render, in descending order. Returns `true` if no further render needs to be read.
    pub(crate) fn add_render(&mut self, rev: Revision, stored_at: Timestamp) -> bool {
        if self.lowest != Some(rev) {
            self.lowest = Some(rev);
            self.revisions += 1;
            if self.revisions <= self.kept {
                self.lowest_kept = Some(rev);
            }
        }
        if self.anchor.is_none() && stored_at <= self.cutoff {
            self.anchor = Some(rev);
        }
        self.anchor.is_some() && self.revisions >= self.kept
    }

    /// The revision below which whole revisions may be culled. From this revision on, only single renders may be
    /// culled. `None` if no whole revision may be culled.
    pub(crate) fn whole_below(&self) -> Option<Revision> {
        if !self.whole_revisions || self.revisions < self.kept {
            return None;
        }
        Some(self.anchor?.min(self.lowest_kept?))
    }
}

/// Finds the render of a revision below which all renders of this revision may be culled. `renders` has the
/// renders, newest first, with the times at which they were stored.
pub(crate) fn find_render_limit(
    renders: impl IntoIterator<Item = (Tid, Timestamp)>,
    cutoff: Timestamp,
) -> Option<Tid> {
    renders.into_iter().find(|(_, stored_at)| *stored_at <= cutoff).map(|(tid, _)| tid)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn rev(number: i64) -> Revision {
        Revision::new(number).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    /// The revision below which whole revisions may be culled at second 100. `renders` is newest first:
    /// (revision, second at which it was stored).
    fn whole_below(min_keep: u32, cull: Cull, renders: &[(i64, i64)]) -> Option<i64> {
        let policy = Policy { cull, min_keep: NonZeroU32::new(min_keep).unwrap(), ..Policy::default() };
        let mut frontier = Frontier::new(&policy, at(100));
        for (number, second) in renders {
            if frontier.add_render(rev(*number), at(*second)) {
                break;
            }
        }
        frontier.whole_below().map(Revision::get)
    }

    #[test]
    fn revisions_below_the_newest_render_before_the_cutoff_are_culled() {
        assert_eq!(whole_below(1, Cull::Revisions, &[(7, 100), (6, 90), (5, 80)]), Some(7));
        // Revision 6 was superseded at second 101, which is after the cutoff. Revision 5 was superseded at
        // second 100.
        assert_eq!(whole_below(1, Cull::Revisions, &[(7, 101), (6, 100), (5, 80)]), Some(6));
        assert_eq!(whole_below(1, Cull::Revisions, &[(7, 101), (6, 101)]), None);
        assert_eq!(whole_below(1, Cull::Revisions, &[]), None);
        assert_eq!(whole_below(1, Cull::Renders, &[(7, 1), (6, 1)]), None);
    }

    /// Revision 6 was stored after revision 7, so it was superseded when it was stored.
    #[test]
    fn revision_stored_below_the_latest_is_superseded_at_once() {
        assert_eq!(whole_below(1, Cull::Revisions, &[(7, 50), (6, 120), (5, 40)]), Some(7));
    }

    #[test]
    fn newest_revisions_stay_whatever_their_age() {
        let all = [(9, 9), (8, 8), (8, 7), (7, 7), (6, 6), (5, 5)];
        assert_eq!(whole_below(3, Cull::Revisions, &all), Some(7));
        assert_eq!(whole_below(5, Cull::Revisions, &all), Some(5));
        assert_eq!(whole_below(6, Cull::Revisions, &all), None, "the page has only five revisions");
        // The anchor is lower than the revisions that are kept.
        assert_eq!(whole_below(2, Cull::Revisions, &[(9, 200), (8, 200), (7, 200), (6, 6)]), Some(6));
    }

    #[test]
    fn renders_superseded_for_long_enough_are_culled() {
        let tid = |second| Tid::new(at(second), 0);
        let below = |seconds: &[i64]| find_render_limit(seconds.iter().map(|s| (tid(*s), at(*s))), at(100));
        assert_eq!(below(&[120, 100, 90]), Some(tid(100)));
        assert_eq!(below(&[120, 110]), None);
    }
}
