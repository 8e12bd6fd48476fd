//! Histories that go into blocks as they come: faster than importing and then sealing them.
//!
//! Of a page that is new, every revision but the highest goes into the block that is being filled. When the block
//! is full, it is written, read back and compared as any that is sealed; then the highest revision of each of its
//! pages is written into the tables, and then the pages come to name the block. So a page has its highest revision
//! before it has older ones, and an interrupted import leaves pages that lack some, which are imported as rows the next time.
//!
//! What does not come in order, or to a page that has something already, goes the way of any import.

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
use rashomon_clock::Timestamp;
use rashomon_records::ImportUnit;
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError};
use tokio::{sync::Mutex, task::JoinHandle};

use super::{
    Archive, ArchivePolicy, ArchiveSettings, Sealed,
    decide::Texts,
    deletes::{self, Anew, Standing},
    entries::{ArchivedBody, Bodies, Place, Unit},
    erase::Epoch,
    index::IndexRow,
    large::take_in,
    made::blocking,
    pending::{Gone, Pending},
    policy::Thinning,
    rows::BlockId,
    seal::{let_go, release_owner},
    size::UnitSize,
    units::Pages,
};
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, ImportOutcome, ImportRevision, Page, PropertyName, Result, Revision, Staged, Tid,
    Title,
    content::{Bodies as NewBodies, ChunkSet, Stored},
    rows::{TypedRow, partition_of, rows_of},
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// Pages that are written side by side.
const PAGES_AT_A_TIME: usize = 16;

/// Pages with one revision that wait for others to be written with.
const MAX_WAITING: usize = 512;

/// The bytes of their bodies.
const MAX_WAITING_BYTES: u64 = 8 << 20;

/// A revision with so many bytes of texts goes into the block on another thread, beside what comes next. With smaller ones
/// the way there would take as long, and as many threads would hold what they come to free.
const BESIDE: u64 = 64 << 10;

/// The renders of a page whose tids are compared with those that come. One with more goes the way of any import.
const MAX_TIDS: usize = 1 << 20;

/// Puts histories into blocks as they come.
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
    current: Option<Current>,
    filling: Filling,
    /// The block before, while its pages come to name it.
    placing: Option<(HashSet<Title>, JoinHandle<Result<Sealed>>)>,
    sealed: Sealed,
}

/// The page whose revisions come.
#[derive(Debug)]
struct Current {
    page: Page,
    /// Nothing of it stands, and all that came was in order.
    to_blocks: bool,
    head: Option<Head>,
    /// Those of its tids that are not made from its revisions.
    tids: HashSet<Tid>,
    thinning: Thinning,
}

/// The highest revision of a page so far, which stays in its tables.
#[derive(Debug, Clone)]
struct Head {
    page: Page,
    rev: Revision,
    /// Its renders, as rows.
    renders: Vec<ImportUnit>,
    /// When it was written, if it was.
    written_at: Option<Timestamp>,
    /// As it was before that: another process may erase what stands.
    epoch: Option<Epoch>,
    /// The page has nothing yet.
    is_new: bool,
}

/// The block that is being filled, and what is written with it.
#[derive(Debug)]
struct Filling {
    pending: Pending,
    /// The pages that have ended.
    heads: Vec<Head>,
    bytes: u64,
    /// Revisions of the block that stand as rows, since each was the highest when a block before was full.
    replaced: Vec<(Page, Unit)>,
    /// As it was before the first of those was written.
    epoch: Option<Epoch>,
}

/// Imports revisions as rows.
#[async_trait]
pub trait RowImporter: Debug + Send + Sync {
    /// Checks a revision, and makes the rows of its renders. The error says what is wrong with the revision.
    fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<ImportUnit>, String>;

    /// Stores revisions of a page as rows.
    async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>>;

    /// Writes rows of a page that were made by [`Self::new_units`]. `is_new`: the page has none yet.
    async fn write_units(
        &self,
        page: &Page,
        units: Vec<ImportUnit>,
        is_new: bool,
        at: Timestamp,
    ) -> Result<()>;
}

impl HistoryArchiver {
    /// Takes histories into blocks as they come. `None` if the archive is off. `rows` imports what cannot go into blocks.
    #[must_use]
    pub fn new(archive: Arc<Archive>, rows: Arc<dyn RowImporter>) -> Option<Self> {
        let settings = archive.settings.clone()?;
        let (filling, sealed) = (Filling::new().ok()?, Sealed::default());
        let state = Mutex::new(State { current: None, filling, placing: None, sealed });
        Some(Self { archive, rows, state, counts: Arc::default(), settings })
    }

