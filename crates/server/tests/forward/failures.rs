//! Servers that fail, and the answers that clients get.

use std::time::Duration;

use rashomon_server::registry::ServerList;

use crate::{
    backends::{Behavior, Recorder, SocketBackend, refusing_url},
    http::{Answer, begin, get, request, send, wait_until},
    server::{Server, entry, entry_of},
};

const PAGE: &str = "/v1/enwiki/page/A?rev/7/";

fn failed(answer: &Answer) -> (u16, String) {
    assert!(!answer.header("x-request-id").is_empty());
    assert!(
        !answer.text().contains("127.0.0.1"),
        "the addresses of backends are not for clients: {answer:?}"
    );
    (answer.status.as_u16(), answer.problem())
}

#[tokio::test]
async fn servers_are_used_in_turn() {
    let backends: Vec<Recorder> = (0..3).map(|_| Recorder::start()).collect();
    let server = Server::forwarding(vec![entry("/", backends.iter().map(Recorder::url))]).await;
    for _ in 0..6 {
        assert_eq!(get(server.address, PAGE).await.status, 200);
    }
    assert!(backends.iter().all(|backend| backend.log.all().len() == 2));
}

#[tokio::test]
async fn any_request_is_repeated_if_the_connection_was_refused() {
    let backend = Recorder::start();
    let server = Server::forwarding(vec![entry("/", [refusing_url().await, backend.url()])]).await;
    let answer = send(server.address, request("POST", PAGE, &[], "html=x")).await;
    assert_eq!((answer.status.as_u16(), backend.log.only().bytes), (200, 6));
    // `/readyz` shows that the failed server is left out.
    let ready = get(server.address, "/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("\"ready\":0,\"degraded\":1,\"down\":0"), "{ready:?}");
}

