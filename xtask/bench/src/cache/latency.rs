//! Measures the latency of purges: the time from the answer to a POST until reads through Varnish no longer return an
//! older version.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use xtask::http::Client;
use xtask::varnish::{
    Files,
    cached::{Caches, Method, Server},
};

use super::{Bench, latest_htmls, read, write_pages};
use crate::{report::Report, service, writes::Writes};

/// The time limit of a purge, and the highest latency in a histogram.
const LIMIT: Duration = Duration::from_secs(60);

/// The servers, each with one cache.
const SIDES: [(&str, Caches); 2] = [
    ("PURGE", Caches { methods: &[Method::Purge], are_up: true }),
    ("keys", Caches { methods: &[Method::Keys], are_up: true }),
];

pub(super) fn measure(bench: &Bench<'_>, files: &Files, report: &mut Report) -> Result<()> {
    let folder = service::data_folder()?;
    let mut sides = Vec::new();
    for (name, caches) in SIDES {
        let server = Server::start(bench.binary, files, &folder.path().join(name), caches)?;
        let writes = write_pages(bench, server.address(), bench.options.writes as usize)?;
        sides.push(Side { name, server, writes });
    }
    for turn in 0..bench.runs {
        eprintln!("latency of purges, turn {}", turn + 1);
        for step in 0..SIDES.len() {
            sides[(turn + step) % SIDES.len()].measure(bench, report)?;
        }
    }
    Ok(())
}

/// A server whose pages are written one after the other.
struct Side<'a> {
    name: &'static str,
    server: Server,
    writes: Writes<'a>,
}

impl Side<'_> {
    /// Writes each page once, and reads the page through Varnish until Varnish returns the new html.
    fn measure(&mut self, bench: &Bench<'_>, report: &mut Report) -> Result<()> {
        let paths = latest_htmls(bench.options.writes as usize);
        self.server.drain()?;
        self.server.store(&paths)?;
        let before = self.server.figures()?;
        let (mut until_sent, mut until_received) = (histogram()?, histogram()?);
        let mut new_at_first_read = 0_u32;
        let mut writer = Client::connect(self.server.address())?;
        let mut reader = Client::connect(self.server.cache())?;
        let interval = Duration::from_secs(1) / bench.options.rate;
        let mut due = bench.clock.monotonic();
        for path in &paths {
            self.server.ensure_stored(path)?;
            thread::sleep(due.saturating_sub(bench.clock.monotonic()));
            due += interval;
            let rev = self.writes.next();
            let new = bench.contents.html(rev);
            self.writes.send(&mut writer, 1)?;
            let written = bench.clock.monotonic();
            let mut reads = 0;
            loop {
                let sent = bench.clock.monotonic();
                let body = read(&mut reader, path)?;
                reads += 1;
                let received = bench.clock.monotonic();
                if body == new {
                    until_sent.saturating_record(u64::try_from((sent - written).as_nanos())?);
                    until_received.saturating_record(u64::try_from((received - written).as_nanos())?);
                    break;
                }
                let old = bench.contents.html(rev - paths.len() as u64);
                ensure!(
                    body == old,
                    "the html at {path} is neither that of revision {rev} nor the one before"
                );
                ensure!(received - written < LIMIT, "{path} was not purged in {LIMIT:?}");
            }
            new_at_first_read += u32::from(reads == 1);
        }
        let after = self.server.figures()?;
        let name = self.name;
        let ms = |histogram: &Histogram<u64>, quantile| histogram.value_at_quantile(quantile) as f64 / 1e6;
        for (label, quantile) in [("p50", 0.5), ("p99", 0.99), ("maximum", 1.0)] {
            report.add(
                &format!("{label} until reads that begin are new, {name}"),
                "ms",
                ms(&until_sent, quantile),
            );
        }
        for (label, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            report.add(
                &format!("{label} until a new answer is complete, {name}"),
                "ms",
                ms(&until_received, quantile),
            );
        }
        let share = f64::from(new_at_first_read) / paths.len() as f64 * 100.0;
        report.add(&format!("writes after which the first read was new, {name}"), "%", share);
        let mean = (after.delay_sum - before.delay_sum) / (after.delays - before.delays) * 1e3;
        report.add(&format!("mean of the server's metric, {name}"), "ms", mean);
        Ok(())
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(LIMIT.as_nanos())?, 3)?)
}
