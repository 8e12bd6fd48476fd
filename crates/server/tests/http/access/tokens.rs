//! Tests of `/v1/tokens`: requests that make, list and revoke tokens.

use std::time::Duration;

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Right};
use rashomon_tables::{Plan, Rates};
use serde_json::{Value, json};

use super::{JSON, TOKEN_REQUEST, guarded, servers};
use crate::world::{Answer, PAGE, World};

async fn make(world: &World, admin: &str, request: &Value) -> Answer {
    world.ask(admin, "POST", "/v1/tokens", &[JSON], &request.to_string()).await
}

async fn list(world: &World, admin: &str, query: &str) -> Value {
    world.ask(admin, "GET", &format!("/v1/tokens{query}"), &[], "").await.expect(200).json()
}

#[tokio::test]
async fn made_token_is_accepted_and_listed_until_it_is_revoked() {
    let (_, world) = guarded().await;
    let admin = world.token(&[Right::Admin], &["*"]).await;
    let request = json!({
        "rights": ["write", "read"], "domains": ["en*"], "buckets": ["page"], "expires": "90d", "note": "Ann's bot",
    });
    let made = make(&world, &admin, &request).await.expect(201);
    assert_eq!(made.header("cache-control"), "no-store");
    assert_eq!(made.header("content-type"), "application/json; profile=\"urn:rashomon:new-token/1.0\"");
    let (id, text) = (made.json()["id"].clone(), made.json()["token"].as_str().unwrap().to_owned());
    let token = format!("Bearer {text}");
    world.post_as(&token, &format!("{PAGE}?rev/"), "_rev=1&html=x").await.expect(201);
    world.ask(&token, "GET", &format!("{PAGE}?rev/"), &[], "").await.expect(200);
    world.access.maintain().await;

    let listed = world.ask(&admin, "GET", "/v1/tokens", &[], "").await.expect(200);
    assert_eq!(listed.header("cache-control"), "no-store");
    assert!(!listed.text().contains(text.rsplit_once('_').unwrap().1), "{}", listed.text());
    let listed =
        listed.json()["tokens"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone();
    assert_eq!(
        listed,
        json!({
            "id": id, "rights": ["read", "write"], "domains": ["en*"], "buckets": ["page"], "note": "Ann's bot",
            "created": "2024-01-01T00:00:00Z", "expires": "2024-03-31T00:00:00Z", "last_used": "2024-01-01T00:00:00Z",
        })
    );
    let url = format!("/v1/tokens/{}", id.as_str().unwrap());
    let revoked = world.ask(&admin, "DELETE", &url, &[], "").await.expect(204);
    assert!(revoked.body.is_empty());
    world.ask(&token, "GET", &format!("{PAGE}?rev/"), &[], "").await.expect(401);
    assert_eq!(list(&world, &admin, "").await["tokens"].as_array().unwrap().len(), 1);
    world.ask(&admin, "DELETE", &url, &[], "").await.expect(404);
}

#[tokio::test]
async fn other_servers_of_the_store_refuse_a_revoked_token_within_five_seconds() {
    let open = World::of_several_servers().await;
    let guarded = || open.with_access(Settings::default(), super::public_domain());
    let (world, other) = (guarded(), guarded());
    let admin = world.token(&[Right::Admin], &["*"]).await;
    let token = world.token(&[Right::Read], &["enwiki"]).await;
    let url = format!("{PAGE}?rev/");
    other.ask(&token, "GET", &url, &[], "").await.expect(404);
    world.ask(&token, "GET", &url, &[], "").await.expect(404);
    let id = token.split('_').nth(1).unwrap();
    world.ask(&admin, "DELETE", &format!("/v1/tokens/{id}"), &[], "").await.expect(204);
    world.ask(&token, "GET", &url, &[], "").await.expect(401);
    // The other server is asked all the time, so that the token never leaves its memory.
    let mut seconds = 0;
    while other.ask(&token, "GET", &url, &[], "").await.status.as_u16() != 401 {
        assert!(seconds < 5, "the revoked token is still accepted");
        other.clock.advance(Duration::from_secs(1));
        seconds += 1;
    }
}

#[tokio::test]
async fn list_continues_after_an_id() {
    let (_, world) = guarded().await;
    let admin = world.token(&[Right::Admin], &["*"]).await;
    let mut ids = vec![admin.split('_').nth(1).unwrap().to_owned()];
    for _ in 0..6 {
        world.clock.advance(Duration::from_secs(1));
        ids.push(make(&world, &admin, &json!({"rights": ["read"], "domains": ["*"]})).await.expect(201).json()
            ["id"]
            .as_str()
            .unwrap()
            .to_owned());
    }
    let of = |list: &Value| -> Vec<String> {
        let tokens = list["tokens"].as_array().unwrap().iter();
        tokens.map(|token| token["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = list(&world, &admin, "").await;
    assert_eq!(of(&all), ids);
    assert_eq!(all.get("next"), None);
    let (mut found, mut query, mut pages) = (Vec::new(), "?limit=3".to_owned(), 0);
    loop {
        let page = list(&world, &admin, &query).await;
        assert!(of(&page).len() <= 3);
        found.extend(of(&page));
        pages += 1;
        assert!(pages < 10, "the list does not end");
        match page["next"].as_str() {
            Some(next) => query = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((found, pages), (ids.clone(), 3));
    assert_eq!(of(&list(&world, &admin, &format!("?after={}", ids[4])).await), ids[5..]);
    let after = format!("?limit=1&after={}", "f".repeat(20));
    assert_eq!(list(&world, &admin, &after).await, json!({"tokens": []}));
    for bad in ["?limit=0", "?limit=501", "?limit=x", "?limit=", "?after=x", "?after=", "?page=1", "?x"] {
        world.ask(&admin, "GET", &format!("/v1/tokens{bad}"), &[], "").await.expect(400);
    }
    world.ask(&admin, "GET", "/v1/tokens?limit=500", &[], "").await.expect(200);
}

#[tokio::test]
async fn bad_requests_for_a_token_are_refused() {
    let (_, world) = guarded().await;
    let admin = world.token(&[Right::Admin], &["*"]).await;
    let before = world.dump().await;
    let with = |member: &str, value: Value| {
        let mut request: Value = serde_json::from_str(TOKEN_REQUEST).unwrap();
        request[member] = value;
        request.to_string()
    };
    let large = with("note", "x".repeat(64 << 10).into());
    for (content_type, body, status, part) in [
        (JSON.1, String::new(), 400, "JSON object"),
        (JSON.1, "{".to_owned(), 400, "request for a token"),
        (JSON.1, "\u{0}".to_owned(), 400, "JSON object"),
        (JSON.1, "[]".to_owned(), 400, "JSON object"),
        (JSON.1, "null".to_owned(), 400, "JSON object"),
        (JSON.1, "{}".to_owned(), 400, "rights"),
        (JSON.1, r#"{"rights": ["read"]}"#.to_owned(), 400, "domains"),
        (JSON.1, with("rights", "read".into()), 400, "sequence"),
        (JSON.1, with("domains", json!([1])), 400, "string"),
        (JSON.1, with("expires", json!(90)), 400, "string"),
        (JSON.1, with("expires", Value::Null), 400, "string"),
        (JSON.1, with("note", Value::Null), 400, "string"),
        (JSON.1, with("buckets", Value::Null), 400, "sequence"),
        (JSON.1, with("bucket", json!(["page"])), 400, "bucket"),
        (JSON.1, with("id", "x".into()), 400, "unknown"),
        (JSON.1, format!("{TOKEN_REQUEST}{TOKEN_REQUEST}"), 400, "trailing"),
        (
            JSON.1,
            r#"{"rights": ["read"], "rights": ["admin"], "domains": ["*"]}"#.to_owned(),
            400,
            "duplicate",
        ),
        (JSON.1, with("rights", json!([])), 422, "rights: "),
        (JSON.1, with("rights", json!(["reed"])), 422, "rights: "),
        (JSON.1, with("domains", json!([])), 422, "domains: "),
        (JSON.1, with("domains", json!(["*wiki"])), 422, "domains: "),
        (JSON.1, with("domains", json!(vec!["a"; 101])), 422, "domains: "),
        (JSON.1, with("buckets", json!([])), 422, "buckets: "),
        (JSON.1, with("expires", "yesterday".into()), 422, "expires: "),
        (JSON.1, with("expires", "2020-01-01T00:00:00Z".into()), 422, "expires: "),
        (JSON.1, with("note", "a\nb".into()), 422, "note: "),
        (JSON.1, with("note", "x".repeat(1025).into()), 422, "note: "),
        (JSON.1, large, 413, "65536"),
        ("text/plain", TOKEN_REQUEST.to_owned(), 415, "application/json"),
        ("application/x-www-form-urlencoded", "rights=read".to_owned(), 415, "application/json"),
        ("", TOKEN_REQUEST.to_owned(), 415, "application/json"),
    ] {
        let headers = [("content-type", content_type)];
        let answer = world.ask(&admin, "POST", "/v1/tokens", &headers, &body).await.expect(status);
        assert!(answer.text().contains(part), "{body:.100}: {}", answer.text());
    }
    let encoded = [JSON, ("content-encoding", "gzip")];
    world.ask(&admin, "POST", "/v1/tokens", &encoded, TOKEN_REQUEST).await.expect(415);
    world.ask(&admin, "POST", "/v1/tokens?x", &[JSON], TOKEN_REQUEST).await.expect(400);
    for id in ["x", "0", &"0".repeat(21), &"G".repeat(20), "..", "%2e%2e"] {
        world.ask(&admin, "DELETE", &format!("/v1/tokens/{id}"), &[], "").await.expect(400);
    }
    let id = admin.split('_').nth(1).unwrap();
    world.ask(&admin, "DELETE", &format!("/v1/tokens/{id}?x"), &[], "").await.expect(400);
    assert_eq!(world.dump().await, before);
    let parameters = [("content-type", "Application/JSON; charset=utf-8")];
    world.ask(&admin, "POST", "/v1/tokens", &parameters, TOKEN_REQUEST).await.expect(201);
}

#[tokio::test]
async fn tokens_need_admin_on_everything() {
    let (_, world) = servers(Settings::default(), AnonymousRights::default()).await;
    let not_admin = [Right::Read, Right::Write, Right::Import, Right::Rewrite];
    let victim = world.token(&[Right::Read], &["*"]).await;
    let id = victim.split('_').nth(1).unwrap();
    let others = [
        String::new(),
        world.token(&not_admin, &["*"]).await,
        world.token(&Right::ALL, &["enwiki", "e*"]).await,
        world.token_of(super::grant(&Right::ALL, &["*"], Some(&["page"])), None).await,
    ];
    let before = world.dump().await;
    for token in others {
        let status = if token.is_empty() { 401 } else { 403 };
        world.ask(&token, "GET", "/v1/tokens", &[], "").await.expect(status);
        // The query and the body are not examined.
        world.ask(&token, "GET", "/v1/tokens?x", &[], "").await.expect(status);
        world.ask(&token, "POST", "/v1/tokens", &[JSON], TOKEN_REQUEST).await.expect(status);
        world.ask(&token, "POST", "/v1/tokens", &[], "{").await.expect(status);
        let refused = world.ask(&token, "DELETE", &format!("/v1/tokens/{id}"), &[], "").await.expect(status);
        let missing = world.ask(&token, "DELETE", &format!("/v1/tokens/{}", "0".repeat(20)), &[], "").await;
        assert_eq!(super::comparable(refused, true), super::comparable(missing, true));
    }
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn read_only_server_refuses_to_make_and_revoke_tokens() {
    let settings = Settings { read_only: true, ..Settings::default() };
    let (_, world) = servers(settings, AnonymousRights::default()).await;
    let admin = world.token(&[Right::Admin], &["*"]).await;
    let id = admin.split('_').nth(1).unwrap();
    let before = world.dump().await;
    for answer in [
        world.ask(&admin, "POST", "/v1/tokens", &[JSON], TOKEN_REQUEST).await,
        world.ask(&admin, "DELETE", &format!("/v1/tokens/{id}"), &[], "").await,
    ] {
        assert!(answer.expect(403).text().contains("read_only"));
    }
    assert_eq!(world.dump().await, before);
    world.ask(&admin, "GET", "/v1/tokens", &[], "").await.expect(200);
}

#[tokio::test]
async fn failing_store_is_reported() {
    let open = World::new().await;
    open.store.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
    let url = format!("/v1/tokens/{}", "0".repeat(20));
    for answer in [
        open.ask("", "GET", "/v1/tokens", &[], "").await,
        open.ask("", "POST", "/v1/tokens", &[JSON], TOKEN_REQUEST).await,
        open.ask("", "DELETE", &url, &[], "").await,
    ] {
        answer.expect(503);
    }
}
