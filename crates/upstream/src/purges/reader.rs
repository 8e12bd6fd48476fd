//! Reads the purge queue of the store for one cache, and sends the purges that were not sent from memory: purges that a
//! crash or another process has left in the queue, and purges that this process has left to the reader. Examples are
//! purges that were queued while the cache was down, and purges for which memory had no room.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_clock::Timestamp;
use rashomon_records::{Error, Records, TID_LIFE};
use tokio::time::Instant;

use crate::purges::{
    CacheMethod, PurgeRequest,
    cache::{Cache, Health},
    purger::{PurgerState, max_pending_time},
    queue::{Cursors, Entries, QueuedEntry, load_cursors, store_cursors},
    targets::targets_of,
};

/// The time between two passes over the queue.
const PASS_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which cursors are stored if they have passed no entry.
const STORE_INTERVAL: Duration = Duration::from_secs(600);

/// The pause after the first failure. Each further pause is twice as long as the previous pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to reach a cache that is down.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The reason why a pass over the queue has ended early.
enum PassError {
    Store(Error),
    Cache(String),
}

impl From<Error> for PassError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// The entries that a pass over the queue sends. No pass sends entries that wait in memory or were sent from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// All entries after the cursor. The change of a recent entry may not be committed yet, so a later pass sends this
    /// entry again.
    All,
    /// The entries that are older than [`max_pending_time`]: their change is committed, or never will be.
    Remaining,
}

/// Reads the queue for one cache.
#[derive(Debug)]
pub(crate) struct Reader {
    cache: Arc<Cache>,
    shared: Arc<PurgerState>,
    records: Arc<Records>,
    cursors: Option<Cursors>,
    /// Whether a cursor has passed an entry since the cursors were stored.
    has_passed: bool,
    stored_at: Instant,
    /// Whether the last read of the queue failed. Only the first of several failures is logged.
    has_failed: bool,
}

impl Reader {
    pub(crate) fn new(cache: Arc<Cache>, shared: Arc<PurgerState>, records: Arc<Records>) -> Self {
        Self {
            cache,
            shared,
            records,
            cursors: None,
            has_passed: false,
            stored_at: Instant::now(),
            has_failed: false,
        }
    }

