//! Measures the size of a store and of its tables.

use rashomon_tables::{Error, Result};

use crate::{
    SqliteStore,
    audit::AuditConnection,
    definitions, envelope,
    errors::from_sqlite,
    file,
    row::{self, corrupt},
    row_scan::{self, Tables},
};

/// The size of a store and of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The version of SQLite.
    pub sqlite_version: &'static str,
    /// The version of the format of the file.
    pub format_version: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of a page of the file.
    pub page_bytes: u32,
    /// Pages of the file.
    pub pages: u32,
    /// Free pages of the file. The next writes use them.
    pub free_pages: u32,
    /// The exact size of each table, in the order in which the tables were created.
    pub tables: Vec<TableStats>,
    /// Descriptions of damaged rows, one sentence each. The counts include these rows.
    pub damaged: Vec<String>,
}

/// The size of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStats {
    /// The name of the table.
    pub name: String,
    /// Rows, including expired rows that were not deleted yet.
    pub rows: u64,
    /// Bytes of the keys of these rows.
    pub key_bytes: u64,
    /// Bytes of the values of these rows, checksums included.
    pub value_bytes: u64,
}

impl SqliteStore {
    /// Measures the store by reading every row. Blocks the thread meanwhile. Rows that are written during the
    /// count may or may not be counted. `Corrupt` if a page of rows is damaged, or if a key cannot be decoded.
    pub fn stats(&self) -> Result<Stats> {
        let sqlite = |error| from_sqlite(&error);
        let connection = file::open_reader(self.directory(), self.options()).map_err(sqlite)?;
        let number =
            |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0)).map_err(sqlite);
        let (page_bytes, pages, free_pages) =
            (number("page_size")?, number("page_count")?, number("freelist_count")?);
        let size = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        let (tables, damaged) = count_rows(&AuditConnection::new(connection))?;
        Ok(Stats {
            sqlite_version: file::sqlite_version(),
            format_version: file::FORMAT_VERSION,
            file_bytes: size(file::path(self.directory())),
            log_bytes: size(file::log_path(self.directory())),
            page_bytes,
            pages,
            free_pages,
            tables,
            damaged,
        })
    }
}

/// Returns the size of each table, and the descriptions of damaged rows.
fn count_rows(connection: &AuditConnection) -> Result<(Vec<TableStats>, Vec<String>)> {
    let sqlite = |error| from_sqlite(&error);
    connection.audit_all()?;
    let tables = Tables::new(definitions::read_all(connection).map_err(sqlite)?);
    let empty = |name: &String| TableStats { name: name.clone(), rows: 0, key_bytes: 0, value_bytes: 0 };
    let mut counts: Vec<_> = tables.all().iter().map(|table| empty(&table.definition.name)).collect();
    let seeds: Vec<_> = counts.iter().map(|table| envelope::seed(&table.name)).collect();
    let (mut last, mut damaged) = (Vec::new(), Vec::new());
    loop {
        let keys = row_scan::keys_after(connection, &last).map_err(sqlite)?;
        for key in &keys {
            let index = tables
                .index_of(key)
                .map_err(|what| Error::Corrupt(format!("the row {}: {what}", key.escape_ascii())))?;
            count_row(connection, key, seeds[index], &mut counts[index], &mut damaged)?;
        }
        match keys.into_iter().next_back() {
            Some(key) if key > last => last = key,
            _ => return Ok((counts, damaged)),
        }
    }
}

fn count_row(
    connection: &AuditConnection,
    key: &[u8],
    seed: u64,
    table: &mut TableStats,
    damaged: &mut Vec<String>,
) -> Result<()> {
    let read =
        row::with_stored(connection, key, |stored| Ok((stored.bytes(), stored.is_whole_under(seed, key))));
    let (bytes, is_whole) = match read {
        // The row was deleted meanwhile.
        Ok(None) => return Ok(()),
        Ok(Some(read)) => read,
        Err(Error::Corrupt(_)) => (0, false),
        Err(error) => return Err(error),
    };
    if !is_whole {
        damaged.push(corrupt(&table.name, key, envelope::NOT_WHOLE).to_string());
    }
    table.rows += 1;
    table.key_bytes += key.len() as u64;
    table.value_bytes += bytes as u64;
    Ok(())
}
