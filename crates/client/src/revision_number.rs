//! The number of a revision.

use std::{convert::Infallible, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{InputError, names::excerpt};

/// The number of a revision: 1 to 2<sup>63</sup> - 1, unique in its page.
///
/// Functions that take a number accept integers, too, and report 0 and negative numbers as
/// [`InputError::RevisionNumber`].
///
/// ```
/// use rashomon_client::RevisionNumber;
///
/// assert_eq!("12345".parse::<RevisionNumber>()?, RevisionNumber::try_from(12345)?);
/// assert!(RevisionNumber::try_from(0).is_err());
/// # Ok::<(), rashomon_client::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct RevisionNumber(u64);

impl RevisionNumber {
    /// The number as an integer.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl TryFrom<$integer> for RevisionNumber {
            type Error = InputError;

            fn try_from(number: $integer) -> Result<Self, InputError> {
                let fitting = i64::try_from(number).ok().filter(|number| *number > 0);
                let number = fitting.ok_or_else(|| InputError::RevisionNumber(number.to_string()))?;
                Ok(Self(number.unsigned_abs()))
            }
        }
    )*};
}

from_integer!(i32, u32, i64, u64);

impl From<RevisionNumber> for u64 {
    fn from(number: RevisionNumber) -> Self {
        number.0
    }
}

impl FromStr for RevisionNumber {
    type Err = InputError;

    /// Parses decimal digits, without a sign and without leading zeros.
    fn from_str(text: &str) -> Result<Self, InputError> {
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        let number = text.parse::<u64>().ok().filter(|_| is_decimal);
        number
            .and_then(|number| Self::try_from(number).ok())
            .ok_or_else(|| InputError::RevisionNumber(excerpt(text)))
    }
}

impl fmt::Display for RevisionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RevisionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A conversion that cannot fail.
impl From<Infallible> for InputError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_positive_and_written_in_one_way() {
        for (text, number) in [("1", 1), ("12345", 12345), ("9223372036854775807", i64::MAX)] {
            assert_eq!(text.parse::<RevisionNumber>().unwrap(), RevisionNumber::try_from(number).unwrap());
            assert_eq!(RevisionNumber::try_from(number).unwrap().to_string(), text);
        }
        for bad in ["", "0", "-1", "+1", "01", "1 ", "1.0", "٣", "9223372036854775808"] {
            assert!(bad.parse::<RevisionNumber>().is_err(), "{bad:?}");
        }
        assert!(RevisionNumber::try_from(-1).is_err());
        assert!(RevisionNumber::try_from(u64::MAX).is_err());
        assert!(serde_json::from_str::<RevisionNumber>("0").is_err());
    }
}
