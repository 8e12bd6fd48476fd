//! `cargo xtask simulate`: runs any number of histories.
#![allow(clippy::print_stdout, clippy::print_stderr)] // Command-line programs print.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use rashomon_clock::{Clock, SystemClock};
use rashomon_testing::simulation::{Plan, Store, Variant, collecting, many};

/// Run random histories, and compare retention with a model. Stop at the first history that breaks a promise.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask simulate", bin_name = "cargo xtask simulate")]
struct Arguments {
    /// Number of histories.
    #[arg(long, default_value_t = 10_000)]
    histories: u64,
    /// Seed of the first history. The seeds of the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Store to run the histories on.
    #[arg(long, value_enum, default_value = "memory")]
    store: Store,
    /// Test the garbage collector instead of retention, on three replicas in memory (--store is ignored).
    #[arg(long)]
    collector: bool,
    /// Number of threads [default: one for each processor].
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    match simulate(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn simulate(arguments: &Arguments) -> Result<bool> {
    let clock = SystemClock::new();
    let available = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let plan = Plan {
        histories: arguments.histories,
        seed: arguments.seed,
        store: arguments.store,
        threads: arguments.threads.unwrap_or_else(available),
    };
    let steps = (plan.histories / 20).max(1);
    let rate = |done: u64| done as f64 / clock.monotonic().as_secs_f64().max(1e-9);
    let progress = |done: u64| {
        if done.is_multiple_of(steps) {
            println!("{done} of {} histories, {:.0} a second", plan.histories, rate(done));
        }
    };
    if arguments.collector {
        collecting::many(plan.histories, plan.seed, plan.threads, &progress)?;
        println!("{} histories from seed {}: every promise was kept", plan.histories, plan.seed);
        return Ok(true);
    }
    let Some(finding) = many(plan, &Variant::SOUND, &progress)? else {
        let time = clock.monotonic().as_secs_f64();
        println!(
            "{} histories from seed {}, {:.0} a second, in {time:.0} s: every promise was kept",
            plan.histories,
            plan.seed,
            rate(plan.histories)
        );
        return Ok(true);
    };
    println!("{}\nwith seed {}; shortened:\n{}", finding.violation, finding.seed, finding.shortest);
    println!("results of the steps, each with the world's time in microseconds:\n{}", finding.log);
    let store = format!("{:?}", arguments.store).to_lowercase();
    println!("to repeat: cargo xtask simulate --histories 1 --seed {} --store {store}", finding.seed);
    Ok(false)
}
