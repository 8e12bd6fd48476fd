//! Tests that writes, and reads that unpack blocks of the archive, are refused while the server is overloaded.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use axum::{body::Body, http::Request};
use bytes::Bytes;
use futures::{StreamExt, stream};
use rashomon_clock::admission::Permits;
use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, CompactionOptions, DomainName, RevisionStore, SealOptions,
    unpack_limits,
};
use rashomon_server::{ServeOptions, Settings};
use rashomon_tables::{Call, Fault, Gate, Plan};
use serde_json::json;
use tokio::{io::AsyncWriteExt, task::JoinHandle, time::Instant};
use tower::ServiceExt;

use crate::{
    log::capture,
    socket::{Server, get, read_until},
    world::{Answer, PAGE, World},
};

/// The default of the setting `overload_wait`.
const WAIT: Duration = Duration::from_millis(80);

/// Longer than any wait that ends with a refusal.
const LONG: Duration = Duration::from_secs(5);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A server that stores one write at a time.
async fn world() -> Arc<World> {
    Arc::new(World::in_memory_with(Settings { max_writes: 1, ..Settings::default() }).await)
}

/// Sends a request from a task of its own.
fn send(world: &Arc<World>, method: &'static str, url: String, body: Body) -> JoinHandle<Answer> {
    let world = Arc::clone(world);
    let headers = match method {
        "POST" => [("content-type", "application/x-www-form-urlencoded")].as_slice(),
        _ => &[],
    };
    tokio::spawn(async move { world.request(method, &url, headers, body).await })
}

/// Posts revision 1 of a page.
fn post(world: &Arc<World>, page: &str) -> JoinHandle<Answer> {
    send(world, "POST", format!("/v1/enwiki/page/{page}?rev/"), Body::from("_rev=1&html=x"))
}

/// Starts a write that waits in the store until the gate is opened.
async fn held_write(world: &Arc<World>) -> (JoinHandle<Answer>, Gate) {
    let gate = Gate::new();
    world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let held = post(world, "Held");
    gate.reached().await;
    (held, gate)
}

