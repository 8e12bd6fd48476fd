//! The steps, the cheapest first.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::Result;

use super::{
    Lane, Outcome, browser, cassandra, clients, demo, nginx, php, resources::StepResources, schemathesis,
    slow, varnish,
};
use crate::{
    cassandra::{Server, network},
    documentation::{self, RUSTDOC_FLAGS},
    process::{
        EVERYTHING, Finished, cargo_command, cargo_with_clippy, formatting_command, log_file, run_logged,
    },
    tools::Tool,
};

/// The time after which a step's command hangs. The longest one of `cargo xtask nightly` takes hours.
const STEP_LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

/// The number of tests of a program that run at once. Many wait for a disk, a timer or another process, so that two
/// would leave cores idle.
const TEST_THREADS: &str = "3";

/// The variable by which tests find MediaWiki's files.
const FOR_MEDIAWIKI: &str = "RASHOMON_TEST_MEDIAWIKI";

/// A tool or a node that a step needs.
pub(super) enum Need {
    /// The tool without which the step cannot run.
    Everything(Tool),
    /// The tool without which only this part of the step cannot run.
    Part(Tool, &'static str),
    /// The step needs a Cassandra node.
    Node,
}

/// A step of `cargo xtask test`.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) lanes: &'static [Lane],
    pub(super) needs: &'static [Need],
    pub(super) run: fn(&mut StepResources) -> Result<Outcome>,
}

impl Step {
    pub(super) fn needs_a_node(&self) -> bool {
        self.needs.iter().any(|need| matches!(need, Need::Node))
    }
}

const BOTH: &[Lane] = &[Lane::Test, Lane::Nightly];

pub(super) const STEPS: &[Step] = &[
    Step { name: "fmt", about: "the code is formatted", lanes: BOTH, needs: &[], run: fmt },
    Step {
        name: "tidy",
        about: "imports between folders, sizes, links, decisions",
        lanes: BOTH,
        needs: &[],
        run: tidy,
    },
    Step {
        name: "deny",
        about: "licences, sources and versions of dependencies",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::CargoDeny)],
        run: deny,
    },
    Step {
        name: "build",
        about: "every program and every test compiles, without a warning of rustc or clippy",
        lanes: BOTH,
        needs: &[],
        run: build,
    },
    Step {
        name: "doc",
        about: "the documentation of the libraries builds, its links work",
        lanes: BOTH,
        needs: &[],
        run: doc,
    },
    Step {
        name: "test",
        about: "unit, integration and documentation tests",
        lanes: BOTH,
        needs: &[
            Need::Part(Tool::TestData, "whole wikis"),
            Need::Part(Tool::Xmllint, "validation of exports"),
            Need::Part(Tool::SevenZip, "7z archives as others write them"),
            Need::Part(Tool::RedisServer, "the timeline in Redis"),
            Need::Part(Tool::Php, "rendering by MediaWiki"),
            Need::Part(Tool::MediaWiki, "rendering by MediaWiki"),
        ],
        run: test,
    },
    Step {
        name: "cassandra",
        about: "tests of the Cassandra store, on a real node",
        lanes: BOTH,
        needs: &[Need::Node],
        run: cassandra::run,
    },
    Step {
        name: "cluster",
        about: "tests of the service, HTTP, dumps and key-value buckets again, on a Cassandra node",
        lanes: BOTH,
        needs: &[Need::Node],
        run: cassandra::run_on_any_store,
    },
    Step {
        name: "retention",
        about: "random histories, compared with a model of the promises of retention",
        lanes: BOTH,
        needs: &[],
        run: retention,
    },
    Step {
        name: "damage",
        about: "damaged stores answer correctly, or report the damage",
        lanes: BOTH,
        needs: &[],
        run: damage,
    },
    Step {
        name: "kill",
        about: "kill -9 under load loses no acknowledged write",
        lanes: BOTH,
        needs: &[],
        run: kill,
    },
    Step {
        name: "demo",
        about: "the demo starts, and the commands that it prints work",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::Curl)],
        run: demo::run,
    },
    Step {
        name: "php",
        about: "the PHP client, on several versions of PHP and against the service",
        lanes: BOTH,
        needs: &[
            Need::Everything(Tool::PhpCurl),
            Need::Part(Tool::PhpWasm, "the versions of PHP that this machine does not have"),
        ],
        run: php::run,
    },
    Step {
        name: "clients",
        about: "clients in Java, PHP and Python follow redirects and find the states of pages",
        lanes: BOTH,
        needs: &[
            Need::Part(Tool::Jdk, "redirects in Java"),
            Need::Part(Tool::PhpCurl, "redirects in PHP"),
            Need::Part(Tool::MementoClients, "time travel in Python"),
        ],
        run: clients::run,
    },
    Step {
        name: "browser",
        about: "the HTML pages render in a browser, and pages of other origins cannot write",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::Chromium), Need::Everything(Tool::Curl)],
        run: browser::run,
    },
    Step {
        name: "nginx",
        about: "docs/access.md leads to a public wiki with one writer, by itself and behind nginx",
        lanes: BOTH,
        needs: &[
            Need::Everything(Tool::Nginx),
            Need::Everything(Tool::Curl),
            Need::Everything(Tool::Openssl),
        ],
        run: nginx::run,
    },
    Step {
        name: "varnish",
        about: "docs/varnish.vcl in a real Varnish: its rules, and no old version after a purge",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::Varnish)],
        run: varnish::run,
    },
    Step {
        name: "schemathesis",
        about: "the API answers made-up requests as /openapi.json says",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::Schemathesis)],
        run: schemathesis::run,
    },
    Step {
        name: "slow",
        about: "hundreds of slow heads, bodies and readers do not delay other clients",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::SlowHttpTest)],
        run: slow::run,
    },
    Step {
        name: "faults",
        about: "three nodes of Cassandra under load, and one fault after another",
        lanes: BOTH,
        needs: &[Need::Everything(Tool::Ip), Need::Everything(Tool::Nft)],
        run: faults,
    },
    Step {
        name: "million",
        about: "the benchmark of many short pages, with 100,000 pages",
        lanes: &[Lane::Nightly],
        needs: &[],
        run: million,
    },
    Step {
        name: "fuzz",
        about: "every fuzz target, for five minutes each",
        lanes: &[Lane::Nightly],
        needs: &[],
        run: fuzz,
    },
];

