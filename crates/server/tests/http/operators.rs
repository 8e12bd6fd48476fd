//! Tests of the resources for operators, and of the ids of requests.

use rashomon_server::Settings;

use crate::world::{PAGE, World};

#[tokio::test]
async fn health_and_readiness_are_reported() {
    let world = World::new().await;
    let health = world.get("/healthz").await.expect(200);
    assert_eq!(health.json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(world.get("/readyz").await.expect(200).json()["status"], "ready");
    for path in ["/healthz", "/readyz", "/metrics"] {
        world.request("HEAD", path, &[], "").await.expect(200);
    }
}

#[tokio::test]
async fn metrics_count_requests_without_naming_pages() {
    let world = World::new().await;
    world.revision("_rev=1&html=0123456789").await;
    for _ in 0..3 {
        world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    }
    world.get("/v1/enwiki/page/Secret?rev/latest/html").await.expect(404);
    let metrics = world.get("/metrics").await.expect(200);
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    let text = metrics.text();
    for line in [
        "rashomon_http_requests_total{route=\"latest\",method=\"GET\",status=\"2xx\"} 3",
        "rashomon_http_requests_total{route=\"latest\",method=\"GET\",status=\"4xx\"} 1",
        "rashomon_http_requests_total{route=\"page\",method=\"POST\",status=\"2xx\"} 1",
        "rashomon_http_request_duration_seconds_count{route=\"latest\"} 4",
        "rashomon_http_requests_in_flight 1",
        "rashomon_http_received_bytes_total 22",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("Secret") && !text.contains("Main_Page") && !text.contains("enwiki"), "{text}");
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn cached_answers_are_prepared_once() {
        let world = World::in_memory().await;
        world.revision("_rev=1&html=0123456789").await;
        for used in 0..3 {
            world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
            let text = world.get("/metrics").await.expect(200).text().to_owned();
            let line = format!("rashomon_http_prepared_answers_used_total {used}");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}

#[tokio::test]
async fn requests_have_ids() {
    let world = World::new().await;
    let first = world.get("/healthz").await.header("x-request-id").to_owned();
    let second = world.get("/healthz").await.header("x-request-id").to_owned();
    assert_ne!(first, second);
    let given = world.get_with("/nowhere", &[("x-request-id", "mine-17")]).await.expect(404);
    assert_eq!(given.header("x-request-id"), "mine-17");
    let unusable = world.get_with("/nowhere", &[("x-request-id", "a \"b\"")]).await.expect(404);
    assert_ne!(unusable.header("x-request-id"), "a \"b\"");
}

#[tokio::test]
async fn a_read_only_server_refuses_writes() {
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    let before = world.dump().await;
    world.post(&format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(403);
    world.post(&format!("{PAGE}?rev/1/"), "html=x").await.expect(403);
    assert_eq!(world.dump().await, before);
    world.get(&format!("{PAGE}?rev/")).await.expect(404);
}

#[tokio::test]
async fn options_lists_the_methods() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    for (query, allow) in [
        ("", "GET, HEAD, OPTIONS"),
        ("?rev/", "GET, HEAD, POST, OPTIONS"),
        ("?rev/1/", "GET, HEAD, POST, OPTIONS"),
        (&format!("?rev/{tid}/html"), "GET, HEAD, PUT, OPTIONS"),
        ("?rev/latest/html", "GET, HEAD, OPTIONS"),
    ] {
        let answer = world.request("OPTIONS", &format!("{PAGE}{query}"), &[], "").await.expect(204);
        assert_eq!(answer.header("allow"), allow, "{query}");
        assert_eq!(answer.header("content-length"), "");
    }
    for path in [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/assets/style.css",
        "/pages/enwiki/",
    ] {
        let answer = world.request("OPTIONS", path, &[], "").await.expect(204);
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS", "{path}");
        let answer = world.request("POST", path, &[], "").await.expect(405);
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS", "{path}");
    }
    world.request("OPTIONS", "/nowhere", &[], "").await.expect(404);
}