    /// Receives a body that is in memory already. It is not compressed by itself, unless it is large.
    #[boxed]
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &[u8]) -> Result<Staged> {
        let limit = self.archive.records.definitions.get(name).max_size;
        match Staged::plain(body).filter(|staged| staged.size <= limit) {
            Some(staged) => Ok(staged),
            None => self.archive.records.stage_bytes(page, name, body).await,
        }
    }

    /// As [`Revisioned::import`]. What is `Created` can be read when [`Self::finish`] is done, most of it before.
    #[boxed]
    pub async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        if revisions.iter().any(|revision| revision.renders.is_empty()) {
            return Err(Error::Invalid("a revision of history has at least one render".to_owned()));
        }
        let mut state = self.state.lock().await;
        self.turn_to(&mut state, page).await?;
        if !state.goes_to_blocks(&revisions) {
            if state.current.as_ref().is_some_and(|current| current.to_blocks) {
                // What came before has to stand, so that the rest can be compared with it.
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

    /// Writes what is left, and says what was put into blocks.
    #[boxed]
    pub async fn finish(&self) -> Result<Sealed> {
        let mut state = self.state.lock().await;
        state.end_page();
        self.flush(&mut state).await?;
        Ok(state.sealed)
    }

    /// Revisions that were `Created` and cannot be read yet: where it fails, or is cut off, they never were.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.counts.taken.load(Relaxed).saturating_sub(self.counts.placed.load(Relaxed))
    }

    fn beginning(&self, page: &Page, to_blocks: bool) -> Current {
        Current::new(page, to_blocks, self.settings.of_bucket(&page.domain, &page.bucket).policy)
    }

    async fn turn_to(&self, state: &mut State, page: &Page) -> Result<()> {
        if state.current.as_ref().is_some_and(|current| current.page == *page) {
            return Ok(());
        }
        state.end_page();
        if state.knows(page) {
            self.flush(state).await?;
        }
        if state.filling.heads.len() >= MAX_WAITING || state.filling.bytes >= MAX_WAITING_BYTES {
            self.end_block(state).await?;
        }
        let is_new = self.archive.records.first(&RENDERS, page, ClusteringRange::all()).await?.is_none();
        state.sealed.pages += 1;
        state.current = Some(self.beginning(page, is_new));
        Ok(())
    }

    /// Takes a revision as the highest of its page; the one that was goes into the block.
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
            let what = format!("render {tid} is one of another revision already");
            return Ok(ImportOutcome::Conflict(what));
        }
        current.tids.extend(tids());
        let is_new = current.head.as_ref().is_none_or(|head| head.is_new && head.written_at.is_none());
        let head = Head { page: page.clone(), rev, renders, written_at: None, epoch: None, is_new };
        self.counts.taken.fetch_add(1, Relaxed);
        if let Some(before) = current.head.replace(head) {
            self.put_into_block(state, before).await?;
        }
        Ok(ImportOutcome::Created)
    }

    async fn put_into_block(&self, state: &mut State, head: Head) -> Result<()> {
        let at = head.written_at.unwrap_or_else(|| self.archive.records.clock.now());
        let (mut unit, mut texts) = as_sealed(&head.renders, at)?;
        if state.filling.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            self.end_block(state).await?;
        }
        let mut gone = match &mut state.current {
            Some(current) => current.thinning.thin(&mut unit, &mut texts),
            None => Vec::new(),
        };
        gone.append(&mut take_in(&self.archive.records.chunks, &mut unit, &mut texts).await?);
        if head.written_at.is_some() {
            state.filling.replaced.push((head.page.clone(), unit.clone()));
            state.filling.epoch = state.filling.epoch.take().or(head.epoch);
        }
        state.sealed.revisions += 1;
        state.sealed.renders += unit.renders.len() as u64;
        let size = texts.values().map(|text| text.len() as u64).sum::<u64>();
        state.sealed.raw_bytes += size;
        let page = head.page;
        state.filling.pending.let_go(&page, head.rev, gone);
        if size < BESIDE {
            return state.filling.pending.push(&page, unit, &texts);
        }
        let mut pending = std::mem::replace(&mut state.filling.pending, Pending::new()?);
        state.filling.pending = blocking(move || pending.push(&page, unit, &texts).map(|()| pending)).await?;
        Ok(())
    }

    /// Has the block that is being filled written beside what comes next.
    async fn end_block(&self, state: &mut State) -> Result<()> {
        state.placed().await?;
        let mut filling = std::mem::replace(&mut state.filling, Filling::new()?);
        let at = self.archive.records.clock.now();
        if let Some(Current { page, head: Some(head), .. }) = &mut state.current
            && filling.pending.has(page)
        {
            filling.heads.push(Head { written_at: Some(at), ..head.clone() });
            head.written_at = Some(at);
            head.epoch = Some(self.archive.blocks.epoch(&head.page).await?);
            head.is_new = false;
        }
        if filling.heads.is_empty() {
            return Ok(());
        }
        let titles = filling.heads.iter().map(|head| head.page.title.clone()).collect();
        let placing = Placing {
            archive: Arc::clone(&self.archive),
            rows: Arc::clone(&self.rows),
            counts: Arc::clone(&self.counts),
        };
        state.placing = Some((titles, tokio::spawn(placing.all(filling, at))));
        Ok(())
    }

    async fn flush(&self, state: &mut State) -> Result<()> {
        self.end_block(state).await?;
        state.placed().await
    }
}

