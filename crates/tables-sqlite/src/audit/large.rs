//! Reads large values. They are in the table `large_values`, apart from their rows.

use rashomon_tables::{Error, Result};
use rusqlite::OptionalExtension as _;

use super::{AuditConnection, MAX_DEPTH, page};

const LEAF: u8 = 0x0d;
const INTERIOR: u8 = 0x05;

/// The number of bytes of a leaf page that no record can use (SQLite file format: `U - 35`).
const UNUSABLE_LEAF_BYTES: usize = 35;

/// The next step of a search for a large value.
enum Next {
    /// Continue on this page.
    Page(u32),
    /// The value was found: its first overflow page, and the number of its overflow pages.
    Chain(u32, usize),
    /// The value was not found.
    End,
}

impl AuditConnection {
    /// Reads a large value. `None` if it is missing or damaged; `Unavailable` if the disk cannot read it.
    pub(super) fn large_value(&self, id: i64) -> Result<Option<Vec<u8>>> {
        let value = self
            .prepare_cached("SELECT value FROM large_values WHERE id = ?1")
            .and_then(|mut select| select.query_row([id], |row| row.get(0)).optional());
        match value.map_err(|error| self.failure(&error, 1)) {
            Err(Error::Corrupt(_)) => match self.read_large_pages(id) {
                Ok(()) | Err(Error::Corrupt(_)) => Ok(None),
                Err(error) => Err(error),
            },
            value => value,
        }
    }

    /// Reads each page of a large value, to find out why SQLite cannot read the value. `Unavailable` if the
    /// disk cannot read one of the pages.
    fn read_large_pages(&self, id: i64) -> Result<()> {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'large_values'";
        let root = self.query_row(sql, (), |row| row.get(0)).map_err(|error| self.failure(&error, 1))?;
        let mut next = Next::Page(root);
        for _ in 0..MAX_DEPTH {
            let Next::Page(number) = next else { break };
            next = self.with_page(number, |bytes| step(bytes, id).unwrap_or(Next::End))?;
        }
        let Next::Chain(mut number, pages) = next else { return Ok(()) };
        for _ in 0..pages {
            number = self.with_page(number, |bytes| page::number(bytes, 0).unwrap_or(0))?;
        }
        Ok(())
    }
}

/// Returns the next step of the search for a value, according to this page. `None` if the page cannot be
/// parsed, or does not lead to the value.
fn step(bytes: &[u8], id: i64) -> Option<Next> {
    let rows = page::short(bytes, 3)?;
    let kind = *bytes.first()?;
    let header = if kind == INTERIOR { 12 } else { 8 };
    for row in 0..rows {
        let start = page::short(bytes, header + 2 * row)?;
        let mut at = start;
        if kind == INTERIOR {
            at += 4;
            if id <= page::varint(bytes, &mut at)?.cast_signed() {
                return page::number(bytes, start).map(Next::Page);
            }
        } else if kind == LEAF {
            let payload = usize::try_from(page::varint(bytes, &mut at)?).ok()?;
            if id == page::varint(bytes, &mut at)?.cast_signed() {
                let local = page::local_bytes_up_to(bytes.len(), payload, bytes.len() - UNUSABLE_LEAF_BYTES);
                let first = page::number(bytes, at + local).unwrap_or(0);
                return Some(Next::Chain(first, (payload - local).div_ceil(bytes.len() - 4)));
            }
        }
    }
    if kind == INTERIOR { page::number(bytes, 8).map(Next::Page) } else { None }
}
