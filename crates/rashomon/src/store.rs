//! Opens and closes the store of a command.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::configuration::{
    ArchiveState, ClusterSettings, ConfigError, RawSettings, RetentionFlags, Settings, StoreSettings,
    key_value_settings, purger, recorded_archive,
};
use rashomon_clock::{Clock, Timestamp};
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_pages::operations::AwaitedStore;
use rashomon_tables::{Error, Memory, Outage, TableStore};
use rashomon_tables_cassandra::{CassandraStore, Options as ClusterOptions};
use rashomon_tables_sqlite::{Options, SqliteStore, file_path, is_readable_by_others};
use rashomon_upstream::purges::Purger;

use crate::{
    arguments::{RetentionArguments, SealArguments, StoreArguments, store_of},
    errors::CommandError,
};

/// The time that nobody saw pass, from which on a command warns of it.
const MAX_UNSEEN: Duration = Duration::from_secs(3600);

/// An open store, and its buckets.
#[derive(Debug)]
pub(crate) struct Store {
    buckets: RevisionStore,
    key_value: KeyValueStore,
    tables: Arc<dyn TableStore>,
    backend: Backend,
    archive: ArchiveState,
    purger: Option<Purger>,
    /// Whether the store keeps the time that this process has seen pass.
    stores_seen_time: bool,
}

/// The backend of the tables.
#[derive(Debug)]
enum Backend {
    Memory,
    Sqlite(Arc<SqliteStore>),
    Cassandra(Arc<CassandraStore>),
    Awaited(Arc<AwaitedStore>),
}

/// A store to convert. It is not open, since it may be of an earlier version.
#[derive(Debug)]
pub(crate) enum StoreToUpgrade {
    /// The directory of a SQLite store.
    Sqlite(PathBuf),
    /// A cluster.
    Cassandra(CassandraStore),
}

/// The reaction of a command to a missing store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    /// The store is created.
    Create,
    /// A missing store is an error: for a command that needs stored data, the name is probably mistyped.
    Refuse,
}

impl Store {
    /// Opens the store of the settings.
    pub(crate) async fn open(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        absent: IfMissing,
    ) -> Result<Self, CommandError> {
        let (tables, backend) = Backend::open(settings, &clock, absent).await?;
        Self::from_backend(tables, backend, settings.clone(), clock).await
    }

    async fn from_backend(
        tables: Arc<dyn TableStore>,
        backend: Backend,
        mut settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let archive = backend.decide_archive(&mut settings);
        Self::with_archive(tables, backend, &settings, archive, clock).await
    }

    /// Opens the buckets. `archive`: whether the archive is on, or the error of this decision. Closes the store after
    /// this error, and if the buckets cannot be opened.
    async fn with_archive(
        tables: Arc<dyn TableStore>,
        backend: Backend,
        settings: &Settings,
        archive: Result<ArchiveState, CommandError>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let archive = match archive {
            Ok(archive) => archive,
            Err(error) => {
                backend.close().await;
                return Err(error);
            }
        };
        let mut of_buckets = settings.buckets();
        let usage = CommandError::Usage;
        // An early return drops the store. A dropped SQLite store completes its calls and closes its files.
        let purger = purger(settings, &clock).map_err(usage)?;
        let watched = match &purger {
            Some(purger) => Arc::new(purger.watch(Arc::clone(&tables))),
            None => Arc::clone(&tables),
        };
        of_buckets.retention.timeline = settings.timeline(&clock).map_err(usage)?;
        let generator = settings.generator().map_err(usage)?;
        of_buckets.retention.generator = generator.map(|generator| Arc::new(generator) as _);
        let buckets = RevisionStore::open(watched, clock, of_buckets, seed()?).await;
        match buckets {
            Ok(buckets) => {
                let records = Arc::clone(buckets.parts().records);
                let key_value = KeyValueStore::new(records, key_value_settings(settings));
                let stores_seen_time = !settings.is_read_only_command && !settings.is_read_only();
                Ok(Self { buckets, key_value, tables, backend, archive, purger, stores_seen_time })
            }
            Err(error) => {
                backend.close().await;
                Err(match error {
                    rashomon_pages::Error::Store(error) => CommandError::Open(error),
                    error @ rashomon_pages::Error::ArchiveNotConfigured => CommandError::Usage(format!(
                        "{error}: add [archive] to the configuration, so that superseded revisions are sealed \
                         instead of deleted, or remove [retention]"
                    )),
                    error => error.into(),
                })
            }
        }
    }

