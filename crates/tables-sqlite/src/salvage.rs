//! Reads SQLite pages whose rows have damaged keys. Reads the pages directly, since SQLite's search may miss rows
//! on such pages.
//!
//! The checksum of a row covers its key. If the checksum agrees after one bit of the key is flipped back, the
//! resulting key is the true key, and the row is in the right place. A row is *lost* if it is out of order and no
//! such key agrees with the checksum; the other rows of its page can still be read. If a row is undamaged but out of
//! order, its page is in the wrong place, which is an error. See decision 0019.

use std::{cell::Cell, ops::ControlFlow, sync::Arc};

use rashomon_clock::Timestamp;
use rashomon_tables::{Error, Order, Result};

use crate::{
    audit::{AuditConnection, MAX_DEPTH, damaged_page, page::TreePage},
    key::flipped,
    row::StoredRow,
    row_scan::Tables,
    span::Span,
};

/// The maximum number of lost rows on a page. If more rows are lost, the whole page counts as damaged.
const MAX_LOST_ROWS: usize = 1;

/// The description of a row in whose key one bit is flipped.
pub(crate) const FLIPPED_KEY: &str = "a bit of its key is flipped; `rashomon verify --repair` corrects it";
/// The description of a lost row.
pub(crate) const LOST_KEY: &str = "it is out of order: its key is damaged, and the original key is unknown";

/// The state of a row's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The key is in order. The row's checksum agrees with the key, or the row has other damage.
    InOrder,
    /// One bit of the stored key is flipped. The [`SalvagedRow`] has the true key.
    Flipped(FlippedBit),
    /// The key is out of order, and the true key is not known.
    Lost,
}

/// A flipped bit of a stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlippedBit {
    pub(crate) page: u32,
    /// The index of the byte on the page.
    pub(crate) at: usize,
    pub(crate) mask: u8,
}

/// A row, read from its page.
#[derive(Debug)]
pub(crate) struct SalvagedRow {
    /// The true key if it is known, otherwise the stored key.
    pub(crate) key: Vec<u8>,
    pub(crate) state: KeyState,
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
    /// The number of the large value, if the values are in `large_values`.
    pub(crate) large: Option<i64>,
    envelope: Option<Vec<u8>>,
    /// Whether the checksum agrees with `key`.
    is_whole: bool,
}

impl SalvagedRow {
    pub(crate) fn stored(&self) -> StoredRow<'_> {
        StoredRow::new(self.written_at, self.expires_at, self.envelope.as_deref())
    }
}

/// The bounds of a row's key, or of all keys of a page. Both bounds are excluded. `None` means that there is no
/// bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyBounds<'a> {
    pub(crate) low: Option<&'a [u8]>,
    pub(crate) high: Option<&'a [u8]>,
}

impl KeyBounds<'_> {
    const ALL: Self = Self { low: None, high: None };

    /// Whether the span may contain a key between these bounds.
    fn meets(&self, span: &Span) -> bool {
        self.low.is_none_or(|low| low < span.end.as_slice())
            && self.high.is_none_or(|high| span.start.as_slice() < high)
    }
}

/// A page, with its rows and the states of their keys.
struct SalvagedPage {
    rows: Vec<SalvagedRow>,
    children: Vec<u32>,
}

/// A reader of damaged pages. It is created for one call, inside a snapshot.
pub(crate) struct Salvage<'a> {
    connection: &'a AuditConnection,
    tables: Arc<Tables>,
    /// The number of pages above each leaf.
    leaf_depth: Cell<usize>,
}

/// The function that is called with each row, and with the bounds of its key.
pub(crate) type RowVisitor<'v> = dyn FnMut(&SalvagedRow, KeyBounds<'_>) -> Result<ControlFlow<()>> + 'v;

