//! Buckets of revisions: reads, writes and maintenance.
//!
//! Each kind of read, write or maintenance has a file of its own.

mod archiving;
mod coalesced_reads;
mod collect;
mod generated;
mod history;
mod import;
mod latest;
mod listing;
mod mementos;
mod parts;
mod read;
mod reading_ahead;
mod replacing;
mod rewrite;
mod write;
mod write_request;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::admission::Limits;
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{Records, content::Lifetime, write::WritePipeline};
use rashomon_retention::RetentionEngine;
use rashomon_tables::{ReadAhead, TableStore};

use self::{collect::ChunkCollector, generated::RendersInFlight, import::Importer, latest::LatestCache};
pub use self::{
    latest::CacheStats,
    listing::{MAX_COUNTED_RENDERS, RendersBeside},
    mementos::{MementoPosition, MementosAround},
    parts::StoreParts,
    replacing::TableValue,
};
use crate::{
    BucketName, Catalog, Definitions, DomainName, DryRun, Error, FoundDamage, Page, PropertyName,
    PropertySink, RenderBase, Rescan, Result, Retention, RetentionStats, Revision, Staged, Sweep,
    archive::{self, Archive, ArchiveSettings, UnionStore},
    schemas,
};

/// The settings of the buckets of revisions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The definitions of properties.
    pub definitions: Definitions,
    /// The maximum size of the cache of latest properties, in bytes of memory. If the store has no partition
    /// versions, nothing is cached.
    pub cache_bytes: u64,
    /// The allowed difference between two clocks. The timestamp of a write request may be in the future by at
    /// most this time.
    pub skew: Duration,
    /// The policies of retention: which superseded values are kept, and for how long.
    pub retention: Retention,
    /// The settings of seals. `None` if no further revisions are sealed. Existing blocks are then still read,
    /// but a store with sealed revisions cannot be opened with retention.
    pub archive: Option<ArchiveSettings>,
    /// The limits of reads that unpack blocks of the archive.
    pub unpacks: Limits,
    /// Whether changes queue purges of HTTP caches.
    pub queues_purges: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            definitions: Definitions::default(),
            cache_bytes: 256 << 20,
            skew: Duration::from_secs(300),
            retention: Retention::default(),
            archive: None,
            unpacks: archive::unpack_limits(None),
            queues_purges: false,
        }
    }
}

/// All buckets of revisions in a store. Cloning a `RevisionStore` is cheap.
#[derive(Debug, Clone)]
pub struct RevisionStore(pub(crate) Arc<StoreInner>);

/// The operations that keep a store in order: retention, the archive and garbage collection. Cloning a
/// `Maintenance` is cheap.
#[derive(Debug, Clone)]
pub struct Maintenance(Arc<StoreInner>);

/// The state that [`RevisionStore`] and [`Maintenance`] share.
#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) records: Arc<Records>,
    pub(crate) settings: Settings,
    writes: WritePipeline,
    pub(crate) retention: RetentionEngine,
    latest: LatestCache,
    renders_in_flight: RendersInFlight,
    /// The archive. `None` if it is not configured and the store has no blocks.
    pub(crate) archive: Option<Arc<Archive>>,
    /// The store below all others.
    ahead: Arc<ReadAhead>,
}

impl StoreInner {
    fn importer(&self) -> Importer<'_> {
        Importer { records: &self.records, writes: &self.writes }
    }

    fn chunk_collector(&self) -> ChunkCollector<'_> {
        ChunkCollector { records: &self.records }
    }
}

/// The limit of a scan that needs a single row.
const SINGLE_ROW: NonZeroUsize = NonZeroUsize::MIN;

/// The maximum number of attempts of a read. An attempt fails if it finds an index row, but not the row that
/// the index row names.
const MAX_READ_ATTEMPTS: usize = 4;

impl RevisionStore {
    /// Opens the buckets of a store, and creates the tables that are missing. `seed` is random, and differs
    /// between processes. Fails with `ArchiveNotConfigured` if the settings have retention and no archive, and
    /// revisions are sealed.
    #[boxed]
    pub async fn open(
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        seed: u64,
    ) -> Result<Self> {
        for schema in schemas::all() {
            store.create(schema).await?;
        }
        let ahead = Arc::new(ReadAhead::new(store, Arc::clone(&clock)));
        let store: Arc<dyn TableStore> = Arc::clone(&ahead) as _;
        let blocks = archive::blocks_of(&store, settings.archive.as_ref(), settings.unpacks).await?;
        let has_only_retention = settings.retention.is_on() && settings.archive.is_none();
        if has_only_retention && blocks.is_some() && archive::has_sealed_revisions(&store).await? {
            return Err(Error::ArchiveNotConfigured);
        }
        let union = blocks
            .as_ref()
            .map(|blocks| Arc::new(UnionStore::new(Arc::clone(blocks))) as Arc<dyn TableStore>);
        let (definitions, skew) = (settings.definitions.clone(), settings.skew);
        let records = Records::new(store, union, clock, definitions, skew, seed);
        let records = Arc::new(records.with_purges(settings.queues_purges));
        if let Err(error) = records.adopt_seen_time().await {
            tracing::warn!(%error, "cannot read which time has passed; things older than this process stay");
        }
        let retention = RetentionEngine::new(Arc::clone(&records), settings.retention.clone());
        Ok(Self(Arc::new(StoreInner {
            writes: WritePipeline::new(Arc::clone(&records), Arc::new(retention.clone()), seed),
            retention,
            latest: LatestCache::new(settings.cache_bytes),
            renders_in_flight: RendersInFlight::new(),
            archive: blocks.map(|blocks| {
                let (records, settings) = (Arc::clone(&records), settings.archive.clone());
                Arc::new(Archive::new(records, blocks, settings))
            }),
            records,
            settings,
            ahead,
        })))
    }

