//! The background tasks of a server.

use std::{num::NonZeroUsize, ops::RangeInclusive, time::Duration};

use crate::{BucketName, CompactionOptions, DomainName, Error, RevisionStore, SealOptions};
use rashomon_entries::KeyValueStore;
use tokio::{task::JoinSet, time::Instant};

use crate::operations::supervised::{Panics, supervise};

/// The approximate maximum number of queue entries that one sweep processes.
const ENTRIES_PER_SWEEP: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The maximum number of queue entries that are processed per second (43 million per day), so that readers
/// and writers are not delayed.
const SWEEP_RATE: u32 = 500;

/// The interval at which the server looks whether the time that has passed is stored.
const SEEN_TIME_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between rescans.
const RESCAN_INTERVAL: Duration = Duration::from_secs(3600);

/// The pause after each page in a seal or a compaction, so that readers and writers are not delayed.
const SEAL_PAUSE: Duration = Duration::from_millis(5);

/// The maximum time after its start during which a server only observes which pages are read, and seals no
/// latest revision. If pages are idle after a shorter time, the server observes for that time.
const MAX_READ_OBSERVATION_TIME: Duration = Duration::from_secs(3 * 24 * 3600);

/// The minimum number of small parts of a page in blocks for a compaction. A compaction of fewer parts would
/// rewrite the same data many times.
const MIN_PARTS_TO_COMPACT: usize = 8;

/// The shortest and the longest pause between two sweeps while no queue entry is overdue. After a sweep that processed
/// many entries, the pause may be longer, so that the number of entries per second stays limited.
pub const SWEEP_PAUSE: RangeInclusive<Duration> = Duration::from_millis(25)..=Duration::from_secs(60);

/// The minimum age of an unreferenced chunk that is deleted. A younger chunk may belong to a body whose write
/// is not complete yet.
pub const MIN_ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The options of the background work.
#[derive(Debug, Clone)]
pub struct BackgroundOptions {
    /// The interval between garbage collections of unreferenced chunks and blocks, and of the content of
    /// deleted buckets. Zero turns garbage collection off.
    pub collect_every: Duration,
    /// The minimum age of an unreferenced chunk or block that is deleted: at least [`MIN_ORPHAN_AGE`], and
    /// longer than the longest possible upload.
    pub orphan_age: Duration,
    /// Whether the server refuses writes. If so, it leaves retention and the archive to other processes.
    pub read_only: bool,
    /// The pause between two seals of all buckets.
    pub seal_every: Duration,
    /// The maximum time for which an eligible revision waits until its page is sealed. A page with many
    /// eligible revisions does not wait.
    pub seal_within: Duration,
}

/// The background work of a server. A task that panics is restarted.
#[derive(Debug)]
pub struct Background {
    tasks: JoinSet<()>,
    panics: Panics,
}

impl Background {
    /// Starts the tasks. `panics` counts their panics; the tasks of several stores may share a count.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn start(
        buckets: &RevisionStore,
        key_value: &KeyValueStore,
        options: BackgroundOptions,
        panics: Panics,
    ) -> Self {
        let BackgroundOptions { collect_every, orphan_age, read_only, seal_every, seal_within } = options;
        let mut this = Self { tasks: JoinSet::new(), panics };
        this.spawn("collect", buckets, move |buckets| collect(buckets, collect_every, orphan_age));
        let both = (buckets.clone(), key_value.clone());
        this.spawn("collect_entries", &both, move |(buckets, key_value)| {
            collect_entries(buckets, key_value, collect_every, orphan_age)
        });
        if !read_only {
            this.spawn("seen_time", buckets, store_seen_time);
            this.spawn("rescan", &both, |(buckets, key_value)| rescan(buckets, key_value));
            this.spawn("sweep", buckets, sweep);
            this.spawn("seal", &both, move |(buckets, key_value)| {
                seal(buckets, key_value, seal_every, seal_within)
            });
        }
        this
    }

    fn spawn<T: Clone + Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
        &mut self,
        name: &'static str,
        store: &T,
        task: impl Fn(T) -> F + Send + Sync + 'static,
    ) {
        let store = store.clone();
        self.tasks.spawn(supervise(name, self.panics.clone(), move || task(store.clone())));
    }

    /// Stops the tasks. Interrupted work is continued after the next start.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Stores the time that this process has seen pass, at intervals.
