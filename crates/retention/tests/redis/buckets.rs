//! Tests the purpose of the timeline: a write culls values that were superseded long enough ago.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{
    Error, Missing, NewProperty, NewRevision, Page, Policy, PropertyName, Retention, RevisionStore, Settings,
    Tid, Timeline, schemas,
};
use rashomon_tables::{Memory, Scan, TableStore};

use crate::{DAY, Redis, clock, page, rev, timeline};

/// Buckets with a store, a timeline and a policy.
#[derive(Debug)]
pub(crate) struct Wiki {
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) buckets: RevisionStore,
}

impl Wiki {
    pub(crate) async fn new(
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        policy: Policy,
        timeline: Option<Arc<dyn Timeline>>,
    ) -> Self {
        Self::of_process(1, store, clock, policy, timeline).await
    }

    /// Opens a wiki as one of several processes on the store. Each process has its own seed.
    pub(crate) async fn of_process(
        seed: u64,
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        policy: Policy,
        timeline: Option<Arc<dyn Timeline>>,
    ) -> Self {
        let settings = Settings {
            skew: policy.skew,
            retention: Retention {
                policy: Some(policy),
                timeline,
                sample: Duration::ZERO,
                ..Retention::default()
            },
            ..Settings::default()
        };
        let buckets = RevisionStore::open(Arc::clone(&store), clock, settings, seed).await.unwrap();
        Self { store, buckets }
    }

    pub(crate) async fn put(&self, page: &Page, number: i64) -> Tid {
        let new = NewRevision::new(rev(number), vec![self.html(page, &format!("<p>{number}")).await]);
        let written = self.buckets.put_revision(page, new).await.unwrap();
        self.buckets.maintenance().drain_background_culls().await;
        written.tid
    }

    /// Stages html that is not stored yet.
    pub(crate) async fn html(&self, page: &Page, body: &str) -> NewProperty {
        let name = PropertyName::new("html").unwrap();
        let body = self.buckets.stage_bytes(page, &name, body.as_bytes()).await.unwrap();
        NewProperty { name, content_type: None, other_headers: Default::default(), body }
    }

    /// Whether the html of a render is stored, apart from read copies. Reads the table directly, since a read
    /// through the buckets would keep the html.
    pub(crate) async fn is_stored(&self, page: &Page, tid: Tid) -> bool {
        let partition: Vec<_> =
            [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()].map(Into::into).into();
        let limit = std::num::NonZeroUsize::new(100).unwrap();
        let rows = self.store.scan(&schemas::RENDER_CONTENT, Scan::new(partition, limit)).await.unwrap();
        rows.items.iter().any(|row| row.key.clustering.get(2) == Some(&tid.as_time_uuid().into()))
    }
}

/// Creates a wiki in memory, in which every write culls.
async fn culling(redis: &Redis) -> (Wiki, Arc<ManualClock>) {
    let clock = clock();
    let store = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let policy = Policy { delete_probability: 1.0, ..Policy::default() };
    let wiki = Wiki::new(store, clock.clone(), policy, Some(timeline(redis, clock.clone()))).await;
    (wiki, clock)
}

#[tokio::test]
async fn a_write_culls_by_what_redis_knows() {
    let Some(redis) = Redis::start() else { return };
    let (wiki, clock) = culling(&redis).await;
    let page = page("Main_Page");
    let (first, second) = (wiki.put(&page, 1).await, wiki.put(&page, 2).await);
    clock.advance(2 * DAY);
    assert!(wiki.is_stored(&page, first).await);
    wiki.put(&page, 3).await;
    assert!(!wiki.is_stored(&page, first).await);
    assert!(wiki.is_stored(&page, second).await, "superseded just now");
    let html = PropertyName::new("html").unwrap();
    let gone = wiki.buckets.property(&page, first, &html).await.unwrap_err();
    assert!(matches!(gone, Error::NotFound(Missing::Culled { .. })), "{gone}");
}

#[tokio::test]
async fn flushed_redis_culls_nothing_early() {
    let Some(redis) = Redis::start() else { return };
    let (wiki, clock) = culling(&redis).await;
    let page = page("Main_Page");
    let (first, second) = (wiki.put(&page, 1).await, wiki.put(&page, 2).await);
    clock.advance(DAY / 2);
    let third = wiki.put(&page, 3).await;
    assert_eq!(redis.command("FLUSHALL"), "+OK");
    clock.advance(DAY);
    // Now the first render may be culled, but not the second.
    wiki.put(&page, 4).await;
    for tid in [first, second, third] {
        assert!(wiki.is_stored(&page, tid).await);
    }
    // Entries that are added from now on count again.
    clock.advance(2 * DAY);
    let fifth = wiki.put(&page, 5).await;
    for tid in [first, second, third] {
        assert!(!wiki.is_stored(&page, tid).await, "superseded by the fourth, or earlier");
    }
    assert!(wiki.is_stored(&page, fifth).await);
}

#[tokio::test]
async fn missing_redis_stops_no_write_and_no_sweep() {
    let Some(mut redis) = Redis::start() else { return };
    let (wiki, clock) = culling(&redis).await;
    let page = page("Main_Page");
    let first = wiki.put(&page, 1).await;
    redis.kill();
    let second = wiki.put(&page, 2).await;
    clock.advance(2 * DAY);
    wiki.put(&page, 3).await;
    assert!(wiki.is_stored(&page, first).await);
    let sweep = wiki.buckets.maintenance().sweep(std::num::NonZeroUsize::new(1000).unwrap()).await.unwrap();
    assert_eq!(sweep.renders, 1, "{sweep:?}");
    assert!(!wiki.is_stored(&page, first).await && wiki.is_stored(&page, second).await);
}
