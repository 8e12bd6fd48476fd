//! Tests of entries of key-value buckets.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use rashomon_server::Settings;
use tokio::sync::oneshot;

use crate::world::{Answer, World};

const BUCKET: &str = "/v1/enwiki/math-png";
const ENTRY: &str = "/v1/enwiki/math-png/a.png";
const JSON: (&str, &str) = ("content-type", "application/json");
const PNG: (&str, &str) = ("content-type", "image/png");

/// A world with a bucket.
async fn world(definition: &str) -> World {
    let world = World::new().await;
    world.request("PUT", BUCKET, &[JSON], definition.to_owned()).await.expect(201);
    world
}

impl World {
    async fn put_entry(&self, url: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
        self.request("PUT", url, headers, body).await
    }

    async fn delete_entry(&self, url: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("DELETE", url, headers, "").await
    }
}

/// Bytes that compression makes smaller.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|place| b"abcdefgh "[place / 100 % 9]).collect()
}

/// Bytes that compression does not make smaller.
fn incompressible(length: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(&mut next).take(length).collect()
}

#[tokio::test]
async fn entry_is_created_read_replaced_and_deleted() {
    let world = world(r#"{"type": "blob"}"#).await;
    let missing = world.get(ENTRY).await.expect(404);
    assert!(missing.json()["detail"].as_str().unwrap().contains("math-png"));
    let headers = [PNG, ("x-review", "done"), ("content-language", "de"), ("accept", "text/plain")];
    let created = world.put_entry(ENTRY, &headers, "image").await.expect(201);
    assert!(created.body.is_empty());
    assert_eq!(created.header("cache-control"), "no-store");
    world.clock.advance(Duration::from_secs(5));
    let read = world.get(ENTRY).await.expect(200);
    assert_eq!(read.text(), "image");
    for (name, value) in [
        ("content-type", "image/png"),
        ("x-review", "done"),
        ("content-language", "de"),
        ("etag", created.header("etag")),
        ("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT"),
        ("content-length", "5"),
        ("accept-ranges", "bytes"),
        ("vary", "Accept-Encoding"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "public, max-age=0, s-maxage=0, must-revalidate"),
    ] {
        assert_eq!(read.header(name), value, "{name}");
    }
    assert!(read.header("content-security-policy").starts_with("sandbox;"));
    assert!(!read.headers.contains_key("accept"));
    let head = world.request("HEAD", ENTRY, &[], "").await;
    assert_eq!((head.status, head.header("content-length")), (read.status, "5"));
    // The same bytes again are a new version.
    let replaced = world.put_entry(ENTRY, &[], "image").await.expect(200);
    assert_ne!(replaced.header("etag"), created.header("etag"));
    let read = world.get(ENTRY).await.expect(200);
    assert_eq!(read.header("content-type"), "application/octet-stream");
    assert_eq!((read.header("etag"), read.header("x-review")), (replaced.header("etag"), ""));
    for _ in 0..2 {
        let deleted = world.delete_entry(ENTRY, &[]).await.expect(204);
        assert_eq!(deleted.header("cache-control"), "no-store");
    }
    world.get(ENTRY).await.expect(404);
    world.put_entry(ENTRY, &[("content-length", "0")], "").await.expect(201);
    assert_eq!(world.get(ENTRY).await.expect(200).header("content-length"), "0");
}

#[tokio::test]
async fn conditions_decide_whether_an_entry_is_written() {
    let world = world(r#"{"type": "blob"}"#).await;
    world.put_entry(ENTRY, &[("if-match", "*")], "x").await.expect(412);
    world.put_entry(ENTRY, &[("if-match", "\"0123456789abcdef\"")], "x").await.expect(412);
    let first = world.put_entry(ENTRY, &[("if-none-match", "*")], "1").await.expect(201);
    world.put_entry(ENTRY, &[("if-none-match", "*")], "x").await.expect(412);
    let first = first.header("etag");
    world.put_entry(ENTRY, &[("if-none-match", &format!("\"a\", W/{first}"))], "x").await.expect(412);
    world.clock.advance(Duration::from_secs(10));
    let weak = format!("\"other\", W/{}-gzip\"", first.trim_end_matches('"'));
    let second = world.put_entry(ENTRY, &[("if-match", &weak)], "2").await.expect(200);
    let second = second.header("etag");
    world.put_entry(ENTRY, &[("if-match", first)], "x").await.expect(412);
    world.put_entry(ENTRY, &[("if-none-match", first)], "3").await.expect(200);
    let (before, after) = ("Mon, 01 Jan 2024 00:00:09 GMT", "Mon, 01 Jan 2024 00:00:10 GMT");
    world.put_entry(ENTRY, &[("if-unmodified-since", before)], "x").await.expect(412);
    world.delete_entry(ENTRY, &[("if-unmodified-since", before)]).await.expect(412);
    assert_eq!(world.get(ENTRY).await.text(), "3");
    world.put_entry(ENTRY, &[("if-unmodified-since", after)], "4").await.expect(200);
    world.delete_entry(ENTRY, &[("if-match", second)]).await.expect(412);
    world.delete_entry(ENTRY, &[("if-none-match", "*")]).await.expect(412);
    let current = world.get(ENTRY).await.expect(200);
    world.delete_entry(ENTRY, &[("if-match", current.header("etag"))]).await.expect(204);
    world.delete_entry(ENTRY, &[("if-match", "*")]).await.expect(412);
}

/// Another client writes the entry after the condition was checked, and before the body has arrived.
#[tokio::test]
async fn condition_of_a_put_is_checked_again_after_its_body() {
    let world = world(r#"{"type": "blob"}"#).await;
    for number in 1..=2 {
        // At first there is no entry, and then an older version.
        let condition = match world.get(ENTRY).await {
            answer if answer.status == 404 => ("if-none-match", "*".to_owned()),
            answer => ("if-match", answer.header("etag").to_owned()),
        };
        let condition = [(condition.0, condition.1.as_str())];
        let ((begin, begun), (finish, finished)) = (oneshot::channel(), oneshot::channel());
        let body = stream::once(async move {
            begin.send(()).unwrap();
            finished.await.unwrap();
            Ok::<_, std::io::Error>(Bytes::from("late"))
        });
        let late = world.put_entry(ENTRY, &condition, Body::from_stream(body));
        let other = async {
            begun.await.unwrap();
            world.put_entry(ENTRY, &condition, format!("first {number}")).await;
            finish.send(()).unwrap();
        };
        let (late, ()) = tokio::join!(late, other);
        late.expect(412);
        assert_eq!(world.get(ENTRY).await.expect(200).text(), format!("first {number}"));
    }
}

/// Two requests check the same condition before either is carried out.
#[tokio::test]
async fn condition_of_a_delete_is_checked_again_when_it_is_carried_out() {
    let world = world(r#"{"type": "blob"}"#).await;
    for put_is_first in [true, false] {
        let written = world.put_entry(ENTRY, &[], "one").await;
        let condition = [("if-match", written.header("etag"))];
        let put = world.put_entry(ENTRY, &condition, "two");
        let delete = world.delete_entry(ENTRY, &condition);
        let statuses = if put_is_first {
            let (put, delete) = tokio::join!(put, delete);
            [put.status, delete.status]
        } else {
            let (delete, put) = tokio::join!(delete, put);
            [put.status, delete.status]
        };
        let has_entry = world.get(ENTRY).await.status == 200;
        match statuses.map(|status| status.as_u16()) {
            [200, 412] => assert!(has_entry),
            [412, 204] => assert!(!has_entry),
            statuses => panic!("{statuses:?}"),
        }
    }
}

#[tokio::test]
async fn reader_that_has_the_entry_gets_304() {
    let world = world(r#"{"type": "blob"}"#).await;
    world.put_entry(ENTRY, &[PNG], "image").await.expect(201);
    let etag = world.get(ENTRY).await.header("etag").to_owned();
    let same = "Mon, 01 Jan 2024 00:00:00 GMT";
    let before = "Sun, 31 Dec 2023 23:59:59 GMT";
    for (headers, status) in [
        ([("if-none-match", etag.as_str())], 304),
        ([("if-none-match", "*")], 304),
        ([("if-none-match", "\"other\"")], 200),
        ([("if-match", &etag)], 200),
        ([("if-match", "\"other\"")], 412),
        ([("if-modified-since", same)], 200),
        ([("if-modified-since", before)], 200),
        ([("if-modified-since", "yesterday")], 200),
        ([("if-unmodified-since", same)], 200),
        ([("if-unmodified-since", before)], 412),
    ] {
        let answer = world.get_with(ENTRY, &headers).await.expect(status);
        if status == 304 {
            assert_eq!((answer.header("etag"), answer.header("vary")), (etag.as_str(), "Accept-Encoding"));
            assert!(answer.body.is_empty() && !answer.header("cache-control").is_empty(), "{headers:?}");
        }
    }
}

#[tokio::test]
async fn ranges_and_stored_compression_are_sent() {
    let world = world(r#"{"type": "blob"}"#).await;
    for length in [10_000, 2_500_000] {
        let body = text(length);
        world.put_entry(ENTRY, &[], body.clone()).await;
        let whole = world.get(ENTRY).await.expect(200);
        assert!(whole.body == body, "{length}");
        let part = world.get_with(ENTRY, &[("range", "bytes=5000-8999")]).await.expect(206);
        assert!(part.body == body[5000..9000], "{length}");
        assert_eq!(part.header("content-range"), format!("bytes 5000-8999/{length}"));
        world.get_with(ENTRY, &[("range", "bytes=3000000-")]).await.expect(416);
        let compressed = world.get_with(ENTRY, &[("accept-encoding", "zstd")]).await.expect(200);
        assert_eq!(compressed.header("content-encoding"), "zstd");
        assert!(compressed.body.len() < length / 2);
        assert!(zstd::decode_all(&*compressed.body).unwrap() == body, "{length}");
        assert_eq!(
            compressed.header("etag"),
            format!("{};zstd\"", whole.header("etag").trim_end_matches('"'))
        );
        world.get_with(ENTRY, &[("if-none-match", compressed.header("etag"))]).await.expect(304);
        // A HEAD ignores the range.
        let head = world.request("HEAD", ENTRY, &[("range", "bytes=0-1")], "").await.expect(200);
        assert_eq!(head.header("content-length"), length.to_string());
    }
}

#[tokio::test]
async fn body_is_streamed_up_to_the_limit_of_the_bucket() {
    let world = world(r#"{"type": "blob", "max_size": 2000000}"#).await;
    let pieces = |count: usize| {
        let piece = Bytes::from(text(100_000));
        Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
    };
    world.put_entry(ENTRY, &[], pieces(20)).await.expect(201);
    world.put_entry(ENTRY, &[], pieces(21)).await.expect(413);
    world.put_entry(ENTRY, &[], text(2_000_001)).await.expect(413);
    assert_eq!(world.get(ENTRY).await.expect(200).body.len(), 2_000_000);
    let small = World::with(Settings { max_body_bytes: 1000, ..Settings::default() }).await;
    small.request("PUT", BUCKET, &[JSON], r#"{"type": "blob"}"#).await.expect(201);
    small.put_entry(ENTRY, &[], text(1001)).await.expect(413);
    small.put_entry(ENTRY, &[], text(1000)).await.expect(201);
    small
        .request("PUT", "/v1/enwiki/large", &[JSON], r#"{"type": "blob", "max_size": 1001}"#)
        .await
        .expect(422);
}

/// With little staging memory, a received body is moved to chunks.
#[tokio::test]
async fn bodies_are_stored_whole_when_staging_memory_is_short() {
    let settings = Settings { staging_bytes: 4 << 20, ..Settings::default() };
    let world = World::with(settings).await;
    world.request("PUT", BUCKET, &[JSON], r#"{"type": "blob"}"#).await.expect(201);
    let body = incompressible(900_000);
    let streamed = Body::from_stream(stream::iter([Ok::<_, std::io::Error>(Bytes::from(body.clone()))]));
    world.put_entry(ENTRY, &[], streamed).await.expect(201);
    assert!(world.get(ENTRY).await.expect(200).body == body);
    let part = world.get_with(ENTRY, &[("range", "bytes=899990-")]).await.expect(206);
    assert!(part.body == body[899_990..]);
}

#[tokio::test]
async fn entry_expires_after_its_ttl() {
    let world = world(r#"{"type": "blob", "ttl": 60}"#).await;
    world
        .put_entry(ENTRY, &[("cache-control", "public, max-age=3600, s-maxage=3600")], "x")
        .await
        .expect(201);
    let caching = |answer: &Answer| answer.header("cache-control").to_owned();
    assert_eq!(caching(&world.get(ENTRY).await.expect(200)), "public, max-age=60, s-maxage=60");
    world.clock.advance(Duration::from_millis(19_500));
    let read = world.get(ENTRY).await.expect(200);
    assert_eq!(caching(&read), "public, max-age=40, s-maxage=40");
    let unchanged = world.get_with(ENTRY, &[("if-none-match", "*")]).await.expect(304);
    assert_eq!(caching(&unchanged), "public, max-age=40, s-maxage=40");
    world.clock.advance(Duration::from_millis(40_500));
    world.get(ENTRY).await.expect(404);
    world.put_entry(ENTRY, &[("if-match", read.header("etag"))], "x").await.expect(412);
    world.put_entry(ENTRY, &[("if-none-match", "*")], "x").await.expect(201);
}

#[tokio::test]
async fn key_in_another_spelling_is_redirected() {
    let world = world(r#"{"type": "blob"}"#).await;
    for (spelling, canonical) in
        [("a%2Fb", "a/b"), ("%61", "a"), ("a%5Fb", "a_b"), ("%c3%bc", "%C3%BC"), ("a%2fb%20c", "a/b%20c")]
    {
        for method in ["GET", "HEAD"] {
            let answer = world.request(method, &format!("{BUCKET}/{spelling}"), &[], "").await;
            assert_eq!(answer.status, 301, "{spelling}");
            assert_eq!(answer.header("location"), format!("{BUCKET}/{canonical}"));
        }
        // Writes take any spelling.
        world.put_entry(&format!("{BUCKET}/{spelling}"), &[], spelling.to_owned()).await.expect(201);
        assert_eq!(world.get(&format!("{BUCKET}/{canonical}")).await.expect(200).text(), spelling);
        world.delete_entry(&format!("{BUCKET}/{spelling}"), &[]).await.expect(204);
        world.get(&format!("{BUCKET}/{canonical}")).await.expect(404);
    }
    // In a key, a space differs from an underscore.
    world.put_entry(&format!("{BUCKET}/a%20b"), &[], "space").await.expect(201);
    world.put_entry(&format!("{BUCKET}/a_b"), &[], "underscore").await.expect(201);
    assert_eq!(world.get(&format!("{BUCKET}/a%20b")).await.expect(200).text(), "space");
    for key in ["/a", "a//b/", "a&b='+"] {
        world.put_entry(&format!("{BUCKET}/{key}"), &[], key.to_owned()).await.expect(201);
        assert_eq!(world.get(&format!("{BUCKET}/{key}")).await.expect(200).text(), key);
    }
}

#[tokio::test]
async fn malformed_requests_for_entries_are_refused() {
    let world = world(r#"{"type": "blob"}"#).await;
    world.put_entry(ENTRY, &[], "x").await.expect(201);
    let before = world.dump().await;
    let long = "a".repeat(1025);
    for key in [".", "..", "a/%2E%2e", "%", "%FF", "a%00", &long] {
        for method in ["GET", "PUT", "DELETE"] {
            world.request(method, &format!("{BUCKET}/{key}"), &[], "x").await.expect(400);
        }
    }
    for url in [
        "/v1/EN/math-png/a",
        "/v1/tokens/math-png/a",
        "/v1/enwiki/Math/a",
        "/v1/enwiki/import/a",
        "/v1/enwiki/changes/a",
        "/v1/enwiki/timeline/a",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            world.request(method, url, &[], "x").await.expect(400);
        }
    }
    for method in ["GET", "PUT", "DELETE"] {
        world.request(method, &format!("{ENTRY}?x"), &[], "x").await.expect(400);
        let answer = world.request(method, ENTRY, &[("idempotency-key", "1")], "x").await.expect(400);
        assert!(answer.text().contains("Idempotency-Key"), "{}", answer.text());
    }
    for (method, url) in
        [("PUT", "/v1/enwiki/other/a"), ("GET", "/v1/enwiki/other/a"), ("DELETE", "/v1/enwiki/other/a")]
    {
        let answer = world.request(method, url, &[], "x").await.expect(404);
        assert!(answer.text().contains("PUT /v1/enwiki/other"), "{}", answer.text());
    }
    let refused = world.request("POST", ENTRY, &[], "x").await.expect(405);
    assert_eq!(refused.header("allow"), "GET, HEAD, PUT, DELETE, OPTIONS");
    // These answers do not depend on the bucket, which the client may not know.
    for url in [ENTRY, "/v1/enwiki/other/a"] {
        for (method, status) in [("OPTIONS", 204), ("PATCH", 405), ("TRACE", 405)] {
            let answer = world.request(method, url, &[], "").await.expect(status);
            assert_eq!(answer.header("allow"), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
        }
    }
    world.put_entry(ENTRY, &[("content-encoding", "gzip")], "x").await.expect(415);
    for headers in [("content-range", "bytes 0-1/2"), ("content-type", "png"), ("cache-control", "max-age=")]
    {
        world.put_entry(ENTRY, &[headers], "y").await.expect(400);
    }
    world.put_entry(ENTRY, &[], Body::empty()).await.expect(400);
    world.put_entry(ENTRY, &[("x-a", &"a".repeat(8200))], "y").await.expect(422);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn read_only_server_refuses_writes_of_entries() {
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    for (method, url) in [("PUT", BUCKET), ("DELETE", BUCKET), ("PUT", ENTRY), ("DELETE", ENTRY)] {
        world.request(method, url, &[JSON], r#"{"type": "blob"}"#).await.expect(403);
    }
}