    /// Opens the store of a server. If a cluster does not answer, logs this, and [`Self::wait_for_failure`] keeps
    /// trying. Machines start in any order, and a server that gave up would have to be restarted.
    pub(crate) async fn open_to_serve(
        settings: &Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let error = match Self::open(settings, Arc::clone(&clock), IfMissing::Create).await {
            Err(error) if error.is_unavailable() => error,
            opened => return opened,
        };
        let StoreSettings::Cassandra(cluster) = &settings.store else { return Err(error) };
        let first_outage = match &error {
            CommandError::Open(Error::Unavailable(outage))
            | CommandError::NoCluster(Error::Unavailable(outage)) => outage.clone(),
            error => Outage::Other(error.to_string()),
        };
        tracing::error!("{error}");
        tracing::warn!("requests are answered with 503 until the store answers; trying again");
        let options = cluster_options(cluster, IfMissing::Create)?;
        let connecting = Arc::clone(&clock);
        let awaited = Arc::new(AwaitedStore::new(
            Box::new(move || {
                let (options, clock) = (options.clone(), Arc::clone(&connecting));
                Box::pin(async move {
                    let store = CassandraStore::connect(options, clock).await?;
                    Ok(Arc::new(store) as Arc<dyn TableStore>)
                })
            }),
            first_outage,
        ));
        let tables = Arc::clone(&awaited) as Arc<dyn TableStore>;
        Self::from_backend(tables, Backend::Awaited(awaited), settings.clone(), clock).await
    }

    /// Tries to reach a cluster that did not answer when the store was opened. Returns an error that waiting cannot
    /// solve. Otherwise never returns.
    pub(crate) async fn wait_for_failure(&self) -> CommandError {
        if let Backend::Awaited(awaited) = &self.backend
            && let Err(error) = awaited.find().await
        {
            return match error {
                Error::Invalid(reason) => CommandError::Usage(reason),
                error => CommandError::Open(error),
            };
        }
        std::future::pending().await
    }

    /// Opens the store for a command other than a server. Refuses a store in memory, since its content is
    /// lost with the command.
    pub(crate) async fn open_offline(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
        absent: IfMissing,
    ) -> Result<Self, CommandError> {
        Self::open(&Self::settings_offline(arguments)?, clock, absent).await
    }

    /// Opens the store for a rewrite of many values. The log of a SQLite store stays short, so that the store grows
    /// little during the rewrite.
    pub(crate) async fn open_for_rewrite(
        settings: &Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let mut settings = settings.clone();
        if let StoreSettings::Sqlite(directory) = &settings.store {
            settings.log_bytes = short_log_bytes(directory);
        }
        Self::open(&settings, clock, IfMissing::Refuse).await
    }

    /// Opens the store for a command that changes nothing.
    pub(crate) async fn open_for_reading(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let mut settings = Self::settings_offline(arguments)?;
        settings.is_read_only_command = true;
        Self::open(&settings, clock, IfMissing::Refuse).await
    }

    /// Finds the store that the arguments name, for a command that converts it. Connects to a cluster.
    pub(crate) async fn find_for_upgrade(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
    ) -> Result<StoreToUpgrade, CommandError> {
        match Self::settings_offline(arguments)?.store {
            StoreSettings::Sqlite(directory) => {
                check_directory(&directory, IfMissing::Refuse)?;
                Ok(StoreToUpgrade::Sqlite(directory))
            }
            StoreSettings::Cassandra(cluster) => {
                let options = cluster_options(&cluster, IfMissing::Refuse)?;
                let store = CassandraStore::connect(options, clock).await;
                store.map(StoreToUpgrade::Cassandra).map_err(|error| connection_error(error, &cluster))
            }
            StoreSettings::Memory => Err(CommandError::Usage("memory: has no earlier format".to_owned())),
        }
    }

