//! The space that a revision takes in a block, with its renders and bodies. This space is computed from the
//! rows, before bodies are read.
//!
//! A reader unpacks only blocks within [`Limits`]. A block is full far below these limits, and a revision is
//! added to a block as a whole. So the last revision may take all the space from a full block to the limits.
//! A larger revision stays in the tables.

use std::collections::BTreeSet;

use rashomon_blocks::{Limits, MAX_VALUE};
use rashomon_records::{
    ExportRecord, ImportRevision, NewProperty, PropertyInfo, Tid,
    rows::{Properties, RenderRow, RevisionRow, index_size, json_size},
};

use crate::format::Unit;

/// The maximum size of a body in a block, in bytes. Larger bodies stay in chunks, since a reader of a block
/// has the whole block in memory.
pub(crate) const MAX_BODY_IN_BLOCK: u64 = 4 << 20;

/// The maximum number of bytes of bodies that a block takes of one revision with its renders.
pub(crate) const MAX_UNIT_BODY_BYTES: u64 = 64 << 20;

/// The maximum number of entries that a block takes of one revision. Each body is an entry, and so is each
/// revision or render without a body.
pub(crate) const MAX_UNIT_ENTRIES: usize = 32 << 10;

/// The maximum number of bytes of other values that a block takes of one revision: headers, users, comments.
pub(crate) const MAX_UNIT_VALUE_BYTES: usize = 8 << 20;

/// An upper bound of the bytes of a body's values that are not in the row of its revision or render: times,
/// and the name of its chunk set.
const BODY_VALUE_BYTES: usize = 64;

/// An upper bound of the bytes of a body's values in the row of its revision or render, without the headers:
/// size and SHA-1 as JSON.
const BODY_INFO_BYTES: usize = 128;

/// An upper bound of the bytes of a revision's values of a fixed size: parent, times, digest and first tid.
const REVISION_VALUE_BYTES: usize = 64;

/// An upper bound of the bytes of a render's values without its properties: tid, digest and times.
const RENDER_VALUE_BYTES: usize = 64;

/// An upper bound of the space in a block that a revision takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnitSize {
    /// The number of entries.
    pub entries: usize,
    /// The number of bytes of values in columns.
    pub values: usize,
    /// The number of bytes of the largest value.
    largest_value: usize,
    /// The number of bytes of bodies.
    pub bodies: u64,
}

impl UnitSize {
    /// Returns the size of a revision and its renders, according to their rows. Does not count the bytes of
    /// bodies that stay in chunks, nor the bodies of renders that are left out.
    pub(crate) fn of(revision: &RevisionRow, renders: &[RenderRow], left_out: &BTreeSet<Tid>) -> Self {
        let mut size = Self::default();
        size.add_revision(revision);
        for render in renders {
            let is_kept = !render.left_out && !left_out.contains(&render.tid);
            size.add_render(&render.properties, is_kept);
        }
        size
    }

    /// Returns the size of a unit that is added to a block.
    pub(crate) fn of_unit(unit: &Unit) -> Self {
        let mut size = Self::default();
        size.add_revision(&unit.revision);
        for (render, bodies) in &unit.renders {
            size.add_render(&render.properties, !bodies.is_empty());
        }
        size.bodies = unit.all_bodies().map(|(_, _, body)| body.size_in_block()).sum();
        size
    }

    /// Returns the size of a revision that is imported.
    pub(crate) fn of_import(revision: &ImportRevision) -> Self {
        let mut size = Self::default();
        let record = &revision.record;
        for text in [&record.user, &record.comment].into_iter().flatten() {
            size.add_value(text.len());
        }
        size.add_value(json_size(&record.export));
        size.add_import(revision.properties.iter().map(|(property, _)| property));
        for render in &revision.renders {
            size.values += RENDER_VALUE_BYTES;
            size.add_import(render.properties.iter().map(|(property, _)| property));
        }
        size
    }

    fn add_import<'p>(&mut self, properties: impl ExactSizeIterator<Item = &'p NewProperty>) {
        self.entries += properties.len().max(1);
        for property in properties {
            let content_type = property.content_type.as_ref().map_or(0, String::len);
            let headers = json_size(&property.other_headers) + content_type;
            self.values += BODY_VALUE_BYTES + BODY_INFO_BYTES;
            self.add_value(property.name.as_str().len() + headers);
            self.bodies += property.body.size;
        }
    }

    /// Adds the values of a revision's row, and the bodies of the revision.
    fn add_revision(&mut self, row: &RevisionRow) {
        let record = &row.record;
        self.values += REVISION_VALUE_BYTES;
        for text in [&record.user, &record.comment].into_iter().flatten() {
            self.add_value(text.len());
        }
        if record.export != ExportRecord::default() {
            self.add_value(json_size(&record.export));
        }
        if let Some(erasure) = &record.erased {
            self.add_value(json_size(erasure));
        }
        let properties = index_size(&row.properties);
        self.add_value(properties);
        self.add_bodies(&row.properties, properties, true);
    }

    fn add_render(&mut self, properties: &Properties, is_kept: bool) {
        self.values += RENDER_VALUE_BYTES;
        self.add_bodies(properties, index_size(properties), is_kept);
    }

    /// Adds the bodies of a revision or of a render, whose properties take `index_size` bytes in its row.
    fn add_bodies(&mut self, properties: &Properties, index_size: usize, is_kept: bool) {
        self.entries += if is_kept { properties.len().max(1) } else { 1 };
        self.values += BODY_VALUE_BYTES * properties.len();
        self.add_value(index_size);
        if is_kept {
            let in_block = |info: &&PropertyInfo| info.size <= MAX_BODY_IN_BLOCK;
            self.bodies += properties.values().filter(in_block).map(|info| info.size).sum::<u64>();
        }
    }

    fn add_value(&mut self, bytes: usize) {
        self.values += bytes;
        self.largest_value = self.largest_value.max(bytes);
    }

    /// Returns the reason why the revision is too large for any block, or `None` if it is small enough.
    pub(crate) fn excess(&self) -> Option<&'static str> {
        if self.bodies > MAX_UNIT_BODY_BYTES {
            Some("its bodies have more bytes than a block takes of one revision")
        } else if self.entries > MAX_UNIT_ENTRIES {
            Some("it has more bodies and renders than a block takes of one revision")
        } else if self.values > MAX_UNIT_VALUE_BYTES || self.largest_value > MAX_VALUE {
            Some("its headers or other metadata have more bytes than a block allows")
        } else {
            None
        }
    }

    /// Whether the revision fits into a block that already has this number of entries and bytes of values.
    pub(crate) fn fits_beside(&self, entries: usize, values: usize) -> bool {
        let limits = Limits::default();
        entries.saturating_add(self.entries) <= limits.entries
            && values.saturating_add(self.values) <= limits.scripts
    }
}
