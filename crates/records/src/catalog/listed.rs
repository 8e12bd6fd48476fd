//! Looks for the catalog entries of many pages at once.

use std::{collections::BTreeSet, num::NonZeroUsize};

use rashomon_tables::{Error as StoreError, Key, Value, Walk, WalkStream};
use xxhash_rust::xxh3::xxh3_64;

use super::{CATALOG, Catalog, TITLE_SHARDS};
use crate::{
    DomainName, Page, Result,
    schemas::{DOMAINS, TITLES},
};

/// The number of titles in one read.
const TITLES_PER_READ: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// Pages whose catalog entries are looked for by one walk through all titles, which costs much less than a read for
/// each page. A page takes 8 bytes until [`Self::look`], and none after it if its entries were found.
#[derive(Debug, Default)]
pub struct ListedPages {
    /// The hashes of the pages to look for.
    sought: Vec<u64>,
    domains: BTreeSet<DomainName>,
    /// The sorted hashes of the pages whose title was not found.
    missing: Vec<u64>,
    /// The domains whose entry was not found.
    missing_domains: BTreeSet<DomainName>,
}

impl ListedPages {
    /// Adds a page to look for.
    pub fn seek(&mut self, page: &Page) {
        self.sought.push(hash(page.domain.as_str(), page.bucket.as_key(), page.title.as_str()));
        if !self.domains.contains(&page.domain) {
            self.domains.insert(page.domain.clone());
        }
    }

    /// Looks for the entries of the added pages. A damaged entry counts as missing.
    pub async fn look(&mut self, catalog: &Catalog) -> Result<()> {
        for domain in std::mem::take(&mut self.domains) {
            let key = Key::new(vec![CATALOG.into()], vec![domain.as_str().into()]);
            match catalog.store.get(&DOMAINS, &key).await {
                Ok(Some(_)) => {}
                Ok(None) | Err(StoreError::Corrupt(_)) => drop(self.missing_domains.insert(domain)),
                Err(error) => return Err(error.into()),
            }
        }
        let mut sought = std::mem::take(&mut self.sought);
        if sought.is_empty() {
            return Ok(());
        }
        sought.sort_unstable();
        let mut is_found = vec![false; sought.len()];
        let walk = Walk::new(vec![&*TITLES], TITLES_PER_READ).reporting_damage();
        let mut titles = WalkStream::new(&*catalog.store, walk);
        while let Some(page) = titles.next().await? {
            for (_, row) in page.rows {
                if let Some(hash) = hash_of_title(&row.key)
                    && let Ok(place) = sought.binary_search(&hash)
                {
                    is_found[place] = true;
                }
            }
        }
        self.missing
            .extend(sought.into_iter().zip(is_found).filter(|(_, is_found)| !is_found).map(|(hash, _)| hash));
        self.missing.sort_unstable();
        Ok(())
    }

    /// Whether the entries of all pages were found.
    #[must_use]
    pub fn are_all_listed(&self) -> bool {
        self.missing.is_empty() && self.missing_domains.is_empty()
    }

    /// Whether both entries of a page were found.
    #[must_use]
    pub fn has(&self, page: &Page) -> bool {
        let hash = hash(page.domain.as_str(), page.bucket.as_key(), page.title.as_str());
        !self.missing_domains.contains(&page.domain) && self.missing.binary_search(&hash).is_err()
    }
}

/// The hash of the page of a title. `None` if the title is not in the shard in which readers look for it.
fn hash_of_title(key: &Key) -> Option<u64> {
    let [Value::Text(domain), Value::Text(bucket), Value::Int(shard)] = &key.partition[..] else {
        return None;
    };
    let [Value::Text(title)] = &key.clustering[..] else { return None };
    let is_in_place =
        u64::try_from(*shard).is_ok_and(|shard| shard == xxh3_64(title.as_bytes()) % TITLE_SHARDS);
    is_in_place.then(|| hash(domain, bucket, title))
}

fn hash(domain: &str, bucket: &str, title: &str) -> u64 {
    // No name of a domain or bucket has a slash.
    xxh3_64([domain, bucket, title].join("/").as_bytes())
}
