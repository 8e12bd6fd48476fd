//! The project's own commands. `cargo xtask --help` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr)] // It is a command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs everything that must hold before a change goes in; what fails soonest comes first.
    Test(xtask::test::Options),
    /// Checks what no compiler checks: arrows between crates, sizes, words, links, decisions.
    Tidy(xtask::tidy::Options),
    /// Real nodes of Cassandra on this machine: up, down, status.
    #[command(subcommand)]
    Cassandra(xtask::cassandra::Command),
    /// Fuzz all targets, or those that are named, each from its seeds and what was found before.
    Fuzz(xtask::fuzz::Options),
    /// Compares two versions of the program: the same requests and commands, the same answers and rows.
    Same(xtask::same::Options),
    /// Print how many of our functions a request calls. Needs valgrind.
    #[command(disable_help_flag = true)]
    Calls {
        /// Passed on; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Measures: import, write, read, cassandra, retention, archive, blocks, kill, generator. Builds with the release profile.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Holds retention against a model through random histories. Builds with the release profile.
    #[command(disable_help_flag = true)]
    Simulate {
        /// Passed on; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Damages copies of stores, and compares every answer with the whole store's. Builds with the release profile.
    #[command(disable_help_flag = true)]
    Damage {
        /// Passed on; `--help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Test(options) => xtask::test::run(&options),
        Command::Tidy(options) => xtask::tidy::run(&options),
        Command::Cassandra(command) => xtask::cassandra::run(&command),
        Command::Fuzz(options) => xtask::fuzz::run(&options),
        Command::Same(options) => xtask::same::run(&options),
        Command::Calls { arguments } => xtask::calls(&arguments),
        Command::Bench { arguments } => xtask::bench(&arguments),
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
            let is_short = matches!(
                error.kind(),
                ErrorKind::MissingRequiredArgument
                    | ErrorKind::MissingSubcommand
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            );
            assert!(is_short && !command.is_whole, "{command:?}: {error}");
        }
    }
}
