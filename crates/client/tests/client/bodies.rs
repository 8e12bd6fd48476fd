//! Large bodies.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use rashomon_client::{Body, Error, ProblemKind, TransportError};

use crate::{
    server::Server,
    socket::{
        Behavior::{Answer, Close, Reset, Silent},
        FakeServer, WRITTEN, page_of, quick, refusing,
    },
};

/// A body of this many pieces of 64 KiB, which counts the pieces that were taken.
fn counted(pieces: usize, taken: &Arc<AtomicUsize>) -> Body {
    let taken = Arc::clone(taken);
    Body::from_stream(stream::iter(0..pieces).map(move |_| {
        taken.fetch_add(1, Ordering::SeqCst);
        Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 64 << 10]))
    }))
}

#[tokio::test]
async fn streamed_property_comes_back_as_a_stream() {
    let server = Server::start().await;
    let (page, taken) = (server.page("Large"), Arc::default());
    page.new_revision(1).property("html", counted(160, &taken)).send().await.unwrap();
    assert_eq!(taken.load(Ordering::SeqCst), 160);
    let mut html = page.latest("html").await.unwrap();
    assert_eq!(html.body.length(), Some(10 << 20));
    let mut size = 0;
    while let Some(piece) = html.body.next().await {
        let piece = piece.unwrap();
        assert!(piece.len() < 2 << 20 && piece.iter().all(|byte| *byte == b'x'));
        size += piece.len();
    }
    assert_eq!(size, 10 << 20);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "<p>a file").unwrap();
    let reader = tokio::fs::File::open(file.path()).await.unwrap();
    page.new_revision(2).property("html", Body::from_reader(reader)).send().await.unwrap();
    assert_eq!(page.latest("html").await.unwrap().text(100).await.unwrap(), "<p>a file");
}

#[tokio::test]
async fn upload_reads_no_more_than_the_connection_takes() {
    let taken = Arc::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Nobody reads from this connection.
    let url = format!("http://{}", listener.local_addr().unwrap());
    let page = page_of(quick([url]).idle_timeout(Duration::from_millis(500)));
    let error = page.new_revision(1).property("html", counted(100_000, &taken)).send().await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::TimedOut { .. })), "{error}");
    let taken = taken.load(Ordering::SeqCst) * 64;
    assert!(taken < 64 << 10, "{taken} KiB were taken");
}

#[tokio::test]
async fn slow_upload_is_not_given_up_while_it_continues() {
    let server = FakeServer::start(&[Answer(WRITTEN)]).await;
    let source = stream::iter(0..8).then(|_| async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok::<_, io::Error>(Bytes::from_static(b"x"))
    });
    let page = page_of(quick([server.url()]).idle_timeout(Duration::from_millis(1500)));
    page.new_revision(1).property("html", Body::from_stream(source)).send().await.unwrap();
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn body_above_one_mebibyte_is_sent_once() {
    let large = vec![b'x'; 2 << 20];
    let server = FakeServer::start(&[Close, Answer(WRITTEN)]).await;
    let page = page_of(quick([server.url()]));
    let error = page.new_revision(1).property("html", large.clone()).send().await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::Broken { .. })), "{error}");
    assert_eq!(server.connections(), 1);
    // No byte was sent to the first server, so the body can be sent to the second.
    let server = FakeServer::start(&[Answer(WRITTEN)]).await;
    let page = page_of(quick([refusing().await, server.url()]));
    page.new_revision(1).property("html", large).send().await.unwrap();
    assert!(server.requests()[0].len() > 2 << 20);
}

#[tokio::test]
async fn streamed_body_up_to_one_mebibyte_is_repeated() {
    let (server, taken) = (FakeServer::start(&[Reset(200 << 10), Answer(WRITTEN)]).await, Arc::default());
    page_of(quick([server.url()]))
        .new_revision(1)
        .property("html", counted(10, &taken))
        .send()
        .await
        .unwrap();
    assert_eq!((server.connections(), taken.load(Ordering::SeqCst)), (2, 10));
    let request = &server.requests()[0];
    assert_eq!(request.matches('x').count() - request.matches("x-").count(), 640 << 10);
}

#[tokio::test]
async fn failing_source_ends_the_request() {
    let source = stream::iter([Ok(Bytes::from_static(b"a")), Err(io::Error::other("the disk is gone"))]);
    let server = FakeServer::start(&[Silent]).await;
    let write = page_of(quick([server.url()])).new_revision(1).property("html", Body::from_stream(source));
    let error = write.send().await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::Source(_))), "{error}");
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn refusal_is_read_although_the_upload_is_not_complete() {
    let server = Server::start().await;
    let taken = Arc::default();
    let error =
        server.page("A").new_revision(1).property("html", counted(1100, &taken)).send().await.unwrap_err();
    assert_eq!(error.problem().and_then(|problem| problem.kind), Some(ProblemKind::TooLarge), "{error}");
}
