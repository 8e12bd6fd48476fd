//! The thread that reads and parses an input.

use std::sync::{Arc, atomic::Ordering};

use rashomon_buckets::{Definitions, PageInfo, SiteInfo, Title};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use super::{ImportFailure, size};
use crate::{
    Event, HistoryReader, InputPosition, LeftOut, Problem, ReadError, ReadLimits, Source, SourceRevision,
    compression::{self, Compression, DecompressionLimits},
};

/// The maximum number of revisions in a group.
const MAX_REVISIONS: usize = 64;
/// The size of bodies at which a group is full.
const MAX_GROUP_BYTES: usize = 1 << 20;
/// The approximate memory of a revision without its bodies.
const REVISION_BYTES: usize = 1 << 10;

/// Something to be stored next.
pub(super) enum Item {
    Site(SiteInfo),
    Group(Group),
    PageEnd(Title, Option<PageInfo>),
    /// The input ended in the middle of a page.
    PageCut,
    LeftOut(LeftOut),
    Skipped(String),
}

/// Revisions of one page that are stored together.
pub(super) struct Group {
    pub(super) title: Title,
    pub(super) revisions: Vec<SourceRevision>,
    /// The permits for the memory of the revisions, released when they are dropped.
    _memory: Option<OwnedSemaphorePermit>,
}

/// Reads an input, and sends its content.
pub(super) struct Feed {
    sender: mpsc::Sender<Item>,
    definitions: Definitions,
    /// A permit for each byte of bodies that may be between parsing and storing.
    memory: Arc<Semaphore>,
    bytes_under_way: u32,
    runtime: Handle,
    title: Option<Title>,
    revisions: Vec<SourceRevision>,
    bytes: usize,
    /// Whether the end of the last revision's page is still to come.
    in_page: bool,
}

/// An error: the receiver is gone, since the import has failed elsewhere.
struct ReceiverGone;

impl Feed {
    /// Creates a feed. Must be called within a runtime, on a thread that may block.
    pub(super) fn new(sender: mpsc::Sender<Item>, definitions: Definitions, bytes_under_way: u32) -> Self {
        Self {
            sender,
            definitions,
            memory: Arc::new(Semaphore::new(bytes_under_way as usize)),
            bytes_under_way,
            runtime: Handle::current(),
            title: None,
            revisions: Vec::new(),
            bytes: 0,
            in_page: false,
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
        // If nothing could be read, there is no position to report.
        let mut compressed = false;
        let read = compression::read(source, decompression, |input, compression| {
            compressed = compression != Compression::None;
            self.read(input, limits)
        });
        let mut error = match read {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(error) => ReadError { problem: Problem::of_io(error), position: InputPosition::default() },
        };
        if compressed && error.is_of_compression() {
            error.position.compressed = Some(consumed.load(Ordering::Relaxed));
        }
        Err(error.into())
    }

    fn read(&mut self, input: &mut dyn std::io::Read, limits: ReadLimits) -> Result<(), ReadError> {
        let mut history = HistoryReader::new(input, limits)?;
        loop {
            match history.next() {
                Ok(Some(event)) => {
                    if self.event(event).is_err() {
                        return Ok(());
                    }
                }
                // Complete revisions are stored, even if an error follows. If the receiver is gone, the
                // import reports the reason.
                Ok(None) => return self.send_group().or(Ok(())),
                Err(error) => return self.cut().map_or(Ok(()), |()| Err(error)),
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), ReceiverGone> {
        match event {
            Event::Site(info) => self.send(Item::Site(info)),
            Event::Revision(title, revision) => self.revision(title, *revision),
            Event::PageEnd(title, info) => {
                self.in_page = false;
                self.send_group()?;
                self.send(Item::PageEnd(title, info))
            }
            Event::LeftOut(left_out) => self.send(Item::LeftOut(left_out)),
            Event::Skipped(name) => self.send(Item::Skipped(name)),
        }
    }

    fn revision(&mut self, title: Title, revision: SourceRevision) -> Result<(), ReceiverGone> {
        self.in_page = true;
        if let Some(left_out) = size::too_large(&title, &revision, &self.definitions) {
            return self.send(Item::LeftOut(left_out));
        }
        let bytes = REVISION_BYTES + body_bytes(&revision);
        let full = self.revisions.len() >= MAX_REVISIONS || self.bytes + bytes > MAX_GROUP_BYTES;
        if full || self.title.as_ref() != Some(&title) {
            self.send_group()?;
        }
        self.title = Some(title);
        self.bytes += bytes;
        self.revisions.push(revision);
        Ok(())
    }

    /// Reports that the input is truncated.
    fn cut(&mut self) -> Result<(), ReceiverGone> {
        self.send_group()?;
        if self.in_page { self.send(Item::PageCut) } else { Ok(()) }
    }

    fn send_group(&mut self) -> Result<(), ReceiverGone> {
        let bytes = std::mem::take(&mut self.bytes);
        let revisions = std::mem::take(&mut self.revisions);
        let Some(title) = self.title.take().filter(|_| !revisions.is_empty()) else { return Ok(()) };
        // A revision that is larger than the whole limit is sent alone.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_under_way);
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
