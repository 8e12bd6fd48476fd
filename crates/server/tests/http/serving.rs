//! Tests of behaviour of the server that only a real socket shows.

use std::{
    sync::mpsc::{self, Sender},
    time::Duration,
};

use rashomon_server::{ServeOptions, Settings};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
};

use crate::{
    socket::{STEP_TIMEOUT, Server, get, read_until},
    world::{PAGE, World},
};

#[tokio::test]
async fn a_connection_serves_many_requests() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x-body-x").await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(&get(&format!("{PAGE}?rev/latest/html"), "")).await.unwrap();
        let answer = read_until(&mut stream, "x-body-x").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    let condition = format!("if-none-match: \"1/{tid}\"\r\n");
    stream.write_all(&get(&format!("{PAGE}?rev/latest/html"), &condition)).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 304") && !answer.contains("content-length"), "{answer}");
    stream.write_all(format!("OPTIONS {PAGE} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 204") && !answer.contains("content-length"), "{answer}");
    stream
        .write_all(format!("HEAD {PAGE}?rev/latest/html HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length: 8\r\n"), "{answer}");
}

#[tokio::test]
async fn unusual_requests_are_answered() {
    let world = World::new().await;
    world.revision("_rev=1&html=x-body-x").await;
    let server = Server::of(&world, ServeOptions::default()).await;
    for (request, status) in [
        (
            "GET http://en.example.org/wiki/Main_Page?rev/latest/html HTTP/1.1\r\nhost: else\r\n".to_owned(),
            "200",
        ),
        (format!("GET {PAGE}?rev/latest/html HTTP/1.0\r\n"), "200"),
        (format!("GET {PAGE}/Ü?rev/latest/html HTTP/1.1\r\nhost: a\r\n"), "301"),
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n".to_owned(), "204"),
        ("CONNECT a:80 HTTP/1.1\r\nhost: a\r\n".to_owned(), "404"),
        (format!("BREW {PAGE} HTTP/1.1\r\nhost: a\r\n"), "405"),
    ] {
        let answer = server.exchange(format!("{request}connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request:?}: {answer}");
    }
}

#[tokio::test]
async fn truncated_bodies_change_nothing() {
    let world = World::new().await;
    let before = world.dump().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    for framing in [
        "content-length: 100\r\n\r\n_rev=1&html=x",
        "transfer-encoding: chunked\r\n\r\nd\r\n_rev=1&html=x\r\n",
    ] {
        let mut stream = server.connect().await;
        let head = format!(
            "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n"
        );
        stream.write_all(format!("{head}{framing}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn a_refused_body_is_read_so_that_the_answer_arrives() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let body = "x".repeat(500_000);
    let request = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n_unknown=1&html={body}",
        body.len() + 16
    );
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // A server that closes a connection with unread bytes resets it, and the answer may be lost.
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("_unknown"), "{answer:.500}");
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let settings = Settings { body_idle_seconds: 1, ..Settings::default() };
    let world = World::with(settings).await;
    let before = world.dump().await;
    let server = Server::of(&world, ServeOptions { head_seconds: 1, ..ServeOptions::default() }).await;
    // The client never ends the head.
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let mut answer = String::new();
    let closed = tokio::time::timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await;
    assert!(closed.is_ok(), "the connection is closed");
    // The client never sends the rest of the body.
    let mut stream = server.connect().await;
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 100\r\n\r\n_rev=1"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = tokio::time::timeout(STEP_TIMEOUT, read_until(&mut stream, "}")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn accepted_requests_are_finished_at_shutdown() {
    let world = World::new().await;
    let mut server = Server::of(&world, ServeOptions::default()).await;
    let idle = server.connect().await;
    let mut stream = server.connect().await;
    let head = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 13\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The interim answer of a server that reads the body (RFC 9110, section 10.1.1).
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"_rev=1").await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    let refused = async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, refused).await.expect("nothing more is accepted");
    stream.write_all(b"&html=x").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    let ended = tokio::time::timeout(STEP_TIMEOUT, server.done).await;
    ended.unwrap().unwrap().unwrap();
    drop(idle);
}

