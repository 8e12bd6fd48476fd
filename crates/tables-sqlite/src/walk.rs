//! Every row of every table, by what the file says of itself: for checking it, and for counting.

use rashomon_clock::Timestamp;
use rashomon_tables::{Direction, Value};
use rusqlite::Connection;

use crate::{
    definitions::Stored,
    envelope::{self, Identity},
    key, row,
};

/// At most so many keys are read at a time, so that no read transaction lasts long.
const KEYS_AT_A_TIME: i64 = 1_000;

/// The tables in the file, to tell whose a key is.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    all: Vec<Stored>,
    /// The seeds of the checksums of each.
    seeds: Vec<u64>,
}

impl Tables {
    pub(crate) fn new(all: Vec<Stored>) -> Self {
        let seeds = all.iter().map(|table| envelope::seed(&table.definition.name)).collect();
        Self { all, seeds }
    }

    pub(crate) fn all(&self) -> &[Stored] {
        &self.all
    }

    /// Whether a row is what was written under this key of some table.
    pub(crate) fn is_whole_under(&self, row: &row::Stored<'_>, key: &[u8]) -> bool {
        self.index_of(key).is_ok_and(|table| row.is_whole_under(self.seeds[table], key))
    }

    /// The index of the table whose row is under this key, or what is wrong with the key.
    pub(crate) fn index_of(&self, key: &[u8]) -> Result<usize, &'static str> {
        let mut rest = key;
        let shape = key::pop_number(&mut rest).ok_or("its key is cut off")?;
        let alike =
            self.all.iter().find(|table| table.shape == shape).ok_or("its key is of no known shape")?;
        for column_type in alike.definition.shape() {
            key::pop(&mut rest, column_type, Direction::Ascending).ok_or("its partition cannot be read")?;
        }
        let number = key::pop_number(&mut rest).ok_or("its key is cut off")?;
        let index = self.all.iter().position(|table| table.number == number && table.shape == shape);
        let index = index.ok_or("its key is of no known table")?;
        for column in &self.all[index].definition.clustering {
            key::pop(&mut rest, column.column_type, column.direction)
                .ok_or("its clustering columns cannot be read")?;
        }
        if rest.is_empty() { Ok(index) } else { Err("its key is too long") }
    }

    /// The partition of the row under this key.
    pub(crate) fn partition_of(&self, key: &[u8]) -> Option<Vec<Value>> {
        let mut rest = key;
        let shape = key::pop_number(&mut rest)?;
        let alike = self.all.iter().find(|table| table.shape == shape)?;
        let columns = alike.definition.shape();
        columns.map(|column_type| key::pop(&mut rest, column_type, Direction::Ascending)).collect()
    }
}

/// The next keys behind this one; none at the end.
pub(crate) fn keys_after(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement =
        connection.prepare_cached("SELECT key FROM rows WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let keys = statement.query_map((after, KEYS_AT_A_TIME), |row| row.get(0))?;
    keys.collect()
}

/// A row, as far as its size needs it: the bytes of a large value are not read.
#[derive(Debug)]
pub(crate) struct SizedRow {
    pub(crate) key: Vec<u8>,
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
    small: Option<Vec<u8>>,
    is_large: bool,
    large_bytes: Option<u32>,
}

impl SizedRow {
    /// The bytes of its values with their checksum.
    pub(crate) fn value_bytes(&self) -> u64 {
        let small = self.small.as_ref().map_or(0, |envelope| envelope.len() as u64);
        small + u64::from(self.large_bytes.unwrap_or(0))
    }

    /// What is wrong with it, as far as that can be told without a large value. `seed` is that of its table.
    pub(crate) fn damage(&self, seed: u64) -> Option<&'static str> {
        let Self { ref key, written_at, expires_at, .. } = *self;
        match (&self.small, self.is_large, self.large_bytes) {
            (Some(envelope), false, _) => {
                let is_whole = envelope::is_whole(Identity { seed, key, written_at, expires_at }, envelope);
                (!is_whole).then_some("its checksum does not agree")
            }
            (None, true, Some(_)) => None,
            _ => Some("its value is missing"),
        }
    }
}

/// The next rows behind this key, with their sizes.
pub(crate) fn sizes_after(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<SizedRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT r.key, r.written_at, r.expires_at, r.value, r.large IS NOT NULL, length(l.value)
         FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large
         WHERE r.key > ?1 ORDER BY r.key LIMIT ?2",
    )?;
    let rows = statement.query_map((after, KEYS_AT_A_TIME), |row| {
        Ok(SizedRow {
            key: row.get(0)?,
            written_at: Timestamp::from_micros(row.get(1)?),
            expires_at: row.get::<_, Option<i64>>(2)?.map(Timestamp::from_micros),
            small: row.get(3)?,
            is_large: row.get(4)?,
            large_bytes: row.get(5)?,
        })
    })?;
    rows.collect()
}
