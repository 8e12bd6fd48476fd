//! Restores the flipped bits of damaged keys on their pages, for the committer.

use rashomon_tables::{Result, Value};

use crate::{audit::AuditConnection, errors::from_sqlite, salvage::Salvage};

/// A row whose key was restored.
#[derive(Debug)]
pub(crate) struct RestoredRow {
    /// A description of the row.
    pub(crate) name: String,
    pub(crate) partition: Option<Vec<Value>>,
}

/// Restores the flipped bits of the keys on a page, inside a transaction. Returns the rows of these keys.
pub(crate) fn restore_page(connection: &AuditConnection, page: u32) -> Result<Vec<RestoredRow>> {
    let salvage = Salvage::new(connection)?;
    let flipped = salvage.flipped_bits(page)?;
    if flipped.is_empty() {
        return Ok(Vec::new());
    }
    let mut bytes = connection.with_page(page, <[u8]>::to_vec)?;
    for (_, bit) in &flipped {
        bytes[bit.at] ^= bit.mask;
    }
    connection
        .execute("UPDATE sqlite_dbpage SET data = ?2 WHERE pgno = ?1", (page, bytes))
        .map_err(|error| from_sqlite(&error))?;
    let restored = flipped.into_iter().map(|(key, _)| RestoredRow {
        name: row_name(&salvage, &key),
        partition: salvage.tables().partition_of(&key),
    });
    Ok(restored.collect())
}

/// Returns a description of a row, with its table and its true key.
pub(crate) fn row_name(salvage: &Salvage<'_>, key: &[u8]) -> String {
    let tables = salvage.tables();
    let table = tables.index_of(key).map_or("unknown", |table| &tables.all()[table].definition.name);
    format!("table {table}, row {}", key.escape_ascii())
}
