//! `backup`: measures backups of a store while a server writes to it, and the latency of these writes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use rashomon_clock::Clock;
use serde_json::Value;
use xtask::service::Service;

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{self, Measurement, Pace, Plan},
    report::Report,
    service,
    writes::{self, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// The number of pages that are written in turn.
const PAGES: usize = 1_000;
const CONNECTIONS: usize = 16;
/// The store is filled in runs of this length.
const FILL: Duration = Duration::from_secs(5);

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Size of the store's file when the measurement begins, in MB.
    #[arg(long, default_value_t = 2_000)]
    megabytes: u64,
    /// Writes a second, at fixed times.
    #[arg(long, default_value_t = 1_000)]
    writes: u32,
    /// Seconds of each measurement, after one second of warm-up.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rate of the backup, such as 50MB [default: the default of the command].
    #[arg(long, value_name = "SIZE")]
    rate: Option<String>,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let rate = options.rate.as_deref().unwrap_or("the default");
    let mut report = Report::new(
        "backup",
        format!(
            "{} POSTs a second at fixed times (html of {HTML_SIZE} bytes, data-parsoid of {DATA_PARSOID_SIZE} bytes, \
             {CONNECTIONS} connections, {PAGES} pages in turn) to a store of at least {} MB. These POSTs are measured \
             for {} s after {} s of warm-up, alone and beside backups, in alternating order. The backups (rate: \
             {rate}) are made one after the other, each into a new folder on the same disk. Then a second state is \
             added to the last folder",
            options.writes,
            options.megabytes,
            options.seconds,
            WARM_UP.as_secs(),
        ),
    );
    let contents = Contents::new(1);
    let folder = service::data_folder()?;
    let store = folder.path().join("store");
    let server = service::serve(binary, &store)?;
    let mut server = LoadedServer { server, contents: &contents, next: 1 };
    while service::size(&store)? < options.megabytes * 1_000_000 {
        server.load(Pace::Closed, FILL, clock)?;
    }
    let backups = Backups { binary: binary.to_owned(), store, rate: options.rate.clone() };
    let (pace, measure) = (Pace::Open(options.writes.into()), Duration::from_secs(options.seconds));
    for run in 0..runs {
        let mut p99 = [0.0; 2];
        for beside in [run % 2, 1 - run % 2] {
            let measured = if beside == 0 {
                server.load(pace, measure, clock)?
            } else {
                backups.beside(&folder.path().join(format!("backup-{run}")), &mut report, clock, || {
                    server.load(pace, measure, clock)
                })?
            };
            let name = ["alone", "beside backups"][beside];
            report.add(&format!("writes, {name}"), "a second", measured.per_second());
            report.add(&format!("p50, {name}"), "ms", measured.latency_ms(0.5));
            report.add(&format!("p99, {name}"), "ms", measured.latency_ms(0.99));
            p99[beside] = measured.latency_ms(0.99);
        }
        report.add("p99, beside backups / alone", "", p99[1] / p99[0]);
    }
    Ok(report)
}

/// A server to which revisions are written.
struct LoadedServer<'a> {
    server: Service,
    contents: &'a Contents,
    /// The number of the next revision.
    next: u64,
}

impl LoadedServer<'_> {
    fn load(&mut self, pace: Pace, measure: Duration, clock: &dyn Clock) -> Result<Measurement> {
        let address = self.server.address();
        let plan = Plan { address, connections: CONNECTIONS, pace, warm_up: WARM_UP, measure };
        let mut writes = Writes::new(self.contents, writes::titles(PAGES), self.next, CONNECTIONS);
        let measured = load::run(&plan, clock, &mut writes)?;
        self.next = writes.next();
        Ok(measured)
    }
}

/// Backups of a store.
struct Backups {
    binary: PathBuf,
    store: PathBuf,
    rate: Option<String>,
}

impl Backups {
    /// Makes backups for as long as `load` runs. Reports all of them except the last, which ended after the load; if
    /// there is only one, reports it. Then reports a further state in the folder of the last backup.
    fn beside(
        &self,
        folder: &Path,
        report: &mut Report,
        clock: &dyn Clock,
        load: impl FnOnce() -> Result<Measurement>,
    ) -> Result<Measurement> {
        let ends = AtomicBool::new(false);
        let (measured, done) = thread::scope(|scope| {
            let backups = scope.spawn(|| self.repeat(folder, clock, &ends));
            let measured = load();
            ends.store(true, Ordering::Relaxed);
            (measured, backups.join())
        });
        // The error of the load comes first, since its cause may also be the cause of an error of the backups.
        let measured = measured?;
        let done = done.map_err(|_| anyhow!("the thread of the backups panicked"))??;
        ensure!(!done.is_empty(), "the load ended before the first backup began");
        for state in &done[..(done.len() - 1).max(1)] {
            add(report, "full backup", state);
        }
        let started = clock.monotonic();
        let state = self.back_up(folder)?;
        report.add("second state: time", "s", clock.monotonic().saturating_sub(started).as_secs_f64());
        report.add("second state: pages written", "", number(&state, "written_pages"));
        fs::remove_dir_all(folder)?;
        Ok(measured)
    }

    /// Makes one backup after the other, each in a new folder of this name. The last backup is not removed.
    fn repeat(&self, folder: &Path, clock: &dyn Clock, ends: &AtomicBool) -> Result<Vec<(Duration, Value)>> {
        let mut states = Vec::new();
        while !ends.load(Ordering::Relaxed) {
            if !states.is_empty() {
                fs::remove_dir_all(folder)?;
            }
            let started = clock.monotonic();
            let state = self.back_up(folder)?;
            states.push((clock.monotonic().saturating_sub(started), state));
        }
        Ok(states)
    }

    /// Adds a state to a folder, and returns what the command prints.
    fn back_up(&self, folder: &Path) -> Result<Value> {
        let mut command = Command::new(&self.binary);
        command.args(["backup", "--json", "--data"]).arg(&self.store).arg("--to").arg(folder);
        command.args(self.rate.iter().flat_map(|rate| ["--rate", rate]));
        Ok(serde_json::from_slice(&service::finish(&mut command)?.stdout)?)
    }
}

fn add(report: &mut Report, name: &str, (took, state): &(Duration, Value)) {
    let bytes = number(state, "bytes");
    report.add(&format!("{name}: time"), "s", took.as_secs_f64());
    report.add(&format!("{name}: rate"), "MB/s", bytes / 1e6 / took.as_secs_f64());
    report.add(
        &format!("{name}: pages read again"),
        "",
        number(state, "read_pages") - number(state, "pages"),
    );
    report.add(&format!("{name}: log at the end"), "MB", number(state, "log_bytes") / 1e6);
    report.add(&format!("{name}: last snapshot"), "ms", number(state, "last_snapshot_ms"));
}

fn number(state: &Value, name: &str) -> f64 {
    state[name].as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use rashomon_clock::SystemClock;

    use super::*;

    #[test]
    fn error_of_the_load_is_reported_and_not_an_error_of_the_backups() {
        let missing = tempfile::tempdir().unwrap().path().join("missing");
        // No backup succeeds, since there is no program. If the load ends soon enough, no backup begins.
        let backups = Backups { binary: missing.clone(), store: missing.clone(), rate: None };
        let mut report = Report::new("backup", "");
        let measured = backups
            .beside(&missing, &mut report, &SystemClock::new(), || Err(anyhow!("the load has failed")));
        assert_eq!(measured.unwrap_err().to_string(), "the load has failed");
    }
}
