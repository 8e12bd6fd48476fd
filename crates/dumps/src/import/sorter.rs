//! Sorts the revisions of an import by page, if pages come in several parts: for example, if each `<page>` element of a
//! dump has one revision, in the order of time.
//!
//! As long as each page comes once, nothing is sorted. From the first repeated page on, revisions are compressed one by
//! one into a temporary file, and only their positions are in memory. The file has no name, so it is gone when the
//! process ends.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::{BuildHasher, RandomState},
    io,
    sync::Arc,
};

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_pages::{
    Erasure, ExportRecord, PageInfo, Parent, PropertyName, Revision, RevisionRecord, Tid, Title,
};
use serde::{Deserialize, Serialize};

use crate::{
    SourceProperty, SourceRender, SourceRevision, SpoolSpace,
    compression::{SpoolError, SpooledFile},
};

/// The maximum number of titles that are remembered, 16 bytes each. A further page counts as a new page whenever it
/// comes.
const MAX_TITLES: usize = 1_800_000;

/// The maximum number of revisions in the temporary file. The position of each takes 24 bytes of memory.
const MAX_WAITING: usize = 1 << 21;

/// The maximum size of the temporary file in bytes, besides the limit of its [`SpoolSpace`].
const MAX_BYTES: u64 = 16 << 30;

/// The number of bytes that are written to the temporary file in one step.
const WRITE_BYTES: usize = 1 << 20;

/// The level of compression in the temporary file.
const LEVEL: i32 = 1;

/// The pages of an import, and the revisions that wait to be sorted.
pub(super) struct Sorter {
    /// The number of each page, in the order in which the pages came first, by the hash of its title.
    numbers: HashMap<u64, u32>,
    hasher: RandomState,
    space: Arc<SpoolSpace>,
    file: Option<SpooledFile>,
    /// The number of bytes in the file.
    written: u64,
    /// The bytes after those in the file.
    unwritten: Vec<u8>,
    positions: Vec<Position>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    /// Whether all revisions are put into the file.
    is_sorting: bool,
    /// Whether the temporary file could not be written. Then nothing is sorted any more.
    has_failed: bool,
    /// The failure that was not reported yet.
    failure: Option<io::Error>,
}

/// The position of a revision, or of the metadata of a page, in the temporary file. The order is that of sorting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    page: u32,
    rev: i64,
    offset: u64,
    bytes: u32,
}

/// The place of the metadata of a page: after all its revisions.
const AFTER_REVISIONS: i64 = i64::MAX;

/// A part of the sorted input.
pub(super) enum Sorted {
    Revision {
        file: usize,
        title: Title,
        revision: Box<SourceRevision>,
    },
    /// A revision that has the same content as the one before it, so it need not be stored.
    Repeated {
        file: usize,
    },
    PageInfo(Title, PageInfo),
}

/// What is stored of a revision before its bodies.
#[derive(Serialize, Deserialize)]
struct Head {
    title: Title,
    /// `None` for the metadata of a page.
    revision: Option<RevisionHead>,
    info: Option<PageInfo>,
}

#[derive(Serialize, Deserialize)]
struct RevisionHead {
    continued: bool,
    rev: Revision,
    parent: Option<i64>,
    /// In microseconds.
    timestamp: i64,
    user: Option<String>,
    comment: Option<String>,
    minor: bool,
    export: ExportRecord,
    erased: Option<Erasure>,
    properties: Vec<PropertyHead>,
    renders: Vec<(Tid, Vec<PropertyHead>)>,
}

#[derive(Serialize, Deserialize)]
struct PropertyHead {
    name: PropertyName,
    content_type: Option<String>,
    other_headers: BTreeMap<String, String>,
    /// In microseconds.
    rewritten_at: Option<i64>,
    sha1: Option<String>,
    bytes: usize,
}

impl Sorter {
    pub(super) fn new(space: Arc<SpoolSpace>) -> Self {
        Self {
            numbers: HashMap::new(),
            hasher: RandomState::new(),
            space,
            file: None,
            written: 0,
            unwritten: Vec::new(),
            positions: Vec::new(),
            compressor: None,
            is_sorting: false,
            has_failed: false,
            failure: None,
        }
    }

    /// Why the file cannot take more, once.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// Notes that a page begins, and returns whether it is a new page. If it is not, sorting begins.
    pub(super) fn begin_page(&mut self, title: &Title) -> bool {
        let hash = self.hasher.hash_one(title.as_str());
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let is_full = self.numbers.len() >= MAX_TITLES;
        match self.numbers.entry(hash) {
            Entry::Occupied(_) => {
                self.is_sorting = !self.has_failed;
                false
            }
            Entry::Vacant(entry) => {
                if !is_full {
                    entry.insert(number);
                }
                true
            }
        }
    }

    pub(super) const fn is_sorting(&self) -> bool {
        self.is_sorting
    }

    /// The number of revisions that wait.
    pub(super) const fn waiting(&self) -> u64 {
        self.positions.len() as u64
    }

