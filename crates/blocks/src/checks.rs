//! Checksums inside of a block: of contents, or of pieces of literals.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Damage, Error};

/// The number of bytes of a checksum.
pub(crate) const CHECK_BYTES: usize = 4;

/// The checksum of a content, or of a piece of the literals. It detects accidental damage of these bytes, even if other
/// parts of the block are damaged too. The hash of the block detects every change of its bytes.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

/// Returns an error if a content does not agree with its checksum, if the block has one.
pub(crate) fn check(bytes: &[u8], checks: Option<&[u8]>, place: usize, ordinal: u64) -> Result<(), Error> {
    let Some(checks) = checks else { return Ok(()) };
    let stated = checks.chunks_exact(CHECK_BYTES).nth(place);
    // The fuzzer cannot guess checksums, so fuzzing does not check them.
    if stated == Some(checksum(bytes).as_slice()) || cfg!(fuzzing) {
        return Ok(());
    }
    Err(Damage::Entry(ordinal).into())
}
