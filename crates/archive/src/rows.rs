//! The rows of the archive, except the index of pages.

use std::collections::BTreeSet;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, DomainName, Title,
    rows::Json,
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_EPOCHS, ARCHIVE_NOTES},
    typed_row,
};

/// The random name of a block.
pub(super) type BlockId = [u8; 16];

typed_row! {
    /// A piece of a block. `parts` is the number of pieces in the block.
    pub(super) struct BlockPiece in ARCHIVE_BLOCKS {
        key { part: i64 }
        values { parts: i64, value: Bytes }
    }
}

typed_row! {
    /// A block that the garbage collector has to examine, and deletes if no index row references it.
    pub(super) struct GcEntryRow in ARCHIVE_NOTES {
        key { block: BlockId }
        values {
            domain: DomainName,
            bucket: BucketName,
            titles: Json<BTreeSet<Title>>,
            noted_at: Timestamp,
        }
    }
}

typed_row! {
    /// The erasure epoch of a bucket. Every erasure changes it.
    pub(super) struct EpochRow in ARCHIVE_EPOCHS {
        key {}
        values { epoch: Bytes }
    }
}

#[cfg(test)]
mod tests {
    use rashomon_records::rows::check_columns;

    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        check_columns::<BlockPiece>();
        check_columns::<GcEntryRow>();
        check_columns::<EpochRow>();
    }
}
