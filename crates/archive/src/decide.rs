//! What may be sealed: decided without I/O.

use std::collections::BTreeMap;

use bytes::Bytes;
use rashomon_clock::Timestamp;

use super::entries::Unit;
use rashomon_records::{PropertyInfo, PropertyName, Sha1, Tid, rows::Properties};

/// The texts of a unit, by property and render.
pub(super) type Texts = BTreeMap<(PropertyName, Option<Tid>), Bytes>;

/// Why a revision stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stays {
    /// Something of it was written a short time ago.
    Fresh,
    /// It is being changed, or some of it is lost.
    Incomplete,
    /// A body is not what its row says.
    Damaged,
}

/// Whether a revision below the one that superseded it can be sealed as a whole.
pub(super) fn judge(unit: &Unit, texts: &Texts, cutoff: Timestamp) -> Result<(), Stays> {
    let stored = unit.renders.iter().map(|(render, _)| render.stored_at);
    let last = stored.fold(unit.revision.stored_at, Ord::max).max(unit.last_written());
    if last > cutoff {
        return Err(Stays::Fresh);
    }
    let mut whole = is_whole(&unit.revision.properties, &unit.bodies.iter().map(info).collect());
    for (render, bodies) in &unit.renders {
        whole &= render.left_out || is_whole(&render.properties, &bodies.iter().map(info).collect());
    }
    if !whole || unit.renders.is_empty() {
        return Err(Stays::Incomplete);
    }
    for (name, tid, body) in unit.all_bodies() {
        let Some(text) = texts.get(&(name.clone(), tid)) else { continue };
        if text.len() as u64 != body.info.size || Sha1::of(text) != body.info.sha1 {
            return Err(Stays::Damaged);
        }
    }
    Ok(())
}

fn info<'u>(
    (name, body): (&'u PropertyName, &'u super::entries::ArchivedBody),
) -> (&'u PropertyName, &'u PropertyInfo) {
    (name, &body.info)
}

/// Whether the bodies are those that the index names.
fn is_whole(named: &Properties, there: &BTreeMap<&PropertyName, &PropertyInfo>) -> bool {
    named.len() == there.len() && named.iter().all(|(name, info)| there.get(name) == Some(&info))
}
