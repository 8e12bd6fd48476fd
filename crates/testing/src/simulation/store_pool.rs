//! Opens the stores on which worlds run.

use std::sync::Arc;

use crate::stores::Cluster;
use anyhow::{Context, Result};
use rashomon_clock::Clock;
use rashomon_tables::{Isolated, Memory, TableStore};
use rashomon_tables_cassandra::CassandraStore;
use rashomon_tables_sqlite::{Options as SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::simulation::{setup::START, store_clock::StoreClock};

/// The store below all wrappers, of any kind.
pub(crate) type AnyStore = Arc<dyn TableStore>;

/// The maximum number of processes. Each has a connection.
const PROCESSES: usize = 3;

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// In memory: for one process, or as a cluster.
    Memory,
    /// SQLite: each world has a new file.
    Sqlite,
    /// The Cassandra node that `RASHOMON_TEST_CASSANDRA` names.
    Cassandra,
}

impl Store {
    /// Whether only one process can use the store.
    #[must_use]
    pub fn is_alone(self) -> bool {
        self == Self::Sqlite
    }
}

/// The resources from which the worlds of a run open their stores, one world after another.
#[derive(Debug)]
pub enum StorePool {
    /// The store in memory needs nothing.
    Memory,
    /// The directory of the files.
    Sqlite(TempDir),
    /// A connection for each process, with its clock.
    Cassandra(Vec<(Arc<CassandraStore>, Arc<StoreClock>)>),
}

/// The access of one process to a store, and the clock that the store uses.
#[derive(Debug, Clone)]
pub(crate) struct StoreAccess {
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<StoreClock>,
}

impl StorePool {
    /// Prepares stores of a kind.
    pub async fn open(store: Store) -> Result<Self> {
        match store {
            Store::Memory => Ok(Self::Memory),
            Store::Sqlite => {
                // Use a folder in memory if there is one: the disk is not under test.
                let folder = std::path::Path::new("/dev/shm");
                let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
                Ok(Self::Sqlite(tempfile::tempdir_in(folder)?))
            }
            Store::Cassandra => {
                let node = crate::stores::node();
                let node = node.context(
                    "RASHOMON_TEST_CASSANDRA names no node: `cargo xtask cassandra up --for-tests` starts one",
                )?;
                let mut connections = Vec::new();
                for _ in 0..PROCESSES {
                    let clock = Arc::new(StoreClock::new());
                    let store = crate::stores::connect(&node, Arc::clone(&clock) as _).await;
                    connections.push((Arc::new(store), clock));
                }
                Ok(Self::Cassandra(connections))
            }
        }
    }

    /// Returns the access of each of this many processes to a new, empty store.
    pub(crate) fn accesses(&self, processes: usize) -> Result<Vec<StoreAccess>> {
        let clock = Arc::new(StoreClock::new());
        let shown = || Arc::clone(&clock) as Arc<dyn Clock>;
        let store: AnyStore = match self {
            Self::Memory if processes == 1 => Arc::new(Memory::new(shown())),
            Self::Memory => Arc::new(Cluster::new(Memory::new(shown()))),
            Self::Sqlite(folder) => {
                let folder = tempfile::tempdir_in(folder.path())?.keep();
                Arc::new(SqliteStore::open(&folder, shown(), SqliteOptions::default())?)
            }
            Self::Cassandra(connections) => {
                let namespace = crate::stores::namespace();
                let access = |(store, clock): &(Arc<CassandraStore>, Arc<StoreClock>)| {
                    clock.show(START);
                    let store = Arc::new(Isolated::new(Arc::clone(store), namespace)) as AnyStore;
                    StoreAccess { store, clock: Arc::clone(clock) }
                };
                return Ok(connections.iter().take(processes).map(access).collect());
            }
        };
        Ok(vec![StoreAccess { store, clock }; processes])
    }
}
