//! Further buckets of pages. Each bucket has its own revisions, in rows and in blocks. A deleted bucket leaves
//! no rows.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock};
use rashomon_entries::{BucketType, Definition, Error, KeyValueStore, Settings as KeyValueSettings};
use rashomon_pages::operations::{BucketContent, delete_pages, stats};
use rashomon_pages::{BucketName, DomainName, Page, SealOptions, Settings, Title, schemas};
use rashomon_tables::{Call, Fault, Faulty, Key, Memory, Plan};

use crate::{
    archive::{DAY, seal_delay, settings},
    support::{AnyStore, Cluster, DamagedStore, START, World, on_every_store, page, rev},
};

fn domain() -> DomainName {
    DomainName::new("enwiki").unwrap()
}

fn docs() -> BucketName {
    BucketName::new("docs").unwrap()
}

impl World {
    pub(crate) fn key_value(&self) -> KeyValueStore {
        KeyValueStore::new(Arc::clone(self.buckets.parts().records), KeyValueSettings::default())
    }

    /// Creates the bucket `docs`, and returns its name with its id.
    pub(crate) async fn make_docs(&self) -> BucketName {
        let definition = Definition::of(BucketType::Revisioned);
        let made = self.key_value().create_bucket(&domain(), &docs(), definition).await.unwrap();
        made.bucket.pages().unwrap()
    }

    async fn delete_docs(&self) {
        assert!(self.key_value().delete_bucket(&domain(), &docs()).await.unwrap());
    }

    /// Runs the garbage collection of deleted buckets.
    async fn collect_deleted(&self, age: Duration) -> rashomon_pages::Result<u64> {
        let pages = delete_pages(&self.buckets, &self.key_value(), age).await?;
        self.key_value().collect(age).await?;
        Ok(pages)
    }

    async fn seal_bucket(&self, bucket: &BucketName) -> u64 {
        let options = SealOptions::default();
        self.buckets.maintenance().seal(&domain(), bucket, options, &mut |_| {}).await.unwrap().revisions
    }

    /// The rows, as text, that contain the key of the bucket.
    async fn rows_of(&self, bucket: &BucketName) -> Vec<String> {
        let rows = self.dump().await;
        rows.into_iter().filter(|row| row.contains(bucket.as_key())).collect()
    }
}

fn in_bucket(bucket: &BucketName, title: &str) -> Page {
    Page { domain: domain(), bucket: bucket.clone(), title: Title::new(title).unwrap() }
}

async fn buckets_with_the_same_titles_do_not_see_each_other(world: World) {
    let world = world.restarted_with(settings()).await;
    let docs = world.make_docs().await;
    let (one, other) = (page("Main_Page"), in_bucket(&docs, "Main_Page"));
    for number in 1..=3 {
        world.put_revision(&one, number, &[("wikitext", format!("page {number}"))]).await.unwrap();
        world.put_revision(&other, number + 1, &[("wikitext", format!("docs {number}"))]).await.unwrap();
    }
    let before = (world.read_everything(&one).await, world.read_everything(&other).await);
    assert_eq!((world.latest_rev(&one).await, world.latest_rev(&other).await), (Some(3), Some(4)));
    assert_eq!(world.read_latest(&other, "wikitext").await, b"docs 3");
    world.pass(seal_delay());
    // Each bucket is sealed by itself.
    assert_eq!(world.seal_bucket(&docs).await, 2);
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 1);
    assert_eq!(world.seal_bucket(&BucketName::page()).await, 2);
    let world = world.reopened().await;
    assert_eq!((world.read_everything(&one).await, world.read_everything(&other).await), before);
    let report = world.assert_consistent().await;
    assert_eq!((report.pages, report.blocks), (2, 2));
    let counted = stats(&world.buckets, &domain(), &mut |_| {}).await.unwrap();
    let BucketContent::Pages { stats: of_docs, .. } = &counted.buckets[&self::docs()] else { panic!() };
    for stats in [&counted.page, &**of_docs] {
        let sealed = stats.archive.as_ref().unwrap().revisions;
        assert_eq!((stats.pages, stats.revisions, sealed), (1, 3, 2));
    }
    // An erasure in one bucket leaves the same revision of the other one.
    let options = rashomon_pages::operations::EraseOptions::default();
    rashomon_pages::operations::erase(&world.buckets, &other, rev(2), options).await.unwrap();
    assert_eq!(world.read_everything(&one).await, before.0);
    assert!(world.buckets.revision(&other, rev(2)).await.unwrap().record.erased.is_some());
}

