//! Adds a state to a backup. In this crate, a page is a database page of SQLite, not a wiki page.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{Changes, Options, PageReader};
use rashomon_clock::{Clock, rfc3339};

use crate::backup::{
    BackupError, OnProgress, Progress,
    error::Result,
    folder::Folder,
    pack::{PackReader, PackWriter, StoredPage, hash},
    page_set::PageSet,
    state::{State, StateInfo},
};

/// The number of bytes of pages that are read in one snapshot. A snapshot then lasts some milliseconds.
const SNAPSHOT_BYTES: usize = 1 << 20;

/// When at most this many bytes of pages are left to copy, the last snapshot is opened. ([`CopyRun::run`] opens it
/// earlier if the list does not get much shorter.) While a snapshot is open, SQLite cannot write its log from the
/// beginning again, so the log grows.
const LAST_SNAPSHOT_BYTES: usize = 4 << 20;

/// While written pages are checked, the progress is reported at those whose page number is a multiple of this.
const REPORT_PAGES: u32 = 64;

/// The longest time for which the last snapshot stays open. This is less than the 5 seconds for which the first write
/// of a newly started server waits for the snapshot to end.
const MAX_LAST_SNAPSHOT: Duration = Duration::from_secs(3);

/// The maximum number of bytes by which the log may grow during the last snapshot.
const MAX_LOG_GROWTH: u64 = 1 << 30;

/// The maximum number of passes over the list of pages.
const MAX_PASSES: usize = 20;

/// The longest time between two calls of [`PageReader::changes`] while the run waits.
const MAX_CHANGES_INTERVAL: Duration = Duration::from_millis(5);

/// What to back up.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// The directory of the store.
    pub store: PathBuf,
    /// The folder of the backup.
    pub folder: PathBuf,
    /// The maximum number of bytes of the store that are read in a second. Database pages that change after they were
    /// read are read again without this limit. Otherwise the backup of a store that changes faster would never be
    /// complete.
    pub bytes_per_second: Option<NonZeroUsize>,
    /// How many states to keep. Earlier states are deleted at the end. `None`: all.
    pub keep: Option<NonZeroUsize>,
    /// Accepts a folder whose newest state is that of a store in another directory.
    pub is_moved: bool,
    /// Backs up a store whose log is missing, without the writes that were in the log.
    pub accept_lost_log: bool,
}

/// What a backup did.
#[derive(Debug, Clone)]
pub struct TakeReport {
    /// The new state.
    pub state: StateInfo,
    /// The number of database pages that were read, some of them repeatedly.
    pub read_pages: u64,
    /// By how much the log of the store has grown during the last snapshot, in bytes.
    pub log_bytes: u64,
    /// How long the last snapshot was open.
    pub last_snapshot: Duration,
    /// The number of earlier states that were deleted.
    pub deleted_states: usize,
}

/// Adds a state to the backup in a folder, and creates the folder if necessary. Blocks the thread.
///
/// A server may use the store meanwhile, and may start and stop. Every write that was acknowledged before the
/// call is part of the state. Writes that are acknowledged during the call may be part of it.
///
/// Only database pages that differ from the latest state are written. The written pages are read again and compared
/// with their hashes. Only then is the file of the state written and renamed to its final name.
///
/// If the work is interrupted in any way, the next call uses the pages that are already written.
///
/// # Errors
///
/// See [`BackupError`]. The earlier states are unchanged, except those that `keep` has deleted already. With
/// [`BackupError::NotDeleted`], the new state is complete. The next call deletes the rest.
pub fn take(
    options: &TakeOptions,
    clock: &Arc<dyn Clock>,
    on_progress: OnProgress<'_>,
) -> Result<TakeReport> {
    let of_store = Options { accept_lost_log: options.accept_lost_log, ..Options::default() };
    let reader = PageReader::open(&options.store, &of_store)?;
    let folder = Folder::open_or_create(&options.folder)?;
    let store = options.store.canonicalize().unwrap_or_else(|_| options.store.clone());
    let store = store.to_string_lossy().into_owned();
    let states = folder.states()?;
    if let Some(other) = states.last().filter(|latest| latest.store != store && !options.is_moved) {
        let (folder, store) = (options.folder.clone(), other.store.clone());
        return Err(BackupError::OtherStore { folder, store });
    }
    let number = next_number(states.last().map(|state| state.number));
    let known = ExistingPages::read(&folder, &states, reader.page_bytes())?;
    let mut copy = CopyRun::new(reader, known, &folder, options, Arc::clone(clock), on_progress)?;
    let last = copy.run()?;
    let CopyRun { reader, pages, writer, pack, written_pages, progress, on_progress, .. } = copy;
    // A file without pages is deleted below, since no state refers to it.
    let written_bytes = if written_pages == 0 { 0 } else { writer.bytes() };
    writer.finish()?;
    let pages: Vec<_> = pages.into_iter().map(|page| page.expect("every page was copied")).collect();
    let packs = State::packs_of(&pages);
    folder.sync_packs(&packs)?;
    check_written(&folder, pack, &pages, progress, on_progress)?;
    let info = StateInfo {
        format: State::VERSION,
        number,
        time: last.time,
        store,
        page_bytes: reader.page_bytes(),
        pages: u32::try_from(pages.len()).expect("SQLite counts pages with 32 bits"),
        written_pages,
        written_bytes,
        packs,
    };
    let state = State { info, pages };
    folder.add_state(&state)?;
    let deleted_states = delete_unneeded(&folder, options.keep)
        .map_err(|error| BackupError::NotDeleted { number, source: Box::new(error) })?;
    Ok(TakeReport {
        state: state.info,
        read_pages: progress.pages,
        log_bytes: last.log_bytes,
        last_snapshot: last.duration,
        deleted_states,
    })
}

