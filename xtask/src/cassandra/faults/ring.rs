//! The ring that faults are done to.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::{clock::FalseClock, network};
use crate::{
    cassandra::{Node, Purpose, Server, Surroundings, ring_of_one_run},
    process::Stopwatch,
};

/// With three copies of everything, each node has one, and two are a quorum.
pub(super) const NODES: u8 = 3;
/// How long it may take until all nodes know that all are there.
const WHOLE_LIMIT: Duration = Duration::from_secs(120);
/// A node that starts beside two others and the traffic has little of two cores: it compiles quickly, and once.
const SETTINGS_OF_JAVA: &[&str] = &["-XX:TieredStopAtLevel=1"];
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Three nodes.
#[derive(Debug)]
pub(super) struct Ring {
    server: Server,
    folder: PathBuf,
    nodes: BTreeMap<u8, Node>,
}

impl Ring {
    /// Starts the first node, with nothing in it: it alone makes tables in a third of the time.
    pub(super) fn begin(server: Server) -> Result<Self> {
        let mut ring = Self { server, folder: ring_of_one_run("faults")?, nodes: BTreeMap::new() };
        ring.add(1)?;
        Ok(ring)
    }

    /// Starts the other nodes, one after another.
    pub(super) fn complete(&mut self) -> Result<()> {
        for number in 2..=NODES {
            self.add(number)?;
        }
        self.wait_until_whole()
    }

    fn add(&mut self, number: u8) -> Result<()> {
        self.server.make(&self.folder, number, NODES, Purpose::Cluster)?;
        self.run(number, None)
    }

    /// The store that the service is given: any node leads to the others.
    pub(super) fn store() -> String {
        let hosts: Vec<_> = (1..=NODES).map(Node::host).collect();
        format!("cassandra://{}/faults?replication={NODES}", hosts.join(","))
    }

    /// Sends a signal to a node that goes on.
    pub(super) fn signal(&self, number: u8, signal: Signal) -> Result<()> {
        self.node(number)?.signal(signal)
    }

    /// Ends a node with a signal, and waits until it ended.
    pub(super) fn end(&mut self, number: u8, signal: Signal) -> Result<()> {
        let node = self.nodes.remove(&number).with_context(|| format!("node {number} does not run"))?;
        node.end(signal)
    }

    /// Starts a node with all that is in it, and waits until it takes CQL.
    pub(super) fn run(&mut self, number: u8, clock: Option<&FalseClock>) -> Result<()> {
        let surroundings = Surroundings {
            variables: clock.map(FalseClock::environment).unwrap_or_default(),
            group: Some(network::group(number)),
            settings_of_java: SETTINGS_OF_JAVA,
        };
        let node = self.server.run(&self.folder, number, &surroundings)?.wait()?;
        self.nodes.insert(number, node);
        Ok(())
    }

    /// Waits until every node knows that all nodes are up.
    pub(super) fn wait_until_whole(&self) -> Result<()> {
        let clock = Stopwatch::start();
        for number in 1..=NODES {
            loop {
                let status = self.nodetool(number, &["status"])?;
                let up = status.lines().filter(|line| line.starts_with("UN ")).count();
                if up == usize::from(NODES) {
                    break;
                }
                ensure!(clock.elapsed() < WHOLE_LIMIT, "node {number} sees {up} nodes:\n{status}");
                thread::sleep(LOOK_INTERVAL);
            }
        }
        Ok(())
    }

    /// How many seconds the clock of a node is ahead of ours, by what it says of its start.
    pub(super) fn clock_ahead(&self, number: u8, started: SystemTime) -> Result<i64> {
        let answer = self.nodetool(
            number,
            &["sjk", "mx", "--bean", "java.lang:type=Runtime", "--field", "StartTime", "--get"],
        )?;
        let said = answer.lines().rev().find_map(|line| line.trim().parse::<i64>().ok());
        let said = said.with_context(|| format!("node {number} does not say when it started: {answer}"))?;
        let started = i64::try_from(started.duration_since(UNIX_EPOCH)?.as_millis())?;
        Ok((said - started) / 1_000)
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
