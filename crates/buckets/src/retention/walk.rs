//! What stands already when retention is turned on, or its grace is shortened.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_tables::{Batch, ClusteringRange, Key, Scan, Value};
use serde::Serialize;

use super::{
    Policy,
    cull::EVERYTHING,
    decide::{Frontier, renders_below},
    due::{HINTS, Note},
    marks::Marks,
    rows::WalkRow,
};
use crate::{
    BucketName, DomainName, Page, Result, Revision, Revisioned, Tid, Title,
    revisioned::Shared,
    rows::{Properties, RenderKey, RevisionRow, RowKey, TypedRow, partition_of, unreadable},
    schemas::{RENDERS, RETENTION_WALKS, REVISIONS},
};

/// Titles after which it is written down how far a walk has come.
const TITLES: usize = 200;

/// Buckets whose walks begin again that are listed at once.
const BUCKETS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// How a walk is going.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// Pages whose values were noted as due.
    pub pages: u64,
    /// There is nothing left to note.
    pub finished: bool,
    /// What may go at once is due after this.
    pub due_in: Duration,
}

/// What retention would free, were it run now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DryRun {
    /// Pages looked at.
    pub pages: u64,
    /// Those that would lose something.
    pub pages_culled: u64,
    /// Renders that are stored.
    pub renders: u64,
    /// Those that would lose their bodies.
    pub renders_culled: u64,
    /// Revisions whose own bodies would go.
    pub revisions_culled: u64,
    /// Bytes of all bodies that are stored, as they came.
    pub bytes: u64,
    /// Those of the bodies that would go.
    pub bytes_culled: u64,
}

/// What was written down of a walk.
#[derive(Debug, Default)]
struct State {
    policy: Option<Policy>,
    after: Option<Title>,
    finished: bool,
    /// What was stored then or earlier may have expired, by a strategy that was in effect.
    expired_before: Option<Timestamp>,
    /// When all is looked through once more: what nobody noted, and was under way when that was done first, has
    /// come to pass by then.
    again_at: Option<Timestamp>,
    /// When it was written down, by a clock that may be ahead of ours.
    written_at: Option<Timestamp>,
}

impl State {
    /// The same for the next policy.
    fn expired_before(&self, next: &Policy, now: Timestamp) -> Option<Timestamp> {
        let expires = self.policy.as_ref().is_some_and(|policy| policy.strategy.expires());
        if expires && !next.strategy.expires() { Some(now) } else { self.expired_before }
    }
}

impl Revisioned {
    /// Goes on with noting what stands already as due: after retention was turned on for a bucket, or was set
    /// to free more; and once more some hours later, where a write that was sent before may come to pass after it.
    /// Does some of it; call it until it is finished, and now and then after that. Safe to be cut off at any point.
    #[boxed]
    pub async fn walk(&self, domain: &DomainName, bucket: &BucketName) -> Result<Walk> {
        self.0.walk(domain, bucket).await
    }

    /// What the configured retention would free of a bucket if it were run now. Changes nothing. `progress` is
    /// told, now and then, how many pages were looked at.
    #[boxed]
    pub async fn dry_run(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<DryRun> {
        let mut run = DryRun::default();
        let Some(policy) = self.0.settings.retention.of_bucket(domain, bucket) else { return Ok(run) };
        let mut after = None;
        loop {
            let titles = self.catalog().titles(domain, bucket, after.as_ref(), TITLES).await?;
            for title in titles.items {
                let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
                self.0.dry_run(&page, policy, &mut run).await?;
            }
            progress(run.pages);
            after = titles.next;
            if after.is_none() {
                return Ok(run);
            }
        }
    }
}

impl Shared {
    async fn walk(&self, domain: &DomainName, bucket: &BucketName) -> Result<Walk> {
        let nothing = Walk { pages: 0, finished: true, due_in: Duration::ZERO };
        let Some(policy) = self.settings.retention.of_bucket(domain, bucket) else { return Ok(nothing) };
        let due_in = self.soonest(policy);
        self.learn_clock().await?;
        let _turn = self.walks.lock().await;
        let state = self.walk_state(domain, bucket).await?;
        let known = state.policy.as_ref().filter(|before| !policy.frees_more_than(before));
        let mut next = State {
            policy: Some(policy.clone()),
            after: None,
            finished: true,
            expired_before: state.expired_before(policy, self.records.clock.now()),
            again_at: state.again_at.filter(|_| known.is_some()),
            written_at: state.written_at,
        };
        if known.is_some() && state.finished && !self.is_time_again(&state, policy) {
            if known != Some(policy) {
                self.set_walk_state(domain, bucket, next).await?;
            }
            // What a walk noted that was cut off here may still have to fall due.
            return Ok(Walk { due_in, ..nothing });
        }
        let after = state.after.filter(|_| known.is_some());
        let titles = self.records.catalog.titles(domain, bucket, after.as_ref(), TITLES).await?;
        let pages = titles.items.len() as u64;
        for title in titles.items {
            let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
            self.note_what_stands(&page, policy).await?;
        }
        let walk = Walk { pages, finished: titles.next.is_none(), due_in };
        (next.after, next.finished) = (titles.next, walk.finished);
        if walk.finished {
            next.again_at = match next.again_at {
                None if !self.records.is_alone() => Some(self.records.clock.now().saturating_add(HINTS)),
                _ => None,
            };
        }
        self.set_walk_state(domain, bucket, next).await?;
        Ok(walk)
    }

