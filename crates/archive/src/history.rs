//! Bulk load: puts imported revisions into blocks as they arrive. This is faster than to import rows and to
//! seal them later.
//!
//! The revisions of a new page go into the block that is being filled, in the order of the input. Only the
//! page's highest revision so far is kept back. A full block is written, read back and compared, as in a seal.
//! Then the highest revision of each page in the block is written into the tables, and after that the pages
//! reference the block. So a page has its highest revision before it has older revisions. An interrupted import leaves
//! pages that lack some revisions, and the next import writes the missing revisions.
//!
//! If a page is stored already, the revisions that it lacks go into blocks, too, with those in its small parts. The others
//! are compared with the stored ones, and their new renders become rows. On a cluster, all revisions of a stored page
//! become rows.
//!
//! If idle pages are sealed, the highest revision of a page also goes into the block, at the end of the page.
//!
//! [`RowReason`] says which revisions are imported as rows instead.

mod compare;
mod earlier;
mod new_pages;
mod placement;
mod row_reason;
mod stored_page;
mod unfinished_block;
mod units;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::format::{Unit, UnitSize};
use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::ImportUnit;
use rashomon_tables::{Batch, Error as StoreError, Mutation};
use tokio::{sync::Mutex, task::JoinHandle};

pub use self::row_reason::RowReason;
use self::{
    earlier::EarlierRevisions,
    new_pages::NewPages,
    placement::BlockPlacement,
    stored_page::StoredPage,
    unfinished_block::UnfinishedBlock,
    units::{size_of, unit_of_rows},
};
use super::{
    Archive, ArchiveSettings, ImportedRow, ImportedRows, SealReport, compaction::has_few_revisions,
    erase::Epoch, index::IndexRow, large::read_from_chunks, policy::Thinning,
};
use rashomon_records::{
    Error, ImportOutcome, ImportRevision, Page, PropertyName, Result, Revision, Staged, Tid, Title,
};

/// The maximum number of finished pages that wait until the block is written.
const MAX_WAITING_PAGES: usize = 512;

/// When the highest revisions of the finished pages that wait have at least this many bytes of bodies, the
/// block is written before the next page begins.
const MAX_WAITING_BYTES: u64 = 8 << 20;

/// When at least this many revisions or tids of a page are remembered (to find repeated ones), its further
/// revisions are imported as rows.
const MAX_KNOWN: usize = 1 << 20;

/// The maximum number of pages in [`HistoryArchiver::take_grown`].
const MAX_GROWN_PAGES: usize = 1 << 17;

/// Puts imported revisions into blocks as they arrive.
#[derive(Debug)]
pub struct HistoryArchiver {
    archive: Arc<Archive>,
    rows: Arc<dyn RowImporter>,
    state: Mutex<State>,
    counts: Arc<Counts>,
    settings: ArchiveSettings,
}

/// The numbers of revisions that were reported as `Created` (`taken`), and of those that can be read
/// (`placed`).
#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    placed: AtomicU64,
}

#[derive(Debug)]
struct State {
    current: Option<CurrentPage>,
    new_pages: NewPages,
    unfinished: UnfinishedBlock,
    /// The previous block, while its pages are made to reference it.
    placing: Option<(HashSet<Title>, JoinHandle<Result<SealReport>>)>,
    sealed: SealReport,
    /// The number of revisions that were imported as rows.
    rows: BTreeMap<RowReason, u64>,
    /// Revisions that may be in rows, and were not taken by [`HistoryArchiver::take_rows`].
    unsealed: ImportedRows,
    /// The pages that were stored before, and of which further revisions are in blocks of their own now.
    grown: Vec<Page>,
}

/// The page that is being imported.
#[derive(Debug)]
struct CurrentPage {
    page: Page,
    /// Why further revisions of the page are imported as rows. `None` if they go into blocks.
    row_reason: Option<RowReason>,
    /// The highest revision that the page had before. `None` if the page is new.
    stored: Option<Revision>,
    /// Whether revisions of the page may be in rows.
    has_rows: bool,
    /// The small parts of the page, until its first new revision is taken. Then their revisions.
    small_parts: Vec<IndexRow>,
    earlier: Option<EarlierRevisions>,
    highest: Option<HighestRevision>,
    /// The numbers of the revisions that were taken.
    revs: HashSet<Revision>,
    /// The tids that are not derived from the revisions of the page.
    tids: HashSet<Tid>,
    thinning: Thinning,
}