async fn store_seen_time(buckets: RevisionStore) {
    loop {
        if let Err(error) = buckets.parts().records.store_seen_time(false).await {
            tracing::debug!(%error, "cannot store the time that has passed; continuing later");
        }
        tokio::time::sleep(SEEN_TIME_INTERVAL).await;
    }
}

/// Deletes unreferenced chunks and blocks at intervals.
async fn collect(buckets: RevisionStore, every: Duration, age: Duration) {
    if every.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(every).await;
        match buckets.maintenance().collect_orphans(age).await {
            Ok(0) => {}
            Ok(bodies) => tracing::info!(bodies, "deleted unreferenced chunks of large bodies"),
            Err(error) => {
                tracing::warn!(%error, "cannot delete unreferenced chunks and blocks; continuing later");
            }
        }
    }
}

/// Deletes unreferenced chunks of large entries, and the pages and entries of deleted buckets, at intervals.
async fn collect_entries(buckets: RevisionStore, key_value: KeyValueStore, every: Duration, age: Duration) {
    if every.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(every).await;
        match crate::operations::delete_pages(&buckets, &key_value, age).await {
            Ok(0) => {}
            Ok(pages) => tracing::info!(pages, "deleted pages of deleted buckets"),
            Err(error) => {
                tracing::warn!(%error, "cannot delete the pages of deleted buckets; continuing later");
            }
        }
        match key_value.collect(age).await {
            Ok(0) => {}
            Ok(deleted) => {
                tracing::info!(
                    deleted,
                    "deleted entries of deleted buckets, and unreferenced chunks of entries"
                );
            }
            Err(error) => tracing::warn!(
                %error,
                "cannot delete entries of deleted buckets, and unreferenced chunks of entries; continuing later"
            ),
        }
    }
}

/// At intervals, rescans those buckets of pages that need a rescan. A rescan is necessary after retention was turned on
/// or set to cull more, and after processes without retention have written.
async fn rescan(buckets: RevisionStore, key_value: KeyValueStore) {
    if !buckets.settings().retention.is_on() {
        return;
    }
    loop {
        if let Err(error) = rescan_once(&buckets, &key_value).await {
            tracing::warn!(%error, "cannot rescan stored revisions for retention; continuing later");
        }
        tokio::time::sleep(RESCAN_INTERVAL).await;
    }
}

/// Seals and compacts all buckets, at intervals.
async fn seal(buckets: RevisionStore, key_value: KeyValueStore, every: Duration, within: Duration) {
    let Some(archive) = &buckets.settings().archive else { return };
    let idle = archive.idle.unwrap_or_default();
    let started = Instant::now();
    loop {
        let spare_latest = started.elapsed() < idle.min(MAX_READ_OBSERVATION_TIME);
        let options = SealOptions { max_wait: Some(within), rest: SEAL_PAUSE, spare_latest };
        if let Err(error) = seal_once(&buckets, &key_value, options).await {
            tracing::warn!(%error, "cannot seal revisions; continuing later");
        }
        tokio::time::sleep(every).await;
    }
}

/// Seals and compacts all buckets of pages once. If a bucket fails, the others are still sealed.
async fn seal_once(
    buckets: &RevisionStore,
    key_value: &KeyValueStore,
    options: SealOptions,
) -> Result<(), Error> {
    for domain in buckets.catalog().domains().await? {
        for bucket in page_buckets(key_value, &domain).await {
            if let Err(error) = seal_bucket(buckets, &domain, &bucket, options).await {
                tracing::warn!(%domain, %bucket, %error, "cannot seal revisions; continuing later");
            }
            if let Err(error) = compact_bucket(buckets, &domain, &bucket, options.rest).await {
                tracing::warn!(%domain, %bucket, %error, "cannot compact the archive; continuing later");
            }
        }
    }
    Ok(())
}

/// Returns the buckets of pages of a domain. If the definitions of the buckets cannot be read, returns only
/// `page`.
async fn page_buckets(key_value: &KeyValueStore, domain: &DomainName) -> Vec<BucketName> {
    key_value.page_buckets(domain).await.unwrap_or_else(|error| {
        tracing::warn!(%domain, %error, "cannot read the buckets of a domain; working on the bucket page alone");
        vec![BucketName::page()]
    })
}

