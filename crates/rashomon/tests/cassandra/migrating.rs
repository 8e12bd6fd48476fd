//! `rashomon migrate` from files into a cluster, and back.

use std::{fs, time::Duration};

use rustix::process::Signal;
use scylla::client::session::Session;
use tempfile::tempdir;

use crate::{
    process::{ProcessOutput, RunningProcess, rashomon, run},
    test_stores::{PATIENT, TestStores, ask},
    wiki::pages,
};

/// Waits until a table of the keyspace has a row.
async fn wait_for_rows(session: Session, keyspace: &str, table: &str) {
    /// The number of attempts in two minutes.
    const MAX_POLLS: u32 = 6_000;
    for _ in 0..MAX_POLLS {
        let first = session.query_unpaged(format!("SELECT * FROM {keyspace}.{table} LIMIT 1"), ()).await;
        // Until the keyspace and the table exist, the query is an error.
        if first.is_ok_and(|rows| rows.into_rows_result().is_ok_and(|rows| rows.rows_num() > 0)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nothing was copied to {table}");
}

/// The printed lines about the tables: name, number of rows, and digest.
fn digests(ran: &ProcessOutput) -> Vec<&str> {
    let digests: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(digests.iter().any(|line| line.starts_with("  revisions: 600 rows, ")), "{ran:#?}");
    digests
}

#[test]
fn migration_to_a_cluster_and_back_survives_kills() {
    let directory = tempdir().unwrap();
    let Some(stores) = TestStores::new(directory.path()) else { return };
    fs::write(directory.path().join("dump.xml"), pages(600)).unwrap();
    run(directory.path(), &["import", "--rows", "--data", "data", "--domain", "wiki", "dump.xml"])
        .ends_with(0);
    let keyspace = stores.keyspace("copy");
    let cluster = format!("cassandra://{}/{keyspace}?replication=1", stores.node());
    let migrate = |from: &str, to: &str| {
        ["migrate", "--from", from, "--to", to, "--verify", "--config", PATIENT].map(str::to_owned)
    };

    let there = migrate("sqlite:data", &cluster);
    let running = RunningProcess::start(rashomon(directory.path()).args(&there));
    // At this point the table of revisions is copied, but not the table of titles.
    ask(stores.node(), async |session| wait_for_rows(session, &keyspace, "revision_content").await);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);
    let there = there.each_ref().map(String::as_str);
    let ran = run(directory.path(), &there).ends_with(0);
    let ran = ran
        .stderr_contains(&["resuming a migration that was interrupted after"])
        .stdout_contains(&["the same: "]);

    let back = migrate(&cluster, "sqlite:back");
    let came = run(directory.path(), &back.each_ref().map(String::as_str)).ends_with(0);
    assert_eq!(digests(&came.stdout_contains(&["the same: "])), digests(&ran));
    let exported = ["data", "back"].map(|store| {
        let words = ["export", "--data", store, "--domain", "wiki", "--history", "--format", "jsonl"];
        run(directory.path(), &words).ends_with(0).stdout
    });
    assert!(exported[0].contains("the text of page 600"));
    assert_eq!(exported[0], exported[1]);
}
