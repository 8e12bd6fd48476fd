//! Chooses the earlier text that a new text is derived from.

use std::collections::{HashMap, VecDeque};

use super::{
    Segment,
    matching::{common_prefix, common_suffix},
};

/// The maximum number of earlier texts of a stream that a new text is compared with.
const MAX_CANDIDATES: usize = 8;
/// The maximum size of the kept texts and segment lists of all streams, in bytes. The newest text is always
/// kept.
const MAX_KEPT_BYTES: usize = 16 << 20;
/// The handicap of a candidate that is not the newest text of its stream, in bytes of difference.
const OLDER_TEXT_PENALTY: usize = 24;
/// The number of bytes of difference below which no older candidate is compared.
const CLOSE_ENOUGH_BYTES: usize = 200;

/// A text that may become a parent.
#[derive(Debug)]
pub(crate) struct Parent {
    /// The index of the entry in the block.
    pub(crate) index: usize,
    pub(crate) text: Vec<u8>,
    pub(crate) list: Vec<Segment>,
}

impl Parent {
    fn memory(&self) -> usize {
        self.text.len() + self.list.len() * size_of::<Segment>()
    }
}

/// The newest texts of each stream, within a bound of memory.
#[derive(Debug, Default)]
pub(crate) struct Parents {
    streams: HashMap<u32, VecDeque<Parent>>,
    /// The streams and indexes of texts, the oldest first. Some of these texts have already been dropped from
    /// their stream.
    order: VecDeque<(u32, usize)>,
    memory: usize,
}

impl Parents {
    /// The kept text of the stream that is most similar to `text`.
    pub(crate) fn best(&self, stream: u32, text: &[u8]) -> Option<&Parent> {
        let mut best: Option<(usize, &Parent)> = None;
        for parent in self.streams.get(&stream)?.iter().rev() {
            let prefix = common_prefix(&parent.text, text);
            let suffix = common_suffix(&parent.text[prefix..], &text[prefix..]);
            let new = text.len() - prefix - suffix;
            let gone = parent.text.len() - prefix - suffix;
            let differ = new + gone / 8 + if best.is_some() { OLDER_TEXT_PENALTY } else { 0 };
            if best.is_none_or(|(least, _)| differ < least) {
                best = Some((differ, parent));
            }
            if differ < CLOSE_ENOUGH_BYTES {
                break;
            }
        }
        best.map(|(_, parent)| parent)
    }

    pub(crate) fn push(&mut self, stream: u32, parent: Parent) {
        self.memory += parent.memory();
        self.order.push_back((stream, parent.index));
        let texts = self.streams.entry(stream).or_default();
        texts.push_back(parent);
        if texts.len() > MAX_CANDIDATES
            && let Some(oldest) = texts.pop_front()
        {
            self.memory -= oldest.memory();
        }
        while self.memory > MAX_KEPT_BYTES && self.order.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((stream, index)) = self.order.pop_front() else { return };
        let Some(texts) = self.streams.get_mut(&stream) else { return };
        if texts.front().is_some_and(|oldest| oldest.index == index)
            && let Some(oldest) = texts.pop_front()
        {
            self.memory -= oldest.memory();
        }
        if texts.is_empty() {
            self.streams.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_texts_are_bounded_and_include_the_newest() {
        let mut parents = Parents::default();
        let mut push = |index: usize, size: usize| {
            let list = vec![Segment { pool_at: 0, len: size as u32 }];
            parents.push(index as u32 % 5, Parent { index, text: vec![index as u8; size], list });
            let kept: usize = parents.streams.values().flatten().map(Parent::memory).sum();
            assert_eq!(kept, parents.memory);
            assert!(parents.streams.values().all(|texts| texts.len() <= MAX_CANDIDATES));
            assert!(parents.order.len() <= 100 * MAX_CANDIDATES);
            let newest = parents.streams[&(index as u32 % 5)].back().map(|parent| parent.index);
            assert_eq!(newest, Some(index));
            kept
        };
        for index in 0..100 {
            assert!(push(index, 1 << 20) <= MAX_KEPT_BYTES);
        }
        push(100, 2 * MAX_KEPT_BYTES);
        assert!(push(101, 10) <= MAX_KEPT_BYTES);
    }
}
