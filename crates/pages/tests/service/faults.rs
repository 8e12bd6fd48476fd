//! A store that fails at any point: a repeated write creates one render, and nothing incomplete is left.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_pages::{Error, ImportRender, Result, Sha1, Tid, schemas};
use rashomon_tables::{Call, Fault, Faulty, Gate, Plan, Rates};

use crate::support::{AnyStore, World, at, every_point_or_nth, name, noise, page, rev};

type FaultyWorld = (World, Arc<Faulty<AnyStore>>);

async fn faulty() -> FaultyWorld {
    World::over(|store| Faulty::new(store, Plan::empty())).await
}

const FAULTS: [Fault; 5] = [
    Fault::Before,
    Fault::After,
    Fault::Midway { batches: 0 },
    Fault::Midway { batches: 0b1 },
    Fault::Midway { batches: u64::MAX },
];

/// The kinds of writes, each on a page that has revision 5.
#[derive(Debug, Clone, Copy)]
enum Write {
    Revision,
    LargeRevision,
    Render,
    /// A render that takes over a large body from its base.
    RenderOverLarge,
    Rewrite,
    /// A rewrite that replaces a large body.
    RewriteOfLarge,
    Import,
}

const WRITES: [Write; 7] = [
    Write::Revision,
    Write::LargeRevision,
    Write::Render,
    Write::RenderOverLarge,
    Write::Rewrite,
    Write::RewriteOfLarge,
    Write::Import,
];

/// Makes a world in which the write can be executed.
async fn prepare(write: Write) -> (FaultyWorld, Tid) {
    let (world, store) = faulty().await;
    let large = noise(5, 1_100_000);
    let html: &[u8] =
        if matches!(write, Write::RenderOverLarge | Write::RewriteOfLarge) { &large } else { b"five" };
    let bodies = [("html", html), ("meta", b"{}")];
    let tid = world.put_revision_at(&page("Main_Page"), 5, at(-9), &bodies).await.unwrap().tid;
    ((world, store), tid)
}

/// Executes the write, and returns the tid of its render.
async fn execute(world: &World, write: Write, tid: Tid) -> Result<Tid> {
    let page = page("Main_Page");
    Ok(match write {
        Write::Revision => world.put_revision(&page, 6, &[("html", "six"), ("wikitext", "text")]).await?.tid,
        Write::LargeRevision => {
            let bodies: Vec<_> = (0..5).map(|index| (format!("p{index}"), noise(index, 900_000))).collect();
            let bodies: Vec<_> = bodies.iter().map(|(name, body)| (name.as_str(), body)).collect();
            world.put_revision(&page, 6, &bodies).await?.tid
        }
        Write::Render => world.put_render(&page, 5, &[("html", "new"), ("wikitext", "text")]).await?.tid,
        Write::RenderOverLarge => world.put_render(&page, 5, &[("meta", "{1}")]).await?.tid,
        Write::Rewrite => world.rewrite(&page, tid, "html", "new").await?.tid,
        Write::RewriteOfLarge => world.rewrite(&page, tid, "html", "small").await?.tid,
        Write::Import => {
            let mut revision = world.imported_revision(&page, 7, at(-5), b"seven").await;
            let properties = world.properties_without_rewrite_time(&page, &[("html", "seven")]).await;
            revision.renders.push(ImportRender { tid: Tid::new(at(-4), 1), properties });
            world.buckets.import(&page, vec![revision]).await?;
            Tid::new(at(-4), 1)
        }
    })
}

/// Everything that a reader can see of the page, without the random tids: its history, the stored SHA-1s, and
/// the SHA-1s of the bytes.
async fn visible(world: &World) -> Vec<String> {
    let page = page("Main_Page");
    let mut lines = Vec::new();
    for revision in world.buckets.history(&page, None, 500).await.unwrap().items {
        lines.push(format!("{:?} {:?}", revision.record.rev, revision.properties.keys()));
        for render in revision.renders {
            for (property, info) in render.properties {
                let bytes = world.read(&page, render.tid, property.as_str()).await;
                // The two SHA-1s differ if a write comes between the two reads.
                lines.push(format!(
                    "{:?} {property} {} {}",
                    revision.record.rev,
                    info.sha1,
                    Sha1::of(&bytes)
                ));
            }
        }
    }
    lines
}

