//! `cassandra`: measures the service on one real node, and the same statements sent through the driver alone.

mod calls;
mod driver;
mod import;
pub(crate) mod metrics;
mod statements;

use std::{path::Path, sync::Arc, thread, time::Duration};

use anyhow::{Result, anyhow, ensure};
use rashomon_clock::Clock;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use xtask::{
    cassandra::{Node, start_for_benchmarks},
    http::{self, Client},
    service::Service,
};

use self::{calls::RecordingBuckets, driver::Driver};
use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{self, Pace, Plan, Traffic},
    report::Report,
    service,
    writes::{self, Writes, page_path},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// The number of warm-up rounds. Cassandra compiles hot code at run time, and is then several times as fast.
const ROUNDS_TO_WARM_UP: usize = 6;
/// The number of pages that the service writes and reads in turn. The driver has as many pages of its own.
const PAGES: usize = 200;
/// The keyspace for writes and reads.
const KEYSPACE: &str = "bench";
/// The table whose reads are measured: the bodies are most of the stored data.
const BODIES: &str = "render_content";

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement over HTTP, after one second of warm-up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of connections that write or read concurrently.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Number of writes of the driver in a measurement. These writes are prepared beforehand, so the measurement
    /// has no fixed time.
    #[arg(long, default_value_t = 3_000)]
    writes: usize,
    /// Number of reads of the newest html by the driver in a measurement.
    #[arg(long, default_value_t = 10_000)]
    reads: usize,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new("cassandra", how(options));
    let node = start_for_benchmarks()?;
    let runtime = Runtime::new()?;
    let mut bench = Bench::start(options, binary, node, &runtime, clock)?;
    for _ in 0..ROUNDS_TO_WARM_UP {
        bench.round(&mut Report::new("warm-up", ""))?;
    }
    for _ in 0..runs {
        bench.round(&mut report)?;
    }
    let Bench { node, service, driver, .. } = bench;
    drop(service);
    for number in 0..runs {
        let keyspace = format!("{KEYSPACE}_import_{number}");
        runtime.block_on(import::run(binary, &node, &driver, &keyspace, &mut report, clock))?;
    }
    Ok(report)
}

fn how(options: &Options) -> String {
    format!(
        "One node as `cargo xtask cassandra up` starts it (commitlog_sync group, 10 ms), on the machine that runs the \
         benchmark. Writes: POST of new revisions with html ({HTML_SIZE} bytes) and data-parsoid \
         ({DATA_PARSOID_SIZE} bytes), {} connections, {PAGES} pages in turn, {} s after {} s of warm-up; and {} such \
         writes by as many tasks through the scylla driver alone, first only the batches, then also the reads that \
         come before a batch. Then reads and writes over HTTP at the same time. After a flush and its compactions, \
         GET of the newest html of these pages, and {} such reads through the driver. Whether HTTP or the driver is \
         measured first changes from round to round; {ROUNDS_TO_WARM_UP} rounds of warm-up do not count. Requests are \
         counted by Cassandra. Import of the oVirt wiki: from the start of the command to its end, and the size of \
         the tables' files after a flush",
        options.connections,
        options.seconds,
        WARM_UP.as_secs(),
        options.writes,
        options.reads,
    )
}

fn url(keyspace: &str) -> String {
    format!("cassandra://{}/{keyspace}?replication=1", Node::address(1))
}

struct Bench<'a> {
    options: &'a Options,
    clock: &'a dyn Clock,
    runtime: &'a Runtime,
    contents: Arc<Contents>,
    titles: Vec<String>,
    /// The number of the service's next write.
    next: u64,
    /// Whether this round measures the driver before the service.
    driver_first: bool,
    recording: RecordingBuckets,
    node: Node,
    service: Service,
    driver: Driver,
    /// The folder of the service's log.
    _folder: TempDir,
}

impl<'a> Bench<'a> {
    fn start(
        options: &'a Options,
        binary: &Path,
        node: Node,
        runtime: &'a Runtime,
        clock: &'a dyn Clock,
    ) -> Result<Self> {
        let contents = Arc::new(Contents::new(1));
        let titles = writes::titles(2 * PAGES);
        let (titles, others) = titles.split_at(PAGES);
        let folder = service::data_folder()?;
        let service = service::serve_store(binary, &url(KEYSPACE), &folder.path().join("log"))?;
        let mut first = Writes::new(&contents, titles.to_vec(), 1, 1);
        let mut client = Client::connect(service.address())?;
        first.send(&mut client, titles.len())?;
        let next = first.next();
        let mut recording = runtime.block_on(RecordingBuckets::open(Arc::clone(&contents), others))?;
        let mut driver = runtime.block_on(Driver::connect(Node::address(1), KEYSPACE))?;
        let calls = runtime.block_on(recording.writes(PAGES))?;
        runtime.block_on(driver.send(&calls, calls.len(), options.connections, clock))?;
        // If the service can read a page of the driver, the driver writes the same rows as the store.
        let (status, html) = client.get(&latest_html(&others[1]))?;
        ensure!(
            status == 200 && html == contents.html(1),
            "the service does not read what the driver wrote: {status}, {}",
            String::from_utf8_lossy(&html)
        );
        Ok(Self {
            options,
            clock,
            runtime,
            titles: titles.to_vec(),
            next,
            driver_first: false,
            recording,
            node,
            service,
            driver,
            contents,
            _folder: folder,
        })
    }

    fn round(&mut self, report: &mut Report) -> Result<()> {
        self.writes(report)?;
        self.both(report)?;
        metrics::flush_and_wait_for_compactions(&self.node, KEYSPACE)?;
        self.reads(report)?;
        self.driver_first = !self.driver_first;
        Ok(())
    }

