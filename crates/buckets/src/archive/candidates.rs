//! What a page has of revisions that may be sealed, as it is read for that.

use std::collections::{BTreeMap, BTreeSet};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, TableStore};

use super::{
    decide::Texts,
    entries::{ArchivedBody, Bodies, Place, Unit},
    merged::plain,
    seal::ROWS,
};
use crate::{
    Page, PropertyName, Result, Revision, Tid, Versions,
    content::{BodyRow, Stored},
    rows::{RenderRow, RevisionRow, clustering_rev, clustering_tid, rows_of, unreadable},
    schemas::{RENDER_CONTENT, REVISION_CONTENT},
};

/// A revision as it stands in the tables, and the texts of its bodies.
pub(super) struct Candidate {
    pub(super) unit: Unit,
    pub(super) texts: Texts,
}

/// What a store has of some revisions, which follow one another.
pub(super) async fn candidates(
    store: &dyn TableStore,
    page: &Page,
    step: Vec<(RevisionRow, Vec<RenderRow>)>,
) -> Result<Vec<Candidate>> {
    let (Some((first, _)), Some((last, _))) = (step.first(), step.last()) else { return Ok(Vec::new()) };
    let revs = (first.record.rev, last.record.rev);
    let of_revision = step.iter().flat_map(|(revision, _)| revision.properties.keys()).cloned().collect();
    let of_renders = step.iter().flat_map(|(_, renders)| renders);
    let of_renders = of_renders.flat_map(|render| render.properties.keys()).cloned().collect();
    let mut found = bodies(store, page, Versions::Revision, of_revision, revs).await?;
    found.append(&mut bodies(store, page, Versions::Render, of_renders, revs).await?);
    let mut candidates = Vec::with_capacity(step.len());
    for (revision, renders) in step {
        let mut candidate = Candidate {
            unit: Unit { revision, bodies: Bodies::new(), renders: Vec::new() },
            texts: Texts::new(),
        };
        let rev = candidate.unit.revision.record.rev;
        candidate.unit.bodies = take_bodies(&mut candidate.texts, &mut found, rev, None);
        for render in renders {
            let bodies = take_bodies(&mut candidate.texts, &mut found, rev, Some(render.tid));
            candidate.unit.renders.push((render, bodies));
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// Bodies as they stand, and when each was written, by the revision or render that they are of.
type Found = BTreeMap<(Revision, Option<Tid>), BTreeMap<PropertyName, (BodyRow, Timestamp)>>;

/// The bodies of some properties, of the revisions from the first to the last.
async fn bodies(
    store: &dyn TableStore,
    page: &Page,
    versions: Versions,
    names: BTreeSet<PropertyName>,
    (first, last): (Revision, Revision),
) -> Result<Found> {
    let table = match versions {
        Versions::Revision => &*REVISION_CONTENT,
        Versions::Render => &*RENDER_CONTENT,
    };
    let mut found = Found::new();
    for name in names {
        let range =
            ClusteringRange::prefix(vec![name.as_str().into()]).at_least(first.get()).at_most(last.get());
        for row in rows_of(store, table, page, range, ROWS).await? {
            let rev = clustering_rev(&row, 1).ok_or_else(|| unreadable(table.name(), &row))?;
            let (of, written_at) = (clustering_tid(&row, 2), row.written_at);
            // What expires goes by itself.
            if row.expires_at.is_none() {
                let body = (BodyRow::from_row(&row)?, written_at);
                found.entry((rev, of)).or_default().insert(name.clone(), body);
            }
        }
    }
    Ok(found)
}

/// The bodies of a revision or render, out of those that were found; their texts are added to the others.
fn take_bodies(texts: &mut Texts, found: &mut Found, rev: Revision, of: Option<Tid>) -> Bodies {
    let mut bodies = Bodies::new();
    for (name, (body, written_at)) in found.remove(&(rev, of)).unwrap_or_default() {
        let place = match &body.stored {
            Stored::Chunks(set) => Place::Chunks(set.clone()),
            // What cannot be unpacked is damaged: no text is that of its SHA-1.
            Stored::Identity(_) | Stored::Zstd(_) | Stored::Archived(_) => {
                let text = plain(&body).ok().flatten().unwrap_or_default();
                texts.insert((name.clone(), of), text);
                Place::Entry(0)
            }
        };
        bodies.insert(name, ArchivedBody { info: body.info, written_at, place });
    }
    bodies
}

pub(super) fn size_of_unit(revision: &RevisionRow, renders: &[RenderRow]) -> u64 {
    let of_renders = renders.iter().flat_map(|render| render.properties.values());
    revision.properties.values().chain(of_renders).map(|info| info.size).sum()
}
