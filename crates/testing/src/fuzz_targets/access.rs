//! Tokens: in the header `Authorization` and in URLs, and JSON Web Tokens with their keys.

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::BodyExt;
use rashomon_clock::ManualClock;
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;
use rashomon_server::access::{
    Access, AccessOptions, AnonymousRights, DomainPattern, Grant, NewToken, Policy, Right, Rights,
    TokenStore, fuzzing,
};
use rashomon_server::{Api, Components, Registry, Settings};
use rashomon_tables::{Memory, TableStore};
use tower::ServiceExt;

use crate::fuzz_targets::http::{NOW, run};

/// The public keys of an issuer: for ES256, for RS256 and for EdDSA. The private keys no longer exist.
const KEYS: &[u8] = include_bytes!("access/keys.json");

/// A token for each of [`KEYS`], signed by the issuer. The tokens expire in 2100.
const SIGNED: &str = include_str!("access/tokens.txt");

/// The placeholder for the server's token in an input. The server makes a new token in each run.
const PLACEHOLDER: &[u8] = b"TOKEN";

/// Sends a request with any header `Authorization`, and another request to any URL. The bytes up to the first line feed
/// are the header, and the rest is the URL after its first slash. In both, `TOKEN` is replaced with a valid token.
///
/// # Panics
///
/// If the first request is served without the token in its header, or refused with the token, if the second request is
/// answered with a 5xx status, or if an answer repeats the token.
pub fn authorization(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (value, url) = input.split_at(end);
    run(async {
        let (api, token) = guarded_server().await;
        let value = replace(value, token.as_bytes());
        let url = replace(url.get(1..).unwrap_or_default(), token.as_bytes());
        if let Ok(header) = HeaderValue::from_bytes(&value) {
            let request =
                Request::get("/v1/enwiki/page/Main_Page?rev/").header(header::AUTHORIZATION, header);
            let (status, text) = send_and_read(&api, request).await;
            let expected = if is_bearer(&value, &token) { 404 } else { 401 };
            assert_eq!(status, expected, "{text}");
            check_hidden(&text, &token);
        }
        if let Ok(uri) = Uri::try_from([b"/", &*url].concat()) {
            let (status, text) = send_and_read(&api, Request::get(uri)).await;
            assert!(status < 500, "{text}");
            check_hidden(&text, &token);
        }
    });
}

/// Whether the value of a header is the scheme, at least one space, and the token.
fn is_bearer(value: &[u8], token: &str) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let text = text.trim_matches([' ', '\t']);
    let rest = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("bearer ")).map(|_| &text[7..]);
    rest.is_some_and(|rest| rest.trim_start_matches([' ', '\t']) == token)
}

/// Reads any bytes as a key set. If the bytes are a key set, verifies tokens with it.
///
/// # Panics
///
/// If reading the keys or verifying with them panics.
pub fn key_set(input: &[u8]) {
    for token in SIGNED.lines() {
        let _ = fuzzing::verify(input, token, NOW);
    }
}

/// Verifies any text as a JSON Web Token.
///
/// # Panics
///
/// If the token is accepted although the issuer has not signed it, or if a token of the issuer is refused.
pub fn web_token(input: &[u8]) {
    let Ok(token) = std::str::from_utf8(input) else { return };
    for token in [token, token.trim_end()] {
        let is_valid = fuzzing::verify(KEYS, token, NOW).expect("the keys can be read");
        // A signature has several forms, so only the signed part is compared.
        let message = |token: &str| token.rsplit_once('.').map(|(message, _)| message.to_owned());
        let is_signed = SIGNED.lines().any(|signed| message(signed) == message(token));
        assert!(is_signed || !is_valid, "{token}");
        assert!(is_valid || !SIGNED.lines().any(|signed| signed == token), "{token}");
    }
}

/// A server on which nobody may do anything without a token, and a token that may read.
async fn guarded_server() -> (Api, String) {
    let clock = Arc::new(ManualClock::new(NOW));
    let store: Arc<dyn TableStore> = Arc::new(Memory::new(clock.clone()));
    let settings = rashomon_pages::Settings::default();
    let buckets = RevisionStore::open(Arc::clone(&store), clock.clone(), settings, 7).await;
    let buckets = buckets.expect("a store in memory opens");
    let options = AccessOptions {
        policy: Policy::Anonymous(AnonymousRights::default()),
        jwks_file: None,
        audience: String::new(),
        stores_uses: false,
    };
    let tokens = TokenStore::new(store, clock.clone());
    let access = Arc::new(Access::new(options, tokens, clock.clone()).expect("there is no file of keys"));
    let grant = Grant {
        rights: Rights::from_iter([Right::Read]),
        domains: vec![DomainPattern::any()],
        buckets: None,
    };
    let new = NewToken { grant, expires_at: None, note: None };
    let token = access.create_token(new).await.expect("a store in memory does not fail");
    let token = token.reveal().to_owned();
    let registry = Registry::default();
    let key_value = KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default());
    let components = Components { buckets, key_value, access, clock, seed: 7, registry, audit_log: None };
    (Api::new(Settings::default(), components), token)
}

fn replace(input: &[u8], token: &[u8]) -> Vec<u8> {
    let (mut replaced, mut rest) = (Vec::new(), input);
    while let Some(place) = rest.windows(PLACEHOLDER.len()).position(|window| window == PLACEHOLDER) {
        replaced.extend_from_slice(&rest[..place]);
        replaced.extend_from_slice(token);
        rest = &rest[place + PLACEHOLDER.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// The status of an answer, and the text of its headers and its body.
async fn send_and_read(api: &Api, request: http::request::Builder) -> (u16, String) {
    let request = request.header(header::HOST, "localhost").body(Body::empty()).expect("the parts are valid");
    let answer = rashomon_server::router(api.clone()).oneshot(request).await.expect("a router has no errors");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.map_or_else(|_| Vec::new(), |body| body.to_bytes().to_vec());
    (head.status.as_u16(), format!("{:?} {}", head.headers, String::from_utf8_lossy(&body)))
}

/// Checks that an answer does not repeat the token.
fn check_hidden(text: &str, token: &str) {
    assert!(!text.contains(token), "{text}");
}
