//! Nodes that missed something, and are repaired: a test of the store, which cuts off these nodes by itself.

use std::process::Command;

use anyhow::Result;

use super::ring::Ring;
use crate::test::cargo_with_clippy;

const TEST: &str = "repair::a_range_delete_spares_later_rows_through_repair";
/// Where the test finds the nodes.
const FOR_TEST: &str = "RASHOMON_TEST_RING";

/// Builds the test: where the nodes are nothing can be fetched.
pub(super) fn build() -> Result<bool> {
    let status = cargo_test()?.args(["--quiet", "--no-run"]).status()?;
    Ok(status.success())
}

/// Whether the test passes on these nodes.
pub(super) fn check(ring: &Ring) -> Result<bool> {
    println!("repair");
    let mut command = cargo_test()?;
    command.args(["--quiet", "--offline", "--", "--ignored", "--exact", TEST]);
    let output = command.env(FOR_TEST, ring.folder()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    // A test that is not there would pass.
    let passed = output.status.success() && said.contains("1 passed");
    println!("a range delete, missed by one node, spares what another missed: {}", output.status);
    if !passed {
        println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(passed)
}

/// As the test command builds it, so that nothing is built twice.
fn cargo_test() -> Result<Command> {
    let mut command = cargo_with_clippy("test")?;
    command.args(["--test", "cassandra"]).current_dir(crate::root());
    Ok(command)
}
