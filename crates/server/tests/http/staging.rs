//! Tests that the memory for bodies that are being received is bounded over all requests together.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, Response},
};
use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use rashomon_pages::{RevisionStore, schemas};
use rashomon_server::Settings;
use rashomon_tables::{Scan, TableStore as _};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use crate::world::{PAGE, World};

const MIB: u64 = 1 << 20;

/// The claim of one write that is large, or whose size is not known.
const WORKING: u64 = 4 * MIB;

/// Bytes that do not compress.
fn noise(size: usize) -> Bytes {
    let mut state = 7_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bytes.extend_from_slice(&(word ^ (word >> 32)).to_be_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

/// The beginning of a part of a multipart body.
fn part(name: &str) -> Bytes {
    format!("\r\n--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").into()
}

/// A revision with these properties as the pieces of a multipart body, without its end.
fn pieces(properties: &[(String, Bytes)]) -> Vec<Bytes> {
    let mut pieces = vec![part("_rev"), Bytes::from_static(b"1")];
    for (name, body) in properties {
        pieces.push(part(name));
        pieces.extend(body.chunks(64 << 10).map(|piece| body.slice_ref(piece)));
    }
    pieces
}

/// Makes `count` properties with the same bytes.
fn properties(count: usize, body: &Bytes) -> Vec<(String, Bytes)> {
    (0..count).map(|number| (format!("p{number}"), body.clone())).collect()
}

/// A complete body.
fn whole(properties: &[(String, Bytes)]) -> Body {
    let pieces = pieces(properties).into_iter().chain([Bytes::from_static(b"\r\n--b--\r\n")]);
    Body::from_stream(stream::iter(pieces.map(Ok::<_, std::io::Error>)))
}

/// A body that stops before its end, and never ends.
fn half_way(properties: &[(String, Bytes)]) -> Body {
    let pieces = stream::iter(pieces(properties).into_iter().map(Ok::<_, std::io::Error>));
    Body::from_stream(pieces.chain(stream::pending()))
}

/// Starts a write to a page of its own.
fn post(world: &World, page: usize, body: Body) -> JoinHandle<Response<Body>> {
    let request = Request::post(format!("/v1/enwiki/page/{page}?rev/"))
        .header("host", "localhost")
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body)
        .unwrap();
    let router = world.router.clone();
    tokio::spawn(async move { router.oneshot(request).await.unwrap() })
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.get("/metrics").await.expect(200);
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&format!("rashomon_http_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

async fn staged(world: &World) -> u64 {
    metric(world, "staged_bytes").await
}

/// The number of partitions of chunks.
async fn chunk_sets(world: &World) -> usize {
    let chunks = schemas::all().into_iter().find(|schema| schema.name() == "chunks").unwrap();
    let partitions = world.store.partitions(chunks, None, 10_000.try_into().unwrap()).await.unwrap();
    let mut sets = 0;
    for partition in partitions.items {
        let scan = Scan::new(partition, 1.try_into().unwrap());
        sets += usize::from(!world.store.scan(chunks, scan).await.unwrap().items.is_empty());
    }
    sets
}

fn with_budget(bytes: u64) -> Settings {
    Settings { staging_bytes: bytes, ..Settings::default() }
}

mod in_memory {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_writes_hold_at_most_the_budget() {
        let budget = 32 * MIB;
        let world = World::in_memory_with(with_budget(budget)).await;
        let body = noise(1_000_000);
        let writes: Vec<_> =
            (0..24).map(|page| post(&world, page, half_way(&properties(6, &body)))).collect();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let held = staged(&world).await;
        assert!(held > budget - WORKING && held <= budget, "{held}");
        assert!(chunk_sets(&world).await > 0, "bodies without room in memory are written to chunks");
        let mut answers = join_all(writes).await.into_iter().map(|answer| answer.unwrap().status().as_u16());
        let timed_out = answers.by_ref().filter(|status| *status == 408).count();
        assert!((4..=8).contains(&timed_out), "{timed_out}");
        assert_eq!(metric(&world, "staging_refusals_total").await, 24 - timed_out as u64);
        assert_eq!(staged(&world).await, 0);

        // The chunks of the failed writes are unreferenced, and are garbage-collected like those of any other
        // write.
        let (store, clock) = (Arc::clone(&world.store), Arc::clone(&world.clock));
        let buckets =
            RevisionStore::open(store, clock, rashomon_pages::Settings::default(), 9).await.unwrap();
        let left = chunk_sets(&world).await;
        world.clock.advance(Duration::from_secs(25 * 3600));
        assert_eq!(
            buckets.maintenance().collect_orphans(Duration::from_secs(24 * 3600)).await.unwrap(),
            left as u64
        );
        assert_eq!(chunk_sets(&world).await, 0);
    }

    /// The time is paused and advances only while all tasks wait. So the writes wait for each other as long as
    /// necessary.
    #[tokio::test(start_paused = true)]
    async fn many_concurrent_large_writes_all_end() {
        let world = World::in_memory_with(with_budget(16 * MIB)).await;
        let line = Bytes::from(b"a line of a text that is easily compressed\n".repeat(100_000_000 / 43));
        let large = [("html".to_owned(), line.slice(..64_000_000))];
        let writes: Vec<_> = (0..64).map(|page| post(&world, page, whole(&large))).collect();
        for answer in join_all(writes).await {
            assert_eq!(answer.unwrap().status(), 201);
        }
        assert!(metric(&world, "staging_waits_total").await >= 60);
        assert_eq!(staged(&world).await, 0);
        let read = world.get("/v1/enwiki/page/63?rev/latest/html").await.expect(200);
        assert!(read.body == large[0].1);
    }

    #[tokio::test(start_paused = true)]
    async fn write_without_memory_is_refused_after_the_wait() {
        let settings = Settings { staging_wait_seconds: 3, ..with_budget(WORKING) };
        let world = World::in_memory_with(settings).await;
        let holder = post(&world, 1, half_way(&properties(2, &noise(1_000_000))));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = tokio::time::Instant::now();
        let refused = world.post(&format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(503);
        // This is the wait, plus the time in which the body is read so that the answer arrives.
        assert!((3..=5).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        assert_eq!(refused.json()["type"], "urn:rashomon:problem:busy");
        assert!(refused.text().contains("staging_memory") && refused.text().contains("staging_wait"));
        assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
        assert_eq!(holder.await.unwrap().status(), 408);
        world.post(&format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(201);
    }

    #[tokio::test(start_paused = true)]
    async fn disconnected_client_releases_its_memory() {
        let world = World::in_memory_with(with_budget(WORKING)).await;
        let holder = post(&world, 1, half_way(&properties(2, &noise(1_000_000))));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(staged(&world).await, WORKING);
        let waiting = post(&world, 2, whole(&properties(1, &noise(1000))));
        let leaving = post(&world, 3, whole(&properties(1, &noise(1000))));
        tokio::time::sleep(Duration::from_secs(1)).await;
        leaving.abort();
        assert!(!waiting.is_finished());
        holder.abort();
        assert_eq!(waiting.await.unwrap().status(), 201);
        assert_eq!(staged(&world).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn imports_and_replacements_share_the_budget() {
        let world = World::in_memory_with(with_budget(6 * MIB)).await;
        let tid = world.revision("_rev=1&html=x").await;
        let pending = || {
            let beginning = stream::iter([Ok::<_, std::io::Error>(noise(1_100_000))]);
            Body::from_stream(beginning.chain(stream::pending()))
        };
        let replacement = || Request::put(format!("{PAGE}?rev/{tid}/html")).header("host", "localhost");
        let replacing = world.router.clone().oneshot(replacement().body(pending()).unwrap());
        let replacing = tokio::spawn(replacing);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(staged(&world).await, WORKING);
        let refused = world.request("POST", "/v1/enwiki/import", &[], pending()).await.expect(503);
        assert!(refused.text().contains("staging_memory"), "{}", refused.text());
        replacing.abort();
        assert!(replacing.await.is_err());
        let empty = world.request("POST", "/v1/enwiki/import", &[], "").await.expect(400);
        assert!(empty.text().contains("cannot be read"), "{}", empty.text());
        assert_eq!(staged(&world).await, 0);
    }
}

/// Slow writes hold memory only for what has arrived. So many of them leave room for others.
#[tokio::test(start_paused = true)]
async fn slow_writes_hold_what_has_arrived() {
    let world = World::in_memory_with(with_budget(16 * MIB)).await;
    let slow: Vec<_> = (0..100).map(|page| post(&world, page, half_way(&[]))).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held = staged(&world).await;
    assert!(held <= 100 * (34 << 10), "{held}");
    let large = [("html".to_owned(), noise(5_000_000))];
    assert_eq!(post(&world, 1000, whole(&large)).await.unwrap().status(), 201);
    for write in join_all(slow).await {
        assert_eq!(write.unwrap().status(), 408);
    }
    assert_eq!(staged(&world).await, 0);
}

/// A client with a right to import may be slow, and must not keep others from the memory that it does not use.
#[tokio::test]
async fn slow_imports_hold_little() {
    let world = World::with(with_budget(24 * MIB)).await;
    let import = |count: usize| {
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        let beginning = stream::iter([Ok(Bytes::from_static(b"<mediawiki>"))]);
        let body =
            beginning.chain(drops.take(count)).chain(stream::iter([Ok(Bytes::from_static(b"</mediawiki>"))]));
        let request = Request::post("/v1/enwiki/import").header("host", "localhost");
        tokio::spawn(world.router.clone().oneshot(request.body(Body::from_stream(body)).unwrap()))
    };
    let imports: Vec<_> = (0..4).map(|_| import(40)).collect();
    while staged(&world).await < 12 * MIB {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(staged(&world).await, 12 * MIB);
    let writes = (1..=3).map(|page| post(&world, page, whole(&[("html".to_owned(), noise(3_000_000))])));
    for write in join_all(writes).await {
        assert_eq!(write.unwrap().status(), 201);
    }
    for import in join_all(imports).await {
        assert_eq!(import.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn bodies_without_room_in_memory_are_stored_unchanged() {
    let world = World::with(with_budget(WORKING)).await;
    let mut all = properties(10, &noise(900_000));
    all.extend([("large".to_owned(), noise(2_500_000)), ("empty".to_owned(), Bytes::new())]);
    all.push(("text".to_owned(), Bytes::from(b"a line\n".repeat(100_000))));
    assert_eq!(post(&world, 1, whole(&all)).await.unwrap().status(), 201);
    for (name, body) in &all {
        let read = world.get(&format!("/v1/enwiki/page/1?rev/latest/{name}")).await.expect(200);
        assert!(read.body == *body, "{name}");
    }
    let tid = world.get("/v1/enwiki/page/1?rev/latest/").await.json()["tid"].as_str().unwrap().to_owned();
    let url = format!("/v1/enwiki/page/1?rev/{tid}/p3");
    let new = noise(950_000).slice(7..);
    world.request("PUT", &url, &[("content-type", "a/b")], new.clone()).await.expect(200);
    assert!(world.get(&url).await.expect(200).body == new);
}

#[tokio::test]
async fn texts_beside_the_properties_are_bounded() {
    let world = World::new().await;
    let padding = " ".repeat(10_000);
    let fields = (0..30).map(|number| {
        let headers = format!("{{\"x-a\":{padding}\"b\"}}");
        [(format!("_http-equiv.p{number}"), headers.into()), (format!("p{number}"), Bytes::from("x"))]
    });
    let refused = post(&world, 1, whole(&fields.flatten().collect::<Vec<_>>())).await.unwrap();
    assert_eq!(refused.status(), 422);
}
