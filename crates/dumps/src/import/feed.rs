//! The thread that reads and parses an input.

use std::{
    io::{self, Read as _},
    sync::{Arc, atomic::Ordering},
};

use rashomon_pages::{Definitions, PageInfo, Revision, SiteInfo, Title};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use super::{
    ImportFailure, size,
    sorter::{Sorted, Sorter},
};
use crate::{
    BrokenPage, CountedItems, Event, HistoryReader, InputPosition, LeftOut, LeftOutReason, Misplaced,
    Problem, ReadError, ReadLimits, Source, SourceRevision,
    compression::{self, Compression, DecompressionLimits},
    recognise::{LOOK_BYTES, looks_like_export},
};

/// The maximum number of revisions in a group.
const MAX_GROUP_REVISIONS: usize = 64;
/// The maximum size of a group. A larger revision is a group of its own.
const MAX_GROUP_BYTES: usize = 1 << 20;
/// After this many revisions that are sorted, the number of the waiting ones is sent.
const WAITING_STEP: u64 = 256;
/// The approximate memory of a revision without its bodies.
const REVISION_BYTES: usize = 1 << 10;

/// A message of the feed: content to be stored, or a report of input that is not stored.
pub(super) enum Item {
    Site(SiteInfo),
    /// A page that did not occur before.
    NewPage,
    Group(Group),
    PageInfo(Title, PageInfo),
    /// The highest revision of a page with metadata.
    Highest(Revision),
    LeftOut(LeftOut),
    Misplaced(Misplaced),
    Broken(BrokenPage),
    Notice(String),
    Skipped(String),
    /// A revision of this file that occurs a second time, with the same content.
    Repeated(usize),
    /// The number of revisions that wait to be sorted by page.
    Waiting(u64),
}

/// Revisions of one page that are stored together.
pub(super) struct Group {
    pub(super) title: Title,
    pub(super) revisions: Vec<SourceRevision>,
    /// The number of the file of these revisions.
    pub(super) file: usize,
    /// The permits for the memory of the revisions, released when the group is dropped.
    pub(super) memory: Option<OwnedSemaphorePermit>,
}

/// Reads an input, and sends its content.
pub(super) struct Feed {
    sender: mpsc::Sender<Item>,
    definitions: Definitions,
    /// The memory that revisions may take between parsing and storing: one permit for each byte.
    memory: Arc<Semaphore>,
    max_buffered_bytes: u32,
    runtime: Handle,
    title: Option<Title>,
    revisions: Vec<SourceRevision>,
    bytes: usize,
    /// The number of the file that is read.
    file: usize,
    /// The number of the file of `revisions`.
    file_of_revisions: usize,
    sorter: Sorter,
    /// Whether the end of the last revision's page is still to come.
    in_page: bool,
    /// Whether the last part of a revision was left out, or some of its renders. Further parts are then left out too.
    leaves_out_parts: bool,
}

/// Why the feed stops.
enum SendError {
    /// The receiver is gone, since the import has failed elsewhere.
    ReceiverGone,
    Failed(ImportFailure),
}

impl Feed {
    /// Creates a feed. Must be called within a runtime, on a thread that may block.
    pub(super) fn new(
        sender: mpsc::Sender<Item>,
        definitions: Definitions,
        max_buffered_bytes: u32,
        file: usize,
        sorter: Sorter,
    ) -> Self {
        Self {
            sender,
            definitions,
            memory: Arc::new(Semaphore::new(max_buffered_bytes as usize)),
            max_buffered_bytes,
            runtime: Handle::current(),
            title: None,
            revisions: Vec::new(),
            bytes: 0,
            file,
            file_of_revisions: file,
            sorter,
            in_page: false,
            leaves_out_parts: false,
        }
    }

    /// Sends the whole content of the source, except revisions that wait in the sorter, which is returned.
    pub(super) fn run(
        mut self,
        source: Source,
        decompression: &DecompressionLimits,
        limits: ReadLimits,
    ) -> (Sorter, Result<(), ImportFailure>) {
        let read = self.read_source(source, decompression, limits);
        (self.sorter, read)
    }

    /// Sends the revisions that wait in the sorter.
    pub(super) fn run_sorter(mut self) -> (Sorter, Result<(), ImportFailure>) {
        let sent = match self.send_sorted() {
            Err(SendError::Failed(failure)) => Err(failure),
            Err(SendError::ReceiverGone) | Ok(()) => Ok(()),
        };
        (self.sorter, sent)
    }

