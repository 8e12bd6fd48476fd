//! Tests that web pages of every origin may read what `[access]` opens to everybody, and nothing else.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Right};

use super::{JSON, PUBLIC, domain, fill, guarded, page_of, public_domain, servers};
use crate::world::{Answer, World};

const EVIL: (&str, &str) = ("origin", "https://elsewhere.example");
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

fn settings() -> Settings {
    let hosts =
        [("pub.example.org".to_owned(), domain(PUBLIC)), ("en.example.org".to_owned(), domain("enwiki"))];
    Settings { hosts: hosts.into(), ..Settings::default() }
}

fn check(answer: &Answer, origin: &str, url: &str) {
    assert_eq!(answer.header(ALLOW_ORIGIN), origin, "{url}: {answer:?}");
    assert!(!answer.headers.contains_key("access-control-allow-credentials"), "{url}: {answer:?}");
    let exposed = answer.header("access-control-expose-headers");
    assert_eq!(exposed.contains("ETag"), !origin.is_empty(), "{url}: {answer:?}");
}

/// Buckets of every kind, each with an entry.
async fn fill_buckets(open: &World) {
    for domain in [PUBLIC, "enwiki"] {
        for (bucket, definition) in [
            ("shown", r#"{"type": "blob", "public": true}"#),
            ("kept", r#"{"type": "blob"}"#),
            ("docs", r#"{"type": "revisioned"}"#),
        ] {
            open.request("PUT", &format!("/v1/{domain}/{bucket}"), &[JSON], definition).await.expect(201);
        }
        open.request("PUT", &format!("/v1/{domain}/shown/a"), &[], "x").await.expect(201);
        open.request("PUT", &format!("/v1/{domain}/kept/a"), &[], "x").await.expect(201);
        open.post(&format!("/v1/{domain}/docs/A?rev/"), "_rev=1&html=x").await.expect(201);
    }
}

#[tokio::test]
async fn web_pages_of_every_origin_read_what_everybody_may_read() {
    let (open, guarded) = servers(settings(), public_domain()).await;
    let [_, tid] = fill(&open, PUBLIC).await;
    fill(&open, "enwiki").await;
    fill_buckets(&open).await;
    let token = guarded.token(&Right::ALL, &["*"]).await;
    let urls = |domain: &str| {
        let page = page_of(domain);
        let mut urls = [
            "",
            "?rev",
            "?rev/",
            "?rev/latest/html",
            "?rev/999/html",
            "?rev/latest/",
            "?foo",
            "?rev/0/",
            "?oldid=1",
        ]
        .map(|query| format!("{page}{query}"))
        .to_vec();
        urls.push(format!("{page}?rev/{tid}/html"));
        for path in [
            "",
            "page",
            "page/main%20page",
            "page/Nowhere?rev/latest/html",
            "page/..",
            "shown",
            "shown/",
            "shown/a",
        ] {
            urls.push(format!("/v1/{domain}/{path}"));
        }
        for path in ["shown/missing", "shown/%61", "docs", "docs/A", "docs/A?rev/latest/html", "docs/B?rev/"]
        {
            urls.push(format!("/v1/{domain}/{path}"));
        }
        urls
    };
    // With an Origin or without: a cache may give the answer to a web page.
    for headers in [&[EVIL][..], &[]] {
        for url in urls(PUBLIC) {
            for method in ["GET", "HEAD"] {
                check(&guarded.request(method, &url, headers, "").await, "*", &url);
            }
        }
        for (path, host, origin) in [
            ("Main_Page?rev/latest/html", "pub.example.org", "*"),
            ("Main_Page?utm_source=x", "pub.example.org", "*"),
            ("?blob/shown/a", "pub.example.org", "*"),
            ("?blob/shown/b", "pub.example.org", "*"),
            ("?blob/kept/a", "pub.example.org", ""),
            ("Main_Page?rev/latest/html", "en.example.org", ""),
            ("?blob/shown/a", "en.example.org", ""),
        ] {
            let all = [&[("host", host)][..], headers].concat();
            check(&guarded.get_with(&format!("/wiki/{path}"), &all).await, origin, path);
        }
    }
    let url = format!("{}?rev/latest/html", page_of(PUBLIC));
    let etag = guarded.get(&url).await.expect(200).header("etag").to_owned();
    check(&guarded.get_with(&url, &[("if-none-match", &etag)]).await.expect(304), "*", &url);
    check(&guarded.get_with(&url, &[("range", "bytes=0-1")]).await.expect(206), "*", &url);
    check(&guarded.get_with(&url, &[("range", "bytes=999-")]).await.expect(416), "*", &url);
    // What needs a token, and what changes something, stays closed.
    for token in ["", &token] {
        for url in urls("enwiki")
            .into_iter()
            .chain(["kept", "kept/", "kept/a"].map(|path| format!("/v1/{PUBLIC}/{path}")))
        {
            check(&guarded.ask(token, "GET", &url, &[EVIL], "").await, "", &url);
        }
        for url in
            ["/v1/tokens", "/v1/batch", "/", "/healthz", "/metrics", "/v2/pubwiki/page/A", "/pages/pubwiki/"]
        {
            check(&guarded.ask(token, "GET", url, &[EVIL], "").await, "", url);
        }
    }
    // The list of buckets shows more to a caller with a token.
    let list = format!("/v1/{PUBLIC}/");
    check(&guarded.ask(&token, "GET", &list, &[], "").await.expect(200), "", &list);
    let preflight =
        [EVIL, ("access-control-request-method", "GET"), ("access-control-request-headers", "range")];
    check(&guarded.request("OPTIONS", &url, &preflight, "").await.expect(204), "", &url);
    check(&guarded.post(&format!("{}?rev/", page_of(PUBLIC)), "_rev=9&html=x").await.expect(401), "", &url);
    check(&guarded.request("PUT", &url, &[EVIL], "").await, "", &url);
}

#[tokio::test]
async fn web_pages_read_nothing_where_nothing_is_configured() {
    let (open, _) = guarded().await;
    fill(&open, PUBLIC).await;
    fill_buckets(&open).await;
    for path in
        ["page/Main_Page?rev/latest/html", "", "shown", "shown/a", "docs/A?rev/latest/html", "shown/none"]
    {
        let url = format!("/v1/{PUBLIC}/{path}");
        check(&open.get_with(&url, &[EVIL]).await, "", &url);
    }
}

#[tokio::test]
async fn configured_origin_is_named_beside_open_reads() {
    let trusted = "https://trusted.example";
    let settings = Settings { origins: [trusted.to_owned()].into(), ..settings() };
    let (open, guarded) = servers(settings, public_domain()).await;
    fill(&open, PUBLIC).await;
    let url = format!("{}?rev/latest/html", page_of(PUBLIC));
    for (headers, origin) in
        [(&[EVIL][..], "*"), (&[], "*"), (&[("origin", trusted)], trusted), (&[("origin", "null")], "*")]
    {
        let answer = guarded.get_with(&url, headers).await.expect(200);
        check(&answer, origin, &url);
        let vary: Vec<_> = answer.headers.get_all("vary").iter().map(|vary| vary.to_str().unwrap()).collect();
        assert!(vary.contains(&"origin"), "{vary:?}");
    }
    let preflight = [EVIL, ("access-control-request-method", "GET")];
    check(&guarded.request("OPTIONS", &url, &preflight, "").await.expect(204), "", &url);
    // Requests of a batch are not for browsers.
    let batch = serde_json::json!([{"method": "GET", "path": url}]).to_string();
    let (_, everybody) = servers(
        Settings::default(),
        AnonymousRights { everywhere: Right::ALL.into_iter().collect(), ..Default::default() },
    )
    .await;
    let answer = everybody.request("POST", "/v1/batch", &[JSON], batch).await.expect(200);
    assert!(!answer.text().contains(ALLOW_ORIGIN), "{}", answer.text());
}
