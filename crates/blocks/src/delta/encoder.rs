//! The encoder: builds the scripts of successive texts.

use std::collections::HashMap;

use super::{
    MAX_SEGMENTS, Segment,
    matching::Matcher,
    parents::{Parent, Parents},
    pool::Pool,
    script::{Edit, Origin, Script},
    segments::{ScriptToFold, fold, fold_all},
};
use crate::limits::MAX_CONTENT;

/// The state of the encoder, with the texts of a block so far.
#[derive(Debug)]
pub(crate) struct DeltaEncoder {
    pool: Pool,
    matcher: Matcher,
    parents: Parents,
    /// For each text of the group, the index of the newest entry with this text, by the hash of the text. The hash is
    /// cryptographic, so equal hashes mean equal texts.
    known: HashMap<blake3::Hash, usize>,
    /// The texts of the first group, after its end.
    first_known: Option<HashMap<blake3::Hash, usize>>,
    /// The scripts of all entries, and the positions in the pool at which their literals begin.
    scripts: Vec<(Script, u32)>,
}

impl DeltaEncoder {
    pub(crate) fn new() -> Self {
        Self {
            pool: Pool::new(),
            matcher: Matcher::default(),
            parents: Parents::default(),
            known: HashMap::new(),
            first_known: None,
            scripts: Vec::new(),
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Removes all texts, for the next block.
    pub(crate) fn clear(&mut self) {
        self.pool.clear();
        self.parents = Parents::default();
        self.known.clear();
        self.first_known = None;
        self.scripts.clear();
    }

    /// Adds a text, and returns its script. Appends the new parts of the text to the pool. If `compares` is
    /// false, a text that no earlier entry has is stored whole.
    pub(crate) fn push(&mut self, stream: u32, text: &[u8], compares: bool) -> &Script {
        let index = self.scripts.len();
        let start = self.pool.len();
        let hash = blake3::hash(text);
        let in_first = || self.first_known.as_ref()?.get(&hash).copied();
        let same = self.known.get(&hash).copied().or_else(in_first);
        self.known.insert(hash, index);
        let (script, list) = match same {
            Some(same) => {
                let script = Script { origin: Origin::Parent((index - same) as u32), edits: Vec::new() };
                (script, self.list(same).expect("this encoder has the script"))
            }
            None => {
                let edited = if compares { self.edited(stream, text, index) } else { None };
                edited.unwrap_or_else(|| self.add_whole(text, start))
            }
        };
        self.pool.index();
        self.parents.push(stream, Parent { index, text: text.to_vec(), list });
        self.keep(script, start)
    }

    fn keep(&mut self, script: Script, literals_at: usize) -> &Script {
        self.scripts.push((script, literals_at as u32));
        &self.scripts.last().expect("the script was just pushed").0
    }

    fn add_whole(&mut self, text: &[u8], start: usize) -> (Script, Vec<Segment>) {
        self.pool.truncate(start);
        self.pool.append(text);
        let edit = Edit { literal: text.len() as u32, ..Edit::default() };
        let edits = if text.is_empty() { Vec::new() } else { vec![edit] };
        let list = fold(&[], &edits, start as u32, MAX_CONTENT).expect("the text has one segment");
        (Script { origin: Origin::Empty, edits }, list)
    }

    /// The segments of an entry.
    fn list(&self, index: usize) -> Option<Vec<Segment>> {
        fold_all(index, MAX_CONTENT, |index| {
            let (script, literals_at) = self.scripts.get(index)?;
            Some(ScriptToFold { origin: script.origin, edits: &script.edits, literals_at: *literals_at })
        })
    }

    /// Builds a script of edits. Returns `None` if the script or the text has too many parts, so that reading
    /// the text would be too slow.
    fn edited(&mut self, stream: u32, text: &[u8], index: usize) -> Option<(Script, Vec<Segment>)> {
        let start = self.pool.len() as u32;
        let parent = self.parents.best(stream, text);
        let (origin, before, list) = match parent {
            Some(parent) => (
                Origin::Parent((index - parent.index) as u32),
                parent.text.as_slice(),
                parent.list.as_slice(),
            ),
            None => (Origin::Empty, &[][..], &[][..]),
        };
        let edits = self.matcher.edits(before, text, &mut self.pool);
        if edits.len() > MAX_SEGMENTS {
            return None;
        }
        let list = fold(list, &edits, start, MAX_CONTENT)?;
        debug_assert!(is_text(&list, &self.pool, text), "the script makes the text");
        Some((Script { origin, edits }, list))
    }

    /// Ends a group. The texts of later groups are derived from their own texts, and from those of the first group.
    pub(crate) fn end_group(&mut self) {
        let known = std::mem::take(&mut self.known);
        self.first_known.get_or_insert(known);
        self.parents = Parents::default();
        self.pool.end_group();
    }

    #[cfg(test)]
    pub(crate) fn compared(&self) -> u64 {
        self.matcher.compared()
    }
}

fn is_text(list: &[Segment], pool: &Pool, mut text: &[u8]) -> bool {
    list.iter().all(|segment| {
        let piece = &pool.bytes()[segment.pool_at as usize..segment.end() as usize];
        let Some(rest) = text.strip_prefix(piece) else { return false };
        text = rest;
        true
    }) && text.is_empty()
}
