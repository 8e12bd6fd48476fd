//! Reading texts from pool and scripts. Everything is unpacked when it is first needed, chunk by chunk.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    Segment,
    script::{Origin, Scripts},
    segments::{Step, fold, fold_all, length},
};
use crate::{
    chunks::Chunks,
    directory::{SCRIPTS, TEXTS},
    error::{Damage, Error},
};

/// As many segments as are kept of the texts that were read last, when one text after the other is read.
const MAX_KEPT: usize = 4 << 20;

/// What is unpacked of a block so far.
#[derive(Debug)]
pub(crate) struct WeaveReader {
    /// Of each chunk.
    scripts: Vec<Option<Scripts>>,
    /// The first bytes of the pool.
    pool: Vec<u8>,
    /// All of it was unpacked, as far as it can be.
    whole: bool,
}

impl WeaveReader {
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

    /// The text of an entry, where everything is unpacked already.
    pub(crate) fn unpacked_text(&self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<u8>, Error> {
        let list = self.list(chunks, index)?;
        self.copy(chunks, &list)
    }

    /// Unpacks all.
    pub(crate) fn load(&mut self, chunks: &Chunks<'_>) -> Result<(), Error> {
        for chunk in 0..self.scripts.len() {
            self.load_scripts(chunks, chunk)?;
            chunks.check(chunk, TEXTS)?;
        }
        self.load_whole_pool(chunks)
    }

    /// The text of an entry, which is likely to come from one of those that were read last.
    pub(crate) fn next_text(
        &mut self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut Lists,
    ) -> Result<Vec<u8>, Error> {
        let list = self.next_list(chunks, index, lists)?;
        if !self.whole {
            // What cannot be unpacked is missed by the texts that need it.
            let _ = self.load_whole_pool(chunks);
        }
        self.copy(chunks, &list)
    }

    /// What an entry consists of.
    pub(crate) fn next_list(
        &mut self,
        chunks: &Chunks<'_>,
        index: usize,
        lists: &mut Lists,
    ) -> Result<Rc<Vec<Segment>>, Error> {
        self.load_scripts_of(chunks, index)?;
        let step = self.step(chunks, index).ok_or_else(|| damaged(chunks, index))?;
        let parent = match step.origin {
            Origin::Parent(distance) => {
                index.checked_sub(distance as usize).and_then(|parent| lists.get(parent))
            }
            _ => None,
        };
        let list = match parent {
            Some(same) if step.edits.is_empty() => Rc::clone(same),
            Some(parent) => {
                let list = fold(parent, step.edits, step.literals_at, chunks.limits().content);
                Rc::new(list.ok_or_else(|| damaged(chunks, index))?)
            }
            None => Rc::new(self.list(chunks, index)?),
        };
        lists.keep(index, &list);
        Ok(list)
    }

    /// An entry's script, of a chunk that was loaded.
    pub(crate) fn step(&self, chunks: &Chunks<'_>, index: usize) -> Option<Step<'_>> {
        let (chunk, place) = chunks.find(index)?;
        let scripts = self.scripts[chunk].as_ref()?;
        let script = scripts.get(place);
        Some(Step { origin: script.origin, edits: scripts.edits(script), literals_at: script.literals_at })
    }

    pub(crate) fn pool(&self) -> &[u8] {
        &self.pool
    }

    pub(crate) fn memory(&self) -> usize {
        self.pool.capacity() + self.scripts.iter().flatten().map(Scripts::memory).sum::<usize>()
    }

    fn list(&self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<Segment>, Error> {
        fold_all(index, chunks.limits().content, |index| self.step(chunks, index))
            .ok_or_else(|| damaged(chunks, index))
    }

    /// Unpacks the scripts that an entry comes from.
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

    /// Unpacks all of the pool. Where it is damaged, what comes before the damage is there.
    fn load_whole_pool(&mut self, chunks: &Chunks<'_>) -> Result<(), Error> {
        self.whole = true;
        let end = chunks.pool_size();
        if self.load_pool(chunks, end) == end { Ok(()) } else { Err(self.lacks(chunks)) }
    }

    /// Unpacks the first bytes of the pool, and gives how many these are: fewer than asked for, where it is damaged.
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

    /// That the pool cannot be unpacked as far as it is needed.
    fn lacks(&self, chunks: &Chunks<'_>) -> Error {
        let lost = chunks.each().find(|chunk| self.pool.len() < chunks.pool(*chunk).end as usize);
        Damage::of(lost.unwrap_or(chunks.len().saturating_sub(1)), TEXTS).into()
    }

    fn copy(&self, chunks: &Chunks<'_>, list: &[Segment]) -> Result<Vec<u8>, Error> {
        // The list was folded within the limit, and each segment is one of the pool.
        let mut text = Vec::with_capacity(length(list));
        for segment in list {
            let piece = self.pool.get(segment.at as usize..segment.end() as usize);
            text.extend_from_slice(piece.ok_or_else(|| self.lacks(chunks))?);
        }
        Ok(text)
    }
}

fn damaged(chunks: &Chunks<'_>, index: usize) -> Error {
    Damage::of(chunks.find(index).map_or(0, |(chunk, _)| chunk), SCRIPTS).into()
}

/// The lists of entries that were read last.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: BTreeMap<usize, Rc<Vec<Segment>>>,
    segments: usize,
}

impl Lists {
    fn get(&self, index: usize) -> Option<&Rc<Vec<Segment>>> {
        self.lists.get(&index)
    }

    fn keep(&mut self, index: usize, list: &Rc<Vec<Segment>>) {
        self.segments += list.len();
        self.lists.insert(index, Rc::clone(list));
        while self.segments > MAX_KEPT
            && let Some((_, oldest)) = self.lists.pop_first()
        {
            self.segments -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_that_are_kept_are_bounded() {
        let mut lists = Lists::default();
        let list = Rc::new(vec![Segment { at: 0, len: 1 }; MAX_KEPT / 3]);
        for index in 0..10 {
            lists.keep(index, &list);
            assert!(lists.segments <= MAX_KEPT);
        }
        assert!(lists.get(9).is_some() && lists.get(7).is_some() && lists.get(0).is_none());
    }
}
