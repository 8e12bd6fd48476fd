//! Tests of batches and elements that are refused.

use rashomon_server::Settings;
use serde_json::{Value, json};

use super::{JSON, get, problem, statuses};
use crate::world::{PAGE, World};

#[tokio::test]
async fn batch_that_is_no_list_of_requests_is_refused() {
    let world = World::new().await;
    let too_many = json!(vec![get("/healthz"); 501]).to_string();
    for (body, text) in [
        ("", "not a JSON array"),
        ("{}", "not a JSON array"),
        ("null", "not a JSON array"),
        ("\"[]\"", "not a JSON array"),
        ("[", "not a JSON array of requests: EOF"),
        ("[1,]", "not a JSON array of requests"),
        ("[] []", "trailing characters"),
        ("[1 2]", "not a JSON array of requests"),
        (&too_many, "the batch has more than 500 requests: send several batches\""),
        (&"[".repeat(100_000), "not a JSON array of requests"),
    ] {
        let refused = world.batch_with(&[], body).await.expect(400);
        assert!(refused.text().contains(text), "{body:.50}: {}", refused.text());
    }
    let not_utf8 = world.request("POST", "/v1/batch", &[JSON], &b"[\"\xff\"]"[..]).await.expect(400);
    assert!(not_utf8.text().contains("not a JSON array of requests"), "{}", not_utf8.text());
    assert_eq!(world.batch(&vec![get("/healthz"); 500]).await.len(), 500);
    for (headers, status) in [
        (&[][..], 415),
        (&[("content-type", "text/plain")], 415),
        (&[JSON, ("content-encoding", "gzip")], 415),
    ] {
        world.request("POST", "/v1/batch", headers, "[]").await.expect(status);
    }
    world.request("POST", "/v1/batch?a", &[JSON], "[]").await.expect(400);
    world.request("GET", "/v1/batch", &[], "").await.expect(405);
    let methods = world.request("OPTIONS", "/v1/batch", &[], "").await.expect(204);
    assert_eq!(methods.header("allow"), "POST, OPTIONS");
    world.request("POST", "/v1/batch/", &[JSON], "[]").await.expect(404);
}

#[tokio::test]
async fn too_large_batches_are_refused() {
    // The limit is an eighth of the staging memory.
    let world = World::with(Settings { staging_bytes: 8 << 20, ..Settings::default() }).await;
    let fitting = format!("[{}]", " ".repeat((1 << 20) - 2));
    world.batch_with(&[], &fitting).await.expect(200);
    world.batch_with(&[], &format!("{fitting} ")).await.expect(413);
    let world = World::with(Settings { max_body_bytes: 100_000, ..Settings::default() }).await;
    world.batch_with(&[], &" ".repeat(100_001)).await.expect(413);
    // Not even a problem for each of the requests would fit into the answer.
    let refused = world.batch_with(&[], &json!(vec![1; 100]).to_string()).await.expect(413);
    assert!(refused.text().contains("body_limit"), "{}", refused.text());
    world.batch_with(&[], &json!(vec![1; 97]).to_string()).await.expect(200);
}

