//! Reads of the newest render of the latest revision, and the cache for them. Most requests are such reads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_recursion::async_recursion as boxed;
use rashomon_records::first_of;
use rashomon_retention::BodyId;
use rashomon_tables::{ClusteringRange, Row, VersionedCache};

use super::{MAX_READ_ATTEMPTS, RevisionStore, StoreInner, coalesced_reads::CoalescedReads};
use crate::{
    Body, Error, Missing, Page, Property, PropertyName, PropertyVersion, Render, Result, Revision, Tid,
    Versions,
    content::BodyRow,
    rows::{BodyKey, RenderKey, RenderRow, RevisionRow, RowKey, of_revision, partition_of},
    schemas::{RENDERS, REVISIONS},
};

/// The approximate memory of a cache entry without its names, the bytes of its body, and the stored headers.
const ENTRY_OVERHEAD: usize = 1024;

/// The cache of latest properties. An entry is used until the version of the page's partition changes, which
/// is at the end of the next commit to the page. In a store without partition versions, the cache stays empty.
#[derive(Debug)]
pub(super) struct LatestCache {
    entries: VersionedCache<u128, Arc<Entry>>,
    /// Coalesces the reads that the cache does not answer.
    reads: CoalescedReads<(Page, PropertyName), Arc<Property>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Statistics of the cache of latest properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// The number of reads of the latest property that were answered from memory.
    pub hits: u64,
    /// The number of reads of the latest property that read the store, or waited for another read of the store.
    pub misses: u64,
    /// The number of properties in memory.
    pub entries: u64,
    /// The approximate number of bytes of these properties.
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    page: Page,
    name: PropertyName,
    property: Arc<Property>,
}

impl Entry {
    /// The approximate memory of the entry in the cache.
    fn bytes(&self) -> usize {
        let body = match &self.property.body {
            Body::Inline(body) => body.memory(),
            Body::Chunked(_) => 0,
        };
        let names = self.page.memory() + self.name.as_str().len();
        body + names + self.property.info.headers.memory() + ENTRY_OVERHEAD
    }
}

impl LatestCache {
    pub(super) fn new(bytes: u64) -> Self {
        let entries = VersionedCache::new(bytes);
        Self { entries, reads: CoalescedReads::new(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }
}

fn cache_key(page: &Page, name: &PropertyName) -> u128 {
    let mut hash = page.hash();
    hash.update(name.as_str().as_bytes());
    hash.update(&[0xff]);
    hash.digest128()
}

impl RevisionStore {
    /// Returns a property of the newest render of the latest revision.
    ///
    /// Answers from the cache if possible: the same `Arc` is returned until the page changes or the cache
    /// drops the entry. Otherwise concurrent callers share a read that began after they called.
    pub async fn latest(&self, page: &Page, name: &PropertyName) -> Result<Arc<Property>> {
        let inner = &self.0;
        let cache = &inner.latest;
        let key = cache_key(page, name);
        if let Some(property) = inner.cached_latest(key, page, name) {
            cache.hits.fetch_add(1, Ordering::Relaxed);
            inner.report_read(page, name, &property).await?;
            return Ok(property);
        }
        cache.misses.fetch_add(1, Ordering::Relaxed);
        // Boxed, so that the future of a read from memory stays small.
        let read = || {
            let read = inner.read_and_cache_latest(key, page, name);
            Box::pin(cache.reads.read((page.clone(), name.clone()), read))
        };
        let property = match read().await {
            // If the renderer generates the property, a second read finds it.
            Err(Error::NotFound(Missing::LatestProperty { latest, .. }))
                if self.generate_property(page, latest, name).await?.is_some() =>
            {
                read().await?
            }
            result => result?,
        };
        inner.report_read(page, name, &property).await?;
        Ok(property)
    }

    /// Returns the version of a property of the latest render. Reads no bytes, and asks no renderer. `None` if the render
    /// lacks the property.
    #[boxed]
    pub async fn latest_version(&self, page: &Page, name: &PropertyName) -> Result<Option<PropertyVersion>> {
        if let Some(property) = self.0.cached_latest(cache_key(page, name), page, name) {
            return Ok(Some(property.version));
        }
        let Render { record, tid, properties } = self.0.latest_render(page).await?;
        let info = properties.get(name).filter(|_| record.check_not_erased().is_ok());
        Ok(info.map(|info| PropertyVersion { rev: record.rev, tid, rewritten_at: info.rewritten_at }))
    }

    /// Returns the statistics of the cache of latest properties.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let cache = &self.0.latest;
        CacheStats {
            hits: cache.hits.load(Ordering::Relaxed),
            misses: cache.misses.load(Ordering::Relaxed),
            entries: cache.entries.values(),
            bytes: cache.entries.bytes(),
        }
    }

    /// Returns the newest render of the latest revision.
    #[boxed]
    pub async fn latest_render(&self, page: &Page) -> Result<Render> {
        self.0.latest_render(page).await
    }
}

impl StoreInner {
    /// Reports to the archive and to retention that the property of the latest render was read.
    async fn report_read(&self, page: &Page, name: &PropertyName, property: &Property) -> Result<()> {
        self.note_read(page);
        let PropertyVersion { rev, tid, .. } = property.version;
        self.retention.on_read_latest(page, (rev, tid), name).await
    }

    /// Reports to the archive that the page was read.
    pub(super) fn note_read(&self, page: &Page) {
        if let Some(archive) = &self.archive {
            archive.note_read(page);
        }
    }

