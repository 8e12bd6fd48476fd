//! The steps that need a node of Cassandra, which is started in the background while other steps compile.

use std::{
    fs,
    process::Command,
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow};

use super::{Outcome, steps, tools::Toolbox};
use crate::{
    cassandra::{FOR_TESTS, Node, Server, test_ring},
    process::cargo,
};

/// For the other steps: the tests that need a node leave it to these.
pub(super) const ELSEWHERE: (&str, &str) = (FOR_TESTS, "elsewhere");

/// Crates whose tests stand on whichever store the environment names.
const ON_ANY_STORE: &[&str] = &["buckets", "api", "dumps"];

/// Their test targets that stand on no node: they are about what is kept in memory where one process owns a
/// store, about two stores at once, or about files alone.
const NOT_ON_A_NODE: &[&str] = &["latest_cache", "migration", "properties", "real_data", "xml_reader"];

/// Modules whose tests stand on one store whatever the environment names.
const OF_ONE_STORE: &[&str] = &["in_memory::", "in_sqlite::"];

/// A node for the steps that need one: on its way, there, or known not to come.
#[derive(Debug)]
pub(super) struct TestNode {
    starting: Option<JoinHandle<Result<Node>>>,
    /// `None` where one was given.
    node: Result<Option<Node>, String>,
}

impl TestNode {
    /// Begins to start a node, unless one was given.
    pub(super) fn begin(on_build_server: bool) -> Self {
        let given = std::env::var_os(FOR_TESTS).is_some();
        let starting = (!given).then(|| {
            // What it needs is fetched beside what the other steps need.
            thread::spawn(move || {
                let server = Server::fetch(&mut Toolbox::new(on_build_server))?;
                server.start_for_tests(&test_ring()?)?.wait()
            })
        });
        Self { starting, node: Ok(None) }
    }

    /// The node, when it takes CQL; `None` where one was given.
    pub(super) fn wait(&mut self) -> Result<Option<&mut Node>> {
        if let Some(starting) = self.starting.take() {
            let node = starting.join().unwrap_or_else(|_| Err(anyhow!("the start of a node panicked")));
            self.node = node.map(Some).map_err(|error| format!("{error:#}"));
        }
        self.node.as_mut().map(Option::as_mut).map_err(|reason| anyhow!(reason.clone()))
    }
}

/// Runs the tests that are about Cassandra.
pub(super) fn run(toolbox: &mut Toolbox) -> Result<Outcome> {
    // Each makes tables of its own, and the node makes one after another.
    run_tests(toolbox, "cassandra", 4, &["cassandra".to_owned()], &[])
}

/// Runs the tests that are about no store, on this one.
pub(super) fn run_on_any_store(toolbox: &mut Toolbox) -> Result<Outcome> {
    // They wait for the node most of the time.
    run_tests(toolbox, "cluster", 8, &targets_on_any_store()?, OF_ONE_STORE)
}

/// Runs test targets on the node, so many tests at once.
fn run_tests(
    toolbox: &mut Toolbox,
    name: &str,
    threads: usize,
    targets: &[String],
    skipped: &[&str],
) -> Result<Outcome> {
    let node = toolbox.node()?;
    let mut command = Command::new(cargo());
    // The features of all crates, as in the other steps, so that nothing is compiled twice.
    command.arg("test").args(steps::EVERYTHING).arg("--no-fail-fast");
    for target in targets {
        command.args(["--test", target]);
    }
    command.args(["--", "--test-threads", &threads.to_string()]);
    for module in skipped {
        command.args(["--skip", module]);
    }
    if let Some(node) = &node {
        command.envs(node.environment());
    }
    let outcome = steps::finish_tests(name, command)?;
    Ok(match (outcome, node.and_then(Node::death)) {
        (outcome @ Outcome::Passed(_), _) | (outcome, None) => outcome,
        (_, Some(death)) => Outcome::Failed(death),
    })
}

/// The names of the test targets of those crates: files, and folders with a `main.rs`.
fn targets_on_any_store() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for name in ON_ANY_STORE {
        let folder = crate::root().join("crates").join(name).join("tests");
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file() {
                targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
            }
        }
    }
    targets.retain(|target| !NOT_ON_A_NODE.contains(&target.as_str()));
    targets.sort_unstable();
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_and_those_without_a_node_left_out() {
        let targets = targets_on_any_store().expect("the crates are there");
        for target in ["http", "import", "processes"] {
            assert!(targets.iter().any(|found| found == target), "{target} is not in {targets:?}");
        }
        for other in ["latest_cache", "support", "snapshots", "cassandra"] {
            assert!(!targets.iter().any(|found| found == other), "{other} is in {targets:?}");
        }
    }
}
