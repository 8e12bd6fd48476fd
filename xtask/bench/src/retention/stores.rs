//! New stores for measurements: folders, or keyspaces of one node.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    frame::types::Consistency,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use xtask::{
    cassandra::{Node, start_for_benchmarks},
    service::Service,
};

use crate::service;

/// The kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    /// A new folder for each measurement.
    Sqlite,
    /// A new node, with a new keyspace for each measurement.
    Cassandra,
}

/// The directory or the node on which stores are made.
pub(super) enum StoreLocation {
    Folders,
    Keyspaces(Box<Cluster>),
}

/// A node, and the number of keyspaces made on it.
pub(super) struct Cluster {
    pub(super) node: Node,
    pub(super) runtime: Runtime,
    pub(super) session: Session,
    made: AtomicU32,
}

/// An empty store. Its data is deleted when it is dropped.
pub(super) struct Store<'a> {
    folder: TempDir,
    url: String,
    keyspace: Option<(&'a Cluster, String)>,
}

impl StoreLocation {
    pub(super) fn open(kind: Kind) -> Result<Self> {
        if kind == Kind::Sqlite {
            return Ok(Self::Folders);
        }
        let node = start_for_benchmarks()?;
        let runtime = Runtime::new()?;
        // Traces have two replicas by default, but the cluster has only one node.
        let profile = ExecutionProfile::builder().consistency(Consistency::One).build();
        let session = SessionBuilder::new()
            .known_node_addr(Node::address(1))
            .default_execution_profile_handle(profile.into_handle());
        let session = runtime.block_on(session.build())?;
        Ok(Self::Keyspaces(Box::new(Cluster { node, runtime, session, made: AtomicU32::new(0) })))
    }

    pub(super) fn new_store(&self) -> Result<Store<'_>> {
        let folder = service::data_folder()?;
        Ok(match self {
            Self::Folders => {
                let url = format!("sqlite:{}", folder.path().join("store").display());
                Store { folder, url, keyspace: None }
            }
            Self::Keyspaces(cluster) => {
                let keyspace = format!("retention_{}", cluster.made.fetch_add(1, Ordering::Relaxed));
                let url = format!("cassandra://{}/{keyspace}?replication=1", Node::address(1));
                Store { folder, url, keyspace: Some((cluster, keyspace)) }
            }
        })
    }
}

impl Store<'_> {
    /// Starts a server on the store, with these settings in its file.
    pub(super) fn serve(&self, binary: &Path, settings: &str) -> Result<Service> {
        let file = self.folder.path().join("settings.toml");
        fs::write(&file, settings)?;
        let config = file.to_string_lossy();
        let arguments = ["serve", "--config", &config, "--store", &self.url];
        Service::start(binary, &arguments, &self.folder.path().join("log"))
    }

    /// The cluster and the keyspace of a store on Cassandra.
    pub(super) fn keyspace(&self) -> Option<(&Cluster, &str)> {
        self.keyspace.as_ref().map(|(cluster, keyspace)| (*cluster, keyspace.as_str()))
    }
}

impl Drop for Store<'_> {
    fn drop(&mut self) {
        if let Some((cluster, keyspace)) = &self.keyspace {
            let drop = format!("DROP KEYSPACE IF EXISTS {keyspace}");
            // If this fails, the data is deleted with the node's data when the benchmark ends.
            let _ = cluster.runtime.block_on(cluster.session.query_unpaged(drop, ()));
        }
    }
}
