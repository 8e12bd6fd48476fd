//! Blocks in the store, and those that are unpacked in memory.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use moka::sync::Cache;
use rashomon_blocks::{Block, Error as BlockError, Limits, Unpacked};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError, Result, Row, Scan, TableStore, Value};

use super::{columns::columns, entries::Unit, index::BlockId, part::Part, units::read_units};
use crate::{Page, Title, rows, schemas::ARCHIVE_BLOCKS};

/// The bytes of a piece of a block: the largest value that the table layer takes.
const PIECE: usize = 1 << 20;

/// Pieces that are read together: each may have a megabyte.
const PIECES: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

/// Reads and writes blocks.
#[derive(Debug)]
pub(crate) struct BlockStore {
    /// The tables themselves.
    pub(super) store: Arc<dyn TableStore>,
    /// Of one process one seals at a time.
    pub(super) sealing: tokio::sync::Mutex<()>,
    unpacked: Cache<BlockId, Arc<OpenBlock>>,
}

/// A block that is unpacked as far as its records go; its texts are unpacked, too, unless it is damaged.
#[derive(Debug)]
pub(super) struct OpenBlock {
    parts: HashMap<Title, Part>,
    texts: Texts,
    memory: usize,
}

#[derive(Debug)]
enum Texts {
    Unpacked(Unpacked),
    /// Not all of it can be read. What can be is looked for each time.
    Damaged(Bytes),
}

impl BlockStore {
    pub(crate) fn new(store: Arc<dyn TableStore>, cache_bytes: u64) -> Self {
        let unpacked = Cache::builder()
            .max_capacity(cache_bytes)
            .weigher(|_: &BlockId, block: &Arc<OpenBlock>| u32::try_from(block.memory).unwrap_or(u32::MAX))
            .build();
        Self { store, sealing: tokio::sync::Mutex::new(()), unpacked }
    }

    /// Alone, in this process, with whatever makes blocks or deletes them.
    pub(crate) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.sealing.lock().await
    }

    /// Writes the pieces of a block that was noted.
    pub(super) async fn write(&self, of: &Page, id: BlockId, bytes: &Bytes, now: Timestamp) -> Result<()> {
        let parts = bytes.len().div_ceil(PIECE);
        for part in 0..parts {
            let piece = bytes.slice(part * PIECE..bytes.len().min((part + 1) * PIECE));
            let mut batch = Batch::new(partition(of, id));
            let values = vec![Some(Value::Int(parts as i64)), Some(Value::Blob(piece))];
            batch.put(&ARCHIVE_BLOCKS, vec![Value::Int(part as i64)], values, now);
            self.store.write(Vec::new(), batch).await?;
        }
        Ok(())
    }

    /// The bytes of a block, as they are in the store.
    pub(super) async fn read(&self, of: &Page, id: BlockId) -> Result<Bytes> {
        let missing = || {
            let what = format!("block {} of the archive of {} is not whole", in_hex(id), of.domain);
            StoreError::Corrupt(format!("{what}: restore it from a replica or a backup"))
        };
        let mut bytes = BytesMut::new();
        let (mut after, mut parts) = (None, 0);
        loop {
            let scan = Scan::new(partition(of, id), PIECES).after(after);
            let rows = self.store.scan(&ARCHIVE_BLOCKS, scan).await?;
            for row in &rows.items {
                let (number, of_all, piece) = piece_of(row).ok_or_else(missing)?;
                if number != parts || bytes.len() + piece.len() > Limits::default().block {
                    return Err(missing());
                }
                parts += 1;
                if rows.next.is_none() && rows.items.last() == Some(row) && of_all != parts {
                    return Err(missing());
                }
                bytes.extend_from_slice(piece);
            }
            after = rows.next;
            if after.is_none() {
                return if parts == 0 { Err(missing()) } else { Ok(bytes.freeze()) };
            }
        }
    }

    /// A block, unpacked: from memory if it is there.
    pub(super) async fn open(&self, of: &Page, id: BlockId) -> Result<Arc<OpenBlock>> {
        if let Some(block) = self.unpacked.get(&id) {
            return Ok(block);
        }
        let bytes = self.read(of, id).await?;
        let of = of.clone();
        let block = tokio::task::spawn_blocking(move || OpenBlock::new(&of, id, bytes)).await;
        let block = Arc::new(block.map_err(|error| StoreError::Unavailable(error.to_string()))??);
        self.unpacked.insert(id, Arc::clone(&block));
        Ok(block)
    }

    /// Forgets a block that is deleted.
    pub(super) fn forget(&self, id: BlockId) {
        self.unpacked.invalidate(&id);
    }
}

