//! The upkeep of the store between calls: the committer writes the log into the file, deletes expired rows,
//! and gives free pages back to the file system ([`super::vacuum`]). Each step is bounded, so that no call
//! waits long.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rashomon_clock::PassedTime;
use rashomon_tables::{Error, Result};
use rusqlite::{Connection, config::DbConfig};

use super::{Committer, Parts, checkpointer::Checkpointer, checkpoints::Checkpoints};
use crate::{
    definitions, envelope,
    errors::from_sqlite,
    file::FORMAT_VERSION,
    log_mark,
    row::{self, corrupt},
    row_scan::Tables,
};

/// How long the committer waits for calls before it looks whether the running pass of a checkpoint has ended.
const PASS_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum number of damaged rows that are remembered. Sweeps skip these rows without another report.
const MAX_SKIPPED_ROWS: usize = 10_000;

/// The state of upkeep, and the times of its last steps.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub(super) checkpoints: Checkpoints,
    swept_at: Duration,
    pub(super) vacuumed_at: Duration,
    probed_at: Duration,
    /// Whether the store gives no free pages back: its file is damaged, or a command only reads.
    pub(super) vacuum_is_off: bool,
    /// Damaged rows that have expired according to their times. They are reported once, and not deleted.
    skipped_damage: HashSet<Vec<u8>>,
}

impl Upkeep {
    pub(super) fn new(parts: &mut Parts) -> rusqlite::Result<Self> {
        let panics = Arc::clone(&parts.counters.panics);
        let checkpointer = Checkpointer::new(parts.directory.clone(), parts.pass, panics);
        let now = parts.clock.monotonic();
        Ok(Self {
            checkpoints: Checkpoints::new(&mut parts.connection, &parts.options, checkpointer)?,
            swept_at: now,
            vacuumed_at: now,
            probed_at: now,
            // A command that only reads leaves the file as it is.
            vacuum_is_off: parts.options.is_read_only_command,
            skipped_damage: HashSet::new(),
        })
    }

    /// Empties the log, which SQLite deletes when the connection is closed. Closes the mark of the log unless
    /// `keeps_mark`.
    pub(super) fn close(&mut self, connection: &Connection, keeps_mark: bool) -> rusqlite::Result<()> {
        if !keeps_mark {
            log_mark::close(connection)?;
        }
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(drop)
    }
}

impl Committer {
    /// Does upkeep after a job was answered. Takes a step of a checkpoint if the log is long, and runs a sweep or a
    /// step of the vacuum if its interval has passed. During an outage, only probes.
    pub(super) fn upkeep_beside_writes(&mut self) {
        if self.parts.health.outage().is_some() {
            let since = self.parts.clock.monotonic().saturating_sub(self.upkeep.probed_at);
            if since >= self.parts.options.upkeep_interval {
                self.probe();
            }
            return;
        }
        self.step_checkpoint_of_long_log();
        // Runs the vacuum or the sweep, but not both, so that the next calls wait for one of them at most. The
        // one that ran longer ago goes first.
        let (now, interval) = (self.parts.clock.monotonic(), self.parts.options.upkeep_interval);
        let Upkeep { swept_at, vacuumed_at, .. } = self.upkeep;
        if vacuumed_at <= swept_at && now.saturating_sub(vacuumed_at) >= interval {
            self.vacuum_beside_writes();
        } else if now.saturating_sub(swept_at) >= interval {
            self.sweep_and_log_failure();
        }
    }

    /// Does upkeep while no calls come in: one step of a sweep, of the vacuum, and of a checkpoint. During an
    /// outage, only probes. Returns how long to wait for calls until the next upkeep.
    pub(super) fn upkeep_while_idle(&mut self) -> Duration {
        if self.parts.health.outage().is_some() {
            self.probe();
            return self.parts.options.upkeep_interval;
        }
        let more_expired = self.sweep_and_log_failure() == self.parts.options.sweep_rows.get();
        let more_free = self.vacuum_while_idle();
        let has_more = more_expired || more_free;
        // Between two steps, the log is written into the file only if it is long: the next step often changes
        // the same pages again.
        if has_more {
            self.step_checkpoint_of_long_log();
            return Duration::ZERO;
        }
        self.step_checkpoint(1);
        let interval = self.parts.options.upkeep_interval;
        if self.upkeep.checkpoints.is_running() { interval.min(PASS_INTERVAL) } else { interval }
    }

    /// Tests whether the store can be written again, after a write failed because of the disk. Checks that the
    /// disk has room for the failed write, that a page can be read, that a transaction can be committed, and
    /// that the log can be written into the file.
    fn probe(&mut self) {
        self.upkeep.probed_at = self.parts.clock.monotonic();
        if self.stopped.is_some() || self.parts.health.probe().is_err() {
            return;
        }
        // Writes the log into the file and empties the cache: otherwise pages in the log or in the cache would
        // hide that the file cannot be read.
        if self.write_log_into_file().is_err() {
            return;
        }
        let freed = self.parts.connection.execute_batch("PRAGMA shrink_memory");
        // Reads one page, and writes it unchanged.
        let version = format!("PRAGMA user_version = {FORMAT_VERSION}");
        let written = freed.map_err(|error| from_sqlite(&error)).and_then(|()| {
            self.transaction(|connection, _| {
                connection.execute_batch(&version).map_err(|error| from_sqlite(&error))
            })
        });
        if written.and_then(|()| self.write_log_into_file()).is_ok() {
            self.parts.health.record_recovery();
        }
    }

