//! Stores for the tests of what stands on the table layer, so that each test is written once: for the store in
//! memory, and for Cassandra where the environment names a node.
//!
//! The tests of one process share a keyspace of the node, where each has a namespace of its own, and its
//! connections: making tables takes longer than most tests do, and so does logging in. Those of another process
//! have another one, since whoever lists a table goes through what all have left in it.
//!
//! A [`Ring`] of three nodes is there where `cargo xtask cassandra faults` runs a test. Where a test needs several
//! processes on one store, [`Cluster`] makes one in memory. A Redis each test starts for itself.

mod cluster;
mod redis;
mod ring;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rashomon_clock::{Clock, SystemClock};
use rashomon_tables::{Isolated, Memory, TableStore};
use rashomon_tables_cassandra::{CassandraStore, Credentials, Options, Replication};
use tokio::{runtime::Runtime, sync::OnceCell};
use xxhash_rust::xxh3::xxh3_64;

pub use self::{cluster::Cluster, redis::Redis, ring::Ring};

/// The address of a node for tests, `HOST:PORT`; `elsewhere` where another run of the tests has one.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// The user that a new node knows, and its password.
const USER: &str = "cassandra";

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

/// A namespace on the node, as a process with this clock has it; over the connections that all tests share.
///
/// # Panics
///
/// Where the node does not answer.
pub async fn on(node: &str, namespace: u64, clock: Arc<dyn Clock>) -> Isolated<CassandraStore> {
    static SHARED: OnceCell<CassandraStore> = OnceCell::const_new();
    let connecting = || async {
        // The runtime of a test ends with it, and connections end with their runtime.
        let node = node.to_owned();
        let connecting = async move { connect(&node, Arc::new(SystemClock::new())).await };
        runtime().spawn(connecting).await.expect("the node takes CQL")
    };
    Isolated::new(SHARED.get_or_init(connecting).await.beside(clock), namespace)
}

/// A namespace on the node, over connections of its own.
///
/// # Panics
///
/// Where the node does not answer.
pub async fn apart_on(node: &str, namespace: u64, clock: Arc<dyn Clock>) -> Isolated<CassandraStore> {
    Isolated::new(connect(node, clock).await, namespace)
}

/// The keyspace of this process on the node, over connections of their own.
///
/// # Panics
///
/// Where the node does not answer.
pub async fn connect(node: &str, clock: Arc<dyn Clock>) -> CassandraStore {
    let options = Options {
        contact_points: vec![node.to_owned()],
        keyspace: format!("rashomon_tests_{}", std::process::id()),
        replication: Replication::Simple(1),
        // What a new node has, if it asks at all.
        credentials: Some(Credentials { user: USER.to_owned(), password: USER.to_owned() }),
        attempt_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        ..Options::default()
    };
    CassandraStore::connect(options, clock).await.expect("the node takes CQL")
}

/// What the shared connections live in.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a thread can be started")
    })
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
