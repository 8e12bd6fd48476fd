//! Tests of URLs in answers: redirects have absolute paths, and links have the scheme, the host and the prefix with which
//! the client reaches the server.

use axum::body::Body;
use http::Request;
use rashomon_api::Settings;
use rashomon_buckets::DomainName;
use rashomon_connections::PeerAddress;

use crate::world::{Answer, PAGE, World};

const PROXY: &str = "10.0.0.1";
const CLIENT: &str = "192.0.2.7";

async fn behind_proxy() -> World {
    let hosts = [("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())].into();
    let proxies = vec!["10.0.0.0/8".parse().unwrap()];
    World::with(Settings { hosts, proxies, ..Settings::default() }).await
}

/// Sends a request from an address.
async fn send(world: &World, peer: &str, request: http::request::Builder, body: &str) -> Answer {
    let mut request = request.body(Body::from(body.to_owned())).unwrap();
    request.extensions_mut().insert(PeerAddress::new(peer.parse().unwrap()));
    world.send(request).await
}

async fn get(world: &World, peer: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(url).header("host", "en.example.org");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(world, peer, request, "").await
}

#[tokio::test]
async fn every_location_is_an_absolute_path() {
    let world = behind_proxy().await;
    let json = [("content-type", "application/json")];
    for (bucket, definition) in
        [("docs", r#"{"type": "revisioned"}"#), ("open", r#"{"type": "blob", "public": true}"#)]
    {
        world.request("PUT", &format!("/v1/enwiki/{bucket}"), &json, definition).await.expect(201);
    }
    let times = "_rev=7&html=x&_timestamp=2013-01-01T00:00:00Z";
    for page in ["/v1/enwiki/page/A;%C3%BC", "/v1/enwiki/docs/A;%C3%BC"] {
        let written = world.post(&format!("{page}?rev/"), times).await.expect(201);
        let tid = written.json()["tid"].as_str().unwrap().to_owned();
        assert_eq!(written.header("location"), format!("{page}?rev/{tid}/"));
        // The Location has the canonical spelling, whatever the request has.
        let other = page.replace("%C3%BC", "%c3%bc");
        let again = world.post(&format!("{other}?rev/"), times).await.expect(200);
        assert_eq!(again.header("location"), format!("{page}?rev/{tid}/"));
        let render = world.post(&format!("{other}?rev/7/"), "html=y").await.expect(201);
        let newest = render.json()["tid"].as_str().unwrap().to_owned();
        assert_eq!(render.header("location"), format!("{page}?rev/{newest}/"));
        let put = world.request("PUT", &format!("{page}?rev/{tid}/html"), &[], "z").await.expect(200);
        assert_eq!(put.header("location"), format!("{page}?rev/{tid}/"));
        let wiki = page.replace("/v1/enwiki/page/", "/wiki/");
        let html =
            page.replace("/v1/enwiki/page/", "/pages/enwiki/").replace("/v1/enwiki/", "/buckets/enwiki/");
        let mut redirects = Vec::new();
        for page in
            [page, wiki.as_str()].into_iter().filter(|page| !page.contains("docs") || page.starts_with("/v1"))
        {
            redirects.extend([
                (page.to_owned(), format!("{page}?rev/latest/html")),
                (format!("{page}?rev/latest"), format!("{page}?rev/latest/html")),
                (format!("{page}?rev/7/html"), format!("{page}?rev/{newest}/html")),
                (format!("{page}?rev/2013-01-01T00:00:00Z/html"), format!("{page}?rev/{tid}/html")),
                (format!("{page}?timegate/html"), format!("{page}?rev/{newest}/html")),
                (page.replace(';', "%3B") + "?rev/", format!("{page}?rev/")),
            ]);
        }
        redirects.extend([
            (format!("{html}?rev/7/"), format!("{html}?rev/{newest}/")),
            (format!("{html}?rev/latest"), format!("{html}?rev/latest/")),
            (format!("{html}?at=2013-01-01"), format!("{html}?rev/{tid}/")),
            (html.replace(';', "%3B"), html.clone()),
        ]);
        for (url, location) in redirects {
            for (prefix, before) in [("", ""), ("/store", "/store"), ("/a/b/", "/a/b"), ("/a, /b", "/a/b")] {
                let answer = get(&world, PROXY, &url, &[("x-forwarded-prefix", prefix)]).await;
                assert!(answer.status.is_redirection(), "{url}: {answer:?}");
                assert_eq!(answer.header("location"), format!("{before}{location}"), "{url}");
            }
        }
    }
    let entry = get(&world, PROXY, "/wiki/?blob/open/%61", &[("x-forwarded-prefix", "/store")]).await;
    assert_eq!(entry.expect(301).header("location"), "/store/wiki/?blob/open/a");
}

#[tokio::test]
async fn only_a_configured_proxy_has_a_prefix() {
    let world = behind_proxy().await;
    world.revision("_rev=1&html=x").await;
    let url = format!("{PAGE}?rev/1");
    let location = async |peer: &str, prefix: &str| {
        let answer = get(&world, peer, &url, &[("x-forwarded-prefix", prefix)]).await.expect(302);
        answer.header("location").to_owned()
    };
    assert_eq!(location(PROXY, "/store").await, format!("/store{PAGE}?rev/1/"));
    assert_eq!(location(CLIENT, "/store").await, format!("{PAGE}?rev/1/"));
    let long = format!("/{}", "a".repeat(2000));
    for malformed in [
        "store",
        "//evil.example.org",
        "/a//b",
        "/../a",
        "/./a",
        "https://evil",
        "/a?b",
        "/a#b",
        "/a b",
        "/\\evil",
        &long,
    ] {
        assert_eq!(location(PROXY, malformed).await, format!("{PAGE}?rev/1/"), "{malformed}");
    }
    // The requests of a batch come through the same proxy.
    let request = Request::post("/v1/batch")
        .header("content-type", "application/json")
        .header("x-forwarded-prefix", "/store");
    let body = format!(r#"[{{"method": "GET", "path": "{url}"}}]"#);
    let answer = send(&world, PROXY, request, &body).await.expect(200);
    assert_eq!(answer.json()[0]["headers"]["location"], format!("/store{PAGE}?rev/1/"));
}

#[tokio::test]
async fn links_have_the_scheme_the_host_and_the_prefix_of_the_client() {
    let world = behind_proxy().await;
    let tid = world.revision("_rev=1&html=x").await;
    let forwarded = [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "wiki.example.com:8443"),
        ("x-forwarded-prefix", "/store"),
    ];
    for (peer, headers, base) in [
        (PROXY, &[][..], "http://en.example.org"),
        (PROXY, &forwarded[..], "https://wiki.example.com:8443/store"),
        (PROXY, &forwarded[..1], "https://en.example.org"),
        (PROXY, &[("x-forwarded-host", "a.example.org, en.example.org")][..], "http://a.example.org"),
        (PROXY, &[("x-forwarded-host", "a>; rel=\"b\"")][..], "http://en.example.org"),
        (CLIENT, &forwarded[1..], "http://en.example.org"),
    ] {
        for page in [PAGE, "/wiki/Main_Page"] {
            let start = format!("<{base}{page}>; rel=\"original\"");
            for query in ["", "?rev/latest/html", &format!("?rev/{tid}/html"), "?timegate/html"] {
                let answer = get(&world, peer, &format!("{page}{query}"), headers).await;
                let link = answer.header("link");
                assert!(link.starts_with(&start), "{page}{query}: {link}");
                assert_eq!(
                    link.matches('<').count(),
                    link.matches(&format!("<{base}{page}")).count(),
                    "{link}"
                );
            }
            let timemap = get(&world, peer, &format!("{page}?timemap/html"), headers).await.expect(200);
            assert!(timemap.text().starts_with(&start), "{}", timemap.text());
            for line in timemap.text().lines() {
                assert!(line.starts_with(&format!("<{base}{page}")), "{line}");
            }
        }
    }
    // Prepared answers are for all hosts, and so are answers without a body.
    let etag = format!("\"1/{tid}\"");
    let unchanged = get(&world, CLIENT, &format!("{PAGE}?rev/latest/html"), &[("if-none-match", &etag)])
        .await
        .expect(304);
    assert!(unchanged.header("link").starts_with("<http://en.example.org/"), "{unchanged:?}");
}
