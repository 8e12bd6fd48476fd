//! Runs the fuzz targets, one after another.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use toml::Table;

use crate::{
    process::{cargo_command, find_program},
    root,
};

/// The version of cargo-fuzz that is built if none is installed.
const CARGO_FUZZ: &str = "0.13.2";

/// The memory limit of a target in MiB, including the memory of the sanitizer.
const MAX_MEMORY_MIB: u32 = 1024;
/// The limit of a single allocation of a target in MiB. The targets' own limits are 16 MiB.
const MAX_ALLOCATION_MIB: u32 = 64;
/// The time limit of an input in seconds. A slower input is a failure.
const MAX_SECONDS_OF_AN_INPUT: u32 = 20;
/// The largest input, in bytes.
const MAX_INPUT_BYTES: u32 = 1 << 16;

/// The targets to fuzz, and the time limit.
#[derive(Debug, Args)]
pub struct Options {
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,

    /// Fuzz only this target; may be given several times
    #[arg(long = "target", value_name = "NAME")]
    targets: Vec<String>,
}

/// Fuzzes each target until its time is over. Returns `false` if a target failed.
pub fn run(options: &Options) -> Result<bool> {
    let known = targets(&fs::read_to_string(root().join("fuzz/Cargo.toml"))?)?;
    if let Some(unknown) = options.targets.iter().find(|name| !known.contains(name)) {
        bail!("there is no target {unknown}; there are {}", known.join(", "));
    }
    let program = cargo_fuzz()?;
    let mut failed = Vec::new();
    for name in known.iter().filter(|name| options.targets.is_empty() || options.targets.contains(name)) {
        println!("{name}: {} s", options.seconds);
        let status = command(&program, name, options.seconds)?.status().context("cannot start cargo-fuzz")?;
        if !status.success() {
            failed.push(name.as_str());
        }
    }
    for name in &failed {
        println!(
            "{name} failed, see above. If fuzz/artifacts/{name} has a new input, copy the input to \
             fuzz/crashes/{name}, where `cargo test -p rashomon-testing --all-features` runs it, and mend the defect"
        );
    }
    Ok(failed.is_empty())
}

/// Checks that there is a C++ compiler. Finds cargo-fuzz in the path or below `target`, or else builds it there.
fn cargo_fuzz() -> Result<PathBuf> {
    if !["c++", "g++", "clang++"].iter().any(|name| find_program(name).is_some()) {
        bail!("a C++ compiler is missing, which the fuzzer is built with: install g++ or clang");
    }
    let own = crate::target().join("tools").join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    let own_program = own.join("bin/cargo-fuzz");
    for program in find_program("cargo-fuzz").into_iter().chain([own_program.clone()]) {
        let version = Command::new(&program).arg("--version").output();
        if version.is_ok_and(|version| version.status.success()) {
            return Ok(program);
        }
    }
    println!("cargo install cargo-fuzz {CARGO_FUZZ}");
    let mut command = cargo_command();
    command.args(["install", "--locked", "cargo-fuzz", "--version", CARGO_FUZZ, "--root"]).arg(&own);
    if !command.status().context("cannot start cargo")?.success() {
        bail!("cargo-fuzz {CARGO_FUZZ} is missing, and `cargo install` cannot build it: see above");
    }
    Ok(own_program)
}

/// The names of the programs in the manifest of `fuzz`.
fn targets(manifest: &str) -> Result<Vec<String>> {
    let manifest: Table = manifest.parse()?;
    let programs = manifest.get("bin").and_then(|programs| programs.as_array());
    let name = |program: &toml::Value| Some(program.get("name")?.as_str()?.to_owned());
    Ok(programs.into_iter().flatten().filter_map(name).collect())
}

/// The command that fuzzes one target. New inputs go to `fuzz/corpus`, which is not in the repository.
fn command(program: &Path, name: &str, seconds: u32) -> Result<Command> {
    let corpus = format!("fuzz/corpus/{name}");
    fs::create_dir_all(root().join(&corpus)).with_context(|| format!("cannot make {corpus}"))?;
    let others = [format!("fuzz/seeds/{name}"), format!("fuzz/crashes/{name}")];
    let mut command = Command::new(program);
    // A stable compiler then accepts the unstable flags of the sanitizer.
    command.current_dir(root()).env("RUSTC_BOOTSTRAP", "1").args(["run", name, &corpus]);
    command.args(others.iter().filter(|folder| Path::new(root()).join(folder).is_dir()));
    command.args([
        "--",
        &format!("-max_total_time={seconds}"),
        &format!("-rss_limit_mb={MAX_MEMORY_MIB}"),
        &format!("-malloc_limit_mb={MAX_ALLOCATION_MIB}"),
        &format!("-timeout={MAX_SECONDS_OF_AN_INPUT}"),
        &format!("-max_len={MAX_INPUT_BYTES}"),
        "-print_final_stats=1",
    ]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_programs_of_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n[[bin]]\nname = \"a\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest).unwrap(), ["a", "b"]);
        assert!(targets("[package]\n").unwrap().is_empty());
    }

    #[test]
    fn every_run_is_bounded() {
        let command = command(Path::new("cargo-fuzz"), "xml", 7).unwrap();
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_str().unwrap()).collect();
        for bound in ["-max_total_time=7", "-rss_limit_mb=1024", "-malloc_limit_mb=64"] {
            assert!(arguments.contains(&bound), "{arguments:?}");
        }
    }
}
