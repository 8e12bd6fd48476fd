//! Simulated histories of the garbage collector: two processes with an archive work on three replicas. A
//! batch may reach only some of the replicas, and spreads to the others later. Acknowledged revisions must
//! always be readable. At the end no revision may be partly stored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{
    ArchiveSettings, BucketName, CompactionOptions, DomainName, Error, Expect, NewProperty, NewRevision,
    Page, PropertyName, Revision, RevisionStore, SealOptions, Settings, Tid, Title,
};
use rashomon_tables::{REPLICAS, Reach, ReplicaStore};

use crate::simulation::{setup::START, store_pool::AnyStore};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time within which hints (batches that no replica has received) reach the replicas.
const HINT_WINDOW: Duration = Duration::from_secs(10 * 24 * 3600);

const PROCESSES: usize = 2;
const PAGES: usize = 2;

/// The maximum number of steps in a history.
const MAX_STEPS: usize = 40;

/// The number of steps between two reads of all acknowledged revisions.
const CHECK_EVERY: usize = 10;

/// The size of a body that is stored in chunks.
const LARGE_BODY_BYTES: usize = 1_050_000;

/// One step of a history, carried out by one process.
#[derive(Debug, Clone, Copy)]
struct Step {
    process: usize,
    action: Action,
    /// The number of a batch within the step, and the replicas that this batch reaches.
    fault: Option<(usize, Reach)>,
    /// Whether the process dies after that batch. Then no later batch of the step reaches any replica.
    dies: bool,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    /// The next revision of a page is written.
    Put {
        page: usize,
        large: bool,
    },
    /// The body of an acknowledged revision is replaced. `which` selects the revision.
    Rewrite {
        which: usize,
        large: bool,
    },
    Seal,
    Compact,
    CollectGarbage,
    /// Every batch reaches all replicas.
    Spread,
    /// Time passes.
    Pass(Duration),
    /// From now on, this replica answers no reads of a quorum.
    ReadWithout(usize),
    /// From now on, this replica is unreachable, or none is.
    SetUnreachable(Option<usize>),
    Restart,
}

fn steps(rng: &mut Rng) -> Vec<Step> {
    let number = rng.usize(8..=MAX_STEPS);
    (0..number).map(|_| step(rng)).collect()
}

fn step(rng: &mut Rng) -> Step {
    let large = rng.u8(..6) == 0;
    let action = match rng.u8(..100) {
        0..24 => Action::Put { page: rng.usize(..PAGES), large },
        24..34 => Action::Rewrite { which: rng.usize(..64), large },
        34..48 => Action::Seal,
        48..54 => Action::Compact,
        54..68 => Action::CollectGarbage,
        68..71 => Action::Spread,
        71..88 => Action::Pass([12 * HOUR, 2 * DAY, 2 * DAY, 5 * DAY, 12 * DAY][rng.usize(..5)]),
        88..94 => Action::ReadWithout(rng.usize(..REPLICAS)),
        94..97 => Action::SetUnreachable(rng.bool().then(|| rng.usize(..REPLICAS))),
        _ => Action::Restart,
    };
    // The first two batches of a seal or a compaction (numbers 0 and 1) enqueue and write the new block. Faults
    // are more interesting in the later batches, which change the indexes of pages.
    let (one_in, numbers) = match action {
        Action::Seal | Action::Compact => (2, 2..5),
        _ => (3, 0..6),
    };
    let fault = (rng.u8(..one_in) == 0).then(|| {
        let reach = match rng.u8(..6) {
            0 => [false; REPLICAS],
            1 => std::array::from_fn(|_| rng.bool()),
            _ => {
                let reached = rng.usize(..REPLICAS);
                std::array::from_fn(|replica| replica == reached)
            }
        };
        (rng.usize(numbers), reach)
    });
    Step { process: rng.usize(..PROCESSES), action, fault, dies: rng.bool() }
}

