//! Receives the definition of a bucket.

use std::fmt;

use crate::forms::{BodyLimits, MediaType, RequestBody, refuse_content_encoding};
use axum::body::Body;
use http::{HeaderMap, header};
use rashomon_entries::{BucketType, Definition};
use rashomon_pages::excerpt;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::Value;

use crate::{
    Api,
    problem::{Kind, Problem, Result},
};

/// The maximum size of a definition.
pub(crate) const MAX_DEFINITION_BYTES: u64 = 16 << 10;

/// The members of a definition.
const MEMBERS: [&str; 5] = ["type", "content_type", "public", "ttl", "max_size"];

/// The number 2^63. A float of this size or more is a whole number, and too large for a signed integer of 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

const TYPES: [BucketType; 4] =
    [BucketType::Blob, BucketType::OrderedBlob, BucketType::Counter, BucketType::Revisioned];

/// The members of a JSON object, in order, with repetitions.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Receives a definition. Checks only the names and the JSON types of its members: [`check`] checks the values.
pub(super) async fn receive(api: &Api, headers: &HeaderMap, body: Body) -> Result<Definition> {
    refuse_content_encoding(headers)?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !content_type.and_then(MediaType::parse).is_some_and(|media_type| media_type.is_json()) {
        let detail = "the Content-Type of the definition of a bucket must be application/json";
        return Err(Problem::new(Kind::UnsupportedMediaType, detail));
    }
    let limits = BodyLimits { bytes: MAX_DEFINITION_BYTES, ..api.body_limits() };
    let mut body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let mut text = Vec::new();
    while let Some(piece) = body.next().await? {
        text.extend_from_slice(&piece);
    }
    parse(&text)
}

fn parse(text: &[u8]) -> Result<Definition> {
    // For a value that is not an object, the error of the parser is not clear.
    if !text.trim_ascii_start().starts_with(b"{") {
        let detail =
            "the body is not a JSON object: send the definition of the bucket, such as {\"type\": \"blob\"}";
        return Err(Problem::malformed(detail));
    }
    let Members(members) = serde_json::from_slice(text).map_err(|error| {
        Problem::malformed(format!(
            "the body is not valid JSON ({}): send the definition of the bucket, such as {{\"type\": \"blob\"}}",
            excerpt(error)
        ))
    })?;
    let mut definition = Definition::of(BucketType::Blob);
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in &members {
        if !MEMBERS.contains(&name.as_str()) {
            return Err(Problem::malformed(format!(
                "a definition has no member '{}': its members are {}",
                excerpt(name),
                MEMBERS.join(", ")
            )));
        }
        if seen.contains(&name.as_str()) {
            return Err(Problem::malformed(format!("the member '{name}' is given twice: send it once")));
        }
        seen.push(name);
        match name.as_str() {
            "type" => definition.bucket_type = parse_type(value)?,
            // A member that is null is absent.
            _ if value.is_null() => {}
            "content_type" => {
                let text = value.as_str().ok_or_else(|| wrong(name, "a text, such as \"image/png\""))?;
                definition.content_type = Some(text.to_owned());
            }
            "public" => definition.public = value.as_bool().ok_or_else(|| wrong(name, "true or false"))?,
            "ttl" => definition.ttl = Some(parse_number(name, value)?),
            _ => definition.max_size = Some(parse_number(name, value)?),
        }
    }
    if !seen.contains(&"type") {
        return Err(Problem::malformed("the definition lacks the member 'type', such as \"blob\""));
    }
    Ok(definition)
}

fn wrong(member: &str, expected: &str) -> Problem {
    Problem::malformed(format!("the member '{member}' must be {expected}"))
}

fn parse_type(value: &Value) -> Result<BucketType> {
    let found = value.as_str().and_then(|text| TYPES.into_iter().find(|known| known.as_str() == text));
    found.ok_or_else(|| {
        let names = TYPES.map(|known| format!("\"{known}\""));
        wrong("type", &format!("one of {}", names.join(", ")))
    })
}

/// Parses a positive number. A number that is out of range becomes `u64::MIN` or `u64::MAX`, which [`check`] refuses.
fn parse_number(member: &str, value: &Value) -> Result<u64> {
    match (value.as_u64(), value.as_f64()) {
        (Some(number), _) => Ok(number),
        (None, Some(_)) if value.is_i64() => Ok(u64::MIN),
        (None, Some(number)) if number.abs() >= TWO_TO_63 => {
            Ok(if number < 0.0 { u64::MIN } else { u64::MAX })
        }
        _ => Err(wrong(member, "a whole number, without a point, an exponent or quotes")),
    }
}

