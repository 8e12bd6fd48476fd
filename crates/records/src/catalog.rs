//! The catalog: the domains and pages that exist, and their data from exports.

mod listed;
mod page_stream;

use std::{collections::BinaryHeap, num::NonZeroUsize, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Batch, ClusteringRange, Key, Mutation, Row, Scan, TableStore, Value, first_keys};
use tokio::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64;

pub use self::{listed::ListedPages, page_stream::PageStream};
use crate::{
    BucketName, DomainName, Listing, Page, PageInfo, Result, SiteChange, SiteInfo, Title,
    damaged_rows::DamagedRows,
    locks::Locks,
    rows::{self, DomainKey, Json, PageInfoRow, RowKey, SiteInfoRow, TitleKey, TypedRow, partition_of},
    schemas::{ARCHIVE_INDEX, BUCKETS, DOMAINS, PAGES, RENDERS, SITE_INFOS, TITLES},
};

/// The number of partitions of the titles of a bucket. With sixty million titles, each partition has about a
/// million. The number is a part of the format of every store, and cannot be changed.
const TITLE_SHARDS: u64 = 64;

/// The name of the only partition of the table `domains`.
const CATALOG: &str = "domains";

/// The number of domains in a result page, while all domains are listed.
const DOMAINS_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The catalog of a store. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Catalog {
    store: Arc<dyn TableStore>,
    clock: Arc<dyn Clock>,
    locks: Arc<Locks>,
    /// Damaged rows that reads skipped.
    pub damage: Arc<DamagedRows>,
    /// The lock for a replacement of a domain's site info. Replacements are rare, so one lock for all domains is
    /// enough.
    site_infos: Arc<Mutex<()>>,
}

/// The first titles of a shard, in order.
struct ShardTitles {
    titles: Vec<String>,
    has_more: bool,
}

/// Returns the partition of a shard of a bucket's titles.
fn shard_of(domain: &DomainName, bucket: &BucketName, shard: u64) -> Vec<Value> {
    vec![domain.as_str().into(), bucket.as_key().into(), Value::Int(shard as i64)]
}

impl Catalog {
    /// Creates the catalog of a store.
    #[must_use]
    pub fn new(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) -> Self {
        let (locks, damage) = (Arc::new(Locks::new()), Arc::default());
        Self { store, clock, locks, damage, site_infos: Arc::default() }
    }

    /// Returns the domains to which something was written, in order. A damaged row counts if the domain in its key
    /// has a bucket that was created, or an undamaged entry for a title of the bucket `page`.
    #[boxed]
    pub async fn domains(&self) -> Result<Vec<DomainName>> {
        let (mut domains, mut after) = (Vec::new(), None);
        loop {
            let listing = self.domain_list(after.as_ref(), DOMAINS_PAGE_ROWS.get()).await?;
            domains.extend(listing.items);
            after = listing.next;
            if after.is_none() {
                return Ok(domains);
            }
        }
    }

