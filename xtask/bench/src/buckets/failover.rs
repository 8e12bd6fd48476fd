//! Measures requests through a server that forwards to three servers on one node of Cassandra. One of the three servers
//! is killed and started again under load. The figures show for how long the latency is higher than before.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rashomon_clock::Clock;
use xtask::{
    cassandra::{Node, start_for_benchmarks},
    http,
    service::Service,
};

use super::append_with_body;
use crate::{
    load::{self, Pace, Plan, Traffic},
    report::Report,
    service::{self, DOMAIN},
};

const KEYSPACE: &str = "bench_failover";
const SERVERS: usize = 3;
const CONNECTIONS: usize = 32;
const PER_SECOND: f64 = 100.0;
/// One of every `REQUESTS_PER_WRITE` requests writes a revision.
const REQUESTS_PER_WRITE: u32 = 5;
const WARM_UP: Duration = Duration::from_secs(10);
/// The seconds before the kill, between the kill and the restart, and after the restart.
const PHASE_SECONDS: usize = 10;
const PHASE: Duration = Duration::from_secs(PHASE_SECONDS as u64);
/// A second counts as raised if its p99 is more than this many times the p99 before the kill.
const RAISED: f64 = 2.0;

pub(super) fn how() -> String {
    format!(
        "One node of Cassandra, and {SERVERS} servers behind one server that forwards. {PER_SECOND} requests a second \
         at fixed times on {CONNECTIONS} connections: one of {REQUESTS_PER_WRITE} writes a new revision, the others \
         read the latest. One server is killed after {PHASE:?} and started again after {PHASE:?} more. A second is \
         raised if its p99 is more than {RAISED} times the p99 before the kill"
    )
}

pub(super) fn run(binary: &Path, runs: usize, report: &mut Report, clock: &dyn Clock) -> Result<()> {
    let _node = start_for_benchmarks()?;
    let folder = service::data_folder()?;
    let url = format!("cassandra://{}/{KEYSPACE}?replication=1", Node::address(1));
    let log = |number: usize| folder.path().join(format!("log-{number}"));
    let mut servers = (0..SERVERS)
        .map(|number| service::serve_store(binary, &url, &log(number)))
        .collect::<Result<Vec<_>>>()?;
    let addresses: Vec<SocketAddr> = servers.iter().map(Service::address).collect();
    let front = start_front(binary, folder.path(), &addresses)?;
    let mut traffic = Mixed::new(clock);
    traffic.create(front.address())?;
    for _ in 0..runs {
        traffic.begin();
        let plan = Plan {
            address: front.address(),
            connections: CONNECTIONS,
            pace: Pace::Open(PER_SECOND),
            warm_up: WARM_UP,
            measure: 3 * PHASE,
        };
        let killed = servers.remove(0);
        let restart =
            Restart { address: killed.address(), binary: binary.to_owned(), url: url.clone(), log: log(0) };
        let restarted = thread::scope(|scope| {
            let restarting = scope.spawn(move || {
                thread::sleep(WARM_UP + PHASE);
                killed.kill()?;
                thread::sleep(PHASE);
                restart.start()
            });
            load::run(&plan, clock, &mut traffic)?;
            restarting.join().expect("the thread does not panic")
        })?;
        servers.insert(0, restarted);
        traffic.report(report);
    }
    Ok(())
}

/// The parameters for starting the killed server again.
struct Restart {
    address: SocketAddr,
    binary: PathBuf,
    url: String,
    log: PathBuf,
}

impl Restart {
    fn start(&self) -> Result<Service> {
        let listen = self.address.to_string();
        Service::start_at(
            self.address,
            &self.binary,
            &["serve", "--store", &self.url, "--listen", &listen],
            &self.log,
        )
    }
}

fn start_front(binary: &Path, folder: &Path, servers: &[SocketAddr]) -> Result<Service> {
    let config = folder.join("front.toml");
    let list: Vec<String> = servers.iter().map(|address| format!("\"http://{address}\"")).collect();
    fs::write(&config, format!("[registry.\"/{DOMAIN}\"]\nservers = [{}]\n", list.join(", ")))?;
    let data = folder.join("front");
    let arguments =
        ["serve".as_ref(), "--config".as_ref(), config.as_os_str(), "--data".as_ref(), data.as_os_str()];
    Service::start(binary, &arguments, &folder.join("front.log"))
}

