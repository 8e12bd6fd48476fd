//! Tests of the definitions of buckets, and of the list of buckets.

use serde_json::json;

use crate::world::{Answer, World};

const BUCKET: &str = "/v1/enwiki/math-png";
const JSON: (&str, &str) = ("content-type", "application/json");

impl World {
    async fn define(&self, url: &str, headers: &[(&str, &str)], definition: &str) -> Answer {
        self.request("PUT", url, &[headers, &[JSON]].concat(), definition.to_owned()).await
    }
}

#[tokio::test]
async fn bucket_is_created_once_and_shown_with_its_defaults() {
    let world = World::new().await;
    world.get(BUCKET).await.expect(404);
    let definition = r#"{"type": "blob", "content_type": "image/png", "ttl": 86400}"#;
    let created = world.define(BUCKET, &[], definition).await.expect(201);
    let shown = json!({
        "type": "blob", "content_type": "image/png", "public": false, "ttl": 86400, "max_size": 256 << 20,
    });
    assert_eq!(created.json(), shown);
    let again = world.define(BUCKET, &[], definition).await.expect(200);
    assert_eq!(again.header("etag"), created.header("etag"));
    let read = world.get(BUCKET).await.expect(200);
    assert_eq!((read.json(), read.header("etag")), (shown.clone(), created.header("etag")));
    for answer in [&created, &again, &read] {
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.header("content-type"), "application/json; profile=\"urn:rashomon:bucket/1.0\"");
    }
    // A client can send back the document that it has read.
    world.define(BUCKET, &[], read.text()).await.expect(200);
    world.get_with(BUCKET, &[("if-none-match", read.header("etag"))]).await.expect(304);
    world.get_with(BUCKET, &[("if-match", "\"other\"")]).await.expect(412);
    let other = world.define(BUCKET, &[], r#"{"type": "blob"}"#).await.expect(409);
    assert_eq!(other.json()["definition"], shown);
    assert_eq!(other.header("etag"), read.header("etag"));
    assert_eq!(world.get(BUCKET).await.json(), shown);
}

