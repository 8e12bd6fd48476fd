//! Runs the contract tests on the store in memory.

use std::sync::Arc;

use rashomon_clock::Clock;
use rashomon_tables::{Memory, TableStore, contract};

fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
    Arc::new(Memory::new(clock))
}

rashomon_tables::contract_tests!(open);

#[test]
fn the_whole_contract_in_one_run() {
    contract::block_on(contract::run(|| open));
}

/// Compares two stores in memory, to test that the comparison requires no more than stores promise.
#[test]
fn random_operations() {
    contract::random::assert_matches_memory(64, || open);
}
