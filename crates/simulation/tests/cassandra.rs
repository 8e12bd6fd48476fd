//! Simulates a few random histories on a Cassandra node, if the environment names one. `cargo xtask test`
//! runs the test targets of this name in a step of their own.

use rashomon_simulation::{Plan, Store, Variant, many};

#[test]
fn no_promise_is_broken_in_cassandra() {
    if rashomon_test_stores::node().is_none() {
        println!("skipped: RASHOMON_TEST_CASSANDRA names no node");
        return;
    }
    let plan = Plan { histories: 10, seed: 2_000_000_000, store: Store::Cassandra, threads: 2 };
    let found = many(plan, &Variant::SOUND, &|_| {}).unwrap();
    if let Some(found) = found {
        panic!("{}\nwith seed {}; shortened:\n{}", found.violation, found.seed, found.shortest);
    }
}
