//! Readers and writers beside a sweep that has much to do.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use xtask::{http::Client, service::Service};

use super::{
    Bench, UNCACHED,
    traffic::{Reads, latest},
    watch::Watch,
};
use crate::{
    load::{self, Pace, Plan, Traffic as _},
    report::Report,
    writes::{Writes, titles},
};

/// Revisions of each page; all but one of them fall due.
const REVISIONS: u64 = 11;

/// So much of the rate that was just answered is read while latency is measured.
const PART_OF_THE_RATE: f64 = 0.25;

/// Latency is measured in slices of so long, each after a second to warm up, until the sweep has done its work.
const SLICE: Duration = Duration::from_secs(10);
/// So many of them before the first value falls due, and once the sweep has done its work.
const SLICES_WITHOUT: usize = 2;

/// A sweep that takes longer has gone wrong.
const LIMIT: Duration = Duration::from_secs(3600);

/// How it is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// Values that fall due.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
    values: u64,
    /// The grace in seconds: longer than it takes to write them and to measure before the first is due.
    #[arg(long, default_value_t = 120)]
    grace: u64,
    /// Writes a second beside the readers.
    #[arg(long, default_value_t = 50.0)]
    writes: f64,
}

impl Sweep {
    fn pages(&self) -> usize {
        usize::try_from(self.values / (REVISIONS - 1)).unwrap_or(usize::MAX)
    }

    /// On a cluster a row may have been written earlier than it counts as stored, by as much as the first line
    /// says.
    fn settings(&self) -> String {
        format!(
            "skew = '0s'\n{UNCACHED}[retention]\ngrace = '{}s'\nslack = '1s'\nskew = '100ms'\n",
            self.grace
        )
    }
}

pub(super) fn how(options: &Sweep) -> String {
    format!(
        "Sweep: {REVISIONS} revisions of {} pages each, written with a grace of {} s, each with its note of what is due; \
         then GET of the newest html of all these pages in turn, nothing kept in memory, at a quarter of the rate \
         that a closed loop just had, beside {} writes a second to them: for {} s before the first value falls \
         due, from then on until the sweep has done its work, and for as long as before once more; p99 of each {} s, \
         of which the median and the worst are given",
        options.pages(),
        options.grace,
        options.writes,
        SLICE.as_secs() * SLICES_WITHOUT as u64,
        SLICE.as_secs()
    )
}

pub(super) fn run(bench: &Bench<'_>, options: &Sweep, report: &mut Report) -> Result<()> {
    let store = bench.place.new_store()?;
    let service = store.serve(bench.binary, &options.settings())?;
    let titles = titles(options.pages());
    let due = (REVISIONS - 1) * titles.len() as u64;
    write_all(bench, &service, &titles)?;

    let latest = latest(&titles);
    let reads = || Reads::new(&bench.contents, &latest, bench.options.connections);
    let closed = load::run(&bench.plan(&service, Pace::Closed), bench.clock, &mut reads())?;
    let rate = closed.per_second() * PART_OF_THE_RATE;
    report.add("sweep, rate of readers", "requests a second", rate);
    let mut load = Load {
        bench,
        service: &service,
        titles: &titles,
        next: titles.len() as u64 * REVISIONS + 1,
        rate,
        writes: options.writes,
    };

    let mut without = Slices::default();
    for _ in 0..SLICES_WITHOUT {
        without.add(&load.slice(&mut reads())?);
    }
    let mut watch = Watch::open(&service, bench.clock)?;
    let seen = watch.look()?;
    ensure!(seen.notes == 0, "values fell due before all was measured: raise --grace, or lower --values");
    let began = watch.until(Duration::from_secs(options.grace), |seen| seen.notes > 0)?;

    let mut beside = Slices::default();
    let ended = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch.until(LIMIT, |seen| seen.culled >= due && seen.overdue == 0.0));
        loop {
            let slice = load.slice(&mut reads())?;
            let finished = watcher.is_finished();
            // The sweep did nothing any more in a part of the last one.
            if !finished || beside.0.is_empty() {
                beside.add(&slice);
            }
            if finished {
                return watcher.join().expect("the watcher does not panic");
            }
        }
    })?;
    for _ in 0..SLICES_WITHOUT {
        without.add(&load.slice(&mut reads())?);
    }
    without.report("readers without the sweep", report);
    beside.report("readers beside the sweep", report);
    report.add("readers beside / without the sweep, p99", "", beside.median() / without.median());
    let seconds = (ended - began).as_secs_f64();
    report.add("sweep, time", "s", seconds);
    report.add("sweep, rate", "values a second", due as f64 / seconds);
    Ok(())
}

/// The p99 of each slice, in milliseconds. A machine that is slow for some seconds is slow for some of them, and for
/// more of many than of few: so the median is compared.
#[derive(Default)]
struct Slices(Vec<f64>);

impl Slices {
    fn add(&mut self, latency: &Histogram<u64>) {
        self.0.push(latency.value_at_quantile(0.99) as f64 / 1e6);
        self.0.sort_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        (self.0[(self.0.len() - 1) / 2] + self.0[self.0.len() / 2]) / 2.0
    }

    fn report(&self, what: &str, report: &mut Report) {
        report.add(&format!("{what}, p99"), "ms", self.median());
        report.add(&format!("{what}, p99 of the worst slice"), "ms", self.0[self.0.len() - 1]);
    }
}

/// Writes all revisions of all pages, from as many connections as read.
fn write_all(bench: &Bench<'_>, service: &Service, titles: &[String]) -> Result<()> {
    let share = titles.len().div_ceil(bench.options.connections);
    thread::scope(|scope| {
        let write = |titles: &[String]| -> Result<()> {
            let mut client = Client::connect(service.address())?;
            let mut writes = Writes::new(&bench.contents, titles.to_vec(), 1, 1);
            let mut request = Vec::new();
            for _ in 0..titles.len() as u64 * REVISIONS {
                writes.request(0, &mut request);
                let (status, body) = client.send(&request)?;
                writes.answer(0, status, &body)?;
            }
            Ok(())
        };
        let writers: Vec<_> = titles.chunks(share).map(|titles| scope.spawn(move || write(titles))).collect();
        for writer in writers {
            writer.join().expect("a writer does not panic").context("cannot write what falls due")?;
        }
        Ok(())
    })
}

/// Readers and writers, each at a rate of their own.
struct Load<'a> {
    bench: &'a Bench<'a>,
    service: &'a Service,
    titles: &'a [String],
    /// The number of the next write.
    next: u64,
    rate: f64,
    writes: f64,
}

impl Load<'_> {
    /// The latencies of the readers in a slice.
    fn slice(&mut self, reads: &mut Reads<'_>) -> Result<Histogram<u64>> {
        let plan = |rate| Plan { measure: SLICE, ..self.bench.plan(self.service, Pace::Open(rate)) };
        let (reads_plan, writes_plan) = (plan(self.rate), plan(self.writes));
        let connections = self.bench.options.connections;
        let mut writes = Writes::new(&self.bench.contents, self.titles.to_vec(), self.next, connections);
        let clock = self.bench.clock;
        let measured = thread::scope(|scope| {
            let writer = scope.spawn(|| load::run(&writes_plan, clock, &mut writes));
            let read = load::run(&reads_plan, clock, reads);
            writer.join().expect("the writer does not panic")?;
            read
        })?;
        self.next = writes.next();
        Ok(measured.latency)
    }
}