async fn metric(world: &World, name: &str) -> String {
    let metrics = world.get("/metrics").await.expect(200);
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&format!("rashomon_http_{name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

#[track_caller]
fn check_refusal(refused: &Answer, settings: [&str; 2]) {
    assert_eq!(refused.json()["type"], "urn:rashomon:problem:busy");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() > 0);
    assert!(settings.iter().all(|setting| refused.text().contains(setting)), "{}", refused.text());
}

#[tokio::test(start_paused = true)]
async fn write_without_a_permit_is_refused_after_the_wait() {
    let world = world().await;
    world.revision("_rev=1&html=latest").await;
    let json = [("content-type", "application/json")];
    for bucket in ["blob", "counter"] {
        let (url, definition) = (format!("/v1/enwiki/{bucket}"), json!({"type": bucket}).to_string());
        world.request("PUT", &url, &json, definition).await.expect(201);
    }
    let (held, gate) = held_write(&world).await;
    let begun = Instant::now();
    let refused = post(&world, "Refused").await.unwrap().expect(503);
    assert_eq!(begun.elapsed(), WAIT);
    check_refusal(&refused, ["max_writes", "overload_wait"]);
    assert_eq!(metric(&world, "overload_refusals_total{class=\"write\"}").await, "1");
    // Increments, entries, deletions, renders and batches are writes, too.
    for (method, url, body) in [
        ("PUT", "/v1/enwiki/blob/key".to_owned(), "x"),
        ("DELETE", "/v1/enwiki/blob/key".to_owned(), ""),
        ("POST", "/v1/enwiki/counter/key".to_owned(), ""),
        ("POST", format!("{PAGE}?rev/1/"), "html=y"),
        ("DELETE", "/v1/enwiki/blob".to_owned(), ""),
    ] {
        send(&world, method, url, body.into()).await.unwrap().expect(503);
    }
    let batch = r#"[{"method":"GET","path":"/v1/enwiki/"}]"#;
    world.request("POST", "/v1/batch", &json, batch).await.expect(503);

    let waiting = post(&world, "Waiting");
    tokio::time::sleep(WAIT / 2).await;
    assert_eq!(metric(&world, "overload_waiting{class=\"write\"}").await, "1");
    // Reads, and requests of operators, do not wait for writes.
    world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    world.get("/healthz").await.expect(200);
    world.get("/readyz").await.expect(200);
    gate.open();
    held.await.unwrap().expect(201);
    waiting.await.unwrap().expect(201);
    post(&world, "Refused").await.unwrap().expect(201);
    assert_eq!(metric(&world, "overload_waiting{class=\"write\"}").await, "0");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_logged_once_a_minute() {
    let world = world().await;
    let (held, gate) = held_write(&world).await;
    let (log, guard) = capture();
    for _ in 0..5 {
        post(&world, "Refused").await.unwrap().expect(503);
    }
    world.clock.advance(Duration::from_secs(60));
    post(&world, "Refused").await.unwrap().expect(503);
    drop(guard);
    let text = log.text();
    let warnings: Vec<_> =
        text.lines().filter(|line| line.contains("WARN") && line.contains("503")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    gate.open();
    held.await.unwrap().expect(201);
}

#[tokio::test(start_paused = true)]
async fn body_of_a_refused_write_is_not_stored() {
    let world = world().await;
    let (held, gate) = held_write(&world).await;
    let writes = world.store.calls(Call::Write);
    let body = format!("_rev=1&html={}", "x".repeat(3_000_000));
    send(&world, "POST", "/v1/enwiki/page/Refused?rev/".to_owned(), body.into()).await.unwrap().expect(503);
    assert_eq!(world.store.calls(Call::Write), writes, "no chunk is written");
    gate.open();
    held.await.unwrap().expect(201);
}

/// While the queue is full, a server refuses a write before it looks for a handler. It receives the body and drops it, so
/// the connection stays usable.
#[tokio::test]
async fn full_queue_refuses_writes_before_they_are_routed() {
    const MAX_WAITING: usize = 256;
    let settings = Settings { max_writes: 1, ..Settings::default() };
    let world = Arc::new(World::in_memory_with(settings).await);
    let server = Server::of(&world, ServeOptions::default()).await;
    let (held, gate) = held_write(&world).await;
    // Revocations of tokens wait as long as necessary.
    let revocation = format!("/v1/tokens/{}", "a".repeat(20));
    let waiting: Vec<_> =
        (0..MAX_WAITING).map(|_| send(&world, "DELETE", revocation.clone(), Body::empty())).collect();
    while metric(&world, "overload_waiting{class=\"write\"}").await != MAX_WAITING.to_string() {
        tokio::task::yield_now().await;
    }

    // A handler would refuse the type of this body with 415.
    let html = "x".repeat(100_000);
    let write = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{html}",
        html.len()
    );
    let mut connection = server.connect().await;
    let begun = Instant::now();
    connection.write_all(write.as_bytes()).await.unwrap();
    let answer = read_until(&mut connection, "}").await;
    assert!(begun.elapsed() >= WAIT, "{:?}", begun.elapsed());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("urn:rashomon:problem:busy"), "{answer}");
    assert!(answer.contains("retry-after: ") && answer.contains("x-request-id: "), "{answer}");
    assert!(answer.contains(&format!("\"instance\":\"{PAGE}?rev/\"")), "{answer}");
    connection.write_all(&get("/healthz", "")).await.unwrap();
    let answer = read_until(&mut connection, "}").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for (request, status) in [
        // Another method, and another resource, have other causes.
        ("DELETE /v1/enwiki/page/A?rev/ HTTP/1.1\r\nhost: a\r\n", 405),
        ("POST /wiki/A?rev/ HTTP/1.1\r\nhost: a\r\n", 404),
        ("POST /v1/enwiki/bucket HTTP/1.1\r\nhost: a\r\n", 405),
        // Faults of a write that a repeat does not mend.
        ("POST /v1/enwiki/page/A?rev/ HTTP/1.1\r\n", 400),
        ("POST /v1/enwiki/page/A?rev/ HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000000\r\n", 413),
        ("DELETE /v1/enwiki/blob/key HTTP/1.1\r\nhost: a\r\n", 503),
        ("POST /v1/batch HTTP/1.1\r\nhost: a\r\n", 503),
    ] {
        let answer = server.exchange(format!("{request}connection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    assert_eq!(metric(&world, "overload_refusals_total{class=\"write\"}").await, "3");

    gate.open();
    held.await.unwrap().expect(201);
    for waiting in waiting {
        assert_ne!(waiting.await.unwrap().status, 503);
    }
}

/// Each delayed refusal keeps a connection open, so a long `overload_wait` does not make the delay long.
#[tokio::test(start_paused = true)]
async fn refusal_that_is_certain_is_delayed_only_briefly() {
    let (world, [one, two]) =
        archive_with(Settings { overload_milliseconds: 60_000, ..Settings::default() }).await;
    let maintenance = world.buckets().maintenance();
    let unpacks = maintenance.unpacks().unwrap();
    assert_eq!(world.get(&one).await.expect(200).text(), sealed_html("One", 1));
    let _held = unpacks.take().await.unwrap();
    let waiting = fill_queue(&world, unpacks, &two).await;
    let begun = Instant::now();
    world.get(&two).await.expect(503);
    assert_eq!(begun.elapsed(), WAIT);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn slow_body_keeps_no_permit() {
    let world = world().await;
    let (pieces, body) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let body = stream::unfold(body, |mut body| async {
        let piece = body.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), body))
    });
    pieces.send(Bytes::from_static(b"_rev=1&html=")).unwrap();
    let slow = send(&world, "POST", format!("{PAGE}?rev/"), Body::from_stream(body));
    tokio::time::sleep(LONG).await;
    // The permit is free, and others get it one after the other.
    for page in ["One", "Two"] {
        post(&world, page).await.unwrap().expect(201);
    }
    // When the body has arrived, the write waits for a permit as long as necessary.
    let (held, gate) = held_write(&world).await;
    pieces.send(Bytes::from_static(b"slow")).unwrap();
    drop(pieces);
    tokio::time::sleep(LONG).await;
    assert!(!slow.is_finished());
    assert_eq!(metric(&world, "overload_waiting{class=\"write\"}").await, "1");
    gate.open();
    held.await.unwrap().expect(201);
    slow.await.unwrap().expect(201);
}

#[tokio::test(start_paused = true)]
async fn stalled_bodies_do_not_delay_other_writes() {
    let world = Arc::new(World::in_memory_with(Settings { max_writes: 4, ..Settings::default() }).await);
    let stalled: Vec<_> = (0..100)
        .map(|page| {
            let request = Request::post(format!("/v1/enwiki/page/{page}?rev/"))
                .header("host", "localhost")
                .header("content-type", "application/x-www-form-urlencoded")
                .body(Body::from_stream(
                    stream::iter([Ok::<_, std::io::Error>("_rev=1&html=")]).chain(stream::pending()),
                ));
            let router = world.router.clone();
            tokio::spawn(async move { router.oneshot(request.unwrap()).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for page in 0..10 {
        post(&world, &format!("Prompt_{page}")).await.unwrap().expect(201);
    }
    for stalled in stalled {
        stalled.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn revocation_of_a_token_is_not_refused() {
    let world = world().await;
    let (held, gate) = held_write(&world).await;
    let revoked = send(&world, "DELETE", format!("/v1/tokens/{}", "a".repeat(20)), Body::empty());
    tokio::time::sleep(LONG).await;
    assert!(!revoked.is_finished());
    gate.open();
    held.await.unwrap().expect(201);
    assert_ne!(revoked.await.unwrap().status, 503);
}

/// The settings of buckets that seal revisions a day after they were superseded, and unpack one block at a time.
fn archiving() -> rashomon_pages::Settings {
    let all = BucketArchive { after: DAY, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    let unpacks = unpack_limits(Some(NonZeroUsize::MIN));
    rashomon_pages::Settings { archive, unpacks, ..rashomon_pages::Settings::default() }
}

/// The html of a sealed revision: so much that it is not short work to unpack it.
fn sealed_html(page: &str, rev: usize) -> String {
    let mut noise = 7 * rev as u64 + page.len() as u64;
    let words = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{noise:016x}")
    });
    format!("{page}{rev}{}", words.take(10_000).collect::<String>())
}

/// Stores two revisions of a page, and seals all revisions before the latest that are not sealed yet into one block.
/// Returns the path of the html of the first of the two.
async fn seal_before_latest(
    world: &World,
    buckets: &RevisionStore,
    page: &str,
    rev: usize,
    html: &str,
) -> String {
    let url = format!("/v1/enwiki/page/{page}?rev/");
    let sealed = world.post(&url, &format!("_rev={rev}&html={html}")).await.expect(201);
    world.clock.advance(DAY);
    world.post(&url, &format!("_rev={}&html=latest", rev + 1)).await.expect(201);
    world.clock.advance(3 * DAY);
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let options = SealOptions::default();
    let report = buckets.maintenance().seal(&domain, &bucket, options, &mut |_| {}).await.unwrap();
    assert_eq!(report.blocks, 1, "{report:?}");
    format!("{url}{}/html", sealed.json()["tid"].as_str().unwrap())
}

/// A server with the pages `One` and `Two`. The latest revision of each is in the tables, and the earlier revisions are
/// in two blocks of `One`, and in one block of `Two`. No block is in memory. Also returns the paths of a sealed html of
/// each page.
async fn archive() -> (Arc<World>, [String; 2]) {
    archive_with(Settings::default()).await
}

async fn archive_with(settings: Settings) -> (Arc<World>, [String; 2]) {
    let world = World::in_memory().await;
    let (store, clock) = (world.store.clone(), world.clock.clone());
    let buckets = RevisionStore::open(store.clone(), clock.clone(), archiving(), 8).await.unwrap();
    let one = seal_before_latest(&world, &buckets, "One", 1, &sealed_html("One", 1)).await;
    seal_before_latest(&world, &buckets, "One", 3, &sealed_html("One", 3)).await;
    let two = seal_before_latest(&world, &buckets, "Two", 1, &sealed_html("Two", 1)).await;
    seal_before_latest(&world, &buckets, "Short", 1, "short").await;
    (Arc::new(World::of(store, clock, settings, archiving()).await), [one, two])
}

/// Sends as many reads of a sealed html as may wait for a permit to unpack its block, while no permit is free.
async fn fill_queue(world: &Arc<World>, unpacks: &Permits, path: &str) -> Vec<JoinHandle<Answer>> {
    let waiting: Vec<_> =
        (0..unpacks.limits().waiting).map(|_| send(world, "GET", path.to_owned(), Body::empty())).collect();
    tokio::time::sleep(WAIT / 2).await;
    assert_eq!(unpacks.waiting(), waiting.len());
    waiting
}

#[tokio::test(start_paused = true)]
async fn read_without_a_permit_to_unpack_its_block_is_refused_after_the_wait() {
    let (world, [one, two]) = archive().await;
    let maintenance = world.buckets().maintenance();
    assert_eq!(world.get(&one).await.expect(200).text(), sealed_html("One", 1));

    let held = maintenance.unpacks().unwrap().take().await.unwrap();
    let begun = Instant::now();
    let refused = world.get(&two).await.expect(503);
    assert_eq!(begun.elapsed(), WAIT);
    check_refusal(&refused, ["max_unpacks", "overload_wait"]);
    assert_eq!(metric(&world, "overload_refusals_total{class=\"unpack\"}").await, "1");
    // Blocks in memory, and reads and writes of the latest, need no permit.
    assert_eq!(world.get(&one).await.expect(200).text(), sealed_html("One", 1));
    for page in ["One", "Two"] {
        let latest = world.get(&format!("/v1/enwiki/page/{page}?rev/latest/html")).await.expect(200);
        assert_eq!(latest.text(), "latest");
    }
    world.post("/v1/enwiki/page/Two?rev/", "_rev=9&html=latest").await.expect(201);

    let waiting = send(&world, "GET", two.clone(), Body::empty());
    tokio::time::sleep(WAIT / 2).await;
    assert_eq!(metric(&world, "overload_waiting{class=\"unpack\"}").await, "1");
    drop(held);
    assert_eq!(waiting.await.unwrap().expect(200).text(), sealed_html("Two", 1));
}

#[tokio::test(start_paused = true)]
async fn read_that_unpacks_little_needs_no_permit_of_those_that_unpack_much() {
    let (world, [_, two]) = archive().await;
    let maintenance = world.buckets().maintenance();
    let unpacks = maintenance.unpacks().unwrap();
    let held = unpacks.take().await.unwrap();
    let waiting = send(&world, "GET", two, Body::empty());
    tokio::time::sleep(WAIT / 4).await;
    let begun = Instant::now();
    let by_number = world.get("/v1/enwiki/page/Short?rev/1/html").await.expect(302);
    let short = world.get(by_number.header("location")).await.expect(200);
    assert_eq!(short.text(), "short");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(unpacks.waiting(), 1);
    drop(held);
    waiting.await.unwrap().expect(200);
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_reads_of_blocks_before_the_store_is_asked() {
    let (world, [one, two]) = archive().await;
    let maintenance = world.buckets().maintenance();
    let unpacks = maintenance.unpacks().unwrap();
    assert_eq!(world.get(&one).await.expect(200).text(), sealed_html("One", 1));
    let held = unpacks.take().await.unwrap();
    let waiting = fill_queue(&world, unpacks, &two).await;

    let (begun, calls) = (Instant::now(), [Call::Get, Call::Scan].map(|call| world.store.calls(call)));
    let refused = send(&world, "GET", two.clone(), Body::empty());
    tokio::time::sleep(WAIT / 4).await;
    assert_eq!([Call::Get, Call::Scan].map(|call| world.store.calls(call)), calls);
    // Blocks in memory and the latest are read as before.
    assert_eq!(world.get(&one).await.expect(200).text(), sealed_html("One", 1));
    for page in ["One", "Two"] {
        world.get(&format!("/v1/enwiki/page/{page}?rev/latest/html")).await.expect(200);
    }
    drop(held);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().expect(200).text(), sealed_html("Two", 1));
    }
    // The answer is delayed, so that a client that repeats its request at once takes little of the processor.
    let refused = refused.await.unwrap().expect(503);
    assert_eq!(begun.elapsed(), WAIT);
    check_refusal(&refused, ["max_unpacks", "overload_wait"]);
}

#[tokio::test(start_paused = true)]
async fn request_of_a_batch_waits_for_its_block() {
    let (world, [one, two]) = archive().await;
    let held = world.buckets().maintenance().unpacks().unwrap().take().await;
    let requests = [one, two].map(|path| json!({"method": "GET", "path": path}));
    let batch = tokio::spawn({
        let (world, body) = (Arc::clone(&world), json!(requests).to_string());
        async move { world.request("POST", "/v1/batch", &[("content-type", "application/json")], body).await }
    });
    tokio::time::sleep(LONG).await;
    assert!(!batch.is_finished());
    drop(held);
    let answers = batch.await.unwrap().expect(200).json();
    assert_eq!(answers[0]["body"], sealed_html("One", 1));
    assert_eq!(answers[1]["body"], sealed_html("Two", 1));
}

#[tokio::test(start_paused = true)]
async fn background_work_waits_for_its_blocks_and_is_not_refused() {
    let (world, _) = archive().await;
    let held = world.buckets().maintenance().unpacks().unwrap().take().await;
    let compaction = tokio::spawn({
        let maintenance = world.buckets().maintenance();
        async move {
            let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
            maintenance.compact_archive(&domain, &bucket, CompactionOptions::default(), &mut |_| {}).await
        }
    });
    tokio::time::sleep(LONG).await;
    assert_eq!(metric(&world, "overload_waiting{class=\"unpack\"}").await, "1");
    drop(held);
    assert_eq!(compaction.await.unwrap().unwrap().blocks, 1);
    assert_eq!(metric(&world, "overload_refusals_total{class=\"unpack\"}").await, "0");
}
