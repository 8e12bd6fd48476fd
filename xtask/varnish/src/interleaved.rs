//! Interleaved reads and writes through Varnish, with the server killed in between.
//!
//! The promise: a read that starts after a POST was answered and its purge was acknowledged never returns an older
//! version. A writer publishes the revision of each page for which both has happened. A reader notes it before it
//! sends its request, and compares it with what it gets, from the cache or not.
//!
//! The server that keeps a queue of purges is not part of this program yet. The writer sends the purges itself after
//! the answer to its POST. If the server is killed in between, the writer sends them when the server works again, as
//! the queue would.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fastrand::Rng;
use xtask::{
    process::Stopwatch,
    service::{Service, free_address},
};

use crate::{
    Files,
    message::{Message, Request, get},
};

const DOMAIN: &str = "bench";
/// A host that every server on loopback answers.
const HOST: &str = "localhost";
const CLIENTS: usize = 12;
const PAGES: usize = 32;
/// One of this many requests is a write.
const REQUESTS_PER_WRITE: usize = 20;
/// The time limit until a request is answered that the death of the server has broken.
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two attempts of a read.
const POLL: Duration = Duration::from_millis(5);

/// What is read of a page.
const RESOURCES: [&str; 3] = ["rev/latest/html", "rev/latest/", "rev/"];

/// What a server without purges does not send: the time that a shared cache may keep an answer, and keys.
const AS_WITH_PURGES: &str = r#"
sub vcl_backend_response {
    if (beresp.http.Cache-Control == "public, max-age=0, s-maxage=0, must-revalidate") {
        set beresp.http.Cache-Control = "public, max-age=0, s-maxage=86400, must-revalidate";
        set beresp.ttl = 1d;
        set beresp.http.xkey = regsub(bereq.url, "^.*/page/([^?]*).*$", "\1");
    }
}
"#;

/// How answers are purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// One purge for each URL.
    Purge,
    /// One purge with the key of the page.
    Keys,
}

/// The options of a run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of requests.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Number of times that the server is killed.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Seed of the order of reads and of the times of kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the requests, and prints the hit rate and the latency of purges.
pub fn run(files: &Files, binary: &Path, method: Method, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = Server { binary, folder: folder.path(), address: free_address()? };
    let vcl = crate::vcl([server.address; 3])?;
    let (version, rest) = vcl.split_once("vcl 4.1;\n").context("no version in the VCL")?;
    // Of two subroutines with one name, the first runs first. The modules are not needed before.
    let vcl = format!("{version}vcl 4.1;\n{AS_WITH_PURGES}{rest}");
    let vcl = vcl.replace(".interval = 1s;", ".interval = 50ms;");
    let service = server.start(0)?;
    let cache = crate::start(files, &vcl, &folder.path().join("varnish"))?;
    let mut rng = Rng::with_seed(options.seed);
    let run = Run {
        method,
        cache: cache.address(),
        total: options.requests,
        sent: AtomicUsize::new(0),
        pages: std::array::from_fn(|_| Page::default()),
        kills: (0..options.kills).map(|_| rng.usize(0..options.requests.max(1))).collect(),
        alive: RwLock::new(()),
        service: Mutex::new(Some(service)),
        server,
        outcomes: Mutex::default(),
        latencies: Mutex::default(),
    };
    for page in 0..PAGES {
        run.write(page)?;
    }
    run.latencies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    thread::scope(|scope| -> Result<()> {
        let run = &run;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || run.client(Rng::with_seed(options.seed + client as u64))))
            .collect();
        // All clients are waited for, so that the first error is not hidden by a later one.
        let ends: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.map_err(|_| anyhow!("a client panicked"))?)
    })?;
    run.report();
    let service = run.service.lock().unwrap_or_else(PoisonError::into_inner).take();
    let status = service.context("the server is not running")?.stop()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(())
}

struct Server<'a> {
    binary: &'a Path,
    folder: &'a Path,
    address: SocketAddr,
}

impl Server<'_> {
    fn start(&self, number: usize) -> Result<Service> {
        let data = self.folder.join("data");
        let arguments = ["serve", "--data", data.to_str().context("a path that is not UTF-8")?, "--listen"];
        let listen = self.address.to_string();
        let arguments: Vec<&str> = arguments.into_iter().chain([listen.as_str()]).collect();
        let log = self.folder.join(format!("server-{number}.log"));
        Service::start_at(self.address, self.binary, &arguments, &log)
    }
}

/// A page of the wiki.
#[derive(Debug, Default)]
struct Page {
    /// The newest revision. The lock lets one client at a time write to the page.
    newest: Mutex<u64>,
    /// The newest revision whose POST was answered and whose purge was acknowledged.
    published: AtomicU64,
}

struct Run<'a> {
    method: Method,
    cache: SocketAddr,
    total: usize,
    /// The number of requests so far.
    sent: AtomicUsize,
    pages: [Page; PAGES],
    /// The requests before which the server is killed.
    kills: BTreeSet<usize>,
    /// Is locked for writing while the server is killed and started again.
    alive: RwLock<()>,
    service: Mutex<Option<Service>>,
    server: Server<'a>,
    /// The number of reads by where their answers came from.
    outcomes: Mutex<BTreeMap<String, usize>>,
    /// The times from the answer to a POST until its purge was acknowledged.
    latencies: Mutex<Vec<Duration>>,
}

