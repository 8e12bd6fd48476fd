//! Tests that web pages of other origins cannot write, and can read only what browsers allow, unless their origin is
//! configured.

use rashomon_pages::DomainName;
use rashomon_server::Settings;

use crate::world::{Answer, PAGE, World};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const EVIL: (&str, &str) = ("origin", "https://evil.example");
const TRUSTED: (&str, &str) = ("origin", "https://trusted.example");
const CROSS_SITE: (&str, &str) = ("sec-fetch-site", "cross-site");

async fn world_with_trusted_origin() -> World {
    World::with(Settings { origins: ["https://trusted.example".to_owned()].into(), ..Settings::default() })
        .await
}

fn cors_headers(answer: &Answer) -> Vec<&str> {
    answer
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("access-control"))
        .collect()
}

#[tokio::test]
async fn web_page_of_another_origin_changes_nothing() {
    let world = World::new().await;
    let tid = world.revision("_rev=1&html=one").await;
    let before = world.dump().await;
    let list = format!("{PAGE}?rev/");
    let export = "{\"type\":\"page\"}\n";
    for origin_headers in [&[EVIL][..], &[CROSS_SITE], &[EVIL, CROSS_SITE], &[("origin", "null")]] {
        for (method, url, content_type, body) in [
            ("POST", list.clone(), FORM.1, "_rev=2&html=two"),
            ("POST", format!("{PAGE}?rev/1/"), FORM.1, "html=two"),
            ("PUT", format!("{PAGE}?rev/{tid}/html"), "text/plain", "two"),
            ("POST", "/v1/enwiki/import".to_owned(), "text/plain", export),
        ] {
            let headers: Vec<_> =
                origin_headers.iter().copied().chain([("content-type", content_type)]).collect();
            let refused = world.request(method, &url, &headers, body).await.expect(403);
            assert_eq!(refused.json()["type"], "urn:rashomon:problem:cross-site");
            assert!(refused.json()["detail"].as_str().unwrap().contains("'origins'"), "{}", refused.text());
            assert!(cors_headers(&refused).is_empty(), "{refused:?}");
        }
    }
    assert_eq!(world.dump().await, before);
    // A web page of another origin can send a read, but the browser withholds the answer from the page.
    let read = world.get_with(&format!("{PAGE}?rev/latest/html"), &[EVIL, CROSS_SITE]).await.expect(200);
    assert!(cors_headers(&read).is_empty(), "{read:?}");
    let preflight_headers = [EVIL, ("access-control-request-method", "POST")];
    let preflight = world.request("OPTIONS", &list, &preflight_headers, "").await.expect(204);
    assert!(cors_headers(&preflight).is_empty(), "{preflight:?}");
}

#[tokio::test]
async fn own_web_pages_and_programs_can_write() {
    let world = World::new().await;
    let list = format!("{PAGE}?rev/");
    for (rev, origin_headers) in [
        (1, &[][..]),
        (2, &[("origin", "http://localhost")]),
        (3, &[("origin", "http://localhost"), ("sec-fetch-site", "same-origin")]),
        (4, &[("sec-fetch-site", "none")]),
    ] {
        let headers: Vec<_> = origin_headers.iter().copied().chain([FORM]).collect();
        world.request("POST", &list, &headers, format!("_rev={rev}&html=x")).await.expect(201);
    }
}

#[tokio::test]
async fn web_pages_of_configured_origins_can_write_and_read() {
    let world = world_with_trusted_origin().await;
    let list = format!("{PAGE}?rev/");
    let preflight_headers = [
        TRUSTED,
        CROSS_SITE,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "content-type,x-request-id"),
    ];
    let preflight = world.request("OPTIONS", &list, &preflight_headers, "").await.expect(204);
    assert_eq!(preflight.header("access-control-allow-origin"), TRUSTED.1);
    assert_eq!(preflight.header("access-control-allow-methods"), "GET, HEAD, POST, OPTIONS");
    assert_eq!(preflight.header("access-control-allow-headers"), "content-type,x-request-id");
    assert_eq!(preflight.header("access-control-max-age"), "600");
    assert!(preflight.header("vary").contains("origin"));
    // A configured origin takes precedence over `Sec-Fetch-Site`.
    let headers = [TRUSTED, CROSS_SITE, FORM];
    let written = world.request("POST", &list, &headers, "_rev=1&html=one").await.expect(201);
    assert_eq!(written.header("access-control-allow-origin"), TRUSTED.1);
    assert!(written.header("access-control-expose-headers").contains("Location"));
    // The web page can read an error, too.
    let refused = world.request("POST", &list, &headers, "_rev=0&html=one").await.expect(400);
    assert_eq!(refused.header("access-control-allow-origin"), TRUSTED.1);
    // Every answer has `Vary: origin`, so caches keep the answers for different origins apart.
    let url = format!("{PAGE}?rev/latest/html");
    for origin_headers in [&[][..], &[TRUSTED], &[EVIL]] {
        let read = world.get_with(&url, origin_headers).await.expect(200);
        let vary: Vec<_> = read.headers.get_all("vary").iter().map(|vary| vary.to_str().unwrap()).collect();
        assert!(vary.contains(&"origin"), "{vary:?}");
        assert_eq!(cors_headers(&read).is_empty(), origin_headers != [TRUSTED], "{origin_headers:?}");
    }
    world.request("POST", &list, &[EVIL, FORM], "_rev=2&html=two").await.expect(403);
}

#[tokio::test]
async fn unknown_hosts_are_refused_if_hosts_are_checked() {
    let hosts = [("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())].into();
    let world = World::with(Settings { hosts, check_host: true, ..Settings::default() }).await;
    world.revision("_rev=1&html=one").await;
    for url in [&format!("{PAGE}?rev/latest/html"), "/", "/healthz", "/pages/enwiki/", "/openapi.json"] {
        let refused = world.get_with(url, &[("host", "evil.example:7231")]).await.expect(421);
        assert_eq!(refused.json()["type"], "urn:rashomon:problem:misdirected");
        assert!(refused.json()["detail"].as_str().unwrap().contains("'hosts'"), "{}", refused.text());
        for host in ["localhost:7231", "127.0.0.1", "[::1]:7231", "en.example.org"] {
            world.get_with(url, &[("host", host)]).await.expect(200);
        }
    }
    // After DNS rebinding, browsers send such headers: host and origin agree.
    let rebound = [
        ("host", "evil.example:7231"),
        ("origin", "http://evil.example:7231"),
        ("sec-fetch-site", "same-origin"),
        FORM,
    ];
    world.request("POST", &format!("{PAGE}?rev/"), &rebound, "_rev=2&html=two").await.expect(421);
    let world = World::with(Settings { check_host: false, ..Settings::default() }).await;
    world.request("POST", &format!("{PAGE}?rev/"), &rebound, "_rev=2&html=two").await.expect(201);
}
