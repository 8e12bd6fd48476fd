//! The step that needs a node of Cassandra, which is started in the background while other steps compile.

use std::{
    process::Command,
    thread::{self, JoinHandle},
};

use anyhow::{Result, anyhow};

use super::{Outcome, steps, tools::Toolbox};
use crate::{
    cassandra::{FOR_TESTS, Node, Server, test_ring},
    process::cargo,
};

/// For the other steps: the tests that need a node leave it to this one.
pub(super) const ELSEWHERE: (&str, &str) = (FOR_TESTS, "elsewhere");

/// A node on its way.
#[derive(Debug)]
pub(super) struct Starting(Option<JoinHandle<Result<Node>>>);

impl Starting {
    /// Begins to start a node, unless one was given.
    pub(super) fn begin(on_build_server: bool) -> Self {
        let given = std::env::var_os(FOR_TESTS).is_some();
        Self((!given).then(|| {
            // What it needs is fetched beside what the other steps need.
            thread::spawn(move || {
                let server = Server::fetch(&mut Toolbox::new(on_build_server))?;
                server.start_for_tests(&test_ring()?)?.wait()
            })
        }))
    }

    /// The node, when it takes CQL; `None` where one was given.
    pub(super) fn wait(self) -> Result<Option<Node>> {
        let node =
            self.0.map(|starting| starting.join().map_err(|_| anyhow!("the start of a node panicked")));
        node.transpose()?.transpose()
    }
}

/// Waits for the node, runs the tests that need one, and ends it.
pub(super) fn run(toolbox: &mut Toolbox) -> Result<Outcome> {
    let starting = toolbox.cassandra.take().unwrap_or_else(|| Starting::begin(toolbox.must_have_all()));
    let mut node = match starting.wait() {
        Err(reason) if !toolbox.must_have_all() => return Ok(Outcome::Skipped(format!("{reason:#}"))),
        node => node?,
    };
    let mut command = Command::new(cargo());
    // The features of all crates, as in the other steps, so that nothing is compiled twice.
    command.arg("test").args(steps::EVERYTHING).args(["--no-fail-fast", "--test", "cassandra"]);
    // They wait for the node most of the time.
    command.args(["--", "--test-threads", "8"]);
    if let Some(node) = &node {
        command.envs(node.environment());
    }
    let outcome = steps::finish_tests("cassandra", command)?;
    Ok(match (outcome, node.as_mut().and_then(Node::death)) {
        (outcome @ Outcome::Passed(_), _) | (outcome, None) => outcome,
        (_, Some(death)) => Outcome::Failed(death),
    })
}
