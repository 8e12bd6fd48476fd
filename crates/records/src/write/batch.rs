//! The batch of a page: all rows that one write of a page stores.

use std::collections::BTreeSet;

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Mutation, Schema, Value};

use crate::{
    Definitions, ImportUnit, Page, PageChange, PropertyName, Revision, Tid, Versions, catalog,
    content::{Bodies, BodyRow, ChunkSet, ChunkSetStart, ChunkStore, Stored},
    rows::{
        ChunkReference, RenderRow, RevisionRow, RowKey, TidRow, TimeKey, TypedRow, content_of, partition_of,
        render_key, rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TIME},
};

/// The maximum number of bytes of bodies in one batch of a page. If a write has more, its largest bodies are moved into
/// chunks, so that the whole batch is below the table layer's limit of 4 MiB.
pub const MAX_BODIES: usize = 7 << 19;

/// A superseded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superseded {
    /// A revision that a higher revision superseded.
    Revision(Revision),
    /// A render that a newer render of its revision superseded.
    Render(Revision, Tid),
}

/// The kind of a batch of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// Any other write, such as that of a new revision or a new render.
    New,
    /// Replaces an existing property.
    Replacement,
    /// Imports a history.
    Import,
}

/// A body in a batch.
#[derive(Debug, Clone)]
pub struct PageBody {
    /// The revision.
    pub rev: Revision,
    /// The render with which it is stored.
    pub tid: Tid,
    /// The property.
    pub name: PropertyName,
    /// The body.
    pub body: BodyRow,
    /// Whether the property belongs to the render or to the revision.
    pub versions: Versions,
    /// Whether the body is stored in its content table. A retention strategy may store it elsewhere.
    pub in_content: bool,
}

impl PageBody {
    /// Returns the content table of the body, and its key in this table.
    fn content_key(&self) -> (&'static Schema, Vec<Value>) {
        content_of(self.versions, &self.name, self.rev, self.tid)
    }
}

/// All rows that one write of a page stores: the batch of the page, and the batches that are written before it.
///
/// The bodies are put into the batch last, by [`Self::into_batches`]. Until then, a retention strategy may decide to
/// store them elsewhere.
#[derive(Debug)]
pub struct PageBatch<'a> {
    /// The page.
    pub page: &'a Page,
    at: Timestamp,
    /// The lowest and the highest revision in the batch.
    written: Option<(Revision, Revision)>,
    /// The lowest and the highest revision that the batch changes and that were stored before.
    changed: Option<(Revision, Revision)>,
    /// The new revision that was added last.
    newest_new: Option<Revision>,
    /// Whether the batch deletes bodies, or restores earlier bodies.
    pub deletes_bodies: bool,
    /// The names of properties that the rows of the page may no longer have after the batch.
    pub purged_names: BTreeSet<PropertyName>,
    /// Whether the batch contains renders that need not be the newest of their revisions.
    may_have_old_renders: bool,
    kind: WriteKind,
    is_leased: bool,
    /// The time at which the earliest chunk set of the batch was begun, among the sets that this process has written.
    pub chunks_begun: Option<ChunkSetStart>,
    /// The bodies.
    pub bodies: Vec<PageBody>,
    /// The superseded value that gets an entry in the timeline.
    pub timeline_entry: Option<Superseded>,
    /// The batches that are written before the batch of the page.
    pub batches_before: Vec<Batch>,
    /// The batch of the page, without the bodies.
    pub page_batch: Batch,
}

impl<'a> PageBatch<'a> {
    /// Creates an empty batch of a page, with the write time `at`.
    #[must_use]
    pub fn new(page: &'a Page, at: Timestamp) -> Self {
        let page_batch = Batch::new(partition_of(page));
        Self {
            page,
            at,
            written: None,
            changed: None,
            newest_new: None,
            deletes_bodies: false,
            purged_names: BTreeSet::new(),
            may_have_old_renders: false,
            kind: WriteKind::New,
            is_leased: false,
            chunks_begun: None,
            bodies: Vec::new(),
            timeline_entry: None,
            batches_before: Vec::new(),
            page_batch,
        }
    }

