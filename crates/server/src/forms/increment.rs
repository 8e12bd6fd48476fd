//! The body of an increment of a counter: a form or a JSON object with at most one member.

use axum::body::Body;
use http::{HeaderMap, header};
use prometheus_client::metrics::counter::Counter;
use serde::Deserialize;
use serde_json::Value;

use crate::forms::{BodyLimits, FormError, FormReader, MediaType, RequestBody, refuse_content_encoding};

/// The name of the form field, and of the JSON member.
const INCREMENT: &str = "increment";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    increment: Option<Value>,
}

/// Receives the increment. `None` if the body has no increment, for example because the body is empty. `limits` bounds
/// the memory that the body takes.
pub async fn receive_increment(
    headers: &HeaderMap,
    body: Body,
    limits: BodyLimits,
    received: Counter,
) -> Result<Option<i64>, FormError> {
    refuse_content_encoding(headers)?;
    let mut body = RequestBody::new(body, limits, received)?;
    let mut text = Vec::new();
    while let Some(piece) = body.next().await? {
        text.extend_from_slice(&piece);
    }
    if text.is_empty() {
        return Ok(None);
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if content_type.and_then(MediaType::parse).is_some_and(|media_type| media_type.is_json()) {
        return parse_json(&text);
    }
    // The bytes have already been counted.
    let body = RequestBody::new(text.into(), limits, Counter::default())?;
    let form = FormReader::new(headers, body).map_err(|error| match error {
        FormError::Unsupported(_) => FormError::Unsupported(
            "send the increment as application/x-www-form-urlencoded in UTF-8, multipart/form-data or \
             application/json, or without a body for the increment 1"
                .to_owned(),
        ),
        other => other,
    })?;
    parse_form(form).await
}

fn parse_json(text: &[u8]) -> Result<Option<i64>, FormError> {
    let malformed = |detail: String| {
        FormError::Malformed(format!(
            "the body is not a JSON object with the member 'increment', such as {{\"increment\": 5}}: {detail}"
        ))
    };
    // serde would also accept an array of the members' values.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(malformed("it is not an object".to_owned()));
    }
    let members: Members = serde_json::from_slice(text).map_err(|error| malformed(error.to_string()))?;
    let Some(value) = members.increment else { return Ok(None) };
    // A number that is not a 64-bit integer has a point, an exponent, or too many digits.
    match &value {
        Value::Number(number) => match number.as_f64() {
            Some(float)
                if number.as_i64().is_none()
                    && float.abs() >= 9_223_372_036_854_775_808.0
                    && float.trunc() == float =>
            {
                Err(out_of_range())
            }
            _ => number.as_i64().map(Some).ok_or_else(not_an_integer),
        },
        _ => Err(not_an_integer()),
    }
}

async fn parse_form(mut form: FormReader) -> Result<Option<i64>, FormError> {
    let mut found = None;
    while let Some(field) = form.next_field().await? {
        if field.name != INCREMENT {
            let name = rashomon_records::excerpt(&field.name);
            return Err(FormError::Malformed(format!(
                "an increment has no field '{name}': its only field is '{INCREMENT}'"
            )));
        }
        if found.is_some() {
            return Err(FormError::Malformed(format!(
                "the field '{INCREMENT}' is given twice: send it once"
            )));
        }
        let mut value = Vec::new();
        while let Some(piece) = form.chunk().await? {
            value.extend_from_slice(&piece);
        }
        found = Some(parse_digits(&value)?);
    }
    Ok(found)
}

fn parse_digits(value: &[u8]) -> Result<i64, FormError> {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(not_an_integer());
    }
    let text = std::str::from_utf8(value).map_err(|_| not_an_integer())?;
    text.parse().map_err(|_| out_of_range())
}

fn not_an_integer() -> FormError {
    FormError::Malformed(format!(
        "'{INCREMENT}' must be a whole number, such as 5 or -5, without quotes, spaces, a point or a plus sign"
    ))
}