    /// Returns the settings with which the buckets were opened.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns the latest timestamp that a write request may have: now plus the `skew` of the settings.
    #[must_use]
    pub fn latest_time(&self) -> Timestamp {
        self.0.records.latest_time()
    }

    /// Returns the catalog of domains and pages.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.0.records.catalog
    }

    /// Returns the damaged rows that reads skipped since the last call. Each row is returned once.
    #[must_use]
    pub fn found_damage(&self) -> Vec<FoundDamage> {
        self.0.records.catalog.damage.take()
    }

    /// Checks that the store answers a read, and that it reports no outage of writes.
    pub async fn ping(&self) -> Result<()> {
        if let Some(outage) = self.0.records.store.outage() {
            return Err(rashomon_tables::Error::Unavailable(outage).into());
        }
        self.0.records.catalog.domain_list(None, 1).await.map(drop)
    }

    /// Starts receiving the body of a property.
    #[must_use]
    pub fn stage(&self, page: &Page, name: &PropertyName) -> PropertySink {
        self.0.records.stage(page, name)
    }

    /// Stages a body that is in memory already.
    #[boxed]
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &[u8]) -> Result<Staged> {
        self.0.records.stage_bytes(page, name, body).await
    }

    /// Moves a staged body from memory to chunks. The body then takes no memory until a write references it.
    /// A body that is in chunks already is returned unchanged.
    #[boxed]
    pub async fn spill(&self, page: &Page, body: Staged) -> Result<Staged> {
        let stored = self.0.records.chunks.spill(Lifetime::Referenced(page), &body.stored, body.size).await?;
        Ok(Staged { stored, ..body })
    }

    /// Whether the content of a revision was erased. Writes of an erased revision are refused, so the caller
    /// should not stage bodies for it.
    #[boxed]
    pub async fn is_erased(&self, page: &Page, rev: Revision) -> Result<bool> {
        self.0.records.is_erased(page, rev).await
    }

    /// Returns the error `Erased` if the content of the revision of a new render was erased. After this error
    /// the caller should not stage the properties of the render. A missing revision is no error here; the
    /// write checks again.
    #[boxed]
    pub async fn check_takes_renders(&self, page: &Page, base: RenderBase) -> Result<()> {
        let rev = match base {
            RenderBase::Revision(rev) => rev,
            RenderBase::Render(tid) => match self.0.records.revision_of(page, tid).await {
                Err(Error::NotFound(_)) => return Ok(()),
                rev => rev?,
            },
        };
        match self.0.records.revision(page, rev).await? {
            Some(revision) => revision.record.check_not_erased(),
            None => Ok(()),
        }
    }

    /// Returns the operations that keep the store in order.
    #[must_use]
    pub fn maintenance(&self) -> Maintenance {
        Maintenance(Arc::clone(&self.0))
    }
}

impl Maintenance {
    /// Returns the statistics of retention in this process.
    #[must_use]
    pub fn retention_stats(&self) -> RetentionStats {
        self.0.retention.stats()
    }

    /// Culls values that were superseded long enough ago. See [`RetentionEngine::sweep`].
    pub async fn sweep(&self, limit: NonZeroUsize) -> Result<Sweep> {
        self.0.retention.sweep(limit).await
    }

    /// Continues the rescan of a bucket. See [`RetentionEngine::rescan`].
    pub async fn rescan(&self, domain: &DomainName, bucket: &BucketName) -> Result<Rescan> {
        self.0.retention.rescan(domain, bucket).await
    }

    /// Counts the values of a bucket that the configured retention would delete. See
    /// [`RetentionEngine::dry_run`].
    pub async fn dry_run(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<DryRun> {
        self.0.retention.dry_run(domain, bucket, progress).await
    }

    /// Waits for the end of the background culls that writes have started.
    pub async fn drain_background_culls(&self) {
        self.0.retention.drain_background_culls().await;
    }
}
