//! Servers on plain sockets, which answer as a test says.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rashomon_client::{Page, Servers, Store};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// A complete answer with a body of two bytes.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// The answer to a write, which ends with the connection.
pub(crate) const WRITTEN: &str = "HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n\
    {\"message\": \"Created\", \"domain\": \"enwiki\", \"title\": \"A\", \"rev\": 1, \
    \"tid\": \"8f545ba0-2601-11e3-885c-4160918f0fb9\", \"href\":\"\"}";

/// What a server does with a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behavior {
    /// Reads the whole request, and answers with this text.
    Answer(&'static str),
    /// Reads the whole request, and closes the connection.
    Close,
    /// Reads this many bytes, or the whole request if it is shorter. Then resets the connection.
    Reset(usize),
    /// Reads the whole request, and never answers.
    Silent,
    /// Reads the whole request, answers with this text, and never continues.
    Stop(&'static str),
}

/// A server that records its requests.
#[derive(Clone)]
pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl FakeServer {
    /// Starts a server whose connections have these behaviors, one after the other. The last one is used again.
    pub(crate) async fn start(behaviors: &[Behavior]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let (behaviors, served) = (behaviors.to_vec(), fake.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let index = served.connections.fetch_add(1, Ordering::SeqCst);
                let behavior = behaviors[index.min(behaviors.len() - 1)];
                tokio::spawn(behave(stream, behavior, Arc::clone(&served.requests)));
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that arrived as a whole.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn behave(mut stream: TcpStream, behavior: Behavior, requests: Arc<Mutex<Vec<String>>>) {
    let mut received = Vec::new();
    while !is_complete(&received) {
        let mut buffer = vec![0; 64 << 10];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
        if matches!(behavior, Behavior::Reset(limit) if received.len() >= limit) {
            // With a zero linger time, the end of the connection is a reset.
            stream.set_zero_linger().unwrap();
            return;
        }
    }
    requests.lock().unwrap().push(String::from_utf8_lossy(&received).into_owned());
    match behavior {
        Behavior::Answer(text) => stream.write_all(text.as_bytes()).await.unwrap(),
        Behavior::Close => {}
        Behavior::Reset(_) => stream.set_zero_linger().unwrap(),
        Behavior::Silent => std::future::pending().await,
        Behavior::Stop(text) => {
            stream.write_all(text.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        }
    }
    let _ = stream.shutdown().await;
}

/// Whether a request has arrived with its whole body.
fn is_complete(received: &[u8]) -> bool {
    let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        return received.ends_with(b"\r\n0\r\n\r\n");
    }
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    received.len() >= end + 4 + length.map_or(0, |length| length.parse().unwrap())
}

/// The address of a port at which nobody listens.
pub(crate) async fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Servers with short pauses.
pub(crate) fn quick(urls: impl IntoIterator<Item = String>) -> Servers {
    Servers::new(urls).pause(Duration::from_millis(1))
}

pub(crate) fn page_of(servers: Servers) -> Page {
    Store::new(servers).unwrap().domain("enwiki").unwrap().page("A").unwrap()
}
