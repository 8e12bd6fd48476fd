//! JSON Web Tokens (RFC 7519), which another server issues and signs, and the keys that verify them.

use std::{collections::HashMap, time::Duration};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use rashomon_clock::Timestamp;
use serde::Deserialize;

use crate::access::{
    BucketPattern, DomainPattern, Grant, Rights, grant::MAX_PATTERNS, present::deserialize_present,
};

/// How much the clocks of the issuer and of this server may differ.
const LEEWAY: Duration = Duration::from_secs(60);

/// The maximum number of keys of a set.
pub(crate) const MAX_KEYS: usize = 1000;

/// The minimum size of an RSA key.
const MIN_RSA_BITS: usize = 2048;

/// The maximum size in bytes of the subject of a token.
const MAX_SUBJECT_BYTES: usize = 256;

/// A set of public keys (RFC 7517).
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
    /// The indices in `keys` of the keys with each id.
    by_id: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
struct Key {
    key: DecodingKey,
    /// The algorithms for which the key may be used. They come from the key, never from a token.
    algorithms: Vec<Algorithm>,
}

/// The error for a set of keys that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct KeySetError(String);

/// A verified token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    pub(crate) grant: Grant,
    /// The time from which the token is not valid any more, with [`LEEWAY`] added.
    pub(crate) valid_until: Timestamp,
    /// The client for which the token was issued.
    pub(crate) subject: Option<String>,
}

/// The reason why a token is not valid. No message has a part of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("it is not a JSON Web Token that this server can read")]
    Unreadable,
    #[error("the server has no key for its algorithm, or its 'kid' names a key for another algorithm")]
    Algorithm,
    #[error("it has a critical extension that this server does not know")]
    Critical,
    #[error("no key of the server has its 'kid'")]
    UnknownKey,
    #[error("it has no 'kid', and the server has several keys for its algorithm")]
    NoKeyId,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has no 'exp': a token must expire")]
    NoExpiry,
    #[error("it has expired")]
    Expired,
    #[error("its 'nbf' is in the future")]
    NotYet,
    #[error("its 'aud' is missing, or does not name the audience of this server")]
    Audience,
    #[error("one of its claims 'rights', 'domains', 'buckets' or 'sub' is malformed or too long")]
    Claims,
}

/// The claims that this server reads. The rights, domains and buckets are checked in a second step, so that
/// the reason for a refusal is exact.
#[derive(Debug, Deserialize)]
struct Claims {
    exp: Option<f64>,
    nbf: Option<f64>,
    aud: Option<OneOrMany>,
    sub: Option<String>,
    #[serde(default, deserialize_with = "deserialize_present")]
    rights: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    domains: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "deserialize_present")]
    buckets: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::One(one) => one == wanted,
            Self::Many(all) => all.iter().any(|one| one == wanted),
        }
    }
}

impl KeySet {
    /// Reads a set of keys. Keys with which this server cannot verify signatures are left out: values that are no JWK,
    /// keys of unknown kinds or algorithms, keys for another use, and short RSA keys. A symmetric key is an error, and
    /// so is a key whose numbers cannot be decoded. With an empty set, no token is valid.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Raw {
            keys: Vec<serde_json::Value>,
        }
        let error = |what: String| KeySetError(what);
        let raw: Raw = serde_json::from_slice(text)
            .map_err(|cause| error(format!("it is no set of keys as in RFC 7517: {cause}")))?;
        if raw.keys.len() > MAX_KEYS {
            return Err(error(format!("it has {} keys, and at most {MAX_KEYS} are allowed", raw.keys.len())));
        }
        let mut set = Self::default();
        for (place, value) in raw.keys.into_iter().enumerate() {
            let number = place + 1;
            if value.get("kty").and_then(serde_json::Value::as_str) == Some("oct") {
                return Err(error(format!(
                    "key {number} is symmetric: anybody who can verify with it can also sign; use RSA, EC or OKP keys"
                )));
            }
            let Ok(jwk) = serde_json::from_value::<Jwk>(value) else {
                tracing::warn!(
                    key = number,
                    "a key of the JWKS file is malformed or of an unknown kind, and is left out"
                );
                continue;
            };
            if jwk.common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
                tracing::warn!(key = number, "a key of the JWKS file is not for signatures and is left out");
                continue;
            }
            if is_short(&jwk) {
                tracing::warn!(
                    key = number,
                    "an RSA key of the JWKS file has less than {MIN_RSA_BITS} bits and is left out"
                );
                continue;
            }
            let algorithms = algorithms(&jwk);
            if algorithms.is_empty() {
                tracing::warn!(
                    key = number,
                    "a key of the JWKS file is for no algorithm of this server and is left out"
                );
                continue;
            }
            let key = DecodingKey::from_jwk(&jwk)
                .map_err(|cause| error(format!("key {number} cannot be read: {cause}")))?;
            if let Some(id) = jwk.common.key_id {
                set.by_id.entry(id).or_default().push(set.keys.len());
            }
            set.keys.push(Key { key, algorithms });
        }
        if set.keys.is_empty() {
            tracing::warn!(
                "the JWKS file has no key that can verify signatures: no JSON Web Token is accepted"
            );
        }
        Ok(set)
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Verifies a token.
    pub(crate) fn verify(
        &self,
        token: &str,
        audience: &str,
        now: Timestamp,
    ) -> Result<VerifiedToken, JwtError> {
        let header = decode_header(token).map_err(|_| JwtError::Unreadable)?;
        if header.crit.is_some() {
            return Err(JwtError::Critical);
        }
        let key = self.key(header.kid.as_deref(), header.alg)?;
        let mut validation = Validation::new(header.alg);
        // The claims are checked below, with the clock of the server.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let claims = decode::<Claims>(token, &key.key, &validation).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidSignature => JwtError::Signature,
            _ => JwtError::Unreadable,
        })?;
        claims.claims.check(audience, now)
    }

    /// Returns the key that verifies tokens with this key id and this algorithm.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, JwtError> {
        let fits = |key: &&Key| key.algorithms.contains(&algorithm);
        match id {
            Some(id) => {
                let places = self.by_id.get(id).ok_or(JwtError::UnknownKey)?;
                let mut keys = places.iter().filter_map(|&place| self.keys.get(place));
                keys.find(fits).ok_or(JwtError::Algorithm)
            }
            None => {
                let mut keys = self.keys.iter().filter(fits);
                match (keys.next(), keys.next()) {
                    (Some(key), None) => Ok(key),
                    (None, _) => Err(JwtError::Algorithm),
                    (Some(_), Some(_)) => Err(JwtError::NoKeyId),
                }
            }
        }
    }
}