/// Elements that are no requests, the status in their place, and a part of the detail.
fn invalid() -> Vec<(String, u64, &'static str)> {
    let with = |members: &str| format!(r#"{{"method": "GET", "path": "/healthz"{members}}}"#);
    let headers = |headers: &str| with(&format!(r#", "headers": {headers}"#));
    let path = |path: &str| json!({"method": "POST", "path": path, "body": "[]"}).to_string();
    let mut all = vec![
        ("null".to_owned(), 400, "must be an object"),
        ("7".to_owned(), 400, "must be an object"),
        (r#""/healthz""#.to_owned(), 400, "must be an object"),
        (r#"["GET", "/healthz"]"#.to_owned(), 400, "must be an object"),
        ("{}".to_owned(), 400, "has no method"),
        (r#"{"method": "GET"}"#.to_owned(), 400, "has no path"),
        (r#"{"path": "/"}"#.to_owned(), 400, "has no method"),
        (r#"{"method": null, "path": "/"}"#.to_owned(), 400, "has no method"),
        (r#"{"method": 1, "path": "/"}"#.to_owned(), 400, "method is not a text"),
        (r#"{"method": "GET", "path": []}"#.to_owned(), 400, "path is not a text"),
        (r#"{"method": "get", "path": "/"}"#.to_owned(), 400, "takes the methods GET"),
        (r#"{"method": "CONNECT", "path": "/"}"#.to_owned(), 400, "takes the methods GET"),
        (r#"{"method": "", "path": "/"}"#.to_owned(), 400, "takes the methods GET"),
        (r#"{"method": "GET", "path": "/", "method": "PUT"}"#.to_owned(), 400, "duplicate field"),
        (with(r#", "path": "/""#), 400, "duplicate field"),
        (with(r#", "url": "/""#), 400, "unknown field `url`"),
        (with(r#", "Body": """#), 400, "unknown field `Body`"),
        (with(r#", "body": 1"#), 400, "body is not a text"),
        (with(r#", "body": {"a": 1}"#), 400, "body is not a text"),
        (with(r#", "body": "\ud800""#), 400, "body is not a text"),
        (with(r#", "body": "", "body_base64": """#), 400, "body and body_base64"),
        (with(r#", "body_base64": "a""#), 400, "not Base64"),
        (with(r#", "body_base64": "_-8=""#), 400, "not Base64"),
        (with(r#", "body_base64": "/w""#), 400, "not Base64"),
        (with(r#", "body_base64": "/x==""#), 400, "not Base64"),
        (with(r#", "body_base64": 1"#), 400, "body_base64 is not a text"),
        (headers("[]"), 400, "not an object"),
        (headers(r#""a""#), 400, "not an object"),
        (headers(r#"{"a": 1}"#), 400, "value of the header 'a' is not a text"),
        (headers(r#"{"a": ["b"]}"#), 400, "value of the header 'a' is not a text"),
        (headers(r#"{"a": null}"#), 400, "value of the header 'a' is not a text"),
        (headers(r#"{"a b": ""}"#), 400, "'a b' is not valid"),
        (headers(r#"{"": ""}"#), 400, "'' is not valid"),
        (headers(r#"{"a": "b\r\nc: d"}"#), 400, "'a' is not valid"),
        (headers(r#"{"a": "\u0000"}"#), 400, "'a' is not valid"),
        (headers(r#"{"Accept": "", "accept": ""}"#), 400, "'accept' is given twice"),
        (
            headers(
                &json!((0..101).map(|n| (format!("a{n}"), "")).collect::<std::collections::BTreeMap<_, _>>())
                    .to_string(),
            ),
            431,
            "at most 100 headers",
        ),
        (headers(&json!({"a": "b".repeat(140_000)}).to_string()), 431, "131072 bytes"),
        (path(""), 400, "must begin with '/'"),
        (path("*"), 400, "must begin with '/'"),
        (path("healthz"), 400, "must begin with '/'"),
        (path("http://localhost/healthz"), 400, "must begin with '/'"),
        (path("/healthz#a"), 400, "must begin with '/'"),
        (path("/a b"), 400, "path is not valid"),
        (path("/a\nb"), 400, "path is not valid"),
        (path(&format!("/{}", "a".repeat(70_000))), 414, "at most 65534 bytes"),
        (path(&format!("/{}", "a".repeat(20_000))), 414, "at most 16384 bytes"),
    ];
    for batch in [
        "/v1/batch",
        "/v1/batch?",
        "/v1/batch?a",
        "/v1/batch/",
        "/v1/%62atch",
        "/v1/batch/x",
        "//v1/batch",
        "/v1/./batch",
    ] {
        all.push((path(batch), 400, "must not contain a batch"));
    }
    for name in [
        "Authorization",
        "Host",
        "Connection",
        "Content-Length",
        "Cookie",
        "Expect",
        "Forwarded",
        "HTTP2-Settings",
        "Keep-Alive",
        "Origin",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Sec-Fetch-Site",
        "Sec-WebSocket-Key",
        "Access-Control-Request-Method",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Real-IP",
        "X-Request-Id",
    ] {
        all.push((headers(&json!({ name: "a" }).to_string()), 400, "leave out the header"));
    }
    all
}

#[tokio::test]
async fn elements_that_are_no_requests_are_refused_in_their_place() {
    let world = World::new().await;
    world.revision("_rev=1&html=one").await;
    let before = world.dump().await;
    let invalid = invalid();
    let valid = get(&format!("{PAGE}?rev/latest/html")).to_string();
    let elements: Vec<_> = invalid.iter().flat_map(|(text, ..)| [text.as_str(), &valid]).collect();
    let answer = world.batch_with(&[], &format!("[{}]", elements.join(","))).await.expect(200);
    let Value::Array(answers) = answer.json() else { panic!("{answer:?}") };
    assert_eq!(answers.len(), elements.len());
    for ((text, status, detail), answers) in invalid.iter().zip(answers.chunks(2)) {
        assert_eq!(statuses(answers), [*status, 200], "{text:.200}: {}", answers[0]);
        let problem = problem(&answers[0]);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{text:.200}: {problem}");
        assert_eq!(answers[1]["body"], "one");
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn problem_of_a_refused_element_names_its_url() {
    let world = World::new().await;
    let long = format!("/{}", "a".repeat(20_000));
    for (element, instance) in [
        (json!({"method": "get", "path": "/v1/enwiki/page/A?rev/"}), Some("/v1/enwiki/page/A?rev/")),
        (json!({"method": "GET", "path": "/healthz", "url": "/"}), Some("/healthz")),
        (json!({"path": "/healthz"}), Some("/healthz")),
        (json!({"method": "POST", "path": "/v1/batch"}), Some("/v1/batch")),
        (json!({"method": "GET", "path": "/", "headers": {"Host": "a"}}), Some("/")),
        (get("/v1/EN/math-png"), Some("/v1/EN/math-png")),
        (json!({"method": "GET", "path": 1}), None),
        (json!({"method": "get", "path": "/a b"}), None),
        (json!({"method": "get", "path": long}), None),
        (json!([]), None),
    ] {
        let answers = world.batch(std::slice::from_ref(&element)).await;
        let problem = problem(&answers[0]);
        assert_eq!(problem["instance"].as_str(), instance, "{element}: {problem}");
    }
}

#[tokio::test]
async fn tokens_in_wrong_places_are_not_repeated() {
    let world = World::new().await;
    let token = format!("rashomon_{}_{}", "0".repeat(20), "a".repeat(64));
    let elements = [
        json!(token),
        json!({"method": "GET", "path": "/healthz", "headers": token}),
        json!({"method": "GET", "path": "/healthz", "headers": {"Authorization": format!("Bearer {token}")}}),
        json!({"method": "GET", "path": "/healthz", "body": [token]}),
        get(&format!("/v1/tokens/{token}")),
        json!({"method": "get", "path": format!("/v1/tokens/{token}")}),
    ];
    let answers = world.batch(&elements).await;
    assert_eq!(statuses(&answers), [400; 6]);
    assert!(!json!(answers).to_string().contains(&token), "{answers:?}");
}