    /// Marks the batch as an import of histories.
    #[must_use]
    pub fn import(self) -> Self {
        Self { kind: WriteKind::Import, ..self.with_old_renders() }
    }

    /// Marks the batch as a replacement of existing rows.
    #[must_use]
    pub fn replacement(self) -> Self {
        Self { kind: WriteKind::Replacement, ..self.with_old_renders() }
    }

    /// The kind of the batch.
    #[must_use]
    pub fn kind(&self) -> WriteKind {
        self.kind
    }

    /// Marks the batch as written under a page lease. If another process judges the lease dead, that process may roll
    /// the write back.
    #[must_use]
    pub fn leased(self) -> Self {
        Self { is_leased: true, ..self }
    }

    /// Whether the batch is written under a page lease.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// The lowest and the highest revision in the batch. `None` if the batch has no revision.
    #[must_use]
    pub fn written(&self) -> Option<(Revision, Revision)> {
        self.written
    }

    /// Marks the batch as containing renders that need not be the newest of their revisions.
    #[must_use]
    pub fn with_old_renders(mut self) -> Self {
        self.may_have_old_renders = true;
        self
    }

    /// Whether the batch contains renders that need not be the newest of their revisions.
    #[must_use]
    pub fn may_have_old_renders(&self) -> bool {
        self.may_have_old_renders
    }

    /// Records that the batch contains rows of this revision.
    pub fn add_revision_to_range(&mut self, rev: Revision) {
        rev.extend(&mut self.written);
    }

    /// The lowest and the highest revision that the batch changes and that were stored before. `None` if all revisions
    /// of the batch are new.
    #[must_use]
    pub fn changed(&self) -> Option<(Revision, Revision)> {
        self.changed
    }

    /// Records that the batch changes this revision, which was stored before.
    pub fn add_changed(&mut self, rev: Revision) {
        rev.extend(&mut self.changed);
    }

    /// Returns the change for the purge queue. `None` if the batch changes no revision.
    pub(super) fn purged_change(&self) -> Option<PageChange> {
        let all = [self.written, self.changed].into_iter().flatten();
        let revisions = all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
        Some(PageChange {
            title: self.page.title.clone(),
            revisions,
            stored: self.changed,
            bodies: self.deletes_bodies || self.kind == WriteKind::Replacement,
            names: self.purged_names.clone(),
        })
    }

    /// The write time.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Changes the write time of the batch, and of the rows of the page that it already puts. Times in the columns of
    /// these rows remain, and so do the write times of deletes and of [`Self::batches_before`].
    pub fn restamp(&mut self, at: Timestamp) {
        self.at = at;
        for mutation in self.page_batch.mutations.iter_mut() {
            if let Mutation::Put { written_at, .. } = mutation {
                *written_at = at;
            }
        }
    }