    /// Reads the newest html while the same pages are written.
    fn both(&mut self, report: &mut Report) -> Result<()> {
        let contents = Arc::clone(&self.contents);
        let mut writes = Writes::new(&contents, self.titles.clone(), self.next, self.options.connections);
        let mut reads = LatestReads::of(&self.titles);
        let (plan, clock) = (self.plan(), self.clock);
        let read = thread::scope(|scope| {
            let writing = scope.spawn(|| load::run(&plan, clock, &mut writes));
            let read = load::run(&plan, clock, &mut reads);
            writing.join().map_err(|_| anyhow!("the writers panicked"))??;
            read
        })?;
        self.next = writes.next();
        report.add("latest reads beside as many writers", "a second", read.per_second());
        let sstables = metrics::sstables_per_read(&self.node, KEYSPACE, BODIES)?;
        report.add("SSTables a read, median", "", sstables.median);
        report.add("SSTables a read, 99th percentile", "", sstables.p99);
        report.add("SSTables a read, most", "", sstables.max);
        Ok(())
    }

    /// Measures the driver and the service, in the order of this round.
    fn in_turn<D>(
        &mut self,
        report: &mut Report,
        ours: impl FnOnce(&mut Self, &mut Report) -> Result<f64>,
        driven: impl FnOnce(&mut Self) -> Result<D>,
    ) -> Result<(f64, D)> {
        if self.driver_first {
            let driven = driven(self)?;
            Ok((ours(self, report)?, driven))
        } else {
            Ok((ours(self, report)?, driven(self)?))
        }
    }

    fn writes(&mut self, report: &mut Report) -> Result<()> {
        let (ours, driven) = self.in_turn(report, Self::writes_over_http, |bench| {
            Ok([bench.writes_by_the_driver(false)?, bench.writes_by_the_driver(true)?])
        })?;
        for (name, driven) in ["batches alone", "with its read"].into_iter().zip(driven) {
            report.add(&format!("writes by the driver, {name}"), "a second", driven);
            report.add(&format!("writes, HTTP / driver, {name}"), "", ours / driven);
        }
        Ok(())
    }

    fn writes_over_http(&mut self, report: &mut Report) -> Result<f64> {
        let before = metrics::requests(&self.node)?;
        let contents = Arc::clone(&self.contents);
        let mut traffic = Writes::new(&contents, self.titles.clone(), self.next, self.options.connections);
        let measured = load::run(&self.plan(), self.clock, &mut traffic)?;
        let sent = (traffic.next() - self.next) as f64;
        self.next = traffic.next();
        let requests = metrics::requests(&self.node)? - before;
        report.add("writes over HTTP", "a second", measured.per_second());
        report.add("writes over HTTP, p50", "ms", measured.latency_ms(0.5));
        report.add("writes over HTTP, p99", "ms", measured.latency_ms(0.99));
        report.add("SELECTs a write", "", requests.reads / sent);
        report.add("mutations a write", "", requests.writes / sent);
        Ok(measured.per_second())
    }

    fn writes_by_the_driver(&mut self, with_reads: bool) -> Result<f64> {
        let mut calls = self.runtime.block_on(self.recording.writes(self.options.writes))?;
        if !with_reads {
            calls.iter_mut().for_each(|call| call.reads.clear());
        }
        let sending = self.driver.send(&calls, calls.len(), self.options.connections, self.clock);
        self.runtime.block_on(sending)
    }

    fn reads(&mut self, report: &mut Report) -> Result<()> {
        let (ours, driven) = self.in_turn(report, Self::reads_over_http, Self::reads_by_the_driver)?;
        report.add("latest reads by the driver", "a second", driven);
        report.add("latest reads, HTTP / driver", "", ours / driven);
        Ok(())
    }

    fn reads_over_http(&mut self, report: &mut Report) -> Result<f64> {
        let before = metrics::requests(&self.node)?;
        let mut traffic = LatestReads::of(&self.titles);
        let measured = load::run(&self.plan(), self.clock, &mut traffic)?;
        let requests = metrics::requests(&self.node)? - before;
        report.add("latest reads over HTTP", "a second", measured.per_second());
        report.add("latest reads over HTTP, p50", "ms", measured.latency_ms(0.5));
        report.add("latest reads over HTTP, p99", "ms", measured.latency_ms(0.99));
        report.add("SELECTs a latest read", "", requests.reads / traffic.sent as f64);
        Ok(measured.per_second())
    }

    fn reads_by_the_driver(&mut self) -> Result<f64> {
        let calls = self.runtime.block_on(self.recording.latest_reads())?;
        let sending = self.driver.send(&calls, self.options.reads, self.options.connections, self.clock);
        self.runtime.block_on(sending)
    }

    fn plan(&self) -> Plan {
        Plan {
            address: self.service.address(),
            connections: self.options.connections,
            pace: Pace::Closed,
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.options.seconds),
        }
    }
}

fn latest_html(title: &str) -> String {
    format!("{}?rev/latest/html", page_path(title))
}

/// Traffic that reads the newest html of pages in turn.
struct LatestReads {
    requests: Vec<Vec<u8>>,
    sent: usize,
}

impl LatestReads {
    fn of(titles: &[String]) -> Self {
        Self { requests: titles.iter().map(|title| http::get(&latest_html(title))).collect(), sent: 0 }
    }
}

impl Traffic for LatestReads {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.requests[self.sent % self.requests.len()]);
        self.sent += 1;
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(
            status == 200 && body.len() == HTML_SIZE,
            "a read was answered with {status}, {} bytes",
            body.len()
        );
        Ok(())
    }
}
