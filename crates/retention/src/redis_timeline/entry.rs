//! The entries in Redis.
//!
//! A page has two sorted sets: one of revisions and one of renders. All scores in these sets are zero, so the
//! members are in the order of their bytes. Members begin with hexadecimal numbers of a fixed width. So
//! revisions are in the order of their times, and renders are in the order of their revisions and times. Times
//! are not stored as scores, since a score cannot represent a time after the year 2255 to the microsecond.

use rashomon_clock::Timestamp;
use rashomon_records::{Page, Revision, Superseded, Tid};

/// An entry: the superseded value, the time at which it was superseded, and the time until which the entry is
/// needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    pub(crate) what: Superseded,
    pub(crate) until: Timestamp,
}

impl Entry {
    /// Encodes the entry as a member of its set.
    pub(crate) fn to_member(self) -> String {
        let Self { at, what, until } = self;
        let until = sortable(until);
        match what {
            Superseded::Revision(rev) => format!("{}:{:016x}:{until}", sortable(at), rev.get()),
            Superseded::Render(rev, tid) => format!("{:016x}:{}:{tid}:{until}", rev.get(), sortable(at)),
        }
    }

    /// Decodes a member of a page's revisions.
    pub(crate) fn of_revision(member: &str) -> Option<Self> {
        let [at, rev, until] = fields(member)?;
        let rev = Revision::new(i64::from_str_radix(rev, 16).ok()?)?;
        Some(Self { at: unsortable(at)?, what: Superseded::Revision(rev), until: unsortable(until)? })
    }

    /// Decodes a member of a page's renders.
    pub(crate) fn of_render(member: &str) -> Option<Self> {
        let [rev, at, tid, until] = fields(member)?;
        let rev = Revision::new(i64::from_str_radix(rev, 16).ok()?)?;
        let tid: Tid = tid.parse().ok()?;
        Some(Self { at: unsortable(at)?, what: Superseded::Render(rev, tid), until: unsortable(until)? })
    }
}

/// Returns the key of the set of a page's revisions. The title is last, since only a title may contain a colon.
pub(crate) fn revisions_key(page: &Page) -> String {
    format!("rashomon:revisions:{}:{}:{}", page.domain, page.bucket.as_key(), page.title)
}

/// Returns the key of the set of a page's renders.
pub(crate) fn renders_key(page: &Page) -> String {
    format!("rashomon:renders:{}:{}:{}", page.domain, page.bucket.as_key(), page.title)
}

/// Returns the bounds of all revisions superseded at `at` or before, in the syntax of Redis: the lower bound, then
/// the upper bound.
pub(crate) fn revisions_until(at: Timestamp) -> (String, String) {
    ("-".to_owned(), after(&sortable(at)))
}

/// Returns the bounds of all renders of a revision superseded at `at` or before, in the syntax of Redis: the lower
/// bound, then the upper bound.
pub(crate) fn renders_until(rev: Revision, at: Timestamp) -> (String, String) {
    let rev = format!("{:016x}:", rev.get());
    (format!("[{rev}"), after(&format!("{rev}{}", sortable(at))))
}

/// Returns the upper bound that includes the members that begin with these fields, and excludes all members after
/// these members.
fn after(fields: &str) -> String {
    // `;` comes after the colon in ASCII.
    format!("({fields};")
}

/// Formats a time so that the texts are in the same order as the times. Times before 1970 are supported.
fn sortable(time: Timestamp) -> String {
    format!("{:016x}", time.as_micros().cast_unsigned() ^ (1 << 63))
}

fn unsortable(text: &str) -> Option<Timestamp> {
    let bits = u64::from_str_radix(text, 16).ok()? ^ (1 << 63);
    Some(Timestamp::from_micros(bits.cast_signed()))
}

fn fields<const N: usize>(member: &str) -> Option<[&str; N]> {
    member.split(':').collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [Timestamp; 5] = [
        Timestamp::MIN,
        Timestamp::from_micros(-1),
        Timestamp::EPOCH,
        Timestamp::from_micros(1_767_225_600_000_001),
        Timestamp::MAX,
    ];

    fn rev(number: i64) -> Revision {
        Revision::new(number).unwrap()
    }

    #[test]
    fn members_are_in_the_order_of_their_times_and_can_be_read_back() {
        let members: Vec<_> = (TIMES.iter())
            .map(|at| Entry { at: *at, what: Superseded::Revision(rev(7)), until: Timestamp::MAX })
            .inspect(|entry| assert_eq!(Entry::of_revision(&entry.to_member()), Some(*entry)))
            .map(Entry::to_member)
            .collect();
        assert!(members.is_sorted(), "{members:?}");
    }

    #[test]
    fn renders_are_in_the_order_of_their_revisions_first() {
        let tid = Tid::new(Timestamp::EPOCH, 1);
        let member = |number, at| {
            let entry = Entry { at, what: Superseded::Render(rev(number), tid), until: Timestamp::EPOCH };
            assert_eq!(Entry::of_render(&entry.to_member()), Some(entry));
            entry.to_member()
        };
        assert!(member(9, Timestamp::MAX) < member(10, Timestamp::MIN));
        assert!(member(10, Timestamp::MIN) < member(10, Timestamp::EPOCH));
    }

    #[test]
    fn a_bound_includes_its_time_and_no_later_one() {
        let entry = |at| Entry { at, what: Superseded::Revision(Revision::MAX), until: Timestamp::MAX };
        for pair in TIMES.windows(2) {
            let (_, upper) = revisions_until(pair[0]);
            let upper = upper.strip_prefix('(').unwrap();
            assert!(entry(pair[0]).to_member().as_str() < upper);
            assert!(entry(pair[1]).to_member().as_str() > upper);
        }
    }

    #[test]
    fn other_members_are_refused() {
        for member in ["", "x", "1:2:3:4:5", "zz:0000000000000001:00", "0:0:0"] {
            assert_eq!(Entry::of_revision(member), None, "{member}");
            assert_eq!(Entry::of_render(member), None, "{member}");
        }
    }
}