#[tokio::test]
async fn definition_is_replaced_only_with_if_match() {
    let world = World::new().await;
    let first = world.define(BUCKET, &[], r#"{"type": "blob"}"#).await.expect(201);
    let first = first.header("etag");
    world.define(BUCKET, &[("if-none-match", "*")], r#"{"type": "blob"}"#).await.expect(412);
    world.define(BUCKET, &[("if-none-match", "*")], r#"{"type": "blob", "ttl": 5}"#).await.expect(412);
    world.define(BUCKET, &[("if-match", "\"other\"")], r#"{"type": "blob", "ttl": 5}"#).await.expect(412);
    let second =
        world.define(BUCKET, &[("if-match", first)], r#"{"type": "blob", "ttl": 5}"#).await.expect(200);
    assert_eq!(second.json()["ttl"], 5);
    assert_ne!(second.header("etag"), first);
    world.define(BUCKET, &[("if-match", first)], r#"{"type": "blob", "ttl": 6}"#).await.expect(412);
    world.define(BUCKET, &[("if-match", "*")], r#"{"type": "ordered-blob"}"#).await.expect(409);
    world.define("/v1/enwiki/none", &[("if-match", "*")], r#"{"type": "blob"}"#).await.expect(412);
    world.get("/v1/enwiki/none").await.expect(404);
}

#[tokio::test]
async fn deleted_bucket_is_gone_at_once_and_made_again_empty() {
    let world = World::new().await;
    world.request("DELETE", BUCKET, &[], "").await.expect(404);
    let old = world.define(BUCKET, &[], r#"{"type": "blob"}"#).await.expect(201);
    let entry = format!("{BUCKET}/a.png");
    world.request("PUT", &entry, &[], "old").await.expect(201);
    world.request("DELETE", BUCKET, &[("if-match", "\"other\"")], "").await.expect(412);
    world.request("DELETE", BUCKET, &[("if-match", old.header("etag"))], "").await.expect(204);
    world.get(BUCKET).await.expect(404);
    world.get(&entry).await.expect(404);
    world.request("PUT", &entry, &[], "x").await.expect(404);
    world.request("DELETE", BUCKET, &[("if-match", "*")], "").await.expect(412);
    world.define(BUCKET, &[], r#"{"type": "ordered-blob"}"#).await.expect(201);
    world.get(&entry).await.expect(404);
    world.request("PUT", &entry, &[], "new").await.expect(201);
    assert_eq!(world.get(&entry).await.expect(200).text(), "new");
}

#[tokio::test]
async fn bucket_of_pages_cannot_be_changed() {
    let world = World::new().await;
    let page = world.get("/v1/enwiki/page").await.expect(200);
    assert_eq!(page.json(), json!({"type": "revisioned", "public": false}));
    world.define("/v1/enwiki/page", &[], r#"{"type": "revisioned"}"#).await.expect(200);
    let other = world.define("/v1/enwiki/page", &[], r#"{"type": "blob"}"#).await.expect(409);
    assert_eq!(other.json()["definition"], page.json());
    world.define("/v1/enwiki/page", &[("if-none-match", "*")], r#"{"type": "revisioned"}"#).await.expect(412);
    let refused = world.request("DELETE", "/v1/enwiki/page", &[], "").await.expect(405);
    assert_eq!(refused.header("allow"), "GET, HEAD, PUT, OPTIONS");
    let options = world.request("OPTIONS", "/v1/enwiki/page", &[], "").await.expect(204);
    assert_eq!(options.header("allow"), "GET, HEAD, PUT, OPTIONS");
}

#[tokio::test]
async fn malformed_requests_for_buckets_are_refused() {
    let world = World::new().await;
    let before = world.dump().await;
    for name in ["import", "changes", "timeline", "Math", "1a", "math_png", "m%61th", &"a".repeat(65)] {
        for method in ["GET", "PUT", "DELETE"] {
            let url = format!("/v1/enwiki/{name}");
            world.request(method, &url, &[JSON], r#"{"type": "blob"}"#).await.expect(400);
        }
    }
    for definition in [
        "",
        "[]",
        "{}",
        r#"{"type": "blob", "x": 1}"#,
        r#"{"type": "blob", "type": "blob"}"#,
        r#"{"type": "blob", "ttl": "1"}"#,
        "{\"type\": \"\u{e9}\"}",
    ] {
        world.define(BUCKET, &[], definition).await.expect(400);
    }
    world.define(BUCKET, &[], r#"{"type": "blob", "ttl": 0}"#).await.expect(422);
    let large = format!(r#"{{"type": "blob", "content_type": "{}"}}"#, "a".repeat(17_000));
    world.define(BUCKET, &[], &large).await.expect(413);
    world.request("PUT", BUCKET, &[("content-type", "text/plain")], r#"{"type": "blob"}"#).await.expect(415);
    world.define(BUCKET, &[("content-encoding", "gzip")], r#"{"type": "blob"}"#).await.expect(415);
    for method in ["GET", "PUT", "DELETE"] {
        world.request(method, &format!("{BUCKET}?x=1"), &[JSON], r#"{"type": "blob"}"#).await.expect(400);
    }
    world.request("POST", BUCKET, &[], "").await.expect(405);
    for query in ["x=1", "limit=0", "limit=501", "after=A", "after=a&after=b"] {
        world.get(&format!("/v1/enwiki/?{query}")).await.expect(400);
    }
    world.request("PUT", "/v1/enwiki/", &[], "").await.expect(405);
    assert_eq!(world.dump().await, before);
    // A vendor's media type that ends with `+json` counts as JSON.
    let vendor = [("content-type", "application/vnd.org.mediawiki.bucket.1.0+json")];
    world.request("PUT", BUCKET, &vendor, r#"{"type": "blob"}"#).await.expect(201);
}

#[tokio::test]
async fn all_reserved_names_are_refused_alike() {
    let world = World::new().await;
    let before = world.dump().await;
    for name in ["import", "export", "changes", "digest", "timeline"] {
        for url in [
            format!("/v1/enwiki/{name}"),
            format!("/v1/enwiki/{name}/"),
            format!("/v1/enwiki/{name}/a"),
            format!("/wiki/?blob/{name}/a"),
            format!("/buckets/enwiki/{name}/"),
            format!("/buckets/enwiki/{name}/A"),
            format!("/v1/enwiki/import?bucket={name}"),
        ] {
            let methods = match url.split('/').nth(1) {
                Some("v1") => &["GET", "PUT", "DELETE"][..],
                _ => &["GET"],
            };
            let methods = if url.contains("?bucket") { &["POST"][..] } else { methods };
            for method in methods {
                let headers = [JSON, ("host", "en.example.org")];
                let answer = world.request(method, &url, &headers, r#"{"type": "blob"}"#).await.expect(400);
                let expected = format!("'{name}' is reserved and cannot be a bucket: choose another name");
                assert!(answer.text().contains(&expected), "{method} {url}: {}", answer.text());
            }
        }
    }
    // A method that no bucket has is refused like a method that imports do not have.
    let refused = world.request("PATCH", "/v1/enwiki/import", &[], "").await.expect(405);
    assert_eq!(refused.header("allow"), "POST, OPTIONS");
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn buckets_of_a_domain_are_listed_by_name() {
    let world = World::new().await;
    assert_eq!(world.get("/v1/enwiki/").await.expect(200).json(), json!({"buckets": []}));
    for name in ["zoo", "alpha", "math-png"] {
        world.define(&format!("/v1/enwiki/{name}"), &[], r#"{"type": "blob"}"#).await.expect(201);
    }
    world.define("/v1/dewiki/other", &[], r#"{"type": "blob"}"#).await.expect(201);
    world.revision("_rev=1&html=x").await;
    let all = world.get("/v1/enwiki/").await.expect(200);
    assert_eq!(all.header("cache-control"), "no-store");
    let entry = |name, of_type| json!({"name": name, "type": of_type});
    let expected = [
        entry("alpha", "blob"),
        entry("math-png", "blob"),
        entry("page", "revisioned"),
        entry("zoo", "blob"),
    ];
    assert_eq!(all.json(), json!({"buckets": expected}));
    for limit in 1..=5 {
        let (mut url, mut listed) = (format!("/v1/enwiki/?limit={limit}"), Vec::new());
        loop {
            let part = world.get(&url).await.expect(200).json();
            let buckets = part["buckets"].as_array().unwrap();
            assert!(buckets.len() <= limit);
            listed.extend(buckets.clone());
            let Some(next) = part["next"].as_str() else { break };
            assert!(next.contains(&format!("limit={limit}")), "{next}");
            url = format!("/v1/enwiki/{next}");
        }
        assert_eq!(listed, expected, "{limit}");
    }
}
