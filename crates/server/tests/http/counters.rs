//! Tests of counters.

use std::time::Duration;

use futures::future::join_all;
use rashomon_server::Settings;
use rashomon_tables::{Call, Fault, Plan};
use serde_json::{Value, json};

use crate::world::{Answer, World};

const BUCKET: &str = "/v1/enwiki/clicks";
const COUNTER: &str = "/v1/enwiki/clicks/Main_Page";
const DEFINITION: &str = r#"{"type": "counter"}"#;
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");
const METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";

async fn world() -> World {
    let world = World::new().await;
    world.request("PUT", BUCKET, &[JSON], DEFINITION).await.expect(201);
    world
}

impl World {
    /// Increments a counter. The body is a form.
    async fn increment(&self, headers: &[(&str, &str)], form: &str) -> Answer {
        let headers = [&[FORM], headers].concat();
        self.request("POST", COUNTER, &headers, form.to_owned()).await
    }

    async fn value(&self, url: &str) -> Value {
        self.get(url).await.expect(200).json()["value"].clone()
    }
}

#[tokio::test]
async fn counter_is_incremented_read_and_deleted() {
    let world = world().await;
    assert_eq!(world.get(BUCKET).await.expect(200).json(), json!({"type": "counter", "public": false}));
    assert_eq!(world.value(COUNTER).await, 0);
    for (headers, body, value) in [
        (&[][..], "", 1),
        (&[FORM], "", 2),
        (&[FORM], "increment=15", 17),
        (&[FORM], "increment=-20", -3),
        (&[JSON], r#"{"increment": 10}"#, 7),
        (&[JSON], "{}", 8),
        (&[FORM], "increment=0", 8),
    ] {
        let counted = world.request("POST", COUNTER, headers, body).await.expect(200);
        assert_eq!(counted.json(), json!({"value": value}), "{body}");
        let read =
            world.get_with(COUNTER, &[("if-none-match", "*"), ("range", "bytes=0-0")]).await.expect(200);
        assert_eq!(read.body, counted.body);
        for answer in [&counted, &read] {
            assert_eq!(
                answer.header("content-type"),
                "application/json; profile=\"urn:rashomon:counter/1.0\""
            );
            assert_eq!(answer.header("cache-control"), "no-store");
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
            assert!(!answer.headers.contains_key("etag"));
        }
    }
    let head = world.request("HEAD", COUNTER, &[], "").await.expect(200);
    assert_eq!(head.header("content-length"), "11");
    for _ in 0..2 {
        let deleted = world.request("DELETE", COUNTER, &[], "").await.expect(204);
        assert_eq!(deleted.header("cache-control"), "no-store");
    }
    assert_eq!(world.value(COUNTER).await, 0);
}

#[tokio::test]
async fn key_of_a_counter_follows_the_rules_of_entries() {
    let world = world().await;
    world.post("/v1/enwiki/clicks/Main%5FPage", "increment=3").await.expect(200);
    assert_eq!(world.value(COUNTER).await, 3);
    let redirect = world.get("/v1/enwiki/clicks/Main%5FPage").await.expect(301);
    assert_eq!(redirect.header("location"), COUNTER);
    assert_eq!(world.value("/v1/enwiki/clicks/Main%20Page").await, 0);
    for key in ["..", "%FF", &"a".repeat(1025)] {
        for method in ["GET", "POST", "DELETE"] {
            world.request(method, &format!("{BUCKET}/{key}"), &[], "").await.expect(400);
        }
    }
}

#[tokio::test]
async fn refused_requests_for_counters_change_nothing() {
    let world = world().await;
    world.increment(&[("idempotency-key", "first")], "increment=5").await.expect(200);
    let before = world.dump().await;
    for (headers, body, status) in [
        (&[FORM][..], "increment=x", 400),
        (&[FORM], "by=1", 400),
        (&[JSON], r#"{"increment": "5"}"#, 400),
        (&[("content-type", "text/plain")], "5", 415),
        (&[], "increment=5", 415),
        (&[FORM, ("content-encoding", "gzip")], "increment=5", 415),
        (&[FORM], "increment=9223372036854775808", 422),
        (&[FORM, ("idempotency-key", "other")], "increment=9223372036854775803", 422),
        (&[FORM, ("idempotency-key", "")], "", 400),
        (&[FORM, ("idempotency-key", "a b")], "", 400),
        (&[FORM, ("idempotency-key", "\u{e9}")], "", 400),
        (&[FORM, ("idempotency-key", "1"), ("idempotency-key", "1")], "", 400),
        (&[("if-match", "*")], "", 400),
        (&[("if-none-match", "*")], "", 400),
        (&[("if-unmodified-since", "Mon, 01 Jan 2024 00:00:00 GMT")], "", 400),
    ] {
        let refused = world.request("POST", COUNTER, headers, body).await.expect(status);
        let named = ["increment", "Idempotency-Key", "if-", "Content-Encoding"];
        assert!(named.iter().any(|name| refused.text().contains(name)), "{}", refused.text());
    }
    let long = "k".repeat(256);
    world.increment(&[("idempotency-key", &long)], "").await.expect(400);
    world.increment(&[], &format!("increment={}", "0".repeat(4096))).await.expect(413);
    world.post(&format!("{COUNTER}?x"), "").await.expect(400);
    world.get(&format!("{COUNTER}?x")).await.expect(400);
    for method in ["GET", "DELETE"] {
        world.request(method, COUNTER, &[("idempotency-key", "1")], "").await.expect(400);
    }
    let refused = world.request("DELETE", COUNTER, &[("if-match", "*")], "").await.expect(400);
    assert!(refused.text().contains("if-match"), "{}", refused.text());
    let refused = world.request("PUT", COUNTER, &[], "5").await.expect(405);
    assert_eq!(refused.header("allow"), METHODS);
    let missing = world.post("/v1/enwiki/other/a", "").await.expect(404);
    assert!(missing.text().contains("PUT /v1/enwiki/other"), "{}", missing.text());
    assert_eq!(world.dump().await, before);
    // A refused increment does not use up its key.
    let counted = world.increment(&[("idempotency-key", "other")], "").await.expect(200);
    assert_eq!(counted.json(), json!({"value": 6}));
}

#[tokio::test]
async fn increments_reach_both_ends_of_the_range() {
    let world = world().await;
    for (by, status, value) in [
        (i64::MAX, 200, i64::MAX),
        (1, 422, i64::MAX),
        (i64::MIN, 200, -1),
        (i64::MIN, 422, -1),
        (i64::MIN + 1, 200, i64::MIN),
        (-1, 422, i64::MIN),
    ] {
        world.increment(&[], &format!("increment={by}")).await.expect(status);
        assert_eq!(world.value(COUNTER).await, value);
    }
}

#[tokio::test]
async fn definition_of_a_counter_has_no_members_of_bodies() {
    let world = World::new().await;
    for member in [r#""content_type": "a/b""#, r#""ttl": 5"#, r#""max_size": 5"#] {
        let definition = format!(r#"{{"type": "counter", {member}}}"#);
        world.request("PUT", BUCKET, &[JSON], definition).await.expect(400);
    }
    world.get(BUCKET).await.expect(404);
    world.request("PUT", BUCKET, &[JSON], r#"{"type": "counter", "public": true}"#).await.expect(201);
    world.request("PUT", BUCKET, &[JSON], r#"{"type": "blob", "public": true}"#).await.expect(409);
}

#[tokio::test]
async fn repeat_with_the_same_key_counts_once() {
    let world = world().await;
    let longest = "k".repeat(255);
    for key in ["1", &longest] {
        let first = world.increment(&[("idempotency-key", key)], "increment=5").await.expect(200);
        world.increment(&[], "").await.expect(200);
        for form in ["increment=5", "increment=7"] {
            let repeat = world.increment(&[("idempotency-key", key)], form).await.expect(200);
            assert_eq!(repeat.body, first.body);
        }
    }
    assert_eq!(world.value(COUNTER).await, 12);
    // A key belongs to one counter.
    let other =
        world.request("POST", "/v1/enwiki/clicks/other", &[("idempotency-key", "1")], "").await.expect(200);
    assert_eq!(other.json(), json!({"value": 1}));
    world.request("DELETE", COUNTER, &[], "").await.expect(204);
    let repeat = world.increment(&[("idempotency-key", "1")], "").await.expect(200);
    assert_eq!(repeat.json(), json!({"value": 5}));
    assert_eq!(world.value(COUNTER).await, 0);
}

/// The store is in memory, since only there the clock of the test decides when a row expires.
#[tokio::test]
async fn key_is_forgotten_after_a_day() {
    let world = World::in_memory().await;
    world.request("PUT", BUCKET, &[JSON], DEFINITION).await.expect(201);
    let count = || world.increment(&[("idempotency-key", "1")], "");
    assert_eq!(count().await.expect(200).json(), json!({"value": 1}));
    world.clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(count().await.expect(200).json(), json!({"value": 1}));
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(count().await.expect(200).json(), json!({"value": 2}));
}

#[tokio::test]
async fn concurrent_increments_are_exact() {
    const WRITERS: usize = 64;
    // With this limit, no increment is refused.
    let world = World::with(Settings { max_writes: 2 * WRITERS, ..Settings::default() }).await;
    world.request("PUT", BUCKET, &[JSON], DEFINITION).await.expect(201);
    let writer = |number: usize| {
        let world = &world;
        async move {
            let mut values = Vec::new();
            for round in 0..3 {
                let key = format!("{number}-{round}");
                let headers = [("idempotency-key", key.as_str())];
                // Every increment is sent twice.
                let sent = [(); 2].map(|()| world.increment(&headers, "increment=1"));
                let answers = join_all(sent).await;
                assert_eq!(answers[0].body, answers[1].body);
                let counted = answers.into_iter().next().unwrap().expect(200);
                values.push(counted.json()["value"].as_u64().unwrap());
            }
            values
        }
    };
    let mut values: Vec<u64> = join_all((0..WRITERS).map(writer)).await.concat();
    values.sort_unstable();
    // Each increment has got a different value, so none was lost, and none counted twice.
    assert_eq!(values, (1..=3 * WRITERS as u64).collect::<Vec<_>>());
    assert_eq!(world.value(COUNTER).await, 3 * WRITERS);
}

#[tokio::test]
async fn repeat_after_a_failure_counts_once() {
    let world = World::in_memory().await;
    world.request("PUT", BUCKET, &[JSON], DEFINITION).await.expect(201);
    let key = [("idempotency-key", "1")];
    world.increment(&[], "").await.expect(200);
    for fault in [Fault::Before, Fault::After] {
        world.store.set_plan(Plan::empty().on(Call::Swap, world.store.calls(Call::Swap) + 1, fault));
        let failed = world.increment(&key, "increment=5").await;
        assert!([200, 503].contains(&failed.status.as_u16()), "{failed:?}");
    }
    world.store.set_plan(Plan::empty());
    assert_eq!(world.increment(&key, "increment=5").await.expect(200).json(), json!({"value": 6}));
}

#[tokio::test]
async fn list_has_the_counters_with_their_values() {
    let world = world().await;
    let keys = ["a", "a b", "b", "ü"];
    for (key, value) in ["a", "a%20b", "b", "%C3%BC"].iter().zip(1..) {
        world.post(&format!("{BUCKET}/{key}"), &format!("increment={value}")).await.expect(200);
    }
    world.post(&format!("{BUCKET}/gone"), "").await.expect(200);
    world.request("DELETE", &format!("{BUCKET}/gone"), &[], "").await.expect(204);
    let list = world.get(&format!("{BUCKET}/")).await.expect(200);
    assert_eq!(list.header("cache-control"), "no-store");
    let all: Vec<Value> =
        keys.iter().zip(1..).map(|(key, value)| json!({"key": key, "value": value})).collect();
    assert_eq!(list.json(), json!({"entries": all}));
    let (mut found, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = world.get(&format!("{BUCKET}/{query}")).await.expect(200).json();
        found.extend(page["entries"].as_array().unwrap().clone());
        let Some(next) = page.get("next") else { break };
        query = next.as_str().unwrap().to_owned();
        assert!(found.len() < all.len() + 1);
    }
    assert_eq!(found, all);
    for ordered in ["gt=a", "ge=a", "lt=a", "le=a", "prefix=a", "order=desc", "limit=0", "limit=501", "x=1"] {
        let refused = world.get(&format!("{BUCKET}/?{ordered}")).await.expect(400);
        assert!(refused.text().contains(ordered.split_once('=').unwrap().0), "{}", refused.text());
    }
}

#[tokio::test]
async fn batch_passes_increments_with_their_keys() {
    let world = world().await;
    let count = |key: &str| {
        json!({
            "method": "POST", "path": COUNTER, "body": "increment=5",
            "headers": {"content-type": FORM.1, "idempotency-key": key},
        })
    };
    let bare = json!({"method": "POST", "path": COUNTER});
    let body =
        json!([count("1"), count("1"), count("2"), bare, {"method": "GET", "path": COUNTER}]).to_string();
    let answers = world.request("POST", "/v1/batch", &[JSON], body).await.expect(200).json();
    let values: Vec<&str> =
        answers.as_array().unwrap().iter().map(|answer| answer["body"].as_str().unwrap()).collect();
    assert_eq!(values, [5, 5, 10, 11, 11].map(|value| format!("{{\"value\":{value}}}")));
}

#[tokio::test]
async fn read_only_server_refuses_increments() {
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    for method in ["POST", "DELETE"] {
        let refused = world.request(method, COUNTER, &[], "").await.expect(403);
        assert!(refused.text().contains("read_only"), "{}", refused.text());
    }
}
