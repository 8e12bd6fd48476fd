//! The timeline: an index of the times at which values were superseded. The timeline need not be complete or
//! correct.
//!
//! With the timeline, a write that culls its page need not read the page's whole index of renders. The sweep culls
//! all eligible values, also those without a timeline entry. So entries may be sampled, and even all entries may be
//! lost. Entries may also be wrong, since a write that culls checks each entry against the index.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    num::NonZeroU32,
    sync::{Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use moka::sync::Cache;
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{
    DomainName, Page, Result, Revision, Superseded, Tid,
    rows::{TypedRow, of_revision},
    schemas::{RENDER_TIMELINE, REVISION_TIMELINE},
    write::PageBatch,
};
use rashomon_tables::ClusteringRange;

use crate::{
    Policy, Retention,
    core::Core,
    rows::{RenderTimelineRow, RevisionTimelineRow},
};

/// A timeline outside the store.
#[async_trait]
pub trait Timeline: Debug + Send + Sync + 'static {
    /// Adds an entry: the value `what` was superseded at `at`. The entry expires at `until`.
    async fn add(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()>;

    /// The revision of the newest entry at or before `at`. The revision may have been superseded longer ago
    /// than the entry says. If the write that superseded the revision was rolled back, the revision was superseded
    /// later, or not at all.
    async fn revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>>;

    /// The render of the newest entry at or before `at`, among the renders of one revision.
    async fn render(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<Option<Tid>>;
}

/// A timeline in the memory of this process. It is lost when the process ends, and other processes cannot
/// read it.
#[derive(Debug)]
pub struct MemoryTimeline {
    clock: std::sync::Arc<dyn Clock>,
    pages: Cache<Page, std::sync::Arc<Mutex<PageTimeline>>>,
}

/// The entries of one page.
#[derive(Debug, Default)]
struct PageTimeline {
    /// Maps the time of superseding to the revision, and to the expiry of the entry.
    revisions: BTreeMap<Timestamp, (Revision, Timestamp)>,
    /// Maps the revision and the time of superseding to the tid, and to the expiry of the entry.
    renders: BTreeMap<(Revision, Timestamp), (Tid, Timestamp)>,
}

/// The maximum number of entries of each kind that a timeline in memory keeps of one page. If there are more, the
/// oldest entry is dropped; for renders, the oldest entry of the lowest revision.
const MAX_ENTRIES_PER_PAGE: usize = 256;

impl MemoryTimeline {
    /// An empty timeline that keeps the entries of at most `pages` pages.
    #[must_use]
    pub fn new(clock: std::sync::Arc<dyn Clock>, pages: u64) -> Self {
        Self { clock, pages: Cache::new(pages) }
    }

    /// Drops all entries.
    pub fn clear(&self) {
        self.pages.invalidate_all();
    }
}

#[async_trait]
impl Timeline for MemoryTimeline {
    async fn add(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()> {
        let entries = self.pages.get_with_by_ref(page, Default::default);
        let mut entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match what {
            Superseded::Revision(rev) => {
                entries.revisions.insert(at, (rev, until));
                if entries.revisions.len() > MAX_ENTRIES_PER_PAGE {
                    entries.revisions.pop_first();
                }
            }
            Superseded::Render(rev, tid) => {
                entries.renders.insert((rev, at), (tid, until));
                if entries.renders.len() > MAX_ENTRIES_PER_PAGE {
                    entries.renders.pop_first();
                }
            }
        }
        Ok(())
    }

    async fn revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>> {
        let Some(entries) = self.pages.get(page) else { return Ok(None) };
        let entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = self.clock.now();
        let newest = entries.revisions.range(..=at).next_back();
        Ok(newest.filter(|(_, (_, until))| *until > now).map(|(_, (rev, _))| *rev))
    }

    async fn render(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<Option<Tid>> {
        let Some(entries) = self.pages.get(page) else { return Ok(None) };
        let entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = self.clock.now();
        let newest = entries.renders.range((rev, Timestamp::MIN)..=(rev, at)).next_back();
        Ok(newest.filter(|(_, (_, until))| *until > now).map(|(_, (tid, _))| *tid))
    }
}

/// The maximum number of domains that sampling remembers.
const MAX_SAMPLED_DOMAINS: u64 = 10_000;

/// The maximum memory in bytes for the pages that sampling remembers. A page that sampling has forgotten may get an
/// entry too early.
const MAX_SAMPLED_BYTES: u64 = 32 << 20;

/// The approximate memory of a remembered page, in addition to its names.
const SAMPLED_OVERHEAD: usize = 200;

const SECOND: Duration = Duration::from_secs(1);

/// Decides which superseded values get a timeline entry: at most one per page and interval, and a limited
/// number per domain and second.
#[derive(Debug)]
pub struct Sampling {
    /// The minimum time between two entries of a page.
    interval: Duration,
    /// The maximum number of entries of a domain in a second.
    rate: NonZeroU32,
    /// The time of a page's newest entry, by the monotonic clock.
    pages: Cache<Page, Duration>,
    /// Per domain: the start of the current second, by the monotonic clock, and the number of entries since
    /// then.
    domains: Cache<DomainName, (Duration, u32)>,
}

impl Sampling {
    /// A sampling with the limits of the settings, and without any entries yet.
    #[must_use]
    pub fn new(retention: &Retention) -> Self {
        let weight =
            |page: &Page, _: &Duration| u32::try_from(page.memory() + SAMPLED_OVERHEAD).unwrap_or(u32::MAX);
        Self {
            interval: retention.sample,
            rate: retention.domain_rate,
            pages: Cache::builder().max_capacity(MAX_SAMPLED_BYTES).weigher(weight).build(),
            domains: Cache::new(MAX_SAMPLED_DOMAINS),
        }
    }

    /// Counts an entry of the page at this time of the monotonic clock, if the limits allow another entry. Returns
    /// whether the entry was counted.
    pub fn try_count_entry(&self, page: &Page, now: Duration) -> bool {
        let interval_has_passed =
            self.pages.get(page).is_none_or(|last| now.saturating_sub(last) >= self.interval);
        if !interval_has_passed {
            return false;
        }
        let (began, count) = match self.domains.get(&page.domain) {
            Some((began, count)) if now.saturating_sub(began) < SECOND => (began, count),
            _ => (now, 0),
        };
        if count >= self.rate.get() {
            return false;
        }
        self.domains.insert(page.domain.clone(), (began, count + 1));
        self.pages.insert(page.clone(), now);
        true
    }
}

/// Records in a batch the value that the batch supersedes, if the limits of [`Sampling`] allow an entry for the value.
/// If the timeline is in the tables, also adds the timeline entry to the batch. Otherwise [`add_timeline_entry`] adds
/// the entry after the commit.
///
/// Does nothing if the bucket has no policy, or if the strategy lets superseded values expire.
pub(crate) fn put_timeline_entry(
    core: &Core,
    batch: &mut PageBatch<'_>,
    superseded: Superseded,
    at: Timestamp,
) {
    let policy = core.settings.of(batch.page).filter(|policy| !policy.strategy.expires());
    let Some(policy) = policy else { return };
    if !core.sampling.try_count_entry(batch.page, core.records.clock.monotonic()) {
        return;
    }
    batch.timeline_entry = Some(superseded);
    if core.settings.timeline.is_none() {
        let (written_at, until) = (batch.at(), at.saturating_add(policy.index_ttl));
        match superseded {
            Superseded::Revision(rev) => {
                RevisionTimelineRow { ts: at, rev }.put_until(&mut batch.page_batch, written_at, until);
            }
            Superseded::Render(rev, tid) => {
                RenderTimelineRow { rev, ts: at, tid }.put_until(&mut batch.page_batch, written_at, until);
            }
        }
    }
}

/// Adds the entry of a superseded value to a timeline outside the tables, and counts the entry. If the
/// timeline is in the tables, the write has added the entry already. A failure only delays the cull, and the
/// entry is not counted.
pub(crate) async fn add_timeline_entry(core: &Core, page: &Page, policy: &Policy, what: Superseded) {
    if let Some(timeline) = &core.settings.timeline {
        let now = core.records.clock.now();
        if let Err(error) = timeline.add(page, now, what, now.saturating_add(policy.index_ttl)).await {
            tracing::warn!(
                domain = %page.domain, title = %page.title, %error,
                "cannot add an entry to the timeline; the sweeper culls the superseded value"
            );
            return;
        }
    }
    core.counters.timeline_entries.fetch_add(1, Relaxed);
}

/// The revision of the newest entry at or before `at`.
pub(crate) async fn superseded_revision(core: &Core, page: &Page, at: Timestamp) -> Result<Option<Revision>> {
    if let Some(timeline) = &core.settings.timeline {
        return timeline.revision(page, at).await;
    }
    let row = core.records.first(&REVISION_TIMELINE, page, ClusteringRange::all().at_most(at)).await?;
    Ok(row.as_ref().and_then(RevisionTimelineRow::read).map(|entry| entry.rev))
}

/// The render of the newest entry at or before `at`, among the renders of one revision.
pub(crate) async fn superseded_render(
    core: &Core,
    page: &Page,
    rev: Revision,
    at: Timestamp,
) -> Result<Option<Tid>> {
    if let Some(timeline) = &core.settings.timeline {
        return timeline.render(page, rev, at).await;
    }
    let range = of_revision(rev).at_most(at);
    let row = core.records.first(&RENDER_TIMELINE, page, range).await?;
    Ok(row.as_ref().and_then(RenderTimelineRow::read).map(|entry| entry.tid))
}
