//! Tests of the header `Authorization`, and of tokens in other places.

use rashomon_server::access::{AnonymousRights, Right};
use rashomon_server::{AccessLog, Settings};

use super::{comparable, expect_challenge, fill, guarded, page_of, servers};
use crate::{
    log::capture,
    world::{Answer, PAGE, World},
};

/// Checks that an answer says that the token is not valid.
#[track_caller]
fn expect_invalid(answer: Answer) -> Answer {
    let answer = answer.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Bearer error=\"invalid_token\"", "{answer:?}");
    answer
}

#[tokio::test]
async fn request_without_a_token_is_challenged() {
    let (_, world) = guarded().await;
    let answer = expect_challenge(world.get(&format!("{PAGE}?rev/latest/html")).await);
    for part in ["Authorization: Bearer TOKEN", "'read'", "'page'", "'enwiki'"] {
        assert!(answer.text().contains(part), "{part}: {}", answer.text());
    }
    let token = world.token(&[Right::Write], &["enwiki"]).await;
    let answer = world.ask(&token, "GET", &format!("{PAGE}?rev/latest/html"), &[], "").await.expect(403);
    assert_eq!(answer.json()["type"], "urn:rashomon:problem:forbidden");
    assert!(!answer.headers.contains_key("www-authenticate"), "{answer:?}");
    assert!(answer.text().contains("'read'"), "{}", answer.text());
}

#[tokio::test]
async fn token_that_is_not_valid_is_refused_where_everybody_may_read() {
    let (open, world) = guarded().await;
    fill(&open, super::PUBLIC).await;
    let url = format!("{}?rev/latest/html", page_of(super::PUBLIC));
    world.get(&url).await.expect(200);
    let wrong = format!("Bearer rashomon_{}_{}", "0".repeat(20), "0".repeat(64));
    for token in
        [&wrong, "Bearer abc", "Bearer eyJhbGciOiJub25lIn0.e30.", "Bearer", "Basic YTpi", "Bearer a b"]
    {
        expect_invalid(world.ask(token, "GET", &url, &[], "").await);
    }
    let valid = world.token(&[], &[]).await;
    world.ask(&valid, "GET", &url, &[], "").await.expect(200);
}

#[tokio::test]
async fn open_server_ignores_other_schemes_and_refuses_wrong_tokens() {
    let world = World::new().await;
    world.revision("_rev=1&html=one").await;
    let url = format!("{PAGE}?rev/latest/html");
    for other in ["Basic YTpi", "Digest x", "Negotiate x"] {
        world.ask(other, "GET", &url, &[], "").await.expect(200);
    }
    expect_invalid(world.ask("Bearer abc", "GET", &url, &[], "").await);
    let valid = world.token(&[Right::Read], &["enwiki"]).await;
    world.ask(&valid, "GET", &url, &[], "").await.expect(200);
}

