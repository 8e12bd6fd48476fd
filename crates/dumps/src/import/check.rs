//! Compares bodies with the SHA-1 values of the input.

use std::collections::BTreeMap;

use rashomon_buckets::{PropertyName, RevisionRecord, Sha1, excerpt};

use crate::{SourceProperty, sha1};

/// A disagreement: its subject, the declared value, and the actual value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    pub(super) what: String,
    pub(super) said: String,
    pub(super) is: String,
}

/// Checks a property against the SHA-1 of the input.
pub(super) fn property(property: &SourceProperty, is: Sha1) -> Option<Disagreement> {
    disagreement(property.name.as_str(), property.sha1.as_deref()?, is)
}

/// Checks the slots of a revision against the metadata of the export. If they agree, also checks the SHA-1 of
/// the whole revision. It is the SHA-1 of the only slot, or is computed from the values of all slots.
///
/// Values that were replaced after the export was made, or that are not in the export, cannot be checked.
pub(super) fn revision(
    record: &RevisionRecord,
    properties: &[SourceProperty],
    sha1_of: &BTreeMap<PropertyName, Sha1>,
) -> Option<Disagreement> {
    let of = |name: &PropertyName| {
        let rewritten =
            properties.iter().any(|property| property.name == *name && property.rewritten_at.is_some());
        sha1_of.get(name).copied().filter(|_| !rewritten)
    };
    let main = record.export.main.as_ref().map(|slot| ("main", PropertyName::wikitext(), slot));
    let others = (record.export.slots.iter()).filter_map(|(role, slot)| {
        Some((role.as_str(), PropertyName::new(&format!("slot-{role}")).ok()?, slot))
    });
    let mut slots = BTreeMap::new();
    let mut complete = true;
    for (role, name, slot) in main.into_iter().chain(others) {
        let Some(is) = of(&name) else {
            complete = false;
            continue;
        };
        if let Some(found) = slot.sha1.as_deref().and_then(|said| disagreement(name.as_str(), said, is)) {
            return Some(found);
        }
        slots.insert(role, is);
    }
    let said = record.export.sha1.as_deref().filter(|_| complete)?;
    if let (Some(is), 1) = (slots.get("main"), slots.len()) {
        return disagreement("revision", said, *is);
    }
    let of_slots: Vec<_> = slots.values().map(|is| is.to_base36()).collect();
    let is = sha1::combine(of_slots.iter().map(String::as_str))?;
    let agrees = sha1::agrees36(said, &is);
    (!agrees).then(|| Disagreement { what: "revision".to_owned(), said: excerpt(said), is })
}

fn disagreement(what: &str, said: &str, is: Sha1) -> Option<Disagreement> {
    if sha1::agrees(said, is) {
        return None;
    }
    let is = if said.len() == 40 { is.to_string() } else { is.to_base36() };
    Some(Disagreement { what: what.to_owned(), said: excerpt(said), is })
}
