//! What clients without a token may do.

use std::collections::BTreeMap;

use rashomon_records::{BucketName, DomainName, PurgeEntry, PurgedChange};

use crate::access::{Right, Rights};

/// The kind of a bucket, on which rights depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketKind {
    /// A bucket of revisions, such as `page`.
    Revisioned,
    /// A key-value bucket that every reader of the domain's pages may read.
    Public,
    /// Any other key-value bucket. A client without a token has rights on it only by an entry for this bucket.
    Private,
}

/// The rights of clients without a token. A more specific entry replaces a more general one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnonymousRights {
    /// The rights, unless the domain or the bucket sets its own.
    pub everywhere: Rights,
    /// The rights in single domains.
    pub domains: BTreeMap<DomainName, DomainRights>,
}

/// The rights of clients without a token in one domain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DomainRights {
    /// The rights on buckets that have no entry of their own. `None` means [`AnonymousRights::everywhere`].
    pub anonymous: Option<Rights>,
    /// The rights on single buckets.
    pub buckets: BTreeMap<BucketName, Rights>,
}

impl AnonymousRights {
    /// The rights on a bucket of a domain. On a private bucket, only an entry of its own gives rights.
    #[must_use]
    pub fn on(&self, domain: &DomainName, bucket: &BucketName, kind: BucketKind) -> Rights {
        let everywhere = if kind == BucketKind::Private { Rights::NONE } else { self.everywhere };
        let Some(of_domain) = self.domains.get(domain) else { return everywhere };
        match of_domain.buckets.get(&bucket.without_id()) {
            Some(of_bucket) => *of_bucket,
            None if kind == BucketKind::Private => Rights::NONE,
            None => of_domain.anonymous.unwrap_or(everywhere),
        }
    }

    /// Whether a right holds on at least one bucket of a domain. The bucket need not exist.
    #[must_use]
    pub fn hold_in(&self, right: Right, domain: &DomainName) -> bool {
        let Some(of_domain) = self.domains.get(domain) else { return self.everywhere.contains(right) };
        of_domain.anonymous.unwrap_or(self.everywhere).contains(right)
            || of_domain.buckets.values().any(|rights| rights.contains(right))
    }

    /// Whether a right holds on every bucket of every domain. A private bucket counts only if it has an entry of its
    /// own.
    #[must_use]
    pub fn hold_everywhere(&self, right: Right) -> bool {
        let in_domain = |domain: &DomainRights| {
            domain.anonymous.is_none_or(|rights| rights.contains(right))
                && domain.buckets.values().all(|rights| rights.contains(right))
        };
        self.everywhere.contains(right) && self.domains.values().all(in_domain)
    }

    /// Whether a right holds on at least one bucket of at least one domain. Neither need exist.
    #[must_use]
    pub fn hold_somewhere(&self, right: Right) -> bool {
        let in_domain = |domain: &DomainRights| {
            domain.anonymous.is_some_and(|rights| rights.contains(right))
                || domain.buckets.values().any(|rights| rights.contains(right))
        };
        self.everywhere.contains(right) || self.domains.values().any(in_domain)
    }
}

/// The policy for clients without a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Policy {
    /// Every client may do everything.
    Open,
    /// Clients without a token have these rights.
    Anonymous(AnonymousRights),
}

impl Policy {
    /// Whether a client without a token has a right on a bucket of a domain. Who may read the pages of the domain may
    /// read its public buckets.
    #[must_use]
    pub fn anybody_may(
        &self,
        right: Right,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
    ) -> bool {
        let Self::Anonymous(rights) = self else { return true };
        let reads_public = kind == BucketKind::Public && right == Right::Read;
        rights.on(domain, bucket, kind).contains(right)
            || (reads_public
                && rights.on(domain, &BucketName::page(), BucketKind::Revisioned).contains(right))
    }

    /// Whether a client without a token may read what has changed, so that caches may have answers with it.
    #[must_use]
    pub fn lets_anybody_read(&self, PurgeEntry { domain, bucket, change, .. }: &PurgeEntry) -> bool {
        let kind = match change {
            PurgedChange::Page(_) => BucketKind::Revisioned,
            PurgedChange::Entry { private: true, .. } | PurgedChange::PrivateBucket => BucketKind::Private,
            PurgedChange::Entry { .. } | PurgedChange::Bucket => BucketKind::Public,
        };
        self.anybody_may(Right::Read, domain, bucket, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_specific_rights_replace_more_general_ones() {
        let (read, write) = (Rights::from_iter([Right::Read]), Rights::from_iter([Right::Write]));
        let name = |text: &str| DomainName::new(text).unwrap();
        let (page, math) = (BucketName::page(), BucketName::new("math").unwrap());
        let only_bucket = DomainRights { anonymous: None, buckets: [(math.clone(), write)].into() };
        let closed = DomainRights { anonymous: Some(Rights::NONE), buckets: [(math.clone(), read)].into() };
        let rights = AnonymousRights {
            everywhere: read,
            domains: [(name("a"), only_bucket), (name("b"), closed)].into(),
        };
        let (revisioned, public, private) = (BucketKind::Revisioned, BucketKind::Public, BucketKind::Private);
        let other = BucketName::new("other").unwrap();
        for (domain, bucket, kind, expected) in [
            ("other", &page, revisioned, read),
            ("other", &math, public, read),
            ("other", &math, private, Rights::NONE),
            ("a", &page, revisioned, read),
            ("a", &math, private, write),
            ("a", &other, public, read),
            ("a", &other, private, Rights::NONE),
            ("b", &page, revisioned, Rights::NONE),
            ("b", &math, private, read),
            ("b", &other, public, Rights::NONE),
        ] {
            assert_eq!(rights.on(&name(domain), bucket, kind), expected, "{domain} {bucket} {kind:?}");
        }
        for (domain, right, expected) in [
            ("other", Right::Read, true),
            ("other", Right::Write, false),
            ("a", Right::Write, true),
            ("b", Right::Read, true),
            ("b", Right::Write, false),
        ] {
            assert_eq!(rights.hold_in(right, &name(domain)), expected, "{domain} {right}");
        }
        assert!(rights.hold_somewhere(Right::Read) && rights.hold_somewhere(Right::Write));
        assert!(!rights.hold_everywhere(Right::Read) && !rights.hold_somewhere(Right::Admin));
        let everywhere = AnonymousRights { everywhere: read, ..AnonymousRights::default() };
        assert!(everywhere.hold_everywhere(Right::Read) && !everywhere.hold_everywhere(Right::Write));
    }
}
