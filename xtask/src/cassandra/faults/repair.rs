//! Repairs nodes that missed writes: runs tests of the store that cut off these nodes themselves.

use std::process::Command;

use anyhow::Result;

use super::ring::Ring;
use crate::process::cargo_with_clippy;

/// A test target, and the beginning of the names of its tests.
struct Tests {
    target: &'static str,
    filter: &'static str,
    /// The number of these tests. Without this check, a filter that finds no test would pass.
    count: usize,
    what: &'static str,
}

const TESTS: [Tests; 2] = [
    Tests {
        target: "cassandra",
        filter: "repair::",
        count: 2,
        what: "nodes that missed a range delete are repaired, and a read of all replicas needs all of them",
    },
    Tests {
        target: "service",
        filter: "collecting::ring::",
        count: 2,
        what: "a batch that reached one node loses nothing, whether the collector or the repair comes first",
    },
];

/// The variable by which the tests find the nodes.
const FOR_TEST: &str = "RASHOMON_TEST_RING";

/// Builds the tests beforehand: in the network namespace of the nodes nothing can be downloaded.
pub(super) fn build() -> Result<bool> {
    for tests in &TESTS {
        if !tests.command()?.args(["--quiet", "--no-run"]).status()?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the tests on these nodes. Returns whether they pass.
pub(super) fn check(ring: &Ring) -> Result<bool> {
    println!("repair");
    let mut all_passed = true;
    for tests in &TESTS {
        let mut command = tests.command()?;
        // The tests halt nodes, so they run one after the other.
        command.args(["--quiet", "--offline", "--", "--ignored", "--test-threads=1", tests.filter]);
        let output = command.env(FOR_TEST, ring.folder()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let passed = output.status.success() && said.contains(&format!("{} passed", tests.count));
        println!("{}: {}", tests.what, output.status);
        if !passed {
            println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        all_passed &= passed;
    }
    Ok(all_passed)
}

impl Tests {
    /// The command, which is the same as in `cargo xtask test`, so that nothing is built twice.
    fn command(&self) -> Result<Command> {
        let mut command = cargo_with_clippy("test")?;
        command.args(["--test", self.target]).current_dir(crate::root());
        Ok(command)
    }
}
