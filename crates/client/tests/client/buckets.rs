//! Key-value buckets of a server of the service.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use rashomon_client::{
    Body, Bucket, BucketDefinition, BucketType, Conditional, ETag, EntrySummary, Error, InputError, List,
    ProblemKind, RawRequest,
};

use crate::server::Server;

async fn bucket(server: &Server, definition: &BucketDefinition) -> Bucket {
    let bucket = server.store().domain("enwiki").unwrap().bucket("math-png").unwrap();
    assert!(bucket.create(definition).await.unwrap().is_new);
    bucket
}

fn kind(error: &Error) -> ProblemKind {
    error.problem().and_then(|problem| problem.kind).unwrap_or_else(|| panic!("{error}"))
}

fn other() -> ETag {
    "\"other\"".parse().unwrap()
}

#[tokio::test]
async fn definition_is_created_read_replaced_and_deleted() {
    let server = Server::start().await;
    let first = BucketDefinition::blob().content_type("image/png").public().ttl(Duration::from_secs(86400));
    let bucket = bucket(&server, &first).await;
    let stored = bucket.definition().await.unwrap();
    let filled = first.clone().max_size(stored.definition.max_size.unwrap());
    assert_eq!(stored.definition, filled);
    assert_eq!((stored.definition.bucket_type.clone(), stored.is_new), (BucketType::Blob, false));
    assert!(!bucket.create(&first).await.unwrap().is_new);

    let second = BucketDefinition::blob().max_size(1000);
    let conflict = bucket.create(&second).await.unwrap_err();
    assert_eq!(kind(&conflict), ProblemKind::Conflict);
    assert_eq!(conflict.problem().unwrap().definition.as_deref(), Some(&filled));
    let refused = bucket.replace(&second, &other()).await.unwrap_err();
    assert_eq!(kind(&refused), ProblemKind::PreconditionFailed);
    let replaced = bucket.replace(&second, &stored.etag).await.unwrap();
    assert_eq!((replaced.definition.max_size, replaced.definition.ttl), (Some(1000), None));
    assert_ne!(replaced.etag, stored.etag);
    let large = bucket.entry("a").unwrap().put(vec![0; 1001]).send().await.unwrap_err();
    assert_eq!(kind(&large), ProblemKind::TooLarge);

    bucket.delete().await.unwrap();
    assert_eq!(kind(&bucket.definition().await.unwrap_err()), ProblemKind::NotFound);
    assert_eq!(kind(&bucket.delete().await.unwrap_err()), ProblemKind::NotFound);
    let fraction = BucketDefinition::blob().ttl(Duration::from_millis(1500));
    assert!(matches!(bucket.create(&fraction).await, Err(Error::Input(InputError::Field { .. }))));
    let page = server.store().domain("enwiki").unwrap().bucket("page").unwrap();
    assert_eq!(page.definition().await.unwrap().definition.bucket_type, BucketType::Revisioned);
}

#[tokio::test]
async fn buckets_of_a_domain_are_listed() {
    let server = Server::start().await;
    let domain = server.store().domain("enwiki").unwrap();
    let names: Vec<_> = (0..5).map(|number| format!("b{number}")).collect();
    for name in &names {
        domain.bucket(name).unwrap().create(&BucketDefinition::ordered_blob()).await.unwrap();
    }
    for size in [1, 2, 5, 500] {
        let listed: Vec<_> = domain.buckets().page_size(size).try_collect().await.unwrap();
        assert!(listed.iter().map(|bucket| &bucket.name).eq(&names), "{listed:?}");
        assert!(listed.iter().all(|bucket| bucket.bucket_type == BucketType::OrderedBlob));
    }
}

