//! The requests for one change: when answers are named one by one, and when all answers of a page are deleted.

use std::{collections::BTreeMap, sync::Arc};

use rashomon_clock::{Clock as _, Timestamp};
use rashomon_pages::Retention;
use rashomon_protocol::surrogate_keys::SurrogateKey;
use rashomon_records::{
    BucketName, EntryKey, PageChange, PropertyName, PurgeEntry, PurgeId, PurgedChange, Records, Revision,
    Tid,
    rows::{RenderRow, partition_of, render_key},
    schemas::{RENDERS, REVISIONS},
};
use rashomon_server::access::{AnonymousRights, DomainRights, Policy, Right, Rights};
use rashomon_tables::{Batch, Counting, Error, Kind, Memory, TableStore as _};
use rashomon_upstream::purges::{CacheMethod, CacheSettings, PurgeRequest, Sites, Targets, targets_of};

use crate::{
    fake_cache::FakeCache,
    process::Machine,
    world::{API_HOST, HOSTS, RuntimeClock, World, cache_settings, enwiki, page, sites},
};

fn rev(rev: i64) -> Revision {
    Revision::new(rev).unwrap()
}

fn tid(number: usize) -> Tid {
    Tid::new(Timestamp::from_micros(1_767_225_600_000_000), number as u64)
}

/// Stores renders of a revision of page A, without properties.
async fn store_renders(machine: &Machine, of: Revision, count: usize) {
    let mut batch = Batch::new(partition_of(&page("A")));
    let written_at = machine.clock.now();
    for number in 0..count {
        let (rev, tid) = (of, tid(number));
        let row = RenderRow {
            rev,
            tid,
            properties: Default::default(),
            stored_at: written_at,
            digest: [0; 16],
            left_out: false,
            written_at,
        };
        batch.put(&RENDERS, render_key(rev, tid), row.to_values(), written_at);
    }
    machine.store.write(Vec::new(), batch).await.unwrap();
}

/// The change of the bodies of revision 2 of page A.
fn change_of_bodies() -> PurgeEntry {
    let id = PurgeId { queued_at: Timestamp::EPOCH, random: 0 };
    let change = PurgedChange::Page(PageChange::of_bodies(&page("A"), rev(2), rev(2)));
    PurgeEntry { id, domain: enwiki(), bucket: BucketName::page(), change }
}

/// The answers that the change of the bodies of revision 2 makes wrong. The cache knows URLs or keys.
async fn targets(records: &Records, method: CacheMethod) -> Targets {
    targets_of(records, &sites(), &change_of_bodies(), method == CacheMethod::Purge).await.unwrap()
}

/// The requests that delete all answers of page A.
fn all_of_page() -> Vec<PurgeRequest> {
    let of_host = |host: &str, path: &str| {
        let (host, path) = (host.to_owned(), path.to_owned());
        let prefix = PurgeRequest::Prefix { host: host.clone(), prefix: format!("{path}?") };
        [PurgeRequest::Url { host, path }, prefix]
    };
    let wiki = HOSTS.iter().flat_map(|host| of_host(host, "/wiki/A"));
    of_host(API_HOST, "/v1/enwiki/page/A").into_iter().chain(wiki).collect()
}

#[tokio::test(start_paused = true)]
async fn all_answers_of_a_page_are_deleted_if_too_many_renders_have_changed() {
    for method in [CacheMethod::Purge, CacheMethod::Keys] {
        let settings = cache_settings("a", method);
        let machine = Machine::new().await;
        let records = machine.process(&FakeCache::new()).records;
        store_renders(&machine, rev(1), 5).await;
        store_renders(&machine, rev(2), 2000).await;
        let few = targets(&records, method).await;
        assert_eq!(few.keys().len(), 1 + 2000, "the page and each render");
        assert!(
            few.requests(&settings).iter().all(|request| !matches!(request, PurgeRequest::Prefix { .. }))
        );
        store_renders(&machine, rev(2), 2001).await;
        let many = targets(&records, method).await;
        assert_eq!(many.requests(&settings), all_of_page());
    }
}