#[tokio::test]
async fn write_that_fails_at_any_call_can_be_repeated() {
    for write in WRITES {
        let ((world, store), tid) = prepare(write).await;
        let before = visible(&world).await;
        store.set_plan(Plan::empty());
        execute(&world, write, tid).await.unwrap();
        let calls = [Call::Get, Call::Scan, Call::Write].map(|call| (call, store.calls(call)));
        let expected = visible(&world).await;
        assert_ne!(before, expected);
        let calls = calls.into_iter().flat_map(|(call, calls)| (1..=calls).map(move |n| (call, n)));
        let faults = |call| FAULTS.iter().take(if call == Call::Write { FAULTS.len() } else { 1 });
        let points = calls.flat_map(|(call, number)| faults(call).map(move |fault| (call, number, fault)));
        let every = every_point_or_nth(7);
        for (call, number, fault) in points.skip(write as usize % every).step_by(every) {
            let what = format!("{write:?}, {call:?} {number}: {fault:?}");
            let ((world, store), tid) = prepare(write).await;
            store.set_plan(Plan::empty().on(call, number, fault.clone()));
            let failed = execute(&world, write, tid).await;
            let found = visible(&world).await;
            match failed {
                Err(Error::Store(rashomon_tables::Error::Unavailable(_))) => {
                    assert!(found == before || found == expected, "{what}: all or nothing, not {found:?}");
                }
                // With several writers, a write under a page lease reads the outcome of a failed call.
                Ok(_) => assert_eq!(found, expected, "{what}: acknowledged"),
                Err(error) => panic!("{what}: {error}"),
            }
            world.assert_consistent().await;
            execute(&world, write, tid).await.unwrap();
            assert_eq!(visible(&world).await, expected, "{what}");
            world.assert_consistent().await;
            // No chunks are left over.
            world.pass(Duration::from_secs(7200));
            world.buckets.maintenance().collect_orphans(Duration::from_secs(3600)).await.unwrap();
            world.assert_consistent().await;
            let references = world.rows(&schemas::CHUNK_REFERENCES).await.len();
            let sets = world.store.partitions(&schemas::CHUNKS, None, NonZeroUsize::MAX);
            assert_eq!(sets.await.unwrap().items.len(), references, "{what}");
        }
    }
}

/// The caller of a write is cancelled before the write has ended. The write still completes, and holds its
/// locks until then.
#[tokio::test]
async fn write_completes_after_its_caller_is_gone() {
    for write in WRITES {
        let ((world, store), tid) = prepare(write).await;
        store.set_plan(Plan::empty());
        execute(&world, write, tid).await.unwrap();
        let expected = visible(&world).await;
        // The last write is that of the page. The writes before it are those of large bodies.
        let last = store.calls(Call::Write);

        let ((world, store), tid) = prepare(write).await;
        let gate = Gate::new();
        store.set_plan(Plan::empty().on(Call::Write, last, Fault::PauseMidway(gate.clone())));
        let world = Arc::new(world);
        let client = {
            let world = Arc::clone(&world);
            tokio::spawn(async move { execute(&world, write, tid).await })
        };
        gate.reached().await;
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        gate.open();
        let done = tokio::time::timeout(Duration::from_secs(20), async {
            while visible(&world).await != expected {
                tokio::task::yield_now().await;
            }
        });
        assert!(done.await.is_ok(), "{write:?} stopped halfway");
        execute(&world, write, tid).await.unwrap();
        assert_eq!(visible(&world).await, expected, "{write:?}, repeated");
        world.assert_consistent().await;
    }
}