async fn seal_bucket(
    buckets: &RevisionStore,
    domain: &DomainName,
    bucket: &BucketName,
    options: SealOptions,
) -> Result<(), Error> {
    let sealed = buckets.maintenance().seal(domain, bucket, options, &mut |_| {}).await?;
    if sealed.blocks > 0 {
        let (revisions, blocks) = (sealed.revisions, sealed.blocks);
        tracing::info!(%domain, %bucket, revisions, blocks, "sealed revisions");
    }
    if sealed.kept > 0 {
        let (too_large, damaged) = (sealed.too_large, sealed.damaged());
        tracing::warn!(%domain, %bucket, too_large, damaged, "some revisions are too large or damaged; they are not sealed");
    }
    Ok(())
}

async fn compact_bucket(
    buckets: &RevisionStore,
    domain: &DomainName,
    bucket: &BucketName,
    rest: Duration,
) -> Result<(), Error> {
    let options = CompactionOptions { parts: MIN_PARTS_TO_COMPACT, rest };
    let compacted = buckets.maintenance().compact_archive(domain, bucket, options, &mut |_| {}).await?;
    if compacted.blocks > 0 {
        let (parts, blocks) = (compacted.parts, compacted.blocks);
        tracing::info!(%domain, %bucket, parts, blocks, "compacted the archive");
    }
    Ok(())
}

