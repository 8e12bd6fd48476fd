//! Interleaved reads and writes through two Varnish caches, with the server killed in between.
//!
//! The server has both caches in its configuration: it purges one by URL, and the other one by key. Its purges go
//! through a tap for each cache, which counts the purges that this Varnish has acknowledged.
//!
//! The promise: a read that starts after a POST was answered and its purge was acknowledged never returns an older
//! version. When both caches have acknowledged a purge, the writer publishes the revision of the page. A reader
//! remembers the published revision before it sends its request to one of the caches, and compares it with the revision
//! in the answer.
//!
//! Each write is purged twice, so a page is written again only after both purges of the previous write. After a kill,
//! all writes wait until the server says that no purge is left.

mod tap;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    process::Stopwatch,
    service::{Service, free_address},
};
use anyhow::{Context, Result, anyhow, bail, ensure};
use fastrand::Rng;

use self::tap::Tap;
use crate::varnish::{
    Files,
    cached::{HOST, Method, is_drained, serve, table},
    message::{Message, Request, get},
};

const DOMAIN: &str = "bench";
const CLIENTS: usize = 12;
const PAGES: usize = 256;
/// One of every `REQUESTS_PER_WRITE` requests is a write.
const REQUESTS_PER_WRITE: usize = 20;
/// The time limit after a kill: until a request is answered, and until purges are acknowledged.
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two attempts of a read.
const POLL: Duration = Duration::from_millis(5);

/// The resources of a page that are read.
const RESOURCES: [&str; 3] = ["rev/latest/html", "rev/latest/", "rev/"];

/// How the server purges each cache.
const METHODS: [Method; 2] = [Method::Purge, Method::Keys];

/// The options of a run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of requests. Each read goes to one of two caches.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Number of times that the server is killed.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Seed of the order of reads and of the times of kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the requests, and prints the hit rates and the latency of purges.
pub fn run(files: &Files, binary: &Path, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = free_address()?;
    let vcl = crate::varnish::vcl([address; 3])?
        .replace("store.example.org", HOST)
        .replace(".interval = 1s;", ".interval = 50ms;");
    let start = |method: Method| Cache::start(files, &vcl, folder.path(), method);
    let caches = [start(METHODS[0])?, start(METHODS[1])?];
    let tables = caches.iter().map(|cache| table(cache.method.name(), cache.tapped, cache.method));
    let server = Server { binary, folder: folder.path(), config: tables.collect(), address };
    let service = server.start(0)?;
    let mut rng = Rng::with_seed(options.seed);
    let run = Run {
        caches,
        total: options.requests,
        sent: AtomicUsize::new(0),
        pages: std::array::from_fn(|_| Page::default()),
        kills: (0..options.kills).map(|_| rng.usize(0..options.requests.max(1))).collect(),
        alive: RwLock::new(()),
        kills_begun: AtomicU64::new(0),
        kills_ended: AtomicU64::new(0),
        service: Mutex::new(Some(service)),
        server,
        latencies: Mutex::default(),
    };
    for page in 0..PAGES {
        run.write(&mut run.lock(page), page)?;
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

/// A Varnish, and the tap through which the server purges it.
struct Cache {
    method: Method,
    varnish: Service,
    tap: Arc<Tap>,
    /// The address of the tap.
    tapped: SocketAddr,
    /// The number of reads by where their answers came from.
    outcomes: Mutex<BTreeMap<String, usize>>,
}

impl Cache {
    fn start(files: &Files, vcl: &str, folder: &Path, method: Method) -> Result<Self> {
        let varnish = crate::varnish::start(files, vcl, &folder.join(method.name()))?;
        let (tapped, tap) = Tap::start(varnish.address())?;
        Ok(Self { method, varnish, tap, tapped, outcomes: Mutex::default() })
    }

    fn count_outcome(&self, outcome: &str) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        *outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    /// Prints the hit rate. Returns the number of reads.
    fn report(&self) -> usize {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |outcome: &str| outcomes.get(outcome).copied().unwrap_or_default();
        let reads = outcomes.values().sum::<usize>() - count("unavailable");
        let rate = count("hit") as f64 / reads.max(1) as f64;
        println!("hit rate {rate:.3} (method {}, {outcomes:?})", self.method.name());
        reads
    }
}

struct Server<'a> {
    binary: &'a Path,
    folder: &'a Path,
    /// The configuration, with both caches.
    config: String,
    address: SocketAddr,
}

impl Server<'_> {
    /// Whether the server says that every purge was acknowledged.
    fn is_drained(&self) -> Result<bool> {
        let metrics = get("/metrics").host(HOST).answer(self.address)?.text();
        ensure!(metrics.contains("rashomon_purge_cache_up{"), "the server has no metrics of purges");
        Ok(is_drained(&metrics, METHODS.len()))
    }

    fn start(&self, number: usize) -> Result<Service> {
        serve(self.binary, self.folder, self.address, &self.config, &format!("server-{number}.log"))
    }
}

