//! The committer: the thread that executes all writes.
//!
//! The committer takes all waiting calls from the queue, up to a limit, and commits them as one transaction, so
//! that they share one fsync. If a call fails, the committer rolls the transaction back, and repeats it with a
//! savepoint for each call, so that no other call fails. The first attempt has no savepoints: a savepoint costs
//! a copy of each changed SQLite page, and calls hardly ever fail. The committer never waits for further calls
//! to join a transaction: during a commit the next calls queue up.

pub(crate) mod checkpointer;
mod checkpoints;
mod upkeep;
mod vacuum;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rashomon_clock::{Clock, PassedTime, give_way};
use rashomon_tables::{Error, Outage, PartitionVersions, Result, Schema, Slot, Swap};
use rusqlite::Connection;
use tokio::sync::oneshot;

pub(crate) use self::vacuum::VacuumStep;
use self::{checkpointer::RunPass, upkeep::Upkeep};
use crate::{
    Options, apply,
    audit::AuditConnection,
    call::{Change, SwapCall, Write},
    catalog::Catalog,
    definitions,
    errors::{from_sqlite, is_fatal},
    health::Health,
    log_mark,
    panics::Panics,
    queue::{Queued, closed_error},
    restore,
    span::Span,
};

/// The maximum number of calls that share a commit.
const MAX_CALLS_PER_COMMIT: usize = 64;

/// The size at which a commit takes no further calls.
const FULL_COMMIT_BYTES: usize = 4 << 20;

/// The maximum total size of the calls that wait for the committer, in KiB.
pub(crate) const QUEUED_KIB: u32 = 64 << 10;

/// The size of a call in the queue, in KiB.
pub(crate) fn weight(bytes: usize) -> u32 {
    // Each call counts at least one KiB, for its overhead.
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX).saturating_add(1)
}

/// A job for the committer.
#[derive(Debug)]
pub(crate) enum Job {
    Call(Call),
    /// Creates a table.
    Create(&'static Schema, Reply<()>),
    /// Deletes some of the expired rows.
    Sweep(Reply<usize>),
    /// Rewrites the file with only the live rows, and empties the log.
    Scrub(Reply<()>),
    /// Gives some free pages back to the file system.
    Vacuum(Reply<VacuumStep>),
    /// Writes the log into the file, and empties the log.
    EmptyLog(Reply<()>),
    /// Does the same as `Scrub`. Setting the flag cancels the rewrite, and the job then fails.
    Rewrite(Arc<AtomicBool>, Reply<()>),
    /// Restores the flipped bits of the keys on a SQLite page.
    RestoreKeys(u32, Reply<()>),
    Stop,
}

/// A job that shares a commit with others.
#[derive(Debug)]
pub(crate) enum Call {
    Write(Write, Reply<()>),
    Swap(Box<SwapCall>, Reply<Swap>),
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// The counters of the committer.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: AtomicU64,
    pub(crate) commits: AtomicU64,
    /// The total time of the transactions of calls, and the time of the longest transaction, in microseconds.
    pub(crate) commit_micros: AtomicU64,
    pub(crate) longest_commit_micros: AtomicU64,
    pub(crate) panics: Arc<Panics>,
}

/// The function that commits a transaction. Tests replace it.
pub(crate) type Commit = fn(&Connection) -> rusqlite::Result<()>;

/// Executes `COMMIT`.
pub(crate) fn commit(connection: &Connection) -> rusqlite::Result<()> {
    execute(connection, "COMMIT")
}

/// The parts from which a committer is made.
pub(crate) struct Parts {
    pub(crate) directory: PathBuf,
    pub(crate) connection: AuditConnection,
    pub(crate) queue: Receiver<Queued<Job>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) partition_versions: Arc<PartitionVersions>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) commit: Commit,
    pub(crate) pass: RunPass,
    /// Whether the mark of a lost log stays in the file, see [`Options::is_read_only_command`].
    pub(crate) keeps_log_mark: bool,
    pub(crate) health: Arc<Health>,
}

/// The state of the committer's thread.
pub(crate) struct Committer {
    parts: Parts,
    upkeep: Upkeep,
    /// The job that follows the current group of calls: it was taken off the queue, but is not a call.
    deferred_job: Option<Job>,
    /// Whether the file has a mark that this log is open. A write is acknowledged only if the mark is in the
    /// file.
    log_is_marked: bool,
    /// The error that refuses all further writes, after a failed fsync.
    stopped: Option<Error>,
}

impl Committer {
    pub(crate) fn new(mut parts: Parts) -> rusqlite::Result<Self> {
        let upkeep = Upkeep::new(&mut parts)?;
        Ok(Self { parts, upkeep, deferred_job: None, log_is_marked: false, stopped: None })
    }