/// Whether a key is an RSA key that is too short.
fn is_short(jwk: &Jwk) -> bool {
    match &jwk.algorithm {
        // Each base64url digit of the modulus has six bits.
        AlgorithmParameters::RSA(key) => key.n.trim_end_matches('=').len() * 6 < MIN_RSA_BITS,
        _ => false,
    }
}

/// Returns the algorithms for which a key may be used: the algorithm that the key names, otherwise all of its kind.
fn algorithms(jwk: &Jwk) -> Vec<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    let of_kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![ES256],
            EllipticCurve::P384 => vec![ES384],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => vec![EdDSA],
        _ => Vec::new(),
    };
    match jwk.common.key_algorithm {
        None => of_kind,
        Some(named) => {
            of_kind.into_iter().filter(|algorithm| KeyAlgorithm::from(*algorithm) == named).collect()
        }
    }
}

impl Claims {
    fn check(self, audience: &str, now: Timestamp) -> Result<VerifiedToken, JwtError> {
        let valid_until = time(self.exp.ok_or(JwtError::NoExpiry)?).saturating_add(LEEWAY);
        if now >= valid_until {
            return Err(JwtError::Expired);
        }
        if self.nbf.is_some_and(|from| now < time(from).saturating_sub(LEEWAY)) {
            return Err(JwtError::NotYet);
        }
        if !self.aud.is_some_and(|of_token| of_token.contains(audience)) {
            return Err(JwtError::Audience);
        }
        let grant = Grant {
            rights: claim::<Rights>(self.rights)?.unwrap_or_default(),
            domains: patterns::<DomainPattern>(self.domains)?.unwrap_or_default(),
            buckets: patterns::<BucketPattern>(self.buckets)?,
        };
        let subject = self.sub.filter(|subject| !subject.is_empty());
        if subject.as_ref().is_some_and(|subject| subject.len() > MAX_SUBJECT_BYTES) {
            return Err(JwtError::Claims);
        }
        Ok(VerifiedToken { grant, valid_until, subject })
    }
}

fn claim<T: for<'de> Deserialize<'de>>(value: Option<serde_json::Value>) -> Result<Option<T>, JwtError> {
    value.map(|value| serde_json::from_value(value).map_err(|_| JwtError::Claims)).transpose()
}

fn patterns<T: for<'de> Deserialize<'de>>(
    value: Option<serde_json::Value>,
) -> Result<Option<Vec<T>>, JwtError> {
    let patterns = claim::<Vec<T>>(value)?;
    if patterns.as_ref().is_some_and(|patterns| patterns.len() > MAX_PATTERNS) {
        return Err(JwtError::Claims);
    }
    Ok(patterns)
}

/// Converts a `NumericDate`: seconds since 1970, perhaps with a fraction.
fn time(seconds: f64) -> Timestamp {
    // A cast of a number that is too large, or that is no number, gives the nearest time, or 1970.
    Timestamp::from_micros((seconds * 1e6) as i64)
}

#[cfg(test)]
mod tests;
