//! Replays a history through one strategy.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use rashomon_clock::{Clock, ManualClock, SystemClock, Timestamp};
use rashomon_pages::{
    Error, NewProperty, NewRevision, Page, PropertyName, Retention, Revision, RevisionStore, Settings, Tid,
    schemas,
};
use rashomon_tables::{Counting, PartitionStream, RowStream, Scan, Schema, TableStore};

use super::{
    ActionReport, ComparisonError, Contestant, HOUR, History, PROBE_DELAY, Stored, StrategyReport, expected,
    input::Edit,
    tally::{ActionKind, DURABLE_TABLES, EXPIRING_TABLES, Tally},
};

/// One of every `EDITS_PER_PROBE` edits is probed. If its revision becomes the latest, the revision is read once as the
/// latest, an hour before the page's next edit or at once, and three times after it was superseded.
const EDITS_PER_PROBE: usize = 4;

/// The maximum number of queue entries that one pass of the sweep processes.
const ENTRIES_PER_SWEEP: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// The maximum number of rows that one read returns.
const ROWS_PER_READ: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// A planned read: its time, its kind, the index of the page, and the tid. Without a tid, it reads the latest value.
type Probe = Reverse<(Timestamp, ActionKind, usize, Option<Tid>)>;

/// The measurements of one kind of action.
#[derive(Debug, Default)]
struct Measurements {
    times: u64,
    missed: u64,
    tally: Tally,
    took: Vec<Duration>,
}

/// The latest render of a page.
#[derive(Debug, Clone, Copy)]
struct Latest {
    rev: Revision,
    tid: Tid,
    /// Whether the render is read after it was superseded.
    probed: bool,
}

struct Replay<'a> {
    contestant: Contestant,
    history: &'a History,
    clock: Arc<ManualClock>,
    /// The clock that measures the time of calls.
    watch: SystemClock,
    tables: Arc<Counting<Arc<dyn TableStore>>>,
    buckets: RevisionStore,
    property: PropertyName,
    /// The number of defined properties.
    properties: usize,
    /// The latest render of each page, by the index of the page.
    latest: BTreeMap<usize, Latest>,
    probes: BinaryHeap<Probe>,
    next_sweep: Timestamp,
    measured: BTreeMap<ActionKind, Measurements>,
}

/// Replays a history on empty tables, with a clock that follows the edits.
pub async fn replay(
    contestant: Contestant,
    history: &History,
    clock: Arc<ManualClock>,
    tables: Arc<dyn TableStore>,
) -> Result<StrategyReport, ComparisonError> {
    let tables = Arc::new(Counting::new(tables));
    let settings = Settings {
        cache_bytes: 0,
        skew: contestant.policy().skew,
        retention: Retention {
            policy: Some(contestant.policy()),
            // The notes count a timeline entry for each write.
            sample: Duration::ZERO,
            domain_rate: NonZeroU32::MAX,
            ..Retention::default()
        },
        ..Settings::default()
    };
    let (store, at) = (Arc::clone(&tables) as Arc<dyn TableStore>, Arc::clone(&clock) as Arc<dyn Clock>);
    let properties = settings.definitions.iter().count();
    let buckets = RevisionStore::open(store, at, settings, 1).await?;
    let mut replay = Replay {
        contestant,
        history,
        next_sweep: clock.now(),
        clock,
        watch: SystemClock::new(),
        tables,
        buckets,
        property: "html".parse().expect("a property's name"),
        properties,
        latest: BTreeMap::new(),
        probes: BinaryHeap::new(),
        measured: BTreeMap::new(),
    };
    for (number, edit) in history.edits.iter().enumerate() {
        replay.read_until(edit.at).await?;
        replay.advance(edit.at).await?;
        replay.edit(edit, number % EDITS_PER_PROBE == 0).await?;
    }
    let stored = replay.stored().await?;
    replay.read_until(Timestamp::MAX).await?;
    Ok(replay.report(stored))
}

