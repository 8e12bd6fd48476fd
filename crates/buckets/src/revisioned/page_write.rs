//! Builds the one batch of a write of a page.

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Mutation};

use crate::{
    Page, PropertyName, Revision, Settings, Superseded, Tid, Versions, catalog,
    content::{Begun, Bodies, BodyRow, ChunkSet, ChunkStore, Stored},
    rows::{
        ChunkReference, RenderRow, RevisionRow, RowKey, TidRow, TimeKey, TypedRow, content_of, partition_of,
        render_key, rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TIME},
};

/// The kind of a write of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// Adds a render.
    New,
    /// Replaces an existing property.
    Replacement,
    /// Imports a history.
    Import,
}

/// A body that a write contains.
#[derive(Debug, Clone)]
pub(crate) struct PageBody {
    pub(crate) rev: Revision,
    pub(crate) tid: Tid,
    pub(crate) name: PropertyName,
    pub(crate) body: BodyRow,
    pub(crate) versions: Versions,
}

/// Builds the one batch of a write of a page, and the batches that must be written before it.
pub(crate) struct PageWrite<'a> {
    pub(crate) page: &'a Page,
    at: Timestamp,
    /// The lowest and the highest revision in the write.
    written: Option<(Revision, Revision)>,
    /// Whether the write contains renders that need not be the newest of their revisions.
    history: bool,
    kind: WriteKind,
    reserved: bool,
    /// When the earliest chunk set of the write was begun, among the sets that this process has written.
    pub(crate) chunks_begun: Option<Begun>,
    /// The bodies of the write; empty for an import.
    pub(crate) bodies: Vec<PageBody>,
    /// The value that the write supersedes. The timeline gets it once the write is done.
    pub(crate) superseded: Option<Superseded>,
    /// The batches that must be written before the batch of the page.
    pub(crate) first: Vec<Batch>,
    /// The batch of the page.
    pub(crate) then: Batch,
}

impl<'a> PageWrite<'a> {
    pub(crate) fn new(page: &'a Page, at: Timestamp) -> Self {
        let then = Batch::new(partition_of(page));
        Self {
            page,
            at,
            written: None,
            history: false,
            kind: WriteKind::New,
            reserved: false,
            chunks_begun: None,
            bodies: Vec::new(),
            superseded: None,
            first: Vec::new(),
            then,
        }
    }

    /// Marks the write as an import of histories.
    pub(super) fn import(self) -> Self {
        Self { kind: WriteKind::Import, ..self.history() }
    }

    /// Marks the write as a replacement of existing rows.
    pub(super) fn replacement(self) -> Self {
        Self { kind: WriteKind::Replacement, ..self.history() }
    }

    pub(crate) fn kind(&self) -> WriteKind {
        self.kind
    }

    /// Marks the write as one under a page lease. Another process that judges the lease dead takes the write
    /// back.
    pub(super) fn reserved(self) -> Self {
        Self { reserved: true, ..self }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Removes the bodies of some properties from the batch of the page. The caller stores them elsewhere.
    pub(crate) fn leave_out(&mut self, leaves: impl Fn(&PropertyName) -> bool) {
        let left: Vec<_> = (self.bodies.iter().filter(|body| leaves(&body.name)))
            .map(|body| content_of(body.versions, &body.name, body.rev, body.tid))
            .collect();
        self.then.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, .. } => {
                !left.iter().any(|(content, key)| *content == *table && key == clustering)
            }
            _ => true,
        });
    }

    /// The lowest and the highest revision in the write; `None` while it has none.
    pub(crate) fn written(&self) -> Option<(Revision, Revision)> {
        self.written
    }

    /// Marks the write as one that contains renders that need not be the newest of their revisions.
    pub(crate) fn history(mut self) -> Self {
        self.history = true;
        self
    }

    pub(crate) fn is_history(&self) -> bool {
        self.history
    }

    /// Records that the write contains this revision.
    pub(super) fn about(&mut self, rev: Revision) {
        let (lowest, highest) = self.written.unwrap_or((rev, rev));
        self.written = Some((lowest.min(rev), highest.max(rev)));
    }

    /// The write time.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Changes the write time, also of the rows that the batch has already.
    pub(super) fn restamp(&mut self, at: Timestamp) {
        self.at = at;
        for mutation in self.then.mutations.iter_mut() {
            if let Mutation::Put { written_at, .. } = mutation {
                *written_at = at;
            }
        }
    }

    /// The number of mutations in the batch of the page.
    pub(super) fn len(&self) -> usize {
        self.then.mutations.len()
    }

    /// Adds the catalog entries of a new page: that of its title, and that of its domain.
    pub(super) fn new_page(&mut self) {
        self.first.extend(catalog::entries(self.page, self.at));
    }

    /// Adds a new revision, with its index entry.
    pub(super) fn new_revision(&mut self, row: &RevisionRow) {
        self.revision(row);
        let key = TimeKey { timestamp: row.record.timestamp, rev: row.record.rev };
        self.then.put(&REVISIONS_BY_TIME, key.clustering(), Vec::new(), self.at);
    }

    /// Adds the row of a revision, new or written again.
    pub(super) fn revision(&mut self, row: &RevisionRow) {
        self.about(row.record.rev);
        self.then.put(&REVISIONS, rev_key(row.record.rev), row.to_values(), self.at);
    }

    /// Adds a new render, with its index entry.
    pub(super) fn new_render(&mut self, row: &RenderRow) {
        self.render(row);
        TidRow { tid: row.tid, rev: row.rev }.put(&mut self.then, self.at);
    }

    /// Adds the row of a render, new or written again.
    pub(super) fn render(&mut self, row: &RenderRow) {
        self.about(row.rev);
        self.then.put(&RENDERS, render_key(row.rev, row.tid), row.to_values(), self.at);
    }

    /// Adds bodies, each in the content table that the definition of its property names.
    pub(super) fn bodies(&mut self, rev: Revision, tid: Tid, bodies: &Bodies, settings: &Settings) {
        for (name, body) in bodies {
            self.body(rev, tid, name, body, settings.definitions.get(name).versions);
        }
    }

    /// Adds a body.
    pub(super) fn body(
        &mut self,
        rev: Revision,
        tid: Tid,
        name: &PropertyName,
        body: &BodyRow,
        versions: Versions,
    ) {
        if let Stored::Chunks(set) = &body.stored {
            self.reference(set, rev, (versions == Versions::Render).then_some(tid));
        }
        let (content, key) = content_of(versions, name, rev, tid);
        self.then.put(content, key, body.to_values(), self.at);
        // Nothing needs the list of bodies of an import.
        if self.kind != WriteKind::Import {
            self.bodies.push(PageBody { rev, tid, name: name.clone(), body: body.clone(), versions });
        }
    }

    /// Adds a reference to the chunk set of a body. `tid` is `None` for a property of the revision.
    pub(crate) fn reference(&mut self, set: &ChunkSet, rev: Revision, tid: Option<Tid>) {
        let begun = [self.chunks_begun, set.begun];
        self.chunks_begun = begun.into_iter().flatten().reduce(Begun::earlier);
        ChunkReference::of_body(set.id, rev, tid).put(&mut self.then, self.at);
    }

    /// Releases a chunk set that no body of the revision names any more. The garbage collector deletes the
    /// set when no reader can be reading it. It first checks the rows of that revision again.
    pub(super) fn release(&mut self, set: &ChunkSet, rev: Revision) {
        let first = ChunkStore::release(&mut self.then, self.page, set.id, Some(rev), self.at);
        self.first.push(first);
    }
}
