//! `cargo xtask cassandra`: real Cassandra nodes on this machine, for tests and for developers.
//!
//! A node is the original server program, from the jars that the Cassandra project publishes on Maven
//! Central, with the settings in `xtask/cassandra`. Nodes listen on 127.0.0.1, 127.0.0.2 and so on, at
//! Cassandra's own ports. All their files are below `target/xtask/cassandra`.

mod faults;
mod node;
mod server;

use std::{fs, path::PathBuf};

use anyhow::{Result, bail, ensure};

use crate::tools::Toolbox;
pub(crate) use faults::network;
pub(crate) use node::FOR_TESTS;
pub use node::Node;
pub(crate) use server::Server;
use server::{ProcessOptions, Purpose};

/// The command to run.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a ring of nodes, and wait until they accept CQL connections. The nodes keep running.
    Up {
        /// Number of nodes. Each takes about 1 GB of memory.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
        nodes: u8,
        /// Start one node as `cargo xtask test` does: it requires a password, accepts encrypted connections
        /// too, and makes tables quickly.
        #[arg(long, conflicts_with = "nodes")]
        for_tests: bool,
    },
    /// Stop the nodes that `up` started, and delete their data.
    Down,
    /// Print which of the nodes that `up` started are running.
    Status,
    /// Start three nodes under load, and cause faults: a node is killed, hangs, is cut off, is restarted, or
    /// has a wrong clock. Check that no acknowledged write is lost, and that nearly all requests succeed.
    Faults(faults::Options),
}

/// Runs the command. Returns whether it found no problem.
pub fn run(command: &Command) -> Result<bool> {
    match command {
        Command::Up { nodes, for_tests } => up(*nodes, *for_tests),
        Command::Down => down(),
        Command::Status => status(),
        Command::Faults(options) => faults::run(options),
    }
}

/// The folder of all files of Cassandra.
fn folder() -> PathBuf {
    crate::target().join("xtask/cassandra")
}

/// The folder of the nodes that `up` starts.
fn ring() -> PathBuf {
    folder().join("ring")
}

/// Ends a node that an earlier run of the tests left behind, and returns the folder for the node of this run.
pub(crate) fn clear_test_ring() -> Result<PathBuf> {
    clear_ring("test")
}

/// Starts an empty node as [`Command::Up`] does, and waits until it accepts CQL connections. Ends a node that
/// an earlier run of the benchmarks left behind.
pub fn start_for_benchmarks() -> Result<Node> {
    let server = Server::fetch(&mut Toolbox::new(false))?;
    server.start(&clear_ring("bench")?, 1, 1)?.wait()
}

/// Ends nodes that an earlier run left behind, and returns the folder for the nodes of this run.
fn clear_ring(name: &str) -> Result<PathBuf> {
    let ring = folder().join(name);
    for (_, process) in Node::running_in(&ring)? {
        node::stop(process)?;
    }
    Ok(ring)
}

fn up(nodes: u8, for_tests: bool) -> Result<bool> {
    let running = Node::running_in(&ring())?.len();
    ensure!(
        running == 0,
        "{running} node(s) already running; `cargo xtask cassandra down` stops them and deletes their data"
    );
    let server = Server::fetch(&mut Toolbox::new(false))?;
    for number in 1..=nodes {
        let node = if for_tests {
            server.start_for_tests(&ring())?
        } else {
            server.start(&ring(), number, nodes)?
        };
        let node = node.wait()?;
        println!(
            "node {number} takes CQL at {}; nodetool: {}",
            Node::address(number),
            node.nodetool().display()
        );
        if for_tests {
            for (name, value) in node.environment() {
                println!("export {name}={value}");
            }
        }
        node.leave();
    }
    Ok(true)
}

fn down() -> Result<bool> {
    for (number, process) in Node::running_in(&ring())? {
        node::stop(process)?;
        println!("node {number} stopped");
    }
    match fs::remove_dir_all(ring()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot delete {}: {error}", ring().display())
        }
        _ => Ok(true),
    }
}

fn status() -> Result<bool> {
    let running = Node::running_in(&ring())?;
    for (number, process) in &running {
        let taking = if node::takes_cql(*number) { "takes CQL" } else { "takes no CQL" };
        println!(
            "node {number}, process {}: {taking} at {}",
            process.as_raw_nonzero(),
            Node::address(*number)
        );
    }
    if running.is_empty() {
        println!("no nodes that `up` started are running");
    }
    Ok(true)
}
