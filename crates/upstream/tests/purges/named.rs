//! Random changes of a real server: every cacheable answer that a change makes wrong is named, by its URL and by its keys.
//! Answers of other pages are not named.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use rashomon_pages::operations::{EraseOptions, erase};
use rashomon_pages::{Page, Policy, Retention, Revision, schemas};
use rashomon_records::{PurgeEntry, PurgeId};
use rashomon_tables::{Memory, Scan, TableStore};
use rashomon_upstream::purges::{CacheMethod, PurgeRequest, targets_of};

use crate::world::{API_HOST, Answer, HOSTS, RuntimeClock, World, cache_settings, page, sites};

const TITLES: [&str; 3] = ["Main_Page", "R&D's_1+1=2/x?", "Übung"];

const NAMES: [&str; 4] = ["html", "wikitext", "data-parsoid", "notes"];

/// An address: the host, and the path with its query.
type Address = (String, String);

/// The spellings of the titles in URLs.
fn spellings(title: &str) -> &'static [&'static str] {
    match title {
        "Main_Page" => &["Main_Page"],
        "Übung" => &["%C3%9Cbung"],
        _ => &["R%26D%27s_1%2B1%3D2/x%3F", "R&D's_1+1=2/x%3F"],
    }
}

/// A random change.
#[derive(Debug, Clone)]
enum Change {
    Revision { title: usize, rev: i64, names: Vec<usize>, text: u8, imported: bool },
    Render { title: usize, rev: i64, names: Vec<usize>, text: u8, imported: bool },
    Rewrite { title: usize, render: usize, name: usize, text: u8 },
    Erase { title: usize, rev: i64 },
    Cull,
    PutEntry { key: usize, own_life: bool },
    DeleteEntry { key: usize },
    MakeBucketPublic { public: bool },
    DeleteBucket,
}

fn changes() -> impl proptest::strategy::Strategy<Value = Vec<Change>> {
    use proptest::{collection::vec, prelude::*};
    let names = || vec(0..NAMES.len(), 1..4);
    let written = || (0..TITLES.len(), 1..6_i64, names(), 0..4_u8, any::<bool>());
    let change = prop_oneof![
        6 => written().prop_map(|(title, rev, names, text, imported)| Change::Revision { title, rev, names, text, imported }),
        6 => written().prop_map(|(title, rev, names, text, imported)| Change::Render { title, rev, names, text, imported }),
        4 => (0..TITLES.len(), 0..8_usize, 0..NAMES.len(), 0..4_u8)
            .prop_map(|(title, render, name, text)| Change::Rewrite { title, render, name, text }),
        1 => (0..TITLES.len(), 1..6_i64).prop_map(|(title, rev)| Change::Erase { title, rev }),
        2 => Just(Change::Cull),
        2 => (0..2_usize, any::<bool>()).prop_map(|(key, own_life)| Change::PutEntry { key, own_life }),
        1 => (0..2_usize).prop_map(|key| Change::DeleteEntry { key }),
        1 => any::<bool>().prop_map(|public| Change::MakeBucketPublic { public }),
        1 => Just(Change::DeleteBucket),
    ];
    vec(change, 10..25)
}

const KEYS: [(&str, &[&str]); 2] = [("a b/c", &["a%20b/c"]), ("x&y", &["x%26y", "x&y"])];

/// A server, with the data that a test has written.
struct Tester {
    world: World,
    store: Arc<Memory>,
    clock: Arc<RuntimeClock>,
    /// All tids that were ever stored, by title.
    tids: HashMap<usize, Vec<String>>,
    seen: BTreeSet<PurgeId>,
    /// The time of the next import.
    imports: u32,
}

impl Tester {
    async fn new() -> Self {
        let clock = RuntimeClock::new();
        let store = Arc::new(Memory::new(clock.clone()));
        let policy = Policy { grace: Duration::from_secs(3600), ..Policy::default() };
        let retention = Retention { policy: Some(policy), ..Retention::default() };
        let world = World::open(store.clone(), clock.clone(), retention, Vec::new()).await;
        Self { world, store, clock, tids: HashMap::new(), seen: BTreeSet::new(), imports: 0 }
    }