async fn deleted_bucket_leaves_nothing(world: World) {
    let world = world.restarted_with(settings()).await;
    let old = world.make_docs().await;
    let kept = page("Main_Page");
    world.edit(&kept, 1..=3).await;
    let large = "large ".repeat(400_000);
    for title in ["A", "B", "Main_Page"] {
        world.edit(&in_bucket(&old, title), 1..=3).await;
        world.put_revision(&in_bucket(&old, title), 4, &[("meta", &large)]).await.unwrap();
    }
    world.pass(seal_delay());
    world.seal_bucket(&old).await;
    rashomon_pages::operations::erase(&world.buckets, &in_bucket(&old, "A"), rev(1), Default::default())
        .await
        .unwrap();
    let before = world.read_everything(&kept).await;
    world.delete_docs().await;
    assert!(matches!(world.key_value().page_bucket(&domain(), &docs()).await, Err(Error::NoBucket)));
    // The bucket can be made again at once. It is empty, and keeps its own pages.
    let new = world.make_docs().await;
    assert_ne!(old, new);
    assert_eq!(world.latest_rev(&in_bucket(&new, "A")).await, None);
    world.put_revision(&in_bucket(&new, "A"), 1, &[("wikitext", "new")]).await.unwrap();
    world.assert_consistent().await;
    assert_eq!(world.collect_deleted(DAY).await.unwrap(), 3);
    world.assert_consistent().await;
    // A request that found the bucket before its deletion stores a revision.
    world.put_revision(&in_bucket(&old, "A"), 9, &[("wikitext", "late")]).await.unwrap();
    assert_eq!(world.collect_deleted(DAY).await.unwrap(), 1);
    assert!(!world.rows_of(&old).await.is_empty(), "the titles are still there");
    world.pass(seal_delay());
    assert_eq!(world.collect_deleted(DAY).await.unwrap(), 0);
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    let is_no_queue_entry = |row: &String| !row.starts_with("due ");
    assert_eq!(
        world.rows_of(&old).await.into_iter().filter(is_no_queue_entry).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    for table in [&*schemas::CHUNKS, &*schemas::ARCHIVE_BLOCKS, &*schemas::DELETED_BUCKETS] {
        assert_eq!(world.rows(table).await, [], "{table:?}");
    }
    assert_eq!(world.read_everything(&kept).await, before);
    assert_eq!(world.read_latest(&in_bucket(&new, "A"), "wikitext").await, b"new");
    world.assert_consistent().await;
}

on_every_store!(buckets_with_the_same_titles_do_not_see_each_other, deleted_bucket_leaves_nothing);

/// A deletion that was interrupted at a call of the store is completed by later runs. Every third call is tested.
#[tokio::test]
async fn interrupted_deletion_is_completed_by_later_runs() {
    for clustered in [false, true] {
        for (call, fault) in [
            (Call::Get, Fault::Before),
            (Call::Scan, Fault::Before),
            (Call::Write, Fault::Before),
            (Call::Write, Fault::After),
        ] {
            for number in (1..).step_by(3) {
                let clock = Arc::new(ManualClock::new(START));
                let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
                let store: AnyStore =
                    if clustered { Arc::new(Cluster::new(memory)) } else { Arc::new(memory) };
                let faulty = Arc::new(Faulty::new(store, Plan::empty()));
                let world = World::on(Arc::clone(&faulty) as AnyStore, clock, settings(), 1).await;
                let bucket = world.make_docs().await;
                for title in ["A", "B"] {
                    world.edit(&in_bucket(&bucket, title), 1..=3).await;
                }
                world.pass(seal_delay());
                world.seal_bucket(&bucket).await;
                world.delete_docs().await;
                world.pass(seal_delay());
                faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                let interrupted = world.collect_deleted(DAY).await;
                faulty.set_plan(Plan::empty());
                let world = world.reopened().await;
                world.assert_consistent().await;
                for _ in 0..2 {
                    world.collect_deleted(DAY).await.unwrap();
                }
                world.pass(seal_delay());
                world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
                assert_eq!(world.rows_of(&bucket).await, Vec::<String>::new(), "{call:?} {number} {fault:?}");
                assert_eq!(world.rows(&schemas::DELETED_BUCKETS).await, []);
                if interrupted.is_ok() {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn verify_reports_a_page_of_an_unknown_bucket() {
    let world = World::in_memory_with(Settings::default()).await;
    world.put_revision(&in_bucket(&docs().with_id([7; 16]), "A"), 1, &[("wikitext", "lost")]).await.unwrap();
    let report = world.verify().await;
    assert!(
        report.problems[0].contains("bucket docs, title A: its bucket neither exists nor is being deleted"),
        "{report:?}"
    );
}

#[tokio::test]
async fn damaged_domain_with_only_a_further_bucket_is_found() {
    let (world, store) = World::over_memory(DamagedStore::new).await;
    world.make_docs().await;
    store.damage(&schemas::DOMAINS, Key::new(vec!["domains".into()], vec!["enwiki".into()]));
    assert_eq!(world.buckets.catalog().domains().await.unwrap(), [domain()]);
    assert!(world.buckets.catalog().has_domain(&domain()).await.unwrap());
}
