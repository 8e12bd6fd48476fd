//! The benchmarks. `cargo xtask bench --help` lists them, and `docs/benchmarks.md` has the results.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

mod access;
mod archive;
mod backup;
mod blocks;
mod buckets;
mod cache;
mod cassandra;
mod content;
mod counted;
mod direct;
mod generator;
mod grown;
mod import;
mod kill;
mod load;
mod memory;
mod million;
mod overload;
mod read;
mod reads;
mod recorder;
mod report;
mod retention;
mod service;
mod versions;
mod write;
mod writes;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};
use rashomon_clock::SystemClock;
use report::Machine;

/// Measure Rashomon. Each figure is the minimum, the median and the maximum of several runs.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    /// Number of runs of each measurement.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Also write the figures to this file.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure this binary, instead of building one with the dist profile.
    #[arg(long, global = true, value_name = "FILE")]
    binary: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Import a complete wiki into a new store.
    Import(import::Options),
    /// Write new revisions over HTTP, and directly to the table layer.
    Write(write::Options),
    /// Read the newest html over HTTP. Compare with nginx and a bare server that serve the same bytes.
    Read(read::Options),
    /// Measure the service on one real node of Cassandra. Compare with the same statements through the driver
    /// alone.
    Cassandra(cassandra::Options),
    /// Measure the cost of retention: reads of current, recent and historical values, writes, readers during
    /// a sweep.
    Retention(retention::Options),
    /// Measure complete histories in the archive: size, speed of the import, speed of reads.
    Archive(archive::Options),
    /// Measure real histories in compression blocks: size and speed.
    Blocks(blocks::Options),
    /// Measure key-value buckets: entries, counters, listings, batches of requests, and forwarding.
    Buckets(buckets::Options),
    /// Back up a store while a server writes to it. Measure the latency of these writes.
    Backup(backup::Options),
    /// Write to a store until it has grown to 10 GB: bytes written to the disk for each POST, rate and latency
    /// as the store grows, reads and listings of the grown store.
    Grown(grown::Options),
    /// Kill the service with SIGKILL during writes of pages, entries and counters, and check that no
    /// acknowledged write is lost or incomplete.
    Kill(kill::Options),
    /// Measure the load generator itself. Compare with wrk.
    Generator,
    /// Compare requests with tokens and requests to a server without configured access, in turns.
    Access(access::Options),
    /// Compare the throughput of this version and of another program in turns, as ratios.
    Versions(versions::Options),
    /// Offer more requests than a server on one core can answer: goodput, refusals, and concurrent reads of the latest.
    Overload(overload::Options),
    /// Measure HTTP caches: writes with purges, reads through Varnish, the latency of purges, and reads of a version
    /// that a transformer makes.
    Cache(cache::Options),
    /// Measure a wiki of many short pages beside a small one: reads, writes, memory, whole walks, imports, sizes. Compare
    /// with a table of SQLite.
    Million(million::Options),
    /// Serve one body from memory, for the comparison of `read`.
    #[command(hide = true)]
    Bare(read::bare::Options),
    /// Answer as a transformer, for the comparison of `cache`.
    #[command(hide = true)]
    Transformer(cache::transformer::Options),
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
        Command::Buckets(options) => buckets::run(options, &binary()?, runs, &clock)?,
        Command::Backup(options) => backup::run(options, &binary()?, runs, &clock)?,
        Command::Grown(options) => grown::run(options, &binary()?, runs, &clock)?,
        Command::Kill(options) => kill::run(options, &binary()?, &clock)?,
        Command::Generator => generator::run(runs, &clock)?,
        Command::Access(options) => access::run(options, &binary()?, runs, &clock)?,
        Command::Versions(options) => versions::run(options, &binary()?, &clock)?,
        Command::Overload(options) => overload::run(options, &binary()?, runs, &clock)?,
        Command::Cache(options) => cache::run(options, &binary()?, runs, &clock)?,
        Command::Million(options) => {
            let reports = million::run(options, &binary()?, runs, &clock)?;
            report::print_beside(&reports, &machine);
            return arguments
                .json
                .as_ref()
                .map_or(Ok(()), |path| report::write_json(path, &machine, &reports));
        }
        Command::Transformer(options) => return cache::transformer::serve(options),
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
            let is_incomplete = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelp
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(is_incomplete && !command.is_whole, "{command:?}: {error}");
        }
    }

    #[test]
    fn every_benchmark_is_listed_in_the_documents() {
        for (document, begins) in
            [("docs/benchmarks.md", "| command | measures |"), ("xtask/src/main.rs", "/// Run a benchmark: ")]
        {
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
