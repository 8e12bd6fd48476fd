//! Tests of the limits of time and memory for batches.

use std::{convert::Infallible, time::Duration};

use axum::{body::Body, http::Request};
use futures::{StreamExt, stream};
use http_body_util::BodyExt as _;
use rashomon_server::Settings;
use rashomon_server::access::AnonymousRights;
use rashomon_tables::{Call, Fault, Gate, Plan};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{get, options, problem, statuses, write};
use crate::world::{PAGE, World};

const MIB: u64 = 1 << 20;

async fn staged(world: &World) -> u64 {
    let metrics = world.get("/metrics").await.expect(200);
    let line = metrics.text().lines().find_map(|line| line.strip_prefix("rashomon_http_staged_bytes "));
    line.unwrap().parse().unwrap()
}

/// A request for a batch.
fn batch(body: Body) -> Request<Body> {
    let request =
        Request::post("/v1/batch").header("host", "localhost").header("content-type", "application/json");
    request.body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_that_take_too_long_get_504_and_their_writes_continue() {
    let world = World::in_memory_with(Settings { batch_seconds: 5, ..Settings::default() }).await;
    let gate = Gate::new();
    world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let latest = format!("{PAGE}?rev/latest/html");
    let begun = tokio::time::Instant::now();
    let answers = world.batch(&[write(PAGE, 1, "one"), get(&latest), options()]).await;
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!(statuses(&answers), [504, 504, 204]);
    for (at, text) in [(0, "a write may still be stored"), (1, "was not started")] {
        let problem = problem(&answers[at]);
        assert_eq!(problem["type"], "urn:rashomon:problem:batch-timeout");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(text) && detail.contains("batch_timeout"), "{problem}");
    }
    gate.open();
    world.api.finish().await;
    assert_eq!(world.get(&latest).await.expect(200).text(), "one");
    assert_eq!(staged(&world).await, 0);
}

#[tokio::test]
async fn answers_beyond_the_body_limit_are_refused_in_their_place() {
    let world = World::with(Settings { max_body_bytes: 64 << 10, ..Settings::default() }).await;
    for page in ["A", "B", "C"] {
        let page = format!("/v1/enwiki/page/{page}?rev/");
        world.post(&page, &format!("_rev=1&html={}", "x".repeat(40_000))).await.expect(201);
    }
    let large = |page: &str| get(&format!("/v1/enwiki/page/{page}?rev/latest/html"));
    for _ in 0..20 {
        let elements =
            [options(), large("A"), large("B"), write("/v1/enwiki/page/D", 1, "d"), large("C"), get("/no")];
        let answers = world.batch(&elements).await;
        assert!(json!(answers).to_string().len() <= 64 << 10);
        let stored = answers[3]["status"].as_u64().unwrap();
        assert_eq!(statuses(&answers), [204, 200, 507, stored, 507, 404]);
        assert!(stored == 200 || stored == 201, "{stored}");
        assert_eq!(answers[1]["body"].as_str().unwrap().len(), 40_000);
        let problem = problem(&answers[2]);
        assert_eq!(problem["type"], "urn:rashomon:problem:answer-too-large");
        assert!(problem["detail"].as_str().unwrap().contains("body_limit"), "{problem}");
        assert!(answers[4]["headers"]["x-request-id"].as_str().unwrap().ends_with(".4"));
    }
    // Each of two answers fits alone, but not both. The escapes in JSON count.
    let quotes = format!("_rev=1&html={}", "%22".repeat(20_000));
    world.post("/v1/enwiki/page/Q?rev/", &quotes).await.expect(201);
    assert_eq!(statuses(&world.batch(&[large("Q"), large("A")]).await), [200, 507]);
    assert_eq!(staged(&world).await, 0);
}

