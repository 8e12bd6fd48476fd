//! Simulates a few random histories on a Cassandra node, and compares the strategies there, if the environment names a
//! node. `cargo xtask test` runs the test targets of this name in a step of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{fs, process::Command};

use rashomon_testing::simulation::{Plan, Store, Variant, many};

#[test]
fn no_promise_is_broken_in_cassandra() {
    if rashomon_testing::stores::node().is_none() {
        println!("skipped: RASHOMON_TEST_CASSANDRA names no node");
        return;
    }
    let plan = Plan { histories: 10, seed: 2_000_000_000, store: Store::Cassandra, threads: 2 };
    let found = many(plan, &Variant::SOUND, &|_| {}).unwrap();
    if let Some(found) = found {
        panic!("{}\nwith seed {}; shortened:\n{}", found.violation, found.seed, found.shortest);
    }
}

#[test]
fn strategies_are_measured_on_a_cluster_that_asks_for_a_password() {
    let Some(node) = rashomon_testing::stores::node() else {
        println!("skipped: RASHOMON_TEST_CASSANDRA names no node");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("wiki.jsonl");
    let revision = |rev: u8| {
        let at = format!("2020-01-01T00:00:0{rev}Z");
        format!(
            r#"{{"kind":"revision","rev":{rev},"timestamp":"{at}","properties":{{"wikitext":{{"text":"a"}}}}}}"#
        )
    };
    let (head, page) = (r#"{"kind":"siteinfo","version":1}"#, r#"{"kind":"page","title":"Night"}"#);
    let end = r#"{"kind":"end","pages":1,"revisions":4,"renders":0}"#;
    let revisions = [1, 2, 3, 4].map(revision).join("\n");
    fs::write(&input, format!("{head}\n{page}\n{revisions}\n{end}\n")).unwrap();
    let keyspace = format!("rashomon_compared_{}", std::process::id());
    let compare = |user: &str| {
        let url = format!("cassandra://{user}{node}/{keyspace}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rashomon-compare-strategies"));
        let output = command.arg("--input").arg(&input).args(["--backend", &url]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    };
    let (succeeded, text) = compare("");
    assert!(!succeeded && text.contains("asks for a user and a password"), "{text}");
    let (succeeded, text) = compare("cassandra:cassandra@");
    assert!(succeeded && text.contains("1.00 / 3.00 / 1.00"), "{text}");
}
