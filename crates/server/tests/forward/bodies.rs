//! Bodies of requests, and which of them are sent again.

use bytes::Bytes;
use rashomon_server::Settings;

use crate::{
    backends::{Behavior, Recorder, SocketBackend},
    http::{chunked, get, request, send, wait_until},
    server::{Parts, Server, entry},
};

const MIB: usize = 1 << 20;

/// The path of an entry.
const ENTRY: &str = "/v1/enwiki/math-png/a";

/// The path of a page's revisions. A POST to it may be repeated.
const REVISIONS: &str = "/v1/enwiki/page/A?rev/";

#[tokio::test]
async fn bodies_of_any_size_arrive_as_a_whole() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    for size in [0, 1, MIB, MIB + 1, 5 * MIB] {
        let length = size.to_string();
        let headers = [("content-length", length.as_str())];
        assert_eq!(send(server.address, request("PUT", ENTRY, &headers, vec![b'x'; size])).await.status, 200);
        let got = backend.log.all().pop().unwrap();
        assert_eq!((got.bytes, got.header("content-length")), (size, &*length));
        let pieces = vec![Bytes::from(vec![b'x'; size / 2]), Bytes::from(vec![b'x'; size - size / 2])];
        assert_eq!(send(server.address, chunked("PUT", ENTRY, pieces)).await.status, 200);
        let got = backend.log.all().pop().unwrap();
        assert_eq!((got.bytes, got.header("transfer-encoding")), (size, "chunked"));
    }
}

#[tokio::test]
async fn body_up_to_a_mebibyte_is_sent_again_and_a_larger_one_is_not() {
    for (size, status) in [(0, 200), (MIB, 200), (MIB + 1, 502)] {
        // The first server reads all of the body, and breaks the connection.
        let broken = SocketBackend::start(Behavior::CloseAfter(size + 20)).await;
        let backend = Recorder::start();
        let server = Server::forwarding(vec![entry("/", [broken.url(), backend.url()])]).await;
        let answer = send(server.address, request("POST", REVISIONS, &[], vec![b'x'; size])).await;
        assert_eq!(answer.status, status, "{size}");
        assert_eq!(broken.connections(), 1);
        match status {
            200 => assert_eq!(backend.log.only().bytes, size),
            _ => assert!(backend.log.all().is_empty()),
        }
    }
}

#[tokio::test]
async fn body_without_memory_is_sent_once() {
    for (replay_bytes, status) in [(0, 502), (4 * MIB, 200)] {
        let broken = SocketBackend::start(Behavior::CloseAfter(100_000)).await;
        let backend = Recorder::start();
        let entries = vec![entry("/", [broken.url(), backend.url()])];
        let server = Server::with(Parts { entries, replay_bytes, ..Parts::default() }).await;
        let answer = send(server.address, request("POST", REVISIONS, &[], vec![b'x'; 100_000])).await;
        assert_eq!(answer.status, status);
        // A connection that was refused needs no memory: the body has not been read.
        let entries = vec![entry("/", [crate::backends::refusing_url().await, backend.url()])];
        let server = Server::with(Parts { entries, replay_bytes, ..Parts::default() }).await;
        assert_eq!(send(server.address, request("PUT", ENTRY, &[], vec![b'x'; 100_000])).await.status, 200);
    }
}

#[tokio::test]
async fn memory_of_bodies_is_given_back() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    send(server.address, request("PUT", ENTRY, &[], vec![b'x'; MIB])).await;
    let line = "rashomon_forward_replay_bytes 0\n";
    wait_until(async || get(server.address, "/metrics").await.text().contains(line)).await;
}

#[tokio::test]
async fn body_beyond_the_limit_is_refused_and_does_not_exclude_the_backend() {
    let backend = Recorder::start();
    let settings = Settings { max_body_bytes: 1000, ..Settings::default() };
    let entries = vec![entry("/", [backend.url()])];
    let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
    let answer = send(server.address, request("PUT", ENTRY, &[], vec![b'x'; 1001])).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (413, "too-large"));
    let answer =
        send(server.address, chunked("PUT", ENTRY, vec![vec![b'x'; 600].into(), vec![b'x'; 600].into()]))
            .await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (413, "too-large"));
    let ready = get(server.address, "/readyz").await;
    assert!(ready.text().contains("\"ready\":1,\"degraded\":0,\"down\":0"), "{ready:?}");
}

#[tokio::test]
async fn client_that_stops_in_the_middle_does_not_exclude_the_backend() {
    let backend = Recorder::start();
    // The time limit for the backend (`idle_timeout`) is shorter than that for the client (`body_idle_seconds`).
    let list = rashomon_server::registry::ServerList {
        idle_timeout: std::time::Duration::from_millis(50),
        ..rashomon_server::registry::ServerList::new(vec![backend.url()])
    };
    let settings = Settings { body_idle_seconds: 1, ..Settings::default() };
    let entries = vec![crate::server::entry_of("/", list)];
    let server = Server::with(Parts { entries, settings, ..Parts::default() }).await;
    let (sender, receiver) = futures::channel::mpsc::unbounded::<Result<Bytes, std::io::Error>>();
    sender.unbounded_send(Ok("first".into())).unwrap();
    let mut slow = request("PUT", ENTRY, &[], "");
    *slow.body_mut() = axum::body::Body::from_stream(receiver);
    let answer = send(server.address, slow).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (408, "request-timeout"));
    let ready = get(server.address, "/readyz").await;
    assert!(ready.text().contains("\"ready\":1,\"degraded\":0,\"down\":0"), "{ready:?}");
}
