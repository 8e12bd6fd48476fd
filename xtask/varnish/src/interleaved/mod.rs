//! Interleaved reads and writes through Varnish, with the server killed in between.
//!
//! The promise: a read that starts after a POST was answered and its purge was acknowledged never returns an older
//! version. When both have happened, the writer publishes the revision of the page. A reader remembers the published
//! revision before it sends its request, and compares it with the revision in the answer, from the cache or not.
//!
//! With `--server-purges`, the server has Varnish in its configuration. Its purges go through a tap, which counts those
//! that Varnish has acknowledged. Each write is purged twice, so a page is written again only after both purges of the
//! previous write. After a kill, all writes wait until the server says that no purge is left.
//!
//! Otherwise the writer sends the purges itself, after the answer to its POST. If the server is killed in between, the
//! writer sends them when the server works again. This also runs with a server without caches in its configuration.

mod tap;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
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

use self::tap::Tap;
use crate::{
    Files,
    cached::{HOST, Method, is_drained, table},
    message::{Message, Request, get},
};

const DOMAIN: &str = "bench";
const CLIENTS: usize = 12;
const PAGES: usize = 256;
/// One of this many requests is a write.
const REQUESTS_PER_WRITE: usize = 20;
/// The time limit until a request is answered that the death of the server has broken.
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// The interval between two attempts of a read.
const POLL: Duration = Duration::from_millis(5);

/// The resources of a page that are read.
const RESOURCES: [&str; 3] = ["rev/latest/html", "rev/latest/", "rev/"];

/// Adds the headers that a server without purges does not send: the time that a shared cache may keep an answer, and
/// keys.
const AS_WITH_PURGES: &str = r#"
sub vcl_backend_response {
    if (beresp.http.Cache-Control == "public, max-age=0, s-maxage=0, must-revalidate") {
        set beresp.http.Cache-Control = "public, max-age=0, s-maxage=86400, must-revalidate";
        set beresp.ttl = 1d;
        set beresp.http.xkey = regsub(bereq.url, "^.*/page/([^?]*).*$", "\1");
    }
}
"#;

/// The options of a run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Number of requests.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Number of times that the server is killed.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Let the server send the purges.
    #[arg(long)]
    server_purges: bool,
    /// Seed of the order of reads and of the times of kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the requests, and prints the hit rate and the latency of purges.
pub fn run(files: &Files, binary: &Path, method: Method, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let address = free_address()?;
    let vcl = crate::vcl([address; 3])?.replace(".interval = 1s;", ".interval = 50ms;");
    let (version, rest) = vcl.split_once("vcl 4.1;\n").context("no version in the VCL")?;
    // Of two subroutines with one name, the first runs first. The modules are not needed before.
    let instead = format!("{version}vcl 4.1;\n{AS_WITH_PURGES}{rest}");
    let vcl = if options.server_purges { &vcl } else { &instead };
    let cache = crate::start(files, vcl, &folder.path().join("varnish"))?;
    let mut server = Server { binary, folder: folder.path(), address, settings: None };
    let mut tap = None;
    if options.server_purges {
        let (at, started) = Tap::start(cache.address())?;
        server.configure(at, method)?;
        tap = Some(started);
    }
    let service = server.start(0)?;
    let mut rng = Rng::with_seed(options.seed);
    let run = Run {
        method,
        cache: cache.address(),
        total: options.requests,
        sent: AtomicUsize::new(0),
        pages: std::array::from_fn(|_| Page::default()),
        kills: (0..options.kills).map(|_| rng.usize(0..options.requests.max(1))).collect(),
        alive: RwLock::new(()),
        kills_begun: AtomicU64::new(0),
        kills_ended: AtomicU64::new(0),
        tap,
        service: Mutex::new(Some(service)),
        server,
        outcomes: Mutex::default(),
        latencies: Mutex::default(),
    };
    for page in 0..run.page_count() {
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

struct Server<'a> {
    binary: &'a Path,
    folder: &'a Path,
    address: SocketAddr,
    /// The file with the settings, if there is one.
    settings: Option<PathBuf>,
}

impl Server<'_> {
    /// Writes a configuration with a cache.
    fn configure(&mut self, cache: SocketAddr, method: Method) -> Result<()> {
        let file = self.folder.join("rashomon.toml");
        fs::write(&file, table("varnish", cache, method))?;
        self.settings = Some(file);
        Ok(())
    }

    /// Whether the server says that every purge was acknowledged.
    fn is_drained(&self) -> Result<bool> {
        let metrics = get("/metrics").host(HOST).answer(self.address)?.text();
        ensure!(metrics.contains("purge_cache_up{"), "the server has no metrics of purges");
        Ok(is_drained(&metrics, 1))
    }

    fn start(&self, number: usize) -> Result<Service> {
        let data = self.folder.join("data");
        let arguments = ["serve", "--data", data.to_str().context("a path that is not UTF-8")?, "--listen"];
        let listen = self.address.to_string();
        let mut arguments: Vec<&str> = arguments.into_iter().chain([listen.as_str()]).collect();
        if let Some(settings) = &self.settings {
            arguments.extend(["--config", settings.to_str().context("a path that is not UTF-8")?]);
        }
        let log = self.folder.join(format!("server-{number}.log"));
        Service::start_at(self.address, self.binary, &arguments, &log)
    }
}

