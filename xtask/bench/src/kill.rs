//! `kill`: kills the service with SIGKILL during a load of writes, many times. Acknowledged writes must be
//! stored completely. Other writes must be stored completely or not at all. The revisions of pages are checked first,
//! then the entries and counters of key-value buckets.
//!
//! This benchmark finds losses when a process dies. It cannot find losses when a machine loses power: written
//! data that was not flushed stays in the memory of the kernel.

mod entries;

use std::{collections::BTreeMap, path::Path, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use rashomon_clock::Clock;
use serde_json::Value;
use xtask::http::Client;

use super::{
    content::Contents,
    load::{self, Measurement, Pace, Plan, Traffic},
    report::Report,
    service,
    writes::{self, Acknowledged, Write, Writes},
};

const CONNECTIONS: usize = 16;
/// The number of pages. It is small, so that several writes of a page run at the same time.
const PAGES: usize = 20;
/// The range of the duration of a round's load, in milliseconds.
const LOAD: std::ops::Range<u64> = 20..1_500;

/// The options of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of times that the service is killed during writes of pages, and again during writes of entries.
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    /// Seed from which the times of the kills are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options, binary: &Path, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "kill",
        format!(
            "{CONNECTIONS} connections write revisions with html and data-parsoid to {PAGES} pages of one store. The \
             server is killed (kill -9) after {} to {} ms, and started again. Then every acknowledged write is stored \
             with its bytes, no write is stored in part, the newest revision is the latest, and `rashomon verify` \
             finds nothing. Then as many rounds of PUT and DELETE of entries up to 3 MB and of increments: each entry \
             is complete, and is a version that may be stored; the list has each key once; each repeated increment has \
             its first answer; the counters are the sums of all increments. {} rounds, seed {}",
            LOAD.start, LOAD.end, options.rounds, options.seed
        ),
    );
    let folder = service::data_folder()?;
    let store = folder.path().join("store");
    let contents = Contents::new(options.seed);
    let mut rng = Rng::with_seed(options.seed);
    let mut newest = BTreeMap::new();
    let mut next = 1;
    for round in 1..=options.rounds {
        let load = Duration::from_millis(rng.u64(LOAD));
        let killed = load_and_kill(binary, &store, &contents, next, load, clock)?;
        next = killed.next;
        let result = check_after_kill(binary, &store, &contents, &killed, &mut newest)
            .with_context(|| format!("VIOLATION in round {round} of seed {}", options.seed))?;
        report.add("acknowledged", "writes", killed.acknowledged.len() as f64);
        report.add("not acknowledged", "writes", killed.in_flight.len() as f64);
        report.add("of them there, whole", "writes", f64::from(result.stored_unacknowledged));
        report.add("start after the kill", "ms", result.started_in.as_secs_f64() * 1e3);
        eprintln!("round {round}: {} acknowledged, none lost", killed.acknowledged.len());
    }
    entries::run(options, binary, folder.path(), &mut report, clock)?;
    Ok(report)
}

/// The acknowledged writes, and the writes in flight at the time of the kill.
struct WritesAtKill {
    acknowledged: Vec<Acknowledged>,
    in_flight: Vec<Write>,
    next: u64,
}

/// Starts the service, sends it requests for a time, and kills it. Returns the result of the load.
fn run_until_killed(
    binary: &Path,
    store: &Path,
    traffic: &mut (dyn Traffic + Send),
    after: Duration,
    clock: &dyn Clock,
) -> Result<Result<Measurement>> {
    let service = service::serve(binary, store)?;
    let plan = Plan {
        address: service.address(),
        connections: CONNECTIONS,
        pace: Pace::Closed,
        warm_up: Duration::ZERO,
        // A limit that is never reached: the load ends when the service dies.
        measure: Duration::from_secs(60),
    };
    thread::scope(|scope| {
        let load = scope.spawn(|| load::run(&plan, clock, traffic));
        thread::sleep(after);
        service.kill()?;
        Ok(load.join().expect("the load generator does not panic"))
    })
}