/// A page of the wiki.
#[derive(Debug, Default)]
struct Page {
    /// The lock lets one client at a time write to the page.
    written: Mutex<LastWrite>,
    /// The newest revision whose POST was answered and whose purge both caches have acknowledged.
    published: AtomicU64,
}

/// The last write to a page.
#[derive(Debug, Default)]
struct LastWrite {
    rev: u64,
    /// The URLs, or the key, that the server purges in each cache.
    names: [Vec<String>; 2],
    /// The number of acknowledged purges in each cache after the second purge of the write.
    complete: [u64; 2],
    /// The number of kills at the time of the write.
    kills: u64,
}

/// An answered POST.
struct PostResult {
    /// Whether the revision had been stored before.
    is_repeat: bool,
    /// The number of kills before the POST.
    kills: u64,
    /// The number of acknowledged purges in each cache before the POST.
    purges: [u64; 2],
}

struct Run<'a> {
    caches: [Cache; 2],
    total: usize,
    /// The number of requests so far.
    sent: AtomicUsize,
    pages: [Page; PAGES],
    /// The requests before which the server is killed.
    kills: BTreeSet<usize>,
    /// Locked for writing while the server is killed and started again.
    alive: RwLock<()>,
    kills_begun: AtomicU64,
    /// The number of kills after which the server works again, and all purges were acknowledged.
    kills_ended: AtomicU64,
    service: Mutex<Option<Service>>,
    server: Server<'a>,
    /// The times from the answer to a POST until both caches had acknowledged its purge.
    latencies: Mutex<Vec<Duration>>,
}