#[tokio::test]
async fn memory_of_answers_is_bounded_and_released_as_they_are_sent() {
    let world = World::with(Settings { staging_bytes: 8 * MIB, ..Settings::default() }).await;
    let text = "x".repeat(900_000);
    for page in 0..6 {
        world.post(&format!("/v1/enwiki/page/{page}?rev/"), &format!("_rev=1&html={text}")).await.expect(201);
    }
    let elements: Vec<_> =
        (0..6).map(|page| get(&format!("/v1/enwiki/page/{page}?rev/latest/html"))).collect();
    let request = batch(Body::from(json!(elements).to_string()));
    let response = world.router.clone().oneshot(request).await.unwrap();
    let held = staged(&world).await;
    assert!(held > 2 * MIB && held <= 4 * MIB, "{held}");
    // Another batch finds less room, but small answers always have some. Other requests are not affected.
    let others = world.batch(&[elements[0].clone(), options(), write(PAGE, 1, "one")]).await;
    assert_eq!(statuses(&others)[1..], [204, 201]);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let answers: Vec<Value> = serde_json::from_slice(&body).unwrap();
    let statuses = statuses(&answers);
    assert!(statuses.starts_with(&[200, 200]) && statuses.ends_with(&[507]), "{statuses:?}");
    assert!(statuses.is_sorted(), "the first ones take precedence: {statuses:?}");
    assert_eq!(staged(&world).await, 0);
}

/// Sends a batch whose body stops after this many bytes.
fn stalled(
    world: &World,
    bytes: usize,
) -> tokio::task::JoinHandle<Result<axum::response::Response, Infallible>> {
    let beginning = format!("[{}", " ".repeat(bytes));
    let body = stream::iter([Ok::<_, std::io::Error>(beginning)]).chain(stream::pending());
    tokio::spawn(world.router.clone().oneshot(batch(Body::from_stream(body))))
}

