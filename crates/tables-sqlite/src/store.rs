//! The store: implements [`TableStore`] with the threads that read and the thread that writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    Batch, Cursor, Error, Key, Outage, Page, Partition, PartitionVersions, Read, Result, Row, Scan, Schema,
    Swap, TableStore, Walk, WalkPage,
};
use tokio::sync::oneshot;

use crate::{
    Options,
    audit::{self, AuditConnection},
    call::{SwapCall, Write},
    catalog::Catalog,
    committer::{
        self, Call, Commit, Committer, Counters, Job, Parts, QUEUED_KIB, Reply,
        checkpointer::{self, RunPass},
    },
    damaged_keys::DamagedKeys,
    errors::{from_sqlite, with_path},
    file,
    health::Health,
    lock::DirectoryLock,
    log_mark,
    panics::panic_error,
    queue::{Queue, closed_error},
    read,
    readers::Readers,
    reserve, span,
};

/// A store in a directory of this machine. While the store is open, no other process can open it.
///
/// Dropping a store completes accepted calls and closes the store; this blocks the thread.
/// [`SqliteStore::shutdown`] does the same without blocking, even while the store has other owners.
pub struct SqliteStore {
    directory: PathBuf,
    options: Options,
    properties: BTreeMap<String, String>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
    partition_versions: Arc<PartitionVersions>,
    counters: Arc<Counters>,
    health: Arc<Health>,
    damaged_keys: Arc<DamagedKeys>,
    workers: Arc<Workers>,
}

/// The queues and the threads. The store shares them with the task of a shutdown, which ends the threads.
struct Workers {
    readers: Readers,
    writes: Queue<Job>,
    running: Mutex<Option<RunningThreads>>,
}

/// The handles of the threads, and the lock of the directory. They exist until the store is closed.
struct RunningThreads {
    readers: Vec<JoinHandle<()>>,
    committer: JoinHandle<()>,
    directory: PathBuf,
    _lock: DirectoryLock,
}

impl SqliteStore {
    /// Whether a directory has the file of a store. The content of the file is not checked.
    ///
    /// # Errors
    ///
    /// An error if the directory cannot be read.
    pub fn is_in(directory: &Path) -> io::Result<bool> {
        crate::file::path(directory).try_exists()
    }

    /// Whether the store in a directory has an earlier format, which [`crate::upgrade()`] converts.
    ///
    /// `Unsupported` if the directory has no store, or a store of a version that this program does not know.
    pub fn needs_upgrade(directory: &Path) -> Result<bool> {
        Ok(file::format_of(&file::path(directory))? < file::FORMAT_VERSION)
    }

