//! A revision with all that it has, as entries of a block, and back.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_blocks::{BlockBuilder, Entry, Error as BlockError};
use rashomon_clock::Timestamp;
use rashomon_tables::{TimeUuid, Value};

use super::columns::{Field, Kind, Line};
use crate::{
    ExportRecord, Page, Parent, PropertyInfo, PropertyName, Revision, RevisionRecord, Sha1, Tid,
    content::ChunkSet,
    revisioned::digest,
    rows::{Digest, Properties, RenderRow, RevisionRow, properties_from_json, properties_to_json, to_json},
};

/// A revision with its renders and their bodies: what is sealed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unit {
    pub(super) revision: RevisionRow,
    /// Its own bodies.
    pub(super) bodies: Bodies,
    /// Oldest first; at least one.
    pub(super) renders: Vec<(RenderRow, Bodies)>,
}

/// The bodies of a revision, or of a render.
pub(super) type Bodies = BTreeMap<PropertyName, ArchivedBody>;

/// A body in the archive.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArchivedBody {
    pub(super) info: PropertyInfo,
    pub(super) written_at: Timestamp,
    pub(super) place: Place,
}

/// Where the bytes of a body are.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// In the block, under this ordinal.
    Entry(u64),
    /// In chunks, as they were: it is too large for a row.
    Chunks(ChunkSet),
}

impl Unit {
    /// The latest time at which any of it was written.
    pub(super) fn last_written(&self) -> Timestamp {
        let of_renders = self.renders.iter().flat_map(|(render, bodies)| {
            bodies.values().map(|body| body.written_at).chain([render.written_at])
        });
        let of_revision = self.bodies.values().map(|body| body.written_at);
        of_revision.chain(of_renders).fold(self.revision.written_at, Ord::max)
    }

    /// All bodies, each with its name and the render that it is of.
    pub(super) fn all_bodies(&self) -> impl Iterator<Item = (&PropertyName, Option<Tid>, &ArchivedBody)> {
        let of_revision = self.bodies.iter().map(|(name, body)| (name, None, body));
        let of_renders = self
            .renders
            .iter()
            .flat_map(|(render, bodies)| bodies.iter().map(|(name, body)| (name, Some(render.tid), body)));
        of_revision.chain(of_renders)
    }
}

/// Writes units of pages, one after the other.
pub(super) struct UnitWriter<'a> {
    pub(super) builder: &'a mut BlockBuilder,
    pub(super) page: &'a Page,
    /// Whether it is the page's first unit in the block.
    pub(super) first: bool,
}

impl UnitWriter<'_> {
    /// Adds a unit, whose bodies are given by name and render, and says where they are.
    pub(super) fn push(
        mut self,
        unit: &mut Unit,
        texts: &BTreeMap<(PropertyName, Option<Tid>), Bytes>,
    ) -> Result<(), BlockError> {
        let first_render = unit.renders.first().map(|(render, bodies)| (render.clone(), infos(bodies)));
        let mut line = revision_line(&unit.revision, &infos(&unit.bodies), first_render.as_ref());
        if self.first {
            line.bytes(Field::Title, self.page.title.as_str());
        }
        self.builder.push(b"", b"", &line.0)?;
        let written_at = unit.revision.written_at;
        self.bodies(Kind::RevisionBody, unit.revision.record.rev, &mut unit.bodies, |name| {
            (texts.get(&(name.clone(), None)), written_at)
        })?;
        for (render, bodies) in &mut unit.renders {
            let line = render_line(self.page, &unit.revision, render, &infos(bodies));
            self.builder.push(b"", b"", &line.0)?;
            let (tid, written_at) = (render.tid, render.written_at);
            self.bodies(Kind::RenderBody, render.rev, bodies, |name| {
                (texts.get(&(name.clone(), Some(tid))), written_at)
            })?;
        }
        Ok(())
    }

    fn bodies<'t>(
        &mut self,
        kind: Kind,
        rev: Revision,
        bodies: &mut Bodies,
        text_of: impl Fn(&PropertyName) -> (Option<&'t Bytes>, Timestamp),
    ) -> Result<(), BlockError> {
        for (name, body) in bodies {
            let (text, owner_written_at) = text_of(name);
            let line = body_line(kind, rev, body, owner_written_at);
            let stream = stream_of(name, self.page);
            let ordinal = self.builder.push(&stream, text.map_or(&[], |text| &text[..]), &line.0)?;
            if text.is_some() {
                body.place = Place::Entry(ordinal);
            }
        }
        Ok(())
    }
}

/// The versions of a property of a page: they come from each other.
fn stream_of(name: &PropertyName, page: &Page) -> Vec<u8> {
    [name.as_str().as_bytes(), b"/", page.title.as_str().as_bytes()].concat()
}

fn name_of_stream(stream: &[u8]) -> Option<PropertyName> {
    let name = stream.split(|byte| *byte == b'/').next()?;
    PropertyName::new(std::str::from_utf8(name).ok()?).ok()
}