#[tokio::test]
async fn only_harmless_requests_are_repeated_after_bytes_were_sent() {
    for (method, path, headers, is_repeated) in [
        ("GET", PAGE, &[][..], true),
        ("HEAD", PAGE, &[], true),
        ("POST", "/v1/enwiki/page/A?rev/", &[], true),
        ("POST", PAGE, &[], false),
        ("POST", "/v1/enwiki/clicks/a", &[], false),
        ("POST", "/v1/enwiki/clicks/a", &[("idempotency-key", "1")], true),
        ("PUT", "/v1/enwiki/math-png/a", &[], false),
        ("PUT", "/v1/enwiki/math-png/a", &[("if-match", "\"1\"")], false),
        ("DELETE", "/v1/enwiki/math-png/a", &[], false),
        ("DELETE", "/v1/enwiki/math-png/a", &[("if-match", "\"1\"")], false),
        ("POST", "/v1/enwiki/import", &[], false),
    ] {
        let (broken, backend) = (SocketBackend::start(Behavior::CloseAfter(1)).await, Recorder::start());
        let server = Server::forwarding(vec![entry("/", [broken.url(), backend.url()])]).await;
        let answer = send(server.address, request(method, path, headers, "")).await;
        let expected = if is_repeated { 200 } else { 502 };
        assert_eq!(answer.status, expected, "{method} {path} {headers:?}");
        assert_eq!(backend.log.all().len(), usize::from(is_repeated), "{method} {path} {headers:?}");
        if !is_repeated {
            assert_eq!(failed(&answer), (502, "backend-failed".to_owned()));
            assert!(answer.text().contains("may or may not"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn switch_to_another_protocol_is_502_and_other_interim_answers_are_passed_over() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx";
    for (method, body) in [("GET", ""), ("PUT", "x"), ("POST", "html=x")] {
        let backend = SocketBackend::start(Behavior::Stall(SWITCH)).await;
        let list = ServerList { attempts: 1, ..ServerList::new(vec![backend.url()]) };
        let server = Server::forwarding(vec![entry_of("/", list)]).await;
        let headers = [("upgrade", "x"), ("connection", "upgrade")];
        let answer = send(server.address, request(method, "/v1/enwiki/clicks/a", &headers, body)).await;
        assert_eq!(failed(&answer), (502, "backend-failed".to_owned()), "{method}");
        wait_until(async || backend.ended_connections() == 1).await;
    }
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n\
                   HTTP/1.1 199 Later\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let backend = SocketBackend::start(Behavior::Answer(interim)).await;
    let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
    let answer = get(server.address, PAGE).await;
    assert_eq!((answer.status.as_u16(), answer.text(), answer.header("link")), (200, "hi", ""));
}

#[tokio::test]
async fn unreachable_servers_are_502_and_the_server_stays_ready() {
    let servers = [refusing_url().await, refusing_url().await];
    let server = Server::forwarding(vec![entry("/enwiki", servers)]).await;
    assert_eq!(failed(&get(server.address, PAGE).await), (502, "backend-failed".to_owned()));
    let ready = get(server.address, "/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(ready.text().contains("\"ready\":0,\"degraded\":0,\"down\":1"), "{ready:?}");
    // Other paths are not affected.
    assert_eq!(get(server.address, "/v1/dewiki/page/A?rev/").await.problem(), "not-found");
}

#[tokio::test]
async fn silent_server_is_504() {
    let silent = SocketBackend::start(Behavior::Silent).await;
    let list = ServerList { idle_timeout: Duration::from_millis(50), ..ServerList::new(vec![silent.url()]) };
    let server = Server::forwarding(vec![entry_of("/", list)]).await;
    let answer = send(server.address, request("POST", PAGE, &[], "html=x")).await;
    assert_eq!(failed(&answer), (504, "backend-timeout".to_owned()));
    assert_eq!(silent.connections(), 1, "the request is not repeated");
    let metrics = get(server.address, "/metrics").await;
    let line = "rashomon_forward_requests_total{prefix=\"/\",outcome=\"timed_out\"} 1";
    assert!(metrics.text().contains(line), "{}", metrics.text());
}

#[tokio::test]
async fn answer_that_breaks_in_the_middle_breaks_the_connection() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n",
    ] {
        let backend = SocketBackend::start(Behavior::Answer(text)).await;
        let server = Server::forwarding(vec![entry("/", [backend.url()])]).await;
        let answer = get(server.address, PAGE).await;
        assert_eq!(answer.status, 200);
        answer.body.unwrap_err();
        assert_eq!(backend.connections(), 1, "an answer that has begun is not repeated");
    }
}

#[tokio::test]
async fn answer_that_stops_in_the_middle_breaks_the_connection() {
    let backend =
        SocketBackend::start(Behavior::Stall("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin")).await;
    let list = ServerList { idle_timeout: Duration::from_millis(50), ..ServerList::new(vec![backend.url()]) };
    let server = Server::forwarding(vec![entry_of("/", list)]).await;
    get(server.address, PAGE).await.body.unwrap_err();
}

#[tokio::test]
async fn client_that_goes_away_in_the_middle_of_an_answer_ends_the_connection_to_the_backend() {
    let backend =
        SocketBackend::start(Behavior::Stall("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin")).await;
    // The connection does not end by this limit while the test runs.
    let list = ServerList { idle_timeout: Duration::from_secs(600), ..ServerList::new(vec![backend.url()]) };
    let server = Server::forwarding(vec![entry_of("/", list)]).await;
    let answer = begin(server.address, request("GET", PAGE, &[], "")).await;
    assert_eq!((answer.status().as_u16(), backend.ended_connections()), (200, 0));
    drop(answer);
    wait_until(async || backend.ended_connections() == 1).await;
}

#[tokio::test]
async fn left_out_server_is_probed_and_used_again() {
    let mut backend = Recorder::start();
    let list = ServerList { exclusion: Duration::ZERO, ..ServerList::new(vec![backend.url()]) };
    let server = Server::forwarding(vec![entry_of("/", list)]).await;
    assert_eq!(get(server.address, PAGE).await.status, 200);
    let address = backend.address;
    backend.kill();
    assert_eq!(get(server.address, PAGE).await.status, 502);
    let ready = get(server.address, "/readyz").await;
    assert!(ready.text().contains("\"down\":1"), "{ready:?}");
    let again = Recorder::on(address, backend.log.clone());
    assert_eq!(get(server.address, PAGE).await.status, 200);
    let ready = get(server.address, "/readyz").await;
    assert!(ready.text().contains("\"ready\":1,\"degraded\":0,\"down\":0"), "{ready:?}");
    drop(again);
}
