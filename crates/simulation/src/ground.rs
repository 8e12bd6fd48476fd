//! The stores that worlds stand on.

use std::sync::Arc;

use anyhow::{Context, Result};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Isolated, Memory};
use rashomon_tables_cassandra::CassandraStore;
use rashomon_tables_sqlite::{Options as SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::world::{AnyStore, Cluster, START};

/// Processes that there are at most: each has a connection.
const PROCESSES: usize = 3;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// In memory: alone, or as a cluster.
    Memory,
    /// SQLite, a new file for each world.
    Sqlite,
    /// The node that `RASHOMON_TEST_CASSANDRA` names.
    Cassandra,
}

impl Store {
    /// Whether only one process can work on it.
    #[must_use]
    pub fn is_alone(self) -> bool {
        self == Self::Sqlite
    }
}

/// What worlds stand on, one after another.
#[derive(Debug)]
pub enum Ground {
    /// Nothing is needed.
    Memory,
    /// Where the files lie.
    Sqlite(TempDir),
    /// A connection for each process, with its clock.
    Cassandra(Vec<(Arc<CassandraStore>, Arc<ManualClock>)>),
}

/// The way of one process to a store, and the clock that the store goes by.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<ManualClock>,
}

impl Ground {
    /// Prepares it.
    pub async fn open(store: Store) -> Result<Self> {
        match store {
            Store::Memory => Ok(Self::Memory),
            Store::Sqlite => {
                // In memory where there is such a folder: what is tested is not the disk.
                let folder = std::path::Path::new("/dev/shm");
                let folder = if folder.is_dir() { folder.to_owned() } else { std::env::temp_dir() };
                Ok(Self::Sqlite(tempfile::tempdir_in(folder)?))
            }
            Store::Cassandra => {
                let node = rashomon_test_stores::node();
                let node = node.context("no node is named: see `cargo xtask cassandra up --for-tests`")?;
                let mut ways = Vec::new();
                for _ in 0..PROCESSES {
                    let clock = Arc::new(ManualClock::new(START));
                    let store = rashomon_test_stores::connect(&node, Arc::clone(&clock) as _).await;
                    ways.push((Arc::new(store), clock));
                }
                Ok(Self::Cassandra(ways))
            }
        }
    }

    /// An empty store, and so many ways to it.
    pub(crate) fn ways(&self, processes: usize) -> Result<Vec<Way>> {
        let clock = Arc::new(ManualClock::new(START));
        let shown = || Arc::clone(&clock) as Arc<dyn Clock>;
        let store: AnyStore = match self {
            Self::Memory if processes == 1 => Arc::new(Memory::new(shown())),
            Self::Memory => Arc::new(Cluster::new(Memory::new(shown()))),
            Self::Sqlite(folder) => {
                let folder = tempfile::tempdir_in(folder.path())?.keep();
                Arc::new(SqliteStore::open(&folder, shown(), SqliteOptions::default())?)
            }
            Self::Cassandra(connections) => {
                let namespace = rashomon_test_stores::namespace();
                let way = |(store, clock): &(Arc<CassandraStore>, Arc<ManualClock>)| {
                    clock.set(START);
                    let store = Arc::new(Isolated::new(Arc::clone(store), namespace)) as AnyStore;
                    Way { store, clock: Arc::clone(clock) }
                };
                return Ok(connections.iter().take(processes).map(way).collect());
            }
        };
        Ok(vec![Way { store, clock }; processes])
    }
}
