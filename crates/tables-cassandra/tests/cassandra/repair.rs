//! Tests of a repair of nodes that have missed a write.

use std::{
    ffi::OsStr,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
    thread::sleep,
    time::Duration,
};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Error, Scan, Schema, TableStore as _, contract::block_on};
use rashomon_tables_cassandra::{CassandraStore, Options, Replication};
use serde_json::Value;

use crate::fixtures::{Keyspace, pages, skip, system_clock, system_time, values};

static CONTENT: LazyLock<Schema> = LazyLock::new(|| pages("content").build());

/// The environment variable with the folder of three nodes that tests may cut off from one another.
const RING: &str = "RASHOMON_TEST_RING";
/// The maximum number of polls until the other nodes know the state of a node, and the pause between two polls.
const MAX_POLLS: usize = 120;
const PAUSE: Duration = Duration::from_millis(500);

/// Three nodes on this machine.
struct Ring(PathBuf);

impl Ring {
    fn run(&self, node: u8, tool: &str, arguments: &[&OsStr]) -> Output {
        let tool = self.0.join(format!("n{node}/{tool}"));
        Command::new(tool).args(arguments).output().expect("the tool starts")
    }

    fn tool(&self, node: u8, tool: &str, arguments: &[&OsStr]) -> String {
        let output = self.run(node, tool, arguments);
        assert!(output.status.success(), "{arguments:?} of {node}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn nodetool(&self, node: u8, arguments: &[&str]) -> String {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        self.tool(node, "nodetool", &arguments)
    }

    fn all(&self, arguments: &[&str]) {
        for node in 1..=3 {
            self.nodetool(node, arguments);
        }
    }

    /// Runs `act` while the other nodes and clients consider this node dead.
    fn without(&self, node: u8, act: impl FnOnce()) {
        self.nodetool(node, &["disablebinary"]);
        self.nodetool(node, &["disablegossip"]);
        self.await_state(node, "DN");
        act();
        self.nodetool(node, &["enablegossip"]);
        self.nodetool(node, &["enablebinary"]);
        self.await_state(node, "UN");
    }

    fn await_state(&self, node: u8, state: &str) {
        let line = format!("{state}  127.0.0.{node} ");
        for other in (1..=3).filter(|other| *other != node) {
            let known = (0..MAX_POLLS).any(|_| {
                // `nodetool status` fails while the node does not know a new keyspace yet.
                let status = self.run(other, "nodetool", &[OsStr::new("status")]);
                let known = String::from_utf8_lossy(&status.stdout).contains(&line);
                if !known {
                    sleep(PAUSE);
                }
                known
            });
            assert!(known, "for node {other}, node {node} is not {state}");
        }
    }

    /// The rows in the files of each node, after a compaction has dropped all hidden rows.
    fn rows_on_each_node(&self, keyspace: &str) -> [Vec<i64>; 3] {
        self.all(&["flush", keyspace]);
        self.all(&["compact", keyspace, CONTENT.name()]);
        [1, 2, 3].map(|node| self.rows_in_files(node, keyspace))
    }

    fn rows_in_files(&self, node: u8, keyspace: &str) -> Vec<i64> {
        let tables = self.0.join(format!("n{node}/data/{keyspace}"));
        let tables = entries(&tables);
        let folder = tables.iter().find(|table| table.to_string_lossy().contains("/content-"));
        let files = entries(folder.expect("the table's folder"));
        let mut files = files.iter().filter(|file| file.to_string_lossy().ends_with("-Data.db"));
        let file = files.next().expect("a file of rows");
        assert_eq!(files.next(), None, "all was compacted into one file");
        let partitions: Value =
            serde_json::from_str(&self.tool(node, "sstabledump", &[file.as_os_str()])).expect("JSON");
        let of_page = partitions[0]["rows"].as_array().expect("the entries of a partition");
        let rows = of_page.iter().filter(|entry| entry["type"] == "row");
        rows.map(|row| row["clustering"][0].as_i64().expect("the revision")).collect()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    entries.map(|entry| entry.expect("it can be read").path()).collect()
}

/// One node missed a range delete, and another node missed a row that was written after the delete. After a
/// repair all nodes have both, and the row is visible.
#[test]
#[ignore = "takes three nodes that may be cut off from one another: `cargo xtask cassandra faults --only none --repair`"]
fn a_range_delete_spares_later_rows_through_repair() {
    let Some(ring) = std::env::var_os(RING).map(|ring| Ring(ring.into())) else {
        return skip(&format!("{RING} names no folder with three nodes"));
    };
    let keyspace = Keyspace::on("127.0.0.1:9042".to_owned());
    let options = Options { replication: Replication::Simple(3), ..keyspace.options() };
    let before = system_time();
    let cutoff = before.saturating_add(Duration::from_micros(10));
    let after = before.saturating_add(Duration::from_micros(11));
    let write = |change: &dyn Fn(&mut Batch)| {
        block_on(async {
            let store =
                CassandraStore::connect(options.clone(), system_clock()).await.expect("two are there");
            store.create(&CONTENT).await.expect("created, or there");
            let mut batch = Batch::new(vec!["page".into()]);
            change(&mut batch);
            store.write(Vec::new(), batch).await.expect("written");
        });
    };
    let put = |batch: &mut Batch, rev: i64, written_at: Timestamp| {
        batch.put(&CONTENT, vec![rev.into()], values(rev), written_at);
    };

    // Without hints, a node that missed a write does not receive it later.
    ring.all(&["disablehandoff"]);
    write(&|batch| {
        (1..=3).for_each(|rev| put(batch, rev, before));
        put(batch, 4, after);
    });
    ring.without(3, || {
        write(&|batch| batch.delete_range(&CONTENT, ClusteringRange::all().at_most(4), cutoff));
    });
    ring.without(2, || write(&|batch| put(batch, 2, after)));
    assert_eq!(ring.rows_on_each_node(keyspace.name()), [vec![4, 2], vec![4], vec![4, 3, 2, 1]]);

    ring.nodetool(1, &["repair", "--full", keyspace.name()]);
    assert_eq!(ring.rows_on_each_node(keyspace.name()), [vec![4, 2], vec![4, 2], vec![4, 2]]);
    ring.all(&["enablehandoff"]);
}

/// A read of all replicas can prove that no replica has a row. So it needs an answer from each replica.
#[test]
#[ignore = "takes three nodes that may be cut off from one another: `cargo xtask cassandra faults --only none --repair`"]
fn read_of_all_replicas_is_unavailable_while_a_node_is_unreachable() {
    let Some(ring) = std::env::var_os(RING).map(|ring| Ring(ring.into())) else {
        return skip(&format!("{RING} names no folder with three nodes"));
    };
    let keyspace = Keyspace::on("127.0.0.1:9042".to_owned());
    let options = Options { replication: Replication::Simple(3), ..keyspace.options() };
    let read = |scan: Scan| {
        block_on(async {
            let store =
                CassandraStore::connect(options.clone(), system_clock()).await.expect("two are there");
            store.create(&CONTENT).await.expect("created, or there");
            let mut batch = Batch::new(vec!["page".into()]);
            batch.put(&CONTENT, vec![1.into()], values(1), system_time());
            store.write(Vec::new(), batch).await.expect("written");
            store.scan(&CONTENT, scan).await.map(|page| page.items.len())
        })
    };
    let scan = || Scan::new(vec!["page".into()], NonZeroUsize::MIN);
    assert_eq!(read(scan().from_all_replicas()).expect("all nodes answer"), 1);
    ring.without(3, || {
        assert_eq!(read(scan()).expect("a quorum answers"), 1);
        let of_all = read(scan().from_all_replicas());
        assert!(matches!(of_all, Err(Error::Unavailable(_))), "{of_all:?}");
    });
    assert_eq!(read(scan().from_all_replicas()).expect("all nodes answer again"), 1);
}
