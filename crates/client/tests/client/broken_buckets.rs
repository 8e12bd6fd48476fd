//! Cut connections of requests for buckets: what is repeated, and what is not. The answers for counters are those of
//! the HTTP API.

use futures::TryStreamExt as _;
use rashomon_client::{
    Body, Bucket, BucketDefinition, CounterSummary, Error, InputError, Store, TransportError,
};

use crate::socket::{
    Behavior::{Answer, Close},
    FakeServer, quick, refusing,
};

const STORED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\nETag: \"1\"\r\n\r\n";
/// The answer to a DELETE, and to an increment without the right to read.
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
const VALUE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"value\": -9223372036854775808}";
const COUNTERS: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
    {\"entries\": [{\"key\": \"Foo\", \"value\": 17}], \"next\": \"?limit=1&after=Foo\"}";
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"entries\": []}";
const ELSEWHERE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\
    {\"entries\": [], \"next\": \"http://192.0.2.1/?after=Foo\"}";

fn bucket(server: &FakeServer) -> Bucket {
    Store::new(quick([server.url()])).unwrap().domain("enwiki").unwrap().bucket("clicks").unwrap()
}

fn is_broken<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Transport(TransportError::Broken { .. })))
}

#[tokio::test]
async fn put_and_delete_are_never_repeated_after_bytes_were_sent() {
    let etag = "\"1\"".parse().unwrap();
    let definition = BucketDefinition::counter();
    let server = FakeServer::start(&[Close]).await;
    let bucket = bucket(&server);
    let entry = || bucket.entry("a").unwrap();
    assert!(is_broken(&entry().put("x").send().await));
    assert!(is_broken(&entry().put("x").if_new().send().await));
    assert!(is_broken(&entry().put("x").if_match(&etag).send().await));
    assert!(is_broken(&entry().delete().await));
    assert!(is_broken(&entry().delete_version(&etag).await));
    assert!(is_broken(&bucket.create(&definition).await));
    assert!(is_broken(&bucket.replace(&definition, &etag).await));
    assert!(is_broken(&bucket.delete().await));
    assert_eq!(server.connections(), 8, "one for each request");
}

#[tokio::test]
async fn put_is_sent_to_the_next_server_if_nothing_was_sent() {
    let server = FakeServer::start(&[Answer(STORED)]).await;
    let store = Store::new(quick([refusing().await, server.url()])).unwrap();
    let entry = store.domain("enwiki").unwrap().bucket("clicks").unwrap().entry("a").unwrap();
    entry.put("x").send().await.unwrap();
    assert!(server.requests()[0].starts_with("PUT /v1/enwiki/clicks/a HTTP/1.1\r\n"));
}

#[tokio::test]
async fn large_streamed_body_is_sent_once() {
    let server = FakeServer::start(&[Close, Answer(STORED)]).await;
    let body = Body::from_reader(tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), (1 << 20) + 1));
    assert!(is_broken(&bucket(&server).entry("a").unwrap().put(body).send().await));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn increment_is_repeated_with_its_idempotency_key() {
    let server = FakeServer::start(&[Close, Answer(VALUE)]).await;
    let counter = bucket(&server).counter("Foo/button 1").unwrap();
    assert_eq!(counter.increment(-5).await.unwrap(), Some(i64::MIN));
    assert_eq!(counter.increment(i64::MAX).await.unwrap(), Some(i64::MIN));
    counter.increment_once(1, "view-4711").await.unwrap();
    let requests = server.requests();
    assert_eq!((requests.len(), &requests[0]), (4, &requests[1]));
    assert!(requests[0].starts_with("POST /v1/enwiki/clicks/Foo/button%201 HTTP/1.1\r\n"));
    assert!(requests[0].contains("content-type: application/json\r\n"), "{}", requests[0]);
    assert!(requests[0].ends_with("{\"increment\":-5}") && requests[2].ends_with(":9223372036854775807}"));
    let key = |request: &str| {
        let line = request.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
        line.unwrap_or_else(|| panic!("{request}")).to_owned()
    };
    assert_ne!(key(&requests[0]), key(&requests[2]), "each increment has a key of its own");
    assert_eq!(key(&requests[0]).len(), 32);
    assert_eq!(key(&requests[3]), "view-4711");
    for invalid in ["", "a b", "a\r\nb", "é", &"x".repeat(256)] {
        let refused = counter.increment_once(1, invalid).await;
        assert!(matches!(refused, Err(Error::Input(InputError::IdempotencyKey(_)))), "{invalid:?}");
    }
    assert_eq!(server.connections(), 4);
}

/// A token that may write and not read gets an answer without the value.
#[tokio::test]
async fn increment_without_the_right_to_read_has_no_value() {
    let server = FakeServer::start(&[Answer(NO_CONTENT)]).await;
    assert_eq!(bucket(&server).counter("Foo").unwrap().increment(1).await.unwrap(), None);
}

#[tokio::test]
async fn counters_are_read_and_listed() {
    let server = FakeServer::start(&[Answer(VALUE), Answer(COUNTERS), Answer(LAST)]).await;
    assert_eq!(bucket(&server).counter("Foo").unwrap().value().await.unwrap(), i64::MIN);
    let counters: Vec<CounterSummary> = bucket(&server).counters().page_size(1).try_collect().await.unwrap();
    assert_eq!((counters.len(), counters[0].key.as_str(), counters[0].value), (1, "Foo", 17));
    let lines: Vec<_> =
        server.requests().iter().map(|request| request.lines().next().unwrap().to_owned()).collect();
    assert_eq!(
        lines,
        [
            "GET /v1/enwiki/clicks/Foo HTTP/1.1",
            "GET /v1/enwiki/clicks/?limit=1 HTTP/1.1",
            "GET /v1/enwiki/clicks/?limit=1&after=Foo HTTP/1.1"
        ]
    );
    let server = FakeServer::start(&[Answer(ELSEWHERE)]).await;
    let error = bucket(&server).counters().try_next().await.unwrap_err();
    assert!(error.to_string().contains("a link to another resource or server"), "{error}");
}
