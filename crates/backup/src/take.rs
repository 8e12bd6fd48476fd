//! Adds a state to a backup.

use std::{collections::HashMap, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use rashomon_clock::{Clock, rfc3339};
use rashomon_tables_sqlite::{Changes, Options, PageReader};

use crate::{
    BackupError, OnProgress, Progress,
    error::Result,
    folder::Folder,
    pack::{PackReader, PackWriter, StoredPage, hash},
    page_set::PageSet,
    state::{State, StateInfo},
};

/// How many pages are read in one snapshot: about 1 MB. A snapshot then lasts some milliseconds.
const SNAPSHOT_PAGES: usize = 64;

/// The last snapshot is opened when at most this many pages are left to copy: about 4 MB. The log cannot be
/// reset until they are copied.
const LAST_PAGES: usize = 256;

/// What to back up.
#[derive(Debug, Clone)]
pub struct TakeOptions {
    /// The directory of the store.
    pub store: PathBuf,
    /// The folder of the backup.
    pub folder: PathBuf,
    /// How many bytes of the store are read in a second, at most. Pages that change after they were read are
    /// read again without this limit: otherwise a store that changes faster would never be complete.
    pub bytes_per_second: Option<NonZeroUsize>,
    /// How many states to keep. Earlier states are deleted at the end. `None`: all.
    pub keep: Option<NonZeroUsize>,
    /// Backs up a store whose log is missing, without the writes that were in the log.
    pub accept_lost_log: bool,
}

/// What a backup did.
#[derive(Debug, Clone)]
pub struct TakeReport {
    /// The new state.
    pub state: StateInfo,
    /// The number of pages that were read, some of them repeatedly.
    pub read_pages: u64,
    /// The greatest length of the store's log during the last snapshot, in bytes.
    pub log_bytes: u64,
    /// How long the last snapshot was open.
    pub last_snapshot: Duration,
    /// The number of earlier states that were deleted.
    pub deleted_states: usize,
}

/// Adds a state to the backup in a folder, and creates the folder if necessary. Blocks the thread.
///
/// A server may use the store meanwhile, and may start and stop. Every write that was acknowledged before the
/// call is part of the state. Writes that are acknowledged during the call may be part of it. Only pages that
/// no earlier state has are written, and they are read again and compared before the state gets its name.
///
/// If the work is interrupted in any way, the next call continues with the pages that are written.
///
/// # Errors
///
/// See [`BackupError`]. The earlier states are unchanged.
pub fn take(
    options: &TakeOptions,
    clock: &Arc<dyn Clock>,
    on_progress: OnProgress<'_>,
) -> Result<TakeReport> {
    let of_store = Options { accept_lost_log: options.accept_lost_log, ..Options::default() };
    let reader = PageReader::open(&options.store, &of_store)?;
    let folder = Folder::open_or_create(&options.folder)?;
    let number = 1 + folder.states()?.last().map_or(0, |state| state.number);
    let mut copy = Copy::new(reader, &folder, options, Arc::clone(clock), on_progress)?;
    let last = copy.run()?;
    let Copy { reader, pages, writer, pack, written_pages, progress, .. } = copy;
    // A file without pages is deleted below, since no state refers to it.
    let written_bytes = if written_pages == 0 { 0 } else { writer.bytes() };
    writer.finish()?;
    folder.sync_packs()?;
    let pages: Vec<_> = pages.into_iter().map(|page| page.expect("every page was copied")).collect();
    check_written(&folder, pack, &pages)?;
    let info = StateInfo {
        format: State::VERSION,
        number,
        time: last.time,
        store: options.store.canonicalize().unwrap_or_else(|_| options.store.clone()),
        page_bytes: reader.page_bytes(),
        pages: u32::try_from(pages.len()).expect("SQLite counts pages with 32 bits"),
        written_pages,
        written_bytes,
        packs: State::packs_of(&pages),
    };
    let state = State { info, pages };
    folder.add(&state)?;
    let deleted_states = options.keep.map_or(Ok(0), |keep| folder.keep_latest(keep.get()))?;
    folder.remove_unused_packs()?;
    Ok(TakeReport {
        state: state.info,
        read_pages: progress.pages,
        log_bytes: last.log_bytes,
        last_snapshot: last.duration,
        deleted_states,
    })
}

/// Reads the pages that this run has written, and compares them with their hashes.
fn check_written(folder: &Folder, pack: u32, pages: &[StoredPage]) -> Result<()> {
    let path = folder.pack_path(pack);
    let reader = PackReader::open(&path)?;
    let reader = reader.ok_or_else(|| BackupError::damaged(&path, "it is missing"))?;
    for (page, stored) in (1..).zip(pages).filter(|(_, stored)| stored.pack == pack) {
        reader.read(page, stored)?;
    }
    Ok(())
}

/// The last snapshot.
struct LastSnapshot {
    time: String,
    log_bytes: u64,
    duration: Duration,
}

/// A run that copies the pages of a store.
struct Copy<'a> {
    reader: PageReader,
    clock: Arc<dyn Clock>,
    on_progress: OnProgress<'a>,
    progress: Progress,
    bytes_per_second: Option<NonZeroUsize>,
    started: Duration,
    /// Where each page is, from page 1.
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

impl<'a> Copy<'a> {
    fn new(
        reader: PageReader,
        folder: &Folder,
        options: &TakeOptions,
        clock: Arc<dyn Clock>,
        on_progress: OnProgress<'a>,
    ) -> Result<Self> {
        let known = Known::read(folder, reader.page_bytes())?;
        let pack = 1 + folder.packs()?.last().copied().unwrap_or(0);
        let writer = PackWriter::create(folder.pack_path(pack), pack, reader.page_bytes())?;
        let count = reader.pages()?;
        let mut todo = PageSet::default();
        (1..=count).for_each(|page| todo.insert(page));
        Ok(Self {
            started: clock.monotonic(),
            reader,
            clock,
            on_progress,
            progress: Progress { total: u64::from(count), ..Progress::default() },
            bytes_per_second: options.bytes_per_second,
            pages: known.pages,
            left_over: known.left_over,
            todo,
            writer,
            pack,
            written_pages: 0,
        })
    }

    /// Copies all pages, until the backup is as a snapshot.
    fn run(&mut self) -> Result<LastSnapshot> {
        let mut is_first = true;
        loop {
            self.note_changes()?;
            let pages = self.todo.len();
            if pages > LAST_PAGES {
                self.pass(is_first)?;
                is_first = false;
                self.note_changes()?;
            }
            // If the list is not much shorter than before, the store changes about as fast as its pages are
            // copied. The list is then copied from one snapshot, and the log grows meanwhile.
            if self.todo.len() <= LAST_PAGES || self.todo.len() > pages / 2 {
                self.reader.begin()?;
                // The changes up to the snapshot, and perhaps some after it.
                self.note_changes()?;
                return self.copy_last();
            }
        }
    }

    /// Copies the pages that are on the list now, a few from each snapshot.
    fn pass(&mut self, is_first: bool) -> Result<()> {
        let last = self.reader.pages()?;
        let mut page = 0;
        loop {
            self.reader.begin()?;
            for _ in 0..SNAPSHOT_PAGES {
                let Some(next) = self.todo.next_after(page).filter(|next| *next <= last) else {
                    return self.reader.end().map_err(BackupError::from);
                };
                self.copy(next)?;
                page = next;
            }
            self.reader.end()?;
            self.report()?;
            if is_first {
                self.wait();
            }
            self.note_changes()?;
        }
    }

    /// Copies the rest of the list from the open snapshot.
    fn copy_last(&mut self) -> Result<LastSnapshot> {
        let began = self.clock.monotonic();
        let time = rfc3339::format(self.clock.now());
        let count = self.reader.pages()?;
        self.todo.truncate(count);
        self.progress.total = u64::from(count);
        let mut page = 0;
        while let Some(next) = self.todo.next_after(page) {
            page = next;
            self.copy(page)?;
            if page.is_multiple_of(SNAPSHOT_PAGES as u32) {
                self.report()?;
            }
        }
        let log_bytes = self.reader.log_bytes();
        self.reader.end()?;
        self.pages.truncate(count as usize);
        self.report()?;
        Ok(LastSnapshot { time, log_bytes, duration: self.clock.monotonic().saturating_sub(began) })
    }

    /// Puts the pages on the list that have changed since the last call.
    fn note_changes(&mut self) -> Result<()> {
        match self.reader.changes()? {
            Changes::Pages(pages) => pages.into_iter().for_each(|page| self.todo.insert(page)),
            Changes::Unknown => {
                // Every page is read and compared again. Only changed pages are written.
                let count = self.reader.pages()?;
                (1..=count).for_each(|page| self.todo.insert(page));
            }
        }
        Ok(())
    }

    /// Copies a page from the open snapshot, unless the backup has it.
    fn copy(&mut self, page: u32) -> Result<()> {
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
        self.progress.log_bytes = self.reader.log_bytes();
        if (self.on_progress)(self.progress) { Ok(()) } else { Err(BackupError::Interrupted) }
    }

    /// Waits if the run is faster than its rate.
    fn wait(&self) {
        let Some(rate) = self.bytes_per_second else { return };
        let due = Duration::from_secs_f64(self.progress.bytes as f64 / rate.get() as f64);
        let elapsed = self.clock.monotonic().saturating_sub(self.started);
        std::thread::sleep(due.saturating_sub(elapsed));
    }
}

/// The pages that the folder has already.
struct Known {
    /// The pages of the latest state, from page 1. `None`: the file with the page is missing.
    pages: Vec<Option<StoredPage>>,
    /// The pages that an interrupted run has written.
    left_over: HashMap<u32, StoredPage>,
}

impl Known {
    fn read(folder: &Folder, page_bytes: usize) -> Result<Self> {
        let states = folder.states()?;
        let mut known = Self { pages: Vec::new(), left_over: HashMap::new() };
        if let Some(latest) = states.last().filter(|latest| latest.page_bytes == page_bytes) {
            let state = folder.state(Some(latest.number))?;
            let mut packs = HashMap::new();
            for pack in &state.info.packs {
                packs.extend(PackReader::open(&folder.pack_path(*pack))?.map(|reader| (*pack, reader)));
            }
            let is_there = |page: &StoredPage| {
                packs.get(&page.pack).is_some_and(|pack: &PackReader| pack.may_have(page.offset))
            };
            known.pages = state.pages.into_iter().map(|page| Some(page).filter(is_there)).collect();
        }
        let used = |pack: &u32| states.iter().any(|state| state.packs.contains(pack));
        for pack in folder.packs()?.into_iter().filter(|pack| !used(pack)) {
            let Some(reader) = PackReader::open(&folder.pack_path(pack))? else { continue };
            if reader.page_bytes() == page_bytes {
                known.left_over.extend(reader.pages(pack));
            }
        }
        Ok(known)
    }
}
