//! Stores in keyspaces of the test's own, which are dropped at its end.
#![allow(clippy::print_stderr)] // What is skipped is said.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
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

/// In which a dump of some megabytes is half imported.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(5);

/// The address of the node for tests, `HOST:PORT`; `elsewhere` where another run of these tests has one.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// The user that a new node knows, and its password.
const USER: &str = "cassandra";

/// What a configuration says of who asks.
const LOGIN: &str = "[store]\nuser = 'cassandra'\npassword_file = 'password'\n";
/// A node on a busy machine is no cluster that one waits for.
const PATIENCE: &str = "attempt_timeout = '10s'\nrequest_timeout = '20s'\nconnect_timeout = '20s'\n";

/// The configuration for a cluster that is there, slow as it may be.
const PATIENT: &str = "patient.toml";
/// The configuration with the timeouts that there are without one.
pub(crate) const IMPATIENT: &str = "impatient.toml";

/// Dropping thirteen tables takes its time.
const DROP_LIMIT: Duration = Duration::from_secs(60);

/// The address of the node, if there is one. It says so plainly where there is none; on the build server
/// (`CI=true`) that is a failure.
fn node() -> Option<String> {
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

/// Keyspaces of one test.
#[derive(Debug)]
pub(crate) struct Kept {
    node: String,
    prefix: String,
    used: Mutex<BTreeSet<String>>,
}

impl Kept {
    /// `None` where there is no node.
    pub(crate) fn new(directory: &Path) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let node = node()?;
        fs::write(directory.join(IMPATIENT), LOGIN).unwrap();
        fs::write(directory.join(PATIENT), format!("{LOGIN}{PATIENCE}")).unwrap();
        let password = directory.join("password");
        fs::write(&password, format!("{USER}\n")).unwrap();
        fs::set_permissions(password, fs::Permissions::from_mode(0o600)).unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("cli_{}_{number}", std::process::id());
        Some(Self { node, prefix, used: Mutex::default() })
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The keyspace of a store; it is dropped at the end.
    pub(crate) fn keyspace(&self, store: &str) -> String {
        let keyspace = format!("{}_{store}", self.prefix);
        self.used.lock().unwrap().insert(keyspace.clone());
        keyspace
    }

    /// What names a store on the command line.
    pub(crate) fn arguments(&self, store: &str) -> Vec<String> {
        let url = format!("cassandra://{}/{}?replication=1", self.node, self.keyspace(store));
        ["--store", &url, "--config", PATIENT].map(str::to_owned).to_vec()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let used = std::mem::take(&mut *self.used.lock().unwrap());
        ask(&self.node, async |session| {
            for keyspace in used {
                let mut statement = Statement::new(format!("DROP KEYSPACE IF EXISTS {keyspace}"));
                statement.set_request_timeout(Some(DROP_LIMIT));
                session.query_unpaged(statement, ()).await.expect("the keyspace is dropped");
            }
        });
    }
}

/// Asks the node past the binary.
pub(crate) fn ask<T>(node: &str, questions: impl AsyncFnOnce(Session) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let session = SessionBuilder::new().known_node(node).user(USER, USER).build().await;
        questions(session.expect("the cluster is there")).await
    })
}
