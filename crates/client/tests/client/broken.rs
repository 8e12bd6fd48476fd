//! Cut connections, slow servers and refused connections: what is repeated, and what is not.

use std::time::Duration;

use rashomon_client::{Error, Outcome, Page, RawRequest, Registry, Store, TransportError};

use crate::socket::{
    Behavior::{Answer, Close, Reset, Silent, Stop},
    FakeServer, OK, WRITTEN, page_of, quick, refusing,
};

const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

async fn read(page: &Page) -> Result<String, Error> {
    page.latest("html").await?.text(100).await
}

fn is_broken(error: &Error) -> bool {
    matches!(error, Error::Transport(TransportError::Broken { .. }))
}

#[tokio::test]
async fn read_is_repeated_after_a_cut_connection() {
    for cut in [Close, Reset(1)] {
        let server = FakeServer::start(&[cut, cut, Answer(OK)]).await;
        assert_eq!(read(&page_of(quick([server.url()]))).await.unwrap(), "ok");
        assert_eq!(server.connections(), 3);
    }
}

#[tokio::test]
async fn attempts_are_limited() {
    let server = FakeServer::start(&[Close]).await;
    assert!(is_broken(&read(&page_of(quick([server.url()]))).await.unwrap_err()));
    assert_eq!(server.connections(), 3);
    let server = FakeServer::start(&[Close]).await;
    assert!(is_broken(&read(&page_of(quick([server.url()]).attempts(1))).await.unwrap_err()));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn new_revision_is_repeated_with_its_whole_body() {
    let server = FakeServer::start(&[Close, Reset(300), Answer(WRITTEN)]).await;
    let page = page_of(quick([server.url()]));
    let written = page.new_revision(1).property("html", "<p>Hello</p>").send().await.unwrap();
    assert_eq!((written.outcome, written.number.get()), (Outcome::Created, 1));
    let requests = server.requests();
    assert_eq!((server.connections(), requests.len()), (3, 2));
    assert_eq!(requests[0], requests[1], "the repeated request is the same");
    assert!(requests[0].starts_with("POST /v1/enwiki/page/A?rev/ HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(requests[0].contains("\r\n\r\n<p>Hello</p>\r\n"));
}

#[tokio::test]
async fn post_without_a_key_is_never_repeated_after_bytes_were_sent() {
    for cut in [Close, Reset(1), Silent] {
        let (server, other) = (FakeServer::start(&[cut]).await, FakeServer::start(&[Answer(WRITTEN)]).await);
        // The first server has the first turn.
        let servers = quick([server.url(), other.url()]).idle_timeout(Duration::from_secs(1));
        let error = page_of(servers).new_render(1).property("html", "x").send().await.unwrap_err();
        assert!(matches!(&error, Error::Transport(error) if !error.is_unsent()), "{error}");
        assert_eq!((server.connections(), other.connections()), (1, 0));
    }
}

#[tokio::test]
async fn post_with_a_key_is_repeated() {
    let server = FakeServer::start(&[Close, Answer(OK)]).await;
    let registry = Registry::for_domain("enwiki").unwrap().servers("/", quick([server.url()]));
    let request = RawRequest::post("/clicks/A").header("Idempotency-Key", "k1").form([("increment", "1")]);
    let results = Store::of(registry).unwrap().run([request]).await;
    assert_eq!(results[0].as_ref().unwrap().body, "ok");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0], requests[1]);
    assert!(requests[0].contains("idempotency-key: k1\r\n") && requests[0].ends_with("increment=1"));
}

#[tokio::test]
async fn put_is_never_repeated_after_bytes_were_sent() {
    let tid = TID.parse().unwrap();
    let etag = "\"1/x\"".parse().unwrap();
    for cut in [Close, Reset(1), Silent] {
        for has_condition in [false, true] {
            let server = FakeServer::start(&[cut, Answer(WRITTEN)]).await;
            let servers = quick([server.url()]).idle_timeout(Duration::from_millis(300));
            let mut replacement = page_of(servers).replace(tid, "html", "x");
            if has_condition {
                replacement = replacement.if_match(&etag);
            }
            let error = replacement.send().await.unwrap_err();
            assert!(matches!(&error, Error::Transport(error) if !error.is_unsent()), "{error}");
            assert_eq!(server.connections(), 1);
        }
    }
}

#[tokio::test]
async fn switch_to_another_protocol_is_an_error_and_other_interim_answers_are_passed_over() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n\
                           HTTP/1.1 102 Processing\r\n\r\n\
                           HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let server = FakeServer::start(&[Stop(SWITCH)]).await;
    let error = page_of(quick([server.url()])).new_render(1).property("html", "x").send().await.unwrap_err();
    assert!(is_broken(&error), "{error}");
    assert!(error.to_string().contains("101"), "{error}");
    assert_eq!(server.connections(), 1);
    let server = FakeServer::start(&[Answer(INTERIM)]).await;
    let registry = Registry::for_domain("enwiki").unwrap().servers("/", quick([server.url()]));
    let results = Store::of(registry).unwrap().run([RawRequest::get("/clicks/A")]).await;
    assert_eq!(results[0].as_ref().unwrap().body, "ok");
}

