//! Entries of a block as the revisions that they are of: the way back from [`entries`](super::entries).

use std::collections::{BTreeSet, HashMap};

use rashomon_blocks::{Block, Error as BlockError};
use rashomon_clock::Timestamp;
use rashomon_tables::TimeUuid;

use super::{
    columns::{Field, Kind, Line},
    derived::{ExportParts, parent_from_number, put_back},
    entries::{
        ArchivedBody, Bodies, Place, Unit, digest_of, infos, render_digest, render_of_import, tid_of_history,
    },
};
use crate::{
    Page, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid, Title,
    content::ChunkSet,
    rows::{Digest, Properties, RenderRow, RevisionRow, properties_from_json},
};

/// The pages of a block, with their units.
type Pages = Vec<(Page, Vec<Unit>)>;

/// The size and the SHA-1 of contents, by ordinal.
type Hashes = HashMap<u64, (u64, Sha1)>;

/// Reads the units of a block, page by page. `None`: they cannot be understood.
///
/// Of a damaged block, a body that cannot be read has no bytes and a SHA-1 of zeros where the block does not say more.
pub(super) fn read_units(of: &Page, block: &Block<'_>) -> Result<Option<Pages>, BlockError> {
    let streams = block.streams()?;
    let mut lines = Vec::with_capacity(block.len());
    for entry in block.entries()? {
        let Some(stream) = streams.get(entry.stream) else { return Ok(None) };
        lines.push(EntryLine { ordinal: entry.ordinal, stream, line: Line(entry.values) });
    }
    let hashes = hashes(block, &lines);
    let mut pages = Pages::new();
    let of_units = lines.chunk_by(|_, next| !next.line.is(Kind::REVISION));
    Ok(of_units
        .map(|lines| read_next(of, lines, &hashes, &mut pages))
        .collect::<Option<()>>()
        .map(|()| pages))
}

/// An entry without its content.
struct EntryLine<'a> {
    ordinal: u64,
    /// The name of its stream: that of its property, if it has a body, and its page's.
    stream: &'a [u8],
    line: Line,
}

impl EntryLine<'_> {
    fn name_and_title(&self) -> Option<(&str, &str)> {
        std::str::from_utf8(self.stream).ok()?.split_once('/')
    }

    /// Its size and its SHA-1 are to be computed.
    fn is_hashed(&self) -> bool {
        self.line.is(Kind::BODY) && !self.line.has(Field::Size) && !self.line.has(Field::Chunks)
    }
}

/// Looks at all contents of which the block does not say it.
fn hashes(block: &Block<'_>, lines: &[EntryLine<'_>]) -> Hashes {
    let of: BTreeSet<u64> = lines.iter().filter(|line| line.is_hashed()).map(|line| line.ordinal).collect();
    let mut hashes = Hashes::with_capacity(of.len());
    let Some(last) = of.last() else { return hashes };
    for content in block.iter().flatten() {
        if content.ordinal > *last {
            break;
        }
        if let Some(bytes) = content.bytes.filter(|_| of.contains(&content.ordinal)) {
            hashes.insert(content.ordinal, (bytes.len() as u64, Sha1::of(&bytes)));
        }
    }
    hashes
}

/// Reads the lines of one unit.
fn read_next(of: &Page, lines: &[EntryLine<'_>], hashes: &Hashes, pages: &mut Pages) -> Option<()> {
    let first = lines.first().filter(|first| first.line.is(Kind::REVISION))?;
    let title = Title::new(first.name_and_title()?.1).ok()?;
    if pages.last().is_none_or(|(page, _)| page.title != title) {
        pages.push((Page { title, ..of.clone() }, Vec::new()));
    }
    let (page, units) = pages.last_mut()?;
    let above = units.last().map(|unit| unit.revision.record.rev);
    units.push(read_unit(page, above, lines, hashes)?);
    Some(())
}

/// A line of a revision or render, with its bodies.
type WithBodies<'l> = (&'l Line, Bodies);

fn read_unit(page: &Page, above: Option<Revision>, lines: &[EntryLine<'_>], hashes: &Hashes) -> Option<Unit> {
    let stored_at = time(&lines.first()?.line, Field::StoredAt)?;
    let mut owners: Vec<WithBodies<'_>> = Vec::new();
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
    let renders_of: Vec<WithBodies<'_>> = owners.collect();
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

/// When a revision or a render was written, where `stored_at` is when its revision was stored.
fn written_at(owner: &Line, stored_at: Timestamp) -> Timestamp {
    time(owner, Field::WrittenAt).or_else(|| time(owner, Field::StoredAt)).unwrap_or(stored_at)
}

fn read_body(entry: &EntryLine<'_>, owner_written_at: Timestamp, hashes: &Hashes) -> Option<ArchivedBody> {
    let line = &entry.line;
    let (size, sha1) = if entry.is_hashed() {
        hashes.get(&entry.ordinal).copied().unwrap_or((0, Sha1([0; 20])))
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
    let place = match line.get_bytes(Field::Chunks) {
        Some(set) => Place::Chunks(ChunkSet::from_bytes(set)?),
        None => Place::Entry(entry.ordinal),
    };
    let written_at = time(line, Field::BodyWrittenAt).unwrap_or(owner_written_at);
    Some(ArchivedBody { info, written_at, place })
}

fn properties(line: &Line, bodies: &Bodies) -> Option<Properties> {
    match line.get_text(Field::Properties) {
        Some(json) => properties_from_json(json),
        None => Some(infos(bodies)),
    }
}

fn read_revision(
    page: &Page,
    above: Option<Revision>,
    line: &Line,
    bodies: &Bodies,
    first: Option<&WithBodies<'_>>,
) -> Option<RevisionRow> {
    let infos_of = infos(bodies);
    let record = read_record(line, above, &infos_of)?;
    let history = Tid::imported(page, record.rev, record.timestamp);
    let first_tid = match (line.get_bytes(Field::FirstTid), first) {
        (Some(bytes), _) => Tid::from(TimeUuid::from_ordered_bytes(bytes.try_into().ok()?)?),
        (None, Some((first, _))) => read_tid(first, history)?,
        (None, None) => history,
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
    put_back(&mut export, ExportParts::of_code(line.get_int(Field::ExportFollows)), rev, bodies)?;
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
    let tid = read_tid(line, tid_of_history(page, revision))?;
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

fn read_tid(line: &Line, history: Tid) -> Option<Tid> {
    let Some(ticks) = line.get_int(Field::TidTicks) else { return Some(history) };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ticks.to_be_bytes());
    let last = line.get_bytes(Field::Tid)?;
    (last.len() == 8).then(|| bytes[8..].copy_from_slice(last))?;
    Some(Tid::from(TimeUuid::from_ordered_bytes(bytes)?))
}

#[allow(clippy::option_option)] // Absent, or damaged.
fn read_digest(line: &Line) -> Option<Option<Digest>> {
    match line.get_bytes(Field::Digest) {
        Some(bytes) => Some(Some(bytes.try_into().ok()?)),
        None => Some(None),
    }
}

#[cfg(test)]
mod tests;
