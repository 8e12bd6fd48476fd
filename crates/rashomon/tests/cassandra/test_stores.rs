//! Stores in the keyspaces of a test, which are dropped at its end.
#![allow(clippy::print_stderr)] // Skipped tests are reported.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use scylla::{
    client::{session::Session, session_builder::SessionBuilder},
    statement::Statement,
};

use crate::false_clock::FalseClock;

/// The variable with the address of the node for tests, `HOST:PORT`. It is `elsewhere` if another run of
/// these tests has a node.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// The variable with the path of the node's certificate, a PEM file.
const AUTHORITIES: &str = "RASHOMON_TEST_CASSANDRA_AUTHORITIES";

/// The variable with the path of a nodetool for that node.
const NODETOOL: &str = "RASHOMON_TEST_NODETOOL";

/// The variable with the folder of the node's tables and commit log.
const STORAGE: &str = "RASHOMON_TEST_CASSANDRA_STORAGE";

/// The user that a new node knows, and its password.
pub(crate) const USER: &str = "cassandra";

/// The part of a configuration with user and password.
const LOGIN: &str = "[store]\nuser = 'cassandra'\npassword_file = 'password'\n";
/// The part of a configuration with long timeouts, since a node on a busy machine is slow.
const LONG_TIMEOUTS: &str = "attempt_timeout = '10s'\nrequest_timeout = '20s'\nconnect_timeout = '20s'\n";

/// The configuration for a node that may be slow.
pub(crate) const PATIENT: &str = "patient.toml";
/// The configuration with the default timeouts.
pub(crate) const IMPATIENT: &str = "impatient.toml";

/// The part of a configuration with an archive: revisions that were superseded for an hour may be sealed.
const ARCHIVE: &str = "[archive]\nafter = '1h'\n";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// `gc_grace_seconds` of the tables, by default.
const GC_GRACE: Duration = Duration::from_secs(10 * 24 * 3600);

/// Whether the store has only one process. Here it may have several processes, so unreferenced blocks are
/// deleted later.
pub(crate) const ALONE: bool = false;

/// The text of `archive erase --status` for an erased revision.
pub(crate) const ERASED: &str =
    "deleted; the nodes' files hold the content until a compaction removes it: a full compaction after 20";

/// The time limit for dropping the tables of a keyspace.
const DROP_LIMIT: Duration = Duration::from_secs(60);

/// The address of the node. If there is no node, reports this; on the build server (`CI=true`) this is a
/// failure.
fn node() -> Option<String> {
    match std::env::var(NODE) {
        Ok(node) if node == "elsewhere" => eprintln!("skipped: {NODE} says that this runs elsewhere"),
        Ok(node) => return Some(node),
        Err(_) => skip(&format!("{NODE} names no node; `cargo xtask cassandra up --for-tests` starts one")),
    }
    None
}

/// Reports why a test is skipped. On the build server this is a failure, unless another run has the node.
fn skip(missing: &str) {
    let is = |variable, value: &str| std::env::var(variable).is_ok_and(|set| set == value);
    assert!(is(NODE, "elsewhere") || !is("CI", "true"), "{missing}");
    eprintln!("skipped: {missing}");
}

/// The path of the node's certificate, if there is one.
pub(crate) fn authorities() -> Option<PathBuf> {
    let file = std::env::var_os(AUTHORITIES).map(PathBuf::from);
    if file.is_none() {
        skip(&format!("{AUTHORITIES} names no certificate"));
    }
    file
}

/// The folder of the node's files, if it can be read.
pub(crate) fn storage() -> Option<PathBuf> {
    let folder = std::env::var_os(STORAGE).map(PathBuf::from);
    if folder.is_none() {
        skip(&format!("{STORAGE} names no folder; `cargo xtask cassandra up --for-tests` prints one"));
    }
    folder
}

/// The path of a nodetool for the node, if there is one.
pub(crate) fn nodetool_program() -> Option<PathBuf> {
    let program = std::env::var_os(NODETOOL).map(PathBuf::from);
    if program.is_none() {
        skip(&format!("{NODETOOL} names no nodetool; `cargo xtask cassandra up --for-tests` prints one"));
    }
    program
}

