//! Reads revisions of a page with their bodies. The seal then decides which of these candidates it takes.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{ArchivedBody, Bodies, BodyLocation, Texts, Unit};
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{Error as StoreError, Scan, TableStore};

use super::union::plain;
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, PropertyName, Result, Revision, Tid, Versions,
    content::{BodyRow, Stored},
    rows::{BodyKey, RenderRow, RevisionRow, content_table, of_property, partition_of, unreadable},
};

/// A revision in the tables, and the texts of its bodies.
pub(super) struct Candidate {
    pub(super) unit: Unit,
    pub(super) texts: Texts,
    /// A description of the damage if the row of a body is damaged.
    pub(super) damage: Option<String>,
}

/// Reads the bodies of consecutive revisions. The texts of the renders in `left_out` are not kept in memory.
pub(super) async fn candidates(
    store: &dyn TableStore,
    page: &Page,
    step: Vec<(RevisionRow, Vec<RenderRow>)>,
    left_out: &BTreeSet<Tid>,
) -> Result<Vec<Candidate>> {
    let (Some((first, _)), Some((last, _))) = (step.first(), step.last()) else { return Ok(Vec::new()) };
    let revs = (first.record.rev, last.record.rev);
    let of_revision = step.iter().flat_map(|(revision, _)| revision.properties.keys()).cloned().collect();
    let of_renders = step.iter().flat_map(|(_, renders)| renders);
    let of_renders = of_renders.flat_map(|render| render.properties.keys()).cloned().collect();
    let mut damage = BTreeMap::new();
    let mut found = bodies(store, page, Versions::Revision, of_revision, revs, left_out, &mut damage).await?;
    found.append(&mut bodies(store, page, Versions::Render, of_renders, revs, left_out, &mut damage).await?);
    let mut candidates = Vec::with_capacity(step.len());
    for (revision, renders) in step {
        let mut candidate = Candidate {
            unit: Unit { revision, bodies: Bodies::new(), renders: Vec::new() },
            texts: Texts::new(),
            damage: None,
        };
        let rev = candidate.unit.revision.record.rev;
        candidate.damage = damage.remove(&rev);
        candidate.unit.bodies = take_bodies(&mut candidate.texts, &mut found, rev, None);
        for render in renders {
            let bodies = take_bodies(&mut candidate.texts, &mut found, rev, Some(render.tid));
            candidate.unit.renders.push((render, bodies));
        }
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// A body in the tables.
struct Body {
    row: BodyRow,
    written_at: Timestamp,
    /// Whether the render of the body is left out. If so, the text is not kept in memory.
    is_left_out: bool,
}

/// Bodies by their revision or render.
type Found = BTreeMap<(Revision, Option<Tid>), BTreeMap<PropertyName, Body>>;

/// Reads the bodies of some properties, from the first to the last revision. Adds the revisions with damaged
/// rows to `damage`.
async fn bodies(
    store: &dyn TableStore,
    page: &Page,
    versions: Versions,
    names: BTreeSet<PropertyName>,
    (first, last): (Revision, Revision),
    left_out: &BTreeSet<Tid>,
    damage: &mut BTreeMap<Revision, String>,
) -> Result<Found> {
    let table = content_table(versions);
    let mut found = Found::new();
    for name in names {
        let range = of_property(&name).at_least(first.get()).at_most(last.get());
        let mut after = None;
        loop {
            let scan =
                Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range.clone()).reverse().after(after);
            let rows = store.scan(table, scan.reporting_damage()).await?;
            for row in rows.damaged {
                if let Some(rev) = BodyKey::read(&row.key).map(|key| key.rev) {
                    damage.insert(rev, row.reason);
                }
            }
            for row in rows.items {
                let BodyKey { rev, tid: of, .. } =
                    BodyKey::read(&row.key).ok_or_else(|| unreadable(table.name(), &row))?;
                let written_at = row.written_at;
                // A row that expires needs no seal: the store deletes it.
                if row.expires_at.is_some() {
                    continue;
                }
                let BodyRow { info, mut stored } = match BodyRow::from_row(&row) {
                    Ok(body) => body,
                    Err(Error::Store(StoreError::Corrupt(what))) => {
                        damage.insert(rev, what);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let is_left_out = of.is_some_and(|of| left_out.contains(&of));
                if is_left_out && !matches!(stored, Stored::Chunks(_)) {
                    stored = Stored::Identity(Bytes::new());
                }
                let body = Body { row: BodyRow { info, stored }, written_at, is_left_out };
                found.entry((rev, of)).or_default().insert(name.clone(), body);
            }
            after = rows.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// Removes the bodies of a revision or render from `found`, and adds the texts of these bodies to `texts`.
fn take_bodies(texts: &mut Texts, found: &mut Found, rev: Revision, of: Option<Tid>) -> Bodies {
    let mut bodies = Bodies::new();
    for (name, Body { row, written_at, is_left_out }) in found.remove(&(rev, of)).unwrap_or_default() {
        let location = match &row.stored {
            Stored::Chunks(set) => BodyLocation::Chunks(set.clone()),
            // The ordinal 0 is a placeholder, here and below: the unit's writer sets the ordinal.
            _ if is_left_out => BodyLocation::Entry(0),
            // A text that cannot be decompressed is damaged. It becomes an empty text, which does not match the
            // SHA-1 of the body, so that the revision is found to be damaged.
            Stored::Identity(_) | Stored::Zstd(_) | Stored::Archived(_) => {
                let text = plain(&row).ok().flatten().unwrap_or_default();
                texts.insert((name.clone(), of), text);
                BodyLocation::Entry(0)
            }
        };
        bodies.insert(name, ArchivedBody { info: row.info, written_at, location });
    }
    bodies
}