#[tokio::test]
async fn entry_is_stored_read_and_deleted() {
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::blob().content_type("image/png")).await;
    let entry = bucket.entry("lögo/a b?&'.png").unwrap();
    assert_eq!(kind(&entry.get().await.unwrap_err()), ProblemKind::NotFound);
    assert_eq!(entry.head().await.unwrap_err().problem().unwrap().status.as_u16(), 404);
    let put = entry.put("image").header("X-Source", "scan").header("Cache-Control", "max-age=60");
    let stored = put.send().await.unwrap();
    assert!(stored.is_new);
    let read = entry.get().await.unwrap();
    assert_eq!((read.etag.as_ref(), read.content_type.as_deref()), (Some(&stored.etag), Some("image/png")));
    for (name, value) in [("x-source", "scan"), ("cache-control", "max-age=60")] {
        assert_eq!(read.headers[name], value);
    }
    assert_eq!(read.text(100).await.unwrap(), "image");
    let head = entry.head().await.unwrap();
    assert_eq!((head.size, head.etag.as_ref()), (Some(5), Some(&stored.etag)));
    assert_eq!(head.content_type.as_deref(), Some("image/png"));

    let again = entry.put("text").content_type("text/plain").send().await.unwrap();
    assert!(!again.is_new && again.etag != stored.etag);
    assert_eq!(entry.get().await.unwrap().content_type.as_deref(), Some("text/plain"));
    for _ in 0..2 {
        entry.delete().await.unwrap();
    }
    assert_eq!(kind(&entry.get().await.unwrap_err()), ProblemKind::NotFound);
    entry.put("").send().await.unwrap();
    assert_eq!(entry.head().await.unwrap().size, Some(0));
    let raw = RawRequest::new(Method::PUT, "//enwiki/math-png/empty");
    assert_eq!(server.store().run([raw]).await[0].as_ref().unwrap().status, 201);
    // A space and an underscore are two letters.
    assert_eq!(
        kind(&bucket.entry("lögo/a_b?&'.png").unwrap().get().await.unwrap_err()),
        ProblemKind::NotFound
    );
}

#[tokio::test]
async fn conditions_and_ranges_of_entries_hold() {
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::blob()).await;
    let entry = bucket.entry("a").unwrap();
    let first = entry.put("01234").if_new().send().await.unwrap().etag;
    let failed = ProblemKind::PreconditionFailed;
    assert_eq!(kind(&entry.put("x").if_new().send().await.unwrap_err()), failed);
    assert_eq!(kind(&entry.put("x").if_match(&other()).send().await.unwrap_err()), failed);
    let second = entry.put("56789").if_match(&first).send().await.unwrap().etag;
    assert_eq!(kind(&entry.delete_version(&first).await.unwrap_err()), failed);

    assert!(matches!(entry.request().if_none_match(&second).send().await.unwrap(), Conditional::NotModified));
    let two = entry.request().if_none_match(&second).if_none_match(&first);
    assert!(matches!(two.send().await.unwrap(), Conditional::NotModified));
    assert!(matches!(entry.request().if_none_match(&first).send().await.unwrap(), Conditional::Found(_)));
    assert_eq!(kind(&entry.request().if_match(&first).send().await.unwrap_err()), failed);
    let part = entry.request().if_match(&second).range(1..=2).send().await.unwrap();
    let Conditional::Found(part) = part else { panic!("{part:?}") };
    assert_eq!(part.text(100).await.unwrap(), "67");
    let beyond = entry.request().range(5..=9).send().await.unwrap_err();
    assert_eq!(kind(&beyond), ProblemKind::RangeNotSatisfiable);
    #[allow(clippy::reversed_empty_ranges)]
    let empty = entry.request().range(2..=1).send().await;
    assert!(matches!(empty, Err(Error::Input(InputError::Field { .. }))));
    entry.delete_version(&second).await.unwrap();
}

#[tokio::test]
async fn bodies_of_entries_are_streamed() {
    const PIECES: u8 = 40;
    let piece = |number: u8| Bytes::from(vec![number; 100_000]);
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::blob()).await;
    let entry = bucket.entry("large").unwrap();
    let pieces = stream::iter(0..PIECES).map(move |number| Ok::<_, std::io::Error>(piece(number)));
    entry.put(Body::from_stream(pieces)).send().await.unwrap();
    assert_eq!(entry.head().await.unwrap().size, Some(u64::from(PIECES) * 100_000));
    let mut body = entry.get().await.unwrap().body;
    let (mut count, mut largest) = (0_usize, 0);
    while let Some(part) = body.try_next().await.unwrap() {
        assert!(part.iter().enumerate().all(|(at, byte)| usize::from(*byte) == (count + at) / 100_000));
        (count, largest) = (count + part.len(), largest.max(part.len()));
    }
    assert_eq!(count, usize::from(PIECES) * 100_000);
    assert!(largest < count / 2, "{largest}");
    let limited = entry.get().await.unwrap().body.bytes(1000).await;
    assert!(matches!(limited, Err(Error::Answer(_))));
}

