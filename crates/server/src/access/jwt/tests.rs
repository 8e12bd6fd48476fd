use aws_lc_rs::hmac;
use rashomon_records::{BucketName, DomainName};
use serde_json::{Value, json};

use super::*;
use crate::access::{
    Right,
    signer::{Signer, base64, key_set},
};

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// Claims that are valid for ten minutes.
fn claims() -> Value {
    json!({"exp": NOW + 600, "aud": "rashomon", "sub": "ann", "rights": ["read"], "domains": ["en*"]})
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => claims.as_object_mut().unwrap().remove(name),
            value => claims.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    claims
}

fn set(keys: impl IntoIterator<Item = Value>) -> KeySet {
    KeySet::parse(key_set(keys).as_bytes()).unwrap()
}

fn verify(keys: &KeySet, token: &str) -> Result<VerifiedToken, JwtError> {
    keys.verify(token, "rashomon", at(NOW))
}

#[test]
fn signatures_of_all_kinds_of_keys_are_verified() {
    let signers = [Signer::ec(), Signer::rsa(), Signer::ed()];
    let keys = set(signers.iter().map(|signer| signer.jwk_with_id(signer.algorithm())));
    for signer in &signers {
        let token = signer.sign(Some(signer.algorithm()), &claims());
        let verified = verify(&keys, &token).unwrap();
        let (enwiki, page) = (DomainName::new("enwiki").unwrap(), BucketName::page());
        assert!(verified.grant.allows(Right::Read, &enwiki, &page));
        assert!(!verified.grant.allows(Right::Write, &enwiki, &page));
        assert_eq!(verified.subject.as_deref(), Some("ann"));
        assert_eq!(verified.valid_until, at(NOW + 660));
        // A change of any part makes the signature wrong.
        let other = signer.sign(Some(signer.algorithm()), &with(json!({"sub": "bob"})));
        let (message, _) = token.rsplit_once('.').unwrap();
        let (_, signature) = other.rsplit_once('.').unwrap();
        assert_eq!(verify(&keys, &format!("{message}.{signature}")), Err(JwtError::Signature));
    }
}

#[test]
fn unsigned_tokens_are_refused() {
    let signer = Signer::ec();
    let keys = set([signer.jwk()]);
    for algorithm in ["none", "None", "NONE", "", "HS0"] {
        let header = base64(json!({"alg": algorithm, "typ": "JWT"}).to_string());
        for signature in ["", "AAAA"] {
            let token = format!("{header}.{}.{signature}", base64(claims().to_string()));
            assert_eq!(verify(&keys, &token), Err(JwtError::Unreadable), "{algorithm}");
        }
    }
}

#[test]
fn public_key_is_not_accepted_as_hmac_secret() {
    let signer = Signer::rsa();
    let jwk = signer.jwk_with_id("a");
    let keys = set([jwk.clone()]);
    for secret in [jwk.to_string(), jwk["n"].as_str().unwrap().to_owned(), key_set([jwk.clone()])] {
        let header = json!({"alg": "HS256", "kid": "a"});
        let message = format!("{}.{}", base64(header.to_string()), base64(claims().to_string()));
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let token = format!("{message}.{}", base64(hmac::sign(&key, message.as_bytes())));
        assert_eq!(verify(&keys, &token), Err(JwtError::Algorithm));
    }
    let symmetric = json!({"kty": "oct", "k": base64("secret"), "alg": "HS256", "kid": "a"});
    let error = KeySet::parse(key_set([symmetric]).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("symmetric"), "{error}");
}

#[test]
fn algorithm_must_be_one_of_the_key() {
    let signer = Signer::rsa();
    let mut jwk = signer.jwk_with_id("a");
    jwk["alg"] = "PS256".into();
    assert_eq!(verify(&set([jwk.clone()]), &signer.sign(Some("a"), &claims())), Err(JwtError::Algorithm));
    jwk["alg"] = "RS256".into();
    assert!(verify(&set([jwk]), &signer.sign(Some("a"), &claims())).is_ok());
    // A token that names the key of another kind of algorithm.
    let ec = Signer::ec();
    let keys = set([signer.jwk_with_id("rsa"), ec.jwk_with_id("ec")]);
    assert_eq!(verify(&keys, &ec.sign(Some("rsa"), &claims())), Err(JwtError::Algorithm));
}

#[test]
fn only_keys_of_the_set_verify_tokens() {
    let (ours, foreign) = (Signer::ec(), Signer::ec());
    let keys = set([ours.jwk_with_id("a")]);
    assert_eq!(verify(&keys, &foreign.sign(Some("a"), &claims())), Err(JwtError::Signature));
    for id in ["b", "", "../../etc/passwd", "https://evil.example/jwks.json", "a\0", &"a".repeat(3000)] {
        assert_eq!(verify(&keys, &ours.sign(Some(id), &claims())), Err(JwtError::UnknownKey), "{id:.50}");
    }
    // Keys and addresses in the header of a token are ignored.
    let header = json!({
        "alg": "ES256", "kid": "a", "jwk": foreign.jwk(), "jku": "https://evil.example/jwks.json",
        "x5u": "https://evil.example/a.pem",
    });
    assert_eq!(verify(&keys, &foreign.sign_with_header(&header, &claims())), Err(JwtError::Signature));
    let critical = json!({"alg": "ES256", "kid": "a", "crit": ["exp"]});
    assert_eq!(verify(&keys, &ours.sign_with_header(&critical, &claims())), Err(JwtError::Critical));
}

