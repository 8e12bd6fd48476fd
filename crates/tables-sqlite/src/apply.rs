//! Applies changes inside a transaction of the writing connection.

use rashomon_clock::{PassedTime, Timestamp};
use rashomon_tables::{Error, Result, Swap};
use rusqlite::{Connection, ToSql, config::DbConfig, params};

use crate::{
    audit::AuditConnection,
    call::{Change, SwapCall, Write},
    catalog::Table,
    errors::from_sqlite,
    read,
    row::{self, StoredRow, stored_columns},
    span::Span,
};

/// The maximum size of an envelope (values with their checksum) that is stored beside its key. Longer envelopes are
/// stored in `large_values`, so that the keys of a partition are close together. SQLite puts at least four rows on a
/// page, so the part of a row above 1,002 bytes (key included) would be on an overflow page.
const MAX_SMALL_BYTES: usize = 700;

/// Applies all changes of a call. If a change fails, the changes before it stay applied, and the caller rolls
/// back.
///
/// Compares the write time of each change with the stored write time, after a check of the stored row's checksum. In
/// tables whose values have their own checksums, deletes compare it without this check.
pub(crate) fn write(connection: &Connection, write: &Write) -> Result<()> {
    write.changes.iter().try_for_each(|one| change(connection, one))
}

fn change(connection: &Connection, change: &Change) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    match change {
        Change::Put { table, key, written_at, expires_at, envelope } => {
            put(connection, *table, key, *written_at, *expires_at, envelope)
        }
        Change::Delete { table, key, written_at } => {
            let check = |stored: StoredRow<'_>| Ok(check_before_delete(*table, key, &stored));
            match row::with_stored(connection, key, check)? {
                // No row has a later write time than `MAX`, so the damaged time does not matter.
                Some(Err(Error::Corrupt(_))) if *written_at == Timestamp::MAX => {
                    return delete_damaged(connection, *table, key);
                }
                checked => checked.unwrap_or(Ok(()))?,
            }
            connection
                .prepare_cached("DELETE FROM rows WHERE key = ?1 AND written_at <= ?2")
                .and_then(|mut delete| delete.execute(params![key, written_at.as_micros()]))
                .map(drop)
                .map_err(sqlite)
        }
        Change::DeleteSpan { table, span, written_before } => {
            check_span_before_delete(connection, *table, span)?;
            connection
                .prepare_cached("DELETE FROM rows WHERE key >= ?1 AND key < ?2 AND written_at <= ?3")
                .and_then(|mut delete| {
                    delete.execute(params![span.start, span.end, written_before.as_micros()])
                })
                .map(drop)
                .map_err(sqlite)
        }
    }
}

/// Checks the times of a row by its checksum, before a delete compares the times. Does not check tables whose
/// values have their own checksums: each of their keys is written only once, so no delete has to spare a row
/// that was written later.
fn check_before_delete(table: Table, key: &[u8], stored: &StoredRow<'_>) -> Result<()> {
    if table.schema.checks_itself() { Ok(()) } else { stored.check_times(table, key) }
}

fn check_span_before_delete(connection: &Connection, table: Table, span: &Span) -> Result<()> {
    const SQL: &str = concat!(
        "SELECT r.key, ",
        stored_columns!(),
        " FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large WHERE r.key >= ?1 AND r.key < ?2"
    );
    let sqlite = |error| from_sqlite(&error);
    if table.schema.checks_itself() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(SQL).map_err(sqlite)?;
    let mut rows = statement.query([&span.start, &span.end]).map_err(sqlite)?;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        check_before_delete(table, key, &StoredRow::read(row, 1).map_err(sqlite)?)?;
    }
    Ok(())
}

