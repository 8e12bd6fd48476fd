//! Decides which revisions may be sealed, without I/O.

use std::collections::BTreeMap;

use crate::format::{ArchivedBody, Texts, Unit};
use rashomon_clock::Timestamp;
use rashomon_records::{PropertyInfo, PropertyName, Sha1, rows::Properties};

/// The reason why a revision stays in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StayReason {
    /// A part of the revision was written after the cutoff.
    Fresh,
    /// The stored bodies are not those that the rows list, or there is no render: the revision is being
    /// changed, or a part of it is lost.
    Incomplete,
    /// The content of a body does not match its row.
    Damaged,
}

/// Checks whether a revision can be sealed as a whole. If not, returns the reason why it stays in the tables.
pub(super) fn check_sealable(unit: &Unit, texts: &Texts, cutoff: Timestamp) -> Result<(), StayReason> {
    let stored = unit.renders.iter().map(|(render, _)| render.stored_at);
    let last = stored.fold(unit.revision.stored_at, Ord::max).max(unit.last_written());
    if last > cutoff {
        return Err(StayReason::Fresh);
    }
    let mut whole = is_whole(&unit.revision.properties, &unit.bodies.iter().map(info).collect());
    for (render, bodies) in &unit.renders {
        whole &= render.left_out || is_whole(&render.properties, &bodies.iter().map(info).collect());
    }
    if !whole || unit.renders.is_empty() {
        return Err(StayReason::Incomplete);
    }
    for (name, tid, body) in unit.all_bodies() {
        let Some(text) = texts.get(&(name.clone(), tid)) else { continue };
        if text.len() as u64 != body.info.size || Sha1::of(text) != body.info.sha1 {
            return Err(StayReason::Damaged);
        }
    }
    Ok(())
}

fn info<'u>((name, body): (&'u PropertyName, &'u ArchivedBody)) -> (&'u PropertyName, &'u PropertyInfo) {
    (name, &body.info)
}

/// Whether the stored bodies are exactly those that the revision or render lists.
fn is_whole(listed: &Properties, stored: &BTreeMap<&PropertyName, &PropertyInfo>) -> bool {
    listed.len() == stored.len() && listed.iter().all(|(name, info)| stored.get(name) == Some(&info))
}
