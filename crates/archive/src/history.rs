//! Bulk load: imported revisions go into blocks as they arrive. This is faster than an import that is sealed
//! later.
//!
//! All revisions of a new page except the highest go into the block that is being filled. A full block is
//! written, read back and compared, like a sealed one. Then the highest revision of each of its pages is
//! written into the tables, and after that the pages reference the block. So a page has its highest revision
//! before it has older ones. An interrupted import leaves pages that lack some revisions, and the next import
//! writes these as rows.
//!
//! Revisions that come out of order, or for a page that has revisions already, are imported as rows.

use std::{
    collections::HashSet,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use rashomon_archive_format::{ArchivedBody, Bodies, BodyLocation, Pages, Texts, Unit};
use rashomon_clock::Timestamp;
use rashomon_records::ImportUnit;
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError};
use tokio::{sync::Mutex, task::JoinHandle};

use super::{
    Archive, ArchivePolicy, ArchiveSettings, SealReport,
    deletes::{self, Resealed, StoredRows},
    erase::Epoch,
    index::IndexRow,
    large::read_from_chunks,
    pending::{Pending, ReleasedChunks},
    policy::Thinning,
    rows::BlockId,
    seal::{release_chunks, release_owner},
    size::UnitSize,
    verified_block::blocking,
};
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, ImportOutcome, ImportRevision, Page, PropertyName, Result, Revision, Staged, Tid,
    Title,
    content::{Bodies as NewBodies, ChunkSet, Stored},
    rows::{TypedRow, partition_of, rows_of},
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// Number of pages that are written at the same time.
const CONCURRENT_PAGES: usize = 16;

/// Maximum number of finished pages that wait until the block is written.
const MAX_WAITING_PAGES: usize = 512;

/// The block is written once the highest revisions of finished pages have this many bytes of bodies.
const MAX_WAITING_BYTES: u64 = 8 << 20;

/// A revision with at least this many bytes of text is added to the block on another thread, while the next
/// revisions are received. For a smaller revision, the handover would take as long as the work, and each of
/// many threads would retain memory that it has freed.
const MIN_BYTES_FOR_THREAD: u64 = 64 << 10;

/// Maximum number of tids of a page that are kept to be compared with the tids of new revisions. Further
/// revisions of the page are imported as rows.
const MAX_TIDS: usize = 1 << 20;

/// Puts imported revisions into blocks as they arrive.
#[derive(Debug)]
pub struct HistoryArchiver {
    archive: Arc<Archive>,
    rows: Arc<dyn RowImporter>,
    state: Mutex<State>,
    counts: Arc<Counts>,
    settings: ArchiveSettings,
}

#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    placed: AtomicU64,
}

#[derive(Debug)]
struct State {
    current: Option<CurrentPage>,
    unfinished: UnfinishedBlock,
    /// The previous block, while its pages are made to reference it.
    placing: Option<(HashSet<Title>, JoinHandle<Result<SealReport>>)>,
    sealed: SealReport,
}

/// The page that is being imported.
#[derive(Debug)]
struct CurrentPage {
    page: Page,
    /// Whether the page had no revisions before, and all its revisions came in order.
    to_blocks: bool,
    highest: Option<HighestRevision>,
    /// The tids that are not derived from the revisions of the page.
    tids: HashSet<Tid>,
    thinning: Thinning,
}

/// The highest revision of a page so far. It stays in the tables.
#[derive(Debug, Clone)]
struct HighestRevision {
    page: Page,
    rev: Revision,
    /// The renders, as rows.
    renders: Vec<ImportUnit>,
    /// When the revision was written, or `None` if it was not written yet.
    written_at: Option<Timestamp>,
    /// The epoch of the bucket before the revision was written. Another process may erase the stored
    /// revision.
    epoch: Option<Epoch>,
    /// Whether the page has no rows yet.
    is_new: bool,
}

/// The block that is being filled, and the rows that are written with it.
#[derive(Debug)]
struct UnfinishedBlock {
    pending: Pending,
    /// The highest revisions of the pages whose import has ended. When the block is full, the highest
    /// revision of the current page is added.
    highest_by_page: Vec<HighestRevision>,
    bytes: u64,
    /// Revisions in the block that are also stored as rows: each was the highest of its page when an earlier
    /// block was full.
    replaced: Vec<(Page, Unit)>,
    /// The epoch of the bucket before the first of the replaced revisions was written.
    epoch: Option<Epoch>,
}

/// Imports revisions as rows.
#[async_trait]
pub trait RowImporter: Debug + Send + Sync {
    /// Checks a revision, and creates the rows of its renders. The error says what is wrong with the
    /// revision.
    fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<ImportUnit>, String>;

