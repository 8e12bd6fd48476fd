//! Three nodes of Cassandra that tests may cut off from one another.

use std::{env, path::PathBuf, process::Command, sync::Arc, thread::sleep, time::Duration};

use rashomon_clock::Clock;
use rashomon_tables_cassandra::{CassandraStore, Options};

/// The folder of three nodes: `cargo xtask cassandra faults` sets it for the tests that it runs at its end.
const RING: &str = "RASHOMON_TEST_RING";

/// The keyspace that a service has made on these nodes, with three replicas.
const KEYSPACE: &str = "faults";

/// Where nodes speak with one another, and the table of the packet filter that cuts them off.
const NODES_PORT: &str = "7000";
const TABLE: &str = "rashomon_ring";

/// How often a node is looked at until the others know of it, and the pause between.
const LOOKS: usize = 240;
const PAUSE: Duration = Duration::from_millis(500);

/// Three nodes on this machine, of which each has a copy of every row.
#[derive(Debug)]
pub struct Ring(PathBuf);

impl Ring {
    /// The nodes that the environment names.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        env::var_os(RING).map(|folder| Self(folder.into()))
    }

    /// The keyspace on these nodes.
    ///
    /// # Panics
    ///
    /// Where no node answers.
    pub async fn store(&self, clock: Arc<dyn Clock>) -> CassandraStore {
        let options = Options {
            contact_points: (1..=3).map(|node| format!("127.0.0.{node}:9042")).collect(),
            keyspace: KEYSPACE.to_owned(),
            create: false,
            connect_timeout: Duration::from_secs(20),
            ..Options::default()
        };
        CassandraStore::connect(options, clock).await.expect("a node answers")
    }

    /// Runs nodetool on a node.
    ///
    /// # Panics
    ///
    /// Where it fails.
    pub fn nodetool(&self, node: u8, arguments: &[&str]) -> String {
        let tool = self.0.join(format!("n{node}/nodetool"));
        let output = Command::new(tool).args(arguments).output().expect("nodetool starts");
        assert!(output.status.success(), "{arguments:?} on {node}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a node misses is not kept for it from now on, or is again.
    pub fn keep_hints(&self, keep: bool) {
        for node in 1..=3 {
            self.nodetool(node, &[if keep { "enablehandoff" } else { "disablehandoff" }]);
        }
    }

    /// Makes the replicas agree on these tables.
    pub fn repair(&self, tables: &[&str]) {
        self.nodetool(1, &[&["repair", "--full", KEYSPACE], tables].concat());
    }

    /// Lets the other nodes take a node for dead, and clients too, while something is done.
    pub async fn without<T>(&self, node: u8, act: impl Future<Output = T>) -> T {
        self.nodetool(node, &["disablebinary"]);
        self.nodetool(node, &["disablegossip"]);
        self.await_state(node, &self.others(&[node]), "DN");
        let done = act.await;
        self.nodetool(node, &["enablegossip"]);
        self.nodetool(node, &["enablebinary"]);
        self.await_state(node, &self.others(&[node]), "UN");
        done
    }

    /// Drops what nodes send to one another while something is done, which node 1 does alone: what it writes reaches no other
    /// replica, and is not acknowledged. It ends when node 1 takes the others for dead. What the network still delivers then is
    /// so old that they drop it themselves.
    ///
    /// # Panics
    ///
    /// Where the network cannot be filtered, which takes root.
    pub async fn on_one_node<T>(&self, act: impl Future<Output = T>) -> T {
        let cut_off = [2, 3];
        for node in cut_off {
            // A client must not ask them.
            self.nodetool(node, &["disablebinary"]);
        }
        filter(&["add", "table", "ip", TABLE]);
        filter(&["add", "chain", "ip", TABLE, "out", "{ type filter hook output priority 0; }"]);
        // Node 1 would not take a node for dead that it still hears.
        filter(&["add", "rule", "ip", TABLE, "out", "tcp", "dport", NODES_PORT, "drop"]);
        let done = act.await;
        cut_off.iter().for_each(|node| self.await_state(*node, &[1], "DN"));
        filter(&["delete", "table", "ip", TABLE]);
        for node in cut_off {
            self.nodetool(node, &["enablebinary"]);
        }
        for node in 1..=3 {
            self.await_state(node, &self.others(&[node]), "UN");
        }
        done
    }

    fn others(&self, nodes: &[u8]) -> Vec<u8> {
        (1..=3).filter(|node| !nodes.contains(node)).collect()
    }

    fn await_state(&self, node: u8, others: &[u8], state: &str) {
        let line = format!("{state}  127.0.0.{node} ");
        for other in others {
            let is_known = (0..LOOKS).any(|_| {
                let is_known = self.nodetool(*other, &["status"]).contains(&line);
                if !is_known {
                    sleep(PAUSE);
                }
                is_known
            });
            assert!(is_known, "for node {other}, node {node} is not {state}");
        }
    }
}

fn filter(arguments: &[&str]) {
    let output = Command::new("nft").args(arguments).output().expect("nft starts");
    assert!(output.status.success(), "nft {arguments:?}: {output:?}");
}
