//! Surrogate keys: short names of the things that an answer shows, such as a page. A cache that knows the keys of its
//! answers deletes all answers with a key at once.
//!
//! A key is a hash. If two hashes are equal, a cache deletes an answer that it could have kept.

use std::fmt;

use crate::{BucketName, DomainName, EntryKey, Page, Tid};
use xxhash_rust::xxh3::xxh3_64;

/// The number of characters of a key.
pub const KEY_LENGTH: usize = 16;

/// A surrogate key: sixteen hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurrogateKey(u64);

impl SurrogateKey {
    /// The key of all answers from a bucket.
    #[must_use]
    pub fn of_bucket(domain: &DomainName, bucket: &BucketName) -> Self {
        Self::of(&["bucket", domain.as_str(), bucket.as_str()])
    }

    /// The key of all answers about a page that change when the page changes.
    #[must_use]
    pub fn of_page(page: &Page) -> Self {
        Self::of(&["page", page.domain.as_str(), page.bucket.as_str(), page.title.as_str()])
    }

    /// The key of the answers with the properties of one render.
    #[must_use]
    pub fn of_render(page: &Page, tid: Tid) -> Self {
        let tid = tid.to_string();
        Self::of(&["render", page.domain.as_str(), page.bucket.as_str(), page.title.as_str(), &tid])
    }

    /// The key of the answers with an entry.
    #[must_use]
    pub fn of_entry(domain: &DomainName, bucket: &BucketName, key: &EntryKey) -> Self {
        Self::of(&["entry", domain.as_str(), bucket.as_str(), key.as_str()])
    }

    /// Hashes parts, which are joined by line feeds. No part has a line feed, so different parts give different texts.
    fn of(parts: &[&str]) -> Self {
        Self(xxh3_64(parts.join("\n").as_bytes()))
    }
}

impl fmt::Display for SurrogateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SurrogateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_and_differ() {
        let page = Page::parse("enwiki", "page", "A").unwrap();
        let other = Page::parse("enwiki", "page", "B").unwrap();
        let tid: Tid = "8f545ba0-2601-11e3-885c-4160918f0fb9".parse().unwrap();
        let keys = [
            SurrogateKey::of_page(&page),
            SurrogateKey::of_page(&other),
            SurrogateKey::of_render(&page, tid),
            SurrogateKey::of_render(&other, tid),
            SurrogateKey::of_bucket(&page.domain, &page.bucket),
            SurrogateKey::of_entry(&page.domain, &page.bucket, &EntryKey::new("A").unwrap()),
        ];
        assert!(keys.iter().all(|key| key.to_string().len() == KEY_LENGTH));
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn id_of_a_bucket_is_not_part_of_a_key() {
        let domain = DomainName::new("enwiki").unwrap();
        let bucket = BucketName::new("docs").unwrap();
        assert_eq!(
            SurrogateKey::of_bucket(&domain, &bucket.with_id([7; 16])),
            SurrogateKey::of_bucket(&domain, &bucket)
        );
    }
}