async fn rescan_once(buckets: &RevisionStore, key_value: &KeyValueStore) -> Result<(), Error> {
    for domain in buckets.catalog().domains().await? {
        for bucket in page_buckets(key_value, &domain).await {
            let mut pages = 0;
            loop {
                let rescan = buckets.maintenance().rescan(&domain, &bucket).await?;
                pages += rescan.pages;
                if rescan.finished {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if pages > 0 {
                tracing::info!(%domain, %bucket, pages, "rescanned stored revisions for retention");
            }
        }
    }
    Ok(())
}

/// Culls eligible values. Pauses between two sweeps for a quarter of the shortest slack, within [`SWEEP_PAUSE`]. If
/// queue entries are overdue, and not because of a clock jump, pauses only as long as [`SWEEP_RATE`] requires.
async fn sweep(buckets: RevisionStore) {
    let Some(slack) = buckets.settings().retention.least_slack() else { return };
    let pause = (slack / 4).clamp(*SWEEP_PAUSE.start(), *SWEEP_PAUSE.end());
    loop {
        let rest = match buckets.maintenance().sweep(ENTRIES_PER_SWEEP).await {
            Ok(sweep) => {
                if sweep.renders > 0 {
                    tracing::debug!(?sweep, "culled superseded values");
                }
                if sweep.lapsed {
                    tracing::warn!(
                        "retention queue entries expired before they were processed (no sweep for longer than `index_ttl`); rescanning all pages"
                    );
                }
                let worked = Duration::from_secs(sweep.entries) / SWEEP_RATE;
                let is_behind = !sweep.overdue.is_zero() && !sweep.paused;
                if is_behind { worked } else { pause.max(worked) }
            }
            Err(error) => {
                tracing::warn!(%error, "sweep failed; continuing later");
                pause.max(Duration::from_secs(1))
            }
        };
        tokio::time::sleep(rest).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use crate::{
        ArchiveSettings, NewProperty, NewRevision, Page, PropertyName, Revision, Settings, Title, schemas,
    };
    use async_trait::async_trait;
    use rashomon_clock::{Clock, ManualClock, Timestamp};
    use rashomon_entries::{BucketType, Definition, Settings as KeyValueSettings};
    use rashomon_tables::{
        Cursor, Decorator, Error as StoreError, Memory, Partition, Result, Row, Scan, Schema, TableStore,
    };

    use super::*;

    /// The time at which the tests begin: 2026-01-01T00:00:00Z.
    const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

    /// A store that cannot read the titles of the domain `dewiki`.
    #[derive(Debug)]
    struct Damaged(Memory);

    #[async_trait]
    impl Decorator for Damaged {
        type Store = Memory;

        fn below(&self) -> &Memory {
            &self.0
        }

        async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<rashomon_tables::Page<Row>> {
            if table.name() == schemas::TITLES.name() && scan.partition.first() == Some(&"dewiki".into()) {
                return Err(StoreError::Corrupt("a title".to_owned()));
            }
            TableStore::scan(&self.0, table, scan).await
        }
    }

    /// A store whose reads panic while `panics` is set.
    #[derive(Debug)]
    struct Panicking {
        store: Memory,
        panics: AtomicBool,
    }

    #[async_trait]
    impl Decorator for Panicking {
        type Store = Memory;

        fn below(&self) -> &Memory {
            &self.store
        }

        async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<rashomon_tables::Page<Row>> {
            assert!(!self.panics.load(Ordering::SeqCst), "a bug in a test");
            TableStore::scan(&self.store, table, scan).await
        }

        async fn partitions(
            &self,
            table: &'static Schema,
            after: Option<Cursor>,
            limit: NonZeroUsize,
        ) -> Result<rashomon_tables::Page<Partition>> {
            assert!(!self.panics.load(Ordering::SeqCst), "a bug in a test");
            TableStore::partitions(&self.store, table, after, limit).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_several_stores_share_a_count_of_panics() {
        let minute = Duration::from_secs(60);
        let (panics, mut tasks, mut counts) = (Panics::default(), Vec::new(), Vec::new());
        for _ in 0..2 {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START));
            let (memory, off) = (Memory::new(Arc::clone(&clock)), AtomicBool::new(false));
            let store = Arc::new(Panicking { store: memory, panics: off });
            let tables = Arc::clone(&store) as Arc<dyn TableStore>;
            let buckets = RevisionStore::open(tables, clock, Settings::default(), 1).await.unwrap();
            let key_value =
                KeyValueStore::new(Arc::clone(buckets.parts().records), KeyValueSettings::default());
            store.panics.store(true, Ordering::SeqCst);
            let options = BackgroundOptions {
                collect_every: minute,
                orphan_age: MIN_ORPHAN_AGE,
                read_only: true,
                seal_every: minute,
                seal_within: minute,
            };
            tasks.push(Background::start(&buckets, &key_value, options, panics.clone()));
            // The tasks of the first store do not panic again before the end of the test.
            tokio::time::sleep(minute + Duration::from_secs(1)).await;
            counts.push(panics.count());
        }
        assert!(counts[0] > 0 && counts[1] == 2 * counts[0], "{counts:?}");
    }

    #[tokio::test]
    async fn failure_of_a_domain_does_not_stop_sealing_of_other_buckets() {
        let clock = Arc::new(ManualClock::new(START));
        let store = Arc::new(Damaged(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
        let settings = Settings { archive: Some(ArchiveSettings::default()), ..Settings::default() };
        let buckets =
            RevisionStore::open(store, Arc::clone(&clock) as Arc<dyn Clock>, settings, 1).await.unwrap();
        let key_value = KeyValueStore::new(Arc::clone(buckets.parts().records), KeyValueSettings::default());
        let enwiki = DomainName::new("enwiki").unwrap();
        let (docs, definition) = (BucketName::new("docs").unwrap(), Definition::of(BucketType::Revisioned));
        let docs = key_value.create_bucket(&enwiki, &docs, definition).await.unwrap().bucket.pages().unwrap();
        for (domain, bucket) in
            [("dewiki", BucketName::page()), ("enwiki", BucketName::page()), ("enwiki", docs)]
        {
            let (domain, title) = (DomainName::new(domain).unwrap(), Title::new("Main_Page").unwrap());
            let page = Page { domain, bucket, title };
            let name = PropertyName::new("wikitext").unwrap();
            for number in 1..=3 {
                let body = buckets.stage_bytes(&page, &name, b"text").await.unwrap();
                let (name, other_headers) = (name.clone(), BTreeMap::new());
                let text = NewProperty { name, content_type: None, other_headers, body };
                let new = NewRevision::new(Revision::new(number).unwrap(), vec![text]);
                buckets.put_revision(&page, new).await.unwrap();
            }
        }
        clock.advance(Duration::from_secs(365 * 24 * 3600));
        seal_once(&buckets, &key_value, SealOptions::default()).await.unwrap();
        let stats = crate::operations::stats(&buckets, &enwiki, &mut |_| {}).await.unwrap();
        for (bucket, stats) in stats.into_page_buckets() {
            assert_eq!(stats.archive.map(|archive| archive.revisions), Some(2), "{bucket}");
        }
    }
}
