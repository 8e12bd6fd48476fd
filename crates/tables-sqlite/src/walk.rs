//! Every row of every table, by what the file says of itself: for checking it, and for counting.

use rashomon_tables::Direction;
use rusqlite::Connection;

use crate::{definitions::Stored, key};

/// At most so many keys are read at a time, so that no read transaction lasts long.
const KEYS_AT_A_TIME: i64 = 1_000;

/// The tables in the file, to tell whose a key is.
#[derive(Debug)]
pub(crate) struct Tables(Vec<Stored>);

impl Tables {
    pub(crate) const fn new(tables: Vec<Stored>) -> Self {
        Self(tables)
    }

    pub(crate) fn all(&self) -> &[Stored] {
        &self.0
    }

    /// The index of the table whose row is under this key, or what is wrong with the key.
    pub(crate) fn index_of(&self, key: &[u8]) -> Result<usize, &'static str> {
        let mut rest = key;
        let shape = key::pop_number(&mut rest).ok_or("its key is cut off")?;
        let alike = self.0.iter().find(|table| table.shape == shape).ok_or("its key is of no known shape")?;
        for column_type in alike.definition.shape() {
            key::pop(&mut rest, column_type, Direction::Ascending).ok_or("its partition cannot be read")?;
        }
        let number = key::pop_number(&mut rest).ok_or("its key is cut off")?;
        let index = self.0.iter().position(|table| table.number == number && table.shape == shape);
        let index = index.ok_or("its key is of no known table")?;
        for column in &self.0[index].definition.clustering {
            key::pop(&mut rest, column.column_type, column.direction)
                .ok_or("its clustering columns cannot be read")?;
        }
        if rest.is_empty() { Ok(index) } else { Err("its key is too long") }
    }
}

/// The next keys behind this one; none at the end.
pub(crate) fn keys_after(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<Vec<u8>>> {
    let mut statement =
        connection.prepare_cached("SELECT key FROM rows WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let keys = statement.query_map((after, KEYS_AT_A_TIME), |row| row.get(0))?;
    keys.collect()
}

/// The next keys behind this one, with the sizes of their values, which are not read for that.
pub(crate) fn sizes_after(connection: &Connection, after: &[u8]) -> rusqlite::Result<Vec<(Vec<u8>, u32)>> {
    let mut statement = connection.prepare_cached(
        "SELECT r.key, ifnull(length(r.value), 0) + ifnull(length(l.value), 0)
         FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large
         WHERE r.key > ?1 ORDER BY r.key LIMIT ?2",
    )?;
    let sizes = statement.query_map((after, KEYS_AT_A_TIME), |row| Ok((row.get(0)?, row.get(1)?)))?;
    sizes.collect()
}
