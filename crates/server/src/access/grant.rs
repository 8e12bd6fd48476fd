//! Grants: rights on domains and buckets.

use rashomon_records::{BucketName, DomainName};
use serde::{Deserialize, Serialize};

use crate::access::{BucketPattern, DomainPattern, Right, Rights};

/// The maximum number of patterns of domains or of buckets in a grant.
pub const MAX_PATTERNS: usize = 100;

/// The rights that a token grants, and the domains and buckets on which it grants them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The rights.
    pub rights: Rights,
    /// The domains.
    pub domains: Vec<DomainPattern>,
    /// The buckets; `None` for all buckets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<BucketPattern>>,
}

impl Grant {
    /// Whether the grant has this right on a bucket of a domain.
    #[must_use]
    pub fn allows(&self, right: Right, domain: &DomainName, bucket: &BucketName) -> bool {
        self.rights.contains(right)
            && self.domains.iter().any(|pattern| pattern.matches(domain))
            && self.buckets.as_ref().is_none_or(|buckets| buckets.iter().any(|one| one.matches(bucket)))
    }

    /// Whether the grant has this right on at least one bucket of a domain. The bucket need not exist.
    #[must_use]
    pub fn allows_in(&self, right: Right, domain: &DomainName) -> bool {
        self.rights.contains(right)
            && self.domains.iter().any(|pattern| pattern.matches(domain))
            && self.buckets.as_ref().is_none_or(|buckets| !buckets.is_empty())
    }

    /// Whether the grant has this right on every bucket of every domain.
    #[must_use]
    pub fn allows_everywhere(&self, right: Right) -> bool {
        self.rights.contains(right)
            && self.domains.iter().any(DomainPattern::is_any)
            && self.buckets.as_ref().is_none_or(|buckets| buckets.iter().any(BucketPattern::is_any))
    }

    /// The approximate size of the patterns in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let domains = self.domains.iter().map(DomainPattern::size).sum::<usize>();
        domains + self.buckets.iter().flatten().map(BucketPattern::size).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(rights: &[Right], domains: &[&str], buckets: Option<&[&str]>) -> Grant {
        Grant {
            rights: rights.iter().copied().collect(),
            domains: domains.iter().map(|text| text.parse().unwrap()).collect(),
            buckets: buckets.map(|all| all.iter().map(|text| text.parse().unwrap()).collect()),
        }
    }

    #[test]
    fn right_domain_and_bucket_must_all_fit() {
        let (enwiki, dewiki) = (DomainName::new("enwiki").unwrap(), DomainName::new("dewiki").unwrap());
        let (page, math) = (BucketName::page(), BucketName::new("math").unwrap());
        let one = grant(&[Right::Read], &["enwiki"], Some(&["page"]));
        assert!(one.allows(Right::Read, &enwiki, &page));
        assert!(!one.allows(Right::Write, &enwiki, &page));
        assert!(!one.allows(Right::Read, &dewiki, &page));
        assert!(!one.allows(Right::Read, &enwiki, &math));
        // Without buckets, the grant holds for all of them; with an empty list, for none.
        assert!(grant(&[Right::Read], &["en*"], None).allows(Right::Read, &enwiki, &math));
        assert!(!grant(&[Right::Read], &["en*"], Some(&[])).allows(Right::Read, &enwiki, &math));
        assert!(!Grant::default().allows(Right::Read, &enwiki, &page));
        assert!(one.allows_in(Right::Read, &enwiki) && !one.allows_in(Right::Write, &enwiki));
        assert!(!one.allows_in(Right::Read, &dewiki));
        assert!(!grant(&[Right::Read], &["en*"], Some(&[])).allows_in(Right::Read, &enwiki));
    }

    #[test]
    fn everywhere_means_every_domain_and_every_bucket() {
        assert!(grant(&[Right::Admin], &["x", "*"], None).allows_everywhere(Right::Admin));
        assert!(grant(&[Right::Admin], &["*"], Some(&["page", "*"])).allows_everywhere(Right::Admin));
        for not in [
            grant(&[Right::Read], &["*"], None),
            grant(&[Right::Admin], &["e*"], None),
            grant(&[Right::Admin], &["*"], Some(&["page"])),
            grant(&[Right::Admin], &[], None),
        ] {
            assert!(!not.allows_everywhere(Right::Admin), "{not:?}");
        }
    }
}