#[test]
fn token_without_key_id_needs_a_single_key_of_its_algorithm() {
    let (ec, rsa) = (Signer::ec(), Signer::rsa());
    let token = ec.sign(None, &claims());
    assert!(verify(&set([ec.jwk_with_id("a"), rsa.jwk_with_id("b")]), &token).is_ok());
    assert_eq!(verify(&set([ec.jwk_with_id("a"), Signer::ec().jwk()]), &token), Err(JwtError::NoKeyId));
    assert_eq!(verify(&set([rsa.jwk()]), &token), Err(JwtError::Algorithm));
}

#[test]
fn claims_of_time_and_audience_are_checked() {
    let signer = Signer::ec();
    let keys = set([signer.jwk()]);
    let check = |changes: Value| verify(&keys, &signer.sign(None, &with(changes))).map(drop);
    for (changes, expected) in [
        (json!({}), Ok(())),
        (json!({"exp": null}), Err(JwtError::NoExpiry)),
        (json!({"exp": "soon"}), Err(JwtError::Unreadable)),
        (json!({"exp": NOW}), Ok(())),
        // The clocks may differ by 60 s.
        (json!({"exp": NOW - 59}), Ok(())),
        (json!({"exp": NOW - 60}), Err(JwtError::Expired)),
        (json!({"exp": -1}), Err(JwtError::Expired)),
        (json!({"exp": 1e300}), Ok(())),
        (json!({"exp": NOW as f64 + 0.5}), Ok(())),
        (json!({"nbf": NOW + 60}), Ok(())),
        (json!({"nbf": NOW + 61}), Err(JwtError::NotYet)),
        (json!({"aud": null}), Err(JwtError::Audience)),
        (json!({"aud": "other"}), Err(JwtError::Audience)),
        (json!({"aud": "Rashomon"}), Err(JwtError::Audience)),
        (json!({"aud": []}), Err(JwtError::Audience)),
        (json!({"aud": ["other", "rashomon"]}), Ok(())),
    ] {
        assert_eq!(check(changes.clone()), expected, "{changes}");
    }
}

#[test]
fn claims_of_rights_are_read_strictly() {
    let signer = Signer::ec();
    let keys = set([signer.jwk()]);
    let check = |changes: Value| verify(&keys, &signer.sign(None, &with(changes)));
    for bad in [
        json!({"rights": ["reed"]}),
        json!({"rights": ["*"]}),
        json!({"rights": "read"}),
        json!({"domains": ["*wiki"]}),
        json!({"domains": "*"}),
        json!({"domains": ["**"]}),
        json!({"buckets": ["a*b"]}),
        json!({"domains": vec!["en"; MAX_PATTERNS + 1]}),
        json!({"sub": "x".repeat(MAX_SUBJECT_BYTES + 1)}),
    ] {
        assert_eq!(check(bad.clone()), Err(JwtError::Claims), "{bad}");
    }
    let (enwiki, page) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    for without in [json!({"rights": null}), json!({"domains": null}), json!({"buckets": []})] {
        let grant = check(without.clone()).unwrap().grant;
        assert!(Right::ALL.iter().all(|right| !grant.allows(*right, &enwiki, &page)), "{without}");
    }
    // Other claims do not matter.
    assert!(check(json!({"scope": "x", "roles": [1, 2, 3], "iat": "yesterday"})).is_ok());
}

#[test]
fn null_is_not_an_absent_list_of_buckets() {
    let signer = Signer::ec();
    let keys = set([signer.jwk()]);
    let mut claims = claims();
    claims["buckets"] = Value::Null;
    assert_eq!(verify(&keys, &signer.sign(None, &claims)), Err(JwtError::Claims));
}

#[test]
fn set_without_usable_keys_makes_every_token_invalid() {
    let token = Signer::ec().sign(None, &claims());
    let short = json!({"kty": "RSA", "n": base64([0xff; 128]), "e": "AQAB"});
    for keys in [vec![], vec![json!({"kty": "XX"})], vec![short]] {
        let keys = set(keys);
        assert_eq!((keys.len(), verify(&keys, &token)), (0, Err(JwtError::Algorithm)));
    }
}

#[test]
fn other_texts_are_no_tokens() {
    let signer = Signer::ec();
    let keys = set([signer.jwk()]);
    let token = signer.sign(None, &claims());
    for bad in ["", ".", "..", "a.b.c", "....", &token[1..], &format!("{token}.x"), &token.replace('.', "")] {
        assert_eq!(verify(&keys, bad), Err(JwtError::Unreadable), "{bad:.30}");
    }
}

#[test]
fn key_set_says_what_is_wrong_with_it() {
    for (text, part) in [
        ("", "RFC 7517"),
        ("{}", "keys"),
        ("[]", "RFC 7517"),
        (r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "!", "y": ""}]}"#, "key 1 cannot be read"),
    ] {
        let error = KeySet::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let key = Signer::ec().jwk();
    let error = KeySet::parse(key_set(vec![key.clone(); MAX_KEYS + 1]).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("at most 1000"), "{error}");
    // Keys for encryption and keys of unknown kinds are left out.
    let mut encrypts = key.clone();
    encrypts["use"] = "enc".into();
    assert_eq!(set([json!({"kty": "XX"}), encrypts, key]).len(), 1);
}
