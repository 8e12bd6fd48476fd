//! The functions that the fuzzer calls. Sets of keys are otherwise private to this crate.

use rashomon_clock::Timestamp;

use crate::access::jwt::KeySet;

/// Reads any bytes as a set of keys, and verifies any text as a JSON Web Token for the audience `rashomon` with it.
/// Returns whether the token is valid, or `None` if the bytes are no set of keys.
#[must_use]
pub fn verify(keys: &[u8], token: &str, now: Timestamp) -> Option<bool> {
    let keys = KeySet::parse(keys).ok()?;
    Some(keys.verify(token, "rashomon", now).is_ok())
}
