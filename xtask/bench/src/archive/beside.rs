//! Measures writes during a seal and without a seal, and the longest commit of a seal.
//!
//! The store is opened in this process, so that the seal begins when the measurement does.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rashomon_clock::{Clock, SystemClock};
use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, NewProperty, NewRevision, Page, PropertyName,
    Revision, RevisionStore, SealOptions, SealReport, Settings, Title,
};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tokio::task::JoinHandle;

/// The number of pages of each domain that is sealed, and of revisions of each page.
const PAGES: i64 = 12;
const REVISIONS: i64 = 600;
/// The size of the html of a revision. A revision changes a part of the html of its predecessor.
const HTML_BYTES: usize = 60_000;
/// The number of writers, the number of pages of each writer, and the pause of a writer after each write.
const WRITERS: usize = 8;
const PAGES_OF_A_WRITER: i64 = 50;
const WRITER_PAUSE: Duration = Duration::from_millis(20);
/// The time for which the writers write without a seal.
const TIME_WITHOUT_SEAL: Duration = Duration::from_secs(15);
/// The pause of the seal after each page. A seal of the server makes the same pause.
const SEAL_PAUSE: Duration = Duration::from_millis(5);

/// Describes the measurement for the report.
pub(super) fn how() -> String {
    format!(
        "Writers beside a seal, on buckets in this process: two domains of {PAGES} pages with {REVISIONS} \
         revisions of {} kB of html are sealed. The first is sealed without writers, and the second beside \
         {WRITERS} writers. Each writer writes such revisions to {PAGES_OF_A_WRITER} other pages, with a pause of \
         {} ms. Before the seals, the writers write alone for {} s. A commit is one transaction of the committer, \
         with its fsync",
        HTML_BYTES / 1000,
        WRITER_PAUSE.as_millis(),
        TIME_WITHOUT_SEAL.as_secs()
    )
}

pub(super) fn measure(add: &mut dyn FnMut(&str, &'static str, f64)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The seal runs in this thread, and the writers in those of the runtime.
    runtime.block_on(measure_on_store(add))
}

async fn measure_on_store(add: &mut dyn FnMut(&str, &'static str, f64)) -> Result<()> {
    let folder = crate::service::data_folder()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(SqliteStore::open(folder.path(), Arc::clone(&clock), Options::default())?);
    // The seal takes all revisions that were superseded before it begins.
    let all = BucketArchive { after: Duration::ZERO, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    let settings = Settings { archive, ..Settings::default() };
    let buckets = RevisionStore::open(Arc::clone(&store) as _, Arc::clone(&clock), settings, 1).await?;
    let (first, second) = (DomainName::new("first")?, DomainName::new("second")?);
    for domain in [&first, &second] {
        for number in 0..PAGES {
            let mut text = Text::new(number as u64);
            for rev in 1..=REVISIONS {
                put(&buckets, &page(domain, number)?, rev, &text.next()).await?;
            }
        }
    }
    let longest = || store.take_longest_commit().as_secs_f64() * 1e3;

    longest();
    let writers = Writers::start(&buckets, &clock, 0);
    tokio::time::sleep(TIME_WITHOUT_SEAL).await;
    let alone = writers.stop().await?;
    add("writers alone, p50", "ms", quantile(&alone, 0.5));
    add("writers alone, p99", "ms", quantile(&alone, 0.99));
    add("writers alone, longest commit", "ms", longest());

    let started = clock.monotonic();
    let sealed = seal(&buckets, &first).await?;
    let seconds = (clock.monotonic() - started).as_secs_f64();
    ensure!(sealed.revisions as i64 >= PAGES * (REVISIONS - 1), "the seal left out revisions: {sealed:?}");
    add("one sealing commit, longest", "ms", longest());
    add("sealing, revisions a second", "", sealed.revisions as f64 / seconds);

    let writers = Writers::start(&buckets, &clock, 1);
    let started = clock.monotonic();
    let sealed = seal(&buckets, &second).await?;
    let seconds = (clock.monotonic() - started).as_secs_f64();
    let beside = writers.stop().await?;
    ensure!(sealed.revisions as i64 >= PAGES * (REVISIONS - 1), "the seal left out revisions: {sealed:?}");
    add("writers beside sealing, p50", "ms", quantile(&beside, 0.5));
    add("writers beside sealing, p99", "ms", quantile(&beside, 0.99));
    add("writers beside sealing, longest commit", "ms", longest());
    add("sealing beside writers, revisions a second", "", sealed.revisions as f64 / seconds);
    store.shutdown().await;
    Ok(())
}

async fn seal(buckets: &RevisionStore, domain: &DomainName) -> Result<SealReport> {
    let options = SealOptions { rest: SEAL_PAUSE, ..SealOptions::default() };
    Ok(buckets.maintenance().seal(domain, &BucketName::page(), options, &mut |_| {}).await?)
}

/// Writers, each in a task of its own, like the requests of a server.
struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Result<Vec<f64>>>>,
}

impl Writers {
    fn start(buckets: &RevisionStore, clock: &Arc<dyn Clock>, turn: i64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..WRITERS).map(|writer| {
            let (buckets, clock, stop) = (buckets.clone(), Arc::clone(clock), Arc::clone(&stop));
            tokio::spawn(async move { write(&buckets, &*clock, &stop, turn, writer).await })
        });
        let tasks = tasks.collect();
        Self { stop, tasks }
    }

    /// Returns the durations of the writes in milliseconds, in ascending order.
    async fn stop(self) -> Result<Vec<f64>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in self.tasks {
            all.append(&mut task.await??);
        }
        all.sort_by(f64::total_cmp);
        Ok(all)
    }
}

