//! Buckets of revisions.
//!
//! Reading and writing are a file each; what they decide, they decide in functions without I/O.

mod archiving;
mod collect;
mod erase;
mod given;
mod head;
mod history;
mod import;
mod joint_reads;
mod latest;
mod listing;
mod mementos;
mod page_write;
mod read;
mod repair;
mod reservation;
mod rewrite;
mod stats;
mod verify;
mod write;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use moka::sync::Cache;
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::Records;
use rashomon_tables::TableStore;
use tokio::sync::{OnceCell, Semaphore};

pub use self::{
    erase::{Erased, Erasing, ErasureState, SameBytes},
    latest::CacheStats,
    listing::{MAX_COUNTED_RENDERS, RendersBeside},
    mementos::MementoPosition,
    repair::RepairReport,
    stats::{DomainStats, PropertyStats},
    write::MAX_BODIES,
};
pub(crate) use self::{
    given::body_of,
    page_write::{PageBody, PageWrite, WriteKind},
    write::whole,
};
use self::{latest::LatestCache, reservation::Vigil};
use crate::{
    BucketName, Catalog, Definitions, DomainName, Error, FoundDamage, Page, PropertyName, PropertySink,
    RenderBase, Result, Retention, RetentionStats, Revision, Staged,
    archive::{self, Archive, ArchiveSettings, Overlay},
    retention::{CULLS, Copies, Counters, Drift, Generations, Sampling},
    schemas::{self},
};

/// The settings of the revisioned buckets.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What is known of properties beforehand.
    pub definitions: Definitions,
    /// The bytes of newest properties that are kept in memory, where the store allows it.
    pub cache_bytes: u64,
    /// How far in the future the time given for a write may lie.
    pub skew: Duration,
    /// What is kept, and for how long.
    pub retention: Retention,
    /// What is sealed in blocks; `None`: nothing more. What was sealed is read all the same.
    pub archive: Option<ArchiveSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            definitions: Definitions::default(),
            cache_bytes: 256 << 20,
            skew: Duration::from_secs(300),
            retention: Retention::default(),
            archive: None,
        }
    }
}

/// All revisioned buckets of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Revisioned(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) records: Arc<Records>,
    pub(crate) settings: Settings,
    vigil: Vigil,
    latest: LatestCache,
    pub(crate) sampling: Sampling,
    pub(crate) drift: Drift,
    /// Whether it has learned what others wrote down.
    pub(crate) clock_is_known: OnceCell<()>,
    pub(crate) copies: Copies,
    pub(crate) generations: Generations,
    /// Whether some bucket has, or had, one row a property for the latest; looked up when it is asked first.
    pub(crate) one_rows: OnceCell<bool>,
    /// The buckets in which something was written that nobody noted as due.
    pub(crate) unnoted: Cache<(DomainName, BucketName), ()>,
    /// Held by the task of this process that continues a rescan, or restarts all of them.
    pub(crate) walks: tokio::sync::Mutex<()>,
    /// One for each cull that a write has begun.
    pub(crate) culls: Arc<Semaphore>,
    pub(crate) retained: Counters,
    /// Where there is an archive.
    pub(crate) archive: Option<Arc<Archive>>,
}

const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// Buckets that are remembered to have writes that nobody noted as due.
const UNNOTED: u64 = 10_000;

/// How often a read that saw an index row and not yet its body looks again.
const LOOKS: usize = 4;

impl Revisioned {
    /// Opens the buckets of a store, and makes the tables that are missing. `seed` is random: of two processes
    /// each has its own.
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
        let blocks = archive::blocks_of(&store, settings.archive.as_ref()).await?;
        let alone = settings.retention.is_on() && settings.archive.is_none();
        if alone && blocks.is_some() && archive::is_there(&store).await? {
            let what = "the store has an archive, of which retention alone would say that it has gone: put [archive] \
                        beside [retention], so that what is superseded is sealed and not deleted, or leave out [retention]";
            return Err(Error::Invalid(what.to_owned()));
        }
        let one_row = settings.retention.policies().any(|policy| policy.strategy.is_one_row());
        let union =
            blocks.as_ref().map(|blocks| Arc::new(Overlay::new(Arc::clone(blocks))) as Arc<dyn TableStore>);
        let (definitions, skew) = (settings.definitions.clone(), settings.skew);
        let records = Arc::new(Records::new(store, union, Arc::clone(&clock), definitions, skew, seed));
        Ok(Self(Arc::new(Shared {
            vigil: Vigil::new(seed),
            latest: LatestCache::new(settings.cache_bytes),
            sampling: Sampling::new(&settings.retention),
            drift: Drift::new(&clock),
            clock_is_known: OnceCell::new(),
            copies: Copies::new(),
            generations: Generations::new(),
            one_rows: OnceCell::new_with(one_row.then_some(true)),
            unnoted: Cache::new(UNNOTED),
            walks: tokio::sync::Mutex::default(),
            culls: Arc::new(Semaphore::new(CULLS)),
            retained: Counters::default(),
            archive: blocks.map(|blocks| {
                let (records, settings) = (Arc::clone(&records), settings.archive.clone());
                Arc::new(Archive::new(records, blocks, settings))
            }),
            records,
            settings,
        })))
    }

    /// The settings that it was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The latest time that may be given for a write: now, and as much later as clocks may differ.
    #[must_use]
    pub fn latest_time(&self) -> Timestamp {
        self.0.records.latest_time()
    }

    /// What there is: domains and pages.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.0.records.catalog
    }

    /// Damaged rows that were passed over since this was last called: what was asked for lacks them.
    #[must_use]
    pub fn found_damage(&self) -> Vec<FoundDamage> {
        self.0.records.catalog.damage.take()
    }

    /// Whether the store answers, and takes writes as far as it knows.
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

    /// Receives a body that is in memory already.
    #[boxed]
    pub async fn stage_bytes(&self, page: &Page, name: &PropertyName, body: &[u8]) -> Result<Staged> {
        self.0.records.stage_bytes(page, name, body).await
    }

    /// Writes a body that was staged in memory to chunks, where it takes no memory until the write that names it. A body
    /// that is in chunks already is given back as it is.
    #[boxed]
    pub async fn spill(&self, page: &Page, body: Staged) -> Result<Staged> {
        let stored = self.0.records.chunks.spill(page, &body.stored, body.size).await?;
        Ok(Staged { stored, ..body })
    }

    /// Whether the content of a revision was erased: nothing of it is taken, and nothing of it should be staged.
    #[boxed]
    pub async fn is_erased(&self, page: &Page, rev: Revision) -> Result<bool> {
        self.0.records.is_erased(page, rev).await
    }

    /// `Erased` where the content of the revision of a new render was erased: nothing of it should be staged. Revisions
    /// that are missing, or arrive meanwhile, are checked by the write.
    #[boxed]
    pub async fn check_takes_renders(&self, page: &Page, base: RenderBase) -> Result<()> {
        let rev = match base {
            RenderBase::Revision(rev) => rev,
            RenderBase::Render(tid) => match self.0.revision_of(page, tid).await {
                Err(Error::NotFound(_)) => return Ok(()),
                rev => rev?,
            },
        };
        match self.0.records.revision(page, rev).await? {
            Some(revision) => revision.record.check_not_erased(),
            None => Ok(()),
        }
    }

    /// What retention has done in this process.
    #[must_use]
    pub fn retention_stats(&self) -> RetentionStats {
        self.0.retained.read()
    }
}
