//! Measures the size of a store and of its tables.

use rashomon_tables::{Error, Result};

use crate::{
    SqliteStore,
    audit::AuditConnection,
    definitions, envelope,
    errors::from_sqlite,
    file,
    row::{self, StoredRow, corrupt, stored_columns},
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
        let counted = match count_next(connection, &tables, &seeds, &last) {
            // A row cannot be read. The rows are then read one by one, so that it hides no other row.
            Err(Error::Corrupt(_)) => {
                let mut counted = Counted::default();
                for key in row_scan::keys_after(connection, &last).map_err(sqlite)? {
                    count_row(connection, &tables, &seeds, key, &mut counted)?;
                }
                counted
            }
            counted => counted?,
        };
        for CountedRow { table, key_bytes, value_bytes } in counted.rows {
            let table = &mut counts[table];
            table.rows += 1;
            table.key_bytes += key_bytes;
            table.value_bytes += value_bytes;
        }
        for (table, key) in counted.damaged {
            damaged.push(corrupt(&counts[table].name, &key, envelope::NOT_WHOLE).to_string());
        }
        match counted.last {
            Some(key) if key > last => last = key,
            _ => return Ok((counts, damaged)),
        }
    }
}

/// Some rows, counted.
#[derive(Default)]
struct Counted {
    rows: Vec<CountedRow>,
    /// The tables and keys of damaged rows.
    damaged: Vec<(usize, Vec<u8>)>,
    /// The key of the last row.
    last: Option<Vec<u8>>,
}

struct CountedRow {
    /// The index of the table.
    table: usize,
    key_bytes: u64,
    value_bytes: u64,
}

impl Counted {
    fn add(&mut self, table: usize, key: &[u8], value_bytes: usize, is_whole: bool) {
        let (key_bytes, value_bytes) = (key.len() as u64, value_bytes as u64);
        self.rows.push(CountedRow { table, key_bytes, value_bytes });
        if !is_whole {
            self.damaged.push((table, key.to_vec()));
        }
    }
}

fn index_of(tables: &Tables, key: &[u8]) -> Result<usize> {
    tables.index_of(key).map_err(|what| Error::Corrupt(format!("the row {}: {what}", key.escape_ascii())))
}

/// Counts the rows after this key that one query returns. `Corrupt` if one of them cannot be read.
fn count_next(connection: &AuditConnection, tables: &Tables, seeds: &[u64], after: &[u8]) -> Result<Counted> {
    const SQL: &str = concat!(
        "SELECT r.key, ",
        stored_columns!(),
        " FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large WHERE r.key > ?1 ORDER BY r.key LIMIT ?2"
    );
    let sqlite = |error| from_sqlite(&error);
    let mut statement = connection.prepare_cached(SQL).map_err(sqlite)?;
    let mut rows = statement.query((after, row_scan::KEYS_AT_A_TIME)).map_err(sqlite)?;
    let mut counted = Counted::default();
    let mut last = Vec::new();
    while let Some(row) = rows.next().map_err(sqlite)? {
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        let table = index_of(tables, key)?;
        let stored = StoredRow::read(row, 1).map_err(sqlite)?;
        counted.add(table, key, stored.bytes(), stored.is_whole_under(seeds[table], key));
        last.clear();
        last.extend_from_slice(key);
    }
    counted.last = Some(last).filter(|last| !last.is_empty());
    Ok(counted)
}

/// Counts the row under a key.
fn count_row(
    connection: &AuditConnection,
    tables: &Tables,
    seeds: &[u64],
    key: Vec<u8>,
    counted: &mut Counted,
) -> Result<()> {
    let table = index_of(tables, &key)?;
    let read = row::with_stored(connection, &key, |stored| {
        Ok((stored.bytes(), stored.is_whole_under(seeds[table], &key)))
    });
    match read {
        // The row was deleted meanwhile.
        Ok(None) => {}
        Ok(Some((bytes, is_whole))) => counted.add(table, &key, bytes, is_whole),
        Err(Error::Corrupt(_)) => counted.add(table, &key, 0, false),
        Err(error) => return Err(error),
    }
    counted.last = Some(key);
    Ok(())
}
