//! The newest render of the latest revision: what nearly everybody reads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_recursion::async_recursion as boxed;
use moka::sync::Cache;
use rashomon_tables::{ClusteringRange, Row, Slot};

use super::{LOOKS, Revisioned, Shared, joint_reads::JointReads};
use crate::{
    Body, Error, Missing, Page, Property, PropertyName, PropertyVersion, Render, Result, Revision, Tid,
    Versions,
    content::BodyRow,
    retention::{is_of, whose},
    rows::{
        BodyKey, RenderKey, RenderRow, RevisionRow, RowKey, content_of, content_table, of_property,
        of_revision, partition_of,
    },
    schemas::{RENDERS, REVISIONS},
};

/// What an entry takes beside its bytes, roughly.
const ENTRY_OVERHEAD: usize = 1024;

/// The newest properties, in memory. Exact where the store has generations; else empty.
#[derive(Debug)]
pub(super) struct LatestCache {
    entries: Cache<u128, Arc<Entry>>,
    /// Those that memory does not answer.
    reads: JointReads<(Page, PropertyName), Arc<Property>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// How the memory for newest properties has served so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Reads of the latest that were answered from memory.
    pub hits: u64,
    /// Reads of the latest that went to the store, or waited for one that did.
    pub misses: u64,
    /// Properties in memory.
    pub entries: u64,
    /// Their bytes, about.
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    page: Page,
    name: PropertyName,
    slot: Slot,
    generation: u64,
    property: Arc<Property>,
}

impl Entry {
    fn weight(&self) -> u32 {
        let bytes = match &self.property.body {
            Body::Inline(body) => body.memory(),
            Body::Chunked(_) => 0,
        };
        u32::try_from(bytes + ENTRY_OVERHEAD).unwrap_or(u32::MAX)
    }
}

impl LatestCache {
    pub(super) fn new(bytes: u64) -> Self {
        let entries = Cache::builder()
            .max_capacity(bytes)
            .weigher(|_: &u128, entry: &Arc<Entry>| entry.weight())
            // The keys are hashes already.
            .build();
        Self { entries, reads: JointReads::new(), hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }
}

fn cache_key(page: &Page, name: &PropertyName) -> u128 {
    let mut hash = page.hash();
    hash.update(name.as_str().as_bytes());
    hash.update(&[0xff]);
    hash.digest128()
}

/// The revision, and the render if it is one a render, of a row of one of the content tables.
pub(super) fn whose_body(row: &Row) -> Option<(Revision, Option<Tid>)> {
    BodyKey::read(&row.key).map(|key| (key.rev, key.tid))
}

impl Revisioned {
    /// A property of the newest render of the latest revision. Served from memory where it can be: the same
    /// `Arc` is then given again and again, until the page changes. Where it cannot, those who ask at the same
    /// time share a read that began after they asked.
    pub async fn latest(&self, page: &Page, name: &PropertyName) -> Result<Arc<Property>> {
        let shared = &self.0;
        let cache = &shared.latest;
        let key = cache_key(page, name);
        if let Some(property) = shared.kept_latest(key, page, name) {
            cache.hits.fetch_add(1, Ordering::Relaxed);
            shared.copied_if_read(page, name, &property).await?;
            return Ok(property);
        }
        cache.misses.fetch_add(1, Ordering::Relaxed);
        // Boxed, so that the future of a read from memory is small.
        let read = || {
            let read = shared.read_and_keep_latest(key, page, name);
            Box::pin(cache.reads.read((page.clone(), name.clone()), read))
        };
        let property = match read().await {
            // It may be made, and is there then.
            Err(Error::NotFound(Missing::LatestProperty { latest, .. }))
                if self.generated(page, latest, name).await?.is_some() =>
            {
                read().await?
            }
            result => result?,
        };
        shared.copied_if_read(page, name, &property).await?;
        Ok(property)
    }

    /// How the memory for newest properties has served so far.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        let cache = &self.0.latest;
        CacheStats {
            hits: cache.hits.load(Ordering::Relaxed),
            misses: cache.misses.load(Ordering::Relaxed),
            entries: cache.entries.entry_count(),
            bytes: cache.entries.weighted_size(),
        }
    }

    /// The newest render of the latest revision.
    #[boxed]
    pub async fn latest_render(&self, page: &Page) -> Result<Render> {
        self.0.latest_render(page).await
    }
}

impl Shared {
    /// Has the latest copied where its bucket's strategy copies what is read.
    async fn copied_if_read(&self, page: &Page, name: &PropertyName, property: &Property) -> Result<()> {
        let policy = self.settings.retention.of(page);
        let Some(policy) = policy.filter(|policy| policy.strategy.copies_what_is_read()) else {
            return Ok(());
        };
        let PropertyVersion { rev, tid, .. } = property.version;
        self.keep_latest(page, policy, (rev, tid), name).await
    }

