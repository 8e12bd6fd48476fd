//! The part of one page in a group of a block, with the keys of the rows that the part contains.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use rashomon_archive_format::{PageEntries, Unit, UnitEntries};
use rashomon_blocks::Table;
use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Schema, Value};

use rashomon_records::{
    Page, PropertyName, Revision, Tid, Versions,
    rows::{content_of, render_key, rev_key},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The tables whose rows the archive contains.
pub(super) fn archived_tables() -> [&'static Schema; 6] {
    [&REVISIONS, &RENDERS, &REVISIONS_BY_TIME, &REVISIONS_BY_TID, &RENDER_CONTENT, &REVISION_CONTENT]
}

pub(super) fn is_archived(table: &Schema) -> bool {
    archived_tables().into_iter().any(|archived| archived.name() == table.name())
}

/// The entries of a revision in a block, which are not decoded.
#[derive(Debug)]
pub(super) struct PackedEntries {
    pub(super) rev: Revision,
    /// The group of the block that has the entries.
    pub(super) group: usize,
    pub(super) entries: UnitEntries,
}

/// A revision in an unpacked block. It is decoded at the first request: some of its values are derived from
/// contents, and the block may have megabytes of contents.
#[derive(Debug)]
pub(super) struct PackedUnit {
    page: Arc<Page>,
    packed: PackedEntries,
    /// The decoded revision. `None` if the entries cannot be understood.
    unit: OnceLock<Option<Arc<Unit>>>,
}

impl PackedUnit {
    /// Returns the revision, or `None` if the entries cannot be understood.
    pub(super) fn unit(
        &self,
        decode: impl FnOnce(&Page, &PackedEntries) -> Option<Unit>,
    ) -> Option<Arc<Unit>> {
        self.unit.get_or_init(|| decode(&self.page, &self.packed).map(Arc::new)).clone()
    }

    /// Whether the revision was decoded already.
    pub(super) fn is_read(&self) -> bool {
        self.unit.get().is_some()
    }
}

/// The revisions of a page in a group of a block.
#[derive(Debug)]
pub(super) struct Part {
    /// The revisions, each with the time of the edit and the write time.
    revisions: BTreeMap<Revision, (Timestamp, Timestamp, Arc<PackedUnit>)>,
    /// The renders, each with its write time.
    renders: BTreeMap<(Revision, Tid), Timestamp>,
    bodies: BTreeMap<(PropertyName, Revision, Option<Tid>), Timestamp>,
}

/// A row in the archive.
#[derive(Debug, Clone)]
pub(super) struct ArchivedRow {
    pub(super) clustering: Vec<Value>,
    pub(super) written_at: Timestamp,
    pub(super) what: RowSource,
}

/// The source of the values of an archived row.
#[derive(Debug, Clone)]
pub(super) enum RowSource {
    /// A row by time, which has no values.
    ByTime,
    /// A row by tid, whose only value is the revision.
    ByTid(Revision),
    /// A field of a revision in the block.
    Of(Arc<PackedUnit>, Field),
}

/// The part of a revision that is a row of its own.
#[derive(Debug, Clone)]
pub(super) enum Field {
    Record,
    Render(Tid),
    Body(PropertyName, Option<Tid>),
}

impl Part {
    /// Reads the keys of the page's units. Returns `None` if the entries cannot be understood.
    pub(super) fn new(page: Page, group: usize, table: &Table, entries: &PageEntries) -> Option<Self> {
        let page = Arc::new(page);
        let mut part = Self { revisions: BTreeMap::new(), renders: BTreeMap::new(), bodies: BTreeMap::new() };
        for entries in entries.units(table)? {
            let keys = entries.keys(table, &page)?;
            part.renders.extend(keys.renders.into_iter().map(|(tid, at)| ((keys.rev, tid), at)));
            part.bodies.extend(keys.bodies.into_iter().map(|(name, of, at)| ((name, keys.rev, of), at)));
            let packed = PackedEntries { rev: keys.rev, group, entries };
            let packed = Arc::new(PackedUnit { page: Arc::clone(&page), packed, unit: OnceLock::new() });
            part.revisions.insert(keys.rev, (keys.timestamp, keys.written_at, packed));
        }
        Some(part)
    }

    pub(super) fn revision(&self, rev: Revision) -> Option<&PackedUnit> {
        self.revisions.get(&rev).map(|(.., packed)| &**packed)
    }

    /// The approximate memory that the part takes after all revisions were decoded.
    pub(super) fn memory(&self) -> usize {
        const REVISION_BYTES: usize = 1024;
        const RENDER_BYTES: usize = 512;
        const BODY_BYTES: usize = 512;
        size_of::<Self>()
            + self.revisions.len() * REVISION_BYTES
            + self.renders.len() * RENDER_BYTES
            + self.bodies.len() * BODY_BYTES
    }

    /// Returns the rows of a table within a range, in no particular order.
    pub(super) fn rows(&self, table: &Schema, range: &ClusteringRange) -> Vec<ArchivedRow> {
        let mut rows = Vec::new();
        let mut add = |clustering: Vec<Value>, written_at, what: &dyn Fn() -> Option<RowSource>| {
            if range.contains(&clustering)
                && let Some(what) = what()
            {
                rows.push(ArchivedRow { clustering, written_at, what });
            }
        };
        let of = |rev: &Revision, field| {
            self.revisions.get(rev).map(|(.., packed)| RowSource::Of(Arc::clone(packed), field))
        };
        let name = table.name();
        if name == REVISIONS.name() {
            for (rev, (_, written_at, _)) in &self.revisions {
                add(rev_key(*rev), *written_at, &|| of(rev, Field::Record));
            }
        } else if name == REVISIONS_BY_TIME.name() {
            for (rev, (timestamp, written_at, _)) in &self.revisions {
                let key = vec![(*timestamp).into(), Value::Int(rev.get())];
                add(key, *written_at, &|| Some(RowSource::ByTime));
            }
        } else if name == RENDERS.name() {
            for ((rev, tid), written_at) in &self.renders {
                add(render_key(*rev, *tid), *written_at, &|| of(rev, Field::Render(*tid)));
            }
        } else if name == REVISIONS_BY_TID.name() {
            for ((rev, tid), written_at) in &self.renders {
                let key = vec![tid.as_time_uuid().into()];
                add(key, *written_at, &|| Some(RowSource::ByTid(*rev)));
            }
        } else {
            let of_renders = name == RENDER_CONTENT.name();
            for ((name, rev, tid), written_at) in &self.bodies {
                if tid.is_some() == of_renders {
                    let body = || of(rev, Field::Body(name.clone(), *tid));
                    add(body_key(name, *rev, *tid), *written_at, &body);
                }
            }
        }
        rows
    }
}

/// Returns the key of the row of a body.
pub(super) fn body_key(name: &PropertyName, rev: Revision, tid: Option<Tid>) -> Vec<Value> {
    match tid {
        Some(tid) => content_of(Versions::Render, name, rev, tid).1,
        None => content_of(Versions::Revision, name, rev, Tid::new(Timestamp::EPOCH, 0)).1,
    }
}