    /// Stores revisions of a page as rows.
    async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>>;

    /// Writes rows of a page that [`Self::new_units`] created. `is_new` says that the page has no rows yet.
    async fn write_units(
        &self,
        page: &Page,
        units: Vec<ImportUnit>,
        is_new: bool,
        at: Timestamp,
    ) -> Result<()>;
}

impl HistoryArchiver {
    /// Creates the archiver, or returns `None` if the archive is off. `rows` imports revisions that cannot go
    /// into blocks.
    #[must_use]
    pub fn new(archive: Arc<Archive>, rows: Arc<dyn RowImporter>) -> Option<Self> {
        let settings = archive.settings.clone()?;
        let (unfinished, sealed) = (UnfinishedBlock::new().ok()?, SealReport::default());
        let state = Mutex::new(State { current: None, unfinished, placing: None, sealed });
        Some(Self { archive, rows, state, counts: Arc::default(), settings })
    }

    /// Receives a body that is in memory already. Only a large body is compressed here.
    #[boxed]
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &[u8]) -> Result<Staged> {
        let limit = self.archive.records.definitions.get(name).max_size;
        match Staged::plain(body).filter(|staged| staged.size <= limit) {
            Some(staged) => Ok(staged),
            None => self.archive.records.stage_bytes(page, name, body).await,
        }
    }

    /// Imports revisions, like [`RowImporter::import`]. Revisions that are reported as `Created` can be read
    /// after [`Self::finish`], and most of them earlier.
    #[boxed]
    pub async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        if revisions.iter().any(|revision| revision.renders.is_empty()) {
            return Err(Error::Invalid("an imported revision needs at least one render".to_owned()));
        }
        let mut state = self.state.lock().await;
        self.begin_page(&mut state, page).await?;
        if !state.goes_to_blocks(&revisions) {
            if state.current.as_ref().is_some_and(|current| current.to_blocks) {
                // The earlier revisions must be stored first, so that the others can be compared with them.
                state.end_page();
                self.flush(&mut state).await?;
                state.current = Some(self.beginning(page, false));
            }
            return self.rows.import(page, revisions.into_iter().map(compressed).collect()).await;
        }
        let mut outcomes = Vec::with_capacity(revisions.len());
        for revision in revisions {
            outcomes.push(self.take(&mut state, page, revision).await?);
        }
        Ok(outcomes)
    }

    /// Writes all waiting revisions, and reports the sealed revisions.
    #[boxed]
    pub async fn finish(&self) -> Result<SealReport> {
        let mut state = self.state.lock().await;
        state.end_page();
        self.flush(&mut state).await?;
        Ok(state.sealed)
    }

    /// Returns the number of revisions that were reported as `Created` and cannot be read yet. If the import
    /// fails or is interrupted, these revisions are not stored.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.counts.taken.load(Relaxed).saturating_sub(self.counts.placed.load(Relaxed))
    }

    fn beginning(&self, page: &Page, to_blocks: bool) -> CurrentPage {
        CurrentPage::new(page, to_blocks, self.settings.of_bucket(&page.domain, &page.bucket).policy)
    }

    async fn begin_page(&self, state: &mut State, page: &Page) -> Result<()> {
        if state.current.as_ref().is_some_and(|current| current.page == *page) {
            return Ok(());
        }
        state.end_page();
        if state.has_waiting(page) {
            self.flush(state).await?;
        }
        if state.unfinished.highest_by_page.len() >= MAX_WAITING_PAGES
            || state.unfinished.bytes >= MAX_WAITING_BYTES
        {
            self.end_block(state).await?;
        }
        let is_new = self.archive.records.first(&RENDERS, page, ClusteringRange::all()).await?.is_none();
        state.sealed.pages += 1;
        state.current = Some(self.beginning(page, is_new));
        Ok(())
    }

    /// Takes a revision as the new highest of its page. The previous highest goes into the block.
    async fn take(&self, state: &mut State, page: &Page, revision: ImportRevision) -> Result<ImportOutcome> {
        let rev = revision.record.rev;
        let renders = match self.rows.new_units(revision) {
            Ok(renders) => renders,
            Err(flaw) => return Ok(ImportOutcome::Conflict(flaw)),
        };
        let Some(current) = &mut state.current else { return Ok(ImportOutcome::Unchanged) };
        let is_own = |tid: Tid| tid == Tid::imported(page, rev, tid.time());
        let tids = || renders.iter().map(|unit| unit.render.tid).filter(|tid| !is_own(*tid));
        if let Some(tid) = tids().find(|tid| current.tids.contains(tid)) {
            let what = format!("render {tid} already belongs to another revision");
            return Ok(ImportOutcome::Conflict(what));
        }
        current.tids.extend(tids());
        let is_new =
            current.highest.as_ref().is_none_or(|highest| highest.is_new && highest.written_at.is_none());
        let highest =
            HighestRevision { page: page.clone(), rev, renders, written_at: None, epoch: None, is_new };
        self.counts.taken.fetch_add(1, Relaxed);
        if let Some(before) = current.highest.replace(highest) {
            self.add_to_block(state, before).await?;
        }
        Ok(ImportOutcome::Created)
    }

    async fn add_to_block(&self, state: &mut State, highest: HighestRevision) -> Result<()> {
        let at = highest.written_at.unwrap_or_else(|| self.archive.records.clock.now());
        let (mut unit, mut texts) = as_sealed(&highest.renders, at)?;
        if state.unfinished.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            self.end_block(state).await?;
        }
        let mut released_chunks = match &mut state.current {
            Some(current) => current.thinning.thin(&mut unit, &mut texts),
            None => Vec::new(),
        };
        released_chunks
            .append(&mut read_from_chunks(&self.archive.records.chunks, &mut unit, &mut texts).await?);
        if highest.written_at.is_some() {
            state.unfinished.replaced.push((highest.page.clone(), unit.clone()));
            state.unfinished.epoch = state.unfinished.epoch.take().or(highest.epoch);
        }
        state.sealed.revisions += 1;
        state.sealed.renders += unit.renders.len() as u64;
        let size = texts.values().map(|text| text.len() as u64).sum::<u64>();
        state.sealed.raw_bytes += size;
        let page = highest.page;
        state.unfinished.pending.release_chunks(&page, highest.rev, released_chunks);
        if size < MIN_BYTES_FOR_THREAD {
            return state.unfinished.pending.push(&page, unit, &texts);
        }
        let mut pending = std::mem::replace(&mut state.unfinished.pending, Pending::new()?);
        state.unfinished.pending =
            blocking(move || pending.push(&page, unit, &texts).map(|()| pending)).await?;
        Ok(())
    }

    /// Starts to write the block that is being filled, while the next revisions are received.
    async fn end_block(&self, state: &mut State) -> Result<()> {
        state.wait_placed().await?;
        let mut unfinished = std::mem::replace(&mut state.unfinished, UnfinishedBlock::new()?);
        let at = self.archive.records.clock.now();
        if let Some(CurrentPage { page, highest: Some(highest), .. }) = &mut state.current
            && unfinished.pending.has(page)
        {
            unfinished.highest_by_page.push(HighestRevision { written_at: Some(at), ..highest.clone() });
            highest.written_at = Some(at);
            highest.epoch = Some(self.archive.blocks.epoch(&highest.page).await?);
            highest.is_new = false;
        }
        if unfinished.highest_by_page.is_empty() {
            return Ok(());
        }
        let titles = unfinished.highest_by_page.iter().map(|highest| highest.page.title.clone()).collect();
        let placement = BlockPlacement {
            archive: Arc::clone(&self.archive),
            rows: Arc::clone(&self.rows),
            counts: Arc::clone(&self.counts),
        };
        state.placing = Some((titles, tokio::spawn(placement.all(unfinished, at))));
        Ok(())
    }

    async fn flush(&self, state: &mut State) -> Result<()> {
        self.end_block(state).await?;
        state.wait_placed().await
    }
}

