//! Times in the format of exports: RFC 3339, in UTC.

use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::Tid;

use crate::{LeftOut, LeftOutReason};

/// Reads the time of a revision. Fails if there is no time, or if it is invalid or later than `latest`.
pub(crate) fn parse_revision_time(text: Option<&str>, latest: Timestamp) -> Result<Timestamp, LeftOutReason> {
    let text = text.ok_or(LeftOutReason::NoTimestamp)?;
    let time = parse(text).ok_or_else(|| LeftOutReason::BadTimestamp(LeftOut::shorten(text)))?;
    check_not_future(time, latest).map(|()| time)
}

/// Checks that a time is not in the future.
pub(crate) fn check_not_future(time: Timestamp, latest: Timestamp) -> Result<(), LeftOutReason> {
    if time > latest { Err(LeftOutReason::InFuture(rfc3339::format(time))) } else { Ok(()) }
}

/// Reads a time. `None` if it is invalid, is no whole number of microseconds, is in a leap second, or cannot be part of
/// a tid (before 1582, after 5236).
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let time: jiff::Timestamp = text.parse().ok()?;
    if is_leap_second(text) {
        return None;
    }
    let exact = time.subsec_nanosecond() % 1000 == 0;
    let time = Timestamp::from_micros(time.as_microsecond());
    (exact && Tid::new(time, 0).time() == time).then_some(time)
}

/// Whether a time has the second 60, which a parser reads as 59.
fn is_leap_second(text: &str) -> bool {
    let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
    let mut digits = time.bytes().filter(|byte| *byte != b':').skip(4);
    digits.next() == Some(b'6') && digits.next() == Some(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_a_round_trip() {
        for text in ["2011-11-01T16:53:14Z", "1969-12-31T23:59:59.999999Z", "2001-01-15T13:15:00.25Z"] {
            assert_eq!(rfc3339::format(parse(text).unwrap()), text);
        }
        assert_eq!(parse(" 2001-01-15T14:15:00+01:00\n"), parse("2001-01-15T13:15:00Z"));
    }

    #[test]
    fn invalid_and_impossible_times_are_none() {
        for text in [
            "",
            "yesterday",
            "2001-01-15",
            "2001-13-15T13:15:00Z",
            "20010115131500",
            "2001-01-15T13:15:00",
            "2001-01-15T13:15:00.0000001Z",
            "0000-00-00T00:00:00Z",
            "1500-01-01T00:00:00Z",
            "9000-01-01T00:00:00Z",
            "2016-12-31T23:59:60Z",
            "2017-01-01t00:59:60.5+01:00",
            "20161231T235960Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
