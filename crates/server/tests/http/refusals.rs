//! Tests of requests that are refused before they reach a handler.

use rashomon_server::ServeOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    socket::{STEP_TIMEOUT, Server, get, read_until},
    world::{PAGE, World},
};

/// Checks that an answer is a complete problem with a request id. Returns its document.
#[track_caller]
pub(crate) fn problem(answer: &str, status: u16) -> serde_json::Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert_eq!(head.split(' ').nth(1), Some(status.to_string().as_str()), "{answer}");
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    assert_eq!(header("content-type"), Some("application/problem+json"), "{answer}");
    assert_eq!(header("cache-control"), Some("no-store"), "{answer}");
    assert!(header("x-request-id").is_some_and(|id| id.len() == 25), "{answer}");
    assert!(header("date").is_some_and(|date| date.ends_with(" GMT")), "{answer}");
    assert_eq!(header("content-length"), Some(body.len().to_string().as_str()), "{answer}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(problem["status"], status);
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 20), "{problem}");
    problem
}

/// Sends a whole request before reading, and then reads everything up to the orderly end.
async fn refused(server: &Server, request: &[u8], status: u16) -> serde_json::Value {
    let mut stream = server.connect().await;
    // The request may be refused before all of it is sent.
    let _ = stream.write_all(request).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is not lost to a reset");
    problem(&answer, status)
}

async fn requests_of_class(world: &World, class: &str) -> u64 {
    let line =
        format!("rashomon_http_requests_total{{route=\"other\",method=\"other\",status=\"{class}\"}} ");
    let metrics = world.get("/metrics").await;
    metrics.text().lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn heads_that_cannot_be_read_are_answered_as_problems() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let requests: [(&[u8], &str); 14] = [
        (b"GET /v1/enwiki/page/<p> HTTP/1.1\r\nhost: a\r\n\r\n", "percent-encoded"),
        (b"GET /v1/enwiki/page/`p` HTTP/1.1\r\nhost: a\r\n\r\n", "percent-encoded"),
        (b"GET /v1/enwiki/page/a b HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1"),
        (b"GET /v1/enwiki/page/\xff HTTP/1.1\r\nhost: a\r\n\r\n", "percent-encoded"),
        (b"GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n", "percent-encoded"),
        (b"G<T / HTTP/1.1\r\nhost: a\r\n\r\n", "method"),
        (b"nonsense\r\n\r\n", "HTTP/1.1"),
        (b"GET / HTTP/3.0\r\nhost: a\r\n\r\n", "version"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nno header\r\n\r\n", "header"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ten\r\n\r\n", "content-length"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "content-length"),
        (b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", "transfer-encoding"),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n", "more than once"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "HTTP/2"),
    ];
    for (request, named) in requests {
        let shown = String::from_utf8_lossy(request);
        let problem = refused(&server, request, 400).await;
        assert!(problem["detail"].as_str().unwrap().contains(named), "{shown}: {problem}");
        assert_eq!(problem["type"], "urn:rashomon:problem:malformed");
    }
    assert_eq!(requests_of_class(&world, "4xx").await, requests.len() as u64);
}

#[tokio::test]
async fn bodies_with_other_transfer_codings_are_not_stored() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let before = world.dump().await;
    for coding in
        ["gzip, chunked", "identity, chunked", "gzip", "identity", "gzip\r\ntransfer-encoding: chunked"]
    {
        let request = format!(
            "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             transfer-encoding: {coding}\r\n\r\nd\r\n_rev=1&html=x\r\n0\r\n\r\n"
        );
        let problem = refused(&server, request.as_bytes(), 501).await;
        assert_eq!(problem["type"], "urn:rashomon:problem:transfer-coding", "{coding}");
    }
    assert_eq!(world.dump().await, before);
}

/// Requests of many kinds that are refused before their bodies have arrived. The next request of the connection is
/// answered.
#[tokio::test]
async fn connection_stays_usable_after_a_refusal() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    for (request, headers, status) in [
        ("POST /healthz", "", 405),
        ("GET /healthz", "", 200),
        ("POST /nowhere", "", 404),
        ("POST /v1/enwiki/page/A", form, 405),
        ("POST /v1/enwiki/page/%5B?rev/", form, 400),
        ("POST /v1/enwiki/page/A?rev/", "origin: https://evil.example\r\n", 403),
        ("POST /v1/enwiki/page/A?rev/", "content-type: text/plain\r\n", 415),
        ("PUT /v1/enwiki/nothing/key", "", 404),
        ("PUT /v1/enwiki/nothing", "", 415),
        ("POST /v1/batch?x", "", 400),
        ("POST /v1/tokens", "", 415),
        ("POST /v1/enwiki/import?x", "", 400),
        ("DELETE /v1/enwiki/nothing", "", 404),
    ] {
        let mut stream = server.connect().await;
        let head = format!("{request} HTTP/1.1\r\nhost: a\r\n{headers}content-length: 50000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        stream.write_all(&[b'x'; 50_000]).await.unwrap();
        let answer = read_until(&mut stream, "}").await;
        assert_eq!(answer.split(' ').nth(1), Some(status.to_string().as_str()), "{request}: {answer}");
        assert!(!answer.contains("connection: close"), "{request}: {answer}");
        stream.write_all(&get("/healthz", "")).await.unwrap();
        let next = read_until(&mut stream, "}").await;
        assert!(next.starts_with("HTTP/1.1 200 "), "{request}: {next}");
    }
}

