//! Finds the answers that a change makes wrong: their URLs and their surrogate keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroUsize,
    sync::Arc,
};

use rashomon_protocol::{spelling, surrogate_keys::SurrogateKey};
use rashomon_records::{
    BucketName, DomainName, Error, Page, PageChange, PropertyName, PurgeEntry, PurgedChange, Records, Result,
    Revision, Tid,
    rows::{RenderRow, RevisionRow, partition_of},
    schemas::{RENDERS, REVISIONS},
};
use rashomon_tables::{ClusteringRange, Error as StoreError, Scan};

use crate::purges::{CacheMethod, CacheSettings, PurgeRequest, request::MAX_KEYS};

/// The number of rows that are read at once. Most changes concern only the latest revision and the revision before it.
const PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// The maximum number of renders of a change whose answers are named one by one. Beyond that, all answers of the page
/// are deleted.
const MAX_RENDERS: usize = 2_000;

/// The hosts of each domain, under which `/wiki/` has its pages, and what everybody may read.
#[derive(Clone)]
pub struct Sites {
    hosts: BTreeMap<DomainName, Vec<String>>,
    may_be_cached: Arc<dyn Fn(&PurgeEntry) -> bool + Send + Sync>,
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sites").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Sites {
    /// Creates the sites from the hosts of each domain. Everybody may read everything.
    #[must_use]
    pub fn new(hosts: BTreeMap<DomainName, Vec<String>>) -> Self {
        Self { hosts, may_be_cached: Arc::new(|_| true) }
    }

    /// Limits the purges to changes of pages and entries that everybody may read: caches keep only answers that
    /// clients without a token may read.
    #[must_use]
    pub fn only(self, may_be_cached: impl Fn(&PurgeEntry) -> bool + Send + Sync + 'static) -> Self {
        Self { may_be_cached: Arc::new(may_be_cached), ..self }
    }

    fn hosts_of(&self, domain: &DomainName) -> &[String] {
        self.hosts.get(domain).map_or(&[], Vec::as_slice)
    }
}

impl Default for Sites {
    fn default() -> Self {
        Self::new(BTreeMap::new())
    }
}

/// The answers that a change makes wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// The paths under `/v1/`, with their queries.
    v1: Vec<String>,
    /// The hosts and paths under `/wiki/`, with their queries.
    wiki: Vec<(String, String)>,
    /// Whether the paths are prefixes. Prefixes are used if the answers are too many or unknown.
    are_prefixes: bool,
    /// The surrogate keys.
    keys: Vec<SurrogateKey>,
}

impl Targets {
    /// Returns the requests by which a cache deletes these answers.
    #[must_use]
    pub fn requests(&self, cache: &CacheSettings) -> Vec<PurgeRequest> {
        if cache.method == CacheMethod::Keys && !self.keys.is_empty() {
            let keys = self.keys.chunks(MAX_KEYS);
            return keys.map(|keys| PurgeRequest::Keys(keys.to_vec())).collect();
        }
        let of_v1 = cache.hosts.iter().flat_map(|host| self.v1.iter().map(move |path| (host, path)));
        let of_wiki = self.wiki.iter().map(|(host, path)| (host, path));
        let mut requests = Vec::new();
        for (host, path) in of_v1.chain(of_wiki) {
            let url = |path: &str| PurgeRequest::Url { host: host.clone(), path: path.to_owned() };
            if !self.are_prefixes {
                requests.push(url(path));
                continue;
            }
            // The page itself has no query.
            requests.extend(path.strip_suffix('?').map(url));
            requests.push(PurgeRequest::Prefix { host: host.clone(), prefix: path.clone() });
        }
        requests
    }

    /// The surrogate keys.
    #[must_use]
    pub fn keys(&self) -> &[SurrogateKey] {
        &self.keys
    }

    /// Adds paths below a page or an entry, in all spellings and under all hosts.
    fn add(&mut self, of: &PurgedItem<'_>, rests: &[String]) {
        for spelling in spelling::accepted(of.name) {
            let (domain, bucket) = (of.domain, of.bucket.as_str());
            self.v1.extend(rests.iter().map(|rest| format!("/v1/{domain}/{bucket}/{spelling}{rest}")));
            let Some(before) = &of.wiki else { continue };
            for host in of.hosts {
                let urls = rests.iter().map(|rest| (host.clone(), format!("{before}{spelling}{rest}")));
                self.wiki.extend(urls);
            }
        }
    }
}

/// A page or an entry, with the parts of its URLs.
struct PurgedItem<'a> {
    domain: &'a DomainName,
    bucket: &'a BucketName,
    name: &'a str,
    hosts: &'a [String],
    /// The part before the name in a URL under `/wiki/`, if there is such a URL.
    wiki: Option<String>,
}

/// The revisions, renders and properties of a page that a change affects.
#[derive(Debug, Default)]
struct ChangedContent {
    /// The properties that the latest revision may have, or may have had before the change.
    names: BTreeSet<PropertyName>,
    /// The stored revisions that have changed.
    revisions: BTreeMap<Revision, ChangedRevision>,
    /// The number of changed renders.
    renders: usize,
}

/// A stored revision that has changed.
#[derive(Debug, Default)]
struct ChangedRevision {
    names: BTreeSet<PropertyName>,
    renders: Vec<Tid>,
}