#[tokio::test(start_paused = true)]
async fn all_answers_of_a_damaged_page_are_deleted() {
    for method in [CacheMethod::Purge, CacheMethod::Keys] {
        let machine = Machine::new().await;
        let records = machine.process(&FakeCache::new()).records;
        machine.test_store().fail_scans(&RENDERS, Some(Error::Corrupt("a test".to_owned())));
        let found = targets(&records, method).await;
        assert_eq!(found.requests(&cache_settings("a", method)), all_of_page());
        machine.test_store().fail_scans(&RENDERS, Some(Error::unavailable("a test")));
        let urls = method == CacheMethod::Purge;
        targets_of(&records, &sites(), &change_of_bodies(), urls).await.unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn request_by_keys_has_at_most_a_hundred_keys() {
    let machine = Machine::new().await;
    let cache = FakeCache::new();
    let process = machine.process_with(cache_settings("a", CacheMethod::Keys), &cache).run();
    cache.wait_for("/", 1).await;
    cache.take();
    store_renders(&machine, rev(2), 250).await;
    let found = targets(&process.records, CacheMethod::Keys).await;
    let requests = found.requests(&cache_settings("a", CacheMethod::Keys));
    // The sender, which joins the keys of several changes, has the same limit.
    let page = page("A");
    let queued = process.records.purge_page(&page, || PageChange::of_bodies(&page, rev(2), rev(2))).unwrap();
    process.records.store.write(vec![queued], Batch::new(partition_of(&page))).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let sent: Vec<_> = cache.take().into_iter().map(|(_, request)| request).collect();
    for requests in [requests, sent] {
        let mut all = Vec::new();
        for request in requests {
            let PurgeRequest::Keys(keys) = request else { panic!("{request:?}") };
            assert!(keys.len() <= 100, "{}", keys.len());
            all.extend(keys);
        }
        all.sort_unstable();
        let mut expected = vec![SurrogateKey::of_page(&page)];
        expected.extend((0..250).map(|number| SurrogateKey::of_render(&page, tid(number))));
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn change_reads_only_its_revisions_and_the_one_before_it() {
    let clock = RuntimeClock::new();
    let store = Arc::new(Counting::new(Memory::new(clock.clone())));
    let world = World::open(store.clone(), clock, Retention::default(), Vec::new()).await;
    for number in 1..=50 {
        world.revision("A", number).await;
    }
    let entry_of = |number| {
        let (title, names) = (page("A").title, Default::default());
        let revisions = (rev(number), rev(number));
        let change = PageChange { title, revisions, stored: None, bodies: false, names };
        PurgeEntry { change: PurgedChange::Page(change), ..change_of_bodies() }
    };
    let scans = || {
        let counts = store.counts();
        [&RENDERS, &REVISIONS].map(|table| counts.tables[table.name()][Kind::Scan].operations)
    };
    for (number, urls, expected) in [(50, true, [1, 1]), (1, true, [1, 1]), (50, false, [0, 0])] {
        let before = scans();
        targets_of(world.buckets.parts().records, &sites(), &entry_of(number), urls).await.unwrap();
        let after = scans();
        assert_eq!([after[0] - before[0], after[1] - before[1]], expected, "revision {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn urls_have_every_host_of_the_cache_and_only_pages_are_under_wiki() {
    let machine = Machine::new().await;
    let records = machine.process(&FakeCache::new()).records;
    let hosts = ["one.example.org".to_owned(), "two.example.org".to_owned()];
    let settings = CacheSettings { hosts: hosts.to_vec(), ..cache_settings("a", CacheMethod::Purge) };
    let entry = PurgeEntry { bucket: BucketName::new("other").unwrap(), ..change_of_bodies() };
    let found = targets_of(&records, &sites(), &entry, true).await.unwrap();
    let urls = found.requests(&settings).into_iter().map(|request| match request {
        PurgeRequest::Url { host, path } => (host, path),
        other => panic!("{other:?}"),
    });
    let mut urls: Vec<_> = urls.collect();
    urls.sort();
    let paths = ["?rev/", "?rev/latest/"].map(|query| format!("/v1/enwiki/other/A{query}"));
    let expected = hosts.iter().flat_map(|host| paths.iter().map(|path| (host.clone(), path.clone())));
    assert_eq!(urls, expected.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn answers_that_did_not_change_are_not_named() {
    let machine = Machine::new().await;
    let records = machine.process(&FakeCache::new()).records;
    // Renders 0 and 1 belong to a stored revision that has changed. Render 2 belongs to a new revision alone.
    store_renders(&machine, rev(2), 2).await;
    store_renders(&machine, rev(3), 3).await;
    let (title, revisions, stored) = (page("A").title, (rev(2), rev(3)), Some((rev(2), rev(2))));
    let names = [PropertyName::new("html").unwrap()].into();
    let change = PageChange { title, revisions, stored, bodies: false, names };
    let entry = PurgeEntry { change: PurgedChange::Page(change), ..change_of_bodies() };
    let found = targets_of(&records, &Sites::default(), &entry, true).await.unwrap();
    let urls =
        found.requests(&cache_settings("a", CacheMethod::Purge)).into_iter().map(|request| match request {
            PurgeRequest::Url { path, .. } => path.trim_start_matches("/v1/enwiki/page/A").to_owned(),
            other => panic!("{other:?}"),
        });
    let mut urls: Vec<_> = urls.collect();
    urls.sort();
    let mut expected: Vec<_> =
        ["", "?rev/latest/", "?rev/latest/html", "?rev/", "?timemap/html", "?rev/2/", "?rev/2/html"]
            .map(str::to_owned)
            .into();
    expected.extend([0, 1].map(|number| format!("?rev/{}/", tid(number))));
    expected.sort();
    assert_eq!(urls, expected);
}

#[tokio::test(start_paused = true)]
async fn keys_of_changed_bodies_are_found_by_reading_only_their_renders() {
    let machine = Machine::new().await;
    let records = machine.process(&FakeCache::new()).records;
    store_renders(&machine, rev(1), 50).await;
    store_renders(&machine, rev(2), 1).await;
    targets(&records, CacheMethod::Keys).await;
    assert_eq!(machine.calls(RENDERS.name(), Kind::Scan), 1);
    assert_eq!(machine.calls(REVISIONS.name(), Kind::Scan), 0);
}

/// Caches keep only what clients without a token may read.
#[tokio::test(start_paused = true)]
async fn purges_name_nothing_that_only_clients_with_a_token_may_read() {
    let machine = Machine::new().await;
    let records = machine.process(&FakeCache::new()).records;
    let read = Rights::from_iter([Right::Read]);
    let (secret, open) = (BucketName::new("secret").unwrap(), BucketName::new("open").unwrap());
    let closed = DomainRights { anonymous: Some(Rights::NONE), buckets: [(open.clone(), read)].into() };
    let everybody = AnonymousRights { everywhere: read, domains: BTreeMap::new() };
    let nobody = AnonymousRights { everywhere: Rights::NONE, domains: BTreeMap::new() };
    let one_bucket = AnonymousRights { everywhere: read, domains: [(enwiki(), closed)].into() };
    let of_page = change_of_bodies().change;
    let of_entry =
        |private| PurgedChange::Entry { key: EntryKey::new("k").unwrap(), own_life: false, private };
    for (policy, bucket, change, expected) in [
        (Policy::Open, BucketName::page(), of_page.clone(), true),
        (Policy::Open, secret.clone(), of_entry(true), true),
        (Policy::Anonymous(everybody.clone()), BucketName::page(), of_page.clone(), true),
        (Policy::Anonymous(everybody.clone()), secret.clone(), of_entry(false), true),
        (Policy::Anonymous(everybody.clone()), secret.clone(), of_entry(true), false),
        (Policy::Anonymous(everybody.clone()), secret.clone(), PurgedChange::Bucket, true),
        (Policy::Anonymous(everybody), secret.clone(), PurgedChange::PrivateBucket, false),
        (Policy::Anonymous(nobody.clone()), BucketName::page(), of_page.clone(), false),
        (Policy::Anonymous(nobody), secret.clone(), of_entry(false), false),
        (Policy::Anonymous(one_bucket.clone()), BucketName::page(), of_page, false),
        (Policy::Anonymous(one_bucket.clone()), secret, of_entry(false), false),
        (Policy::Anonymous(one_bucket), open, of_entry(true), true),
    ] {
        let entry = PurgeEntry { bucket, change, ..change_of_bodies() };
        let sites = sites().only(move |entry| policy.lets_anybody_read(entry));
        for method in [CacheMethod::Purge, CacheMethod::Keys] {
            let targets = targets_of(&records, &sites, &entry, method == CacheMethod::Purge).await.unwrap();
            let requests = targets.requests(&cache_settings("a", method));
            assert_eq!(!requests.is_empty(), expected, "{sites:?} {entry:?}");
        }
    }
}