impl Run<'_> {
    /// Sends requests until enough were sent by all clients, or one has failed.
    fn client(&self, mut rng: Rng) -> Result<()> {
        loop {
            let number = self.sent.fetch_add(1, Ordering::SeqCst);
            if number >= self.total {
                return Ok(());
            }
            // Some pages are used more than others.
            let last = rng.usize(0..PAGES);
            let page = rng.usize(0..=last);
            let done = if self.kills.contains(&number) {
                self.restart(number)
            } else if number.is_multiple_of(REQUESTS_PER_WRITE) {
                self.write(page)
            } else {
                self.read(page, RESOURCES[rng.usize(0..RESOURCES.len())])
            };
            if done.is_err() {
                self.sent.fetch_add(self.total, Ordering::SeqCst);
                return done;
            }
        }
    }

    /// Kills the server, and starts it again.
    fn restart(&self, number: usize) -> Result<()> {
        let mut service = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let _dead = self.alive.write();
        service.take().context("the server is not running")?.kill()?;
        *service = Some(self.server.start(number)?);
        Ok(())
    }

    /// Posts a revision until it is acknowledged, purges, and publishes the revision.
    fn write(&self, page: usize) -> Result<()> {
        let mut newest = self.pages[page].newest.lock().unwrap_or_else(PoisonError::into_inner);
        let rev = *newest + 1;
        let post = Request::new("POST", url(page, "rev/"))
            .host(HOST)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(format!("_rev={rev}&html=revision+{rev}"));
        let clock = Stopwatch::start();
        loop {
            // A POST that was killed is sent again. It may have been carried out.
            match post.answer(self.server.address) {
                Ok(answer) if [200, 201].contains(&answer.status()) => break,
                Ok(answer) => bail!("{} is answered with {answer:?}", url(page, "rev/")),
                Err(error) if clock.elapsed() > RESTART_LIMIT => return Err(error),
                Err(_) => drop(self.alive.read()),
            }
        }
        let clock = Stopwatch::start();
        // If the server is killed between the commit and the purge, the purge waits.
        let alive = self.alive.read();
        for purge in self.purges(page) {
            let answer = purge.answer(self.cache)?;
            ensure!(answer.status() == 200, "{purge:?} is answered with {answer:?}");
        }
        drop(alive);
        self.pages[page].published.store(rev, Ordering::SeqCst);
        *newest = rev;
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(clock.elapsed());
        Ok(())
    }

    fn purges(&self, page: usize) -> Vec<Request> {
        match self.method {
            Method::Purge => {
                RESOURCES.iter().map(|it| Request::new("PURGE", url(page, it)).host(HOST)).collect()
            }
            Method::Keys => vec![Request::new("PURGE", "/").header("Surrogate-Key", title(page))],
        }
    }

    /// Reads until the cache has an answer, and compares its revision with the published one.
    fn read(&self, page: usize, resource: &str) -> Result<()> {
        let clock = Stopwatch::start();
        loop {
            let published = self.pages[page].published.load(Ordering::SeqCst);
            let answer = get(url(page, resource)).host(HOST).answer(self.cache)?;
            let outcome = match answer.status() {
                200 => answer.header("x-cache"),
                503 if clock.elapsed() < RESTART_LIMIT => "unavailable",
                _ => bail!("{} is answered with {answer:?}", url(page, resource)),
            };
            *self
                .outcomes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(outcome.to_owned())
                .or_default() += 1;
            if answer.status() == 200 {
                let rev = revision_of(resource, &answer)?;
                ensure!(
                    rev >= published,
                    "VIOLATION: {} has revision {rev}, but {published} was written and purged before: {answer:?}",
                    url(page, resource)
                );
                return Ok(());
            }
            drop(self.alive.read());
            thread::sleep(POLL);
        }
    }

    fn report(&self) {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default();
        let answered = outcomes.values().sum::<usize>() - count("unavailable");
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latencies.sort_unstable();
        let at = |quantile: f64| {
            let index = (latencies.len() as f64 * quantile) as usize;
            latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        println!(
            "{:?}: {answered} reads, {} writes, {} kills: no read returned an older version",
            self.method,
            latencies.len(),
            self.kills.len()
        );
        println!("hit rate {:.3} ({outcomes:?})", count("hit") as f64 / answered.max(1) as f64);
        println!("purge latency: p50 {:?}, p99 {:?}, maximum {:?}", at(0.5), at(0.99), at(1.0));
    }
}

fn title(page: usize) -> String {
    format!("Page_{page:04x}")
}

fn url(page: usize, resource: &str) -> String {
    format!("/v1/{DOMAIN}/page/{}?{resource}", title(page))
}

/// The revision that an answer is of.
fn revision_of(resource: &str, answer: &Message) -> Result<u64> {
    if resource == RESOURCES[0] {
        let (_, rev) = answer.header("x-rev").rsplit_once('/').context("no revision in x-rev")?;
        ensure!(answer.text() == format!("revision {rev}"), "the body of another revision: {answer:?}");
        return Ok(rev.parse()?);
    }
    let document: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let render = if resource == RESOURCES[1] { &document } else { &document["revisions"][0] };
    render["rev"].as_u64().with_context(|| format!("no revision: {answer:?}"))
}
