//! Tests of batches: several requests in one.

mod bounds;
mod broken;
mod callers;
mod invalid;
mod same;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rashomon_server::ServeOptions;
use serde_json::{Value, json};

use crate::{
    socket::Server,
    world::{Answer, PAGE, World},
};

const JSON: (&str, &str) = ("content-type", "application/json");

fn get(path: &str) -> Value {
    json!({"method": "GET", "path": path})
}

/// A request that is answered with 204, without the store.
fn options() -> Value {
    json!({"method": "OPTIONS", "path": "/v1/dewiki/page/Other"})
}

/// A write of a revision of a page.
fn write(page: &str, rev: usize, html: &str) -> Value {
    json!({
        "method": "POST", "path": format!("{page}?rev/"), "body": format!("_rev={rev}&html={html}"),
        "headers": {"Content-Type": "application/x-www-form-urlencoded"},
    })
}

/// The statuses of answers.
fn statuses(answers: &[Value]) -> Vec<u64> {
    answers.iter().map(|answer| answer["status"].as_u64().unwrap()).collect()
}

/// The problem in an answer.
#[track_caller]
fn problem(answer: &Value) -> Value {
    assert_eq!(answer["headers"]["content-type"], "application/problem+json", "{answer}");
    serde_json::from_str(answer["body"].as_str().unwrap()).unwrap()
}

impl World {
    /// Sends a batch. Returns the answers of its requests.
    async fn batch(&self, elements: &[Value]) -> Vec<Value> {
        let answer = self.batch_with(&[], &json!(elements).to_string()).await.expect(200);
        let Value::Array(answers) = answer.json() else { panic!("{answer:?}") };
        assert_eq!(answers.len(), elements.len());
        answers
    }

    async fn batch_with(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers: Vec<_> = headers.iter().copied().chain([JSON]).collect();
        self.request("POST", "/v1/batch", &headers, body.to_owned()).await
    }
}

#[tokio::test]
async fn answers_are_in_the_order_of_the_requests() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=one").await;
    let latest = format!("{PAGE}?rev/latest/html");
    // Short texts are not stored compressed.
    let long = "a line ".repeat(1000);
    world.post("/v1/enwiki/page/Long?rev/", &format!("_rev=1&html={long}")).await.expect(201);
    let answers = world
        .batch(&[
            get(&latest),
            get(PAGE),
            get("/v1/enwiki/page/Nowhere?rev/latest/html"),
            json!({"method": "HEAD", "path": latest}),
            json!({"method": "GET", "path": latest, "headers": {"If-None-Match": "*"}}),
            json!({"method": "OPTIONS", "path": PAGE, "body": null}),
            json!({"method": "GET", "path": latest, "headers": {"Range": "bytes=1-1"}}),
            json!({
                "method": "GET", "path": "/v1/enwiki/page/Long?rev/latest/html",
                "headers": {"accept-encoding": "zstd"},
            }),
            json!({
                "method": "PUT", "path": format!("{PAGE}?rev/{tid}/html"), "body_base64": "/wA=",
                "headers": {"content-type": "a/b"},
            }),
            get(&latest),
        ])
        .await;
    assert_eq!(statuses(&answers), [200, 302, 404, 200, 304, 204, 206, 200, 200, 200]);
    assert_eq!(answers[0]["body"], "one");
    assert!(answers[0].get("body_base64").is_none());
    assert!(answers[0]["headers"].get("content-encoding").is_none(), "{}", answers[0]);
    assert_eq!(answers[1]["headers"]["location"], format!("{PAGE}?rev/latest/html"));
    assert_eq!(problem(&answers[2])["instance"], "/v1/enwiki/page/Nowhere?rev/latest/html");
    for empty in [1, 3, 4, 5] {
        assert_eq!(answers[empty]["body"], "", "{}", answers[empty]);
    }
    assert_eq!(answers[3]["headers"]["content-length"], "3");
    assert_eq!(answers[6]["body"], "n");
    assert_eq!(answers[7]["headers"]["content-encoding"], "zstd");
    let compressed = STANDARD.decode(answers[7]["body_base64"].as_str().unwrap()).unwrap();
    assert_eq!(zstd::decode_all(&compressed[..]).unwrap(), long.as_bytes());
    assert_eq!(answers[9]["body_base64"], "/wA=", "bytes that are not UTF-8");
    assert!(answers[9].get("body").is_none());
    assert!(world.batch(&[]).await.is_empty());
}

