//! The names of renders.

use std::{fmt, str::FromStr};

use rashomon_clock::{TimeUuid, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{NameError, Page, Revision};

/// The name of a render: a UUID of version 1 (RFC 9562), which contains the time of the render.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tid(TimeUuid);

/// Ticks of 100 ns from 1582-10-15 to 1970-01-01.
const EPOCH_TICKS: i128 = 0x01b2_1dd2_1381_4000;

impl Tid {
    /// Creates the tid of a time. The bits of `distinction` distinguish renders of the same time. The node is marked as
    /// not being a hardware address (RFC 9562, section 6.10).
    ///
    /// A time that a UUID cannot contain (before 1582 or after 5236) is replaced by the nearest possible time.
    #[must_use]
    pub fn new(time: Timestamp, distinction: u64) -> Self {
        Self::from_ticks(Self::ticks_at(time), distinction)
    }

    /// Creates the tid of a write whose request has a timestamp. The tid depends only on the arguments, so that two
    /// imports of a revision have the same tid. It differs between revisions.
    #[must_use]
    pub fn imported(page: &Page, rev: Revision, time: Timestamp) -> Self {
        let mut hash = page.hash();
        hash.update(&rev.get().to_be_bytes());
        Self::new(time, hash.digest())
    }

    /// Returns a tid that is one tick later, with other distinguishing bits. `None` if a UUID cannot contain a later
    /// time.
    #[must_use]
    pub fn next(self, distinction: u64) -> Option<Self> {
        let ticks = self.0.ticks() + 1;
        (ticks >> 60 == 0).then(|| Self::from_ticks(ticks, distinction))
    }

    /// Returns the lowest tid of the microsecond after `time`. All lower tids have the time `time` or an earlier time.
    #[must_use]
    pub fn first_after(time: Timestamp) -> Self {
        Self::smallest(Self::ticks_at(time) + 10)
    }

    fn smallest(ticks: u64) -> Self {
        // In the ordered form, the last eight bytes have their highest bit inverted. So a 0 there encodes 0x80: the
        // smallest signed byte, and a valid variant in byte 8.
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&ticks.min((1 << 60) - 1).to_be_bytes());
        Self(TimeUuid::from_ordered_bytes(bytes).expect("0x80 in byte 8 is the variant"))
    }

    fn ticks_at(time: Timestamp) -> u64 {
        let ticks = i128::from(time.as_micros()) * 10 + EPOCH_TICKS;
        ticks.clamp(0, (1 << 60) - 1) as u64
    }

    fn from_ticks(ticks: u64, distinction: u64) -> Self {
        let bits = distinction.to_be_bytes();
        let last =
            [0x80 | (bits[0] & 0x3f), bits[1], bits[2] | 0x01, bits[3], bits[4], bits[5], bits[6], bits[7]];
        let uuid = Uuid::from_fields(
            (ticks & 0xffff_ffff) as u32,
            ((ticks >> 32) & 0xffff) as u16,
            ((ticks >> 48) & 0x0fff) as u16 | 0x1000,
            &last,
        );
        Self(TimeUuid::new(uuid).expect("version and variant were just set"))
    }

    /// The time that the tid contains, rounded down to a microsecond.
    #[must_use]
    pub fn time(self) -> Timestamp {
        let micros = (i128::from(self.0.ticks()) - EPOCH_TICKS).div_euclid(10);
        Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    /// Returns the tid as the type of the table layer.
    #[must_use]
    pub const fn as_time_uuid(self) -> TimeUuid {
        self.0
    }
}

impl From<TimeUuid> for Tid {
    fn from(uuid: TimeUuid) -> Self {
        Self(uuid)
    }
}

impl FromStr for Tid {
    type Err = NameError;

    /// Parses a tid, hyphenated and in lower case, as it is printed.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let shaped = text.len() == 36 && !text.bytes().any(|b| b.is_ascii_uppercase());
        let uuid = shaped.then(|| Uuid::try_parse(text).ok()).flatten().ok_or_else(|| {
            NameError(
                "a tid is a UUID in lower case, such as 8f545ba0-2601-11e3-885c-4160918f0fb9".to_owned(),
            )
        })?;
        TimeUuid::new(uuid).map(Self).ok_or_else(|| {
            NameError(
                "a tid is a UUID of version 1: the third group begins with 1, the fourth with 8 to b"
                    .to_owned(),
            )
        })
    }
}

impl TryFrom<String> for Tid {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Tid> for String {
    fn from(tid: Tid) -> Self {
        tid.to_string()
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_tid_of_the_design_notes_is_parsed_to_its_time_and_printed_unchanged() {
        let tid: Tid = "8f545ba0-2601-11e3-885c-4160918f0fb9".parse().unwrap();
        assert_eq!(tid.time(), Timestamp::from_micros(1_380_127_389_274_000));
        assert_eq!(tid.to_string(), "8f545ba0-2601-11e3-885c-4160918f0fb9");
    }

    #[test]
    fn tid_contains_exactly_its_time() {
        for micros in [0, 1, -1, 1_380_127_389_274_123, 4_102_444_800_000_000] {
            let time = Timestamp::from_micros(micros);
            for distinction in [0, u64::MAX, 0x1234_5678_9abc_def0] {
                let tid = Tid::new(time, distinction);
                assert_eq!(tid.time(), time);
                assert!(tid < Tid::first_after(time));
                assert!(tid >= Tid::first_after(Timestamp::from_micros(micros - 1)));
            }
        }
    }

    /// Every store contains such tids, and two stores have to agree on them.
    #[test]
    fn imported_tid_never_changes() {
        let page = Page {
            domain: "enwiki".parse().unwrap(),
            bucket: crate::BucketName::page(),
            title: "Main_Page".parse().unwrap(),
        };
        let time = Timestamp::from_micros(1_380_127_389_274_000);
        let tid = |rev: i64| Tid::imported(&page, Revision::new(rev).unwrap(), time);
        assert_eq!(tid(12345).to_string(), "8f545ba0-2601-11e3-b811-19bf6c7f13b3");
        assert_ne!(tid(12345), tid(12346));
        assert_eq!(tid(12345).time(), time);
        let node = tid(12345).as_time_uuid().as_uuid().as_bytes()[10];
        assert_eq!(node & 1, 1, "no hardware address");
    }

    #[test]
    fn next_is_one_tick_later_for_every_distinction() {
        let tid = Tid::new(Timestamp::from_micros(1_380_127_389_274_000), u64::MAX);
        for distinction in [0, 1, u64::MAX] {
            let next = tid.next(distinction).unwrap();
            assert!(next > tid);
            assert_eq!(next.as_time_uuid().ticks(), tid.as_time_uuid().ticks() + 1);
        }
    }

    #[test]
    fn the_last_tid_has_no_next() {
        let last: Tid = "ffffffff-ffff-1fff-bfff-ffffffffffff".parse().unwrap();
        assert_eq!(last.next(0), None);
    }

    #[test]
    fn other_versions_and_spellings_are_refused() {
        for bad in [
            "8f545ba0-2601-41e3-885c-4160918f0fb9",
            "8F545BA0-2601-11e3-885c-4160918f0fb9",
            "8f545ba0260111e3885c4160918f0fb9",
            "8f545ba0-2601-11e3-085c-4160918f0fb9",
            "{8f545ba0-2601-11e3-885c-4160918f0f}",
            "",
        ] {
            assert!(bad.parse::<Tid>().is_err(), "{bad}");
        }
    }
}