    /// Puts a revision into the temporary file. Returns whether the waiting revisions have to be taken out before more
    /// are put in: since there are many of them, or since the file cannot take more.
    pub(super) fn push(&mut self, file: usize, title: &Title, revision: &SourceRevision) -> io::Result<bool> {
        let head = RevisionHead::of(revision);
        let of_renders = revision.renders.iter().flat_map(|render| &render.properties);
        let bodies = revision.properties.iter().chain(of_renders).map(|property| &property.body);
        let (rev, line) = (revision.record.rev.get(), revision.line);
        let head = Head { title: title.clone(), revision: Some(head), info: None };
        self.put(rev, (file, line), &head, bodies)
    }

    /// Puts the metadata of a page into the temporary file. Returns the same as [`Self::push`].
    pub(super) fn push_info(&mut self, file: usize, title: &Title, info: PageInfo) -> io::Result<bool> {
        let head = Head { title: title.clone(), revision: None, info: Some(info) };
        self.put(AFTER_REVISIONS, (file, 0), &head, std::iter::empty())
    }

    fn put<'b>(
        &mut self,
        rev: i64,
        (file, line): (usize, u64),
        head: &Head,
        bodies: impl Iterator<Item = &'b Bytes>,
    ) -> io::Result<bool> {
        let page = self.number_of(&head.title);
        let encoded = self.encode((file, line), head, bodies)?;
        let offset = self.written + self.unwritten.len() as u64;
        let bytes = u32::try_from(encoded.len()).map_err(io::Error::other)?;
        self.unwritten.extend(encoded);
        self.positions.push(Position { page, rev, offset, bytes });
        if self.unwritten.len() >= WRITE_BYTES
            && let Err(error) = self.write_out()
        {
            // What is in memory and in the file can still be taken out.
            (self.is_sorting, self.has_failed, self.failure) = (false, true, Some(error));
        }
        Ok(self.has_failed || self.positions.len() >= MAX_WAITING || self.written >= MAX_BYTES)
    }

    /// The number of a page. Pages that are not remembered come after the others.
    fn number_of(&self, title: &Title) -> u32 {
        let hash = self.hasher.hash_one(title.as_str());
        let of_hash = u32::try_from(hash >> 32).unwrap_or(u32::MAX) | 1 << 31;
        self.numbers.get(&hash).copied().unwrap_or(of_hash)
    }

    fn encode<'b>(
        &mut self,
        (file, line): (usize, u64),
        head: &Head,
        bodies: impl Iterator<Item = &'b Bytes>,
    ) -> io::Result<Vec<u8>> {
        let head = serde_json::to_vec(head)?;
        let mut plain = Vec::with_capacity(PLACE_BYTES + LENGTH_BYTES + head.len());
        plain.extend((file as u64).to_le_bytes());
        plain.extend(line.to_le_bytes());
        plain.extend((head.len() as u64).to_le_bytes());
        plain.extend(head);
        bodies.for_each(|body| plain.extend_from_slice(body));
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(zstd::bulk::Compressor::new(LEVEL)?),
        };
        let mut bytes = (plain.len() as u64).to_le_bytes().to_vec();
        bytes.extend(compressor.compress(&plain)?);
        Ok(bytes)
    }

    fn write_out(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(SpooledFile::new(&self.space).map_err(SpoolError::disk)?),
        };
        file.append_at(self.written, &self.unwritten)?;
        self.written += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// Takes out everything that waits, sorted by page and by number. Sorting begins again at the next repeated page.
    pub(super) fn take(&mut self) -> SortedRevisions {
        self.is_sorting = false;
        let mut positions = std::mem::take(&mut self.positions);
        positions.sort_unstable();
        SortedRevisions {
            positions: positions.into_iter(),
            file: self.file.take(),
            written: std::mem::take(&mut self.written),
            unwritten: std::mem::take(&mut self.unwritten),
            before: None,
            info: None,
        }
    }
}

/// The bytes of the number of a file and of a line.
const PLACE_BYTES: usize = 16;
const LENGTH_BYTES: usize = 8;

/// Revisions in their order, from the temporary file.
pub(super) struct SortedRevisions {
    positions: std::vec::IntoIter<Position>,
    file: Option<SpooledFile>,
    written: u64,
    unwritten: Vec<u8>,
    /// The revision before: its page, its number, and its content.
    before: Option<(u32, i64, Vec<u8>)>,
    /// The newest metadata of the current page.
    info: Option<(u32, Title, PageInfo)>,
}

