//! `cargo xtask cassandra faults`: runs three nodes, a service, writers and readers at a fixed rate, and one
//! fault after another. The clients keep a journal of each fault, from which the program checks these promises:
//!
//! - No acknowledged write is lost, stored in part, or stored twice, and no read misses an acknowledged write.
//! - 99.9 % of the writes and of the reads succeed, except in the five seconds after an event, such as the beginning or
//!   the end of a fault. This holds for all faults together. With each fault, one write and one read may fail even if
//!   there are fewer than 1,000 of them. A fault with fewer successes is repeated, since answers are also late if the
//!   machine is busy. The other promises hold each time.
//! - A write with an unknown outcome that is repeated with the same revision and tid is stored once.
//!
//! At the end, the service is stopped. Without `--only`, or with `--repair`, tests of the store then make nodes miss
//! writes, and repair these nodes. At last, `rashomon verify` must find no problem.

mod client;
mod clock;
mod content;
mod fault;
mod journal;
mod judge;
pub(crate) mod network;
mod repair;
mod report;
mod ring;
mod traffic;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, bail, ensure};

use self::{
    client::Client,
    content::{Properties, Write},
    fault::{Fault, FaultParameters},
    journal::{Outcome, Run, WriteOutcome},
    judge::{Findings, Renders, Verdict, judge},
    report::Row,
    ring::Ring,
    traffic::{History, Load, Traffic},
};
use super::Server;
use crate::{
    process::cargo_command,
    service::Service,
    tools::{Tool, Toolbox},
};

/// The number of connections that read everything back at the end.
const VERIFY_CONNECTIONS: usize = 16;
/// The maximum attempts of a request outside the measured traffic, where a busy machine may be late.
const MAX_ATTEMPTS: u32 = 30;
/// The maximum number of times that a fault is injected until enough requests succeed.
const MAX_RUNS: usize = 3;
/// The pause between two attempts of a request outside the measured traffic.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time for which the ring is used before the measurement.
const WARM_UP: Duration = Duration::from_secs(8);

/// The options of the faults.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only this fault; may be given several times.
    #[arg(long, value_name = "FAULT")]
    only: Vec<Fault>,
    /// With `--only`: also repair nodes that missed writes, at the end.
    #[arg(long)]
    repair: bool,
    /// Seconds of a fault that has no duration of its own.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Number of writes per second. Each write is a revision with three properties.
    #[arg(long, default_value_t = 10.0)]
    writes: f64,
    /// Number of reads per second, of the newest html of a page or of the html of a tid.
    #[arg(long, default_value_t = 25.0)]
    reads: f64,
    /// Seed from which the written content and the reads are drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use this binary, instead of building one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Set by the program itself when the network namespace exists.
    #[arg(long, hide = true)]
    inside: bool,
}

impl Options {
    fn repairs(&self) -> bool {
        self.repair || self.only.is_empty()
    }
}

/// Runs the faults. Returns whether all promises were kept.
pub(super) fn run(options: &Options) -> Result<bool> {
    if options.inside {
        return run_inside(options);
    }
    network::check_support()?;
    // Inside the namespace nothing can be downloaded.
    let mut toolbox = Toolbox::new(false);
    Server::fetch(&mut toolbox)?;
    for tool in [Tool::Ip, Tool::Nft] {
        toolbox.fetch(tool)?;
    }
    if options.binary.is_none() {
        let build = ["build", "--quiet", "--locked", "--package", "rashomon"];
        let status = cargo_command().args(build).current_dir(crate::root()).status()?;
        ensure!(status.success(), "the service does not build");
    }
    if options.repairs() {
        ensure!(repair::build()?, "the tests of the repair do not build");
    }
    match network::restart_in_namespace(&["--inside"])? {}
}

fn run_inside(options: &Options) -> Result<bool> {
    network::bring_up()?;
    let built = crate::target().join("debug/rashomon");
    let binary = options.binary.as_deref().unwrap_or(&built);
    println!("three nodes start");
    let mut ring = Ring::begin(Server::fetch(&mut Toolbox::new(false))?)?;
    let folder = super::folder().join("faults");
    let start = |log: &str| Service::start(binary, &["serve", "--store", &Ring::store()], &folder.join(log));
    let service = start("service.log")?;
    println!("the service took {:.1} s to start", service.started_in().as_secs_f64());
    // The service discovers the other nodes as they start.
    ring.complete()?;

    let history = History::new();
    let load = Load {
        service: service.address(),
        writes_per_second: options.writes,
        reads_per_second: options.reads,
        seed: options.seed,
    };
    // Before the first fault, the nodes compile their hot code, and the connections are made.
    Traffic::run(load, &history, |_| {
        thread::sleep(WARM_UP);
        Ok(())
    })?;
    self_test_judge(&service, options.seed)?;
    let parameters = FaultParameters {
        lasting: Duration::from_secs(options.seconds),
        start_a_service: &|| start("another-service.log"),
    };
    let mut runs = Vec::new();
    for fault in faults(&options.only) {
        for number in 1..=MAX_RUNS {
            println!("{}", fault.name());
            let journal =
                Traffic::run(load, &history, |traffic| fault.inject(&mut ring, traffic, &parameters))?;
            let file = format!("journal-{}-{number}.tsv", fault.name());
            fs::write(folder.join(file), journal.lines().join("\n"))?;
            ring.wait_until_all_up()?;
            let is_last = journal.is_available() || number == MAX_RUNS;
            runs.push(Run { fault, journal, is_last });
            if is_last {
                break;
            }
            println!("      too few requests succeeded: the fault is repeated");
        }
    }
    let rows = read_everything_back(&service, runs, options.seed)?;
    report::print(&rows, &folder);
    let status = service.stop()?;
    ensure!(status.success(), "the service ended with {status} when it was asked to end");
    if options.repairs() && faults(&options.only).contains(&Fault::Clock) {
        ring.restart_after_false_clock()?;
    }
    let is_repaired = !options.repairs() || repair::check(&ring)?;
    Ok(verify(binary)? && is_repaired && report::are_fine(&rows))
}

