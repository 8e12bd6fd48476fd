//! The rights of clients, and sets of rights.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a client may do. No right implies another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Read what is stored.
    Read,
    /// Store new revisions and new renders. In key-value buckets: store and delete entries, and increment counters.
    Write,
    /// Import whole histories. With [`Right::Write`], also set the times of writes, such as times in the past.
    Import,
    /// Replace stored properties in place.
    Rewrite,
    /// Create, change and delete buckets. On every domain and every bucket: make, list and revoke tokens.
    Admin,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Import, Self::Rewrite, Self::Admin];

    /// The name of the right.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Import => "import",
            Self::Rewrite => "rewrite",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error for a text that is not a right. It lists the rights.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a right: the rights are read, write, import, rewrite and admin")]
pub struct UnknownRight(String);

impl FromStr for Right {
    type Err = UnknownRight;

    fn from_str(text: &str) -> Result<Self, UnknownRight> {
        let known = Self::ALL.into_iter().find(|right| right.as_str() == text);
        known.ok_or_else(|| UnknownRight(rashomon_records::excerpt(text)))
    }
}

/// A set of rights. It is written as a list of names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);

    /// All rights.
    #[must_use]
    pub fn all() -> Self {
        Right::ALL.into_iter().collect()
    }

    /// Whether the set has this right.
    #[must_use]
    pub const fn contains(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Whether the set has no right.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The rights of the set, in the order of [`Right::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.contains(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Right::as_str)).finish()
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, right) in self.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{right}")?;
        }
        Ok(())
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Right::as_str))
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let rights: Result<_, _> = names.iter().map(|name| name.parse::<Right>()).collect();
        rights.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_of_one_right_contains_no_other() {
        for one in Right::ALL {
            let rights = Rights::from_iter([one]);
            for other in Right::ALL {
                assert_eq!(rights.contains(other), one == other, "{one} and {other}");
            }
        }
    }

    #[test]
    fn sets_are_written_as_lists() {
        let rights: Rights = serde_json::from_str(r#"["write", "read"]"#).unwrap();
        assert_eq!(serde_json::to_string(&rights).unwrap(), r#"["read","write"]"#);
        assert_eq!(rights.to_string(), "read,write");
        for bad in [r#"["reed"]"#, r#"["*"]"#, r#"["READ"]"#, r#""read""#] {
            assert!(serde_json::from_str::<Rights>(bad).is_err(), "{bad}");
        }
    }
}
