//! Definitions of buckets, and their deletion.

use std::time::Duration;

use rashomon_entries::{BucketType, Definition, Error, KeyRange, Order};

use crate::support::{World, blob, domain, list, name, ordered};

#[tokio::test]
async fn bucket_is_made_once() {
    let world = World::new().await;
    let (domain, images) = (domain(), name("images"));
    assert_eq!(world.store.bucket(&domain, &images).await.unwrap(), None);
    let made = world.store.create_bucket(&domain, &images, blob()).await.unwrap();
    assert!(made.is_new);
    let again = world.store.create_bucket(&domain, &images, blob()).await.unwrap();
    assert!(!again.is_new);
    assert_eq!(again.bucket, made.bucket);
    let other = world.store.create_bucket(&domain, &images, ordered()).await;
    assert!(matches!(other, Err(Error::OtherDefinition { stored }) if *stored == made.bucket));
    assert_eq!(*world.store.bucket(&domain, &images).await.unwrap().unwrap(), made.bucket);
}

#[tokio::test]
async fn processes_that_make_a_bucket_at_once_agree() {
    let world = World::cluster().await;
    let (domain, images) = (domain(), name("images"));
    let processes: Vec<_> = (2..10).map(|seed| world.process(seed)).collect();
    let made = processes.iter().map(|process| process.create_bucket(&domain, &images, blob()));
    let made = futures::future::try_join_all(made).await.unwrap();
    assert_eq!(made.iter().filter(|made| made.is_new).count(), 1);
    assert!(made.iter().all(|one| one.bucket == made[0].bucket));
}

#[tokio::test]
async fn ensure_bucket_accepts_equal_definitions_and_refuses_reserved_names() {
    let world = World::cluster().await;
    let (domain, images) = (domain(), name("images"));
    let processes: Vec<_> = (2..6).map(|seed| world.process(seed)).collect();
    let made = processes.iter().map(|process| process.ensure_bucket(&domain, &images, blob()));
    let made = futures::future::try_join_all(made).await.unwrap();
    assert_eq!(made.iter().filter(|made| made.is_new).count(), 1);
    let filled = blob().with_defaults(world.store.body_limit());
    let again = world.store.ensure_bucket(&domain, &images, filled).await.unwrap();
    assert_eq!((again.is_new, &again.bucket), (false, &made[0].bucket));
    let other = world.store.ensure_bucket(&domain, &images, ordered()).await;
    assert!(matches!(other, Err(Error::OtherDefinition { .. })));
    for reserved in ["page", "import", "export", "changes", "digest", "timeline"] {
        let refused = world.store.ensure_bucket(&domain, &name(reserved), blob()).await;
        assert!(matches!(refused, Err(Error::ReservedName { .. })), "{reserved}");
    }
}

#[tokio::test]
async fn definition_is_replaced_only_with_its_version_and_type() {
    let world = World::new().await;
    let (domain, images) = (domain(), name("images"));
    let made = world.bucket("images", blob()).await;
    let with_ttl = Definition { ttl: Some(60), ..blob() };
    let refused = world.store.replace_definition(&domain, &images, with_ttl.clone(), &|_| false).await;
    assert!(matches!(refused, Err(Error::ConditionFailed)));
    let refused = world.store.replace_definition(&domain, &images, ordered(), &|_| true).await;
    assert!(matches!(refused, Err(Error::OtherDefinition { .. })));
    let replaced = world
        .store
        .replace_definition(&domain, &images, with_ttl.clone(), &|tag| *tag == made.etag)
        .await
        .unwrap();
    assert_eq!(replaced.definition, with_ttl);
    assert_ne!(replaced.etag, made.etag);
    let missing = world.store.replace_definition(&domain, &name("none"), blob(), &|_| true).await;
    assert!(matches!(missing, Err(Error::ConditionFailed)));
}

