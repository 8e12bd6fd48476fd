//! Reads the entries of a block back into units. [`entries`](crate::entries) writes the entries.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use rashomon_blocks::{Block, Error as BlockError};
use rashomon_clock::Timestamp;
use rashomon_tables::TimeUuid;

use crate::{
    columns::{Field, Kind, Line},
    derived::{ExportParts, parent_from_number, restore_derivable},
    entries::{
        ArchivedBody, Bodies, BodyLocation, Unit, digest_of, infos, render_digest, render_of_import,
        tid_of_import,
    },
};
use rashomon_records::{
    Page, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid, Title,
    content::ChunkSet,
    rows::{ColumnValue, Digest, Properties, RenderRow, RevisionRow},
};

/// The pages of a block, with their units.
pub type Pages = Vec<(Page, Vec<Unit>)>;

/// The size and the SHA-1 of contents, by ordinal.
pub type Hashes = HashMap<u64, (u64, Sha1)>;

/// Reads the units of a block, page by page, with the computed hashes of its contents. Returns `None` if the
/// entries cannot be understood. `of` is any page of the block's bucket.
///
/// If a body cannot be read because the block is damaged, and the block does not store its size and SHA-1,
/// the body gets the SHA-1 [`Sha1::UNKNOWN`].
pub fn read_units(of: &Page, block: &Block<'_>) -> Result<Option<(Pages, Hashes)>, BlockError> {
    let Some(pages) = read_lines(of, block)? else { return Ok(None) };
    let hashes = hashes(block, pages.iter().flat_map(|(_, units)| units));
    let read = |(page, units): (Page, Vec<UnitLines>)| {
        let units = units.iter().map(|unit| unit.read(&page, &hashes)).collect::<Option<Vec<_>>>()?;
        Some((page, units))
    };
    let pages = pages.into_iter().map(read).collect::<Option<Pages>>();
    Ok(pages.map(|pages| (pages, hashes)))
}

/// Computes the size and SHA-1 of all contents for which the block does not store them.
fn hashes<'u>(block: &Block<'_>, units: impl Iterator<Item = &'u UnitLines>) -> Hashes {
    let of: BTreeSet<u64> = units.flat_map(UnitLines::hashed).collect();
    let mut hashes = Hashes::with_capacity(of.len());
    let Some(last) = of.last() else { return hashes };
    for content in block.iter().flatten() {
        if content.ordinal > *last {
            break;
        }
        if let Some(bytes) = content.bytes.filter(|_| of.contains(&content.ordinal)) {
            hashes.insert(content.ordinal, hash_of(&bytes));
        }
    }
    hashes
}

/// Returns the size and the SHA-1 of a content.
pub fn hash_of(content: &[u8]) -> (u64, Sha1) {
    (content.len() as u64, Sha1::of(content))
}

/// Splits the name of a stream into a property and a title. The property is empty for a stream of entries
/// without bodies.
pub fn name_and_title(stream: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(stream).ok()?.split_once('/')
}

/// An entry without its content.
#[derive(Debug)]
struct EntryLine {
    ordinal: u64,
    /// The name of the stream: the property of the body, if the entry has a body, and the title of the page.
    stream: Arc<[u8]>,
    line: Line,
}

impl EntryLine {
    fn name_and_title(&self) -> Option<(&str, &str)> {
        name_and_title(&self.stream)
    }

    /// Whether the size and SHA-1 of the content have to be computed.
    fn is_hashed(&self) -> bool {
        self.line.is(Kind::BODY) && !self.line.has(Field::Size) && !self.line.has(Field::Chunks)
    }
}

/// The entries of a unit.
#[derive(Debug)]
pub struct UnitLines {
    lines: Vec<EntryLine>,
    /// The previous revision of the page in the block.
    above: Option<Revision>,
}

/// The keys and times of a unit. They can be read without contents.
#[derive(Debug, PartialEq)]
pub struct UnitKeys {
    /// The revision.
    pub rev: Revision,
    /// The time of the edit.
    pub timestamp: Timestamp,
    /// When the revision was written.
    pub written_at: Timestamp,
    /// The renders, each with its write time.
    pub renders: Vec<(Tid, Timestamp)>,
    /// The bodies, each with its render and its write time. The render is `None` for a body of the revision.
    pub bodies: Vec<(PropertyName, Option<Tid>, Timestamp)>,
}

/// The pages of a block, with the entries of their units.
pub type PageLines = Vec<(Page, Vec<UnitLines>)>;

/// Reads the entries of a block, by page and unit. Returns `None` if the entries cannot be understood.
pub fn read_lines(of: &Page, block: &Block<'_>) -> Result<Option<PageLines>, BlockError> {
    let streams: Vec<Arc<[u8]>> = block.streams()?.into_iter().map(Into::into).collect();
    let mut pages = PageLines::new();
    for entry in block.entries()? {
        let Some(stream) = streams.get(entry.stream).map(Arc::clone) else { return Ok(None) };
        let entry = EntryLine { ordinal: entry.ordinal, stream, line: Line(entry.values) };
        if add_line(of, entry, &mut pages).is_none() {
            return Ok(None);
        }
    }
    Ok(Some(pages))
}