    /// The number of changes in the batch of the page. Each body counts as one change, also a body for another table.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.page_batch.mutations.len() + self.bodies.len()
    }

    /// Returns the tables and keys of the rows that the batch of the page puts.
    pub fn keys(&self) -> impl Iterator<Item = (&'static Schema, Vec<Value>)> {
        let put = self.page_batch.mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put { table, clustering, .. } => Some((*table, clustering.clone())),
            Mutation::Delete { .. } | Mutation::DeleteRange { .. } => None,
        });
        let bodies = self.bodies.iter().filter(|body| body.in_content);
        put.chain(bodies.map(PageBody::content_key))
    }

    /// Adds the catalog entries of a new page: for its title and for its domain.
    pub fn new_page(&mut self) {
        self.batches_before.extend(catalog::entries(self.page, self.at));
    }

    /// Adds a new revision, with its entry in the index by time.
    pub fn new_revision(&mut self, row: &RevisionRow) {
        self.newest_new = Some(row.record.rev);
        self.put_revision(row);
        let key = TimeKey { timestamp: row.record.timestamp, rev: row.record.rev };
        self.page_batch.put(&REVISIONS_BY_TIME, key.clustering(), Vec::new(), self.at);
    }

    /// Adds the row of a stored revision, to write it again.
    pub fn revision(&mut self, row: &RevisionRow) {
        self.add_changed(row.record.rev);
        self.put_revision(row);
    }

    fn put_revision(&mut self, row: &RevisionRow) {
        self.add_revision_to_range(row.record.rev);
        self.page_batch.put(&REVISIONS, rev_key(row.record.rev), row.to_values(), self.at);
    }

    /// Adds a new render, with its entry in the index by tid.
    pub fn new_render(&mut self, row: &RenderRow) {
        self.render(row);
        TidRow { tid: row.tid, rev: row.rev }.put(&mut self.page_batch, self.at);
    }

    /// Adds the row of a render, which may be new or stored.
    pub fn render(&mut self, row: &RenderRow) {
        self.add_revision_to_range(row.rev);
        if self.newest_new != Some(row.rev) {
            self.add_changed(row.rev);
        }
        self.page_batch.put(&RENDERS, render_key(row.rev, row.tid), row.to_values(), self.at);
    }

    /// Adds bodies. The definition of each property says whether its body belongs to the render or to the revision.
    pub fn bodies(&mut self, rev: Revision, tid: Tid, bodies: Bodies, definitions: &Definitions) {
        for (name, body) in bodies {
            let versions = definitions.get(&name).versions;
            self.body(rev, tid, name, body, versions);
        }
    }

    /// Adds a body.
    pub fn body(&mut self, rev: Revision, tid: Tid, name: PropertyName, body: BodyRow, versions: Versions) {
        if let Stored::Chunks(set) = &body.stored {
            self.reference(set, rev, (versions == Versions::Render).then_some(tid));
        }
        self.bodies.push(PageBody { rev, tid, name, body, versions, in_content: true });
    }

    /// Adds a unit of an import: a render, and its revision if the revision is new.
    pub fn unit(&mut self, unit: ImportUnit) {
        let (rev, tid, at) = (unit.render.rev, unit.render.tid, self.at);
        if let Some(revision) = unit.revision {
            self.new_revision(&RevisionRow { stored_at: at, written_at: at, ..revision });
        }
        self.new_render(&RenderRow { stored_at: at, written_at: at, ..unit.render });
        for (bodies, versions) in [(unit.of_revision, Versions::Revision), (unit.of_render, Versions::Render)]
        {
            for (name, body) in bodies {
                self.body(rev, tid, name, body, versions);
            }
        }
    }

    /// Adds a reference to the chunk set of a body. `tid` is `None` for a property of the revision.
    pub fn reference(&mut self, set: &ChunkSet, rev: Revision, tid: Option<Tid>) {
        let begun = [self.chunks_begun, set.begun];
        self.chunks_begun = begun.into_iter().flatten().reduce(ChunkSetStart::earlier);
        ChunkReference::of_body(set.id, rev, tid).put(&mut self.page_batch, self.at);
    }

    /// Releases a chunk set that no body of the revision names any more. The garbage collector checks the rows of the
    /// revision again, and deletes the set when no reader can be reading it.
    pub fn release(&mut self, set: &ChunkSet, rev: Revision) {
        let gc_entry = ChunkStore::release(&mut self.page_batch, self.page, set.id, Some(rev), self.at);
        self.batches_before.push(gc_entry);
    }

    /// Returns the batches that have to be written first, and the batch of the page with the bodies for content tables.
    #[must_use]
    pub fn into_batches(mut self) -> (Vec<Batch>, Batch) {
        for body in self.bodies.iter().filter(|body| body.in_content) {
            let (content, key) = body.content_key();
            self.page_batch.put(content, key, body.body.to_values(), self.at);
        }
        (self.batches_before, self.page_batch)
    }
}
