//! `cargo xtask test`: everything that must hold before a change goes in.
//!
//! The steps are in the order of what they cost. Some run beside a step that waits most of the time. A failed step does
//! not stop the ones after it, so that one run says everything that is wrong (`--fail-fast` for the other way). What a
//! step needs it fetches where it may; what it cannot have it says, and goes without. On the build server (`CI=true`)
//! nothing is gone without: there it is a failure.

mod browser;
mod cassandra;
mod demo;
mod origins;
mod schemathesis;
mod steps;
mod tools;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, bail};

use crate::process::Stopwatch;
pub(crate) use steps::cargo_with_clippy;
use steps::{GUESTS, HOST, Need, STEPS, Step};
pub(crate) use tools::{Tool, Toolbox};

/// What is added to the niceness of the steps that run beside another one: all that can be.
const LOWER_PRIORITY: i32 = 19;

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Only this step; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Says which steps there are, and runs none.
    #[arg(long)]
    list: bool,
    /// Stops after the first step that fails.
    #[arg(long)]
    fail_fast: bool,
}

/// How a step ended, with a remark for the table.
enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// Runs the steps, prints a table of them, and says whether none failed.
pub fn run(options: &Options) -> Result<bool> {
    if options.list {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(true);
    }
    if let Some(unknown) = options.only.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        bail!("there is no step {unknown}; `--list` says which there are");
    }
    let wanted = |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = STEPS.iter().filter(wanted).collect();
    let has_host = steps.iter().any(|step| step.name == HOST);
    let (guests, steps): (Vec<&Step>, Vec<&Step>) =
        steps.into_iter().partition(|step| has_host && GUESTS.contains(&step.name));
    let last_on_a_node = steps.iter().rposition(|step| step.needs_a_node());
    let whole = Stopwatch::start();

    let mut toolbox = Toolbox::new(on_build_server());
    if last_on_a_node.is_some() {
        toolbox.begin_node();
    }
    let mut table: Vec<Line> = Vec::new();
    for (index, step) in steps.into_iter().enumerate() {
        let failed = table.iter().find(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)));
        if let Some((before, ..)) = failed.filter(|_| options.fail_fast) {
            let reason = format!("after {before} failed");
            table.push((step.name, Outcome::Skipped(reason), Duration::ZERO));
            continue;
        }
        if step.name == HOST && !guests.is_empty() {
            table.extend(run_with_guests(step, &guests, &mut toolbox));
        } else {
            table.push(run_and_time(step, &mut toolbox));
        }
        if last_on_a_node == Some(index) {
            toolbox.end_node();
        }
    }
    toolbox.end_node();
    print_table(&table, whole.elapsed());
    Ok(!table.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))))
}

fn on_build_server() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// A line of the table: a step, how it ended, and how long it took.
type Line = (&'static str, Outcome, Duration);

fn run_and_time(step: &Step, toolbox: &mut Toolbox) -> Line {
    println!("==> {}: {}", step.name, step.about);
    let clock = Stopwatch::start();
    let outcome = run_step(step, toolbox).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    if let Outcome::Failed(reason) = &outcome {
        println!("    {} failed: {reason}", step.name);
    }
    (step.name, outcome, clock.elapsed())
}

/// Runs a step, and others beside it, one after another and with a low priority.
fn run_with_guests(host: &Step, guests: &[&Step], toolbox: &mut Toolbox) -> Vec<Line> {
    // What an earlier run left there would be taken for this one's.
    let _ = std::fs::remove_file(steps::log(HOST));
    let is_over = AtomicBool::new(false);
    let run_guests = || {
        steps::wait_for_host(&is_over);
        // The priority is that of this thread, and of the programs that it starts.
        if let Err(error) = rustix::process::nice(LOWER_PRIORITY) {
            println!("    no lower priority: {error}");
        }
        let mut toolbox = Toolbox::new(on_build_server());
        guests.iter().map(|guest| run_and_time(guest, &mut toolbox)).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let guests = scope.spawn(run_guests);
        let mut lines = vec![run_and_time(host, toolbox)];
        is_over.store(true, Ordering::Release);
        lines.extend(guests.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        lines
    })
}

fn run_step(step: &Step, toolbox: &mut Toolbox) -> Result<Outcome> {
    let mut without = Vec::new();
    for need in step.needs {
        let (had, part) = match need {
            Need::Everything(tool) => (toolbox.fetch(*tool).map(drop), None),
            Need::Part(tool, part) => (toolbox.fetch(*tool).map(drop), Some(part)),
            Need::Node => (toolbox.node().map(drop), None),
        };
        let Err(reason) = had else { continue };
        let reason = format!("{reason:#}");
        match part {
            _ if toolbox.must_have_all() => return Ok(Outcome::Failed(reason)),
            None => return Ok(Outcome::Skipped(reason)),
            Some(part) => without.push(format!("without {part}: {reason}")),
        }
    }
    let outcome = (step.run)(toolbox)?;
    Ok(match outcome {
        Outcome::Passed(remark) => {
            let remarks = [vec![remark], without].concat();
            Outcome::Passed(
                remarks.into_iter().filter(|remark| !remark.is_empty()).collect::<Vec<_>>().join("; "),
            )
        }
        other => other,
    })
}

fn print_table(table: &[Line], time: Duration) {
    println!("\nstep      result      time  remark");
    for (name, outcome, time) in table {
        let (result, remark) = match outcome {
            Outcome::Passed(remark) => ("passed", remark),
            Outcome::Skipped(reason) => ("skipped", reason),
            Outcome::Failed(reason) => ("FAILED", reason),
        };
        println!("{name:<9} {result:<8} {:>6.1}s  {remark}", time.as_secs_f64());
    }
    let failed = table.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))).count();
    let skipped = table.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Skipped(_))).count();
    println!("{} steps, {failed} failed, {skipped} skipped, {:.0} s", table.len(), time.as_secs_f64());
}
