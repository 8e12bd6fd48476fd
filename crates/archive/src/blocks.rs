//! Blocks in the store, and a cache of unpacked blocks.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use moka::{future::Cache, policy::EvictionPolicy};
use rashomon_admission::Permits;
use rashomon_archive_format::{
    Hashes, PageEntries, Pages, Unit, columns, name_and_title, page_entries, read_units,
};
use rashomon_blocks::{Block, Error as BlockError, Limits, Table, Unpacked};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError, Key, Outage, Result, Scan, Schema, TableStore, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    compaction::{MovedBytes, note_moved},
    damage::Damage,
    index::IndexRow,
    index_cache::IndexCache,
    part::{PackedUnit, Part},
    pending::settings,
    rows::{BlockId, BlockPiece},
    too_large::TooLarge,
    union::block_with,
    verified_block::blocking,
};
use rashomon_records::{
    Page, Revision, Title,
    rows::{ColumnValue, TypedRow},
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

/// Reads and writes blocks.
#[derive(Debug)]
pub struct BlockStore {
    /// The store of the tables, without the blocks.
    pub(super) store: Arc<dyn TableStore>,
    /// The lock of operations that change blocks. See [`super::Archive::alone`].
    pub(super) sealing: tokio::sync::Mutex<()>,
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

/// A block that was read. The texts of an undamaged block are unpacked. The part of a page is built when it is first
/// requested: a block may have the revisions of thousands of pages.
#[derive(Debug)]
pub(super) struct OpenBlock {
    id: BlockId,
    /// A page of the block's bucket.
    of: Page,
    table: Table,
    pages: PagesByTitle,
    /// The parts that were built, by the index of the page.
    parts: Mutex<HashMap<u32, Arc<Part>>>,
    texts: Texts,
    /// The approximate memory that the block and the built parts take.
    memory: AtomicUsize,
    /// What [`Self::memory`] was when the cache weighed the block.
    weighed: AtomicUsize,
}

/// The pages of a block, for finding one by its title.
#[derive(Debug)]
struct PagesByTitle {
    entries: Vec<PageEntries>,
    /// The hash of each title, with the index of the page, sorted.
    hashes: Vec<(u32, u32)>,
}

impl PagesByTitle {
    fn new(table: &Table) -> Option<Self> {
        let entries = page_entries(table)?;
        let hash = |(index, page): (u32, &PageEntries)| {
            let title = Title::new(page.title(table)?).ok()?;
            Some((Self::hash(title.as_str()), index))
        };
        let mut hashes = (0..).zip(&entries).map(hash).collect::<Option<Vec<_>>>()?;
        hashes.sort_unstable();
        Some(Self { entries, hashes })
    }

    fn hash(title: &str) -> u32 {
        xxh3_64(title.as_bytes()) as u32
    }

    /// The index of the page with this title.
    fn find(&self, table: &Table, title: &str) -> Option<u32> {
        let hash = Self::hash(title);
        let start = self.hashes.partition_point(|(other, _)| *other < hash);
        let same = self.hashes[start..].iter().take_while(|(other, _)| *other == hash);
        same.map(|(_, index)| *index)
            .filter(|index| self.entries[*index as usize].title(table) == Some(title))
            .last()
    }

    fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<PageEntries>() + self.hashes.capacity() * size_of::<(u32, u32)>()
    }
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
        Ok(Self { literals, of_all, is_full: block.is_full(&settings())? })
    }

    /// The share of the page with this title.
    pub(super) fn of_page(&self, title: &Title) -> Share {
        let literals = self.literals.get(title.as_str()).copied().unwrap_or(0);
        Share { literals, is_large: self.is_full && literals * Self::MIN_SHARE_DIVISOR >= self.of_all }
    }
}

#[derive(Debug)]
enum Texts {
    Unpacked(Box<Unpacked>),
    /// The bytes of a damaged block, whose contents may be unreadable. Each request decodes its content
    /// again. The errors of unreadable contents are remembered, by the ordinal of the entry.
    Damaged(Bytes, Mutex<HashMap<u64, BlockError>>),
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
        let (sealing, damage) = (tokio::sync::Mutex::new(()), Damage::default());
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

