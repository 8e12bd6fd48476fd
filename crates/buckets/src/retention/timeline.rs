//! When values were superseded: an index that need not be perfect.
//!
//! It spares a write that culls the way through the page's index. What it does not know is culled later, by the
//! sweep; so entries may be sampled, and all of them lost. Nor is an entry believed: a write that culls holds it against
//! the index, so entries may be wrong.

use std::{collections::BTreeMap, fmt::Debug, num::NonZeroU32, sync::Mutex, time::Duration};

use async_trait::async_trait;
use moka::sync::Cache;
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Batch, ClusteringRange};

use super::{
    Retention,
    rows::{RenderTimelineRow, RevisionTimelineRow},
};
use crate::{
    DomainName, Page, Result, Revision, Tid,
    revisioned::{PageWrite, Shared},
    rows::{TypedRow, rev_key},
    schemas::{RENDER_TIMELINE, REVISION_TIMELINE},
};

/// What was superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Superseded {
    /// A revision, by a higher one.
    Revision(Revision),
    /// A render, by a newer one of its revision.
    Render(Revision, Tid),
}

/// Where it is noted what was superseded when, beside the store.
#[async_trait]
pub trait Timeline: Debug + Send + Sync + 'static {
    /// Notes what was superseded at `at`, to be forgotten at `until`.
    async fn note(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()>;

    /// The revision of the newest entry at or before `at`. It may have been superseded longer ago than the
    /// entry says; later, or not at all, where the write of the entry was taken back.
    async fn revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>>;

    /// The same for the renders of one revision.
    async fn render(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<Option<Tid>>;
}

/// A timeline in this process: lost when it ends, and of no use to others.
#[derive(Debug)]
pub struct MemoryTimeline {
    clock: std::sync::Arc<dyn Clock>,
    pages: Cache<Page, std::sync::Arc<Mutex<PageTimeline>>>,
}

#[derive(Debug, Default)]
struct PageTimeline {
    revisions: BTreeMap<Timestamp, (Revision, Timestamp)>,
    renders: BTreeMap<(Revision, Timestamp), (Tid, Timestamp)>,
}

/// Entries of one page that a timeline in memory keeps of each kind; the oldest go first.
const ENTRIES: usize = 256;

impl MemoryTimeline {
    /// An empty timeline that keeps in mind so many pages.
    #[must_use]
    pub fn new(clock: std::sync::Arc<dyn Clock>, pages: u64) -> Self {
        Self { clock, pages: Cache::new(pages) }
    }

    /// Forgets all of it.
    pub fn clear(&self) {
        self.pages.invalidate_all();
    }
}

#[async_trait]
impl Timeline for MemoryTimeline {
    async fn note(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()> {
        let entries = self.pages.get_with_by_ref(page, Default::default);
        let mut entries = entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match what {
            Superseded::Revision(rev) => {
                entries.revisions.insert(at, (rev, until));
                if entries.revisions.len() > ENTRIES {
                    entries.revisions.pop_first();
                }
            }
            Superseded::Render(rev, tid) => {
                entries.renders.insert((rev, at), (tid, until));
                if entries.renders.len() > ENTRIES {
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

/// Pages and domains that sampling keeps in mind; of those that it forgets an entry more is noted.
const SAMPLED: u64 = 100_000;

const SECOND: Duration = Duration::from_secs(1);

/// Which of the entries are noted at all.
#[derive(Debug)]
pub struct Sampling {
    every: Duration,
    rate: NonZeroU32,
    /// When a page's newest entry was noted, by the clock that nobody sets.
    pages: Cache<Page, Duration>,
    /// The entries of a domain in the second that began then.
    domains: Cache<DomainName, (Duration, u32)>,
}

impl Sampling {
    /// By the settings, from an empty memory on.
    #[must_use]
    pub fn new(retention: &Retention) -> Self {
        Self {
            every: retention.sample,
            rate: retention.domain_rate,
            pages: Cache::new(SAMPLED),
            domains: Cache::new(SAMPLED),
        }
    }

    /// Whether an entry of the page is due at this time, by the clock that nobody sets. If so it counts.
    pub fn takes(&self, page: &Page, now: Duration) -> bool {
        let rested = self.pages.get(page).is_none_or(|last| now.saturating_sub(last) >= self.every);
        if !rested {
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

/// Adds the entry in the tables to a write.
pub(crate) fn put_entry(
    batch: &mut Batch,
    what: Superseded,
    at: Timestamp,
    written_at: Timestamp,
    until: Timestamp,
) {
    match what {
        Superseded::Revision(rev) => {
            RevisionTimelineRow { ts: at, rev }.put_until(batch, written_at, until);
        }
        Superseded::Render(rev, tid) => {
            RenderTimelineRow { rev, ts: at, tid }.put_until(batch, written_at, until);
        }
    }
}

impl Shared {
    /// Adds to a write what it supersedes, to be noted with it where the tables keep the timeline, else once it
    /// is done.
    pub(crate) fn note_superseded(&self, write: &mut PageWrite<'_>, what: Superseded, at: Timestamp) {
        let retention = &self.settings.retention;
        let policy = retention.of(write.page).filter(|policy| !policy.strategy.expires());
        let Some(policy) = policy else { return };
        if !self.sampling.takes(write.page, self.records.clock.monotonic()) {
            return;
        }
        write.superseded = Some(what);
        if retention.timeline.is_none() {
            let until = at.saturating_add(policy.index_ttl);
            let written_at = write.at();
            put_entry(&mut write.then, what, at, written_at, until);
        }
    }

    /// The revision of the newest entry at or before `at`.
    pub(crate) async fn superseded_revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>> {
        if let Some(timeline) = &self.settings.retention.timeline {
            return timeline.revision(page, at).await;
        }
        let row = self.records.first(&REVISION_TIMELINE, page, ClusteringRange::all().at_most(at)).await?;
        Ok(row.as_ref().and_then(RevisionTimelineRow::read).map(|entry| entry.rev))
    }

    /// The render of the newest entry of a revision at or before `at`.
    pub(crate) async fn superseded_render(
        &self,
        page: &Page,
        rev: Revision,
        at: Timestamp,
    ) -> Result<Option<Tid>> {
        if let Some(timeline) = &self.settings.retention.timeline {
            return timeline.render(page, rev, at).await;
        }
        let range = ClusteringRange::prefix(rev_key(rev)).at_most(at);
        let row = self.records.first(&RENDER_TIMELINE, page, range).await?;
        Ok(row.as_ref().and_then(RenderTimelineRow::read).map(|entry| entry.tid))
    }
}
