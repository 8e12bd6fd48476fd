//! Measures readers and writers during a long sweep.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use xtask::{http::Client, service::Service};

use super::{
    Bench, UNCACHED,
    stores::Store,
    traffic::{Reads, latest},
    watch::Watch,
};
use crate::{
    load::{self, Measurement, Pace, Plan},
    report::Report,
    writes::{Writes, titles},
};

/// Revisions of each page. All but one of them become eligible for culling.
const REVISIONS: u64 = 11;

/// The part of the maximum rate at which latency is measured.
const PART_OF_THE_RATE: f64 = 0.25;

/// The length of a slice. Latency is measured in slices, each after a second of warm-up. Slices during the
/// sweep and slices without it alternate until the sweep is done.
const SLICE: Duration = Duration::from_secs(10);

/// The grace of the server whose values do not become eligible.
const QUIET_GRACE_SECONDS: u64 = 24 * 3600;

/// The time limit of the sweep.
const SWEEP_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// Number of values that become eligible.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    values: u64,
    /// Grace in seconds. It must be longer than writing the values takes.
    #[arg(long, default_value_t = 120)]
    grace: u64,
    /// Number of writes per second besides the reads.
    #[arg(long, default_value_t = 50.0)]
    writes: f64,
}

impl Sweep {
    fn pages(&self) -> usize {
        usize::try_from(self.values / (REVISIONS - 1)).unwrap_or(usize::MAX)
    }
}

pub(super) fn how(options: &Sweep) -> String {
    format!(
        "Sweep: two servers, each with {REVISIONS} revisions of {} pages and their queue entries in a store of \
         its own. One server has a grace of {} s, the other of a day. The newest html of all these pages is \
         read in turn, without caches, at a quarter of the rate of a closed loop, beside {} writes a second to \
         these pages. Each server is measured for {} s in turn, while the other is stopped (SIGSTOP), until the \
         first has culled all. Figures: the p99 of each {} s, and the ratios of two in succession",
        options.pages(),
        options.grace,
        options.writes,
        SLICE.as_secs(),
        SLICE.as_secs()
    )
}

pub(super) fn run(bench: &Bench<'_>, options: &Sweep, report: &mut Report) -> Result<()> {
    let titles = titles(options.pages());
    let latest = latest(&titles);
    let reads = || Reads::new(&bench.contents, &latest, bench.options.connections);
    // The two servers are measured alternately, so that a machine that is slow for some seconds affects both.
    let mut quiet = MeasuredServer::start_filled(bench, options, QUIET_GRACE_SECONDS, &titles)?;
    quiet.service.pause()?;
    let mut swept = MeasuredServer::start_filled(bench, options, options.grace, &titles)?;
    let closed = load::run(&bench.plan(&swept.service, Pace::Closed), bench.clock, &mut reads())?;
    let rate = closed.per_second() * PART_OF_THE_RATE;
    report.add("sweep, rate of readers", "requests a second", rate);

    let due = (REVISIONS - 1) * titles.len() as u64;
    let address = swept.service.address();
    // Each look opens a connection, because an open one would be closed while the server is stopped.
    let look = || Watch::open(address, bench.clock)?.look();
    ensure!(look()?.queue_entries == 0, "values became eligible while they were written: raise --grace");
    Watch::open(address, bench.clock)?
        .until(Duration::from_secs(options.grace), |seen| seen.queue_entries > 0)?;
    let (mut culled, mut worked) = (0, Duration::ZERO);
    let started = bench.clock.monotonic();
    let mut before = look()?;
    loop {
        let began = bench.clock.monotonic();
        let beside = swept.slice(rate, &mut reads())?;
        let seen = look()?;
        let finished = seen.culled >= due && seen.overdue == 0.0;
        if !finished {
            culled += seen.culled - before.culled;
            worked += bench.clock.monotonic() - began;
        }
        swept.service.pause()?;
        quiet.service.resume()?;
        let without = quiet.slice(rate, &mut reads())?;
        quiet.service.pause()?;
        swept.service.resume()?;
        // The slice in which the sweep ended was only partly affected, so it does not count, unless it is the first.
        if !finished || worked.is_zero() {
            let (beside, without) = (beside.latency_ms(0.99), without.latency_ms(0.99));
            report.add("readers without the sweep, p99", "ms", without);
            report.add("readers beside the sweep, p99", "ms", beside);
            report.add("readers beside / without the sweep, p99", "", beside / without);
        }
        if finished {
            break;
        }
        ensure!(
            bench.clock.monotonic() - started < SWEEP_LIMIT,
            "the sweep did not end within {SWEEP_LIMIT:?}: {seen:?}"
        );
        before = look()?;
    }
    if !worked.is_zero() {
        report.add("sweep, rate", "values a second", culled as f64 / worked.as_secs_f64());
    }
    Ok(())
}

/// A server with its pages and its load.
struct MeasuredServer<'a> {
    bench: &'a Bench<'a>,
    options: &'a Sweep,
    titles: &'a [String],
    service: Service,
    /// The number of the next write.
    next: u64,
    /// The store is dropped after the server.
    _store: Store<'a>,
}

impl<'a> MeasuredServer<'a> {
    /// Starts a server and writes all revisions, so that all but the latest of each page are superseded.
    fn start_filled(
        bench: &'a Bench<'a>,
        options: &'a Sweep,
        grace: u64,
        titles: &'a [String],
    ) -> Result<Self> {
        let store = bench.location.new_store()?;
        // The first `skew`, outside of `[retention]`, delays culls on a cluster.
        let settings =
            format!("skew = '0s'\n{UNCACHED}[retention]\ngrace = '{grace}s'\nslack = '1s'\nskew = '100ms'\n");
        let service = store.serve(bench.binary, &settings)?;
        write_all(bench, &service, titles)?;
        let next = titles.len() as u64 * REVISIONS + 1;
        Ok(Self { bench, options, titles, service, next, _store: store })
    }

    /// Runs readers and writers for a slice, each at a rate of their own. Returns the results of the readers.
    fn slice(&mut self, rate: f64, reads: &mut Reads<'_>) -> Result<Measurement> {
        let Self { bench, titles, service, .. } = self;
        let plan = |rate| Plan { measure: SLICE, ..bench.plan(service, Pace::Open(rate)) };
        let (reads_plan, writes_plan) = (plan(rate), plan(self.options.writes));
        let connections = bench.options.connections;
        let mut writes = Writes::new(&bench.contents, titles.to_vec(), self.next, connections);
        let read = thread::scope(|scope| {
            let writer = scope.spawn(|| load::run(&writes_plan, bench.clock, &mut writes));
            let read = load::run(&reads_plan, bench.clock, reads);
            writer.join().expect("the writer does not panic")?;
            read
        })?;
        self.next = writes.next();
        Ok(read)
    }
}

/// Writes all revisions of all pages, over as many connections as the readers use.
fn write_all(bench: &Bench<'_>, service: &Service, titles: &[String]) -> Result<()> {
    let share = titles.len().div_ceil(bench.options.connections);
    thread::scope(|scope| {
        let write = |titles: &[String]| -> Result<()> {
            let mut client = Client::connect(service.address())?;
            let mut writes = Writes::new(&bench.contents, titles.to_vec(), 1, 1);
            writes.send(&mut client, titles.len() * REVISIONS as usize)
        };
        let writers: Vec<_> = titles.chunks(share).map(|titles| scope.spawn(move || write(titles))).collect();
        for writer in writers {
            writer.join().expect("a writer does not panic").context("cannot write the values to cull")?;
        }
        Ok(())
    })
}