#[tokio::test]
async fn empty_body_differs_from_a_missing_body() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=one").await;
    let replace = |member: &str| {
        let mut element = json!({"method": "PUT", "path": format!("{PAGE}?rev/{tid}/html")});
        element[member] = json!("");
        element
    };
    let none = json!({"method": "PUT", "path": format!("{PAGE}?rev/{tid}/html")});
    let answers = world.batch(&[none, replace("body"), replace("body_base64")]).await;
    assert_eq!(statuses(&answers), [400, 200, 200]);
    assert_eq!(world.get(&format!("{PAGE}?rev/latest/html")).await.text(), "");
}

#[tokio::test]
async fn requests_with_the_same_path_run_in_their_order() {
    let world = World::new().await;
    let mut elements = Vec::new();
    let spellings = ["A_B", "A%20B", "%41_B"];
    for rev in 1..=60 {
        elements.push(write("/v1/enwiki/page/A_B", rev, &format!("a{rev}")));
        elements.push(write(&format!("/v1/enwiki/page/Other{rev}"), rev, "other"));
        // A request with a spelling that is redirected runs in order, too, but its answer has no body.
        elements.push(get(&format!("/v1/enwiki/page/{}?rev/latest/html", spellings[rev % 3])));
        elements.push(get("/wiki/A_B?rev/latest/html"));
    }
    let host = [("host", "en.example.org")];
    let answer = world.batch_with(&host, &json!(elements).to_string()).await.expect(200).json();
    for rev in 1..=60 {
        let of = |at: usize| &answer[(rev - 1) * 4 + at];
        assert_eq!((&of(0)["status"], &of(1)["status"]), (&json!(201), &json!(201)), "{rev}");
        let expected = if rev % 3 == 0 { json!(format!("a{rev}")) } else { json!("") };
        assert_eq!(of(2)["body"], expected, "{rev}: {}", of(2));
        assert_eq!(of(3)["body"], format!("a{rev}"), "{rev}");
    }
}

#[tokio::test]
async fn failed_request_does_not_fail_the_others() {
    let world = World::new().await;
    let page = "/v1/enwiki/page/A";
    let elements = [write(page, 1, "one"), write(page, 1, "other"), json!("nothing"), write(page, 2, "two")];
    let answers = world.batch(&elements).await;
    assert_eq!(statuses(&answers), [201, 409, 400, 201]);
    assert_eq!(world.get("/v1/enwiki/page/A?rev/latest/html").await.text(), "two");
}

#[tokio::test]
async fn requests_are_counted_and_named_after_their_batch() {
    let world = World::new().await;
    let id = [("x-request-id", "mine")];
    let body = json!([get("/metrics"), 1, get(PAGE)]).to_string();
    let answer = world.batch_with(&id, &body).await.expect(200);
    assert_eq!(answer.header("x-request-id"), "mine");
    assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:batch/1.0\"");
    assert_eq!(answer.header("cache-control"), "no-store");
    for (at, answer) in answer.json().as_array().unwrap().iter().enumerate() {
        assert_eq!(answer["headers"]["x-request-id"], format!("mine.{at}"));
    }
    let metrics = world.get("/metrics").await;
    for (route, method, status) in [
        ("batch", "POST", "2xx"),
        ("operators", "GET", "4xx"),
        ("other", "other", "4xx"),
        ("page", "GET", "3xx"),
    ] {
        let line = format!(
            "rashomon_http_requests_total{{route=\"{route}\",method=\"{method}\",status=\"{status}\"}} 1\n"
        );
        assert!(metrics.text().contains(&line), "{line}{}", metrics.text());
    }
}

#[tokio::test]
async fn batch_over_a_connection_has_its_length() {
    let world = World::new().await;
    let server = Server::of(&world, ServeOptions::default()).await;
    let body = json!([write(PAGE, 1, "one"), get(&format!("{PAGE}?rev/latest/html"))]).to_string();
    let head =
        "POST /v1/batch HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let answer = server.exchange(request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    let answers: Vec<Value> = serde_json::from_str(body).unwrap();
    assert_eq!(statuses(&answers), [201, 200]);
}