/// The service that the step `build` built.
pub(super) fn binary() -> PathBuf {
    crate::target().join("debug/rashomon")
}

fn fmt(_: &mut StepResources) -> Result<Outcome> {
    run_command("fmt", formatting_command(), |_| true, |_| String::new())
}

fn tidy(_: &mut StepResources) -> Result<Outcome> {
    Ok(if crate::tidy::run(crate::root())? {
        Outcome::Passed(String::new())
    } else {
        Outcome::Failed("see above".into())
    })
}

fn doc(resources: &mut StepResources) -> Result<Outcome> {
    let command = match resources.lane {
        Lane::Test => documentation::check_command(&crate::target().join("debug/xtask"))?,
        Lane::Nightly => {
            let mut command = cargo_command();
            command.arg("doc").args(EVERYTHING).args(["--no-deps", "--document-private-items"]);
            command.env("RUSTDOCFLAGS", RUSTDOC_FLAGS.join(" "));
            command
        }
    };
    run_command("doc", command, is_no_progress, |_| String::new())
}

fn deny(resources: &mut StepResources) -> Result<Outcome> {
    let mut command = Command::new(resources.toolbox.fetch(Tool::CargoDeny)?);
    command.args(["--all-features", "--locked", "check", "bans", "licenses", "sources"]);
    run_command("deny", command, |_| true, |_| String::new())
}

fn build(_: &mut StepResources) -> Result<Outcome> {
    let mut command = cargo_with_clippy("build")?;
    command.arg("--all-targets");
    let warnings = |lines: &[String]| lines.iter().filter(|line| is_warning(line)).count().to_string();
    // Warnings are not compile errors, so that the tests still run. Cargo repeats the warnings of crates that
    // it does not compile again.
    Ok(match run_command("build", command, is_no_progress, warnings)? {
        Outcome::Passed(warnings) if warnings == "0" => Outcome::Passed(String::new()),
        Outcome::Passed(warnings) => Outcome::Failed(format!("{warnings} lines of warnings, see above")),
        other => other,
    })
}

fn is_warning(line: &str) -> bool {
    line.starts_with("warning:") || line.starts_with("warning[")
}

fn test(resources: &mut StepResources) -> Result<Outcome> {
    let mut command = cargo_with_clippy("test")?;
    if let Ok(files) = resources.toolbox.fetch(Tool::MediaWiki) {
        command.env(FOR_MEDIAWIKI, files);
    }
    let (variable, elsewhere) = cassandra::ELSEWHERE;
    command.arg("--no-fail-fast").env(variable, elsewhere).env("RUST_TEST_THREADS", TEST_THREADS);
    if resources.lane == Lane::Nightly {
        command.env("RASHOMON_KILL_ROUNDS", "60");
    }
    run_test_command("test", command)
}

/// Runs tests. Passed tests are counted but not shown.
pub(super) fn run_test_command(name: &str, command: Command) -> Result<Outcome> {
    run_command(
        name,
        command,
        |line| is_no_progress(line) && !line.ends_with(" ... ok"),
        |lines| {
            let passed: u64 = lines.iter().filter_map(|line| passed_tests(line)).sum();
            format!("{passed} tests")
        },
    )
}

/// Runs random histories. The seed is fixed, so that a change is not stopped by an unrelated failure.
fn retention(resources: &mut StepResources) -> Result<Outcome> {
    let amounts = match resources.lane {
        Lane::Test => [("memory", "1000"), ("sqlite", "60")],
        Lane::Nightly => [("memory", "100000"), ("sqlite", "6000")],
    };
    let mut remarks = Vec::new();
    for (store, histories) in amounts {
        let mut command = Command::new(crate::target().join("debug/rashomon-simulate"));
        command.args(["--store", store, "--histories", histories]);
        match run_command(&format!("retention-{store}"), command, |_| true, |_| String::new())? {
            Outcome::Passed(_) => remarks.push(format!("{histories} in {store}")),
            other => return Ok(other),
        }
    }
    Ok(Outcome::Passed(remarks.join(", ")))
}