/// Repeats a write until the store is available.
async fn retry_until_available<T>(failures: &mut u32, write: impl AsyncFn() -> Result<T>) -> T {
    loop {
        match write().await {
            Ok(done) => return done,
            Err(Error::Store(rashomon_tables::Error::Unavailable(_))) => *failures += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn random_faults_lose_nothing() {
    let mut failures = 0;
    let seeds = 0..25 / every_point_or_nth(5) as u64;
    for seed in seeds.clone() {
        let (world, store) = faulty().await;
        let page = page("Main_Page");
        store.set_plan(Plan::seeded(seed, Rates { before: 60, after: 60, midway: 60 }));
        for number in 1..=8 {
            let bodies = [("html", "posted"), ("wikitext", "text")];
            let first = retry_until_available(&mut failures, async || {
                world.put_revision(&page, number, &bodies).await
            });
            let first = first.await.tid;
            let html = [("html", "rendered")];
            retry_until_available(&mut failures, async || world.put_render(&page, number, &html).await).await;
            let rewrite = async || world.rewrite(&page, first, "html", "rewritten").await;
            retry_until_available(&mut failures, rewrite).await;
        }
        store.set_plan(Plan::empty());
        let report = world.assert_consistent().await;
        assert_eq!((report.revisions, report.renders), (8, 16), "seed {seed}");
        for number in 1..=8 {
            let renders = world.buckets.revision(&page, rev(number)).await.unwrap().renders;
            let tids: Vec<_> = renders.iter().map(|render| render.tid).collect();
            assert_eq!(world.read(&page, tids[0], "html").await, b"rendered");
            assert_eq!(world.read(&page, tids[1], "html").await, b"rewritten");
            assert!(renders.iter().all(|render| render.properties.contains_key(&name("wikitext"))));
        }
    }
    assert!(u64::from(failures) > 4 * seeds.end, "{failures}");
}

/// A failed read returns an error, and never reports that something does not exist.
#[tokio::test]
async fn failed_read_is_an_error() {
    let (world, store) = faulty().await;
    let (page, html) = (page("Main_Page"), name("html"));
    let tid = world.put_revision(&page, 5, &[("html", "five"), ("wikitext", "text")]).await.unwrap().tid;
    let buckets = &world.buckets;
    for call in [Call::Get, Call::Scan] {
        for number in 1..=6 {
            store.set_plan(Plan::empty());
            // Nothing is in a cache. That a store is opened without the time that was stored is no error.
            let reopened = world.reopened().await;
            let plan = Plan::empty().on(call, number, Fault::Before);
            macro_rules! assert_reported {
                ($read:expr) => {{
                    store.set_plan(plan.clone());
                    let result = $read.await.map(drop);
                    let failed = store.calls(call) >= number;
                    match result {
                        Err(Error::Store(rashomon_tables::Error::Unavailable(_))) => assert!(failed),
                        other => assert!(!failed && other.is_ok(), "{call:?} {number}: {other:?}"),
                    }
                }};
            }
            assert_reported!(reopened.buckets.latest(&page, &html));
            assert_reported!(buckets.latest_render(&page));
            assert_reported!(buckets.property(&page, tid, &html));
            assert_reported!(buckets.render(&page, tid));
            assert_reported!(buckets.revision(&page, rev(5)));
            assert_reported!(buckets.newest_render(&page, rev(5)));
            assert_reported!(buckets.at_time(&page, at(5)));
            assert_reported!(buckets.revisions(&page, None, 10));
            assert_reported!(buckets.history(&page, None, 10));
            assert_reported!(buckets.memento(&page, &html, None));
            assert_reported!(buckets.mementos(&page, &html, None, 10));
            assert_reported!(rashomon_pages::operations::stats(buckets, &page.domain, &mut |_| {}));
            assert_reported!(rashomon_pages::operations::verify(buckets, &mut |_| {}));
        }
    }
}
