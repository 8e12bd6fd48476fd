//! Tests that requests in a batch have the same rights as single requests.

use rashomon_server::Settings;
use rashomon_server::access::{AnonymousRights, Grant, NewToken, Right};
use serde_json::{Value, json};

use super::{get, options, problem, statuses, write};
use crate::world::{PAGE, World};

/// A token for the header `Authorization`.
async fn token(world: &World, rights: &[Right], domain: &str) -> String {
    let grant = Grant {
        rights: rights.iter().copied().collect(),
        domains: [domain.parse().unwrap()].into(),
        buckets: None,
    };
    let token = world.access.create_token(NewToken { grant, expires_at: None, note: None }).await.unwrap();
    format!("Bearer {}", token.reveal())
}

#[tokio::test]
async fn rights_of_the_caller_hold_for_each_request() {
    let open = World::new().await;
    open.revision("_rev=1&html=one").await;
    let world = open.with_access(Settings::default(), AnonymousRights::default());
    let before = world.dump().await;
    let elements = json!([
        get(&format!("{PAGE}?rev/latest/html")),
        write(PAGE, 2, "two"),
        get("/v1/dewiki/page/A?rev/latest/html"),
        get("/v1/tokens"),
        get("/healthz"),
        7,
    ]);
    let read = token(&world, &[Right::Read], "enwiki").await;
    let with_token = world.dump().await;
    let none: Vec<(&str, &str)> = Vec::new();
    for (headers, expected) in [
        (none, [401, 401, 401, 404, 404, 400]),
        (vec![("authorization", read.as_str())], [200, 403, 403, 404, 404, 400]),
    ] {
        let answer = world.batch_with(&headers, &elements.to_string()).await.expect(200);
        let Value::Array(answers) = answer.json() else { panic!("{answer:?}") };
        assert_eq!(statuses(&answers), expected);
    }
    let wrong = format!("Bearer rashomon_{}_{}", "0".repeat(20), "0".repeat(64));
    world.batch_with(&[("authorization", &wrong)], &elements.to_string()).await.expect(401);
    assert_ne!(before, with_token);
    let page = |dump: &std::collections::BTreeMap<String, String>| {
        dump.iter()
            .filter(|(key, _)| !key.starts_with("tokens"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(page(&world.dump().await), page(&with_token));
}

#[tokio::test]
async fn batch_of_another_site_changes_nothing() {
    let settings = Settings { origins: ["https://trusted.example".to_owned()].into(), ..Settings::default() };
    let world = World::with(settings).await;
    let before = world.dump().await;
    let body = json!([write(PAGE, 1, "one")]).to_string();
    for headers in [
        &[("origin", "https://evil.example")][..],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "null")],
        &[("origin", "https://trusted.example"), ("origin", "https://evil.example")],
    ] {
        let refused = world.batch_with(headers, &body).await.expect(403);
        assert_eq!(refused.json()["type"], "urn:rashomon:problem:cross-site");
    }
    assert_eq!(world.dump().await, before);
    let own = [("origin", "http://localhost"), ("sec-fetch-site", "same-origin")];
    let trusted = [("origin", "https://trusted.example"), ("sec-fetch-site", "cross-site")];
    for (rev, headers) in [(1, own), (2, trusted)] {
        let body = json!([write(PAGE, rev, "x")]).to_string();
        let answer = world.batch_with(&headers, &body).await.expect(200).json();
        assert_eq!(answer[0]["status"], 201, "{answer}");
        let expected = if rev == 2 { json!("https://trusted.example") } else { Value::Null };
        assert_eq!(
            answer[0]["headers"]["access-control-allow-origin"], expected,
            "the origin is that of the batch"
        );
    }
}

#[tokio::test]
async fn host_of_the_batch_selects_the_domain() {
    let world = World::new().await;
    world.revision("_rev=1&html=one").await;
    let body = json!([get("/wiki/Main_Page?rev/latest/html")]).to_string();
    for (host, status) in [("en.example.org", 200), ("localhost", 404)] {
        let answer = world.batch_with(&[("host", host)], &body).await.expect(200).json();
        assert_eq!(answer[0]["status"], status, "{host}: {answer}");
    }
    // A host in the URL takes precedence.
    let headers = [("host", "localhost"), super::JSON];
    let answer =
        world.request("POST", "http://en.example.org/v1/batch", &headers, body).await.expect(200).json();
    assert_eq!(answer[0]["status"], 200, "{answer}");
}

#[tokio::test]
async fn read_only_server_refuses_the_writes_of_a_batch() {
    let world = World::with(Settings { read_only: true, ..Settings::default() }).await;
    let answers = world.batch(&[write(PAGE, 1, "one"), options()]).await;
    assert_eq!(statuses(&answers), [403, 204]);
    assert!(problem(&answers[0])["detail"].as_str().unwrap().contains("read_only"));
}
