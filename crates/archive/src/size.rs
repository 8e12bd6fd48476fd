//! How much of a block a revision takes with all that it has: known from its rows, before its bodies are read.
//!
//! A reader unpacks at most [`Limits`] of a block. Blocks are filled up to well below these limits, and one revision is
//! added to a block as a whole, so that a revision may take what is between the two. A larger one stays in its tables.

use std::collections::BTreeSet;

use rashomon_blocks::{Limits, MAX_VALUE};
use rashomon_tables::Value;

use super::{entries::Unit, large::LARGEST};
use rashomon_records::{
    ImportRevision, NewProperty, PropertyInfo, Tid,
    rows::{Properties, RenderRow, RevisionRow, index_size, to_json},
};

/// Bytes of bodies that a block takes of one revision with its renders.
pub(super) const MAX_UNIT_BODIES: u64 = 64 << 20;

/// Entries that a block takes of one revision: one for each body, and for each render without a body.
pub(super) const MAX_UNIT_ENTRIES: usize = 32 << 10;

/// Bytes of everything else that a block takes of one revision: headers, users, comments.
pub(super) const MAX_UNIT_VALUES: usize = 8 << 20;

/// Bytes of a body's values beside those in the index row of its revision or render: times, and the name of its chunks.
const BODY_VALUES: usize = 64;

/// Bytes of a body's values in the index row of its revision or render, beside its headers: its size and SHA-1 as JSON.
const INFO_VALUES: usize = 128;

/// Bytes of a render's values beside its properties: its tid, digest and times.
const RENDER_VALUES: usize = 64;

/// How much of a block a revision takes, at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UnitSize {
    /// Entries.
    pub(super) entries: usize,
    /// Bytes of values in columns.
    pub(super) values: usize,
    /// The largest of these values.
    largest_value: usize,
    /// Bytes of bodies.
    pub(super) bodies: u64,
}

impl UnitSize {
    /// Of a revision and its renders, as their rows say. Bodies that stay in chunks, and those of renders that are left
    /// out, are not in the block.
    pub(super) fn of(revision: &RevisionRow, renders: &[RenderRow], left_out: &BTreeSet<Tid>) -> Self {
        let mut size = Self::default();
        size.add_record(&revision.to_values());
        size.add_owner(&revision.properties, true);
        for render in renders {
            let is_kept = !render.left_out && !left_out.contains(&render.tid);
            size.add_render(&render.properties, is_kept);
        }
        size
    }

    /// Of what goes into a block next.
    pub(super) fn of_unit(unit: &Unit) -> Self {
        let mut size = Self::default();
        size.add_record(&unit.revision.to_values());
        size.add_owner(&unit.revision.properties, true);
        for (render, bodies) in &unit.renders {
            size.add_render(&render.properties, !bodies.is_empty());
        }
        size.bodies = unit.all_bodies().map(|(_, _, body)| body.size_in_block()).sum();
        size
    }

    /// Of a revision that is imported.
    pub(super) fn of_import(revision: &ImportRevision) -> Self {
        let mut size = Self::default();
        let record = &revision.record;
        for text in [&record.user, &record.comment].into_iter().flatten() {
            size.add_value(text.len());
        }
        size.add_value(to_json(&record.export).size());
        size.add_import(revision.properties.iter().map(|(property, _)| property));
        for render in &revision.renders {
            size.values += RENDER_VALUES;
            size.add_import(render.properties.iter().map(|(property, _)| property));
        }
        size
    }

    fn add_import<'p>(&mut self, properties: impl ExactSizeIterator<Item = &'p NewProperty>) {
        self.entries += properties.len().max(1);
        for property in properties {
            let content_type = property.content_type.as_ref().map_or(0, String::len);
            let headers = to_json(&property.other_headers).size() + content_type;
            self.values += BODY_VALUES + INFO_VALUES;
            self.add_value(property.name.as_str().len() + headers);
            self.bodies += property.body.size;
        }
    }

    /// The values of the columns that a revision has beside its properties.
    fn add_record(&mut self, values: &[Option<Value>]) {
        for value in values.iter().flatten() {
            self.add_value(value.size());
        }
    }

    fn add_render(&mut self, properties: &Properties, is_kept: bool) {
        self.values += RENDER_VALUES;
        self.add_owner(properties, is_kept);
    }

    /// The bodies of a revision or of a render.
    fn add_owner(&mut self, properties: &Properties, is_kept: bool) {
        self.entries += if is_kept { properties.len().max(1) } else { 1 };
        self.values += BODY_VALUES * properties.len();
        self.add_value(index_size(properties));
        if is_kept {
            let in_block = |info: &&PropertyInfo| info.size <= LARGEST;
            self.bodies += properties.values().filter(in_block).map(|info| info.size).sum::<u64>();
        }
    }

    fn add_value(&mut self, bytes: usize) {
        self.values += bytes;
        self.largest_value = self.largest_value.max(bytes);
    }

    /// Why no block takes the revision, in words. `None`: blocks take it.
    pub(super) fn excess(&self) -> Option<&'static str> {
        if self.bodies > MAX_UNIT_BODIES {
            Some("its bodies have more bytes than a block takes of one revision")
        } else if self.entries > MAX_UNIT_ENTRIES {
            Some("it has more bodies and renders than a block takes of one revision")
        } else if self.values > MAX_UNIT_VALUES || self.largest_value > MAX_VALUE {
            Some("its headers and other metadata have more bytes than a block takes of one revision")
        } else {
            None
        }
    }

    /// Whether a block that has so many entries, and so many bytes of values, takes it too.
    pub(super) fn fits_beside(&self, entries: usize, values: usize) -> bool {
        let limits = Limits::default();
        entries.saturating_add(self.entries) <= limits.entries
            && values.saturating_add(self.values) <= limits.scripts
    }
}