    /// Deletes some of the rows that have expired, the earliest first, and returns their number.
    pub(super) fn sweep(&mut self) -> Result<usize> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.upkeep.swept_at = self.parts.clock.monotonic();
        let passed = self.parts.clock.passed();
        let rows = self.parts.options.sweep_rows.get();
        let limit = rows.saturating_add(self.upkeep.skipped_damage.len());
        let skipped_damage = &mut self.upkeep.skipped_damage;
        let connection = &self.parts.connection;
        let keys = expired(connection, passed, limit).map_err(|error| connection.failure(&error, 1))?;
        let keys: Vec<_> = keys.into_iter().filter(|key| !skipped_damage.contains(key)).take(rows).collect();
        if keys.is_empty() {
            return Ok(0);
        }
        let tables = definitions::read_all(connection).map_err(|error| from_sqlite(&error))?;
        let tables = Tables::new(tables);
        let (mut expired_keys, mut damaged) = (Vec::new(), Vec::new());
        for key in keys {
            match check_expired(connection, &tables, &key, passed) {
                Ok(()) => expired_keys.push(key),
                Err(Error::Corrupt(what)) => {
                    tracing::error!(what, "damaged row may have expired; keeping it");
                    damaged.push(key);
                }
                Err(error) => return Err(error),
            }
        }
        let room = MAX_SKIPPED_ROWS.saturating_sub(skipped_damage.len());
        skipped_damage.extend(damaged.into_iter().take(room));
        if expired_keys.is_empty() {
            return Ok(0);
        }
        // Expired rows are invisible, so no partition version changes.
        self.transaction(|connection, _| {
            let sqlite = |error| from_sqlite(&error);
            let mut delete = connection.prepare_cached("DELETE FROM rows WHERE key = ?1").map_err(sqlite)?;
            expired_keys
                .iter()
                .try_fold(0, |deleted, key| Ok(deleted + delete.execute([key]).map_err(sqlite)?))
        })
    }

    fn sweep_and_log_failure(&mut self) -> usize {
        if self.stopped.is_some() {
            return 0;
        }
        self.sweep().unwrap_or_else(|error| {
            self.upkeep_failed(error, 0, "expired rows could not be deleted");
            0
        })
    }

    /// Rewrites the file with only the live rows, and empties the log.
    pub(super) fn scrub(&mut self) -> Result<()> {
        self.close_mark()?;
        // `VACUUM` makes a copy that is as large as the file. The copy must not be in memory.
        let connection = &self.parts.connection;
        let rewritten = connection.execute_batch("PRAGMA temp_store = FILE; VACUUM;");
        let reset = connection.execute_batch("PRAGMA temp_store = MEMORY;");
        rewritten.and(reset).map_err(|error| self.write_error(&error))?;
        self.truncate_log()
    }

    /// Writes the log into the file, and empties the log.
    pub(super) fn empty_log(&mut self) -> Result<()> {
        self.close_mark()?;
        self.truncate_log()
    }

    /// Closes the mark of the log before the log is emptied. With an open mark, an empty log would count as
    /// lost. The next write marks the log again.
    fn close_mark(&mut self) -> Result<()> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        self.finish_pass()?;
        log_mark::close(&self.parts.connection).map_err(|error| self.write_error(&error))?;
        self.log_is_marked = false;
        Ok(())
    }

    /// Writes the log into the file, and truncates the log. `Unavailable` if a reader is using the log.
    fn truncate_log(&mut self) -> Result<()> {
        let is_busy = self
            .parts
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0))
            .map_err(|error| self.write_error(&error))?;
        if is_busy {
            return Err(Error::unavailable(
                "a reader is using the log: run the command again when no reader is active",
            ));
        }
        Ok(())
    }

    /// Logs a failure of upkeep. `bytes` is the size of the failed write. A failure of the disk is logged only
    /// once, and only probes run until the disk has recovered.
    pub(super) fn upkeep_failed(&self, error: Error, bytes: usize, what: &str) {
        let error = self.parts.health.record_failure(error, bytes);
        if self.parts.health.outage().is_none() {
            tracing::warn!(%error, "{what}");
        }
    }
}

/// After a jump of the clock, a sweep looks at this many times the rows that it deletes. The rest waits.
const EXAMINED: usize = 16;

/// Returns the keys of rows that have expired according to the index of expiry times, the earliest first.
///
/// The rows that have expired only by a clock that jumped are left out: [`PassedTime::has_reached`] in SQL. They come
/// after all other expired rows.
fn expired(connection: &Connection, passed: PassedTime, limit: usize) -> rusqlite::Result<Vec<Vec<u8>>> {
    let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let steady = i64::try_from(passed.steady().as_micros()).unwrap_or(i64::MAX);
    let (shown, seen) = (passed.shown().as_micros(), passed.seen().as_micros());
    connection
        .prepare_cached(
            "SELECT key
             FROM (SELECT key, expires_at, written_at FROM rows
                   WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)
             WHERE expires_at <= ?3 OR expires_at - written_at <= ?4
             LIMIT ?5",
        )?
        .query_map((shown, of(limit.saturating_mul(EXAMINED)), seen, steady, of(limit)), |row| row.get(0))?
        .collect()
}

/// Checks that a row has expired according to its own expiry time, and that its checksum confirms this time.
fn check_expired(connection: &Connection, tables: &Tables, key: &[u8], passed: PassedTime) -> Result<()> {
    let unknown = |what: &str| Error::Corrupt(format!("the row {}: {what}", key.escape_ascii()));
    let table = &tables.all()[tables.index_of(key).map_err(unknown)?].definition.name;
    let checked = row::with_stored(connection, key, |stored| {
        let is_whole = stored.is_whole_under(envelope::seed(table), key);
        if is_whole && !stored.is_visible(passed) {
            return Ok(());
        }
        Err(corrupt(table, key, "its checksum does not agree, or the index of expiry times has another time"))
    })?;
    checked.ok_or_else(|| unknown("the index of expiry times names it, but it is missing"))
}
