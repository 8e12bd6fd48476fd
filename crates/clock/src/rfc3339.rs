//! Formats and parses times (RFC 3339) in URLs, forms, JSON and exports.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use jiff::civil;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Timestamp;

/// The error for a text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a time is RFC 3339 with at most six digits after the seconds, as in 2013-09-25T16:43:09.274Z")]
pub struct TimeError;

impl FromStr for Timestamp {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text).ok_or(TimeError)
    }
}

/// Writes the time like [`format`](fn@format).
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        nearest(*self).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// Digits below a microsecond are dropped.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self::EPOCH.saturating_add(after),
            Err(before) => Self::EPOCH.saturating_sub(before.duration()),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.as_micros().unsigned_abs());
        if time < Timestamp::EPOCH { Self::UNIX_EPOCH - distance } else { Self::UNIX_EPOCH + distance }
    }
}

const MICROS_PER_SECOND: i64 = 1_000_000;

/// Parses a time with `Z` or an offset. `T` and `Z` may be in lower case (section 5.6). The fraction of a
/// second has at most six digits. Returns `None` for a leap second, and for any text of another form.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    let matches = |&(at, separator): &(usize, u8)| bytes[at].to_ascii_uppercase() == separator;
    if bytes.len() < 20 || !separators.iter().all(matches) {
        return None;
    }
    let time = civil::DateTime::new(
        number(&bytes[0..4])?,
        i8::try_from(number(&bytes[5..7])?).ok()?,
        i8::try_from(number(&bytes[8..10])?).ok()?,
        i8::try_from(number(&bytes[11..13])?).ok()?,
        i8::try_from(number(&bytes[14..16])?).ok()?,
        i8::try_from(number(&bytes[17..19])?).ok()?,
        0,
    )
    .ok()?;
    let (fraction, offset) = parse_fraction(&bytes[19..])?;
    let seconds = time.duration_since(civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0)).as_secs();
    Some(Timestamp::from_micros((seconds - parse_offset(offset)?) * MICROS_PER_SECOND + fraction))
}

/// Parses a date alone, such as `2013-09-25`, to the last microsecond of that day in UTC, so that what happened on the
/// day is before this time.
#[must_use]
pub fn parse_end_of_day(text: &str) -> Option<Timestamp> {
    if text.len() == 10 { parse(&format!("{text}T23:59:59.999999Z")) } else { None }
}

/// Parses a fraction of a second, such as `.25`, to microseconds, and also returns the bytes after the fraction. The
/// result is 0 if there is no fraction, and `None` if the fraction has no digit or more than six digits.
fn parse_fraction(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = bytes.strip_prefix(b".") else { return Some((0, bytes)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=6).contains(&digits) {
        return None;
    }
    let micros = (0..6).fold(0, |value, place| {
        value * 10 + rest.get(place).filter(|_| place < digits).map_or(0, |digit| i64::from(digit - b'0'))
    });
    Some((micros, &rest[digits..]))
}

/// Parses an offset to seconds east of UTC.
fn parse_offset(bytes: &[u8]) -> Option<i64> {
    match bytes {
        b"Z" | b"z" => Some(0),
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let hours = number(&[*h1, *h2]).filter(|hours| *hours < 24)?;
            let minutes = number(&[*m1, *m2]).filter(|minutes| *minutes < 60)?;
            let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

/// Parses at most four decimal digits.
fn number(digits: &[u8]) -> Option<i16> {
    digits
        .iter()
        .try_fold(0, |value: i16, digit| digit.is_ascii_digit().then(|| value * 10 + i16::from(digit - b'0')))
}

/// Formats a time in UTC, with as many fractional digits as necessary. A time outside of the range of
/// [`jiff::Timestamp`] (the years -9999 to 9999, less about a day at each end) is formatted as the nearest end of the
/// range.
#[must_use]
pub fn format(time: Timestamp) -> String {
    nearest(time).to_string()
}

/// Formats a time like [`format`](fn@format), but always with six fractional digits, so that all times of four-digit
/// years have the same length.
#[must_use]
pub fn format_micros(time: Timestamp) -> String {
    format!("{:.6}", nearest(time))
}

/// Returns the time, or the nearest end of the range of [`jiff::Timestamp`] if the time is outside of this range.
fn nearest(time: Timestamp) -> jiff::Timestamp {
    let limit = if time < Timestamp::EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::from_microsecond(time.as_micros()).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rfc_3339_are_read_to_the_microsecond() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("2013-09-25T16:43:09.274Z", 1_380_127_389_274_000),
            ("2013-09-25T16:43:09.000001Z", 1_380_127_389_000_001),
            ("2013-09-25t16:43:09.274z", 1_380_127_389_274_000),
            ("2013-09-25T18:43:09.274+02:00", 1_380_127_389_274_000),
            ("2013-09-25T16:13:09.274-00:30", 1_380_127_389_274_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
            ("2012-02-29T00:00:00Z", 1_330_473_600_000_000),
        ];
        for (text, micros) in cases {
            assert_eq!(parse(text), Some(Timestamp::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        let cases = [
            "",
            "2013-09-25",
            "2013-09-25T16:43:09",
            "2013-09-25 16:43:09Z",
            "2013-09-25_16:43:09Z",
            "2013-09-25T16:43Z",
            "2013-13-25T16:43:09Z",
            "2013-02-29T16:43:09Z",
            "2013-09-25T24:00:00Z",
            "2013-09-25T16:43:09.Z",
            "2013-09-25T16:43:09.1234567Z",
            "2013-09-25T16:43:09+0200",
            "2013-09-25T16:43:09+24:00",
            "2013-09-25T16:43:09Z ",
            "+013-09-25T16:43:09Z",
            "2013-09-25T16:43:0éZ",
        ];
        for text in cases {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn date_means_the_end_of_its_day() {
        assert_eq!(parse_end_of_day("2013-09-25"), parse("2013-09-25T23:59:59.999999Z"));
        for text in ["2013-02-29", "2013-9-25", "2013-09-25Z", "2013-09-2é", "2013/09/25", ""] {
            assert_eq!(parse_end_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn fraction_is_written_without_trailing_zeros() {
        let cases = [
            (1_380_127_389_274_000, "2013-09-25T16:43:09.274Z"),
            (1_380_127_389_000_000, "2013-09-25T16:43:09Z"),
            (1_380_127_389_000_001, "2013-09-25T16:43:09.000001Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(format(Timestamp::from_micros(micros)), text);
            assert_eq!(parse(text), Some(Timestamp::from_micros(micros)));
        }
        for extreme in [Timestamp::MIN, Timestamp::MAX] {
            assert!(!format(extreme).is_empty());
        }
    }

    #[test]
    fn time_is_converted_to_text_and_to_times_of_the_system() {
        let time: Timestamp = "2013-09-25T18:43:09.274+02:00".parse().unwrap();
        assert_eq!(time.to_string(), "2013-09-25T16:43:09.274Z");
        assert_eq!("2013-09-25".parse::<Timestamp>(), Err(TimeError));
        for time in [time, Timestamp::from_micros(-1_500_000)] {
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[test]
    fn times_with_microseconds_have_six_digits() {
        let cases = [
            (1_380_127_389_000_000, "2013-09-25T16:43:09.000000Z"),
            (1_380_127_389_274_000, "2013-09-25T16:43:09.274000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(format_micros(Timestamp::from_micros(micros)), text);
        }
    }
}
