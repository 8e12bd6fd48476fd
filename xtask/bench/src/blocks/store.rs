//! Measures the blocks of an existing store, part by part, to show which parts take most space.

use std::{collections::BTreeMap, num::NonZeroUsize, path::Path, sync::Arc};

use anyhow::{Context, Result};
use rashomon_blocks::{Block, Limits};
use rashomon_clock::SystemClock;
use rashomon_pages::schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX};
use rashomon_tables::{Row, Scan, Schema, TableStore, Value};
use rashomon_tables_sqlite::{Options, SqliteStore};

use super::super::report::Report;

/// The number of rows or partitions that are read in one call.
const ROWS: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
/// The index column with the size of a page's bodies.
const RAW_BYTES: usize = 8;

/// Adds the size of each part of all blocks, in per cent of the bodies in the blocks.
pub(super) fn measure(folder: &Path, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (index, blocks) = runtime.block_on(async {
        let store = SqliteStore::open(folder, Arc::new(SystemClock::new()), Options::default())?;
        anyhow::Ok((rows(&store, &ARCHIVE_INDEX).await?, rows(&store, &ARCHIVE_BLOCKS).await?))
    })?;
    let raw: i64 = index.iter().filter_map(|row| number(row, RAW_BYTES)).sum();
    let raw = raw as f64;
    let index: usize = index.iter().map(Row::size).sum();
    let blocks = whole(blocks)?;
    let mut parts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut stored, mut entries) = (0, 0);
    for bytes in &blocks {
        let block = Block::open(bytes, Limits::default())?;
        stored += bytes.len();
        entries += block.len();
        let sizes = block.sizes();
        let rest = bytes.len() - sizes.iter().map(|(_, stored, _)| stored).sum::<usize>();
        for (name, stored, unpacked) in sizes.into_iter().chain([("directory".to_owned(), rest, rest)]) {
            let part = parts.entry(name).or_default();
            (part.0, part.1) = (part.0 + stored, part.1 + unpacked);
        }
    }
    report.add("bodies", "bytes", raw);
    report.add("blocks", "", blocks.len() as f64);
    report.add("entries", "", entries as f64);
    report.add("index", "%", index as f64 * 100.0 / raw);
    report.add("all blocks", "%", stored as f64 * 100.0 / raw);
    for (name, (stored, unpacked)) in parts {
        report.add(&format!("{name}, bytes"), "", stored as f64);
        report.add(&format!("{name}, bytes when unpacked"), "", unpacked as f64);
        report.add(&name, "%", stored as f64 * 100.0 / raw);
    }
    Ok(())
}

/// Reads all rows of a table.
async fn rows(store: &SqliteStore, table: &'static Schema) -> Result<Vec<Row>> {
    store.create(table).await?;
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let partitions = store.partitions(table, after, ROWS).await?;
        for partition in partitions.items {
            let mut after = None;
            loop {
                let some = store.scan(table, Scan::new(partition.clone(), ROWS).after(after)).await?;
                rows.extend(some.items);
                after = some.next;
                if after.is_none() {
                    break;
                }
            }
        }
        after = partitions.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

/// Joins the pieces of blocks to whole blocks.
fn whole(pieces: Vec<Row>) -> Result<Vec<Vec<u8>>> {
    let mut blocks: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for piece in pieces {
        let bytes = match piece.values.get(1) {
            Some(Some(Value::Blob(bytes))) => Some(bytes),
            _ => None,
        };
        let block = blocks.entry(format!("{:?}", piece.key.partition)).or_default();
        block.extend_from_slice(bytes.context("a piece of a block has no bytes")?);
    }
    Ok(blocks.into_values().collect())
}

fn number(row: &Row, column: usize) -> Option<i64> {
    match row.values.get(column)? {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    }
}
