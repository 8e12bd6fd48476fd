//! Two servers share the timeline in Redis. One server loses its page lease while the store is still carrying out
//! the server's write. The other server rolls the write back, so the write has superseded nothing. But the entry
//! of the write stays in Redis.

use std::{sync::Arc, time::Duration};

use rashomon_pages::{Error, Expect, NewRevision, Parent, Policy, StoreError};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, TableStore};
use rashomon_testing::stores::Cluster;

use crate::{DAY, Redis, buckets::Wiki, clock, page, rev, timeline};

/// A time that is longer than a page lease if the clocks agree.
const LEASE: Duration = Duration::from_secs(11);

const SECOND: Duration = Duration::from_secs(1);

/// The revision that the entry names stays the latest for two more days. After it is superseded, it is kept
/// for a whole grace.
#[tokio::test]
async fn entry_of_a_write_that_lost_its_lease_culls_nothing_early() {
    let Some(redis) = Redis::start() else { return };
    let clock = clock();
    let store: Arc<dyn TableStore> = Arc::new(Cluster::new(Memory::new(clock.clone())));
    let calls_of_slow = Arc::new(Faulty::new(Arc::clone(&store), Plan::empty()));
    let policy = Policy { delete_probability: 1.0, ..Policy::default() };
    let process = async |seed, store: Arc<dyn TableStore>| {
        let timeline = timeline(&redis, clock.clone());
        Wiki::of_process(seed, store, clock.clone(), policy.clone(), Some(timeline)).await
    };
    let slow = process(1, calls_of_slow.clone()).await;
    let other = process(2, store).await;
    let page = page("Main_Page");
    let (old, superseded) = (other.put(&page, 4).await, other.put(&page, 5).await);
    clock.advance(SECOND);

    let gate = Gate::new();
    calls_of_slow.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let new = NewRevision {
        if_latest: Some(Parent::Revision(rev(5))),
        ..NewRevision::new(rev(7), vec![slow.html(&page, "slow").await])
    };
    let (buckets, its_page) = (slow.buckets.clone(), page.clone());
    let writer = tokio::spawn(async move { buckets.put_revision(&its_page, new).await });
    gate.reached().await;
    clock.advance(LEASE + policy.skew);
    let revisions = "ZCARD rashomon:revisions:enwiki:page:Main_Page";
    let before = redis.command(revisions);
    // Replacing a property needs the lease, so this call rolls the write back. The call itself supersedes
    // nothing.
    let replaced = other.html(&page, "replaced").await;
    other.buckets.rewrite(&page, old, replaced, Expect::Any).await.unwrap();
    gate.open();
    let result = writer.await.unwrap();
    assert!(matches!(result, Err(Error::Store(StoreError::Unavailable(_)))), "{result:?}");
    assert_eq!(other.buckets.latest_render(&page).await.unwrap().tid, superseded, "the write was undone");
    assert_ne!(redis.command(revisions), before, "the writer added no entry, so this tests nothing");

    clock.advance(2 * DAY);
    other.put(&page, 8).await;
    assert!(other.is_stored(&page, superseded).await, "superseded just now");
    clock.advance(DAY - SECOND);
    other.put(&page, 9).await;
    assert!(other.is_stored(&page, superseded).await, "superseded for less than a grace");
    clock.advance(2 * policy.skew + 2 * SECOND);
    other.put(&page, 10).await;
    assert!(!other.is_stored(&page, superseded).await, "superseded for longer than a grace");
}
