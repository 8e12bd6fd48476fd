//! The benchmarks. `cargo xtask bench --help` lists them, and `docs/benchmarks.md` has the results.
#![allow(clippy::print_stdout, clippy::print_stderr)] // It is a command line.

mod archive;
mod blocks;
mod cassandra;
mod content;
mod direct;
mod generator;
mod import;
mod kill;
mod load;
mod memory;
mod read;
mod recorder;
mod report;
mod retention;
mod service;
mod write;
mod writes;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use rashomon_clock::SystemClock;
use report::Machine;

/// Measures Rashomon. Each figure is the minimum, the median and the maximum of several runs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    /// How often each measurement is made.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Also writes the figures to this file.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures this binary, instead of building one with the release profile.
    #[arg(long, global = true, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A whole wiki into a new store.
    Import(import::Options),
    /// New revisions over HTTP, and the same ones straight into the table layer.
    Write(write::Options),
    /// The newest html over HTTP, beside nginx and a bare server that serve the same bytes.
    Read(read::Options),
    /// The service on one real node of Cassandra, and the same statements through the driver alone.
    Cassandra(cassandra::Options),
    /// What retention costs: reads of current, recent and historical values, writes, readers beside a sweep.
    Retention(retention::Options),
    /// Whole histories in the archive: how small, how fast they go in, and how fast they are read.
    Archive(archive::Options),
    /// Real histories in compression blocks: how small, and how fast.
    Blocks(blocks::Options),
    /// kill -9 under a load of writes: nothing acknowledged is lost, nothing is there by half.
    Kill(kill::Options),
    /// The load generator itself, beside wrk.
    Generator,
    /// Serves one body from memory: what `read` compares with.
    #[command(hide = true)]
    Bare(read::bare::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let clock = SystemClock::new();
    let machine = Machine::look();
    let runs = usize::from(arguments.runs);
    let binary = || service::binary(arguments.binary.as_deref());
    let report = match &arguments.command {
        Command::Import(options) => import::run(options, &binary()?, runs, &clock)?,
        Command::Write(options) => write::run(options, &binary()?, runs, &clock)?,
        Command::Read(options) => read::run(options, &binary()?, runs, &clock)?,
        Command::Cassandra(options) => cassandra::run(options, &binary()?, runs, &clock)?,
        Command::Retention(options) => retention::run(options, &binary()?, runs, &clock)?,
        Command::Archive(options) => archive::run(options, &binary()?, runs, &clock)?,
        Command::Blocks(options) => blocks::run(options, runs, &clock)?,
        Command::Kill(options) => kill::run(options, &binary()?, &clock)?,
        Command::Generator => generator::run(runs, &clock)?,
        Command::Bare(options) => return read::bare::serve(options),
    };
    report.print(&machine);
    if let Some(path) = &arguments.json {
        report::write_json(path, &machine, &[report])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    #[test]
    fn commands_in_the_documents_are_accepted() {
        let commands = xtask::documents::commands().expect("the documents can be read");
        for command in commands.iter().filter(|command| command.words[0] == "bench") {
            let Err(error) = Arguments::try_parse_from(&command.words) else { continue };
            let is_short = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelp
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(is_short && !command.is_whole, "{command:?}: {error}");
        }
    }

    #[test]
    fn every_benchmark_is_listed_in_the_documents() {
        for (document, begins) in [
            ("CONTRIBUTING.md", "`cargo xtask bench --help` lists what is measured"),
            ("docs/benchmarks.md", "| command | measures |"),
            ("xtask/src/main.rs", "/// Measures: "),
        ] {
            let text = fs::read_to_string(xtask::root().join(document)).expect(document);
            let (_, list) = text.split_once(begins).expect(document);
            let list = list.split("\n\n").next().unwrap_or_default();
            for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
                let name = command.get_name();
                assert!(list.contains(name), "{document} does not list {name}");
            }
        }
    }
}