    /// The addresses of all answers that a cache may have, with the title or the key that each of them shows.
    fn addresses(&self) -> BTreeMap<Address, String> {
        let mut addresses = BTreeMap::new();
        for (index, title) in TITLES.iter().enumerate() {
            let mut queries: Vec<String> =
                ["", "?rev", "?rev/", "?rev/latest", "?rev/latest/"].map(str::to_owned).to_vec();
            let mut selectors = vec!["latest".to_owned()];
            selectors.extend((1..6).map(|rev| rev.to_string()));
            selectors.extend(self.tids.get(&index).into_iter().flatten().cloned());
            for name in NAMES {
                queries.extend(selectors.iter().map(|of| format!("?rev/{of}/{name}")));
                queries.extend([format!("?timemap/{name}"), format!("?timegate/{name}")]);
            }
            queries.extend(selectors.iter().flat_map(|of| [format!("?rev/{of}"), format!("?rev/{of}/")]));
            for spelling in spellings(title) {
                for query in &queries {
                    let v1 = (API_HOST.to_owned(), format!("/v1/enwiki/page/{spelling}{query}"));
                    addresses.insert(v1, (*title).to_owned());
                    for host in HOSTS {
                        let wiki = (host.to_owned(), format!("/wiki/{spelling}{query}"));
                        addresses.insert(wiki, (*title).to_owned());
                    }
                }
            }
        }
        for (key, spellings) in KEYS {
            for spelling in spellings {
                let v1 = (API_HOST.to_owned(), format!("/v1/enwiki/math/{spelling}"));
                addresses.insert(v1, key.to_owned());
                for host in HOSTS {
                    addresses
                        .insert((host.to_owned(), format!("/wiki/?blob/math/{spelling}")), key.to_owned());
                }
            }
        }
        addresses
    }

    /// The answers that shared caches may use without asking the server.
    async fn cacheable(&self) -> BTreeMap<Address, Answer> {
        let mut answers = BTreeMap::new();
        for (host, path) in self.addresses().into_keys() {
            let mut answer = self.world.send("GET", &host, &path, None).await;
            let caching = answer.header("cache-control").to_owned();
            let is_kept = ["max-age=0", "no-store", "private"].iter().all(|word| !caching.contains(word))
                || caching.split("s-maxage=").nth(1).is_some_and(|seconds| !seconds.starts_with('0'));
            if is_kept {
                assert!(answer.status.as_u16() < 400, "{path}: {answer:?}");
                answer.headers.remove("x-request-id");
                answers.insert((host, path), answer);
            }
        }
        answers
    }

    async fn answer(&self, (host, path): &Address) -> Answer {
        let mut answer = self.world.send("GET", host, path, None).await;
        answer.headers.remove("x-request-id");
        answer
    }

    /// The entries that were queued since the last call.
    async fn queued(&mut self) -> Vec<PurgeEntry> {
        let many = NonZeroUsize::new(10_000).unwrap();
        let mut queued = Vec::new();
        let partitions = self.store.partitions(&schemas::PURGES, None, many).await.unwrap();
        for partition in partitions.items {
            let rows = self.store.scan(&schemas::PURGES, Scan::new(partition, many)).await.unwrap();
            queued.extend(rows.items.iter().map(|row| PurgeEntry::from_row(row).unwrap()));
        }
        queued.retain(|entry| self.seen.insert(entry.id));
        queued
    }

    fn form(names: &[usize], text: u8) -> String {
        let mut names = names.to_vec();
        names.sort_unstable();
        names.dedup();
        let fields = names.iter().map(|name| match NAMES[*name] {
            "data-parsoid" => format!("data-parsoid={{\"t\":{text}}}"),
            name => format!("{name}=text{text}"),
        });
        fields.collect::<Vec<_>>().join("&")
    }

    fn timestamp(&mut self) -> String {
        self.imports += 1;
        format!("&_timestamp=2020-01-01T00:{:02}:{:02}Z", self.imports / 60, self.imports % 60)
    }

