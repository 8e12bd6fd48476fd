//! `grown`: writes to a store until it has grown, and measures how the cost of a write changes. Then measures
//! reads and listings of the grown store.

mod disk;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use rashomon_clock::Clock;
use xtask::service::Service;

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{self, Measurement, Pace, Plan, Traffic},
    reads::Reads,
    report::Report,
    service,
    writes::{self, Acknowledged, Writes},
};
use disk::Disk;

/// The first and the last part of the growth, which are compared.
const COMPARED: Duration = Duration::from_secs(60);
const READS: Duration = Duration::from_secs(3);
const READ_WARM_UP: Duration = Duration::from_secs(1);
/// The number of turns of each kind of reads.
const TURNS: usize = 5;
/// The number of renders that are read by their tids.
const RENDERS: usize = 5_000;
/// The limit of the p99 of a write: this many times the p99 of fsync, plus this many milliseconds.
const MAX_FSYNC_RATIO: f64 = 3.0;
const EXTRA_MS: f64 = 10.0;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Size to which the store grows, in MB.
    #[arg(long, default_value_t = 10_000)]
    megabytes: u64,
    /// Number of pages that are written in turn.
    #[arg(long, default_value_t = 400)]
    pages: usize,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Seconds of each part of the growth that is measured by itself.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Another program `rashomon`. It gets a store with the same writes, and its reads are measured in turns.
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "grown",
        format!(
            "POST of new revisions (html of {HTML_SIZE} bytes and data-parsoid of {DATA_PARSOID_SIZE} bytes, 18 KB \
             when compressed) to {} pages in turn, {} connections, as fast as possible, until the store has {} MB. \
             The first and the last {} s are compared, in parts of {} s. Written to the disk: write_bytes of the \
             server's /proc/PID/io. fsync: {} B are appended to a file on the same disk every {} ms during the \
             writes. Then reads of the grown store, {TURNS} turns of {} s",
            options.pages,
            options.connections,
            options.megabytes,
            COMPARED.as_secs(),
            options.seconds,
            disk::APPEND_BYTES,
            disk::APPEND_INTERVAL.as_millis(),
            READS.as_secs(),
        ),
    );
    let contents = Contents::dense(1);
    for _ in 0..runs {
        let folder = service::data_folder()?;
        let start = |program: &Path, name: &'static str| Side::start(options, program, name, folder.path());
        let mut sides = vec![start(binary, "")?];
        sides.extend(options.other.as_deref().map(|other| start(other, ", the other")).transpose()?);
        let mut until = Until::Bytes(options.megabytes * 1_000_000);
        for side in &mut sides {
            eprintln!("a new store{}", side.name);
            let parts = side.grow(until, &contents, clock)?;
            until = Until::Revisions(side.next);
            side.report(&parts, &mut report)?;
        }
        read(&sides, &contents, &mut report, clock)?;
    }
    Ok(report)
}

/// The size or the number of revisions at which a store has grown enough.
#[derive(Debug, Clone, Copy)]
enum Until {
    Bytes(u64),
    Revisions(u64),
}

/// A program and its store.
struct Side<'a> {
    options: &'a Options,
    name: &'static str,
    server: Service,
    store: PathBuf,
    disk: Disk,
    /// The number of the next revision.
    next: u64,
    /// The acknowledged writes.
    written: Vec<Acknowledged>,
}

/// A part of the growth.
struct Part {
    writes: Measurement,
    fsync: hdrhistogram::Histogram<u64>,
    disk_bytes: u64,
    seconds: u64,
}

impl<'a> Side<'a> {
    fn start(options: &'a Options, program: &Path, name: &'static str, folder: &Path) -> Result<Self> {
        let store = folder.join(if name.is_empty() { "store" } else { "other" });
        let server = service::serve(program, &store)?;
        let disk = Disk::start(&store.with_extension("fsync"))?;
        Ok(Self { options, name, server, store, disk, next: 1, written: Vec::new() })
    }

