//! Reads contents from pool and scripts.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Segment,
    script::{Origin, Scripts},
    segments::{CACHED_LIST_INTERVAL, ScriptToFold, fold, fold_all, fold_from, length},
};
use crate::{
    checks::{CHECK_BYTES, checksum},
    chunks::Chunks,
    directory::{CHECKS, SCRIPTS, TEXTS, Version},
    error::{Damage, Error},
};

/// The maximum number of kept segments when texts are read in order.
const MAX_KEPT_SEGMENTS: usize = 4 << 20;

/// The maximum number of kept segments of an unpacked block, whose texts are read in any order. The segments
/// take 128 KiB.
const MAX_UNPACKED_SEGMENTS: usize = 16 << 10;

/// The minimum number of bytes of a piece of the literals that has a checksum of its own.
const MIN_PIECE_BYTES: usize = 128;

/// The checksums of all pieces of a chunk's literals. The chunk has this many entries.
pub(crate) fn checks_of_literals(literals: &[u8], entries: usize) -> Vec<u8> {
    literals.chunks(piece_bytes(literals.len(), entries)).flat_map(checksum).collect()
}

/// The size of a piece. A chunk has no more pieces than entries, since checksums cannot be compressed.
fn piece_bytes(literals: usize, entries: usize) -> usize {
    literals.div_ceil(entries.max(1)).next_power_of_two().max(MIN_PIECE_BYTES)
}

/// The unpacked scripts and literals of a group of chunks.
#[derive(Debug)]
pub(crate) struct DeltaReader {
    /// The chunks of the group.
    chunks: Range<usize>,
    /// The scripts of each chunk. `None` if they are damaged.
    scripts: Vec<Option<Scripts>>,
    /// The literals of the group. After the first damage, there are zeros.
    literals: Vec<u8>,
    /// The ranges of the literals that are undamaged, in order. Between two of them, literals are damaged.
    undamaged: Vec<Range<usize>>,
    /// The position of the first literal in the pool.
    literals_at: u32,
    /// The first group of the block, unless this is the first.
    shared: Option<Arc<Self>>,
}

impl DeltaReader {
    /// Unpacks a group. `shared` is the first group of the block, unless the group is the first.
    pub(crate) fn open(chunks: &Chunks<'_>, group: usize, shared: Option<Arc<Self>>) -> Result<Self, Error> {
        let mut reader = Self::empty(chunks, group, shared);
        for chunk in chunks.of_group(group) {
            reader.scripts.push(Some(read_scripts(chunks, chunk)?));
            let before = reader.literals.len();
            reader.literals.resize(before + chunks.pool(chunk).len(), 0);
            let (earlier, literals) = reader.literals.split_at_mut(before);
            chunks.unpack_into(chunk, TEXTS, prefix(reader.shared.as_deref(), earlier), literals)?;
        }
        reader.add_undamaged(0..reader.literals.len());
        Ok(reader)
    }

    /// Unpacks what is undamaged of a group. A content that needs more is an error.
    ///
    /// In version 1, the literals are used up to the point where the unpacking fails, since the checksums of the contents
    /// show which are wrong. In version 2, each piece of the literals has a checksum.
    pub(crate) fn salvage(chunks: &Chunks<'_>, group: usize, shared: Option<Arc<Self>>) -> Self {
        let mut reader = Self::empty(chunks, group, shared);
        for chunk in chunks.of_group(group) {
            reader.scripts.push(read_scripts(chunks, chunk).ok());
            let before = reader.literals.len();
            let is_reached = reader.undamaged.last().map_or(0, |range| range.end) == before;
            reader.literals.resize(before + chunks.pool(chunk).len(), 0);
            if chunks.version() == Version::One && !is_reached {
                continue;
            }
            let (earlier, literals) = reader.literals.split_at_mut(before);
            let prefix = prefix(reader.shared.as_deref(), earlier);
            let reached = chunks.unpack_start(chunk, TEXTS, prefix, literals);
            match chunks.version() {
                Version::One => reader.add_undamaged(before..before + reached),
                Version::Two => {
                    let checks = chunks.unpack(chunk, CHECKS, &[]).unwrap_or_default();
                    reader.add_undamaged_pieces(reached, &checks, chunks.get(chunk).entries);
                }
            }
        }
        reader
    }

