//! `write`: measures durable writes of new revisions over HTTP.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use rashomon_clock::Clock;

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    direct,
    load::{self, Pace, Plan},
    report::Report,
    service,
    writes::{self, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// The number of pages that are written in turn.
const PAGES: usize = 1_000;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each run, after one second of warm-up.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of connections that write concurrently.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Write all revisions to one page.
    #[arg(long)]
    hot: bool,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let pages = if options.hot { 1 } else { PAGES };
    let mut report = Report::new(
        if options.hot { "write, one page" } else { "write" },
        format!(
            "POST of new revisions with html ({HTML_SIZE} bytes) and data-parsoid ({DATA_PARSOID_SIZE} bytes) as \
             multipart/form-data, {} connections, {pages} pages in turn, into a new store, {} s after {} s of warm-up. \
             In the same run, as many tasks make {} such writes directly to the tables of new stores: first only the \
             recorded batches, then with each body received before its batch (SHA-1, compression)",
            options.connections,
            options.seconds,
            WARM_UP.as_secs(),
            direct::WRITES
        ),
    );
    let contents = Arc::new(Contents::new(1));
    let titles = writes::titles(pages);
    let runtime = tokio::runtime::Runtime::new()?;
    let recorded = Arc::new(runtime.block_on(direct::record(Arc::clone(&contents), &titles))?);
    for _ in 0..runs {
        let folder = service::data_folder()?;
        let service = service::serve(binary, &folder.path().join("store"))?;
        let plan = Plan {
            address: service.address(),
            connections: options.connections,
            pace: Pace::Closed,
            warm_up: WARM_UP,
            measure: Duration::from_secs(options.seconds),
        };
        let mut writes = Writes::new(&contents, titles.clone(), 1, options.connections);
        let measured = load::run(&plan, clock, &mut writes)?;
        report.add("over HTTP", "writes a second", measured.per_second());
        report.add("p50", "ms", measured.latency_ms(0.5));
        report.add("p99", "ms", measured.latency_ms(0.99));
        drop(service);
        for (name, receive_bodies) in
            [("tables, batches ready made", false), ("tables, bodies received", true)]
        {
            let store = folder.path().join(if receive_bodies { "tables-bodies" } else { "tables-batches" });
            let written = direct::write(&recorded, &store, options.connections, receive_bodies, clock);
            let direct = runtime.block_on(written)?;
            report.add(name, "writes a second", direct);
            report.add(&format!("over HTTP / {name}"), "", measured.per_second() / direct);
        }
    }
    Ok(report)
}