async fn keys(entries: List<EntrySummary>) -> Vec<String> {
    entries.map_ok(|entry| entry.key).try_collect().await.unwrap()
}

#[tokio::test]
async fn entries_are_listed_by_range_prefix_and_order() {
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::ordered_blob()).await;
    for key in ["b", "a&b", "a", "a b", "ü", "a/b"] {
        bucket.entry(key).unwrap().put(key.to_owned()).content_type("text/plain").send().await.unwrap();
    }
    let list = || bucket.entries();
    for size in [1, 2, 6, 500] {
        assert_eq!(keys(list().page_size(size)).await, ["a", "a b", "a&b", "a/b", "b", "ü"]);
        assert_eq!(keys(list().page_size(size).desc()).await, ["ü", "b", "a/b", "a&b", "a b", "a"]);
        assert_eq!(keys(list().prefix("a").gt("a").page_size(size)).await, ["a b", "a&b", "a/b"]);
    }
    assert_eq!(keys(list().ge("a&b").le("b")).await, ["a&b", "a/b", "b"]);
    assert_eq!(keys(list().gt("a&b").lt("b")).await, ["a/b"]);
    assert_eq!(keys(list().gt("a").ge("b").le("a").lt("ü")).await, ["b"], "the last bounds hold");
    assert_eq!(keys(list().prefix("ü")).await, ["ü"]);
    let first = list().try_next().await.unwrap().unwrap();
    assert_eq!((first.content_type.as_str(), first.size), ("text/plain", 1));
    assert_eq!(bucket.entry("a").unwrap().head().await.unwrap().etag, Some(first.etag));
    for invalid in [list().gt(""), list().le("a/.."), list().prefix(&"a".repeat(1025)), list().page_size(501)]
    {
        let results: Vec<_> = invalid.collect().await;
        assert!(matches!(results[..], [Err(Error::Input(_))]), "{results:?}");
    }
}

#[tokio::test]
async fn order_is_a_problem_for_a_bucket_without_one() {
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::blob()).await;
    bucket.entry("a").unwrap().put("x").send().await.unwrap();
    assert_eq!(keys(bucket.entries().page_size(1)).await, ["a"]);
    let error = bucket.entries().desc().try_next().await.unwrap_err();
    assert_eq!(kind(&error), ProblemKind::Malformed);
    assert!(error.to_string().contains("ordered-blob"), "{error}");
}

#[tokio::test]
async fn invalid_names_and_headers_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let domain = server.store().domain("enwiki").unwrap();
    for name in ["", "Math", "import", "changes", "timeline", "a/b"] {
        assert!(matches!(domain.bucket(name), Err(InputError::Name(_))), "{name}");
    }
    let bucket = domain.bucket("math-png").unwrap();
    for key in ["", "..", "a\nb"] {
        assert!(matches!(bucket.entry(key), Err(InputError::Name(_))), "{key:?}");
    }
    let put = bucket.entry("a").unwrap().put("x");
    let refused = put.header("Set-Cookie", "a=b").content_type("image/png").send().await;
    assert!(matches!(refused, Err(Error::Input(InputError::Header { .. }))), "{refused:?}");
}

#[tokio::test]
async fn counter_counts_an_idempotency_key_once() {
    let server = Server::start().await;
    let bucket = bucket(&server, &BucketDefinition::counter()).await;
    let counter = bucket.counter("Foo/button 1").unwrap();
    assert_eq!(counter.value().await.unwrap(), 0);
    assert_eq!(counter.increment(17).await.unwrap(), Some(17));
    assert_eq!(counter.increment(-20).await.unwrap(), Some(-3));
    for _ in 0..2 {
        assert_eq!(counter.increment_once(5, "view-4711").await.unwrap(), Some(2));
    }
    let overflow = counter.increment(i64::MAX).await.unwrap_err();
    assert_eq!(kind(&overflow), ProblemKind::InvalidValue);
    assert_eq!(counter.value().await.unwrap(), 2);
    bucket.counter("Bar").unwrap().increment(1).await.unwrap();
    let mut listed: Vec<_> = bucket.counters().page_size(1).try_collect().await.unwrap();
    listed.sort_by(|one, other| one.key.cmp(&other.key));
    let listed: Vec<_> = listed.iter().map(|counter| (counter.key.as_str(), counter.value)).collect();
    assert_eq!(listed, [("Bar", 1), ("Foo/button 1", 2)]);
}