    fn read_source(
        &mut self,
        source: Source,
        decompression: &DecompressionLimits,
        limits: ReadLimits,
    ) -> Result<(), ImportFailure> {
        let consumed = source.consumed();
        // Stays false if nothing could be read: then there is no position to report.
        let mut compressed = false;
        let (mut outcome, mut names) = (Ok(()), CountedItems::<String>::default());
        let mut has_export = false;
        let read = compression::read_each(source, decompression, |input, compression, name| {
            compressed = compression != Compression::None;
            outcome = match name {
                None => {
                    has_export = true;
                    self.read(input, limits)
                }
                Some(name) => self.read_member(input, name, limits, &mut has_export, &mut names),
            };
            outcome.is_ok()
        });
        let mut error = match (read, outcome) {
            (_, Err(ImportFailure::Read(error))) => error,
            (_, Err(failure)) => return Err(failure),
            (Err(error), _) => ReadError { problem: Problem::from_io_error(error), position: Box::default() },
            (Ok(()), Ok(())) if has_export => return Ok(()),
            (Ok(()), Ok(())) => {
                let CountedItems { count, first } = names;
                let problem = Problem::Unsupported(format!(
                    "none of the {count} files in the archive is an export, such as {}",
                    first.join(", ")
                ));
                ReadError { problem, position: Box::default() }
            }
        };
        if compressed && error.concerns_compressed_data() {
            error.position.compressed = Some(consumed.load(Ordering::Relaxed));
        }
        Err(error.into())
    }

    /// Reads a file of an archive, if it is an export. Reports it otherwise.
    fn read_member(
        &mut self,
        input: &mut dyn io::Read,
        name: &str,
        limits: ReadLimits,
        has_export: &mut bool,
        names: &mut CountedItems<String>,
    ) -> Result<(), ImportFailure> {
        let mut first = Vec::new();
        let begun = io::Read::take(&mut *input, LOOK_BYTES as u64).read_to_end(&mut first);
        let position =
            || Box::new(InputPosition { member: Some(LeftOut::shorten(name)), ..InputPosition::default() });
        if let Err(error) = begun {
            let error = ReadError { problem: Problem::from_io_error(error), position: position() };
            return Err(error.into());
        }
        if !looks_like_export(&first) {
            names.add(format!("{:?}", LeftOut::shorten(name)));
            let notice =
                format!("{:?} in the archive is not an export, and not imported", LeftOut::shorten(name));
            // If the receiver is gone, the import reports the reason.
            return self.send(Item::Notice(notice)).or(Ok(()));
        }
        *has_export = true;
        self.read(&mut io::Cursor::new(first).chain(input), limits).map_err(|mut failure| {
            if let ImportFailure::Read(error) = &mut failure {
                error.position.member = position().member;
            }
            failure
        })
    }

