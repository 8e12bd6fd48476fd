//! `write`: durable writes of new revisions over HTTP.

use std::{path::Path, time::Duration};

use anyhow::Result;
use rashomon_clock::Clock;

use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{self, Pace, Plan},
    report::Report,
    service,
    writes::{self, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);
/// How many pages are written to in turn.
const PAGES: usize = 1_000;

/// How it is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long each run takes, after a second to warm up.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many connections write at a time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// All write to one page.
    #[arg(long)]
    hot: bool,
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let pages = if options.hot { 1 } else { PAGES };
    let mut report = Report::new(
        if options.hot { "write, one page" } else { "write" },
        format!(
            "POST of new revisions with html ({HTML_SIZE} bytes) and data-parsoid ({DATA_PARSOID_SIZE} bytes) as \
             multipart/form-data, {} connections, {pages} pages in turn, into a new store, {} s after {} s to warm up",
            options.connections,
            options.seconds,
            WARM_UP.as_secs()
        ),
    );
    let contents = Contents::new(1);
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
        let mut writes = Writes::new(&contents, writes::titles(pages), 1, options.connections);
        let measured = load::run(&plan, clock, &mut writes)?;
        report.add("over HTTP", "writes a second", measured.per_second());
        report.add("p50", "ms", measured.latency_ms(0.5));
        report.add("p99", "ms", measured.latency_ms(0.99));
        drop(service);
    }
    Ok(report)
}
