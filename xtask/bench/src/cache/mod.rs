//! `cache`: measures the costs and savings of HTTP caches and transformers: writes with purges, reads through Varnish,
//! the latency of purges, and reads that a transformer changes.

mod latency;
mod reads;
mod transformed;
pub(crate) mod transformer;
mod writes;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use xtask::http::Client;
use xtask::varnish::{Files, cached};

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{self, Measurement, Pace, Plan, Traffic},
    report::Report,
    writes::{Writes, page_path, titles},
};

const WARM_UP: Duration = Duration::from_secs(1);

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement of a turn, after one second of warm-up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Number of writes of each measurement of the latency of purges.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    writes: u32,
    /// Writes a second in the measurement of the latency of purges.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Folder into which the packages of Varnish and its modules were unpacked, or / if they are installed.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    varnish: PathBuf,
    /// Measure only these parts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// POST of revisions, with caches and without.
    Writes,
    /// GET of the latest, through Varnish and directly from the server.
    Reads,
    /// The time from the answer to a POST until Varnish has no older version.
    Latency,
    /// GET of a version that a transformer makes.
    Transformed,
}

impl Options {
    fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

fn how(options: &Options) -> String {
    format!(
        "Stores on SQLite, and Varnish with docs/varnish.vcl. Compared measurements take turns in changing order, with \
         {} connections kept alive, for {} s each after {} s of warm-up. Writes: POST of revisions with html \
         ({HTML_SIZE} bytes) and data-parsoid ({DATA_PARSOID_SIZE} bytes) to {} pages; the next measurement waits \
         until all purges were acknowledged twice. Reads: GET of the html of {} pages; the latency is measured at half \
         the lower rate. Latency of purges: {} writes, {} a second, each to another page that Varnish has stored for \
         at least {} s; after the answer to the POST, one connection reads the html from Varnish until it is new. \
         Transformed reads: GET of html that a transformer makes, and POST of the stored html directly to this \
         transformer, which answers from memory",
        options.connections,
        options.seconds,
        WARM_UP.as_secs(),
        writes::PAGES,
        reads::PAGES,
        options.writes,
        options.rate,
        cached::OLD_ENOUGH.as_secs(),
    )
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new("cache", how(options));
    let bench = Bench { options, binary, contents: &Contents::new(1), runs, clock };
    if options.measures(Part::Writes) {
        writes::measure(&bench, &Files::find_below(&options.varnish)?, &mut report)?;
    }
    if options.measures(Part::Reads) {
        reads::measure(&bench, &Files::find_below(&options.varnish)?, &mut report)?;
    }
    if options.measures(Part::Latency) {
        latency::measure(&bench, &Files::find_below(&options.varnish)?, &mut report)?;
    }
    if options.measures(Part::Transformed) {
        transformed::measure(&bench, &mut report)?;
    }
    Ok(report)
}

/// The program, the contents and the options that all parts of the benchmark use.
#[derive(Clone, Copy)]
struct Bench<'a> {
    options: &'a Options,
    binary: &'a Path,
    contents: &'a Contents,
    runs: usize,
    clock: &'a dyn Clock,
}

impl Bench<'_> {
    fn run(&self, address: SocketAddr, pace: Pace, traffic: &mut dyn Traffic) -> Result<Measurement> {
        let plan = Plan {
            address,
            connections: self.options.connections,
            pace,
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.options.seconds),
        };
        load::run(&plan, self.clock, traffic)
    }

    /// Compares the highest rates of two kinds of requests, and their latency at half the lower rate.
    fn compare(
        &self,
        turn: usize,
        report: &mut Report,
        (one_name, one_address, one): (&str, SocketAddr, &mut dyn Traffic),
        (other_name, other_address, other): (&str, SocketAddr, &mut dyn Traffic),
    ) -> Result<()> {
        let mut both = |pace| {
            load::in_turn(turn, || self.run(one_address, pace, one), || self.run(other_address, pace, other))
        };
        let (one, other) = both(Pace::Closed)?;
        report.add(one_name, "a second", one.per_second());
        report.add(other_name, "a second", other.per_second());
        report.add(&format!("{one_name} / {other_name}"), "", one.per_second() / other.per_second());
        let rate = one.per_second().min(other.per_second()) / 2.0;
        let (one, other) = both(Pace::Open(rate))?;
        for (label, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            for (name, measured) in [(one_name, &one), (other_name, &other)] {
                report.add(&format!("{label}, {name}"), "ms", measured.latency_ms(quantile));
            }
        }
        Ok(())
    }
}

/// Writes a first revision of each page. The number of a page's revision is the index of the page plus one. Returns the
/// traffic that writes later revisions.
fn write_pages<'a>(bench: &Bench<'a>, address: SocketAddr, pages: usize) -> Result<Writes<'a>> {
    // A revision is written to the page with its number, modulo the number of pages.
    let mut titles = titles(pages);
    titles.rotate_right(1);
    let mut writes = Writes::new(bench.contents, titles, 1, 1);
    writes.send(&mut Client::connect(address)?, pages)?;
    Ok(writes)
}

/// The URLs of the latest html of pages.
fn latest_htmls(pages: usize) -> Vec<String> {
    titles(pages).iter().map(|title| format!("{}?rev/latest/html", page_path(title))).collect()
}

/// Reads a URL. A status other than 200 is an error.
fn read(client: &mut Client, path: &str) -> Result<Vec<u8>> {
    let (status, body) = client.get(path)?;
    ensure!(status == 200, "{path} is answered with {status}: {}", String::from_utf8_lossy(&body));
    Ok(body)
}