    /// Returns the directory of the SQLite store that the arguments name, for a command that copies its file. Other
    /// stores have no such file. For them, `advice` says what to do instead.
    pub(crate) fn sqlite_directory(
        arguments: &StoreArguments,
        advice: &str,
    ) -> Result<PathBuf, CommandError> {
        let settings = Self::settings_offline(arguments)?;
        let directory = directory_of(&settings, advice)?;
        check_directory(directory, IfMissing::Refuse)?;
        Ok(directory.to_owned())
    }

    /// Opens only the tables of a SQLite store, for a command on its file. Other stores have no such file. For them,
    /// `advice` says what to do instead.
    pub(crate) fn open_sqlite(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
        advice: &str,
    ) -> Result<Arc<SqliteStore>, CommandError> {
        let settings = Self::settings_offline(arguments)?;
        open_directory(&settings, directory_of(&settings, advice)?, clock, IfMissing::Refuse)
    }

    /// Loads the settings for a command that opens a store and is not a server.
    pub(crate) fn settings_offline(arguments: &StoreArguments) -> Result<Settings, CommandError> {
        let store = store_of(arguments.data.clone(), arguments.store.clone());
        let raw = RawSettings { store, ..RawSettings::default() };
        let mut settings = Settings::load_offline(raw, arguments.config.as_deref())?;
        settings.accept_lost_log = arguments.accept_lost_log;
        if settings.store == StoreSettings::Memory {
            let message = "memory: is empty at the start and lost at exit: name a store with --data DIR";
            return Err(CommandError::Usage(message.to_owned()));
        }
        Ok(settings)
    }

    /// Opens the store for `rashomon retention`. The retention settings of the arguments override the configuration.
    pub(crate) async fn open_for_retention(
        arguments: &RetentionArguments,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let mut settings = Self::settings_offline(&arguments.store)?;
        let RetentionArguments { grace, min_keep, now: deletes, .. } = *arguments;
        let flags = RetentionFlags { domain: arguments.domain.as_ref(), grace, min_keep, deletes };
        if settings.archive.is_on() {
            return Err(archive_is_on_error("the configuration has [archive]"));
        }
        let mut retaining = settings.clone();
        retaining.apply_retention_flags(flags).map_err(CommandError::Usage)?;
        let (tables, backend) = Backend::open(&settings, &clock, IfMissing::Refuse).await?;
        // The flags do not count for the decision whether the archive is on.
        let archive = match backend.decide_archive(&mut settings) {
            // A record counts even if the configuration turns the archive off: later commands without this
            // configuration would find an archive whose bodies are gone.
            Ok(archive) if archive.is_on || matches!(backend.recorded_archive(), Ok(Some(true))) => {
                Err(archive_is_on_error("the archive of the store is on, as recorded when it was made"))
            }
            decided => decided,
        };
        retaining.archive = settings.archive;
        Self::with_archive(tables, backend, &retaining, archive, clock).await
    }

    /// Opens the target of a migration, and creates it if it is missing. If the source is a SQLite store, a new SQLite
    /// store records the same state of the archive as the source. If the source has recorded nothing, its archive is
    /// off unless it is configured, and the new store records that the archive is off.
    pub(crate) async fn open_target(
        arguments: &StoreArguments,
        source: &Self,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let mut settings = Self::settings_offline(arguments)?;
        settings.new_store_archive = match &source.backend {
            Backend::Sqlite(_) => Some(source.backend.recorded_archive()?.unwrap_or(false)),
            _ => None,
        };
        // The row with the time is copied from the source.
        Ok(Self { stores_seen_time: false, ..Self::open(&settings, clock, IfMissing::Create).await? })
    }

    /// Opens the store for a repair, which changes nothing except what is damaged.
    pub(crate) async fn open_for_repair(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        Ok(Self { stores_seen_time: false, ..Self::open_offline(arguments, clock, IfMissing::Refuse).await? })
    }

    /// Opens the store of an import, with its archive on if `archive` is set. Creates a missing store.
    pub(crate) async fn open_to_import(
        mut settings: Settings,
        archive: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        if archive {
            settings.enable_archive_for_sealing(None, None).map_err(CommandError::Usage)?;
        }
        Self::open(&settings, clock, IfMissing::Create).await
    }