/// The bodies that a read of a revision may return.
#[derive(Debug, Clone)]
struct KnownRevision {
    /// `None`: the write of the revision was not acknowledged.
    tid: Option<Tid>,
    /// The numbers of the bodies that may be stored: the last acknowledged body, and those of later writes
    /// that failed. If the revision is stored, it has exactly one of these bodies.
    bodies: BTreeSet<u64>,
}

/// A history in progress.
struct Run {
    clock: Arc<ManualClock>,
    store: Arc<ReplicaStore>,
    processes: Vec<RevisionStore>,
    known: BTreeMap<(usize, i64), KnownRevision>,
    next_body: u64,
    seed: u64,
    /// The time after which a page is idle, and is sealed with its latest revision.
    idle: Option<Duration>,
    /// The time at which the oldest undelivered hint may have been written.
    hinted_at: Option<Timestamp>,
}

/// The steps of a history, which are shown to find the reason of a failure.
pub struct Log(Vec<Step>);

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "  {number:>2}. {step:?}"))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns the steps of a seed's history.
#[must_use]
pub fn log(seed: u64) -> Log {
    Log(steps(&mut Rng::with_seed(seed)))
}

/// Runs `histories` histories on several threads, beginning with the seed `first`. Calls `progress` with the number of
/// finished histories.
///
/// # Errors
///
/// Fails if a promise is broken; the error contains the steps of the history.
pub fn many(histories: u64, first: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        // The tasks wait only for timers, and the time of the runtime is virtual.
        let runtime = runtime.enable_all().start_paused(true).build().context("there is no runtime")?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= histories {
                return anyhow::Ok(());
            }
            let seed = first.wrapping_add(number);
            if let Err(error) = runtime.block_on(run(seed)) {
                next.store(histories, Ordering::Relaxed);
                return Err(error.context(format!("the steps of the history:\n{}", log(seed))));
            }
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a history panicked; see above"))?
        })
    })
}

/// Runs the history of a seed.
///
/// # Errors
///
/// Fails if a promise is broken; the error names the promise and the step.
pub async fn run(seed: u64) -> Result<()> {
    let mut rng = Rng::with_seed(seed);
    let steps = steps(&mut rng);
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(ReplicaStore::new(&(Arc::clone(&clock) as Arc<dyn Clock>), HINT_WINDOW));
    let (processes, known) = (Vec::new(), BTreeMap::new());
    // Half of the histories seal idle pages.
    let idle = (seed % 2 == 1).then_some(DAY);
    let mut run = Run { clock, store, processes, known, next_body: 0, seed: 0, idle, hinted_at: None };
    for _ in 0..PROCESSES {
        let process = run.open().await?;
        run.processes.push(process);
    }
    for (number, step) in steps.into_iter().enumerate() {
        run.step(step).await.with_context(|| format!("seed {seed}, step {number}: {step:?}"))?;
        if number % CHECK_EVERY == CHECK_EVERY - 1 {
            run.check_acknowledged().await.with_context(|| format!("seed {seed}, after step {number}"))?;
        }
    }
    run.end().await.with_context(|| format!("seed {seed}, at the end"))
}

impl Run {
    async fn open(&mut self) -> Result<RevisionStore> {
        self.seed += 1;
        let archive = ArchiveSettings { cache_bytes: 0, idle: self.idle, ..ArchiveSettings::default() };
        let settings =
            Settings { archive: Some(archive), skew: Duration::from_secs(5), ..Settings::default() };
        let store = Arc::clone(&self.store) as AnyStore;
        Ok(RevisionStore::open(store, Arc::clone(&self.clock) as Arc<dyn Clock>, settings, self.seed).await?)
    }