/// The highest revision of a page so far. Unless idle pages are sealed, it stays in the tables.
#[derive(Debug, Clone)]
struct HighestRevision {
    page: Page,
    rev: Revision,
    /// The renders, as rows.
    renders: Vec<ImportUnit>,
    /// `None` if the revision was not written into the tables yet.
    written: Option<WrittenRevision>,
    /// Whether the page has no rows yet. If so, this revision is not written either.
    is_new: bool,
    /// Whether the revision is in the block. If so, `renders` is empty.
    is_sealed: bool,
}

/// Which bodies of the renders of a revision go into a block.
#[derive(Debug, Clone, Copy)]
enum RenderSelection {
    ByPolicy,
    All,
}

/// The write of a revision into the tables.
#[derive(Debug, Clone)]
struct WrittenRevision {
    at: Timestamp,
    /// The epoch of the bucket before the write. Another process may have erased the revision since then.
    epoch: Epoch,
}

/// Additional changes that are written together with rows of a page.
#[derive(Debug, Default)]
pub struct AttachedChanges {
    /// Batches that are written before the batch of the page.
    pub before: Vec<Batch>,
    /// Changes in the batch of the page.
    pub mutations: Vec<Mutation>,
}

/// Imports revisions as rows.
#[async_trait]
pub trait RowImporter: Debug + Send + Sync {
    /// Checks a revision, and creates the rows of its renders without storing them. The error says what is
    /// wrong with the revision.
    fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<ImportUnit>, String>;

    /// Returns those of the revisions that have to be compared with stored rows of the page: they are stored already, or
    /// one of their renders is, in another revision.
    async fn stored(&self, page: &Page, revisions: &[ImportRevision]) -> Result<HashSet<Revision>>;

    /// Compares revisions with those that the page has in blocks, without rows. `None` if one of the revisions is not
    /// stored or has to be stored again, or if this takes rows to decide.
    fn compare(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
        stored: &HashMap<Revision, Unit>,
    ) -> Option<Vec<ImportOutcome>>;

    /// Stores revisions of a page as rows. Their bodies need not be compressed.
    async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>>;

    /// Writes rows of a page that [`Self::new_units`] created. If `is_new` is set, the page has no rows yet,
    /// and is added to the catalog. The changes `with` are written with the last unit, or alone if there is none.
    async fn write_units(
        &self,
        page: &Page,
        units: Vec<ImportUnit>,
        is_new: bool,
        at: Timestamp,
        with: AttachedChanges,
    ) -> Result<()>;
}

impl HistoryArchiver {
    /// Creates the archiver, or returns `None` if the archive is off. `rows` imports revisions that cannot go
    /// into blocks.
    #[must_use]
    pub fn new(archive: Arc<Archive>, rows: Arc<dyn RowImporter>) -> Option<Self> {
        let settings = archive.settings.clone()?;
        let (unfinished, sealed) =
            (UnfinishedBlock::new(archive.block_version()).ok()?, SealReport::default());
        let state = Mutex::new(State {
            current: None,
            new_pages: NewPages::default(),
            unfinished,
            placing: None,
            sealed,
            rows: BTreeMap::new(),
            unsealed: ImportedRows::new(),
            grown: Vec::new(),
        });
        Some(Self { archive, rows, state, counts: Arc::default(), settings })
    }