    /// Opens the store with its archive on. The settings of the arguments override the configuration.
    pub(crate) async fn open_for_sealing(
        arguments: &SealArguments,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CommandError> {
        let mut settings = Self::settings_offline(&arguments.store)?;
        settings.enable_archive_for_sealing(arguments.after, arguments.idle).map_err(CommandError::Usage)?;
        Self::open(&settings, clock, IfMissing::Refuse).await
    }

    /// Whether the archive is on, and why.
    pub(crate) const fn archive(&self) -> ArchiveState {
        self.archive
    }

    pub(crate) fn buckets(&self) -> &RevisionStore {
        &self.buckets
    }

    /// The key-value buckets.
    pub(crate) fn key_value(&self) -> &KeyValueStore {
        &self.key_value
    }

    /// The tables below the buckets.
    pub(crate) fn tables(&self) -> Arc<dyn TableStore> {
        Arc::clone(&self.tables)
    }

    /// The purger, which sends purges to HTTP caches, if caches are configured.
    pub(crate) fn purger(&self) -> Option<&Purger> {
        self.purger.as_ref()
    }

    /// The SQLite store, if the tables are in one.
    pub(crate) fn sqlite(&self) -> Option<Arc<SqliteStore>> {
        match &self.backend {
            Backend::Sqlite(store) => Some(Arc::clone(store)),
            _ => None,
        }
    }

    /// The cluster, if the tables are in one that answered when the store was opened.
    pub(crate) fn cluster(&self) -> Option<&CassandraStore> {
        match &self.backend {
            Backend::Cassandra(store) => Some(store),
            _ => None,
        }
    }

    /// Takes the clock of this machine for right if `trusts_clock` is set. Otherwise warns if the clock is ahead of the
    /// time that the processes of this store have seen pass. For commands that delete by the time.
    pub(crate) fn check_clock(&self, clock: &dyn Clock, trusts_clock: bool) {
        if trusts_clock {
            clock.trust();
        }
        let passed = clock.passed();
        if passed.unconfirmed() > MAX_UNSEEN && passed.seen() > Timestamp::EPOCH {
            tracing::warn!(
                unseen = ?Duration::from_secs(passed.unconfirmed().as_secs()),
                "no process of this store has seen the last time pass, so perhaps the clock was set: stored values \
                 count as so much younger. If the clock of this machine is right, give --trust-clock"
            );
        }
    }

    /// Completes accepted writes, and closes the store.
    pub(crate) async fn close(self) {
        if self.stores_seen_time
            && let Err(error) = self.buckets.parts().records.store_seen_time(true).await
        {
            tracing::debug!(%error, "cannot store the time that has passed");
        }
        self.backend.close().await;
    }
}

impl Backend {
    async fn open(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        absent: IfMissing,
    ) -> Result<(Arc<dyn TableStore>, Self), CommandError> {
        Ok(match &settings.store {
            StoreSettings::Memory => (Arc::new(Memory::new(Arc::clone(clock))), Self::Memory),
            StoreSettings::Sqlite(directory) => {
                let store = open_directory(settings, directory, Arc::clone(clock), absent)?;
                (Arc::clone(&store) as Arc<dyn TableStore>, Self::Sqlite(store))
            }
            StoreSettings::Cassandra(cluster) => {
                let options = cluster_options(cluster, absent)?;
                let store = CassandraStore::connect(options, Arc::clone(clock)).await;
                let store = Arc::new(store.map_err(|error| connection_error(error, cluster))?);
                (Arc::clone(&store) as Arc<dyn TableStore>, Self::Cassandra(store))
            }
        })
    }

    /// Whether the archive of the store is on, as the store has recorded. Only SQLite stores record this.
    fn recorded_archive(&self) -> Result<Option<bool>, CommandError> {
        let Self::Sqlite(store) = self else { return Ok(None) };
        recorded_archive(store.properties()).map_err(|what| CommandError::Open(Error::Unsupported(what)))
    }

    /// Decides whether the archive is on, and completes the settings.
    fn decide_archive(&self, settings: &mut Settings) -> Result<ArchiveState, CommandError> {
        settings.decide_archive(self.recorded_archive()?).map_err(CommandError::Usage)
    }