/// Deletes all states but the latest `keep`, and the files of pages that no state refers to. Returns the number of
/// deleted states.
fn delete_unneeded(folder: &Folder, keep: Option<NonZeroUsize>) -> Result<usize> {
    let deleted_states = keep.map_or(Ok(0), |keep| folder.keep_latest(keep.get()))?;
    folder.remove_unused_packs()?;
    Ok(deleted_states)
}

/// Reads the pages that this run has written, and compares them with their hashes.
fn check_written(
    folder: &Folder,
    pack: u32,
    pages: &[StoredPage],
    progress: Progress,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let path = folder.pack_path(pack);
    let reader = PackReader::open(&path)?;
    let reader = reader.ok_or_else(|| BackupError::damaged(&path, "it is missing"))?;
    for (page, stored) in (1..).zip(pages).filter(|(_, stored)| stored.pack == pack) {
        reader.read(page, stored)?;
        if page.is_multiple_of(REPORT_PAGES) && !on_progress(progress) {
            return Err(BackupError::Interrupted);
        }
    }
    Ok(())
}

/// The number after the latest number.
fn next_number(latest: Option<u32>) -> u32 {
    latest.map_or(1, |latest| latest.saturating_add(1))
}

/// The measurements of the last snapshot.
struct LastSnapshot {
    time: String,
    log_bytes: u64,
    duration: Duration,
}

/// A run that copies the pages of a store.
struct CopyRun<'a> {
    reader: PageReader,
    clock: Arc<dyn Clock>,
    on_progress: OnProgress<'a>,
    progress: Progress,
    bytes_per_second: Option<NonZeroUsize>,
    started: Duration,
    /// The location in the backup of the newest copy of each page. Index 0 is page 1. At first, these are the locations
    /// of the latest state. `None`: the backup has no usable copy.
    pages: Vec<Option<StoredPage>>,
    /// The pages that an interrupted run has written.
    left_over: HashMap<u32, StoredPage>,
    /// The pages that have to be read.
    todo: PageSet,
    writer: PackWriter,
    /// The number of the file that `writer` writes.
    pack: u32,
    written_pages: u64,
}

impl<'a> CopyRun<'a> {
    fn new(
        reader: PageReader,
        known: ExistingPages,
        folder: &Folder,
        options: &TakeOptions,
        clock: Arc<dyn Clock>,
        on_progress: OnProgress<'a>,
    ) -> Result<Self> {
        // The number of a deleted file is not used again: a copy of the folder elsewhere may still have that file.
        let latest = folder.packs()?.into_iter().chain(folder.numbers()?).chain(known.packs).max();
        let pack = next_number(latest);
        let writer = PackWriter::create(folder.pack_path(pack), pack, reader.page_bytes())?;
        let count = reader.pages()?;
        Ok(Self {
            started: clock.monotonic(),
            reader,
            clock,
            on_progress,
            progress: Progress { total: u64::from(count), ..Progress::default() },
            bytes_per_second: options.bytes_per_second,
            pages: known.pages,
            left_over: known.left_over,
            todo: PageSet::up_to(count),
            writer,
            pack,
            written_pages: 0,
        })
    }

