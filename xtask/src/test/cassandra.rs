//! The steps that need a Cassandra node. The node is started in the background while other steps compile.

use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use super::{Lane, Outcome, resources::StepResources, steps};
use crate::{
    cassandra::{FOR_TESTS, Node, Server, clear_test_ring},
    process::cargo_with_clippy,
    tools::Toolbox,
};

/// An environment variable for the other steps, with which they skip the tests that need a node.
pub(crate) const ELSEWHERE: (&str, &str) = (FOR_TESTS, "elsewhere");

/// The test programs that run on the store that the environment names.
const ON_ANY_STORE: &[&str] = &["service", "http", "dumps", "key_value"];

/// Modules and tests of these programs that use no node, or test code above the store: caches, files, damage, faults,
/// counts of calls, the choice of blocks, details of the store in memory, and stores that the test itself names.
const NOT_ON_A_NODE: &[&str] = &[
    "archive::batches::",
    "archive::compaction::",
    "archive::damage::",
    "archive::erasing::erase_succeeds_during_",
    "archive::erasing::interrupted_erase_",
    "archive::erasing::page_is_readable_while_",
    "archive::faults::",
    "archive::files::",
    "archive::histories::interrupted_bulk_load_",
    "archive::idle::random_late_writes_",
    "archive::large::erase_deletes_chunks_",
    "archive::order::read_of_a_page_in_any_order_",
    "archive::writing::",
    "bounded_reads::",
    "faults::random_faults_lose_",
    "faults::write_that_fails_at_any_call_can_",
    "latest_cache::",
    "migration::",
    "page_buckets::interrupted_deletion_",
    "properties::",
    "real_data::",
    "retention::culling::failed_sweep_shows_",
    "retention::culling::sweep_after_days_",
    "xml_reader::",
    "in_memory::",
    "in_sqlite::",
];

/// Tests of the test programs `cassandra` that `cargo xtask nightly` alone runs. The step `test` runs the same tests on
/// SQLite, the contract of the stores holds the rest, and of each module at least one other test runs on the cluster.
/// Making tables takes most of their time.
const ONLY_AT_NIGHT: &[&str] = &[
    "archive_kills::compaction_killed_",
    "every_store::archiving::import_writes_directly_",
    "every_store::archiving::other_revisions_with_",
    "every_store::archiving::sealed_revisions_are_",
    "every_store::buckets::exported_entries_",
    "every_store::buckets::wrong_commands_",
    "every_store::checking::verify_and_stats_",
    "every_store::exporting::only_requested_",
    "every_store::importing::conflicting_revision_",
    "every_store::importing::importing_again_",
    "every_store::importing::one_command_",
    "every_store::importing::truncated_dump_",
    "every_store::rewriting::rewrite_of_blocks_",
    "every_store::rewriting::stored_values_",
    "every_store::tokens::wrong_requests_",
];

/// The modules of these programs that `cargo xtask test` runs on a node: what depends on several processes, on batches
/// and their limits, on deleted rows, on conditional writes, on pages of results, or on the order of rows. The contract
/// of the stores holds the rest, and `cargo xtask nightly` runs everything.
const WHERE_THE_CLUSTER_MATTERS: &[&str] = &[
    "archive::erasing::",
    "archive::sealing::",
    "catalog::",
    "collecting::",
    "conditions::",
    "counter_faults::",
    "counter_histories::",
    "domains::",
    "kills::",
    "large::",
    "large_bodies::",
    "listings::",
    "paging::",
    "processes::",
    "random::",
    "random_entries::",
    "random_writes::",
    "retention::late::",
    "retention::lost_lease::",
    "retention::races::",
    "rewriting::",
    "sizes::",
    "splits::",
];

/// A node for the steps that need one. It is starting, ready, failed, or named by the environment.
#[derive(Debug)]
pub(super) struct TestNode {
    starting: Option<JoinHandle<Result<Node>>>,
    /// The node. `None` if the environment names a node.
    node: Result<Option<Node>, String>,
}

