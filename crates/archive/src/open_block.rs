//! A block that was read. What a page needs of it is unpacked when the page is first requested.

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::format::{Hashes, PageEntries, Unit, hash_of, name_and_title, page_entries};
use bytes::Bytes;
use rashomon_blocks::{Block, Error as BlockError, Limits, Opened, Table, Unpacked};
use rashomon_records::{Page, Revision, Title};
use rashomon_tables::{Error as StoreError, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    blocks::{check_columns, in_hex, not_understood, unreadable},
    part::{ArchivedRow, Needs, PackedEntries, Part, WantedRows, rows_of_parts},
    rows::BlockId,
};

/// A block that was read. A block may have the revisions of thousands of pages, so each of its groups is unpacked when
/// a page of the group is first requested.
#[derive(Debug)]
pub(super) struct OpenBlock {
    id: BlockId,
    bytes: Bytes,
    opened: Opened,
    /// The damage of the block, even if all its contents can be read.
    damage: Option<BlockError>,
    titles: GroupsByTitle,
    groups: Vec<Group>,
    /// Revisions that were decoded, by the group and their first entry there: one read of a page needs the same revisions
    /// several times.
    decoded: Mutex<HashMap<(usize, u32), Arc<Unit>>>,
    /// The errors of contents of a damaged block that cannot be read, by the ordinal of the entry.
    lost: Mutex<HashMap<u64, BlockError>>,
    /// The approximate memory that the block and everything that was unpacked take.
    memory: AtomicUsize,
    /// What [`Self::memory`] was when the cache weighed the block.
    weighed: AtomicUsize,
}

/// A group of the block. Nothing is unpacked at first.
#[derive(Debug, Default)]
struct Group {
    records: OnceLock<Result<Records>>,
    texts: OnceLock<std::result::Result<Unpacked, BlockError>>,
}

/// The entries of a group without their texts.
#[derive(Debug)]
struct Records {
    table: Table,
    pages: Vec<PageEntries>,
    by_title: HashedTitles,
    /// The parts of pages with many entries, by the index of the page.
    parts: Mutex<HashMap<u32, Arc<Part>>>,
}

/// The hash of each title, with a number, sorted.
#[derive(Debug, Default)]
struct HashedTitles(Vec<(u32, u32)>);

impl HashedTitles {
    fn new(mut titles: Vec<(u32, u32)>) -> Self {
        titles.sort_unstable();
        titles.dedup();
        titles.shrink_to_fit();
        Self(titles)
    }

    fn hash(title: &str) -> u32 {
        xxh3_64(title.as_bytes()) as u32
    }

    /// The numbers of all titles with the hash of this title.
    fn with_hash_of(&self, title: &str) -> impl DoubleEndedIterator<Item = usize> {
        let hash = Self::hash(title);
        let start = self.0.partition_point(|(other, _)| *other < hash);
        let end = start + self.0[start..].partition_point(|(other, _)| *other == hash);
        self.0[start..end].iter().map(|(_, number)| *number as usize)
    }

    fn memory(&self) -> usize {
        self.0.capacity() * size_of::<(u32, u32)>()
    }
}

/// The groups in which pages may be.
#[derive(Debug)]
enum GroupsByTitle {
    /// The block has one group.
    One,
    /// By hash. If the names in some groups cannot be read, the first error.
    Hashed(HashedTitles, Option<BlockError>),
}

impl GroupsByTitle {
    fn new(block: &Block<'_>) -> Self {
        if block.groups() <= 1 {
            return Self::One;
        }
        let (mut titles, mut error) = (Vec::new(), None);
        for group in 0..block.groups() {
            let read = block.streams_of_group(group, |stream| {
                if let Some((_, title)) = name_and_title(stream) {
                    titles.push((HashedTitles::hash(title), group as u32));
                }
            });
            error = error.or(read.err());
        }
        Self::Hashed(HashedTitles::new(titles), error)
    }
}

impl Records {
    fn new(table: Table) -> Option<Self> {
        let pages = page_entries(&table)?;
        let hash = |(index, page): (u32, &PageEntries)| {
            let title = Title::new(page.title(&table)?).ok()?;
            Some((HashedTitles::hash(title.as_str()), index))
        };
        let by_title = HashedTitles::new((0..).zip(&pages).map(hash).collect::<Option<Vec<_>>>()?);
        Some(Self { table, pages, by_title, parts: Mutex::default() })
    }

