//! The store that a command works on, opened and closed in one place.

use std::{path::Path, sync::Arc};

use rashomon_buckets::Revisioned;
use rashomon_clock::Clock;
use rashomon_tables::{Memory, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};

use crate::{
    arguments::{StoreArguments, store_of},
    config::{GivenSettings, Settings, StoreUrl},
    errors::CommandError,
};

/// A store that is open, and the buckets in it.
#[derive(Debug)]
pub(crate) struct Store {
    buckets: Revisioned,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Memory,
    Sqlite(Arc<SqliteStore>),
}

/// Whether a store may be made where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It is made.
    Make,
    /// It is an error: who wants to look at a store has mistyped its name.
    Refuse,
}

impl Store {
    /// Opens the store of the settings.
    pub(crate) async fn open(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        absent: Absent,
    ) -> Result<Self, CommandError> {
        let (tables, backend): (Arc<dyn TableStore>, _) = match &settings.store {
            StoreUrl::Memory => (Arc::new(Memory::new(Arc::clone(&clock))), Backend::Memory),
            StoreUrl::Sqlite(directory) => {
                look(directory, absent)?;
                let store = SqliteStore::open(directory, Arc::clone(&clock), Options::default());
                let store = Arc::new(store.map_err(CommandError::Open)?);
                (Arc::clone(&store) as Arc<dyn TableStore>, Backend::Sqlite(store))
            }
        };
        let buckets = Revisioned::open(tables, clock, settings.buckets(), seed()?).await;
        match buckets {
            Ok(buckets) => Ok(Self { buckets, backend }),
            Err(error) => {
                backend.close().await;
                Err(error.into())
            }
        }
    }

    /// Opens the store for a command that is no server: what is in memory would be nobody's.
    pub(crate) async fn open_offline(
        arguments: &StoreArguments,
        clock: Arc<dyn Clock>,
        absent: Absent,
    ) -> Result<Self, CommandError> {
        let store = store_of(arguments.data.clone(), arguments.store.clone());
        let given = GivenSettings { store, ..GivenSettings::default() };
        let settings = Settings::load_offline(given, arguments.config.as_deref())?;
        if settings.store == StoreUrl::Memory {
            let message = "memory: is empty, and gone at the end: name a store with --data DIR";
            return Err(CommandError::Usage(message.to_owned()));
        }
        Self::open(&settings, clock, absent).await
    }

    /// The buckets.
    pub(crate) fn buckets(&self) -> &Revisioned {
        &self.buckets
    }

    /// The files that they are kept in, where they are.
    pub(crate) fn sqlite(&self) -> Option<Arc<SqliteStore>> {
        match &self.backend {
            Backend::Memory => None,
            Backend::Sqlite(store) => Some(Arc::clone(store)),
        }
    }

    /// Finishes what was accepted, and closes the store.
    pub(crate) async fn close(self) {
        self.backend.close().await;
    }
}

impl Backend {
    async fn close(self) {
        match self {
            Self::Memory => {}
            Self::Sqlite(store) => store.shutdown().await,
        }
    }
}

/// Whether it is a directory, or may become one.
fn look(directory: &Path, absent: Absent) -> Result<(), CommandError> {
    if directory.metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        let message =
            format!("{} is no directory, as a store is: name one with --data DIR", directory.display());
        return Err(CommandError::Usage(message));
    }
    if absent == Absent::Make {
        return Ok(());
    }
    let empty = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(source) => {
            return Err(CommandError::Io { doing: format!("cannot read {}", directory.display()), source });
        }
    };
    if empty {
        let message =
            format!("there is no store in {}: name its directory with --data DIR", directory.display());
        return Err(CommandError::Usage(message));
    }
    Ok(())
}

/// Random bits, drawn from the system.
pub(crate) fn seed() -> Result<u64, CommandError> {
    getrandom::u64().map_err(|error| CommandError::Io {
        doing: "the system gives no random numbers".to_owned(),
        source: std::io::Error::other(error),
    })
}