    fn read(&mut self, input: &mut dyn io::Read, limits: ReadLimits) -> Result<(), ImportFailure> {
        let mut history = HistoryReader::new(input, limits)?;
        loop {
            let handled = match history.next() {
                Ok(Some(event)) => self.handle_event(event),
                // Complete revisions are stored, even if an error follows.
                Ok(None) => return self.send_group().or(Ok(())),
                Err(error) => return self.send_group().map_or(Ok(()), |()| Err(error.into())),
            };
            match handled {
                Ok(()) => {}
                // The import reports the reason.
                Err(SendError::ReceiverGone) => return Ok(()),
                Err(SendError::Failed(failure)) => return Err(failure),
            }
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), SendError> {
        match event {
            Event::Site(info) => self.send(Item::Site(info)),
            Event::Revision(title, revision) => self.add_revision(title, *revision),
            Event::PageEnd(title, info) => {
                self.begin_page(&title)?;
                self.in_page = false;
                self.send_group()?;
                if let Some(info) = &info {
                    self.send(Item::Highest(info.as_of))?;
                }
                match info {
                    Some(info) if self.sorter.is_sorting() => {
                        let pushed = self.sorter.push_info(self.file, &title, info);
                        if pushed.map_err(sorter_failed)? { self.send_sorted() } else { Ok(()) }
                    }
                    Some(info) => self.send(Item::PageInfo(title, info)),
                    None => Ok(()),
                }
            }
            // The report of an earlier part covers these renders.
            Event::LeftOut(LeftOut { reason: LeftOutReason::RemainingRenders { .. }, .. })
                if self.leaves_out_parts =>
            {
                Ok(())
            }
            Event::LeftOut(left_out) => self.send(Item::LeftOut(left_out)),
            Event::Misplaced(misplaced) => self.send(Item::Misplaced(misplaced)),
            Event::Broken(broken) => {
                self.send_group()?;
                self.in_page = false;
                self.send(Item::Broken(broken))
            }
            Event::Notice(notice) => self.send(Item::Notice(notice)),
            Event::Skipped(name) => self.send(Item::Skipped(name)),
        }
    }

    /// Notes that a page begins, unless it has begun already.
    fn begin_page(&mut self, title: &Title) -> Result<(), SendError> {
        let is_new = !std::mem::replace(&mut self.in_page, true) && self.sorter.begin_page(title);
        if is_new { self.send(Item::NewPage) } else { Ok(()) }
    }

    fn add_revision(&mut self, title: Title, mut revision: SourceRevision) -> Result<(), SendError> {
        self.begin_page(&title)?;
        if revision.continued && self.leaves_out_parts {
            return Ok(());
        }
        let left_out = size::remove_not_allowed(&title, &mut revision, &self.definitions);
        self.leaves_out_parts = left_out.is_some();
        if let Some(left_out) = left_out {
            self.send(Item::LeftOut(left_out))?;
            if revision.renders.is_empty() {
                return Ok(());
            }
        }
        if !self.sorter.is_sorting() {
            return self.add_to_group(self.file, title, revision);
        }
        let must_be_taken = self.sorter.push(self.file, &title, &revision).map_err(sorter_failed)?;
        if let Some(error) = self.sorter.take_failure() {
            self.send(Item::Notice(format!(
                "the parts of pages are not sorted any more, so they take more time and space: {error}"
            )))?;
        }
        if self.sorter.waiting().is_multiple_of(WAITING_STEP) {
            self.send(Item::Waiting(self.sorter.waiting()))?;
        }
        if must_be_taken { self.send_sorted() } else { Ok(()) }
    }

    fn add_to_group(&mut self, file: usize, title: Title, revision: SourceRevision) -> Result<(), SendError> {
        let bytes = REVISION_BYTES + body_bytes(&revision);
        let full = self.revisions.len() >= MAX_GROUP_REVISIONS || self.bytes + bytes > MAX_GROUP_BYTES;
        if full || self.title.as_ref() != Some(&title) || self.file_of_revisions != file {
            self.send_group()?;
        }
        self.file_of_revisions = file;
        self.title = Some(title);
        self.bytes += bytes;
        self.revisions.push(revision);
        Ok(())
    }

    /// Sends the revisions that wait in the sorter, sorted.
    fn send_sorted(&mut self) -> Result<(), SendError> {
        self.send_group()?;
        let mut sorted = self.sorter.take();
        while let Some(next) = sorted.next().map_err(sorter_failed)? {
            match next {
                Sorted::Revision { file, title, revision } => self.add_to_group(file, title, *revision)?,
                Sorted::Repeated { file } => self.send(Item::Repeated(file))?,
                Sorted::PageInfo(title, info) => {
                    self.send_group()?;
                    self.send(Item::PageInfo(title, info))?;
                }
            }
            if sorted.waiting().is_multiple_of(WAITING_STEP) {
                self.send(Item::Waiting(sorted.waiting()))?;
            }
        }
        self.send_group()
    }

    fn send_group(&mut self) -> Result<(), SendError> {
        let bytes = std::mem::take(&mut self.bytes);
        let revisions = std::mem::take(&mut self.revisions);
        let Some(title) = self.title.take().filter(|_| !revisions.is_empty()) else { return Ok(()) };
        // A revision that is larger than the whole limit takes all permits, so it waits until no other
        // revision is in memory.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_buffered_bytes);
        let memory = Arc::clone(&self.memory).acquire_many_owned(permits);
        // The semaphore is never closed.
        let memory = self.runtime.block_on(memory).ok();
        let file = self.file_of_revisions;
        self.send(Item::Group(Group { title, revisions, file, memory }))
    }

    fn send(&self, item: Item) -> Result<(), SendError> {
        self.sender.blocking_send(item).map_err(|_| SendError::ReceiverGone)
    }
}

fn sorter_failed(error: std::io::Error) -> SendError {
    let what = format!("cannot sort revisions in a temporary file: {error}; TMPDIR names its folder");
    SendError::Failed(ImportFailure::Interrupted(what))
}

pub(super) fn body_bytes(revision: &SourceRevision) -> usize {
    let of_renders = revision.renders.iter().flat_map(|render| &render.properties);
    revision.properties.iter().chain(of_renders).map(|property| property.body.len()).sum()
}
