//! How large the store is.

use rashomon_tables::{Error, Result};
use rusqlite::Connection;

use crate::{
    SqliteStore, definitions,
    errors::from_sqlite,
    file,
    walk::{self, Tables},
};

/// How large a store is, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The version of SQLite.
    pub sqlite_version: &'static str,
    /// The version of the format of the file.
    pub format_version: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log beside it.
    pub log_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the file.
    pub pages: u32,
    /// Pages that hold nothing, for the next writes.
    pub free_pages: u32,
    /// Each table, exactly, in the order in which they were made.
    pub tables: Vec<TableStats>,
}

/// How large a table is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStats {
    /// Its name.
    pub name: String,
    /// Rows, those included that have expired and were not deleted yet.
    pub rows: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values with the checksums.
    pub value_bytes: u64,
}

impl SqliteStore {
    /// Counts everything. Reads the key and the size of every row: blocks the thread for that long. Rows that
    /// are written meanwhile are counted or not.
    pub fn stats(&self) -> Result<Stats> {
        let sqlite = |error| from_sqlite(&error);
        let connection = file::open_reader(self.directory(), self.options()).map_err(sqlite)?;
        let number =
            |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).map_err(sqlite);
        let size = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        Ok(Stats {
            sqlite_version: file::sqlite_version(),
            format_version: file::FORMAT_VERSION,
            file_bytes: size(file::path(self.directory())),
            log_bytes: size(file::log_path(self.directory())),
            page_bytes: number("page_size")?,
            pages: number("page_count")?,
            free_pages: number("freelist_count")?,
            tables: count_rows(&connection)?,
        })
    }
}

fn count_rows(connection: &Connection) -> Result<Vec<TableStats>> {
    let sqlite = |error| from_sqlite(&error);
    let tables = Tables::new(definitions::read_all(connection).map_err(sqlite)?);
    let empty = |name: &String| TableStats { name: name.clone(), rows: 0, key_bytes: 0, value_bytes: 0 };
    let mut counts: Vec<_> = tables.all().iter().map(|table| empty(&table.definition.name)).collect();
    let mut last = Vec::new();
    loop {
        let sizes = walk::sizes_after(connection, &last).map_err(sqlite)?;
        for (key, value_bytes) in &sizes {
            let index = tables
                .index_of(key)
                .map_err(|what| Error::Corrupt(format!("the row {}: {what}", key.escape_ascii())))?;
            counts[index].rows += 1;
            counts[index].key_bytes += key.len() as u64;
            counts[index].value_bytes += u64::from(*value_bytes);
        }
        match sizes.into_iter().next_back() {
            Some((key, _)) if key > last => last = key,
            _ => return Ok(counts),
        }
    }
}
