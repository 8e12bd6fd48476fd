//! Reads of current, recent and historical values, by tid.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xtask::{http::Client, service::Service};

use super::{
    Bench, UNCACHED,
    traffic::{Reads, by_tid},
    watch::Watch,
};
use crate::{
    load::{self, Measurement, Pace},
    report::Report,
    writes::titles,
};

/// The number of pages that are read in turn. One more page has a superseded render that is never read.
const PAGES: usize = 200;

/// The part of the maximum rate at which latency is measured. It is so low that a read of twice the cost does not delay
/// other reads.
const PART_OF_THE_RATE: f64 = 0.25;

/// Settings that keep superseded values.
const KEPT: &str = "[retention]\ngrace = '1h'\nttl = '1h'\nslack = '15m'\n";
/// Settings that cull superseded values after about a second, unless they were read. The first `skew`, outside of
/// `[retention]`, delays culls on a cluster.
const CULLED: &str = "skew = '0s'\n[retention]\ngrace = '1s'\nttl = '1h'\nslack = '250ms'\nskew = '100ms'\n";
/// The time within which all superseded values must be culled.
const CULLED_WITHIN: Duration = Duration::from_secs(120);

pub(super) fn how(options: &super::Options) -> String {
    format!(
        "Reads: the html of {PAGES} pages in turn by tid, without caches, {} s each, at a quarter of the rate at which \
         a closed loop reads current renders. First the current renders, and the superseded ones (recent; an earlier \
         read has copied them). Then both again, after a restart with a grace of a second and the cull of all \
         superseded values (historical). A superseded render that was never read is answered with 404 then",
        options.seconds
    )
}

pub(super) fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let store = bench.location.new_store()?;
    let titles = titles(PAGES + 1);
    let service = store.serve(bench.binary, &format!("{UNCACHED}{KEPT}"))?;
    let written = bench.fill(&service, &titles, 2)?;
    let (superseded, latest) = written.split_at(titles.len());
    let (unread, superseded) = superseded.split_first().context("there are no pages")?;
    let unread = by_tid(&titles, [unread]).remove(0).0;
    let (superseded, latest) = (by_tid(&titles, superseded), by_tid(&titles, latest));

    let first_reads = first_reads(bench, &service, &superseded)?;
    report.add("recent, first read, p50", "ms", first_reads);
    let closed = load::run(&bench.plan(&service, Pace::Closed), bench.clock, &mut reads(bench, &latest))?;
    report.add("current, closed loop", "answers a second", closed.per_second());
    let rate = closed.per_second() * PART_OF_THE_RATE;
    report.add("rate for latency", "requests a second", rate);
    let at_rate = |service: &Service, asked: &[(Vec<u8>, Option<u64>)]| {
        load::run(&bench.plan(service, Pace::Open(rate)), bench.clock, &mut reads(bench, asked))
    };
    let current = at_rate(&service, &latest)?;
    let recent = at_rate(&service, &superseded)?;
    add(report, "current", &current);
    add(report, "recent", &recent);
    report.add("recent / current, p50", "", recent.latency_ms(0.5) / current.latency_ms(0.5));

    ensure!(service.stop()?.success(), "the server ended with an error");
    let service = store.serve(bench.binary, &format!("{UNCACHED}{CULLED}"))?;
    let all = titles.len() as u64;
    Watch::open(service.address(), bench.clock)?.until(CULLED_WITHIN, |seen| seen.culled >= all)?;
    let (status, _) = Client::connect(service.address())?.send(&unread)?;
    ensure!(status == 404, "a culled render that nobody had read was answered with {status}");
    let current = at_rate(&service, &latest)?;
    let historical = at_rate(&service, &superseded)?;
    add(report, "current after the cull", &current);
    add(report, "historical", &historical);
    report.add("historical / current, p50", "", historical.latency_ms(0.5) / current.latency_ms(0.5));
    Ok(())
}

fn reads<'a>(bench: &'a Bench<'_>, asked: &'a [(Vec<u8>, Option<u64>)]) -> Reads<'a> {
    Reads::new(&bench.contents, asked, bench.options.connections)
}

fn add(report: &mut Report, name: &str, measured: &Measurement) {
    report.add(&format!("{name}, p50"), "ms", measured.latency_ms(0.5));
    report.add(&format!("{name}, p99"), "ms", measured.latency_ms(0.99));
}

/// Reads each value once, one after the other. The first read of a value makes its read copy. Returns the
/// median time in milliseconds.
fn first_reads(bench: &Bench<'_>, service: &Service, asked: &[(Vec<u8>, Option<u64>)]) -> Result<f64> {
    let mut client = Client::connect(service.address())?;
    let mut took = Vec::with_capacity(asked.len());
    for (request, _) in asked {
        let started = bench.clock.monotonic();
        let (status, _) = client.send(request)?;
        ensure!(status == 200, "a render that was just superseded was answered with {status}");
        took.push(bench.clock.monotonic() - started);
    }
    took.sort_unstable();
    Ok(took[took.len() / 2].as_secs_f64() * 1e3)
}
