//! Large bodies, expiry and garbage collection.

use std::{num::NonZeroUsize, time::Duration};

use rashomon_entries::{Definition, Error};
use rashomon_records::{
    Body,
    schemas::{CHUNKS, ENTRY_CHUNK_SETS, has_rows},
};
use rashomon_tables::{Call, Fault, PartitionStream, Plan};

use crate::support::{World, blob, key, put};

const AGE: Duration = Duration::from_secs(24 * 3600);

fn body(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

async fn chunk_sets(world: &World) -> usize {
    let mut stream = PartitionStream::new(&*world.tables, &CHUNKS, NonZeroUsize::MIN);
    let mut count = 0;
    while stream.next().await.expect("read").is_some() {
        count += 1;
    }
    count
}

#[tokio::test]
async fn large_body_is_read_as_it_was_stored() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    for length in [0, 1, 999_999, 1_000_000, 1_000_001, 2_000_000, 3_456_789] {
        let body = body(length as u64, length);
        world.put(&bucket, "a", &body).await;
        let entry = world.entry(&bucket, "a").await.unwrap();
        assert_eq!(entry.size, length as u64);
        assert_eq!(matches!(entry.body, Body::Chunked(_)), length > 1_000_000, "{length}");
        assert!(world.body(&bucket, "a").await.unwrap() == body, "{length}");
    }
}

/// A small body can be in chunks too: the server moves bodies into chunks when its memory is short.
#[tokio::test]
async fn body_moved_to_chunks_is_read_and_collected() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    for content in [body(3, 5000), vec![7; 5000]] {
        let mut sink = world.store.stage(&bucket, &key("a"));
        sink.write(&content).await.unwrap();
        let staged = sink.finish().await.unwrap();
        let moved = world.store.spill(&bucket, &key("a"), staged).await.unwrap();
        assert_eq!(moved.memory(), 0);
        let headers = rashomon_records::Headers { content_type: "a/b".to_owned(), other: Default::default() };
        world.store.put(&bucket, &key("a"), headers, moved, &|_| true).await.unwrap();
        assert!(world.body(&bucket, "a").await.unwrap() == content);
    }
    world.store.delete(&bucket, &key("a"), &|_| true).await.unwrap();
    world.clock.advance(2 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 2);
    assert_eq!(chunk_sets(&world).await, 0);
}

#[tokio::test]
async fn body_above_the_limit_is_refused() {
    let world = World::new().await;
    let bucket = world.bucket("images", Definition { max_size: Some(10), ..blob() }).await;
    world.put(&bucket, "a", &[1; 10]).await;
    let refused = put(&world.store, &bucket, &key("a"), &[1; 11]).await;
    assert!(matches!(refused, Err(Error::TooLarge { limit: 10 })));
    assert_eq!(world.body(&bucket, "a").await.unwrap().len(), 10);
}

/// A reader that found the entry before it was replaced reads the old body to its end.
#[tokio::test]
async fn reader_of_a_replaced_body_gets_the_whole_old_body() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    let (old, new) = (body(1, 2_500_000), body(2, 2_500_000));
    world.put(&bucket, "a", &old).await;
    world.clock.advance(2 * AGE);
    // The collector forgets the set, since the entry references it.
    assert_eq!(world.store.collect(AGE).await.unwrap(), 0);
    let entry = world.entry(&bucket, "a").await.unwrap();
    world.put(&bucket, "a", &new).await;
    assert_eq!(world.store.collect(AGE).await.unwrap(), 0);
    assert!(entry.body.clone().whole().await.unwrap() == old);
    // A day later the old chunks are gone. The late reader gets an error, and others the new body.
    world.clock.advance(2 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 1);
    assert!(entry.body.clone().whole().await.is_err());
    assert!(world.body(&bucket, "a").await.unwrap() == new);
    assert_eq!(chunk_sets(&world).await, 1);
    world.store.delete(&bucket, &key("a"), &|_| true).await.unwrap();
    world.clock.advance(2 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 1);
    assert_eq!(chunk_sets(&world).await, 0);
}