    /// Whether all has to be looked through once more. Not as long as the clock may be ahead of the time that has
    /// passed.
    fn is_time_again(&self, state: &State, policy: &Policy) -> bool {
        state.again_at.is_some_and(|again_at| again_at <= self.records.clock.now())
            && !self.drift.pauses(&self.records.clock, HINTS, policy.skew)
    }

    /// Notes when what a page has falls due: what is superseded long enough at once, and the rest by the times
    /// at which it was stored, several together where they lie close.
    async fn note_what_stands(&self, page: &Page, policy: &Policy) -> Result<()> {
        let now = self.records.clock.now();
        let cutoff = self.cutoff(policy);
        let step = (policy.slack / 4).max(Duration::from_secs(1));
        let mut notes: BTreeMap<Timestamp, (Revision, Revision)> = BTreeMap::new();
        let mut last_to_go = None;
        let mut add = |time: Timestamp, rev: Revision| {
            if time <= cutoff {
                last_to_go = last_to_go.max(Some(time));
                return;
            }
            let note = notes.entry(round_up(time, step)).or_insert((rev, rev));
            *note = (note.0.min(rev), note.1.max(rev));
        };
        let (mut renders, mut after) = (0_u64, None);
        loop {
            let (rows, next) = self.renders(page, ClusteringRange::all(), after).await?;
            for row in rows {
                renders += 1;
                add(row.stored_at, row.rev);
                // What was replaced stays for longer.
                add(row.written_at.max(row.stored_at), row.rev);
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        if renders < 2 {
            // The latest is not superseded by anything.
            return Ok(());
        }
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&REVISIONS, page, &mut after).await? {
            for row in &rows {
                let row = RevisionRow::from_row(row)?;
                add(row.written_at.max(row.stored_at), row.record.rev);
            }
        }
        notes.extend(last_to_go.map(|at| (at, (*EVERYTHING.start(), *EVERYTHING.end()))));
        for (at, (lowest, highest)) in notes {
            let due_at = self.due_at(policy, at).max(now.saturating_add(self.soonest(policy)));
            let note = Note { due_at, page: page.clone(), lowest, highest, at, thorough: true, again: false };
            self.records.store.write(Vec::new(), note.batch(policy, now)).await?;
        }
        Ok(())
    }

    /// What is written is not noted as due while retention is off: if it is turned on again, all that stands
    /// has to be noted once more.
    pub(crate) async fn forget_walk(&self, page: &Page) -> Result<()> {
        let bucket = (page.domain.clone(), page.bucket.clone());
        if self.unnoted.contains_key(&bucket) {
            return Ok(());
        }
        self.begin_again(walk_key(&page.domain, &page.bucket)).await?;
        self.unnoted.insert(bucket, ());
        Ok(())
    }

    /// What was noted is there no more: all that stands has to be noted once more, in every bucket.
    pub(super) async fn forget_walks(&self) -> Result<()> {
        let _turn = self.walks.lock().await;
        let mut buckets = self.records.partitions(&RETENTION_WALKS, BUCKETS);
        while let Some(partition) = buckets.next().await? {
            self.begin_again(Key::new(partition, Vec::new())).await?;
        }
        Ok(())
    }

    /// The next walk of a bucket begins with its first page.
    async fn begin_again(&self, key: Key) -> Result<()> {
        let Some(row) = self.records.store.get(&RETENTION_WALKS, &key).await? else { return Ok(()) };
        let mut batch = Batch::new(key.partition);
        // What the retention was is known on: copies that it made expire still.
        let WalkRow { policy, expired_before, .. } = TypedRow::from_row(&row)?;
        let again = WalkRow { policy, after: None, finished_at: None, expired_before, again_at: None };
        again.put(&mut batch, self.records.after(row.written_at));
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }

    /// Whether the body of a render, or (`None`) of a revision, that is nowhere was superseded in a bucket whose
    /// superseded values expire, or did when it had a retention: then nobody wrote down that it went.
    pub(crate) async fn has_expired(
        &self,
        page: &Page,
        rev: Revision,
        tid: Option<Tid>,
        written_at: Timestamp,
    ) -> Result<bool> {
        if !self.settings.retention.of(page).is_some_and(|policy| policy.strategy.expires()) {
            let before = self.walk_state(&page.domain, &page.bucket).await?;
            if !before.policy.is_some_and(|policy| policy.strategy.expires())
                && before.expired_before.is_none_or(|at| at < written_at)
            {
                return Ok(false);
            }
        }
        let latest = self.records.first(&RENDERS, page, ClusteringRange::all()).await?;
        let latest = latest.and_then(|row| RenderKey::read(&row.key));
        Ok(latest.is_some_and(|latest| match tid {
            Some(tid) => RenderKey { rev, tid } < latest,
            None => rev < latest.rev,
        }))
    }

    async fn walk_state(&self, domain: &DomainName, bucket: &BucketName) -> Result<State> {
        let Some(row) = self.records.store.get(&RETENTION_WALKS, &walk_key(domain, bucket)).await? else {
            return Ok(State::default());
        };
        let WalkRow { policy, after, finished_at, expired_before, again_at } = TypedRow::from_row(&row)?;
        let after = after.map(|title| Title::new(&title)).transpose();
        Ok(State {
            policy: policy.and_then(|json| serde_json::from_str(&json).ok()),
            after: after.map_err(|_| unreadable("retention_walks", &row))?,
            finished: finished_at.is_some(),
            expired_before,
            again_at,
            written_at: Some(row.written_at),
        })
    }

    async fn set_walk_state(&self, domain: &DomainName, bucket: &BucketName, state: State) -> Result<()> {
        let now =
            state.written_at.map_or_else(|| self.records.clock.now(), |before| self.records.after(before));
        let mut batch = Batch::new(walk_key(domain, bucket).partition);
        let policy = state.policy.as_ref().map(serde_json::to_string).transpose();
        let row = WalkRow {
            policy: policy.expect("plain data with text keys"),
            after: state.after.map(|title| title.as_str().to_owned()),
            finished_at: state.finished.then_some(now),
            expired_before: state.expired_before,
            again_at: state.again_at,
        };
        row.put(&mut batch, now);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }

    async fn dry_run(&self, page: &Page, policy: &Policy, run: &mut DryRun) -> Result<()> {
        let cutoff = self.cutoff(policy);
        let mut frontier = Frontier::new(policy, cutoff);
        let mut renders = Vec::new();
        let mut after = None;
        loop {
            let (rows, next) = self.renders(page, ClusteringRange::all(), after).await?;
            renders.extend(rows);
            after = next;
            if after.is_none() {
                break;
            }
        }
        for line in &renders {
            frontier.see(line.rev, line.stored_at);
        }
        let below = frontier.whole_below();
        let marks = self.marks(page).await?;
        let before = run.bytes_culled;
        for of_rev in renders.chunk_by(|one, other| one.rev == other.rev) {
            let rev = of_rev[0].rev;
            let stays = renders_below(of_rev.iter().map(|row| (row.tid, row.stored_at)), cutoff);
            let done_of_rev = match of_rev.len() {
                1 => None,
                _ => self.culled_renders(page, rev).await?,
            };
            for row in of_rev {
                let written_at = row.written_at;
                let done = marks.have(rev, &row.properties, written_at)
                    || done_of_rev.as_ref().is_some_and(|done| done.has(row));
                let superseded =
                    below.is_some_and(|below| rev < below) || stays.is_some_and(|stays| row.tid < stays);
                let counted = run.add(&row.properties, done, superseded && written_at <= cutoff);
                run.renders += u64::from(counted.is_some());
                run.renders_culled += u64::from(counted == Some(true));
            }
        }
        self.dry_run_revisions(page, below, cutoff, &marks, run).await?;
        run.pages += 1;
        run.pages_culled += u64::from(run.bytes_culled > before);
        Ok(())
    }

    async fn dry_run_revisions(
        &self,
        page: &Page,
        below: Option<Revision>,
        cutoff: Timestamp,
        marks: &Marks,
        run: &mut DryRun,
    ) -> Result<()> {
        let mut revisions = self.records.rows(&REVISIONS, Scan::new(partition_of(page), INDEX_PAGE_ROWS));
        while let Some(row) = revisions.next().await? {
            let row = RevisionRow::from_row(&row)?;
            let rev = row.record.rev;
            let superseded = below.is_some_and(|below| rev < below);
            let written_at = row.written_at;
            let done = marks.have(rev, &row.properties, written_at);
            let counted = run.add(&row.properties, done, superseded && written_at <= cutoff);
            run.revisions_culled += u64::from(counted == Some(true));
        }
        Ok(())
    }
}

impl DryRun {
    /// Counts the bodies of a render or a revision. `None`: they have gone, or there are none; else whether
    /// they would go.
    fn add(&mut self, properties: &Properties, done: bool, goes: bool) -> Option<bool> {
        if properties.is_empty() || done {
            return None;
        }
        let bytes = properties.values().map(|info| info.size).sum::<u64>();
        self.bytes += bytes;
        if goes {
            self.bytes_culled += bytes;
        }
        Some(goes)
    }
}

fn walk_key(domain: &DomainName, bucket: &BucketName) -> Key {
    Key::new(vec![domain.as_str().into(), Value::from(bucket.as_str())], Vec::new())
}

fn round_up(at: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).max(1);
    let up = at.as_micros().div_euclid(step).saturating_add(1).saturating_mul(step);
    Timestamp::from_micros(up)
}
