//! Limits of blocks.

use crate::error::Error;

/// The largest content of an entry, in bytes.
pub const MAX_CONTENT: usize = 128 << 20;
/// The maximum number of columns of a block.
pub const MAX_COLUMNS: usize = 64;
/// The longest name of a column, and the longest name of a stream, in bytes.
pub const MAX_NAME: usize = 4 << 10;
/// The largest value of a column, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

/// The maximum sizes that a reader accepts. Sizes that a block declares are compared with these limits before
/// memory is allocated for them, so a damaged or hostile block costs no more than the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The bytes of the block itself.
    pub block: usize,
    /// The entries of a block.
    pub entries: usize,
    /// The chunks of a block.
    pub chunks: usize,
    /// The unpacked bytes of the pool, or of the contents of frames.
    pub texts: usize,
    /// The unpacked bytes of any other section, in all chunks together: of the entries, the checksums, the
    /// scripts, or one column.
    pub scripts: usize,
    /// The bytes of an entry's content. A larger content counts as damaged.
    pub content: usize,
}

impl Default for Limits {
    /// Limits that allow every block that [`BlockBuilder`](crate::BlockBuilder) builds with its default
    /// settings.
    fn default() -> Self {
        Self {
            block: 256 << 20,
            entries: 1 << 16,
            chunks: 1 << 12,
            texts: 256 << 20,
            scripts: 16 << 20,
            content: MAX_CONTENT,
        }
    }
}

/// Returns an error if `size` is above `limit`, which is one of the [`Limits`] of a reader.
pub(crate) fn within_limit(what: &'static str, size: usize, limit: usize) -> Result<(), Error> {
    if size <= limit {
        return Ok(());
    }
    Err(Error::TooLarge { what, size: size as u64, limit: limit as u64 })
}

/// Returns an error if `size` is above `maximum`, which holds for every block.
pub(crate) fn at_most(what: &'static str, size: usize, maximum: usize) -> Result<(), Error> {
    if size <= maximum {
        return Ok(());
    }
    Err(Error::AboveMaximum { what, size: size as u64, maximum: maximum as u64 })
}