impl CurrentPage {
    fn new(page: &Page, to_blocks: bool, policy: ArchivePolicy) -> Self {
        let thinning = Thinning::new(policy, None);
        Self { page: page.clone(), to_blocks, highest: None, tids: HashSet::new(), thinning }
    }
}

impl UnfinishedBlock {
    fn new() -> Result<Self> {
        Ok(Self {
            pending: Pending::new()?,
            highest_by_page: Vec::new(),
            bytes: 0,
            replaced: Vec::new(),
            epoch: None,
        })
    }
}

impl State {
    /// Ends the page after all its revisions have been received.
    fn end_page(&mut self) {
        let Some(highest) = self.current.take().and_then(|current| current.highest) else { return };
        if highest.written_at.is_none() {
            self.unfinished.bytes += highest.renders.iter().map(size_of).sum::<u64>();
            self.unfinished.highest_by_page.push(highest);
        } else if self.unfinished.pending.has(&highest.page) {
            // The highest revision is stored already, so the page can reference its part of the block.
            self.unfinished.highest_by_page.push(highest);
        }
    }

    /// Whether a part of the page waits to be written.
    fn has_waiting(&self, page: &Page) -> bool {
        self.unfinished.highest_by_page.iter().any(|highest| highest.page == *page)
            || self.placing.as_ref().is_some_and(|(titles, _)| titles.contains(&page.title))
    }