impl TestNode {
    /// Starts a node in the background, unless the environment names one.
    pub(super) fn begin(on_build_server: bool) -> Self {
        let given = std::env::var_os(FOR_TESTS).is_some();
        let starting = (!given).then(|| {
            // The node's files are downloaded at the same time as those of other steps.
            thread::spawn(move || {
                let server = Server::fetch(&mut Toolbox::new(on_build_server))?;
                server.start_for_tests(&clear_test_ring()?)?.wait()
            })
        });
        Self { starting, node: Ok(None) }
    }

    /// Waits until the node accepts CQL connections, and returns it. `None`: the environment names a node.
    pub(super) fn wait(&mut self) -> Result<Option<&mut Node>> {
        if let Some(starting) = self.starting.take() {
            let node = starting.join().unwrap_or_else(|_| Err(anyhow!("the start of a node panicked")));
            self.node = node.map(Some).map_err(|error| format!("{error:#}"));
        }
        self.node.as_mut().map(Option::as_mut).map_err(|reason| anyhow!(reason.clone()))
    }
}

/// Runs the tests of the Cassandra store.
pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let left_out = if resources.lane == Lane::Test { ONLY_AT_NIGHT } else { &[] };
    let skipped: Vec<&str> = left_out.iter().flat_map(|test| ["--skip", test]).collect();
    // Each test makes tables of its own, and the node makes only one table at a time.
    run_tests(resources, "cassandra", 4, &["cassandra"], &skipped)
}

/// Runs the tests for any store on a Cassandra node.
pub(super) fn run_on_any_store(resources: &mut StepResources) -> Result<Outcome> {
    let mut tests: Vec<&str> = NOT_ON_A_NODE.iter().flat_map(|module| ["--skip", module]).collect();
    if resources.lane == Lane::Test {
        tests.extend(WHERE_THE_CLUSTER_MATTERS);
    }
    // These tests spend most of their time waiting for the node, so more of them run at once.
    run_tests(resources, "cluster", 8, ON_ANY_STORE, &tests)
}

/// Runs test targets on the node, with this many tests at once. `tests` are arguments that select tests.
fn run_tests(
    resources: &mut StepResources,
    name: &str,
    threads: usize,
    targets: &[&str],
    tests: &[&str],
) -> Result<Outcome> {
    let node = resources.node()?;
    let mut command = cargo_with_clippy("test")?;
    command.arg("--no-fail-fast");
    for target in targets {
        command.args(["--test", target]);
    }
    command.args(["--", "--test-threads", &threads.to_string()]).args(tests);
    if let Some(node) = &node {
        command.envs(node.environment());
    }
    let outcome = steps::run_test_command(name, command)?;
    Ok(match (outcome, node.and_then(Node::death)) {
        (outcome @ Outcome::Passed(_), _) | (outcome, None) => outcome,
        (_, Some(death)) => Outcome::Failed(death),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{programs::selects_a_test, tidy::Tree};

    #[test]
    fn named_test_programs_and_modules_exist() {
        let tree = Tree::load(crate::root()).expect("the repository");
        let mut sources = String::new();
        for (program, package) in ON_ANY_STORE.iter().zip(["pages", "server", "dumps", "entries"]) {
            let folder = format!("crates/{package}/tests/{program}/");
            assert!(tree.has(&format!("{folder}main.rs")), "{folder} has no main.rs");
            sources.extend(
                tree.ending(".rs").filter(|(path, _)| path.starts_with(&folder)).map(|(_, text)| text),
            );
        }
        let at_night = tree.ending(".rs").filter(|(path, _)| path.starts_with("crates/rashomon/tests/"));
        sources.extend(at_night.map(|(_, text)| text));
        let named = NOT_ON_A_NODE.iter().chain(WHERE_THE_CLUSTER_MATTERS).chain(ONLY_AT_NIGHT);
        for path in named.filter(|path| !path.starts_with("in_")) {
            assert!(selects_a_test(path, &sources), "no test program has {path}");
        }
    }
}
