//! Repairs damaged keys: restores a flipped bit on its page if the row's checksum proves the true key.

use std::{collections::BTreeSet, ops::ControlFlow};

use rashomon_tables::{Error, Order, Result};
use rusqlite::Connection;

use crate::{
    SqliteStore,
    audit::AuditConnection,
    errors::{from_sqlite, with_path},
    file,
    key::AFTER_ALL_KEYS,
    restore::row_name,
    salvage::{KeyState, Salvage},
    span::Span,
};

/// The maximum number of problems that SQLite's own check reports to a repair. One problem in the structure is
/// enough to refuse the repair.
const MAX_PROBLEMS: usize = 100;

/// The plan of a repair of damaged keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRepair {
    pages: BTreeSet<u32>,
    /// Descriptions of the repairs, one sentence each.
    pub repairs: Vec<String>,
}

impl SqliteStore {
    /// Finds rows in whose key one bit is flipped. Changes nothing, but upkeep moves no pages from then on, since the
    /// plan has the numbers of pages. Reads the whole file, and blocks the thread for that long.
    ///
    /// `Corrupt` if the structure of the file's pages is damaged: no repair may write to such a file.
    pub fn plan_key_repair(&self) -> Result<KeyRepair> {
        self.damaged_keys().keep_pages();
        self.plan().map_err(|error| match with_path(&file::path(self.directory()), error) {
            Error::Corrupt(what) => Error::Corrupt(format!(
                "repair refused, nothing was changed: the page structure of the file is damaged, and a write could \
                 damage more. Restore a backup; without one, `rashomon export` and `rashomon migrate` copy what can \
                 still be read. The damage: {what}"
            )),
            error => error,
        })
    }

    fn plan(&self) -> Result<KeyRepair> {
        let connection =
            file::open_reader(self.directory(), self.options()).map_err(|error| from_sqlite(&error))?;
        let connection = AuditConnection::new(connection);
        connection.snapshot(|| {
            check_structure(&connection)?;
            find_flipped(&connection)
        })
    }

    /// Executes a planned repair. Each page is repaired in its own transaction.
    pub async fn repair_keys(&self, repair: &KeyRepair) -> Result<()> {
        for page in &repair.pages {
            self.restore_keys(*page).await?;
        }
        Ok(())
    }

    /// Makes later reads return rows with flipped keys as [`SqliteStore::repair_keys`] would leave them. A dry run
    /// of a repair needs this.
    pub fn read_as_repaired(&self) {
        self.damaged_keys().read_as_restored();
    }
}

/// Checks the structure of all trees by SQLite's own check. `Corrupt` if the structure is damaged.
fn check_structure(connection: &Connection) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    let sql = format!("PRAGMA integrity_check({MAX_PROBLEMS})");
    let mut check = connection.prepare(&sql).map_err(sqlite)?;
    let mut lines = check.query(()).map_err(sqlite)?;
    while let Some(line) = lines.next().map_err(sqlite)? {
        let line: String = line.get(0).map_err(sqlite)?;
        if is_structural(&line) {
            return Err(Error::Corrupt(line));
        }
    }
    Ok(())
}

/// Finds the flipped bits in the keys of all rows. `Corrupt` if the structure of a page is damaged.
fn find_flipped(connection: &AuditConnection) -> Result<KeyRepair> {
    let mut repair = KeyRepair::default();
    let salvage = Salvage::new(connection)?;
    let all = Span { start: Vec::new(), end: AFTER_ALL_KEYS.to_vec() };
    salvage.visit_rows(&all, Order::Forward, &mut |row, _| {
        if let KeyState::Flipped(bit) = &row.state {
            repair.pages.insert(bit.page);
            repair
                .repairs
                .push(format!("{}: corrected the flipped bit of its key", row_name(&salvage, &row.key)));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(repair)
}

/// Whether a line of SQLite's check concerns the structure of pages, rather than the content of rows and
/// indexes.
fn is_structural(line: &str) -> bool {
    line.starts_with("*** in database")
}
