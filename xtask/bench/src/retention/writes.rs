//! Measures durable writes with retention and without.

use anyhow::Result;

use super::Bench;
use crate::{
    load::{self, Pace},
    report::Report,
    writes::{Writes, titles},
};

/// The number of pages that are written in turn.
const PAGES: usize = 1_000;

/// The names of the variants, and the retention settings of their servers.
const VARIANTS: [(&str, &str); 3] = [
    ("retention off", ""),
    ("retention on", "[retention]\ngrace = '24h'\n"),
    // The first `skew`, outside of `[retention]`, delays culls on a cluster.
    ("a grace of 1 s", "skew = '0s'\n[retention]\ngrace = '1s'\nslack = '250ms'\nskew = '100ms'\n"),
];

pub(super) fn how(options: &super::Options) -> String {
    format!(
        "Writes: POST of new revisions to {PAGES} pages in turn, {} s into a new store each: without \
         retention; with retention and a grace of a day; and with a grace of a second, so that the sweep \
         culls meanwhile. The order changes from run to run",
        options.seconds
    )
}

pub(super) fn run(bench: &Bench<'_>, number: usize, report: &mut Report) -> Result<()> {
    let titles = titles(PAGES);
    let mut rates = [0.0; VARIANTS.len()];
    for turn in 0..VARIANTS.len() {
        let index = (number + turn) % VARIANTS.len();
        let (name, settings) = VARIANTS[index];
        let store = bench.location.new_store()?;
        let service = store.serve(bench.binary, settings)?;
        let mut writes = Writes::new(&bench.contents, titles.clone(), 1, bench.options.connections);
        let measured = load::run(&bench.plan(&service, Pace::Closed), bench.clock, &mut writes)?;
        rates[index] = measured.per_second();
        report.add(&format!("writes, {name}"), "a second", measured.per_second());
        report.add(&format!("writes, {name}, p99"), "ms", measured.latency_ms(0.99));
    }
    let [off, on, culling] = rates;
    report.add("writes, on / off", "", on / off);
    report.add("writes, a grace of 1 s / off", "", culling / off);
    Ok(())
}
