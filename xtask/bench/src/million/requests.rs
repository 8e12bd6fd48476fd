//! Requests to pages of the wiki, in random order, each page once, so that no answer comes from what an earlier request
//! left. Each measurement has a seed and a server of its own.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use rashomon_clock::{Clock, rfc3339};
use xtask::{
    http::{self, Client},
    service::Service,
};

use super::wiki::{Known, Wiki, tid, title};
use crate::{
    counted::{CountedTraffic, Outcome},
    load::{self, Measurement, Pace, Plan},
    memory,
    reads::Reads,
    report::Report,
    service,
    writes::page_path,
};

/// The kinds of reads of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Latest,
    List,
    Tid,
    /// Like [`Self::Time`], answered with a redirect to the render, which is not followed.
    Number,
    Time,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [Self::Latest, Self::List, Self::Number, Self::Tid, Self::Time];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Latest => "latest",
            Self::List => "list of revisions",
            Self::Number => "text by number",
            Self::Tid => "text by tid",
            Self::Time => "text by time",
        }
    }
}

/// The numbers of connections at which the rate of reads of the latest is measured.
const CONNECTIONS: [usize; 2] = [16, 64];
/// The number of connections that fill the memory of the server, and the number of pages that they read at most.
const FILLING_CONNECTIONS: usize = 16;
const MAX_FILLING_READS: usize = 1_000_000;

/// Measures requests to a server on a store.
pub(super) struct Requests<'a> {
    pub(super) binary: &'a Path,
    pub(super) store: &'a Path,
    pub(super) wiki: &'a Wiki,
    pub(super) clock: &'a dyn Clock,
    /// The time after which a measurement is cut off.
    pub(super) limit: Duration,
    /// The number of requests of a measurement.
    pub(super) count: usize,
    pub(super) seed: u64,
    pub(super) rng: Rng,
    /// The number of the next revision that is written.
    pub(super) next_revision: u64,
}

