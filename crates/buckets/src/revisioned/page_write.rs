//! The one batch that a write of a page is.

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Mutation};

use super::given::Bodies;
use crate::{
    Page, PropertyName, Revision, Settings, Superseded, Tid, Versions, catalog,
    content::{Begun, BodyRow, ChunkSet, ChunkStore, Stored},
    rows::{
        ChunkReference, RenderRow, RevisionRow, RowKey, TidRow, TimeKey, TypedRow, content_of, partition_of,
        render_key, rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TIME},
};

/// What a write of a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// A render that was not there.
    New,
    /// A property that stands is replaced.
    Replacement,
    /// A history.
    Import,
}

/// A body that a write brings.
#[derive(Debug, Clone)]
pub(crate) struct PageBody {
    pub(crate) rev: Revision,
    pub(crate) tid: Tid,
    pub(crate) name: PropertyName,
    pub(crate) body: BodyRow,
    pub(crate) versions: Versions,
}

/// Puts together the one batch that a write of a page is, and what must be there before it.
pub(crate) struct PageWrite<'a> {
    pub(crate) page: &'a Page,
    at: Timestamp,
    /// The lowest and the highest revision that it is about.
    written: Option<(Revision, Revision)>,
    /// It brings renders, or writes some again, that need not be the newest of their revisions.
    history: bool,
    kind: WriteKind,
    reserved: bool,
    /// When the first of the chunk sets that it names was begun, of those that this process has written.
    pub(crate) chunks_begun: Option<Begun>,
    /// The bodies in it, unless it is an import.
    pub(crate) bodies: Vec<PageBody>,
    /// What it supersedes, and the timeline is to know of when it is done.
    pub(crate) superseded: Option<Superseded>,
    pub(crate) first: Vec<Batch>,
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

    /// It brings whole histories.
    pub(super) fn import(self) -> Self {
        Self { kind: WriteKind::Import, ..self.history() }
    }

    /// It replaces what stands.
    pub(super) fn replacement(self) -> Self {
        Self { kind: WriteKind::Replacement, ..self.history() }
    }

    pub(crate) fn kind(&self) -> WriteKind {
        self.kind
    }

    /// It is made under a reservation, and taken back if that was taken for dead.
    pub(super) fn reserved(self) -> Self {
        Self { reserved: true, ..self }
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// The bodies of some properties go elsewhere than where bodies go by themselves.
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

    /// The lowest and the highest revision that it is about; `None` while there is none.
    pub(crate) fn written(&self) -> Option<(Revision, Revision)> {
        self.written
    }

    /// It brings renders, or writes some again, that need not be the newest of their revisions.
    pub(crate) fn history(mut self) -> Self {
        self.history = true;
        self
    }

    pub(crate) fn is_history(&self) -> bool {
        self.history
    }

    /// It writes of this revision.
    pub(super) fn about(&mut self, rev: Revision) {
        let (lowest, highest) = self.written.unwrap_or((rev, rev));
        self.written = Some((lowest.min(rev), highest.max(rev)));
    }

    /// The time that it is written at.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Writes what there is at another time.
    pub(super) fn restamp(&mut self, at: Timestamp) {
        self.at = at;
        for mutation in self.then.mutations.iter_mut() {
            if let Mutation::Put { written_at, .. } = mutation {
                *written_at = at;
            }
        }
    }

    /// How many mutations there are.
    pub(super) fn len(&self) -> usize {
        self.then.mutations.len()
    }

    /// The page has nothing yet: it needs an entry among the titles, and its domain one too.
    pub(super) fn new_page(&mut self) {
        self.first.extend(catalog::entries(self.page, self.at));
    }

    /// A revision that was not there.
    pub(super) fn new_revision(&mut self, row: &RevisionRow) {
        self.revision(row);
        let key = TimeKey { timestamp: row.record.timestamp, rev: row.record.rev };
        self.then.put(&REVISIONS_BY_TIME, key.clustering(), Vec::new(), self.at);
    }

    /// A revision's row, new or once more.
    pub(super) fn revision(&mut self, row: &RevisionRow) {
        self.about(row.record.rev);
        self.then.put(&REVISIONS, rev_key(row.record.rev), row.to_values(), self.at);
    }

    /// A render that was not there.
    pub(super) fn new_render(&mut self, row: &RenderRow) {
        self.render(row);
        TidRow { tid: row.tid, rev: row.rev }.put(&mut self.then, self.at);
    }

    /// A render's row, new or once more.
    pub(super) fn render(&mut self, row: &RenderRow) {
        self.about(row.rev);
        self.then.put(&RENDERS, render_key(row.rev, row.tid), row.to_values(), self.at);
    }

    /// Bodies, each in the table that its definition says.
    pub(super) fn bodies(&mut self, rev: Revision, tid: Tid, bodies: &Bodies, settings: &Settings) {
        for (name, body) in bodies {
            self.body(rev, tid, name, body, settings.definitions.get(name).versions);
        }
    }

    /// One body.
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
        // Of an import nobody asks for them.
        if self.kind != WriteKind::Import {
            self.bodies.push(PageBody { rev, tid, name: name.clone(), body: body.clone(), versions });
        }
    }

    /// A set of chunks that a body names: that of a render, or (without a tid) of a revision.
    pub(crate) fn reference(&mut self, set: &ChunkSet, rev: Revision, tid: Option<Tid>) {
        let begun = [self.chunks_begun, set.begun];
        self.chunks_begun = begun.into_iter().flatten().reduce(Begun::earlier);
        ChunkReference::of_body(set.id, rev, tid).put(&mut self.then, self.at);
    }

    /// A set of chunks that no body of the revision names any more: to be collected, when nobody can be reading it. The
    /// collector looks at the rows of that revision once more.
    pub(super) fn release(&mut self, set: &ChunkSet, rev: Revision) {
        let first = ChunkStore::release(&mut self.then, self.page, set.id, Some(rev), self.at);
        self.first.push(first);
    }
}
