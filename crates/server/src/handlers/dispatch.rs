//! Resources whose handler depends on the type of the stored bucket.
//!
//! The caller's rights are checked first, so that a client without a right on the bucket cannot find out its type. For
//! the same reason, the answers to OPTIONS and to methods that no type has do not depend on the type.

use std::sync::Arc;

use crate::access::Right;
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::{Method, request::Parts};
use rashomon_entries::{Bucket, BucketType};

use super::{
    bucket::list_entries,
    counter, entry,
    page::{self, ignore_range_unless_get},
};
use crate::{
    Api,
    answer::options,
    authorize::caller_of,
    extract::{BucketTarget, EntryTarget, READ_METHODS, bucket_and_key_of_v1, bucket_of_v1, idempotency_key},
    problem::{Problem, Result},
};

/// The methods of all types together.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// `/v1/{domain}/{bucket}/{key}`
pub(crate) async fn keyed(State(api): State<Api>, request: Request) -> Result<Response> {
    let (mut head, body) = request.into_parts();
    ignore_range_unless_get(&mut head);
    let (of, raw) = bucket_and_key_of_v1(head.uri.path())?;
    let rights: &[Right] = match head.method {
        Method::GET | Method::HEAD => &[Right::Read],
        Method::POST | Method::DELETE => &[Right::Write],
        // A PUT of a property of a revision needs `rewrite` instead of `write`. The handler checks the exact right.
        Method::PUT => &[Right::Write, Right::Rewrite],
        Method::OPTIONS => return Ok(options(METHODS)),
        _ => return Err(Problem::method_not_allowed(METHODS)),
    };
    let bucket = find(&api, rights, &of, &head).await?;
    let answer = keyed_in(&api, Arc::clone(&bucket), of, raw, &head, body).await;
    api.open_to_browsers(&bucket, &head.method, answer)
}

/// Answers a request for an entry, a counter or a page in a bucket that was found.
async fn keyed_in(
    api: &Api,
    bucket: Arc<Bucket>,
    of: BucketTarget,
    raw: &str,
    head: &Parts,
    body: Body,
) -> Result<Response> {
    if bucket.bucket_type() != BucketType::Counter {
        idempotency_key::refuse(&head.headers)?;
    }
    if let Some(pages) = bucket.pages() {
        return page::in_bucket(api, of.domain, pages, raw, head, body).await;
    }
    let target = EntryTarget::parse(of, raw)?;
    if bucket.bucket_type() == BucketType::Counter {
        counter::v1(api, bucket, target, head, body).await
    } else {
        entry::v1(api, bucket, target, head, body).await
    }
}

/// `/v1/{domain}/{bucket}/`
pub(crate) async fn list(State(api): State<Api>, request: Request) -> Result<Response> {
    let (head, _) = request.into_parts();
    let of = bucket_of_v1(head.uri.path())?;
    match head.method {
        Method::GET | Method::HEAD => {}
        Method::OPTIONS => return Ok(options(READ_METHODS)),
        _ => return Err(Problem::method_not_allowed(READ_METHODS)),
    }
    let bucket = find(&api, &[Right::Read], &of, &head).await?;
    if bucket.pages().is_some() {
        let BucketTarget { domain, bucket } = of;
        return Err(Problem::malformed(format!(
            "the bucket '{bucket}' has pages, and no list of entries: ask for a page at /v1/{domain}/{bucket}/{{title}}, or \
             open /buckets/{domain}/{bucket}/ for their titles"
        )));
    }
    let answer = list_entries(&api, &bucket, &head).await;
    api.open_to_browsers(&bucket, &head.method, answer)
}

/// Finds the bucket for a caller that has at least one of the rights. Refuses writes if the server is read-only.
async fn find(api: &Api, rights: &[Right], of: &BucketTarget, head: &Parts) -> Result<Arc<Bucket>> {
    if api.settings.read_only && rights != [Right::Read] {
        return Err(Problem::read_only());
    }
    api.bucket_for_any(caller_of(&head.extensions), rights, of).await
}