    /// Returns a block of a page from memory, or reads and unpacks it with a permit. The permits bound the processor
    /// time that unpacking takes from other tasks. Returns `Unavailable` if the caller gets no permit. If several
    /// callers with a permit request a block at once, one of them unpacks it for all.
    pub(super) async fn open(&self, page: &Page, id: BlockId) -> Result<Arc<OpenBlock>> {
        let block = self.open_any(page, id).await?;
        if block.has_long_part_to_build(&page.title) {
            let (block, title) = (Arc::clone(&block), page.title.clone());
            blocking(move || {
                // An error is returned to the reader of the part.
                let _ = block.part(&title);
                Ok::<_, StoreError>(())
            })
            .await?;
        }
        Ok(block)
    }

    async fn open_any(&self, of: &Page, id: BlockId) -> Result<Arc<OpenBlock>> {
        if let Some(block) = self.in_memory(id).await {
            return Ok(block);
        }
        let _permit = self.permits.take().await.map_err(|_refused| StoreError::Unavailable(OVERLOADED))?;
        // Another caller may have unpacked the block meanwhile.
        if let Some(block) = self.in_memory(id).await {
            return Ok(block);
        }
        let block = self.unpacked.try_get_with(id, async {
            self.opened.fetch_add(1, Ordering::Relaxed);
            let bytes = self.read(of, id).await?;
            let of = of.clone();
            blocking(move || OpenBlock::new(&of, id, bytes)).await.map(Arc::new)
        });
        let block = Box::pin(block).await.map_err(|error: Arc<StoreError>| (*error).clone())?;
        self.with_last(|last| *last = Some(Arc::clone(&block)));
        Ok(block)
    }

    /// Returns an error if no further request may wait for a permit, and a read of this row would have to
    /// wait: the row is in a block that is not in memory. Reads nothing from the store, since a refusal has to
    /// cost little. So the row counts as readable if the index of its page is not in memory.
    pub(super) async fn refuse_early(&self, table: &'static Schema, key: &Key) -> Result<()> {
        if !self.permits.is_full() {
            return Ok(());
        }
        let Some(index) = self.indexes.cached(&*self.store, &key.partition).await else { return Ok(()) };
        let Some(id) = block_with(table, key, &index) else { return Ok(()) };
        if self.in_memory(id).await.is_some() {
            return Ok(());
        }
        self.permits.refuse_if_full().map_err(|_refused| StoreError::Unavailable(OVERLOADED))
    }

    /// Returns the block, if it is in memory.
    async fn in_memory(&self, id: BlockId) -> Option<Arc<OpenBlock>> {
        let last = self.with_last(|last| last.clone()).filter(|last| last.id == id);
        if last.is_some() {
            return last;
        }
        let block = self.unpacked.get(&id).await?;
        if block.has_grown() {
            // The cache weighs a block only when it is inserted.
            self.unpacked.insert(id, Arc::clone(&block)).await;
        }
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
        self.with_last(|last| drop(last.take_if(|last| last.id == id)));
        self.unpacked.invalidate(&id).await;
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
fn check_columns(id: BlockId, block: &Block<'_>) -> Result<()> {
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

fn not_understood(id: BlockId) -> StoreError {
    StoreError::Corrupt(format!("block {} of the archive: its records cannot be decoded", in_hex(id)))
}

/// Reads the units of a block, by page, and the computed hashes of its contents.
pub(super) fn units_of(of: &Page, id: BlockId, block: &Block<'_>) -> Result<(Pages, Hashes)> {
    check_columns(id, block)?;
    let units = read_units(of, block).map_err(|error| unreadable(id, &error))?;
    units.ok_or_else(|| not_understood(id))
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
        check_columns(id, &block)?;
        let table = block.table().map_err(|error| unreadable(id, &error))?;
        let pages = PagesByTitle::new(&table).ok_or_else(|| not_understood(id))?;
        let texts = match damage {
            None => Texts::Unpacked(Box::new(block.unpack().map_err(|error| unreadable(id, &error))?)),
            Some(damage) => {
                tracing::error!(block = in_hex(id), %damage, "archive block is damaged");
                Texts::Damaged(bytes.clone(), Mutex::default())
            }
        };
        let of_texts = match &texts {
            Texts::Unpacked(unpacked) => unpacked.memory(),
            Texts::Damaged(bytes, _) => bytes.len(),
        };
        let memory = AtomicUsize::new(of_texts + table.memory() + pages.memory());
        let (parts, weighed) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { id, of: of.clone(), table, pages, parts, texts, memory, weighed })
    }

    /// The weight of the block in the cache.
    fn weigh(&self) -> usize {
        let memory = self.memory.load(Ordering::Relaxed);
        self.weighed.store(memory, Ordering::Relaxed);
        memory
    }

    /// Whether the block takes more memory than the cache knows, by more than a few per cent.
    fn has_grown(&self) -> bool {
        const SMALL_SHARE: usize = 16;
        let weighed = self.weighed.load(Ordering::Relaxed);
        self.memory.load(Ordering::Relaxed) > weighed + weighed / SMALL_SHARE
    }

    pub(super) fn id(&self) -> BlockId {
        self.id
    }

    /// Whether the block is damaged, even if all its contents can be read.
    pub(super) fn is_damaged(&self) -> bool {
        matches!(self.texts, Texts::Damaged(..))
    }

    /// Whether the block has a part of the page.
    pub(super) fn has_part(&self, title: &Title) -> bool {
        self.pages.find(&self.table, title.as_str()).is_some()
    }

    /// Whether building the part of this page takes so long that it would delay tasks that wait for the store.
    fn has_long_part_to_build(&self, title: &Title) -> bool {
        const LONG: usize = 512;
        let is_built = |index| self.parts.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&index);
        self.pages
            .find(&self.table, title.as_str())
            .is_some_and(|index| self.pages.entries[index as usize].count() > LONG && !is_built(index))
    }

