//! Cut connections of requests for buckets: what is repeated, and what is not.

use rashomon_client::{Body, Bucket, BucketDefinition, Error, Store, TransportError};

use crate::socket::{
    Behavior::{Answer, Close},
    Fake, quick,
};

const STORED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\nETag: \"1\"\r\n\r\n";
const DELETED: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
const DEFINITION: &str =
    "HTTP/1.1 200 OK\r\nConnection: close\r\nETag: \"1\"\r\n\r\n{\"type\": \"counter\", \"public\": false}";

fn bucket(server: &Fake) -> Bucket {
    Store::new(quick([server.url()])).unwrap().domain("enwiki").unwrap().bucket("clicks").unwrap()
}

fn is_broken<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Transport(TransportError::Broken { .. })))
}

#[tokio::test]
async fn write_of_an_entry_is_repeated_unless_it_has_a_condition() {
    let etag = "\"1\"".parse().unwrap();
    let server = Fake::start(&[Close, Answer(STORED)]).await;
    bucket(&server).entry("a").unwrap().put("x").send().await.unwrap();
    let requests = server.requests();
    assert_eq!((requests.len(), &requests[0]), (2, &requests[1]));
    assert!(requests[0].starts_with("PUT /v1/enwiki/clicks/a HTTP/1.1\r\n") && requests[0].ends_with("x"));
    let server = Fake::start(&[Close, Answer(STORED)]).await;
    assert!(is_broken(&bucket(&server).entry("a").unwrap().put("x").if_new().send().await));
    assert_eq!(server.connections(), 1);
    let server = Fake::start(&[Close, Answer(STORED)]).await;
    assert!(is_broken(&bucket(&server).entry("a").unwrap().put("x").if_match(&etag).send().await));
    assert_eq!(server.connections(), 1);

    let server = Fake::start(&[Close, Answer(DELETED)]).await;
    bucket(&server).entry("a").unwrap().delete().await.unwrap();
    assert_eq!(server.connections(), 2);
    let server = Fake::start(&[Close, Answer(DELETED)]).await;
    assert!(is_broken(&bucket(&server).entry("a").unwrap().delete_version(&etag).await));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn write_of_a_definition_is_repeated_unless_it_replaces_one() {
    let server = Fake::start(&[Close, Answer(DEFINITION)]).await;
    let definition = BucketDefinition::counter();
    bucket(&server).create(&definition).await.unwrap();
    assert_eq!(server.connections(), 2);
    let server = Fake::start(&[Close, Answer(DEFINITION)]).await;
    assert!(is_broken(&bucket(&server).replace(&definition, &"\"1\"".parse().unwrap()).await));
    assert_eq!(server.connections(), 1);
    let server = Fake::start(&[Close, Answer(DELETED)]).await;
    bucket(&server).delete().await.unwrap();
    assert_eq!(server.connections(), 2);
}

/// A body that can be read once is not sent twice.
#[tokio::test]
async fn large_streamed_body_is_sent_once() {
    let server = Fake::start(&[Close, Answer(STORED)]).await;
    let body = Body::from_reader(tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), (1 << 20) + 1));
    assert!(is_broken(&bucket(&server).entry("a").unwrap().put(body).send().await));
    assert_eq!(server.connections(), 1);
}
