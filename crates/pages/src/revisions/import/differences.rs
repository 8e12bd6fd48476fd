//! What the input of an import and the store say differently of a revision.

use std::collections::{BTreeSet, HashMap};

use rashomon_records::ImportUnit;

use super::CheckedRevision;
use crate::{
    ImportOutcome, Parent, PropertyInfo, PropertyName, RevisionRecord, SlotRecord, Tid,
    rows::{Properties, RevisionRow},
};

/// How a revision of the input differs from the stored one.
pub(super) struct Differences {
    /// What is stored otherwise.
    conflicts: Vec<String>,
    /// The texts that only the input has.
    pub(super) added: BTreeSet<PropertyName>,
    /// The renders that only the input has.
    pub(super) new: Vec<ImportUnit>,
}

impl Differences {
    /// Compares a revision with the stored one, whose renders have these properties.
    pub(super) fn between(
        stored: &RevisionRow,
        revision: &CheckedRevision,
        renders: &HashMap<Tid, Properties>,
    ) -> Self {
        let input = &revision.properties;
        let added = missing_texts(&stored.record, &stored.properties, input);
        let left_out = missing_texts(&revision.record, input, &stored.properties);
        let without = |all: &Properties, names: &BTreeSet<PropertyName>| -> Properties {
            all.iter()
                .filter(|(name, _)| !names.contains(*name))
                .map(|(name, info)| (name.clone(), info.clone()))
                .collect()
        };
        let mut conflicts = record_differences(&stored.record, &revision.record);
        let (kept, compared) = (without(&stored.properties, &left_out), without(input, &added));
        conflicts.extend(property_differences(&kept, &compared));
        let mut new = Vec::new();
        for unit in revision.renders.iter().filter(|unit| !unit.of_render.is_empty()) {
            let tid = unit.render.tid;
            match renders.get(&tid) {
                None => new.push(unit.clone()),
                Some(stored) => {
                    let found = property_differences(stored, &unit.render.properties);
                    conflicts.extend(found.map(|difference| format!("render {tid}: {difference}")));
                }
            }
        }
        Self { conflicts, added, new }
    }

    /// The outcome, if nothing has to be stored.
    pub(super) fn outcome(&self) -> Option<ImportOutcome> {
        if !self.conflicts.is_empty() {
            return Some(ImportOutcome::Conflict(list_differences(&self.conflicts)));
        }
        (self.added.is_empty() && self.new.is_empty()).then_some(ImportOutcome::Unchanged)
    }
}

/// Returns those of the texts in `other` that `properties` lacks, although `record` has their SHA-1: the revision comes
/// from a dump without texts. A text with another SHA-1 or size is not returned.
fn missing_texts(
    record: &RevisionRecord,
    properties: &Properties,
    other: &Properties,
) -> BTreeSet<PropertyName> {
    let slots = || {
        let main = record.export.main.iter().map(|slot| (PropertyName::wikitext(), slot));
        let others = record
            .export
            .slots
            .iter()
            .filter_map(|(role, slot)| Some((PropertyName::new(&format!("slot-{role}")).ok()?, slot)));
        main.chain(others)
    };
    let is_only_slot = slots().count() == 1;
    let agrees = |slot: &SlotRecord, info: &PropertyInfo| {
        let of_revision = record.export.sha1.as_ref().filter(|_| is_only_slot);
        let sha1 = slot.sha1.as_ref().or(of_revision).map(|sha1| sha1.trim_start_matches('0'));
        sha1 == Some(info.sha1.to_base36().trim_start_matches('0'))
            && slot.bytes.is_none_or(|bytes| u64::try_from(bytes) == Ok(info.size))
    };
    slots()
        .filter(|(name, slot)| {
            !slot.deleted
                && !properties.contains_key(name)
                && other.get(name).is_some_and(|info| agrees(slot, info))
        })
        .map(|(name, _)| name)
        .collect()
}

/// The maximum number of differences that a conflict names.
const MAX_DIFFERENCES: usize = 5;

/// Lists the differences between a stored revision and the input, at most [`MAX_DIFFERENCES`], and counts the others.
fn list_differences(differences: &[String]) -> String {
    let mut list = differences[..differences.len().min(MAX_DIFFERENCES)].join("; ");
    if let more @ 1.. = differences.len().saturating_sub(MAX_DIFFERENCES) {
        list += &format!("; and {more} more");
    }
    list
}

/// Returns the fields in which two records of a revision contradict each other, as sentences. A user, comment or
/// parent that one record lacks is no contradiction: old exports have no parents.
fn record_differences(stored: &RevisionRecord, input: &RevisionRecord) -> Vec<String> {
    fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        matches!((one, other), (Some(one), Some(other)) if one != other)
    }
    let known = |parent: Option<Parent>| parent.filter(|parent| *parent != Parent::None);
    let differs = [
        (stored.timestamp != input.timestamp, "timestamp"),
        (differ(stored.user.as_ref(), input.user.as_ref()), "user"),
        (differ(stored.comment.as_ref(), input.comment.as_ref()), "comment"),
        (stored.minor != input.minor, "minor mark"),
        (differ(known(stored.parent), known(input.parent)), "parent"),
    ];
    let differing = differs.into_iter().filter(|(differs, _)| *differs);
    differing.map(|(_, what)| format!("it is stored with another {what}")).collect()
}

/// Returns the properties in which the input differs from the stored properties, as sentences.
fn property_differences<'a>(
    stored: &'a Properties,
    input: &'a Properties,
) -> impl Iterator<Item = String> + 'a {
    let added = input.iter().filter_map(|(name, info)| match stored.get(name) {
        None => Some(format!("it is stored without {name}")),
        Some(other) if other.sha1 != info.sha1 || other.size != info.size => {
            Some(format!("it is stored with another {name}"))
        }
        Some(_) => None,
    });
    let missing = stored.keys().filter(|name| !input.contains_key(*name));
    added.chain(missing.map(|name| format!("it is stored with {name}, which the input lacks")))
}

#[cfg(test)]
mod tests;
