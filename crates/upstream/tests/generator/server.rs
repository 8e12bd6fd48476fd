//! A server whose replies a test determines byte for byte.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    sync::Semaphore,
    task::AbortHandle,
};

use crate::LONG_TIMEOUT;

/// What the server does after it has read a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Sends this text, and closes.
    Says(String),
    /// Sends this text after a while, and closes.
    After(Duration, String),
    /// Sends this text when the test adds a permit, and closes.
    Held(Arc<Semaphore>, String),
    /// Sends this text, and then one byte at a time with pauses, without end.
    Drips(String, Duration),
    /// Sends the first text, and then the second one without end, as fast as it is read.
    Floods(String, String),
    /// Sends the first text. Sends the second text if another request arrives on the same connection.
    Twice(String, String),
    /// Sends nothing, and does not close.
    Nothing,
}

/// A correct answer of 200 with a body of HTML.
pub(crate) fn html(body: &str) -> Reply {
    Reply::Says(ok("text/html; charset=utf-8", body))
}

pub(crate) fn ok(content_type: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// An answer with only these headers.
pub(crate) fn says(status: &str, headers: &str, body: &str) -> Reply {
    Reply::Says(format!("HTTP/1.1 {status}\r\n{headers}\r\n{body}"))
}

/// A server that is stopped at the end of the test.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The heads of all requests so far.
    requests: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl Server {
    /// Starts a server that replies to each request by its target.
    pub(crate) async fn new(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::over(reply, |stream| async { Ok(stream) }).await
    }

    /// Starts such a server over connections that `accept` has prepared.
    pub(crate) async fn over<S, F>(
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
        accept: impl Fn(tokio::net::TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Future<Output = std::io::Result<S>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (reply, seen) = (Arc::new(reply), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (accepted, reply, seen) = (accept(stream), Arc::clone(&reply), Arc::clone(&seen));
                tokio::spawn(async move {
                    // A client that gives up closes the connection, which is no failure here.
                    if let Ok(stream) = accepted.await {
                        let _ = answer(stream, &*reply, &seen).await;
                    }
                });
            }
        });
        Self { address, requests, task: task.abort_handle() }
    }

    /// A URL of the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The server as one of the allowed hosts.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// The heads of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The number of requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Waits until there were this many requests.
    pub(crate) async fn await_requests(&self, count: usize) {
        let asked = async {
            while self.asked() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG_TIMEOUT, asked).await.expect("the requests come");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads the head of a request, and replies.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    reply: &(dyn Fn(&str) -> Reply + Send + Sync),
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let head = read_head(&mut stream).await?;
    let target = head.split(' ').nth(1).unwrap().to_owned();
    seen.lock().unwrap().push(head);
    match reply(&target) {
        Reply::Says(text) => stream.write_all(text.as_bytes()).await?,
        Reply::After(time, text) => {
            tokio::time::sleep(time).await;
            stream.write_all(text.as_bytes()).await?;
        }
        Reply::Held(allowed, text) => {
            allowed.acquire().await.unwrap().forget();
            stream.write_all(text.as_bytes()).await?;
        }
        Reply::Drips(text, time) => {
            stream.write_all(text.as_bytes()).await?;
            loop {
                tokio::time::sleep(time).await;
                stream.write_all(b"x").await?;
            }
        }
        Reply::Floods(text, more) => {
            stream.write_all(text.as_bytes()).await?;
            loop {
                stream.write_all(more.as_bytes()).await?;
            }
        }
        Reply::Twice(first, second) => {
            stream.write_all(first.as_bytes()).await?;
            read_head(&mut stream).await?;
            stream.write_all(second.as_bytes()).await?;
        }
        Reply::Nothing => std::future::pending().await,
    }
    stream.shutdown().await
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}
