//! Nodes that missed something, and are repaired: a test of the store, which cuts off these nodes by itself.

use std::process::Command;

use anyhow::Result;

use super::ring::Ring;
use crate::test::cargo_with_clippy;

/// A target with tests, and what their names begin with.
struct Tests {
    target: &'static str,
    filter: &'static str,
    /// So many there are. Tests that are not there would pass.
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
        target: "buckets",
        filter: "collecting::ring::",
        count: 2,
        what: "a batch that reached one node loses nothing, whether the collector or the repair comes first",
    },
];

/// Where the tests find the nodes.
const FOR_TEST: &str = "RASHOMON_TEST_RING";

/// Builds the tests: where the nodes are nothing can be fetched.
pub(super) fn build() -> Result<bool> {
    for tests in &TESTS {
        if !tests.command()?.args(["--quiet", "--no-run"]).status()?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the tests pass on these nodes.
pub(super) fn check(ring: &Ring) -> Result<bool> {
    println!("repair");
    let mut all_passed = true;
    for tests in &TESTS {
        let mut command = tests.command()?;
        // They halt nodes, and so one comes after the other.
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
    /// As the test command builds it, so that nothing is built twice.
    fn command(&self) -> Result<Command> {
        let mut command = cargo_with_clippy("test")?;
        command.args(["--test", self.target]).current_dir(crate::root());
        Ok(command)
    }
}