fn infos(bodies: &Bodies) -> Properties {
    bodies.iter().map(|(name, body)| (name.clone(), body.info.clone())).collect()
}

fn json_bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Text(text) => text.into_bytes(),
        _ => Vec::new(),
    }
}

/// What a request that gave all these properties is known by.
fn digest_of(of_revision: &Properties, of_render: &Properties) -> Digest {
    let all: BTreeMap<_, _> = of_revision.iter().chain(of_render).collect();
    digest(all.into_iter())
}

fn revision_line(row: &RevisionRow, bodies: &Properties, first: Option<&(RenderRow, Properties)>) -> Line {
    let (mut line, record) = (Line::new(Kind::Revision), &row.record);
    line.int(Field::Rev, record.rev.get());
    line.int(Field::StoredAt, row.stored_at.as_micros());
    if row.written_at != row.stored_at {
        line.int(Field::WrittenAt, row.written_at.as_micros());
    }
    let of_first = first.map(|(_, properties)| properties.clone()).unwrap_or_default();
    if row.digest != digest_of(bodies, &of_first) {
        line.bytes(Field::Digest, row.digest);
    }
    if first.is_none_or(|(render, _)| render.tid != row.first_tid) {
        line.bytes(Field::FirstTid, row.first_tid.as_time_uuid().to_ordered_bytes());
    }
    if row.properties != *bodies {
        line.bytes(Field::Properties, json_bytes(properties_to_json(&row.properties)));
    }
    if let Some(parent) = record.parent {
        line.int(Field::Parent, parent.to_number());
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
    if record.export != ExportRecord::default() {
        line.bytes(Field::Export, json_bytes(to_json(&record.export)));
    }
    line
}

fn render_line(page: &Page, revision: &RevisionRow, row: &RenderRow, bodies: &Properties) -> Line {
    let mut line = Line::new(Kind::Render);
    line.int(Field::Rev, row.rev.get());
    if row.tid != tid_of_history(page, revision) {
        let uuid = row.tid.as_time_uuid();
        line.int(Field::TidTicks, uuid.ticks() as i64);
        line.bytes(Field::Tid, &uuid.to_ordered_bytes()[8..]);
    }
    line.int(Field::StoredAt, row.stored_at.as_micros());
    if row.written_at != row.stored_at {
        line.int(Field::WrittenAt, row.written_at.as_micros());
    }
    if row.digest != render_digest(revision, row.tid, bodies) {
        line.bytes(Field::Digest, row.digest);
    }
    if row.properties != *bodies {
        line.bytes(Field::Properties, json_bytes(properties_to_json(&row.properties)));
    }
    line
}

/// The tid that the only render of a revision of history has.
fn tid_of_history(page: &Page, revision: &RevisionRow) -> Tid {
    Tid::imported(page, revision.record.rev, revision.record.timestamp)
}

/// What the request that made a render is known by, where nothing was left out and nothing came later.
fn render_digest(revision: &RevisionRow, tid: Tid, bodies: &Properties) -> Digest {
    if revision.first_tid == tid { revision.digest } else { digest(bodies.iter()) }
}

fn body_line(kind: Kind, rev: Revision, body: &ArchivedBody, owner_written_at: Timestamp) -> Line {
    let (mut line, info) = (Line::new(kind), &body.info);
    line.int(Field::Rev, rev.get());
    if body.written_at != owner_written_at {
        line.int(Field::WrittenAt, body.written_at.as_micros());
    }
    line.bytes(Field::Headers, json_bytes(to_json(&info.headers)));
    line.bytes(Field::Sha1, info.sha1.0);
    if let Some(at) = info.rewritten_at {
        line.int(Field::RewrittenAt, at.as_micros());
    }
    line.int(Field::Size, i64::try_from(info.size).unwrap_or(i64::MAX));
    if let Place::Chunks(set) = &body.place {
        line.bytes(Field::Chunks, set.to_bytes().to_vec());
    }
    line
}

/// Reads the units of a block, page by page: of each page its title and its units.
pub(super) fn read_units(
    domain_and_bucket: &Page,
    streams: &[Vec<u8>],
    entries: Vec<Entry>,
) -> Option<Vec<(Page, Vec<Unit>)>> {
    let mut pages: Vec<(Page, Vec<Unit>)> = Vec::new();
    let mut group: Vec<(Entry, Line)> = Vec::new();
    for entry in entries {
        let line = Line(entry.values.clone());
        if line.kind()? == Kind::Revision {
            end_group(&mut pages, std::mem::take(&mut group), streams)?;
            if let Some(title) = line.get_text(Field::Title) {
                let title = crate::Title::new(title).ok()?;
                pages.push((Page { title, ..domain_and_bucket.clone() }, Vec::new()));
            }
        }
        group.push((entry, line));
    }
    end_group(&mut pages, group, streams)?;
    Some(pages)
}

fn end_group(pages: &mut [(Page, Vec<Unit>)], group: Vec<(Entry, Line)>, streams: &[Vec<u8>]) -> Option<()> {
    if group.is_empty() {
        return Some(());
    }
    let (page, units) = pages.last_mut()?;
    units.push(read_unit(page, group, streams)?);
    Some(())
}

/// A line of a revision or render, with the bodies that follow it.
type WithBodies = (Line, Bodies);

fn read_unit(page: &Page, group: Vec<(Entry, Line)>, streams: &[Vec<u8>]) -> Option<Unit> {
    let mut owners: Vec<WithBodies> = Vec::new();
    for (entry, line) in group {
        match line.kind()? {
            Kind::Revision | Kind::Render => owners.push((line, Bodies::new())),
            Kind::RevisionBody | Kind::RenderBody => {
                let name = name_of_stream(streams.get(entry.stream)?)?;
                let (owner, bodies) = owners.last_mut()?;
                let body = read_body(&entry, &line, written_at(owner)?)?;
                bodies.insert(name, body);
            }
        }
    }
    let mut owners = owners.into_iter();
    let (line, bodies) = owners.next()?;
    let renders: Vec<WithBodies> = owners.collect();
    let revision = read_revision(page, &line, &bodies, renders.first())?;
    let renders = (renders.into_iter())
        .map(|(line, bodies)| Some((read_render(page, &revision, &line, &bodies)?, bodies)))
        .collect::<Option<Vec<_>>>()?;
    Some(Unit { revision, bodies, renders })
}

fn time(line: &Line, field: Field) -> Option<Timestamp> {
    line.get_int(field).map(Timestamp::from_micros)
}

fn written_at(owner: &Line) -> Option<Timestamp> {
    time(owner, Field::WrittenAt).or_else(|| time(owner, Field::StoredAt))
}

fn read_body(entry: &Entry, line: &Line, owner_written_at: Timestamp) -> Option<ArchivedBody> {
    let info = PropertyInfo {
        headers: serde_json::from_slice(line.get_bytes(Field::Headers)?).ok()?,
        size: u64::try_from(line.get_int(Field::Size)?).ok()?,
        sha1: Sha1(line.get_bytes(Field::Sha1)?.try_into().ok()?),
        rewritten_at: time(line, Field::RewrittenAt),
    };
    let place = match line.get_bytes(Field::Chunks) {
        Some(set) => Place::Chunks(ChunkSet::from_bytes(set)?),
        None => Place::Entry(entry.ordinal),
    };
    Some(ArchivedBody { info, written_at: time(line, Field::WrittenAt).unwrap_or(owner_written_at), place })
}

fn properties(line: &Line, bodies: &Bodies) -> Option<Properties> {
    match line.get_text(Field::Properties) {
        Some(json) => properties_from_json(json),
        None => Some(infos(bodies)),
    }
}

fn read_revision(
    page: &Page,
    line: &Line,
    bodies: &Bodies,
    first: Option<&WithBodies>,
) -> Option<RevisionRow> {
    let rev = Revision::new(line.get_int(Field::Rev)?)?;
    let timestamp = time(line, Field::Timestamp)?;
    let parent = match line.get_int(Field::Parent) {
        Some(number) => Some(Parent::from_number(number)?),
        None => None,
    };
    let export = match line.get_bytes(Field::Export) {
        Some(json) => serde_json::from_slice(json).ok()?,
        None => ExportRecord::default(),
    };
    let record = RevisionRecord {
        rev,
        parent,
        timestamp,
        user: line.get_text(Field::User).map(str::to_owned),
        comment: line.get_text(Field::Comment).map(str::to_owned),
        minor: line.get_int(Field::Minor).is_some(),
        export,
    };
    let history = Tid::imported(page, rev, timestamp);
    let first_tid = match line.get_bytes(Field::FirstTid) {
        Some(bytes) => Tid::from(TimeUuid::from_ordered_bytes(bytes.try_into().ok()?)?),
        None => read_tid(&first?.0, history)?,
    };
    let of_first = first.map(|(_, bodies)| infos(bodies)).unwrap_or_default();
    Some(RevisionRow {
        record,
        properties: properties(line, bodies)?,
        first_tid,
        stored_at: time(line, Field::StoredAt)?,
        digest: read_digest(line)?.unwrap_or_else(|| digest_of(&infos(bodies), &of_first)),
        written_at: written_at(line)?,
    })
}

fn read_render(page: &Page, revision: &RevisionRow, line: &Line, bodies: &Bodies) -> Option<RenderRow> {
    let tid = read_tid(line, tid_of_history(page, revision))?;
    Some(RenderRow {
        rev: Revision::new(line.get_int(Field::Rev)?)?,
        tid,
        properties: properties(line, bodies)?,
        stored_at: time(line, Field::StoredAt)?,
        digest: read_digest(line)?.unwrap_or_else(|| render_digest(revision, tid, &infos(bodies))),
        written_at: written_at(line)?,
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