async fn write(
    buckets: &RevisionStore,
    clock: &dyn Clock,
    stop: &AtomicBool,
    turn: i64,
    writer: usize,
) -> Result<Vec<f64>> {
    let domain = DomainName::new("written")?;
    let (mut text, mut took) = (Text::new(1_000 + writer as u64), Vec::new());
    for write in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let number = writer as i64 * PAGES_OF_A_WRITER + write % PAGES_OF_A_WRITER;
        let rev = turn * 1_000_000 + write / PAGES_OF_A_WRITER + 1;
        let (page, text) = (page(&domain, number)?, text.next());
        let started = clock.monotonic();
        put(buckets, &page, rev, &text).await?;
        took.push((clock.monotonic() - started).as_secs_f64() * 1e3);
        tokio::time::sleep(WRITER_PAUSE).await;
    }
    Ok(took)
}

fn page(domain: &DomainName, number: i64) -> Result<Page> {
    Ok(Page {
        domain: domain.clone(),
        bucket: BucketName::page(),
        title: Title::new(&format!("Page_{number}"))?,
    })
}

async fn put(buckets: &RevisionStore, page: &Page, rev: i64, html: &str) -> Result<()> {
    let name = PropertyName::new("html")?;
    let body = buckets.stage_bytes(page, &name, html.as_bytes()).await?;
    let html = NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body };
    let rev = Revision::new(rev).context("a revision is above 0")?;
    buckets.put_revision(page, NewRevision::new(rev, vec![html])).await?;
    Ok(())
}

/// The html of a page, which changes from one revision to the next.
struct Text {
    rng: Rng,
    lines: Vec<String>,
}

impl Text {
    const LINE_BYTES: usize = 120;

    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let lines = (0..HTML_BYTES / Self::LINE_BYTES).map(|_| line(&mut rng)).collect();
        Self { rng, lines }
    }

    fn next(&mut self) -> String {
        for _ in 0..3 {
            let place = self.rng.usize(..self.lines.len());
            self.lines[place] = line(&mut self.rng);
        }
        self.lines.concat()
    }
}

/// A line of words. About a third of its characters are random.
fn line(rng: &mut Rng) -> String {
    let mut line = String::from("<p>");
    while line.len() < Text::LINE_BYTES - 5 {
        let _ = write!(line, "word{:x} and ", rng.u16(..));
    }
    line.truncate(Text::LINE_BYTES - 5);
    line + "</p>\n"
}

fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let place = (sorted.len() as f64 * quantile) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
