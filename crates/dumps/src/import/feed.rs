//! The thread that reads and parses an input.

use std::{
    io::{self, Read as _},
    sync::{Arc, atomic::Ordering},
};

use rashomon_buckets::{Definitions, PageInfo, SiteInfo, Title};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use super::{ImportFailure, size};
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
/// The approximate memory of a revision without its bodies.
const REVISION_BYTES: usize = 1 << 10;

/// A message of the feed: content to be stored, or a report of input that is not stored.
pub(super) enum Item {
    Site(SiteInfo),
    Group(Group),
    PageEnd(Title, Option<PageInfo>),
    /// The last page was not read to its end, since reading failed.
    IncompletePage,
    LeftOut(LeftOut),
    Misplaced(Misplaced),
    Broken(BrokenPage),
    Notice(String),
    Skipped(String),
}

/// Revisions of one page that are stored together.
pub(super) struct Group {
    pub(super) title: Title,
    pub(super) revisions: Vec<SourceRevision>,
    /// The permits for the memory of the revisions, released when the group is dropped.
    _memory: Option<OwnedSemaphorePermit>,
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
    /// Whether the end of the last revision's page is still to come.
    in_page: bool,
    /// Whether the last part of a revision was left out, or some of its renders. Further parts are then left out too.
    leaves_out_parts: bool,
}

/// An error: the receiver is gone, since the import has failed elsewhere.
struct ReceiverGone;

impl Feed {
    /// Creates a feed. Must be called within a runtime, on a thread that may block.
    pub(super) fn new(sender: mpsc::Sender<Item>, definitions: Definitions, max_buffered_bytes: u32) -> Self {
        Self {
            sender,
            definitions,
            memory: Arc::new(Semaphore::new(max_buffered_bytes as usize)),
            max_buffered_bytes,
            runtime: Handle::current(),
            title: None,
            revisions: Vec::new(),
            bytes: 0,
            in_page: false,
            leaves_out_parts: false,
        }
    }

    /// Sends the whole content of the source.
    pub(super) fn run(
        mut self,
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
            (_, Err(error)) => error,
            (Err(error), _) => {
                ReadError { problem: Problem::from_io_error(error), position: InputPosition::default() }
            }
            (Ok(()), Ok(())) if has_export => return Ok(()),
            (Ok(()), Ok(())) => {
                let CountedItems { count, first } = names;
                let problem = Problem::Unsupported(format!(
                    "none of the {count} files in the archive is an export, such as {}",
                    first.join(", ")
                ));
                ReadError { problem, position: InputPosition::default() }
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
        mut input: &mut dyn io::Read,
        name: &str,
        limits: ReadLimits,
        has_export: &mut bool,
        names: &mut CountedItems<String>,
    ) -> Result<(), ReadError> {
        let mut first = Vec::new();
        let begun = input.by_ref().take(LOOK_BYTES as u64).read_to_end(&mut first);
        let position = || InputPosition { member: Some(LeftOut::shorten(name)), ..InputPosition::default() };
        if let Err(error) = begun {
            return Err(ReadError { problem: Problem::from_io_error(error), position: position() });
        }
        if !looks_like_export(&first) {
            names.add(format!("{:?}", LeftOut::shorten(name)));
            let notice =
                format!("{:?} in the archive is not an export, and not imported", LeftOut::shorten(name));
            // If the receiver is gone, the import reports the reason.
            return self.send(Item::Notice(notice)).or(Ok(()));
        }
        *has_export = true;
        self.read(&mut io::Cursor::new(first).chain(input), limits).map_err(|mut error| {
            error.position.member = position().member;
            error
        })
    }

    fn read(&mut self, input: &mut dyn io::Read, limits: ReadLimits) -> Result<(), ReadError> {
        let mut history = HistoryReader::new(input, limits)?;
        loop {
            match history.next() {
                Ok(Some(event)) => {
                    if self.handle_event(event).is_err() {
                        return Ok(());
                    }
                }
                // Complete revisions are stored, even if an error follows. If the receiver is gone, the
                // import reports the reason.
                Ok(None) => return self.send_group().or(Ok(())),
                Err(error) => return self.send_incomplete_page().map_or(Ok(()), |()| Err(error)),
            }
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), ReceiverGone> {
        match event {
            Event::Site(info) => self.send(Item::Site(info)),
            Event::Revision(title, revision) => self.add_revision(title, *revision),
            Event::PageEnd(title, info) => {
                self.in_page = false;
                self.send_group()?;
                self.send(Item::PageEnd(title, info))
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
                self.send_incomplete_page()?;
                self.in_page = false;
                self.send(Item::Broken(broken))
            }
            Event::Notice(notice) => self.send(Item::Notice(notice)),
            Event::Skipped(name) => self.send(Item::Skipped(name)),
        }
    }

    fn add_revision(&mut self, title: Title, mut revision: SourceRevision) -> Result<(), ReceiverGone> {
        self.in_page = true;
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
        let bytes = REVISION_BYTES + body_bytes(&revision);
        let full = self.revisions.len() >= MAX_GROUP_REVISIONS || self.bytes + bytes > MAX_GROUP_BYTES;
        if full || self.title.as_ref() != Some(&title) {
            self.send_group()?;
        }
        self.title = Some(title);
        self.bytes += bytes;
        self.revisions.push(revision);
        Ok(())
    }

    /// Sends the revisions that were read before an error, and reports the incomplete page.
    fn send_incomplete_page(&mut self) -> Result<(), ReceiverGone> {
        self.send_group()?;
        if self.in_page { self.send(Item::IncompletePage) } else { Ok(()) }
    }

    fn send_group(&mut self) -> Result<(), ReceiverGone> {
        let bytes = std::mem::take(&mut self.bytes);
        let revisions = std::mem::take(&mut self.revisions);
        let Some(title) = self.title.take().filter(|_| !revisions.is_empty()) else { return Ok(()) };
        // A revision that is larger than the whole limit takes all permits, so it waits until no other
        // revision is in memory.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_buffered_bytes);
        let memory = Arc::clone(&self.memory).acquire_many_owned(permits);
        // The semaphore is never closed.
        let memory = self.runtime.block_on(memory).ok();
        self.send(Item::Group(Group { title, revisions, _memory: memory }))
    }

    fn send(&self, item: Item) -> Result<(), ReceiverGone> {
        self.sender.blocking_send(item).map_err(|_| ReceiverGone)
    }
}

fn body_bytes(revision: &SourceRevision) -> usize {
    let of_renders = revision.renders.iter().flat_map(|render| &render.properties);
    revision.properties.iter().chain(of_renders).map(|property| property.body.len()).sum()
}
