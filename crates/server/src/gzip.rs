//! Answers for clients that take gzip and not zstd.
//!
//! Bodies are stored as zstd, and are sent so to clients that take it. For other clients, [`encode`] compresses the
//! plain body of an answer. A short body is compressed at once. A longer one is compressed in pieces while it is sent,
//! so that no answer occupies a thread for long. The pieces do not depend on each other, and the state of the
//! compression is kept for no longer than a piece takes, so a client that reads slowly costs no memory.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use futures::stream;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use rashomon_protocol::{
    conditional,
    negotiate::{self, ContentEncoding},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::no_body::no_body;

/// The minimum size of a body that is compressed. A shorter one would hardly become shorter.
const MIN_BYTES: u64 = 128;

/// The maximum size of a piece that is compressed without a pause, which takes about a millisecond.
const PIECE_BYTES: usize = 128 << 10;

/// The size above which a body takes one of the [`LONG_BODIES`].
const LONG_BYTES: u64 = 1 << 20;

/// The number of long bodies that are compressed at the same time. Further ones are sent uncompressed.
const LONG_BODIES: usize = 8;

/// The first bytes of gzip: no name, no time, compressed quickly, by an unknown system (RFC 1952).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// A block without content, which is the last one.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Content types of bodies that are compressed already.
const COMPRESSED: [&str; 14] = [
    "application/gzip",
    "application/java-archive",
    "application/pdf",
    "application/vnd.rar",
    "application/x-7z-compressed",
    "application/x-bzip2",
    "application/x-gzip",
    "application/x-xz",
    "application/zip",
    "application/zstd",
    "audio/",
    "font/woff",
    "image/",
    "video/",
];

/// Images that are text.
const TEXT_IMAGES: [&str; 1] = ["image/svg+xml"];

/// The permits for long bodies.
#[derive(Debug, Clone)]
pub(crate) struct LongBodies(Arc<Semaphore>);

impl Default for LongBodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LONG_BODIES)))
    }
}

/// Whether a client gets gzip, by its request.
pub(crate) fn is_wanted(method: &Method, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && negotiate::content_encoding(headers) == ContentEncoding::Gzip
}

/// Compresses the answer to a GET or HEAD if the client wants it, and if the answer is a whole body of known size that
/// is not encoded yet. Adds `Vary` to every answer that another client would get compressed.
pub(crate) fn encode(is_wanted: bool, method: &Method, response: &mut Response, long_bodies: &LongBodies) {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return;
    }
    match response.status() {
        StatusCode::NOT_MODIFIED => return vary(response.headers_mut()),
        StatusCode::OK => {}
        _ => return,
    }
    let headers = response.headers();
    let Some(size) = size_of(response) else { return };
    if headers.contains_key(header::CONTENT_ENCODING) || !is_compressible(headers) {
        return;
    }
    vary(response.headers_mut());
    if !is_wanted || size < MIN_BYTES {
        return;
    }
    if *method == Method::HEAD {
        // The size would be known only after the compression.
        set_headers(response.headers_mut(), None);
        *response.body_mut() = no_body(StatusCode::OK).into_body();
        return;
    }
    let permit = match size {
        0..=LONG_BYTES => None,
        _ => match Arc::clone(&long_bodies.0).try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => return,
        },
    };
    let mut plain = std::mem::take(response.body_mut());
    let mut rest = Bytes::new();
    if size <= PIECE_BYTES as u64 {
        // Short bodies are in memory.
        match Pin::new(&mut plain).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => rest = frame.into_data().unwrap_or_default(),
            Poll::Ready(Some(Err(error))) => {
                *response.body_mut() = Body::from_stream(stream::once(async move { Err::<Bytes, _>(error) }));
                return;
            }
            Poll::Ready(None) | Poll::Pending => {}
        }
        if rest.len() as u64 == size {
            let compressed = whole(&rest);
            let is_shorter = compressed.len() < rest.len();
            if is_shorter {
                set_headers(response.headers_mut(), Some(compressed.len()));
            }
            *response.body_mut() = Body::from(if is_shorter { compressed.into() } else { rest });
            return;
        }
    }
    set_headers(response.headers_mut(), None);
    *response.body_mut() =
        Body::new(GzipBody { plain, rest, begun: false, crc: Some(Crc::new()), _permit: permit });
}

