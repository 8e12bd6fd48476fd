//! Sends the purges of one store to all caches.

use std::{sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_records::{PurgeEntry, Records};
use rashomon_tables::TableStore;
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};

use crate::purges::{
    CacheMethod, CacheSettings, PurgeSettings, PurgingStore, Transport,
    cache::{Cache, Health},
    reader::Reader,
    sender::{Committed, Sender, Waiting},
    targets::targets_of,
};

/// The maximum number of committed changes that wait until it is known which answers they make wrong.
const MAX_COMMITTED: usize = 10_000;

/// The maximum number of changes for which the wrong answers are looked up at the same time.
const MAX_RESOLVING: usize = 8;

/// The maximum number of changes that wait for one cache.
pub(crate) const MAX_WAITING: usize = 10_000;

/// The interval at which [`Purger::drain`] checks whether purges wait in memory.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Sends the purges of one store to all caches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Purger(pub(crate) Arc<PurgerState>);

/// The state that the clones of a [`Purger`] share.
#[derive(Debug)]
pub(crate) struct PurgerState {
    pub(crate) settings: PurgeSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) caches: Vec<Arc<Cache>>,
    committed: mpsc::Sender<Committed>,
    /// The receiver for `committed`. [`Purger::run`] takes it.
    receiver: Mutex<Option<mpsc::Receiver<Committed>>>,
}

impl Purger {
    /// A purger for these caches. It sends nothing before [`Self::run`].
    #[must_use]
    pub fn new(
        settings: PurgeSettings,
        caches: Vec<(CacheSettings, Arc<dyn Transport>)>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let caches = caches.into_iter().map(|(cache, transport)| Arc::new(Cache::new(cache, transport)));
        let (committed, receiver) = mpsc::channel(MAX_COMMITTED);
        Self(Arc::new(PurgerState {
            settings,
            clock,
            caches: caches.collect(),
            committed,
            receiver: Mutex::new(Some(receiver)),
        }))
    }

    /// Wraps a store, so that this purger sends the purges that are queued by calls of the wrapper.
    #[must_use]
    pub fn watch(&self, below: Arc<dyn TableStore>) -> PurgingStore {
        PurgingStore::new(below, self.clone())
    }

    /// Sends purges until the future is dropped: the purges of changes that [`PurgingStore`] commits from now on, and
    /// the purges in the queue that were not sent. `records` are the records of the store.
    pub async fn run(self, records: Arc<Records>) {
        let Some(receiver) = self.0.receiver.lock().await.take() else { return };
        let (mut tasks, mut to_caches) = (JoinSet::new(), Vec::new());
        for cache in &self.0.caches {
            let (to_cache, waiting) = mpsc::channel(MAX_WAITING);
            to_caches.push((Arc::clone(cache), to_cache));
            let again_after = self.0.settings.again_after;
            tasks.spawn(Sender::new(Arc::clone(cache), Arc::clone(&self.0.clock), again_after).run(waiting));
            tasks.spawn(Reader::new(Arc::clone(cache), Arc::clone(&self.0), Arc::clone(&records)).run());
        }
        tasks.spawn(resolve(Arc::clone(&self.0), records, receiver, to_caches));
        while tasks.join_next().await.is_some() {}
    }

