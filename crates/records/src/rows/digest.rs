//! Digests of requests.

use xxhash_rust::xxh3::Xxh3;

use crate::{PropertyInfo, PropertyName};

/// A digest of a request. A repeat of the request has the same digest.
pub type Digest = [u8; 16];

/// The digest of erased content. It reveals nothing about the content.
pub const BLANK_DIGEST: Digest = [0; 16];

/// Computes a digest of the names, headers and bytes of properties.
#[must_use]
pub fn digest<'a>(properties: impl Iterator<Item = (&'a PropertyName, &'a PropertyInfo)>) -> Digest {
    let mut hash = Xxh3::new();
    for (name, info) in properties {
        for text in [name.as_str(), info.headers.content_type.as_str()] {
            hash.update(text.as_bytes());
            hash.update(&[0xff]);
        }
        for (name, value) in &info.headers.other {
            for text in [name, value] {
                hash.update(text.as_bytes());
                hash.update(&[0xff]);
            }
        }
        hash.update(&[0xfe]);
        hash.update(&info.sha1.0);
        hash.update(&info.size.to_be_bytes());
    }
    hash.digest128().to_be_bytes()
}
