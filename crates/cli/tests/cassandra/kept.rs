//! Stores in keyspaces of the test's own, which are dropped at its end.
#![allow(clippy::print_stderr)] // What is skipped is said.

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

/// In which a dump of some megabytes is half imported.
pub(crate) const A_MOMENT: Duration = Duration::from_secs(5);

/// The address of the node for tests, `HOST:PORT`; `elsewhere` where another run of these tests has one.
const NODE: &str = "RASHOMON_TEST_CASSANDRA";

/// A PEM file with the certificate of the node.
const AUTHORITIES: &str = "RASHOMON_TEST_CASSANDRA_AUTHORITIES";

/// The path of a nodetool for that node.
const NODETOOL: &str = "RASHOMON_TEST_NODETOOL";

/// The folder in which that node has its tables and its commit log.
const STORAGE: &str = "RASHOMON_TEST_CASSANDRA_STORAGE";

/// The user that a new node knows, and its password.
pub(crate) const USER: &str = "cassandra";

/// What a configuration says of who asks.
const LOGIN: &str = "[store]\nuser = 'cassandra'\npassword_file = 'password'\n";
/// A node on a busy machine is no cluster that one waits for.
const PATIENCE: &str = "attempt_timeout = '10s'\nrequest_timeout = '20s'\nconnect_timeout = '20s'\n";

/// The configuration for a cluster that is there, slow as it may be.
pub(crate) const PATIENT: &str = "patient.toml";
/// The configuration with the timeouts that there are without one.
pub(crate) const IMPATIENT: &str = "impatient.toml";

/// What a configuration says of an archive: all that was superseded an hour ago may be sealed.
const ARCHIVE: &str = "[archive]\nafter = '1h'\n";

const DAY: Duration = Duration::from_secs(24 * 3600);

/// `gc_grace_seconds` of the tables, by default.
const GC_GRACE: Duration = Duration::from_secs(10 * 24 * 3600);

/// Other processes may have the store, too: blocks that no page names are deleted later.
pub(crate) const ALONE: bool = false;

/// What `archive erase --status` says of what was erased.
pub(crate) const ERASED: &str =
    "deleted; gone from the nodes' files with a compaction, and for sure with one after 20";

/// Dropping thirteen tables takes its time.
const DROP_LIMIT: Duration = Duration::from_secs(60);

/// The address of the node, if there is one. It says so plainly where there is none; on the build server
/// (`CI=true`) that is a failure.
fn node() -> Option<String> {
    match std::env::var(NODE) {
        Ok(node) if node == "elsewhere" => eprintln!("skipped: {NODE} says that this runs elsewhere"),
        Ok(node) => return Some(node),
        Err(_) => skip(&format!("{NODE} names no node; `cargo xtask cassandra up --for-tests` starts one")),
    }
    None
}

/// Says plainly what is missing for a test; on the build server that is a failure, unless this runs elsewhere.
fn skip(missing: &str) {
    let is = |variable, value: &str| std::env::var(variable).is_ok_and(|set| set == value);
    assert!(is(NODE, "elsewhere") || !is("CI", "true"), "{missing}");
    eprintln!("skipped: {missing}");
}

/// The file with the certificate of the node, if there is one.
pub(crate) fn authorities() -> Option<PathBuf> {
    let file = std::env::var_os(AUTHORITIES).map(PathBuf::from);
    if file.is_none() {
        skip(&format!("{AUTHORITIES} names no certificate"));
    }
    file
}

/// The folder in which the node has its files, if it can be looked into.
pub(crate) fn storage() -> Option<PathBuf> {
    let folder = std::env::var_os(STORAGE).map(PathBuf::from);
    if folder.is_none() {
        skip(&format!("{STORAGE} names no folder; `cargo xtask cassandra up --for-tests` prints one"));
    }
    folder
}

/// Runs Cassandra's nodetool on the node, and gives what it printed. `None` where there is none.
pub(crate) fn nodetool(arguments: &[&str]) -> Option<String> {
    let Some(nodetool) = std::env::var_os(NODETOOL) else {
        skip(&format!("{NODETOOL} names no nodetool; `cargo xtask cassandra up --for-tests` prints one"));
        return None;
    };
    let output = Command::new(nodetool).args(arguments).output().expect("nodetool starts");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Keyspaces of one test.
#[derive(Debug)]
pub(crate) struct Kept {
    node: String,
    prefix: String,
    used: Mutex<BTreeSet<String>>,
    roles: Mutex<BTreeSet<String>>,
    clock: Option<FalseClock>,
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
        Some(Self { node, prefix, used: Mutex::default(), roles: Mutex::default(), clock: None })
    }

    /// The stores have an archive, and time passes when a test says so: whoever shares a store with others has to wait
    /// until he may seal anything.
    pub(crate) fn archive(&mut self, directory: &Path) {
        for name in [PATIENT, IMPATIENT] {
            let known = fs::read_to_string(directory.join(name)).unwrap();
            fs::write(directory.join(name), known + ARCHIVE).unwrap();
        }
        self.clock = Some(FalseClock::new(directory));
    }

    /// What has `archive seal` take all that was superseded, when its time has come.
    #[allow(clippy::unused_self, reason = "elsewhere too")]
    pub(crate) fn sealing(&self) -> &'static [&'static str] {
        &[]
    }

    /// A day passes.
    pub(crate) fn pass_a_day(&self) {
        self.pass(DAY);
    }

    /// So much time passes that a batch that failed can no longer take effect by itself, and a day more.
    pub(crate) fn pass_late_writes(&self) {
        self.pass(GC_GRACE + DAY);
    }

    fn pass(&self, time: Duration) {
        self.clock.as_ref().expect("it has an archive").pass(time);
    }

    /// What commands have in their environment.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.clock.as_ref().map(FalseClock::environment).unwrap_or_default()
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

    /// The name of a role; it is dropped at the end.
    pub(crate) fn role(&self, name: &str) -> String {
        let role = format!("{}_{name}", self.prefix);
        self.roles.lock().unwrap().insert(role.clone());
        role
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
        let keyspaces = std::mem::take(&mut *self.used.lock().unwrap());
        let roles = std::mem::take(&mut *self.roles.lock().unwrap());
        let drops = (keyspaces.iter().map(|keyspace| format!("DROP KEYSPACE IF EXISTS {keyspace}")))
            .chain(roles.iter().map(|role| format!("DROP ROLE IF EXISTS {role}")));
        ask(&self.node, async |session| {
            for text in drops {
                let mut statement = Statement::new(text);
                statement.set_request_timeout(Some(DROP_LIMIT));
                session.query_unpaged(statement, ()).await.expect("it is dropped");
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