    /// Whether the revisions can be added to blocks one after the other: in rising order and small enough.
    fn goes_to_blocks(&self, revisions: &[ImportRevision]) -> bool {
        let Some(current) = self.current.as_ref().filter(|current| current.to_blocks) else { return false };
        let mut last = current.highest.as_ref().map(|highest| highest.rev);
        let rises = revisions.iter().all(|revision| {
            let rev = revision.record.rev;
            last.replace(rev).is_none_or(|last| last < rev)
        });
        let is_small = |revision: &ImportRevision| UnitSize::of_import(revision).excess().is_none();
        rises && revisions.iter().all(is_small) && current.tids.len() < MAX_TIDS
    }

    /// Waits until the previous block is placed.
    async fn wait_placed(&mut self) -> Result<()> {
        let Some((_, placing)) = self.placing.take() else { return Ok(()) };
        let made = placing.await.map_err(|error| StoreError::unavailable(error.to_string()))??;
        self.sealed = self.sealed + made;
        Ok(())
    }
}

/// Places a block: makes its pages reference it.
struct BlockPlacement {
    archive: Arc<Archive>,
    rows: Arc<dyn RowImporter>,
    counts: Arc<Counts>,
}

impl BlockPlacement {
    /// Writes the block, then the highest revisions of its pages, and then makes the pages reference the
    /// block. Returns the number of sealed blocks and bytes.
    async fn all(self, mut unfinished: UnfinishedBlock, at: Timestamp) -> Result<SealReport> {
        let released_chunks = unfinished.pending.take_released();
        let made = self.archive.make_block(unfinished.pending).await?;
        self.write_all_highest(&unfinished.highest_by_page, at).await?;
        let Some(made) = made else { return Ok(SealReport::default()) };
        made.deadline().check(&*self.archive.records.clock)?;
        if let (Some((page, _)), Some(epoch)) = (unfinished.replaced.first(), &unfinished.epoch) {
            self.archive.blocks.check_epoch(page, epoch).await?;
        }
        self.pages(&made.pages, made.id, &unfinished.replaced, &released_chunks).await?;
        self.archive.blocks.dequeue(made.id, made.enqueued_at).await?;
        Ok(SealReport { blocks: 1, stored_bytes: made.bytes, ..SealReport::default() })
    }

    async fn write_all_highest(&self, highest_by_page: &[HighestRevision], at: Timestamp) -> Result<()> {
        let mut written = Vec::with_capacity(highest_by_page.len());
        for highest in highest_by_page {
            written.push(self.write_highest(highest, at).boxed());
        }
        stream::iter(written).buffer_unordered(CONCURRENT_PAGES).try_collect().await
    }