impl Current {
    fn new(page: &Page, to_blocks: bool, policy: ArchivePolicy) -> Self {
        let thinning = Thinning::new(policy, None);
        Self { page: page.clone(), to_blocks, head: None, tids: HashSet::new(), thinning }
    }
}

impl Filling {
    fn new() -> Result<Self> {
        Ok(Self { pending: Pending::new()?, heads: Vec::new(), bytes: 0, replaced: Vec::new(), epoch: None })
    }
}

impl State {
    /// The page has all its revisions.
    fn end_page(&mut self) {
        let Some(head) = self.current.take().and_then(|current| current.head) else { return };
        if head.written_at.is_none() {
            self.filling.bytes += head.renders.iter().map(size_of).sum::<u64>();
            self.filling.heads.push(head);
        } else if self.filling.pending.has(&head.page) {
            // It stands, and what the block has of the page can be named.
            self.filling.heads.push(head);
        }
    }

    /// Whether something of a page waits to be written.
    fn knows(&self, page: &Page) -> bool {
        self.filling.heads.iter().any(|head| head.page == *page)
            || self.placing.as_ref().is_some_and(|(titles, _)| titles.contains(&page.title))
    }

    /// Whether revisions are such as can go into blocks one after the other.
    fn goes_to_blocks(&self, revisions: &[ImportRevision]) -> bool {
        let Some(current) = self.current.as_ref().filter(|current| current.to_blocks) else { return false };
        let mut last = current.head.as_ref().map(|head| head.rev);
        let rises = revisions.iter().all(|revision| {
            let rev = revision.record.rev;
            last.replace(rev).is_none_or(|last| last < rev)
        });
        let is_small = |revision: &ImportRevision| UnitSize::of_import(revision).excess().is_none();
        rises && revisions.iter().all(is_small) && current.tids.len() < MAX_TIDS
    }

    /// Waits for the block before.
    async fn placed(&mut self) -> Result<()> {
        let Some((_, placing)) = self.placing.take() else { return Ok(()) };
        let made = placing.await.map_err(|error| StoreError::unavailable(error.to_string()))??;
        self.sealed = self.sealed + made;
        Ok(())
    }
}

/// Has pages name a block.
struct Placing {
    archive: Arc<Archive>,
    rows: Arc<dyn RowImporter>,
    counts: Arc<Counts>,
}

impl Placing {
    /// Makes the block, writes the highest revisions of its pages, and has these name it. Gives what was made.
    async fn all(self, mut filling: Filling, at: Timestamp) -> Result<Sealed> {
        let gone = filling.pending.take_gone();
        let made = self.archive.make_block(filling.pending).await?;
        self.heads(&filling.heads, at).await?;
        let Some(made) = made else { return Ok(Sealed::default()) };
        made.deadline().check(&*self.archive.records.clock)?;
        if let (Some((page, _)), Some(epoch)) = (filling.replaced.first(), &filling.epoch) {
            self.archive.blocks.check_epoch(page, epoch).await?;
        }
        self.pages(&made.pages, made.id, &filling.replaced, &gone).await?;
        self.archive.blocks.settle(made.id, made.noted_at).await?;
        Ok(Sealed { blocks: 1, stored_bytes: made.bytes, ..Sealed::default() })
    }

