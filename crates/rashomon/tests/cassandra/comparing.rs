//! The strategies, compared on a cluster.

use std::fs;

use tempfile::tempdir;

use crate::{
    process::run,
    test_stores::{PATIENT, TestStores},
    wiki::dump,
};

#[test]
fn the_strategies_are_measured_on_a_cluster_that_asks_for_a_password() {
    let directory = tempdir().unwrap();
    let Some(stores) = TestStores::new(directory.path()) else { return };
    let history = dump("Night", &[("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]);
    fs::write(directory.path().join("wiki.xml"), history).unwrap();
    let cluster = format!("cassandra://{}/{}?replication=1", stores.node(), stores.keyspace("compared"));
    let compare = ["compare-strategies", "--input", "wiki.xml", "--backend", &cluster];
    run(directory.path(), &compare).ends_with(1).stderr_contains(&["asks for a user and a password"]);
    let compared = run(directory.path(), &[&compare[..], &["--config", PATIENT]].concat()).ends_with(0);
    compared.stdout_contains(&[
        "4 edits of 1 page",
        "two-table",
        "write a later revision",
        "1.00 / 3.00 / 1.00",
    ]);
}
