//! Combines the revisions of one page from several blocks.

use std::{collections::BTreeMap, sync::Arc};

use crate::format::{ArchivedBody, Bodies, BodyLocation, Texts, Unit};
use bytes::Bytes;
use rashomon_tables::Error as StoreError;

use super::{
    blocks::{BlockStore, in_hex},
    index::IndexRow,
    open_block::OpenBlock,
};
use rashomon_records::{
    Page, PropertyName, Result, Revision, Sha1, Tid,
    rows::{RenderRow, RevisionRow},
};

/// The maximum number of bytes of texts that [`CombinedRevisions::read`] keeps for [`CombinedRevisions::next`].
const MAX_KEPT_BYTES: usize = 16 << 20;

/// A body and the block that contains the body.
#[derive(Debug)]
struct BodyInBlock {
    body: ArchivedBody,
    block: Arc<OpenBlock>,
    /// The text, if it was read already.
    text: Option<Bytes>,
}

/// The revisions of a page from several blocks. If several blocks have the same row, the row with the latest
/// write time is used.
#[derive(Debug, Default)]
pub(super) struct CombinedRevisions {
    revisions: BTreeMap<Revision, RevisionRow>,
    renders: BTreeMap<Revision, BTreeMap<Tid, RenderRow>>,
    bodies: BTreeMap<(Revision, Option<Tid>), BTreeMap<PropertyName, BodyInBlock>>,
}

impl CombinedRevisions {
    /// Reads the revisions of a page from the blocks of these index rows, and checks them.
    pub(super) async fn read(blocks: &BlockStore, page: &Page, rows: &[IndexRow]) -> Result<Self> {
        let mut combined = Self::default();
        for row in rows {
            let block = blocks.open(page, row.block).await?;
            combined.add(page, &block)?;
        }
        combined.check()?;
        Ok(combined)
    }

    /// The bodies of the revisions that are left.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &ArchivedBody> {
        self.bodies.values().flat_map(BTreeMap::values).map(|found| &found.body)
    }

    /// The lowest revision that is left.
    pub(super) fn lowest(&self) -> Option<Revision> {
        self.revisions.keys().next().copied()
    }

    pub(super) fn add(&mut self, page: &Page, block: &Arc<OpenBlock>) -> Result<()> {
        for unit in block.units(page)? {
            let (rev, row) = (unit.revision.record.rev, &unit.revision);
            if self.revisions.get(&rev).is_none_or(|known| known.written_at < row.written_at) {
                self.revisions.insert(rev, row.clone());
            }
            let of = self.renders.entry(rev).or_default();
            for (row, _) in &unit.renders {
                if of.get(&row.tid).is_none_or(|known| known.written_at < row.written_at) {
                    of.insert(row.tid, row.clone());
                }
            }
            for (name, of, body) in unit.all_bodies() {
                let bodies = self.bodies.entry((rev, of)).or_default();
                if bodies.get(name).is_none_or(|known| known.body.written_at < body.written_at) {
                    let found = BodyInBlock { body: body.clone(), block: Arc::clone(block), text: None };
                    bodies.insert(name.clone(), found);
                }
            }
        }
        Ok(())
    }

    /// Returns `Corrupt` if a text cannot be read, or does not match its record.
    fn check(&mut self) -> Result<()> {
        let mut room = MAX_KEPT_BYTES;
        for BodyInBlock { body, block, text } in self.bodies.values_mut().flat_map(BTreeMap::values_mut) {
            if let BodyLocation::Entry(ordinal) = body.location {
                let read = text_of(body, block, ordinal)?;
                if read.len() <= room {
                    room -= read.len();
                    *text = Some(read);
                }
            }
        }
        Ok(())
    }

    /// Removes and returns the lowest revision, with its texts. Returns `Corrupt` if a text cannot be read or
    /// does not match its record.
    pub(super) fn next(&mut self) -> Result<Option<(Unit, Texts)>> {
        self.next_with().map(|(unit, texts)| Ok((unit, texts?))).transpose()
    }

    /// Like [`Self::next`], for callers that continue after an unreadable text.
    pub(super) fn next_with(&mut self) -> Option<(Unit, Result<Texts>)> {
        let (rev, revision) = self.revisions.pop_first()?;
        let mut texts = Ok(Texts::new());
        let bodies = self.take_bodies(rev, None, &mut texts);
        let mut renders = Vec::new();
        for (tid, render) in self.renders.remove(&rev).unwrap_or_default() {
            let bodies = self.take_bodies(rev, Some(tid), &mut texts);
            renders.push((render, bodies));
        }
        Some((Unit { revision, bodies, renders }, texts))
    }

    fn take_bodies(&mut self, rev: Revision, of: Option<Tid>, texts: &mut Result<Texts>) -> Bodies {
        let mut bodies = Bodies::new();
        for (name, BodyInBlock { body, block, text }) in self.bodies.remove(&(rev, of)).unwrap_or_default() {
            if let (BodyLocation::Entry(ordinal), Ok(read)) = (&body.location, &mut *texts) {
                match text.map_or_else(|| text_of(&body, &block, *ordinal), Ok) {
                    Ok(text) => drop(read.insert((name.clone(), of), text)),
                    Err(error) => *texts = Err(error),
                }
            }
            bodies.insert(name, body);
        }
        bodies
    }
}

/// Reads the text of a body. Returns `Corrupt` if the text does not match its record.
fn text_of(body: &ArchivedBody, block: &OpenBlock, ordinal: u64) -> Result<Bytes> {
    let text = block.text(ordinal)?;
    if text.len() as u64 == body.info.size && Sha1::of(&text) == body.info.sha1 {
        return Ok(text);
    }
    let what = format!("block {} of the archive: a body does not match its record", in_hex(block.id()));
    Err(StoreError::Corrupt(what).into())
}
