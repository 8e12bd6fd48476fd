//! `cargo xtask calls`: the functions of this project that one request calls, by callgrind.
//!
//! Each kind of request is recorded several times, after other requests that warm up the server. Callgrind
//! records nothing in between. Background work does not count: functions that also run without a request are
//! removed, unless other functions call them during the request.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

mod callgrind;
mod count;
mod functions;
mod report;
mod requests;
mod server;
mod symbol;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum as _};
use xtask::process;

use self::{
    count::{FunctionCounts, Sources, count},
    report::Report,
    requests::Kind,
    server::{Server, check_valgrind},
};

/// Print the number of functions of this project that one request calls, by callgrind.
///
/// Closures count with their function. Two kinds of functions are counted separately: getters, and code that
/// macros generate. A getter takes `self`, has one expression as its body, and calls only these two kinds of
/// functions of this project. A function that also runs without a request counts only if another function
/// calls it during the request. Also prints costs of the whole process: instructions, allocations, steps of
/// SQL statements, and written bytes.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask calls", bin_name = "cargo xtask calls")]
struct Options {
    /// Measure this program instead of building one. Optimization removes functions, so build it without
    /// optimization, unless only its costs matter
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// The sources to build [default: this checkout], or the sources of `--program` [default: the folder
    /// where it was built]
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,

    /// Only this kind of request; may be given several times
    #[arg(long = "only", value_name = "KIND")]
    kinds: Vec<Kind>,

    /// Print each function
    #[arg(long)]
    list: bool,

    /// Write the result to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The number of warm-up requests before each recording. These requests do the work that only the first request does,
/// or the first request after an idle time.
const WARM_UP: usize = 2;

/// The number of recordings of each kind of request.
const RECORDINGS: usize = 3;

/// The time for which a recording continues after the answer, so that it contains work after the answer.
const AFTER_ANSWER: Duration = Duration::from_millis(500);

/// The duration of a recording without a request. It must contain one run of each background loop that may
/// also run in another recording: the SQLite store looks for work each second.
const IDLE: Duration = Duration::from_millis(2_500);

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the requests, and prints the result.
fn run(options: &Options) -> Result<()> {
    check_valgrind()?;
    let checkout = options.checkout.as_deref();
    let (program, sources) = match &options.program {
        Some(program) => (program.clone(), checkout),
        None => {
            let checkout = checkout.unwrap_or(xtask::root());
            (build(checkout)?, Some(checkout))
        }
    };
    let program = fs::canonicalize(&program).with_context(|| format!("no program {}", program.display()))?;
    let mut sources = Sources::new(sources);
    let mut reports = Vec::new();
    for kind in Kind::value_variants() {
        if options.kinds.is_empty() || options.kinds.contains(kind) {
            let report = measure(*kind, &program, &mut sources)?;
            report.print(options.list);
            reports.push(report);
        }
    }
    for file in sources.missing() {
        eprintln!("{file} was not found; its getters and generated functions count too");
    }
    if let Some(file) = &options.json {
        let json = report::to_json(&program, &reports);
        fs::write(file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

fn measure(kind: Kind, program: &Path, sources: &mut Sources) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    kind.prepare(program, folder.path())?;
    let mut server = Server::start(program, folder.path(), kind.settings())?;
    let mut requests = (0..).map(|number| kind.request(number));
    let first = if kind == Kind::Archived {
        server.wait_until_idle()?;
        Some(record(&mut server, &mut requests, sources)?)
    } else {
        None
    };
    warm_up(&mut server, &mut requests)?;
    server.wait_until_idle()?;
    let idle = count(&server.record(|_| Ok(()), IDLE)?, sources);
    let mut recordings: Vec<FunctionCounts> = Vec::new();
    for _ in 0..RECORDINGS {
        warm_up(&mut server, &mut requests)?;
        recordings.push(record(&mut server, &mut requests, sources)?.without(&idle));
    }
    Ok(Report { kind, idle, first, recordings })
}

/// A request, and the status of its answer.
type Request = (Vec<u8>, u16);

fn warm_up(server: &mut Server, requests: &mut impl Iterator<Item = Request>) -> Result<()> {
    requests.take(WARM_UP).try_for_each(|(request, status)| server.send(&request, status))
}

/// Records the next request.
fn record(
    server: &mut Server,
    requests: &mut impl Iterator<Item = Request>,
    sources: &mut Sources,
) -> Result<FunctionCounts> {
    let (request, status) = requests.next().context("there are no more requests")?;
    let profile = server.record(|server| server.send(&request, status), AFTER_ANSWER)?;
    Ok(count(&profile, sources))
}

/// Builds the program. The manifest optimizes some crates in debug builds too. Optimization removes
/// functions, so it is turned off.
fn build(checkout: &Path) -> Result<PathBuf> {
    eprintln!("building the program");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = std::path::absolute(checkout)?.join(target);
    let manifest: toml::Table = fs::read_to_string(checkout.join("Cargo.toml"))?.parse()?;
    let mut cargo = process::cargo_command();
    cargo.args(["build", "--quiet", "--locked", "--package", "rashomon", "--target-dir"]).arg(&target);
    for package in optimized_packages(&manifest) {
        cargo.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=0"));
    }
    let status = cargo.current_dir(checkout).status().context("cannot start cargo")?;
    ensure!(status.success(), "the program does not build");
    Ok(target.join("debug/rashomon"))
}

/// The crates of this project with settings of their own for debug builds.
fn optimized_packages(manifest: &toml::Table) -> Vec<&str> {
    let packages = ["profile", "dev", "package"]
        .iter()
        .try_fold(manifest, |table, key| table.get(*key).and_then(toml::Value::as_table));
    let names = packages.into_iter().flat_map(toml::Table::keys).map(String::as_str);
    names.filter(|name| name.starts_with("rashomon")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_the_documents_are_accepted() {
        let commands = xtask::documents::commands().expect("the documents can be read");
        for command in commands.iter().filter(|command| command.words[0] == "calls") {
            Options::try_parse_from(&command.words).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        }
    }

    #[test]
    fn our_optimized_crates_are_found_in_the_manifest() {
        let manifest = "[profile.dev.package.\"*\"]\nopt-level = 2\n\
                        [profile.dev.package.rashomon-tables]\nopt-level = 1\n";
        assert_eq!(optimized_packages(&manifest.parse().unwrap()), ["rashomon-tables"]);
        assert!(optimized_packages(&toml::Table::new()).is_empty());
    }
}
