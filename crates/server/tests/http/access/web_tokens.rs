//! JSON Web Tokens through HTTP. The tests in `src/access` check each claim and each key.

use rashomon_server::Settings;
use rashomon_server::access::{
    AnonymousRights,
    signer::{Signer, key_set},
};
use serde_json::{Value, json};

use crate::world::{PAGE, World};

/// One hour after `world::NOW` (2024-01-01T00:00:00Z), the start of the test's clock, in seconds since 1970.
const ONE_HOUR_AFTER_NOW: i64 = 1_704_070_800;

/// A time before `world::NOW`, in seconds since 1970.
const BEFORE_NOW: i64 = 1_704_000_000;

/// Claims for reading `enwiki`. They are valid until [`ONE_HOUR_AFTER_NOW`].
fn claims() -> Value {
    json!({"exp": ONE_HOUR_AFTER_NOW, "aud": "rashomon", "sub": "ann", "rights": ["read"], "domains": ["enwiki"]})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

async fn status(world: &World, method: &str, token: &str) -> u16 {
    let header = format!("Bearer {token}");
    let url = format!("{PAGE}?rev/");
    world.request(method, &url, &[("authorization", &header)], "").await.status.as_u16()
}

#[tokio::test]
async fn web_token_has_the_rights_of_its_claims() {
    let (ours, foreign) = (Signer::ec(), Signer::ec());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    std::fs::write(&file, key_set([ours.jwk_with_id("a")])).unwrap();
    let open_world = World::new().await;
    open_world.revision("_rev=1&html=x").await;
    let world = open_world.with_keys(Settings::default(), AnonymousRights::default(), Some(&file));
    let signed = |claims: &Value| ours.sign(Some("a"), claims);
    assert_eq!(status(&world, "GET", &signed(&claims())).await, 200);
    assert_eq!(status(&world, "POST", &signed(&claims())).await, 403);
    assert_eq!(status(&world, "GET", &signed(&with("domains", json!(["dewiki"])))).await, 403);
    assert_eq!(status(&world, "GET", &signed(&with("rights", json!([])))).await, 403);
    for (case, refused) in [
        ("expired", signed(&with("exp", json!(BEFORE_NOW)))),
        ("without a time of expiry", signed(&with("exp", Value::Null))),
        ("for another audience", signed(&with("aud", json!("other")))),
        ("with a malformed pattern of domains", signed(&with("domains", json!(["*wiki"])))),
        ("too long", signed(&with("padding", json!("x".repeat(8 << 10))))),
        ("signed with a foreign key", foreign.sign(Some("a"), &claims())),
        ("with a URL as the key id", ours.sign(Some("https://evil.example/jwks.json"), &claims())),
        ("with a path as the key id", ours.sign(Some("../../jwks.json"), &claims())),
        ("with the algorithm none", ours.sign_with_header(&json!({"alg": "none", "kid": "a"}), &claims())),
        ("with the algorithm HS256", ours.sign_with_header(&json!({"alg": "HS256", "kid": "a"}), &claims())),
    ] {
        assert_eq!(status(&world, "GET", &refused).await, 401, "{case}");
    }
}

/// A client gets a new token of the same subject from time to time, and repeats its increments with it.
#[tokio::test]
async fn idempotency_key_belongs_to_the_subject_of_web_tokens() {
    let ours = Signer::ec();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    std::fs::write(&file, key_set([ours.jwk_with_id("a")])).unwrap();
    let open = World::new().await;
    let json_type = ("content-type", "application/json");
    open.request("PUT", "/v1/enwiki/clicks", &[json_type], r#"{"type": "counter"}"#).await.expect(201);
    let world = open.with_keys(Settings::default(), AnonymousRights::default(), Some(&file));
    let token = |subject: &str, exp: i64| {
        let claims = json!({
            "exp": exp, "aud": "rashomon", "sub": subject, "rights": ["read", "write"], "domains": ["enwiki"],
        });
        format!("Bearer {}", ours.sign(Some("a"), &claims))
    };
    let [ann, bob, first, second] = ["ann", "bob", "", ""].map(|subject| token(subject, ONE_HOUR_AFTER_NOW));
    let new_of_ann = token("ann", ONE_HOUR_AFTER_NOW - 60);
    // Tokens without a subject are callers of their own.
    for (token, expected) in [(&ann, 1), (&bob, 2), (&new_of_ann, 1), (&first, 3), (&second, 4), (&first, 3)]
    {
        let headers = [json_type, ("authorization", &token[..]), ("idempotency-key", "order-1")];
        let counted = world.request("POST", "/v1/enwiki/clicks/a", &headers, "{}").await.expect(200);
        assert_eq!(counted.json()["value"], expected);
    }
}