#[tokio::test]
async fn heads_that_are_too_large_are_answered_with_the_limit() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    for bytes in [17_000, 65_400, 65_536, 70_000, 120_000] {
        let url = format!("/v1/enwiki/page/{}", "a".repeat(bytes));
        let problem = refused(&server, &get(&url, "connection: close\r\n"), 414).await;
        assert_eq!(problem["type"], "urn:rashomon:problem:uri-too-long");
    }
    let url = format!("/v1/enwiki/page/{}", "a".repeat(600_000));
    let problem = refused(&server, &get(&url, ""), 431).await;
    assert!(problem["detail"].as_str().unwrap().contains("131072"), "{problem}");
    let large = get("/healthz", &format!("x-large: {}\r\n", "a".repeat(200_000)));
    refused(&server, &large, 431).await;
    refused(&server, &get("/healthz", &"x-many: 1\r\n".repeat(200)), 431).await;
}

#[tokio::test]
async fn head_that_arrives_at_once_has_the_same_limit() {
    const LIMIT: usize = 30_000;
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions { max_head_bytes: LIMIT, ..ServeOptions::default() }).await;
    let bare = get("/healthz", "connection: close\r\nx-large: \r\n").len();
    let sized = |bytes: usize| {
        get("/healthz", &format!("connection: close\r\nx-large: {}\r\n", "a".repeat(bytes - bare)))
    };
    let answer = server.exchange(&sized(LIMIT)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for bytes in [LIMIT + 1, 40_000, 49_000] {
        refused(&server, &sized(bytes), 431).await;
    }
}

#[tokio::test]
async fn a_request_of_http_1_1_names_one_host() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    for host in ["", "host: a\r\nhost: a\r\n", "host: a\r\nhost: b\r\n", "host: a b\r\n", "host: a@b\r\n"] {
        let request = format!("GET /healthz HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        let problem = refused(&server, request.as_bytes(), 400).await;
        assert!(problem["detail"].as_str().unwrap().contains("Host"), "{problem}");
    }
    // An HTTP/1.0 request need not name a host, unless the resource depends on it.
    let problem = refused(&server, b"GET /wiki/Main_Page HTTP/1.0\r\n\r\n", 400).await;
    assert!(problem["detail"].as_str().unwrap().contains("Host"), "{problem}");
    for request in
        ["GET /healthz HTTP/1.0\r\n\r\n", "GET /healthz HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n"]
    {
        let answer = server.exchange(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") || answer.starts_with("HTTP/1.0 200 "), "{answer}");
    }
}

#[tokio::test]
async fn endless_head_is_answered_and_idle_connection_is_not() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions { head_seconds: 1, ..ServeOptions::default() }).await;
    refused(&server, b"GET / HTTP/1.1\r\nhost: a\r\n", 408).await;
    assert_eq!(server.exchange(b"").await, "");
    // The same holds after an earlier answer on the connection.
    let mut stream = server.connect().await;
    stream.write_all(&get("/healthz", "")).await.unwrap();
    read_until(&mut stream, "}").await;
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "");
    let mut stream = server.connect().await;
    stream.write_all(&get("/healthz", "")).await.unwrap();
    read_until(&mut stream, "}").await;
    stream.write_all(b"GET / HT").await.unwrap();
    stream.read_to_string(&mut rest).await.unwrap();
    problem(&rest, 408);
}

#[tokio::test]
async fn refusal_follows_the_previous_answers() {
    let world = World::new().await;
    world.revision("_rev=1&html=x-body-x").await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let good = get(&format!("{PAGE}?rev/latest/html"), "");
    let bad = b"GET /<p> HTTP/1.1\r\nhost: a\r\n\r\n";
    // The requests are sent one after the other first, and then all at once.
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(&good).await.unwrap();
        read_until(&mut stream, "x-body-x").await;
    }
    stream.write_all(bad).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    problem(&answer, 400);
    let mut stream = server.connect().await;
    stream.write_all(&[&good[..], &good, bad].concat()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("x-body-x").count(), 2, "{answers}");
    let (_, last) = answers.rsplit_once("x-body-x").unwrap();
    problem(last, 400);
}

#[tokio::test]
async fn answer_arrives_although_the_body_is_not_read() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    // The server does not read the body of a request that needs none.
    let length = 20 << 20;
    let head = format!("POST /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    let mut stream = server.connect().await;
    stream.write_all(head.as_bytes()).await.unwrap();
    // The answer is sent before the body.
    tokio::time::timeout(STEP_TIMEOUT, stream.peek(&mut [0])).await.expect("an answer in time").unwrap();
    stream.write_all(&vec![b'x'; length]).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is not lost to a reset");
    problem(&answer, 405);
}
