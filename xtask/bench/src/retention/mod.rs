//! `retention`: measures the costs of retention for readers and writers.

mod day;
mod histograms;
mod reads;
mod stores;
mod sweep;
mod traces;
mod traffic;
mod watch;
mod writes;

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use xtask::{http::Client, service::Service};

use self::stores::{Kind, StoreLocation};
use super::{
    content::{Contents, DATA_PARSOID_SIZE, HTML_SIZE},
    load::{Pace, Plan},
    report::Report,
    writes::{Acknowledged, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);

/// Settings of a server without caches, so that every read goes to the store.
const UNCACHED: &str = "cache_size = 0\nprepared_answers = 0\n";

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Kind of store. For `cassandra`, an empty node is started.
    #[arg(long, value_enum, default_value_t = Kind::Sqlite)]
    store: Kind,
    /// Run only this part; may be given several times.
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Seconds of each measurement of reads and of writes, after one second of warm-up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Number of connections that read, and number of connections that write.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    #[command(flatten)]
    sweep: sweep::Sweep,
    #[command(flatten)]
    day: day::Day,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Reads of current, recent and historical values.
    Reads,
    /// Writes with retention and without.
    Writes,
    /// Readers during a sweep.
    Sweep,
    /// Tombstones and SSTables of a read of the latest after many culls; only on Cassandra.
    Day,
}

impl Options {
    fn measures(&self, part: Part) -> bool {
        let asked = self.only.is_empty() || self.only.contains(&part);
        asked && (part != Part::Day || self.store == Kind::Cassandra)
    }
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    ensure!(
        options.store == Kind::Cassandra || !options.only.contains(&Part::Day),
        "the part `day` can be measured only on Cassandra: add --store cassandra"
    );
    let mut report = Report::new("retention", how(options));
    let location = StoreLocation::open(options.store)?;
    let bench = Bench { options, binary, clock, contents: Contents::new(1), location };
    for number in 0..runs {
        if options.measures(Part::Reads) {
            reads::run(&bench, &mut report)?;
        }
        if options.measures(Part::Writes) {
            writes::run(&bench, number, &mut report)?;
        }
        if options.measures(Part::Sweep) {
            sweep::run(&bench, &options.sweep, &mut report)?;
        }
        if options.measures(Part::Day) {
            day::run(&bench, &options.day, &mut report)?;
        }
    }
    Ok(report)
}

fn how(options: &Options) -> String {
    let mut how = format!(
        "{} revisions with html ({HTML_SIZE} bytes) and data-parsoid ({DATA_PARSOID_SIZE} bytes), {} connections, app-ttl",
        match options.store {
            Kind::Sqlite => "on SQLite,",
            Kind::Cassandra => "on one node as `cargo xtask cassandra up` starts it,",
        },
        options.connections,
    );
    let parts = [
        (Part::Reads, reads::how(options)),
        (Part::Writes, writes::how(options)),
        (Part::Sweep, sweep::how(&options.sweep)),
        (Part::Day, day::how(&options.day)),
    ];
    for (_, part) in parts.iter().filter(|(part, _)| options.measures(*part)) {
        how.push_str(". ");
        how.push_str(part);
    }
    how
}

/// The state that the parts share.
struct Bench<'a> {
    options: &'a Options,
    binary: &'a Path,
    clock: &'a dyn Clock,
    contents: Contents,
    location: StoreLocation,
}

impl Bench<'_> {
    fn plan(&self, service: &Service, pace: Pace) -> Plan {
        Plan {
            address: service.address(),
            connections: self.options.connections,
            pace,
            warm_up: WARM_UP,
            measure: Duration::from_secs(self.options.seconds),
        }
    }

    /// Writes this many revisions to each of the pages, one after the other. Returns the acknowledged writes.
    fn fill(&self, service: &Service, titles: &[String], revisions: usize) -> Result<Vec<Acknowledged>> {
        let mut client = Client::connect(service.address())?;
        let mut writes = Writes::new(&self.contents, titles.to_vec(), 1, 1).with_journal();
        writes.send(&mut client, titles.len() * revisions)?;
        Ok(writes.journal.unwrap_or_default())
    }
}
