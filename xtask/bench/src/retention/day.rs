//! Measures what a day of culls on hot pages costs readers, by the metrics of Cassandra.
//!
//! A day is a fixed number of edits of each page. After each edit the superseded values are culled. The grace
//! is a second, so the edits need not be a minute apart.

use std::time::Duration;

use anyhow::{Context, Result};
use xtask::http::Client;

use super::{
    Bench, UNCACHED, WARM_UP,
    histograms::{SelectHistograms, take_histograms},
    traces,
    traffic::{Reads, latest},
    watch::Watch,
};
use crate::{
    cassandra::metrics,
    load::{self, Pace, Plan},
    report::Report,
    writes::{Writes, titles},
};

/// The number of hot pages.
const PAGES: usize = 10;
/// The number of flushes of the node's memory within the day, as in production.
const FLUSHES: u32 = 8;
/// The settings of the server. The first `skew`, outside of `[retention]`, delays culls on a cluster.
const SETTINGS: &str = "skew = '0s'\n[retention]\ngrace = '1s'\nslack = '250ms'\nskew = '100ms'\n";
/// The time after the last write within which all superseded values must be culled.
const CULLED_WITHIN: Duration = Duration::from_secs(300);
/// The tables that a read of the latest reads, and the tables that it would read next if these had no value.
const TABLES: [&str; 4] = ["renders", "revisions", "render_content", "historical"];

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Day {
    /// Number of edits of each hot page in a day. The default is one per minute.
    #[arg(long, default_value_t = 1_440)]
    edits: u32,
    /// Number of edits per second, of all pages together.
    #[arg(long, default_value_t = 150.0)]
    edit_rate: f64,
}

pub(super) fn how(options: &Day) -> String {
    format!(
        "Day: {} edits of each of {PAGES} pages in turn, {} a second, with a grace of a second and {FLUSHES} flushes. \
         When all superseded values are culled and flushed, a closed loop reads the newest html of these pages. The \
         node's TombstoneScannedHistogram (which counts a SELECT without tombstones with one) and \
         SSTablesPerReadHistogram show these reads alone. Then one more read of each page is traced",
        options.edits, options.edit_rate
    )
}

pub(super) fn run(bench: &Bench<'_>, options: &Day, report: &mut Report) -> Result<()> {
    let store = bench.location.new_store()?;
    let (cluster, keyspace) = store.keyspace().context("a day of culls can only be measured on Cassandra")?;
    let node = &cluster.node;
    let service = store.serve(bench.binary, &format!("{UNCACHED}{SETTINGS}"))?;
    let titles = titles(PAGES);
    let edits = f64::from(options.edits) * PAGES as f64;
    let part = Duration::from_secs_f64(edits / options.edit_rate / f64::from(FLUSHES));
    let plan = |pace, measure| Plan { measure, warm_up: Duration::ZERO, ..bench.plan(&service, pace) };
    let mut writes = Writes::new(&bench.contents, titles.clone(), 1, bench.options.connections);
    for _ in 0..FLUSHES {
        load::run(&plan(Pace::Open(options.edit_rate), part), bench.clock, &mut writes)?;
        metrics::flush(node, keyspace)?;
    }
    let superseded = writes.next() - 1 - PAGES as u64;
    report.add("day, edits", "", (writes.next() - 1) as f64);
    let mut watch = Watch::open(service.address(), bench.clock)?;
    // A few requests may have been cut off when a part of the load ended.
    let cut_off = u64::from(FLUSHES) * bench.options.connections as u64;
    watch.until(CULLED_WITHIN, |seen| seen.culled + cut_off >= superseded && seen.overdue == 0.0)?;
    report.add("day, culled", "renders", watch.look()?.culled as f64);
    metrics::flush(node, keyspace)?;

    // Reading the histograms resets them.
    take_histograms(node, keyspace)?;
    let latest = latest(&titles);
    let mut reads = Reads::new(&bench.contents, &latest, bench.options.connections);
    let read = Plan { warm_up: WARM_UP, ..bench.plan(&service, Pace::Closed) };
    load::run(&read, bench.clock, &mut reads)?;
    let counted = take_histograms(node, keyspace)?;
    for table in TABLES {
        if let Some(SelectHistograms { tombstones, sstables }) = counted.get(table) {
            for (what, counted) in [("tombstones", tombstones), ("SSTables", sstables)] {
                report.add(&format!("day, {what} a SELECT of {table}, mean"), "", counted.mean());
                report.add(&format!("day, {what} a SELECT of {table}, most"), "", counted.most());
            }
        }
    }
    let mut client = Client::connect(service.address())?;
    let traced = traces::tombstones(node, &cluster.runtime, &cluster.session, || {
        latest.iter().try_for_each(|(request, _)| client.send(request).map(drop))
    })?;
    for table in TABLES {
        if let Some(met) = traced.get(table) {
            let most = met.iter().max().copied().unwrap_or_default() as f64;
            report.add(&format!("day, tombstones a SELECT of {table}, most, traced"), "", most);
        }
    }
    Ok(())
}
