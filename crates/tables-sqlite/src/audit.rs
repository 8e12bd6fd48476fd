//! Detects missing rows: checks the SQLite pages from which an answer was read, from the root down.
//!
//! A checksum proves the content of a row, but not the absence of a row. SQLite follows page numbers, and
//! trusts them. If a page was written to the place of another page, a search ends on a page with other rows,
//! and finds nothing. So each answer that reports a missing row is audited in the same snapshot; the end of a
//! scan is such an answer. The audit reads all pages on the path from the root. It checks that the keys of
//! each page are between the two keys of the parent page that enclose the page. See decision 0013.

mod large;
pub(crate) mod page;
mod parsed_pages;
mod record;

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut, Range},
    path::Path,
    sync::Arc,
};

use rashomon_tables::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};
use xxhash_rust::xxh3::xxh3_64;

use self::{page::TreePage, parsed_pages::ParsedPages, record::Record};
use crate::{
    damaged_keys::DamagedKeys,
    definitions, disk,
    errors::from_sqlite,
    key::{AFTER_ALL_KEYS, flipped},
    row_scan::Tables,
};

/// The maximum depth of a tree in SQLite.
pub(crate) const MAX_DEPTH: usize = 20;

/// The number of the first page of the pointer map, which names the parent of each page of the file.
const FIRST_MAP_PAGE: u32 = 2;
/// The size of an entry of the pointer map: a type, and the number of the parent page.
const MAP_ENTRY_BYTES: usize = 5;
/// The type of the entry of a root page.
const MAP_ROOT: u8 = 1;
/// The type of the entry of any other page of a tree.
const MAP_CHILD: u8 = 5;

/// A connection that audits answers, with its cache of parsed pages.
#[derive(Debug)]
pub(crate) struct AuditConnection {
    connection: Connection,
    pages: RefCell<ParsedPages>,
    damaged_keys: Arc<DamagedKeys>,
    /// The definitions of the tables, as they were last read from the file.
    tables: RefCell<Arc<Tables>>,
    /// The root page that was last checked.
    checked_root: RefCell<Option<CheckedRoot>>,
}

/// A root page that leads to all its children, as checked by [`AuditConnection::check_root`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckedRoot {
    number: u32,
    /// The hash of the bytes of the root.
    hash: Option<u64>,
    /// The number of pages above each leaf. This number changes only when the root changes.
    depth: usize,
}

/// The result of an audit of a range of keys.
#[derive(Debug, Default)]
pub(crate) struct AuditResult {
    /// The number of rows in the range.
    pub(crate) rows: usize,
    /// The last row before the range.
    pub(crate) before: Option<Neighbour>,
    /// The first row after the range.
    pub(crate) after: Option<Neighbour>,
}

/// A row next to an audited range.
#[derive(Debug)]
pub(crate) struct Neighbour {
    number: u32,
    page: Arc<TreePage>,
    row: usize,
}

impl Neighbour {
    pub(crate) fn key(&self) -> &[u8] {
        self.page.key(self.row)
    }
}

