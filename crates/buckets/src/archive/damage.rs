//! Reading on beside damage: what of the archive cannot be read is passed over, and said.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use super::{
    blocks::in_hex,
    index::{BlockId, IndexRow},
};
use crate::{Page, Revision, Revisioned};

/// Revisions of a page that a damaged block of the archive has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// The page.
    pub page: Page,
    /// The name of the block.
    pub block: String,
    /// The lowest and the highest of them.
    pub revisions: (Revision, Revision),
    /// How many they are. Some of them may stand elsewhere as well.
    pub count: u64,
    /// What is wrong with the block, as a sentence.
    pub why: String,
}

/// Of which page, in which block, and from which revision on.
type Place = (Page, BlockId, Revision);

/// What was passed over, where that is wanted, once each.
#[derive(Debug, Default)]
pub(super) struct Damage(OnceLock<Mutex<BTreeMap<Place, PassedOver>>>);

impl Damage {
    /// Whether what cannot be read is passed over.
    pub(super) fn is_passed_over(&self) -> bool {
        self.0.get().is_some()
    }

    /// Passes over all that a block has of a page.
    pub(super) fn pass_over(&self, page: &Page, row: &IndexRow, why: &str) {
        self.note(page, row.block, row.revs, row.revisions, why);
    }

    /// Passes over a revision.
    pub(super) fn pass_over_revision(&self, page: &Page, block: BlockId, rev: Revision, why: &str) {
        self.note(page, block, (rev, rev), 1, why);
    }

    fn note(&self, page: &Page, block: BlockId, revisions: (Revision, Revision), count: u64, why: &str) {
        let Some(noted) = self.0.get() else { return };
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.entry((page.clone(), block, revisions.0)).or_insert_with(|| PassedOver {
            page: page.clone(),
            block: in_hex(block),
            revisions,
            count,
            why: why.to_owned(),
        });
    }
}

impl Revisioned {
    /// From now on what a damaged block of the archive has, and cannot be read, is passed over by all that reads, as if
    /// it were not there: for a command that alone has these buckets, takes what it can get, and tells what it could
    /// not. A value that was written again after it was sealed may then be given as an earlier block has it.
    pub fn pass_over_damage(&self) {
        if let Some(blocks) = &self.0.blocks {
            blocks.damage.0.get_or_init(Mutex::default);
        }
    }

    /// What was passed over since this was last asked.
    #[must_use]
    pub fn passed_over(&self) -> Vec<PassedOver> {
        let noted = self.0.blocks.as_ref().and_then(|blocks| blocks.damage.0.get());
        let taken =
            noted.map(|noted| std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner)));
        taken.unwrap_or_default().into_values().collect()
    }
}
