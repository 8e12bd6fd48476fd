//! Formats and parses times in headers of HTTP (RFC 9110, section 5.6.7).

use jiff::{civil, fmt::strtime, tz::Offset};

use crate::Timestamp;

/// Formats a time for a header, rounded down to the second.
#[must_use]
pub fn format(time: Timestamp) -> String {
    strtime::format("%a, %d %b %Y %H:%M:%S GMT", to_civil(time)).unwrap_or_default()
}

/// Parses the format that RFC 7089 requires: `Thu, 31 May 2007 20:35:00 GMT`. Returns `None` for any other text.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    // The parser also accepts a day of one digit, which the RFC does not allow.
    let has_length = text.len() == "Thu, 31 May 2007 20:35:00 GMT".len();
    has_length.then(|| parse_as("%a, %d %b %Y %H:%M:%S GMT", text)).flatten()
}

/// Parses a date of an HTTP header. Accepts the two obsolete formats as well. Returns `None` for any other text.
#[must_use]
pub fn parse_any(text: &str) -> Option<Timestamp> {
    parse(text)
        .or_else(|| parse_as("%A, %d-%b-%y %H:%M:%S GMT", text))
        .or_else(|| parse_as("%a %b %e %H:%M:%S %Y", text))
}

fn parse_as(format: &str, text: &str) -> Option<Timestamp> {
    let civil = strtime::parse(format, text).ok()?.to_datetime().ok()?;
    let seconds = civil.duration_since(civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs();
    Some(Timestamp::from_micros(seconds * 1_000_000))
}

/// Converts a time to the calendar. A time outside of the range of [`jiff::Timestamp`], about the years -9999
/// to 9999, is replaced by the nearest end of the range.
fn to_civil(time: Timestamp) -> civil::DateTime {
    let clamped = jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or(if time > Timestamp::EPOCH {
        jiff::Timestamp::MAX
    } else {
        jiff::Timestamp::MIN
    });
    Offset::UTC.to_datetime(clamped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_headers_are_read_and_written() {
        let time = Timestamp::from_micros(1_180_643_700_000_000);
        assert_eq!(format(Timestamp::from_micros(1_180_643_700_999_999)), "Thu, 31 May 2007 20:35:00 GMT");
        assert_eq!(parse("Thu, 31 May 2007 20:35:00 GMT"), Some(time));
        assert_eq!(parse_any("Thursday, 31-May-07 20:35:00 GMT"), Some(time));
        assert_eq!(parse_any("Thu May 31 20:35:00 2007"), Some(time));
        for bad in [
            "Fri, 31 May 2007 20:35:00 GMT",
            "Thu, 31 May 2007 20:35:00 CET",
            "Thu, 32 May 2007 20:35:00 GMT",
            "2007-05-31T20:35:00Z",
            "Thu, 1 May 2007 20:35:00 GMT",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        for extreme in [Timestamp::MIN, Timestamp::MAX] {
            assert!(!format(extreme).is_empty());
        }
        assert!(parse("Mon, 01 Jan 1900 00:00:00 GMT").is_some());
    }
}