impl SortedRevisions {
    /// The number of revisions that are still to come.
    pub(super) fn waiting(&self) -> u64 {
        self.positions.len() as u64
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Sorted>> {
        loop {
            let of_page = self.positions.as_slice().first().map(|position| position.page);
            if let Some((_, title, info)) = self.info.take_if(|(page, ..)| Some(*page) != of_page) {
                return Ok(Some(Sorted::PageInfo(title, info)));
            }
            let Some(position) = self.positions.next() else { return Ok(None) };
            let plain = self.read(position)?;
            let (file, line, head, bodies) = split(&plain)?;
            let Head { title, revision, info } = serde_json::from_slice(head)?;
            let Some(revision) = revision else {
                let newer = self.info.take().map(|(.., info)| info).max(info);
                self.info = newer.map(|info| (position.page, title, info));
                continue;
            };
            let content = &plain[PLACE_BYTES..];
            let is_same = !revision.continued
                && self.before.as_ref().is_some_and(|(page, rev, before)| {
                    (*page, *rev) == (position.page, position.rev) && before == content
                });
            if is_same {
                return Ok(Some(Sorted::Repeated { file }));
            }
            let revision = Box::new(revision.into_revision(line, bodies)?);
            self.before = Some((position.page, position.rev, content.to_vec()));
            return Ok(Some(Sorted::Revision { file, title, revision }));
        }
    }

    fn read(&self, position: Position) -> io::Result<Vec<u8>> {
        let length = position.bytes as usize;
        let mut bytes = vec![0; length];
        match (position.offset.checked_sub(self.written), &self.file) {
            (Some(begin), _) => {
                let begin = usize::try_from(begin).map_err(io::Error::other)?;
                bytes.copy_from_slice(self.unwritten.get(begin..begin + length).ok_or_else(damaged)?);
            }
            (None, Some(file)) => file.read_at(position.offset, &mut bytes)?,
            (None, None) => return Err(damaged()),
        }
        let (size, compressed) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let size = usize::try_from(u64::from_le_bytes(*size)).map_err(io::Error::other)?;
        zstd::bulk::decompress(compressed, size)
    }
}

/// Splits what was stored of a revision: the number of its file, its line, its head and its bodies.
fn split(plain: &[u8]) -> io::Result<(usize, u64, &[u8], &[u8])> {
    let (file, rest) = plain.split_first_chunk().ok_or_else(damaged)?;
    let (line, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let (length, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
    let number = |bytes: &[u8; LENGTH_BYTES]| usize::try_from(u64::from_le_bytes(*bytes));
    let length = number(length).map_err(io::Error::other)?;
    let (head, bodies) = rest.split_at_checked(length).ok_or_else(damaged)?;
    Ok((number(file).map_err(io::Error::other)?, u64::from_le_bytes(*line), head, bodies))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the temporary file of the import is damaged")
}

impl RevisionHead {
    fn of(revision: &SourceRevision) -> Self {
        let record = &revision.record;
        let heads = |properties: &[SourceProperty]| properties.iter().map(PropertyHead::of).collect();
        Self {
            continued: revision.continued,
            rev: record.rev,
            parent: record.parent.map(Parent::to_number),
            timestamp: record.timestamp.as_micros(),
            user: record.user.clone(),
            comment: record.comment.clone(),
            minor: record.minor,
            export: record.export.clone(),
            erased: record.erased.clone(),
            properties: heads(&revision.properties),
            renders: revision.renders.iter().map(|of| (of.tid, heads(&of.properties))).collect(),
        }
    }

    fn into_revision(self, line: u64, mut bodies: &[u8]) -> io::Result<SourceRevision> {
        let record = RevisionRecord {
            rev: self.rev,
            parent: self.parent.and_then(Parent::from_number),
            timestamp: Timestamp::from_micros(self.timestamp),
            user: self.user,
            comment: self.comment,
            minor: self.minor,
            export: self.export,
            erased: self.erased,
        };
        let properties = into_properties(self.properties, &mut bodies)?;
        let renders = self.renders.into_iter().map(|(tid, heads)| {
            into_properties(heads, &mut bodies).map(|properties| SourceRender { tid, properties })
        });
        let renders = renders.collect::<io::Result<_>>()?;
        Ok(SourceRevision { line, continued: self.continued, record, properties, renders })
    }
}

impl PropertyHead {
    fn of(property: &SourceProperty) -> Self {
        Self {
            name: property.name.clone(),
            content_type: property.content_type.clone(),
            other_headers: property.other_headers.clone(),
            rewritten_at: property.rewritten_at.map(Timestamp::as_micros),
            sha1: property.sha1.clone(),
            bytes: property.body.len(),
        }
    }
}

/// Makes properties from their heads and from the bodies, and removes these bodies.
fn into_properties(heads: Vec<PropertyHead>, bodies: &mut &[u8]) -> io::Result<Vec<SourceProperty>> {
    let into_property = |head: PropertyHead| {
        let (body, rest) = bodies.split_at_checked(head.bytes).ok_or_else(damaged)?;
        *bodies = rest;
        Ok(SourceProperty {
            name: head.name,
            content_type: head.content_type,
            other_headers: head.other_headers,
            rewritten_at: head.rewritten_at.map(Timestamp::from_micros),
            sha1: head.sha1,
            body: Bytes::copy_from_slice(body),
        })
    };
    heads.into_iter().map(into_property).collect()
}