    /// Returns the domains after `after`, in order, at most `limit`. Reads about as many rows as it returns domains.
    #[boxed]
    pub async fn domain_list(
        &self,
        after: Option<&DomainName>,
        limit: usize,
    ) -> Result<Listing<DomainName, DomainName>> {
        let range = match after {
            Some(domain) => ClusteringRange::all().above(domain.as_str()),
            None => ClusteringRange::all(),
        };
        let rows = NonZeroUsize::MIN.saturating_add(limit);
        let mut scan = Scan::new(vec![CATALOG.into()], rows).range(range).reporting_damage();
        let mut items = Vec::new();
        loop {
            let rows = self.store.scan(&DOMAINS, scan.clone()).await?;
            self.damage.record(&DOMAINS, &rows.damaged);
            for row in &rows.damaged {
                if let Some(DomainKey { domain }) = RowKey::read(&row.key)
                    && self.has_titles_or_buckets(&domain).await?
                {
                    items.push(domain);
                }
            }
            for row in &rows.items {
                items.push(DomainKey::of(row)?.domain);
            }
            scan.after = rows.next;
            if items.len() > limit || scan.after.is_none() {
                break;
            }
        }
        items.sort();
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).cloned();
        Ok(Listing { items, next })
    }

    /// Whether something was written to a domain. A damaged row counts if the domain has a bucket that was created, or
    /// an undamaged entry for a title of the bucket `page`.
    #[boxed]
    pub async fn has_domain(&self, domain: &DomainName) -> Result<bool> {
        let key = Key::new(vec![CATALOG.into()], vec![domain.as_str().into()]);
        match self.store.get(&DOMAINS, &key).await {
            Ok(row) => Ok(row.is_some()),
            Err(rashomon_tables::Error::Corrupt(_)) => self.has_titles_or_buckets(domain).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the domain has a bucket that was created, or an undamaged entry for a title of the bucket `page`.
    async fn has_titles_or_buckets(&self, domain: &DomainName) -> Result<bool> {
        let buckets = Scan::new(vec![domain.as_str().into()], NonZeroUsize::MIN);
        if !first_keys(&*self.store, &BUCKETS, buckets).await?.is_empty() {
            return Ok(true);
        }
        for shard in 0..TITLE_SHARDS {
            let scan = Scan::new(shard_of(domain, &BucketName::page(), shard), NonZeroUsize::MIN);
            let mut scan = scan.reporting_damage();
            loop {
                let rows = self.store.scan(&TITLES, scan.clone()).await?;
                if !rows.items.is_empty() {
                    return Ok(true);
                }
                scan.after = rows.next;
                if scan.after.is_none() {
                    break;
                }
            }
        }
        Ok(false)
    }

    /// Whether the page has a render in the table `renders`, or a part in a block. Damaged rows count.
    pub async fn is_stored(&self, page: &Page) -> Result<bool> {
        for table in [&*RENDERS, &*ARCHIVE_INDEX] {
            let scan = Scan::new(partition_of(page), NonZeroUsize::MIN);
            if !first_keys(&*self.store, table, scan).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the site info from the newest import of a domain, and the time at which it was stored.
    #[boxed]
    pub async fn site_info(&self, domain: &DomainName) -> Result<Option<(SiteInfo, Timestamp)>> {
        let Some(row) = self.site_info_row(domain).await? else { return Ok(None) };
        let SiteInfoRow { info, stored_at } = TypedRow::from_row(&row)?;
        Ok(Some((info.0, stored_at)))
    }

    async fn site_info_row(&self, domain: &DomainName) -> Result<Option<Row>> {
        let key = Key::new(vec![domain.as_str().into()], Vec::new());
        Ok(self.store.get(&SITE_INFOS, &key).await?)
    }

    /// Stores the site info of a domain, and adds the domain to the catalog. Replaces the site info of an earlier
    /// import.
    #[boxed]
    pub async fn put_site_info(&self, domain: &DomainName, info: &SiteInfo) -> Result<()> {
        let _alone = self.site_infos.lock().await;
        let stored = self.site_info_row(domain).await?;
        self.write_site_info(domain, info, stored.as_ref()).await
    }

    /// Adds the site info of an import to that of a domain, and adds the domain to the catalog. Values that the import
    /// lacks stay. Different values are replaced, unless the import is older than the stored ones, or of an unknown
    /// time: see [`SiteInfo::as_of`]. Returns the differences.
    #[boxed]
    pub async fn merge_site_info(&self, domain: &DomainName, info: &SiteInfo) -> Result<Vec<SiteChange>> {
        let _alone = self.site_infos.lock().await;
        let row = self.site_info_row(domain).await?;
        let Some(row) = &row else {
            self.write_site_info(domain, info, None).await?;
            return Ok(Vec::new());
        };
        let SiteInfoRow { info: Json(stored), .. } = TypedRow::from_row(row)?;
        let mut merged = stored.clone();
        let changes = merged.merge(info, info.as_of.is_some() && info.as_of >= stored.as_of);
        if merged != stored {
            self.write_site_info(domain, &merged, Some(row)).await?;
        }
        Ok(changes)
    }

    async fn write_site_info(
        &self,
        domain: &DomainName,
        info: &SiteInfo,
        stored: Option<&Row>,
    ) -> Result<()> {
        let mut now = self.clock.now();
        if let Some(stored) = stored {
            now = now.max(stored.written_at.just_after());
        }
        let mut batch = Batch::new(vec![domain.as_str().into()]);
        SiteInfoRow { info: Json(info.clone()), stored_at: now }.put(&mut batch, now);
        Ok(self.store.write(vec![domain_entry(domain, now)], batch).await?)
    }

    /// Returns the titles of a bucket's pages after `after`, in byte order: at most `limit`, and sometimes fewer
    /// although more titles follow.
    ///
    /// A title is stored before its page is written. If the write of the page fails, the list has the title, but the
    /// page does not exist. A damaged row counts if the page of the title in its key exists; the damage is logged.
    #[boxed]
    pub async fn titles(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        after: Option<&Title>,
        limit: usize,
    ) -> Result<Listing<Title, Title>> {
        // The titles are spread evenly, so each shard probably has few of the smallest titles.
        let per_shard = NonZeroUsize::MIN.saturating_add(limit.min(limit / (TITLE_SHARDS as usize / 2) + 16));
        let range = match after {
            Some(title) => ClusteringRange::all().above(title.as_str()),
            None => ClusteringRange::all(),
        };
        let shards = (0..TITLE_SHARDS).map(|shard| {
            let scan = Scan::new(shard_of(domain, bucket, shard), per_shard).range(range.clone());
            self.first_titles(domain, bucket, scan.reporting_damage())
        });
        let shards = futures::future::try_join_all(shards).await?;
        // The smallest titles of all shards are among the smallest titles of each shard. If a shard has more rows,
        // its titles after the last row that was read are unknown. So titles of other shards after this row are
        // ignored.
        let known_until =
            shards.iter().filter(|shard| shard.has_more).filter_map(|shard| shard.titles.last());
        let known_until = known_until.min();
        let mut smallest = BinaryHeap::with_capacity(limit + 2);
        for title in shards.iter().flat_map(|shard| &shard.titles) {
            if known_until.is_some_and(|until| title > until) {
                continue;
            }
            smallest.push(title.as_str());
            if smallest.len() > limit + 1 {
                smallest.pop();
            }
        }
        let more = smallest.len() > limit || known_until.is_some();
        let mut titles = smallest.into_sorted_vec();
        titles.truncate(limit);
        let items = (titles.into_iter())
            .map(|title| {
                let error = || rashomon_tables::Error::Corrupt(format!("{title:?} is not a valid title"));
                Ok(Title::new(title).map_err(|_| error())?)
            })
            .collect::<Result<Vec<_>>>()?;
        let next = items.last().filter(|_| more).cloned();
        Ok(Listing { items, next })
    }

    /// Deletes the title of a page whose bucket was deleted. The rows of the page must have been deleted before.
    pub async fn remove_title(&self, page: &Page) -> Result<()> {
        let [title, _] = entries(page, self.clock.now());
        let (partition, mut removal) = (title.partition.clone(), Batch::new(title.partition));
        for mutation in title.mutations {
            let Mutation::Put { table, clustering, written_at, .. } = mutation else { continue };
            let key = Key::new(partition.clone(), clustering.clone());
            let at = match self.store.get(table, &key).await {
                Ok(None) => continue,
                Ok(Some(row)) => written_at.max(row.written_at.just_after()),
                Err(rashomon_tables::Error::Corrupt(_)) => Timestamp::MAX,
                Err(error) => return Err(error.into()),
            };
            removal.delete(table, clustering, at);
        }
        Ok(self.store.write(Vec::new(), removal).await?)
    }

    /// Reads result pages of a shard until a result page has a title, or to the end. Returns the titles.
    async fn first_titles(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        mut scan: Scan,
    ) -> Result<ShardTitles> {
        loop {
            let rows = self.store.scan(&TITLES, scan.clone()).await?;
            self.damage.record(&TITLES, &rows.damaged);
            let mut titles = Vec::with_capacity(rows.items.len());
            for row in &rows.items {
                match row.key.clustering.first() {
                    Some(Value::Text(title)) => titles.push(title.clone()),
                    _ => return Err(rows::unreadable("titles", row)),
                }
            }
            for row in &rows.damaged {
                let Some(TitleKey { title }) = RowKey::read(&row.key) else { continue };
                let text = title.as_str().to_owned();
                let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
                if self.is_stored(&page).await? {
                    titles.push(text);
                }
            }
            titles.sort();
            if !titles.is_empty() || rows.next.is_none() {
                return Ok(ShardTitles { titles, has_more: rows.next.is_some() });
            }
            scan.after = rows.next;
        }
    }

    /// Returns the page info of a page, from the import that had its highest revision.
    #[boxed]
    pub async fn page_info(&self, page: &Page) -> Result<Option<PageInfo>> {
        Ok(self.read_page_info(page).await?.map(|(info, _)| info))
    }

    /// Stores the page info of an import, unless the stored page info has a higher revision. If both have the same
    /// revision, the greater page info is kept, so that the order of imports does not matter.
    #[boxed]
    pub async fn put_page_info(&self, page: &Page, info: &PageInfo) -> Result<()> {
        let _page = self.locks.page(page).await;
        let mut now = self.clock.now();
        if let Some((stored, written_at)) = self.read_page_info(page).await? {
            if stored >= *info {
                return Ok(());
            }
            now = now.max(written_at.just_after());
        }
        let mut batch = Batch::new(partition_of(page));
        PageInfoRow { info: Json(info.clone()) }.put(&mut batch, now);
        Ok(self.store.write(Vec::new(), batch).await?)
    }

    /// Whether the catalog has both entries of the page: for its title and for its domain.
    pub async fn is_listed(&self, page: &Page) -> Result<bool> {
        for Batch { partition, mutations } in entries(page, self.clock.now()) {
            for mutation in mutations {
                let Mutation::Put { table, clustering, .. } = mutation else { continue };
                let key = Key::new(partition.clone(), clustering);
                if self.store.get(table, &key).await?.is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether a read has found that a catalog entry of the page is damaged, for its title or for its domain. The next
    /// new revision, new render or replacement writes both entries again.
    pub fn has_damaged_entry(&self, page: &Page) -> bool {
        entries(page, Timestamp::EPOCH).into_iter().any(|Batch { partition, mutations }| {
            mutations.into_iter().any(|mutation| match mutation {
                Mutation::Put { table, clustering, .. } => {
                    self.damage.knows(table, &Key::new(partition.clone(), clustering))
                }
                _ => false,
            })
        })
    }

    async fn read_page_info(&self, page: &Page) -> Result<Option<(PageInfo, Timestamp)>> {
        let key = Key::new(partition_of(page), Vec::new());
        let Some(row) = self.store.get(&PAGES, &key).await? else { return Ok(None) };
        let PageInfoRow { info } = TypedRow::from_row(&row)?;
        Ok(Some((info.0, row.written_at)))
    }
}

/// Returns the batches of the catalog entries of a page: for its title and for its domain. Both are written before
/// the page is first written.
pub fn entries(page: &Page, now: Timestamp) -> [Batch; 2] {
    let shard = xxh3_64(page.title.as_str().as_bytes()) % TITLE_SHARDS;
    let mut title = Batch::new(shard_of(&page.domain, &page.bucket, shard));
    title.put(&TITLES, vec![page.title.as_str().into()], Vec::new(), now);
    [title, domain_entry(&page.domain, now)]
}

/// Returns the batch of the catalog entry of a domain.
pub fn domain_entry(domain: &DomainName, now: Timestamp) -> Batch {
    let mut batch = Batch::new(vec![CATALOG.into()]);
    batch.put(&DOMAINS, vec![domain.as_str().into()], Vec::new(), now);
    batch
}