    /// The number of pages that have this many bytes together, at least 1.
    fn pages_of(&self, bytes: usize) -> usize {
        (bytes / self.reader.page_bytes()).max(1)
    }

    /// Copies all pages, until the backup has the content of one snapshot.
    fn run(&mut self) -> Result<LastSnapshot> {
        let mut is_first = true;
        let last_pages = self.pages_of(LAST_SNAPSHOT_BYTES);
        for _ in 0..MAX_PASSES {
            self.add_changed_pages()?;
            let pages = self.todo.len();
            if pages > last_pages {
                self.copy_listed(is_first)?;
                is_first = false;
            }
            // If the list is not much shorter than before, the store changes about as fast as its pages are
            // copied. The rest is then copied from one snapshot, within its limits.
            if (self.todo.len() <= last_pages || self.todo.len() > pages / 2)
                && let Some(last) = self.copy_last()?
            {
                return Ok(last);
            }
        }
        Err(BackupError::TooManyChanges)
    }

    /// Copies the pages that are on the list, a few from each snapshot. Waits between snapshots if `waits` is set, as
    /// [`Self::throttle`] says.
    fn copy_listed(&mut self, waits: bool) -> Result<()> {
        let last = self.reader.pages()?;
        let mut page = 0;
        loop {
            self.reader.begin()?;
            // The file may have become shorter.
            let last = last.min(self.reader.pages()?);
            for _ in 0..self.pages_of(SNAPSHOT_BYTES) {
                let Some(next) = self.todo.next_after(page).filter(|next| *next <= last) else {
                    self.reader.end()?;
                    return self.add_changed_pages();
                };
                self.copy_page(next)?;
                page = next;
            }
            self.reader.end()?;
            self.report()?;
            self.add_changed_pages()?;
            if waits {
                self.throttle()?;
            }
        }
    }

    /// Opens the last snapshot, and copies the rest of the list from it. Returns `None` if this takes too long, or if
    /// the log grows too much. The list then has the pages that are left, and the pages of the last report of changes.
    /// The next call of [`PageReader::changes`] reports later changes.
    fn copy_last(&mut self) -> Result<Option<LastSnapshot>> {
        let began = self.clock.monotonic();
        let time = rfc3339::format(self.clock.now());
        let log_before = self.reader.log_bytes()?;
        self.reader.begin()?;
        // These are the changes up to the snapshot, and perhaps some after it.
        let changes = self.reader.changes()?;
        self.add_changes(&changes)?;
        let count = self.reader.pages()?;
        self.todo.truncate(count);
        self.pages.resize(count as usize, None);
        // SQLite never writes the lock-byte page, which is at the offset 1 GiB of the file. So no change names this
        // page when the file grows past 1 GiB, and it is put on the list here.
        for (page, _) in (1..).zip(&self.pages).filter(|(_, stored)| stored.is_none()) {
            self.todo.insert(page);
        }
        self.progress.total = u64::from(count);
        let (mut page, mut copied) = (0, 0_usize);
        while let Some(next) = self.todo.next_after(page) {
            page = next;
            self.copy_page(page)?;
            copied += 1;
            if copied.is_multiple_of(self.pages_of(SNAPSHOT_BYTES)) {
                self.report()?;
                let log_bytes = self.reader.log_bytes()?.saturating_sub(log_before);
                let took = self.clock.monotonic().saturating_sub(began);
                if log_bytes > MAX_LOG_GROWTH || took > MAX_LAST_SNAPSHOT {
                    self.reader.end()?;
                    // `changes` was read after the snapshot was opened, so it may name pages that changed after that.
                    // Their copies are out of date, and the next report does not name them again.
                    self.add_changes(&changes)?;
                    return Ok(None);
                }
            }
        }
        let log_bytes = self.reader.log_bytes()?.saturating_sub(log_before);
        self.reader.end()?;
        self.report()?;
        Ok(Some(LastSnapshot { time, log_bytes, duration: self.clock.monotonic().saturating_sub(began) }))
    }

    /// Puts on the list the pages that have changed since the last call.
    fn add_changed_pages(&mut self) -> Result<()> {
        let changes = self.reader.changes()?;
        self.add_changes(&changes)
    }

