//! The cache of latest properties is exact: no reader sees a value that an acknowledged write has replaced.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod in_memory;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use rashomon_pages::Expect;

use crate::support::{World, at, bytes, name, page, runs_on_cassandra};

crate::support::on_every_store![every_kind_of_write_is_visible_at_once, no_reader_sees_a_superseded_value,];

async fn every_kind_of_write_is_visible_at_once(world: World) {
    let page = page("Main_Page");
    let read_twice = async || {
        let twice = [world.read_latest(&page, "html").await, world.read_latest(&page, "html").await];
        assert_eq!(twice[0], twice[1]);
        String::from_utf8(twice[0].clone()).unwrap()
    };
    world.put_revision(&page, 5, &[("html", "posted")]).await.unwrap();
    assert_eq!(read_twice().await, "posted");
    world.put_revision(&page, 4, &[("html", "older")]).await.unwrap();
    assert_eq!(read_twice().await, "posted");
    let tid = world.put_render(&page, 5, &[("html", "rendered")]).await.unwrap().tid;
    assert_eq!(read_twice().await, "rendered");
    world.rewrite(&page, tid, "html", "rewritten").await.unwrap();
    assert_eq!(read_twice().await, "rewritten");
    let mut revision = world.imported_revision(&page, 6, at(-9), b"text").await;
    revision.renders[0].properties =
        world.properties_without_rewrite_time(&page, &[("html", "imported")]).await;
    world.buckets.import(&page, vec![revision]).await.unwrap();
    assert_eq!(read_twice().await, "imported");
    world.put_revision(&page, 7, &[("meta", "{}")]).await.unwrap();
    assert!(world.buckets.latest(&page, &name("html")).await.is_err(), "the latest revision has no html");
}

/// One writer (new revisions, renders, rewrites) and four readers. Each body is the number of its write.
/// After a write is acknowledged, no reader may read the body of an earlier write.
async fn no_reader_sees_a_superseded_value(world: World) {
    // On a Cassandra node each write takes longer.
    let writes = if runs_on_cassandra() { 60 } else { 600 };
    let has_cache = world.store.partition_versions().is_some();
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("html", "0")]).await.unwrap();
    let acknowledged = Arc::new(AtomicI64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (buckets, page, html) = (world.buckets.clone(), page.clone(), name("html"));
            let (acknowledged, done) = (Arc::clone(&acknowledged), Arc::clone(&done));
            tokio::spawn(async move {
                let mut reads = 0_u64;
                while !done.load(Ordering::SeqCst) {
                    let at_least = acknowledged.load(Ordering::SeqCst);
                    let property = buckets.latest(&page, &html).await.unwrap();
                    let read: i64 = String::from_utf8(bytes(&property).await).unwrap().parse().unwrap();
                    assert!(read >= at_least, "{read} was read after {at_least} was acknowledged");
                    reads += 1;
                    if reads.is_multiple_of(16) {
                        tokio::task::yield_now().await;
                    }
                }
                reads
            })
        })
        .collect();
    let writer = {
        let acknowledged = Arc::clone(&acknowledged);
        let page = page.clone();
        tokio::spawn(async move {
            let mut number = 1;
            for write in 1..=writes {
                let html = [("html", write.to_string())];
                match write % 3 {
                    0 => {
                        number += 1;
                        world.put_revision(&page, number, &html).await.unwrap();
                    }
                    1 => {
                        world.put_render(&page, number, &html).await.unwrap();
                    }
                    _ => {
                        let tid = world.buckets.latest_render(&page).await.unwrap().tid;
                        let html = world.stage(&page, &html).await.remove(0);
                        world.buckets.rewrite(&page, tid, html, Expect::Any).await.unwrap();
                    }
                }
                acknowledged.store(write, Ordering::SeqCst);
                // Lets the readers read between two writes, so that some reads find the value in the cache.
                if write % 10 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            world.buckets.cache_stats()
        })
    };
    let stats = writer.await.unwrap();
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    assert!(stats.misses > 0 && (stats.hits > 0) == has_cache, "{stats:?}");
}
