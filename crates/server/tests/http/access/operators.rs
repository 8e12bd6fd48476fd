//! Access to `OPTIONS`, to preflights, and to the pages for operators.

use rashomon_server::access::{AnonymousRights, Right, Rights};
use rashomon_server::{OperatorPages, Settings};

use super::{expect_challenge, servers};
use crate::world::PAGE;

const OPERATOR_PAGES: [&str; 3] = ["/metrics", "/docs", "/openapi.json"];

#[tokio::test]
async fn options_needs_no_token() {
    let (_, world) = servers(Settings::default(), AnonymousRights::default()).await;
    for (url, allow) in [
        (PAGE.to_owned(), "GET, HEAD, OPTIONS"),
        (format!("{PAGE}?rev/"), "GET, HEAD, POST, OPTIONS"),
        ("/v1/enwiki/import".to_owned(), "POST, OPTIONS"),
        ("/v1/tokens".to_owned(), "GET, HEAD, POST, OPTIONS"),
        (format!("/v1/tokens/{}", "0".repeat(20)), "DELETE, OPTIONS"),
        ("/pages/enwiki/".to_owned(), "GET, HEAD, OPTIONS"),
        ("/metrics".to_owned(), "GET, HEAD, OPTIONS"),
    ] {
        let answer = world.request("OPTIONS", &url, &[], "").await.expect(204);
        assert_eq!(answer.header("allow"), allow, "{url}");
    }
}

#[tokio::test]
async fn preflight_of_a_configured_origin_needs_no_token() {
    let settings = Settings { origins: ["https://trusted.example".to_owned()].into(), ..Settings::default() };
    let (_, world) = servers(settings, AnonymousRights::default()).await;
    let asked = [
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    for (origin, allowed) in [("https://trusted.example", true), ("https://evil.example", false)] {
        for url in [format!("{PAGE}?rev/"), "/v1/tokens".to_owned(), "/v1/enwiki/import".to_owned()] {
            let headers = [&asked[..], &[("origin", origin)]].concat();
            let answer = world.request("OPTIONS", &url, &headers, "").await.expect(204);
            let headers = answer.header("access-control-allow-headers");
            assert_eq!(headers.contains("authorization"), allowed, "{url} {origin}");
            assert_eq!(answer.header("access-control-allow-origin") == origin, allowed, "{url} {origin}");
        }
    }
    // The web page can read why its request was refused.
    let refused = world.get_with(&format!("{PAGE}?rev/"), &[("origin", "https://trusted.example")]).await;
    let refused = expect_challenge(refused);
    assert_eq!(refused.header("access-control-allow-origin"), "https://trusted.example");
    assert!(refused.header("access-control-expose-headers").contains("WWW-Authenticate"));
}

#[tokio::test]
async fn pages_for_operators_need_the_right_to_read_everything() {
    // A token is needed even if everybody may read everything.
    let everybody = AnonymousRights { everywhere: Rights::from_iter([Right::Read]), ..Default::default() };
    for anonymous in [AnonymousRights::default(), everybody] {
        let settings = Settings { operator_pages: OperatorPages::Token, ..Settings::default() };
        let (_, world) = servers(settings, anonymous).await;
        let read_all = world.token(&[Right::Read], &["*"]).await;
        let others = [
            world.token(&[Right::Read], &["enwiki"]).await,
            world.token(&[Right::Admin, Right::Write], &["*"]).await,
            world.token_of(super::grant(&[Right::Read], &["*"], Some(&["page"])), None).await,
        ];
        for url in OPERATOR_PAGES {
            for method in ["GET", "HEAD"] {
                let refused = world.request(method, url, &[], "").await;
                assert_eq!(refused.status.as_u16(), 401, "{method} {url}");
                assert_eq!(refused.header("www-authenticate"), "Bearer");
                let answer = world.ask(&read_all, method, url, &[], "").await;
                assert_eq!(answer.status.as_u16(), 200, "{method} {url}");
                for token in &others {
                    let answer = world.ask(token, method, url, &[], "").await;
                    assert_eq!(answer.status.as_u16(), 403, "{method} {url}");
                }
            }
        }
    }
}

#[tokio::test]
async fn pages_for_operators_are_open_by_default() {
    let (_, world) = servers(Settings::default(), AnonymousRights::default()).await;
    for url in OPERATOR_PAGES {
        world.get(url).await.expect(200);
    }
}

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    let settings = Settings { operator_pages: OperatorPages::Token, ..Settings::default() };
    let (_, world) = servers(settings, AnonymousRights::default()).await;
    let token = world.token(&[], &[]).await;
    for url in ["/healthz", "/readyz", "/assets/style.css", "/assets/icon.svg"] {
        for method in ["GET", "HEAD"] {
            world.request(method, url, &[], "").await.expect(200);
            world.ask(&token, method, url, &[], "").await.expect(200);
        }
    }
}
