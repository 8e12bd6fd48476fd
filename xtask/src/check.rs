//! `cargo xtask check`: what can be checked of a change within minutes.
//!
//! The build is that of `cargo xtask test`, so neither command makes the other one compile anything again.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    process::{Stopwatch, formatting_command, log_file, run_logged},
    programs::{self, Packages, TestProgram},
    test::ELSEWHERE,
};

/// The number of test programs that run at once. Many tests wait for a disk or for a timer.
const PROGRAMS_AT_ONCE: usize = 3;
/// The time limit of a test program.
const PROGRAM_LIMIT: Duration = Duration::from_secs(10 * 60);
/// The number of programs in the list of the slowest ones.
const SHOWN_PROGRAMS: usize = 5;

/// Tests that take longer than a few seconds. `cargo xtask test` runs them.
const SLOW_TESTS: &[&str] = &[
    "_kill",
    "access::matrix::",
    "access::reading::",
    "archive::batches::",
    "archive::bounds::",
    "archive::compaction::",
    "archive::damage::",
    "archive::erasing::",
    "archive::faults::",
    "archive::histories::",
    "archive_by_default::",
    "archive_kills::",
    "backing_up::",
    "batches::same::",
    "damaged::",
    "damaged_store",
    "earlier_stores::",
    "every_store::",
    "exporting::",
    "migrating::",
    "migration::",
    "properties::",
    "random",
    "real_data::",
    "retaining::",
    "staging::in_memory::",
    "upgrading::",
    "vacuuming::",
];

/// Packages with tests that read documents and other files outside of all packages.
const READ_DOCUMENTS: &[&str] = &["rashomon", "rashomon-server", "xtask"];

/// Files outside of all packages on which every package depends.
const OF_ALL_PACKAGES: &[&str] = &["Cargo.toml", "Cargo.lock", "clippy.toml", ".cargo/config.toml"];

/// What to compare the work tree with.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Check what has changed since this commit. By default: since the upstream branch, if there is one, else since
    /// the last commit.
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
}

/// Runs the checks, and prints what each of them took. Returns whether all passed.
pub fn run(options: &Options) -> Result<bool> {
    let whole = Stopwatch::start();
    let files = changed_files(options.since.as_deref())?;
    let packages = Packages::load()?;
    let changed = changed_packages(&files, &packages);
    println!("{} changed files, in the packages: {}", files.len(), listed(&changed));
    let checked = packages.with_users(changed);

    let mut passed = timed("fmt", formatting)?;
    passed &= timed("tidy", || crate::tidy::run(crate::root()))?;
    let mut found = Vec::new();
    passed &= timed("build", || {
        let built = programs::build()?;
        built.diagnostics.iter().for_each(|text| print!("{text}"));
        found = built.programs;
        Ok(built.succeeded && built.diagnostics.is_empty())
    })?;
    if passed {
        found.retain(|program| checked.contains(&program.package));
        passed = timed("tests", || run_programs(&found))?;
    } else {
        println!("The tests were not run.");
    }
    println!(
        "check: {} after {:.0} s",
        if passed { "passed" } else { "FAILED" },
        whole.elapsed().as_secs_f64()
    );
    Ok(passed)
}

/// Runs one check, and prints its name, result and time.
fn timed(name: &str, check: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let clock = Stopwatch::start();
    let passed = check()?;
    let result = if passed { "passed" } else { "FAILED" };
    println!("{name:<6} {result}, {:.1} s", clock.elapsed().as_secs_f64());
    Ok(passed)
}

fn formatting() -> Result<bool> {
    Ok(formatting_command().status().context("cannot start cargo fmt")?.success())
}

