//! Removes contents permanently.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::{
    block::Block,
    builder::BlockBuilder,
    columns::Value,
    contents::Content,
    directory::Codec,
    error::Error,
    filling::Settings,
    weave::{
        Segment,
        reader::{Lists, WeaveReader},
    },
};

/// A block after some of its contents were erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// The new block. It was made only of the contents that stay.
    pub block: Vec<u8>,
    /// Text that the remaining contents have in common with erased ones, and therefore still have; by both
    /// ordinals.
    pub shared: Vec<Shared>,
}

/// Text of an erased content that another content still has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// The erased entry.
    pub erased: u64,
    /// The entry that still has the text.
    pub by: u64,
    /// How many bytes of text both have, as far as the codec found them to be the same.
    pub bytes: u64,
    /// Whether both contents are the same. Erase that entry, too, if the content is to be gone.
    pub whole: bool,
}

/// Makes a block without some contents. The entries stay, with their ordinals. Their values stay too, unless
/// other values are given: a user or a comment may have to be removed as well.
///
/// # Errors
///
/// [`Error::NoSuchOrdinal`] if an entry does not exist, [`Error::Columns`] if values do not fit,
/// [`Error::Damaged`] if the block is damaged.
pub fn erase(
    settings: Settings,
    block: &Block<'_>,
    ordinals: &BTreeMap<u64, Option<Vec<Value>>>,
) -> Result<Erased, Error> {
    let entries = block.entries()?;
    for ordinal in ordinals.keys() {
        let found = entries.binary_search_by_key(ordinal, |entry| entry.ordinal);
        found.map_err(|_| Error::NoSuchOrdinal(*ordinal))?;
    }
    let streams = block.streams()?;
    let mut builder = BlockBuilder::new(settings, block.columns().to_vec(), 0)?;
    for (entry, content) in entries.iter().zip(block.iter()) {
        let (content, change) = (content?.bytes, ordinals.get(&entry.ordinal));
        let content = content.filter(|_| change.is_none());
        let values = change.and_then(Option::as_ref).unwrap_or(&entry.values);
        builder.push_at(entry.ordinal, &streams[entry.stream], content.as_deref(), values)?;
    }
    Ok(Erased { block: builder.finish()?, shared: shared(block, ordinals)? })
}

fn shared(block: &Block<'_>, ordinals: &BTreeMap<u64, Option<Vec<Value>>>) -> Result<Vec<Shared>, Error> {
    let mut pieces = Pieces::new(block);
    let mut gone = Vec::new();
    let mut stay = Vec::new();
    for (index, content) in block.iter().enumerate() {
        let Content { ordinal, bytes: Some(bytes) } = content? else { continue };
        let same = blake3::hash(&bytes);
        if ordinals.contains_key(&ordinal) {
            gone.push((ordinal, same, bytes.len(), ranges(&pieces.of(index)?)));
        } else {
            stay.push((index, ordinal, same));
        }
    }
    let mut pieces = Pieces::new(block);
    let mut shared = Vec::new();
    for (index, by, hash) in stay {
        let list = pieces.of(index)?;
        for (erased, erased_hash, length, ranges) in &gone {
            let whole = hash == *erased_hash;
            let bytes = if whole { *length as u64 } else { in_common(&list, ranges) };
            if whole || bytes > 0 {
                shared.push(Shared { erased: *erased, by, bytes, whole });
            }
        }
    }
    Ok(shared)
}

/// The segments of contents, if the codec has segments.
struct Pieces<'a> {
    block: &'a Block<'a>,
    reader: Option<(WeaveReader, Lists)>,
}

impl<'a> Pieces<'a> {
    fn new(block: &'a Block<'a>) -> Self {
        let is_weave = block.codec() == Codec::PoolAndScripts;
        Self { block, reader: is_weave.then(|| (WeaveReader::new(&block.chunks()), Lists::default())) }
    }

    fn of(&mut self, index: usize) -> Result<Arc<Vec<Segment>>, Error> {
        match &mut self.reader {
            Some((reader, lists)) => reader.next_list(&self.block.chunks(), index, lists),
            None => Ok(Arc::default()),
        }
    }
}

/// The ranges of the pool that a list has, in rising order and without overlaps.
fn ranges(list: &[Segment]) -> Vec<Range<u32>> {
    let mut all: Vec<_> = list.iter().map(|segment| segment.at..segment.end()).collect();
    all.sort_unstable_by_key(|range| range.start);
    let mut apart: Vec<Range<u32>> = Vec::with_capacity(all.len());
    for range in all {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// How many bytes of the pool are in both.
fn in_common(list: &[Segment], apart: &[Range<u32>]) -> u64 {
    let mut common = 0;
    for own in ranges(list) {
        let first = apart.partition_point(|range| range.end <= own.start);
        for range in apart[first..].iter().take_while(|range| range.start < own.end) {
            common += u64::from(range.end.min(own.end) - range.start.max(own.start));
        }
    }
    common
}