    fn add_undamaged(&mut self, range: Range<usize>) {
        match self.undamaged.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.undamaged.push(range),
        }
    }

    /// Adds the pieces that agree with their checksums, of as many literals as were unpacked.
    fn add_undamaged_pieces(&mut self, unpacked: usize, checks: &[u8], entries: usize) {
        let literals = std::mem::take(&mut self.literals);
        let pieces = literals.chunks(piece_bytes(literals.len(), entries));
        let mut start = 0;
        for (piece, check) in pieces.zip(checks.chunks_exact(CHECK_BYTES)) {
            let end = start + piece.len();
            // The fuzzer cannot guess checksums, so fuzzing does not check them.
            if end <= unpacked && (checksum(piece) == *check || cfg!(fuzzing)) {
                self.add_undamaged(start..end);
            }
            start = end;
        }
        self.literals = literals;
    }

    fn empty(chunks: &Chunks<'_>, group: usize, shared: Option<Arc<Self>>) -> Self {
        let of_group = chunks.of_group(group);
        let literals_at = chunks.pool(of_group.start).start;
        let scripts = Vec::with_capacity(of_group.len());
        Self { chunks: of_group, scripts, literals: Vec::new(), undamaged: Vec::new(), literals_at, shared }
    }

    /// The text of an entry.
    pub(crate) fn text(&self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<u8>, Error> {
        let list = self.list(chunks, index)?;
        self.copy(chunks, index, &list)
    }

    /// The text of an entry. A text may depend on thousands of scripts, so some of the lists that are built for it are
    /// kept for later calls.
    pub(crate) fn cached_text(
        &self,
        chunks: &Chunks<'_>,
        index: usize,
        cache: &SegmentListCache,
    ) -> Result<Vec<u8>, Error> {
        let list = cache.list(index, chunks.limits().content, |index| self.script_of(chunks, index));
        self.copy(chunks, index, &list.ok_or_else(|| self.damaged(chunks, index))?)
    }

    /// The text of an entry, for reads in order: `lists` has the lists of the entries that were read
    /// recently, and the text is probably derived from one of them.
    pub(crate) fn next_text(
        &self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut SegmentLists,
    ) -> Result<Vec<u8>, Error> {
        let list = self.next_list(chunks, index, lists)?;
        self.copy(chunks, index, &list)
    }

    /// The segments of an entry.
    fn next_list(
        &self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut SegmentLists,
    ) -> Result<Arc<Vec<Segment>>, Error> {
        let damaged = || self.damaged(chunks, index);
        let step = self.script_of(chunks, index).ok_or_else(damaged)?;
        let parent = match step.origin {
            Origin::Parent(distance) => {
                index.checked_sub(distance as usize).and_then(|parent| lists.get(parent))
            }
            _ => None,
        };
        let list = match parent {
            Some(same) if step.edits.is_empty() => Arc::clone(same),
            Some(parent) => {
                let list = fold(parent, step.edits, step.literals_at, chunks.limits().content);
                Arc::new(list.ok_or_else(damaged)?)
            }
            None => Arc::new(self.list(chunks, index)?),
        };
        lists.keep(index, &list);
        Ok(list)
    }

    /// The script of an entry of this group, or of the first one.
    pub(crate) fn script_of(&self, chunks: &Chunks<'_>, index: usize) -> Option<ScriptToFold<'_>> {
        let (chunk, place) = chunks.find(index)?;
        if !self.chunks.contains(&chunk) {
            return self.shared.as_ref()?.script_of(chunks, index);
        }
        let scripts = self.scripts[chunk - self.chunks.start].as_ref()?;
        let script = scripts.get(place);
        Some(ScriptToFold {
            origin: script.origin,
            edits: scripts.edits(script),
            literals_at: script.literals_at,
        })
    }

    /// The memory that the group takes, without the first group.
    pub(crate) fn memory(&self) -> usize {
        self.literals.capacity() + self.scripts.iter().flatten().map(Scripts::memory).sum::<usize>()
    }

    fn list(&self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<Segment>, Error> {
        fold_all(index, chunks.limits().content, |index| self.script_of(chunks, index))
            .ok_or_else(|| self.damaged(chunks, index))
    }

    fn copy(&self, chunks: &Chunks<'_>, index: usize, list: &[Segment]) -> Result<Vec<u8>, Error> {
        // `fold` has checked that the text is within the limit. All segments refer to the pool.
        let mut text = Vec::with_capacity(length(list));
        for segment in list {
            self.append(*segment, &mut text).ok_or_else(|| self.lost_literals(chunks, index))?;
        }
        Ok(text)
    }

    /// Appends the bytes of a segment. It may begin in the literals of the first group and end in those of this group,
    /// if these follow one another.
    fn append(&self, segment: Segment, text: &mut Vec<u8>) -> Option<()> {
        let Segment { mut pool_at, mut len } = segment;
        if let Some(shared) = &self.shared
            && pool_at < self.literals_at
        {
            let of_shared = len.min((shared.literals.len() as u32).checked_sub(pool_at)?);
            text.extend_from_slice(shared.bytes(pool_at, of_shared)?);
            (pool_at, len) = (pool_at + of_shared, len - of_shared);
        }
        if len > 0 {
            text.extend_from_slice(self.bytes(pool_at, len)?);
        }
        Some(())
    }

    /// Literals of this group, if they are undamaged.
    fn bytes(&self, pool_at: u32, len: u32) -> Option<&[u8]> {
        let start = pool_at.checked_sub(self.literals_at)? as usize;
        let end = start.checked_add(len as usize)?;
        let range = self.undamaged.get(self.undamaged.partition_point(|range| range.end < end))?;
        if range.start <= start { self.literals.get(start..end) } else { None }
    }

    /// The error for an entry that cannot be read because literals are missing.
    fn lost_literals(&self, chunks: &Chunks<'_>, index: usize) -> Error {
        let is_lost = |reader: &Self, chunk: usize| {
            let place = chunks.pool(chunk);
            !place.is_empty() && reader.bytes(place.start, place.end - place.start).is_none()
        };
        let of_shared =
            self.shared.iter().flat_map(|shared| shared.chunks.clone().map(|chunk| (&**shared, chunk)));
        let own = self.chunks.clone().map(|chunk| (self, chunk));
        let lost = of_shared.chain(own).find(|(reader, chunk)| is_lost(reader, *chunk));
        let chunk = lost.map(|(_, chunk)| chunk).or_else(|| chunks.find(index).map(|(chunk, _)| chunk));
        Damage::of(chunk.unwrap_or(0), TEXTS).into()
    }

    /// The error for an entry that cannot be read because scripts are damaged.
    fn damaged(&self, chunks: &Chunks<'_>, index: usize) -> Error {
        let (chunk, _) = chunks.find(index).unwrap_or_default();
        let mut next = index;
        let lost = loop {
            let Some((chunk, _)) = chunks.find(next) else { break None };
            match self.script_of(chunks, next).map(|script| script.origin) {
                None => break Some(chunk),
                Some(Origin::Parent(distance)) if distance > 0 && distance as usize <= next => {
                    next -= distance as usize;
                }
                Some(_) => break None,
            }
        };
        Damage::of(lost.unwrap_or(chunk), SCRIPTS).into()
    }
}

/// The bytes with which the literals of a chunk share text: those of the first group, or the earlier ones of its own.
fn prefix<'a>(shared: Option<&'a DeltaReader>, earlier: &'a [u8]) -> &'a [u8] {
    shared.map_or(earlier, |shared| &shared.literals)
}

pub(crate) fn read_scripts(chunks: &Chunks<'_>, chunk: usize) -> Result<Scripts, Error> {
    let bytes = chunks.unpack(chunk, SCRIPTS, &[])?;
    let scripts = Scripts::read(&bytes, chunks.get(chunk).entries, &chunks.sources(chunk));
    Ok(scripts.ok_or_else(|| Damage::of(chunk, SCRIPTS))?)
}

/// The segment lists of the entries that were read last.
#[derive(Debug)]
pub(crate) struct SegmentLists {
    lists: HashMap<usize, Arc<Vec<Segment>>>,
    /// The indexes in the order in which they were added.
    order: VecDeque<usize>,
    segments: usize,
    most: usize,
}

impl Default for SegmentLists {
    fn default() -> Self {
        Self { lists: HashMap::new(), order: VecDeque::new(), segments: 0, most: MAX_KEPT_SEGMENTS }
    }
}

impl SegmentLists {
    fn get(&self, index: usize) -> Option<&Arc<Vec<Segment>>> {
        self.lists.get(&index)
    }

    fn keep(&mut self, index: usize, list: &Arc<Vec<Segment>>) {
        if self.lists.insert(index, Arc::clone(list)).is_some() {
            // The list of an entry is always the same.
            return;
        }
        self.order.push_back(index);
        self.segments += list.len();
        while self.segments > self.most
            && let Some(oldest) = self.order.pop_front().and_then(|oldest| self.lists.remove(&oldest))
        {
            self.segments -= oldest.len();
        }
    }
}

/// The kept segment lists of an unpacked block, which several threads may read.
#[derive(Debug)]
pub(crate) struct SegmentListCache(Mutex<SegmentLists>);

impl SegmentListCache {
    /// An empty set of lists, for a block with this many entries.
    pub(crate) fn new(entries: usize) -> Self {
        let most = if entries > CACHED_LIST_INTERVAL { MAX_UNPACKED_SEGMENTS } else { 0 };
        Self(Mutex::new(SegmentLists { most, ..SegmentLists::default() }))
    }

    /// The list of an entry, derived from the nearest kept list.
    fn list<'a>(
        &self,
        index: usize,
        limit: usize,
        script: impl Fn(usize) -> Option<ScriptToFold<'a>>,
    ) -> Option<Vec<Segment>> {
        let known = |index| self.lists().get(index).cloned();
        let keep = |index, list| self.lists().keep(index, &Arc::new(list));
        fold_from(index, limit, script, known, keep)
    }

    /// The maximum size of the lists, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.lists().most * size_of::<Segment>()
    }

    fn lists(&self) -> MutexGuard<'_, SegmentLists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::delta::script::Edit;

    #[test]
    fn kept_lists_are_bounded() {
        let mut lists = SegmentLists::default();
        let list = Arc::new(vec![Segment { pool_at: 0, len: 1 }; MAX_KEPT_SEGMENTS / 3]);
        for index in 0..10 {
            lists.keep(index, &list);
            assert!(lists.segments <= MAX_KEPT_SEGMENTS);
        }
        assert!(lists.get(9).is_some() && lists.get(7).is_some() && lists.get(0).is_none());
    }

    /// Tests both directions: a reader may go from a text to the previous one, as in a list with the newest
    /// first, or to the next one.
    #[test]
    fn reading_a_neighbour_of_a_text_does_not_fold_all_scripts_again() {
        let entries = 3_000;
        let text = [Edit { literal: 900, ..Edit::default() }];
        let edits: Vec<[Edit; 1]> = (0..entries)
            .map(|number| [Edit { copy: number % 800, literal: 1, skip: 1, ..Edit::default() }])
            .collect();
        let looked_at = Cell::new(0);
        let step = |index: usize| {
            looked_at.set(looked_at.get() + 1);
            let at = u32::try_from(index).ok()? + 900;
            Some(match index {
                0 => ScriptToFold { origin: Origin::Empty, edits: &text, literals_at: 0 },
                _ => ScriptToFold { origin: Origin::Parent(1), edits: &edits[index], literals_at: at },
            })
        };
        let cache = SegmentListCache::new(entries as usize);
        let read = |index: usize| cache.list(index, 1 << 20, step);
        let last = entries as usize - 1;
        read(last).unwrap();
        let steps = looked_at.replace(0);
        assert!(steps > last, "{steps}");
        for index in (0..last).rev().chain(0..last) {
            assert!(read(index).is_some());
        }
        let steps = looked_at.replace(0);
        // On average, a read goes back half the distance between two kept lists. If a list was dropped, the
        // read goes back further.
        assert!(steps < 2 * last * CACHED_LIST_INTERVAL, "{steps}");
        assert!(cache.lists().segments <= MAX_UNPACKED_SEGMENTS);
        for index in [0, 1, 500, 2_999, 1_234] {
            assert_eq!(read(index), fold_all(index, 1 << 20, step));
        }
    }
}