    /// Sends the purges in the queue in an endless loop. Never returns.
    pub(crate) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            self.cache.health.send_replace(Health::CatchingUp);
            match self.catch_up().await {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    self.cache.recover();
                    self.send_at_intervals().await;
                }
                Err(error) => self.report(error),
            }
            let chance = (self.records.distinction() % 1000) as u32;
            tokio::time::sleep(pause / 2 + pause / 2 * chance / 1000).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    fn report(&mut self, error: PassError) {
        match error {
            PassError::Cache(error) => self.cache.fail(&error),
            PassError::Store(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(cache = self.cache.settings.name, %error, "cannot read the purge queue; trying again");
            }
            PassError::Store(_) => {}
        }
    }

    /// Sends the remaining purges in the queue at intervals, until the cache is down.
    async fn send_at_intervals(&mut self) {
        let mut health = self.cache.health.subscribe();
        loop {
            let is_down = health.wait_for(|health| *health == Health::Down);
            if tokio::time::timeout(PASS_INTERVAL, is_down).await.is_ok() {
                return;
            }
            match self.pass(Pass::Remaining).await {
                Ok(()) => self.has_failed = false,
                // After a failed request, the cache is down, which ends the loop.
                Err(error) => self.report(error),
            }
        }
    }

    /// Sends everything that the cache has missed.
    async fn catch_up(&mut self) -> Result<(), PassError> {
        let now = self.shared.clock.now();
        let name = self.cache.settings.name.as_str();
        if self.cursors.is_none() {
            self.cursors = load_cursors(&self.records, name).await?;
        }
        let oldest = self.cursors.as_ref().and_then(|cursors| cursors.iter().min().copied());
        if oldest.is_none_or(|oldest| now.since(oldest) > TID_LIFE) {
            // The queue may lack purges that this cache has missed: entries have expired, or the cache is new.
            let certain_until = now.saturating_sub(self.max_pending_time());
            // The changes of purges that wait in memory may be committed after the ban.
            let waiting = self.cache.tracker.first_waiting(certain_until);
            self.ban_all().await?;
            self.cursors = Some(waiting.map(|first| first.map_or(certain_until, before)));
            self.has_passed = true;
        }
        self.pass(Pass::All).await
    }

    fn max_pending_time(&self) -> Duration {
        max_pending_time(&self.records, self.shared.settings.again_after)
    }

    /// Deletes all answers from the cache.
    async fn ban_all(&self) -> Result<(), PassError> {
        let host = self.cache.settings.hosts.first().cloned().unwrap_or_default();
        let ban = PurgeRequest::Prefix { host, prefix: "/".to_owned() };
        self.cache.send(&[ban]).await.map_err(PassError::Cache)?;
        self.cache.counters.bans.fetch_add(1, Ordering::Relaxed);
        let cache = self.cache.settings.name.as_str();
        tracing::info!(
            cache,
            "deleted all answers: the cache is new or missed purges, or a purge is damaged"
        );
        Ok(())
    }

    /// Sends entries of the queue, and moves the cursors.
    async fn pass(&mut self, pass: Pass) -> Result<(), PassError> {
        let name = self.cache.settings.name.clone();
        let Some(mut cursors) = self.cursors else { return Ok(()) };
        // Another process may have sent entries, and advanced the cursors.
        if !self.records.is_alone()
            && let Some(stored) = load_cursors(&self.records, &name).await?
        {
            for (cursor, stored) in cursors.iter_mut().zip(stored) {
                *cursor = stored.max(*cursor);
            }
        }
        let now = self.shared.clock.now();
        let certain_until = now.saturating_sub(self.max_pending_time());
        let until = if pass == Pass::All { now } else { certain_until };
        // This is read before the queue. The entry of a slow write may not be in the queue yet.
        let waiting = self.cache.tracker.first_waiting(certain_until);
        let mut result = Ok(());
        for (shard, (cursor, waiting)) in (0..).zip(cursors.iter_mut().zip(waiting)) {
            let limit = waiting.map_or(certain_until, before);
            result = self.pass_shard(shard, cursor, limit, until).await;
            if result.is_err() {
                break;
            }
        }
        self.cursors = Some(cursors);
        let oldest = cursors.iter().min().copied().unwrap_or(Timestamp::MIN);
        self.cache.counters.done_until.store(oldest.as_micros(), Ordering::Relaxed);
        if self.has_passed || self.stored_at.elapsed() > STORE_INTERVAL {
            store_cursors(&self.records, &name, &cursors).await?;
            (self.has_passed, self.stored_at) = (false, Instant::now());
        }
        self.cache.tracker.forget(|id| {
            let shard = usize::try_from(id.shard()).unwrap_or_default();
            cursors.get(shard).is_some_and(|cursor| id.queued_at <= *cursor)
        });
        result
    }

    /// Sends entries of one shard until `until`, and advances its cursor, but not beyond `limit`.
    async fn pass_shard(
        &mut self,
        shard: i64,
        cursor: &mut Timestamp,
        limit: Timestamp,
        until: Timestamp,
    ) -> Result<(), PassError> {
        if until <= *cursor {
            return Ok(());
        }
        let mut entries = Entries::of_shard(&self.records, shard, *cursor, until).await?;
        while let Some(mut page) = entries.next(&self.records).await? {
            let last = page.last().map(|found| before(found.id().queued_at));
            page.retain(|found| !self.cache.tracker.has(found.id()));
            self.send(page).await?;
            let done = limit.min(last.unwrap_or(limit));
            if done > *cursor {
                (*cursor, self.has_passed) = (done, true);
            }
        }
        *cursor = limit.max(*cursor);
        Ok(())
    }

    /// Sends entries, several of them concurrently.
    async fn send(&self, entries: Vec<QueuedEntry>) -> Result<(), PassError> {
        let urls = self.cache.settings.method == CacheMethod::Purge;
        let sent = stream::iter(entries).map(|found| async move {
            let QueuedEntry::Entry(entry) = found else {
                // Which answers the damaged entry names is not known.
                return self.ban_all().await;
            };
            let targets = targets_of(&self.records, &self.shared.settings.sites, &entry, urls).await?;
            let requests = targets.requests(&self.cache.settings);
            self.cache.send(&requests).await.map_err(PassError::Cache)
        });
        sent.buffer_unordered(self.cache.settings.max_requests.get()).try_collect().await
    }
}

/// The last time before this time of an entry. Other entries may have the same time.
fn before(queued_at: Timestamp) -> Timestamp {
    queued_at.saturating_sub(Duration::from_micros(1))
}
