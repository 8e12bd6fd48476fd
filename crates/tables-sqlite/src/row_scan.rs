//! Finds the keys of all rows and the table of each key, by the schemas in the file: for checks and counts.

use rashomon_tables::{Direction, Value};
use rusqlite::Connection;

use crate::{definitions::StoredSchema, envelope, key, row};

/// The maximum number of keys that one read transaction reads, so that the transaction is short.
pub(crate) const KEYS_AT_A_TIME: i64 = 1_000;

/// The tables in the file. With them, the table of a key can be found.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    all: Vec<StoredSchema>,
    /// The seed of each table's checksums.
    seeds: Vec<u64>,
}

impl Tables {
    pub(crate) fn new(all: Vec<StoredSchema>) -> Self {
        let seeds = all.iter().map(|table| envelope::seed(&table.definition.name)).collect();
        Self { all, seeds }
    }

    /// The highest number of a table.
    pub(crate) fn newest(&self) -> Option<u16> {
        self.all.iter().map(|table| table.number).max()
    }

    pub(crate) fn all(&self) -> &[StoredSchema] {
        &self.all
    }

    /// Whether a row's checksum agrees with this key, in the table of the key.
    pub(crate) fn is_whole_under(&self, row: &row::StoredRow<'_>, key: &[u8]) -> bool {
        self.index_of(key).is_ok_and(|table| row.is_whole_under(self.seeds[table], key))
    }

    /// The seed of the checksums of the table with this number. `None` if there is no such table.
    pub(crate) fn seed(&self, shape: u16, number: u16) -> Option<u64> {
        let index = self.all.iter().position(|table| (table.shape, table.number) == (shape, number))?;
        self.seeds.get(index).copied()
    }

    /// The index of the table of this key. The error describes the damage of the key.
    pub(crate) fn index_of(&self, key: &[u8]) -> Result<usize, &'static str> {
        let mut rest = key;
        let shape = key::pop_number(&mut rest).ok_or("its key is truncated")?;
        let alike =
            self.all.iter().find(|table| table.shape == shape).ok_or("the shape of its key is unknown")?;
        for column_type in alike.definition.shape() {
            key::pop(&mut rest, column_type, Direction::Ascending).ok_or("its partition cannot be read")?;
        }
        let number = key::pop_number(&mut rest).ok_or("its key is truncated")?;
        let index = self.all.iter().position(|table| table.number == number && table.shape == shape);
        let index = index.ok_or("the table of its key is unknown")?;
        for column in &self.all[index].definition.clustering {
            key::pop(&mut rest, column.column_type, column.direction)
                .ok_or("its clustering columns cannot be read")?;
        }
        if rest.is_empty() { Ok(index) } else { Err("its key is too long") }
    }

    /// Decodes the partition in this key. `None` if it cannot be decoded.
    pub(crate) fn partition_of(&self, key: &[u8]) -> Option<Vec<Value>> {
        let mut rest = key;
        let shape = key::pop_number(&mut rest)?;
        let alike = self.all.iter().find(|table| table.shape == shape)?;
        let columns = alike.definition.shape();
        columns.map(|column_type| key::pop(&mut rest, column_type, Direction::Ascending)).collect()
    }
}

/// Returns the next [`KEYS_AT_A_TIME`] keys after this key. Empty if there are no further keys.
pub(crate) fn keys_after(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement =
        connection.prepare_cached("SELECT key FROM rows WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let keys = statement.query_map((after, KEYS_AT_A_TIME), |row| row.get(0))?;
    keys.collect()
}
