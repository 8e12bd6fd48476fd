//! Stores every revision and every render of a wiki, and serves them over HTTP.
//!
//! This crate is the binary: it reads the command line and the configuration, builds the components, and runs
//! one command. Only this crate chooses a backend and draws random seeds.
//!
//! # Invariants
//!
//! - Of the crates of the service, only this one chooses a backend, draws random seeds, and creates all components.
//!   Their settings come from `configuration`.
//! - All settings are checked before anything starts. No state is global.

mod arguments;
mod commands;
mod configuration;
mod declared_buckets;
#[cfg(test)]
mod document_tests;
mod errors;
mod exit;
mod logging;
mod metrics;
mod output;
mod page_buckets;
mod progress;
#[cfg(test)]
mod reference_tests;
mod registry;
mod remote;
mod sample_wiki;
mod server;
mod signals;
mod store;
mod threads;

use std::process::ExitCode;

use rustix::fs::Mode;
use tikv_jemallocator::Jemalloc;

use crate::{arguments::Command, errors::CommandError, exit::Exit};

/// It gives memory back to the system soon after a peak. The allocator of the C library keeps most of it: see decision
/// 0051.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    // Whatever this program creates, only its user may read: stores, logs, backups, exports, journals, temporary files.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) => arguments::print_and_exit(&error),
    };
    let exit = run(arguments.command).unwrap_or_else(|error| {
        error.print();
        error.exit()
    });
    exit.into()
}

fn run(command: Command) -> Result<Exit, CommandError> {
    match command {
        Command::CheckConfig(arguments) => commands::check_config::run(arguments),
        Command::Cassandra(command) => commands::cassandra::run(command),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Serve(arguments) => commands::serve::run(arguments),
        Command::Import(arguments) => block_on(commands::import::run(arguments)),
        Command::Export(arguments) => block_on(commands::export::run(arguments)),
        Command::Migrate(arguments) => block_on(commands::migrate::run(arguments)),
        Command::Verify(arguments) => block_on(commands::verify::run(arguments)),
        Command::Stats(arguments) => block_on(commands::stats::run(arguments)),
        Command::Backup(arguments) => block_on(commands::backup::back_up(arguments)),
        Command::Restore(arguments) => block_on(commands::backup::restore(arguments)),
        Command::Vacuum(arguments) => block_on(commands::vacuum::run(arguments)),
        Command::Upgrade(arguments) => block_on(commands::upgrade::run(arguments)),
        Command::Rewrite(arguments) => block_on(commands::rewrite::run(arguments)),
        Command::Archive(command) => block_on(commands::archive::run(command)),
        Command::Bucket(command) => block_on(commands::bucket::run(command)),
        Command::Token(command) => block_on(commands::token::run(command)),
        Command::Retention(arguments) => block_on(commands::retention::run(arguments)),
        Command::Demo(arguments) => commands::demo::run(arguments),
    }
}

/// Runs a command on the async runtime.
fn block_on(command: impl Future<Output = Result<Exit, CommandError>>) -> Result<Exit, CommandError> {
    let runtime = threads::start("command")?;
    let outcome = runtime.block_on(command);
    // A thread that waits for standard input may wait forever.
    runtime.shutdown_background();
    outcome
}
