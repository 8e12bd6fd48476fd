//! A world: a store, the processes that work on it, and their clocks.

mod further;
mod generator;
mod handle;
mod process;
mod tables;

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{
    BucketName, DomainName, Generator, MemoryTimeline, Page, Policy, Retention, Revision, Settings, Timeline,
    Title, schemas,
};
use rashomon_tables::{Batch, ClusteringRange, Error, Mutation, TableStore, Value};

pub(crate) use self::{
    generator::SimulatedRenderer, handle::LateWrite, handle::LateWrites, handle::StoreHandle,
    process::Process, tables::Tables,
};
use crate::simulation::{
    Variant,
    setup::{START, Setup},
    store_clock::StoreClock,
    store_pool::{AnyStore, StorePool},
};

/// The number of pages that a timeline beside the store keeps.
const TIMELINE_PAGES: u64 = 100;

/// The size of a process's cache of newest properties, in bytes.
const CACHE_BYTES: u64 = 1 << 20;

/// A store, the processes that work on it, and their clocks.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) setup: Setup,
    /// The true time, whatever the clocks show.
    pub(crate) now: Timestamp,
    pub(crate) processes: Vec<Process>,
    /// The pages in `page`, and then those in the further bucket.
    pub(crate) pages: Vec<Page>,
    /// The former pages of the further bucket, before it was deleted.
    pub(crate) deleted_pages: Vec<Page>,
    /// The number of times that the further bucket was made.
    pub(crate) further_made: u64,
    /// The store itself, in which no call fails, and its clock.
    pub(crate) store: AnyStore,
    store_clock: Arc<StoreClock>,
    /// The total by which all clocks have been set ahead, in microseconds.
    pub(crate) jumped: i64,
    pub(crate) late_writes: LateWrites,
    timeline: Option<(Arc<MemoryTimeline>, Arc<dyn Timeline>)>,
    pub(crate) renderer: Option<Arc<SimulatedRenderer>>,
    /// The number of processes started so far.
    begun: u64,
    seed: u64,
}

impl World {
    /// Opens an empty world.
    pub(crate) async fn begin(
        setup: Setup,
        seed: u64,
        pool: &StorePool,
        variant: &Variant,
    ) -> anyhow::Result<Self> {
        let accesses = pool.accesses(setup.processes)?;
        let late_writes = LateWrites::default();
        let alone = setup.processes == 1 && accesses[0].store.partition_versions().is_some();
        let clocks: Vec<_> = accesses.iter().map(|_| Arc::new(ManualClock::new(START))).collect();
        let timeline = setup.timeline_beside.then(|| {
            let memory = MemoryTimeline::new(Arc::clone(&clocks[0]) as Arc<dyn Clock>, TIMELINE_PAGES);
            let memory = Arc::new(memory);
            (Arc::clone(&memory), (variant.timeline)(memory as Arc<dyn Timeline>))
        });
        let mut world = Self {
            now: START,
            processes: Vec::new(),
            pages: (0..setup.pages).map(|number| page(number, &BucketName::page())).collect(),
            deleted_pages: Vec::new(),
            further_made: 0,
            store: Arc::clone(&accesses[0].store),
            store_clock: Arc::clone(&accesses[0].clock),
            jumped: 0,
            late_writes: Arc::clone(&late_writes),
            timeline,
            renderer: setup.generator.then(|| Arc::new(SimulatedRenderer::new())),
            begun: 0,
            seed,
            setup,
        };
        let settings = world.settings(world.setup.policy.as_ref());
        for (number, (access, clock)) in accesses.into_iter().zip(clocks).enumerate() {
            let late_writes = Arc::clone(&late_writes);
            let shown = (variant.clock)(Arc::clone(&clock));
            let handle = Arc::new(StoreHandle::new(
                access.store,
                Arc::clone(&shown),
                access.clock,
                alone,
                late_writes,
            ));
            let store = (variant.store)(Arc::clone(&handle) as AnyStore);
            let offset = world.setup.skew * u32::from(number == 1);
            clock.set(world.now.saturating_add(offset));
            let (settings, seed) = (settings.clone(), world.next_seed());
            world.processes.push(Process::begin(handle, store, clock, shown, offset, settings, seed).await?);
        }
        if world.setup.further {
            world.make_further(0).await?;
        }
        Ok(world)
    }

