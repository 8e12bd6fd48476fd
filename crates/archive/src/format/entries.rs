//! Writes a revision with its renders and bodies as entries of a block. [`units`](crate::format::units) reads the
//! entries back.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_blocks::{BlockBuilder, Error as BlockError};
use rashomon_clock::Timestamp;
use rashomon_tables::Value;

use crate::format::{
    columns::{Field, Kind, Line},
    derived::{parent_to_number, remove_derivable},
};
use rashomon_records::{
    ExportRecord, Page, PropertyInfo, PropertyName, Revision, Tid,
    content::ChunkSet,
    rows::{ColumnValue, Digest, Properties, RenderRow, RevisionRow, digest, to_json},
};

/// The maximum number of bytes of bodies at the start of a block whose size and SHA-1 are omitted: a reader
/// of the revision computes them. For later bodies the block stores both, which bounds the work of a reader.
const MAX_HASHED_BYTES: u64 = 16 << 20;

/// A revision with its bodies, its renders, and their bodies. A unit is sealed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// The revision.
    pub revision: RevisionRow,
    /// The bodies of the revision itself.
    pub bodies: Bodies,
    /// The renders, the oldest first; at least one.
    pub renders: Vec<(RenderRow, Bodies)>,
}

/// The bodies of a revision, or of a render.
pub(crate) type Bodies = BTreeMap<PropertyName, ArchivedBody>;

/// A body in the archive.
#[derive(Debug, Clone, PartialEq)]
pub struct ArchivedBody {
    /// The size, SHA-1 and headers of the body, as in the row of its revision or render.
    pub info: PropertyInfo,
    /// When the body was written.
    pub written_at: Timestamp,
    /// The location of the bytes of the body.
    pub location: BodyLocation,
}

impl ArchivedBody {
    /// The number of uncompressed bytes that the body has in the block: 0 if the body is in chunks.
    pub fn size_in_block(&self) -> u64 {
        if matches!(self.location, BodyLocation::Entry(_)) { self.info.size } else { 0 }
    }
}

/// The location of the bytes of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum BodyLocation {
    /// In the block, in the entry with this ordinal.
    Entry(u64),
    /// In chunks, as before the seal.
    Chunks(ChunkSet),
}

impl Unit {
    /// Returns the latest write time of all parts of the unit.
    pub fn last_written(&self) -> Timestamp {
        let of_renders = self.renders.iter().flat_map(|(render, bodies)| {
            bodies.values().map(|body| body.written_at).chain([render.written_at])
        });
        let of_revision = self.bodies.values().map(|body| body.written_at);
        of_revision.chain(of_renders).fold(self.revision.written_at, Ord::max)
    }

    /// Whether the unit has a single render, and this is the render that an import creates.
    fn has_the_render_of_an_import(&self, page: &Page) -> bool {
        match &self.renders[..] {
            [(render, bodies)] => bodies.is_empty() && *render == render_of_import(page, &self.revision),
            _ => false,
        }
    }

    /// All bodies, each with its name and its render. The render is `None` for a body of the revision.
    pub fn all_bodies(&self) -> impl Iterator<Item = (&PropertyName, Option<Tid>, &ArchivedBody)> {
        let of_revision = self.bodies.iter().map(|(name, body)| (name, None, body));
        let of_renders = self
            .renders
            .iter()
            .flat_map(|(render, bodies)| bodies.iter().map(|(name, body)| (name, Some(render.tid), body)));
        of_revision.chain(of_renders)
    }
}

/// Writes one unit of a page into a block.
pub(crate) struct UnitWriter<'a> {
    /// The block.
    pub builder: &'a mut BlockBuilder,
    /// The page of the unit.
    pub page: &'a Page,
    /// The page's previous revision in the block, if the last unit of the block is of the page.
    pub above: Option<Revision>,
}

/// The texts of bodies, by name and render.
pub(crate) type Texts = BTreeMap<(PropertyName, Option<Tid>), Bytes>;