/// Finds out which answers a change makes wrong: none if only clients with a token may read them. Reads the rows of the
/// page as they are after the change. If `urls` is false, only the keys are complete.
///
/// The caller may call this at any time after the change: the rows of revisions and renders are never deleted, and a
/// change that removes properties from them names these properties.
pub async fn targets_of(records: &Records, sites: &Sites, entry: &PurgeEntry, urls: bool) -> Result<Targets> {
    let (domain, bucket) = (&entry.domain, &entry.bucket);
    let hosts = sites.hosts_of(domain);
    let mut targets = Targets::default();
    if !(sites.may_be_cached)(entry) {
        return Ok(targets);
    }
    match &entry.change {
        PurgedChange::Bucket | PurgedChange::PrivateBucket => {
            targets.are_prefixes = true;
            targets.v1.push(format!("/v1/{domain}/{}/", bucket.as_str()));
            let of_wiki = |host: &String| (host.clone(), format!("/wiki/?blob/{}/", bucket.as_str()));
            targets.wiki = hosts.iter().map(of_wiki).collect();
            targets.keys.push(SurrogateKey::of_bucket(domain, bucket));
        }
        PurgedChange::Entry { key, .. } => {
            let wiki = Some(format!("/wiki/?blob/{}/", bucket.as_str()));
            let item = PurgedItem { domain, bucket, name: key.as_str(), hosts, wiki };
            targets.add(&item, &[String::new()]);
            targets.keys.push(SurrogateKey::of_entry(domain, bucket, key));
        }
        PurgedChange::Page(change) => {
            let page = entry.page_of(change);
            targets.keys.push(SurrogateKey::of_page(&page));
            let changed = match urls || change.bodies {
                true => match read_changed(records, &page, change, urls).await {
                    // The answers of a damaged page cannot be named.
                    Err(Error::Store(StoreError::Corrupt(_))) => None,
                    changed => changed?,
                },
                false => Some(ChangedContent::default()),
            };
            let wiki = (*bucket == BucketName::page()).then(|| "/wiki/".to_owned());
            let item = PurgedItem { domain, bucket, name: page.title.as_str(), hosts, wiki };
            let Some(changed) = changed else {
                targets.are_prefixes = true;
                targets.keys.clear();
                targets.add(&item, &["?".to_owned()]);
                return Ok(targets);
            };
            if change.bodies {
                let tids = changed.revisions.values().flat_map(|revision| &revision.renders);
                targets.keys.extend(tids.map(|tid| SurrogateKey::of_render(&page, *tid)));
            }
            targets.add(&item, &changed_queries(change, changed));
        }
    }
    Ok(targets)
}

/// Returns the queries of all answers of a page that have changed.
fn changed_queries(change: &PageChange, changed: ChangedContent) -> Vec<String> {
    // Most readers read the latest revision, so its answers are deleted first.
    let names: Vec<_> = changed.names.union(&change.names).collect();
    let mut rests: Vec<_> = names.iter().map(|name| format!("?rev/latest/{name}")).collect();
    rests.extend(["?rev/latest/".to_owned(), "?rev/".to_owned()]);
    // The redirect of the page itself links to the newest state of this property.
    if names.iter().any(|name| name.as_str() == "html") {
        rests.push(String::new());
    }
    rests.extend(names.iter().map(|name| format!("?timemap/{name}")));
    for (rev, revision) in changed.revisions {
        rests.push(format!("?rev/{rev}/"));
        let names: Vec<_> = revision.names.union(&change.names).collect();
        rests.extend(names.iter().map(|name| format!("?rev/{rev}/{name}")));
        for tid in revision.renders {
            rests.push(format!("?rev/{tid}/"));
            if change.bodies {
                rests.extend(names.iter().map(|name| format!("?rev/{tid}/{name}")));
            }
        }
    }
    rests
}

/// Reads the revisions of a change. With `urls`, also reads the revision below them: if the change made a new latest
/// revision, the revision below was the latest one before. Returns `None` if too many renders have changed.
async fn read_changed(
    records: &Records,
    page: &Page,
    change: &PageChange,
    urls: bool,
) -> Result<Option<ChangedContent>> {
    let (lowest, highest) = change.revisions;
    let mut changed = ChangedContent::default();
    let is_changed = |rev| change.stored.is_some_and(|(from, until)| from <= rev && rev <= until);
    let range = ClusteringRange::all().at_most(highest.get());
    let scan = || Scan::new(partition_of(page), PAGE_ROWS).range(range.clone());
    let mut below = None;
    let mut rows = records.rows(&RENDERS, scan());
    while let Some(row) = rows.next().await? {
        let RenderRow { rev, tid, properties, .. } = RenderRow::from_row(&row)?;
        if rev < lowest && (!urls || *below.get_or_insert(rev) != rev) {
            break;
        }
        if is_changed(rev) {
            changed.renders += 1;
            if changed.renders > MAX_RENDERS {
                return Ok(None);
            }
            let revision = changed.revisions.entry(rev).or_default();
            revision.renders.push(tid);
            revision.names.extend(properties.keys().cloned());
        }
        changed.names.extend(properties.into_keys());
    }
    if !urls {
        return Ok(Some(changed));
    }
    let mut rows = records.rows(&REVISIONS, scan());
    while let Some(row) = rows.next().await? {
        let RevisionRow { record, properties, .. } = RevisionRow::from_row(&row)?;
        if is_changed(record.rev) {
            let revision = changed.revisions.entry(record.rev).or_default();
            revision.names.extend(properties.keys().cloned());
        }
        changed.names.extend(properties.into_keys());
        if record.rev < lowest {
            break;
        }
    }
    Ok(Some(changed))
}
