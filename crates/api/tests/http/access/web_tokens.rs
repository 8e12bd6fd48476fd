//! JSON Web Tokens through HTTP. Tests of the crate `access` check each claim and each key.

use rashomon_access::{
    AnonymousRights,
    signer::{Signer, key_set},
};
use rashomon_api::Settings;
use serde_json::{Value, json};

use crate::world::{PAGE, World};

/// Claims that are valid at the time of the test, for reading `enwiki`.
fn claims() -> Value {
    json!({"exp": 1_704_070_800, "aud": "rashomon", "sub": "ann", "rights": ["read"], "domains": ["enwiki"]})
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
    let open = World::new().await;
    open.revision("_rev=1&html=x").await;
    let world = open.with_keys(Settings::default(), AnonymousRights::default(), Some(&file));
    let signed = |claims: &Value| ours.sign(Some("a"), claims);
    assert_eq!(status(&world, "GET", &signed(&claims())).await, 200);
    assert_eq!(status(&world, "POST", &signed(&claims())).await, 403);
    assert_eq!(status(&world, "GET", &signed(&with("domains", json!(["dewiki"])))).await, 403);
    assert_eq!(status(&world, "GET", &signed(&with("rights", json!([])))).await, 403);
    for refused in [
        signed(&with("exp", json!(1_704_000_000))),
        signed(&with("exp", Value::Null)),
        signed(&with("aud", json!("other"))),
        signed(&with("domains", json!(["*wiki"]))),
        signed(&with("padding", json!("x".repeat(8 << 10)))),
        foreign.sign(Some("a"), &claims()),
        ours.sign(Some("https://evil.example/jwks.json"), &claims()),
        ours.sign(Some("../../jwks.json"), &claims()),
        ours.sign_with_header(&json!({"alg": "none", "kid": "a"}), &claims()),
        ours.sign_with_header(&json!({"alg": "HS256", "kid": "a"}), &claims()),
    ] {
        assert_eq!(status(&world, "GET", &refused).await, 401, "{refused:.60}");
    }
}
