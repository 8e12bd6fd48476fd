//! The binary on a real Cassandra: on the node that `RASHOMON_TEST_CASSANDRA` names, as `HOST:PORT`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod archive_kills;
mod archiving;
mod cluster;
mod comparing;
mod conditions;
mod false_clock;
mod kept;
mod killing;
mod migrating;
mod mutations;
mod proxy;

// How batches are counted is known to the tests of the store.
#[path = "../../../tables-cassandra/tests/cassandra/batches.rs"]
mod batches;

// How one looks for what was erased is known to the tests of the archive.
#[path = "../../../buckets/tests/buckets/support/wanted.rs"]
mod wanted;

// What holds on every store is written down once, beside the tests on SQLite.
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
