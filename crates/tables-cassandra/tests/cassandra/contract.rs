//! Runs the contract tests on the store in Cassandra.

use crate::fixtures::{Keyspace, node};

rashomon_tables::contract_tests!(match Keyspace::new() {
    Some(keyspace) => keyspace,
    None => return,
});

#[test]
fn random_operations() {
    let Some(node) = node() else { return };
    rashomon_tables::contract::random::assert_matches_memory(8, || Keyspace::on(node.clone()));
}