#[tokio::test(start_paused = true)]
async fn stalled_batches_hold_at_most_half_of_the_memory() {
    let world = World::in_memory_with(Settings { staging_bytes: 16 * MIB, ..Settings::default() }).await;
    let large: Vec<_> = (0..8).map(|_| stalled(&world, 1 << 20)).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held = staged(&world).await;
    assert!(held > 6 * MIB && held <= 8 * MIB, "{held}");
    world.revision("_rev=1&html=one").await;
    world.batch_with(&[], "[]").await.expect(200);
    let refused = world.batch_with(&[], &format!("[{}]", " ".repeat(1 << 20))).await.expect(503);
    assert!(refused.text().contains("staging_memory"), "{}", refused.text());
    for batch in large {
        assert!([408, 503].contains(&batch.await.unwrap().unwrap().status().as_u16()));
    }
    assert_eq!(staged(&world).await, 0);
    world.batch_with(&[], &format!("[{}]", " ".repeat(1 << 20))).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn slow_batches_hold_what_has_arrived() {
    let world = World::in_memory_with(Settings { staging_bytes: 16 * MIB, ..Settings::default() }).await;
    world.revision("_rev=1&html=one").await;
    let slow: Vec<_> = (0..12).map(|_| stalled(&world, 0)).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let held = staged(&world).await;
    assert!(held > 0 && held <= 12 * (132 << 10), "{held}");
    assert_eq!(statuses(&world.batch(&[get(&format!("{PAGE}?rev/"))]).await), [200]);
    for batch in slow {
        assert_eq!(batch.await.unwrap().unwrap().status(), 408);
    }
    assert_eq!(staged(&world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn client_without_any_right_claims_nothing() {
    let open = World::in_memory().await;
    let world = open.with_access(Settings::default(), AnonymousRights::default());
    let stalled: Vec<_> = (0..100).map(|_| stalled(&world, 4000)).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(staged(&world).await, 0);
    for batch in stalled {
        assert_eq!(batch.await.unwrap().unwrap().status(), 408);
    }
    // A small batch is answered as usual. A large one is refused, and so is one with many requests.
    let element = get("/v1/enwiki/page/A?rev/latest/html");
    let answers = world.batch_with(&[], &json!([element]).to_string()).await.expect(200);
    assert_eq!(answers.json()[0]["status"], 401);
    let many = vec!["7"; 17].join(",");
    for body in [format!("[{}]", " ".repeat(4096)), format!("[{many}]")] {
        world.batch_with(&[], &body).await.expect(401);
    }
}

async fn metric(world: &World, name: &str) -> u64 {
    let metrics = world.get("/metrics").await.expect(200);
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(&format!("rashomon_http_{name} ")));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_are_bounded_in_a_batch_and_in_all_batches() {
    let world = World::in_memory_with(Settings { max_writes: 1000, ..Settings::default() }).await;
    let gate = Gate::new();
    let plan =
        (1..=2000).fold(Plan::empty(), |plan, call| plan.on(Call::Write, call, Fault::Pause(gate.clone())));
    world.store.set_plan(plan);
    let send = |number: usize| {
        let elements: Vec<_> =
            (0..20).map(|page| write(&format!("/v1/enwiki/page/{number}/{page}"), 1, "x")).collect();
        tokio::spawn(world.router.clone().oneshot(batch(Body::from(json!(elements).to_string()))))
    };
    let mut batches = vec![send(0)];
    tokio::time::sleep(Duration::from_secs(1)).await;
    // 16 requests of the batch, the batch itself, and the request for the metrics.
    assert_eq!(metric(&world, "requests_in_flight").await, 16 + 1 + 1);
    batches.extend((1..40).map(send));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(metric(&world, "requests_in_flight").await, 512 + 40 + 1);
    gate.open();
    for batch in batches {
        let body = batch.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
        let answers: Vec<Value> = serde_json::from_slice(&body).unwrap();
        assert_eq!(statuses(&answers), [201; 20]);
    }
    assert_eq!(metric(&world, "requests_in_flight").await, 1);
}

#[tokio::test]
async fn requests_that_have_not_begun_are_dropped_when_the_client_disconnects() {
    let world = World::in_memory().await;
    let gate = Gate::new();
    world.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let elements = json!([write(PAGE, 1, "one"), write(PAGE, 2, "two")]);
    let sent = tokio::spawn(world.router.clone().oneshot(batch(Body::from(elements.to_string()))));
    gate.reached().await;
    sent.abort();
    assert!(sent.await.unwrap_err().is_cancelled());
    assert_eq!(metric(&world, "requests_in_flight").await, 1);
    gate.open();
    world.api.finish().await;
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200).text(), "one");
    assert_eq!(staged(&world).await, 0);
}

/// An export with the metadata of a wiki and one page.
const EXPORT: &str = "<mediawiki><siteinfo><sitename>Wiki</sitename></siteinfo>\
    <page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id><timestamp>2013-01-01T00:00:00Z</timestamp>\
    <contributor><ip>127.0.0.1</ip></contributor><model>wikitext</model><format>text/x-wiki</format>\
    <text>one</text></revision></page></mediawiki>";

#[tokio::test(start_paused = true)]
async fn import_is_bounded_by_the_time_of_its_batch() {
    let import = json!({"method": "POST", "path": "/v1/enwiki/import", "body": EXPORT});
    let mut cut = 0;
    for call in 1..=3 {
        let world = World::in_memory_with(Settings { batch_seconds: 5, ..Settings::default() }).await;
        let gate = Gate::new();
        world.store.set_plan(Plan::empty().on(Call::Write, call, Fault::Pause(gate.clone())));
        let answers = world.batch(&[import.clone(), options()]).await;
        gate.open();
        world.api.finish().await;
        let begun = "requests_total{route=\"import\",method=\"POST\",status=\"2xx\"}";
        match statuses(&answers)[..] {
            [200, 204] => {}
            [504, 204] => cut += metric(&world, begun).await,
            _ => panic!("{answers:?}"),
        }
        assert_eq!(world.get("/v1/enwiki/page/A?rev/latest/wikitext").await.expect(200).text(), "one");
        assert_eq!(staged(&world).await, 0);
    }
    assert!(cut > 0, "no answer was cut after its beginning");
    // The store is in memory: since the time of the test is paused, a node would seem not to answer.
    let world = World::in_memory_with(Settings::default()).await;
    let answers = world.batch(&[import]).await;
    assert!(answers[0]["body"].as_str().unwrap().contains("\"status\":\"done\""), "{answers:?}");
}