    /// The index of the page with this title.
    fn find(&self, title: &str) -> Option<u32> {
        let is_it = |index: &usize| self.pages[*index].title(&self.table) == Some(title);
        self.by_title.with_hash_of(title).rfind(is_it).map(|index| index as u32)
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<u32, Arc<Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> usize {
        self.table.memory() + self.pages.capacity() * size_of::<PageEntries>() + self.by_title.memory()
    }
}

impl OpenBlock {
    pub(super) fn new(id: BlockId, bytes: Bytes) -> Result<Self> {
        let (block, damage) = match Block::open(&bytes, Limits::default()) {
            Err(damage @ BlockError::Damaged(_)) => {
                tracing::error!(block = in_hex(id), %damage, "archive block is damaged");
                let block = Block::salvage(&bytes, Limits::default());
                (block.map_err(|error| unreadable(id, &error))?, Some(damage))
            }
            block => (block.map_err(|error| unreadable(id, &error))?, None),
        };
        check_columns(id, &block)?;
        let titles = GroupsByTitle::new(&block);
        let groups: Vec<Group> = (0..block.groups()).map(|_| Group::default()).collect();
        let (opened, lost, weighed) = (block.opened(), Mutex::default(), AtomicUsize::new(0));
        let decoded = Mutex::default();
        let of_titles = match &titles {
            GroupsByTitle::One => 0,
            GroupsByTitle::Hashed(titles, _) => titles.memory(),
        };
        let of_groups = groups.capacity() * size_of::<Group>();
        let memory =
            AtomicUsize::new(size_of::<Self>() + bytes.len() + opened.memory() + of_titles + of_groups);
        Ok(Self { id, bytes, opened, damage, titles, groups, decoded, lost, memory, weighed })
    }

    /// The weight of the block in the cache.
    pub(super) fn weigh(&self) -> usize {
        let memory = self.memory.load(Ordering::Relaxed);
        self.weighed.store(memory, Ordering::Relaxed);
        memory
    }

    /// Whether the block takes more memory than the cache knows, by more than a few per cent.
    pub(super) fn has_grown(&self) -> bool {
        const SMALL_SHARE: usize = 16;
        let weighed = self.weighed.load(Ordering::Relaxed);
        self.memory.load(Ordering::Relaxed) > weighed + weighed / SMALL_SHARE
    }

    pub(super) fn id(&self) -> BlockId {
        self.id
    }

    /// Whether the block is damaged, even if all its contents can be read.
    pub(super) fn is_damaged(&self) -> bool {
        self.damage.is_some()
    }

    fn block(&self) -> Block<'_> {
        self.opened.block(&self.bytes)
    }

    /// The groups that may have a part of the page, in the order of the block.
    fn groups_of(&self, title: &Title) -> impl Iterator<Item = usize> {
        let (all, hashed) = match &self.titles {
            GroupsByTitle::One => (0..self.groups.len(), None),
            GroupsByTitle::Hashed(titles, _) => (0..0, Some(titles.with_hash_of(title.as_str()))),
        };
        all.chain(hashed.into_iter().flatten())
    }

    fn records(&self, group: usize) -> Result<&Records> {
        let records = self.groups[group].records.get_or_init(|| {
            let table = self.block().table(group).map_err(|error| unreadable(self.id, &error))?;
            let records = Records::new(table).ok_or_else(|| not_understood(self.id))?;
            self.memory.fetch_add(records.memory(), Ordering::Relaxed);
            Ok(records)
        });
        records.as_ref().map_err(Clone::clone)
    }

    fn texts(&self, group: usize) -> std::result::Result<&Unpacked, BlockError> {
        let texts = self.groups[group].texts.get_or_init(|| {
            let first = if group == 0 { None } else { Some(self.texts(0)?) };
            let unpacked = self.block().unpack(group, first)?;
            self.memory.fetch_add(unpacked.memory(), Ordering::Relaxed);
            Ok(unpacked)
        });
        texts.as_ref().map_err(Clone::clone)
    }

    /// Whether everything that a reader of the page needs is unpacked.
    pub(super) fn is_unpacked_for(&self, title: &Title, needs: &Needs) -> bool {
        self.groups_of(title).all(|group| {
            let Group { records, texts } = &self.groups[group];
            records.get().is_some() && (texts.get().is_some() || !self.needs_texts(group, title, needs))
        })
    }

    /// Whether a reader of the page needs texts of a group whose records are unpacked.
    fn needs_texts(&self, group: usize, title: &Title, needs: &Needs) -> bool {
        let Some(revs) = needs.texts() else { return false };
        // An error is returned to the reader.
        let part = self.part(group, title).ok().flatten();
        part.is_some_and(|part| !part.within(revs).is_empty())
    }

