//! The project's own commands. `cargo xtask --help` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::test::Lane;

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the change in the work tree in minutes: formatting, lints, and the quick tests of the changed crates and
    /// their users.
    Check(xtask::check::Options),
    /// Run all checks that a change must pass, the cheapest first.
    Test(xtask::test::Options),
    /// Run the checks of `test` without bounds on their time, and fuzz every target. Takes hours.
    Nightly(xtask::test::Options),
    /// Check what no compiler checks: imports between folders, sizes, links, decisions.
    Tidy,
    /// Count lines, crates, settings and words, to compare versions.
    Count,
    /// Start and stop real nodes of Cassandra on this machine: up, down, status, faults.
    #[command(subcommand)]
    Cassandra(xtask::cassandra::Command),
    /// Fuzz all targets, or the named ones, from their seeds and earlier findings.
    Fuzz(xtask::fuzz::Options),
    /// Compare two versions of the program: the same requests and commands give the same answers and rows.
    Same(xtask::same::Options),
    /// Check docs/varnish.vcl with a real Varnish. `cargo xtask test --only varnish` fetches Varnish, and runs this.
    Varnish(xtask::varnish::Options),
    /// Run a benchmark: import, write, read, cassandra, retention, archive, blocks, buckets, backup, grown, kill,
    /// generator, access, versions, overload, million, cache. Builds with the dist profile.
    #[command(disable_help_flag = true)]
    Bench {
        /// Arguments of the program; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Replay a history through each strategy of retention, and count what it costs. Builds with the release profile.
    #[command(disable_help_flag = true)]
    CompareStrategies {
        /// Arguments of the program; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Compare retention with a model in random histories. Builds with the release profile.
    #[command(disable_help_flag = true)]
    Simulate {
        /// Arguments of the program; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Damage copies of stores, and check every answer against the intact store. Builds with the release
    /// profile.
    #[command(disable_help_flag = true)]
    Damage {
        /// Arguments of the program; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    if let Some(code) = xtask::documentation::run_in_place_of_rustdoc() {
        return code;
    }
    let done = match Arguments::parse().command {
        Command::Check(options) => xtask::check::run(&options),
        Command::Test(options) => xtask::test::run(&options, Lane::Test),
        Command::Nightly(options) => xtask::test::run(&options, Lane::Nightly),
        Command::Tidy => xtask::tidy::run(xtask::root()),
        Command::Count => xtask::tidy::count::run(xtask::root()),
        Command::Cassandra(command) => xtask::cassandra::run(&command),
        Command::Fuzz(options) => xtask::fuzz::run(&options),
        Command::Same(options) => xtask::same::run(&options),
        Command::Varnish(options) => xtask::varnish::run(&options),
        Command::Bench { arguments } => xtask::bench(&arguments),
        Command::CompareStrategies { arguments } => xtask::compare_strategies(&arguments),
        Command::Simulate { arguments } => xtask::simulate(&arguments),
        Command::Damage { arguments } => xtask::damage(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn commands_in_the_documents_are_accepted() {
        let commands = xtask::documents::commands().expect("the documents can be read");
        assert!(commands.len() > 10, "only {} commands were found", commands.len());
        for command in commands {
            let words = ["cargo xtask"].into_iter().chain(command.words.iter().map(String::as_str));
            let Err(error) = Arguments::try_parse_from(words) else { continue };
            let is_incomplete = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(is_incomplete && !command.is_whole, "{command:?}: {error}");
        }
    }
}
