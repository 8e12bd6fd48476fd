//! Issues JSON Web Tokens for tests and benchmarks. Builds and signs them without `jsonwebtoken`, which verifies them.
#![allow(clippy::unwrap_used, reason = "a test without keys cannot continue")]

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// A key pair of the issuer.
#[derive(Debug)]
pub enum Signer {
    /// A key pair for ES256.
    Ec(EcdsaKeyPair),
    /// A key pair for RS256.
    Rsa(RsaKeyPair),
    /// A key pair for EdDSA.
    Ed(Ed25519KeyPair),
}

/// Encodes a part of a token as base64url, without padding.
pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    /// Generates a key pair for ES256.
    #[must_use]
    pub fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    /// Generates a key pair for RS256.
    #[must_use]
    pub fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// Generates a key pair for EdDSA.
    #[must_use]
    pub fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    /// The public key as a JWK, without an id.
    #[must_use]
    pub fn jwk(&self) -> Value {
        match self {
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": base64(&point[1..33]), "y": base64(&point[33..])})
            }
            Self::Rsa(pair) => {
                let key = pair.public_key();
                let modulus = base64(key.modulus().big_endian_without_leading_zero());
                let exponent = base64(key.exponent().big_endian_without_leading_zero());
                json!({"kty": "RSA", "n": modulus, "e": exponent})
            }
            Self::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key().as_ref())})
            }
        }
    }

    /// The public key as a JWK, with an id.
    #[must_use]
    pub fn jwk_with_id(&self, id: &str) -> Value {
        let mut jwk = self.jwk();
        jwk["kid"] = id.into();
        jwk
    }

    /// The algorithm, as a header names it.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
            Self::Ed(_) => "EdDSA",
        }
    }

    /// Signs these claims, and returns the token. The header names the algorithm of the key, and the id if there is
    /// one.
    #[must_use]
    pub fn sign(&self, id: Option<&str>, claims: &Value) -> String {
        let mut header = json!({"alg": self.algorithm(), "typ": "JWT"});
        if let Some(id) = id {
            header["kid"] = id.into();
        }
        self.sign_with_header(&header, claims)
    }

    /// Signs these claims with any header, and returns the token.
    #[must_use]
    pub fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Ec(pair) => pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            Self::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64(signature))
    }
}

/// Returns the JSON of a key set, in the format of a JWKS file.
pub fn key_set(keys: impl IntoIterator<Item = Value>) -> String {
    json!({"keys": keys.into_iter().collect::<Vec<_>>()}).to_string()
}