fn piece_of(row: &Row) -> Option<(i64, i64, &Bytes)> {
    let Some(Value::Int(number)) = row.key.clustering.first() else { return None };
    Some((*number, rows::int(row, 0)?, rows::blob(row, 1)?))
}

pub(super) fn name_of(id: BlockId) -> Value {
    Value::Blob(Bytes::copy_from_slice(&id))
}

/// The partition of a block of the page's bucket.
pub(super) fn partition(of: &Page, id: BlockId) -> Vec<Value> {
    vec![of.domain.as_str().into(), of.bucket.as_str().into(), name_of(id)]
}

pub(super) fn in_hex(id: BlockId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A block that cannot be read, in words for whoever runs the store.
fn unreadable(id: BlockId, error: &BlockError) -> StoreError {
    StoreError::Corrupt(format!("block {} of the archive: {error}", in_hex(id)))
}

/// The pages of a block, with their units.
pub(super) fn units_of(of: &Page, id: BlockId, block: &Block<'_>) -> Result<Vec<(Page, Vec<Unit>)>> {
    let wrong = |error: BlockError| unreadable(id, &error);
    // Blocks of earlier versions lack the last ones.
    if !columns().starts_with(block.columns()) {
        let what = "it has other columns: read it with the version of Rashomon that wrote it, or a later one";
        return Err(StoreError::Corrupt(format!("block {} of the archive: {what}", in_hex(id))));
    }
    read_units(of, block).map_err(wrong)?.ok_or_else(|| {
        StoreError::Corrupt(format!("block {} of the archive: its records cannot be understood", in_hex(id)))
    })
}

impl OpenBlock {
    fn new(of: &Page, id: BlockId, bytes: Bytes) -> Result<Self> {
        let (block, damage) = match Block::open(&bytes, Limits::default()) {
            Err(damage @ BlockError::Damaged(_)) => {
                let block = Block::salvage(&bytes, Limits::default());
                (block.map_err(|error| unreadable(id, &error))?, Some(damage))
            }
            block => (block.map_err(|error| unreadable(id, &error))?, None),
        };
        let units = units_of(of, id, &block)?;
        let parts: HashMap<_, _> =
            units.into_iter().map(|(page, units)| (page.title, Part::new(units))).collect();
        let texts = match damage {
            None => Texts::Unpacked(block.unpack().map_err(|error| unreadable(id, &error))?),
            Some(damage) => {
                tracing::error!(block = in_hex(id), %damage, "a block of the archive is damaged");
                Texts::Damaged(bytes.clone())
            }
        };
        let of_texts = match &texts {
            Texts::Unpacked(unpacked) => unpacked.memory(),
            Texts::Damaged(bytes) => bytes.len(),
        };
        let memory = of_texts + parts.values().map(Part::memory).sum::<usize>();
        Ok(Self { parts, texts, memory })
    }

    /// What it has of a page.
    pub(super) fn part(&self, title: &Title) -> Option<&Part> {
        self.parts.get(title)
    }

    /// What it has of a page whose index names it.
    pub(super) fn part_of(&self, page: &Page) -> Result<&Part> {
        self.part(&page.title).ok_or_else(|| {
            let what = format!("the archive's index of page {} names a block without it", page.title);
            StoreError::Corrupt(what)
        })
    }

    /// The titles of its pages.
    pub(super) fn titles(&self) -> BTreeSet<Title> {
        self.parts.keys().cloned().collect()
    }

    /// The text of an entry.
    pub(super) fn text(&self, id: BlockId, ordinal: u64) -> Result<Bytes> {
        let text = match &self.texts {
            Texts::Unpacked(unpacked) => unpacked.get(ordinal),
            Texts::Damaged(bytes) => {
                Block::salvage(bytes, Limits::default()).and_then(|block| block.get(ordinal))
            }
        };
        text.map(Bytes::from).map_err(|error| unreadable(id, &error))
    }
}
