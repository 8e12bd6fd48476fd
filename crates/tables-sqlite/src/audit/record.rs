//! The record of a row, as SQLite stores it on a page.

use std::ops::Range;

use rashomon_clock::Timestamp;
use rashomon_tables::Result;

use super::AuditConnection;
use crate::row::StoredRow;

/// The record of a row, and the position of its key on the page.
#[derive(Debug)]
pub(crate) struct Record {
    pub(super) written_at: i64,
    pub(super) expires_at: Option<i64>,
    pub(crate) large: Option<i64>,
    pub(super) value: Option<Vec<u8>>,
    /// The part of the key that is on this page.
    pub(crate) key: Range<usize>,
}

impl Record {
    /// Returns the values with their checksum. `None` if the values cannot be read.
    pub(crate) fn envelope(&self, connection: &AuditConnection) -> Result<Option<Vec<u8>>> {
        let large = self.large.map(|id| connection.large_value(id)).transpose()?.flatten();
        Ok(large.or_else(|| self.value.clone()))
    }

    pub(crate) fn stored<'a>(&self, envelope: Option<&'a [u8]>) -> StoredRow<'a> {
        let expires_at = self.expires_at.map(Timestamp::from_micros);
        StoredRow::new(Timestamp::from_micros(self.written_at), expires_at, envelope)
    }
}
