//! Splits parts that have grown.
//!
//! The steps of a split:
//!
//! 1. The row of the part in the map names the key at which the part is split, and the new part.
//! 2. The rows that move are copied to the new part.
//! 3. The map gets a row for the new part.
//! 4. The rows that moved are deleted from the old part.
//! 5. The row of the part in the map no longer names the new part.
//!
//! Each step may be repeated, and several processes may carry out one split at the same time. An interrupted split
//! is resumed by the next check of the part, or by [`crate::KeyValueStore::collect`].

use std::num::NonZeroUsize;

use rashomon_records::{
    Records,
    rows::{ColumnValue as _, RowKey as _, TypedRow as _},
    schemas::{ENTRY_KEYS, ENTRY_PARTS},
};
use rashomon_tables::{Batch, ClusteringRange, Row, RowStream, Scan, Swap};

use crate::{
    Result,
    index::{partition_of, row_bytes},
    parts::{Part, PartRow, Position, part_at, part_key},
    rows::{BucketId, IndexKey},
};

/// The maximum number of rows that a scan reads, and that a batch copies.
const PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Splits the part that has `key` if the rows of the part take more than `part_bytes`. If a split of the part was
/// interrupted, resumes this split instead. `new_part` is a random number, which becomes the number of the new
/// part. Returns whether the part was split.
pub(crate) async fn split_if_large(
    records: &Records,
    bucket: BucketId,
    key: &str,
    part_bytes: u64,
    new_part: i64,
) -> Result<bool> {
    let mut part = part_at(records, bucket, Position::At(key)).await?;
    if part.row.split_at.is_none() {
        let Some(split_at) = find_split_key(records, bucket, &part, part_bytes).await? else {
            return Ok(false);
        };
        let begun = PartRow { split_at: Some(split_at), new_part: Some(new_part), ..part.row.clone() };
        if !replace_part_row(records, bucket, &part, Some(&begun)).await? {
            return Ok(false);
        }
        part = part_at(records, bucket, Position::At(&part.row.lowest)).await?;
    }
    finish(records, bucket, part).await
}

/// Carries out a split that has begun. Returns false if no split of the part has begun.
pub(crate) async fn finish(records: &Records, bucket: BucketId, part: Part) -> Result<bool> {
    let (Some(split_at), Some(new_part)) = (part.row.split_at.clone(), part.row.new_part) else {
        return Ok(false);
    };
    // If the map has the new part already, the part ends at the beginning of the new part.
    if part.end.as_deref() != Some(&split_at) {
        copy_rows(records, bucket, &part, &split_at, new_part).await?;
        let new = PartRow { lowest: split_at.clone(), part: new_part, split_at: None, new_part: None };
        // If the row exists, another process has carried out this step.
        insert_part(records, bucket, &new).await?;
    }
    let mut moved = Batch::new(partition_of(bucket, part.row.part));
    moved.delete_range(&ENTRY_KEYS, ClusteringRange::all().at_least(split_at.as_str()), records.clock.now());
    records.store.write(Vec::new(), moved).await?;
    let done = PartRow { split_at: None, new_part: None, ..part.row.clone() };
    replace_part_row(records, bucket, &part, Some(&done)).await?;
    Ok(true)
}

/// Returns the key at which a part is to be split: a key in the middle. Returns `None` if the part is not too large, or
/// has no key above its lowest one.
async fn find_split_key(
    records: &Records,
    bucket: BucketId,
    part: &Part,
    part_bytes: u64,
) -> Result<Option<String>> {
    let mut rows = keys_of(records, bucket, part, &part.row.lowest);
    let (mut bytes, mut middle) = (0, None);
    while let Some(row) = rows.next().await? {
        let key = IndexKey::of(&row)?.key;
        bytes += row_bytes(key.as_str());
        // The first key cannot begin the new part, since the old part would be empty.
        if middle.is_none() && bytes > part_bytes / 2 && key.as_str() > part.row.lowest.as_str() {
            middle = Some(key.as_str().to_owned());
        }
        if bytes > part_bytes {
            return Ok(middle);
        }
    }
    Ok(None)
}

