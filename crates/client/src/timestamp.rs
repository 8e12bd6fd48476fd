//! Points in time.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{InputError, names::excerpt};

/// A point in time, in microseconds since 1970 (UTC). Its text is RFC 3339, as in `2013-09-25T16:43:09.274Z`.
///
/// ```
/// use rashomon_client::Timestamp;
///
/// let time: Timestamp = "2013-09-25T18:43:09.274+02:00".parse()?;
/// assert_eq!(time.to_string(), "2013-09-25T16:43:09.274Z");
/// assert_eq!(time.as_micros(), 1_380_127_389_274_000);
/// # Ok::<(), rashomon_client::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time this many microseconds after the beginning of 1970 (UTC), or before it if the number is negative.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Timestamp`] if the year would not have four digits.
    pub fn from_micros(micros: i64) -> Result<Self, InputError> {
        let time = jiff::Timestamp::from_microsecond(micros).ok();
        // RFC 3339 cannot express times before the year 0.
        let time = time.filter(|time| *time >= jiff::Timestamp::constant(-62_167_219_200, 0));
        time.map(Self).ok_or_else(|| InputError::Timestamp(format!("{micros} microseconds since 1970")))
    }

    /// Microseconds since the beginning of 1970 (UTC); negative before it.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }
}

impl FromStr for Timestamp {
    type Err = InputError;

    /// Parses RFC 3339, with at most six digits after the seconds.
    fn from_str(text: &str) -> Result<Self, InputError> {
        let refused = || InputError::Timestamp(excerpt(text));
        let (seconds, _) = text.split_at_checked(19).ok_or_else(refused)?;
        // The library `jiff` accepts other forms of ISO 8601, too.
        let is_rfc_3339 = seconds.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            10 => matches!(byte, b'T' | b't' | b' '),
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        });
        let time: jiff::Timestamp = text.parse().map_err(|_| refused())?;
        if !is_rfc_3339 || time.as_nanosecond() % 1000 != 0 {
            return Err(refused());
        }
        Self::from_micros(time.as_microsecond())
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InputError;

    fn try_from(text: String) -> Result<Self, InputError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = InputError;

    /// Digits below a microsecond are dropped.
    fn try_from(time: SystemTime) -> Result<Self, InputError> {
        let micros = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).ok(),
            Err(error) => i64::try_from(error.duration().as_micros()).ok().map(|before| -before),
        };
        Self::from_micros(micros.ok_or_else(|| InputError::Timestamp("a time of the system".to_owned()))?)
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.as_micros().unsigned_abs());
        if time.as_micros() < 0 { Self::UNIX_EPOCH - distance } else { Self::UNIX_EPOCH + distance }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_with_as_many_digits_as_it_has() {
        for (text, written) in [
            ("2013-09-25T16:43:09Z", "2013-09-25T16:43:09Z"),
            ("2013-09-25T16:43:09.274000Z", "2013-09-25T16:43:09.274Z"),
            ("2013-09-25T16:43:09.000001Z", "2013-09-25T16:43:09.000001Z"),
            ("2013-09-25T16:43:09-01:30", "2013-09-25T18:13:09Z"),
        ] {
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(time.to_string(), written);
            assert_eq!(Timestamp::from_micros(time.as_micros()).unwrap(), time);
            assert_eq!(Timestamp::try_from(SystemTime::from(time)).unwrap(), time);
        }
        let before = Timestamp::from_micros(-1_500_000).unwrap();
        assert_eq!(Timestamp::try_from(SystemTime::from(before)).unwrap(), before);
    }

    #[test]
    fn texts_other_than_rfc_3339_are_refused() {
        for text in [
            "",
            "2013",
            "2013-09-25",
            "2013-09-25T16:43:09",
            "20130925T164309Z",
            "2013-09-25T16:43:09.1234567Z",
            "2013-09-25T25:00:00Z",
            "2013-09-25T16:43:09Z\n",
            "+002013-09-25T16:43:09Z",
            "ééééééééééé",
        ] {
            assert!(matches!(text.parse::<Timestamp>(), Err(InputError::Timestamp(_))), "{text:?}");
        }
        assert!(Timestamp::from_micros(i64::MAX).is_err() && Timestamp::from_micros(i64::MIN).is_err());
    }
}
