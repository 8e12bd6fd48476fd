//! Replaces bodies in blocks: rewrites a block with the new bodies, and deletes the old block.
//!
//! The revisions and renders in the block keep their numbers and tids. A replaced body gets the time of its
//! rewrite, as after a PUT that replaces a stored property, so that its ETag changes.

use std::collections::BTreeSet;

use crate::format::{ArchivedBody, BodyLocation, MAX_BODY_IN_BLOCK, MAX_UNIT_BODY_BYTES, Texts, Unit};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use rashomon_clock::Timestamp;
use rashomon_records::{
    Error, Page, PropertyInfo, PropertyName, Result, Revision, Sha1, Tid,
    rows::{RenderBodyKey, RevisionBodyKey, RevisionRow, RowKey as _, partition_of, render_key, rev_key},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS},
};
use rashomon_tables::{Error as StoreError, Key, Schema, Value};

use super::{
    Archive,
    combined::CombinedRevisions,
    index::{IndexRow, index_of},
    rewrite::BlockRewriter,
    rows::BlockId,
};

/// The maximum number of blocks that [`CheckedBlocks`] remembers. A forgotten block is checked again.
const MAX_CHECKED_BLOCKS: usize = 1 << 16;

/// A body of a revision in a block. The bytes of the body may be in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyInArchive {
    /// The page.
    pub page: Page,
    /// The revision.
    pub rev: Revision,
    /// The render of the body, or the first render of the revision if the body belongs to the revision.
    pub tid: Tid,
    /// The property.
    pub name: PropertyName,
    /// The stored headers, size and SHA-1.
    pub info: PropertyInfo,
}

/// A new body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBody {
    /// The content type. The other headers stay.
    pub content_type: String,
    /// The bytes.
    pub bytes: Bytes,
}

/// Selects the bodies that are replaced, and makes the new bodies.
#[async_trait]
pub trait BodyReplacer: Send + Sync {
    /// Whether this body is to be replaced.
    fn selects(&self, name: &PropertyName, info: &PropertyInfo) -> bool;

    /// Makes a new body from the stored bytes. `None` keeps the stored body. An error ends the replacement in
    /// the whole block, which stays unchanged.
    async fn replace(&self, body: &BodyInArchive, bytes: Bytes) -> Result<Option<NewBody>>;
}

/// The result of a replacement in the blocks of a page.
#[derive(Debug, Clone, Default)]
pub struct BlockReplacement {
    /// Old blocks that were rewritten.
    pub blocks: u64,
    /// Bodies that were replaced.
    pub replaced: u64,
    /// Selected bodies that were not replaced: the old body is in chunks, or the new body is too large.
    pub too_large: Vec<BodyInArchive>,
    /// Pages that keep their old blocks, because another process has changed their index meanwhile.
    pub kept_pages: u64,
    /// Descriptions of damaged blocks, which stay unchanged.
    pub damaged: Vec<String>,
}

/// The blocks that a run has checked or written. All pages of a block are checked together, so that each
/// block is checked once.
#[derive(Debug, Default)]
pub struct CheckedBlocks(BTreeSet<BlockId>);

impl CheckedBlocks {
    fn add(&mut self, id: BlockId) {
        if self.0.len() >= MAX_CHECKED_BLOCKS {
            self.0.clear();
        }
        self.0.insert(id);
    }
}

/// A body that is to be replaced: its unit, by index in the current step, and its stored text.
struct Job {
    unit: usize,
    of: Option<Tid>,
    body: BodyInArchive,
    text: Bytes,
}

impl Archive {
    /// Replaces bodies in the blocks that a page references and that this run has not checked yet. Includes
    /// the bodies of other pages in these blocks. Makes at most `concurrency` bodies at once.
    ///
    /// A new block is written and compared before a page references it, so an interruption loses nothing:
    /// each page has either all old or all new bodies of a block. A body that a later write hides is not
    /// replaced.
    pub async fn replace_bodies(
        &self,
        page: &Page,
        replacer: &dyn BodyReplacer,
        concurrency: usize,
        checked: &mut CheckedBlocks,
    ) -> Result<BlockReplacement> {
        let _alone = self.alone().await;
        let mut done = BlockReplacement::default();
        for row in index_of(&*self.blocks.store, &partition_of(page)).await? {
            if checked.0.contains(&row.block) {
                continue;
            }
            let replacement = BlockReplacer { archive: self, replacer, concurrency, done: &mut done };
            match replacement.replace_in_block(page, row.block, checked).await {
                Err(Error::Store(StoreError::Corrupt(what))) => done.damaged.push(what),
                replaced => replaced?,
            }
            checked.add(row.block);
        }
        Ok(done)
    }
}

