//! The examples run.

#[path = "../../examples/bucket.rs"]
#[allow(dead_code)] // Its `main` is not used here.
mod bucket;
#[path = "../../examples/edit.rs"]
#[allow(dead_code)] // Its `main` is not used here.
mod edit;
#[path = "../../examples/registry.rs"]
#[allow(dead_code)] // Its `main` is not used here.
mod registry;

use crate::server::Server;

#[tokio::test]
async fn edit_writes_and_lists_revisions() {
    let server = Server::start().await;
    for expected in ["1 by Ann", "2 by Ann"] {
        let lines = edit::edit(&server.url(), "Main Page", "Hello").await.unwrap();
        assert!(lines[0].ends_with(expected), "{lines:?}");
    }
}

#[tokio::test]
async fn registry_answers_from_two_backends() {
    let server = Server::start().await;
    let lines = registry::ask(&server.url()).await.unwrap();
    assert_eq!(lines, ["404 Not Found", "200 OK: pong"]);
}

#[tokio::test]
async fn bucket_stores_readings_once_and_lists_a_month() {
    let server = Server::start().await;
    for _ in 0..2 {
        let lines = bucket::readings(&server.url()).await.unwrap();
        assert_eq!(lines, ["2012-02-01T12:00: 4 °C", "2012-02-02T12:00: 7 °C"]);
    }
}