    /// Stages a body that is in memory already. Only a large body is copied and compressed.
    #[boxed]
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &Bytes) -> Result<Staged> {
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
        if let Some(reason) = state.row_reason(&revisions) {
            if state.current.as_ref().is_some_and(|current| current.row_reason.is_none()) {
                // The earlier revisions of the page must be stored first, so that the import of rows can
                // compare the new revisions with them.
                self.end_page(&mut state).await?;
                self.flush(&mut state).await?;
                state.current = Some(self.new_current_page(page, Some(reason), None));
            }
            return self.import_as_rows(&mut state, page, revisions, reason).await;
        }
        if let Some(outcomes) = self.compare_sealed(&state, page, &revisions).await? {
            return Ok(outcomes);
        }
        let stored = match state.current.as_ref().and_then(|current| current.stored) {
            Some(_) => self.rows.stored(page, &revisions).await?,
            None => HashSet::new(),
        };
        let is_stored: Vec<_> =
            revisions.iter().map(|revision| stored.contains(&revision.record.rev)).collect();
        let (compared, new): (Vec<_>, Vec<_>) =
            revisions.into_iter().partition(|revision| stored.contains(&revision.record.rev));
        let compared = match compared.is_empty() {
            true => Vec::new(),
            false => self.import_as_rows(&mut state, page, compared, RowReason::StoredPage).await?,
        };
        let (mut compared, mut new) = (compared.into_iter(), new.into_iter());
        let mut outcomes = Vec::with_capacity(is_stored.len());
        for is_stored in is_stored {
            if is_stored {
                outcomes.extend(compared.next());
            } else if let Some(revision) = new.next() {
                outcomes.push(self.take(&mut state, page, revision).await?);
            }
        }
        Ok(outcomes)
    }

    async fn import_as_rows(
        &self,
        state: &mut State,
        page: &Page,
        revisions: Vec<ImportRevision>,
        reason: RowReason,
    ) -> Result<Vec<ImportOutcome>> {
        let revs: Vec<_> = revisions.iter().map(|revision| revision.record.rev).collect();
        let outcomes = self.rows.import(page, revisions).await?;
        let in_rows = revs.into_iter().zip(&outcomes).filter_map(|(rev, outcome)| match outcome {
            ImportOutcome::Created => Some((rev, ImportedRow::New)),
            ImportOutcome::Unchanged => Some((rev, ImportedRow::Before)),
            _ => None,
        });
        let in_rows: Vec<_> = in_rows.collect();
        let created = in_rows.iter().filter(|(_, row)| *row == ImportedRow::New).count();
        if created > 0 {
            *state.rows.entry(reason).or_default() += created as u64;
        } else if !state.current.as_ref().is_none_or(|current| current.has_rows) {
            // All of them are in blocks.
            return Ok(outcomes);
        }
        if let Some(current) = &mut state.current {
            current.has_rows = true;
        }
        if self.archive.records.is_alone() && !in_rows.is_empty() {
            // If a new revision occurs again, its first outcome counts.
            state.unsealed.entry(page.title.clone()).or_default().extend(in_rows.into_iter().rev());
        }
        Ok(outcomes)
    }

    /// Writes all waiting revisions, and reports the sealed revisions.
    #[boxed]
    pub async fn finish(&self) -> Result<SealReport> {
        let mut state = self.state.lock().await;
        self.end_page(&mut state).await?;
        self.flush(&mut state).await?;
        Ok(state.sealed)
    }

    /// Returns the number of revisions that were imported as rows, by the reason.
    #[must_use]
    pub async fn imported_as_rows(&self) -> BTreeMap<RowReason, u64> {
        self.state.lock().await.rows.clone()
    }

    /// Takes the revisions that were imported as rows, or compared with stored ones, since the last call. Those in rows
    /// may be sealed now.
    pub async fn take_rows(&self) -> ImportedRows {
        std::mem::take(&mut self.state.lock().await.unsealed)
    }

    /// Takes the pages that were stored before, and of which further revisions are in blocks of their own now: the first
    /// of them, in the order of the import.
    pub async fn take_grown(&self) -> Vec<Page> {
        std::mem::take(&mut self.state.lock().await.grown)
    }

    /// Returns the number of revisions that were reported as `Created` and cannot be read yet. If the import
    /// fails or is interrupted, these revisions are not stored.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.counts.taken.load(Relaxed).saturating_sub(self.counts.placed.load(Relaxed))
    }

    fn new_current_page(
        &self,
        page: &Page,
        row_reason: Option<RowReason>,
        stored: Option<StoredPage>,
    ) -> CurrentPage {
        let policy = self.settings.of_bucket(&page.domain, &page.bucket).policy;
        // Without a row reason, what is not stored yet goes into blocks.
        let has_rows = stored.as_ref().map_or(row_reason.is_some(), |stored| stored.has_rows);
        let (stored, index) = stored.map(|stored| (stored.latest, stored.index)).unzip();
        let mut small_parts = index.unwrap_or_default();
        let kept_at = small_parts.iter().filter_map(|row| row.kept_at).max();
        small_parts.retain(has_few_revisions);
        CurrentPage {
            page: page.clone(),
            row_reason,
            stored,
            has_rows,
            small_parts,
            earlier: None,
            highest: None,
            revs: HashSet::new(),
            tids: HashSet::new(),
            thinning: Thinning::new(policy, kept_at),
        }
    }

    async fn begin_page(&self, state: &mut State, page: &Page) -> Result<()> {
        if state.current.as_ref().is_some_and(|current| current.page == *page) {
            return Ok(());
        }
        self.end_page(state).await?;
        if state.has_waiting(page) {
            self.flush(state).await?;
        }
        if state.unfinished.highest_by_page.len() >= MAX_WAITING_PAGES
            || state.unfinished.bytes >= MAX_WAITING_BYTES
        {
            self.end_block(state).await?;
        }
        let stored = match state.new_pages.take(&self.archive.records, page).await? {
            true => None,
            false => StoredPage::read(&self.archive.blocks, page).await?,
        };
        state.sealed.pages += 1;
        // On a cluster, other processes may write to the stored page.
        let becomes_rows = stored.is_some() && !self.archive.records.is_alone();
        let row_reason = if becomes_rows { Some(RowReason::StoredPage) } else { None };
        state.current = Some(self.new_current_page(page, row_reason, stored));
        Ok(())
    }

    /// Takes a revision of the current page. Keeps back the highest revision so far, and adds any other
    /// revision to the block.
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
        current.revs.insert(rev);
        self.counts.taken.fetch_add(1, Relaxed);
        self.begin_earlier(state).await?;
        let Some(current) = &mut state.current else { return Ok(ImportOutcome::Created) };
        let highest = current.highest.as_ref();
        if highest.is_some_and(|highest| rev < highest.rev) {
            self.add_to_block(state, page, renders, None, RenderSelection::ByPolicy).await?;
            return Ok(ImportOutcome::Created);
        }
        let is_new = highest.map_or(current.stored.is_none(), |highest| highest.is_new);
        let highest =
            HighestRevision { page: page.clone(), rev, renders, written: None, is_new, is_sealed: false };
        if let Some(before) = current.highest.replace(highest) {
            let HighestRevision { renders, written, .. } = before;
            self.add_to_block(state, page, renders, written, RenderSelection::ByPolicy).await?;
        }
        Ok(ImportOutcome::Created)
    }

    /// Adds a revision of the current page to the block. `written` is set if the revision was also written
    /// into the tables.
    async fn add_to_block(
        &self,
        state: &mut State,
        page: &Page,
        renders: Vec<ImportUnit>,
        written: Option<WrittenRevision>,
        selection: RenderSelection,
    ) -> Result<()> {
        let at = written.as_ref().map_or_else(|| self.archive.records.clock.now(), |written| written.at);
        let (mut unit, mut texts) = unit_of_rows(renders, at)?;
        self.add_earlier(state, Some(unit.revision.record.rev)).await?;
        if state.unfinished.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            self.end_block(state).await?;
        }
        let mut released_chunks = match (&mut state.current, selection) {
            (Some(current), RenderSelection::ByPolicy) => current.thinning.thin(&mut unit, &mut texts),
            _ => Vec::new(),
        };
        released_chunks
            .append(&mut read_from_chunks(&self.archive.records.chunks, &mut unit, &mut texts).await?);
        if let Some(written) = written {
            state.unfinished.replaced.push((page.clone(), unit.clone()));
            state.unfinished.epoch.get_or_insert(written.epoch);
        }
        state.sealed.revisions += 1;
        state.sealed.renders += unit.renders.len() as u64;
        let size = texts.values().map(|text| text.len() as u64).sum::<u64>();
        state.sealed.raw_bytes += size;
        let rev = unit.revision.record.rev;
        state.unfinished.pending.release_chunks(page, rev, released_chunks);
        state.unfinished.push(page, unit, texts, size).await
    }

    /// Ends the current page, after all its revisions have been received. If idle pages are sealed, or if the page has
    /// a higher revision, also adds its highest revision to the block.
    async fn end_page(&self, state: &mut State) -> Result<()> {
        let is_superseded = state.current.as_ref().is_some_and(|current| {
            current.highest.as_ref().is_some_and(|highest| current.stored > Some(highest.rev))
        });
        if self.settings.idle.is_some() || is_superseded {
            self.seal_highest(state).await?;
        }
        let is_merged = self.end_earlier(state).await?;
        let Some(CurrentPage { highest: Some(highest), stored, .. }) = state.current.take() else {
            return Ok(());
        };
        if stored.is_some() && !is_merged && state.grown.len() < MAX_GROWN_PAGES {
            state.grown.push(highest.page.clone());
        }
        if !highest.is_sealed {
            *state.rows.entry(RowReason::Latest).or_default() += 1;
        }
        if highest.written.is_none() {
            state.unfinished.bytes += highest.renders.iter().map(size_of).sum::<u64>();
            state.unfinished.highest_by_page.push(highest);
        } else if state.unfinished.pending.ends_with(&highest.page) {
            // The highest revision is in the tables already. The entry only has the effect that the block,
            // which has other revisions of the page, is written.
            state.unfinished.highest_by_page.push(highest);
        }
        Ok(())
    }

    /// Adds the highest revision of the current page to the block, with all its renders.
    async fn seal_highest(&self, state: &mut State) -> Result<()> {
        let highest = |state: &State| state.current.as_ref().and_then(|current| current.highest.clone());
        let Some(rev) = state.current.as_ref().and_then(|of| Some(of.highest.as_ref()?.rev)) else {
            return Ok(());
        };
        self.add_earlier(state, Some(rev)).await?;
        let Some(before) = highest(state) else { return Ok(()) };
        let (unit, _) = unit_of_rows(before.renders, self.archive.records.clock.now())?;
        if state.unfinished.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            // This may write the highest revision into the tables, together with the full block.
            self.end_block(state).await?;
        }
        let Some(HighestRevision { page, renders, written, .. }) = highest(state) else { return Ok(()) };
        self.add_to_block(state, &page, renders, written, RenderSelection::All).await?;
        if let Some(CurrentPage { highest: Some(highest), .. }) = &mut state.current {
            highest.is_sealed = true;
            highest.renders = Vec::new();
        }
        Ok(())
    }

    /// Waits until the previous block is placed, and then starts to write the block that is being filled.
    /// Returns while the block is being written, so that the next revisions can be received.
    async fn end_block(&self, state: &mut State) -> Result<()> {
        state.wait_placed().await?;
        let mut unfinished =
            std::mem::replace(&mut state.unfinished, UnfinishedBlock::new(self.archive.block_version())?);
        let at = self.archive.records.clock.now();
        if let Some(CurrentPage { page, highest: Some(highest), .. }) = &mut state.current
            && unfinished.pending.ends_with(page)
        {
            // The highest revision is written into the tables with this block, unless it was written before.
            unfinished.highest_by_page.push(highest.clone());
            if highest.written.is_none() {
                let epoch = self.archive.blocks.epoch(&highest.page).await?;
                highest.written = Some(WrittenRevision { at, epoch });
            }
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
        state.placing = Some((titles, tokio::spawn(placement.place_block(unfinished, at))));
        Ok(())
    }

    async fn flush(&self, state: &mut State) -> Result<()> {
        self.end_block(state).await?;
        state.wait_placed().await
    }
}

