//! The demo as a new user sees it: it starts, and prints command lines that work when they are pasted.

use std::{fs, process::Command, thread, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{Outcome, resources::StepResources, steps};
use crate::{
    process::{Stopwatch, log_file},
    service::Service,
};

/// The number of command lines that the demo promises.
const CURL_LINES: usize = 5;
/// The time limit until everything is printed and served. The promise is one second for the released program.
/// The tests run an unoptimised program, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(10);

/// Starts the demo, and returns it with its output.
pub(super) fn start() -> Result<(Service, String)> {
    let clock = Stopwatch::start();
    let log = log_file("demo-service");
    fs::create_dir_all(log.parent().context("the path of the log has no folder")?)?;
    let service = Service::start(&steps::binary(), &["demo"], &log)?;
    loop {
        let printed = service.output();
        if curl_lines(&printed).len() >= CURL_LINES {
            return Ok((service, printed));
        }
        ensure!(clock.elapsed() < START_LIMIT, "not all {CURL_LINES} curl lines were printed:\n{printed}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn run(_: &mut StepResources) -> Result<Outcome> {
    let (service, printed) = start()?;
    // curl reads these settings. They make an answer of 4xx or 5xx an error, although the line itself does
    // not say so.
    let settings = tempfile::tempdir()?;
    fs::write(settings.path().join(".curlrc"), "fail-with-body\nsilent\nshow-error\nmax-time=10\n")?;
    let lines = curl_lines(&printed);
    for line in &lines {
        let answer = Command::new("sh").args(["-c", line]).env("CURL_HOME", settings.path()).output()?;
        let text = [answer.stdout.as_slice(), answer.stderr.as_slice()].concat();
        let text = String::from_utf8_lossy(&text);
        ensure!(answer.status.success() && !text.trim().is_empty(), "`{line}`: {}\n{text}", answer.status);
    }
    let status = service.stop()?;
    ensure!(status.success(), "the demo ended with {status} when it was asked to end");
    Ok(Outcome::Passed(format!("{} lines", lines.len())))
}

/// The command lines in the demo's output.
fn curl_lines(printed: &str) -> Vec<String> {
    printed.lines().map(str::trim).filter(|line| line.starts_with("curl ")).map(str::to_owned).collect()
}