    async fn close(self) {
        match self {
            Self::Sqlite(store) => store.shutdown().await,
            // A cluster need not be closed to keep acknowledged writes.
            Self::Memory | Self::Cassandra(_) | Self::Awaited(_) => {}
        }
    }
}

/// Returns the size of a short log: a sixtieth of the size of the file, but at least 1 MiB. `None` if this is not
/// below the default size.
fn short_log_bytes(directory: &Path) -> Option<u64> {
    let file_bytes = file_path(directory).metadata().map_or(0, |file| file.len());
    Some((file_bytes / 60).max(1 << 20)).filter(|bytes| *bytes < Options::default().log_bytes)
}

fn open_directory(
    settings: &Settings,
    directory: &Path,
    clock: Arc<dyn Clock>,
    absent: IfMissing,
) -> Result<Arc<SqliteStore>, CommandError> {
    check_directory(directory, absent)?;
    let Settings { accept_lost_log, is_read_only_command, .. } = *settings;
    let new_properties = settings.new_store_properties();
    let mut options = Options { accept_lost_log, is_read_only_command, new_properties, ..Options::default() };
    options.log_bytes = settings.log_bytes.unwrap_or(options.log_bytes);
    SqliteStore::open(directory, clock, options).map(Arc::new).map_err(CommandError::Open)
}

/// Returns a warning if every local user may read the SQLite store of the settings.
pub(crate) fn store_is_open_to_others(store: &StoreSettings) -> Option<String> {
    let StoreSettings::Sqlite(directory) = store else { return None };
    is_readable_by_others(directory).then(|| {
        let directory = directory.display();
        format!("every local user may read the store in {directory}: run `chmod -R go= {directory}`")
    })
}

/// Whether the settings name a SQLite store that does not exist yet.
pub(crate) fn is_missing(store: &StoreSettings) -> bool {
    matches!(store, StoreSettings::Sqlite(directory) if matches!(SqliteStore::is_in(directory), Ok(false)))
}

/// The error of `rashomon retention` on a store whose archive is on.
fn archive_is_on_error(why: &str) -> CommandError {
    CommandError::Usage(format!("retention deletes nothing, since {why}: use `rashomon archive seal`"))
}

fn cluster_options(cluster: &ClusterSettings, absent: IfMissing) -> Result<ClusterOptions, ConfigError> {
    let options = cluster.read_options(|warning| tracing::warn!("{warning}"))?;
    Ok(ClusterOptions { create: absent == IfMissing::Create, ..options })
}

fn connection_error(error: Error, cluster: &ClusterSettings) -> CommandError {
    match error {
        // The settings are valid, so they do not fit this cluster.
        Error::Invalid(reason) => CommandError::Usage(format!("{}: {reason}", cluster.url())),
        error @ Error::Unavailable(_) => CommandError::NoCluster(error),
        error => CommandError::Open(error),
    }
}

/// Returns the directory of a SQLite store. For another store, `advice` is the end of the error.
fn directory_of<'s>(settings: &'s Settings, advice: &str) -> Result<&'s Path, CommandError> {
    let store = match &settings.store {
        StoreSettings::Sqlite(directory) => return Ok(directory),
        StoreSettings::Cassandra(cluster) => cluster.url().to_string(),
        StoreSettings::Memory => "memory:".to_owned(),
    };
    Err(CommandError::Usage(format!("{store} is not a SQLite store: {advice}")))
}

/// Checks that the directory has a store. If a missing store is created, checks only that the path is not a file.
fn check_directory(directory: &Path, absent: IfMissing) -> Result<(), CommandError> {
    if directory.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        let message = format!(
            "{} is not a directory: name the directory of a store with --data DIR",
            directory.display()
        );
        return Err(CommandError::Usage(message));
    }
    if absent == IfMissing::Create {
        return Ok(());
    }
    match SqliteStore::is_in(directory) {
        Ok(true) => Ok(()),
        Ok(false) => Err(CommandError::Usage(format!(
            "there is no store in {}: name its directory with --data DIR",
            directory.display()
        ))),
        Err(source) => {
            Err(CommandError::Io { doing: format!("cannot read {}", directory.display()), source })
        }
    }
}

/// Draws a random seed from the operating system.
pub(crate) fn seed() -> Result<u64, CommandError> {
    getrandom::u64().map_err(|error| CommandError::Io {
        doing: "cannot get random numbers from the operating system".to_owned(),
        source: std::io::Error::other(error),
    })
}
