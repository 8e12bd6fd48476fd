//! Tests of the public URLs of pages, `/wiki/{title}`, and of entries, `/wiki/?blob/{bucket}/{key}`.

use crate::world::{PAGE, World};

#[tokio::test]
async fn the_host_selects_the_wiki() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let inside = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    for host in ["en.example.org", "EN.example.org:7231"] {
        let outside = world.get_with("/wiki/Main_Page?rev/latest/html", &[("host", host)]).await.expect(200);
        assert_eq!(outside.body, inside.body);
        for name in ["etag", "content-location", "link", "x-rev", "cache-control"] {
            assert_eq!(outside.header(name), inside.header(name), "{name}");
        }
    }
    let unknown = world.get_with("/wiki/Main_Page", &[("host", "de.example.org")]).await.expect(404);
    assert!(unknown.json()["detail"].as_str().unwrap().contains("configuration"), "{}", unknown.text());
    world.get_with("/wiki/", &[("host", "en.example.org")]).await.expect(400);
    world.get_with("/wiki/Other?rev/latest/html", &[("host", "en.example.org")]).await.expect(404);
}

#[tokio::test]
async fn public_url_is_read_only() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=x").await;
    let before = world.dump().await;
    for (method, url) in [
        ("POST", "/wiki/Main_Page?rev/".to_owned()),
        ("POST", "/wiki/Main_Page?rev/1/".to_owned()),
        ("PUT", format!("/wiki/Main_Page?rev/{tid}/html")),
        ("DELETE", "/wiki/Main_Page".to_owned()),
    ] {
        let headers = [("host", "en.example.org"), ("content-type", "application/x-www-form-urlencoded")];
        let answer = world.request(method, &url, &headers, "_rev=2&html=y").await.expect(405);
        assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS");
    }
    let options =
        world.request("OPTIONS", "/wiki/Main_Page?rev/", &[("host", "en.example.org")], "").await.expect(204);
    assert_eq!(options.header("allow"), "GET, HEAD, OPTIONS");
    assert_eq!(world.dump().await, before);
}

const HOST: (&str, &str) = ("host", "en.example.org");

async fn define(world: &World, bucket: &str, definition: &str) {
    let json = [("content-type", "application/json")];
    world.request("PUT", &format!("/v1/enwiki/{bucket}"), &json, definition.to_owned()).await.expect(201);
}

#[tokio::test]
async fn entries_of_public_buckets_have_a_public_url() {
    let world = World::new().await;
    define(&world, "open", r#"{"type": "blob", "public": true, "content_type": "image/png"}"#).await;
    for key in ["a/b.png", "a%20b", "c&d'+=e", "%3F"] {
        let inside = format!("/v1/enwiki/open/{key}");
        world.request("PUT", &inside, &[], "image").await.expect(201);
        let inside = world.get(&inside).await.expect(200);
        let url = format!("/wiki/?blob/open/{key}");
        let outside = world.get_with(&url, &[HOST]).await.expect(200);
        assert_eq!(outside.body, inside.body);
        for name in ["etag", "last-modified", "cache-control", "content-type", "content-security-policy"] {
            assert_eq!(outside.header(name), inside.header(name), "{name}");
        }
        world.get_with(&url, &[HOST, ("if-none-match", inside.header("etag"))]).await.expect(304);
        assert_eq!(world.get_with(&url, &[HOST, ("range", "bytes=0-1")]).await.expect(206).text(), "im");
        world.request("HEAD", &url, &[HOST], "").await.expect(200);
        world.request("OPTIONS", &url, &[HOST], "").await.expect(204);
        for method in ["PUT", "POST", "DELETE"] {
            let refused = world.request(method, &url, &[HOST], "x").await.expect(405);
            assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS");
        }
    }
    let moved = world.get_with("/wiki/?blob/open/a%2Fb%2Epng", &[HOST]).await.expect(301);
    assert_eq!(moved.header("location"), "/wiki/?blob/open/a/b.png");
    for bad in ["open/", "open/..", "open/%80", "import/a", "OPEN/a", "/a"] {
        world.get_with(&format!("/wiki/?blob/{bad}"), &[HOST]).await.expect(400);
    }
    world.get_with("/wiki/?blob/open/a/b.png", &[("host", "de.example.org")]).await.expect(404);
    world.get_with("/wiki/?blob/open", &[HOST]).await.expect(400);
}

#[tokio::test]
async fn other_buckets_have_no_public_url() {
    let world = World::new().await;
    define(&world, "private", r#"{"type": "blob"}"#).await;
    define(&world, "clicks", r#"{"type": "counter", "public": true}"#).await;
    define(&world, "docs", r#"{"type": "revisioned"}"#).await;
    world.request("PUT", "/v1/enwiki/private/a", &[], "secret").await.expect(201);
    let missing = world.get_with("/wiki/?blob/missing/a", &[HOST]).await.expect(404);
    for bucket in ["private", "clicks", "docs"] {
        let answer = world.get_with(&format!("/wiki/?blob/{bucket}/a"), &[HOST]).await.expect(404);
        let named = answer.text().replace(bucket, "missing");
        assert_eq!(named, missing.text(), "a client cannot tell which buckets exist");
    }
}