    async fn step(&mut self, step: Step) -> Result<()> {
        self.pass(Duration::from_secs(1)).await?;
        let (mut number, mut is_dead) = (0, false);
        self.store.set_plan(move |_| {
            let planned = step.fault.filter(|(at, _)| *at == number);
            number += 1;
            let reach = match planned {
                Some((_, reach)) => reach,
                None if is_dead => [false; REPLICAS],
                None => [true; REPLICAS],
            };
            is_dead |= planned.is_some() && step.dies;
            reach
        });
        let done = self.act(step).await;
        self.store.clear_plan();
        if step.dies && step.fault.is_some() {
            // A dead process never sent the batches after the fault, so no replica has hints of these batches.
            self.store.lose_hints();
        }
        if self.store.has_hints() && self.hinted_at.is_none() {
            self.hinted_at = Some(self.clock.now());
        }
        match done {
            // A step may fail because of its own fault, or because a replica lacks a batch of an earlier step.
            Err(Error::Store(rashomon_tables::Error::Unavailable(_)) | Error::Conflict(_)) => Ok(()),
            done => Ok(done?),
        }
    }

    async fn act(&mut self, step: Step) -> rashomon_pages::Result<()> {
        let process = self.processes[step.process].clone();
        match step.action {
            Action::Put { page, large } => self.put(&process, page, large).await,
            Action::Rewrite { which, large } => self.rewrite(&process, which, large).await,
            Action::Seal => {
                let page = page(0);
                process
                    .maintenance()
                    .seal(&page.domain, &page.bucket, SealOptions::default(), &mut |_| {})
                    .await
                    .map(drop)
            }
            Action::Compact => {
                let page = page(0);
                let (options, mut progress) = (CompactionOptions::default(), |_: &_| {});
                process
                    .maintenance()
                    .compact_archive(&page.domain, &page.bucket, options, &mut progress)
                    .await
                    .map(drop)
            }
            Action::CollectGarbage => process.maintenance().collect_orphans(DAY).await.map(drop),
            Action::Spread => {
                self.hinted_at = None;
                Ok(self.store.spread().await?)
            }
            Action::Pass(by) => Ok(self.pass(by).await?),
            Action::ReadWithout(replica) => {
                self.store.read_without(replica);
                Ok(())
            }
            Action::SetUnreachable(replica) => {
                self.store.set_unreachable(replica);
                Ok(())
            }
            Action::Restart => {
                if let Ok(opened) = self.open().await {
                    self.processes[step.process] = opened;
                }
                Ok(())
            }
        }
    }

    /// Lets time pass. Delivers the hints before they are too old.
    async fn pass(&mut self, by: Duration) -> rashomon_tables::Result<()> {
        let until = self.clock.now().saturating_add(by);
        if self.hinted_at.is_some_and(|hinted_at| until.since(hinted_at) >= HINT_WINDOW) {
            self.store.deliver_hints().await?;
            self.hinted_at = None;
        }
        self.clock.advance(by);
        Ok(())
    }

    async fn put(
        &mut self,
        process: &RevisionStore,
        number: usize,
        large: bool,
    ) -> rashomon_pages::Result<()> {
        let page = page(number);
        let last = self.known.range((number, 0)..(number, i64::MAX)).next_back();
        let rev = last.map_or(1, |((_, rev), _)| rev + 1);
        let body = self.body(large);
        // From here on the revision may be stored.
        self.known.insert((number, rev), KnownRevision { tid: None, bodies: BTreeSet::from([body]) });
        let property = stage_html(process, &page, body).await?;
        let new = NewRevision::new(revision(rev), vec![property]);
        let tid = process.put_revision(&page, new).await?.tid;
        self.known.entry((number, rev)).and_modify(|known| known.tid = Some(tid));
        Ok(())
    }

    async fn rewrite(
        &mut self,
        process: &RevisionStore,
        which: usize,
        large: bool,
    ) -> rashomon_pages::Result<()> {
        let acknowledged: Vec<_> =
            self.known.iter().filter_map(|(key, known)| Some((*key, known.tid?))).collect();
        if acknowledged.is_empty() {
            return Ok(());
        }
        let (key, tid) = acknowledged[which % acknowledged.len()];
        let (page, body) = (page(key.0), self.body(large));
        let property = stage_html(process, &page, body).await?;
        self.known.entry(key).and_modify(|known| known.bodies.extend([body]));
        process.rewrite(&page, tid, property, Expect::Any).await?;
        self.known.entry(key).and_modify(|known| known.bodies = BTreeSet::from([body]));
        Ok(())
    }

