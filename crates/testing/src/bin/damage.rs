//! The program behind `cargo xtask damage`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use rashomon_clock::{Clock as _, SystemClock};
use rashomon_testing::damage::{
    judge::Outcome,
    kinds::Kind,
    many::{Plan, run_trials},
};

/// Damage copies of stores, ask each copy all questions, and compare the answers with those of the
/// undamaged store.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask damage", bin_name = "cargo xtask damage")]
struct Arguments {
    /// Number of stores to damage.
    #[arg(long, default_value_t = 1_000)]
    stores: u64,
    /// Seed that the damage is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Damage the store with this number only, and show its result even if there is no finding.
    #[arg(long)]
    only: Option<u64>,
    /// Draw this kind of damage only, such as cut-log.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Stop after this many seconds, whatever the number of stores.
    #[arg(long)]
    seconds: Option<u64>,
    /// Path of the program `rashomon`: check every fortieth store, or that of `--only`, with its commands as well.
    #[arg(long)]
    program: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the trials, and prints the counts. Returns whether there was no finding.
fn run(arguments: Arguments) -> Result<bool> {
    let Arguments { stores, seed, only, kind, seconds, program } = arguments;
    let program = program.map(std::path::absolute).transpose()?;
    let plan = Plan { stores, seed, only, kind, within: seconds.map(Duration::from_secs), program };
    let clock = SystemClock::new();
    let tally = run_trials(&plan, &mut |line| println!("{line}"))?;
    let total = tally.total();
    println!("{tally}");
    println!(
        "{} damaged stores from seed {seed}, {} of them through the program too, in {:.0} s",
        total.stores,
        total.by_program,
        clock.monotonic().as_secs_f64()
    );
    Ok(!total.outcomes.contains_key(&Outcome::Finding))
}
