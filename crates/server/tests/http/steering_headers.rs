//! Headers that steer a server in front of this one, or a browser, are neither stored nor returned.

use std::collections::BTreeMap;

use rashomon_pages::{NewProperty, NewRevision, Page, PropertyName, Revision};
use serde_json::json;

use crate::world::{PAGE, World};

const STEERING: [&str; 12] = [
    "X-Accel-Redirect",
    "X-Amz-Website-Redirect-Location",
    "X-Cache",
    "X-Cache-Tags",
    "X-Frame-Options",
    "X-LIGHTTPD-send-file",
    "X-LiteSpeed-Location",
    "X-LiteSpeed-Purge",
    "X-Reproxy-URL",
    "X-Sendfile",
    "X-Varnish",
    "X-XSS-Protection",
];

#[tokio::test]
async fn property_with_a_steering_header_is_refused() {
    let world = World::new().await;
    let before = world.dump().await;
    for (number, name) in STEERING.into_iter().enumerate() {
        let field = json!({"Content-Type": "text/html", name: "/etc/passwd"}).to_string();
        let form = format!("_rev=1&html=x&_http-equiv.html={field}");
        let refused = world.post(&format!("{PAGE}?rev/"), &form).await.expect(422);
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains(&name.to_lowercase()) && detail.contains("stored_headers"),
            "{number}: {detail}"
        );
    }
    assert_eq!(world.dump().await, before);
    let form = "_rev=1&html=x&_http-equiv.html={\"X-Review\":\"done\",\"X-Robots-Tag\":\"noindex\"}";
    world.post(&format!("{PAGE}?rev/"), form).await.expect(201);
    let read = world.get(&format!("{PAGE}?rev/latest/html")).await.expect(200);
    assert_eq!((read.header("x-review"), read.header("x-robots-tag")), ("done", "noindex"));
}

#[tokio::test]
async fn steering_headers_of_an_entry_are_ignored() {
    let world = World::new().await;
    let json = ("content-type", "application/json");
    world.request("PUT", "/v1/enwiki/math-png", &[json], r#"{"type": "blob"}"#).await.expect(201);
    let mut headers = vec![("content-type", "image/png"), ("x-review", "done")];
    headers.extend(STEERING.iter().map(|name| (*name, "/etc/passwd")));
    world.request("PUT", "/v1/enwiki/math-png/a", &headers, "x").await.expect(201);
    assert!(!format!("{:?}", world.dump().await).contains("passwd"));
    let read = world.get("/v1/enwiki/math-png/a").await.expect(200);
    assert_eq!(read.header("x-review"), "done");
    assert!(STEERING.iter().all(|name| !read.headers.contains_key(*name)), "{:?}", read.headers);
}

/// An earlier version may have stored such headers.
#[tokio::test]
async fn stored_steering_headers_are_not_returned() {
    let world = World::new().await;
    let page = Page::parse("enwiki", "page", "Main_Page").unwrap();
    let name = PropertyName::new("html").unwrap();
    let body = world.buckets.stage_bytes(&page, &name, b"x").await.unwrap();
    let mut other_headers: BTreeMap<_, _> =
        STEERING.iter().map(|name| (name.to_lowercase(), "1".to_owned())).collect();
    other_headers.insert("x-review".to_owned(), "done".to_owned());
    let html = NewProperty { name, content_type: None, other_headers, body };
    let tid =
        world.buckets.put_revision(&page, NewRevision::new(Revision::new(1).unwrap(), vec![html])).await;
    let tid = tid.unwrap().tid;
    let urls = [
        format!("{PAGE}?rev/latest/html"),
        format!("{PAGE}?rev/{tid}/html"),
        "/wiki/Main_Page?rev/latest/html".to_owned(),
    ];
    for url in &urls {
        for headers in [&[][..], &[("range", "bytes=0-0")], &[("if-none-match", "*")]] {
            let headers = [headers, &[("host", "en.example.org")]].concat();
            let read = world.get_with(url, &headers).await;
            assert!([200, 206, 304].contains(&read.status.as_u16()), "{read:?}");
            assert_eq!(read.header("x-review"), "done");
            assert!(STEERING.iter().all(|name| !read.headers.contains_key(*name)), "{:?}", read.headers);
        }
    }
    let element = json!([{"method": "GET", "path": urls[1]}]).to_string();
    let json = ("content-type", "application/json");
    let answers = world.request("POST", "/v1/batch", &[json], element).await.expect(200).json();
    let headers = answers[0]["headers"].as_object().unwrap();
    assert_eq!(headers["x-review"], "done");
    assert!(STEERING.iter().all(|name| !headers.contains_key(&name.to_lowercase())), "{headers:?}");
}
