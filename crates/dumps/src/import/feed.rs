//! The thread that reads and parses.

use std::sync::{Arc, atomic::Ordering};

use rashomon_buckets::{Definitions, PageInfo, SiteInfo, Title};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

use super::{ImportFailure, size};
use crate::{
    Event, HistoryReader, LeftOut, Place, Problem, ReadError, ReadLimits, Source, SourceRevision,
    compression::{self, Compression, DecompressionLimits},
};

/// The most revisions of a group.
const MAX_REVISIONS: usize = 64;
/// The bytes of bodies after which a group is full.
const MAX_GROUP_BYTES: usize = 1 << 20;
/// What a revision takes in memory beside its bodies, about.
const REVISION_BYTES: usize = 1 << 10;

/// What is to be stored next.
pub(super) enum Item {
    Site(SiteInfo),
    Group(Group),
    PageEnd(Title, Option<PageInfo>),
    /// The input has ended in the middle of a page.
    PageCut,
    LeftOut(LeftOut),
    Skipped(String),
}

/// Revisions of one page that are stored together.
pub(super) struct Group {
    pub(super) title: Title,
    pub(super) revisions: Vec<SourceRevision>,
    /// The memory that they take, until they are dropped.
    _memory: Option<OwnedSemaphorePermit>,
}

/// Reads an input, and sends what is in it.
pub(super) struct Feed {
    sender: mpsc::Sender<Item>,
    definitions: Definitions,
    /// As many permits as bytes of bodies may be between parsing and storing.
    memory: Arc<Semaphore>,
    bytes_under_way: u32,
    runtime: Handle,
    title: Option<Title>,
    revisions: Vec<SourceRevision>,
    bytes: usize,
    /// The end of the page that the last revision is of has not come.
    in_page: bool,
}

/// Nobody takes what is sent: the import has failed elsewhere.
struct NobodyListens;

impl Feed {
    /// To be called on a thread that may be blocked, within a runtime.
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

    /// Sends all that is in the source.
    pub(super) fn run(
        mut self,
        source: Source,
        decompression: &DecompressionLimits,
        limits: ReadLimits,
    ) -> Result<(), ImportFailure> {
        let consumed = source.consumed();
        // Where nothing came out of it, there is no place in it to name.
        let mut compressed = false;
        let read = compression::read(source, decompression, |input, compression| {
            compressed = compression != Compression::None;
            self.read(input, limits)
        });
        let mut error = match read {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(error) => ReadError { problem: Problem::of_io(error), place: Place::default() },
        };
        if compressed && error.is_of_compression() {
            error.place.compressed = Some(consumed.load(Ordering::Relaxed));
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
                // What is complete goes in, whatever comes after it. Where nobody listens, somebody else says why.
                Ok(None) => return self.send_group().or(Ok(())),
                Err(error) => return self.cut().map_or(Ok(()), |()| Err(error)),
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), NobodyListens> {
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

    fn revision(&mut self, title: Title, revision: SourceRevision) -> Result<(), NobodyListens> {
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

    /// The input ends too early.
    fn cut(&mut self) -> Result<(), NobodyListens> {
        self.send_group()?;
        if self.in_page { self.send(Item::PageCut) } else { Ok(()) }
    }

    fn send_group(&mut self) -> Result<(), NobodyListens> {
        let bytes = std::mem::take(&mut self.bytes);
        let revisions = std::mem::take(&mut self.revisions);
        let Some(title) = self.title.take().filter(|_| !revisions.is_empty()) else { return Ok(()) };
        // One revision that is larger than all that may be under way goes alone.
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.bytes_under_way);
        let memory = Arc::clone(&self.memory).acquire_many_owned(permits);
        // The semaphore is never closed.
        let memory = self.runtime.block_on(memory).ok();
        self.send(Item::Group(Group { title, revisions, _memory: memory }))
    }

    fn send(&self, item: Item) -> Result<(), NobodyListens> {
        self.sender.blocking_send(item).map_err(|_| NobodyListens)
    }
}

fn body_bytes(revision: &SourceRevision) -> usize {
    let of_renders = revision.renders.iter().flat_map(|render| &render.properties);
    revision.properties.iter().chain(of_renders).map(|property| property.body.len()).sum()
}