/// Damages stores, in the same order each time.
fn damage(resources: &mut StepResources) -> Result<Outcome> {
    let amount: &[&str] = match resources.lane {
        Lane::Test => &["--stores", "1500", "--seconds", "45"],
        Lane::Nightly => &["--stores", "10000"],
    };
    let mut command = Command::new(crate::target().join("debug/rashomon-damage"));
    command.args(["--seed", "1"]).args(amount).arg("--program").arg(binary());
    let remark = |lines: &[String]| {
        lines.iter().rev().find(|line| line.contains(" damaged stores ")).cloned().unwrap_or_default()
    };
    run_command("damage", command, |line| !line.starts_with("base "), remark)
}

fn kill(resources: &mut StepResources) -> Result<Outcome> {
    let (rounds, remark): (_, fn(&[String]) -> String) = match resources.lane {
        Lane::Test => ("3", |_| "3 rounds".to_owned()),
        Lane::Nightly => ("100", |_| "100 rounds".to_owned()),
    };
    let mut command = Command::new(crate::target().join("debug/xtask-bench"));
    command.args(["kill", "--rounds", rounds, "--binary"]).arg(binary());
    run_command("kill", command, |_| true, remark)
}

fn faults(resources: &mut StepResources) -> Result<Outcome> {
    if let Err(reason) = Server::fetch(&mut resources.toolbox).and_then(|_| network::check_support()) {
        return if resources.toolbox.must_have_all() {
            Err(reason)
        } else {
            Ok(Outcome::Skipped(format!("{reason:#}")))
        };
    }
    let mut command = Command::new(crate::target().join("debug/xtask"));
    command.args(["cassandra", "faults", "--binary"]).arg(binary());
    if resources.lane == Lane::Test {
        // A node that dies, and a ring without a quorum: together they show whether acknowledged writes are on a
        // quorum, and whether a write with an unknown outcome is stored once. The other faults are variants of these.
        command.args(["--only", "kill", "--only", "quorum", "--repair"]);
    }
    run_command("faults", command, |_| true, |_| String::new())
}

/// Measures many short pages. The other steps build without optimization; this one builds the packaged profile.
fn million(_: &mut StepResources) -> Result<Outcome> {
    let mut command = Command::new(crate::target().join("debug/xtask"));
    command.args(["bench", "million", "--pages", "100000"]);
    run_command("million", command, |_| true, |_| String::new())
}

/// Fuzzes each target for five minutes.
fn fuzz(_: &mut StepResources) -> Result<Outcome> {
    let mut command = Command::new(crate::target().join("debug/xtask"));
    command.args(["fuzz", "--seconds", "300"]);
    run_command("fuzz", command, |line| !line.starts_with('#'), |_| String::new())
}

/// Whether a line is more than a report that a task is in progress.
fn is_no_progress(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    let progress = [
        "Compiling",
        "Checking",
        "Downloading",
        "Downloaded",
        "Documenting",
        "Blocking",
        "Doc-tests",
        "Updating",
        "running",
    ];
    !word.is_empty() && !progress.contains(&word)
}

/// The number of passed tests in a closing line: `test result: ok. 12 passed; 0 failed; ...`.
fn passed_tests(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("test result: ")?;
    let (before, _) = counts.split_once(" passed;")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn run_command(
    name: &str,
    mut command: Command,
    worth_showing: fn(&str) -> bool,
    remark: fn(&[String]) -> String,
) -> Result<Outcome> {
    command.current_dir(crate::root()).env("CARGO_TERM_COLOR", "never");
    let Finished { status, log, shown } = run_logged(command, &log_file(name), STEP_LIMIT, worth_showing)?;
    Ok(if status.success() {
        Outcome::Passed(remark(&shown))
    } else {
        Outcome::Failed(format!(
            "{status}; the whole output is in {}",
            log.strip_prefix(crate::root()).unwrap_or(&log).display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_of_closing_lines_are_counted() {
        assert_eq!(passed_tests("test result: ok. 12 passed; 0 failed; 1 ignored"), Some(12));
        assert_eq!(passed_tests("test result: FAILED. 3 passed; 1 failed; 1 ignored"), Some(3));
        assert_eq!(passed_tests("test a ... ok"), None);
    }

    #[test]
    fn progress_is_not_shown_and_failures_are() {
        assert!(!is_no_progress("   Compiling a v0.1.0"));
        assert!(!is_no_progress("running 3 tests"));
        assert!(is_no_progress("test a ... FAILED"));
        assert!(is_no_progress("assertion `left == right` failed"));
    }

    #[test]
    fn warnings_of_rustc_and_clippy_are_recognized() {
        assert!(is_warning("warning: unneeded `return` statement"));
        assert!(is_warning("warning: `rashomon-clock` (lib) generated 1 warning"));
        assert!(!is_warning("   --> crates/clock/src/lib.rs:194:34"));
        assert!(!is_warning("    Finished `dev` profile"));
    }

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let mut names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
