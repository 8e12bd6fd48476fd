//! Reads texts from pool and scripts. Unpacks the scripts of a chunk, and the start of the pool, when they
//! are needed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Segment,
    script::{Origin, Scripts},
    segments::{CACHED_LIST_INTERVAL, ScriptToFold, fold, fold_all, fold_from, length},
};
use crate::{
    chunks::Chunks,
    directory::{SCRIPTS, TEXTS},
    error::{Damage, Error},
};

/// The maximum number of kept segments when texts are read in order.
const MAX_KEPT_SEGMENTS: usize = 4 << 20;

/// The maximum number of kept segments of an unpacked block, whose texts are read in any order. The segments
/// take 128 KiB.
const MAX_UNPACKED_SEGMENTS: usize = 16 << 10;

/// The unpacked parts of a block.
#[derive(Debug)]
pub(crate) struct DeltaReader {
    /// The scripts of each chunk that was unpacked.
    scripts: Vec<Option<Scripts>>,
    /// The first bytes of the pool.
    pool: Vec<u8>,
    /// Whether the whole pool was unpacked, or all of its start that is undamaged.
    whole: bool,
}

impl DeltaReader {
    pub(crate) fn new(chunks: &Chunks<'_>) -> Self {
        Self { scripts: chunks.each().map(|_| None).collect(), pool: Vec::new(), whole: false }
    }