impl Requests<'_> {
    /// Reads of each kind on one connection, and of the latest on many.
    pub(super) fn reads(&mut self, report: &mut Report) -> Result<()> {
        for kind in Kind::ALL {
            let server = self.serve(report)?;
            let (measured, outcome) = self.read(kind, &server, 1)?;
            add_latency(report, kind.name(), &measured);
            ensure!(outcome.refused.is_empty(), "a read on one connection was refused");
            ensure!(server.stop()?.success(), "the server ended with an error");
        }
        for connections in CONNECTIONS {
            let server = self.serve(report)?;
            let (measured, outcome) = self.read(Kind::Latest, &server, connections)?;
            let name = format!("latest, {connections} connections");
            let served = outcome.served as f64 / measured.answers as f64;
            report.add(&name, "a second", measured.per_second() * served);
            report.add(&format!("{name}, refused"), "%", (1.0 - served) * 100.0);
            ensure!(server.stop()?.success(), "the server ended with an error");
        }
        Ok(())
    }

    /// Writes of new pages, of pages in rows, and of random pages of the wiki. `turn` counts the calls, since a page of the
    /// wiki is written only once; there are `turns` calls in all.
    pub(super) fn writes(&mut self, report: &mut Report, turn: usize, turns: usize) -> Result<()> {
        let pages = self.wiki.pages() as usize;
        let count = self.count.min(pages / turns).max(1);
        let mut order: Vec<u32> = (0..self.wiki.pages()).collect();
        Rng::with_seed(self.seed).shuffle(&mut order);
        let of_wiki: Vec<String> =
            order.iter().cycle().skip(turn * count).take(count).map(|page| title(*page)).collect();
        let in_rows: Vec<String> = (0..count).map(|page| format!("Row_{turn}_{page}")).collect();
        for (name, titles) in [
            ("POST to a new page", &in_rows),
            ("POST to a page in rows", &in_rows),
            ("POST to a random page", &of_wiki),
        ] {
            let server = self.serve(report)?;
            let posts = titles.iter().map(|title| self.post(title)).collect();
            let (measured, outcome) =
                self.send(Reads::of(posts, None, None, 1).with_status(201), count, &server, 1)?;
            add_latency(report, name, &measured);
            ensure!(outcome.refused.is_empty(), "a write on one connection was refused");
            ensure!(server.stop()?.success(), "the server ended with an error");
        }
        Ok(())
    }

    /// The memory of the server after reads of the latest of all pages, and what its caches report.
    pub(super) fn memory(&mut self, report: &mut Report) -> Result<()> {
        let server = self.serve(report)?;
        let mut order: Vec<u32> = (0..self.wiki.pages()).collect();
        self.rng.shuffle(&mut order);
        order.truncate(MAX_FILLING_READS);
        let path = |page: &u32| http::get(&format!("{}?rev/latest/wikitext", page_path(&title(*page))));
        let requests = order.iter().map(path).collect();
        let reads = Reads::of(requests, None, None, FILLING_CONNECTIONS);
        let (_, outcome) = self.send(reads, order.len(), &server, FILLING_CONNECTIONS)?;
        let mib = |kib: Option<u64>| kib.map_or(f64::NAN, |kib| kib as f64 / 1024.0);
        report.add("reads of the latest before the memory was read", "", outcome.served as f64);
        report.add("resident memory after these reads", "MiB", mib(memory::resident(server.id())));
        report.add("resident memory without files", "MiB", mib(memory::own(server.id())));
        for (name, bytes) in caches(server.address())? {
            report.add(&format!("{name} in /metrics"), "MiB", bytes / f64::from(1 << 20));
        }
        ensure!(server.stop()?.success(), "the server ended with an error");
        Ok(())
    }

    /// Starts a server.
    fn serve(&self, report: &mut Report) -> Result<Service> {
        let server = service::serve(self.binary, self.store)?;
        report.add("start", "s", server.started_in().as_secs_f64());
        Ok(server)
    }

    fn read(&mut self, kind: Kind, server: &Service, connections: usize) -> Result<(Measurement, Outcome)> {
        let (pages, mut rng) = (self.wiki.pages(), self.rng.fork());
        let of_pages = matches!(kind, Kind::Latest | Kind::List);
        let count = if of_pages { self.count.min(pages as usize) } else { self.count };
        // A wiki of a few pages is read more often, at random revisions.
        let mut order: Vec<u32> = (0..pages).cycle().take(count.max(pages as usize)).collect();
        rng.shuffle(&mut order);
        order.truncate(count);
        let histories = self.wiki.histories(&order);
        let (mut requests, mut expected) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for page in order {
            let known = &histories[&page];
            let revision = if of_pages { known.last() } else { known.get(rng.usize(..known.len())) };
            let revision = revision.context("a page has no revisions")?;
            requests.push(http::get(&read_path(kind, page, revision)?));
            expected.push(revision.text.clone().into_bytes());
        }
        let is_text = matches!(kind, Kind::Latest | Kind::Tid);
        let reads = Reads::of(requests, None, is_text.then_some(expected), connections);
        let status = if matches!(kind, Kind::Number | Kind::Time) { 302 } else { 200 };
        self.send(reads.with_status(status), count, server, connections)
    }

    /// Sends requests once each.
    fn send(
        &self,
        reads: Reads,
        count: usize,
        server: &Service,
        connections: usize,
    ) -> Result<(Measurement, Outcome)> {
        let (address, warm_up, measure) = (server.address(), Duration::ZERO, self.limit);
        let plan = Plan { address, connections, pace: Pace::Closed, warm_up, measure };
        let mut traffic = CountedTraffic::new(reads)?.ending_after(count as u64);
        let measured = load::run(&plan, self.clock, &mut traffic)?;
        if (measured.answers as usize) < count {
            eprintln!("cut off after {} of {count} requests", measured.answers);
        }
        Ok((measured, traffic.outcome))
    }

    /// The request of a new revision.
    fn post(&mut self, title: &str) -> Vec<u8> {
        let (path, rev) = (page_path(title), self.next_revision);
        self.next_revision += 1;
        let body = format!("_rev={rev}&wikitext={}", "new+text+".repeat(self.text_words()));
        format!(
            "POST {path}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// The number of repetitions of nine bytes that make a text of about the size of the wiki's short texts.
    fn text_words(&self) -> usize {
        self.wiki.bytes().div_ceil(9)
    }
}

fn read_path(kind: Kind, page: u32, revision: &Known) -> Result<String> {
    let path = page_path(&title(page));
    Ok(match kind {
        Kind::Latest => format!("{path}?rev/latest/wikitext"),
        Kind::List => format!("{path}?rev/"),
        Kind::Number => format!("{path}?rev/{}/wikitext", revision.number),
        Kind::Tid => format!("{path}?rev/{}/wikitext", tid(page, revision)?),
        Kind::Time => format!("{path}?rev/{}/wikitext", rfc3339::format(revision.time)),
    })
}

pub(super) fn add_latency(report: &mut Report, name: &str, measured: &Measurement) {
    for (label, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        report.add(&format!("{name}, {label}"), "ms", measured.latency_ms(quantile));
    }
}

/// The sizes that the caches of a server report.
fn caches(address: SocketAddr) -> Result<Vec<(String, f64)>> {
    let (status, text) = Client::connect(address)?.get("/metrics")?;
    ensure!(status == 200, "the metrics were answered with {status}");
    Ok(parse_caches(&String::from_utf8(text)?))
}

fn parse_caches(metrics: &str) -> Vec<(String, f64)> {
    let gauges = metrics.lines().filter_map(|line| line.rsplit_once(' '));
    gauges
        .filter(|(name, _)| name.contains("cache") && name.ends_with("_bytes"))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_found_in_metrics() {
        let metrics = "# HELP rashomon_cache_bytes Approximate bytes\n# TYPE rashomon_cache_bytes gauge\nrashomon_cache_bytes 2983.0\n\
                       rashomon_cache_hits_total 7\nrashomon_http_staged_bytes 9\nrashomon_archive_cache_bytes 12\n";
        let expected =
            [("rashomon_cache_bytes".to_owned(), 2983.0), ("rashomon_archive_cache_bytes".to_owned(), 12.0)];
        assert_eq!(parse_caches(metrics), expected);
    }
}