    /// Runs until [`Job::Stop`]: completes the jobs that are in the queue before it, and closes the file. A
    /// panic ends only the current job: a single job, or a group of calls. All callers of this job get an error.
    pub(crate) fn run(mut self) {
        let mut wait = self.parts.options.upkeep_interval;
        let panics = Arc::clone(&self.parts.counters.panics);
        loop {
            match panics.catch("tables-write", || self.step(wait)) {
                Ok(Next::WaitFor(next)) => wait = next,
                Ok(Next::Stop) => break,
                Err(_) => {
                    roll_back(&self.parts.connection);
                    wait = self.parts.options.upkeep_interval;
                }
            }
        }
        self.close();
    }

    /// Does one job and some upkeep, or only upkeep if no job comes within `wait`.
    fn step(&mut self, wait: Duration) -> Next {
        let job = match self.deferred_job.take() {
            Some(job) => Ok(job),
            None => self.parts.queue.recv_timeout(wait).map(|queued| queued.job),
        };
        match job {
            Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => Next::Stop,
            Ok(job) => {
                self.work(job);
                self.upkeep_beside_writes();
                Next::WaitFor(self.parts.options.upkeep_interval)
            }
            Err(RecvTimeoutError::Timeout) => Next::WaitFor(self.upkeep_while_idle()),
        }
    }

    fn work(&mut self, job: Job) {
        match job {
            Job::Call(call) => self.work_group(call),
            Job::Create(schema, reply) => {
                let created = self.create(schema);
                let _ = reply.send(created);
            }
            Job::Sweep(reply) => {
                let swept = self.sweep();
                let _ = reply.send(swept);
            }
            Job::Scrub(reply) => {
                let scrubbed = self.scrub();
                let _ = reply.send(scrubbed);
            }
            Job::Vacuum(reply) => {
                let step = self.vacuum_for_command();
                let _ = reply.send(step);
            }
            Job::EmptyLog(reply) => {
                let emptied = self.empty_log();
                let _ = reply.send(emptied);
            }
            Job::Rewrite(is_cancelled, reply) => {
                let rewritten = self.rewrite(is_cancelled);
                let _ = reply.send(rewritten);
            }
            Job::RestoreKeys(page, reply) => {
                let restored = self.restore_keys(page);
                let _ = reply.send(restored);
            }
            // `step` has ended the loop already.
            Job::Stop => {}
        }
    }

    /// Commits this call, together with the calls that follow it in the queue.
    fn work_group(&mut self, first: Call) {
        let mut bytes = first.bytes();
        let mut group = vec![first];
        while group.len() < MAX_CALLS_PER_COMMIT && bytes < FULL_COMMIT_BYTES {
            match self.parts.queue.try_recv() {
                Ok(Queued { job: Job::Call(call), .. }) => {
                    bytes += call.bytes();
                    group.push(call);
                }
                Ok(Queued { job, .. }) => {
                    self.deferred_job = Some(job);
                    break;
                }
                Err(_) => break,
            }
        }
        self.commit_group(group);
    }

    fn commit_group(&mut self, group: Vec<Call>) {
        // Flipped bits of keys are restored first: on a SQLite page whose rows are out of order, SQLite could
        // write a row to a wrong place.
        self.restore_flipped_keys();
        let bytes = group.iter().map(Call::bytes).sum();
        let (passed, started) = (self.parts.clock.passed(), self.parts.clock.monotonic());
        let applied = self.transaction(|connection, touched| {
            let applied = match apply_all(connection, &group, passed) {
                Ok(applied) => applied.into_iter().map(Ok).collect(),
                Err(_) => {
                    roll_back(connection);
                    begin(connection)?;
                    apply_each(connection, &group, passed)?
                }
            };
            let done = group.iter().zip(&applied).filter(|(_, applied)| applied.is_ok());
            touched.extend(done.flat_map(|(call, _)| call.slots()));
            Ok(applied)
        });
        let took = self.parts.clock.monotonic().saturating_sub(started).as_micros() as u64;
        self.parts.counters.commit_micros.fetch_add(took, Ordering::Relaxed);
        self.parts.counters.longest_commit_micros.fetch_max(took, Ordering::Relaxed);
        self.parts.counters.calls.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.parts.counters.commits.fetch_add(1, Ordering::Relaxed);
        let health = &self.parts.health;
        match applied {
            Ok(applied) => group.into_iter().zip(applied).for_each(|(call, applied)| {
                let bytes = call.bytes();
                let applied = applied.map_err(|error| call.cause(&self.parts.connection, error));
                call.answer(applied.map_err(|error| health.record_failure(error, bytes)));
            }),
            Err(error) => {
                let causes = group.iter().map(|call| call.cause(&self.parts.connection, error.clone()));
                let mut causes = causes.filter(|cause| matches!(cause, Error::Unavailable(_)));
                let error = health.record_failure(causes.next().unwrap_or(error), bytes);
                group.into_iter().for_each(|call| call.answer(Err(error.clone())));
            }
        }
    }

