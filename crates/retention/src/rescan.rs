//! The rescan: enqueues all stored pages of a bucket after its retention was turned on, or was changed to cull
//! more.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, DomainName, INDEX_PAGE_ROWS, Page, Result, Revision, Tid, Title,
    rows::{Properties, RenderKey, RevisionRow, TypedRow, partition_of, unreadable},
    schemas::{RETENTION_WALKS, REVISIONS},
};
use rashomon_tables::{Batch, ClusteringRange, Key, Scan, Value};
use serde::Serialize;

use crate::{
    Policy,
    clock_jumps::load_clock_state,
    core::Core,
    cull::ALL_REVISIONS,
    decide::{Frontier, find_render_limit},
    queue::{LATE_WRITE_WINDOW, QueueEntry, min_delay_of_new_entries},
    rows::RescanRow,
    watermarks::{Watermarks, culled_renders, watermarks},
};

/// The number of titles in one step of a rescan. A rescan stores its progress after each step.
const TITLES_PER_STEP: usize = 200;

/// The number of buckets in one result page, for a restart of the rescans of all buckets.
const BUCKETS_PAGE_PARTITIONS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// The report of one step of a rescan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rescan {
    /// The pages that this step examined.
    pub pages: u64,
    /// Whether the rescan is complete: nothing is left to enqueue.
    pub finished: bool,
    /// The time until the first new queue entries become eligible. New entries have this delay even for values
    /// that were superseded long ago.
    pub eligible_in: Duration,
}

/// The report of a dry run: the pages, renders and bytes of a bucket, and those that retention would cull now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DryRun {
    /// Pages that were examined.
    pub pages: u64,
    /// Pages that would lose bodies.
    pub pages_culled: u64,
    /// Renders whose bodies are stored.
    pub renders: u64,
    /// Renders that would lose their bodies.
    pub renders_culled: u64,
    /// Revisions whose own bodies would be deleted.
    pub revisions_culled: u64,
    /// Bytes, before compression, of all bodies that are stored.
    pub bytes: u64,
    /// Bytes, before compression, of the bodies that would be deleted.
    pub bytes_culled: u64,
}

/// The stored state of the rescan of a bucket.
#[derive(Debug, Default)]
struct RescanState {
    policy: Option<Policy>,
    after: Option<Title>,
    finished: bool,
    /// Values that were written at this time or earlier may have expired under an earlier strategy.
    expired_before: Option<Timestamp>,
    /// When a second rescan begins. The first rescan may miss writes that were in flight, and no queue entry
    /// announces such writes. By this time, they have appeared.
    second_rescan_at: Option<Timestamp>,
    /// The write time of the stored state. This time may be later than now, since the clock of the writer may be ahead.
    written_at: Option<Timestamp>,
}

impl RescanState {
    /// The value of `expired_before` under the next policy.
    fn expired_before(&self, next: &Policy, now: Timestamp) -> Option<Timestamp> {
        let expires = self.policy.as_ref().is_some_and(|policy| policy.strategy.expires());
        if expires && !next.strategy.expires() { Some(now) } else { self.expired_before }
    }
}