/// The files that differ from a commit, and the new ones, with their full paths.
fn changed_files(since: Option<&str>) -> Result<Vec<PathBuf>> {
    let base = match since {
        Some(commit) => commit.to_owned(),
        None => match git(&["merge-base", "HEAD", "@{upstream}"]) {
            Ok(commit) => commit.trim().to_owned(),
            Err(_) => "HEAD".to_owned(),
        },
    };
    let differing = git(&["diff", "--name-only", "--no-renames", &base, "--"])?;
    let new = git(&["ls-files", "--others", "--exclude-standard", "--full-name"])?;
    Ok(differing.lines().chain(new.lines()).map(|path| crate::root().join(path)).collect())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(crate::root()).output();
    let output = output.context("cannot start git, which tells what has changed")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages to which changed files belong.
fn changed_packages(files: &[PathBuf], packages: &Packages) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for file in files {
        if let Some(package) = packages.of_file(file) {
            changed.insert(package.to_owned());
        } else if OF_ALL_PACKAGES.iter().any(|path| crate::root().join(path) == *file) {
            return packages.names();
        } else {
            changed.extend(READ_DOCUMENTS.iter().map(|&name| name.to_owned()));
        }
    }
    changed
}

fn listed(names: &BTreeSet<String>) -> String {
    if names.is_empty() { "none".to_owned() } else { names.iter().cloned().collect::<Vec<_>>().join(", ") }
}

/// Runs the quick tests of these programs, several programs at once.
fn run_programs(found: &[TestProgram]) -> Result<bool> {
    let waiting = Mutex::new(found.iter());
    let times = Mutex::new(Vec::new());
    let run_some = || -> Result<bool> {
        let mut passed = true;
        loop {
            let Some(program) = waiting.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                return Ok(passed);
            };
            let clock = Stopwatch::start();
            passed &= run_quick_tests(program)?;
            let time = clock.elapsed();
            times.lock().unwrap_or_else(PoisonError::into_inner).push((time, program));
        }
    };
    let passed = thread::scope(|scope| {
        let runners: Vec<_> = (0..PROGRAMS_AT_ONCE).map(|_| scope.spawn(run_some)).collect();
        runners.into_iter().try_fold(true, |passed, runner| {
            let ran = runner.join().unwrap_or_else(|_| bail!("a thread that runs tests panicked"))?;
            Ok::<_, anyhow::Error>(passed & ran)
        })
    })?;
    let mut times = times.into_inner().unwrap_or_else(PoisonError::into_inner);
    times.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    for (time, program) in times.iter().take(SHOWN_PROGRAMS) {
        println!("    {:.1} s: {} {}", time.as_secs_f64(), program.package, program.target);
    }
    Ok(passed)
}

fn run_quick_tests(program: &TestProgram) -> Result<bool> {
    let mut command = program.command();
    let (variable, elsewhere) = ELSEWHERE;
    command.env(variable, elsewhere).arg("--quiet");
    for test in SLOW_TESTS {
        command.args(["--skip", test]);
    }
    let log = log_file(&format!("check-{}-{}", program.package, program.target));
    Ok(run_logged(command, &log, PROGRAM_LIMIT, |_| false)?.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{programs::selects_a_test, tidy::Tree};

    #[test]
    fn slow_tests_exist() {
        let tree = Tree::load(crate::root()).unwrap();
        let sources: String = tree.ending(".rs").map(|(_, text)| text).collect();
        for part in SLOW_TESTS {
            assert!(selects_a_test(part, &sources), "no test has {part} in its path");
        }
    }

    #[test]
    fn files_outside_of_packages_concern_their_readers_or_all() {
        let packages = Packages::load().unwrap();
        let changed = |path: &str| changed_packages(&[crate::root().join(path)], &packages);
        assert_eq!(changed("crates/clock/src/lib.rs"), BTreeSet::from(["rashomon-clock".to_owned()]));
        assert_eq!(changed("xtask/src/tidy/mod.rs"), BTreeSet::from(["xtask".to_owned()]));
        assert!(changed("docs/archive.md").contains("rashomon"));
        assert_eq!(changed("Cargo.lock"), packages.names());
        let all = packages.names();
        assert!(READ_DOCUMENTS.iter().all(|name| all.contains(*name)), "{READ_DOCUMENTS:?} of {all:?}");
    }
}