/// The size of the body, if it is known.
fn size_of(response: &Response) -> Option<u64> {
    let declared =
        response.headers().get(header::CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
    declared.or_else(|| response.body().size_hint().exact())
}

fn is_compressible(headers: &HeaderMap) -> bool {
    let Some(Ok(content_type)) = headers.get(header::CONTENT_TYPE).map(HeaderValue::to_str) else {
        return false;
    };
    let content_type = content_type.to_ascii_lowercase();
    let begins = |known: &&str| content_type.starts_with(*known);
    TEXT_IMAGES.iter().any(begins) || !COMPRESSED.iter().any(begins)
}

/// Adds `Accept-Encoding` to `Vary`, unless it is there.
fn vary(headers: &mut HeaderMap) {
    let names = |value: &HeaderValue| {
        let names = value.to_str().unwrap_or_default().split(',');
        names.map(str::trim).any(|name| name == "*" || name.eq_ignore_ascii_case("accept-encoding"))
    };
    if !headers.get_all(header::VARY).iter().any(names) {
        headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
}

/// Changes the headers of the plain body to those of the compressed one.
fn set_headers(headers: &mut HeaderMap, size: Option<usize>) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(header::ACCEPT_RANGES);
    headers.remove(header::CONTENT_LENGTH);
    if let Some(size) = size {
        headers.insert(header::CONTENT_LENGTH, size.into());
    }
    let etag = headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
    let etag = etag.map(|etag| conditional::etag_in(etag, ContentEncoding::Gzip));
    if let Some(etag) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
        headers.insert(header::ETAG, etag);
    }
}

/// Compresses a whole body.
fn whole(plain: &[u8]) -> Vec<u8> {
    let mut crc = Crc::new();
    crc.update(plain);
    let mut compressed = HEADER.to_vec();
    compress(plain, &mut compressed);
    end(&crc, &mut compressed);
    compressed
}

/// Appends a piece as blocks that refer to no other piece, and end at the end of a byte.
fn compress(piece: &[u8], compressed: &mut Vec<u8>) {
    let mut state = Compress::new(Compression::fast(), false);
    loop {
        let done = usize::try_from(state.total_in()).unwrap_or(usize::MAX).min(piece.len());
        compressed.reserve(piece.len() - done + 64);
        // Fails only for a wrong state, which a new one has not.
        let _ = state.compress_vec(&piece[done..], compressed, FlushCompress::Sync);
        // If room is left, everything was written.
        if compressed.len() < compressed.capacity() {
            return;
        }
    }
}

/// Appends the end of gzip.
fn end(crc: &Crc, compressed: &mut Vec<u8>) {
    compressed.extend(LAST_BLOCK);
    compressed.extend(crc.sum().to_le_bytes());
    compressed.extend(crc.amount().to_le_bytes());
}

