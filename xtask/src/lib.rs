//! The library of the project's own commands.
//!
//! Nothing here is part of the service, and this package does not depend on the service's crates. The package
//! `xtask-bench` depends on some of them.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

pub mod cassandra;
pub mod check;
pub mod documentation;
pub mod documents;
pub mod fuzz;
pub mod http;
mod preload;
pub mod process;
mod programs;
pub mod same;
pub mod service;
pub mod test;
pub mod tidy;
mod tools;
pub mod varnish;

use std::path::Path;

use anyhow::{Context, Result};

/// The root of the workspace.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The folder of the real data for tests and measurements: `RASHOMON_TEST_DATA`, or else `../shared/data`
/// beside the workspace.
#[must_use]
pub fn test_data() -> std::path::PathBuf {
    std::env::var_os("RASHOMON_TEST_DATA").map_or_else(|| root().join("../shared/data"), Into::into)
}

/// The folder of cargo's build output.
#[must_use]
pub fn target() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The profile of packages and benchmarks.
pub const DIST: &str = "dist";

/// Builds the benchmarks with the profile of packages, and runs them with these arguments. Most benchmarks build the
/// service with the same profile.
pub fn bench(arguments: &[String]) -> Result<bool> {
    let status = process::cargo_command()
        .args(["run", "--quiet", "--profile", DIST, "--package", "xtask-bench", "--"])
        .args(arguments)
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}

/// Builds the service and the program that damages stores, and runs the latter with these arguments.
pub fn damage(arguments: &[String]) -> Result<bool> {
    let mut build = process::cargo_command();
    build.args(["build", "--quiet", "--release", "--package", "rashomon"]).current_dir(root());
    if !build.status().context("cannot start cargo")?.success() {
        return Ok(false);
    }
    let service = target().join("release/rashomon").display().to_string();
    run_testing("rashomon-damage", &[&["--program".to_owned(), service], arguments].concat())
}

/// Builds the simulation and runs it with these arguments.
pub fn simulate(arguments: &[String]) -> Result<bool> {
    run_testing("rashomon-simulate", arguments)
}

/// Builds the program that compares the strategies of retention, and runs it with these arguments.
pub fn compare_strategies(arguments: &[String]) -> Result<bool> {
    run_testing("rashomon-compare-strategies", arguments)
}

/// Builds a program of `rashomon-testing`, and runs it with these arguments, where the user is.
fn run_testing(program: &str, arguments: &[String]) -> Result<bool> {
    let manifest = root().join("Cargo.toml");
    let status = process::cargo_command()
        .args(["run", "--quiet", "--release", "--manifest-path"])
        .arg(manifest)
        .args(["--package", "rashomon-testing", "--features", "programs", "--bin", program, "--"])
        .args(arguments)
        .status()
        .context("cannot start cargo")?;
    Ok(status.success())
}