    fn next_seed(&mut self) -> u64 {
        self.begun += 1;
        self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.begun)
    }

    fn settings(&self, policy: Option<&Policy>) -> Settings {
        let mut retention =
            Retention { policy: policy.cloned(), sample: self.setup.sample, ..Retention::default() };
        retention.timeline = self.timeline.as_ref().map(|(_, timeline)| Arc::clone(timeline));
        retention.generator =
            self.renderer.as_ref().map(|renderer| Arc::clone(renderer) as Arc<dyn Generator>);
        let skew = policy.map_or(self.setup.skew, |policy| policy.skew);
        Settings { cache_bytes: CACHE_BYTES, skew, retention, ..Settings::default() }
    }

    /// Restarts all processes with other settings.
    pub(crate) async fn restart_all(&mut self, policy: Option<&Policy>) -> anyhow::Result<()> {
        let settings = self.settings(policy);
        for number in 0..self.processes.len() {
            let seed = self.next_seed();
            self.processes[number].restart(settings.clone(), seed).await?;
        }
        Ok(())
    }

    /// Restarts a process.
    pub(crate) async fn restart(&mut self, number: usize, policy: Option<&Policy>) -> anyhow::Result<()> {
        let (settings, seed) = (self.settings(policy), self.next_seed());
        self.processes[number].restart(settings, seed).await
    }

    /// The latest time that any clock may show.
    pub(crate) fn latest_clock(&self) -> Timestamp {
        self.clock_ahead_by(self.setup.skew)
    }

    fn clock_ahead_by(&self, offset: Duration) -> Timestamp {
        let set = Timestamp::from_micros(self.now.as_micros().saturating_add(self.jumped));
        set.saturating_add(offset)
    }

    /// Lets time pass for all processes.
    pub(crate) fn pass(&mut self, by: Duration) {
        self.now = self.now.saturating_add(by);
        self.processes.iter().for_each(|process| process.clock.advance(by));
    }

    /// Sets a clock to `offset` ahead of the slowest possible clock.
    pub(crate) fn skew(&mut self, number: usize, offset: Duration) {
        let time = self.clock_ahead_by(offset);
        let process = &mut self.processes[number];
        process.offset = offset;
        process.clock.set(time);
    }

    /// Sets all clocks.
    pub(crate) fn jump(&mut self, by: Duration, ahead: bool) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.jumped += if ahead { by } else { -by };
        for number in 0..self.processes.len() {
            self.skew(number, self.processes[number].offset);
        }
    }

    /// The time at which the next late write takes effect.
    pub(crate) fn next_late(&self) -> Option<Timestamp> {
        self.late_writes().iter().map(|late| late.due).min()
    }

    /// Carries out a late write that is due at this time. Returns its page, its revisions, and the time at
    /// which it was sent. `None` if no write is due, or if the bucket of its page was deleted.
    pub(crate) async fn deliver(
        &self,
        due: Timestamp,
    ) -> Result<Option<(usize, Vec<Revision>, Timestamp)>, Error> {
        let late = {
            let mut late_writes = self.late_writes();
            late_writes.iter().position(|late| late.due == due).map(|number| late_writes.swap_remove(number))
        };
        let Some(LateWrite { sent, batch, .. }) = late else { return Ok(None) };
        let page = self.pages.iter().position(|page| partition(page) == batch.partition);
        let revisions = written_revisions(&batch).collect();
        self.store.write(Vec::new(), batch).await?;
        Ok(page.map(|page| (page, revisions, sent)))
    }

    /// Whether a late write of a revision has not taken effect yet.
    pub(crate) fn is_under_way(&self, page: usize, rev: Revision) -> bool {
        let partition = partition(&self.pages[page]);
        let is_it = |late: &LateWrite| {
            late.batch.partition == partition && written_revisions(&late.batch).any(|of| of == rev)
        };
        self.late_writes().iter().any(is_it)
    }

    fn late_writes(&self) -> std::sync::MutexGuard<'_, Vec<LateWrite>> {
        self.late_writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stored rows of a page by the most advanced clock.
    pub(crate) async fn tables(&self, page: usize) -> Result<Tables, Error> {
        self.store_clock.show(self.latest_clock());
        Tables::of(&self.store, &self.pages[page], self.setup.expires()).await
    }

    /// Lists the keys of the rows of the pages in the tables of bodies, renders and revisions, without write times.
    pub(crate) async fn content(&self) -> Result<Vec<String>, Error> {
        self.store_clock.show(self.latest_clock());
        let mut lines = Vec::new();
        for page in &self.pages {
            for table in [
                &*schemas::RENDER_CONTENT,
                &*schemas::REVISION_CONTENT,
                &*schemas::HISTORICAL,
                &*schemas::BY_REV,
                &*schemas::CURRENT,
                &*schemas::RENDERS,
                &*schemas::REVISIONS,
            ] {
                for row in tables::rows(&self.store, table, page).await? {
                    lines.push(format!("{} {:?}", table.name(), row.key.clustering));
                }
            }
        }
        Ok(lines)
    }

    /// The number of bodies that are stored in chunks, referenced or not.
    pub(crate) async fn chunk_sets(&self) -> Result<usize, Error> {
        self.store_clock.show(self.latest_clock());
        let limit = std::num::NonZeroUsize::new(1000).unwrap_or(std::num::NonZeroUsize::MIN);
        let (mut sets, mut after) = (0, None);
        loop {
            let found = self.store.partitions(&schemas::CHUNKS, after, limit).await?;
            sets += found.items.len();
            after = found.next;
            if after.is_none() {
                return Ok(sets);
            }
        }
    }

    /// Deletes all entries of the timeline, wherever it is kept.
    pub(crate) async fn lose_timeline(&self) -> Result<(), Error> {
        if let Some((memory, _)) = &self.timeline {
            memory.clear();
            return Ok(());
        }
        for page in &self.pages {
            let mut batch = Batch::new(partition(page));
            for table in [&*schemas::REVISION_TIMELINE, &*schemas::RENDER_TIMELINE] {
                batch.delete_range(table, ClusteringRange::all(), self.latest_clock());
            }
            self.store.write(Vec::new(), batch).await?;
        }
        Ok(())
    }

    /// Deletes the record of how far the queue has been processed.
    pub(crate) async fn forget_cursors(&self) -> Result<(), Error> {
        const SHARDS: i64 = 16;
        for shard in 0..SHARDS {
            let partition = vec![Value::Int(shard)];
            let key = rashomon_tables::Key::new(partition.clone(), Vec::new());
            if let Some(row) = self.store.get(&schemas::DUE_CURSORS, &key).await? {
                let mut batch = Batch::new(partition);
                batch.delete(&schemas::DUE_CURSORS, Vec::new(), row.written_at);
                self.store.write(Vec::new(), batch).await?;
            }
        }
        Ok(())
    }
}

fn partition(page: &Page) -> Vec<Value> {
    [page.domain.as_str(), page.bucket.as_key(), page.title.as_str()].map(Value::from).to_vec()
}

fn domain() -> DomainName {
    DomainName::new("enwiki").expect("a domain")
}

fn page(number: usize, bucket: &BucketName) -> Page {
    Page {
        domain: domain(),
        bucket: bucket.clone(),
        title: Title::new(&format!("Page_{number}")).expect("a title"),
    }
}

/// The revisions whose renders a batch writes.
fn written_revisions(batch: &Batch) -> impl Iterator<Item = Revision> {
    batch.mutations.iter().filter_map(|mutation| match mutation {
        Mutation::Put { table, clustering, .. } if table.name() == schemas::RENDERS.name() => {
            match clustering.first()? {
                Value::Int(rev) => Revision::new(*rev),
                _ => None,
            }
        }
        _ => None,
    })
}