#[tokio::test]
async fn buckets_of_a_domain_are_listed_in_order() {
    let world = World::new().await;
    for text in ["c", "a", "b"] {
        world.bucket(text, blob()).await;
    }
    let page = world.store.buckets(&domain(), None, 2).await.unwrap();
    assert_eq!(page.items.iter().map(|bucket| bucket.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let rest = world.store.buckets(&domain(), page.next.as_ref(), 2).await.unwrap();
    assert_eq!(rest.items.iter().map(|bucket| bucket.name.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(rest.next, None);
}

#[tokio::test]
async fn bucket_of_another_version_is_not_deleted() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    let refused = world.store.delete_bucket_if(&domain(), &name("images"), &|tag| *tag != bucket.etag).await;
    assert!(matches!(refused, Err(Error::ConditionFailed)), "{refused:?}");
    assert!(world.store.bucket(&domain(), &name("images")).await.unwrap().is_some());
    let deleted = world.store.delete_bucket_if(&domain(), &name("images"), &|tag| *tag == bucket.etag).await;
    assert!(deleted.unwrap());
}

#[tokio::test]
async fn bucket_made_again_is_empty_and_keeps_its_entries() {
    let world = World::new().await;
    let old = world.bucket("images", blob()).await;
    world.put(&old, "a", b"old").await;
    world.put(&old, "large", &[7; 2_500_000]).await;
    assert!(world.store.delete_bucket(&domain(), &name("images")).await.unwrap());
    assert!(!world.store.delete_bucket(&domain(), &name("images")).await.unwrap());
    assert_eq!(world.store.bucket(&domain(), &name("images")).await.unwrap(), None);
    let new = world.bucket("images", blob()).await;
    assert!(world.entry(&new, "a").await.is_none());
    world.put(&new, "a", b"new").await;
    // A request that found the old bucket stores an entry after the first collection.
    world.store.collect(Duration::from_secs(3600)).await.unwrap();
    assert!(world.entry(&old, "a").await.is_none());
    world.put(&old, "late", b"late").await;
    world.clock.advance(Duration::from_secs(7200));
    assert!(world.store.collect(Duration::from_secs(3600)).await.unwrap() > 0);
    assert!(world.entry(&old, "late").await.is_none());
    assert!(list(&world.store, &old, &KeyRange::all(), Order::Ascending, 10).await.is_empty());
    assert_eq!(world.body(&new, "a").await.unwrap(), b"new");
    // The collector has nothing left to do, and the chunks were deleted.
    assert_eq!(world.store.collect(Duration::from_secs(3600)).await.unwrap(), 0);
    for table in [&*rashomon_records::schemas::CHUNKS, &*rashomon_records::schemas::DELETED_BUCKETS] {
        assert!(!rashomon_records::schemas::has_rows(&*world.tables, table).await.unwrap(), "{table:?}");
    }
}

#[tokio::test]
async fn invalid_definitions_are_refused() {
    let world = World::new().await;
    let limit = world.store.body_limit();
    for (definition, word) in [
        (Definition { ttl: Some(0), ..blob() }, "ttl"),
        (Definition { max_size: Some(0), ..blob() }, "max_size"),
        (Definition { max_size: Some(limit + 1), ..blob() }, "max_size"),
        (Definition { content_type: Some("text".to_owned()), ..blob() }, "content_type"),
        (Definition { content_type: Some("text/pl\nain".to_owned()), ..blob() }, "content_type"),
        (Definition { ttl: Some(1), ..Definition::of(BucketType::Counter) }, "ttl"),
        (Definition { max_size: Some(1), ..Definition::of(BucketType::Revisioned) }, "max_size"),
    ] {
        let error = world.store.create_bucket(&domain(), &name("images"), definition.clone()).await;
        let error = error.expect_err("refused").to_string();
        assert!(error.contains(word), "{definition}: {error}");
    }
    assert_eq!(world.store.bucket(&domain(), &name("images")).await.unwrap(), None);
}
