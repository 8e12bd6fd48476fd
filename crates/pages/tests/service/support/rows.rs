//! Typed rows of tables whose row types are private to other crates, and ways to read and change single columns
//! by name.

use std::collections::BTreeSet;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_pages::{
    BucketName, DomainName, Headers, Page, PropertyName, Revision, Sha1, Tid, Title,
    migration::MIGRATIONS,
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, ARCHIVE_NOTES, BY_REV, CULLED, CURRENT, HEADS},
};
use rashomon_records::{
    rows::{ColumnValue as _, Json, TypedRow as _},
    typed_row,
};
use rashomon_tables::{Cursor, Row, Schema, Value};

/// The random name of a block.
pub(crate) type BlockId = [u8; 16];

typed_row! {
    /// A piece of a block. The block has `parts` pieces.
    pub(crate) struct BlockPiece in ARCHIVE_BLOCKS {
        key { part: i64 }
        values { parts: i64, value: Bytes }
    }
}

typed_row! {
    /// A row of the index of a page.
    pub(crate) struct IndexRow in ARCHIVE_INDEX {
        key { last_rev: Revision, block: BlockId }
        values {
            first_rev: Revision,
            first_time: Timestamp,
            last_time: Timestamp,
            first_tid: Tid,
            last_tid: Tid,
            properties: Json<BTreeSet<PropertyName>>,
            revisions: u64,
            renders: u64,
            raw_bytes: u64,
            generation: i64,
            left_out: Option<u64>,
            kept_at: Option<Timestamp>,
            positions: Option<Bytes>,
        }
    }
}

typed_row! {
    /// A block that the garbage collector has to examine.
    pub(crate) struct BlockEntry in ARCHIVE_NOTES {
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
    /// The row of a page lease.
    pub(crate) struct LeaseRow in HEADS {
        key {}
        values {
            owner: Option<Bytes>,
            reserved_at: Option<Timestamp>,
            rows: Option<String>,
            rows_at: Option<Timestamp>,
            later_than: Option<Timestamp>,
        }
    }
}

typed_row! {
    /// The one row that has the latest value of a property. `tid` is `None` for a property of the revision.
    pub(crate) struct CurrentRow in CURRENT {
        key { property: PropertyName }
        values {
            headers: Json<Headers>,
            size: u64,
            sha1: Sha1,
            rewritten_at: Option<Timestamp>,
            encoding: String,
            value: Bytes,
            rev: Revision,
            tid: Option<Tid>,
        }
    }
}

typed_row! {
    /// A copy of a body of the newest render of a revision, in the table for requests by revision.
    pub(crate) struct ByRevRow in BY_REV {
        key { rev: Revision, property: PropertyName }
        values {
            headers: Json<Headers>,
            size: u64,
            sha1: Sha1,
            rewritten_at: Option<Timestamp>,
            encoding: String,
            value: Bytes,
            tid: Tid,
        }
    }
}

typed_row! {
    /// A cull watermark of a page.
    pub(crate) struct CulledRow in CULLED {
        key { rev: Revision }
        values { written_before: Timestamp, properties: Json<BTreeSet<PropertyName>> }
    }
}

typed_row! {
    /// The progress of a migration in one table.
    pub(crate) struct PositionRow in MIGRATIONS {
        key { table_name: String }
        values {
            position: Option<Cursor>,
            row_count: u64,
            byte_count: u64,
            complete: bool,
            began_at: Option<Timestamp>,
            finished_at: Option<Timestamp>,
        }
    }
}

/// The bytes of the block in a row of `archive_blocks`. Blocks of these tests have one piece.
pub(crate) fn block_bytes(row: &Row) -> Bytes {
    BlockPiece::from_row(row).unwrap().value
}

/// The value columns of a row of `archive_blocks`, with other bytes.
pub(crate) fn with_block_bytes(row: &Row, bytes: Vec<u8>) -> Vec<Option<Value>> {
    BlockPiece { value: bytes.into(), ..BlockPiece::from_row(row).unwrap() }.values()
}

/// The block to which a row of `archive_blocks` belongs.
pub(crate) fn block_id(row: &Row) -> BlockId {
    match row.key.partition.as_slice() {
        [_domain, _bucket, block] => BlockId::from_value(block).expect("a block has a name of 16 bytes"),
        other => panic!("{other:?} is not the partition of a block"),
    }
}

/// The partition of a block in `archive_blocks`.
pub(crate) fn block_partition(page: &Page, block: BlockId) -> Vec<Value> {
    vec![page.domain.to_value(), page.bucket.to_value(), block.to_value()]
}

/// The partition of the garbage collector's entries of the hour of `time`.
pub(crate) fn hour_partition(time: Timestamp) -> Vec<Value> {
    vec![Value::Int(time.as_micros() / 3_600_000_000)]
}

/// A value column of a row, by its name.
pub(crate) fn column_mut<'v>(
    table: &Schema,
    values: &'v mut [Option<Value>],
    name: &str,
) -> &'v mut Option<Value> {
    let index = table.values().iter().position(|column| column.name == name);
    &mut values[index.expect("a column of the table")]
}

#[test]
fn columns_have_the_names_of_the_schema() {
    use rashomon_records::rows::check_columns;

    check_columns::<BlockPiece>();
    check_columns::<IndexRow>();
    check_columns::<BlockEntry>();
    check_columns::<LeaseRow>();
    check_columns::<CurrentRow>();
    check_columns::<ByRevRow>();
    check_columns::<CulledRow>();
    check_columns::<PositionRow>();
}
