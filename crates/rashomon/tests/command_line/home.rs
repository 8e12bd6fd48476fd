//! A directory for one test, with its stores.

use std::{fs, path::Path, process::Command};

use tempfile::{TempDir, tempdir};

use crate::{
    process::{ProcessOutput, RunningProcess, finish, rashomon},
    test_stores::TestStores,
};

/// The directory in which the binary runs, and the stores of the test.
#[derive(Debug)]
pub(crate) struct Home {
    // Stores are dropped before the directory that may contain them.
    pub(crate) stores: TestStores,
    directory: TempDir,
}

impl Home {
    /// Returns `None`, and prints a message, if the tests are for Cassandra and there is no node.
    pub(crate) fn new() -> Option<Self> {
        let directory = tempdir().unwrap();
        Some(Self { stores: TestStores::new(directory.path())?, directory })
    }

    /// Creates a home whose stores may have an archive.
    pub(crate) fn archiving() -> Option<Self> {
        let mut home = Self::new()?;
        home.stores.archive(home.directory.path());
        Some(home)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// Creates a command on the test's store.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_on("data", words)
    }

    /// Creates a command on another store.
    pub(crate) fn command_on(&self, store: &str, words: &[&str]) -> Command {
        let mut command = rashomon(self.path());
        command.args(words).args(self.stores.arguments(store)).envs(self.stores.environment());
        command
    }

    /// Runs a command on the test's store to its end.
    pub(crate) fn run(&self, words: &[&str]) -> ProcessOutput {
        finish(&mut self.command(words))
    }

    /// Runs a command on another store to its end.
    pub(crate) fn run_on(&self, store: &str, words: &[&str]) -> ProcessOutput {
        finish(&mut self.command_on(store, words))
    }

    /// Imports a dump from a file.
    pub(crate) fn import_file(&self, dump: &str) -> ProcessOutput {
        self.write("dump.xml", dump);
        self.run(&["import", "--domain", "wiki", "dump.xml"])
    }

    /// Imports a dump, and expects that every revision is stored.
    #[track_caller]
    pub(crate) fn import(&self, dump: &str) {
        self.import_file(dump).ends_with(0);
    }

    /// Imports a dump into rows, and expects that every revision is stored.
    #[track_caller]
    pub(crate) fn import_rows(&self, dump: &str) {
        self.write("dump.xml", dump);
        self.run(&["import", "--rows", "--domain", "wiki", "dump.xml"]).ends_with(0);
    }

    /// Exports the domain.
    pub(crate) fn export(&self, words: &[&str]) -> ProcessOutput {
        self.run(&[&["export", "--domain", "wiki"], words].concat())
    }

    /// Exports the whole store as JSON lines.
    #[track_caller]
    pub(crate) fn everything(&self) -> String {
        self.export(&["--history", "--format", "jsonl"]).ends_with(0).stdout
    }

    /// Seals all superseded revisions.
    pub(crate) fn seal(&self) -> ProcessOutput {
        self.pass_a_day();
        self.run(&[&["archive", "seal"], self.stores.sealing()].concat())
    }

    /// Advances the clock by a day, after which superseded revisions may be sealed.
    pub(crate) fn pass_a_day(&self) {
        self.stores.pass_a_day();
    }

    /// Advances the clock until garbage collection may delete all unreferenced data.
    pub(crate) fn pass_late_writes(&self) {
        self.stores.pass_late_writes();
    }

    /// Starts a server of the store. Returns it with its address.
    pub(crate) fn serve(&self, words: &[&str]) -> (RunningProcess, String) {
        let mut command = self.command(&[&["serve", "--listen", "127.0.0.1:0"], words].concat());
        let mut server = RunningProcess::start(&mut command);
        let address = server.address();
        (server, address)
    }
}