/// A page of the wiki.
#[derive(Debug, Default)]
struct Page {
    /// The lock lets one client at a time write to the page.
    written: Mutex<LastWrite>,
    /// The newest revision whose POST was answered and whose purge was acknowledged.
    published: AtomicU64,
}

/// The last write to a page.
#[derive(Debug, Default)]
struct LastWrite {
    rev: u64,
    /// The URLs, or the key, that the server purges.
    names: Vec<String>,
    /// The number of acknowledged purges after the second purge of the write.
    complete: u64,
    /// The number of kills at the time of the write.
    kills: u64,
}

/// An answered POST.
struct PostResult {
    /// Whether the revision had been stored before.
    is_repeat: bool,
    /// The number of kills before the POST.
    kills: u64,
    /// The number of acknowledged purges before the POST.
    purges: u64,
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
    /// The service. It is locked for writing while the server is killed and started again.
    alive: RwLock<()>,
    kills_begun: AtomicU64,
    /// The number of kills after which the server works again, and all purges were acknowledged.
    kills_ended: AtomicU64,
    /// Where the purges of the server are counted. `None`: the writers purge.
    tap: Option<Arc<Tap>>,
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
            let last = rng.usize(0..self.page_count());
            let page = rng.usize(0..=last);
            let done = if self.kills.contains(&number) {
                self.restart(number)
            } else if number.is_multiple_of(REQUESTS_PER_WRITE) {
                self.write_to_any(&mut rng)
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
        self.kills_begun.fetch_add(1, Ordering::SeqCst);
        service.take().context("the server is not running")?.kill()?;
        let clock = Stopwatch::start();
        let started = self.server.start(number)?;
        while self.tap.is_some() && !self.server.is_drained()? {
            ensure!(clock.elapsed() < RESTART_LIMIT, "purges are left: {}", started.output());
            thread::sleep(POLL);
        }
        *service = Some(started);
        self.kills_ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// The second purge of a page comes after two seconds, so many pages are necessary for many writes.
    const fn page_count(&self) -> usize {
        if self.tap.is_some() { PAGES } else { PAGES / 8 }
    }

    fn lock(&self, page: usize) -> MutexGuard<'_, LastWrite> {
        self.pages[page].written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes to a page to which no other client writes, and whose last write was purged twice.
    fn write_to_any(&self, rng: &mut Rng) -> Result<()> {
        loop {
            let page = rng.usize(0..self.page_count());
            if let Ok(mut written) = self.pages[page].written.try_lock()
                && self.is_complete(&written)
            {
                return self.write(&mut written, page);
            }
            thread::yield_now();
        }
    }

    fn is_complete(&self, written: &LastWrite) -> bool {
        let Some(tap) = &self.tap else { return true };
        self.kills_ended.load(Ordering::SeqCst) > written.kills
            || tap.count(&written.names) >= written.complete
    }

    /// Posts a revision until it is acknowledged, has it purged, and publishes the revision.
    fn write(&self, written: &mut LastWrite, page: usize) -> Result<()> {
        let rev = written.rev + 1;
        let posted = self.post(written, page, rev)?;
        let clock = Stopwatch::start();
        if let Some(tap) = &self.tap {
            if written.names.is_empty() {
                written.names = self.names(page)?;
            }
            // Counts are only valid without a kill. A revision that was stored before a kill was purged after it.
            let is_settled = || self.kills_ended.load(Ordering::SeqCst) > posted.kills;
            let is_counted = || self.kills_begun.load(Ordering::SeqCst) == posted.kills;
            while !posted.is_repeat && !is_settled() {
                let reached = tap.wait(&written.names, posted.purges + 1, is_settled)?;
                if reached && is_counted() {
                    break;
                }
                ensure!(clock.elapsed() < RESTART_LIMIT, "no purge of {}", title(page));
            }
            written.complete = posted.purges + 2;
            written.kills = posted.kills;
        } else {
            // If the server is killed between the commit and the purge, the purge waits.
            let _alive = self.alive.read();
            for purge in self.purges(page) {
                let answer = purge.answer(self.cache)?;
                ensure!(answer.status() == 200, "{purge:?} is answered with {answer:?}");
            }
        }
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
            let purges = self.tap.as_ref().map_or(0, |tap| tap.count(&written.names));
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
    fn names(&self, page: usize) -> Result<Vec<String>> {
        if self.method == Method::Purge {
            return Ok(RESOURCES.iter().map(|resource| url(page, resource)).collect());
        }
        let answer = get(url(page, RESOURCES[0])).host(HOST).answer(self.server.address)?;
        let key = answer.header("xkey").split(' ').next().filter(|key| !key.is_empty());
        Ok(vec![key.with_context(|| format!("no key: {answer:?}"))?.to_owned()])
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
