//! Blocks in the store, and a cache of unpacked blocks.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::format::{Hashes, Pages, columns, name_and_title, read_units};
use bytes::{Bytes, BytesMut};
use moka::{future::Cache, policy::EvictionPolicy};
use rashomon_blocks::{Block, Error as BlockError, Limits};
use rashomon_clock::Timestamp;
use rashomon_clock::admission::Permits;
use rashomon_tables::{Batch, Error as StoreError, Key, Outage, Result, Scan, Schema, TableStore, Value};

use super::{
    compaction::{MovedBytes, note_moved},
    damage::Damage,
    index::IndexRow,
    index_cache::IndexCache,
    open_block::OpenBlock,
    part::Needs,
    pending::settings,
    rows::{BlockId, BlockPiece},
    too_large::TooLarge,
    union::block_with,
    verified_block::blocking,
};
use rashomon_records::{
    Page, Title,
    rows::{ColumnValue, TypedRow, page_of},
    schemas::ARCHIVE_BLOCKS,
};

/// The maximum number of bytes in a piece of a block: the largest value that the table layer takes.
const PIECE_BYTES: usize = 1 << 20;

/// Number of pieces in one read. A piece may have a megabyte.
const PIECES_PER_READ: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

/// The outage of a request that got no permit to unpack a block.
const OVERLOADED: Outage = Outage::Overloaded(
    "too many reads wait until blocks of the archive are unpacked (max_unpacks, overload_wait)",
);

/// The maximum number of bytes that a task checks, or unpacks, itself, and with a permit for short work. This takes about
/// a quarter of a millisecond.
pub(super) const SHORT_WORK_BYTES: usize = 128 << 10;

/// Reads and writes blocks.
#[derive(Debug)]
pub struct BlockStore {
    /// The store of the tables, without the blocks.
    pub(super) store: Arc<dyn TableStore>,
    /// The lock of operations that change blocks. See [`super::Archive::alone`].
    pub(super) sealing: tokio::sync::RwLock<()>,
    pub(super) damage: Damage,
    pub(super) indexes: IndexCache,
    unpacked: Cache<BlockId, Arc<OpenBlock>>,
    /// The block that was requested last. One read opens the same block several times, and the cache may have
    /// no room for the block.
    last: Mutex<Option<Arc<OpenBlock>>>,
    /// The number of blocks that were read from the store to be unpacked.
    opened: AtomicU64,
    /// The permits to unpack a block.
    permits: Arc<Permits>,
    /// The revisions that were found too large for a block, and stay in the tables.
    pub(super) too_large: TooLarge,
    /// What imports have moved out of blocks since the last [`Self::take_moved`].
    moved: Mutex<MovedBytes>,
}

/// The share of a page in a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    /// The number of bytes that the page added to the literals of the block.
    pub(super) literals: u64,
    /// Whether the block is full, and the page added a large share of the block's literals.
    pub(super) is_large: bool,
}

/// The shares of all pages in a block.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The number of bytes that each page added to the literals of the block.
    literals: HashMap<String, u64>,
    /// The number of bytes of all literals.
    of_all: u64,
    is_full: bool,
}

impl Shares {
    /// The divisor of the smallest large share: a quarter of the literals of the block is a large share.
    const MIN_SHARE_DIVISOR: u64 = 4;

    fn of(block: &Block<'_>) -> std::result::Result<Self, BlockError> {
        let (mut literals, mut of_all) = (HashMap::new(), 0);
        for (stream, bytes) in block.literals_by_stream()? {
            of_all += bytes;
            if let Some((_, title)) = name_and_title(&stream) {
                *literals.entry(title.to_owned()).or_default() += bytes;
            }
        }
        Ok(Self { literals, of_all, is_full: block.is_full(&settings(block.version()))? })
    }

    /// The share of the page with this title.
    pub(super) fn of_page(&self, title: &Title) -> Share {
        let literals = self.literals.get(title.as_str()).copied().unwrap_or(0);
        Share { literals, is_large: self.is_full && literals * Self::MIN_SHARE_DIVISOR >= self.of_all }
    }
}

impl BlockStore {
    pub(crate) fn new(store: Arc<dyn TableStore>, cache_bytes: u64, permits: Arc<Permits>) -> Self {
        let unpacked = Cache::builder()
            .max_capacity(cache_bytes)
            .weigher(|_: &BlockId, block: &Arc<OpenBlock>| u32::try_from(block.weigh()).unwrap_or(u32::MAX))
            // A sequential reader requests each block many times in a row, and then never again. A new block
            // must enter the cache even if the earlier blocks were requested as often.
            .eviction_policy(EvictionPolicy::lru())
            .build();
        let (sealing, damage) = (tokio::sync::RwLock::new(()), Damage::default());
        let (indexes, last, too_large) = (IndexCache::new(), Mutex::default(), TooLarge::default());
        let (opened, moved) = (AtomicU64::new(0), Mutex::default());
        Self { store, sealing, damage, indexes, unpacked, last, opened, permits, too_large, moved }
    }