/// Adds the next entry of a block to its unit. Returns `None` if the entry belongs to no unit.
fn add_line(of: &Page, entry: EntryLine, pages: &mut PageLines) -> Option<()> {
    if !entry.line.is(Kind::REVISION) {
        pages.last_mut()?.1.last_mut()?.lines.push(entry);
        return Some(());
    }
    let title = entry.name_and_title()?.1;
    if pages.last().is_none_or(|(page, _)| page.title.as_str() != title) {
        pages.push((Page { title: Title::new(title).ok()?, ..of.clone() }, Vec::new()));
    }
    let units = &mut pages.last_mut()?.1;
    let above = match units.last() {
        Some(unit) => Some(unit.rev()?),
        None => None,
    };
    units.push(UnitLines { lines: vec![entry], above });
    Some(())
}

impl UnitLines {
    fn rev(&self) -> Option<Revision> {
        Revision::new(self.lines.first()?.line.get_int(Field::Rev)?)
    }

    /// The ordinals of the contents whose size and SHA-1 have to be computed.
    pub fn hashed(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().filter(|line| line.is_hashed()).map(|line| line.ordinal)
    }

    /// The approximate memory that the lines take.
    pub fn memory(&self) -> usize {
        const LINE_TEXT_BYTES: usize = 256;
        self.lines.iter().map(|line| size_of_val(&*line.line.0) + LINE_TEXT_BYTES).sum()
    }

    /// Returns the keys of the unit, or `None` if the lines cannot be understood.
    pub fn keys(&self, page: &Page) -> Option<UnitKeys> {
        let first = &self.lines.first()?.line;
        let (rev, timestamp) = (self.rev()?, time(first, Field::Timestamp)?);
        let stored_at = time(first, Field::StoredAt)?;
        let imported_tid = Tid::imported(page, rev, timestamp);
        let (mut renders, mut bodies) = (Vec::new(), Vec::new());
        if first.is(Kind::IMPORTED) {
            renders.push((imported_tid, stored_at));
        }
        let of_revision = written_at(first, stored_at);
        let mut owner = (None, of_revision);
        for entry in &self.lines {
            let line = &entry.line;
            if line.is(Kind::RENDER) {
                let (tid, written_at) = (read_tid(line, imported_tid)?, written_at(line, stored_at));
                renders.push((tid, written_at));
                owner = (Some(tid), written_at);
            }
            if line.is(Kind::BODY) {
                let name = PropertyName::new(entry.name_and_title()?.0).ok()?;
                bodies.push((name, owner.0, time(line, Field::BodyWrittenAt).unwrap_or(owner.1)));
            }
        }
        Some(UnitKeys { rev, timestamp, written_at: of_revision, renders, bodies })
    }

    /// Decodes the unit. `hashes` has the hashes of the contents that [`Self::hashed`] lists. Returns `None`
    /// if the lines cannot be understood.
    pub fn read(&self, page: &Page, hashes: &Hashes) -> Option<Unit> {
        read_unit(page, self.above, &self.lines, hashes)
    }
}

/// The line that begins a revision or a render, with its bodies.
type LineWithBodies<'l> = (&'l Line, Bodies);

fn read_unit(page: &Page, above: Option<Revision>, lines: &[EntryLine], hashes: &Hashes) -> Option<Unit> {
    let stored_at = time(&lines.first()?.line, Field::StoredAt)?;
    let mut owners: Vec<LineWithBodies<'_>> = Vec::new();
    for entry in lines {
        let line = &entry.line;
        line.kind()?;
        if line.is(Kind::REVISION) || line.is(Kind::RENDER) {
            owners.push((line, Bodies::new()));
        }
        if line.is(Kind::BODY) {
            let name = PropertyName::new(entry.name_and_title()?.0).ok()?;
            let (owner, bodies) = owners.last_mut()?;
            bodies.insert(name, read_body(entry, written_at(owner, stored_at), hashes)?);
        }
    }
    let is_imported = lines.first()?.line.is(Kind::IMPORTED);
    let mut owners = owners.into_iter();
    let (line, bodies) = owners.next()?;
    let mut renders: Vec<(RenderRow, Bodies)> = Vec::new();
    let renders_of: Vec<LineWithBodies<'_>> = owners.collect();
    let revision = read_revision(page, above, line, &bodies, renders_of.first())?;
    if is_imported {
        renders.push((render_of_import(page, &revision), Bodies::new()));
    }
    for (line, bodies) in renders_of {
        renders.push((read_render(page, &revision, line, &bodies)?, bodies));
    }
    Some(Unit { revision, bodies, renders })
}

fn time(line: &Line, field: Field) -> Option<Timestamp> {
    line.get_int(field).map(Timestamp::from_micros)
}

/// Returns when a revision or a render was written. `stored_at` is the time at which the revision was stored.
fn written_at(owner: &Line, stored_at: Timestamp) -> Timestamp {
    time(owner, Field::WrittenAt).or_else(|| time(owner, Field::StoredAt)).unwrap_or(stored_at)
}