impl UnitWriter<'_> {
    /// Adds a unit and its texts, and stores the locations of its bodies in the unit.
    pub(crate) fn push(mut self, unit: &mut Unit, texts: &Texts) -> Result<(), BlockError> {
        let is_page = self.above.is_none();
        if self.builder.may_begin_group(is_page)? {
            // A reader of the group does not know the revision before it.
            self.above = None;
        }
        let mut line = revision_line(unit, self.above);
        let is_imported = unit.has_the_render_of_an_import(self.page);
        if is_imported {
            line.add(Kind::IMPORTED);
        }
        self.push_owner(line, unit.revision.written_at, &mut unit.bodies, None, texts)?;
        if is_imported {
            return Ok(());
        }
        for (render, bodies) in &mut unit.renders {
            let line = render_line(self.page, &unit.revision, render, &infos(bodies));
            self.push_owner(line, render.written_at, bodies, Some(render.tid), texts)?;
        }
        Ok(())
    }

    /// Adds a revision or a render with its bodies. The first body is in the same entry as its revision or
    /// render.
    fn push_owner(
        &mut self,
        line: Line,
        written_at: Timestamp,
        bodies: &mut Bodies,
        of: Option<Tid>,
        texts: &Texts,
    ) -> Result<(), BlockError> {
        let mut line = Some(line);
        for (name, body) in bodies {
            let text = texts.get(&(name.clone(), of));
            let mut line = line.take().unwrap_or_else(Line::new);
            line.add(Kind::BODY);
            if body.written_at != written_at {
                line.int(Field::BodyWrittenAt, body.written_at.as_micros());
            }
            let is_hashed = text.is_some_and(|text| {
                self.builder.content_bytes().saturating_add(text.len() as u64) <= MAX_HASHED_BYTES
            });
            add_body(&mut line, body, is_hashed);
            let stream = stream_of(Some(name), self.page);
            let ordinal = self.builder.push(&stream, text.map_or(&[], |text| &text[..]), &line.0)?;
            if text.is_some() {
                body.location = BodyLocation::Entry(ordinal);
            }
        }
        if let Some(line) = line {
            self.builder.push(&stream_of(None, self.page), b"", &line.0)?;
        }
        Ok(())
    }
}

/// Returns the name of the stream of a property of a page. Without a property, returns the name of the page's
/// stream of entries without bodies.
fn stream_of(name: Option<&PropertyName>, page: &Page) -> Vec<u8> {
    let name = name.map_or(&b""[..], |name| name.as_str().as_bytes());
    [name, b"/", page.title.as_str().as_bytes()].concat()
}

pub(crate) fn infos(bodies: &Bodies) -> Properties {
    bodies.iter().map(|(name, body)| (name.clone(), body.info.clone())).collect()
}

fn json_bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Text(text) => text.into_bytes(),
        _ => Vec::new(),
    }
}

/// Returns the digest of a request that has all these properties.
pub(crate) fn digest_of(of_revision: &Properties, of_render: &Properties) -> Digest {
    if of_render.is_empty() {
        return digest(of_revision.iter());
    }
    let all: BTreeMap<_, _> = of_revision.iter().chain(of_render).collect();
    digest(all.into_iter())
}

