//! Writes one store step by step, and keeps copies of its files.

use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rashomon_clock::{Clock as _, ManualClock, SystemClock, Timestamp};
use rashomon_pages::{
    BucketName, DomainName, Expect, NewProperty, NewRender, NewRevision, Page, PropertyName, RenderBase,
    Revision, RevisionStore, Settings, Tid, Title,
};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use super::{Base, Files, State, Victim, scratch};
use crate::damage::{ask::Question, layout::Layout, wal};

/// 2026-01-01T00:00:00Z
const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The time for which the store must be idle before it writes its log into its file.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum time that the store may take to write its log into its file.
const CHECKPOINT_DEADLINE: Duration = Duration::from_secs(30);

/// The error if the store has written its log into its file before the files were copied.
const TOO_SLOW: &str = "the machine is too slow: the log is in the file already; run the program again";

/// A page with its renders.
type WrittenPage = (Page, Vec<(Revision, Tid)>);

/// A store that is written step by step.
pub(super) struct Writer {
    directory: TempDir,
    clock: Arc<ManualClock>,
    settings: Settings,
    open: Option<(Arc<SqliteStore>, RevisionStore)>,
    pages: Vec<WrittenPage>,
    /// The files at the end of each step.
    closed: Vec<Files>,
    victims: Vec<Victim>,
    states: Vec<State>,
}

impl Writer {
    pub(super) async fn new(settings: Settings) -> Result<Self> {
        let mut writer = Self {
            directory: scratch()?,
            clock: Arc::new(ManualClock::new(START)),
            settings,
            open: None,
            pages: Vec::new(),
            closed: Vec::new(),
            victims: Vec::new(),
            states: Vec::new(),
        };
        writer.reopen(writer.settings.clone()).await?;
        Ok(writer)
    }

    pub(super) fn buckets(&self) -> Result<&RevisionStore> {
        self.open.as_ref().map(|(_, buckets)| buckets).context("the store is closed")
    }

    /// Moves the clock ahead.
    pub(super) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Opens the store with these settings. Closes it first if it is open.
    pub(super) async fn reopen(&mut self, settings: Settings) -> Result<()> {
        self.reopen_with(settings, Duration::from_secs(3600)).await
    }

    async fn reopen_with(&mut self, settings: Settings, upkeep_interval: Duration) -> Result<()> {
        self.close().await;
        let options = Options { readers: NonZeroUsize::MIN, upkeep_interval, ..Options::default() };
        let store = Arc::new(SqliteStore::open(self.directory.path(), self.clock.clone(), options)?);
        let seed = 1 + self.states.len() as u64;
        let buckets = RevisionStore::open(store.clone(), self.clock.clone(), settings, seed).await?;
        self.open = Some((store, buckets));
        Ok(())
    }

    async fn close(&mut self) {
        if let Some((store, buckets)) = self.open.take() {
            drop(buckets);
            store.shutdown().await;
        }
    }

    fn read(&self) -> Result<Files> {
        let path = self.directory.path();
        let log = fs::read(path.join("rashomon.sqlite-wal")).ok().map(Arc::new);
        Ok(Files { file: Arc::new(fs::read(path.join("rashomon.sqlite"))?), log })
    }

    fn add_state(&mut self, files: Files) -> usize {
        self.states.push(State { files, answers: OnceLock::new() });
        self.states.len() - 1
    }

    /// Ends a step: closes the store, adds it to the states and to the stores to damage, and opens it again.
    pub(super) async fn step(&mut self) -> Result<()> {
        self.close().await;
        let files = self.read()?;
        anyhow::ensure!(files.log.is_none(), "a closed store has a log");
        self.add_state(files.clone());
        let chain = (0..self.states.len()).collect();
        let layout = Some(Layout::read(&self.directory.path().join("rashomon.sqlite"))?);
        self.victims.push(Victim { files: files.clone(), layout, chain, older: self.closed.clone() });
        self.closed.push(files);
        self.reopen(self.settings.clone()).await
    }

    /// Adds three stores to damage, with the files that a killed process leaves: before the log is written into the
    /// file, after the log is written into the file, and after further writes to a restarted log.
    pub(super) async fn kill(&mut self) -> Result<()> {
        let chain: Vec<_> = (0..self.states.len()).collect();
        let mut older: Vec<_> = self.closed.last().cloned().into_iter().collect();
        let page = self.pages.first().context("no page")?.0.clone();
        self.reopen_with(self.settings.clone(), UPKEEP_INTERVAL).await?;
        for number in 901..905 {
            self.edit(&page, number, &[("wikitext", 700), ("html", 2_000)]).await?;
        }
        let before = self.read()?;
        anyhow::ensure!(!is_in_file(&before)?, TOO_SLOW);
        let chain = self.add_killed(&before.file, &before, &chain, &older)?;
        older.push(before.clone());

        // The store writes the log into the file while it is idle.
        let waited = SystemClock::new();
        let written = loop {
            let files = self.read()?;
            if is_in_file(&files)? {
                break files;
            }
            if waited.monotonic() > CHECKPOINT_DEADLINE {
                bail!("the log was not written into the file in {CHECKPOINT_DEADLINE:?}");
            }
            tokio::time::sleep(UPKEEP_INTERVAL / 20).await;
        };
        let chain = self.add_killed(&before.file, &written, &chain, &older)?;
        older.push(written.clone());

        self.edit(&page, 906, &[("wikitext", 700)]).await?;
        self.edit(&page, 907, &[("html", 1_500)]).await?;
        let after = self.read()?;
        anyhow::ensure!(!is_in_file(&after)?, TOO_SLOW);
        self.add_killed(&written.file, &after, &chain, &older)?;
        Ok(())
    }