impl Run<'_> {
    /// Sends requests until all clients together have sent enough, or until a request of any client has failed.
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
                self.write_to_any(&mut rng)
            } else {
                let resource = RESOURCES[rng.usize(0..RESOURCES.len())];
                self.read(&self.caches[rng.usize(0..self.caches.len())], page, resource)
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
        self.kills_begun.fetch_add(1, Ordering::SeqCst);
        service.take().context("the server is not running")?.kill()?;
        let clock = Stopwatch::start();
        let started = self.server.start(number)?;
        while !self.server.is_drained()? {
            ensure!(clock.elapsed() < RESTART_LIMIT, "purges are not acknowledged: {}", started.output());
            thread::sleep(POLL);
        }
        *service = Some(started);
        self.kills_ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn lock(&self, page: usize) -> MutexGuard<'_, LastWrite> {
        self.pages[page].written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to a page to which no other client writes, and whose last write was purged twice.
    fn write_to_any(&self, rng: &mut Rng) -> Result<()> {
        loop {
            let page = rng.usize(0..PAGES);
            if let Ok(mut written) = self.pages[page].written.try_lock()
                && self.is_complete(&written)
            {
                return self.write(&mut written, page);
            }
            thread::yield_now();
        }
    }

    fn is_complete(&self, written: &LastWrite) -> bool {
        self.kills_ended.load(Ordering::SeqCst) > written.kills
            || self.purges(written).iter().zip(written.complete).all(|(purges, complete)| *purges >= complete)
    }

    /// The number of acknowledged purges of a page in each cache.
    fn purges(&self, written: &LastWrite) -> [u64; 2] {
        std::array::from_fn(|at| self.caches[at].tap.count(&written.names[at]))
    }

    /// Posts a revision until it is acknowledged, waits for its purges, and publishes the revision.
    fn write(&self, written: &mut LastWrite, page: usize) -> Result<()> {
        let rev = written.rev + 1;
        let posted = self.post(written, page, rev)?;
        let clock = Stopwatch::start();
        for at in 0..self.caches.len() {
            let cache = &self.caches[at];
            if written.names[at].is_empty() {
                written.names[at] = self.names(cache.method, page)?;
            }
            // Counts are only valid without a kill. A revision that was stored before a kill was purged after it.
            let is_settled = || self.kills_ended.load(Ordering::SeqCst) > posted.kills;
            let is_counted = || self.kills_begun.load(Ordering::SeqCst) == posted.kills;
            while !posted.is_repeat && !is_settled() {
                let reached = cache.tap.wait(&written.names[at], posted.purges[at] + 1, is_settled)?;
                if reached && is_counted() {
                    break;
                }
                ensure!(clock.elapsed() < RESTART_LIMIT, "no purge of {} was acknowledged", title(page));
            }
        }
        written.complete = posted.purges.map(|purges| purges + 2);
        written.kills = posted.kills;
        self.pages[page].published.store(rev, Ordering::SeqCst);
        written.rev = rev;
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(clock.elapsed());
        Ok(())
    }

    fn post(&self, written: &LastWrite, page: usize, rev: u64) -> Result<PostResult> {
        let post = Request::new("POST", url(page, "rev/"))
            .host(HOST)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(format!("_rev={rev}&html=revision+{rev}"));
        let clock = Stopwatch::start();
        loop {
            let kills = self.kills_begun.load(Ordering::SeqCst);
            let purges = self.purges(written);
            // A POST that was killed is sent again. It may have been carried out.
            match post.answer(self.server.address) {
                Ok(answer) if [200, 201].contains(&answer.status()) => {
                    return Ok(PostResult { is_repeat: answer.status() == 200, kills, purges });
                }
                Ok(answer) => bail!("{} is answered with {answer:?}", url(page, "rev/")),
                Err(error) if clock.elapsed() > RESTART_LIMIT => return Err(error),
                Err(_) => drop(self.alive.read()),
            }
        }
    }

    /// The purges that the server sends when a page changes: those of the URLs that are read, or the first key of the
    /// page's answers.
    fn names(&self, method: Method, page: usize) -> Result<Vec<String>> {
        if method == Method::Purge {
            return Ok(RESOURCES.iter().map(|resource| url(page, resource)).collect());
        }
        let answer = get(url(page, RESOURCES[0])).host(HOST).answer(self.server.address)?;
        let key = answer.header("xkey").split(' ').next().filter(|key| !key.is_empty());
        Ok(vec![key.with_context(|| format!("no key: {answer:?}"))?.to_owned()])
    }

    /// Reads until the cache has an answer, and compares its revision with the published one.
    fn read(&self, cache: &Cache, page: usize, resource: &str) -> Result<()> {
        let clock = Stopwatch::start();
        loop {
            let published = self.pages[page].published.load(Ordering::SeqCst);
            let answer = get(url(page, resource)).host(HOST).answer(cache.varnish.address())?;
            let outcome = match answer.status() {
                200 => answer.header("x-cache"),
                503 if clock.elapsed() < RESTART_LIMIT => "unavailable",
                _ => bail!("{} is answered with {answer:?}", url(page, resource)),
            };
            cache.count_outcome(outcome);
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
        let reads: usize = self.caches.iter().map(Cache::report).sum();
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latencies.sort_unstable();
        let at = |quantile: f64| {
            let index = (latencies.len() as f64 * quantile) as usize;
            latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        println!(
            "{reads} reads, {} writes, {} kills: no read returned an older version",
            latencies.len(),
            self.kills.len()
        );
        println!("purge latency: p50 {:?}, p99 {:?}, maximum {:?}", at(0.5), at(0.99), at(1.0));
    }
}

fn title(page: usize) -> String {
    format!("Page_{page:04x}")
}

fn url(page: usize, resource: &str) -> String {
    format!("/v1/{DOMAIN}/page/{}?{resource}", title(page))
}

/// Returns the revision that an answer shows.
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
