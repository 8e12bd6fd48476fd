//! Tests with random requests that no request of a client causes an internal error.

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};

use crate::world::World;

/// Generates texts that are mostly valid or nearly valid.
fn nearly(right: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(right).prop_map(str::to_owned),
        2 => (prop::sample::select(right), "[!-~]{0,3}", any::<prop::sample::Index>()).prop_map(|(text, noise, at)| {
            let mut text = text.to_owned();
            text.insert_str(at.index(text.len() + 1), &noise);
            text
        }),
        1 => "[!-~]{0,20}",
        1 => "\\PC{0,20}",
    ]
}

const METHODS: &[&str] = &["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"];

const PATHS: &[&str] = &[
    "/v1/enwiki/page/A",
    "/v1/enwiki/page/A/B",
    "/v1/enwiki/page/%C3%9C",
    "/v1/enwiki/page/",
    "/wiki/A",
    "/healthz",
    "/v1/enwiki/import",
    "/v1/enwiki",
    "/",
    "/readyz",
];

const QUERIES: &[&str] = &[
    "rev/",
    "rev/latest/html",
    "rev/latest/",
    "rev/1/",
    "rev/1/html",
    "rev/2/",
    "rev/2013-02-23T22:23:24Z/html",
    "rev/8f545ba0-2601-11e3-885c-4160918f0fb9/html",
    "rev/8f545ba0-2601-11e3-885c-4160918f0fb9/",
    "timegate/html",
    "timemap/html",
    "rev/&limit=2",
    "rev/&page=MQ",
    "",
];

const HEADERS: &[(&str, &str)] = &[
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "multipart/form-data; boundary=b"),
    ("content-type", "multipart/mixed; boundary=b"),
    ("range", "bytes=0-1"),
    ("range", "bytes=-5"),
    ("if-match", "*"),
    ("if-none-match", "\"1/8f545ba0-2601-11e3-885c-4160918f0fb9\""),
    ("if-range", "\"x\""),
    ("host", "en.example.org"),
    ("accept-encoding", "zstd"),
    ("accept-datetime", "Thu, 31 May 2007 20:35:00 GMT"),
    ("if-modified-since", "Thu, 31 May 2007 20:35:00 GMT"),
    ("x-request-id", "a"),
];

const BODIES: &[&str] = &[
    "_rev=1&html=x",
    "_rev=2&wikitext=x&_user=u&_comment=c",
    "html=y",
    "wikitext=x&_timestamp=2013-02-23T22:23:24Z",
    "_rev=1&html=x&_http-equiv.html=%7B%22content-type%22:%22a/b%22%7D",
    "_rev=3&html=x&_if_latest=1&_parent=1",
    "--b\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n4\r\n--b\r\nContent-ID: <html>\r\n\r\nx\r\n--b--",
    "--b\r\nContent-Disposition: form-data; name=\"html\"\r\n\r\n4\r\n--b--",
];

fn header() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        6 => prop::sample::select(HEADERS).prop_map(|(name, value)| (name.to_owned(), value.to_owned())),
        2 => (prop::sample::select(HEADERS), "[ -~]{0,30}").prop_map(|((name, _), value)| (name.to_owned(), value)),
        1 => ("[a-z-]{1,12}", "[ -~]{0,30}"),
    ]
}

#[test]
fn no_request_causes_an_internal_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::new());
    let strategy = (
        nearly(METHODS),
        nearly(PATHS),
        prop::option::weighted(0.9, nearly(QUERIES)),
        prop::collection::vec(header(), 0..4),
        prop_oneof![4 => nearly(BODIES).prop_map(String::into_bytes), 1 => any::<Vec<u8>>()],
    );
    let mut runner = TestRunner::new(Config { cases: 4000, failure_persistence: None, ..Config::default() });
    runner
        .run(&strategy, |(method, path, query, headers, body)| {
            let url = query.map_or(path.clone(), |query| format!("{path}?{query}"));
            let mut request = http::Request::builder().method(method.as_str()).uri(url);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            // Some inputs are no valid requests, and are refused before they reach the server.
            let Ok(request) = request.body(axum::body::Body::from(body)) else { return Ok(()) };
            let shown = format!("{request:?}");
            let is_head = request.method() == http::Method::HEAD;
            let answer = runtime.block_on(world.send(request));
            prop_assert!(answer.status.as_u16() < 500, "{shown}: {answer:?}");
            // HTML pages describe the error in HTML.
            let for_people =
                !path.starts_with("/v1/") && answer.header("content-type").starts_with("text/html");
            if answer.status.as_u16() >= 400 && !is_head && !for_people {
                answer.check_problem();
            }
            Ok(())
        })
        .unwrap();
}