/// Checks the values of a definition. Refuses malformed members, and members that the type does not have, with 400.
/// Refuses other invalid values with 422.
pub(super) fn check(definition: &Definition, body_limit: u64) -> Result<()> {
    let Definition { bucket_type, content_type, public: _, ttl, max_size } = definition;
    let misplaced =
        !bucket_type.has_bodies() && (content_type.is_some() || ttl.is_some() || max_size.is_some());
    let malformed = content_type.as_deref().is_some_and(|text| MediaType::parse(text).is_none());
    match definition.check(body_limit) {
        Err(error) if misplaced || malformed => Err(Problem::malformed(error.to_string())),
        Err(error) => Err(Problem::invalid(error.to_string())),
        Ok(()) if malformed => {
            Err(wrong("content_type", "a media type, such as \"text/html; charset=utf-8\""))
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Definition, (Kind, String)> {
        let definition =
            parse(text.as_bytes()).and_then(|definition| check(&definition, 1000).map(|()| definition));
        definition.map_err(|problem| (problem.kind(), problem.detail().to_owned()))
    }

    #[test]
    fn definitions_are_read() {
        let blob = Definition::of(BucketType::Blob);
        for (text, definition) in [
            (r#"{"type": "blob"}"#, blob.clone()),
            (r#" {"type": "blob", "ttl": null, "public": null} "#, blob.clone()),
            (
                r#"{"public": true, "type": "revisioned"}"#,
                Definition { public: true, ..Definition::of(BucketType::Revisioned) },
            ),
            (
                r#"{"public": true, "type": "ordered-blob"}"#,
                Definition { public: true, ..Definition::of(BucketType::OrderedBlob) },
            ),
            (
                r#"{"type": "blob", "content_type": "image/png", "public": false, "ttl": 86400, "max_size": 1000}"#,
                Definition {
                    content_type: Some("image/png".to_owned()),
                    ttl: Some(86400),
                    max_size: Some(1000),
                    ..blob
                },
            ),
        ] {
            assert_eq!(parsed(text), Ok(definition), "{text}");
        }
    }

    #[test]
    fn problem_names_the_member() {
        use Kind::{InvalidValue, Malformed};
        for (text, kind, name) in [
            ("", Malformed, "JSON"),
            ("[]", Malformed, "the body is not a JSON object: send the definition of the bucket"),
            ("{", Malformed, "the body is not valid JSON (EOF while parsing an object"),
            ("{} {}", Malformed, "JSON"),
            ("{}", Malformed, "'type'"),
            (r#"{"ttl": 1}"#, Malformed, "'type'"),
            (r#"{"type": "blob", "color": 1}"#, Malformed, "'color'"),
            (r#"{"type": "blob", "type": "blob"}"#, Malformed, "'type'"),
            (r#"{"type": "blob", "ttl": 1, "ttl": 1}"#, Malformed, "'ttl'"),
            (r#"{"type": "Blob"}"#, Malformed, "'type'"),
            (r#"{"type": 1}"#, Malformed, "'type'"),
            (r#"{"type": null}"#, Malformed, "'type'"),
            (r#"{"type": "blob", "content_type": 1}"#, Malformed, "'content_type'"),
            (r#"{"type": "blob", "content_type": "png"}"#, Malformed, "content_type"),
            (r#"{"type": "blob", "content_type": "a/b; x"}"#, Malformed, "'content_type'"),
            (r#"{"type": "blob", "content_type": "a/b\nc: d"}"#, Malformed, "content_type"),
            (r#"{"type": "blob", "public": "yes"}"#, Malformed, "'public'"),
            (r#"{"type": "blob", "ttl": "1"}"#, Malformed, "'ttl'"),
            (r#"{"type": "blob", "ttl": 1.5}"#, Malformed, "'ttl'"),
            (r#"{"type": "blob", "max_size": [1]}"#, Malformed, "'max_size'"),
            (r#"{"type": "counter", "content_type": "a/b"}"#, Malformed, "content_type"),
            (r#"{"type": "counter", "ttl": 1}"#, Malformed, "ttl"),
            (r#"{"type": "counter", "max_size": 1}"#, Malformed, "max_size"),
            (r#"{"type": "blob", "ttl": 0}"#, InvalidValue, "ttl"),
            (
                r#"{"type": "blob", "ttl": -1}"#,
                InvalidValue,
                "ttl is a number of seconds from 1 to 31622400000",
            ),
            (
                r#"{"type": "blob", "ttl": 99999999999999999999}"#,
                InvalidValue,
                "ttl is a number of seconds from 1 to",
            ),
            (
                r#"{"type": "blob", "ttl": -99999999999999999999}"#,
                InvalidValue,
                "ttl is a number of seconds from 1 to",
            ),
            (r#"{"type": "blob", "ttl": 1e3}"#, Malformed, "'ttl' must be a whole number, without a point"),
            (r#"{"type": "blob", "max_size": 0}"#, InvalidValue, "max_size"),
            (
                r#"{"type": "blob", "max_size": -1}"#,
                InvalidValue,
                "max_size is a number of bytes from 1 to 1000",
            ),
            (r#"{"type": "blob", "max_size": 1001}"#, InvalidValue, "max_size"),
            (r#"{"type": "revisioned", "content_type": "a/b"}"#, Malformed, "content_type"),
            (r#"{"type": "revisioned", "ttl": 1}"#, Malformed, "ttl"),
            (r#"{"type": "revisioned", "max_size": 1}"#, Malformed, "max_size"),
        ] {
            let (found, detail) = parsed(text).unwrap_err();
            assert_eq!(found, kind, "{text}: {detail}");
            assert!(detail.contains(name), "{text}: {detail}");
        }
    }
}