    /// The number of bytes that are unpacked for a reader of the page, if nothing was unpacked before.
    pub(super) fn bytes_to_unpack_for(&self, title: &Title) -> usize {
        let of_first = if self.groups.is_empty() { 0 } else { self.opened.unpacked_bytes(0) };
        let others = self.groups_of(title).filter(|group| *group > 0);
        of_first + others.map(|group| self.opened.unpacked_bytes(group)).sum::<usize>()
    }

    /// Unpacks what a reader of the page needs. An error is returned to the reader.
    pub(super) fn unpack_for(&self, title: &Title, needs: &Needs) {
        for group in self.groups_of(title) {
            if self.records(group).is_ok() && self.needs_texts(group, title, needs) {
                let _ = self.texts(group);
            }
        }
    }

    /// The part of a page in a group, if the group has one.
    fn part(&self, group: usize, title: &Title) -> Result<Option<Arc<Part>>> {
        /// For a page with fewer entries, a part is made again at each request.
        const MANY_ENTRIES: usize = 64;
        let records = self.records(group)?;
        let Some(index) = records.find(title.as_str()) else { return Ok(None) };
        let entries = &records.pages[index as usize];
        let new =
            || Part::new(group, &records.table, entries).map(Arc::new).ok_or_else(|| not_understood(self.id));
        if entries.count() < MANY_ENTRIES {
            return new().map(Some);
        }
        if let Some(part) = records.parts().get(&index) {
            return Ok(Some(part.clone()));
        }
        let part = new()?;
        // Another reader may have made the part meanwhile.
        let part = records
            .parts()
            .entry(index)
            .or_insert_with(|| {
                self.memory.fetch_add(part.memory(), Ordering::Relaxed);
                part
            })
            .clone();
        Ok(Some(part))
    }

    /// The parts of a page, each with the table of its group.
    fn parts(&self, title: &Title) -> Result<Vec<(Arc<Part>, &Table)>> {
        let mut parts = Vec::new();
        for group in self.groups_of(title) {
            if let Some(part) = self.part(group, title)? {
                parts.push((part, &self.records(group)?.table));
            }
        }
        Ok(parts)
    }

    /// The parts of a page whose index references the block. Returns `Corrupt` if the block has no such part.
    fn parts_of(&self, page: &Page) -> Result<Vec<(Arc<Part>, &Table)>> {
        let parts = self.parts(&page.title)?;
        if parts.is_empty() { Err(self.lacks(page)) } else { Ok(parts) }
    }

    /// The error for a page whose index references the block, and that the block does not have.
    fn lacks(&self, page: &Page) -> StoreError {
        if let GroupsByTitle::Hashed(_, Some(damage)) = &self.titles {
            return unreadable(self.id, damage);
        }
        let what = format!(
            "the archive index of page {} references block {}, which does not contain the page",
            page.title,
            in_hex(self.id)
        );
        StoreError::Corrupt(what)
    }

    /// Returns `Corrupt` if the block is damaged, and the records of any page cannot be read.
    pub(super) fn check_records(&self) -> Result<()> {
        let groups = if self.is_damaged() { 0..self.groups.len() } else { 0..0 };
        groups.into_iter().try_for_each(|group| self.records(group).map(drop))
    }

    /// The wanted rows of a page, in no particular order: all of them, or at least those that are enough. Returns `Corrupt`
    /// if the block has no part of the page.
    pub(super) fn rows(&self, page: &Page, wanted: &WantedRows<'_>) -> Result<Vec<ArchivedRow>> {
        let rows = rows_of_parts(page, &self.parts_of(page)?, wanted);
        rows.ok_or_else(|| not_understood(self.id))
    }

    /// Whether the block has a part of the page.
    pub(super) fn has_part(&self, title: &Title) -> bool {
        self.parts(title).is_ok_and(|parts| !parts.is_empty())
    }

    /// The titles of all pages. Returns `Corrupt` if some cannot be read.
    pub(super) fn titles(&self) -> Result<BTreeSet<Title>> {
        let (block, mut titles) = (self.block(), BTreeSet::new());
        for group in 0..block.groups() {
            let read = block.streams_of_group(group, |stream| {
                titles.extend(name_and_title(stream).and_then(|(_, title)| Title::new(title).ok()));
            });
            read.map_err(|error| unreadable(self.id, &error))?;
        }
        Ok(titles)
    }