    fn grow(&mut self, until: Until, contents: &Contents, clock: &dyn Clock) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        let has_grown = |side: &Self| match until {
            Until::Bytes(bytes) => Ok::<_, anyhow::Error>(service::size(&side.store)? >= bytes),
            Until::Revisions(next) => Ok(side.next >= next),
        };
        self.disk.resume();
        while !has_grown(self)? {
            let part = self.part(contents, clock)?;
            eprintln!(
                "{} MB: {:.0} POSTs a second, {:.1} KB written for each, p50 {:.1} ms, p99 {:.1} ms; fsync: p50 \
                 {:.1} ms, p99 {:.1} ms",
                service::size(&self.store)? / 1_000_000,
                rate(std::slice::from_ref(&part)),
                kilobytes(std::slice::from_ref(&part)),
                part.writes.latency_ms(0.5),
                part.writes.latency_ms(0.99),
                ms(&part.fsync, 0.5),
                ms(&part.fsync, 0.99),
            );
            parts.push(part);
        }
        self.disk.pause();
        Ok(parts)
    }

    fn part(&mut self, contents: &Contents, clock: &dyn Clock) -> Result<Part> {
        let titles = writes::titles(self.options.pages);
        let traffic = Writes::new(contents, titles, self.next, self.options.connections);
        let mut traffic = traffic.with_journal();
        let before = disk_bytes(self.server.id())?;
        self.disk.take();
        let measured =
            self.load(Duration::ZERO, Duration::from_secs(self.options.seconds), &mut traffic, clock)?;
        self.next = traffic.next();
        self.written.extend(traffic.journal.take().into_iter().flatten());
        let disk_bytes = disk_bytes(self.server.id())? - before;
        Ok(Part { writes: measured, fsync: self.disk.take(), disk_bytes, seconds: self.options.seconds })
    }

    fn load(
        &self,
        warm_up: Duration,
        measure: Duration,
        traffic: &mut dyn Traffic,
        clock: &dyn Clock,
    ) -> Result<Measurement> {
        let (address, connections) = (self.server.address(), self.options.connections);
        load::run(&Plan { address, connections, pace: Pace::Closed, warm_up, measure }, clock, traffic)
    }

    fn report(&self, parts: &[Part], report: &mut Report) -> Result<()> {
        let count = (COMPARED.as_secs() / self.options.seconds).max(1) as usize;
        let first = &parts[..count.min(parts.len())];
        let last = &parts[parts.len().saturating_sub(count)..];
        for (when, parts) in [("first", first), ("last", last)] {
            let (writes, fsync) = latencies(parts)?;
            let limit = MAX_FSYNC_RATIO * ms(&fsync, 0.99) + EXTRA_MS;
            let mut add = |what: &str, unit, value| {
                report.add(&format!("{when} minute: {what}{}", self.name), unit, value);
            };
            add("POSTs", "a second", rate(parts));
            add("written to the disk", "KB a POST", kilobytes(parts));
            add("p50", "ms", ms(&writes, 0.5));
            add("p99", "ms", ms(&writes, 0.99));
            add("p99 of fsync", "ms", ms(&fsync, 0.99));
            add("p99 / (3 p99 of fsync + 10 ms)", "", ms(&writes, 0.99) / limit);
        }
        let ratio = |figure: fn(&[Part]) -> f64| figure(last) / figure(first);
        report.add(&format!("POSTs: last / first minute{}", self.name), "", ratio(rate));
        report.add(&format!("written: last / first minute{}", self.name), "", ratio(kilobytes));
        let bytes = service::size(&self.store)? as f64;
        report.add(&format!("size of the store{}", self.name), "KB a POST", bytes / 1e3 / self.next as f64);
        Ok(())
    }
}

/// Measures reads of the grown stores in turns.
fn read(sides: &[Side<'_>], contents: &Contents, report: &mut Report, clock: &dyn Clock) -> Result<()> {
    for turn in 0..TURNS {
        for kind in KINDS {
            let mut rates = vec![0.0; sides.len()];
            for index in 0..sides.len() {
                // The order of the programs alternates from turn to turn.
                let index = (index + turn) % sides.len();
                rates[index] = sides[index].read(kind, contents, clock)?;
                report.add(&format!("{}{}", kind.name(), sides[index].name), "a second", rates[index]);
            }
            if let [this, other] = rates[..] {
                report.add(&format!("{}, this / the other", kind.name()), "", this / other);
            }
        }
    }
    Ok(())
}

/// A kind of reads.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Latest,
    Render,
    List,
}

const KINDS: [Kind; 3] = [Kind::Latest, Kind::Render, Kind::List];

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Latest => "GET of the latest html",
            Self::Render => "GET of the html of a random render",
            Self::List => "list of the revisions of a page",
        }
    }
}

impl Side<'_> {
    /// The answers per second of a kind of reads.
    fn read(&self, kind: Kind, contents: &Contents, clock: &dyn Clock) -> Result<f64> {
        let titles = writes::titles(self.options.pages);
        let of_page = |query| move |title: &String| format!("{}?{query}", writes::page_path(title));
        let (paths, length, expected) = match kind {
            Kind::Latest => (titles.iter().map(of_page("rev/latest/html")).collect(), Some(HTML_SIZE), None),
            Kind::List => (titles.iter().map(of_page("rev/")).collect(), None, None),
            Kind::Render => {
                let mut rng = fastrand::Rng::with_seed(1);
                let renders = rng.choose_multiple(&self.written, RENDERS);
                let path = |of: &&Acknowledged| {
                    format!("{}?rev/{}/html", writes::page_path(&titles[of.write.page]), of.tid)
                };
                let expected = renders.iter().map(|of| contents.html(of.write.rev)).collect();
                (renders.iter().map(path).collect::<Vec<_>>(), Some(HTML_SIZE), Some(expected))
            }
        };
        let mut traffic = Reads::new(&paths, length, expected, self.options.connections);
        Ok(self.load(READ_WARM_UP, READS, &mut traffic, clock)?.per_second())
    }
}

/// POSTs a second.
fn rate(parts: &[Part]) -> f64 {
    let answers: u64 = parts.iter().map(|part| part.writes.answers).sum();
    answers as f64 / parts.iter().map(|part| part.seconds).sum::<u64>() as f64
}

/// Kilobytes written to the disk for each POST.
fn kilobytes(parts: &[Part]) -> f64 {
    let bytes: u64 = parts.iter().map(|part| part.disk_bytes).sum();
    bytes as f64 / 1e3 / parts.iter().map(|part| part.writes.answers).sum::<u64>() as f64
}

/// The latencies of all writes, and of all calls of fsync.
fn latencies(parts: &[Part]) -> Result<(hdrhistogram::Histogram<u64>, hdrhistogram::Histogram<u64>)> {
    let first = parts.first().context("the store had its size before the first write")?;
    let (mut writes, mut fsync) = (first.writes.latency.clone(), first.fsync.clone());
    for part in &parts[1..] {
        writes.add(&part.writes.latency)?;
        fsync.add(&part.fsync)?;
    }
    Ok((writes, fsync))
}

fn ms(latency: &hdrhistogram::Histogram<u64>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e6
}

/// The number of bytes that a process has written to the disk, or has changed in the page cache, so that they will be
/// written.
fn disk_bytes(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    Ok(line.context("the kernel does not count written bytes")?.trim().parse()?)
}