    /// Returns the cached property, if it is current.
    fn cached_latest(&self, key: u128, page: &Page, name: &PropertyName) -> Option<Arc<Property>> {
        let entry = self.latest.entries.get(&*self.records.store, &key)?;
        // Two pages may have one hash.
        (entry.page == *page && entry.name == *name).then(|| Arc::clone(&entry.property))
    }

    /// Reads the property from the store. Caches it if nothing was committed to the partition meanwhile.
    async fn read_and_cache_latest(
        &self,
        key: u128,
        page: &Page,
        name: &PropertyName,
    ) -> Result<Arc<Property>> {
        // A read that finished meanwhile may have cached the property.
        if let Some(property) = self.cached_latest(key, page, name) {
            return Ok(property);
        }
        let versions = self.records.store.partition_versions();
        let read = versions.and_then(|versions| versions.begin_read(&partition_of(page)));
        let property = Arc::new(self.read_latest(page, name).await?);
        if let Some(read) = read {
            let (page, name) = (page.clone(), name.clone());
            let entry = Arc::new(Entry { page, name, property: Arc::clone(&property) });
            let bytes = entry.bytes();
            self.latest.entries.insert(read, key, entry, bytes);
        }
        Ok(property)
    }

    pub(super) async fn latest_render(&self, page: &Page) -> Result<Render> {
        for _ in 0..MAX_READ_ATTEMPTS {
            let reads = [&RENDERS, &REVISIONS].map(|table| first_of(table, page, ClusteringRange::all()));
            let [render, revision] = self.records.first_rows(reads).await?;
            let render = RenderRow::from_row(&render.ok_or(Error::NotFound(Missing::Page))?)?;
            let revision = match revision {
                Some(row) if RevisionRow::rev_of(&row)? == render.rev => Some(RevisionRow::from_row(&row)?),
                _ => self.records.revision(page, render.rev).await?,
            };
            if let Some(revision) = revision {
                return Ok(super::read::render_of(revision, render));
            }
        }
        Err(self.records.incomplete(page))
    }

    /// Reads the latest property from the store.
    ///
    /// Reads the first rows of the renders, of the revisions and of the property concurrently. These rows are
    /// enough if they belong to one render. Otherwise reads the exact rows, and repeats the reads if the page
    /// changes meanwhile.
    async fn read_latest(&self, page: &Page, name: &PropertyName) -> Result<Property> {
        let versions = self.records.definitions.get(name).versions;
        let mut absent = None;
        for _ in 0..MAX_READ_ATTEMPTS {
            let [render, revision] =
                [&RENDERS, &REVISIONS].map(|table| first_of(table, page, ClusteringRange::all()));
            let [index, revision, body] = match self.retention.newest_read(page, name, versions) {
                Some(body) => self.records.first_rows([render, revision, body]).await?,
                None => {
                    let rows = self.records.first_rows([render, revision]);
                    let body = self.retention.newest_row(page, name, versions);
                    let ([render, revision], body) = futures::future::try_join(rows, body).await?;
                    [render, revision, body]
                }
            };
            let index = RenderRow::from_row(&index.ok_or(Error::NotFound(Missing::Page))?)?;
            let (rev, tid) = (index.rev, index.tid);
            let revision = match revision {
                Some(row) if RevisionRow::rev_of(&row)? == rev => RevisionRow::from_row(&row)?,
                // The row of a later revision is visible, but its render is not visible yet, or was written
                // between the two reads.
                _ => match self.records.revision(page, rev).await? {
                    Some(revision) => revision,
                    None => continue,
                },
            };
            revision.record.check_not_erased()?;
            let expected = match versions {
                Versions::Render => index.properties.contains_key(name),
                Versions::Revision => revision.properties.contains_key(name),
            };
            if !expected {
                let newest = body.as_ref().and_then(BodyKey::of_row).map(|key| key.value());
                absent = Some((rev, newest));
                break;
            }
            let id = BodyId { page, rev, tid, name, versions };
            let is_wanted = |row: &Row| BodyKey::of_row(row).is_some_and(|key| key.value() == id.value());
            let body = match body.filter(is_wanted) {
                Some(row) => Some(row),
                None => self.retention.find_latest(id).await?,
            };
            // A later render may have been stored meanwhile.
            let Some(body) = body else { continue };
            let body = BodyRow::from_row(&body)?;
            let (info, body) = body.into_body(&self.records.chunks)?;
            let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
            return Ok(Property { version, parent: revision.record.parent, info, body });
        }
        match absent {
            Some((latest, newest)) => Err(self.no_latest_property(page, latest, newest).await?),
            None => Err(self.records.incomplete(page)),
        }
    }

    /// Returns the error for a property that the latest revision lacks. The error names the newest revision
    /// that has the property.
    async fn no_latest_property(
        &self,
        page: &Page,
        latest: Revision,
        newest: Option<(Revision, Option<Tid>)>,
    ) -> Result<Error> {
        let (predecessor, predecessor_tid) = match newest {
            None => (None, None),
            Some((rev, Some(tid))) => (Some(rev), Some(tid)),
            Some((rev, None)) => {
                let render = self.records.first(&RENDERS, page, of_revision(rev)).await?;
                let render = render.and_then(|row| RenderKey::read(&row.key));
                (Some(rev), render.map(|render| render.tid))
            }
        };
        Ok(Error::NotFound(Missing::LatestProperty { latest, predecessor, predecessor_tid }))
    }
}
