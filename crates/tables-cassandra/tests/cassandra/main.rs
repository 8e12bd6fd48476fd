//! The store on a real Cassandra: on the node that `RASHOMON_TEST_CASSANDRA` names, as `HOST:PORT`.

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
