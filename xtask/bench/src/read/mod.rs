//! `read`: reads the newest html over HTTP. For comparison, it reads the same bytes from nginx, which serves a file,
//! and from a bare server, which has the bytes in memory.

pub(crate) mod bare;
pub(crate) mod nginx;

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use xtask::{
    http::{self, Client},
    service::Service,
};

use super::{
    content::{Contents, HTML_SIZE},
    load::{self, Measurement, Pace, Plan, Traffic},
    report::Report,
    service,
    writes::{Writes, page_path},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// One of every `COMPARE_EVERY` answers is compared byte for byte. Comparing all of them would slow the load generator
/// down.
const COMPARE_EVERY: u64 = 64;
/// A page that is read but not written.
const QUIET: &str = "Quiet";
/// A page that is read and written.
const BUSY: &str = "Busy";
/// A page that is written but not read.
const OTHER: &str = "Other";

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement of a run, after one second of warm-up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of connections that read concurrently.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "read",
        format!(
            "GET of the newest html of a page, {HTML_SIZE} bytes, {} connections kept alive, {} s each after {} s to \
             warm up, one after the other in each run: Rashomon; nginx with the same bytes in a file (sendfile, \
             open_file_cache, no access log, one worker per core); axum with the same bytes in memory. Latency of \
             Rashomon: requests at fixed times, at half the rate just reached, without a writer, and with a connection \
             that writes revisions (html and data-parsoid) one after the other. The latency of a request counts from \
             its scheduled time",
            options.connections,
            options.seconds,
            WARM_UP.as_secs()
        ),
    );
    let folder = service::data_folder()?;
    let bench = Bench::start(options, binary, folder.path(), clock)?;
    for _ in 0..runs {
        bench.round(&mut report)?;
    }
    Ok(report)
}

struct Bench<'a> {
    clock: &'a dyn Clock,
    options: &'a Options,
    contents: Contents,
    service: Service,
    nginx: Service,
    bare: Service,
}

impl<'a> Bench<'a> {
    fn start(options: &'a Options, binary: &Path, folder: &Path, clock: &'a dyn Clock) -> Result<Self> {
        let contents = Contents::new(1);
        let service = service::serve(binary, &folder.join("store"))?;
        let mut client = Client::connect(service.address())?;
        let titles = vec![QUIET.to_owned(), BUSY.to_owned(), OTHER.to_owned()];
        let mut first = Writes::new(&contents, titles, 3, 1);
        first.send(&mut client, 3)?;
        let (status, html) = client.get(&latest_html(QUIET))?;
        ensure!(status == 200 && html == contents.html(3), "the page is not served as it was written");

        let file = folder.join("page.html");
        fs::write(&file, &html)?;
        let nginx = nginx::start(folder, &file)?;
        let bare = bare::start(folder, &file)?;
        Ok(Self { clock, options, contents, service, nginx, bare })
    }

    fn round(&self, report: &mut Report) -> Result<()> {
        let html = self.contents.html(3);
        let measure = Duration::from_secs(self.options.seconds);
        let closed = |server: &Service, path: &str| {
            measure_closed_loop(server.address(), path, &html, self.options.connections, measure, self.clock)
        };
        let ours = closed(&self.service, &latest_html(QUIET))?;
        let nginx = closed(&self.nginx, "/page.html")?;
        let bare = closed(&self.bare, "/")?;
        report.add("rashomon", "answers a second", ours);
        report.add("nginx", "answers a second", nginx);
        report.add("bare axum", "answers a second", bare);
        report.add("rashomon / nginx", "", ours / nginx);
        report.add("rashomon / bare axum", "", ours / bare);

        let rate = ours / 2.0;
        report.add("rate for latency", "requests a second", rate);
        let latency = |report: &mut Report, name: &str, measured: &Measurement| {
            for (label, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                report.add(&format!("{label}, {name}"), "ms", measured.latency_ms(quantile));
            }
            // If the server cannot keep up, requests wait longer and longer until the measurement ends.
            report.add(&format!("kept up, {name}"), "% of the rate", measured.per_second() / rate * 100.0);
        };
        let mut reads = Reads::new(QUIET, Some(self.contents.html(3)));
        let quiet = load::run(&self.plan(rate), self.clock, &mut reads)?;
        latency(report, "no writer", &quiet);
        for (name, read, written) in
            [("writer on another page", QUIET, OTHER), ("writer on the same page", BUSY, BUSY)]
        {
            let (measured, writes) = self.beside_a_writer(rate, read, written)?;
            latency(report, name, &measured);
            report.add(&format!("writes, {name}"), "a second", writes);
        }
        Ok(())
    }

    fn plan(&self, rate: f64) -> Plan {
        Plan {
            address: self.service.address(),
            connections: self.options.connections,
            pace: Pace::Open(rate),
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.options.seconds),
        }
    }

    /// Reads one page while one connection writes to a page. Returns the reads, and the writes per second.
    fn beside_a_writer(&self, rate: f64, read: &str, written: &str) -> Result<(Measurement, f64)> {
        let plan = self.plan(rate);
        let writer_plan = Plan { connections: 1, pace: Pace::Closed, ..plan };
        let mut client = Client::connect(self.service.address())?;
        let first = latest_revision(&mut client, written)? + 1;
        let mut writes = Writes::new(&self.contents, vec![written.to_owned()], first, 1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| load::run(&writer_plan, self.clock, &mut writes));
            let expected = (read != written).then(|| self.contents.html(3));
            let reads = load::run(&plan, self.clock, &mut Reads::new(read, expected))?;
            let writes = writer.join().expect("the writer does not panic")?;
            Ok((reads, writes.per_second()))
        })
    }
}

/// Measures the answers per second when each connection requests the path again as soon as it has an answer.
/// Checks the bytes of the answers.
pub(crate) fn measure_closed_loop(
    address: SocketAddr,
    path: &str,
    expected: &[u8],
    connections: usize,
    measure: Duration,
    clock: &dyn Clock,
) -> Result<f64> {
    let plan = Plan { address, connections, pace: Pace::Closed, warm_up: WARM_UP, measure };
    let mut reads = Reads { request: http::get(path), expected: Some(expected.to_owned()), answers: 0 };
    Ok(load::run(&plan, clock, &mut reads)?.per_second())
}

fn latest_html(title: &str) -> String {
    format!("{}?rev/latest/html", page_path(title))
}

fn latest_revision(client: &mut Client, title: &str) -> Result<u64> {
    let (status, body) = client.get(&format!("{}?rev/latest/", page_path(title)))?;
    ensure!(status == 200, "the newest render was answered with {status}");
    let render: serde_json::Value = serde_json::from_slice(&body)?;
    render["rev"].as_u64().context("the render has no revision")
}

/// Traffic that repeatedly reads one URL.
struct Reads {
    request: Vec<u8>,
    /// The expected body, if no other request changes it.
    expected: Option<Vec<u8>>,
    answers: u64,
}

impl Reads {
    fn new(title: &str, expected: Option<Vec<u8>>) -> Self {
        Self { request: http::get(&latest_html(title)), expected, answers: 0 }
    }
}

impl Traffic for Reads {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        if out.is_empty() {
            out.extend_from_slice(&self.request);
        }
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!(
            status == 200 && body.len() == HTML_SIZE,
            "a read was answered with {status}, {} bytes",
            body.len()
        );
        self.answers += 1;
        if let Some(expected) =
            self.expected.as_deref().filter(|_| self.answers.is_multiple_of(COMPARE_EVERY))
        {
            ensure!(body == expected, "a read was answered with other bytes");
        }
        Ok(())
    }
}
