//! Changes, on the connection that writes, inside a transaction.

use rashomon_clock::Timestamp;
use rashomon_tables::{Result, Swap};
use rusqlite::{Connection, params};

use crate::{
    call::{Change, SwapCall, Write},
    errors::from_sqlite,
    row,
};

/// Envelopes up to so many bytes stand beside their key; longer ones apart, so that the keys of a partition
/// stand close together.
const MAX_SMALL_BYTES: usize = 1_000;

/// Applies all of a call, or fails halfway: the caller goes back to where it was before.
pub(crate) fn write(connection: &Connection, write: &Write) -> rusqlite::Result<()> {
    write.changes.iter().try_for_each(|one| change(connection, one))
}

fn change(connection: &Connection, change: &Change) -> rusqlite::Result<()> {
    match change {
        Change::Put { key, written_at, expires_at, envelope } => {
            put(connection, key, *written_at, *expires_at, envelope)
        }
        Change::Delete { key, written_at } => connection
            .prepare_cached("DELETE FROM rows WHERE key = ?1 AND written_at <= ?2")?
            .execute(params![key, written_at.as_micros()])
            .map(drop),
        Change::DeleteSpan { span, written_before } => connection
            .prepare_cached("DELETE FROM rows WHERE key >= ?1 AND key < ?2 AND written_at <= ?3")?
            .execute(params![span.start, span.end, written_before.as_micros()])
            .map(drop),
    }
}

fn put(
    connection: &Connection,
    key: &[u8],
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
    envelope: &[u8],
) -> rusqlite::Result<()> {
    let large =
        if envelope.len() > MAX_SMALL_BYTES { Some(insert_large(connection, envelope)?) } else { None };
    let small = large.is_none().then_some(envelope);
    let expires_at = expires_at.map(Timestamp::as_micros);
    let columns = params![key, written_at.as_micros(), expires_at, large, small];
    // Two statements, of which most rows need one. An upsert would be one, and costs more: because of the
    // trigger that an update has, SQLite would keep copies of the pages it changes to undo it alone.
    let inserted = connection
        .prepare_cached(
            "INSERT INTO rows (key, written_at, expires_at, large, value) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (key) DO NOTHING",
        )?
        .execute(columns)?;
    if inserted > 0 {
        return Ok(());
    }
    // The trigger deletes the large value of the row that is replaced.
    let updated = connection
        .prepare_cached(
            "UPDATE rows SET written_at = ?2, expires_at = ?3, large = ?4, value = ?5
             WHERE key = ?1 AND written_at <= ?2",
        )?
        .execute(columns)?;
    match large {
        // A later row stands.
        Some(large) if updated == 0 => {
            connection.prepare_cached("DELETE FROM large_values WHERE id = ?1")?.execute([large]).map(drop)
        }
        _ => Ok(()),
    }
}

fn insert_large(connection: &Connection, envelope: &[u8]) -> rusqlite::Result<i64> {
    connection.prepare_cached("INSERT INTO large_values (value) VALUES (?1)")?.insert([envelope])
}

/// Compares and sets. Each swap of a row is later than the one before, whatever the clock says.
pub(crate) fn swap(connection: &Connection, call: &SwapCall, now: Timestamp) -> Result<Swap> {
    let standing = row::find(connection, call.table, &call.name, &call.key)?;
    let visible = standing.as_ref().filter(|row| row.is_visible(now));
    if visible.map(|row| &row.values) != call.expected.as_ref() {
        return Ok(Swap::Refused { current: visible.cloned() });
    }
    let after = |standing: Timestamp| standing.just_after().max(now);
    let written_at = standing.map_or(now, |row| after(row.written_at));
    let key = call.key.clone();
    let applied = match &call.new {
        Some(new) => Change::put(call.table, key, &new.values, written_at, new.expires_at),
        None => Change::Delete { key, written_at },
    };
    change(connection, &applied).map_err(|error| from_sqlite(&error))?;
    Ok(Swap::Applied)
}