/// Copies the rows from the key `split_at` on to the new part, with their write times.
async fn copy_rows(
    records: &Records,
    bucket: BucketId,
    part: &Part,
    split_at: &str,
    new_part: i64,
) -> Result<()> {
    let mut rows = keys_of(records, bucket, part, split_at);
    let mut batch = Batch::new(partition_of(bucket, new_part));
    while let Some(Row { key, written_at, expires_at, .. }) = rows.next().await? {
        match expires_at {
            None => batch.put(&ENTRY_KEYS, key.clustering, Vec::new(), written_at),
            Some(at) => batch.put_until(&ENTRY_KEYS, key.clustering, Vec::new(), written_at, at),
        }
        if batch.mutations.len() >= PAGE_ROWS.get() {
            let full = std::mem::replace(&mut batch, Batch::new(partition_of(bucket, new_part)));
            records.store.write(Vec::new(), full).await?;
        }
    }
    Ok(records.store.write(Vec::new(), batch).await?)
}

/// Returns the rows of a part from the key `from` on.
fn keys_of<'r>(records: &'r Records, bucket: BucketId, part: &Part, from: &str) -> RowStream<'r> {
    let scan = Scan::new(partition_of(bucket, part.row.part), PAGE_ROWS);
    records.rows(&ENTRY_KEYS, scan.range(part.range_from(from)))
}

/// Replaces the row of a part in the map, or deletes the row if `new` is `None`. Returns false, and changes nothing,
/// if the row has changed since `part` was read.
async fn replace_part_row(
    records: &Records,
    bucket: BucketId,
    part: &Part,
    new: Option<&PartRow>,
) -> Result<bool> {
    let key = part_key(bucket, &part.row.lowest);
    let new = new.map(|new| row_of(bucket, new, records));
    let swap = records.store.swap(Vec::new(), &ENTRY_PARTS, &key, part.stored.as_ref(), new).await?;
    Ok(swap == Swap::Applied)
}

/// Adds the row of a part to the map, unless the row exists.
async fn insert_part(records: &Records, bucket: BucketId, new: &PartRow) -> Result<Swap> {
    let key = part_key(bucket, &new.lowest);
    let row = row_of(bucket, new, records);
    Ok(records.store.swap(Vec::new(), &ENTRY_PARTS, &key, None, Some(row)).await?)
}

fn row_of(bucket: BucketId, row: &PartRow, records: &Records) -> Row {
    Row {
        key: part_key(bucket, &row.lowest),
        values: row.values(),
        written_at: records.clock.now(),
        expires_at: None,
    }
}

/// Resumes the interrupted splits of a bucket.
pub(crate) async fn resume(records: &Records, bucket: BucketId) -> Result<()> {
    let mut rows = records.rows(&ENTRY_PARTS, Scan::new(vec![bucket.to_value()], PAGE_ROWS));
    while let Some(row) = rows.next().await? {
        let row = PartRow::from_row(&row)?;
        if row.split_at.is_some() {
            let part = part_at(records, bucket, Position::At(&row.lowest)).await?;
            finish(records, bucket, part).await?;
        }
    }
    Ok(())
}

/// Reads the whole map of a bucket. Fails with `Corrupt` if the map has a part twice, or if the first part does not
/// begin with the lowest key.
pub(crate) async fn check_map(records: &Records, bucket: BucketId) -> Result<()> {
    let rows = records.rows(&ENTRY_PARTS, Scan::new(vec![bucket.to_value()], PAGE_ROWS)).collect().await?;
    let rows = rows.iter().map(PartRow::from_row).collect::<rashomon_records::Result<Vec<_>>>()?;
    let mut parts: Vec<_> = rows.iter().map(|row| row.part).collect();
    parts.sort_unstable();
    parts.dedup();
    if parts.len() != rows.len() || rows.first().is_some_and(|row| !row.lowest.is_empty()) {
        let reason = "a part occurs twice, or the first part is missing".to_owned();
        return Err(rashomon_tables::Error::Corrupt(reason).into());
    }
    Ok(())
}

/// Deletes the map of a bucket whose keys were deleted.
pub(crate) async fn delete_map(records: &Records, bucket: BucketId) -> Result<()> {
    let mut rows = records.rows(&ENTRY_PARTS, Scan::new(vec![bucket.to_value()], PAGE_ROWS));
    while let Some(row) = rows.next().await? {
        records.store.swap(Vec::new(), &ENTRY_PARTS, &row.key, Some(&row), None).await?;
    }
    Ok(())
}
