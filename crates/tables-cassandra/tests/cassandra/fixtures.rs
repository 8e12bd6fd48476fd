//! Keyspaces for tests, on the node that was given.
#![allow(clippy::print_stderr)] // What is skipped is said.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    TableStore,
    contract::{Factory, block_on},
};
use rashomon_tables_cassandra::{CassandraStore, Options, Replication};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::Statement,
};

/// The address of the node for tests, `HOST:PORT`; `elsewhere` where another run of these tests has one.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// The address of the node, if there is one. It says so plainly where there is none; on the build server
/// (`CI=true`) that is a failure.
pub(crate) fn node() -> Option<String> {
    match std::env::var(NODE) {
        Ok(node) if node == "elsewhere" => eprintln!("skipped: {NODE} says that this runs elsewhere"),
        Ok(node) => return Some(node),
        Err(_) => {
            assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{NODE} names no node");
            eprintln!("skipped: {NODE} names no node; `cargo xtask cassandra up` starts one");
        }
    }
    None
}

/// A keyspace of one test, which is dropped at its end.
pub(crate) struct Keyspace {
    node: String,
    name: String,
}

impl Keyspace {
    /// `None` where there is no node.
    pub(crate) fn new() -> Option<Self> {
        Some(Self::on(node()?))
    }

    pub(crate) fn on(node: String) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let keyspace = Self { node, name: format!("test_{}_{number}", std::process::id()) };
        // Another process of this number may have been killed.
        keyspace.drop_it();
        keyspace
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            contact_points: vec![self.node.clone()],
            keyspace: self.name.clone(),
            replication: Replication::Simple(1),
            // A node on a busy machine is no cluster that one waits for.
            attempt_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(20),
            ..Options::default()
        }
    }

    pub(crate) async fn connect(&self, clock: Arc<dyn Clock>) -> Arc<CassandraStore> {
        let store = CassandraStore::connect(self.options(), clock).await;
        Arc::new(store.expect("the cluster is there"))
    }

    /// A connection beside the store.
    pub(crate) async fn session(&self) -> Session {
        SessionBuilder::new().known_node(&self.node).build().await.expect("the cluster is there")
    }

    fn drop_it(&self) {
        let drop = format!("DROP KEYSPACE IF EXISTS {}", self.name);
        block_on(async {
            let mut statement = Statement::new(drop);
            statement.set_request_timeout(Some(Duration::from_secs(60)));
            self.session().await.query_unpaged(statement, ()).await.expect("the keyspace is dropped");
        });
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.drop_it();
        }
    }
}

#[async_trait]
impl Factory for Keyspace {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        self.connect(clock).await
    }

    async fn reopen(&self, store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        assert_eq!(Arc::strong_count(&store), 1, "somebody else holds the store");
        drop(store);
        Some(self.open(clock).await)
    }
}