/// Runs nodetool on the node, and returns its output. `None`: there is no nodetool.
pub(crate) fn nodetool(arguments: &[&str]) -> Option<String> {
    let output = Command::new(nodetool_program()?).args(arguments).output().expect("nodetool starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Keyspaces of one test.
#[derive(Debug)]
pub(crate) struct TestStores {
    node: String,
    prefix: String,
    used: Mutex<BTreeSet<String>>,
    roles: Mutex<BTreeSet<String>>,
    clock: Option<FalseClock>,
}

impl TestStores {
    /// Returns `None` if there is no node.
    pub(crate) fn new(directory: &Path) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let node = node()?;
        fs::write(directory.join(IMPATIENT), LOGIN).unwrap();
        fs::write(directory.join(PATIENT), format!("{LOGIN}{LONG_TIMEOUTS}")).unwrap();
        let password = directory.join("password");
        fs::write(&password, format!("{USER}\n")).unwrap();
        fs::set_permissions(password, fs::Permissions::from_mode(0o600)).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("cli_{}_{number}", std::process::id());
        Some(Self { node, prefix, used: Mutex::default(), roles: Mutex::default(), clock: None })
    }

    /// Configures an archive for the stores, and a clock that the test advances. With several processes, a
    /// seal must wait until values have been superseded for some time.
    pub(crate) fn archive(&mut self, directory: &Path) {
        for name in [PATIENT, IMPATIENT] {
            let known = fs::read_to_string(directory.join(name)).unwrap();
            fs::write(directory.join(name), known + ARCHIVE).unwrap();
        }
        self.clock = Some(FalseClock::new(directory));
    }

    /// Whether a running import has written at least this many texts.
    pub(crate) fn has_texts(&self, _: &Path, count: usize, _: usize) -> bool {
        let keyspace = self.keyspace("data");
        ask(&self.node, async |session| {
            let texts = format!("SELECT * FROM {keyspace}.revision_content LIMIT {count}");
            // Until the keyspace and the table exist, the query is an error.
            let rows = session.query_unpaged(texts, ()).await;
            rows.is_ok_and(|rows| rows.into_rows_result().is_ok_and(|rows| rows.rows_num() >= count))
        })
    }

    /// Arguments of `archive seal` that seal all eligible revisions.
    #[allow(clippy::unused_self, reason = "a method as for SQLite")]
    pub(crate) fn sealing(&self) -> &'static [&'static str] {
        &[]
    }

    /// Advances the clock by a day.
    pub(crate) fn pass_a_day(&self) {
        self.pass(DAY);
    }

    /// Advances the clock until a failed batch can no longer take effect, and a day more.
    pub(crate) fn pass_late_writes(&self) {
        self.pass(GC_GRACE + DAY);
    }

    fn pass(&self, time: Duration) {
        self.clock.as_ref().expect("the stores have an archive").pass(time);
    }

    /// The environment variables of commands.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.clock.as_ref().map(FalseClock::environment).unwrap_or_default()
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Returns the keyspace of a store. The keyspace is dropped at the end.
    pub(crate) fn keyspace(&self, store: &str) -> String {
        let keyspace = format!("{}_{store}", self.prefix);
        self.used.lock().unwrap().insert(keyspace.clone());
        keyspace
    }

    /// Returns the name of a role. The role is dropped at the end.
    pub(crate) fn role(&self, name: &str) -> String {
        let role = format!("{}_{name}", self.prefix);
        self.roles.lock().unwrap().insert(role.clone());
        role
    }

    /// The arguments that name a store.
    pub(crate) fn arguments(&self, store: &str) -> Vec<String> {
        let url = format!("cassandra://{}/{}?replication=1", self.node, self.keyspace(store));
        ["--store", &url, "--config", PATIENT].map(str::to_owned).to_vec()
    }
}

impl Drop for TestStores {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let keyspaces = std::mem::take(&mut *self.used.lock().unwrap());
        let roles = std::mem::take(&mut *self.roles.lock().unwrap());
        let drops = (keyspaces.iter().map(|keyspace| format!("DROP KEYSPACE IF EXISTS {keyspace}")))
            .chain(roles.iter().map(|role| format!("DROP ROLE IF EXISTS {role}")));
        ask(&self.node, async |session| {
            for text in drops {
                let mut statement = Statement::new(text);
                statement.set_request_timeout(Some(DROP_LIMIT));
                session.query_unpaged(statement, ()).await.expect("keyspaces and roles are dropped");
            }
        });
    }
}

/// Queries the node directly, without the binary.
pub(crate) fn ask<T>(node: &str, questions: impl AsyncFnOnce(Session) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = SessionBuilder::new().known_node(node).user(USER, USER).build().await;
        questions(session.expect("the cluster is there")).await
    })
}
