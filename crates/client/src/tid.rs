//! The name of a render.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{InputError, Timestamp, names::excerpt};

/// The ticks of 100 ns between the beginning of the calendar of UUIDs (1582) and that of 1970.
const TICKS_BEFORE_1970: i64 = 0x01B2_1DD2_1381_4000;

/// The name of a render: a UUID of version 1 (RFC 9562) in lower case, which contains the time of the render.
///
/// ```
/// use rashomon_client::Tid;
///
/// let tid: Tid = "8f545ba0-2601-11e3-885c-4160918f0fb9".parse()?;
/// assert_eq!(tid.timestamp().to_string(), "2013-09-25T16:43:09.274Z");
/// # Ok::<(), rashomon_client::InputError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tid(u128);

impl Tid {
    /// The time of the render. A tid counts ticks of 100 ns. The time is rounded down to microseconds.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        let (low, middle, high) = (self.0 >> 96, (self.0 >> 80) & 0xffff, (self.0 >> 64) & 0x0fff);
        let ticks = i64::try_from(high << 48 | middle << 32 | low).expect("the time of a UUID has 60 bits");
        Timestamp::from_micros((ticks - TICKS_BEFORE_1970).div_euclid(10))
            .expect("the time of a UUID is between the years 1582 and 5236")
    }
}

impl FromStr for Tid {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let is_uuid = text.len() == 36
            && text.bytes().enumerate().all(|(index, byte)| match index {
                8 | 13 | 18 | 23 => byte == b'-',
                14 => byte == b'1',
                19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
                _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            });
        let refused = || InputError::Tid(excerpt(text));
        if !is_uuid {
            return Err(refused());
        }
        u128::from_str_radix(&text.replace('-', ""), 16).map(Self).map_err(|_| refused())
    }
}

impl TryFrom<String> for Tid {
    type Error = InputError;

    fn try_from(text: String) -> Result<Self, InputError> {
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
        let digits = format!("{:032x}", self.0);
        let [a, b, c, d, e] = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tid_is_a_uuid_of_version_1_in_lower_case() {
        for text in ["8f545ba0-2601-11e3-885c-4160918f0fb9", "00000000-0000-1000-8000-000000000000"] {
            assert_eq!(text.parse::<Tid>().unwrap().to_string(), text);
        }
        let last: Tid = "ffffffff-ffff-1fff-bfff-ffffffffffff".parse().unwrap();
        assert!(last.timestamp().to_string().starts_with("5236-"));
        for bad in [
            "",
            "8F545BA0-2601-11e3-885c-4160918f0fb9",
            "8f545ba0-2601-41e3-885c-4160918f0fb9",
            "8f545ba0-2601-11e3-c85c-4160918f0fb9",
            "8f545ba0260111e3885c4160918f0fb9",
            "8f545ba0-2601-11e3-885c-4160918f0fb9/",
        ] {
            assert!(matches!(bad.parse::<Tid>(), Err(InputError::Tid(_))), "{bad}");
        }
    }
}