fn read_body(entry: &EntryLine, owner_written_at: Timestamp, hashes: &Hashes) -> Option<ArchivedBody> {
    let line = &entry.line;
    let (size, sha1) = if entry.is_hashed() {
        hashes.get(&entry.ordinal).copied().unwrap_or((0, Sha1::UNKNOWN))
    } else {
        let size = u64::try_from(line.get_int(Field::Size)?).ok()?;
        (size, Sha1(line.get_bytes(Field::Sha1)?.try_into().ok()?))
    };
    let info = PropertyInfo {
        headers: serde_json::from_slice(line.get_bytes(Field::Headers)?).ok()?,
        size,
        sha1,
        rewritten_at: time(line, Field::RewrittenAt),
    };
    let location = match line.get_bytes(Field::Chunks) {
        Some(set) => BodyLocation::Chunks(ChunkSet::from_bytes(set)?),
        None => BodyLocation::Entry(entry.ordinal),
    };
    let written_at = time(line, Field::BodyWrittenAt).unwrap_or(owner_written_at);
    Some(ArchivedBody { info, written_at, location })
}

fn properties(line: &Line, bodies: &Bodies) -> Option<Properties> {
    match line.get_text(Field::Properties) {
        Some(json) => Properties::from_value(&json.into()),
        None => Some(infos(bodies)),
    }
}

fn read_revision(
    page: &Page,
    above: Option<Revision>,
    line: &Line,
    bodies: &Bodies,
    first: Option<&LineWithBodies<'_>>,
) -> Option<RevisionRow> {
    let infos_of = infos(bodies);
    let record = read_record(line, above, &infos_of)?;
    let imported_tid = Tid::imported(page, record.rev, record.timestamp);
    let first_tid = match (line.get_bytes(Field::FirstTid), first) {
        (Some(bytes), _) => Tid::from(TimeUuid::from_ordered_bytes(bytes.try_into().ok()?)?),
        (None, Some((first, _))) => read_tid(first, imported_tid)?,
        (None, None) => imported_tid,
    };
    let of_first = first.map(|(_, bodies)| infos(bodies)).unwrap_or_default();
    let stored_at = time(line, Field::StoredAt)?;
    Some(RevisionRow {
        record,
        properties: properties(line, bodies)?,
        first_tid,
        stored_at,
        digest: read_digest(line)?.unwrap_or_else(|| digest_of(&infos_of, &of_first)),
        written_at: written_at(line, stored_at),
    })
}

fn read_record(line: &Line, above: Option<Revision>, bodies: &Properties) -> Option<RevisionRecord> {
    let rev = Revision::new(line.get_int(Field::Rev)?)?;
    let parent = match line.get_int(Field::Parent) {
        Some(number) => Some(parent_from_number(number, above)?),
        None => None,
    };
    let mut export = match line.get_bytes(Field::Export) {
        Some(json) => serde_json::from_slice(json).ok()?,
        None => Default::default(),
    };
    restore_derivable(&mut export, ExportParts::of_code(line.get_int(Field::ExportFollows)), rev, bodies)?;
    let erased = match line.get_bytes(Field::Erased) {
        Some(json) => Some(serde_json::from_slice(json).ok()?),
        None => None,
    };
    Some(RevisionRecord {
        rev,
        parent,
        timestamp: time(line, Field::Timestamp)?,
        user: line.get_text(Field::User).map(str::to_owned),
        comment: line.get_text(Field::Comment).map(str::to_owned),
        minor: line.get_int(Field::Minor).is_some(),
        export,
        erased,
    })
}

fn read_render(page: &Page, revision: &RevisionRow, line: &Line, bodies: &Bodies) -> Option<RenderRow> {
    let tid = read_tid(line, tid_of_import(page, revision))?;
    Some(RenderRow {
        rev: revision.record.rev,
        tid,
        properties: properties(line, bodies)?,
        stored_at: time(line, Field::StoredAt).unwrap_or(revision.stored_at),
        digest: read_digest(line)?.unwrap_or_else(|| render_digest(revision, tid, &infos(bodies))),
        left_out: line.has(Field::LeftOut),
        written_at: written_at(line, revision.stored_at),
    })
}

/// Reads the tid of a render. `imported_tid` is the tid that an import derives from the revision.
fn read_tid(line: &Line, imported_tid: Tid) -> Option<Tid> {
    let Some(ticks) = line.get_int(Field::TidTicks) else { return Some(imported_tid) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ticks.to_be_bytes());
    let last = line.get_bytes(Field::Tid)?;
    (last.len() == 8).then(|| bytes[8..].copy_from_slice(last))?;
    Some(Tid::from(TimeUuid::from_ordered_bytes(bytes)?))
}

#[allow(clippy::option_option)] // `Some(None)` if absent, `None` if damaged.
fn read_digest(line: &Line) -> Option<Option<Digest>> {
    match line.get_bytes(Field::Digest) {
        Some(bytes) => Some(Some(bytes.try_into().ok()?)),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests;