/// Reads and writes. Each connection has a page of its own. All requests may be repeated.
struct Mixed<'a> {
    clock: &'a dyn Clock,
    /// The end of the warm-up.
    start: Duration,
    /// The time of the last request of each connection.
    sent: Vec<Duration>,
    /// The newest revision of the page of each connection.
    revisions: Vec<u32>,
    requests: u32,
    failed: u32,
    /// The latency in each second after the warm-up, in nanoseconds, by the time of the request.
    seconds: Vec<Histogram<u64>>,
}

impl<'a> Mixed<'a> {
    fn new(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            start: Duration::ZERO,
            sent: vec![Duration::ZERO; CONNECTIONS],
            revisions: vec![1; CONNECTIONS],
            requests: 0,
            failed: 0,
            seconds: Vec::new(),
        }
    }

    /// Writes the first revision of each page.
    fn create(&self, address: SocketAddr) -> Result<()> {
        let mut client = http::Client::connect(address)?;
        for connection in 0..CONNECTIONS {
            let mut request = Vec::new();
            append_post(connection, 1, &mut request);
            let (status, body) = client.send(&request)?;
            ensure!(
                matches!(status, 200 | 201),
                "a write is answered with {status}: {}",
                String::from_utf8_lossy(&body)
            );
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.start = self.clock.monotonic() + WARM_UP;
        self.failed = 0;
        self.seconds = (0..3 * PHASE_SECONDS).map(|_| histogram()).collect();
    }

    fn report(&self, report: &mut Report) {
        let mut before = histogram();
        for second in &self.seconds[..PHASE_SECONDS] {
            before.add(second).expect("the histograms are alike");
        }
        let p99 = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.99) as f64 / 1e6;
        let usual = p99(&before);
        report.add("p99 before the kill", "ms", usual);
        for (phase, name) in [(1, "kill"), (2, "restart")] {
            let seconds = &self.seconds[phase * PHASE_SECONDS..][..PHASE_SECONDS];
            let raised = seconds.iter().rposition(|second| p99(second) > RAISED * usual);
            let highest = seconds.iter().map(p99).fold(0.0, f64::max);
            report.add(&format!("highest p99 of a second after the {name}"), "ms", highest);
            report.add(
                &format!("seconds after the {name} until no second is raised"),
                "s",
                raised.map_or(0.0, |last| (last + 1) as f64),
            );
        }
        report.add("failed requests", "", f64::from(self.failed));
    }
}

/// A histogram of nanoseconds, up to a minute.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000_000, 3).expect("the bounds are allowed")
}

fn append_post(connection: usize, revision: u32, out: &mut Vec<u8>) {
    let body = format!("_rev={revision}&html=revision+{revision}");
    let path = format!("/v1/{DOMAIN}/page/Page_{connection}?rev/");
    append_with_body("POST", &path, "application/x-www-form-urlencoded", body.as_bytes(), out);
}

impl Traffic for Mixed<'_> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        out.clear();
        self.requests += 1;
        if self.requests.is_multiple_of(REQUESTS_PER_WRITE) {
            self.revisions[connection] += 1;
            append_post(connection, self.revisions[connection], out);
        } else {
            *out = http::get(&format!("/v1/{DOMAIN}/page/Page_{connection}?rev/latest/html"));
        }
        self.sent[connection] = self.clock.monotonic();
    }

    fn answer(&mut self, connection: usize, status: u16, _: &[u8]) -> Result<()> {
        let sent = self.sent[connection];
        if let Some(after) = sent.checked_sub(self.start) {
            self.failed += u32::from(!matches!(status, 200 | 201));
            if let Some(second) = self.seconds.get_mut(after.as_secs() as usize) {
                let took = self.clock.monotonic().saturating_sub(sent);
                second.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }
}