    /// Restores the flipped bits of the keys on all pages that reads have reported.
    fn restore_flipped_keys(&mut self) {
        for page in self.parts.connection.damaged_keys().take_flipped() {
            if let Err(error) = self.restore_keys(page) {
                tracing::warn!(page, %error, "cannot repair flipped bits of keys");
            }
        }
    }

    fn restore_keys(&mut self, page: u32) -> Result<()> {
        let partition_versions = Arc::clone(&self.parts.partition_versions);
        let restored = self.transaction(|connection, touched| {
            let restored = restore::restore_page(connection, page)?;
            let partitions = restored.iter().filter_map(|row| row.partition.as_ref());
            touched.extend(partitions.map(|partition| partition_versions.slot(partition)));
            Ok(restored)
        });
        for row in restored.map_err(|error| self.parts.health.record_failure(error, 0))? {
            tracing::warn!(page, row = row.name, "repaired a flipped bit in the key of a row");
        }
        Ok(())
    }

    fn create(&mut self, schema: &'static Schema) -> Result<()> {
        let table = self.transaction(|connection, _| definitions::create(connection, schema));
        let table = table.map_err(|error| self.parts.health.record_failure(error, 0))?;
        self.parts.catalog.insert(table);
        Ok(())
    }

    /// Runs `changes` as one transaction, and returns when the transaction is on disk. `changes` adds the slots of the
    /// partitions that it touches to its second argument. If rows have changed and the log has no mark yet, also
    /// writes the mark into the file.
    fn transaction<T>(
        &mut self,
        changes: impl FnOnce(&AuditConnection, &mut Vec<Slot>) -> Result<T>,
    ) -> Result<T> {
        if let Some(error) = &self.stopped {
            return Err(error.clone());
        }
        let connection = &self.parts.connection;
        begin(connection)?;
        let changes_before = connection.total_changes();
        let mut slots = Vec::new();
        let mut marks = false;
        let changed = changes(connection, &mut slots).and_then(|changed| {
            marks = !self.log_is_marked && connection.total_changes() > changes_before;
            if marks {
                log_mark::open(connection).map_err(|error| from_sqlite(&error))?;
            }
            Ok(changed)
        });
        let changed = match changed {
            Ok(changed) => changed,
            Err(error) => {
                roll_back(connection);
                return Err(error);
            }
        };
        slots.sort_unstable();
        slots.dedup();
        let committed = {
            let _guard = CommitGuard::begin(&self.parts.partition_versions, &slots);
            let committed = (self.parts.commit)(connection);
            if committed.is_err() {
                roll_back(connection);
            }
            committed
        };
        committed.map_err(|error| self.write_error(&error))?;
        if marks {
            self.finish_pass()?;
            let frames = self.upkeep.checkpoints.log_frames();
            log_mark::write_into_file(&self.parts.connection, &self.parts.directory, frames)?;
            self.log_is_marked = true;
        }
        Ok(changed)
    }

    /// Returns the error of a failed commit, checkpoint or rewrite, whose outcome is unknown. After a failed fsync
    /// the outcome stays unknown permanently, so all further writes are refused.
    fn write_error(&mut self, error: &rusqlite::Error) -> Error {
        if is_fatal(error) {
            let detail =
                format!("an fsync failed, and writes are refused until the server is restarted ({error})");
            let failed = Error::Unavailable(Outage::Io { path: PathBuf::new(), detail });
            let failed = self.parts.health.record_failure(failed, 0);
            self.stopped = Some(failed.clone());
            return failed;
        }
        self.parts.connection.failure(error, 1)
    }

    /// Writes the log into the file, unless an fsync has failed. Then closes the file.
    fn close(mut self) {
        let keeps_mark = self.parts.keeps_log_mark && !self.log_is_marked;
        let ended = self.stop_passes();
        let closed = match self.stopped {
            Some(_) => ended,
            None => {
                self.upkeep.close(&self.parts.connection, keeps_mark).map_err(|error| from_sqlite(&error))
            }
        };
        if let Err(error) = closed {
            tracing::warn!(%error, "{}", unwritten_log_warning(self.stopped.is_some()));
        }
        if let Err((_, error)) = self.parts.connection.into_inner().close() {
            tracing::warn!(%error, "the file could not be closed");
        }
        // Jobs that came too late are dropped with the queue, and their callers get an error.
    }
}

/// Returns the warning that the log was not written into the file at the end.
const fn unwritten_log_warning(has_failed_fsync: bool) -> &'static str {
    if has_failed_fsync {
        "the log was not written into the file, since an fsync failed; failed writes may be stored or lost: check the disk"
    } else {
        "the log could not be written into the file; nothing is lost, since the next start reads the log"
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Wait this long for a job. If no job comes, do upkeep.
    WaitFor(Duration),
    Stop,
}

