//! Tests that headers that proxies add are not stored, and cause no error.

use rashomon_server::Settings;

use crate::world::{Answer, PAGE, World};

const JSON: (&str, &str) = ("content-type", "application/json");
const MULTIPART: (&str, &str) = ("content-type", "multipart/form-data; boundary=b");

/// The headers of a write besides [`CONFIGURED`]: five that proxies usually add, and `x-review` of the client.
const ADDED: [(&str, &str); 6] = [
    ("x-forwarded-for", "192.0.2.1"),
    ("x-real-ip", "192.0.2.1"),
    ("x-request-id", "7"),
    ("x-amzn-trace-id", "7"),
    ("x-envoy-attempt-count", "1"),
    ("x-review", "done"),
];

/// Headers that a proxy of the test adds. Two proxies add the first one.
const CONFIGURED: [(&str, &str); 4] =
    [("x-hop-id", "1"), ("x-hop-id", "2"), ("x-my-proxy-hop", "3"), ("cf-ray", "4")];

/// A server whose configuration names the headers of the proxy, or none of them.
async fn world(is_configured: bool) -> World {
    let names: &[&str] = if is_configured { &["X-Hop-Id", "x-my-proxy-*", "cf-ray"] } else { &[] };
    let ignored_headers = serde_json::from_value(names.into()).unwrap();
    let world = World::with(Settings { ignored_headers, ..Settings::default() }).await;
    world.request("PUT", "/v1/enwiki/blobs", &[JSON], r#"{"type": "blob"}"#).await.expect(201);
    world
}

/// Checks which of the headers of a proxy an answer has.
#[track_caller]
fn check(answer: &Answer, of_proxy: &[&str]) {
    let sent = ADDED.iter().chain(&CONFIGURED[1..]).map(|(name, _)| *name);
    let returned: Vec<&str> = sent.filter(|name| answer.headers.contains_key(*name)).collect();
    // Every answer has an id.
    let expected: Vec<&str> = ["x-request-id", "x-review"].iter().chain(of_proxy).copied().collect();
    assert_eq!(returned, expected);
    assert_eq!((answer.header("x-review"), answer.header("x-request-id") == "7"), ("done", false));
}

/// A form with one property, whose part has these headers.
fn form(rev: Option<u64>, headers: &[(&str, &str)]) -> String {
    let part = |name: &str, headers: &str, body: &str| {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{headers}\r\n{body}\r\n")
    };
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let rev = rev.map(|rev| part("_rev", "", &rev.to_string()));
    let html = part("html", &headers, if rev.is_some() { "first" } else { "second" });
    format!("{}{html}--b--\r\n", rev.unwrap_or_default())
}

#[tokio::test]
async fn headers_of_proxies_are_not_stored_with_entries() {
    let world = world(true).await;
    let all = [&ADDED[..], &CONFIGURED].concat();
    world.request("PUT", "/v1/enwiki/blobs/a", &all, "x").await.expect(201);
    check(&world.get("/v1/enwiki/blobs/a").await.expect(200), &[]);
    // A header of a proxy is ignored, whatever its value is.
    let long = "a".repeat(9000);
    world.request("PUT", "/v1/enwiki/blobs/b", &[("x-hop-id", &long), ADDED[5]], "x").await.expect(201);
    check(&world.get("/v1/enwiki/blobs/b").await.expect(200), &[]);
    let other = self::world(false).await;
    let once = [&ADDED[..], &CONFIGURED[1..]].concat();
    other.request("PUT", "/v1/enwiki/blobs/a", &once, "x").await.expect(201);
    check(&other.get("/v1/enwiki/blobs/a").await.expect(200), &["x-hop-id", "x-my-proxy-hop"]);
}

#[tokio::test]
async fn headers_of_proxies_are_not_stored_with_properties() {
    let world = world(true).await;
    let all = [&ADDED[..], &CONFIGURED[1..]].concat();
    let latest = format!("{PAGE}?rev/latest/html");
    world.request("POST", &format!("{PAGE}?rev/"), &[MULTIPART], form(Some(5), &all)).await.expect(201);
    check(&world.get(&latest).await.expect(200), &[]);
    world.request("POST", &format!("{PAGE}?rev/5/"), &[MULTIPART], form(None, &all)).await.expect(201);
    check(&world.get(&latest).await.expect(200), &[]);
    let equivalents: serde_json::Map<String, serde_json::Value> =
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    let equivalents = serde_json::Value::from(equivalents);
    let form_with = |rev: u64| format!("_rev={rev}&html=x&_http-equiv.html={equivalents}");
    world.post(&format!("{PAGE}?rev/"), &form_with(6)).await.expect(201);
    check(&world.get(&latest).await.expect(200), &[]);
    // Without the setting, a header that clients cannot store is an error, and one that they can is stored.
    let other = self::world(false).await;
    other.post(&format!("{PAGE}?rev/"), &form_with(6)).await.expect(422);
    let once = [&ADDED[..], &CONFIGURED[1..3]].concat();
    other.request("POST", &format!("{PAGE}?rev/"), &[MULTIPART], form(Some(5), &once)).await.expect(201);
    check(&other.get(&latest).await.expect(200), &["x-hop-id", "x-my-proxy-hop"]);
}
