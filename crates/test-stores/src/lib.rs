//! Stores for the tests of what stands on the table layer, so that each test is written once: for the store in
//! memory, and for Cassandra where the environment names a node.
//!
//! All tests share one keyspace of the node, where each has a namespace of its own: making tables takes longer
//! than most tests do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_tables::{Isolated, Memory, TableStore};
use rashomon_tables_cassandra::{CassandraStore, Options, Replication};
use xxhash_rust::xxh3::xxh3_64;

/// The address of a node for tests, `HOST:PORT`; `elsewhere` where another run of the tests has one.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// What all tests share.
const KEYSPACE: &str = "rashomon_tests";

/// A node on a busy machine is no cluster that one waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The node that tests stand on, if one is named.
#[must_use]
pub fn node() -> Option<String> {
    std::env::var(NODE).ok().filter(|node| node != "elsewhere")
}

/// An empty store: on the node, if one is named, else in memory.
pub async fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
    match node() {
        Some(node) => Arc::new(on(&node, namespace(), clock).await),
        None => Arc::new(Memory::new(clock)),
    }
}

/// A connection to a namespace on the node; several to one are as many processes.
///
/// # Panics
///
/// Where the node does not answer.
pub async fn on(node: &str, namespace: u64, clock: Arc<dyn Clock>) -> Isolated<CassandraStore> {
    let options = Options {
        contact_points: vec![node.to_owned()],
        keyspace: KEYSPACE.to_owned(),
        replication: Replication::Simple(1),
        attempt_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..Options::default()
    };
    let store = CassandraStore::connect(options, clock).await;
    Isolated::new(store.expect("the node takes CQL"), namespace)
}

/// A namespace that no other test has, in this run or another.
#[must_use]
pub fn namespace() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let parts = [
        NEXT.fetch_add(1, Ordering::Relaxed),
        u64::from(std::process::id()),
        SystemClock::new().now().as_micros().unsigned_abs(),
    ];
    xxh3_64(&parts.map(u64::to_be_bytes).concat())
}