    /// Writes the pieces of a block. The block must already be enqueued for garbage collection.
    pub(super) async fn write(&self, of: &Page, id: BlockId, bytes: &Bytes, now: Timestamp) -> Result<()> {
        let parts = bytes.len().div_ceil(PIECE_BYTES);
        for part in 0..parts {
            let piece = bytes.slice(part * PIECE_BYTES..bytes.len().min((part + 1) * PIECE_BYTES));
            let mut batch = Batch::new(partition(of, id));
            BlockPiece { part: part as i64, parts: parts as i64, value: piece }.put(&mut batch, now);
            self.store.write(Vec::new(), batch).await?;
        }
        Ok(())
    }

    /// Reads the bytes of a block.
    pub(super) async fn read(&self, of: &Page, id: BlockId) -> Result<Bytes> {
        let missing = || {
            let what = format!("block {} of the archive of {} is incomplete", in_hex(id), of.domain);
            StoreError::Corrupt(format!("{what}: restore it from a replica or a backup"))
        };
        let mut bytes = BytesMut::new();
        let (mut after, mut parts) = (None, 0);
        loop {
            let scan = Scan::new(partition(of, id), PIECES_PER_READ).after(after);
            let rows = self.store.scan(&ARCHIVE_BLOCKS, scan).await.map_err(|error| match error {
                // The error of the store names the row. It does not name the block, and does not say that
                // another copy may exist.
                StoreError::Corrupt(why) => StoreError::Corrupt(format!(
                    "block {} of the archive of {} cannot be read: {why}; restore it from a replica or a backup",
                    in_hex(id),
                    of.domain
                )),
                error => error,
            })?;
            for row in &rows.items {
                let BlockPiece { part: number, parts: of_all, value: piece } =
                    TypedRow::read(row).ok_or_else(missing)?;
                if number != parts || bytes.len() + piece.len() > Limits::default().block {
                    return Err(missing());
                }
                parts += 1;
                if rows.next.is_none() && rows.items.last() == Some(row) && of_all != parts {
                    return Err(missing());
                }
                bytes.extend_from_slice(&piece);
            }
            after = rows.next;
            if after.is_none() {
                return if parts == 0 { Err(missing()) } else { Ok(bytes.freeze()) };
            }
        }
    }

    /// Returns a block of a page, with what the page has in it unpacked: from memory, or from the store with a permit. The
    /// permits bound the processor time that unpacking takes from other tasks. Returns `Unavailable` if the caller gets none.
    /// If several callers request a block at once, one of them reads it for all.
    pub(super) async fn open(&self, page: &Page, id: BlockId) -> Result<Arc<OpenBlock>> {
        self.open_for(page, id, Needs::ALL).await
    }

    /// Like [`Self::open`], but unpacks only what the reader needs.
    pub(super) async fn open_for(&self, page: &Page, id: BlockId, needs: Needs) -> Result<Arc<OpenBlock>> {
        if let Some(block) = self.in_memory(id).await
            && block.is_unpacked_for(&page.title, &needs)
        {
            return Ok(block);
        }
        let refused = |_refused| StoreError::Unavailable(OVERLOADED);
        self.permits.refuse_if_full().map_err(refused)?;
        let short = self.permits.take_short().await.map_err(refused)?;
        // Another caller may have read the block meanwhile.
        let block = match self.in_memory(id).await {
            Some(block) => block,
            None => {
                let block = self.unpacked.try_get_with(id, async {
                    self.opened.fetch_add(1, Ordering::Relaxed);
                    let bytes = self.read(page, id).await?;
                    let is_short = bytes.len() <= SHORT_WORK_BYTES;
                    let open = move || OpenBlock::new(id, bytes);
                    let opened = if is_short { open() } else { blocking(open).await };
                    opened.map(Arc::new)
                });
                Box::pin(block).await.map_err(|error: Arc<StoreError>| (*error).clone())?
            }
        };
        self.with_last(|last| *last = Some(Arc::clone(&block)));
        if block.is_unpacked_for(&page.title, &needs) {
            return Ok(block);
        }
        if block.bytes_to_unpack_for(&page.title) <= SHORT_WORK_BYTES {
            block.unpack_for(&page.title, &needs);
        } else {
            let _permit = self.permits.exchange(short).await.map_err(refused)?;
            let (unpacked, title) = (Arc::clone(&block), page.title.clone());
            blocking(move || {
                unpacked.unpack_for(&title, &needs);
                Ok::<_, StoreError>(())
            })
            .await?;
        }
        self.weigh_again(&block).await;
        Ok(block)
    }

    /// The cache weighs a block only when it is inserted.
    async fn weigh_again(&self, block: &Arc<OpenBlock>) {
        if block.has_grown() {
            self.unpacked.insert(block.id(), Arc::clone(block)).await;
        }
    }