fn put(
    connection: &Connection,
    table: Table,
    key: &[u8],
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
    envelope: &[u8],
) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    let large = if envelope.len() > MAX_SMALL_BYTES {
        Some(insert_large(connection, envelope).map_err(sqlite)?)
    } else {
        None
    };
    let small = large.is_none().then_some(envelope);
    let expires_at = expires_at.map(Timestamp::as_micros);
    let columns = params![key, written_at.as_micros(), expires_at, large, small];
    // Most rows need only the first of the two statements. A single upsert would cost more: updates have a
    // trigger, so SQLite would copy the changed pages, to be able to undo the statement alone.
    let inserted = connection
        .prepare_cached(
            "INSERT INTO rows (key, written_at, expires_at, large, value) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (key) DO NOTHING",
        )
        .and_then(|mut insert| insert.execute(columns))
        .map_err(sqlite)?;
    if inserted > 0 {
        return Ok(());
    }
    let is_whole = row::with_stored(connection, key, |stored| Ok(stored.is_whole_under(table.seed, key)))?;
    if is_whole == Some(false) {
        return replace_damaged(connection, table, key, columns);
    }
    // The trigger deletes the large value of the replaced row.
    let updated = connection
        .prepare_cached(
            "UPDATE rows SET written_at = ?2, expires_at = ?3, large = ?4, value = ?5
             WHERE key = ?1 AND written_at <= ?2",
        )
        .and_then(|mut update| update.execute(columns))
        .map_err(sqlite)?;
    match large {
        // The stored row has a later write time, so the new large value is not needed.
        Some(large) if updated == 0 => connection
            .prepare_cached("DELETE FROM large_values WHERE id = ?1")
            .and_then(|mut delete| delete.execute([large]))
            .map(drop)
            .map_err(sqlite),
        _ => Ok(()),
    }
}

/// Replaces a damaged row, whatever its write time.
fn replace_damaged(connection: &Connection, table: Table, key: &[u8], columns: &[&dyn ToSql]) -> Result<()> {
    tracing::warn!(table = table.schema.name(), key = %key.escape_ascii(), "damaged row replaced by a write");
    let sql = "UPDATE rows SET written_at = ?2, expires_at = ?3, large = ?4, value = ?5 WHERE key = ?1";
    change_damaged(connection, sql, columns)
}

/// Deletes a damaged row, whatever its write time.
fn delete_damaged(connection: &Connection, table: Table, key: &[u8]) -> Result<()> {
    tracing::warn!(table = table.schema.name(), key = %key.escape_ascii(), "damaged row deleted");
    change_damaged(connection, "DELETE FROM rows WHERE key = ?1", params![key])
}

/// Runs a statement that replaces or deletes a damaged row, with triggers disabled. The large value of the row
/// is not deleted: its number in the row may be damaged too, and the trigger would then delete the large value
/// of another row.
fn change_damaged(connection: &Connection, sql: &str, parameters: &[&dyn ToSql]) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).map_err(sqlite)?;
    let changed = connection.execute(sql, parameters);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, true).map_err(sqlite)?;
    changed.map(drop).map_err(sqlite)
}

fn insert_large(connection: &Connection, envelope: &[u8]) -> rusqlite::Result<i64> {
    connection.prepare_cached("INSERT INTO large_values (value) VALUES (?1)")?.insert([envelope])
}

/// Applies the batches of a swap, then compares the row, and sets or deletes it. The batches stay applied if the swap
/// is refused. The write time of the new row is always later than that of the stored row, even if the clock is
/// behind.
pub(crate) fn swap(connection: &AuditConnection, call: &SwapCall, passed: PassedTime) -> Result<Swap> {
    write(connection, &call.first)?;
    let existing = read::find_or_audit(connection, call.table, &call.name, &call.key)?;
    let visible = existing.as_ref().filter(|row| row.is_visible(passed));
    if visible.map(|row| &row.values) != call.expected.as_ref() {
        return Ok(Swap::Refused { current: visible.cloned() });
    }
    let now = passed.shown();
    let after = |previous: Timestamp| previous.just_after().max(now);
    let written_at = existing.map_or(now, |row| after(row.written_at));
    let key = call.key.clone();
    let applied = match &call.new {
        Some(new) => Change::put(call.table, key, &new.values, written_at, new.expires_at),
        None => Change::Delete { table: call.table, key, written_at },
    };
    change(connection, &applied)?;
    Ok(Swap::Applied)
}