    /// What is in memory, if it still holds.
    fn kept_latest(&self, key: u128, page: &Page, name: &PropertyName) -> Option<Arc<Property>> {
        let generations = self.records.store.generations()?;
        let entry = self.latest.entries.get(&key)?;
        let holds = generations.standing(entry.slot) == entry.generation
            && entry.page == *page
            && entry.name == *name;
        holds.then(|| Arc::clone(&entry.property))
    }

    /// Reads, and keeps what was read if nothing was committed meanwhile.
    async fn read_and_keep_latest(
        &self,
        key: u128,
        page: &Page,
        name: &PropertyName,
    ) -> Result<Arc<Property>> {
        // An earlier read may have put it there.
        if let Some(property) = self.kept_latest(key, page, name) {
            return Ok(property);
        }
        let before = self.records.store.generations().and_then(|generations| {
            let slot = generations.slot(&partition_of(page));
            Some((generations, slot, generations.current(slot)?))
        });
        let property = Arc::new(self.read_latest(page, name).await?);
        if let Some((generations, slot, generation)) = before
            && generations.current(slot) == Some(generation)
        {
            let (page, name) = (page.clone(), name.clone());
            let entry = Entry { page, name, slot, generation, property: Arc::clone(&property) };
            self.latest.entries.insert(key, Arc::new(entry));
        }
        Ok(property)
    }

    pub(super) async fn latest_render(&self, page: &Page) -> Result<Render> {
        for _ in 0..LOOKS {
            let (render, revision) = futures::future::try_join(
                self.records.first(&RENDERS, page, ClusteringRange::all()),
                self.records.first(&REVISIONS, page, ClusteringRange::all()),
            )
            .await?;
            let render = RenderRow::from_row(&render.ok_or(Error::NotFound(Missing::Page))?)?;
            let revision = match revision {
                Some(row) if RevisionRow::rev_of(&row)? == render.rev => Some(RevisionRow::from_row(&row)?),
                _ => self.records.revision(page, render.rev).await?,
            };
            if let Some(revision) = revision {
                return Ok(super::read::render_of(revision, render));
            }
        }
        Err(self.incomplete(page))
    }

    /// One round where all is still: the first row of the index, of the revisions and of the property, side by
    /// side. Where they name different renders, the exact ones are fetched.
    async fn read_latest(&self, page: &Page, name: &PropertyName) -> Result<Property> {
        let versions = self.settings.definitions.get(name).versions;
        let (content, of_name) = (content_table(versions), of_property(name));
        let policy = self.settings.retention.of(page);
        let one_row = policy.is_some_and(|policy| policy.strategy.is_one_row());
        let mut absent = None;
        for _ in 0..LOOKS {
            let (index, revision, body) = futures::future::try_join3(
                self.records.first(&RENDERS, page, ClusteringRange::all()),
                self.records.first(&REVISIONS, page, ClusteringRange::all()),
                async {
                    match one_row {
                        true => self.current_of(page, name).await,
                        false => self.records.first(content, page, of_name.clone()).await,
                    }
                },
            )
            .await?;
            let index = RenderRow::from_row(&index.ok_or(Error::NotFound(Missing::Page))?)?;
            let (rev, tid) = (index.rev, index.tid);
            let revision = match revision {
                Some(row) if RevisionRow::rev_of(&row)? == rev => RevisionRow::from_row(&row)?,
                // A later one is not whole yet for us, or another has come meanwhile.
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
                let newest = match body.as_ref().filter(|_| one_row).and_then(whose) {
                    None if one_row => {
                        self.records.first(content, page, of_name).await?.as_ref().and_then(whose_body)
                    }
                    None => body.as_ref().and_then(whose_body),
                    newest => newest,
                };
                absent = Some((rev, newest));
                break;
            }
            let is_it = |row: &Row| match one_row {
                true => is_of(row, rev, tid, versions),
                false => row.key.clustering == content_of(versions, name, rev, tid).1,
            };
            let body = match body.filter(is_it) {
                Some(row) => Some(row),
                None => self.durable(page, rev, tid, name, versions).await?,
            };
            let body = match body {
                Some(body) => BodyRow::from_row(&body)?,
                // Its row is being set, or its writer was interrupted; a render may have come since.
                None if one_row => match self.copy_of(page, rev, tid, name, versions).await? {
                    Some(copy) => BodyRow::from_row(&copy)?,
                    None => continue,
                },
                None => continue,
            };
            let (info, body) = body.into_body(&self.records.chunks)?;
            let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
            return Ok(Property { version, parent: revision.record.parent, info, body });
        }
        match absent {
            Some((latest, newest)) => Err(self.no_latest(page, latest, newest).await?),
            None => Err(self.incomplete(page)),
        }
    }

    /// The latest revision lacks the property: says which newest one has it.
    async fn no_latest(
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

    /// However often one looks, the index names what is not there.
    pub(super) fn incomplete(&self, page: &Page) -> Error {
        tracing::error!(domain = %page.domain, title = %page.title, "index entry without a stored revision");
        let what = format!("page {} of {} is not stored whole", page.title, page.domain);
        rashomon_tables::Error::Corrupt(what).into()
    }
}