impl State {
    /// Whether revisions of the page wait to be written.
    fn has_waiting(&self, page: &Page) -> bool {
        self.unfinished.highest_by_page.iter().any(|highest| highest.page == *page)
            || self.placing.as_ref().is_some_and(|(titles, _)| titles.contains(&page.title))
    }

    /// Returns why these revisions of the current page are imported as rows, or `None` if they go into blocks.
    fn row_reason(&self, revisions: &[ImportRevision]) -> Option<RowReason> {
        let current = self.current.as_ref()?;
        if current.row_reason.is_some() {
            return current.row_reason;
        }
        let mut revs = HashSet::new();
        let mut is_new = |rev| !current.revs.contains(&rev) && revs.insert(rev);
        if !revisions.iter().all(|revision| is_new(revision.record.rev)) {
            return Some(RowReason::Repeated);
        }
        if revisions.iter().any(|revision| UnitSize::of_import(revision).excess().is_some()) {
            return Some(RowReason::TooLarge);
        }
        (current.tids.len().max(current.revs.len()) >= MAX_KNOWN).then_some(RowReason::TooMany)
    }

    /// Waits until the previous block is placed.
    async fn wait_placed(&mut self) -> Result<()> {
        let Some((_, placing)) = self.placing.take() else { return Ok(()) };
        let made = placing.await.map_err(|error| StoreError::unavailable(error.to_string()))??;
        self.sealed = self.sealed + made;
        Ok(())
    }
}
