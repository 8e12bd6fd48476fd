//! Gives free pages of the file back to the file system, in steps.
//!
//! Deleted rows leave free pages in the file. A step moves the last pages of the file to free pages before
//! them, and drops the end of the file. A step is one transaction, so a process that is killed loses nothing.
//!
//! A step does not delay readers. Its commit appends to the log, while readers continue with the pages of their
//! own snapshots. The file itself becomes shorter when the log is written into it, and only when no reader needs
//! the old end: SQLite copies no commit that is later than the oldest snapshot in use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rashomon_tables::{Error, Result};
use rusqlite::Connection;

use super::Committer;
use crate::{errors::from_sqlite, file::PAGE_BYTES, log_mark};

/// The limits of a step.
#[derive(Debug, Clone, Copy)]
struct StepLimits {
    /// The maximum number of pages that are given back.
    pages: u32,
    /// The time after which no further page is moved.
    time: Duration,
}

/// The limits of a step of a running server. Calls that arrive during a step wait for its end.
///
/// The aim is that no call waits longer than about 50 ms. When pages had 16 KiB, a step of 1 MB took 4 to 5 ms
/// in the median and at most 43 ms, on two busy cores and an SSD. Three stores were measured: half of the oVirt wiki
/// sealed, bodies of 1 MB, and bodies of 1 to 20 KB. A step of 16 MB took 48 ms in the median. Most of the time is
/// the commit. On a disk that takes long to read the pages to be moved, the step ends early.
const SERVER_STEP: StepLimits = StepLimits { pages: 256, time: Duration::from_millis(20) };

/// The limits of a step of a command, whose store no server uses. The log needs 4 to 8 MB for a step.
const COMMAND_STEP: StepLimits = StepLimits { pages: 1_024, time: Duration::MAX };

/// The number of free pages that a server keeps for the next writes: 16 MB.
const FREE_PAGES_KEPT: u32 = 4_000;

/// While writes come in, a step needs at least this many free pages above [`FREE_PAGES_KEPT`]: 16 MB. These
/// writes would soon use a smaller surplus.
const MIN_SURPLUS_BESIDE_WRITES: u32 = 4_000;

/// The number of instructions of SQLite between two checks of the flag that cancels a rewrite.
const INSTRUCTIONS_PER_CHECK: i32 = 1_000;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VacuumStep {
    /// Pages that were given back.
    pub(crate) returned: u32,
    /// Free pages that are left in the file.
    pub(crate) left: u32,
}

impl Committer {
    /// Does a step if many more pages are free than [`FREE_PAGES_KEPT`].
    pub(super) fn vacuum_beside_writes(&mut self) {
        self.vacuum_surplus(MIN_SURPLUS_BESIDE_WRITES);
    }

    /// Does a step if more pages are free than [`FREE_PAGES_KEPT`]. Returns whether the next step would give
    /// pages back, too.
    pub(super) fn vacuum_while_idle(&mut self) -> bool {
        self.vacuum_surplus(1)
    }

    /// Does a step for a command, and writes the log into the file, so that the log stays short on a disk
    /// with little room.
    pub(super) fn vacuum_for_command(&mut self) -> Result<VacuumStep> {
        let step = self.vacuum_step(COMMAND_STEP).and_then(|step| {
            self.write_log_into_file()?;
            Ok(step)
        });
        step.map_err(|error| self.parts.health.record_failure(error, 0))
    }

    /// Does a step if the number of free pages is at least `min_surplus` above [`FREE_PAGES_KEPT`]. Returns
    /// whether more free pages than [`FREE_PAGES_KEPT`] are left.
    fn vacuum_surplus(&mut self, min_surplus: u32) -> bool {
        self.upkeep.vacuumed_at = self.parts.clock.monotonic();
        let keeps_pages = self.parts.connection.damaged_keys().are_pages_kept();
        if self.stopped.is_some() || self.upkeep.vacuum_is_off || keeps_pages {
            return false;
        }
        let step = self.free_pages().and_then(|free| {
            let surplus = free.saturating_sub(FREE_PAGES_KEPT);
            if surplus < min_surplus {
                return Ok(None);
            }
            let limits = StepLimits { pages: surplus.min(SERVER_STEP.pages), ..SERVER_STEP };
            self.vacuum_step(limits).map(Some)
        });
        match step {
            Ok(step) => step.is_some_and(|step| step.left > FREE_PAGES_KEPT),
            Err(error) => {
                self.vacuum_failed(error);
                false
            }
        }
    }

    /// Logs a failure of a server's step. If the file is damaged, no further step is tried. If the disk is full,
    /// the next step is tried when the disk has room for a whole step.
    fn vacuum_failed(&mut self, error: Error) {
        /// The log gets each moved page, and fewer changed pages that point to it.
        const BYTES_PER_PAGE: usize = 2 * PAGE_BYTES;
        self.upkeep.vacuum_is_off = matches!(error, Error::Corrupt(_));
        let bytes = SERVER_STEP.pages as usize * BYTES_PER_PAGE;
        self.upkeep_failed(error, bytes, "free pages could not be given back to the file system");
    }

    fn vacuum_step(&mut self, limits: StepLimits) -> Result<VacuumStep> {
        // Flipped keys are restored first: they are recorded with the numbers of their pages, and a step moves
        // pages to other numbers.
        self.restore_flipped_keys();
        let clock = Arc::clone(&self.parts.clock);
        let end = clock.monotonic().saturating_add(limits.time);
        let is_marked = self.log_is_marked;
        let returned = self.transaction(|connection, _| {
            let returned = drop_last_pages(connection, limits.pages, || clock.monotonic() < end)
                .map_err(|error| connection.failure(&error, 1))?;
            // `transaction` marks the log only if rows have changed, and moving pages changes no rows. Writing
            // the mark here changes a row.
            if returned > 0 && !is_marked {
                log_mark::open(connection).map_err(|error| from_sqlite(&error))?;
            }
            Ok(returned)
        })?;
        Ok(VacuumStep { returned, left: self.free_pages()? })
    }

    /// The number of free pages in the file.
    fn free_pages(&self) -> Result<u32> {
        let connection = &self.parts.connection;
        let free = connection.pragma_query_value(None, "freelist_count", |row| row.get(0));
        free.map_err(|error| connection.failure(&error, 1))
    }

    /// Rewrites the file with only the live rows, and empties the log. Setting the flag interrupts the rewrite,
    /// which then fails.
    pub(super) fn rewrite(&mut self, is_cancelled: Arc<AtomicBool>) -> Result<()> {
        let watch = move || is_cancelled.load(Ordering::Relaxed);
        let watched = self.parts.connection.progress_handler(INSTRUCTIONS_PER_CHECK, Some(watch));
        watched.map_err(|error| from_sqlite(&error))?;
        let rewritten = self.scrub();
        let unwatched = self.parts.connection.progress_handler(0, None::<fn() -> bool>);
        rewritten.and_then(|()| unwatched.map_err(|error| from_sqlite(&error)))
    }
}

/// Gives at most `pages` free pages back, and stops when `goes_on` returns `false`. Returns the number of pages.
///
/// SQLite's statement returns a row after each page, so the statement has to be stepped to its end. A single
/// step gives back one page.
fn drop_last_pages(
    connection: &Connection,
    pages: u32,
    mut goes_on: impl FnMut() -> bool,
) -> rusqlite::Result<u32> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query(())?;
    let mut returned = 0;
    while rows.next()?.is_some() {
        returned += 1;
        if !goes_on() {
            break;
        }
    }
    Ok(returned)
}

#[cfg(test)]
mod tests;