/// Makes the new body for a job.
fn make_new_body(replacer: &dyn BodyReplacer, job: Job) -> BoxFuture<'_, Result<(Job, Option<NewBody>)>> {
    Box::pin(async move {
        let new = replacer.replace(&job.body, job.text.clone()).await?;
        Ok((job, new))
    })
}

/// Replaces the bodies of one block.
struct BlockReplacer<'a> {
    archive: &'a Archive,
    replacer: &'a dyn BodyReplacer,
    concurrency: usize,
    done: &'a mut BlockReplacement,
}

impl BlockReplacer<'_> {
    async fn replace_in_block(mut self, page: &Page, id: BlockId, checked: &mut CheckedBlocks) -> Result<()> {
        let archive = self.archive;
        let block = archive.blocks.open(page, id).await?;
        let titles = block.titles()?;
        let pages: Vec<_> = titles.into_iter().map(|title| Page { title, ..page.clone() }).collect();
        if !self.has_selected(&pages, id).await? {
            return Ok(());
        }
        // If the block was enqueued recently, another process may be about to make more pages reference it.
        let is_being_placed = match archive.blocks.enqueued_at(id).await? {
            Some(enqueued_at) => enqueued_at > archive.placed_until().await?,
            None => false,
        };
        let mut rewriter = BlockRewriter::new(archive)?;
        rewriter.remember_epoch(page).await?;
        let mut replaced = 0;
        for of in &pages {
            let index = index_of(&*archive.blocks.store, &partition_of(of)).await?;
            let Some(row) = index.iter().find(|row| row.block == id).cloned() else { continue };
            let others: Vec<_> = index.into_iter().filter(|row| row.block != id).collect();
            replaced += self.replace_in_page(of, row, &others, &mut rewriter).await?;
        }
        if replaced == 0 {
            return Ok(());
        }
        rewriter.end().await?;
        for new in &rewriter.new_ids {
            checked.add(*new);
        }
        self.done.blocks += 1;
        self.done.replaced += replaced;
        self.done.kept_pages += rewriter.kept_pages;
        if !is_being_placed {
            let at = archive.records.clock.now().saturating_add(archive.records.skew);
            archive.blocks.delete_if_unreferenced(pages, id, at).await?;
        }
        Ok(())
    }

    /// Whether the replacer selects a body of the block.
    async fn has_selected(&self, pages: &[Page], id: BlockId) -> Result<bool> {
        for page in pages {
            let block = self.archive.blocks.open(page, id).await?;
            for unit in block.units(page)? {
                if unit.all_bodies().any(|(name, _, body)| self.replacer.selects(name, &body.info)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Pushes the revisions of a page to the rewriter, with new bodies. Returns the number of new bodies.
    async fn replace_in_page(
        &mut self,
        page: &Page,
        row: IndexRow,
        others: &[IndexRow],
        rewriter: &mut BlockRewriter<'_>,
    ) -> Result<u64> {
        let mut replaced = 0;
        let block = self.archive.blocks.open(page, row.block).await?;
        let mut combined = CombinedRevisions::default();
        combined.add(page, &block)?;
        rewriter.begin(page, vec![row], 0).await?;
        loop {
            let mut units = Vec::new();
            while units.len() < self.concurrency.max(1)
                && let Some(unit) = combined.next()?
            {
                units.push(unit);
            }
            if units.is_empty() {
                break;
            }
            let mut jobs = Vec::new();
            for (index, (unit, texts)) in units.iter().enumerate() {
                self.add_jobs(page, index, unit, texts, others, &mut jobs).await?;
            }
            let making: Vec<_> = jobs.into_iter().map(|job| make_new_body(self.replacer, job)).collect();
            let made: Vec<_> = stream::iter(making).buffered(self.concurrency.max(1)).try_collect().await?;
            for (job, new) in made {
                let Some(new) = new else { continue };
                let (unit, texts) = &mut units[job.unit];
                let at = self.archive.records.write_time_after(unit.last_written());
                match put_new_body(unit, texts, &job, new, at) {
                    true => {
                        rewriter.note_new_body(job.body.rev);
                        replaced += 1;
                    }
                    false => self.done.too_large.push(job.body),
                }
            }
            for (unit, texts) in units {
                rewriter.push(unit, &texts).await?;
            }
        }
        rewriter.end_page();
        Ok(replaced)
    }

    /// Adds jobs for the selected bodies of a unit, except those that readers do not see, or that are in
    /// chunks. `index` is the index of the unit.
    async fn add_jobs(
        &mut self,
        page: &Page,
        index: usize,
        unit: &Unit,
        texts: &Texts,
        others: &[IndexRow],
        jobs: &mut Vec<Job>,
    ) -> Result<()> {
        let rev = unit.revision.record.rev;
        for (name, of, body) in unit.all_bodies() {
            if !self.replacer.selects(name, &body.info)
                || self.is_hidden(page, rev, of, name, body, others).await?
            {
                continue;
            }
            let tid = of.unwrap_or(unit.revision.first_tid);
            let (page, name, info) = (page.clone(), name.clone(), body.info.clone());
            let in_archive = BodyInArchive { page, rev, tid, name: name.clone(), info };
            match texts.get(&(name, of)) {
                Some(text) => jobs.push(Job { unit: index, of, body: in_archive, text: text.clone() }),
                None => self.done.too_large.push(in_archive),
            }
        }
        Ok(())
    }

    /// Whether a row in the tables, or a body in another block that is not older, hides the body from readers.
    async fn is_hidden(
        &self,
        page: &Page,
        rev: Revision,
        of: Option<Tid>,
        name: &PropertyName,
        body: &ArchivedBody,
        others: &[IndexRow],
    ) -> Result<bool> {
        let tables = &*self.archive.blocks.store;
        let get = async |table: &'static Schema, clustering: Vec<Value>| {
            tables.get(table, &Key::new(partition_of(page), clustering)).await
        };
        if let Some(row) = get(&REVISIONS, rev_key(rev)).await?
            && (of.is_none() || RevisionRow::from_row(&row)?.record.erased.is_some())
        {
            return Ok(true);
        }
        let property = name.clone();
        let in_tables = match of {
            Some(tid) => {
                get(&RENDERS, render_key(rev, tid)).await?.is_some()
                    || get(&RENDER_CONTENT, RenderBodyKey { property, rev, tid }.clustering())
                        .await?
                        .is_some()
            }
            None => get(&REVISION_CONTENT, RevisionBodyKey { property, rev }.clustering()).await?.is_some(),
        };
        if in_tables {
            return Ok(true);
        }
        for row in others.iter().filter(|row| row.may_have_revision(rev)) {
            let other = self.archive.blocks.open(page, row.block).await?;
            let Some(unit) = other.unit_of(page, rev)? else { continue };
            let mut same = unit.all_bodies().filter(|(other, tid, _)| *other == name && *tid == of);
            if same.any(|(.., other)| other.written_at >= body.written_at) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Puts a new body into a unit. Returns `false`, and changes nothing, if the body is too large for a block.
///
/// The write times of the changed rows become only one microsecond later. So the rows of a concurrent write
/// are later, and hide the changed rows.
fn put_new_body(unit: &mut Unit, texts: &mut Texts, job: &Job, new: NewBody, at: Timestamp) -> bool {
    let (name, size) = (&job.body.name, new.bytes.len() as u64);
    let other_bytes =
        unit.all_bodies().map(|(.., body)| body.size_in_block()).sum::<u64>() - job.body.info.size;
    if size > MAX_BODY_IN_BLOCK || size > job.body.info.size && other_bytes + size > MAX_UNIT_BODY_BYTES {
        return false;
    }
    let mut info = job.body.info.clone();
    info.headers.content_type = new.content_type;
    (info.size, info.sha1) = (size, Sha1::of(&new.bytes));
    info.rewritten_at = Some(at.max(info.rewritten_at.unwrap_or(Timestamp::MIN).just_after()));
    let (properties, bodies, written_at) = match job.of {
        None => (&mut unit.revision.properties, &mut unit.bodies, &mut unit.revision.written_at),
        Some(tid) => match unit.renders.iter_mut().find(|(render, _)| render.tid == tid) {
            Some((render, bodies)) => (&mut render.properties, bodies, &mut render.written_at),
            None => return false,
        },
    };
    let Some(body) = bodies.get_mut(name) else { return false };
    let location = BodyLocation::Entry(0);
    *body = ArchivedBody { info: info.clone(), written_at: body.written_at.just_after(), location };
    properties.insert(name.clone(), info);
    *written_at = written_at.just_after();
    texts.insert((name.clone(), job.of), new.bytes);
    true
}