#[tokio::test]
async fn any_request_is_repeated_after_a_refused_connection() {
    let server = FakeServer::start(&[Answer(WRITTEN)]).await;
    let servers = quick([refusing().await, server.url()]);
    page_of(servers).new_render(1).property("html", "x").send().await.unwrap();
    assert_eq!(server.requests().len(), 1);

    let servers = quick([refusing().await]);
    let error = page_of(servers).new_render(1).property("html", "x").send().await.unwrap_err();
    assert!(matches!(&error, Error::Transport(error) if error.is_unsent()), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn silent_server_is_given_up_and_a_read_is_repeated_at_the_next() {
    let (silent, other) = (FakeServer::start(&[Silent]).await, FakeServer::start(&[Answer(OK)]).await);
    let servers = quick([silent.url(), other.url()]).idle_timeout(Duration::from_secs(1));
    assert_eq!(read(&page_of(servers)).await.unwrap(), "ok");
    let servers = quick([silent.url()]).idle_timeout(Duration::from_millis(300)).attempts(2);
    let error = read(&page_of(servers)).await.unwrap_err();
    let limit = Duration::from_millis(300);
    assert!(
        matches!(&error, Error::Transport(TransportError::TimedOut { limit: found, .. }) if *found == limit),
        "{error}"
    );
    assert_eq!(silent.connections(), 3);
}

#[tokio::test]
async fn answer_that_ends_early_or_stops_is_an_error() {
    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok";
    let server = FakeServer::start(&[Answer(CUT)]).await;
    assert!(is_broken(&read(&page_of(quick([server.url()]))).await.unwrap_err()));
    assert_eq!(server.connections(), 1, "the answer has begun");
    let server = FakeServer::start(&[Stop(CUT)]).await;
    let error = read(&page_of(quick([server.url()]).idle_timeout(Duration::from_secs(1)))).await.unwrap_err();
    assert!(matches!(error, Error::Transport(TransportError::TimedOut { .. })), "{error}");
}

#[tokio::test]
async fn failed_server_is_left_out_and_then_probed() {
    let (bad, good) = (FakeServer::start(&[Close, Answer(OK)]).await, FakeServer::start(&[Answer(OK)]).await);
    let page = page_of(quick([bad.url(), good.url()]).exclusion(Duration::from_secs(2)));
    for _ in 0..6 {
        read(&page).await.unwrap();
    }
    assert_eq!((bad.connections(), good.connections()), (1, 6));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for _ in 0..6 {
        read(&page).await.unwrap();
    }
    assert_eq!((bad.connections(), good.connections()), (4, 9));
}

#[tokio::test]
async fn answer_with_an_error_is_not_repeated() {
    let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 2\r\n\r\n";
    let server = FakeServer::start(&[Answer(busy)]).await;
    let error = read(&page_of(quick([server.url()]))).await.unwrap_err();
    assert_eq!(error.problem().unwrap().retry_after, Some(Duration::from_secs(2)));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn redirects_to_another_server_and_in_a_circle_are_refused() {
    let elsewhere = "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://192.0.2.1/\r\n\r\n";
    let server = FakeServer::start(&[Answer(elsewhere)]).await;
    let error = read(&page_of(quick([server.url()]))).await.unwrap_err();
    assert!(error.to_string().contains("a link to another resource or server"), "{error}");
    let circle =
        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\nLocation: ?rev/1/html\r\n\r\n";
    let server = FakeServer::start(&[Answer(circle)]).await;
    let error = read(&page_of(quick([server.url()]))).await.unwrap_err();
    assert!(error.to_string().contains("redirected more than 4 times"), "{error}");
    assert_eq!(server.requests().len(), 5);
}
