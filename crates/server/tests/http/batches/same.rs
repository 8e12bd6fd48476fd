//! Compares a batch with the same requests sent one by one, each way on a new store. The requests are random, but the
//! same in every run.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::world::World;

/// The method, the path, the headers and the body of a request.
type RequestParts = (&'static str, String, Vec<(&'static str, &'static str)>, Option<String>);

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

const HEADERS: [(&str, &str); 6] = [
    ("accept-encoding", "zstd"),
    ("if-none-match", "*"),
    ("if-match", "\"1/x\""),
    ("range", "bytes=1-"),
    ("accept", "text/html"),
    ("content-language", "en"),
];

const QUERIES: [&str; 12] = [
    "?rev/latest/html",
    "?rev/latest/",
    "?rev/",
    "?rev/1/",
    "?rev/2/html",
    "?rev/&limit=1",
    "?rev/&limit=0",
    "?timegate/html",
    "?timemap/html",
    "?rev/x",
    "",
    "?",
];

fn request() -> impl Strategy<Value = RequestParts> {
    let page = prop::sample::select(vec![
        "/v1/enwiki/page/A",
        "/v1/enwiki/page/B/C",
        "/v1/dewiki/page/A",
        "/v1/enwiki/page/B%2FC",
        "/v1/enwiki/page/..",
        "/wiki/A",
        "/v1/enwiki/nothing",
    ]);
    let method = prop::sample::select(vec!["GET", "GET", "HEAD", "OPTIONS", "DELETE", "PUT", "POST"]);
    let read = (
        method,
        page,
        prop::sample::select(&QUERIES[..]),
        prop::option::of(prop::sample::select(&HEADERS[..])),
    )
        .prop_map(|(method, page, query, header)| {
            (method, format!("{page}{query}"), header.into_iter().collect(), None)
        });
    let pages = prop::sample::select(vec!["/v1/enwiki/page/A", "/v1/enwiki/page/B/C", "/v1/dewiki/page/%41"]);
    let body = prop_oneof![4 => "x{0,9}", 1 => "%F[0-9A-F]", 1 => "%22{1,9}", 1 => "x{3000,5000}"];
    let write = (pages, 1..4, body).prop_map(|(page, rev, html)| {
        let form = format!("_rev={rev}&html={html}");
        ("POST", format!("{page}?rev/"), vec![FORM], Some(form))
    });
    prop_oneof![2 => read, 1 => write]
}

/// Replaces tids, which depend on the order of writes to different pages.
fn mask(text: &str) -> String {
    let is_tid = |part: &[u8]| {
        part.len() == 36
            && part.iter().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => *byte == b'-',
                _ => byte.is_ascii_hexdigit(),
            })
    };
    let (bytes, mut masked, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        if is_tid(bytes.get(at..at + 36).unwrap_or_default()) {
            masked.extend_from_slice(b"TID");
            at += 36;
        } else {
            masked.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(masked).unwrap()
}

/// The parts of an answer that must be the same.
fn comparable(status: u64, headers: impl Iterator<Item = (String, String)>, body: &[u8]) -> Value {
    let mut headers: Vec<_> = headers
        // The entity tags of JSON are hashes over tids.
        .filter(|(name, value)| name != "x-request-id" && (name != "etag" || value.contains('/')))
        .collect();
    headers.sort();
    let body = match std::str::from_utf8(body) {
        Ok(text) => mask(text),
        Err(_) => format!("{body:?}"),
    };
    json!([status, mask(&json!(headers).to_string()), body])
}

async fn one_by_one(world: &World, requests: &[RequestParts]) -> Vec<Value> {
    let mut answers = Vec::new();
    for (method, path, headers, body) in requests {
        let headers: Vec<_> = headers.iter().copied().chain([("host", "en.example.org")]).collect();
        let answer = world.request(method, path, &headers, body.clone().unwrap_or_default()).await;
        let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        let headers = names.into_iter().map(|name| {
            let values: Vec<_> =
                answer.headers.get_all(name.as_str()).iter().map(|value| value.to_str().unwrap()).collect();
            let values = values.join(", ");
            (name, values)
        });
        answers.push(comparable(u64::from(answer.status.as_u16()), headers, &answer.body));
    }
    answers
}

async fn in_a_batch(world: &World, requests: &[RequestParts]) -> Vec<Value> {
    let elements: Vec<Value> = (requests.iter().enumerate())
        .map(|(at, (method, path, headers, body))| {
            let headers: serde_json::Map<_, _> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            let mut element = json!({"method": method, "path": path, "headers": headers});
            match body {
                Some(body) if at % 2 == 0 => element["body_base64"] = json!(STANDARD.encode(body)),
                Some(body) => element["body"] = json!(body),
                None => {}
            }
            element
        })
        .collect();
    let host = [("host", "en.example.org")];
    let answer = world.batch_with(&host, &json!(elements).to_string()).await.expect(200).json();
    (answer.as_array().unwrap().iter())
        .map(|answer| {
            let headers = answer["headers"].as_object().unwrap().iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
            let body = match answer.get("body") {
                Some(body) => body.as_str().unwrap().as_bytes().to_vec(),
                None => STANDARD.decode(answer["body_base64"].as_str().unwrap()).unwrap(),
            };
            comparable(answer["status"].as_u64().unwrap(), headers, &body)
        })
        .collect()
}

/// Compares random batches with the same requests sent one by one. `open` makes a new world for each way.
fn compare<F: Future<Output = World>>(cases: u32, open: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let requests = prop::collection::vec(request(), 1..40);
    runner
        .run(&requests, |requests| {
            let (single, batched) = runtime.block_on(async {
                let worlds = (open().await, open().await);
                (one_by_one(&worlds.0, &requests).await, in_a_batch(&worlds.1, &requests).await)
            });
            for ((request, single), batched) in requests.iter().zip(&single).zip(&batched) {
                prop_assert_eq!(single, batched, "{:?}", request);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn batch_answers_as_single_requests_do() {
    compare(60, World::new);
}

/// With SQLite, the requests of a batch really run concurrently.
#[test]
fn batch_answers_as_single_requests_do_on_sqlite() {
    compare(20, World::on_sqlite);
}
