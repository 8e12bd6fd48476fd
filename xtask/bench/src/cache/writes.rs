//! Compares POST of revisions to servers with two caches and to a server without caches.

use std::time::Duration;

use anyhow::Result;
use xtask::varnish::{
    Files,
    cached::{
        Caches,
        Method::{Keys, Purge},
        Server,
    },
};

use super::Bench;
use crate::{
    load::Pace,
    report::Report,
    service,
    writes::{Writes, titles},
};

/// The number of pages that are written in turn.
pub(super) const PAGES: usize = 1_000;

/// The servers, in the order of the first turn. The first server is the base of the ratios. With caches that cannot be
/// reached, a write costs only its row in the queue, and no request.
const SIDES: [(&str, Caches); 4] = [
    ("no caches", Caches { methods: &[], are_up: false }),
    ("two caches by keys", Caches { methods: &[Keys, Keys], are_up: true }),
    ("one by keys, one by PURGE", Caches { methods: &[Keys, Purge], are_up: true }),
    ("two caches that are down", Caches { methods: &[Keys, Purge], are_up: false }),
];

pub(super) fn measure(bench: &Bench<'_>, files: &Files, report: &mut Report) -> Result<()> {
    let folder = service::data_folder()?;
    let mut sides = Vec::new();
    for (place, (name, caches)) in SIDES.into_iter().enumerate() {
        let folder = folder.path().join(place.to_string());
        let server = Server::start(bench.binary, files, &folder, caches)?;
        sides.push(Side { name, server, next_revision: 1 });
    }
    for turn in 0..bench.runs {
        eprintln!("writes, turn {}", turn + 1);
        let mut rates = [0.0; SIDES.len()];
        for step in 0..SIDES.len() {
            let place = (turn + step) % SIDES.len();
            rates[place] = sides[place].measure(bench, report)?;
        }
        for (place, (name, _)) in SIDES.into_iter().enumerate() {
            report.add(&format!("POST, {name}"), "a second", rates[place]);
            if place > 0 {
                report.add(&format!("POST, {name} / {}", SIDES[0].0), "", rates[place] / rates[0]);
            }
        }
    }
    Ok(())
}

/// A server to which revisions are written.
struct Side {
    name: &'static str,
    server: Server,
    next_revision: u64,
}

impl Side {
    /// Measures the writes per second, and the costs of each write with all its purges. Ends when all purges have been
    /// acknowledged.
    fn measure(&mut self, bench: &Bench<'_>, report: &mut Report) -> Result<f64> {
        let connections = bench.options.connections;
        let mut writes = Writes::new(bench.contents, titles(PAGES), self.next_revision, connections);
        let before = self.server.figures()?;
        let measured = bench.run(self.server.address(), Pace::Closed, &mut writes)?;
        let drained_in = self.server.drain()?;
        let after = self.server.figures()?;
        let written = (writes.next() - self.next_revision) as f64;
        self.next_revision = writes.next();

        let name = self.name;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / written;
        let server_time = each(after.server_time - before.server_time);
        report.add(&format!("processor time of the server for each POST, {name}"), "µs", server_time);
        if after.sent > 0.0 {
            let cache_time = each(after.cache_time - before.cache_time);
            report.add(&format!("processor time of Varnish for each POST, {name}"), "µs", cache_time);
            let sent = (after.sent - before.sent) / written;
            report.add(&format!("requests of purges for each POST, {name}"), "", sent);
            let left = (after.left - before.left) / written;
            report.add(&format!("purges left to the queue for each POST, {name}"), "", left);
            let seconds = drained_in.as_secs_f64();
            report.add(&format!("time after the last POST until all was acknowledged, {name}"), "s", seconds);
            self.server.drain_queue(&before)?;
        }
        Ok(measured.per_second())
    }
}