fn faults(only: &[Fault]) -> Vec<Fault> {
    Fault::ALL.into_iter().filter(|fault| only.is_empty() || only.contains(fault)).collect()
}

/// Reads everything back through the service, and judges it.
fn read_everything_back(service: &Service, runs: Vec<Run>, seed: u64) -> Result<Vec<Row>> {
    let writes: BTreeSet<Write> =
        runs.iter().flat_map(|run| run.journal.attempts.iter().map(|attempt| attempt.write)).collect();
    println!("{} writes are read back", writes.len());
    let stored = stored_renders(service, &writes.into_iter().collect::<Vec<_>>())?;
    let row = |run: Run| {
        let findings = Findings::of(&run.journal, seed, &stored);
        Row { run, findings }
    };
    Ok(runs.into_iter().map(row).collect())
}

fn stored_renders(service: &Service, writes: &[Write]) -> Result<BTreeMap<Write, Renders>> {
    let address = service.address();
    thread::scope(|scope| {
        let parts = writes.chunks(writes.len().div_ceil(VERIFY_CONNECTIONS).max(1));
        let readers: Vec<_> = parts
            .map(|part| {
                scope.spawn(move || {
                    let mut client = Client::new(address);
                    part.iter().map(|write| Ok((*write, client.renders(*write)?))).collect::<Result<Vec<_>>>()
                })
            })
            .collect();
        let mut all = BTreeMap::new();
        for reader in readers {
            all.extend(reader.join().map_err(|_| anyhow!("a reader panicked"))??);
        }
        Ok(all)
    })
}

/// Whether `rashomon verify` finds no problem.
fn verify(binary: &Path) -> Result<bool> {
    let output = Command::new(binary).args(["verify", "--store", &Ring::store()]).output()?;
    println!("rashomon verify: {}", output.status);
    if !output.status.success() {
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}

/// Checks that the judge works. The judge must find a write that is not stored, a write that is stored in part, and a
/// write that is stored twice.
///
/// These writes are on a page of their own, because readers of the traffic would report them as faults.
fn self_test_judge(service: &Service, seed: u64) -> Result<()> {
    let mut client = Client::new(service.address());
    let [lost, partial, doubled] = Write::checks();

    let never_sent = WriteOutcome::Acknowledged(BTreeSet::from(["never".to_owned()]));
    let html_of = |write: Write| Properties::from([("html".to_owned(), write.html(seed))]);
    let of_partial = send_until_acknowledged(&mut client, &partial.request(&html_of(partial)))?;
    let of_doubled = send_until_acknowledged(&mut client, &doubled.request(&doubled.properties(seed)))?;
    send_until_acknowledged(&mut client, &doubled.another_render(&html_of(partial)))?;
    for (write, outcome, expected) in
        [(lost, never_sent, "Lost"), (partial, of_partial, "Partial"), (doubled, of_doubled, "Doubled")]
    {
        let verdict = judge(&outcome, &write.properties(seed), &client.renders(write)?);
        let is_expected = match verdict {
            Verdict::Lost => expected == "Lost",
            Verdict::Partial(_) => expected == "Partial",
            Verdict::Doubled => expected == "Doubled",
            _ => false,
        };
        ensure!(
            is_expected,
            "the judge does not work: {write} should be {expected}, and is judged {verdict:?}"
        );
    }
    Ok(())
}

/// Repeats a write until it is acknowledged. On a busy machine an answer may be late.
fn send_until_acknowledged(client: &mut Client, request: &[u8]) -> Result<WriteOutcome> {
    let mut last_reason = String::new();
    for _ in 0..MAX_ATTEMPTS {
        match client.write(request) {
            Outcome::Acknowledged(tid) => return Ok(WriteOutcome::Acknowledged(BTreeSet::from([tid]))),
            Outcome::Refused(why) => bail!("a write was refused while all nodes were up: {why}"),
            Outcome::Unknown(why) => last_reason = why,
        }
        thread::sleep(RETRY_PAUSE);
    }
    bail!("a write failed {MAX_ATTEMPTS} times while all nodes were up: {last_reason}")
}
