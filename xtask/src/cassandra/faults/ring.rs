//! The ring of nodes in which the faults happen.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::{
    clock::{self, FalseClock},
    network,
};
use crate::{
    cassandra::{Node, ProcessOptions, Purpose, Server, clear_ring},
    process::Stopwatch,
};

/// The number of nodes. Everything has three replicas, so each node has one, and two nodes are a quorum.
pub(super) const NODES: u8 = 3;
/// The time limit until all nodes know that all nodes are up.
const RING_UP_LIMIT: Duration = Duration::from_secs(120);
/// The node whose clock can be set wrong.
const NODE_WITH_FALSE_CLOCK: u8 = 3;
/// The time limit until a clock shows the time that it was set to, and the tolerated difference.
const CLOCK_LIMIT: Duration = Duration::from_secs(20);
const CLOCK_TOLERANCE: i64 = 3;
/// The heading of the list of threads. The line before it has the time.
const THREADS: &str = "Full thread dump";
/// With this argument, Java compiles quickly and only once. Otherwise a node would start too slowly beside two other
/// nodes and the traffic, on a machine of two cores.
const JAVA_ARGUMENTS: &[&str] = &["-XX:TieredStopAtLevel=1"];
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Three nodes.
#[derive(Debug)]
pub(super) struct Ring {
    server: Server,
    folder: PathBuf,
    clock: FalseClock,
    nodes: BTreeMap<u8, Node>,
}

impl Ring {
    /// Starts the first node, without data. A single node makes tables in a third of the time.
    pub(super) fn begin(server: Server) -> Result<Self> {
        let folder = clear_ring("faults")?;
        fs::create_dir_all(&folder)?;
        let clock = FalseClock::new(&folder)?;
        let mut ring = Self { server, folder, clock, nodes: BTreeMap::new() };
        ring.add(1)?;
        Ok(ring)
    }

    /// Starts the other nodes, one after another.
    pub(super) fn complete(&mut self) -> Result<()> {
        for number in 2..=NODES {
            self.add(number)?;
        }
        self.wait_until_all_up()
    }

    fn add(&mut self, number: u8) -> Result<()> {
        self.server.make(&self.folder, number, NODES, Purpose::Cluster)?;
        self.run(number)
    }

    /// The URL of the store. Any node leads to the other nodes.
    pub(super) fn store() -> String {
        let hosts: Vec<_> = (1..=NODES).map(Node::host).collect();
        format!("cassandra://{}/faults?replication={NODES}", hosts.join(","))
    }

    /// The folder of the nodes.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a signal to a running node.
    pub(super) fn signal(&self, number: u8, signal: Signal) -> Result<()> {
        self.node(number)?.signal(signal)
    }

    /// Ends a node with a signal, and waits for its end.
    pub(super) fn end(&mut self, number: u8, signal: Signal) -> Result<()> {
        let node = self.nodes.remove(&number).with_context(|| format!("node {number} does not run"))?;
        node.end(signal)
    }

    /// Starts a node with its data, and waits until it accepts CQL connections.
    pub(super) fn run(&mut self, number: u8) -> Result<()> {
        let options = ProcessOptions {
            variables: if number == NODE_WITH_FALSE_CLOCK { self.clock.environment() } else { Vec::new() },
            group: Some(network::group(number)),
            java_arguments: JAVA_ARGUMENTS,
        };
        let node = self.server.run(&self.folder, number, &options)?.wait()?;
        self.nodes.insert(number, node);
        Ok(())
    }

    /// Waits until every node knows that all nodes are up.
    pub(super) fn wait_until_all_up(&self) -> Result<()> {
        let clock = Stopwatch::start();
        for number in 1..=NODES {
            loop {
                // `nodetool status` fails while the node learns of a new keyspace.
                let status = self.nodetool(number, &["status"]).unwrap_or_else(|error| format!("{error:#}"));
                let up = status.lines().filter(|line| line.starts_with("UN ")).count();
                if up == usize::from(NODES) {
                    break;
                }
                ensure!(clock.elapsed() < RING_UP_LIMIT, "node {number} sees {up} nodes:\n{status}");
                thread::sleep(LOOK_INTERVAL);
            }
        }
        Ok(())
    }

    /// Sets the clock of node 3 this many seconds ahead, and waits until the node shows the time.
    pub(super) fn set_clock(&self, seconds_ahead: i64) -> Result<()> {
        self.clock.set(seconds_ahead)?;
        let stopwatch = Stopwatch::start();
        loop {
            let shown = self.clock_ahead()?;
            if shown.is_some_and(|shown| (shown - seconds_ahead).abs() <= CLOCK_TOLERANCE) {
                return Ok(());
            }
            ensure!(
                stopwatch.elapsed() < CLOCK_LIMIT,
                "the clock of node 3 is ahead by {shown:?} (seconds), not by {seconds_ahead}"
            );
        }
    }

    /// Restarts the node whose clock was wrong, so that it accepts the messages of the other nodes again.
    ///
    /// A node corrects its time for messages every ten seconds, and only with a precise measurement, which a busy
    /// machine may prevent for minutes. Meanwhile the node drops messages as late, among them changes of the schema.
    pub(super) fn restart_after_false_clock(&mut self) -> Result<()> {
        self.end(NODE_WITH_FALSE_CLOCK, Signal::TERM)?;
        self.run(NODE_WITH_FALSE_CLOCK)?;
        self.wait_until_all_up()
    }

    /// The number of seconds by which the clock of node 3 is ahead of the true time. Java prints the time
    /// above a list of its threads.
    fn clock_ahead(&self) -> Result<Option<i64>> {
        self.signal(NODE_WITH_FALSE_CLOCK, Signal::QUIT)?;
        thread::sleep(LOOK_INTERVAL);
        let output = fs::read_to_string(self.folder.join(format!("n{NODE_WITH_FALSE_CLOCK}/logs/output")))?;
        let before_last =
            output.lines().zip(output.lines().skip(1)).filter(|(_, line)| line.starts_with(THREADS)).last();
        let Some((shown, _)) = before_last else { return Ok(None) };
        Ok(clock::seconds_ahead(shown, now()?))
    }

    fn node(&self, number: u8) -> Result<&Node> {
        self.nodes.get(&number).with_context(|| format!("node {number} does not run"))
    }

    fn nodetool(&self, number: u8, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.node(number)?.nodetool()).args(arguments).output()?;
        if !output.status.success() {
            bail!(
                "nodetool {} on node {number} ended with {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Seconds since 1970.
#[allow(clippy::disallowed_methods)] // The clock of another process is compared with it.
fn now() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?)
}