    /// Opens the store in this directory. Creates the directory and the store if they do not exist.
    ///
    /// `Unavailable` if another process has the store open (the error names the process), or if a restore into the
    /// directory has not finished. `Unsupported` if the file is not a store, or has another format version; the file is
    /// then not changed. `Corrupt` if the log of the store is missing or damaged, unless
    /// [`Options::accept_lost_log`] is set.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, options: Options) -> Result<Self> {
        Self::open_with(directory, clock, options, committer::commit)
    }

    pub(crate) fn open_with(
        directory: &Path,
        clock: Arc<dyn Clock>,
        options: Options,
        commit: Commit,
    ) -> Result<Self> {
        Self::open_with_pass(directory, clock, options, commit, checkpointer::pass)
    }

    pub(crate) fn open_with_pass(
        directory: &Path,
        clock: Arc<dyn Clock>,
        options: Options,
        commit: Commit,
        pass: RunPass,
    ) -> Result<Self> {
        Self::open_file(directory, clock, options, (commit, pass))
            .map_err(|error| with_path(&file::path(directory), error))
    }

    fn open_file(
        directory: &Path,
        clock: Arc<dyn Clock>,
        options: Options,
        (commit, pass): (Commit, RunPass),
    ) -> Result<Self> {
        file::check_format(directory)?;
        file::create_directory(directory)?;
        let lock = DirectoryLock::take(directory)?;
        let log_is_lost = log_mark::check(directory, options.accept_lost_log)?;
        let (connection, full) = reserve::open(directory, || {
            let connection = file::open_writer(directory, &options)?;
            audit::check_page_access(&connection)?;
            Ok(connection)
        })?;
        let properties = file::properties(&connection).map_err(|error| from_sqlite(&error))?;
        let counters = Arc::new(Counters::default());
        let damaged_keys = Arc::new(DamagedKeys::default());
        let (readers, reader_threads) =
            Readers::start(directory, &options, Arc::clone(&counters.panics), &damaged_keys)?;
        let (writes, queue) = Queue::new(QUEUED_KIB);
        let catalog = Arc::new(Catalog::default());
        let partition_versions = Arc::new(PartitionVersions::new());
        let health = Arc::new(Health::new(directory));
        match full {
            // Only a disk with more room counts as writable again.
            Some(outage) => health.record_outage(outage, 0),
            None => reserve::keep(directory),
        }
        let committer = Committer::new(Parts {
            directory: directory.to_owned(),
            connection: AuditConnection::sharing(connection, Arc::clone(&damaged_keys)),
            queue,
            clock: Arc::clone(&clock),
            options: options.clone(),
            catalog: Arc::clone(&catalog),
            partition_versions: Arc::clone(&partition_versions),
            counters: Arc::clone(&counters),
            commit,
            pass,
            keeps_log_mark: log_is_lost && options.is_read_only_command,
            health: Arc::clone(&health),
        });
        let committer = committer.map_err(|error| from_sqlite(&error))?;
        let committer = std::thread::Builder::new()
            .name("tables-write".to_owned())
            .spawn(move || committer.run())
            .map_err(|error| Error::unavailable(format!("cannot start the thread for writes: {error}")))?;
        let running = RunningThreads {
            readers: reader_threads,
            committer,
            directory: directory.to_owned(),
            _lock: lock,
        };
        let workers = Arc::new(Workers { readers, writes, running: Mutex::new(Some(running)) });
        let directory = directory.to_owned();
        Ok(Self {
            directory,
            options,
            properties,
            clock,
            catalog,
            partition_versions,
            counters,
            health,
            damaged_keys,
            workers,
        })
    }

    /// The directory of the store.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The properties of the store, by name. They were written when the store was created, and do not change. A
    /// store that an earlier version of this program created has none. Only the caller knows their meaning.
    #[must_use]
    pub const fn properties(&self) -> &BTreeMap<String, String> {
        &self.properties
    }

    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn damaged_keys(&self) -> &DamagedKeys {
        &self.damaged_keys
    }

    /// Restores the flipped bits of the keys on a page.
    pub(crate) async fn restore_keys(&self, page: u32) -> Result<()> {
        self.ask(1, |reply| Job::RestoreKeys(page, reply)).await
    }

    /// Completes accepted calls and closes the store. Later calls are `Unavailable`. Another call of this
    /// function waits until the store is closed.
    pub async fn shutdown(&self) {
        let workers = Arc::clone(&self.workers);
        // A panic of a thread was reported when it happened.
        let _ = tokio::task::spawn_blocking(move || workers.close()).await;
    }

    /// Closes the store. Dropping the store does the same.
    pub fn close(self) {
        drop(self);
    }

    /// Deletes some of the rows that have expired, at most [`Options::sweep_rows`], and returns their number.
    /// The store also does so by itself, see [`Options::upkeep_interval`].
    pub async fn sweep(&self) -> Result<usize> {
        self.ask(1, Job::Sweep).await
    }

    /// The number of writing calls so far, and the number of their commits.
    #[must_use]
    pub fn calls_and_commits(&self) -> (u64, u64) {
        (self.counters.calls.load(Ordering::Relaxed), self.counters.commits.load(Ordering::Relaxed))
    }

    /// The total time that the commits of writing calls took, and the longest of them since the last call of
    /// [`Self::take_longest_commit`]. Other calls wait during a commit.
    #[must_use]
    pub fn commit_times(&self) -> (Duration, Duration) {
        let of = |micros: &AtomicU64| Duration::from_micros(micros.load(Ordering::Relaxed));
        (of(&self.counters.commit_micros), of(&self.counters.longest_commit_micros))
    }

    /// Returns the time of the longest commit of writing calls since the last call of this function. This is for
    /// measurements.
    #[must_use]
    pub fn take_longest_commit(&self) -> Duration {
        Duration::from_micros(self.counters.longest_commit_micros.swap(0, Ordering::Relaxed))
    }

    /// The number of panics on the store's threads. A panic ends the current job, but not the thread.
    #[must_use]
    pub fn thread_panics(&self) -> u64 {
        self.counters.panics.count()
    }

    /// Runs a read on one of the connections: for tests of the threads.
    #[cfg(test)]
    pub(crate) async fn read_with<T: Send + 'static>(
        &self,
        read: impl FnOnce(&crate::audit::AuditConnection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.workers.readers.read(read).await
    }

    /// Sends a job to the committer, and waits for its answer.
    pub(crate) async fn ask<T>(&self, weight: u32, job: impl FnOnce(Reply<T>) -> Job) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.workers.writes.push(job(reply), weight).await?;
        // The job was dropped because the thread panicked, or because the store was closed before.
        let dropped =
            |_| if self.workers.writes.is_closed() { closed_error() } else { panic_error("see the log") };
        answer.await.map_err(dropped)?.map_err(|error| self.with_path(error))
    }

    /// Adds the path of the file to the error.
    pub(crate) fn with_path(&self, error: Error) -> Error {
        with_path(&file::path(&self.directory), error)
    }
}

