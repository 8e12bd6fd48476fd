//! Tests the PHP client: all its tests on the PHP of this machine, and those that start no servers on other
//! versions.

use std::{ffi::OsStr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::{Outcome, resources::StepResources, steps};
use crate::{
    process::{find_program, log_file, run_logged},
    service::Service,
    tools::Tool,
};

/// The file that runs the tests.
const SUITE: &str = "clients/php/tests/run.php";

/// The ways in which the client sends requests.
const TRANSPORTS: [&str; 2] = ["curl", "streams"];

/// The other versions of PHP, in Node.js: the oldest that the client supports, and later ones. PHP in Node.js cannot
/// start a server for the tests, so the step starts a service for each version.
const OTHER_VERSIONS: [&str; 3] = ["7.4", "8.1", "8.3"];

/// The variable that selects the version of the PHP that is built for Node.js.
const VERSION: &str = "PHP";

/// The time limit of one run of the tests.
const RUN_LIMIT: Duration = Duration::from_secs(5 * 60);

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let php = resources.toolbox.fetch(Tool::PhpCurl)?;
    let mut runs = Vec::new();
    for transport in TRANSPORTS {
        let mut command = suite(&php, &[]);
        command.arg("--server").arg(steps::binary()).args(["--transport", transport]);
        runs.push((transport, command));
    }
    let mut services = Vec::new();
    if let Ok(program) = resources.toolbox.fetch(Tool::PhpWasm) {
        let node = find_program("node").context("Node.js is missing")?;
        for version in OTHER_VERSIONS {
            let log = log_file(&format!("php-{version}-service"));
            let service = Service::start(&steps::binary(), &["serve", "--store", "memory:"], &log)?;
            let mut command = suite(&node, &[program.as_os_str()]);
            command.arg("--url").arg(format!("http://{}", service.address())).env(VERSION, version);
            runs.push((version, command));
            services.push(service);
        }
    }
    let mut remarks = Vec::new();
    for (name, command) in runs {
        let log = log_file(&format!("php-{name}"));
        let finished = run_logged(command, &log, RUN_LIMIT, |_| true)?;
        match passed_tests(&finished.shown) {
            // PHP for Node.js ends with success whatever the status of the program, so the totals count too.
            Some(passed) if finished.status.success() => remarks.push(format!("{name}: {passed}")),
            _ => return Ok(Outcome::Failed(format!("{name}; the whole output is in {}", log.display()))),
        }
    }
    Ok(Outcome::Passed(format!("tests with {}", remarks.join(", "))))
}

fn suite(program: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(crate::root()).args(arguments).arg(crate::root().join(SUITE));
    command
}

/// The number of passed tests, if the last totals say that no test failed: `12 passed, 0 failed`.
fn passed_tests(lines: &[String]) -> Option<u64> {
    let totals = lines.iter().rev().find(|line| line.ends_with(" failed"))?;
    totals.strip_suffix(" passed, 0 failed")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_without_failures_are_counted() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(passed_tests(&lines("PHP 7.4.33\n12 passed, 0 failed\na remark")), Some(12));
        assert_eq!(passed_tests(&lines("PHP 7.4.33\n11 passed, 1 failed")), None);
        assert_eq!(passed_tests(&lines("PHP Fatal error: memory")), None);
    }
}
