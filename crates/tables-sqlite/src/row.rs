//! Reads a stored row, and checks it by its checksum.

use rashomon_clock::{PassedTime, Timestamp};
use rashomon_tables::{ColumnType, Error, Key, Result, Row, Value};
use rusqlite::Connection;

use crate::{
    catalog::Table,
    envelope::{self, Identity},
    errors::from_sqlite,
};

/// The columns that [`StoredRow::read`] reads, of `rows AS r LEFT JOIN large_values AS l ON l.id = r.large`.
macro_rules! stored_columns {
    () => {
        "r.written_at, r.expires_at, r.value, l.value"
    };
}
pub(crate) use stored_columns;

/// The number of these columns.
const STORED_COLUMNS: usize = 4;

/// A stored row without its key, borrowed from SQLite.
#[derive(Debug)]
pub(crate) struct StoredRow<'a> {
    pub(crate) written_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) envelope: Option<&'a [u8]>,
}

impl<'a> StoredRow<'a> {
    pub(crate) const fn new(
        written_at: Timestamp,
        expires_at: Option<Timestamp>,
        envelope: Option<&'a [u8]>,
    ) -> Self {
        Self { written_at, expires_at, envelope }
    }

    /// Reads the columns of `stored_columns!` from a result row. `first` is the index of the first of them.
    pub(crate) fn read(row: &'a rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Self> {
        let small = row.get_ref(first + 2)?.as_blob_or_null()?;
        let large = row.get_ref(first + 3)?.as_blob_or_null()?;
        Ok(Self {
            written_at: Timestamp::from_micros(row.get(first)?),
            expires_at: row.get::<_, Option<i64>>(first + 1)?.map(Timestamp::from_micros),
            envelope: large.or(small),
        })
    }

    pub(crate) fn is_visible(&self, passed: PassedTime) -> bool {
        self.expires_at.is_none_or(|expires_at| !passed.has_reached(expires_at, self.written_at))
    }

    /// Decodes the values, and checks them by the row's checksum. Skips the check if the values of the table have
    /// their own checksums, and can be decoded.
    pub(crate) fn values(&self, table: Table, key: &[u8]) -> Result<Vec<Option<Value>>> {
        if table.schema.checks_itself()
            && let Some(Ok(values)) =
                self.envelope.map(|envelope| envelope::open_unchecked(envelope, table.value_types()))
        {
            return Ok(values);
        }
        self.open(table.schema.name(), table.seed, key, table.value_types())
    }

    /// Decodes the values, and checks them by the row's checksum. The arguments are the name of the table, its
    /// seed, the key of the row, and the types of the values.
    pub(crate) fn open(
        &self,
        table: &str,
        seed: u64,
        key: &[u8],
        columns: impl ExactSizeIterator<Item = ColumnType>,
    ) -> Result<Vec<Option<Value>>> {
        let Self { written_at, expires_at, envelope } = *self;
        envelope
            .ok_or("its value is missing")
            .and_then(|envelope| {
                envelope::open(Identity { seed, key, written_at, expires_at }, envelope, columns)
            })
            .map_err(|what| corrupt(table, key, what))
    }

    /// Whether the row's checksum agrees with this key, in the table with this seed.
    pub(crate) fn is_whole_under(&self, seed: u64, key: &[u8]) -> bool {
        let Self { written_at, expires_at, envelope } = *self;
        let identity = Identity { seed, key, written_at, expires_at };
        envelope.is_some_and(|envelope| envelope::is_whole(identity, envelope))
    }

    /// Checks the row's times by its checksum, also if the values of the table have their own checksums.
    pub(crate) fn check_times(&self, table: Table, key: &[u8]) -> Result<()> {
        if self.is_whole_under(table.seed, key) {
            return Ok(());
        }
        Err(corrupt(table.schema.name(), key, envelope::NOT_WHOLE))
    }

    /// The size of the values, including their checksum.
    pub(crate) fn bytes(&self) -> usize {
        self.envelope.map_or(0, <[u8]>::len)
    }
}

/// Reads the row under a key, visible or expired.
pub(crate) fn find(connection: &Connection, table: Table, name: &Key, key: &[u8]) -> Result<Option<Row>> {
    with_stored(connection, key, |stored| {
        Ok(Row {
            key: name.clone(),
            values: stored.values(table, key)?,
            written_at: stored.written_at,
            expires_at: stored.expires_at,
        })
    })
}

/// Reads the row under a key, passes it to `look`, and returns the result of `look`. `None` if there is no row.
/// `Corrupt` if SQLite returns another row, which may happen if keys are out of order.
pub(crate) fn with_stored<T>(
    connection: &Connection,
    key: &[u8],
    look: impl FnOnce(StoredRow<'_>) -> Result<T>,
) -> Result<Option<T>> {
    const SQL: &str = concat!(
        "SELECT ",
        stored_columns!(),
        ", r.key FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large WHERE r.key = ?1"
    );
    let sqlite = |error| from_sqlite(&error);
    let mut statement = connection.prepare_cached(SQL).map_err(sqlite)?;
    let mut rows = statement.query([key]).map_err(sqlite)?;
    let Some(row) = rows.next().map_err(sqlite)? else { return Ok(None) };
    if row.get_ref(STORED_COLUMNS).and_then(|found| Ok(found.as_blob()?)).map_err(sqlite)? != key {
        return Err(Error::Corrupt(format!(
            "the row {}: the rows next to it are out of order",
            key.escape_ascii()
        )));
    }
    look(StoredRow::read(row, 0).map_err(sqlite)?).map(Some)
}

/// Returns the error for a damaged row.
pub(crate) fn corrupt(table: &str, key: &[u8], what: &str) -> Error {
    Error::Corrupt(format!("the row {} of table {table}: {what}", key.escape_ascii()))
}