fn out_of_range() -> FormError {
    FormError::OutOfRange(format!(
        "'{INCREMENT}' must be a 64-bit integer: from {} to {}",
        i64::MIN,
        i64::MAX
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;

    const FORM: &str = "application/x-www-form-urlencoded";
    const JSON: &str = "application/json";

    async fn received(content_type: &str, body: &'static str) -> Result<Option<i64>, FormError> {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        }
        let limits =
            BodyLimits { bytes: 100, idle: Duration::from_secs(9), total: Duration::from_secs(9), rate: 0 };
        receive_increment(&headers, body.into(), limits, Counter::default()).await
    }

    #[tokio::test]
    async fn increment_is_received_from_forms_and_json() {
        for (content_type, body, expected) in [
            ("", "", None),
            (FORM, "", None),
            (JSON, "", None),
            ("text/html", "", None),
            (FORM, "&", None),
            (FORM, "increment=5", Some(5)),
            (FORM, "increment=%2D5", Some(-5)),
            (FORM, "increment=0", Some(0)),
            (FORM, "increment=-9223372036854775808", Some(i64::MIN)),
            ("multipart/form-data; boundary=b", MULTIPART, Some(7)),
            (JSON, "{}", None),
            (JSON, r#"{"increment": null}"#, None),
            (JSON, r#" {"increment": -5}"#, Some(-5)),
            ("application/json; charset=utf-8", r#"{"increment": 9223372036854775807}"#, Some(i64::MAX)),
            ("application/problem+json", r#"{"increment": -9223372036854775808}"#, Some(i64::MIN)),
        ] {
            assert_eq!(received(content_type, body).await.unwrap(), expected, "{content_type}: {body}");
        }
    }

    const MULTIPART: &str = "--b\r\nContent-Disposition: form-data; name=increment\r\n\r\n7\r\n--b--\r\n";

    #[tokio::test]
    async fn other_bodies_are_refused() {
        for (content_type, body, kind) in [
            (FORM, "increment=", "Malformed"),
            (FORM, "increment", "Malformed"),
            (FORM, "increment=-", "Malformed"),
            (FORM, "increment=+5", "Malformed"),
            (FORM, "increment=%2B5", "Malformed"),
            (FORM, "increment=1.5", "Malformed"),
            (FORM, "increment=1e3", "Malformed"),
            (FORM, "increment=0x1", "Malformed"),
            (FORM, "increment=5%", "Malformed"),
            (FORM, "increment=%ff", "Malformed"),
            (FORM, "increment=1&increment=1", "Malformed"),
            (FORM, "by=1", "Malformed"),
            (FORM, "increment=9223372036854775808", "OutOfRange"),
            (FORM, "increment=-99999999999999999999", "OutOfRange"),
            (JSON, "5", "Malformed"),
            (JSON, "[5]", "Malformed"),
            (JSON, "{", "Malformed"),
            (JSON, "{} {}", "Malformed"),
            (JSON, r#"{"increment": "5"}"#, "Malformed"),
            (JSON, r#"{"increment": 1.5}"#, "Malformed"),
            (JSON, r#"{"increment": 1.0}"#, "Malformed"),
            (JSON, r#"{"increment": true}"#, "Malformed"),
            (JSON, r#"{"increment": 1, "increment": 1}"#, "Malformed"),
            (JSON, r#"{"by": 1}"#, "Malformed"),
            (JSON, r#"{"increment": 9223372036854775808}"#, "OutOfRange"),
            (JSON, r#"{"increment": -9223372036854775809}"#, "OutOfRange"),
            (JSON, r#"{"increment": 99999999999999999999999}"#, "OutOfRange"),
            ("", "increment=5", "Unsupported"),
            ("text/plain", "5", "Unsupported"),
            ("x", "5", "Malformed"),
        ] {
            let error = received(content_type, body).await.unwrap_err();
            assert!(format!("{error:?}").starts_with(kind), "{content_type}: {body}: {error:?}");
            assert!(
                error.to_string().contains("increment") || !["OutOfRange", "Unsupported"].contains(&kind)
            );
        }
        // Leading zeros are accepted, as far as the limit of the body allows.
        let long = "increment=00000000000000000000000000000000000000000000000000000000000000000000000000000000000000001";
        let error = received(FORM, long).await;
        assert_eq!(error.unwrap(), Some(1));
        const TOO_LONG: &str = "increment=000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001";
        assert!(matches!(received(FORM, TOO_LONG).await, Err(FormError::Body(_))));
    }
}
