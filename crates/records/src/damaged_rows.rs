//! Remembers the damaged rows that reads have found and skipped. Each row is logged once, and reported once to a
//! command that takes the damaged rows.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rashomon_tables::{DamagedRow, Key, Schema};

use crate::{
    Page, Revision,
    rows::{ColumnValue, key_in_words, page_of},
};

/// The maximum number of remembered rows. When this number is reached, reported rows are forgotten, and may be logged
/// again. While this number of rows is not reported yet, further rows are neither logged nor reported.
const MAX_REMEMBERED: usize = 10_000;

/// A damaged row that a read skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDamage {
    /// The table.
    pub table: &'static str,
    /// A description of the row.
    pub row: String,
    /// The page of the row, if its key has one.
    pub page: Option<Page>,
    /// The revision of the row, if its key has one.
    pub rev: Option<Revision>,
    /// What is wrong with the row.
    pub reason: String,
}

/// The damaged rows that reads have found. The value is `None` once the row was reported by [`Self::take`].
#[derive(Debug, Default)]
pub struct DamagedRows(Mutex<BTreeMap<(&'static str, Key), Option<FoundDamage>>>);

impl DamagedRows {
    /// Adds damaged rows of a table, and logs the rows that were not known.
    pub fn record(&self, table: &'static Schema, damaged: &[DamagedRow]) {
        for DamagedRow { key, reason } in damaged {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_REMEMBERED {
                known.retain(|_, unreported| unreported.is_some());
            }
            if known.len() >= MAX_REMEMBERED || known.contains_key(&(table.name(), key.clone())) {
                continue;
            }
            let found = FoundDamage {
                table: table.name(),
                row: key_in_words(table.name(), key),
                page: page_of(&key.partition),
                rev: table
                    .clustering()
                    .iter()
                    .position(|(column, _)| column.name == "rev")
                    .and_then(|column| Revision::from_value(key.clustering.get(column)?)),
                reason: reason.clone(),
            };
            tracing::error!(
                table = found.table,
                row = found.row,
                reason,
                "damaged row skipped: run `rashomon verify --repair`, or restore the row from a backup"
            );
            known.insert((table.name(), key.clone()), Some(found));
        }
    }

    /// Whether the row under a key is known to be damaged.
    pub fn knows(&self, table: &'static Schema, key: &Key) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !known.is_empty() && known.contains_key(&(table.name(), key.clone()))
    }

    /// Returns the rows that were found since the last call.
    pub fn take(&self) -> Vec<FoundDamage> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values_mut().filter_map(Option::take).collect()
    }
}