/// Counts the values of a bucket that the configured retention would cull now.
pub(crate) async fn dry_run(
    core: &Core,
    domain: &DomainName,
    bucket: &BucketName,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<DryRun> {
    let mut run = DryRun::default();
    let Some(policy) = core.settings.of_bucket(domain, bucket) else { return Ok(run) };
    let mut pages = core.records.catalog.pages(domain, bucket);
    while let Some(page) = pages.next().await? {
        dry_run_page(core, &page, policy, &mut run).await?;
        progress(run.pages);
    }
    Ok(run)
}

/// Does one step of the rescan of a bucket.
pub(crate) async fn continue_rescan(core: &Core, domain: &DomainName, bucket: &BucketName) -> Result<Rescan> {
    let nothing = Rescan { pages: 0, finished: true, eligible_in: Duration::ZERO };
    let Some(policy) = core.settings.of_bucket(domain, bucket) else { return Ok(nothing) };
    let eligible_in = min_delay_of_new_entries(core, policy);
    load_clock_state(core).await?;
    let _rescans = core.rescans.lock().await;
    let state = rescan_state(core, domain, bucket).await?;
    let known = state.policy.as_ref().filter(|before| !policy.culls_more_than(before));
    let mut next = RescanState {
        policy: Some(policy.clone()),
        after: None,
        finished: true,
        expired_before: state.expired_before(policy, core.records.clock.now()),
        second_rescan_at: state.second_rescan_at.filter(|_| known.is_some()),
        written_at: state.written_at,
    };
    if known.is_some() && state.finished && !second_rescan_is_due(core, &state, policy) {
        if known != Some(policy) {
            set_rescan_state(core, domain, bucket, next).await?;
        }
        // The delay is returned, since an earlier, interrupted call may have enqueued values that are not
        // eligible yet.
        return Ok(Rescan { eligible_in, ..nothing });
    }
    let after = state.after.filter(|_| known.is_some());
    let titles = core.records.catalog.titles(domain, bucket, after.as_ref(), TITLES_PER_STEP).await?;
    let pages = titles.items.len() as u64;
    for title in titles.items {
        let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
        enqueue_existing(core, &page, policy).await?;
    }
    let rescan = Rescan { pages, finished: titles.next.is_none(), eligible_in };
    (next.after, next.finished) = (titles.next, rescan.finished);
    if rescan.finished {
        next.second_rescan_at = match next.second_rescan_at {
            None if !core.records.is_alone() => {
                Some(core.records.clock.now().saturating_add(LATE_WRITE_WINDOW))
            }
            _ => None,
        };
    }
    set_rescan_state(core, domain, bucket, next).await?;
    Ok(rescan)
}

/// Whether the second rescan has to begin. After a clock jump, this rescan waits: less time may have passed than
/// the clock shows.
fn second_rescan_is_due(core: &Core, state: &RescanState, policy: &Policy) -> bool {
    let has_passed = |at: Timestamp| at <= core.records.clock.passed().after(LATE_WRITE_WINDOW);
    // This call also notices a jump, so it comes first.
    let pauses = core.clock_jumps.pauses(&core.records.clock, LATE_WRITE_WINDOW, policy.skew);
    !pauses && state.second_rescan_at.is_some_and(has_passed)
}

/// Enqueues the values of a page. One entry is for all values that may be culled already, and becomes eligible
/// after the minimum delay of new entries. For each later time at which a value was stored, an entry becomes
/// eligible when a value that was superseded at that time does. Times that are close together share an entry. A page
/// with a single render gets no entry.
async fn enqueue_existing(core: &Core, page: &Page, policy: &Policy) -> Result<()> {
    let now = core.records.clock.now();
    let cutoff = core.cutoff(policy);
    let step = (policy.slack / 4).max(Duration::from_secs(1));
    let mut entries: BTreeMap<Timestamp, (Revision, Revision)> = BTreeMap::new();
    let mut newest_cullable = None;
    let mut add = |time: Timestamp, rev: Revision| {
        if time <= cutoff {
            newest_cullable = newest_cullable.max(Some(time));
            return;
        }
        let entry = entries.entry(round_up(time, step)).or_insert((rev, rev));
        *entry = (entry.0.min(rev), entry.1.max(rev));
    };
    let (mut renders, mut after) = (0_u64, None);
    loop {
        let (rows, next) = core.records.renders(page, ClusteringRange::all(), after).await?;
        for row in rows {
            renders += 1;
            add(row.stored_at, row.rev);
            // A replaced property was written after its render was stored, so the property stays for longer.
            add(row.written_at.max(row.stored_at), row.rev);
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    if renders < 2 {
        // The page has at most one render: the latest, which is not superseded.
        return Ok(());
    }
    let mut after = None;
    while let Some(rows) = core.records.next_rows(&REVISIONS, page, &mut after).await? {
        for row in &rows {
            let row = RevisionRow::from_row(row)?;
            add(row.written_at.max(row.stored_at), row.record.rev);
        }
    }
    entries.extend(newest_cullable.map(|at| (at, (*ALL_REVISIONS.start(), *ALL_REVISIONS.end()))));
    for (at, (lowest, highest)) in entries {
        let eligible_at =
            core.eligible_at(policy, at).max(now.saturating_add(min_delay_of_new_entries(core, policy)));
        let entry = QueueEntry {
            eligible_at,
            page: page.clone(),
            lowest,
            highest,
            at,
            checks_all_renders: true,
            is_last_check: false,
        };
        core.records.store.write(Vec::new(), entry.batch(policy, now)).await?;
    }
    Ok(())
}

/// Restarts the rescan of a page's bucket, because of a write while retention is off. Such a write adds no queue
/// entry, so all pages have to be enqueued again when retention is turned on.
pub(crate) async fn restart_rescan(core: &Core, page: &Page) -> Result<()> {
    let bucket = (page.domain.clone(), page.bucket.clone());
    if core.unqueued.contains_key(&bucket) {
        return Ok(());
    }
    reset_rescan(core, rescan_key(&page.domain, &page.bucket)).await?;
    core.unqueued.insert(bucket, ());
    Ok(())
}

/// Restarts the rescan of every bucket, because queue entries may have expired.
pub(crate) async fn restart_all_rescans(core: &Core) -> Result<()> {
    let _rescans = core.rescans.lock().await;
    let mut buckets = core.records.partitions(&RETENTION_WALKS, BUCKETS_PAGE_PARTITIONS);
    while let Some(partition) = buckets.next().await? {
        reset_rescan(core, Key::new(partition, Vec::new())).await?;
    }
    Ok(())
}

/// Resets the state of a rescan, so that the next step begins with the first page of the bucket.
async fn reset_rescan(core: &Core, key: Key) -> Result<()> {
    let Some(row) = core.records.store.get(&RETENTION_WALKS, &key).await? else { return Ok(()) };
    let mut batch = Batch::new(key.partition);
    // The policy is kept, since copies that were made under this policy still expire.
    let RescanRow { policy, expired_before, .. } = TypedRow::from_row(&row)?;
    let reset = RescanRow { policy, after: None, finished_at: None, expired_before, again_at: None };
    reset.put(&mut batch, core.records.write_time_after(row.written_at));
    Ok(core.records.store.write(Vec::new(), batch).await?)
}

/// Whether the missing body of a render, or of a revision (if `tid` is `None`), may have expired. `true` if the
/// body was superseded, and superseded values of the bucket expire, or did so under an earlier policy. Unlike a
/// cull, an expiry sets no watermark.
pub(crate) async fn has_expired(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Option<Tid>,
    written_at: Timestamp,
) -> Result<bool> {
    if core.expiring_policy(page).is_none() {
        let before = rescan_state(core, &page.domain, &page.bucket).await?;
        if !before.policy.is_some_and(|policy| policy.strategy.expires())
            && before.expired_before.is_none_or(|at| at < written_at)
        {
            return Ok(false);
        }
    }
    let latest = core.records.latest(page).await?;
    Ok(latest.is_some_and(|latest| match tid {
        Some(tid) => RenderKey { rev, tid } < latest,
        None => rev < latest.rev,
    }))
}

async fn rescan_state(core: &Core, domain: &DomainName, bucket: &BucketName) -> Result<RescanState> {
    let Some(row) = core.records.store.get(&RETENTION_WALKS, &rescan_key(domain, bucket)).await? else {
        return Ok(RescanState::default());
    };
    let RescanRow { policy, after, finished_at, expired_before, again_at } = TypedRow::from_row(&row)?;
    let after = after.map(|title| Title::new(&title)).transpose();
    Ok(RescanState {
        policy: policy.and_then(|json| serde_json::from_str(&json).ok()),
        after: after.map_err(|_| unreadable("retention_walks", &row))?,
        finished: finished_at.is_some(),
        expired_before,
        second_rescan_at: again_at,
        written_at: Some(row.written_at),
    })
}

async fn set_rescan_state(
    core: &Core,
    domain: &DomainName,
    bucket: &BucketName,
    state: RescanState,
) -> Result<()> {
    let now = state
        .written_at
        .map_or_else(|| core.records.clock.now(), |before| core.records.write_time_after(before));
    let mut batch = Batch::new(rescan_key(domain, bucket).partition);
    let policy = state.policy.as_ref().map(serde_json::to_string).transpose();
    let row = RescanRow {
        policy: policy.expect("plain data with text keys"),
        after: state.after.map(|title| title.as_str().to_owned()),
        finished_at: state.finished.then_some(now),
        expired_before: state.expired_before,
        again_at: state.second_rescan_at,
    };
    row.put(&mut batch, now);
    Ok(core.records.store.write(Vec::new(), batch).await?)
}

/// Adds a page to a dry run: its renders and revisions, and those of them that retention would cull.
async fn dry_run_page(core: &Core, page: &Page, policy: &Policy, run: &mut DryRun) -> Result<()> {
    let cutoff = core.cutoff(policy);
    let mut frontier = Frontier::new(policy, cutoff);
    let mut renders = Vec::new();
    let mut after = None;
    loop {
        let (rows, next) = core.records.renders(page, ClusteringRange::all(), after).await?;
        renders.extend(rows);
        after = next;
        if after.is_none() {
            break;
        }
    }
    for row in &renders {
        frontier.add_render(row.rev, row.stored_at);
    }
    let below = frontier.whole_below();
    let watermarks = watermarks(core, page).await?;
    let before = run.bytes_culled;
    for of_rev in renders.chunk_by(|left, right| left.rev == right.rev) {
        let rev = of_rev[0].rev;
        let kept_render = find_render_limit(of_rev.iter().map(|row| (row.tid, row.stored_at)), cutoff);
        let done_of_rev = match of_rev.len() {
            1 => None,
            _ => culled_renders(core, page, rev).await?,
        };
        for row in of_rev {
            let written_at = row.written_at;
            let done = watermarks.cover(rev, &row.properties, written_at)
                || done_of_rev.as_ref().is_some_and(|done| done.covers(row));
            let superseded =
                below.is_some_and(|below| rev < below) || kept_render.is_some_and(|kept| row.tid < kept);
            let counted = run.add(&row.properties, done, superseded && written_at <= cutoff);
            run.renders += u64::from(counted.is_some());
            run.renders_culled += u64::from(counted == Some(true));
        }
    }
    dry_run_revisions(core, page, below, cutoff, &watermarks, run).await?;
    run.pages += 1;
    run.pages_culled += u64::from(run.bytes_culled > before);
    Ok(())
}

/// Adds to a dry run the bodies of a page's revisions, and those of them that retention would cull.
async fn dry_run_revisions(
    core: &Core,
    page: &Page,
    below: Option<Revision>,
    cutoff: Timestamp,
    watermarks: &Watermarks,
    run: &mut DryRun,
) -> Result<()> {
    let mut revisions = core.records.rows(&REVISIONS, Scan::new(partition_of(page), INDEX_PAGE_ROWS));
    while let Some(row) = revisions.next().await? {
        let row = RevisionRow::from_row(&row)?;
        let rev = row.record.rev;
        let superseded = below.is_some_and(|below| rev < below);
        let written_at = row.written_at;
        let done = watermarks.cover(rev, &row.properties, written_at);
        let counted = run.add(&row.properties, done, superseded && written_at <= cutoff);
        run.revisions_culled += u64::from(counted == Some(true));
    }
    Ok(())
}

impl DryRun {
    /// Counts the bodies of a render or of a revision, and returns `is_culled`: whether they would be culled.
    /// Returns `None` if there are no bodies, or if they are deleted already (`done`).
    fn add(&mut self, properties: &Properties, done: bool, is_culled: bool) -> Option<bool> {
        if properties.is_empty() || done {
            return None;
        }
        let bytes = properties.values().map(|info| info.size).sum::<u64>();
        self.bytes += bytes;
        if is_culled {
            self.bytes_culled += bytes;
        }
        Some(is_culled)
    }
}

fn rescan_key(domain: &DomainName, bucket: &BucketName) -> Key {
    Key::new(vec![domain.as_str().into(), Value::from(bucket.as_key())], Vec::new())
}

/// The next multiple of `step` that is later than `at`.
fn round_up(at: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX).max(1);
    let up = at.as_micros().div_euclid(step).saturating_add(1).saturating_mul(step);
    Timestamp::from_micros(up)
}
