//! Tests of URLs in answers: redirects have absolute paths, and links have the scheme, the host and the prefix with which
//! the client reaches the server.

use axum::body::Body;
use http::Request;
use rashomon_pages::DomainName;
use rashomon_server::Settings;
use rashomon_server::connections::PeerAddress;

use crate::{
    html::{BROWSER, addresses},
    world::{Answer, PAGE, World},
};

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

/// A browser resolves the links of a page, such as that to its style sheet, without knowing of the prefix.
#[tokio::test]
async fn every_link_of_an_html_page_has_the_prefix_of_the_client() {
    let world = behind_proxy().await;
    let definition = r#"{"type": "revisioned"}"#;
    world
        .request("PUT", "/v1/enwiki/docs", &[("content-type", "application/json")], definition)
        .await
        .expect(201);
    // Texts that look like links stay as they are.
    let form = "_rev=1&html=%3Ca%20href%3D%22/x%22%3E&_comment=a%20href%3D%22/x%22&_user=src%3D%22/x%22";
    let first = world.revision(form).await;
    let second = world.revision("_rev=2&wikitext=%3Ca%20href%3D%22/x%22%3E&_comment=%20href=").await;
    let tid = world.post("/v1/enwiki/docs/A?rev/", "_rev=1&html=x").await.expect(201).json()["tid"].clone();
    for url in [
        "/",
        "/docs",
        "/pages/enwiki/",
        "/pages/enwiki/Main_Page",
        &format!("/pages/enwiki/Main_Page?rev/{first}/"),
        &format!("/pages/enwiki/Main_Page?rev/{second}/"),
        "/pages/enwiki/Main_Page?rev/9/",
        "/pages/enwiki/Missing",
        "/pages/En/",
        "/buckets/enwiki/docs/",
        &format!("/buckets/enwiki/docs/A?rev/{}/", tid.as_str().unwrap()),
    ] {
        let page =
            async |headers: &[(&str, &str)]| get(&world, PROXY, url, &[BROWSER, headers].concat()).await;
        let plain = page(&[]).await;
        let prefixed = page(&[("x-forwarded-prefix", "/a&b")]).await;
        let is_link = |address: &String| address.starts_with('/');
        let expected: Vec<_> = (addresses(plain.text()).into_iter())
            .map(|address| if is_link(&address) { format!("/a&b{address}") } else { address })
            .collect();
        assert_eq!(addresses(prefixed.text()), expected, "{url}");
        assert!(expected.iter().filter(|address| is_link(address)).count() > 5, "{url} {expected:?}");
        let head = send(
            &world,
            PROXY,
            Request::head(url)
                .header("host", "en.example.org")
                .header("x-forwarded-prefix", "/a&b")
                .header("accept", "text/html"),
            "",
        );
        assert_eq!(head.await.header("content-length"), prefixed.body.len().to_string(), "{url}");
    }
    // A problem names the URL that the client asked for.
    let missing = get(&world, PROXY, &format!("{PAGE}?rev/9/"), &[("x-forwarded-prefix", "/store")]).await;
    assert_eq!(missing.expect(404).json()["instance"], format!("/store{PAGE}?rev/9/"));
}

#[tokio::test]
async fn openapi_names_the_prefix_of_the_client_as_its_server() {
    let world = behind_proxy().await;
    let document = async |peer: &str| {
        let headers = [("x-forwarded-prefix", "/a/b/")];
        get(&world, peer, "/openapi.json", &headers).await.expect(200).json()
    };
    let (plain, mut prefixed) = (document(CLIENT).await, document(PROXY).await);
    assert_eq!(prefixed["servers"], serde_json::json!([{"url": "/a/b"}]));
    prefixed.as_object_mut().unwrap().remove("servers");
    // Without servers, the paths follow `/`.
    assert_eq!(plain, prefixed);
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