#[tokio::test]
async fn repeated_header_is_refused() {
    let (open, world) = guarded().await;
    fill(&open, super::PUBLIC).await;
    let token = world.token(&Right::ALL, &["*"]).await;
    for world in [&open, &world] {
        for second in [token.as_str(), "Basic YTpi", ""] {
            let url = format!("{}?rev/latest/html", page_of(super::PUBLIC));
            let headers = [("authorization", token.as_str()), ("authorization", second)];
            let answer = world.get_with(&url, &headers).await.expect(400);
            assert!(answer.text().contains("several Authorization headers"), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn token_is_accepted_in_the_header_alone() {
    let (open, world) = guarded().await;
    fill(&open, "enwiki").await;
    let token = world.token(&[Right::Read], &["enwiki"]).await;
    let url = format!("{PAGE}?rev/latest/html");
    world.ask(&token, "GET", &url, &[], "").await.expect(200);
    for header in ["x-authorization", "proxy-authorization", "cookie", "x-api-key"] {
        expect_challenge(world.get_with(&url, &[(header, &token)]).await);
    }
}

#[tokio::test]
async fn expired_and_revoked_tokens_are_refused_alike() {
    let (_, world) = guarded().await;
    let second = std::time::Duration::from_secs(1);
    let expired = world.token_of(super::grant(&Right::ALL, &["*"], None), Some(second)).await;
    let url = format!("{PAGE}?rev/");
    world.ask(&expired, "GET", &url, &[], "").await.expect(404);
    world.clock.advance(second);
    let answer = expect_invalid(world.ask(&expired, "GET", &url, &[], "").await);
    assert!(answer.text().contains("expired"), "{}", answer.text());
    // Whether an id exists is not shown to those who do not have its secret.
    let secret = expired.rsplit_once('_').unwrap().1;
    let wrong = |token: &str| token.replace(secret, &"0".repeat(64));
    let known = expect_invalid(world.ask(&wrong(&expired), "GET", &url, &[], "").await);
    let id = expired.split('_').nth(1).unwrap();
    let unknown = wrong(&expired).replace(id, &"0".repeat(20));
    let unknown = expect_invalid(world.ask(&unknown, "GET", &url, &[], "").await);
    assert_eq!(comparable(known, false), comparable(unknown, false));
}

async fn logged() -> (World, World) {
    let settings = Settings { access_log: AccessLog::All, ..Settings::default() };
    servers(settings, AnonymousRights::default()).await
}

#[tokio::test]
async fn token_in_a_url_is_refused_and_appears_nowhere() {
    let (open, world) = logged().await;
    fill(&open, "enwiki").await;
    let token = world.token(&Right::ALL, &["*"]).await;
    let text = token.strip_prefix("Bearer ").unwrap();
    let secret = text.rsplit_once('_').unwrap().1;
    let (log, guard) = capture();
    for url in [
        format!("{PAGE}?access_token={text}"),
        format!("{PAGE}?rev/latest/html&access_token={text}"),
        format!("{PAGE}?rev/latest/html&token={text}"),
        format!("{PAGE}?{text}"),
        format!("{PAGE}?rev/latest/html&token=Bearer%20{text}"),
        format!("{PAGE}?%61ccess_token={secret}"),
        format!("/?after={text}"),
        format!("/v1/tokens?after={text}"),
        format!("/v1/tokens/{text}"),
        format!("/v1/tokens/{}", text.replace('_', "%5F")),
        format!("{PAGE}/{text}?rev/"),
        format!("/nowhere/{text}"),
        format!("/healthz?jwt={secret}"),
    ] {
        for method in ["GET", "DELETE", "OPTIONS"] {
            let answer = world.ask(&token, method, &url, &[], "").await.expect(400);
            assert!(answer.text().contains("a token in a URL"), "{}", answer.text());
            assert!(!format!("{} {:?}", answer.text(), answer.headers).contains(secret), "{answer:?}");
        }
    }
    // The token does not appear either if the request is refused for another reason first.
    let long = format!("{PAGE}?access_token={text}&x={}", "x".repeat(20_000));
    let answer = world.get(&long).await.expect(414);
    assert!(!answer.text().contains(secret), "{}", answer.text());
    let hosts = [("host", "a"), ("host", "b")];
    let answer = world.get_with(&format!("{PAGE}?access_token={text}"), &hosts).await.expect(400);
    assert!(!answer.text().contains(secret), "{}", answer.text());
    drop(guard);
    assert!(log.text().matches("request").count() > 20, "{}", log.text());
    assert!(!log.text().contains(secret), "{}", log.text());
}

#[tokio::test]
async fn token_in_the_header_is_not_logged() {
    let (open, world) = logged().await;
    fill(&open, "enwiki").await;
    let (log, guard) = capture();
    let valid = world.token(&[Right::Read], &["enwiki"]).await;
    let made = world.token(&Right::ALL, &["*"]).await;
    let made = world.ask(&made, "POST", "/v1/tokens", &[super::JSON], super::TOKEN_REQUEST).await.expect(201);
    let made = made.json()["token"].as_str().unwrap().to_owned();
    let wrong = format!("Bearer rashomon_{}_{}", "1".repeat(20), "2".repeat(64));
    world.ask(&valid, "GET", &format!("{PAGE}?rev/latest/html"), &[], "").await.expect(200);
    world.ask(&valid, "POST", &format!("{PAGE}?rev/"), &[], "").await.expect(403);
    for token in [&wrong, "Bearer secretsecret", "Basic secretsecret", "secretsecret"] {
        let answer = world.ask(token, "GET", &format!("{PAGE}?rev/latest/html"), &[], "").await.expect(401);
        let secret = token.rsplit_once(['_', ' ']).map_or(token, |(_, secret)| secret);
        assert!(!answer.text().contains(secret), "{}", answer.text());
    }
    drop(guard);
    let log = log.text();
    assert!(log.contains("token created"), "{log}");
    for token in [valid.as_str(), &wrong, &made] {
        assert!(!log.contains(token.rsplit_once('_').unwrap().1), "{log}");
    }
    assert!(!log.contains("secretsecret"), "{log}");
}

#[tokio::test]
async fn failed_lookup_of_a_token_is_not_reported_as_an_invalid_token() {
    use rashomon_tables::{Plan, Rates};
    let (open, world) = guarded().await;
    fill(&open, super::PUBLIC).await;
    let token = world.token(&[Right::Read], &["enwiki"]).await;
    world.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
    let url = format!("{PAGE}?rev/latest/html");
    for _ in 0..50 {
        let answer = world.ask(&token, "GET", &url, &[], "").await.expect(503);
        assert_eq!(answer.json()["type"], "urn:rashomon:problem:unavailable");
        assert!(!answer.header("retry-after").is_empty());
    }
    // These answers need no lookup of a token, so they do not need the store.
    expect_challenge(world.get(&url).await);
    world.get("/healthz").await.expect(200);
    world.store.set_plan(Plan::empty());
    world.ask(&token, "GET", &url, &[], "").await.expect(404);
}
