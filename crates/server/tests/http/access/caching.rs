//! Tests that shared caches may store nothing where reading needs a right.

use rashomon_server::access::{AnonymousRights, Right, Rights};
use rashomon_server::{OperatorPages, Settings};

use super::{BROWSER, domain, fill, page_of, public_domain, servers};
use crate::world::World;

/// URLs of a domain, each with a header and the expected status of the answer.
fn urls(domain: &str, tid: &str) -> Vec<(String, (&'static str, &'static str), u16)> {
    let page = page_of(domain);
    let none = ("x-none", "");
    let any = ("if-none-match", "*");
    let mut urls = Vec::new();
    for path in ["rev/latest/html", "rev/latest/", "rev/", "rev/2/", "timemap/html"] {
        urls.push((format!("{page}?{path}"), none, 200));
        urls.push((format!("{page}?{path}"), any, 304));
    }
    for path in [format!("rev/{tid}/"), format!("rev/{tid}/html")] {
        urls.push((format!("{page}?{path}"), none, 200));
        urls.push((format!("{page}?{path}"), any, 304));
    }
    for list in ["rev/&limit=1", "rev/2/&limit=1", "timemap/html&limit=1"] {
        urls.push((format!("{page}?{list}"), none, 200));
    }
    urls.push((format!("{page}?rev/latest/html"), ("range", "bytes=0-1"), 206));
    urls.push((format!("{page}?rev/{tid}/html"), ("range", "bytes=0-1"), 206));
    urls.push((format!("{page}?rev/latest/html"), ("accept-encoding", "zstd"), 200));
    for redirected in ["?rev", "?rev/latest", "?rev/2", "?rev/2/html", "?rev/2024-01-01T00:01:30Z/html", ""] {
        urls.push((format!("{page}{redirected}"), none, 302));
    }
    urls.push((page.replace("Main_Page", "Main%5FPage"), none, 301));
    let pages = format!("/pages/{domain}/");
    urls.push((pages.clone(), none, 200));
    urls.push((format!("{pages}Main_Page"), BROWSER, 200));
    urls.push((format!("{pages}Main_Page?rev/{tid}/"), BROWSER, 200));
    urls.push((format!("{pages}Main_Page?rev/2/"), none, 302));
    urls.push((format!("{pages}Main_Page?at=2024-01-01T00:02"), none, 302));
    urls.push((format!("{pages}Main%5FPage"), none, 301));
    urls.push((format!("/pages/{domain}"), none, 301));
    urls.push(("/wiki/Main_Page?rev/latest/html".to_owned(), none, 200));
    urls.push(("/wiki/Main_Page".to_owned(), none, 302));
    urls.push(("/wiki/Main%5FPage".to_owned(), none, 301));
    urls
}

/// The `Cache-Control` of each answer, for a client with this token.
async fn cachings(world: &World, token: &str, domain: &str, tid: &str) -> Vec<(String, String)> {
    let mut cachings = Vec::new();
    let host = format!("{domain}.example.org");
    for (url, header, status) in urls(domain, tid) {
        let answer = world.ask(token, "GET", &url, &[header, ("host", &host)], "").await;
        assert_eq!(answer.status.as_u16(), status, "{url} {header:?}: {answer:?}");
        cachings.push((format!("{url} {header:?}"), answer.header("cache-control").to_owned()));
    }
    cachings
}

#[tokio::test]
async fn answers_are_private_where_reading_needs_a_right() {
    let hosts = ["enwiki", super::PUBLIC].map(|name| (format!("{name}.example.org"), domain(name)));
    let settings = Settings { hosts: hosts.into(), ..Settings::default() };
    let (open, world) = servers(settings, public_domain()).await;
    let [_, closed] = fill(&open, "enwiki").await;
    let [_, public] = fill(&open, super::PUBLIC).await;
    let token = world.token(&[Right::Read], &["*"]).await;
    let count = urls("enwiki", &closed).len();
    let mut restricted = 0;
    for (url, caching) in cachings(&world, &token, "enwiki", &closed).await {
        assert!(!caching.contains("public") && !caching.contains("s-maxage"), "{url}: {caching}");
        assert!(caching.starts_with("private, max-age=") || caching == "no-store", "{url}: {caching}");
        restricted += usize::from(caching.starts_with("private"));
    }
    assert!(restricted + 3 > count, "{restricted} of {count}");
    // If a client may read the page without a token, a token changes nothing. The same holds on an open server.
    let without = cachings(&world, "", super::PUBLIC, &public).await;
    assert_eq!(cachings(&world, &token, super::PUBLIC, &public).await, without);
    assert_eq!(cachings(&open, "", super::PUBLIC, &public).await, without);
    for (url, caching) in without {
        assert!(caching.starts_with("public, max-age=") || caching == "no-store", "{url}: {caching}");
    }
}

#[tokio::test]
async fn list_of_domains_is_public_if_everybody_may_read_all_of_them() {
    let everywhere = AnonymousRights { everywhere: Rights::from_iter([Right::Read]), ..Default::default() };
    let but_one =
        AnonymousRights { domains: super::anonymous_on("enwiki", &[]).domains, ..everywhere.clone() };
    for (anonymous, expected) in [(everywhere, "public"), (but_one, "private"), (public_domain(), "private")]
    {
        let (_, world) = servers(Settings::default(), anonymous).await;
        let caching = world.get("/").await.expect(200).header("cache-control").to_owned();
        assert!(caching.starts_with(expected), "{caching}");
    }
}

#[tokio::test]
async fn pages_for_operators_are_private_if_they_need_a_token() {
    for (operator_pages, expected) in [(OperatorPages::Open, "public"), (OperatorPages::Token, "private")] {
        let settings = Settings { operator_pages, ..Settings::default() };
        let (_, world) = servers(settings, public_domain()).await;
        let token = world.token(&[Right::Read], &["*"]).await;
        for (url, header) in
            [("/docs", BROWSER), ("/openapi.json", BROWSER), ("/openapi.json", ("if-none-match", "*"))]
        {
            let caching =
                world.ask(&token, "GET", url, &[header], "").await.header("cache-control").to_owned();
            assert!(caching.starts_with(expected), "{url}: {caching}");
        }
    }
}

#[tokio::test]
async fn refusals_are_not_stored() {
    let (_, world) = super::guarded().await;
    let token = world.token(&[Right::Write], &["enwiki"]).await;
    for (token, status) in [("", 401), ("Bearer x", 401), (&token, 403)] {
        for url in [format!("{}?rev/latest/html", page_of("enwiki")), "/pages/enwiki/".to_owned()] {
            let answer = world.ask(token, "GET", &url, &[BROWSER], "").await;
            assert_eq!(
                (answer.status.as_u16(), answer.header("cache-control")),
                (status, "no-store"),
                "{url}"
            );
        }
    }
}
