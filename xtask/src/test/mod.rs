//! `cargo xtask test`: all checks that a change must pass. `cargo xtask nightly`: the same checks without the bounds on
//! their time, and those that never end by themselves.
//!
//! The steps are in the order of their cost. A failed step does not stop the following ones, so that one run
//! reports all problems (`--fail-fast` stops). Missing tools are downloaded if possible; otherwise the step, or
//! the part of it that needs the tool, is skipped. On the build server (`CI=true`) a missing tool is a failure.

mod browser;
mod cassandra;
mod clients;
mod demo;
mod nginx;
mod origins;
mod php;
mod resources;
mod schemathesis;
mod slow;
mod steps;
mod varnish;

use std::time::Duration;

pub(crate) use cassandra::ELSEWHERE;

use anyhow::{Result, bail};

use crate::process::{Stopwatch, on_build_server};
use resources::StepResources;
use steps::{Need, STEPS, Step};

/// What a run of the steps is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// What a change must pass, in bounded time.
    Test,
    /// More of the same, for as long as it takes.
    Nightly,
}

/// The steps to run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only this step; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps, and run none.
    #[arg(long)]
    list: bool,
    /// Stop after the first step that fails.
    #[arg(long)]
    fail_fast: bool,
}

/// The outcome of a step, with a remark for the table.
enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// Runs the steps of a lane, and prints a table of them. Returns whether no step failed.
pub fn run(options: &Options, lane: Lane) -> Result<bool> {
    let in_lane: Vec<&Step> = STEPS.iter().filter(|step| step.lanes.contains(&lane)).collect();
    if options.list {
        let width = name_width(in_lane.iter().map(|step| step.name));
        for step in in_lane {
            println!("{:<width$} {}", step.name, step.about);
        }
        return Ok(true);
    }
    if let Some(unknown) = options.only.iter().find(|name| !in_lane.iter().any(|step| step.name == **name)) {
        bail!("there is no step {unknown}; `--list` prints the steps");
    }
    let wanted = |step: &&Step| options.only.is_empty() || options.only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = in_lane.into_iter().filter(wanted).collect();
    let last_on_a_node = steps.iter().rposition(|step| step.needs_a_node());

    println!("{}", free_space()?);
    let mut resources = StepResources::new(on_build_server(), lane);
    if last_on_a_node.is_some() {
        resources.begin_node();
    }
    let mut table: Vec<(&str, Outcome, Duration)> = Vec::new();
    let run = Stopwatch::start();
    for (index, step) in steps.into_iter().enumerate() {
        let failed = table.iter().find(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)));
        if let Some((before, ..)) = failed.filter(|_| options.fail_fast) {
            let reason = format!("after {before} failed");
            table.push((step.name, Outcome::Skipped(reason), Duration::ZERO));
            continue;
        }
        // If a time limit stops a run, the times show which step was running.
        println!("==> {}, after {:.0} s: {}", step.name, run.elapsed().as_secs_f64(), step.about);
        let clock = Stopwatch::start();
        let outcome =
            run_step(step, &mut resources).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        if let Outcome::Failed(reason) = &outcome {
            println!("    failed: {reason}");
        }
        table.push((step.name, outcome, clock.elapsed()));
        if last_on_a_node == Some(index) {
            resources.end_node();
        }
    }
    resources.end_node();
    print_table(&table);
    Ok(!table.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))))
}

/// The free space on the disk of the target directory: a full disk makes many steps fail.
fn free_space() -> Result<String> {
    let target = crate::target();
    std::fs::create_dir_all(&target)?;
    let system = rustix::fs::statvfs(&target)?;
    let free = system.f_bavail * system.f_frsize / 1_000_000_000;
    Ok(format!("{free} GB are free in {}", target.display()))
}

fn run_step(step: &Step, resources: &mut StepResources) -> Result<Outcome> {
    let mut without = Vec::new();
    for need in step.needs {
        let (found, part) = match need {
            Need::Everything(tool) => (resources.toolbox.fetch(*tool).map(drop), None),
            Need::Part(tool, part) => (resources.toolbox.fetch(*tool).map(drop), Some(part)),
            Need::Node => (resources.node().map(drop), None),
        };
        let Err(reason) = found else { continue };
        let reason = format!("{reason:#}");
        match part {
            _ if resources.toolbox.must_have_all() => return Ok(Outcome::Failed(reason)),
            None => return Ok(Outcome::Skipped(reason)),
            Some(part) => without.push(format!("without {part}: {reason}")),
        }
    }
    let outcome = (step.run)(resources)?;
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

fn print_table(table: &[(&str, Outcome, Duration)]) {
    println!();
    table_rows(table).iter().for_each(|row| println!("{row}"));
    let failed = table.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))).count();
    let skipped = table.iter().filter(|(_, outcome, _)| matches!(outcome, Outcome::Skipped(_))).count();
    let time: Duration = table.iter().map(|(.., time)| *time).sum();
    println!("{} steps, {failed} failed, {skipped} skipped, {:.0} s", table.len(), time.as_secs_f64());
}

/// The heading, and a row for each step.
fn table_rows(table: &[(&str, Outcome, Duration)]) -> Vec<String> {
    let width = name_width(table.iter().map(|(name, ..)| *name));
    let mut rows = vec![format!("{:<width$} result      time  remark", "step")];
    for (name, outcome, time) in table {
        let (result, remark) = match outcome {
            Outcome::Passed(remark) => ("passed", remark),
            Outcome::Skipped(reason) => ("skipped", reason),
            Outcome::Failed(reason) => ("FAILED", reason),
        };
        rows.push(format!("{name:<width$} {result:<8} {:>6.1}s  {remark}", time.as_secs_f64()));
    }
    rows
}

/// The width of a column with these names, which is at least that of its heading.
fn name_width<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(str::len).fold("step".len(), usize::max)
}

#[cfg(test)]
mod tests;
