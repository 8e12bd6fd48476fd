//! The bucket or the entry in a URL.

use rashomon_entries::EntryKey;
use rashomon_pages::{BucketName, DomainName, NameError};
use rashomon_protocol::spelling;

use super::{
    percent_decode,
    title::{Space, needs_redirect},
};
use crate::problem::{Problem, Result};

/// The bucket that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketTarget {
    /// The domain.
    pub(crate) domain: DomainName,
    /// The bucket.
    pub(crate) bucket: BucketName,
}

/// The entry that a URL names.
#[derive(Debug, Clone)]
pub(crate) struct EntryTarget {
    /// The bucket.
    pub(crate) of: BucketTarget,
    /// The key.
    pub(crate) key: EntryKey,
    /// Whether the key is spelled in a way that is redirected to the canonical spelling.
    pub(crate) needs_redirect: bool,
}

impl EntryTarget {
    /// Parses the raw key of an entry in a bucket.
    pub(crate) fn parse(of: BucketTarget, raw: &str) -> Result<Self> {
        Ok(Self { of, key: parse_key(raw)?, needs_redirect: needs_redirect(raw.as_bytes(), Space::Encoded) })
    }

    /// The canonical URL of the entry under `/wiki/`.
    pub(crate) fn canonical_url_of_wiki(&self) -> String {
        format!("/wiki/?blob/{}/{}", self.of.bucket, encode_key(&self.key))
    }

    /// The path with the canonical spelling of the key.
    pub(crate) fn canonical_path(&self) -> String {
        let BucketTarget { domain, bucket } = &self.of;
        format!("/v1/{domain}/{bucket}/{}", encode_key(&self.key))
    }
}

/// Parses the domain of `/v1/{domain}/`. Also returns the rest of the path.
pub(crate) fn domain_of_v1(path: &str) -> Result<(DomainName, &str)> {
    let rest = path.strip_prefix("/v1/").unwrap_or_default();
    let (domain, rest) = rest.split_once('/').unwrap_or((rest, ""));
    Ok((DomainName::new(domain)?, rest))
}

/// Parses the bucket of `/v1/{domain}/{bucket}`, with or without a slash at the end.
pub(crate) fn bucket_of_v1(path: &str) -> Result<BucketTarget> {
    let (domain, rest) = domain_of_v1(path)?;
    let bucket = parse_bucket(rest.strip_suffix('/').unwrap_or(rest))?;
    Ok(BucketTarget { domain, bucket })
}

/// Parses the bucket of `/v1/{domain}/{bucket}/{key}`. Also returns the key, which stays raw, since the type of the
/// bucket decides which keys are valid.
pub(crate) fn bucket_and_key_of_v1(path: &str) -> Result<(BucketTarget, &str)> {
    let (domain, rest) = domain_of_v1(path)?;
    let (bucket, raw) = rest.split_once('/').unwrap_or((rest, ""));
    Ok((BucketTarget { domain, bucket: parse_bucket(bucket)? }, raw))
}

/// Parses the raw query of `/wiki/?blob/{bucket}/{key}` into the bucket and the raw key. `None` for another query.
pub(crate) fn bucket_and_key_of_wiki(query: Option<&str>) -> Option<(Result<BucketName>, &str)> {
    let (bucket, raw) = query?.strip_prefix("blob/")?.split_once('/')?;
    Some((parse_bucket(bucket), raw))
}

/// Parses the name of a bucket. Refuses names that no bucket can have.
pub(crate) fn parse_bucket(text: &str) -> Result<BucketName> {
    let name = BucketName::new(text)?;
    if name.is_reserved() {
        return Err(
            NameError(format!("'{text}' is reserved and cannot be a bucket: choose another name")).into()
        );
    }
    Ok(name)
}

/// Parses a key from a URL, in any spelling.
pub(crate) fn parse_key(raw: &str) -> Result<EntryKey> {
    let decoded = percent_decode(raw).ok_or_else(|| {
        Problem::malformed("a key must be percent-encoded UTF-8: two hex digits follow each %, and the bytes are valid UTF-8")
    })?;
    Ok(EntryKey::new(&decoded)?)
}

/// Returns the canonical spelling of a key in a URL, in ASCII.
pub fn encode_key(key: &EntryKey) -> String {
    encode_parameter(key.as_str())
}

/// Returns the spelling of a parameter's value in a URL, in ASCII.
pub(crate) fn encode_parameter(value: &str) -> String {
    spelling::canonical(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of_v1(path: &str) -> Result<EntryTarget> {
        let (of, raw) = bucket_and_key_of_v1(path)?;
        EntryTarget::parse(of, raw)
    }

    #[test]
    fn path_names_the_entry() {
        for (path, key, redirect) in [
            ("/v1/enwiki/math-png/a.png", "a.png", None),
            ("/v1/enwiki/math-png/a/b//c/", "a/b//c/", None),
            ("/v1/enwiki/math-png//a", "/a", None),
            ("/v1/enwiki/math-png/a%20b_c", "a b_c", None),
            ("/v1/enwiki/math-png/a%2Fb", "a/b", Some("/v1/enwiki/math-png/a/b")),
            ("/v1/enwiki/math-png/a%5Fb", "a_b", Some("/v1/enwiki/math-png/a_b")),
            ("/v1/enwiki/math-png/%c3%bc", "\u{fc}", Some("/v1/enwiki/math-png/%C3%BC")),
            ("/v1/enwiki/math-png/a&b'+=", "a&b'+=", None),
            ("/v1/enwiki/math-png/a%26%27%2B%3D", "a&'+=", None),
            ("/v1/enwiki/math-png/a&%27", "a&'", Some("/v1/enwiki/math-png/a%26%27")),
        ] {
            let target = entry_of_v1(path).unwrap();
            assert_eq!(target.key.as_str(), key, "{path}");
            let canonical = target.needs_redirect.then(|| target.canonical_path());
            assert_eq!(canonical.as_deref(), redirect, "{path}");
        }
    }

    #[test]
    fn invalid_names_are_malformed() {
        for bucket in ["import", "changes", "timeline", "Math", "1a", "math_png", "m%61th", ""] {
            assert!(bucket_of_v1(&format!("/v1/enwiki/{bucket}")).is_err(), "{bucket}");
        }
        let long = "a".repeat(1025);
        for key in ["", ".", "a/..", "%2E%2e/b", "%", "%FF", "a%00", &long] {
            assert!(entry_of_v1(&format!("/v1/enwiki/math/{key}")).is_err(), "{key}");
        }
        for path in ["/v1/tokens/math", "/v1/EN/math"] {
            assert!(bucket_of_v1(path).is_err(), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_key_comes_back_from_its_url(text in "\\PC{1,300}") {
            if let Ok(key) = EntryKey::new(&text) {
                let spelling = encode_key(&key);
                assert!(spelling.is_ascii());
                assert_eq!(parse_key(&spelling).unwrap(), key);
                assert!(!needs_redirect(spelling.as_bytes(), Space::Encoded));
            }
        }
    }
}
