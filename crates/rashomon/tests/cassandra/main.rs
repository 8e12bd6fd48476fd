//! The binary on a real Cassandra node, which `RASHOMON_TEST_CASSANDRA` names as `HOST:PORT`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod archive_kills;
mod cluster;
mod conditions;
mod counter_kills;
mod erased_files;
mod false_clock;
mod forwarding;
mod killing;
mod migrating;
mod mutations;
mod proxy;
mod snapshots;
mod test_stores;
mod tokens;
mod upgrading;

// The module that counts batches, from the tests of the store.
#[path = "../../../tables-cassandra/tests/cassandra/batches.rs"]
mod batches;

// The module that searches for erased content, from the tests of the archive.
#[path = "../../../pages/tests/service/support/piece_set.rs"]
mod piece_set;

// Tests for every store are defined once, next to the tests for SQLite.
#[path = "../command_line/every_store/mod.rs"]
mod every_store;
#[path = "../command_line/home.rs"]
mod home;
#[path = "../command_line/http.rs"]
mod http;
#[path = "../command_line/process.rs"]
mod process;
#[path = "../command_line/wiki.rs"]
mod wiki;