fn load_and_kill(
    binary: &Path,
    store: &Path,
    contents: &Contents,
    first: u64,
    after: Duration,
    clock: &dyn Clock,
) -> Result<WritesAtKill> {
    let mut writes = Writes::new(contents, writes::titles(PAGES), first, CONNECTIONS).with_journal();
    let ended = run_until_killed(binary, store, &mut writes, after, clock)?;
    if let Some(refused) = &writes.refused {
        bail!("VIOLATION: {refused}");
    }
    ensure!(ended.is_err(), "the service answered after it was killed");
    let in_flight = writes.in_flight.iter().flatten().copied().collect();
    let next = writes.next();
    Ok(WritesAtKill { acknowledged: writes.journal.unwrap_or_default(), in_flight, next })
}

/// The result of a check after a kill.
struct CheckResult {
    stored_unacknowledged: u32,
    started_in: Duration,
}

/// Restarts the service, and checks everything that was written before the kill.
fn check_after_kill(
    binary: &Path,
    store: &Path,
    contents: &Contents,
    killed: &WritesAtKill,
    newest: &mut BTreeMap<usize, u64>,
) -> Result<CheckResult> {
    let service = service::serve(binary, store)?;
    let mut reader =
        Reader { client: Client::connect(service.address())?, contents, titles: writes::titles(PAGES) };
    for Acknowledged { write, tid } in &killed.acknowledged {
        reader.check_whole(*write, tid).with_context(|| format!("acknowledged: {write:?}"))?;
        raise(newest, *write);
    }
    let mut stored_unacknowledged = 0;
    for write in &killed.in_flight {
        let there =
            reader.check_whole_or_absent(*write).with_context(|| format!("not acknowledged: {write:?}"))?;
        if there {
            stored_unacknowledged += 1;
            raise(newest, *write);
        }
    }
    for (&page, &rev) in &*newest {
        reader.check_newest(Write { page, rev })?;
    }
    let started_in = service.started_in();
    let status = service.stop()?;
    ensure!(status.success(), "the service ended with {status} when it was asked to end");
    service::command(binary, "verify", store)?;
    Ok(CheckResult { stored_unacknowledged, started_in })
}

fn raise(newest: &mut BTreeMap<usize, u64>, write: Write) {
    let rev = newest.entry(write.page).or_default();
    *rev = write.rev.max(*rev);
}

struct Reader<'a> {
    client: Client,
    contents: &'a Contents,
    titles: Vec<String>,
}

impl Reader<'_> {
    fn path(&self, page: usize, rest: &str) -> String {
        format!("{}?rev/{rest}", writes::page_path(&self.titles[page]))
    }

    /// Checks that both properties have their bytes.
    fn check_whole(&mut self, write: Write, tid: &str) -> Result<()> {
        for (property, expected) in
            [("html", self.contents.html(write.rev)), ("data-parsoid", self.contents.data_parsoid(write.rev))]
        {
            let (status, body) = self.client.get(&self.path(write.page, &format!("{tid}/{property}")))?;
            ensure!(status == 200, "{property} of {tid} is answered with {status}");
            ensure!(body == expected, "{property} of {tid} has other bytes than were written");
        }
        Ok(())
    }

    /// Checks that the revision is stored with one complete render, or not at all. Returns whether it is
    /// stored.
    fn check_whole_or_absent(&mut self, write: Write) -> Result<bool> {
        let (status, body) = self.client.get(&self.path(write.page, &format!("{}/", write.rev)))?;
        if status == 404 {
            return Ok(false);
        }
        ensure!(status == 200, "the revision was answered with {status}");
        let revision: Value = serde_json::from_slice(&body)?;
        let renders = revision["renders"].as_array().context("the revision has no renders")?;
        ensure!(renders.len() == 1, "the revision has {} renders", renders.len());
        let tid = renders[0]["tid"].as_str().context("a render has no tid")?;
        self.check_whole(write, tid)?;
        Ok(true)
    }

    fn check_newest(&mut self, write: Write) -> Result<()> {
        let (status, body) = self.client.get(&self.path(write.page, "latest/"))?;
        ensure!(status == 200, "the newest render of page {} is answered with {status}", write.page);
        let render: Value = serde_json::from_slice(&body)?;
        ensure!(
            render["rev"].as_u64() == Some(write.rev),
            "the newest revision of page {} is {}, and {} was written",
            write.page,
            render["rev"],
            write.rev
        );
        Ok(())
    }
}