fn revision_line(unit: &Unit, above: Option<Revision>) -> Line {
    let (row, bodies, first) = (&unit.revision, infos(&unit.bodies), unit.renders.first());
    let (mut line, record) = (Line::new(), &row.record);
    line.add(Kind::REVISION);
    line.int(Field::Rev, record.rev.get());
    line.int(Field::StoredAt, row.stored_at.as_micros());
    if row.written_at != row.stored_at {
        line.int(Field::WrittenAt, row.written_at.as_micros());
    }
    let of_first = first.map(|(_, bodies)| infos(bodies)).unwrap_or_default();
    if row.digest != digest_of(&bodies, &of_first) {
        line.bytes(Field::Digest, row.digest);
    }
    if first.is_none_or(|(render, _)| render.tid != row.first_tid) {
        line.bytes(Field::FirstTid, row.first_tid.as_time_uuid().to_ordered_bytes());
    }
    if row.properties != bodies {
        line.bytes(Field::Properties, json_bytes(row.properties.to_value()));
    }
    if let Some(parent) = record.parent {
        line.int(Field::Parent, parent_to_number(parent, above));
    }
    line.int(Field::Timestamp, record.timestamp.as_micros());
    for (field, text) in [(Field::User, &record.user), (Field::Comment, &record.comment)] {
        if let Some(text) = text {
            line.bytes(field, text.as_str());
        }
    }
    if record.minor {
        line.int(Field::Minor, 1);
    }
    let mut export = record.export.clone();
    if let Some(parts) = remove_derivable(&mut export, record.rev, &bodies).code() {
        line.int(Field::ExportFollows, parts);
    }
    if export != ExportRecord::default() {
        line.bytes(Field::Export, json_bytes(to_json(&export)));
    }
    if let Some(erasure) = &record.erased {
        line.bytes(Field::Erased, json_bytes(to_json(erasure)));
    }
    line
}

fn render_line(page: &Page, revision: &RevisionRow, row: &RenderRow, bodies: &Properties) -> Line {
    let mut line = Line::new();
    line.add(Kind::RENDER);
    if row.tid != tid_of_import(page, revision) {
        let uuid = row.tid.as_time_uuid();
        line.int(Field::TidTicks, uuid.ticks() as i64);
        line.bytes(Field::Tid, &uuid.to_ordered_bytes()[8..]);
    }
    if row.stored_at != revision.stored_at {
        line.int(Field::StoredAt, row.stored_at.as_micros());
    }
    if row.written_at != row.stored_at {
        line.int(Field::WrittenAt, row.written_at.as_micros());
    }
    if row.left_out {
        line.int(Field::LeftOut, 1);
    }
    if row.digest != render_digest(revision, row.tid, bodies) {
        line.bytes(Field::Digest, row.digest);
    }
    if row.properties != *bodies {
        line.bytes(Field::Properties, json_bytes(row.properties.to_value()));
    }
    line
}

/// Returns the tid that an import derives from a revision.
pub(crate) fn tid_of_import(page: &Page, revision: &RevisionRow) -> Tid {
    Tid::imported(page, revision.record.rev, revision.record.timestamp)
}

/// Returns the render that an import creates for a revision without renders.
pub(crate) fn render_of_import(page: &Page, revision: &RevisionRow) -> RenderRow {
    let tid = tid_of_import(page, revision);
    RenderRow {
        rev: revision.record.rev,
        tid,
        properties: Properties::new(),
        stored_at: revision.stored_at,
        digest: render_digest(revision, tid, &Properties::new()),
        left_out: false,
        written_at: revision.stored_at,
    }
}

/// Returns the digest of the request that created a render. The result differs from the digest in the row if
/// bodies were left out or added later.
pub(crate) fn render_digest(revision: &RevisionRow, tid: Tid, bodies: &Properties) -> Digest {
    if revision.first_tid == tid { revision.digest } else { digest(bodies.iter()) }
}

/// Adds the values of a body. Omits size and SHA-1 if `is_hashed` is set.
fn add_body(line: &mut Line, body: &ArchivedBody, is_hashed: bool) {
    let info = &body.info;
    line.bytes(Field::Headers, json_bytes(to_json(&info.headers)));
    if !is_hashed {
        line.int(Field::Size, i64::try_from(info.size).unwrap_or(i64::MAX));
        line.bytes(Field::Sha1, info.sha1.0);
    }
    if let Some(at) = info.rewritten_at {
        line.int(Field::RewrittenAt, at.as_micros());
    }
    if let BodyLocation::Chunks(set) = &body.location {
        line.bytes(Field::Chunks, set.to_bytes().to_vec());
    }
}