/// A body that is compressed in pieces while it is sent.
struct GzipBody {
    plain: Body,
    /// The part of the last frame of the plain body that is not compressed yet.
    rest: Bytes,
    /// Whether the header has been sent.
    begun: bool,
    /// The checksum of the plain body up to here. `None` after the end.
    crc: Option<Crc>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl HttpBody for GzipBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.plain).poll_frame(context)).transpose()? {
                Some(frame) => self.rest = frame.into_data().unwrap_or_default(),
                None => {
                    let Some(crc) = self.crc.take() else { return Poll::Ready(None) };
                    let mut last = if self.begun { Vec::new() } else { HEADER.to_vec() };
                    end(&crc, &mut last);
                    return Poll::Ready(Some(Ok(Frame::data(last.into()))));
                }
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        let mut compressed = if self.begun { Vec::new() } else { HEADER.to_vec() };
        self.begun = true;
        if let Some(crc) = &mut self.crc {
            crc.update(&piece);
        }
        compress(&piece, &mut compressed);
        Poll::Ready(Some(Ok(Frame::data(compressed.into()))))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http_body_util::BodyExt as _;

    use super::*;

    async fn answered(request: &[(&str, &str)], response: Response) -> (HeaderMap, Vec<u8>) {
        let headers: HeaderMap = request
            .iter()
            .map(|(name, value)| (http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap()))
            .collect();
        let mut response = response;
        encode(is_wanted(&Method::GET, &headers), &Method::GET, &mut response, &LongBodies::default());
        let (head, body) = response.into_parts();
        (head.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    fn html(body: impl Into<Body>) -> Response {
        let response = Response::builder().header("content-type", "text/html").header("etag", "\"a\"");
        response.body(body.into()).unwrap()
    }

    fn unpacked(gzip: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(gzip).read_to_end(&mut plain).unwrap();
        plain
    }

    const GZIP: &[(&str, &str)] = &[("accept-encoding", "gzip, deflate, br")];

    #[tokio::test]
    async fn bodies_of_all_sizes_come_back_from_gzip() {
        let random: Vec<u8> = (0..40_000_u64)
            .flat_map(|n| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()).to_le_bytes())
            .collect();
        for size in [128, 129, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
            let text = b"<p>Fog over the island.</p>".iter().copied().cycle().take(size).collect::<Vec<_>>();
            let mixed: Vec<u8> = random
                .iter()
                .copied()
                .cycle()
                .take(size / 2)
                .chain(text[size / 2..].iter().copied())
                .collect();
            for plain in [text, mixed] {
                let (headers, body) = answered(GZIP, html(plain.clone())).await;
                assert_eq!(
                    (&headers["content-encoding"], &headers["etag"]),
                    (&"gzip".parse().unwrap(), &"\"a;gzip\"".parse().unwrap()),
                    "{size}"
                );
                assert_eq!(headers["vary"], "Accept-Encoding");
                assert_eq!(unpacked(&body), plain, "{size}");
                assert!(body.len() < plain.len(), "{size}");
            }
        }
        // A body of several frames, whose size is declared.
        let frames = vec![Bytes::from(vec![b'a'; 100_000]), Bytes::new(), Bytes::from(random)];
        let plain = frames.concat();
        let stream = futures::stream::iter(frames.into_iter().map(Ok::<_, std::io::Error>));
        let mut response = html(Body::from_stream(stream));
        response.headers_mut().insert("content-length", plain.len().into());
        let (headers, body) = answered(GZIP, response).await;
        assert!(!headers.contains_key("content-length"));
        assert_eq!(unpacked(&body), plain);
    }

    #[tokio::test]
    async fn other_answers_stay_as_they_are() {
        let text = "<p>Fog.</p>".repeat(100);
        let of_type = |content_type: &'static str| {
            let mut response = html(text.clone());
            response.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
            response
        };
        let encoded = {
            let mut response = html(text.clone());
            response.headers_mut().insert("content-encoding", HeaderValue::from_static("zstd"));
            response
        };
        let noise: Vec<u8> =
            (0..100_u64).flat_map(|n| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()).to_le_bytes()).collect();
        let streamed = Body::from_stream(futures::stream::iter([Ok::<_, std::io::Error>(text.clone())]));
        let part = {
            let mut response = html(text.clone());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response
        };
        for (request, response, varies) in [
            (&[][..], html(text.clone()), true),
            (&[("accept-encoding", "gzip, zstd")], html(text.clone()), true),
            (&[("accept-encoding", "gzip;q=0")], html(text.clone()), true),
            (GZIP, html("short"), true),
            (GZIP, html(noise), true),
            (GZIP, of_type("image/png"), false),
            (GZIP, of_type("Application/ZIP; x=y"), false),
            (GZIP, encoded, false),
            (GZIP, html(streamed), false),
            (GZIP, part, false),
        ] {
            let before = response.headers().get("content-encoding").cloned();
            let (headers, body) = answered(request, response).await;
            assert_eq!(headers.get("content-encoding"), before.as_ref());
            assert_eq!(
                (headers["etag"].to_str().unwrap(), headers.contains_key("vary")),
                ("\"a\"", varies),
                "{headers:?}"
            );
            assert!(!body.starts_with(&HEADER[..2]));
        }
        let (headers, _) = answered(GZIP, of_type("image/svg+xml")).await;
        assert_eq!(headers["content-encoding"], "gzip");
    }

    #[tokio::test]
    async fn few_long_bodies_are_compressed_at_once() {
        let long_bodies = LongBodies::default();
        let compressed = || {
            let mut response = html(vec![b'a'; LONG_BYTES as usize + 1]);
            encode(true, &Method::GET, &mut response, &long_bodies);
            (response.headers().contains_key("content-encoding"), response)
        };
        let held: Vec<_> = (0..LONG_BODIES).map(|_| compressed()).collect();
        assert!(held.iter().all(|(is_gzip, _)| *is_gzip));
        assert!(!compressed().0);
        drop(held);
        assert!(compressed().0);
    }
}
