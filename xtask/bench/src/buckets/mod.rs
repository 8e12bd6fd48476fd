//! `buckets`: measures entries, counters, listings, batches of requests and forwarding, over HTTP on SQLite.

mod batches;
mod blobs;
mod cassandra;
mod counters;
mod failover;
mod forwarding;
mod listings;

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use xtask::http::Client;

use super::{
    content::Contents,
    load::{self, Measurement, Pace, Plan, Traffic, in_turn},
    report::Report,
    service::{self, DOMAIN},
};

/// The options of the measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement of a turn, after one second of warm-up.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Number of keys of the listed bucket.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(5_000..))]
    keys: u32,
    /// Measure each figure for a third of a second, and list a bucket of 10,000 keys. This only shows that the
    /// benchmark works.
    #[arg(long, conflicts_with_all = ["seconds", "keys"])]
    quick: bool,
    /// Measure only these parts, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Measure only entries and counters, on one node of Cassandra, beside the driver alone.
    #[arg(long, conflicts_with = "only")]
    cassandra: bool,
    /// Measure only requests to three servers on one node of Cassandra, behind one that forwards, while one of the
    /// three is killed and started again.
    #[arg(long, conflicts_with_all = ["only", "cassandra", "quick", "seconds", "connections"])]
    failover: bool,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// PUT and GET of entries, compared with revisions.
    Blobs,
    /// Increments.
    Counters,
    /// Listings of a large bucket.
    Listings,
    /// Batches of requests.
    Batches,
    /// Requests through a second server.
    Forwarding,
}

impl Options {
    fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn warm_up(&self) -> Duration {
        if self.quick { Duration::from_millis(100) } else { Duration::from_secs(1) }
    }

    fn measure(&self) -> Duration {
        if self.quick { Duration::from_millis(333) } else { Duration::from_secs(self.seconds) }
    }

    fn keys(&self) -> u32 {
        if self.quick { 10_000 } else { self.keys }
    }

    fn plan(&self, address: SocketAddr, connections: usize) -> Plan {
        Plan { address, connections, pace: Pace::Closed, warm_up: self.warm_up(), measure: self.measure() }
    }
}

fn how(options: &Options) -> String {
    if options.failover {
        return failover::how();
    }
    let common = format!(
        "{} connections are kept alive. Each measurement takes {:?} after {:?} of warm-up. The order of compared \
         measurements changes from turn to turn. Each text is unique, and compresses to a quarter",
        options.connections,
        options.measure(),
        options.warm_up(),
    );
    if options.cassandra {
        return format!("One node of Cassandra. {common}. The first turns only warm up and do not count");
    }
    format!(
        "Stores on SQLite. {common}. Listings: {} keys with bodies of {} bytes, {} entries a page, one connection",
        options.keys(),
        listings::BODY_SIZE,
        listings::LIMIT,
    )
}

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new("buckets", how(options));
    if options.failover {
        failover::run(binary, runs, &mut report, clock)?;
        return Ok(report);
    }
    if options.cassandra {
        cassandra::run(options, binary, runs, &mut report, clock)?;
        return Ok(report);
    }
    let contents = Contents::new(1);
    let folder = service::data_folder()?;
    let store = folder.path().join("store");
    let listings = options.measures(Part::Listings);
    if listings {
        listings::fill(options, binary, &folder.path().join("listed"), clock)?;
    }
    let service = service::serve(binary, &store)?;
    let listed = listings.then(|| service::serve(binary, &folder.path().join("listed"))).transpose()?;
    let bench = Bench { options, contents: &contents, address: service.address(), clock };
    let mut blobs = blobs::Blobs::prepare(&bench)?;
    let forwarder = forwarding::start(binary, folder.path(), service.address())?;
    if options.measures(Part::Counters) {
        counters::prepare(&bench)?;
    }
    for turn in 0..runs {
        eprintln!("turn {}", turn + 1);
        if options.measures(Part::Blobs) {
            blobs.measure(&bench, turn, &mut report)?;
        }
        if options.measures(Part::Counters) {
            counters::measure(&bench, &mut report)?;
        }
        if let Some(listed) = &listed {
            listings::measure(&Bench { address: listed.address(), ..bench }, turn, &mut report)?;
        }
        if options.measures(Part::Batches) {
            batches::measure(&bench, turn, &mut report)?;
        }
        if options.measures(Part::Forwarding) {
            forwarding::measure(&bench, forwarder.address(), turn, &mut report)?;
        }
    }
    Ok(report)
}

/// The server, the contents and the options that all parts of the benchmark use.
#[derive(Clone, Copy)]
struct Bench<'a> {
    options: &'a Options,
    contents: &'a Contents,
    /// The address of the server.
    address: SocketAddr,
    clock: &'a dyn Clock,
}

impl Bench<'_> {
    fn run(&self, traffic: &mut dyn Traffic) -> Result<Measurement> {
        load::run(&self.options.plan(self.address, self.options.connections), self.clock, traffic)
    }

    /// Creates a bucket. Returns the status and the body of the answer.
    fn create(&self, bucket: &str, definition: &str) -> Result<(u16, String)> {
        let request = with_body("PUT", &format!("/v1/{DOMAIN}/{bucket}"), JSON, definition.as_bytes());
        let (status, body) = Client::connect(self.address)?.send(&request)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Creates a bucket. An answer other than success is an error.
    fn must_create(&self, bucket: &str, definition: &str) -> Result<()> {
        let (status, body) = self.create(bucket, definition)?;
        ensure!(matches!(status, 200 | 201), "the bucket {bucket} is answered with {status}: {body}");
        Ok(())
    }
}

const JSON: &str = "application/json";

/// The path of an entry.
fn entry_path(bucket: &str, key: &str) -> String {
    format!("/v1/{DOMAIN}/{bucket}/{key}")
}

/// A request with a body.
fn with_body(method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    append_with_body(method, path, content_type, body, &mut request);
    request
}

fn append_with_body(method: &str, path: &str, content_type: &str, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
    );
    out.extend_from_slice(body);
}
