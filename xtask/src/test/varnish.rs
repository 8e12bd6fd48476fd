//! Checks `docs/varnish.vcl` with a real Varnish: its rules, then interleaved reads and writes.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;

use super::{Outcome, resources::StepResources, steps};
use crate::{
    process::{log_file, run_logged},
    tools::Tool,
};

/// The time limit of each of the two commands.
const RUN_LIMIT: Duration = Duration::from_secs(3 * 60);

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let varnish = resources.toolbox.fetch(Tool::Varnish)?;
    let mut rules = program(&varnish);
    rules.arg("rules");
    let mut interleaved = program(&varnish);
    interleaved.args(["interleaved", "--kills", "4", "--binary"]).arg(steps::binary());
    let mut remarks = Vec::new();
    for (name, command) in [("rules", rules), ("interleaved", interleaved)] {
        let log = log_file(&format!("varnish-{name}"));
        let is_result = |line: &str| line.ends_with(" rules hold") || line.starts_with("hit rate ");
        let finished = run_logged(command, &log, RUN_LIMIT, |_| true)?;
        if !finished.status.success() {
            return Ok(Outcome::Failed(format!("{name}; the whole output is in {}", log.display())));
        }
        remarks.extend(
            finished.shown.iter().filter(|line| is_result(line)).map(|line| shorten(line).to_owned()),
        );
    }
    Ok(Outcome::Passed(remarks.join(", ")))
}

fn program(varnish: &Path) -> Command {
    let mut command = Command::new(crate::target().join("debug/xtask"));
    command.current_dir(crate::root()).args(["varnish", "--varnish"]).arg(varnish);
    command
}

/// Removes the text in brackets from a line.
fn shorten(line: &str) -> &str {
    line.split_once(" (").map_or(line, |(before, _)| before)
}
