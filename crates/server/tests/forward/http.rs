//! A client that shows answers as they are.

use std::net::SocketAddr;

use axum::body::Body;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Collected};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body, or the error after which the rest of it is missing.
    pub(crate) body: Result<Bytes, String>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    /// The name of the kind of a problem.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let text = self.text();
        let kind = text.split("urn:rashomon:problem:").nth(1).unwrap();
        kind.split('"').next().unwrap().to_owned()
    }
}

/// Sends a request on a connection of its own, and returns the head of the answer.
pub(crate) async fn begin(to: SocketAddr, request: Request<Body>) -> http::Response<Incoming> {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender.send_request(request).await.unwrap()
}

pub(crate) async fn send(to: SocketAddr, request: Request<Body>) -> Answer {
    let (head, body) = begin(to, request).await.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).map_err(|error| error.to_string());
    Answer { status: head.status, headers: head.headers, body }
}

/// A request with a body of known length.
pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Body> {
    build(method, path, headers, Body::from(body.into()))
}

/// A request whose body comes in chunks.
pub(crate) fn chunked(method: &str, path: &str, pieces: Vec<Bytes>) -> Request<Body> {
    let pieces = futures::stream::iter(pieces).map(Ok::<_, std::convert::Infallible>);
    build(method, path, &[], Body::from_stream(pieces))
}

fn build(method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost");
    }
    request.body(body).unwrap()
}

pub(crate) async fn get(to: SocketAddr, path: &str) -> Answer {
    send(to, request("GET", path, &[], "")).await
}

/// Posts a form.
pub(crate) async fn post(to: SocketAddr, path: &str, form: &'static str) -> Answer {
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    send(to, request("POST", path, &headers, form)).await
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(mut condition: impl AsyncFnMut() -> bool) {
    let all = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), all)
        .await
        .expect("the condition holds within 30 s");
}