    /// Decodes a revision of the block, or returns the revision if it was decoded before.
    pub(super) fn unit(&self, page: &Page, packed: &PackedEntries) -> Result<Arc<Unit>> {
        /// The number of decoded revisions that are kept.
        const MAX_DECODED: usize = 1_024;
        if let Some(unit) = self.decoded_before(packed) {
            return Ok(unit);
        }
        let unit = Arc::new(self.decode(page, packed)?.0);
        let mut decoded = self.decoded();
        if decoded.len() >= MAX_DECODED {
            let freed: usize = decoded.drain().map(|(_, unit)| memory_of(&unit)).sum();
            self.memory.fetch_sub(freed, Ordering::Relaxed);
        }
        if decoded.insert((packed.group, packed.entries.first()), Arc::clone(&unit)).is_none() {
            self.memory.fetch_add(memory_of(&unit), Ordering::Relaxed);
        }
        Ok(unit)
    }

    /// A revision that was decoded already.
    pub(super) fn decoded_before(&self, packed: &PackedEntries) -> Option<Arc<Unit>> {
        self.decoded().get(&(packed.group, packed.entries.first())).cloned()
    }

    fn decoded(&self) -> MutexGuard<'_, HashMap<(usize, u32), Arc<Unit>>> {
        self.decoded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All revisions of a page in the block, the lowest first. Returns `Corrupt` if the block has none.
    pub(super) fn units(&self, page: &Page) -> Result<Vec<Unit>> {
        let entries = self.entries_of(page, &(Revision::MIN..=Revision::MAX))?;
        entries.iter().map(|entries| Ok(self.decode(page, entries)?.0)).collect()
    }

    /// The revisions of a page in a range, the lowest first. Returns `Corrupt` if the block has no revision of the page.
    pub(super) fn entries_of(
        &self,
        page: &Page,
        revs: &RangeInclusive<Revision>,
    ) -> Result<Vec<PackedEntries>> {
        let parts = self.parts_of(page)?;
        let mut found: Vec<_> =
            parts.iter().flat_map(|(part, _)| part.within(revs).iter().cloned()).collect();
        found.sort_by_key(|entries| entries.rev);
        Ok(found)
    }

    /// Decodes a revision. Also returns the texts that had to be read for this, by the ordinals of their entries.
    pub(super) fn decode(&self, page: &Page, packed: &PackedEntries) -> Result<(Unit, Vec<(u64, Bytes)>)> {
        let PackedEntries { group, entries, .. } = packed;
        let table = &self.records(*group)?.table;
        let read = |ordinal| Some((ordinal, Bytes::from(self.content(ordinal).ok()?)));
        let texts: Vec<_> = entries.hashed(table).filter_map(read).collect();
        let hashes: Hashes = texts.iter().map(|(ordinal, text)| (*ordinal, hash_of(text))).collect();
        let unit = entries.read(table, page, &hashes).ok_or_else(|| not_understood(self.id))?;
        Ok((unit, texts))
    }

    /// A revision of a page, if the block has it.
    pub(super) fn unit_of(&self, page: &Page, rev: Revision) -> Result<Option<Arc<Unit>>> {
        let parts = self.parts(&page.title)?;
        let found = parts.iter().find_map(|(part, _)| part.within(&(rev..=rev)).first());
        found.map(|packed| self.unit(page, packed)).transpose()
    }

    /// The text of an entry.
    pub(super) fn text(&self, ordinal: u64) -> Result<Bytes> {
        self.content(ordinal).map(Bytes::from).map_err(|error| unreadable(self.id, &error))
    }

    fn content(&self, ordinal: u64) -> std::result::Result<Vec<u8>, BlockError> {
        let group = self.opened.group_of(ordinal).ok_or(BlockError::NoSuchOrdinal(ordinal))?;
        match self.texts(group) {
            Ok(unpacked) => unpacked.get(ordinal),
            // Contents that do not depend on the damage can be read one by one.
            Err(_) if self.is_damaged() => {
                let lost = || self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(error) = lost().get(&ordinal) {
                    return Err(error.clone());
                }
                let content = self.block().get(ordinal);
                content.inspect_err(|error| drop(lost().insert(ordinal, error.clone())))
            }
            Err(error) => Err(error),
        }
    }
}

/// The approximate memory of a decoded revision.
fn memory_of(unit: &Unit) -> usize {
    const REVISION_BYTES: usize = 1024;
    const RENDER_BYTES: usize = 512;
    const BODY_BYTES: usize = 512;
    REVISION_BYTES + unit.renders.len() * RENDER_BYTES + unit.all_bodies().count() * BODY_BYTES
}

#[cfg(test)]
mod tests;
