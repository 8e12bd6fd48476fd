//! Fixtures of the tests: keyspaces on the node that an environment variable names.
#![allow(clippy::print_stderr)] // Skipped tests are reported.

use std::{
    num::NonZeroU32,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_tables::{
    ColumnType, Direction, Key, Schema, SchemaBuilder, TableStore, Value,
    contract::{Factory, block_on},
};
use rashomon_tables_cassandra::{CassandraStore, Credentials, Options, Replication};
use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::Statement,
};

/// The environment variable with the address of the node for tests: `HOST:PORT`, or `elsewhere` if another run of these
/// tests has a node.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";
/// The user of a new node, and the password of that user.
const USER: &str = "cassandra";
/// The environment variable with the path of a nodetool for the node.
const NODETOOL: &str = "RASHOMON_TEST_NODETOOL";

/// The address of the node, if there is one.
pub(crate) fn node() -> Option<String> {
    match std::env::var(NODE) {
        Ok(node) if node == "elsewhere" => eprintln!("skipped: {NODE} says that this test runs elsewhere"),
        Ok(node) => return Some(node),
        Err(_) => skip(&format!("{NODE} names no node; `cargo xtask cassandra up --for-tests` starts one")),
    }
    None
}

/// Reports that a test is skipped because something is missing. On the build server this is a failure.
pub(crate) fn skip(missing: &str) {
    let on_build_server = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!on_build_server, "{missing}");
    eprintln!("skipped: {missing}");
}

/// A keyspace of one test. The keyspace is dropped when the test has succeeded.
pub(crate) struct Keyspace {
    node: String,
    name: String,
}

impl Keyspace {
    /// Chooses the name of a new keyspace on the node. `None` if there is no node.
    pub(crate) fn new() -> Option<Self> {
        Some(Self::on(node()?))
    }

    pub(crate) fn on(node: String) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Each name is used only once, so that no test finds the data of another run.
        let now = system_time().as_micros();
        Self { node, name: format!("test_{now}_{}_{number}", std::process::id()) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            contact_points: vec![self.node.clone()],
            keyspace: self.name.clone(),
            replication: Replication::Simple(1),
            // The user of a new node, if the node asks for a user.
            credentials: Some(Credentials { user: USER.to_owned(), password: USER.to_owned() }),
            // A node on a busy machine may take longer than a cluster in production.
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

    /// Opens a separate connection for the test itself.
    pub(crate) async fn session(&self) -> Session {
        SessionBuilder::new()
            .known_node(&self.node)
            .user(USER, USER)
            // A busy node takes a while to write a trace.
            .tracing_info_fetch_attempts(NonZeroU32::new(200).expect("above 0"))
            .tracing_info_fetch_interval(Duration::from_millis(50))
            .build()
            .await
            .expect("the cluster is there")
    }

    /// Runs Cassandra's nodetool on the node, and returns its output. `None` if there is no nodetool.
    pub(crate) fn nodetool(&self, arguments: &[&str]) -> Option<String> {
        let Some(nodetool) = std::env::var_os(NODETOOL) else {
            skip(&format!("{NODETOOL} names no nodetool; `cargo xtask cassandra up` prints one"));
            return None;
        };
        let output = Command::new(nodetool).args(arguments).output().expect("nodetool starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        Some(text)
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut statement = Statement::new(format!("DROP KEYSPACE IF EXISTS {}", self.name));
        statement.set_request_timeout(Some(Duration::from_secs(60)));
        block_on(async {
            self.session().await.query_unpaged(statement, ()).await.expect("the keyspace is dropped");
        });
    }
}

#[async_trait]
impl Factory for Keyspace {
    async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        self.connect(clock).await
    }

    async fn reopen(&self, store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Option<Arc<dyn TableStore>> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle of the store is in use");
        drop(store);
        Some(self.open(clock).await)
    }

    async fn upgrade(
        &self,
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        schema: &'static Schema,
    ) -> Option<Arc<dyn TableStore>> {
        drop(store);
        let store = self.connect(clock).await;
        assert!(store.upgrade(schema).await.expect("columns are added"));
        Some(store)
    }
}

/// The clock that a service uses.
pub(crate) fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// The time of [`system_clock`].
pub(crate) fn system_time() -> Timestamp {
    system_clock().now()
}

/// A table of pages with this name, for most tests.
pub(crate) fn pages(name: &'static str) -> SchemaBuilder {
    Schema::builder(name)
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("number", ColumnType::Int)
        .value("note", ColumnType::Text)
}

/// The key of a row of a [`pages`] table.
pub(crate) fn key(page: &str, rev: i64) -> Key {
    Key::new(vec![page.into()], vec![rev.into()])
}

pub(crate) fn values(number: i64) -> Vec<Option<Value>> {
    vec![Some(number.into()), Some("note".into())]
}