    /// Carries out a change. Returns the title or the key that it changes, or `None` if it changes several.
    async fn apply(&mut self, change: &Change) -> Option<String> {
        self.clock.advance(Duration::from_secs(10));
        let of_page =
            |title: usize, query: &str| format!("/v1/enwiki/page/{}{query}", spellings(TITLES[title])[0]);
        match change.clone() {
            Change::Revision { title, rev, names, text, imported } => {
                let mut form = format!("_rev={rev}&{}", Self::form(&names, text));
                if imported {
                    form += &self.timestamp();
                }
                self.post(title, &of_page(title, "?rev/"), &form).await;
                Some(TITLES[title].to_owned())
            }
            Change::Render { title, rev, names, text, imported } => {
                let mut form = Self::form(&names, text);
                if imported {
                    form += &self.timestamp();
                }
                self.post(title, &of_page(title, &format!("?rev/{rev}/")), &form).await;
                Some(TITLES[title].to_owned())
            }
            Change::Rewrite { title, render, name, text } => {
                let tids = self.tids.get(&title).cloned().unwrap_or_default();
                if let Some(tid) = tids.get(render) {
                    let url = of_page(title, &format!("?rev/{tid}/{}", NAMES[name]));
                    self.world.send("PUT", API_HOST, &url, Some(&format!("other{text}"))).await;
                }
                Some(TITLES[title].to_owned())
            }
            Change::Erase { title, rev } => {
                let (page, rev): (Page, _) = (page(TITLES[title]), Revision::new(rev).unwrap());
                let _ = erase(&self.world.buckets, &page, rev, EraseOptions::default()).await;
                Some(TITLES[title].to_owned())
            }
            Change::Cull => {
                self.clock.advance(Duration::from_secs(2 * 3600));
                loop {
                    let many = NonZeroUsize::new(1000).unwrap();
                    let sweep = self.world.buckets.maintenance().sweep(many).await.unwrap();
                    if sweep.entries == 0 {
                        break;
                    }
                }
                self.world.buckets.maintenance().drain_background_culls().await;
                None
            }
            Change::PutEntry { key, own_life } => {
                self.world
                    .send("PUT", API_HOST, "/v1/enwiki/math", Some(r#"{"type":"blob","public":true}"#))
                    .await;
                let url = format!("/v1/enwiki/math/{}", KEYS[key].1[0]);
                let request = http::Request::builder().method("PUT").uri(url);
                let request = match own_life {
                    true => request.header("cache-control", "max-age=100, s-maxage=9999"),
                    false => request,
                };
                self.imports += 1;
                self.world.request(request, self.imports.to_string()).await;
                Some(KEYS[key].0.to_owned())
            }
            Change::DeleteEntry { key } => {
                let url = format!("/v1/enwiki/math/{}", KEYS[key].1[0]);
                self.world.send("DELETE", API_HOST, &url, None).await;
                Some(KEYS[key].0.to_owned())
            }
            Change::MakeBucketPublic { public } => {
                let etag = self.world.send("GET", API_HOST, "/v1/enwiki/math", None).await;
                let definition = format!("{{\"type\":\"blob\",\"public\":{public}}}");
                let request = http::Request::builder().method("PUT").uri("/v1/enwiki/math");
                let request = request.header("content-type", "application/json");
                self.world.request(request.header("if-match", etag.header("etag")), definition).await;
                None
            }
            Change::DeleteBucket => {
                self.world.send("DELETE", API_HOST, "/v1/enwiki/math", None).await;
                None
            }
        }
    }

    async fn post(&mut self, title: usize, url: &str, form: &str) {
        let answer = self.world.send("POST", API_HOST, url, Some(form)).await;
        if let Some(tid) = answer.status.is_success().then(|| answer.header("location").to_owned()) {
            let tid = tid.rsplit("?rev/").next().unwrap_or_default().trim_end_matches('/').to_owned();
            let tids = self.tids.entry(title).or_default();
            if !tids.contains(&tid) {
                tids.push(tid);
            }
        }
    }

    /// Carries out a change, and checks which answers its purge names. Returns the number of answers that it made
    /// wrong.
    async fn check(&mut self, change: &Change) -> usize {
        let before = self.cacheable().await;
        self.queued().await;
        let about = self.apply(change).await;
        let records = Arc::clone(self.world.buckets.parts().records);
        let (mut urls, mut keys, mut prefixes) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for entry in self.queued().await {
            let targets = targets_of(&records, &sites(), &entry, true).await.unwrap();
            keys.extend(targets.keys().iter().map(ToString::to_string));
            let with_keys_only = targets_of(&records, &sites(), &entry, false).await.unwrap();
            assert_eq!(with_keys_only.keys(), targets.keys());
            for request in targets.requests(&cache_settings("a", CacheMethod::Purge)) {
                match request {
                    PurgeRequest::Url { host, path } => drop(urls.insert((host, path))),
                    PurgeRequest::Prefix { host, prefix } => prefixes.push((host, prefix)),
                    PurgeRequest::Keys(_) => panic!("the cache does not know keys"),
                }
            }
        }
        let is_named = |(host, path): &Address| {
            urls.contains(&(host.clone(), path.clone()))
                || prefixes.iter().any(|(of, prefix)| of == host && path.starts_with(prefix))
        };
        let mut wrong = 0;
        for (address, answer) in &before {
            if self.answer(address).await == *answer {
                continue;
            }
            wrong += 1;
            assert!(is_named(address), "{change:?} does not name {address:?}\n{answer:?}");
            let own = answer.header("xkey").split(' ').any(|key| keys.contains(key));
            assert!(own, "{change:?} does not name the keys of {address:?}\n{answer:?}");
        }
        if let Some(about) = about {
            for (address, of) in self.addresses() {
                assert!(of == about || !is_named(&address), "{change:?} names {address:?}");
            }
        }
        wrong
    }
}

#[tokio::test(start_paused = true)]
async fn every_changed_answer_is_named_and_no_answer_of_another_page() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut wrong = BTreeMap::new();
    for _ in 0..12 {
        let mut tester = Tester::new().await;
        for change in changes().new_tree(&mut runner).unwrap().current() {
            let kind = format!("{change:?}").split([' ', '{']).next().unwrap_or_default().to_owned();
            *wrong.entry(kind).or_insert(0) += tester.check(&change).await;
        }
    }
    // If no change of a kind made an answer wrong, the test would show nothing about that kind.
    for kind in [
        "Revision",
        "Render",
        "Rewrite",
        "Erase",
        "Cull",
        "PutEntry",
        "DeleteEntry",
        "MakeBucketPublic",
        "DeleteBucket",
    ] {
        assert!(wrong.get(kind).is_some_and(|wrong| *wrong > 0), "{kind}: {wrong:?}");
    }
}
