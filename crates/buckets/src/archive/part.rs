//! What a block has of one page, by the keys of the rows that it stands for.

use std::{collections::BTreeMap, sync::Arc};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Schema, Value};

use super::{
    entries::{ArchivedBody, Unit},
    index::{BlockId, IndexRow},
};
use crate::{
    PropertyName, Revision, Tid, Versions,
    revisioned::{content_of, render_key, rev_key},
    rows::{RenderRow, RevisionRow},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The tables whose rows the archive has.
pub(super) fn archived_tables() -> [&'static Schema; 6] {
    [&REVISIONS, &RENDERS, &REVISIONS_BY_TIME, &REVISIONS_BY_TID, &RENDER_CONTENT, &REVISION_CONTENT]
}

pub(super) fn is_archived(table: &Schema) -> bool {
    archived_tables().into_iter().any(|archived| archived.name() == table.name())
}

/// The revisions that a block has of a page.
#[derive(Debug)]
pub(super) struct Part {
    revisions: BTreeMap<Revision, Arc<RevisionRow>>,
    renders: BTreeMap<(Revision, Tid), Arc<RenderRow>>,
    bodies: BTreeMap<(PropertyName, Revision, Option<Tid>), Arc<ArchivedBody>>,
}

/// A row that the archive has.
#[derive(Debug, Clone)]
pub(super) struct ArchivedRow {
    pub(super) clustering: Vec<Value>,
    pub(super) written_at: Timestamp,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Revision(Arc<RevisionRow>),
    Render(Arc<RenderRow>),
    ByTime,
    ByTid(Revision),
    Body(Arc<ArchivedBody>),
}

impl Part {
    pub(super) fn new(units: Vec<Unit>) -> Self {
        let mut part = Self { revisions: BTreeMap::new(), renders: BTreeMap::new(), bodies: BTreeMap::new() };
        for unit in units {
            let rev = unit.revision.record.rev;
            part.revisions.insert(rev, Arc::new(unit.revision));
            part.add_bodies(rev, None, unit.bodies);
            for (render, bodies) in unit.renders {
                let tid = render.tid;
                part.renders.insert((rev, tid), Arc::new(render));
                part.add_bodies(rev, Some(tid), bodies);
            }
        }
        part
    }

    fn add_bodies(&mut self, rev: Revision, tid: Option<Tid>, bodies: BTreeMap<PropertyName, ArchivedBody>) {
        for (name, body) in bodies {
            self.bodies.insert((name, rev, tid), Arc::new(body));
        }
    }

    pub(super) fn revisions(&self) -> impl Iterator<Item = &RevisionRow> {
        self.revisions.values().map(|row| &**row)
    }

    pub(super) fn renders(&self) -> impl Iterator<Item = &RenderRow> {
        self.renders.values().map(|row| &**row)
    }

    /// Each with its name, and the revision or render that it is of.
    pub(super) fn bodies(
        &self,
    ) -> impl Iterator<Item = (&PropertyName, (Revision, Option<Tid>), &ArchivedBody)> {
        self.bodies.iter().map(|((name, rev, tid), body)| (name, (*rev, *tid), &**body))
    }

    /// What the page's index has to say of it.
    pub(super) fn index_row(&self, block: BlockId) -> Option<IndexRow> {
        let times = || self.revisions.values().map(|row| row.record.timestamp);
        let tids = || self.renders.keys().map(|(_, tid)| *tid);
        let kept = self.renders.values().filter(|row| !row.left_out && !row.properties.is_empty());
        Some(IndexRow {
            block,
            revs: (*self.revisions.first_key_value()?.0, *self.revisions.last_key_value()?.0),
            times: (times().min()?, times().max()?),
            tids: (tids().min()?, tids().max()?),
            names: self.bodies.keys().map(|(name, ..)| name.clone()).collect(),
            revisions: self.revisions.len() as u64,
            renders: self.renders.len() as u64,
            raw_bytes: self.bodies.values().map(|body| body.info.size).sum(),
            generation: 0,
            left_out: self.renders.values().filter(|row| row.left_out).count() as u64,
            kept_at: kept.map(|row| row.tid.time()).max(),
        })
    }

    /// About how much memory it takes.
    pub(super) fn memory(&self) -> usize {
        const REVISION: usize = 1024;
        const RENDER: usize = 512;
        const BODY: usize = 512;
        self.revisions.len() * REVISION + self.renders.len() * RENDER + self.bodies.len() * BODY
    }

    /// Its rows of a table within a range, in no order.
    pub(super) fn rows(&self, table: &Schema, range: &ClusteringRange) -> Vec<ArchivedRow> {
        let mut rows = Vec::new();
        let mut add = |clustering: Vec<Value>, written_at, what: &dyn Fn() -> What| {
            if range.contains(&clustering) {
                rows.push(ArchivedRow { clustering, written_at, what: what() });
            }
        };
        let name = table.name();
        if name == REVISIONS.name() {
            for (rev, row) in &self.revisions {
                add(rev_key(*rev), row.written_at, &|| What::Revision(Arc::clone(row)));
            }
        } else if name == REVISIONS_BY_TIME.name() {
            for (rev, row) in &self.revisions {
                let key = vec![row.record.timestamp.into(), Value::Int(rev.get())];
                add(key, row.written_at, &|| What::ByTime);
            }
        } else if name == RENDERS.name() {
            for ((rev, tid), row) in &self.renders {
                add(render_key(*rev, *tid), row.written_at, &|| What::Render(Arc::clone(row)));
            }
        } else if name == REVISIONS_BY_TID.name() {
            for ((rev, tid), row) in &self.renders {
                add(vec![tid.as_time_uuid().into()], row.written_at, &|| What::ByTid(*rev));
            }
        } else {
            let of_renders = name == RENDER_CONTENT.name();
            for ((name, rev, tid), body) in &self.bodies {
                if tid.is_some() == of_renders {
                    add(body_key(name, *rev, *tid), body.written_at, &|| What::Body(Arc::clone(body)));
                }
            }
        }
        rows
    }
}

/// The key of the row that has a body.
pub(super) fn body_key(name: &PropertyName, rev: Revision, tid: Option<Tid>) -> Vec<Value> {
    match tid {
        Some(tid) => content_of(Versions::Render, name, rev, tid).1,
        None => content_of(Versions::Revision, name, rev, Tid::new(Timestamp::EPOCH, 0)).1,
    }
}
