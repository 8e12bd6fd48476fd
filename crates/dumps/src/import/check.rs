//! Compares bodies with the SHA-1 values of the input.

use std::collections::BTreeMap;

use rashomon_pages::{PropertyName, RevisionRecord, Sha1, excerpt};

use crate::{SourceProperty, sha1};

/// A disagreement: its subject, the declared value, and the actual value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disagreement {
    pub(super) what: String,
    pub(super) declared: String,
    pub(super) actual: String,
}

/// Checks a property against the SHA-1 of the input.
pub(super) fn check_property(property: &SourceProperty, actual: Sha1) -> Option<Disagreement> {
    disagreement(property.name.as_str(), property.sha1.as_deref()?, actual)
}

/// Checks the slots of a revision against the metadata of the export. If all slots agree, also checks the SHA-1 of the
/// whole revision, which is that of its only slot, or is computed from the values of all slots.
///
/// A slot is not checked if its text was replaced in place since MediaWiki's export, or is not in the input. The whole
/// revision is then not checked either.
pub(super) fn check_revision(
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
        let Some(actual) = of(&name) else {
            complete = false;
            continue;
        };
        if let Some(found) =
            slot.sha1.as_deref().and_then(|declared| disagreement(name.as_str(), declared, actual))
        {
            return Some(found);
        }
        slots.insert(role, actual);
    }
    let declared = record.export.sha1.as_deref().filter(|_| complete)?;
    if let (Some(actual), 1) = (slots.get("main"), slots.len()) {
        return disagreement("revision", declared, *actual);
    }
    let of_slots: Vec<_> = slots.values().map(|actual| actual.to_base36()).collect();
    let actual = sha1::combine(of_slots.iter().map(String::as_str))?;
    let is_same = sha1::is_same_base36(declared, &actual);
    (!is_same).then(|| Disagreement { what: "revision".to_owned(), declared: excerpt(declared), actual })
}

fn disagreement(what: &str, declared: &str, actual: Sha1) -> Option<Disagreement> {
    if sha1::is_same(declared, actual) {
        return None;
    }
    let actual = if declared.len() == 40 { actual.to_string() } else { actual.to_base36() };
    Some(Disagreement { what: what.to_owned(), declared: excerpt(declared), actual })
}