    async fn heads(&self, heads: &[Head], at: Timestamp) -> Result<()> {
        let mut written = Vec::with_capacity(heads.len());
        for head in heads {
            written.push(self.head(head, at).boxed());
        }
        stream::iter(written).buffer_unordered(PAGES_AT_A_TIME).try_collect().await
    }

    async fn head(&self, head: &Head, at: Timestamp) -> Result<()> {
        // One that was written with the block before stands as it was.
        if head.written_at.is_none_or(|written_at| written_at == at) {
            let renders = head.renders.iter().cloned().map(compressed_unit).collect();
            self.rows.write_units(&head.page, renders, head.is_new, at).await?;
            self.counts.placed.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    async fn pages(&self, pages: &Pages, id: BlockId, replaced: &[(Page, Unit)], gone: &Gone) -> Result<()> {
        let mut named = Vec::with_capacity(pages.len());
        for (page, units) in pages {
            let replaced = replaced.iter().filter(|(of, _)| of == page).map(|(_, unit)| unit).collect();
            let gone = gone.get(&page.title).map_or(&[][..], |gone| gone);
            named.push(self.page(page, units, id, replaced, gone).boxed());
        }
        stream::iter(named).buffer_unordered(PAGES_AT_A_TIME).try_collect().await
    }

    /// Has a page name a block, and takes from its tables what was its highest revision before that.
    async fn page(
        &self,
        page: &Page,
        units: &[Unit],
        id: BlockId,
        replaced: Vec<&Unit>,
        gone: &[(Revision, ChunkSet)],
    ) -> Result<()> {
        let Some(index) = IndexRow::of(id, units) else { return Ok(()) };
        let mut batch = Batch::new(partition_of(page));
        index.to_stored().put(&mut batch, self.archive.records.clock.now());
        for unit in units {
            self.check_chunks(unit)?;
            release_owner(&mut batch, unit);
        }
        // Later than what was written of its highest, which names chunks, a moment before.
        let written = units.iter().map(|unit| unit.last_written().just_after());
        let first =
            let_go(&mut batch, page, gone.iter(), written.fold(self.archive.records.clock.now(), Ord::max));
        for unit in &replaced {
            let standing = self.standing(page, unit).await?;
            let going = deletes::going(std::slice::from_ref(*unit), &standing, &Anew::new())?;
            deletes::delete(&mut batch, &going, &standing)?;
        }
        self.archive.blocks.store.write(first, batch).await?;
        let counted = units.len() - replaced.len();
        self.counts.placed.fetch_add(counted as u64, Relaxed);
        Ok(())
    }

    /// `Unavailable` where chunks of a body were received too long ago to be named now.
    fn check_chunks(&self, unit: &Unit) -> Result<()> {
        for (_, _, body) in unit.all_bodies() {
            if let Place::Chunks(set) = &body.place {
                self.archive.records.chunks.check_begun(set.begun)?;
            }
        }
        Ok(())
    }

    /// The rows of one revision.
    async fn standing(&self, page: &Page, unit: &Unit) -> Result<Standing> {
        let record = &unit.revision.record;
        let of_rev = || ClusteringRange::all().at_least(record.rev.get()).at_most(record.rev.get());
        let of_time = ClusteringRange::all().at_least(record.timestamp).at_most(record.timestamp);
        let store = &*self.archive.blocks.store;
        let mut by_tid = Vec::new();
        for (render, _) in &unit.renders {
            let tid = ClusteringRange::prefix(vec![render.tid.as_time_uuid().into()]);
            by_tid.extend(rows_of(store, &REVISIONS_BY_TID, page, tid, INDEX_PAGE_ROWS).await?);
        }
        Ok(Standing {
            revisions: rows_of(store, &REVISIONS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            renders: rows_of(store, &RENDERS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            by_time: rows_of(store, &REVISIONS_BY_TIME, page, of_time, INDEX_PAGE_ROWS).await?,
            by_tid,
        })
    }
}

/// A revision as a block has it, and its texts, as of a time.
fn as_sealed(renders: &[ImportUnit], at: Timestamp) -> Result<(Unit, Texts)> {
    let mut texts = Texts::new();
    let first = renders.first().and_then(|unit| Some((unit.revision.clone()?, &unit.of_revision)));
    let Some((mut revision, of_revision)) = first else {
        return Err(Error::Invalid("a revision of history has at least one render".to_owned()));
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
            (Stored::Chunks(set), _) => Place::Chunks(set.clone()),
            (_, text) => {
                texts.insert((name.clone(), of), text.unwrap_or_default());
                Place::Entry(0)
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
