//! Patterns of the names of domains and buckets.

use std::{fmt, str::FromStr};

use rashomon_records::{BucketName, DomainName, NameError};
use serde::{Deserialize, Serialize};

macro_rules! pattern {
    ($(#[$attribute:meta])* $pattern:ident of $name:ident: $what:literal) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $pattern {
            /// The name, or the beginning of the names.
            beginning: Box<str>,
            /// Whether any ending may follow.
            open: bool,
        }

        impl $pattern {
            /// The pattern `*`, which matches every name.
            #[must_use]
            pub fn any() -> Self {
                Self { beginning: "".into(), open: true }
            }

            /// Whether this is the pattern `*`.
            #[must_use]
            pub fn is_any(&self) -> bool {
                self.open && self.beginning.is_empty()
            }

            /// The size of the pattern in memory in bytes.
            pub(crate) fn size(&self) -> usize {
                size_of::<Self>() + self.beginning.len()
            }

            /// Whether the pattern matches a name.
            #[must_use]
            pub fn matches(&self, name: &$name) -> bool {
                let name = name.as_str();
                if self.open { name.starts_with(&*self.beginning) } else { name == &*self.beginning }
            }
        }

        impl FromStr for $pattern {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let (beginning, open) = match text.strip_suffix('*') {
                    Some(beginning) => (beginning, true),
                    None => (text, false),
                };
                // A beginning is valid if it is a valid name with "0" appended.
                let checked = match (open, beginning) {
                    (true, "") => Ok(()),
                    (true, _) => $name::new(&format!("{beginning}0")).map(drop),
                    (false, _) => $name::new(beginning).map(drop),
                };
                checked.map_err(|NameError(rule)| {
                    NameError(format!(
                        "'{}' matches no {}: {rule}; a '*' may only be the last character, as in 'en*'",
                        rashomon_records::excerpt(text),
                        $what,
                    ))
                })?;
                Ok(Self { beginning: beginning.into(), open })
            }
        }

        impl TryFrom<String> for $pattern {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$pattern> for String {
            fn from(pattern: $pattern) -> Self {
                pattern.to_string()
            }
        }

        impl fmt::Display for $pattern {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.beginning)?;
                f.write_str(if self.open { "*" } else { "" })
            }
        }
    };
}

pattern! {
    /// A domain, or with a `*` at the end all domains whose names begin so. `*` alone matches every domain.
    DomainPattern of DomainName: "domain"
}

pattern! {
    /// A bucket, or with a `*` at the end all buckets whose names begin so. `*` alone matches every bucket.
    BucketPattern of BucketName: "bucket"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<DomainPattern>().unwrap().matches(&DomainName::new(name).unwrap())
    }

    #[test]
    fn pattern_matches_a_name_or_a_beginning() {
        assert!(matches("enwiki", "enwiki"));
        assert!(!matches("enwiki", "enwikibooks") && !matches("enwiki", "enwik"));
        assert!(matches("en*", "en") && matches("en*", "enwiki"));
        assert!(!matches("en*", "dewiki") && !matches("en*", "e"));
        assert!(matches("*", "enwiki"));
        // A reserved name cannot name a domain, but the name of a domain may begin with it.
        assert!(matches("batch*", "batch-2"));
        assert!(matches("zh_*", "zh_min_nanwiki") && !matches("zh_*", "zhwiki"));
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for bad in ["", "**", "*wiki", "e*i", "en**", "EN*", "-*", "a b", "batch", &"x".repeat(129)] {
            let error = bad.parse::<DomainPattern>().unwrap_err();
            assert!(error.to_string().contains("'en*'"), "{bad}: {error}");
        }
        for bad in ["", "1*", "a.b", "*x"] {
            assert!(bad.parse::<BucketPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn parsed_pattern_displays_its_text() {
        for text in ["enwiki", "en*", "*"] {
            assert_eq!(text.parse::<DomainPattern>().unwrap().to_string(), text);
        }
        assert!(DomainPattern::any().is_any() && "*".parse::<BucketPattern>().unwrap().is_any());
        assert!(!"e*".parse::<DomainPattern>().unwrap().is_any());
    }
}