    /// Returns an error if no further request may wait for a permit, and a read of this row would have to
    /// wait: the row is in a block that is not in memory. Reads nothing from the store, since a refusal has to
    /// cost little. So the row counts as readable if the index of its page is not in memory.
    pub(super) async fn refuse_early(&self, table: &'static Schema, key: &Key) -> Result<()> {
        if !self.permits.is_full() {
            return Ok(());
        }
        let state = self.indexes.cached(&*self.store, &key.partition);
        let Some(index) = state.and_then(|state| state.index) else { return Ok(()) };
        let Some((id, needs)) = block_with(table, key, &index) else { return Ok(()) };
        let title = page_of(&key.partition).map(|page| page.title);
        if let Some((block, title)) = self.in_memory(id).await.zip(title)
            && block.is_unpacked_for(&title, &needs)
        {
            return Ok(());
        }
        self.permits.refuse_if_full().map_err(|_refused| StoreError::Unavailable(OVERLOADED))
    }

    /// Returns the block, if it is in memory.
    async fn in_memory(&self, id: BlockId) -> Option<Arc<OpenBlock>> {
        let last = self.with_last(|last| last.clone()).filter(|last| last.id() == id);
        if last.is_some() {
            return last;
        }
        let block = self.unpacked.get(&id).await?;
        self.weigh_again(&block).await;
        self.with_last(|last| *last = Some(Arc::clone(&block)));
        Some(block)
    }

    /// The permits to unpack a block.
    pub(super) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// The number of blocks that were read from the store to be unpacked, since the process started.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Computes the shares of the pages in a block in the bucket of the page. An unreadable block counts as empty.
    pub(super) async fn shares(&self, of: &Page, id: BlockId) -> Result<Shares> {
        let bytes = match self.read(of, id).await {
            Err(StoreError::Corrupt(_)) => return Ok(Shares::default()),
            bytes => bytes?,
        };
        blocking(move || {
            let block = Block::open(&bytes, Limits::default());
            Ok(block.and_then(|block| Shares::of(&block)).unwrap_or_default())
        })
        .await
    }

    /// Records that an import has moved these parts of a page out of their blocks.
    pub(super) fn note_moved(&self, page: &Page, parts: &[IndexRow]) {
        note_moved(&mut self.moved.lock().unwrap_or_else(PoisonError::into_inner), page, parts);
    }

    /// Takes what imports have moved out of blocks.
    pub(super) fn take_moved(&self) -> MovedBytes {
        std::mem::take(&mut self.moved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether imports have moved anything out of blocks.
    pub(super) fn has_moved(&self) -> bool {
        !self.moved.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Removes a deleted block from the cache.
    pub(super) async fn forget(&self, id: BlockId) {
        self.with_last(|last| drop(last.take_if(|last| last.id() == id)));
        self.unpacked.invalidate(&id).await;
    }

    /// What the cache of blocks weighs.
    #[cfg(test)]
    pub(super) async fn weight_in_cache(&self) -> u64 {
        self.unpacked.run_pending_tasks().await;
        self.unpacked.weighted_size()
    }

    #[cfg(test)]
    pub(super) fn forget_last(&self) {
        self.with_last(|last| *last = None);
    }

    fn with_last<T>(&self, with: impl FnOnce(&mut Option<Arc<OpenBlock>>) -> T) -> T {
        with(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The partition of a block in the bucket of the page.
pub(super) fn partition(of: &Page, id: BlockId) -> Vec<Value> {
    vec![of.domain.as_str().into(), of.bucket.as_key().into(), id.to_value()]
}

pub(super) fn in_hex(id: BlockId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates the error for operators about an unreadable block.
pub(super) fn unreadable(id: BlockId, error: &BlockError) -> StoreError {
    StoreError::Corrupt(format!("block {} of the archive: {error}", in_hex(id)))
}

/// Returns an error unless the columns of the block are those of the archive.
pub(super) fn check_columns(id: BlockId, block: &Block<'_>) -> Result<()> {
    // Blocks of earlier versions lack the last columns.
    if columns().starts_with(block.columns()) {
        return Ok(());
    }
    let what = "its columns are unknown: read it with the version of Rashomon that wrote it, or a later one";
    Err(StoreError::Corrupt(format!("block {} of the archive: {what}", in_hex(id))))
}

/// Returns a message if a later version of the program wrote the block. Such a block is not known to be
/// damaged, so no part of it may be given up.
pub(super) fn newer_version(id: BlockId, bytes: &[u8]) -> Option<String> {
    let why = match Block::salvage(bytes, Limits::default()) {
        Err(error @ BlockError::NewerVersion { found, known }) if found > known => unreadable(id, &error),
        Err(error @ BlockError::UnknownCodec(_)) => unreadable(id, &error),
        Ok(block) => check_columns(id, &block).err()?,
        Err(_) => return None,
    };
    match why {
        StoreError::Corrupt(why) => Some(why),
        _ => None,
    }
}

pub(super) fn not_understood(id: BlockId) -> StoreError {
    StoreError::Corrupt(format!("block {} of the archive: its records cannot be decoded", in_hex(id)))
}

/// Reads the units of a block, by page, and the computed hashes of its contents.
pub(super) fn units_of(of: &Page, id: BlockId, block: &Block<'_>) -> Result<(Pages, Hashes)> {
    check_columns(id, block)?;
    let units = read_units(of, block).map_err(|error| unreadable(id, &error))?;
    units.ok_or_else(|| not_understood(id))
}