    async fn write_highest(&self, highest: &HighestRevision, at: Timestamp) -> Result<()> {
        // A highest revision that was written with the previous block is stored already.
        if highest.written_at.is_none_or(|written_at| written_at == at) {
            let renders = highest.renders.iter().cloned().map(compressed_unit).collect();
            self.rows.write_units(&highest.page, renders, highest.is_new, at).await?;
            self.counts.placed.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    async fn pages(
        &self,
        pages: &Pages,
        id: BlockId,
        replaced: &[(Page, Unit)],
        released_chunks: &ReleasedChunks,
    ) -> Result<()> {
        let mut named = Vec::with_capacity(pages.len());
        for (page, units) in pages {
            let replaced = replaced.iter().filter(|(of, _)| of == page).map(|(_, unit)| unit).collect();
            let released_chunks = released_chunks.get(&page.title).map_or(&[][..], |chunks| chunks);
            named.push(self.page(page, units, id, replaced, released_chunks).boxed());
        }
        stream::iter(named).buffer_unordered(CONCURRENT_PAGES).try_collect().await
    }

    /// Makes a page reference a block, and deletes from its tables the revisions in the block that are also
    /// stored as rows.
    async fn page(
        &self,
        page: &Page,
        units: &[Unit],
        id: BlockId,
        replaced: Vec<&Unit>,
        released_chunks: &[(Revision, ChunkSet)],
    ) -> Result<()> {
        let Some(index) = IndexRow::of(id, units) else { return Ok(()) };
        let mut batch = Batch::new(partition_of(page));
        index.to_stored().put(&mut batch, self.archive.records.clock.now());
        for unit in units {
            self.check_chunks(unit)?;
            release_owner(&mut batch, unit);
        }
        // Replaced revisions were written with references to their chunks. The release of these chunks must
        // have a later write time.
        let written = units.iter().map(|unit| unit.last_written().just_after());
        let first = release_chunks(
            &mut batch,
            page,
            released_chunks.iter(),
            written.fold(self.archive.records.clock.now(), Ord::max),
        );
        for unit in &replaced {
            let stored = self.stored_rows(page, unit).await?;
            let deletable = deletes::deletable(std::slice::from_ref(*unit), &stored, &Resealed::new())?;
            deletes::delete(&mut batch, &deletable, &stored)?;
        }
        self.archive.blocks.store.write(first, batch).await?;
        let counted = units.len() - replaced.len();
        self.counts.placed.fetch_add(counted as u64, Relaxed);
        Ok(())
    }

    /// Returns `Unavailable` if the chunks of a body were received so long ago that they may not be
    /// referenced now.
    fn check_chunks(&self, unit: &Unit) -> Result<()> {
        for (_, _, body) in unit.all_bodies() {
            if let BodyLocation::Chunks(set) = &body.place {
                self.archive.records.chunks.check_begun(set.begun)?;
            }
        }
        Ok(())
    }

    /// Reads the index rows of one revision.
    async fn stored_rows(&self, page: &Page, unit: &Unit) -> Result<StoredRows> {
        let record = &unit.revision.record;
        let of_rev = || ClusteringRange::all().at_least(record.rev.get()).at_most(record.rev.get());
        let of_time = ClusteringRange::all().at_least(record.timestamp).at_most(record.timestamp);
        let store = &*self.archive.blocks.store;
        let mut by_tid = Vec::new();
        for (render, _) in &unit.renders {
            let tid = ClusteringRange::prefix(vec![render.tid.as_time_uuid().into()]);
            by_tid.extend(rows_of(store, &REVISIONS_BY_TID, page, tid, INDEX_PAGE_ROWS).await?);
        }
        Ok(StoredRows {
            revisions: rows_of(store, &REVISIONS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            renders: rows_of(store, &RENDERS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            by_time: rows_of(store, &REVISIONS_BY_TIME, page, of_time, INDEX_PAGE_ROWS).await?,
            by_tid,
        })
    }
}

/// Converts import rows, written at `at`, into a unit of a block and its texts.
fn as_sealed(renders: &[ImportUnit], at: Timestamp) -> Result<(Unit, Texts)> {
    let mut texts = Texts::new();
    let first = renders.first().and_then(|unit| Some((unit.revision.clone()?, &unit.of_revision)));
    let Some((mut revision, of_revision)) = first else {
        return Err(Error::Invalid("an imported revision needs at least one render".to_owned()));
    };
    (revision.stored_at, revision.written_at) = (at, at);
    let bodies = take_texts(&mut texts, of_revision, None, at)?;
    let mut sealed = Vec::with_capacity(renders.len());
    for unit in renders {
        let mut render = unit.render.clone();
        (render.stored_at, render.written_at) = (at, at);
        let bodies = take_texts(&mut texts, &unit.of_render, Some(render.tid), at)?;
        sealed.push((render, bodies));
    }
    Ok((Unit { revision, bodies, renders: sealed }, texts))
}

fn take_texts(
    texts: &mut Texts,
    bodies: &NewBodies,
    of: Option<Tid>,
    written_at: Timestamp,
) -> Result<Bodies> {
    let mut taken = Bodies::new();
    for (name, body) in bodies {
        let place = match (&body.stored, body.stored.plain(body.info.size)?) {
            (Stored::Chunks(set), _) => BodyLocation::Chunks(set.clone()),
            (_, text) => {
                texts.insert((name.clone(), of), text.unwrap_or_default());
                BodyLocation::Entry(0)
            }
        };
        taken.insert(name.clone(), ArchivedBody { info: body.info.clone(), written_at, place });
    }
    Ok(taken)
}

fn size_of(unit: &ImportUnit) -> u64 {
    unit.of_revision.values().chain(unit.of_render.values()).map(|body| body.info.size).sum()
}

fn compressed(mut revision: ImportRevision) -> ImportRevision {
    let of_renders = revision.renders.iter_mut().flat_map(|render| &mut render.properties);
    for (property, _) in revision.properties.iter_mut().chain(of_renders) {
        property.body.stored.compress();
    }
    revision
}

fn compressed_unit(mut unit: ImportUnit) -> ImportUnit {
    for body in unit.of_revision.values_mut().chain(unit.of_render.values_mut()) {
        body.stored.compress();
    }
    unit
}
