//! Checks the documentation of the code with the libraries that the build has made.
//!
//! `cargo doc` compiles all dependencies once more, without their code, which takes longer than the documentation
//! itself. `cargo test --doc` uses the libraries of the build. So this program takes the place of `rustdoc` there, and
//! passes the arguments on, with those for tests replaced by those for checking links.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use crate::process::{beside_cargo, cargo_with_clippy};

/// The variable that makes this program take the place of `rustdoc`. Its value has no meaning.
const IN_PLACE_OF_RUSTDOC: &str = "RASHOMON_XTASK_AS_RUSTDOC";

/// What `rustdoc` checks. These pages are for developers, so private items are documented, and links to them are
/// allowed.
pub(crate) const RUSTDOC_FLAGS: [&str; 4] = ["-D", "warnings", "-A", "rustdoc::private-intra-doc-links"];

/// The command that checks the documentation of every library. `program` is this program.
pub(crate) fn check_command(program: &std::path::Path) -> Result<Command> {
    let mut command = cargo_with_clippy("test")?;
    command.args(["--doc", "--no-fail-fast"]).env("RUSTDOC", program).env(IN_PLACE_OF_RUSTDOC, "1");
    Ok(command)
}

/// Runs `rustdoc` if cargo has called this program in its place, and returns its exit code.
#[must_use]
pub fn run_in_place_of_rustdoc() -> Option<ExitCode> {
    std::env::var_os(IN_PLACE_OF_RUSTDOC)?;
    Some(match check(std::env::args_os().skip(1)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn check(arguments: impl Iterator<Item = OsString>) -> Result<bool> {
    let mut command = Command::new(beside_cargo("rustdoc").context("rustdoc is missing")?);
    command.args(without_tests(arguments)).args([
        "--document-private-items",
        "-Zunstable-options",
        "--check",
    ]);
    // The option `--check`, which writes no pages, is not stable yet.
    command.args(RUSTDOC_FLAGS).env("RUSTC_BOOTSTRAP", "1");
    Ok(command.status().context("cannot start rustdoc")?.success())
}

/// The arguments of `rustdoc` without those that make it run tests.
fn without_tests(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--test" | "--no-run") => {}
            Some("--test-run-directory" | "--test-args") => drop(arguments.next()),
            _ => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_tests_are_left_out() {
        let given = ["--edition=2024", "--test", "src/lib.rs", "--test-run-directory", "/w", "--cfg", "x"];
        let kept = without_tests(given.into_iter().map(OsString::from));
        assert_eq!(kept, ["--edition=2024", "src/lib.rs", "--cfg", "x"]);
    }
}
