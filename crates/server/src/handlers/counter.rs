//! Requests for counters: reads, increments and deletes.

use std::{sync::Arc, time::Duration};

use crate::access::Right;
use crate::forms::{BodyLimits, receive_increment};
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use rashomon_entries::{Bucket, Error};

use super::entry::canonical_redirect;
use crate::{
    Api,
    answer::{json_type, of_type},
    audit::Audit,
    authorize::{CONDITIONS, Writer, caller_of, kind_of},
    caching::Caching,
    extract::{EntryTarget, idempotency_key::idempotency_key, refuse_query},
    json::CounterJson,
    no_body::no_body,
    overload::hold_while,
    problem::{Kind, Problem, Result},
};

/// The methods of a counter.
const METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";

/// The maximum size of the body of an increment.
const MAX_INCREMENT_BYTES: u64 = 4 << 10;

/// The value of `Retry-After` for a client that may not read, if the counter has too many idempotency keys.
const CONCEALED_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Answers a request for a counter. The caller has one of the rights on the bucket that the method may need; the exact
/// right is checked here.
pub(super) async fn v1(
    api: &Api,
    bucket: Arc<Bucket>,
    target: EntryTarget,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    match head.method {
        Method::GET | Method::HEAD => get(api, &bucket, &target, head).await,
        // Boxed, so that the future of a read does not contain the larger one of a write.
        Method::POST => Box::pin(increment(api, bucket, target, head, body)).await,
        Method::DELETE => Box::pin(delete(api, bucket, target, head)).await,
        _ => Err(Problem::method_not_allowed(METHODS)),
    }
}

async fn get(api: &Api, bucket: &Bucket, target: &EntryTarget, head: &Parts) -> Result<Response> {
    refuse_query(head.uri.query())?;
    if target.needs_redirect {
        return Ok(canonical_redirect(api, bucket, target));
    }
    answer(api.read_key_value(api.key_value.value(bucket, &target.key)).await?)
}

async fn increment(
    api: &Api,
    bucket: Arc<Bucket>,
    target: EntryTarget,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    let writer = check_write(api, &bucket, &target, head)?;
    let caller = caller_of(&head.extensions);
    let idempotency_key = idempotency_key(&head.headers)?.map(|key| key.of_caller(caller.digest()));
    let mut claim = api.claim(Some(0)).await?;
    let limits = BodyLimits { bytes: MAX_INCREMENT_BYTES, ..api.body_limits() };
    let receive = receive_increment(&head.headers, body, limits, api.metrics.received_bytes.clone());
    let room = claim.room();
    let by = hold_while(&mut claim.permit, &room, receive).await?.unwrap_or(1);
    if i32::try_from(by).is_err() {
        // Increments that nearly overflow would show the value to a client that may not read.
        writer.check_condition(
            "an increment beyond the range of 32-bit integers (-2147483648 to 2147483647)",
        )?;
    }
    let (key_value, key) = (api.key_value.clone(), target.key);
    let write =
        Box::pin(async move { key_value.increment(&bucket, &key, by, idempotency_key.as_ref()).await });
    match api.write(claim, Audit::of(&head.extensions), write).await? {
        Ok(value) if writer.may_read() => answer(value),
        Ok(_) => Ok(no_content()),
        // The error contains the value of the counter.
        Err(error @ Error::Overflow { .. }) if !writer.may_read() => {
            let detail = "with the increment, the counter would exceed the range of 64-bit integers: use an increment \
                          that is closer to 0";
            Err(Problem::invalid(detail).with_cause(error))
        }
        // The exact time would show when other clients incremented the counter.
        Err(Error::TooManyIdempotencyKeys { limit, .. }) if !writer.may_read() => {
            let error = Error::TooManyIdempotencyKeys { limit, retry_after: CONCEALED_RETRY_AFTER };
            Err(Problem::of_key_value(error))
        }
        Err(error) => Err(Problem::of_key_value(error)),
    }
}

async fn delete(api: &Api, bucket: Arc<Bucket>, target: EntryTarget, head: &Parts) -> Result<Response> {
    check_write(api, &bucket, &target, head)?;
    let (key_value, key) = (api.key_value.clone(), target.key);
    let write = Box::pin(async move { key_value.delete_counter(&bucket, &key).await });
    let claim = api.claim(Some(0)).await?;
    let deleted = api.write(claim, Audit::of(&head.extensions), write).await?;
    deleted.map_err(Problem::of_key_value)?;
    Ok(no_content())
}

/// Checks that the caller may write to the bucket. Returns the rights of the caller.
fn check_write(api: &Api, bucket: &Bucket, target: &EntryTarget, head: &Parts) -> Result<Writer> {
    refuse_query(head.uri.query())?;
    refuse_conditions(&head.headers)?;
    let (caller, kind) = (caller_of(&head.extensions), kind_of(bucket));
    api.check_right(caller, Right::Write, &target.of.domain, &target.of.bucket, kind)?;
    api.writer_to(caller, &target.of, kind, &head.headers)
}

/// Refuses conditions. A counter has no versions to which a condition could apply.
fn refuse_conditions(headers: &HeaderMap) -> Result<()> {
    match CONDITIONS.iter().find(|name| headers.contains_key(*name)) {
        Some(name) => Err(Problem::malformed(format!(
            "a counter has no versions to which the header {name} could apply: leave it out"
        ))),
        None => Ok(()),
    }
}

fn answer(value: i64) -> Result<Response> {
    let body = serde_json::to_vec(&CounterJson { value }).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    let mut response = of_type(json_type("counter"), Caching::NoStore, body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The answer 204, without the value.
fn no_content() -> Response {
    let mut response = no_body(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    response
}