    /// Returns a body number that no other write has. The numbers of large bodies are odd.
    fn body(&mut self, large: bool) -> u64 {
        self.next_body += 2;
        self.next_body + u64::from(large)
    }

    /// Checks that every acknowledged revision has one of its possible bodies.
    async fn check_acknowledged(&mut self) -> Result<()> {
        let reader = self.open().await?;
        for ((number, rev), known) in &self.known {
            let Some(tid) = known.tid else { continue };
            let property = reader.property(&page(*number), tid, &html()).await;
            let body = match property {
                Ok(property) => property.body.whole().await,
                Err(error) => Err(error),
            };
            let body = body.with_context(|| format!("revision {rev} of page {number} was acknowledged"))?;
            let is_one = known.bodies.iter().any(|number| body == text(*number));
            ensure!(is_one, "revision {rev} of page {number} has another body than those that were written");
        }
        Ok(())
    }

    /// Checks the acknowledged revisions, makes every batch reach all replicas, and then checks all revisions.
    /// Reads must be right whichever replica does not answer, before the garbage collection and after it.
    async fn end(&mut self) -> Result<()> {
        self.store.set_unreachable(None);
        self.check_acknowledged().await?;
        self.store.spread().await?;
        for round in 0..2 {
            for replica in 0..REPLICAS {
                self.store.read_without(replica);
                self.check_acknowledged().await?;
                self.check_whole(round > 0)
                    .await
                    .with_context(|| format!("round {round}, without {replica}"))?;
            }
            self.clock.advance(HINT_WINDOW + 2 * DAY);
            self.open().await?.maintenance().collect_orphans(DAY).await?;
        }
        Ok(())
    }

    /// Checks that each unacknowledged revision is either complete or missing, and verifies the store.
    async fn check_whole(&mut self, is_collected: bool) -> Result<()> {
        let reader = self.open().await?;
        for ((number, rev), known) in self.known.iter().filter(|(_, known)| known.tid.is_none()) {
            let page = page(*number);
            let render = match reader.newest_render(&page, revision(*rev)).await {
                Err(Error::NotFound(_)) => continue,
                render => render?,
            };
            let body = reader.property(&page, render.tid, &html()).await?.body.whole().await?;
            let is_one = known.bodies.iter().any(|number| body == text(*number));
            ensure!(is_one, "revision {rev} of page {number} has another body than the one that was written");
        }
        let report = rashomon_pages::operations::verify(&reader, &mut |_| {}).await?;
        // A process that died while writing a block leaves parts of the block until the collector deletes
        // them.
        let is_problem = |problem: &&String| is_collected || !problem.contains("is incomplete");
        match report.problems.iter().find(is_problem) {
            Some(problem) => bail!("the store is not whole: {problem}"),
            None => Ok(()),
        }
    }
}

async fn stage_html(process: &RevisionStore, page: &Page, body: u64) -> rashomon_pages::Result<NewProperty> {
    let body = process.stage_bytes(page, &html(), &text(body)).await?;
    Ok(NewProperty { name: html(), content_type: None, other_headers: BTreeMap::new(), body })
}

/// Makes the body with a number. An odd number gives a large body that does not compress.
fn text(number: u64) -> Vec<u8> {
    let mut text =
        format!("<p>This is what body number {number} says, and no other says it.</p>\n").into_bytes();
    if number % 2 == 1 {
        let mut noise = vec![0; LARGE_BODY_BYTES];
        Rng::with_seed(number).fill(&mut noise);
        text.extend(noise);
    }
    text
}

fn html() -> PropertyName {
    PropertyName::new("html").expect("a property's name")
}

fn revision(number: i64) -> Revision {
    Revision::new(number).expect("above 0")
}

fn page(number: usize) -> Page {
    Page {
        domain: DomainName::new("enwiki").expect("a domain"),
        bucket: BucketName::page(),
        title: Title::new(&format!("Page_{number}")).expect("a title"),
    }
}
