//! Three nodes of Cassandra that tests can disconnect from one another.

use std::{
    env,
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
    thread::sleep,
    time::Duration,
};

use rashomon_clock::Clock;
use rashomon_tables_cassandra::{CassandraStore, Options};

/// The environment variable with the folder of three nodes. `cargo xtask cassandra faults` sets it for its last tests.
const RING: &str = "RASHOMON_TEST_RING";

/// The keyspace that a service has created on these nodes, with three replicas.
const KEYSPACE: &str = "faults";

/// The port of the traffic between nodes.
const NODES_PORT: &str = "7000";

/// The table of the packet filter that disconnects nodes.
const FILTER_TABLE: &str = "rashomon_ring";

/// The maximum number of polls until other nodes know the state of a node.
const MAX_POLLS: usize = 240;

/// The pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Three nodes on this machine. Each has a copy of every row.
#[derive(Debug)]
pub struct Ring(PathBuf);

impl Ring {
    /// Returns the nodes that the environment names, or `None` if the environment names none.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        env::var_os(RING).map(|folder| Self(folder.into()))
    }

    /// Opens the keyspace on these nodes.
    ///
    /// # Panics
    ///
    /// If no node answers.
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

    /// Runs nodetool on a node, and returns its output.
    ///
    /// # Panics
    ///
    /// If nodetool fails.
    pub fn nodetool(&self, node: u8, arguments: &[&str]) -> String {
        let output = self.run_nodetool(node, arguments);
        assert!(output.status.success(), "{arguments:?} on {node}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn run_nodetool(&self, node: u8, arguments: &[&str]) -> Output {
        let tool = self.0.join(format!("n{node}/nodetool"));
        Command::new(tool).args(arguments).output().expect("nodetool starts")
    }

    /// Turns hints between the nodes on or off.
    pub fn keep_hints(&self, keep: bool) {
        for node in 1..=3 {
            self.nodetool(node, &[if keep { "enablehandoff" } else { "disablehandoff" }]);
        }
    }

    /// Repairs these tables, so that the replicas agree.
    pub fn repair(&self, tables: &[&str]) {
        self.nodetool(1, &[&["repair", "--full", KEYSPACE], tables].concat());
    }

    /// Runs `act` while the other nodes and clients consider this node dead.
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

    /// Runs `act`, which only node 1 serves, while messages between nodes are dropped.
    ///
    /// The writes of node 1 reach no other replica, and are not acknowledged. After node 1 considers the other nodes
    /// dead, messages pass again. The messages that the network still delivers after this time are so old that the
    /// nodes drop them.
    ///
    /// # Panics
    ///
    /// If the network cannot be filtered. Filtering requires root.
    pub async fn on_one_node<T>(&self, act: impl Future<Output = T>) -> T {
        let cut_off = [2, 3];
        for node in cut_off {
            // Clients must not send requests to these nodes.
            self.nodetool(node, &["disablebinary"]);
        }
        filter(&["add", "table", "ip", FILTER_TABLE]);
        filter(&["add", "chain", "ip", FILTER_TABLE, "out", "{ type filter hook output priority 0; }"]);
        // Node 1 would not consider a node dead while it still receives messages from the node.
        filter(&["add", "rule", "ip", FILTER_TABLE, "out", "tcp", "dport", NODES_PORT, "drop"]);
        let done = act.await;
        cut_off.iter().for_each(|node| self.await_state(*node, &[1], "DN"));
        filter(&["delete", "table", "ip", FILTER_TABLE]);
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
            let is_known = (0..MAX_POLLS).any(|_| {
                // `nodetool status` fails while the node learns of a new keyspace.
                let status = self.run_nodetool(*other, &["status"]);
                let is_known = String::from_utf8_lossy(&status.stdout).contains(&line);
                if !is_known {
                    sleep(POLL_INTERVAL);
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
