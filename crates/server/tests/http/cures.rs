//! Tests that errors of requests for buckets say how to correct the request.

use std::collections::HashMap;

use rashomon_pages::DomainName;
use rashomon_server::Settings;

use crate::world::World;

const JSON: (&str, &str) = ("content-type", "application/json");
const HOST: (&str, &str) = ("host", "en.example.org");

#[tokio::test]
async fn errors_of_buckets_and_entries_name_their_cure() {
    let hosts = HashMap::from([("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())]);
    let world = World::with(Settings { hosts, max_body_bytes: 5000, ..Settings::default() }).await;
    let define = async |url: &str, definition: &str| {
        world.request("PUT", url, &[JSON], definition.to_owned()).await.expect(201);
    };
    define("/v1/enwiki/files", r#"{"type": "blob", "max_size": 10, "public": true}"#).await;
    define("/v1/enwiki/large", r#"{"type": "blob"}"#).await;
    let (long, longer) = ("x".repeat(11), "x".repeat(5001));
    for (method, url, headers, body, status, cure) in [
        (
            "PUT",
            "/v1/enwiki/files/a",
            &[][..],
            &*long,
            413,
            "10 bytes, the limit of the bucket: send a smaller body, or raise",
        ),
        (
            "PUT",
            "/v1/enwiki/large/a",
            &[],
            &longer,
            413,
            "5000 bytes, the limit of this request: send a smaller body",
        ),
        (
            "GET",
            "/v1/enwiki/files/none",
            &[],
            "",
            404,
            "GET /v1/enwiki/files/ lists the entries, and a PUT to",
        ),
        ("GET", "/wiki/?blob/files/none", &[HOST], "", 404, "GET /v1/enwiki/files/ lists the entries"),
        (
            "GET",
            "/wiki/?blob/files",
            &[HOST],
            "",
            400,
            "at /wiki/?blob/{bucket}/{key}: name the bucket, and then the key",
        ),
        ("GET", "/wiki/?blob", &[HOST], "", 400, "at /wiki/?blob/{bucket}/{key}"),
        ("GET", "/wiki/?blob/files/", &[HOST], "", 400, "a key has at least one byte"),
        ("DELETE", "/v1/enwiki/none", &[], "", 404, "GET /v1/enwiki/ lists its buckets"),
        ("GET", "/v1/enwiki", &[], "", 404, "the buckets of the domain are at /v1/enwiki/"),
        ("GET", "/v1/EN", &[], "", 404, "pages are at /v1/{domain}/page/{title}"),
        (
            "PUT",
            "/v1/enwiki/new",
            &[JSON],
            "[]",
            400,
            "is not a JSON object: send the definition of the bucket, such as",
        ),
        (
            "PUT",
            "/v1/enwiki/new",
            &[JSON],
            r#"{"type": "blob", "ttl": -1}"#,
            422,
            "seconds from 1 to 31622400000",
        ),
        (
            "PUT",
            "/v1/enwiki/new",
            &[JSON],
            r#"{"type": "blob", "max_size": -1}"#,
            422,
            "bytes from 1 to 5000",
        ),
        (
            "PUT",
            "/v1/enwiki/files/a",
            &[("content-type", "a/b"), ("content-type", "a/b")],
            "x",
            400,
            "send it once",
        ),
        (
            "PUT",
            "/v1/enwiki/files/a",
            &[("x-a", "1"), ("x-a", "2")],
            "x",
            400,
            "the setting 'ignored_headers'",
        ),
        ("PUT", "/v1/enwiki/files/a", &[("x-a", &"a".repeat(9000))], "x", 422, "send fewer or shorter ones"),
    ] {
        let answer = world.request(method, url, headers, body.to_owned()).await.expect(status);
        let problem = answer.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(cure), "{method} {url}: {detail}");
        assert!(!detail.contains("column"), "{method} {url}: {detail}");
    }
}
