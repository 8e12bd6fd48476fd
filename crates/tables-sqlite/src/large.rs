//! Large values, which are apart from their rows, in a tree of their own.

use rashomon_tables::{Error, Result};
use rusqlite::OptionalExtension as _;

use crate::{audit::Audited, errors::from_sqlite};

impl Audited {
    /// A large value. `None` where it is missing or damaged.
    pub(crate) fn large_value(&self, id: i64) -> Result<Option<Vec<u8>>> {
        let value = self
            .prepare_cached("SELECT value FROM large_values WHERE id = ?1")
            .and_then(|mut select| select.query_row([id], |row| row.get(0)).optional());
        match value.map_err(|error| from_sqlite(&error)) {
            Err(Error::Corrupt(_)) => Ok(None),
            value => value,
        }
    }
}
