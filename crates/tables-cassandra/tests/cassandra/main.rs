//! Tests of the store on a real Cassandra. `RASHOMON_TEST_CASSANDRA` is the address of its node, `HOST:PORT`.

mod access;
mod batches;
mod contract;
mod faults;
mod fixtures;
mod limits;
mod mutations;
mod repair;
mod replicas;
mod schema;
mod sizes;
