//! The reads of the parent module for pages with damaged keys. These functions read the pages directly, which
//! costs more than SQLite's search.

use std::ops::ControlFlow;

use super::{
    AuditConnection, Cursor, DamagedRow, Error, Key, MAX_SKIPPED_ROWS, NonZeroUsize, OnDamage, Order, Page,
    PageBuilder, Partition, PassedTime, Result, Row, Scan, Span, Table, UnauditedPage, corrupt, key,
    pop_partition, span,
};
use crate::salvage::{FLIPPED_KEY, KeyState, LOST_KEY, Salvage, SalvagedRow};

/// Reads the row under a key, visible or expired.
pub(super) fn find(
    connection: &AuditConnection,
    table: Table,
    name: &Key,
    key: &[u8],
) -> Result<Option<Row>> {
    let mut found = None;
    Salvage::new(connection)?.visit_rows(&Span::of_key(key), Order::Forward, &mut |row, _| {
        check_key(connection, table, key, row)?;
        let stored = row.stored();
        found = Some(Row {
            key: name.clone(),
            values: stored.values(table, key)?,
            written_at: stored.written_at,
            expires_at: stored.expires_at,
        });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Checks that the key of the row is undamaged. A flipped key is accepted if reads treat flipped keys as
/// repaired.
fn check_key(connection: &AuditConnection, table: Table, key: &[u8], row: &SalvagedRow) -> Result<()> {
    let what = match row.state {
        KeyState::InOrder => return Ok(()),
        KeyState::Flipped(_) if connection.damaged_keys().are_read_as_restored() => return Ok(()),
        KeyState::Flipped(_) => FLIPPED_KEY,
        KeyState::Lost => LOST_KEY,
    };
    Err(corrupt(table.schema.name(), key, what))
}

/// Reads a result page of rows. `span` is the rest of the scan.
pub(super) fn scan(
    connection: &AuditConnection,
    table: Table,
    scan: &Scan,
    span: &Span,
    table_key: &[u8],
    passed: PassedTime,
) -> Result<Page<Row>> {
    let mut page = Some(PageBuilder::new(scan));
    let mut full = None;
    Salvage::new(connection)?.visit_rows(span, scan.order, &mut |row, _| {
        let Some(builder) = page.as_mut() else { return Ok(ControlFlow::Break(())) };
        if builder.is_full() {
            full = page.take().map(|page| page.build(true));
            return Ok(ControlFlow::Break(()));
        }
        add(connection, builder, table, table_key, row, passed)?;
        Ok(ControlFlow::Continue(()))
    })?;
    let ended = page.map(|page| page.build(false));
    let UnauditedPage { page, .. } =
        full.or(ended).ok_or_else(|| Error::unavailable("a scan without a page"))?;
    Ok(page)
}

fn add(
    connection: &AuditConnection,
    page: &mut PageBuilder<'_>,
    table: Table,
    table_key: &[u8],
    row: &SalvagedRow,
    passed: PassedTime,
) -> Result<()> {
    let unreadable = |what| corrupt(table.schema.name(), &row.key, what);
    // A lost row may be of another table or partition. Its key then does not begin with the prefix of this
    // table and partition.
    let clustering_key = row.key.strip_prefix(table_key).ok_or_else(|| unreadable(LOST_KEY))?;
    let stored = row.stored();
    let is_lost = row.state == KeyState::Lost;
    let checked = check_key(connection, table, &row.key, row);
    if !is_lost && !stored.is_visible(passed) && stored.check_times(table, &row.key).is_ok() {
        page.skip(clustering_key);
        return Ok(());
    }
    let clustering =
        span::pop_clustering(table, clustering_key).ok_or_else(|| unreadable("its key cannot be read"))?;
    let name = Key::new(page.scan.partition.clone(), clustering);
    let values = checked.and_then(|()| {
        let values = stored.values(table, &row.key)?;
        if !stored.is_visible(passed) {
            stored.check_times(table, &row.key)?;
        }
        Ok(values)
    });
    match values {
        Ok(values) => {
            let (written_at, expires_at) = (stored.written_at, stored.expires_at);
            page.push(Row { key: name, values, written_at, expires_at }, clustering_key);
        }
        Err(Error::Corrupt(reason)) if page.scan.on_damage == OnDamage::Report => {
            let row = DamagedRow { key: name, reason };
            // A scan cannot continue after a lost row, so the cursor does not move to this row.
            if is_lost { page.damaged.push(row) } else { page.push_damaged(row, clustering_key) }
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads a result page of partitions.
pub(super) fn partitions(
    connection: &AuditConnection,
    table: Table,
    mut span: Span,
    limit: NonZeroUsize,
    passed: PassedTime,
) -> Result<Page<Partition>> {
    let salvage = Salvage::new(connection)?;
    let (mut items, mut last) = (Vec::new(), Vec::new());
    let mut examined = 0;
    while let Some((partition_key, partition)) = first_partition(&salvage, table, &span)? {
        if items.len() == limit.get() || examined == limit.get().saturating_add(MAX_SKIPPED_ROWS) {
            return Ok(Page::new(items, Some(Cursor(last.into()))));
        }
        examined += 1;
        last = partition_key[key::NUMBER_BYTES..].to_vec();
        span.start = key::successor(partition_key);
        if has_visible_row(&salvage, table, &partition, passed)? {
            items.push(partition);
        }
    }
    Ok(Page::new(items, None))
}

/// Returns the first partition of a span that has a row of any table, and the prefix of its keys.
pub(super) fn first_partition(
    salvage: &Salvage<'_>,
    table: Table,
    span: &Span,
) -> Result<Option<(Vec<u8>, Partition)>> {
    let Some(found) = first_key(salvage, table, span)? else { return Ok(None) };
    let unreadable = || corrupt(table.schema.name(), &found, "its partition cannot be read");
    let partition_key = partition_key_of(table, &found).ok_or_else(unreadable)?;
    let partition = pop_partition(table, &mut &partition_key[key::NUMBER_BYTES..]).ok_or_else(unreadable)?;
    Ok(Some((partition_key.to_vec(), partition)))
}

/// Returns the first key of a span. `Corrupt` if a lost row before it may have been the only row of its
/// partition.
fn first_key(salvage: &Salvage<'_>, table: Table, span: &Span) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    salvage.visit_rows(span, Order::Forward, &mut |row, between| {
        if row.state != KeyState::Lost {
            found = Some(row.key.clone());
            return Ok(ControlFlow::Break(()));
        }
        let partition = |key: Option<&[u8]>| partition_key_of(table, key?).map(<[u8]>::to_vec);
        let (low, high) = (partition(between.low), partition(between.high));
        if low.is_some() && low == high {
            return Ok(ControlFlow::Continue(()));
        }
        Err(corrupt(table.schema.name(), &row.key, LOST_KEY))
    })?;
    Ok(found)
}

/// Returns the prefix of a key with the number of the shape and the partition.
fn partition_key_of(table: Table, found: &[u8]) -> Option<&[u8]> {
    let mut rest = found.get(key::NUMBER_BYTES..)?;
    pop_partition(table, &mut rest)?;
    Some(&found[..found.len() - rest.len()])
}

/// Whether the partition has a visible row or a damaged row in this table. A scan of the partition then reports
/// the damage.
fn has_visible_row(
    salvage: &Salvage<'_>,
    table: Table,
    partition: &Partition,
    passed: PassedTime,
) -> Result<bool> {
    let start = span::table_key(table, partition);
    let span = Span { end: key::successor(start.clone()), start };
    let mut found = false;
    salvage.visit_rows(&span, Order::Forward, &mut |row, _| {
        let stored = row.stored();
        let has_expired = row.state != KeyState::Lost
            && !stored.is_visible(passed)
            && stored.check_times(table, &row.key).is_ok();
        found |= !has_expired;
        Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}