impl Workers {
    /// Stops the threads. Stops the readers first, so that no reader delays the last checkpoint.
    fn close(&self) {
        // The mutex stays locked until the end, so that a second caller waits for the first.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(RunningThreads { readers, committer, directory, _lock }) = running.take() else { return };
        self.readers.stop();
        self.writes.close();
        for reader in readers {
            let _ = reader.join();
        }
        self.writes.push_last(Job::Stop);
        let _ = committer.join();
        // The log is deleted, which leaves room on a disk that was full when the store was opened.
        reserve::keep(&directory);
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.workers.close();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableStore for SqliteStore {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.ask(1, |reply| Job::Create(schema, reply)).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        table.check_key(key)?;
        let table = self.catalog.get(table)?;
        let slot = self.partition_versions.slot(&key.partition);
        let (clock, key) = (Arc::clone(&self.clock), key.clone());
        let row =
            self.workers.readers.read(move |connection| read::get(connection, table, &key, clock.passed()));
        let row = row.await.map_err(|error| self.with_path(error))?;
        self.partition_versions.wait_committed(slot).await;
        Ok(row)
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let table = self.catalog.get(table)?;
        let slot = self.partition_versions.slot(&scan.partition);
        let clock = Arc::clone(&self.clock);
        let page =
            self.workers.readers.read(move |connection| read::scan(connection, table, &scan, clock.passed()));
        let page = page.await.map_err(|error| self.with_path(error))?;
        self.partition_versions.wait_committed(slot).await;
        Ok(page)
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        let mut slots = BTreeSet::new();
        let mut checked = Vec::with_capacity(reads.len());
        for read in reads {
            match &read {
                Read::Get(table, key) => table.check_key(key)?,
                Read::Scan(table, scan) => scan.check(table)?,
            }
            slots.insert(self.partition_versions.slot(read.partition()));
            checked.push((self.catalog.get(read.table())?, read));
        }
        let clock = Arc::clone(&self.clock);
        let pages =
            self.workers.readers.read(move |connection| read::read(connection, &checked, clock.passed()));
        let pages = pages.await.map_err(|error| self.with_path(error))?;
        for slot in slots {
            self.partition_versions.wait_committed(slot).await;
        }
        Ok(pages)
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let table = self.catalog.get(table)?;
        let clock = Arc::clone(&self.clock);
        self.workers
            .readers
            .read(move |connection| {
                read::partitions(connection, table, after.as_ref(), limit, clock.passed())
            })
            .await
            .map_err(|error| self.with_path(error))
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        walk.check()?;
        let tables = walk.tables.iter().map(|table| self.catalog.get(table)).collect::<Result<Vec<_>>>()?;
        let clock = Arc::clone(&self.clock);
        self.workers
            .readers
            .read(move |connection| read::walk(connection, tables, &walk, clock.passed()))
            .await
            .map_err(|error| self.with_path(error))
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let write = Write::new(&self.catalog, &self.partition_versions, first.iter().chain([&then]))?;
        if write.changes.is_empty() {
            return Ok(());
        }
        self.ask(committer::weight(write.bytes), |reply| Job::Call(Call::Write(write, reply))).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        self.ask(1, Job::Scrub).await.map(|()| None)
    }

    async fn late_write_window(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        Swap::check(table, key, expected, new.as_ref())?;
        let table = self.catalog.get(table)?;
        let swap = SwapCall {
            first: Write::new(&self.catalog, &self.partition_versions, first.iter())?,
            table,
            name: key.clone(),
            key: span::row_key(table, &key.partition, &key.clustering),
            expected: expected.map(|row| row.values.clone()),
            slot: self.partition_versions.slot(&key.partition),
            new,
        };
        self.ask(committer::weight(swap.bytes()), |reply| Job::Call(Call::Swap(Box::new(swap), reply))).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        Some(&self.partition_versions)
    }

    fn outage(&self) -> Option<Outage> {
        self.health.outage()
    }
}