#[tokio::test]
async fn body_without_a_put_is_collected() {
    let world = World::new().await;
    let bucket = world.bucket("images", blob()).await;
    let mut sink = world.store.stage(&bucket, &key("a"));
    sink.write(&body(1, 2_500_000)).await.unwrap();
    let staged = sink.finish().await.unwrap();
    assert_eq!(chunk_sets(&world).await, 1);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 0);
    world.clock.advance(2 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 1);
    assert_eq!(chunk_sets(&world).await, 0);
    // A PUT that comes too late is refused, since its chunks may be gone.
    let late = world.store.put(&bucket, &key("a"), crate::support::headers(), staged, &|_| true).await;
    assert!(matches!(late, Err(Error::Records(_))));
    assert!(world.entry(&bucket, "a").await.is_none());
}

/// A process dies at any write of a body. Its chunks are known to the collector before they are stored.
#[tokio::test]
async fn body_of_an_interrupted_request_is_collected() {
    for is_alone in [true, false] {
        for number in 1..=3 {
            for fault in [Fault::Before, Fault::Midway { batches: 1 }, Fault::After] {
                let (world, faulty) = World::faulty(is_alone).await;
                let bucket = world.bucket("images", blob()).await;
                faulty.set_plan(Plan::empty().on(Call::Write, number, fault.clone()));
                put(&world.store, &bucket, &key("a"), &body(1, 2_500_000)).await.unwrap_err();
                faulty.set_plan(Plan::empty());
                world.clock.advance(2 * AGE);
                world.store.collect(AGE).await.unwrap();
                assert_eq!(chunk_sets(&world).await, 0, "{fault:?} of write {number}");
                assert!(!has_rows(&*world.tables, &ENTRY_CHUNK_SETS).await.unwrap());
            }
        }
    }
}

#[tokio::test]
async fn entry_expires_to_the_microsecond_and_its_chunks_are_collected() {
    let world = World::new().await;
    let bucket = world.bucket("images", Definition { ttl: Some(60), ..blob() }).await;
    world.put(&bucket, "small", b"x").await;
    world.put(&bucket, "large", &body(1, 2_500_000)).await;
    world.clock.advance(Duration::from_micros(60_000_000 - 1_000));
    for text in ["small", "large"] {
        assert!(world.entry(&bucket, text).await.is_some(), "{text}");
    }
    // Another PUT prolongs the time.
    world.put(&bucket, "small", b"y").await;
    world.clock.advance(Duration::from_micros(1_000));
    assert!(world.entry(&bucket, "large").await.is_none());
    assert_eq!(world.body(&bucket, "small").await.unwrap(), b"y");
    let listed =
        world.store.list(&bucket, &rashomon_entries::KeyRange::all(), Default::default(), None, 10).await;
    assert_eq!(listed.unwrap().items.len(), 1);
    world.clock.advance(2 * AGE);
    assert!(world.entry(&bucket, "small").await.is_none());
    assert_eq!(world.store.collect(AGE).await.unwrap(), 1);
    assert_eq!(chunk_sets(&world).await, 0);
}

/// The collector runs while the entry exists. A run after the expiry of the entry deletes the chunks.
#[tokio::test]
async fn chunks_of_a_long_lived_entry_are_collected_after_its_expiry() {
    let world = World::new().await;
    let bucket = world.bucket("images", Definition { ttl: Some(60 * 24 * 3600), ..blob() }).await;
    world.put(&bucket, "large", &body(1, 2_500_000)).await;
    world.clock.advance(2 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 0);
    assert!(world.entry(&bucket, "large").await.is_some());
    world.clock.advance(60 * AGE);
    assert_eq!(world.store.collect(AGE).await.unwrap(), 1);
    assert_eq!(chunk_sets(&world).await, 0);
}