    /// The text of an entry.
    pub(crate) fn text(&mut self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<u8>, Error> {
        self.load_scripts_of(chunks, index)?;
        let list = self.list(chunks, index)?;
        let end = list.iter().map(|segment| segment.end()).max().unwrap_or(0);
        self.load_pool(chunks, end as usize);
        self.copy(chunks, &list)
    }

    /// The text of an entry, after [`Self::load`]. A text may depend on thousands of scripts, so some of the
    /// lists that are built for it are kept for later calls.
    pub(crate) fn unpacked_text(
        &self,
        chunks: &Chunks<'_>,
        index: usize,
        cache: &SegmentListCache,
    ) -> Result<Vec<u8>, Error> {
        let list = cache.list(index, chunks.limits().content, |index| self.script_of(chunks, index));
        self.copy(chunks, &list.ok_or_else(|| damaged(chunks, index))?)
    }

    /// Unpacks all scripts and the whole pool.
    pub(crate) fn load(&mut self, chunks: &Chunks<'_>) -> Result<(), Error> {
        for chunk in 0..self.scripts.len() {
            self.load_scripts(chunks, chunk)?;
            chunks.check(chunk, TEXTS)?;
        }
        self.load_whole_pool(chunks)
    }

    /// The text of an entry, for reads in order: `lists` has the lists of the entries that were read
    /// recently, and the text is probably derived from one of them.
    pub(crate) fn next_text(
        &mut self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut SegmentLists,
    ) -> Result<Vec<u8>, Error> {
        let list = self.next_list(chunks, index, lists)?;
        if !self.whole {
            // If a part of the pool cannot be unpacked, only the texts that need the part are errors.
            let _ = self.load_whole_pool(chunks);
        }
        self.copy(chunks, &list)
    }

    /// The segments of an entry.
    fn next_list(
        &mut self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut SegmentLists,
    ) -> Result<Arc<Vec<Segment>>, Error> {
        let (chunk, _) = chunks.find(index).ok_or_else(|| damaged(chunks, index))?;
        self.load_scripts(chunks, chunk)?;
        let step = self.script_of(chunks, index).ok_or_else(|| damaged(chunks, index))?;
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
                Arc::new(list.ok_or_else(|| damaged(chunks, index))?)
            }
            None => {
                self.load_scripts_of(chunks, index)?;
                Arc::new(self.list(chunks, index)?)
            }
        };
        lists.keep(index, &list);
        Ok(list)
    }

    /// The script of an entry, if its chunk was loaded.
    pub(crate) fn script_of(&self, chunks: &Chunks<'_>, index: usize) -> Option<ScriptToFold<'_>> {
        let (chunk, place) = chunks.find(index)?;
        let scripts = self.scripts[chunk].as_ref()?;
        let script = scripts.get(place);
        Some(ScriptToFold {
            origin: script.origin,
            edits: scripts.edits(script),
            literals_at: script.literals_at,
        })
    }

    pub(crate) fn pool(&self) -> &[u8] {
        &self.pool
    }

    pub(crate) fn memory(&self) -> usize {
        self.pool.capacity() + self.scripts.iter().flatten().map(Scripts::memory).sum::<usize>()
    }

    fn list(&self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<Segment>, Error> {
        fold_all(index, chunks.limits().content, |index| self.script_of(chunks, index))
            .ok_or_else(|| damaged(chunks, index))
    }

    /// Unpacks the scripts that an entry depends on.
    fn load_scripts_of(&mut self, chunks: &Chunks<'_>, mut index: usize) -> Result<(), Error> {
        loop {
            let (chunk, place) = chunks.find(index).ok_or_else(|| damaged(chunks, index))?;
            self.load_scripts(chunks, chunk)?;
            let scripts = self.scripts[chunk].as_ref();
            let Some(Origin::Parent(distance)) = scripts.map(|scripts| scripts.get(place).origin) else {
                return Ok(());
            };
            index = index.checked_sub(distance as usize).ok_or_else(|| damaged(chunks, index))?;
        }
    }

    pub(crate) fn load_scripts(&mut self, chunks: &Chunks<'_>, chunk: usize) -> Result<(), Error> {
        if self.scripts[chunk].is_some() {
            return Ok(());
        }
        let bytes = chunks.unpack(chunk, SCRIPTS, &[])?;
        let scripts = Scripts::read(&bytes, chunks.get(chunk).entries, chunks.pool(chunk));
        self.scripts[chunk] = Some(scripts.ok_or_else(|| Damage::of(chunk, SCRIPTS))?);
        Ok(())
    }

    /// Unpacks the whole pool. If it is damaged, the part before the damage is available.
    fn load_whole_pool(&mut self, chunks: &Chunks<'_>) -> Result<(), Error> {
        self.whole = true;
        let end = chunks.pool_size();
        if self.load_pool(chunks, end) == end { Ok(()) } else { Err(self.missing_pool_error(chunks)) }
    }

    /// Unpacks the first `end` bytes of the pool, and returns the number of unpacked bytes: fewer than `end`
    /// if the pool is damaged.
    fn load_pool(&mut self, chunks: &Chunks<'_>, end: usize) -> usize {
        self.pool = vec![0; end];
        let mut reached = 0;
        for chunk in chunks.each() {
            let place = chunks.pool(chunk);
            let (start, place_end) = (place.start as usize, end.min(place.end as usize));
            if start >= end {
                break;
            }
            let (before, rest) = self.pool.split_at_mut(start);
            reached = start + chunks.unpack_start(chunk, TEXTS, before, &mut rest[..place_end - start]);
            if reached < place_end {
                break;
            }
        }
        self.pool.truncate(reached);
        reached
    }

    /// The error for a pool that cannot be unpacked as far as a text needs.
    fn missing_pool_error(&self, chunks: &Chunks<'_>) -> Error {
        let lost = chunks.each().find(|chunk| self.pool.len() < chunks.pool(*chunk).end as usize);
        Damage::of(lost.unwrap_or(chunks.len().saturating_sub(1)), TEXTS).into()
    }

    fn copy(&self, chunks: &Chunks<'_>, list: &[Segment]) -> Result<Vec<u8>, Error> {
        // `fold` has checked that the text is within the limit. All segments refer to the pool.
        let mut text = Vec::with_capacity(length(list));
        for segment in list {
            let piece = self.pool.get(segment.pool_at as usize..segment.end() as usize);
            text.extend_from_slice(piece.ok_or_else(|| self.missing_pool_error(chunks))?);
        }
        Ok(text)
    }
}

fn damaged(chunks: &Chunks<'_>, index: usize) -> Error {
    Damage::of(chunks.find(index).map_or(0, |(chunk, _)| chunk), SCRIPTS).into()
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
