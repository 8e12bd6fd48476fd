//! Requests to the real router, over a store in memory.

use std::sync::Arc;

use axum::body::Body;
use futures::stream;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::BodyExt;
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_protocol::spec_version::{Choice, Profile, choose};
use rashomon_server::access::{Access, TokenStore};
use rashomon_server::{Api, Components, Registry, Settings};
use rashomon_tables::{Memory, TableStore};
use tower::ServiceExt;

/// 2024-01-01T00:00:00Z
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

/// The size limit of a body. It is low, so that inputs reach it.
const MAX_BODY: u64 = 1 << 16;

/// A request with any path and query gets an answer without a 5xx status. The first byte chooses the method.
pub fn url(input: &[u8]) {
    let Some((method, url)) = input.split_first() else { return };
    let methods = [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT];
    let method = methods[usize::from(*method) % methods.len()].clone();
    let Ok(uri) = Uri::try_from([b"/", url].concat()) else { return };
    let mut request = Request::new(Body::from("a=b"));
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert(header::CONTENT_TYPE, form);
    send_to_empty_server(request);
}

/// Any bytes in the place of a title in a URL are refused, or are the title of a page.
pub fn title(input: &[u8]) {
    url(&[b"\0v1/enwiki/page/", input].concat());
    url(&[b"\0wiki/", input].concat());
}

/// Any query of a page is refused or answered.
pub fn query(input: &[u8]) {
    let Some((method, query)) = input.split_first() else { return };
    url(&[&[*method][..], b"v1/enwiki/page/Main_Page?", query].concat());
}

/// Any form is refused or stored. The first byte says where the body is cut into two pieces.
pub fn form(input: &[u8]) {
    let Some((cut, body)) = input.split_first() else { return };
    post(b"application/x-www-form-urlencoded", *cut, body);
}

/// Any multipart body is refused or stored. The first byte says where the body is cut into two pieces. The
/// bytes up to the first line feed are the rest of the content type after `multipart/`.
pub fn multipart(input: &[u8]) {
    let Some((cut, input)) = input.split_first() else { return };
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (content_type, body) = input.split_at(end);
    post(&[b"multipart/", content_type].concat(), *cut, body.get(1..).unwrap_or_default());
}

/// Any header `Accept` chooses a version. The bytes up to the first line feed are the content type of the stored
/// document. Each further line is a header.
///
/// # Panics
///
/// If a version is chosen that cannot be made, or that is not needed because the stored version satisfies the client.
/// Also if the request is refused although the expected version can be made.
pub fn accept(input: &[u8]) {
    let mut lines = input.split(|byte| *byte == b'\n');
    let Some(Ok(stored)) = lines.next().map(std::str::from_utf8) else { return };
    let mut headers = HeaderMap::new();
    for value in lines.filter_map(|line| HeaderValue::from_bytes(line).ok()) {
        headers.append(header::ACCEPT, value);
    }
    let profile = Profile::of_content_type(stored);
    // Earlier versions of the stored spec can be made.
    let can_make = |wanted: &Profile| {
        profile
            .as_ref()
            .is_some_and(|profile| profile.spec() == wanted.spec() && !wanted.is_later_than(profile))
    };
    match choose(&headers, stored, can_make) {
        Choice::Other(chosen) => {
            let is_stored = profile.as_ref().is_some_and(|profile| profile.satisfies(&chosen));
            assert!(can_make(&chosen) && !is_stored, "{chosen}");
        }
        Choice::NotAcceptable { expected, .. } => {
            let expected = Profile::parse(&expected);
            assert!(
                !expected.is_some_and(|expected| can_make(&expected)),
                "refused, although the expected version can be made"
            );
        }
        Choice::Stored => {}
    }
    let none = choose(&headers, stored, |_| false);
    assert!(!matches!(none, Choice::Other(_)), "{none:?}");
}

/// Any body of a batch is refused or answered, and none of its requests causes an internal error.
pub fn batch(input: &[u8]) {
    let request = Request::post("/v1/batch")
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(input.to_vec()));
    let Ok(request) = request else { return };
    run(async {
        let clock = Arc::new(ManualClock::new(NOW));
        let api = api(Arc::new(Memory::new(clock.clone())), clock).await;
        let (status, body) = send(&api, request).await;
        let text = String::from_utf8_lossy(&body);
        // This text is the status of a member of the batch: in the body of a member, the quotes would be escaped.
        assert!(status < 500 && !text.contains("{\"status\":500,"), "{status}: {text}");
    });
}

fn post(content_type: &[u8], cut: u8, body: &[u8]) {
    let Ok(content_type) = HeaderValue::from_bytes(content_type) else { return };
    let (first, second) = body.split_at(body.len() * usize::from(cut) / 256);
    let pieces = [first.to_vec(), second.to_vec()].map(Ok::<_, std::io::Error>);
    let request = Request::post("/v1/enwiki/page/Main_Page?rev/")
        .header(header::CONTENT_TYPE, content_type)
        .body(Body::from_stream(stream::iter(pieces)));
    if let Ok(request) = request {
        send_to_empty_server(request);
    }
}

/// Sends a request to an empty server.
fn send_to_empty_server(mut request: Request<Body>) {
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    run(async {
        let clock = Arc::new(ManualClock::new(NOW));
        let api = api(Arc::new(Memory::new(clock.clone())), clock).await;
        let (status, body) = send(&api, request).await;
        assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&body));
    });
}

/// A server over a store.
pub(crate) async fn api(store: Arc<dyn TableStore>, clock: Arc<ManualClock>) -> Api {
    let settings = rashomon_pages::Settings::default();
    let buckets = RevisionStore::open(Arc::clone(&store), clock.clone(), settings, 7).await;
    let buckets = buckets.expect("a store in memory opens");
    let settings = Settings { max_body_bytes: MAX_BODY, ..Settings::default() };
    let access = Arc::new(Access::open(TokenStore::new(store, clock.clone()), clock.clone()));
    let registry = Registry::default();
    let key_value = rashomon_entries::Settings { body_limit: MAX_BODY, ..Default::default() };
    let key_value = KeyValueStore::new(Arc::clone(buckets.parts().records), key_value);
    Api::new(settings, Components { buckets, key_value, access, clock, seed: 7, registry, audit_log: None })
}

/// Sends a request, and returns the status and the whole body of the answer.
pub(crate) async fn send(api: &Api, request: Request<Body>) -> (u16, Vec<u8>) {
    let answer = rashomon_server::router(api.clone()).oneshot(request).await.expect("a router has no errors");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_or_else(|_| Vec::new(), |body| body.to_bytes().to_vec());
    api.finish().await;
    (head.status.as_u16(), body)
}

/// Runs the work to its end on a runtime with one thread.
pub(crate) fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime of one thread").block_on(work);
}