    /// Waits until no purges wait in memory, except those of caches that are down or are catching up.
    pub async fn drain(&self) {
        let is_drained =
            |cache: &Arc<Cache>| *cache.health.borrow() != Health::Up || cache.tracker.waiting().0 == 0;
        while !self.0.caches.iter().all(is_drained) {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }

    /// Tracks purges before their change is committed.
    pub(crate) fn begin(&self, entries: &[PurgeEntry]) {
        for cache in &self.0.caches {
            entries.iter().for_each(|entry| cache.tracker.begin(entry.id));
        }
    }

    /// Sends purges when a call of the store has ended that committed, or may have committed, their change.
    pub(crate) fn send_committed(&self, entries: Vec<PurgeEntry>) {
        let at = self.0.clock.monotonic();
        for entry in entries {
            let id = entry.id;
            if self.0.committed.try_send(Committed { entry, at }).is_err() {
                self.0.caches.iter().for_each(|cache| cache.leave_to_reader(id));
            }
        }
    }

    /// Leaves purges to the readers of the queue, because it is not known whether and when their change is committed.
    pub(crate) fn abandon(&self, entries: &[PurgeEntry]) {
        for cache in &self.0.caches {
            entries.iter().for_each(|entry| cache.leave_to_reader(entry.id));
        }
    }
}

/// A cache, and the queue of its sender.
type ToCache = (Arc<Cache>, mpsc::Sender<Waiting>);

/// Finds out which answers have changed, and gives them to the senders of all caches that are not down. A cache that is
/// down gets its purges from its reader later. If all caches are down, nothing is read from the store.
async fn resolve(
    shared: Arc<PurgerState>,
    records: Arc<Records>,
    mut receiver: mpsc::Receiver<Committed>,
    to_caches: Vec<ToCache>,
) {
    let mut tasks = JoinSet::new();
    while let Some(committed) = receiver.recv().await {
        let (down, others): (Vec<_>, Vec<_>) = to_caches.iter().partition(|(cache, _)| cache.is_down());
        down.iter().for_each(|(cache, _)| cache.leave_to_reader(committed.entry.id));
        if others.is_empty() {
            continue;
        }
        while tasks.len() >= MAX_RESOLVING {
            tasks.join_next().await;
        }
        while tasks.try_join_next().is_some() {}
        let others = others.into_iter().cloned().collect();
        tasks.spawn(resolve_one(Arc::clone(&shared), Arc::clone(&records), committed, others));
    }
}

/// Finds out which answers a change makes wrong, and gives them to the senders of these caches.
async fn resolve_one(
    shared: Arc<PurgerState>,
    records: Arc<Records>,
    committed: Committed,
    to_caches: Vec<ToCache>,
) {
    let Committed { entry, at } = committed;
    let urls = to_caches.iter().any(|(cache, _)| cache.settings.method == CacheMethod::Purge);
    let targets = match targets_of(&records, &shared.settings.sites, &entry, urls).await {
        Ok(targets) => Arc::new(targets),
        Err(error) => {
            tracing::debug!(%error, "cannot find out which cached answers have changed; trying again later");
            return to_caches.iter().for_each(|(cache, _)| cache.leave_to_reader(entry.id));
        }
    };
    for (cache, to_cache) in &to_caches {
        let waiting = Waiting { id: entry.id, targets: Arc::clone(&targets), committed_at: at };
        if to_cache.try_send(waiting).is_err() {
            cache.leave_to_reader(entry.id);
        }
    }
}

/// The maximum age of an entry of the queue that may still be pending: an older entry's change is visible, or never
/// will be, and its purge is not waiting in memory. The exceptions are slow writes and waiting purges of this process,
/// which the tracker knows.
pub(crate) fn max_pending_time(records: &Records, again_after: Duration) -> Duration {
    // The clocks of other processes may differ.
    let skew = if records.is_alone() { Duration::ZERO } else { records.skew };
    records.max_queued_write_time() + again_after + skew
}

#[cfg(test)]
mod tests {
    use rashomon_clock::{ManualClock, Timestamp};
    use rashomon_records::{BucketName, Definitions, DomainName, PurgedChange, schemas};
    use rashomon_tables::{Batch, Memory};

    use super::*;
    use crate::purges::{
        Sites,
        request::{AcknowledgingCache, one_request_at_a_time},
        tracker::State,
    };

    #[tokio::test(start_paused = true)]
    async fn purge_is_tracked_until_the_cursor_has_passed_its_entry() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000)));
        let store = Arc::new(Memory::new(clock.clone()));
        for schema in schemas::all() {
            store.create(schema).await.unwrap();
        }
        let cache = one_request_at_a_time(CacheMethod::Keys);
        let settings = PurgeSettings { sites: Sites::default(), again_after: Duration::from_secs(2) };
        let purger = Purger::new(settings, vec![(cache, Arc::new(AcknowledgingCache))], clock.clone());
        let watched = Arc::new(purger.watch(store));
        let records = Records::new(watched, None, clock.clone(), Definitions::default(), Duration::ZERO, 7)
            .with_purges(true);
        let records = Arc::new(records);
        tokio::spawn(purger.clone().run(Arc::clone(&records)));
        let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
        let queued = records.purge(&domain, &bucket, || PurgedChange::Bucket).unwrap();
        let [entry] = &PurgeEntry::of_batches(std::slice::from_ref(&queued))[..] else {
            panic!("{queued:?}")
        };
        let then = Batch::new(queued.partition.clone());
        records.store.write(vec![queued], then).await.unwrap();
        let state = || purger.0.caches[0].tracker.state(entry.id);
        assert_eq!(state(), Some(State::Waiting));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(state(), Some(State::Done), "the clock has not moved, so the cursor has not");
        clock.advance(Duration::from_secs(60));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(state(), None);
    }
}
