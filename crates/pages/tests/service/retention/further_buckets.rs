//! Each further bucket of pages is culled by the policy of its own name.

use std::{sync::Arc, time::Duration};

use rashomon_entries::{BucketType, Definition, KeyValueStore, Settings as KeyValueSettings};
use rashomon_pages::{BucketName, DomainName, Page, Policy, Retention, Settings, Tid, Title};

use crate::{
    retention::{DAY, HOUR, policy},
    support::{World, on_every_store, page},
};

on_every_store![further_buckets_are_culled_by_their_own_policies];

const DRAFTS: &str = "drafts";
const DOCS: &str = "docs";
const LOGS: &str = "logs";

const SLACK: Duration = Duration::from_secs(600);

fn domain() -> DomainName {
    DomainName::new("enwiki").unwrap()
}

fn with_grace(grace: Duration) -> Policy {
    Policy { grace, ttl: grace, slack: SLACK, ..policy() }
}

/// Drafts are culled sooner than pages, documentation later, and logs never.
fn settings() -> Settings {
    let policies = [(DRAFTS, Some(with_grace(HOUR))), (DOCS, Some(with_grace(10 * DAY))), (LOGS, None)];
    let buckets = policies.map(|(name, policy)| ((domain(), BucketName::new(name).unwrap()), policy)).into();
    let retention = Retention { policy: Some(with_grace(DAY)), buckets, ..Retention::default() };
    Settings { retention, skew: policy().skew, ..Settings::default() }
}

/// Makes a bucket of pages. Returns the page of a title in it.
async fn page_in_new_bucket(world: &World, name: &str, title: &str) -> Page {
    let key_value =
        KeyValueStore::new(Arc::clone(world.buckets.parts().records), KeyValueSettings::default());
    let name = BucketName::new(name).unwrap();
    let made =
        key_value.create_bucket(&domain(), &name, Definition::of(BucketType::Revisioned)).await.unwrap();
    Page { domain: domain(), bucket: made.bucket.pages().unwrap(), title: Title::new(title).unwrap() }
}

/// Stores two revisions, and returns the tid of the superseded one.
async fn superseded(world: &World, page: &Page) -> Tid {
    let first = world.put_revision(page, 1, &[("html", "<p>"), ("wikitext", "text")]).await.unwrap();
    world.put_revision(page, 2, &[("html", "<b>"), ("wikitext", "more")]).await.unwrap();
    first.tid
}

async fn further_buckets_are_culled_by_their_own_policies(world: World) {
    let world = world.restarted_with(settings()).await;
    let (mut pages, mut tids) = (vec![page("Main_Page")], Vec::new());
    for bucket in [DRAFTS, DOCS, LOGS] {
        pages.push(page_in_new_bucket(&world, bucket, "Main_Page").await);
    }
    for page in &pages {
        tids.push(superseded(&world, page).await);
    }
    // The time that passes, and whether the superseded revisions of `page`, drafts, docs and logs are kept.
    for (passes, kept) in [
        (HOUR - SLACK, [true, true, true, true]),
        (2 * SLACK, [true, false, true, true]),
        (DAY - HOUR - 2 * SLACK, [true, false, true, true]),
        (2 * SLACK, [false, false, true, true]),
        (9 * DAY - 2 * SLACK, [false, false, true, true]),
        (2 * SLACK, [false, false, false, true]),
    ] {
        world.pass(passes);
        world.sweep().await;
        for (tid, kept) in tids.iter().zip(kept) {
            world.assert_stored(*tid, "html", kept).await;
        }
    }
    for page in &pages {
        assert_eq!(world.read_latest(page, "html").await, b"<b>");
    }
    world.assert_consistent().await;
}
