//! The steps that need a node of Cassandra, which is started in the background while other steps compile.

use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use super::{Outcome, steps, tools::Toolbox};
use crate::cassandra::{FOR_TESTS, Node, Server, test_ring};

/// For the other steps: the tests that need a node leave it to these.
pub(super) const ELSEWHERE: (&str, &str) = (FOR_TESTS, "elsewhere");

/// The test programs that run on the store which the environment names.
const ON_ANY_STORE: &[&str] = &["buckets", "http", "dumps"];

/// Their modules and tests that use no node: the cache of a store with one process, two stores at once, files alone,
/// tests that meddle with the store in memory, and tests that name their store.
const NOT_ON_A_NODE: &[&str] = &[
    "archive::erasing::an_erasing_",
    "archive::faults::",
    "archive::files::",
    "archive::histories::an_import_",
    "archive::writing::",
    "bounded_reads::",
    "latest_cache::",
    "migration::",
    "properties::",
    "real_data::",
    "xml_reader::",
    "in_memory::",
    "in_sqlite::",
];

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
    run_tests(toolbox, "cassandra", 4, &["cassandra"], &[])
}

/// Runs the tests that are about no store, on this one.
pub(super) fn run_on_any_store(toolbox: &mut Toolbox) -> Result<Outcome> {
    // They wait for the node most of the time.
    run_tests(toolbox, "cluster", 8, ON_ANY_STORE, NOT_ON_A_NODE)
}

/// Runs test targets on the node, so many tests at once.
fn run_tests(
    toolbox: &mut Toolbox,
    name: &str,
    threads: usize,
    targets: &[&str],
    skipped: &[&str],
) -> Result<Outcome> {
    let node = toolbox.node()?;
    let mut command = steps::cargo_with_clippy("test")?;
    command.arg("--no-fail-fast");
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn named_test_programs_and_modules_exist() {
        let mut sources = String::new();
        for (program, package) in ON_ANY_STORE.iter().zip(["buckets", "api", "dumps"]) {
            let folder = crate::root().join("crates").join(package).join("tests").join(program);
            assert!(folder.join("main.rs").is_file(), "a test program has a main.rs");
            sources += &text_below(&folder);
        }
        for path in NOT_ON_A_NODE.iter().filter(|path| !path.starts_with("in_")) {
            let name = path.trim_end_matches(':').rsplit(':').next().unwrap_or_default();
            let declarations = match path.strip_suffix("::") {
                Some(_) => [format!("mod {name};"), format!("mod {name} {{")],
                None => [format!("async fn {name}"), format!("fn {name}")],
            };
            assert!(declarations.iter().any(|one| sources.contains(one)), "no test program has {path}");
        }
    }

    /// The text of all files in a folder and below.
    fn text_below(folder: &Path) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                text += &text_below(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &fs::read_to_string(&path).expect("a source file");
            }
        }
        text
    }
}