/// A commit in progress, from the view of the readers of its partitions. Dropping this value ends the commit for
/// the readers, also after a panic.
struct CommitGuard<'a> {
    partition_versions: &'a PartitionVersions,
    slots: &'a [Slot],
}

impl<'a> CommitGuard<'a> {
    fn begin(partition_versions: &'a PartitionVersions, slots: &'a [Slot]) -> Self {
        partition_versions.begin(slots);
        Self { partition_versions, slots }
    }
}

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        self.partition_versions.end(self.slots);
    }
}

impl Call {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(write, _) => write.bytes,
            Self::Swap(swap, _) => swap.bytes(),
        }
    }

    /// The slots of all partitions that the call changes.
    fn slots(&self) -> impl Iterator<Item = Slot> {
        let (batches, row) = match self {
            Self::Write(write, _) => (write, None),
            Self::Swap(swap, _) => (&swap.first, Some(swap.slot)),
        };
        batches.slots.iter().copied().chain(row)
    }

    /// Applies the changes of the call. If a change fails, the changes before it stay applied.
    fn apply(&self, connection: &AuditConnection, passed: PassedTime) -> Result<Option<Swap>> {
        // A SQLite page with a lost key must not be changed, since its rows stay out of order.
        if connection.damaged_keys().has_lost() {
            self.check_pages(connection)?;
        }
        match self {
            Self::Write(write, _) => apply::write(connection, write).map(|()| None),
            Self::Swap(swap, _) => apply::swap(connection, swap, passed).map(Some),
        }
    }

    /// Checks that the rows of all pages that the call changes are in order.
    fn check_pages(&self, connection: &AuditConnection) -> Result<()> {
        let (batches, row) = match self {
            Self::Write(write, _) => (write, None),
            Self::Swap(swap, _) => (&swap.first, Some(Span::of_key(&swap.key))),
        };
        let mut spans = batches.changes.iter().map(Change::span).chain(row);
        spans.try_for_each(|span| connection.audit(&span.start..&span.end).map(drop))
    }

    /// Returns the cause of an error of this call. If the error is damage, but the disk cannot read a page that
    /// the call changes, the cause is the error of the disk.
    fn cause(&self, connection: &AuditConnection, error: Error) -> Error {
        if !matches!(error, Error::Corrupt(_)) {
            return error;
        }
        match connection.snapshot(|| self.check_pages(connection)) {
            Err(cause @ Error::Unavailable(_)) => cause,
            _ => error,
        }
    }

    /// Sends the result to the caller, if the caller still waits.
    fn answer(self, applied: Result<Option<Swap>>) {
        match self {
            Self::Write(_, reply) => drop(reply.send(applied.map(drop))),
            Self::Swap(_, reply) => drop(reply.send(applied.and_then(|swap| swap.ok_or_else(closed_error)))),
        }
    }
}

/// Applies all calls. Stops at the first error.
fn apply_all(connection: &AuditConnection, group: &[Call], passed: PassedTime) -> Result<Vec<Option<Swap>>> {
    let apply = |call: &Call| {
        let applied = call.apply(connection, passed);
        give_way();
        applied
    };
    group.iter().map(apply).collect()
}

/// Applies each call, and undoes the calls that fail. An outer error means that the whole transaction has failed.
fn apply_each(
    connection: &AuditConnection,
    group: &[Call],
    passed: PassedTime,
) -> Result<Vec<Result<Option<Swap>>>> {
    group.iter().map(|call| savepoint(connection, || call.apply(connection, passed))).collect()
}

/// Runs a change in a savepoint. If the change fails, only this change is undone. An outer error means that the
/// whole transaction has failed.
fn savepoint<T>(connection: &Connection, change: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
    let sqlite = |error| from_sqlite(&error);
    execute(connection, "SAVEPOINT call").map_err(sqlite)?;
    let changed = change();
    match &changed {
        // A full disk or an I/O error makes SQLite roll back the whole transaction.
        Err(error) if connection.is_autocommit() => return Err(error.clone()),
        Err(_) => execute(connection, "ROLLBACK TO call").map_err(sqlite)?,
        Ok(_) => {}
    }
    execute(connection, "RELEASE call").map_err(sqlite)?;
    Ok(changed)
}

fn begin(connection: &AuditConnection) -> Result<()> {
    execute(connection, "BEGIN IMMEDIATE").map_err(|error| connection.failure(&error, 1))
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = execute(connection, "ROLLBACK")
    {
        tracing::error!(%error, "a transaction could not be rolled back");
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(()).map(drop)
}

#[cfg(test)]
mod tests;
