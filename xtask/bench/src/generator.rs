//! `generator`: measures the load generator and wrk, both on nginx with one file. The load generator must not
//! be the bottleneck of other benchmarks.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use xtask::process::find_program;

use super::{content::Contents, read, report::Report, service};

const SECONDS: u64 = 3;
const CONNECTIONS: usize = 16;

pub(crate) fn run(runs: usize, clock: &dyn Clock) -> Result<Report> {
    let wrk = find_program("wrk").context("wrk is missing: install it (Debian: apt install wrk)")?;
    let mut report = Report::new(
        "generator",
        format!(
            "GET of a file of 20 KB from nginx, {CONNECTIONS} connections, {SECONDS} s each: with this load generator \
             (ours), and with wrk on one thread"
        ),
    );
    let folder = service::data_folder()?;
    let file = folder.path().join("page.html");
    let body = Contents::new(1).html(1);
    std::fs::write(&file, &body)?;
    let nginx = read::nginx::start(folder.path(), &file)?;
    for _ in 0..runs {
        let ours = read::measure_closed_loop(
            nginx.address(),
            "/page.html",
            &body,
            CONNECTIONS,
            Duration::from_secs(SECONDS),
            clock,
        )?;
        let output = Command::new(&wrk)
            .args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{SECONDS}s")])
            .arg(format!("http://{}/page.html", nginx.address()))
            .output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = printed.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
        let rate = rate.context("wrk printed no rate")?;
        ensure!(!printed.contains("Non-2xx"), "wrk met errors:\n{printed}");
        let wrk: f64 = rate.trim().parse()?;
        report.add("ours", "answers a second", ours);
        report.add("wrk", "answers a second", wrk);
        report.add("ours / wrk", "", ours / wrk);
    }
    Ok(report)
}
