//! Stores for the tests of the layers above the table layer. A test runs on Cassandra if the environment
//! names a node, and on the store in memory otherwise.
//!
//! The tests of a process share keyspaces of the node, and the connections to these keyspaces, since creating
//! tables and logging in take longer than most tests. Each test has its own namespace in a keyspace. A keyspace
//! has few namespaces, since listing a table reads the partitions of all namespaces.
//!
//! A [`Ring`] of three nodes exists only if `cargo xtask cassandra faults` runs a test. A [`Cluster`] is a store in
//! memory for tests that need several processes on one store. Each test starts its own [`Redis`].
//!
//! # Invariants
//!
//! - A test is written once, for both stores.

mod cluster;
mod redis;
mod ring;

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, OnceLock, PoisonError,
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

/// The environment variable with the address of a node for tests: `HOST:PORT`, or `elsewhere` if another run of the
/// tests uses the node.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// The user of a new node, and the password of that user.
const USER: &str = "cassandra";

/// The timeout of requests. A node on a busy machine is slower than a production cluster.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of namespaces that share a keyspace.
const NAMESPACES_OF_A_KEYSPACE: u64 = 100;

/// The number of bits of a namespace's name, which is the lower part of the namespace's number. The upper part is
/// the number of the keyspace.
const NAME_BITS: u32 = 42;

/// The connections to the keyspaces of this process, by the numbers of the keyspaces.
type Keyspaces = Mutex<HashMap<u64, Arc<OnceCell<CassandraStore>>>>;

/// Returns the address of the node for tests, or `None` if the environment names no node.
#[must_use]
pub fn node() -> Option<String> {
    std::env::var(NODE).ok().filter(|node| node != "elsewhere")
}

/// Opens an empty store: on the node if the environment names one, otherwise in memory.
pub async fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
    match node() {
        Some(node) => Arc::new(open_namespace(&node, namespace(), clock).await),
        None => Arc::new(Memory::new(clock)),
    }
}

/// Opens a namespace on the node, for a process with this clock, over the connections that the tests share.
///
/// # Panics
///
/// If the node does not answer.
pub async fn open_namespace(node: &str, namespace: u64, clock: Arc<dyn Clock>) -> Isolated<CassandraStore> {
    static SHARED: LazyLock<Keyspaces> = LazyLock::new(Keyspaces::default);
    let (process, keyspace) = (std::process::id().into(), namespace >> NAME_BITS);
    let shared =
        Arc::clone(SHARED.lock().unwrap_or_else(PoisonError::into_inner).entry(keyspace).or_default());
    let connecting = || async {
        // The runtime of a test ends with the test, and connections end with their runtime.
        let node = node.to_owned();
        let connecting =
            async move { connect_to(&node, (process, keyspace), Arc::new(SystemClock::new())).await };
        runtime().spawn(connecting).await.expect("the node takes CQL")
    };
    Isolated::new(shared.get_or_init(connecting).await.with_clock(clock), namespace)
}

/// Opens a namespace on the node, over new connections.
///
/// # Panics
///
/// If the node does not answer.
pub async fn open_namespace_with_own_connections(
    node: &str,
    namespace: u64,
    clock: Arc<dyn Clock>,
) -> Isolated<CassandraStore> {
    open_namespace_of_process(node, std::process::id().into(), namespace, clock).await
}

/// Opens a namespace of another process on the node. `process` is the id of the other process.
///
/// # Panics
///
/// If the node does not answer.
pub async fn open_namespace_of_process(
    node: &str,
    process: u64,
    namespace: u64,
    clock: Arc<dyn Clock>,
) -> Isolated<CassandraStore> {
    Isolated::new(connect_to(node, (process, namespace >> NAME_BITS), clock).await, namespace)
}

/// Opens the first keyspace of this process on the node, over new connections.
///
/// # Panics
///
/// If the node does not answer.
pub async fn connect(node: &str, clock: Arc<dyn Clock>) -> CassandraStore {
    connect_to(node, (std::process::id().into(), 0), clock).await
}

/// Connects to a keyspace of a process.
async fn connect_to(node: &str, (process, keyspace): (u64, u64), clock: Arc<dyn Clock>) -> CassandraStore {
    let options = Options {
        contact_points: vec![node.to_owned()],
        keyspace: format!("rashomon_tests_{process}_{keyspace}"),
        replication: Replication::Simple(1),
        // The user of a new node, if the node asks for a user.
        credentials: Some(Credentials { user: USER.to_owned(), password: USER.to_owned() }),
        attempt_timeout: REQUEST_TIMEOUT / 2,
        request_timeout: REQUEST_TIMEOUT,
        connect_timeout: REQUEST_TIMEOUT,
        ..Options::default()
    };
    CassandraStore::connect(options, clock).await.expect("the node takes CQL")
}

/// Returns the runtime of the shared connections.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("a thread can be started")
    })
}

/// Returns the number of a new namespace. No other test has this number, in this run or another run.
#[must_use]
pub fn namespace() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = SystemClock::new().now().as_micros().unsigned_abs();
    let name = xxh3_64(&[next, u64::from(std::process::id()), now].map(u64::to_be_bytes).concat());
    ((next / NAMESPACES_OF_A_KEYSPACE) << NAME_BITS) | (name & ((1 << NAME_BITS) - 1))
}