    fn add_changes(&mut self, changes: &Changes) -> Result<()> {
        match changes {
            Changes::Pages(pages) => pages.iter().for_each(|page| self.todo.insert(*page)),
            Changes::Unknown => {
                // Every page is read and compared again. Only changed pages are written.
                self.todo = PageSet::up_to(self.reader.pages()?);
            }
        }
        Ok(())
    }

    /// Copies a page from the open snapshot, unless the backup has it.
    fn copy_page(&mut self, page: u32) -> Result<()> {
        self.todo.remove(page);
        let index = page as usize - 1;
        if index >= self.pages.len() {
            self.pages.resize(index + 1, None);
        }
        let known = [self.pages[index], self.left_over.get(&page).copied()];
        let (writer, written_pages) = (&mut self.writer, &mut self.written_pages);
        let stored = self.reader.read(page, |content| {
            let hash = hash(content);
            match known.into_iter().flatten().find(|known| known.hash == hash) {
                Some(known) => Ok(known),
                None => {
                    *written_pages += 1;
                    writer.push(page, content, hash)
                }
            }
        })??;
        self.pages[index] = Some(stored);
        self.progress.pages += 1;
        self.progress.bytes += self.reader.page_bytes() as u64;
        Ok(())
    }

    fn report(&mut self) -> Result<()> {
        self.progress.total = self.progress.total.max(self.pages.len() as u64);
        self.progress.finished = self.progress.total.saturating_sub(self.todo.len() as u64);
        if (self.on_progress)(self.progress) { Ok(()) } else { Err(BackupError::Interrupted) }
    }

    /// Waits if the run is faster than its rate. Lists changed pages meanwhile, before the log overwrites them.
    fn throttle(&mut self) -> Result<()> {
        let Some(rate) = self.bytes_per_second else { return Ok(()) };
        let due = Duration::from_secs_f64(self.progress.bytes as f64 / rate.get() as f64);
        loop {
            let elapsed = self.clock.monotonic().saturating_sub(self.started);
            let Some(rest) = due.checked_sub(elapsed).filter(|rest| !rest.is_zero()) else { return Ok(()) };
            std::thread::sleep(rest.min(MAX_CHANGES_INTERVAL));
            self.add_changed_pages()?;
            self.report()?;
        }
    }
}

/// The pages that the folder has already.
struct ExistingPages {
    /// The locations of the pages of the latest state. Index 0 is page 1. `None`: the file with the page is missing, is
    /// truncated, has a damaged header, or has pages of another size. Empty if the pages of the store have another size
    /// than those of the latest state.
    pages: Vec<Option<StoredPage>>,
    /// The files of these pages.
    packs: Vec<u32>,
    /// The pages that an interrupted run has written.
    left_over: HashMap<u32, StoredPage>,
}

impl ExistingPages {
    fn read(folder: &Folder, states: &[StateInfo], page_bytes: usize) -> Result<Self> {
        let mut known = Self { pages: Vec::new(), packs: Vec::new(), left_over: HashMap::new() };
        if let Some(latest) = states.last().filter(|latest| latest.page_bytes == page_bytes) {
            let state = folder.state(Some(latest.number))?;
            let mut ends = HashMap::new();
            for pack in &state.info.packs {
                let reader = open_usable_pack(&folder.pack_path(*pack), page_bytes)?;
                ends.extend(reader.map(|reader| (*pack, reader.end())));
            }
            let is_there = |page: &StoredPage| ends.get(&page.pack).is_some_and(|end| page.offset < *end);
            known.pages = state.pages.into_iter().map(|page| Some(page).filter(is_there)).collect();
            known.packs = state.info.packs;
        }
        let used = |pack: &u32| states.iter().any(|state| state.packs.contains(pack));
        for pack in folder.packs()?.into_iter().filter(|pack| !used(pack)) {
            if let Some(reader) = open_usable_pack(&folder.pack_path(pack), page_bytes)? {
                known.left_over.extend(reader.pages(pack));
            }
        }
        Ok(known)
    }
}

/// Opens a file of pages. `None` if the file is missing, has a damaged header, or has pages of another size. The backup
/// then writes the pages of the file again.
fn open_usable_pack(path: &Path, page_bytes: usize) -> Result<Option<PackReader>> {
    match PackReader::open(path) {
        Err(BackupError::Damaged { .. }) => Ok(None),
        opened => Ok(opened?.filter(|reader| reader.page_bytes() == page_bytes)),
    }
}