/// A runtime whose only thread is busy until the sender is dropped.
fn busy_threads() -> (Runtime, Sender<()>) {
    let threads = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (free, busy) = mpsc::channel();
    threads.spawn(async move { busy.recv() });
    (threads, free)
}

#[tokio::test]
async fn reads_and_refusals_do_not_wait_for_the_threads_of_writes() {
    let world = World::in_memory_with(Settings { max_writes: 1, ..Settings::default() }).await;
    world.revision("_rev=1&html=latest").await;
    let (writes, free) = busy_threads();
    let server = Server::start(&world, writes.handle().clone(), None, ServeOptions::default()).await;
    let write = format!(
        "POST {PAGE}?rev/ HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: 13\r\n\r\n_rev=2&html=x"
    );
    let post = async || {
        let mut writer = server.connect().await;
        writer.write_all(write.as_bytes()).await.unwrap();
        writer
    };
    // One of the writes gets the permit, and is not answered while the only thread for writes is busy.
    let (mut first, mut second) = (post().await, post().await);
    let (mut at_first, mut at_second) = ([0; 16], [0; 16]);
    let (mut admitted, refused) = tokio::time::timeout(STEP_TIMEOUT, async {
        tokio::select! {
            read = first.read_exact(&mut at_first) => { read.unwrap(); (second, at_first) }
            read = second.read_exact(&mut at_second) => { read.unwrap(); (first, at_second) }
        }
    })
    .await
    .expect("the other write is refused");
    assert!(refused.starts_with(b"HTTP/1.1 503 "), "{refused:?}");
    let read = get(&format!("{PAGE}?rev/latest/html"), "connection: close\r\n");
    let answer =
        tokio::time::timeout(STEP_TIMEOUT, server.exchange(&read)).await.expect("a read is answered");
    assert!(answer.ends_with("\r\n\r\nlatest"), "{answer}");
    let early = admitted.try_read(&mut [0]).unwrap_err();
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "the only thread for writes is busy");
    drop(free);
    let answer = tokio::time::timeout(STEP_TIMEOUT, read_until(&mut admitted, "}")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    writes.shutdown_background();
}

#[tokio::test]
async fn batches_and_imports_run_on_the_threads_for_writes() {
    let world = World::new().await;
    world.revision("_rev=1&html=latest").await;
    let (writes, free) = busy_threads();
    let server = Server::start(&world, writes.handle().clone(), None, ServeOptions::default()).await;
    let batch = format!(r#"[{{"method": "GET", "path": "{PAGE}?rev/latest/html"}}]"#);
    let mut waiting = Vec::new();
    for (path, body) in [("/v1/batch", batch.as_str()), ("/v1/enwiki/import", "")] {
        let mut stream = server.connect().await;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let mut reader = server.connect().await;
    // If the requests did not wait for the busy thread, they would have been answered before these reads.
    for _ in 0..500 {
        reader.write_all(&get(&format!("{PAGE}?rev/latest/html"), "")).await.unwrap();
        tokio::time::timeout(STEP_TIMEOUT, read_until(&mut reader, "\r\n\r\nlatest")).await.unwrap();
    }
    for stream in &waiting {
        let early = stream.try_read(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(free);
    for (mut stream, (status, end)) in waiting.into_iter().zip([("200", "]"), ("400", "}")]) {
        let answer = tokio::time::timeout(STEP_TIMEOUT, read_until(&mut stream, end)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    writes.shutdown_background();
}

#[tokio::test]
async fn connections_are_bounded() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions { max_connections: 1, ..ServeOptions::default() }).await;
    // Connections are accepted in the order in which they were made.
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    second.write_all(&get("/healthz", "")).await.unwrap();
    // If the second connection had been accepted, its answer would have arrived before these answers.
    for _ in 0..20 {
        first.write_all(&get("/healthz", "")).await.unwrap();
        tokio::time::timeout(STEP_TIMEOUT, read_until(&mut first, "}")).await.unwrap();
    }
    let early = second.try_read(&mut [0]).unwrap_err();
    assert_eq!(
        early.kind(),
        std::io::ErrorKind::WouldBlock,
        "the second connection waits for the end of the first"
    );
    drop(first);
    let answer = tokio::time::timeout(STEP_TIMEOUT, read_until(&mut second, "}")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
