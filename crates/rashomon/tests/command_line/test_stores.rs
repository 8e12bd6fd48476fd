//! Stores in the directory of a test.

use std::{fs, path::Path};

/// Whether the store has only one process. Here the store has one process, so unreferenced blocks are deleted at once.
pub(crate) const ALONE: bool = true;

/// The text of `archive erase --status` for an erased revision.
pub(crate) const ERASED: &str = "erased from all files";

#[derive(Debug)]
pub(crate) struct TestStores;

impl TestStores {
    #[allow(clippy::unnecessary_wraps, reason = "for Cassandra, there may be no node")]
    pub(crate) fn new(_: &Path) -> Option<Self> {
        Some(Self)
    }

    /// The arguments that name a store.
    pub(crate) fn arguments(&self, store: &str) -> Vec<String> {
        ["--data", store].map(str::to_owned).to_vec()
    }

    /// Configures nothing: a command that has the store to itself gets its archive settings as flags.
    #[allow(clippy::unused_self, reason = "for Cassandra, this method changes the stores")]
    pub(crate) fn archive(&mut self, _: &Path) {}

    /// Whether a running import has written at least this many texts of this size. The log was empty when the
    /// import began.
    #[allow(clippy::unused_self, reason = "for Cassandra, this method reads a keyspace")]
    pub(crate) fn has_texts(&self, directory: &Path, count: usize, bytes: usize) -> bool {
        let log = fs::metadata(directory.join("data/rashomon.sqlite-wal"));
        log.is_ok_and(|log| log.len() >= (count * bytes) as u64)
    }

    /// Arguments of `archive seal` that seal all superseded revisions.
    #[allow(clippy::unused_self, reason = "a method as for Cassandra")]
    pub(crate) fn sealing(&self) -> &'static [&'static str] {
        &["--after", "0s"]
    }

    /// Does nothing, since a store with one process has no waiting periods.
    #[allow(clippy::unused_self, reason = "for Cassandra, there is a clock")]
    pub(crate) fn pass_a_day(&self) {}

    /// Does nothing, since a store with one process has no waiting periods.
    #[allow(clippy::unused_self, reason = "for Cassandra, there is a clock")]
    pub(crate) fn pass_late_writes(&self) {}

    /// The environment variables of commands.
    #[allow(clippy::unused_self, reason = "for Cassandra, there is a clock")]
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