impl Replay<'_> {
    /// Carries out the planned reads up to a time.
    async fn read_until(&mut self, until: Timestamp) -> Result<(), ComparisonError> {
        while let Some(Reverse((at, ..))) = self.probes.peek() {
            if *at > until {
                break;
            }
            let Some(Reverse((at, what, page, tid))) = self.probes.pop() else { break };
            self.advance(at).await?;
            self.read(what, page, tid).await?;
        }
        Ok(())
    }

    /// Advances the clock. If the contestant sweeps, and an hour has passed since the last sweep, sweeps until nothing
    /// is eligible.
    async fn advance(&mut self, to: Timestamp) -> Result<(), ComparisonError> {
        // Exports have times in whole seconds, so several edits may have the same time. In a replay, each edit gets a
        // time of its own.
        let passes = to.since(self.clock.now()).max(Duration::from_millis(1));
        self.clock.advance(passes);
        let now = self.clock.now();
        if !self.contestant.sweeps || now < self.next_sweep {
            return Ok(());
        }
        self.next_sweep = now.saturating_add(HOUR);
        loop {
            let (before, begun) = (self.tables.counts(), self.watch.monotonic());
            let sweep = self.buckets.maintenance().sweep(ENTRIES_PER_SWEEP).await?;
            if sweep.entries == 0 {
                return Ok(());
            }
            let took =
                self.watch.monotonic().saturating_sub(begun) / u32::try_from(sweep.entries).unwrap_or(1);
            let counts = self.tables.counts() - &before;
            let tally = Tally::of(ActionKind::Sweep, self.contestant.strategy, &counts, self.properties);
            let measured = self.measured.entry(ActionKind::Sweep).or_default();
            measured.times += sweep.entries;
            measured.tally += tally;
            measured.took.push(took);
        }
    }

    async fn edit(&mut self, edit: &Edit, probed: bool) -> Result<(), ComparisonError> {
        let page = &self.history.pages[edit.page];
        let text = self.history.text(edit).await?;
        let body = self.buckets.stage_bytes(page, &self.property, &text).await?;
        let name = self.property.clone();
        let property = NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body };
        let new = NewRevision::new(edit.rev, vec![property]);
        let (before, begun) = (self.tables.counts(), self.watch.monotonic());
        let written = self.buckets.put_revision(page, new).await?;
        let took = self.watch.monotonic().saturating_sub(begun);
        self.buckets.maintenance().drain_background_culls().await;
        let previous = self.latest.get(&edit.page).copied();
        let what = if previous.is_some() { ActionKind::Update } else { ActionKind::Create };
        self.measure(what, &before, took, true);
        if previous.is_none_or(|latest| latest.rev < edit.rev) {
            self.latest.insert(edit.page, Latest { rev: edit.rev, tid: written.tid, probed });
            if let Some(superseded) = previous.filter(|latest| latest.probed) {
                self.plan_superseded_reads(edit.page, superseded.tid);
            }
            if let Some(next) = edit.next.filter(|_| probed) {
                let at = next.saturating_sub(HOUR).max(self.clock.now());
                self.probes.push(Reverse((at, ActionKind::Current, edit.page, None)));
            }
        }
        Ok(())
    }

    /// Plans reads of a superseded value: after [`PROBE_DELAY`], an hour before its grace is over, and an
    /// hour after its grace and its slack.
    fn plan_superseded_reads(&mut self, page: usize, tid: Tid) {
        let policy = self.contestant.policy();
        let over = policy.grace.saturating_add(policy.slack).saturating_add(HOUR);
        for (after, what) in [
            (PROBE_DELAY, ActionKind::Recent),
            (policy.grace.saturating_sub(HOUR), ActionKind::NearGraceEnd),
            (over, ActionKind::Historical),
        ] {
            let at = self.clock.now().saturating_add(after);
            self.probes.push(Reverse((at, what, page, Some(tid))));
        }
    }

    async fn read(&mut self, what: ActionKind, page: usize, tid: Option<Tid>) -> Result<(), ComparisonError> {
        let page: &Page = &self.history.pages[page];
        let (before, begun) = (self.tables.counts(), self.watch.monotonic());
        let read = match tid {
            Some(tid) => self.buckets.property(page, tid, &self.property).await.map(drop),
            None => self.buckets.latest(page, &self.property).await.map(drop),
        };
        let took = self.watch.monotonic().saturating_sub(begun);
        let found = match read {
            Ok(()) => true,
            Err(Error::NotFound(_)) => false,
            Err(error) => return Err(error.into()),
        };
        self.measure(what, &before, took, found);
        Ok(())
    }

    fn measure(&mut self, what: ActionKind, before: &rashomon_tables::Counts, took: Duration, found: bool) {
        let counts = self.tables.counts() - before;
        let tally = Tally::of(what, self.contestant.strategy, &counts, self.properties);
        let measured = self.measured.entry(what).or_default();
        measured.missed += u64::from(!found);
        // A read of a missing value has other costs, so it is not part of the means.
        if found {
            measured.times += 1;
            measured.tally += tally;
            measured.took.push(took);
        }
    }

    async fn stored(&self) -> Result<Stored, ComparisonError> {
        let mut stored = Stored::default();
        for table in schemas::all() {
            let (rows, bytes) = self.size(table).await.map_err(rashomon_pages::Error::Store)?;
            let (of_rows, of_bytes) = if DURABLE_TABLES.contains(&table.name()) {
                (&mut stored.current_rows, &mut stored.current_bytes)
            } else if EXPIRING_TABLES.contains(&table.name()) {
                (&mut stored.expiring_rows, &mut stored.expiring_bytes)
            } else {
                (&mut stored.overhead_rows, &mut stored.overhead_bytes)
            };
            *of_rows += rows;
            *of_bytes += bytes;
        }
        Ok(stored)
    }

    async fn size(&self, table: &'static Schema) -> rashomon_tables::Result<(u64, u64)> {
        let store = &**self.tables.store();
        let (mut count, mut bytes) = (0, 0);
        let mut partitions = PartitionStream::new(store, table, ROWS_PER_READ);
        while let Some(partition) = partitions.next().await? {
            let mut rows = RowStream::new(store, table, Scan::new(partition, ROWS_PER_READ));
            while let Some(row) = rows.next().await? {
                count += 1;
                bytes += row.size() as u64;
            }
        }
        Ok((count, bytes))
    }

    fn report(mut self, stored: Stored) -> StrategyReport {
        let mut done = Vec::new();
        for what in ActionKind::ALL {
            let Some(mut measured) = self.measured.remove(&what) else { continue };
            measured.took.sort_unstable();
            let at = |share: usize| {
                let index = (measured.took.len() * share / 100).min(measured.took.len().saturating_sub(1));
                measured.took.get(index).map_or(0, |took| took.as_micros() as u64)
            };
            let times = measured.times.max(1) as f64;
            let core = measured.tally.core / times;
            let notes = expected::estimate_of_the_notes(self.contestant, what);
            // If no value was left to read, nothing was measured.
            let compared = notes.filter(|_| measured.times > 0);
            done.push(ActionReport {
                what: what.name(),
                times: measured.times,
                missed: measured.missed,
                core,
                keeping: measured.tally.keeping / times,
                overhead: measured.tally.overhead / times,
                median_microseconds: at(50),
                p99_microseconds: at(99),
                because: compared
                    .and_then(|notes| expected::reason_for_difference(self.contestant, what, core, notes)),
                notes,
            });
        }
        StrategyReport { name: self.contestant.name, done, stored }
    }
}