/// A page to check. Its rows have to be between `low` and `high`, both excluded.
struct PageToCheck<'a> {
    number: u32,
    depth: usize,
    leaf_depth: usize,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl AuditConnection {
    pub(crate) fn new(connection: Connection) -> Self {
        Self::sharing(connection, Arc::default())
    }

    /// Creates a connection that shares the list of damaged keys with other connections.
    pub(crate) fn sharing(connection: Connection, damaged_keys: Arc<DamagedKeys>) -> Self {
        Self {
            connection,
            pages: RefCell::default(),
            damaged_keys,
            tables: RefCell::default(),
            checked_root: RefCell::default(),
        }
    }

    pub(crate) fn damaged_keys(&self) -> &DamagedKeys {
        &self.damaged_keys
    }

    /// Translates an error of a statement that read this page, see [`disk::failure`].
    pub(crate) fn failure(&self, error: &rusqlite::Error, page: u32) -> Error {
        self.path().map_or_else(|| from_sqlite(error), |file| disk::failure(Path::new(file), error, page))
    }

    pub(crate) fn into_inner(self) -> Connection {
        self.connection
    }

    /// Runs a read in one snapshot.
    pub(crate) fn snapshot<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        let sqlite = |error| self.failure(&error, 1);
        // A running statement keeps the snapshot until it is reset, and costs less than a transaction.
        let mut holder = self.prepare_cached("SELECT 1 FROM sqlite_schema").map_err(sqlite)?;
        let mut rows = holder.query(()).map_err(sqlite)?;
        rows.next().map_err(sqlite)?;
        read()
    }

    /// Checks the pages on the paths to all keys of the range, inside a snapshot. `range.end` is excluded.
    /// `Corrupt` if a page is damaged or in the wrong place.
    pub(crate) fn audit(&self, range: Range<&[u8]>) -> Result<AuditResult> {
        let mut found = AuditResult::default();
        let root = self.root()?;
        let leaf_depth = self.check_root(root)?;
        let target = PageToCheck { number: root, depth: 0, leaf_depth, low: None, high: None };
        self.visit(&target, &range, &mut found)?;
        Ok(found)
    }

    /// Checks all pages of rows.
    pub(crate) fn audit_all(&self) -> Result<()> {
        self.snapshot(|| self.audit(&[]..&AFTER_ALL_KEYS)).map(drop)
    }

    fn visit(&self, target: &PageToCheck<'_>, range: &Range<&[u8]>, found: &mut AuditResult) -> Result<()> {
        let damaged = |what: &str| damaged_page(target.number, what);
        let page = self.page(target.number)?;
        if page.is_leaf() != (target.depth == target.leaf_depth) {
            return Err(damaged("its depth in the tree is wrong"));
        }
        match page.rows() {
            0 if target.depth > 0 => return Err(damaged("it is empty")),
            0 => {}
            rows => {
                let above = target.low.is_none_or(|low| low < page.key(0));
                let below = target.high.is_none_or(|high| page.key(rows - 1) < high);
                if !above || !below {
                    return Err(damaged("its rows belong on another page"));
                }
            }
        }
        let (first, last) = (page.rows_before(range.start), page.rows_before(range.end));
        found.rows += last.saturating_sub(first);
        for row in first.checked_sub(1).into_iter().chain((last < page.rows()).then_some(last)) {
            if !page.is_checked(row) {
                self.check_separator(target.number, &page, row)?;
            }
        }
        let neighbour = |row| Neighbour { number: target.number, page: Arc::clone(&page), row };
        if first > 0 {
            found.before = Some(neighbour(first - 1));
        }
        if last < page.rows() {
            found.after = Some(neighbour(last));
        }
        for row in first..=last {
            let Some(number) = page.child(row) else { return Ok(()) };
            let low = if row == 0 { target.low } else { Some(page.key(row - 1)) };
            let high = if row == page.rows() { target.high } else { Some(page.key(row)) };
            let below = PageToCheck { number, depth: target.depth + 1, low, high, ..*target };
            self.visit(&below, range, found)?;
        }
        Ok(())
    }

    /// Returns the definitions of the tables in the snapshot. Reads them again only if there is a new table: tables are
    /// not deleted, and each gets the next number.
    pub(crate) fn tables(&self) -> Result<Arc<Tables>> {
        let sqlite = |error| self.failure(&error, 1);
        let mut newest = self.prepare_cached("SELECT max(number) FROM schemas").map_err(sqlite)?;
        let newest: Option<u16> = newest.query_row((), |row| row.get(0)).map_err(sqlite)?;
        let known = Arc::clone(&self.tables.borrow());
        if known.newest() == newest {
            return Ok(known);
        }
        let tables = Arc::new(Tables::new(definitions::read_all(self).map_err(sqlite)?));
        *self.tables.borrow_mut() = Arc::clone(&tables);
        Ok(tables)
    }

    /// Checks the key of a row that separates two child pages. `Corrupt` if a bit of this key is flipped: a
    /// search may then go to the wrong page. A row with damaged values is accepted, since its key still
    /// separates the pages correctly.
    fn check_separator(&self, number: u32, page: &Arc<TreePage>, row: usize) -> Result<()> {
        let tables = self.tables()?;
        let record = self.record(&Neighbour { number, page: Arc::clone(page), row })?;
        let envelope = record.envelope(self)?;
        let stored = record.stored(envelope.as_deref());
        if !tables.is_whole_under(&stored, page.key(row))
            && flipped(page.key(row)).any(|(_, key)| tables.is_whole_under(&stored, &key))
        {
            return Err(damaged_page(number, &format!("a bit in the key of its row {row} is flipped")));
        }
        page.set_checked(row);
        Ok(())
    }

    /// Reads the record of a row next to an audited range, inside the same snapshot.
    pub(crate) fn record(&self, neighbour: &Neighbour) -> Result<Record> {
        let Neighbour { number, page, row } = neighbour;
        self.with_page(*number, |bytes| {
            page.record(bytes, *row, |first, length| self.overflow(first, length))
        })?
        .map_err(|what| damaged_page(*number, &what))
    }

    /// Returns the number of the root page of the tree of rows. `Corrupt` unless the pointer map says that this
    /// page is a root.
    pub(crate) fn root(&self) -> Result<u32> {
        let sqlite = |error| self.failure(&error, 1);
        let mut statement = self
            .prepare_cached("SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = 'rows'")
            .map_err(sqlite)?;
        let root: u32 = statement.query_row((), |row| row.get(0)).map_err(sqlite)?;
        // The first map page has the entries of all roots, since the roots are the first pages of the file.
        let is_root = self.with_page(FIRST_MAP_PAGE, |map| {
            let entry = (root as usize).checked_sub(3).map(|index| index * MAP_ENTRY_BYTES);
            entry.and_then(|at| map.get(at)) == Some(&MAP_ROOT)
        })?;
        if is_root { Ok(root) } else { Err(damaged_page(root, "it is not the root of a tree")) }
    }

    /// Checks that the root leads to all pages that the pointer map names as its children, and returns the
    /// number of pages above each leaf. A leaf in the place of the root, or the root of an earlier commit,
    /// would hide other pages. The root has no parent page whose rows would reveal the damage.
    ///
    /// With pages of 4 KiB, the pointer map takes one page for each 3.4 MB of the file. The map is read when the root
    /// has changed, which is rare, and for each audit while all rows are on one page.
    fn check_root(&self, number: u32) -> Result<usize> {
        let page = self.page(number)?;
        let hash = self.pages.borrow().hash(number);
        if let Some(checked) = *self.checked_root.borrow()
            && (checked.number, checked.hash) == (number, hash)
            && !page.is_leaf()
        {
            return Ok(checked.depth);
        }
        self.check_children(number, children(&page))?;
        let depth = Self::depth(number, |number| Ok(children(&*self.page(number)?)))?;
        self.checked_root.replace(Some(CheckedRoot { number, hash, depth }));
        Ok(depth)
    }

    /// Checks that these pages are exactly the children of the root that the pointer map names.
    pub(crate) fn check_children(&self, root: u32, mut children: Vec<u32>) -> Result<()> {
        children.sort_unstable();
        if self.children_of(root)? == children {
            Ok(())
        } else {
            Err(damaged_page(root, "its child pages are not those that the pointer map names"))
        }
    }

    /// Returns the number of pages above each leaf. `Corrupt` unless the first and the last leaf are equally
    /// deep: otherwise a leaf is in the place of its parent page. `children` returns the pages directly below
    /// a page.
    pub(crate) fn depth(root: u32, children: impl Fn(u32) -> Result<Vec<u32>>) -> Result<usize> {
        let descend = |last: bool| {
            let mut number = root;
            for depth in 0..=MAX_DEPTH {
                let below = children(number)?;
                match if last { below.last() } else { below.first() } {
                    Some(child) => number = *child,
                    None => return Ok(depth),
                }
            }
            Err(damaged_page(number, "it is deeper than a tree can be"))
        };
        let depth = descend(false)?;
        if descend(true)? == depth {
            Ok(depth)
        } else {
            Err(damaged_page(root, "its leaves are not equally deep"))
        }
    }

    /// Returns the pages that the pointer map names as children of a page, in ascending order.
    fn children_of(&self, parent: u32) -> Result<Vec<u32>> {
        let sqlite = |error| from_sqlite(&error);
        let count: u32 = self.pragma_query_value(None, "page_count", |row| row.get(0)).map_err(sqlite)?;
        let mut children = Vec::new();
        let mut map = FIRST_MAP_PAGE;
        while map <= count {
            let entries = self.with_page(map, |bytes| {
                let entries = bytes.chunks_exact(MAP_ENTRY_BYTES);
                let is_child = |entry: &[u8]| entry[0] == MAP_CHILD && page::number(entry, 1) == Some(parent);
                let found = entries.clone().zip(map + 1..).filter(|(entry, _)| is_child(entry));
                children.extend(found.map(|(_, number)| number).filter(|number| *number <= count));
                entries.len() as u32
            })?;
            map += entries + 1;
        }
        Ok(children)
    }

    /// Returns a page of the snapshot. Reuses the parsed page if its bytes have not changed.
    fn page(&self, number: u32) -> Result<Arc<TreePage>> {
        self.with_page(number, |bytes| {
            let hash = xxh3_64(bytes);
            if let Some(page) = self.pages.borrow_mut().get(number, hash) {
                return Ok(page);
            }
            let page = TreePage::parse(bytes, |first, length| self.overflow(first, length));
            let page = Arc::new(page.map_err(|what| damaged_page(number, &what))?);
            self.pages.borrow_mut().insert(number, hash, Arc::clone(&page));
            Ok(page)
        })?
    }

    /// Reads the rest of a long key or record from its overflow pages.
    pub(crate) fn overflow(&self, first: u32, length: usize) -> std::result::Result<Vec<u8>, String> {
        let mut rest = Vec::new();
        let mut number = first;
        while rest.len() < length {
            number = self
                .with_page(number, |bytes| {
                    let part = bytes.get(4..).unwrap_or_default();
                    rest.extend_from_slice(&part[..part.len().min(length - rest.len())]);
                    page::number(bytes, 0).filter(|_| !part.is_empty())
                })
                .map_err(|error| error.to_string())?
                .ok_or("an overflow page is empty")?;
        }
        Ok(rest)
    }

    pub(crate) fn with_page<T>(&self, number: u32, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let sqlite = |error| self.failure(&error, number);
        let mut statement =
            self.prepare_cached("SELECT data FROM sqlite_dbpage WHERE pgno = ?1").map_err(sqlite)?;
        let mut rows = statement.query([number]).map_err(sqlite)?;
        let Some(row) = rows.next().map_err(sqlite)? else {
            return Err(damaged_page(number, "the file ends before it"));
        };
        let bytes = row.get_ref(0).and_then(|bytes| Ok(bytes.as_blob()?)).map_err(sqlite)?;
        Ok(read(bytes))
    }
}

impl Deref for AuditConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for AuditConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Checks that SQL statements can read pages. `Unsupported` if SQLite was compiled without `sqlite_dbpage`.
pub(crate) fn check_page_access(connection: &Connection) -> Result<()> {
    let page = connection.query_row("SELECT 1 FROM sqlite_dbpage WHERE pgno = 1", (), |_| Ok(())).optional();
    page.map(drop).map_err(|error| match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) if message.contains("no such table") => {
            Error::Unsupported(
                "this program was built with a SQLite that lacks SQLITE_ENABLE_DBPAGE_VTAB: build it in the folder \
                 of the repository, where .cargo/config.toml sets this option"
                    .to_owned(),
            )
        }
        error => from_sqlite(&error),
    })
}

/// Returns the child pages of a page, in the order of their keys.
fn children(page: &TreePage) -> Vec<u32> {
    (0..=page.rows()).filter_map(|row| page.child(row)).collect()
}

pub(crate) fn damaged_page(number: u32, what: &str) -> Error {
    Error::Corrupt(format!("page {number} of the file is damaged, and rows may be missing: {what}"))
}