    /// The part of a page, if the block has one.
    fn part(&self, title: &Title) -> Result<Option<Arc<Part>>> {
        let Some(index) = self.pages.find(&self.table, title.as_str()) else { return Ok(None) };
        let parts = || self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = parts().get(&index) {
            return Ok(Some(Arc::clone(part)));
        }
        let page = Page { title: title.clone(), ..self.of.clone() };
        let part = Part::new(page, &self.table, &self.pages.entries[index as usize]);
        let part = Arc::new(part.ok_or_else(|| not_understood(self.id))?);
        // Another reader may have built the part meanwhile.
        let part = Arc::clone(parts().entry(index).or_insert_with(|| {
            self.memory.fetch_add(part.memory(), Ordering::Relaxed);
            part
        }));
        Ok(Some(part))
    }

    /// The part of a page whose index references the block. Returns `Corrupt` if the block has no such part.
    pub(super) fn part_of(&self, page: &Page) -> Result<Arc<Part>> {
        self.part(&page.title)?.ok_or_else(|| {
            let what = format!(
                "the archive index of page {} references block {}, which does not contain the page",
                page.title,
                in_hex(self.id)
            );
            StoreError::Corrupt(what)
        })
    }

    pub(super) fn titles(&self) -> BTreeSet<Title> {
        let title = |page: &PageEntries| Title::new(page.title(&self.table)?).ok();
        self.pages.entries.iter().filter_map(title).collect()
    }

    /// Decodes a revision of the block, or returns the revision if it was decoded before.
    pub(super) fn unit(&self, packed: &PackedUnit) -> Result<Arc<Unit>> {
        let unit = packed.unit(&self.table, |ordinal| self.content(ordinal).ok());
        unit.ok_or_else(|| not_understood(self.id))
    }

    /// All revisions of a page in the block, the lowest first. Returns `Corrupt` if the block has none.
    pub(super) fn units(&self, page: &Page) -> Result<Vec<Arc<Unit>>> {
        self.part_of(page)?.revisions().map(|packed| self.unit(packed)).collect()
    }

    /// A revision of a page, if the block has it.
    pub(super) fn unit_of(&self, title: &Title, rev: Revision) -> Result<Option<Arc<Unit>>> {
        let Some(part) = self.part(title)? else { return Ok(None) };
        part.revision(rev).map(|packed| self.unit(packed)).transpose()
    }

    /// The text of an entry.
    pub(super) fn text(&self, ordinal: u64) -> Result<Bytes> {
        self.content(ordinal).map(Bytes::from).map_err(|error| unreadable(self.id, &error))
    }

    fn content(&self, ordinal: u64) -> std::result::Result<Vec<u8>, BlockError> {
        match &self.texts {
            Texts::Unpacked(unpacked) => unpacked.get(ordinal),
            Texts::Damaged(bytes, lost) => {
                let lost = || lost.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(error) = lost().get(&ordinal) {
                    return Err(error.clone());
                }
                let content = Block::salvage(bytes, Limits::default()).and_then(|block| block.get(ordinal));
                content.inspect_err(|error| drop(lost().insert(ordinal, error.clone())))
            }
        }
    }
}

#[cfg(test)]
mod tests;