    /// Adds a store to damage, which has these `files`. Also adds a state for `file`, the file at the beginning of the
    /// log, and a state for each commit of the log. Returns the numbers of all states of the store.
    fn add_killed(
        &mut self,
        file: &Arc<Vec<u8>>,
        files: &Files,
        chain: &[usize],
        older: &[Files],
    ) -> Result<Vec<usize>> {
        let log = files.log.as_deref().context("an open store without a log")?;
        let mut chain = chain.to_vec();
        chain.push(self.add_state(Files { file: Arc::clone(file), log: None }));
        for end in wal::commit_ends(log) {
            let log = Some(Arc::new(log[..end].to_vec()));
            chain.push(self.add_state(Files { file: Arc::clone(file), log }));
        }
        let (chain_of, older) = (chain.clone(), older.to_vec());
        self.victims.push(Victim { files: files.clone(), layout: None, chain: chain_of, older });
        Ok(chain)
    }

    /// Creates properties of these sizes, each with unique content.
    async fn properties(&self, page: &Page, rev: i64, bodies: &[(&str, usize)]) -> Result<Vec<NewProperty>> {
        let mut properties = Vec::new();
        for (name, length) in bodies {
            let seed = format!("{} {name} {rev} {}", page.title, self.clock.now().as_micros());
            let name: PropertyName = name.parse()?;
            let body = self.buckets()?.stage_bytes(page, &name, text(&seed, *length).as_bytes()).await?;
            properties.push(NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body });
        }
        Ok(properties)
    }

    fn renders(&mut self, page: &Page) -> &mut Vec<(Revision, Tid)> {
        if let Some(at) = self.pages.iter().position(|(known, _)| known == page) {
            return &mut self.pages[at].1;
        }
        self.pages.push((page.clone(), Vec::new()));
        let last = self.pages.len() - 1;
        &mut self.pages[last].1
    }

    /// Stores a revision.
    pub(super) async fn edit(&mut self, page: &Page, rev: i64, bodies: &[(&str, usize)]) -> Result<()> {
        let properties = self.properties(page, rev, bodies).await?;
        let rev = Revision::new(rev).context("the number of the revision is not positive")?;
        let new = NewRevision {
            user: Some(format!("Writer {}", rev.get() % 7)),
            comment: (rev.get() % 3 > 0)
                .then(|| text(&format!("comment {rev}"), 40 + 31 * (rev.get() as usize % 5))),
            minor: rev.get() % 4 == 0,
            ..NewRevision::new(rev, properties)
        };
        let written = self.buckets()?.put_revision(page, new).await?;
        self.renders(page).push((rev, written.tid));
        self.pass(Duration::from_secs(3600));
        Ok(())
    }

    /// Stores a further render of a revision.
    pub(super) async fn render(&mut self, page: &Page, rev: i64, bodies: &[(&str, usize)]) -> Result<Tid> {
        let properties = self.properties(page, rev, bodies).await?;
        let rev = Revision::new(rev).context("the number of the revision is not positive")?;
        let new = NewRender { base: RenderBase::Revision(rev), timestamp: None, if_latest: None, properties };
        let written = self.buckets()?.put_render(page, new).await?;
        self.renders(page).push((rev, written.tid));
        self.pass(Duration::from_secs(3600));
        Ok(written.tid)
    }

    /// Replaces a property of a render.
    pub(super) async fn replace(&mut self, page: &Page, tid: Tid, bodies: &[(&str, usize)]) -> Result<()> {
        for property in self.properties(page, 0, bodies).await? {
            self.buckets()?.rewrite(page, tid, property, Expect::Any).await?;
        }
        self.pass(Duration::from_secs(3600));
        Ok(())
    }

    pub(super) async fn finish(mut self, name: &'static str, is_archived: bool) -> Result<Base> {
        self.close().await;
        Ok(Base {
            name,
            is_archived,
            now: self.clock.now(),
            questions: Question::about(&self.pages),
            states: self.states,
            victims: self.victims,
        })
    }
}

/// Whether the page in the newest committed frame of the log is in the file.
fn is_in_file(files: &Files) -> Result<bool> {
    let (file, log) = (&files.file, files.log.as_deref().context("an open store without a log")?);
    let Some(end) = wal::commit_ends(log).last().copied() else { return Ok(false) };
    let frame = &log[end - wal::FRAME_BYTES..end];
    let number = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    let page = file.get((number - 1) * wal::PAGE_BYTES..number * wal::PAGE_BYTES);
    Ok(page == Some(&frame[wal::FRAME_HEADER_BYTES..]))
}

pub(super) fn page(domain: &str, title: &str) -> Result<Page> {
    Ok(Page { domain: DomainName::new(domain)?, bucket: BucketName::page(), title: Title::new(title)? })
}

/// Generates text of this length from a seed. The text does not compress well.
pub(super) fn text(seed: &str, length: usize) -> String {
    let seed = seed.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let word = random.usize(2..9);
        text.extend((0..word).map(|_| random.lowercase()));
        text.push(if random.u8(..12) == 0 { '\n' } else { ' ' });
    }
    text.truncate(length.max(1) - 1);
    text.push('.');
    text
}
