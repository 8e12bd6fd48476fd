//! Reads of pages whose rows are all in blocks. They are read as the blocks have them, without the rows that the
//! [union](crate::UnionStore) makes of them.

use std::sync::Arc;

use crate::format::{BodyLocation, Unit};
use rashomon_records::{
    Error, Page, PropertyName, Result, Revision, Tid, content::Stored, rows::partition_of,
};
use rashomon_tables::Error as StoreError;

use super::{
    Archive,
    blocks::{BlockStore, SHORT_WORK_BYTES},
    index::IndexRow,
    index_cache::PageState,
    open_block::OpenBlock,
    page_walk::are_apart,
    part::PackedEntries,
    verified_block::blocking,
};

/// The number of bytes of bodies after which a result ends.
const MAX_BODY_BYTES: usize = 4 << 20;

/// Revisions of a page, the lowest first.
#[derive(Debug, Default)]
pub struct SealedRevisions {
    /// The revisions.
    pub revisions: Vec<SealedRevision>,
    /// Whether the page has higher revisions in the range.
    pub more: bool,
}

/// A revision of a page whose rows are all in blocks.
#[derive(Debug)]
pub struct SealedRevision {
    /// The revision with its renders.
    pub unit: Unit,
    /// Its bodies, and those of its renders.
    pub bodies: Vec<SealedBody>,
}

/// A body of a [`SealedRevision`].
#[derive(Debug)]
pub struct SealedBody {
    /// The name of the property.
    pub name: PropertyName,
    /// The render. `None` for a body of the revision.
    pub of: Option<Tid>,
    /// The uncompressed size in bytes.
    pub size: u64,
    /// The bytes.
    pub stored: Stored,
}

impl SealedRevision {
    fn read(block: &OpenBlock, page: &Page, entries: &PackedEntries) -> Result<Self> {
        let (unit, texts) = block.decode(page, entries)?;
        let mut bodies = Vec::new();
        for (name, of, body) in unit.all_bodies() {
            let stored = match &body.location {
                BodyLocation::Chunks(set) => Stored::Chunks(set.clone()),
                BodyLocation::Entry(ordinal) => {
                    let known = texts.iter().find(|(known, _)| known == ordinal);
                    Stored::Archived(
                        known.map_or_else(|| block.text(*ordinal), |(_, text)| Ok(text.clone()))?,
                    )
                }
            };
            bodies.push(SealedBody { name: name.clone(), of, size: body.info.size, stored });
        }
        Ok(Self { unit, bodies })
    }

    fn body_bytes(&self) -> usize {
        self.bodies.iter().map(|body| body.stored.row_size()).sum()
    }
}

/// Which revisions of a page to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedRange {
    /// This revision and all higher ones.
    From(Revision),
    /// The latest revision alone.
    Latest,
}

impl Archive {
    /// Returns revisions of a page, the lowest first: at most `limit`, and about 4 MiB of bodies.
    ///
    /// Returns `None` if the tables may have rows of the page, if its blocks overlap, or if one of them is damaged: the
    /// caller then has to read the rows, among which these cases are decided.
    pub async fn sealed_revisions(
        &self,
        page: &Page,
        range: SealedRange,
        limit: usize,
    ) -> Result<Option<SealedRevisions>> {
        match self.blocks.sealed_revisions(page, range, limit).await {
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(None),
            found => found,
        }
    }
}

impl BlockStore {
    /// Returns the index of a page if the tables have no rows of it.
    pub(super) async fn index_if_sealed(&self, page: &Page) -> Result<Option<Arc<[IndexRow]>>> {
        let state = self.indexes.state(&*self.store, &partition_of(page)).await?;
        Ok(state.filter(|state| state.is_sealed).and_then(|state| state.index))
    }

    async fn sealed_revisions(
        &self,
        page: &Page,
        range: SealedRange,
        limit: usize,
    ) -> Result<Option<SealedRevisions>> {
        let state = self.indexes.state_of_walked(&*self.store, &partition_of(page)).await?;
        let Some(PageState { index: Some(index), is_sealed: true }) = state else { return Ok(None) };
        let Some(highest) = index.iter().map(|row| row.revs.1).max() else { return Ok(None) };
        let revs = match range {
            SealedRange::From(first) => first..=Revision::MAX,
            SealedRange::Latest => highest..=highest,
        };
        let mut rows: Vec<_> =
            index.iter().filter(|row| row.revs.0 <= *revs.end() && *revs.start() <= row.revs.1).collect();
        rows.sort_by_key(|row| row.revs);
        if !are_apart(rows.iter().map(|row| row.revs)) {
            return Ok(None);
        }
        let (mut found, mut bytes) = (SealedRevisions::default(), 0);
        for row in rows {
            found.more = found.revisions.len() >= limit || bytes >= MAX_BODY_BYTES;
            if found.more {
                break;
            }
            let block = self.open(page, row.block).await?;
            if block.is_damaged() {
                return Ok(None);
            }
            let mut entries = block.entries_of(page, &revs)?;
            let of_page = entries.len();
            entries.truncate(limit - found.revisions.len());
            let is_short = block.bytes_to_unpack_for(&page.title) <= SHORT_WORK_BYTES;
            let (page, room) = (page.clone(), MAX_BODY_BYTES - bytes);
            let decode = move || decode(&block, &page, &entries, room);
            let decoded = if is_short { decode()? } else { blocking(decode).await? };
            bytes += decoded.iter().map(SealedRevision::body_bytes).sum::<usize>();
            found.more = decoded.len() < of_page;
            found.revisions.extend(decoded);
        }
        let is_missing = range == SealedRange::Latest && found.revisions.is_empty();
        Ok((!is_missing).then_some(found))
    }
}

/// Decodes revisions, until their bodies have this many bytes.
fn decode(
    block: &OpenBlock,
    page: &Page,
    entries: &[PackedEntries],
    max_bytes: usize,
) -> Result<Vec<SealedRevision>> {
    let (mut decoded, mut bytes) = (Vec::with_capacity(entries.len()), 0);
    for entries in entries {
        if bytes >= max_bytes {
            break;
        }
        let revision = SealedRevision::read(block, page, entries)?;
        bytes += revision.body_bytes();
        decoded.push(revision);
    }
    Ok(decoded)
}