impl<'a> Salvage<'a> {
    pub(crate) fn new(connection: &'a AuditConnection) -> Result<Self> {
        Ok(Self { connection, tables: connection.tables()?, leaf_depth: Cell::default() })
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Visits the rows of a span, and the lost rows that may belong to the span. `Corrupt` if the structure of a page
    /// is damaged, or if a page is in the wrong place.
    pub(crate) fn visit_rows(&self, span: &Span, order: Order, visit: &mut RowVisitor<'_>) -> Result<()> {
        if span.start >= span.end {
            return Ok(());
        }
        let root = self.connection.root()?;
        // The audit has the same checks. A page in the place of another page hides rows, so such damage is an
        // error, and is not treated as damaged keys.
        self.connection.check_children(root, self.read(root)?.children)?;
        self.leaf_depth.set(AuditConnection::depth(root, |number| Ok(self.read(number)?.children))?);
        self.visit_page(root, 0, KeyBounds::ALL, span, order, visit).map(drop)
    }

    fn visit_page(
        &self,
        number: u32,
        depth: usize,
        within: KeyBounds<'_>,
        span: &Span,
        order: Order,
        visit: &mut RowVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        if depth > MAX_DEPTH {
            return Err(damaged_page(number, "it is deeper than a tree can be"));
        }
        let mut page = self.read(number)?;
        if page.children.is_empty() != (depth == self.leaf_depth.get()) {
            return Err(damaged_page(number, "its depth in the tree is wrong"));
        }
        if page.rows.is_empty() && depth > 0 {
            return Err(damaged_page(number, "it is empty"));
        }
        page.mark_lost_rows(within).map_err(|what| damaged_page(number, &what))?;
        self.record_damaged_keys(number, &page);
        let count = page.rows.len();
        for step in 0..=count {
            // The forward order is: child, row, child, row, and so on to the last child. The reverse order begins
            // with the last child.
            let place = if order == Order::Forward { step } else { count - step };
            let row_first = order == Order::Reverse;
            for is_row in [row_first, !row_first] {
                let between = page.between(place, is_row, within);
                if !between.meets(span) {
                    continue;
                }
                let flow = match (is_row, page.rows.get(place), page.children.get(place)) {
                    (true, Some(row), _) if row.state == KeyState::Lost || span.contains(&row.key) => {
                        visit(row, between)?
                    }
                    (false, _, Some(child)) => {
                        self.visit_page(*child, depth + 1, between, span, order, visit)?
                    }
                    _ => ControlFlow::Continue(()),
                };
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the flipped bits of the keys on a page, each with the true key. Empty if the page cannot be parsed
    /// as a page of rows.
    pub(crate) fn flipped_bits(&self, number: u32) -> Result<Vec<(Vec<u8>, FlippedBit)>> {
        let rows = match self.read(number) {
            Ok(page) => page.rows,
            Err(Error::Corrupt(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(rows
            .into_iter()
            .filter_map(|row| match row.state {
                KeyState::Flipped(bit) => Some((row.key, bit)),
                _ => None,
            })
            .collect())
    }

    fn record_damaged_keys(&self, number: u32, page: &SalvagedPage) {
        for row in &page.rows {
            match row.state {
                KeyState::InOrder => {}
                KeyState::Flipped(_) => self.connection.damaged_keys().record_flipped(number),
                KeyState::Lost => self.connection.damaged_keys().record_lost(),
            }
        }
    }

    /// Reads a page, and compares each of its rows with its checksum.
    fn read(&self, number: u32) -> Result<SalvagedPage> {
        let overflow = |first, length| self.connection.overflow(first, length);
        let read = self.connection.with_page(number, |bytes| -> std::result::Result<_, String> {
            let tree = TreePage::parse_unordered(bytes, overflow)?;
            let records = (0..tree.rows()).map(|row| tree.record(bytes, row, overflow));
            let records = records.collect::<std::result::Result<Vec<_>, _>>()?;
            Ok((tree, records))
        })?;
        let (tree, records) = read.map_err(|what| damaged_page(number, &what))?;
        let mut rows = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().enumerate() {
            let envelope = record.envelope(self.connection)?;
            let StoredRow { written_at, expires_at, .. } = record.stored(None);
            let key = tree.key(index).to_vec();
            let state = KeyState::InOrder;
            let large = record.large;
            let mut row =
                SalvagedRow { key, state, written_at, expires_at, large, envelope, is_whole: false };
            row.is_whole = self.tables.is_whole_under(&row.stored(), &row.key);
            if !row.is_whole {
                let fits = |(bit, key): &(usize, Vec<u8>)| {
                    bit / 8 < record.key.len() && self.tables.is_whole_under(&row.stored(), key)
                };
                let restored = flipped(tree.key(index)).find(fits);
                if let Some((bit, key)) = restored {
                    let (at, mask) = (record.key.start + bit / 8, 1 << (bit % 8));
                    row.key = key;
                    row.state = KeyState::Flipped(FlippedBit { page: number, at, mask });
                    row.is_whole = true;
                }
            }
            rows.push(row);
        }
        let children = (0..=tree.rows()).filter_map(|place| tree.child(place)).collect();
        Ok(SalvagedPage { rows, children })
    }
}

impl SalvagedPage {
    /// Marks damaged rows that are out of order as lost. An error if an undamaged row is out of order, or if too
    /// many rows are lost.
    fn mark_lost_rows(&mut self, within: KeyBounds<'_>) -> std::result::Result<(), String> {
        let mut last = within.low.map(<[u8]>::to_vec);
        let mut lost = 0;
        for index in 0..self.rows.len() {
            let row = &self.rows[index];
            let next = self.rows[index + 1..].iter().find(|row| row.is_whole).map(|row| row.key.as_slice());
            let next = next.or(within.high);
            let is_after = last.as_deref().is_none_or(|last| last < row.key.as_slice());
            let is_before = next.is_none_or(|next| row.key.as_slice() < next);
            if is_after && is_before {
                last = Some(row.key.clone());
            } else if row.is_whole {
                return Err(format!("its row {index} is out of order, and its rows belong on another page"));
            } else {
                lost += 1;
                self.rows[index].state = KeyState::Lost;
            }
        }
        if lost > MAX_LOST_ROWS { Err(format!("{lost} of its rows are out of order")) } else { Ok(()) }
    }

    /// Returns the bounds of a row, or of the child page before the row.
    fn between<'k>(&'k self, place: usize, is_row: bool, within: KeyBounds<'k>) -> KeyBounds<'k> {
        let key = |row: &'k SalvagedRow| (row.state != KeyState::Lost).then_some(row.key.as_slice());
        let after = place + usize::from(is_row);
        let low = self.rows.iter().take(place).rev().find_map(key).or(within.low);
        let high = self.rows.iter().skip(after).find_map(key).or(within.high);
        KeyBounds { low, high }
    }
}
