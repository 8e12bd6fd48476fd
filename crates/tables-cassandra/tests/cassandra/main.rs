//! The store on a real Cassandra: on the node that `RASHOMON_TEST_CASSANDRA` names, as `HOST:PORT`.

mod contract;
mod fixtures;
