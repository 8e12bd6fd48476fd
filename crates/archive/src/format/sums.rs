//! Counts what a block has, without decoding its revisions.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use rashomon_blocks::{Block, Error as BlockError, Table};

use crate::format::{
    columns::{Field, Kind, StoredLine},
    units::{name_and_title, page_entries},
};
use rashomon_records::{PropertyName, content::ChunkSet};

/// What some pages have in a block.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BlockSums {
    /// The number of these pages.
    pub pages: u64,
    /// The number of revisions.
    pub revisions: u64,
    /// The number of renders.
    pub renders: u64,
    /// The bodies of each property.
    pub properties: BTreeMap<PropertyName, BodySums>,
}

/// The bodies of a property in a block.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BodySums {
    /// The number of bodies whose bytes are in the block.
    pub bodies: u64,
    /// The uncompressed bytes of these bodies.
    pub raw_bytes: u64,
    /// The bodies in chunks: the size of each, and its chunks.
    pub chunked: Vec<(u64, ChunkSet)>,
}

impl BlockSums {
    /// Counts the pages for whose title `is_counted` returns `true`. Returns `None` if the entries cannot be
    /// understood, or if a content that has to be measured was erased.
    ///
    /// `raw_bytes` is the number of bytes that the bodies of these pages have in the block, if the caller knows it.
    /// Then no content is unpacked if these bodies are all of one property.
    pub fn of(
        block: &Block<'_>,
        raw_bytes: Option<u64>,
        mut is_counted: impl FnMut(&str) -> bool,
    ) -> Result<Option<Self>, BlockError> {
        // Whether each page is counted. A page may have entries in several groups.
        let (mut sums, mut known) = (Sums::default(), HashMap::new());
        for group in 0..block.groups() {
            let table = block.table(group)?;
            let Some(pages) = page_entries(&table) else { return Ok(None) };
            // The pages have all entries, one page after the other. If a page comes twice, its last entries count, as for
            // a reader.
            let (mut end, mut seen) = (table.len(), BTreeSet::new());
            for page in pages.iter().rev() {
                let start = end - page.count();
                let Some(title) = page.title(&table) else { return Ok(None) };
                let is_counted = *known.entry(title.to_owned()).or_insert_with(|| {
                    let is_counted = is_counted(title);
                    sums.of.pages += u64::from(is_counted);
                    is_counted
                });
                if seen.insert(title) && is_counted && sums.add(&table, start..end).is_none() {
                    return Ok(None);
                }
                end = start;
            }
        }
        let Sums { of: mut counted, unmeasured } = sums;
        match raw_bytes {
            Some(bytes) if counted.properties.len() <= 1 => {
                counted.properties.values_mut().for_each(|property| property.raw_bytes = bytes);
            }
            _ => {
                for content in block.iter() {
                    let content = content?;
                    let Some(name) = unmeasured.get(&content.ordinal) else { continue };
                    let (Some(bytes), Some(property)) = (content.bytes, counted.properties.get_mut(name))
                    else {
                        return Ok(None);
                    };
                    property.raw_bytes += bytes.len() as u64;
                }
            }
        }
        Ok(Some(counted))
    }
}

#[derive(Default)]
struct Sums {
    of: BlockSums,
    /// The contents whose size the block does not store, by ordinal, each with its property.
    unmeasured: HashMap<u64, PropertyName>,
}

impl Sums {
    /// Adds the entries of a page. `None` if they cannot be understood.
    fn add(&mut self, table: &Table, entries: Range<usize>) -> Option<()> {
        // The entries of a property share a stream, and mostly come one after the other.
        let mut last: Option<(u32, PropertyName)> = None;
        for index in entries {
            let line = StoredLine::new(table, index);
            let kind = line.kind()?;
            self.of.revisions += u64::from(kind.is(Kind::REVISION));
            self.of.renders += u64::from(kind.is(Kind::IMPORTED)) + u64::from(kind.is(Kind::RENDER));
            if !kind.is(Kind::BODY) {
                continue;
            }
            let stream = table.stream(index);
            let name = match last {
                Some((known, name)) if known == stream => name,
                _ => PropertyName::new(name_and_title(table.stream_name(stream))?.0).ok()?,
            };
            if !self.of.properties.contains_key(&name) {
                self.of.properties.insert(name.clone(), BodySums::default());
            }
            let property = self.of.properties.get_mut(&name)?;
            match (line.get_bytes(Field::Chunks), line.get_int(Field::Size)) {
                (Some(set), size) => {
                    property.chunked.push((u64::try_from(size?).ok()?, ChunkSet::from_bytes(set)?));
                }
                (None, Some(size)) => {
                    property.bodies += 1;
                    property.raw_bytes += u64::try_from(size).ok()?;
                }
                (None, None) => {
                    property.bodies += 1;
                    self.unmeasured.insert(line.ordinal(), name.clone());
                }
            }
            last = Some((stream, name));
        }
        Some(())
    }
}
